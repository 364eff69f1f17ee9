//! Tests of the codec. `malformed` and `valid` are the tables of what is refused and what is not; `round_trip` and `hostile` are
//! properties over the packets that `parts` makes up.

mod frames;
mod hostile;
// Tables read best with one row in one line.
#[rustfmt::skip]
mod malformed;
mod parts;
mod properties;
mod reason_codes;
mod round_trip;
#[rustfmt::skip]
mod valid;

use super::{Malformed, Packet, PacketId, Peer, ProtocolVersion, decode, next_frame};

const V3_1: ProtocolVersion = ProtocolVersion::V3_1;
const V3_1_1: ProtocolVersion = ProtocolVersion::V3_1_1;
const V5: ProtocolVersion = ProtocolVersion::V5;

/// A packet from its first byte and its body, with the right Remaining Length.
fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first_byte];
    super::wire::put_variable_int(&mut packet, body.len());
    packet.extend_from_slice(body);
    packet
}

/// A UTF-8 encoded string.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    super::wire::put_binary(&mut bytes, text.as_bytes());
    bytes
}

/// Decodes the one packet that `bytes` are.
fn decode_one(bytes: &[u8], version: ProtocolVersion, from: Peer) -> Result<Packet<'_>, Malformed> {
    let frame = next_frame(bytes, u32::MAX)?.expect("a whole packet");
    assert_eq!(frame.total_len, bytes.len(), "one packet and nothing behind it");
    decode(&frame, version, from)
}

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not zero")
}
