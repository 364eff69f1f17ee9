//! Routes: which nodes want what is published to a filter, or have members of a share group.
//!
//! A node is in the set of a filter when at least one of its sessions subscribes to it, so a route changes with the first and the last subscriber of a
//! node and not with the others. Each entry knows the index that added it: who routes with a state of that index or newer reaches the node.
//!
//! An entry is *void* when its node says so ([`Node::routes_from`], [`Node::shares_from`]): when the node died, all of its entries are at once, unless its
//! heirs have still to inherit what they are for: see [`orphans`](super::orphans).
//! Nobody sees void entries; a sweep through all keys takes them out in slices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::digest::{Digest, Digestible};
use super::lease::Turn;
use super::nodes::{Node, NodeSlot, Nodes};
use crate::command::{Effect, NodeId, ShareMembers, ShareRoute};
use std::sync::Arc;

/// Most keys that one slice of a sweep looks at.
pub(super) const SWEEP_KEYS_MAX: usize = 10_000;

/// What is routed by, with what is known of each node that is routed to.
pub(super) trait RouteKey: Ord + Clone + Digestible {
    type Value: Copy + Eq + Digestible + std::fmt::Debug;
    /// Entries of `node` with a smaller index are void.
    fn from_index(node: &Node) -> u64;
    fn added(&self, node: NodeId, value: Self::Value) -> Effect;
    fn removed(&self, node: NodeId) -> Effect;
}

impl RouteKey for Arc<str> {
    type Value = ();

    fn from_index(node: &Node) -> u64 {
        node.routes_from
    }

    fn added(&self, node: NodeId, (): ()) -> Effect {
        Effect::RouteAdded { filter: Arc::clone(self), node }
    }

    fn removed(&self, node: NodeId) -> Effect {
        Effect::RouteRemoved { filter: Arc::clone(self), node }
    }
}

impl RouteKey for ShareRoute {
    type Value = ShareMembers;

    fn from_index(node: &Node) -> u64 {
        node.shares_from
    }

    fn added(&self, node: NodeId, members: ShareMembers) -> Effect {
        Effect::ShareRouteSet { share: self.clone(), node, members }
    }

    fn removed(&self, node: NodeId) -> Effect {
        Effect::ShareRouteRemoved { share: self.clone(), node }
    }
}

/// One node that is routed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route<V> {
    pub(super) node: NodeSlot,
    pub(super) index: u64,
    pub(super) value: V,
}

impl<V> Route<V> {
    /// Whether it is not void.
    pub(super) fn counts<K: RouteKey<Value = V>>(&self, nodes: &Nodes) -> bool {
        self.index >= K::from_index(nodes.get(self.node))
    }
}

/// Where a sweep is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sweep<K> {
    /// Keys up to this one have been looked at.
    pub(super) after: Option<K>,
    /// Entries became void behind it: it has to begin again.
    pub(super) again: bool,
}

/// From `K`, a topic filter or a share group, to the nodes that want it, in the order of their slots.
#[derive(Debug, Clone)]
pub(super) struct Routes<K: RouteKey> {
    table: BTreeMap<K, Vec<Route<K::Value>>>,
    sweep: Option<Sweep<K>>,
}

impl<K: RouteKey> Default for Routes<K> {
    fn default() -> Self {
        Self { table: BTreeMap::new(), sweep: None }
    }
}

impl<K: RouteKey> Routes<K> {
    /// Removes and sets entries of `node`, and returns the index of the youngest entry in `set`: an entry that was there already keeps
    /// its own, unless an earlier incarnation made it. With nothing to set, 0.
    pub(super) fn change(&mut self, node: NodeSlot, set: Vec<(K, K::Value)>, remove: &[K], turn: &mut Turn<'_>) -> u64 {
        let both: BTreeSet<&K> = if set.is_empty() { BTreeSet::new() } else { remove.iter().collect() };
        let anew: Vec<bool> = set.iter().map(|(key, _)| both.contains(key)).collect();
        let kept: BTreeSet<&K> =
            if both.is_empty() { BTreeSet::new() } else { set.iter().map(|(key, _)| key).collect() };
        remove.iter().filter(|key| !kept.contains(key)).for_each(|key| self.remove(node, key, turn));
        let set = set.into_iter().zip(anew);
        set.map(|((key, value), anew)| self.set(node, key, value, anew, turn)).max().unwrap_or(0)
    }

