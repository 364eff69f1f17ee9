//! A number that stands for the state: equal states have equal ones on every machine, build and run.
//!
//! Entries are hashed one by one and summed, so it does not matter in which order a table gives them out. It guards
//! against mistakes, not against forgery.

use std::sync::Arc;

use crate::command::{NodeId, ShareMembers};

/// A sum of entry hashes.
#[derive(Debug, Default)]
pub(super) struct Digest(u64);

impl Digest {
    /// Counts in one entry; its first field should tell the kind of entry.
    pub(super) fn add(&mut self, fields: &[&dyn Digestible]) {
        let mut hash = Fnv::default();
        fields.iter().for_each(|field| field.feed(&mut hash));
        self.0 = self.0.wrapping_add(hash.finish());
    }

    pub(super) fn value(&self) -> u64 {
        self.0
    }
}

/// What can be a field of an entry.
pub(super) trait Digestible {
    fn feed(&self, hash: &mut Fnv);
}

impl Digestible for u64 {
    fn feed(&self, hash: &mut Fnv) {
        hash.write(&self.to_le_bytes());
    }
}

impl Digestible for NodeId {
    fn feed(&self, hash: &mut Fnv) {
        hash.write(&self.0.to_le_bytes());
    }
}

impl Digestible for () {
    fn feed(&self, _: &mut Fnv) {}
}

impl Digestible for ShareMembers {
    fn feed(&self, hash: &mut Fnv) {
        hash.write(&[self.connected, u8::from(self.detached)]);
    }
}

/// Bytes are preceded by their number, so that fields do not run into one another.
impl Digestible for [u8] {
    fn feed(&self, hash: &mut Fnv) {
        (self.len() as u64).feed(hash);
        hash.write(self);
    }
}

impl Digestible for &[u8] {
    fn feed(&self, hash: &mut Fnv) {
        (**self).feed(hash);
    }
}

impl Digestible for &str {
    fn feed(&self, hash: &mut Fnv) {
        self.as_bytes().feed(hash);
    }
}

impl Digestible for Arc<str> {
    fn feed(&self, hash: &mut Fnv) {
        self.as_bytes().feed(hash);
    }
}

impl Digestible for (Arc<str>, Arc<str>) {
    fn feed(&self, hash: &mut Fnv) {
        self.0.feed(hash);
        self.1.feed(hash);
    }
}

/// FNV-1a with a final mix, because sums need all bits to depend on all bytes.
pub(super) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(super) fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}
