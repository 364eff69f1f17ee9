//! Cases 1, 2 and 9 where sessions have copies: who comes back finds everything, whatever has become of its node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::estate::Counter;
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::{is_full, rounds, secs};
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3, try_connect};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::scene::{numbers, pass, publish_numbers, texts};
use holdfast_cluster_tests::wire::{Ack, Connect, Message, Packet, Version, first};

use crate::HEALED;

fn start() -> Cluster {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    cluster.copied_within(&[0, 1, 2], HEALED);
    cluster
}

#[test]
fn field_case_01_a_durable_subscriber_fails_over_to_another_node() {
    for (qos, destroyed) in [(2, false), (1, true), (2, true)] {
        let cluster = start();
        let on = ClusterStage::new(&cluster);
        let (mut subscriber, _) = on.connect(N2, &on.kept("s"));
        assert_eq!(subscriber.subscribe(on.topic("t/1"), qos), qos);
        let mut publisher = on.v5(N1, "p");
        publisher.publish(on.topic("t/1"), "control", 1);
        assert_eq!(subscriber.take().text(), "control");
        subscriber.disconnect();
        publish_numbers(&mut publisher, &on.topic("t/1"), 1..11, 1);
        cluster.node(N2).kill();
        if destroyed {
            cluster.node(N2).wipe();
        }
        publish_numbers(&mut publisher, &on.topic("t/1"), 11..21, 1);
        pass(secs(0, 10));
        let (mut subscriber, ack) = on.connect_within(N3, &on.kept("s"), HEALED);
        assert!(ack.session_present);
        let got: Vec<Message> = (1..21).map(|_| subscriber.take()).collect();
        assert_eq!(texts(&got), numbers(1..21));
        subscriber.expect_quiet();
    }
}

/// A subscriber that goes from node to node with its part of the session.
struct Follower<'c> {
    on: &'c ClusterStage<'c>,
    hello: Connect,
    qos: u8,
    client: Client,
    /// Identifiers of QoS 2 between PUBLISH and PUBREL.
    held: BTreeSet<u16>,
    got: Vec<u32>,
    /// All that came, for who asks why.
    trace: Vec<String>,
}

impl<'c> Follower<'c> {
    fn new(on: &'c ClusterStage<'c>, node: usize, name: &str, qos: u8) -> Self {
        let hello = on.kept(name).keep_alive(0);
        let (mut client, _) = on.connect(node, &hello);
        assert_eq!(client.subscribe(on.topic("estate/#"), qos), qos);
        Self { on, hello, qos, client, held: BTreeSet::new(), got: Vec::new(), trace: Vec::new() }
    }

    /// Takes what comes, and goes to another node when its own dies, until the last has come.
    fn follow(mut self, to: usize, last: u32) -> Self {
        let deadline = Instant::now() + 2 * HEALED;
        while self.got.last() != Some(&last) {
            assert!(Instant::now() < deadline, "{last} does not come behind {:?}", self.got.last());
            match self.client.event(Instant::now() + Duration::from_millis(100)) {
                None => {}
                Some(Event::Packet(packet)) => self.take(packet),
                Some(Event::Closed) => {
                    let (client, ack) = self.on.connect_within(to, &self.hello, HEALED);
                    assert!(ack.session_present);
                    self.client = client;
                    self.trace.push("moved".to_owned());
                }
            }
        }
        self.client.fence().into_iter().for_each(|packet| self.take(packet));
        self
    }

    fn around_the_move(&self) -> &[String] {
        let moved = self.trace.iter().position(|what| what == "moved").unwrap_or_default();
        &self.trace[moved.saturating_sub(40)..self.trace.len().min(moved + 40)]
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Publish(message) => {
                assert_eq!(message.qos, self.qos);
                let text = message.text();
                let number = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
                self.trace.push(format!(
                    "{number} as {}{}",
                    message.packet_id,
                    if message.dup { " again" } else { "" }
                ));
                let answer = if message.qos == 2 { first::PUBREC } else { first::PUBACK };
                self.client.send_unless_closed(&Ack::new(answer, message.packet_id).bytes());
                if message.qos == 1 || self.held.insert(message.packet_id) {
                    self.got.push(number);
                }
            }
            Packet::PubRel { packet_id, .. } => {
                self.held.remove(&packet_id);
                self.trace.push(format!("release of {packet_id}"));
                let answer = Ack::new(first::PUBCOMP, packet_id);
                self.client.send_unless_closed(&answer.bytes());
            }
            other => panic!("{other:?} to a subscriber"),
        }
    }
}

/// What is wrong with what came of `count` numbers, all of which were acknowledged.
fn faults(got: &[u32], count: u32, qos: u8) -> Vec<String> {
    let mut times: BTreeMap<u32, u32> = BTreeMap::new();
    let mut faults = Vec::new();
    for number in got {
        let latest = times.last_key_value().map(|(latest, _)| *latest);
        let time = times.entry(*number).or_default();
        *time += 1;
        faults.extend((*time > 1 && qos == 2).then(|| format!("{number} came again")));
        faults.extend((*time == 1 && latest > Some(*number)).then(|| format!("{number} came behind {latest:?}")));
    }
    faults.extend((0..count).filter(|number| !times.contains_key(number)).map(|number| format!("{number} is lost")));
    faults
}

