//! Making room: what is still live in the oldest segment is written again at the end, slice by slice, so that the segment can go.
//!
//! A slice is a batch of its own: it is on disk before the catalog points to the copies, and nothing of the old segment is touched. A crash at any moment
//! finds an item once or twice, always with its last value.
//!
//! Test to read first: `tests::cleaning_loses_nothing`.

use super::catalog::{Catalog, ItemBody, SharedPlace};
use super::record::{Head, HeadBody};
use crate::entry::{BodyId, ItemId, OwnerId};
use crate::journal::{Batch, Location, Placed, ReadError, Reader};

/// What a record of the segment holds.
#[derive(Debug, Clone, Copy)]
enum Holds {
    Item(OwnerId, ItemId),
    ItemAndBody(OwnerId, ItemId, BodyId),
    Body(BodyId),
}

/// What of it is still needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needed {
    Nothing,
    Item,
    /// The item, and the body for it alone.
    OwnBody,
    ItemAndSharedBody,
    SharedBody,
}

/// The oldest segment, while it is emptied.
pub(super) struct Cleaning {
    pub(super) segment: u32,
    records: Vec<(Location, Holds)>,
    next: usize,
    /// Of the slice: which records, and the places of their copies.
    copies: Vec<(usize, u32, Needed)>,
    head: Vec<u8>,
}

impl Cleaning {
    pub(super) fn new(segment: u32) -> Cleaning {
        Cleaning { segment, records: Vec::new(), next: 0, copies: Vec::new(), head: Vec::new() }
    }

    /// A record of the segment. What is dead already is left out.
    pub(super) fn record(&mut self, location: Location, head: &[u8], catalog: &Catalog) {
        let holds = match Head::decode(head) {
            Some(Head::Put { owner, item, body: HeadBody::Here(id), .. }) => Holds::ItemAndBody(owner, item, id),
            Some(Head::Put { owner, item, .. }) => Holds::Item(owner, item),
            Some(Head::Body { id }) => Holds::Body(id),
            Some(Head::Delete { .. } | Head::Drop { .. }) | None => return,
        };
        if needed(holds, location, catalog) != Needed::Nothing {
            self.records.push((location, holds));
        }
    }

    /// Has everything been written again?
    pub(super) fn is_done(&self) -> bool {
        self.next == self.records.len()
    }

    /// Fills the batch with copies of about so many bytes, one at least.
    pub(super) fn slice(
        &mut self,
        batch: &mut Batch,
        bytes: usize,
        reader: &Reader,
        catalog: &Catalog,
    ) -> Result<(), ReadError> {
        batch.clear();
        self.copies.clear();
        let mut next = self.next;
        while next < self.records.len() && (batch.is_empty() || batch.len() < bytes) {
            let (location, holds) = self.records[next];
            let needed = needed(holds, location, catalog);
            if needed != Needed::Nothing {
                let place = self.copy(batch, location, needed, reader)?;
                self.copies.push((next, place, needed));
            }
            next += 1;
        }
        if self.copies.is_empty() {
            self.next = next;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        batch: &mut Batch,
        location: Location,
        needed: Needed,
        reader: &Reader,
    ) -> Result<u32, ReadError> {
        let record = reader.read(location)?;
        let head = match (Head::decode(&record.head), needed) {
            (Some(Head::Put { body: HeadBody::Here(id), .. }), Needed::SharedBody) => Head::Body { id },
            (Some(Head::Put { owner, item, body: HeadBody::Here(id), value }), Needed::Item) => {
                Head::Put { owner, item, body: HeadBody::Elsewhere(id), value }
            }
            _ => return Ok(batch.push(&record.head, |tail| tail.extend_from_slice(&record.tail))),
        };
        let carries = needed != Needed::Item;
        Ok(batch.push(head.encode(&mut self.head), |tail| {
            if carries {
                tail.extend_from_slice(&record.tail);
            }
        }))
    }

    /// The slice is on disk: the catalog points to the copies.
    pub(super) fn carry_out(&mut self, batch: &Batch, placed: Placed, catalog: &mut Catalog) {
        for &(record, place, needed) in &self.copies {
            let (from, holds) = self.records[record];
            let to = placed.location(batch, place);
            match holds {
                Holds::Item(owner, item) => catalog.item_moved(owner, item, from, to, false),
                Holds::Body(id) => catalog.body_moved(id, from, to),
                Holds::ItemAndBody(owner, item, id) => {
                    if needed != Needed::SharedBody {
                        catalog.item_moved(owner, item, from, to, needed != Needed::Item);
                    }
                    if matches!(needed, Needed::SharedBody | Needed::ItemAndSharedBody) {
                        catalog.body_moved(id, from, to);
                    }
                }
            }
            self.next = record + 1;
        }
        self.copies.clear();
    }
}

fn needed(holds: Holds, location: Location, catalog: &Catalog) -> Needed {
    let item_here = |owner, item| catalog.item(owner, item).filter(|item| item.location == location);
    let body_here = |id| catalog.shared_body(id) == SharedPlace::Stands(location);
    match holds {
        Holds::Item(owner, item) if item_here(owner, item).is_some() => Needed::Item,
        Holds::Body(id) if body_here(id) => Needed::SharedBody,
        Holds::ItemAndBody(owner, item, id) => match item_here(owner, item) {
            Some(item) if item.body == ItemBody::Own(id) => Needed::OwnBody,
            Some(_) if body_here(id) => Needed::ItemAndSharedBody,
            Some(_) => Needed::Item,
            None if body_here(id) => Needed::SharedBody,
            None => Needed::Nothing,
        },
        Holds::Item(..) | Holds::Body(_) => Needed::Nothing,
    }
}
