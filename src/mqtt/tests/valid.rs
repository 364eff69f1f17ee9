//! The table of what must be accepted, above all the forms that decoders like to refuse; and what is in it.

use super::super::{Packet, Peer, ProtocolVersion, QoS, ReasonCode, RetainHandling, SubscriptionOptions};
use super::{V3_1, V3_1_1, V5, decode_one, id, packet};

use Peer::{Client, Server};

type Row = (&'static str, ProtocolVersion, Peer, u8, &'static [u8]);
type LongerForm = (&'static str, ProtocolVersion, Peer, &'static [u8], &'static [u8]);

/// Every row is in its shortest form, so that encoding it again gives the same bytes.
const ROWS: &[Row] = &[
    ("CONNECT 3.1", V3_1, Client, 0x10, b"\0\x06MQIsdp\x03\x02\0\x3c\0\x01a"),
    ("CONNECT 3.1, long client id", V3_1, Client, 0x10, b"\0\x06MQIsdp\x03\x02\0\x3c\0\x18abcdefghijklmnopqrstuvwx"),
    ("CONNECT 3.1.1", V3_1_1, Client, 0x10, b"\0\x04MQTT\x04\0\0\0\0\x01a"),
    ("CONNECT 3.1.1, empty client id", V3_1_1, Client, 0x10, b"\0\x04MQTT\x04\x02\0\x3c\0\0"),
    ("CONNECT 3.1.1, everything", V3_1_1, Client, 0x10, b"\0\x04MQTT\x04\xF6\xFF\xFF\0\x01a\0\x01w\0\x02\0\xFF\0\x01u\0\x02\xFF\0"),
    ("CONNECT 3.1.1, empty user name and password", V3_1_1, Client, 0x10, b"\0\x04MQTT\x04\xC2\0\x3c\0\x01a\0\0\0\0"),
    ("CONNECT 5.0", V5, Client, 0x10, b"\0\x04MQTT\x05\x02\0\x3c\0\0\0"),
    ("CONNECT 5.0, empty client id without Clean Start", V5, Client, 0x10, b"\0\x04MQTT\x05\0\0\x3c\0\0\0"),
    ("CONNECT 5.0, password without user name", V5, Client, 0x10, b"\0\x04MQTT\x05\x42\0\x3c\0\0\0\0\x01p"),
    ("CONNECT 5.0, every property", V5, Client, 0x10,
        b"\0\x04MQTT\x05\x02\0\x3c\x21\x11\xFF\xFF\xFF\xFF\x21\0\x01\x27\0\0\0\x01\x22\0\0\x19\x01\x17\0\x26\0\0\0\0\x15\0\x01m\x16\0\x01d\0\0"),
    ("CONNECT 5.0, every Will property", V5, Client, 0x10,
        b"\0\x04MQTT\x05\x0E\0\x3c\0\0\0\x1D\x18\0\0\0\0\x01\x01\x02\0\0\0\0\x03\0\x01t\x08\0\x01r\x09\0\0\x26\0\x01n\0\0\0\x01w\0\0"),
    ("CONNECT 5.0, U+FEFF and U+10FFFF", V5, Client, 0x10, b"\0\x04MQTT\x05\x02\0\x3c\0\0\x07\xEF\xBB\xBF\xF4\x8F\xBF\xBF"),
    ("CONNACK 3.1", V3_1, Server, 0x20, b"\0\0"),
    ("CONNACK 3.1.1, session present", V3_1_1, Server, 0x20, b"\x01\0"),
    ("CONNACK 3.1.1, refused", V3_1_1, Server, 0x20, b"\0\x05"),
    ("CONNACK 5.0, no properties", V5, Server, 0x20, b"\0\0\0"),
    ("CONNACK 5.0, session present", V5, Server, 0x20, b"\x01\0\0"),
    ("CONNACK 5.0, every property", V5, Server, 0x20,
        b"\0\0\x3C\x11\0\0\0\0\x21\0\x0A\x24\x01\x25\0\x27\0\0\0\x01\x12\0\x01c\x22\0\x0A\x1F\0\x01r\x26\0\x01n\0\x01v\x28\x01\x29\x01\x2A\0\x13\0\0\x1A\0\x01i\x1C\0\x01s\x15\0\x01m\x16\0\x01d"),
    ("PUBLISH 3.1.1, QoS 0", V3_1_1, Client, 0x30, b"\0\x01apayload"),
    ("PUBLISH 3.1.1, empty payload", V3_1_1, Client, 0x31, b"\0\x01a"),
    ("PUBLISH 3.1, QoS 2 again", V3_1, Server, 0x3D, b"\0\x01a\xFF\xFFx"),
    ("PUBLISH 3.1.1, topic of slashes", V3_1_1, Client, 0x30, b"\0\x03///"),
    ("PUBLISH 3.1.1, spaces and other scripts", V3_1_1, Client, 0x30, "\0\x0A a/\u{3b1}/\u{1F600}\0\x01".as_bytes()),
    ("PUBLISH 5.0, no properties", V5, Client, 0x32, b"\0\x01a\0\x01\0x"),
    ("PUBLISH 5.0, empty topic and alias", V5, Client, 0x30, b"\0\0\x03\x23\0\x01x"),
    ("PUBLISH 5.0, topic and the largest alias", V5, Client, 0x30, b"\0\x01a\x03\x23\xFF\xFFx"),
    ("PUBLISH 5.0, Message Expiry 0", V5, Client, 0x30, b"\0\x01a\x05\x02\0\0\0\0x"),
    ("PUBLISH 5.0, empty Content Type and names", V5, Client, 0x30, b"\0\x01a\x08\x03\0\0\x26\0\0\0\0x"),
    ("PUBLISH 5.0, three Subscription Identifiers", V5, Server, 0x30, b"\0\x01a\x0A\x0B\x01\x0B\x80\x01\x0B\xFF\xFF\xFF\x7Fpayload"),
    ("PUBLISH 5.0, the same User Property twice", V5, Client, 0x30, b"\0\x01a\x0E\x26\0\x01n\0\x01v\x26\0\x01n\0\x01vx"),
    ("PUBLISH 5.0, DUP with QoS 1", V5, Client, 0x3A, b"\0\x01a\0\x01\0"),
    ("PUBACK", V3_1_1, Client, 0x40, b"\0\x01"),
    ("PUBACK 5.0", V5, Client, 0x40, b"\xFF\xFF"),
    ("PUBACK 5.0, reason code alone", V5, Client, 0x40, b"\0\x01\x10"),
    ("PUBACK 5.0, Reason String", V5, Client, 0x40, b"\0\x01\0\x04\x1F\0\x01r"),
    ("PUBREC 5.0, negative", V5, Client, 0x50, b"\0\x01\x97"),
    ("PUBREL", V3_1, Client, 0x62, b"\0\x01"),
    ("PUBREL 5.0", V5, Client, 0x62, b"\0\x01\x92"),
    ("PUBCOMP 5.0, User Properties", V5, Client, 0x70, b"\0\x01\x92\x0A\x26\0\0\0\0\x26\0\0\0\0"),
    ("SUBSCRIBE 3.1.1", V3_1_1, Client, 0x82, b"\0\x01\0\x03a/b\x01\0\x01#\x02\0\x01+\0"),
    ("SUBSCRIBE 5.0", V5, Client, 0x82, b"\0\x01\x02\x0B\x05\0\x0A$share/g/a\x2A\0\x01a\x1D"),
    ("SUBSCRIBE 5.0, the largest Subscription Identifier", V5, Client, 0x82, b"\0\x01\x05\x0B\xFF\xFF\xFF\x7F\0\x01a\0"),
    ("SUBACK 3.1.1", V3_1_1, Server, 0x90, b"\0\x01\0\x01\x02\x80"),
    ("SUBACK 5.0", V5, Server, 0x90, b"\0\x01\0\x02\x8F\xA2"),
    ("UNSUBSCRIBE 3.1.1", V3_1_1, Client, 0xA2, b"\0\x01\0\x01a\0\x03b/#"),
    ("UNSUBSCRIBE 5.0", V5, Client, 0xA2, b"\0\x01\x05\x26\0\0\0\0\0\x01a"),
    ("UNSUBACK 3.1.1", V3_1_1, Server, 0xB0, b"\0\x01"),
    ("UNSUBACK 5.0", V5, Server, 0xB0, b"\0\x01\0\0\x11"),
    ("PINGREQ", V5, Client, 0xC0, b""),
    ("PINGRESP", V3_1, Server, 0xD0, b""),
    ("DISCONNECT 3.1.1", V3_1_1, Client, 0xE0, b""),
    ("DISCONNECT 5.0", V5, Client, 0xE0, b""),
    ("DISCONNECT 5.0, with Will", V5, Client, 0xE0, b"\x04"),
    ("DISCONNECT 5.0, Session Expiry", V5, Client, 0xE0, b"\0\x05\x11\0\0\0\0"),
    ("DISCONNECT 5.0 from the server", V5, Server, 0xE0, b"\x9C\x0B\x1C\0\x01s\x26\0\x01n\0\x01v"),
    ("AUTH, Success", V5, Server, 0xF0, b""),
    ("AUTH, continue", V5, Client, 0xF0, b"\x18\x08\x15\0\x01m\x16\0\x01d"),
    ("AUTH, again", V5, Client, 0xF0, b"\x19\x04\x15\0\x01m"),
];

#[test]
fn every_row_is_accepted_and_written_as_it_was() {
    for (name, version, from, first_byte, body) in ROWS {
        let bytes = packet(*first_byte, body);
        let packet = decode_one(&bytes, *version, *from).unwrap_or_else(|malformed| panic!("{name}: {malformed}"));
        let mut again = Vec::new();
        packet.encode(*version, &mut again);
        assert_eq!(again, bytes, "{name}: {packet:?}");
        assert_eq!(packet.packet_type() as u8, first_byte >> 4, "{name}");
    }
}

/// Legal forms that are longer than they need be, and the shortest form of the same packet.
#[test]
fn longer_forms_are_accepted() {
    let rows: &[LongerForm] = &[
        ("PUBACK with Success", V5, Client, b"\x40\x03\0\x01\0", b"\x40\x02\0\x01"),
        ("PUBACK with Success and no properties", V5, Client, b"\x40\x04\0\x01\0\0", b"\x40\x02\0\x01"),
        ("PUBREC with a reason and no properties", V5, Client, b"\x50\x04\0\x01\x97\0", b"\x50\x03\0\x01\x97"),
        ("DISCONNECT with 0x00", V5, Client, b"\xE0\x01\0", b"\xE0\0"),
        ("DISCONNECT with 0x00 and no properties", V5, Client, b"\xE0\x02\0\0", b"\xE0\0"),
        ("DISCONNECT with a reason and no properties", V5, Client, b"\xE0\x02\x04\0", b"\xE0\x01\x04"),
        ("PUBREL with DUP in 3.1", V3_1, Client, b"\x6A\x02\0\x01", b"\x62\x02\0\x01"),
        ("SUBSCRIBE with DUP in 3.1", V3_1, Client, b"\x8A\x06\0\x01\0\x01a\0", b"\x82\x06\0\x01\0\x01a\0"),
        ("UNSUBSCRIBE with DUP in 3.1", V3_1, Client, b"\xAA\x05\0\x01\0\x01a", b"\xA2\x05\0\x01\0\x01a"),
        ("CONNACK with the reserved byte in 3.1", V3_1, Server, b"\x20\x02\x01\0", b"\x20\x02\0\0"),
        ("CONNECT 3.1 with the unused flag", V3_1, Client, b"\x10\x0F\0\x06MQIsdp\x03\x03\0\x3c\0\x01a", b"\x10\x0F\0\x06MQIsdp\x03\x02\0\x3c\0\x01a"),
        // The Remaining Length takes precedence over the flags in MQTT 3.1.
        ("CONNECT 3.1, flags without user name", V3_1, Client, b"\x10\x0F\0\x06MQIsdp\x03\xC2\0\x3c\0\x01a", b"\x10\x0F\0\x06MQIsdp\x03\x02\0\x3c\0\x01a"),
        ("CONNECT 3.1, flag without password", V3_1, Client, b"\x10\x12\0\x06MQIsdp\x03\xC2\0\x3c\0\x01a\0\x01u", b"\x10\x12\0\x06MQIsdp\x03\x82\0\x3c\0\x01a\0\x01u"),
    ];
    for (name, version, from, bytes, shortest) in rows {
        let packet = decode_one(bytes, *version, *from).unwrap_or_else(|malformed| panic!("{name}: {malformed}"));
        let mut again = Vec::new();
        packet.encode(*version, &mut again);
        assert_eq!(again, *shortest, "{name}: {packet:?}");
    }
}

#[test]
fn a_connect_has_its_fields() {
    let body = b"\0\x04MQTT\x05\xEE\0\x3c\x05\x11\0\0\0\x0A\0\x02id\x05\x18\0\0\0\x07\0\x01w\0\x02\x01\x02\0\x01u\0\x02\xFF\x00";
    let bytes = packet(0x10, body);
    // The version of the connection is what CONNECT says, not what the caller assumes.
    let Ok(Packet::Connect(connect)) = decode_one(&bytes, V3_1, Client) else { panic!("a CONNECT") };
    assert_eq!((connect.version, connect.clean_start, connect.keep_alive_secs), (V5, true, 60));
    assert_eq!((connect.client_id, connect.user_name, connect.password), ("id", Some("u"), Some(&[0xFF, 0][..])));
    assert_eq!(connect.properties.session_expiry_interval(), Some(10));
    let will = connect.will.expect("a Will");
    assert_eq!((will.qos, will.retain, will.topic, will.payload), (QoS::AtLeastOnce, true, "w", &[1, 2][..]));
    assert_eq!(will.properties.will_delay_interval(), Some(7));
}

#[test]
fn a_publish_has_its_fields() {
    let bytes = packet(0x3D, b"\0\x03a/b\x12\x34\x05\x02\0\0\0\x09hello");
    let Ok(Packet::Publish(publish)) = decode_one(&bytes, V5, Client) else { panic!("a PUBLISH") };
    assert_eq!((publish.dup, publish.qos, publish.retain), (true, QoS::ExactlyOnce, true));
    assert_eq!((publish.topic, publish.packet_id, publish.payload), ("a/b", Some(id(0x1234)), &b"hello"[..]));
    assert_eq!(publish.properties.message_expiry_interval(), Some(9));
    assert_eq!(publish.properties.topic_alias(), None);
}

#[test]
fn three_subscription_identifiers_stay_three() {
    let bytes = packet(0x30, b"\0\x01a\x0A\x0B\x01\x0B\x80\x01\x0B\xFF\xFF\xFF\x7Fpayload");
    let Ok(Packet::Publish(publish)) = decode_one(&bytes, V5, Server) else { panic!("a PUBLISH") };
    assert_eq!(publish.properties.subscription_identifiers().collect::<Vec<_>>(), [1, 128, 268_435_455]);
    assert_eq!(publish.properties.subscription_identifier(), Some(1));
    assert_eq!(publish.payload, b"payload");
}

#[test]
fn a_subscribe_has_its_filters_and_options() {
    let bytes = packet(0x82, b"\0\x07\x02\x0B\x05\0\x03a/b\x2D\0\x01#\x02");
    let Ok(Packet::Subscribe(subscribe)) = decode_one(&bytes, V5, Client) else { panic!("a SUBSCRIBE") };
    assert_eq!(subscribe.packet_id, id(7));
    assert_eq!(subscribe.properties.subscription_identifier(), Some(5));
    let first = SubscriptionOptions { qos: QoS::AtLeastOnce, no_local: true, retain_as_published: true, retain_handling: RetainHandling::DoNotSend };
    let second = SubscriptionOptions { qos: QoS::ExactlyOnce, ..SubscriptionOptions::default() };
    assert_eq!(subscribe.filters.iter().collect::<Vec<_>>(), [("a/b", first), ("#", second)]);
}

#[test]
fn subscription_options_map_both_ways() {
    let legal = (0..=u8::MAX).filter(|bits| {
        let options = SubscriptionOptions::from_bits(*bits);
        assert!(options.is_none_or(|options| options.to_bits() == *bits));
        options.is_some()
    });
    // Three QoS, two flags, three ways of Retain Handling.
    assert_eq!(legal.count(), 3 * 2 * 2 * 3);
}

#[test]
fn an_unsubscribe_has_its_filters() {
    let bytes = packet(0xA2, b"\0\x07\0\x03a/b\0\x01#");
    let Ok(Packet::Unsubscribe(unsubscribe)) = decode_one(&bytes, V3_1_1, Client) else { panic!("an UNSUBSCRIBE") };
    assert_eq!(unsubscribe.filters.iter().collect::<Vec<_>>(), ["a/b", "#"]);
}

#[test]
fn return_codes_of_a_connack_become_reason_codes() {
    for version in [V3_1, V3_1_1] {
        let Ok(Packet::ConnAck(connack)) = decode_one(b"\x20\x02\0\x02", version, Server) else { panic!("a CONNACK") };
        assert_eq!(connack.reason, ReasonCode::ClientIdentifierNotValid);
    }
}

#[test]
fn the_versions_are_told_apart() {
    for (version, name, level) in [(V3_1, "MQIsdp", 3), (V3_1_1, "MQTT", 4), (V5, "MQTT", 5)] {
        assert_eq!((version.protocol_name(), version.level()), (name, level));
        assert_eq!(version.is_v5(), level == 5);
    }
}
