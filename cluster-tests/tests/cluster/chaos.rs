//! Mixed load on all nodes, whose clients change nodes from round to round, and one fault after another that is shorter than a lease: nothing is lost,
//! doubled, out of order, or brought back.
//!
//! Sessions have two copies. With one, a node that is killed does not know which of the messages that were under way it had sent to the others, or had from them: those would come twice, at
//! QoS 2 too.

use std::time::Duration;

use holdfast_cluster_tests::checker::Checker;
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::history::{Event, History};
use holdfast_cluster_tests::load::{Cast, Round};
use holdfast_cluster_tests::scene::pass;

/// What happens to a cluster, and is over at the end of the round.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Nothing,
    /// SIGKILL; the node is started again when the round is over.
    Kill(usize),
    /// SIGTERM when the round is over, for its sessions are away from then on.
    Stop(usize),
    Freeze(usize),
    /// Between two nodes.
    Cut(usize, usize),
    /// Of all connections between two nodes, several times.
    Resets(usize, usize),
    Slow(usize, usize),
}

impl Harm {
    fn any(dice: &mut Dice, nodes: usize) -> Self {
        let one = usize::try_from(dice.below(nodes as u64)).unwrap_or(0);
        let other = (one + 1 + usize::from(dice.once_in(2))) % nodes;
        let all = [
            Self::Nothing,
            Self::Kill(one),
            Self::Kill(one),
            Self::Stop(one),
            Self::Freeze(one),
            Self::Cut(one, other),
            Self::Resets(one, other),
            Self::Slow(one, other),
        ];
        *dice.pick(&all)
    }

    /// Does it for a while, with load.
    fn happen(self, cluster: &Cluster, time: Duration) {
        match self {
            Self::Nothing | Self::Stop(_) => pass(time),
            Self::Kill(node) => {
                cluster.node(node).kill();
                pass(time / 2);
            }
            Self::Freeze(node) => {
                let wound = cluster.freeze(node);
                pass(time);
                wound.heal();
            }
            Self::Cut(one, other) => {
                let wound = cluster.hurt_between(one, other, Fault::cut());
                pass(time);
                wound.heal();
            }
            Self::Resets(one, other) => {
                for _ in 0..5 {
                    cluster.way(one, other).reset();
                    cluster.way(other, one).reset();
                    pass(time / 5);
                }
            }
            Self::Slow(one, other) => {
                let wound = cluster.hurt_between(one, other, Fault::delay(Duration::from_millis(30)));
                pass(time);
                wound.heal();
            }
        }
    }
}

fn play(rounds: u32, settle_every: u32, name: &str) {
    let mut dice = Dice::new(seed(name));
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    let addresses: Vec<_> = cluster.all().map(|node| cluster.node(node).address()).collect();
    let (history, mut checker, mut cast) = (History::default(), Checker::default(), Cast::mixed(&mut dice));
    for number in 1..=rounds {
        let turn = usize::try_from(dice.below(3)).unwrap_or(0);
        let of_nodes: Vec<_> =
            addresses.iter().map(|address| Round::of_load(*address, &history).in_cluster()).collect();
        let (harm, before) = (Harm::any(&mut dice, 3), Duration::from_millis(50 + dice.below(500)));
        eprintln!("{name}: round {number}, {harm:?} after {before:?}");
        cast.play_on(&of_nodes, turn, || {
            pass(before);
            harm.happen(&cluster, Duration::from_millis(1_000));
            of_nodes.iter().for_each(Round::cut);
        });
        if let Harm::Stop(node) = harm {
            // Wills that are still on their way would come to a node whose sessions are away.
            cast.settle_on(&addresses, turn, &history, &mut checker);
            assert!(cluster.node(node).stop(Duration::from_secs(20)).success());
        }
        history.record(Event::Killed);
        let away: Vec<_> = cluster.all().filter(|node| !cluster.node(*node).is_running()).collect();
        cluster.start(away);
        cluster.whole_within(crate::HEALED);
        if number % settle_every == 0 {
            cast.settle_on(&addresses, turn, &history, &mut checker);
        }
        eprintln!("{name}: round {number}, {harm:?}: {:?} messages published and received", checker.counts());
    }
    crate::matrix::passes(&on, &[0, 1, 2], "end");
}

#[test]
fn short_faults_under_mixed_load_break_no_promise() {
    play(rounds(8, 100), 2, "chaos");
}