#[test]
fn field_case_02_a_node_dies_under_a_running_publisher_and_subscriber() {
    die_under(1);
}

#[test]
fn field_case_02_a_node_dies_under_them_and_messages_of_qos_2_come_once() {
    die_under(2);
}

fn die_under(qos: u8) {
    let mut dice = Dice::new(seed("field_case_02"));
    let count = if is_full() { 1_000 } else { 300 };
    for round in 0..rounds(1, 20) {
        let cluster = start();
        let on = ClusterStage::new(&cluster);
        let followers = [N2, N2, N3].map(|to| (Follower::new(&on, N1, &format!("s{}", dice.throw()), qos), to));
        let counter = Counter::new(&on, N1, "p", qos);
        let death = Death {
            number: 10 + u32::try_from(dice.below(u64::from(count) - 100)).expect("it is below"),
            later: Duration::from_micros(dice.below(20_000)),
            slow: Duration::from_millis(*dice.pick(&[0, 5, 20, 40])),
            again: Duration::from_millis(dice.below(200)),
        };
        eprintln!("round {round}, QoS {qos}: {death:?}");
        let followers = std::thread::scope(|scope| {
            let followers = followers.map(|(follower, to)| scope.spawn(move || follower.follow(to, count - 1)));
            count_over_a_death(counter, count, &death);
            followers.map(|follower| follower.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        for follower in followers {
            let faults = faults(&follower.got, count, qos);
            let (some, trace) = (&faults[..faults.len().min(20)], follower.around_the_move());
            assert!(faults.is_empty(), "{} faults: {some:?}; it saw {trace:?}", faults.len());
        }
    }
}

/// How N1 dies.
#[derive(Debug)]
struct Death {
    /// So long behind this number.
    number: u32,
    later: Duration,
    /// From then on everything between the other two takes so much longer.
    slow: Duration,
    /// The publisher sends again what it has had no answer to so long after it was let in: when sessions are still on their way, perhaps.
    again: Duration,
}

/// Counts, ten unacknowledged at the most; N1, where it is, is destroyed, and it goes on at N2.
fn count_over_a_death(mut counter: Counter, count: u32, death: &Death) {
    let cluster = counter.cluster();
    let mut wound = None;
    for number in 0..count {
        counter.settle_to(9, HEALED);
        counter.send(1);
        if number == death.number {
            pass(death.later);
            cluster.node(N1).kill();
            cluster.node(N1).wipe();
            wound = Some(cluster.hurt_between(N2, N3, Fault::delay(death.slow)));
            counter.come_to(N2, HEALED);
            pass(death.again);
            counter.send_again();
        }
        counter.hear(Duration::from_millis(if is_full() { 10 } else { 3 }));
    }
    counter.settle(HEALED);
    drop(wound);
}

/// A publisher is there before the subscriber, from the first connection that any node accepts.
#[test]
fn field_case_09_what_is_acknowledged_before_its_client_returns_arrives() {
    for killed in [vec![N2], vec![N1, N2, N3]] {
        let cluster = start();
        let on = ClusterStage::new(&cluster);
        let (mut subscriber, _) = on.connect(N2, &on.kept("s"));
        assert_eq!(subscriber.subscribe(on.topic("q/#"), 1), 1);
        subscriber.disconnect();
        cluster.kill(killed.clone());
        killed.iter().for_each(|node| cluster.node(*node).launch());
        let mut publisher = first_let_in(&on);
        publish_numbers(&mut publisher, &on.topic("q/1"), 1..101, 1);
        let (mut subscriber, ack) = on.connect_within(N3, &on.kept("s"), HEALED);
        assert!(ack.session_present);
        let got: Vec<Message> = (1..101).map(|_| subscriber.take()).collect();
        assert_eq!(texts(&got), numbers(1..101));
        subscriber.expect_quiet();
    }
}

fn first_let_in(on: &ClusterStage) -> Client {
    let over = AtomicBool::new(false);
    let hello = |node: usize| on.hello(Version::V5, &format!("p{node}")).keep_alive(0);
    let found = std::thread::scope(|scope| {
        let over = &over;
        let threads: Vec<_> = on
            .cluster
            .all()
            .map(|node| {
                scope.spawn(move || {
                    let until = Instant::now() + HEALED;
                    while Instant::now() < until && !over.load(Ordering::Relaxed) {
                        if let Ok((client, _)) = try_connect(on.cluster.node(node).address(), &hello(node), HEALED) {
                            return (!over.swap(true, Ordering::Relaxed)).then_some(client);
                        }
                        pass(Duration::from_millis(10));
                    }
                    None
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("no surprise")).next()
    });
    found.expect("a node lets it in")
}
