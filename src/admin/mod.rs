//! The admin port: health, metrics and commands over HTTP/1.1.
//!
//! It owns its socket, its connections and nothing else: what it tells comes from a [`Source`], which the node implements, and which there is only
//! when the node has started. Until then `/health/live` says yes and everything else 503. The port lives on the node's own runtime, beside the
//! shards, so a question costs a shard no more than its own slice of the answer.
//!
//! | path | what |
//! | --- | --- |
//! | `/health/live` `/health/ready` `/health/startup` `/health/cluster` | 200 or 503, with the checks by name; no token is ever needed (`health.rs`) |
//! | `/livez` `/readyz` `/healthz` | the first two under other names; `/healthz` is readiness |
//! | `/metrics` | everything that is counted, in the text format of Prometheus (`metrics.rs`, `exposition.rs`) |
//! | `/api/v1/…` | questions and commands in JSON: the rows of `table.rs`, which `/api/v1/openapi.json` lists; `routes/`, `view.rs` |
//!
//! Invariants: a body has at most [`BODY_BYTES_MAX`]; at most [`CONNECTIONS_MAX`] connections are open, and the oldest that has no request under way makes
//! room for a new one; every request and every connection has a deadline (`serving.rs`); without a token, only who addresses the port by the name of this
//! machine and comes from no web page is answered (`callers.rs`); nobody gets an answer from a row that its role and scopes do not reach; and every change that was asked for is
//! in the audit log (`audit.rs`).
//!
//! Read first: `tests.rs`, which holds each of these.

mod audit;
mod callers;
mod exposition;
mod health;
mod keys;
pub mod metrics;
mod openapi;
pub mod pages;
mod routes;
mod serving;
mod table;
#[cfg(test)]
mod tests;
mod token;
pub mod view;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use holdfast_raft::{Ban, Command};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::access::acl::{Action, Decision, Subject};
use crate::config;
use crate::mqtt::QoS;

use audit::Audit;
use callers::Callers;
use keys::Keys;

pub use exposition::{Exposition, Kind};
pub use keys::KeysError;
pub use token::{Token, TokenError};

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// Connections at one time.
pub const CONNECTIONS_MAX: usize = 64;

/// Requests other than those about health that are worked on at one time; more wait, within their deadline.
pub const REQUESTS_AT_ONCE: usize = 4;

/// The longest that a request is worked on, its body included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest that the head of a request may take to come, also on a connection that has had one before.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// After so long a connection takes no further request.
pub const CONNECTION_LIFE: Duration = Duration::from_secs(120);

/// Clients on one page at the most, and when nobody says how many.
pub const PAGE_MAX: usize = 1_000;
pub const PAGE_DEFAULT: usize = 100;

/// What takes a while: it asks shards, or other nodes.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the answers come from. What waits must end by itself in less than [`REQUEST_TIMEOUT`].
pub trait Source: Send + Sync + 'static {
    /// Whether the process does its work at all; never a matter of other nodes. A failed check says that a restart would help.
    fn live(&self) -> Vec<view::Check>;

    /// Whether clients should be sent here.
    fn ready(&self) -> Vec<view::Check>;

    /// Whether the start is over, joining a cluster included. Once good, always good.
    fn startup(&self) -> Vec<view::Check>;

    /// The cluster as this node sees it. A node that is alone is a cluster of one.
    fn cluster(&self) -> view::Cluster;

    /// The same with what only other nodes know.
    fn status(&self) -> Soon<'_, view::Cluster> {
        Box::pin(async { self.cluster() })
    }

    /// Writes what this node counts, but for what follows from [`Source::cluster`].
    fn metrics<'a>(&'a self, out: &'a mut Exposition) -> Soon<'a, ()>;

    /// The clients of all nodes, in the order of their ids.
    fn clients(&self, asked: PageRequest) -> Soon<'_, Result<view::ClientPage, Trouble>>;

    /// One client and its subscriptions, wherever it is; `None` when it has no session.
    fn client(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<view::ClientDetail>, Trouble>>;

    /// Connections of all nodes that have ended, the latest first.
    fn closed(&self, asked: ClosedRequest) -> Soon<'_, Result<view::ClosedPage, Trouble>>;

    /// Who would receive a message of this topic, on all nodes.
    fn topic_match(&self, topic: Arc<str>) -> Soon<'_, Result<view::Matches, Trouble>>;

    /// Closes a client's connection, wherever it is; `None` when it has no session.
    fn kick(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<view::Kicked>, Trouble>>;

    /// Joins the cluster that a node at `address` (`host:port`) belongs to.
    fn join(&self, address: String) -> Soon<'_, Result<(), Trouble>>;

    /// Takes this node out of its cluster for good: when the copies of sessions are elsewhere, or at once if that is forced.
    fn leave(&self, force: bool) -> Soon<'_, Result<view::Leaving, Trouble>>;

    /// Takes another node, by name or id, out of the cluster for good: one that will not come back.
    fn force_leave(&self, node: String) -> Soon<'_, Result<(), Trouble>>;

    /// Retained messages that match a filter, in the order of their topics.
    fn retained(&self, asked: RetainedRequest) -> Soon<'_, Result<view::RetainedPage, Trouble>>;

    /// The retained message of a topic.
    fn retained_of(&self, topic: &str) -> Option<view::Retained>;

    /// Removes the retained messages that match a filter, or counts them.
    fn remove_retained(&self, filter: Arc<str>, dry_run: bool) -> Soon<'_, Result<view::RetainedRemoved, Trouble>>;

    /// Publishes all of these, or none if one is wrong.
    fn publish(&self, messages: Vec<PublishRequest>) -> Soon<'_, Result<Vec<view::Published>, Trouble>>;

    /// All nodes, and how much each has to do.
    fn nodes(&self) -> Soon<'_, view::Nodes>;

    /// Empties a node by name, or says how far that is.
    fn drain(&self, node: Arc<str>, terms: view::DrainTerms) -> Soon<'_, Result<view::Drain, Trouble>>;

    /// Has a node take clients again. Whether it was being emptied.
    fn undrain(&self, node: Arc<str>) -> Soon<'_, Result<bool, Trouble>>;

    /// How many clients each node would let go.
    fn rebalance_plan(&self, asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>>;

    /// Has them let go.
    fn rebalance_start(&self, asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>>;

    /// No more are let go.
    fn rebalance_stop(&self) -> Soon<'_, Result<(), Trouble>>;

    /// Has another voter lead if this node does.
    fn transfer_leader(&self) -> Soon<'_, Result<(), Trouble>>;

    /// Whom the nodes do not let in.
    fn bans(&self) -> Vec<Ban>;

    /// Makes a ban, or takes one back, on all nodes.
    fn change_bans(&self, command: Command) -> Soon<'_, Result<(), Trouble>>;

    /// What the rules of this node say.
    fn explain(&self, subject: Subject, action: Action, topic: &str) -> Decision;
}

/// How clients are to be shared out among nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebalanceRequest {
    /// By the names of nodes; 1 for those that are not in it.
    pub weights: HashMap<String, u32>,
    pub terms: view::DrainTerms,
}

/// Which retained messages are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedRequest {
    pub filter: Arc<str>,
    /// 1 to [`PAGE_MAX`].
    pub limit: usize,
    /// Only those of topics behind this one.
    pub after: Option<Arc<str>>,
    /// With their payloads.
    pub values: bool,
}

/// A message to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRequest {
    pub topic: String,
    pub payload: Bytes,
    pub qos: QoS,
    pub retain: bool,
    pub expiry_secs: Option<u32>,
}

