//! SUBSCRIBE and UNSUBSCRIBE, and the replay of retained messages.
//!
//! SUBACK is written when the routes of its filters are applied. The replay then reads each retained message at the moment of sending it, behind everything
//! that waits for the session, so that no older value follows a newer one. Other shards put a value into the store and its live copy into
//! this shard's mailbox under one lock; so a replay holds that lock and has delivered all that arrived before: what it then finds in the store
//! is not older than anything that was sent live, and its own live copy is behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::{HashMap, HashSet};
use holdfast_raft::{Outcome, ShareMembers, ShareRoute};
use parking_lot::{Mutex, RwLockReadGuard};

use crate::cluster::route_commands;
use crate::journal::wire::CutReplay;
use crate::mqtt::{
    Message, Packet, PacketId, PacketType, Properties, ReasonCode, RetainHandling, SubAck, Subscribe,
    SubscriptionOptions, UnsubAck, Unsubscribe,
};
use crate::retained;
use crate::session::{Delivery, Judged, Outgoing, Subscription, Wire, few_enough};
use crate::subscriptions::{Member, SessionKey, Subscriber};
use crate::topic::TopicFilter;

use super::connection::State;
use super::keeping::Due;
use super::mailbox::Ticket;
use super::{Close, ConnectionKey, Pending, Shard, Shared, Turn, turn};

/// A SUBACK that waits for its routes.
pub(super) struct PendingSubscribe {
    pub(super) connection: ConnectionKey,
    pub(super) serial: u64,
    packet_id: PacketId,
    codes: Vec<u8>,
    replays: Vec<Replay>,
    /// What of it was new to the session: it goes again if the SUBSCRIBE is refused in the end.
    added: Vec<Arc<str>>,
    /// What of it not every node routes yet.
    unsettled: Vec<Arc<str>>,
    /// The index of the last of its routes, and until when every node has to route by it.
    index: u64,
    until: u64,
}

/// The retained messages of one new subscription that are still to be sent.
#[derive(Debug)]
pub(super) struct Replay {
    filter: Arc<str>,
    options: SubscriptionOptions,
    subscription_id: Option<u32>,
    /// The topic of the last one that was sent.
    after: Option<Arc<str>>,
}

impl Replay {
    /// How far it has come, for another node.
    pub(super) fn cut(&self) -> CutReplay {
        CutReplay { filter: self.filter.clone(), after: self.after.clone() }
    }

    /// A replay that another node has begun, of a subscription of the session.
    pub(super) fn go_on(cut: CutReplay, subscription: Subscription) -> Replay {
        let Subscription { options, subscription_id } = subscription;
        Replay { filter: cut.filter, options, subscription_id, after: cut.after }
    }
}

/// How far a replay came in one go.
enum Progress {
    /// The outbox or the window is full; acknowledgements or the socket will go on with it.
    Stopped,
    /// Many topics did not match: the others on this shard have their turn first.
    OutOfBudget,
    Finished,
}

/// Tries to find the mailbox empty in one turn.
const CATCH_UP_ATTEMPTS: usize = 4;

/// Routes to be added to the control state.
#[derive(Default)]
pub(super) struct NewRoutes {
    pub filters: Vec<Arc<str>>,
    pub shares: Vec<(ShareRoute, ShareMembers)>,
    /// All of them, with their share prefixes.
    texts: Vec<Arc<str>>,
}

impl NewRoutes {
    pub fn len(&self) -> usize {
        self.filters.len() + self.shares.len()
    }
}

impl Shard {
    pub(super) fn handle_subscribe(
        &mut self,
        key: ConnectionKey,
        session: SessionKey,
        subscribe: &Subscribe<'_>,
    ) -> Result<(), Close> {
        let subscription_id = subscribe.properties.subscription_identifier();
        let mut judged = self.sessions[session as usize].session.judge(&self.shared.limits, subscribe)?;
        if self.sessions[session as usize].session.owner().is_some() && self.storage_is_failing() {
            judged.iter_mut().for_each(|judged| judged.filter = Err(ReasonCode::QuotaExceeded));
        }
        let mut pending = PendingSubscribe {
            connection: key,
            serial: self.connections[key as usize].serial,
            packet_id: subscribe.packet_id,
            codes: judged.iter().map(Judged::code).collect(),
            replays: Vec::new(),
            added: Vec::new(),
            unsettled: Vec::new(),
            index: 0,
            until: self.now + self.shared.patience.subscribe_ms,
        };
        let mut routes = NewRoutes::default();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        for Judged { filter, options } in judged {
            if let Ok(filter) = filter {
                let subscription = Subscription { options, subscription_id };
                self.subscribe_one(session, &filter, subscription, &mut routes, &mut pending);
            }
        }
        if routes.filters.is_empty() && routes.shares.is_empty() {
            drop(order);
            self.suback_when_kept(session, pending);
        } else {
            self.propose_routes(routes, pending);
        }
        Ok(())
    }

