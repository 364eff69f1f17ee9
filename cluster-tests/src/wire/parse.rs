//! A strict parser of what a server sends. Every rule that one packet can break is checked here, so that each test that
//! receives anything checks it as well: reserved flags, lengths, UTF-8, properties, and reason codes by packet type.

use super::{Properties, Version, id};

/// A packet from a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    ConnAck(ConnAck),
    Publish(Message),
    PubAck { packet_id: u16, reason: u8, properties: Properties },
    PubRec { packet_id: u16, reason: u8, properties: Properties },
    PubRel { packet_id: u16, reason: u8, properties: Properties },
    PubComp { packet_id: u16, reason: u8, properties: Properties },
    SubAck { packet_id: u16, codes: Vec<u8>, properties: Properties },
    UnsubAck { packet_id: u16, codes: Vec<u8>, properties: Properties },
    PingResp,
    Disconnect { reason: u8, properties: Properties },
    Auth { reason: u8, properties: Properties },
}

/// A CONNACK; before 5.0 `reason` is the return code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnAck {
    pub session_present: bool,
    pub reason: u8,
    pub properties: Properties,
    /// The size of the whole packet in bytes.
    pub size: usize,
}

/// A PUBLISH from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    /// 0 with QoS 0.
    pub packet_id: u16,
    pub retain: bool,
    pub dup: bool,
    pub properties: Properties,
    /// The size of the whole packet in bytes.
    pub size: usize,
}

impl Message {
    /// The payload as text, for assertions.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// Reads one packet from the front of `bytes`: `Ok(None)` when more are needed, else the packet and its size.
///
/// # Errors
/// What the packet does that a server must not do, in words.
pub fn parse(version: Version, bytes: &[u8]) -> Result<Option<(Packet, usize)>, String> {
    let Some((header_len, body_len)) = fixed_header(bytes)? else {
        return Ok(None);
    };
    let size = header_len + body_len;
    let Some(body) = bytes.get(header_len..size) else {
        return Ok(None);
    };
    let packet = parse_body(version, bytes[0], Reader(body), size)
        .map_err(|error| format!("{error} in the packet {:02X?}", &bytes[..size.min(200)]))?;
    Ok(Some((packet, size)))
}

/// The lengths of the fixed header and of the rest.
fn fixed_header(bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let mut length = 0usize;
    for position in 0..4 {
        let Some(byte) = bytes.get(1 + position) else {
            return Ok(None);
        };
        length |= usize::from(byte & 0x7F) << (7 * position);
        if byte & 0x80 == 0 {
            if position > 0 && *byte == 0 {
                return Err("a remaining length that is not minimal [MQTT-1.5.5-1]".into());
            }
            return Ok(Some((2 + position, length)));
        }
    }
    Err("a remaining length of more than four bytes".into())
}

fn parse_body(version: Version, first_byte: u8, reader: Reader<'_>, size: usize) -> Result<Packet, String> {
    let packet_type = first_byte >> 4;
    let flags = first_byte & 0x0F;
    let required = if packet_type == 6 { 2 } else { 0 };
    if packet_type != 3 && flags != required {
        return Err(format!("reserved flags {flags:04b} [MQTT-2.1.3-1]"));
    }
    match packet_type {
        2 => conn_ack(version, reader, size),
        3 => publish(version, flags, reader, size),
        4..=7 => ack(version, packet_type, reader),
        9 => sub_ack(version, reader),
        11 => unsub_ack(version, reader),
        13 => reader.end(Packet::PingResp),
        14 if version == Version::V5 => disconnect(reader),
        15 if version == Version::V5 => auth(reader),
        _ => Err(format!("a packet of type {packet_type}, which a server never sends in {version:?}")),
    }
}

const CONNACK_CODES: &[u8] = &[
    0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B,
    0x9C, 0x9D, 0x9F,
];
const CONNACK_PROPERTIES: &[u8] =
    &[0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A];
const PUBACK_CODES: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const PUBREL_CODES: &[u8] = &[0x00, 0x92];
const SUBACK_CODES: &[u8] = &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2];
const UNSUBACK_CODES: &[u8] = &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
/// Without 0x04, which only a client sends.
const DISCONNECT_CODES: &[u8] = &[
    0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
    0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];
