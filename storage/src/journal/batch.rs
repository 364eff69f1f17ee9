//! A batch in the making: the bytes as they will stand in the file, behind room for the header. [pure]

use crc32fast::Hasher;

use super::Location;
use super::format::{self, BATCH_HEADER, BatchHeader, FRAME_HEADER};

/// What a batch keeps of its memory when it is emptied.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// More than a batch may have in all, so that every place in a segment of its own is below 4 GiB.
pub const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;

/// Records that are written as one unit: after a crash all of them are there or none.
pub struct Batch {
    /// Begins with room for the header.
    bytes: Vec<u8>,
    records: u32,
    /// Over the CRCs of the records.
    crc: Hasher,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Batch {
    #[must_use]
    pub fn new() -> Batch {
        Batch { bytes: vec![0; BATCH_HEADER], records: 0, crc: Hasher::new() }
    }

    /// Empties it for the next use.
    pub fn clear(&mut self) {
        self.bytes.truncate(BATCH_HEADER);
        self.bytes.shrink_to(KEPT_BYTES);
        self.records = 0;
        self.crc = Hasher::new();
    }

    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Its bytes in the file, without what aligns the next. At most [`BATCH_BYTES_MAX`] can be written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many records it holds.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Adds a record: `head` goes into the index of the segment too, what `tail` appends (behind
    /// what stands there already) does not. Returns the record's place, from which
    /// [`Placed::location`] makes a location once the batch is written.
    pub fn push(&mut self, head: &[u8], tail: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; FRAME_HEADER]);
        self.bytes.extend_from_slice(head);
        tail(&mut self.bytes);
        let crc = format::close_frame(&mut self.bytes[start..], u32::try_from(head.len()).unwrap_or(u32::MAX));
        self.crc.update(&crc.to_le_bytes());
        self.records += 1;
        // What does not fit the number is more than may be written.
        u32::try_from(start).unwrap_or(u32::MAX)
    }

    /// Bytes from its beginning to that of the next batch.
    pub(super) fn span(&self) -> u64 {
        format::align(self.bytes.len() as u64)
    }

    /// Completes the header; the bytes are then as they go to the file.
    pub(super) fn close(&mut self, sequence: u64, time: u64, segment: u32, seed: u32) -> &[u8] {
        let body_len = (self.bytes.len() - BATCH_HEADER) as u32;
        let (records, body_crc) = (self.records, self.crc.clone().finalize());
        let header = BatchHeader { gap: false, sequence, time, body_len, records, segment, body_crc };
        header.encode(seed, &mut self.bytes[..BATCH_HEADER]);
        &self.bytes
    }
}

/// Where a batch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

impl Placed {
    /// Where the record stands that has this place in the batch, which must not have been changed since it was written.
    #[must_use]
    pub fn location(&self, batch: &Batch, place: u32) -> Location {
        let len = format::u32_at(&batch.bytes, place as usize + 4) + FRAME_HEADER as u32;
        Location { segment: self.segment, offset: self.offset + place, len }
    }

    /// The number of the segment.
    #[must_use]
    pub fn segment(&self) -> u32 {
        self.segment
    }
}
