//! What a shard says only when it is kept, or stable: acknowledged means on disk, and where sessions have copies, on the disk of the heir too.
//!
//! Everything a turn writes down goes to the storage at its end, as one *submission*; what depends on it waits in a queue until the storage says up to which
//! submission it is kept. What one packet or event writes down is a *section* (`section.rs`); what depends on other shards too is a *promise* (`promises.rs`).
//! Which answer of a connection waits is in `answers.rs`, beside this file; what goes to heirs, in `copying.rs`.
//!
//! | waits until it is | what |
//! | --- | --- |
//! | stable | answers to clients' packets, SUBACK, UNSUBACK, what sessions asked for, that a message of a share group or a session of another node need not be kept there any more |
//! | kept | CONNACK, the end of a connection, what is said to other nodes as accepted |
//!
//! Without copies what is kept is stable.
//!
//! Owner: the shard, in [`Keeping`]. Invariants: submissions are numbered without a gap; what waits is in the order of the submissions; nothing falls due before its
//! submission is kept.
//!
//! Without a data directory nothing waits and there are no legs. At `durability = "memory"` what is handed over counts as kept: where sessions have copies, what waits
//! until it is stable waits for the heirs alone; else nothing waits.
//!
//! Test to read first: `cluster-tests/tests/durability/kill_rounds.rs`.

mod marks;
mod promises;
mod section;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use holdfast_raft::{Command, LeaseChange};
use holdfast_storage::{Entry, ItemId, OwnerId, Storage, Value};

use crate::cluster::copies::inheriting::Life;
use crate::cluster::copies::receiving::Write as CopyWrite;
use crate::journal;
use crate::limits;
use crate::mqtt::{Message, MessageId, PacketId};
use crate::retained;
use crate::session::{Asked, Position, Queued};
use crate::subscriptions::{SessionKey, ShardId};

use super::copying::Copying;
use super::from_peers::{Half, StreamKey};
use super::mailbox::Turned;
use super::moving::WaitsFor;
use super::sharing::ShareAnswer;
use super::subscribing::PendingSubscribe;
use super::wills::WillsHad;
use super::{ConnectionKey, Shard, Turn, turn};

use marks::Marks;
use promises::Promises;
use section::Section;

pub(super) use promises::{Ended, Route};
pub use promises::{Leg, PromiseKey};

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
    /// Another shard waits for it, or this one: until it is `stable`, or until it is kept.
    Reply {
        shard: ShardId,
        promise: PromiseKey,
        stable: bool,
    },
    /// Another node waits for what was read from it as `number`.
    Accepted {
        stream: StreamKey,
        number: u64,
    },
    /// The same, until it is stable.
    Stable {
        stream: StreamKey,
        number: u64,
    },
    /// The message of a packet that has been accepted under that name is routed.
    RouteNamed(MessageId),
    /// And it is where it belongs.
    NamedRouted(MessageId),
    /// An item that a session gave back is with its next owner: the copy of the session has it no more.
    GoneFromCopy {
        owner: OwnerId,
        item: ItemId,
    },
    /// What is to be proposed then.
    Propose(Command),
    /// A message of a share group that another node keeps until then.
    Settled(MessageId),
    /// What this node has of the sessions of a dead one: they may be entered.
    TakeCopies(Life),
    /// The same of the copies that a shard searches.
    GiveCopies {
        by: ShardId,
        search: u64,
        clients: Arc<HashSet<Arc<str>>>,
    },
    /// All that this shard has inherited from one.
    Inherited(Life),
    /// All of a session that comes from another node.
    Adopted {
        client: Arc<str>,
        epoch: u64,
    },
    /// Somebody waits for all shards.
    Turned(Arc<Turned>),
    Nothing,
}

impl Due {
    /// The connection, with its serial, that waits for the answer to a packet.
    pub fn connection(&self) -> Option<(ConnectionKey, u64)> {
        match *self {
            Due::Answer { connection, serial, .. } => Some((connection, serial)),
            _ => None,
        }
    }

    /// Whether heirs have to have it too.
    fn is_when_stable(&self) -> bool {
        match self {
            Due::Reply { stable, .. } => *stable,
            Due::Admit { .. } | Due::Close { .. } | Due::Accepted { .. } | Due::Nothing => false,
            Due::TakeCopies(_) | Due::GiveCopies { .. } | Due::Inherited(_) => false,
            Due::Answer { .. } | Due::SubAck(_) | Due::UnsubAck { .. } | Due::Tell { .. } | Due::Stable { .. } => true,
            Due::RouteNamed(_) | Due::NamedRouted(_) | Due::GoneFromCopy { .. } | Due::Turned(_) => true,
            Due::Propose(_) | Due::Settled(_) | Due::Adopted { .. } => true,
        }
    }
}

