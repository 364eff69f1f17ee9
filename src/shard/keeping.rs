//! What a shard says only when it is kept: acknowledged means on disk.
//!
//! Everything a turn writes down goes to the storage at its end, as one *submission*; what depends on it waits in a queue until the storage says up to which
//! submission it is kept. What one packet or event writes down is a *section* (`section.rs`); what depends on other shards too is a *promise* (`promises.rs`).
//! Which answer of a connection waits is in `answers.rs`, beside this file.
//!
//! Owner: the shard, in [`Keeping`]. Invariants: submissions are numbered without a gap; what waits is in the order of the submissions; nothing falls due before its
//! submission is kept.
//!
//! Without a data directory, or at `durability = "memory"`, nothing waits and there are no legs.
//!
//! Test to read first: `cluster-tests/tests/durability/kill_rounds.rs`.

mod marks;
mod promises;
mod section;

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_raft::{Command, LeaseChange};
use holdfast_storage::{Entry, ItemId, OwnerId, Storage, Value};

use crate::cluster::copies::inheriting::Life;
use crate::cluster::copies::receiving::Write as CopyWrite;
use crate::journal;
use crate::limits;
use crate::mqtt::{Message, MessageId, PacketId};
use crate::retained;
use crate::session::{Asked, Position};
use crate::subscriptions::{SessionKey, ShardId};

use super::from_peers::StreamKey;
use super::sharing::ShareAnswer;
use super::subscribing::PendingSubscribe;
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
    /// Another shard waits for it, or this one.
    Reply(Leg),
    /// Another node waits for what was read from it as `number`.
    Accepted {
        stream: StreamKey,
        number: u64,
    },
    /// What is to be proposed then.
    Propose(Command),
    /// A message of a share group that another node keeps until then.
    Settled(MessageId),
    /// What this node has of the sessions of a dead one: they may be entered.
    TakeCopies(Life),
    /// All that this shard has inherited from one.
    Inherited(Life),
    /// All of a session that comes from another node.
    Adopted {
        client: Arc<str>,
        epoch: u64,
    },
    Nothing,
}

impl Due {
    /// The connection, with its serial, that waits for the answer to a packet.
    fn connection(&self) -> Option<(ConnectionKey, u64)> {
        match *self {
            Due::Answer { connection, serial, .. } => Some((connection, serial)),
            _ => None,
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
    /// What waits for a submission, in their order.
    waiting: VecDeque<(u64, Waiting)>,
    /// Whether anybody but the memory waits for the next submission.
    urgent: bool,
    submitted: u64,
    promises: Promises,
    /// More is waiting for the disk than memory should hold: clients are not read from.
    pub behind: bool,
}

enum Waiting {
    Due(Due),
    Promise(PromiseKey),
}

impl Keeping {
    pub fn new(storage: Option<Storage>, defers: bool, clustered: bool) -> Keeping {
        let section = Section { defers: defers && storage.is_some(), ..Section::default() };
        Keeping {
            storage,
            clustered,
            section,
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
        self.section.coming = Some(id);
    }

    /// `None`: the node has no data directory.
    pub fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }

    /// Whether answers wait for the disk.
    pub fn defers(&self) -> bool {
        self.section.defers
    }

    /// How much waits for the disk.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
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
        if let Some(id) = self.section.coming.take()
            && let Some(marks) = &mut self.marks
            && !self.section.entries.is_empty()
        {
            marks.note(id);
        }
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

    /// Messages that other nodes kept for sessions here which are done with them.
    pub fn take_settled(&mut self) -> Vec<MessageId> {
        std::mem::take(&mut self.section.settled)
    }

    /// Hands over what this turn has written down. True if the disk is too far behind to read on.
    pub fn submit(&mut self, source: ShardId) {
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
        }
    }
}

impl Shard {
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
        if pending < limits::UNWRITTEN_BYTES_HIGH / 2 {
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
            Due::Reply(leg) => self.reply(leg),
            Due::Accepted { stream, number } => self.accept_read(stream, number),
            Due::Propose(command) => drop(self.propose(command)),
            Due::Settled(id) => self.answer_origin(id, ShareAnswer::Settled),
            Due::TakeCopies(life) => self.take_copies(life),
            Due::Inherited(life) => self.has_inherited(life),
            Due::Adopted { client, epoch } => self.adopted(&client, epoch),
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
        self.go_on_giving(session);
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
