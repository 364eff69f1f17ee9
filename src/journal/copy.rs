//! What a node sends to the heirs of its sessions, as bytes: one turn's changes of the sessions that have a copy there.
//!
//! ```text
//! u8 version | entries
//! Begin:    u8 1 | u64 owner | blob header
//! Put:      u8 2 | u64 owner | u64 item | blob value | u8 0 (no body), 1 (that of the Put before), 2 and blob body, or 3 and the blob of a body that
//!           is ahead
//! Delete:   u8 3 | u64 owner | u64 item
//! Drop:     u8 4 | u64 owner
//! Complete: u8 5 | u64 owner
//! Seen:     u8 6 | u64 node | u16 shard | u64 sequence
//! ```
//! Headers, values and bodies are as they are on disk, but with the milliseconds that are left in the place of times, as clocks differ.
//!
//! What is read came from a network: all of it is checked, and what it takes in memory is bounded by its length.
//!
//! Test to read first: `tests::a_copy_as_bytes`.

use std::sync::Arc;

use holdfast_storage::{BodyId, Entry, ItemId, OwnerId, Value};
use thiserror::Error;

use crate::cluster::copies::CopyEntry;
use crate::mqtt::{Message, MessageId};
use crate::session::Restored;

use super::bytes::{Sink as _, Source};
use super::items::{self, Header, decode_item};
use super::message;
use super::wire::{self, ITEM_BYTES_MAX, POSITION_MAX};
use super::{HEADER, SESSIONS};

const VERSION: u8 = 1;

const BEGIN: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const DROP: u8 = 4;
const COMPLETE: u8 = 5;
const SEEN: u8 = 6;

const NO_BODY: u8 = 0;
const SAME_BODY: u8 = 1;
const NEW_BODY: u8 = 2;
const BODY_AHEAD: u8 = 3;

/// Makes one frame's entries.
#[derive(Debug)]
pub struct CopyWriter {
    out: Vec<u8>,
    now: u64,
    /// The last body that was written, and as what.
    body: Option<(BodyId, u8)>,
}

impl CopyWriter {
    /// `now`: of the clock by which messages expire.
    pub fn new(now: u64) -> CopyWriter {
        CopyWriter { out: vec![VERSION], now, body: None }
    }

    /// What the storage is told of a session. The header begins a copy, which forgets an older one; without its header nothing is left of it.
    pub fn entry(&mut self, entry: &Entry) {
        self.write(entry, NEW_BODY);
    }

    /// The same, if a later frame has the message of the entry for other sessions.
    pub fn entry_ahead(&mut self, entry: &Entry) {
        self.write(entry, BODY_AHEAD);
    }

    fn write(&mut self, entry: &Entry, kind: u8) {
        match entry {
            Entry::Put { owner, item: HEADER, value, .. } => {
                self.head(BEGIN, *owner);
                self.out.blob(value);
            }
            Entry::Put { owner, item, value, body } => {
                self.head(PUT, *owner);
                self.out.u64(*item);
                let now = self.now;
                let start = self.blob(|out| out.extend_from_slice(value));
                items::change_expiry(&mut self.out[start..], |at| at.saturating_sub(now));
                match body {
                    None => self.out.u8(NO_BODY),
                    Some(body) if self.body == Some((body.id(), kind)) => self.out.u8(SAME_BODY),
                    Some(body) => {
                        self.body = Some((body.id(), kind));
                        self.out.u8(kind);
                        let start = self.blob(|out| body.encode(out));
                        message::change_expiry(&mut self.out[start..], |at| at.saturating_sub(now));
                    }
                }
            }
            Entry::Drop { owner } | Entry::Delete { owner, item: HEADER } => self.head(DROP, *owner),
            Entry::Delete { owner, item } => {
                self.head(DELETE, *owner);
                self.out.u64(*item);
            }
        }
    }

    /// All of the session is with its heir.
    pub fn complete(&mut self, owner: OwnerId) {
        self.head(COMPLETE, owner);
    }

    /// The sessions of this shard have the message and all before it in its stream.
    pub fn seen(&mut self, id: MessageId) {
        self.out.u8(SEEN);
        self.out.u64(id.node);
        self.out.u16(id.shard);
        self.out.u64(id.sequence);
    }

    /// In bytes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether there is nothing to send.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.out.len() == 1
    }

    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    fn head(&mut self, kind: u8, owner: OwnerId) {
        self.out.u8(kind);
        self.out.u64(owner.0);
    }

    /// Puts the length in front of what `encode` appends, and returns where that begins.
    fn blob(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.out.u32(0);
        let start = self.out.len();
        encode(&mut self.out);
        // No packet is larger than 256 MiB.
        let length = (self.out.len() - start) as u32;
        self.out[start - 4..start].copy_from_slice(&length.to_le_bytes());
        start
    }
}

