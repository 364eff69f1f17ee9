//! A journal: records kept in the order in which they were written, in segments of one directory, given up from the front.
//!
//! | module | what it is |
//! | --- | --- |
//! | `format`, `names` | bytes and names of the files, pure |
//! | `batch` | records that are written as one unit, pure |
//! | `scan` | reads a segment; tells a torn tail from damage in the middle |
//! | `index` | where the records of a segment stand, and their heads |
//! | `open`, `repair` | a start; what `on_corruption = "quarantine"` does |
//! | `inspect` | a look at everything that changes nothing |
//! | `segment`, `supply` | a segment of the open journal; files made ahead |
//! | `chore` | work for a thread beside |
//! | `reader` | reads records from other threads |
//!
//! # What holds
//!
//! - One batch is on its way at a time: written, synced, and only then the next. After [`Journal::append`] has returned `Ok` the batch
//!   survives; after a crash during it all of it is found or nothing.
//! - Batches are numbered without holes. A segment says in its header the number of its first batch; batches with that number or
//!   above in older segments do not count. So each batch but the last has a witness, and that it is missing is seen.
//! - After a write or sync that failed, nothing behind the last good batch of that segment is ever trusted: the segment is closed there, and the
//!   next batch goes into the next one.
//! - A segment has its name only when its room and its header are on the disk, so one without a good header is damaged.
//! - What is found at a start counts only when it is surely on the disk: the last batch, whose sync nobody remembers, is written
//!   again and synced.
//!
//! The journal is owned by one thread. Of other threads are chores, which touch only files that do not count yet, and readers. Every segment is
//! an open file.
//!
//! Test to read first: `tests::model`, the journal against a list of batches with a crash at any sync.

mod batch;
mod chore;
mod format;
mod index;
mod inspect;
mod names;
mod open;
mod reader;
mod repair;
mod scan;
mod segment;
mod supply;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

pub use batch::{BATCH_BYTES_MAX, Batch, Placed};
pub use chore::{Chore, ChoreDone};
pub use inspect::{Inspected, inspect};
pub use open::{Damage, OpenError, OpenReport, verify};
pub use reader::{ReadError, Reader, Record};

use crate::disk::{Disk, is_full};
use format::{FILE_HEADER, FileHeader, Kind};
use reader::Files;
use scan::Border;
use segment::{IndexState, Segment};
use supply::{Spare, Supply};

/// Smaller and larger segments are not made: every place in one is below 4 GiB.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 512..=2 * 1024 * 1024 * 1024;

/// How a journal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Size of a segment, from 512 bytes to 2 GiB. A batch that is larger gets a segment of its own size.
    pub segment_bytes: u64,
    /// How large all files together may be; what would be more is refused as if the disk were full.
    pub bytes_max: Option<u64>,
    /// What to do about damage.
    pub on_corruption: OnCorruption,
    /// So many of the newest sealed segments have no index: where records come and go, a segment is free before anybody starts from it.
    pub unindexed: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { segment_bytes: 32 * 1024 * 1024, bytes_max: None, on_corruption: OnCorruption::Halt, unindexed: 4 }
    }
}

/// What a start does about files that do not hold what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCorruption {
    /// Refuses to open.
    Halt,
    /// Puts a copy of the damaged file aside and goes on with all batches that are whole.
    Quarantine,
}

/// Where a record stands: its segment, and the frame in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    pub segment: u32,
    pub offset: u32,
    /// Bytes of the frame: 12 more than head and tail.
    pub len: u32,
}

impl Location {
    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> String {
        names::segment(self.segment)
    }
}

/// What a segment takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentUse {
    pub number: u32,
    /// Bytes written, header and all.
    pub used: u64,
    /// Bytes on the disk, index and all.
    pub bytes: u64,
    /// Nothing is written to it any more.
    pub sealed: bool,
}

/// Whether there is room behind the active segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Plenty,
    /// There was none to have as many spare segments as there should be: what is left ([`Journal::room_bytes`]) should serve to free some.
    Last,
}

/// Why a batch was not written. It may be tried again as it is.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The disk or the quota is full.
    #[error("no room for the journal")]
    NoRoom,
    /// The disk failed.
    #[error("the journal cannot be written: {0}")]
    Io(#[source] io::Error),
    /// The batch is larger than [`BATCH_BYTES_MAX`], and will always be.
    #[error("a batch of {0} bytes is more than the journal takes")]
    TooLarge(usize),
}

impl From<io::Error> for AppendError {
    fn from(error: io::Error) -> AppendError {
        if is_full(&error) { AppendError::NoRoom } else { AppendError::Io(error) }
    }
}

/// An open journal.
pub struct Journal {
    disk: Arc<dyn Disk>,
    options: Options,
    salt: u64,
    /// Oldest first.
    sealed: VecDeque<Segment>,
    /// `None` after a failure, until the next batch.
    active: Option<Segment>,
    /// The number of the next segment.
    next_number: u32,
    /// The number of the next batch.
    next_sequence: u64,
    supply: Supply,
    files: Files,
}

