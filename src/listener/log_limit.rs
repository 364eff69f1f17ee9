//! Warnings about what arrives from outside: once per cause and second, with the number of those left out.
//!
//! Whoever can open a socket can make the broker log; without a limit a hostile client fills the disk. The table is one for the
//! process, so that many shards share one line. What is left out here is still counted in [`ListenerCounts`](crate::shard::greeted::ListenerCounts).
//!
//! Invariant: a cause is a fixed place in a fixed table, never made from bytes of the network.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::mqtt::ReasonCode;

/// Why a connection did not come to be. Each has a line per second of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    TlsOnPlainPort,
    PlainOnTlsPort,
    HttpOnMqttPort,
    NotMqtt,
    TlsHandshake,
    TimedOut,
    Upgrade,
    Origin,
    Accept,
    HardLimit,
    Network,
    /// Refused, or found malformed, with this reason.
    Refused(ReasonCode),
}

impl Cause {
    fn place(self) -> usize {
        match self {
            Self::Refused(reason) => reason as usize,
            // The reason codes end at 0xA2: the places behind 0xF0 are free.
            Self::TlsOnPlainPort => 0xF0,
            Self::PlainOnTlsPort => 0xF1,
            Self::HttpOnMqttPort => 0xF2,
            Self::NotMqtt => 0xF3,
            Self::TlsHandshake => 0xF4,
            Self::TimedOut => 0xF5,
            Self::Upgrade => 0xF6,
            Self::Origin => 0xF7,
            Self::Accept => 0xF8,
            Self::HardLimit => 0xF9,
            Self::Network => 0xFA,
        }
    }
}

struct Throttle {
    /// The second of the last line, counted from 1; 0 is never.
    last: AtomicU64,
    left_out: AtomicU64,
}

impl Throttle {
    const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    fn permit(&self, second: u64) -> Option<u64> {
        let last = self.last.load(Ordering::Relaxed);
        let free = last != second
            && self
                .last
                .compare_exchange(last, second, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if free {
            Some(self.left_out.swap(0, Ordering::Relaxed))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

static TABLE: [Throttle; 256] = [const { Throttle::new() }; 256];
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Whether a line about this cause may be written now; how many were left out since the last one.
pub(super) fn permit(cause: Cause) -> Option<u64> {
    TABLE[cause.place()].permit(ZERO.elapsed().as_secs() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_second_and_the_rest_is_counted() {
        let throttle = Throttle::new();
        assert_eq!(throttle.permit(1), Some(0));
        assert_eq!(throttle.permit(1), None);
        assert_eq!(throttle.permit(1), None);
        assert_eq!(throttle.permit(2), Some(2));
        assert_eq!(throttle.permit(2), None);
        assert_eq!(throttle.permit(9), Some(1));
    }
}
