//! A frozen node, a link that is cut between two followers, a node that is cut off: what stalls, for how long, and that it heals.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::flow::{Flow, FlowPlan, FlowReport};
use holdfast_cluster_tests::cluster::latency::Latencies;
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::{is_full, secs};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, try_connect};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Packet, Publish, Version};

use crate::{HEALED, NOTICED, STALL, STALL_OF_LEADER, matrix};

/// What clients of a node that is well go through meanwhile.
#[derive(Default)]
struct Felt {
    connects: Latencies,
    subscribes: Latencies,
    /// To a topic that somebody on the sick node subscribes to.
    publishes: Latencies,
}

/// New clients connect, subscribe and publish on a node, one after another, until told otherwise.
fn feel(on: &ClusterStage, node: usize, topic: &str, until: Instant) -> Felt {
    let mut felt = Felt::default();
    let mut number = 0;
    while Instant::now() < until {
        number += 1;
        let hello = on.hello(Version::V5, &format!("n{node}c{number}"));
        let began = Instant::now();
        let (mut client, _) = on.connect_within(node, &hello, NOTICED);
        felt.connects.add(began.elapsed());
        felt.subscribes.add(timed(|| assert_eq!(client.subscribe(on.topic(&format!("own/{node}/{number}")), 1), 1)));
        felt.publishes.add(timed(|| assert!(client.publish(topic, "x", 1) < 0x80)));
        pass(Duration::from_millis(20));
    }
    felt
}

fn timed(action: impl FnOnce()) -> Duration {
    let began = Instant::now();
    action();
    began.elapsed()
}

/// A fault of so many seconds, with clients on nodes that are well and a flow between them. Asserts that nothing stalled for longer than `bound`.
fn suffer(
    on: &ClusterStage,
    what: &str,
    well: [usize; 2],
    sick: usize,
    bound: Duration,
    fault: impl FnOnce(),
) -> FlowReport {
    let topic = on.topic("sick");
    let (mut subscriber, _) = on.connect(sick, &on.hello(Version::V5, "sick").keep_alive(0));
    subscriber.subscribe(&topic, 1);
    let flow = Flow::start(on, well[0], &[well[1]], FlowPlan::new("well").per_sec(100));
    let began = Instant::now();
    let until = began + secs(6, 15);
    fault();
    let felt = std::thread::scope(|scope| {
        let topic = &topic;
        let threads = well.map(|node| scope.spawn(move || feel(on, node, topic, until)));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let report = flow.finish();
    eprintln!("{what}: a flow beside it was silent for {:.2?}", report.longest_silence(began));
    for (node, felt) in well.iter().zip(&felt) {
        eprintln!("{what}: on {node}: CONNACK {}", felt.connects);
        eprintln!("{what}: on {node}: SUBACK {}; PUBACK {}", felt.subscribes, felt.publishes);
        for (name, took) in [("CONNACK", &felt.connects), ("SUBACK", &felt.subscribes), ("PUBACK", &felt.publishes)] {
            assert!(took.max() < bound, "{what}: {name} on {node}: {took}");
        }
    }
    drop(subscriber);
    report
}

#[track_caller]
fn heals(on: &ClusterStage, what: &str) {
    let began = Instant::now();
    on.cluster.whole_within(HEALED);
    matrix::passes(on, &on.cluster.all().collect::<Vec<_>>(), "healed");
    eprintln!("{what}: whole {:.1?} after the end of the fault", began.elapsed());
}

#[test]
fn a_frozen_follower_stalls_the_others_for_a_lease_at_most() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let frozen = cluster.followers()[0];
    let well = [(frozen + 1) % 3, (frozen + 2) % 3];
    let mut wound = None;
    let began = Instant::now();
    let report = suffer(&on, "frozen follower", well, frozen, STALL, || wound = Some(cluster.freeze(frozen)));
    report.assert_kept();
    assert!(report.longest_silence(began) < Duration::from_secs(1), "{:?}", report.longest_silence(began));
    drop(wound);
    heals(&on, "frozen follower");
}

#[test]
fn a_frozen_leader_stalls_the_others_for_two_leases_at_most() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let frozen = cluster.wait_for_leader();
    let well = [(frozen + 1) % 3, (frozen + 2) % 3];
    let mut wound = None;
    let report = suffer(&on, "frozen leader", well, frozen, STALL_OF_LEADER, || wound = Some(cluster.freeze(frozen)));
    report.assert_kept();
    drop(wound);
    heals(&on, "frozen leader");
}