    fn subscribe_one(
        &mut self,
        session: SessionKey,
        filter: &Arc<str>,
        subscription: Subscription,
        routes: &mut NewRoutes,
        pending: &mut PendingSubscribe,
    ) {
        let mut turn = turn!(self);
        let is_new = self.sessions[session as usize].session.subscribe(&mut turn, filter, subscription);
        if is_new {
            self.metrics().subscriptions.add(1);
            if self.shared.clustered {
                pending.added.push(filter.clone());
            }
        }
        self.enter_index(session, filter, subscription, routes);
        let replayed = match subscription.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::DoNotSend => false,
        };
        // Shared subscriptions get no retained messages (4.8.2).
        if replayed && !filter.starts_with("$share/") {
            let Subscription { options, subscription_id } = subscription;
            pending.replays.push(Replay { filter: filter.clone(), options, subscription_id, after: None });
        }
    }

    pub(super) fn enter_index(
        &mut self,
        session: SessionKey,
        text: &Arc<str>,
        subscription: Subscription,
        routes: &mut NewRoutes,
    ) {
        let Ok(parsed) = TopicFilter::parse(text) else {
            return;
        };
        let Subscription { options, subscription_id } = subscription;
        let subscription_id = subscription_id.unwrap_or(0);
        let kept = self.sessions[session as usize].session.owner().is_some();
        match parsed.share {
            Some(share) => {
                let client_id = self.sessions[session as usize].session.client_id().clone();
                let connected = self.sessions[session as usize].connection.is_some();
                let member = Member { shard: self.id, session, client_id, connected, options, subscription_id };
                let before = self.shared.index.share_members(text, parsed.filter);
                self.shared.index.join_share(text, parsed.filter, member);
                let after = self.shared.index.share_members(text, parsed.filter).unwrap_or_default();
                if before != Some(after) || self.shared.unsettled.contains(text) {
                    routes.shares.push(((share.into(), parsed.filter.into()), after));
                    routes.texts.push(text.clone());
                }
            }
            None => {
                let first_here = self.index.insert(text, Subscriber { session, options, subscription_id }, kept);
                let first = first_here && self.shared.index.insert(text, self.id, kept);
                if first || self.shared.unsettled.contains(text) {
                    routes.filters.push(text.clone());
                    routes.texts.push(text.clone());
                }
            }
        }
    }

    /// Takes a filter of a session out of the indexes; notes in `removed` those that nobody on this node wants any more.
    pub(super) fn leave_index(&mut self, session: SessionKey, text: &Arc<str>, removed: &mut Vec<Arc<str>>) {
        let Ok(parsed) = TopicFilter::parse(text) else {
            return;
        };
        let gone = if let Some(share) = parsed.share {
            let client_id = self.sessions[session as usize].session.client_id();
            let before = self.shared.index.share_members(text, parsed.filter);
            let gone = self.shared.index.leave_share(text, parsed.filter, client_id);
            if let Some(members) = self.shared.index.share_members(text, parsed.filter)
                && before != Some(members)
            {
                self.propose_members(vec![((share.into(), parsed.filter.into()), members)]);
            }
            gone
        } else {
            self.index.remove(text, session) && self.shared.index.remove(text, self.id)
        };
        if gone {
            removed.push(text.clone());
        }
    }

    pub(super) fn propose_removed(&mut self, removed: Vec<Arc<str>>) {
        if !removed.is_empty() {
            self.control.unrouted(self.id, removed);
        }
    }

    /// The routes of one SUBSCRIBE. If they are more than one command, the answer waits for the last one, whose outcome comes last.
    fn propose_routes(&mut self, routes: NewRoutes, mut pending: PendingSubscribe) {
        let NewRoutes { filters, shares, texts } = routes;
        if self.shared.clustered {
            self.shared.unsettled.add(&texts);
            pending.unsettled = texts;
        }
        let mut commands = route_commands::adding(filters, shares);
        let Some(last) = commands.pop() else {
            return;
        };
        let with = self.next_ticket + commands.len() as u64 + 1;
        for command in commands {
            self.propose_for(Pending::SubscribeWith(with), command);
        }
        self.propose_for(Pending::Subscribe(Box::new(pending)), last);
    }

    /// Some of the routes of a SUBSCRIBE are applied.
    pub(super) fn routed_with(&mut self, other: Ticket, outcome: &Outcome) {
        if let Some(Pending::Subscribe(pending)) = self.pending.get_mut(&other) {
            match outcome {
                Outcome::Routed { index } => pending.index = pending.index.max(*index),
                _ => pending.refuse(),
            }
        }
    }

    /// The routes of a SUBSCRIBE are applied: every publish on this node finds them from now on, and soon on every other one.
    pub(super) fn routed(&mut self, ticket: Ticket, mut pending: PendingSubscribe, outcome: &Outcome) {
        match outcome {
            Outcome::Routed { index } => pending.index = pending.index.max(*index),
            _ => pending.refuse(),
        }
        if pending.is_refused() || self.control.is_routed(self.id, ticket, pending.index) {
            self.subscribed(pending);
        } else {
            self.pending.insert(ticket, Pending::Subscribe(Box::new(pending)));
        }
    }

    pub(super) fn routed_everywhere(&mut self, ticket: Ticket) {
        if let Some(Pending::Subscribe(pending)) = self.pending.remove(&ticket) {
            self.subscribed(*pending);
        }
    }

    /// A SUBSCRIBE that not every node could route for in time is refused, and taken back: nobody must believe that it holds.
    pub(super) fn give_up_late_subscribes(&mut self) {
        let now = self.now;
        let is_late = |pending: &Pending| matches!(pending, Pending::Subscribe(pending) if pending.until <= now);
        let late: Vec<Ticket> =
            self.pending.iter().filter(|(_, pending)| is_late(pending)).map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            if let Some(Pending::Subscribe(mut pending)) = self.pending.remove(&ticket) {
                self.metrics().subscribes_timed_out.add(1);
                pending.refuse();
                self.subscribed(*pending);
            }
        }
    }

    /// It is known what becomes of a SUBSCRIBE.
    fn subscribed(&mut self, mut pending: PendingSubscribe) {
        if !pending.unsettled.is_empty() {
            self.shared.unsettled.remove(&pending.unsettled);
        }
        let current = self
            .connections
            .get(pending.connection as usize)
            .is_some_and(|connection| connection.serial == pending.serial);
        if !current {
            return;
        }
        if pending.is_refused()
            && let State::Open { session } = self.connections[pending.connection as usize].state
        {
            self.take_back(session, std::mem::take(&mut pending.added));
        }
        match self.connections[pending.connection as usize].state {
            State::Open { session } => self.suback_when_kept(session, pending),
            _ => self.suback(pending),
        }
    }

    /// The SUBACK of a session that is written down waits until its subscriptions are.
    fn suback_when_kept(&mut self, session: SessionKey, pending: PendingSubscribe) {
        if self.keeping.defers() && self.sessions[session as usize].session.owner().is_some() {
            self.connections[pending.connection as usize].acks_waiting += 1;
            self.keeping.when_kept(Due::SubAck(Box::new(pending)));
        } else {
            self.suback(pending);
        }
    }

    pub(super) fn suback(&mut self, pending: PendingSubscribe) {
        let PendingSubscribe { connection: key, serial, packet_id, codes, replays, .. } = pending;
        if !self.is_current(key, serial) || self.open_session(key).is_none() {
            return;
        }
        self.add_replays(key, replays);
        let connection = &mut self.connections[key as usize];
        connection.outbox.prepare(&mut self.pool);
        let suback = Packet::SubAck(SubAck { packet_id, properties: Properties::EMPTY, codes: &codes });
        connection.write(&suback);
        self.metrics().packet_sent(PacketType::SubAck as usize);
        self.pump(key);
        self.mark_dirty(key);
    }

    /// One replay for each filter, so that they are bounded by the subscriptions: a newer one begins anew.
    fn add_replays(&mut self, key: ConnectionKey, newer: Vec<Replay>) {
        let Some(replays) = self.replays_of(key).filter(|_| !newer.is_empty()) else {
            return;
        };
        let mut filters = HashSet::new();
        let mut last_of_each: Vec<Replay> =
            newer.into_iter().rev().filter(|newer| filters.insert(newer.filter.clone())).collect();
        replays.retain(|older| !filters.contains(&older.filter));
        replays.extend(last_of_each.drain(..).rev());
    }

    fn replays_of(&mut self, key: ConnectionKey) -> Option<&mut VecDeque<Replay>> {
        match self.connections.get(key as usize)?.state {
            State::Open { session } => Some(&mut self.sessions[session as usize].replays),
            _ => None,
        }
    }

    /// Sends what waits for a connection: its session's queue, then retained messages. Returns whether anything was written.
    pub(super) fn pump(&mut self, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return false;
        };
        let State::Open { session } = connection.state else {
            return false;
        };
        let slot = &mut self.sessions[session as usize];
        let mut wrote = false;
        if slot.session.has_waiting() {
            let mut turn = turn!(self);
            connection.outbox.prepare(&mut self.pool);
            wrote = slot.session.pump(&mut turn, &mut connection.outbox);
            self.read_back_wanted(session);
        }
        if !self.sessions[session as usize].replays.is_empty() {
            wrote |= self.pump_replays(key, session);
        }
        wrote
    }

    fn pump_replays(&mut self, key: ConnectionKey, session: SessionKey) -> bool {
        let mut replays = std::mem::take(&mut self.sessions[session as usize].replays);
        let before = self.connections[key as usize].outbox.len();
        while let Some(replay) = replays.front_mut() {
            if !self.may_replay(key, session) {
                break;
            }
            if self.replay_allowance == 0 {
                self.mark_dirty(key);
                break;
            }
            match self.replay_some(key, session, replay) {
                Progress::Stopped => {}
                Progress::OutOfBudget => {
                    self.mark_dirty(key);
                    break;
                }
                Progress::Finished => drop(replays.pop_front()),
            }
        }
        let wrote = self.connections[key as usize].outbox.len() > before;
        if !replays.is_empty() {
            self.sessions[session as usize].replays = replays;
        }
        wrote
    }

    fn may_replay(&self, key: ConnectionKey, session: SessionKey) -> bool {
        self.connections[key as usize].outbox.has_room() && self.sessions[session as usize].session.is_caught_up()
    }

    /// Sends some of the retained messages of a replay. The store is read once for a few of them: what is set between that and their
    /// sending, a turn that nothing interrupts, reaches the session live behind them.
    fn replay_some(&mut self, key: ConnectionKey, session: SessionKey, replay: &mut Replay) -> Progress {
        let shared = self.shared.clone();
        let Some(retained) = self.read_caught_up(&shared) else {
            return Progress::OutOfBudget;
        };
        if !self.may_replay(key, session) {
            return Progress::Stopped;
        }
        let mut scan = retained.scan(self.now, &replay.filter, replay.after.as_deref(), self.replay_allowance);
        let mut stopped = false;
        while !stopped && let Some(message) = scan.next() {
            self.replay_one(session, replay, message);
            replay.after = Some(message.topic.clone());
            stopped = !self.may_replay(key, session);
        }
        // A replay that examines nothing costs its look-up.
        self.replay_allowance = scan.budget_left().min(self.replay_allowance - 1);
        if stopped {
            return Progress::Stopped;
        }
        match scan.resume() {
            Some(topic) => {
                replay.after = Some(topic.clone());
                Progress::OutOfBudget
            }
            None => Progress::Finished,
        }
    }

    /// The retained store, when everything that arrived has been delivered. None if messages come faster than that.
    fn read_caught_up<'s>(&mut self, shared: &'s Shared) -> Option<RwLockReadGuard<'s, retained::Map>> {
        for _ in 0..CATCH_UP_ATTEMPTS {
            self.take_mail();
            self.deliver_arrived();
            let retained = shared.retained.read();
            if !shared.mailboxes[usize::from(self.id)].holds_messages() {
                return Some(retained);
            }
        }
        None
    }

    fn replay_one(&mut self, session: SessionKey, replay: &Replay, message: &Arc<Message>) {
        let state = &mut self.sessions[session as usize].session;
        let own = replay.options.no_local && message.publisher == *state.client_id();
        // Nobody misses a value that was never to come: it is not counted as dropped.
        if own || !state.may_read(&message.topic) {
            return;
        }
        // RETAIN is 1 however the subscription was made [MQTT-3.3.1-8].
        let delivery = Delivery {
            qos: replay.options.qos,
            retain: true,
            subscription_ids: replay.subscription_id.as_slice(),
            share: None,
        };
        // A Will as any value: whether the session has had it live is no matter here.
        let mut outgoing = Outgoing::from_message(message);
        outgoing.will = 0;
        self.deliver_to(session, &outgoing, delivery);
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        key: ConnectionKey,
        session: SessionKey,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Result<(), Close> {
        few_enough(unsubscribe.filters.iter().count())?;
        let mut codes = Vec::new();
        let mut removed = Vec::new();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        for text in unsubscribe.filters.iter() {
            codes.push(self.unsubscribe_one(session, text, &mut removed) as u8);
        }
        self.propose_removed(removed);
        drop(order);
        let replays = &mut self.sessions[session as usize].replays;
        if !replays.is_empty() {
            let texts: HashSet<&str> = unsubscribe.filters.iter().collect();
            replays.retain(|replay| !texts.contains(&*replay.filter));
        }
        let (packet_id, serial) = (unsubscribe.packet_id, self.connections[key as usize].serial);
        if self.keeping.defers() && self.sessions[session as usize].session.owner().is_some() {
            self.connections[key as usize].acks_waiting += 1;
            self.keeping.when_kept(Due::UnsubAck { connection: key, serial, packet_id, codes });
        } else {
            self.unsuback(key, serial, packet_id, &codes);
        }
        Ok(())
    }

    pub(super) fn unsuback(&mut self, key: ConnectionKey, serial: u64, packet_id: PacketId, codes: &[u8]) {
        if !self.is_current(key, serial) || self.open_session(key).is_none() {
            return;
        }
        let connection = &mut self.connections[key as usize];
        connection.outbox.prepare(&mut self.pool);
        connection.write(&Packet::UnsubAck(UnsubAck { packet_id, properties: Properties::EMPTY, codes }));
        self.metrics().packet_sent(PacketType::UnsubAck as usize);
        self.mark_dirty(key);
    }

    /// Subscriptions that were not granted in the end.
    fn take_back(&mut self, session: SessionKey, added: Vec<Arc<str>>) {
        let mut removed = Vec::new();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        for text in added {
            self.unsubscribe_one(session, &text, &mut removed);
        }
        self.propose_removed(removed);
        drop(order);
    }

    fn unsubscribe_one(&mut self, session: SessionKey, text: &str, removed: &mut Vec<Arc<str>>) -> ReasonCode {
        if TopicFilter::parse(text).is_err() {
            return ReasonCode::TopicFilterInvalid;
        }
        let mut turn = turn!(self);
        if !self.sessions[session as usize].session.unsubscribe(&mut turn, text) {
            return ReasonCode::NoSubscriptionExisted;
        }
        self.metrics().subscriptions.sub(1);
        let text: Arc<str> = text.into();
        self.leave_index(session, &text, removed);
        if text.starts_with("$share/") {
            // What was sent is for this client to acknowledge [MQTT-3.10.4-3]; it goes back only if the session ends first.
            self.give_back(session, Some(&text), true);
        }
        ReasonCode::Success
    }
}

