//! Which messages of QoS 2 members of share groups on this node have, or have had: what a node answers when it is asked for one.
//!
//! A message is noted when it is given to a member here, under its place in the stream from which it came and under whatever else it is known by; and when a session is inherited that
//! has it. The newest are enough: a node asks for what has been published some seconds ago.
//!
//! A message that waits in an inherited session may be another member's by now, as the dead node may just have given it away. So the node that has inherited it asks for it, and two
//! may ask one another: the one of the greater [`Rank`] has it.
//!
//! A node that starts asks the same way, and it may find a session that has gone to another node since. So what has come with a session is noted too ([`Had::note_brought`]): the node
//! where it was does not have it any more. It may come there again, with the session, and then that node has it: so the note is of the connection that has brought it here.
//!
//! Before a node answers it must know of the death that made the other one ask, in all of its shards: nothing that the dead node has sent is taken from then on.
//!
//! Owner: the node, for all shards. Invariant: at most [`KEPT_MAX`] are known, and [`DEATHS_MAX`] deaths. Test to read first: `tests::the_oldest_are_forgotten`.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hashbrown::HashMap;
use holdfast_storage::OwnerId;

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
    /// The tag of the node from whose session it came; 0: it is known by this id wherever it came from.
    given_by: u64,
}

impl SharedMessage {
    pub fn new(share: &str, id: MessageId) -> SharedMessage {
        let mut hasher = DefaultHasher::new();
        share.hash(&mut hasher);
        SharedMessage { share: hasher.finish(), id, given_by: 0 }
    }

    /// The same as one that a session on that node has given back, where it was known by that id. It may have been elsewhere before.
    pub fn given_by(self, node: u64) -> SharedMessage {
        SharedMessage { given_by: node, ..self }
    }
}

/// Who has inherited a message, or found it at a start, and asks for it: the tag of the dead node, that of its heir, the owner of the session and the item. A session may have it
/// twice, if it has given it back to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub home: u64,
    pub node: u64,
    pub owner: u64,
    pub item: u64,
    /// The connection that brought the session to the dead node, or began it there.
    pub began: u64,
}

impl Rank {
    /// That of a session of the node itself, whose process before may have been about to give the message away, or to forget the session, as it had gone to another node.
    pub fn of_session(node: u64, owner: OwnerId, began: u64) -> Rank {
        Rank { home: node, node, owner: owner.0, item: 0, began }
    }

    /// That of what a session has left behind, which was given to others one by one.
    pub fn of_left(node: u64, owner: OwnerId) -> Rank {
        Rank::of_session(node, owner, u64::MAX)
    }
}

/// A node by its tag, and its incarnation that died.
type Death = (u64, u64);

#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// A member has it, or has had it; and what else it is known by.
    Had(Box<[SharedMessage]>),
    /// It is in an inherited session here, unless somebody else has it.
    Asked(Rank),
    /// It has come in a session, which that connection has brought here.
    Brought(u64),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Had {
    known: HashMap<SharedMessage, Known>,
    /// All that are known, from the oldest on.
    order: VecDeque<SharedMessage>,
    /// The shards that know of a death, one bit each.
    deaths: BTreeMap<Death, u64>,
    newest: VecDeque<Death>,
}

impl Had {
    /// A member has the message that is known by these.
    pub fn note(&mut self, mut known_by: impl Iterator<Item = SharedMessage>) {
        let Some(first) = known_by.next() else { return };
        let others: Box<[SharedMessage]> = known_by.collect();
        others.iter().for_each(|other| self.insert(*other, Known::Had(Box::default())));
        self.insert(first, Known::Had(others));
    }

    /// A session that was inherited has it, unless somebody else does.
    pub fn note_asked(&mut self, message: SharedMessage, rank: Rank) {
        match self.known.get_mut(&message) {
            Some(Known::Had(_)) => {}
            Some(Known::Asked(known)) => *known = rank.max(*known),
            Some(Known::Brought(_)) | None => self.insert(message, Known::Asked(rank)),
        }
    }

    /// The connection of that epoch has brought a session here that has the message: where it was before, it is not any more.
    pub fn note_brought(&mut self, message: SharedMessage, epoch: u64) {
        match self.known.get_mut(&message) {
            Some(Known::Had(_)) => {}
            Some(Known::Brought(known)) => *known = epoch.max(*known),
            Some(Known::Asked(_)) | None => self.insert(message, Known::Brought(epoch)),
        }
    }

