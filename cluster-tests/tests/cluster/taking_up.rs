//! What a node takes up when it starts again: sessions that it had been left, or was about to be, when it was killed.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::rounds::{many, rounds};
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;

use crate::HEALED;

/// Topics that the sessions are spread over.
const TOPICS: usize = 8;
/// Messages that wait in each session.
const WAITING: usize = 4;

fn name(number: usize) -> String {
    format!("s{number}")
}

fn topic(on: &ClusterStage<'_>, number: usize) -> String {
    on.topic(&format!("a/{}", number % TOPICS))
}

/// Three nodes; `count` sessions of nobody who is connected, whose home is the third, each with messages, and all copies are complete.
fn bequeath(cluster: &Cluster, count: usize) -> ClusterStage<'_> {
    let on = ClusterStage::new(cluster);
    for node in cluster.all() {
        let found = cluster.node(node).log().wait(0, HEALED, |line| line.contains("are complete"));
        assert!(found.is_some(), "node {node} has not filled its heirs");
    }
    let mut crowd = Crowd::gather(cluster, count, HEALED, |number| (N3, on.kept(&name(number)).keep_alive(0)));
    crowd.each(|number, client| assert_eq!(client.subscribe(topic(&on, number), 1), 1));
    crowd.clients.into_iter().for_each(Client::disconnect);
    publish(&on, 0..WAITING);
    on
}

fn publish(on: &ClusterStage<'_>, texts: std::ops::Range<usize>) {
    let mut publisher = on.v5(N2, "p");
    for text in texts {
        (0..TOPICS).for_each(|number| _ = publisher.publish(topic(on, number), text.to_string(), 1));
    }
}

/// Every session is there, on whichever of these nodes its client asks for it, with its messages in their order; each once, unless it `may_repeat`.
#[track_caller]
fn all_are_there(on: &ClusterStage<'_>, (count, messages): (usize, usize), nodes: &[usize], may_repeat: bool) {
    let began = Instant::now();
    let ask = |number: usize| (nodes[number % nodes.len()], on.kept(&name(number)).keep_alive(0));
    let mut crowd = Crowd::gather(on.cluster, count, HEALED, ask);
    assert_eq!(crowd.present, count, "sessions that are there");
    let expected: Vec<String> = (0..messages).map(|text| text.to_string()).collect();
    let mut publisher = on.v5(nodes[0], "end");
    (0..TOPICS).for_each(|number| _ = publisher.publish(topic(on, number), "end", 1));
    crowd.each(|number, client| {
        let mut got: Vec<String> = client.take_until("end").iter().map(|message| message.text()).collect();
        if may_repeat {
            let mut seen = std::collections::HashSet::new();
            got.retain(|text| seen.insert(text.clone()));
        }
        assert_eq!(got, expected, "{}", name(number));
    });
    crowd.clients.into_iter().for_each(Client::disconnect);
    eprintln!("{count} sessions are back after {:.1?}", began.elapsed());
}

/// Its data is there, and it goes on where it was.
#[test]
fn an_heir_that_is_killed_in_the_middle_of_an_inheritance_goes_on_with_it() {
    let count = many(1_200, 10_000);
    for round in 0..rounds(1, 4) {
        let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
        let on = bequeath(&cluster, count);
        cluster.node(N3).kill();
        cluster.node(N3).wipe();
        let entered = || cluster.node(N1).metric("holdfast_sessions_inherited_total", &[]).unwrap_or(0.0);
        let until = Instant::now() + HEALED;
        while entered() < 1.0 {
            assert!(Instant::now() < until, "nothing is inherited");
        }
        // Some of it is on disk.
        pass(Duration::from_millis(u64::from(round) * 20));
        eprintln!("killed when it had entered {} sessions", entered());
        cluster.node(N1).kill();
        cluster.node(N1).launch();
        publish(&on, WAITING..2 * WAITING);
        all_are_there(&on, (count, 2 * WAITING), &[N1, N2], true);
    }
}

/// The third has no majority meanwhile.
#[test]
fn home_and_heir_are_killed_and_the_heir_comes_back_alone() {
    let count = many(100, 1_000);
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = bequeath(&cluster, count);
    cluster.kill([N3, N1]);
    pass(Duration::from_secs(4));
    cluster.node(N1).launch();
    all_are_there(&on, (count, WAITING), &[N1, N2], false);
    // The home finds nothing more that is its own, and the sessions are where they were.
    cluster.start([N3]);
    publish(&on, 0..WAITING);
    all_are_there(&on, (count, WAITING), &[N2, N3, N1], false);
}

/// What the log says of the past is not done again when all of it is applied anew.
#[test]
fn all_are_killed_when_sessions_have_passed_and_are_started_together() {
    let count = many(100, 1_000);
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = bequeath(&cluster, count);
    // The sessions pass to the heirs, and come back to another life of their home.
    for _ in 0..2 {
        cluster.node(N3).kill();
        all_are_there(&on, (count, WAITING), &[N1, N2], false);
        let positions: Vec<usize> = cluster.all().map(|node| cluster.node(node).log().len()).collect();
        cluster.start([N3]);
        for node in [N1, N2] {
            let found =
                cluster.node(node).log().wait(positions[node], 3 * HEALED, |line| line.contains("are complete"));
            assert!(found.is_some(), "node {node} has not filled its heirs");
        }
        let crowd = Crowd::gather(&cluster, count, HEALED, |number| (N3, on.kept(&name(number)).keep_alive(0)));
        assert_eq!(crowd.present, count, "sessions that move back");
        crowd.clients.into_iter().for_each(Client::disconnect);
        publish(&on, 0..WAITING);
    }
    cluster.kill(cluster.all());
    cluster.all().for_each(|node| cluster.node(node).launch());
    cluster.whole_within(HEALED);
    all_are_there(&on, (count, WAITING), &[N1, N2, N3], false);
}
