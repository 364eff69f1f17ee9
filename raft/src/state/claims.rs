//! Claims: connections that wait for a session that is elsewhere, and the move that this begins.
//!
//! | state of the lease | event | next |
//! | --- | --- | --- |
//! | connected(a), detached(a) | `Acquire` by b | claimed(a → b); a closes the connection |
//! | ended, its Will with c | `Acquire` by b | claimed(c → b), as if clean |
//! | claimed(a → b) | `Acquire` by c | claimed(a → c), the claim of b is lost |
//! | claimed(a → b) | `Acquire` by a | connected(a), the claim is lost |
//! | claimed(a → b) | `Detach` by a, or the end of a | how the connection ended is known |
//! | claimed(a → b), that is known, no Will due | `Settle` | connected(b) |
//! | claimed(a → b) | `Withdraw`, or the end of b, or a begins anew | detached(a) |
//! | missing | `Acquire`, not clean | missing: refused |
//! | inherited, and perhaps lost with its home | `Acquire`, not clean | refused until its heir has said which |
//! | detached(a), missing, no Will to wait for | `Acquire` by b, clean | connected(b) |
//!
//! Only a settled claim, or the end of everything there was, moves a lease. So whoever dies or gives up on the way, the session stays where
//! it is. What a connection brings, its expiry and its Will, is in the claim until then: for a connection that was never accepted nobody publishes
//! a Will.
//!
//! The client may have said goodbye on the connection that a claim closes, and only the holder can hear that. So the lease is *closing*
//! until the holder says how the connection ended, or is dead: whether it has a Will, and whether its session goes on, is open, and no claim is settled. Then
//! the Will is due as after any end of a connection, and at once if the session is not resumed; a withdrawn claim changes nothing of that. While a Will is
//! due the claim cannot be settled either, so it is out before the client has its CONNACK. One that still waits is cancelled by the settling only.
//!
//! A holder may be cut off and serve the closed connection until it is expired. So while the lease is closing
//! nobody takes it without asking the holder, not even for a clean start.

use std::sync::Arc;

use super::lease::{Acquisition, Flag, Lease, Phase, Turn};
use super::leases::Leases;
use super::nodes::NodeSlot;
use super::table::{Entry, LeaseKey};
use crate::command::{ClientId, Effect, LeaseWill, NodeId, Outcome, Refusal, SessionEpoch};

/// A connection that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingClaim {
    pub(super) by: NodeSlot,
    pub(super) epoch: SessionEpoch,
    /// Who has something to do first.
    pub(super) asked: NodeId,
    pub(super) clean: bool,
    pub(super) expiry_secs: u32,
    pub(super) will: Option<LeaseWill>,
    /// Index of the cut.
    pub(super) cut: Option<u64>,
}

/// What the `Acquire` of somebody who is not the holder comes to.
struct Approach {
    resumes: bool,
    /// The Will of the lease, which waits, becomes due.
    releases_will: bool,
    /// Who has something to do first.
    asked: Option<NodeSlot>,
}

impl Approach {
    fn new(lease: &Lease, client: &str, taken: &Acquisition, turn: &Turn<'_>) -> Self {
        let is_open = lease.phase() == Phase::Connected || lease.has(Flag::Closing);
        let ends_with_it = is_open && lease.expiry_secs == 0;
        let resumes = !taken.clean && !lease.is_ended() && !ends_with_it;
        let releases_will = !is_open && !resumes && lease.will.is_some();
        let publisher = if releases_will { turn.nodes.publisher(lease.holder, client) } else { None };
        let publisher = publisher.filter(|publisher| *publisher != taken.by);
        let due_elsewhere = || {
            let is_due = lease.has(Flag::WillDue);
            if is_due { turn.wills.publisher_but(taken.by, client) } else { None }
        };
        let asked = if is_open || resumes { Some(lease.holder) } else { publisher.or_else(due_elsewhere) };
        Self { resumes, releases_will, asked }
    }
}

impl Leases {
    /// `Acquire` by a node that does not hold the lease.
    pub(super) fn approach(
        &mut self,
        key: LeaseKey,
        client: ClientId,
        taken: Acquisition,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let lease = self.table.lease(key);
        if !taken.clean && !lease.is_ended() && !turn.nodes.is_live(lease.holder) {
            return Outcome::Missing;
        }
        let approach = Approach::new(lease, &client, &taken, turn);
        let Some(asked) = approach.asked else {
            self.touch(key);
            self.disarm(key);
            self.lose_claim(key, turn);
            if !self.table.lease(key).is_ended() {
                self.end(key, turn);
            }
            let epoch = self.table.lease(key).last_epoch() + 1;
            self.take(key, epoch, false, taken);
            return Outcome::Acquired { epoch, session_present: false, displaced: None };
        };
        self.claim(key, client, taken, approach, asked, turn)
    }

