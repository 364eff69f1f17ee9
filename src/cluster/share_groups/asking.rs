//! Messages of QoS 2 that a member may have already: everybody is asked before they are offered.
//!
//! They had been given to a node that has died, and whose heirs may have a session with them; or they are the messages of packets whose publisher's home has died, and
//! which their new home routes once more; or they were in a session of a dead node, which may just have given them to another member, and are in an inherited session now. Every live node is asked, this one too, whether a member there has the message, or has had it. One that has it is enough: the message is
//! settled then. When nobody has it, it is offered as a new one.
//!
//! A question needs no deadline. Over the link it is never lost: a node answers, or it is given up, or it begins anew and is asked again. When a node dies that was asked and
//! has not answered, everybody is asked once more: somebody who has said no may be its heir.
//!
//! Owner: [`ShareGroups`](super::ShareGroups). Invariants: a message is in one question at the most, and counts as one that is kept; at most [`OPEN_MAX`] questions are with others.
//!
//! Test to read first: `tests::what_a_dead_node_may_have_is_offered_when_nobody_has_it`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_raft::NodeId;

use crate::mqtt::Names;

use super::{Action, Actions, Offer, Rank, ShareGroups};

/// Questions that are with other nodes at a time.
const OPEN_MAX: usize = 1_024;

#[derive(Debug)]
struct Question<L> {
    offer: Offer<L>,
    ids: Names,
    /// Of one that was inherited.
    rank: Option<Rank>,
    /// Who has been asked and has not answered, and in which frame. `None`: everybody is to be asked.
    open: Option<Vec<(NodeId, u64)>>,
}

/// The questions of one shard, by their numbers.
#[derive(Debug)]
pub(super) struct Questions<L> {
    last: u64,
    all: BTreeMap<u64, Question<L>>,
    by_frame: HashMap<(NodeId, u64), u64>,
    /// Those that are with other nodes.
    open: usize,
}

impl<L> Default for Questions<L> {
    fn default() -> Self {
        Self { last: 0, all: BTreeMap::new(), by_frame: HashMap::new(), open: 0 }
    }
}

impl<L> Questions<L> {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are to be asked, as many as may be open.
    pub(super) fn due(&self) -> impl Iterator<Item = u64> {
        let due = self.all.iter().filter(|(_, question)| question.open.is_none());
        due.map(|(number, _)| *number).take(OPEN_MAX.saturating_sub(self.open))
    }

    fn close(&mut self, number: u64) {
        if let Some(open) = self.all.get_mut(&number).and_then(|question| question.open.take()) {
            self.open -= 1;
            open.iter().for_each(|frame| _ = self.by_frame.remove(frame));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Offer<L>> {
        self.close(number);
        self.all.remove(&number).map(|question| question.offer)
    }

    /// What that node was asked and has not answered is asked once more, of everybody.
    pub(super) fn ask_again(&mut self, node: NodeId) {
        let of_it = self.by_frame.iter().filter(|((asked, _), _)| *asked == node).map(|(_, number)| *number);
        of_it.collect::<Vec<_>>().into_iter().for_each(|number| self.close(number));
    }

    /// The same of all that was asked. Returns who waits: nobody has to, as their node was given up.
    pub(super) fn ask_all_again(&mut self) -> Vec<L> {
        (self.open, self.by_frame) = Default::default();
        let questions = self.all.values_mut();
        let legs = questions.filter_map(|question| {
            question.open = None;
            question.offer.leg.take()
        });
        legs.collect()
    }
}

impl<L: Copy> ShareGroups<L> {
    /// Somebody may have the message already, as one of `ids`. `rank`: see [`Rank`]. [`Action::Ask`] comes with the next tick: so nothing happens within the routing of a message.
    pub fn ask(&mut self, offer: Offer<L>, ids: Names, rank: Option<Rank>) {
        self.enters(&offer);
        self.questions.last += 1;
        self.questions.all.insert(self.questions.last, Question { offer, ids, rank, open: None });
    }

    /// Which message the question of that number is about.
    pub fn question(&self, number: u64) -> Option<(&Arc<str>, Names, Option<Rank>)> {
        self.questions.all.get(&number).map(|question| (&question.offer.share, question.ids, question.rank))
    }

    /// All other live nodes were asked, each in that frame, and on this one nobody has it.
    pub fn asked(&mut self, number: u64, frames: Vec<(NodeId, u64)>) -> Actions<L> {
        if frames.is_empty() {
            return self.nobody_has(number);
        }
        let Some(question) = self.questions.all.get_mut(&number) else { return Actions::new() };
        self.questions.by_frame.extend(frames.iter().map(|frame| (*frame, number)));
        if question.open.replace(frames).is_none() {
            self.questions.open += 1;
        }
        Actions::new()
    }

    /// A member has the message, or has had it.
    pub fn is_had(&mut self, number: u64) -> Actions<L> {
        let mut actions = Actions::new();
        let Some(offer) = self.questions.remove(number) else { return actions };
        self.leaves(&offer);
        actions.extend(offer.leg.map(Action::Answer));
        actions.extend(offer.from.map(Action::Delete));
        if offer.probe {
            self.follow(&offer.share, &mut actions);
        }
        actions
    }

    /// The answer to a question. `None`: that frame asked nothing, or the answer does not matter any more.
    pub(super) fn answered(&mut self, node: NodeId, sequence: u64, is_had: bool) -> Option<Actions<L>> {
        let number = self.questions.by_frame.remove(&(node, sequence))?;
        if is_had {
            return Some(self.is_had(number));
        }
        let open = self.questions.all.get_mut(&number)?.open.as_mut()?;
        open.retain(|frame| *frame != (node, sequence));
        Some(if open.is_empty() { self.nobody_has(number) } else { Actions::new() })
    }

    fn nobody_has(&mut self, number: u64) -> Actions<L> {
        let Some(offer) = self.questions.remove(number) else { return Actions::new() };
        let mut actions = Actions::new();
        self.offer_anew(vec![offer], &mut actions);
        actions
    }
}
