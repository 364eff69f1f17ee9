//! Sections 4.3 and 4.4: the delivery protocols of QoS 0, 1 and 2, and delivery after a reconnect.

use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Ack, Packet, Publish, Version, first, id};

use crate::got_before_marker;

over_tcp_and_websocket! {
    mqtt_4_3_1_1_qos_0_is_sent_once_without_dup,
    mqtt_4_3_2_1_qos_1_takes_an_unused_packet_identifier,
    mqtt_4_3_2_2_qos_1_is_sent_first_without_dup,
    mqtt_4_3_2_3_qos_1_is_unacknowledged_until_puback,
    mqtt_4_3_2_4_qos_1_is_answered_with_puback,
    mqtt_4_3_2_5_after_puback_the_identifier_is_a_new_message,
    mqtt_4_3_3_1_qos_2_takes_an_unused_packet_identifier,
    mqtt_4_3_3_2_qos_2_is_sent_first_without_dup,
    mqtt_4_3_3_3_qos_2_is_unacknowledged_until_pubrec,
    mqtt_4_3_3_4_pubrec_is_answered_with_pubrel,
    mqtt_4_3_3_5_pubrel_is_unacknowledged_until_pubcomp,
    mqtt_4_3_3_6_after_pubrel_the_publish_is_never_sent_again,
    mqtt_4_3_3_7_a_publish_that_was_sent_does_not_expire,
    mqtt_4_3_3_8_qos_2_is_answered_with_pubrec,
    mqtt_4_3_3_9_after_a_refusing_pubrec_the_identifier_is_a_new_message,
    mqtt_4_3_3_10_until_pubrel_a_repeat_is_no_new_message,
    mqtt_4_3_3_11_pubrel_is_answered_with_pubcomp,
    mqtt_4_3_3_12_after_pubcomp_the_identifier_is_a_new_message,
    mqtt_4_3_3_13_an_expired_message_completes_its_acknowledgements,
    mqtt_4_4_0_1_unacknowledged_packets_are_sent_again_after_a_reconnect_only,
    mqtt_4_4_0_2_a_refused_message_is_not_sent_again,
}

/// A durable client that has received one message of this QoS and said nothing yet.
fn received(on: &Stage, qos: u8) -> (Client, holdfast_cluster_tests::wire::Message) {
    let (mut client, _) = on.connect(&hello(on));
    client.subscribe(on.topic("t"), 2);
    on.v5("p").publish(on.topic("t"), "x", qos);
    let message = client.recv_publish();
    (client, message)
}

fn hello(on: &Stage) -> holdfast_cluster_tests::wire::Connect {
    on.hello(Version::V5, "c").durable(300)
}

/// The same session on a new connection.
fn again(on: &Stage) -> Client {
    let (client, ack) = on.connect(&hello(on));
    assert!(ack.session_present);
    client
}

fn mqtt_4_3_1_1_qos_0_is_sent_once_without_dup(on: &Stage) {
    let (mut client, message) = received(on, 0);
    assert!(!message.dup && message.qos == 0);
    client.expect_quiet();
    client.reset();
    again(on).expect_quiet();
}

fn mqtt_4_3_2_1_qos_1_takes_an_unused_packet_identifier(on: &Stage) {
    unused_identifiers(on, 1);
}

/// With some messages left unacknowledged, new ones get other identifiers; also after the acknowledged ones were reused.
fn unused_identifiers(on: &Stage, qos: u8) {
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&hello(on));
    client.subscribe(&topic, qos);
    let mut publisher = on.v5("p");
    let mut open = std::collections::HashSet::new();
    for number in 0..60 {
        publisher.publish(&topic, number.to_string(), qos);
        let message = client.recv_publish();
        assert!(!open.contains(&message.packet_id), "{} is in use", message.packet_id);
        if number % 3 == 0 {
            open.insert(message.packet_id);
        } else {
            client.acknowledge(&message);
        }
    }
}

fn mqtt_4_3_2_2_qos_1_is_sent_first_without_dup(on: &Stage) {
    let (_client, message) = received(on, 1);
    assert!(message.qos == 1 && message.packet_id > 0 && !message.dup);
}

fn mqtt_4_3_2_3_qos_1_is_unacknowledged_until_puback(on: &Stage) {
    let (client, message) = received(on, 1);
    client.reset();
    let mut client = again(on);
    let repeat = client.recv_publish();
    assert_eq!((repeat.packet_id, repeat.dup), (message.packet_id, true));
    client.acknowledge(&repeat);
    client.expect_quiet();
    client.reset();
    again(on).expect_quiet();
}

fn mqtt_4_3_2_4_qos_1_is_answered_with_puback(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 0);
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(1, 4711));
    assert_eq!(client.wait_puback(4711), 0);
    assert_eq!(client.take().text(), "x");
}

