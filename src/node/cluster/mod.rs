//! A node among others: its links, its part in the Raft group, and its life from one registration to the next.
//!
//! | module | what it is |
//! | --- | --- |
//! | `plane` | the control state as the shards see it |
//! | `receiver` | what the links bring, and where it goes |
//! | `heirs` | who has the copies of this node's sessions |
//! | `heritage` | what this node has of the sessions of others |
//! | `retained_sync` | retained messages that one of two nodes does not have |
//! | `life` | registering, taking up, serving, being given up, and again |
//! | `admin_source`, `outlook`, `figures` | what the admin port tells: of all nodes, of how this one sees them, and what is counted |
//! | `questions` | what the admin port of one node asks the others |
//! | `departure` | leaving for good |
//! | `neighbours`, `sharing_out` | how many clients the other nodes have and take, and who lets some go |
//! | `waiting` | in words, what a node waits for that the cluster has not taken in |
//!
//! Order of a start: the state on disk is read and every session is in the index of its shard; then the links open and the group starts; when the cluster has registered the node it drops what is
//! no longer its own, says which filters it wants, and agrees with the others about retained messages; only then do the listeners open.

mod admin_source;
mod departure;
mod figures;
mod heirs;
mod heritage;
mod life;
mod neighbours;
mod outlook;
mod plane;
mod questions;
mod receiver;
mod retained_sync;
mod sharing_out;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{info, warn};

use holdfast_raft::{Group, Options};
use holdfast_storage::Storage;

use crate::admin::AdminPort;
use crate::config::{self, Config};
use crate::link::{self, Links, Peer};
use crate::shard::Shared;

pub use departure::left_cluster;
pub(super) use departure::note_left;
pub(super) use plane::ClusterPlane;

use super::admin_source::Local;
use admin_source::{Clustered, SysOthers};
use departure::Departure;
use life::{Life, Stage};
use neighbours::Neighbours;
use plane::Ear;
use questions::Questions;
use receiver::{GroupNetwork, Switchboard};
use retained_sync::RetainedSync;

/// Why a node cannot be one of a cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    #[error("{}: {error}", .error.key())]
    Links {
        #[from]
        error: link::StartError,
    },
    #[error("the node's part in the cluster cannot be started: {0}")]
    Group(#[from] holdfast_raft::StartError),
}

impl ClusterError {
    /// Whether a file that the configuration names is at fault.
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Links { error: link::StartError::Secret(_) | link::StartError::Tls(_) })
    }
}

/// The versions of the links that this program speaks. Version 1 knew neither copies nor heirs: a node that speaks only that is refused at the greeting.
const VERSIONS: (u16, u16) = (2, 2);

/// A node's part in its cluster.
pub(super) struct Membership {
    links: Links,
    group: Group,
}

impl Membership {
    /// The end of the process; the node stays a member.
    pub async fn end(&self) {
        self.group.stop().await;
        self.links.stop().await;
    }
}

/// What the parts of a node among others begin with.
pub(super) struct Beginning<'a> {
    pub config: &'a Config,
    pub cluster: &'a config::Cluster,
    pub shared: &'a Arc<Shared>,
    pub storage: &'a Option<Storage>,
    /// Whether what was on disk is all there.
    pub whole: bool,
    pub plane: &'a Arc<ClusterPlane>,
    /// Leases of the time when the node was alone.
    pub alone: Vec<holdfast_raft::LeaseImage>,
    /// What the node tells of itself, and to whom.
    pub local: Arc<Local>,
    pub port: &'a Option<AdminPort>,
}

/// Opens the links and begins to be one of a cluster. The listeners open when `open` says so.
pub(super) async fn start(beginning: Beginning<'_>, open: watch::Sender<bool>) -> Result<Membership, ClusterError> {
    let (stage, stages) = watch::channel(Stage::Joining(String::new()));
    let questions = begin_to_tell(&beginning, stages);
    let Beginning { config, cluster, shared, storage, whole, plane, alone, .. } = beginning;
    let retained = RetainedSync::start(shared.clone(), storage.clone(), plane.clone());
    let switchboard =
        Arc::new(Switchboard { shared: shared.clone(), plane: plane.clone(), retained: retained.clone(), questions });
    let own = Peer {
        id: shared.node,
        name: config.node.name.as_str().into(),
        run: shared.run,
        address: String::new(),
        shards: shared.mailboxes.len() as u16,
        versions: VERSIONS,
    };
    let links = Links::start(cluster, own, switchboard, &Handle::current())?;
    info!(event = "cluster_port", address = %links.local_addr(), cluster = cluster.name, "other nodes are accepted on {}", links.local_addr());
    plane.set_links(links.clone());
    let options = options(config, cluster, shared, whole);
    let group = group(options, cluster, shared, storage, plane).await?;
    plane.set_group(group.clone());
    let life = Life {
        shared: shared.clone(),
        storage: storage.clone(),
        plane: plane.clone(),
        links: links.clone(),
        group: group.clone(),
        retained,
        alone,
        expected_size: cluster.expected_size,
        open,
        stage,
    };
    tokio::spawn(life.run());
    tokio::spawn(life::end_lingering(plane.clone()));
    let own = heirs::Own { session_copies: cluster.session_copies, keeps: storage.is_some() };
    if own.session_copies > 1 && !own.keeps {
        warn!(
            event = "copies",
            "session_copies = {} has no effect without data_dir under [node]: the sessions of this node end with it",
            own.session_copies
        );
    }
    tokio::spawn(heirs::run(plane.clone(), own));
    Ok(Membership { links, group })
}

