//! CONNECT on the shard of its client id: the lease, the takeover of an older connection, CONNACK; and how a session is left
//! and ends.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_raft::{Command, LeaseWill, Outcome, Refusal, WillFate};
use tracing::{info, warn};

use crate::cluster::session_move::GivingEvent;
use crate::cluster::share_groups::{Keeper, Offer, Wanted};
use crate::journal;
use crate::limits;
use crate::metrics;
use crate::mqtt::{self, ConnAck, Connect, Packet, PacketType, Peer, Properties, ProtocolVersion, ReasonCode};
use crate::session::{self, Agreed, Queued, Session, Wire};
use crate::subscriptions::SessionKey;

use super::bans::BANNED;
use super::closing::Totals;
use super::connection::{Connection, State};
use super::greeted::Greeted;
use super::keeping::Due;
use super::outbox::Outbox;
use super::rights::{ClientRights, will_of};
use super::sharing::ShareAnswer;
use super::{Close, ConnectionKey, Pending, SessionSlot, Shard, Turn, turn};

/// What is kept between CONNECT and CONNACK.
pub(super) struct Connecting {
    agreed: Agreed,
    assigned_client_id: bool,
    /// Bytes that the client sent behind its CONNECT.
    rest: Vec<u8>,
    /// Whether the CONNACK promises something: a session that stays, or a Will.
    promises: bool,
    /// What the cluster was asked, to ask it again.
    acquire: Option<Command>,
    /// Of the lease, once it is granted, and whether there was a session then.
    epoch: u64,
    resumed: bool,
    /// What its client may do; the session's when it comes.
    rights: Option<Box<ClientRights>>,
}

impl Connecting {
    /// The Session Expiry Interval that was agreed on.
    pub fn expiry_secs(&self) -> u32 {
        self.agreed.session_expiry_secs
    }
}

impl Shard {
    /// Takes a greeted connection and asks for the lease of its client id.
    pub(super) fn connect_now(&mut self, mut greeted: Greeted) {
        if let Err(error) = greeted.stream.attach() {
            warn!(event = "close", peer = %greeted.peer, %error, "the socket cannot be moved to its shard");
            return;
        }
        let packet = std::mem::take(&mut greeted.connect);
        let Some(connect) = decode_connect(&packet) else {
            warn!(event = "close", peer = %greeted.peer, "a listener handed over something that is no CONNECT packet");
            return;
        };
        let agreed = session::accept(&connect, &self.shared.limits, greeted.listener.keep_alive_cap_secs);
        let mut rights = Box::new(ClientRights::new(&self.shared, self.id, &greeted));
        let will = will_of(&connect, &self.shared.limits, &mut rights);
        let client = greeted.client_id.clone();
        let fits = agreed.connack_fits(&self.shared.limits, greeted.assigned_client_id.then_some(&*client));
        if let Some(older) = self.by_client.get(&client).and_then(|session| self.sessions[*session as usize].connection)
        {
            self.hear_out(older);
        }
        let (clean, expiry_secs) = (agreed.clean_start, agreed.session_expiry_secs);
        let promises = expiry_secs > 0 || connect.will.is_some();
        let ban = self.ban_of(&greeted, &connect);
        let claimed = connect.user_name.filter(|name| Some(*name) != greeted.identity.user_name.as_deref());
        let (key, serial) = self.admit(greeted, agreed, promises, rights);
        self.connections[key as usize].claimed_name = claimed.map(Into::into);
        if self.shared.clustered {
            self.connections[key as usize].linger_until = Some(self.now + limits::CLUSTER_CONNACK_WAIT_MS);
            self.arm_timer(key);
        }
        match will {
            _ if ban.is_some() => self.refuse(key, ReasonCode::Banned, BANNED),
            _ if promises && self.storage_is_failing() && (clean || !self.is_stored(&client)) => self.refuse(
                key,
                ReasonCode::ServerUnavailable,
                "the disk fails: what must be kept of this session cannot be",
            ),
            _ if self.stopping => self.refuse(key, ReasonCode::ServerUnavailable, "the server is shutting down"),
            _ if !fits => {
                self.refuse(key, ReasonCode::PacketTooLarge, "no CONNACK fits the Maximum Packet Size [MQTT-3.1.2-24]")
            }
            Ok(will) => {
                let will = will.map(|will| LeaseWill { delay_secs: will.delay_secs, message: will.message });
                let acquire = Command::Acquire { client: client.clone(), clean, expiry_secs, will };
                let again = self.shared.clustered.then(|| acquire.clone());
                let pending = Pending::Connect { connection: key, serial, client };
                let written = self.propose_for(pending, acquire);
                if let State::Connecting(connecting) = &mut self.connections[key as usize].state {
                    connecting.acquire = again;
                    // That an older session has ended is a promise too.
                    connecting.promises |= written;
                }
            }
            Err(violation) => self.refuse(key, violation.reason, violation.what),
        }
    }

