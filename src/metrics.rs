//! Every metric, declared once. A shard counts in its own set with plain loads and stores: one writer each, read by anyone,
//! summed when somebody asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::limits;

/// A number with one writer. Readers on other threads see it soon.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Why a message was not delivered to a session that it matched, or to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The session's queue was full; which message went is the queue's policy.
    QueueFull,
    /// Its Message Expiry Interval ran out.
    Expired,
    /// Nobody is subscribed.
    NoSubscribers,
    /// Larger than the Maximum Packet Size of the client.
    TooLarge,
    /// QoS 0 for a connection that does not read fast enough.
    Qos0Slow,
    /// QoS 0 for a session without a connection.
    Disconnected,
    /// The retained store is full.
    RetainedFull,
    /// A shared message whose members all left.
    NoMember,
}

impl DropReason {
    pub const ALL: [DropReason; 8] = [
        DropReason::QueueFull,
        DropReason::Expired,
        DropReason::NoSubscribers,
        DropReason::TooLarge,
        DropReason::Qos0Slow,
        DropReason::Disconnected,
        DropReason::RetainedFull,
        DropReason::NoMember,
    ];

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::Expired => "expired",
            DropReason::NoSubscribers => "no_subscribers",
            DropReason::TooLarge => "too_large",
            DropReason::Qos0Slow => "qos0_slow",
            DropReason::Disconnected => "disconnected",
            DropReason::RetainedFull => "retained_full",
            DropReason::NoMember => "no_member",
        }
    }
}

/// What one shard counts.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    pub connections: Counter,
    pub connections_accepted: Counter,
    pub connections_closed: Counter,
    pub sessions: Counter,
    pub sessions_ended: Counter,
    pub sessions_taken_over: Counter,
    pub sessions_resumed: Counter,
    pub subscriptions: Counter,
    pub bytes_received: Counter,
    pub bytes_sent: Counter,
    pub packets_received: Counter,
    /// PUBLISH packets from clients, by QoS.
    pub publish_received: [Counter; 3],
    /// PUBLISH packets handed to connections, by QoS.
    pub publish_sent: [Counter; 3],
    pub messages_dropped: [Counter; DropReason::ALL.len()],
    pub wills_published: Counter,
    /// Connections closed because of what they sent.
    pub protocol_errors: Counter,
    /// Times this shard stopped reading its sockets because another one had fallen behind.
    pub mailbox_stalls: Counter,
}

impl ShardMetrics {
    pub fn dropped(&self, reason: DropReason, n: u64) {
        self.messages_dropped[reason as usize].add(n);
    }
}

/// The metrics of a node: one set for each shard.
#[derive(Debug, Default)]
pub struct Metrics {
    pub shards: Vec<ShardMetrics>,
}

impl Metrics {
    pub fn new(shards: usize) -> Metrics {
        Metrics {
            shards: (0..shards).map(|_| ShardMetrics::default()).collect(),
        }
    }

    pub fn sum(&self, pick: impl Fn(&ShardMetrics) -> &Counter) -> u64 {
        self.shards
            .iter()
            .map(|shard| pick(shard).get())
            .fold(0, u64::wrapping_add)
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|shard| &shard.messages_dropped[reason as usize])
    }
}

/// Lets one log line through for each cause and second, and tells how many it held back.
#[derive(Debug, Default)]
pub struct LogThrottle {
    seen: Mutex<HashMap<String, Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    second: u64,
    lines: u32,
    held_back: u64,
}

impl LogThrottle {
    /// Whether a line for `cause` may be written at `now` (milliseconds); the number is that of the lines held back
    /// since the last one.
    pub fn admit(&self, cause: &str, now: u64) -> Option<u64> {
        let second = now / 1000;
        let mut seen = self.seen.lock();
        if seen.len() >= limits::LOG_CAUSES && !seen.contains_key(cause) {
            seen.retain(|_, entry| entry.second == second);
            if seen.len() >= limits::LOG_CAUSES {
                return None;
            }
        }
        let entry = seen.entry(cause.to_owned()).or_insert(Seen {
            second,
            lines: 0,
            held_back: 0,
        });
        if entry.second != second {
            entry.second = second;
            entry.lines = 0;
        }
        if entry.lines >= limits::LOG_LINES_PER_CAUSE_AND_SECOND {
            entry.held_back += 1;
            return None;
        }
        entry.lines += 1;
        Some(std::mem::take(&mut entry.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_cause_and_second_and_the_rest_are_counted() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.admit("a", 1_000), Some(0));
        assert_eq!(throttle.admit("a", 1_500), None);
        assert_eq!(throttle.admit("a", 1_999), None);
        assert_eq!(throttle.admit("b", 1_500), Some(0));
        assert_eq!(throttle.admit("a", 2_000), Some(2));
    }

    #[test]
    fn causes_that_an_attacker_invents_do_not_grow_without_bound() {
        let throttle = LogThrottle::default();
        for n in 0..2 * limits::LOG_CAUSES {
            throttle.admit(&n.to_string(), 5_000);
        }
        assert!(throttle.seen.lock().len() <= limits::LOG_CAUSES);
        assert_eq!(throttle.admit("new", 6_000), Some(0));
    }
}
