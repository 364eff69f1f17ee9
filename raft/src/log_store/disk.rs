//! The journal of the log, and the thread that writes it.
//!
//! A record's head says what it is: an entry and its index, a truncation and from where, the hard state, or how far the log is committed. Who reads them in order has the log: an
//! entry replaces what stood at its index and behind, the last hard state counts. It is written whole at each change, so a segment can go when
//! all its entries are purged.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use holdfast_storage::disk::Disk;
use holdfast_storage::journal::{Batch, ChoreDone, Journal, Location, OnCorruption, Options};
use parking_lot::{Condvar, Mutex};

use super::memory::Found;
use super::{HardState, OpenError};
use crate::clock::wall_ms;
use crate::entry::{self, Entry, LogId};

const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// More in one write would make the first of them wait.
const WRITE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Until a write is tried again that the disk refused.
const RETRY: Duration = Duration::from_millis(100);
/// How long the end of the thread waits for a disk that takes nothing.
const STOP_RETRIES: u32 = 10;

const ENTRY: u8 = 1;
const TRUNCATE: u8 = 2;
const HARD_STATE: u8 = 3;
const COMMITTED: u8 = 4;

/// What is to be written.
pub(super) enum Written {
    Entries(Vec<Entry>),
    Truncate(u64),
    HardState(HardState),
}

/// A journal and what the thread knows of it.
pub(super) struct LogJournal {
    journal: Journal,
    /// The greatest index of an entry in each segment.
    segments: BTreeMap<u32, u64>,
    /// Where the newest hard state stands, without which nothing else counts.
    hard_in: Option<u32>,
    purged: Option<u64>,
}

/// Opens the journal on `disk` and reads what counts.
pub(super) fn open(disk: Arc<dyn Disk>) -> Result<(LogJournal, Found), OpenError> {
    let options =
        Options { segment_bytes: SEGMENT_BYTES, bytes_max: None, on_corruption: OnCorruption::Halt, unindexed: 64 };
    let mut replay = Replay::default();
    let (journal, _) = Journal::open(disk, options, &mut |location, head| replay.record(location, head))?;
    if replay.damaged {
        return Err(OpenError::Damaged("a record of unknown kind"));
    }
    let Replay { entries, hard, committed, segments, .. } = replay;
    let reader = journal.reader();
    let hard_in = hard.map(|location| location.segment);
    let hard: HardState = match hard {
        None => HardState::default(),
        Some(location) => {
            let tail = reader.read(location)?.tail;
            postcard::from_bytes(&tail).map_err(|_| OpenError::Damaged("a hard state that cannot be read"))?
        }
    };
    let purged = hard.purged.map(|id| id.index);
    let mut found = Found { hard, committed, entries: VecDeque::new() };
    let first = purged.map_or(0, |index| index + 1);
    for (expected, (index, location)) in (first..).zip(entries.range(first..)) {
        if *index != expected {
            return Err(OpenError::Damaged("entries are missing"));
        }
        let mut tail = Bytes::from(reader.read(*location)?.tail);
        let entry = entry::decode(&mut tail).map_err(|_| OpenError::Damaged("an entry that cannot be read"))?;
        found.entries.push_back(entry);
    }
    // What is known to be committed is in the log, or was purged from it.
    let last = found.entries.back().map(|entry| entry.log_id).or(found.hard.purged);
    found.committed = found.committed.min(last);
    Ok((LogJournal { journal, segments, hard_in, purged }, found))
}

/// The records of a journal, in order.
#[derive(Default)]
struct Replay {
    entries: BTreeMap<u64, Location>,
    hard: Option<Location>,
    committed: Option<LogId>,
    segments: BTreeMap<u32, u64>,
    damaged: bool,
}

impl Replay {
    fn record(&mut self, location: Location, head: &[u8]) {
        let index = |head: &[u8]| head.try_into().map(u64::from_le_bytes).ok();
        match head.split_first() {
            Some((&ENTRY, rest)) => match index(rest) {
                Some(index) => {
                    self.entries.split_off(&index);
                    self.entries.insert(index, location);
                    let greatest = self.segments.entry(location.segment).or_insert(0);
                    *greatest = (*greatest).max(index);
                }
                None => self.damaged = true,
            },
            Some((&TRUNCATE, rest)) => match index(rest) {
                Some(index) => drop(self.entries.split_off(&index)),
                None => self.damaged = true,
            },
            Some((&HARD_STATE, [])) => self.hard = Some(location),
            Some((&COMMITTED, rest)) => match entry::decode_log_id(&mut Bytes::copy_from_slice(rest)) {
                Ok(id) => self.committed = Some(id),
                Err(_) => self.damaged = true,
            },
            _ => self.damaged = true,
        }
    }
}

