//! `[sys]`: the `$SYS` topics.

use std::time::Duration;

use super::reading::Section;

pub(super) const KEYS: &[&str] = &["interval"];

/// `[sys]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sys {
    /// How often the `$SYS` topics are published. Zero turns them off; else 1 second to 1 day.
    pub interval: Duration,
}

impl Default for Sys {
    fn default() -> Self {
        Sys { interval: Duration::from_secs(10) }
    }
}

impl Sys {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Sys {
        let bounds = Duration::ZERO..=Duration::from_secs(86_400);
        let off = ("off", Duration::ZERO);
        let interval = section.duration_or("interval", Sys::default().interval, bounds, off);
        if !interval.is_zero() && interval < Duration::from_secs(1) {
            section.error_at("interval", "interval: must be from 1s to 1d, or \"off\"");
        }
        Sys { interval }
    }
}
