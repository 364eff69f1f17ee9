//! Leases: one record per client id, and the clock that ends detached sessions.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | absent | `Acquire` | connected |
//! | connected, detached | `Acquire` by the holder | connected, epoch + 1 |
//! | connected | `Detach` | detached; with expiry 0: ended |
//! | detached | the session expires | ended |
//! | connected, detached | the holder starts anew | detached, expiring now |
//! | ended | `Acquire` | connected, epoch + 1 |
//! | ended | the last due Will is done | absent |
//!
//! A session whose expiry interval is 0 ends with its connection, so a takeover does not resume it either [MQTT-3.1.2-6].
//! Epochs never repeat: a lease that begins does so above every epoch of a lease that is gone, or a straggling `Detach`
//! of a forgotten connection could end a new one.
//!
//! `timers` has exactly one entry for each detached lease with something to come, at the time of its next event.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::digest::Digest;
use super::images::Images;
use super::lease::{Acquisition, Departure, Lease, Phase, Session, Turn};
use super::nodes::NodeSlot;
use super::wills::DueWills;
use crate::command::{ClientId, Effect, Outcome, Refusal, SessionEpoch};

/// All leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pub(super) table: HashMap<ClientId, Lease, RandomState>,
    /// (control time, client id): the order makes ticks the same on every node.
    timers: BTreeSet<(u64, ClientId)>,
    /// Leases in [`Phase::Connected`].
    connected: usize,
    /// The greatest epoch of any lease that is gone.
    pub(super) epoch_floor: SessionEpoch,
    pub(super) images: Images,
}

impl Leases {
    pub(super) fn acquire(&mut self, client: ClientId, taken: Acquisition, turn: &mut Turn<'_>) -> Outcome {
        turn.effects.extend(turn.wills.announce_again_of(&client, turn.nodes));
        self.catch_up(&client, turn);
        let Some(lease) = self.table.get_mut(&client) else {
            return self.begin(client, taken);
        };
        if lease.phase() != Phase::Ended && lease.holder != taken.by {
            return Outcome::Missing;
        }
        if let Some(at) = lease.next_event() {
            self.timers.remove(&(at, Arc::clone(&client)));
        }
        let displaced = (lease.phase() == Phase::Connected).then_some(lease.epoch);
        self.images.touch(&client, lease.item);
        let session_present = lease.pass_to_next_connection(&client, taken, turn);
        self.connected += usize::from(displaced.is_none());
        Outcome::Acquired { epoch: lease.epoch, session_present, displaced }
    }

    /// The first connection of a client id without lease.
    fn begin(&mut self, client: ClientId, taken: Acquisition) -> Outcome {
        self.images.touch(&client, 0);
        let epoch = self.epoch_floor + 1;
        let lease = Lease::begin(epoch, taken);
        self.table.insert(client, lease);
        self.connected += 1;
        Outcome::Acquired { epoch, session_present: false, displaced: None }
    }

    pub(super) fn detach(
        &mut self,
        client: ClientId,
        epoch: SessionEpoch,
        left: Departure,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let connection = (Phase::Connected, epoch, left.by);
        let lease =
            self.table.get_mut(&client).filter(|lease| (lease.phase(), lease.epoch, lease.holder) == connection);
        let Some(lease) = lease else {
            return Outcome::Refused(Refusal::NotConnected);
        };
        self.images.touch(&client, lease.item);
        lease.detach(left, turn.now);
        self.connected -= 1;
        self.arm(&client);
        // What is due with the end of the connection, a Will without delay or the end of the session, happens with it.
        self.catch_up(&client, turn);
        Outcome::Done
    }

    pub(super) fn will_done(&mut self, client: ClientId, epoch: SessionEpoch, turn: &mut Turn<'_>) -> Outcome {
        if !turn.wills.remove(Arc::clone(&client), epoch) {
            return Outcome::Refused(Refusal::NotDue);
        }
        self.images.touch(&client, self.table.get(&client).map_or(0, |lease| lease.item));
        self.forget_if_over(&client, turn.wills);
        turn.effects.push(Effect::WillForgotten { client, epoch });
        Outcome::Done
    }

