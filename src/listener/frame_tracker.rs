//! Where in which WebSocket frame a stream of received bytes stands (RFC 6455, section 5.2).
//!
//! Pure. It reads the heads of frames and counts payloads; it judges nothing, which is the WebSocket library's to do.
//!
//! Invariant: fed with the same bytes in whatever pieces, it stands at the same place.

/// The longest head of a frame: two bytes, a length of eight, a mask of four.
const HEAD_BYTES_MAX: usize = 14;

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    head: [u8; HEAD_BYTES_MAX],
    head_len: u8,
    payload_left: u64,
    /// A data frame came without FIN: its message goes on.
    is_mid_message: bool,
}

impl FrameTracker {
    /// Whether the next byte begins a message, or a control frame between messages.
    pub(super) fn is_between_messages(&self) -> bool {
        self.head_len == 0 && self.payload_left == 0 && !self.is_mid_message
    }

    /// Takes the next bytes into account.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if self.payload_left > 0 {
                let len = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
                self.payload_left -= len as u64;
                bytes = &bytes[len..];
                continue;
            }
            self.head[usize::from(self.head_len)] = *first;
            self.head_len += 1;
            bytes = &bytes[1..];
            if usize::from(self.head_len) == self.head_bytes() {
                self.end_of_head();
            }
        }
    }

    /// How long this head is, as far as it is known: its second byte says it.
    fn head_bytes(&self) -> usize {
        if self.head_len < 2 {
            return 2;
        }
        let length = match self.head[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        2 + length + mask
    }

    fn end_of_head(&mut self) {
        let length = |bytes: &[u8]| bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        self.payload_left = match self.head[1] & 0x7F {
            126 => length(&self.head[2..4]),
            127 => length(&self.head[2..10]),
            short => u64::from(short),
        };
        // Opcodes from 8 on are of control frames, which may stand between the fragments of a message.
        if self.head[0] & 0x08 == 0 {
            self.is_mid_message = self.head[0] & 0x80 == 0;
        }
        self.head_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame and whether it ends between two messages, given that a message was open before it.
    fn frame(kind: u8, len: usize, masked: bool) -> (Vec<u8>, Option<bool>) {
        let (first, is_open) = match kind {
            0 => (0x82, Some(false)),
            1 => (0x02, Some(true)),
            2 => (0x00, Some(true)),
            3 => (0x80, Some(false)),
            4 => (0x89, None),
            _ => (0x8A, None),
        };
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![first];
        match len {
            ..=125 => bytes.push(mask | len as u8),
            126..=65_535 => {
                bytes.push(mask | 126);
                bytes.extend((len as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((len as u64).to_be_bytes());
            }
        }
        bytes.extend(if masked { vec![0xFF; 4] } else { Vec::new() });
        bytes.extend(vec![0xA5; len]);
        (bytes, is_open)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn it_stands_between_messages_exactly_where_they_end(
            frames in prop::collection::vec((0u8..6, prop_oneof![0usize..4, 120usize..130, 65_530usize..65_540], any::<bool>()), 1..6),
            cuts in prop::collection::vec(1usize..5000, 1..40),
        ) {
            let mut bytes = Vec::new();
            let mut ends = std::collections::HashSet::from([0]);
            let mut is_open = false;
            for (kind, len, masked) in frames {
                let (frame, opens) = frame(kind, len, masked);
                bytes.extend(frame);
                is_open = opens.unwrap_or(is_open);
                if !is_open {
                    ends.insert(bytes.len());
                }
            }
            let mut tracker = FrameTracker::default();
            let mut at = 0;
            for cut in cuts.iter().cycle() {
                prop_assert_eq!(tracker.is_between_messages(), ends.contains(&at), "at {}", at);
                if at == bytes.len() {
                    break;
                }
                let next = (at + cut).min(bytes.len());
                tracker.feed(&bytes[at..next]);
                at = next;
            }
        }
    }
}
