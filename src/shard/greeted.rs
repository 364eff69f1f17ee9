//! What a listener hands to a shard: a connection whose CONNECT packet has been read and whose client is known.
//!
//! The listener owns a connection from accept to [`Dispatch::submit`]; from then on the shard of its client id owns it. The CONNACK of
//! an accepted connection is the shard's to write, that of a refused one has been written by the listener and no `Greeted` comes of it.
//!
//! Invariants: `connect` is one whole CONNECT packet that decodes; `rest` is what followed it, to be read before the stream;
//! `client_id` is never empty; each open connection, greeted or not, holds exactly one [`ListenerSlot`].

pub mod doors;

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::access::Identity;
use crate::admission::{Gate, NodeGate};
use crate::byte_stream::ByteStream;
use crate::config;

use doors::Doors;

/// A connection behind its CONNECT packet, on the way to the shard of its client id.
#[derive(Debug)]
pub struct Greeted {
    /// Detached or attached to the runtime of the shard that accepted it; whoever runs it calls [`ByteStream::attach`] first.
    pub stream: ByteStream,
    /// The whole CONNECT packet, decodable.
    pub connect: Box<[u8]>,
    /// Bytes that were read behind the CONNECT packet: a client need not wait for the CONNACK (section 3.1.4).
    pub rest: Vec<u8>,
    /// The client's own id or, when it sent none, the one that was made for it [MQTT-3.1.3-6].
    pub client_id: Arc<str>,
    /// Whether `client_id` was made here, so that a 5.0 CONNACK has to tell it [MQTT-3.2.2-16].
    pub assigned_client_id: bool,
    /// From where the client came, by the word of a trusted proxy if there is one in between.
    pub peer: SocketAddr,
    /// The Common Name of the certificate that the client has shown to a trusted proxy.
    pub proxied_name: Option<Box<str>>,
    /// The listener it came through; counts the connection for as long as it is held.
    pub listener: ListenerSlot,
    pub identity: Identity,
    /// When the socket was accepted, in milliseconds of the node's [`Clock`].
    pub accepted_at: u64,
}

/// Who takes greeted connections: the node, which knows the shard of a client id.
pub trait Dispatch: Clone + 'static {
    /// Hands the connection on. Does not wait; what cannot be taken is dropped, which closes it.
    fn submit(&self, greeted: Greeted);

    /// Whether nobody of this address is let in: it is not worth a handshake.
    fn is_banned(&self, _address: IpAddr) -> bool {
        false
    }
}

/// Connections above the limit of a listener that may be in the middle of being told so.
const REFUSALS_AT_ONCE: usize = 256;

/// One listening address, shared by all shards that accept from it.
#[derive(Debug)]
pub struct ListenerState {
    pub config: config::Listener,
    /// The address as bound, which differs from the configured one where that says port 0.
    pub bound: SocketAddr,
    /// Where browsers should have gone, for those that speak HTTP to an MQTT port.
    pub websocket: Option<WebSocketAddress>,
    /// The longest Keep Alive granted here, in seconds; 0: whatever is asked.
    pub keep_alive_cap_secs: u16,
    pub counts: ListenerCounts,
    /// Whether anybody is let in.
    pub doors: Doors,
    /// How fast new connections may come here, and on all listeners together.
    pub gate: Gate,
    pub node: Arc<NodeGate>,
    connections: AtomicUsize,
    /// Connections that came too fast and are being told so.
    refusing: AtomicUsize,
}

/// Where a node's WebSocket listener is, without the host: that is whatever the client called it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketAddress {
    pub port: u16,
    pub path: String,
    pub tls: bool,
}

