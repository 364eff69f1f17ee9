//! What one node sends another of a topic, as bytes. A message is a PUBLISH packet of MQTT 5.0, so that whoever takes it needs nothing but the codec to know that it
//! is one that a client could have sent.

use std::sync::Arc;

use bytes::Bytes;

use crate::mqtt::{self, Message, MessageId, Packet, PacketId, Peer, ProtocolVersion, PublishHead, QoS};
use crate::retained::{Version, is_system};

use super::frame::{Source, put_text, put_version};

const GONE: u8 = 0;
const MESSAGE: u8 = 1;
/// A message that expires.
const EXPIRING: u8 = 2;

/// What there is of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy {
    Gone {
        topic: Arc<str>,
        version: Version,
    },
    /// `expires_in`: what is left of its lifetime, in milliseconds; the `expires_at` of the message means nothing elsewhere, and is not sent.
    Message {
        message: Arc<Message>,
        expires_in: Option<u64>,
    },
}

impl Copy {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Copy::Gone { topic, version } => {
                out.push(GONE);
                put_version(out, *version);
                put_text(out, topic);
            }
            Copy::Message { message, expires_in } => {
                out.push(if expires_in.is_some() { EXPIRING } else { MESSAGE });
                put_version(out, Version::of(message));
                if let Some(millis) = expires_in {
                    out.extend(millis.to_le_bytes());
                }
                out.extend(message.id.shard.to_le_bytes());
                out.extend(message.id.sequence.to_le_bytes());
                put_text(out, &message.publisher);
                put_packet(out, message);
            }
        }
    }

    /// Reads one from the front of `bytes`. None if there is none.
    pub fn decode(bytes: &mut &[u8]) -> Option<Copy> {
        let mut source = Source(bytes);
        let kind = source.u8()?;
        let version = source.version()?;
        let copy = match kind {
            GONE => Copy::Gone { topic: source.topic()?, version },
            MESSAGE | EXPIRING => {
                let expires_in = if kind == EXPIRING { Some(source.u64()?) } else { None };
                let id = MessageId { node: version.node, shard: source.u16()?, sequence: source.u64()? };
                let publisher = source.text()?.into();
                let message = Message { id, stamp: version.stamp, publisher, ..packet(&mut source)? };
                Copy::Message { message: Arc::new(message), expires_in }
            }
            _ => return None,
        };
        *bytes = source.0;
        Some(copy)
    }
}

fn put_packet(out: &mut Vec<u8>, message: &Message) {
    let head = PublishHead {
        dup: false,
        qos: message.qos,
        retain: message.retain,
        topic: &message.topic,
        packet_id: (message.qos != QoS::AtMostOnce).then_some(PacketId::MIN),
        message_expiry_secs: None,
        topic_alias: None,
        subscription_ids: &[],
        properties: &message.properties,
        payload_len: message.payload.len(),
    };
    let len = head.packet_len(ProtocolVersion::V5) as u32;
    out.extend(len.to_le_bytes());
    head.encode(ProtocolVersion::V5, out);
    out.extend_from_slice(&message.payload);
}

/// The message of a packet, with what the packet says.
fn packet(source: &mut Source<'_>) -> Option<Message> {
    let len = source.u32()?;
    let bytes = source.take(len as usize)?;
    let frame = mqtt::next_frame(bytes, u32::MAX).ok()??;
    let Ok(Packet::Publish(publish)) = mqtt::decode(&frame, ProtocolVersion::V5, Peer::Client) else {
        return None;
    };
    if publish.payload.is_empty() || publish.topic.is_empty() || is_system(publish.topic) {
        return None;
    }
    Some(Message {
        id: MessageId::default(),
        stamp: 0,
        topic: publish.topic.into(),
        payload: Bytes::copy_from_slice(publish.payload),
        properties: Bytes::copy_from_slice(&publish.properties.forwarded()),
        qos: publish.qos,
        retain: publish.retain,
        expires_at: None,
        publisher: "".into(),
        name: None,
        will: 0,
    })
}
