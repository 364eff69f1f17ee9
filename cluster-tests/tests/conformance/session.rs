//! Sections 4.1 and 4.2: session state and transports.

use std::time::Duration;

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Version, first, id};

use crate::{got_before_marker, let_pass};

over_tcp_and_websocket! {
    mqtt_4_1_0_1_the_session_stays_while_the_connection_is_open,
    mqtt_4_1_0_1_what_a_session_holds_survives_a_reconnect,
    mqtt_4_1_0_2_an_expired_session_is_discarded,
    mqtt_4_1_0_2_a_session_without_expiry_ends_with_the_connection,
    mqtt_4_1_0_2_a_session_that_never_expires_is_kept,
    mqtt_4_2_0_1_the_transport_is_an_ordered_lossless_stream,
}

fn mqtt_4_1_0_1_the_session_stays_while_the_connection_is_open(on: &Stage) {
    // Longer than its expiry, which counts from the close.
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(1);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 1);
    let_pass(Duration::from_millis(1_300));
    client.publish(&topic, "still here", 1);
    assert_eq!(client.take().text(), "still here");
    client.reset();
    let (_, ack) = on.connect(&hello);
    assert!(ack.session_present);
}

fn mqtt_4_1_0_1_what_a_session_holds_survives_a_reconnect(on: &Stage) {
    // Subscriptions with their options, queued messages, an inflight QoS 2 in each direction.
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    let mut publisher = on.v5("p");
    client.subscribe(on.topic("rap"), 1 | 0x08);
    client.subscribe(on.topic("two"), 2);
    publisher.publish(on.topic("two"), "inflight", 2);
    let inflight = client.recv_publish();
    client.send_ack(first::PUBREC, inflight.packet_id);
    client.wait_pubrel(inflight.packet_id);
    client.reset();
    publisher.publish_retained(on.topic("rap"), "queued", 1);
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    assert_eq!(client.wait_pubrel(inflight.packet_id), 0);
    client.send_ack(first::PUBCOMP, inflight.packet_id);
    let queued = client.take();
    assert_eq!((queued.text().as_str(), queued.retain), ("queued", true), "Retain As Published was kept");
    client.expect_quiet();
    publisher.publish_retained(on.topic("rap"), "", 1);
}

fn mqtt_4_1_0_2_an_expired_session_is_discarded(on: &Stage) {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(1);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 1);
    client.disconnect();
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "queued", 1);
    let_pass(Duration::from_millis(1_500));
    let (mut client, ack) = on.connect(&hello);
    assert!(!ack.session_present);
    client.subscribe(on.topic("marker"), 0);
    publisher.publish(&topic, "live", 1);
    assert!(got_before_marker(&mut publisher, &mut client, &on.topic("marker")).is_empty());
}

fn mqtt_4_1_0_2_a_session_without_expiry_ends_with_the_connection(on: &Stage) {
    for hello in [on.hello(Version::V5, "c").clean(false), on.hello(Version::V5, "c").durable(0)] {
        let (client, ack) = on.connect(&hello);
        assert!(!ack.session_present);
        client.disconnect();
    }
}

fn mqtt_4_1_0_2_a_session_that_never_expires_is_kept(on: &Stage) {
    let (client, ack) = on.connect(&on.hello(Version::V5, "c").durable(u32::MAX));
    // A server may set a lower bound, and must then say so (section 3.2.2.3.2).
    assert_ne!(ack.properties.get_number(id::SESSION_EXPIRY_INTERVAL), Some(0));
    client.disconnect();
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
}

fn mqtt_4_2_0_1_the_transport_is_an_ordered_lossless_stream(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 0);
    let mut publisher = on.v5("p");
    for number in 0..200u32 {
        let payload = [&number.to_be_bytes()[..], &vec![number as u8; 3_000]].concat();
        publisher.publish(&topic, payload, 0);
        let got = client.take().payload;
        assert_eq!(got[..4], number.to_be_bytes());
        assert!(got.len() == 3_004 && got[4..].iter().all(|byte| *byte == number as u8));
    }
}
