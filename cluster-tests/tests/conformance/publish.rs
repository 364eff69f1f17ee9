//! Section 3.3: PUBLISH, its flags, topic, retained messages and subscription identifiers.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Properties, Publish, Subscribe, Version, first, id, packet, prefixed};

use crate::{BAD_PACKET, got_before_marker, retained_by};

/// Subscription Options: Retain As Published, and Retain Handling 1 and 2.
const RETAIN_AS_PUBLISHED: u8 = 0x08;
const SEND_IF_NEW: u8 = 0x10;
const DO_NOT_SEND: u8 = 0x20;

over_tcp_and_websocket! {
    mqtt_3_3_1_1_what_is_sent_again_has_dup,
    mqtt_3_3_1_2_qos_0_has_no_dup,
    mqtt_3_3_1_3_dup_is_not_passed_on,
    mqtt_3_3_1_4_both_qos_bits_are_malformed,
    mqtt_3_3_1_5_a_retained_message_replaces_the_one_before,
    mqtt_3_3_1_6_an_empty_retained_message_is_delivered_and_removes,
    mqtt_3_3_1_7_an_empty_message_is_not_retained,
    mqtt_3_3_1_8_without_retain_the_retained_message_stays,
    mqtt_3_3_1_9_retain_handling_0_sends_at_each_subscribe,
    mqtt_3_3_1_10_retain_handling_1_sends_for_a_new_subscription_only,
    mqtt_3_3_1_11_retain_handling_2_sends_nothing,
    mqtt_3_3_1_12_without_retain_as_published_the_flag_is_0,
    mqtt_3_3_1_13_with_retain_as_published_the_flag_is_kept,
    mqtt_3_3_2_1_the_topic_name_comes_first_and_is_utf8,
    mqtt_3_3_2_2_a_topic_name_has_no_wildcards,
    mqtt_3_3_2_3_the_topic_matches_the_filter,
    mqtt_3_3_4_1_each_qos_has_its_answer,
    mqtt_3_3_4_2_overlapping_subscriptions_deliver_at_the_highest_qos,
    mqtt_3_3_4_3_subscription_identifiers_are_sent,
    mqtt_3_3_4_4_all_matching_subscriptions_have_their_identifier,
    mqtt_3_3_4_5_subscriptions_without_identifier_add_none,
    mqtt_3_3_4_6_a_subscription_identifier_from_a_client_is_refused,
}

fn mqtt_3_3_1_1_what_is_sent_again_has_dup(on: &Stage) {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    for qos in [1, 2] {
        publisher.publish(&topic, format!("qos {qos}"), qos);
        assert!(!client.recv_publish().dup);
    }
    client.reset();
    let (mut client, _) = on.connect(&hello);
    for qos in [1, 2] {
        let message = client.recv_publish();
        assert_eq!((message.text(), message.dup), (format!("qos {qos}"), true));
    }
}

fn mqtt_3_3_1_2_qos_0_has_no_dup(on: &Stage) {
    // From the server (the parser refuses it) with a DUP that came in, and from a client.
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 0);
    client.deliver(&Publish::new(&topic, "x").qos(1, 9).dup());
    assert!(!client.take().dup);
    on.refused_after_connect(&Publish::new(&topic, "x").dup().bytes(Version::V5), BAD_PACKET);
}

fn mqtt_3_3_1_3_dup_is_not_passed_on(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 2);
    for qos in [1, 2] {
        client.deliver(&Publish::new(&topic, "x").qos(qos, 9).dup());
        assert!(!client.take().dup);
    }
}

fn mqtt_3_3_1_4_both_qos_bits_are_malformed(on: &Stage) {
    let mut bytes = Publish::new(on.topic("t"), "x").qos(2, 1).bytes(Version::V5);
    bytes[0] |= 0x06;
    on.refused_after_connect(&bytes, &[0x81]);
}

/// What a new subscriber to this topic gets as retained messages.
fn retained(on: &Stage, filter: &str) -> Vec<(String, String, u8)> {
    let messages = retained_by(on, &mut on.v5("reader"), filter, 2);
    assert!(messages.iter().all(|message| message.retain));
    messages.into_iter().map(|message| (message.topic.clone(), message.text(), message.qos)).collect()
}

