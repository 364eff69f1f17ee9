//! The moments in which a node may die with something that only it has, or only it knows: each is made to last, and the node is destroyed within it.
//!
//! What lasts is the way of answers, or of copies, over the relays. Sessions are away, and get everything in the end, wherever they come
//! back: in order, QoS 1 at least once, QoS 2 once.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::estate::{Counter, Estate};
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, READY};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::scene::pass;

use crate::copies::{LONG, start_copied};
use crate::{HEALED, STALL_OF_LEADER};

/// So many sessions have copies on both other nodes.
const SESSIONS: usize = 8;

/// Of each counter, while the window is open: few enough to be under way at once.
const MESSAGES: u32 = 20;

/// A node that follows, or that leads, and the other two.
fn choose(cluster: &Cluster, dice: &mut Dice) -> [usize; 3] {
    let leader = cluster.wait_for_leader();
    let home = if dice.once_in(3) { leader } else { (leader + 1 + usize::from(dice.once_in(2))) % 3 };
    [home, (home + 1) % 3, (home + 2) % 3]
}

fn destroy(cluster: &Cluster, node: usize) {
    cluster.node(node).kill();
    cluster.node(node).wipe();
}

fn millis(dice: &mut Dice, below: u64) -> Duration {
    Duration::from_millis(dice.below(below))
}

/// When a node dies that gets answers after this delay: before the first, or among those to what was asked for behind it.
fn within(dice: &mut Dice, delay: Duration) -> Duration {
    let below = Duration::from_millis(300).min(2 * delay);
    millis(dice, u64::try_from(below.as_millis()).expect("it is short"))
}

/// Answers of heirs, or of a home, take this long.
fn some_delay(dice: &mut Dice) -> Duration {
    *dice.pick(&[LONG, LONG, Duration::from_millis(150), Duration::from_millis(30)])
}

/// Two counters send at a node, and wait for answers that come back over these ways: these take long, and the `home` is destroyed among them.
fn destroy_before_answers<'c>(
    on: &'c ClusterStage<'c>,
    dice: &mut Dice,
    (node, home): (usize, usize),
    ways: &[(usize, usize)],
) -> [Counter<'c>; 2] {
    let mut counters = [("one", 1), ("two", 2)].map(|(name, qos)| Counter::new(on, node, name, qos));
    counters.iter_mut().for_each(|counter| counter.send_and_settle(MESSAGES, HEALED));
    let delay = some_delay(dice);
    let wound = on.cluster.hurt(ways, Fault::delay(delay).back());
    counters.iter_mut().for_each(|counter| counter.send(MESSAGES));
    let answered = counters.each_mut().map(|counter| counter.hear(within(dice, delay)));
    eprintln!("answered of {MESSAGES} with a delay of {delay:?}: {answered:?}");
    assert!(delay < LONG || answered == [0, 0], "without a word over {ways:?}");
    destroy(on.cluster, home);
    wound.heal();
    counters
}

#[test]
fn a_home_dies_between_its_commit_and_its_answer_to_a_publisher_of_its_own() {
    let mut dice = Dice::new(seed("own publisher"));
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, a, b] = choose(&cluster, &mut dice);
        let on = ClusterStage::new(&cluster);
        let estate = Estate::leave(&on, home, SESSIONS, HEALED);
        // The word of its heirs.
        let [mut one, mut two] = destroy_before_answers(&on, &mut dice, (home, home), &[(home, a), (home, b)]);
        one.move_to(a, HEALED);
        two.move_to(b, HEALED);
        one.settle(HEALED);
        two.settle(HEALED);
        estate.judge(&[a, b], &mut [&mut one, &mut two], HEALED);
    }
}

