//! What `on_corruption = "quarantine"` does: a copy of the damaged file is put aside, and the file is made such that it says what is lost.
//!
//! All is done in place and can be done again: after a crash in the middle, the next start finds the same damage, or less.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use super::format::{BATCH_HEADER, BatchHeader, FileHeader, Kind};
use super::names;
use super::scan::{Gap, Source};
use crate::disk::{Disk, DiskFile};

/// One start's repairs.
pub(super) struct Repair<'a> {
    disk: &'a dyn Disk,
    /// Segments whose files have been put aside.
    copied: HashSet<u32>,
}

impl<'a> Repair<'a> {
    pub fn new(disk: &'a dyn Disk) -> Repair<'a> {
        Repair { disk, copied: HashSet::new() }
    }

    fn put_aside(&mut self, number: u32) -> io::Result<()> {
        if self.copied.insert(number) {
            self.disk.quarantine(&names::segment(number))?;
        }
        Ok(())
    }

    /// Writes the header anew; a file that is missing is made.
    pub fn header(&mut self, file: Option<Arc<dyn DiskFile>>, header: FileHeader) -> io::Result<Arc<dyn DiskFile>> {
        let bytes = header.encode(Kind::Segment);
        if let Some(file) = file {
            self.put_aside(header.number)?;
            file.write_at(0, &bytes)?;
            file.sync()?;
            return Ok(file);
        }
        let name = names::segment(header.number);
        let unfinished = names::unfinished(&name);
        let file = self.disk.create(&unfinished)?;
        file.write_at(0, &bytes)?;
        file.sync()?;
        self.disk.rename(&unfinished, &name)?;
        self.disk.sync()?;
        Ok(file)
    }

    /// Removes a segment in which nothing can be read.
    pub fn remove(&mut self, number: u32) -> io::Result<()> {
        self.put_aside(number)?;
        self.disk.remove(&names::segment(number))?;
        self.disk.sync()
    }

    /// Puts a mark in the place of batches that are lost.
    pub fn gaps(&mut self, source: Source<'_>, gaps: &[Gap]) -> io::Result<()> {
        if gaps.is_empty() {
            return Ok(());
        }
        self.put_aside(source.number)?;
        for gap in gaps {
            let header = BatchHeader {
                gap: true,
                sequence: gap.from.sequence,
                time: gap.to.sequence,
                body_len: (gap.to.offset - gap.from.offset - BATCH_HEADER as u64) as u32,
                records: 0,
                segment: source.number,
                body_crc: 0,
            };
            let mut bytes = [0; BATCH_HEADER];
            header.encode(source.seed, &mut bytes);
            source.file.write_at(gap.from.offset, &bytes)?;
        }
        source.file.sync()
    }
}
