//! `[mqtt]`: limits and capabilities of the protocol, the same on every listener.

use std::time::Duration;

use super::reading::Section;
use super::units::NEVER;

pub(super) const KEYS: &[&str] = &[
    "max_packet_size",
    "max_inflight",
    "receive_maximum",
    "max_queued_messages",
    "max_queued_bytes",
    "queue_full",
    "queue_qos0",
    "session_expiry_max",
    "retain_available",
    "retained_max_messages",
    "retained_max_bytes",
    "max_topic_levels",
    "topic_alias_max",
    "max_keepalive",
    "keepalive_backoff",
    "max_subscriptions",
    "max_client_id_bytes",
];

/// The largest packet that MQTT can frame: a fixed header of 5 bytes and a Remaining Length of 268,435,455 (MQTT 5.0, 2.1.4).
const PACKET_BYTES_MAX: u32 = 268_435_460;

/// `[mqtt]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mqtt {
    /// Largest packet accepted, the fixed header included, in bytes; told to the client as Maximum Packet Size
    /// (MQTT 5.0, 3.2.2.3.6). 128 to 268,435,460.
    pub max_packet_size: u32,
    /// Most QoS 1 and QoS 2 messages on their way to one client, whatever larger Receive Maximum it offers. 1 to 65,535.
    pub max_inflight: u16,
    /// The Receive Maximum that the server states: most QoS 1 and QoS 2 publishes of one client that are not yet acknowledged
    /// (MQTT 5.0, 3.2.2.3.3). 1 to 65,535.
    pub receive_maximum: u16,
    /// Most messages in the queue of one session. 1 to 10,000,000.
    pub max_queued_messages: usize,
    /// Most bytes in the queue of one session. 1 KiB to 1 TiB; at least `max_packet_size`.
    pub max_queued_bytes: usize,
    /// What happens to a message that finds a queue full.
    pub queue_full: QueueFull,
    /// Whether QoS 0 messages are queued while the client is away (MQTT 5.0, 4.1: a choice of the server).
    pub queue_qos0: bool,
    /// Longest Session Expiry Interval granted. [`NEVER`] grants all that is asked.
    pub session_expiry_max: Duration,
    /// Whether retained messages are kept; told to the client as Retain Available (MQTT 5.0, 3.2.2.3.5).
    pub retain_available: bool,
    /// Most retained messages on the node. 0 to 1,000,000,000.
    pub retained_max_messages: usize,
    /// Most bytes of retained messages on the node, topics and properties included. 0 to 1 PiB.
    pub retained_max_bytes: usize,
    /// Most levels of a topic name or filter. 1 to 65,535.
    pub max_topic_levels: usize,
    /// The Topic Alias Maximum that the server states, and the most aliases it uses itself (MQTT 5.0, 3.2.2.3.8). 0 turns aliases off.
    pub topic_alias_max: u16,
    /// Longest Keep Alive granted, in seconds; told to the client as Server Keep Alive (MQTT 5.0, 3.2.2.3.14). 0 grants all that is asked.
    pub max_keepalive: u16,
    /// How many times its Keep Alive a client may be silent. At least the 1.5 that it may rely on `[MQTT-3.1.2-22]`; at most 10.
    pub keepalive_backoff: f64,
    /// Most subscriptions of one session. 1 to 10,000,000.
    pub max_subscriptions: usize,
    /// Longest client id, in bytes. At least the 23 that every server accepts `[MQTT-3.1.3-5]`; at most 65,535.
    pub max_client_id_bytes: usize,
}

/// What happens to a message that finds a queue full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueFull {
    /// The oldest message of the queue makes room.
    DropOldest,
    /// The new message is dropped.
    DropNewest,
    /// The new message is dropped, and a connected client is disconnected with Quota Exceeded.
    Disconnect,
}

impl Default for Mqtt {
    fn default() -> Self {
        Mqtt {
            max_packet_size: 2_000_000,
            max_inflight: 100,
            receive_maximum: 100,
            max_queued_messages: 10_000,
            max_queued_bytes: 16_000_000,
            queue_full: QueueFull::DropOldest,
            queue_qos0: false,
            session_expiry_max: Duration::from_secs(7 * 86_400),
            retain_available: true,
            retained_max_messages: 2_000_000,
            retained_max_bytes: 1_000_000_000,
            max_topic_levels: 32,
            topic_alias_max: 32,
            max_keepalive: 0,
            keepalive_backoff: 1.5,
            max_subscriptions: 10_000,
            max_client_id_bytes: 1024,
        }
    }
}

impl Mqtt {
    /// The longest Session Expiry Interval granted, in whole seconds; `u32::MAX` means that a session need not end.
    pub fn session_expiry_max_secs(&self) -> u32 {
        u32::try_from(self.session_expiry_max.as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn read(section: &mut Section<'_, '_>) -> Mqtt {
        let default = Mqtt::default();
        let queue_full = [
            ("drop-oldest", QueueFull::DropOldest),
            ("drop-newest", QueueFull::DropNewest),
            ("disconnect", QueueFull::Disconnect),
        ];
        Mqtt {
            max_packet_size: section.size("max_packet_size", default.max_packet_size, 128..=PACKET_BYTES_MAX),
            max_inflight: section.integer("max_inflight", default.max_inflight, 1..=u16::MAX),
            receive_maximum: section.integer("receive_maximum", default.receive_maximum, 1..=u16::MAX),
            max_queued_messages: section.integer("max_queued_messages", default.max_queued_messages, 1..=10_000_000),
            max_queued_bytes: section.size("max_queued_bytes", default.max_queued_bytes, 1 << 10..=1 << 40),
            queue_full: section.choice("queue_full", default.queue_full, &queue_full),
            queue_qos0: section.bool("queue_qos0", default.queue_qos0),
            session_expiry_max: section.duration_or(
                "session_expiry_max",
                default.session_expiry_max,
                Duration::ZERO..=NEVER - Duration::from_secs(1),
                ("never", NEVER),
            ),
            retain_available: section.bool("retain_available", default.retain_available),
            retained_max_messages: section.integer(
                "retained_max_messages",
                default.retained_max_messages,
                0..=1_000_000_000,
            ),
            retained_max_bytes: section.size("retained_max_bytes", default.retained_max_bytes, 0..=1 << 50),
            max_topic_levels: section.integer("max_topic_levels", default.max_topic_levels, 1..=65_535),
            topic_alias_max: section.integer("topic_alias_max", default.topic_alias_max, 0..=u16::MAX),
            max_keepalive: section.integer("max_keepalive", default.max_keepalive, 0..=u16::MAX),
            keepalive_backoff: section.float("keepalive_backoff", default.keepalive_backoff, 1.5..=10.0),
            max_subscriptions: section.integer("max_subscriptions", default.max_subscriptions, 1..=10_000_000),
            max_client_id_bytes: section.integer("max_client_id_bytes", default.max_client_id_bytes, 23..=65_535),
        }
    }
}
