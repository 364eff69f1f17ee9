//! QoS 2 while nodes are destroyed: whatever a client has sent comes to each subscriber once and in its order, at whatever moment its home is lost, or that of a
//! subscriber.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, rounds};
use holdfast_cluster_tests::dice::{self, Dice};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Ack, Packet, Publish, Version, first};

use crate::HEALED;
use crate::copies::{start_again, wait_for_copies};

/// PUBLISH packets that a publisher has under way.
const WINDOW: usize = 4;

/// A publisher that keeps to the rules: what is under way when its connection ends goes on with the next one, in its order [MQTT-4.6.0-1].
pub struct Publisher {
    pub name: String,
    topic: String,
    pub sent: usize,
    /// By packet identifier and number, and whether PUBREC has come.
    pub under_way: VecDeque<(u16, usize, bool)>,
}

impl Publisher {
    pub fn new(on: &ClusterStage<'_>, name: &str) -> Self {
        let topic = on.topic(&format!("q/{name}"));
        Self { name: name.to_owned(), topic, sent: 0, under_way: VecDeque::new() }
    }

    fn publish(&self, packet_id: u16, number: usize) -> Publish {
        Publish::new(&self.topic, format!("{} {number}", self.name)).qos(2, packet_id)
    }

    /// Goes on until so many messages have been taken to their end, or the connection ends.
    #[track_caller]
    pub fn go_on(&mut self, client: &mut Client, until: usize) {
        let mut bytes = Vec::new();
        for (packet_id, number, received) in &self.under_way {
            if *received {
                bytes.extend(Ack::new(first::PUBREL, *packet_id).bytes());
            } else {
                bytes.extend(self.publish(*packet_id, *number).dup().bytes(Version::V5));
            }
        }
        client.send_unless_closed(&bytes);
        while self.sent < until || !self.under_way.is_empty() {
            if self.sent < until && self.under_way.len() < WINDOW {
                let (packet_id, number) = ((self.sent % 1_000) as u16 + 1, self.sent);
                client.send_unless_closed(&self.publish(packet_id, number).bytes(Version::V5));
                self.under_way.push_back((packet_id, number, false));
                self.sent += 1;
                continue;
            }
            match client.event(Instant::now() + HEALED) {
                Some(Event::Packet(Packet::PubRec { packet_id, reason, .. })) => {
                    assert!(reason < 0x80, "{}: {reason:#04X}", self.name);
                    let of = self.under_way.iter_mut().find(|(id, ..)| *id == packet_id);
                    of.expect("it is under way").2 = true;
                    client.send_unless_closed(&Ack::new(first::PUBREL, packet_id).bytes());
                }
                Some(Event::Packet(Packet::PubComp { packet_id, .. })) => {
                    self.under_way.retain(|(id, ..)| *id != packet_id);
                }
                Some(Event::Closed) => return,
                other => panic!("{}: {other:?} to a publisher with {:?}", self.name, self.under_way),
            }
        }
    }
}

/// The publishers go on, each at one of these nodes, and end what is under way.
pub fn all_go_on(on: &ClusterStage<'_>, dice: &mut Dice, publishers: &mut [Publisher], nodes: &[usize]) {
    std::thread::scope(|scope| {
        for publisher in publishers {
            let node = *dice.pick(nodes);
            scope.spawn(move || {
                let (mut client, ack) = on.connect_within(node, &on.kept(&publisher.name), HEALED);
                assert!(ack.session_present, "{}", publisher.name);
                let until = publisher.sent + 5;
                publisher.go_on(&mut client, until);
                assert!(publisher.under_way.is_empty(), "{}: closed", publisher.name);
                client.disconnect();
            });
        }
    });
}

/// What a subscriber has still to get: the next number of each publisher.
struct Subscriber {
    name: String,
    next: Vec<usize>,
}

impl Subscriber {
    /// Takes all that the publishers have sent.
    #[track_caller]
    fn take_all(&mut self, client: &mut Client, publishers: &[Publisher]) {
        while publishers.iter().zip(&self.next).any(|(publisher, next)| *next < publisher.sent) {
            let text = client.take().text();
            let (of, number) = text.split_once(' ').expect("a name and a number");
            let of = publishers.iter().position(|publisher| publisher.name == of).expect("a publisher");
            assert_eq!(number, self.next[of].to_string(), "the next of {} to {}", publishers[of].name, self.name);
            self.next[of] += 1;
        }
        client.expect_quiet();
    }
}

/// Until the other nodes have what they inherit from one that was destroyed, and copies of that.
#[track_caller]
fn wait_for_inheritance(cluster: &Cluster, dead: usize) {
    let until = Instant::now() + HEALED;
    let sees = |node: usize| cluster.node(node).sees().is_some_and(|view| view.live.len() == 2);
    while !others(dead).into_iter().all(sees) {
        assert!(Instant::now() < until, "nobody has noticed that a node is dead");
        pass(Duration::from_millis(50));
    }
    wait_for_copies(cluster, others(dead));
}