    fn claim(
        &mut self,
        key: LeaseKey,
        client: ClientId,
        taken: Acquisition,
        approach: Approach,
        asked: NodeSlot,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        self.touch(key);
        self.disarm(key);
        self.lose_claim(key, turn);
        let lease = self.table.lease_mut(key);
        let Some(epoch) = lease.count_claim() else {
            self.arm(key);
            return Outcome::Missing;
        };
        let (holder, by) = (turn.nodes.id(asked), turn.nodes.id(taken.by));
        let clean = !approach.resumes;
        lease.set(Flag::Claimed, true);
        if lease.phase() == Phase::Connected {
            lease.set(Flag::Closing, true);
            lease.enter(Phase::Detached { since: turn.now });
            let holder = lease.holder;
            self.tenure(holder).connected -= 1;
        }
        let closing = self.table.lease(key).has(Flag::Closing);
        turn.effects.push(Effect::Claimed { client: Arc::clone(&client), epoch, holder, by, clean, closing });
        if approach.releases_will {
            self.release_will(key, turn);
        }
        self.will_bytes += taken.will.as_ref().map_or(0, |will| will.message.len() as u64);
        let Acquisition { by, expiry_secs, will, .. } = taken;
        let claim = WaitingClaim { by, epoch, asked: holder, clean, expiry_secs, will, cut: None };
        self.claims.insert(client, claim);
        self.run_due(key, turn);
        Outcome::Claimed { epoch, holder, clean }
    }

    /// How the connection ended is known. What follows for a claim on the lease, which is disarmed, happens now, so that nobody settles before.
    pub(super) fn end_closing(&mut self, key: LeaseKey, turn: &mut Turn<'_>) {
        let Entry { client, lease } = self.table.entry(key);
        if !lease.has(Flag::Closing) {
            return;
        }
        let client = Arc::clone(client);
        self.table.lease_mut(key).set(Flag::Closing, false);
        let lease = self.table.lease(key);
        let claim = if lease.has(Flag::Claimed) { self.claims.get(&client) } else { None };
        let Some(clean) = claim.map(|claim| claim.clean) else {
            return;
        };
        if !lease.is_ended() && lease.expiry_secs == 0 {
            self.end(key, turn);
        } else if clean || lease.next_event().is_some_and(|at| at <= turn.now) {
            self.release_will(key, turn);
        }
    }

    /// Tells the holder, who has said it, that the connection has ended for the claim.
    pub(super) fn tell_closed(&self, key: LeaseKey, turn: &mut Turn<'_>) {
        let Entry { client, lease } = self.table.entry(key);
        if let Some(claim) = self.claims.get(client).filter(|_| lease.has(Flag::Claimed)) {
            turn.effects.push(Effect::Closed { client: Arc::clone(client), epoch: claim.epoch, holder: claim.asked });
        }
    }

    /// Whether that claim is under way; if so, where.
    pub(super) fn find_claim(
        &mut self,
        client: &ClientId,
        epoch: SessionEpoch,
        by: NodeSlot,
        turn: &mut Turn<'_>,
    ) -> Option<LeaseKey> {
        let key = self.find_current(client, turn).filter(|key| self.table.lease(*key).has(Flag::Claimed))?;
        let claim = self.claims.get(client)?;
        (claim.epoch == epoch && claim.by == by).then_some(key)
    }

    /// Notes that the claim that was found has its cut at the index of the turn.
    pub(super) fn cut(&mut self, client: ClientId, turn: &mut Turn<'_>) -> Outcome {
        let index = turn.index;
        let Some(claim) = self.claims.get_mut(&client) else {
            return Outcome::Refused(Refusal::NotClaimed);
        };
        claim.cut = Some(index);
        let (epoch, holder, by) = (claim.epoch, claim.asked, turn.nodes.id(claim.by));
        turn.effects.push(Effect::CutMade { client, epoch, holder, by, index });
        Outcome::Cut { index }
    }

