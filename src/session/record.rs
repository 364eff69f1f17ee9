//! What a persistent session writes down. Folded over an empty session, the records of one give back all of it that must
//! outlive the connection and the process: subscriptions, the queue with its order, packet identifiers of both directions.
//!
//! At `durability = "memory"` nobody listens ([`NoJournal`]). The property test in `session/tests.rs` holds the fold equal
//! to the session after every step.

use std::sync::Arc;

use crate::mqtt::{Message, PacketId, QoS, SubscriptionOptions};

use super::queue::SubscriptionIds;

/// The place of a message in the queue of one session: grows by one with each message that is put there.
pub type Position = u64;

/// One change of a session that must survive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Subscribed {
        filter: Arc<str>,
        options: SubscriptionOptions,
        subscription_id: Option<u32>,
    },
    Unsubscribed {
        filter: Arc<str>,
    },
    /// A message entered the queue.
    Queued {
        position: Position,
        message: Arc<Message>,
        qos: QoS,
        retain: bool,
        subscription_ids: SubscriptionIds,
        share: Option<Arc<str>>,
    },
    /// It was given a packet identifier and written to a connection for the first time.
    Sent {
        position: Position,
        packet_id: PacketId,
    },
    /// PUBREC came for it: only the PUBREL is ever sent again [MQTT-4.3.3-10].
    Received {
        packet_id: PacketId,
    },
    /// It is done with: acknowledged to the end, dropped, or given back to its share group.
    Done {
        position: Position,
    },
    /// A QoS 2 PUBLISH of the client with this identifier was accepted; a repetition is not routed again.
    Accepted {
        packet_id: PacketId,
    },
    /// The client released it with PUBREL.
    Released {
        packet_id: PacketId,
    },
}

/// Where a session's records go.
pub trait Journal {
    fn record(&mut self, client_id: &Arc<str>, record: Record);
}

/// The journal of durability level *memory*.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn record(&mut self, _client_id: &Arc<str>, _record: Record) {}
}

impl<J: Journal> Journal for &mut J {
    fn record(&mut self, client_id: &Arc<str>, record: Record) {
        (**self).record(client_id, record);
    }
}

impl Journal for Vec<Record> {
    fn record(&mut self, _client_id: &Arc<str>, record: Record) {
        self.push(record);
    }
}
