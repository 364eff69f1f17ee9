//! What a node writes down: items, each of one owner, and the bodies that items share.
//!
//! An *owner* is a session, the leases of the node, or its retained messages; an *item* is one thing of it that is there or not there. An item is put, perhaps
//! several times (the newest value counts), then deleted, and its number never comes again. So entries of different threads may reach the
//! disk in any order: a deletion that comes before its item makes it void.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// Who an item belongs to. Numbers never come again, not even after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u64);

/// The number of an item within its owner: greater than that of every earlier item.
pub type ItemId = u64;

/// Tells one body from all others that the node ever stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyId(pub u128);

/// What items share, such as a message that stands in a thousand queues: written once, kept while an item refers to it.
pub trait Body: Send + Sync {
    fn id(&self) -> BodyId;
    /// Appends the bytes to keep. Called once at the most, by the thread that writes.
    fn encode(&self, out: &mut Vec<u8>);
    /// About as many bytes as `encode` makes, for bounds.
    fn size(&self) -> usize;
}

/// The bytes of an item: read back at every start and not kept in memory, so they hold what must be known before the body is read.
pub type Value = SmallVec<[u8; 32]>;

/// One change.
#[derive(Clone)]
pub enum Entry {
    /// The item is there, with this value.
    Put { owner: OwnerId, item: ItemId, value: Value, body: Option<Arc<dyn Body>> },
    /// The item is gone, or will never be.
    Delete { owner: OwnerId, item: ItemId },
    /// All items of the owner are gone.
    Drop { owner: OwnerId },
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Put { owner, item, value, body } => {
                write!(f, "Put {}/{item} {value:02x?} {:?}", owner.0, body.as_ref().map(|body| body.id()))
            }
            Entry::Delete { owner, item } => write!(f, "Delete {}/{item}", owner.0),
            Entry::Drop { owner } => write!(f, "Drop {}", owner.0),
        }
    }
}
