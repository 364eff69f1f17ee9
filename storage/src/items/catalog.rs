//! What is live and where it stands: items by owner, bodies that are shared, and how many bytes of each segment are still needed. \[pure\]
//!
//! Owner: the thread that writes (before that, the one that opens). It says what is on disk, so it changes only behind a batch that was synced.
//!
//! 40 bytes for an item with a body of its own. A body that stands in the record of its only item has no entry of its own; it gets one ([`SharedBody`]) as soon as a second
//! item refers to it, or its item is written anew.
//!
//! # Invariants
//! - The items of an owner are in order. Dead ones in the middle stay until there are as many as live ones; the first and the last are live.
//! - A shared body is there exactly as long as an item refers to it.
//! - `live[segment]` is the sum of the costs of what stands in it: 0 exactly when nothing does.
//!
//! Test to read first: `tests::the_catalog_is_a_map`.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry as MapEntry;
use hashbrown::hash_table::Entry as TableEntry;
use hashbrown::{HashMap, HashSet, HashTable};

use crate::entry::{BodyId, ItemId, OwnerId};
use crate::journal::Location;

/// What a record costs an item at the most that carries a shared body: about the frame and the head.
const HEAD_COST_MAX: u32 = 64;
/// Queues shorter than this keep their room.
const SLOTS_KEPT: usize = 64;

/// The body of an item, as the catalog keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemBody {
    None,
    /// In the item's own record, and nowhere else known.
    Own(BodyId),
    /// In the table of shared bodies.
    Shared(BodyId),
    /// The same; the item's own record carries the bytes too, whether or not the table points there.
    Carried(BodyId),
}

impl ItemBody {
    pub(super) fn id(self) -> Option<BodyId> {
        match self {
            ItemBody::None => None,
            ItemBody::Own(id) | ItemBody::Shared(id) | ItemBody::Carried(id) => Some(id),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Dead,
    Bare,
    Own,
    Shared,
    Carried,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    item: ItemId,
    /// The id of the body, the low half first: two words, because one of 16 bytes would be aligned to 16.
    body: [u64; 2],
    location: Location,
    tag: Tag,
}

const _: () = assert!(size_of::<Slot>() == 40);

impl Slot {
    fn new(item: ItemId, location: Location, body: ItemBody) -> Slot {
        let (tag, id) = match body {
            ItemBody::None => (Tag::Bare, 0),
            ItemBody::Own(id) => (Tag::Own, id.0),
            ItemBody::Shared(id) => (Tag::Shared, id.0),
            ItemBody::Carried(id) => (Tag::Carried, id.0),
        };
        Slot { item, body: [id as u64, (id >> 64) as u64], location, tag }
    }

    fn body(&self) -> ItemBody {
        let id = BodyId(u128::from(self.body[0]) | u128::from(self.body[1]) << 64);
        match self.tag {
            Tag::Dead | Tag::Bare => ItemBody::None,
            Tag::Own => ItemBody::Own(id),
            Tag::Shared => ItemBody::Shared(id),
            Tag::Carried => ItemBody::Carried(id),
        }
    }

    fn cost(&self) -> u64 {
        u64::from(match self.tag {
            Tag::Dead => 0,
            // The body is accounted for by itself.
            Tag::Carried => self.location.len.min(HEAD_COST_MAX),
            Tag::Bare | Tag::Own | Tag::Shared => self.location.len,
        })
    }
}

/// A live item, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) location: Location,
    pub(super) body: ItemBody,
    /// Bytes that are not needed any more when it goes; those of a shared body are not counted.
    pub(super) cost: u64,
}

/// What is known of a body that may be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedPlace {
    /// It is not shared; an item may have it as its own.
    Unknown,
    /// Items refer to it, and damage has taken it.
    Lost,
    Stands(Location),
}

#[derive(Debug, Default)]
struct Queue {
    slots: VecDeque<Slot>,
    dead: usize,
}

impl Queue {
    fn find(&self, item: ItemId) -> Option<usize> {
        let first = self.slots.front()?;
        if first.item == item {
            return Some(0);
        }
        if item < first.item || item > self.slots.back()?.item {
            return None;
        }
        let place = self.slots.binary_search_by_key(&item, |slot| slot.item).ok()?;
        (self.slots[place].tag != Tag::Dead).then_some(place)
    }

