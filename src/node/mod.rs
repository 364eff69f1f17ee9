//! A node: what is started in which order, what watches over it, and how it ends.
//!
//! Start: identity and data directory, access, certificates, the admin port, the state on disk, sockets; then the shards; only when all of them have their
//! sessions do the listeners accept. Anything that is wrong ends the start with an error that names it, before a client was let in.
//!
//! End (SIGTERM or SIGINT): where there are many clients and other nodes, they are let go a few at a time first ([`Draining::end`]), unless a second signal comes. Then the listeners stop accepting, every client is told 0x8B (Server shutting down) and has `shutdown.grace` to take
//! what was written to it, then the shards stop.
//!
//! The node owns what all shards share; each shard owns its sessions. Read `control.rs` for how commands reach the control state.

mod admin_source;
pub mod authentication;
mod bans;
mod cluster;
mod control;
mod draining;
mod durable;
mod files;
mod messages;
mod process_figures;
mod reloading;
mod shards;
mod sys_load;
mod sys_topics;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info, warn};

use holdfast_raft::{LeaseImage, NodeId, Standalone};
use holdfast_storage::{Alive, Identity, IdentityError, Storage};

use crate::access::acl::{AclError, AclSettings};
use crate::access::{Access, LoadError};
use crate::admin::{self, AdminPort};
use crate::admission::NodeGate;
use crate::config::{self, Config};
use crate::journal;
use crate::limits;
use crate::link;
use crate::listener::tcp;
use crate::listener::tls::{TlsError, TlsReload};
use crate::metrics::{self, Metrics, Refusals};
use crate::mqtt::ReasonCode;
use crate::session;
use crate::shard::clock::Clock;
use crate::shard::grant::Grant;
use crate::shard::greeted::{ListenerState, WebSocketAddress};
use crate::shard::mailbox::Event;
use crate::shard::{ControlPlane, Deadlines, FlappingAction, FlappingRules, Shared};

use admin_source::{Alone, Local};
pub use cluster::left_cluster;
use cluster::{ClusterError, ClusterPlane, Membership, note_left};
use control::StandalonePlane;
use draining::Draining;
use durable::TakenUp;
pub use reloading::{ReadAgain, Reload};

/// Why a node does not start, or has not ended as it should.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the data directory cannot be used: {0}")]
    Identity(#[from] IdentityError),
    #[error("the state on disk cannot be taken up: {0}")]
    Recover(#[from] durable::RecoverError),
    #[error("the file \"alive\" in the data directory cannot be used: {0}")]
    Alive(io::Error),
    #[error("{0}")]
    Access(#[from] LoadError),
    #[error("{0}")]
    Acl(#[from] AclError),
    #[error("the bans in the data directory cannot be taken up: {0}")]
    Bans(io::Error),
    #[error("listener \"{listener}\": {error}")]
    Tls { listener: String, error: TlsError },
    #[error("listener \"{listener}\": cannot listen on {address}: {error}{}", hint(.error))]
    Bind { listener: String, address: SocketAddr, error: io::Error },
    #[error("not everything was written to disk at the end: {0}")]
    End(holdfast_storage::CloseError),
    #[error("{0}")]
    Admin(#[from] admin::OpenError),
    #[error("cannot start a thread or its event loop: {0}")]
    Thread(io::Error),
    #[error("{0}")]
    Cluster(#[from] ClusterError),
    #[error(
        "the node of data directory {} has left the cluster \"{cluster}\" for good, or was taken out. Give it an empty data directory to join as a new node; \
         `holdfast data export` reads what is in this one",
        dir.display()
    )]
    Left { dir: PathBuf, cluster: String },
    #[error(
        "this node was taken out of the cluster \"{cluster}\", and is no member any more. Give it an empty data directory to join as a new node; \
         `holdfast data export` reads what is in the one it has"
    )]
    Removed { cluster: String },
}

impl StartError {
    /// Whether what the configuration says is at fault: a file that it names cannot be used. Such errors do not pass by themselves.
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::Access(_)
            | Self::Tls { .. }
            | Self::Admin(admin::OpenError::Token(_) | admin::OpenError::Keys(_)) => true,
            Self::Cluster(error) => error.is_of_configuration(),
            _ => false,
        }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program, perhaps another broker, has this port: stop it or set `bind` to another port"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need a privilege: choose another or grant CAP_NET_BIND_SERVICE"
        }
        _ => "",
    }
}