    pub(super) fn settle(
        &mut self,
        client: ClientId,
        epoch: SessionEpoch,
        by: NodeSlot,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let Some(key) = self.find_claim(&client, epoch, by, turn) else {
            return Outcome::Refused(Refusal::NotClaimed);
        };
        let lease = self.table.lease(key);
        if lease.has(Flag::Closing) {
            return Outcome::Refused(Refusal::Closing);
        }
        if lease.has(Flag::WillDue) {
            return Outcome::Refused(Refusal::WillDue);
        }
        self.touch(key);
        self.disarm(key);
        let Some(claim) = self.take_claim(key) else {
            return Outcome::Refused(Refusal::NotClaimed);
        };
        let from = turn.nodes.id(self.table.lease(key).holder);
        let resumes = !claim.clean && !self.table.lease(key).is_ended();
        if !resumes && !self.table.lease(key).is_ended() {
            self.end(key, turn);
        }
        turn.effects.push(Effect::Moved { client, epoch, from, to: turn.nodes.id(by) });
        let WaitingClaim { clean, expiry_secs, will, .. } = claim;
        self.will_bytes -= will.as_ref().map_or(0, |will| will.message.len() as u64);
        self.take(key, epoch, resumes, Acquisition { by, clean, expiry_secs, will });
        Outcome::Settled { session_present: resumes }
    }

    pub(super) fn withdraw(
        &mut self,
        client: ClientId,
        epoch: SessionEpoch,
        by: NodeSlot,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let Some(key) = self.find_claim(&client, epoch, by, turn) else {
            return Outcome::Refused(Refusal::NotClaimed);
        };
        self.give_up(key, turn);
        Outcome::Done
    }

    /// The claims of a node whose incarnation is over.
    pub(super) fn withdraw_all_of(&mut self, by: NodeSlot, turn: &mut Turn<'_>) {
        self.give_up_where(|_, claim| claim.by == by, turn);
    }

    /// The claims on sessions of a node that has begun anew: it still has them, and knows of no move. One that was settled now would take away what it has done with them since.
    pub(super) fn withdraw_all_from(&mut self, holder: NodeSlot, turn: &mut Turn<'_>) {
        self.give_up_where(|lease, claim| lease.holder == holder && !claim.clean, turn);
    }

    fn give_up_where(&mut self, is_meant: impl Fn(&Lease, &WaitingClaim) -> bool, turn: &mut Turn<'_>) {
        let found = self.claims.iter().filter_map(|(client, claim)| Some((self.table.find(client)?, claim)));
        let meant = found.filter(|(key, claim)| is_meant(self.table.lease(*key), claim));
        let keys: Vec<LeaseKey> = meant.map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.give_up(key, turn));
    }

    /// The claim on the lease is withdrawn, and what has waited for it happens.
    fn give_up(&mut self, key: LeaseKey, turn: &mut Turn<'_>) {
        let holder = self.table.lease(key).holder;
        self.touch(key);
        self.disarm(key);
        self.withdraw_claim(key, turn);
        self.arm(key);
        if !self.forget_if_over(key) {
            self.catch_up(key, turn);
        }
        // It may have been the last that was to be passed on.
        self.note_passed(holder, turn);
    }

    /// Takes the claim off the lease and tells so. The caller has disarmed the lease and arms it again.
    pub(super) fn withdraw_claim(&mut self, key: LeaseKey, turn: &mut Turn<'_>) {
        if let Some(claim) = self.drop_claim(key) {
            let (client, by) = (Arc::clone(self.table.client(key)), turn.nodes.id(claim.by));
            turn.effects.push(Effect::Withdrawn { client, epoch: claim.epoch, holder: claim.asked, by });
        }
    }

    /// A later connection has the lease or a claim on it. The caller has disarmed the lease and arms it again.
    pub(super) fn lose_claim(&mut self, key: LeaseKey, turn: &mut Turn<'_>) {
        if let Some(claim) = self.drop_claim(key) {
            let (client, by) = (Arc::clone(self.table.client(key)), turn.nodes.id(claim.by));
            turn.effects.push(Effect::ClaimLost { client, epoch: claim.epoch, by });
        }
    }

    fn take_claim(&mut self, key: LeaseKey) -> Option<WaitingClaim> {
        if !self.table.lease(key).has(Flag::Claimed) {
            return None;
        }
        self.table.lease_mut(key).set(Flag::Claimed, false);
        self.claims.remove(self.table.client(key))
    }

    /// The same, with all that was in it.
    fn drop_claim(&mut self, key: LeaseKey) -> Option<WaitingClaim> {
        let claim = self.take_claim(key)?;
        self.will_bytes -= claim.will.as_ref().map_or(0, |will| will.message.len() as u64);
        Some(claim)
    }
}
