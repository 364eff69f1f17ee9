//! Cases 19 and 20: retained values are on every node, and change while somebody subscribes.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::crowd::in_parallel;
use holdfast_cluster_tests::cluster::rounds::{many, rounds};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::scene::{pass, publish_many};
use holdfast_cluster_tests::wire::{Packet, Publish, Version};

use crate::shared;

/// All retained values below a filter, by topic, as a fresh subscriber on a node gets them at once.
#[track_caller]
fn read(on: &ClusterStage, node: usize, filter: &str) -> BTreeMap<String, String> {
    let mut reader = on.v5(node, "reader");
    assert_eq!(reader.subscribe(on.topic(filter), 0), 0);
    // What does not fit the connection comes behind the answer.
    reader.subscribe(on.topic("end"), 0);
    on.v5(node, "marker").publish(on.topic("end"), "end", 0);
    let mut values = BTreeMap::new();
    loop {
        let message = reader.recv_publish();
        if message.topic == on.topic("end") {
            break;
        }
        assert!(message.retain, "{message:?}");
        assert!(values.insert(message.topic.clone(), message.text()).is_none(), "{} came twice", message.topic);
    }
    reader.disconnect();
    values
}

#[track_caller]
fn same_on_all(on: &ClusterStage, nodes: &[usize], wanted: &BTreeMap<String, String>) {
    for node in nodes {
        let got = read(on, *node, "save/#");
        let (missing, more) = (wanted.keys().filter(|topic| !got.contains_key(*topic)), got.len());
        assert!(
            got == *wanted,
            "node {node} has {more} values and not {}: {} are missing",
            wanted.len(),
            missing.count()
        );
    }
}

#[test]
fn field_case_19_retained_values_and_deletions_are_on_every_node() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let count = many(600, 2_000);
    let topic = |number: usize| on.topic(&format!("save/{}/{number}", number % 7));
    let mut wanted: BTreeMap<_, _> = (0..count).map(|number| (topic(number), format!("value {number}"))).collect();
    let mut publisher = on.v5(N1, "p");
    for (topic, value) in &wanted {
        let packet_id = publisher.packet_id();
        publisher.send_publish(&Publish::new(topic, value).qos(1, packet_id).retained());
        // As fast as acknowledgements allow.
        if packet_id > 50 {
            publisher.wait_puback(packet_id - 50);
        }
    }
    for packet_id in (1..=count as u16).rev().take(50).rev() {
        publisher.wait_puback(packet_id);
    }
    // Read after its PUBACK.
    same_on_all(&on, &[N1, N2, N3], &wanted);
    let mut deleter = on.v5(N2, "d");
    for number in (0..count).step_by(2) {
        assert!(deleter.publish_retained(topic(number), "", 1) < 0x80);
        wanted.remove(&topic(number));
    }
    same_on_all(&on, &[N1, N2, N3], &wanted);
    // While it is away, some are deleted and some change.
    cluster.node(N3).kill();
    for number in (0..count).skip(1).step_by(10) {
        assert!(deleter.publish_retained(topic(number), "", 1) < 0x80);
        wanted.remove(&topic(number));
        if let Some(value) = wanted.get_mut(&topic(number + 2)) {
            *value = "changed".to_owned();
            assert!(deleter.publish_retained(topic(number + 2), "changed", 1) < 0x80);
        }
    }
    same_on_all(&on, &[N1, N2], &wanted);
    cluster.start([N3]);
    same_on_all(&on, &[N3, N1, N2], &wanted);
    cluster.kill(cluster.all());
    cluster.start(cluster.all());
    same_on_all(&on, &[N1, N2, N3], &wanted);
}

/// A value is read on every node right after the acknowledgement of its publisher, again and again.
#[test]
fn a_retained_value_is_on_every_node_when_it_is_acknowledged() {
    let on = shared();
    let mut publishers: Vec<Client> = on.cluster.all().map(|node| on.v5(node, &format!("p{node}"))).collect();
    let mut readers: Vec<Client> = on.cluster.all().map(|node| on.v5(node, &format!("r{node}"))).collect();
    for round in 0..rounds(60, 1_000) as usize {
        let value = if round % 5 == 4 { String::new() } else { round.to_string() };
        assert!(publishers[round % 3].publish_retained(on.topic("v"), &value, 1) < 0x80);
        for reader in &mut readers {
            assert_eq!(reader.subscribe(on.topic("v"), 0), 0);
            let got = reader.fence();
            match &got[..] {
                [] => assert!(value.is_empty(), "{value} is not there"),
                [Packet::Publish(message)] => assert_eq!(message.text(), value),
                other => panic!("{other:?}"),
            }
            reader.unsubscribe(on.topic("v"));
        }
    }
}

