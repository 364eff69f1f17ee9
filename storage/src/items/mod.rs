//! The keyed item store over the journal: what is live, where it stands on disk, and how room is made.
//!
//! The parts, none of which has a thread or a lock:
//! - [`group`]: what was handed in and is not on disk yet; a Put and its Delete cancel each other there;
//! - [`catalog`]: where each live item and each shared body stands, and how many bytes of each segment are still needed;
//! - [`plan`]: what a group and the catalog make of each other: the records of the batch;
//! - [`store`]: writes it, reads bodies, frees the oldest segment, from which [`cleaning`] moves what is still live;
//! - [`recovery`]: from the records of the journal to the catalog and to what the node gets back;
//! - [`inspection`]: the same without a start, for who wants to look only.
//!
//! [`record`] is what they write.
//!
//! # Invariants
//! - The state of an item is that of its last record in the journal: Put, Delete, or Drop of its owner.
//! - Segments go from the front only, and only when the catalog needs nothing of them. So a Delete or Drop never outlives a Put that it voids, and needs no copy.
//! - A deletion that comes before its Put is never written: it is remembered until the Put comes, and a restart ends both.
//!
//! Test to read first: `tests::the_store_is_a_map_that_survives`.

mod catalog;
mod cleaning;
mod group;
mod inspection;
#[cfg(test)]
pub(crate) mod model;
mod plan;
mod record;
mod recovery;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use group::Group;
pub use inspection::{Inspection, Unreadable};
pub(crate) use store::{Cleaned, CommitError, Place, Store};