    /// Whether the session of a client is one that is written down.
    fn is_stored(&self, client_id: &str) -> bool {
        let session = self.by_client.get(client_id);
        session.is_some_and(|session| self.sessions[*session as usize].session.owner().is_some())
    }

    /// Enters a connection that waits for its lease.
    fn admit(
        &mut self,
        greeted: Greeted,
        agreed: Agreed,
        promises: bool,
        rights: Box<ClientRights>,
    ) -> (ConnectionKey, u64) {
        let ping_every_ms = if greeted.stream.transport().is_websocket() {
            greeted.listener.config.ping_interval.as_millis() as u64
        } else {
            0
        };
        self.next_serial += 1;
        let serial = self.next_serial;
        let connection = Connection {
            serial,
            stream: greeted.stream,
            version: agreed.version,
            packet_size_max: agreed.packet_size_max,
            state: State::Connecting(Box::new(Connecting {
                agreed,
                assigned_client_id: greeted.assigned_client_id,
                rest: greeted.rest,
                promises,
                acquire: None,
                epoch: 0,
                resumed: false,
                rights: Some(rights),
            })),
            outbox: Outbox::default(),
            partial: Vec::new(),
            waker: None,
            dirty: false,
            handling: false,
            paused: false,
            stalled: false,
            behind_peer: false,
            answers: VecDeque::new(),
            answered: 0,
            acks_waiting: 0,
            unanswered: false,
            held: false,
            unwritable: false,
            close_waits: false,
            shut: false,
            timer: None,
            ping_at: (ping_every_ms > 0).then_some(self.now + ping_every_ms),
            ping_every_ms,
            linger_until: None,
            peer: greeted.peer,
            client_id: greeted.client_id,
            expires_at: super::credentials::expires_at(&greeted.identity, self.now),
            user_name: greeted.identity.user_name.clone(),
            identity: greeted.identity,
            claimed_name: None,
            listener: greeted.listener,
            accepted_at: greeted.accepted_at,
            totals: Totals::default(),
            ended: None,
        };
        let key = self.connections.insert(connection) as ConnectionKey;
        self.unborn.push((key, serial));
        self.metrics().connections.add(1);
        self.metrics().connections_accepted.add(1);
        (key, serial)
    }

    /// Refuses a CONNECT that the listener could not judge.
    pub(super) fn refuse(&mut self, key: ConnectionKey, reason: ReasonCode, what: &'static str) {
        let Some(connection) = self.connection(key) else {
            return;
        };
        let (peer, client_id) = (connection.peer, connection.client_id.clone());
        ConnAck { session_present: false, reason, properties: Properties::EMPTY }
            .encode(connection.version, connection.outbox.buffer());
        self.metrics().packet_sent(PacketType::ConnAck as usize);
        if let Some(left_out) = metrics::admit_line(what) {
            let left_out = (left_out > 0).then_some(left_out);
            warn!(event = "refused", client_id = &*client_id, %peer, reason = reason.name(), left_out, "connection refused: {what}");
        }
        self.begin_closing(key, Close::Refused { reason });
    }

