//! The state of a node as it is on disk: which owners there are, and the bytes of their items and bodies.
//!
//! Everything is an item of an owner (see `holdfast_storage`): a session has its header and the items of [`crate::session::Item`], the leases have one item for each
//! lease, the retained messages one for each topic that has one, or had one, and each shard one for each stream of another node. The copies that other nodes hold here have owners
//! of their own. A message is a body, shared by all items that need it. The first byte of each
//! is the version of its form, so that a later program can read what this one wrote.
//!
//! [`lines`] is the same state for people and other programs, [`wire`] a session for another node, [`CopyWriter`] the changes of sessions for their heirs.
//!
//! Pure. Test to read first: `tests::what_is_written_is_read`.

mod bytes;
mod copied;
mod copy;
mod items;
mod leases;
pub mod lines;
mod marks;
mod message;
mod retained;
#[cfg(test)]
mod tests;
pub mod wire;

use holdfast_storage::{ItemId, OwnerId};

pub use copied::{copied_entry, decode_copied_header, decode_stream};
pub use copy::{CopyWriter, MalformedCopy, read_copy};
pub use items::{
    Header, decode_item, encode_header, encode_item, is_had_will, is_passing, is_shared_once, is_unsent,
    shared_message, shared_once,
};
pub use leases::{decode_lease, encode_lease, lease_entries};
pub use marks::{Mark, decode_mark, first_mark, mark_entry, shard_of_mark};
pub use message::decode_message;
pub use retained::{decode_tombstone, first_retained_item, retained_entry};

/// The owner of the leases of a node that is alone.
pub const LEASES: OwnerId = OwnerId(1);
/// The owner of the retained messages.
pub const RETAINED: OwnerId = OwnerId(2);
/// The owner of what the node notes of itself: one item for each start, whose number is that of the incarnation.
pub const NODE: OwnerId = OwnerId(3);
/// The owner of what the shards note of the streams of other nodes.
pub const MARKS: OwnerId = OwnerId(4);
/// The first owner that is a session.
pub const SESSIONS: OwnerId = OwnerId(16);

/// The item of a session's owner that says whose session it is.
pub const HEADER: ItemId = 0;

/// Where the streams of an incarnation begin, so that no message ever has the id of another one.
pub fn first_sequence(incarnation: u64) -> u64 {
    incarnation << crate::mqtt::SEQUENCE_BITS
}
