//! Reads a whole journal and changes nothing: what a start would find, what of it is damaged, and whether the files beside the segments agree with them.
//!
//! Every batch is read from its segment, index or not. An index is held against what was read: each of its records must be the one that stands there. It also
//! witnesses the end of the last segment: a batch that an index knows was whole once, so if it is not, that is damage and no torn tail.
//!
//! Test to read first: `tests::damage::an_inspection_names_what_is_damaged`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{FileHeader, Kind};
use super::index::{self, Index};
use super::names::{self, Named};
use super::open::{in_file, read_header};
use super::reader::Reader;
use super::scan::Border;
use super::{Damage, Journal, Location, OnCorruption, OpenError, OpenReport, Options};
use crate::disk::{Disk, FrozenDisk};

/// What is in a journal.
#[derive(Debug, Default)]
pub struct Inspected {
    /// Files, and bytes of all of them.
    pub files: u64,
    pub bytes: u64,
    /// What a start would say. Its `damage` is what was written and cannot be read any more.
    pub report: OpenReport,
    /// Damage that costs nothing, since the same stands elsewhere too.
    pub harmless: Vec<Damage>,
    /// A batch at the end that is not whole: nobody was ever told that it is kept.
    pub torn: Option<Damage>,
}

/// Inspects a journal. Calls `each` for every record of every whole batch, oldest first. No other process may have the journal open. The
/// reader reads records where they stand.
///
/// # Errors
/// See [`OpenError`]; damage is none.
pub fn inspect(
    disk: Arc<dyn Disk>,
    each: &mut dyn FnMut(Location, &[u8]),
) -> Result<(Inspected, Option<Reader>), OpenError> {
    let mut inspected = Inspected::default();
    let mut segments = 0;
    let mut witnesses = BTreeMap::new();
    let mut has_identity = false;
    for name in disk.list().map_err(in_file("."))? {
        let file = disk.open(&name).map_err(in_file(name.clone()))?;
        inspected.files += 1;
        inspected.bytes += file.len().map_err(in_file(name.clone()))?;
        match names::parse(&name) {
            Named::Segment(_) => segments += 1,
            Named::Identity => has_identity = read_header(&*file, Kind::Identity, &name)?.is_some(),
            Named::Index(number) => drop(witnesses.insert(number, Witness::read(&*disk, number)?)),
            Named::Spare(_) | Named::Unfinished | Named::Other => {}
        }
    }
    if inspected.files == 0 {
        return Ok((inspected, None));
    }
    let frozen = FrozenDisk::new(disk, |name| matches!(names::parse(name), Named::Index(_)));
    let options = Options { on_corruption: OnCorruption::Quarantine, ..Options::default() };
    let (journal, report) = Journal::open(Arc::new(frozen), options, &mut |location, head| {
        if let Some(Some(witness)) = witnesses.get_mut(&location.segment) {
            witness.record(location, head);
        }
        each(location, head);
    })?;
    inspected.report = report;
    if !has_identity && segments > 0 {
        let what =
            "this is not the identity of a journal; it stands in every segment too, and the next start writes it anew";
        inspected.harmless.push(Damage { file: names::IDENTITY.to_owned(), offset: 0, what });
    }
    inspected.find_torn(&journal);
    inspected.hear(&journal, &witnesses);
    Ok((inspected, Some(journal.reader())))
}

impl Inspected {
    /// Whether everything is there that was ever written and kept.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.report.damage.is_empty()
    }

    fn find_torn(&mut self, journal: &Journal) {
        if let Some(last) = journal.active.as_ref().filter(|_| self.report.torn_bytes > 0) {
            let what = "the last batch is not whole and does not count";
            self.torn = Some(Damage { file: names::segment(last.number()), offset: last.end.offset, what });
        }
    }

    /// What the indexes say of the segments.
    fn hear(&mut self, journal: &Journal, witnesses: &BTreeMap<u32, Option<Witness>>) {
        let last = journal.active.as_ref().map(|segment| segment.number());
        for segment in journal.sealed.iter().chain(&journal.active) {
            let number = segment.number();
            let file = names::segment(number);
            let mut harmless = |what| self.harmless.push(Damage { file: names::index(number), offset: 0, what });
            let witness = match witnesses.get(&number) {
                None => continue,
                Some(None) => {
                    harmless("this is not an index, or it is damaged; a start reads the segment instead");
                    continue;
                }
                Some(Some(witness)) => witness,
            };
            let is_whole = !self.report.damage.iter().any(|damage| damage.file == file);
            if witness.header != segment.header {
                if is_whole {
                    harmless("this is the index of another segment; a start reads the segment instead");
                }
            } else if witness.end.sequence <= segment.end.sequence {
                if is_whole && !witness.agrees() {
                    harmless("the index says other than its segment");
                }
            } else if Some(number) == last {
                let what = "a batch at the end is damaged, which the index of the segment knows as whole";
                self.report.damage.push(Damage { file, offset: segment.end.offset, what });
                self.torn = None;
            }
        }
    }
}

/// What an index says, and what the segment has said so far.
struct Witness {
    header: FileHeader,
    end: Border,
    said: u32,
    found: crc32fast::Hasher,
}

impl Witness {
    /// `None`: there is no index that is good.
    fn read(disk: &dyn Disk, number: u32) -> Result<Option<Witness>, OpenError> {
        let name = names::index(number);
        let file = disk.open(&name).map_err(in_file(name.clone()))?;
        let Some(header) = read_header(&*file, Kind::Index, &name)?.filter(|header| header.number == number) else {
            return Ok(None);
        };
        Ok(index::read(disk, header, u64::MAX).map(|index| Witness::of(header, &index)))
    }

    fn of(header: FileHeader, index: &Index) -> Witness {
        let mut said = crc32fast::Hasher::new();
        index.records(&mut |location, head| add(&mut said, location, head));
        Witness { header, end: index.covered().end, said: said.finalize(), found: crc32fast::Hasher::new() }
    }

    fn record(&mut self, location: Location, head: &[u8]) {
        if u64::from(location.offset) < self.end.offset {
            add(&mut self.found, location, head);
        }
    }

    fn agrees(&self) -> bool {
        self.found.clone().finalize() == self.said
    }
}

fn add(sum: &mut crc32fast::Hasher, location: Location, head: &[u8]) {
    sum.update(&location.offset.to_le_bytes());
    sum.update(&location.len.to_le_bytes());
    sum.update(head);
}
