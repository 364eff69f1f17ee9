//! The filters that match a name: the question of every publish.
//!
//! Filters without wildcards live in one hash map, so they cost one look-up per publish however many there are. The
//! others form a tree of levels. Its nodes lie in one arena and its edges in one hash table keyed by (parent, level): no table per node, and
//! a level with a million children costs what one with two does. `#` is no node: it is a second value of the node
//! it stands behind, which is why `a/#` matches `a` for free.
//!
//! Invariants: a node other than the root has a value or a child, so the tree is never larger than its filters; every named
//! node has exactly one entry in `edges`. A walk visits a node at most once, so a match costs at most the nodes of the
//! tree, and at most 2^levels of the name. Nothing recurses: depth is bounded by the filter's length, not by the stack.
//!
//! Keys come from the network, so both tables hash with a random seed. Read first: `tests.rs`, where this is held against [`matches`](super::matches).

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;

use super::filter::has_wildcard;
use super::name::is_dollar;

use exact::Exact;
use text::Text;

mod exact;
#[cfg(test)]
mod tests;
mod text;

/// Index of a node in the arena.
type NodeId = u32;

const ROOT: NodeId = 0;
/// Longest level that is stored in its node: with it and two eight-byte values a node fills a cache line.
const SHORT_LEVEL_MAX: usize = 22;
/// "No such child": an index that the arena never gives out.
const NONE: NodeId = u32::MAX;

/// A map from topic filters to `T` that is asked by topic name. Filters are without share prefix and were parsed before.
#[derive(Debug)]
pub struct FilterTree<T> {
    exact: Exact<T>,
    nodes: Slab<Node<T>>,
    edges: HashTable<NodeId>,
    hasher: RandomState,
    /// Filters with wildcards.
    wild: usize,
}

#[derive(Debug)]
struct Node<T> {
    parent: NodeId,
    /// The child for `+`.
    plus: NodeId,
    /// Children that have an entry in `edges`.
    named: u32,
    level: Text<SHORT_LEVEL_MAX>,
    /// The value of the filter that ends here.
    here: Option<T>,
    /// The value of the filter that goes on with `#` from here.
    below: Option<T>,
}

impl<T> Node<T> {
    fn new(parent: NodeId, level: &str) -> Self {
        Self { parent, plus: NONE, named: 0, level: Text::new(level), here: None, below: None }
    }

    fn edge_hash(&self, hasher: &RandomState) -> u64 {
        edge_hash(hasher, self.parent, self.level.as_bytes())
    }

    fn is_empty(&self) -> bool {
        self.plus == NONE && self.named == 0 && self.here.is_none() && self.below.is_none()
    }
}

impl<T> Default for FilterTree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> FilterTree<T> {
    pub fn new() -> Self {
        let mut nodes = Slab::new();
        nodes.insert(Node::new(NONE, ""));
        let hasher = RandomState::default();
        Self { exact: Exact::new(hasher.clone()), nodes, edges: HashTable::new(), hasher, wild: 0 }
    }

    /// Number of filters.
    pub fn len(&self) -> usize {
        self.exact.len() + self.wild
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, filter: &str) -> Option<&T> {
        if !has_wildcard(filter) {
            return self.exact.get(filter);
        }
        let (path, below) = split_multi_level(filter);
        let node = self.node(self.find(path)?);
        if below { node.below.as_ref() } else { node.here.as_ref() }
    }

    pub fn get_mut(&mut self, filter: &str) -> Option<&mut T> {
        if !has_wildcard(filter) {
            return self.exact.get_mut(filter);
        }
        let (path, below) = split_multi_level(filter);
        let found = self.find(path)?;
        self.slot(found, below).as_mut()
    }

    /// The value of `filter`, made by `make` if there is none yet.
    pub fn get_or_insert_with(&mut self, filter: &str, make: impl FnOnce() -> T) -> &mut T {
        if !has_wildcard(filter) {
            return self.exact.get_or_insert_with(filter, make);
        }
        let (path, below) = split_multi_level(filter);
        let node = self.find_or_grow(path);
        if self.slot(node, below).is_none() {
            self.wild += 1;
        }
        self.slot(node, below).get_or_insert_with(make)
    }

    /// Takes `filter` out, and with it the nodes that only it needed.
    pub fn remove(&mut self, filter: &str) -> Option<T> {
        if !has_wildcard(filter) {
            return self.exact.remove(filter);
        }
        let (path, below) = split_multi_level(filter);
        let found = self.find(path)?;
        let value = self.slot(found, below).take()?;
        self.wild -= 1;
        self.prune(found);
        Some(value)
    }

    /// Calls `each` with the value of every filter that matches `name`, once each, in no particular order.
    /// Filters that start with a wildcard do not match a name with a leading `$` [MQTT-4.7.2-1].
    pub fn for_each_match<'t>(&'t self, name: &str, mut each: impl FnMut(&'t T)) {
        if let Some(value) = self.exact.get(name) {
            each(value);
        }
        if self.wild != 0 {
            self.walk(name, &mut each);
        }
    }

