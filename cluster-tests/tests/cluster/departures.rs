//! A node that leaves for good takes no session with it, neither its own nor the last copy of another's.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;
use serde_json::Value;

use crate::HEALED;
use crate::copies::wait_for_copies;

const N4: usize = 3;
const SESSIONS: usize = 8;
const MESSAGES: usize = 20;

/// A process that is to end does so in this time.
const ENDED: Duration = Duration::from_secs(20);

fn name(home: usize, session: usize) -> String {
    format!("s{home}.{session}")
}

/// Kept sessions on some nodes, away, with a queue each.
fn sessions(on: &ClusterStage, homes: &[usize]) {
    for home in homes {
        for session in 0..SESSIONS {
            let (mut client, _) = on.connect(*home, &on.kept(&name(*home, session)));
            client.subscribe(on.topic("a"), 1);
            client.disconnect();
        }
    }
    let mut publisher = on.v5(N2, "p");
    (0..MESSAGES).for_each(|number| assert!(publisher.publish(on.topic("a"), number.to_string(), 1) < 0x80));
}

/// All of them are there with what waits for them, on any node that is left.
#[track_caller]
fn all_are_there(on: &ClusterStage, homes: &[usize], nodes: &[usize]) {
    for home in homes {
        for session in 0..SESSIONS {
            let name = name(*home, session);
            let (mut client, ack) = on.connect_within(nodes[session % nodes.len()], &on.kept(&name), HEALED);
            assert!(ack.session_present, "{name}");
            for number in 0..MESSAGES {
                assert_eq!(client.take().text(), number.to_string(), "{name}");
            }
        }
    }
}

/// Asks until it has left.
#[track_caller]
fn leaves(cluster: &Cluster, node: usize) {
    let (node, deadline) = (cluster.node(node), Instant::now() + HEALED);
    loop {
        match node.command("/api/v1/cluster/leave", "") {
            (200, _) => break,
            (202, said) => eprintln!("{said}"),
            (status, said) => panic!("{status}: {said}\n{}", node.log().text()),
        }
        assert!(Instant::now() < deadline, "it does not leave: {}", node.log().text());
    }
    assert!(node.process().exit_status(ENDED).success());
}

/// Four, so that those who stay can lose one more: the homes whose heir the first was have filled another one.
#[test]
fn a_node_that_leaves_takes_no_last_copy_with_it() {
    let cluster = ClusterSetup::new(4).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    sessions(&on, &[N1, N4]);
    leaves(&cluster, N4);
    let rows = copies_seen_by(&cluster, N2);
    assert!(rows.iter().all(|row| row["heir"] != "n4" || row["state"] == "stale"), "{rows:?}");
    wait_for_copies(&cluster, [N1, N2, N3]);
    cluster.node(N1).kill();
    cluster.node(N1).wipe();
    all_are_there(&on, &[N1, N4], &[N2, N3]);
}

/// Of two nodes the one that stays has everything, waits for nobody, and says that there are no copies.
#[test]
fn the_last_node_has_the_sessions_of_all() {
    let cluster = ClusterSetup::new(2).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    sessions(&on, &[N1, N2]);
    leaves(&cluster, N1);
    all_are_there(&on, &[N1, N2], &[N2]);
    assert_eq!(cluster.node(N2).metric("holdfast_session_copies_incomplete", &[]), Some(1.0));
    let (status, ready) = cluster.node(N2).ask("/health/ready").expect("an answer");
    assert!(status == 200 && ready.contains("copies_incomplete"), "{status}: {ready}");
}

fn copies_seen_by(cluster: &Cluster, node: usize) -> Vec<Value> {
    let seen = cluster.node(node).ask_json("/api/v1/cluster/status").expect("an answer");
    seen["copies"].as_array().cloned().unwrap_or_default()
}

/// Any node tells how far the copies of all are.
#[test]
fn the_copies_of_all_homes_are_seen_from_each_node() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    wait_for_copies(&cluster, cluster.all());
    let deadline = Instant::now() + HEALED;
    for node in cluster.all() {
        // It may be behind, or another one may not have answered in time.
        loop {
            let rows = copies_seen_by(&cluster, node);
            let is_told = |row: &Value| row["state"] == "complete" && row["figures"]["lag_records"].is_u64();
            if rows.len() == 6 && rows.iter().all(is_told) {
                break;
            }
            assert!(Instant::now() < deadline, "{rows:?}");
            pass(Duration::from_millis(100));
        }
    }
}