/// What a shard has written down and what waits for it.
pub(super) struct Keeping {
    storage: Option<Storage>,
    /// Whether there may be other nodes to wait for.
    clustered: bool,
    pub section: Section,
    /// `None` where no other node sends anything.
    marks: Option<Marks>,
    /// Closed sections of this turn.
    entries: Vec<Entry>,
    /// What waits until a submission is kept, in their order; and until it is stable, if sessions have copies.
    waiting: VecDeque<(u64, Waiting)>,
    when_stable: VecDeque<(u64, Waiting)>,
    /// The Wills that sessions remember.
    pub wills: WillsHad,
    /// The copies of this shard's sessions, if they have any.
    pub copying: Option<Box<Copying>>,
    /// What is handed over counts as kept: `durability = "memory"`, where answers wait for the heirs alone.
    at_once: bool,
    /// Whether anybody but the memory waits for the next submission.
    urgent: bool,
    submitted: u64,
    promises: Promises,
    /// More is waiting for the disk than memory should hold: clients are not read from.
    pub behind: bool,
}

enum Waiting {
    Due(Due),
    Promise { promise: PromiseKey, stable: bool },
}

impl Waiting {
    fn is_when_stable(&self) -> bool {
        match self {
            Waiting::Due(due) => due.is_when_stable(),
            Waiting::Promise { stable, .. } => *stable,
        }
    }
}

impl Keeping {
    /// `copies`: sessions have copies on other nodes.
    pub fn new(storage: Option<Storage>, defers: bool, clustered: bool, copies: bool) -> Keeping {
        let copies = copies && clustered && storage.is_some();
        let section = Section { defers: copies || (defers && storage.is_some()), ..Section::default() };
        Keeping {
            copying: copies.then(Box::default),
            at_once: copies && !defers,
            when_stable: VecDeque::new(),
            storage,
            clustered,
            section,
            wills: WillsHad::default(),
            marks: None,
            entries: Vec::new(),
            waiting: VecDeque::new(),
            urgent: false,
            submitted: 0,
            promises: Promises::default(),
            behind: false,
        }
    }

    /// From now on it is written down how far the messages of other nodes are. `restored`: what the start has found of that.
    pub fn keep_marks(&mut self, own_node: u64, own: (ShardId, u16), restored: &[(ItemId, MessageId)]) {
        if self.clustered && self.storage.is_some() {
            self.marks = Some(Marks::new(own_node, own, restored));
        }
    }

    /// A message is about to come live to the sessions of the shard.
    pub fn comes(&mut self, id: MessageId) {
        self.section.coming.note(id);
    }

    /// What is about to be written down has come with all these.
    pub fn come_with(&mut self, ids: impl Iterator<Item = MessageId>) {
        self.section.coming.note_all(ids);
    }

