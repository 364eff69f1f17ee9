//! MQTT 3.1.1 from PUBLISH on, where it differs from 5.0.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Publish, Subscribe, Unsubscribe, Version, first, packet, prefixed};

use crate::{ILL_FORMED, got_before_marker};

over_tcp_and_websocket! {
    mqtt311_1_4_0_1_ill_formed_utf8_closes,
    mqtt311_1_4_0_2_the_null_character_closes,
    mqtt311_2_2_2_2_invalid_flags_close,
    mqtt311_2_3_1_1_packet_identifier_0_closes,
    mqtt311_3_3_1_4_both_qos_bits_close,
    mqtt311_3_3_1_8_retained_messages_have_the_flag_at_subscribe,
    mqtt311_3_3_1_9_established_subscriptions_get_it_without_the_flag,
    mqtt311_3_3_1_10_an_empty_retained_message_removes,
    mqtt311_3_3_2_2_a_topic_with_wildcards_closes,
    mqtt311_3_3_5_1_overlapping_subscriptions_deliver_one_copy,
    mqtt311_3_8_3_3_a_subscribe_without_filter_closes,
    mqtt311_3_8_3_4_reserved_bits_and_qos_3_close,
    mqtt311_3_8_4_3_a_repeated_subscribe_sends_retained_messages_again,
    mqtt311_3_8_4_5_each_filter_has_its_return_code,
    mqtt311_3_9_3_2_a_refused_filter_has_0x80,
    mqtt311_3_10_4_4_unsuback_has_no_payload,
    mqtt311_3_14_1_1_reserved_flags_of_disconnect_close,
    mqtt311_4_3_3_1_qos_2_goes_through_both_hands,
    mqtt311_4_4_0_1_unacknowledged_packets_are_sent_again,
    mqtt311_4_8_0_1_a_violation_closes_without_a_packet,
}

fn mqtt311_1_4_0_1_ill_formed_utf8_closes(on: &Stage) {
    for bad in ILL_FORMED {
        on.closed_after_connect_v311(&Publish::new(bad, "x").bytes(Version::V311));
        on.closed_after_connect_v311(&Subscribe::new(1).filter(bad, 0).bytes(Version::V311));
        on.closed_after_connect_v311(&Unsubscribe::new(1).filter(bad).bytes(Version::V311));
    }
}

fn mqtt311_1_4_0_2_the_null_character_closes(on: &Stage) {
    on.closed_after_connect_v311(&Publish::new("a\0", "x").bytes(Version::V311));
    on.closed_after_connect_v311(&Subscribe::new(1).filter("a\0", 0).bytes(Version::V311));
}

fn mqtt311_2_2_2_2_invalid_flags_close(on: &Stage) {
    let filter = prefixed(on.topic("t"));
    for bytes in [
        packet(0x41, &[0, 1]),
        packet(0x52, &[0, 1]),
        packet(0x60, &[0, 1]),
        packet(0x71, &[0, 1]),
        packet(0x80, &[&[0, 1][..], &filter, &[0]].concat()),
        packet(0xA0, &[&[0, 1][..], &filter].concat()),
        packet(0xC1, &[]),
    ] {
        on.closed_after_connect_v311(&bytes);
    }
}

fn mqtt311_2_3_1_1_packet_identifier_0_closes(on: &Stage) {
    on.closed_after_connect_v311(&Publish::new(on.topic("t"), "x").qos(1, 0).bytes(Version::V311));
    on.closed_after_connect_v311(&Subscribe::new(0).filter(on.topic("t"), 0).bytes(Version::V311));
    on.closed_after_connect_v311(&Unsubscribe::new(0).filter(on.topic("t")).bytes(Version::V311));
}

fn mqtt311_3_3_1_4_both_qos_bits_close(on: &Stage) {
    on.closed_after_connect_v311(&Publish::new(on.topic("t"), "x").qos(3, 1).bytes(Version::V311));
}

