//! Nodes that come back with less than they had said to have: `durability = "memory"` waits for no disk, and a kill takes the end. To be sure that it does, the
//! tests put the journal back as it was a moment before.

use std::time::Duration;

use tempfile::TempDir;

use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::process::copy_folder;
use holdfast_cluster_tests::scene::pass;

use crate::HEALED;

const MESSAGES: usize = 300;

/// Three nodes at level memory, whose copies are complete.
fn at_level_memory() -> Cluster {
    let cluster = ClusterSetup::new(3).storage("durability = \"memory\"").cluster("session_copies = 2").start();
    for node in [N1, N2, N3] {
        wait_for_copies(&cluster, node, 0);
    }
    cluster
}

#[track_caller]
fn wait_for_copies(cluster: &Cluster, node: usize, from: usize) {
    let found = cluster.node(node).log().wait(from, 3 * HEALED, |line| line.contains("are complete"));
    assert!(found.is_some(), "node {node} has not filled its heirs");
}

/// What is on the disks of these nodes, when nothing has been written for a while.
fn disks(cluster: &Cluster, nodes: &[usize]) -> Vec<TempDir> {
    pass(Duration::from_secs(1));
    let copy_of = |node: &usize| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy_folder(&cluster.node(*node).installation().journal_dir(), &folder.path().join("journal"));
        folder
    };
    nodes.iter().map(copy_of).collect()
}

/// The process ends, and what it wrote since then has not reached the disk; a new one begins.
fn restart_with(cluster: &Cluster, node: usize, disk: &TempDir) {
    cluster.node(node).kill();
    let journal = cluster.node(node).installation().journal_dir();
    std::fs::remove_dir_all(&journal).expect("the temporary folder can be written");
    copy_folder(&disk.path().join("journal"), &journal);
    cluster.node(node).launch();
}

fn begin(on: &ClusterStage<'_>, at: usize) {
    for session in 0..4 {
        let (mut client, _) = on.connect(at, &on.kept(&format!("s{session}")));
        client.subscribe(on.topic("a"), 1);
        client.disconnect();
    }
}

fn publish(on: &ClusterStage<'_>, at: usize) {
    let mut publisher = on.v5(at, "p");
    (0..MESSAGES).for_each(|number| _ = publisher.publish(on.topic("a"), number.to_string(), 1));
}

/// Every session is there, with everything that was acknowledged.
fn check(on: &ClusterStage<'_>, at: usize) {
    for session in 0..4 {
        let (mut client, ack) = on.connect_within(at, &on.kept(&format!("s{session}")), HEALED);
        assert!(ack.session_present, "s{session}");
        on.v5(at, "end").publish(on.topic("a"), "end", 1);
        let messages: Vec<String> = client.take_until("end").iter().map(|message| message.text()).collect();
        let missing: Vec<usize> = (0..MESSAGES).filter(|number| !messages.contains(&number.to_string())).collect();
        assert!(missing.is_empty(), "s{session} lacks {missing:?}");
        client.disconnect();
    }
}

/// Back before anybody has noticed that it was away: its heirs have the end of its sessions.
#[test]
fn a_node_that_starts_again_at_once_without_the_end_of_what_it_had_leaves_its_sessions_to_its_heirs() {
    let cluster = at_level_memory();
    let on = ClusterStage::new(&cluster);
    begin(&on, N3);
    let disks = disks(&cluster, &[N3]);
    publish(&on, N1);
    restart_with(&cluster, N3, &disks[0]);
    check(&on, N2);
}

/// It is an heir again when it has been filled anew.
#[test]
fn an_heir_that_starts_again_at_once_without_the_end_of_its_copies_is_filled_again() {
    let cluster = at_level_memory();
    let on = ClusterStage::new(&cluster);
    begin(&on, N1);
    let disks = disks(&cluster, &[N2, N3]);
    publish(&on, N2);
    for (heir, disk) in [N2, N3].into_iter().zip(&disks) {
        let at = cluster.node(N1).log().len();
        restart_with(&cluster, heir, disk);
        cluster.whole_within(HEALED);
        wait_for_copies(&cluster, N1, at);
    }
    cluster.node(N1).kill();
    cluster.node(N1).wipe();
    check(&on, N2);
}

/// The power of all fails at once: nobody has anything better than each has itself.
#[test]
fn sessions_survive_that_every_node_has_lost_the_end_of_them() {
    let cluster = at_level_memory();
    let on = ClusterStage::new(&cluster);
    begin(&on, N3);
    publish(&on, N1);
    pass(Duration::from_secs(1));
    cluster.kill(cluster.all());
    cluster.start(cluster.all());
    cluster.whole_within(HEALED);
    check(&on, N3);
}