const PUBLISH_PROPERTIES: &[u8] = &[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26];

fn listed(what: &str, code: u8, codes: &[u8]) -> Result<u8, String> {
    if codes.contains(&code) { Ok(code) } else { Err(format!("0x{code:02X} is no reason code of {what}")) }
}

fn conn_ack(version: Version, mut reader: Reader<'_>, size: usize) -> Result<Packet, String> {
    let flags = reader.u8()?;
    if flags > 1 {
        return Err("reserved Connect Acknowledge Flags [MQTT-3.2.2-1]".into());
    }
    let reason = reader.u8()?;
    let mut properties = Properties::new();
    if version == Version::V5 {
        listed("CONNACK [MQTT-3.2.2-8]", reason, CONNACK_CODES)?;
        properties = reader.properties(CONNACK_PROPERTIES)?;
    } else if reason > 5 {
        return Err(format!("return code {reason}"));
    }
    if reason != 0 && flags != 0 {
        return Err("Session Present with an error [MQTT-3.2.2-6]".into());
    }
    reader.end(Packet::ConnAck(ConnAck { session_present: flags == 1, reason, properties, size }))
}

fn publish(version: Version, flags: u8, mut reader: Reader<'_>, size: usize) -> Result<Packet, String> {
    let (dup, qos, retain) = (flags & 8 != 0, flags >> 1 & 3, flags & 1 != 0);
    if qos == 3 {
        return Err("both QoS bits set [MQTT-3.3.1-4]".into());
    }
    if dup && qos == 0 {
        return Err("DUP with QoS 0 [MQTT-3.3.1-2]".into());
    }
    let topic = reader.text()?;
    if topic.contains(['+', '#']) {
        return Err("a wildcard in a topic name [MQTT-3.3.2-2]".into());
    }
    let packet_id = if qos > 0 { reader.packet_id()? } else { 0 };
    let properties = if version == Version::V5 { reader.properties(PUBLISH_PROPERTIES)? } else { Properties::new() };
    if topic.is_empty() && !properties.has(id::TOPIC_ALIAS) {
        return Err("an empty topic without an alias [MQTT-4.7.3-1]".into());
    }
    let payload = reader.0.to_vec();
    Ok(Packet::Publish(Message { topic, payload, qos, packet_id, retain, dup, properties, size }))
}

fn ack(version: Version, packet_type: u8, mut reader: Reader<'_>) -> Result<Packet, String> {
    let packet_id = reader.packet_id()?;
    let (mut reason, mut properties) = (0, Properties::new());
    if version == Version::V5 && !reader.is_empty() {
        let (name, codes) = match packet_type {
            4 => ("PUBACK [MQTT-3.4.2-1]", PUBACK_CODES),
            5 => ("PUBREC [MQTT-3.5.2-1]", PUBACK_CODES),
            6 => ("PUBREL [MQTT-3.6.2-1]", PUBREL_CODES),
            _ => ("PUBCOMP [MQTT-3.7.2-1]", PUBREL_CODES),
        };
        reason = listed(name, reader.u8()?, codes)?;
        if !reader.is_empty() {
            properties = reader.properties(&[id::REASON_STRING, id::USER_PROPERTY])?;
        }
    }
    reader.end(match packet_type {
        4 => Packet::PubAck { packet_id, reason, properties },
        5 => Packet::PubRec { packet_id, reason, properties },
        6 => Packet::PubRel { packet_id, reason, properties },
        _ => Packet::PubComp { packet_id, reason, properties },
    })
}