/// Field case 5: nobody waits for a process that has said that it goes.
#[test]
fn field_case_05_a_node_that_stops_holds_up_nobody() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    for (what, stops) in [("stopped follower", cluster.followers()[0]), ("stopped leader", cluster.wait_for_leader())] {
        let node = cluster.node(stops);
        let well = [(stops + 1) % 3, (stops + 2) % 3];
        let began = Instant::now();
        let report = suffer(&on, what, well, stops, Duration::from_secs(1), || {
            assert!(node.stop(Duration::from_secs(20)).success());
        });
        report.assert_kept();
        assert!(report.longest_silence(began) < Duration::from_secs(1), "{:?}", report.longest_silence(began));
        let said = node.log().text();
        assert!(!said.contains("given this node up"), "{said}");
        cluster.start([stops]);
        heals(&on, what);
    }
}

#[test]
fn a_link_cut_between_two_followers_stalls_for_a_lease_at_most() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let leader = cluster.wait_for_leader();
    let followers = cluster.followers();
    let mut wound = None;
    // One of the followers is expelled: by the rule, the one with the larger id. Only the leader's clients and one follower's are well for sure.
    let topic = on.topic("across");
    let subscribers = followers.iter().map(|node| {
        let (mut client, _) = on.connect(*node, &on.hello(Version::V5, &format!("s{node}")).keep_alive(0));
        client.subscribe(&topic, 1);
        client
    });
    let subscribers: Vec<Client> = subscribers.collect();
    let began = Instant::now();
    wound.replace(cluster.hurt_between(followers[0], followers[1], Fault::swallow()));
    let felt = feel(&on, leader, &topic, began + secs(6, 15));
    eprintln!(
        "cut link: on the leader: CONNACK {}; SUBACK {}; PUBACK {}",
        felt.connects, felt.subscribes, felt.publishes
    );
    for took in [&felt.connects, &felt.subscribes, &felt.publishes] {
        assert!(took.max() < STALL, "{took}");
    }
    // The rest is a cluster of two that serves.
    let living = followers
        .iter()
        .copied()
        .find(|node| try_connect(cluster.node(*node).address(), &on.hello(Version::V5, "probe"), NOTICED).is_ok());
    let living = living.expect("one of the two followers serves");
    matrix::passes(&on, &[leader, living], "cut");
    drop((wound, subscribers));
    heals(&on, "cut link");
}

/// What a node that is cut off still says to its clients: the times of its last acknowledgement and its first silence.
fn last_words(client: &mut Client, topic: &str, until: Instant) -> Option<Instant> {
    let mut last = None;
    while Instant::now() < until {
        let packet_id = client.packet_id();
        client.send_unless_closed(&Publish::new(topic, "x").qos(1, packet_id).bytes(Version::V5));
        match client.event(until) {
            Some(Event::Packet(Packet::PubAck { reason, .. })) if reason < 0x80 => last = Some(Instant::now()),
            Some(Event::Packet(_)) => {}
            Some(Event::Closed) | None => break,
        }
        pass(Duration::from_millis(10));
    }
    last
}

#[test]
fn a_node_that_is_cut_off_stops_serving_before_the_others_go_on_without_it() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    for (what, alone) in [("cut off follower", cluster.followers()[0]), ("cut off leader", cluster.wait_for_leader())] {
        let well = [(alone + 1) % 3, (alone + 2) % 3];
        let mut own = on.v5(alone, "own");
        let (mut x, _) = on.connect(alone, &on.hello(Version::V5, "x").keep_alive(0));
        x.subscribe(on.topic("x"), 1);
        let wound = cluster.isolate(alone, Fault::swallow());
        let began = Instant::now();
        let until = began + secs(10, 20);
        // Its id is free elsewhere only when it can say nothing any more.
        let (last, taken) = std::thread::scope(|scope| {
            let (on, own) = (&on, &mut own);
            let topic = on.topic("own");
            let last = scope.spawn(move || last_words(own, &topic, until));
            let (client, _) = on.connect_within(well[0], &on.hello(Version::V5, "x"), until - began);
            let taken = Instant::now();
            drop(client);
            (last.join().expect("no surprise"), taken)
        });
        let bound = if what.ends_with("leader") { STALL_OF_LEADER } else { STALL };
        let last = last.map(|last| last.duration_since(began)).unwrap_or_default();
        eprintln!("{what}: acknowledged until {last:.2?}, its client was let in elsewhere after {:.2?}", taken - began);
        assert!(last < taken - began, "{what}: it acknowledged after another node had its client");
        assert!(taken - began < bound, "{what}: {:?}", taken - began);
        cluster.agree_within(well, HEALED);
        wound.heal();
        heals(&on, what);
        assert!(!is_full() || cluster.node(alone).is_running());
    }
}
