//! The way of a message: from its publisher to the retained store, to the sessions of this shard, to the other shards that have
//! subscribers, and to one member of each share group.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tracing::error;

use holdfast_raft::Command;

use crate::link::frame::Name;
use crate::metrics::DropReason;
use crate::mqtt::{Message, MessageId, ProtocolVersion, Publish, QoS};
use crate::retained::{self, Change};
use crate::session::{Delivery, Outgoing, Verdict, will};
use crate::subscriptions::{SessionKey, ShardId, Subscriber, Subscribers};

use super::keeping::{Due, Ended, Leg, Route};
use super::mailbox::{Event, Requested};
use super::{SessionSlot, Shard, Turn, turn};

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Routed {
    Matched,
    Unmatched,
    /// The store of retained messages is full, or there is no room on the disk, and the client can be told: refused as a whole.
    Full,
}

/// A session that several subscriptions of which match: one delivery with the highest QoS and all their identifiers
/// [MQTT-3.3.4-2], [MQTT-3.3.4-3].
#[derive(Debug)]
pub(super) struct Target {
    session: SessionKey,
    qos: QoS,
    retain_as_published: bool,
    subscription_ids: SmallVec<[u32; 4]>,
}

impl Shard {
    /// Routes a PUBLISH of a client of this shard.
    pub(super) fn route_publish(&mut self, session: SessionKey, topic: &str, publish: &Publish<'_>) -> Routed {
        let id = self.next_message_id();
        self.with_outgoing(session, id, (topic, publish), |shard, outgoing| {
            if shard.refuses(session, publish, outgoing) {
                return Routed::Full;
            }
            shard.route(outgoing, None)
        })
    }

