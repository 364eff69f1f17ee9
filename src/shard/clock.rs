//! The clock of a node: the one place where the time that shards and listeners go by comes from.

use std::time::Instant;

/// Milliseconds of a monotone clock, from one zero for the whole node.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// A clock that says 0 now. One is made for a node, and copied.
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Milliseconds since the clock was started.
    pub fn now(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