/// A listener that is bound but does not accept yet.
struct Bound {
    state: Arc<ListenerState>,
    socket: std::net::TcpListener,
    tls: Option<Arc<TlsReload>>,
}

/// What the parts of a node that run for as long as it does have in common.
struct Parts {
    shared: Arc<Shared>,
    access: Arc<Access>,
    refusals: Arc<Refusals>,
    mqtt: Arc<config::Mqtt>,
    listeners: Vec<Bound>,
    draining: Arc<Draining>,
    storage: Option<Storage>,
    /// Whether what is promised waits for the disk.
    defers: bool,
    /// Whether what was on disk is all there.
    whole: bool,
    /// The data directory stays locked for as long as the node runs.
    _identity: Option<Identity>,
}

/// Runs a node until it is told to stop, or has left its cluster. `reload`: where the configuration comes from. `started` is when the process began, for the line that says how long the start took.
pub fn run(config: &Config, reload: Reload, started: Instant) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("node")
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let _entered = runtime.enter();
    files::raise_limit();
    let identity = config.node.data_dir.as_deref().map(Identity::open_or_create).transpose()?;
    refuse_who_has_left(config)?;
    let node_id = NodeId(identity.as_ref().map_or_else(random_id, Identity::node_id));
    let access = Arc::new(authentication::open(config)?);
    let certified = certify(config)?;
    let admin_port = open_admin_port(config)?;
    let (shared, storage, taken_up) = recover(config, node_id)?;
    shared.acl.replace(acl_settings(config))?;
    let listeners = bind_all(certified, config)?;
    let TakenUp { standalone, stored, sequence, alone, whole, .. } = taken_up;
    let plane = Plane::new(config, standalone, &shared, &storage);
    if let (Plane::Alone(plane), Some(dir)) = (&plane, &config.node.data_dir) {
        plane.keep_bans(&dir.join(bans::FILE)).map_err(StartError::Bans)?;
    }
    let mqtt = Arc::new(config.mqtt.clone());
    let defers = config.storage.durability == config::Durability::Disk;
    let refusals = Arc::default();
    let states = listeners.iter().map(|bound| bound.state.clone()).collect();
    let draining = Draining::new(shared.clone(), states, config.shutdown.clone());
    let parts =
        Parts { shared, access, refusals, mqtt, listeners, draining, storage, defers, whole, _identity: identity };
    let (stop, stopping) = watch::channel(false);
    let (open, opened) = watch::channel(config.cluster.is_none());
    let shards = shards::start(&parts, plane.of_shards(), stored, sequence, (&opened, &stopping))?;
    let signals = Signals::watch();
    files::leave_room(config, &parts.listeners);
    let local = Arc::new(local(config, &parts, (&opened, &stopping)));
    let membership = runtime.block_on(plane.begin(config, &parts, alone, (local.clone(), &admin_port), open))?;
    if !config.sys.interval.is_zero() {
        tokio::spawn(sys_topics::run(local, config.sys.interval));
    }
    runtime.block_on(supervise(config, (&parts, &reload), &plane, signals, (&stop, &stopping), (&opened, started)));
    shards.stop();
    if let Some(membership) = &membership {
        runtime.block_on(membership.end());
    }
    let closed = parts.storage.as_ref().map_or(Ok(()), Storage::close);
    tell_left_out(true);
    info!(event = "stopped", "stopped");
    closed.map_err(StartError::End)?;
    match (&plane, &config.cluster) {
        (Plane::Clustered(plane), Some(cluster)) if plane.is_removed() => {
            let noted = config.node.data_dir.as_deref().map_or(Ok(()), |dir| note_left(dir, &cluster.name));
            if let Err(error) = noted {
                // The next start is told anew by the others.
                warn!(event = "removed", %error, "it cannot be written down that this node is no member any more");
            }
            Err(StartError::Removed { cluster: cluster.name.clone() })
        }
        _ => Ok(()),
    }
}

/// Open from here on, so that whoever watches the node sees that it starts, however long that takes.
fn open_admin_port(config: &Config) -> Result<Option<AdminPort>, StartError> {
    let port = AdminPort::open(&config.admin, config.node.data_dir.as_deref())?;
    if let Some(port) = &port {
        info!(event = "admin", address = %port.address(), "health and metrics on http://{}", port.address());
    }
    Ok(port)
}

