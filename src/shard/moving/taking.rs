//! The claimant's side of a move: the session comes in parts, is written down, and then its client is answered.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::{Command, NodeId, WillFate};
use tracing::warn;

use crate::cluster::route_commands;
use crate::cluster::session_move::{Refusal, Taking, TakingAction, TakingActions, TakingEvent};
use crate::cluster::share_groups::SharedMessage;
use crate::journal;
use crate::journal::wire::{StateReader, WireError, YieldReader};
use crate::limits;
use crate::mqtt::ReasonCode;
use crate::session::{Restored, Seen, Session};
use crate::subscriptions::SessionKey;
use crate::topic::TopicFilter;

use super::super::connection::State;
use super::super::keeping::Due;
use super::super::subscribing::{NewRoutes, Replay};
use super::super::{ConnectionKey, Pending, Shard, Turn, turn};
use super::{CLOSED_MAX, CLOSED_MS, Step};

/// A session that this node has claimed, for a connection that waits for it.
pub(in crate::shard) struct Taken {
    pub machine: Taking,
    pub holder: NodeId,
    connection: ConnectionKey,
    serial: u64,
    /// What its CONNECT asked for.
    expiry_secs: u32,
    yields: YieldReader,
    state: Option<StateReader>,
    /// What the session has for share groups.
    shares: Vec<SharedMessage>,
    /// The session as far as it is here, held back from its client.
    session: Option<SessionKey>,
    /// What this shard had seen when the session was entered in its index: what has come since, it has.
    seen: Seen,
}

impl Shard {
    /// The session of a CONNECT is on another node: it is asked for.
    pub(in crate::shard) fn take_session(
        &mut self,
        key: ConnectionKey,
        serial: u64,
        client: &Arc<str>,
        epoch: u64,
        holder: NodeId,
    ) {
        let State::Connecting(connecting) = &self.connections[key as usize].state else {
            return;
        };
        let expiry_secs = connecting.expiry_secs();
        let (machine, actions) = Taking::new(client.clone(), epoch, self.shared.patience.moves, self.now);
        let yields = YieldReader::default();
        let taken = Taken {
            machine,
            holder,
            connection: key,
            serial,
            expiry_secs,
            yields,
            state: None,
            shares: Vec::new(),
            session: None,
            seen: Seen::default(),
        };
        self.moves.taking.insert(client.clone(), taken);
        if let Some((older, _)) = self.moves.closed.remove(client) {
            self.hear_of_takeover(client.clone(), older);
        }
        self.carry_out_taking(client, actions);
    }

    /// The same, for the claim of that epoch only.
    pub(super) fn taking_event_of(&mut self, client: &Arc<str>, epoch: u64, event: TakingEvent) {
        if self.moves.taking.get(client).is_some_and(|taken| taken.machine.epoch() == epoch) {
            self.taking_event(client, event);
        }
    }

    pub(super) fn taking_event(&mut self, client: &Arc<str>, event: TakingEvent) {
        let now = self.now;
        let Some(taken) = self.moves.taking.get_mut(client) else {
            return;
        };
        let actions = taken.machine.handle(now, event);
        self.carry_out_taking(client, actions);
    }

    /// The connection that was taken over on another node came from there.
    pub(super) fn hear_of_takeover(&mut self, client: Arc<str>, older: String) {
        let taken = self.moves.taking.get(&client);
        let newer = taken.and_then(|taken| self.connections.get(taken.connection as usize)).map(|newer| newer.peer);
        match (older.parse(), newer) {
            (Ok(older), Some(newer)) => self.count_takeover(&client, older, newer),
            (Ok(_), None) if self.moves.closed.len() < CLOSED_MAX => {
                self.moves.closed.insert(client, (older, self.now + CLOSED_MS));
            }
            _ => {}
        }
    }

