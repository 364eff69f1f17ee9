//! The timers of a shard: one deadline for each connection, whichever of its own is next. Coarse
//! ([`limits::TIMER_TICK_MS`]) and re-armed lazily: a packet that comes in moves nothing here.

use std::collections::BTreeSet;

use super::ConnectionKey;

#[derive(Debug, Default)]
pub struct Timers {
    due: BTreeSet<(u64, ConnectionKey)>,
}

impl Timers {
    pub fn arm(&mut self, at: u64, connection: ConnectionKey) {
        self.due.insert((at, connection));
    }

    pub fn disarm(&mut self, at: u64, connection: ConnectionKey) {
        self.due.remove(&(at, connection));
    }

    /// Takes the next connection whose deadline has come.
    pub fn pop_due(&mut self, now: u64) -> Option<ConnectionKey> {
        let (at, connection) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        Some(connection)
    }
}
