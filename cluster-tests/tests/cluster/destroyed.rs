//! Any one node is destroyed for good while everybody publishes and is subscribed, a fresh one joins, and when it has its copies another one is destroyed: what was
//! acknowledged reaches every session that is kept, in order, QoS 2 once, Wills once.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::checker::Checker;
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::history::{Event, History};
use holdfast_cluster_tests::load::{Cast, Round};
use holdfast_cluster_tests::scene::pass;

use crate::HEALED;
use crate::copies::wait_for_copies;

/// A cluster of three and the load on it.
struct Scene<'c> {
    cluster: &'c Cluster,
    history: History,
    checker: Checker,
    cast: Cast,
    dice: Dice,
}

impl<'c> Scene<'c> {
    fn new(cluster: &'c Cluster, mut dice: Dice) -> Self {
        wait_for_copies(cluster, cluster.all());
        let cast = Cast::mixed(&mut dice);
        Self { cluster, history: History::default(), checker: Checker::default(), cast, dice }
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.dice.below(bound)).unwrap_or(0)
    }

    /// A node goes in the middle of it, with all that it had, and a fresh one comes.
    fn destroy_one(&mut self) {
        let (victim, turn) = (self.below(3), self.below(3));
        let (before, after) = (50 + self.below(800) as u64, 500 + self.below(4_000) as u64);
        eprintln!("node {victim} is destroyed after {before} ms, and the others go on for {after} ms");
        let Self { cluster, history, cast, .. } = self;
        let of_nodes: Vec<_> =
            cluster.all().map(|node| Round::of_load(cluster.node(node).address(), history).in_cluster()).collect();
        cast.play_on(&of_nodes, turn, || {
            pass(Duration::from_millis(before));
            cluster.node(victim).kill();
            cluster.node(victim).wipe();
            pass(Duration::from_millis(after));
            of_nodes.iter().for_each(Round::cut);
        });
        self.history.record(Event::Killed);
        let began = Instant::now();
        self.cluster.start([victim]);
        self.cluster.whole_within(HEALED);
        wait_for_copies(self.cluster, self.cluster.all());
        eprintln!("a fresh one has its copies after {:.1?}", began.elapsed());
    }

    fn settle(&mut self) {
        let turn = self.below(3);
        let addresses: Vec<_> = self.cluster.all().map(|node| self.cluster.node(node).address()).collect();
        self.cast.settle_on(&addresses, turn, &self.history, &mut self.checker);
        eprintln!("{:?} messages published and received", self.checker.counts());
    }
}

#[test]
fn two_nodes_are_lost_for_good_one_after_the_other_under_mixed_load() {
    let mut dice = Dice::new(seed("destroyed"));
    for run in 0..rounds(1, 100) {
        eprintln!("run {run}");
        let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
        let mut scene = Scene::new(&cluster, dice.fork(&run.to_string()));
        scene.destroy_one();
        scene.destroy_one();
        scene.settle();
    }
}
