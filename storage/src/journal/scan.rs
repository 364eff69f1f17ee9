//! Reads the batches of a segment, and tells the end of what was written from damage in the middle of it.
//!
//! A batch is written only after the sync of the one before, so at the most the last one is torn, and nothing valid stands
//! behind it. Therefore: what is not valid, with a valid later batch behind it or with a later segment that begins later, is
//! damage. Else it is the torn tail, all of which goes.

use std::io;

use super::Location;
use super::format::{self, ALIGN, BATCH_HEADER, BATCH_MAGIC, BatchHeader, FILE_HEADER, Frame};
use crate::disk::DiskFile;

/// Read at a time.
const WINDOW: usize = 1024 * 1024;

/// A segment to read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub file: &'a dyn DiskFile,
    pub number: u32,
    pub seed: u32,
}

/// A border between batches: where the next begins, and its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Border {
    pub offset: u64,
    pub sequence: u64,
}

/// Batches that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// Where the first of them stood.
    pub from: Border,
    /// Where reading goes on.
    pub to: Border,
}

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub end: Border,
    pub batches: u64,
    pub records: u64,
    pub last_time: u64,
    /// The last batch: offset, bytes.
    pub last: Option<(u64, u64)>,
    /// Bytes of a batch at the end that is not whole, as far as it can be told.
    pub torn_bytes: u64,
    pub gaps: Vec<Gap>,
}

impl Found {
    pub fn nothing(at: Border) -> Found {
        Found { end: at, batches: 0, records: 0, last_time: 0, last: None, torn_bytes: 0, gaps: Vec::new() }
    }
}

/// Called with each record, oldest first.
pub(super) type Each<'a> = &'a mut dyn FnMut(Location, &[u8]);

/// Reads from `from` on. `until`: the sequence number that the next segment begins with; batches from there on do not count.
pub(super) fn scan(source: Source<'_>, from: Border, until: Option<u64>, each: Each<'_>) -> io::Result<Found> {
    let mut window = Window::new(source.file)?;
    let mut found = Found::nothing(from);
    while until.is_none_or(|until| found.end.sequence < until) {
        match read_batch(&mut window, source, found.end.offset)? {
            Some(header) if header.sequence == found.end.sequence => {
                take(&mut window, source, header, &mut found, each)?
            }
            _ => match lost(&mut window, source, found.end, until)? {
                Some(gap) => {
                    found.gaps.push(gap);
                    found.end = gap.to;
                }
                None => {
                    found.torn_bytes = torn_bytes(&mut window, source, found.end.offset)?;
                    break;
                }
            },
        }
    }
    Ok(found)
}

/// Counts a valid batch or gap, and hands its records out.
fn take(
    window: &mut Window<'_>,
    source: Source<'_>,
    header: BatchHeader,
    found: &mut Found,
    each: Each<'_>,
) -> io::Result<()> {
    let start = found.end.offset;
    found.end.offset += header.span();
    if header.gap {
        found.end.sequence = header.time;
        return Ok(());
    }
    let body_at = start + BATCH_HEADER as u64;
    let mut body = window.get(body_at, header.body_len as usize)?.unwrap_or_default();
    let mut at = body_at;
    while let Some(frame) = Frame::first_of(body) {
        each(Location { segment: source.number, offset: at as u32, len: frame.len }, frame.head);
        at += u64::from(frame.len);
        body = &body[frame.len as usize..];
    }
    found.end.sequence += 1;
    found.batches += 1;
    found.records += u64::from(header.records);
    found.last_time = found.last_time.max(header.time);
    found.last = Some((start, BATCH_HEADER as u64 + u64::from(header.body_len)));
    Ok(())
}

/// The valid batch or gap at this offset.
fn read_batch(window: &mut Window<'_>, source: Source<'_>, offset: u64) -> io::Result<Option<BatchHeader>> {
    let Some(bytes) = window.get(offset, BATCH_HEADER)? else { return Ok(None) };
    let Some(header) = BatchHeader::decode(source.seed, source.number, bytes) else { return Ok(None) };
    if header.gap {
        return Ok((header.time >= header.sequence).then_some(header));
    }
    let body = window.get(offset + BATCH_HEADER as u64, header.body_len as usize)?;
    Ok(body.is_some_and(|body| is_whole(&header, body)).then_some(header))
}

