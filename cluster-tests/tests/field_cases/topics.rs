//! Cases 23, 29, 31: wildcards and `$` topics, topic aliases, overlapping subscriptions.

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{Message, Packet, Publish, Subscribe, Version, id, reason};

use crate::{BOTH_VERSIONS, got_before_marker, start, tcp, texts};

#[test]
fn field_case_23_wildcards_find_retained_messages() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    on.v5("p").publish_retained("a/b/c", "value", 1);
    for version in BOTH_VERSIONS {
        for filter in ["#", "+/b/+", "a/#", "a/b/c/#", "+/+/+", "a/b/c"] {
            let mut client = on.client(version, "c");
            client.subscribe(filter, 1);
            let message = client.take();
            assert_eq!((message.topic.as_str(), message.text().as_str(), message.retain), ("a/b/c", "value", true));
        }
    }
}

#[test]
fn field_case_23_both_trees_arrive_when_both_are_asked_for() {
    let broker = start(Setup::new().section("[sys]\ninterval = \"1s\""));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut publisher = on.v5("p");
    publisher.publish_retained("a/b/c", "value", 1);
    let mut client = on.v5("c");
    client.send_subscribe(&Subscribe::new(1).filter("$SYS/#", 0).filter("#", 0));
    let (mut ordinary, mut system) = (false, false);
    while !(ordinary && system) {
        let message = client.take();
        ordinary |= message.topic == "a/b/c";
        system |= message.topic.starts_with("$SYS/");
    }
    // With `#` and `+` forms alone, nothing of a `$` tree ever comes.
    let mut client = on.v5("d");
    for filter in ["#", "+/#", "+/x/#", "+/broker/#", "+/x"] {
        client.subscribe(filter, 0);
    }
    publisher.publish("$y/x", "dollar", 1);
    let got = got_before_marker(&mut publisher, &mut client, "marker");
    assert!(got.iter().all(|message| !message.topic.starts_with('$')), "{:?}", texts(&got));
}

#[test]
fn field_case_23_odd_filters_are_refused() {
    let on = tcp();
    for filter in ["##", "a#", "a/#/b", "+a", "a+", "#/", "/##", "+#"] {
        let mut v5 = on.v5("c");
        v5.send(&Subscribe::new(1).filter(filter, 0).bytes(Version::V5));
        match v5.recv() {
            Packet::SubAck { codes, .. } => {
                assert_eq!(codes, [reason::TOPIC_FILTER_INVALID], "{filter}")
            }
            Packet::Disconnect { reason: 0x81 | 0x82, .. } => v5.expect_close(),
            other => panic!("{filter}: {other:?}"),
        }
        let mut v311 = on.v311("c");
        v311.send(&Subscribe::new(1).filter(filter, 0).bytes(Version::V311));
        match v311.until_first() {
            Some(Packet::SubAck { codes, .. }) => assert_eq!(codes, [0x80], "{filter}"),
            None => {}
            other => panic!("{filter}: {other:?}"),
        }
    }
}

#[test]
fn field_case_23_a_client_cannot_publish_to_sys() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let mut watcher = on.v5("w");
    watcher.subscribe("$SYS/broker/x", 0);
    watcher.subscribe("marker", 0);
    let mut client = on.v5("c");
    client.send_publish(&Publish::new("$SYS/broker/x", "forged").qos(1, 1));
    match client.recv() {
        Packet::PubAck { reason, .. } => assert!(reason >= 0x80, "0x{reason:02X}"),
        Packet::Disconnect { reason, .. } => assert!(reason >= 0x80),
        other => panic!("{other:?}"),
    }
    let mut v311 = on.v311("d");
    v311.send_publish(&Publish::new("$SYS/broker/x", "forged").qos(0, 0).retained());
    v311.send_unless_closed(&Publish::new("$SYS/broker/x", "forged").qos(1, 1).bytes(Version::V311));
    v311.until_first();
    let mut publisher = on.v5("p");
    assert!(got_before_marker(&mut publisher, &mut watcher, "marker").is_empty());
}

/// What alias and topic a message came with; the topic must be readable for this connection.
fn alias_and_topic(message: &Message) -> (Option<u32>, &str) {
    (message.properties.get_number(id::TOPIC_ALIAS), &message.topic)
}

