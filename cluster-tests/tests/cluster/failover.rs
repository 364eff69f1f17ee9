//! How long the clients of a node that is destroyed are without their sessions.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::crowd::in_parallel;
use holdfast_cluster_tests::cluster::latency::Latencies;
use holdfast_cluster_tests::cluster::rounds::{is_full, many};
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, try_connect};
use holdfast_cluster_tests::scene::{numbers, pass};
use holdfast_cluster_tests::wire::{Ack, Connect, Publish, first};

use crate::{ELECTION, HEALED, LEASE, SLACK};

const MESSAGES: usize = 100;

/// So many are acknowledged in one write.
const AT_ONCE: usize = 10;

/// A client that tries to get in waits so long for an answer, and then so long until it tries again.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(50);

/// Of a thread that has one client.
const STACK: usize = 256 * 1024;

#[test]
fn sessions_with_their_queues_are_back_within_a_lease_and_a_second() {
    let cluster = start();
    fail_over(&cluster, cluster.followers()[0], "follower", LEASE + Duration::from_secs(1));
}

/// The next leader has to be elected, and waits for a full lease of its own.
#[test]
fn sessions_of_the_leader_are_back_an_election_later() {
    let cluster = start();
    fail_over(&cluster, cluster.wait_for_leader(), "leader", LEASE + Duration::from_secs(1) + ELECTION);
}

fn start() -> Cluster {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    cluster.copied_within(&[0, 1, 2], HEALED);
    cluster
}

/// All sessions with their queues are on one node when it is destroyed, and their clients try the two others, all at once.
fn fail_over(cluster: &Cluster, home: usize, role: &str, bound: Duration) {
    let on = ClusterStage::new(cluster);
    let others = [(home + 1) % 3, (home + 2) % 3];
    let count = many(100, 1_000);
    let name = |number: usize| format!("s{number}");
    in_parallel(count, |number| {
        let (mut client, _) = on.connect(home, &on.kept(&name(number)));
        assert_eq!(client.subscribe(on.topic(&name(number)), 1), 1);
        client.disconnect();
    });
    in_parallel(count, |number| {
        let mut publisher = on.v5(others[number % 2], &format!("p{number}"));
        let publishes = numbers(0..MESSAGES).into_iter().zip(1..);
        let publishes = publishes.map(|(text, id)| Publish::new(on.topic(&name(number)), text).qos(1, id));
        publishes.for_each(|publish| publisher.send_publish(&publish));
        (1..=MESSAGES).for_each(|id| assert_eq!(publisher.wait_puback(id as u16), 0));
    });
    cluster.copied_within(&[0, 1, 2], HEALED);
    let began = Instant::now();
    cluster.node(home).kill();
    cluster.node(home).wipe();
    let connects: Vec<_> =
        (0..count).map(|number| (others[number % 2], on.kept(&name(number)).keep_alive(0))).collect();
    let (connected, drained) = all_at_once(&on, &connects, began);
    eprintln!("failover of a {role} with {count}: Session Present 1 after {connected}");
    eprintln!("failover of a {role} with {count}: {MESSAGES} messages each after {drained}; to reach: p99 {bound:?}");
    assert!(drained.max() < bound + if is_full() { 2 * SLACK } else { SLACK }, "{drained}");
}

/// The times from `began` to each one's CONNACK, and to the last message of its queue.
fn all_at_once(on: &ClusterStage, connects: &[(usize, Connect)], began: Instant) -> (Latencies, Latencies) {
    let times = Mutex::new((Latencies::default(), Latencies::default()));
    std::thread::scope(|scope| {
        for (node, connect) in connects {
            let times = &times;
            let client = move || {
                let (mut client, connected) = come_in(on, *node, connect, began);
                let got = drain(&mut client);
                let drained = began.elapsed();
                assert_eq!(got, numbers(0..MESSAGES), "{}", client.client_id);
                let mut times = times.lock().expect("no holder panics");
                times.0.add(connected);
                times.1.add(drained);
            };
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, client).expect("a thread");
        }
    });
    times.into_inner().expect("no holder panics")
}

/// Takes a whole queue, and acknowledges several messages in one write: a thousand clients share the processors with the nodes that they measure.
fn drain(client: &mut Client) -> Vec<String> {
    let (mut got, mut answers) = (Vec::with_capacity(MESSAGES), Vec::new());
    while got.len() < MESSAGES {
        let message = client.recv_publish();
        answers.extend(Ack::new(first::PUBACK, message.packet_id).bytes());
        got.push(message.text());
        if got.len() % AT_ONCE == 0 {
            client.send(&std::mem::take(&mut answers));
        }
    }
    got
}

fn come_in(on: &ClusterStage, node: usize, connect: &Connect, began: Instant) -> (Client, Duration) {
    loop {
        if let Ok((client, ack)) = try_connect(on.cluster.node(node).address(), connect, PATIENCE) {
            assert!(ack.session_present, "{}", client.client_id);
            return (client, began.elapsed());
        }
        assert!(began.elapsed() < HEALED, "nobody lets it in");
        pass(AGAIN);
    }
}
