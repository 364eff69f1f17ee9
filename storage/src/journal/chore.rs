//! Work that need not be done by the thread that commits: room ahead, and indexes.

use std::io;
use std::sync::Arc;

use super::format::FileHeader;
use super::names;
use super::scan::{Border, Source};
use super::segment::IndexState;
use super::supply::Spare;
use super::{Journal, index};
use crate::disk::{Disk, DiskFile};

/// One piece of work. Run it on any thread and give what comes of it to [`Journal::done`]: the journal offers no other of its kind until
/// then.
pub struct Chore {
    disk: Arc<dyn Disk>,
    work: Work,
}

enum Work {
    Spare { name: String, bytes: u64 },
    Index { file: Arc<dyn DiskFile>, header: FileHeader, seed: u32, end: Border },
}

/// What came of a [`Chore`].
pub struct ChoreDone(Outcome);

enum Outcome {
    Spare(io::Result<Spare>),
    Index(u32, io::Result<u64>),
}

impl ChoreDone {
    /// What went wrong, if anything.
    #[must_use]
    pub fn error(&self) -> Option<&io::Error> {
        match &self.0 {
            Outcome::Spare(result) => result.as_ref().err(),
            Outcome::Index(_, result) => result.as_ref().err(),
        }
    }
}

impl Chore {
    /// Does it. Takes as long as writing and syncing a segment takes.
    #[must_use]
    pub fn run(self) -> ChoreDone {
        let disk = &*self.disk;
        ChoreDone(match self.work {
            Work::Spare { name, bytes } => Outcome::Spare(Spare::make(disk, name, bytes)),
            Work::Index { file, header, seed, end } => {
                let source = Source { file: &*file, number: header.number, seed };
                Outcome::Index(header.number, index::write(disk, source, header, end))
            }
        })
    }
}

impl Journal {
    /// Work for a thread beside, if there is any. Nothing depends on its being done: without a spare, [`Journal::append`] makes room itself;
    /// without an index, a start reads the segment. `now` is of the same clock as the time of a batch: after there was no room
    /// for a spare, it is tried again a second later.
    pub fn chore(&mut self, now: u64) -> Option<Chore> {
        if self.supply.wants(now) {
            self.supply.asked_at = now;
            let bytes = self.options.segment_bytes;
            if self.within_quota(bytes) {
                self.supply.making = Some(bytes);
                let name = self.supply.next_name();
                return Some(Chore { disk: self.disk.clone(), work: Work::Spare { name, bytes } });
            }
            self.supply.refuse(now);
        }
        let settled = self.sealed.len().saturating_sub(self.options.unindexed);
        let segment = self
            .sealed
            .iter_mut()
            .take(settled)
            .find(|segment| matches!(segment.index, IndexState::Partial(_)) && segment.leaving.is_none())?;
        segment.index = IndexState::Busy;
        let (file, header) = (segment.file.clone(), segment.header);
        let work = Work::Index { file, header, seed: segment.seed, end: segment.end };
        Some(Chore { disk: self.disk.clone(), work })
    }

    /// Takes what came of a chore.
    pub fn done(&mut self, done: ChoreDone) {
        match done.0 {
            Outcome::Spare(result) => {
                self.supply.making = None;
                match result {
                    Ok(spare) => self.supply.add(spare),
                    Err(_) => self.supply.refuse(self.supply.asked_at),
                }
            }
            Outcome::Index(number, result) => {
                match self.sealed.iter_mut().find(|segment| segment.number() == number && segment.leaving.is_none()) {
                    Some(segment) => segment.index = result.map_or(IndexState::Refused, IndexState::Whole),
                    // The segment went meanwhile. Found and removed at the next start if this fails.
                    None => drop(self.disk.remove(&names::index(number))),
                }
            }
        }
    }
}
