//! What stands in the log: openraft's types filled in, and the bytes of an entry, on disk and on the wire alike. [pure]
//!
//! The commands of an entry stay encoded, as their node has encoded them, until each node applies them: the leader and the log only pass bytes on.
//!
//! An entry is, little-endian: kind (1), term (8), leader (16), index (8), then of a membership its length (4) and its encoding, of a proposal: time (8),
//! origin (1: the leader; 2: a node, with id 16, incarnation 8, number 8), number of commands (4), bytes of the commands (4), the commands.
//!
//! Test to read first: `tests::entries_come_back_as_they_were`.

use std::fmt;

use bytes::{Buf, BufMut, Bytes};
use openraft::{CommittedLeaderId, EntryPayload};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::command::Incarnation;

openraft::declare_raft_types!(
    /// The types of the Raft group.
    pub TypeConfig:
        D = Batch,
        R = (),
        NodeId = u128,
        Node = Member,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = crate::state_machine::Image,
);

pub(crate) type Raft = openraft::Raft<TypeConfig>;
pub(crate) type Entry = openraft::Entry<TypeConfig>;
pub(crate) type LogId = openraft::LogId<u128>;
pub(crate) type Vote = openraft::Vote<u128>;
pub(crate) type StorageError = openraft::StorageError<u128>;
pub(crate) type StoredMembership = openraft::StoredMembership<u128, Member>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u128, Member>;

/// More than an entry takes besides the commands of a batch.
pub(crate) const ENTRY_HEAD_MAX: usize = 128;

/// What the group knows of a member besides its id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The configured name. A new id under a known name replaces the old one.
    pub name: String,
}

/// Who asks for the commands of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchOrigin {
    Leader,
    Node { node: u128, incarnation: Incarnation, number: u64 },
}

/// The commands of one entry of the log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Control time in milliseconds, set by the leader.
    pub at: u64,
    pub origin: BatchOrigin,
    /// How many commands there are.
    pub count: u32,
    /// One after the other, each in postcard.
    pub commands: Bytes,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({:?}, {} commands, {} bytes)", self.origin, self.count, self.commands.len())
    }
}

/// Bytes that are no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EntryFault {
    #[error("the entry ends too early")]
    Short,
    #[error("the entry is of unknown kind {0}")]
    Kind(u8),
    #[error("the membership of the entry cannot be read")]
    Membership,
}

const BLANK: u8 = 0;
const PROPOSAL: u8 = 1;
const MEMBERSHIP: u8 = 2;
const FROM_LEADER: u8 = 1;
const FROM_NODE: u8 = 2;

/// Appends the bytes of `entry`.
pub(crate) fn encode(entry: &Entry, out: &mut impl BufMut) {
    let kind = match entry.payload {
        EntryPayload::Blank => BLANK,
        EntryPayload::Normal(_) => PROPOSAL,
        EntryPayload::Membership(_) => MEMBERSHIP,
    };
    out.put_u8(kind);
    encode_log_id(&entry.log_id, out);
    match &entry.payload {
        EntryPayload::Blank => {}
        EntryPayload::Normal(batch) => {
            out.put_u64_le(batch.at);
            encode_batch(batch, out);
        }
        EntryPayload::Membership(membership) => {
            // Maps of numbers and names: this cannot fail.
            let bytes = postcard::to_allocvec(membership).unwrap_or_default();
            put_bytes(&bytes, out);
        }
    }
}

/// Bytes of the encoding, or a little more.
pub(crate) fn encoded_len(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Blank => ENTRY_HEAD_MAX,
        EntryPayload::Normal(batch) => ENTRY_HEAD_MAX + batch.commands.len(),
        EntryPayload::Membership(membership) => ENTRY_HEAD_MAX + membership.nodes().count() * 256,
    }
}

/// Takes one entry from the front of `bytes`; its commands share their memory.
pub(crate) fn decode(bytes: &mut Bytes) -> Result<Entry, EntryFault> {
    let kind = take(bytes, 1, |b| b.get_u8())?;
    let log_id = decode_log_id(bytes)?;
    let payload = match kind {
        BLANK => EntryPayload::Blank,
        PROPOSAL => {
            let at = take(bytes, 8, |b| b.get_u64_le())?;
            EntryPayload::Normal(decode_batch(at, bytes)?)
        }
        MEMBERSHIP => {
            let bytes = take_bytes(bytes)?;
            EntryPayload::Membership(postcard::from_bytes(&bytes).map_err(|_| EntryFault::Membership)?)
        }
        unknown => return Err(EntryFault::Kind(unknown)),
    };
    Ok(Entry { log_id, payload })
}