fn is_whole(header: &BatchHeader, mut body: &[u8]) -> bool {
    let mut crc = crc32fast::Hasher::new();
    for _ in 0..header.records {
        let Some(frame) = Frame::checked(body) else { return false };
        crc.update(&frame.crc.to_le_bytes());
        body = &body[frame.len as usize..];
    }
    body.is_empty() && crc.finalize() == header.body_crc
}

/// No valid batch stands at `from`: what is missing, unless it is the end.
fn lost(window: &mut Window<'_>, source: Source<'_>, from: Border, until: Option<u64>) -> io::Result<Option<Gap>> {
    let mut at = from.offset;
    while let Some(candidate) = window.find_magic(at + ALIGN)? {
        at = candidate;
        if let Some(header) = read_batch(window, source, at)?
            && header.sequence >= from.sequence
            && until.is_none_or(|until| header.sequence < until)
        {
            return Ok(Some(Gap { from, to: Border { offset: at, sequence: header.sequence } }));
        }
    }
    // The next segment says that there were more.
    let end = window.len.max(format::align(from.offset + BATCH_HEADER as u64));
    Ok(until.map(|until| Gap { from, to: Border { offset: end, sequence: until } }))
}

fn torn_bytes(window: &mut Window<'_>, source: Source<'_>, offset: u64) -> io::Result<u64> {
    let bytes = window.get(offset, BATCH_HEADER)?.unwrap_or_default();
    Ok(BatchHeader::decode(source.seed, source.number, bytes).map_or(0, |header| header.span()))
}

/// The sequence number of the first valid batch of a segment whose header is lost.
pub(super) fn first_sequence(source: Source<'_>) -> io::Result<Option<u64>> {
    let mut window = Window::new(source.file)?;
    let mut at = FILE_HEADER as u64;
    loop {
        if let Some(header) = read_batch(&mut window, source, at)? {
            return Ok(Some(header.sequence));
        }
        match window.find_magic(at + ALIGN)? {
            Some(candidate) => at = candidate,
            None => return Ok(None),
        }
    }
}

/// A file seen through a buffer.
struct Window<'a> {
    file: &'a dyn DiskFile,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn DiskFile) -> io::Result<Window<'a>> {
        Ok(Window { file, len: file.len()?, start: 0, bytes: Vec::new() })
    }

    /// These bytes of the file; `None` if it is shorter.
    fn get(&mut self, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        if !self.holds(offset, len) {
            self.fill(offset, len.max(WINDOW))?;
        }
        let at = offset.wrapping_sub(self.start) as usize;
        Ok(if self.holds(offset, len) { self.bytes.get(at..at + len) } else { None })
    }

    fn holds(&self, offset: u64, len: usize) -> bool {
        offset >= self.start && offset + len as u64 <= self.start + self.bytes.len() as u64
    }

    fn fill(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let len = len.min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.bytes.resize(len, 0);
        self.start = offset;
        let read = self.file.read_at(offset, &mut self.bytes)?;
        self.bytes.truncate(read);
        Ok(())
    }

    /// The first place at or after `from` where a batch may begin.
    fn find_magic(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut at = format::align(from);
        while at + BATCH_HEADER as u64 <= self.len {
            if !self.holds(at, BATCH_HEADER) {
                self.fill(at, WINDOW)?;
                if !self.holds(at, BATCH_HEADER) {
                    return Ok(None);
                }
            }
            let inside = (at - self.start) as usize;
            let places = self.bytes[inside..].chunks(ALIGN as usize);
            match places
                .enumerate()
                .find(|(_, place)| place.starts_with(&BATCH_MAGIC) || place.starts_with(&format::GAP_MAGIC))
            {
                Some((index, _)) => return Ok(Some(at + index as u64 * ALIGN)),
                None => at = format::align(self.start + self.bytes.len() as u64 - ALIGN + 1),
            }
        }
        Ok(None)
    }
}