fn mqtt_3_3_1_5_a_retained_message_replaces_the_one_before(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    for (payload, qos) in [("first", 1), ("second", 2), ("third", 0), ("fourth", 1)] {
        client.publish_retained(&topic, payload, qos);
        client.fence();
        assert_eq!(retained(on, &topic), [(topic.clone(), payload.to_owned(), qos)]);
    }
    client.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_1_6_an_empty_retained_message_is_delivered_and_removes(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.publish_retained(&topic, "there", 1);
    let mut watcher = on.v5("w");
    watcher.subscribe(&topic, 1);
    assert_eq!(watcher.take().text(), "there");
    client.publish_retained(&topic, "", 1);
    let message = watcher.take();
    assert_eq!((message.text().as_str(), message.retain), ("", false));
    assert!(retained(on, &topic).is_empty());
}

fn mqtt_3_3_1_7_an_empty_message_is_not_retained(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    for qos in 0..3 {
        client.publish_retained(&topic, "", qos);
        client.fence();
        assert!(retained(on, &topic).is_empty());
    }
}

fn mqtt_3_3_1_8_without_retain_the_retained_message_stays(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.publish(&topic, "not retained", 1);
    assert!(retained(on, &topic).is_empty());
    client.publish_retained(&topic, "retained", 1);
    client.publish(&topic, "not retained", 1);
    client.publish(&topic, "", 1);
    assert_eq!(retained(on, &topic), [(topic.clone(), "retained".to_owned(), 1)]);
    client.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_1_9_retain_handling_0_sends_at_each_subscribe(on: &Stage) {
    let mut client = on.v5("c");
    for name in ["a", "b"] {
        client.publish_retained(on.topic(name), name, 1);
    }
    for _ in 0..2 {
        client.subscribe(on.topic("+"), 1);
        let mut got = [client.take(), client.take()].map(|message| (message.text(), message.retain));
        got.sort();
        assert_eq!(got, [("a".to_owned(), true), ("b".to_owned(), true)]);
    }
    client.expect_quiet();
    for name in ["a", "b"] {
        client.publish_retained(on.topic(name), "", 1);
    }
}

fn mqtt_3_3_1_10_retain_handling_1_sends_for_a_new_subscription_only(on: &Stage) {
    let topic = on.topic("t");
    let mut publisher = on.v5("p");
    publisher.publish_retained(&topic, "retained", 1);
    let mut client = on.v5("c");
    for there in [false, true, true] {
        let got = retained_by(on, &mut client, &topic, 1 | SEND_IF_NEW);
        assert_eq!(got.len(), usize::from(!there));
    }
    client.unsubscribe(&topic);
    assert_eq!(retained_by(on, &mut client, &topic, 1 | SEND_IF_NEW).len(), 1);
    publisher.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_1_11_retain_handling_2_sends_nothing(on: &Stage) {
    let topic = on.topic("t");
    let mut publisher = on.v5("p");
    publisher.publish_retained(&topic, "retained", 1);
    let mut client = on.v5("c");
    assert!(retained_by(on, &mut client, &topic, 1 | DO_NOT_SEND).is_empty());
    publisher.publish(&topic, "live", 1);
    assert_eq!(client.take().text(), "live");
    publisher.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_1_12_without_retain_as_published_the_flag_is_0(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 2);
    for qos in 0..3 {
        client.publish_retained(&topic, "x", qos);
        assert!(!client.take().retain);
    }
    client.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_1_13_with_retain_as_published_the_flag_is_kept(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 2 | RETAIN_AS_PUBLISHED);
    for qos in 0..3 {
        client.publish_retained(&topic, "x", qos);
        assert!(client.take().retain);
        client.publish(&topic, "x", qos);
        assert!(!client.take().retain);
    }
    client.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_2_1_the_topic_name_comes_first_and_is_utf8(on: &Stage) {
    for body in [&[][..], &[0], &[0, 5, b'a'], &[0xFF, 0xFF, b'a', b'b']] {
        on.refused_after_connect(&packet(first::PUBLISH, body), &[0x81]);
    }
    for bad in crate::ILL_FORMED {
        on.refused_after_connect(&packet(first::PUBLISH, &[&prefixed(bad)[..], &[0]].concat()), BAD_PACKET);
    }
}

fn mqtt_3_3_2_2_a_topic_name_has_no_wildcards(on: &Stage) {
    for name in ["#", "+", "a/#", "a/+/b", "a+", "#a"] {
        for qos in [0, 1] {
            let bytes = Publish::new(name, "x").qos(qos, 1).bytes(Version::V5);
            on.refused_after_connect(&bytes, &[0x81, 0x82, 0x90]);
        }
    }
}

fn mqtt_3_3_2_3_the_topic_matches_the_filter(on: &Stage) {
    let mut client = on.v5("c");
    for filter in ["a/+/c", "b/#", "c"] {
        client.subscribe(on.topic(filter), 0);
    }
    let matching = ["a/x/c", "a//c", "b", "b/x", "b/x/y", "c"];
    for name in ["a", "a/x", "a/x/c", "a/x/c/d", "a//c", "a/b/d", "b", "b/x", "bb", "b/x/y", "c", "c/", "/c", "C"] {
        client.publish(on.topic(name), name, 0);
    }
    client.publish(on.topic("c"), "marker", 0);
    let got: Vec<_> = client.take_until("marker").into_iter().map(|message| message.topic).collect();
    assert_eq!(got, matching.map(|name| on.topic(name)));
}

fn mqtt_3_3_4_1_each_qos_has_its_answer(on: &Stage) {
    let mut client = on.v5("c");
    client.send_publish(&Publish::new(on.topic("t"), "x"));
    client.expect_quiet();
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(1, 5));
    assert!(matches!(client.recv(), Packet::PubAck { packet_id: 5, reason: 0 | 0x10, .. }));
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, 6));
    assert!(matches!(client.recv(), Packet::PubRec { packet_id: 6, reason: 0 | 0x10, .. }));
    client.send_ack(first::PUBREL, 6);
    assert!(matches!(client.recv(), Packet::PubComp { packet_id: 6, reason: 0, .. }));
    client.expect_quiet();
}

/// A client with three subscriptions that overlap at `a/b`, of QoS 0, 1 and 2, each with its identifier if given.
fn overlapping(on: &Stage, identifiers: [Option<u32>; 3]) -> holdfast_cluster_tests::client::Client {
    let mut client = on.v5("c");
    for ((filter, qos), identifier) in [("a/#", 0), ("a/+", 1), ("a/b", 2)].into_iter().zip(identifiers) {
        let packet_id = client.packet_id();
        let mut subscribe = Subscribe::new(packet_id).filter(on.topic(filter), qos);
        if let Some(identifier) = identifier {
            subscribe = subscribe.identifier(identifier);
        }
        client.send_subscribe(&subscribe);
    }
    client
}

fn mqtt_3_3_4_2_overlapping_subscriptions_deliver_at_the_highest_qos(on: &Stage) {
    let mut client = overlapping(on, [None; 3]);
    for qos in 0..3 {
        client.publish(on.topic("a/b"), "x", qos);
        client.publish(on.topic("a/b"), "marker", qos);
        // One copy or one for each subscription; the best of them has the QoS of the publish.
        let got = client.take_until("marker");
        assert_eq!(got.iter().map(|message| message.qos).max(), Some(qos), "{got:?}");
        for rest in client.fence() {
            assert!(matches!(&rest, Packet::Publish(message) if message.text() == "marker"), "{rest:?}");
        }
    }
}

fn mqtt_3_3_4_3_subscription_identifiers_are_sent(on: &Stage) {
    for identifier in [1, 127, 128, 16_384, 268_435_455] {
        let mut client = on.v5("c");
        let topic = on.topic("t");
        client.send_subscribe(&Subscribe::new(1).filter(&topic, 1).identifier(identifier));
        client.publish(&topic, "x", 1);
        assert_eq!(client.take().properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER), [identifier]);
        // A retained message, too, comes as the result of the subscription.
        client.publish_retained(&topic, "y", 1);
        client.take();
        client.send_subscribe(&Subscribe::new(2).filter(&topic, 1).identifier(identifier));
        let message = client.take();
        assert!(message.retain);
        assert_eq!(message.properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER), [identifier]);
        client.publish_retained(&topic, "", 1);
    }
}

