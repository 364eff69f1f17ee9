//! UNSUBSCRIBE (3.10).

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_binary, put_packet, put_u16};
use super::{PacketId, PacketType, ProtocolVersion};

/// A request to end subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    pub filters: UnsubscribeFilters<'a>,
}

/// The topic filters of an UNSUBSCRIBE as they stand in the packet: at least one, each at least one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsubscribeFilters<'a> {
    bytes: &'a [u8],
}

impl<'a> UnsubscribeFilters<'a> {
    /// The topic filters in the order of the packet. Their wildcard syntax is not checked.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || if reader.is_empty() { None } else { read_filter(&mut reader).ok() })
    }
}

/// Topic filters on their way into an [`Unsubscribe`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnsubscribeFiltersBuf(Vec<u8>);

impl UnsubscribeFiltersBuf {
    /// Appends a topic filter of 1 to 65,535 bytes.
    pub fn push(&mut self, filter: &str) {
        put_binary(&mut self.0, filter.as_bytes());
    }

    pub fn as_filters(&self) -> UnsubscribeFilters<'_> {
        UnsubscribeFilters { bytes: &self.0 }
    }
}

fn read_filter<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let filter = reader.string(field!("UNSUBSCRIBE, Topic Filter"))?;
    if filter.is_empty() {
        return Err(Malformed::packet("UNSUBSCRIBE, Topic Filter: empty [MQTT-4.7.3-1]"));
    }
    Ok(filter)
}

impl<'a> Unsubscribe<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Unsubscribe<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id(field!("UNSUBSCRIBE, Packet Identifier"))?;
        let properties =
            if version.is_v5() { Properties::read(&mut reader, Place::Unsubscribe)? } else { Properties::EMPTY };
        let filters = UnsubscribeFilters { bytes: reader.rest() };
        if reader.is_empty() {
            return Err(Malformed::protocol("UNSUBSCRIBE: without a Topic Filter [MQTT-3.10.3-2]"));
        }
        while !reader.is_empty() {
            read_filter(&mut reader)?;
        }
        Ok(Unsubscribe { packet_id, properties, filters })
    }

    /// Appends the packet.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::Unsubscribe.first_byte(), |out| {
            put_u16(out, self.packet_id.get());
            if version.is_v5() {
                self.properties.put(out);
            }
            out.extend_from_slice(self.filters.bytes);
        });
    }
}
