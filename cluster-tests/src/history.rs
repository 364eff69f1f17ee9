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
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    pub publisher: Name,
    pub number: u64,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.publisher, self.number)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{self}>")
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

    /// Writes everything to the file that `HOLDFAST_HISTORY` names, if it does, for whom the events about one failure are not enough.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write_if_asked(&self) {
        let Some(path) = std::env::var_os("HOLDFAST_HISTORY") else { return };
        let events = self.events.lock().expect("no holder panics");
        let lines = events.iter().enumerate().map(|(place, (time, event))| line(place, *time, event));
        std::fs::write(path, lines.collect::<Vec<_>>().join("\n")).expect("the file that was asked for can be written");
    }

    /// What messages are told with: the last events of these messages, and what else these clients did beside publishing and receiving.
    pub fn about(&self, clients: &[Name], messages: &[MessageId]) -> String {
        let events = self.events.lock().expect("no holder panics");
        let of_client = |event: &Event| match event {
            Event::ConnectSent { client, .. }
            | Event::Connected { client, .. }
            | Event::Ended { client }
            | Event::SubscribeSent { client, .. }
            | Event::Subscribed { client, .. }
            | Event::UnsubscribeSent { client, .. }
            | Event::Unsubscribed { client, .. }
            | Event::Broken { client, .. } => clients.contains(client),
            Event::Killed => true,
            _ => false,
        };
        let of_message = |event: &Event| match event {
            Event::PublishSent { message, .. }
            | Event::Resent { message }
            | Event::Acknowledged { message }
            | Event::Withdrawn { message }
            | Event::Received { message, .. } => messages.contains(message),
            Event::RetainedRead { value: Some(message), .. } => messages.contains(message),
            _ => false,
        };
        let last = |wanted: &dyn Fn(&Event) -> bool, lines: usize| {
            let found = events.iter().enumerate().rev().filter(|(_, (_, event))| wanted(event)).take(lines);
            found.map(|(place, (time, event))| (place, line(place, *time, event))).collect::<Vec<_>>()
        };
        let mut lines = last(&of_message, 40);
        lines.extend(last(&of_client, 30));
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    }
}

fn line(place: usize, time: Duration, event: &Event) -> String {
    format!("{place:>8} {:>9.3} {event:?}", time.as_secs_f64())
}