    /// The lease of the client id was granted: the older connection goes, the session comes, and the CONNACK is written when that is kept.
    pub(super) fn connected(&mut self, key: ConnectionKey, serial: u64, client_id: &Arc<str>, outcome: Outcome) {
        let waits =
            self.is_current(key, serial) && matches!(self.connections[key as usize].state, State::Connecting(_));
        if !waits {
            return self.connected_in_vain(client_id, outcome);
        }
        let (epoch, session_present) = match outcome {
            Outcome::Acquired { epoch, session_present, .. } => (epoch, session_present),
            Outcome::Claimed { epoch, holder, .. } => return self.take_session(key, serial, client_id, epoch, holder),
            // It is tried again when that is published, or the connection is given up.
            Outcome::Refused(Refusal::WillDue) => return self.moves.wait_for_will(client_id, (key, serial)),
            // The same, when the heirs of a dead node have its sessions.
            Outcome::Refused(Refusal::OrphansPending) => return self.connect_later(client_id, (key, serial)),
            Outcome::Missing => {
                self.refuse(key, ReasonCode::ServerUnavailable, "the node that has the session is not there");
                return;
            }
            _ => {
                self.refuse(key, ReasonCode::ServerUnavailable, "no lease for this client id");
                return;
            }
        };
        let Some(connection) = self.connections.get_mut(key as usize).filter(|connection| connection.serial == serial)
        else {
            return;
        };
        let client_id = connection.client_id.clone();
        let State::Connecting(connecting) = &mut connection.state else {
            return;
        };
        connecting.epoch = epoch;
        // A claim of another node is lost with this connection.
        self.giving_event(&client_id, GivingEvent::Withdrawn);
        self.take_over(&client_id, key);
        self.enter_connected(key, serial, &client_id, (epoch, session_present));
    }

    /// A Will of a client is published: connections that have waited for that ask again.
    pub(super) fn connect_behind_will(&mut self, client: &Arc<str>) {
        for connection in self.moves.take_waits_for_will(client) {
            self.connect_again(client, connection);
        }
    }

    /// The heir of a session does not know yet whether it has it. Of the connections of one client the last waits.
    fn connect_later(&mut self, client: &Arc<str>, connection: (ConnectionKey, u64)) {
        let earlier = self.moves.wait_for_heirs(client, connection);
        if let Some((key, serial)) = earlier
            && self.stop_connecting(key, serial).is_some()
        {
            self.refuse(key, ReasonCode::ServerBusy, "another connection of the client came later");
        }
    }

    /// Some heirs have what they have inherited: connections that have waited for that ask again.
    pub(super) fn connect_behind_heirs(&mut self) {
        for (client, connection) in self.moves.take_waits_for_heirs() {
            self.connect_again(&client, connection);
        }
    }

    fn connect_again(&mut self, client: &Arc<str>, (connection, serial): (ConnectionKey, u64)) {
        let state = self.connection(connection).filter(|found| found.serial == serial).map(|found| &found.state);
        if let Some(State::Connecting(connecting)) = state
            && let Some(acquire) = connecting.acquire.clone()
        {
            let client = client.clone();
            self.propose_for(Pending::Connect { connection, serial, client }, acquire);
        }
    }

    /// The client has not waited for its lease.
    fn connected_in_vain(&mut self, client: &Arc<str>, outcome: Outcome) {
        let client = client.clone();
        match outcome {
            Outcome::Acquired { epoch, .. } => {
                let expiry_secs = self
                    .by_client
                    .get(&client)
                    .map_or(0, |session| self.sessions[*session as usize].session.expiry_secs());
                self.propose(Command::Detach { client, epoch, will: WillFate::Drop, expiry_secs });
            }
            Outcome::Claimed { epoch, .. } => {
                self.propose(Command::Withdraw { client, epoch });
            }
            _ => {}
        }
    }

