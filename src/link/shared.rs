//! What all connections of a node to its peers have in common.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use holdfast_raft::NodeId;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::handshake::Dialled;
use super::hello::{Hello, Purpose};
use super::peer::{Event, PeerHandle};
use super::refusal::{Failure, LinkCounts, Refusal};
use super::secret::Secret;
use super::tls::LinkTls;
use super::{Peer, Receiver};

/// Nodes that are known at one time: those of a cluster, and as many that were replaced and are not forgotten yet.
pub(super) const PEERS_MAX: usize = 128;

/// The state that all tasks share.
pub(super) struct Shared {
    pub own: Peer,
    pub cluster: String,
    /// 0 while this node belongs to no cluster.
    pub cluster_id: Mutex<u128>,
    pub secret: Secret,
    pub tls: Option<LinkTls>,
    /// By node name: the address to dial whatever the node says.
    pub overrides: BTreeMap<String, String>,
    pub receiver: Arc<dyn Receiver>,
    pub counts: LinkCounts,
    pub peers: RwLock<HashMap<NodeId, Arc<PeerHandle>>>,
    /// The shards of ours that want a data connection to a peer, one bit each, whether it was met yet or not.
    pub wanted: Mutex<HashMap<NodeId, u64>>,
    /// Places where nodes are looked for, beside the seeds: what peers told, and how many there are.
    pub places: Mutex<HashMap<String, Place>>,
    pub runtime: Handle,
    /// Becomes true at the end; every task holds a receiver for as long as it runs.
    pub stop: watch::Sender<bool>,
    /// Counts the links that came up, for those who tell peers of one another.
    pub ups: watch::Sender<u64>,
    pub started: Instant,
    attempts: AtomicU64,
}

/// Where nodes are looked for.
pub(super) struct Place {
    pub kind: PlaceKind,
    /// Why no node was found there the last time; `None` when one was, or before the first look has ended.
    pub trouble: Option<String>,
}

/// Who named a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// The operator, or the node itself: it is looked at for ever.
    Seed,
    /// Another node.
    Told,
}

/// What [`Shared`] is made of.
pub(super) struct Parts {
    pub own: Peer,
    pub cluster: String,
    pub secret: Secret,
    pub tls: Option<LinkTls>,
    pub overrides: BTreeMap<String, String>,
    pub receiver: Arc<dyn Receiver>,
    pub runtime: Handle,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            own: parts.own,
            cluster: parts.cluster,
            cluster_id: Mutex::new(0),
            secret: parts.secret,
            tls: parts.tls,
            overrides: parts.overrides,
            receiver: parts.receiver,
            counts: LinkCounts::default(),
            peers: RwLock::default(),
            wanted: Mutex::default(),
            places: Mutex::default(),
            runtime: parts.runtime,
            stop: watch::Sender::new(false),
            ups: watch::Sender::new(0),
            started: Instant::now(),
            attempts: AtomicU64::new(0),
        }
    }

    /// What this node says at the beginning of a connection.
    pub(super) fn hello(&self, purpose: Purpose) -> Result<Hello, Failure> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|error| Failure::Network(error.to_string()))?;
        Ok(Hello {
            peer: self.own.clone(),
            cluster: self.cluster.clone(),
            cluster_id: *self.cluster_id.lock(),
            purpose,
            attempt: self.attempts.fetch_add(1, Relaxed) + 1,
            nonce,
        })
    }

    /// Whether somebody who says this may be linked with, as far as one Hello tells.
    pub(super) fn judge(&self, theirs: &Hello) -> Result<(), Refusal> {
        let cluster_id = *self.cluster_id.lock();
        if theirs.cluster != self.cluster {
            Err(Refusal::ClusterName)
        } else if theirs.cluster_id != 0 && cluster_id != 0 && theirs.cluster_id != cluster_id {
            Err(Refusal::ClusterId)
        } else if theirs.peer.id == self.own.id {
            Err(Refusal::Own)
        } else {
            Ok(())
        }
    }

    pub(super) fn peer(&self, id: NodeId) -> Option<Arc<PeerHandle>> {
        self.peers.read().get(&id).cloned()
    }

    /// The peer that has proven to be this one, known from now on if it was not. `met_at` is the address where it was reached.
    pub(super) fn meet(
        self: &Arc<Self>,
        hello: &Hello,
        remote: SocketAddr,
        met_at: Option<SocketAddr>,
    ) -> Result<Arc<PeerHandle>, Refusal> {
        if let Some(handle) = self.peer(hello.peer.id) {
            return Ok(handle);
        }
        let mut peers = self.peers.write();
        if let Some(handle) = peers.get(&hello.peer.id) {
            return Ok(Arc::clone(handle));
        }
        if peers.len() >= PEERS_MAX {
            return Err(Refusal::TooMany);
        }
        let peer = seen(&hello.peer, remote.ip());
        let handle = PeerHandle::start(self, peer, met_at.map(|address| address.to_string()));
        peers.insert(hello.peer.id, Arc::clone(&handle));
        Ok(handle)
    }

    /// The same for a node that was dialled. One that was known already may have moved, or run anew.
    pub(super) async fn meet_dialled(self: &Arc<Self>, dialled: Dialled) -> Result<(), Refusal> {
        let Dialled { hello, remote, .. } = dialled;
        let handle = self.meet(&hello, remote, Some(remote))?;
        let peer = Box::new(seen(&hello.peer, remote.ip()));
        // A peer whose task has just ended is met again at the next look.
        let _ = handle.events.send(Event::Met { peer, at: remote.to_string() }).await;
        Ok(())
    }

    /// Counts a failure and says it, at a bounded rate.
    pub(super) fn note(&self, failure: &Failure, remote: &str) {
        failure.note(&self.counts, remote);
    }
}

/// A peer with the host filled in at which it is seen, if it left that open.
pub(super) fn seen(peer: &Peer, ip: IpAddr) -> Peer {
    let mut peer = peer.clone();
    if let Some(port) = peer.address.strip_prefix(':').and_then(|port| port.parse().ok()) {
        peer.address = SocketAddr::new(ip.to_canonical(), port).to_string();
    }
    peer
}

/// A time from half of `span` to all of it: so that what failed together is not tried again together.
pub(super) fn jittered(span: Duration) -> Duration {
    let mut random = [0; 4];
    // Without randomness there is no jitter, which decides nothing.
    let _ = getrandom::fill(&mut random);
    span.mul_f64(0.5 + 0.5 * f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX))
}

/// Between attempts to reach a peer or a seed: 100 ms, twice as long each time, at most 2 s.
pub(super) fn backoff(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(2);
    jittered(FIRST.saturating_mul(1 << failures.min(5)).min(LONGEST))
}

/// Waits until the links end.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender is gone only when the links are.
    let _ = stop.wait_for(|stop| *stop).await;
}
