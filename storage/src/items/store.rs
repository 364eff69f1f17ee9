//! The store: the journal and the catalog over it. Synchronous; owned by the thread that writes.
//!
//! # Room
//! Segments are freed from the front. One of which nothing is needed goes at once. Beyond that, when the journal is larger than twice what is live and two segments, the oldest is emptied
//! ([`super::cleaning`]) in slices between commits, so at most about as much is written again as is freed.
//!
//! What takes more than it frees leaves a reserve: as much as the oldest segment needs to be emptied, and a bit. So when the disk is full ([`Room::Last`]), deletions can be written, and
//! room made of them: the oldest segment is emptied as soon as that gains a quarter of it, or when the reserve shrinks and anything is to be gained.
//!
//! Test to read first: `tests::the_store_is_a_map_that_survives`.

use std::sync::Arc;
use std::time::Instant;

use super::catalog::Catalog;
use super::cleaning::Cleaning;
use super::group::{Change, Group, Known};
use super::plan::Plan;
use super::recovery::Recovery;
use crate::commit::{BodiesError, Figures, OpenError, Recovered};
use crate::disk::{Disk, is_full};
use crate::entry::{ItemId, OwnerId};
use crate::journal::{
    self, AppendError, Batch, Chore, ChoreDone, Journal, Location, OnCorruption, OpenReport, Placed, Reader, Room,
};

/// On a full disk so many bytes may be written again for each that is freed by deletion: segments are emptied for a thirtieth of their bytes, and
/// not over and over for nothing.
const CREDIT_PER_BYTE: u64 = 32;

/// At least so many slices make a segment.
const SLICES_PER_SEGMENT: usize = 64;

/// Where the body of an item is.
#[derive(Debug)]
pub(crate) enum Place {
    /// Nowhere: the item is gone, or has none, or it was lost.
    Nowhere,
    /// Not on disk yet.
    Memory(Vec<u8>),
    Disk(Location),
}

/// Why a group is not on disk. It is as it was, and so is the store.
#[derive(Debug)]
pub(crate) enum CommitError {
    NoRoom(String),
    Failed(String),
}

impl CommitError {
    pub(crate) fn text(self) -> String {
        match self {
            CommitError::NoRoom(text) | CommitError::Failed(text) => text,
        }
    }
}

/// What a step of cleaning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cleaned {
    /// There is nothing to do.
    Nothing,
    /// So many bytes were written, or the oldest segment looked through; there may be more.
    Some(u64),
    /// Nothing is needed of the oldest segment any more: it waits for [`Store::remove_front`].
    Removable,
}

pub(crate) struct Store {
    journal: Journal,
    reader: Reader,
    catalog: Catalog,
    plan: Plan,
    cleaning: Option<Cleaning>,
    copies: Batch,
    segment_bytes: u64,
    /// Bytes that may be written again to make room on a full disk.
    credit: u64,
    /// A batch waits for room.
    starved: bool,
    /// What the last attempt to make a file met, unless it was a full disk.
    disk_error: Option<String>,
    figures: Figures,
}

