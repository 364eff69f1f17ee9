//! Chapters 1 and 2: data representation, fixed header, packet identifiers, properties.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{
    Ack, Packet, Properties, Publish, Subscribe, Unsubscribe, Version, Will, first, id, packet, prefixed, reason,
};

use crate::{BAD_PACKET, ILL_FORMED};

over_tcp_and_websocket! {
    mqtt_1_5_4_1_ill_formed_utf8_is_malformed,
    mqtt_1_5_4_1_ill_formed_utf8_in_connect_is_refused,
    mqtt_1_5_4_2_the_null_character_is_malformed,
    mqtt_1_5_4_3_a_byte_order_mark_is_a_character,
    mqtt_1_5_5_1_a_variable_byte_integer_is_minimal,
    mqtt_1_5_7_1_both_strings_of_a_user_property_are_utf8,
    mqtt_2_1_3_1_reserved_flags_are_malformed,
    mqtt_2_1_3_1_reserved_packet_types_are_malformed,
    mqtt_2_2_1_2_a_qos_0_publish_has_no_packet_identifier,
    mqtt_2_2_1_3_packet_identifier_0_is_refused,
    mqtt_2_2_1_4_the_server_uses_unused_packet_identifiers,
    mqtt_2_2_1_5_acknowledgements_carry_the_identifier_of_the_publish,
    mqtt_2_2_1_6_suback_and_unsuback_carry_the_identifier,
    mqtt_2_2_2_1_no_properties_are_a_length_of_zero,
    mqtt_section_2_2_2_2_unknown_and_misplaced_properties_are_refused,
    mqtt_section_2_2_2_2_a_property_twice_is_refused,
    mqtt_section_2_2_2_2_a_property_length_beyond_the_packet_is_refused,
}

/// Each of these strings where a client can put one after CONNECT.
fn refused_everywhere(on: &Stage, bad: &[u8]) {
    on.refused_after_connect(&Publish::new(bad, "x").bytes(Version::V5), BAD_PACKET);
    on.refused_after_connect(&Subscribe::new(1).filter(bad, 0).bytes(Version::V5), BAD_PACKET);
    on.refused_after_connect(&Unsubscribe::new(1).filter(bad).bytes(Version::V5), BAD_PACKET);
    for property in [id::CONTENT_TYPE, id::RESPONSE_TOPIC] {
        let properties = [&[property][..], &prefixed(bad)].concat();
        on.refused_after_connect(&raw_publish(&on.topic("x"), &properties), BAD_PACKET);
    }
}

/// A QoS 0 PUBLISH with these bytes as its properties.
fn raw_publish(topic: &str, properties: &[u8]) -> Vec<u8> {
    let length = u8::try_from(properties.len()).expect("a short property list");
    packet(first::PUBLISH, &[&prefixed(topic)[..], &[length], properties, b"payload"].concat())
}

fn mqtt_1_5_4_1_ill_formed_utf8_is_malformed(on: &Stage) {
    for bad in ILL_FORMED {
        refused_everywhere(on, bad);
    }
}

fn mqtt_1_5_4_1_ill_formed_utf8_in_connect_is_refused(on: &Stage) {
    for bad in ILL_FORMED.iter().chain(&[&b"a\0b"[..]]) {
        let mut by_client_id = on.hello(Version::V5, "");
        by_client_id.client_id = bad.to_vec();
        let by_will = on.hello(Version::V5, "w").will(Will::new(bad, "x"));
        let by_user_name = on.hello(Version::V5, "u").user_name(bad);
        for connect in [by_client_id, by_will, by_user_name] {
            let code = on.refused_connect(Version::V5, &connect.bytes());
            assert!(matches!(code, None | Some(0x81 | 0x82 | 0x85 | 0x90)), "{code:02X?}");
        }
    }
}

fn mqtt_1_5_4_2_the_null_character_is_malformed(on: &Stage) {
    for bad in [&b"\0"[..], b"a\0b", b"a/\0"] {
        refused_everywhere(on, bad);
    }
}

fn mqtt_1_5_4_3_a_byte_order_mark_is_a_character(on: &Stage) {
    let plain = on.topic("a");
    let marked = on.topic("\u{FEFF}a");
    let mut client = on.v5("c");
    client.subscribe(&plain, 0);
    client.publish(&marked, "marked", 0);
    client.subscribe(&marked, 0);
    client.publish(&marked, "again", 0);
    client.publish(&plain, "plain", 0);
    let got: Vec<_> = (0..2).map(|_| client.take()).map(|message| (message.topic.clone(), message.text())).collect();
    assert_eq!(got, [(marked, "again".to_owned()), (plain, "plain".to_owned())]);
}

