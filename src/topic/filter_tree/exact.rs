//! The filters without wildcards: one hash table, the filters in place.
//!
//! A publish asks it once. With a million filters that costs what it misses in the cache, so a filter of up to
//! [`SHORT_MAX`] bytes lies in its bucket beside its value, where a pointer to it would be one more miss.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::text::Text;

/// Longest filter that is stored in place: most are shorter, and key and an eight-byte value fill 48 bytes.
const SHORT_MAX: usize = 38;

/// A map from filters without wildcards to `T`.
#[derive(Debug)]
pub(super) struct Exact<T> {
    table: HashTable<(Text<SHORT_MAX>, T)>,
    hasher: RandomState,
}

impl<T> Exact<T> {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self { table: HashTable::new(), hasher }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(super) fn get(&self, filter: &str) -> Option<&T> {
        if self.table.is_empty() {
            return None;
        }
        let (_, value) = self.table.find(self.hash(filter), |(text, _)| text.as_bytes() == filter.as_bytes())?;
        Some(value)
    }

    pub(super) fn get_mut(&mut self, filter: &str) -> Option<&mut T> {
        let hash = self.hash(filter);
        let (_, value) = self.table.find_mut(hash, |(text, _)| text.as_bytes() == filter.as_bytes())?;
        Some(value)
    }

    pub(super) fn get_or_insert_with(&mut self, filter: &str, make: impl FnOnce() -> T) -> &mut T {
        let hash = self.hash(filter);
        let hasher = &self.hasher;
        let same = |(text, _): &(Text<SHORT_MAX>, T)| text.as_bytes() == filter.as_bytes();
        let entry = self.table.entry(hash, same, |(text, _)| hash_of(hasher, text.as_bytes()));
        let found = match entry {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => vacant.insert((Text::new(filter), make())).into_mut(),
        };
        &mut found.1
    }

    pub(super) fn remove(&mut self, filter: &str) -> Option<T> {
        let hash = self.hash(filter);
        let found = self.table.find_entry(hash, |(text, _)| text.as_bytes() == filter.as_bytes()).ok()?;
        let ((_, value), _) = found.remove();
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.table.iter().map(|(text, value)| (text.as_str(), value))
    }

    fn hash(&self, filter: &str) -> u64 {
        hash_of(&self.hasher, filter.as_bytes())
    }
}

#[inline]
fn hash_of(hasher: &RandomState, filter: &[u8]) -> u64 {
    hasher.hash_one(filter)
}
