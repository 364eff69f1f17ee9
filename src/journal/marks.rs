//! How far the messages of other nodes have come into the sessions of a shard: an item for each stream, put again with the messages that move it on. After a crash a
//! node that repeats what it has no answer for is understood by it.

use holdfast_storage::{Entry, ItemId, Value};

use crate::mqtt::MessageId;

use super::MARKS;
use super::bytes::{Sink as _, Source};

const VERSION: u8 = 1;

/// Bits of an item that are its number within its shard.
const NUMBER_BITS: u32 = 48;

/// The last message of one stream that came to the sessions of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Of how many shards the node had then; which one is in the item.
    pub shards: u16,
    pub id: MessageId,
}

/// The first item of a shard.
pub fn first_mark(shard: u16) -> ItemId {
    u64::from(shard) << NUMBER_BITS
}

/// The shard that put an item.
pub fn shard_of_mark(item: ItemId) -> u16 {
    (item >> NUMBER_BITS) as u16
}

pub fn mark_entry(item: ItemId, mark: Mark) -> Entry {
    let mut value = Value::new();
    value.u8(VERSION);
    value.u16(mark.shards);
    value.u64(mark.id.node);
    value.u16(mark.id.shard);
    value.u64(mark.id.sequence);
    Entry::Put { owner: MARKS, item, value, body: None }
}

/// None for bytes that are no mark.
pub fn decode_mark(bytes: &[u8]) -> Option<Mark> {
    let mut source = Source(bytes);
    if source.u8()? != VERSION {
        return None;
    }
    let shards = source.u16()?;
    let id = MessageId { node: source.u64()?, shard: source.u16()?, sequence: source.u64()? };
    source.end(Mark { shards, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mark = Mark { shards: 3, id: MessageId { node: 1 << 60, shard: 2, sequence: 7 << 40 } };
        let Entry::Put { owner, item, value, body: None } = mark_entry(first_mark(2) + 5, mark) else {
            panic!("a mark is put");
        };
        assert_eq!((owner, shard_of_mark(item)), (MARKS, 2));
        assert_eq!(decode_mark(&value), Some(mark));
        assert_eq!(decode_mark(&value[1..]), None);
    }
}
