//! When the leader last had proof that a majority follows it.

use std::collections::{BTreeMap, BTreeSet};

/// For each member, when the newest message was *sent* of which it has acknowledged that it follows this leader.
#[derive(Debug, Default)]
pub struct QuorumAcks {
    term: u64,
    sent_at: BTreeMap<u128, u64>,
}

impl QuorumAcks {
    /// `node` has answered, as a follower of the leader of `term`, a message that was sent at `sent_at`.
    pub fn acknowledged(&mut self, term: u64, node: u128, sent_at: u64) {
        if term > self.term {
            self.term = term;
            self.sent_at.clear();
        }
        if term == self.term {
            let at = self.sent_at.entry(node).or_insert(sent_at);
            *at = (*at).max(sent_at);
        }
    }

    /// The newest time at which, as is proven, the leader `me` of `term` had a majority of each of `configs`. Itself it has `now`.
    #[must_use]
    pub fn quorum_at(&self, term: u64, me: u128, configs: &[BTreeSet<u128>], now: u64) -> Option<u64> {
        if configs.is_empty() {
            return None;
        }
        configs.iter().map(|voters| self.majority_at(term, me, voters, now)).min().flatten()
    }

    fn majority_at(&self, term: u64, me: u128, voters: &BTreeSet<u128>, now: u64) -> Option<u64> {
        let acknowledged = |voter: &u128| match (*voter == me, term == self.term) {
            (true, _) => Some(now),
            (false, true) => self.sent_at.get(voter).copied(),
            (false, false) => None,
        };
        let mut times: Vec<u64> = voters.iter().filter_map(acknowledged).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(voters.len() / 2).copied()
    }
}
