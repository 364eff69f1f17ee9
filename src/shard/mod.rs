//! The event loop of one core: the owner of the sessions whose client id hashes to it, of their connections, timers and index.
//!
//! One thread, one current-thread runtime; everything of the [`Shard`] is touched by that thread alone, without locks. What is shared with the other
//! shards stands in [`Shared`], and is read under read locks. Each connection has one small task that is woken by its socket; the work is
//! done synchronously inside the shard: read much, decode all of it, route all of it. The *flusher* task runs behind the connections that
//! were ready in the same turn and writes once for each connection that has something to send.
//!
//! Read `connection.rs` for the life of a connection, `reading.rs` for how its packets come in, `connecting.rs` for CONNECT and takeover, `packets.rs` for what a packet causes, `publishing.rs` for the
//! way of a message, `subscribing.rs` for SUBSCRIBE and retained messages, `keeping.rs` for what waits for the disk, `exactly_once.rs` for QoS 2 packets of sessions with copies, `answers.rs` for the order of
//! the answers, `copying.rs` for the copies of sessions on other nodes, `reading_back.rs` for messages that are on disk alone, `restoring.rs` for what a start has found, `inspecting.rs` for what others want to know, `closing.rs` for what is said and kept of connections that have ended. In a cluster: `peers.rs`
//! for the way to other nodes, `from_peers.rs` for what comes from there, `peers/lives.rs` for nodes that come, go and begin anew, `peers/without_room.rs` for those whose disk is full, `sharing.rs` for share groups over nodes, `asking.rs` for whether a member has a message already, `moving.rs` for sessions that move, `wills.rs` for how long these remember Wills, `grant.rs` for whether the node may
//! serve at all, `heir.rs` for the copies of sessions of other nodes and what becomes of them when one dies, `looking.rs` for what a shard finds out about them when it looks at the control state, `orphans.rs` for messages that a dead node would have got.
//!
//! Invariants: a session has at most one connection; a connection that is open has a session that names it; nothing waits inside a turn.

mod answers;
mod asking;
mod bans;
pub mod clock;
pub mod closing;
mod connecting;
mod connection;
mod copying;
mod credentials;
mod exactly_once;
mod flapping;
mod from_peers;
pub mod grant;
pub mod greeted;
mod heir;
pub mod inspecting;
mod keeping;
mod looking;
pub mod mailbox;
mod moving;
mod orphans;
mod outbox;
mod packets;
mod peers;
mod publishing;
mod reading;
mod reading_back;
pub mod restoring;
mod rights;
mod shared;
mod sharing;
mod subscribing;
mod tasks;
mod timers;
mod wills;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use hashbrown::{HashMap, HashSet};
use slab::Slab;

use holdfast_raft::{Applied, Command, Effect, Incarnation, NodeId};
use holdfast_storage::{OwnerId, Storage};

use crate::cluster::copies::{self, inheriting::Life};
use crate::cluster::session_move::SessionFrame;
use crate::cluster::share_groups::{Rank, ShareGroups, SharedMessage};
use crate::limits;
use crate::metrics::{MAILBOX, ROUTED, SAMPLED_ONE_IN, ShardMetrics, WRITTEN};
use crate::mqtt::{MessageId, ReasonCode, WillName};
use crate::session::{Outgoing, Queued, Session, Turn};
use crate::subscriptions::{NodeSlot, SessionKey, ShardId, ShardIndex};

use connection::Connection;
use exactly_once::Named;
use flapping::Flapping;
pub use flapping::{FlappingAction, FlappingRules};
use from_peers::FromPeers;
use heir::Heir;
use keeping::{Due, Keeping, Leg};
use mailbox::{Event, Ticket};
pub use moving::Deadlines;
use moving::Moves;
use outbox::BufferPool;
use peers::Peers;
pub use shared::{Shared, StorageLevel, WillsSeen};
pub use subscribing::Unsettled;
pub use tasks::spawn;
use timers::Timers;

/// The number of a connection in the table of its shard.
pub type ConnectionKey = u32;

/// Where a shard's commands to the control state go. A control plane that applies at once returns what came of it; another one sends it to the
/// mailbox of the shard, the effects first. Effects that no command of a shard caused come by the mailbox in any case.
pub trait ControlPlane: Send + Sync {
    fn propose(&self, from: ShardId, ticket: Option<Ticket>, command: Command) -> Option<Applied>;

