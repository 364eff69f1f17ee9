//! The bytes of a journal's files, little-endian. [pure]
//!
//! Every file begins with a header of 64 bytes:
//!
//! | at | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic, by kind of file |
//! | 8 | 4 | version of the format |
//! | 12 | 4 | CRC32 of the other 60 bytes |
//! | 16 | 4 | number of the segment |
//! | 24 | 8 | sequence number of the first batch of the segment |
//! | 32 | 8 | salt: random, made with the journal, the same in all its files |
//!
//! A segment goes on with batches, each beginning at a multiple of 8: a header of 40 bytes, then records.
//!
//! | at | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | magic: a batch, or a gap that a repair left |
//! | 4 | 4 | CRC32 of the other 36 bytes, begun with the seed |
//! | 8 | 8 | sequence number |
//! | 16 | 8 | time; of a gap: the sequence number behind it |
//! | 24 | 4 | bytes that follow the header |
//! | 28 | 4 | number of records |
//! | 32 | 4 | number of the segment |
//! | 36 | 4 | CRC32 of the CRCs of the records |
//!
//! A record is a frame: CRC32 of what follows, length of head and tail together, length of the head, head, tail.
//!
//! Each payload byte so goes through a CRC once, when its record is made, and a batch is covered by it whole. The *seed* comes from salt and
//! segment number: what an earlier use of the file left, and what a client writes into its messages, never passes for a batch.

pub(super) const VERSION: u32 = 1;
pub(super) const FILE_HEADER: usize = 64;
pub(super) const BATCH_HEADER: usize = 40;
pub(super) const FRAME_HEADER: usize = 12;
/// What batches begin at a multiple of.
pub(super) const ALIGN: u64 = 8;

pub(super) const BATCH_MAGIC: [u8; 4] = *b"hfB1";
pub(super) const GAP_MAGIC: [u8; 4] = *b"hfG1";

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Identity,
    Segment,
    Index,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Identity => b"HFjournl",
            Kind::Segment => b"HFsegmnt",
            Kind::Index => b"HFindex.",
        }
    }
}

/// How every file begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub number: u32,
    pub first: u64,
    pub salt: u64,
}

/// Why the beginning of a file is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderFault {
    Damaged,
    /// Whole, and of this later version.
    Newer(u32),
}

impl FileHeader {
    pub fn encode(&self, kind: Kind) -> [u8; FILE_HEADER] {
        let mut bytes = [0; FILE_HEADER];
        bytes[..8].copy_from_slice(kind.magic());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = file_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<FileHeader, HeaderFault> {
        let whole = bytes.len() >= FILE_HEADER && bytes[..8] == *kind.magic();
        if !whole || u32_at(bytes, 12) != file_crc(bytes) {
            return Err(HeaderFault::Damaged);
        }
        match u32_at(bytes, 8) {
            VERSION => Ok(FileHeader { number: u32_at(bytes, 16), first: u64_at(bytes, 24), salt: u64_at(bytes, 32) }),
            0 => Err(HeaderFault::Damaged),
            newer => Err(HeaderFault::Newer(newer)),
        }
    }
}

fn file_crc(bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..12]);
    crc.update(&bytes[16..FILE_HEADER]);
    crc.finalize()
}

/// What the CRCs of batch headers in this segment begin with.
pub(super) fn seed(salt: u64, segment: u32) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt.to_le_bytes());
    crc.update(&segment.to_le_bytes());
    crc.finalize()
}

/// How a batch begins, or a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub gap: bool,
    pub sequence: u64,
    /// Of a gap: the sequence number behind it.
    pub time: u64,
    pub body_len: u32,
    pub records: u32,
    pub segment: u32,
    pub body_crc: u32,
}

impl BatchHeader {
    pub fn encode(&self, seed: u32, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(if self.gap { &GAP_MAGIC } else { &BATCH_MAGIC });
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.records.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.segment.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = batch_crc(seed, bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// `None`: these bytes are no header of this segment.
    pub fn decode(seed: u32, segment: u32, bytes: &[u8]) -> Option<BatchHeader> {
        let gap = match *bytes.first_chunk()? {
            BATCH_MAGIC => false,
            GAP_MAGIC => true,
            _ => return None,
        };
        let whole = bytes.len() >= BATCH_HEADER && u32_at(bytes, 4) == batch_crc(seed, bytes);
        let header = whole.then(|| BatchHeader {
            gap,
            sequence: u64_at(bytes, 8),
            time: u64_at(bytes, 16),
            body_len: u32_at(bytes, 24),
            records: u32_at(bytes, 28),
            segment: u32_at(bytes, 32),
            body_crc: u32_at(bytes, 36),
        })?;
        (header.segment == segment).then_some(header)
    }

    /// Bytes from the beginning of the batch to the beginning of the next.
    pub fn span(&self) -> u64 {
        align(BATCH_HEADER as u64 + u64::from(self.body_len))
    }
}

fn batch_crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(seed);
    crc.update(&bytes[..4]);
    crc.update(&bytes[8..BATCH_HEADER]);
    crc.finalize()
}

/// One record, borrowed from the bytes of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub crc: u32,
    pub head: &'a [u8],
    /// Bytes of the whole frame.
    pub len: u32,
}

impl<'a> Frame<'a> {
    /// The frame that `bytes` begin with, its CRC not checked.
    pub fn first_of(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let header = bytes.first_chunk::<FRAME_HEADER>()?;
        let (crc, len, head_len) = (u32_at(header, 0), u32_at(header, 4), u32_at(header, 8));
        let content = bytes[FRAME_HEADER..].get(..len as usize)?;
        let head = content.get(..head_len as usize)?;
        Some(Frame { crc, head, len: len.checked_add(FRAME_HEADER as u32)? })
    }

    /// The same, or `None` if the CRC does not fit.
    pub fn checked(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let frame = Frame::first_of(bytes)?;
        (frame.crc == crc32fast::hash(&bytes[4..frame.len as usize])).then_some(frame)
    }
}

/// Completes the header of a frame whose head and tail stand behind it; returns the CRC.
pub(super) fn close_frame(frame: &mut [u8], head_len: u32) -> u32 {
    let len = u32::try_from(frame.len() - FRAME_HEADER).unwrap_or(u32::MAX);
    frame[4..8].copy_from_slice(&len.to_le_bytes());
    frame[8..12].copy_from_slice(&head_len.to_le_bytes());
    let crc = crc32fast::hash(&frame[4..]);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The next multiple of [`ALIGN`].
pub(super) fn align(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
