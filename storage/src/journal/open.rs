//! A start: which files there are, what they hold, and what of it counts.
//!
//! Order: the salt; the headers of all segments, so that it is known where each has to end; their batches, oldest first, from the index
//! where there is one; at last the end of the last segment is made sure.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use super::format::{self, FILE_HEADER, FileHeader, HeaderFault, Kind};
use super::names::{self, Named};
use super::repair::Repair;
use super::scan::{self, Border, Each, Found, Source};
use super::segment::{IndexState, Segment};
use super::supply::{SPARES_MAX, Spare, Supply};
use super::{Journal, Location, OnCorruption, Options, SEGMENT_BYTES, index};
use crate::disk::{Disk, DiskFile, FrozenDisk};

/// What a start has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The greatest time of any batch.
    pub last_time: u64,
    pub batches: u64,
    pub records: u64,
    /// Of a batch at the end that was not whole and is gone, as far as it can be told.
    pub torn_bytes: u64,
    /// Segments that had to be read, as their index was missing or did not cover them.
    pub segments_read: u64,
    /// What was damaged and is lost; a copy of each file is in `quarantine`.
    pub damage: Vec<Damage>,
}

/// A place where a file does not hold what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub offset: u64,
    pub what: &'static str,
}

/// Why a journal cannot be opened. Nothing in it has been changed but that files of no use were removed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("journal file {file}: {source}")]
    Io { file: String, source: io::Error },
    #[error(
        "journal file {}, byte {}: {}; `holdfast data verify` shows all damage. Restore the data directory from a copy, or set on_corruption = \"quarantine\" to put \
         the file aside and go on with what can be read",
        .0.file, .0.offset, .0.what
    )]
    Damaged(Damage),
    #[error("journal file {file} was written by a newer Holdfast (format {found}, this one reads {})", format::VERSION)]
    Newer { file: String, found: u32 },
}

impl Journal {
    /// Opens the journal of a directory, or begins one in an empty directory. Calls `each` for every record of every whole batch, oldest
    /// first, with its location and head.
    ///
    /// # Errors
    /// See [`OpenError`]; `each` may have been called before.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        each: &mut dyn FnMut(Location, &[u8]),
    ) -> Result<(Journal, OpenReport), OpenError> {
        let segment_bytes = options.segment_bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        let options = Options { segment_bytes, ..options };
        let listing = Listing::read(&*disk)?;
        let mut opening = Opening { disk: &*disk, options, report: OpenReport::default(), repair: Repair::new(&*disk) };
        let (salt, has_identity) = opening.salt(&listing)?;
        let entered = opening.headers(&listing, salt)?;
        let mut segments = opening.batches(entered, each)?;
        let spares = opening.tidy(&listing, &segments)?;
        if segments.is_empty() {
            let number = listing.segments.last().map_or(1, |last| last + 1);
            segments.push_back(opening.begin(FileHeader { number, first: 1, salt })?);
        }
        if !has_identity {
            write_identity(&*disk, salt).map_err(in_file(names::IDENTITY))?;
        }
        disk.sync().map_err(in_file("."))?;
        let report = opening.report;
        let active = segments.pop_back();
        let next_number = active.as_ref().map_or(1, |segment| segment.number() + 1);
        let next_sequence = active.as_ref().map_or(1, |segment| segment.end.sequence);
        let files = segments.iter().chain(&active).map(|segment| (segment.number(), segment.file.clone())).collect();
        let supply = Supply::new(spares, listing.spares.last().copied().unwrap_or(0));
        let files = Arc::new(parking_lot::RwLock::new(files));
        Ok((
            Journal { disk, options, salt, sealed: segments, active, next_number, next_sequence, supply, files },
            report,
        ))
    }
}

/// Reads all of a journal, index or not, and changes nothing: what a start would find, and in [`OpenReport::damage`] all that is damaged. Calls
/// `each` for every record of every whole batch, oldest first. No other process may have the journal open.
///
/// # Errors
/// See [`OpenError`]; damage is none.
pub fn verify(disk: Arc<dyn Disk>, each: &mut dyn FnMut(Location, &[u8])) -> Result<OpenReport, OpenError> {
    let frozen = FrozenDisk::new(disk, |name| matches!(names::parse(name), Named::Index(_)));
    let options = Options { on_corruption: OnCorruption::Quarantine, ..Options::default() };
    Journal::open(Arc::new(frozen), options, each).map(|(_, report)| report)
}

pub(super) fn in_file(file: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let file = file.into();
    move |source| OpenError::Io { file, source }
}

/// The files of the directory.
#[derive(Default)]
struct Listing {
    identity: bool,
    segments: BTreeSet<u32>,
    indexes: Vec<u32>,
    spares: BTreeSet<u64>,
}

impl Listing {
    /// Lists the directory, and removes what was never completed.
    fn read(disk: &dyn Disk) -> Result<Listing, OpenError> {
        let mut listing = Listing::default();
        for name in disk.list().map_err(in_file("."))? {
            match names::parse(&name) {
                Named::Identity => listing.identity = true,
                Named::Segment(number) => drop(listing.segments.insert(number)),
                Named::Index(number) => listing.indexes.push(number),
                Named::Spare(number) => drop(listing.spares.insert(number)),
                Named::Unfinished => disk.remove(&name).map_err(in_file(name))?,
                Named::Other => {}
            }
        }
        Ok(listing)
    }
}

