//! `[limits]`: what the node as a whole takes on before somebody is refused.

use std::time::Duration;

use toml::de::DeValue;

use super::reading::Section;
use super::units::{DURATION_UNITS, parse_size};
use super::values::expected;

pub(super) const KEYS: &[&str] = &["max_connections", "max_conn_rate"];

/// `[limits]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at one time over all listeners. 1 to 10,000,000; `None`: what the listeners and the open files allow.
    pub max_connections: Option<usize>,
    /// Most new connections over all listeners. `None`: no limit.
    pub max_conn_rate: Option<Rate>,
}

/// So many in so long. As many may come at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub amount: u64,
    /// At least a millisecond.
    pub per: Duration,
}

impl Limits {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Limits {
        Limits {
            max_connections: section.optional("max_connections", parse_connections).flatten(),
            max_conn_rate: section.rate("max_conn_rate"),
        }
    }
}

impl Section<'_, '_> {
    /// A rate such as `"500/s"`; none if it is absent or `"off"`.
    pub(super) fn rate(&mut self, key: &'static str) -> Option<Rate> {
        self.optional(key, parse_rate).flatten()
    }
}

fn parse_connections(value: &DeValue<'_>) -> Result<Option<usize>, String> {
    if value.as_str() == Some("off") {
        return Ok(None);
    }
    super::values::integer_within(value, &(1..=10_000_000))
        .map(Some)
        .map_err(|message| format!("{message}, or \"off\""))
}

/// Reads `"500/s"`, `"20/m"`, `"1MB/s"`, and `"off"`.
fn parse_rate(value: &DeValue<'_>) -> Result<Option<Rate>, String> {
    const EXPECTED: &str = "a rate such as \"500/s\", \"20/m\" or \"1MB/s\" (per s, m, h or d), or \"off\"";
    let text = value.as_str().ok_or_else(|| expected(EXPECTED, value))?;
    if text == "off" {
        return Ok(None);
    }
    let parts = text.split_once('/').map(|(amount, unit)| (amount.trim(), unit.trim()));
    let per = |unit: &str| DURATION_UNITS.iter().find(|(name, _)| *name == unit && !matches!(*name, "ms" | "w"));
    match parts.and_then(|(amount, unit)| Some((parse_size(amount)?, per(unit)?.1))) {
        Some((amount @ 1..=1_000_000_000_000, millis)) => Ok(Some(Rate { amount, per: Duration::from_millis(millis) })),
        Some(_) => Err("must be from 1 to 1000000000000 in its time; \"off\" for no limit".to_owned()),
        None => Err(format!("expected {EXPECTED}")),
    }
}
