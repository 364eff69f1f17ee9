//! The group commit: sources hand in entries, one thread writes what all of them have gathered as one batch, and tells each source up to where it is kept.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::Disk;
use crate::entry::{BodyId, Entry, ItemId, OwnerId, Value};
use crate::journal;

/// How the storage behaves.
#[derive(Debug, Clone)]
pub struct Options {
    pub journal: journal::Options,
    /// How many sources hand in entries: one for each shard, and one for the node.
    pub sources: usize,
    /// Entries nobody waits for are written this late at most.
    pub lazy: Duration,
}

/// Who is told. Called from the threads of the storage; must not block.
pub trait Audience: Send + Sync {
    /// Everything up to this submission of this source is on disk.
    fn kept(&self, source: usize, submission: u64);
    /// The answer to [`Storage::load`], in the order asked for. `None`: damaged or gone.
    fn loaded(&self, source: usize, ticket: u64, bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)>);
    /// The state has changed.
    fn state(&self, state: State);
}

/// What may be expected of the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Ok,
    /// Little room is left: free some, do not fill it.
    Low,
    /// Nothing is kept until this is over; it is tried again every second.
    Failing(String),
}

/// Counters and sizes, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Bytes of all segments that are used.
    pub disk_bytes: u64,
    /// Bytes of records that are still needed.
    pub live_bytes: u64,
    /// Live items.
    pub items: u64,
    /// Bodies that are shared by several items, or stand apart from their only one.
    pub shared_bodies: u64,
    /// Deletions that came before their item and wait for it.
    pub early_deletions: u64,
    /// Gatherings of which everything was kept, those that cancelled out included.
    pub commits: u64,
    /// Batches written and synced, those of cleaning included.
    pub batches: u64,
    /// Seconds spent writing and syncing batches, and the longest.
    pub sync_secs: f64,
    pub sync_secs_max: f64,
    /// Bytes that were written again to free segments.
    pub cleaned_bytes: u64,
    /// Writes or syncs that failed, or found no room.
    pub errors: u64,
}

/// An item that was on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredItem {
    pub item: ItemId,
    pub value: Value,
    pub body: Option<BodyId>,
}

/// What was on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The time that the last batch carried; 0 when there was none.
    pub last_time: u64,
    /// The owners in order, and the items of each in order.
    pub owners: Vec<(OwnerId, Vec<RecoveredItem>)>,
    /// The greatest number of an owner in any record that is still there, dead ones included.
    pub owner_max: Option<OwnerId>,
}

/// Why the storage does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Journal(#[from] journal::OpenError),
    #[error("journal directory {0}: {1}")]
    Directory(String, std::io::Error),
    #[error("segment {segment} of the journal, offset {offset}: a record of a kind that this version does not know")]
    Record { segment: u32, offset: u32 },
}

/// Some bodies could not be read; all others were.
#[derive(Debug, thiserror::Error)]
#[error("{unreadable} message bodies cannot be read; the first: {first}")]
pub struct BodiesError {
    pub unreadable: usize,
    pub first: String,
}

/// What was pending when the storage was closed could not be written.
#[derive(Debug, thiserror::Error)]
#[error("what was pending could not be written: {0}")]
pub struct CloseError(pub String);

/// An opened storage whose threads do not run yet.
pub struct Opened {
    /// To be taken: the storage itself does not need it.
    pub recovered: Recovered,
    pub report: journal::OpenReport,
    options: Options,
}

impl Opened {
    /// Reads all bodies of an owner, in the order in which they stand on disk.
    pub fn bodies(&self, _owner: OwnerId, _each: &mut dyn FnMut(ItemId, &[u8])) -> Result<(), BodiesError> {
        todo!()
    }
}

/// The handle of a running storage. When the last one is dropped without [`Storage::close`], what was not kept yet is lost, as in a crash.
#[derive(Clone)]
pub struct Storage {}

impl Storage {
    /// Opens the journal in a directory, which is made when it does not exist.
    pub fn open(_dir: &Path, _options: Options) -> Result<Opened, OpenError> {
        todo!()
    }

    /// The same on any disk.
    pub fn open_on(_disk: Arc<dyn Disk>, _options: Options) -> Result<Opened, OpenError> {
        todo!()
    }

    /// Starts the threads. `clock` gives the time that goes into each batch, in milliseconds of the node's clock.
    pub fn start(
        opened: Opened,
        _audience: Arc<dyn Audience>,
        _clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> std::io::Result<Storage> {
        let _ = opened.options;
        todo!()
    }

    /// Hands in entries, and returns the number of this submission: 1, 2, … for each source. Also without entries: then it is kept when everything before is.
    /// `entries` comes back empty, with a capacity. All entries of one submission are kept together or not at all.
    ///
    /// An item is put by one source only. A Put of an item that is there replaces its value; with `body: None` it keeps the body that it has.
    pub fn submit(&self, _source: usize, _entries: &mut Vec<Entry>, _urgent: bool) -> u64 {
        todo!()
    }

    /// Bytes of a source that were handed in and are not kept yet.
    pub fn pending_bytes(&self, _source: usize) -> usize {
        todo!()
    }

    /// Asks for the bodies of items, also of such that were handed in and are not kept yet; the answer goes to [`Audience::loaded`].
    pub fn load(&self, _source: usize, _ticket: u64, _wanted: Vec<(OwnerId, ItemId)>) {
        todo!()
    }

    pub fn state(&self) -> State {
        todo!()
    }

    pub fn figures(&self) -> Figures {
        todo!()
    }

    /// Writes all that is pending, marks the end of the journal as clean and ends the threads. What is handed in afterwards is never kept.
    pub fn close(&self) -> Result<(), CloseError> {
        todo!()
    }
}
