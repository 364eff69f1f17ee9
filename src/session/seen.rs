//! What has come in of each stream of messages: one number for a stream is enough, as streams keep their order to every destination.

use hashbrown::HashMap;

use crate::limits;
use crate::mqtt::MessageId;

use super::record::{Item, Journal, Position};
use super::{Session, Turn};

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
        self.0.get(&(id.node, id.shard)).is_some_and(|sequence| id.is_up_to(*sequence))
    }

    /// The streams of packets that are over and that `other` has seen farther than this: what is between. A stream is over when its node does not live, by its tag, and when one of a
    /// later generation of its node has come.
    pub fn missed_of(&self, other: &Seen, lives: impl Fn(u64) -> bool) -> Vec<Missed> {
        let latest = |node| self.generation_of(node).max(other.generation_of(node));
        let is_over = |id: &MessageId| !lives(id.node) || id.generation() < latest(id.node);
        let over = other.iter().filter(|id| id.is_of_packet() && !self.contains(*id) && is_over(id));
        over.map(|up_to| Missed { after: self.sequence_of(up_to), up_to }).collect()
    }

    /// The latest generation of the node of that tag of which anything has come.
    fn generation_of(&self, node: u64) -> u64 {
        self.iter().filter(|id| id.node == node).map(MessageId::generation).max().unwrap_or(0)
    }

    /// Of the last message of the stream of `id`.
    fn sequence_of(&self, id: MessageId) -> u64 {
        self.0.get(&(id.node, id.shard)).copied().unwrap_or(0)
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

/// What a session has not seen of a stream of packets although its shard has: its earlier home was lost, or started anew, before these packets had come there, or before what it had
/// accepted itself was on disk; and nobody sends them there again, as the stream is over. One that comes again, as another message, is not known to the session by the mark of its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The last sequence in front.
    pub after: u64,
    /// The last message.
    pub up_to: MessageId,
}

impl Missed {
    fn contains(&self, id: MessageId) -> bool {
        let MessageId { node, shard, sequence } = self.up_to;
        (id.node, id.shard) == (node, shard) && id.sequence > self.after && id.is_up_to(sequence)
    }

    /// The same for a session whose shard has seen `here`: nothing more of that stream has come to the session.
    fn up_to_here(self, here: &Seen) -> Missed {
        let sequence = here.sequence_of(self.up_to);
        if !self.up_to.is_up_to(sequence) {
            return self;
        }
        Missed { up_to: MessageId { sequence, ..self.up_to }, ..self }
    }
}

/// So much is remembered of what a session has missed: more than the shards of the nodes that die in a row while one exchange of packets lasts.
const MISSED_MAX: usize = 4 * limits::SHARDS_MAX;

impl Session {
    /// The session was inherited, or has moved, and its shard has seen `here`. `missed`: what it has not seen of that, beside what it had missed before.
    pub fn add_missed<J: Journal>(&mut self, turn: &mut Turn<'_, J>, missed: &[Missed], here: &Seen) {
        if missed.is_empty() && self.missed.is_none() {
            return;
        }
        let known = self.missed.as_deref().map(|(position, _)| *position);
        let position = known.unwrap_or_else(|| self.take_position());
        let (_, all) = &mut **self.missed.get_or_insert_with(|| Box::new((position, Vec::new())));
        all.extend(missed);
        all.drain(..all.len().saturating_sub(MISSED_MAX));
        all.iter_mut().for_each(|missed| *missed = missed.up_to_here(here));
        if let Some((_, all)) = self.missed.as_deref() {
            self.put(turn, position, Item::Missed { missed: all });
        }
    }

    /// Whether the session has got the message that came as `id`, or it came before the session was there. `here`: what its shard has seen.
    pub fn has_got(&self, id: MessageId, here: &Seen) -> bool {
        let seen = here.contains(id) || self.elsewhere.get().is_some_and(|seen| seen.contains(id));
        let missed = self.missed.as_ref().map_or(&[][..], |missed| &missed.1);
        seen && !missed.iter().any(|missed| missed.contains(id))
    }

    /// Whether it has got a message under one of these names. Of a session that is not here yet that is not known before [`Session::adopt`].
    pub fn has_got_any(&self, names: &[MessageId], here: &Seen) -> bool {
        !self.is_held() && names.iter().any(|id| self.has_got(*id, here))
    }
}

/// What a session that moved has seen elsewhere, as long as it may come here too, and where that is written down: there more may stand than is still looked out for.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Option<Box<(Position, Seen)>>);

impl Elsewhere {
    pub(super) fn new(position: Position, seen: Seen) -> Elsewhere {
        Elsewhere(Some(Box::new((position, seen))))
    }

    pub(super) fn get(&self) -> Option<&Seen> {
        self.0.as_deref().map(|(_, seen)| seen)
    }

    pub(super) fn written(&self) -> Option<(Position, &Seen)> {
        self.0.as_deref().map(|(position, seen)| (*position, seen))
    }

    pub(super) fn repeats(&mut self, id: MessageId) -> bool {
        self.0.as_deref_mut().is_some_and(|(_, seen)| seen.repeats(id))
    }
}
