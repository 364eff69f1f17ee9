//! Sections 3.15 and 4.12: AUTH and enhanced authentication, which this server does not offer.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Properties, Version, first, id, packet, reason};

use crate::BAD_PACKET;

over_tcp_and_websocket! {
    mqtt_3_15_1_1_reserved_flags_are_malformed,
    mqtt_3_15_2_1_an_auth_with_an_unknown_reason_code_is_refused,
    mqtt_4_12_0_1_an_unknown_method_is_refused,
    mqtt_4_12_0_6_without_method_there_is_no_auth,
    mqtt_4_12_0_7_an_auth_without_method_is_a_protocol_error,
    mqtt_4_12_1_1_a_reauthentication_without_method_is_a_protocol_error,
}

/// An AUTH with a reason and properties.
fn auth(reason: u8, properties: &Properties) -> Vec<u8> {
    packet(first::AUTH, &[&[reason][..], &properties.bytes()].concat())
}

fn with_method() -> Properties {
    Properties::new().text(id::AUTHENTICATION_METHOD, "SCRAM-SHA-1")
}

fn mqtt_3_15_1_1_reserved_flags_are_malformed(on: &Stage) {
    for flags in [1, 2, 15] {
        let mut bytes = auth(0x18, &with_method());
        bytes[0] |= flags;
        on.refused_after_connect(&bytes, BAD_PACKET);
    }
}

fn mqtt_3_15_2_1_an_auth_with_an_unknown_reason_code_is_refused(on: &Stage) {
    for code in [0x01, 0x17, 0x1A, 0x80, 0x87] {
        on.refused_after_connect(&auth(code, &with_method()), BAD_PACKET);
    }
    // Cut short, with a property of other packets, or with data and no method.
    on.refused_after_connect(&packet(first::AUTH, &[0x18, 9]), BAD_PACKET);
    on.refused_after_connect(&auth(0x18, &with_method().number(id::SESSION_EXPIRY_INTERVAL, 1)), BAD_PACKET);
    on.refused_after_connect(&auth(0x18, &Properties::new().binary(id::AUTHENTICATION_DATA, b"x")), BAD_PACKET);
}

fn mqtt_4_12_0_1_an_unknown_method_is_refused(on: &Stage) {
    let connect = on
        .hello(Version::V5, "c")
        .text(id::AUTHENTICATION_METHOD, "SCRAM-SHA-1")
        .properties(with_method().binary(id::AUTHENTICATION_DATA, b"client first"));
    let code = on.refused_connect(Version::V5, &connect.bytes());
    assert!(matches!(code, Some(reason::BAD_AUTHENTICATION_METHOD | reason::NOT_AUTHORIZED)), "{code:02X?}");
    // And before it has been accepted the client's AUTH is of no use.
    let mut client = on.open(Version::V5);
    client.send(&[connect.bytes(), auth(0x18, &with_method())].concat());
    let packets = client.until_closed();
    assert!(matches!(packets.as_slice(), [Packet::ConnAck(ack)] if ack.reason >= 0x80), "{packets:?}");
}

fn mqtt_4_12_0_6_without_method_there_is_no_auth(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").user_name("u").password("p"));
    assert!(!ack.properties.has(id::AUTHENTICATION_METHOD) && !ack.properties.has(id::AUTHENTICATION_DATA));
    client.expect_quiet();
}

fn mqtt_4_12_0_7_an_auth_without_method_is_a_protocol_error(on: &Stage) {
    on.refused_after_connect(&auth(0x18, &with_method()), &[reason::PROTOCOL_ERROR]);
    on.refused_after_connect(&packet(first::AUTH, &[]), BAD_PACKET);
}

fn mqtt_4_12_1_1_a_reauthentication_without_method_is_a_protocol_error(on: &Stage) {
    on.refused_after_connect(&auth(0x19, &with_method()), &[reason::PROTOCOL_ERROR]);
}
