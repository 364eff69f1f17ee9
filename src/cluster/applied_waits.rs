//! Who waits until every live node routes with the state of an index: a SUBACK means that a publish accepted anywhere from then on reaches
//! the subscriber.
//!
//! A node says up to which index all its shards route. Who waits for an index waits for the nodes that were live then and still are; a node that joined later
//! began with a newer state, and one that is dead routes nothing.
//!
//! Owner: the control plane of the node. Test to read first: `tests::a_wait_ends_when_the_last_live_node_has_said_so`.

use std::collections::BTreeMap;

use holdfast_raft::NodeId;

/// See the module. `W` stands for who waits.
#[derive(Debug)]
pub struct AppliedWaits<W> {
    /// The live nodes, and up to which index each routes.
    nodes: BTreeMap<NodeId, u64>,
    /// By index: since when, and who.
    waits: BTreeMap<u64, (u64, Vec<W>)>,
}

impl<W> Default for AppliedWaits<W> {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), waits: BTreeMap::new() }
    }
}

impl<W> AppliedWaits<W> {
    /// A node has come to life in the state of `index`: it routes with that or a newer one.
    pub fn node_up(&mut self, node: NodeId, index: u64) {
        self.nodes.entry(node).and_modify(|routed| *routed = index.max(*routed)).or_insert(index);
    }

    /// A node is dead. Returns who has waited for it alone.
    pub fn node_down(&mut self, node: NodeId) -> Vec<W> {
        self.nodes.remove(&node);
        self.pop()
    }

    /// A node routes with the state of `index`. What a node that is not live says does not count.
    pub fn routed(&mut self, node: NodeId, index: u64) -> Vec<W> {
        match self.nodes.get_mut(&node) {
            Some(routed) if *routed < index => *routed = index,
            _ => return Vec::new(),
        }
        self.pop()
    }

    /// Someone waits for `index`, from `now` on, in milliseconds. Given back when every live node routes with it already.
    pub fn wait(&mut self, now: u64, index: u64, who: W) -> Option<W> {
        if self.reached() >= index {
            return Some(who);
        }
        self.waits.entry(index).or_insert((now, Vec::new())).1.push(who);
        None
    }

    /// The index that every live node routes with.
    pub fn reached(&self) -> u64 {
        self.nodes.values().copied().min().unwrap_or(u64::MAX)
    }

    /// The nodes for which someone has waited for that long: they owe an answer.
    pub fn late(&self, now: u64, for_ms: u64) -> Vec<NodeId> {
        let overdue = self.waits.iter().filter(|(_, (since, _))| now.saturating_sub(*since) >= for_ms);
        let Some(index) = overdue.map(|(index, _)| *index).max() else {
            return Vec::new();
        };
        self.nodes.iter().filter(|(_, routed)| **routed < index).map(|(node, _)| *node).collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waits.values().map(|(_, who)| who.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    fn pop(&mut self) -> Vec<W> {
        let reached = self.reached();
        let mut done = Vec::new();
        while let Some(first) = self.waits.first_entry()
            && *first.key() <= reached
        {
            done.extend(first.remove().1);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    #[test]
    fn a_wait_ends_when_the_last_live_node_has_said_so() {
        let mut waits = AppliedWaits::default();
        [A, B, C].into_iter().for_each(|node| waits.node_up(node, 1));
        assert_eq!(waits.wait(0, 1, "old"), Some("old"));
        assert_eq!(waits.wait(0, 5, "x"), None);
        assert!(waits.routed(A, 9).is_empty());
        assert!(waits.routed(B, 4).is_empty());
        assert!(waits.routed(B, 5).is_empty());
        assert_eq!(waits.routed(C, 5), ["x"]);
        assert!(waits.is_empty());
    }

    #[test]
    fn a_dead_node_holds_up_nobody_and_says_nothing() {
        let mut waits = AppliedWaits::default();
        [A, B].into_iter().for_each(|node| waits.node_up(node, 1));
        waits.wait(0, 3, "x");
        waits.routed(A, 3);
        assert_eq!(waits.node_down(B), ["x"]);
        waits.wait(0, 4, "y");
        assert!(waits.routed(B, 9).is_empty());
        waits.node_up(C, 6);
        assert_eq!(waits.routed(A, 4), ["y"], "who joined later began with it");
    }

    #[test]
    fn who_lets_others_wait_for_long_is_known() {
        let mut waits = AppliedWaits::default();
        [A, B, C].into_iter().for_each(|node| waits.node_up(node, 1));
        waits.wait(1_000, 5, "x");
        waits.routed(A, 5);
        assert!(waits.late(3_999, 3_000).is_empty());
        assert_eq!(waits.late(4_000, 3_000), [B, C]);
        waits.routed(B, 7);
        assert_eq!(waits.late(4_000, 3_000), [C]);
        waits.routed(C, 5);
        assert!(waits.late(9_000, 3_000).is_empty());
    }

    #[test]
    fn waits_of_several_indexes_end_in_their_order() {
        let mut waits = AppliedWaits::default();
        waits.node_up(A, 0);
        [3, 1, 2].into_iter().for_each(|index| _ = waits.wait(0, index, index));
        assert_eq!(waits.routed(A, 2), [1, 2]);
        assert_eq!((waits.len(), waits.reached()), (1, 2));
    }
}
