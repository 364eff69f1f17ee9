//! Frames and packets: where a packet ends, whether its fixed header is legal, and which decoder takes its body.

use super::{
    Ack, AckKind, Auth, ConnAck, Connect, Disconnect, Packet, PacketType, ProtocolVersion, Publish, QoS, ReasonCode,
    SubAck, Subscribe, UnsubAck, Unsubscribe, ping,
};

/// The largest Remaining Length that its four bytes can say (2.1.4).
pub const REMAINING_LENGTH_MAX: usize = 268_435_455;

/// Bytes that no sender may send. The network connection is closed with `reason` [MQTT-4.13.1-1].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    pub reason: ReasonCode,
    /// The field and the rule it breaks, with the number of the statement.
    pub what: &'static str,
}

impl Malformed {
    /// A packet that cannot be parsed: 0x81 (4.13.1).
    pub(super) const fn packet(what: &'static str) -> Malformed {
        Malformed { reason: ReasonCode::MalformedPacket, what }
    }

    /// A packet that can be parsed and says what the protocol does not allow: 0x82 (4.13.1).
    pub(super) const fn protocol(what: &'static str) -> Malformed {
        Malformed { reason: ReasonCode::ProtocolError, what }
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.what)
    }
}

impl std::error::Error for Malformed {}

/// Who sent the bytes. Most packets are legal from one side only (2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Client,
    Server,
}

/// One packet, cut off a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub first_byte: u8,
    /// Everything behind the fixed header.
    pub body: &'a [u8],
    /// Bytes of the whole packet, fixed header included.
    pub total_len: usize,
}

/// Cuts the first packet off `buf`. `Ok(None)`: more bytes are needed. A packet is refused as soon as the bytes that are there
/// allow: for a reserved type, flags that its type does not have (2.1.3), a Remaining Length that is not in its shortest form or
/// has more than four bytes (2.1.4), and for being larger than `packet_size_max` bytes in all [MQTT-3.1.2-24], [MQTT-3.2.2-15].
#[inline]
pub fn next_frame(buf: &[u8], packet_size_max: u32) -> Result<Option<Frame<'_>>, Malformed> {
    let Some(&first_byte) = buf.first() else {
        return Ok(None);
    };
    check_fixed_header(first_byte)?;
    let Some((remaining, header_len)) = remaining_length(buf)? else {
        return Ok(None);
    };
    let total_len = header_len + remaining;
    if total_len as u64 > u64::from(packet_size_max) {
        return Err(Malformed {
            reason: ReasonCode::PacketTooLarge,
            what: "Remaining Length: larger than the Maximum Packet Size [MQTT-3.1.2-24], [MQTT-3.2.2-15]",
        });
    }
    let Some(body) = buf.get(header_len..total_len) else {
        return Ok(None);
    };
    Ok(Some(Frame { first_byte, body, total_len }))
}

/// The Remaining Length and the length of the fixed header; None if it is not complete yet.
#[inline]
fn remaining_length(buf: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut value = 0;
    for index in 0..4 {
        let Some(&byte) = buf.get(1 + index) else {
            return Ok(None);
        };
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return Err(Malformed::packet("Remaining Length: longer than it need be [MQTT-1.5.5-1]"));
            }
            return Ok(Some((value, index + 2)));
        }
    }
    Err(Malformed::packet("Remaining Length: more than four bytes (2.1.4)"))
}

/// The DUP bit of MQTT 3.1, where it also marks a repeated PUBREL, SUBSCRIBE and UNSUBSCRIBE (3.1, section 2.1).
const DUP: u8 = 0b1000;

const RESERVED_FLAGS: Malformed = Malformed::packet("Fixed header: flags that are reserved [MQTT-2.1.3-1]");

#[inline]
const fn is_publish(first_byte: u8) -> bool {
    first_byte >> 4 == PacketType::Publish as u8
}

/// The type of a packet. Refuses first bytes that are wrong in every version.
#[inline]
fn check_fixed_header(first_byte: u8) -> Result<PacketType, Malformed> {
    if is_publish(first_byte) {
        return match QoS::from_u8(first_byte >> 1 & 0b11) {
            Some(_) => Ok(PacketType::Publish),
            None => Err(Malformed::packet("PUBLISH: QoS 3 [MQTT-3.3.1-4]")),
        };
    }
    let Some(packet_type) = PacketType::of(first_byte) else {
        return Err(Malformed::packet("Packet type 0: reserved (2.1.2)"));
    };
    let expected = packet_type.first_byte();
    let may_repeat = expected & 0x0F != 0;
    if first_byte == expected || (may_repeat && first_byte == expected | DUP) {
        Ok(packet_type)
    } else {
        Err(RESERVED_FLAGS)
    }
}

