//! A session that moves from node to node while all of them publish to it: nothing lost, nothing doubled at QoS 2, order kept.

use std::time::Duration;

use holdfast_cluster_tests::checker::Checker;
use holdfast_cluster_tests::cluster::hopper::{Hopper, Leave};
use holdfast_cluster_tests::cluster::rounds::{many, rounds};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::history::History;
use holdfast_cluster_tests::load::{Actor, CutOnPanic, Publisher, Round};
use holdfast_cluster_tests::wire::Version;

/// Two for each node: one with QoS 1, one with QoS 2.
fn publishers(on: &ClusterStage, per_sec: u64, dice: &mut Dice) -> Vec<Vec<Publisher>> {
    let nodes = on.cluster.len() as u64;
    let pause = Duration::from_micros(1_000_000 * 2 * nodes / per_sec);
    let one = |node: usize, qos: u8, dice: &mut Dice| {
        let name = on.client_id(&format!("p{node}q{qos}"));
        let topics = [on.topic(&format!("load/{node}/{qos}/a")), on.topic(&format!("load/{node}/{qos}/b"))];
        Publisher::new(&name, Version::V5, qos, &topics, dice.fork(&name)).kept().paced(pause)
    };
    on.cluster.all().map(|node| vec![one(node, 1, dice), one(node, 2, dice)]).collect()
}

fn play<'r>(publishers: &mut [Vec<Publisher>], rounds: &'r [Round<'r>], meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        for (of_node, round) in publishers.iter_mut().zip(rounds) {
            for publisher in of_node {
                scope.spawn(move || publisher.play(round));
            }
        }
        let _cut = CutOnPanic(rounds);
        meanwhile();
        rounds.iter().for_each(Round::cut);
    });
}

/// Moves a session so often among publishers on all nodes, which publish so many messages in a second.
fn hop(on: &ClusterStage, hops: u32, stay: Duration, per_sec: u64, dice: &mut Dice) {
    let (history, mut checker) = (History::default(), Checker::default());
    let mut publishers = publishers(on, per_sec, dice);
    let mut hopper = Hopper::new(&on.client_id("hopper"), &[(on.topic("load/#"), 2)], &history);
    let address = |node: usize| on.cluster.node(node).address();
    let mut node = 0;
    hopper.hop(address(node), Leave::Not, crate::NOTICED);
    let rounds: Vec<_> = on.cluster.all().map(|node| Round::of_load(address(node), &history)).collect();
    play(&mut publishers, &rounds, || {
        for _ in 0..hops {
            hopper.stay(stay);
            node = (node + 1 + usize::from(dice.once_in(2))) % on.cluster.len();
            let leave = *dice.pick(&[Leave::Not, Leave::Not, Leave::Disconnect, Leave::Reset]);
            hopper.hop(address(node), leave, crate::NOTICED);
        }
    });
    std::thread::scope(|scope| {
        for (node, of_node) in publishers.iter_mut().enumerate() {
            let (history, address) = (&history, address(node));
            scope.spawn(move || {
                of_node.iter_mut().for_each(|publisher| publisher.play(&Round::finishing(address, history)))
            });
        }
    });
    let mut settled = || {
        checker.read(&history);
        !checker.is_owed()
    };
    let complete = {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        hopper.stay_until(Duration::from_secs(30), || settled() || std::time::Instant::now() > deadline);
        settled()
    };
    checker.settle();
    checker.assert_kept(&history);
    assert!(complete);
    eprintln!("{hops} hops: {}; {:?} messages published and received", hopper.moves, checker.counts());
}

/// A move takes its time for each message that waits, unoptimized about a quarter of a millisecond. So at 1,000 messages a second, and stays of 100 ms, the queue of an unoptimized program only
/// grows; when it is full, the oldest go, and are counted.
#[test]
fn a_session_that_hops_between_nodes_under_load_loses_nothing() {
    let mut dice = Dice::new(seed("hopping"));
    let cluster = Cluster::three();
    hop(&ClusterStage::new(&cluster), rounds(40, 200), Duration::from_millis(100), many(250, 1_000) as u64, &mut dice);
}

/// It takes nothing meanwhile: what is published in all that time must have a place in its queue.
#[test]
fn a_session_that_hops_as_fast_as_it_can_loses_nothing() {
    let mut dice = Dice::new(seed("hopping_fast"));
    hop(&crate::shared(), rounds(20, 200), Duration::ZERO, 200, &mut dice);
}
