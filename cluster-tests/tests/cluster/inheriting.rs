//! What a node that is destroyed leaves to its heirs, while messages flow.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::Publish;

use crate::HEALED;
use crate::copies::wait_for_copies;

/// Sessions of the third node, which dies.
const SESSIONS: usize = 8;

/// They are away.
fn leave_sessions(on: &ClusterStage) {
    for session in 0..SESSIONS {
        let (mut client, _) = on.connect(N3, &on.kept(&format!("s{session}")));
        client.subscribe(on.topic("a/#"), 2);
        client.disconnect();
    }
}

#[track_caller]
fn come_back(on: &ClusterStage, node: usize, session: usize) -> Client {
    let (client, ack) = on.connect_within(node, &on.kept(&format!("s{session}")), HEALED);
    assert!(ack.session_present, "s{session}");
    client
}

/// What waits for a session before `end`.
#[track_caller]
fn texts_until(client: &mut Client, end: &str) -> Vec<String> {
    client.take_until(end).iter().map(|message| message.text()).collect()
}

#[test]
fn messages_flow_while_a_node_is_destroyed_and_its_sessions_have_all_of_them() {
    scene(|_| {}, 1);
}

/// One publisher's node does not run when it is to hear of the death.
#[test]
fn a_node_that_is_slow_to_hear_of_a_death_has_not_lost_what_it_owed() {
    scene(
        |cluster| {
            pass(Duration::from_millis(2_000));
            for _ in 0..5 {
                cluster.node(N2).freeze();
                pass(Duration::from_millis(700));
                cluster.node(N2).thaw();
                pass(Duration::from_millis(100));
            }
        },
        2,
    );
}

