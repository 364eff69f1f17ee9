//! How long to wait before connecting again: longer each time, never the same for two clients, and short again once a connection has lasted.
//!
//! Invariant: there is always a pause, so that a broker that accepts and ends connections is never asked in a loop.

use std::time::Duration;

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// A connection that lived this long shows that the trouble is over.
const LASTING: Duration = Duration::from_secs(10);

/// The pauses of one client.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The pause behind a connection that lived for `lived`; zero for an attempt that came to none.
    pub fn pause(&mut self, lived: Duration) -> Duration {
        if lived >= LASTING {
            self.next = FIRST;
        }
        let mut random = [0; 1];
        // Without randomness the pause is only less spread.
        let _ = getrandom::fill(&mut random);
        let pause = self.next.mul_f64(0.8 + 0.4 * f64::from(random[0]) / 255.0);
        self.next = (self.next * 2).min(LONGEST);
        pause.min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_behind_a_connection_that_lasted() {
        let mut backoff = Backoff::default();
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            // A connection that was accepted and ended at once is no success.
            let pause = backoff.pause(Duration::from_millis(5)).as_secs_f64();
            let expected = f64::from(expected);
            assert!((0.8 * expected..=1.2 * expected).contains(&pause) && pause <= 30.0, "{pause} for {expected}");
        }
        assert!(backoff.pause(LASTING) <= Duration::from_millis(1200));
        assert!(backoff.pause(Duration::ZERO) >= Duration::from_millis(1600));
    }
}
