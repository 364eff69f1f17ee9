//! When a node changes who has the copies of its sessions: all other live nodes are to be its heirs, and complete, but for those that cannot, or are about to leave
//! ([`Wanted`]).
//!
//! A node that was dead, or has begun a new life, comes into the set when it has lived for [`BACK_MS`], so that one that comes and goes causes no fill each time; but if there is no
//! other, at once. Who is in the set stays in it while it lives and has missed nothing.
//!
//! Owner: the node. Test to read first: `tests::all_other_live_nodes_become_the_heirs`.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_raft::{HeirsView, Incarnation, NodeId};

use super::standing::Wanted;

/// How long a node that came back has to live before it is filled, in milliseconds.
const BACK_MS: u64 = 30_000;

/// For so long nothing is decided while a node has not said whether it can be an heir, in milliseconds.
const UNHEARD_MS: u64 = 3_000;

/// Until what was refused is proposed again, in milliseconds.
const AGAIN_MS: u64 = 1_000;

/// What is to be proposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proposal {
    /// These are to be filled, in the order of ids.
    Fill(Vec<NodeId>),
    /// The fill of that number has ended.
    Filled(u64),
}

#[derive(Debug, Clone, Copy)]
struct Known {
    incarnation: Incarnation,
    /// From when on it may be filled.
    from: u64,
    /// Since when it is known.
    since: u64,
    wanted: Wanted,
}

/// Another node: the incarnation of it that is live, and whether it is wanted as an heir.
pub type Other = (NodeId, Option<Incarnation>, Wanted);

/// See the module.
#[derive(Debug)]
pub struct Proposing {
    /// The other nodes as they were last seen; those that were dead then are not among them.
    known: BTreeMap<NodeId, Known>,
    /// Nodes that were dead once.
    were_dead: BTreeSet<NodeId>,
    /// The last fill that each shard has said to be complete.
    filled: Vec<u64>,
    not_before: u64,
}

impl Proposing {
    pub fn new(shards: usize) -> Proposing {
        Proposing { known: BTreeMap::new(), were_dead: BTreeSet::new(), filled: vec![0; shards], not_before: 0 }
    }

    /// As far as the sessions of a shard go, a fill is complete.
    pub fn filled(&mut self, shard: usize, fill: u64) {
        if let Some(filled) = self.filled.get_mut(shard) {
            *filled = fill;
        }
    }

    /// What was proposed was not taken.
    pub fn refused(&mut self, now: u64) {
        self.not_before = now + AGAIN_MS;
    }

    pub fn decide(&mut self, now: u64, heirs: &HeirsView, others: impl IntoIterator<Item = Other>) -> Option<Proposal> {
        self.look_at(now, others);
        let unheard = |known: &Known| known.wanted == Wanted::Unheard && now < known.since + UNHEARD_MS;
        if now < self.not_before || self.known.values().any(unheard) {
            return None;
        }
        let wanted = self.wanted(now, heirs);
        let has = |nodes: &mut dyn Iterator<Item = NodeId>| nodes.eq(wanted.iter().copied());
        match &heirs.next {
            Some((_, next)) if !has(&mut next.iter().copied()) => Some(Proposal::Fill(wanted)).filter(is_some_node),
            Some((fill, _)) => self.filled.iter().all(|filled| filled == fill).then_some(Proposal::Filled(*fill)),
            None => {
                let is_good = heirs.whole && heirs.base.iter().all(|(_, stale)| !stale);
                let is_as_wanted = is_good && has(&mut heirs.base.iter().map(|(node, _)| *node));
                (!is_as_wanted).then_some(Proposal::Fill(wanted)).filter(is_some_node)
            }
        }
    }