#[test]
fn a_home_dies_between_its_commit_and_its_answer_to_another_node() {
    let mut dice = Dice::new(seed("publisher elsewhere"));
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, a, b] = choose(&cluster, &mut dice);
        let on = ClusterStage::new(&cluster);
        let estate = Estate::leave(&on, home, SESSIONS, HEALED);
        // The word of the home.
        let [mut one, mut two] = destroy_before_answers(&on, &mut dice, (a, home), &[(a, home)]);
        one.settle(STALL_OF_LEADER);
        two.settle(STALL_OF_LEADER);
        estate.judge(&[a, b], &mut [&mut one, &mut two], HEALED);
    }
}

/// Until it says that its heirs have not accepted all that it has, which it counts once in a second.
#[track_caller]
fn lags_within(cluster: &Cluster, home: usize, patience: Duration) {
    let deadline = Instant::now() + patience;
    while cluster.node(home).metric("holdfast_copy_lag_records", &[]).is_none_or(|records| records == 0.0) {
        assert!(Instant::now() < deadline, "its heirs have everything");
        pass(Duration::from_millis(20));
    }
}

/// What was acknowledged is on the disk of the home, and in the windows of the two that die: the publisher's node, and then the home.
#[test]
fn an_origin_dies_after_its_answer_and_before_its_messages_have_a_copy() {
    let mut dice = Dice::new(seed("origin"));
    for round in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [origin, home, b] = choose(&cluster, &mut dice);
        let on = ClusterStage::new(&cluster);
        let estate = Estate::leave(&on, home, SESSIONS, HEALED);
        let (mut one, mut two) = (Counter::new(&on, origin, "one", 1), Counter::new(&on, origin, "two", 2));
        let fault =
            if round % 2 == 0 { Fault::delay(LONG).back() } else { Fault::delay(Duration::from_millis(400)).there() };
        let wound = cluster.hurt(&[(home, origin), (home, b)], fault);
        two.send(MESSAGES);
        one.send(MESSAGES);
        one.settle(HEALED);
        two.hear(millis(&mut dice, 100));
        if fault.delay == LONG {
            lags_within(&cluster, home, LONG);
        }
        destroy(&cluster, origin);
        wound.heal();
        one.move_to(b, HEALED);
        two.move_to(b, HEALED);
        two.settle(HEALED);
        cluster.copied_within(&[home, b], HEALED);
        cluster.start([origin]);
        cluster.copied_within(&[0, 1, 2], HEALED);
        destroy(&cluster, home);
        estate.judge(&[origin, b], &mut [&mut one, &mut two], HEALED);
    }
}

/// A cluster in which a new node is being filled with the copies of a home that has much, slowly.
struct Filling<'c> {
    on: &'c ClusterStage<'c>,
    estate: Estate<'c>,
    counters: [Counter<'c>; 2],
    home: usize,
    heir: usize,
    new: usize,
}

/// Bytes of a message, and in a second to the new node.
const SIZE: usize = 4_000;
const RATE: u32 = 400_000;

impl<'c> Filling<'c> {
    fn begin(on: &'c ClusterStage<'c>, dice: &mut Dice) -> Self {
        let cluster = on.cluster;
        let [new, home, heir] = choose(cluster, dice);
        destroy(cluster, new);
        let estate = Estate::leave(on, home, SESSIONS, HEALED);
        cluster.copied_within(&[home, heir], HEALED);
        let counters = [(home, "one", 1), (heir, "two", 2)];
        let mut counters = counters.map(|(node, name, qos)| Counter::new(on, node, name, qos).size(SIZE));
        counters.iter_mut().for_each(|counter| counter.send_and_settle(150, HEALED));
        Self { on, estate, counters, home, heir, new }
    }

