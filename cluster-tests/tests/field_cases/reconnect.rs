//! Cases 25, 26: what a session resumes after its connection broke.

use std::collections::HashSet;

use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Connect, Packet, Publish, Version, Will, first, id};

use crate::{BOTH_VERSIONS, got_before_marker, tcp};

fn durable(on: &Stage, version: Version, name: &str) -> Connect {
    on.hello(version, name).durable(3_600)
}

#[test]
fn field_case_25_an_incoming_qos_2_publish_sent_again_is_delivered_once() {
    for version in BOTH_VERSIONS {
        let on = tcp();
        let topic = on.topic("t");
        let mut watcher = on.v5("w");
        watcher.subscribe(&topic, 2);
        let (mut publisher, _) = on.connect(&durable(&on, version, "p"));
        for round in 0..20 {
            let publish = Publish::new(&topic, round.to_string()).qos(2, 7);
            publisher.send_publish(&publish);
            publisher.wait_pubrec(7);
            publisher.reset();
            let (again, ack) = on.connect(&durable(&on, version, "p"));
            assert!(ack.session_present);
            publisher = again;
            publisher.send_publish(&publish.dup());
            publisher.wait_pubrec(7);
            publisher.send_ack(first::PUBREL, 7);
            publisher.wait_pubcomp(7);
            let got = got_before_marker(&mut publisher, &mut watcher, &topic);
            assert_eq!(got.len(), 1, "round {round} of {version:?}: {got:?}");
        }
    }
}

#[test]
fn field_case_25_a_pubrel_that_was_lost_is_answered_after_the_reconnect() {
    // Broken off between PUBREC and PUBREL; and between PUBREL and PUBCOMP, which the server may have done or not.
    for version in BOTH_VERSIONS {
        let on = tcp();
        let topic = on.topic("t");
        let mut watcher = on.v5("w");
        watcher.subscribe(&topic, 2);
        for send_pubrel_first in [false, true] {
            let (mut publisher, _) = on.connect(&durable(&on, version, "p"));
            publisher.send_publish(&Publish::new(&topic, "x").qos(2, 9));
            publisher.wait_pubrec(9);
            if send_pubrel_first {
                publisher.send_ack(first::PUBREL, 9);
            }
            publisher.reset();
            let (mut publisher, ack) = on.connect(&durable(&on, version, "p"));
            assert!(ack.session_present);
            publisher.send_ack(first::PUBREL, 9);
            publisher.wait_pubcomp(9);
            let got = got_before_marker(&mut publisher, &mut watcher, &topic);
            assert_eq!(got.len(), 1, "{version:?}, {send_pubrel_first}: {got:?}");
            publisher.disconnect();
        }
    }
}

#[test]
fn field_case_25_an_outgoing_qos_2_delivery_goes_on_with_pubrel() {
    for version in BOTH_VERSIONS {
        let on = tcp();
        let topic = on.topic("t");
        let (mut client, _) = on.connect(&durable(&on, version, "s"));
        client.subscribe(&topic, 2);
        on.v5("p").publish(&topic, "x", 2);
        let message = client.recv_publish();
        client.send_ack(first::PUBREC, message.packet_id);
        client.wait_pubrel(message.packet_id);
        for _ in 0..3 {
            client.reset();
            let (again, ack) = on.connect(&durable(&on, version, "s"));
            assert!(ack.session_present);
            client = again;
            let packet = client.recv();
            assert!(matches!(packet, Packet::PubRel { packet_id, .. } if packet_id == message.packet_id), "{packet:?}");
        }
        client.send_ack(first::PUBCOMP, message.packet_id);
        client.expect_quiet();
        client.reset();
        let (mut client, _) = on.connect(&durable(&on, version, "s"));
        client.expect_quiet();
    }
}

#[test]
fn field_case_26_the_backlog_comes_complete_with_its_old_identifiers() {
    let on = tcp();
    let topic = on.topic("t");
    let hello =
        durable(&on, Version::V5, "s").number(id::RECEIVE_MAXIMUM, 20).will(Will::new(on.topic("will"), "gone"));
    let mut watcher = on.v5("w");
    watcher.subscribe(on.topic("will"), 0);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 1);
    let mut publisher = on.v5("p");
    let mut publish = |range: std::ops::Range<u32>| {
        for number in range {
            publisher.publish(&topic, number.to_string(), 1);
        }
    };
    publish(0..5);
    let seen: Vec<_> = (0..5).map(|_| client.recv_publish()).collect();
    client.reset();
    // What is published before the server has noticed would be sent into the void, and again with DUP.
    assert_eq!(watcher.take().text(), "gone");
    publish(5..25);
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    let window: Vec<_> = (0..20).map(|_| client.recv_publish()).collect();
    client.expect_quiet();
    for (number, message) in window.iter().enumerate() {
        assert_eq!((message.text(), message.dup), (number.to_string(), number < 5));
    }
    let ids: Vec<_> = window.iter().map(|message| message.packet_id).collect();
    assert_eq!(ids[..5], seen.iter().map(|message| message.packet_id).collect::<Vec<_>>());
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 20, "an identifier twice: {ids:?}");
    for message in &window {
        client.acknowledge(message);
    }
    for number in 20..25 {
        let message = client.take();
        assert_eq!((message.text(), message.dup), (number.to_string(), false));
    }
    client.disconnect();
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    client.expect_quiet();
}
