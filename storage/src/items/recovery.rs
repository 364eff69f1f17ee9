//! From the records of the journal, oldest first, to the catalog and to what the node gets back.
//!
//! Of an item the last record counts. Copies made by cleaning stand behind newer items, so the records of an owner are gathered as they come and put in order now and then: whenever
//! there are twice as many as the last time. What is kept of items meanwhile is bounded by twice what is live; of bodies the place of each that any record carries is kept until
//! the end, some 40 bytes for each, dead or not.
//!
//! Test to read first: `tests::the_store_is_a_map_that_survives`.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::catalog::{Catalog, ItemBody};
use super::record::{Head, HeadBody};
use crate::commit::{Recovered, RecoveredItem};
use crate::entry::{BodyId, ItemId, OwnerId, Value};
use crate::journal::Location;

/// So many records are gathered before an owner is put in order for the first time.
const FIRST_ORDER: usize = 64;

struct Event {
    item: ItemId,
    location: Location,
    /// `None`: a Delete.
    put: Option<(HeadBody, Value)>,
}

struct Events {
    events: Vec<Event>,
    order_at: usize,
}

impl Events {
    fn new() -> Events {
        Events { events: Vec::new(), order_at: FIRST_ORDER }
    }

    fn push(&mut self, event: Event) {
        if self.events.len() >= self.order_at {
            self.order();
            self.order_at = (self.events.len() * 2).max(FIRST_ORDER);
        }
        self.events.push(event);
    }

    /// Leaves the last event of each item, in the order of the items, and no deletions.
    fn order(&mut self) {
        self.events.sort_by_key(|event| event.item);
        self.events.dedup_by(|later, earlier| {
            let same = later.item == earlier.item;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        self.events.retain(|event| event.put.is_some());
    }
}

#[derive(Default)]
pub(super) struct Recovery {
    owners: HashMap<OwnerId, Events, FixedState>,
    /// Where each body stands, and how many live items refer to it.
    bodies: HashMap<BodyId, (Location, u32), FixedState>,
    owner_max: Option<OwnerId>,
    /// The first record that this version does not know.
    pub(super) unknown: Option<Location>,
}

impl Recovery {
    /// One record of the journal.
    pub(super) fn record(&mut self, location: Location, head: &[u8]) {
        let Some(head) = Head::decode(head) else {
            self.unknown.get_or_insert(location);
            return;
        };
        match head {
            Head::Put { owner, item, body, value } => {
                if let HeadBody::Here(id) = body {
                    self.bodies.insert(id, (location, 0));
                }
                self.event(owner, Event { item, location, put: Some((body, Value::from_slice(value))) });
            }
            Head::Delete { owner, item } => self.event(owner, Event { item, location, put: None }),
            Head::Drop { owner } => {
                self.owner_max = self.owner_max.max(Some(owner));
                self.owners.remove(&owner);
            }
            Head::Body { id } => {
                self.bodies.insert(id, (location, 0));
            }
        }
    }

    fn event(&mut self, owner: OwnerId, event: Event) {
        self.owner_max = self.owner_max.max(Some(owner));
        self.owners.entry(owner).or_insert_with(Events::new).push(event);
    }

    /// The catalog, and what the node gets back.
    pub(super) fn finish(mut self, last_time: u64) -> (Catalog, Recovered) {
        let mut owners: Vec<(OwnerId, Vec<Event>)> = Vec::with_capacity(self.owners.len());
        for (owner, mut events) in self.owners.drain() {
            events.order();
            if !events.events.is_empty() {
                owners.push((owner, events.events));
            }
        }
        owners.sort_unstable_by_key(|(owner, _)| *owner);
        for event in owners.iter().flat_map(|(_, events)| events) {
            if let Some(id) = body_id(event)
                && let Some((_, items)) = self.bodies.get_mut(&id)
            {
                *items += 1;
            }
        }
        let mut catalog = Catalog::default();
        let owners = owners
            .into_iter()
            .map(|(owner, events)| {
                catalog.reserve(owner, events.len());
                (owner, events.into_iter().map(|event| self.enter(&mut catalog, owner, event)).collect())
            })
            .collect();
        (catalog, Recovered { last_time, owners, owner_max: self.owner_max })
    }

    fn enter(&self, catalog: &mut Catalog, owner: OwnerId, event: Event) -> RecoveredItem {
        let id = body_id(&event);
        let Event { item, location, put } = event;
        let (head_body, value) = put.expect("deletions were left out");
        let body = match (head_body, id.and_then(|id| self.bodies.get(&id))) {
            (HeadBody::None, _) => ItemBody::None,
            (HeadBody::Here(id), Some((_, 1))) => ItemBody::Own(id),
            (HeadBody::Here(id), Some((stands, _))) => {
                catalog.share(id, *stands);
                ItemBody::Carried(id)
            }
            (HeadBody::Elsewhere(id), Some((stands, _))) => {
                catalog.share(id, *stands);
                ItemBody::Shared(id)
            }
            (HeadBody::Here(id), None) => unreachable!("{id:?} stands where its item does"),
            // Lost to damage.
            (HeadBody::Elsewhere(id), None) => ItemBody::Shared(id),
        };
        catalog.put(owner, item, location, body);
        RecoveredItem { item, value, body: id }
    }
}

fn body_id(event: &Event) -> Option<BodyId> {
    match event.put.as_ref()?.0 {
        HeadBody::None => None,
        HeadBody::Here(id) | HeadBody::Elsewhere(id) => Some(id),
    }
}
