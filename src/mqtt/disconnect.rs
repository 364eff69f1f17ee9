//! DISCONNECT (3.14). Before MQTT 5.0 only clients send it, and it says nothing more.

use super::codec::{Malformed, Peer};
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_packet};
use super::{PacketType, ProtocolVersion, ReasonCode};

/// The last packet on a network connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disconnect<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> Disconnect<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion, from: Peer) -> Result<Disconnect<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let mut disconnect = Disconnect { reason: ReasonCode::NormalDisconnection, properties: Properties::EMPTY };
        if reader.is_empty() {
            return Ok(disconnect);
        }
        if !version.is_v5() {
            return Err(Malformed::packet("DISCONNECT: has a body (3.1.1, 3.14)"));
        }
        let code = reader.u8(field!("DISCONNECT, Reason Code"))?;
        disconnect.reason = ReasonCode::from_u8(code)
            .filter(|reason| may_send(from, *reason))
            .ok_or(Malformed::protocol("DISCONNECT, Reason Code: not one that this side may send [MQTT-3.14.2-1]"))?;
        if !reader.is_empty() {
            disconnect.properties = Properties::read(&mut reader, Place::Disconnect)?;
        }
        reader.end("DISCONNECT: bytes behind the properties (3.14.3)")?;
        match from {
            Peer::Server if disconnect.properties.session_expiry_interval().is_some() => {
                Err(Malformed::protocol("DISCONNECT: Session Expiry Interval from the server [MQTT-3.14.2-2]"))
            }
            Peer::Client if disconnect.properties.server_reference().is_some() => {
                Err(Malformed::protocol("DISCONNECT: Server Reference from the client (3.14.2.2.5)"))
            }
            _ => Ok(disconnect),
        }
    }

    /// Appends the packet in its shortest form (3.14.2.1, 3.14.2.2.1).
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::Disconnect.first_byte(), |out| {
            if !version.is_v5() || (self.reason == ReasonCode::NormalDisconnection && self.properties.is_empty()) {
                return;
            }
            out.push(self.reason as u8);
            if !self.properties.is_empty() {
                self.properties.put(out);
            }
        });
    }
}

/// The reason codes of DISCONNECT by sender (3.14.2.1, table 3-10).
fn may_send(from: Peer, reason: ReasonCode) -> bool {
    match reason {
        ReasonCode::NormalDisconnection
        | ReasonCode::UnspecifiedError
        | ReasonCode::MalformedPacket
        | ReasonCode::ProtocolError
        | ReasonCode::ImplementationSpecificError
        | ReasonCode::TopicNameInvalid
        | ReasonCode::ReceiveMaximumExceeded
        | ReasonCode::TopicAliasInvalid
        | ReasonCode::PacketTooLarge
        | ReasonCode::MessageRateTooHigh
        | ReasonCode::QuotaExceeded
        | ReasonCode::AdministrativeAction
        | ReasonCode::PayloadFormatInvalid => true,
        ReasonCode::DisconnectWithWill => from == Peer::Client,
        ReasonCode::NotAuthorized
        | ReasonCode::ServerBusy
        | ReasonCode::ServerShuttingDown
        | ReasonCode::KeepAliveTimeout
        | ReasonCode::SessionTakenOver
        | ReasonCode::TopicFilterInvalid
        | ReasonCode::RetainNotSupported
        | ReasonCode::QoSNotSupported
        | ReasonCode::UseAnotherServer
        | ReasonCode::ServerMoved
        | ReasonCode::SharedSubscriptionsNotSupported
        | ReasonCode::ConnectionRateExceeded
        | ReasonCode::MaximumConnectTime
        | ReasonCode::SubscriptionIdentifiersNotSupported
        | ReasonCode::WildcardSubscriptionsNotSupported => from == Peer::Server,
        _ => false,
    }
}
