//! Leases: one record per client id, and the clock that ends detached sessions.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | absent | `Acquire` | connected |
//! | connected, detached | `Acquire` by the holder | connected, epoch + 1 |
//! | connected | `Detach` | detached; with expiry 0: ended |
//! | connected | the incarnation of the holder is over | detached |
//! | detached | the session expires, or is lost with its holder | ended |
//! | ended | `Acquire`, no Will to wait for | connected, epoch + 1 |
//! | ended | the last due Will is done | absent |
//!
//! A detached lease whose holder is dead is *missing*. [`claims`](super::claims) has what happens to a lease when somebody who does not hold it asks,
//! [`tenures`](super::tenures) what the end of an incarnation does.
//!
//! A session whose expiry interval is 0 ends with its connection, so a takeover does not resume it either [MQTT-3.1.2-6].
//! Epochs never repeat: a lease that begins does so above every epoch of a lease that is gone, or a straggling `Detach`
//! of a forgotten connection could end a new one.
//!
//! `timers` has exactly one entry for each detached lease with something to come, at the time of its next event. A lease is *disarmed* when
//! its entry is taken out, and *armed* when it is put back; in between it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claims::WaitingClaim;
use super::digest::Digest;
use super::images::Images;
use super::lease::{Acquisition, Claim, Departure, Flag, Lease, Phase, Session, Turn};
use super::nodes::{NodeSlot, Nodes};
use super::table::{Entry, LeaseKey, Table};
use super::tenures::Tenure;
use crate::command::{ClientId, Effect, Outcome, Refusal, SessionEpoch, WillFate};

/// All leases.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases {
    pub(super) table: Table,
    /// By the slots of the nodes.
    pub(super) tenures: Vec<Tenure>,
    /// Those of leases with [`Flag::Claimed`].
    pub(super) claims: BTreeMap<ClientId, WaitingClaim>,
    /// (control time, client id): the order makes ticks the same on every node.
    timers: BTreeSet<(u64, ClientId)>,
    /// The greatest epoch of any lease that is gone.
    pub(super) epoch_floor: SessionEpoch,
    /// Bytes of the Wills in leases and claims, without those that are due.
    pub(super) will_bytes: u64,
    pub(super) images: Images,
}

impl Leases {
    pub(super) fn acquire(&mut self, client: ClientId, taken: Acquisition, turn: &mut Turn<'_>) -> Outcome {
        let Some(key) = self.find_current(&client, turn) else {
            return self.begin(client, taken);
        };
        if !taken.clean && self.is_undecided(key, turn) {
            return Outcome::Refused(Refusal::OrphansPending);
        }
        if self.table.lease(key).holder != taken.by {
            return self.approach(key, client, taken, turn);
        }
        let lease = self.table.lease(key);
        if lease.has(Flag::WillDue) && turn.wills.publisher_but(taken.by, &client).is_some() {
            return Outcome::Refused(Refusal::WillDue);
        }
        let connected = lease.phase() == Phase::Connected;
        let displaced = (connected || lease.has(Flag::Closing)).then_some(lease.epoch);
        let epoch = lease.last_epoch() + 1;
        self.touch(key);
        self.disarm(key);
        self.lose_claim(key, turn);
        let resumes = self.pass_to_next_connection(key, taken.clean, turn);
        if connected {
            self.tenure(taken.by).connected -= 1;
        }
        self.take(key, epoch, resumes, taken);
        Outcome::Acquired { epoch, session_present: resumes, displaced }
    }

    /// The first connection of a client id without lease.
    fn begin(&mut self, client: ClientId, taken: Acquisition) -> Outcome {
        let epoch = self.epoch_floor + 1;
        let tenure = self.tenure(taken.by);
        tenure.connected += 1;
        let era = tenure.era;
        self.images.touch(&client, 0);
        self.will_bytes += taken.will.as_ref().map_or(0, |will| will.message.len() as u64);
        self.table.insert(client, Lease::begin(epoch, era, taken));
        Outcome::Acquired { epoch, session_present: false, displaced: None }
    }

