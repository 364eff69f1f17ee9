//! Reads records while the journal goes on.
//!
//! The journal and its readers share one table of open files. A segment that is given up leaves the table first; its file
//! is used again only if nobody has got it from there.

use std::io;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::Location;
use super::format::{FRAME_HEADER, Frame};
use crate::disk::DiskFile;

/// The open file of each segment.
pub(super) type Files = Arc<RwLock<HashMap<u32, Arc<dyn DiskFile>>>>;

/// Reads records of a journal, also from other threads. Clones share everything.
#[derive(Clone)]
pub struct Reader {
    pub(super) files: Files,
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Its segment was given up.
    #[error("segment {0} of the journal is gone")]
    Gone(u32),
    /// What stands there is not what was written.
    #[error("segment {segment} of the journal is damaged at byte {offset}")]
    Damaged { segment: u32, offset: u64 },
    /// The disk failed.
    #[error("segment {segment} of the journal cannot be read: {source}")]
    Io { segment: u32, source: io::Error },
}

impl Reader {
    /// Reads the record at this location and checks that it is whole.
    pub fn read(&self, location: Location) -> Result<Record, ReadError> {
        let Location { segment, offset, len } = location;
        let file = self.files.read().get(&segment).cloned().ok_or(ReadError::Gone(segment))?;
        let mut bytes = vec![0; len as usize];
        let read = file.read_at(u64::from(offset), &mut bytes).map_err(|source| ReadError::Io { segment, source })?;
        bytes.truncate(read);
        match Frame::checked(&bytes) {
            Some(frame) if frame.len == len => {
                let head = frame.head.to_vec();
                bytes.drain(..FRAME_HEADER + head.len());
                Ok(Record { head, tail: bytes })
            }
            _ => Err(ReadError::Damaged { segment, offset: u64::from(offset) }),
        }
    }
}