    /// The lease is this connection's, and nobody else has a connection: the session comes.
    pub(super) fn enter_connected(
        &mut self,
        key: ConnectionKey,
        serial: u64,
        client_id: &Arc<str>,
        (epoch, session_present): (u64, bool),
    ) {
        let Some(connection) = self.connections.get_mut(key as usize).filter(|connection| connection.serial == serial)
        else {
            return;
        };
        let State::Connecting(connecting) = &mut connection.state else {
            return;
        };
        connecting.epoch = epoch;
        let persists = connecting.agreed.session_expiry_secs > 0;
        let waits = connecting.promises;
        if !session_present && let Some(older) = self.by_client.get(client_id).copied() {
            // It has ended in the control state. If it was connected until now, or the word of its end is still on its way,
            // it is still here.
            self.end_session(older);
        }
        let resumed = session_present && self.by_client.contains_key(client_id);
        let session = self.session_of(client_id, epoch, persists);
        self.sessions[session as usize].session.set_epoch(epoch);
        if let State::Connecting(connecting) = &mut self.connections[key as usize].state {
            connecting.resumed = resumed;
        }
        // Who comes back to a session that is on disk has it whatever happens, and what he takes makes room.
        if waits && self.keeping.defers() && !(resumed && self.storage_is_failing()) {
            self.sessions[session as usize].admitting = Some((key, serial));
            self.keeping.when_kept(Due::Admit { connection: key, serial });
            self.connections[key as usize].linger_until = Some(self.now + limits::CONNACK_WAIT_MS);
            self.arm_timer(key);
        } else {
            self.admitted(key, serial);
        }
    }

    /// The disk has not kept in time what the CONNACK would promise, or the cluster has not granted the lease: the client is told, and is as one who never came.
    pub(super) fn give_up_connecting(&mut self, key: ConnectionKey) {
        let connection = &mut self.connections[key as usize];
        let client_id = connection.client_id.clone();
        if self.moves.is_taking(&client_id) {
            // The session is on its way, which has a deadline of its own.
            connection.linger_until = Some(self.now + limits::CLUSTER_CONNACK_WAIT_MS);
            return self.arm_timer(key);
        }
        let State::Connecting(connecting) = std::mem::replace(&mut connection.state, State::Closing) else {
            return;
        };
        self.refuse(key, ReasonCode::ServerUnavailable, "the session was not granted, or kept on disk, in time");
        let Some(session) = self.by_client.get(&client_id).copied() else {
            return;
        };
        let (epoch, expiry_secs) = (connecting.epoch, connecting.agreed.session_expiry_secs);
        let slot = &self.sessions[session as usize];
        if slot.session.epoch() == epoch && slot.connection.is_none() {
            if expiry_secs == 0 {
                self.end_session(session);
            }
            self.propose(Command::Detach { client: client_id, epoch, will: WillFate::Drop, expiry_secs });
        }
    }

    /// A connection that waits for its CONNACK is not to be let in.
    pub(super) fn stop_connecting(&mut self, key: ConnectionKey, serial: u64) -> Option<Box<Connecting>> {
        let connection = self.connections.get_mut(key as usize).filter(|connection| connection.serial == serial)?;
        match std::mem::replace(&mut connection.state, State::Closing) {
            State::Connecting(connecting) => Some(connecting),
            other => {
                connection.state = other;
                None
            }
        }
    }

