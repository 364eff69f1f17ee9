//! [`Links`]: all links of one node, as the node holds them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use holdfast_raft::NodeId;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::accept::{accept, listen};
use super::peer::PeerHandle;
use super::refusal::LinkCounts;
use super::secret::{Secret, SecretError};
use super::shared::{Parts, PlaceKind, Shared};
use super::tls::{LinkTls, LinkTlsError};
use super::{KINDS, Lane, PAYLOAD_BYTES_MAX, Peer, Receiver};
use crate::config::Cluster;
use crate::limits::SHARDS_MAX;
use crate::subscriptions::ShardId;

/// How long the end of all links may take: nothing in it waits for a peer.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there are no links.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{bind} cannot be bound: {cause}")]
    Bind { bind: SocketAddr, cause: std::io::Error },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Tls(#[from] LinkTlsError),
}

impl StartError {
    /// The key of the configuration that is at fault, by its full name.
    pub fn key(&self) -> String {
        match self {
            Self::Bind { .. } => "cluster.bind".to_owned(),
            Self::Secret(_) => "cluster.secret_file".to_owned(),
            Self::Tls(error) => format!("cluster.tls.{}", error.key),
        }
    }
}

/// What is wrong with the files that the configuration names, without a start.
pub fn wrong_files(config: &Cluster) -> Vec<StartError> {
    let secret = Secret::read(&config.secret_file).err().map(StartError::from);
    let tls = config.tls.as_ref().and_then(|files| LinkTls::new(files).err()).map(StartError::from);
    secret.into_iter().chain(tls).collect()
}

/// What people see of one peer.
#[derive(Debug, Clone)]
pub struct PeerView {
    /// As it is in its latest run.
    pub peer: Arc<Peer>,
    /// Whether the control connections are up both ways.
    pub is_up: bool,
    /// The last round trip on the control connection, in milliseconds; `None` before the first.
    pub rtt_ms: Option<f64>,
    /// Bytes that came from it and went to it on control and bulk connections, since this node knows it.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Bytes that wait to be sent, on the control lane and on the bulk lane.
    pub control_queue_bytes: usize,
    pub bulk_queue_bytes: usize,
    /// Why the link is not up, as far as it is known; `None` while it is up.
    pub last_error: Option<String>,
}

/// All links of one node. Clones are the same links; they end by [`Links::stop`], or with the last clone.
#[derive(Clone)]
pub struct Links(Arc<Ending>);

