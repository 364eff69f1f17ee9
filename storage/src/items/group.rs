//! What was handed in and is not on disk yet: the newest state of each item. \[pure\]
//!
//! Owner: the thread that writes. Entries of all sources are merged here in the order in which they were taken; what a batch will hold is decided against the catalog when
//! it is made ([`super::store`]), and the group is kept until that batch is on disk.
//!
//! # Rules
//! - Put and Put: the newer value; the newer body, or the older one when the newer Put has none.
//! - Put and Delete, in either order: gone. The Put is not written; whether a Delete must be is for the catalog to say.
//! - Drop: everything of the owner that came before it is void; what comes behind makes the owner anew.
//!
//! Test to read first: `tests::a_group_is_the_fold_of_its_entries`.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use crate::entry::{Body, Entry, ItemId, OwnerId, Value};

/// Capacities above this are given back when they are not needed any more.
const SLOTS_KEPT: usize = 1 << 16;

/// The newest state of one item, or the Drop of an owner.
pub(super) struct Slot {
    pub(super) owner: OwnerId,
    /// 0 in a Drop.
    pub(super) item: ItemId,
    pub(super) change: Change,
}

pub(super) enum Change {
    Put {
        value: Value,
        body: Option<Arc<dyn Body>>,
    },
    /// `put_seen`: its Put was in this group, so nobody waits for it.
    Delete {
        put_seen: bool,
    },
    Drop,
}

/// What the group knows of an item.
pub(super) enum Known<'a> {
    /// Nothing: ask the catalog.
    Nothing,
    /// Deleted, or its owner dropped.
    Gone,
    /// Put, without a body of its own: if the catalog has one, it is still that.
    Put,
    Body(&'a Arc<dyn Body>),
}

#[derive(Default)]
pub(crate) struct Group {
    slots: Vec<Slot>,
    /// Places in `slots` by owner and item. Drops are not in it.
    index: HashTable<u32>,
    /// The place of the last Drop of an owner: what stands before it is void.
    drops: HashMap<OwnerId, u32, FixedState>,
    hasher: FixedState,
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn reserve(&mut self, entries: usize) {
        self.slots.reserve(entries);
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Put { owner, item, value, body } => match self.find_or_add(owner, item) {
                Ok(place) => match &mut self.slots[place].change {
                    Change::Put { value: old, body: old_body } => {
                        *old = value;
                        if body.is_some() {
                            *old_body = body;
                        }
                    }
                    Change::Delete { put_seen } => *put_seen = true,
                    Change::Drop => unreachable!("the index holds items"),
                },
                Err(()) => self.slots.push(Slot { owner, item, change: Change::Put { value, body } }),
            },
            Entry::Delete { owner, item } => match self.find_or_add(owner, item) {
                Ok(place) => {
                    let change = &mut self.slots[place].change;
                    if matches!(change, Change::Put { .. }) {
                        *change = Change::Delete { put_seen: true };
                    }
                }
                Err(()) => self.slots.push(Slot { owner, item, change: Change::Delete { put_seen: false } }),
            },
            Entry::Drop { owner } => {
                self.drops.insert(owner, self.slots.len() as u32);
                self.slots.push(Slot { owner, item: 0, change: Change::Drop });
            }
        }
    }

    /// The place of the item's slot, or `Err` when the caller has to push one: the index has its place already.
    fn find_or_add(&mut self, owner: OwnerId, item: ItemId) -> Result<usize, ()> {
        let next = self.slots.len() as u32;
        let Group { slots, index, drops, hasher } = self;
        let hash = hasher.hash_one((owner.0, item));
        let same = |&place: &u32| {
            let slot = &slots[place as usize];
            slot.item == item && slot.owner == owner
        };
        if let Some(place) = index.find_mut(hash, same) {
            if !is_void(drops, owner, *place) {
                return Ok(*place as usize);
            }
            *place = next;
            return Err(());
        }
        index.insert_unique(hash, next, |&place| {
            let slot = &slots[place as usize];
            hasher.hash_one((slot.owner.0, slot.item))
        });
        Err(())
    }

    /// The slots that count, in an order in which they may be written.
    pub(super) fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..).zip(&self.slots).filter(|(place, slot)| !is_void(&self.drops, slot.owner, *place))
    }

    pub(super) fn slot(&self, place: u32) -> &Slot {
        &self.slots[place as usize]
    }

    /// Does the group drop what the catalog has of this owner?
    pub(super) fn drops(&self, owner: OwnerId) -> bool {
        !self.drops.is_empty() && self.drops.contains_key(&owner)
    }

    pub(super) fn known(&self, owner: OwnerId, item: ItemId) -> Known<'_> {
        let hash = self.hasher.hash_one((owner.0, item));
        let found = self.index.find(hash, |&place| {
            let slot = &self.slots[place as usize];
            slot.item == item && slot.owner == owner
        });
        match found.filter(|&&place| !is_void(&self.drops, owner, place)) {
            Some(&place) => match &self.slots[place as usize].change {
                Change::Put { body: Some(body), .. } => Known::Body(body),
                Change::Put { body: None, .. } if !self.drops(owner) => Known::Put,
                _ => Known::Gone,
            },
            None if self.drops(owner) => Known::Gone,
            None => Known::Nothing,
        }
    }

    /// Forgets everything; the room is kept unless it is far more than this group needed.
    pub(crate) fn clear(&mut self) {
        let used = self.slots.len().max(SLOTS_KEPT / 8);
        self.slots.clear();
        self.index.clear();
        self.drops.clear();
        if self.slots.capacity() > 8 * used {
            self.slots.shrink_to(2 * used);
        }
        if self.index.capacity() > 8 * used {
            self.index.shrink_to(2 * used, |_| unreachable!("it is empty"));
        }
        if self.drops.capacity() > 8 * used {
            self.drops.shrink_to(2 * used);
        }
    }

    /// Forgets the slots that are void, and those of which `needed` says no. For a group that has to wait, so that it grows no further than what it holds.
    pub(super) fn retain(&mut self, mut needed: impl FnMut(&Slot) -> bool) {
        let slots = std::mem::take(&mut self.slots);
        let drops = std::mem::take(&mut self.drops);
        self.index.clear();
        for (place, slot) in (0..).zip(slots) {
            if is_void(&drops, slot.owner, place) || !needed(&slot) {
                continue;
            }
            match slot.change {
                Change::Drop => {
                    self.drops.insert(slot.owner, self.slots.len() as u32);
                }
                _ => {
                    let added = self.find_or_add(slot.owner, slot.item);
                    debug_assert!(added.is_err(), "an item has one slot that counts");
                }
            }
            self.slots.push(slot);
        }
    }
}

fn is_void(drops: &HashMap<OwnerId, u32, FixedState>, owner: OwnerId, place: u32) -> bool {
    !drops.is_empty() && drops.get(&owner).is_some_and(|&drop| place < drop)
}
