//! Which sessions have had which Wills, where that is not the same for all sessions of a node.
//!
//! A Will is published once more by another node when the one that was publishing it dies. Who is alive knows by its name whether it was here before. The sessions that were on the
//! dead node may have had it there and not its heirs, or the other way round: so an heir notes, for each session of which it has a copy, the Wills that have come into that; and for
//! each that it has inherited, those that it has had since.
//!
//! A session that was given a Will of QoS 1 while its client was connected, and had it acknowledged before there was a copy of that, may get it again, as every message of QoS 1.
//!
//! Owner: the shard. Invariant: no more than [`KEPT_MAX`] are known, nor of more than about [`BYTES_MAX`]: beyond that the oldest are forgotten, and may come again.
//!
//! Test to read first: `tests::each_session_gets_what_it_has_not_had`.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use holdfast_storage::OwnerId;

use crate::mqtt::WillName;

/// More than are published and not done when a node dies, unless many sessions get the Wills of many.
const KEPT_MAX: usize = 65_536;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// About what one takes beside its client id.
const NAME_BYTES: usize = 64;

fn bytes_of(will: &WillName) -> usize {
    NAME_BYTES + will.client.len()
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WillsHad {
    had: HashSet<(OwnerId, WillName)>,
    order: VecDeque<(OwnerId, WillName)>,
    /// Each with the bytes of its client id, although these may be shared.
    bytes: usize,
}

impl WillsHad {
    /// The session has the Will. False if that was known.
    pub fn note(&mut self, owner: OwnerId, will: WillName) -> bool {
        // Many sessions in a row have the same Will.
        let client = self.order.back().map(|(_, last)| &last.client).filter(|last| **last == will.client);
        let will = WillName { client: client.map_or_else(|| will.client.clone(), Arc::clone), ..will };
        if !self.had.insert((owner, will.clone())) {
            return false;
        }
        self.bytes += bytes_of(&will);
        self.order.push_back((owner, will));
        while (self.order.len() > KEPT_MAX || self.bytes > BYTES_MAX)
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= bytes_of(&oldest.1);
            self.had.remove(&oldest);
        }
        true
    }

    /// Whether a Will that has come is for a session, which has it then. `known`: it has come to this node before. `inherited`: the session was elsewhere, perhaps when that was.
    pub fn wants(&mut self, owner: OwnerId, will: WillName, known: bool, inherited: bool) -> bool {
        if inherited {
            return self.note(owner, will);
        }
        !known && !self.had.contains(&(owner, will))
    }

    /// All that are known of each session, from the oldest on.
    pub fn by_owner(&self) -> HashMap<OwnerId, Vec<WillName>> {
        let mut of_owners = HashMap::<OwnerId, Vec<WillName>>::new();
        for (owner, will) in &self.order {
            of_owners.entry(*owner).or_default().push(will.clone());
        }
        of_owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OwnerId = OwnerId(20);
    const B: OwnerId = OwnerId(21);

    fn will(client: &str, epoch: u64) -> WillName {
        WillName { client: client.into(), epoch }
    }

    #[test]
    fn each_session_gets_what_it_has_not_had() {
        let mut wills = WillsHad::default();
        assert!(wills.note(A, will("c", 1)) && !wills.note(A, will("c", 1)));
        for known in [false, true] {
            assert!(!wills.wants(A, will("c", 1), known, true), "it had it where it was");
        }
        assert!(wills.wants(A, will("c", 2), true, true) && !wills.wants(A, will("c", 2), true, true));
        assert!(wills.wants(B, will("c", 1), true, true), "another one had it there, and this one did not");
        assert!(!wills.wants(B, will("c", 1), false, true));
        let own = OwnerId(22);
        assert!(wills.wants(own, will("c", 1), false, false) && !wills.wants(own, will("c", 1), true, false));
        assert!(!wills.wants(A, will("c", 1), false, false), "it is found, and not inherited");
        assert_eq!(wills.by_owner()[&A], [will("c", 1), will("c", 2)]);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut wills = WillsHad::default();
        (0..=KEPT_MAX as u64).for_each(|epoch| assert!(wills.note(A, will("c", epoch))));
        assert_eq!((wills.had.len(), wills.order.len()), (KEPT_MAX, KEPT_MAX));
        assert!(!wills.note(A, will("c", 1)) && wills.note(A, will("c", 0)));
        let long = "c".repeat(60_000);
        (0..1_000).for_each(|epoch| assert!(wills.note(B, will(&long, epoch))));
        assert!(wills.bytes <= BYTES_MAX && wills.order.len() < 1_000);
        assert_eq!(wills.bytes, wills.order.iter().map(|(_, will)| bytes_of(will)).sum::<usize>());
    }
}