    /// Ends a connection by a takeover at the same node, or the time without one, and says whether the next one resumes the session. If
    /// so, only a Will without delay is still owed, and a waiting one is cancelled [MQTT-3.1.3-9].
    fn pass_to_next_connection(&mut self, key: LeaseKey, clean: bool, turn: &mut Turn<'_>) -> bool {
        let lease = self.table.lease(key);
        let resumes = !clean && lease.expiry_secs != 0 && !lease.is_ended();
        let is_open = lease.phase() == Phase::Connected || lease.has(Flag::Closing);
        let at_once = lease.will.as_ref().is_some_and(|will| will.delay_secs == 0);
        match lease.phase() {
            Phase::Ended => {}
            _ if !resumes => self.end(key, turn),
            _ if is_open && at_once => self.release_will(key, turn),
            _ => {}
        }
        resumes
    }

    /// The connection `epoch` has the lease, which is disarmed and counts as connected nowhere, from now on. A Will that still waits is cancelled.
    pub(super) fn take(&mut self, key: LeaseKey, epoch: SessionEpoch, resumes: bool, taken: Acquisition) {
        let Acquisition { by, expiry_secs, will, .. } = taken;
        let tenure = self.tenure(by);
        tenure.connected += 1;
        let era = tenure.era;
        let lease = self.table.lease_mut(key);
        let bytes = |will: &crate::command::LeaseWill| will.message.len() as u64;
        self.will_bytes -= lease.will.as_deref().map_or(0, bytes);
        self.will_bytes += will.as_ref().map_or(0, bytes);
        lease.count_connection(epoch);
        if !resumes {
            lease.began = epoch;
        }
        if !resumes || lease.holder != by {
            lease.inherited_from = None;
        }
        (lease.expiry_secs, lease.will) = (expiry_secs, will.map(Box::new));
        lease.enter(Phase::Connected);
        lease.set(Flag::Closing, false);
        lease.era = era;
        if lease.holder != by {
            self.table.give_to(key, by);
        }
    }

    pub(super) fn detach(
        &mut self,
        client: ClientId,
        epoch: SessionEpoch,
        left: Departure,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let found = self.table.find(&client).filter(|key| self.pass_on(*key, turn));
        let found = found.filter(|key| {
            let lease = self.table.lease(*key);
            lease.epoch == epoch && lease.holder == left.by
        });
        let Some(key) = found else {
            return Outcome::Refused(Refusal::NotConnected);
        };
        let lease = self.table.lease(key);
        if lease.phase() == Phase::Connected {
            self.end_connection(key, left, turn);
        } else if lease.has(Flag::Closing) {
            self.confirm_closed(key, left, turn);
        } else {
            return Outcome::Refused(Refusal::NotConnected);
        }
        Outcome::Done
    }

    /// Ends a connection that nobody takes over. What is due with it, a Will without delay or the end of the session, happens with it.
    fn end_connection(&mut self, key: LeaseKey, left: Departure, turn: &mut Turn<'_>) {
        self.touch(key);
        self.tenure(left.by).connected -= 1;
        if left.will == WillFate::Drop {
            self.drop_will(key);
        }
        let lease = self.table.lease_mut(key);
        lease.expiry_secs = left.expiry_secs;
        lease.enter(Phase::Detached { since: turn.now });
        self.run_due(key, turn);
    }

    /// The holder says that the connection which a claim has ended is closed. Its client may have said goodbye before, and with that when the
    /// session expires.
    fn confirm_closed(&mut self, key: LeaseKey, left: Departure, turn: &mut Turn<'_>) {
        self.touch(key);
        self.disarm(key);
        if left.will == WillFate::Drop {
            self.drop_will(key);
        }
        self.table.lease_mut(key).expiry_secs = left.expiry_secs;
        self.end_closing(key, turn);
        self.tell_closed(key, turn);
        if !self.forget_if_over(key) {
            self.run_due(key, turn);
        }
    }

    pub(super) fn will_done(&mut self, client: ClientId, epoch: SessionEpoch, turn: &mut Turn<'_>) -> Outcome {
        if !turn.wills.remove(&client, epoch) {
            return Outcome::Refused(Refusal::NotDue);
        }
        if let Some(key) = self.table.find(&client) {
            self.touch(key);
            self.table.lease_mut(key).set(Flag::WillDue, turn.wills.any_of(&client));
            if self.pass_on(key, turn) {
                self.forget_if_over(key);
            }
        }
        turn.effects.push(Effect::WillForgotten { client, epoch });
        Outcome::Done
    }