    /// Whether every node routes by the state of `index`. If not yet, [`Event::RoutedEverywhere`] comes when they do.
    fn is_routed(&self, _from: ShardId, _ticket: Ticket, _index: u64) -> bool {
        true
    }

    /// These filters, some of them perhaps with a share prefix, have lost their last subscriber on this node.
    fn unrouted(&self, from: ShardId, filters: Vec<Arc<str>>);

    /// The data connection of a shard to a node has ended: there is to be another one.
    fn data_ended(&self, _node: NodeId, _from: ShardId) {}

    /// What a node owes a shard, as it is now.
    fn owed(&self, _from: ShardId, _node: NodeId, _owed: Owed) {}

    /// The fill of that number is complete, as far as the sessions of a shard go.
    fn copies_filled(&self, _from: ShardId, _fill: u64) {}

    /// How far a node is behind with the copies of a shard's sessions, as it is now.
    fn copy_lag(&self, _from: ShardId, _node: NodeId, _lag: copies::Lag) {}

    /// A frame for the shard of its client on another node. May be lost.
    fn send_session(&self, _to: NodeId, _frame: &SessionFrame) {}

    /// A shard has entered all that it has inherited from that life of a node, and it is kept.
    fn inherited(&self, _from: ShardId, _life: Life) {}

    /// Whether a Will is due: it is published, or about to be.
    fn is_will_due(&self, _will: &WillName) -> bool {
        false
    }

    /// How many shards a node has; `None` for one that was never linked.
    fn shards_of(&self, _node: NodeId) -> Option<u16> {
        None
    }
}

/// What a node owes a shard: bytes that it has not accepted, and for how many milliseconds nothing of it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    pub incarnation: Incarnation,
    pub bytes: usize,
    pub stuck_ms: u64,
}

/// A session and the connection that it has now.
struct SessionSlot {
    session: Session,
    connection: Option<ConnectionKey>,
    /// When it last had one, or was entered without.
    detached_at: u64,
    /// The connection that has its lease and waits until that is kept, with its serial.
    admitting: Option<(ConnectionKey, u64)>,
    /// The publish that this session was last a target of, and its place among the targets: see `publishing.rs`.
    target: (u64, u32),
    /// Retained messages that are still to be sent. They are the session's: a client that loses its connection meanwhile does not subscribe
    /// again when it finds its session present.
    replays: VecDeque<subscribing::Replay>,
    /// Items of it are with messages that it gave back, and are deleted by whoever has taken them over: they do not go with the session.
    items_away: bool,
    /// It has begun in this process: what an earlier one was sent is not for it.
    begun_here: bool,
    /// From whom this node has it, while messages may come that were for it there.
    inherited: Option<Box<heir::Origin>>,
}

/// What an outcome is awaited for.
enum Pending {
    Connect {
        connection: ConnectionKey,
        serial: u64,
        client: Arc<str>,
    },
    Subscribe(Box<subscribing::PendingSubscribe>),
    /// Filters of a SUBSCRIBE that has more of them than one command, the last of which has that ticket.
    SubscribeWith(Ticket),
    /// A step of a session that moves to this node.
    Move {
        client: Arc<str>,
        epoch: u64,
        step: moving::Step,
    },
    /// The socket of a client that has said DISCONNECT is closed behind it.
    Close {
        connection: ConnectionKey,
        serial: u64,
    },
}

