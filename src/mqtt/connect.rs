//! CONNECT (3.1), which also tells the version that holds on the connection.

use super::codec::Malformed;
use super::properties::{Place, Properties};
use super::publish::has_wildcard;
use super::wire::{Reader, field, put_binary, put_packet, put_u16};
use super::{PacketType, ProtocolVersion, QoS, ReasonCode};

/// The first packet of a client [MQTT-3.1.0-1].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    pub version: ProtocolVersion,
    /// Clean Start, before MQTT 5.0 Clean Session (3.1.2.4).
    pub clean_start: bool,
    /// 0 turns it off (3.1.2.10).
    pub keep_alive_secs: u16,
    /// Empty if the server is to assign one. MQTT 3.1 and, without Clean Session, MQTT 3.1.1 do not allow that.
    pub client_id: &'a str,
    pub properties: Properties<'a>,
    pub will: Option<Will<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

/// The message that the server publishes when the connection ends other than by DISCONNECT (3.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Will<'a> {
    pub qos: QoS,
    pub retain: bool,
    pub properties: Properties<'a>,
    /// A topic name without wildcards.
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// The version that a CONNECT names, even if the rest of its body is malformed, so that a refusal can be written in its form.
/// None if it is none of ours.
pub fn connect_version(body: &[u8]) -> Option<ProtocolVersion> {
    read_version(&mut Reader::new(body)).ok()
}

fn read_version(reader: &mut Reader<'_>) -> Result<ProtocolVersion, Malformed> {
    let name = reader.binary(field!("CONNECT, Protocol Name"))?;
    let level = reader.u8(field!("CONNECT, Protocol Version"))?;
    match (name, level) {
        (b"MQTT", 5) => Ok(ProtocolVersion::V5),
        (b"MQTT", 4) => Ok(ProtocolVersion::V3_1_1),
        (b"MQIsdp", 3) => Ok(ProtocolVersion::V3_1),
        (b"MQTT" | b"MQIsdp", _) => Err(Malformed {
            reason: ReasonCode::UnsupportedProtocolVersion,
            what: "CONNECT, Protocol Version: not 3, 4 or 5 [MQTT-3.1.2-2]",
        }),
        _ => Err(Malformed {
            reason: ReasonCode::UnsupportedProtocolVersion,
            what: "CONNECT, Protocol Name: not MQTT [MQTT-3.1.2-1]",
        }),
    }
}

/// The Connect Flags (3.1.2.3).
#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    const CLEAN_START: u8 = 0x02;
    const WILL: u8 = 0x04;
    const WILL_QOS_SHIFT: u32 = 3;
    const WILL_RETAIN: u8 = 0x20;
    const PASSWORD: u8 = 0x40;
    const USER_NAME: u8 = 0x80;

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn will_qos(self) -> Option<QoS> {
        QoS::from_u8(self.0 >> Flags::WILL_QOS_SHIFT & 0b11)
    }

    fn check(self, version: ProtocolVersion) -> Result<(), Malformed> {
        // MQTT 3.1 leaves the bit unused, without saying that it must be 0.
        if self.has(1) && version != ProtocolVersion::V3_1 {
            return Err(Malformed::packet("CONNECT, Connect Flags: reserved bit [MQTT-3.1.2-3]"));
        }
        match self.will_qos() {
            None => {
                return Err(Malformed::packet("CONNECT, Connect Flags: Will QoS 3 [MQTT-3.1.2-12]"));
            }
            Some(qos) if qos != QoS::AtMostOnce && !self.has(Flags::WILL) => {
                return Err(Malformed::packet("CONNECT, Connect Flags: Will QoS without a Will [MQTT-3.1.2-11]"));
            }
            Some(_) => {}
        }
        if self.has(Flags::WILL_RETAIN) && !self.has(Flags::WILL) {
            return Err(Malformed::packet("CONNECT, Connect Flags: Will Retain without a Will [MQTT-3.1.2-13]"));
        }
        if self.has(Flags::PASSWORD) && !self.has(Flags::USER_NAME) && !version.is_v5() {
            return Err(Malformed::packet(
                "CONNECT, Connect Flags: password without user name (3.1.1 [MQTT-3.1.2-22])",
            ));
        }
        Ok(())
    }
}

