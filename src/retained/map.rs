//! The retained messages of a node, by topic, and what is remembered of those that are gone.
//!
//! Invariants: a topic has a message or a tombstone or neither, and its version never falls while it has one. `bytes` is the sum of the sizes of all messages in `topics`,
//! `system` the part of those under `$SYS`; `expiries` has exactly one entry for each of them that expires; `digest` is that of all versions. A message whose time is
//! over is treated as absent from then on, whether [`Map::expire`] has taken it out yet or not.
//!
//! Whoever keeps the map on disk too keeps one *item* for each message and tombstone. Its number is drawn here, where changes have an order; it is never used again, so
//! the entries of several threads may reach the disk in any order. What is found there is sorted out by version (`Map::restore`).

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::mqtt::Message;
use crate::topic::{self, NameTree};

use super::digest::TopicHash;
use super::tombstones::{Tombstone, Tombstones, end_of};
use super::{Digest, Version};

#[cfg(test)]
mod tests;

/// The number of an item on disk. 0: it has none, which is so for `$SYS/`.
pub type Item = u64;

/// See the module.
#[derive(Debug, Default)]
pub struct Map {
    topics: NameTree<Value>,
    tombstones: Tombstones,
    /// (when, topic), in milliseconds of the node's clock.
    expiries: BTreeSet<(u64, Arc<str>)>,
    digest: Digest,
    bytes: usize,
    system: System,
    /// The last number that was drawn.
    items: Item,
}

#[derive(Debug)]
struct Value {
    message: Arc<Message>,
    item: Item,
}

/// What of it the server itself publishes, under `$SYS`: little, of a fixed number, and not to be counted against its users.
#[derive(Debug, Default)]
struct System {
    messages: usize,
    bytes: usize,
}

/// What [`Map::replace`] did.
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
    /// What the map knows of the topic is as new or newer: everything is as it was. Never so for a message that was stamped under the lock of the map.
    Older,
}

/// What changed, and what the disk has to hear of it.
#[derive(Debug)]
pub struct Changed {
    pub change: Change,
    pub writes: Writes,
}

pub type Writes = SmallVec<[Write; 3]>;

/// One change of what is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Message { item: Item, message: Arc<Message> },
    Tombstone { item: Item, topic: Arc<str>, version: Version },
    Void { item: Item },
}

/// What the map knows of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'m> {
    Message(&'m Arc<Message>),
    /// It had a message of this version, or one that was deleted by it.
    Gone(Version),
}

impl Known<'_> {
    pub fn version(&self) -> Version {
        match self {
            Known::Message(message) => Version::of(message),
            Known::Gone(version) => *version,
        }
    }
}

impl Map {
    pub fn new() -> Self {
        Self::default()
    }

    /// Numbers of items are drawn behind `last` from now on.
    pub fn number_items_from(&mut self, last: Item) {
        self.items = self.items.max(last);
    }

    /// [`Map::replace`], for whoever keeps nothing on disk.
    pub fn set(&mut self, now: u64, message: Arc<Message>) -> Change {
        self.replace(now, message).change
    }

    /// Makes `message` the retained message of its topic, unless what the topic has is newer. One with an empty payload, or whose expiry is over already,
    /// removes what was there instead and is not stored itself [MQTT-3.3.1-6], [MQTT-3.3.1-7].
    pub fn replace(&mut self, now: u64, message: Arc<Message>) -> Changed {
        if message.payload.is_empty() || message.is_expired(now) {
            return self.refuse(now, &message);
        }
        let topic = &message.topic;
        let item = self.draw_item(topic);
        let Some(value) = self.topics.get_mut(topic) else {
            return self.insert(item, message);
        };
        let earlier_version = Version::of(&value.message);
        if item != 0 && earlier_version >= Version::of(&message) {
            return older();
        }
        let earlier = std::mem::replace(value, Value { message: message.clone(), item });
        self.forget(&earlier.message);
        self.account_for(&message);
        let change = if earlier.message.is_expired(now) { Change::Stored } else { Change::Replaced };
        if item == 0 {
            return Changed { change, writes: SmallVec::new() };
        }
        let hash = TopicHash::of(&message.topic);
        self.digest.remove(hash, earlier_version);
        self.digest.add(hash, Version::of(&message));
        let writes = smallvec![Write::Message { item, message }, Write::Void { item: earlier.item }];
        Changed { change, writes }
    }