/// A node that has left a cluster knows of it, and it does not know the node: together they would come to nothing.
fn refuse_who_has_left(config: &Config) -> Result<(), StartError> {
    let (Some(dir), Some(_)) = (&config.node.data_dir, &config.cluster) else {
        return Ok(());
    };
    let read = left_cluster(dir).map_err(|source| IdentityError::Io { path: dir.clone(), source })?;
    read.map_or(Ok(()), |cluster| Err(StartError::Left { dir: dir.clone(), cluster }))
}

fn local(
    config: &Config,
    parts: &Parts,
    (opened, stopping): (&watch::Receiver<bool>, &watch::Receiver<bool>),
) -> Local {
    Local {
        shared: parts.shared.clone(),
        refusals: parts.refusals.clone(),
        access: parts.access.clone(),
        listeners: parts.listeners.iter().map(|bound| bound.state.clone()).collect(),
        storage: parts.storage.clone(),
        name: config.node.name.as_str().into(),
        opened: opened.clone(),
        stopping: stopping.clone(),
        census: Default::default(),
        draining: parts.draining.clone(),
        sys: Default::default(),
        others: Default::default(),
    }
}

/// Where the commands of the shards go.
enum Plane {
    Alone(Arc<StandalonePlane>),
    Clustered(Arc<ClusterPlane>),
}

impl Plane {
    fn new(config: &Config, standalone: Standalone, shared: &Arc<Shared>, storage: &Option<Storage>) -> Plane {
        match &config.cluster {
            None => Plane::Alone(Arc::new(StandalonePlane::new(standalone, shared.clone(), storage.clone()))),
            Some(cluster) => {
                let linger_ms = cluster.timers.route_linger.as_millis() as u64;
                Plane::Clustered(Arc::new(ClusterPlane::new(shared.clone(), linger_ms)))
            }
        }
    }

    fn of_shards(&self) -> Arc<dyn ControlPlane> {
        match self {
            Plane::Alone(plane) => plane.clone(),
            Plane::Clustered(plane) => plane.clone(),
        }
    }

    /// Begins to be one of a cluster, if the node is to be, and to tell who asks at the admin port.
    async fn begin(
        &self,
        config: &Config,
        parts: &Parts,
        alone: Vec<LeaseImage>,
        (local, port): (Arc<Local>, &Option<AdminPort>),
        open: watch::Sender<bool>,
    ) -> Result<Option<Membership>, StartError> {
        let Parts { shared, storage, whole, .. } = parts;
        let (plane, cluster) = match (self, &config.cluster) {
            (Plane::Clustered(plane), Some(cluster)) => (plane, cluster),
            (Plane::Alone(plane), _) => {
                if let Some(port) = port {
                    port.begin(Arc::new(Alone { local, node: shared.node, plane: plane.clone() }));
                }
                return Ok(None);
            }
            (Plane::Clustered(_), None) => return Ok(None),
        };
        let whole = *whole;
        let beginning = cluster::Beginning { config, cluster, shared, storage, whole, plane, alone, local, port };
        Ok(Some(cluster::start(beginning, open).await?))
    }

    /// Until the node has left its cluster for good.
    async fn left(&self) {
        match self {
            Plane::Alone(_) => std::future::pending().await,
            // The plane holds the sender.
            Plane::Clustered(plane) => _ = plane.left().subscribe().wait_for(|left| *left).await,
        }
    }
}

/// What is on disk, if anything is to be: before the sockets are opened, as it may take its time.
fn recover(config: &Config, node: NodeId) -> Result<(Arc<Shared>, Option<Storage>, TakenUp), StartError> {
    let (name, shards) = (&config.node.name, shards_of(config));
    let Some(data_dir) = &config.node.data_dir else {
        let shared = Arc::new(share(config, node, shards, (0, 0)));
        return Ok((shared, None, durable::nothing(node, name, shards)));
    };
    let began = Instant::now();
    let alive = Alive::open(data_dir).map_err(StartError::Alive)?;
    info!(event = "recovering", data_dir = %data_dir.display(), "reading the state on disk");
    if alive.last() > 0 && is_missing_or_empty(&data_dir.join("journal")) {
        return Err(durable::RecoverError::Gone.into());
    }
    let mut opened = durable::open(data_dir, &config.storage, shards)?;
    let owners = opened.recovered.owner_max.map_or(0, |owner| owner.0).max(journal::SESSIONS.0);
    let last_time = durable::last_seen(opened.recovered.last_time, alive.last());
    opened.recovered.last_time = last_time;
    let shared = Arc::new(share(config, node, shards, (last_time, owners)));
    let mut taken_up = durable::take_up(&mut opened, (node, name), &shared, config.storage.on_corruption)?;
    durable::beat(alive, shared.clock).map_err(StartError::Thread)?;
    let storage = durable::start(opened, &mut taken_up, &shared).map_err(StartError::Thread)?;
    info!(event = "recovered", recover_ms = began.elapsed().as_millis() as u64, "the state on disk was read");
    Ok((shared, Some(storage), taken_up))
}

