//! Who may connect now: how many connections there may be, and how fast new ones may come.
//!
//! * [`Gate`] belongs to a listener: its rate, and that of each address. [`NodeGate`] belongs to the node: the rate and the number of connections over all listeners.
//! * `bucket` and `addresses` compute only.
//!
//! Every shard accepts from every listener, so both are shared: the rates of listener and node are one atomic each, the table of addresses is behind a lock that is taken
//! only where there is such a rate. Without any rate nothing is asked.
//!
//! Invariant: a token of the address is asked for first, so that one that comes too often takes none of those that are for all.
//!
//! The test to read first: `bucket::tests`.

mod addresses;
pub mod bucket;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use addresses::Addresses;
use bucket::Bucket;

use crate::config::{self, Rate};

/// Whose rate was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum RateKind {
    Address,
    Listener,
    Node,
}

impl RateKind {
    pub const ALL: [RateKind; 3] = [RateKind::Address, RateKind::Listener, RateKind::Node];

    /// The value of the label `kind`.
    pub fn label(self) -> &'static str {
        match self {
            RateKind::Address => "connections_address",
            RateKind::Listener => "connections_listener",
            RateKind::Node => "connections_node",
        }
    }
}

/// A rate that all shards share.
#[derive(Debug)]
struct Shared {
    bucket: Bucket,
    full_at: AtomicU64,
}

impl Shared {
    fn new(rate: Option<Rate>) -> Option<Shared> {
        rate.map(|rate| Shared { bucket: Bucket::new(rate), full_at: AtomicU64::new(0) })
    }

    fn take(&self, now_ms: u64) -> bool {
        self.full_at.fetch_update(Relaxed, Relaxed, |full_at| self.bucket.take(full_at, now_ms)).is_ok()
    }
}

/// What a listener lets in.
#[derive(Debug)]
pub struct Gate {
    all: Option<Shared>,
    addresses: Option<Mutex<Addresses>>,
}

impl Gate {
    pub fn new(listener: &config::Listener) -> Gate {
        let addresses = listener.max_conn_rate_per_ip.map(|rate| Mutex::new(Addresses::new(Bucket::new(rate))));
        Gate { all: Shared::new(listener.max_conn_rate), addresses }
    }

    /// Lets a connection of this address in, at this time in milliseconds.
    ///
    /// # Errors
    /// Which rate it exceeds; it is counted.
    pub fn admit(&self, node: &NodeGate, address: IpAddr, now_ms: u64) -> Result<(), RateKind> {
        let exceeded = if self.addresses.as_ref().is_some_and(|addresses| !addresses.lock().take(address, now_ms)) {
            RateKind::Address
        } else if self.all.as_ref().is_some_and(|all| !all.take(now_ms)) {
            RateKind::Listener
        } else if node.rate.as_ref().is_some_and(|rate| !rate.take(now_ms)) {
            RateKind::Node
        } else {
            return Ok(());
        };
        node.limited[exceeded as usize].fetch_add(1, Relaxed);
        Err(exceeded)
    }
}

/// What a node lets in over all its listeners.
#[derive(Debug)]
pub struct NodeGate {
    rate: Option<Shared>,
    limited: [AtomicU64; RateKind::ALL.len()],
    connections: AtomicUsize,
    connections_max: AtomicUsize,
}

impl Default for NodeGate {
    fn default() -> Self {
        NodeGate::new(&config::Limits::default())
    }
}

impl NodeGate {
    pub fn new(limits: &config::Limits) -> NodeGate {
        NodeGate {
            rate: Shared::new(limits.max_conn_rate),
            limited: Default::default(),
            connections: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(limits.max_connections.unwrap_or(usize::MAX)),
        }
    }

    /// Never more connections than this, whatever was configured: there are no files for more.
    pub fn lower_max(&self, connections_max: usize) {
        self.connections_max.fetch_min(connections_max, Relaxed);
    }

    /// Connections that are open, and the most there may be; `usize::MAX`: no limit.
    pub fn connections(&self) -> (usize, usize) {
        (self.connections.load(Relaxed), self.connections_max.load(Relaxed))
    }

    /// Counts one connection in. By how many there are more than may be, with it; 0 if none.
    pub fn enter(&self) -> usize {
        let now = self.connections.fetch_add(1, Relaxed) + 1;
        now.saturating_sub(self.connections_max.load(Relaxed))
    }

    pub fn leave(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Connections that were refused because this rate was exceeded.
    pub fn limited(&self, kind: RateKind) -> u64 {
        self.limited[kind as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Limits, Listener, Protocol};

    #[test]
    fn one_address_that_comes_too_often_takes_nothing_from_the_others() {
        let rate = |amount| Some(Rate { amount, per: Duration::from_secs(1) });
        let mut listener = Listener::new("l", Protocol::Mqtt, ([127, 0, 0, 1], 0).into());
        (listener.max_conn_rate, listener.max_conn_rate_per_ip) = (rate(4), rate(2));
        let node = NodeGate::new(&Limits { max_conn_rate: rate(6), ..Limits::default() });
        let (one, other) = (Gate::new(&listener), Gate::new(&listener));
        let from = |last: u8| IpAddr::from([10, 0, 0, last]);
        let flood: Vec<_> = (0..100).map(|_| one.admit(&node, from(1), 9_000)).collect();
        assert_eq!(flood.iter().filter(|admitted| admitted.is_ok()).count(), 2);
        assert_eq!(node.limited(RateKind::Address), 98);
        assert_eq!(
            (2..5).map(|last| one.admit(&node, from(last), 9_000).is_ok()).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!(node.limited(RateKind::Listener), 1);
        assert_eq!(
            (1..4).map(|last| other.admit(&node, from(last), 9_000)).collect::<Vec<_>>(),
            [Ok(()), Ok(()), Err(RateKind::Node)]
        );
        assert_eq!(one.admit(&node, from(9), 10_000), Ok(()), "a second later there is room again");
    }

    #[test]
    fn connections_are_counted_over_all_listeners() {
        let node = NodeGate::new(&Limits { max_connections: Some(2), ..Limits::default() });
        assert_eq!([node.enter(), node.enter(), node.enter()], [0, 0, 1]);
        node.leave();
        assert_eq!(node.connections(), (2, 2));
        node.lower_max(1);
        node.lower_max(5);
        assert_eq!(node.connections(), (2, 1));
    }
}