/// All of a batch but its time, which its node does not know.
pub(crate) fn encode_batch(batch: &Batch, out: &mut impl BufMut) {
    match batch.origin {
        BatchOrigin::Leader => out.put_u8(FROM_LEADER),
        BatchOrigin::Node { node, incarnation, number } => {
            out.put_u8(FROM_NODE);
            out.put_u128_le(node);
            out.put_u64_le(incarnation);
            out.put_u64_le(number);
        }
    }
    out.put_u32_le(batch.count);
    put_bytes(&batch.commands, out);
}

pub(crate) fn decode_batch(at: u64, bytes: &mut Bytes) -> Result<Batch, EntryFault> {
    let origin = match take(bytes, 1, |b| b.get_u8())? {
        FROM_LEADER => BatchOrigin::Leader,
        FROM_NODE => take(bytes, 32, |b| BatchOrigin::Node {
            node: b.get_u128_le(),
            incarnation: b.get_u64_le(),
            number: b.get_u64_le(),
        })?,
        unknown => return Err(EntryFault::Kind(unknown)),
    };
    let count = take(bytes, 4, |b| b.get_u32_le())?;
    Ok(Batch { at, origin, count, commands: take_bytes(bytes)? })
}

pub(crate) fn encode_log_id(id: &LogId, out: &mut impl BufMut) {
    out.put_u64_le(id.leader_id.term);
    out.put_u128_le(id.leader_id.node_id);
    out.put_u64_le(id.index);
}

pub(crate) fn decode_log_id(bytes: &mut Bytes) -> Result<LogId, EntryFault> {
    take(bytes, 32, |b| LogId::new(CommittedLeaderId::new(b.get_u64_le(), b.get_u128_le()), b.get_u64_le()))
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut impl BufMut) {
    out.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}

pub(crate) fn take_bytes(bytes: &mut Bytes) -> Result<Bytes, EntryFault> {
    let len = take(bytes, 4, |b| b.get_u32_le())? as usize;
    if bytes.len() < len {
        return Err(EntryFault::Short);
    }
    Ok(bytes.split_to(len))
}

fn take<R>(bytes: &mut Bytes, len: usize, read: impl FnOnce(&mut Bytes) -> R) -> Result<R, EntryFault> {
    if bytes.len() < len {
        return Err(EntryFault::Short);
    }
    Ok(read(bytes))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bytes::BytesMut;
    use openraft::Membership;

    use super::*;

    fn to_bytes(entry: &Entry) -> Bytes {
        let mut out = BytesMut::new();
        encode(entry, &mut out);
        out.freeze()
    }

    fn samples() -> Vec<Entry> {
        let log_id = LogId::new(CommittedLeaderId::new(3, 1 << 100), 77);
        let origin = BatchOrigin::Node { node: 5, incarnation: 2, number: 9 };
        let batch = |origin| Batch { at: 12, origin, count: 2, commands: Bytes::from_static(b"commands") };
        let nodes = BTreeMap::from([(1, Member { name: "n1".to_owned() }), (2, Member::default())]);
        let payloads = [
            EntryPayload::Blank,
            EntryPayload::Normal(batch(origin)),
            EntryPayload::Normal(batch(BatchOrigin::Leader)),
            EntryPayload::Membership(Membership::new(vec![BTreeSet::from([1])], nodes)),
        ];
        payloads.map(|payload| Entry { log_id, payload }).to_vec()
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let mut bytes = BytesMut::new();
        samples().iter().for_each(|entry| encode(entry, &mut bytes));
        let mut bytes = bytes.freeze();
        for entry in samples() {
            assert_eq!(decode(&mut bytes), Ok(entry));
        }
        assert!(bytes.is_empty());
    }

    #[test]
    fn what_ends_early_is_no_entry() {
        for entry in samples() {
            let whole = to_bytes(&entry);
            for len in 0..whole.len() {
                decode(&mut whole.slice(..len)).expect_err("too short");
            }
        }
        assert_eq!(decode(&mut Bytes::from_static(&[9; 60])), Err(EntryFault::Kind(9)));
    }
}
