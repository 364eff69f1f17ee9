//! PUBACK, PUBREC, PUBREL and PUBCOMP (3.4 to 3.7): four packets of one form.

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_u16, put_variable_int, variable_int_len};
use super::{PacketId, PacketType, ProtocolVersion, ReasonCode};

/// Which of the four packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AckKind {
    PubAck,
    PubRec,
    PubRel,
    PubComp,
}

impl AckKind {
    pub const fn packet_type(self) -> PacketType {
        match self {
            AckKind::PubAck => PacketType::PubAck,
            AckKind::PubRec => PacketType::PubRec,
            AckKind::PubRel => PacketType::PubRel,
            AckKind::PubComp => PacketType::PubComp,
        }
    }

    /// The reason codes that the packet may carry [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1].
    fn allows(self, reason: ReasonCode) -> bool {
        match self {
            AckKind::PubAck | AckKind::PubRec => matches!(
                reason,
                ReasonCode::Success
                    | ReasonCode::NoMatchingSubscribers
                    | ReasonCode::UnspecifiedError
                    | ReasonCode::ImplementationSpecificError
                    | ReasonCode::NotAuthorized
                    | ReasonCode::TopicNameInvalid
                    | ReasonCode::PacketIdentifierInUse
                    | ReasonCode::QuotaExceeded
                    | ReasonCode::PayloadFormatInvalid
            ),
            AckKind::PubRel | AckKind::PubComp => {
                matches!(reason, ReasonCode::Success | ReasonCode::PacketIdentifierNotFound)
            }
        }
    }
}

/// An acknowledgement of the QoS 1 and QoS 2 protocols. Before MQTT 5.0 it is its packet identifier and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    pub packet_id: PacketId,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

impl<'a> Ack<'a> {
    #[inline]
    pub(super) fn decode(kind: AckKind, body: &'a [u8], version: ProtocolVersion) -> Result<Ack<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id(field!("Acknowledgement, Packet Identifier"))?;
        if reader.is_empty() {
            return Ok(Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY });
        }
        Ack::decode_reason(kind, packet_id, reader, version)
    }

    fn decode_reason(
        kind: AckKind,
        packet_id: PacketId,
        mut reader: Reader<'a>,
        version: ProtocolVersion,
    ) -> Result<Ack<'a>, Malformed> {
        if !version.is_v5() {
            return Err(Malformed::packet("Acknowledgement: bytes behind the Packet Identifier (3.1.1, 3.4.1)"));
        }
        let code = reader.u8(field!("Acknowledgement, Reason Code"))?;
        let reason = ReasonCode::from_u8(code)
            .filter(|reason| kind.allows(*reason))
            .ok_or(Malformed::protocol("Acknowledgement, Reason Code: not one of this packet [MQTT-3.4.2-1]"))?;
        let properties = if reader.is_empty() { Properties::EMPTY } else { Properties::read(&mut reader, Place::Ack)? };
        reader.end("Acknowledgement: bytes behind the properties (3.4.2)")?;
        Ok(Ack { packet_id, reason, properties })
    }

    /// Appends the packet in its shortest form (3.4.2.1, 3.4.2.2.1).
    pub fn encode(&self, kind: AckKind, version: ProtocolVersion, out: &mut Vec<u8>) {
        let first_byte = kind.packet_type().first_byte();
        let [high, low] = self.packet_id.get().to_be_bytes();
        if !version.is_v5() || (self.reason == ReasonCode::Success && self.properties.is_empty()) {
            out.extend_from_slice(&[first_byte, 2, high, low]);
            return;
        }
        if self.properties.is_empty() {
            out.extend_from_slice(&[first_byte, 3, high, low, self.reason as u8]);
            return;
        }
        let properties = self.properties.as_bytes();
        out.push(first_byte);
        put_variable_int(out, 3 + variable_int_len(properties.len()) + properties.len());
        put_u16(out, self.packet_id.get());
        out.push(self.reason as u8);
        self.properties.put(out);
    }
}
