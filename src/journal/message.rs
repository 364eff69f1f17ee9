//! A message as a body.

use bytes::Bytes;
use holdfast_storage::{Body, BodyId};

use crate::mqtt::{Message, MessageId, QoS};

use super::bytes::{Sink as _, Source};

const VERSION: u8 = 1;
const RETAIN: u8 = 0x04;
const EXPIRES: u8 = 0x08;

impl Body for Message {
    fn id(&self) -> BodyId {
        BodyId((u128::from(self.id.sequence) << 16) | u128::from(self.id.shard))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.u8(VERSION);
        let retain = if self.retain { RETAIN } else { 0 };
        let expires = if self.expires_at.is_some() { EXPIRES } else { 0 };
        out.u8(self.qos as u8 | retain | expires);
        out.u16(self.id.shard);
        out.u64(self.id.sequence);
        if let Some(at) = self.expires_at {
            out.u64(at);
        }
        out.text(&self.topic);
        out.text(&self.publisher);
        out.blob(&self.properties);
        out.bytes(&self.payload);
    }

    fn size(&self) -> usize {
        self.topic.len() + self.publisher.len() + self.properties.len() + self.payload.len() + 32
    }
}

/// The message of a body. None for bytes that are none.
pub fn decode_message(bytes: &[u8]) -> Option<Message> {
    let mut source = Source(bytes);
    if source.u8()? != VERSION {
        return None;
    }
    let flags = source.u8()?;
    let id = MessageId { shard: source.u16()?, sequence: source.u64()? };
    let expires_at = if flags & EXPIRES == 0 { None } else { Some(source.u64()?) };
    Some(Message {
        id,
        topic: source.text()?.into(),
        publisher: source.text()?.into(),
        properties: Bytes::copy_from_slice(source.blob()?),
        payload: Bytes::copy_from_slice(source.rest()),
        qos: QoS::from_u8(flags & 3)?,
        retain: flags & RETAIN != 0,
        expires_at,
    })
}
