//! What a node has to do with its copies because of how the control state stands, and not because of what has just happened to it.
//!
//! The death of a home, and each session that passes from it, is told once, to whoever is registered then. A node that starts again, or was given up, has missed some of it, and a log that
//! is applied anew tells of deaths of long ago, whose copies are not those of now. So nothing of that is carried out before the node has registered. Then, and whenever it has jumped over entries
//! of the log, it looks at the state of that moment, shard by shard:
//!
//! | a session | | what follows |
//! | --- | --- | --- |
//! | of this node, inherited from a life from which it still inherits | | it passes to this node, as if that were said now |
//! | of this node | it is not in the shard, nor on its way | it is searched ([`inheriting`](super::inheriting)) |
//! | missing, and this node is its heir | a complete copy of it is here, which is not older | it is found |
//! | of which a node that is dead has left a copy here | it is none of these | the copy is dropped |
//!
//! What is found passes to this node by the control state, and is searched then.
//!
//! There is no question to other nodes for copies that they may have. By the rules of the control state only the pick of the base of the last home can become the holder, and that has the copy, or nobody may
//! say that it is the newest: another node's would be one from before the base was filled. So whoever finds nothing here has lost the session, or there never was anything of it.
//!
//! Owns nothing. Test to read first: `tests::a_node_that_starts_again_goes_on_where_it_was`.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_raft::NodeId;

use super::inheriting::{Life, Passed};
use super::receiving::{Copies, Write};

/// A session of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    pub passed: Passed,
    /// From whom it was inherited, if nothing has happened to it since.
    pub from: Option<NodeId>,
}

/// What the control state says at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outlook {
    pub own: HashMap<Arc<str>, Own>,
    /// Sessions whose holder is dead, and whose heir is this node: the holder, and the epoch of the connection that began it.
    pub missing: HashMap<Arc<str>, (NodeId, u64)>,
    /// Lives from which this node inherits, each with whether all sessions of it are passed on.
    pub open: Vec<(Life, bool)>,
    /// The nodes that are live. All others that there ever were are dead, and perhaps forgotten.
    pub live: Vec<NodeId>,
}

/// What one shard has to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    /// What passes to this node, and from whom, in the order of the clients.
    pub passes: Vec<(NodeId, Arc<str>, Passed)>,
    /// Lives of which nothing more passes.
    pub passed_on_all: Vec<Life>,
    pub searches: Vec<(Arc<str>, Passed)>,
    /// To be said, in the order of the clients.
    pub found: Vec<Arc<str>>,
    pub writes: Vec<Write>,
}

impl Outlook {
    fn is_open(&self, node: NodeId) -> bool {
        self.open.iter().any(|((open, _), _)| *open == node)
    }

    /// What the shard has to do whose clients are `mine` and which has these `copies` for all shards. `is_here`: it has the session of a client, or that is on its way.
    pub fn tasks(&self, mine: impl Fn(&str) -> bool, is_here: impl Fn(&str) -> bool, copies: &mut Copies) -> Tasks {
        let mut tasks = Tasks::default();
        for (client, own) in self.own.iter().filter(|(client, _)| mine(client)) {
            match own.from.filter(|from| self.is_open(*from)) {
                Some(from) => tasks.passes.push((from, client.clone(), own.passed)),
                None if is_here(client) => {}
                None => tasks.searches.push((client.clone(), own.passed)),
            }
        }
        tasks.passed_on_all = self.open.iter().filter(|(_, all)| *all).map(|(life, _)| *life).collect();
        // Those of open lives are the inheritance's.
        let closed = |node: &NodeId| !self.live.contains(node) && !self.is_open(*node);
        let closed: Vec<NodeId> = copies.nodes().filter(closed).collect();
        closed.into_iter().for_each(|node| self.look_at_copies(node, copies, &mut tasks));
        tasks.passes.sort_unstable_by(|one, other| one.1.cmp(&other.1));
        tasks.searches.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        tasks.found.sort_unstable();
        tasks.found.dedup();
        tasks
    }

    /// The node is dead, and this one inherits nothing from it that is not passed on already.
    fn look_at_copies(&self, node: NodeId, copies: &mut Copies, tasks: &mut Tasks) {
        let is_missing = |client: &str, began: u64| {
            self.missing.get(client).is_some_and(|(holder, needed)| *holder == node && began >= *needed)
        };
        let mut of_use = false;
        for copied in copies.complete_of(node) {
            if is_missing(&copied.client_id, copied.began) {
                tasks.found.push(copied.client_id.clone());
                of_use = true;
            }
            of_use |= self.own.contains_key(&copied.client_id);
        }
        if !of_use {
            tasks.writes.extend(copies.forget(node));
            return;
        }
        let elsewhere: BTreeSet<_> = copies.elsewhere(node, |client| {
            self.own.contains_key(client) || self.missing.get(client).is_some_and(|(holder, _)| *holder == node)
        });
        tasks.writes.extend(copies.discard(node, &elsewhere));
    }
}

#[cfg(test)]
mod tests;
