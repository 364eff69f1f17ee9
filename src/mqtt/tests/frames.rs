//! Where packets end, and what is refused from the fixed header alone.

use super::super::{Frame, Malformed, PacketType, ReasonCode, next_frame};

fn refused(bytes: &[u8], packet_size_max: u32) -> Malformed {
    next_frame(bytes, packet_size_max).expect_err("refused")
}

#[test]
fn an_empty_buffer_needs_more_bytes() {
    assert_eq!(next_frame(&[], 100), Ok(None));
}

#[test]
fn a_packet_is_cut_off_what_follows() {
    let frame = next_frame(&[0x40, 2, 0, 7, 0xC0, 0], 100);
    assert_eq!(frame, Ok(Some(Frame { first_byte: 0x40, body: &[0, 7], total_len: 4 })));
}

#[test]
fn every_short_prefix_needs_more_bytes() {
    let mut packet = vec![0x30, 0xC8, 0x01];
    packet.extend_from_slice(&[0; 200]);
    for len in 0..packet.len() {
        assert_eq!(next_frame(&packet[..len], 1000), Ok(None), "{len} bytes");
    }
    assert_eq!(next_frame(&packet, 1000).map(|frame| frame.map(|frame| frame.total_len)), Ok(Some(203)));
}

#[test]
fn the_length_of_each_size_is_read() {
    for (bytes, remaining) in [
        (&[0x7F][..], 127),
        (&[0x80, 0x01], 128),
        (&[0xFF, 0x7F], 16_383),
        (&[0x80, 0x80, 0x01], 16_384),
        (&[0xFF, 0xFF, 0x7F], 2_097_151),
        (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
    ] {
        let mut packet = vec![0x30];
        packet.extend_from_slice(bytes);
        packet.resize(packet.len() + remaining, 0);
        let frame = next_frame(&packet, u32::MAX).expect("legal").expect("whole");
        assert_eq!((frame.body.len(), frame.total_len), (remaining, packet.len()));
    }
}

#[test]
fn the_largest_length_is_legal_and_the_limit_is_on_the_whole_packet() {
    // [MQTT-3.1.2-24]: Maximum Packet Size counts the fixed header too.
    let largest = [0x30, 0xFF, 0xFF, 0xFF, 0x7F];
    assert_eq!(next_frame(&largest, 268_435_460), Ok(None));
    assert_eq!(refused(&largest, 268_435_459).reason, ReasonCode::PacketTooLarge);
}

#[test]
fn too_large_is_refused_from_the_header_alone() {
    assert_eq!(next_frame(&[0x30, 98], 100), Ok(None));
    assert_eq!(refused(&[0x30, 99], 100).reason, ReasonCode::PacketTooLarge);
    assert_eq!(refused(&[0x30, 0x80, 0x01], 130).reason, ReasonCode::PacketTooLarge);
    assert_eq!(next_frame(&[0x30, 0x80, 0x01], 131), Ok(None));
}

#[test]
fn lengths_that_are_not_in_the_shortest_form_are_refused() {
    // [MQTT-1.5.5-1]
    for bytes in
        [&[0x40, 0x82, 0x00][..], &[0x40, 0x80, 0x00], &[0x30, 0xFF, 0x80, 0x00], &[0x30, 0x80, 0x80, 0x80, 0x00]]
    {
        assert_eq!(refused(bytes, u32::MAX).reason, ReasonCode::MalformedPacket, "{bytes:?}");
    }
}

#[test]
fn a_length_of_five_bytes_is_refused_at_the_fourth() {
    assert_eq!(refused(&[0x30, 0x80, 0x80, 0x80, 0x80], u32::MAX).reason, ReasonCode::MalformedPacket);
    assert_eq!(next_frame(&[0x30, 0x80, 0x80, 0x80], u32::MAX), Ok(None));
}

/// What the specification allows as a first byte (2.1.3, table 2-2), and the DUP bit of MQTT 3.1.
fn is_legal(first_byte: u8) -> bool {
    let flags = first_byte & 0x0F;
    match first_byte >> 4 {
        0 => false,
        3 => flags & 0b0110 != 0b0110,
        6 | 8 | 10 => flags == 0b0010 || flags == 0b1010,
        _ => flags == 0,
    }
}

#[test]
fn every_first_byte_is_judged_before_anything_else() {
    // [MQTT-2.1.3-1], [MQTT-3.3.1-4]
    for first_byte in 0..=u8::MAX {
        match next_frame(&[first_byte], 100) {
            Ok(frame) => assert!(is_legal(first_byte) && frame.is_none(), "{first_byte:#04x}"),
            Err(malformed) => {
                assert!(!is_legal(first_byte), "{first_byte:#04x}");
                assert_eq!(malformed.reason, ReasonCode::MalformedPacket);
            }
        }
    }
}

#[test]
fn packet_types_are_the_upper_four_bits() {
    for first_byte in 0x10..=u8::MAX {
        assert_eq!(PacketType::of(first_byte).map(|packet_type| packet_type as u8), Some(first_byte >> 4));
    }
    assert_eq!(PacketType::of(0x0F), None);
}
