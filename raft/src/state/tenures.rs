//! What the end of an incarnation does to the leases that it held, however many they are.
//!
//! A node holds its leases in *eras*: one ends with each of its incarnations. The end of an era is written down once, and each lease
//! is *passed on* into the next one by itself: in slices, from the one held for longest on, and before any command that names it.
//! Until then it looks to everybody as if it had been. So an incarnation with a million sessions ends at once, and everything
//! else goes on meanwhile.
//!
//! Passing on: who was connected has lost the connection when the era ended; if what the node had is lost with it, the
//! session expires then. A connection that a claim had closed has ended without a DISCONNECT.
//!
//! Invariant: in the list of a holder no lease is of a later era than one behind it, and an end is kept for as long as there is a
//! lease from before it.

use std::collections::VecDeque;

use super::digest::Digest;
use super::lease::{Flag, Lease, Phase, Turn};
use super::leases::Leases;
use super::nodes::NodeSlot;
use super::table::LeaseKey;

/// The eras of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) era: u32,
    /// How eras ended that leases may still be from, the last one last.
    pub(super) ends: VecDeque<EraEnd>,
    /// Connected leases of the present era.
    pub(super) connected: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EraEnd {
    /// The one that ended.
    pub(super) era: u32,
    /// Control time, in milliseconds.
    pub(super) at: u64,
    /// Whether all sessions are lost with it.
    pub(super) lost: bool,
}

/// What a lease has still to go through.
#[derive(Clone, Copy)]
struct Passage {
    /// When its connection ended.
    since: u64,
    /// When its session was lost.
    lost: Option<u64>,
}

impl Tenure {
    fn passage(&self, era: u32) -> Option<Passage> {
        if era == self.era {
            return None;
        }
        let mut ends = self.ends.iter().skip_while(|end| end.era < era).peekable();
        let since = ends.peek().map_or(0, |end| end.at);
        Some(Passage { since, lost: ends.find(|end| end.lost).map(|end| end.at) })
    }
}

impl Leases {
    pub(super) fn tenure(&mut self, node: NodeSlot) -> &mut Tenure {
        if self.tenures.len() <= node.place() {
            self.tenures.resize(node.place() + 1, Tenure::default());
        }
        &mut self.tenures[node.place()]
    }

    /// Ends the era of `node`.
    pub(super) fn end_era(&mut self, node: NodeSlot, lost: bool, turn: &mut Turn<'_>) {
        let at = turn.now;
        let none_held = self.table.len_of(node) == 0;
        let tenure = self.tenure(node);
        tenure.connected = 0;
        if !none_held {
            tenure.ends.push_back(EraEnd { era: tenure.era, at, lost });
            tenure.era += 1;
        }
        if self.images.are_kept() {
            // What is at rest says at once how it stands.
            self.pass_on_first(node, usize::MAX, turn);
        }
    }

    /// Whether `node` has leases that are to be passed on.
    pub(super) fn has_to_pass_on(&self, node: NodeSlot) -> bool {
        let first = self.table.first_of(node).map(|key| self.table.lease(key).era);
        first.is_some_and(|era| era != self.tenures[node.place()].era)
    }

    /// Passes on up to `leases_max` leases of `node`. Returns how many they were.
    pub(super) fn pass_on_first(&mut self, node: NodeSlot, leases_max: usize, turn: &mut Turn<'_>) -> usize {
        let mut passed = 0;
        while passed < leases_max && self.has_to_pass_on(node) {
            let Some(key) = self.table.first_of(node) else {
                break;
            };
            self.pass_on(key, turn);
            passed += 1;
        }
        passed
    }

    /// The same, and what is due with it happens.
    pub(super) fn pass_on_slice(&mut self, node: NodeSlot, leases_max: usize, turn: &mut Turn<'_>) {
        for _ in 0..leases_max {
            if !self.has_to_pass_on(node) {
                break;
            }
            let Some(key) = self.table.first_of(node) else {
                break;
            };
            if self.pass_on(key, turn) {
                self.catch_up(key, turn);
            }
        }
    }

    /// Takes a lease into the present era of its holder, if it is from an earlier one. Returns whether it is still there.
    pub(super) fn pass_on(&mut self, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        let lease = self.table.lease(key);
        let (holder, era) = (lease.holder, lease.era);
        let Some(passage) = self.tenures[holder.place()].passage(era) else {
            return true;
        };
        self.touch(key);
        self.disarm(key);
        let ended = self.table.lease(key).is_ended();
        match passage.lost {
            Some(at) if !ended => self.lose_session(key, at, turn),
            _ if self.table.lease(key).phase() == Phase::Connected => {
                self.table.lease_mut(key).enter(Phase::Detached { since: passage.since });
            }
            _ => {}
        }
        self.end_closing(key, turn);
        let tenure = &mut self.tenures[holder.place()];
        self.table.lease_mut(key).era = tenure.era;
        self.table.give_to(key, holder);
        let first_era = self.table.first_of(holder).map_or(tenure.era, |first| self.table.lease(first).era);
        while tenure.ends.front().is_some_and(|end| end.era < first_era) {
            tenure.ends.pop_front();
        }
        self.arm(key);
        !self.forget_if_over(key)
    }

    /// The session went with its holder: it expires. Who waits for it waits for nothing.
    fn lose_session(&mut self, key: LeaseKey, at: u64, turn: &mut Turn<'_>) {
        let claim = self.claims.get(self.table.client(key)).filter(|_| self.table.lease(key).has(Flag::Claimed));
        match claim.map(|claim| claim.clean) {
            Some(true) => return self.end(key, turn),
            Some(false) => self.withdraw_claim(key, turn),
            None => {}
        }
        let lease = self.table.lease_mut(key);
        lease.expiry_secs = 0;
        lease.enter(Phase::Detached { since: at });
    }

    /// The phase of a lease as everybody sees it.
    pub(super) fn phase_of(&self, lease: &Lease) -> Phase {
        let passage = self.tenures[lease.holder.place()].passage(lease.era);
        match (lease.phase(), passage) {
            (Phase::Ended, _) | (_, Some(Passage { lost: Some(_), .. })) => Phase::Ended,
            (Phase::Connected, Some(Passage { since, .. })) => Phase::Detached { since },
            (phase, _) => phase,
        }
    }

    pub(super) fn digest_tenures(&self, digest: &mut Digest) {
        for (place, tenure) in self.tenures.iter().enumerate() {
            // One that nobody has looked for is like one in its first era.
            if tenure.era > 0 {
                digest.add(&[&"tenure", &(place as u64), &u64::from(tenure.era)]);
            }
            for end in &tenure.ends {
                digest.add(&[&"era end", &(place as u64), &u64::from(end.era), &end.at, &u64::from(end.lost)]);
            }
        }
    }
}
