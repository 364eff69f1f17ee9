//! The leader's side: answers to renewals, and whom to expire.

use std::collections::{BTreeMap, BTreeSet};

use super::Timing;
use crate::command::{Incarnation, NodeId};

/// What a renewal is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// So many milliseconds from when it was sent.
    Granted(u64),
    /// The incarnation is not live.
    Expired,
    /// Nothing: it is for the next leader to say, or for time.
    Silence,
}

/// Whom to expire, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// Others complained, as opposed to silence.
    pub complained_of: bool,
}

/// What the leader knows of one live incarnation.
#[derive(Debug)]
struct Heard {
    incarnation: Incarnation,
    /// When it was last answered, or else when this leader began or first saw it.
    answered_at: u64,
    /// When it last asked.
    asked_at: Option<u64>,
    complaints: Vec<(NodeId, Incarnation)>,
    /// It says that its disk does not keep what it should: what others wait for is not its fault.
    hampered: bool,
    /// It is not answered any more, as long as it is complained of, until it has expired.
    condemned: bool,
    /// Its expiry has been proposed, last at that time.
    proposed_at: Option<u64>,
}

/// The renewals that a leader has seen in its term.
#[derive(Debug)]
pub struct Renewals {
    timing: Timing,
    /// When the leader had applied an entry of its own term.
    since: Option<u64>,
    heard: BTreeMap<NodeId, Heard>,
    /// When somebody was last condemned for what others say.
    condemned_at: Option<u64>,
}