fn mqtt_4_3_2_5_after_puback_the_identifier_is_a_new_message(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 0);
    client.deliver(&Publish::new(on.topic("t"), "first").qos(1, 1));
    client.deliver(&Publish::new(on.topic("t"), "second").qos(1, 1));
    client.deliver(&Publish::new(on.topic("t"), "third").qos(1, 1).dup());
    assert_eq!([(); 3].map(|()| client.take().text()), ["first", "second", "third"]);
}

fn mqtt_4_3_3_1_qos_2_takes_an_unused_packet_identifier(on: &Stage) {
    unused_identifiers(on, 2);
}

fn mqtt_4_3_3_2_qos_2_is_sent_first_without_dup(on: &Stage) {
    let (_client, message) = received(on, 2);
    assert!(message.qos == 2 && message.packet_id > 0 && !message.dup);
}

fn mqtt_4_3_3_3_qos_2_is_unacknowledged_until_pubrec(on: &Stage) {
    let (client, message) = received(on, 2);
    client.reset();
    let mut client = again(on);
    let repeat = client.recv_publish();
    assert_eq!((repeat.packet_id, repeat.dup, repeat.text().as_str()), (message.packet_id, true, "x"));
    client.acknowledge(&repeat);
    client.expect_quiet();
}

fn mqtt_4_3_3_4_pubrec_is_answered_with_pubrel(on: &Stage) {
    let (mut client, message) = received(on, 2);
    client.send_ack(first::PUBREC, message.packet_id);
    assert!(matches!(client.recv(), Packet::PubRel { packet_id, reason: 0, .. } if packet_id == message.packet_id));
    // A PUBREC again is answered again.
    client.send_ack(first::PUBREC, message.packet_id);
    assert!(matches!(client.recv(), Packet::PubRel { packet_id, reason: 0, .. } if packet_id == message.packet_id));
}

fn mqtt_4_3_3_5_pubrel_is_unacknowledged_until_pubcomp(on: &Stage) {
    let (mut client, message) = received(on, 2);
    client.send_ack(first::PUBREC, message.packet_id);
    client.wait_pubrel(message.packet_id);
    client.reset();
    let mut client = again(on);
    assert!(matches!(client.recv(), Packet::PubRel { packet_id, .. } if packet_id == message.packet_id));
    client.send_ack(first::PUBCOMP, message.packet_id);
    client.expect_quiet();
    client.reset();
    again(on).expect_quiet();
}

fn mqtt_4_3_3_6_after_pubrel_the_publish_is_never_sent_again(on: &Stage) {
    let (mut client, message) = received(on, 2);
    client.send_ack(first::PUBREC, message.packet_id);
    client.wait_pubrel(message.packet_id);
    client.reset();
    for _ in 0..2 {
        let mut client = again(on);
        let packets = client.fence();
        assert!(!packets.iter().any(|packet| matches!(packet, Packet::Publish(_))), "{packets:?}");
        client.reset();
    }
}

fn mqtt_4_3_3_7_a_publish_that_was_sent_does_not_expire(on: &Stage) {
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&hello(on));
    client.subscribe(&topic, 2);
    let publish = Publish::new(&topic, "x").qos(2, 1).number(id::MESSAGE_EXPIRY_INTERVAL, 1);
    on.v5("p").deliver(&publish);
    let message = client.recv_publish();
    client.reset();
    crate::let_pass(Duration::from_millis(1_300));
    let mut client = again(on);
    let repeat = client.recv_publish();
    assert_eq!((repeat.packet_id, repeat.dup), (message.packet_id, true));
    client.acknowledge(&repeat);
}

fn mqtt_4_3_3_8_qos_2_is_answered_with_pubrec(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 2);
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, 4711));
    assert_eq!(client.wait_pubrec(4711), 0);
    client.send_ack(first::PUBREL, 4711);
    client.wait_pubcomp(4711);
    assert_eq!(client.take().text(), "x");
}

fn mqtt_4_3_3_9_after_a_refusing_pubrec_the_identifier_is_a_new_message(on: &Stage) {
    // The server refuses a publish to its own `$SYS` tree, if it answers that at all instead of closing.
    let mut client = on.v5("c");
    client.send_publish(&Publish::new("$SYS/broker/conformance", "x").qos(2, 1));
    match client.recv() {
        Packet::PubRec { packet_id: 1, reason: 0x80.., .. } => {}
        // It took it; then there is nothing to show.
        Packet::PubRec { .. } => return,
        Packet::Disconnect { .. } => return client.expect_close(),
        other => panic!("{other:?}"),
    }
    client.subscribe(on.topic("t"), 0);
    assert!(client.deliver(&Publish::new(on.topic("t"), "new").qos(2, 1)) < 0x80);
    assert_eq!(client.take().text(), "new");
}

