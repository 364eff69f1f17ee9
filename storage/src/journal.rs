//! The segmented journal: its types.

/// How a journal behaves.
#[derive(Debug, Clone)]
pub struct Options {
    pub segment_bytes: u64,
    pub bytes_max: Option<u64>,
    pub on_corruption: OnCorruption,
}

/// What is done about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCorruption {
    Halt,
    Quarantine,
}

/// What opening found.
#[derive(Debug, Clone, Default)]
pub struct OpenReport {
    pub last_time: u64,
    pub batches: u64,
    pub records: u64,
    pub torn_bytes: u64,
}

/// Why a journal does not open.
#[derive(Debug, thiserror::Error)]
#[error("the journal does not open")]
pub struct OpenError;
