//! Mixed load, and SIGKILL at any moment, again and again (field case 47).

use std::time::Duration;

use holdfast_cluster_tests::checker::Checker;
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::history::{Event, History};
use holdfast_cluster_tests::load::{Cast, Round};
use holdfast_cluster_tests::process::Setup;

use holdfast_cluster_tests::scene::SMALL_SEGMENTS;

/// A promise is judged every so many rounds: between them, what is resent is cut off as well.
const SETTLE_EVERY: usize = 5;

#[test]
fn field_case_47_nothing_acknowledged_is_lost_in_fifty_kills() {
    let mut dice = Dice::new(seed("kill_rounds"));
    let installation = Setup::new().section(SMALL_SEGMENTS).install();
    let (history, mut checker, mut cast) = (History::default(), Checker::default(), Cast::mixed(&mut dice));
    let mut broker = installation.start();
    for number in 1..=50 {
        let round = Round::of_load(broker.listener("tcp"), &history);
        let time = Duration::from_millis(20 + dice.below(380));
        cast.play(&round, || {
            // The moment of the kill; nothing depends on what has happened by then.
            std::thread::sleep(time);
            assert!(broker.is_running(), "the broker has ended by itself");
            broker.kill();
        });
        history.record(Event::Killed);
        broker = installation.start();
        if number % SETTLE_EVERY == 0 {
            cast.settle(broker.listener("tcp"), &history, &mut checker);
        }
    }
    eprintln!("{:?} messages published and received", checker.counts());
}

/// The same load and the same judge where nothing is killed and only connections break.
#[test]
fn nothing_acknowledged_is_lost_when_connections_break() {
    let mut dice = Dice::new(seed("break_rounds"));
    let broker = Setup::new().start().expect("these tests start their own broker");
    let (history, mut checker, mut cast) = (History::default(), Checker::default(), Cast::mixed(&mut dice));
    for _ in 0..10 {
        let round = Round::of_load(broker.listener("tcp"), &history);
        let time = Duration::from_millis(20 + dice.below(380));
        cast.play(&round, || {
            std::thread::sleep(time);
            round.cut();
        });
        assert!(broker.is_running(), "the broker has ended by itself");
        cast.settle(broker.listener("tcp"), &history, &mut checker);
    }
    eprintln!("{:?} messages published and received", checker.counts());
}
