//! The answers of the admin port, as values: what `/api/v1` and the health pages say in JSON, and what nodes may send one another of it.
//!
//! Plain: every field is always there, and nothing is flattened, so that any format of serde carries them. A field may be added; none changes its
//! meaning.

use serde::{Deserialize, Serialize};

use crate::access::bans::WrittenBan;

pub use super::table::{Role, Scope};

/// One thing that a probe looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// What is wrong, or what is good about it; perhaps empty.
    pub detail: String,
}

impl Check {
    pub fn new(name: &str, ok: bool, detail: impl Into<String>) -> Check {
        Check { name: name.to_owned(), ok, detail: detail.into() }
    }
}

/// The body of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok` or `failed`.
    pub status: String,
    pub checks: Vec<Check>,
}

/// What is said when a request cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub code: String,
    pub message: String,
    pub hint: String,
}

/// The cluster as one node sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The name of the cluster; that of the node if it is alone.
    pub name: String,
    /// 32 hexadecimal digits; `None` while the node belongs to no cluster.
    pub id: Option<String>,
    /// Whether the node is configured to be one of several.
    pub clustered: bool,
    /// The name of the node that answers.
    pub node: String,
    pub nodes: Vec<Member>,
    /// The name of the leader, as far as the node knows it.
    pub leader: Option<String>,
    pub term: u64,
    /// Whether most of the voters can agree, as far as the node knows.
    pub quorum: bool,
    /// Whether the loss of one more voter would end that.
    pub quorum_critical: bool,
    /// The last entry of the log that the node has, and the last that it has applied.
    pub last_log: u64,
    pub applied: u64,
    /// Entries that are known to be decided, or at least there, and not applied here.
    pub apply_lag: u64,
    /// For how long the node may still serve its clients without hearing from the leader; `None` for one that needs no grant.
    pub grant_remaining_ms: Option<u64>,
    /// The node serves nobody: its grant has run out, or it has none yet.
    pub suspended: bool,
    /// Times that happened since the start.
    pub suspended_total: u64,
    /// Times another leader was seen since the start.
    pub leader_changes_total: u64,
    /// Bytes of Wills in the control state.
    pub will_bytes: u64,
    /// The links to the other nodes.
    pub links: Vec<Link>,
    /// Who has the copies of whose sessions; empty where sessions have none.
    #[serde(default)]
    pub copies: Vec<CopiesAt>,
}

/// The answer to who wants a node to leave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// The node has left, and its process ends.
    pub done: bool,
    /// If not, what it does or waits for: who asks again is told of the same departure.
    #[serde(default)]
    pub progress: String,
}

/// The copies of one node's sessions on another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesAt {
    /// The name of the node that has the sessions, and of the other one.
    pub home: String,
    pub heir: String,
    /// Their ids, 32 hexadecimal digits: a node that has lost its disk has the name of an earlier one.
    #[serde(default)]
    pub home_id: String,
    #[serde(default)]
    pub heir_id: String,
    /// `complete`, `filling`, `stale` for one that has missed something and is no heir until it is filled, or `incomplete` where sessions have come to the home since.
    pub state: String,
    /// As the home says; `None` if it was not asked, or did not answer.
    #[serde(default)]
    pub figures: Option<CopyFigures>,
}

/// How far one node's copies on another one are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFigures {
    /// Sessions that were to be sent whole since the heirs last changed, those of them that were, and the bytes of these.
    pub to_fill: u64,
    pub filled: u64,
    pub filled_bytes: u64,
    /// What was sent and is not accepted yet, in bytes and in entries.
    pub lag_bytes: u64,
    pub lag_records: u64,
}

/// A node of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// 32 hexadecimal digits.
    pub id: String,
    pub name: String,
    /// Where the others reach it.
    pub address: Option<String>,
    /// Grows each time the node is taken into the control state.
    pub incarnation: u64,
    /// Whether the control state takes it for alive. Without a quorum that is what was last known.
    pub live: bool,
    pub voter: bool,
    pub leader: bool,
    /// Whether it is the node that answers.
    pub own: bool,
}

