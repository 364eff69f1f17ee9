//! What a shard says only when it is kept: acknowledged means on disk.
//!
//! Everything a turn writes down goes to the storage at its end, as one *submission*; what depends on it waits in a queue until the storage says up to which
//! submission it is kept. What depends on other shards too is a *promise*: each of them owes an answer, called a leg.
//!
//! A message of QoS 2 from a session that is written down, and a Will, must not be kept in part: else its publisher's repetition would be taken
//! for known while a subscriber does not have it, or be routed to one who has. The shards that deliver such a message do not write
//! down what they did but send it back, and the shard that accepted it writes down everything in one submission (an *assembly*).
//!
//! A *section* is what one packet or event writes down: entries of a section go the same way. Invariants: the entries of an open section are
//! those of one packet or event alone; submissions are numbered without a gap; each leg is answered exactly once.
//!
//! Without a data directory, or at `durability = "memory"`, nothing waits and there are no legs.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_raft::{Command, LeaseChange};
use holdfast_storage::{Entry, ItemId, OwnerId, Storage, Value};
use slab::Slab;

use crate::journal;
use crate::mqtt::{Message, PacketId};
use crate::session::{Answer, Asked, Item, Journal, Position, Wire as _};
use crate::subscriptions::{SessionKey, ShardId};
use crate::topic::TopicFilter;

use super::mailbox::Event;
use super::subscribing::PendingSubscribe;
use super::{ConnectionKey, Shard, Turn, turn};

/// The number of a promise in the table of its shard.
pub type PromiseKey = u32;

/// A leg of a promise: what the shard that has it answers, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    /// The shard that waits.
    pub shard: ShardId,
    pub promise: PromiseKey,
    /// Whether what is written down goes back to that shard, to be kept together with the rest.
    pub parts: bool,
}

/// What a delivery owes to others, wherever the message goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owed {
    pub leg: Option<Leg>,
    /// The item of a session that gave the message back: deleted together with what its next owner writes down.
    pub from: Option<(OwnerId, ItemId)>,
}

/// What happens when something is kept.
pub(super) enum Due {
    /// An answer to a client's packet, in the order of the packets.
    Answer {
        connection: ConnectionKey,
        serial: u64,
        number: u64,
    },
    Admit {
        connection: ConnectionKey,
        serial: u64,
    },
    /// The socket of a client that has said DISCONNECT.
    Close {
        connection: ConnectionKey,
        serial: u64,
    },
    SubAck(Box<PendingSubscribe>),
    UnsubAck {
        connection: ConnectionKey,
        serial: u64,
        packet_id: PacketId,
        codes: Vec<u8>,
    },
    /// A session asked to be told.
    Tell {
        owner: OwnerId,
        asked: Asked,
    },
    /// Another shard waits for it, or this one.
    Reply(Leg),
    Nothing,
}

struct Promise {
    /// Legs and submissions that are awaited, and one while it is being made.
    waits: u32,
    then: Then,
}

/// What happens when nothing is awaited any more.
enum Then {
    Due(Due),
    /// The parts of a message are kept together.
    Keep(Box<Assembly>),
    /// Parts that this shard sent back are kept: its sessions are told.
    Tell(Vec<(OwnerId, Asked)>),
}

/// What the shards have sent back of one message.
struct Assembly {
    /// The QoS 2 packet that brought the message.
    packet: Option<(OwnerId, PacketId)>,
    entries: Vec<Entry>,
    asked: Vec<(OwnerId, Asked)>,
    replies: Vec<Leg>,
    /// What says that the Will has been published, if the message is one.
    will: Option<Command>,
    due: Due,
    /// The answers to the same packet, which has come again meanwhile.
    again: Vec<Due>,
}

impl Assembly {
    fn new() -> Assembly {
        Assembly {
            packet: None,
            entries: Vec::new(),
            asked: Vec::new(),
            replies: Vec::new(),
            will: None,
            due: Due::Nothing,
            again: Vec::new(),
        }
    }
}

/// Takes down what sessions write.
#[derive(Default)]
pub(super) struct Section {
    defers: bool,
    /// The entries go to an assembly, here or on another shard.
    apart: bool,
    entries: Vec<Entry>,
    asked: Vec<(OwnerId, Asked)>,
}

