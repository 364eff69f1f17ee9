//! What nodes say to one another for the control plane, as bytes. [pure]
//!
//! A message is: version (1), the cluster that its sender is in (16; 0: none yet), kind (1), body. Whoever carries it knows its length, at most [`MESSAGE_BYTES_MAX`]. What is small is
//! in postcard; what carries entries, batches and pieces of snapshots is written by hand, so that their bytes are shared and not copied.
//!
//! Test to read first: `tests::messages_come_back_as_they_were`.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::command::Incarnation;
use crate::entry::{self, Batch, EntryFault, SnapshotMeta, TypeConfig, Vote};

/// The version of these messages.
pub const WIRE_VERSION: u8 = 1;

/// Bytes of a message at most: with a byte that says whose it is, 4 MiB.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024 - 1;

/// Bytes of one that is small.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Bytes of entries that one message carries, unless a single one is larger.
pub(crate) const APPEND_BYTES_MAX: usize = 2 * 1024 * 1024;

const HEAD: usize = 18;

/// Which connection a message takes, so that snapshots are not in the way of heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Control,
    Bulk,
}

/// One message.
#[derive(Debug)]
pub(crate) enum Message {
    Append {
        request: u64,
        rpc: AppendEntriesRequest<TypeConfig>,
    },
    /// A numbered batch for the leader. It says whose it is, because any node passes it on.
    Propose {
        hops: u8,
        batch: Batch,
    },
    Part(SnapshotPart),
    Control(Control),
}

/// A piece of a snapshot; the first one says what it is a snapshot of.
#[derive(Debug, PartialEq)]
pub(crate) struct SnapshotPart {
    pub request: u64,
    /// The same for all pieces of one sending.
    pub transfer: u64,
    pub vote: Vote,
    pub meta: SnapshotMeta,
    /// Counts from 0.
    pub position: u32,
    pub last: bool,
    pub bytes: Bytes,
}

/// What is small.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Control {
    AppendAnswer {
        request: u64,
        answer: AppendEntriesResponse<u128>,
    },
    Vote {
        request: u64,
        rpc: VoteRequest<u128>,
    },
    VoteAnswer {
        request: u64,
        answer: VoteResponse<u128>,
    },
    PartAnswer {
        request: u64,
        answer: PartAnswer,
    },
    /// A node asks to go on. `sent` is of its own boot clock.
    Renew {
        incarnation: Incarnation,
        sent: u64,
        complaints: Vec<(u128, Incarnation)>,
        hampered: bool,
    },
    /// It may, for `granted` milliseconds from `sent` on.
    Renewed {
        incarnation: Incarnation,
        sent: u64,
        granted: u64,
    },
    /// That incarnation is not live in the state that the leader has applied.
    Expired {
        incarnation: Incarnation,
    },
    /// The sender is about to stop and does nothing more under that incarnation: nobody has to wait until it is silent for long enough.
    Ended {
        incarnation: Incarnation,
    },
    /// All shards of the sender route with the state of that index.
    Applied {
        index: u64,
    },
    /// A node wants an incarnation, for the leader; `hops` as in `Propose`.
    Register {
        hops: u8,
        node: u128,
        name: String,
        run: u64,
        versions: (u16, u16),
        intact: bool,
        linked: Vec<u128>,
    },
    /// Who the sender is, and which cluster it is in, as every message says.
    Hello {
        name: String,
    },
    /// A node would found a cluster and asks for the promise to be in no other.
    AskPromise {
        attempt: u64,
    },
    Promise {
        attempt: u64,
        name: String,
    },
    /// A node wants to be a member, for the leader.
    Join {
        hops: u8,
        node: u128,
        name: String,
    },
    /// It cannot.
    JoinRefused {
        reason: String,
    },
    /// A member is to go, for the leader. `force`: it is somebody else who says so.
    /// `again`: so said an earlier request, of which it is not known what came of it.
    Depart {
        hops: u8,
        request: u64,
        asker: u128,
        who: String,
        force: bool,
        again: bool,
    },
    DepartAnswer {
        request: u64,
        refused: Option<String>,
    },
    /// The leader stops, and would be followed by the receiver.
    TakeOver,
    /// The receiver asks for votes and is no member in the log of the sender.
    NoMember,
}

/// What became of a piece of a snapshot.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum PartAnswer {
    More,
    Installed(Vote),
    Refused(String),
}

/// Bytes that are no message for this node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireFault {
    #[error("a message of {0} bytes is more than one of its kind has")]
    TooLarge(usize),
    #[error("the message ends too early")]
    Short,
    #[error("the message is of version {0}, and this node speaks version {WIRE_VERSION}")]
    Version(u8),
    #[error("the message is of unknown kind {0}")]
    Kind(u8),
    #[error("the message cannot be read")]
    Malformed,
    #[error("{0}")]
    Entry(#[from] EntryFault),
}