pub struct Shard {
    id: ShardId,
    shared: Arc<Shared>,
    control: Arc<dyn ControlPlane>,
    /// Milliseconds of the node's clock at the start of this turn.
    now: u64,
    sessions: Slab<SessionSlot>,
    by_client: HashMap<Arc<str>, SessionKey, foldhash::quality::RandomState>,
    /// The sessions that are written down.
    by_owner: HashMap<OwnerId, SessionKey>,
    keeping: Keeping,
    /// The messages for share groups that sessions had when the process began, and until when it matters.
    shared_before: (Arc<HashSet<SharedMessage>>, u64),
    /// Messages that were given back and have to be read before anybody can be offered them, or asked for those that were inherited.
    offered: HashMap<Ticket, (Vec<Queued>, Option<Rank>)>,
    connections: Slab<Connection>,
    next_serial: u64,
    index: ShardIndex,
    timers: Timers,
    pool: BufferPool,
    read_buffer: Box<[u8]>,
    /// Connections with something to write, for the flusher.
    dirty: Vec<ConnectionKey>,
    flusher: Option<Waker>,
    /// Connections whose task is to be spawned; and those to and from other nodes.
    unborn: Vec<(ConnectionKey, u64)>,
    unborn_peers: Vec<(NodeSlot, u64)>,
    unborn_links: Vec<(u32, u64)>,
    peers: Peers,
    from_peers: FromPeers,
    heir: Heir,
    named: Named,
    /// Messages of share groups for which this shard has to find a member, or which it keeps until one has them.
    share_groups: ShareGroups<Leg>,
    /// They are too many: clients are not read from.
    shares_full: bool,
    moves: Moves,
    flapping: Flapping,
    /// Whether the node could not serve when somebody last looked.
    suspended: bool,
    looked_after_at: u64,
    /// Connections to be closed when the message that filled their queue has been routed.
    overflowed: Vec<ConnectionKey>,
    /// Events for the other shards, gathered in this turn.
    mail: Vec<Vec<Event>>,
    /// Shards that must catch up before this one reads on, one bit each, and the connections that wait for it.
    stalled_on: u64,
    stalled: Vec<ConnectionKey>,
    /// When the PUBLISH was read that is timed, until the sockets have been written to, and whether it is routed.
    sampled: Option<(Instant, bool)>,
    publishes: u64,
    /// The last message of this shard's stream.
    sequence: u64,
    targets: Vec<publishing::Target>,
    target_serial: u64,
    /// Retained topics that replays may still examine, until the flusher or its next connection renews it.
    replay_allowance: usize,
    pending: HashMap<Ticket, Pending>,
    next_ticket: Ticket,
    /// The node ends: nobody is let in any more.
    stopping: bool,
    /// Where clients that are closed in this moment should go instead; empty when that is not said.
    elsewhere: Arc<str>,
    /// A connection that is about to be taken over is read; events wait meanwhile.
    hearing_out: bool,
    /// What this shard has taken from its mailbox, and what its own commands caused, in order; the messages apart and first.
    arrived: VecDeque<Event>,
    /// Messages for share groups of what had arrived while another message was being routed: they may go on to other nodes, and everything goes to these in the order
    /// of its sequences.
    after_route: VecDeque<Event>,
    inbox: VecDeque<Event>,
}

impl Shard {
    /// A shard without sessions. `sequence` is where its stream begins; with a storage what it promises waits for that, if it `defers`.
    pub fn new(
        id: ShardId,
        shared: Arc<Shared>,
        control: Arc<dyn ControlPlane>,
        sequence: u64,
        storage: Option<Storage>,
        defers: bool,
    ) -> Shard {
        let shards = shared.mailboxes.len();
        let stream = MessageId { node: shared.node_tag, shard: id, sequence };
        Shard {
            id,
            now: shared.clock.now(),
            control,
            by_owner: HashMap::new(),
            keeping: Keeping::new(storage, defers, shared.clustered, shared.copies),
            shared_before: Default::default(),
            offered: HashMap::new(),
            sessions: Slab::new(),
            by_client: HashMap::default(),
            connections: Slab::new(),
            next_serial: 0,
            index: ShardIndex::default(),
            timers: Timers::default(),
            pool: BufferPool::default(),
            read_buffer: vec![0; limits::READ_BUFFER_BYTES].into_boxed_slice(),
            dirty: Vec::new(),
            flusher: None,
            unborn: Vec::new(),
            unborn_peers: Vec::new(),
            unborn_links: Vec::new(),
            peers: Peers::default(),
            from_peers: FromPeers::default(),
            heir: Heir::new(shards),
            named: Named::default(),
            share_groups: ShareGroups::new(sharing::bounds(shared.clustered), shared.clustered, stream),
            shares_full: false,
            moves: Moves::default(),
            flapping: Flapping::default(),
            suspended: false,
            looked_after_at: 0,
            overflowed: Vec::new(),
            mail: (0..shards).map(|_| Vec::new()).collect(),
            stalled_on: 0,
            stalled: Vec::new(),
            sampled: None,
            publishes: 0,
            sequence,
            targets: Vec::new(),
            target_serial: 0,
            replay_allowance: limits::REPLAY_TOPICS_PER_TURN,
            pending: HashMap::new(),
            next_ticket: 0,
            hearing_out: false,
            arrived: VecDeque::new(),
            after_route: VecDeque::new(),
            stopping: false,
            elsewhere: "".into(),
            inbox: VecDeque::new(),
            shared,
        }
    }