    fn set(&mut self, node: NodeSlot, key: K, value: K::Value, anew: bool, turn: &mut Turn<'_>) -> u64 {
        let by = turn.nodes.get(node);
        let index = turn.index;
        // Nearly all routes of one node are wanted by that node alone.
        let routes = self.table.entry(key.clone()).or_insert_with(|| Vec::with_capacity(1));
        match routes.binary_search_by_key(&node, |route| route.node) {
            Ok(at) => {
                let route = &mut routes[at];
                if route.index < K::from_index(by) || route.value != value {
                    turn.effects.push(key.added(by.id, value));
                }
                if anew || route.index < K::from_index(by).max(by.registered_at) {
                    route.index = index;
                }
                route.value = value;
                route.index
            }
            Err(at) => {
                routes.insert(at, Route { node, index, value });
                turn.effects.push(key.added(by.id, value));
                index
            }
        }
    }

    fn remove(&mut self, node: NodeSlot, key: &K, turn: &mut Turn<'_>) {
        let Some(routes) = self.table.get_mut(key) else {
            return;
        };
        if let Ok(at) = routes.binary_search_by_key(&node, |route| route.node) {
            routes.remove(at);
            turn.effects.push(key.removed(turn.nodes.id(node)));
        }
        if routes.is_empty() {
            self.table.remove(key);
        }
    }

    /// Says that entries have become void.
    pub(super) fn begin_sweep(&mut self) {
        if self.table.is_empty() {
            return;
        }
        let sweep = self.sweep.get_or_insert(Sweep { after: None, again: false });
        sweep.again |= sweep.after.is_some();
    }

    /// Takes out what is void among the next keys.
    pub(super) fn sweep(&mut self, keys_max: usize, nodes: &Nodes, effects: &mut Vec<Effect>) {
        let Some(Sweep { after, again }) = self.sweep.take() else {
            return;
        };
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let the_last = self.table.keys().next_back().cloned();
        let (mut emptied, mut last) = (Vec::new(), None);
        for (key, routes) in self.table.range_mut((from, Bound::Unbounded)).take(keys_max) {
            routes.retain(|route| {
                let counts = route.counts::<K>(nodes);
                if !counts {
                    effects.push(key.removed(nodes.id(route.node)));
                }
                counts
            });
            if routes.is_empty() {
                emptied.push(key.clone());
            }
            last = Some(key);
        }
        let behind = last.filter(|last| Some(*last) != the_last.as_ref()).cloned();
        emptied.iter().for_each(|key| drop(self.table.remove(key)));
        self.sweep = match (behind, again) {
            (Some(after), _) => Some(Sweep { after: Some(after), again }),
            (None, true) => Some(Sweep { after: None, again: false }),
            (None, false) => None,
        };
    }

    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    pub(super) fn sweep_state(&self) -> Option<&Sweep<K>> {
        self.sweep.as_ref()
    }

    /// As it was in another state.
    pub(super) fn put_sweep(&mut self, sweep: Option<Sweep<K>>) {
        self.sweep = sweep;
    }

    /// Returns whether the key was not there.
    pub(super) fn put(&mut self, key: K, routes: Vec<Route<K::Value>>) -> bool {
        self.table.insert(key, routes).is_none()
    }

    /// The entries of `key` that are not void.
    pub(super) fn of(&self, key: &K, nodes: &Nodes) -> impl Iterator<Item = Route<K::Value>> {
        self.raw(key).iter().copied().filter(|route| route.counts::<K>(nodes))
    }

    /// All entries of `key`.
    pub(super) fn raw(&self, key: &K) -> &[Route<K::Value>] {
        self.table.get(key).map_or(&[], Vec::as_slice)
    }

    /// All keys with all their entries, in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &[Route<K::Value>])> {
        self.table.iter().map(|(key, routes)| (key, routes.as_slice()))
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for (key, routes) in &self.table {
            for Route { node, index, value } in routes {
                digest.add(&[&"route", key, &node.number(), index, value]);
            }
        }
        if let Some(Sweep { after, again }) = &self.sweep {
            digest.add(&[&"sweep", &u64::from(*again)]);
            if let Some(after) = after {
                digest.add(&[&"swept", after]);
            }
        }
    }
}
