//! What is encoded is decoded to the same, in every version; and the head of a PUBLISH is as long as it says.

use proptest::prelude::*;

use super::super::{PacketId, Peer, Properties, Publish, PublishHead, QoS, decode, next_frame};
use super::parts::{KINDS, Parts, Place, Value, exists, properties, version};
use super::{V5, decode_one};

proptest! {
    #[test]
    fn every_packet_in_every_version(parts in any::<Parts>()) {
        for (packet_type, from) in KINDS {
            if !exists(packet_type, from, parts.version) {
                continue;
            }
            parts.with_packet(packet_type, from, |packet| {
                let mut bytes = b"before".to_vec();
                packet.encode(parts.version, &mut bytes);
                prop_assert_eq!(&bytes[..6], b"before");
                let bytes = &bytes[6..];
                prop_assert_eq!(packet.packet_type(), packet_type);
                prop_assert_eq!(decode_one(bytes, parts.version, from), Ok(packet));
                Ok(())
            })?;
        }
    }

    #[test]
    fn packets_that_follow_one_another_are_told_apart(list in proptest::collection::vec(any::<Parts>(), 1..5)) {
        let mut stream = Vec::new();
        let mut ends = Vec::new();
        for (parts, (packet_type, from)) in list.iter().zip(KINDS) {
            parts.with_packet(packet_type, from, |packet| packet.encode(parts.version, &mut stream));
            ends.push(stream.len());
        }
        let mut at = 0;
        for (parts, (end, (_, from))) in list.iter().zip(ends.into_iter().zip(KINDS)) {
            let frame = next_frame(&stream[at..], u32::MAX).expect("legal").expect("whole");
            at += frame.total_len;
            prop_assert_eq!(at, end);
            prop_assert!(decode(&frame, parts.version, from).is_ok());
        }
    }

    #[test]
    fn a_head_says_how_long_the_packet_is_and_what_is_in_it(
        (version, dup, retain, packet_id) in (version(), any::<bool>(), any::<bool>(), any::<u16>()),
        topic in "[a-z/]{1,140}",
        message_expiry_secs in any::<Option<u32>>(),
        topic_alias in proptest::option::of(1..=u16::MAX),
        subscription_ids in proptest::collection::vec(1..=268_435_455_u32, 0..4),
        values in proptest::collection::vec(any::<Value>(), 0..6),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let packet_id = PacketId::new(packet_id);
        let qos = if packet_id.is_some() { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        let pushed = properties(Place::PublishFromServer, &values);
        let forwarded = pushed.as_properties().forwarded();
        let dup = dup && packet_id.is_some();
        let head = PublishHead {
            dup, qos, retain, topic: &topic, packet_id, message_expiry_secs, topic_alias,
            subscription_ids: &subscription_ids, properties: &forwarded, payload_len: payload.len(),
        };
        let mut bytes = Vec::new();
        head.encode(version, &mut bytes);
        bytes.extend_from_slice(&payload);
        prop_assert_eq!(head.packet_len(version), bytes.len());

        let Ok(super::super::Packet::Publish(publish)) = decode_one(&bytes, version, Peer::Server) else {
            panic!("a PUBLISH");
        };
        let expected = Publish { dup, qos, retain, topic: &topic, packet_id, properties: publish.properties, payload: &payload };
        prop_assert_eq!(publish, expected);
        if version != V5 {
            prop_assert_eq!(publish.properties, Properties::EMPTY);
            return Ok(());
        }
        prop_assert_eq!(publish.properties.message_expiry_interval(), message_expiry_secs);
        prop_assert_eq!(publish.properties.topic_alias(), topic_alias);
        prop_assert_eq!(publish.properties.subscription_identifiers().collect::<Vec<_>>(), subscription_ids);
        prop_assert_eq!(publish.properties.forwarded(), forwarded);
    }
}
