//! Mixed load, SIGKILL at any moment, and then only what was synced, or that and a random part of the rest, is on the disk.

use std::time::Duration;

use holdfast_cluster_tests::checker::Checker;
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::history::{Event, History};
use holdfast_cluster_tests::load::{Cast, Round};
use holdfast_cluster_tests::power_cut::{Loss, PowerCut, shim};
use holdfast_cluster_tests::process::{Broker, Installation, Setup};

use holdfast_cluster_tests::scene::SMALL_SEGMENTS;

/// How many power cuts, unless `HOLDFAST_POWER_ROUNDS` says otherwise.
const ROUNDS: usize = 200;

/// A promise is judged every so many rounds.
const SETTLE_EVERY: usize = 4;

/// The longest pause before and after a sync: those of an ordinary disk.
const PAUSE_US: u32 = 1_000;

/// A broker on a disk that can lose its power.
pub fn start_on(installation: &mut Installation) -> (Broker, PowerCut) {
    let disk = PowerCut::over(&installation.data_dir());
    for (name, value) in disk.environment(PAUSE_US) {
        installation.set_environment(name, value);
    }
    let broker = installation.start();
    assert!(disk.is_at_work(), "the shim is not in the process");
    (broker, disk)
}

/// What the power cut leaves becomes the data.
fn cut(installation: &Installation, disk: &PowerCut, loss: Loss) {
    let image = tempfile::tempdir().expect("a temporary folder");
    disk.image(loss, image.path());
    installation.replace_data(image.path());
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes() {
    if shim().is_none() {
        return;
    }
    let rounds =
        std::env::var("HOLDFAST_POWER_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number of rounds"));
    let mut dice = Dice::new(seed("power_loss"));
    let mut installation = Setup::new().section(SMALL_SEGMENTS).install();
    let (history, mut checker, mut cast) = (History::default(), Checker::default(), Cast::mixed(&mut dice));
    let (mut broker, mut disk) = start_on(&mut installation);
    for number in 1..=rounds {
        let round = Round::of_load(broker.listener("tcp"), &history);
        let time = Duration::from_millis(20 + dice.below(300));
        cast.play(&round, || {
            // The moment of the cut; nothing depends on what has happened by then.
            std::thread::sleep(time);
            assert!(broker.is_running(), "the broker has ended by itself");
            broker.kill();
        });
        history.record(Event::Killed);
        let loss = if dice.once_in(2) { Loss::All } else { Loss::Part(dice.fork("loss")) };
        cut(&installation, &disk, loss);
        (broker, disk) = start_on(&mut installation);
        if number % SETTLE_EVERY == 0 {
            cast.settle(broker.listener("tcp"), &history, &mut checker);
        }
    }
    cast.settle(broker.listener("tcp"), &history, &mut checker);
    eprintln!("{rounds} power cuts, {:?} messages published and received", checker.counts());
}
