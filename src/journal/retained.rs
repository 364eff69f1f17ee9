//! The items of the retained messages. That of a message has no value: everything is in its body. That of a tombstone has no body: a deletion may be on its way to
//! sessions as a message of its own, whose body is another one.

use std::sync::Arc;

use holdfast_storage::{Entry, ItemId, Value};

use crate::retained::{Version, Write};
use crate::topic;

use super::bytes::{Sink as _, Source};
use super::{RETAINED, first_sequence};

const VERSION: u8 = 1;

/// Bits below the sequence in the items of programs that numbered them by message and shard.
const SHARD_BITS: u32 = 6;

/// Behind which item those of an incarnation are numbered, so that none ever has the number of another one.
pub fn first_retained_item(incarnation: u64) -> ItemId {
    first_sequence(incarnation) << SHARD_BITS
}

/// What a change of the retained messages means for the disk.
pub fn retained_entry(write: Write) -> Entry {
    let owner = RETAINED;
    match write {
        Write::Message { item, message } => {
            Entry::Put { owner, item, value: Value::new(), body: Some(message as Arc<_>) }
        }
        Write::Tombstone { item, topic, version } => {
            Entry::Put { owner, item, value: encode_tombstone(&topic, version), body: None }
        }
        Write::Void { item } => Entry::Delete { owner, item },
    }
}

fn encode_tombstone(topic: &str, version: Version) -> Value {
    let mut out = Value::new();
    out.u8(VERSION);
    out.u64(version.stamp);
    out.u64(version.node);
    out.text(topic);
    out
}

/// What is gone since when. None for bytes that say nothing of it.
pub fn decode_tombstone(bytes: &[u8]) -> Option<(Arc<str>, Version)> {
    let mut source = Source(bytes);
    if source.u8()? != VERSION {
        return None;
    }
    let version = Version { stamp: source.u64()?, node: source.u64()? };
    let name = source.text().filter(|name| topic::name::validate(name).is_ok())?;
    source.end((name.into(), version))
}
