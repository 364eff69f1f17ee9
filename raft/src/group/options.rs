//! How a node of the group is started, and why it may not be.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::command::NodeId;
use crate::liveness::Timing;
use crate::log_store;
use crate::state_machine::SnapshotFault;

/// How one node takes part.
#[derive(Debug, Clone)]
pub struct Options {
    /// Random, made with the data directory; a node that has lost its log must have a new one.
    pub node: NodeId,
    /// The configured name. A new id under a known name replaces the old one once that is dead.
    pub name: String,
    /// Random, drawn at each start of the process.
    pub run: u64,
    /// Whether the node still has all sessions that it held, for its first registration. Later ones of the same process are intact.
    pub intact: bool,
    /// The versions of the control state that this program can apply, least and greatest.
    pub versions: (u16, u16),
    /// Nodes that a new cluster begins with. It does not matter to a node that joins one, or is in one.
    pub expected_size: usize,
    /// Where log and snapshots are kept; `None`: in memory.
    pub dir: Option<PathBuf>,
    pub lease_ms: u64,
    pub renew_ms: u64,
    pub margin_ms: u64,
    pub fence_grace_ms: u64,
    /// Least and greatest election timeout.
    pub election_ms: (u64, u64),
    /// A snapshot is made after so many entries or bytes of log.
    pub snapshot_entries: u64,
    pub snapshot_bytes: u64,
    /// Bytes of log that stay behind a snapshot, for followers that are a little behind.
    pub keep_log_bytes: u64,
}

impl Options {
    /// With the default times, in memory, for a cluster that begins with three nodes.
    #[must_use]
    pub fn new(node: NodeId, name: &str, run: u64) -> Options {
        Options {
            node,
            name: name.to_owned(),
            run,
            intact: true,
            versions: crate::state::VERSIONS,
            expected_size: 3,
            dir: None,
            lease_ms: 3000,
            renew_ms: 500,
            margin_ms: 500,
            fence_grace_ms: 5000,
            election_ms: (300, 600),
            snapshot_entries: 100_000,
            snapshot_bytes: 64 * 1024 * 1024,
            keep_log_bytes: 8 * 1024 * 1024,
        }
    }

    pub(crate) fn timing(&self) -> Timing {
        let &Options { lease_ms, renew_ms, margin_ms, fence_grace_ms, .. } = self;
        Timing { lease_ms, renew_ms, margin_ms, fence_grace_ms }
    }

    /// Where the newest snapshot is.
    pub(super) fn snapshot_path(&self) -> Option<PathBuf> {
        self.dir.as_deref().map(crate::state_machine::snapshot_path)
    }

    /// Refuses times that contradict one another.
    ///
    /// # Errors
    /// [`StartError::Times`].
    pub fn check(&self) -> Result<(), StartError> {
        let left = self.lease_ms.saturating_sub(self.margin_ms).saturating_sub(self.renew_ms);
        if self.election_ms.0 < 50 || self.election_ms.0 >= self.election_ms.1 {
            return Err(StartError::Times("the election timeout is a range that begins at 50 ms or later"));
        }
        if left <= 3 * self.election_ms.1 {
            return Err(StartError::Times("lease less margin less renewal interval must be more than three elections"));
        }
        if self.renew_ms == 0 || self.fence_grace_ms < self.renew_ms {
            return Err(StartError::Times("the fence grace must be longer than the renewal interval, and that not 0"));
        }
        Ok(())
    }
}

/// Why a node cannot take part.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("{0}")]
    Times(&'static str),
    #[error("the control log in {}: {error}", .path.display())]
    Log { path: PathBuf, error: log_store::OpenError },
    #[error("the snapshot of the control state, {}: {fault}", .path.display())]
    Snapshot { path: PathBuf, fault: SnapshotFault },
    #[error(
        "the Raft group does not start{at}: {why}. If it says so again, give the node an empty data directory: it comes back under another id"
    )]
    Raft { at: String, why: String },
}

impl StartError {
    /// openraft has stopped; `dir` is where its log and its snapshot are.
    pub(super) fn raft(dir: Option<&Path>, why: impl ToString) -> StartError {
        let at = dir.map_or_else(String::new, |dir| format!(" with what is in {}", dir.display()));
        StartError::Raft { at, why: why.to_string() }
    }
}

/// Why a node has no incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError {
    #[error("no incarnation by the deadline: {0}")]
    Deadline(String),
    #[error("the group has stopped")]
    Stopped,
    /// It is for good.
    #[error("the cluster has taken this node out")]
    Removed,
}

/// Why a member stays.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LeaveError {
    #[error("no answer by the deadline: {0}")]
    Deadline(String),
    #[error("{0}")]
    Refused(String),
}
