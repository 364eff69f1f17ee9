//! Which messages of QoS 2 members of share groups on this node have, or have had: what a node answers when it is asked for one.
//!
//! A message is noted when it is given to a member here, under its place in the stream from which it came and under the name of its packet, if it has one; and when a session is
//! inherited that has it. The newest are enough: a node asks for what has been published some seconds ago.
//!
//! Before a node answers it must know of the death that made the other one ask, in all of its shards: nothing that the dead node has sent is taken from then on.
//!
//! Owner: the node, for all shards. Invariant: at most [`KEPT_MAX`] are known, and [`DEATHS_MAX`] deaths. Test to read first: `tests::the_oldest_are_forgotten`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hashbrown::HashSet;

use crate::mqtt::MessageId;

/// Messages that are remembered.
pub const KEPT_MAX: usize = 65_536;

/// Deaths of which it is remembered which shards know of them: more than can be in a lease.
const DEATHS_MAX: usize = 64;

/// A message for one share group, `$share/name/filter`. Another group may get the same message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedMessage {
    share: u64,
    id: MessageId,
}

impl SharedMessage {
    pub fn new(share: &str, id: MessageId) -> SharedMessage {
        let mut hasher = DefaultHasher::new();
        share.hash(&mut hasher);
        SharedMessage { share: hasher.finish(), id }
    }
}

/// A node by its tag, and its incarnation that died.
type Death = (u64, u64);

/// See the module.
#[derive(Debug, Default)]
pub struct Had {
    known: HashSet<SharedMessage>,
    order: VecDeque<SharedMessage>,
    /// The shards that know of a death, one bit each.
    deaths: BTreeMap<Death, u64>,
    newest: VecDeque<Death>,
}

impl Had {
    pub fn note(&mut self, message: SharedMessage) {
        if !self.known.insert(message) {
            return;
        }
        self.order.push_back(message);
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// No member had it after all.
    pub fn forget(&mut self, message: SharedMessage) {
        if self.known.remove(&message)
            && let Some(at) = self.order.iter().rposition(|noted| *noted == message)
        {
            self.order.remove(at);
        }
    }

    pub fn contains(&self, message: SharedMessage) -> bool {
        self.known.contains(&message)
    }

    /// A shard knows of a death.
    pub fn note_death(&mut self, shard: u16, death: Death) {
        if !self.deaths.contains_key(&death) {
            self.newest.push_back(death);
            if self.newest.len() > DEATHS_MAX
                && let Some(oldest) = self.newest.pop_front()
            {
                self.deaths.remove(&oldest);
            }
        }
        *self.deaths.entry(death).or_default() |= 1 << shard;
    }

    /// Whether a death that this node has heard of has come to all of its `shards`.
    pub fn is_known_to_all(&self, death: Death, shards: usize) -> bool {
        self.deaths.get(&death).is_none_or(|known| known.count_ones() as usize >= shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sequence: u64) -> SharedMessage {
        SharedMessage::new("$share/g/t", MessageId { node: 1, shard: 2, sequence })
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut had = Had::default();
        (0..=KEPT_MAX as u64).for_each(|sequence| had.note(message(sequence)));
        had.note(message(KEPT_MAX as u64));
        assert!(!had.contains(message(0)) && had.contains(message(1)) && had.contains(message(KEPT_MAX as u64)));
        had.forget(message(1));
        had.note(message(0));
        assert!(!had.contains(message(1)) && had.contains(message(2)) && had.order.len() == KEPT_MAX);
        let other = SharedMessage::new("$share/h/t", MessageId { node: 1, shard: 2, sequence: 2 });
        assert!(!had.contains(other), "another group has not had it");
    }

    #[test]
    fn a_death_is_known_when_all_shards_know_of_it() {
        let mut had = Had::default();
        assert!(had.is_known_to_all((7, 1), 2), "that was before this process began");
        had.note_death(1, (7, 1));
        had.note_death(1, (7, 1));
        assert!(!had.is_known_to_all((7, 1), 2));
        had.note_death(0, (7, 1));
        assert!(had.is_known_to_all((7, 1), 2));
        (0..=DEATHS_MAX as u64).for_each(|incarnation| had.note_death(0, (8, incarnation)));
        assert_eq!(had.deaths.len(), DEATHS_MAX);
    }
}
