//! The leader's commands about nodes: who lives, who is dead, who is forgotten, and which version of the state all of them understand.

use std::sync::Arc;

use super::heirs::HomeHeirs;
use super::lease::Turn;
use super::nodes::{Node, NodeSlot, Standing};
use super::orphans::Pending;
use super::routes::SWEEP_KEYS_MAX;
use super::tenures::{Fate, Tenure};
use super::{ControlState, PASS_ON_MAX};
use crate::command::{Effect, Incarnation, NodeId, Outcome, Refusal};

/// Who registers.
pub(super) struct Registration {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) run: u64,
    pub(super) versions: (u16, u16),
    pub(super) intact: bool,
}

impl ControlState {
    pub(super) fn register(&mut self, who: Registration, effects: &mut Vec<Effect>) -> Outcome {
        let known = self.nodes.find(who.node);
        if let Some(slot) = known {
            let Node { incarnation, run, standing, .. } = *self.nodes.get(slot);
            if standing == Standing::Live && run == who.run {
                return Outcome::Registered { incarnation };
            }
        }
        let version = if self.version == 0 { who.versions.1 } else { self.version };
        if !(who.versions.0..=who.versions.1).contains(&version) {
            return Outcome::Refused(Refusal::Versions);
        }
        if let Some(slot) = known {
            if self.nodes.is_live(slot) && !who.intact && !self.heirs.inheriting(slot, &self.nodes).is_empty() {
                self.end_life(slot, effects);
                self.sweep(effects);
            }
            if self.orphans.of(slot).is_some() {
                return Outcome::Refused(Refusal::OrphansPending);
            }
        }
        let Some(slot) = known.or_else(|| self.nodes.free_slot()) else {
            return Outcome::Refused(Refusal::TooManyNodes);
        };
        self.version = version;
        match known {
            Some(slot) => self.end_incarnation(slot, who.intact, effects),
            None => self.nodes.put(new_node(slot, who.node, self.nodes.incarnation_floor, self.index)),
        }
        let index = self.index;
        let node = self.nodes.get_mut(slot);
        node.incarnation += 1;
        (node.run, node.versions, node.name) = (who.run, who.versions, who.name.into());
        (node.standing, node.batch, node.registered_at) = (Standing::Live, 0, index);
        let incarnation = node.incarnation;
        effects.push(Effect::NodeUp { node: node.id, incarnation, name: Arc::clone(&node.name) });
        self.heirs.begin_life(slot, index, &self.nodes);
        self.sweep(effects);
        Outcome::Registered { incarnation }
    }

    /// A known node registers anew: what nobody has inherited is its own again. What it has of that is the best there is, also if it is less than it
    /// was; but as an heir it is stale then. The routes of an incarnation that lived until now stay until the next one has all of its
    /// own, if it still has all the sessions behind them.
    fn end_incarnation(&mut self, slot: NodeSlot, intact: bool, effects: &mut Vec<Effect>) {
        let (now, index) = (self.now, self.index);
        let was_live = self.nodes.is_live(slot);
        let node = self.nodes.get_mut(slot);
        node.standing = Standing::Dead(now);
        if was_live && !intact {
            (node.routes_from, node.shares_from) = (index, index);
            effects.push(Effect::NodeDown { node: node.id, incarnation: node.incarnation, heirs: Vec::new() });
            self.void_routes();
        }
        if !intact {
            self.leave_pending(slot, effects);
        }
        let Self { nodes, leases, wills, heirs, orphans, .. } = self;
        let mut turn = Turn { now, index, nodes, wills, heirs, orphans, effects };
        leases.tenure(slot).keep_the_rest();
        if was_live {
            leases.end_era(slot, Fate::Kept, &mut turn);
            leases.withdraw_all_of(slot, &mut turn);
            // Of one that has less than it had the claimant has more, perhaps.
            if intact {
                leases.withdraw_all_from(slot, &mut turn);
            }
            turn.wills.take_from(slot);
        }
        if !intact {
            self.heirs.miss(slot, true, (&self.nodes, &[]));
        }
    }

    pub(super) fn expire_node(&mut self, id: NodeId, incarnation: Incarnation, effects: &mut Vec<Effect>) -> Outcome {
        let Some(slot) = self.nodes.live((id, incarnation)) else {
            return Outcome::Refused(Refusal::NotLive);
        };
        self.end_life(slot, effects);
        self.sweep(effects);
        Outcome::Done
    }

