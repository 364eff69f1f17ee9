//! Whether this node may serve: until when the leader of the cluster has granted it to. What stands for nothing any more must not reach a client or another node,
//! so it is asked directly before each write, and before each read.
//!
//! A node that is alone always may.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_raft::clock;

/// See the module.
#[derive(Debug)]
pub struct Grant(AtomicU64);

/// Stands for "always": no boot clock ever says this.
const ALWAYS: u64 = u64::MAX;

impl Grant {
    pub fn always() -> Grant {
        Grant(AtomicU64::new(ALWAYS))
    }

    /// Nothing is granted yet.
    pub fn none() -> Grant {
        Grant(AtomicU64::new(0))
    }

    /// The node may serve until then, in milliseconds of the boot clock.
    pub fn set(&self, until: u64) {
        self.0.store(until, Ordering::Release);
    }

    pub fn is_valid(&self) -> bool {
        let until = self.0.load(Ordering::Acquire);
        until == ALWAYS || clock::boot_ms() < until
    }

    /// What is left of it, in milliseconds; `None`: it does not end.
    pub fn remaining_ms(&self) -> Option<u64> {
        let until = self.0.load(Ordering::Acquire);
        (until != ALWAYS).then(|| until.saturating_sub(clock::boot_ms()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_ends_by_itself() {
        assert!(Grant::always().is_valid());
        let grant = Grant::none();
        assert!(!grant.is_valid());
        grant.set(clock::boot_ms() + 60_000);
        assert!(grant.is_valid() && grant.remaining_ms().is_some_and(|left| left > 50_000));
        grant.set(clock::boot_ms());
        assert!(!grant.is_valid());
    }
}
