//! Routes: which nodes want what is published to a filter, or have members of a share group.
//!
//! A node is in the set of a filter when at least one of its sessions subscribes to it, so a route changes with the first and the last subscriber of a
//! node and not with the others. Each entry knows the index that added it: who routes with a state of that index or newer reaches the node.

use std::hash::Hash;

use foldhash::quality::RandomState;
use hashbrown::HashMap;

use super::digest::{Digest, Digestible};
use super::nodes::NodeSlot;

/// From `K`, a topic filter or a share group, to the nodes that want it, in the order of their slots.
#[derive(Debug)]
pub(super) struct Routes<K>(HashMap<K, Vec<(NodeSlot, u64)>, RandomState>);

impl<K> Default for Routes<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Hash + Eq + Digestible> Routes<K> {
    /// Removes and adds entries of `node`, and returns the index of the youngest entry in `add`: an entry that was there already keeps
    /// its own. With nothing to add, 0.
    pub(super) fn change(&mut self, node: NodeSlot, index: u64, add: Vec<K>, remove: &[K]) -> u64 {
        for key in remove {
            self.remove(node, key);
        }
        add.into_iter().map(|key| self.add(node, index, key)).max().unwrap_or(0)
    }

    fn add(&mut self, node: NodeSlot, index: u64, key: K) -> u64 {
        // Nearly all routes of one node are wanted by that node alone.
        let nodes = self.0.entry(key).or_insert_with(|| Vec::with_capacity(1));
        match nodes.binary_search_by_key(&node, |&(slot, _)| slot) {
            Ok(at) => nodes[at].1,
            Err(at) => {
                nodes.insert(at, (node, index));
                index
            }
        }
    }

    fn remove(&mut self, node: NodeSlot, key: &K) {
        let Some(nodes) = self.0.get_mut(key) else {
            return;
        };
        nodes.retain(|&(slot, _)| slot != node);
        if nodes.is_empty() {
            self.0.remove(key);
        }
    }

    /// Removes `node` from every set.
    pub(super) fn remove_node(&mut self, node: NodeSlot) {
        self.0.retain(|_, nodes| {
            nodes.retain(|&(slot, _)| slot != node);
            !nodes.is_empty()
        });
    }

    pub(super) fn nodes_of(&self, key: &K) -> impl Iterator<Item = (NodeSlot, u64)> {
        self.0.get(key).into_iter().flatten().copied()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for (key, nodes) in &self.0 {
            for &(node, index) in nodes {
                digest.add(&[&"route", key, &node.number(), &index]);
            }
        }
    }
}