/// The admin port answers from here on, whatever the cluster does.
fn begin_to_tell(beginning: &Beginning<'_>, stage: watch::Receiver<Stage>) -> Arc<Questions> {
    let Beginning { config, cluster, shared, plane, local, port, .. } = beginning;
    let questions = Questions::new(local.clone(), (*plane).clone());
    local.draining.set_others(Arc::new(Neighbours {
        plane: (*plane).clone(),
        questions: questions.clone(),
        last: Default::default(),
    }));
    let departure = Departure {
        shared: (*shared).clone(),
        plane: (*plane).clone(),
        questions: questions.clone(),
        data_dir: config.node.data_dir.clone(),
        cluster: cluster.name.clone(),
        grace: config.shutdown.grace,
        departing: Arc::default(),
    };
    let source = Clustered {
        local: local.clone(),
        plane: (*plane).clone(),
        questions: questions.clone(),
        departure,
        cluster: cluster.name.clone(),
        expected_size: cluster.expected_size,
        stage,
        started: AtomicBool::new(false),
    };
    let others = SysOthers { plane: (*plane).clone(), questions: questions.clone() };
    // A node begins once.
    let _ = local.others.set(Box::new(others));
    if let Some(port) = port {
        port.begin(Arc::new(source));
    }
    questions
}

fn options(config: &Config, cluster: &config::Cluster, shared: &Shared, whole: bool) -> Options {
    let ms = |duration: Duration| duration.as_millis() as u64;
    let timers = &cluster.timers;
    let mut options = Options::new(shared.node, &config.node.name, shared.run);
    options.intact = is_intact(cluster.session_copies, config.storage.durability, whole);
    options.expected_size = cluster.expected_size;
    options.dir = config.node.data_dir.as_ref().map(|dir| dir.join("raft"));
    options.lease_ms = ms(timers.lease);
    options.renew_ms = ms(timers.renew);
    options.margin_ms = ms(timers.margin);
    options.fence_grace_ms = ms(timers.fence_grace).max(options.renew_ms);
    options.election_ms = (ms(timers.election), ms(timers.election_max()));
    options
}

/// Who owes this node something and gives no sign of life is complained of; and this node renews its grant only if it does its own work.
async fn group(
    options: Options,
    cluster: &config::Cluster,
    shared: &Arc<Shared>,
    storage: &Option<Storage>,
    plane: &Arc<ClusterPlane>,
) -> Result<Group, ClusterError> {
    let lease_ms = cluster.timers.lease.as_millis() as u64;
    let complaints = {
        let plane = plane.clone();
        Arc::new(move || plane.stuck_nodes(lease_ms))
    };
    let work = life::Work::new(shared.clone(), storage.clone(), lease_ms);
    let fitness = Arc::new(move || work.fitness());
    let network = Arc::new(GroupNetwork(plane.clone()));
    let ear = Arc::new(Ear(plane.clone()));
    Ok(Group::start(options, network, ear, complaints, fitness).await?)
}

/// Whether a process that has just started has everything that others rely on it to have. `whole`: what was on disk is all there.
///
/// At level memory nobody waits for the disk, so the end of what was said to be kept may never have reached it, neither of this node's sessions nor of
/// its copies. How the process before has ended is not asked: one that ended well was inherited from when it said so. Without copies there is nothing
/// better than what the node has, and nobody to rely on it.
fn is_intact(session_copies: usize, durability: config::Durability, whole: bool) -> bool {
    session_copies < 2 || (whole && durability == config::Durability::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Durability::{Disk, Memory};

    /// H7.
    #[test]
    fn who_may_have_lost_something_that_another_node_has_says_so() {
        assert!(is_intact(2, Disk, true));
        assert!(!is_intact(2, Disk, false), "damage was put aside");
        assert!(!is_intact(2, Memory, true), "the end of it is lost");
        assert!(is_intact(1, Memory, false), "nobody has more");
    }
}
