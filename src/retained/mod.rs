//! Retained messages (section 3.3.1.3): the newest message of each topic that was published with RETAIN set.
//!
//! [`Map`] is the store of one node: by topic, asked by filter, with the order in which messages expire. It decides nothing about who may publish or
//! when a message is sent to whom; the session does that by Retain Handling, and reads each value when it sends it.
//!
//! Every node has all of them. Which of two is the newer one a [`Version`] says: a stamp of a [`HybridClock`], and the node. What is deleted
//! leaves a tombstone for a while. Nodes compare a [`Digest`] and send each other what one lacks (`sync.rs`). What stands under `$SYS/` is of the node alone:
//! it has no stamp, leaves no tombstone and is in no digest.
//!
//! The map owns no lock and no clock; its owner serialises changes and gives the time. Read first: `map/tests.rs`.

mod digest;
mod map;
mod stamp;
pub mod sync;
mod tombstones;

pub use digest::{BUCKETS, Buckets, Digest};
pub use map::{Change, Changed, Item, Known, Map, Scan, Write, Writes, is_system};
pub use stamp::{HybridClock, TooFarAhead, Version};
