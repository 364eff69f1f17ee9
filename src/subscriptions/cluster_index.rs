//! Which other nodes want a topic: the third scale of the aggregation, as the routes of the control state say it.
//!
//! A node is one bit. The index is read by every shard at every publish and written by the thread that applies the control state; a node on which nobody else's
//! routes are known pays one atomic load.
//!
//! Invariant: what is in here is what the applied state says of the nodes that are not this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_raft::ShareMembers;
use parking_lot::RwLock;
use smallvec::SmallVec;

pub use crate::cluster::share_groups::Slot as NodeSlot;
use crate::topic::FilterTree;

#[derive(Debug)]
struct ShareNodes {
    share: Arc<str>,
    nodes: SmallVec<[(NodeSlot, ShareMembers); 2]>,
    turn: AtomicUsize,
}

/// What other nodes have of a share group.
pub type Members = SmallVec<[(NodeSlot, ShareMembers); 8]>;

impl ShareNodes {
    /// Of the nodes in `live`, one bit each.
    fn members(&self, live: u64) -> Members {
        self.nodes.iter().filter(|(slot, _)| live & (1 << slot) != 0).copied().collect()
    }

    fn take_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Default)]
pub struct ClusterIndex {
    filters: RwLock<FilterTree<u64>>,
    shares: RwLock<FilterTree<Vec<ShareNodes>>>,
    routes: AtomicUsize,
    share_groups: AtomicUsize,
}

impl ClusterIndex {
    pub fn add_route(&self, filter: &str, node: NodeSlot) {
        let mut filters = self.filters.write();
        *filters.get_or_insert_with(filter, || 0) |= 1 << node;
        self.routes.store(filters.len(), Ordering::Release);
    }

    pub fn remove_route(&self, filter: &str, node: NodeSlot) {
        let mut filters = self.filters.write();
        if let Some(nodes) = filters.get_mut(filter) {
            *nodes &= !(1 << node);
            if *nodes == 0 {
                filters.remove(filter);
            }
        }
        self.routes.store(filters.len(), Ordering::Release);
    }

    /// Enters what a node has of a share group, `$share/name/filter`.
    pub fn set_share(&self, share: &Arc<str>, filter: &str, node: NodeSlot, members: ShareMembers) {
        let mut shares = self.shares.write();
        let groups = shares.get_or_insert_with(filter, Vec::new);
        let place = groups.iter().position(|group| group.share == *share).unwrap_or_else(|| {
            groups.push(ShareNodes { share: share.clone(), nodes: SmallVec::new(), turn: AtomicUsize::new(0) });
            self.share_groups.fetch_add(1, Ordering::Release);
            groups.len() - 1
        });
        let nodes = &mut groups[place].nodes;
        match nodes.iter_mut().find(|(slot, _)| *slot == node) {
            Some((_, known)) => *known = members,
            None => nodes.push((node, members)),
        }
    }

    pub fn remove_share(&self, share: &str, filter: &str, node: NodeSlot) {
        let mut shares = self.shares.write();
        let Some(groups) = shares.get_mut(filter) else {
            return;
        };
        let Some(at) = groups.iter().position(|group| &*group.share == share) else {
            return;
        };
        groups[at].nodes.retain(|(slot, _)| *slot != node);
        if groups[at].nodes.is_empty() {
            groups.swap_remove(at);
            self.share_groups.fetch_sub(1, Ordering::Release);
        }
        if groups.is_empty() {
            shares.remove(filter);
        }
    }

    /// Takes out everything of a node. Looks at all there is: for the rare case that a node has left for good.
    pub fn remove_node(&self, node: NodeSlot) {
        let mut routed = Vec::new();
        self.filters.read().for_each(|filter, nodes| {
            if nodes & (1 << node) != 0 {
                routed.push(filter.to_owned());
            }
        });
        routed.iter().for_each(|filter| self.remove_route(filter, node));
        let mut shared = Vec::new();
        self.shares.read().for_each(|filter, groups| {
            let of_it = groups.iter().filter(|group| group.nodes.iter().any(|(slot, _)| *slot == node));
            shared.extend(of_it.map(|group| (group.share.clone(), filter.to_owned())));
        });
        shared.iter().for_each(|(share, filter)| self.remove_share(share, filter, node));
    }

    /// The nodes that have a subscriber of `topic`, one bit each.
    pub fn nodes(&self, topic: &str) -> u64 {
        if self.routes.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut nodes = 0;
        self.filters.read().for_each_match(topic, |set| nodes |= set);
        nodes
    }

