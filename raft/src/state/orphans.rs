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

use std::collections::BTreeMap;

use super::ControlState;
use super::digest::Digest;
use super::lease::Turn;
use super::nodes::{NodeSlot, Nodes};
use crate::command::{Effect, Incarnation, NodeId, Outcome, Refusal};

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

    pub(super) fn found(
        &mut self,
        by: NodeSlot,
        clients: Vec<crate::command::ClientId>,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
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

    pub(super) fn ids(&self, slots: &[NodeSlot]) -> Vec<NodeId> {
        slots.iter().map(|slot| self.nodes.id(*slot)).collect()
    }

    /// The dead node from which the holder of the session of `client` has it, if it has inherited it and it has not moved nor begun anew since.
    pub fn inherited_from(&self, client: &str) -> Option<NodeId> {
        let lease = self.leases.table.lease(self.leases.table.find(client)?);
        lease.inherited_from.map(|from| self.nodes.id(from))
    }
}