    fn carry_out_taking(&mut self, client: &Arc<str>, actions: TakingActions) {
        for action in actions {
            let Some(taken) = self.moves.taking.get(client) else {
                return;
            };
            let (epoch, holder) = (taken.machine.epoch(), taken.holder);
            let (key, serial) = (taken.connection, taken.serial);
            match action {
                TakingAction::Send(frame) => self.control.send_session(holder, &frame),
                TakingAction::Enter { bytes, last } => {
                    let entered = self.enter_taken(client, &bytes, last);
                    self.or_failed(client, entered);
                }
                TakingAction::ProposeCut => self.propose_cut(client, epoch),
                TakingAction::Take { bytes } => {
                    let taken = self.take_part(client, &bytes);
                    self.or_failed(client, taken);
                }
                TakingAction::Adopt => self.adopt_taken(client, epoch),
                TakingAction::ProposeSettle => {
                    let step = Pending::Move { client: client.clone(), epoch, step: Step::Settle };
                    self.propose_for(step, Command::Settle { client: client.clone(), epoch });
                }
                TakingAction::ProposeWithdraw => {
                    self.propose(Command::Withdraw { client: client.clone(), epoch });
                }
                TakingAction::Connack { session_present } => {
                    self.settled_here(client, session_present);
                    self.enter_connected(key, serial, client, (epoch, session_present));
                }
                TakingAction::Refuse(refusal) => self.refuse_taken(key, serial, refusal),
                TakingAction::Drop => self.drop_taken(client),
                TakingAction::Keep => self.settled_here(client, true),
                TakingAction::Leave => self.leave_taken(client, epoch),
            }
        }
        if self.moves.taking.get(client).is_some_and(|taken| taken.machine.is_done()) {
            self.moves.taking.remove(client);
        }
    }

    fn or_failed(&mut self, client: &Arc<str>, done: Result<(), WireError>) {
        if let Err(error) = done {
            warn!(event = "move", client_id = &**client, %error, "a session that was to come from another node cannot be taken");
            self.taking_event(client, TakingEvent::Failed);
        }
    }

    /// A part of the subscriptions. When all are here, the session is entered, and holds what they bring.
    fn enter_taken(&mut self, client: &Arc<str>, bytes: &[u8], last: bool) -> Result<(), WireError> {
        let Some(taken) = self.moves.taking.get_mut(client) else {
            return Ok(());
        };
        taken.yields.take(bytes)?;
        if !last {
            return Ok(());
        }
        let (epoch, expiry_secs) = (taken.machine.epoch(), taken.expiry_secs);
        let yielded = std::mem::take(&mut taken.yields).finish()?;
        let bytes_max = 2 * self.shared.limits.queued_bytes_max as u64 + STATE_SURPLUS_BYTES;
        taken.state = Some(StateReader::new(&yielded.subscriptions, bytes_max));
        let _ = self.shared.hybrid.merge(yielded.clock, self.now);
        if let Some(stale) = self.by_client.get(client).copied() {
            self.forget_session(stale, Vec::new());
        }
        let owner = self.keeping.storage().is_some().then(|| self.shared.next_owner());
        if let Some(owner) = owner {
            self.keeping.begin_owner(owner, client, epoch);
        }
        let session = Session::arriving(client.clone(), owner, epoch, expiry_secs);
        let session = self.enter_session(session);
        let seen = self.seen();
        if let Some(taken) = self.moves.taking.get_mut(client) {
            (taken.session, taken.seen) = (Some(session), seen);
        }
        let mut routes = NewRoutes::default();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        for (position, filter, subscription) in yielded.subscriptions {
            let restored = Restored::Subscription { filter: filter.clone(), subscription };
            let mut turn = turn!(self);
            self.sessions[session as usize].session.import(&mut turn, position, restored);
            self.metrics().subscriptions.add(1);
            // What comes for a share group meanwhile waits until the session is here.
            self.enter_index(session, &filter, subscription, &mut routes);
        }
        drop(order);
        for cut in yielded.replays {
            let slot = &mut self.sessions[session as usize];
            let of = slot.session.subscriptions().find(|(filter, _)| **filter == cut.filter);
            if let Some(subscription) = of.map(|(_, subscription)| *subscription) {
                slot.replays.push_back(Replay::go_on(cut, subscription));
            }
        }
        self.keeping.close_section();
        Ok(())
    }

    /// Every filter of the session goes into the cut or in front of it, known here or not: it is applied when all nodes have the routes.
    fn propose_cut(&mut self, client: &Arc<str>, epoch: u64) {
        let Some(session) = self.moves.taking.get(client).and_then(|taken| taken.session) else {
            return;
        };
        let mut filters = Vec::new();
        let mut shares = Vec::new();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        for (text, _) in self.sessions[session as usize].session.subscriptions() {
            match TopicFilter::parse(text) {
                Ok(TopicFilter { share: Some(share), filter }) => {
                    let members = self.shared.index.share_members(text, filter).unwrap_or_default();
                    shares.push(((share.into(), filter.into()), members));
                }
                _ => filters.push(text.clone()),
            }
        }
        let mut commands = route_commands::adding(filters, shares);
        let (filters, shares) = match commands.pop() {
            Some(Command::Routes { add, .. }) => (add, Vec::new()),
            Some(Command::ShareRoutes { set, .. }) => (Vec::new(), set),
            _ => Default::default(),
        };
        for command in commands {
            self.propose(command);
        }
        let step = Pending::Move { client: client.clone(), epoch, step: Step::Cut };
        self.propose_for(step, Command::Cut { client: client.clone(), epoch, filters, shares });
        drop(order);
    }