/// Checks the body of a packet and returns a view of it. CONNECT finds its version itself; `version` is that of the connection.
#[inline]
pub fn decode<'a>(frame: &Frame<'a>, version: ProtocolVersion, from: Peer) -> Result<Packet<'a>, Malformed> {
    // PUBLISH and its acknowledgements, by far the most frequent, go ahead of the others.
    const PUBACK: u8 = PacketType::PubAck.first_byte();
    const PUBREC: u8 = PacketType::PubRec.first_byte();
    const PUBREL: u8 = PacketType::PubRel.first_byte();
    const PUBCOMP: u8 = PacketType::PubComp.first_byte();
    let body = frame.body;
    match frame.first_byte {
        first if is_publish(first) => Publish::decode(first, body, version, from).map(Packet::Publish),
        PUBACK => Ack::decode(AckKind::PubAck, body, version).map(Packet::PubAck),
        PUBREC => Ack::decode(AckKind::PubRec, body, version).map(Packet::PubRec),
        PUBREL => Ack::decode(AckKind::PubRel, body, version).map(Packet::PubRel),
        PUBCOMP => Ack::decode(AckKind::PubComp, body, version).map(Packet::PubComp),
        first => decode_any(first, body, version, from),
    }
}

fn decode_any<'a>(
    first_byte: u8,
    body: &'a [u8],
    version: ProtocolVersion,
    from: Peer,
) -> Result<Packet<'a>, Malformed> {
    let packet_type = check_fixed_header(first_byte)?;
    if packet_type != PacketType::Publish && first_byte != packet_type.first_byte() && version != ProtocolVersion::V3_1
    {
        return Err(RESERVED_FLAGS);
    }
    check_direction(packet_type, version, from)?;
    match packet_type {
        PacketType::Connect => Connect::decode(body).map(Packet::Connect),
        PacketType::ConnAck => ConnAck::decode(body, version).map(Packet::ConnAck),
        PacketType::Publish => Publish::decode(first_byte, body, version, from).map(Packet::Publish),
        PacketType::PubAck => Ack::decode(AckKind::PubAck, body, version).map(Packet::PubAck),
        PacketType::PubRec => Ack::decode(AckKind::PubRec, body, version).map(Packet::PubRec),
        PacketType::PubRel => Ack::decode(AckKind::PubRel, body, version).map(Packet::PubRel),
        PacketType::PubComp => Ack::decode(AckKind::PubComp, body, version).map(Packet::PubComp),
        PacketType::Subscribe => Subscribe::decode(body, version).map(Packet::Subscribe),
        PacketType::SubAck => SubAck::decode(body, version).map(Packet::SubAck),
        PacketType::Unsubscribe => Unsubscribe::decode(body, version).map(Packet::Unsubscribe),
        PacketType::UnsubAck => UnsubAck::decode(body, version).map(Packet::UnsubAck),
        PacketType::PingReq => ping::decode(body).map(|()| Packet::PingReq),
        PacketType::PingResp => ping::decode(body).map(|()| Packet::PingResp),
        PacketType::Disconnect => Disconnect::decode(body, version, from).map(Packet::Disconnect),
        PacketType::Auth => Auth::decode(body, from).map(Packet::Auth),
    }
}

/// Which side may send which packet (2.1.2, table 2-1).
fn check_direction(packet_type: PacketType, version: ProtocolVersion, from: Peer) -> Result<(), Malformed> {
    let from_client = from == Peer::Client;
    let legal = match packet_type {
        PacketType::Connect | PacketType::Subscribe | PacketType::Unsubscribe | PacketType::PingReq => from_client,
        PacketType::ConnAck | PacketType::SubAck | PacketType::UnsubAck | PacketType::PingResp => !from_client,
        PacketType::Publish | PacketType::PubAck | PacketType::PubRec | PacketType::PubRel | PacketType::PubComp => {
            true
        }
        PacketType::Disconnect => from_client || version.is_v5(),
        PacketType::Auth if version.is_v5() => true,
        PacketType::Auth => {
            return Err(Malformed::packet("Packet type 15: reserved before MQTT 5.0 (2.1.2)"));
        }
    };
    if legal { Ok(()) } else { Err(Malformed::protocol("Packet type: not one that this side may send (2.1.2)")) }
}