impl Journal for Section {
    fn put(&mut self, owner: OwnerId, position: Position, item: Item<'_>) {
        let body = match item {
            Item::Message { queued, .. } => queued.message().map(|message| message.clone() as Arc<_>),
            _ => None,
        };
        self.entries.push(Entry::Put { owner, item: position, value: journal::encode_item(item), body });
    }

    fn delete(&mut self, owner: OwnerId, position: Position) {
        self.entries.push(Entry::Delete { owner, item: position });
    }

    fn defers(&self) -> bool {
        self.defers
    }

    fn is_apart(&self) -> bool {
        self.apart
    }

    fn ask(&mut self, owner: OwnerId, asked: Asked) {
        self.asked.push((owner, asked));
    }
}

/// How the message that is being routed is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Route {
    /// Nobody waits for it.
    #[default]
    Unkept,
    /// Its publisher waits until everybody has it.
    Kept,
    /// And it is kept everywhere or nowhere.
    Whole,
}

/// See the module.
pub(super) struct Keeping {
    storage: Option<Storage>,
    pub section: Section,
    /// Closed sections of this turn.
    entries: Vec<Entry>,
    /// What waits for a submission, in their order.
    waiting: VecDeque<(u64, Waiting)>,
    /// Whether anybody but the memory waits for the next submission.
    urgent: bool,
    submitted: u64,
    promises: Slab<Promise>,
    /// Those of them that gather the parts of a message, in the order of the messages.
    assemblies: VecDeque<PromiseKey>,
    route: Route,
    /// The promise of the message that is being routed, once it has a leg.
    routing: Option<PromiseKey>,
    /// The message that is being routed waits for the disk although nothing is written down of it.
    waits_anyway: bool,
    /// Parts that were sent back and are not kept yet; sessions that ended meanwhile are dropped once more behind them.
    parts_away: u32,
    ended: Vec<OwnerId>,
    /// More is waiting for the disk than memory should hold: clients are not read from.
    pub behind: bool,
}

enum Waiting {
    Due(Due),
    Promise(PromiseKey),
}