/// A segment with a good header.
struct Entered {
    header: FileHeader,
    file: Arc<dyn DiskFile>,
}

struct Opening<'a> {
    disk: &'a dyn Disk,
    options: Options,
    report: OpenReport,
    repair: Repair<'a>,
}

impl Opening<'_> {
    /// Halts, or notes the damage as something to repair.
    fn damaged(&mut self, file: String, offset: u64, what: &'static str) -> Result<(), OpenError> {
        let damage = Damage { file, offset, what };
        match self.options.on_corruption {
            OnCorruption::Halt => Err(OpenError::Damaged(damage)),
            OnCorruption::Quarantine => {
                self.report.damage.push(damage);
                Ok(())
            }
        }
    }

    /// The salt of the journal, and whether its file is good. It stands in every segment too.
    fn salt(&mut self, listing: &Listing) -> Result<(u64, bool), OpenError> {
        if listing.identity {
            let file = self.disk.open(names::IDENTITY).map_err(in_file(names::IDENTITY))?;
            if let Some(header) = read_header(&*file, Kind::Identity, names::IDENTITY)? {
                if listing.segments.is_empty() {
                    self.damaged(names::IDENTITY.to_owned(), 0, "the journal has no segment left")?;
                }
                return Ok((header.salt, true));
            }
        }
        for &number in &listing.segments {
            let name = names::segment(number);
            let file = self.disk.open(&name).map_err(in_file(name.clone()))?;
            if let Some(header) = read_header(&*file, Kind::Segment, &name)? {
                return Ok((header.salt, false));
            }
        }
        if listing.identity {
            self.damaged(
                names::IDENTITY.to_owned(),
                0,
                "this is not the identity of a journal, and no segment tells it",
            )?;
        }
        let mut salt = [0; 8];
        getrandom::fill(&mut salt).map_err(|error| OpenError::Io {
            file: names::IDENTITY.to_owned(),
            source: io::Error::other(error.to_string()),
        })?;
        Ok((u64::from_le_bytes(salt), false))
    }

    /// The headers of all segments, made good where they are not. From the newest to the oldest, as what a segment may hold ends
    /// where the next begins.
    fn headers(&mut self, listing: &Listing, salt: u64) -> Result<VecDeque<Entered>, OpenError> {
        let mut entered: VecDeque<Entered> = VecDeque::new();
        // A segment gets its index when it is sealed, and the newest one is never taken away.
        if let (Some(&index), Some(newest)) = (listing.indexes.iter().max(), listing.segments.last())
            && index > *newest
        {
            self.damaged(names::segment(index), 0, "the segment is missing, and its index is there")?;
        }
        for &number in listing.segments.iter().rev() {
            while let Some(next) = entered.front().map(|next| next.header)
                && next.number > number + 1
            {
                let missing = FileHeader { number: next.number - 1, first: next.first, salt };
                entered.push_front(self.missing(missing)?);
            }
            let next_first = entered.front().map(|next| next.header.first);
            if let Some(segment) = self.header(number, salt, next_first)? {
                entered.push_front(segment);
            }
        }
        Ok(entered)
    }

    /// In place of a segment that is missing comes an empty one, which begins where the next does.
    fn missing(&mut self, header: FileHeader) -> Result<Entered, OpenError> {
        let name = names::segment(header.number);
        self.damaged(name.clone(), 0, "the segment is missing")?;
        let file = self.repair.header(None, header).map_err(in_file(name))?;
        Ok(Entered { header, file })
    }

    /// The segment of this number, of which the next begins with the batch `next_first`. `None`: nothing can be read in it, and it is as if
    /// it had never been.
    fn header(&mut self, number: u32, salt: u64, next_first: Option<u64>) -> Result<Option<Entered>, OpenError> {
        let name = names::segment(number);
        let file = self.disk.open(&name).map_err(in_file(name.clone()))?;
        let what = match read_header(&*file, Kind::Segment, &name)? {
            None => "this is not the header of a segment",
            Some(header) if header.number != number => "the segment has the name of another",
            Some(header) if header.salt != salt => "the segment is of another journal",
            Some(header) if next_first.is_some_and(|next| next < header.first) => "the segment begins behind its end",
            Some(header) => return Ok(Some(Entered { header, file })),
        };
        self.damaged(name.clone(), 0, what)?;
        let source = Source { file: &*file, number, seed: format::seed(salt, number) };
        let readable = scan::first_sequence(source).map_err(in_file(name.clone()))?;
        let readable = readable.filter(|first| next_first.is_none_or(|next| *first <= next));
        match readable.or(next_first) {
            Some(first) => {
                let header = FileHeader { number, first, salt };
                let file = self.repair.header(Some(file), header).map_err(in_file(name))?;
                Ok(Some(Entered { header, file }))
            }
            None => {
                self.repair.remove(number).map_err(in_file(name))?;
                Ok(None)
            }
        }
    }

    /// Reads all segments.
    fn batches(&mut self, mut entered: VecDeque<Entered>, each: Each<'_>) -> Result<VecDeque<Segment>, OpenError> {
        let mut segments = VecDeque::new();
        while let Some(Entered { header, file }) = entered.pop_front() {
            let until = entered.front().map(|next| next.header.first);
            segments.push_back(self.segment(header, file, until, each)?);
        }
        Ok(segments)
    }

    fn segment(
        &mut self,
        header: FileHeader,
        file: Arc<dyn DiskFile>,
        until: Option<u64>,
        each: Each<'_>,
    ) -> Result<Segment, OpenError> {
        let name = names::segment(header.number);
        let seed = format::seed(header.salt, header.number);
        let source = Source { file: &*file, number: header.number, seed };
        let file_bytes = file.len().map_err(in_file(name.clone()))?;
        let mut from = Border { offset: FILE_HEADER as u64, sequence: header.first };
        let mut index_bytes = 0;
        if let Some(index) = index::read(self.disk, header, file_bytes)
            && until.is_none_or(|until| index.covered().end.sequence <= until)
        {
            index.records(each);
            self.count(index.covered());
            (from, index_bytes) = (index.covered().end, index.bytes());
        }
        let found = scan::scan(source, from, until, each).map_err(in_file(name.clone()))?;
        self.count(&found);
        self.report.segments_read += u64::from(found.batches > 0 || index_bytes == 0);
        for gap in &found.gaps {
            self.damaged(name.clone(), gap.from.offset, "a batch is damaged that others follow")?;
        }
        self.repair.gaps(source, &found.gaps).map_err(in_file(name.clone()))?;
        if until.is_none() {
            self.report.torn_bytes = found.torn_bytes;
            confirm(&*file, found.last).map_err(in_file(name.clone()))?;
        }
        let whole = index_bytes > 0 && found.end == from;
        let index = if whole { IndexState::Whole(index_bytes) } else { IndexState::Partial(index_bytes) };
        Ok(Segment { header, seed, file, file_bytes, end: found.end, index, leaving: None })
    }

    fn count(&mut self, found: &Found) {
        self.report.batches += found.batches;
        self.report.records += found.records;
        self.report.last_time = self.report.last_time.max(found.last_time);
    }

    /// Keeps the spares that are of use, removes the others and indexes without a segment.
    fn tidy(&mut self, listing: &Listing, segments: &VecDeque<Segment>) -> Result<Vec<Spare>, OpenError> {
        let mut spares = Vec::new();
        for &number in &listing.spares {
            let name = names::spare(number);
            let file = self.disk.open(&name).map_err(in_file(name.clone()))?;
            let bytes = file.len().map_err(in_file(name.clone()))?;
            if bytes == self.options.segment_bytes && spares.len() < SPARES_MAX {
                spares.push(Spare { name, file, bytes });
            } else {
                self.disk.remove(&name).map_err(in_file(name))?;
            }
        }
        for &number in &listing.indexes {
            if !segments.iter().any(|segment| segment.number() == number) {
                let name = names::index(number);
                self.disk.remove(&name).map_err(in_file(name))?;
            }
        }
        Ok(spares)
    }

    /// The first segment of a journal.
    fn begin(&mut self, header: FileHeader) -> Result<Segment, OpenError> {
        let name = names::spare(0);
        let begin = || {
            let spare = Spare::make(self.disk, name.clone(), self.options.segment_bytes)?;
            super::write_header(self.disk, header, &spare)?;
            super::name_segment(self.disk, header, spare)
        };
        begin().map_err(in_file(names::segment(header.number)))
    }
}

