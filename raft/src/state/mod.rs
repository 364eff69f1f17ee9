//! The control state: nodes, leases, claims, routes and Wills that are due, and the time.
//!
//! It is changed by [`ControlState::apply_proposal`] alone, which is deterministic and cannot fail. Time is an argument in milliseconds of control time
//! and never runs backwards here. What is due happens when time is next applied, be it by a `Tick` or by the command that names the
//! lease: outcomes do not depend on how often anybody ticks.
//!
//! | part | what it is |
//! | --- | --- |
//! | `nodes`, `membership` | which incarnation of each node is live; how nodes come and go |
//! | `table`, `lease` | where the leases are, and what one is |
//! | `leases` | what connections and the time do to a lease: the first table of rules |
//! | `claims` | how a session moves from node to node: the second table |
//! | `tenures` | how all leases of an incarnation that is over are passed on, a slice at a time |
//! | `heirs`, `orphans` | who has copies of whose sessions; what counts on of a dead node until they have inherited |
//! | `wills` | Wills that are due, and who publishes each |
//! | `routes` | which nodes want which filters |
//! | `snapshot`, `difference` | all of it as bytes; what follows from a jump from one state to another |
//! | `images` | leases at rest, for a node without a log |
//!
//! Invariants, checked by `tests/model.rs` against a second, deliberately dumb implementation, and by `tests/properties.rs`:
//! - a client id has at most one connection, and no two of its connections ever have the same epoch;
//! - the holder of a lease is live, or the lease is missing; only a settled claim, or the death of the holder, moves a session that is kept;
//! - a session passes only to a live node that had a copy in its holder's base and has missed nothing of it since;
//! - of an incarnation that is not live nothing is applied, and its batches are applied in their order, each once;
//! - a Will becomes due at most once per (client, epoch), and only if its connection did not drop it; each that is due has one publisher, who is
//!   live, or waits to be announced;
//! - a session that has ended stays ended; a lease without a session exists only while a Will of it is due, a claim is on it, or its last
//!   connection is not known to be closed;
//! - effects are the difference of two states, so that a snapshot can be an apply like any other.

mod bans;
mod claims;
mod difference;
mod digest;
mod heirs;
mod images;
mod lease;
mod leases;
mod lookups;
mod membership;
mod nodes;
mod orphans;
mod routes;
mod snapshot;
mod table;
mod tenures;
#[cfg(test)]
mod tests;
mod wills;

use std::sync::Arc;

use crate::command::{
    Applied, AppliedProposal, Command, Effect, Incarnation, LeaseChange, LeaseImage, NodeId, Origin, Outcome, Proposal,
    Refusal, ShareRoute,
};
pub use bans::BANS_MAX;
use bans::Bans;
use heirs::Heirs;
pub use heirs::{HeirsView, heir_of};
use lease::{Acquisition, Departure, TIME_MAX, Turn};
pub use lease::{Claim, Session};
use leases::Leases;
pub use lookups::{Counts, NodeView};
use membership::Registration;
pub use nodes::NODES_MAX;
use nodes::{NodeSlot, Nodes};
pub use orphans::Estate;
use orphans::Orphans;
use routes::Routes;
pub use snapshot::{CHUNK_BYTES_MAX, SnapshotError};
use wills::DueWills;

/// The versions of the control state that this build can apply.
pub const VERSIONS: (u16, u16) = (1, 2);

/// Most Wills and session ends of one `Tick`: so that an entry of the log stays small however much is due, and so does the work
/// that it makes for a node. A session with 20 subscriptions takes about 60 µs to end.
pub const TICK_EVENTS_MAX: usize = 256;

/// Most leases that one `PassOn`, or one `Tick`, passes on.
pub const PASS_ON_MAX: usize = 10_000;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct ControlState {
    /// Control time of the newest command, in milliseconds.
    now: u64,
    /// Index of the newest entry of the log.
    index: u64,
    /// What the state may hold; 0 before any node has registered.
    version: u16,
    nodes: Nodes,
    /// Nodes that are forgotten and still have their slot.
    forgotten: usize,
    leases: Leases,
    wills: DueWills,
    routes: Routes<Arc<str>>,
    share_routes: Routes<ShareRoute>,
    heirs: Heirs,
    orphans: Orphans,
    bans: Bans,
    /// Live nodes that the entry at hand expires: none of them did anything after any other of them had died.
    dying: Vec<NodeSlot>,
}