impl Keeping {
    pub fn new(storage: Option<Storage>, defers: bool) -> Keeping {
        let section = Section { defers: defers && storage.is_some(), ..Section::default() };
        Keeping {
            storage,
            section,
            entries: Vec::new(),
            waiting: VecDeque::new(),
            urgent: false,
            submitted: 0,
            promises: Slab::new(),
            assemblies: VecDeque::new(),
            route: Route::Unkept,
            routing: None,
            waits_anyway: false,
            parts_away: 0,
            ended: Vec::new(),
            behind: false,
        }
    }

    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }

    /// Whether answers wait for the disk.
    pub fn defers(&self) -> bool {
        self.section.defers
    }

    /// Whether there is something to be handed over.
    pub fn has_to_submit(&self) -> bool {
        !self.entries.is_empty() || !self.section.entries.is_empty() || self.urgent
    }

    pub fn put(&mut self, owner: OwnerId, item: ItemId, value: Value, body: Option<Arc<Message>>) {
        if self.storage.is_some() {
            let body = body.map(|message| message as Arc<_>);
            self.section.entries.push(Entry::Put { owner, item, value, body });
        }
    }

    pub fn delete(&mut self, owner: OwnerId, item: ItemId) {
        if self.storage.is_some() {
            self.section.entries.push(Entry::Delete { owner, item });
        }
    }

    /// The owner's session has ended.
    pub fn drop_owner(&mut self, owner: OwnerId) {
        self.section.entries.push(Entry::Drop { owner });
        if self.parts_away > 0 {
            self.ended.push(owner);
        }
    }

    pub fn write_leases(&mut self, changes: Vec<LeaseChange>) {
        if self.storage.is_some() {
            self.section.entries.extend(lease_entries(changes));
        }
    }

    /// Ends a section whose entries go with the next submission.
    pub fn close_section(&mut self) {
        self.entries.append(&mut self.section.entries);
        let mut asked = std::mem::take(&mut self.section.asked);
        for (owner, asked) in asked.drain(..) {
            self.when_submitted(Waiting::Due(Due::Tell { owner, asked }), matches!(asked, Asked::Packet(_)));
        }
        self.section.asked = asked;
    }

    fn when_submitted(&mut self, waiting: Waiting, urgent: bool) {
        self.waiting.push_back((self.submitted + 1, waiting));
        self.urgent |= urgent;
    }

    /// `due` happens when everything until now is kept.
    pub fn when_kept(&mut self, due: Due) {
        self.close_section();
        self.when_submitted(Waiting::Due(due), true);
    }

    /// A message is about to be routed.
    pub fn begin_route(&mut self, route: Route) {
        self.close_section();
        self.waits_anyway = false;
        self.route = if self.defers() { route } else { Route::Unkept };
        self.section.apart = self.route == Route::Whole;
    }

    /// A message is about to be delivered that another shard accepted, or that was given back.
    pub fn begin_delivery(&mut self, leg: Option<Leg>) {
        self.section.apart = leg.is_some_and(|leg| leg.parts);
    }

    /// Sets aside a route that is under way while other messages are delivered.
    pub fn set_aside(&mut self) -> Aside {
        let section = Section { defers: self.section.defers, ..Section::default() };
        let section = std::mem::replace(&mut self.section, section);
        let waits_anyway = std::mem::take(&mut self.waits_anyway);
        Aside { section, route: std::mem::take(&mut self.route), routing: self.routing.take(), waits_anyway }
    }

    pub fn take_up(&mut self, aside: Aside) {
        self.close_section();
        self.section.apart = aside.section.apart;
        // The vectors that have grown are kept.
        if !aside.section.entries.is_empty() || !aside.section.asked.is_empty() {
            self.section = aside.section;
        }
        (self.route, self.routing, self.waits_anyway) = (aside.route, aside.routing, aside.waits_anyway);
    }

    /// The message that is being routed found nothing to change, because an earlier one has changed it. That may not be kept yet.
    pub fn wait_for_earlier(&mut self) {
        self.waits_anyway = true;
    }

    /// A leg of the message that is being routed, if anybody waits for it.
    pub fn open_leg(&mut self, own: ShardId) -> Option<Leg> {
        if self.route == Route::Unkept {
            return None;
        }
        let promise = self.routing.unwrap_or_else(|| self.open_promise());
        self.promises[promise as usize].waits += 1;
        Some(Leg { shard: own, promise, parts: self.route == Route::Whole })
    }

    fn open_promise(&mut self) -> PromiseKey {
        let whole = self.route == Route::Whole;
        let then = if whole { Then::Keep(Box::new(Assembly::new())) } else { Then::Due(Due::Nothing) };
        let promise = self.promises.insert(Promise { waits: 1, then }) as PromiseKey;
        if whole {
            self.assemblies.push_back(promise);
        }
        self.routing = Some(promise);
        promise
    }

    /// The message has been routed: `due` happens when it is kept. Returned when that is now.
    pub fn end_route(&mut self, due: Due, will: Option<Command>) -> Ended {
        let behind_others = self.route == Route::Whole && !self.assemblies.is_empty();
        if behind_others && self.routing.is_none() && (will.is_some() || !self.section.entries.is_empty()) {
            self.open_promise();
        }
        let route = std::mem::take(&mut self.route);
        self.section.apart = false;
        let waits_anyway = std::mem::take(&mut self.waits_anyway);
        let Some(key) = self.routing.take() else {
            let waits = route != Route::Unkept && (waits_anyway || !self.section.entries.is_empty());
            return match will {
                Some(will) => Ended::Will(will),
                None if waits => {
                    self.when_kept(due);
                    Ended::Waits
                }
                None => {
                    self.close_section();
                    Ended::Now
                }
            };
        };
        let promise = &mut self.promises[key as usize];
        if let Then::Keep(assembly) = &mut promise.then {
            assembly.entries.append(&mut self.section.entries);
            assembly.asked.append(&mut self.section.asked);
            assembly.will = will;
            assembly.due = due;
            return Ended::Promised(key);
        }
        promise.then = Then::Due(due);
        if waits_anyway || !self.section.entries.is_empty() {
            promise.waits += 1;
            self.close_section();
            self.when_submitted(Waiting::Promise(key), true);
        }
        Ended::Promised(key)
    }

    /// The packet that brought the message of a promise.
    pub fn name(&mut self, promise: PromiseKey, packet: Option<(OwnerId, PacketId)>) {
        if let Some(assembly) = self.assembly_mut(promise) {
            assembly.packet = packet;
        }
    }

    /// The answer to a packet that has come again waits for what the first one waits for.
    pub fn when_packet_kept(&mut self, packet: (OwnerId, PacketId), due: Due) {
        let promises = &self.promises;
        let is_its = |key: &PromiseKey| match promises.get(*key as usize) {
            Some(Promise { then: Then::Keep(assembly), .. }) => assembly.packet == Some(packet),
            _ => false,
        };
        let newest = self.assemblies.iter().rev().copied().find(is_its);
        match newest.and_then(|key| self.assembly_mut(key)) {
            // Its own answer may be for a connection that is gone, or for this one, which is owed both.
            Some(assembly) => assembly.again.push(due),
            None => self.when_kept(due),
        }
    }

    fn assembly_mut(&mut self, key: PromiseKey) -> Option<&mut Assembly> {
        match self.promises.get_mut(key as usize) {
            Some(Promise { then: Then::Keep(assembly), .. }) => Some(assembly),
            _ => None,
        }
    }

    /// Hands over what this turn has written down. True if the disk is too far behind to read on.
    pub fn submit(&mut self, source: ShardId) {
        self.close_section();
        if let Some(storage) = &self.storage
            && (!self.entries.is_empty() || self.urgent)
        {
            self.submitted += 1;
            let number = storage.submit(source.into(), &mut self.entries, std::mem::take(&mut self.urgent));
            debug_assert_eq!(number, self.submitted, "a shard is the only one that hands in as its source");
            self.behind =
                self.section.defers && storage.pending_bytes(source.into()) > crate::limits::UNWRITTEN_BYTES_HIGH;
        }
    }
}

