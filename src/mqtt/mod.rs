//! The MQTT codec: control packets of MQTT 3.1, 3.1.1 and 5.0, between bytes and borrowed views of them.
//!
//! [`next_frame`] cuts one packet off a buffer and refuses it as early as its fixed header allows; [`decode`] checks the body and
//! returns a [`Packet`] that borrows from it. Nothing is copied or allocated by decoding, and nothing here has state: whoever
//! calls owns the buffers. There is one file for each control packet, for all versions.
//!
//! Invariants:
//! - A decoded packet is well formed by itself: every string is UTF-8 without U+0000, every packet identifier is not zero, every
//!   property is known, allowed where it stands and not doubled. What needs the state of a session (is this alias known?) or
//!   the syntax of topic filters is checked elsewhere.
//! - Every byte sequence gives a packet, "more bytes needed" or [`Malformed`] with a reason code; none panics.
//! - Properties keep their bytes and their order, so that they can be forwarded as they came [MQTT-3.3.2-18].
//!
//! Read first: `tests/malformed.rs` (what is refused, and with which reason code), then `tests/round_trip.rs`.

mod ack;
mod auth;
mod codec;
mod connack;
mod connect;
mod disconnect;
mod message;
mod packet;
mod ping;
mod properties;
mod property;
mod publish;
mod reason_code;
mod suback;
mod subscribe;
mod unsuback;
mod unsubscribe;
mod wire;

#[cfg(test)]
mod tests;

pub use ack::{Ack, AckKind};
pub use auth::Auth;
pub use codec::{Frame, Malformed, PACKET_BYTES_MAX, Peer, REMAINING_LENGTH_MAX, decode, next_frame};
pub use connack::ConnAck;
pub use connect::{Connect, Will, connect_version};
pub use disconnect::Disconnect;
pub use message::{Message, MessageId, Names, SEQUENCE_BITS, WillName, remaining_secs};
pub use packet::{Packet, PacketId, PacketType, ProtocolVersion, QoS};
pub use properties::{Properties, PropertiesBuf, PropertiesIter, are_forwarded};
pub use property::Property;
pub use publish::{Publish, PublishHead};
pub use reason_code::ReasonCode;
pub use suback::SubAck;
pub use subscribe::{RetainHandling, Subscribe, SubscribeFilters, SubscribeFiltersBuf, SubscriptionOptions};
pub use unsuback::UnsubAck;
pub use unsubscribe::{Unsubscribe, UnsubscribeFilters, UnsubscribeFiltersBuf};