    fn metrics(&self) -> &ShardMetrics {
        &self.shared.metrics.shards[usize::from(self.id)]
    }

    /// Proposes a command of which nobody awaits the outcome. Returns whether it has changed something that is written down.
    fn propose(&mut self, command: Command) -> bool {
        let Some(applied) = self.control.propose(self.id, None, command) else {
            return false;
        };
        self.inbox.extend(applied.effects.into_iter().map(Event::Effect));
        let writes = !applied.changes.is_empty();
        self.keeping.write_leases(applied.changes);
        writes
    }

    /// Proposes a command whose outcome is awaited. What the control state caused before it is in the mailbox, and comes first. Returns whether it
    /// has changed something that is written down.
    fn propose_for(&mut self, pending: Pending, command: Command) -> bool {
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.pending.insert(ticket, pending);
        let Some(Applied { outcome, effects, changes }) = self.control.propose(self.id, Some(ticket), command) else {
            return false;
        };
        let writes = !changes.is_empty();
        self.keeping.write_leases(changes);
        self.take_mail();
        self.inbox.extend(effects.into_iter().map(Event::Effect));
        self.inbox.push_back(Event::Outcome { ticket, outcome });
        writes
    }

    /// Moves what has arrived into the inbox, and lets those read on who waited for that.
    fn take_mail(&mut self) {
        let Shard { arrived, inbox, .. } = self;
        let (waiting, since) = self.shared.mailboxes[usize::from(self.id)]
            .take(|event| if event.is_message() { arrived.push_back(event) } else { inbox.push_back(event) });
        if let Some(since) = since {
            self.metrics().publish_duration[MAILBOX].observe_us(since.elapsed().as_micros() as u64);
        }
        for shard in (0..self.shared.mailboxes.len()).filter(|shard| waiting & (1 << shard) != 0) {
            self.shared.mailboxes[shard].push(Event::CaughtUp { shard: self.id });
        }
    }

    /// Handles what packets, timers and events have led to, until nothing is left. Called where nobody holds the key of a
    /// session or connection across it.
    fn settle(&mut self) {
        if self.hearing_out {
            return;
        }
        loop {
            self.settle_shares();
            self.close_overflowed();
            let next = self.after_route.pop_front().or_else(|| self.arrived.pop_front());
            let Some(event) = next.or_else(|| self.inbox.pop_front()) else {
                break;
            };
            self.handle(event);
        }
        if self.keeping.has_to_submit() {
            self.wake_flusher();
        }
    }