/// A route that was set aside.
pub(super) struct Aside {
    section: Section,
    route: Route,
    routing: Option<PromiseKey>,
    waits_anyway: bool,
}

/// What [`Keeping::end_route`] leaves to do.
pub(super) enum Ended {
    Now,
    Waits,
    /// The promise is made but for the wait of its maker: see [`Shard::answered`].
    Promised(PromiseKey),
    /// Nobody else has to keep the message of this Will: the command belongs to the same section.
    Will(Command),
}

/// Changes of leases as entries.
pub fn lease_entries(changes: Vec<LeaseChange>) -> impl Iterator<Item = Entry> {
    changes.into_iter().flat_map(|LeaseChange { gone, image }| {
        let owner = journal::LEASES;
        let put =
            image.map(|image| Entry::Put { owner, item: image.item, value: journal::encode_lease(&image), body: None });
        put.into_iter().chain(gone.map(|item| Entry::Delete { owner, item }))
    })
}

impl Shard {
    /// What happened while a message of another shard, or one that was given back, was delivered goes where its leg says.
    pub(super) fn delivered(&mut self, owed: Owed) {
        self.keeping.begin_delivery(None);
        if let Some((owner, item)) = owed.from {
            self.keeping.delete(owner, item);
        }
        let Some(leg) = owed.leg else {
            self.keeping.close_section();
            return;
        };
        if leg.parts {
            self.send_parts(leg);
        } else if self.keeping.section.entries.is_empty() {
            self.keeping.close_section();
            self.reply(leg);
        } else {
            self.keeping.when_kept(Due::Reply(leg));
        }
    }

    fn send_parts(&mut self, leg: Leg) {
        let entries = std::mem::take(&mut self.keeping.section.entries);
        let asked = std::mem::take(&mut self.keeping.section.asked);
        if leg.shard == self.id {
            self.add_parts(leg.promise, entries, asked, None);
            return;
        }
        let reply = (!entries.is_empty()).then(|| self.promise_to_tell(asked));
        self.mail(leg.shard, Event::Parts { promise: leg.promise, entries, reply });
    }

    /// Sessions that asked are told when the shard that keeps their parts says so.
    fn promise_to_tell(&mut self, asked: Vec<(OwnerId, Asked)>) -> Leg {
        self.keeping.parts_away += 1;
        let promise = self.keeping.promises.insert(Promise { waits: 1, then: Then::Tell(asked) }) as PromiseKey;
        Leg { shard: self.id, promise, parts: true }
    }