    /// The session is kept: the connection is let in.
    pub(super) fn admitted(&mut self, key: ConnectionKey, serial: u64) {
        let Some(connection) = self.connections.get_mut(key as usize).filter(|connection| connection.serial == serial)
        else {
            return;
        };
        let client_id = connection.client_id.clone();
        let State::Connecting(mut connecting) = std::mem::replace(&mut connection.state, State::Closing) else {
            return;
        };
        connection.linger_until = None;
        let own = |session: &SessionKey| self.sessions[*session as usize].session.epoch() == connecting.epoch;
        let Some(session) = self.by_client.get(&client_id).copied().filter(own) else {
            self.admit_too_late(key, &connecting);
            return;
        };
        let rights = connecting.rights.take();
        self.open(key, session, (connecting.epoch, &connecting.agreed), rights);
        self.write_connack(key, session, &connecting);
        let us = self.now.saturating_sub(self.connections[key as usize].accepted_at) * 1000;
        self.metrics().connect_duration.observe_us(us);
        self.log_connect(key, &connecting.agreed, connecting.resumed);
        self.arm_timer(key);
        self.mark_dirty(key);
        if !connecting.rest.is_empty() {
            self.received(key, serial, &connecting.rest);
        }
        self.wake(key);
    }

    /// It had the session for a moment, and another connection has come with this client id since [MQTT-3.1.4-3].
    fn admit_too_late(&mut self, key: ConnectionKey, connecting: &Connecting) {
        let connection = &mut self.connections[key as usize];
        let assigned = connecting.assigned_client_id.then_some(&*connection.client_id);
        connecting.agreed.write_connack(&self.shared.limits, connecting.resumed, assigned, connection.outbox.buffer());
        self.metrics().packet_sent(PacketType::ConnAck as usize);
        self.metrics().sessions_taken_over.add(1);
        let what = "another connection has come with this client id [MQTT-3.1.4-3]";
        self.begin_closing(key, Close::ByServer { reason: ReasonCode::SessionTakenOver, what });
    }

    /// Closes the older connection of the client id, if there is one [MQTT-3.1.4-3]. Its lease is the newer one's already.
    fn take_over(&mut self, client_id: &str, newer: ConnectionKey) {
        let Some(session) = self.by_client.get(client_id).copied() else {
            return;
        };
        let Some(older) = self.sessions[session as usize].connection else {
            return;
        };
        self.metrics().sessions_taken_over.add(1);
        let (from, to) = (self.connections[older as usize].peer, self.connections[newer as usize].peer);
        let client = self.connections[older as usize].client_id.clone();
        self.count_takeover(&client, from, to);
        self.detach_locally(session);
        let what = "another connection has come with this client id [MQTT-3.1.4-3]";
        self.begin_closing(older, Close::ByServer { reason: ReasonCode::SessionTakenOver, what });
    }

    /// The session of a client id, a new one if there is none.
    fn session_of(&mut self, client_id: &Arc<str>, epoch: u64, persists: bool) -> SessionKey {
        if let Some(session) = self.by_client.get(client_id) {
            return *session;
        }
        let owner = (persists && self.keeping.storage().is_some()).then(|| self.shared.next_owner());
        if let Some(owner) = owner {
            self.keeping.begin_owner(owner, client_id, epoch);
        }
        let session = self.enter_session(Session::new(client_id.clone(), owner));
        self.sessions[session as usize].begun_here = true;
        session
    }

    /// Enters a session that is new here.
    pub(super) fn enter_session(&mut self, session: Session) -> SessionKey {
        let (client_id, owner) = (session.client_id().clone(), session.owner());
        let slot = SessionSlot {
            session,
            connection: None,
            detached_at: self.now,
            admitting: None,
            target: (0, 0),
            replays: VecDeque::new(),
            items_away: false,
            begun_here: false,
            inherited: None,
        };
        let session = self.sessions.insert(slot) as SessionKey;
        self.by_client.insert(client_id, session);
        if let Some(owner) = owner {
            self.by_owner.insert(owner, session);
        }
        self.metrics().sessions.add(1);
        session
    }

    fn open(
        &mut self,
        key: ConnectionKey,
        session: SessionKey,
        (epoch, agreed): (u64, &Agreed),
        rights: Option<Box<ClientRights>>,
    ) {
        let now = self.now;
        let slot = &mut self.sessions[session as usize];
        slot.session.connect(epoch, agreed, now);
        if let Some(rights) = rights {
            slot.session.set_rights(rights);
        }
        slot.connection = Some(key);
        slot.admitting = None;
        self.connections[key as usize].state = State::Open { session };
        self.connections[key as usize].outbox.prepare(&mut self.pool);
        self.set_shares_connected(session, true);
    }

