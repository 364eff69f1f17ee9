//! The control state: nodes, leases, routes and Wills that are due, and the time.
//!
//! It is changed by [`ControlState::apply`] alone, which is deterministic and cannot fail. Time is an argument in milliseconds of control time and never
//! runs backwards here. What is due happens when time is next applied, be it by a `Tick` or by the command that names the
//! lease: outcomes do not depend on how often anybody ticks.
//!
//! Invariants, checked by `tests/model.rs` against a second, deliberately dumb implementation:
//! - a client id has at most one connection, and no two of its connections ever have the same epoch;
//! - a Will becomes due at most once per (client, epoch), and only if its connection did not drop it;
//! - a session that has ended stays ended; a lease without a session exists only while a Will of it is due;
//! - effects are the difference of two states, so that a snapshot can be an apply like any other.

mod digest;
mod images;
mod lease;
mod leases;
mod nodes;
mod routes;
#[cfg(test)]
mod tests;
mod wills;

use std::sync::Arc;

use crate::command::{
    Applied, ClientId, Command, Effect, Incarnation, LeaseChange, LeaseImage, NodeId, Outcome, Refusal, ShareRoute,
};
use digest::Digest;
pub use lease::Session;
use lease::{Acquisition, Departure, TIME_MAX, Turn};
use leases::Leases;
use nodes::Nodes;
use routes::Routes;
use wills::DueWills;

/// The versions of the control state that this build can apply.
pub const VERSIONS: (u16, u16) = (1, 1);

/// Most leases of one `PassOn`.
pub const PASS_ON_MAX: usize = 10_000;

/// Most Wills and session ends of one `Tick`: so that an entry of the log stays small however much is due, and so does the work
/// that it makes for a node. A session with 20 subscriptions takes about 60 µs to end.
pub const TICK_EVENTS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub struct ControlState {
    /// Control time of the newest command, in milliseconds.
    now: u64,
    /// Commands applied.
    index: u64,
    nodes: Nodes,
    leases: Leases,
    wills: DueWills,
    routes: Routes<Arc<str>>,
    share_routes: Routes<ShareRoute>,
}

/// How much there is of everything, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub nodes: usize,
    /// Client ids with a lease: connected, detached, or ended with a Will still due.
    pub leases: usize,
    pub connected: usize,
    pub wills_due: usize,
    /// Topic filters that any node subscribes to.
    pub routes: usize,
    /// Share groups, by name and filter, that any node has members of.
    pub share_routes: usize,
}

impl ControlState {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies what incarnation `from` asks at control time `now`, in milliseconds. An earlier `now` than that of the last
    /// command counts as that one. `from` does not matter to `Register` and `Tick`.
    pub fn apply(&mut self, now: u64, from: (NodeId, Incarnation), command: Command) -> Applied {
        self.now = self.now.max(now.min(TIME_MAX));
        self.index += 1;
        let mut effects = Vec::new();
        let mut turn = Turn { now: self.now, nodes: &self.nodes, wills: &mut self.wills, effects: &mut effects };
        let outcome = match (command, self.nodes.live(from)) {
            (Command::Register { node, name, .. }, _) => self.register(node, name),
            (Command::Tick, _) => {
                self.leases.tick(TICK_EVENTS_MAX, &mut turn);
                Outcome::Done
            }
            (_, None) => Outcome::Refused(Refusal::NotLive),
            (Command::Acquire { client, clean, expiry_secs, will }, Some(by)) => {
                self.leases.acquire(client, Acquisition { by, clean, expiry_secs, will }, &mut turn)
            }
            (Command::Detach { client, epoch, will, expiry_secs }, Some(by)) => {
                self.leases.detach(client, epoch, Departure { by, will, expiry_secs }, &mut turn)
            }
            (Command::WillDone { client, epoch }, Some(_)) => self.leases.will_done(client, epoch, &mut turn),
            (Command::Routes { add, remove }, Some(by)) => {
                Outcome::Routed { index: self.routes.change(by, self.index, add, &remove) }
            }
            (Command::ShareRoutes { set, remove }, Some(by)) => {
                let add = set.into_iter().map(|(share, _)| share).collect();
                Outcome::Routed { index: self.share_routes.change(by, self.index, add, &remove) }
            }
            (_, Some(_)) => Outcome::Refused(Refusal::NotAllowed),
        };
        Applied { outcome, effects, changes: self.leases.take_changes(&self.wills) }
    }

