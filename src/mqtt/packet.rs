//! The control packets as one type, and the small types that all of them share.

use super::{
    Ack, AckKind, Auth, ConnAck, Connect, Disconnect, Publish, SubAck, Subscribe, UnsubAck, Unsubscribe, ping,
};

/// The protocol version of a connection, chosen by its CONNECT (3.1.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    V3_1,
    V3_1_1,
    V5,
}

impl ProtocolVersion {
    /// The Protocol Level, or Protocol Version, byte of CONNECT.
    pub const fn level(self) -> u8 {
        match self {
            ProtocolVersion::V3_1 => 3,
            ProtocolVersion::V3_1_1 => 4,
            ProtocolVersion::V5 => 5,
        }
    }

    /// The Protocol Name of CONNECT [MQTT-3.1.2-1].
    pub const fn protocol_name(self) -> &'static str {
        match self {
            ProtocolVersion::V3_1 => "MQIsdp",
            ProtocolVersion::V3_1_1 | ProtocolVersion::V5 => "MQTT",
        }
    }

    pub const fn is_v5(self) -> bool {
        matches!(self, ProtocolVersion::V5)
    }
}

/// Quality of Service (4.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl QoS {
    /// None for anything but 0, 1 and 2.
    pub const fn from_u8(value: u8) -> Option<QoS> {
        match value {
            0 => Some(QoS::AtMostOnce),
            1 => Some(QoS::AtLeastOnce),
            2 => Some(QoS::ExactlyOnce),
            _ => None,
        }
    }
}

/// A packet identifier: never zero [MQTT-2.2.1-3].
pub type PacketId = std::num::NonZeroU16;

/// The type of a control packet: the upper four bits of its first byte (2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The type in a packet's first byte; None for the reserved type 0.
    pub const fn of(first_byte: u8) -> Option<PacketType> {
        Some(match first_byte >> 4 {
            1 => PacketType::Connect,
            2 => PacketType::ConnAck,
            3 => PacketType::Publish,
            4 => PacketType::PubAck,
            5 => PacketType::PubRec,
            6 => PacketType::PubRel,
            7 => PacketType::PubComp,
            8 => PacketType::Subscribe,
            9 => PacketType::SubAck,
            10 => PacketType::Unsubscribe,
            11 => PacketType::UnsubAck,
            12 => PacketType::PingReq,
            13 => PacketType::PingResp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The name as the specification prints it, for logs.
    pub const fn name(self) -> &'static str {
        match self {
            PacketType::Connect => "CONNECT",
            PacketType::ConnAck => "CONNACK",
            PacketType::Publish => "PUBLISH",
            PacketType::PubAck => "PUBACK",
            PacketType::PubRec => "PUBREC",
            PacketType::PubRel => "PUBREL",
            PacketType::PubComp => "PUBCOMP",
            PacketType::Subscribe => "SUBSCRIBE",
            PacketType::SubAck => "SUBACK",
            PacketType::Unsubscribe => "UNSUBSCRIBE",
            PacketType::UnsubAck => "UNSUBACK",
            PacketType::PingReq => "PINGREQ",
            PacketType::PingResp => "PINGRESP",
            PacketType::Disconnect => "DISCONNECT",
            PacketType::Auth => "AUTH",
        }
    }

    /// The first byte of this type with the flags that the specification prescribes (2.1.3). PUBLISH has flags of its own.
    pub(super) const fn first_byte(self) -> u8 {
        let flags = match self {
            PacketType::PubRel | PacketType::Subscribe | PacketType::Unsubscribe => 0b0010,
            _ => 0,
        };
        (self as u8) << 4 | flags
    }
}

/// A control packet that borrows from the bytes it was decoded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    ConnAck(ConnAck<'a>),
    Publish(Publish<'a>),
    PubAck(Ack<'a>),
    PubRec(Ack<'a>),
    PubRel(Ack<'a>),
    PubComp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    SubAck(SubAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    UnsubAck(UnsubAck<'a>),
    PingReq,
    PingResp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

impl Packet<'_> {
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::ConnAck(_) => PacketType::ConnAck,
            Packet::Publish(_) => PacketType::Publish,
            Packet::PubAck(_) => PacketType::PubAck,
            Packet::PubRec(_) => PacketType::PubRec,
            Packet::PubRel(_) => PacketType::PubRel,
            Packet::PubComp(_) => PacketType::PubComp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::SubAck(_) => PacketType::SubAck,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::UnsubAck(_) => PacketType::UnsubAck,
            Packet::PingReq => PacketType::PingReq,
            Packet::PingResp => PacketType::PingResp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }

    /// Appends the packet to `out`. What a version has no place for, such as properties before MQTT 5.0, is left out.
    pub fn encode(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        match self {
            Packet::Connect(packet) => packet.encode(version, out),
            Packet::ConnAck(packet) => packet.encode(version, out),
            Packet::Publish(packet) => packet.encode(version, out),
            Packet::PubAck(packet) => packet.encode(AckKind::PubAck, version, out),
            Packet::PubRec(packet) => packet.encode(AckKind::PubRec, version, out),
            Packet::PubRel(packet) => packet.encode(AckKind::PubRel, version, out),
            Packet::PubComp(packet) => packet.encode(AckKind::PubComp, version, out),
            Packet::Subscribe(packet) => packet.encode(version, out),
            Packet::SubAck(packet) => packet.encode(version, out),
            Packet::Unsubscribe(packet) => packet.encode(version, out),
            Packet::UnsubAck(packet) => packet.encode(version, out),
            Packet::PingReq => ping::encode(PacketType::PingReq, out),
            Packet::PingResp => ping::encode(PacketType::PingResp, out),
            Packet::Disconnect(packet) => packet.encode(version, out),
            Packet::Auth(packet) => packet.encode(version, out),
        }
    }
}