impl PendingSubscribe {
    fn refuse(&mut self) {
        self.codes.iter_mut().for_each(|code| *code = (*code).max(ReasonCode::UnspecifiedError as u8));
        self.replays.clear();
    }

    fn is_refused(&self) -> bool {
        self.codes.iter().all(|code| *code >= ReasonCode::UnspecifiedError as u8)
    }
}

/// The filters that not every node routes yet, and for how many SUBSCRIBE packets: who subscribes to one of them meanwhile has to wait too.
#[derive(Debug, Default)]
pub struct Unsettled {
    filters: Mutex<HashMap<Arc<str>, u32>>,
    len: AtomicUsize,
}

impl Unsettled {
    pub fn contains(&self, filter: &str) -> bool {
        self.len.load(Ordering::Acquire) > 0 && self.filters.lock().contains_key(filter)
    }

    fn add(&self, texts: &[Arc<str>]) {
        let mut filters = self.filters.lock();
        for text in texts {
            *filters.entry(text.clone()).or_insert(0) += 1;
        }
        self.len.store(filters.len(), Ordering::Release);
    }

    fn remove(&self, texts: &[Arc<str>]) {
        let mut filters = self.filters.lock();
        for text in texts {
            if let Some(count) = filters.get_mut(text) {
                *count -= 1;
                if *count == 0 {
                    filters.remove(text);
                }
            }
        }
        self.len.store(filters.len(), Ordering::Release);
    }
}
