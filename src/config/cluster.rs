//! `[cluster]`: the other nodes, how they are found, and how they know one another.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::listener::parse_bind;
use super::reading::Section;
use super::values::{expected, parse_text};

pub(super) const KEYS: &[&str] = &[
    "name",
    "bind",
    "advertise",
    "secret_file",
    "seeds",
    "expected_size",
    "session_copies",
    "tls",
    "peer_addresses",
    "lease",
    "renew",
    "margin",
    "election",
    "fence_grace",
    "subscribe_deadline",
    "route_linger",
];

pub(super) const TLS_KEYS: &[&str] = &["cert", "key", "ca"];

/// Nodes of a cluster: a set of them fits in one word.
const NODES_MAX: usize = 64;

/// Nodes that can found a cluster: as many as vote in it.
const FOUNDERS_MAX: usize = 5;

/// Nodes that have a session: its home and one heir.
const SESSION_COPIES_MAX: usize = 2;

const HOST_AND_PORT: &str = "a host and port such as \"n2.example:7946\" or \"10.0.0.2:7946\"";

/// `[cluster]`. A node without it is alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// What people call the cluster. 1 to 64 bytes. Nodes of another name are refused.
    pub name: String,
    /// Where the other nodes are accepted. Port 0 lets the kernel choose one.
    pub bind: SocketAddr,
    /// Host and port at which the other nodes reach this one. `None`: the address of `bind`, or, if that is any, the one that they see.
    pub advertise: Option<String>,
    /// The secret that all nodes share: at least 16 bytes. It is read when the node starts.
    pub secret_file: PathBuf,
    /// Hosts and ports where other nodes may be found. This node's own may be among them. At most 64.
    pub seeds: Vec<String>,
    /// How many nodes have to see one another before they found the cluster. 1 to 5; others may join later.
    pub expected_size: usize,
    /// On how many nodes each session that outlives its connection is, 1 or 2. It needs a data directory.
    pub session_copies: usize,
    /// TLS between the nodes; `None` is plain TCP.
    pub tls: Option<ClusterTls>,
    /// By node name: the host and port to dial, whatever that node says of itself.
    pub peer_addresses: BTreeMap<String, String>,
    pub timers: ClusterTimers,
}

/// `tls` of `[cluster]`: each node shows a certificate of the same authorities. All three are PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTls {
    /// The certificate chain, this node's own first; good for servers and for clients.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that all nodes' certificates come from.
    pub ca: PathBuf,
}

/// How long what may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTimers {
    /// For how long a node that fell silent may still act on its sessions, before others take over. 1 s to 60 s.
    pub lease: Duration,
    /// How often a node asks for its lease anew. 50 ms to 10 s.
    pub renew: Duration,
    /// How much earlier a node stops than the others begin. 50 ms to 10 s.
    pub margin: Duration,
    /// How long a voter hears nothing from a leader before it stands for election: from this to twice this. 50 ms to 10 s.
    pub election: Duration,
    /// How long a node without a lease keeps the connections of its clients. Up to 5 min.
    pub fence_grace: Duration,
    /// How long a SUBSCRIBE waits until all nodes know of the filter. 1 s to 5 min.
    pub subscribe_deadline: Duration,
    /// How long a filter that nobody wants any more is kept. Up to 1 h.
    pub route_linger: Duration,
}

impl Default for ClusterTimers {
    fn default() -> Self {
        ClusterTimers {
            lease: Duration::from_secs(3),
            renew: Duration::from_millis(500),
            margin: Duration::from_millis(500),
            election: Duration::from_millis(300),
            fence_grace: Duration::from_secs(5),
            subscribe_deadline: Duration::from_secs(10),
            route_linger: Duration::from_secs(1),
        }
    }
}

impl ClusterTimers {
    fn read(section: &mut Section<'_, '_>) -> ClusterTimers {
        let default = ClusterTimers::default();
        let second = Duration::from_secs(1);
        let short = Duration::from_millis(50)..=10 * second;
        ClusterTimers {
            lease: section.duration("lease", default.lease, second..=60 * second),
            renew: section.duration("renew", default.renew, short.clone()),
            margin: section.duration("margin", default.margin, short.clone()),
            election: section.duration("election", default.election, short),
            fence_grace: section.duration("fence_grace", default.fence_grace, Duration::ZERO..=300 * second),
            subscribe_deadline: section.duration(
                "subscribe_deadline",
                default.subscribe_deadline,
                second..=300 * second,
            ),
            route_linger: section.duration("route_linger", default.route_linger, Duration::ZERO..=3600 * second),
        }
    }