struct Task {
    sequence: u64,
    what: Written,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    committed: Option<LogId>,
    chores: Vec<ChoreDone>,
    stop: bool,
    trouble: Option<String>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The thread that writes.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// `finished` is called with the sequence number up to which all is on disk.
    pub fn start(journal: LogJournal, finished: impl Fn(u64) + Send + 'static) -> io::Result<Writer> {
        let shared = Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new() });
        let mut writing = Writing {
            shared: shared.clone(),
            log: journal,
            batch: Batch::new(),
            places: Vec::new(),
            hard_written: false,
        };
        let thread = std::thread::Builder::new().name("raft-log".to_owned()).spawn(move || writing.run(&finished))?;
        Ok(Writer { shared, thread: Mutex::new(Some(thread)) })
    }

    pub fn push(&self, sequence: u64, what: Written) {
        let mut queue = self.shared.queue.lock();
        let idle = queue.tasks.is_empty();
        queue.tasks.push_back(Task { sequence, what });
        drop(queue);
        if idle {
            self.shared.wake.notify_one();
        }
    }

    /// Goes to disk with the next write: it only saves time at a start.
    pub fn note_committed(&self, committed: LogId) {
        self.shared.queue.lock().committed = Some(committed);
    }

    pub fn trouble(&self) -> Option<String> {
        self.shared.queue.lock().trouble.clone()
    }

    pub fn stop(&self) {
        self.shared.queue.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread has.
struct Writing {
    shared: Arc<Shared>,
    log: LogJournal,
    batch: Batch,
    /// The entries in the batch: their indexes.
    places: Vec<u64>,
    /// Whether the hard state is in the batch.
    hard_written: bool,
}

impl Writing {
    fn run(&mut self, finished: &impl Fn(u64)) {
        while let Some((tasks, committed)) = self.next_tasks() {
            if !self.write(&tasks, committed) {
                break;
            }
            if let Some(last) = tasks.last() {
                finished(last.sequence);
            }
            self.give_up_segments();
            self.run_chore();
        }
        self.log.journal.seal();
    }

    /// All that waits, within bounds; `None` when there is nothing more to come.
    fn next_tasks(&mut self) -> Option<(Vec<Task>, Option<LogId>)> {
        let mut queue = self.shared.queue.lock();
        while queue.tasks.is_empty() {
            if queue.stop {
                return None;
            }
            self.shared.wake.wait(&mut queue);
        }
        for done in queue.chores.drain(..) {
            self.log.journal.done(done);
        }
        let mut bytes = 0;
        let fits = queue.tasks.iter().take_while(|task| {
            let fits = bytes < WRITE_BYTES_MAX;
            bytes += task.what.len();
            fits
        });
        let fitting = fits.count();
        let tasks = queue.tasks.drain(..fitting).collect();
        Some((tasks, queue.committed.take()))
    }

    /// Writes until the disk takes it; `false` if it does not and the node stops.
    fn write(&mut self, tasks: &[Task], committed: Option<LogId>) -> bool {
        self.batch.clear();
        self.places.clear();
        self.hard_written = false;
        for task in tasks {
            self.record(&task.what);
        }
        if let Some(committed) = committed {
            let mut head = vec![COMMITTED];
            entry::encode_log_id(&committed, &mut head);
            self.batch.push(&head, |_| {});
        }
        let mut refused = 0;
        loop {
            match self.log.journal.append(wall_ms(), &mut self.batch) {
                Ok(placed) => {
                    let greatest = self.log.segments.entry(placed.segment()).or_insert(0);
                    *greatest = self.places.iter().copied().fold(*greatest, u64::max);
                    if self.hard_written {
                        self.log.hard_in = Some(placed.segment());
                    }
                    if refused > 0 {
                        tracing::info!("the Raft log is written again");
                        self.shared.queue.lock().trouble = None;
                    }
                    return true;
                }
                Err(error) => {
                    if refused % 100 == 0 {
                        tracing::error!(%error, "the Raft log cannot be written; trying again");
                    }
                    refused += 1;
                    let mut queue = self.shared.queue.lock();
                    queue.trouble = Some(error.to_string());
                    if queue.stop && refused > STOP_RETRIES {
                        return false;
                    }
                    drop(queue);
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    fn record(&mut self, what: &Written) {
        let head = |kind: u8, index: u64| {
            let mut head = [kind; 9];
            head[1..].copy_from_slice(&index.to_le_bytes());
            head
        };
        match what {
            Written::Entries(entries) => {
                for each in entries {
                    self.places.push(each.log_id.index);
                    self.batch.push(&head(ENTRY, each.log_id.index), |tail| entry::encode(each, tail));
                }
            }
            Written::Truncate(index) => _ = self.batch.push(&head(TRUNCATE, *index), |_| {}),
            Written::HardState(hard) => {
                self.log.purged = hard.purged.map(|id| id.index);
                self.hard_written = true;
                // Plain data into memory: this cannot fail.
                let bytes = postcard::to_allocvec(hard).unwrap_or_default();
                self.batch.push(&[HARD_STATE], |tail| tail.extend_from_slice(&bytes));
            }
        }
    }

    /// The segments at the front whose entries are all purged.
    fn give_up_segments(&mut self) {
        let Some(purged) = self.log.purged else { return };
        loop {
            let front = self.log.journal.segments().next();
            let Some(front) = front else { return };
            let greatest = self.log.segments.get(&front.number).copied().unwrap_or(0);
            if !front.sealed || greatest > purged || self.log.hard_in == Some(front.number) {
                return;
            }
            match self.log.journal.remove_front() {
                Ok(true) => _ = self.log.segments.remove(&front.number),
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "a segment of the Raft log cannot be given up yet");
                    return;
                }
            }
        }
    }

    /// Room ahead is made beside.
    fn run_chore(&mut self) {
        if let Some(chore) = self.log.journal.chore(wall_ms()) {
            let shared = self.shared.clone();
            let work = move || {
                let done = chore.run();
                shared.queue.lock().chores.push(done);
            };
            // Without the thread the journal makes room when it needs it.
            let _ = std::thread::Builder::new().name("raft-log-room".to_owned()).spawn(work);
        }
    }
}

impl Written {
    fn len(&self) -> usize {
        match self {
            Written::Entries(entries) => entries.iter().map(entry::encoded_len).sum(),
            Written::Truncate(_) | Written::HardState(_) => 64,
        }
    }
}
