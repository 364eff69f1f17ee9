//! Many nodes, one broker: real processes with a fault relay on each way from one node to another.
//!
//! Tests named `field_case_NN_…` are those of the project's list of field cases that need several nodes; each says what must hold. By
//! default they run with few rounds, short faults and small crowds; `HOLDFAST_ROUNDS=full` runs them as often, as long and as large as the list says.
//! Tests that harm nothing share a cluster. What they measure is printed, and shown by `--nocapture`.
//!
//! The bounds below are those of a cluster with its default timers: a lease of 3 s and elections of 0.3 to 0.6 s.
//!
//! Read first: `subscribing.rs`.

mod admin;
mod chaos;
mod copies;
mod departures;
mod destroyed;
mod draining;
mod exactly_once;
mod failover;
mod faults;
mod full_disk;
mod half_there;
mod hopping;
mod inheriting;
mod intruders;
mod losing;
mod lost_wills;
mod matrix;
mod order;
mod outliving;
mod partitions;
mod properties;
mod restarts;
mod retained;
mod rights;
mod secured;
mod shared_once;
mod shares;
mod stopping;
mod subscribing;
mod survival;
mod takeover;
mod taking_up;
mod wills;
mod wills_of_many;
mod windows;

use std::sync::OnceLock;
use std::time::Duration;

use holdfast_cluster_tests::cluster::{Cluster, ClusterStage};
use holdfast_cluster_tests::wire::Version;

/// How long a node may be silent before the others go on without it.
const LEASE: Duration = Duration::from_secs(3);

/// The longest election.
const ELECTION: Duration = Duration::from_millis(600);

/// For a machine that runs three clusters on two cores, unoptimized.
const SLACK: Duration = Duration::from_secs(3);

/// The longest stall that one node may cause to others: a lease and an election.
const STALL: Duration =
    Duration::from_millis(LEASE.as_millis() as u64 + ELECTION.as_millis() as u64 + SLACK.as_millis() as u64);

/// The same when that node led: the next leader waits for a full lease of its own.
const STALL_OF_LEADER: Duration = Duration::from_millis(STALL.as_millis() as u64 + LEASE.as_millis() as u64);

/// In this time a failure is noticed.
const NOTICED: Duration = Duration::from_secs(10);

/// In this time a cluster is whole again after a partition or a restart.
const HEALED: Duration = Duration::from_secs(30);

/// In this time a session has moved.
const TAKEOVER: Duration = Duration::from_secs(2);

/// 3.1.1 and 5.0.
const BOTH_VERSIONS: [Version; 2] = [Version::V311, Version::V5];

/// A stage on the cluster that is shared by the tests that harm nothing.
fn shared() -> ClusterStage<'static> {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    ClusterStage::new(CLUSTER.get_or_init(Cluster::three))
}
