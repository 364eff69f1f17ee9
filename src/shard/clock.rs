//! The clock of a node: the one place where the time that shards and listeners go by comes from.
//!
//! Read first: `tests::time_goes_on_from_where_it_was`.

use std::time::{Duration, Instant, SystemTime};

/// Milliseconds since the Unix epoch, from one reading of the system's clock for the whole node.
///
/// It is read once, at the start; from there on time is that of a monotone clock. So it never runs backwards, not even over a restart,
/// and no step of the system's clock makes what is under way expire early. Times at rest are of this clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    zero: Instant,
    /// What the clock said at `zero`.
    started_at: u64,
}

impl Clock {
    /// A clock that says what time it is, but nothing before `not_before`, the last time that an earlier run is known to have seen, or 0. One
    /// is made for a node, and copied.
    pub fn start_at(not_before: u64) -> Self {
        // A clock set to before 1970 counts as one that knows nothing.
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { zero: Instant::now(), started_at: millis(since_epoch).max(not_before) }
    }

    /// Milliseconds of the node's clock.
    pub fn now(&self) -> u64 {
        self.started_at.saturating_add(self.uptime_ms())
    }

    /// Milliseconds since the clock was started.
    pub fn uptime_ms(&self) -> u64 {
        millis(self.zero.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_where_it_was() {
        let first = Clock::start_at(0);
        let last_time = first.now();
        assert!(last_time > 1_700_000_000_000, "it is later than 2023");
        let again = Clock::start_at(last_time);
        assert!(again.now() >= last_time);
        // The system's clock was set back by a century meanwhile.
        let far = last_time + 100 * 365 * 86_400_000;
        let again = Clock::start_at(far);
        let (earlier, later) = (again.now(), again.now());
        assert!(far <= earlier && earlier <= later);
        assert!(again.uptime_ms() < 3_600_000, "up since now, not for a century");
    }
}