/// What happened at a listener since the start; each only grows.
#[derive(Debug, Default)]
pub struct ListenerCounts {
    /// Sockets accepted.
    pub accepted: AtomicU64,
    /// Connections handed to a shard.
    pub greeted: AtomicU64,
    /// Closed before any byte came, as health probes do.
    pub silent: AtomicU64,
    /// Closed because a handshake or the CONNECT packet did not come in time.
    pub timed_out: AtomicU64,
    /// TLS handshakes that failed, the wrong protocol on the port among them.
    pub tls_failed: AtomicU64,
    /// WebSocket upgrades that were refused with an HTTP status.
    pub upgrade_refused: AtomicU64,
    /// WebSocket upgrades that offered no sub-protocol and were taken all the same.
    pub no_subprotocol: AtomicU64,
    /// Bytes that are no CONNECT packet.
    pub malformed: AtomicU64,
    /// Refused by CONNACK.
    pub refused: AtomicU64,
    /// Failures of accept itself, such as too many open files.
    pub accept_failed: AtomicU64,
}

impl ListenerState {
    /// The state of a listener bound at `bound`, with no connection yet.
    pub fn new(config: config::Listener, bound: SocketAddr) -> Self {
        Self {
            gate: Gate::new(&config),
            node: Arc::default(),
            refusing: AtomicUsize::new(0),
            config,
            bound,
            websocket: None,
            keep_alive_cap_secs: 0,
            counts: ListenerCounts::default(),
            doors: Doors::default(),
            connections: AtomicUsize::new(0),
        }
    }

    /// Sets the longest Keep Alive that is granted here.
    #[must_use]
    pub fn with_keep_alive_cap(mut self, cap: Option<Duration>) -> Self {
        self.keep_alive_cap_secs = cap.map_or(0, |cap| u16::try_from(cap.as_secs()).unwrap_or(u16::MAX));
        self
    }

    /// Makes it one of the listeners of a node.
    #[must_use]
    pub fn on_node(mut self, node: Arc<NodeGate>) -> Self {
        self.node = node;
        self
    }

    /// Whether what is said from this address about whose connection it is counts.
    pub fn trusts(&self, address: std::net::IpAddr) -> bool {
        self.config.trusted_proxies.iter().any(|range| range.contains(address))
    }

    /// Names the address that clients who mistake this port for a WebSocket one are told.
    #[must_use]
    pub fn with_websocket(mut self, address: Option<WebSocketAddress>) -> Self {
        self.websocket = address;
        self
    }

    /// Connections open now, handshakes included.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts one connection in. Some above `max_connections`, of the listener or the node, are let in as well, marked, to be told so in a CONNACK before they
    /// are closed; `None` when those are too many too.
    pub fn occupy(self: &Arc<Self>) -> Option<ListenerSlot> {
        let limit = self.config.max_connections;
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let here = (before + 1).saturating_sub(limit);
        let too_many = here.max(self.node.enter());
        let slot = ListenerSlot { over_limit: too_many > 0, too_fast: false, state: Arc::clone(self) };
        (too_many <= REFUSALS_AT_ONCE).then_some(slot)
    }
}

/// One connection's place at its listener; dropping it counts the connection out.
#[derive(Debug)]
pub struct ListenerSlot {
    state: Arc<ListenerState>,
    over_limit: bool,
    too_fast: bool,
}

impl ListenerSlot {
    /// Notes that the connection came too fast; false if too many are being told so already.
    pub fn refuse(&mut self) -> bool {
        let before = self.state.refusing.fetch_add(1, Ordering::Relaxed);
        self.too_fast = before < REFUSALS_AT_ONCE;
        if !self.too_fast {
            self.state.refusing.fetch_sub(1, Ordering::Relaxed);
        }
        self.too_fast
    }

    /// Whether the connection came faster than connections may.
    pub fn too_fast(&self) -> bool {
        self.too_fast
    }

    /// Whether `max_connections` were open when this one came.
    pub fn over_limit(&self) -> bool {
        self.over_limit
    }

    /// The listener, to be kept beyond the connection.
    pub fn state(&self) -> &Arc<ListenerState> {
        &self.state
    }
}

impl Deref for ListenerSlot {
    type Target = ListenerState;

    fn deref(&self) -> &ListenerState {
        &self.state
    }
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        self.state.connections.fetch_sub(1, Ordering::Relaxed);
        self.state.node.leave();
        if self.too_fast {
            self.state.refusing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
