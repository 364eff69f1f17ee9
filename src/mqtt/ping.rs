//! PINGREQ and PINGRESP (3.12, 3.13): a fixed header and nothing else.

use super::PacketType;

/// Appends PINGREQ or PINGRESP.
pub(super) fn encode(packet_type: PacketType, out: &mut Vec<u8>) {
    out.extend_from_slice(&[packet_type.first_byte(), 0]);
}
