//! Every metric, declared once. A shard counts in its own set with plain loads and stores: one writer each, read by anyone,
//! summed when somebody asks.

mod closes;
mod histogram;
mod log_lines;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use closes::CloseReason;
pub use histogram::{BOUNDS_US, Histogram};
pub use log_lines::{LOG_QUIET_SECS, LeftOut, admit_line, take_left_out};

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

    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
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
    /// There is no room on the disk.
    StorageFull,
    /// A shared message whose members all left.
    NoMember,
    /// It could not be read back from disk.
    Damaged,
    /// QoS 0 for a node that is far behind.
    NodeBehind,
    /// For sessions of a node that has died before it had the message.
    NodeGone,
    /// Its publisher may not publish it, or its subscriber may not read it.
    Acl,
}

impl DropReason {
    pub const ALL: [DropReason; 13] = [
        DropReason::QueueFull,
        DropReason::Expired,
        DropReason::NoSubscribers,
        DropReason::TooLarge,
        DropReason::Qos0Slow,
        DropReason::Disconnected,
        DropReason::RetainedFull,
        DropReason::StorageFull,
        DropReason::NoMember,
        DropReason::Damaged,
        DropReason::NodeBehind,
        DropReason::NodeGone,
        DropReason::Acl,
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
            DropReason::StorageFull => "storage_full",
            DropReason::NoMember => "no_member",
            DropReason::Damaged => "damaged",
            DropReason::NodeBehind => "node_behind",
            DropReason::NodeGone => "node_gone",
            DropReason::Acl => "acl",
        }
    }
}

/// Why a connection was refused before it had a session, in groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum RefusalGroup {
    /// No user name, an unknown one, a wrong password, or a method that is not known.
    Auth,
    /// Bytes that are no CONNECT packet.
    Malformed,
    /// A handshake or the CONNECT packet did not come in time.
    TimedOut,
    /// The TLS handshake failed, or what came was no TLS.
    Tls,
    /// The WebSocket upgrade was refused.
    Upgrade,
    /// The listener is full, or too many passwords wait to be checked.
    Limit,
    /// The address is banned.
    Banned,
    /// Connections come faster than they may.
    Rate,
    /// A trusted proxy sent no PROXY header, or none that is one.
    Proxy,
    /// A good CONNECT that asks for what is not served, such as a version that the listener does not speak.
    Other,
}

impl RefusalGroup {
    pub const ALL: [RefusalGroup; 10] = [
        RefusalGroup::Auth,
        RefusalGroup::Malformed,
        RefusalGroup::TimedOut,
        RefusalGroup::Tls,
        RefusalGroup::Upgrade,
        RefusalGroup::Limit,
        RefusalGroup::Banned,
        RefusalGroup::Rate,
        RefusalGroup::Proxy,
        RefusalGroup::Other,
    ];

    /// The last level of its `$SYS` topic.
    pub fn label(self) -> &'static str {
        match self {
            RefusalGroup::Auth => "auth",
            RefusalGroup::Malformed => "malformed",
            RefusalGroup::TimedOut => "timed_out",
            RefusalGroup::Tls => "tls",
            RefusalGroup::Upgrade => "upgrade",
            RefusalGroup::Limit => "limit",
            RefusalGroup::Banned => "banned",
            RefusalGroup::Rate => "rate",
            RefusalGroup::Proxy => "proxy",
            RefusalGroup::Other => "other",
        }
    }
}

/// Connections refused at all listeners of a node since the start, by group. Every shard counts here: it happens seldom enough.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; RefusalGroup::ALL.len()]);

impl Refusals {
    pub fn count(&self, group: RefusalGroup) {
        self.0[group as usize].fetch_add(1, Relaxed);
    }

    pub fn get(&self, group: RefusalGroup) -> u64 {
        self.0[group as usize].load(Relaxed)
    }
}

/// What became of an attempt to prove who one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum AuthResult {
    Allowed,
    Denied,
    /// Not judged: there was no room, or too many attempts had failed before.
    Busy,
}