    fn look_at(&mut self, now: u64, others: impl IntoIterator<Item = Other>) {
        let mut before = std::mem::take(&mut self.known);
        for (node, incarnation, wanted) in others {
            let Some(incarnation) = incarnation else {
                self.were_dead.insert(node);
                continue;
            };
            let known = match before.remove(&node) {
                Some(known) if known.incarnation == incarnation => Known { wanted, ..known },
                None if !self.were_dead.contains(&node) => Known { incarnation, from: 0, since: now, wanted },
                _ => Known { incarnation, from: now + BACK_MS, since: now, wanted },
            };
            self.known.insert(node, known);
        }
    }

    fn wanted(&self, now: u64, heirs: &HeirsView) -> Vec<NodeId> {
        let stays = |node: &NodeId| {
            let in_next = heirs.next.as_ref().is_some_and(|(_, next)| next.contains(node));
            in_next || heirs.base.contains(&(*node, false))
        };
        let known = |takes: &dyn Fn(&NodeId, &Known) -> bool| -> Vec<NodeId> {
            self.known.iter().filter(|(node, known)| takes(node, known)).map(|(node, _)| *node).collect()
        };
        let settled = known(&|node, known| known.wanted == Wanted::Always && (known.from <= now || stays(node)));
        let new = || known(&|_, known| known.wanted == Wanted::Always);
        let in_need = || known(&|_, known| known.wanted == Wanted::IfNoOther);
        let first_of_some = [settled].into_iter().chain(std::iter::once_with(new)).chain(std::iter::once_with(in_need));
        first_of_some.into_iter().find(|nodes| !nodes.is_empty()).unwrap_or_default()
    }
}