impl Store {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: &journal::Options,
    ) -> Result<(Store, Recovered, OpenReport), OpenError> {
        let mut recovery = Recovery::default();
        let (journal, report) = Journal::open(disk, *options, &mut |location, head| recovery.record(location, head))?;
        if let (Some(location), OnCorruption::Halt) = (recovery.unknown, options.on_corruption) {
            return Err(OpenError::Record { segment: location.segment, offset: location.offset });
        }
        let (catalog, recovered) = recovery.finish(report.last_time);
        let store = Store {
            credit: catalog.live_bytes() + options.segment_bytes,
            reader: journal.reader(),
            journal,
            catalog,
            plan: Plan::new(),
            cleaning: None,
            copies: Batch::new(),
            starved: false,
            disk_error: None,
            segment_bytes: options.segment_bytes,
            figures: Figures::default(),
        };
        Ok((store, recovered, report))
    }

    /// Writes a group as one batch, of so many bytes. Afterwards the group is empty, or, after an error, holds what it held.
    pub(crate) fn commit(&mut self, time: u64, group: &mut Group) -> Result<u64, CommitError> {
        self.plan.make(group, &self.catalog);
        let mut placed = None;
        if !self.plan.batch().is_empty() {
            match self.admit(time, group).and_then(|()| self.append_plan(time)) {
                Ok(done) => placed = Some(done),
                Err(error) => {
                    self.figures.errors += 1;
                    self.starved = matches!(error, CommitError::NoRoom(_));
                    self.forget_void(group);
                    self.plan.clear();
                    return Err(error);
                }
            }
        }
        let written = if placed.is_some() { self.plan.batch_bytes() as u64 } else { 0 };
        let live = self.catalog.live_bytes();
        self.plan.carry_out(group, &mut self.catalog, placed);
        let freed = (live + written).saturating_sub(self.catalog.live_bytes());
        let credit_max = 2 * (self.catalog.live_bytes() + self.segment_bytes);
        self.credit = (self.credit + CREDIT_PER_BYTE * freed).min(credit_max);
        self.plan.clear();
        group.clear();
        self.starved = false;
        self.figures.commits += 1;
        Ok(written)
    }

    fn append_plan(&mut self, time: u64) -> Result<Placed, CommitError> {
        append(&mut self.journal, time, self.plan.batch(), &mut self.figures)
    }

    /// A group that waits keeps nothing that has cancelled out.
    fn forget_void(&mut self, group: &mut Group) {
        if group.len() > 2 * self.plan.len() {
            let catalog = &self.catalog;
            group.retain(|slot| match slot.change {
                Change::Delete { put_seen: true } => {
                    catalog.item(slot.owner, slot.item).is_some() || catalog.is_deleted_early(slot.owner, slot.item)
                }
                _ => true,
            });
        }
    }

    /// Is there room for the batch, such that the oldest segment can still be emptied?
    fn admit(&mut self, time: u64, group: &Group) -> Result<(), CommitError> {
        while !self.leaves_room(group) {
            if self.journal.room() == Room::Last {
                return self.admit_late(time, group);
            }
            // The chore that does this is behind.
            if let Err(error) = self.journal.make_room(time) {
                self.disk_error = matches!(error, AppendError::Io(_)).then(|| error.to_string());
                return self.admit_late(time, group);
            }
        }
        Ok(())
    }

    /// The disk was full; perhaps there is room for a spare segment by now.
    fn admit_late(&mut self, time: u64, group: &Group) -> Result<(), CommitError> {
        while let Some(chore) = self.journal.chore(time) {
            self.chore_done(chore.run());
        }
        if self.leaves_room(group) {
            return Ok(());
        }
        Err(match &self.disk_error {
            Some(error) => CommitError::Failed(error.clone()),
            None => CommitError::NoRoom("no room on the disk but for what frees some".into()),
        })
    }

    fn leaves_room(&self, group: &Group) -> bool {
        let bytes = self.plan.batch_bytes() as u64;
        let reserve = self.segment_bytes / 4 + if self.front().is_some() { self.segment_bytes } else { 0 };
        // A batch larger than a segment makes a segment for itself.
        self.journal.room_bytes() >= bytes + reserve
            || (bytes > self.segment_bytes && self.journal.room() == Room::Plenty)
            || self.plan.only_frees()
            || self.plan.freed(group, &self.catalog) >= bytes
    }

    /// The oldest segment, unless it is the one that is written to.
    fn front(&self) -> Option<(u32, u64)> {
        let mut segments = self.journal.segments();
        let front = segments.next()?;
        segments.next().map(|_| (front.number, front.used))
    }

    /// Bytes written to segments that are still there.
    fn used_bytes(&self) -> u64 {
        self.journal.segments().map(|segment| segment.used).sum()
    }

    /// Is the oldest segment worth emptying?
    fn worth_cleaning(&self) -> bool {
        let Some((front, front_used)) = self.front() else { return false };
        let (used, live) = (self.used_bytes(), self.catalog.live_bytes());
        if used > 2 * live + 2 * self.segment_bytes {
            return true;
        }
        if self.journal.room() == Room::Plenty && !self.starved {
            return false;
        }
        let front_live = self.catalog.live_in(front);
        let room = self.journal.room_bytes();
        let cheap = front_live <= front_used / 4 * 3;
        let needed = (room < self.segment_bytes / 2 * 3 || self.starved)
            && used.saturating_sub(live) >= self.segment_bytes / 8
            && self.credit >= front_live;
        // Beside the records it takes the headers of batches, and what is left over at the end of a segment.
        (cheap || needed) && front_live + front_live / 16 + 128 <= room
    }

    /// One step of making room: writes about so many bytes at the most.
    pub(crate) fn clean(&mut self, time: u64, bytes: usize) -> Result<Cleaned, CommitError> {
        let Some((front, _)) = self.front() else { return Ok(Cleaned::Nothing) };
        if self.catalog.live_in(front) == 0 {
            return Ok(Cleaned::Removable);
        }
        if self.cleaning.as_ref().is_none_or(|cleaning| cleaning.segment != front || cleaning.is_done()) {
            if !self.worth_cleaning() {
                return Ok(Cleaned::Nothing);
            }
            return self.look_through(front);
        }
        let Some(cleaning) = &mut self.cleaning else { return Ok(Cleaned::Nothing) };
        // Small against a segment, of which the end stays empty when the next slice does not fit.
        let bytes = bytes.min(self.segment_bytes as usize / SLICES_PER_SEGMENT);
        if let Err(error) = cleaning.slice(&mut self.copies, bytes, &self.reader, &self.catalog) {
            self.figures.errors += 1;
            self.cleaning = None;
            return Err(CommitError::Failed(format!("segment {front} cannot be read: {error}")));
        }
        let bytes = if self.copies.is_empty() { 0 } else { self.copies.len() as u64 };
        if bytes > 0 {
            let placed = append(&mut self.journal, time, &mut self.copies, &mut self.figures)
                .inspect_err(|_| self.figures.errors += 1)?;
            self.figures.cleaned_bytes += bytes;
            self.credit = self.credit.saturating_sub(bytes);
            cleaning.carry_out(&self.copies, placed, &mut self.catalog);
        }
        Ok(Cleaned::Some(bytes))
    }

    /// Finds what is live in the oldest segment.
    fn look_through(&mut self, front: u32) -> Result<Cleaned, CommitError> {
        let mut cleaning = Cleaning::new(front);
        let catalog = &self.catalog;
        let looked = self.journal.heads(front, &mut |location, head| cleaning.record(location, head, catalog));
        if let Err(error) = looked {
            self.figures.errors += 1;
            return Err(CommitError::Failed(format!("segment {front} cannot be read: {error}")));
        }
        if cleaning.is_done() {
            // The catalog needs something of it that is not there: damage.
            self.figures.errors += 1;
            return Err(CommitError::Failed(format!("segment {front} lacks records that are needed")));
        }
        self.cleaning = Some(cleaning);
        Ok(Cleaned::Some(0))
    }

    /// Frees the oldest segment, of which nothing is needed. The caller knows that nobody reads from it any more.
    pub(crate) fn remove_front(&mut self) -> Result<(), CommitError> {
        let Some((front, _)) = self.front() else { return Ok(()) };
        assert_eq!(self.catalog.live_in(front), 0, "a segment goes when nothing of it is needed");
        self.cleaning = None;
        self.journal.remove_front().map_err(|error| {
            self.figures.errors += 1;
            CommitError::Failed(error.to_string())
        })?;
        self.catalog.forget_segments_before(front + 1);
        Ok(())
    }

    /// Where the body of an item is, with what a group has for it.
    pub(crate) fn place(&self, group: &Group, owner: OwnerId, item: ItemId) -> Place {
        match group.known(owner, item) {
            Known::Gone => Place::Nowhere,
            Known::Body(_) if self.catalog.is_deleted_early(owner, item) && !group.drops(owner) => Place::Nowhere,
            Known::Body(body) => {
                let mut bytes = Vec::with_capacity(body.size());
                body.encode(&mut bytes);
                Place::Memory(bytes)
            }
            Known::Put | Known::Nothing => {
                let item = self.catalog.item(owner, item);
                item.and_then(|item| self.catalog.body_of(&item)).map_or(Place::Nowhere, Place::Disk)
            }
        }
    }

    /// Reads all bodies of an owner in the order in which they stand on disk.
    pub(crate) fn bodies(&self, owner: OwnerId, each: &mut dyn FnMut(ItemId, &[u8])) -> Result<(), BodiesError> {
        let mut places: Vec<(Option<Location>, ItemId)> = Vec::new();
        for (item, at) in self.catalog.items_of(owner) {
            if at.body.id().is_some() {
                places.push((self.catalog.body_of(&at), item));
            }
        }
        places.sort_unstable_by_key(|(location, item)| (location.map(|at| (at.segment, at.offset)), *item));
        let mut failed: Option<BodiesError> = None;
        for (location, item) in places {
            let read = match location {
                Some(location) => self.reader.read(location).map_err(|error| error.to_string()),
                None => Err("it is not in the journal".to_string()),
            };
            match read {
                Ok(record) => each(item, &record.tail),
                Err(first) => failed.get_or_insert(BodiesError { unreadable: 0, first }).unreadable += 1,
            }
        }
        failed.map_or(Ok(()), Err)
    }

    #[cfg(test)]
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn reader(&self) -> Reader {
        self.reader.clone()
    }

    pub(crate) fn is_low(&self) -> bool {
        self.journal.room() == Room::Last
    }

    pub(crate) fn chore(&mut self, now: u64) -> Option<Chore> {
        self.journal.chore(now)
    }

    pub(crate) fn chore_done(&mut self, done: ChoreDone) {
        self.disk_error = done.error().filter(|error| !is_full(error)).map(ToString::to_string);
        self.journal.done(done);
    }

    pub(crate) fn seal(&mut self) {
        self.journal.seal();
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures {
            disk_bytes: self.journal.bytes(),
            live_bytes: self.catalog.live_bytes(),
            items: self.catalog.items(),
            shared_bodies: self.catalog.shared_bodies(),
            early_deletions: self.catalog.early_deletions(),
            ..self.figures
        }
    }
}

/// Writes and syncs one batch.
fn append(journal: &mut Journal, time: u64, batch: &mut Batch, figures: &mut Figures) -> Result<Placed, CommitError> {
    let begun = Instant::now();
    let placed = journal.append(time, batch).map_err(|error| match error {
        AppendError::NoRoom => CommitError::NoRoom("no room on the disk".into()),
        other => CommitError::Failed(other.to_string()),
    })?;
    let secs = begun.elapsed().as_secs_f64();
    figures.batches += 1;
    figures.sync_secs += secs;
    figures.sync_secs_max = figures.sync_secs_max.max(secs);
    Ok(placed)
}
