//! Copies of sessions on other nodes.
//!
//! What a shard hands to its storage of the sessions that have a copy elsewhere it also sends, in the same order, to the node that has it, their *heir*: one frame
//! of [`CopyEntry`] for each turn, numbered as everything in the stream of that shard (bytes: `journal::copy`). The heir writes it down under owners of its
//! own: [`receiving`]. Who has to have what, and what they have, is [`Sending`] at the home. When the home has died its heirs take over what they have: [`inheriting`]; who did not hear
//! of that when it happened finds out by [`looking`], and what has come for everybody meanwhile is [`plain`].
//! Who is to be an heir is decided by [`proposing`], by what the nodes say of themselves ([`standing`]); [`parting`] knows when a node may leave, and [`alarm`] when copies have been incomplete for long.
//!
//! What an item or a header is made of is bytes here, except that messages have an id.
//!
//! Owner: the shard; of what is about the whole node, the node. Tests to read first: those of [`receiving`] and [`sending`].

pub mod alarm;
pub mod inheriting;
pub mod looking;
pub mod parting;
pub mod plain;
pub mod proposing;
pub mod receiving;
mod sending;
pub mod standing;

use std::sync::Arc;

use holdfast_raft::NodeId;
use holdfast_storage::{ItemId, OwnerId, Value};

use crate::mqtt::{Message, MessageId};

pub use sending::{Copied, Effect, Frame, Heirs, Lag, Members, Sending, Slot, Step, Work};

/// A shard of another node, whose sessions have copies here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    pub node: NodeId,
    pub shard: u16,
}

/// What a home tells its heir. Owners are those of the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyEntry {
    /// All that is known of the owner is forgotten; what follows is all of it.
    Begin {
        owner: OwnerId,
        client_id: Arc<str>,
        began: u64,
    },
    /// The item is there, with this value; without a body it keeps the one that it has. `ahead`: a later frame has that message for other sessions of the home.
    Put {
        owner: OwnerId,
        item: ItemId,
        value: Value,
        body: Option<Arc<Message>>,
        ahead: bool,
    },
    Delete {
        owner: OwnerId,
        item: ItemId,
    },
    /// The session has ended, or is elsewhere.
    Drop {
        owner: OwnerId,
    },
    /// All items that were there at `Begin` have come, or are gone.
    Complete {
        owner: OwnerId,
    },
    /// The sessions of the home have this message and all before it in its stream. Of messages that come as bodies and are not ahead it is understood.
    Seen {
        id: MessageId,
    },
}

/// Whose an owner of copies is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyHeader {
    /// The copy of a session, whose owner at its home is `owner`.
    Session { home: Home, owner: OwnerId, client_id: Arc<str>, began: u64, complete: bool },
    /// What goes with all copies of a home: up to which of its frames everything is here, and as items the streams that its sessions have seen.
    Streams { home: Home, up_to: u64 },
}
