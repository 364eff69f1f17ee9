//! Who is in the group: how a cluster is founded, and what its leader does about who comes and goes. [pure]
//!
//! **Founding.** Nodes that are in no cluster and see one another agree by the smallest id: it asks the next smaller ones for the promise to be in no other
//! cluster, and when it has as many as the cluster is to begin with, itself included, it founds it. A promise lasts longer than the attempt that it was
//! given to, so no node is counted in two.
//!
//! **Members.** A node joins as a learner and becomes a voter when it has caught up, while there are fewer than [`VOTERS_MAX`]. A new id under a known
//! name takes the place of the old one, unless that is alive. One change at a time.
//!
//! **Voters change in two entries**: in the first the old voters and the new ones decide, each with a majority; the second leaves the new ones alone. The first cannot be taken back before it
//! is decided, not even by the old ones (openraft takes no other change before), so a majority of the new voters must be there: [`Sounding`] makes sure of it. What a leader has
//! left half done another one ends: [`rest_of_change`].
//!
//! Test to read first: `tests::the_smallest_id_founds_when_enough_have_promised`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::command::NodeId;
use crate::entry::Member;

/// Voters at most. More nodes than that only follow the log.
pub const VOTERS_MAX: usize = 5;

/// Milliseconds for which a promise binds.
const PROMISE_MS: u64 = 10_000;
/// Milliseconds within which the promises of one attempt must have come.
const ATTEMPT_MS: u64 = 3_000;
/// Milliseconds after which a node that says nothing more is not counted on.
const SEEN_MS: u64 = 5_000;

/// What to do to found a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundingStep {
    Wait,
    /// Ask these nodes for their promise.
    Ask {
        attempt: u64,
        of: Vec<NodeId>,
    },
    /// Found it with these nodes and their names, this one included.
    Found(BTreeMap<NodeId, String>),
}

#[derive(Debug)]
struct Attempt {
    number: u64,
    began: u64,
    chosen: BTreeSet<NodeId>,
    promised: BTreeMap<NodeId, String>,
}

/// A node without cluster.
#[derive(Debug)]
pub(crate) struct Founding {
    me: NodeId,
    name: String,
    size: usize,
    /// Others without cluster, and when they last said so.
    seen: BTreeMap<NodeId, u64>,
    /// To whom, and until when.
    promised: Option<(NodeId, u64)>,
    attempt: Option<Attempt>,
    attempts: u64,
}

impl Founding {
    pub fn new(me: NodeId, name: &str, size: usize) -> Self {
        let (name, size) = (name.to_owned(), size.max(1));
        Self { me, name, size, seen: BTreeMap::new(), promised: None, attempt: None, attempts: 0 }
    }

    /// `node` says that it is in no cluster.
    pub fn hello(&mut self, node: NodeId, now: u64) {
        if node != self.me {
            self.seen.insert(node, now);
        }
    }

    /// `node` is in a cluster, or says nothing of itself.
    pub fn forget(&mut self, node: NodeId) {
        self.seen.remove(&node);
    }

    /// Whether `founder` gets the promise of this node.
    pub fn asked(&mut self, founder: NodeId, now: u64) -> bool {
        let free = self.promised_to(now).is_none_or(|other| other == founder);
        if free {
            self.promised = Some((founder, now + PROMISE_MS));
            self.attempt = None;
        }
        free
    }

    /// `node` has given its promise.
    pub fn promise(&mut self, node: NodeId, attempt: u64, name: String) {
        if let Some(current) = &mut self.attempt
            && current.number == attempt
            && current.chosen.contains(&node)
        {
            current.promised.insert(node, name);
        }
    }

    /// Whose cluster this node has promised to be in.
    pub fn promised_to(&self, now: u64) -> Option<NodeId> {
        self.promised.filter(|(_, until)| now < *until).map(|(founder, _)| founder)
    }