/// One cluster, and who is at it.
struct World<'c> {
    on: ClusterStage<'c>,
    dice: Dice,
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
}

impl<'c> World<'c> {
    fn new(cluster: &'c Cluster, seed: u64) -> Self {
        let on = ClusterStage::new(cluster);
        wait_for_copies(cluster, cluster.all());
        let publishers: Vec<Publisher> = (0..4).map(|number| Publisher::new(&on, &format!("p{number}"))).collect();
        let subscribers = cluster.all().map(|node| {
            let name = format!("s{node}");
            let (mut client, _) = on.connect(node, &on.kept(&name));
            assert_eq!(client.subscribe(on.topic("q/#"), 2), 2);
            client.disconnect();
            Subscriber { name, next: vec![0; publishers.len()] }
        });
        let subscribers = subscribers.collect();
        Self { on, dice: Dice::new(seed), publishers, subscribers }
    }

    /// Everybody publishes at `home`, and it is killed, somewhere among their packets.
    fn kill_among_packets(&mut self, home: usize) {
        let Self { on, dice, publishers, .. } = self;
        let cluster = on.cluster;
        let connect = |publisher: &Publisher| on.connect_within(home, &on.kept(&publisher.name), HEALED).0;
        let connected: Vec<Client> = publishers.iter().map(connect).collect();
        wait_for_copies(cluster, [home]);
        let delay = Duration::from_micros(dice.below(100_000));
        std::thread::scope(|scope| {
            for (publisher, mut client) in publishers.iter_mut().zip(connected) {
                let until = publisher.sent + 1_000;
                scope.spawn(move || publisher.go_on(&mut client, until));
            }
            pass(delay);
            cluster.node(home).kill();
        });
        let under_way: Vec<_> = publishers.iter().map(|publisher| publisher.under_way.len()).collect();
        let sent: Vec<_> = publishers.iter().map(|publisher| publisher.sent).collect();
        eprintln!("node {home} is killed after {delay:?}: {sent:?} messages, {under_way:?} under way");
    }

    fn go_on(&mut self, nodes: &[usize]) {
        all_go_on(&self.on, &mut self.dice, &mut self.publishers, nodes);
    }

    /// The subscribers take what there is, each at some node that lives.
    fn take_all(&mut self, nodes: &[usize]) {
        for subscriber in &mut self.subscribers {
            let node = *self.dice.pick(nodes);
            let (mut client, ack) = self.on.connect_within(node, &self.on.kept(&subscriber.name), HEALED);
            assert!(ack.session_present, "{}", subscriber.name);
            subscriber.take_all(&mut client, &self.publishers);
            client.disconnect();
        }
    }
}

pub fn others(node: usize) -> Vec<usize> {
    [0, 1, 2].into_iter().filter(|other| *other != node).collect()
}

#[test]
fn qos_2_comes_once_and_in_order_however_often_homes_are_destroyed() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let mut world = World::new(&cluster, dice::seed("qos_2_comes_once"));
    for _ in 0..rounds::rounds(5, 100) {
        let home = world.dice.below(3) as usize;
        world.kill_among_packets(home);
        cluster.node(home).wipe();
        world.go_on(&others(home));
        wait_for_copies(&cluster, others(home));
        // At the node that has just come as well, or not.
        if world.dice.once_in(2) {
            world.take_all(&others(home));
            start_again(&cluster, home);
        } else {
            start_again(&cluster, home);
            world.take_all(&[0, 1, 2]);
        }
    }
}

/// The publishers are away until a second node is lost, with sessions that were inherited from the first one.
#[test]
fn qos_2_comes_once_over_the_loss_of_one_home_after_another() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let mut world = World::new(&cluster, dice::seed("one_home_after_another"));
    for _ in 0..rounds::rounds(5, 50) {
        let home = world.dice.below(3) as usize;
        world.kill_among_packets(home);
        cluster.node(home).wipe();
        wait_for_inheritance(&cluster, home);
        start_again(&cluster, home);
        let next = world.dice.below(3) as usize;
        if world.dice.once_in(2) {
            // They begin to send again there, and do not come to the end.
            world.kill_among_packets(next);
        } else {
            cluster.node(next).kill();
        }
        cluster.node(next).wipe();
        world.go_on(&others(next));
        wait_for_copies(&cluster, others(next));
        world.take_all(&others(next));
        start_again(&cluster, next);
    }
}

/// A home that is killed and comes back has the packets that were under way on its own disk.
#[test]
fn qos_2_comes_once_however_often_homes_are_killed_and_come_back() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let mut world = World::new(&cluster, dice::seed("killed_and_come_back"));
    for _ in 0..rounds::rounds(5, 50) {
        let home = world.dice.below(3) as usize;
        world.kill_among_packets(home);
        start_again(&cluster, home);
        world.go_on(&[0, 1, 2]);
        world.take_all(&[0, 1, 2]);
    }
}