    /// Parts of a message of this shard have come back.
    pub(super) fn add_parts(
        &mut self,
        promise: PromiseKey,
        entries: Vec<Entry>,
        asked: Vec<(OwnerId, Asked)>,
        reply: Option<Leg>,
    ) {
        if let Some(Promise { then: Then::Keep(assembly), .. }) = self.promise_mut(promise) {
            assembly.entries.extend(entries);
            assembly.asked.extend(asked);
            assembly.replies.extend(reply);
        }
        self.answered(promise);
    }

    fn promise_mut(&mut self, key: PromiseKey) -> Option<&mut Promise> {
        self.keeping.promises.get_mut(key as usize)
    }

    /// Tells the shard that waits for a leg.
    fn reply(&mut self, leg: Leg) {
        if leg.shard == self.id {
            self.answered(leg.promise);
        } else {
            self.mail(leg.shard, Event::Answered { promise: leg.promise });
        }
    }

    /// One of the things that a promise waits for has come.
    pub(super) fn answered(&mut self, key: PromiseKey) {
        let Some(promise) = self.promise_mut(key) else {
            debug_assert!(false, "a leg is answered once");
            return;
        };
        promise.waits -= 1;
        if promise.waits > 0 {
            return;
        }
        if matches!(promise.then, Then::Keep(_)) {
            self.seal_in_order();
            return;
        }
        match self.keeping.promises.remove(key as usize).then {
            Then::Due(due) => self.fall_due(due),
            Then::Tell(asked) => self.parts_are_kept(asked),
            Then::Keep(_) => {}
        }
    }

    /// Keeps the messages whose parts are all here, but none before an earlier one: after a crash its publisher would send that again, behind it.
    fn seal_in_order(&mut self) {
        while let Some(key) = self.keeping.assemblies.front().copied()
            && self.keeping.promises[key as usize].waits == 0
        {
            self.keeping.assemblies.pop_front();
            if let Then::Keep(assembly) = self.keeping.promises.remove(key as usize).then {
                self.seal(*assembly);
            }
        }
    }

    /// All parts of a message are here: they are kept together.
    fn seal(&mut self, assembly: Assembly) {
        let Assembly { entries, asked, replies, will, due, again, .. } = assembly;
        self.keeping.close_section();
        self.keeping.section.entries.extend(entries);
        self.keeping.section.asked.extend(asked);
        if let Some(will) = will {
            self.propose(will);
        }
        self.keeping.close_section();
        self.keeping.when_kept(due);
        again.into_iter().for_each(|due| self.keeping.when_kept(due));
        replies.into_iter().for_each(|leg| self.keeping.when_kept(Due::Reply(leg)));
    }

    /// What this shard sent back to another one is kept there.
    fn parts_are_kept(&mut self, asked: Vec<(OwnerId, Asked)>) {
        asked.into_iter().for_each(|(owner, asked)| self.tell(owner, asked));
        self.keeping.parts_away -= 1;
        if self.keeping.parts_away == 0 {
            // Items that came behind the end of their session.
            for owner in std::mem::take(&mut self.keeping.ended) {
                self.keeping.section.entries.push(Entry::Drop { owner });
            }
            self.keeping.close_section();
        }
    }

    /// Everything up to a submission is kept.
    pub(super) fn kept(&mut self, submission: u64) {
        while let Some((_, waiting)) = self.keeping.waiting.pop_front_if(|(at, _)| *at <= submission) {
            match waiting {
                Waiting::Due(due) => self.fall_due(due),
                Waiting::Promise(promise) => self.answered(promise),
            }
        }
        if self.keeping.behind {
            self.look_whether_behind();
        }
    }

    fn look_whether_behind(&mut self) {
        let pending = self.keeping.storage.as_ref().map_or(0, |storage| storage.pending_bytes(self.id.into()));
        if pending < crate::limits::UNWRITTEN_BYTES_HIGH / 2 {
            self.keeping.behind = false;
            self.read_on();
        }
    }