    /// What to do now, given the nodes that there are links to.
    pub fn step(&mut self, linked: &[NodeId], now: u64) -> FoundingStep {
        self.seen.retain(|node, at| now.saturating_sub(*at) < SEEN_MS && linked.contains(node));
        let first = self.seen.keys().next().is_none_or(|smallest| self.me < *smallest);
        let bound = self.promised_to(now).is_some_and(|founder| founder != self.me);
        if !first || bound || self.seen.len() + 1 < self.size {
            self.attempt = None;
            return FoundingStep::Wait;
        }
        let chosen: BTreeSet<NodeId> = self.seen.keys().take(self.size - 1).copied().collect();
        let stale = |attempt: &Attempt| now.saturating_sub(attempt.began) >= ATTEMPT_MS || attempt.chosen != chosen;
        if self.attempt.as_ref().is_none_or(stale) {
            self.attempts += 1;
            self.promised = Some((self.me, now + PROMISE_MS));
            let promised = BTreeMap::new();
            self.attempt = Some(Attempt { number: self.attempts, began: now, chosen, promised });
        }
        let Some(attempt) = &self.attempt else { return FoundingStep::Wait };
        if attempt.promised.len() == attempt.chosen.len() {
            let mut members = attempt.promised.clone();
            members.insert(self.me, self.name.clone());
            return FoundingStep::Found(members);
        }
        let of = attempt.chosen.iter().filter(|node| !attempt.promised.contains_key(node)).copied().collect();
        FoundingStep::Ask { attempt: attempt.number, of }
    }
}

/// The members as the leader knows them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Members {
    /// Old and new ones, in the middle of a change.
    pub voters: BTreeSet<u128>,
    /// Of each of these a majority decides: the voters, or in the middle of a change the old ones and the new ones.
    pub configs: Vec<BTreeSet<u128>>,
    /// Voters and learners.
    pub nodes: BTreeMap<u128, Member>,
    /// Whether that is decided and applied, so that another change may begin.
    pub settled: bool,
}

impl Members {
    /// The member that is meant by its name, or by its id in hexadecimal.
    pub fn find(&self, who: &str) -> Option<u128> {
        let by_name = self.nodes.iter().find(|(_, member)| member.name == who).map(|(id, _)| *id);
        by_name.or_else(|| u128::from_str_radix(who, 16).ok().filter(|id| self.nodes.contains_key(id)))
    }

    /// Whether a member is about to become a voter, or to be one for certain: until then whose place it takes counts, who is dead perhaps.
    pub fn is_to_vote(&self, id: u128) -> bool {
        let Some(member) = self.nodes.get(&id) else { return false };
        if self.voters.contains(&id) {
            // In the middle of a change it comes, or goes.
            return !self.configs.iter().all(|voters| voters.contains(&id))
                && self.configs.last().is_some_and(|voters| voters.contains(&id));
        }
        let takes_place = self.namesake(id, &member.name).is_some_and(|other| self.voters.contains(&other));
        takes_place || self.voters.len() < VOTERS_MAX
    }

    /// Another member under the same name.
    fn namesake(&self, id: u128, name: &str) -> Option<u128> {
        self.nodes.iter().find(|(other, member)| **other != id && member.name == name).map(|(other, _)| *other)
    }
}

/// A change of the membership.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MemberStep {
    AddLearner {
        id: u128,
        name: String,
    },
    /// These are the voters from now on; whoever was one and is not among them is no member any more.
    Voters(BTreeSet<u128>),
    RemoveLearner(u128),
    Refuse {
        id: u128,
        reason: String,
    },
}

impl fmt::Display for MemberStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddLearner { id, name } => write!(f, "{name} ({id:032x}) is added as a learner"),
            Self::Voters(voters) => {
                let voters: Vec<String> = voters.iter().map(|id| format!("{id:032x}")).collect();
                write!(f, "the voters are {}", voters.join(", "))
            }
            Self::RemoveLearner(id) => write!(f, "learner {id:032x} is removed"),
            Self::Refuse { id, reason } => write!(f, "{id:032x} is refused: {reason}"),
        }
    }
}

