//! The way to other nodes: for each live node the legs that this shard owes it, and the connection over which they go.
//!
//! A publish is written once for each node that has a subscriber, into the buffer of that node's legs, and goes out with the turn. What the node answers counts
//! for all that came before. While there is no connection legs wait; when the node has died they are gone, and whoever waited for them goes on. The control
//! state alone says that it has: a connection that breaks says nothing.
//!
//! Owner: the shard, in [`Peers`]. Invariants: a leg is answered exactly once; to one node everything goes in the order in which it was routed.

use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::warn;

use holdfast_raft::{Incarnation, NodeId};

use crate::byte_stream::ByteStream;
use crate::cluster::publish_legs::PublishLegs;
use crate::limits;
use crate::link::frame::{self, AnswerFrame};
use crate::mqtt::MessageId;

use super::keeping::PromiseKey;
use super::{ConnectionKey, Shard};

/// A node's place in the tables of this one, below [`limits::NODES_MAX`]: one bit in the sets of nodes that want a topic.
pub type PeerSlot = u8;

/// One other node that is live.
pub(super) struct Peer {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub legs: PublishLegs<PromiseKey>,
    connection: Option<PeerConnection>,
    /// Which life of its process answered last.
    run: u64,
    /// Clients that are not read from until there is room in the window.
    waiting: Vec<ConnectionKey>,
    /// Messages for share groups that a member there has not acknowledged yet.
    pub shared: super::sharing::OwedShares,
}

struct PeerConnection {
    stream: ByteStream,
    serial: u64,
    waker: Option<Waker>,
    /// What has come of an answer that is not whole yet.
    partial: Vec<u8>,
    /// The other side has said what it has.
    welcomed: bool,
}

/// All nodes that this shard knows, by slot.
#[derive(Default)]
pub(super) struct Peers {
    slots: Vec<Option<Box<Peer>>>,
    /// Those that have something to write, one bit each.
    dirty: u64,
    /// Connections whose task is to be spawned.
    pub unborn: Vec<(PeerSlot, u64)>,
}

/// What a shard owes one other node, for those who watch over it from outside.
#[derive(Debug, Default)]
pub struct Owed {
    /// Bytes that are not accepted.
    pub bytes: AtomicU64,
    /// For how many milliseconds nothing was accepted although something is owed.
    pub stuck_ms: AtomicU64,
}

impl Peers {
    pub fn get_mut(&mut self, slot: PeerSlot) -> Option<&mut Peer> {
        self.slots.get_mut(usize::from(slot))?.as_deref_mut()
    }

    pub fn slot_of(&self, node: NodeId) -> Option<PeerSlot> {
        let at = self.slots.iter().position(|peer| peer.as_ref().is_some_and(|peer| peer.node == node))?;
        Some(at as PeerSlot)
    }

    /// The live nodes, one bit each.
    pub fn all(&self) -> u64 {
        let live = self.slots.iter().enumerate().filter(|(_, peer)| peer.is_some());
        live.fold(0, |all, (slot, _)| all | 1 << slot)
    }

    pub fn has_dirty(&self) -> bool {
        self.dirty != 0
    }
}
