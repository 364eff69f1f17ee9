//! The queue of a session: messages that wait for a connection, for room in the outbox or for a free place in the inflight
//! window. Bounded in messages and bytes; at the bound the configured policy decides and the drop is counted.
//!
//! The messages of a session that is written down need not be in memory: those in front are, the others are read back when their turn comes.
//!
//! Invariant: `bytes`, `bytes_here`, `expiring` and `shared` are the sums over both lanes; positions grow along each lane.

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

/// Where the message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueuedBody {
    Here(Arc<Message>),
    /// On disk alone; it is read back when it is about to be sent.
    Stored(StoredBody),
}

/// What is known of a message that is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBody {
    /// [`Message::size`].
    pub size: u32,
    /// [`Message::expires_at`].
    pub expires_at: Option<u64>,
}

/// A message in the queue of one session, with what its subscription says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub position: Position,
    pub body: QueuedBody,
    /// The QoS of the delivery: the lesser of the publisher's and the subscription's [MQTT-3.8.4-8].
    pub qos: QoS,
    /// The RETAIN flag of the delivery.
    pub retain: bool,
    pub subscription_ids: SubscriptionIds,
    /// The text of the shared subscription that brought it, `$share/name/filter`.
    pub share: Option<Arc<str>>,
    /// Whether it is as safe as its publisher is told. One of QoS 2 is not sent before: if its packet were to come again after all, so would it. Nor is one
    /// whose item is not on its way to the disk from here, so that nothing later is written of it first.
    pub kept: bool,
    /// Whether another node keeps the message of a share group until this session is done with it, and has to be told: see [`Journal::settled`](super::Journal::settled).
    pub awaited: bool,
}

impl Queued {
    /// The message, if it is in memory.
    pub fn message(&self) -> Option<&Arc<Message>> {
        match &self.body {
            QueuedBody::Here(message) => Some(message),
            QueuedBody::Stored(_) => None,
        }
    }

    /// [`Message::size`], wherever it is.
    pub fn size(&self) -> usize {
        match &self.body {
            QueuedBody::Here(message) => message.size(),
            QueuedBody::Stored(stored) => stored.size as usize,
        }
    }

    pub fn expires_at(&self) -> Option<u64> {
        match &self.body {
            QueuedBody::Here(message) => message.expires_at,
            QueuedBody::Stored(stored) => stored.expires_at,
        }
    }

    /// Whether the Message Expiry Interval has run out [MQTT-3.3.2-5].
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// What stays in memory when the message does not.
    pub fn stored_body(&self) -> StoredBody {
        // No packet is larger than 256 MiB.
        StoredBody { size: u32::try_from(self.size()).unwrap_or(u32::MAX), expires_at: self.expires_at() }
    }

    fn bytes_here(&self) -> usize {
        self.message().map_or(0, |message| message.size())
    }
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
    /// The part of `bytes` that is in memory.
    bytes_here: usize,
    /// Messages with a Message Expiry Interval.
    expiring: usize,
    /// Messages that a shared subscription brought.
    shared: usize,
    /// So many messages in front that need a place in the inflight window are known to be in memory; they have so many bytes.
    front_here: usize,
    front_bytes: usize,
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

    /// The part of it that is in memory.
    pub fn bytes_here(&self) -> usize {
        self.bytes_here
    }

    /// Whether a message of QoS 0 waits, so that a newer one must not overtake it.
    pub fn holds_qos0(&self) -> bool {
        !self.qos0.is_empty()
    }

    /// Whether looking for messages of a shared subscription may find one.
    pub fn holds_shared(&self) -> bool {
        self.shared > 0
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
        self.bytes += queued.size();
        self.bytes_here += queued.bytes_here();
        self.expiring += usize::from(queued.expires_at().is_some());
        self.shared += usize::from(queued.share.is_some());
        let lane = if queued.qos == QoS::AtMostOnce { &mut self.qos0 } else { &mut self.kept };
        lane.push_back(queued);
    }

    /// Takes the message that came first; with `window_open` false, the first that needs no place in the inflight window. None also when that
    /// message has to be read back or kept first.
    pub fn pop(&mut self, window_open: bool) -> Option<Queued> {
        let kept = self.kept.front().filter(|_| window_open);
        match (kept, self.qos0.front()) {
            (Some(kept), Some(qos0)) if qos0.position < kept.position => self.pop_qos0(),
            (None, Some(_)) => self.pop_qos0(),
            (Some(front), _) if front.kept && front.message().is_some() => self.pop_kept(),
            (Some(_), _) | (None, None) => None,
        }
    }

    /// Whether the first message that needs a place in the inflight window is of QoS 2.
    pub fn is_qos2_in_front(&self) -> bool {
        self.kept.front().is_some_and(|queued| queued.qos == QoS::ExactlyOnce)
    }

