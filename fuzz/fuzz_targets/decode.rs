//! Any bytes as a stream of packets: nothing panics, and what is accepted is accepted again as the same after it was encoded.
//! The first byte of the input chooses the version and who sends.

#![no_main]

use holdfast::mqtt::{Packet, Peer, ProtocolVersion, decode, next_frame};
use libfuzzer_sys::fuzz_target;

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let from = if choice & 1 == 0 { Peer::Client } else { Peer::Server };
    let version = VERSIONS[usize::from(choice >> 1) % VERSIONS.len()];
    while let Ok(Some(frame)) = next_frame(rest, 1 << 20) {
        rest = &rest[frame.total_len..];
        let Ok(packet) = decode(&frame, version, from) else {
            return;
        };
        walk(&packet);
        encode_again(&packet, version, from, frame.total_len);
    }
});

/// Looks at everything that a packet can be asked for.
fn walk(packet: &Packet<'_>) {
    match packet {
        Packet::Subscribe(subscribe) => assert!(subscribe.filters.iter().count() > 0),
        Packet::Unsubscribe(unsubscribe) => assert!(unsubscribe.filters.iter().count() > 0),
        Packet::Publish(publish) => {
            let forwarded = publish.properties.forwarded();
            assert!(forwarded.len() <= publish.properties.as_bytes().len());
        }
        Packet::Connect(connect) => {
            let will = connect.will.map(|will| will.properties.forwarded().len());
            assert!(will.is_none_or(|len| len < 1 << 20));
        }
        _ => {}
    }
}

fn encode_again(packet: &Packet<'_>, version: ProtocolVersion, from: Peer, len: usize) {
    // CONNECT says itself in which version it is.
    let version = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    };
    let mut again = Vec::new();
    packet.encode(version, &mut again);
    assert!(again.len() <= len, "the shortest form");
    let frame = next_frame(&again, u32::MAX).expect("a legal header").expect("a whole packet");
    assert_eq!(decode(&frame, version, from).as_ref(), Ok(packet));
}
