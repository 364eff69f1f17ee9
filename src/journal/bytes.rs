//! Numbers and texts as bytes: little-endian, lengths in front.

/// What can be written to.
pub(super) trait Sink {
    fn bytes(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A text of up to 65,535 bytes, as everything in MQTT that has a length of its own.
    fn text(&mut self, text: &str) {
        debug_assert!(u16::try_from(text.len()).is_ok(), "longer than any text of MQTT");
        self.u16(text.len() as u16);
        self.bytes(text.as_bytes());
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes(bytes);
    }
}

impl Sink for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for holdfast_storage::Value {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Reads what a [`Sink`] was given. `None` when there is not enough, or it cannot be.
pub(super) struct Source<'a>(pub &'a [u8]);

impl<'a> Source<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let len = self.u16()?;
        std::str::from_utf8(self.take(len.into())?).ok()
    }

    pub fn blob(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The value, if nothing is left.
    pub fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}
