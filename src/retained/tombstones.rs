//! What a node remembers of retained messages that are gone, so that a node which still has one of them learns of it instead of bringing it back.
//!
//! A tombstone is remembered for [`limits::TOMBSTONE_MS`] from when its version was set; there are [`limits::TOMBSTONES_MAX`] at the most, with
//! [`limits::TOMBSTONE_BYTES_MAX`] of topics. Invariant: `by_age` has exactly the entries of `by_topic`, `bytes` is the sum of their topics.
//!
//! Owned by the [`Map`](super::Map). Test to read first: `map/tests.rs`, those of deletions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::limits;
use crate::topic::NameTree;

use super::Version;
use super::map::Item;

#[derive(Debug)]
pub(super) struct Tombstones {
    by_topic: NameTree<Tombstone>,
    by_age: BTreeSet<(Version, Arc<str>)>,
    bytes: usize,
    evicted: u64,
    /// How many there are at the most.
    pub(super) most: usize,
}

impl Default for Tombstones {
    fn default() -> Self {
        let (by_topic, by_age) = (NameTree::new(), BTreeSet::new());
        Self { by_topic, by_age, bytes: 0, evicted: 0, most: limits::TOMBSTONES_MAX }
    }
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub version: Version,
    pub item: Item,
}

/// When the tombstone of a version ends.
pub(super) fn end_of(version: Version) -> u64 {
    version.at().saturating_add(limits::TOMBSTONE_MS)
}

impl Tombstones {
    pub fn len(&self) -> usize {
        self.by_topic.len()
    }

    /// Tombstones that had to go for others.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    pub fn get(&self, topic: &str) -> Option<Tombstone> {
        // Most nodes have few of them, and each new topic asks.
        if self.by_age.is_empty() { None } else { self.by_topic.get(topic).copied() }
    }

    /// Those behind `after`, in the order of topics.
    pub fn behind(&self, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &Tombstone)> {
        self.by_topic.behind(after)
    }

    /// Enters one for a topic that has none. `gone` gets those that had to go for it; itself too, if it is the oldest.
    pub fn insert(&mut self, topic: Arc<str>, tombstone: Tombstone, gone: &mut dyn FnMut(Arc<str>, Tombstone)) {
        self.bytes += topic.len();
        self.by_age.insert((tombstone.version, topic.clone()));
        self.by_topic.insert(topic, tombstone);
        while self.len() > self.most || self.bytes > limits::TOMBSTONE_BYTES_MAX {
            let Some((topic, tombstone)) = self.pop_oldest() else { break };
            self.evicted += 1;
            gone(topic, tombstone);
        }
    }

    pub fn remove(&mut self, topic: &Arc<str>) -> Option<Tombstone> {
        let tombstone = self.by_topic.remove(topic)?;
        self.bytes -= topic.len();
        self.by_age.remove(&(tombstone.version, topic.clone()));
        Some(tombstone)
    }

    /// When the oldest ends.
    pub fn next_end(&self) -> Option<u64> {
        self.by_age.first().map(|(version, _)| end_of(*version))
    }

    pub fn pop_oldest(&mut self) -> Option<(Arc<str>, Tombstone)> {
        let (_, topic) = self.by_age.pop_first()?;
        self.bytes -= topic.len();
        let tombstone = self.by_topic.remove(&topic)?;
        Some((topic, tombstone))
    }

    /// Whether one of this version would be the first to go.
    pub fn is_useless(&self, version: Version) -> bool {
        self.len() >= self.most && self.by_age.first().is_some_and(|(oldest, _)| version < *oldest)
    }
}
