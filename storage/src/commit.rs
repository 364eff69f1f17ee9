//! The group commit: sources hand in entries, one thread writes what all of them have gathered as one batch, and tells each source up to where it is kept.
//!
//! | thread | owns | waits for |
//! | --- | --- | --- |
//! | writer ([`writer`]) | the store; what was taken and is not on disk | something urgent, something old, or much; bodies that are asked for |
//! | chores | nothing | work of the journal that need not hold up a commit |
//! | reader ([`reader`]) | nothing | places of bodies to read |
//!
//! Sources share with the writer one vector each, under a lock that is held to swap or append. While the writer syncs, everything gathers; the next batch holds all of it.
//!
//! # Promises
//! - What is told as kept is on disk, with everything that the same source handed in before.
//! - The entries of one submission are in one batch, whatever fails in between.
//! - What cannot be written waits in memory and is tried again every second, or as soon as room was made. Nothing is dropped.
//!
//! Test to read first: `tests::what_is_told_survives_a_crash_at_every_sync`.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;

use crate::disk::{Disk, RealDisk};
use crate::entry::{BodyId, Entry, ItemId, OwnerId, Value};
use crate::items::Store;
use crate::journal::{self, ChoreDone};

/// Gathered bytes that are written without anybody being in a hurry.
const GATHERED_BYTES_MAX: usize = 1024 * 1024;

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
    store: Store,
    options: Options,
}

impl Opened {
    /// Reads all bodies of an owner, in the order in which they stand on disk.
    ///
    /// # Errors
    /// Some could not be read; all others were given to `each`.
    pub fn bodies(&self, owner: OwnerId, each: &mut dyn FnMut(ItemId, &[u8])) -> Result<(), BodiesError> {
        self.store.bodies(owner, each)
    }

    #[must_use]
    pub fn figures(&self) -> Figures {
        self.store.figures()
    }
}

/// The handle of a running storage. When the last one is dropped without [`Storage::close`], what was not kept yet is lost, as in a crash.
#[derive(Clone)]
pub struct Storage(Arc<Running>);

struct Running {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.end(End::Abandoned);
    }
}

/// What the handles and the threads share.
struct Shared {
    sources: Vec<Source>,
    /// Somebody waits for what was handed in.
    urgent: AtomicBool,
    /// Something was handed in.
    lazy: AtomicBool,
    /// Bodies are asked for.
    loads: AtomicBool,
    /// Bytes handed in and not taken.
    gathered: AtomicUsize,
    end: AtomicU8,
    writer: OnceLock<Thread>,
    state: Mutex<State>,
    figures: Mutex<Figures>,
    chores_done: Mutex<Vec<ChoreDone>>,
    /// Jobs the reader has finished, and whether the writer waits for that.
    jobs_done: AtomicU64,
    jobs_awaited: AtomicBool,
    /// Why the last batch was not written.
    failed_end: Mutex<Option<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum End {
    NotYet,
    /// Write what is pending first.
    Closed,
    /// As in a crash.
    Abandoned,
}

/// One that hands in. On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Source {
    waiting: Mutex<Waiting>,
    /// Bytes handed in and not kept.
    pending: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<Entry>,
    bytes: usize,
    /// How many submissions there were.
    submitted: u64,
    loads: Vec<Load>,
}

struct Load {
    ticket: u64,
    wanted: Vec<(OwnerId, ItemId)>,
}

impl Shared {
    fn new(sources: usize, figures: Figures) -> Shared {
        Shared {
            sources: (0..sources).map(|_| Source::default()).collect(),
            urgent: AtomicBool::new(false),
            lazy: AtomicBool::new(false),
            loads: AtomicBool::new(false),
            gathered: AtomicUsize::new(0),
            end: AtomicU8::new(End::NotYet as u8),
            writer: OnceLock::new(),
            state: Mutex::new(State::Ok),
            figures: Mutex::new(figures),
            chores_done: Mutex::new(Vec::new()),
            jobs_done: AtomicU64::new(0),
            jobs_awaited: AtomicBool::new(false),
            failed_end: Mutex::new(None),
        }
    }

    /// Sets the flag, and wakes the writer unless it was set already.
    fn raise(&self, flag: &AtomicBool) {
        if !flag.load(Ordering::SeqCst) && !flag.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// The first end counts.
    fn end(&self, end: End) {
        let _ = self.end.compare_exchange(End::NotYet as u8, end as u8, Ordering::SeqCst, Ordering::SeqCst);
        self.wake();
    }
}

impl Storage {
    /// Opens the journal in a directory, which is made when it does not exist.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing was changed then.
    pub fn open(dir: &Path, options: Options) -> Result<Opened, OpenError> {
        let disk =
            RealDisk::open_or_create(dir).map_err(|error| OpenError::Directory(dir.display().to_string(), error))?;
        Storage::open_on(Arc::new(disk), options)
    }

