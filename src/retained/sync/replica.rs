//! The map of a node as a sync sees it, while it holds the lock of the map.

use std::sync::Arc;

use crate::limits;
use crate::mqtt::Message;
use crate::retained::{Buckets, Digest, HybridClock, Known, Map, Version, Write};
use crate::topic;

use super::{Copy, Listing, Page, Store};

/// See the module. What it takes over has to be written down: see `writes`.
#[derive(Debug)]
pub struct Replica<'m> {
    map: &'m mut Map,
    clock: &'m HybridClock,
    /// Milliseconds of the node's clock.
    now: u64,
    messages_max: usize,
    bytes_max: usize,
    writes: Vec<Write>,
    refused: u64,
}

impl<'m> Replica<'m> {
    /// `messages_max` and `bytes_max`: see [`Map::has_room_for`].
    pub fn new(map: &'m mut Map, clock: &'m HybridClock, now: u64, (messages_max, bytes_max): (usize, usize)) -> Self {
        Replica { map, clock, now, messages_max, bytes_max, writes: Vec::new(), refused: 0 }
    }

    /// What the disk has to hear, in order, and how many messages were not taken: for want of room, or because they are of a clock that is too far ahead.
    pub fn finish(self) -> (Vec<Write>, u64) {
        (self.writes, self.refused)
    }

    fn listing(&self, topic: &Arc<str>, known: Known<'_>) -> Listing {
        let size = match known {
            Known::Message(message) if !message.is_expired(self.now) => message.size(),
            _ => 0,
        };
        let gone = size == 0;
        Listing { topic: topic.clone(), version: known.version(), size: u32::try_from(size).unwrap_or(u32::MAX), gone }
    }

    fn put_message(&mut self, message: Message) {
        if self.map.has_room_for(&message, self.messages_max, self.bytes_max) {
            self.writes.extend(self.map.replace(self.now, Arc::new(message)).writes);
            return;
        }
        self.refused += 1;
        // No value is better than one that is older than what was published since. Where there is none, it is asked for again when there is room.
        if self.map.get(self.now, &message.topic).is_some() {
            self.writes.extend(self.map.refuse(self.now, &message).writes);
        }
    }
}

impl Store for Replica<'_> {
    fn digest(&self) -> Digest {
        self.map.digest().clone()
    }

    fn page(&self, buckets: &Buckets, after: Option<&str>, until: Option<&str>) -> Page {
        let mut page = Page::default();
        let mut bytes = 0;
        for (examined, (topic, known)) in (1..).zip(self.map.known_behind(after)) {
            if until.is_some_and(|until| topic::compare(topic, until).is_gt()) {
                break;
            }
            if buckets.holds(topic) {
                bytes += topic.len() + LISTING_BYTES;
                page.listings.push(self.listing(topic, known));
            }
            if examined == limits::SYNC_TOPICS_PER_PAGE || bytes >= limits::SYNC_PAGE_BYTES {
                page.until = Some(topic.clone());
                break;
            }
        }
        page
    }

    fn wants(&self, listing: &Listing) -> bool {
        let Listing { topic, version, size, gone } = listing;
        let known = self.map.version(topic);
        if known.is_some_and(|known| known >= *version) || self.clock.is_too_far(version.stamp, self.now) {
            return false;
        }
        if *gone {
            return known.is_some() || !self.map.would_forget(self.now, *version);
        }
        let has_message = self.map.get(self.now, topic).is_some();
        has_message || self.map.has_room(topic, *size as usize, self.messages_max, self.bytes_max)
    }

    fn copy(&self, topic: &str) -> Option<Copy> {
        match self.map.known(topic)? {
            Known::Message(message) if !message.is_expired(self.now) => {
                let expires_in = message.expires_at.map(|at| at - self.now);
                Some(Copy::Message { message: message.clone(), expires_in })
            }
            known => Some(Copy::Gone { topic: topic.into(), version: known.version() }),
        }
    }

    fn put(&mut self, copy: Copy) {
        let version = match &copy {
            Copy::Gone { version, .. } => *version,
            Copy::Message { message, .. } => Version::of(message),
        };
        if self.clock.merge(version.stamp, self.now).is_err() {
            self.refused += 1;
            return;
        }
        match copy {
            Copy::Gone { topic, version } => self.writes.extend(self.map.bury(self.now, &topic, version).writes),
            Copy::Message { message, expires_in } => {
                let mut message = Arc::unwrap_or_clone(message);
                message.expires_at = expires_in.map(|millis| self.now.saturating_add(millis));
                self.put_message(message);
            }
        }
    }
}

/// What a listing takes beside its topic.
const LISTING_BYTES: usize = 2 + 16 + 4 + 1;
