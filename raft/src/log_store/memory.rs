//! The entries since the last purge, and which of them wait for the disk. [pure but for the time at which a write was asked for]

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use openraft::EntryPayload;

use super::{Extent, HardState};
use crate::clock::boot_ms;
use crate::entry::{Entry, LogId, Vote};

/// A write that the disk has not done yet.
#[derive(Debug, Clone, Copy)]
struct Unwritten {
    sequence: u64,
    /// The first of the entries in it, if it is one of entries.
    first: Option<u64>,
    /// Boot clock.
    since: u64,
}

/// What a start found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub hard: HardState,
    pub committed: Option<LogId>,
    /// Without holes, the first one behind `hard.purged`.
    pub entries: VecDeque<Entry>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub hard: HardState,
    pub committed: Option<LogId>,
    entries: VecDeque<Entry>,
    /// In the order of their sequence numbers.
    unwritten: VecDeque<Unwritten>,
    writes: u64,
    /// The newest commit that followers may know of.
    capped: Option<LogId>,
}

impl Memory {
    pub fn new(found: Found) -> Self {
        let Found { hard, committed, entries } = found;
        Self { hard, committed, entries, ..Self::default() }
    }

    /// The index of the first entry, or of the next one.
    fn first_index(&self) -> u64 {
        match (self.entries.front(), self.hard.purged) {
            (Some(entry), _) => entry.log_id.index,
            (None, Some(purged)) => purged.index + 1,
            (None, None) => 0,
        }
    }

    pub fn last_log_id(&self) -> Option<LogId> {
        self.entries.back().map(|entry| entry.log_id).or(self.hard.purged)
    }

    /// Those in `range` that there are.
    pub fn entries_in(&self, range: impl RangeBounds<u64>) -> Vec<Entry> {
        let first = self.first_index();
        let place =
            |index: u64| usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX).min(self.entries.len());
        let from = match range.start_bound() {
            Bound::Included(&index) => place(index),
            Bound::Excluded(&index) => place(index.saturating_add(1)),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&index) => place(index.saturating_add(1)),
            Bound::Excluded(&index) => place(index),
            Bound::Unbounded => self.entries.len(),
        };
        if from < to { self.entries.range(from..to).cloned().collect() } else { Vec::new() }
    }

    /// Puts entries in the place of what stands at their indexes and behind.
    pub fn append(&mut self, entries: &[Entry]) {
        if let Some(first) = entries.first() {
            self.truncate(first.log_id.index);
        }
        self.entries.extend(entries.iter().cloned());
    }

    /// Removes what stands at `index` and behind.
    pub fn truncate(&mut self, index: u64) {
        let keep = usize::try_from(index.saturating_sub(self.first_index())).unwrap_or(usize::MAX);
        self.entries.truncate(keep);
    }

    /// Removes what stands up to `id`.
    pub fn purge(&mut self, id: LogId) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= id.index) {
            self.entries.pop_front();
        }
        self.hard.purged = self.hard.purged.max(Some(id));
    }

    /// Counts one more write, which waits from now on; `first` is the index of its first entry.
    pub fn next_write(&mut self, first: Option<u64>) -> u64 {
        self.writes += 1;
        self.unwritten.push_back(Unwritten { sequence: self.writes, first, since: boot_ms() });
        self.writes
    }

    /// All writes up to `sequence` are on disk.
    pub fn written(&mut self, sequence: u64) {
        while self.unwritten.front().is_some_and(|write| write.sequence <= sequence) {
            self.unwritten.pop_front();
        }
    }

    /// The write that has to be done before the entry of `index` and all before it are on disk; `None` if they are.
    pub fn unwritten_at(&self, index: u64) -> Option<u64> {
        let waiting = self.unwritten.iter().rev();
        waiting.filter(|write| write.first.is_some_and(|first| first <= index)).map(|write| write.sequence).next()
    }

    pub fn oldest_unwritten(&self) -> Option<u64> {
        self.unwritten.front().map(|write| write.since)
    }

    /// The last entry that is on disk with all before it.
    fn flushed(&self) -> Option<LogId> {
        match self.unwritten.iter().find_map(|write| write.first) {
            None => self.last_log_id(),
            Some(first) => match first.checked_sub(self.first_index()) {
                Some(0) | None => self.hard.purged,
                Some(place) => self.entries.get(place as usize - 1).map(|entry| entry.log_id),
            },
        }
    }

    pub fn cap_commit(&mut self, vote: &Vote, commit: Option<LogId>) -> Option<LogId> {
        let flushed = self.flushed();
        let safe = if commit <= flushed {
            commit
        } else if flushed.is_some_and(|id| id.leader_id == vote.leader_id) {
            flushed
        } else {
            // What is on disk is of an earlier term, and only an entry of its own lets a leader count it as committed.
            None
        };
        self.capped = self.capped.max(safe);
        self.capped
    }

    pub fn extent(&self, since: u64) -> Extent {
        let behind = since.saturating_sub(self.first_index()) as usize;
        let bytes = self.entries.iter().skip(behind).map(entry_bytes).sum();
        Extent { entries: self.entries.len().saturating_sub(behind) as u64, bytes }
    }

    pub fn purgeable(&self, upto: u64, keep: u64) -> Option<u64> {
        let mut kept = 0;
        let old = self.entries.iter().rev().skip_while(|entry| entry.log_id.index > upto);
        let mut beyond = old.skip_while(|entry| {
            kept += entry_bytes(entry);
            kept <= keep
        });
        beyond.next().map(|entry| entry.log_id.index)
    }
}

fn entry_bytes(entry: &Entry) -> u64 {
    const HEAD: u64 = 64;
    match &entry.payload {
        EntryPayload::Normal(batch) => HEAD + batch.commands.len() as u64,
        EntryPayload::Blank | EntryPayload::Membership(_) => HEAD,
    }
}