    /// A message of a topic that has none.
    fn insert(&mut self, item: Item, message: Arc<Message>) -> Changed {
        let mut writes = SmallVec::new();
        if item != 0 {
            let hash = TopicHash::of(&message.topic);
            if let Some(tombstone) = self.tombstones.get(&message.topic) {
                if tombstone.version >= Version::of(&message) {
                    return older();
                }
                self.tombstones.remove(&message.topic);
                self.digest.remove(hash, tombstone.version);
                writes.push(Write::Void { item: tombstone.item });
            }
            self.digest.add(hash, Version::of(&message));
            writes.push(Write::Message { item, message: message.clone() });
        }
        self.account_for(&message);
        self.topics.insert(message.topic.clone(), Value { message, item });
        Changed { change: Change::Stored, writes }
    }

    /// The same as [`Map::replace`] with a message that is not stored: an older one goes, as none is better than one that is older than what was published since.
    pub fn refuse(&mut self, now: u64, message: &Message) -> Changed {
        self.bury(now, &message.topic, Version::of(message))
    }

    /// The topic has nothing since `version`, unless what is known of it is newer.
    pub fn bury(&mut self, now: u64, topic: &Arc<str>, version: Version) -> Changed {
        let system = is_system(topic);
        if !system && self.version(topic).is_some_and(|known| known >= version) {
            return older();
        }
        let earlier = self.take(topic);
        let change = match &earlier {
            Some(earlier) if !earlier.message.is_expired(now) => Change::Deleted,
            _ => Change::Nothing,
        };
        let mut writes = SmallVec::new();
        if !system {
            self.void(topic, earlier, &mut writes);
            self.entomb(now, topic, version, &mut writes);
        }
        Changed { change, writes }
    }

    /// What the topic had does not count any more: the message that was taken out, or its tombstone.
    fn void(&mut self, topic: &Arc<str>, taken: Option<Value>, writes: &mut Writes) {
        let gone = match taken {
            Some(value) => Some((Version::of(&value.message), value.item)),
            None if self.tombstones.get(topic).is_some() => {
                self.tombstones.remove(topic).map(|tombstone| (tombstone.version, tombstone.item))
            }
            None => None,
        };
        if let Some((version, item)) = gone {
            self.digest.remove(TopicHash::of(topic), version);
            writes.push(Write::Void { item });
        }
    }

    /// Remembers that a topic has nothing since `version`, unless that is long ago.
    fn entomb(&mut self, now: u64, topic: &Arc<str>, version: Version, writes: &mut Writes) {
        if end_of(version) <= now || self.tombstones.is_useless(version) {
            return;
        }
        let item = self.draw_item(topic);
        self.digest.add(TopicHash::of(topic), version);
        writes.push(Write::Tombstone { item, topic: topic.clone(), version });
        let digest = &mut self.digest;
        self.tombstones.insert(topic.clone(), Tombstone { version, item }, &mut |topic, tombstone| {
            digest.remove(TopicHash::of(&topic), tombstone.version);
            writes.push(Write::Void { item: tombstone.item });
        });
    }

    fn draw_item(&mut self, topic: &str) -> Item {
        if is_system(topic) {
            return 0;
        }
        self.items += 1;
        self.items
    }

    /// Enters a message that was found on disk under `item`, expired or not. Of two of one topic, which the end of a run may leave behind, the newer one stays; what is
    /// returned is void. Call it before anything else changes the map.
    pub fn restore(&mut self, item: Item, message: Arc<Message>) -> Writes {
        let topic = message.topic.clone();
        self.restored(item, &topic, Version::of(&message), |map| {
            map.account_for(&message);
            map.topics.insert(message.topic.clone(), Value { message, item });
        })
    }

    /// The same for a tombstone.
    pub fn restore_tombstone(&mut self, now: u64, item: Item, topic: Arc<str>, version: Version) -> Writes {
        if end_of(version) <= now && self.version(&topic).is_none_or(|known| known > version) {
            return smallvec![Write::Void { item }];
        }
        let mut evicted = Writes::new();
        let mut writes = self.restored(item, &topic, version, |map| {
            let digest = &mut map.digest;
            map.tombstones.insert(topic.clone(), Tombstone { version, item }, &mut |topic, tombstone| {
                digest.remove(TopicHash::of(&topic), tombstone.version);
                evicted.push(Write::Void { item: tombstone.item });
            });
        });
        writes.extend(evicted);
        writes
    }