/// Bytes that are no entries of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the bytes of a copy are malformed: {0}")]
pub struct MalformedCopy(&'static str);

/// The entries of what a [`CopyWriter`] made. `now`: of the clock by which messages are to expire.
///
/// # Errors
/// If one of them cannot be.
pub fn read_copy(entries: &[u8], now: u64) -> Result<Vec<CopyEntry>, MalformedCopy> {
    let mut reader = Reader { source: Source(entries), now, body: None };
    if reader.source.u8() != Some(VERSION) {
        return Err(MalformedCopy("a version that this node does not know"));
    }
    let mut read = Vec::new();
    while !reader.source.0.is_empty() {
        read.push(reader.entry()?);
    }
    Ok(read)
}

struct Reader<'a> {
    source: Source<'a>,
    now: u64,
    /// The last body that came, and whether it is ahead.
    body: Option<(Arc<Message>, bool)>,
}

impl Reader<'_> {
    fn entry(&mut self) -> Result<CopyEntry, MalformedCopy> {
        let kind = self.source.u8().ok_or(CUT_OFF)?;
        if kind == SEEN {
            return self.seen();
        }
        let owner = OwnerId(self.source.u64().ok_or(CUT_OFF)?);
        if owner < SESSIONS {
            return Err(MalformedCopy("an owner that is no session"));
        }
        match kind {
            BEGIN => {
                let header = Header::decode(self.source.blob().ok_or(CUT_OFF)?).ok_or(MalformedCopy("not a header"))?;
                Ok(CopyEntry::Begin { owner, client_id: header.client_id, began: header.began })
            }
            PUT => self.put(owner),
            DELETE => Ok(CopyEntry::Delete { owner, item: self.item()? }),
            DROP => Ok(CopyEntry::Drop { owner }),
            COMPLETE => Ok(CopyEntry::Complete { owner }),
            _ => Err(MalformedCopy("an entry of a kind that this node does not know")),
        }
    }

    fn item(&mut self) -> Result<ItemId, MalformedCopy> {
        let item = self.source.u64().ok_or(CUT_OFF)?;
        Some(item).filter(|item| (HEADER + 1..POSITION_MAX).contains(item)).ok_or(MalformedCopy("no position"))
    }

    fn put(&mut self, owner: OwnerId) -> Result<CopyEntry, MalformedCopy> {
        let item = self.item()?;
        let bytes = self.source.blob().ok_or(CUT_OFF)?;
        let restored = decode_item(item, bytes).filter(|item| bytes.len() <= ITEM_BYTES_MAX && wire::can_be(item));
        let restored = restored.ok_or(MalformedCopy("not an item"))?;
        let body = self.body()?;
        if body.is_some() && !matches!(restored, Restored::Message { .. }) {
            return Err(MalformedCopy("a body that belongs to nothing"));
        }
        let mut value = Value::from_slice(bytes);
        items::change_expiry(&mut value, |left| self.now.saturating_add(left));
        let (body, ahead) = body.map_or((None, false), |(body, ahead)| (Some(body), ahead));
        Ok(CopyEntry::Put { owner, item, value, body, ahead })
    }

    fn body(&mut self) -> Result<Option<(Arc<Message>, bool)>, MalformedCopy> {
        match self.source.u8().ok_or(CUT_OFF)? {
            NO_BODY => return Ok(None),
            SAME_BODY => {}
            kind @ (NEW_BODY | BODY_AHEAD) => {
                let body = self.source.blob().ok_or(CUT_OFF)?;
                let message = wire::decode_body(body, self.now).ok_or(MalformedCopy("not a message"))?;
                self.body = Some((Arc::new(message), kind == BODY_AHEAD));
            }
            _ => return Err(MalformedCopy("a body of a kind that this node does not know")),
        }
        self.body.clone().map(Some).ok_or(MalformedCopy("the body before, and there is none"))
    }

    fn seen(&mut self) -> Result<CopyEntry, MalformedCopy> {
        let (Some(node), Some(shard), Some(sequence)) = (self.source.u64(), self.source.u16(), self.source.u64())
        else {
            return Err(CUT_OFF);
        };
        Ok(CopyEntry::Seen { id: MessageId { node, shard, sequence } })
    }
}

const CUT_OFF: MalformedCopy = MalformedCopy("it ends in the middle");

#[cfg(test)]
mod tests;
