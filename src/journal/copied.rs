//! What an heir writes down of the sessions of other nodes: a copy is an owner with a header of its own kind and the items of the session; one more owner for each
//! home has the streams that its sessions have seen.
//!
//! Test to read first: `tests::headers_and_streams_as_bytes`.

use holdfast_raft::NodeId;
use holdfast_storage::{Entry, OwnerId, Value};

use crate::cluster::copies::receiving::Write;
use crate::cluster::copies::{CopyHeader, Home};
use crate::mqtt::MessageId;

use super::HEADER;
use super::bytes::{Sink as _, Source};

/// Tell a header from that of a session, which begins with its own version.
const SESSION_VERSION: u8 = 65;
const STREAMS_VERSION: u8 = 66;

/// Of the item of a stream.
const VERSION: u8 = 1;

/// What an heir writes, as an entry.
pub fn copied_entry(write: Write) -> Entry {
    match write {
        Write::Header { owner, header } => {
            Entry::Put { owner, item: HEADER, value: encode_header(&header), body: None }
        }
        Write::Put { owner, item, value, body } => {
            Entry::Put { owner, item, value, body: body.map(|message| message as _) }
        }
        Write::Stream { owner, item, id } => Entry::Put { owner, item, value: encode_stream(id), body: None },
        Write::Delete { owner, item } => Entry::Delete { owner, item },
        Write::Drop { owner } => Entry::Drop { owner },
    }
}

fn encode_header(header: &CopyHeader) -> Value {
    let mut out = Value::new();
    let head = |out: &mut Value, version, home: &Home| {
        out.u8(version);
        out.bytes(&home.node.0.to_le_bytes());
        out.u16(home.shard);
    };
    match header {
        CopyHeader::Session { home, owner, client_id, began, complete } => {
            head(&mut out, SESSION_VERSION, home);
            out.u64(owner.0);
            out.u64(*began);
            out.u8(u8::from(*complete));
            out.text(client_id);
        }
        CopyHeader::Streams { home, up_to } => {
            head(&mut out, STREAMS_VERSION, home);
            out.u64(*up_to);
        }
    }
    out
}

/// None for bytes that are no header of copies, such as that of a session.
pub fn decode_copied_header(bytes: &[u8]) -> Option<CopyHeader> {
    let mut source = Source(bytes);
    let version = source.u8()?;
    let node = NodeId((u128::from(source.u64()?)) | (u128::from(source.u64()?) << 64));
    let home = Home { node, shard: source.u16()? };
    let header = match version {
        SESSION_VERSION => {
            let owner = OwnerId(source.u64()?);
            let began = source.u64()?;
            let complete = source.u8()? != 0;
            CopyHeader::Session { home, owner, began, complete, client_id: source.text()?.into() }
        }
        STREAMS_VERSION => CopyHeader::Streams { home, up_to: source.u64()? },
        _ => return None,
    };
    source.end(header)
}

fn encode_stream(id: MessageId) -> Value {
    let mut out = Value::new();
    out.u8(VERSION);
    out.u64(id.node);
    out.u16(id.shard);
    out.u64(id.sequence);
    out
}

/// A stream that the sessions of a home have seen up to there. None for bytes that are none.
pub fn decode_stream(bytes: &[u8]) -> Option<MessageId> {
    let mut source = Source(bytes);
    if source.u8()? != VERSION {
        return None;
    }
    let id = MessageId { node: source.u64()?, shard: source.u16()?, sequence: source.u64()? };
    source.end(id)
}

#[cfg(test)]
mod tests;