fn mqtt_4_3_3_10_until_pubrel_a_repeat_is_no_new_message(on: &Stage) {
    let topic = on.topic("t");
    let mut watcher = on.v5("w");
    watcher.subscribe(&topic, 2);
    let (mut client, _) = on.connect(&hello(on));
    let publish = Publish::new(&topic, "once").qos(2, 7);
    client.send_publish(&publish);
    client.wait_pubrec(7);
    client.send_publish(&publish.clone().dup());
    client.wait_pubrec(7);
    // Also on the next connection of the session.
    client.reset();
    let mut client = again(on);
    client.send_publish(&publish.dup());
    client.wait_pubrec(7);
    client.send_ack(first::PUBREL, 7);
    client.wait_pubcomp(7);
    let got = got_before_marker(&mut client, &mut watcher, &topic);
    assert_eq!(got.len(), 1, "{got:?}");
}

fn mqtt_4_3_3_11_pubrel_is_answered_with_pubcomp(on: &Stage) {
    let mut client = on.v5("c");
    for packet_id in [1, 65_535] {
        client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, packet_id));
        client.wait_pubrec(packet_id);
        client.send_ack(first::PUBREL, packet_id);
        assert!(matches!(client.recv(), Packet::PubComp { packet_id: there, reason: 0, .. } if there == packet_id));
    }
}

fn mqtt_4_3_3_12_after_pubcomp_the_identifier_is_a_new_message(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 0);
    client.deliver(&Publish::new(on.topic("t"), "first").qos(2, 1));
    client.deliver(&Publish::new(on.topic("t"), "second").qos(2, 1));
    client.deliver(&Publish::new(on.topic("t"), "third").qos(2, 1).dup());
    assert_eq!([(); 3].map(|()| client.take().text()), ["first", "second", "third"]);
}

fn mqtt_4_3_3_13_an_expired_message_completes_its_acknowledgements(on: &Stage) {
    let mut client = on.v5("c");
    let publish = Publish::new(on.topic("t"), "x").qos(2, 1).number(id::MESSAGE_EXPIRY_INTERVAL, 0);
    client.send_publish(&publish);
    client.wait_pubrec(1);
    client.send_ack(first::PUBREL, 1);
    assert_eq!(client.wait_pubcomp(1), 0);
    // Towards a subscriber: sent, expired, and still acknowledged to the end.
    client.subscribe(on.topic("u"), 2);
    client.deliver(&Publish::new(on.topic("u"), "x").qos(2, 2).number(id::MESSAGE_EXPIRY_INTERVAL, 1));
    let message = client.recv_publish();
    crate::let_pass(Duration::from_millis(1_300));
    client.acknowledge(&message);
    client.expect_quiet();
}

fn mqtt_4_4_0_1_unacknowledged_packets_are_sent_again_after_a_reconnect_only(on: &Stage) {
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&hello(on));
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    for number in 0..6 {
        publisher.publish(&topic, number.to_string(), 1 + number % 2);
    }
    let first_time: Vec<_> = (0..6).map(|_| client.recv_publish()).collect();
    client.send_ack(first::PUBREC, first_time[1].packet_id);
    client.wait_pubrel(first_time[1].packet_id);
    client.send_ack(first::PUBACK, first_time[2].packet_id);
    // No repeat on the same connection, however long it takes.
    crate::let_pass(Duration::from_millis(1_200));
    client.expect_quiet();
    client.reset();
    let mut client = again(on);
    let packets: Vec<_> = (0..5).map(|_| client.recv()).collect();
    client.expect_quiet();
    let ids = |wanted: &dyn Fn(&Packet) -> Option<u16>| packets.iter().filter_map(wanted).collect::<Vec<_>>();
    let publishes = ids(&|packet| match packet {
        Packet::Publish(message) if message.dup => Some(message.packet_id),
        _ => None,
    });
    let pubrels = ids(&|packet| match packet {
        Packet::PubRel { packet_id, .. } => Some(*packet_id),
        _ => None,
    });
    assert_eq!(publishes, [0, 3, 4, 5].map(|at: usize| first_time[at].packet_id));
    assert_eq!(pubrels, [first_time[1].packet_id]);
}

fn mqtt_4_4_0_2_a_refused_message_is_not_sent_again(on: &Stage) {
    for (qos, first_byte) in [(1, first::PUBACK), (2, first::PUBREC)] {
        let (mut client, message) = received(on, qos);
        client.send(&Ack::new(first_byte, message.packet_id).reason(0x83).bytes());
        // Treated as acknowledged: there is no PUBREL for it either.
        client.expect_quiet();
        client.reset();
        again(on).expect_quiet();
        let (client, _) = on.connect(&on.hello(Version::V5, "c"));
        client.disconnect();
    }
}