    /// Delivers the messages that were taken from the mailbox, before anything else that waits. Closes nothing, and sends nothing to other nodes.
    fn deliver_arrived(&mut self) {
        while let Some(message) = self.arrived.pop_front() {
            match message {
                Event::Shared { .. } => self.after_route.push_back(message),
                _ => self.handle(message),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connection(greeted) => self.connect(*greeted),
            Event::Accept(message) if self.heir.is_inheriting() && !message.topic.starts_with("$SYS/") => {
                self.heir.wait_for_all(Event::Accept(message));
            }
            Event::Accept(message) => self.accept(*message),
            Event::Request(_) if self.heir.is_inheriting() => self.heir.wait_for_all(event),
            Event::Request(requested) => self.publish_requested(*requested),
            Event::Publish { message, earlier, resent, known, leg } => {
                let mut outgoing = Outgoing::again(&message, &earlier);
                (outgoing.resent, outgoing.known) = (resent, known);
                self.deliver_from_shard(&outgoing, leg);
            }
            Event::Shared { picked, offer } => {
                self.keeping.close_section();
                self.deliver_shared(picked, *offer);
            }
            Event::KeepAll { leg } => self.keeping.reply_when_kept(leg),
            Event::Answered { promise } => self.answered(promise),
            Event::Parts { promise, entries, reply } => self.add_parts(promise, entries, Vec::new(), reply),
            Event::GoneFromCopy { owner, item } => drop(self.keeping.delete_from_copy(owner, item)),
            Event::Kept { submission } => self.kept(submission),
            Event::ReadBack { ticket, bodies } => self.read_back(ticket, bodies),
            Event::StorageChanged => self.storage_changed(),
            Event::Outcome { ticket, outcome } if self.awaits_inherited(ticket, &outcome) => {
                self.heir.wait_for_session(event);
            }
            Event::Outcome { ticket, outcome } => match self.pending.remove(&ticket) {
                Some(Pending::Connect { connection, serial, client }) => {
                    self.connected(connection, serial, &client, outcome)
                }
                Some(Pending::Subscribe(pending)) => self.routed(ticket, *pending, &outcome),
                Some(Pending::SubscribeWith(other)) => self.routed_with(other, &outcome),
                Some(Pending::Move { client, epoch, step }) => self.move_step(&client, epoch, step, &outcome),
                Some(Pending::Close { connection, serial }) => self.close_kept(connection, serial),
                None => {}
            },
            Event::Effect(effect) => self.take_effect(effect),
            Event::CaughtUp { shard } => self.caught_up(shard),
            Event::Stable(turned) if self.keeping.storage().is_some() => self.keeping.when_kept(Due::Turned(turned)),
            Event::Stable(turned) => turned.arrive(),
            Event::CloseAll { reason } => self.close_all(reason),
            Event::CloseSome { count, reason, elsewhere } => self.close_some(count, reason, elsewhere),
            Event::CredentialsChanged { access } => self.judge_credentials(&access),
            Event::Inspect(question) => self.inspect(*question),
            Event::Banned(ban) => self.banned(&ban),
            Event::Kick { client_id, reply } => self.kick(&client_id, reply),
            Event::RoutedEverywhere { ticket } => self.routed_everywhere(ticket),
            Event::Turned(turned) => turned.arrive(),
            event => self.handle_of_cluster(event),
        }
    }

    fn take_effect(&mut self, effect: Effect) {
        let Some(effect) = self.heir_effect(effect) else { return };
        match effect {
            Effect::WillDue { client, epoch, message, .. } => self.publish_will(client, epoch, &message),
            Effect::SessionEnded { client, epoch, .. } => self.session_ended(&client, epoch),
            effect => self.move_effect(effect),
        }
    }

    /// What comes from other nodes, or concerns them.
    fn handle_of_cluster(&mut self, event: Event) {
        match event {
            Event::PeerUp { slot, node, incarnation } => self.peer_up(slot, node, incarnation),
            Event::PeerDown { slot, node, incarnation, heirs, hears } => {
                self.node_died(slot, (node, incarnation), heirs, hears);
                self.move_node_gone(node);
            }
            Event::Copies { of, found, seen } => self.told_of_copies(of, found, &seen),
            Event::CopiesWanted { by, search, clients } => self.copies_wanted(by, search, clients),
            Event::Look { outlook, done } => self.look(&outlook, done),
            Event::GoOnInheriting => self.go_on_inheriting(),
            Event::Inherited { life } => self.all_have_inherited(life),
            Event::Orphan { message, leg, life, earlier } => self.orphan_from_shard(message, leg, life, earlier),
            Event::HeirsOf { home, base } => self.drop_copies_elsewhere(home, &base),
            Event::LinkTo { node, stream } => self.peer_connected(node, *stream),
            Event::LinkFrom { node, shard, stream } => self.link_from(node, shard, *stream),
            Event::AnswerOrigin { id, answer } => self.answer_origin(id, answer),
            // The mark comes behind Wills that were due before the cut: whoever had them is known where the session was.
            Event::CutMade { .. } if self.heir.holds_wills() => self.heir.wait_for_all(event),
            Event::CutMade { holder, index } => self.mark(holder, index),
            Event::Marked { from, index, place } => self.move_marked(from, index, place),
            Event::Aware { from, dead } => self.note_aware(dead, from),
            Event::LookForWills { client } => self.giving_wills(&client),
            Event::Session { from, frame } => self.session_frame(from, *frame),
            Event::Reconcile { leases } => self.reconcile(&leases),
            Event::Heirs(heirs) => self.heirs_changed(&heirs),
            Event::Resumed => self.resume_serving(),
            Event::Expelled => self.expelled(),
            _ => {}
        }
    }

    /// Another shard has caught up: reads go on when none is left behind.
    fn caught_up(&mut self, shard: ShardId) {
        self.stalled_on &= !(1 << shard);
        self.read_on();
    }

    /// The clients that were not read from are looked at again, when nothing more stands against it.
    fn read_on(&mut self) {
        if self.stalled_on == 0 && !self.keeping.behind && !self.shares_full {
            for key in std::mem::take(&mut self.stalled) {
                // It may be stalled anew before its task runs, and must enter the list once more then.
                if let Some(connection) = self.connection(key) {
                    connection.stalled = false;
                }
                self.wake(key);
            }
        }
    }

    /// Notes an event for another shard; it goes out with the turn's others.
    fn mail(&mut self, to: ShardId, event: Event) {
        let batch = &mut self.mail[usize::from(to)];
        batch.push(event);
        if batch.len() >= limits::MAIL_BATCH {
            self.send_mail(to);
        } else {
            self.wake_flusher();
        }
    }

    fn send_mail(&mut self, to: ShardId) {
        let batch = &mut self.mail[usize::from(to)];
        if !batch.is_empty()
            && self.shared.mailboxes[usize::from(to)].push_batch(self.id, batch)
            && self.stalled_on & (1 << to) == 0
        {
            self.stalled_on |= 1 << to;
            self.metrics().mailbox_stalls.add(1);
        }
    }

    /// A PUBLISH is about to be handled: one of [`SAMPLED_ONE_IN`] is timed, if none is.
    fn sample_publish(&mut self) {
        self.publishes += 1;
        if self.publishes.is_multiple_of(SAMPLED_ONE_IN) && self.sampled.is_none() {
            self.sampled = Some((Instant::now(), false));
        }
    }

    /// What leads to no write is not timed any further.
    fn sample_routed(&mut self) {
        if let Some((since, false)) = self.sampled {
            self.metrics().publish_duration[ROUTED].observe_us(since.elapsed().as_micros() as u64);
            self.sampled = self.has_to_flush().then_some((since, true));
        }
    }

    fn sample_written(&mut self) {
        if let Some((since, _)) = self.sampled.take() {
            self.metrics().publish_duration[WRITTEN].observe_us(since.elapsed().as_micros() as u64);
        }
    }

    fn wake_flusher(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            flusher.wake();
        }
    }

