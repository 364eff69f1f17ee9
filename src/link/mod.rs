//! The connections between the nodes of a cluster.
//!
//! A link joins two nodes. Each of them dials the other one: a *control* connection for what is small and must not wait, a *bulk*
//! connection for what is large, and one *data* connection for each of its shards, which is handed to that shard as a [`ByteStream`] and carries
//! the frames of [`frame`] from there. Answers return on the other half of the same connection.
//!
//! The link is *up* while the control connections of both directions are. Nothing is decided here when it is not: a frame may be lost with the
//! connection that carried it, and whoever sends repeats what must arrive.

pub mod frame;

use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::NodeId;

use crate::byte_stream::ByteStream;
use crate::subscriptions::ShardId;

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

    /// A frame that the peer sent by `Links::send`. `payload` has 4 MiB at the most.
    fn frame(&self, from: &Arc<Peer>, lane: Lane, kind: u8, payload: Bytes);

    /// A data connection that was asked for is there: for this shard of ours to write publishes into, and to read answers from. It belongs
    /// to no runtime yet. When it ends, say so (`Links::data_ended`), and it is dialled again.
    fn data_out(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream);

    /// The peer's shard of that number has a data connection to us: to read its publishes from, and to write answers into. It replaces an earlier
    /// one of the same peer and shard, which must not be read any more.
    fn data_in(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream);
}
