//! An application message at rest: in a queue, in an inflight window, as a retained value, or on its way to another shard.
//!
//! It owns its bytes and is shared by reference count: one body per node, however many sessions queue it. A message is
//! never changed once made; what differs from one subscriber to the next (packet id, QoS, subscription identifiers, topic alias)
//! is written in front of it when it is sent.

use std::sync::Arc;

use bytes::Bytes;

use super::QoS;

/// The place of a message in the stream of the shard that accepted it, on the node that did. Streams keep their order to every destination,
/// so one number for each stream tells what a receiver has seen. No two messages ever have the same, whatever the node and however often it starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// The lower half of the id of the node; 0 for what was written before messages named it.
    pub node: u64,
    pub shard: u16,
    pub sequence: u64,
}

/// An application message with everything that travels to its subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    /// The time of the hybrid clock at which it became the retained message of its topic: of two, the one with the greater (stamp, node) stays, on every
    /// node. 0 for one that is not retained.
    pub stamp: u64,
    /// The topic name, valid as such; never an alias.
    pub topic: Arc<str>,
    pub payload: Bytes,
    /// The properties that are forwarded unchanged and in order, as raw valid bytes: payload format, content type,
    /// response topic, correlation data, user properties [MQTT-3.3.2-17], [MQTT-3.3.2-18].
    pub properties: Bytes,
    /// The QoS at which the publisher sent it.
    pub qos: QoS,
    /// The RETAIN flag as the publisher set it, for Retain As Published [MQTT-3.3.1-13].
    pub retain: bool,
    /// When the Message Expiry Interval runs out, in milliseconds of the node's clock.
    pub expires_at: Option<u64>,
    /// The client id of the publisher, for No Local [MQTT-3.8.3-3]. A Will has its client's.
    pub publisher: Arc<str>,
}

impl Message {
    /// Bytes that this message keeps in memory, near enough for limits and counters.
    pub fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + std::mem::size_of::<Self>()
    }

    /// Whether the Message Expiry Interval has run out [MQTT-3.3.2-5].
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What is left of a Message Expiry Interval, in whole seconds [MQTT-3.3.2-6]. What has not expired never says 0: part of a second
/// counts as one.
pub fn remaining_secs(expires_at: Option<u64>, now: u64) -> Option<u32> {
    expires_at.map(|at| u32::try_from(at.saturating_sub(now).div_ceil(1000)).unwrap_or(u32::MAX))
}
