//! UNSUBACK (3.11). Before MQTT 5.0 it is its packet identifier and nothing else.

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_packet, put_u16};
use super::{PacketId, PacketType, ProtocolVersion, ReasonCode};

/// What became of each topic filter of an UNSUBSCRIBE, in its order [MQTT-3.11.3-1].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// One reason code for each topic filter; none before MQTT 5.0.
    pub codes: &'a [u8],
}

impl<'a> UnsubAck<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<UnsubAck<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id(field!("UNSUBACK, Packet Identifier"))?;
        if !version.is_v5() {
            reader.end("UNSUBACK: bytes behind the Packet Identifier (3.1.1, 3.11.3)")?;
            return Ok(UnsubAck { packet_id, properties: Properties::EMPTY, codes: &[] });
        }
        let properties = Properties::read(&mut reader, Place::UnsubAck)?;
        let codes = reader.rest();
        if codes.is_empty() {
            return Err(Malformed::protocol("UNSUBACK: without a Reason Code [MQTT-3.11.3-1]"));
        }
        if !codes.iter().all(|code| allows(*code)) {
            return Err(Malformed::protocol("UNSUBACK, Reason Code: not one of this packet [MQTT-3.11.3-2]"));
        }
        Ok(UnsubAck { packet_id, properties, codes })
    }

    /// Appends the packet. The codes are left out before MQTT 5.0.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::UnsubAck.first_byte(), |out| {
            put_u16(out, self.packet_id.get());
            if version.is_v5() {
                self.properties.put(out);
                out.extend_from_slice(self.codes);
            }
        });
    }
}

/// The reason codes of UNSUBACK (3.11.3, table 3-9).
fn allows(code: u8) -> bool {
    matches!(
        ReasonCode::from_u8(code),
        Some(
            ReasonCode::Success
                | ReasonCode::NoSubscriptionExisted
                | ReasonCode::UnspecifiedError
                | ReasonCode::ImplementationSpecificError
                | ReasonCode::NotAuthorized
                | ReasonCode::TopicFilterInvalid
                | ReasonCode::PacketIdentifierInUse
        )
    )
}