fn sub_ack(version: Version, mut reader: Reader<'_>) -> Result<Packet, String> {
    let packet_id = reader.packet_id()?;
    let mut properties = Properties::new();
    let mut legal: &[u8] = &[0x00, 0x01, 0x02, 0x80];
    if version == Version::V5 {
        properties = reader.properties(&[id::REASON_STRING, id::USER_PROPERTY])?;
        legal = SUBACK_CODES;
    }
    for code in reader.0 {
        listed("SUBACK [MQTT-3.9.3-2]", *code, legal)?;
    }
    Ok(Packet::SubAck { packet_id, codes: reader.0.to_vec(), properties })
}

fn unsub_ack(version: Version, mut reader: Reader<'_>) -> Result<Packet, String> {
    let packet_id = reader.packet_id()?;
    if version != Version::V5 {
        return reader.end(Packet::UnsubAck { packet_id, codes: Vec::new(), properties: Properties::new() });
    }
    let properties = reader.properties(&[id::REASON_STRING, id::USER_PROPERTY])?;
    for code in reader.0 {
        listed("UNSUBACK [MQTT-3.11.3-2]", *code, UNSUBACK_CODES)?;
    }
    Ok(Packet::UnsubAck { packet_id, codes: reader.0.to_vec(), properties })
}

fn disconnect(mut reader: Reader<'_>) -> Result<Packet, String> {
    let (mut reason, mut properties) = (0, Properties::new());
    if !reader.is_empty() {
        reason = listed("DISCONNECT from a server [MQTT-3.14.2-1]", reader.u8()?, DISCONNECT_CODES)?;
        if !reader.is_empty() {
            // No Session Expiry Interval from a server: [MQTT-3.14.2-2].
            properties = reader.properties(&[id::SERVER_REFERENCE, id::REASON_STRING, id::USER_PROPERTY])?;
        }
    }
    reader.end(Packet::Disconnect { reason, properties })
}

fn auth(mut reader: Reader<'_>) -> Result<Packet, String> {
    let (mut reason, mut properties) = (0, Properties::new());
    if !reader.is_empty() {
        reason = listed("AUTH from a server [MQTT-3.15.2-1]", reader.u8()?, &[0x00, 0x18])?;
        properties = reader.properties(&[0x15, 0x16, 0x1F, 0x26])?;
    }
    reader.end(Packet::Auth { reason, properties })
}

/// What is left of a body.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the body ends inside a field")?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Result<u16, String> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    pub fn varint(&mut self) -> Result<u32, String> {
        let mut value = 0;
        for position in 0..4 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << (7 * position);
            if byte & 0x80 == 0 {
                if position > 0 && byte == 0 {
                    return Err("a variable byte integer that is not minimal [MQTT-1.5.5-1]".into());
                }
                return Ok(value);
            }
        }
        Err("a variable byte integer of more than four bytes".into())
    }

    pub fn prefixed(&mut self) -> Result<&'a [u8], String> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    pub fn text(&mut self) -> Result<String, String> {
        let bytes = self.prefixed()?;
        let text = std::str::from_utf8(bytes).map_err(|_| "a string that is not UTF-8 [MQTT-1.5.4-1]")?;
        if text.contains('\0') {
            return Err("U+0000 in a string [MQTT-1.5.4-2]".into());
        }
        Ok(text.to_owned())
    }

    pub fn packet_id(&mut self) -> Result<u16, String> {
        match self.u16()? {
            0 => Err("packet identifier 0 [MQTT-2.2.1-4]".into()),
            id => Ok(id),
        }
    }

    pub fn properties(&mut self, allowed: &[u8]) -> Result<Properties, String> {
        let length = self.varint()?;
        Properties::parse(Reader(self.take(length as usize)?), allowed)
    }

    /// The packet, if nothing is left over.
    pub fn end(self, packet: Packet) -> Result<Packet, String> {
        if self.is_empty() { Ok(packet) } else { Err(format!("{} bytes too many", self.0.len())) }
    }
}
