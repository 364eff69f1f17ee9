//! What a node takes up when it starts again: sessions that it had been left, or was about to be, when it was killed.

use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::rounds::{many, rounds};
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::Connect;

use crate::HEALED;

/// Topics that sessions are spread over.
const TOPICS: usize = 8;
/// Messages that wait in each.
const WAITING: usize = 4;

/// Three nodes that have copies of each other's sessions.
fn three() -> Cluster {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    cluster.all().for_each(|node| wait_for_line(&cluster, node, 0, "are complete"));
    cluster
}

#[track_caller]
fn wait_for_line(cluster: &Cluster, node: usize, from: usize, text: &str) {
    let found = cluster.node(node).log().wait(from, HEALED, |line| line.contains(text));
    assert!(found.is_some(), "node {node} has not said: {text}");
}

/// Sessions of clients that are away, whose home is the third node in the beginning.
struct Settlers<'s> {
    on: &'s ClusterStage<'s>,
    name: &'static str,
    count: usize,
}

impl<'s> Settlers<'s> {
    fn settle(on: &'s ClusterStage<'s>, name: &'static str, count: usize) -> Self {
        let settlers = Self { on, name, count };
        let mut crowd = settlers.gather(&[N3]);
        crowd.each(|number, client| assert_eq!(client.subscribe(settlers.topic(number), 1), 1));
        crowd.clients.into_iter().for_each(Client::disconnect);
        settlers.publish(0..WAITING);
        settlers
    }

    fn connect(&self, number: usize) -> Connect {
        self.on.kept(&format!("{}{number}", self.name)).keep_alive(0)
    }

    fn topic(&self, number: usize) -> String {
        self.on.topic(&format!("{}/{}", self.name, number % TOPICS))
    }

    fn gather(&self, nodes: &[usize]) -> Crowd {
        let plan = |number: usize| (nodes[number % nodes.len()], self.connect(number));
        Crowd::gather(self.on.cluster, self.count, HEALED, plan)
    }

    fn publish(&self, texts: Range<usize>) {
        self.publish_on(N2, texts);
    }

    fn publish_on(&self, node: usize, texts: Range<usize>) {
        let mut publisher = self.on.v5(node, &format!("{}publisher", self.name));
        for text in texts {
            (0..TOPICS).for_each(|number| _ = publisher.publish(self.topic(number), text.to_string(), 1));
        }
    }

    /// All connect to these nodes, and leave.
    #[track_caller]
    fn visit(&self, nodes: &[usize]) {
        let crowd = self.gather(nodes);
        assert_eq!(crowd.present, self.count, "sessions that are there");
        crowd.clients.into_iter().for_each(Client::disconnect);
    }

    /// Every session is there, on whichever of these nodes its client asks for it, with its messages in their order; each once, unless it `may_repeat`.
    #[track_caller]
    fn are_there(&self, messages: usize, nodes: &[usize], may_repeat: bool) {
        let began = Instant::now();
        let mut crowd = self.gather(nodes);
        assert_eq!(crowd.present, self.count, "sessions that are there");
        let expected: Vec<String> = (0..messages).map(|text| text.to_string()).collect();
        let mut publisher = self.on.v5(nodes[0], &format!("{}end", self.name));
        (0..TOPICS).for_each(|number| _ = publisher.publish(self.topic(number), "end", 1));
        crowd.each(|number, client| {
            let mut got: Vec<String> = client.take_until("end").iter().map(|message| message.text()).collect();
            if may_repeat {
                let mut seen = HashSet::new();
                got.retain(|text| seen.insert(text.clone()));
            }
            assert_eq!(got, expected, "{}{number}", self.name);
        });
        crowd.clients.into_iter().for_each(Client::disconnect);
        eprintln!("{} sessions are back after {:.1?}", self.count, began.elapsed());
    }
}

fn inherited(cluster: &Cluster, node: usize) -> f64 {
    cluster.node(node).metric("holdfast_sessions_inherited_total", &[]).unwrap_or(0.0)
}

/// Until the node has just begun to enter what it inherits.
#[track_caller]
fn wait_until_it_inherits(cluster: &Cluster, node: usize, before: f64) {
    let until = Instant::now() + HEALED;
    while inherited(cluster, node) <= before {
        assert!(Instant::now() < until, "nothing is inherited");
    }
}

/// Its data is there, and it goes on where it was.
#[test]
fn an_heir_that_is_killed_in_the_middle_of_an_inheritance_goes_on_with_it() {
    for round in 0..rounds(1, 4) {
        let cluster = three();
        let on = ClusterStage::new(&cluster);
        let settlers = Settlers::settle(&on, "s", many(1_200, 10_000));
        cluster.node(N3).kill();
        cluster.node(N3).wipe();
        wait_until_it_inherits(&cluster, N1, 0.0);
        // Some of it is on disk.
        pass(Duration::from_millis(u64::from(round) * 20));
        eprintln!("killed when it had entered {} sessions", inherited(&cluster, N1));
        cluster.node(N1).kill();
        cluster.node(N1).launch();
        settlers.publish(WAITING..2 * WAITING);
        settlers.are_there(2 * WAITING, &[N1, N2], true);
    }
}

/// The log that the heir applies anew tells of an earlier death of the home, whose sessions it had then: that says nothing of the copies that it has now.
#[test]
fn home_and_heir_are_killed_and_the_heir_comes_back_alone() {
    let cluster = three();
    let on = ClusterStage::new(&cluster);
    let old = Settlers::settle(&on, "old", many(50, 500));
    let positions: Vec<usize> = cluster.all().map(|node| cluster.node(node).log().len()).collect();
    cluster.node(N3).kill();
    [N1, N2].into_iter().for_each(|node| wait_for_line(&cluster, node, positions[node], "is entered"));
    cluster.start([N3]);
    wait_for_line(&cluster, N3, 0, "are complete");
    let new = Settlers::settle(&on, "new", many(50, 500));
    // Two die, and the third has no majority meanwhile and begins anew: what the home has accepted from it may be at the home alone. Of what it takes from its own
    // clients there are copies when it answers, and of all before.
    new.publish_on(N3, WAITING..WAITING + 1);
    cluster.kill([N3, N1]);
    cluster.node(N3).wipe();
    pass(Duration::from_secs(4));
    cluster.node(N1).launch();
    new.are_there(WAITING + 1, &[N1, N2], false);
    old.are_there(WAITING, &[N2, N1], false);
}

/// The sessions have passed before, and come back to another life of their home.
#[test]
fn all_are_killed_in_the_middle_of_an_inheritance_and_started_together() {
    let cluster = three();
    let on = ClusterStage::new(&cluster);
    let settlers = Settlers::settle(&on, "s", many(200, 2_000));
    cluster.node(N3).kill();
    settlers.visit(&[N1, N2]);
    cluster.start([N3]);
    wait_for_line(&cluster, N3, 0, "are complete");
    settlers.visit(&[N3]);
    let before = inherited(&cluster, N1);
    cluster.node(N3).kill();
    wait_until_it_inherits(&cluster, N1, before);
    cluster.kill([N1, N2]);
    cluster.all().for_each(|node| cluster.node(node).launch());
    cluster.whole_within(HEALED);
    settlers.are_there(WAITING, &[N1, N2, N3], false);
}