fn mqtt311_3_3_1_8_retained_messages_have_the_flag_at_subscribe(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v311("c");
    client.publish_retained(&topic, "x", 2);
    for qos in 0..3 {
        client.subscribe(&topic, qos);
        let message = client.take();
        assert_eq!((message.retain, message.qos), (true, qos));
    }
    client.publish_retained(&topic, "", 1);
}

fn mqtt311_3_3_1_9_established_subscriptions_get_it_without_the_flag(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v311("c");
    client.subscribe(&topic, 2);
    for qos in 0..3 {
        client.publish_retained(&topic, "x", qos);
        assert!(!client.take().retain);
    }
    client.publish_retained(&topic, "", 1);
}

fn mqtt311_3_3_1_10_an_empty_retained_message_removes(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v311("c");
    client.publish_retained(&topic, "x", 1);
    client.subscribe(&topic, 1);
    client.take();
    client.publish_retained(&topic, "", 1);
    let message = client.take();
    assert!(message.payload.is_empty() && !message.retain);
    assert!(crate::retained_by(on, &mut client, &topic, 1).is_empty());
}

fn mqtt311_3_3_2_2_a_topic_with_wildcards_closes(on: &Stage) {
    for name in ["#", "a/+", "+"] {
        on.closed_after_connect_v311(&Publish::new(name, "x").bytes(Version::V311));
    }
}

fn mqtt311_3_3_5_1_overlapping_subscriptions_deliver_one_copy(on: &Stage) {
    // The statement asks for the highest QoS; one copy is what clients of this version rely on.
    let mut client = on.v311("c");
    for (filter, qos) in [("a/#", 0), ("a/+", 1), ("a/b", 2), ("#", 0)] {
        client.subscribe(on.topic(filter), qos);
    }
    let mut publisher = on.v311("p");
    for qos in 0..3 {
        publisher.publish(on.topic("a/b"), "x", qos);
        let got = got_before_marker(&mut publisher, &mut client, &on.topic("a/b"));
        let qualities: Vec<_> = got.iter().map(|message| message.qos).collect();
        assert_eq!(qualities, [qos]);
    }
}

fn mqtt311_3_8_3_3_a_subscribe_without_filter_closes(on: &Stage) {
    on.closed_after_connect_v311(&Subscribe::new(1).bytes(Version::V311));
    on.closed_after_connect_v311(&Unsubscribe::new(1).bytes(Version::V311));
}

fn mqtt311_3_8_3_4_reserved_bits_and_qos_3_close(on: &Stage) {
    for bits in [0x03, 0x04, 0x08, 0x10, 0x40, 0x80] {
        on.closed_after_connect_v311(&Subscribe::new(1).filter(on.topic("t"), bits).bytes(Version::V311));
    }
}

fn mqtt311_3_8_4_3_a_repeated_subscribe_sends_retained_messages_again(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v311("c");
    client.publish_retained(&topic, "x", 1);
    for _ in 0..3 {
        let got = crate::retained_by(on, &mut client, &topic, 1);
        assert!(matches!(got.as_slice(), [message] if message.retain), "{got:?}");
    }
    client.publish_retained(&topic, "", 1);
}

fn mqtt311_3_8_4_5_each_filter_has_its_return_code(on: &Stage) {
    let mut client = on.v311("c");
    let subscribe = Subscribe::new(1).filter(on.topic("a"), 2).filter(on.topic("b"), 0).filter(on.topic("c"), 1);
    assert_eq!(client.send_subscribe(&subscribe), [2, 0, 1]);
}