    /// Whether from now on each command says in [`Applied::changes`] which leases it changed. At first none does. A lease that was there
    /// before has no image until it changes.
    pub fn keep_changes(&mut self, keep: bool) {
        self.leases.images.keep(keep);
    }

    /// Takes up the leases that `node`, which is registered, had kept, and says what of that is no longer so.
    /// See [`Standalone::restore`](crate::Standalone::restore).
    pub(crate) fn restore(&mut self, node: NodeId, down_since: u64, images: Vec<LeaseImage>) -> Vec<LeaseChange> {
        let Some(holder) = self.incarnation(node).and_then(|incarnation| self.nodes.live((node, incarnation))) else {
            return Vec::new();
        };
        let times = images::Times { now: self.now, down_since: down_since.min(self.now) };
        self.leases.restore(holder, times, images, &mut self.wills)
    }

    fn register(&mut self, node: NodeId, name: String) -> Outcome {
        let (slot, incarnation) = self.nodes.register(node, name);
        self.leases.node_restarted(slot, self.now);
        self.routes.remove_node(slot);
        self.share_routes.remove_node(slot);
        Outcome::Registered { incarnation }
    }

    /// Control time at which a `Tick` has something to do; not in the future if it has something to do now.
    pub fn next_due(&self) -> Option<u64> {
        if self.wills.is_some_unannounced() { Some(self.now) } else { self.leases.next_due() }
    }

    /// The same on every node that applied the same commands, and hardly on any other. Reads all of the state.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        digest.add(&[&self.now, &self.index]);
        self.nodes.digest(&mut digest);
        self.leases.digest(&mut digest);
        self.wills.digest(&mut digest);
        self.routes.digest(&mut digest);
        self.share_routes.digest(&mut digest);
        digest.value()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            nodes: self.nodes.len(),
            leases: self.leases.len(),
            connected: self.leases.connected(),
            wills_due: self.wills.len(),
            routes: self.routes.len(),
            share_routes: self.share_routes.len(),
        }
    }

    /// Commands applied so far.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The session of `client`, connected or detached. One that has ended is none, even while a Will of it is due.
    pub fn session(&self, client: &str) -> Option<Session> {
        self.leases.session(client)
    }

    /// Client ids that have a lease, in no particular order.
    pub fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.leases.clients()
    }

    /// Wills that are due and not yet done, in the order of client id and epoch.
    pub fn wills_due(&self) -> impl Iterator<Item = Effect> {
        self.wills.iter(&self.nodes)
    }

    /// The incarnation of a node that is registered.
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.nodes.incarnation(node)
    }

    /// Nodes that subscribe to `filter`, each with the index that added it.
    pub fn route(&self, filter: &Arc<str>) -> impl Iterator<Item = (NodeId, u64)> {
        self.routes.nodes_of(filter).map(|(slot, index)| (self.nodes.id(slot), index))
    }

    /// Nodes that have members of the share group, each with the index that added it.
    pub fn share_route(&self, group: &ShareRoute) -> impl Iterator<Item = (NodeId, u64)> {
        self.share_routes.nodes_of(group).map(|(slot, index)| (self.nodes.id(slot), index))
    }

    /// Every filter that any node subscribes to, in no particular order.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.routes.keys()
    }

    /// Every share group that any node has members of, in no particular order.
    pub fn share_routes(&self) -> impl Iterator<Item = &ShareRoute> {
        self.share_routes.keys()
    }
}