fn is_missing_or_empty(dir: &std::path::Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

fn shards_of(config: &Config) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = if config.node.shards == 0 { cores } else { config.node.shards };
    shards.min(limits::SHARDS_MAX)
}

/// Threads for work that blocks: password hashes of the node's own runtime.
const BLOCKING_THREADS: usize = 4;

fn random_id() -> u128 {
    let mut bytes = [0; 16];
    // Without a random source every node in memory has the id 0: it is alone and nobody compares it.
    let _ = getrandom::fill(&mut bytes);
    u128::from_be_bytes(bytes)
}

fn share(config: &Config, node: NodeId, shards: usize, (last_time, owners): (u64, u64)) -> Shared {
    Shared {
        node,
        node_tag: node.tag(),
        clock: Clock::start_at(last_time),
        limits: session_limits(config),
        retained_max: config.mqtt.retained_max_messages,
        retained_bytes_max: config.mqtt.retained_max_bytes,
        shutdown_grace_ms: config.shutdown.grace.as_millis() as u64,
        connection_messages: config.log.connection_messages,
        flapping: flapping_rules(&config.flapping),
        bans: Default::default(),
        acl: Default::default(),
        denial_expels: config.acl.deny_action == config::DenyAction::Disconnect,
        metrics: Metrics::new(shards),
        closed: Default::default(),
        mailboxes: (0..shards).map(|_| Default::default()).collect(),
        index: Default::default(),
        retained: Default::default(),
        hybrid: Default::default(),
        storage_level: Default::default(),
        owners: owners.into(),
        clustered: config.cluster.is_some(),
        // Without a disk there is nothing of which there could be a copy.
        copies: config.node.data_dir.is_some()
            && config.cluster.as_ref().is_some_and(|cluster| cluster.session_copies > 1),
        short_heirs: AtomicU64::new(0),
        run: random_id() as u64,
        incarnation: AtomicU64::new(0),
        grant: if config.cluster.is_some() { Grant::none() } else { Grant::always() },
        cluster_index: Default::default(),
        wills_seen: Default::default(),
        shares_had: Default::default(),
        unsettled: Default::default(),
        patience: config.cluster.as_ref().map(|cluster| deadlines(&cluster.timers)).unwrap_or_default(),
    }
}

fn flapping_rules(flapping: &config::Flapping) -> FlappingRules {
    FlappingRules {
        enabled: flapping.enabled,
        window_ms: flapping.window.as_millis() as u64,
        max_count: flapping.max_count,
        action: match flapping.action {
            config::FlappingAction::Log => FlappingAction::Log,
            config::FlappingAction::Delay => FlappingAction::Delay,
            config::FlappingAction::Ban => FlappingAction::Ban,
        },
        ban_ms: flapping.ban_time.as_millis() as u64,
    }
}

/// What the configuration says about rules: for the node, and for the listeners that differ.
pub fn acl_settings(config: &Config) -> (AclSettings, Vec<(String, AclSettings)>) {
    let everywhere = &config.acl;
    let allows = |no_match| no_match == config::NoMatch::Allow;
    let own = config.listeners.iter().filter_map(|listener| {
        let own = listener.acl.as_ref()?;
        let file = own.file.clone().or_else(|| everywhere.file.clone());
        let allows_unmatched = allows(own.no_match.unwrap_or(everywhere.no_match));
        Some((listener.name.clone(), AclSettings { file, allows_unmatched }))
    });
    let settings = AclSettings { file: everywhere.file.clone(), allows_unmatched: allows(everywhere.no_match) };
    (settings, own.collect())
}

fn deadlines(timers: &config::ClusterTimers) -> Deadlines {
    let mut deadlines =
        Deadlines { subscribe_ms: timers.subscribe_deadline.as_millis() as u64, ..Deadlines::default() };
    // Who holds a session is dead after a lease, or moves on.
    deadlines.moves.give_up_ms = timers.lease.as_millis() as u64 + 2_000;
    deadlines
}

