//! Reason codes: their values, and which packet may carry which, exhaustively.

use super::super::{Packet, Peer, ProtocolVersion, ReasonCode};
use super::{V3_1, V3_1_1, V5, decode_one, packet};

/// The codes that are accepted in a packet made of `body(code)`.
fn accepted(first_byte: u8, version: ProtocolVersion, from: Peer, body: impl Fn(u8) -> Vec<u8>) -> Vec<u8> {
    (0..=u8::MAX)
        .filter(|code| {
            let bytes = packet(first_byte, &body(*code));
            match decode_one(&bytes, version, from) {
                Ok(_) => true,
                Err(malformed) => {
                    assert_eq!(malformed.reason, ReasonCode::ProtocolError);
                    false
                }
            }
        })
        .collect()
}

#[test]
fn values_are_those_of_the_specification() {
    assert_eq!(ReasonCode::ALL.len(), 43);
    assert_eq!(ReasonCode::MalformedPacket as u8, 0x81);
    assert_eq!(ReasonCode::ServerShuttingDown as u8, 0x8B);
    assert_eq!(ReasonCode::WildcardSubscriptionsNotSupported as u8, 0xA2);
    for value in 0..=u8::MAX {
        let known = matches!(value, 0 | 1 | 2 | 4 | 0x10 | 0x11 | 0x18 | 0x19 | 0x80..=0xA2);
        assert_eq!(ReasonCode::from_u8(value).map(|reason| reason as u8), known.then_some(value));
    }
    for reason in ReasonCode::ALL {
        assert_eq!(reason.is_error(), *reason as u8 >= 0x80);
        assert!(!reason.name().is_empty());
    }
}

#[test]
fn return_codes_of_3_1_1_map_both_ways() {
    for code in 0..=5 {
        assert_eq!(ReasonCode::from_connect_return_code(code).map(ReasonCode::connect_return_code), Some(code));
    }
    for code in 6..=u8::MAX {
        assert_eq!(ReasonCode::from_connect_return_code(code), None);
    }
    for reason in ReasonCode::ALL {
        assert!(reason.connect_return_code() <= 5);
        assert_eq!(reason.connect_return_code() == 0, *reason == ReasonCode::Success);
    }
}

#[test]
fn connack_carries_its_own() {
    // [MQTT-3.2.2-8]
    let expected: Vec<u8> = [0]
        .into_iter()
        .chain(0x80..=0x8A)
        .chain([0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F])
        .collect();
    assert_eq!(accepted(0x20, V5, Peer::Server, |code| vec![0, code, 0]), expected);
    for version in [V3_1, V3_1_1] {
        assert_eq!(accepted(0x20, version, Peer::Server, |code| vec![0, code]), [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn acknowledgements_carry_their_own() {
    // [MQTT-3.4.2-1], [MQTT-3.5.2-1]
    let publish = [0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
    assert_eq!(accepted(0x40, V5, Peer::Client, |code| vec![0, 1, code]), publish);
    assert_eq!(accepted(0x50, V5, Peer::Client, |code| vec![0, 1, code]), publish);
    // [MQTT-3.6.2-1], [MQTT-3.7.2-1]
    assert_eq!(accepted(0x62, V5, Peer::Client, |code| vec![0, 1, code]), [0, 0x92]);
    assert_eq!(accepted(0x70, V5, Peer::Client, |code| vec![0, 1, code]), [0, 0x92]);
}

#[test]
fn suback_and_unsuback_carry_their_own() {
    // [MQTT-3.9.3-2]
    assert_eq!(
        accepted(0x90, V5, Peer::Server, |code| vec![0, 1, 0, code]),
        [0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2]
    );
    assert_eq!(accepted(0x90, V3_1_1, Peer::Server, |code| vec![0, 1, code]), [0, 1, 2, 0x80]);
    // [MQTT-3.11.3-2]
    assert_eq!(accepted(0xB0, V5, Peer::Server, |code| vec![0, 1, 0, code]), [0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]);
}

#[test]
fn disconnect_carries_what_its_sender_may_say() {
    // [MQTT-3.14.2-1]
    let client = [0, 4, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];
    assert_eq!(accepted(0xE0, V5, Peer::Client, |code| vec![code]), client);
    let server: Vec<u8> =
        [0, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90].into_iter().chain(0x93..=0xA2).collect();
    assert_eq!(accepted(0xE0, V5, Peer::Server, |code| vec![code]), server);
}

#[test]
fn auth_carries_what_its_sender_may_say() {
    // [MQTT-3.15.2-1]
    let body = |code| vec![code, 4, 0x15, 0, 1, b'm'];
    assert_eq!(accepted(0xF0, V5, Peer::Client, body), [0x18, 0x19]);
    assert_eq!(accepted(0xF0, V5, Peer::Server, body), [0, 0x18]);
}

#[test]
fn failures_of_suback_are_0x80_before_5_0() {
    let mut out = Vec::new();
    let suback = super::super::SubAck {
        packet_id: super::id(1),
        properties: Default::default(),
        codes: &[0, 1, 2, 0x87, 0x8F, 0xA2, 0x80],
    };
    Packet::SubAck(suback).encode(V3_1_1, &mut out);
    assert_eq!(out[4..], [0, 1, 2, 0x80, 0x80, 0x80, 0x80]);
}
