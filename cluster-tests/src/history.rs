//! What clients asked for, what they were promised, and what they got, in one order.
//!
//! Clients on many threads record into one [`History`]. An event that asks for something is recorded *before* its bytes leave, one that
//! is a promise or a message *after* its bytes came: so where one event stands before another, it happened before. The
//! [`Checker`](crate::checker::Checker) reads it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The name of a client, which is its client id.
pub type Name = Arc<str>;

/// Which message: its publisher and the publisher's count. The payload begins with it as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    pub publisher: Name,
    pub number: u64,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.publisher, self.number)
    }
}

impl MessageId {
    pub fn new(publisher: &str, number: u64) -> Self {
        Self { publisher: publisher.into(), number }
    }

    /// Reads the beginning of a payload.
    pub fn of(payload: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(payload).ok()?;
        let mut words = text.split(' ');
        Some(Self::new(words.next()?, words.next()?.parse().ok()?))
    }

    /// A payload of at least `length` bytes.
    pub fn payload(&self, length: usize) -> Vec<u8> {
        let mut payload = format!("{self} ").into_bytes();
        payload.resize(payload.len().max(length), b'.');
        payload
    }
}

/// What a retained publish does to the value of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    No,
    Set,
    Delete,
}

/// One event. Packets that are sent again are not recorded again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A CONNECT. `clean`: Clean Start (Clean Session); `keeps`: the session shall stay when the connection ends.
    ConnectSent {
        client: Name,
        clean: bool,
        keeps: bool,
    },
    /// The CONNACK.
    Connected {
        client: Name,
        present: bool,
    },
    /// The session is known to have ended, by its expiry for example.
    Ended {
        client: Name,
    },
    SubscribeSent {
        client: Name,
        filter: String,
    },
    /// A SUBACK; `None`: refused.
    Subscribed {
        client: Name,
        filter: String,
        granted: Option<u8>,
    },
    UnsubscribeSent {
        client: Name,
        filter: String,
    },
    Unsubscribed {
        client: Name,
        filter: String,
    },
    /// A PUBLISH for the first time, or a CONNECT with this Will.
    PublishSent {
        message: MessageId,
        topic: String,
        qos: u8,
        retain: Retain,
    },
    /// The PUBLISH once more, on another connection, because no answer had come.
    Resent {
        message: MessageId,
    },
    /// PUBACK or PUBREC without an error; for a Will: its connection has ended so that it must be published.
    Acknowledged {
        message: MessageId,
    },
    /// The Will was taken back: the server has processed a DISCONNECT.
    Withdrawn {
        message: MessageId,
    },
    /// A PUBLISH from the server. What comes again with the packet identifier of an unfinished QoS 2 handshake is not recorded.
    Received {
        client: Name,
        message: MessageId,
        topic: String,
        qos: u8,
        dup: bool,
        retain: bool,
    },
    /// The retained value of a topic as a fresh subscriber got it, while no publisher was at work.
    RetainedRead {
        topic: String,
        value: Option<MessageId>,
    },
    /// A client saw with its own eyes what must not be.
    Broken {
        client: Name,
        what: String,
    },
    /// The broker was killed, or its power cut.
    Killed,
}

/// All events so far.
pub struct History {
    began: Instant,
    events: Mutex<Vec<(Duration, Event)>>,
}

impl Default for History {
    fn default() -> Self {
        Self { began: Instant::now(), events: Mutex::new(Vec::new()) }
    }
}

impl History {
    pub fn record(&self, event: Event) {
        let mut events = self.events.lock().expect("no holder panics");
        events.push((self.began.elapsed(), event));
    }

    /// The events from a position on.
    pub fn since(&self, position: usize) -> Vec<Event> {
        let events = self.events.lock().expect("no holder panics");
        events[position..].iter().map(|(_, event)| event.clone()).collect()
    }

    pub fn all(&self) -> String {
        let events = self.events.lock().expect("no holder panics");
        let lines = events
            .iter()
            .enumerate()
            .map(|(place, (time, event))| format!("{place:>8} {:>9.3} {event:?}", time.as_secs_f64()));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The last events that name one of these words, with their places and times, for messages.
    pub fn about(&self, words: &[String]) -> String {
        const LINES: usize = 60;
        let events = self.events.lock().expect("no holder panics");
        let wanted = |text: &str| words.iter().any(|word| text.contains(word.as_str())) || text == "Killed";
        let lines = events.iter().enumerate().rev().map(|(place, (time, event))| (place, time, format!("{event:?}")));
        let mut lines: Vec<_> = lines
            .filter(|(.., text)| wanted(text))
            .take(LINES)
            .map(|(place, time, text)| format!("{place:>8} {:>9.3} {text}", time.as_secs_f64()))
            .collect();
        lines.reverse();
        lines.join("\n")
    }
}
