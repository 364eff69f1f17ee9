//! `[flapping]`: clients that come and go too often, and client ids that are fought over.

use std::time::Duration;

use super::reading::Section;

pub(super) const KEYS: &[&str] = &["enabled", "window", "max_count", "action", "ban_time"];

/// `[flapping]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flapping {
    pub enabled: bool,
    /// The time in which is counted. 1 s to 1 h.
    pub window: Duration,
    /// Connections of one client id from one address, and takeovers of one client id, in that time and on one node, from which on there is an action. 2 to 1,000,000.
    pub max_count: u32,
    pub action: FlappingAction,
    /// How long a ban lasts. 1 s to 365 d.
    pub ban_time: Duration,
}

/// What becomes of who flaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlappingAction {
    /// A line in the log, once in a window.
    Log,
    /// The same, and each connection waits a second before it is let in.
    Delay,
    /// The same, and the client id is banned on all nodes for a while.
    Ban,
}

impl Default for Flapping {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Flapping { enabled: true, window: secs(60), max_count: 30, action: FlappingAction::Delay, ban_time: secs(300) }
    }
}

impl Flapping {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Flapping {
        let default = Flapping::default();
        let actions = [("log", FlappingAction::Log), ("delay", FlappingAction::Delay), ("ban", FlappingAction::Ban)];
        let second = Duration::from_secs(1);
        Flapping {
            enabled: section.bool("enabled", default.enabled),
            window: section.duration("window", default.window, second..=3_600 * second),
            max_count: section.integer("max_count", default.max_count, 2..=1_000_000),
            action: section.choice("action", default.action, &actions),
            ban_time: section.duration("ban_time", default.ban_time, second..=365 * 86_400 * second),
        }
    }
}
