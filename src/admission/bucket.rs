//! A token bucket as one number, so that it fits into an atomic.
//!
//! Pure. The number is the time at which the bucket will be full again, in nanoseconds of the caller's clock: each token that is taken moves it by
//! one step, and there is one to be had as long as it is less than a whole bucket ahead (the generic cell rate algorithm). 0 is a full bucket.

use crate::config::Rate;

const NANOS_IN_MILLI: u64 = 1_000_000;

/// How fast it fills, and how much it holds: what comes in one period of its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    step_ns: u64,
    period_ns: u64,
}

impl Bucket {
    /// A bucket for a rate.
    pub fn new(rate: Rate) -> Bucket {
        let period_ns = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX / 4);
        // No slower than was asked for: a rate beyond one in a nanosecond is no limit.
        Bucket { step_ns: (period_ns / rate.amount.max(1)).max(1), period_ns }
    }

    /// Takes one token at this time, in milliseconds: the new state; `None` if there is none.
    pub fn take(&self, full_at: u64, now_ms: u64) -> Option<u64> {
        let now = now_ms.saturating_mul(NANOS_IN_MILLI);
        let full_at = full_at.max(now).saturating_add(self.step_ns);
        (full_at - now <= self.period_ns).then_some(full_at)
    }

    /// Whether all is there again, so that nothing need be remembered.
    pub fn is_full(full_at: u64, now_ms: u64) -> bool {
        full_at <= now_ms.saturating_mul(NANOS_IN_MILLI)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn of(amount: u64, per_ms: u64) -> Bucket {
        Bucket::new(Rate { amount, per: Duration::from_millis(per_ms) })
    }

    #[test]
    fn as_many_as_the_rate_at_once_and_then_one_for_each_step() {
        let bucket = of(20, 1_000);
        let mut state = 0;
        for _ in 0..20 {
            state = bucket.take(state, 5_000).unwrap();
        }
        assert_eq!(bucket.take(state, 5_000), None);
        assert_eq!(bucket.take(state, 5_049), None);
        state = bucket.take(state, 5_050).unwrap();
        assert_eq!(bucket.take(state, 5_050), None);
        assert!(!Bucket::is_full(state, 6_049) && Bucket::is_full(state, 6_050));
    }

    proptest! {
        /// Whatever the times, no more pass in any stretch than a bucket and what flows in; and who asks slowly enough always passes.
        #[test]
        fn never_more_than_the_rate(amount in 1u64..200, gaps in proptest::collection::vec(0u64..100, 1..300)) {
            let bucket = of(amount, 1_000);
            let (mut state, mut now) = (0, 1_000_000);
            let mut passed: Vec<u64> = Vec::new();
            for gap in gaps {
                now += gap;
                if let Some(next) = bucket.take(state, now) {
                    state = next;
                    passed.push(now);
                }
            }
            for (first, from) in passed.iter().enumerate() {
                let within = passed[first..].iter().filter(|at| **at - from < 1_000).count() as u64;
                prop_assert!(within <= 2 * amount, "{within} in a second at {amount}/s");
            }
            let (mut state, step) = (0, 1_000u64.div_ceil(amount));
            for turn in 0..50 {
                state = bucket.take(state, 1_000_000 + turn * step).unwrap();
            }
        }
    }
}
