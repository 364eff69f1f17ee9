//! Wrong passwords cost time: each failure of an address and user makes its next attempts wait, twice as long every time. [pure]
//!
//! [`super::Access`] owns the table under a lock. Invariants: at most [`PAIRS_MAX`] pairs are known, and one that is not known pays the longest wait
//! when the table is full and it fails; attempts of one pair come one after the other, never in a burst when the wait is over; a good password
//! ends it. Times are milliseconds of a clock that does not go back.
//!
//! The test to read first: `attempts_wait_longer_with_each_failure`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use hashbrown::HashMap;

/// Most pairs that are known.
const PAIRS_MAX: usize = 65_536;

/// A pair is forgotten when it has been quiet for so many times the longest wait.
const QUIET_WAITS: u64 = 6;

/// An address and the hash of a user name.
pub(super) type Pair = (IpAddr, u64);

#[derive(Debug)]
struct Failed {
    failures: u32,
    /// When the next attempt may be made.
    free_at: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FailDelay {
    pairs: HashMap<Pair, Failed>,
    first_ms: u64,
    longest_ms: u64,
    cleared_at: u64,
}

impl FailDelay {
    pub fn new(delays_ms: RangeInclusive<u64>) -> FailDelay {
        FailDelay { pairs: HashMap::new(), first_ms: *delays_ms.start(), longest_ms: *delays_ms.end(), cleared_at: 0 }
    }

    /// The wait before an attempt may be judged. `None`: too many of this pair wait already.
    pub fn arrive(&mut self, pair: Pair, now: u64) -> Option<u64> {
        let Some(failed) = self.pairs.get_mut(&pair) else { return Some(0) };
        let wait = failed.free_at.saturating_sub(now);
        if wait > self.longest_ms {
            return None;
        }
        let delay = delay(failed.failures, self.first_ms, self.longest_ms);
        failed.free_at = failed.free_at.max(now) + delay;
        Some(wait)
    }

    /// An attempt has failed: how long the answer is held back.
    pub fn failed(&mut self, pair: Pair, now: u64) -> u64 {
        if self.longest_ms == 0 {
            return 0;
        }
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&pair) {
            self.clear(now);
            if self.pairs.len() >= PAIRS_MAX {
                return self.longest_ms;
            }
        }
        let failed = self.pairs.entry(pair).or_insert(Failed { failures: 0, free_at: now });
        failed.failures = failed.failures.saturating_add(1);
        let delay = delay(failed.failures, self.first_ms, self.longest_ms);
        failed.free_at = failed.free_at.max(now + delay);
        delay
    }

    pub fn succeeded(&mut self, pair: Pair) {
        self.pairs.remove(&pair);
    }

    /// Forgets who has been quiet. At most once a second: a look at all pairs takes a while.
    fn clear(&mut self, now: u64) {
        if now < self.cleared_at + 1_000 {
            return;
        }
        self.cleared_at = now;
        let quiet = QUIET_WAITS * self.longest_ms;
        self.pairs.retain(|_, failed| failed.free_at + quiet > now);
    }
}

fn delay(failures: u32, first_ms: u64, longest_ms: u64) -> u64 {
    let doublings = failures.saturating_sub(1).min(20);
    first_ms.saturating_mul(1 << doublings).min(longest_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Pair = (IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
    const B: Pair = (IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2);

    #[test]
    fn attempts_wait_longer_with_each_failure() {
        let mut table = FailDelay::new(200..=1_000);
        assert_eq!(table.arrive(A, 0), Some(0));
        assert_eq!([0; 5].map(|now| table.failed(A, now)), [200, 400, 800, 1_000, 1_000]);
        assert_eq!(table.arrive(B, 0), Some(0), "another user of the same address does not wait");
        table.succeeded(A);
        assert_eq!(table.arrive(A, 0), Some(0));
    }

    #[test]
    fn attempts_at_one_time_come_one_after_the_other_and_not_without_bound() {
        let mut table = FailDelay::new(200..=1_000);
        table.failed(A, 0);
        let waits: Vec<_> = (0..7).map(|_| table.arrive(A, 0)).collect();
        let expected = [Some(200), Some(400), Some(600), Some(800), Some(1_000), None, None];
        assert_eq!(waits, expected);
        assert_eq!(table.arrive(A, 1_200), Some(0), "who was turned away did not push the others back");
    }

    #[test]
    fn the_table_is_bounded_and_whoever_has_no_place_in_it_waits_longest() {
        let mut table = FailDelay::new(200..=1_000);
        for user in 0..PAIRS_MAX as u64 {
            assert_eq!(table.failed((A.0, user), 10_000), 200);
        }
        assert_eq!(table.failed((A.0, u64::MAX), 10_000), 1_000);
        assert_eq!(table.pairs.len(), PAIRS_MAX);
        // When they have been quiet there is room again.
        assert_eq!(table.failed((A.0, u64::MAX), 30_000), 200);
        assert_eq!(table.pairs.len(), 1);
    }
}