    /// The longest that a voter hears nothing from a leader before it stands for election.
    pub fn election_max(&self) -> Duration {
        2 * self.election
    }
}

impl Cluster {
    /// A cluster with the defaults of all that has one.
    pub fn new(name: impl Into<String>, bind: SocketAddr, secret_file: impl Into<PathBuf>) -> Cluster {
        Cluster {
            name: name.into(),
            bind,
            advertise: None,
            secret_file: secret_file.into(),
            seeds: Vec::new(),
            expected_size: 3,
            session_copies: SESSION_COPIES_MAX,
            tls: None,
            peer_addresses: BTreeMap::new(),
            timers: ClusterTimers::default(),
        }
    }

    /// `None` if a key is missing that has no default, which is noted.
    pub(super) fn read(section: &mut Section<'_, '_>) -> Option<Cluster> {
        const NEEDED: [(&str, &str); 3] = [
            ("name", "what the cluster is called, the same on every node"),
            ("bind", "the address to accept other nodes on, such as bind = \"10.0.0.1:7946\""),
            ("secret_file", "the path of a file with the secret that all nodes share"),
        ];
        for (key, what) in NEEDED {
            if !section.given(key) {
                section.error_at(key, format!("{key} is missing: {what}"));
            }
        }
        let name = section.text("name", 64);
        if name.as_deref().is_some_and(|name| name.chars().any(char::is_control)) {
            section.error_at("name", "name: must not hold control characters");
        }
        let bind = section.optional("bind", |value| parse_bind(value, 7946));
        let secret_file = section.path("secret_file");
        let advertise = section.optional("advertise", parse_advertise).flatten();
        let seeds = read_seeds(section);
        let expected_size = section.integer("expected_size", 3, 1..=FOUNDERS_MAX);
        let session_copies = section.integer("session_copies", SESSION_COPIES_MAX, 1..=SESSION_COPIES_MAX);
        let tls = section.section("tls", TLS_KEYS, ClusterTls::read).flatten();
        let peer_addresses = section.map("peer_addresses", NODES_MAX, parse_host_and_port);
        let timers = ClusterTimers::read(section);
        Some(Cluster {
            advertise,
            seeds,
            expected_size,
            session_copies,
            tls,
            peer_addresses,
            timers,
            ..Cluster::new(name?, bind?, secret_file?)
        })
    }
}

impl ClusterTls {
    /// `None` if a key is missing, which is noted.
    fn read(section: &mut Section<'_, '_>) -> Option<ClusterTls> {
        for key in TLS_KEYS {
            if !section.given(key) {
                section.error_at(key, format!("tls: {key} is missing: the path of a PEM file"));
            }
        }
        let (cert, key, ca) = (section.path("cert"), section.path("key"), section.path("ca"));
        Some(ClusterTls { cert: cert?, key: key?, ca: ca? })
    }
}

fn parse_advertise(value: &DeValue<'_>) -> Result<Option<String>, String> {
    if value.as_str() == Some("auto") {
        return Ok(None);
    }
    parse_host_and_port(value).map(Some).map_err(|message| format!("{message}, or \"auto\""))
}

/// No seeds at all is as good as some: the others may know this node.
fn read_seeds(section: &mut Section<'_, '_>) -> Vec<String> {
    let is_empty = |value: &DeValue<'_>| Ok(value.as_array().is_some_and(|seeds| seeds.is_empty()));
    if section.optional("seeds", is_empty).unwrap_or(true) {
        return Vec::new();
    }
    section.list("seeds", Vec::new(), NODES_MAX, parse_host_and_port)
}

/// A name or an address, and a port. Names are looked up whenever they are dialled, not here.
fn parse_host_and_port(value: &DeValue<'_>) -> Result<String, String> {
    if value.as_str().is_none() {
        return Err(expected(HOST_AND_PORT, value));
    }
    let text = parse_text(value, 260)?;
    if is_host_and_port(&text) { Ok(text) } else { Err(format!("expected {HOST_AND_PORT}")) }
}

fn is_host_and_port(text: &str) -> bool {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return address.port() != 0 && !address.ip().is_unspecified();
    }
    let plain = |host: &str| {
        !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            // A number at the end would be an address, and not a good one.
            && host.rsplit('.').next().is_some_and(|last| last.parse::<u32>().is_err())
    };
    text.rsplit_once(':').is_some_and(|(host, port)| {
        plain(host) && port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}
