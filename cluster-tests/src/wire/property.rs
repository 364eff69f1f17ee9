//! Properties of MQTT 5.0: one table of identifiers (section 2.2.2.2) for the builder and the parser.

use super::{prefixed, varint};

/// Property identifiers, in the words of the specification.
pub mod id {
    pub const PAYLOAD_FORMAT_INDICATOR: u8 = 0x01;
    pub const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
    pub const CONTENT_TYPE: u8 = 0x03;
    pub const RESPONSE_TOPIC: u8 = 0x08;
    pub const CORRELATION_DATA: u8 = 0x09;
    pub const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
    pub const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
    pub const ASSIGNED_CLIENT_IDENTIFIER: u8 = 0x12;
    pub const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub const AUTHENTICATION_METHOD: u8 = 0x15;
    pub const AUTHENTICATION_DATA: u8 = 0x16;
    pub const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
    pub const WILL_DELAY_INTERVAL: u8 = 0x18;
    pub const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
    pub const RESPONSE_INFORMATION: u8 = 0x1A;
    pub const SERVER_REFERENCE: u8 = 0x1C;
    pub const REASON_STRING: u8 = 0x1F;
    pub const RECEIVE_MAXIMUM: u8 = 0x21;
    pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub const TOPIC_ALIAS: u8 = 0x23;
    pub const MAXIMUM_QOS: u8 = 0x24;
    pub const RETAIN_AVAILABLE: u8 = 0x25;
    pub const USER_PROPERTY: u8 = 0x26;
    pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub const WILDCARD_SUBSCRIPTION_AVAILABLE: u8 = 0x28;
    pub const SUBSCRIPTION_IDENTIFIER_AVAILABLE: u8 = 0x29;
    pub const SHARED_SUBSCRIPTION_AVAILABLE: u8 = 0x2A;
}

/// The data types of section 2.2.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Byte,
    TwoBytes,
    FourBytes,
    Varint,
    Text,
    Binary,
    Pair,
}

fn kind(id: u8) -> Option<Kind> {
    Some(match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => Kind::Byte,
        0x13 | 0x21 | 0x22 | 0x23 => Kind::TwoBytes,
        0x02 | 0x11 | 0x18 | 0x27 => Kind::FourBytes,
        0x0B => Kind::Varint,
        0x03 | 0x08 | 0x12 | 0x15 | 0x1A | 0x1C | 0x1F => Kind::Text,
        0x09 | 0x16 => Kind::Binary,
        0x26 => Kind::Pair,
        _ => return None,
    })
}

/// The value of one property as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Number(u32),
    Text(String),
    Binary(Vec<u8>),
    Pair(String, String),
}

/// Properties in their order; also a builder (`number`, `text`, `binary`, `user`) that lets every combination through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    list: Vec<(u8, Value)>,
}

impl Properties {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an integer property; its width follows from the identifier.
    pub fn number(self, id: u8, value: u32) -> Self {
        self.with(id, Value::Number(value))
    }

    pub fn text(self, id: u8, value: &str) -> Self {
        self.with(id, Value::Text(value.to_owned()))
    }

    pub fn binary(self, id: u8, value: impl Into<Vec<u8>>) -> Self {
        self.with(id, Value::Binary(value.into()))
    }

    pub fn user(self, name: &str, value: &str) -> Self {
        self.with(id::USER_PROPERTY, Value::Pair(name.to_owned(), value.to_owned()))
    }