    /// `None`: the node has no data directory.
    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }

    /// Whether answers wait for the disk.
    pub fn defers(&self) -> bool {
        self.section.defers
    }

    /// Whether sessions have copies on other nodes.
    pub fn has_copies(&self) -> bool {
        self.copying.is_some()
    }

    /// How much waits for the disk, or for heirs.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len() + self.when_stable.len()
    }

    /// Whether there is something to be handed over.
    pub fn has_to_submit(&self) -> bool {
        !self.entries.is_empty() || !self.section.entries.is_empty() || self.urgent
    }

    /// Writes down an item that is not of a session's own making: a header, or a retained message.
    pub fn put(&mut self, owner: OwnerId, item: ItemId, value: Value, body: Option<Arc<Message>>) {
        if self.storage.is_some() {
            let body = body.map(|message| message as Arc<_>);
            self.section.entries.push(Entry::Put { owner, item, value, body });
        }
    }

    /// Writes down that a session begins here. `began`: the epoch of its first connection.
    pub fn begin_owner(&mut self, owner: OwnerId, client_id: &Arc<str>, began: u64) {
        self.put(owner, journal::HEADER, journal::encode_header(client_id, began), None);
        if let Some(copying) = &mut self.copying {
            copying.add(owner, client_id, began, true);
        }
    }

    /// A session that is written down already is one of this shard from now on, and has no copy.
    pub fn add_owner(&mut self, owner: OwnerId, client_id: &Arc<str>, began: u64) {
        if let Some(copying) = &mut self.copying {
            copying.add(owner, client_id, began, false);
        }
    }

    pub fn delete(&mut self, owner: OwnerId, item: ItemId) {
        if self.storage.is_some() {
            self.section.entries.push(Entry::Delete { owner, item });
        }
    }

    /// Writes down what this node has of the sessions of others.
    pub fn write_copies(&mut self, writes: impl IntoIterator<Item = CopyWrite>) {
        if self.storage.is_some() {
            self.section.entries.extend(writes.into_iter().map(journal::copied_entry));
        }
    }

    /// Deletes an item that a session, perhaps of another shard, has given back, with what its next owner writes down. Its copy goes when the heirs have that.
    pub fn delete_given(&mut self, owner: OwnerId, item: ItemId) {
        if let Some(copying) = &mut self.copying {
            copying.hold(owner, item);
            self.when_submitted(Waiting::Due(Due::GoneFromCopy { owner, item }), true);
        }
        self.delete(owner, item);
    }

    /// Messages are out of a session until they are deleted.
    pub fn give_away(&mut self, owner: OwnerId, given: &[Queued]) {
        if let Some(copying) = &mut self.copying {
            copying.give_away(owner, given);
        }
    }

    /// Deletes an item from the copy of a session, if that is of this shard.
    pub fn delete_from_copy(&mut self, owner: OwnerId, item: ItemId) -> bool {
        let Some(copying) = self.copying.as_mut().filter(|copying| copying.owns(owner)) else { return false };
        copying.write_entry(&Entry::Delete { owner, item });
        self.urgent = true;
        true
    }

    /// The owner's session has ended.
    pub fn drop_owner(&mut self, owner: OwnerId) {
        self.section.entries.push(Entry::Drop { owner });
        self.promises.session_ended(owner);
    }

    /// Writes down what a command has changed in the leases.
    pub fn write_leases(&mut self, changes: Vec<LeaseChange>) {
        if self.storage.is_some() {
            self.section.entries.extend(journal::lease_entries(changes));
        }
    }

    /// Writes down what has changed in the retained messages.
    pub fn write_retained(&mut self, writes: retained::Writes) {
        if self.storage.is_some() {
            self.section.entries.extend(writes.into_iter().map(journal::retained_entry));
        }
    }

    /// Ends a section whose entries go with the next submission.
    pub fn close_section(&mut self) {
        self.section.parts = false;
        self.section.wills.drain(..).for_each(|(owner, will)| self.wills.note(owner, will));
        let coming = std::mem::take(&mut self.section.coming);
        if !self.section.entries.is_empty() {
            self.has_written();
            if let Some(marks) = &mut self.marks {
                coming.iter().for_each(|id| marks.note(id));
            }
        }
        if let Some(copying) = &mut self.copying {
            copying.write(&self.section.entries);
        }
        self.entries.append(&mut self.section.entries);
        let mut asked = std::mem::take(&mut self.section.asked);
        for (owner, asked) in asked.drain(..) {
            self.when_submitted(Waiting::Due(Due::Tell { owner, asked }), matches!(asked, Asked::Packet(_)));
        }
        self.section.asked = asked;
    }

    fn when_submitted(&mut self, waiting: Waiting, urgent: bool) {
        let is_when_stable = self.has_copies() && waiting.is_when_stable();
        let queue = if is_when_stable { &mut self.when_stable } else { &mut self.waiting };
        queue.push_back((self.submitted + 1, waiting));
        self.urgent |= urgent;
    }

    /// `due` happens when everything until now is kept, or stable, as it needs.
    pub fn when_kept(&mut self, due: Due) {
        self.close_section();
        self.when_submitted(Waiting::Due(due), true);
    }

    /// Whoever waits for the leg is told when everything until now is kept, and stable.
    pub fn reply_when_kept(&mut self, leg: Leg) {
        let shard = leg.shard;
        if let Some(promise) = leg.kept {
            self.when_kept(Due::Reply { shard, promise, stable: false });
        }
        if let Some(promise) = leg.stable {
            self.when_kept(Due::Reply { shard, promise, stable: true });
        }
    }

    /// No Will that still waits counts as published.
    fn forget_wills_that_wait(&mut self) {
        let queues = self.waiting.iter_mut().chain(&mut self.when_stable);
        for (_, waiting) in queues {
            if let Waiting::Due(due @ Due::Propose(_)) = waiting {
                *due = Due::Nothing;
            }
        }
    }

    /// Up to which submission everything is stable.
    fn stable(&self) -> u64 {
        self.copying.as_ref().map_or(0, |copying| copying.stable())
    }

    /// Messages that other nodes kept for sessions here which are done with them.
    pub fn take_settled(&mut self) -> Vec<MessageId> {
        std::mem::take(&mut self.section.settled)
    }

    /// Hands over what this turn has written down. Returns the number of the submission, if there is one.
    pub fn submit(&mut self, source: ShardId) -> Option<u64> {
        self.close_section();
        if let Some(marks) = &mut self.marks {
            marks.write(&mut self.entries);
        }
        if let Some(storage) = &self.storage
            && (!self.entries.is_empty() || self.urgent)
        {
            self.submitted += 1;
            let number = storage.submit(source.into(), &mut self.entries, std::mem::take(&mut self.urgent));
            debug_assert_eq!(number, self.submitted, "a shard is the only one that hands in as its source");
            // It ends in `look_whether_behind` alone, which also wakes those that were not read from meanwhile.
            self.behind |= storage.pending_bytes(source.into()) > limits::UNWRITTEN_BYTES_HIGH;
            return Some(number);
        }
        None
    }

    /// Whether what was handed over counts as kept.
    pub fn is_kept_at_once(&self) -> bool {
        self.at_once
    }
}

