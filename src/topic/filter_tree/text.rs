//! Short texts in place: a filter or a level lies in the table or node that it is the key of.
//!
//! With a million filters a look-up costs what it misses in the cache, and a pointer to the key would be one more miss.

/// An immutable text, as bytes; up to `N` of them (at most 255) are stored in place.
#[derive(Debug)]
pub(super) enum Text<const N: usize> {
    Short { len: u8, bytes: [u8; N] },
    Long(Box<[u8]>),
}

impl<const N: usize> Text<N> {
    pub(super) fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(front), Ok(len)) => {
                front.copy_from_slice(text.as_bytes());
                Self::Short { len, bytes }
            }
            _ => Self::Long(text.as_bytes().into()),
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }

    /// The text again; where it is hot, bytes are compared instead.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("made from a str and never changed")
    }
}
