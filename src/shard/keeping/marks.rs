//! Up to where the streams of other nodes are in what this shard has written down: written down itself, with the messages that move it.
//!
//! A node that gets no answer for what it sent, because this one was killed, sends it again. What had been written down before must not come twice.
//!
//! Owner: the shard, in [`Keeping`](super::Keeping). Test to read first: `cluster-tests/tests/cluster/restarts.rs`.

use hashbrown::HashMap;
use holdfast_storage::{Entry, ItemId};
use smallvec::SmallVec;

use crate::journal::{self, Mark};
use crate::limits::STREAMS_MAX;
use crate::mqtt::MessageId;
use crate::subscriptions::ShardId;

struct Stream {
    item: ItemId,
    sequence: u64,
    /// Whether it has moved since it was last written.
    moved: bool,
}

/// The last message of each stream that came to what is written down together: all before it in its stream came before. One section may have messages of several streams of a node,
/// its plain one and those of its packets.
#[derive(Debug, Default)]
pub(in crate::shard) struct Coming(SmallVec<[MessageId; 2]>);

impl Coming {
    pub fn note(&mut self, id: MessageId) {
        let of_stream = |known: &&mut MessageId| (known.node, known.shard) == (id.node, id.shard);
        match self.0.iter_mut().find(of_stream) {
            Some(last) => *last = id,
            None => self.0.push(id),
        }
    }

    /// The last messages of many streams at once. What is known of one twice does no harm.
    pub fn note_all(&mut self, ids: impl Iterator<Item = MessageId>) {
        self.0.extend(ids);
    }

    pub fn iter(&self) -> impl Iterator<Item = MessageId> {
        self.0.iter().copied()
    }
}

/// See the module.
pub(in crate::shard) struct Marks {
    /// Whose streams need no mark, but for those of packets: a node that starts has streams of its own that are new, and what its clients repeat as packets may be in its
    /// older ones.
    own_node: u64,
    shards: u16,
    /// What is written as the next new item.
    next: ItemId,
    streams: HashMap<(u64, u16), Stream>,
    moved: Vec<(u64, u16)>,
}

impl Marks {
    /// Those of a shard, which has found `restored`.
    pub fn new(own_node: u64, (own, shards): (ShardId, u16), restored: &[(ItemId, MessageId)]) -> Marks {
        let streams = restored.iter().map(|(item, id)| {
            let stream = Stream { item: *item, sequence: id.sequence, moved: false };
            ((id.node, id.shard), stream)
        });
        let streams: HashMap<_, _> = streams.collect();
        let next = streams.values().map(|stream| stream.item + 1).max().unwrap_or(journal::first_mark(own));
        Marks { own_node, shards, next, streams, moved: Vec::new() }
    }

    /// A message is being written down.
    pub fn note(&mut self, id: MessageId) {
        let key = (id.node, id.shard);
        if id.node == self.own_node && !id.is_of_packet() {
            return;
        }
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&key) {
            return;
        }
        let stream = self.streams.entry(key).or_insert_with(|| {
            self.next += 1;
            Stream { item: self.next - 1, sequence: 0, moved: false }
        });
        if id.sequence > stream.sequence {
            stream.sequence = id.sequence;
            if !std::mem::replace(&mut stream.moved, true) {
                self.moved.push(key);
            }
        }
    }

    /// What is to be written of all that.
    pub fn write(&mut self, entries: &mut Vec<Entry>) {
        for (node, shard) in self.moved.drain(..) {
            if let Some(stream) = self.streams.get_mut(&(node, shard)) {
                stream.moved = false;
                let id = MessageId { node, shard, sequence: stream.sequence };
                entries.push(journal::mark_entry(stream.item, Mark { shards: self.shards, id }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(node: u64, sequence: u64) -> MessageId {
        MessageId { node, shard: 0, sequence }
    }

    fn written(marks: &mut Marks) -> Vec<(ItemId, Option<Mark>)> {
        let mut entries = Vec::new();
        marks.write(&mut entries);
        let read = |entry| match entry {
            Entry::Put { item, value, .. } => (item, journal::decode_mark(&value)),
            Entry::Delete { .. } | Entry::Drop { .. } => panic!("marks are put"),
        };
        entries.into_iter().map(read).collect()
    }

    #[test]
    fn what_comes_together_moves_every_stream_that_it_is_of() {
        let mut coming = Coming::default();
        [id(7, 1), id(7, 2).of_packet(), id(7, 3), id(7, 4).of_packet(), id(7, 5)]
            .into_iter()
            .for_each(|id| coming.note(id));
        let mut marks = Marks::new(9, (1, 2), &[]);
        coming.iter().for_each(|id| marks.note(id));
        let moved = written(&mut marks).into_iter().filter_map(|(_, mark)| Some(mark?.id));
        assert_eq!(moved.collect::<Vec<_>>(), [id(7, 5), id(7, 4).of_packet()]);
    }

    #[test]
    fn a_stream_is_one_item_that_moves_on() {
        let first = journal::first_mark(1);
        let mark = |node, sequence| Some(Mark { shards: 2, id: id(node, sequence) });
        let mut marks = Marks::new(9, (1, 2), &[]);
        (1..=5).for_each(|sequence| marks.note(id(7, sequence)));
        assert_eq!(written(&mut marks), [(first, mark(7, 5))]);
        marks.note(id(7, 4));
        marks.note(id(9, 1));
        assert!(written(&mut marks).is_empty(), "it never goes back, and the node's own streams need none");
        marks.note(id(9, 2).of_packet());
        let of_packet = Mark { shards: 2, id: id(9, 2).of_packet() };
        assert_eq!(written(&mut marks), [(first + 1, Some(of_packet))], "but for packets that come again");
        let mut marks = Marks::new(9, (1, 2), &[(first, id(7, 5))]);
        marks.note(id(8, 1));
        marks.note(id(7, 6));
        assert_eq!(written(&mut marks), [(first + 1, mark(8, 1)), (first, mark(7, 6))]);
    }
}