/// In whose name a command is applied.
#[derive(Clone, Copy)]
enum Author {
    Leader,
    Node(NodeSlot),
}

impl ControlState {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the entry of the log at `index`. A batch that is not the next one of a live incarnation is ignored, time apart.
    pub fn apply_proposal(&mut self, index: u64, proposal: Proposal) -> AppliedProposal {
        self.index = index;
        self.advance(proposal.at);
        let author = match proposal.origin {
            Origin::Leader => Author::Leader,
            Origin::Node { node, incarnation, number } => match self.nodes.live((node, incarnation)) {
                Some(slot) if self.nodes.get(slot).batch.checked_add(1) == Some(number) => {
                    self.nodes.get_mut(slot).batch = number;
                    Author::Node(slot)
                }
                _ => return AppliedProposal { ignored: true, ..AppliedProposal::default() },
            },
        };
        let mut effects = Vec::new();
        if matches!(author, Author::Leader) {
            self.dying = proposal.commands.iter().filter_map(|command| self.expires(command)).collect();
        }
        let mut outcomes = Vec::with_capacity(proposal.commands.len());
        for command in proposal.commands {
            outcomes.push(self.execute(author, command, &mut effects));
        }
        self.dying.clear();
        self.free_slots();
        AppliedProposal { ignored: false, outcomes, effects, changes: self.leases.take_changes(&self.wills) }
    }

    /// Applies what incarnation `from` asks at control time `now`, in milliseconds, as the next entry of a log that nobody keeps. An earlier `now` than that
    /// of the last command counts as that one. `from` does not matter to the commands of the leader.
    pub(crate) fn apply(&mut self, now: u64, from: (NodeId, Incarnation), command: Command) -> Applied {
        self.index += 1;
        self.advance(now);
        let author = match self.nodes.live(from) {
            _ if is_of_leader(&command) => Some(Author::Leader),
            slot => slot.map(Author::Node),
        };
        let mut effects = Vec::new();
        let outcome = match author {
            Some(author) => self.execute(author, command, &mut effects),
            None => Outcome::Refused(Refusal::NotLive),
        };
        self.free_slots();
        Applied { outcome, effects, changes: self.leases.take_changes(&self.wills) }
    }

