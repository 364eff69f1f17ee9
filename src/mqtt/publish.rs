//! PUBLISH (3.3), and its head alone for the many deliveries of one payload.

use super::codec::{Malformed, Peer};
use super::properties::{Place, Properties};
use super::property::id;
use super::wire::{Reader, field, put_binary, put_u16, put_u32, put_variable_int, variable_int_len};
use super::{PacketId, PacketType, ProtocolVersion, QoS};

/// An application message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// A topic name without wildcards. Empty only in MQTT 5.0 with a Topic Alias.
    pub topic: &'a str,
    /// Some exactly if the QoS is 1 or 2 [MQTT-2.2.1-2].
    pub packet_id: Option<PacketId>,
    pub properties: Properties<'a>,
    pub payload: &'a [u8],
}

const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;

impl<'a> Publish<'a> {
    #[inline]
    pub(super) fn decode(
        first_byte: u8,
        body: &'a [u8],
        version: ProtocolVersion,
        from: Peer,
    ) -> Result<Publish<'a>, Malformed> {
        let qos = QoS::from_u8(first_byte >> 1 & 0b11).ok_or(Malformed::packet("PUBLISH: QoS 3 [MQTT-3.3.1-4]"))?;
        let dup = first_byte & DUP != 0;
        if dup && qos == QoS::AtMostOnce {
            return Err(Malformed::packet("PUBLISH: DUP with QoS 0 [MQTT-3.3.1-2]"));
        }
        let mut reader = Reader::new(body);
        let topic = read_topic(&mut reader)?;
        let packet_id =
            if qos == QoS::AtMostOnce { None } else { Some(reader.packet_id(field!("PUBLISH, Packet Identifier"))?) };
        let properties = match (version, from) {
            (ProtocolVersion::V5, Peer::Client) => Properties::read(&mut reader, Place::PublishFromClient)?,
            (ProtocolVersion::V5, Peer::Server) => Properties::read(&mut reader, Place::Publish)?,
            _ => Properties::EMPTY,
        };
        if topic.is_empty() && properties.topic_alias().is_none() {
            return Err(Malformed::protocol("PUBLISH: neither a Topic Name nor a Topic Alias (3.3.2.1)"));
        }
        Ok(Publish { dup, qos, retain: first_byte & RETAIN != 0, topic, packet_id, properties, payload: reader.rest() })
    }

    /// Appends the packet, with all properties as they are.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        let head = PublishHead {
            dup: self.dup,
            qos: self.qos,
            retain: self.retain,
            topic: self.topic,
            packet_id: self.packet_id,
            message_expiry_secs: None,
            topic_alias: None,
            subscription_ids: &[],
            properties: self.properties.as_bytes(),
            payload_len: self.payload.len(),
        };
        head.encode(version, out);
        out.extend_from_slice(self.payload);
    }
}

#[inline]
fn read_topic<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let topic = reader.string(field!("PUBLISH, Topic Name"))?;
    if has_wildcard(topic) {
        return Err(Malformed::packet("PUBLISH, Topic Name: has wildcards [MQTT-3.3.2-2]"));
    }
    Ok(topic)
}

/// Whether a topic name has characters that only topic filters have (4.7.1).
#[inline]
pub(super) fn has_wildcard(topic: &str) -> bool {
    memchr::memchr2(b'+', b'#', topic.as_bytes()).is_some()
}

/// Everything of an outgoing PUBLISH but its payload, which is shared by all deliveries and follows right behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishHead<'a> {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// Empty if the client knows the Topic Alias.
    pub topic: &'a str,
    /// Some exactly if the QoS is 1 or 2.
    pub packet_id: Option<PacketId>,
    /// What is left of the Message Expiry Interval, in seconds [MQTT-3.3.2-6].
    pub message_expiry_secs: Option<u32>,
    pub topic_alias: Option<u16>,
    /// Subscription Identifiers, each 1 to 268,435,455.
    pub subscription_ids: &'a [u32],
    /// The forwarded properties as raw valid bytes; see [`Properties::forwarded`].
    pub properties: &'a [u8],
    /// Bytes of the payload that follows.
    pub payload_len: usize,
}

impl PublishHead<'_> {
    /// Bytes of the whole packet, with fixed header and payload.
    #[inline]
    pub fn packet_len(&self, version: ProtocolVersion) -> usize {
        let remaining = self.remaining_len(version, self.properties_len());
        1 + variable_int_len(remaining) + remaining
    }

    /// Appends the head. Before MQTT 5.0 all properties are left out.
    #[inline]
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        let properties_len = self.properties_len();
        let remaining = self.remaining_len(version, properties_len);
        out.reserve(5 + remaining - self.payload_len);
        out.push(
            (PacketType::Publish as u8) << 4 | u8::from(self.dup) << 3 | (self.qos as u8) << 1 | u8::from(self.retain),
        );
        put_variable_int(out, remaining);
        put_binary(out, self.topic.as_bytes());
        if let Some(packet_id) = self.packet_id {
            put_u16(out, packet_id.get());
        }
        if version.is_v5() {
            put_variable_int(out, properties_len);
            if properties_len > 0 {
                self.put_properties(out);
            }
        }
    }

    fn put_properties(&self, out: &mut Vec<u8>) {
        if let Some(secs) = self.message_expiry_secs {
            out.push(id::MESSAGE_EXPIRY_INTERVAL);
            put_u32(out, secs);
        }
        if let Some(alias) = self.topic_alias {
            out.push(id::TOPIC_ALIAS);
            put_u16(out, alias);
        }
        for subscription_id in self.subscription_ids {
            out.push(id::SUBSCRIPTION_IDENTIFIER);
            put_variable_int(out, *subscription_id as usize);
        }
        out.extend_from_slice(self.properties);
    }

    #[inline]
    fn properties_len(&self) -> usize {
        let expiry = if self.message_expiry_secs.is_some() { 5 } else { 0 };
        let alias = if self.topic_alias.is_some() { 3 } else { 0 };
        let ids: usize = self.subscription_ids.iter().map(|id| 1 + variable_int_len(*id as usize)).sum();
        expiry + alias + ids + self.properties.len()
    }

    #[inline]
    fn remaining_len(&self, version: ProtocolVersion, properties_len: usize) -> usize {
        let packet_id = if self.packet_id.is_some() { 2 } else { 0 };
        let properties = if version.is_v5() { variable_int_len(properties_len) + properties_len } else { 0 };
        2 + self.topic.len() + packet_id + properties + self.payload_len
    }
}