/// The next change, if one is due. `joining` want to be members; `caught_up` have all of the log; `alive` are heard or live in the state; `leaving` is to go.
pub(crate) fn next_step(
    members: &Members,
    joining: &BTreeMap<u128, String>,
    leaving: Option<u128>,
    caught_up: impl Fn(u128) -> bool,
    alive: impl Fn(u128) -> bool,
) -> Option<MemberStep> {
    if let Some(id) = leaving.filter(|id| members.nodes.contains_key(id)) {
        return removal(members, id);
    }
    if let Some((&id, name)) = joining.iter().find(|(id, _)| !members.nodes.contains_key(id)) {
        return Some(match members.namesake(id, name).filter(|other| alive(*other)) {
            Some(other) => {
                MemberStep::Refuse { id, reason: format!("node {other:032x} is alive under the name {name}") }
            }
            None => MemberStep::AddLearner { id, name: name.clone() },
        });
    }
    let learners = members.nodes.iter().filter(|(id, _)| !members.voters.contains(id));
    for (&id, member) in learners.filter(|(id, _)| alive(**id) && caught_up(**id)) {
        let mut voters = members.voters.clone();
        match members.namesake(id, &member.name).filter(|other| !alive(*other)) {
            Some(old) if voters.remove(&old) => {}
            Some(old) => return Some(MemberStep::RemoveLearner(old)),
            None if voters.len() < VOTERS_MAX => {}
            None => continue,
        }
        voters.insert(id);
        return Some(MemberStep::Voters(voters));
    }
    None
}

fn removal(members: &Members, id: u128) -> Option<MemberStep> {
    if !members.voters.contains(&id) {
        return Some(MemberStep::RemoveLearner(id));
    }
    let voters: BTreeSet<u128> = members.voters.iter().copied().filter(|voter| *voter != id).collect();
    if voters.is_empty() {
        return Some(MemberStep::Refuse { id, reason: "it is the last voter".to_owned() });
    }
    Some(MemberStep::Voters(voters))
}

/// How a change ends whose second entry its leader did not come to write; the first is decided. If somebody who was to go is there and does not want to, the old voters are the voters again;
/// else it is the new ones. If no majority of those is `heard`, then the others.
pub(crate) fn rest_of_change(
    members: &Members,
    leaving: Option<u128>,
    alive: impl Fn(u128) -> bool,
    heard: impl Fn(&BTreeSet<u128>) -> bool,
) -> Option<MemberStep> {
    let [old, new] = members.configs.as_slice() else { return None };
    let stays = old.difference(new).any(|id| Some(*id) != leaving && alive(*id));
    let order = if stays { [old, new] } else { [new, old] };
    order.into_iter().find(|voters| heard(voters)).map(|voters| MemberStep::Voters(voters.clone()))
}

/// What is known of the voters that are to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sounded {
    Wait,
    /// A majority has answered what it was asked since the question came up.
    There,
    /// It has not, for a lease.
    Missing,
}

/// Whether those who are to be the voters are there *now*. That a node lives in the state, or has a grant, says nothing: it may have died a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Sounding {
    /// Who they are, and since when that is the question.
    question: Option<(BTreeSet<u128>, u64)>,
}

impl Sounding {
    /// `proof` is the newest time at which a majority of the voters, and of those that are to be the voters, was asked what it has answered. Once they are there, the question comes up anew.
    pub fn sound(&mut self, voters: &BTreeSet<u128>, proof: Option<u64>, now: u64, lease_ms: u64) -> Sounded {
        let same = self.question.take().filter(|(asked, _)| asked == voters);
        let since = same.map_or(now, |(_, since)| since);
        if proof.is_some_and(|at| at >= since) {
            return Sounded::There;
        }
        self.question = Some((voters.clone(), since));
        if now.saturating_sub(since) >= lease_ms { Sounded::Missing } else { Sounded::Wait }
    }

    /// No change of the voters is due, or it is refused.
    pub fn forget(&mut self) {
        self.question = None;
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