const APPEND: u8 = 1;
const PROPOSE: u8 = 2;
const PART: u8 = 3;
const CONTROL: u8 = 4;

/// The bytes of `message`, from a node of `cluster`, 0 for none.
pub(crate) fn encode(cluster: u128, message: &Message) -> Bytes {
    let room = match message {
        Message::Append { rpc, .. } => 128 + rpc.entries.iter().map(entry::encoded_len).sum::<usize>(),
        Message::Propose { batch, .. } => 64 + batch.commands.len(),
        Message::Part(part) => 512 + part.bytes.len(),
        Message::Control(_) => 128,
    };
    let mut out = BytesMut::with_capacity(HEAD + room);
    out.put_u8(WIRE_VERSION);
    out.put_u128_le(cluster);
    match message {
        Message::Append { request, rpc } => {
            out.put_u8(APPEND);
            out.put_u64_le(*request);
            put_small(&(&rpc.vote, &rpc.prev_log_id, &rpc.leader_commit), &mut out);
            out.put_u32_le(u32::try_from(rpc.entries.len()).unwrap_or(u32::MAX));
            rpc.entries.iter().for_each(|each| entry::encode(each, &mut out));
        }
        Message::Propose { hops, batch } => {
            out.put_u8(PROPOSE);
            out.put_u8(*hops);
            entry::encode_batch(batch, &mut out);
        }
        Message::Part(part) => {
            out.put_u8(PART);
            put_small(&(part.request, part.transfer, &part.vote, &part.meta, part.position, part.last), &mut out);
            entry::put_bytes(&part.bytes, &mut out);
        }
        Message::Control(control) => {
            out.put_u8(CONTROL);
            put_small(control, &mut out);
        }
    }
    out.freeze()
}

/// The cluster of its sender, 0 for none, and the message.
pub(crate) fn decode(mut bytes: Bytes) -> Result<(u128, Message), WireFault> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireFault::TooLarge(bytes.len()));
    }
    match bytes.first() {
        Some(&WIRE_VERSION) => {}
        Some(&other) => return Err(WireFault::Version(other)),
        None => return Err(WireFault::Short),
    }
    if bytes.len() < HEAD {
        return Err(WireFault::Short);
    }
    bytes.advance(1);
    let cluster = bytes.get_u128_le();
    let message = match bytes.get_u8() {
        APPEND => decode_append(&mut bytes)?,
        PROPOSE => {
            let hops = if bytes.is_empty() { return Err(WireFault::Short) } else { bytes.get_u8() };
            Message::Propose { hops, batch: entry::decode_batch(0, &mut bytes)? }
        }
        PART => {
            let (request, transfer, vote, meta, position, last) = take_small(&mut bytes)?;
            let bytes = entry::take_bytes(&mut bytes)?;
            Message::Part(SnapshotPart { request, transfer, vote, meta, position, last, bytes })
        }
        CONTROL if bytes.len() > CONTROL_BYTES_MAX => return Err(WireFault::TooLarge(HEAD + bytes.len())),
        CONTROL => Message::Control(take_small(&mut bytes)?),
        unknown => return Err(WireFault::Kind(unknown)),
    };
    Ok((cluster, message))
}

fn decode_append(bytes: &mut Bytes) -> Result<Message, WireFault> {
    if bytes.len() < 8 {
        return Err(WireFault::Short);
    }
    let request = bytes.get_u64_le();
    let (vote, prev_log_id, leader_commit) = take_small(bytes)?;
    if bytes.len() < 4 {
        return Err(WireFault::Short);
    }
    let count = bytes.get_u32_le() as usize;
    // An entry has 33 bytes at least, so what does not fit is not made room for.
    if count > bytes.len() / 33 {
        return Err(WireFault::Short);
    }
    let entries = (0..count).map(|_| entry::decode(bytes)).collect::<Result<_, _>>()?;
    Ok(Message::Append { request, rpc: AppendEntriesRequest { vote, prev_log_id, entries, leader_commit } })
}

fn put_small(value: &impl Serialize, out: &mut BytesMut) {
    // Plain data into memory: this cannot fail.
    let bytes = postcard::to_allocvec(value).unwrap_or_default();
    entry::put_bytes(&bytes, out);
}

fn take_small<T: for<'a> Deserialize<'a>>(bytes: &mut Bytes) -> Result<T, WireFault> {
    let bytes = entry::take_bytes(bytes)?;
    postcard::from_bytes(&bytes).map_err(|_| WireFault::Malformed)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
