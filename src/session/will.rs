//! The Will on its way through the control state, where it is opaque: a PUBLISH packet of MQTT 5.0, so that
//! whoever publishes it needs nothing but the codec.

use std::sync::Arc;

use bytes::Bytes;

use crate::mqtt::{
    self, Connect, Message, MessageId, Packet, PacketId, Peer, ProtocolVersion, PublishHead, QoS, ReasonCode,
};

use super::{Limits, Violation};

/// The Will of a CONNECT, as the control state keeps it: the delay in seconds and the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedWill {
    pub delay_secs: u32,
    pub message: Bytes,
}

/// Takes the Will out of a CONNECT packet, if the server's limits allow it [MQTT-3.2.2-13].
pub fn encode(connect: &Connect<'_>, limits: &Limits) -> Result<Option<EncodedWill>, Violation> {
    let Some(will) = &connect.will else {
        return Ok(None);
    };
    if will.retain && !limits.retain_available {
        return Err(Violation::new(
            ReasonCode::RetainNotSupported,
            "a Will with RETAIN although retained messages are not available [MQTT-3.2.2-13]",
        ));
    }
    let properties = will.properties.forwarded();
    let head = PublishHead {
        dup: false,
        qos: will.qos,
        retain: will.retain,
        topic: will.topic,
        packet_id: (will.qos != QoS::AtMostOnce).then_some(PacketId::MIN),
        message_expiry_secs: will.properties.message_expiry_interval(),
        topic_alias: None,
        subscription_ids: &[],
        properties: &properties,
        payload_len: will.payload.len(),
    };
    if head.packet_len(ProtocolVersion::V5) > limits.will_bytes_max {
        return Err(Violation::new(ReasonCode::PacketTooLarge, "the Will is larger than this server accepts"));
    }
    let mut message = Vec::with_capacity(head.packet_len(ProtocolVersion::V5));
    head.encode(ProtocolVersion::V5, &mut message);
    message.extend_from_slice(will.payload);
    let delay_secs = will.properties.will_delay_interval().unwrap_or(0);
    Ok(Some(EncodedWill { delay_secs, message: message.into() }))
}

/// What stands behind an encoded Will: who left it, as whoever wrote it has put it there.
pub fn author(bytes: &[u8]) -> &[u8] {
    mqtt::next_frame(bytes, u32::MAX).ok().flatten().and_then(|frame| bytes.get(frame.total_len..)).unwrap_or_default()
}

/// The message of an encoded Will that is published now, which a connection of that epoch has left; its expiry counts from here. None if the bytes are not
/// such a message, which only a fault of this program explains.
pub fn decode(bytes: &[u8], (client_id, epoch): (&Arc<str>, u64), id: MessageId, now: u64) -> Option<Message> {
    let frame = mqtt::next_frame(bytes, u32::MAX).ok()??;
    let Ok(Packet::Publish(publish)) = mqtt::decode(&frame, ProtocolVersion::V5, Peer::Server) else {
        return None;
    };
    Some(Message {
        id,
        stamp: 0,
        topic: publish.topic.into(),
        payload: Bytes::copy_from_slice(publish.payload),
        properties: Bytes::copy_from_slice(&publish.properties.forwarded()),
        qos: publish.qos,
        retain: publish.retain,
        expires_at: publish.properties.message_expiry_interval().map(|secs| now + u64::from(secs) * 1000),
        publisher: client_id.clone(),
        name: None,
        will: epoch,
    })
}