    fn restored(&mut self, item: Item, topic: &Arc<str>, version: Version, enter: impl FnOnce(&mut Map)) -> Writes {
        self.number_items_from(item);
        let there = self.topics.get(topic).map(|value| (Version::of(&value.message), value.item));
        let there = there.or_else(|| self.tombstones.get(topic).map(|tombstone| (tombstone.version, tombstone.item)));
        // What was written before there were stamps is told apart by its items alone, which grew.
        if there.is_some_and(|there| there > (version, item)) {
            return smallvec![Write::Void { item }];
        }
        let mut writes = Writes::new();
        let taken = self.take(topic);
        self.void(topic, taken, &mut writes);
        self.digest.add(TopicHash::of(topic), version);
        enter(self);
        writes
    }

    /// Drops everything that other nodes have too, so that they say what there is: for a node that was away for so long that it may have missed a deletion. Returns the
    /// items that are void.
    pub fn clear(&mut self) -> Vec<Write> {
        let mut system = NameTree::new();
        let mut void = Vec::with_capacity(self.len());
        for (topic, value) in self.topics.iter() {
            if is_system(topic) {
                system.insert(topic.clone(), Value { message: value.message.clone(), item: 0 });
            } else {
                void.push(Write::Void { item: value.item });
            }
        }
        void.extend(self.tombstones.behind(None).map(|(_, tombstone)| Write::Void { item: tombstone.item }));
        *self = Map { items: self.items, ..Map::default() };
        system.iter().for_each(|(_, value)| self.account_for(&value.message));
        self.topics = system;
        void
    }

    /// The retained message of `topic`.
    pub fn get(&self, now: u64, topic: &str) -> Option<&Arc<Message>> {
        self.topics.get(topic).map(|value| &value.message).filter(|message| !message.is_expired(now))
    }