impl<'a> Connect<'a> {
    pub(super) fn decode(body: &'a [u8]) -> Result<Connect<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let version = read_version(&mut reader)?;
        let flags = Flags(reader.u8(field!("CONNECT, Connect Flags"))?);
        flags.check(version)?;
        let clean_start = flags.has(Flags::CLEAN_START);
        let keep_alive_secs = reader.u16(field!("CONNECT, Keep Alive"))?;
        let properties =
            if version.is_v5() { Properties::read(&mut reader, Place::Connect)? } else { Properties::EMPTY };
        let client_id = reader.string(field!("CONNECT, Client Identifier"))?;
        let will = if flags.has(Flags::WILL) { Some(Will::read(&mut reader, flags, version)?) } else { None };
        let user_name = if follows(&reader, flags, Flags::USER_NAME, version) {
            Some(reader.string(field!("CONNECT, User Name"))?)
        } else {
            None
        };
        let password = if follows(&reader, flags, Flags::PASSWORD, version) {
            Some(reader.binary(field!("CONNECT, Password"))?)
        } else {
            None
        };
        reader.end("CONNECT: bytes behind the last field (3.1.3)")?;
        check_client_id(client_id, clean_start, version)?;
        Ok(Connect { version, clean_start, keep_alive_secs, client_id, properties, will, user_name, password })
    }

    /// Appends the packet in the form of its own version; the other argument is there for the uniform call.
    pub fn encode(&self, _version: ProtocolVersion, out: &mut Vec<u8>) {
        put_packet(out, PacketType::Connect.first_byte(), |out| {
            put_binary(out, self.version.protocol_name().as_bytes());
            out.push(self.version.level());
            out.push(self.flags());
            put_u16(out, self.keep_alive_secs);
            if self.version.is_v5() {
                self.properties.put(out);
            }
            put_binary(out, self.client_id.as_bytes());
            if let Some(will) = &self.will {
                will.put(self.version, out);
            }
            if let Some(user_name) = self.user_name {
                put_binary(out, user_name.as_bytes());
            }
            if let Some(password) = self.password {
                put_binary(out, password);
            }
        });
    }

    fn flags(&self) -> u8 {
        let mut flags = if self.clean_start { Flags::CLEAN_START } else { 0 };
        if let Some(will) = &self.will {
            flags |= Flags::WILL | (will.qos as u8) << Flags::WILL_QOS_SHIFT;
            flags |= if will.retain { Flags::WILL_RETAIN } else { 0 };
        }
        flags |= if self.user_name.is_some() { Flags::USER_NAME } else { 0 };
        flags | if self.password.is_some() { Flags::PASSWORD } else { 0 }
    }
}

/// Whether a field follows of which the flags say so. In MQTT 3.1 user name and password may be missing in spite of their flags: the
/// Remaining Length takes precedence (3.1, section 3.1, "User name and password flags").
fn follows(reader: &Reader<'_>, flags: Flags, flag: u8, version: ProtocolVersion) -> bool {
    flags.has(flag) && !(version == ProtocolVersion::V3_1 && reader.is_empty())
}

/// Only MQTT 5.0, and MQTT 3.1.1 with Clean Session, let the server assign the client identifier. Lengths are not limited here.
fn check_client_id(client_id: &str, clean_start: bool, version: ProtocolVersion) -> Result<(), Malformed> {
    let may_be_empty = match version {
        ProtocolVersion::V3_1 => false,
        ProtocolVersion::V3_1_1 => clean_start,
        ProtocolVersion::V5 => true,
    };
    if client_id.is_empty() && !may_be_empty {
        return Err(Malformed {
            reason: ReasonCode::ClientIdentifierNotValid,
            what: "CONNECT, Client Identifier: empty (3.1.1 [MQTT-3.1.3-8])",
        });
    }
    Ok(())
}

impl<'a> Will<'a> {
    fn read(reader: &mut Reader<'a>, flags: Flags, version: ProtocolVersion) -> Result<Will<'a>, Malformed> {
        let properties = if version.is_v5() { Properties::read(reader, Place::Will)? } else { Properties::EMPTY };
        let topic = reader.string(field!("CONNECT, Will Topic"))?;
        if topic.is_empty() {
            return Err(Malformed::packet("CONNECT, Will Topic: empty [MQTT-4.7.3-1]"));
        }
        if has_wildcard(topic) {
            return Err(Malformed::packet("CONNECT, Will Topic: has wildcards [MQTT-4.7.0-1]"));
        }
        let payload = reader.binary(field!("CONNECT, Will Payload"))?;
        let qos = flags.will_qos().unwrap_or_default();
        Ok(Will { qos, retain: flags.has(Flags::WILL_RETAIN), properties, topic, payload })
    }

    fn put(&self, version: ProtocolVersion, out: &mut Vec<u8>) {
        if version.is_v5() {
            self.properties.put(out);
        }
        put_binary(out, self.topic.as_bytes());
        put_binary(out, self.payload);
    }
}