    /// CONNACK, then everything that was under way, then what waited [MQTT-3.2.0-1], [MQTT-4.4.0-1].
    fn write_connack(&mut self, key: ConnectionKey, session: SessionKey, connecting: &Connecting) {
        let resumed = connecting.resumed;
        let mut turn = turn!(self);
        turn.metrics.packet_sent(PacketType::ConnAck as usize);
        let session = &mut self.sessions[session as usize].session;
        let outbox = &mut self.connections[key as usize].outbox;
        let assigned = connecting.assigned_client_id.then_some(&**session.client_id()).map(str::to_owned);
        connecting.agreed.write_connack(turn.limits, resumed, assigned.as_deref(), outbox.buffer());
        if resumed {
            turn.metrics.sessions_resumed.add(1);
            session.resend(&mut turn, outbox);
            self.pump(key);
        }
    }

    fn log_connect(&self, key: ConnectionKey, agreed: &Agreed, resumed: bool) {
        if !self.shared.connection_messages {
            return;
        }
        let connection = &self.connections[key as usize];
        info!(
            event = "connect",
            user_name = connection.user_name.as_deref(),
            method = connection.identity.method.label(),
            client_id = &*connection.client_id,
            peer = %connection.peer,
            listener = connection.listener.config.name,
            transport = connection.stream.transport().name(),
            version = agreed.version.level(),
            keep_alive_secs = agreed.keep_alive_secs,
            session_present = resumed,
            greeted_ms = self.now.saturating_sub(connection.accepted_at),
            "connected"
        );
    }

    /// The connection of a session ends: the control state hears of it, with the fate of the Will. Returns whether that is written down.
    pub(super) fn leave(&mut self, session: SessionKey, close: Close, pending: Option<Pending>) -> bool {
        let will = match close {
            Close::ByClient { publish_will: false, .. } => WillFate::Drop,
            _ => WillFate::Keep,
        };
        self.detach_locally(session);
        let state = &self.sessions[session as usize].session;
        let command = Command::Detach {
            client: state.client_id().clone(),
            epoch: state.epoch(),
            will,
            expiry_secs: state.expiry_secs(),
        };
        let ends = state.expiry_secs() == 0;
        if ends {
            self.end_session(session);
        }
        match pending {
            Some(pending) => self.propose_for(pending, command),
            None => self.propose(command),
        }
    }

    /// Takes the connection off a session. Members of share groups give back what was never sent to them.
    pub(super) fn detach_locally(&mut self, session: SessionKey) {
        let slot = &mut self.sessions[session as usize];
        slot.connection = None;
        slot.detached_at = self.now;
        let mut turn = turn!(self);
        slot.session.disconnect();
        slot.session.discard_qos0(&mut turn);
        self.set_shares_connected(session, false);
        self.give_back(session, None, true);
    }

    /// The session has ended by its expiry [MQTT-4.1.0-2]. One that is connected was ended by a Clean Start, whose outcome follows and
    /// sees to it [MQTT-3.1.2-4].
    pub(super) fn session_ended(&mut self, client_id: &str, epoch: u64) {
        let Some(session) = self.by_client.get(client_id).copied() else {
            return;
        };
        let slot = &self.sessions[session as usize];
        if slot.session.epoch() == epoch && slot.connection.is_none() {
            let expiry_ms = u64::from(slot.session.expiry_secs()) * 1000;
            let expired = expiry_ms > 0 && self.now.saturating_sub(slot.detached_at) + EXPIRY_GRAIN_MS >= expiry_ms;
            self.metrics().sessions_expired.add(u64::from(expired));
            self.end_session(session);
        }
    }

    /// Ends a session with all that it holds.
    pub(super) fn end_session(&mut self, session: SessionKey) {
        self.leave_indexes(session);
        self.give_back(session, None, false);
        self.remove_session(session);
        self.metrics().sessions_ended.add(1);
    }