/// Makes sure of the last batch: it is whole, but nobody knows whether it was ever synced. Written again it is surely part of the next
/// sync, even if one had failed before.
fn confirm(file: &dyn DiskFile, last: Option<(u64, u64)>) -> io::Result<()> {
    let Some((offset, len)) = last else { return Ok(()) };
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?];
    let read = file.read_at(offset, &mut bytes)?;
    file.write_at(offset, &bytes[..read])?;
    file.sync()
}

/// The header of a file; `None` if it is damaged.
pub(super) fn read_header(file: &dyn DiskFile, kind: Kind, name: &str) -> Result<Option<FileHeader>, OpenError> {
    let mut bytes = [0; FILE_HEADER];
    let read = file.read_at(0, &mut bytes).map_err(in_file(name))?;
    match FileHeader::decode(kind, &bytes[..read]) {
        Ok(header) => Ok(Some(header)),
        Err(HeaderFault::Damaged) => Ok(None),
        Err(HeaderFault::Newer(found)) => Err(OpenError::Newer { file: name.to_owned(), found }),
    }
}

fn write_identity(disk: &dyn Disk, salt: u64) -> io::Result<()> {
    let unfinished = names::unfinished(names::IDENTITY);
    let file = disk.create(&unfinished)?;
    file.write_at(0, &FileHeader { number: 0, first: 0, salt }.encode(Kind::Identity))?;
    file.sync()?;
    disk.rename(&unfinished, names::IDENTITY)
}
