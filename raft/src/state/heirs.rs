//! Who has the copies of whose sessions.

use super::ControlState;
use super::nodes::weight;
use crate::command::{Incarnation, NodeId};

/// The heirs of one node: see [`ControlState::heirs`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeirsView {
    /// Who has the copies, in the order of ids, each with whether it is *stale*: it has missed something since, or has lost what it had. Dead and
    /// forgotten nodes stay in it until the next fill has ended, so that no other takes their place without a copy.
    pub base: Vec<(NodeId, bool)>,
    /// The fill that is under way: its index, and who is filled, in the order of ids. All of them are live.
    pub next: Option<(u64, Vec<NodeId>)>,
    /// Every session of the node has a copy at its pick in `base`, unless that is stale.
    pub whole: bool,
}

/// The node of `among` that has the copy of the session of `client`: always the same, and one node more or less moves no
/// others. The order of `among` does not matter.
#[must_use]
pub fn heir_of(client: &str, among: &[NodeId]) -> Option<NodeId> {
    among.iter().copied().max_by_key(|node| weight(client, *node))
}

impl ControlState {
    /// Who has copies of the sessions of `home`; `None` if there is no such node.
    pub fn heirs(&self, home: NodeId) -> Option<HeirsView> {
        self.nodes.find(home).map(|_| HeirsView::default())
    }

    /// The dead incarnations that somebody has still to inherit from, and who.
    pub fn orphans(&self) -> impl Iterator<Item = (NodeId, Incarnation, Vec<NodeId>)> {
        std::iter::empty()
    }

    /// The dead node from which the holder of the session of `client` has it, if it has inherited it and it has not moved nor begun anew since.
    pub fn inherited_from(&self, _client: &str) -> Option<NodeId> {
        None
    }
}
