//! Sections 3.8 and 3.9: SUBSCRIBE and SUBACK.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Properties, Subscribe, Version, id, packet, prefixed, reason};

use crate::{BAD_PACKET, ILL_FORMED, got_before_marker};

const NO_LOCAL: u8 = 0x04;

over_tcp_and_websocket! {
    mqtt_3_8_1_1_subscribe_has_its_flags,
    mqtt_3_8_3_1_topic_filters_are_utf8,
    mqtt_3_8_3_2_there_is_at_least_one_topic_filter,
    mqtt_3_8_3_3_no_local_keeps_a_clients_own_messages_away,
    mqtt_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error,
    mqtt_3_8_3_5_reserved_option_bits_are_malformed,
    mqtt_3_8_3_5_qos_3_and_retain_handling_3_are_refused,
    mqtt_3_8_4_1_subscribe_is_answered_with_suback,
    mqtt_3_8_4_2_suback_carries_the_packet_identifier,
    mqtt_3_8_4_3_an_identical_filter_replaces_the_subscription,
    mqtt_3_8_4_4_nothing_is_lost_by_a_replacement,
    mqtt_3_8_4_5_many_filters_are_handled_in_sequence,
    mqtt_3_8_4_6_each_filter_has_its_reason_code,
    mqtt_3_8_4_7_the_reason_code_shows_the_granted_qos,
    mqtt_3_8_4_8_delivery_is_at_the_lower_of_both_qos,
    mqtt_3_9_2_1_suback_stays_within_the_maximum_packet_size,
    mqtt_3_9_3_1_the_reason_codes_are_in_the_order_of_the_filters,
    mqtt_3_9_3_2_the_reason_codes_are_those_of_suback,
}

fn mqtt_3_8_1_1_subscribe_has_its_flags(on: &Stage) {
    let subscribe = Subscribe::new(1).filter(on.topic("t"), 0).bytes(Version::V5);
    for flags in [0, 1, 3, 6, 10, 15] {
        let mut bytes = subscribe.clone();
        bytes[0] = 0x80 | flags;
        on.refused_after_connect(&bytes, &[reason::MALFORMED]);
    }
}

fn mqtt_3_8_3_1_topic_filters_are_utf8(on: &Stage) {
    for bad in ILL_FORMED {
        let filter = [on.topic("").as_bytes(), bad].concat();
        on.refused_after_connect(&Subscribe::new(1).filter(filter, 0).bytes(Version::V5), BAD_PACKET);
    }
    let mut client = on.v5("c");
    let topic = on.topic("ünïcödé/\u{1F980}");
    assert_eq!(client.subscribe(&topic, 1), 1);
    client.publish(&topic, "x", 1);
    assert_eq!(client.take().topic, topic);
}

fn mqtt_3_8_3_2_there_is_at_least_one_topic_filter(on: &Stage) {
    on.refused_after_connect(&Subscribe::new(1).bytes(Version::V5), BAD_PACKET);
    // A filter without options, and one cut short.
    let topic = prefixed(on.topic("t"));
    on.refused_after_connect(&packet(0x82, &[&[0, 1, 0][..], &topic].concat()), BAD_PACKET);
    on.refused_after_connect(&packet(0x82, &[&[0, 1, 0][..], &topic[..5]].concat()), BAD_PACKET);
}

fn mqtt_3_8_3_3_no_local_keeps_a_clients_own_messages_away(on: &Stage) {
    let topic = on.topic("t");
    let mut other = on.v5("other");
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 2 | NO_LOCAL);
    for qos in 0..3 {
        client.publish(&topic, "own", qos);
        other.publish(&topic, "other's", qos);
        assert_eq!(client.take().text(), "other's");
    }
    // The option belongs to the session and outlives the connection.
    client.disconnect();
    let (mut client, _) = on.connect(&hello);
    client.publish(&topic, "own", 1);
    assert!(got_before_marker(&mut other, &mut client, &topic).is_empty());
    // A subscription of the same client without the option still gets its own.
    client.subscribe(on.topic("+"), 0);
    client.publish(&topic, "own", 0);
    assert_eq!(client.take().text(), "own");
}