    /// Calls `take` with what a client of this shard has published.
    pub(super) fn with_outgoing<T>(
        &mut self,
        session: SessionKey,
        id: MessageId,
        (topic, publish): (&str, &Publish<'_>),
        take: impl FnOnce(&mut Shard, &mut Outgoing<'_>) -> T,
    ) -> T {
        let publisher = self.sessions[session as usize].session.client_id().clone();
        let properties =
            if publish.properties.is_empty() { Default::default() } else { publish.properties.forwarded() };
        let expires_at = publish.properties.message_expiry_interval().map(|secs| self.now + u64::from(secs) * 1000);
        let of_qos = (publish.qos, publish.retain);
        let mut outgoing = Outgoing::new(id, topic, publish.payload, &properties, of_qos, expires_at, &publisher);
        take(self, &mut outgoing)
    }

    /// Whether there is no room for a PUBLISH, and its client can be told.
    pub(super) fn refuses(&mut self, session: SessionKey, publish: &Publish<'_>, outgoing: &Outgoing<'_>) -> bool {
        // Only MQTT 5.0 can be told that a message was not taken; for the others it is delivered, but not retained.
        let version = self.sessions[session as usize].session.connected().map(|connected| connected.version);
        let can_refuse = publish.qos != QoS::AtMostOnce && version == Some(ProtocolVersion::V5);
        if can_refuse && self.lacks_room(session, outgoing.topic, publish) {
            self.metrics().dropped(DropReason::StorageFull, 1);
            return true;
        }
        if can_refuse && publish.retain && !self.has_room_for(outgoing, &self.shared.retained.read()) {
            self.metrics().dropped(DropReason::RetainedFull, 1);
            return true;
        }
        false
    }

    /// Whether there is too little room on the disk to write down more messages.
    pub(super) fn storage_is_short(&self) -> bool {
        self.shared.storage_level.is_short()
    }

    /// Whether an heir of this node has too little room for copies of more messages.
    pub(super) fn heirs_are_short(&self) -> bool {
        self.shared.short_heirs.load(Ordering::Acquire) != 0
    }

    /// Whether nothing can be written down at all.
    pub(super) fn storage_is_failing(&self) -> bool {
        self.shared.storage_level.is_failing()
    }

    /// Whether a PUBLISH cannot be acknowledged before something is written down.
    fn needs_disk(&self, session: SessionKey, topic: &str, publish: &Publish<'_>) -> bool {
        publish.retain || self.needs_session(session, topic, publish)
    }

    /// Whether something is written down of a session.
    fn needs_session(&self, session: SessionKey, topic: &str, publish: &Publish<'_>) -> bool {
        let owned = self.sessions[session as usize].session.owner().is_some();
        (owned && publish.qos == QoS::ExactlyOnce) || self.shared.index.is_kept(topic)
    }

    /// Whether there is no room to keep what a PUBLISH brings, here, at the heirs, or on another node.
    fn lacks_room(&mut self, session: SessionKey, topic: &str, publish: &Publish<'_>) -> bool {
        (self.storage_is_short() && self.needs_disk(session, topic, publish))
            || (self.heirs_are_short() && self.needs_session(session, topic, publish))
            || self.is_short_elsewhere(topic)
    }

    /// Whether a PUBLISH has to wait: for sessions of a dead node that are on their way here and perhaps want it, or until there is room on the disk, as a client before
    /// MQTT 5.0 cannot be told that it was refused.
    pub(super) fn must_hold(&mut self, session: SessionKey, version: ProtocolVersion, publish: &Publish<'_>) -> bool {
        self.is_for_orphans_here(publish.topic)
            || (publish.qos != QoS::AtMostOnce && !version.is_v5() && self.lacks_room(session, publish.topic, publish))
    }

    pub(super) fn next_message_id(&mut self) -> MessageId {
        self.sequence += 1;
        MessageId { node: self.shared.node_tag, shard: self.id, sequence: self.sequence }
    }

    /// Routes a message that another node accepted, to the sessions of this one.
    pub(super) fn route_here(&mut self, outgoing: &mut Outgoing<'_>) {
        // A Will that was here before is retained.
        if outgoing.retain && !outgoing.known {
            self.retain_and_send(outgoing);
        } else {
            self.send_to_shards(outgoing);
        }
        if !self.repeats(outgoing) {
            self.deliver(outgoing);
        }
    }

    /// Whether a message that comes live has come before. To be asked once for each.
    fn repeats(&mut self, outgoing: &Outgoing<'_>) -> bool {
        if !outgoing.earlier.is_empty() {
            // Who has it already may not have it on disk yet.
            self.keeping.wait_for_earlier();
            self.moves.overtake(outgoing.earlier);
        }
        let repeats = self.moves.repeats(outgoing.id);
        if repeats && self.keeping.has_copies() && outgoing.qos != QoS::AtMostOnce {
            self.rely_on_sessions(outgoing.topic);
        }
        repeats || self.moves.was_overtaken(outgoing.id)
    }

    /// The sessions of this shard that want a message of this topic have it since before the start, as far as they have to.
    fn rely_on_sessions(&mut self, topic: &str) {
        let Shard { index, sessions, keeping, .. } = self;
        index.for_each_match(topic, |subscribers| {
            let sessions = subscribers.as_slice().iter().map(|subscriber| &sessions[subscriber.session as usize]);
            sessions.filter_map(|slot| slot.session.owner()).for_each(|owner| keeping.wait_for_cover(owner));
        });
    }

    /// Routes a message that this shard accepted. `name`: see [`crate::link::frame::Publish`].
    pub(super) fn route(&mut self, outgoing: &mut Outgoing<'_>, name: Option<Name<'_>>) -> Routed {
        let mut matched = if outgoing.retain { self.retain_and_send(outgoing) } else { self.send_to_shards(outgoing) };
        if !self.repeats(outgoing) {
            matched |= self.deliver(outgoing);
        }
        // What a node says of all nodes, each of them says.
        let is_of_all = outgoing.publisher.is_empty() && outgoing.topic.starts_with("$SYS/broker/");
        matched |= !is_of_all && self.send_to_peers(outgoing, name);
        matched |= self.send_to_shares(outgoing);
        if matched {
            return Routed::Matched;
        }
        if !outgoing.retain {
            self.metrics().dropped(DropReason::NoSubscribers, 1);
        }
        Routed::Unmatched
    }

    /// Stores or deletes the retained message of the topic [MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-7], then hands it to the other shards, all
    /// under the lock of the store: who reads the value there finds its live copy, and every older one, in his mailbox. The look-up in the
    /// index comes behind the change: who subscribes meanwhile gets the message from the store or live.
    fn retain_and_send(&mut self, outgoing: &mut Outgoing<'_>) -> bool {
        let shared = self.shared.clone();
        let mut retained = shared.retained.write();
        // One that another node accepted has its stamp.
        if outgoing.stamp == 0 && !retained::is_system(outgoing.topic) {
            outgoing.set_stamp(shared.hybrid.next(self.now));
        }
        self.retain(&mut retained, outgoing);
        let sent = self.send_to_shards(outgoing);
        (0..self.mail.len()).for_each(|shard| self.send_mail(shard as ShardId));
        // Every value that the store had before is in the mailbox now; the subscribers here get them in the order of the store.
        self.take_mail();
        drop(retained);
        let aside = self.keeping.set_aside();
        self.deliver_arrived();
        self.keeping.take_up(aside);
        sent
    }

    /// Stores or deletes the retained message of the topic. What has changed goes to disk, whatever the QoS: `$SYS` alone is of the moment. Nobody has to wait for
    /// what other shards have changed before: should that be lost in a crash, an older value is known by its version.
    fn retain(&mut self, retained: &mut retained::Map, outgoing: &Outgoing<'_>) -> Change {
        let is_system = retained::is_system(outgoing.topic);
        if outgoing.payload.is_empty() && !is_system && self.storage_is_short() && !retained.knows(outgoing.topic) {
            // There is no room to remember that nothing went.
            self.wait_for_newer();
            return Change::Nothing;
        }
        let changed = match self.why_not_retained(outgoing, retained) {
            None => retained.replace(self.now, outgoing.message().clone()),
            Some(reason) => {
                // No value is better than one that is older than what was published since.
                self.metrics().dropped(reason, 1);
                retained.refuse(self.now, outgoing.message())
            }
        };
        if changed.writes.is_empty() && !is_system {
            self.wait_for_newer();
        }
        self.keeping.write_retained(changed.writes);
        changed.change
    }

    /// The message has changed nothing, because something newer is there already, or the same; but whoever is told that it was accepted may rely on it, and what is there, of
    /// whatever shard, may not be kept yet.
    pub(super) fn wait_for_newer(&mut self) {
        self.keeping.wait_for_earlier();
        for shard in (0..self.mail.len() as ShardId).filter(|shard| *shard != self.id).collect::<SmallVec<[_; 8]>>() {
            if let Some(leg) = self.keeping.open_leg(self.id) {
                self.mail(shard, Event::KeepAll { leg });
            }
        }
    }

    /// Why a message is not retained whose publisher cannot be told. On a disk without room a value may take the place of another, but none is added.
    fn why_not_retained(&self, outgoing: &Outgoing<'_>, retained: &retained::Map) -> Option<DropReason> {
        let adds = !outgoing.payload.is_empty() && retained.get(self.now, outgoing.topic).is_none();
        if !self.has_room_for(outgoing, retained) {
            Some(DropReason::RetainedFull)
        } else if adds && self.storage_is_short() && !retained::is_system(outgoing.topic) {
            Some(DropReason::StorageFull)
        } else {
            None
        }
    }

    fn has_room_for(&self, outgoing: &Outgoing<'_>, retained: &retained::Map) -> bool {
        retained.has_room_for(outgoing.message(), self.shared.retained_max, self.shared.retained_bytes_max)
    }

    /// Hands the message to every other shard with a subscriber. True if there is one.
    fn send_to_shards(&mut self, outgoing: &Outgoing<'_>) -> bool {
        if self.mail.len() == 1 {
            return false;
        }
        let found = self.shared.index.shards(outgoing.topic);
        let mut shards = found.all & !(1 << self.id);
        let any = shards != 0;
        while shards != 0 {
            let shard = shards.trailing_zeros() as ShardId;
            shards &= shards - 1;
            let leg = if found.kept & (1 << shard) == 0 { None } else { self.keeping.open_leg(self.id) };
            let (message, earlier) = (outgoing.message().clone(), outgoing.earlier.into());
            let (resent, known) = (outgoing.resent, outgoing.known);
            self.mail(shard, Event::Publish { message, earlier, resent, known, leg });
        }
        any
    }

    /// Delivers a message that another shard accepted.
    pub(super) fn deliver_from_shard(&mut self, outgoing: &Outgoing<'_>, leg: Option<Leg>) {
        self.keeping.close_section();
        self.keeping.begin_leg(leg);
        self.note_seen(outgoing.id);
        if self.repeats(outgoing) {
            self.keeping.wait_for_earlier();
        } else {
            self.deliver(outgoing);
        }
        self.delivered(leg, None);
    }

    /// Delivers to every session of this shard that matches. True if there is one.
    fn deliver(&mut self, outgoing: &Outgoing<'_>) -> bool {
        // Moved out for the walk: deliveries change sessions and connections, never the index.
        let index = std::mem::take(&mut self.index);
        let mut matches: SmallVec<[&Subscribers; 4]> = SmallVec::new();
        index.for_each_match(outgoing.topic, |subscribers| matches.push(subscribers));
        match matches.as_slice() {
            [] => {}
            [subscribers] => {
                for subscriber in subscribers.as_slice() {
                    self.deliver_one(outgoing, subscriber);
                }
            }
            _ => self.deliver_overlapping(outgoing, &matches, |_| true),
        }
        let any = !matches.is_empty();
        drop(matches);
        self.index = index;
        any
    }

    /// Delivers to those sessions of this shard that match and that `wants` names.
    pub(super) fn deliver_to_some(&mut self, outgoing: &Outgoing<'_>, wants: impl Fn(&SessionSlot) -> bool) {
        let index = std::mem::take(&mut self.index);
        let mut matches: SmallVec<[&Subscribers; 4]> = SmallVec::new();
        index.for_each_match(outgoing.topic, |subscribers| matches.push(subscribers));
        self.deliver_overlapping(outgoing, &matches, wants);
        drop(matches);
        self.index = index;
    }

    fn deliver_one(&mut self, outgoing: &Outgoing<'_>, subscriber: &Subscriber) {
        if self.is_own(outgoing, subscriber) {
            return;
        }
        let ids: &[u32] =
            if subscriber.subscription_id > 0 { std::slice::from_ref(&subscriber.subscription_id) } else { &[] };
        let retain = subscriber.options.retain_as_published && outgoing.retain;
        self.deliver_to(
            subscriber.session,
            outgoing,
            Delivery { qos: subscriber.options.qos, retain, subscription_ids: ids, share: None },
        );
    }

    /// No Local: a client does not get its own message back [MQTT-3.8.3-3].
    fn is_own(&self, outgoing: &Outgoing<'_>, subscriber: &Subscriber) -> bool {
        subscriber.options.no_local
            && self.sessions[subscriber.session as usize].session.client_id() == outgoing.publisher
    }

    /// Several filters match: sessions that are in more than one list get one copy.
    fn deliver_overlapping(
        &mut self,
        outgoing: &Outgoing<'_>,
        matches: &[&Subscribers],
        wants: impl Fn(&SessionSlot) -> bool,
    ) {
        let mut targets = std::mem::take(&mut self.targets);
        self.target_serial += 1;
        for subscriber in matches.iter().flat_map(|subscribers| subscribers.as_slice()) {
            if wants(&self.sessions[subscriber.session as usize]) && !self.is_own(outgoing, subscriber) {
                self.add_target(&mut targets, subscriber);
            }
        }
        for target in &targets {
            let delivery = Delivery {
                qos: target.qos,
                retain: target.retain_as_published && outgoing.retain,
                subscription_ids: &target.subscription_ids,
                share: None,
            };
            self.deliver_to(target.session, outgoing, delivery);
        }
        targets.clear();
        self.targets = targets;
    }

    fn add_target(&mut self, targets: &mut Vec<Target>, subscriber: &Subscriber) {
        let slot = &mut self.sessions[subscriber.session as usize];
        if slot.target.0 != self.target_serial {
            slot.target = (self.target_serial, targets.len() as u32);
            targets.push(Target {
                session: subscriber.session,
                qos: QoS::AtMostOnce,
                retain_as_published: false,
                subscription_ids: SmallVec::new(),
            });
        }
        let target = &mut targets[slot.target.1 as usize];
        target.qos = target.qos.max(subscriber.options.qos);
        target.retain_as_published |= subscriber.options.retain_as_published;
        if subscriber.subscription_id > 0 {
            target.subscription_ids.push(subscriber.subscription_id);
        }
    }

    /// Gives one session the message, and notes its connection for the flush.
    pub(super) fn deliver_to(&mut self, session: SessionKey, outgoing: &Outgoing<'_>, delivery: Delivery<'_>) {
        let mut turn = turn!(self);
        let slot = &mut self.sessions[session as usize];
        let wants = slot.session.wants_will(outgoing, delivery);
        let has_got = slot.session.has_got_any(outgoing.earlier, &self.moves.seen);
        let is_late = outgoing.resent && slot.begun_here;
        if delivery.share.is_none() && (slot.session.repeats(outgoing.id) || has_got || is_late || !wants) {
            if !wants {
                self.keeping.wait_for_earlier();
            }
            if let Some(owner) = slot.session.owner().filter(|_| outgoing.qos != QoS::AtMostOnce) {
                self.keeping.wait_for_cover(owner);
            }
            return;
        }
        let Some(key) = slot.connection else {
            slot.session.deliver::<super::outbox::Outbox, _>(&mut turn, outgoing, delivery, None);
            return;
        };
        let connection = &mut self.connections[key as usize];
        connection.outbox.prepare(&mut self.pool);
        let verdict = slot.session.deliver(&mut turn, outgoing, delivery, Some(&mut connection.outbox));
        if verdict == Verdict::Overflow {
            self.overflowed.push(key);
        }
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(key);
            self.wake_flusher();
        }
    }

    /// Accepts a message of the node itself.
    pub(super) fn accept(&mut self, mut message: Message) {
        message.id = self.next_message_id();
        self.keeping.begin_route(Route::Unkept, None);
        self.route(&mut Outgoing::from_message(&Arc::new(message)), None);
        self.keeping.close_section();
    }

    /// Accepts a message that somebody outside has asked for, who hears of it as the publisher of a QoS 1 packet does.
    pub(super) fn publish_requested(&mut self, requested: Requested) {
        let Requested { mut message, routed, kept } = requested;
        message.id = self.next_message_id();
        let message = Arc::new(message);
        let mut outgoing = Outgoing::from_message(&message);
        if self.refuses_requested(&outgoing) {
            routed.store(Requested::REFUSED, Ordering::Release);
            return kept.arrive();
        }
        self.keeping.begin_route(Route::Kept, None);
        self.peers.begin_route();
        let matched = self.route(&mut outgoing, None) == Routed::Matched;
        routed.store(if matched { Requested::MATCHED } else { Requested::UNMATCHED }, Ordering::Release);
        match self.keeping.end_route(Due::Turned(kept.clone()), None) {
            Ended::Now => kept.arrive(),
            Ended::Promised(promise) => self.answered(promise),
            Ended::Waits | Ended::Will(_) => {}
        }
    }

    fn refuses_requested(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let writes = outgoing.retain || self.shared.index.is_kept(outgoing.topic);
        let lacks = writes && (self.storage_is_short() || self.heirs_are_short());
        if lacks || self.is_short_elsewhere(outgoing.topic) {
            self.metrics().dropped(DropReason::StorageFull, 1);
            return true;
        }
        if outgoing.retain && !self.has_room_for(outgoing, &self.shared.retained.read()) {
            self.metrics().dropped(DropReason::RetainedFull, 1);
            return true;
        }
        false
    }

    /// A Will is due: it is published like any message of its client, and the control state hears that it is done. Both are kept together, so that it is
    /// published once.
    pub(super) fn publish_will(&mut self, client: Arc<str>, epoch: u64, encoded: &[u8]) {
        let id = self.next_message_id();
        self.keeping.begin_route(Route::Whole, None);
        match will::decode(encoded, (&client, epoch), id, self.now) {
            // Who left it has lost the right since: it is done all the same.
            Some(message) if !self.may_publish_will(&message, will::author(encoded)) => {
                self.moves.will_is_due(&client, epoch);
            }
            Some(mut message) => {
                self.metrics().wills_published.add(1);
                self.moves.will_is_due(&client, epoch);
                let name = Some(Name::Will { client: &client, epoch });
                if !self.shared.clustered {
                    // It is kept as a whole: nobody has to know whether he has had it.
                    message.will = 0;
                }
                let message = Arc::new(message);
                let mut outgoing = Outgoing::from_message(&message);
                if self.shared.wills_seen.note(&client, epoch) {
                    self.route(&mut outgoing, name);
                } else {
                    // Who should have published it has died in the middle: here it came, others may not have it, nor sessions that were elsewhere.
                    outgoing.known = true;
                    self.wait_for_newer();
                    if message.retain {
                        outgoing.set_stamp(self.shared.hybrid.next(self.now));
                    }
                    self.route_here(&mut outgoing);
                    self.send_to_peers(&outgoing, name);
                }
            }
            None => error!(
                event = "will",
                client_id = &*client,
                "the Will in the control state does not decode; it is not published"
            ),
        }
        match self.keeping.end_route(Due::Nothing, Some(Command::WillDone { client, epoch })) {
            Ended::Will(done) => {
                self.propose(done);
                self.keeping.close_section();
            }
            Ended::Promised(promise) => self.answered(promise),
            Ended::Now | Ended::Waits => {}
        }
    }
}
