//! What a shard inherits from a node that is dead: which of its copies become sessions, when, and which do not.
//!
//! The copies of a node are with the shards that read its connections; each of them hands what it has to the shard of the client, and says so to every shard. The
//! control state says which sessions pass to this node, and when there are no more. When both are known a shard enters all of its sessions, one after the other;
//! what waits for one of them, waits until then.
//!
//! | event | what becomes of the inheritance of a life of a node |
//! | --- | --- |
//! | the node is dead, and this node is one of its heirs | it is begun, unless a shard has told of its copies before |
//! | a shard tells of its copies | those that are not complete are to be dropped |
//! | a session passes to this node, or from it to another | it is one of those to be entered, or no more |
//! | all are passed on, or the orphans are no more | nothing more passes to this node |
//! | a shard of another node says that it knows of the death | what came from it before was for no session of the dead; what comes later is for those too |
//! | all shards have told, all others know, and nothing more passes | a session with a copy is entered; one without is empty if there cannot have been a copy, else lost; copies of other sessions are dropped |
//! | all that is carried out | it is entered |
//! | the orphans are no more, and it is entered | it is forgotten |
//!
//! A session may also pass to this node, or be its own since long, when nothing is inherited: see [`looking`](super::looking). It is *searched*: every shard is asked for its copies of such
//! sessions, and when all have told, they are entered in the same way.
//!
//! Why all others have to know: one that does not sends what it publishes here for the sessions that have been here, and what it owed the dead only when it hears of the
//! death. Were the inherited sessions here in between, they would have the newer one first.
//!
//! Owner: the shard. Invariant: each session is handed out once, and each owner of a copy is handed out once, to be entered or to be dropped.
//!
//! Test to read first: `tests::what_has_passed_is_entered_and_the_rest_is_dropped`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_raft::{Incarnation, NodeId};
use holdfast_storage::OwnerId;

use crate::cluster::session_move::Source;

use super::receiving::Copied;

/// A life of a node.
pub type Life = (NodeId, Incarnation);

/// A copy on its way to the shard of its client. `S`: what its home had seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<S> {
    pub copied: Copied,
    pub seen: S,
}

/// How sessions come: all of a life of a node together, or those of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Inherited(Life),
    Searched(u64),
}

impl Way {
    /// The life from which it is inherited.
    pub fn life(self) -> Option<Life> {
        match self {
            Way::Inherited(life) => Some(life),
            Way::Searched(_) => None,
        }
    }
}

impl From<Life> for Way {
    fn from(life: Life) -> Way {
        Way::Inherited(life)
    }
}

/// What becomes of a session of which there is no copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// There cannot have been one: it has nothing.
    Empty,
    Lost,
    /// It was not inherited, and is as it is.
    Nothing,
}

/// What the control state says of a session that has passed to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Of the last connection, and of the one that began the session.
    pub epoch: u64,
    pub began: u64,
    pub expiry_secs: u32,
    pub without: Without,
}

/// One thing to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heritage<S> {
    Session { client: Arc<str>, passed: Passed, found: Found<S> },
    Empty { client: Arc<str>, passed: Passed },
    Lost { client: Arc<str>, passed: Passed },
    Drop { owner: OwnerId },
}

#[derive(Debug)]
enum Stage<S> {
    Gathering,
    Entering(VecDeque<Heritage<S>>),
    Entered,
}

#[derive(Debug)]
struct Inheritance<S> {
    /// Shards that have told of their copies.
    told: usize,
    /// Shards of other nodes that perhaps do not know of the death.
    unaware: BTreeSet<Source>,
    all_passed: bool,
    found: HashMap<Arc<str>, Vec<Found<S>>>,
    passed: BTreeMap<Arc<str>, Passed>,
    /// Owners of copies of which nothing comes.
    unfit: Vec<OwnerId>,
    stage: Stage<S>,
    /// There are no orphans any more.
    ended: bool,
}

impl<S> Default for Inheritance<S> {
    fn default() -> Self {
        Self {
            told: 0,
            unaware: BTreeSet::new(),
            all_passed: false,
            found: HashMap::new(),
            passed: BTreeMap::new(),
            unfit: Vec::new(),
            stage: Stage::Gathering,
            ended: false,
        }
    }
}

impl<S> Inheritance<S> {
    fn is_entered(&self) -> bool {
        matches!(self.stage, Stage::Entered)
    }

