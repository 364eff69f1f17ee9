//! Share groups and QoS 2 while nodes are destroyed: each message comes to one member of each group, once, whether the home of its publisher is lost or that of a member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, rounds};
use holdfast_cluster_tests::dice::{self, Dice};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Ack, Packet, first};

use crate::HEALED;
use crate::copies::{start_again, wait_for_copies};
use crate::exactly_once::{Publisher, all_go_on, others};

/// A member of a share group whose session is kept.
struct Member {
    name: String,
    /// The identifiers of packets for which PUBREL has not come: they are not new when they come again [MQTT-4.3.3-2].
    received: BTreeSet<u16>,
    got: Vec<String>,
}

impl Member {
    fn new(name: String) -> Self {
        Self { name, received: BTreeSet::new(), got: Vec::new() }
    }

    /// Takes what comes until `over`, or until the connection ends.
    fn take(&mut self, client: &mut Client, over: impl Fn(&Self) -> bool) {
        loop {
            match client.event(Instant::now() + Duration::from_millis(20)) {
                Some(Event::Packet(Packet::Publish(message))) => {
                    if self.received.insert(message.packet_id) {
                        self.got.push(message.text());
                    }
                    client.send_unless_closed(&Ack::new(first::PUBREC, message.packet_id).bytes());
                }
                Some(Event::Packet(Packet::PubRel { packet_id, .. })) => {
                    self.received.remove(&packet_id);
                    client.send_unless_closed(&Ack::new(first::PUBCOMP, packet_id).bytes());
                }
                Some(Event::Closed) => return,
                Some(other) => panic!("{other:?} to {}", self.name),
                None if over(self) => return,
                None => {}
            }
        }
    }
}

/// One cluster, and who is at it.
struct World<'c> {
    on: ClusterStage<'c>,
    dice: Dice,
    publishers: Vec<Publisher>,
    members: Vec<Member>,
}

impl<'c> World<'c> {
    /// `members`: at which nodes they begin.
    fn new(cluster: &'c Cluster, mut dice: Dice, members: &[usize]) -> Self {
        let on = ClusterStage::new(cluster);
        wait_for_copies(cluster, cluster.all());
        let number = dice.below(4) as usize;
        let publishers = (0..=number).map(|number| Publisher::new(&on, &format!("p{number}"))).collect();
        let members = members.iter().enumerate().map(|(number, node)| {
            let name = format!("m{number}");
            let (mut client, _) = on.connect(*node, &on.kept(&name));
            assert_eq!(client.subscribe(on.share("g", "q/#"), 2), 2);
            client.disconnect();
            Member::new(name)
        });
        let members = members.collect();
        Self { on, dice, publishers, members }
    }