    /// Puts in a slot whose item is not live.
    fn insert(&mut self, slot: Slot) {
        if self.slots.back().is_none_or(|last| last.item < slot.item) {
            if self.slots.capacity() == 0 {
                self.slots.reserve_exact(1);
            }
            return self.slots.push_back(slot);
        }
        match self.slots.binary_search_by_key(&slot.item, |slot| slot.item) {
            Ok(place) => {
                self.slots[place] = slot;
                self.dead -= 1;
            }
            Err(place) => self.slots.insert(place, slot),
        }
    }

    fn remove(&mut self, place: usize) {
        if place == 0 {
            self.slots.pop_front();
        } else if place + 1 == self.slots.len() {
            self.slots.pop_back();
        } else {
            self.slots[place].tag = Tag::Dead;
            self.dead += 1;
        }
        while self.dead > 0 && self.slots.front().is_some_and(|slot| slot.tag == Tag::Dead) {
            self.slots.pop_front();
            self.dead -= 1;
        }
        while self.dead > 0 && self.slots.back().is_some_and(|slot| slot.tag == Tag::Dead) {
            self.slots.pop_back();
            self.dead -= 1;
        }
        if self.dead > 16 && self.dead * 2 > self.slots.len() {
            self.slots.retain(|slot| slot.tag != Tag::Dead);
            self.dead = 0;
        }
        let capacity = self.slots.capacity();
        if capacity > SLOTS_KEPT && capacity / 4 > self.slots.len() {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    fn len(&self) -> usize {
        self.slots.len() - self.dead
    }
}

/// A body that has a place of its own.
#[derive(Debug)]
struct SharedBody {
    id: BodyId,
    /// The record that carries it. Length 0: it was lost to damage.
    location: Location,
    items: u32,
}

/// Live bytes by segment.
#[derive(Debug, Default)]
struct LiveBytes {
    first: u32,
    segments: VecDeque<u64>,
    total: u64,
}

impl LiveBytes {
    fn add(&mut self, segment: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.segments.is_empty() {
            self.first = segment;
        }
        while segment < self.first {
            self.segments.push_front(0);
            self.first -= 1;
        }
        let place = (segment - self.first) as usize;
        if place >= self.segments.len() {
            self.segments.resize(place + 1, 0);
        }
        self.segments[place] += bytes;
        self.total += bytes;
    }

    fn sub(&mut self, segment: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.segments[(segment - self.first) as usize] -= bytes;
        self.total -= bytes;
    }

    fn of(&self, segment: u32) -> u64 {
        segment.checked_sub(self.first).and_then(|place| self.segments.get(place as usize)).copied().unwrap_or(0)
    }

    fn forget_before(&mut self, segment: u32) {
        while self.first < segment && self.segments.front() == Some(&0) {
            self.segments.pop_front();
            self.first += 1;
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Catalog {
    owners: HashMap<OwnerId, Queue, FixedState>,
    items: u64,
    bodies: HashTable<SharedBody>,
    /// Deletions whose Put has not come.
    early: HashMap<OwnerId, HashSet<ItemId, FixedState>, FixedState>,
    early_items: u64,
    live: LiveBytes,
    hasher: FixedState,
}

impl Catalog {
    /// A live item.
    pub(super) fn item(&self, owner: OwnerId, item: ItemId) -> Option<Item> {
        let queue = self.owners.get(&owner)?;
        let slot = queue.slots[queue.find(item)?];
        Some(Item { location: slot.location, body: slot.body(), cost: slot.cost() })
    }

    /// Has the owner live items?
    pub(super) fn has_owner(&self, owner: OwnerId) -> bool {
        self.owners.contains_key(&owner)
    }

    /// The live items of an owner, in order.
    pub(super) fn items_of(&self, owner: OwnerId) -> impl Iterator<Item = (ItemId, Item)> {
        let slots = self.owners.get(&owner).map(|queue| queue.slots.iter()).into_iter().flatten();
        slots
            .filter(|slot| slot.tag != Tag::Dead)
            .map(|slot| (slot.item, Item { location: slot.location, body: slot.body(), cost: slot.cost() }))
    }

    pub(super) fn shared_body(&self, id: BodyId) -> SharedPlace {
        match self.bodies.find(self.hasher.hash_one(id.0), |body| body.id == id) {
            None => SharedPlace::Unknown,
            Some(body) if body.location.len == 0 => SharedPlace::Lost,
            Some(body) => SharedPlace::Stands(body.location),
        }
    }

    /// The record that carries the body of an item.
    pub(super) fn body_of(&self, item: &Item) -> Option<Location> {
        match item.body {
            ItemBody::None => None,
            ItemBody::Own(_) => Some(item.location),
            ItemBody::Shared(id) | ItemBody::Carried(id) => match self.shared_body(id) {
                SharedPlace::Stands(location) => Some(location),
                SharedPlace::Unknown | SharedPlace::Lost => None,
            },
        }
    }

    /// Room for so many more items of an owner.
    pub(super) fn reserve(&mut self, owner: OwnerId, items: usize) {
        self.owners.entry(owner).or_default().slots.reserve_exact(items);
    }

    /// Enters an item, or its newer record.
    pub(super) fn put(&mut self, owner: OwnerId, item: ItemId, location: Location, body: ItemBody) {
        if let ItemBody::Shared(id) | ItemBody::Carried(id) = body {
            // The body of its older record becomes one that stands apart.
            let carried = self.item(owner, item).filter(|old| old.body == ItemBody::Own(id)).map(|old| old.location);
            self.refer(id, carried);
        }
        let slot = Slot::new(item, location, body);
        self.live.add(location.segment, slot.cost());
        let queue = self.owners.entry(owner).or_default();
        match queue.find(item) {
            Some(place) => {
                let old = std::mem::replace(&mut queue.slots[place], slot);
                self.release(&old);
            }
            None => {
                queue.insert(slot);
                self.items += 1;
            }
        }
    }

    /// The body with this id stands (also) in this record, and is shared from now on. Its items follow by [`Catalog::put`] before anything else is asked.
    pub(super) fn share(&mut self, id: BodyId, location: Location) {
        let hash = self.hasher.hash_one(id.0);
        match self.bodies.entry(hash, |body| body.id == id, |body| self.hasher.hash_one(body.id.0)) {
            TableEntry::Occupied(mut entry) => {
                let body = entry.get_mut();
                if body.location.len == 0 {
                    body.location = location;
                    self.live.add(location.segment, u64::from(location.len));
                }
            }
            TableEntry::Vacant(entry) => {
                entry.insert(SharedBody { id, location, items: 0 });
                self.live.add(location.segment, u64::from(location.len));
            }
        }
    }

    /// One more item refers to a shared body. One that is not known stands in `carried`, or is lost.
    fn refer(&mut self, id: BodyId, carried: Option<Location>) {
        self.share(id, carried.unwrap_or(Location { segment: 0, offset: 0, len: 0 }));
        let body = self.bodies.find_mut(self.hasher.hash_one(id.0), |body| body.id == id).expect("it was just entered");
        body.items += 1;
    }

    /// A shared body stays until [`Catalog::let_go`], whatever becomes of its items.
    pub(super) fn hold(&mut self, id: BodyId) {
        self.refer(id, None);
    }

    /// An item has gone, or has a newer record.
    fn release(&mut self, old: &Slot) {
        self.live.sub(old.location.segment, old.cost());
        if let ItemBody::Shared(id) | ItemBody::Carried(id) = old.body() {
            self.let_go(id);
        }
    }

    /// One item fewer refers to a shared body; with the last it goes.
    pub(super) fn let_go(&mut self, id: BodyId) {
        let Ok(mut entry) = self.bodies.find_entry(self.hasher.hash_one(id.0), |body| body.id == id) else { return };
        entry.get_mut().items -= 1;
        if entry.get().items == 0 {
            let (body, _) = entry.remove();
            self.live.sub(body.location.segment, u64::from(body.location.len));
        }
    }

    /// False: there was no such item.
    pub(super) fn delete(&mut self, owner: OwnerId, item: ItemId) -> bool {
        let MapEntry::Occupied(mut entry) = self.owners.entry(owner) else { return false };
        let queue = entry.get_mut();
        let Some(place) = queue.find(item) else { return false };
        let old = queue.slots[place];
        queue.remove(place);
        if queue.len() == 0 {
            entry.remove();
        }
        self.items -= 1;
        self.release(&old);
        true
    }

    pub(super) fn drop_owner(&mut self, owner: OwnerId) {
        if let Some(early) = self.early.remove(&owner) {
            self.early_items -= early.len() as u64;
        }
        let Some(queue) = self.owners.remove(&owner) else { return };
        for slot in queue.slots.iter().filter(|slot| slot.tag != Tag::Dead) {
            self.items -= 1;
            self.release(slot);
        }
    }

    /// Remembers a deletion whose Put has not come.
    pub(super) fn delete_early(&mut self, owner: OwnerId, item: ItemId) {
        if self.early.entry(owner).or_default().insert(item) {
            self.early_items += 1;
        }
    }

    /// Was the item deleted before it came?
    pub(super) fn is_deleted_early(&self, owner: OwnerId, item: ItemId) -> bool {
        !self.early.is_empty() && self.early.get(&owner).is_some_and(|items| items.contains(&item))
    }

    /// The Put of an early deletion has come.
    pub(super) fn forget_early(&mut self, owner: OwnerId, item: ItemId) {
        let MapEntry::Occupied(mut entry) = self.early.entry(owner) else { return };
        if entry.get_mut().remove(&item) {
            self.early_items -= 1;
        }
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    /// The item's record was written again; `carries`: with the body that it carried.
    pub(super) fn item_moved(&mut self, owner: OwnerId, item: ItemId, from: Location, to: Location, carries: bool) {
        let Some(queue) = self.owners.get_mut(&owner) else { return };
        let Some(place) = queue.find(item) else { return };
        let slot = &mut queue.slots[place];
        if slot.location == from {
            self.live.sub(from.segment, slot.cost());
            slot.location = to;
            if slot.tag == Tag::Carried && !carries {
                slot.tag = Tag::Shared;
            }
            self.live.add(to.segment, slot.cost());
        }
    }

    /// The record of a shared body was written again.
    pub(super) fn body_moved(&mut self, id: BodyId, from: Location, to: Location) {
        let Some(body) = self.bodies.find_mut(self.hasher.hash_one(id.0), |body| body.id == id) else { return };
        if body.location == from {
            self.live.sub(from.segment, u64::from(from.len));
            body.location = to;
            self.live.add(to.segment, u64::from(to.len));
        }
    }

    /// Bytes of this segment that are still needed.
    pub(super) fn live_in(&self, segment: u32) -> u64 {
        self.live.of(segment)
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live.total
    }

    /// The segments before this one are gone.
    pub(super) fn forget_segments_before(&mut self, segment: u32) {
        self.live.forget_before(segment);
    }

    pub(super) fn items(&self) -> u64 {
        self.items
    }

    pub(super) fn shared_bodies(&self) -> u64 {
        self.bodies.len() as u64
    }

    pub(super) fn early_deletions(&self) -> u64 {
        self.early_items
    }
}

#[cfg(test)]
impl Catalog {
    /// Everything that is counted is what counting it anew gives.
    pub(super) fn check(&self) {
        let mut live = std::collections::BTreeMap::new();
        let mut references: HashMap<BodyId, u32> = HashMap::new();
        let mut items = 0;
        for queue in self.owners.values() {
            assert!(queue.slots.iter().is_sorted_by(|a, b| a.item < b.item));
            assert!(queue.slots.front().is_some_and(|slot| slot.tag != Tag::Dead));
            assert!(queue.slots.back().is_some_and(|slot| slot.tag != Tag::Dead));
            assert_eq!(queue.slots.iter().filter(|slot| slot.tag == Tag::Dead).count(), queue.dead);
            for slot in queue.slots.iter().filter(|slot| slot.tag != Tag::Dead) {
                items += 1;
                *live.entry(slot.location.segment).or_insert(0) += slot.cost();
                if let ItemBody::Shared(id) | ItemBody::Carried(id) = slot.body() {
                    *references.entry(id).or_insert(0) += 1;
                }
            }
        }
        for body in &self.bodies {
            assert_eq!(references.remove(&body.id), Some(body.items), "{body:?}");
            if body.location.len > 0 {
                *live.entry(body.location.segment).or_insert(0) += u64::from(body.location.len);
            }
        }
        assert!(references.is_empty(), "{references:?}");
        assert_eq!(items, self.items);
        assert_eq!(live.values().sum::<u64>(), self.live.total);
        for (place, &bytes) in (self.live.first..).zip(&self.live.segments) {
            assert_eq!(bytes, live.remove(&place).unwrap_or(0), "segment {place}");
        }
        assert!(live.is_empty(), "{live:?}");
    }

    /// Bytes that the queue of an owner occupies.
    pub(super) fn room_of(&self, owner: OwnerId) -> usize {
        self.owners.get(&owner).map_or(0, |queue| queue.slots.capacity() * size_of::<Slot>())
    }
}
