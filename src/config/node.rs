//! `[node]`: who this node is and where it keeps its state.

use std::path::PathBuf;

use super::reading::Section;
use crate::limits::SHARDS_MAX;

pub(super) const KEYS: &[&str] = &["name", "data_dir", "shards"];

/// `[node]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What people call this node, in logs and metrics. 1 to 64 bytes. It identifies nothing: the node's identity is made with
    /// its data directory.
    pub name: String,
    /// Where the node keeps its identity and, as `[storage]` says, its state; `None` keeps all of it in memory.
    pub data_dir: Option<PathBuf>,
    /// Event loops; 0 means one for each core. At most [`SHARDS_MAX`].
    pub shards: usize,
}

impl Default for Node {
    fn default() -> Self {
        Node { name: "holdfast".to_owned(), data_dir: None, shards: 0 }
    }
}

impl Node {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Node {
        let default = Node::default();
        let node = Node {
            name: section.text("name", 64).unwrap_or(default.name),
            data_dir: section.path("data_dir"),
            shards: section.integer("shards", default.shards, 0..=SHARDS_MAX),
        };
        if node.name.chars().any(char::is_control) {
            section.error_at("name", "name: must not hold control characters");
        }
        node
    }
}
