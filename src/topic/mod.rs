//! Topic names and topic filters (section 4.7 of the MQTT specification), and the two indexes over them.
//!
//! - [`name`] and [`filter`]: what is legal, and the direct matcher [`filter::matches`], which is the definition that the indexes are tested against.
//! - [`FilterTree`]: given a topic name, the filters that match it. Every publish asks it.
//! - [`NameTree`]: given a topic filter, the names that match it. Retained replay asks it.
//!
//! All of it is plain data owned by whoever embeds it: no lock, no clock, no task. The indexes accept any text without
//! harm, but give meaning only to what `validate` and `parse` let through. Read first: `filter.rs`' tests, then `filter_tree/tests.rs`.

pub mod filter;
mod filter_tree;
pub mod name;
mod name_tree;

pub use filter::{TopicFilter, TopicFilterError, matches};
pub use filter_tree::FilterTree;
pub use name::TopicNameError;
pub use name_tree::{NameTree, Scan, compare};

/// Longest topic name and topic filter in bytes: both are UTF-8 strings with a two-byte length (section 1.5.4, [MQTT-4.7.3-3]).
pub const TOPIC_BYTES_MAX: usize = 65_535;
