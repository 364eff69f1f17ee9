//! The mailbox of a shard: what other threads have for it. It never waits for a connection, and its bound is kept by those who
//! fill it: a shard whose message finds the mailbox above [`limits::MAILBOX_MESSAGES_HIGH`] stops reading its sockets until
//! it is told to go on. Everything but messages is bounded by its source.
//!
//! Invariant: between two shards, events arrive in the order in which they were sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use holdfast_raft::{Ban, Effect, Incarnation, NodeId, Outcome};
use holdfast_storage::{Entry, ItemId, OwnerId};

use crate::access::Access;
use crate::byte_stream::ByteStream;
use crate::cluster::copies::Heirs;
use crate::cluster::copies::inheriting::{Found, Life, Way};
use crate::cluster::copies::looking::Outlook;
use crate::cluster::session_move::{SessionFrame, Source};
use crate::cluster::share_groups::Offer;
use crate::limits;
use crate::metrics::SAMPLED_ONE_IN;
use crate::mqtt::{Message, MessageId, ReasonCode};
use crate::session::Seen;
use crate::subscriptions::{NodeSlot, Picked, ShardId};

use super::greeted::Greeted;
use super::inspecting::Inspect;
use super::keeping::{Leg, PromiseKey};
use super::sharing::ShareAnswer;

/// The number by which a shard knows the outcome of a command it proposed.
pub type Ticket = u64;

