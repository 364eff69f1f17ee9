//! Section 4.13: malformed packets and protocol errors.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Publish, Subscribe, Version, first, id, packet, prefixed, reason};

use crate::BAD_PACKET;

over_tcp_and_websocket! {
    mqtt_4_13_1_1_an_error_closes_the_connection_with_its_reason,
    mqtt_4_13_1_1_bytes_cut_or_added_are_refused,
    mqtt_4_13_2_1_an_error_code_always_closes,
    mqtt_4_13_2_1_nothing_of_a_bad_packet_takes_effect,
}

fn mqtt_4_13_1_1_an_error_closes_the_connection_with_its_reason(on: &Stage) {
    let topic = on.topic("t");
    for (bytes, reasons) in [
        (packet(0x00, &[]), BAD_PACKET),
        (packet(0x32, &[]), &[reason::MALFORMED]),
        (vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F], &[reason::MALFORMED]),
        (Publish::new(&topic, "x").qos(3, 1).bytes(Version::V5), &[reason::MALFORMED]),
        (on.hello(Version::V5, "d").bytes(), &[reason::PROTOCOL_ERROR]),
        (Publish::new(&topic, "x").number(id::TOPIC_ALIAS, 0).bytes(Version::V5), &[reason::TOPIC_ALIAS_INVALID]),
        (Subscribe::new(1).filter(&topic, 0xC0).bytes(Version::V5), &[reason::MALFORMED]),
        (packet(first::PINGREQ, &[0]), BAD_PACKET),
    ] {
        on.refused_after_connect(&bytes, reasons);
    }
}

fn mqtt_4_13_1_1_bytes_cut_or_added_are_refused(on: &Stage) {
    // Each cut of a body, with the remaining length to match, unless what is left is itself a whole packet.
    let topic = prefixed(on.topic("t"));
    let publish = [&topic[..], &[0, 7, 5, id::MESSAGE_EXPIRY_INTERVAL, 0, 0, 0, 9]].concat();
    for cut in 0..publish.len() {
        on.refused_after_connect(&packet(0x32, &publish[..cut]), BAD_PACKET);
    }
    let subscribe = [&[0, 7, 2, id::SUBSCRIPTION_IDENTIFIER, 1][..], &topic, &[0]].concat();
    for cut in 0..subscribe.len() {
        on.refused_after_connect(&packet(first::SUBSCRIBE, &subscribe[..cut]), BAD_PACKET);
    }
    for (first_byte, body) in [
        (first::SUBSCRIBE, [&subscribe[..], &[0]].concat()),
        (first::UNSUBSCRIBE, [&[0, 7, 0][..], &topic, &[0]].concat()),
        (first::DISCONNECT, vec![0, 0, 0]),
        (first::DISCONNECT, vec![0, 9]),
    ] {
        on.refused_after_connect(&packet(first_byte, &body), BAD_PACKET);
    }
}

fn mqtt_4_13_2_1_an_error_code_always_closes(on: &Stage) {
    // CONNACK and DISCONNECT with 0x80 or more; `refused_connect` and `refused_after_connect` wait for the close.
    let connect = on.hello(Version::V5, "c").text(id::AUTHENTICATION_METHOD, "no-such-method");
    assert!(on.refused_connect(Version::V5, &connect.bytes()).is_some());
    on.refused_after_connect(&packet(first::PINGREQ, &[0]), BAD_PACKET);
    // Reason codes of 0x80 and more in other packets do not close.
    let mut client = on.v5("c");
    client.send_ack(first::PUBREL, 99);
    assert_eq!(client.wait_pubcomp(99), reason::PACKET_ID_NOT_FOUND);
    client.expect_quiet();
}

fn mqtt_4_13_2_1_nothing_of_a_bad_packet_takes_effect(on: &Stage) {
    let topic = on.topic("t");
    let mut watcher = on.v5("w");
    watcher.subscribe(on.topic("#"), 0);
    // A good publish before the bad packet counts, the bad one and what is behind it do not.
    let good = Publish::new(&topic, "before").bytes(Version::V5);
    let bad = Publish::new(&topic, "bad").retained().number(0x7F, 1).bytes(Version::V5);
    let behind = Publish::new(&topic, "behind").retained().bytes(Version::V5);
    let mut client = on.v5("c");
    client.send(&[good, bad, behind].concat());
    client.expect_disconnect(BAD_PACKET);
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "marker", 0);
    let got: Vec<_> = watcher.take_until("marker").iter().map(holdfast_cluster_tests::wire::Message::text).collect();
    assert_eq!(got, ["before"]);
    // A SUBSCRIBE with one bad filter among good ones: none of them is there if the connection was closed.
    let hello = on.hello(Version::V5, "d").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.send(&Subscribe::new(1).filter(&topic, 1).filter(on.topic("x"), 0xC0).bytes(Version::V5));
    client.expect_disconnect(BAD_PACKET);
    publisher.publish(&topic, "unwanted", 1);
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    let packets = client.fence();
    assert!(!packets.iter().any(|packet| matches!(packet, Packet::Publish(_))), "{packets:?}");
}