    /// The same on any disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Opened, OpenError> {
        let (store, recovered, report) = Store::open(disk, &options.journal)?;
        Ok(Opened { recovered, report, store, options })
    }

    /// Starts the threads. `clock` gives the time that goes into each batch, in milliseconds of the node's clock.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(
        opened: Opened,
        audience: Arc<dyn Audience>,
        clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> io::Result<Storage> {
        let Opened { store, options, .. } = opened;
        let shared = Arc::new(Shared::new(options.sources, store.figures()));
        let threads = writer::start(&shared, store, options.lazy, &audience, clock)?;
        Ok(Storage(Arc::new(Running { shared, threads: Mutex::new(threads) })))
    }

    /// Hands in entries, and returns the number of this submission: 1, 2, … for each source. Also without entries: then it is kept when everything before is.
    /// `entries` comes back empty, with a capacity. All entries of one submission are kept together or not at all. `urgent`: somebody waits for it.
    ///
    /// A Put of an item that is there replaces its value; with `body: None` it keeps the body that it has. An item is put by one source only, and if it may be put more than once, deleted by
    /// the same: a Put that is taken behind the deletion of an item that was there makes it anew.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn submit(&self, source: usize, entries: &mut Vec<Entry>, urgent: bool) -> u64 {
        let shared = &*self.0.shared;
        let source = &shared.sources[source];
        let bytes = bytes_of(entries);
        source.pending.fetch_add(bytes, Ordering::Relaxed);
        // Before it can be taken, so that it never falls below 0.
        let gathered = shared.gathered.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let number = {
            let mut waiting = source.waiting.lock();
            if waiting.entries.is_empty() {
                std::mem::swap(&mut waiting.entries, entries);
            } else {
                waiting.entries.append(entries);
            }
            waiting.bytes += bytes;
            waiting.submitted += 1;
            waiting.submitted
        };
        shared.raise(if urgent || gathered > GATHERED_BYTES_MAX { &shared.urgent } else { &shared.lazy });
        number
    }

    /// Bytes of a source that were handed in and are not kept yet. A body that several entries in a row refer to counts once.
    ///
    /// # Panics
    /// If there is no such source.
    #[must_use]
    pub fn pending_bytes(&self, source: usize) -> usize {
        self.0.shared.sources[source].pending.load(Ordering::Relaxed)
    }

    /// Asks for the bodies of items, also of such that were handed in and are not kept yet; the answer goes to [`Audience::loaded`].
    ///
    /// # Panics
    /// If there is no such source.
    pub fn load(&self, source: usize, ticket: u64, wanted: Vec<(OwnerId, ItemId)>) {
        let shared = &*self.0.shared;
        shared.sources[source].waiting.lock().loads.push(Load { ticket, wanted });
        shared.raise(&shared.loads);
    }

    #[must_use]
    pub fn state(&self) -> State {
        self.0.shared.state.lock().clone()
    }

    #[must_use]
    pub fn figures(&self) -> Figures {
        *self.0.shared.figures.lock()
    }

    /// Writes all that is pending, marks the end of the journal as clean and ends the threads. What is handed in afterwards is never kept. Not to be called by the audience,
    /// whose threads these are.
    ///
    /// # Errors
    /// What was pending is not on disk.
    pub fn close(&self) -> Result<(), CloseError> {
        self.0.shared.end(End::Closed);
        for thread in std::mem::take(&mut *self.0.threads.lock()) {
            if thread.join().is_err() {
                return Err(CloseError("the thread that writes has ended early".into()));
            }
        }
        self.0.shared.failed_end.lock().clone().map_or(Ok(()), |error| Err(CloseError(error)))
    }
}

/// What entries take, about.
fn bytes_of(entries: &[Entry]) -> usize {
    const HEAD: usize = 32;
    let mut last = std::ptr::null::<()>();
    let one = |entry: &Entry| match entry {
        Entry::Put { value, body, .. } => {
            let body_bytes = body.as_ref().map_or(0, |body| {
                let at = Arc::as_ptr(body).cast::<()>();
                if std::mem::replace(&mut last, at) == at { 0 } else { body.size() }
            });
            HEAD + value.len() + body_bytes
        }
        Entry::Delete { .. } | Entry::Drop { .. } => HEAD,
    };
    entries.iter().map(one).sum()
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}