/// What can arrive in a mailbox.
#[derive(Debug)]
pub enum Event {
    /// There is a new ban, which listeners know already.
    Banned(Arc<Ban>),
    /// A client of this shard, with its CONNECT.
    Connection(Box<Greeted>),
    /// A message of the node itself, for this shard to accept and route as if a client had sent it.
    Accept(Box<Message>),
    /// A message that somebody outside has asked to be published.
    Request(Box<Requested>),
    /// A message that matches a filter of this shard, and may have come as one of `earlier` before, or to an earlier process of the node.
    Publish {
        message: Arc<Message>,
        earlier: Box<[MessageId]>,
        resent: bool,
        /// See [`crate::session::Outgoing::known`].
        known: bool,
        leg: Option<Leg>,
    },
    /// A message for one member of a share group.
    Shared {
        picked: Picked,
        offer: Box<Offer<Leg>>,
    },
    /// The leg waits until everything that this shard has done is kept.
    KeepAll {
        leg: Leg,
    },
    /// What this shard sent to another one with a leg is kept.
    Answered {
        promise: PromiseKey,
    },
    /// The same, and what was written down of it, to be kept together with the rest; `reply` waits until it is.
    Parts {
        promise: PromiseKey,
        entries: Vec<Entry>,
        reply: Option<Leg>,
    },
    /// An item that a session has given back is with its next owner: the copy of the session, if it is of this shard, has it no more.
    GoneFromCopy {
        owner: OwnerId,
        item: ItemId,
    },
    /// Everything that this shard handed to the storage up to this submission is kept.
    Kept {
        submission: u64,
    },
    /// Messages that this shard asked for have been read back, as far as they could be.
    ReadBack {
        ticket: u64,
        bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)>,
    },
    /// The storage is in another state than before.
    StorageChanged,
    /// A proposed command was applied.
    Outcome {
        ticket: Ticket,
        outcome: Outcome,
    },
    /// The control state says what this shard has to do.
    Effect(Effect),
    /// `shard` has caught up: those that waited for it read on.
    CaughtUp {
        shard: ShardId,
    },
    /// Passwords or keys have changed: who is connected is asked for again.
    CredentialsChanged {
        access: Arc<Access>,
    },
    /// Close every connection with this reason.
    CloseAll {
        reason: ReasonCode,
    },
    /// Close so many connections, whichever they are. `elsewhere`: where their clients should go (Server Reference), perhaps empty.
    CloseSome {
        count: u32,
        reason: ReasonCode,
        elsewhere: Arc<str>,
    },
    /// Another node is live, under that slot.
    PeerUp {
        slot: NodeSlot,
        node: NodeId,
        incarnation: Incarnation,
    },
    /// It is dead, and these inherit from it.
    PeerDown {
        slot: NodeSlot,
        node: NodeId,
        incarnation: Incarnation,
        heirs: Arc<[NodeId]>,
        hears: Hears,
    },
    /// What a shard had of copies for this one: of a node that is dead, or of the clients of a search; and what each shard of that node had seen.
    Copies {
        of: Way,
        found: Vec<Found<Arc<Seen>>>,
        seen: Vec<Arc<Seen>>,
    },
    /// Shard `by` searches copies of the sessions of these clients.
    CopiesWanted {
        by: ShardId,
        search: u64,
        clients: Arc<HashSet<Arc<str>>>,
    },
    /// How the control state stands, for who has not heard of all that led to it; `done` when nothing is searched any more.
    Look {
        outlook: Arc<Outlook>,
        done: Option<Arc<Turned>>,
    },
    /// From this shard to itself: there is more to be entered of what was inherited.
    GoOnInheriting,
    /// All shards have entered what they have inherited from that life.
    Inherited {
        life: Life,
    },
    /// For the sessions that were inherited from that life only, but for those that have it as one of `earlier`.
    Orphan {
        message: Arc<Message>,
        leg: Option<Leg>,
        life: Life,
        earlier: Box<[MessageId]>,
    },
    /// The heirs of a node, when they have been these for a while.
    HeirsOf {
        home: NodeId,
        base: Arc<[NodeId]>,
    },
    /// A data connection to a node, and one from a shard of a node.
    LinkTo {
        node: NodeId,
        stream: Box<ByteStream>,
    },
    LinkFrom {
        node: NodeId,
        shard: u16,
        stream: Box<ByteStream>,
    },
    /// The node of a shared message is to hear what became of it.
    AnswerOrigin {
        id: MessageId,
        answer: ShareAnswer,
    },
    /// Everything before this has been handled, and what is routed from now on is routed by the state that was applied then.
    Turned(Arc<Turned>),
    /// The same, when all that the shard has written down until then is kept, and stable.
    Stable(Arc<Turned>),
    /// Every node routes by the routes that this ticket awaited.
    RoutedEverywhere {
        ticket: Ticket,
    },
    /// Every node routes by the routes of a session that moves from `holder`: it is to have the mark of this shard.
    CutMade {
        holder: NodeId,
        index: u64,
    },
    /// Everything that a shard of a node routed before that index has come.
    Marked {
        from: Source,
        index: u64,
        /// Where the mark was in the stream of that shard.
        place: MessageId,
    },
    /// A shard of another node knows of that death, and all that it sent before has come.
    Aware {
        from: Source,
        dead: (u64, Incarnation),
    },
    /// From this shard to itself: whether Wills of a client whose session is to go are still due.
    LookForWills {
        client: Arc<str>,
    },
    /// From another node, about a session that moves.
    Session {
        from: NodeId,
        frame: Box<SessionFrame>,
    },
    /// The sessions that are this node's by the control state, each with the epoch of the connection that began it and of its last one: what is here of others goes.
    Reconcile {
        leases: Box<HashMap<Arc<str>, (u64, u64)>>,
    },
    /// Who has the copies of this node's sessions, by the control state.
    Heirs(Arc<Heirs>),
    /// The node may serve again.
    Resumed,
    /// The other nodes have given this one up: its clients go, and it begins anew.
    Expelled,
    /// Somebody wants to know something.
    Inspect(Box<Inspect>),
    /// End the connection of a client, and answer whether it had one; `None` if it has no session.
    Kick {
        client_id: Arc<str>,
        reply: oneshot::Sender<Option<bool>>,
    },
}

/// A message to be published, and who is to hear of it.
#[derive(Debug)]
pub struct Requested {
    pub message: Message,
    /// What became of it; there before `kept` is called.
    pub routed: Arc<AtomicU8>,
    /// Called when all have it who must, or it was refused.
    pub kept: Arc<Turned>,
}

impl Requested {
    pub const UNKNOWN: u8 = 0;
    pub const MATCHED: u8 = 1;
    pub const UNMATCHED: u8 = 2;
    pub const REFUSED: u8 = 3;
}

/// What the news of a death is to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hears {
    /// It has not registered yet: the death may be of long ago, and how all stands it is told when it has.
    Early,
    /// It has just registered.
    Late,
    InTime,
}

impl Event {
    /// Whether it brings a message for subscribers of this shard.
    pub fn is_message(&self) -> bool {
        matches!(self, Event::Publish { .. } | Event::Shared { .. })
    }

    /// Bytes that count against the mailbox; 0 for what is no message.
    fn message_bytes(&self) -> usize {
        match self {
            Event::Publish { message, .. } => message.size(),
            Event::Shared { offer, .. } => offer.message.size(),
            _ => 0,
        }
    }
}

/// Counts the shards that have handled everything up to a moment; the last one says so.
pub struct Turned {
    left: AtomicUsize,
    done: Box<dyn Fn() + Send + Sync>,
}