fn mqtt_1_5_5_1_a_variable_byte_integer_is_minimal(on: &Stage) {
    // Remaining length of a PINGREQ, property length of a PUBLISH, Subscription Identifier of a SUBSCRIBE; and five bytes of length.
    on.refused_after_connect(&[first::PINGREQ, 0x80, 0x00], BAD_PACKET);
    let topic = prefixed(on.topic("x"));
    on.refused_after_connect(&packet(first::PUBLISH, &[&topic[..], &[0x80, 0x00]].concat()), BAD_PACKET);
    let subscribe = [&[0, 1, 3, id::SUBSCRIPTION_IDENTIFIER, 0x81, 0x00][..], &topic, &[0]].concat();
    on.refused_after_connect(&packet(first::SUBSCRIBE, &subscribe), BAD_PACKET);
    on.refused_after_connect(&[first::PUBLISH, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], BAD_PACKET);
}

fn mqtt_1_5_7_1_both_strings_of_a_user_property_are_utf8(on: &Stage) {
    for bad in ILL_FORMED.iter().chain(&[&b"a\0b"[..]]) {
        for (name, value) in [(*bad, &b"v"[..]), (b"n", bad)] {
            let property = [&[id::USER_PROPERTY][..], &prefixed(name), &prefixed(value)].concat();
            on.refused_after_connect(&raw_publish(&on.topic("x"), &property), BAD_PACKET);
            let length = property.len() as u8;
            let filter = prefixed(on.topic("x"));
            let subscribe = [&[0, 1, length][..], &property, &filter, &[0]].concat();
            on.refused_after_connect(&packet(first::SUBSCRIBE, &subscribe), BAD_PACKET);
        }
    }
}

fn mqtt_2_1_3_1_reserved_flags_are_malformed(on: &Stage) {
    let subscribe = &Subscribe::new(1).filter(on.topic("x"), 0).bytes(Version::V5)[1..];
    let unsubscribe = &Unsubscribe::new(1).filter(on.topic("x")).bytes(Version::V5)[1..];
    for (first_byte, rest) in [
        (0x41, &[2, 0, 1][..]),
        (0x52, &[2, 0, 1]),
        (0x60, &[2, 0, 1]),
        (0x63, &[2, 0, 1]),
        (0x74, &[2, 0, 1]),
        (0x80, subscribe),
        (0x83, subscribe),
        (0xA0, unsubscribe),
        (0xAA, unsubscribe),
        (0xC1, &[0]),
        (0xE1, &[0]),
    ] {
        on.refused_after_connect(&[&[first_byte], rest].concat(), &[reason::MALFORMED]);
    }
    let mut connect = on.hello(Version::V5, "c").bytes();
    connect[0] = 0x11;
    assert!(matches!(on.refused_connect(Version::V5, &connect), None | Some(0x81 | 0x82)));
}

fn mqtt_2_1_3_1_reserved_packet_types_are_malformed(on: &Stage) {
    // Type 0, and the types that only a server sends.
    for bytes in [&[0x00, 0][..], &[0x20, 3, 0, 0, 0], &[0x90, 4, 0, 1, 0, 0], &[0xB0, 4, 0, 1, 0, 0], &[0xD0, 0]] {
        on.refused_after_connect(bytes, BAD_PACKET);
    }
    on.closed_after_connect_v311(&[0xF0, 0]);
}

fn mqtt_2_2_1_2_a_qos_0_publish_has_no_packet_identifier(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 0);
    for qos in 0..3 {
        client.publish(&topic, "payload", qos);
        // An identifier in the packet would be read as the first bytes of properties or payload.
        let message = client.take();
        assert_eq!((message.qos, message.text().as_str()), (0, "payload"));
        assert!(message.properties.is_empty());
    }
}

fn mqtt_2_2_1_3_packet_identifier_0_is_refused(on: &Stage) {
    for qos in [1, 2] {
        on.refused_after_connect(&Publish::new(on.topic("x"), "x").qos(qos, 0).bytes(Version::V5), BAD_PACKET);
    }
    on.refused_after_connect(&Subscribe::new(0).filter(on.topic("x"), 0).bytes(Version::V5), BAD_PACKET);
    on.refused_after_connect(&Unsubscribe::new(0).filter(on.topic("x")).bytes(Version::V5), BAD_PACKET);
    on.refused_after_connect(&Ack::new(first::PUBREL, 0).bytes(), BAD_PACKET);
}

fn mqtt_2_2_1_4_the_server_uses_unused_packet_identifiers(on: &Stage) {
    let topic = on.topic("t");
    let mut subscriber = on.v5("s");
    let mut publisher = on.v5("p");
    subscriber.subscribe(&topic, 2);
    for number in 0..40 {
        publisher.publish(&topic, number.to_string(), 1 + number % 2);
    }
    let mut ids: Vec<_> = (0..40).map(|_| subscriber.recv_publish().packet_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 40, "an identifier was used twice: {ids:?}");
}

