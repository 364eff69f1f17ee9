//! The queue of a session: messages that wait for a connection, for room in the outbox or for a free place in the inflight
//! window. Bounded in messages and bytes; at the bound the configured policy decides and the drop is counted.
//!
//! Invariant: `bytes` and `qos0` are the sums over the entries.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::mqtt::{Message, QoS};

use super::record::Position;

/// The Subscription Identifiers that go with a message: none, one, or several when subscriptions overlap
/// [MQTT-3.3.4-3], [MQTT-3.3.4-4].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SubscriptionIds {
    #[default]
    None,
    One([u32; 1]),
    Many(Box<[u32]>),
}

impl SubscriptionIds {
    pub fn from_slice(ids: &[u32]) -> SubscriptionIds {
        match ids {
            [] => SubscriptionIds::None,
            [id] => SubscriptionIds::One([*id]),
            _ => SubscriptionIds::Many(ids.into()),
        }
    }

    pub fn as_slice(&self) -> &[u32] {
        match self {
            SubscriptionIds::None => &[],
            SubscriptionIds::One(id) => id,
            SubscriptionIds::Many(ids) => ids,
        }
    }
}

/// A message in the queue of one session, with what its subscription says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub position: Position,
    pub message: Arc<Message>,
    /// The QoS of the delivery: the lesser of the publisher's and the subscription's [MQTT-3.8.4-8].
    pub qos: QoS,
    /// The RETAIN flag of the delivery.
    pub retain: bool,
    pub subscription_ids: SubscriptionIds,
    /// The text of the shared subscription that brought it, `$share/name/filter`.
    pub share: Option<Arc<str>>,
}

/// What happens to a message when the queue is full (`mqtt.queue_full`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueFull {
    DropOldest,
    DropNewest,
    /// The connection is closed with 0x97 (Quota exceeded); without a connection the newest is dropped.
    Disconnect,
}

/// Places that an empty queue may keep.
const CAPACITY_KEPT: usize = 64;

/// Messages in the order in which they are to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    entries: VecDeque<Queued>,
    bytes: usize,
    qos0: usize,
}

impl Queue {
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the messages, bodies that are shared with other sessions included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message of QoS 0 waits, so that a newer one must not overtake it.
    pub fn holds_qos0(&self) -> bool {
        self.qos0 > 0
    }

    /// Whether one more message of `size` bytes is within the limits.
    pub fn has_room(&self, size: usize, messages_max: usize, bytes_max: usize) -> bool {
        self.entries.len() < messages_max && self.bytes + size <= bytes_max
    }

    pub fn push(&mut self, queued: Queued) {
        self.count_in(&queued);
        self.entries.push_back(queued);
    }

    pub fn front(&self) -> Option<&Queued> {
        self.entries.front()
    }

    pub fn pop(&mut self) -> Option<Queued> {
        let queued = self.entries.pop_front()?;
        self.count_out(&queued);
        self.shrink();
        Some(queued)
    }

    /// An empty queue holds no memory, however long it was: a fleet that was away for a night would keep all of it.
    fn shrink(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > CAPACITY_KEPT {
            self.entries = VecDeque::new();
        }
    }

    /// Takes the first message of QoS 0 out of the queue: it needs no place in the inflight window, and its order
    /// is among its like only [MQTT-4.6.0-6].
    pub fn pop_qos0(&mut self) -> Option<Queued> {
        if self.qos0 == 0 {
            return None;
        }
        let at = self.entries.iter().position(|queued| queued.qos == QoS::AtMostOnce)?;
        let queued = self.entries.remove(at)?;
        self.count_out(&queued);
        self.shrink();
        Some(queued)
    }

    /// Takes out every message for which `wanted` holds, in order.
    pub fn take(&mut self, wanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let (taken, kept): (VecDeque<Queued>, VecDeque<Queued>) =
            self.entries.drain(..).partition(|queued| wanted(queued));
        self.entries = kept;
        taken.iter().for_each(|queued| self.count_out(queued));
        taken.into()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.entries.iter()
    }

    fn count_in(&mut self, queued: &Queued) {
        self.bytes += queued.message.size();
        self.qos0 += usize::from(queued.qos == QoS::AtMostOnce);
    }

    fn count_out(&mut self, queued: &Queued) {
        self.bytes -= queued.message.size();
        self.qos0 -= usize::from(queued.qos == QoS::AtMostOnce);
    }
}