impl Turned {
    /// `done` is called, on the thread of a shard, when each of them has arrived.
    pub fn new(shards: usize, done: impl Fn() + Send + Sync + 'static) -> Arc<Turned> {
        Arc::new(Turned { left: AtomicUsize::new(shards), done: Box::new(done) })
    }

    pub fn arrive(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.done)();
        }
    }
}

impl fmt::Debug for Turned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Turned({})", self.left.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct Contents {
    events: Vec<Event>,
    messages: usize,
    bytes: usize,
    /// Messages that the mailbox has had, and since when the one waits that is timed: one of [`SAMPLED_ONE_IN`].
    messages_total: u64,
    timed: Option<Instant>,
    /// Shards that wait until this mailbox is empty again, one bit each.
    waiting: u64,
}

#[derive(Debug, Default)]
pub struct Mailbox {
    contents: Mutex<Contents>,
    arrived: Notify,
}

impl Mailbox {
    pub fn push(&self, event: Event) {
        let mut contents = self.contents.lock();
        let first = contents.events.is_empty();
        contents.add(event);
        drop(contents);
        if first {
            self.arrived.notify_one();
        }
    }

    /// Hands over a batch of shard `from`. True if the mailbox is above its bound: `from` is to stop reading until
    /// [`Event::CaughtUp`] comes.
    #[must_use]
    pub fn push_batch(&self, from: ShardId, batch: &mut Vec<Event>) -> bool {
        let mut contents = self.contents.lock();
        let first = contents.events.is_empty();
        for event in batch.drain(..) {
            contents.add(event);
        }
        let above = contents.messages >= limits::MAILBOX_MESSAGES_HIGH || contents.bytes >= limits::MAILBOX_BYTES_HIGH;
        if above {
            contents.waiting |= 1 << from;
        }
        drop(contents);
        if first {
            self.arrived.notify_one();
        }
        above
    }

    /// Puts several events in, in order.
    pub fn push_all(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let mut contents = self.contents.lock();
        let first = contents.events.is_empty();
        events.into_iter().for_each(|event| contents.add(event));
        drop(contents);
        if first {
            self.arrived.notify_one();
        }
    }

    /// Gives everything to `each`, in order. Returns the shards that waited for that, one bit each, and since when a message that is timed has waited.
    pub fn take(&self, each: impl FnMut(Event)) -> (u64, Option<Instant>) {
        let mut contents = self.contents.lock();
        contents.messages = 0;
        contents.bytes = 0;
        contents.events.drain(..).for_each(each);
        (std::mem::take(&mut contents.waiting), contents.timed.take())
    }

    /// Whether a message waits.
    pub fn holds_messages(&self) -> bool {
        self.contents.lock().messages > 0
    }

    /// What waits here: events, those of them that bring messages, and the bytes of these.
    pub fn waiting(&self) -> (usize, usize, usize) {
        let contents = self.contents.lock();
        (contents.events.len(), contents.messages, contents.bytes)
    }

    /// Waits until something has arrived.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

impl Contents {
    fn add(&mut self, event: Event) {
        let bytes = event.message_bytes();
        if bytes > 0 {
            self.messages += 1;
            self.messages_total += 1;
            if self.messages_total.is_multiple_of(SAMPLED_ONE_IN) && self.timed.is_none() {
                self.timed = Some(Instant::now());
            }
            self.bytes += bytes;
        }
        self.events.push(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::QoS;

    fn message() -> Event {
        let message = Arc::new(Message::sample(Default::default(), "t", QoS::AtMostOnce));
        Event::Publish { message, earlier: Box::default(), resent: false, known: false, leg: None }
    }

    #[test]
    fn a_full_mailbox_stops_its_senders_and_names_them_when_it_is_emptied() {
        let mailbox = Mailbox::default();
        let mut batch: Vec<Event> = (0..limits::MAILBOX_MESSAGES_HIGH - 1).map(|_| message()).collect();
        assert!(!mailbox.push_batch(2, &mut batch));
        batch.push(message());
        assert!(mailbox.push_batch(3, &mut batch));
        let mut events = Vec::new();
        let (waiting, since) = mailbox.take(|event| events.push(event));
        assert_eq!((waiting, since.is_some()), (1 << 3, true), "one of the many is timed");
        assert_eq!(events.len(), limits::MAILBOX_MESSAGES_HIGH);
        batch.push(message());
        assert!(!mailbox.push_batch(3, &mut batch));
    }
}