    /// Starts the new node, and returns in the middle of its fill.
    fn join(&mut self, dice: &mut Dice) {
        let way = self.on.cluster.way(self.home, self.new);
        way.set(Fault::throttle(RATE).there());
        self.on.cluster.start([self.new]);
        self.on.cluster.agree_within([self.new, self.home, self.heir], READY);
        self.on.cluster.filling_within(self.home, self.new, HEALED);
        let before = way.passed();
        let enough = before + dice.below(u64::from(RATE));
        while way.passed() < enough {
            self.counters.iter_mut().for_each(|counter| counter.send(1));
            self.counters.iter_mut().for_each(|counter| _ = counter.hear(Duration::from_millis(20)));
        }
        let passed = way.passed() - before;
        self.on.cluster.filling_within(self.home, self.new, Duration::ZERO);
        eprintln!("{passed} bytes of the fill have passed");
    }

    fn heal(&self) {
        self.on.cluster.way(self.home, self.new).set(Fault::default());
    }
}

#[test]
fn an_heir_dies_while_it_is_filled() {
    let mut dice = Dice::new(seed("heir"));
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let on = ClusterStage::new(&cluster);
        let mut filling = Filling::begin(&on, &mut dice);
        filling.join(&mut dice);
        let (new, home, heir) = (filling.new, filling.home, filling.heir);
        destroy(&cluster, new);
        filling.counters.iter_mut().for_each(|counter| counter.send(MESSAGES));
        filling.counters.iter_mut().for_each(|counter| counter.settle(HEALED));
        filling.heal();
        // Another one is filled to the end, and then it is the home's turn.
        cluster.start([new]);
        cluster.copied_within(&[0, 1, 2], HEALED);
        destroy(&cluster, home);
        let [one, two] = &mut filling.counters;
        one.move_to(heir, HEALED);
        filling.estate.judge(&[new, heir], &mut [one, two], HEALED);
    }
}

#[test]
fn a_home_dies_while_a_new_node_is_filled_and_the_old_heir_has_everything() {
    let mut dice = Dice::new(seed("join"));
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let on = ClusterStage::new(&cluster);
        let mut filling = Filling::begin(&on, &mut dice);
        filling.join(&mut dice);
        let (new, home, heir) = (filling.new, filling.home, filling.heir);
        destroy(&cluster, home);
        filling.heal();
        let [one, two] = &mut filling.counters;
        one.move_to(heir, HEALED);
        one.settle(HEALED);
        two.settle(HEALED);
        let homes: Vec<_> = filling.estate.homes(heir).into_iter().collect();
        assert_eq!(homes, [cluster.node(heir).name()], "who has half of it inherits nothing");
        filling.estate.judge(&[new, heir], &mut [one, two], HEALED);
    }
}

/// It has written down what its own publishers sent meanwhile, and its heirs have never seen it.
#[test]
fn a_home_that_was_cut_off_comes_back_with_what_its_heirs_never_saw() {
    let mut dice = Dice::new(seed("cut off"));
    for round in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, a, b] = choose(&cluster, &mut dice);
        let on = ClusterStage::new(&cluster);
        let estate = Estate::leave(&on, home, SESSIONS, HEALED);
        let names = [(home, "own1", 1), (home, "own2", 2), (b, "one", 1), (b, "two", 2)];
        let mut counters = names.map(|(node, name, qos)| Counter::new(&on, node, name, qos));
        counters.iter_mut().for_each(|counter| counter.send_and_settle(MESSAGES, HEALED));
        let fault = if round % 2 == 0 { Fault::swallow() } else { Fault::cut() };
        let wound = cluster.isolate(home, fault);
        counters.iter_mut().for_each(|counter| counter.send(MESSAGES));
        let [own1, own2, one, two] = &mut counters;
        // Until its clients are thrown out.
        let answered = [own1, own2].map(|own| own.hear(HEALED));
        assert_eq!(answered, [0, 0], "nobody else has it");
        one.settle(HEALED);
        two.settle(HEALED);
        wound.heal();
        cluster.whole_within(HEALED);
        counters[..2].iter_mut().for_each(|own| {
            own.give_up();
            own.move_to(home, HEALED);
        });
        let [own1, own2, one, two] = &mut counters;
        estate.judge(&[home, a, b], &mut [own1, own2, one, two], HEALED);
    }
}