fn session_limits(Config { mqtt, storage, acl, .. }: &Config) -> session::Limits {
    session::Limits {
        packet_size_max: mqtt.max_packet_size,
        inflight_max: mqtt.max_inflight,
        receive_maximum: mqtt.receive_maximum,
        topic_alias_max: mqtt.topic_alias_max,
        topic_levels_max: mqtt.max_topic_levels,
        subscriptions_max: mqtt.max_subscriptions,
        broad_subscriptions_max: acl.max_broad_subscriptions,
        queued_messages_max: mqtt.max_queued_messages,
        queued_bytes_max: mqtt.max_queued_bytes,
        queue_window_bytes: storage.queue_window_bytes,
        queue_full: match mqtt.queue_full {
            config::QueueFull::DropOldest => session::QueueFull::DropOldest,
            config::QueueFull::DropNewest => session::QueueFull::DropNewest,
            config::QueueFull::Disconnect => session::QueueFull::Disconnect,
        },
        queue_qos0: mqtt.queue_qos0,
        session_expiry_max_secs: mqtt.session_expiry_max_secs(),
        retain_available: mqtt.retain_available,
        keep_alive_backoff: mqtt.keepalive_backoff,
        will_bytes_max: limits::WILL_BYTES_MAX,
    }
}

/// A listener and, if it speaks TLS, its certificates.
type Certified<'c> = (&'c config::Listener, Option<Arc<TlsReload>>);

/// Reads the certificates of all listeners, before any socket is opened: files that cannot be used are told whether or not the ports are free.
fn certify(config: &Config) -> Result<Vec<Certified<'_>>, StartError> {
    let listeners = &config.listeners;
    let secret = config.cluster.as_ref().map(|cluster| link::Secret::read(&cluster.secret_file)).transpose();
    let secret = secret.map_err(link::StartError::from).map_err(ClusterError::from)?;
    let certify = |listener: &'_ _| {
        let config::Listener { name, tls, .. } = listener;
        let key = secret.as_ref().map(|secret| secret.derive("TLS tickets", name));
        let tls = tls.as_ref().map(|files| TlsReload::with_ticket_key(name, files, key.as_ref())).transpose();
        tls.map_err(|error| StartError::Tls { listener: name.clone(), error })
    };
    listeners.iter().map(|listener| Ok((listener, certify(listener)?))).collect()
}

/// Opens the sockets of all listeners. A node of a cluster does not listen before it serves: who comes earlier is refused by the kernel, and tries another node.
fn bind_all(certified: Vec<Certified<'_>>, config: &Config) -> Result<Vec<Bound>, StartError> {
    let mqtt = &config.mqtt;
    let mut bound = Vec::new();
    for (listener, tls) in certified {
        let named = |error| StartError::Bind { listener: listener.name.clone(), address: listener.bind, error };
        let open = if config.cluster.is_none() { tcp::bind } else { tcp::reserve };
        let socket = open(listener.bind).map_err(named)?;
        let address = socket.local_addr().map_err(named)?;
        bound.push((listener, socket, address, tls));
    }
    let websockets: Vec<_> = bound
        .iter()
        .filter(|(listener, ..)| listener.is_websocket())
        .map(|(listener, _, address, tls)| WebSocketAddress {
            port: address.port(),
            path: listener.path.clone(),
            tls: tls.is_some(),
        })
        .collect();
    let node = Arc::new(NodeGate::new(&config.limits));
    let bind = |(listener, socket, address, tls): (&config::Listener, std::net::TcpListener, _, Option<_>)| {
        let websocket = nearest(&websockets, tls.is_some());
        let cap = listener.keep_alive_cap(mqtt);
        let state = ListenerState::new(listener.clone(), address)
            .with_websocket(websocket)
            .with_keep_alive_cap(cap)
            .on_node(node.clone());
        let twin = socket.try_clone();
        let twin = twin.map_err(|error| StartError::Bind { listener: listener.name.clone(), address, error })?;
        state.doors.hold(twin, address);
        Ok(Bound { state: Arc::new(state), socket, tls })
    };
    bound.into_iter().map(bind).collect()
}

/// The WebSocket listener that a client who came to the wrong port is told: one with TLS if it came with TLS, as far as there is one.
fn nearest(websockets: &[WebSocketAddress], tls: bool) -> Option<WebSocketAddress> {
    websockets.iter().find(|address| address.tls == tls).or(websockets.first()).cloned()
}