    fn take_part(&mut self, client: &Arc<str>, bytes: &Bytes) -> Result<(), WireError> {
        let now = self.now;
        let Some(taken) = self.moves.taking.get_mut(client) else {
            return Ok(());
        };
        let (Some(state), Some(session)) = (&mut taken.state, taken.session) else {
            return Ok(());
        };
        let items = state.take(bytes, now)?;
        let left = limits::SHARES_MOVED_MAX.saturating_sub(taken.shares.len());
        let messages = items.iter().filter_map(|(_, restored)| match restored {
            Restored::Message { queued, .. } => Some(queued),
            _ => None,
        });
        taken.shares.extend(messages.flat_map(journal::shared_once).take(left));
        for (position, restored) in items {
            let mut turn = turn!(self);
            self.sessions[session as usize].session.import(&mut turn, position, restored);
        }
        self.keeping.close_section();
        Ok(())
    }

    fn adopt_taken(&mut self, client: &Arc<str>, epoch: u64) {
        let seen_here = self.seen();
        let Some(taken) = self.moves.taking.get_mut(client) else {
            return;
        };
        let (Some(state), Some(session)) = (taken.state.take(), taken.session) else {
            return;
        };
        let before = std::mem::take(&mut taken.seen);
        let imported = match state.finish() {
            Ok(imported) => imported,
            Err(error) => return self.or_failed(client, Err(error)),
        };
        let missed = self.missed(&imported.seen, &before);
        let mut turn = turn!(self);
        let session = &mut self.sessions[session as usize].session;
        session.adopt(&mut turn, imported.bounds, imported.seen, (&seen_here, &missed));
        session.restored();
        // What was held for it is written down only now: so is how far its streams have come.
        self.keeping.come_with(seen_here.iter());
        if self.keeping.defers() {
            self.keeping.when_kept(Due::Adopted { client: client.clone(), epoch });
        } else {
            self.keeping.close_section();
            self.taking_event(client, TakingEvent::Kept);
        }
    }

    /// Everything of a session that comes is on disk.
    pub(in crate::shard) fn adopted(&mut self, client: &Arc<str>, epoch: u64) {
        self.taking_event_of(client, epoch, TakingEvent::Kept);
    }

    /// The session is this node's. Where it was it may be found once more, if that node was about to forget it, and starts anew.
    fn settled_here(&mut self, client: &Arc<str>, session_present: bool) {
        let Some(taken) = self.moves.taking.get_mut(client) else { return };
        let (session, shares) = (taken.session.take(), std::mem::take(&mut taken.shares));
        if session.is_some() && session_present {
            if self.keeping.has_copies() {
                self.shared.shares_had.note_brought(taken.holder.tag(), taken.machine.epoch(), &shares);
            }
            self.metrics().sessions_taken.add(1);
        }
    }

    fn refuse_taken(&mut self, key: ConnectionKey, serial: u64, refusal: Refusal) {
        if !self.is_current(key, serial) {
            return;
        }
        match refusal {
            Refusal::Unavailable => {
                self.refuse(key, ReasonCode::ServerUnavailable, "the session cannot be had from its node now");
            }
            Refusal::ClaimLost => {
                self.refuse(key, ReasonCode::ServerBusy, "another connection of the client came later");
            }
        }
    }

    fn drop_taken(&mut self, client: &Arc<str>) {
        if let Some(session) = self.moves.taking.get_mut(client).and_then(|taken| taken.session.take()) {
            self.sessions[session as usize].session.take_held();
            self.forget_session(session, Vec::new());
        }
    }

    /// The session has come, and its client has not waited.
    fn leave_taken(&mut self, client: &Arc<str>, epoch: u64) {
        self.settled_here(client, true);
        let expiry_secs = self.moves.taking.get(client).map_or(0, |taken| taken.expiry_secs);
        self.propose(Command::Detach { client: client.clone(), epoch, will: WillFate::Drop, expiry_secs });
    }
}

/// What a session may have beside its queue: window, packet identifiers, subscriptions.
const STATE_SURPLUS_BYTES: u64 = limits::SUBSCRIPTION_BYTES_MAX as u64 + 64 * 1024 * 1024;