    fn with(mut self, id: u8, value: Value) -> Self {
        self.list.push((id, value));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them as they came.
    pub fn list(&self) -> &[(u8, Value)] {
        &self.list
    }

    /// The identifiers present, in order.
    pub fn ids(&self) -> Vec<u8> {
        self.list.iter().map(|(id, _)| *id).collect()
    }

    pub fn has(&self, id: u8) -> bool {
        self.list.iter().any(|(there, _)| *there == id)
    }

    /// The integer value of the first property with this identifier.
    pub fn get_number(&self, id: u8) -> Option<u32> {
        self.get_numbers(id).first().copied()
    }

    /// All integer values with this identifier (Subscription Identifier may come more than once).
    pub fn get_numbers(&self, id: u8) -> Vec<u32> {
        self.list
            .iter()
            .filter_map(|(there, value)| match value {
                Value::Number(number) if *there == id => Some(*number),
                _ => None,
            })
            .collect()
    }

    pub fn get_text(&self, id: u8) -> Option<&str> {
        self.list.iter().find_map(|(there, value)| match value {
            Value::Text(text) if *there == id => Some(text.as_str()),
            _ => None,
        })
    }

    pub fn get_binary(&self, id: u8) -> Option<&[u8]> {
        self.list.iter().find_map(|(there, value)| match value {
            Value::Binary(bytes) if *there == id => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// The User Properties in order.
    pub fn users(&self) -> Vec<(&str, &str)> {
        self.list
            .iter()
            .filter_map(|(_, value)| match value {
                Value::Pair(name, value) => Some((name.as_str(), value.as_str())),
                _ => None,
            })
            .collect()
    }

    /// The bytes without the length in front; a number's width follows its identifier (an unknown one is written as a byte).
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, value) in &self.list {
            out.push(*id);
            match value {
                Value::Number(number) => match kind(*id) {
                    Some(Kind::TwoBytes) => out.extend((*number as u16).to_be_bytes()),
                    Some(Kind::FourBytes) => out.extend(number.to_be_bytes()),
                    Some(Kind::Varint) => out.extend(varint(*number)),
                    _ => out.push(*number as u8),
                },
                Value::Text(text) => out.extend(prefixed(text)),
                Value::Binary(bytes) => out.extend(prefixed(bytes)),
                Value::Pair(name, value) => {
                    out.extend(prefixed(name));
                    out.extend(prefixed(value));
                }
            }
        }
        out
    }

    /// The bytes with the Property Length in front.
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.body();
        let mut out = varint(body.len() as u32);
        out.extend(body);
        out
    }

    /// Reads properties without their length, and holds them to the rules: known, allowed in this packet, not doubled.
    pub(super) fn parse(mut reader: super::parse::Reader<'_>, allowed: &[u8]) -> Result<Self, String> {
        let mut found = Self::new();
        while !reader.is_empty() {
            let id = reader.u8()?;
            let kind = kind(id).ok_or_else(|| format!("unknown property 0x{id:02X}"))?;
            if !allowed.contains(&id) {
                return Err(format!("property 0x{id:02X} is not allowed in this packet"));
            }
            if found.has(id) && id != id::USER_PROPERTY && id != id::SUBSCRIPTION_IDENTIFIER {
                return Err(format!("property 0x{id:02X} twice"));
            }
            let value = match kind {
                Kind::Byte => Value::Number(u32::from(reader.u8()?)),
                Kind::TwoBytes => Value::Number(u32::from(reader.u16()?)),
                Kind::FourBytes => Value::Number(reader.u32()?),
                Kind::Varint => Value::Number(reader.varint()?),
                Kind::Text => Value::Text(reader.text()?),
                Kind::Binary => Value::Binary(reader.prefixed()?.to_vec()),
                Kind::Pair => Value::Pair(reader.text()?, reader.text()?),
            };
            check_value(id, &value)?;
            found.list.push((id, value));
        }
        Ok(found)
    }
}

/// Values that are a Protocol Error wherever they stand.
fn check_value(id: u8, value: &Value) -> Result<(), String> {
    let Value::Number(number) = value else {
        return Ok(());
    };
    let legal = match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => *number <= 1,
        id::RECEIVE_MAXIMUM | id::MAXIMUM_PACKET_SIZE | id::SUBSCRIPTION_IDENTIFIER | id::TOPIC_ALIAS => *number != 0,
        _ => true,
    };
    if legal { Ok(()) } else { Err(format!("property 0x{id:02X} has the value {number}")) }
}
