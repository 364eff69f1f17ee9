//! The nodes: which incarnation of each is live, what it has sent, and from which index on its routes count.
//!
//! Invariants:
//! - at most one incarnation of a node is live, and incarnations of one id only grow, even if the node was forgotten in between;
//! - a slot is given away again only when no lease and no route names it any more.

use std::sync::Arc;

use super::digest::{Digest, Fnv};
use crate::command::{Incarnation, NodeId};

/// Nodes that a cluster can have, so that a set of nodes is one word.
pub const NODES_MAX: usize = 64;

/// Place of a node in the table, less than [`NODES_MAX`]: leases and routes name nodes by it, for it is a sixteenth of an id. A node keeps its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeSlot(u8);

/// All nodes that are registered or have left something behind; they are few.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    slots: Vec<Option<Node>>,
    /// No incarnation of a node that was forgotten is greater.
    pub(super) incarnation_floor: Incarnation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) slot: NodeSlot,
    pub(super) id: NodeId,
    pub(super) name: Arc<str>,
    /// The live incarnation, or the last one that was.
    pub(super) incarnation: Incarnation,
    pub(super) run: u64,
    pub(super) versions: (u16, u16),
    pub(super) standing: Standing,
    /// Number of the last batch of this incarnation that was applied.
    pub(super) batch: u64,
    /// Index at which the incarnation began.
    pub(super) registered_at: u64,
    /// Entries of routes with a smaller index do not count any more.
    pub(super) routes_from: u64,
    /// The same for entries of share groups.
    pub(super) shares_from: u64,
}

/// Whether there is anybody behind a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Live,
    /// Since that control time.
    Dead(u64),
    /// It will not come back, and is no node any more to those who ask; its slot is taken until nothing names it.
    Forgotten(u64),
}

impl Nodes {
    /// The node of that id, live or dead.
    pub(super) fn find(&self, id: NodeId) -> Option<NodeSlot> {
        self.iter().find(|(_, node)| node.id == id).map(|(slot, _)| slot)
    }

    /// All nodes but those that are forgotten, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeSlot, &Node)> {
        self.all().filter(|(_, node)| !matches!(node.standing, Standing::Forgotten(_)))
    }

    /// The same with those that are forgotten.
    pub(super) fn all(&self) -> impl Iterator<Item = (NodeSlot, &Node)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter_map(|(place, node)| Some((NodeSlot(place as u8), node.as_ref()?)))
    }

    pub(super) fn live_nodes(&self) -> impl Iterator<Item = (NodeSlot, &Node)> {
        self.all().filter(|(_, node)| node.standing == Standing::Live)
    }

    /// The node that `from` is the live incarnation of.
    pub(super) fn live(&self, from: (NodeId, Incarnation)) -> Option<NodeSlot> {
        let mut live = self.live_nodes();
        live.find(|(_, node)| (node.id, node.incarnation) == from).map(|(slot, _)| slot)
    }

    pub(super) fn is_live(&self, slot: NodeSlot) -> bool {
        self.get(slot).standing == Standing::Live
    }

    pub(super) fn get(&self, slot: NodeSlot) -> &Node {
        self.slots[slot.place()].as_ref().expect("a slot that is named is taken")
    }

    pub(super) fn get_mut(&mut self, slot: NodeSlot) -> &mut Node {
        self.slots[slot.place()].as_mut().expect("a slot that is named is taken")
    }

    pub(super) fn has(&self, slot: NodeSlot) -> bool {
        self.slots.get(slot.place()).is_some_and(Option::is_some)
    }

    pub(super) fn id(&self, slot: NodeSlot) -> NodeId {
        self.get(slot).id
    }

    pub(super) fn incarnation(&self, id: NodeId) -> Option<Incarnation> {
        self.find(id).map(|slot| self.get(slot).incarnation)
    }

    /// Nodes that are not forgotten.
    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    /// The lowest slot that is free, if one is.
    pub(super) fn free_slot(&self) -> Option<NodeSlot> {
        NodeSlot::new(self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len()))
    }

    /// Puts `node` into its slot.
    pub(super) fn put(&mut self, node: Node) {
        let slot = node.slot;
        if self.slots.len() <= slot.place() {
            self.slots.resize(slot.place() + 1, None);
        }
        self.slots[slot.place()] = Some(node);
    }

    /// Gives the slot of a forgotten node away.
    pub(super) fn free(&mut self, slot: NodeSlot) {
        self.incarnation_floor = self.incarnation_floor.max(self.get(slot).incarnation);
        self.slots[slot.place()] = None;
    }

    /// Who publishes a Will of `client`, whose lease `holder` has: the holder, or if it is dead one of the live nodes, the same
    /// for all who ask while these stay. `None` if nobody lives.
    pub(super) fn publisher(&self, holder: NodeSlot, client: &str) -> Option<NodeSlot> {
        if self.is_live(holder) { Some(holder) } else { self.pick(client) }
    }

    /// The rendezvous pick of `client` over the live nodes: the death of a node moves its own clients and no others.
    pub(super) fn pick(&self, client: &str) -> Option<NodeSlot> {
        self.live_nodes().max_by_key(|(_, node)| weight(client, node.id)).map(|(slot, _)| slot)
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        digest.add(&[&"incarnation floor", &self.incarnation_floor]);
        for (slot, node) in self.all() {
            let (standing, since) = node.standing.numbers();
            let versions = u64::from(node.versions.0) << 16 | u64::from(node.versions.1);
            digest.add(&[&"node", &slot.number(), &node.id, &node.name, &node.incarnation, &node.run, &versions]);
            digest.add(&[&"standing", &slot.number(), &standing, &since, &node.batch]);
            digest.add(&[&"node routes", &slot.number(), &node.registered_at, &node.routes_from]);
            digest.add(&[&"node shares", &slot.number(), &node.shares_from]);
        }
    }
}

/// The node with the greatest weight is the rendezvous pick of `client`.
pub(super) fn weight(client: &str, id: NodeId) -> (u64, NodeId) {
    let mut hash = Fnv::default();
    hash.write(client.as_bytes());
    hash.write(&id.0.to_le_bytes());
    (hash.finish(), id)
}

impl Standing {
    pub(super) fn numbers(self) -> (u64, u64) {
        match self {
            Standing::Live => (0, 0),
            Standing::Dead(since) => (1, since),
            Standing::Forgotten(since) => (2, since),
        }
    }
}

impl NodeSlot {
    /// `None` if there are not so many places.
    pub(super) fn new(place: usize) -> Option<Self> {
        (place < NODES_MAX).then_some(Self(place as u8))
    }

    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn number(self) -> u64 {
        u64::from(self.0)
    }
}
