//! What each node says of itself as an heir: whether it can have copies, whether it is about to go, and whether it is short of room. [pure]
//!
//! Every node says it to all others again and again, so that what is lost does no harm, and nothing of it is in the control state: it says whom a home *wants*, and a home
//! that wants another set of heirs fills that first. Until it is filled, who was one stays one, with all that belongs to it.
//!
//! | a node | is wanted as an heir |
//! | --- | --- |
//! | has not been heard yet | not for now, and for a moment nothing is decided |
//! | keeps nothing, or leaves | never |
//! | is short of room, or was a while ago | if there is no other |
//! | else | always |
//!
//! Owner: the node. Test to read first: `tests::who_is_short_is_wanted_again_after_a_while_or_if_there_is_no_other`.

use std::collections::BTreeMap;

use holdfast_raft::NodeId;

/// For so long after it was short of room a node is wanted only if there is no other, in milliseconds: what it had of copies is elsewhere then, and it would perhaps be short again
/// when it has them back.
const SHORT_MS: u64 = 5 * 60_000;

/// What a node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// On how many nodes its own sessions are to be.
    pub session_copies: u8,
    /// It has a disk to keep copies on.
    pub keeps: bool,
    /// It is about to leave the cluster for good.
    pub leaves: bool,
    /// There is too little room on its disk to write down more messages.
    pub short: bool,
}

const KEEPS: u8 = 1;
const LEAVES: u8 = 2;
const SHORT: u8 = 4;

impl Standing {
    pub fn encode(self) -> [u8; 2] {
        let bit = |is_so: bool, bit: u8| if is_so { bit } else { 0 };
        [self.session_copies, bit(self.keeps, KEEPS) | bit(self.leaves, LEAVES) | bit(self.short, SHORT)]
    }

    /// `None` for bytes that say nothing. What a later version adds is not looked at.
    pub fn decode(bytes: &[u8]) -> Option<Standing> {
        let [session_copies, bits, ..] = *bytes else { return None };
        let is_set = |bit: u8| bits & bit != 0;
        Some(Standing { session_copies, keeps: is_set(KEEPS), leaves: is_set(LEAVES), short: is_set(SHORT) })
    }
}

/// Whether a node is wanted as an heir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// It has not said anything yet.
    Unheard,
    Never,
    IfNoOther,
    Always,
}

#[derive(Debug, Clone, Copy)]
struct Said {
    standing: Standing,
    /// Until then it counts as having been short.
    short_until: u64,
}

/// What all others have said last.
#[derive(Debug, Default)]
pub struct Standings {
    said: BTreeMap<NodeId, Said>,
}

impl Standings {
    /// A node has said it. Returns what it said before.
    pub fn note(&mut self, now: u64, node: NodeId, standing: Standing) -> Option<Standing> {
        let before = self.said.get(&node).copied();
        let was_until = before.map_or(0, |said| said.short_until);
        let short_until = if standing.short { now + SHORT_MS } else { was_until };
        self.said.insert(node, Said { standing, short_until });
        before.map(|said| said.standing)
    }

    pub fn forget(&mut self, node: NodeId) {
        self.said.remove(&node);
    }

    pub fn of(&self, node: NodeId) -> Option<Standing> {
        self.said.get(&node).map(|said| said.standing)
    }

    pub fn wanted(&self, now: u64, node: NodeId) -> Wanted {
        match self.said.get(&node) {
            None => Wanted::Unheard,
            Some(Said { standing, .. }) if !standing.keeps || standing.leaves => Wanted::Never,
            Some(Said { short_until, .. }) if now < *short_until => Wanted::IfNoOther,
            Some(_) => Wanted::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const GOOD: Standing = Standing { session_copies: 2, keeps: true, leaves: false, short: false };

    #[test]
    fn what_is_said_comes_back_and_garbage_says_nothing() {
        for bits in 0..8 {
            let standing = Standing::decode(&[2, bits]).unwrap();
            assert_eq!(standing.encode(), [2, bits]);
        }
        assert_eq!(Standing::decode(&[1, 255, 9]).map(Standing::encode), Some([1, 7]));
        assert_eq!((Standing::decode(&[]), Standing::decode(&[2])), (None, None));
    }

    #[test]
    fn who_is_short_is_wanted_again_after_a_while_or_if_there_is_no_other() {
        let mut standings = Standings::default();
        assert_eq!(standings.wanted(0, A), Wanted::Unheard);
        assert_eq!(standings.note(0, A, GOOD), None);
        assert_eq!(standings.wanted(0, A), Wanted::Always);
        assert_eq!(standings.note(1_000, A, Standing { short: true, ..GOOD }), Some(GOOD));
        standings.note(2_000, A, GOOD);
        assert_eq!(standings.wanted(1_000 + SHORT_MS - 1, A), Wanted::IfNoOther);
        assert_eq!(standings.wanted(1_000 + SHORT_MS, A), Wanted::Always);
        standings.forget(A);
        assert_eq!(standings.wanted(1_000 + SHORT_MS, A), Wanted::Unheard);
    }

    #[test]
    fn who_keeps_nothing_or_leaves_is_no_heir() {
        let mut standings = Standings::default();
        standings.note(0, A, Standing { keeps: false, ..GOOD });
        assert_eq!(standings.wanted(0, A), Wanted::Never);
        standings.note(0, A, Standing { leaves: true, short: true, ..GOOD });
        assert_eq!(standings.wanted(0, A), Wanted::Never);
        standings.note(0, A, GOOD);
        assert_eq!(standings.of(A), Some(GOOD));
        // It stays, and was short.
        assert_eq!(standings.wanted(0, A), Wanted::IfNoOther);
    }
}
