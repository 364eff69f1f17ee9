//! What has come in of each stream of messages: one number for a stream is enough, as streams keep their order to every destination.

use hashbrown::HashMap;

use crate::mqtt::MessageId;

/// The greatest sequence of each stream that has come in. There are as many streams as the shards of all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen(HashMap<(u64, u16), u64>);

impl Seen {
    /// A message has come in, and everything before it in its stream.
    pub fn note(&mut self, id: MessageId) {
        let sequence = self.0.entry((id.node, id.shard)).or_insert(0);
        *sequence = (*sequence).max(id.sequence);
    }

    /// Whether the message has come in before.
    pub fn contains(&self, id: MessageId) -> bool {
        self.0.get(&(id.node, id.shard)).is_some_and(|sequence| id.sequence <= *sequence)
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &Seen) {
        other.iter().for_each(|id| self.note(id));
    }

    /// Leaves what both have seen.
    pub fn keep_common(&mut self, other: &Seen) {
        self.0.retain(|stream, sequence| {
            let theirs = other.0.get(stream).copied();
            *sequence = (*sequence).min(theirs.unwrap_or(0));
            theirs.is_some()
        });
    }

    /// Takes out the streams of which `other` has seen as much: from there nothing comes again.
    pub fn without(&mut self, other: &Seen) {
        self.0.retain(|(node, shard), sequence| {
            !other.contains(MessageId { node: *node, shard: *shard, sequence: *sequence })
        });
    }

    /// The last message of each stream, in no order.
    pub fn iter(&self) -> impl Iterator<Item = MessageId> {
        self.0.iter().map(|((node, shard), sequence)| MessageId { node: *node, shard: *shard, sequence: *sequence })
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is a repetition. A newer message of a stream ends the look-out for it: what follows is newer still.
    pub fn repeats(&mut self, id: MessageId) -> bool {
        match self.0.get(&(id.node, id.shard)) {
            Some(sequence) if id.sequence <= *sequence => true,
            Some(_) => {
                self.0.remove(&(id.node, id.shard));
                false
            }
            None => false,
        }
    }
}

/// What a session that moved has seen elsewhere, as long as it may come here too.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Option<Box<Seen>>);

impl Elsewhere {
    pub(super) fn new(seen: Seen) -> Elsewhere {
        Elsewhere((!seen.is_empty()).then(|| Box::new(seen)))
    }

    pub(super) fn get(&self) -> Option<&Seen> {
        self.0.as_deref()
    }

    pub(super) fn repeats(&mut self, id: MessageId) -> bool {
        let Some(seen) = &mut self.0 else { return false };
        let repeats = seen.repeats(id);
        if seen.is_empty() {
            self.0 = None;
        }
        repeats
    }
}
