//! The nodes and which incarnation of each is live.

use super::digest::Digest;
use crate::command::{Incarnation, NodeId};

/// Place of a node in the table: leases and routes name nodes by it, for it is a quarter of an id. A node keeps its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeSlot(u32);

/// All nodes ever registered, in that order; they are few.
#[derive(Debug, Default)]
pub(super) struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    id: NodeId,
    name: String,
    /// The live incarnation.
    incarnation: Incarnation,
}

impl Nodes {
    /// Begins the next incarnation of `id`, under its newest name.
    pub(super) fn register(&mut self, id: NodeId, name: String) -> (NodeSlot, Incarnation) {
        let place = self.0.iter().position(|node| node.id == id).unwrap_or_else(|| {
            self.0.push(Node { id, name: String::new(), incarnation: 0 });
            self.0.len() - 1
        });
        let node = &mut self.0[place];
        node.name = name;
        node.incarnation += 1;
        (NodeSlot(place as u32), node.incarnation)
    }

    /// The node that `from` is the live incarnation of.
    pub(super) fn live(&self, from: (NodeId, Incarnation)) -> Option<NodeSlot> {
        let place = self.0.iter().position(|node| (node.id, node.incarnation) == from)?;
        Some(NodeSlot(place as u32))
    }

    pub(super) fn id(&self, slot: NodeSlot) -> NodeId {
        self.0[slot.0 as usize].id
    }

    pub(super) fn incarnation(&self, id: NodeId) -> Option<Incarnation> {
        self.0.iter().find(|node| node.id == id).map(|node| node.incarnation)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for node in &self.0 {
            digest.add(&[&"node", &node.id, &node.name.as_str(), &node.incarnation]);
        }
    }
}

impl NodeSlot {
    pub(super) fn number(self) -> u64 {
        u64::from(self.0)
    }
}
