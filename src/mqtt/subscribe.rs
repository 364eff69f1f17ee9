//! SUBSCRIBE (3.8) and the Subscription Options (3.8.3.1).

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::wire::{Reader, field, put_binary, put_packet, put_u16};
use super::{PacketId, PacketType, ProtocolVersion, QoS};

/// A request for subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    pub filters: SubscribeFilters<'a>,
}

/// Whether retained messages are sent when a subscription is made (3.8.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    #[default]
    SendAtSubscribe = 0,
    /// Only if the subscription did not exist before.
    SendIfNew = 1,
    DoNotSend = 2,
}

/// How a subscription wants its messages. Before MQTT 5.0 there is only the QoS, and the others are at their defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// The highest QoS at which messages are sent.
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: RetainHandling,
}

impl SubscriptionOptions {
    /// The options byte of MQTT 5.0.
    pub const fn to_bits(self) -> u8 {
        self.qos as u8
            | (self.no_local as u8) << 2
            | (self.retain_as_published as u8) << 3
            | (self.retain_handling as u8) << 4
    }

    /// The options in a byte of MQTT 5.0; None for QoS 3, Retain Handling 3 and reserved bits.
    pub fn from_bits(bits: u8) -> Option<SubscriptionOptions> {
        SubscriptionOptions::parse(bits, ProtocolVersion::V5).ok()
    }

    fn parse(bits: u8, version: ProtocolVersion) -> Result<SubscriptionOptions, Malformed> {
        let reserved = if version.is_v5() { 0b1100_0000 } else { 0b1111_1100 };
        if bits & reserved != 0 {
            return Err(Malformed::packet("SUBSCRIBE, Subscription Options: reserved bits [MQTT-3.8.3-5]"));
        }
        let qos =
            QoS::from_u8(bits & 0b11).ok_or(Malformed::protocol("SUBSCRIBE, Subscription Options: QoS 3 (3.8.3.1)"))?;
        let retain_handling = match bits >> 4 {
            0 => RetainHandling::SendAtSubscribe,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => {
                return Err(Malformed::protocol("SUBSCRIBE, Subscription Options: Retain Handling 3 (3.8.3.1)"));
            }
        };
        Ok(SubscriptionOptions {
            qos,
            no_local: bits & 0b100 != 0,
            retain_as_published: bits & 0b1000 != 0,
            retain_handling,
        })
    }
}

/// The topic filters of a SUBSCRIBE with their options, as they stand in the packet: at least one, each at least one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFilters<'a> {
    /// In every version, bytes that are legal are legal in MQTT 5.0 too and mean the same.
    bytes: &'a [u8],
}

impl<'a> SubscribeFilters<'a> {
    /// The topic filters in the order of the packet. Their wildcard syntax is not checked.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, SubscriptionOptions)> + Clone + use<'a> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(
            move || {
                if reader.is_empty() { None } else { read_filter(&mut reader, ProtocolVersion::V5).ok() }
            },
        )
    }
}

/// Topic filters on their way into a [`Subscribe`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscribeFiltersBuf(Vec<u8>);

impl SubscribeFiltersBuf {
    /// Appends a topic filter of 1 to 65,535 bytes.
    pub fn push(&mut self, filter: &str, options: SubscriptionOptions) {
        put_binary(&mut self.0, filter.as_bytes());
        self.0.push(options.to_bits());
    }

    pub fn as_filters(&self) -> SubscribeFilters<'_> {
        SubscribeFilters { bytes: &self.0 }
    }
}

fn read_filter<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
) -> Result<(&'a str, SubscriptionOptions), Malformed> {
    let filter = reader.string(field!("SUBSCRIBE, Topic Filter"))?;
    if filter.is_empty() {
        return Err(Malformed::packet("SUBSCRIBE, Topic Filter: empty [MQTT-4.7.3-1]"));
    }
    let options = SubscriptionOptions::parse(reader.u8(field!("SUBSCRIBE, Subscription Options"))?, version)?;
    if options.no_local && filter.starts_with("$share/") {
        return Err(Malformed::protocol(
            "SUBSCRIBE, Subscription Options: No Local on a Shared Subscription [MQTT-3.8.3-4]",
        ));
    }
    Ok((filter, options))
}

impl<'a> Subscribe<'a> {
    pub(super) fn decode(body: &'a [u8], version: ProtocolVersion) -> Result<Subscribe<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id(field!("SUBSCRIBE, Packet Identifier"))?;
        let properties =
            if version.is_v5() { Properties::read(&mut reader, Place::Subscribe)? } else { Properties::EMPTY };
        let filters = SubscribeFilters { bytes: reader.rest() };
        if reader.is_empty() {
            return Err(Malformed::protocol("SUBSCRIBE: without a Topic Filter [MQTT-3.8.3-2]"));
        }
        while !reader.is_empty() {
            read_filter(&mut reader, version)?;
        }
        Ok(Subscribe { packet_id, properties, filters })
    }

    /// Appends the packet. Before MQTT 5.0 only the QoS of the options is written.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::Subscribe.first_byte(), |out| {
            put_u16(out, self.packet_id.get());
            if version.is_v5() {
                self.properties.put(out);
            }
            for (filter, options) in self.filters.iter() {
                put_binary(out, filter.as_bytes());
                out.push(if version.is_v5() { options.to_bits() } else { options.qos as u8 });
            }
        });
    }
}