    /// Everything that is due by now, in the order of its time and then of client ids; at most `events_max` of it. Wills that nobody has any
    /// more come first.
    pub(super) fn tick(&mut self, events_max: usize, turn: &mut Turn<'_>) {
        for _ in 0..events_max {
            if self.announce_one(turn) {
                continue;
            }
            match self.timers.first() {
                Some((at, _)) if *at <= turn.now => {}
                _ => return,
            }
            let Some(key) = self.timers.pop_first().and_then(|(_, client)| self.table.find(&client)) else {
                continue;
            };
            if !self.pass_on(key, turn) {
                continue;
            }
            self.disarm(key);
            match self.table.lease(key).next_event() {
                Some(at) if at <= turn.now && !self.happen(at, key, turn) => {}
                _ => self.arm(key),
            }
        }
    }

    /// Hands out a Will that is due and that nobody publishes, if there is one and somebody can.
    fn announce_one(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some((client, epoch)) = turn.wills.first_unannounced() else {
            return false;
        };
        let Some(publisher) = self.publisher(&client, turn.nodes) else {
            return false;
        };
        turn.wills.announce(&client, epoch, turn.nodes.get(publisher), turn.effects);
        true
    }

    /// Who publishes Wills of `client` that become due now; `None` if nobody lives.
    pub(super) fn publisher(&self, client: &str, nodes: &Nodes) -> Option<NodeSlot> {
        match self.table.find(client) {
            Some(key) => nodes.publisher(self.table.lease(key).holder, client),
            None => nodes.pick(client),
        }
    }

    /// The lease of `client` as it stands now: what was due before and what its holder went through has happened to it.
    pub(super) fn find_current(&mut self, client: &ClientId, turn: &mut Turn<'_>) -> Option<LeaseKey> {
        let key = self.table.find(client)?;
        if self.table.lease(key).has(Flag::WillDue)
            && let Some(publisher) = turn.nodes.publisher(self.table.lease(key).holder, client)
        {
            turn.wills.announce_all_of(client, turn.nodes.get(publisher), turn.effects);
        }
        (self.pass_on(key, turn) && self.catch_up(key, turn)).then_some(key)
    }

    /// What is due by now for one lease. Returns whether it is still there.
    pub(super) fn catch_up(&mut self, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        if self.table.lease(key).next_event().is_none_or(|at| at > turn.now) {
            return true;
        }
        self.disarm(key);
        self.run_due(key, turn)
    }

    /// The same for a lease that is disarmed, and arms it again.
    pub(super) fn run_due(&mut self, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        while let Some(at) = self.table.lease(key).next_event().filter(|at| *at <= turn.now) {
            if !self.happen(at, key, turn) {
                return false;
            }
        }
        self.arm(key);
        true
    }

    /// The next event of a lease, which is due at `at` and disarmed. Returns whether it is still there.
    fn happen(&mut self, at: u64, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        self.touch(key);
        if self.table.lease(key).ends_by(at) {
            self.end(key, turn);
            !self.forget_if_over(key)
        } else {
            self.release_will(key, turn);
            true
        }
    }

    /// The waiting Will, or that of the connection, becomes due.
    pub(super) fn release_will(&mut self, key: LeaseKey, turn: &mut Turn<'_>) {
        let lease = self.table.lease_mut(key);
        let Some(will) = lease.will.take() else {
            return;
        };
        self.will_bytes -= will.message.len() as u64;
        lease.set(Flag::WillDue, true);
        let Entry { client, lease } = self.table.entry(key);
        let publisher = turn.nodes.publisher(lease.holder, client).map(|slot| turn.nodes.get(slot));
        turn.wills.become_due(client, lease.epoch, will.message, publisher, turn.effects);
    }

    fn drop_will(&mut self, key: LeaseKey) {
        let will = self.table.lease_mut(key).will.take();
        self.will_bytes -= will.map_or(0, |will| will.message.len() as u64);
    }

    /// The session is over, and with it the wait of its Will. It is disarmed.
    pub(super) fn end(&mut self, key: LeaseKey, turn: &mut Turn<'_>) {
        self.release_will(key, turn);
        self.table.lease_mut(key).enter(Phase::Ended);
        let Entry { client, lease } = self.table.entry(key);
        let (epoch, holder) = (lease.epoch, turn.nodes.id(lease.holder));
        turn.effects.push(Effect::SessionEnded { client: Arc::clone(client), epoch, holder });
    }

