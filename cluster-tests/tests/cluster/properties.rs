//! Case 30: nothing of a message is lost on the way between nodes.

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::{ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::wire::{Message, Properties, Publish, Subscribe, Version, Will, id};

use crate::shared;

const EXPIRY_SECS: u32 = 100;

/// Everything that a publisher may say of a message.
fn all() -> Properties {
    let correlation: Vec<u8> = (0..=255).collect();
    let mut properties = Properties::new()
        .number(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .number(id::MESSAGE_EXPIRY_INTERVAL, EXPIRY_SECS)
        .text(id::CONTENT_TYPE, "text/plain; charset=utf-8")
        .text(id::RESPONSE_TOPIC, "answers/ä")
        .binary(id::CORRELATION_DATA, correlation);
    for (key, value) in [("b", "1"), ("a", "2"), ("b", "3"), ("", ""), ("a", "2")] {
        properties = properties.user(key, value);
    }
    properties
}

/// The same properties in the same order of user properties; the expiry may have become less.
#[track_caller]
fn is_whole(message: &Message, payload: &str) {
    assert_eq!(message.text(), payload);
    let left = message.properties.get_number(id::MESSAGE_EXPIRY_INTERVAL).expect("an expiry");
    assert!((EXPIRY_SECS - 20..=EXPIRY_SECS).contains(&left), "{left}");
    let sorted = |properties: &Properties| {
        let mut list = properties.list().to_vec();
        list.retain(|(id, _)| *id != id::MESSAGE_EXPIRY_INTERVAL);
        // Stable: user properties keep their order.
        list.sort_by_key(|(id, _)| *id);
        list
    };
    assert_eq!(sorted(&message.properties), sorted(&all()));
}

fn publish(publisher: &mut Client, topic: String, payload: &str, qos: u8, retain: bool) {
    let packet_id = publisher.packet_id();
    let mut publish = Publish::new(topic, payload).qos(qos, packet_id).properties(all());
    publish.retain = retain;
    assert!(publisher.deliver(&publish) < 0x80);
}

#[test]
fn field_case_30_all_properties_arrive_live_retained_queued_and_in_a_will() {
    let on = shared();
    let mut publisher = on.v5(N1, "p");
    let (mut kept, _) = on.connect(N2, &on.kept("kept"));
    kept.subscribe(on.topic("queued"), 2);
    kept.disconnect();
    let mut live = on.v5(N2, "s");
    live.subscribe(on.topic("live/+"), 2);
    live.subscribe(on.topic("will"), 1);
    for qos in 0..3 {
        publish(&mut publisher, on.topic(&format!("live/{qos}")), "live", qos, false);
        is_whole(&live.take(), "live");
        publish(&mut publisher, on.topic(&format!("retained/{qos}")), "retained", qos, true);
        publish(&mut publisher, on.topic("queued"), "queued", qos.max(1), false);
    }
    let will = Will::new(on.topic("will"), "will").qos(1).properties(all());
    on.connect(N1, &on.hello(Version::V5, "w").will(will)).0.reset();
    is_whole(&live.take(), "will");
    for node in [N2, N3] {
        let mut reader = on.v5(node, "reader");
        reader.subscribe(on.topic("retained/+"), 2);
        (0..3).for_each(|_| is_whole(&reader.take(), "retained"));
    }
    // From the queue of the node where it was left, on another one.
    let (mut kept, ack) = on.connect(N3, &on.kept("kept"));
    assert!(ack.session_present);
    (0..3).for_each(|_| is_whole(&kept.take(), "queued"));
    kept.expect_quiet();
}

/// Subscription Options that a session has, and uses on whatever node it is.
fn with_options(on: &ClusterStage) -> Client {
    const NO_LOCAL: u8 = 0x04;
    const RETAIN_AS_PUBLISHED: u8 = 0x08;
    let (mut client, _) = on.connect(N1, &on.kept("options"));
    client.send_subscribe(&Subscribe::new(100).filter(on.topic("no-local"), NO_LOCAL | 1).identifier(7));
    client.send_subscribe(&Subscribe::new(101).filter(on.topic("as-published"), RETAIN_AS_PUBLISHED | 1).identifier(8));
    client.send_subscribe(&Subscribe::new(102).filter(on.topic("plain"), 1).identifier(9));
    client
}

#[test]
fn field_case_30_options_of_subscriptions_hold_across_nodes_and_moves() {
    let on = shared();
    let mut client = with_options(&on);
    let mut other = on.v5(N3, "other");
    for node in [N1, N2, N3] {
        if node != N1 {
            let (moved, ack) = on.connect(node, &on.kept("options"));
            assert!(ack.session_present);
            client = moved;
        }
        // Its own message does not come back, that of another client on whatever node does.
        assert!(client.publish(on.topic("no-local"), "own", 1) < 0x80);
        for (topic, retain, identifier) in [("no-local", false, 7), ("as-published", true, 8), ("plain", false, 9)] {
            assert!(other.publish_retained(on.topic(topic), "value", 1) < 0x80);
            let message = client.take();
            assert_eq!((message.topic.clone(), message.text()), (on.topic(topic), "value".to_owned()));
            assert_eq!(message.retain, retain, "{topic} on {node}");
            assert_eq!(message.properties.get_number(id::SUBSCRIPTION_IDENTIFIER), Some(identifier));
        }
        client.expect_quiet();
    }
}