fn mqtt_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error(on: &Stage) {
    let subscribe = Subscribe::new(1).filter(on.share("t"), 1 | NO_LOCAL).bytes(Version::V5);
    on.refused_after_connect(&subscribe, &[reason::PROTOCOL_ERROR]);
}

fn mqtt_3_8_3_5_reserved_option_bits_are_malformed(on: &Stage) {
    for bits in [0x40, 0x80, 0xC0] {
        let subscribe = Subscribe::new(1).filter(on.topic("a"), 0).filter(on.topic("b"), bits).bytes(Version::V5);
        on.refused_after_connect(&subscribe, BAD_PACKET);
    }
}

fn mqtt_3_8_3_5_qos_3_and_retain_handling_3_are_refused(on: &Stage) {
    for bits in [0x03, 0x30] {
        on.refused_after_connect(&Subscribe::new(1).filter(on.topic("t"), bits).bytes(Version::V5), BAD_PACKET);
    }
    // Subscription Identifier 0 (section 3.8.2.1.2).
    let zero = Subscribe::new(1).identifier(0).filter(on.topic("t"), 0).bytes(Version::V5);
    on.refused_after_connect(&zero, BAD_PACKET);
}

fn mqtt_3_8_4_1_subscribe_is_answered_with_suback(on: &Stage) {
    let mut client = on.v5("c");
    for (number, filter) in ["t", "t/+", "#", "+", "/", "//", "$other", " "].into_iter().enumerate() {
        let packet_id = number as u16 + 1;
        client.send(&Subscribe::new(packet_id).filter(on.topic(filter), 0).bytes(Version::V5));
        assert!(matches!(client.recv(), Packet::SubAck { packet_id: there, .. } if there == packet_id));
    }
}

fn mqtt_3_8_4_2_suback_carries_the_packet_identifier(on: &Stage) {
    let mut client = on.v5("c");
    let ids = [9, 3, 65_535];
    for packet_id in ids {
        client.send(&Subscribe::new(packet_id).filter(on.topic("t"), 0).bytes(Version::V5));
    }
    for expected in ids {
        client
            .wait_for("SUBACK", |packet| matches!(packet, Packet::SubAck { packet_id, .. } if *packet_id == expected));
    }
}

fn mqtt_3_8_4_3_an_identical_filter_replaces_the_subscription(on: &Stage) {
    let filter = on.topic("+");
    let mut client = on.v5("c");
    for qos in [2, 0, 1] {
        client.send_subscribe(&Subscribe::new(50 + u16::from(qos)).identifier(u32::from(qos) + 1).filter(&filter, qos));
        client.publish(on.topic("t"), "x", 2);
        client.publish(on.topic("t"), "marker", 2);
        let message = client.take();
        assert_eq!(message.qos, qos);
        assert_eq!(message.properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER), [u32::from(qos) + 1]);
        assert!(client.take_until("marker").is_empty(), "one subscription, one copy");
    }
    client.unsubscribe(&filter);
    client.publish(on.topic("t"), "x", 2);
    client.expect_quiet();
}

fn mqtt_3_8_4_4_nothing_is_lost_by_a_replacement(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 1);
    let mut publisher = on.v5("p");
    let sending = std::thread::spawn({
        let topic = topic.clone();
        move || {
            for number in 0..300 {
                publisher.publish(&topic, number.to_string(), 1);
            }
            publisher.publish_retained(&topic, "end", 1);
            publisher
        }
    });
    for packet_id in 100..120 {
        client.send(&Subscribe::new(packet_id).filter(&topic, 1 + (packet_id % 2) as u8).bytes(Version::V5));
    }
    let mut expected = 0;
    while expected <= 300 {
        let Packet::Publish(message) = client.recv() else {
            continue;
        };
        client.acknowledge(&message);
        if !message.retain {
            let payload = if expected == 300 { "end".to_owned() } else { expected.to_string() };
            assert_eq!(message.text(), payload);
            expected += 1;
        }
    }
    let mut publisher = sending.join().expect("the publisher is done");
    // Existing retained messages are sent again.
    // All replies to the SUBSCRIBEs of above have come: the marker is behind them.
    publisher.publish(&topic, "marker", 1);
    client.take_until("marker");
    let got = crate::retained_by(on, &mut client, &topic, 1);
    assert!(matches!(got.as_slice(), [message] if message.text() == "end" && message.retain), "{got:?}");
    publisher.publish_retained(&topic, "", 1);
}

