//! Sessions that have a copy on another node.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;

use crate::HEALED;

/// Until every node has said that the copies of its sessions are complete.
#[track_caller]
pub fn wait_for_copies(cluster: &Cluster, nodes: impl IntoIterator<Item = usize> + Clone) {
    let until = Instant::now() + HEALED;
    let complete = |node: usize| {
        let node = cluster.node(node);
        node.metric("holdfast_session_copies_incomplete", &[]) == Some(0.0)
            && node.metric("holdfast_sessions_without_copy", &[]) == Some(0.0)
    };
    while !nodes.clone().into_iter().all(complete) {
        assert!(Instant::now() < until, "the copies are not complete");
        pass(Duration::from_millis(50));
    }
}

/// Answers that take so long take longer than any test looks into its window, and not so long that a control connection is given up: these say something once a second, and three are too
/// many.
pub const LONG: Duration = Duration::from_millis(1_500);

/// A cluster whose sessions have copies.
pub fn start_copied(setup: ClusterSetup) -> Cluster {
    let cluster = setup.cluster("session_copies = 2").start();
    cluster.copied_within(&cluster.all().collect::<Vec<_>>(), HEALED);
    cluster
}

/// A node that follows, and the other two.
pub fn home_and_others(cluster: &Cluster) -> [usize; 3] {
    let home = cluster.followers()[0];
    [home, (home + 1) % 3, (home + 2) % 3]
}

/// Whether what is published on `home` to a topic goes to that other node: as a copy, where nobody has subscribed there.
pub fn goes_to(on: &ClusterStage, (home, other): (usize, usize), topic: &str) -> bool {
    const SIZE: usize = 200_000;
    let way = on.cluster.way(home, other);
    let before = way.passed();
    on.v5(home, "large").publish(on.topic(topic), vec![b'x'; SIZE], 1);
    way.passed() >= before + SIZE as u64
}

/// Starts a node that has ended, and waits until it is the heir and the home that it was.
#[track_caller]
pub fn start_again(cluster: &Cluster, node: usize) {
    cluster.start([node]);
    // Another node may be destroyed as soon as this one is ready.
    let seen = cluster.node(node).ask_json("/health/cluster").expect("it answers");
    assert_eq!(seen["quorum_critical"], false, "{seen}");
    cluster.whole_within(HEALED);
    wait_for_copies(cluster, cluster.all());
}

#[test]
fn a_node_is_destroyed_and_what_was_acknowledged_reaches_its_sessions() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    let (mut client, _) = on.connect(N3, &on.kept("lost"));
    client.subscribe(on.topic("a"), 1);
    client.disconnect();
    for (from, name) in [(N1, "away"), (N3, "here")] {
        let mut publisher = on.v5(from, name);
        let began = Instant::now();
        for number in 0..100 {
            publisher.publish(on.topic("a"), format!("{name}{number}"), 1);
        }
        eprintln!("100 messages from {name}: {:.1?}", began.elapsed());
    }
    eprintln!("{}", cluster.node(N3).ask("/health/ready").map_or_else(String::new, |(_, body)| body));
    cluster.node(N3).kill();
    cluster.node(N3).wipe();
    let began = Instant::now();
    let (mut client, ack) = on.connect_within(N1, &on.kept("lost"), HEALED);
    eprintln!("back after {:.1?}", began.elapsed());
    assert!(ack.session_present);
    for name in ["away", "here"] {
        for number in 0..100 {
            assert_eq!(client.take().text(), format!("{name}{number}"));
        }
    }
    cluster.node(N3).launch();
    wait_for_copies(&cluster, [N1, N2]);
}

/// Messages that are on disk alone are read back for the next heir, while more come.
#[test]
fn a_long_queue_is_filled_into_the_next_heir_and_outlives_its_home() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").storage("queue_window_bytes = \"64KB\"").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    for name in &names {
        let (mut client, _) = on.connect(N2, &on.kept(name));
        client.subscribe(on.topic("a"), 1);
        client.disconnect();
    }
    let mut publisher = on.v5(N1, "p");
    let text = |number: usize| format!("{number:04}{}", "x".repeat(1_000));
    (0..600).for_each(|number| _ = publisher.publish(on.topic("a"), text(number), 1));
    // The heir of some goes, and the others have to be filled.
    cluster.node(N3).kill();
    (600..700).for_each(|number| _ = publisher.publish(on.topic("a"), text(number), 1));
    wait_for_copies(&cluster, [N1, N2]);
    cluster.start([N3]);
    pass(Duration::from_secs(32));
    (700..800).for_each(|number| _ = publisher.publish(on.topic("a"), text(number), 1));
    wait_for_copies(&cluster, cluster.all());
    eprintln!(
        "{:?}",
        cluster.node(N2).ask("/api/v1/cluster/status").map(|(_, body)| body[body.find("copies").unwrap()..].to_owned())
    );
    cluster.node(N2).kill();
    cluster.node(N2).wipe();
    for name in &names {
        let (mut client, ack) = on.connect_within(N1, &on.kept(name), HEALED);
        assert!(ack.session_present, "{name}");
        let mut next = 0;
        while next < 800 {
            let got = client.take().text();
            assert!(got <= text(next), "{name} {next} {}", &got[..8]);
            next += usize::from(got == text(next));
        }
        client.disconnect();
    }
}

/// QoS 2 from a kept session to kept sessions on all nodes, over the death of their home.
#[test]
fn messages_of_qos_2_come_once_over_the_loss_of_a_home() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    for (node, name) in [(N1, "a"), (N3, "b"), (N3, "c"), (N3, "d")] {
        let (mut client, _) = on.connect(node, &on.kept(name));
        client.subscribe(on.topic("q"), 2);
        client.disconnect();
    }
    let (mut publisher, _) = on.connect(N3, &on.kept("publisher"));
    (0..100).for_each(|number| _ = publisher.publish(on.topic("q"), format!("{number}"), 2));
    cluster.node(N3).kill();
    cluster.node(N3).wipe();
    for name in ["a", "b", "c", "d"] {
        let (mut client, ack) = on.connect_within(N2, &on.kept(name), HEALED);
        assert!(ack.session_present, "{name}");
        for number in 0..100 {
            assert_eq!(client.take().text(), format!("{number}"), "{name}");
        }
        client.expect_quiet();
    }
}

/// A change of the configuration goes from node to node: they are linked all the same, and say so; what heirs had of a node whose sessions are to have no copies is not inherited.
#[test]
fn nodes_that_are_told_otherwise_say_so_and_a_node_without_copies_has_no_heirs() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    wait_for_copies(&cluster, cluster.all());
    assert!(cluster.node(N3).stop(Duration::from_secs(20)).success());
    let file = cluster.node(N3).installation().folder().join("holdfast.toml");
    let text = std::fs::read_to_string(&file).expect("its configuration");
    std::fs::write(&file, text.replace("session_copies = 2", "session_copies = 1")).expect("it can be written");
    cluster.start([N3]);
    cluster.whole_within(HEALED);
    for (node, said) in [(N1, "session_copies is 2 here and 1 on n3"), (N3, "session_copies is 1 here and 2 on n1")] {
        let found = cluster.node(node).log().wait(0, HEALED, |line| line.contains(said));
        assert!(found.is_some(), "{}", cluster.node(node).log().text());
    }
    let seen = cluster.node(N1).ask_json("/api/v1/cluster/status").expect("an answer");
    let rows = seen["copies"].as_array().cloned().unwrap_or_default();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["home"] != "n3"), "{rows:?}");
    assert_eq!(cluster.node(N3).metric("holdfast_session_copies_incomplete", &[]), None);
}
