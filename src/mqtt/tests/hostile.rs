//! Bytes that nobody meant well: nothing panics, nothing is read past its end, and what is accepted is accepted again as the
//! same after it was encoded.

use proptest::prelude::*;

use super::super::{Frame, Packet, PacketType, Peer, ProtocolVersion, decode, next_frame};
use super::parts::{KINDS, Parts, exists, version};

fn peer() -> impl Strategy<Value = Peer> {
    prop_oneof![Just(Peer::Client), Just(Peer::Server)]
}

/// Looks at everything that a packet can be asked for.
fn walk(packet: &Packet<'_>) -> usize {
    match packet {
        Packet::Subscribe(subscribe) => subscribe.filters.iter().count(),
        Packet::Unsubscribe(unsubscribe) => unsubscribe.filters.iter().count(),
        Packet::Publish(publish) => publish.properties.iter().count() + publish.properties.forwarded().len(),
        packet => format!("{packet:?}").len(),
    }
}

/// Decodes whatever stands in the buffer. A packet that is accepted must survive being encoded.
fn feed(buf: &[u8], version: ProtocolVersion, from: Peer) -> Result<(), TestCaseError> {
    let mut rest = buf;
    while let Ok(Some(frame)) = next_frame(rest, 1 << 20) {
        prop_assert!(frame.total_len >= 2 && frame.total_len <= rest.len());
        rest = &rest[frame.total_len..];
        let Ok(packet) = decode(&frame, version, from) else {
            break;
        };
        walk(&packet);
        // CONNECT says itself in which version it is.
        let version = match &packet {
            Packet::Connect(connect) => connect.version,
            _ => version,
        };
        let mut again = Vec::new();
        packet.encode(version, &mut again);
        prop_assert!(again.len() <= frame.total_len, "the shortest form");
        let frame = next_frame(&again, 1 << 20).expect("legal").expect("whole");
        prop_assert_eq!(decode(&frame, version, from), Ok(packet));
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        (version, from) in (version(), peer()),
    ) {
        feed(&bytes, version, from)?;
    }

    /// Arbitrary bodies of every type, with a fixed header that lets them through.
    #[test]
    fn arbitrary_bodies(
        body in proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>(), 0x1F..0x2B_u8], 0..100),
        (version, from) in (version(), peer()),
    ) {
        for first_byte in (0x10..=u8::MAX).filter(|byte| byte >> 4 == PacketType::Publish as u8 || byte & 0b1101 == 0) {
            let frame = Frame { first_byte, body: &body, total_len: body.len() + 2 };
            if let Ok(packet) = decode(&frame, version, from) {
                walk(&packet);
            }
        }
    }

    #[test]
    fn every_prefix_needs_more_bytes_and_every_shortened_body_is_judged(parts in any::<Parts>(), pick in any::<prop::sample::Index>()) {
        let (packet_type, from) = KINDS[pick.index(KINDS.len())];
        prop_assume!(exists(packet_type, from, parts.version));
        let mut bytes = Vec::new();
        parts.with_packet(packet_type, from, |packet| packet.encode(parts.version, &mut bytes));
        prop_assume!(bytes.len() < 2_000);
        for len in 0..bytes.len() {
            prop_assert_eq!(next_frame(&bytes[..len], 1 << 20), Ok(None));
        }
        let frame = next_frame(&bytes, 1 << 20).expect("legal").expect("whole");
        for len in 0..frame.body.len() {
            let shortened = Frame { body: &frame.body[..len], ..frame };
            if let Ok(packet) = decode(&shortened, parts.version, from) {
                walk(&packet);
            }
        }
    }

    #[test]
    fn mutations_of_legal_packets(
        parts in any::<Parts>(),
        mutations in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        other in version(),
    ) {
        for (packet_type, from) in KINDS {
            if !exists(packet_type, from, parts.version) {
                continue;
            }
            let mut bytes = Vec::new();
            parts.with_packet(packet_type, from, |packet| packet.encode(parts.version, &mut bytes));
            // The head of a packet is where its structure is.
            let head = bytes.len().min(60);
            for (index, value) in &mutations {
                bytes[index.index(head)] = *value;
            }
            feed(&bytes, parts.version, from)?;
            feed(&bytes, other, from)?;
        }
    }
}