fn mqtt_3_3_4_4_all_matching_subscriptions_have_their_identifier(on: &Stage) {
    let mut client = overlapping(on, [Some(11), Some(22), Some(33)]);
    let mut publisher = on.v5("p");
    publisher.publish(on.topic("a/b"), "x", 2);
    let got = got_before_marker(&mut publisher, &mut client, &on.topic("a/b"));
    let mut identifiers: Vec<_> =
        got.iter().flat_map(|message| message.properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER)).collect();
    identifiers.sort_unstable();
    assert_eq!(identifiers, [11, 22, 33]);
    assert!(got.len() == 1 || got.len() == 3, "one copy, or one for each subscription");
}

fn mqtt_3_3_4_5_subscriptions_without_identifier_add_none(on: &Stage) {
    let mut client = overlapping(on, [Some(11), None, Some(11)]);
    let mut publisher = on.v5("p");
    publisher.publish(on.topic("a/b"), "x", 2);
    let got = got_before_marker(&mut publisher, &mut client, &on.topic("a/b"));
    for message in &got {
        let identifiers = message.properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER);
        let expected = if got.len() == 1 { 1..=2 } else { 0..=1 };
        assert!(expected.contains(&identifiers.len()), "{identifiers:?}");
        assert!(identifiers.iter().all(|identifier| *identifier == 11));
    }
    // A replaced subscription has the identifier of the new one, also when that is none.
    client.subscribe(on.topic("a/b"), 0);
    client.subscribe(on.topic("a/#"), 0);
    publisher.publish(on.topic("a/b"), "y", 0);
    for message in got_before_marker(&mut publisher, &mut client, &on.topic("a/b")) {
        assert!(message.properties.is_empty());
    }
}

fn mqtt_3_3_4_6_a_subscription_identifier_from_a_client_is_refused(on: &Stage) {
    let properties = Properties::new().number(id::SUBSCRIPTION_IDENTIFIER, 1);
    for qos in 0..3 {
        let publish = Publish::new(on.topic("t"), "x").qos(qos, 1).properties(properties.clone());
        on.refused_after_connect(&publish.bytes(Version::V5), BAD_PACKET);
    }
}
