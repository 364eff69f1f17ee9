//! Where the leases are: found by client id, and in one list per holder.
//!
//! A lease stays in its cell for as long as it is, so growing moves none of them, and looking for one compares hashes before it touches a
//! cell. The lists are in the order in which the leases came to their holders, which is the same on every node; the
//! cells are not.
//!
//! Invariant: every lease is in the list of its holder, and in no other.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::lease::Lease;
use super::nodes::NodeSlot;
use crate::command::ClientId;

/// Cell of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseKey(u32);

/// A lease and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) client: ClientId,
    pub(super) lease: Lease,
}

/// No cell: the end of a list.
const NONE: u32 = u32::MAX;

/// Place of a lease in the list of its holder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    before: u32,
    behind: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { before: NONE, behind: NONE }
    }
}

#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

/// What is in the hash table: enough of the hash to tell most others apart, and to grow without a look at the cells.
#[derive(Debug, Clone, Copy)]
struct Place {
    hash: u32,
    cell: u32,
}

impl Place {
    /// The hash as the table wants it, with entropy at both ends.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Cells that are allocated together.
const CELLS_TOGETHER: usize = 1 << 12;

/// All leases.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    places: HashTable<Place>,
    hasher: RandomState,
    cells: Vec<Vec<Option<Entry>>>,
    free: Vec<u32>,
    held: Vec<List>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn reserve(&mut self, leases: usize) {
        self.places.reserve(leases, |place| Place::spread(place.hash));
    }

    pub(super) fn find(&self, client: &str) -> Option<LeaseKey> {
        let hash = self.hash(client);
        let is_it = |place: &Place| place.hash == hash && &*self.cell(place.cell).client == client;
        self.places.find(Place::spread(hash), is_it).map(|place| LeaseKey(place.cell))
    }

    pub(super) fn entry(&self, key: LeaseKey) -> &Entry {
        self.cell(key.0)
    }

    pub(super) fn lease(&self, key: LeaseKey) -> &Lease {
        &self.cell(key.0).lease
    }

    pub(super) fn lease_mut(&mut self, key: LeaseKey) -> &mut Lease {
        &mut self.cell_mut(key.0).lease
    }

    pub(super) fn client(&self, key: LeaseKey) -> &ClientId {
        &self.cell(key.0).client
    }

    /// Enters the lease of a client that has none, last in the list of its holder.
    pub(super) fn insert(&mut self, client: ClientId, lease: Lease) -> LeaseKey {
        let (hash, holder) = (self.hash(&client), lease.holder);
        let cell = self.free.pop().unwrap_or_else(|| self.grow());
        self.cells[cell as usize / CELLS_TOGETHER][cell as usize % CELLS_TOGETHER] = Some(Entry { client, lease });
        self.places.insert_unique(Place::spread(hash), Place { hash, cell }, |place| Place::spread(place.hash));
        self.link(cell, holder);
        LeaseKey(cell)
    }

    pub(super) fn remove(&mut self, key: LeaseKey) -> Entry {
        self.unlink(key.0);
        let hash = self.hash(&self.cell(key.0).client);
        let place = self.places.find_entry(Place::spread(hash), |place| place.cell == key.0);
        place.expect("a cell in use has its place").remove();
        self.free.push(key.0);
        let cell = self.cells[key.0 as usize / CELLS_TOGETHER][key.0 as usize % CELLS_TOGETHER].take();
        cell.expect("a cell in use is not empty")
    }

    /// Gives the lease to `holder`, last in its list, even if it was its holder already.
    pub(super) fn give_to(&mut self, key: LeaseKey, holder: NodeSlot) {
        self.unlink(key.0);
        self.lease_mut(key).holder = holder;
        self.link(key.0, holder);
    }

    /// The lease that `holder` has had for longest.
    pub(super) fn first_of(&self, holder: NodeSlot) -> Option<LeaseKey> {
        let first = self.held.get(holder.place())?.first;
        (first != NONE).then_some(LeaseKey(first))
    }

    pub(super) fn len_of(&self, holder: NodeSlot) -> usize {
        self.held.get(holder.place()).map_or(0, |list| list.len)
    }

    /// The leases of `holder`, in the order in which they came.
    pub(super) fn of(&self, holder: NodeSlot) -> impl Iterator<Item = &Entry> {
        let first = self.first_of(holder);
        let entries = std::iter::successors(first, |key| {
            let behind = self.lease(*key).links.behind;
            (behind != NONE).then_some(LeaseKey(behind))
        });
        entries.map(|key| self.entry(key))
    }

    /// All leases, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.cells.iter().flatten().flatten()
    }

    /// Does something to all of them that does not depend on the order.
    pub(super) fn each_mut(&mut self, mut change: impl FnMut(&mut Lease)) {
        self.cells.iter_mut().flatten().flatten().for_each(|entry| change(&mut entry.lease));
    }

    fn hash(&self, client: &str) -> u32 {
        self.hasher.hash_one(client) as u32
    }

    fn cell(&self, cell: u32) -> &Entry {
        let entry = self.cells[cell as usize / CELLS_TOGETHER][cell as usize % CELLS_TOGETHER].as_ref();
        entry.expect("a key is of a cell in use")
    }

    fn cell_mut(&mut self, cell: u32) -> &mut Entry {
        let entry = self.cells[cell as usize / CELLS_TOGETHER][cell as usize % CELLS_TOGETHER].as_mut();
        entry.expect("a key is of a cell in use")
    }

    /// A new cell at the end.
    fn grow(&mut self) -> u32 {
        if self.cells.last().is_none_or(|cells| cells.len() == CELLS_TOGETHER) {
            // The first ones grow on demand: most states of tests are small.
            let capacity = if self.cells.is_empty() { 0 } else { CELLS_TOGETHER };
            self.cells.push(Vec::with_capacity(capacity));
        }
        let group = self.cells.len() - 1;
        let cells = &mut self.cells[group];
        cells.push(None);
        let cell = u32::try_from(group * CELLS_TOGETHER + cells.len() - 1).unwrap_or(NONE);
        assert!(cell != NONE, "the table is full");
        cell
    }

    fn link(&mut self, cell: u32, holder: NodeSlot) {
        if self.held.len() <= holder.place() {
            self.held.resize(holder.place() + 1, List::default());
        }
        let list = &mut self.held[holder.place()];
        let before = std::mem::replace(&mut list.last, cell);
        list.len += 1;
        if before == NONE {
            list.first = cell;
        } else {
            self.cell_mut(before).lease.links.behind = cell;
        }
        self.cell_mut(cell).lease.links = Links { before, behind: NONE };
    }

    fn unlink(&mut self, cell: u32) {
        let Lease { holder, links: Links { before, behind }, .. } = self.cell(cell).lease;
        if before != NONE {
            self.cell_mut(before).lease.links.behind = behind;
        }
        if behind != NONE {
            self.cell_mut(behind).lease.links.before = before;
        }
        let list = &mut self.held[holder.place()];
        list.len -= 1;
        if list.first == cell {
            list.first = behind;
        }
        if list.last == cell {
            list.last = before;
        }
    }
}