impl Journal {
    /// Writes the batch as one unit and syncs it. `time` is kept with it, in milliseconds of the caller's clock.
    ///
    /// # Errors
    /// See [`AppendError`]. The batch is then not promised to be there; it may be tried again, or another instead of it.
    pub fn append(&mut self, time: u64, batch: &mut Batch) -> Result<Placed, AppendError> {
        if batch.len() > BATCH_BYTES_MAX {
            return Err(AppendError::TooLarge(batch.len()));
        }
        let sequence = self.next_sequence;
        let active = match &mut self.active {
            Some(active) if active.fits(batch.span()) => active,
            _ => {
                let next = self.next_segment(time, batch.span())?;
                self.sealed.extend(self.active.take());
                self.active.insert(next)
            }
        };
        let offset = active.end.offset;
        let bytes = batch.close(sequence, time, active.number(), active.seed);
        if let Err(error) = active.file.write_at(offset, bytes).and_then(|()| active.file.sync()) {
            self.give_up_active();
            return Err(error.into());
        }
        active.end = Border { offset: offset + batch.span(), sequence: sequence + 1 };
        self.next_sequence = sequence + 1;
        Ok(Placed { segment: active.number(), offset: offset as u32 })
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentUse> + '_ {
        let sealed = self.sealed.iter().map(|segment| (segment, true));
        sealed.chain(self.active.iter().map(|segment| (segment, false))).map(|(segment, sealed)| SegmentUse {
            number: segment.number(),
            used: segment.end.offset,
            bytes: segment.bytes(),
            sealed,
        })
    }

