//! Orphans: the routes of a dead incarnation, while its heirs take over what they are for.
//!
//! A node whose base has heirs that are live and not stale leaves its sessions to them. Each heir enters what passes to it, adds its routes, and says
//! [`Inherited`](crate::Command::Inherited) behind them; until all have said so the plain routes of the dead count on, and what matches them goes to the
//! heirs. There is no moment at which nobody is asked for the sessions. The routes of its share groups are void at once: who
//! picks a member picks another.
//!
//! | event | next |
//! | --- | --- |
//! | the incarnation is expired, its base has such heirs | they are pending; its leases are inherited, one by one: see [`tenures`](super::tenures) |
//! | its last lease is passed on | all is passed on: who has nothing more to enter may say so |
//! | `Inherited` by one of them, or its own end | it is not pending any more |
//! | nobody is pending | the orphans are no more: their routes are void |
//! | `Register` of the node, `Forget` | refused while somebody is pending |
//!
//! An heir that starts again at once with all that it had stays pending.
//!
//! Invariants: who is pending is live, the node that it inherits from is dead and not forgotten.
//!
//! Tests to read first: `tests/heirs_scripts.rs`.

use std::collections::BTreeMap;

use super::ControlState;
use super::digest::Digest;
use super::lease::{Session, Turn};
use super::nodes::{NodeSlot, Nodes, Standing};
use super::table::Entry;
use crate::command::{ClientId, Effect, Incarnation, NodeId, Outcome, Refusal, SessionEpoch};

/// What is known of a session that a node holds: see [`ControlState::estate_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estate {
    /// Epoch of the connection that began it, and of its last one.
    pub began: SessionEpoch,
    pub epoch: SessionEpoch,
    pub expiry_secs: u32,
    /// The node from which the holder has inherited it, if nothing has happened to it since.
    pub from: Option<NodeId>,
    /// All sessions of that node had their copies when it died.
    pub sure: bool,
}

/// Of one dead node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    /// Who has still to inherit, in the order of ids.
    pub(super) heirs: Vec<NodeSlot>,
    /// No lease is still to be passed on.
    pub(super) passed: bool,
}

/// Of all dead nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Orphans {
    of: BTreeMap<NodeSlot, Pending>,
}

impl Orphans {
    pub(super) fn of(&self, node: NodeSlot) -> Option<&Pending> {
        self.of.get(&node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeSlot, &Pending)> {
        self.of.iter().map(|(node, pending)| (*node, pending))
    }

    /// Returns whether there was nothing of that node.
    pub(super) fn put(&mut self, node: NodeSlot, pending: Pending) -> bool {
        self.of.insert(node, pending).is_none()
    }

    /// All leases of `node` have been passed on.
    pub(super) fn passed_on(&mut self, node: NodeSlot, nodes: &Nodes, effects: &mut Vec<Effect>) {
        if let Some(pending) = self.of.get_mut(&node).filter(|pending| !pending.passed) {
            pending.passed = true;
            let node = nodes.get(node);
            effects.push(Effect::PassedOnAll { node: node.id, incarnation: node.incarnation });
        }
    }

    /// `heir` inherits nothing more of `node`. Returns whether nobody does.
    fn remove(&mut self, node: NodeSlot, heir: NodeSlot) -> bool {
        let Some(pending) = self.of.get_mut(&node) else {
            return false;
        };
        pending.heirs.retain(|other| *other != heir);
        let is_last = pending.heirs.is_empty();
        if is_last {
            self.of.remove(&node);
        }
        is_last
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for (node, Pending { heirs, passed }) in &self.of {
            digest.add(&[&"orphans", &node.number(), &u64::from(*passed)]);
            heirs.iter().for_each(|heir| digest.add(&[&"pending", &node.number(), &heir.number()]));
        }
    }
}

impl ControlState {
    pub(super) fn inherited(
        &mut self,
        by: NodeSlot,
        from: (NodeId, Incarnation),
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let of_it = |(node, pending): &(NodeSlot, &Pending)| {
            let node = self.nodes.get(*node);
            (node.id, node.incarnation) == from && pending.heirs.contains(&by)
        };
        let Some((node, passed)) = self.orphans.iter().find(of_it).map(|(node, pending)| (node, pending.passed)) else {
            return Outcome::Refused(Refusal::NotHeir);
        };
        if !passed {
            return Outcome::Refused(Refusal::OrphansPending);
        }
        if self.orphans.remove(node, by) {
            self.end_orphans(node, effects);
            self.sweep(effects);
        }
        Outcome::Done
    }