    /// Calls `each` with every filter and its value, in no particular order.
    pub fn for_each(&self, mut each: impl FnMut(&str, &T)) {
        for (filter, value) in self.exact.iter() {
            each(filter, value);
        }
        for (id, node) in &self.nodes {
            if node.here.is_none() && node.below.is_none() {
                continue;
            }
            let path = self.path(id as NodeId);
            if let Some(value) = &node.here {
                each(&path.join("/"), value);
            }
            if let Some(value) = &node.below {
                each(&[path.as_slice(), &["#"]].concat().join("/"), value);
            }
        }
    }
}

/// The wildcard part.
impl<T> FilterTree<T> {
    /// Follows `name` from the root into the named child and the `+` child of every node it reaches.
    fn walk<'t>(&'t self, name: &str, each: &mut impl FnMut(&'t T)) {
        // What is left to visit: a node, and the part of the name below it. `None`: the name ends at this node.
        let mut open: SmallVec<[(NodeId, Option<&str>); 16]> = SmallVec::new();
        let mut next = Some((ROOT, Some(name)));
        while let Some((id, below)) = next.take().or_else(|| open.pop()) {
            let node = self.node(id);
            let wildcards_count = id != ROOT || !is_dollar(name);
            if wildcards_count && let Some(value) = &node.below {
                each(value);
            }
            let Some(below) = below else {
                node.here.iter().for_each(&mut *each);
                continue;
            };
            let (level, rest) = split_level(below);
            if wildcards_count && node.plus != NONE {
                open.push((node.plus, rest));
            }
            if node.named != 0 {
                next = self.child(id, level).map(|child| (child, rest));
            }
        }
    }

    fn node(&self, id: NodeId) -> &Node<T> {
        &self.nodes[id as usize]
    }

    fn slot(&mut self, id: NodeId, below: bool) -> &mut Option<T> {
        let node = &mut self.nodes[id as usize];
        if below { &mut node.below } else { &mut node.here }
    }

    fn child(&self, parent: NodeId, level: &str) -> Option<NodeId> {
        let hash = edge_hash(&self.hasher, parent, level.as_bytes());
        let is_it = |&id: &NodeId| {
            let node = self.node(id);
            node.parent == parent && node.level.as_bytes() == level.as_bytes()
        };
        self.edges.find(hash, is_it).copied()
    }

    fn find(&self, path: Option<&str>) -> Option<NodeId> {
        let mut at = ROOT;
        for level in path.into_iter().flat_map(|path| path.split('/')) {
            at = match level {
                "+" => Some(self.node(at).plus).filter(|&plus| plus != NONE),
                level => self.child(at, level),
            }?;
        }
        Some(at)
    }

    fn find_or_grow(&mut self, path: Option<&str>) -> NodeId {
        let mut at = ROOT;
        for level in path.into_iter().flat_map(|path| path.split('/')) {
            at = match level {
                "+" => Some(self.node(at).plus).filter(|&plus| plus != NONE),
                level => self.child(at, level),
            }
            .unwrap_or_else(|| self.grow(at, level));
        }
        at
    }

    fn grow(&mut self, parent: NodeId, level: &str) -> NodeId {
        let id =
            u32::try_from(self.nodes.insert(Node::new(parent, level))).expect("fewer than 2^32 nodes fit in memory");
        let above = &mut self.nodes[parent as usize];
        if level == "+" {
            above.plus = id;
            return id;
        }
        above.named += 1;
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        let rehash = |&id: &NodeId| nodes[id as usize].edge_hash(hasher);
        let hash = nodes[id as usize].edge_hash(hasher);
        self.edges.insert_unique(hash, id, rehash);
        id
    }

    /// Removes `at` and its ancestors as far as nothing is left in them.
    fn prune(&mut self, mut at: NodeId) {
        while at != ROOT && self.node(at).is_empty() {
            let node = self.nodes.remove(at as usize);
            let above = &mut self.nodes[node.parent as usize];
            if above.plus == at {
                above.plus = NONE;
            } else {
                above.named -= 1;
                let hash = node.edge_hash(&self.hasher);
                if let Ok(edge) = self.edges.find_entry(hash, |&id| id == at) {
                    edge.remove();
                }
            }
            at = node.parent;
        }
    }

    /// The levels from the root to `id`.
    fn path(&self, mut id: NodeId) -> Vec<&str> {
        let mut levels = Vec::new();
        while id != ROOT {
            levels.push(self.node(id).level.as_str());
            id = self.node(id).parent;
        }
        levels.reverse();
        levels
    }
}

#[inline]
fn edge_hash(hasher: &RandomState, parent: NodeId, level: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u32(parent);
    hasher.write(level);
    hasher.finish()
}

/// The first level, and what follows its `/`.
#[inline]
fn split_level(name: &str) -> (&str, Option<&str>) {
    match memchr::memchr(b'/', name.as_bytes()) {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    }
}

/// The levels in front of a final `#`, and whether there is one. No path at all is the root.
fn split_multi_level(filter: &str) -> (Option<&str>, bool) {
    match filter.strip_suffix('#') {
        Some("") => (None, true),
        Some(front) if front.ends_with('/') => (Some(&front[..front.len() - 1]), true),
        _ => (Some(filter), false),
    }
}