    /// Size of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments().map(|segment| segment.bytes).sum::<u64>() + self.supply.bytes()
    }

    /// Calls `each` for every record of a segment, from its index or by reading it.
    ///
    /// # Errors
    /// See [`ReadError`]; `each` may have been called for some records before.
    pub fn heads(&self, number: u32, each: &mut dyn FnMut(Location, &[u8])) -> Result<(), ReadError> {
        let segment = self.sealed.iter().chain(&self.active).find(|segment| segment.number() == number);
        let segment = segment.ok_or(ReadError::Gone(number))?;
        let mut from = Border { offset: FILE_HEADER as u64, sequence: segment.header.first };
        if let Some(index) = index::read(&*self.disk, segment.header, segment.file_bytes)
            && index.covered().end.sequence <= segment.end.sequence
        {
            index.records(each);
            from = index.covered().end;
        }
        let found = scan::scan(segment.source(), from, Some(segment.end.sequence), each)
            .map_err(|source| ReadError::Io { segment: number, source })?;
        match found.gaps.first() {
            Some(gap) => Err(ReadError::Damaged { segment: number, offset: gap.from.offset }),
            None => Ok(()),
        }
    }

    /// Something that reads records while the journal goes on.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { files: self.files.clone() }
    }

    /// Gives up the oldest segment, durably; its file may serve again. `false`: the only segment stays.
    ///
    /// # Errors
    /// The segment is then still the first of [`Journal::segments`] and can still be read; call it again.
    pub fn remove_front(&mut self) -> io::Result<bool> {
        if self.sealed.len() + usize::from(self.active.is_some()) < 2 {
            return Ok(false);
        }
        let Some(front) = self.sealed.front_mut() else { return Ok(false) };
        let number = front.number();
        let name = match &front.leaving {
            Some(name) => name.clone(),
            None => {
                let name = self.supply.next_name();
                self.disk.rename(&names::segment(number), &name)?;
                front.leaving = Some(name.clone());
                name
            }
        };
        self.disk.sync()?;
        // An index without a segment is removed at the next start if this fails.
        let _ = self.disk.remove(&names::index(number));
        let front = self.sealed.pop_front();
        self.files.write().remove(&number);
        if let Some(front) = front {
            self.reuse(name, front);
        }
        Ok(true)
    }

    /// Makes the file of a segment that is given up a spare, if it can be one.
    fn reuse(&mut self, name: String, segment: Segment) {
        let Segment { file, file_bytes: bytes, .. } = segment;
        // Who has got the file from the table may still be reading.
        let unread = Arc::strong_count(&file) == 1;
        if unread && bytes == self.options.segment_bytes && self.supply.spares.len() < supply::SPARES_MAX {
            self.supply.add(Spare { name, file, bytes });
        } else {
            // Found at the next start if this fails.
            let _ = self.disk.remove(&name);
        }
    }

    /// Whether there is room behind the active segment.
    #[must_use]
    pub fn room(&self) -> Room {
        if self.supply.refused && self.supply.spares.len() < supply::SPARES_MAX { Room::Last } else { Room::Plenty }
    }

    /// Bytes that can be written without another file: to the active segment and to spares.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, |active| active.file_bytes.saturating_sub(active.end.offset));
        active + self.supply.spares.iter().map(|spare| spare.bytes).sum::<u64>()
    }

    /// Makes a spare segment now, for who cannot wait for the chore that makes one. `now` as in [`Journal::chore`].
    ///
    /// # Errors
    /// See [`AppendError`]; [`Journal::room`] is [`Room::Last`] then.
    pub fn make_room(&mut self, now: u64) -> Result<(), AppendError> {
        let spare = self.make_spare(now, self.options.segment_bytes)?;
        self.supply.add(spare);
        Ok(())
    }

    /// At a clean end: writes the index of all that has none, so that the next start reads no segment.
    pub fn seal(&mut self) {
        let all = self.sealed.iter_mut().map(|segment| (segment, true));
        for (segment, sealed) in all.chain(self.active.iter_mut().map(|segment| (segment, false))) {
            if segment.leaving.is_none() && !matches!(segment.index, IndexState::Whole(_) | IndexState::Busy) {
                // Without an index the segment is read.
                if let Ok(bytes) = index::write(&*self.disk, segment.source(), segment.header, segment.end) {
                    segment.index = if sealed { IndexState::Whole(bytes) } else { IndexState::Partial(bytes) };
                }
            }
        }
        let _ = self.disk.sync();
    }

    fn within_quota(&self, more: u64) -> bool {
        self.options.bytes_max.is_none_or(|max| self.bytes().saturating_add(more) <= max)
    }

    /// Makes a spare the segment behind the last one; on the disk with its header and its name before it is used.
    fn next_segment(&mut self, now: u64, span: u64) -> Result<Segment, AppendError> {
        let header = FileHeader { number: self.next_number, first: self.next_sequence, salt: self.salt };
        let spare = self.take_spare(now, FILE_HEADER as u64 + span)?;
        write_header(&*self.disk, header, &spare)?;
        match name_segment(&*self.disk, header, spare) {
            Ok(segment) => {
                self.files.write().insert(header.number, segment.file.clone());
                self.next_number += 1;
                Ok(segment)
            }
            Err(error) => {
                // The name may be there, with a header that says that the next batch does not stand in an older segment.
                self.sealed.extend(self.active.take());
                Err(error.into())
            }
        }
    }

    fn take_spare(&mut self, now: u64, bytes: u64) -> Result<Spare, AppendError> {
        if let Some(place) = self.supply.spares.iter().position(|spare| spare.bytes >= bytes) {
            return Ok(self.supply.spares.swap_remove(place));
        }
        self.make_spare(now, bytes.max(self.options.segment_bytes))
    }

    fn make_spare(&mut self, now: u64, bytes: u64) -> Result<Spare, AppendError> {
        let name = self.supply.next_name();
        let made = if self.within_quota(bytes) {
            Spare::make(&*self.disk, name, bytes)
        } else {
            Err(io::ErrorKind::QuotaExceeded.into())
        };
        made.map_err(|error| {
            self.supply.refuse(now);
            error.into()
        })
    }

    /// After a failure nothing more is written to the active segment. One that holds nothing goes, and the next one takes its place.
    fn give_up_active(&mut self) {
        let Some(segment) = self.active.take() else { return };
        if !segment.is_unused() {
            self.sealed.push_back(segment);
            return;
        }
        let number = segment.number();
        self.next_number = number;
        self.files.write().remove(&number);
        // The next one takes the names too, so nothing is wrong if these fail. A journal is never without a segment, and one that is about to be
        // removed counts for none.
        let _ = self.disk.remove(&names::index(number));
        if self.sealed.iter().any(|segment| segment.leaving.is_none()) {
            let _ = self.disk.remove(&names::segment(number));
        }
    }
}

/// Puts the header of a segment into a spare. On failure the spare is not used again.
fn write_header(disk: &dyn Disk, header: FileHeader, spare: &Spare) -> io::Result<()> {
    let written = spare.file.write_at(0, &header.encode(Kind::Segment)).and_then(|()| spare.file.sync());
    if written.is_err() {
        // Found at the next start if this fails.
        let _ = disk.remove(&spare.name);
    }
    written
}

/// Makes a spare with its header the segment that the header names. After a failure that name may be taken or not: the segment holds
/// nothing, and the next attempt takes the same name.
fn name_segment(disk: &dyn Disk, header: FileHeader, spare: Spare) -> io::Result<Segment> {
    let renamed = disk.rename(&spare.name, &names::segment(header.number));
    if let Err(error) = renamed.and_then(|()| disk.sync()) {
        let _ = disk.remove(&spare.name);
        return Err(error);
    }
    Ok(Segment {
        header,
        seed: format::seed(header.salt, header.number),
        file: spare.file,
        file_bytes: spare.bytes,
        end: Border { offset: FILE_HEADER as u64, sequence: header.first },
        index: IndexState::Partial(0),
        leaving: None,
    })
}

#[cfg(test)]
mod tests;