    /// Everybody publishes at `home`, some of the members are there to take it, and the node `victim` is destroyed.
    fn destroy_among_packets(&mut self, home: usize, victim: usize) {
        let Self { on, dice, publishers, members } = self;
        let cluster = on.cluster;
        let connect = |node: usize, name: &str| on.connect_within(node, &on.kept(name), HEALED).0;
        let publishing: Vec<_> = publishers.iter().map(|publisher| connect(home, &publisher.name)).collect();
        let taking: Vec<_> = members
            .iter()
            .map(|member| (!dice.once_in(3)).then(|| connect(dice.below(3) as usize, &member.name)))
            .collect();
        wait_for_copies(cluster, cluster.all());
        let (delay, over) = (Duration::from_micros(dice.below(100_000)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for (publisher, mut client) in publishers.iter_mut().zip(publishing) {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let until = publisher.sent + 5;
                        publisher.go_on(&mut client, until);
                        if !publisher.under_way.is_empty() {
                            break;
                        }
                    }
                });
            }
            for (member, client) in members.iter_mut().zip(taking) {
                let over = &over;
                if let Some(mut client) = client {
                    scope.spawn(move || member.take(&mut client, |_| over.load(Ordering::Relaxed)));
                }
            }
            pass(delay);
            cluster.node(victim).kill();
            cluster.node(victim).wipe();
            pass(Duration::from_millis(50));
            over.store(true, Ordering::Relaxed);
        });
        let sent: Vec<_> = publishers.iter().map(|publisher| (publisher.sent, publisher.under_way.len())).collect();
        eprintln!("{victim} is destroyed {delay:?} after they began at {home}: {sent:?} messages sent, and under way");
    }

    /// The publishers go on at nodes that live, and the members take all that was sent.
    fn go_on(&mut self, nodes: &[usize]) {
        let Self { on, dice, publishers, members } = self;
        all_go_on(on, dice, publishers, nodes);
        let quiet = Duration::from_millis(300);
        let sent: usize = publishers.iter().map(|publisher| publisher.sent).sum();
        let deadline = Instant::now() + HEALED;
        let mut clients: Vec<_> = members
            .iter()
            .map(|member| on.connect_within(*dice.pick(nodes), &on.kept(&member.name), HEALED).0)
            .collect();
        let mut until = Instant::now() + quiet;
        while Instant::now() < until {
            for (member, client) in members.iter_mut().zip(&mut clients) {
                member.take(client, |_| true);
            }
            // A little longer, in case something comes twice.
            if members.iter().map(|member| member.got.len()).sum::<usize>() < sent && Instant::now() < deadline {
                until = Instant::now() + quiet;
            }
        }
        clients.into_iter().for_each(Client::disconnect);
        self.assert_once();
    }

    #[track_caller]
    fn assert_once(&self) {
        let mut got = BTreeMap::<&str, Vec<&str>>::new();
        for member in &self.members {
            member.got.iter().for_each(|text| got.entry(text).or_default().push(&member.name));
        }
        let twice: Vec<_> = got.iter().filter(|(_, members)| members.len() > 1).collect();
        let sent = self
            .publishers
            .iter()
            .flat_map(|publisher| (0..publisher.sent).map(move |number| format!("{} {number}", publisher.name)));
        let lost: Vec<_> = sent.filter(|text| !got.contains_key(text.as_str())).collect();
        assert!(twice.is_empty() && lost.is_empty(), "came twice: {twice:?}, and never: {lost:?}");
    }

    /// `victim`: which node is destroyed, given that of the publishers.
    fn rounds(&mut self, rounds: u32, victim: impl Fn(&mut Dice, usize) -> usize) {
        for _ in 0..rounds {
            let home = self.dice.below(3) as usize;
            let victim = victim(&mut self.dice, home);
            self.destroy_among_packets(home, victim);
            self.go_on(&others(victim));
            start_again(self.on.cluster, victim);
        }
    }
}

#[test]
fn the_home_of_publishers_is_destroyed_and_each_message_comes_to_one_member() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let dice = Dice::new(dice::seed("the_home_of_publishers"));
    World::new(&cluster, dice, &[0, 1, 2]).rounds(rounds::rounds(8, 100), |_, home| home);
}

#[test]
fn the_home_of_a_member_is_destroyed_and_each_message_comes_to_one_member() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let dice = Dice::new(dice::seed("the_home_of_a_member"));
    World::new(&cluster, dice, &[0, 1, 2]).rounds(rounds::rounds(8, 100), |dice, home| *dice.pick(&others(home)));
}

/// There is nobody else: what is for it waits until it is somewhere else.
#[test]
fn the_home_of_the_only_member_is_destroyed_and_each_message_comes_once() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let dice = Dice::new(dice::seed("the_only_member"));
    World::new(&cluster, dice, &[0]).rounds(rounds::rounds(8, 100), |dice, _| dice.below(3) as usize);
}

/// A node may not know yet that a session has gone to another one when it is killed, and find it when it starts again.
#[test]
fn what_has_gone_with_a_session_is_not_given_again_by_the_node_where_it_was() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    let mut member = Member::new("m".to_owned());
    for round in 0..rounds::rounds(4, 40) {
        // What is applied there, the others apply a little later.
        let (leader, followers) = (cluster.wait_for_leader(), cluster.followers());
        let (before, other) = (followers[round as usize % 2], followers[(round as usize + 1) % 2]);
        let (mut client, _) = on.connect_within(before, &on.kept("m"), HEALED);
        assert_eq!(client.subscribe(on.share("g", "t"), 2), 2);
        client.disconnect();
        let mut publisher = on.v5(other, "p");
        (0..20).for_each(|number| assert!(publisher.publish(on.topic("t"), format!("{round} {number}"), 2) < 0x80));
        let (mut client, _) = on.connect_within(leader, &on.kept("m"), HEALED);
        cluster.kill([before]);
        member.take(&mut client, |member| member.got.len() >= 20 * (round as usize + 1));
        cluster.start([before]);
        cluster.whole_within(HEALED);
        let until = Instant::now() + Duration::from_millis(500);
        member.take(&mut client, |_| Instant::now() > until);
        client.disconnect();
        publisher.disconnect();
        let once: BTreeSet<_> = member.got.iter().collect();
        assert_eq!((member.got.len(), once.len()), (20 * (round as usize + 1), 20 * (round as usize + 1)));
    }
}
