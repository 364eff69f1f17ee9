//! Bytes that arrive in pieces give the same frames, or the same refusal, as bytes that arrive at once. The first byte of the
//! input is the size of the pieces, the second the limit.

#![no_main]

use holdfast::mqtt::{ReasonCode, next_frame};
use libfuzzer_sys::fuzz_target;

/// Where the packets end, and why it stopped if not for want of bytes.
type Outcome = (Vec<usize>, Option<ReasonCode>);

fuzz_target!(|data: &[u8]| {
    let [piece, limit, stream @ ..] = data else {
        return;
    };
    let (piece, limit) = (usize::from(*piece).max(1), u32::from(*limit) * 16 + 2);
    assert_eq!(in_pieces(stream, piece, limit), at_once(stream, limit));
});

fn at_once(stream: &[u8], limit: u32) -> Outcome {
    let (mut ends, mut at) = (Vec::new(), 0);
    loop {
        match next_frame(&stream[at..], limit) {
            Ok(Some(frame)) => {
                assert!(frame.total_len >= 2 && frame.total_len as u64 <= u64::from(limit));
                at += frame.total_len;
                ends.push(at);
            }
            Ok(None) => return (ends, None),
            Err(malformed) => return (ends, Some(malformed.reason)),
        }
    }
}

fn in_pieces(stream: &[u8], piece: usize, limit: u32) -> Outcome {
    let (mut ends, mut at, mut arrived) = (Vec::new(), 0, 0);
    loop {
        match next_frame(&stream[at..arrived], limit) {
            Ok(Some(frame)) => {
                at += frame.total_len;
                ends.push(at);
            }
            Ok(None) if arrived == stream.len() => return (ends, None),
            Ok(None) => arrived = (arrived + piece).min(stream.len()),
            Err(malformed) => return (ends, Some(malformed.reason)),
        }
    }
}