    /// Whether any other node has a share group at all.
    pub fn has_shares(&self) -> bool {
        self.share_groups.load(Ordering::Acquire) > 0
    }

    /// Calls `each` with every share group that another node has and that wants `topic`, with what the nodes in `live` have of it, and whose turn it is.
    pub fn shares(&self, topic: &str, live: u64, mut each: impl FnMut(&Arc<str>, &Members, usize)) {
        self.shares.read().for_each_match(topic, |groups| {
            for group in groups {
                each(&group.share, &group.members(live), group.take_turn());
            }
        });
    }

    /// The same of one group.
    pub fn share(&self, share: &str, filter: &str, live: u64) -> (Members, usize) {
        let shares = self.shares.read();
        let group = shares.get(filter).into_iter().flatten().find(|group| &*group.share == share);
        group.map_or_else(Default::default, |group| (group.members(live), group.take_turn()))
    }

    /// Whether a node in `live` has a connected member of the group.
    pub fn is_share_connected(&self, share: &str, filter: &str, live: u64) -> bool {
        let shares = self.shares.read();
        let mut groups = shares.get(filter).into_iter().flatten();
        groups
            .any(|group| &*group.share == share && group.members(live).iter().any(|(_, members)| members.connected > 0))
    }

    /// Forgets everything, before a state is entered anew.
    pub fn clear(&self) {
        *self.filters.write() = FilterTree::default();
        *self.shares.write() = FilterTree::default();
        self.routes.store(0, Ordering::Release);
        self.share_groups.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_goes_leaves_nothing_to_the_next_in_its_place() {
        let index = ClusterIndex::default();
        index.add_route("a", 1);
        index.add_route("a", 2);
        index.add_route("b", 1);
        let members = ShareMembers::new(1, false);
        index.set_share(&"$share/s/a".into(), "a", 1, members);
        index.set_share(&"$share/s/a".into(), "a", 2, members);
        index.set_share(&"$share/t/a".into(), "a", 1, members);
        index.remove_node(1);
        assert_eq!((index.nodes("a"), index.nodes("b")), (0b100, 0));
        let mut left = Vec::new();
        index.shares("a", u64::MAX, |share, members, _| {
            left.extend(members.iter().map(|(node, _)| (share.to_string(), *node)));
        });
        assert_eq!(left, [("$share/s/a".to_owned(), 2)]);
    }

    #[test]
    fn the_nodes_of_a_topic_are_those_of_all_filters_that_match() {
        let index = ClusterIndex::default();
        assert_eq!(index.nodes("a/b"), 0);
        index.add_route("a/+", 1);
        index.add_route("a/b", 2);
        index.add_route("a/b", 1);
        index.add_route("c", 3);
        assert_eq!(index.nodes("a/b"), 0b110);
        index.remove_route("a/+", 1);
        index.remove_route("a/b", 2);
        index.remove_route("a/b", 5);
        assert_eq!(index.nodes("a/b"), 0b10);
        index.remove_route("a/b", 1);
        index.remove_route("c", 3);
        assert_eq!((index.nodes("a/b"), index.routes.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_live_nodes_have_of_a_group_and_whose_turn_it_is() {
        let index = ClusterIndex::default();
        let share: Arc<str> = "$share/g/t".into();
        let (four, none) = (ShareMembers::new(4, true), ShareMembers::new(0, true));
        index.set_share(&share, "t", 1, four);
        index.set_share(&share, "t", 2, none);
        index.set_share(&share, "t", 2, none);
        let mut found = Vec::new();
        index.shares("t", 0b010, |share, members, turn| found.push((share.clone(), members.to_vec(), turn)));
        index.shares("u", 0b110, |_, _, _| panic!("nobody wants that"));
        assert_eq!(found, [(share.clone(), vec![(1, four)], 0)]);
        assert_eq!(index.share(&share, "t", 0b111), (Members::from_slice(&[(1, four), (2, none)]), 1));
        assert!(index.is_share_connected(&share, "t", 0b111) && !index.is_share_connected(&share, "t", 0b101));
        index.remove_share(&share, "t", 1);
        assert!(!index.is_share_connected(&share, "t", 0b111));
        index.remove_share(&share, "t", 2);
        assert!(!index.has_shares());
        assert_eq!(index.share(&share, "t", 0b111), (Members::new(), 0));
    }
}
