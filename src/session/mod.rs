//! The session machine: what MQTT lets one client id remember, and the protocol of the connection that it has now, if any.
//!
//! Pure: packets and messages in, packets into a [`Wire`] and items into a [`Journal`] out. The shard of the client id owns each
//! [`Session`] and calls it; nothing here knows a socket or a clock. Read in this order: [`session`](self) for the state,
//! `inbound` for what the client sends, `outbound` for what is sent to it, `handshake` for CONNECT and CONNACK, `record` and `at_rest` for what is on disk, `wills` for
//! the Wills that it has had, `export` and `import` for a session that moves to another node. `tests.rs`
//! walks each QoS flow with a reconnect at every step.
//!
//! Invariants: a packet identifier is in the inflight window at most once; the window never holds more than the client's
//! Receive Maximum and `mqtt.max_inflight` allow when something is added; the queue never exceeds its limits; a message is in the queue
//! or in the window, never in both.

mod at_rest;
mod copied;
mod export;
mod handshake;
mod import;
mod inbound;
mod keep_alive;
mod outbound;
mod packet_ids;
mod queue;
mod record;
mod rights;
mod seen;
#[allow(clippy::module_inception)]
mod session;
mod subscribing;
#[cfg(test)]
mod tests;
mod topic_aliases;
pub mod will;
mod wills;
mod window;

use crate::metrics::ShardMetrics;
use crate::mqtt::ReasonCode;

pub use export::{Bounds, Exporter, Step};
pub use handshake::{Agreed, accept};
pub use inbound::{Answer, Inbound, Topic};
pub use keep_alive::KeepAlive;
pub use outbound::{Delivery, Outgoing, ShareText, Verdict, Wire};
pub use queue::{Queue, QueueFull, Queued, QueuedBody, StoredBody, SubscriptionIds};
pub use record::{Asked, Item, Journal, NoJournal, Position, Restored, Shelf};
pub use rights::{Rights, Ruling};
pub use seen::{Missed, Seen};
pub use session::{Connected, Session, Subscription};
pub use subscribing::{Judged, few_enough};

/// The limits of sessions, from the section `[mqtt]` of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Bytes of the largest control packet that a client may send [MQTT-3.2.2-15].
    pub packet_size_max: u32,
    /// PUBLISH packets of QoS 1 and 2 on their way to one client.
    pub inflight_max: u16,
    /// PUBLISH packets of QoS 1 and 2 that one client may have unacknowledged [MQTT-3.3.4-9].
    pub receive_maximum: u16,
    pub topic_alias_max: u16,
    pub topic_levels_max: usize,
    pub subscriptions_max: usize,
    /// Subscriptions of one session whose filters name no level, as `#` and `+/#` do; 0: as many as it likes.
    pub broad_subscriptions_max: usize,
    pub queued_messages_max: usize,
    pub queued_bytes_max: usize,
    /// Bytes of a queue that stay in memory when they are on disk too (`storage.queue_window_bytes`).
    pub queue_window_bytes: usize,
    pub queue_full: QueueFull,
    /// Whether QoS 0 messages are kept for a session without a connection.
    pub queue_qos0: bool,
    /// Seconds; `u32::MAX` for ever.
    pub session_expiry_max_secs: u32,
    pub retain_available: bool,
    pub keep_alive_backoff: f64,
    /// Bytes of an encoded Will.
    pub will_bytes_max: usize,
}

/// What a call of the machine needs of the world around it.
pub struct Turn<'a, J> {
    /// Milliseconds of the node's clock.
    pub now: u64,
    pub limits: &'a Limits,
    pub metrics: &'a ShardMetrics,
    pub journal: J,
}

/// What the client did that the specification forbids: the connection ends with this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    pub reason: ReasonCode,
    /// The rule, with the number of its statement, for the log and the Reason String.
    pub what: &'static str,
}

impl Violation {
    pub fn new(reason: ReasonCode, what: &'static str) -> Violation {
        Violation { reason, what }
    }
}
