//! What has come in of each stream of messages: one number for a stream is enough, as streams keep their order to every destination.

use std::sync::Arc;

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

    /// The streams of packets of the node of that tag which `other` has seen farther than this: what is between.
    pub fn missed_of(&self, node: u64, other: &Seen) -> Vec<Missed> {
        let of_node = other.iter().filter(|id| id.node == node && id.is_of_packet() && !self.contains(*id));
        of_node.map(|up_to| Missed { after: self.sequence_of(up_to), up_to }).collect()
    }

    /// Of the last message of the stream of `id`.
    fn sequence_of(&self, id: MessageId) -> u64 {
        self.0.get(&(id.node, id.shard)).copied().unwrap_or(0)
    }

    /// Adds what another one has seen.
    pub fn merge(&mut self, other: &Seen) {
        other.iter().for_each(|id| self.note(id));
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

/// What a session has not seen of a stream of packets although its shard has: it was inherited, and the dead node had accepted these packets, and did not send them to
/// itself any more. One that comes again, as another message, is not known to the session by the mark of its shard.
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
        (id.node, id.shard) == (node, shard) && id.sequence > self.after && id.sequence <= sequence
    }

    /// The same for a session that is at another shard now, which has seen `here`: nothing more of that stream has come to the session.
    pub(super) fn up_to_here(self, here: &Seen) -> Missed {
        let sequence = self.up_to.sequence.max(here.sequence_of(self.up_to));
        Missed { up_to: MessageId { sequence, ..self.up_to }, ..self }
    }
}

/// What a session that moved has seen elsewhere, as long as it may come here too; and what it has not seen.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Option<Box<(Seen, Arc<[Missed]>)>>);

impl Elsewhere {
    /// `here`: what the shard has seen that it is at now.
    pub(super) fn new(mut seen: Seen, missed: Arc<[Missed]>, here: &Seen) -> Elsewhere {
        seen.without(here);
        let is_anything = !seen.is_empty() || !missed.is_empty();
        Elsewhere(is_anything.then(|| Box::new((seen, missed))))
    }

    pub(super) fn get(&self) -> Option<&Seen> {
        self.0.as_deref().map(|(seen, _)| seen)
    }

    pub(super) fn missed(&self) -> &[Missed] {
        self.0.as_deref().map_or(&[], |(_, missed)| missed)
    }

    pub(super) fn has_got(&self, id: MessageId, here: &Seen) -> bool {
        let seen = here.contains(id) || self.get().is_some_and(|seen| seen.contains(id));
        seen && !self.missed().iter().any(|missed| missed.contains(id))
    }

    pub(super) fn repeats(&mut self, id: MessageId) -> bool {
        let Some((seen, missed)) = self.0.as_deref_mut() else { return false };
        let repeats = seen.repeats(id);
        if seen.is_empty() && missed.is_empty() {
            self.0 = None;
        }
        repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sequence: u64) -> MessageId {
        MessageId { node: 7, shard: 1, sequence }.of_packet()
    }

    fn seen(ids: &[MessageId]) -> Seen {
        let mut seen = Seen::default();
        ids.iter().for_each(|id| seen.note(*id));
        seen
    }

    #[test]
    fn what_its_new_shard_had_seen_an_inherited_session_has_missed() {
        let (copy, here) = (seen(&[packet(5)]), seen(&[packet(9), MessageId { shard: 1, ..packet(9) }]));
        let missed = copy.missed_of(7, &here);
        assert_eq!(missed, [Missed { after: 5, up_to: packet(9) }]);
        assert!(copy.missed_of(8, &here).is_empty(), "the other nodes send to the heir what they owe the dead one");
        assert!(here.missed_of(7, &copy).is_empty());
        let elsewhere = Elsewhere::new(copy, missed.into(), &here);
        let got = |sequence, here: &Seen| elsewhere.has_got(packet(sequence), here);
        assert!(got(5, &here) && !got(6, &here) && !got(9, &here) && !got(10, &here));
        let later = seen(&[packet(12)]);
        assert!(got(5, &later) && !got(9, &later) && got(10, &later), "what comes now comes to it too");
        let moved = elsewhere.missed()[0].up_to_here(&seen(&[packet(11)]));
        assert!(moved.contains(packet(11)) && !moved.contains(packet(12)) && !moved.contains(packet(5)));
    }
}
