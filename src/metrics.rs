//! Every metric, declared once. A shard counts in its own set with plain loads and stores: one writer each, read by anyone,
//! summed when somebody asks.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

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
        Metrics { shards: (0..shards).map(|_| ShardMetrics::default()).collect() }
    }

    pub fn sum(&self, pick: impl Fn(&ShardMetrics) -> &Counter) -> u64 {
        self.shards.iter().map(|shard| pick(shard).get()).fold(0, u64::wrapping_add)
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|shard| &shard.messages_dropped[reason as usize])
    }
}

/// Whether the log may have one more line about `cause` now: one for each cause and second. The number is that of the lines left out since
/// the last one. Whoever can open a socket can make the broker log; without a limit a hostile client fills the disk.
pub fn admit_line(cause: &str) -> Option<u64> {
    static LINES: LazyLock<(Instant, LogThrottle)> = LazyLock::new(|| (Instant::now(), LogThrottle::default()));
    let (zero, throttle) = &*LINES;
    throttle.admit(cause, zero.elapsed().as_secs())
}

/// Causes of which the log remembers that they had their line in this second.
const LOG_CAUSES: usize = 4_096;

/// The causes of the last second, bounded: with more of them than [`LOG_CAUSES`], those that are new wait for the next one.
#[derive(Debug, Default)]
struct LogThrottle {
    seen: Mutex<HashMap<String, Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    second: u64,
    left_out: u64,
}

impl LogThrottle {
    fn admit(&self, cause: &str, second: u64) -> Option<u64> {
        let mut seen = self.seen.lock();
        if let Some(entry) = seen.get_mut(cause) {
            if entry.second == second {
                entry.left_out += 1;
                return None;
            }
            entry.second = second;
            return Some(std::mem::take(&mut entry.left_out));
        }
        if seen.len() >= LOG_CAUSES {
            seen.retain(|_, entry| entry.second == second);
            if seen.len() >= LOG_CAUSES {
                return None;
            }
        }
        seen.insert(cause.to_owned(), Seen { second, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_cause_and_second_and_the_rest_are_counted() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.admit("a", 1), Some(0));
        assert_eq!(throttle.admit("a", 1), None);
        assert_eq!(throttle.admit("a", 1), None);
        assert_eq!(throttle.admit("b", 1), Some(0));
        assert_eq!(throttle.admit("a", 2), Some(2));
        assert_eq!(throttle.admit("a", 3), Some(0));
    }

    #[test]
    fn causes_that_an_attacker_invents_do_not_grow_without_bound() {
        let throttle = LogThrottle::default();
        for n in 0..2 * LOG_CAUSES {
            throttle.admit(&n.to_string(), 5);
        }
        assert!(throttle.seen.lock().len() <= LOG_CAUSES);
        assert_eq!(throttle.admit("new", 6), Some(0));
    }
}