    /// The life of `heir` is over: nobody waits for it to inherit.
    pub(super) fn leave_pending(&mut self, heir: NodeSlot, effects: &mut Vec<Effect>) {
        let nodes: Vec<NodeSlot> = self.orphans.of.keys().copied().collect();
        for node in nodes {
            if self.orphans.remove(node, heir) {
                self.end_orphans(node, effects);
            }
        }
    }

    fn end_orphans(&mut self, node: NodeSlot, effects: &mut Vec<Effect>) {
        let index = self.index;
        let node = self.nodes.get_mut(node);
        (node.routes_from, node.shares_from) = (index, index);
        effects.push(Effect::OrphansEnded { node: node.id, incarnation: node.incarnation });
        self.void_routes();
    }

    pub(super) fn found(&mut self, by: NodeSlot, clients: Vec<ClientId>, effects: &mut Vec<Effect>) -> Outcome {
        let Self { now, index, nodes, leases, wills, heirs, orphans, .. } = self;
        let mut turn = Turn { now: *now, index: *index, nodes, wills, heirs, orphans, effects };
        let asked = clients.len();
        let found = clients.into_iter().filter(|client| leases.found(client, by, &mut turn)).count();
        if found == 0 && asked > 0 { Outcome::Refused(Refusal::NotHeir) } else { Outcome::Done }
    }

    /// The dead incarnations that somebody has still to inherit from, and who, in the order of ids.
    pub fn orphans(&self) -> impl Iterator<Item = (NodeId, Incarnation, Vec<NodeId>)> {
        self.orphans.iter().map(|(node, pending)| {
            let node = self.nodes.get(node);
            (node.id, node.incarnation, self.ids(&pending.heirs))
        })
    }

    /// Those of them of which no lease is still to be passed on.
    pub fn passed_on_all(&self) -> impl Iterator<Item = (NodeId, Incarnation)> {
        self.orphans.iter().filter(|(_, pending)| pending.passed).map(|(node, _)| {
            let node = self.nodes.get(node);
            (node.id, node.incarnation)
        })
    }

    /// The sessions that `node` holds, each with what its heir has to know of it: what all the effects until now have said. Those that end with their
    /// connection are not among them.
    pub fn estate_of(&self, node: NodeId) -> impl Iterator<Item = (&ClientId, Estate)> {
        let entries = self.nodes.find(node).into_iter().flat_map(|slot| self.leases.table.of(slot));
        entries.filter_map(|entry| Some((&entry.client, self.estate(entry)?)))
    }

    /// The sessions that are missing because `node`, which has the copies, was not there when they were to pass to it, each with its dead holder:
    /// what it may say [`Found`](crate::Command::Found) of, if it is live.
    pub fn missing_for(&self, node: NodeId) -> impl Iterator<Item = (&ClientId, NodeId, Estate)> {
        let heir = self.nodes.find(node);
        let dead = self.nodes.iter().filter(|(_, node)| node.standing != Standing::Live);
        let homes = dead.filter(move |(home, _)| heir.is_some_and(|heir| self.inherits_from(heir, *home)));
        homes.flat_map(move |(home, dead)| {
            let entries = self.leases.table.of(home);
            let picked = entries.filter(move |entry| self.heirs.heir(home, &entry.client, &self.nodes) == heir);
            picked.filter_map(|entry| Some((&entry.client, dead.id, self.estate(entry)?)))
        })
    }

    fn inherits_from(&self, heir: NodeSlot, home: NodeSlot) -> bool {
        self.heirs.inheriting(home, &self.nodes).contains(&heir)
    }

    fn estate(&self, entry: &Entry) -> Option<Estate> {
        let lease = &entry.lease;
        let Session { began, epoch, .. } = self.leases.view(entry, &self.nodes).filter(|_| lease.expiry_secs != 0)?;
        // Of a later life of the node it says nothing.
        let dead = lease.inherited_from.filter(|from| !self.nodes.is_live(*from));
        let sure = dead.is_some_and(|from| self.heirs.is_whole(from));
        let from = lease.inherited_from.map(|from| self.nodes.id(from));
        Some(Estate { began, epoch, expiry_secs: lease.expiry_secs, from, sure })
    }

    pub(super) fn ids(&self, slots: &[NodeSlot]) -> Vec<NodeId> {
        slots.iter().map(|slot| self.nodes.id(*slot)).collect()
    }

    /// The dead node from which the holder of the session of `client` has it, if it has inherited it and it has not moved nor begun anew since.
    #[cfg(test)]
    pub(super) fn inherited_from(&self, client: &str) -> Option<NodeId> {
        let lease = self.leases.table.lease(self.leases.table.find(client)?);
        lease.inherited_from.map(|from| self.nodes.id(from))
    }
}
