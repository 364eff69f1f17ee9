//! The time by which nodes agree on which of two retained values is the newer one.
//!
//! A *stamp* is a hybrid time: milliseconds of a node's clock in the upper 48 bits, a counter in the lower 16. A node that hears of a stamp never gives a
//! smaller one afterwards, so a value that was set by somebody who could know of another one is newer than that, however far apart the clocks of the
//! nodes are. Of two that nobody could order the greater node decides: a [`Version`] is a stamp and its node.
//!
//! A stamp says nothing about when something expires: lifetimes travel as what is left of them.
//!
//! The clock is shared by all threads of a node and has no lock. Test to read first: `tests::what_was_heard_of_is_older`.

use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::limits;
use crate::mqtt::Message;

/// The milliseconds of a stamp stand above so many bits of counter.
const COUNTER_BITS: u32 = 16;

/// Which of the values of a topic it is. The greatest is the newest; no two values of a topic have the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    pub stamp: u64,
    /// The node that set it: [`MessageId::node`](crate::mqtt::MessageId::node).
    pub node: u64,
}

impl Version {
    pub fn of(message: &Message) -> Version {
        Version { stamp: message.stamp, node: message.id.node }
    }

    /// When it was set, in milliseconds of the clock of whoever set it.
    pub fn at(self) -> u64 {
        self.stamp >> COUNTER_BITS
    }
}

/// A stamp of another node is further ahead of the clock of this one than clocks may be apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a stamp is {ahead_ms} ms ahead of this node's clock, more than clocks may be apart")]
pub struct TooFarAhead {
    pub ahead_ms: u64,
}

/// The hybrid clock of a node.
#[derive(Debug, Default)]
pub struct HybridClock {
    /// The greatest stamp that was given or heard of.
    last: AtomicU64,
    refused: AtomicU64,
}

impl HybridClock {
    /// A stamp greater than all that were given or heard of. `now`: milliseconds of the node's clock.
    pub fn next(&self, now: u64) -> u64 {
        let after = |last: u64| Some((now << COUNTER_BITS).max(last.saturating_add(1)));
        match self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, after) {
            Ok(last) | Err(last) => (now << COUNTER_BITS).max(last.saturating_add(1)),
        }
    }

    /// What other nodes are told: not smaller than any stamp that was given or heard of.
    pub fn reading(&self, now: u64) -> u64 {
        (now << COUNTER_BITS).max(self.last.load(Ordering::Acquire))
    }

    /// Hears of a stamp or a reading of another node.
    ///
    /// # Errors
    /// It is more than [`limits::CLOCK_AHEAD_MAX_MS`] ahead of `now`. That is counted, and the clock stays as it is: one node whose clock is
    /// wrong must not carry the others with it.
    pub fn merge(&self, stamp: u64, now: u64) -> Result<(), TooFarAhead> {
        let ahead_ms = (stamp >> COUNTER_BITS).saturating_sub(now);
        if ahead_ms > limits::CLOCK_AHEAD_MAX_MS {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooFarAhead { ahead_ms });
        }
        self.last.fetch_max(stamp, Ordering::AcqRel);
        Ok(())
    }

    /// Whether [`HybridClock::merge`] would refuse it.
    pub fn is_too_far(&self, stamp: u64, now: u64) -> bool {
        (stamp >> COUNTER_BITS).saturating_sub(now) > limits::CLOCK_AHEAD_MAX_MS
    }

    /// Goes on behind a stamp of this node's own disk, however far ahead it is: what is set from now on is newer than what is there.
    pub fn resume(&self, stamp: u64) {
        self.last.fetch_max(stamp, Ordering::AcqRel);
    }

    /// Stamps that were refused because they were too far ahead.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_heard_of_is_older() {
        let (slow, fast) = (HybridClock::default(), HybridClock::default());
        let offline = fast.next(12_000);
        assert_eq!(slow.merge(offline, 10_000), Ok(()));
        let online = slow.next(10_000);
        assert!(online > offline, "although the clock of its node is two seconds behind");
        assert_eq!(Version { stamp: online, node: 1 }.at(), 12_000);
        assert!(slow.reading(10_000) >= online);
    }

    #[test]
    fn a_clock_that_is_wrong_is_not_followed() {
        let clock = HybridClock::default();
        let limit = limits::CLOCK_AHEAD_MAX_MS;
        assert_eq!(clock.merge((limit + 1) << COUNTER_BITS, 0), Err(TooFarAhead { ahead_ms: limit + 1 }));
        assert_eq!((clock.reading(0), clock.refused()), (0, 1));
        assert_eq!(clock.merge(limit << COUNTER_BITS, 0), Ok(()));
        assert!(clock.merge(u64::MAX, 0).is_err());
        assert_eq!(clock.next(5) >> COUNTER_BITS, limit);
    }

    #[test]
    fn a_node_goes_on_behind_what_is_on_its_disk() {
        let clock = HybridClock::default();
        clock.resume(1_000_000 << COUNTER_BITS);
        assert!(clock.next(5) > 1_000_000 << COUNTER_BITS);
    }

    proptest! {
        #[test]
        fn stamps_never_fall(steps in prop::collection::vec((0_u64..100, prop::option::of(0_u64..200 << COUNTER_BITS)), 1..50)) {
            let clock = HybridClock::default();
            let mut last = 0;
            for (now, heard) in steps {
                if let Some(heard) = heard {
                    prop_assert_eq!(clock.merge(heard, now), Ok(()));
                    last = last.max(heard);
                }
                let next = clock.next(now);
                prop_assert!(next > last);
                last = next;
            }
        }
    }
}
