//! `[shutdown]`: how clients are let go.

use std::time::Duration;

use super::reading::Section;

pub(super) const KEYS: &[&str] = &["grace"];

/// `[shutdown]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// How long clients have to take what was written to them, DISCONNECT 0x8B last, before their sockets are closed. Up to 1 hour.
    pub grace: Duration,
}

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown { grace: Duration::from_secs(10) }
    }
}

impl Shutdown {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Shutdown {
        let bounds = Duration::ZERO..=Duration::from_secs(3600);
        Shutdown { grace: section.duration("grace", Shutdown::default().grace, bounds) }
    }
}