    /// The sessions that earlier incarnations of `node` held went with them: they expire now. Ticks end them in slices.
    pub(super) fn node_restarted(&mut self, node: NodeSlot, now: u64) {
        let held = self.table.iter_mut().filter(|(_, lease)| lease.holder == node && lease.phase() != Phase::Ended);
        for (client, lease) in held {
            if let Some(at) = lease.next_event() {
                self.timers.remove(&(at, Arc::clone(client)));
            }
            self.images.touch(client, lease.item);
            self.connected -= usize::from(lease.phase() == Phase::Connected);
            lease.expiry_secs = 0;
            lease.enter(Phase::Detached { since: now });
            self.timers.insert((now, Arc::clone(client)));
        }
    }

    /// Everything that is due by now, in the order of its time and then of client ids; at most `events_max` of it. What was due before a
    /// restart comes first.
    pub(super) fn tick(&mut self, events_max: usize, turn: &mut Turn<'_>) {
        for _ in 0..events_max {
            if let Some(effect) = turn.wills.announce_again(turn.nodes) {
                turn.effects.push(effect);
                continue;
            }
            match self.timers.first() {
                Some((at, _)) if *at <= turn.now => {}
                _ => return,
            }
            if let Some((at, client)) = self.timers.pop_first() {
                self.happen(at, &client, turn);
            }
        }
    }

    /// What is due by now for one client.
    fn catch_up(&mut self, client: &ClientId, turn: &mut Turn<'_>) {
        while let Some(at) = self.table.get(client).and_then(Lease::next_event).filter(|&at| at <= turn.now) {
            self.timers.remove(&(at, Arc::clone(client)));
            self.happen(at, client, turn);
        }
    }

    /// The next event of `client`, which is due at `at` and no longer in `timers`.
    fn happen(&mut self, at: u64, client: &ClientId, turn: &mut Turn<'_>) {
        let Some(lease) = self.table.get_mut(client) else {
            return;
        };
        self.images.touch(client, lease.item);
        if lease.ends_by(at) {
            lease.end(client, turn);
            self.forget_if_over(client, turn.wills);
        } else {
            lease.release_will(client, turn);
            self.arm(client);
        }
    }

    pub(super) fn arm(&mut self, client: &ClientId) {
        if let Some(at) = self.table.get(client).and_then(Lease::next_event) {
            self.timers.insert((at, Arc::clone(client)));
        }
    }

    fn forget_if_over(&mut self, client: &ClientId, wills: &DueWills) {
        let over = self.table.get(client).is_some_and(|lease| lease.phase() == Phase::Ended) && !wills.any_of(client);
        if over && let Some(lease) = self.table.remove(client) {
            self.epoch_floor = self.epoch_floor.max(lease.epoch);
        }
    }
}

/// Look-ups.
impl Leases {
    pub(super) fn next_due(&self) -> Option<u64> {
        self.timers.first().map(|&(at, _)| at)
    }

    pub(super) fn session(&self, client: &str) -> Option<Session> {
        let lease = self.table.get(client).filter(|lease| lease.phase() != Phase::Ended)?;
        Some(Session { began: lease.began, epoch: lease.epoch, connected: lease.phase() == Phase::Connected })
    }

    /// Client ids that have a lease, in no particular order.
    pub(super) fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.table.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn connected(&self) -> usize {
        self.connected
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        digest.add(&[&"epoch floor", &self.epoch_floor]);
        self.digest_table(digest);
    }

    /// The leases alone. Images at rest are no part of the state.
    pub(super) fn digest_table(&self, digest: &mut Digest) {
        for (client, lease) in &self.table {
            let (phase, since) = match lease.phase() {
                Phase::Connected => (0_u64, 0),
                Phase::Detached { since } => (1, since),
                Phase::Ended => (2, 0),
            };
            let (holder, expiry_secs) = (lease.holder, u64::from(lease.expiry_secs));
            digest.add(&[&"lease", client, &lease.epoch, &lease.began, &holder.number(), &expiry_secs, &phase, &since]);
            if let Some(will) = &lease.will {
                digest.add(&[&"lease will", client, &u64::from(will.delay_secs), &will.message.as_ref()]);
            }
        }
    }
}
