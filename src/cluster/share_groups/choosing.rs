//! Where a message for a share group goes next: what is known of its members, and who has refused it already.

use std::sync::Arc;

use holdfast_raft::ShareMembers;
use holdfast_storage::{ItemId, OwnerId};

use crate::mqtt::{Message, QoS};

/// A node's place among those that the control state knows.
pub type Slot = u8;

/// Which members will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    Connected,
    /// One without a connection too, because no node has another.
    Any,
}

/// Whose it is to find another member when one does not take the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// This node's.
    Here,
    /// That of the node which has sent it: this one gives it to such a member, or refuses it.
    Elsewhere(Wanted),
}

/// Who had nobody for a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Other nodes that have no connected member, and those that have none at all, one bit each.
    connected: u64,
    any: u64,
    here: bool,
}

impl Refusals {
    /// Another node was asked for such a member, and has none.
    pub fn add(&mut self, slot: Slot, asked: Wanted) {
        self.connected |= 1 << slot;
        if asked == Wanted::Any {
            self.any |= 1 << slot;
        }
    }

    /// No member on this node takes it now.
    pub fn add_here(&mut self) {
        self.here = true;
    }
}

/// A message on its way to a member. `L` stands for who waits until it is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer<L> {
    /// `$share/name/filter`.
    pub share: Arc<str>,
    pub message: Arc<Message>,
    pub keeper: Keeper,
    pub leg: Option<L>,
    /// The item of a session that gave it back: it stays until somebody else has the message for good.
    pub from: Option<(OwnerId, ItemId)>,
    /// How many members on this node had come or gone when it was their turn.
    pub attempts: u8,
    pub refusals: Refusals,
    /// Whether others of its group wait to see what becomes of it.
    pub(super) probe: bool,
    /// Since when nobody takes it.
    pub(super) waits_since: Option<u64>,
}

impl<L> Offer<L> {
    pub fn new(share: Arc<str>, message: Arc<Message>, keeper: Keeper) -> Self {
        Self {
            share,
            message,
            keeper,
            leg: None,
            from: None,
            attempts: 0,
            refusals: Refusals::default(),
            probe: false,
            waits_since: None,
        }
    }

    pub fn with_leg(self, leg: Option<L>) -> Self {
        Self { leg, ..self }
    }

    pub fn with_item(self, from: Option<(OwnerId, ItemId)>) -> Self {
        Self { from, ..self }
    }

    pub fn is_kept(&self) -> bool {
        self.message.qos != QoS::AtMostOnce
    }

    pub fn is_own(&self) -> bool {
        self.keeper == Keeper::Here
    }
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// To the member on this node whose turn it is.
    Here,
    There(Slot, Wanted),
    /// Back to the node that has sent it.
    Refuse,
    /// There are members, and none of them takes it now.
    Nobody,
    NoMembers,
}

/// How often a node is picked, compared with the others.
fn weight(members: ShareMembers) -> usize {
    if members.connected == 0 { 0 } else { 1 << (members.connected - 1).min(31) }
}

/// Connected members take turns, over all nodes; one without a connection serves only when nobody has another. `here`: what this node has of the group; `there`:
/// what other live nodes have.
pub fn choose(
    keeper: Keeper,
    refusals: Refusals,
    here: Option<ShareMembers>,
    there: &[(Slot, ShareMembers)],
    turn: usize,
) -> Choice {
    let available = here.filter(|_| !refusals.here);
    if let Keeper::Elsewhere(wanted) = keeper {
        let will_do = available.is_some_and(|members| members.connected > 0 || wanted == Wanted::Any);
        return if will_do { Choice::Here } else { Choice::Refuse };
    }
    let not_in = |set: u64| move |slot: &Slot| set & (1 << slot) == 0;
    let asked = there.iter().filter(|(slot, _)| not_in(refusals.connected)(slot));
    let asked = asked.map(|(slot, members)| (Choice::There(*slot, Wanted::Connected), weight(*members)));
    let mine = available.map(|members| (Choice::Here, weight(members)));
    let total: usize = mine.iter().copied().chain(asked.clone()).map(|(_, weight)| weight).sum();
    if let Some(mut turn) = turn.checked_rem(total) {
        for (choice, weight) in mine.into_iter().chain(asked) {
            if turn < weight {
                return choice;
            }
            turn -= weight;
        }
    }
    let last_resort = there.iter().map(|(slot, _)| *slot).find(not_in(refusals.any));
    match (available, last_resort) {
        (Some(_), _) => Choice::Here,
        (None, Some(slot)) => Choice::There(slot, Wanted::Any),
        (None, None) if here.is_none() && there.is_empty() => Choice::NoMembers,
        (None, None) => Choice::Nobody,
    }
}
