//! Two clients with one client id throw each other out, as fast as they can connect. Their owner hears of it, with both addresses; and after a while each new connection of that id
//! waits a second, so that the fight costs others nothing.
//!
//! Owner: the shard of the client id, on each node for what connects there.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use tracing::{info, warn};

use crate::metrics;

use super::Shard;
use super::greeted::Greeted;

/// Takeovers of one client id within [`WINDOW_MS`] from which on its connections wait.
const TAKEOVERS_MAX: u32 = 30;
const WINDOW_MS: u64 = 60_000;
/// How long each of them waits.
const DELAY_MS: u64 = 1_000;
/// Connections that wait, and client ids that are counted, at the most: beyond them nobody waits.
const DELAYED_MAX: usize = 1_024;
const COUNTED_MAX: usize = 65_536;

/// See the module.
#[derive(Default)]
pub(super) struct Flapping {
    /// Takeovers of each client id since the window began.
    counts: HashMap<Arc<str>, u32>,
    began: u64,
    delayed: VecDeque<(u64, Greeted)>,
}

impl Flapping {
    fn count(&mut self, client_id: &Arc<str>, now: u64) {
        if now >= self.began + WINDOW_MS {
            self.counts.clear();
            self.began = now;
        }
        if self.counts.len() < COUNTED_MAX || self.counts.contains_key(client_id) {
            *self.counts.entry(client_id.clone()).or_insert(0) += 1;
        }
    }

    fn is_flapping(&self, client_id: &str, now: u64) -> bool {
        now < self.began + WINDOW_MS && self.counts.get(client_id).is_some_and(|count| *count >= TAKEOVERS_MAX)
    }
}

impl Shard {
    /// Takes a greeted connection: now, or a little later if its client id is fought over.
    pub(super) fn connect(&mut self, greeted: Greeted) {
        let waits = self.flapping.is_flapping(&greeted.client_id, self.now);
        if waits && self.flapping.delayed.len() < DELAYED_MAX {
            self.flapping.delayed.push_back((self.now + DELAY_MS, greeted));
        } else {
            self.connect_now(greeted);
        }
    }

    /// Connections whose wait is over.
    pub(super) fn connect_delayed(&mut self) {
        let now = self.now;
        while let Some((_, greeted)) = self.flapping.delayed.pop_front_if(|(at, _)| *at <= now) {
            self.connect_now(greeted);
            self.settle();
        }
    }

    /// One takeover is a client that came back. Several in a second are two clients with one id, of which their owner should hear.
    pub(super) fn count_takeover(&mut self, client_id: &Arc<str>, older: SocketAddr, newer: SocketAddr) {
        self.flapping.count(client_id, self.now);
        match metrics::admit_line(&format!("takeover {client_id}")) {
            Some(0) if self.shared.connection_messages => {
                info!(event = "takeover", client_id = &**client_id, %older, %newer, "a newer connection took the session over");
            }
            None | Some(0) => {}
            Some(left_out) => warn!(
                event = "client_id_fight", client_id = &**client_id, %older, %newer, takeovers = left_out + 1,
                "two clients use one client id and throw each other out: give each its own"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_taken_over_often_within_a_minute_is_fought_over() {
        let mut flapping = Flapping::default();
        let (dup, other): (Arc<str>, Arc<str>) = ("dup".into(), "other".into());
        flapping.count(&other, 100_000);
        for _ in 0..TAKEOVERS_MAX {
            assert!(!flapping.is_flapping(&dup, 100_000));
            flapping.count(&dup, 100_000);
        }
        assert!(flapping.is_flapping(&dup, 150_000) && !flapping.is_flapping(&other, 150_000));
        assert!(!flapping.is_flapping(&dup, 161_000), "the fight may be over");
        flapping.count(&dup, 161_000);
        assert!(!flapping.is_flapping(&dup, 161_000));
    }
}