fn mqtt_3_8_4_5_many_filters_are_handled_in_sequence(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    // The last of equal filters counts, as in a sequence of packets; the answer is one SUBACK.
    let subscribe = Subscribe::new(1).filter(&topic, 2).filter(on.topic("other"), 0).filter(&topic, 1);
    assert_eq!(client.send_subscribe(&subscribe), [2, 0, 1]);
    client.publish(&topic, "x", 2);
    assert_eq!(client.take().qos, 1);
    client.expect_quiet();
}

fn mqtt_3_8_4_6_each_filter_has_its_reason_code(on: &Stage) {
    let mut client = on.v5("c");
    for count in [1, 2, 50] {
        let mut subscribe = Subscribe::new(count);
        for number in 0..count {
            subscribe = subscribe.filter(on.topic(&number.to_string()), 0);
        }
        assert_eq!(client.send_subscribe(&subscribe).len(), usize::from(count));
    }
}

fn mqtt_3_8_4_7_the_reason_code_shows_the_granted_qos(on: &Stage) {
    let mut client = on.v5("c");
    for qos in 0..3 {
        let granted = client.subscribe(on.topic("t"), qos);
        assert!(granted <= qos, "granted {granted} for {qos}");
        client.publish(on.topic("t"), "x", 2);
        assert_eq!(client.take().qos, granted);
    }
}

fn mqtt_3_8_4_8_delivery_is_at_the_lower_of_both_qos(on: &Stage) {
    let mut publisher = on.v5("p");
    for granted in 0..3 {
        let topic = on.topic(&granted.to_string());
        for qos in 0..3 {
            publisher.publish_retained(on.topic(&format!("{granted}/{qos}")), "retained", qos);
        }
        publisher.fence();
        let mut client = on.v5("c");
        client.subscribe(&topic, granted);
        for qos in 0..3 {
            publisher.publish(&topic, "live", qos);
            assert_eq!(client.take().qos, qos.min(granted));
            client.subscribe(on.topic(&format!("{granted}/{qos}")), granted);
            assert_eq!(client.take().qos, qos.min(granted));
            client.unsubscribe(on.topic(&format!("{granted}/{qos}")));
            publisher.publish_retained(on.topic(&format!("{granted}/{qos}")), "", 1);
        }
    }
}

fn mqtt_3_9_2_1_suback_stays_within_the_maximum_packet_size(on: &Stage) {
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, 24));
    let subscribe = Subscribe::new(1).filter(on.topic("a"), 0).filter(on.topic("b"), 1).filter(on.topic("c"), 2);
    client.send(&subscribe.bytes(Version::V5));
    let Packet::SubAck { codes, properties, .. } = client.recv() else { panic!("no SUBACK") };
    assert_eq!(codes, [0, 1, 2]);
    assert!(2 + 2 + 1 + properties.body().len() + codes.len() <= 24);
}

fn mqtt_3_9_3_1_the_reason_codes_are_in_the_order_of_the_filters(on: &Stage) {
    let mut client = on.v5("c");
    let subscribe = Subscribe::new(1)
        .filter(on.topic("a"), 2)
        .filter(on.topic("b"), 0)
        .filter(on.topic("c"), 1)
        .filter(on.topic("d"), 2);
    assert_eq!(client.send_subscribe(&subscribe), [2, 0, 1, 2]);
}

fn mqtt_3_9_3_2_the_reason_codes_are_those_of_suback(on: &Stage) {
    // The parser knows the list; here are filters that a server may refuse, each way it may.
    for filter in ["#/a", "a#", "$share/g", "$share//t", "$share/+/t", "$share/g/"] {
        let mut client = on.v5("c");
        let user = Properties::new().user("k", "v");
        client.send(&Subscribe::new(1).filter(filter, 0).properties(user).bytes(Version::V5));
        match client.recv() {
            Packet::SubAck { codes, .. } => {
                assert!(codes.len() == 1 && codes[0] >= 0x80, "{filter}: {codes:02X?}");
                client.expect_quiet();
            }
            Packet::Disconnect { reason: 0x81 | 0x82 | 0x8F, .. } => client.expect_close(),
            other => panic!("{filter}: {other:?}"),
        }
    }
}
