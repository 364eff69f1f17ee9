//! The log of the Raft group: entries since the last purge in memory, and all that must survive in a journal of its own.
//!
//! | module | what it is |
//! | --- | --- |
//! | `memory` | what openraft asks for, answered from memory |
//! | `disk` | the thread that writes the journal, and what a start finds there |
//!
//! # When an entry counts
//!
//! openraft is told at once that an entry is stored, and goes on with it in memory: it never waits for the disk, and so answers heartbeats while the disk is slow. In return nothing
//! leaves this node that says or follows from more than what is on its disk:
//! - a follower's answer to an append waits until the entries are on its disk (`group::receive`);
//! - the state machine applies an entry when it is ([`LogStore::flushed_to`]);
//! - what the leader tells its followers of the commit is capped ([`LogStore::cap_commit`]): it counts itself before its disk has the entry;
//! - a vote is on disk before it is given or asked for, and all entries that were there before it are too, for there is one queue of writes.
//!
//! So whatever anybody acts upon is on the disks of a majority, the leader's included.
//!
//! A disk that fails or is full is tried again without end; while it is behind, the node does not lead ([`LogStore::is_stalled`]).
//!
//! Without a directory the log is in memory alone, and everything is durable at once: such a node must come back under another id.
//!
//! Test to read first: `tests::what_was_synced_is_found_again`.

mod disk;
mod memory;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use holdfast_storage::disk::{Disk, RealDisk};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;

use crate::clock::boot_ms;
use crate::entry::{Entry, LogId, StorageError, TypeConfig, Vote};
use crate::wire::APPEND_BYTES_MAX;
use disk::{Writer, Written};
use memory::Memory;

/// Entries that one message carries at most.
const APPEND_ENTRIES_MAX: usize = 512;

/// Why a log cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{0}. Is there room on the disk, and may the node read and write there?")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Journal(#[from] holdfast_storage::journal::OpenError),
    #[error("{0}")]
    Read(#[from] holdfast_storage::journal::ReadError),
    #[error("{0}. A node that has lost its log must not come back under its old id: give it an empty data directory")]
    Damaged(&'static str),
}

/// What must survive besides the entries: the hard state of Raft, and which cluster it is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct HardState {
    pub vote: Option<Vote>,
    pub purged: Option<LogId>,
    /// 0: this node is in no cluster yet.
    pub cluster: u128,
}

/// The log of one node; clones share it.
#[derive(Clone)]
pub(crate) struct LogStore {
    memory: Arc<Mutex<Memory>>,
    /// How many writes are on disk.
    done: Arc<watch::Sender<u64>>,
    writer: Option<Arc<Writer>>,
}

impl LogStore {
    /// The log in `dir`, or in memory.
    pub fn open(dir: Option<&Path>) -> Result<LogStore, OpenError> {
        match dir {
            Some(dir) => LogStore::open_on(Arc::new(RealDisk::open_or_create(dir)?)),
            None => {
                let done = Arc::new(watch::Sender::new(0));
                Ok(LogStore { memory: Arc::new(Mutex::new(Memory::default())), done, writer: None })
            }
        }
    }

    fn open_on(disk: Arc<dyn Disk>) -> Result<LogStore, OpenError> {
        let done = Arc::new(watch::Sender::new(0));
        let (journal, found) = disk::open(disk)?;
        let memory = Arc::new(Mutex::new(Memory::new(found)));
        let finished = {
            let (memory, done) = (memory.clone(), done.clone());
            move |sequence| {
                memory.lock().written(sequence);
                done.send_replace(sequence);
            }
        };
        let writer = Some(Arc::new(Writer::start(journal, finished)?));
        Ok(LogStore { memory, done, writer })
    }

    /// A node that led when its process ended leads no more: openraft would go on in the same term. As the end of its log may not have reached the disk, but its followers, it would then give
    /// the indexes of what they have, in that term, to other entries, and nobody would see that they differ.
    pub fn lead_no_more(&self, me: u128) {
        let mut memory = self.memory.lock();
        if let Some(vote) = memory.hard.vote.as_mut().filter(|vote| vote.leader_id.node_id == me) {
            vote.committed = false;
        }
    }

    /// The cluster that this node is in, 0 for none.
    pub fn cluster(&self) -> u128 {
        self.memory.lock().hard.cluster
    }

    /// From now on this node is in `cluster`; returns when that is on disk.
    pub async fn join_cluster(&self, cluster: u128) {
        let sequence = {
            let mut memory = self.memory.lock();
            memory.hard.cluster = cluster;
            let hard = memory.hard.clone();
            self.write(&mut memory, Written::HardState(hard))
        };
        self.reach(sequence).await;
    }