impl Renewals {
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self { timing, since: None, heard: BTreeMap::new(), condemned_at: None }
    }

    /// This node leads and has applied an entry of its own term.
    pub fn begin(&mut self, now: u64) {
        if self.since.is_none() {
            *self = Self { since: Some(now), ..Self::new(self.timing) };
        }
    }

    /// It does not lead any more.
    pub fn end(&mut self) {
        *self = Self::new(self.timing);
    }

    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.since.is_some()
    }

    /// Brings in line with the state: `live` are all live incarnations.
    pub fn observe(&mut self, live: &[(NodeId, Incarnation)], now: u64) {
        self.heard.retain(|node, heard| live.contains(&(*node, heard.incarnation)));
        for &(node, incarnation) in live {
            self.heard.entry(node).or_insert_with(|| Heard::new(incarnation, now));
        }
    }

    /// A renewal of `node` came in. `latest` is its newest incarnation in the state that this leader has applied, and whether it is live; `quorum_at` the newest time at which the leader is proven to have had its majority.
    pub fn renew(
        &mut self,
        node: NodeId,
        asking: Asking,
        latest: Option<(Incarnation, bool)>,
        quorum_at: Option<u64>,
        now: u64,
    ) -> Answer {
        if self.since.is_none() {
            return Answer::Silence;
        }
        match latest {
            Some((latest, true)) if latest == asking.incarnation => {}
            Some((latest, _)) if latest >= asking.incarnation => return Answer::Expired,
            // It is in the log, and the node has applied that before this leader.
            _ => return Answer::Silence,
        }
        let heard = self.heard.entry(node).or_insert_with(|| Heard::new(asking.incarnation, now));
        if heard.incarnation != asking.incarnation || heard.proposed_at.is_some() {
            return Answer::Silence;
        }
        heard.asked_at = Some(now);
        heard.complaints = asking.complaints;
        heard.hampered = asking.hampered;
        if heard.condemned {
            return Answer::Silence;
        }
        let age = quorum_at.map_or(u64::MAX, |at| now.saturating_sub(at));
        let granted = self.timing.grant_ms().saturating_sub(age);
        if granted == 0 {
            return Answer::Silence;
        }
        heard.answered_at = now;
        Answer::Granted(granted)
    }

    /// Whether `node` has asked within half a lease.
    #[must_use]
    pub fn is_heard(&self, node: NodeId, now: u64) -> bool {
        self.heard.get(&node).is_some_and(|heard| heard.speaks(now, self.timing.lease_ms))
    }

    /// Whom to expire now. Nodes that have fallen silent within a renewal interval are named together, so that none of them seems to have lived longer than another. Each is named again after a renewal interval while it is still live, because a proposal may be lost. `voters` is
    /// all of them, `me` the leader.
    pub fn verdicts(&mut self, voters: &BTreeSet<NodeId>, me: NodeId, now: u64) -> Vec<Verdict> {
        let Some(since) = self.since else { return Vec::new() };
        self.judge_complaints(voters, me, now);
        let Timing { lease_ms, renew_ms, .. } = self.timing;
        let mut verdicts = Vec::new();
        let silence = |heard: &Heard| now.saturating_sub(heard.answered_at.max(since));
        let others = self.heard.iter().filter(|(node, heard)| **node != me && heard.proposed_at.is_none());
        let is_soon = |silence: u64| silence < lease_ms && silence + renew_ms > lease_ms;
        let others_soon = others.into_iter().any(|(_, heard)| is_soon(silence(heard)));
        for (&node, heard) in &mut self.heard {
            let waits = others_soon && heard.proposed_at.is_none() && silence(heard) < lease_ms + renew_ms;
            let silent = silence(heard) >= lease_ms && !waits;
            let again = heard.proposed_at.is_none_or(|at| now.saturating_sub(at) >= renew_ms);
            if silent && again {
                heard.proposed_at = Some(now);
                let (incarnation, complained_of) = (heard.incarnation, heard.condemned);
                verdicts.push(Verdict { node, incarnation, complained_of });
            }
        }
        verdicts
    }

    /// Condemns the node in most of the complaints, unless too few voters would be left. Who has been condemned and is not complained of any more goes on.
    fn judge_complaints(&mut self, voters: &BTreeSet<NodeId>, me: NodeId, now: u64) {
        self.reprieve(voters, now);
        let lease = self.timing.lease_ms;
        if self.condemned_at.is_some_and(|at| now.saturating_sub(at) < lease) {
            return;
        }
        let good = self.good(now);
        let Some(worst) = self.most_complained_of(&good, me) else { return };
        if !are_enough_without(worst, &good, voters) {
            return;
        }
        if let Some(heard) = self.heard.get_mut(&worst) {
            heard.condemned = true;
            self.condemned_at = Some(now);
        }
    }

    /// Nodes whose word counts.
    fn good(&self, now: u64) -> BTreeSet<NodeId> {
        let good = self.heard.iter().filter(|(_, heard)| heard.is_good(now, self.timing.lease_ms));
        good.map(|(node, _)| *node).collect()
    }

    /// A condemnation ends when what led to it does, as long as the expiry is not proposed. Until then the node was not answered, so nothing is lost by going on.
    fn reprieve(&mut self, voters: &BTreeSet<NodeId>, now: u64) {
        let condemned = self.heard.iter().find(|(_, heard)| heard.condemned && heard.proposed_at.is_none());
        let Some((&node, heard)) = condemned else { return };
        let good = self.good(now);
        let among: BTreeSet<NodeId> = good.iter().copied().chain([node]).collect();
        let still = self.complaints(&among).iter().any(|(accuser, accused)| *accuser == node || *accused == node);
        // Who does not ask any more is expired in any case.
        if heard.speaks(now, self.timing.lease_ms) && (!still || !are_enough_without(node, &good, voters)) {
            self.condemned_at = None;
            if let Some(heard) = self.heard.get_mut(&node) {
                heard.condemned = false;
            }
        }
    }

    /// Who of `among` complains of whom of them. What was said of an earlier incarnation does not count, and nothing of a node whose disk lets it down.
    fn complaints(&self, among: &BTreeSet<NodeId>) -> BTreeSet<(NodeId, NodeId)> {
        let is_fair = |accuser: NodeId, accused: NodeId, incarnation: Incarnation| {
            let heard = self.heard.get(&accused);
            accused != accuser
                && among.contains(&accused)
                && heard.is_some_and(|heard| heard.incarnation == incarnation && !heard.hampered)
        };
        let accusers = self.heard.iter().filter(|(node, _)| among.contains(node));
        let said = accusers.flat_map(|(node, heard)| heard.complaints.iter().map(|of| (*node, *of)));
        said.filter(|(node, (of, incarnation))| is_fair(*node, *of, *incarnation))
            .map(|(node, (of, _))| (node, of))
            .collect()
    }

    /// Of the nodes in `good`, which complain about one another: the one in most pairs; then the one that more of them accuse; then one that does not lead;
    /// then the one with the larger id.
    fn most_complained_of(&self, good: &BTreeSet<NodeId>, me: NodeId) -> Option<NodeId> {
        let mut pairs = BTreeSet::new();
        let mut accused: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (node, other) in self.complaints(good) {
            pairs.insert((node.min(other), node.max(other)));
            *accused.entry(other).or_default() += 1;
        }
        let in_pairs = |node: &NodeId| pairs.iter().filter(|(a, b)| a == node || b == node).count();
        let guilt = |node: &NodeId| (in_pairs(node), accused.get(node).copied().unwrap_or(0), *node != me, *node);
        good.iter().filter(|node| in_pairs(node) > 0).max_by_key(|node| guilt(node)).copied()
    }
}

/// Whether the voters in `good` are a majority without one.
fn are_enough_without(node: NodeId, good: &BTreeSet<NodeId>, voters: &BTreeSet<NodeId>) -> bool {
    let left = voters.iter().filter(|voter| **voter != node && good.contains(voter)).count();
    left > voters.len() / 2
}

impl Heard {
    /// Of an incarnation that is seen for the first time.
    fn new(incarnation: Incarnation, now: u64) -> Self {
        Self {
            incarnation,
            answered_at: now,
            asked_at: None,
            complaints: Vec::new(),
            hampered: false,
            condemned: false,
            proposed_at: None,
        }
    }

    /// Whether it has asked within half a lease.
    fn speaks(&self, now: u64, lease_ms: u64) -> bool {
        self.asked_at.is_some_and(|at| now.saturating_sub(at) <= lease_ms / 2)
    }

    /// Whether its word counts: it renews and is not on its way out.
    fn is_good(&self, now: u64, lease_ms: u64) -> bool {
        self.speaks(now, lease_ms) && !self.condemned && self.proposed_at.is_none()
    }
}

/// What a renewal says.
#[derive(Debug, Clone)]
pub struct Asking {
    pub incarnation: Incarnation,
    /// Incarnations that owe the sender something and made no progress for the lease time.
    pub complaints: Vec<(NodeId, Incarnation)>,
    /// The disk of the sender does not keep what it should, and what waits for that is answered late.
    pub hampered: bool,
}
