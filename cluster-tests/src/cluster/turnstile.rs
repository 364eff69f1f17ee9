//! How many clusters may run at one time in a test binary: with more, a machine with two cores measures nothing but itself.

use std::sync::{Condvar, Mutex, PoisonError};

const CLUSTERS_MAX: usize = 3;

static INSIDE: Mutex<usize> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

/// The right to run one cluster, given back when it is dropped.
pub(super) struct Ticket(());

impl Ticket {
    /// Waits for its turn. The test runner has the deadline: others end because each of their waits does.
    pub(super) fn take() -> Self {
        let mut inside = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
        while *inside == CLUSTERS_MAX {
            inside = CHANGED.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        *inside += 1;
        Self(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *INSIDE.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        CHANGED.notify_one();
    }
}
