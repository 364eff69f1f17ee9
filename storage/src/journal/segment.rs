//! One segment of an open journal.

use std::sync::Arc;

use super::format::FileHeader;
use super::scan::{Border, Source};
use crate::disk::DiskFile;

pub(super) struct Segment {
    pub header: FileHeader,
    pub seed: u32,
    pub file: Arc<dyn DiskFile>,
    /// Size of the file.
    pub file_bytes: u64,
    /// Behind the last batch that counts.
    pub end: Border,
    pub index: IndexState,
    /// Its file has this name already, and the directory is not yet synced: it is on its way out.
    pub leaving: Option<String>,
}

/// Where the index of a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexState {
    /// None, or one of the beginning only. With its bytes.
    Partial(u64),
    /// A chore is at it.
    Busy,
    /// All of the segment is in it. With its bytes.
    Whole(u64),
    /// It could not be written.
    Refused,
}

impl Segment {
    pub fn number(&self) -> u32 {
        self.header.number
    }

    pub fn source(&self) -> Source<'_> {
        Source { file: &*self.file, number: self.header.number, seed: self.seed }
    }

    /// Whether a batch of this size still fits.
    pub fn fits(&self, span: u64) -> bool {
        self.end.offset + span <= self.file_bytes.min(u64::from(u32::MAX))
    }

    /// Whether it holds no batch that counts.
    pub fn is_unused(&self) -> bool {
        self.end.sequence == self.header.first
    }

    pub fn bytes(&self) -> u64 {
        self.file_bytes
            + match self.index {
                IndexState::Partial(bytes) | IndexState::Whole(bytes) => bytes,
                IndexState::Busy | IndexState::Refused => 0,
            }
    }
}
