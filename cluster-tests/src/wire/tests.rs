//! The parser against bytes written by hand, and builders against the figures of the specification.

use super::*;

#[test]
fn varints_at_the_edges_of_each_length() {
    for (value, bytes) in [
        (0, vec![0]),
        (127, vec![0x7F]),
        (128, vec![0x80, 0x01]),
        (16_383, vec![0xFF, 0x7F]),
        (16_384, vec![0x80, 0x80, 0x01]),
        (268_435_455, vec![0xFF, 0xFF, 0xFF, 0x7F]),
    ] {
        assert_eq!(varint(value), bytes);
    }
}

#[test]
fn a_connect_is_laid_out_as_in_section_3_1() {
    let bytes = Connect::new(Version::V311, "ab").will(Will::new("t", "p").qos(1).retained()).user_name("u").bytes();
    let expected =
        [&[0x10, 23, 0, 4][..], b"MQTT", &[4, 0b1010_1110, 0, 60, 0, 2], b"ab", &[0, 1, b't', 0, 1, b'p', 0, 1, b'u']]
            .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn a_publish_that_arrives_is_read_with_its_properties() {
    let properties = Properties::new().number(id::SUBSCRIPTION_IDENTIFIER, 300).user("a", "b").user("a", "c");
    let bytes = Publish::new("x/y", "hello").qos(1, 7).properties(properties.clone()).bytes(Version::V5);
    let (packet, size) = parse(Version::V5, &bytes).unwrap().unwrap();
    let Packet::Publish(message) = packet else { panic!("not a PUBLISH: {packet:?}") };
    assert_eq!((size, message.packet_id, message.text()), (bytes.len(), 7, "hello".to_owned()));
    assert_eq!(message.properties, properties);
}

#[test]
fn every_prefix_asks_for_more() {
    let bytes = Publish::new("x", vec![b'-'; 200]).bytes(Version::V5);
    for cut in 0..bytes.len() {
        assert_eq!(parse(Version::V5, &bytes[..cut]), Ok(None));
    }
}

#[test]
fn what_a_server_must_not_send_is_an_error() {
    for bytes in [
        &[0x21, 2, 0, 0][..],                  // reserved flags
        &[0x20, 0x83, 0x00, 0, 0, 0],          // remaining length not minimal
        &[0x20, 3, 2, 0, 0],                   // reserved acknowledge flag
        &[0x20, 3, 1, 0x87, 0],                // session present with an error
        &[0x36, 3, 0, 0, 0],                   // QoS 3
        &[0x38, 4, 0, 1, b'a', 0],             // DUP with QoS 0
        &[0x32, 6, 0, 1, b'a', 0, 0, 0],       // packet id 0
        &[0x40, 3, 0, 1, 0x92],                // a PUBREL code in a PUBACK
        &[0xE0, 7, 0, 5, 0x11, 0, 0, 0, 1],    // session expiry from a server
        &[0xE0, 1, 4],                         // DISCONNECT with Will from a server
        &[0xD0, 1, 0],                         // trailing byte
        &[0x10, 0],                            // CONNECT from a server
        &[0x30, 8, 0, 1, b'a', 4, 1, 0, 1, 0], // a property twice
        &[0x90, 4, 0, 1, 0, 3],                // SUBACK with an unknown code
    ] {
        assert!(parse(Version::V5, bytes).is_err(), "{bytes:02X?} was let through");
    }
}