    /// Forgets a session that is another node's, or was never quite here. What is left for members of share groups goes to others.
    pub(super) fn forget_session(&mut self, session: SessionKey, left: Vec<Queued>) {
        self.leave_indexes(session);
        self.offer_queued(session, left);
        self.remove_session(session);
    }

    /// Nothing is routed to the session any more.
    fn leave_indexes(&mut self, session: SessionKey) {
        let subscriptions: Vec<Arc<str>> =
            self.sessions[session as usize].session.subscriptions().map(|(filter, _)| filter.clone()).collect();
        let mut removed = Vec::new();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        for filter in &subscriptions {
            self.leave_index(session, filter, &mut removed);
        }
        self.propose_removed(removed);
        drop(order);
        self.metrics().subscriptions.sub(subscriptions.len() as u64);
    }

    fn remove_session(&mut self, session: SessionKey) {
        let slot = self.sessions.remove(session as usize);
        self.by_client.remove(slot.session.client_id());
        for id in slot.session.awaited().collect::<Vec<_>>() {
            self.answer_origin(id, ShareAnswer::Settled);
        }
        if let Some(owner) = slot.session.owner() {
            self.by_owner.remove(&owner);
            if slot.items_away {
                slot.session.positions().into_iter().for_each(|position| self.keeping.delete(owner, position));
                self.keeping.delete(owner, journal::HEADER);
            } else {
                self.keeping.drop_owner(owner);
            }
        }
        self.metrics().sessions.sub(1);
    }

    /// Offers what a member of a share group owes to the others [MQTT-4.8.2-5]. A detached member keeps it when there is
    /// nobody else.
    pub(super) fn give_back(&mut self, session: SessionKey, share: Option<&str>, unsent_only: bool) {
        let slot = &mut self.sessions[session as usize];
        // Looking through a long queue would hold up the shard at every disconnect.
        if !slot.session.queue().holds_shared() && (unsent_only || slot.session.inflight_count() == 0) {
            return;
        }
        let given = slot.session.give_back(share, unsent_only);
        self.offer_queued(session, given);
    }

    /// Offers messages that a session has given up.
    fn offer_queued(&mut self, session: SessionKey, given: Vec<Queued>) {
        if given.is_empty() {
            return;
        }
        let slot = &mut self.sessions[session as usize];
        let owner = slot.session.owner();
        slot.items_away |= owner.is_some();
        owner.into_iter().for_each(|owner| self.keeping.give_away(owner, &given));
        let mut stored = Vec::new();
        for queued in given {
            let (Some(message), Some(share)) = (queued.message(), &queued.share) else {
                stored.push(queued);
                continue;
            };
            // A session that outlives its connection has taken its messages over.
            let keeper = if queued.awaited { Keeper::Elsewhere(Wanted::Connected) } else { Keeper::Here };
            let from = owner.map(|owner| (owner, queued.position));
            self.keeping.close_section();
            self.offer(Offer::new(share.clone(), message.clone(), keeper).with_item(from));
        }
        if let Some(owner) = owner.filter(|_| !stored.is_empty()) {
            self.read_back_to_offer(owner, stored);
        }
    }
}

/// The CONNECT of a greeted connection.
fn decode_connect(packet: &[u8]) -> Option<Connect<'_>> {
    let frame = mqtt::next_frame(packet, u32::MAX).ok()??;
    match mqtt::decode(&frame, ProtocolVersion::V5, Peer::Client) {
        Ok(Packet::Connect(connect)) => Some(connect),
        _ => None,
    }
}

/// How much earlier than by the clock of its shard a session may end whose Session Expiry Interval is over: the time of the control state goes in seconds.
const EXPIRY_GRAIN_MS: u64 = 1_000;

const _: () = assert!(limits::WILL_BYTES_MAX < limits::OUTBOX_SOFT_BYTES);
