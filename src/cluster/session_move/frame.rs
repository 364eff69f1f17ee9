//! What holder and claimant say to each other. The first byte of each frame is its kind; numbers are little-endian.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// Bytes of one part of a session: small enough that a heartbeat or another session's part is not held up behind it.
pub const PART_BYTES_MAX: usize = 256 * 1024;

const ASK: u8 = 1;
const YIELD: u8 = 2;
const STATE: u8 = 3;
const NOT_HOLDER: u8 = 4;
const CLOSED: u8 = 5;

/// Bytes of an address at the most: IPv6 with scope and port.
const ADDRESS_BYTES_MAX: usize = 64;

const LAST: u8 = 0x01;
const NOTHING: u8 = 0x02;

/// A frame of the move of `client` under the claim of `epoch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionFrame {
    /// Claimant to holder: all parts before `number` are here.
    Ask { client: Arc<str>, epoch: u64, number: u32 },
    /// Holder to claimant: the old connection is closed and all is acknowledged that it published. The bytes are subscriptions; with `nothing`, there
    /// is no session to come.
    Yield { client: Arc<str>, epoch: u64, number: u32, last: bool, nothing: bool, bytes: Bytes },
    /// Holder to claimant: a part of the state.
    State { client: Arc<str>, epoch: u64, number: u32, last: bool, bytes: Bytes },
    /// Holder to claimant: by the state that I have applied the session is not mine, or not to be given for this claim.
    NotHolder { client: Arc<str>, epoch: u64 },
    /// Holder to claimant, for people: where the connection that is closed for it came from.
    Closed { client: Arc<str>, epoch: u64, address: String },
}

/// Bytes that are no [`SessionFrame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the bytes are no frame of a session's move")]
pub struct MalformedFrame;

impl SessionFrame {
    /// Whose session it is about.
    pub fn client(&self) -> &Arc<str> {
        match self {
            SessionFrame::Ask { client, .. }
            | SessionFrame::Yield { client, .. }
            | SessionFrame::State { client, .. }
            | SessionFrame::NotHolder { client, .. }
            | SessionFrame::Closed { client, .. } => client,
        }
    }

    /// The epoch of the claim.
    pub fn epoch(&self) -> u64 {
        match *self {
            SessionFrame::Ask { epoch, .. }
            | SessionFrame::Yield { epoch, .. }
            | SessionFrame::State { epoch, .. }
            | SessionFrame::NotHolder { epoch, .. }
            | SessionFrame::Closed { epoch, .. } => epoch,
        }
    }

    /// Whether the claimant says it, so that the holder's machine is meant.
    pub fn is_for_holder(&self) -> bool {
        matches!(self, SessionFrame::Ask { .. })
    }

    pub fn encode(&self) -> Bytes {
        let (kind, number, flags, bytes): (u8, u32, u8, &[u8]) = match self {
            SessionFrame::Ask { number, .. } => (ASK, *number, 0, &[]),
            SessionFrame::Yield { number, last, nothing, bytes, .. } => {
                (YIELD, *number, flag(*last, LAST) | flag(*nothing, NOTHING), bytes)
            }
            SessionFrame::State { number, last, bytes, .. } => (STATE, *number, flag(*last, LAST), bytes),
            SessionFrame::NotHolder { .. } => (NOT_HOLDER, 0, 0, &[]),
            SessionFrame::Closed { address, .. } => (CLOSED, 0, 0, address.as_bytes()),
        };
        let client = self.client();
        debug_assert!(u16::try_from(client.len()).is_ok(), "longer than any client id");
        let mut out = Vec::with_capacity(16 + client.len() + bytes.len());
        out.push(kind);
        out.push(flags);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&self.epoch().to_le_bytes());
        out.extend_from_slice(&(client.len() as u16).to_le_bytes());
        out.extend_from_slice(client.as_bytes());
        out.extend_from_slice(bytes);
        out.into()
    }

    /// The parts keep a slice of `frame`.
    pub fn decode(frame: &Bytes) -> Result<SessionFrame, MalformedFrame> {
        let (head, rest) = frame.split_first_chunk::<16>().ok_or(MalformedFrame)?;
        let [kind, flags, n0, n1, n2, n3, epoch @ .., l0, l1] = *head;
        let (number, epoch) = (u32::from_le_bytes([n0, n1, n2, n3]), u64::from_le_bytes(epoch));
        let (client, rest) = rest.split_at_checked(u16::from_le_bytes([l0, l1]).into()).ok_or(MalformedFrame)?;
        let client: Arc<str> = std::str::from_utf8(client).map_err(|_| MalformedFrame)?.into();
        if rest.len() > PART_BYTES_MAX {
            return Err(MalformedFrame);
        }
        let bytes = frame.slice_ref(rest);
        let last = flags & LAST != 0;
        match (kind, flags) {
            (ASK, 0) if bytes.is_empty() => Ok(SessionFrame::Ask { client, epoch, number }),
            (NOT_HOLDER, 0) if bytes.is_empty() && number == 0 => Ok(SessionFrame::NotHolder { client, epoch }),
            (YIELD, 0..=3) => {
                let nothing = flags & NOTHING != 0;
                Ok(SessionFrame::Yield { client, epoch, number, last, nothing, bytes })
            }
            (CLOSED, 0) if bytes.len() <= ADDRESS_BYTES_MAX && number == 0 => {
                let address = std::str::from_utf8(&bytes).map_err(|_| MalformedFrame)?.to_owned();
                Ok(SessionFrame::Closed { client, epoch, address })
            }
            (STATE, 0..=1) => Ok(SessionFrame::State { client, epoch, number, last, bytes }),
            _ => Err(MalformedFrame),
        }
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}