    /// The live incarnation of the node is over, and its heirs inherit, if it has any.
    fn end_life(&mut self, slot: NodeSlot, effects: &mut Vec<Effect>) {
        let (now, index) = (self.now, self.index);
        let inheriting = self.heirs.inheriting(slot, &self.nodes);
        let ids = self.ids(&inheriting);
        let node = self.nodes.get_mut(slot);
        (node.standing, node.shares_from) = (Standing::Dead(now), index);
        if inheriting.is_empty() {
            node.routes_from = index;
        }
        effects.push(Effect::NodeDown { node: node.id, incarnation: node.incarnation, heirs: ids });
        let fate = if inheriting.is_empty() { Fate::Kept } else { Fate::Inherited };
        if !inheriting.is_empty() {
            self.orphans.put(slot, Pending { heirs: inheriting, passed: false });
        }
        // Before its claims go, and with them perhaps the last lease of who it inherits from.
        self.leave_pending(slot, effects);
        let Self { nodes, leases, wills, heirs, orphans, .. } = self;
        let mut turn = Turn { now, index, nodes, wills, heirs, orphans, effects };
        leases.end_era(slot, fate, &mut turn);
        if !leases.has_to_pass_on(slot) {
            turn.orphans.passed_on(slot, turn.nodes, turn.effects);
        }
        leases.withdraw_all_of(slot, &mut turn);
        turn.wills.take_from(slot);
        self.heirs.miss(slot, false, (&self.nodes, &self.dying));
        self.void_routes();
    }

    pub(super) fn pass_on(&mut self, id: NodeId, incarnation: Incarnation, effects: &mut Vec<Effect>) -> Outcome {
        if self.nodes.live((id, incarnation)).is_some() {
            return Outcome::Refused(Refusal::StillLive);
        }
        let slots: Vec<NodeSlot> = self.nodes.all().filter(|(_, node)| node.id == id).map(|(slot, _)| slot).collect();
        let (now, index) = (self.now, self.index);
        let Self { nodes, leases, wills, heirs, orphans, .. } = self;
        let mut turn = Turn { now, index, nodes, wills, heirs, orphans, effects };
        slots.iter().for_each(|slot| leases.pass_on_slice(*slot, PASS_ON_MAX, &mut turn));
        if slots.is_empty() { Outcome::Refused(Refusal::UnknownNode) } else { Outcome::Done }
    }

    pub(super) fn forget(&mut self, id: NodeId, effects: &mut Vec<Effect>) -> Outcome {
        let Some(slot) = self.nodes.find(id) else {
            return Outcome::Refused(Refusal::UnknownNode);
        };
        if self.nodes.is_live(slot) {
            return Outcome::Refused(Refusal::StillLive);
        }
        if self.orphans.of(slot).is_some() {
            return Outcome::Refused(Refusal::OrphansPending);
        }
        let (now, index) = (self.now, self.index);
        let floor = self.nodes.incarnation_floor.max(self.nodes.get(slot).incarnation);
        self.nodes.incarnation_floor = floor;
        self.nodes.get_mut(slot).standing = Standing::Forgotten(now);
        self.forgotten += 1;
        let Self { nodes, leases, wills, heirs, orphans, .. } = self;
        leases.end_era(slot, Fate::Lost, &mut Turn { now, index, nodes, wills, heirs, orphans, effects });
        self.heirs.miss(slot, true, (&self.nodes, &[]));
        effects.push(Effect::NodeForgotten { node: id });
        Outcome::Done
    }

    pub(super) fn raise_version(&mut self, version: u16) -> Outcome {
        let all_know = |(_, node): (NodeSlot, &Node)| (node.versions.0..=node.versions.1).contains(&version);
        if version < self.version || !self.nodes.live_nodes().all(all_know) {
            return Outcome::Refused(Refusal::Versions);
        }
        self.version = version;
        Outcome::Done
    }

    /// Some entries of routes do not count any more.
    pub(super) fn void_routes(&mut self) {
        self.routes.begin_sweep();
        self.share_routes.begin_sweep();
    }

    /// One slice of the work that this leaves behind.
    pub(super) fn sweep(&mut self, effects: &mut Vec<Effect>) {
        self.routes.sweep(SWEEP_KEYS_MAX, &self.nodes, effects);
        self.share_routes.sweep(SWEEP_KEYS_MAX, &self.nodes, effects);
    }

    /// Gives away the slots of forgotten nodes that nothing names any more.
    pub(super) fn free_slots(&mut self) {
        if self.forgotten == 0 || self.routes.is_sweeping() || self.share_routes.is_sweeping() {
            return;
        }
        let is_forgotten = |(_, node): &(NodeSlot, &Node)| matches!(node.standing, Standing::Forgotten(_));
        let without_leases = |slot: &NodeSlot| self.leases.table.len_of(*slot) == 0;
        let forgotten = self.nodes.all().filter(is_forgotten).map(|(slot, _)| slot);
        let over: Vec<NodeSlot> = forgotten.filter(without_leases).collect();
        // Nobody inherits from them any more.
        over.iter().for_each(|slot| self.heirs.put(*slot, HomeHeirs::default()));
        for slot in over.into_iter().filter(|slot| !self.heirs.name(*slot)).collect::<Vec<_>>() {
            self.forgotten -= 1;
            self.nodes.free(slot);
            *self.leases.tenure(slot) = Tenure::default();
            self.leases.forget_origin(slot);
        }
    }
}

/// Its first incarnation is still to come.
fn new_node(slot: NodeSlot, id: NodeId, incarnation: Incarnation, index: u64) -> Node {
    Node {
        slot,
        id,
        name: Arc::default(),
        incarnation,
        run: 0,
        versions: (0, 0),
        standing: Standing::Dead(0),
        batch: 0,
        registered_at: index,
        routes_from: index,
        shares_from: index,
    }
}