impl Shard {
    /// Everything up to a submission is kept.
    pub(super) fn kept(&mut self, submission: u64) {
        while let Some((_, waiting)) = self.keeping.waiting.pop_front_if(|(at, _)| *at <= submission) {
            self.waited_for(waiting);
        }
        self.copies_kept(submission);
        if self.keeping.behind {
            self.look_whether_behind();
        }
    }

    fn waited_for(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::Due(due) => self.fall_due(due),
            Waiting::Promise { promise, .. } => self.answered(promise),
        }
    }

    /// More may be stable than before.
    pub(super) fn settle_stable(&mut self) {
        let stable = self.keeping.stable();
        while let Some((_, waiting)) = self.keeping.when_stable.pop_front_if(|(at, _)| *at <= stable) {
            self.waited_for(waiting);
        }
        self.keeping.take_covered().into_iter().for_each(|promise| self.answered(promise));
        if self.keeping.behind {
            self.look_whether_behind();
        }
    }

    pub(super) fn look_whether_behind(&mut self) {
        let pending = self.keeping.storage.as_ref().map_or(0, |storage| storage.pending_bytes(self.id.into()));
        let unstable = self.keeping.copying.as_ref().map_or(0, |copying| copying.unstable_bytes());
        let written = pending.max(self.named.bytes()) < limits::UNWRITTEN_BYTES_HIGH / 2;
        if written && unstable < limits::UNSTABLE_BYTES_HIGH / 2 {
            self.keeping.behind = false;
            self.read_on();
        }
    }

    pub(super) fn fall_due(&mut self, due: Due) {
        match due {
            Due::Answer { connection, serial, number } => self.release_answer(connection, serial, number),
            Due::Admit { connection, serial } => self.admitted(connection, serial),
            Due::Close { connection, serial } => self.close_kept(connection, serial),
            Due::SubAck(pending) => {
                self.ack_is_due(pending.connection, pending.serial);
                self.suback(*pending);
            }
            Due::UnsubAck { connection, serial, packet_id, codes } => {
                self.ack_is_due(connection, serial);
                self.unsuback(connection, serial, packet_id, &codes);
            }
            Due::Tell { owner, asked } => self.tell(owner, asked),
            Due::Reply { shard, promise, .. } => self.reply_to(shard, promise),
            Due::Accepted { stream, number } => self.accept_read(stream, number, Half::Kept),
            Due::Stable { stream, number } => self.accept_read(stream, number, Half::Stable),
            Due::RouteNamed(id) => self.route_named(id),
            Due::NamedRouted(id) => self.named_routed(id),
            Due::GoneFromCopy { owner, item } => self.delete_from_copy(owner, item),
            Due::Propose(command) => drop(self.propose(command)),
            Due::Settled(id) => self.answer_origin(id, ShareAnswer::Settled),
            Due::TakeCopies(life) => self.take_copies(life),
            Due::GiveCopies { by, search, clients } => self.give_copies(by, search, &clients),
            Due::Inherited(life) => self.has_inherited(life),
            Due::Adopted { client, epoch } => self.adopted(&client, epoch),
            Due::Turned(turned) => turned.arrive(),
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
        self.go_on_giving(session, WaitsFor::Kept);
    }

    fn tell_message(&mut self, session: SessionKey, position: Position) {
        let window_bytes = self.shared.limits.queue_window_bytes;
        let slot = &mut self.sessions[session as usize];
        let connection = slot.connection;
        let Some(queued) = slot.session.message_kept(window_bytes, position) else {
            return;
        };
        match connection {
            Some(key) => {
                if self.pump(key) {
                    self.mark_dirty(key);
                }
            }
            // Its member has gone meanwhile; when nobody else is there it stays.
            None => {
                let share = queued.share.clone();
                if let Some(share) = share {
                    self.give_back_detached(session, &share);
                }
            }
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
}
