//! Cases 27, 28: flow control and packets that are too large.

use std::collections::VecDeque;

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{PINGREQ, Packet, Publish, Version, id};

use crate::{got_before_marker, start, tcp, texts};

#[test]
fn field_case_27_one_missing_puback_holds_up_nothing_over_tcp() {
    one_missing_puback(Transport::Tcp);
}

#[test]
fn field_case_27_one_missing_puback_holds_up_nothing_over_websocket() {
    one_missing_puback(Transport::WebSocket);
}

fn one_missing_puback(transport: Transport) {
    let on = Stage::shared(transport);
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&on.hello(Version::V5, "s").number(id::RECEIVE_MAXIMUM, 20));
    client.subscribe(&topic, 1);
    let publishing = std::thread::spawn({
        let (mut publisher, topic) = (on.v5("p"), topic.clone());
        move || {
            for number in 0..1_000 {
                publisher.publish(&topic, number.to_string(), 1);
            }
        }
    });
    let mut open = VecDeque::new();
    let mut pings = 0;
    for number in 0..1_000 {
        let message = loop {
            match client.recv() {
                Packet::Publish(message) => break message,
                Packet::PingResp => pings -= 1,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(message.text(), number.to_string());
        open.push_back(message);
        assert!(open.len() <= 20, "{} open with a Receive Maximum of 20", open.len());
        // All but the first are acknowledged, in batches, so that the window is often full.
        if open.len() == 20 {
            for message in open.drain(1..) {
                client.acknowledge(&message);
            }
        }
        if number % 50 == 0 {
            client.send(&PINGREQ);
            pings += 1;
        }
    }
    assert_eq!(open.front().map(|message| message.text()), Some("0".to_owned()));
    while pings > 0 {
        assert_eq!(client.recv(), Packet::PingResp);
        pings -= 1;
    }
    publishing.join().expect("the publisher is done");
}

#[test]
fn field_case_27_a_new_connection_has_a_fresh_quota_over_tcp() {
    fresh_quota(Transport::Tcp);
}

#[test]
fn field_case_27_a_new_connection_has_a_fresh_quota_over_websocket() {
    fresh_quota(Transport::WebSocket);
}

fn fresh_quota(transport: Transport) {
    let on = Stage::shared(transport);
    let topic = on.topic("t");
    let hello = |maximum| on.hello(Version::V5, "s").durable(3_600).number(id::RECEIVE_MAXIMUM, maximum);
    let (mut client, _) = on.connect(&hello(1));
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    for number in 0..5 {
        publisher.publish(&topic, number.to_string(), 1 + number % 2);
    }
    assert_eq!(client.recv_publish().text(), "0");
    client.expect_quiet();
    client.reset();
    let (mut client, ack) = on.connect(&hello(4));
    assert!(ack.session_present);
    for number in 0..5 {
        assert_eq!(client.take().text(), number.to_string());
    }
    client.expect_quiet();
}

/// A PUBLISH whose packet has exactly this size when it is sent to a 5.0 subscriber.
fn sized(topic: &str, qos: u8, size: usize) -> Publish {
    let identifier = if qos > 0 { 2 } else { 0 };
    let length_bytes = if size - 2 > 127 { 2 } else { 1 };
    let payload = size - 1 - length_bytes - 2 - topic.len() - identifier - 1;
    let publish = Publish::new(topic, vec![b'x'; payload]).qos(qos, 1);
    assert_eq!(publish.bytes(Version::V5).len(), size);
    publish
}

#[test]
fn field_case_28_what_is_too_large_is_dropped_and_blocks_nothing() {
    let on = tcp();
    let topic = on.topic("t");
    let mut publisher = on.v5("p");
    for qos in [1, 2] {
        let (mut client, _) = on.connect(&on.hello(Version::V5, "s").session_expiry(3_600));
        client.subscribe(&topic, 2);
        client.disconnect();
        for payload in [b"small-1".to_vec(), vec![b'x'; 10_000], b"small-2".to_vec()] {
            publisher.publish(&topic, payload, qos);
        }
        let limited = on.hello(Version::V5, "s").durable(3_600).number(id::MAXIMUM_PACKET_SIZE, 1_000);
        let (mut client, ack) = on.connect(&limited);
        assert!(ack.session_present);
        assert_eq!([client.take().text(), client.take().text()], ["small-1", "small-2"]);
        // Live: exactly the limit, and one byte above it, with everything counted.
        for size in [1_000, 1_001, 1_000, 1_001] {
            publisher.deliver(&sized(&topic, qos, size));
        }
        let got = got_before_marker(&mut publisher, &mut client, &topic);
        assert_eq!(got.iter().map(|message| message.size).collect::<Vec<_>>(), [1_000, 1_000]);
        // Never again, not even to a connection without the limit.
        client.disconnect();
        let (mut client, ack) = on.connect(&on.hello(Version::V5, "s").durable(3_600));
        assert!(ack.session_present);
        let got = got_before_marker(&mut publisher, &mut client, &topic);
        assert!(got.is_empty(), "{:?}", texts(&got).len());
    }
}

#[test]
fn field_case_28_the_drop_is_counted() {
    let broker = start(Setup::new().section("[sys]\ninterval = \"1s\""));
    let on = Stage::new(&broker, Transport::Tcp);
    let (mut client, _) = on.connect(&on.hello(Version::V5, "s").number(id::MAXIMUM_PACKET_SIZE, 1_000));
    client.subscribe("t", 1);
    let mut publisher = on.v5("p");
    for _ in 0..3 {
        publisher.deliver(&sized("t", 1, 1_001));
    }
    let mut watcher = on.v5("w");
    watcher.subscribe("$SYS/broker/publish/messages/dropped/#", 0);
    loop {
        let message = watcher.take();
        if message.topic.ends_with("too_large") && message.text() == "3" {
            break;
        }
    }
}
