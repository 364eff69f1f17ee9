//! Section 3.14: DISCONNECT.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{
    PINGREQ, Packet, Properties, Publish, Version, Will, disconnect, disconnect_with, id, packet, reason,
};

use crate::{BAD_PACKET, got_before_marker};

over_tcp_and_websocket! {
    mqtt_3_14_0_1_no_disconnect_before_an_accepting_connack,
    mqtt_3_14_1_1_reserved_flags_are_malformed,
    mqtt_3_14_2_1_the_server_uses_disconnect_reason_codes,
    mqtt_3_14_2_1_a_clients_reason_code_out_of_the_list_is_refused,
    mqtt_3_14_2_2_a_server_shutting_down_says_so,
    mqtt_3_14_2_2_session_expiry_can_change_at_disconnect,
    mqtt_3_14_2_2_session_expiry_cannot_begin_at_disconnect,
    mqtt_3_14_2_3_disconnect_stays_within_the_maximum_packet_size,
    mqtt_3_14_4_1_nothing_follows_a_disconnect,
    mqtt_3_14_4_2_the_server_closes_after_its_disconnect,
    mqtt_3_14_4_2_the_server_closes_after_a_clients_disconnect,
    mqtt_3_14_4_3_a_normal_disconnect_discards_the_will,
    mqtt_3_14_4_3_any_other_disconnect_publishes_the_will,
}

fn mqtt_3_14_0_1_no_disconnect_before_an_accepting_connack(on: &Stage) {
    for bytes in [
        PINGREQ.to_vec(),
        disconnect(),
        on.hello(Version::V5, "c").flags(3).bytes(),
        on.hello(Version::V5, "c").text(id::AUTHENTICATION_METHOD, "no-such-method").bytes(),
        packet(0x00, &[]),
    ] {
        let mut client = on.open(Version::V5);
        client.send(&bytes);
        let packets = client.until_closed();
        assert!(!packets.iter().any(|packet| matches!(packet, Packet::Disconnect { .. })), "{packets:?}");
    }
}

fn mqtt_3_14_1_1_reserved_flags_are_malformed(on: &Stage) {
    for first_byte in [0xE1, 0xE2, 0xEF] {
        on.refused_after_connect(&[first_byte, 0], &[reason::MALFORMED]);
    }
}

fn mqtt_3_14_2_1_the_server_uses_disconnect_reason_codes(on: &Stage) {
    // The parser knows the list; here are ends of several kinds, each with the code that section 2.4 has for it.
    on.refused_after_connect(&on.hello(Version::V5, "c").bytes(), &[reason::PROTOCOL_ERROR]);
    on.refused_after_connect(&[0x36, 3, 0, 0, 0], &[reason::MALFORMED]);
    let zero_alias = Publish::new(on.topic("t"), "x").number(id::TOPIC_ALIAS, 0);
    on.refused_after_connect(&zero_alias.bytes(Version::V5), &[reason::TOPIC_ALIAS_INVALID]);
}

fn mqtt_3_14_2_1_a_clients_reason_code_out_of_the_list_is_refused(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 0);
    for code in [0x01, 0x03, 0x8E, 0xFF] {
        let (mut client, _) = on.connect(&on.hello(Version::V5, "c").will(Will::new(&will, "gone")));
        client.send(&packet(0xE0, &[code]));
        client.expect_disconnect(BAD_PACKET);
        // It was no DISCONNECT, so the Will stands.
        assert_eq!(watcher.take().text(), "gone");
    }
}

fn mqtt_3_14_2_2_a_server_shutting_down_says_so(on: &Stage) {
    let Some(broker) = Setup::new().start() else {
        return;
    };
    let on = Stage::new(&broker, on.transport);
    let (mut v5, _) = on.connect(&on.hello(Version::V5, "a").durable(300));
    let mut v311 = on.v311("b");
    broker.signal(libc::SIGTERM);
    // The parser refuses a Session Expiry Interval in it.
    assert!(v5.expect_disconnect(&[reason::SERVER_SHUTTING_DOWN]).is_empty());
    v311.expect_close();
    drop((v5, v311));
    assert_eq!(broker.exit_status(Duration::from_secs(15)).code(), Some(0));
}

