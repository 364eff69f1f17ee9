//! The queue of a session: messages that wait for a connection, for room in the outbox or for a free place in the inflight
//! window. Bounded in messages and bytes; at the bound the configured policy decides and the drop is counted.
//!
//! Invariant: `bytes` and `expiring` are the sums over both lanes; positions grow along each lane.

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

/// Messages in the order in which they are to be sent. Those of QoS 0 stand in a lane of their own: they need no place in the inflight window, so
/// they may pass the others [MQTT-4.6.0-6], and they make room first when the queue is full.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    kept: VecDeque<Queued>,
    qos0: VecDeque<Queued>,
    bytes: usize,
    /// Messages with a Message Expiry Interval.
    expiring: usize,
}

impl Queue {
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.kept.capacity() + self.qos0.capacity()
    }

    pub fn len(&self) -> usize {
        self.kept.len() + self.qos0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.qos0.is_empty()
    }

    /// Bytes of the messages, bodies that are shared with other sessions included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message of QoS 0 waits, so that a newer one must not overtake it.
    pub fn holds_qos0(&self) -> bool {
        !self.qos0.is_empty()
    }

    /// Whether looking for expired messages may find one.
    pub fn holds_expiring(&self) -> bool {
        self.expiring > 0
    }

    /// Whether one more message of `size` bytes is within the limits.
    pub fn has_room(&self, size: usize, messages_max: usize, bytes_max: usize) -> bool {
        self.len() < messages_max && self.bytes + size <= bytes_max
    }

    pub fn push(&mut self, queued: Queued) {
        self.bytes += queued.message.size();
        self.expiring += usize::from(queued.message.expires_at.is_some());
        let lane = if queued.qos == QoS::AtMostOnce { &mut self.qos0 } else { &mut self.kept };
        lane.push_back(queued);
    }

    /// Takes the message that came first; with `window_open` false, the first that needs no place in the inflight window.
    pub fn pop(&mut self, window_open: bool) -> Option<Queued> {
        let kept = self.kept.front().filter(|_| window_open).map(|queued| queued.position);
        let qos0 = self.qos0.front().map(|queued| queued.position);
        match (kept, qos0) {
            (Some(kept), Some(qos0)) if qos0 < kept => self.pop_qos0(),
            (None, Some(_)) => self.pop_qos0(),
            (Some(_), _) => self.pop_kept(),
            (None, None) => None,
        }
    }

    /// Takes the first message of QoS 0.
    pub fn pop_qos0(&mut self) -> Option<Queued> {
        let queued = self.qos0.pop_front()?;
        self.count_out(&queued);
        Some(queued)
    }

    fn pop_kept(&mut self) -> Option<Queued> {
        let queued = self.kept.pop_front()?;
        self.count_out(&queued);
        Some(queued)
    }

    /// Takes the message that makes room for one of `qos` by the policy *drop oldest*: QoS 0 goes first, and only for QoS 0 does nothing else go.
    pub fn pop_oldest(&mut self, qos: QoS) -> Option<Queued> {
        self.pop_qos0().or_else(|| if qos == QoS::AtMostOnce { None } else { self.pop_kept() })
    }

    /// Takes out every message for which `wanted` holds, each QoS lane in order.
    pub fn take(&mut self, wanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let mut taken = Vec::new();
        for lane in [&mut self.kept, &mut self.qos0] {
            let (wanted, left): (VecDeque<Queued>, VecDeque<Queued>) =
                lane.drain(..).partition(|queued| wanted(queued));
            *lane = left;
            taken.extend(wanted);
        }
        taken.iter().for_each(|queued| self.count_out(queued));
        taken
    }

    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.kept.iter().chain(&self.qos0)
    }

    fn count_out(&mut self, queued: &Queued) {
        self.bytes -= queued.message.size();
        self.expiring -= usize::from(queued.message.expires_at.is_some());
        for lane in [&mut self.kept, &mut self.qos0] {
            if lane.is_empty() && lane.capacity() > CAPACITY_KEPT {
                *lane = VecDeque::new();
            }
        }
    }
}