/// One line for each open address, then one that says the node is ready.
fn announce(config: &Config, parts: &Parts, started: Instant) {
    for Bound { state, tls, .. } in &parts.listeners {
        let protocol = if state.config.is_websocket() { "ws" } else { "mqtt" };
        let path = if state.config.is_websocket() { state.config.path.as_str() } else { "" };
        info!(
            event = "listening",
            listener = state.config.name,
            protocol,
            tls = tls.is_some(),
            address = %state.bound,
            anonymous = state.config.allow_anonymous.unwrap_or(false),
            "listening on {}://{}{path}",
            state.config.scheme(),
            state.bound,
        );
    }
    let durability = durable::in_words(config);
    info!(
        event = "ready",
        node = config.node.name,
        shards = parts.shared.mailboxes.len(),
        start_ms = started.elapsed().as_millis() as u64,
        durability,
        "ready"
    );
}

/// Runs the node's own tasks until a signal says stop, then lets the clients go.
async fn supervise(
    config: &Config,
    (parts, reload): (&Parts, &Reload),
    plane: &Plane,
    signals: io::Result<Signals>,
    (stop, stopping): (&watch::Sender<bool>, &watch::Receiver<bool>),
    (opened, started): (&watch::Receiver<bool>, Instant),
) {
    if let Plane::Alone(plane) = plane {
        tokio::spawn(control::run_clock(plane.clone()));
    }
    tokio::spawn(expire_retained(parts.shared.clone(), parts.storage.clone()));
    tokio::spawn(watch_left_out());
    tokio::spawn(parts.draining.clone().measure());
    for bound in &parts.listeners {
        if let Some(tls) = &bound.tls {
            tokio::spawn(tls.clone().watch(stopping.clone()));
        }
    }
    match signals {
        Ok(mut signals) => {
            let announced = async {
                let mut opened = opened.clone();
                if opened.wait_for(|open| *open).await.is_ok() {
                    announce(config, parts, started);
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = signals.wait_for_stop(parts, reload) => parts.draining.end(signals.wait_for_stop(parts, reload)).await,
                () = plane.left() => {}
                () = announced => {}
            }
        }
        Err(error) => error!(event = "signals", %error, "cannot wait for signals: stopping"),
    }
    // Listeners stop accepting; the receivers that are left are those of the shards.
    let _ = stop.send(true);
    let grace = config.shutdown.grace;
    info!(
        event = "stopping",
        connections = parts.shared.metrics.sum(|shard| &shard.connections),
        grace_ms = grace.as_millis() as u64,
        "stopping"
    );
    parts
        .shared
        .mailboxes
        .iter()
        .for_each(|mailbox| mailbox.push(Event::CloseAll { reason: ReasonCode::ServerShuttingDown }));
    let deadline = Instant::now() + grace;
    while parts.shared.metrics.sum(|shard| &shard.connections) > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The signals that the node knows. They are watched before it says that it is ready.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at SIGTERM or SIGINT. SIGHUP reads the configuration and the files that it names again.
    async fn wait_for_stop(&mut self, parts: &Parts, reload: &Reload) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => reload.run(parts),
            }
        }
    }
}

/// Removes retained messages whose expiry has come, and what is remembered of those that are long gone.
async fn expire_retained(shared: Arc<Shared>, storage: Option<Storage>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let now = shared.clock.now();
        while shared.retained.read().next_expiry().is_some_and(|at| at <= now) {
            let expired = shared.retained.write().expire(now, limits::RETAINED_EXPIRE_BATCH);
            if let Some(storage) = &storage {
                durable::write_expired(storage, &shared, expired);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Tells, for ever, what the log left out about causes that have become quiet.
async fn watch_left_out() {
    let mut tick = tokio::time::interval(Duration::from_secs(metrics::LOG_QUIET_SECS));
    loop {
        tick.tick().await;
        tell_left_out(false);
    }
}

fn tell_left_out(at_the_end: bool) {
    if let Some(left_out) = metrics::take_left_out(at_the_end) {
        let causes = left_out.causes.as_str();
        warn!(
            event = "left_out",
            left_out = left_out.lines,
            causes,
            "lines were left out: more than one a second of a cause"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_at_the_wrong_port_is_told_the_websocket_listener_of_its_own_kind() {
        let at = |port, tls| WebSocketAddress { port, path: "/mqtt".to_owned(), tls };
        let both = [at(1, false), at(2, true)];
        let port = |found: Option<WebSocketAddress>| found.map(|address| address.port);
        assert_eq!(port(nearest(&both, false)), Some(1));
        assert_eq!(port(nearest(&both, true)), Some(2));
        assert_eq!(port(nearest(&both[..1], true)), Some(1), "better than nothing");
        assert_eq!(nearest(&[], true), None);
    }
}
