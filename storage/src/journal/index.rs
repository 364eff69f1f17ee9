//! The index of a segment: where its records stand, and their heads, so that a start need not read the segment.
//!
//! It may cover only the first part of a segment; reading goes on behind it. It is a copy of what the segment says, so one that is
//! damaged or does not fit is ignored.
//!
//! Behind the file header: CRC32 of all that follows, end of the covered part (u32), sequence number behind it, number of batches,
//! number of records, last time (u64 each), then for each record, as variable-length numbers: bytes between the end of the frame before and
//! this one, length of the frame, length of the head; then the head.

use std::io;

use super::Location;
use super::format::{self, FILE_HEADER, FileHeader, Kind};
use super::names;
use super::scan::{Border, Each, Found, Source};
use crate::disk::Disk;

/// CRC and the numbers of fixed size.
const FIXED: usize = 4 + 4 + 8 * 4;

/// Reads the covered part of the segment and writes its index; returns the bytes of the file.
///
/// # Errors
/// Those of the disk, or [`io::ErrorKind::InvalidData`] if the segment does not hold what it should. There is then no new index.
pub(super) fn write(disk: &dyn Disk, source: Source<'_>, header: FileHeader, end: Border) -> io::Result<u64> {
    let mut bytes = vec![0; FILE_HEADER + FIXED];
    bytes[..FILE_HEADER].copy_from_slice(&header.encode(Kind::Index));
    let mut behind = FILE_HEADER as u32;
    let start = Border { offset: FILE_HEADER as u64, sequence: header.first };
    let found = super::scan::scan(source, start, Some(end.sequence), &mut |location, head| {
        put_number(&mut bytes, location.offset - behind);
        put_number(&mut bytes, location.len);
        put_number(&mut bytes, head.len() as u32);
        bytes.extend_from_slice(head);
        behind = location.offset + location.len;
    })?;
    if found.end != end || !found.gaps.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the segment is damaged"));
    }
    put_fixed(&mut bytes[FILE_HEADER..], &found);
    let (unfinished, name) = (names::unfinished(&names::index(source.number)), names::index(source.number));
    let written = disk.create(&unfinished).and_then(|file| {
        file.write_at(0, &bytes)?;
        file.sync()?;
        disk.rename(&unfinished, &name)
    });
    if written.is_err() {
        // It is found and removed at the next start if this fails.
        let _ = disk.remove(&unfinished);
    }
    written.map(|()| bytes.len() as u64)
}

fn put_fixed(bytes: &mut [u8], found: &Found) {
    bytes[4..8].copy_from_slice(&(found.end.offset as u32).to_le_bytes());
    for (place, number) in [found.end.sequence, found.batches, found.records, found.last_time].into_iter().enumerate() {
        bytes[8 + place * 8..16 + place * 8].copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// An index that was read and is good.
pub(super) struct Index {
    bytes: Vec<u8>,
    number: u32,
    covered: Found,
}

/// The index of the segment that has this header; `None` if there is none that is good.
pub(super) fn read(disk: &dyn Disk, header: FileHeader, segment_bytes: u64) -> Option<Index> {
    let file = disk.open(&names::index(header.number)).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
    let read = file.read_at(0, &mut bytes).ok()?;
    if read != bytes.len() || read < FILE_HEADER + FIXED || FileHeader::decode(Kind::Index, &bytes) != Ok(header) {
        return None;
    }
    let body = &bytes[FILE_HEADER..];
    if format::u32_at(body, 0) != crc32fast::hash(&body[4..]) {
        return None;
    }
    let end = Border { offset: u64::from(format::u32_at(body, 4)), sequence: format::u64_at(body, 8) };
    let covered = Found {
        batches: format::u64_at(body, 16),
        records: format::u64_at(body, 24),
        last_time: format::u64_at(body, 32),
        ..Found::nothing(end)
    };
    (end.offset <= segment_bytes).then_some(Index { bytes, number: header.number, covered })
}

impl Index {
    /// What the covered part holds.
    pub fn covered(&self) -> &Found {
        &self.covered
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Calls `each` for every record of the covered part.
    pub fn records(&self, each: Each<'_>) {
        let mut rest = &self.bytes[FILE_HEADER + FIXED..];
        let mut behind = FILE_HEADER as u32;
        while let Some((location, head, left)) = next_record(rest, self.number, behind) {
            each(location, head);
            behind = location.offset + location.len;
            rest = left;
        }
    }
}

fn next_record(bytes: &[u8], segment: u32, behind: u32) -> Option<(Location, &[u8], &[u8])> {
    let (distance, bytes) = take_number(bytes)?;
    let (len, bytes) = take_number(bytes)?;
    let (head_len, bytes) = take_number(bytes)?;
    let (head, bytes) = bytes.split_at_checked(head_len as usize)?;
    let offset = behind.checked_add(distance)?;
    offset.checked_add(len)?;
    Some((Location { segment, offset, len }, head, bytes))
}

/// Seven bits per byte, the lowest first; the top bit says that more follow.
fn put_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(5).enumerate() {
        number |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}