    pub(super) fn fall_due(&mut self, due: Due) {
        match due {
            Due::Answer { connection, serial, number } => self.release_answer(connection, serial, number),
            Due::Admit { connection, serial } => self.admitted(connection, serial),
            Due::Close { connection, serial } => self.close_kept(connection, serial),
            Due::SubAck(pending) => self.suback(*pending),
            Due::UnsubAck { connection, serial, packet_id, codes } => {
                self.unsuback(connection, serial, packet_id, &codes);
            }
            Due::Tell { owner, asked } => self.tell(owner, asked),
            Due::Reply(leg) => self.reply(leg),
            Due::Nothing => {}
        }
    }

    /// Tells a session what it asked for, if it is still there.
    fn tell(&mut self, owner: OwnerId, asked: Asked) {
        let Some(session) = self.by_owner.get(&owner).copied() else {
            return;
        };
        match asked {
            Asked::Packet(packet_id) => self.tell_packet(session, packet_id),
            Asked::Message(position) => self.tell_message(session, position),
        }
    }

    fn tell_message(&mut self, session: SessionKey, position: Position) {
        let window_bytes = self.shared.limits.queue_window_bytes;
        let slot = &mut self.sessions[session as usize];
        let connection = slot.connection;
        let in_front = slot.session.queue().is_in_front(position);
        let Some(queued) = slot.session.message_kept(window_bytes, position) else {
            return;
        };
        match connection {
            Some(key) if in_front => {
                if self.pump(key) {
                    self.mark_dirty(key);
                }
            }
            // Its member has gone meanwhile; when nobody else is there it stays.
            None => {
                if let Some(share) = &queued.share
                    && let Ok(TopicFilter { filter, .. }) = TopicFilter::parse(share)
                    && self.shared.index.is_share_connected(share, filter)
                {
                    self.give_back(session, None, true);
                }
            }
            _ => {}
        }
    }

    fn tell_packet(&mut self, session: SessionKey, packet_id: PacketId) {
        let mut turn = turn!(self);
        let slot = &mut self.sessions[session as usize];
        let Some(key) = slot.connection else {
            slot.session.kept::<super::outbox::Outbox, _>(&mut turn, packet_id, None);
            return;
        };
        let connection = &mut self.connections[key as usize];
        connection.outbox.prepare(&mut self.pool);
        if slot.session.kept(&mut turn, packet_id, Some(&mut connection.outbox)) {
            self.pump(key);
            self.mark_dirty(key);
        }
    }

    /// Answers a packet of a client: now, or when `due_number` falls due; never before the answer to an earlier packet.
    pub(super) fn answer(&mut self, key: ConnectionKey, answer: Answer, ready: bool) {
        let connection = &mut self.connections[key as usize];
        if ready && connection.answers.is_empty() {
            self.write_answer(key, answer);
        } else {
            connection.answers.push_back((answer, ready));
        }
    }

    /// What the next answer on a connection waits for.
    pub(super) fn answer_due(&self, key: ConnectionKey) -> Due {
        let connection = &self.connections[key as usize];
        let number = connection.answered + connection.answers.len() as u64;
        Due::Answer { connection: key, serial: connection.serial, number }
    }

    fn write_answer(&mut self, key: ConnectionKey, answer: Answer) {
        let connection = &mut self.connections[key as usize];
        let super::connection::State::Open { session } = connection.state else {
            return;
        };
        connection.outbox.prepare(&mut self.pool);
        self.sessions[session as usize].session.write_answer(answer, connection.outbox.buffer());
        self.mark_dirty(key);
    }

    fn release_answer(&mut self, key: ConnectionKey, serial: u64, number: u64) {
        let Some(connection) = self.connection(key).filter(|connection| connection.serial == serial) else {
            return;
        };
        let at = number - connection.answered;
        if let Some((_, ready)) = connection.answers.get_mut(at as usize) {
            *ready = true;
        }
        while let Some(connection) = self.connections.get_mut(key as usize)
            && let Some((answer, _)) = connection.answers.pop_front_if(|(_, ready)| *ready)
        {
            connection.answered += 1;
            self.write_answer(key, answer);
        }
        if let Some(connection) = self.connection(key)
            && connection.unanswered
            && connection.answers.len() < crate::limits::UNANSWERED_MAX / 2
        {
            connection.unanswered = false;
            self.wake(key);
        }
    }
}