    pub(super) fn arm(&mut self, key: LeaseKey) {
        let Entry { client, lease } = self.table.entry(key);
        if let Some(at) = lease.next_event() {
            self.timers.insert((at, Arc::clone(client)));
        }
    }

    pub(super) fn disarm(&mut self, key: LeaseKey) {
        let Entry { client, lease } = self.table.entry(key);
        if let Some(at) = lease.next_event() {
            self.timers.remove(&(at, Arc::clone(client)));
        }
    }

    /// Says that the lease changes, to who keeps it at rest. Comes before it goes.
    pub(super) fn touch(&mut self, key: LeaseKey) {
        if self.images.are_kept() {
            let Entry { client, lease } = self.table.entry(key);
            self.images.touch(client, lease.item);
        }
    }

    /// Returns whether the lease is gone.
    pub(super) fn forget_if_over(&mut self, key: LeaseKey) -> bool {
        let over = self.table.lease(key).is_over();
        if over {
            let gone = self.table.remove(key).lease;
            self.epoch_floor = self.epoch_floor.max(gone.last_epoch());
        }
        over
    }
}

/// Look-ups.
impl Leases {
    pub(super) fn next_timer(&self) -> Option<u64> {
        self.timers.first().map(|&(at, _)| at)
    }

    pub(super) fn session(&self, client: &str, nodes: &Nodes) -> Option<Session> {
        self.view(self.table.entry(self.table.find(client)?), nodes)
    }

    /// A lease as it looks once all that has happened has reached it.
    pub(super) fn view(&self, entry: &Entry, nodes: &Nodes) -> Option<Session> {
        let Entry { client, lease } = entry;
        let phase = Some(self.phase_of(lease)).filter(|phase| *phase != Phase::Ended)?;
        let claim = if lease.has(Flag::Claimed) { self.claims.get(client) } else { None };
        let claim = claim.map(|claim| {
            let &WaitingClaim { epoch, clean, cut, .. } = claim;
            Claim { by: nodes.id(claim.by), epoch, clean, cut }
        });
        let holder = nodes.get(lease.holder);
        let connected = phase == Phase::Connected;
        let missing = !nodes.is_live(lease.holder);
        Some(Session { began: lease.began, epoch: lease.epoch, connected, holder: holder.id, claim, missing })
    }

    /// Client ids that have a lease, in no particular order.
    pub(super) fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.table.iter().map(|entry| &entry.client)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn connected(&self) -> usize {
        self.tenures.iter().map(|tenure| tenure.connected).sum()
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        digest.add(&[&"epoch floor", &self.epoch_floor]);
        self.digest_tenures(digest);
        self.digest_table(digest);
        for (client, claim) in &self.claims {
            let (by, expiry_secs, cut) = (claim.by.number(), u64::from(claim.expiry_secs), claim.cut.unwrap_or(0));
            digest.add(&[
                &"claim",
                client,
                &claim.epoch,
                &by,
                &claim.asked,
                &u64::from(claim.clean),
                &expiry_secs,
                &cut,
            ]);
            if let Some(will) = &claim.will {
                digest.add(&[&"claim will", client, &u64::from(will.delay_secs), &will.message.as_ref()]);
            }
        }
    }

    /// The leases alone. Images at rest are no part of the state.
    pub(super) fn digest_table(&self, digest: &mut Digest) {
        for Entry { client, lease } in self.table.iter() {
            let (holder, expiry_secs) = (lease.holder.number(), u64::from(lease.expiry_secs));
            let (epoch, began, phase) = (lease.epoch, lease.began, lease.phase().number());
            digest.add(&[&"lease", client, &epoch, &began, &holder, &expiry_secs, &phase]);
            let flags = u64::from(lease.has(Flag::Closing));
            digest.add(&[&"lease state", client, &u64::from(lease.ahead()), &u64::from(lease.era), &flags]);
            if let Some(from) = lease.inherited_from {
                digest.add(&[&"inherited", client, &from.number()]);
            }
            if let Some(will) = &lease.will {
                digest.add(&[&"lease will", client, &u64::from(will.delay_secs), &will.message.as_ref()]);
            }
        }
    }
}
