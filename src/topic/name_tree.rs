//! The names that match a filter: the question of retained replay.
//!
//! The names are in one ordered map, in an order in which `/` sorts before every other character. In this order everything below a level lies
//! together and directly behind the level itself (`a`, `a/b`, `a/b/c`, `a-b`), so each filter is a sequence of ranges: where a name does not match, [`judge`] says the least
//! name behind it that could, and the scan goes on there. A filter costs O(log n) per result and per value that a `+`
//! takes on; nothing below a level that cannot match is looked at.
//!
//! A scan has no state of its own beyond the last name it examined, so it may be broken off after any name and resumed
//! from that name later, whatever was inserted or removed in between; it then sees each name that was there all the time exactly once. Work is
//! counted, because a filter such as `+/+/+/x` may examine many names and find none.
//!
//! Read first: `tests.rs`, where this is held against [`matches`](super::matches) on a plain list.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use slab::Slab;

pub use order::compare;
use order::{Key, Ordered, Verdict, judge, push_least};

mod order;
#[cfg(test)]
mod tests;

/// How many neighbours a scan steps over before it seeks: a step is a few nanoseconds, a seek a walk from the root.
const STEPS_BEFORE_SEEK: usize = 4;

/// A map from topic names to `T` that is asked by topic filter.
#[derive(Debug)]
pub struct NameTree<T> {
    entries: Slab<(Arc<str>, T)>,
    /// The entries by name: a value is replaced far more often than a name is new, and need not walk the order for it.
    by_name: HashTable<EntryId>,
    /// The entries in the tree's order.
    order: BTreeMap<Key, EntryId>,
    hasher: RandomState,
}

/// Index of an entry in the arena.
type EntryId = u32;

impl<T> Default for NameTree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> NameTree<T> {
    pub fn new() -> Self {
        let (entries, by_name, order) = (Slab::new(), HashTable::new(), BTreeMap::new());
        Self { entries, by_name, order, hasher: RandomState::default() }
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        let id = self.find(name)?;
        Some(&self.entries[id as usize].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        let id = self.find(name)?;
        Some(&mut self.entries[id as usize].1)
    }

    /// Puts `value` at `name` and returns what was there.
    pub fn insert(&mut self, name: Arc<str>, value: T) -> Option<T> {
        if let Some(id) = self.find(&name) {
            return Some(std::mem::replace(&mut self.entries[id as usize].1, value));
        }
        let entry = (Arc::clone(&name), value);
        let id = EntryId::try_from(self.entries.insert(entry)).expect("fewer than 2^32 names fit in memory");
        let (entries, hasher) = (&self.entries, &self.hasher);
        let hash_of = |&id: &EntryId| hasher.hash_one(entries[id as usize].0.as_bytes());
        self.by_name.insert_unique(hash_of(&id), id, hash_of);
        self.order.insert(Key(name), id);
        None
    }

    pub fn remove(&mut self, name: &str) -> Option<T> {
        let hash = self.hasher.hash_one(name.as_bytes());
        let entries = &self.entries;
        let found = self.by_name.find_entry(hash, |&id| *entries[id as usize].0 == *name).ok()?;
        let (id, _) = found.remove();
        self.order.remove(&name as &dyn Ordered);
        let (_, value) = self.entries.remove(id as usize);
        Some(value)
    }

    /// All names in the tree's order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.order.iter().map(|(Key(name), &id)| (name, &self.entries[id as usize].1))
    }

    /// All names behind `after` (`None`: from the start; it need not be in the tree) in the tree's order, which is that of [`compare`].
    pub fn behind(&self, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &T)> {
        self.range(after.map_or(Bound::Unbounded, Bound::Excluded))
            .map(|(Key(name), &id)| (name, &self.entries[id as usize].1))
    }

    /// The names behind `after` (`None`: from the start; it need not be in the tree) that match `filter` (without share prefix, parsed before), in the tree's order, as far as `budget` goes: the number of names
    /// that may be examined, matching or not. When the iterator has ended, [`Scan::resume`] says whether there may be more.
    pub fn scan<'t, 'f>(&'t self, filter: &'f str, after: Option<&str>, budget: usize) -> Scan<'t, 'f, T> {
        let range = match after {
            Some(after) => self.range(Bound::Excluded(after)),
            // The least name that could match, so that a filter with a literal front starts where it belongs.
            None => {
                let mut first = String::new();
                push_least(&mut first, filter);
                self.range(Bound::Included(&first))
            }
        };
        Scan { tree: self, filter, range, examined: None, budget, goal: String::new() }
    }

    fn find(&self, name: &str) -> Option<EntryId> {
        let hash = self.hasher.hash_one(name.as_bytes());
        self.by_name.find(hash, |&id| *self.entries[id as usize].0 == *name).copied()
    }

    fn range(&self, from: Bound<&str>) -> Range<'_, Key, EntryId> {
        let from = from.map(|text| text as &str);
        let bound: Bound<&dyn Ordered> = match &from {
            Bound::Included(text) => Bound::Included(text),
            Bound::Excluded(text) => Bound::Excluded(text),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.order.range::<dyn Ordered + '_, _>((bound, Bound::Unbounded))
    }
}

/// The matching names of one filter, from one name on: see [`NameTree::scan`].
#[derive(Debug)]
pub struct Scan<'t, 'f, T> {
    tree: &'t NameTree<T>,
    filter: &'f str,
    range: Range<'t, Key, EntryId>,
    /// The last name that was looked at: everything up to it is done.
    examined: Option<&'t Arc<str>>,
    budget: usize,
    /// Where the scan goes on after a name that does not match; kept for its buffer.
    goal: String,
}

impl<'t, T> Scan<'t, '_, T> {
    /// After the iterator has ended: `Some(name)` if it did so because the budget was used up. Scanning on from `after
    /// = name` misses nothing and repeats nothing. `None`: there are no more matches. A budget of 0 examines nothing and
    /// also says `None`.
    pub fn resume(&self) -> Option<&'t Arc<str>> {
        self.examined.filter(|_| self.budget == 0)
    }

    /// The names that may still be examined.
    pub fn budget_left(&self) -> usize {
        self.budget
    }

    /// Moves to the first name that is not before `goal`: a few steps if it is near, else a seek.
    fn advance_to_goal(&mut self) {
        for _ in 0..STEPS_BEFORE_SEEK {
            let mut ahead = self.range.clone();
            match ahead.next() {
                Some((key, _)) if compare(&key.0, &self.goal).is_lt() => self.range = ahead,
                _ => return,
            }
        }
        self.range = self.tree.range(Bound::Included(&self.goal));
    }

    fn end(&mut self) {
        self.examined = None;
    }
}

impl<'t, T> Iterator for Scan<'t, '_, T> {
    type Item = (&'t Arc<str>, &'t T);

    fn next(&mut self) -> Option<Self::Item> {
        while self.budget != 0 {
            let Some((Key(name), &id)) = self.range.next() else {
                self.end();
                return None;
            };
            self.budget -= 1;
            self.examined = Some(name);
            match judge(self.filter, name, &mut self.goal) {
                Verdict::Match => return Some((name, &self.tree.entries[id as usize].1)),
                Verdict::Seek => self.advance_to_goal(),
                Verdict::End => {
                    self.range = Range::default();
                    self.end();
                    return None;
                }
            }
        }
        None
    }
}