    /// What is known of `topic`, expired or not.
    pub fn known(&self, topic: &str) -> Option<Known<'_>> {
        match self.topics.get(topic) {
            Some(value) => Some(Known::Message(&value.message)),
            None => self.tombstones.get(topic).map(|tombstone| Known::Gone(tombstone.version)),
        }
    }

    pub fn knows(&self, topic: &str) -> bool {
        self.known(topic).is_some()
    }

    /// The version of what is known of `topic`.
    pub fn version(&self, topic: &str) -> Option<Version> {
        self.known(topic).map(|known| known.version())
    }

    /// All that is known behind the topic `after`, in the order of [`topic::compare`]; without what is under `$SYS/`.
    pub fn known_behind(&self, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, Known<'_>)> {
        let mut messages = self.topics.behind(after).filter(|(topic, _)| !is_system(topic)).peekable();
        let mut tombstones = self.tombstones.behind(after).peekable();
        std::iter::from_fn(move || {
            let message_first = match (messages.peek(), tombstones.peek()) {
                (Some((message, _)), Some((tombstone, _))) => topic::compare(message, tombstone).is_lt(),
                (Some(_), None) => true,
                _ => false,
            };
            if message_first {
                messages.next().map(|(topic, value)| (topic, Known::Message(&value.message)))
            } else {
                tombstones.next().map(|(topic, tombstone)| (topic, Known::Gone(tombstone.version)))
            }
        })
    }

    /// The messages whose topics match `filter` (without share prefix, parsed before) and lie behind `after` (`None`: from the start), as far as `budget` goes: the number of topics that may be examined. When the
    /// iterator has ended, [`Scan::resume`] says where to go on. A whole replay may be cut into scans at any topic, with
    /// changes in between.
    pub fn scan<'m, 'f>(&'m self, now: u64, filter: &'f str, after: Option<&str>, budget: usize) -> Scan<'m, 'f> {
        Scan { now, topics: self.topics.scan(filter, after, budget) }
    }

    /// Removes messages and tombstones whose time is over, at most `at_most`, and returns what the disk has to hear. A message
    /// leaves a tombstone, as a node that missed it may still have the one before.
    pub fn expire(&mut self, now: u64, at_most: usize) -> Vec<Write> {
        let mut writes = Writes::new();
        let mut left = at_most;
        while left > 0 && self.expiries.first().is_some_and(|&(at, _)| at <= now) {
            left -= 1;
            let Some((_, topic)) = self.expiries.pop_first() else { break };
            if let Some(value) = self.take(&topic) {
                let version = Version::of(&value.message);
                if !is_system(&topic) {
                    self.void(&topic, Some(value), &mut writes);
                    self.entomb(now, &topic, version, &mut writes);
                }
            }
        }
        while left > 0 && self.tombstones.next_end().is_some_and(|at| at <= now) {
            left -= 1;
            let Some((topic, tombstone)) = self.tombstones.pop_oldest() else { break };
            self.digest.remove(TopicHash::of(&topic), tombstone.version);
            writes.push(Write::Void { item: tombstone.item });
        }
        writes.into_vec()
    }

    /// When the next message expires or the next tombstone ends, in milliseconds of the node's clock.
    pub fn next_expiry(&self) -> Option<u64> {
        let message = self.expiries.first().map(|&(at, _)| at);
        message.into_iter().chain(self.tombstones.next_end()).min()
    }

    /// Number of messages; those that expired count until `expire` has removed them.
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Messages that are remembered to be gone.
    pub fn tombstones(&self) -> usize {
        self.tombstones.len()
    }

    /// Tombstones that had to go before their time because there were too many.
    pub fn tombstones_evicted(&self) -> u64 {
        self.tombstones.evicted()
    }

    /// Whether the tombstone of this version would be the first to go again.
    pub fn would_forget(&self, now: u64, version: Version) -> bool {
        end_of(version) <= now || self.tombstones.is_useless(version)
    }

    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// What the messages keep in memory, by [`Message::size`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether `message` keeps the store within the limits that hold for its users together: messages, and bytes by [`Message::size`].
    pub fn has_room_for(&self, message: &Message, messages_max: usize, bytes_max: usize) -> bool {
        message.payload.is_empty() || self.has_room(&message.topic, message.size(), messages_max, bytes_max)
    }

    /// The same for a message of `size`.
    pub fn has_room(&self, topic: &str, size: usize, messages_max: usize, bytes_max: usize) -> bool {
        if is_system(topic) {
            return true;
        }
        let earlier = self.topics.get(topic).map(|value| &value.message);
        let messages = self.len() - self.system.messages + usize::from(earlier.is_none());
        let bytes = self.bytes - self.system.bytes - earlier.map_or(0, |earlier| earlier.size()) + size;
        messages <= messages_max && bytes <= bytes_max
    }

    /// All messages, in no stated order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.topics.iter().map(|(_, value)| &value.message)
    }

    /// The items of all messages and tombstones.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        let messages = self.topics.iter().map(|(_, value)| value.item);
        messages.chain(self.tombstones.behind(None).map(|(_, tombstone)| tombstone.item)).filter(|item| *item != 0)
    }

    /// Takes out the message of `topic`, expired or not. It stays in the digest.
    fn take(&mut self, topic: &str) -> Option<Value> {
        let value = self.topics.remove(topic)?;
        self.forget(&value.message);
        Some(value)
    }

    /// Counts a message that comes into `topics`.
    fn account_for(&mut self, message: &Message) {
        self.bytes += message.size();
        if is_system(&message.topic) {
            self.system.messages += 1;
            self.system.bytes += message.size();
        }
        if let Some(at) = message.expires_at {
            self.expiries.insert((at, message.topic.clone()));
        }
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

fn older() -> Changed {
    Changed { change: Change::Older, writes: SmallVec::new() }
}

/// Matching messages from one topic on: see [`Map::scan`].
#[derive(Debug)]
pub struct Scan<'m, 'f> {
    now: u64,
    topics: topic::Scan<'m, 'f, Value>,
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
        self.topics.by_ref().map(|(_, value)| &value.message).find(|message| !message.is_expired(now))
    }
}

/// Whether it is the server's own: of this node alone.
pub fn is_system(topic: &str) -> bool {
    topic.starts_with("$SYS/")
}
