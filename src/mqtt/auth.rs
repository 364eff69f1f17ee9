//! AUTH (3.15): enhanced authentication, MQTT 5.0 only.

use super::codec::{Malformed, Peer};
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_packet};
use super::{PacketType, ProtocolVersion, ReasonCode};

/// One step of an authentication exchange (4.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> Auth<'a> {
    pub(super) fn decode(body: &'a [u8], from: Peer) -> Result<Auth<'a>, Malformed> {
        let mut reader = Reader::new(body);
        if reader.is_empty() {
            // Success without properties may leave everything out (3.15.2.1), and Success is the server's to say.
            return Auth { reason: ReasonCode::Success, properties: Properties::EMPTY }.checked(from);
        }
        let reason = ReasonCode::from_u8(reader.u8(field!("AUTH, Reason Code"))?).ok_or(UNKNOWN_REASON)?;
        let properties = Properties::read(&mut reader, Place::Auth)?;
        reader.end("AUTH: bytes behind the properties (3.15.3)")?;
        if properties.authentication_method().is_none() {
            return Err(Malformed::protocol("AUTH: without an Authentication Method (3.15.2.2.2)"));
        }
        Auth { reason, properties }.checked(from)
    }

    /// Who may send which reason code [MQTT-3.15.2-1].
    fn checked(self, from: Peer) -> Result<Auth<'a>, Malformed> {
        match (self.reason, from) {
            (ReasonCode::ContinueAuthentication, _)
            | (ReasonCode::Success, Peer::Server)
            | (ReasonCode::ReAuthenticate, Peer::Client) => Ok(self),
            _ => Err(UNKNOWN_REASON),
        }
    }

    /// Appends the packet. AUTH exists in MQTT 5.0 only, whatever `version` says.
    pub fn encode(&self, _version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::Auth.first_byte(), |out| {
            if self.reason != ReasonCode::Success || !self.properties.is_empty() {
                out.push(self.reason as u8);
                self.properties.put(out);
            }
        });
    }
}

const UNKNOWN_REASON: Malformed =
    Malformed::protocol("AUTH, Reason Code: not one that this side may send [MQTT-3.15.2-1]");
