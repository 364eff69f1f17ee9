//! Cases 14, 15 and 16: Wills where the next connection, or the watcher, is on another node, and Wills of a node that died.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, got_before_marker};
use holdfast_cluster_tests::cluster::crowd::{Crowd, in_parallel};
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, READY};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Packet, Version, Will, disconnect, id};

use crate::{BOTH_VERSIONS, NOTICED, TAKEOVER, shared};

/// Nothing of a Will came to the watcher up to now.
#[track_caller]
fn no_will(on: &ClusterStage, watcher: &mut Client, node: usize) {
    let got = got_before_marker(&mut on.v5(node, "marker"), watcher, &on.topic("w/marker"));
    assert!(got.is_empty(), "{got:?}");
}

#[test]
fn field_case_14_each_displaced_connection_publishes_its_will_once() {
    for version in BOTH_VERSIONS {
        let on = shared();
        let mut watcher = on.watcher(N3, "watcher", "w/+");
        let hello =
            |number: u32| on.hello(version, "d").will(Will::new(on.topic("w/d"), format!("will {number}")).qos(1));
        let (mut old, _) = on.connect(N1, &hello(0));
        for number in 1..=rounds(12, 100) {
            let node = [N1, N2, N3, N3, N1, N2][number as usize % 6];
            let (new, _) = on.connect(node, &hello(number));
            let displaced = Instant::now();
            old.until_closed();
            assert_eq!(watcher.take().text(), format!("will {}", number - 1), "{version:?}");
            assert!(displaced.elapsed() < TAKEOVER, "{:?}", displaced.elapsed());
            old = new;
        }
        old.reset();
        assert_eq!(watcher.take().text(), format!("will {}", rounds(12, 100)));
        no_will(&on, &mut watcher, N1);
    }
}

/// It was taken once, live, and comes as often as it is asked for.
#[test]
fn a_retained_will_is_replayed_to_a_session_that_has_had_it() {
    let on = shared();
    let (mut kept, _) = on.connect(N1, &on.kept("kept"));
    let will = Will::new(on.topic("w/kept"), "gone").qos(2).retained();
    let (client, _) = on.connect(N1, &on.hello(Version::V5, "d").will(will));
    assert_eq!(kept.subscribe(on.topic("w/kept"), 2), 2);
    client.reset();
    for retain in [false, true, true] {
        let message = kept.take();
        assert_eq!((message.text(), message.retain), ("gone".to_owned(), retain));
        assert_eq!(kept.subscribe(on.topic("w/kept"), 2), 2);
    }
    kept.take();
    on.v5(N1, "cleaner").publish_retained(on.topic("w/kept"), "", 1);
    kept.disconnect();
}

/// The DISCONNECT and the CONNECT elsewhere race: the claim may be in the log before the node has heard the goodbye.
#[test]
fn a_goodbye_at_the_moment_of_a_connect_elsewhere_leaves_no_will() {
    let on = shared();
    let mut watcher = on.watcher(N3, "watcher", "w/+");
    for round in 0..rounds(24, 200) as usize {
        let (node, will) = (round % 3, Will::new(on.topic("w/bye"), format!("will {round}")).qos(1));
        let hello = if round.is_multiple_of(2) { on.kept("bye") } else { on.hello(Version::V5, "bye") };
        let (mut old, _) = on.connect(node, &hello.clone().will(will));
        old.send_unless_closed(&disconnect());
        on.connect((node + 1 + round / 3 % 2) % 3, &hello).0.disconnect();
    }
    no_will(&on, &mut watcher, N1);
}

/// A resumed session within the Will Delay, on whichever node, publishes nothing; a clean start publishes at once.
#[test]
fn field_case_17_a_reconnect_on_another_node_within_the_delay_publishes_no_will() {
    let on = shared();
    let mut watcher = on.watcher(N3, "watcher", "w/+");
    let will = Will::new(on.topic("w/d"), "gone").qos(1).number(id::WILL_DELAY_INTERVAL, 2);
    let hello = on.kept("d").will(will);
    for node in [N2, N3, N1] {
        on.connect((node + 2) % 3, &hello).0.reset();
        let (client, ack) = on.connect(node, &hello);
        assert!(ack.session_present);
        pass(Duration::from_millis(2_500));
        no_will(&on, &mut watcher, N2);
        client.disconnect();
    }
    no_will(&on, &mut watcher, N2);
    on.connect(N1, &hello).0.reset();
    let (client, ack) = on.connect(N2, &on.kept("d").clean(true));
    assert!(!ack.session_present);
    assert_eq!(watcher.take().text(), "gone");
    client.disconnect();
    no_will(&on, &mut watcher, N2);
}

/// A device that connects anew on another node and says that it is online.
fn online_again(on: &ClusterStage, number: usize) {
    let (name, topic) = (format!("d{number}"), on.topic(&format!("s/{number}")));
    let hello = on.hello(Version::V5, &name).will(Will::new(&topic, "offline").qos(1).retained());
    let (mut old, _) = on.connect(number % 3, &hello);
    assert!(old.publish_retained(&topic, "online", 1) < 0x80);
    // Half of the old connections break at this moment, half are still there.
    let stays = if number.is_multiple_of(2) {
        Some(old)
    } else {
        {
            old.reset();
            None
        }
    };
    let (mut new, _) = on.connect((number + 1) % 3, &hello);
    assert!(new.publish_retained(&topic, "online", 1) < 0x80);
    new.disconnect();
    drop(stays);
}

