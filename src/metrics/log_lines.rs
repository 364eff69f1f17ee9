//! How often the log says the same thing: one line for each cause and second, and a count of what was left out.
//!
//! Whoever can open a socket can make the broker log; without a limit a hostile client fills the disk. The table is one for the process,
//! so that many shards share a line. Not for pure modules: it has a clock and a lock.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

use parking_lot::Mutex;

/// Whether the log may have one more line about `cause` now: one for each cause and second. The number is that of the lines left out since
/// the last one. Whoever can open a socket can make the broker log; without a limit a hostile client fills the disk.
pub fn admit_line(cause: &str) -> Option<u64> {
    let (throttle, second) = throttle();
    throttle.admit(cause, second)
}

/// The lines left out of which no later line of their cause has told, for one line about all of them: those of causes that have been quiet
/// for [`LOG_QUIET_SECS`], or, at the end, of all. `None` when there are none. Each is told once.
pub fn take_left_out(at_the_end: bool) -> Option<LeftOut> {
    let (throttle, second) = throttle();
    throttle.take_left_out(if at_the_end { u64::MAX } else { second })
}

fn throttle() -> (&'static LogThrottle, u64) {
    static LINES: LazyLock<(Instant, LogThrottle)> = LazyLock::new(|| (Instant::now(), LogThrottle::default()));
    let (zero, throttle) = &*LINES;
    (throttle, zero.elapsed().as_secs())
}

/// Causes of which the log remembers that they had their line in this second.
const LOG_CAUSES: usize = 4_096;

/// Seconds behind its last line after which a cause will not tell itself what was left out.
pub const LOG_QUIET_SECS: u64 = 5;

/// Causes that the line about what was left out names.
const LOG_CAUSES_SHOWN: usize = 5;

/// Lines that were left out of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub lines: u64,
    /// The causes with the most of them.
    pub causes: String,
}

/// The causes of the last second, bounded: with more of them than [`LOG_CAUSES`], those that are new wait for the next one.
#[derive(Debug, Default)]
struct LogThrottle {
    seen: Mutex<SeenCauses>,
}

#[derive(Debug, Default)]
struct SeenCauses {
    by_cause: HashMap<String, Seen>,
    /// Lines left out about causes for which there was no room.
    without_cause: u64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    second: u64,
    left_out: u64,
}

impl LogThrottle {
    fn admit(&self, cause: &str, second: u64) -> Option<u64> {
        let mut seen = self.seen.lock();
        let SeenCauses { by_cause, without_cause } = &mut *seen;
        if let Some(entry) = by_cause.get_mut(cause) {
            if entry.second == second {
                entry.left_out += 1;
                return None;
            }
            entry.second = second;
            return Some(std::mem::take(&mut entry.left_out));
        }
        if by_cause.len() >= LOG_CAUSES {
            by_cause.retain(|_, entry| {
                let stays = entry.second == second;
                *without_cause += if stays { 0 } else { entry.left_out };
                stays
            });
            if by_cause.len() >= LOG_CAUSES {
                *without_cause += 1;
                return None;
            }
        }
        by_cause.insert(cause.to_owned(), Seen { second, left_out: 0 });
        Some(0)
    }

    fn take_left_out(&self, second: u64) -> Option<LeftOut> {
        let mut seen = self.seen.lock();
        let mut lines = std::mem::take(&mut seen.without_cause);
        let quiet = seen.by_cause.extract_if(|_, entry| entry.second.saturating_add(LOG_QUIET_SECS) <= second);
        let mut causes: Vec<_> =
            quiet.filter(|(_, entry)| entry.left_out > 0).map(|(cause, entry)| (entry.left_out, cause)).collect();
        drop(seen);
        lines += causes.iter().map(|(left_out, _)| left_out).sum::<u64>();
        causes.sort_by(|one, other| other.cmp(one));
        let shown = causes.iter().take(LOG_CAUSES_SHOWN).map(|(left_out, cause)| format!("{cause}: {left_out}"));
        let causes = shown.collect::<Vec<_>>().join(", ");
        (lines > 0).then_some(LeftOut { lines, causes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_cause_and_second_and_the_rest_are_counted() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.admit("a", 1), Some(0));
        assert_eq!(throttle.admit("a", 1), None);
        assert_eq!(throttle.admit("a", 1), None);
        assert_eq!(throttle.admit("b", 1), Some(0));
        assert_eq!(throttle.admit("a", 2), Some(2));
        assert_eq!(throttle.admit("a", 3), Some(0));
    }

    #[test]
    fn causes_that_an_attacker_invents_do_not_grow_without_bound() {
        let throttle = LogThrottle::default();
        for n in 0..2 * LOG_CAUSES {
            throttle.admit(&n.to_string(), 5);
        }
        assert!(throttle.seen.lock().by_cause.len() <= LOG_CAUSES);
        assert_eq!(throttle.admit("new", 6), Some(0));
    }

    #[test]
    fn what_was_left_out_is_told_when_its_cause_is_quiet_and_once() {
        let throttle = LogThrottle::default();
        for _ in 0..4 {
            throttle.admit("a", 1);
        }
        throttle.admit("b", 1);
        throttle.admit("b", 1);
        throttle.admit("c", 1);
        assert_eq!(throttle.take_left_out(1 + LOG_QUIET_SECS - 1), None, "a later line may still tell");
        let told = LeftOut { lines: 4, causes: "a: 3, b: 1".to_owned() };
        assert_eq!(throttle.take_left_out(1 + LOG_QUIET_SECS), Some(told));
        assert_eq!(throttle.take_left_out(u64::MAX), None);
        assert_eq!(throttle.admit("a", 7), Some(0));
        // Causes for which there is no room are told as well.
        for n in 0..2 * LOG_CAUSES {
            throttle.admit(&n.to_string(), 8);
        }
        let lines = throttle.take_left_out(u64::MAX).map(|left_out| left_out.lines);
        assert_eq!(lines, Some(LOG_CAUSES as u64));
    }
}
