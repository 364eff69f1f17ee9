//! The data types of the wire (1.5): integers, strings, binary data and variable byte integers, read and written.

use super::codec::{Malformed, REMAINING_LENGTH_MAX};
use super::{PacketId, ReasonCode};

/// The three ways in which a field of a packet can be wrong, in words. Made by [`field!`].
pub(super) struct Field {
    pub cut: &'static str,
    pub utf8: &'static str,
    pub nul: &'static str,
}

/// Names a field for the errors of [`Reader`].
macro_rules! field {
    ($name:literal) => {
        &$crate::mqtt::wire::Field {
            cut: concat!($name, ": runs past the end of the packet"),
            utf8: concat!($name, ": not UTF-8 [MQTT-1.5.4-1]"),
            nul: concat!($name, ": holds U+0000 [MQTT-1.5.4-2]"),
        }
    };
}
pub(super) use field;

/// Reads fields from the front of a packet's body. It never reads past the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn u8(&mut self, field: &'static Field) -> Result<u8, Malformed> {
        let (&value, rest) = self.rest.split_first().ok_or_else(|| Malformed::packet(field.cut))?;
        self.rest = rest;
        Ok(value)
    }

    #[inline]
    pub fn u16(&mut self, field: &'static Field) -> Result<u16, Malformed> {
        let (value, rest) = self.rest.split_first_chunk::<2>().ok_or_else(|| Malformed::packet(field.cut))?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*value))
    }

    #[inline]
    pub fn u32(&mut self, field: &'static Field) -> Result<u32, Malformed> {
        let (value, rest) = self.rest.split_first_chunk::<4>().ok_or_else(|| Malformed::packet(field.cut))?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*value))
    }

    /// A packet identifier, which is never zero [MQTT-2.2.1-3].
    #[inline]
    pub fn packet_id(&mut self, field: &'static Field) -> Result<PacketId, Malformed> {
        let value = self.u16(field)?;
        PacketId::new(value)
            .ok_or(Malformed { reason: ReasonCode::ProtocolError, what: "Packet Identifier: is 0 [MQTT-2.2.1-3]" })
    }

    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize, field: &'static Field) -> Result<&'a [u8], Malformed> {
        let (value, rest) = self.rest.split_at_checked(len).ok_or_else(|| Malformed::packet(field.cut))?;
        self.rest = rest;
        Ok(value)
    }

    /// Binary data: two bytes of length, then the bytes (1.5.6).
    #[inline]
    pub fn binary(&mut self, field: &'static Field) -> Result<&'a [u8], Malformed> {
        let len = self.u16(field)?;
        self.bytes(usize::from(len), field)
    }

    /// A UTF-8 encoded string (1.5.4).
    #[inline]
    pub fn string(&mut self, field: &'static Field) -> Result<&'a str, Malformed> {
        let bytes = self.binary(field)?;
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::packet(field.utf8))?;
        if memchr::memchr(0, bytes).is_some() {
            return Err(Malformed::packet(field.nul));
        }
        Ok(text)
    }

    /// A variable byte integer in its shortest form (1.5.5) [MQTT-1.5.5-1].
    #[inline]
    pub fn variable_int(&mut self, field: &'static Field) -> Result<u32, Malformed> {
        let mut value = 0;
        for index in 0..4 {
            let byte = self.u8(field)?;
            value |= u32::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                if byte == 0 && index > 0 {
                    return Err(Malformed::packet("Variable Byte Integer: longer than it need be [MQTT-1.5.5-1]"));
                }
                return Ok(value);
            }
        }
        Err(Malformed::packet("Variable Byte Integer: more than four bytes (1.5.5)"))
    }

    /// Refuses bytes behind the last field.
    #[inline]
    pub fn end(&self, what: &'static str) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::packet(what)) }
    }
}

/// Bytes that a variable byte integer takes. The value is at most 268,435,455.
#[inline]
pub(super) const fn variable_int_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Appends a variable byte integer. Values above 268,435,455 do not exist: who encodes bounds what it encodes.
#[inline]
pub(super) fn put_variable_int(out: &mut Vec<u8>, value: usize) {
    if value < 0x80 {
        out.push(value as u8);
        return;
    }
    assert!(value <= REMAINING_LENGTH_MAX, "a packet of more than 268,435,455 bytes was to be encoded");
    let mut rest = value;
    while rest >= 0x80 {
        out.push((rest & 0x7F) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[inline]
pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends binary data or a string. Longer than 65,535 bytes does not exist: who encodes bounds what it encodes.
#[inline]
pub(super) fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len();
    assert!(len <= usize::from(u16::MAX), "a field of more than 65,535 bytes was to be encoded");
    put_u16(out, len as u16);
    out.extend_from_slice(bytes);
}

/// Appends a whole packet whose length is not known before its body is written.
pub(super) fn put_packet(out: &mut Vec<u8>, first_byte: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(first_byte);
    let length_at = out.len();
    out.push(0);
    body(out);
    let remaining = out.len() - length_at - 1;
    let mut length = Vec::with_capacity(4);
    put_variable_int(&mut length, remaining);
    out.splice(length_at..=length_at, length);
}
