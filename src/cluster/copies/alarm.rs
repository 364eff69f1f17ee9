//! When it is said that the copies of a node's sessions are incomplete, and that they are complete again. [pure]
//!
//! A node that stops for a moment is no reason: it is said once, after [`PATIENCE_MS`], and the end of it only if the beginning was said.
//!
//! Owner: the node. Test to read first: `tests::it_is_said_once_after_a_while_and_so_is_its_end`.

/// For so long copies may be incomplete before that is said, in milliseconds.
const PATIENCE_MS: u64 = 30_000;

/// What is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Incomplete,
    Complete,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Alarm {
    /// Since when they are incomplete.
    since: Option<u64>,
    said: bool,
}

impl Alarm {
    pub fn look(&mut self, now: u64, incomplete: bool) -> Option<Change> {
        if !incomplete {
            self.since = None;
            return std::mem::take(&mut self.said).then_some(Change::Complete);
        }
        let since = *self.since.get_or_insert(now);
        if self.said || now.saturating_sub(since) < PATIENCE_MS {
            return None;
        }
        self.said = true;
        Some(Change::Incomplete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_after_a_while_and_so_is_its_end() {
        let mut alarm = Alarm::default();
        assert_eq!(alarm.look(1_000, false), None, "nothing was said of it");
        assert_eq!(alarm.look(2_000, true), None);
        assert_eq!(alarm.look(1_999 + PATIENCE_MS, true), None);
        assert_eq!(alarm.look(2_000 + PATIENCE_MS, true), Some(Change::Incomplete));
        assert_eq!(alarm.look(2_001 + PATIENCE_MS, true), None, "once");
        assert_eq!(alarm.look(90_000, false), Some(Change::Complete));
        assert_eq!(alarm.look(90_001, true), None);
        assert_eq!(alarm.look(90_002, false), None, "that was short");
    }
}