    /// Whose life a command ends.
    fn expires(&self, command: &Command) -> Option<NodeSlot> {
        match command {
            Command::ExpireNode { node, incarnation } => self.nodes.live((*node, *incarnation)),
            _ => None,
        }
    }

    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now.min(TIME_MAX));
    }

    fn execute(&mut self, author: Author, command: Command, effects: &mut Vec<Effect>) -> Outcome {
        let outcome = match author {
            Author::Leader => self.execute_for_leader(command, effects),
            Author::Node(by) => self.execute_for_node(by, command, effects),
        };
        self.heirs.tell_changes(&self.nodes, effects);
        outcome
    }

    fn execute_for_leader(&mut self, command: Command, effects: &mut Vec<Effect>) -> Outcome {
        match command {
            Command::Register { node, name, run, versions, intact } => {
                self.register(Registration { node, name, run, versions, intact }, effects)
            }
            Command::ExpireNode { node, incarnation } => self.expire_node(node, incarnation, effects),
            Command::PassOn { node, incarnation } => self.pass_on(node, incarnation, effects),
            Command::Forget { node } => self.forget(node, effects),
            Command::Version { n } => self.raise_version(n),
            Command::Tick => self.tick(effects),
            _ => Outcome::Refused(Refusal::NotAllowed),
        }
    }

    fn execute_for_node(&mut self, by: NodeSlot, command: Command, effects: &mut Vec<Effect>) -> Outcome {
        let Self { now, index, nodes, leases, wills, heirs, orphans, .. } = self;
        let turn = &mut Turn { now: *now, index: *index, nodes, wills, heirs, orphans, effects };
        match command {
            Command::Acquire { client, clean, expiry_secs, will } => {
                leases.acquire(client, Acquisition { by, clean, expiry_secs, will }, turn)
            }
            Command::Detach { client, epoch, will, expiry_secs } => {
                leases.detach(client, epoch, Departure { by, will, expiry_secs }, turn)
            }
            Command::WillDone { client, epoch } => leases.will_done(client, epoch, turn),
            Command::Settle { client, epoch } => leases.settle(client, epoch, by, turn),
            Command::Withdraw { client, epoch } => leases.withdraw(client, epoch, by, turn),
            Command::Cut { client, epoch, filters, shares } => {
                if leases.find_claim(&client, epoch, by, turn).is_none() {
                    return Outcome::Refused(Refusal::NotClaimed);
                }
                self.routes.change(by, plain(filters), &[], turn);
                self.share_routes.change(by, shares, &[], turn);
                leases.cut(client, turn)
            }
            Command::Routes { add, remove } => {
                Outcome::Routed { index: self.routes.change(by, plain(add), &remove, turn) }
            }
            Command::ShareRoutes { set, remove } => {
                Outcome::Routed { index: self.share_routes.change(by, set, &remove, turn) }
            }
            Command::RoutesComplete => {
                self.complete_routes(by, effects);
                Outcome::Done
            }
            Command::Lost { client, epoch } => leases.lost(client, epoch, by, turn),
            Command::FillHeirs { next } => self.fill_heirs(by, next),
            Command::HeirsFilled { fill } => self.heirs_filled(by, fill),
            Command::Inherited { node, incarnation } => self.inherited(by, (node, incarnation), effects),
            Command::Found { clients } => self.found(by, clients, effects),
            // Some node could not read it.
            Command::Ban { .. } if self.version < bans::SINCE_VERSION => Outcome::Refused(Refusal::Versions),
            Command::Ban { ban } => self.bans.set(ban, effects),
            Command::Unban { target } => self.bans.remove(&target, effects),
            _ => Outcome::Refused(Refusal::NotAllowed),
        }
    }

    /// What the leader does from time to time, each a slice of it.
    fn tick(&mut self, effects: &mut Vec<Effect>) -> Outcome {
        let slots: Vec<NodeSlot> = self.nodes.all().map(|(slot, _)| slot).collect();
        let Self { now, index, nodes, leases, wills, heirs, orphans, .. } = self;
        let mut turn = Turn { now: *now, index: *index, nodes, wills, heirs, orphans, effects };
        let mut leases_max = PASS_ON_MAX;
        for slot in slots {
            leases_max -= leases.pass_on_first(slot, leases_max, &mut turn);
        }
        leases.tick(TICK_EVENTS_MAX, &mut turn);
        self.sweep(effects);
        Outcome::Done
    }

    fn complete_routes(&mut self, by: NodeSlot, effects: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(by);
        if node.routes_from < node.registered_at {
            (node.routes_from, node.shares_from) = (node.registered_at, node.registered_at);
            self.void_routes();
            self.sweep(effects);
        }
    }

    /// Whether from now on each command says in [`Applied::changes`] which leases it changed. At first none does. A lease that was there
    /// before has no image until it changes.
    pub fn keep_changes(&mut self, keep: bool) {
        self.leases.images.keep(keep);
    }

    /// Takes up the leases that `node`, which is registered, had kept, and says what of that is no longer so.
    /// See [`Standalone::restore`](crate::Standalone::restore).
    pub(crate) fn restore_images(
        &mut self,
        node: NodeId,
        down_since: u64,
        images: Vec<LeaseImage>,
    ) -> Vec<LeaseChange> {
        let Some(holder) = self.incarnation(node).and_then(|incarnation| self.nodes.live((node, incarnation))) else {
            return Vec::new();
        };
        let times = images::Times { now: self.now, down_since: down_since.min(self.now) };
        self.leases.restore(holder, times, images, &mut self.wills)
    }
}

/// Those that are about nodes and the time, and come from the leader of many nodes.
fn is_of_leader(command: &Command) -> bool {
    matches!(
        command,
        Command::Register { .. }
            | Command::ExpireNode { .. }
            | Command::PassOn { .. }
            | Command::Forget { .. }
            | Command::Version { .. }
            | Command::Tick
    )
}

fn plain(filters: Vec<Arc<str>>) -> Vec<(Arc<str>, ())> {
    filters.into_iter().map(|filter| (filter, ())).collect()
}
