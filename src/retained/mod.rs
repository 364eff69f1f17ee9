//! Retained messages (section 3.3.1.3): the newest message of each topic that was published with RETAIN set.
//!
//! [`Map`] is the store of one node: by topic, asked by filter, with the order in which messages expire. It decides nothing about who may publish or
//! when a message is sent to whom; the session does that by Retain Handling, and reads each value when it sends it.
//!
//! The map owns no lock and no clock; its owner serialises changes and gives the time. Read first: `map/tests.rs`.

mod map;

pub use map::{Change, Map, Scan};