fn mqtt311_3_9_3_2_a_refused_filter_has_0x80(on: &Stage) {
    for filter in ["a#", "#/a", "+a", "##"] {
        let mut client = on.v311("c");
        client.send(&Subscribe::new(1).filter(filter, 0).filter(on.topic("good"), 1).bytes(Version::V311));
        let packets = client.event(std::time::Instant::now() + holdfast_cluster_tests::transport::PATIENCE);
        match packets {
            Some(holdfast_cluster_tests::client::Event::Packet(Packet::SubAck { codes, .. })) => {
                assert_eq!(codes, [0x80, 1], "{filter}");
                client.expect_quiet();
            }
            Some(holdfast_cluster_tests::client::Event::Closed) => {}
            other => panic!("{filter}: {other:?}"),
        }
    }
}

fn mqtt311_3_10_4_4_unsuback_has_no_payload(on: &Stage) {
    // The parser refuses one.
    let mut client = on.v311("c");
    client.subscribe(on.topic("t"), 0);
    client.send(&Unsubscribe::new(77).filter(on.topic("t")).filter(on.topic("never")).bytes(Version::V311));
    assert!(matches!(client.recv(), Packet::UnsubAck { packet_id: 77, .. }));
    client.publish(on.topic("t"), "x", 0);
    client.expect_quiet();
}

fn mqtt311_3_14_1_1_reserved_flags_of_disconnect_close(on: &Stage) {
    on.closed_after_connect_v311(&[0xE1, 0]);
    // A body is one of 5.0.
    on.closed_after_connect_v311(&[0xE0, 1, 0]);
}

fn mqtt311_4_3_3_1_qos_2_goes_through_both_hands(on: &Stage) {
    let topic = on.topic("t");
    let mut watcher = on.v311("w");
    watcher.subscribe(&topic, 2);
    let (mut client, _) = on.connect(&on.hello(Version::V311, "c").clean(false));
    client.send_publish(&Publish::new(&topic, "once").qos(2, 7));
    client.wait_pubrec(7);
    client.reset();
    let (mut client, ack) = on.connect(&on.hello(Version::V311, "c").clean(false));
    assert!(ack.session_present);
    client.send_publish(&Publish::new(&topic, "once").qos(2, 7).dup());
    client.wait_pubrec(7);
    client.send_ack(first::PUBREL, 7);
    client.wait_pubcomp(7);
    let got = got_before_marker(&mut client, &mut watcher, &topic);
    assert_eq!(got.len(), 1);
    // In 3.1.1 a PUBREL of an unknown identifier is answered as well.
    client.send_ack(first::PUBREL, 7);
    client.wait_pubcomp(7);
    on.v311("c").disconnect();
}

fn mqtt311_4_4_0_1_unacknowledged_packets_are_sent_again(on: &Stage) {
    let hello = on.hello(Version::V311, "c").clean(false);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(on.topic("t"), 2);
    let mut publisher = on.v311("p");
    for qos in [1, 2, 2] {
        publisher.publish(on.topic("t"), "x", qos);
    }
    let ids = [(); 3].map(|()| client.recv_publish().packet_id);
    client.send_ack(first::PUBREC, ids[2]);
    client.wait_pubrel(ids[2]);
    client.reset();
    let (mut client, _) = on.connect(&hello);
    let mut again = [(); 3].map(|()| client.recv());
    client.expect_quiet();
    again.sort_by_key(|packet| matches!(packet, Packet::PubRel { .. }));
    let [Packet::Publish(one), Packet::Publish(two), Packet::PubRel { packet_id, .. }] = &again else {
        panic!("{again:?}")
    };
    assert!(one.dup && two.dup);
    assert_eq!([one.packet_id, two.packet_id, *packet_id], ids);
    on.v311("c").disconnect();
}

fn mqtt311_4_8_0_1_a_violation_closes_without_a_packet(on: &Stage) {
    // There is no DISCONNECT from a server before 5.0; the parser refuses one.
    for bytes in
        [&[0x00, 0][..], &[0x36, 4, 0, 1, b'a', 0], &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F], &[0xF0, 0], &[0xC0, 1, 0]]
    {
        on.closed_after_connect_v311(bytes);
    }
}
