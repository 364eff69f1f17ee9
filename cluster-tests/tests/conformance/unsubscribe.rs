//! Sections 3.10 and 3.11: UNSUBSCRIBE and UNSUBACK; and 3.12: PINGREQ.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Subscribe, Unsubscribe, Version, id, packet, prefixed, reason};

use crate::{BAD_PACKET, ILL_FORMED, got_before_marker};

over_tcp_and_websocket! {
    mqtt_3_10_1_1_unsubscribe_has_its_flags,
    mqtt_3_10_3_1_topic_filters_are_utf8,
    mqtt_3_10_3_2_there_is_at_least_one_topic_filter,
    mqtt_3_10_4_1_filters_are_compared_character_by_character,
    mqtt_3_10_4_2_no_new_messages_after_unsuback,
    mqtt_3_10_4_3_deliveries_that_began_are_completed,
    mqtt_3_10_4_4_unsubscribe_is_answered_with_unsuback,
    mqtt_3_10_4_5_also_where_no_subscription_is_deleted,
    mqtt_3_10_4_6_many_filters_are_one_unsuback,
    mqtt_3_11_2_1_unsuback_stays_within_the_maximum_packet_size,
    mqtt_3_11_3_1_the_reason_codes_are_in_the_order_of_the_filters,
    mqtt_3_11_3_2_the_reason_codes_are_those_of_unsuback,
    mqtt_3_12_4_1_pingreq_is_answered_with_pingresp,
}

fn mqtt_3_10_1_1_unsubscribe_has_its_flags(on: &Stage) {
    let unsubscribe = Unsubscribe::new(1).filter(on.topic("t")).bytes(Version::V5);
    for flags in [0, 1, 3, 6, 10, 15] {
        let mut bytes = unsubscribe.clone();
        bytes[0] = 0xA0 | flags;
        on.refused_after_connect(&bytes, &[reason::MALFORMED]);
    }
}

fn mqtt_3_10_3_1_topic_filters_are_utf8(on: &Stage) {
    for bad in ILL_FORMED.iter().chain(&[&b"a\0"[..]]) {
        on.refused_after_connect(&Unsubscribe::new(1).filter(bad).bytes(Version::V5), BAD_PACKET);
    }
}

fn mqtt_3_10_3_2_there_is_at_least_one_topic_filter(on: &Stage) {
    on.refused_after_connect(&Unsubscribe::new(1).bytes(Version::V5), BAD_PACKET);
    let topic = prefixed(on.topic("t"));
    on.refused_after_connect(&packet(0xA2, &[&[0, 1, 0][..], &topic[..5]].concat()), BAD_PACKET);
}

fn mqtt_3_10_4_1_filters_are_compared_character_by_character(on: &Stage) {
    let mut client = on.v5("c");
    for filter in ["a/+", "a/b"] {
        client.subscribe(on.topic(filter), 0);
    }
    for other in ["a/#", "#", "+/+", "a/c", "A/b", "a/b/", "a"] {
        assert_eq!(client.unsubscribe(on.topic(other)), [reason::NO_SUBSCRIPTION_EXISTED], "{other}");
    }
    assert_eq!(client.unsubscribe(on.topic("a/b")), [0]);
    client.publish(on.topic("a/b"), "still by a/+", 0);
    assert_eq!(client.take().text(), "still by a/+");
    assert_eq!(client.unsubscribe(on.topic("a/+")), [0]);
    client.publish(on.topic("a/b"), "nothing left", 0);
    client.expect_quiet();
}

fn mqtt_3_10_4_2_no_new_messages_after_unsuback(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(on.topic("marker"), 0);
    client.subscribe(&topic, 1);
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "before", 1);
    assert_eq!(client.take().text(), "before");
    client.unsubscribe(&topic);
    for qos in 0..3 {
        publisher.publish(&topic, "after", qos);
    }
    assert!(got_before_marker(&mut publisher, &mut client, &on.topic("marker")).is_empty());
}

