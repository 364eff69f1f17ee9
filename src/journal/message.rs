//! A message as a body.

use bytes::Bytes;
use holdfast_storage::{Body, BodyId};

use crate::mqtt::{Message, MessageId, QoS};

use super::bytes::{Sink as _, Source};
use super::items::decode_id;

/// Version 1 had neither the node nor the stamp.
const VERSION: u8 = 2;
const RETAIN: u8 = 0x04;
const EXPIRES: u8 = 0x08;
const STAMPED: u8 = 0x10;
const NAMED: u8 = 0x20;

/// Where a body says when it expires: behind version, flags, node, shard and sequence.
const EXPIRES_AT: usize = 1 + 1 + 8 + 2 + 8;

impl Body for Message {
    fn id(&self) -> BodyId {
        let MessageId { node, shard, sequence } = self.id;
        // 48 bits of the node are left: enough to tell the few nodes of a cluster apart.
        BodyId((u128::from(node) << 80) | (u128::from(shard) << 64) | u128::from(sequence))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.u8(VERSION);
        let retain = if self.retain { RETAIN } else { 0 };
        let expires = if self.expires_at.is_some() { EXPIRES } else { 0 };
        let stamped = if self.stamp > 0 { STAMPED } else { 0 };
        let named = if self.name.is_some() { NAMED } else { 0 };
        out.u8(self.qos as u8 | retain | expires | stamped | named);
        out.u64(self.id.node);
        out.u16(self.id.shard);
        out.u64(self.id.sequence);
        if let Some(at) = self.expires_at {
            out.u64(at);
        }
        if self.stamp > 0 {
            out.u64(self.stamp);
        }
        if let Some(MessageId { node, shard, sequence }) = self.name {
            out.u64(node);
            out.u16(shard);
            out.u64(sequence);
        }
        out.text(&self.topic);
        out.text(&self.publisher);
        out.blob(&self.properties);
        out.bytes(&self.payload);
    }

    fn size(&self) -> usize {
        self.topic.len() + self.publisher.len() + self.properties.len() + self.payload.len() + 48
    }
}

/// The message of a body: that it is a Will was for those whom it was offered to. None for bytes that are none.
pub fn decode_message(bytes: &[u8]) -> Option<Message> {
    let mut source = Source(bytes);
    let version = source.u8()?;
    if version == 0 || version > VERSION {
        return None;
    }
    let flags = source.u8()?;
    let node = if version == 1 { 0 } else { source.u64()? };
    let id = MessageId { node, shard: source.u16()?, sequence: source.u64()? };
    let expires_at = if flags & EXPIRES == 0 { None } else { Some(source.u64()?) };
    let stamp = if version == 1 || flags & STAMPED == 0 { 0 } else { source.u64()? };
    let has_name = version > 1 && flags & NAMED != 0;
    let name = if has_name { Some(decode_id(&mut source)?) } else { None };
    Some(Message {
        id,
        stamp,
        topic: source.text()?.into(),
        publisher: source.text()?.into(),
        name,
        will: 0,
        properties: Bytes::copy_from_slice(source.blob()?),
        payload: Bytes::copy_from_slice(source.rest()),
        qos: QoS::from_u8(flags & 3)?,
        retain: flags & RETAIN != 0,
        expires_at,
    })
}

/// Changes when the message of a body of this version expires, if it does.
pub(super) fn change_expiry(body: &mut [u8], change: impl FnOnce(u64) -> u64) {
    if let [VERSION, flags, ..] = *body
        && flags & EXPIRES != 0
        && let Some(at) = body.get_mut(EXPIRES_AT..).and_then(<[u8]>::first_chunk_mut)
    {
        *at = change(u64::from_le_bytes(*at)).to_le_bytes();
    }
}
