//! PINGREQ and PINGRESP (3.12, 3.13): a fixed header and nothing else.

use super::PacketType;
use super::codec::Malformed;

/// Appends PINGREQ or PINGRESP.
pub(super) fn encode(packet_type: PacketType, out: &mut Vec<u8>) {
    out.extend_from_slice(&[packet_type.first_byte(), 0]);
}

/// Checks that there is no body.
pub(super) fn decode(body: &[u8]) -> Result<(), Malformed> {
    if body.is_empty() { Ok(()) } else { Err(Malformed::packet("PINGREQ or PINGRESP: has a body (3.12.2, 3.13.2)")) }
}