#[test]
fn field_case_29_each_connection_learns_the_aliases_anew() {
    let on = tcp();
    let mut publisher = on.v5("p");
    let hello = on.hello(Version::V5, "s").durable(300).number(id::TOPIC_ALIAS_MAXIMUM, 10);
    for round in 0..3 {
        let (mut client, ack) = on.connect(&hello);
        assert_eq!(ack.session_present, round > 0);
        client.subscribe(on.topic("+"), 1);
        let mut known = std::collections::HashMap::new();
        for number in 0..30 {
            let topic = on.topic(&(number % 3).to_string());
            publisher.publish(&topic, "x", 1);
            let message = client.take();
            match alias_and_topic(&message) {
                (None, there) => assert_eq!(there, topic),
                (Some(alias), "") => assert_eq!(known.get(&alias), Some(&topic), "round {round}"),
                (Some(alias), there) => {
                    assert!((1..=10).contains(&alias) && there == topic);
                    known.insert(alias, topic);
                }
            }
        }
        // A reset may overtake the last acknowledgement.
        client.fence();
        client.reset();
    }
    let (mut client, _) = on.connect(&on.hello(Version::V5, "s").durable(0));
    for _ in 0..5 {
        publisher.publish(on.topic("0"), "x", 1);
        let message = client.take();
        assert_eq!(alias_and_topic(&message), (None, on.topic("0").as_str()));
    }
}

#[test]
fn field_case_29_bad_aliases_of_a_publisher_are_refused() {
    let on = tcp();
    let (_, ack) = on.connect(&on.hello(Version::V5, "look"));
    let maximum = ack.properties.get_number(id::TOPIC_ALIAS_MAXIMUM).unwrap_or(0);
    let with_alias = |topic: &str, alias| Publish::new(topic, "x").number(id::TOPIC_ALIAS, alias).bytes(Version::V5);
    let topic = on.topic("t");
    on.refused_after_connect(&with_alias(&topic, 0), &[reason::TOPIC_ALIAS_INVALID]);
    on.refused_after_connect(&with_alias(&topic, maximum + 1), &[reason::TOPIC_ALIAS_INVALID]);
    on.refused_after_connect(&with_alias("", 1), &[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
    if maximum == 0 {
        return;
    }
    // A good alias does not outlive its connection.
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.send(&with_alias(&topic, 1));
    client.send(&with_alias("", 1));
    client.expect_quiet();
    client.disconnect();
    let (mut client, _) = on.connect(&hello);
    client.send(&with_alias("", 1));
    client.expect_disconnect(&[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
}

/// A subscriber with three subscriptions to `a/b`: QoS 0, 1, 2 with identifiers 1, 2, 3 (in 5.0).
fn overlapping(on: &Stage, version: Version) -> Client {
    let mut client = on.client(version, "s");
    for (number, filter) in ["a/#", "a/+", "a/b"].into_iter().enumerate() {
        let (packet_id, qos) = (number as u16 + 1, number as u8);
        let subscribe = Subscribe::new(packet_id).identifier(number as u32 + 1).filter(on.topic(filter), qos);
        client.send_subscribe(&subscribe);
    }
    client
}

#[test]
fn field_case_31_overlapping_subscriptions_give_one_copy() {
    for version in BOTH_VERSIONS {
        let on = tcp();
        let mut client = overlapping(&on, version);
        let mut publisher = on.v5("p");
        for qos in 0..3 {
            publisher.publish(on.topic("a/b"), "x", qos);
            let got = got_before_marker(&mut publisher, &mut client, &on.topic("a/b"));
            assert_eq!(got.len(), 1, "{version:?}: {got:?}");
            assert_eq!(got[0].qos, qos);
            let mut identifiers = got[0].properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER);
            identifiers.sort_unstable();
            let expected: &[u32] = if version == Version::V5 { &[1, 2, 3] } else { &[] };
            assert_eq!(identifiers, expected);
        }
        // Where fewer of them match, fewer are named.
        publisher.publish(on.topic("a/c"), "x", 2);
        let message = client.take();
        assert_eq!(message.qos, 1);
        // What one client takes back leaves the others in place.
        client.unsubscribe(on.topic("a/b"));
        publisher.publish(on.topic("a/b"), "x", 2);
        let got = got_before_marker(&mut publisher, &mut client, &on.topic("a/b"));
        assert_eq!(got.iter().map(|message| message.qos).collect::<Vec<_>>(), [1]);
    }
}