fn mqtt_3_10_4_3_deliveries_that_began_are_completed(on: &Stage) {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "one", 1);
    publisher.publish(&topic, "two", 2);
    let (one, two) = (client.recv_publish(), client.recv_publish());
    client.unsubscribe(&topic);
    client.reset();
    // Unacknowledged, so they come again although nobody subscribes any more, and QoS 2 goes to its end.
    let (mut client, _) = on.connect(&hello);
    let again = [client.recv_publish(), client.recv_publish()];
    assert_eq!(again.each_ref().map(|message| message.packet_id), [one.packet_id, two.packet_id]);
    for message in &again {
        assert!(message.dup);
        client.acknowledge(message);
    }
    client.expect_quiet();
}

fn mqtt_3_10_4_4_unsubscribe_is_answered_with_unsuback(on: &Stage) {
    let mut client = on.v5("c");
    for packet_id in [1, 500, 65_535] {
        client.send_subscribe(&Subscribe::new(packet_id).filter(on.topic("t"), 0));
        client.send(&Unsubscribe::new(packet_id).filter(on.topic("t")).bytes(Version::V5));
        assert!(matches!(client.recv(), Packet::UnsubAck { packet_id: there, .. } if there == packet_id));
    }
}

fn mqtt_3_10_4_5_also_where_no_subscription_is_deleted(on: &Stage) {
    let mut client = on.v5("c");
    client.send(&Unsubscribe::new(7).filter(on.topic("never")).bytes(Version::V5));
    assert!(
        matches!(client.recv(), Packet::UnsubAck { packet_id: 7, codes, .. } if codes == [reason::NO_SUBSCRIPTION_EXISTED])
    );
}

fn mqtt_3_10_4_6_many_filters_are_one_unsuback(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("a"), 0);
    client.subscribe(on.topic("b"), 0);
    // In sequence: the second time "a" is gone.
    let unsubscribe = Unsubscribe::new(9).filter(on.topic("a")).filter(on.topic("b")).filter(on.topic("a"));
    client.send(&unsubscribe.bytes(Version::V5));
    let Packet::UnsubAck { packet_id: 9, codes, .. } = client.recv() else { panic!("no UNSUBACK") };
    assert_eq!(codes, [0, 0, reason::NO_SUBSCRIPTION_EXISTED]);
    client.expect_quiet();
}

fn mqtt_3_11_2_1_unsuback_stays_within_the_maximum_packet_size(on: &Stage) {
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, 24));
    client.send(&Unsubscribe::new(9).filter(on.topic("a")).filter(on.topic("b")).bytes(Version::V5));
    let Packet::UnsubAck { codes, properties, .. } = client.recv() else { panic!("no UNSUBACK") };
    assert!(2 + 2 + 1 + properties.body().len() + codes.len() <= 24);
}

fn mqtt_3_11_3_1_the_reason_codes_are_in_the_order_of_the_filters(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("b"), 0);
    let unsubscribe = Unsubscribe::new(9).filter(on.topic("a")).filter(on.topic("b")).filter(on.topic("c"));
    client.send(&unsubscribe.bytes(Version::V5));
    let Packet::UnsubAck { codes, .. } = client.recv() else { panic!("no UNSUBACK") };
    assert_eq!(codes, [0x11, 0, 0x11]);
}

fn mqtt_3_11_3_2_the_reason_codes_are_those_of_unsuback(on: &Stage) {
    // The parser knows the list; here are filters that are none.
    for filter in ["#/a", "a#", "$share/g", "$share/+/t"] {
        let mut client = on.v5("c");
        client.send(&Unsubscribe::new(1).filter(filter).bytes(Version::V5));
        match client.recv() {
            Packet::UnsubAck { codes, .. } => assert!(matches!(codes.as_slice(), [0x11 | 0x80 | 0x8F]), "{codes:02X?}"),
            Packet::Disconnect { reason: 0x81 | 0x82 | 0x8F, .. } => client.expect_close(),
            other => panic!("{filter}: {other:?}"),
        }
    }
}

fn mqtt_3_12_4_1_pingreq_is_answered_with_pingresp(on: &Stage) {
    let mut client = on.v5("c");
    for _ in 0..3 {
        client.expect_quiet();
    }
    // Many at once are many answers.
    client.send(&[0xC0, 0].repeat(100));
    for _ in 0..100 {
        assert_eq!(client.recv(), Packet::PingResp);
    }
    client.expect_quiet();
    // A PINGREQ has no body.
    on.refused_after_connect(&[0xC0, 1, 0], BAD_PACKET);
}
