//! Copies of sessions on other nodes: what a home sends to its heirs.
//!
//! [`Sending`] is the home's machine of one shard: who has to have what, and what they have. What an entry of a copy is made of is not its business.
//!
//! Test to read first: `sending::tests::a_submission_is_stable_when_it_is_kept_here_and_at_the_heir`.

mod sending;

pub use sending::{Copied, Frame, Heirs, Members, Sending, Slot, Step, Work};