fn mqtt_3_14_2_2_session_expiry_can_change_at_disconnect(on: &Stage) {
    // Made longer, and made 0.
    let expiry = |secs| Properties::new().number(id::SESSION_EXPIRY_INTERVAL, secs);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").durable(1));
    client.disconnect_with(0, &expiry(300));
    crate::let_pass(Duration::from_millis(1_300));
    let (client, ack) = on.connect(&on.hello(Version::V5, "c").durable(300));
    assert!(ack.session_present);
    client.disconnect_with(0, &expiry(0));
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(!ack.session_present);
}

fn mqtt_3_14_2_2_session_expiry_cannot_begin_at_disconnect(on: &Stage) {
    let mut client = on.v5("c");
    let expiry = Properties::new().number(id::SESSION_EXPIRY_INTERVAL, 300);
    client.send(&disconnect_with(0, &expiry));
    client.expect_disconnect(&[reason::PROTOCOL_ERROR]);
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(!ack.session_present);
}

fn mqtt_3_14_2_3_disconnect_stays_within_the_maximum_packet_size(on: &Stage) {
    for limit in [16, 24, 40] {
        let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, limit.max(200)));
        client.send(&[0xC1, 0]);
        assert!(client.bytes_until_closed().len() <= limit.max(200) as usize);
        // A limit that even the CONNACK may not meet: whatever comes is within it, or nothing comes.
        let mut client = on.open(Version::V5);
        client.send(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, limit).bytes());
        client.send_unless_closed(&[0xC1, 0]);
        let answer = client.bytes_until_closed();
        let sizes = sizes(&answer);
        assert!(sizes.iter().all(|size| *size <= limit as usize), "sizes {sizes:?} with a limit of {limit}");
    }
}

/// The sizes of the packets in a run of bytes.
fn sizes(mut bytes: &[u8]) -> Vec<usize> {
    let mut sizes = Vec::new();
    while let Ok(Some((_, size))) = holdfast_cluster_tests::wire::parse(Version::V5, bytes) {
        sizes.push(size);
        bytes = &bytes[size..];
    }
    assert!(bytes.is_empty(), "{bytes:02X?} is left over");
    sizes
}

fn mqtt_3_14_4_1_nothing_follows_a_disconnect(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 0);
    // Behind the bad packet there are good ones, with answers that must not come.
    let publish = Publish::new(&topic, "x").qos(1, 1).bytes(Version::V5);
    client.send(&[&[0xC1, 0][..], &PINGREQ, &publish].concat());
    client.send_unless_closed(&publish);
    assert!(client.expect_disconnect(BAD_PACKET).is_empty());
    // The same in the other direction: what a client sends behind its DISCONNECT is not looked at.
    let mut watcher = on.v5("w");
    watcher.subscribe(&topic, 0);
    let mut client = on.v5("d");
    client.send(&[&disconnect()[..], &publish].concat());
    client.expect_close();
    watcher.publish(&topic, "marker", 0);
    assert!(watcher.take_until("marker").is_empty());
}

fn mqtt_3_14_4_2_the_server_closes_after_its_disconnect(on: &Stage) {
    let mut client = on.v5("c");
    client.send(&[0xC1, 0]);
    assert!(matches!(client.recv(), Packet::Disconnect { .. }));
    client.expect_close();
}

fn mqtt_3_14_4_2_the_server_closes_after_a_clients_disconnect(on: &Stage) {
    for bytes in [disconnect(), packet(0xE0, &[0]), packet(0xE0, &[0, 0]), packet(0xE0, &[4])] {
        let mut client = on.v5("c");
        let start = Instant::now();
        client.send(&bytes);
        client.expect_close();
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

fn mqtt_3_14_4_3_a_normal_disconnect_discards_the_will(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 0);
    for (expiry, bytes) in [(0, disconnect()), (300, packet(0xE0, &[0])), (0, packet(0xE0, &[0, 0]))] {
        let hello = on.hello(Version::V5, "c").session_expiry(expiry).will(Will::new(&will, "gone"));
        let (mut client, _) = on.connect(&hello);
        client.send(&bytes);
        client.expect_close();
    }
    let mut publisher = on.v5("p");
    assert!(got_before_marker(&mut publisher, &mut watcher, &will).is_empty());
}

fn mqtt_3_14_4_3_any_other_disconnect_publishes_the_will(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 0);
    for code in [reason::DISCONNECT_WITH_WILL, 0x80, 0x83] {
        let (client, _) = on.connect(&on.hello(Version::V5, "c").will(Will::new(&will, "gone")));
        client.disconnect_with(code, &Properties::new());
        assert_eq!(watcher.take().text(), "gone");
    }
}
