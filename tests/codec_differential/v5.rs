//! MQTT 5.0.

mod packets;
mod translate;

use bytes::BytesMut;
use holdfast::mqtt::{Peer, ProtocolVersion};
use mqttbytes::v5;
use proptest::prelude::*;

use super::{decode, encode, name, packet_id, text};
use packets::*;
use translate::translate;

const VERSION: ProtocolVersion = ProtocolVersion::V5;

/// Writes with theirs, decodes, and translates back; then encodes and reads with theirs.
fn agree(theirs: &v5::Packet, from: Peer) -> Result<(), TestCaseError> {
    let mut bytes = BytesMut::new();
    write(theirs, &mut bytes).expect("they write it");
    let ours = decode(&bytes, VERSION, from);
    prop_assert_eq!(&translate(&ours), theirs);
    let mut again = encode(&ours, VERSION);
    if matches!(theirs, v5::Packet::Unsubscribe(_)) {
        prop_assert_eq!(again, bytes);
        return Ok(());
    }
    let read = v5::read(&mut again, usize::MAX);
    prop_assert_eq!(read.as_ref(), Ok(theirs));
    prop_assert!(again.is_empty());
    Ok(())
}

fn write(packet: &v5::Packet, out: &mut BytesMut) -> Result<usize, mqttbytes::Error> {
    match packet {
        v5::Packet::Connect(packet) => packet.write(out),
        v5::Packet::ConnAck(packet) => packet.write(out),
        v5::Packet::Publish(packet) => packet.write(out),
        v5::Packet::PubAck(packet) => packet.write(out),
        v5::Packet::PubRec(packet) => packet.write(out),
        v5::Packet::PubRel(packet) => packet.write(out),
        v5::Packet::PubComp(packet) => packet.write(out),
        v5::Packet::Subscribe(packet) => packet.write(out),
        v5::Packet::SubAck(packet) => packet.write(out),
        v5::Packet::Unsubscribe(packet) => packet.write(out),
        v5::Packet::UnsubAck(packet) => packet.write(out),
        v5::Packet::PingReq => v5::PingReq.write(out),
        v5::Packet::PingResp => v5::PingResp.write(out),
        v5::Packet::Disconnect(packet) => packet.write(out),
    }
}

/// Their properties of an acknowledgement.
macro_rules! properties {
    ($theirs:ident, $parts:expr) => {
        $parts.clone().map(|(reason, user_properties)| v5::$theirs { reason_string: Some(reason), user_properties })
    };
}

proptest! {
    #[test]
    fn connect_agrees(packet in connect()) {
        agree(&v5::Packet::Connect(packet), Peer::Client)?;
    }

    #[test]
    fn connack_agrees(packet in connack()) {
        agree(&v5::Packet::ConnAck(packet), Peer::Server)?;
    }

    #[test]
    fn publish_agrees(from_client in publish(Peer::Client), from_server in publish(Peer::Server)) {
        agree(&v5::Packet::Publish(from_client), Peer::Client)?;
        agree(&v5::Packet::Publish(from_server), Peer::Server)?;
    }

    #[test]
    fn puback_and_pubrec_agree(
        pkid in packet_id(),
        puback in proptest::sample::select(&PUBACK_REASONS[..]),
        pubrec in proptest::sample::select(&PUBREC_REASONS[..]),
        parts in reason_properties(),
    ) {
        let puback = v5::PubAck { pkid, reason: puback, properties: properties!(PubAckProperties, parts) };
        agree(&v5::Packet::PubAck(puback), Peer::Client)?;
        let pubrec = v5::PubRec { pkid, reason: pubrec, properties: properties!(PubRecProperties, parts) };
        agree(&v5::Packet::PubRec(pubrec), Peer::Server)?;
    }

    #[test]
    fn pubrel_and_pubcomp_agree(
        pkid in packet_id(),
        pubrel in proptest::sample::select(&PUBREL_REASONS[..]),
        pubcomp in proptest::sample::select(&PUBCOMP_REASONS[..]),
        parts in reason_properties(),
    ) {
        let pubrel = v5::PubRel { pkid, reason: pubrel, properties: properties!(PubRelProperties, parts) };
        agree(&v5::Packet::PubRel(pubrel), Peer::Client)?;
        let pubcomp = v5::PubComp { pkid, reason: pubcomp, properties: properties!(PubCompProperties, parts) };
        agree(&v5::Packet::PubComp(pubcomp), Peer::Server)?;
    }

    #[test]
    fn subscribe_agrees(packet in subscribe()) {
        agree(&v5::Packet::Subscribe(packet), Peer::Client)?;
    }

    #[test]
    fn suback_and_unsuback_agree(
        pkid in packet_id(),
        return_codes in proptest::collection::vec(proptest::sample::select(&SUBACK_CODES[..]), 1..4),
        reasons in proptest::collection::vec(proptest::sample::select(&UNSUBACK_REASONS[..]), 1..4),
        parts in reason_properties(),
    ) {
        let suback = v5::SubAck { pkid, return_codes, properties: properties!(SubAckProperties, parts) };
        agree(&v5::Packet::SubAck(suback), Peer::Server)?;
        let unsuback = v5::UnsubAck { pkid, reasons, properties: properties!(UnsubAckProperties, parts) };
        agree(&v5::Packet::UnsubAck(unsuback), Peer::Server)?;
    }

    #[test]
    fn unsubscribe_agrees(pkid in packet_id(), filters in proptest::collection::vec(name(), 1..4), user in user()) {
        let properties = (!user.is_empty()).then_some(v5::UnsubscribeProperties { user_properties: user });
        agree(&v5::Packet::Unsubscribe(v5::Unsubscribe { pkid, filters, properties }), Peer::Client)?;
    }

    #[test]
    fn disconnect_agrees(expiry in any::<u32>(), reason in text(), user_properties in user(), server in text()) {
        let mut properties = v5::DisconnectProperties {
            session_expiry_interval: Some(expiry),
            reason_string: Some(reason),
            user_properties,
            server_reference: None,
        };
        let reason_code = v5::DisconnectReasonCode::DisconnectWithWillMessage;
        agree(&v5::Packet::Disconnect(v5::Disconnect { reason_code, properties: Some(properties.clone()) }), Peer::Client)?;
        properties.session_expiry_interval = None;
        properties.server_reference = Some(server);
        let reason_code = v5::DisconnectReasonCode::ServerMoved;
        agree(&v5::Packet::Disconnect(v5::Disconnect { reason_code, properties: Some(properties) }), Peer::Server)?;
    }
}

#[test]
fn packets_without_a_body_agree() -> Result<(), TestCaseError> {
    agree(&v5::Packet::PingReq, Peer::Client)?;
    agree(&v5::Packet::PingResp, Peer::Server)
}
