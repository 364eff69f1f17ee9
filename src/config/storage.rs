//! `[storage]`: what of the state is kept on disk, and how.

use super::reading::Section;

pub(super) const KEYS: &[&str] =
    &["durability", "fsync", "on_corruption", "max_bytes", "segment_bytes", "queue_window_bytes"];

/// The smallest quota, in bytes: below it a node would spend its time making room.
const MAX_BYTES_MIN: u64 = 256_000_000;

/// `[storage]`. All of it matters only to a node with a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Whether what clients are promised is on disk before they are told.
    pub durability: Durability,
    /// When the disk is told to make it last.
    pub fsync: Fsync,
    /// What a start does that finds damage.
    pub on_corruption: OnCorruption,
    /// Most bytes of the journal's files; `None`: as much as there is room for. What exceeds it is met as a full disk would be.
    /// 256 MB to 1 PiB, and at least four segments.
    pub max_bytes: Option<u64>,
    /// Size of one file of the journal in bytes, written as a whole before it is used. 1 MB to 1 GB.
    pub segment_bytes: u64,
    /// Most bytes of one session's queue that stay in memory while its client is away; what is beyond is read back from disk. 0 to 1 GB.
    pub queue_window_bytes: usize,
}

/// What is awaited before a client is told that its message or session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk: persistent sessions, their queues, and retained messages survive the process and a power cut.
    Disk,
    /// The same is written to disk within a fraction of a second, and nobody waits for it: a crash may lose what was just acknowledged.
    Memory,
}

/// When written bytes are made to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// All that arrived during one fsync goes into the next one, and nobody is told before his is done.
    Batch,
}

/// What a start does that finds damage in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCorruption {
    /// It ends with an error that names file and place.
    Halt,
    /// It puts the damaged files aside and goes on with what can be read.
    Quarantine,
}

impl Default for Storage {
    fn default() -> Self {
        Storage {
            durability: Durability::Disk,
            fsync: Fsync::Batch,
            on_corruption: OnCorruption::Halt,
            max_bytes: None,
            segment_bytes: 32_000_000,
            queue_window_bytes: 256_000,
        }
    }
}

impl Storage {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Storage {
        let default = Storage::default();
        let durability = [("disk", Durability::Disk), ("memory", Durability::Memory)];
        let on_corruption = [("halt", OnCorruption::Halt), ("quarantine", OnCorruption::Quarantine)];
        let max_bytes = section.size("max_bytes", 0, 0..=1 << 50);
        if (1..MAX_BYTES_MIN).contains(&max_bytes) {
            section.error_at("max_bytes", format!("max_bytes: must be at least {MAX_BYTES_MIN}, or 0 for no quota"));
        }
        Storage {
            durability: section.choice("durability", default.durability, &durability),
            fsync: section.choice("fsync", default.fsync, &[("batch", Fsync::Batch)]),
            on_corruption: section.choice("on_corruption", default.on_corruption, &on_corruption),
            max_bytes: (max_bytes != 0).then_some(max_bytes),
            segment_bytes: section.size("segment_bytes", default.segment_bytes, 1_000_000..=1_000_000_000),
            queue_window_bytes: section.size("queue_window_bytes", default.queue_window_bytes, 0..=1_000_000_000),
        }
    }
}