/// The link from the node that answers to another one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The name of the other node, and its id.
    pub peer: String,
    pub peer_id: String,
    pub address: Option<String>,
    pub up: bool,
    pub rtt_ms: Option<f64>,
    /// On its control and bulk connections.
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Bytes that wait to be written to control and bulk connections.
    pub queue_bytes: u64,
    /// Bytes of publishes that wait to be written, or to be accepted by the other node.
    pub forward_queue_bytes: u64,
    /// What the other node has not accepted of the copies of this one's sessions, in bytes and in entries.
    #[serde(default)]
    pub copy_lag_bytes: u64,
    #[serde(default)]
    pub copy_lag_records: u64,
    /// Why it is not up, or was not the last time; perhaps empty.
    pub last_error: String,
}

/// A client, which is a session and perhaps its connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub client_id: String,
    /// The name of the node that has the session, and its event loop there.
    pub node: String,
    pub shard: u16,
    pub connected: bool,
    /// What there is only with a connection: `3.1`, `3.1.1` or `5.0`; the address it comes from; its listener; whom it is known to be; when its socket
    /// was accepted, in milliseconds since 1970.
    pub version: Option<String>,
    pub peer: Option<String>,
    pub listener: Option<String>,
    pub user_name: Option<String>,
    pub connected_at_ms: Option<u64>,
    /// Bytes that are encoded and not written yet.
    pub outbox_bytes: u64,
    /// For how long the session outlives its connection; `None`: for ever.
    pub session_expiry_secs: Option<u32>,
    /// Grows each time a connection takes the session.
    pub epoch: u64,
    pub subscriptions: u64,
    pub queue_messages: u64,
    pub queue_bytes: u64,
    /// Messages of QoS 1 and 2 on their way to the client.
    pub inflight: u64,
    /// Messages that the session lost by its limits.
    pub dropped: u64,
}

/// Some clients, in the order of the bytes of their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientPage {
    pub clients: Vec<Client>,
    /// What to say as `after` for the next page; `None` at the end.
    pub next: Option<String>,
    /// Names of nodes that did not answer: their clients are not here.
    pub missing: Vec<String>,
}

/// A client and its subscriptions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientDetail {
    pub client: Client,
    /// In the order of the filters.
    pub subscriptions: Vec<Subscription>,
    /// Whether there are more than are shown.
    pub truncated: bool,
}

/// A subscription of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub subscription_id: Option<u32>,
}

/// What became of a client that was to be thrown out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kicked {
    pub client_id: String,
    /// The node that has the session.
    pub node: String,
    /// Whether there was a connection to close.
    pub was_connected: bool,
}

/// How much a node has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub node: String,
    pub connections: u64,
    /// What its listeners take together.
    pub connections_max: u64,
    /// The most clients that it has let in within one second, or what is taken for granted until it has shown more.
    pub handshakes_per_sec: u32,
    pub sessions: u64,
    /// What it does with its clients, if it lets any go.
    pub drain: Option<Drain>,
}

/// How far a node is with letting clients go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// `not_ready`, `closing`, `paused`, `handing_over`, `waiting`, `drained` or `aborted`; `shedding` when it is to keep most of them.
    pub phase: String,
    /// Why it does not go on, or was given up; perhaps empty.
    pub reason: String,
    /// Connections when it began, those that are still to go, and those that it has closed.
    pub began_with: u64,
    pub remaining: u64,
    pub closed: u64,
    /// How many more there are on the other nodes than before; `None` while that is not counted.
    pub returned: Option<u64>,
    /// Connections a second, and how long the rest takes at that.
    pub rate: u32,
    pub eta_ms: u64,
    /// How many more connections the other nodes take, together, and how many a second they have shown to take.
    pub headroom: u64,
    pub capacity: u32,
}

/// How clients are to be let go; what is not said is as configured under `[shutdown]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrainTerms {
    /// Connections a second.
    pub rate: Option<u32>,
    pub spread_ms: Option<u64>,
    pub grace_ms: Option<u64>,
    /// Where clients of MQTT 5.0 are told to go (Server Reference).
    pub redirect: Option<String>,
    /// Whether or not they come back elsewhere.
    pub force: bool,
}

/// All nodes, and how much each has to do; `None` for one that does not answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    pub nodes: Vec<NodeLoad>,
}

/// A node, and how much it has to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeLoad {
    pub member: Member,
    pub load: Option<Load>,
}

/// How many clients each node should let go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebalance {
    pub nodes: Vec<RebalanceNode>,
}