/// Ends the links when nobody holds them any more.
struct Ending {
    shared: Arc<Shared>,
    local: SocketAddr,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

impl Links {
    /// Opens the address of the configuration, and begins to look for the other nodes. `own` says who this node is; its address is made from the
    /// configuration. Everything runs on `runtime`, which must be one of several threads with time and I/O.
    ///
    /// # Errors
    /// When the address cannot be bound, there is no good secret, or the TLS files cannot be used.
    pub fn start(
        config: &Cluster,
        own: Peer,
        receiver: Arc<dyn Receiver>,
        runtime: &Handle,
    ) -> Result<Self, StartError> {
        let secret = Secret::read(&config.secret_file)?;
        let tls = config.tls.as_ref().map(LinkTls::new).transpose()?;
        let bind = |cause| StartError::Bind { bind: config.bind, cause };
        let listener = listen(config.bind).map_err(bind)?;
        let local = listener.local_addr().map_err(bind)?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener).map_err(bind)?
        };
        let address = config.advertise.clone().unwrap_or_else(|| advertised(local));
        let shared = Arc::new(Shared::new(Parts {
            own: Peer { address, ..own },
            cluster: config.name.clone(),
            secret,
            tls,
            overrides: config.peer_addresses.clone(),
            receiver,
            runtime: runtime.clone(),
        }));
        runtime.spawn(accept(Arc::clone(&shared), listener, shared.stop.subscribe()));
        for seed in &config.seeds {
            shared.look_at(seed, PlaceKind::Seed);
        }
        Ok(Self(Arc::new(Ending { shared, local })))
    }

    /// Who this node says it is.
    pub fn own(&self) -> &Peer {
        &self.shared().own
    }

    /// The address that was bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// Queues a frame. False when there is no link to that peer, or no room: a full bulk lane takes it later, a full control lane has
    /// broken the link. True does not say that it arrives: it is lost with the connection, and whoever needs it there repeats it.
    ///
    /// # Panics
    /// When the kind is not below [`KINDS`], or the payload longer than [`PAYLOAD_BYTES_MAX`].
    pub fn send(&self, to: NodeId, lane: Lane, kind: u8, payload: Bytes) -> bool {
        assert!(kind < KINDS, "kind {kind} belongs to the links");
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes", payload.len());
        self.shared().peer(to).is_some_and(|peer| peer.send(self.shared(), lane, kind, payload))
    }

    /// The peers whose link is up, in the order of their ids.
    pub fn linked(&self) -> Vec<NodeId> {
        let mut linked: Vec<_> =
            self.shared().peers.read().values().filter(|peer| peer.is_up()).map(|peer| peer.id).collect();
        linked.sort_unstable();
        linked
    }

    /// The peer of that id, if its link is up.
    pub fn linked_peer(&self, id: NodeId) -> Option<Arc<Peer>> {
        let handle = self.shared().peer(id).filter(|peer| peer.is_up())?;
        let peer = Arc::clone(&handle.shown.lock().peer);
        Some(peer)
    }

    /// All peers that are known, in the order of their names.
    pub fn peers(&self) -> Vec<PeerView> {
        let handles: Vec<_> = self.shared().peers.read().values().cloned().collect();
        let mut views: Vec<_> = handles.iter().map(|handle| view(handle)).collect();
        views.sort_by(|one, other| (&one.peer.name, one.peer.id).cmp(&(&other.peer.name, other.peer.id)));
        views
    }

    /// Asks for a data connection to the peer from each of these shards of ours, whether it was met yet or not: each comes by [`Receiver::data_out`] whenever the link comes up,
    /// and again after it has ended ([`Links::data_ended`]).
    pub fn want_data(&self, peer: NodeId, shards: Range<ShardId>) {
        let wanted =
            shards.filter(|shard| usize::from(*shard) < SHARDS_MAX).fold(0, |mask, shard| mask | 1u64 << shard);
        // Who meets it just now sees what was wanted before, or is asked.
        *self.shared().wanted.lock().entry(peer).or_default() |= wanted;
        self.ask(peer, |asked| asked.wanted |= wanted);
    }

    /// The opposite of [`Links::want_data`], for all shards. What was handed out stays with whoever has it.
    pub fn drop_data(&self, peer: NodeId) {
        self.shared().wanted.lock().remove(&peer);
        self.ask(peer, |asked| asked.wanted = 0);
    }

    /// The data connection that this shard of ours was given last has ended; it is dialled again if it is still wanted. Not to be said of one
    /// whose place another one took.
    pub fn data_ended(&self, peer: NodeId, shard: ShardId) {
        if usize::from(shard) < SHARDS_MAX {
            self.ask(peer, |asked| asked.ended |= 1 << shard);
        }
    }

    /// Looks for nodes at this host and port from now on. False if too many places are looked at already.
    pub fn add_seed(&self, address: &str) -> bool {
        self.shared().look_at(address, PlaceKind::Seed)
    }

    /// The seeds where no node was found at the last look, in their order, and why.
    pub fn seeds_without_nodes(&self) -> Vec<(String, String)> {
        let places = self.shared().places.lock();
        let seeds = places.iter().filter(|(_, place)| place.kind == PlaceKind::Seed);
        let mut without: Vec<_> =
            seeds.filter_map(|(seed, place)| Some((seed.clone(), place.trouble.clone()?))).collect();
        without.sort();
        without
    }

    /// The id of the cluster that this node belongs to, once it does: nodes of another one of the same name are refused from then on.
    pub fn set_cluster_id(&self, id: u128) {
        *self.shared().cluster_id.lock() = id;
    }

    /// What happened on all links.
    pub fn counts(&self) -> &LinkCounts {
        &self.shared().counts
    }

    /// Ends all links: `down` is called for each that is up, and nothing is called when this has returned.
    pub async fn stop(&self) {
        let stop = &self.shared().stop;
        stop.send_replace(true);
        // Every task that lasts holds a receiver.
        let _ = timeout(STOP_TIMEOUT, stop.closed()).await;
    }

    fn ask(&self, peer: NodeId, change: impl FnOnce(&mut super::peer::Asked)) {
        if let Some(handle) = self.shared().peer(peer) {
            change(&mut handle.asked.lock());
            handle.asked_wake.notify_one();
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }
}

/// Where others reach whoever has bound this: where any address was bound, only the port is known here.
fn advertised(local: SocketAddr) -> String {
    if local.ip().is_unspecified() { format!(":{}", local.port()) } else { local.to_string() }
}

fn view(handle: &PeerHandle) -> PeerView {
    let shown = handle.shown.lock().clone();
    let is_up = handle.is_up();
    let rtt = handle.rtt_micros.load(Relaxed);
    PeerView {
        peer: shown.peer,
        is_up,
        rtt_ms: (rtt > 0).then_some(rtt as f64 / 1000.0),
        bytes_in: handle.bytes_in.load(Relaxed),
        bytes_out: handle.bytes_out.load(Relaxed),
        control_queue_bytes: handle.control.bytes(),
        bulk_queue_bytes: handle.bulk.bytes(),
        last_error: shown.last_error.filter(|_| !is_up),
    }
}