impl AuthResult {
    pub const ALL: [AuthResult; 3] = [AuthResult::Allowed, AuthResult::Denied, AuthResult::Busy];

    /// The value of the label `result`.
    pub fn label(self) -> &'static str {
        match self {
            AuthResult::Allowed => "allow",
            AuthResult::Denied => "deny",
            AuthResult::Busy => "busy",
        }
    }
}

/// Ways to prove who one is.
pub const AUTH_METHODS: usize = 4;

/// Attempts to prove who one is, by method and result. Every shard counts here: it happens once for each connection.
#[derive(Debug, Default)]
pub struct AuthCounts([[AtomicU64; AuthResult::ALL.len()]; AUTH_METHODS]);

impl AuthCounts {
    pub fn count(&self, method: usize, result: AuthResult) {
        self.0[method][result as usize].fetch_add(1, Relaxed);
    }

    pub fn get(&self, method: usize, result: AuthResult) -> u64 {
        self.0[method][result as usize].load(Relaxed)
    }
}

/// Types of packets of a client, in the order of their numbers from 1 (2.1.2): the values of the label `packet`.
pub const PACKETS: [&str; 15] = [
    "connect",
    "connack",
    "publish",
    "puback",
    "pubrec",
    "pubrel",
    "pubcomp",
    "subscribe",
    "suback",
    "unsubscribe",
    "unsuback",
    "pingreq",
    "pingresp",
    "disconnect",
    "auth",
];

/// Stages of a PUBLISH: the values of the label `stage`.
pub const STAGES: [&str; 3] = ["routed", "mailbox", "written"];

/// The places of the stages.
pub const ROUTED: usize = 0;
pub const MAILBOX: usize = 1;
pub const WRITTEN: usize = 2;

/// Of so many PUBLISH packets of a shard one is timed: a power of two.
pub const SAMPLED_ONE_IN: u64 = 64;

/// What one shard counts.
#[derive(Debug, Default)]
pub struct ShardMetrics {
    pub connections: Counter,
    pub connections_accepted: Counter,
    /// Connections of clients that come and go too often.
    pub connections_flapping: Counter,
    /// Connections that ended, by reason; those that vanished without a word are [`CloseReason::Lost`].
    pub connections_closed: [Counter; CloseReason::ALL.len()],
    pub sessions: Counter,
    pub sessions_ended: Counter,
    /// Those of them whose Session Expiry Interval was over; a Clean Start is none.
    pub sessions_expired: Counter,
    pub sessions_taken_over: Counter,
    pub sessions_resumed: Counter,
    pub subscriptions: Counter,
    pub bytes_received: Counter,
    pub bytes_sent: Counter,
    /// Packets from clients, by type.
    pub packets_received: [Counter; PACKETS.len()],
    /// PUBLISH packets from clients, by QoS.
    pub publish_received: [Counter; 3],
    /// Bytes of the payloads of PUBLISH packets from clients, and of those handed to connections.
    pub publish_bytes_received: Counter,
    pub publish_bytes_sent: Counter,
    /// Packets for clients, by type.
    pub packets_sent: [Counter; PACKETS.len()],
    /// PUBLISH packets handed to connections, by QoS.
    pub publish_sent: [Counter; 3],
    /// Packets of QoS 1 and 2 that clients have acknowledged to the end, by QoS less one.
    pub publish_acked: [Counter; 2],
    /// From the accepted socket to the CONNACK.
    pub connect_duration: Histogram,
    /// Of one PUBLISH in [`SAMPLED_ONE_IN`]: from its packet to when it is routed, and to when the sockets of this shard have been written to; and of
    /// batches from other shards, how long they waited in the mailbox.
    pub publish_duration: [Histogram; STAGES.len()],
    pub messages_dropped: [Counter; DropReason::ALL.len()],
    pub wills_published: Counter,
    /// Questions that rules decided: publish, subscribe and read, and of each those that were allowed and those that were not.
    pub acl_checks: [[Counter; 2]; 3],
    /// Connections closed because of what they sent.
    pub protocol_errors: Counter,
    /// Times this shard stopped reading its sockets because another one had fallen behind.
    pub mailbox_stalls: Counter,
    /// Messages sent to other nodes, and those that came from there.
    pub forwarded: Counter,
    pub forwards_received: Counter,
    /// Bytes of the data connections between nodes.
    pub link_bytes_sent: Counter,
    pub link_bytes_received: Counter,
    /// Data connections closed because the other node did not read the answers.
    pub links_unread: Counter,
    /// Sessions that came from another node, and those that went to one.
    pub sessions_taken: Counter,
    /// Sessions that this node has taken over from one that had died; and such of which there was no copy.
    pub sessions_inherited: Counter,
    pub sessions_lost: Counter,
    pub sessions_given: Counter,
    /// SUBSCRIBE packets that were refused because not every node routed for them in time.
    pub subscribes_timed_out: Counter,
    /// Messages of share groups that a node refused because it had no member for them, and those that other nodes had accepted and that are not kept any more for
    /// the case that these nodes die.
    pub shares_refused: Counter,
    pub shares_forgotten: Counter,
    /// Messages of QoS 2 of which all nodes were asked whether a member has them.
    pub shares_asked: Counter,
    /// Answers about such messages that cannot be said once more.
    pub share_answers_forgotten: Counter,
    /// Messages of share groups that this shard keeps until they are settled, and their bytes. No counts of what has happened.
    pub shares_kept: Counter,
    pub shares_kept_bytes: Counter,
    /// Sessions that no other node has completely, and bytes of what was written down and is not on both nodes yet. No counts of what has happened.
    pub sessions_without_copy: Counter,
    pub copies_unstable_bytes: Counter,
    /// When the event loop last came round to its timers, in milliseconds of the node's clock. No count; it is not summed.
    pub beat_at: Counter,
}