    /// Whether the entry of `index`, and all before it, are on this node's disk.
    pub fn is_flushed_to(&self, index: u64) -> bool {
        self.memory.lock().unwritten_at(index).is_none()
    }

    /// Waits until they are.
    pub async fn flushed_to(&self, index: u64) {
        let sequence = self.memory.lock().unwritten_at(index);
        if let Some(sequence) = sequence {
            self.reach(sequence).await;
        }
    }

    /// What the followers of the leader `vote` may be told when openraft takes `commit` for committed: see the module.
    pub fn cap_commit(&self, vote: &Vote, commit: Option<LogId>) -> Option<LogId> {
        self.memory.lock().cap_commit(vote, commit)
    }

    /// Up to where the log is known to be committed.
    pub fn committed_index(&self) -> Option<u64> {
        self.memory.lock().committed.map(|id| id.index)
    }

    /// Whether something has waited for the disk for more than `patience` milliseconds.
    pub fn is_stalled(&self, patience: u64) -> bool {
        self.memory.lock().oldest_unwritten().is_some_and(|since| boot_ms().saturating_sub(since) > patience)
    }

    /// What the disk last said, while it does not take what it should.
    pub fn trouble(&self) -> Option<String> {
        self.writer.as_ref().and_then(|writer| writer.trouble())
    }

    /// First and last index in memory, and the bytes of the commands since `index`.
    pub fn extent(&self, index: u64) -> Extent {
        self.memory.lock().extent(index)
    }

    /// The index up to which can be purged when `keep` bytes of entries up to `upto` shall stay for those who are behind.
    pub fn purgeable(&self, upto: u64, keep: u64) -> Option<u64> {
        self.memory.lock().purgeable(upto, keep)
    }

    /// Ends the thread, when all is written or the disk takes nothing.
    pub fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.stop();
        }
    }

    fn write(&self, memory: &mut Memory, what: Written) -> u64 {
        let first = match &what {
            Written::Entries(entries) => entries.first().map(|entry| entry.log_id.index),
            Written::Truncate(_) | Written::HardState(_) => None,
        };
        let sequence = memory.next_write(first);
        match &self.writer {
            Some(writer) => writer.push(sequence, what),
            None => {
                memory.written(sequence);
                self.done.send_replace(sequence);
            }
        }
        sequence
    }

    async fn reach(&self, sequence: u64) {
        let mut done = self.done.subscribe();
        // The sender lives as long as this log.
        let _ = done.wait_for(|done| *done >= sequence).await;
    }
}

/// How much log there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub entries: u64,
    pub bytes: u64,
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, StorageError>
    where
        RB: std::ops::RangeBounds<u64> + Clone + std::fmt::Debug + OptionalSend,
    {
        Ok(self.memory.lock().entries_in(range))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        let mut entries = self.memory.lock().entries_in(start..end.min(start + APPEND_ENTRIES_MAX as u64));
        let mut bytes = 0;
        let fits = entries.iter().take_while(|entry| {
            bytes += crate::entry::encoded_len(entry);
            bytes <= APPEND_BYTES_MAX
        });
        // One that is larger than all of that still goes.
        let fitting = fits.count().max(1);
        entries.truncate(fitting);
        Ok(entries)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let memory = self.memory.lock();
        let last_log_id = memory.last_log_id();
        Ok(LogState { last_purged_log_id: memory.hard.purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let sequence = {
            let mut memory = self.memory.lock();
            memory.hard.vote = Some(*vote);
            let hard = memory.hard.clone();
            self.write(&mut memory, Written::HardState(hard))
        };
        self.reach(sequence).await;
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.memory.lock().hard.vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.memory.lock().committed = committed;
        if let (Some(writer), Some(committed)) = (&self.writer, committed) {
            writer.note_committed(committed);
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.memory.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        {
            let mut memory = self.memory.lock();
            memory.append(&entries);
            self.write(&mut memory, Written::Entries(entries));
        }
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let sequence = {
            let mut memory = self.memory.lock();
            memory.truncate(log_id.index);
            self.write(&mut memory, Written::Truncate(log_id.index))
        };
        self.reach(sequence).await;
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let mut memory = self.memory.lock();
        memory.purge(log_id);
        let hard = memory.hard.clone();
        self.write(&mut memory, Written::HardState(hard));
        Ok(())
    }
}