/// Of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceNode {
    pub node: String,
    pub weight: u32,
    pub connections: u64,
    /// How many it should have, and how many it lets go for that.
    pub share: u64,
    pub lets_go: u64,
}

/// A retained message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retained {
    pub topic: String,
    pub qos: u8,
    /// Of its payload.
    pub bytes: u64,
    /// The client id of its publisher; empty for one that came by HTTP.
    pub publisher: String,
    pub expires_in_secs: Option<u64>,
    /// Where it was asked for.
    pub payload_base64: Option<String>,
}

/// Some retained messages, in the order of their topics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetainedPage {
    pub messages: Vec<Retained>,
    /// What to say as `after` for the next page; `None` at the end.
    pub next: Option<String>,
}

/// What became of retained messages that were to be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetainedRemoved {
    pub matched: u64,
    pub removed: u64,
    /// There are more than one request removes.
    pub more: bool,
}

/// What became of a message that was published.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Somebody subscribes to its topic.
    pub matched: bool,
}

/// Of several, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedAll {
    pub messages: Vec<Published>,
}

/// An API key, without what lets anybody in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub scopes: Vec<Scope>,
    pub created_at_ms: u64,
}

/// An API key that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    pub key: Key,
    /// What its holder shows. It is nowhere else.
    pub secret: String,
}

/// All API keys of a node, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// Whom the nodes do not let in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bans {
    pub bans: Vec<WrittenBan>,
}

/// A change that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited {
    /// Grows with each.
    pub number: u64,
    /// When it was asked for, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who asked: `local`, `token` or `key NAME`.
    pub by: String,
    /// From which address.
    pub from: String,
    /// What was asked for.
    pub method: String,
    pub path: String,
    /// The HTTP status of the answer, and the word of a refusal; empty if it was done.
    pub status: u16,
    pub code: String,
}

/// Some of them, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    pub changes: Vec<Audited>,
    /// What to say as `after` for those before them; `None` at the end.
    pub next: Option<u64>,
}

/// A connection that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedConnection {
    pub client_id: String,
    /// The name of the node, and the number that the connection has there.
    pub node: String,
    pub number: u64,
    pub user_name: Option<String>,
    pub peer: String,
    pub listener: String,
    pub version: String,
    /// When its socket was accepted, and when it was over, in milliseconds since 1970.
    pub accepted_at_ms: u64,
    pub closed_at_ms: u64,
    /// Of a fixed set, as in the metrics; `lost` for one that vanished without a DISCONNECT.
    pub reason: String,
    /// The rule that was broken, or what the client was told; perhaps empty.
    pub detail: String,
    pub packets_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl ClosedConnection {
    /// What connections of all nodes are ordered by, and by what the next page begins.
    pub fn cursor(&self) -> ClosedCursor {
        ClosedCursor { closed_at_ms: self.closed_at_ms, number: self.number, node: self.node.clone() }
    }
}

/// A place among the connections that have ended: later ones are greater.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClosedCursor {
    pub closed_at_ms: u64,
    pub number: u64,
    pub node: String,
}

impl std::fmt::Display for ClosedCursor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}.{}", self.closed_at_ms, self.number, self.node)
    }
}

impl std::str::FromStr for ClosedCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '.');
        let mut number = || parts.next().and_then(|part| part.parse().ok()).ok_or(());
        let (closed_at_ms, number) = (number()?, number()?);
        Ok(ClosedCursor { closed_at_ms, number, node: parts.next().ok_or(())?.to_owned() })
    }
}

/// Some connections that have ended, the latest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedPage {
    pub closed: Vec<ClosedConnection>,
    /// What to say as `after` for the next page; `None` at the end.
    pub next: Option<String>,
    /// Names of nodes that did not answer.
    pub missing: Vec<String>,
}

/// Who would receive a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matches {
    pub topic: String,
    /// One for each subscription that matches, in the order of the client ids.
    pub receivers: Vec<Receiver>,
    /// Whether there are more.
    pub truncated: bool,
    /// Names of nodes that did not answer.
    pub missing: Vec<String>,
}

/// A subscription that matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Receiver {
    pub client_id: String,
    pub node: String,
    pub filter: String,
    /// The name of its share group: one connected member of the group, on whatever node, gets the message.
    pub share: Option<String>,
    pub qos: u8,
    pub connected: bool,
}
