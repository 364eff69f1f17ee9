//! Several nodes as one broker: real processes on 127.0.0.1, with a fault relay on each way from one node to another.
//!
//! - [`Cluster`] owns the processes, their ports and folders, and the relays; every call takes a shared reference, so that clients, faults and
//!   restarts can be on threads of their own;
//! - [`relay`] is what a bad network does, `nemesis` what a test does with it: cuts, partitions, frozen and killed nodes;
//! - [`ClusterStage`] gives names that no other test on the same cluster uses;
//! - [`attempt`] connects where that may fail, [`crowd`] many clients at once, [`flow`] is a publisher and a subscriber that time all they see;
//! - [`estate`] is sessions whose clients are away, and what has to come to them; `copies` waits for their copies;
//! - [`admin`] asks a node how it is; [`rounds`] says how often and how long, [`latency`] how it was.
//!
//! Nodes are numbered from 0 and named `n1`, `n2`, …; [`N1`], [`N2`] and [`N3`] are the first three. At most three clusters run at one
//! time in a test binary: the next one waits. Ports stay the same over restarts, so clients may try to connect while a node is away.
//!
//! Read first: `tests/cluster/main.rs`.

pub mod admin;
pub mod attempt;
mod copies;
pub mod crowd;
pub mod estate;
pub mod flow;
pub mod hopper;
pub mod latency;
mod nemesis;
mod node;
mod ports;
pub mod relay;
pub mod rounds;
mod setup;
mod stage;
mod turnstile;

use std::time::{Duration, Instant};

use relay::{Relay, Relays};
use turnstile::Ticket;

pub use attempt::{Refusal, connect_within, try_connect};
pub use nemesis::Wound;
pub use node::Node;
pub use ports::Port;
pub use setup::{ClusterSetup, Stranger};
pub use stage::ClusterStage;

pub const N1: usize = 0;
pub const N2: usize = 1;
pub const N3: usize = 2;

/// How long a cluster may take from nothing, or a node to come back, on a machine that does other things too.
pub const READY: Duration = Duration::from_secs(30);

/// Nodes, and the ways between them.
pub struct Cluster {
    nodes: Vec<Node>,
    /// By the node that connects and the node that is connected to.
    ways: Vec<Vec<Option<Relay>>>,
    _relays: Relays,
    _ticket: Ticket,
}

impl Cluster {
    /// Three nodes with the usual configuration, ready.
    pub fn three() -> Self {
        ClusterSetup::new(3).start()
    }

    fn new(nodes: Vec<Node>, ways: Vec<Vec<Option<Relay>>>, relays: Relays, ticket: Ticket) -> Self {
        Self { nodes, ways, _relays: relays, _ticket: ticket }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The numbers of all nodes.
    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    /// All ordered pairs of two different nodes.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        self.all().flat_map(|from| self.all().map(move |to| (from, to))).filter(|(from, to)| from != to).collect()
    }

    pub fn node(&self, number: usize) -> &Node {
        &self.nodes[number]
    }

    /// The relay on the way from one node to another.
    ///
    /// # Panics
    /// When both are the same node.
    pub fn way(&self, from: usize, to: usize) -> &Relay {
        self.ways[from][to].as_ref().expect("two different nodes")
    }

    /// Starts these nodes at once and waits until they are ready.
    ///
    /// # Panics
    /// When one is not ready within [`READY`]; with its log.
    pub fn start(&self, nodes: impl IntoIterator<Item = usize> + Clone) {
        nodes.clone().into_iter().for_each(|node| self.nodes[node].launch());
        let deadline = Instant::now() + READY;
        nodes.into_iter().for_each(|node| self.nodes[node].wait_until_ready(deadline));
    }

    /// SIGKILL to these nodes at once.
    pub fn kill(&self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|node| self.nodes[node].kill());
    }

    /// Waits until every node is ready and sees every other one.
    ///
    /// # Panics
    /// When that does not come in this time; with what each node says.
    #[track_caller]
    pub fn whole_within(&self, patience: Duration) {
        self.agree_within(self.all(), patience);
    }

    /// Waits until these nodes are ready and agree that they, and no others, are there.
    ///
    /// # Panics
    /// When that does not come in this time; with what each node says.
    #[track_caller]
    pub fn agree_within(&self, nodes: impl IntoIterator<Item = usize>, patience: Duration) {
        let deadline = Instant::now() + patience;
        let nodes: Vec<_> = nodes.into_iter().collect();
        let mut names: Vec<_> = nodes.iter().map(|node| self.nodes[*node].name().to_owned()).collect();
        names.sort();
        loop {
            let seen: Vec<_> = nodes.iter().map(|node| self.nodes[*node].sees()).collect();
            if seen.iter().all(|seen| seen.as_ref().is_some_and(|view| view.ready && view.live == names)) {
                return;
            }
            assert!(Instant::now() < deadline, "{names:?} do not agree after {patience:?}, but see {seen:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The node that leads the Raft group, as most of the nodes that answer say.
    pub fn leader(&self) -> Option<usize> {
        let mut votes = vec![0; self.len()];
        for view in self.nodes.iter().filter_map(Node::sees) {
            let named = view.leader.and_then(|name| self.nodes.iter().position(|node| node.name() == name));
            named.into_iter().for_each(|node| votes[node] += 1);
        }
        self.all().max_by_key(|node| votes[*node]).filter(|node| votes[*node] > 0)
    }

    /// The leader, which must be known soon.
    ///
    /// # Panics
    /// When nobody leads for [`READY`].
    #[track_caller]
    pub fn wait_for_leader(&self) -> usize {
        let deadline = Instant::now() + READY;
        loop {
            if let Some(leader) = self.leader() {
                return leader;
            }
            assert!(Instant::now() < deadline, "nobody leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The nodes that do not lead.
    #[track_caller]
    pub fn followers(&self) -> Vec<usize> {
        let leader = self.wait_for_leader();
        self.all().filter(|node| *node != leader).collect()
    }
}