    /// Everything is known: what to do.
    fn settle(&mut self) -> VecDeque<Heritage<S>> {
        let mut heritage = VecDeque::new();
        for (client, passed) in &self.passed {
            let mut found = self.found.remove(client).unwrap_or_default();
            // An earlier session of the client is none of this one; one that has moved since it began says the connection for which it did. Of two the newer
            // one is what the home had last.
            let fits = |found: &Found<S>| found.copied.began >= passed.began;
            let fitting = (0..found.len()).filter(|at| fits(&found[*at]));
            let best = fitting.max_by_key(|at| found[*at].copied.owner);
            let best = best.map(|at| found.swap_remove(at));
            self.unfit.extend(found.iter().map(|found| found.copied.owner));
            let (client, passed) = (client.clone(), *passed);
            heritage.push_back(match best {
                Some(found) => Heritage::Session { client, passed, found },
                None if passed.without == Without::Empty => Heritage::Empty { client, passed },
                None if passed.without == Without::Lost => Heritage::Lost { client, passed },
                None => continue,
            });
        }
        let others = self.found.drain().flat_map(|(_, found)| found);
        self.unfit.extend(others.map(|found| found.copied.owner));
        self.unfit.sort_unstable();
        heritage.extend(self.unfit.drain(..).map(|owner| Heritage::Drop { owner }));
        heritage
    }
}

/// See the module.
#[derive(Debug)]
pub struct Inheriting<S> {
    shards: usize,
    of: BTreeMap<Way, Inheritance<S>>,
    /// What the next search is for.
    wanted: BTreeMap<Arc<str>, Passed>,
    searches: u64,
    /// Who has known of deaths before this shard, by the tag and the incarnation of the dead.
    early: BTreeMap<(u64, Incarnation), BTreeSet<Source>>,
}

/// Lives of which others may know before this shard. More nodes than there are do not die in one moment.
const EARLY_MAX: usize = 64;

impl<S> Inheriting<S> {
    /// Of one of so many shards.
    pub fn new(shards: usize) -> Inheriting<S> {
        Inheriting { shards, of: BTreeMap::new(), wanted: BTreeMap::new(), searches: 0, early: BTreeMap::new() }
    }

    /// This node is an heir of a node that has died. False if that was known.
    pub fn begin(&mut self, life: Life) -> bool {
        let known = self.of.contains_key(&life.into());
        self.of.entry(life.into()).or_default();
        !known
    }

    /// These are to say that they know of a death, before anything is entered.
    pub fn wait_for_news(&mut self, life: Life, sources: impl IntoIterator<Item = Source>) {
        let heard = self.early.remove(&(life.0.tag(), life.1)).unwrap_or_default();
        if let Some(inheritance) = self.of.get_mut(&life.into()) {
            inheritance.unaware = sources.into_iter().filter(|source| !heard.contains(source)).collect();
        }
    }

    /// A shard of another node knows of a death, and says so behind all that it has sent before it did.
    pub fn heard(&mut self, dead: (u64, Incarnation), from: Source) {
        let is_of = |of: &Way| of.life().is_some_and(|life| (life.0.tag(), life.1) == dead);
        if let Some((_, inheritance)) = self.of.iter_mut().find(|(of, _)| is_of(of)) {
            inheritance.unaware.remove(&from);
        } else if self.early.len() < EARLY_MAX || self.early.contains_key(&dead) {
            self.early.entry(dead).or_default().insert(from);
        }
    }

    /// Whether that shard may still send what is not for the sessions of a dead node.
    pub fn is_unaware(&self, life: Life, from: Source) -> bool {
        self.of.get(&life.into()).is_some_and(|inheritance| inheritance.unaware.contains(&from))
    }

    /// Nothing more comes from a node.
    pub fn source_gone(&mut self, node: NodeId) {
        for inheritance in self.of.values_mut() {
            inheritance.unaware.retain(|(other, _)| *other != node);
        }
        self.early.values_mut().for_each(|heard| heard.retain(|(other, _)| *other != node));
        self.early.retain(|_, heard| !heard.is_empty());
    }

    /// Nobody is waited for any longer. Returns for whom it was.
    pub fn stop_waiting_for_news(&mut self, life: Life) -> BTreeSet<Source> {
        let inheritance = self.of.get_mut(&life.into());
        inheritance.map(|inheritance| std::mem::take(&mut inheritance.unaware)).unwrap_or_default()
    }

    /// A shard tells which copies it had of sessions that are for this shard. Once for each shard.
    pub fn told(&mut self, of: impl Into<Way>, found: Vec<Found<S>>) {
        let inheritance = self.of.entry(of.into()).or_default();
        inheritance.told += 1;
        for found in found {
            if found.copied.complete {
                inheritance.found.entry(found.copied.client_id.clone()).or_default().push(found);
            } else {
                inheritance.unfit.push(found.copied.owner);
            }
        }
    }

