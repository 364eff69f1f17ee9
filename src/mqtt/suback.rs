//! SUBACK (3.9).

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_packet, put_u16};
use super::{PacketId, PacketType, ProtocolVersion, ReasonCode};

/// What became of each topic filter of a SUBSCRIBE, in its order [MQTT-3.9.3-1].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAck<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// One reason code for each topic filter.
    pub codes: &'a [u8],
}

/// The only failure that MQTT 3.1.1 knows.
const FAILURE: u8 = ReasonCode::UnspecifiedError as u8;

impl<'a> SubAck<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<SubAck<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id(field!("SUBACK, Packet Identifier"))?;
        let properties =
            if version.is_v5() { Properties::read(&mut reader, Place::SubAck)? } else { Properties::EMPTY };
        let codes = reader.rest();
        if codes.is_empty() {
            return Err(Malformed::protocol("SUBACK: without a Reason Code [MQTT-3.9.3-1]"));
        }
        let legal = if version.is_v5() {
            codes.iter().all(|code| allows(*code))
        } else {
            codes.iter().all(|code| matches!(*code, 0..=2 | FAILURE))
        };
        if !legal {
            return Err(Malformed::protocol("SUBACK, Reason Code: not one of this packet [MQTT-3.9.3-2]"));
        }
        Ok(SubAck { packet_id, properties, codes })
    }

    /// Appends the packet. Before MQTT 5.0 every failure is 0x80.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::SubAck.first_byte(), |out| {
            put_u16(out, self.packet_id.get());
            if version.is_v5() {
                self.properties.put(out);
                out.extend_from_slice(self.codes);
            } else {
                out.extend(self.codes.iter().map(|code| (*code).min(FAILURE)));
            }
        });
    }
}

/// The reason codes of SUBACK (3.9.3, table 3-8).
fn allows(code: u8) -> bool {
    matches!(
        ReasonCode::from_u8(code),
        Some(
            ReasonCode::GrantedQoS0
                | ReasonCode::GrantedQoS1
                | ReasonCode::GrantedQoS2
                | ReasonCode::UnspecifiedError
                | ReasonCode::ImplementationSpecificError
                | ReasonCode::NotAuthorized
                | ReasonCode::TopicFilterInvalid
                | ReasonCode::PacketIdentifierInUse
                | ReasonCode::QuotaExceeded
                | ReasonCode::SharedSubscriptionsNotSupported
                | ReasonCode::SubscriptionIdentifiersNotSupported
                | ReasonCode::WildcardSubscriptionsNotSupported
        )
    )
}
