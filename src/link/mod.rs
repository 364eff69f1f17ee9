//! The connections between the nodes of a cluster.
//!
//! A link joins two nodes. Each of them dials the other one: a *control* connection for what is small and must not wait, a *bulk*
//! connection for what is large, and one *data* connection for each of its shards, which is handed to that shard as a [`ByteStream`] and carries
//! the frames of [`frame`] from there. Answers return on the other half of the same connection.
//!
//! The link is *up* while the control connections of both directions are. Nothing is decided here when it is not: a frame may be lost with the
//! connection that carried it, and whoever sends repeats what must arrive.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`links`] | [`Links`], which the node holds |
//! | [`frame`] | the frames of data connections |
//! | `hello`, `handshake`, `secret`, `tls` | how two nodes prove to each other that they belong together: every connection begins with it |
//! | `accept`, `seek`, `told` | who comes, who is looked for, who tells of whom |
//! | `peer`, `dials` | the task that owns the connections to one peer; when it dials what |
//! | `lanes`, `outbound` | control and bulk connections at work |
//! | [`refusal`] | why nodes do not come together; counters |
//!
//! A frame is a length of four bytes, a kind of one, and a payload. Who somebody is, is proven once for each connection; without TLS, what follows can be read and
//! changed by whoever sits in between.
//!
//! Tests to read first: `tests::ups`, then `tests::strangers`.

mod accept;
mod dials;
pub mod frame;
mod handshake;
mod hello;
mod lanes;
pub mod links;
mod outbound;
mod peer;
pub mod refusal;
mod secret;
mod seek;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod told;

use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::NodeId;

pub use links::{Links, PeerView, StartError, wrong_files};
pub use refusal::{LinkCounts, Refusal};
pub use secret::{SECRET_BYTES_MIN, Secret, SecretError};
pub use tls::LinkTlsError;

use crate::byte_stream::ByteStream;
use crate::subscriptions::ShardId;

/// The longest frame of the control and bulk lanes: its kind and its payload, in bytes.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The longest payload of one, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - 1;

/// Kinds of frames that [[`Links::send`]] takes are below this one.
pub const KINDS: u8 = lanes::OWN_KINDS;

/// Bytes that wait for one peer on its control lane. When there are more, the connection is closed: control frames are small, and
/// a peer that is so far behind is better off with a new beginning.
const CONTROL_QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes that wait for one peer on its bulk lane. A frame that finds no room is not taken, and whoever sends it comes again.
const BULK_QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Which connection of a link carries a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Small frames that never wait behind large ones.
    Control,
    /// Snapshots, sessions that move, retained messages.
    Bulk,
}

/// A node as it says itself who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub id: NodeId,
    /// The configured name. 1 to 64 bytes.
    pub name: Arc<str>,
    /// One life of its process: random at each start.
    pub run: u64,
    /// Where it can be dialled: host and port.
    pub address: String,
    /// How many shards it has, and so how many data connections may come from it. 1 to 64.
    pub shards: u16,
    /// The lowest and the highest version of the cluster's protocol that it speaks.
    pub versions: (u16, u16),
}

/// Who is told what comes from other nodes.
///
/// Called from the threads of the links' runtime: a call must not block. For one peer: [`up`](Self::up) and [`down`](Self::down) alternate, and
/// frames and data connections come between them, those of one lane in their order.
pub trait Receiver: Send + Sync + 'static {
    /// The control connection that we dialled is up, and so is the one that the peer dialled.
    fn up(&self, peer: &Arc<Peer>);

    /// One of the two is up no longer.
    fn down(&self, peer: &Arc<Peer>);

    /// Whether the peer has said that it stops: that its link ends then is no trouble.
    fn has_stopped(&self, _peer: &Peer) -> bool {
        false
    }

    /// A frame that the peer sent by [`Links::send`]. `payload` has 4 MiB at the most.
    fn frame(&self, from: &Arc<Peer>, lane: Lane, kind: u8, payload: Bytes);

    /// A data connection that was asked for ([`Links::want_data`]) is there: for this shard of ours to write publishes into, and to read answers from. It
    /// belongs to no runtime yet, and takes the place of an earlier one to the same peer: there is a new one each time the link comes up. When it
    /// ends, say so ([`Links::data_ended`]), and it is dialled again.
    fn data_out(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream);

    /// The peer's shard of that number has a data connection to us: to read its publishes from, and to write answers into. It replaces an earlier
    /// one of the same peer and shard, which must not be read any more.
    fn data_in(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream);
}
