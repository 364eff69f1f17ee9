//! Files made ahead: room for the next segment that is already on the disk, so that a commit need not make it.
//!
//! A spare comes from a chore, from a segment that was given up, or, when there is none, is made while the commit waits. Its content
//! does not count, whatever it is.

use std::io;
use std::sync::Arc;

use super::names;
use crate::disk::{Disk, DiskFile};

/// Spares that are kept; more come only from segments that are given up, and then go. Two: when the disk is full, there is one segment more than
/// the active one to which the records of the oldest can be moved, so that it can be given up.
pub(super) const SPARES_MAX: usize = 2;

/// Written and synced at a time, so that commits beside do not wait long.
const STEP_BYTES: u64 = 1024 * 1024;

/// Milliseconds until another is tried after there was no room for one.
const RETRY_MS: u64 = 1000;

/// A file that may become a segment.
pub(super) struct Spare {
    pub name: String,
    pub file: Arc<dyn DiskFile>,
    pub bytes: u64,
}

impl Spare {
    /// Makes one: allocated, synced, named.
    pub fn make(disk: &dyn Disk, name: String, bytes: u64) -> io::Result<Spare> {
        let unfinished = names::unfinished(&name);
        let made = disk.create(&unfinished).and_then(|file| {
            let mut len = 0;
            while len < bytes {
                len = (len + STEP_BYTES).min(bytes);
                file.allocate(len)?;
                file.sync()?;
            }
            disk.rename(&unfinished, &name)?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok(Spare { name, file, bytes }),
            Err(error) => {
                // Found and removed at the next start if this fails.
                let _ = disk.remove(&unfinished);
                Err(error)
            }
        }
    }
}

/// The spares of a journal.
#[derive(Default)]
pub(super) struct Supply {
    pub spares: Vec<Spare>,
    /// Bytes of the one that a chore is making.
    pub making: Option<u64>,
    /// When a chore was last given out to make one.
    pub asked_at: u64,
    /// There was no room for one, or the disk failed, and since then there have not been as many as should be.
    pub refused: bool,
    /// The time of the last attempt that was refused.
    refused_at: u64,
    names_given: u64,
}

impl Supply {
    /// With the spares of an earlier run, and numbers up to `highest` in use.
    pub fn new(spares: Vec<Spare>, highest: u64) -> Supply {
        Supply { spares, names_given: highest, ..Supply::default() }
    }

    /// A name that no other file has.
    pub fn next_name(&mut self) -> String {
        self.names_given += 1;
        names::spare(self.names_given)
    }

    /// Whether it is time to make one.
    pub fn wants(&self, now: u64) -> bool {
        let paused = self.refused && now < self.refused_at.saturating_add(RETRY_MS);
        self.spares.len() < SPARES_MAX && self.making.is_none() && !paused
    }

    pub fn refuse(&mut self, now: u64) {
        self.refused = true;
        self.refused_at = now;
    }

    pub fn add(&mut self, spare: Spare) {
        self.spares.push(spare);
        self.refused &= self.spares.len() < SPARES_MAX;
    }

    pub fn bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.bytes).sum::<u64>() + self.making.unwrap_or(0)
    }
}
