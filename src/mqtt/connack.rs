//! CONNACK (3.2).

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_packet};
use super::{PacketType, ProtocolVersion, ReasonCode};

/// The server's answer to CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnAck<'a> {
    pub session_present: bool,
    /// Before MQTT 5.0 the return code, as the reason code that means the same.
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> ConnAck<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<ConnAck<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let flags = reader.u8(field!("CONNACK, Acknowledge Flags"))?;
        let code = reader.u8(field!("CONNACK, Reason Code"))?;
        // MQTT 3.1 has no Session Present and leaves the byte reserved.
        let session_present = version != ProtocolVersion::V3_1 && flags & 1 == 1;
        if version != ProtocolVersion::V3_1 && flags & 0xFE != 0 {
            return Err(Malformed::packet("CONNACK, Acknowledge Flags: reserved bits [MQTT-3.2.2-1]"));
        }
        let reason = if version.is_v5() {
            ReasonCode::from_u8(code).filter(|reason| allows(*reason))
        } else {
            ReasonCode::from_connect_return_code(code)
        };
        let reason =
            reason.ok_or(Malformed::protocol("CONNACK, Reason Code: not one of this packet [MQTT-3.2.2-8]"))?;
        if session_present && reason != ReasonCode::Success {
            return Err(Malformed::protocol("CONNACK: Session Present in a refusal [MQTT-3.2.2-6]"));
        }
        let properties =
            if version.is_v5() { Properties::read(&mut reader, Place::ConnAck)? } else { Properties::EMPTY };
        reader.end("CONNACK: bytes behind the last field (3.2.3)")?;
        Ok(ConnAck { session_present, reason, properties })
    }

    /// Appends the packet.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::ConnAck.first_byte(), |out| match version {
            ProtocolVersion::V3_1 => out.extend_from_slice(&[0, self.reason.connect_return_code()]),
            ProtocolVersion::V3_1_1 => {
                out.extend_from_slice(&[u8::from(self.session_present), self.reason.connect_return_code()])
            }
            ProtocolVersion::V5 => {
                out.extend_from_slice(&[u8::from(self.session_present), self.reason as u8]);
                self.properties.put(out);
            }
        });
    }
}

/// The reason codes of CONNACK (3.2.2.2, table 3-1).
fn allows(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::Success
            | ReasonCode::UnspecifiedError
            | ReasonCode::MalformedPacket
            | ReasonCode::ProtocolError
            | ReasonCode::ImplementationSpecificError
            | ReasonCode::UnsupportedProtocolVersion
            | ReasonCode::ClientIdentifierNotValid
            | ReasonCode::BadUserNameOrPassword
            | ReasonCode::NotAuthorized
            | ReasonCode::ServerUnavailable
            | ReasonCode::ServerBusy
            | ReasonCode::Banned
            | ReasonCode::BadAuthenticationMethod
            | ReasonCode::TopicNameInvalid
            | ReasonCode::PacketTooLarge
            | ReasonCode::QuotaExceeded
            | ReasonCode::PayloadFormatInvalid
            | ReasonCode::RetainNotSupported
            | ReasonCode::QoSNotSupported
            | ReasonCode::UseAnotherServer
            | ReasonCode::ServerMoved
            | ReasonCode::ConnectionRateExceeded
    )
}