    /// The end of a turn: mail to the other shards, then one write for each connection.
    fn flush_turn(&mut self) {
        self.now = self.shared.clock.now();
        for to in 0..self.mail.len() {
            self.send_mail(to as ShardId);
        }
        self.submit_turn();
        if !self.shared.grant.is_valid() {
            self.suspended = true;
            return self.settle();
        }
        self.flush_peers();
        self.flush_links();
        let mut dirty = std::mem::take(&mut self.dirty);
        let share = (limits::REPLAY_TOPICS_PER_TURN / dirty.len().max(1)).max(limits::REPLAY_TOPICS_MIN);
        for key in dirty.drain(..) {
            self.replay_allowance = share;
            self.flush_connection(key);
        }
        self.sample_written();
        self.replay_allowance = limits::REPLAY_TOPICS_PER_TURN;
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
        self.settle();
    }

    fn has_to_flush(&self) -> bool {
        let copies = self.keeping.copying.as_ref().is_some_and(|copying| copying.has_work());
        let inside = copies || self.keeping.has_to_submit() || self.mail.iter().any(|batch| !batch.is_empty());
        let outside = !self.dirty.is_empty() || self.peers.has_dirty() || self.from_peers.has_dirty();
        inside || (outside && !self.suspended)
    }
}

/// What a call of the session machine needs, from the fields of a shard that the call does not borrow.
macro_rules! turn {
    ($shard:expr) => {
        Turn {
            now: $shard.now,
            limits: &$shard.shared.limits,
            metrics: &$shard.shared.metrics.shards[usize::from($shard.id)],
            journal: &mut $shard.keeping.section,
        }
    };
}
use turn;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Close {
    /// The client said DISCONNECT: with its Will to be published or not (3.14.2.1).
    ByClient { reason: ReasonCode, publish_will: bool },
    /// The client broke a rule, or the server ends the connection: MQTT 5.0 clients are told [MQTT-4.13.2-1].
    ByServer { reason: ReasonCode, what: &'static str },
    /// CONNACK said no: nothing follows it [MQTT-3.2.2-7].
    Refused { reason: ReasonCode },
    /// The network connection is gone.
    Lost,
}