fn scene(disturb: impl Fn(&Cluster) + Sync, most_twice: usize) {
    // All that a fast program publishes has a place.
    let queue = "[mqtt]\nmax_queued_messages = 1_000_000\nmax_queued_bytes = \"1GB\"\n";
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").section(queue).start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    let mut connected = Vec::new();
    for session in 0..SESSIONS {
        let (mut client, _) = on.connect(N3, &on.kept(&format!("s{session}")));
        client.subscribe(on.topic("a/#"), 2);
        if session % 4 == 3 { connected.push(client) } else { client.disconnect() }
    }
    let done = AtomicBool::new(false);
    let sent: Vec<(String, usize)> = std::thread::scope(|scope| {
        let (on, done) = (&on, &done);
        let publishers = [(N1, "x", 1), (N2, "y", 1), (N1, "z", 2)];
        let publishers =
            publishers.map(|(node, name, qos)| scope.spawn(move || publish_until(done, on, node, name, qos)));
        pass(Duration::from_millis(500));
        cluster.node(N3).kill();
        cluster.node(N3).wipe();
        disturb(&cluster);
        let began = Instant::now();
        let (client, ack) = on.connect_within(N1, &on.kept("s0"), HEALED);
        eprintln!("back after {:.1?}", began.elapsed());
        assert!(ack.session_present);
        drop(client);
        pass(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
        publishers.into_iter().map(|publisher| publisher.join().expect("it publishes")).collect()
    });
    eprintln!("{sent:?}");
    for session in 0..SESSIONS {
        let mut client = come_back(&on, [N1, N2][session % 2], session);
        on.v5(N1, "end").publish(on.topic("a/end"), "end", 1);
        let messages = texts_until(&mut client, "end");
        sent.iter().for_each(|sent| judge(session, sent, &messages, most_twice));
        client.disconnect();
    }
}

/// Publishes numbered messages, of QoS 1 up to fifty at once. Returns how many.
fn publish_until(done: &AtomicBool, on: &ClusterStage, node: usize, name: &str, qos: u8) -> (String, usize) {
    let mut publisher = on.v5(node, name);
    let mut number = 0;
    let mut under_way = VecDeque::new();
    let is_done = || done.load(Ordering::Relaxed);
    while !is_done() || !under_way.is_empty() {
        if qos == 2 {
            publisher.publish(on.topic(&format!("a/{name}")), format!("{name}{number}"), qos);
            number += 1;
            continue;
        }
        while under_way.len() < 50 && !is_done() {
            let packet_id = publisher.packet_id();
            let publish = Publish::new(on.topic(&format!("a/{name}")), format!("{name}{number}")).qos(qos, packet_id);
            publisher.send_publish(&publish);
            under_way.push_back(packet_id);
            number += 1;
        }
        publisher.wait_puback(under_way.pop_front().unwrap());
    }
    (name.to_owned(), number)
}

/// A session has all that one publisher has sent.
fn judge(session: usize, (name, count): &(String, usize), messages: &[String], most_twice: usize) {
    let numbers = messages.iter().filter_map(|text| text.strip_prefix(name.as_str()));
    let got: Vec<usize> = numbers.map(|number| number.parse().expect("a number")).collect();
    let mut once = got.clone();
    once.sort_unstable();
    once.dedup();
    let twice = got.len() - once.len();
    let missing: Vec<usize> = (0..*count).filter(|number| !once.contains(number)).collect();
    eprintln!("s{session} {name}: {} of {count}, {twice} twice", got.len());
    assert!(missing.is_empty(), "s{session} of {name} lacks {missing:?}");
    assert!(name != "z" || twice == 0, "s{session}: QoS 2 came twice");
    assert!(got.is_sorted() || twice > 0 && most_twice > 1, "s{session}: {got:?}");
}

/// Its heir starts again just when it is to take its sessions over.
#[test]
fn an_heir_that_starts_again_while_it_inherits_has_everything() {
    // Around the end of the lease.
    let moments = [2_700, 3_000, 500, 1_500, 2_000, 2_300, 2_500, 2_600, 2_800, 2_900, 3_100, 3_300];
    for delay_ms in moments.into_iter().take(rounds(4, 12) as usize) {
        eprintln!("{delay_ms}");
        let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
        let on = ClusterStage::new(&cluster);
        wait_for_copies(&cluster, cluster.all());
        leave_sessions(&on);
        let mut publisher = on.v5(N2, "p");
        (0..100).for_each(|number| _ = publisher.publish(on.topic("a/b"), number.to_string(), 1));
        cluster.node(N3).kill();
        cluster.node(N3).wipe();
        pass(Duration::from_millis(delay_ms));
        cluster.node(N1).kill();
        cluster.node(N1).launch();
        (100..200).for_each(|number| _ = publisher.publish(on.topic("a/b"), number.to_string(), 1));
        for session in 0..SESSIONS {
            let mut client = come_back(&on, [N1, N2][session % 2], session);
            let messages = texts_until(&mut client, "199");
            let missing: Vec<usize> = (0..199).filter(|number| !messages.contains(&number.to_string())).collect();
            assert!(missing.is_empty(), "s{session} lacks {missing:?}");
            client.disconnect();
        }
    }
}

#[test]
fn two_nodes_are_destroyed_one_after_the_other() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, cluster.all());
    leave_sessions(&on);
    let mut number = 0;
    for (round, victim) in [N3, N1, N2].into_iter().enumerate() {
        let other = (victim + 1) % 3;
        let mut publisher = on.v5(other, &format!("p{round}"));
        for _ in 0..50 {
            publisher.publish(on.topic("a/b"), number.to_string(), 1 + (number % 2) as u8);
            number += 1;
        }
        cluster.node(victim).kill();
        cluster.node(victim).wipe();
        for _ in 0..50 {
            publisher.publish(on.topic("a/b"), number.to_string(), 1 + (number % 2) as u8);
            number += 1;
        }
        pass(Duration::from_secs(6));
        let positions: Vec<usize> = [N1, N2, N3].iter().map(|node| cluster.node(*node).log().len()).collect();
        cluster.node(victim).launch();
        cluster.whole_within(HEALED);
        for node in [N1, N2, N3] {
            let from = if node == victim { 0 } else { positions[node] };
            let found = cluster.node(node).log().wait(from, 3 * HEALED, |line| line.contains("are complete"));
            assert!(found.is_some(), "round {round}: node {node} has not filled its heirs");
        }
        eprintln!("round {round} is filled");
    }
    for session in 0..SESSIONS {
        let mut client = come_back(&on, session % 3, session);
        let messages = texts_until(&mut client, &(number - 1).to_string());
        let expected: Vec<String> = (0..number - 1).map(|number| number.to_string()).collect();
        assert_eq!(messages, expected, "s{session}");
        client.disconnect();
    }
}