/// Without another node there is nobody to be filled: the heirs stay who they are.
fn is_some_node(proposal: &Proposal) -> bool {
    !matches!(proposal, Proposal::Fill(next) if next.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    fn base(nodes: &[(NodeId, bool)], whole: bool) -> HeirsView {
        HeirsView { base: nodes.to_vec(), next: None, whole }
    }

    fn filling(nodes: &[(NodeId, bool)], fill: u64, next: &[NodeId]) -> HeirsView {
        HeirsView { base: nodes.to_vec(), next: Some((fill, next.to_vec())), whole: true }
    }

    fn others<const N: usize>(others: [(NodeId, Option<Incarnation>); N]) -> [Other; N] {
        others.map(|(node, incarnation)| (node, incarnation, Wanted::Always))
    }

    fn live(nodes: &[NodeId]) -> Vec<Other> {
        nodes.iter().map(|node| (*node, Some(1), Wanted::Always)).collect()
    }

    fn fill(nodes: &[NodeId]) -> Option<Proposal> {
        Some(Proposal::Fill(nodes.to_vec()))
    }

    #[test]
    fn all_other_live_nodes_become_the_heirs() {
        let mut proposing = Proposing::new(2);
        assert_eq!(proposing.decide(0, &base(&[], false), []), None, "there is nobody");
        assert_eq!(proposing.decide(0, &base(&[], false), live(&[B])), fill(&[B]));
        assert_eq!(proposing.decide(0, &filling(&[], 7, &[B]), live(&[B])), None, "it is being filled");
        proposing.filled(0, 7);
        assert_eq!(proposing.decide(0, &filling(&[], 7, &[B]), live(&[B])), None, "one shard has not filled it");
        proposing.filled(1, 7);
        assert_eq!(proposing.decide(0, &filling(&[], 7, &[B]), live(&[B])), Some(Proposal::Filled(7)));
        assert_eq!(proposing.decide(0, &base(&[(B, false)], true), live(&[B])), None);
        assert_eq!(proposing.decide(0, &base(&[(B, false)], false), live(&[B])), fill(&[B]), "it is not whole");
        assert_eq!(proposing.decide(0, &base(&[(B, false)], true), live(&[B, C])), fill(&[B, C]), "a new node");
    }

    /// H39.
    #[test]
    fn a_node_that_came_back_waits_unless_there_is_no_other() {
        let mut proposing = Proposing::new(1);
        let both = [(B, false), (C, false)];
        assert_eq!(proposing.decide(0, &base(&both, true), live(&[B, C])), None);
        let stale = [(B, false), (C, true)];
        assert_eq!(proposing.decide(1, &base(&stale, true), others([(B, Some(1)), (C, None)])), fill(&[B]));
        let filled = base(&[(B, false)], true);
        assert_eq!(proposing.decide(2, &filled, others([(B, Some(1)), (C, Some(2))])), None);
        assert_eq!(proposing.decide(BACK_MS + 1, &filled, others([(B, Some(1)), (C, Some(3))])), None, "it came anew");
        assert_eq!(proposing.decide(2 * BACK_MS, &filled, others([(B, Some(1)), (C, Some(3))])), None);
        assert_eq!(proposing.decide(2 * BACK_MS + 1, &filled, others([(B, Some(1)), (C, Some(3))])), fill(&[B, C]));
        assert_eq!(proposing.decide(2 * BACK_MS + 2, &base(&both, true), others([(B, None), (C, None)])), None);
        let stale = [(B, true), (C, true)];
        assert_eq!(
            proposing.decide(2 * BACK_MS + 3, &base(&stale, true), others([(B, Some(4)), (C, None)])),
            fill(&[B])
        );
    }

    #[test]
    fn a_fill_whose_set_is_another_is_begun_anew_and_what_was_refused_waits() {
        let mut proposing = Proposing::new(1);
        assert_eq!(proposing.decide(0, &filling(&[], 3, &[B]), live(&[B, C])), fill(&[B, C]));
        proposing.refused(0);
        assert_eq!(proposing.decide(AGAIN_MS - 1, &filling(&[], 3, &[B]), live(&[B, C])), None);
        assert_eq!(proposing.decide(AGAIN_MS, &filling(&[], 3, &[B]), live(&[B, C])), fill(&[B, C]));
        let (stale, fresh) = ([(B, true)], [(B, false)]);
        assert_eq!(proposing.decide(AGAIN_MS, &base(&stale, true), live(&[B])), fill(&[B]));
        assert_eq!(proposing.decide(AGAIN_MS, &base(&fresh, true), live(&[B])), None);
    }

    #[test]
    fn nothing_is_decided_until_all_are_heard_but_not_for_long() {
        use Wanted::{Always, Unheard};
        let mut proposing = Proposing::new(1);
        let heirs = base(&[(B, false), (C, false)], false);
        let others = |c: Wanted| [(B, Some(1), Always), (C, Some(1), c)];
        assert_eq!(proposing.decide(1_000, &heirs, others(Unheard)), None);
        assert_eq!(proposing.decide(999 + UNHEARD_MS, &heirs, others(Unheard)), None);
        assert_eq!(proposing.decide(1_000 + UNHEARD_MS, &heirs, others(Unheard)), fill(&[B]));
        assert_eq!(proposing.decide(1_001, &heirs, others(Always)), fill(&[B, C]));
    }

    #[test]
    fn who_leaves_or_keeps_nothing_is_left_out_and_who_is_short_if_there_is_another() {
        use Wanted::{Always, IfNoOther, Never};
        let mut proposing = Proposing::new(1);
        let both = base(&[(B, false), (C, false)], true);
        let mut decide =
            |heirs: &HeirsView, b: Wanted, c: Wanted| proposing.decide(0, heirs, [(B, Some(1), b), (C, Some(1), c)]);
        assert_eq!(decide(&both, Always, Always), None);
        assert_eq!(decide(&both, Always, Never), fill(&[B]), "C leaves");
        assert_eq!(decide(&both, IfNoOther, Always), fill(&[C]), "B is short");
        assert_eq!(decide(&both, IfNoOther, IfNoOther), None, "and C as well");
        assert_eq!(decide(&both, IfNoOther, Never), fill(&[B]));
        assert_eq!(decide(&both, Never, Never), None, "whoever there was, there is no other");
        assert_eq!(decide(&base(&[], false), Never, Never), None);
        assert_eq!(decide(&filling(&[], 5, &[B, C]), Always, Never), fill(&[B]));
    }
}
