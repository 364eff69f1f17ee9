//! The clocks of the control plane, in milliseconds.
//!
//! Grants and leases are measured with the boot clock (`CLOCK_BOOTTIME`): it goes on while the machine sleeps, nobody sets it, and all threads of a node
//! read the same. The wall clock only serves to see that a machine was paused: then the boot clock may have stood still and the wall clock did not.

/// Milliseconds since the machine was started, its sleep included. Never runs backwards while the machine runs.
#[must_use]
pub fn boot_ms() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Milliseconds since the Unix epoch. May be set at any time.
#[must_use]
pub fn wall_ms() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours, which the call fills in.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    assert!(!failed, "the clocks of the system can be read");
    // A clock set to before 1970 counts as one that knows nothing.
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    secs.saturating_mul(1000) + u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{boot_ms, wall_ms};

    #[test]
    fn both_clocks_go() {
        let (boot, wall) = (boot_ms(), wall_ms());
        assert!(boot > 0 && wall > 1_600_000_000_000);
        assert!(boot_ms() >= boot);
    }
}