fn mqtt_2_2_1_5_acknowledgements_carry_the_identifier_of_the_publish(on: &Stage) {
    let mut client = on.v5("c");
    for packet_id in [1, 255, 256, 0x1234, 65_535] {
        client.send_publish(&Publish::new(on.topic("x"), "x").qos(1, packet_id));
        assert!(matches!(client.recv(), Packet::PubAck { packet_id: there, .. } if there == packet_id));
        client.send_publish(&Publish::new(on.topic("x"), "x").qos(2, packet_id));
        assert!(matches!(client.recv(), Packet::PubRec { packet_id: there, .. } if there == packet_id));
        client.send_ack(first::PUBREL, packet_id);
        assert!(matches!(client.recv(), Packet::PubComp { packet_id: there, .. } if there == packet_id));
    }
    // The other way: PUBREL carries the identifier that the server itself chose.
    client.subscribe(on.topic("y"), 2);
    client.publish(on.topic("y"), "y", 2);
    let message = client.recv_publish();
    client.send_ack(first::PUBREC, message.packet_id);
    assert!(matches!(client.recv(), Packet::PubRel { packet_id, .. } if packet_id == message.packet_id));
}

fn mqtt_2_2_1_6_suback_and_unsuback_carry_the_identifier(on: &Stage) {
    let mut client = on.v5("c");
    for packet_id in [1, 256, 65_535] {
        client.send(&Subscribe::new(packet_id).filter(on.topic("x"), 0).bytes(Version::V5));
        assert!(matches!(client.recv(), Packet::SubAck { packet_id: there, .. } if there == packet_id));
        client.send(&Unsubscribe::new(packet_id).filter(on.topic("x")).bytes(Version::V5));
        assert!(matches!(client.recv(), Packet::UnsubAck { packet_id: there, .. } if there == packet_id));
    }
}

fn mqtt_2_2_2_1_no_properties_are_a_length_of_zero(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 1);
    client.publish(&topic, "", 1);
    let message = client.take();
    // Fixed header 2, topic 2 + n, identifier 2, property length 1, no payload.
    assert_eq!(message.size, 2 + 2 + topic.len() + 2 + 1);
    // And from a client: where the length is missing the packet is too short.
    on.refused_after_connect(&packet(first::PUBLISH, &prefixed(&topic)), BAD_PACKET);
    on.refused_after_connect(&packet(first::SUBSCRIBE, &[0, 1]), BAD_PACKET);
}

fn mqtt_section_2_2_2_2_unknown_and_misplaced_properties_are_refused(on: &Stage) {
    let topic = on.topic("t");
    for properties in [
        &[0x00, 0][..],
        &[0x04, 0],
        &[0x7F, 0],
        &[id::SESSION_EXPIRY_INTERVAL, 0, 0, 0, 1],
        &[id::WILL_DELAY_INTERVAL, 0, 0, 0, 1],
        &[id::RECEIVE_MAXIMUM, 0, 1],
        &[id::REASON_STRING, 0, 1, b'a'],
    ] {
        on.refused_after_connect(&raw_publish(&topic, properties), BAD_PACKET);
    }
    let misplaced = Properties::new().number(id::MESSAGE_EXPIRY_INTERVAL, 1);
    let subscribe = Subscribe::new(1).filter(&topic, 0).properties(misplaced.clone());
    on.refused_after_connect(&subscribe.bytes(Version::V5), BAD_PACKET);
    let identifier = Properties::new().number(id::SUBSCRIPTION_IDENTIFIER, 1);
    let unsubscribe = Unsubscribe::new(1).filter(&topic).properties(identifier);
    on.refused_after_connect(&unsubscribe.bytes(Version::V5), BAD_PACKET);
    let ack = Ack::new(first::PUBACK, 1).reason(0).properties(misplaced);
    on.refused_after_connect(&ack.bytes(), BAD_PACKET);
}

fn mqtt_section_2_2_2_2_a_property_twice_is_refused(on: &Stage) {
    let topic = on.topic("t");
    for (property, value) in [(id::PAYLOAD_FORMAT_INDICATOR, 1), (id::MESSAGE_EXPIRY_INTERVAL, 9), (id::TOPIC_ALIAS, 1)]
    {
        let twice = Publish::new(&topic, "x").number(property, value).number(property, value);
        on.refused_after_connect(&twice.bytes(Version::V5), &[reason::PROTOCOL_ERROR]);
    }
    let subscribe = Subscribe::new(1).identifier(1).identifier(2).filter(&topic, 0);
    on.refused_after_connect(&subscribe.bytes(Version::V5), &[reason::PROTOCOL_ERROR]);
}

fn mqtt_section_2_2_2_2_a_property_length_beyond_the_packet_is_refused(on: &Stage) {
    let topic = prefixed(on.topic("t"));
    // Longer than the body, and cutting a property in two with the payload behind it.
    on.refused_after_connect(&packet(first::PUBLISH, &[&topic[..], &[20, 1, 1]].concat()), &[reason::MALFORMED]);
    let cut = [&topic[..], &[2, id::MESSAGE_EXPIRY_INTERVAL, 0, 0, 0, 9]].concat();
    on.refused_after_connect(&packet(first::PUBLISH, &cut), &[reason::MALFORMED]);
    on.refused_after_connect(&packet(first::SUBSCRIBE, &[0, 1, 0x7F]), &[reason::MALFORMED]);
}
