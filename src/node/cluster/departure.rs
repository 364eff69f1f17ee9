//! Leaving the cluster for good.
//!
//! Order: the clients are told to go (0x8B) and have a moment to take what was written to them; the leader ends the node's incarnation and takes it out of the members; a
//! file in the data directory says so; the process ends. If it does not come to that, the node registers anew and serves on.
//!
//! A node that was taken out has the same file once it has been told.
//!
//! What the file is for: the log of a node that has left knows of a cluster that does not know the node. A start with such a directory is refused, whoever starts it.
//!
//! Test to read first: `cluster-tests/tests/cluster/admin.rs`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use holdfast_raft::{Group, LeaveError, MemberView, NodeId};

use crate::admin::Trouble;
use crate::mqtt::ReasonCode;
use crate::shard::Shared;
use crate::shard::mailbox::Event;

use super::admin_source::starting;
use super::plane::ClusterPlane;

/// The file of a data directory whose node has left its cluster; it holds the name of that.
const LEFT_FILE: &str = "left-cluster";

/// The longest that clients have to go, and the longest that the cluster has to let the node go: together less than a request may take.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(4);
const LEAVE_PATIENCE: Duration = Duration::from_secs(9);

/// Between the answer and the end of the process.
const LAST_WORD: Duration = Duration::from_millis(300);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The cluster that the node of this data directory has left, or was taken out of, if there is one.
///
/// # Errors
/// The file cannot be read.
pub fn left_cluster(data_dir: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(data_dir.join(LEFT_FILE)) {
        Ok(text) => Ok(Some(text.lines().next().unwrap_or_default().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes down that it has.
pub(in crate::node) fn note_left(data_dir: &Path, cluster: &str) -> io::Result<()> {
    let mut file = File::create(data_dir.join(LEFT_FILE))?;
    writeln!(file, "{cluster}")?;
    file.sync_all()?;
    File::open(data_dir)?.sync_all()
}

/// See the module. Clones are of the same node.
#[derive(Clone)]
pub(super) struct Departure {
    pub shared: Arc<Shared>,
    pub plane: Arc<ClusterPlane>,
    pub data_dir: Option<PathBuf>,
    /// The name of the cluster.
    pub cluster: String,
    /// How long clients have to go when the node ends.
    pub grace: Duration,
}

impl Departure {
    /// Leaves, or says why not. It goes on if whoever asked goes away.
    pub async fn leave(&self) -> Result<(), Trouble> {
        let Some(group) = self.plane.group().cloned() else { return Err(starting()) };
        may_leave(&group, self.shared.node)?;
        if self.plane.leaving().send_replace(true) {
            return Err(Trouble::new(409, "leaving", "the node is leaving already"));
        }
        let departure = self.clone();
        let left = tokio::spawn(async move { departure.go(&group).await }).await;
        left.unwrap_or_else(|_| Err(Trouble::new(503, "stopping", "the node is about to end")))
    }

    async fn go(self, group: &Group) -> Result<(), Trouble> {
        warn!(
            event = "leaving",
            cluster = self.cluster,
            "this node leaves its cluster, as it was told by way of the admin port"
        );
        self.close_clients().await;
        match group.leave(Instant::now() + LEAVE_PATIENCE).await {
            Ok(()) => {
                self.leave_word();
                tokio::spawn(async move {
                    sleep(LAST_WORD).await;
                    self.plane.left().send_replace(true);
                });
                Ok(())
            }
            Err(error) => {
                warn!(event = "leaving", %error, "this node has not left: it registers anew");
                self.plane.leaving().send_replace(false);
                Err(match error {
                    LeaveError::Refused(reason) => Trouble::new(409, "refused", reason),
                    LeaveError::Deadline(_) => Trouble::new(503, "no_quorum", error.to_string())
                        .hint("the node has closed its clients and joins again; most of the voters must be there to let one go"),
                })
            }
        }
    }

    async fn close_clients(&self) {
        let reason = ReasonCode::ServerShuttingDown;
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::CloseAll { reason }));
        let deadline = Instant::now() + self.grace.min(CLIENTS_PATIENCE);
        while self.shared.metrics.sum(|shard| &shard.connections) > 0 && Instant::now() < deadline {
            sleep(LOOK_AGAIN).await;
        }
    }

    fn leave_word(&self) {
        info!(event = "left", cluster = self.cluster, "this node has left its cluster for good, and ends");
        if let Some(data_dir) = &self.data_dir
            && let Err(error) = note_left(data_dir, &self.cluster)
        {
            error!(event = "left", %error, data_dir = %data_dir.display(), "it cannot be written down: do not start a node with this data directory again");
        }
    }
}

/// Whether the others can do without this node: else nobody could agree upon its leaving.
fn may_leave(group: &Group, own: NodeId) -> Result<(), Trouble> {
    let status = group.status();
    if status.incarnation.is_none() {
        return Err(Trouble::new(409, "not_joined", "this node is not one of the cluster now").hint(
            "a node that cannot join is stopped, and taken out by `holdfast cluster force-leave` on another one",
        ));
    }
    if !status.quorum {
        return Err(no_quorum("there is no quorum now, and without one no node can leave"));
    }
    let live: Vec<NodeId> = group.read(|state| state.live_nodes().map(|node| node.id).collect());
    // Who has died just now lives in the state until its lease is over, and its link is gone.
    let is_there = |member: &&MemberView| live.contains(&member.id) && member.linked;
    let voters = || status.members.iter().filter(|member| member.voter);
    if !voters().any(|member| member.id == own) {
        return Ok(());
    }
    let rest = || voters().filter(|member| member.id != own);
    can_do_without(rest().count(), rest().filter(is_there).count())
}

/// Whether the other voters can, `there` of `rest`.
fn can_do_without(rest: usize, there: usize) -> Result<(), Trouble> {
    match rest {
        0 => Err(Trouble::new(409, "last_node", "it is the last voter: without it there is no cluster").hint("stop it instead")),
        rest if there <= rest / 2 => Err(Trouble::new(
            409,
            "quorum",
            format!("of the {rest} voters that stay only {there} would be there: no majority"),
        )
        .hint("bring the others back first, or take out for good by `holdfast cluster force-leave` those that will not come back")),
        _ => Ok(()),
    }
}

/// Nobody comes or goes now.
pub(super) fn no_quorum(why: &str) -> Trouble {
    Trouble::new(503, "no_quorum", why)
        .hint("start the voters that are down until most of them are there: `holdfast cluster status` says who is in the cluster, and its state as it was last known")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_tells_that_its_node_has_left() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(left_cluster(dir.path()).unwrap(), None);
        note_left(dir.path(), "plant 7").unwrap();
        assert_eq!(left_cluster(dir.path()).unwrap().as_deref(), Some("plant 7"));
    }

    #[test]
    fn a_node_leaves_only_a_majority_behind() {
        for (rest, there, code) in [
            (0, 0, Some("last_node")),
            (1, 1, None),
            (1, 0, Some("quorum")),
            (2, 2, None),
            (2, 1, Some("quorum")),
            (3, 2, None),
            (4, 2, Some("quorum")),
        ] {
            let refused = can_do_without(rest, there).err().map(|trouble| trouble.code);
            assert_eq!(refused, code, "{there} of {rest}");
        }
    }
}
