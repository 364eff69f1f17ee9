//! What keeps a node from leaving: sessions whose only other copy would go with it. [pure]
//!
//! Its own sessions pass to their heirs when its incarnation ends, so all of them must have complete ones. Homes whose heir it is must have others: they learn that
//! it is not wanted any more ([`standing`](super::standing)), and fill whoever takes its place.
//!
//! Owner: the node that leaves. Test to read first: `tests::a_node_is_free_when_its_sessions_have_heirs_and_it_is_nobodys_heir`.

use holdfast_raft::{HeirsView, NodeId};

/// What is still to be done before a node may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// Not all of its own sessions have a complete copy on a node that stays.
    OwnSessions,
    /// That node has it for an heir, and could have another one.
    HeirOf(NodeId),
}

/// Who leaves.
#[derive(Debug, Clone, Copy)]
pub struct Leaver {
    pub node: NodeId,
    /// Its own sessions have copies.
    pub has_copies: bool,
}

/// What keeps a node. `homes`: all live nodes and their heirs; `takers`: the other nodes that can be heirs and stay.
pub fn ties<'h>(
    leaver: Leaver,
    homes: impl IntoIterator<Item = (NodeId, &'h HeirsView)>,
    takers: &[NodeId],
) -> Vec<Tie> {
    let mut ties = Vec::new();
    for (home, heirs) in homes {
        if home == leaver.node {
            if leaver.has_copies && !is_complete(heirs, takers) {
                ties.push(Tie::OwnSessions);
            }
        } else if names(heirs, leaver.node) && takers.iter().any(|taker| *taker != home) {
            ties.push(Tie::HeirOf(home));
        }
    }
    ties.sort_unstable();
    ties
}

fn is_complete(heirs: &HeirsView, takers: &[NodeId]) -> bool {
    let stays = |(heir, stale): &(NodeId, bool)| !stale && takers.contains(heir);
    heirs.whole && !heirs.base.is_empty() && heirs.base.iter().all(stays)
}

fn names(heirs: &HeirsView, node: NodeId) -> bool {
    let in_next = heirs.next.as_ref().is_some_and(|(_, next)| next.contains(&node));
    in_next || heirs.base.contains(&(node, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);
    const LEAVER: Leaver = Leaver { node: C, has_copies: true };

    fn base(nodes: &[(NodeId, bool)], whole: bool) -> HeirsView {
        HeirsView { base: nodes.to_vec(), next: None, whole }
    }

    #[test]
    fn a_node_is_free_when_its_sessions_have_heirs_and_it_is_nobodys_heir() {
        let good = base(&[(A, false), (B, false)], true);
        let of_a = base(&[(B, false), (C, false)], true);
        let of_b = base(&[(A, false)], true);
        let now = [(A, &of_a), (B, &of_b), (C, &good)];
        assert_eq!(ties(LEAVER, now, &[A, B]), [Tie::HeirOf(A)]);
        let filling = HeirsView { base: vec![(B, false)], next: Some((7, vec![B, C])), whole: true };
        assert_eq!(ties(LEAVER, [(A, &filling), (C, &good)], &[A, B]), [Tie::HeirOf(A)]);
        let moved = base(&[(B, false), (C, true)], true);
        assert_eq!(ties(LEAVER, [(A, &moved), (B, &of_b), (C, &good)], &[A, B]), []);
    }

    #[test]
    fn its_own_sessions_hold_it_until_nodes_that_stay_have_all_of_them() {
        for heirs in [base(&[], true), base(&[(A, false)], false), base(&[(A, true)], true), base(&[(B, false)], true)]
        {
            assert_eq!(ties(LEAVER, [(C, &heirs)], &[A]), [Tie::OwnSessions], "{heirs:?}");
            assert_eq!(ties(Leaver { has_copies: false, ..LEAVER }, [(C, &heirs)], &[A]), []);
        }
    }

    #[test]
    fn of_two_nodes_the_one_that_stays_can_have_no_other_heir() {
        let (of_a, own) = (base(&[(C, false)], true), base(&[(A, false)], true));
        assert_eq!(ties(LEAVER, [(A, &of_a), (C, &own)], &[A]), []);
    }
}
