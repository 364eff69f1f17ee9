//! The mailbox of a shard: what other threads have for it. It never waits for a connection, and its bound is kept by those who
//! fill it: a shard whose message finds the mailbox above [`limits::MAILBOX_MESSAGES_HIGH`] stops reading its sockets until
//! it is told to go on. Everything but messages is bounded by its source.
//!
//! Invariant: between two shards, events arrive in the order in which they were sent.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use holdfast_raft::{Effect, Outcome};
use holdfast_storage::{Entry, ItemId, OwnerId};

use crate::limits;
use crate::mqtt::{Message, ReasonCode};
use crate::subscriptions::{Picked, ShardId};

use super::greeted::Greeted;
use super::inspecting::Inspect;
use super::keeping::{Leg, Owed, PromiseKey};

/// The number by which a shard knows the outcome of a command it proposed.
pub type Ticket = u64;

/// What can arrive in a mailbox.
#[derive(Debug)]
pub enum Event {
    /// A client of this shard, with its CONNECT.
    Connection(Box<Greeted>),
    /// A message of the node itself, for this shard to accept and route as if a client had sent it.
    Accept(Box<Message>),
    /// A message that matches a filter of this shard.
    Publish { message: Arc<Message>, leg: Option<Leg> },
    /// A message for one member of a share group.
    Shared { picked: Picked, message: Arc<Message>, attempts: u8, owed: Owed },
    /// The leg waits until everything that this shard has done is kept.
    KeepAll { leg: Leg },
    /// What this shard sent to another one with a leg is kept.
    Answered { promise: PromiseKey },
    /// The same, and what was written down of it, to be kept together with the rest; `reply` waits until it is.
    Parts { promise: PromiseKey, entries: Vec<Entry>, reply: Option<Leg> },
    /// Everything that this shard handed to the storage up to this submission is kept.
    Kept { submission: u64 },
    /// Messages that this shard asked for have been read back, as far as they could be.
    ReadBack { ticket: u64, bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)> },
    /// The storage is in another state than before.
    StorageChanged,
    /// A proposed command was applied.
    Outcome { ticket: Ticket, outcome: Outcome },
    /// The control state says what this shard has to do.
    Effect(Effect),
    /// `shard` has caught up: those that waited for it read on.
    CaughtUp { shard: ShardId },
    /// Close every connection with this reason.
    CloseAll { reason: ReasonCode },
    /// Somebody wants to know something.
    Inspect(Box<Inspect>),
    /// End the connection of a client, and answer whether it had one; `None` if it has no session.
    Kick { client_id: Arc<str>, reply: oneshot::Sender<Option<bool>> },
}

impl Event {
    /// Whether it brings a message for subscribers of this shard.
    pub fn is_message(&self) -> bool {
        matches!(self, Event::Publish { .. } | Event::Shared { .. })
    }

    /// Bytes that count against the mailbox; 0 for what is no message.
    fn message_bytes(&self) -> usize {
        match self {
            Event::Publish { message, .. } | Event::Shared { message, .. } => message.size(),
            _ => 0,
        }
    }
}

#[derive(Debug, Default)]
struct Contents {
    events: Vec<Event>,
    messages: usize,
    bytes: usize,
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

    /// Gives everything to `each`, in order. Returns the shards that waited for that, one bit each.
    pub fn take(&self, each: impl FnMut(Event)) -> u64 {
        let mut contents = self.contents.lock();
        contents.messages = 0;
        contents.bytes = 0;
        contents.events.drain(..).for_each(each);
        std::mem::take(&mut contents.waiting)
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
        let message = Arc::new(Message {
            id: Default::default(),
            topic: "t".into(),
            payload: Default::default(),
            properties: Default::default(),
            qos: QoS::AtMostOnce,
            retain: false,
            expires_at: None,
            publisher: "p".into(),
        });
        Event::Publish { message, leg: None }
    }

    #[test]
    fn a_full_mailbox_stops_its_senders_and_names_them_when_it_is_emptied() {
        let mailbox = Mailbox::default();
        let mut batch: Vec<Event> = (0..limits::MAILBOX_MESSAGES_HIGH - 1).map(|_| message()).collect();
        assert!(!mailbox.push_batch(2, &mut batch));
        batch.push(message());
        assert!(mailbox.push_batch(3, &mut batch));
        let mut events = Vec::new();
        assert_eq!(mailbox.take(|event| events.push(event)), 1 << 3);
        assert_eq!(events.len(), limits::MAILBOX_MESSAGES_HIGH);
        batch.push(message());
        assert!(!mailbox.push_batch(3, &mut batch));
    }
}
