//! `[shutdown]`: how clients are let go.

use std::time::Duration;

use super::reading::Section;
use super::values::integer_within;

pub(super) const KEYS: &[&str] = &["grace", "spread", "rate", "returns_min_percent"];

/// `[shutdown]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shutdown {
    /// For how long a node that is drained is not ready and still takes clients, so that load balancers notice; and how long clients have to take what was written to them, DISCONNECT 0x8B
    /// last, before their sockets are closed. Up to 1 hour.
    pub grace: Duration,
    /// In which time the clients of a node that is drained are let go. 1 second to 1 hour.
    pub spread: Duration,
    /// How many of them a second; `None`: all of them within `spread`, but no more than the other nodes have shown to take.
    pub rate: Option<u32>,
    /// Of a hundred clients that a drain has let go, so many must be on other nodes 10 seconds later; else it pauses, and is given up after a minute. 0: nobody looks.
    pub returns_min_percent: u32,
}

impl Default for Shutdown {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Shutdown { grace: seconds(10), spread: seconds(60), rate: None, returns_min_percent: 50 }
    }
}

impl Shutdown {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Shutdown {
        let default = Shutdown::default();
        let hour = Duration::from_secs(3600);
        let rate = section.optional("rate", |value| match value.as_str() {
            Some("auto") => Ok(None),
            Some(_) => Err(WHAT.to_owned()),
            None => integer_within(value, &(1..=1_000_000)).map(Some),
        });
        Shutdown {
            grace: section.duration("grace", default.grace, Duration::ZERO..=hour),
            spread: section.duration("spread", default.spread, Duration::from_secs(1)..=hour),
            rate: rate.unwrap_or(default.rate),
            returns_min_percent: section.integer("returns_min_percent", default.returns_min_percent, 0..=100),
        }
    }
}

const WHAT: &str = "expected a number of connections a second, or \"auto\"";