#[test]
fn field_case_15_an_old_will_never_replaces_the_new_online() {
    let on = shared();
    let count = rounds(48, 200) as usize;
    in_parallel(count, |number| online_again(&on, number));
    // A Will that comes late would have come by then.
    pass(Duration::from_secs(1));
    for node in on.cluster.all() {
        let mut reader = on.v5(node, "reader");
        reader.subscribe(on.topic("s/+"), 0);
        let got = reader.fence();
        let values = got.iter().filter_map(|packet| match packet {
            Packet::Publish(message) => Some((message.topic.clone(), message.text())),
            _ => None,
        });
        let values: BTreeMap<_, _> = values.collect();
        let offline: Vec<_> = values.iter().filter(|(_, value)| *value != "online").collect();
        assert!(values.len() == count && offline.is_empty(), "node {node}: {} values; {offline:?}", values.len());
    }
}

/// How often each Will came to a watcher until nothing more comes for a while.
#[track_caller]
fn wills_until(watcher: &mut Client, count: usize, deadline: Instant) -> BTreeMap<String, u32> {
    let mut came = BTreeMap::<String, u32>::new();
    while came.len() < count {
        match watcher.event(deadline) {
            Some(holdfast_cluster_tests::client::Event::Packet(Packet::Publish(message))) => {
                watcher.acknowledge(&message);
                *came.entry(message.topic).or_default() += 1;
            }
            None => panic!("{} of {count} Wills came: {:?}", came.len(), came.keys()),
            other => panic!("{other:?} to a watcher"),
        }
    }
    came
}

/// The retained values of all devices on a node.
fn offline(on: &ClusterStage, node: usize) -> BTreeSet<String> {
    let mut reader = on.v5(node, "reader");
    reader.subscribe(on.topic("w/+"), 0);
    let packets = reader.fence().into_iter().filter_map(|packet| match packet {
        Packet::Publish(message) if message.retain && message.text() == "offline" => Some(message.topic),
        _ => None,
    });
    packets.collect()
}

/// The node stays dead: all its clients' Wills come once, with their delay, to watchers on both other nodes.
#[test]
fn field_case_16_the_wills_of_a_dead_nodes_clients_come_once() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let mut watchers = [on.watcher(N2, "w2", "w/+"), on.watcher(N3, "w3", "w/+")];
    let hello = |number: usize| {
        let will = Will::new(on.topic(&format!("w/{number}")), "offline").qos(1).retained();
        let (delayed, v311) = (number.is_multiple_of(2), number % 4 == 1);
        match (delayed, v311) {
            (true, _) => on
                .hello(Version::V5, &format!("d{number}"))
                .session_expiry(60)
                .will(will.number(id::WILL_DELAY_INTERVAL, 2)),
            (false, true) => on.hello(Version::V311, &format!("d{number}")).will(will),
            (false, false) => on.hello(Version::V5, &format!("d{number}")).will(will),
        }
    };
    let crowd = Crowd::gather(&cluster, 50, PATIENCE, |number| (N1, hello(number).keep_alive(0)));
    let killed = Instant::now();
    cluster.node(N1).kill();
    drop(crowd);
    let deadline = killed + NOTICED + Duration::from_secs(2);
    for (watcher, node) in watchers.iter_mut().zip([N2, N3]) {
        let came = wills_until(watcher, 50, deadline);
        eprintln!("case 16: all Wills at {node} after {:.1?}", killed.elapsed());
        assert!(came.values().all(|times| *times == 1), "{came:?}");
        assert_eq!(offline(&on, node).len(), 50);
    }
    pass(Duration::from_secs(1));
    watchers.iter_mut().for_each(|watcher| no_will(&on, watcher, N2));
    // It comes back and does not publish them again.
    cluster.start([N1]);
    cluster.whole_within(crate::HEALED);
    watchers.iter_mut().for_each(|watcher| no_will(&on, watcher, N1));
    assert_eq!(offline(&on, N1).len(), 50);
}

/// The node is back within the delay: whoever resumes its session, wherever, has published nothing.
#[test]
fn field_case_16_who_comes_back_within_the_delay_has_published_nothing() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let mut watcher = on.watcher(N3, "watcher", "w/+");
    let hello = |number: usize| {
        let will = Will::new(on.topic(&format!("w/{number}")), "offline").qos(1).number(id::WILL_DELAY_INTERVAL, 20);
        on.hello(Version::V5, &format!("d{number}")).durable(60).will(will).keep_alive(0)
    };
    let crowd = Crowd::gather(&cluster, 20, PATIENCE, |number| (N1, hello(number)));
    cluster.node(N1).kill();
    drop(crowd);
    cluster.node(N1).launch();
    // To another node than before, as soon as that lets them in.
    let crowd = Crowd::gather(&cluster, 10, READY, |number| (N2, hello(number)));
    assert_eq!(crowd.present, 10);
    eprintln!("case 16: ten are back elsewhere after {:.1?}", crowd.took);
    let came = wills_until(&mut watcher, 10, Instant::now() + Duration::from_secs(40));
    assert!(
        came.iter().all(|(topic, times)| *times == 1 && !(0..10).any(|n| topic.ends_with(&format!("/{n}")))),
        "{came:?}"
    );
    no_will(&on, &mut watcher, N2);
}
