//! How long sessions remember the Wills that they have had: until nobody publishes them any more. A Will that is not due in the control state is done, but who is behind may
//! publish it late, and what a dead node was owed may come to its heirs late. So a session forgets it when it was found not to be due twice, with [`AGAIN_MS`] between.
//!
//! Owner: the shard, in `Keeping`. Invariants: what a session of the shard remembers stands here, once; no more than about [`BYTES_MAX`]: beyond that the oldest are forgotten, and may
//! come again.
//!
//! Test to read first: `tests::what_is_not_due_is_forgotten_a_while_later`.

use std::collections::VecDeque;

use holdfast_storage::OwnerId;

use crate::mqtt::WillName;

use super::{Shard, Turn, turn};

/// Longer than a node is behind that others have not given up, and than it takes until a dead node's heirs have what it was owed.
const AGAIN_MS: u64 = 30_000;

/// More than the Wills of all clients of some killed nodes, for each of some dozens of sessions.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// About what one takes, here and in its session, beside its client id, which may be shared.
const NAME_BYTES: usize = 96;

/// Wills that are looked at in a second.
const LOOKS_MAX: usize = 16 * 1024;

fn bytes_of(will: &WillName) -> usize {
    NAME_BYTES + will.client.len()
}

struct Had {
    at: u64,
    owner: OwnerId,
    will: WillName,
    /// It was not due when it was last looked at.
    over: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct WillsHad {
    /// In the order of their times.
    order: VecDeque<Had>,
    bytes: usize,
    now: u64,
}

impl WillsHad {
    /// The session has had the Will.
    pub fn note(&mut self, owner: OwnerId, will: WillName) {
        self.push(Had { at: self.now, owner, will, over: false });
    }

    fn push(&mut self, had: Had) {
        self.bytes += bytes_of(&had.will);
        self.order.push_back(had);
    }

    fn pop_if(&mut self, is_meant: impl FnOnce(&Had) -> bool) -> Option<Had> {
        let had = self.order.pop_front_if(|had| is_meant(had))?;
        self.bytes -= bytes_of(&had.will);
        Some(had)
    }

    /// The next of those that are too many.
    fn next_too_many(&mut self) -> Option<(OwnerId, WillName)> {
        let is_full = self.bytes > BYTES_MAX;
        self.pop_if(|_| is_full).map(|had| (had.owner, had.will))
    }

    /// Those that are to be forgotten. To be called once in a second, while what is due is known.
    fn look(&mut self, now: u64, is_due: impl Fn(&WillName) -> bool) -> Vec<(OwnerId, WillName)> {
        self.now = now;
        let mut over = Vec::new();
        for _ in 0..LOOKS_MAX {
            let Some(had) = self.pop_if(|had| had.at + AGAIN_MS <= now) else { break };
            match is_due(&had.will) {
                false if had.over => over.push((had.owner, had.will)),
                due => self.push(Had { at: now, over: !due, ..had }),
            }
        }
        over
    }
}

impl Shard {
    /// Called once in a second.
    pub(super) fn look_after_wills(&mut self) {
        // Else what this node knows of the control state may be old.
        if self.shared.grant.is_valid() {
            let Shard { keeping, control, now, .. } = self;
            let over = keeping.wills.look(*now, |will| control.is_will_due(will));
            self.forget_wills(over);
        }
    }

    /// At the end of each turn.
    pub(super) fn bound_wills(&mut self) {
        while let Some(oldest) = self.keeping.wills.next_too_many() {
            self.forget_wills([oldest]);
        }
    }

    fn forget_wills(&mut self, had: impl IntoIterator<Item = (OwnerId, WillName)>) {
        self.keeping.close_section();
        let mut turn = turn!(self);
        for (owner, will) in had {
            if let Some(session) = self.by_owner.get(&owner) {
                self.sessions[*session as usize].session.forget_will(&mut turn, &will);
            }
        }
        self.keeping.close_section();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: OwnerId = OwnerId(20);

    fn will(client: &str, epoch: u64) -> WillName {
        WillName { client: client.into(), epoch }
    }

    #[test]
    fn what_is_not_due_is_forgotten_a_while_later() {
        let mut wills = WillsHad::default();
        (0..5_000).for_each(|epoch| wills.note(S, will("c", epoch)));
        assert!(wills.look(AGAIN_MS, |_| true).is_empty());
        assert!(wills.look(2 * AGAIN_MS - 1, |_| false).is_empty(), "they were looked at");
        assert!(wills.look(2 * AGAIN_MS, |_| false).is_empty(), "somebody may be behind");
        wills.note(S, will("late", 1));
        assert_eq!(wills.look(3 * AGAIN_MS, |_| false).len(), 5_000);
        assert_eq!(wills.look(4 * AGAIN_MS, |_| false), [(S, will("late", 1))]);
        assert_eq!((wills.order.len(), wills.bytes), (0, 0));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut wills = WillsHad::default();
        let long = "c".repeat(65_535);
        (0..1_000).for_each(|epoch| wills.note(S, will(&long, epoch)));
        let forgotten: Vec<_> = std::iter::from_fn(|| wills.next_too_many()).map(|(_, will)| will.epoch).collect();
        let left = 1_000 - BYTES_MAX / bytes_of(&will(&long, 0));
        assert_eq!(forgotten, (0..left as u64).collect::<Vec<_>>());
    }
}
