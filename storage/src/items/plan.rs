//! What becomes of a group: the records of its batch, and how the catalog changes once that is on disk. \[pure\]
//!
//! A plan is made against the catalog as it is, and carried out against the same catalog; when the batch could not be written nothing has happened, and the group is planned anew.
//!
//! Test to read first: `tests::the_store_is_a_map_that_survives`.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::catalog::{Catalog, Item, ItemBody, SharedPlace};
use super::group::{Change, Group, Slot};
use super::record::{Head, HeadBody};
use crate::entry::{Body, BodyId, Value};
use crate::journal::{Batch, Location, Placed};

/// Steps and bodies beyond these are not kept for the next plan.
const STEPS_KEPT: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Without a body.
    Put,
    /// The record carries the body, for this item alone.
    PutOwn,
    /// The record carries the body, and others refer to it.
    PutCarrying,
    /// The body stands in another record.
    PutReferring,
    /// The body stays that of the item's older record.
    PutKeeping,
    /// Deleted before it came.
    PutVoid,
    Delete,
    /// Remembered until the Put comes.
    DeleteEarly,
    Drop,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    slot: u32,
    /// The place of the record in the batch; 0 when there is none.
    place: u32,
    act: Act,
}

/// A body that a record of this batch carries.
#[derive(Debug, Clone, Copy)]
struct Carried {
    id: [u64; 2],
    step: u32,
}

pub(super) struct Plan {
    batch: Batch,
    steps: Vec<Step>,
    carried: HashTable<Carried>,
    head: Vec<u8>,
    hasher: FixedState,
}

impl Plan {
    pub(super) fn new() -> Plan {
        Plan {
            batch: Batch::new(),
            steps: Vec::new(),
            carried: HashTable::new(),
            head: Vec::new(),
            hasher: FixedState::default(),
        }
    }

    /// The records to write: none when everything cancelled out.
    pub(super) fn batch(&mut self) -> &mut Batch {
        &mut self.batch
    }

    pub(super) fn batch_bytes(&self) -> usize {
        self.batch.len()
    }