    fn insert(&mut self, message: SharedMessage, known: Known) {
        if self.known.insert(message, known).is_some() {
            return;
        }
        self.order.push_back(message);
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// No member had it after all. `message`: the first that it was noted by.
    pub fn forget(&mut self, message: SharedMessage) {
        let others = match self.known.get(&message) {
            Some(Known::Had(others)) => others.clone(),
            Some(Known::Asked(_) | Known::Brought(_)) | None => return,
        };
        for message in others.iter().chain([&message]) {
            if self.known.remove(message).is_some()
                && let Some(at) = self.order.iter().rposition(|noted| noted == message)
            {
                self.order.remove(at);
            }
        }
    }

    /// Whether a member here has it, or has had it. `asks`: who wants to know, if that has inherited it.
    pub fn has(&self, message: SharedMessage, asks: Option<Rank>) -> bool {
        match self.known.get(&message) {
            Some(Known::Had(_)) => true,
            Some(Known::Asked(rank)) => asks.is_none_or(|asks| asks < *rank),
            Some(Known::Brought(epoch)) => asks.is_none_or(|asks| asks.began < *epoch),
            None => false,
        }
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

    fn note(had: &mut Had, sequences: &[u64]) {
        had.note(sequences.iter().map(|sequence| message(*sequence)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut had = Had::default();
        (0..=KEPT_MAX as u64).for_each(|sequence| note(&mut had, &[sequence]));
        note(&mut had, &[KEPT_MAX as u64]);
        assert!(!had.has(message(0), None) && had.has(message(1), None) && had.has(message(KEPT_MAX as u64), None));
        assert_eq!((had.order.len(), had.known.len()), (KEPT_MAX, KEPT_MAX));
        let other = SharedMessage::new("$share/h/t", MessageId { node: 1, shard: 2, sequence: 2 });
        assert!(!had.has(other, None), "another group has not had it");
        assert!(!had.has(message(2).given_by(7), None), "nobody there has given it");
    }

    #[test]
    fn what_was_refused_is_forgotten_under_every_name() {
        let mut had = Had::default();
        note(&mut had, &[1, 2, 3]);
        note(&mut had, &[4]);
        assert!((1..=4).all(|sequence| had.has(message(sequence), None)));
        had.forget(message(1));
        assert!((1..=3).all(|sequence| !had.has(message(sequence), None)) && had.has(message(4), None));
        assert_eq!(had.order, [message(4)]);
    }

    #[test]
    fn of_two_that_have_inherited_a_message_one_has_it() {
        let rank = |node, item| Rank { home: 9, node, owner: 1, item, began: 0 };
        let mut had = Had::default();
        had.note_asked(message(1), rank(5, 1));
        had.note_asked(message(1), rank(5, 3));
        had.note_asked(message(1), rank(5, 2));
        assert!(had.has(message(1), None), "everybody else is told that it is here");
        let told = [rank(5, 3), rank(5, 2), rank(6, 0), rank(4, 9)].map(|asks| had.has(message(1), Some(asks)));
        assert_eq!(told, [false, true, false, true]);
        note(&mut had, &[1]);
        had.note_asked(message(1), rank(5, 4));
        assert!(had.has(message(1), Some(rank(6, 0))), "a member has got it");
    }

    #[test]
    fn what_has_come_with_a_session_is_not_where_that_was_before() {
        let (there, of) = (message(1).given_by(9), |began| Some(Rank::of_session(9, OwnerId(1), began)));
        let mut had = Had::default();
        had.note_brought(there, 5);
        assert!(had.has(there, of(4)), "it has not forgotten the session");
        assert!(!had.has(there, of(6)), "the session has gone back to it, perhaps by way of others");
        assert!(!had.has(there, Some(Rank::of_left(9, OwnerId(1)))), "it did not come with the session");
        assert!(!had.has(message(1).given_by(8), of(4)) && !had.has(message(1), None));
        had.note_brought(there, 8);
        had.note_brought(there, 5);
        assert!(had.has(there, of(6)));
        had.note_asked(there, Rank { node: 5, ..Rank::of_session(9, OwnerId(2), 9) });
        assert!(!had.has(there, Some(Rank { node: 6, ..Rank::of_session(9, OwnerId(1), 9) })), "it has died with it");
        note(&mut had, &[2]);
        had.note_brought(message(2), 5);
        assert!(had.has(message(2), of(6)), "a member has got it here");
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
