//! Two clients with one client id throw each other out, as fast as they can connect; a client with a fault comes and goes. Their owner hears of it, with the addresses; and from a number in a
//! window on (`[flapping]`) each new connection waits a second, so that this costs others nothing, or the client id is banned.
//!
//! Owner: the shard of the client id, on each node for what connects there.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use holdfast_raft::{Ban, BanTarget, Command};
use tracing::{info, warn};

use crate::access::bans::now_ms;
use crate::metrics;

use super::Shard;
use super::greeted::Greeted;

/// How long each connection of who flaps waits.
const DELAY_MS: u64 = 1_000;
/// Connections that wait, and client ids that are counted, at the most: beyond them nobody waits.
const DELAYED_MAX: usize = 1_024;
const COUNTED_MAX: usize = 65_536;

/// What becomes of who flaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlappingAction {
    Log,
    Delay,
    Ban,
}

/// When a client flaps, and what becomes of it: `[flapping]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlappingRules {
    pub enabled: bool,
    pub window_ms: u64,
    pub max_count: u32,
    pub action: FlappingAction,
    pub ban_ms: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Flapping {
    /// Takeovers of each client id since the window began.
    takeovers: HashMap<Arc<str>, u32>,
    /// Connections of each client id from each address.
    connects: HashMap<(IpAddr, Arc<str>), u32>,
    /// Client ids of which the log has told.
    told: HashSet<Arc<str>>,
    began: u64,
    delayed: VecDeque<(u64, Greeted)>,
}

impl Flapping {
    /// A new window begins when the one before is over.
    fn turn(&mut self, rules: &FlappingRules, now: u64) {
        if now >= self.began + rules.window_ms {
            self.takeovers.clear();
            self.connects.clear();
            self.told.clear();
            self.began = now;
        }
    }

    fn count_takeover(&mut self, client_id: &Arc<str>) {
        if self.takeovers.len() < COUNTED_MAX || self.takeovers.contains_key(client_id) {
            *self.takeovers.entry(client_id.clone()).or_insert(0) += 1;
        }
    }

    /// Counts a connection. Whether its client flaps.
    fn count_connect(&mut self, client_id: &Arc<str>, address: IpAddr, max_count: u32) -> bool {
        let key = (address, client_id.clone());
        let is_fought_over = self.takeovers.get(client_id).is_some_and(|count| *count >= max_count);
        if self.connects.len() >= COUNTED_MAX && !self.connects.contains_key(&key) {
            return is_fought_over;
        }
        let count = self.connects.entry(key).or_insert(0);
        *count += 1;
        is_fought_over || *count > max_count
    }
}

impl Shard {
    /// Takes a greeted connection: now, or a little later if its client flaps.
    pub(super) fn connect(&mut self, greeted: Greeted) {
        let rules = self.shared.flapping;
        if !rules.enabled {
            return self.connect_now(greeted);
        }
        self.flapping.turn(&rules, self.now);
        if !self.flapping.count_connect(&greeted.client_id, greeted.peer.ip().to_canonical(), rules.max_count) {
            return self.connect_now(greeted);
        }
        if self.flapping.told.insert(greeted.client_id.clone()) {
            self.tell_flapping(&greeted, &rules);
        }
        self.metrics().connections_flapping.add(1);
        if rules.action != FlappingAction::Log && self.flapping.delayed.len() < DELAYED_MAX {
            self.flapping.delayed.push_back((self.now + DELAY_MS, greeted));
        } else {
            self.connect_now(greeted);
        }
    }

    /// Once in a window for each client id.
    fn tell_flapping(&mut self, greeted: &Greeted, rules: &FlappingRules) {
        let FlappingRules { window_ms, max_count, action, ban_ms, .. } = *rules;
        let (client_id, peer) = (&*greeted.client_id, greeted.peer);
        warn!(
            event = "flapping", client_id, %peer, max_count, window_ms, action = ?action,
            "a client connects too often, or two clients use one client id"
        );
        if action == FlappingAction::Ban {
            let since_ms = now_ms();
            let target = BanTarget::ClientId(greeted.client_id.clone());
            let until_ms = Some(since_ms.saturating_add(ban_ms));
            // Its connections, this one too, end when every node knows it.
            self.propose(Command::Ban { ban: Ban { target, since_ms, until_ms, reason: "flapping".into() } });
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
        self.flapping.count_takeover(client_id);
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

    const RULES: FlappingRules =
        FlappingRules { enabled: true, window_ms: 60_000, max_count: 30, action: FlappingAction::Delay, ban_ms: 1_000 };

    #[test]
    fn who_is_taken_over_often_within_a_window_is_fought_over() {
        let mut flapping = Flapping::default();
        let (dup, other): (Arc<str>, Arc<str>) = ("dup".into(), "other".into());
        let here: IpAddr = [127, 0, 0, 1].into();
        flapping.turn(&RULES, 100_000);
        for _ in 0..RULES.max_count {
            flapping.count_takeover(&dup);
        }
        flapping.turn(&RULES, 150_000);
        assert!(flapping.count_connect(&dup, here, 30) && !flapping.count_connect(&other, here, 30));
        flapping.turn(&RULES, 161_000);
        assert!(!flapping.count_connect(&dup, here, 30), "the fight may be over");
    }

    #[test]
    fn who_connects_often_from_one_address_flaps_and_its_namesake_elsewhere_does_not() {
        let mut flapping = Flapping::default();
        let id: Arc<str> = "c".into();
        let (here, there): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        flapping.turn(&RULES, 100_000);
        assert!((0..30).all(|_| !flapping.count_connect(&id, here, 30)));
        assert!(flapping.count_connect(&id, here, 30) && !flapping.count_connect(&id, there, 30));
    }
}
