//! The retained messages of a node, by topic.
//!
//! Invariants: `bytes` is the sum of the sizes of all messages in `topics`, `system` the part of those under `$SYS`; `expiries` has exactly one entry for each
//! of them that expires. A message whose time is over is treated as absent from then on, whether [`Map::expire`] has taken it out yet or not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::mqtt::Message;
use crate::topic::{self, NameTree};

#[cfg(test)]
mod tests;

/// See the module.
#[derive(Debug, Default)]
pub struct Map {
    topics: NameTree<Arc<Message>>,
    /// (when, topic), in milliseconds of the node's clock.
    expiries: BTreeSet<(u64, Arc<str>)>,
    bytes: usize,
    system: System,
}

/// What of it the server itself publishes, under `$SYS`: little, of a fixed number, and not to be counted against its users.
#[derive(Debug, Default)]
struct System {
    messages: usize,
    bytes: usize,
}

/// What [`Map::set`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The topic had no retained message.
    Stored,
    /// It had one, which is replaced [MQTT-3.3.1-5].
    Replaced,
    /// It had one, which is removed [MQTT-3.3.1-6].
    Deleted,
    /// It had none, and still has none [MQTT-3.3.1-7].
    Nothing,
}

impl Map {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `message` the retained message of its topic. One with an empty payload, or whose expiry is over already,
    /// removes what was there instead and is not stored itself [MQTT-3.3.1-6], [MQTT-3.3.1-7].
    pub fn set(&mut self, now: u64, message: Arc<Message>) -> Change {
        if message.payload.is_empty() || message.is_expired(now) {
            return match self.delete(&message.topic) {
                Some(earlier) if !earlier.is_expired(now) => Change::Deleted,
                _ => Change::Nothing,
            };
        }
        let topic = &message.topic;
        self.bytes += message.size();
        if is_system(topic) {
            self.system.messages += 1;
            self.system.bytes += message.size();
        }
        let earlier = self.topics.insert(Arc::clone(topic), Arc::clone(&message));
        if let Some(earlier) = &earlier {
            self.forget(earlier);
        }
        if let Some(at) = message.expires_at {
            self.expiries.insert((at, Arc::clone(topic)));
        }
        match earlier {
            Some(earlier) if !earlier.is_expired(now) => Change::Replaced,
            _ => Change::Stored,
        }
    }

    /// The same, and for whoever keeps the messages elsewhere too: whether `message` is stored now, and what went for it, expired or not.
    pub fn replace(&mut self, now: u64, message: Arc<Message>) -> (bool, Option<Arc<Message>>) {
        let earlier = self.topics.get(&message.topic).cloned();
        let stored = matches!(self.set(now, message), Change::Stored | Change::Replaced);
        (stored, earlier)
    }

    /// The retained message of `topic`.
    pub fn get(&self, now: u64, topic: &str) -> Option<&Arc<Message>> {
        self.topics.get(topic).filter(|message| !message.is_expired(now))
    }

    /// The messages whose topics match `filter` (without share prefix, parsed before) and lie behind `after` (`None`: from the start), as far as `budget` goes: the number of topics that may be examined. When the
    /// iterator has ended, [`Scan::resume`] says where to go on. A whole replay may be cut into scans at any topic, with
    /// changes in between.
    pub fn scan<'m, 'f>(&'m self, now: u64, filter: &'f str, after: Option<&str>, budget: usize) -> Scan<'m, 'f> {
        Scan { now, topics: self.topics.scan(filter, after, budget) }
    }

    /// Removes messages whose time is over, at most `at_most`, and returns them. Fewer than that: none is left.
    pub fn expire(&mut self, now: u64, at_most: usize) -> Vec<Arc<Message>> {
        let mut expired = Vec::new();
        while expired.len() < at_most && self.next_expiry().is_some_and(|at| at <= now) {
            if let Some((_, topic)) = self.expiries.pop_first() {
                expired.extend(self.delete(&topic));
            }
        }
        expired
    }

    /// When the next message expires, in milliseconds of the node's clock.
    pub fn next_expiry(&self) -> Option<u64> {
        self.expiries.first().map(|&(at, _)| at)
    }

    /// Number of messages; those that expired count until `expire` has removed them.
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// What the messages keep in memory, by [`Message::size`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether `message` keeps the store within the limits that hold for its users together: messages, and bytes by [`Message::size`].
    pub fn has_room_for(&self, message: &Message, messages_max: usize, bytes_max: usize) -> bool {
        if message.payload.is_empty() || is_system(&message.topic) {
            return true;
        }
        let earlier = self.topics.get(&message.topic);
        let messages = self.len() - self.system.messages + usize::from(earlier.is_none());
        let bytes = self.bytes - self.system.bytes - earlier.map_or(0, |earlier| earlier.size()) + message.size();
        messages <= messages_max && bytes <= bytes_max
    }

    /// All messages, in no stated order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.topics.iter().map(|(_, message)| message)
    }

    /// Removes the message of `topic`, expired or not.
    pub fn delete(&mut self, topic: &str) -> Option<Arc<Message>> {
        let message = self.topics.remove(topic)?;
        self.forget(&message);
        Some(message)
    }

    /// Takes a message that is no longer in `topics` out of the rest.
    fn forget(&mut self, message: &Message) {
        self.bytes -= message.size();
        if is_system(&message.topic) {
            self.system.messages -= 1;
            self.system.bytes -= message.size();
        }
        if let Some(at) = message.expires_at {
            self.expiries.remove(&(at, Arc::clone(&message.topic)));
        }
    }
}

/// Matching messages from one topic on: see [`Map::scan`].
#[derive(Debug)]
pub struct Scan<'m, 'f> {
    now: u64,
    topics: topic::Scan<'m, 'f, Arc<Message>>,
}

impl<'m> Scan<'m, '_> {
    /// After the iterator has ended: the topic to scan on from as `after`, or `None` if there is nothing more.
    pub fn resume(&self) -> Option<&'m Arc<str>> {
        self.topics.resume()
    }

    /// The topics that may still be examined.
    pub fn budget_left(&self) -> usize {
        self.topics.budget_left()
    }
}

impl<'m> Iterator for Scan<'m, '_> {
    type Item = &'m Arc<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        let now = self.now;
        self.topics.by_ref().map(|(_, message)| message).find(|message| !message.is_expired(now))
    }
}

fn is_system(topic: &str) -> bool {
    topic.starts_with("$SYS/")
}
