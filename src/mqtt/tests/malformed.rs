//! The table of what is refused: each row is one packet that is wrong in one way, with the reason code that closes the connection
//! and the rule that is named.

use super::super::{Peer, ProtocolVersion, ReasonCode, connect_version, next_frame};
use super::{V3_1, V3_1_1, V5, decode_one, packet, text};

use Peer::{Client, Server};
use ReasonCode::{
    ClientIdentifierNotValid, MalformedPacket, ProtocolError, TopicAliasInvalid,
    UnsupportedProtocolVersion,
};

type Row<'a> = (&'a str, ProtocolVersion, Peer, u8, &'a [u8], ReasonCode, &'a str);

/// `rule` is what the error must name: a statement, a section or a field.
#[track_caller]
fn check(rows: &[Row<'_>]) {
    for (name, version, from, first_byte, body, reason, rule) in rows {
        let bytes = packet(*first_byte, body);
        match decode_one(&bytes, *version, *from) {
            Ok(packet) => panic!("{name}: accepted as {packet:?}"),
            Err(malformed) => {
                assert_eq!(malformed.reason, *reason, "{name}: {malformed}");
                assert!(malformed.what.contains(rule), "{name}: {malformed}");
            }
        }
    }
}

/// The body of a CONNECT up to and with its Keep Alive, then `rest`.
fn connect(version: ProtocolVersion, flags: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = text(version.protocol_name());
    body.extend_from_slice(&[version.level(), flags, 0, 60]);
    body.extend_from_slice(rest);
    body
}

#[test]
fn fixed_header_and_direction() {
    check(&[
        ("CONNECT from a server", V5, Server, 0x10, &connect(V5, 2, b"\0\0\0"), ProtocolError, "2.1.2"),
        ("CONNACK from a client", V5, Client, 0x20, b"\0\0\0", ProtocolError, "2.1.2"),
        ("SUBSCRIBE from a server", V5, Server, 0x82, b"\0\x01\0\0\x01a\0", ProtocolError, "2.1.2"),
        ("SUBACK from a client", V5, Client, 0x90, b"\0\x01\0\0", ProtocolError, "2.1.2"),
        ("UNSUBSCRIBE from a server", V5, Server, 0xA2, b"\0\x01\0\0\x01a", ProtocolError, "2.1.2"),
        ("UNSUBACK from a client", V5, Client, 0xB0, b"\0\x01\0\0", ProtocolError, "2.1.2"),
        ("PINGREQ from a server", V5, Server, 0xC0, b"", ProtocolError, "2.1.2"),
        ("PINGRESP from a client", V5, Client, 0xD0, b"", ProtocolError, "2.1.2"),
        ("DISCONNECT from a 3.1.1 server", V3_1_1, Server, 0xE0, b"", ProtocolError, "2.1.2"),
        ("AUTH in 3.1.1", V3_1_1, Client, 0xF0, b"", MalformedPacket, "reserved before"),
        ("AUTH in 3.1", V3_1, Client, 0xF0, b"", MalformedPacket, "reserved before"),
        ("PUBREL with DUP in 3.1.1", V3_1_1, Client, 0x6A, b"\0\x01", MalformedPacket, "MQTT-2.1.3-1"),
        ("PUBREL with DUP in 5.0", V5, Client, 0x6A, b"\0\x01", MalformedPacket, "MQTT-2.1.3-1"),
        ("SUBSCRIBE with DUP in 5.0", V5, Client, 0x8A, b"\0\x01\0\0\x01a\0", MalformedPacket, "MQTT-2.1.3-1"),
        ("UNSUBSCRIBE with DUP in 3.1.1", V3_1_1, Client, 0xAA, b"\0\x01\0\x01a", MalformedPacket, "MQTT-2.1.3-1"),
        ("PINGREQ with a body", V3_1_1, Client, 0xC0, b"\0", MalformedPacket, "3.12.2"),
        ("PINGRESP with a body", V5, Server, 0xD0, b"\0", MalformedPacket, "3.13.2"),
    ]);
}

#[test]
fn connect_header() {
    check(&[
        ("empty", V5, Client, 0x10, b"", MalformedPacket, "Protocol Name"),
        ("name cut", V5, Client, 0x10, b"\0\x04MQ", MalformedPacket, "Protocol Name"),
        ("other name", V5, Client, 0x10, b"\0\x04MQTX\x05\x02\0\x3c\0\0\0", UnsupportedProtocolVersion, "MQTT-3.1.2-1"),
        ("name in lower case", V5, Client, 0x10, b"\0\x04mqtt\x04\x02\0\x3c\0\x01a", UnsupportedProtocolVersion, "MQTT-3.1.2-1"),
        ("empty name", V5, Client, 0x10, b"\0\0\x04\x02\0\x3c\0\x01a", UnsupportedProtocolVersion, "MQTT-3.1.2-1"),
        ("level 0", V5, Client, 0x10, b"\0\x04MQTT\0\x02\0\x3c\0\0", UnsupportedProtocolVersion, "MQTT-3.1.2-2"),
        ("MQTT at level 3", V5, Client, 0x10, b"\0\x04MQTT\x03\x02\0\x3c\0\0", UnsupportedProtocolVersion, "MQTT-3.1.2-2"),
        ("level 6", V5, Client, 0x10, b"\0\x04MQTT\x06\x02\0\x3c\0\0\0", UnsupportedProtocolVersion, "MQTT-3.1.2-2"),
        ("MQIsdp at level 4", V5, Client, 0x10, b"\0\x06MQIsdp\x04\x02\0\x3c\0\x01a", UnsupportedProtocolVersion, "MQTT-3.1.2-2"),
        ("a bridge's level", V5, Client, 0x10, b"\0\x04MQTT\x84\x02\0\x3c\0\x01a", UnsupportedProtocolVersion, "MQTT-3.1.2-2"),
        ("no level", V5, Client, 0x10, b"\0\x04MQTT", MalformedPacket, "Protocol Version"),
        ("no flags", V5, Client, 0x10, b"\0\x04MQTT\x05", MalformedPacket, "Connect Flags"),
        ("Keep Alive cut", V5, Client, 0x10, b"\0\x04MQTT\x05\x02\0", MalformedPacket, "Keep Alive"),
        ("no properties", V5, Client, 0x10, &connect(V5, 2, b""), MalformedPacket, "Property Length"),
        ("reserved flag, 5.0", V5, Client, 0x10, &connect(V5, 3, b"\0\0\0"), MalformedPacket, "MQTT-3.1.2-3"),
        ("reserved flag, 3.1.1", V5, Client, 0x10, &connect(V3_1_1, 3, b"\0\0"), MalformedPacket, "MQTT-3.1.2-3"),
        ("Will QoS without Will", V5, Client, 0x10, &connect(V5, 0x0A, b"\0\0\0"), MalformedPacket, "MQTT-3.1.2-11"),
        ("Will QoS 3", V5, Client, 0x10, &connect(V5, 0x1E, b"\0\0\0\0\0\x01w\0\0"), MalformedPacket, "MQTT-3.1.2-12"),
        ("Will QoS 3 without Will", V3_1, Client, 0x10, &connect(V3_1, 0x1A, b"\0\x01a"), MalformedPacket, "MQTT-3.1.2-12"),
        ("Will Retain without Will", V5, Client, 0x10, &connect(V5, 0x22, b"\0\0\0"), MalformedPacket, "MQTT-3.1.2-13"),
        ("password without user name, 3.1.1", V5, Client, 0x10, &connect(V3_1_1, 0x42, b"\0\x01a\0\x01p"), MalformedPacket, "MQTT-3.1.2-22"),
        ("password without user name, 3.1", V5, Client, 0x10, &connect(V3_1, 0x42, b"\0\x01a\0\x01p"), MalformedPacket, "MQTT-3.1.2-22"),
    ]);
}

#[test]
fn connect_payload() {
    check(&[
        ("no client id", V5, Client, 0x10, &connect(V3_1_1, 2, b""), MalformedPacket, "Client Identifier"),
        ("client id cut", V5, Client, 0x10, &connect(V3_1_1, 2, b"\0\x05abc"), MalformedPacket, "Client Identifier"),
        ("client id not UTF-8", V5, Client, 0x10, &connect(V5, 2, b"\0\0\x02\xC3\x28"), MalformedPacket, "MQTT-1.5.4-1"),
        ("client id with a surrogate", V5, Client, 0x10, &connect(V5, 2, b"\0\0\x03\xED\xA0\x80"), MalformedPacket, "MQTT-1.5.4-1"),
        ("client id with U+0000", V5, Client, 0x10, &connect(V5, 2, b"\0\0\x03a\0b"), MalformedPacket, "MQTT-1.5.4-2"),
        ("empty client id, 3.1", V5, Client, 0x10, &connect(V3_1, 2, b"\0\0"), ClientIdentifierNotValid, "MQTT-3.1.3-8"),
        ("empty client id without Clean Session", V5, Client, 0x10, &connect(V3_1_1, 0, b"\0\0"), ClientIdentifierNotValid, "MQTT-3.1.3-8"),
        ("no Will Properties", V5, Client, 0x10, &connect(V5, 6, b"\0\0\0"), MalformedPacket, "Property Length"),
        ("no Will Topic", V5, Client, 0x10, &connect(V5, 6, b"\0\0\0\0"), MalformedPacket, "Will Topic"),
        ("empty Will Topic", V5, Client, 0x10, &connect(V5, 6, b"\0\0\0\0\0\0\0\0"), MalformedPacket, "MQTT-4.7.3-1"),
        ("Will Topic with +", V5, Client, 0x10, &connect(V5, 6, b"\0\0\0\0\0\x03a/+\0\0"), MalformedPacket, "MQTT-4.7.0-1"),
        ("Will Topic with #", V5, Client, 0x10, &connect(V3_1_1, 6, b"\0\0\0\x01#\0\0"), MalformedPacket, "MQTT-4.7.0-1"),
        ("Will Topic with U+0000", V5, Client, 0x10, &connect(V3_1_1, 6, b"\0\0\0\x01\0\0\0"), MalformedPacket, "MQTT-1.5.4-2"),
        ("no Will Payload", V5, Client, 0x10, &connect(V5, 6, b"\0\0\0\0\0\x01w"), MalformedPacket, "Will Payload"),
        ("Will Payload cut", V5, Client, 0x10, &connect(V5, 6, b"\0\0\0\0\0\x01w\0\x02x"), MalformedPacket, "Will Payload"),
        ("no user name", V5, Client, 0x10, &connect(V5, 0x82, b"\0\0\0"), MalformedPacket, "User Name"),
        ("no user name, 3.1.1", V5, Client, 0x10, &connect(V3_1_1, 0x82, b"\0\0"), MalformedPacket, "User Name"),
        ("user name cut, 3.1", V5, Client, 0x10, &connect(V3_1, 0x82, b"\0\x01a\0\x05u"), MalformedPacket, "User Name"),
        ("user name not UTF-8", V5, Client, 0x10, &connect(V5, 0x82, b"\0\0\0\0\x01\xFF"), MalformedPacket, "MQTT-1.5.4-1"),
        ("user name with U+0000", V5, Client, 0x10, &connect(V5, 0x82, b"\0\0\0\0\x01\0"), MalformedPacket, "MQTT-1.5.4-2"),
        ("no password", V5, Client, 0x10, &connect(V5, 0xC2, b"\0\0\0\0\x01u"), MalformedPacket, "Password"),
        ("password cut", V5, Client, 0x10, &connect(V5, 0x42, b"\0\0\0\0\x02p"), MalformedPacket, "Password"),
        ("trailing byte, 5.0", V5, Client, 0x10, &connect(V5, 2, b"\0\0\0\0"), MalformedPacket, "3.1.3"),
        ("trailing byte, 3.1.1", V5, Client, 0x10, &connect(V3_1_1, 2, b"\0\x01a\0"), MalformedPacket, "3.1.3"),
        ("user name without its flag", V5, Client, 0x10, &connect(V5, 2, b"\0\0\0\0\x01u"), MalformedPacket, "3.1.3"),
        ("Will without its flag", V5, Client, 0x10, &connect(V3_1_1, 2, b"\0\x01a\0\x01w\0\0"), MalformedPacket, "3.1.3"),
    ]);
}

#[test]
fn connect_properties() {
    let with = |properties: &[u8]| {
        let mut rest = vec![properties.len() as u8];
        rest.extend_from_slice(properties);
        rest.extend_from_slice(b"\0\0");
        connect(V5, 2, &rest)
    };
    let will = |properties: &[u8]| {
        let mut rest = vec![0, 0, 0, properties.len() as u8];
        rest.extend_from_slice(properties);
        rest.extend_from_slice(b"\0\x01w\0\0");
        connect(V5, 6, &rest)
    };
    check(&[
        ("Property Length not minimal", V5, Client, 0x10, &connect(V5, 2, b"\x80\0\0\0"), MalformedPacket, "MQTT-1.5.5-1"),
        ("Property Length of five bytes", V5, Client, 0x10, &connect(V5, 2, b"\x80\x80\x80\x80\x01\0\0"), MalformedPacket, "1.5.5"),
        ("Property Length beyond the packet", V5, Client, 0x10, &connect(V5, 2, b"\x05\0\0"), MalformedPacket, "Properties"),
        ("property beyond its length", V5, Client, 0x10, &connect(V5, 2, b"\x03\x11\0\0\0\x0A\0\0"), MalformedPacket, "Session Expiry Interval"),
        ("unknown property 0", V5, Client, 0x10, &with(b"\0\0"), MalformedPacket, "unknown"),
        ("unknown property 0x2B", V5, Client, 0x10, &with(b"\x2B\0"), MalformedPacket, "unknown"),
        ("identifier not minimal", V5, Client, 0x10, &with(b"\x91\0\0\0\0\x0A"), MalformedPacket, "unknown"),
        ("property of PUBLISH", V5, Client, 0x10, &with(b"\x23\0\x01"), MalformedPacket, "not one of this packet"),
        ("property of CONNACK", V5, Client, 0x10, &with(b"\x13\0\x01"), MalformedPacket, "not one of this packet"),
        ("Will Delay outside the Will", V5, Client, 0x10, &with(b"\x18\0\0\0\x01"), MalformedPacket, "not one of this packet"),
        ("Session Expiry twice", V5, Client, 0x10, &with(b"\x11\0\0\0\x01\x11\0\0\0\x01"), ProtocolError, "more than once"),
        ("Receive Maximum twice", V5, Client, 0x10, &with(b"\x21\0\x01\x21\0\x01"), ProtocolError, "more than once"),
        ("Receive Maximum 0", V5, Client, 0x10, &with(b"\x21\0\0"), ProtocolError, "3.1.2.11.3"),
        ("Maximum Packet Size 0", V5, Client, 0x10, &with(b"\x27\0\0\0\0"), ProtocolError, "3.1.2.11.4"),
        ("Request Response Information 2", V5, Client, 0x10, &with(b"\x19\x02"), ProtocolError, "0 and 1"),
        ("Request Problem Information 2", V5, Client, 0x10, &with(b"\x17\x02"), ProtocolError, "0 and 1"),
        ("Authentication Data alone", V5, Client, 0x10, &with(b"\x16\0\x01d"), ProtocolError, "3.1.2.11.10"),
        ("Authentication Method twice", V5, Client, 0x10, &with(b"\x15\0\x01m\x15\0\x01m"), ProtocolError, "more than once"),
        ("User Property cut", V5, Client, 0x10, &with(b"\x26\0\x01n"), MalformedPacket, "User Property, value"),
        ("User Property with U+0000", V5, Client, 0x10, &with(b"\x26\0\x01\0\0\x01v"), MalformedPacket, "MQTT-1.5.4-2"),
        ("User Property not UTF-8", V5, Client, 0x10, &with(b"\x26\0\x01n\0\x01\xFE"), MalformedPacket, "MQTT-1.5.4-1"),
        ("Will: Topic Alias", V5, Client, 0x10, &will(b"\x23\0\x01"), MalformedPacket, "not one of this packet"),
        ("Will: Subscription Identifier", V5, Client, 0x10, &will(b"\x0B\x01"), MalformedPacket, "not one of this packet"),
        ("Will: Session Expiry", V5, Client, 0x10, &will(b"\x11\0\0\0\x01"), MalformedPacket, "not one of this packet"),
        ("Will: Will Delay twice", V5, Client, 0x10, &will(b"\x18\0\0\0\x01\x18\0\0\0\x01"), ProtocolError, "more than once"),
        ("Will: Payload Format 2", V5, Client, 0x10, &will(b"\x01\x02"), ProtocolError, "0 and 1"),
        ("Will: Response Topic with #", V5, Client, 0x10, &will(b"\x08\0\x03a/#"), ProtocolError, "MQTT-3.3.2-14"),
    ]);
}

#[test]
fn connack() {
    check(&[
        ("empty", V5, Server, 0x20, b"", MalformedPacket, "Acknowledge Flags"),
        ("no reason code", V3_1_1, Server, 0x20, b"\0", MalformedPacket, "Reason Code"),
        ("no properties", V5, Server, 0x20, b"\0\0", MalformedPacket, "Property Length"),
        ("properties before 5.0", V3_1_1, Server, 0x20, b"\0\0\0", MalformedPacket, "3.2.3"),
        ("reserved flags", V5, Server, 0x20, b"\x02\0\0", MalformedPacket, "MQTT-3.2.2-1"),
        ("reserved flags, 3.1.1", V3_1_1, Server, 0x20, b"\x80\0", MalformedPacket, "MQTT-3.2.2-1"),
        ("Session Present in a refusal", V5, Server, 0x20, b"\x01\x87\0", ProtocolError, "MQTT-3.2.2-6"),
        ("Session Present in a refusal, 3.1.1", V3_1_1, Server, 0x20, b"\x01\x05", ProtocolError, "MQTT-3.2.2-6"),
        ("return code 6", V3_1_1, Server, 0x20, b"\0\x06", ProtocolError, "Reason Code"),
        ("Maximum QoS 2", V5, Server, 0x20, b"\0\0\x02\x24\x02", ProtocolError, "3.2.2.3.4"),
        ("Retain Available 2", V5, Server, 0x20, b"\0\0\x02\x25\x02", ProtocolError, "0 and 1"),
        ("Receive Maximum 0", V5, Server, 0x20, b"\0\0\x03\x21\0\0", ProtocolError, "Receive Maximum"),
        ("Maximum Packet Size 0", V5, Server, 0x20, b"\0\0\x05\x27\0\0\0\0", ProtocolError, "Maximum Packet Size"),
        ("Authentication Data alone", V5, Server, 0x20, b"\0\0\x04\x16\0\x01d", ProtocolError, "Authentication Data"),
        ("Server Keep Alive twice", V5, Server, 0x20, b"\0\0\x06\x13\0\x01\x13\0\x01", ProtocolError, "more than once"),
        ("property of CONNECT", V5, Server, 0x20, b"\0\0\x02\x17\0", MalformedPacket, "not one of this packet"),
        ("trailing byte", V5, Server, 0x20, b"\0\0\0\0", MalformedPacket, "3.2.3"),
    ]);
}

#[test]
fn publish() {
    check(&[
        ("empty", V3_1_1, Client, 0x30, b"", MalformedPacket, "Topic Name"),
        ("topic cut", V3_1_1, Client, 0x30, b"\0\x03a", MalformedPacket, "Topic Name"),
        ("topic length cut", V3_1_1, Client, 0x30, b"\0", MalformedPacket, "Topic Name"),
        ("topic not UTF-8", V3_1_1, Client, 0x30, b"\0\x01\xFF", MalformedPacket, "MQTT-1.5.4-1"),
        ("topic with an overlong form", V3_1_1, Client, 0x30, b"\0\x02\xC0\x80", MalformedPacket, "MQTT-1.5.4-1"),
        ("topic with a surrogate", V5, Client, 0x30, b"\0\x03\xED\xBF\xBF\0", MalformedPacket, "MQTT-1.5.4-1"),
        ("topic beyond U+10FFFF", V5, Client, 0x30, b"\0\x04\xF4\x90\x80\x80\0", MalformedPacket, "MQTT-1.5.4-1"),
        ("topic with U+0000", V3_1_1, Client, 0x30, b"\0\x03a\0b", MalformedPacket, "MQTT-1.5.4-2"),
        ("topic with +", V3_1_1, Client, 0x30, b"\0\x03a/+", MalformedPacket, "MQTT-3.3.2-2"),
        ("topic with #", V5, Client, 0x30, b"\0\x03a/#\0", MalformedPacket, "MQTT-3.3.2-2"),
        ("topic with # from the server", V5, Server, 0x30, b"\0\x03a/#\0", MalformedPacket, "MQTT-3.3.2-2"),
        ("empty topic, 3.1.1", V3_1_1, Client, 0x30, b"\0\0payload", ProtocolError, "3.3.2.1"),
        ("empty topic, 3.1", V3_1, Client, 0x30, b"\0\0", ProtocolError, "3.3.2.1"),
        ("empty topic without alias", V5, Client, 0x30, b"\0\0\0", ProtocolError, "3.3.2.1"),
        ("empty topic, other property", V5, Client, 0x30, b"\0\0\x05\x02\0\0\0\x01", ProtocolError, "3.3.2.1"),
        ("DUP with QoS 0", V3_1_1, Client, 0x38, b"\0\x01a", MalformedPacket, "MQTT-3.3.1-2"),
        ("QoS 3", V5, Client, 0x36, b"\0\x01a\0\x01\0", MalformedPacket, "MQTT-3.3.1-4"),
        ("no packet id", V3_1_1, Client, 0x32, b"\0\x01a", MalformedPacket, "Packet Identifier"),
        ("packet id cut", V3_1_1, Client, 0x34, b"\0\x01a\0", MalformedPacket, "Packet Identifier"),
        ("packet id 0", V3_1_1, Client, 0x32, b"\0\x01a\0\0", ProtocolError, "MQTT-2.2.1-3"),
        ("packet id 0, QoS 2", V5, Client, 0x34, b"\0\x01a\0\0\0", ProtocolError, "MQTT-2.2.1-3"),
        ("no properties", V5, Client, 0x30, b"\0\x01a", MalformedPacket, "Property Length"),
        ("properties beyond the packet", V5, Client, 0x30, b"\0\x01a\x09\x02\0\0\0", MalformedPacket, "Properties"),
        ("property crosses into the payload", V5, Client, 0x30, b"\0\x01a\x03\x02\0\0\0\x01payload", MalformedPacket, "Message Expiry Interval"),
        ("string crosses into the payload", V5, Client, 0x30, b"\0\x01a\x04\x03\0\x05abcde", MalformedPacket, "Content Type"),
        ("Property Length not minimal", V5, Client, 0x30, b"\0\x01a\x80\0", MalformedPacket, "MQTT-1.5.5-1"),
        ("Property Length cut", V5, Client, 0x30, b"\0\x01a\x80", MalformedPacket, "Property Length"),
        ("Topic Alias 0", V5, Client, 0x30, b"\0\x01a\x03\x23\0\0", TopicAliasInvalid, "MQTT-3.3.2-8"),
        ("Topic Alias twice", V5, Client, 0x30, b"\0\x01a\x06\x23\0\x01\x23\0\x01", ProtocolError, "more than once"),
        ("Topic Alias cut", V5, Client, 0x30, b"\0\x01a\x02\x23\0", MalformedPacket, "Topic Alias"),
        ("Payload Format 2", V5, Client, 0x30, b"\0\x01a\x02\x01\x02", ProtocolError, "0 and 1"),
        ("Payload Format twice", V5, Client, 0x30, b"\0\x01a\x04\x01\x01\x01\x01", ProtocolError, "more than once"),
        ("Message Expiry twice", V5, Client, 0x30, b"\0\x01a\x0A\x02\0\0\0\x01\x02\0\0\0\x01", ProtocolError, "more than once"),
        ("Content Type twice", V5, Client, 0x30, b"\0\x01a\x06\x03\0\0\x03\0\0", ProtocolError, "more than once"),
        ("Content Type with U+0000", V5, Client, 0x30, b"\0\x01a\x04\x03\0\x01\0", MalformedPacket, "MQTT-1.5.4-2"),
        ("Correlation Data twice", V5, Client, 0x30, b"\0\x01a\x06\x09\0\0\x09\0\0", ProtocolError, "more than once"),
        ("Response Topic with +", V5, Client, 0x30, b"\0\x01a\x04\x08\0\x01+", ProtocolError, "MQTT-3.3.2-14"),
        ("Response Topic empty", V5, Client, 0x30, b"\0\x01a\x03\x08\0\0", ProtocolError, "MQTT-4.7.3-1"),
        ("Response Topic twice", V5, Client, 0x30, b"\0\x01a\x08\x08\0\x01r\x08\0\x01r", ProtocolError, "more than once"),
        ("Subscription Identifier from a client", V5, Client, 0x30, b"\0\x01a\x02\x0B\x01", ProtocolError, "MQTT-3.3.4-6"),
        ("Subscription Identifier 0", V5, Server, 0x30, b"\0\x01a\x02\x0B\0", ProtocolError, "3.8.2.1.2"),
        ("Subscription Identifier not minimal", V5, Server, 0x30, b"\0\x01a\x03\x0B\x81\0", MalformedPacket, "MQTT-1.5.5-1"),
        ("Subscription Identifier of five bytes", V5, Server, 0x30, b"\0\x01a\x06\x0B\x80\x80\x80\x80\x01", MalformedPacket, "1.5.5"),
        ("Reason String", V5, Client, 0x30, b"\0\x01a\x03\x1F\0\0", MalformedPacket, "not one of this packet"),
        ("Will Delay", V5, Client, 0x30, b"\0\x01a\x05\x18\0\0\0\x01", MalformedPacket, "not one of this packet"),
    ]);
}

#[test]
fn acknowledgements() {
    for first_byte in [0x40, 0x50, 0x62, 0x70] {
        check(&[
            ("empty", V5, Client, first_byte, b"", MalformedPacket, "Packet Identifier"),
            ("packet id cut", V3_1_1, Client, first_byte, b"\0", MalformedPacket, "Packet Identifier"),
            ("packet id 0", V3_1_1, Client, first_byte, b"\0\0", ProtocolError, "MQTT-2.2.1-3"),
            ("packet id 0, 5.0", V5, Server, first_byte, b"\0\0\0\0", ProtocolError, "MQTT-2.2.1-3"),
            ("reason code before 5.0", V3_1_1, Client, first_byte, b"\0\x01\0", MalformedPacket, "3.4.1"),
            ("reason code in 3.1", V3_1, Client, first_byte, b"\0\x01\0", MalformedPacket, "3.4.1"),
            ("unknown reason code", V5, Client, first_byte, b"\0\x01\x03", ProtocolError, "Reason Code"),
            ("Property Length not minimal", V5, Client, first_byte, b"\0\x01\0\x80\0", MalformedPacket, "MQTT-1.5.5-1"),
            ("Property Length beyond the packet", V5, Client, first_byte, b"\0\x01\0\x04", MalformedPacket, "Properties"),
            ("Reason String twice", V5, Client, first_byte, b"\0\x01\0\x06\x1F\0\0\x1F\0\0", ProtocolError, "more than once"),
            ("Server Reference", V5, Client, first_byte, b"\0\x01\0\x03\x1C\0\0", MalformedPacket, "not one of this packet"),
            ("trailing byte", V5, Client, first_byte, b"\0\x01\0\0\0", MalformedPacket, "3.4.2"),
        ]);
    }
}

#[test]
fn subscribe() {
    check(&[
        ("empty", V3_1_1, Client, 0x82, b"", MalformedPacket, "Packet Identifier"),
        ("packet id 0", V3_1_1, Client, 0x82, b"\0\0\0\x01a\0", ProtocolError, "MQTT-2.2.1-3"),
        ("no filters", V3_1_1, Client, 0x82, b"\0\x01", ProtocolError, "MQTT-3.8.3-2"),
        ("no filters, 5.0", V5, Client, 0x82, b"\0\x01\0", ProtocolError, "MQTT-3.8.3-2"),
        ("no properties", V5, Client, 0x82, b"\0\x01", MalformedPacket, "Property Length"),
        ("filter cut", V3_1_1, Client, 0x82, b"\0\x01\0\x05a", MalformedPacket, "Topic Filter"),
        ("no options", V3_1_1, Client, 0x82, b"\0\x01\0\x01a", MalformedPacket, "Subscription Options"),
        ("second filter without options", V5, Client, 0x82, b"\0\x01\0\0\x01a\0\0\x01b", MalformedPacket, "Subscription Options"),
        ("empty filter", V3_1_1, Client, 0x82, b"\0\x01\0\0\0", MalformedPacket, "MQTT-4.7.3-1"),
        ("filter not UTF-8", V5, Client, 0x82, b"\0\x01\0\0\x01\xC3\0", MalformedPacket, "MQTT-1.5.4-1"),
        ("filter with U+0000", V5, Client, 0x82, b"\0\x01\0\0\x01\0\0", MalformedPacket, "MQTT-1.5.4-2"),
        ("QoS 3, 3.1.1", V3_1_1, Client, 0x82, b"\0\x01\0\x01a\x03", ProtocolError, "QoS 3"),
        ("QoS 3, 5.0", V5, Client, 0x82, b"\0\x01\0\0\x01a\x03", ProtocolError, "QoS 3"),
        ("options of 5.0 in 3.1.1", V3_1_1, Client, 0x82, b"\0\x01\0\x01a\x04", MalformedPacket, "MQTT-3.8.3-5"),
        ("options of 5.0 in 3.1", V3_1, Client, 0x82, b"\0\x01\0\x01a\x11", MalformedPacket, "MQTT-3.8.3-5"),
        ("reserved bit 6", V5, Client, 0x82, b"\0\x01\0\0\x01a\x40", MalformedPacket, "MQTT-3.8.3-5"),
        ("reserved bit 7", V5, Client, 0x82, b"\0\x01\0\0\x01a\x80", MalformedPacket, "MQTT-3.8.3-5"),
        ("Retain Handling 3", V5, Client, 0x82, b"\0\x01\0\0\x01a\x30", ProtocolError, "Retain Handling"),
        ("No Local on a shared subscription", V5, Client, 0x82, b"\0\x01\0\0\x0A$share/g/a\x04", ProtocolError, "MQTT-3.8.3-4"),
        ("Subscription Identifier 0", V5, Client, 0x82, b"\0\x01\x02\x0B\0\0\x01a\0", ProtocolError, "3.8.2.1.2"),
        ("Subscription Identifier twice", V5, Client, 0x82, b"\0\x01\x04\x0B\x01\x0B\x02\0\x01a\0", ProtocolError, "more than once"),
        ("Subscription Identifier cut", V5, Client, 0x82, b"\0\x01\x02\x0B\x80\0\x01a\0", MalformedPacket, "Subscription Identifier"),
        ("Topic Alias", V5, Client, 0x82, b"\0\x01\x03\x23\0\x01\0\x01a\0", MalformedPacket, "not one of this packet"),
    ]);
}

#[test]
fn suback() {
    check(&[
        ("empty", V5, Server, 0x90, b"", MalformedPacket, "Packet Identifier"),
        ("packet id 0", V5, Server, 0x90, b"\0\0\0\0", ProtocolError, "MQTT-2.2.1-3"),
        ("no codes", V5, Server, 0x90, b"\0\x01\0", ProtocolError, "MQTT-3.9.3-1"),
        ("no codes, 3.1.1", V3_1_1, Server, 0x90, b"\0\x01", ProtocolError, "MQTT-3.9.3-1"),
        ("unknown code", V5, Server, 0x90, b"\0\x01\0\x03", ProtocolError, "MQTT-3.9.3-2"),
        ("code of 5.0 in 3.1.1", V3_1_1, Server, 0x90, b"\0\x01\0\x87", ProtocolError, "MQTT-3.9.3-2"),
        ("Subscription Identifier", V5, Server, 0x90, b"\0\x01\x02\x0B\x01\0", MalformedPacket, "not one of this packet"),
    ]);
}

#[test]
fn unsubscribe_and_unsuback() {
    check(&[
        ("no filters", V3_1_1, Client, 0xA2, b"\0\x01", ProtocolError, "MQTT-3.10.3-2"),
        ("no filters, 5.0", V5, Client, 0xA2, b"\0\x01\0", ProtocolError, "MQTT-3.10.3-2"),
        ("packet id 0", V5, Client, 0xA2, b"\0\0\0\0\x01a", ProtocolError, "MQTT-2.2.1-3"),
        ("filter cut", V5, Client, 0xA2, b"\0\x01\0\0\x05a", MalformedPacket, "Topic Filter"),
        ("empty filter", V3_1_1, Client, 0xA2, b"\0\x01\0\0", MalformedPacket, "MQTT-4.7.3-1"),
        ("filter with U+0000", V3_1_1, Client, 0xA2, b"\0\x01\0\x02a\0", MalformedPacket, "MQTT-1.5.4-2"),
        ("Subscription Identifier", V5, Client, 0xA2, b"\0\x01\x02\x0B\x01\0\x01a", MalformedPacket, "not one of this packet"),
        ("UNSUBACK empty", V3_1_1, Server, 0xB0, b"", MalformedPacket, "Packet Identifier"),
        ("UNSUBACK packet id 0", V3_1_1, Server, 0xB0, b"\0\0", ProtocolError, "MQTT-2.2.1-3"),
        ("UNSUBACK with codes before 5.0", V3_1_1, Server, 0xB0, b"\0\x01\0", MalformedPacket, "3.11.3"),
        ("UNSUBACK without properties", V5, Server, 0xB0, b"\0\x01", MalformedPacket, "Property Length"),
        ("UNSUBACK without codes", V5, Server, 0xB0, b"\0\x01\0", ProtocolError, "MQTT-3.11.3-1"),
        ("UNSUBACK with an unknown code", V5, Server, 0xB0, b"\0\x01\0\x01", ProtocolError, "MQTT-3.11.3-2"),
    ]);
}

#[test]
fn disconnect_and_auth() {
    check(&[
        ("body before 5.0", V3_1_1, Client, 0xE0, b"\0", MalformedPacket, "3.14"),
        ("unknown reason code", V5, Client, 0xE0, b"\x01", ProtocolError, "MQTT-3.14.2-1"),
        ("reason code of servers from a client", V5, Client, 0xE0, b"\x8E", ProtocolError, "MQTT-3.14.2-1"),
        ("Disconnect with Will from a server", V5, Server, 0xE0, b"\x04", ProtocolError, "MQTT-3.14.2-1"),
        ("Property Length beyond the packet", V5, Client, 0xE0, b"\0\x05", MalformedPacket, "Properties"),
        ("Session Expiry from a server", V5, Server, 0xE0, b"\0\x05\x11\0\0\0\x01", ProtocolError, "MQTT-3.14.2-2"),
        ("Server Reference from a client", V5, Client, 0xE0, b"\0\x04\x1C\0\x01s", ProtocolError, "3.14.2.2.5"),
        ("Session Expiry twice", V5, Client, 0xE0, b"\0\x0A\x11\0\0\0\x01\x11\0\0\0\x01", ProtocolError, "more than once"),
        ("Receive Maximum", V5, Client, 0xE0, b"\0\x03\x21\0\x01", MalformedPacket, "not one of this packet"),
        ("trailing byte", V5, Client, 0xE0, b"\0\0\0", MalformedPacket, "3.14.3"),
        ("AUTH: Success from a client", V5, Client, 0xF0, b"", ProtocolError, "MQTT-3.15.2-1"),
        ("AUTH: without properties", V5, Client, 0xF0, b"\x18", MalformedPacket, "Property Length"),
        ("AUTH: without a method", V5, Client, 0xF0, b"\x18\0", ProtocolError, "3.15.2.2.2"),
        ("AUTH: data without a method", V5, Client, 0xF0, b"\x18\x04\x16\0\x01d", ProtocolError, "Authentication Data"),
        ("AUTH: re-authenticate from a server", V5, Server, 0xF0, b"\x19\x04\x15\0\x01m", ProtocolError, "MQTT-3.15.2-1"),
        ("AUTH: unknown reason code", V5, Client, 0xF0, b"\x01\x04\x15\0\x01m", ProtocolError, "MQTT-3.15.2-1"),
        ("AUTH: Session Expiry", V5, Client, 0xF0, b"\x18\x05\x11\0\0\0\x01", MalformedPacket, "not one of this packet"),
        ("AUTH: trailing byte", V5, Client, 0xF0, b"\x18\x04\x15\0\x01m\0", MalformedPacket, "3.15.3"),
    ]);
}

#[test]
fn a_refused_connect_still_tells_its_version() {
    for version in [V3_1, V3_1_1, V5] {
        let bytes = packet(0x10, &connect(version, 0xFF, b""));
        let frame = next_frame(&bytes, u32::MAX).expect("legal").expect("whole");
        assert_eq!(connect_version(frame.body), Some(version));
        assert!(decode_one(&bytes, version, Client).is_err());
    }
    assert_eq!(connect_version(b"\0\x04MQTT\x06"), None);
    assert_eq!(connect_version(b""), None);
}

#[test]
fn the_error_reads_well() {
    let bytes = packet(0x38, b"\0\x01a");
    let malformed = decode_one(&bytes, V5, Client).expect_err("refused");
    assert_eq!(
        malformed.to_string(),
        "Malformed Packet (0x81): PUBLISH: DUP with QoS 0 [MQTT-3.3.1-2]"
    );
}
