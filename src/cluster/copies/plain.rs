//! Messages that came for everybody at an heir, when the sessions that it has inherited were there.
//!
//! A node that is slow to hear of a death still sends the heir what its sessions want; it reaches the inherited ones too. When it hears of the death, it sends what the dead
//! node was owed once more, for these alone: they have it. Which they have depends on when they were entered, as a second node may die soon after the first.
//!
//! Owner: the shard that reads the connection. Invariant: the newest [`KEPT_MAX`] are known. Test to read first: `tests::what_came_before_the_sessions_were_entered_is_not_theirs`.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::mqtt::MessageId;

use super::inheriting::Life;

/// More than a node can have under way to a dead one, unless they are tiny.
const KEPT_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub struct PlainMessages {
    /// Each with its number.
    numbers: HashMap<MessageId, u64>,
    order: VecDeque<MessageId>,
    last: u64,
    /// The dead whose sessions are here, and the last message before they were.
    entered: Vec<(Life, u64)>,
}

impl PlainMessages {
    /// From now on everything reaches the sessions of that life.
    pub fn entered(&mut self, life: Life) {
        self.entered.push((life, self.last));
    }

    /// Nothing comes any more that the life was owed.
    pub fn over(&mut self, life: Life) {
        self.entered.retain(|(entered, _)| *entered != life);
        if self.entered.is_empty() {
            (self.numbers, self.order) = Default::default();
        }
    }

    pub fn note(&mut self, id: MessageId) {
        if self.entered.is_empty() {
            return;
        }
        self.last += 1;
        if self.numbers.insert(id, self.last).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
    }

    /// Whether the sessions of that life had the message as everybody.
    pub fn had(&self, life: Life, id: MessageId) -> bool {
        let before = self.entered.iter().find(|(entered, _)| *entered == life).map(|(_, before)| *before);
        before.is_some_and(|before| self.numbers.get(&id).is_some_and(|number| *number > before))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_raft::NodeId;

    use super::*;

    const B: Life = (NodeId(2), 1);
    const C: Life = (NodeId(3), 1);

    fn id(sequence: u64) -> MessageId {
        MessageId { node: 1, shard: 0, sequence }
    }

    #[test]
    fn what_came_before_the_sessions_were_entered_is_not_theirs() {
        let mut plain = PlainMessages::default();
        plain.note(id(1));
        plain.entered(B);
        plain.note(id(2));
        assert!(!plain.had(B, id(1)) && plain.had(B, id(2)) && !plain.had(C, id(2)));
        plain.entered(C);
        plain.note(id(3));
        assert!(plain.had(B, id(3)) && plain.had(C, id(3)));
        assert!(plain.had(B, id(2)) && !plain.had(C, id(2)), "another died later");
        plain.over(B);
        assert!(!plain.had(B, id(3)) && plain.had(C, id(3)));
        plain.over(C);
        assert!(plain.numbers.is_empty() && plain.order.is_empty());
    }

    #[test]
    fn the_newest_are_known() {
        let mut plain = PlainMessages::default();
        plain.entered(B);
        (0..=KEPT_MAX as u64).for_each(|sequence| plain.note(id(sequence)));
        assert!(!plain.had(B, id(0)) && plain.had(B, id(1)) && plain.had(B, id(KEPT_MAX as u64)));
        assert_eq!((plain.numbers.len(), plain.order.len()), (KEPT_MAX, KEPT_MAX));
    }
}