    /// How many slots of the group do something.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn clear(&mut self) {
        self.batch.clear();
        let used = self.steps.len().max(STEPS_KEPT / 8);
        self.steps.clear();
        self.carried.clear();
        if self.steps.capacity() > 8 * used {
            self.steps.shrink_to(2 * used);
        }
        if self.carried.capacity() > 8 * used {
            self.carried.shrink_to(2 * used, |_| unreachable!("it is empty"));
        }
    }

    /// Makes the batch for a group.
    pub(super) fn make(&mut self, group: &Group, catalog: &Catalog) {
        self.clear();
        for (place, slot) in group.slots() {
            let dropped = group.drops(slot.owner);
            match &slot.change {
                Change::Put { value, body } => self.put(place, slot, value, body.as_ref(), (catalog, dropped)),
                Change::Delete { put_seen } => self.delete(place, slot, *put_seen, (catalog, dropped)),
                Change::Drop => {
                    let record =
                        if catalog.has_owner(slot.owner) { self.write(&Head::Drop { owner: slot.owner }) } else { 0 };
                    self.step(place, record, Act::Drop);
                }
            }
        }
    }

    fn step(&mut self, slot: u32, place: u32, act: Act) {
        self.steps.push(Step { slot, place, act });
    }

    fn write(&mut self, head: &Head<'_>) -> u32 {
        self.batch.push(head.encode(&mut self.head), |_| {})
    }

    /// `known`: the catalog, and whether what it has of this owner goes with this group.
    fn delete(&mut self, place: u32, slot: &Slot, put_seen: bool, (catalog, dropped): (&Catalog, bool)) {
        let (owner, item) = (slot.owner, slot.item);
        if !dropped && catalog.item(owner, item).is_some() {
            let record = self.write(&Head::Delete { owner, item });
            self.step(place, record, Act::Delete);
        } else if !put_seen {
            self.step(place, 0, Act::DeleteEarly);
        } else if catalog.is_deleted_early(owner, item) {
            self.step(place, 0, Act::PutVoid);
        }
    }

    fn put(
        &mut self,
        place: u32,
        slot: &Slot,
        value: &Value,
        body: Option<&Arc<dyn Body>>,
        (catalog, dropped): (&Catalog, bool),
    ) {
        let (owner, item) = (slot.owner, slot.item);
        if !dropped && catalog.is_deleted_early(owner, item) {
            return self.step(place, 0, Act::PutVoid);
        }
        let old = if dropped { None } else { catalog.item(owner, item) };
        let (act, head_body) = self.body(body, old.as_ref(), catalog);
        let head = Head::Put { owner, item, body: head_body, value };
        let record = match (head_body, body) {
            (HeadBody::Here(_), Some(body)) => self.batch.push(head.encode(&mut self.head), |tail| body.encode(tail)),
            _ => self.write(&head),
        };
        self.step(place, record, act);
    }

    /// Where the body of a Put stands, or will.
    fn body(&mut self, body: Option<&Arc<dyn Body>>, old: Option<&Item>, catalog: &Catalog) -> (Act, HeadBody) {
        let Some(body) = body else {
            return match old.and_then(|old| old.body.id()) {
                Some(id) => (Act::PutKeeping, HeadBody::Elsewhere(id)),
                None => (Act::Put, HeadBody::None),
            };
        };
        let id = body.id();
        if old.is_some_and(|old| old.body.id() == Some(id) && catalog.body_of(old).is_some()) {
            return (Act::PutKeeping, HeadBody::Elsewhere(id));
        }
        let words = [id.0 as u64, (id.0 >> 64) as u64];
        let hash = self.hasher.hash_one(words);
        if let Some(carried) = self.carried.find(hash, |carried| carried.id == words) {
            self.steps[carried.step as usize].act = Act::PutCarrying;
            return (Act::PutReferring, HeadBody::Elsewhere(id));
        }
        let act = match catalog.shared_body(id) {
            SharedPlace::Stands(_) => return (Act::PutReferring, HeadBody::Elsewhere(id)),
            SharedPlace::Lost => Act::PutCarrying,
            SharedPlace::Unknown => Act::PutOwn,
        };
        let step = self.steps.len() as u32;
        self.carried.insert_unique(hash, Carried { id: words, step }, |carried| self.hasher.hash_one(carried.id));
        (act, HeadBody::Here(id))
    }

    /// Are there deletions only?
    pub(super) fn only_frees(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.act, Act::Delete | Act::Drop | Act::DeleteEarly | Act::PutVoid))
    }

    /// Bytes that nobody needs any more when the plan is carried out.
    pub(super) fn freed(&self, group: &Group, catalog: &Catalog) -> u64 {
        let cost = |step: &Step| {
            let slot = group.slot(step.slot);
            match step.act {
                Act::Drop => catalog.items_of(slot.owner).map(|(_, item)| item.cost).sum(),
                Act::PutVoid | Act::DeleteEarly => 0,
                _ => catalog.item(slot.owner, slot.item).map_or(0, |item| item.cost),
            }
        };
        self.steps.iter().map(cost).sum()
    }

    /// Changes the catalog: the batch is on disk. `placed` is `None` when it was empty.
    pub(super) fn carry_out(&self, group: &Group, catalog: &mut Catalog, placed: Option<Placed>) {
        let referring = || self.steps.iter().filter(|step| step.act == Act::PutReferring);
        let id = |step: &Step| body_id(group.slot(step.slot));
        // What is referred to must outlive the last older item that refers to it.
        referring().filter_map(id).for_each(|id| catalog.hold(id));
        for step in &self.steps {
            let slot = group.slot(step.slot);
            let (owner, item) = (slot.owner, slot.item);
            match (step.act, placed) {
                (Act::PutVoid, _) => catalog.forget_early(owner, item),
                (Act::Delete, _) => drop(catalog.delete(owner, item)),
                (Act::DeleteEarly, _) => catalog.delete_early(owner, item),
                (Act::Drop, _) => catalog.drop_owner(owner),
                (act, Some(placed)) => put(catalog, slot, act, placed.location(&self.batch, step.place)),
                (_, None) => unreachable!("a Put has a record"),
            }
        }
        referring().filter_map(id).for_each(|id| catalog.let_go(id));
    }
}

/// Enters a Put whose record stands there.
fn put(catalog: &mut Catalog, slot: &Slot, act: Act, location: Location) {
    let body = match (act, body_id(slot)) {
        (Act::PutOwn, Some(id)) => ItemBody::Own(id),
        (Act::PutReferring, Some(id)) => ItemBody::Shared(id),
        (Act::PutCarrying, Some(id)) => {
            catalog.share(id, location);
            ItemBody::Carried(id)
        }
        (Act::PutKeeping, _) => {
            let old = catalog.item(slot.owner, slot.item).and_then(|old| old.body.id());
            old.map_or(ItemBody::None, ItemBody::Shared)
        }
        _ => ItemBody::None,
    };
    catalog.put(slot.owner, slot.item, location, body);
}

fn body_id(slot: &Slot) -> Option<BodyId> {
    match &slot.change {
        Change::Put { body: Some(body), .. } => Some(body.id()),
        _ => None,
    }
}
