//! The codec against an independent one: `mqttbytes` writes a packet, the codec decodes it, and what it says about the packet is
//! translated back and compared; then the codec writes the packet and `mqttbytes` must read the same.
//!
//! Only packets that `mqttbytes` 0.6 gets right take part. Left out are: MQTT 3.1, AUTH, passwords that are not UTF-8, an empty user
//! name or password, a CONNACK of MQTT 5.0 without properties, a DISCONNECT of MQTT 5.0 with less than a Property Length, more than one
//! Subscription Identifier in a PUBLISH, and UNSUBSCRIBE of MQTT 5.0 in the direction in which it writes to standard error.

mod v3_1_1;
mod v5;

use bytes::BytesMut;
use holdfast::mqtt::{self, Packet, Peer, ProtocolVersion};
use proptest::prelude::*;

/// Decodes the one packet that these bytes are.
fn decode(bytes: &[u8], version: ProtocolVersion, from: Peer) -> Packet<'_> {
    let frame = mqtt::next_frame(bytes, u32::MAX).expect("a legal header").expect("a whole packet");
    assert_eq!(frame.total_len, bytes.len());
    mqtt::decode(&frame, version, from).expect("a legal packet")
}

fn encode(packet: &Packet<'_>, version: ProtocolVersion) -> BytesMut {
    let mut out = Vec::new();
    packet.encode(version, &mut out);
    BytesMut::from(&out[..])
}

/// What `mqttbytes` says for a packet identifier that is not there.
fn id_or_zero(packet_id: Option<mqtt::PacketId>) -> u16 {
    packet_id.map_or(0, mqtt::PacketId::get)
}

fn their_qos(qos: mqtt::QoS) -> mqttbytes::QoS {
    match qos {
        mqtt::QoS::AtMostOnce => mqttbytes::QoS::AtMostOnce,
        mqtt::QoS::AtLeastOnce => mqttbytes::QoS::AtLeastOnce,
        mqtt::QoS::ExactlyOnce => mqttbytes::QoS::ExactlyOnce,
    }
}

fn qos() -> impl Strategy<Value = mqttbytes::QoS> {
    prop_oneof![Just(mqttbytes::QoS::AtMostOnce), Just(mqttbytes::QoS::AtLeastOnce), Just(mqttbytes::QoS::ExactlyOnce)]
}

fn packet_id() -> impl Strategy<Value = u16> {
    1..=u16::MAX
}

/// A string without U+0000 and wildcards that is not empty: a topic name, or a credential.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/]{1,20}", "[^\\x00+#]{1,8}", Just("n".repeat(300))]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,8}", "[^\\x00]{0,5}"]
}

fn payload() -> impl Strategy<Value = bytes::Bytes> {
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..40), Just(vec![1; 20_000])].prop_map(bytes::Bytes::from)
}