    /// The messages in front that have to be read back, until those in front have `bytes` in memory; at most `at_most`. None as long as they
    /// have half of that: what is read at once is many messages.
    pub fn stored_in_front(&mut self, bytes: usize, at_most: usize) -> Vec<Position> {
        if self.front_bytes > bytes / 2 {
            return Vec::new();
        }
        while let Some(queued) = self.kept.get(self.front_here)
            && queued.message().is_some()
            && self.front_bytes <= bytes / 2
        {
            self.front_here += 1;
            self.front_bytes += queued.size();
        }
        if self.front_bytes > bytes / 2 {
            return Vec::new();
        }
        let mut before = self.front_bytes;
        let in_front = self.kept.range(self.front_here..).take_while(|queued| {
            let within = before == 0 || before + queued.size() <= bytes;
            before += queued.size();
            within
        });
        in_front.filter(|queued| queued.message().is_none()).map(|queued| queued.position).take(at_most).collect()
    }

    /// The message at `at` is not known to be in memory any more, nor those behind it.
    fn front_ends(&mut self, at: usize) {
        if at < self.front_here {
            self.front_bytes -= self.kept.range(at..self.front_here).map(Queued::size).sum::<usize>();
            self.front_here = at;
        }
    }

    /// Changes where the message at `position` is. False if it is no longer in the queue.
    pub fn set_body(&mut self, position: Position, body: QueuedBody) -> bool {
        let Ok(at) = self.kept.binary_search_by_key(&position, |queued| queued.position) else {
            return false;
        };
        self.front_ends(at);
        let queued = &mut self.kept[at];
        self.bytes -= queued.size();
        self.bytes_here -= queued.bytes_here();
        queued.body = body;
        self.bytes += queued.size();
        self.bytes_here += queued.bytes_here();
        true
    }

    /// The message at `position` is kept. Returns it if it is in the queue.
    pub fn set_kept(&mut self, position: Position) -> Option<&Queued> {
        let at = self.kept.binary_search_by_key(&position, |queued| queued.position).ok()?;
        self.kept[at].kept = true;
        self.kept.get(at)
    }

    /// The message of QoS 1 or 2 at `position`.
    pub fn get(&self, position: Position) -> Option<&Queued> {
        let at = self.kept.binary_search_by_key(&position, |queued| queued.position).ok()?;
        self.kept.get(at)
    }

    /// The messages of QoS 1 and 2 from `position` on.
    pub fn kept_from(&self, position: Position) -> impl Iterator<Item = &Queued> {
        let at = self.kept.partition_point(|queued| queued.position < position);
        self.kept.range(at..)
    }

    /// The first message at `position` or behind it, of any QoS.
    pub fn first_from(&self, position: Position) -> Option<&Queued> {
        let at = self.qos0.partition_point(|queued| queued.position < position);
        let both = [self.kept_from(position).next(), self.qos0.get(at)];
        both.into_iter().flatten().min_by_key(|queued| queued.position)
    }

    /// Takes it out.
    pub fn remove(&mut self, position: Position) -> Option<Queued> {
        let at = self.kept.binary_search_by_key(&position, |queued| queued.position).ok()?;
        self.front_ends(at);
        let queued = self.kept.remove(at)?;
        self.count_out(&queued);
        Some(queued)
    }

    /// Takes the first message of QoS 0.
    pub fn pop_qos0(&mut self) -> Option<Queued> {
        let queued = self.qos0.pop_front()?;
        self.count_out(&queued);
        Some(queued)
    }

    fn pop_kept(&mut self) -> Option<Queued> {
        let queued = self.kept.pop_front()?;
        if self.front_here > 0 {
            self.front_here -= 1;
            self.front_bytes -= queued.size();
        }
        self.count_out(&queued);
        Some(queued)
    }

    /// Takes the message that makes room for one of `qos` by the policy *drop oldest*: QoS 0 goes first, and only for QoS 0 does nothing else go.
    pub fn pop_oldest(&mut self, qos: QoS) -> Option<Queued> {
        self.pop_qos0().or_else(|| if qos == QoS::AtMostOnce { None } else { self.pop_kept() })
    }

    /// Takes out every message for which `wanted` holds, each QoS lane in order.
    pub fn take(&mut self, mut wanted: impl FnMut(&Queued) -> bool) -> Vec<Queued> {
        let mut taken = Vec::new();
        self.front_ends(0);
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

    /// For what neither the place nor the size of a message depends on.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Queued> {
        self.kept.iter_mut().chain(&mut self.qos0)
    }

    fn count_out(&mut self, queued: &Queued) {
        self.bytes -= queued.size();
        self.bytes_here -= queued.bytes_here();
        self.expiring -= usize::from(queued.expires_at().is_some());
        self.shared -= usize::from(queued.share.is_some());
        for lane in [&mut self.kept, &mut self.qos0] {
            if lane.is_empty() && lane.capacity() > CAPACITY_KEPT {
                *lane = VecDeque::new();
            }
        }
    }
}