/// One topic: its publisher changes the value while its subscriber on another node subscribes.
fn change_and_subscribe(on: &ClusterStage, thread: usize, rounds: u32, dice: &mut Dice) {
    let topic = on.topic(&format!("value/{thread}"));
    let mut publisher = on.v5([N1, N3][thread % 2], &format!("p{thread}"));
    let mut subscriber = on.v5(N2, &format!("s{thread}"));
    assert!(publisher.publish_retained(&topic, "-1", 1) < 0x80);
    for round in 0..rounds {
        let offset = Duration::from_millis(dice.below(40));
        let publishes_first = dice.once_in(2);
        let value = round.to_string();
        std::thread::scope(|scope| {
            let (topic, value, publisher) = (&topic, &value, &mut publisher);
            scope.spawn(move || {
                pass(if publishes_first { Duration::ZERO } else { offset });
                assert!(publisher.publish_retained(topic, value, 1) < 0x80);
            });
            pass(if publishes_first { offset } else { Duration::ZERO });
            assert_eq!(subscriber.subscribe(topic, 1), 1);
        });
        // Of the same publisher, on the same topic and with the same QoS: behind the value.
        publisher.publish(&topic, "marker", 1);
        let got: Vec<i64> =
            subscriber.take_until("marker").iter().map(|message| message.text().parse().expect("a value")).collect();
        assert_eq!(got.last(), Some(&i64::from(round)), "round {round}: {got:?}");
        assert!(got.is_sorted(), "round {round}: {got:?}");
        subscriber.expect_quiet();
        subscriber.unsubscribe(&topic);
    }
}

#[test]
fn field_case_20_who_subscribes_while_a_value_changes_holds_the_new_one() {
    let on = shared();
    let mut dice = Dice::new(seed("field_case_20"));
    let threads = 8;
    let dice: Vec<_> = (0..threads).map(|thread| std::sync::Mutex::new(dice.fork(&format!("{thread}")))).collect();
    in_parallel(threads, |thread| {
        let mut dice = dice[thread].lock().expect("each is taken once");
        change_and_subscribe(&on, thread, rounds(80, 504).div_ceil(threads as u32), &mut dice);
    });
}

/// Publishers on three nodes fight over one retained topic: in the end all nodes have the same value.
#[test]
fn after_a_fight_over_a_retained_topic_all_nodes_have_the_same_value() {
    let on = shared();
    for round in 0..rounds(5, 100) {
        let topic = on.topic(&format!("fight/{round}"));
        in_parallel(3, |node| {
            let mut client = on.connect(node, &on.hello(Version::V5, &format!("f{node}"))).0;
            for number in 0..20 {
                assert!(client.publish_retained(&topic, format!("{node} {number}"), 1) < 0x80);
            }
        });
        let values: Vec<_> = on.cluster.all().map(|node| read(&on, node, &format!("fight/{round}"))).collect();
        assert_eq!(values[0].len(), 1);
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    }
}

/// A burst of retained messages while a node is away is there when it lets the first client in.
#[test]
fn a_node_that_was_away_has_everything_at_its_first_subscribe() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let count = many(500, 5_000);
    for round in 0..rounds(1, 10).min(10) {
        cluster.node(N3).kill();
        let mut publisher = on.v5(N1, "p");
        let plain = (0..count).map(|number| format!("{round} {number}").into_bytes());
        assert_eq!(publish_many(&mut publisher, &on.topic("plain"), plain, &[]), count);
        for number in 0..50 {
            assert!(publisher.publish_retained(on.topic(&format!("away/{number}")), round.to_string(), 1) < 0x80);
        }
        cluster.node(N3).launch();
        on.connect_within(N3, &on.hello(Version::V5, "first"), crate::HEALED).0.disconnect();
        let values = read(&on, N3, "away/#");
        assert!(values.len() == 50 && values.values().all(|value| *value == round.to_string()), "{values:?}");
    }
}
