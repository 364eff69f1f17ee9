//! Packets as bytes: builders that can also build what is forbidden, and a strict parser of what a server sends.
//!
//! No state. A builder never corrects its caller; the parser never forgives the server: whatever breaks a rule that is visible in one
//! packet is an error that names the rule. Both are written from the text of the specification, independently of the
//! broker's codec. Read first: the tests in `wire/tests.rs`.

mod build;
mod parse;
mod property;
#[cfg(test)]
mod tests;

pub use build::{Ack, Connect, Publish, Subscribe, Unsubscribe, Will, disconnect, disconnect_with};
pub use parse::{ConnAck, Message, Packet, parse};
pub use property::{Properties, Value, id};

/// The protocol version of a connection; the number is the protocol level on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V31 = 3,
    V311 = 4,
    V5 = 5,
}

/// First bytes of the fixed header (packet type and its required flags).
pub mod first {
    pub const CONNECT: u8 = 0x10;
    pub const CONNACK: u8 = 0x20;
    pub const PUBLISH: u8 = 0x30;
    pub const PUBACK: u8 = 0x40;
    pub const PUBREC: u8 = 0x50;
    pub const PUBREL: u8 = 0x62;
    pub const PUBCOMP: u8 = 0x70;
    pub const SUBSCRIBE: u8 = 0x82;
    pub const SUBACK: u8 = 0x90;
    pub const UNSUBSCRIBE: u8 = 0xA2;
    pub const UNSUBACK: u8 = 0xB0;
    pub const PINGREQ: u8 = 0xC0;
    pub const PINGRESP: u8 = 0xD0;
    pub const DISCONNECT: u8 = 0xE0;
    pub const AUTH: u8 = 0xF0;
}

/// Reason codes (section 2.4), as far as tests name them.
pub mod reason {
    pub const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
    pub const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
    pub const DISCONNECT_WITH_WILL: u8 = 0x04;
    pub const MALFORMED: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const UNSUPPORTED_VERSION: u8 = 0x84;
    pub const CLIENT_ID_NOT_VALID: u8 = 0x85;
    pub const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const SERVER_SHUTTING_DOWN: u8 = 0x8B;
    pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8C;
    pub const KEEP_ALIVE_TIMEOUT: u8 = 0x8D;
    pub const SESSION_TAKEN_OVER: u8 = 0x8E;
    pub const TOPIC_FILTER_INVALID: u8 = 0x8F;
    pub const TOPIC_NAME_INVALID: u8 = 0x90;
    pub const PACKET_ID_NOT_FOUND: u8 = 0x92;
    pub const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
    pub const TOPIC_ALIAS_INVALID: u8 = 0x94;
    pub const PACKET_TOO_LARGE: u8 = 0x95;
    pub const SERVER_UNAVAILABLE: u8 = 0x88;
    pub const QUOTA_EXCEEDED: u8 = 0x97;
    pub const RETAIN_NOT_SUPPORTED: u8 = 0x9A;
}

/// A whole PINGREQ.
pub const PINGREQ: [u8; 2] = [first::PINGREQ, 0];

/// A Variable Byte Integer in its shortest form (section 1.5.5).
pub fn varint(mut value: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(4);
    loop {
        let byte = (value & 0x7F) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

/// Two bytes of length and the bytes: a UTF-8 Encoded String or Binary Data (sections 1.5.4 and 1.5.6), unchecked.
pub fn prefixed(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let length = u16::try_from(bytes.len()).expect("a length of two bytes");
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

/// A packet: first byte, remaining length, body.
pub fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first_byte];
    out.extend(varint(u32::try_from(body.len()).expect("a body below 4 GB")));
    out.extend_from_slice(body);
    out
}