/// Which clients are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// 1 to [`PAGE_MAX`].
    pub limit: usize,
    /// Only clients whose id is greater, by its bytes.
    pub after: Option<Arc<str>>,
}

/// Which connections that have ended are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClosedRequest {
    /// 1 to [`PAGE_MAX`].
    pub limit: usize,
    /// Only those before this one.
    pub after: Option<view::ClosedCursor>,
    /// Only those of one client.
    pub client_id: Option<Arc<str>>,
}

/// Why there is no answer, as the asker is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The HTTP status.
    pub status: u16,
    /// A word for programs.
    pub code: &'static str,
    pub message: String,
    /// What to do about it; perhaps empty.
    pub hint: String,
}

impl Trouble {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { status, code, message: message.into(), hint: String::new() }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Trouble {
        self.hint = hint.into();
        self
    }
}

/// Why the port cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("the admin port: cannot listen on {address}: {error}{}", hint(.error))]
    Bind { address: SocketAddr, error: io::Error },
    #[error("the admin port: {0}")]
    Token(#[from] TokenError),
    #[error("the admin port: {0}")]
    Keys(#[from] KeysError),
    #[error("the admin port: its audit log in the data directory cannot be used: {0}")]
    Audit(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program, perhaps another node on this machine, has this port: stop it, or set `bind` under [admin] to another port or to \"off\""
        }
        _ => "",
    }
}

/// The open port.
#[derive(Debug)]
pub struct AdminPort {
    address: SocketAddr,
    stage: Arc<Stage>,
}

/// What all requests have in common.
struct Stage {
    /// Where the answers come from, once there is somebody to give them.
    source: OnceLock<Arc<dyn Source>>,
    callers: Callers,
    keys: Keys,
    audit: Audit,
    places: Semaphore,
}

impl Stage {
    fn source(&self) -> Option<&Arc<dyn Source>> {
        self.source.get()
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stage").field(&self.source.get().is_some()).finish()
    }
}

impl AdminPort {
    /// Opens the port and answers from then on; `None` if there is to be none. To be called within a runtime, which then serves it.
    ///
    /// `data_dir`: where API keys and the audit log are kept; without it they are in memory.
    ///
    /// # Errors
    /// When the address cannot be had, or the token, the keys or the log not be used.
    pub fn open(config: &config::Admin, data_dir: Option<&Path>) -> Result<Option<AdminPort>, OpenError> {
        let Some(bind) = config.bind else {
            return Ok(None);
        };
        let token = config.token_file.as_deref().map(Token::read).transpose()?;
        let failed = |error| OpenError::Bind { address: bind, error };
        let socket = std::net::TcpListener::bind(bind).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let socket = TcpListener::from_std(socket).map_err(failed)?;
        let stage = Arc::new(Stage {
            source: OnceLock::new(),
            callers: Callers::new(token),
            keys: Keys::open(config.keys_file.as_deref(), data_dir)?,
            audit: Audit::open(data_dir).map_err(OpenError::Audit)?,
            places: Semaphore::new(REQUESTS_AT_ONCE),
        });
        let router = routes::router(stage.clone());
        tokio::spawn(serving::accept(socket, router));
        Ok(Some(AdminPort { address, stage }))
    }

    /// The address as bound, which differs from the configured one where that says port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The node has started: answers come from `source` from now on.
    pub fn begin(&self, source: Arc<dyn Source>) {
        // A node starts once.
        let _ = self.stage.source.set(source);
    }
}