    /// A session of a dead node is this node's. False if nothing is to be inherited from that one any more: then it is for the next search.
    pub fn passed_on(&mut self, from: NodeId, client: &Arc<str>, passed: Passed) -> bool {
        let is_of = |of: &Way| matches!(of, Way::Inherited((node, _)) if *node == from);
        let of_it = self.of.iter_mut().rev().find(|(of, of_it)| is_of(of) && !of_it.is_entered());
        let Some((_, inheritance)) = of_it.filter(|(_, of_it)| matches!(of_it.stage, Stage::Gathering)) else {
            self.want(client, passed);
            return false;
        };
        inheritance.passed.insert(client.clone(), passed);
        true
    }

    /// The next search is for this session, too.
    pub fn want(&mut self, client: &Arc<str>, passed: Passed) {
        self.wanted.insert(client.clone(), passed);
    }

    /// Begins the search, if there is anything to be searched: every shard is to tell its copies of these clients.
    pub fn begin_search(&mut self) -> Option<(u64, Vec<Arc<str>>)> {
        let passed = std::mem::take(&mut self.wanted);
        if passed.is_empty() {
            return None;
        }
        self.searches += 1;
        let clients = passed.keys().cloned().collect();
        let search = Inheritance { passed, all_passed: true, ended: true, ..Inheritance::default() };
        self.of.insert(Way::Searched(self.searches), search);
        Some((self.searches, clients))
    }

    /// Whether there is a search, or is to be one.
    pub fn searches(&self) -> bool {
        !self.wanted.is_empty() || self.of.keys().any(|of| matches!(of, Way::Searched(_)))
    }

    /// A session has passed from this node to another one.
    pub fn passed_away(&mut self, client: &str) {
        self.wanted.remove(client);
        for inheritance in self.of.values_mut().filter(|of_it| matches!(of_it.stage, Stage::Gathering)) {
            inheritance.passed.remove(client);
        }
    }

    /// Nothing more passes from that life to anybody.
    pub fn passed_on_all(&mut self, life: Life) {
        if let Some(inheritance) = self.of.get_mut(&life.into()) {
            inheritance.all_passed = true;
        }
    }

    /// Nobody inherits from that life any more.
    pub fn ended(&mut self, life: Life) {
        if let Some(inheritance) = self.of.get_mut(&life.into()) {
            (inheritance.all_passed, inheritance.ended) = (true, true);
        }
        self.of.retain(|_, of_it| !(of_it.ended && of_it.is_entered()));
    }

    /// Whether the session of a client is to be entered and is not yet.
    pub fn awaits(&self, client: &str) -> bool {
        let in_one = self.of.values().any(|of_it| !of_it.is_entered() && of_it.passed.contains_key(client));
        in_one || self.wanted.contains_key(client)
    }

    /// Whether all that comes from that life is entered.
    pub fn has_entered(&self, life: Life) -> bool {
        self.of.get(&life.into()).is_none_or(Inheritance::is_entered)
    }

    /// What is to be carried out next, at most so much.
    pub fn next(&mut self, at_most: usize) -> Vec<(Way, Heritage<S>)> {
        let mut next = Vec::new();
        for (of, inheritance) in &mut self.of {
            let all_told = inheritance.told >= self.shards && inheritance.unaware.is_empty();
            let is_known = all_told && inheritance.all_passed;
            if is_known && matches!(inheritance.stage, Stage::Gathering) {
                inheritance.stage = Stage::Entering(inheritance.settle());
            }
            if let Stage::Entering(heritage) = &mut inheritance.stage {
                let count = heritage.len().min(at_most - next.len());
                next.extend(heritage.drain(..count).map(|heritage| (*of, heritage)));
            }
        }
        next
    }

    /// Lives, and searches, of which everything has been carried out: each is told once.
    pub fn entered(&mut self) -> Vec<Way> {
        let mut entered = Vec::new();
        for (of, inheritance) in &mut self.of {
            if matches!(&inheritance.stage, Stage::Entering(heritage) if heritage.is_empty()) {
                inheritance.stage = Stage::Entered;
                inheritance.passed.clear();
                entered.push(*of);
            }
        }
        self.of.retain(|_, of_it| !(of_it.ended && of_it.is_entered()));
        entered
    }
}

#[cfg(test)]
mod tests;