impl ShardMetrics {
    /// A packet of that type, by its number from 1, is handed to a connection.
    pub fn packet_sent(&self, packet_type: usize) {
        self.packets_sent[packet_type - 1].add(1);
    }

    pub fn dropped(&self, reason: DropReason, n: u64) {
        self.messages_dropped[reason as usize].add(n);
    }
}

/// The metrics of a node: one set for each shard.
#[derive(Debug, Default)]
pub struct Metrics {
    pub shards: Vec<ShardMetrics>,
    pub reload: ReloadFigures,
}

/// What became of the last reload of the configuration.
#[derive(Debug, Default)]
pub struct ReloadFigures {
    /// 1: it was refused, or a file that it names was.
    pub failed: Counter,
    /// When one was good, in seconds since 1970; 0: none was yet.
    pub success_secs: Counter,
}

impl Metrics {
    pub fn new(shards: usize) -> Metrics {
        Metrics { shards: (0..shards).map(|_| ShardMetrics::default()).collect(), reload: ReloadFigures::default() }
    }

    pub fn sum(&self, pick: impl Fn(&ShardMetrics) -> &Counter) -> u64 {
        self.shards.iter().map(|shard| pick(shard).get()).fold(0, u64::wrapping_add)
    }

    /// Connections that ended, whatever the reason.
    pub fn closed(&self) -> u64 {
        CloseReason::ALL.iter().map(|reason| self.sum(|shard| &shard.connections_closed[*reason as usize])).sum()
    }

    /// Packets from clients, whatever their type.
    pub fn packets_received(&self) -> u64 {
        (0..PACKETS.len()).map(|packet| self.sum(|shard| &shard.packets_received[packet])).sum()
    }

    /// Packets for clients, whatever their type.
    pub fn packets_sent(&self) -> u64 {
        (0..PACKETS.len()).map(|packet| self.sum(|shard| &shard.packets_sent[packet])).sum()
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|shard| &shard.messages_dropped[reason as usize])
    }
}
