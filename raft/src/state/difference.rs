//! What follows from a jump: a node that has missed entries of the log and takes a newer state instead must do what their effects would have
//! made it do, as far as it still matters.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ControlState;
use super::claims::WaitingClaim;
use super::lease::{Flag, Lease, Phase};
use super::nodes::{Node, Standing};
use super::routes::{Route, RouteKey, Routes};
use super::table::Entry;
use super::wills::{DueWill, Publisher};
use crate::command::{ClientId, Effect, Incarnation, NodeId};

impl ControlState {
    /// What the commands between `self` and `newer` have caused and what still stands: for a single command its effects, in some order. Missing is what
    /// was begun and is over: claims, and Wills that became due and are done.
    pub fn difference(&self, newer: &Self) -> Vec<Effect> {
        let leases = self.leases_until(newer);
        let mut effects = Vec::new();
        self.nodes_until(newer, &heirs_in(&leases), &mut effects);
        routes_until((&self.routes, self), (&newer.routes, newer), &mut effects);
        routes_until((&self.share_routes, self), (&newer.share_routes, newer), &mut effects);
        effects.extend(leases);
        // Claims on leases that are only in the newer state, too.
        for (client, claim) in &newer.leases.claims {
            self.claim_until(client, claim, newer, &mut effects);
        }
        self.wills_until(newer, &mut effects);
        self.heirs_until(newer, &mut effects);
        self.bans.difference(&newer.bans, &mut effects);
        let closed = newer.leases.claims.iter().filter_map(|(client, claim)| self.closed_until(client, claim, newer));
        effects.extend(closed);
        effects
    }

    fn leases_until(&self, newer: &Self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for entry in self.leases.table.iter() {
            self.lease_until(entry, newer, &mut effects);
        }
        // And of leases that are only in the newer state those that were inherited.
        for Entry { client, lease } in newer.leases.table.iter().filter(|entry| entry.lease.inherited_from.is_some()) {
            if self.leases.table.find(client).is_none()
                && let Some(from_to) = self.inheritance(None, lease, newer)
            {
                effects.push(self.passed_on((client, lease), newer, from_to));
            }
        }
        effects
    }

    /// `passed`: to whom sessions have passed, and from whom. Those have inherited from a node that has died and has no orphans any more, or have done so before others that are
    /// still about to: what the dead node was owed is owed to all of them.
    fn nodes_until(&self, newer: &Self, passed: &BTreeSet<(NodeId, NodeId)>, effects: &mut Vec<Effect>) {
        let heirs_of = |home: NodeId, pending: Vec<NodeId>| {
            let heirs = passed.range((home, NodeId(0))..).take_while(|(from, _)| *from == home).map(|(_, heir)| *heir);
            let is_live = |heir: &NodeId| newer.nodes.find(*heir).is_some_and(|slot| newer.nodes.is_live(slot));
            let heirs: BTreeSet<NodeId> = heirs.filter(is_live).chain(pending).collect();
            heirs.into_iter().collect::<Vec<_>>()
        };
        for (node, incarnation, _) in self.orphans().filter(|(node, life, _)| !newer.has_orphans(*node, *life)) {
            effects.push(Effect::OrphansEnded { node, incarnation });
        }
        for (_, before) in self.nodes.iter() {
            let (node, incarnation) = (before.id, before.incarnation);
            let now = newer.nodes.find(node).map(|slot| newer.nodes.get(slot));
            // A later incarnation, without a time at which none of the node's routes counted.
            let restarted = |now: &Node| now.routes_from <= self.index;
            let goes_on = now.is_some_and(|now| {
                let is_same = now.incarnation == incarnation;
                match now.standing {
                    Standing::Live => is_same || restarted(now),
                    // That it is dead is told with its orphans.
                    _ => newer.has_orphans(node, now.incarnation) && (is_same || restarted(now)),
                }
            });
            if before.standing == Standing::Live && !goes_on {
                let heirs = heirs_of(node, Vec::new());
                let has_ended = !heirs.is_empty();
                effects.push(Effect::NodeDown { node, incarnation, heirs });
                effects.extend(has_ended.then_some(Effect::OrphansEnded { node, incarnation }));
            }
            if now.is_none() {
                effects.push(Effect::NodeForgotten { node });
            }
        }
        for (node, incarnation, heirs) in newer.orphans().filter(|(node, life, _)| !self.has_orphans(*node, *life)) {
            effects.push(Effect::NodeDown { node, incarnation, heirs: heirs_of(node, heirs) });
        }
        for (_, now) in newer.nodes.live_nodes() {
            let before = self.nodes.find(now.id).map(|slot| self.nodes.get(slot));
            if !before.is_some_and(|before| (before.incarnation, before.standing) == (now.incarnation, now.standing)) {
                let (node, incarnation, name) = (now.id, now.incarnation, Arc::clone(&now.name));
                effects.push(Effect::NodeUp { node, incarnation, name });
            }
        }
    }

    /// Who has copies of whose sessions, and of whom all sessions are passed on.
    fn heirs_until(&self, newer: &Self, effects: &mut Vec<Effect>) {
        for (_, home) in newer.nodes.iter() {
            if self.heirs(home.id).unwrap_or_default() != newer.heirs(home.id).unwrap_or_default() {
                effects.push(Effect::HeirsChanged { home: home.id });
            }
        }
        for (slot, _) in newer.orphans.iter().filter(|(_, pending)| pending.passed) {
            let &Node { id: node, incarnation, .. } = newer.nodes.get(slot);
            let known = self.nodes.find(node).filter(|slot| self.nodes.get(*slot).incarnation == incarnation);
            if !known.is_some_and(|slot| self.orphans.of(slot).is_some_and(|pending| pending.passed)) {
                effects.push(Effect::PassedOnAll { node, incarnation });
            }
        }
    }

    fn has_orphans(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.orphans.iter().any(|(slot, _)| {
            let dead = self.nodes.get(slot);
            (dead.id, dead.incarnation) == (node, incarnation)
        })
    }

    fn lease_until(&self, before: &Entry, newer: &Self, effects: &mut Vec<Effect>) {
        let Entry { client, lease: old } = before;
        let now = newer.leases.table.find(client).map(|key| newer.leases.table.lease(key));
        let mut holder = self.nodes.id(old.holder);
        let holder_now = now.map(|now| newer.nodes.id(now.holder));
        let same_session = now.is_some_and(|now| now.began == old.began && !now.is_ended());
        let claim = if old.has(Flag::Claimed) { self.leases.claims.get(client) } else { None };
        let settled = claim.is_some_and(|claim| {
            holder_now == Some(self.nodes.id(claim.by)) && now.is_some_and(|now| now.epoch == claim.epoch)
        });
        if let Some(claim) = claim.filter(|_| !settled) {
            effects.extend(self.claim_gone(client, claim, now, newer));
        }
        if let Some(now) = now.filter(|now| is_cut_off(old, now) && holder_now == Some(holder)) {
            let (epoch, by, clean, closing) = (now.last_epoch(), holder, false, true);
            effects.push(Effect::Claimed { client: Arc::clone(client), epoch, holder, by, clean, closing });
            effects.push(Effect::Withdrawn { client: Arc::clone(client), epoch, holder, by });
        }
        // It has passed to its heir and ended there, as far as this state knows.
        let heir = self.leases.coming_heir(before, newer.now, (&self.heirs, &self.nodes));
        if let Some(heir) = heir.filter(|_| !same_session) {
            effects.push(self.passed_on((client, old), newer, (holder, self.nodes.id(heir))));
            holder = self.nodes.id(heir);
        }
        let passed = now.and_then(|now| self.inheritance(Some(old), now, newer));
        let by_death = passed.is_some_and(|(from, _)| from == holder);
        let moved = settled || (same_session && !old.is_ended() && holder_now != Some(holder) && !by_death);
        if !old.is_ended() && !same_session {
            effects.push(Effect::SessionEnded { client: Arc::clone(client), epoch: old.epoch, holder });
        }
        if let (true, Some(now), Some(to)) = (moved, now, holder_now) {
            effects.push(Effect::Moved { client: Arc::clone(client), epoch: now.epoch, from: holder, to });
        }
        if let (Some(now), Some(from_to)) = (now, passed) {
            // Who takes over a lease at once, when it passes to it, has heard of the connection before.
            let lease = if heir.is_some() && same_session { old } else { now };
            effects.push(self.passed_on((client, lease), newer, from_to));
        }
    }

    /// From whom to whom a session has passed since, if the last that happened to it is that.
    fn inheritance(&self, old: Option<&Lease>, now: &Lease, newer: &Self) -> Option<(NodeId, NodeId)> {
        let from = now.inherited_from.filter(|_| !now.is_ended())?;
        let (from, to) = (newer.nodes.id(from), newer.nodes.id(now.holder));
        let known = old.is_some_and(|old| {
            let had_from = old.inherited_from.map(|from| self.nodes.id(from));
            (had_from, self.nodes.id(old.holder)) == (Some(from), to)
        });
        (!known).then_some((from, to))
    }

    fn passed_on(&self, (client, lease): (&ClientId, &Lease), newer: &Self, (from, to): (NodeId, NodeId)) -> Effect {
        let &Lease { epoch, began, expiry_secs, .. } = lease;
        // A dead node's heirs are those that it had when it died, and until all is passed on they are so if it is forgotten, too.
        let last_death = |state: &Self| {
            let dead = state.nodes.all().filter(|(_, node)| node.id == from && node.standing != Standing::Live);
            let ends = dead.map(|(slot, node)| (node.incarnation, state.heirs.is_whole(slot)));
            ends.max_by_key(|(incarnation, _)| *incarnation)
        };
        let ends = [newer, self].into_iter().filter_map(last_death);
        let sure = ends.max_by_key(|(incarnation, _)| *incarnation).is_some_and(|(_, whole)| whole);
        Effect::PassedOn { client: Arc::clone(client), epoch, began, expiry_secs, from, to, sure }
    }

    /// What became of a claim that was not settled, unless it is still under way.
    fn claim_gone(&self, client: &ClientId, claim: &WaitingClaim, now: Option<&Lease>, newer: &Self) -> Option<Effect> {
        let epoch = claim.epoch;
        if newer.leases.claims.get(client).is_some_and(|now| now.epoch == epoch) {
            return None;
        }
        let (client, by) = (Arc::clone(client), self.nodes.id(claim.by));
        Some(match now {
            Some(now) if now.last_epoch() > epoch => Effect::ClaimLost { client, epoch, by },
            _ => Effect::Withdrawn { client, epoch, holder: claim.asked, by },
        })
    }

    fn claim_until(&self, client: &ClientId, now: &WaitingClaim, newer: &Self, effects: &mut Vec<Effect>) {
        let &WaitingClaim { epoch, asked: holder, clean, cut, .. } = now;
        let by = newer.nodes.id(now.by);
        let before = self.leases.claims.get(client).filter(|before| before.epoch == epoch);
        if before.is_none() {
            let lease = newer.leases.table.find(client).map(|key| newer.leases.table.lease(key));
            let closing = lease.is_some_and(|lease| lease.has(Flag::Closing));
            effects.push(Effect::Claimed { client: Arc::clone(client), epoch, holder, by, clean, closing });
        }
        if let Some(index) = cut.filter(|_| before.is_none_or(|before| before.cut != cut)) {
            effects.push(Effect::CutMade { client: Arc::clone(client), epoch, holder, by, index });
        }
    }

    /// Comes behind the Wills that are due with it. Another incarnation of the holder does not ask.
    fn closed_until(&self, client: &ClientId, now: &WaitingClaim, newer: &Self) -> Option<Effect> {
        let lease = |state: &Self| state.leases.table.find(client).map(|key| state.leases.table.lease(key).clone());
        let before = self.leases.claims.get(client).filter(|before| before.epoch == now.epoch);
        let (old, new) = before.and_then(|_| lease(self).zip(lease(newer)))?;
        let is_known = old.has(Flag::Closing) && !new.has(Flag::Closing) && old.era == new.era;
        is_known.then(|| Effect::Closed { client: Arc::clone(client), epoch: now.epoch, holder: now.asked })
    }

    fn wills_until(&self, newer: &Self, effects: &mut Vec<Effect>) {
        for (client, epoch, will) in newer.wills.iter() {
            let told = |state: &Self, will: &DueWill| match will.publisher {
                Publisher::Node(slot, incarnation) => Some((state.nodes.id(slot), incarnation)),
                Publisher::Nobody { .. } => None,
            };
            let before = self.wills.get(client, epoch).and_then(|before| told(self, before));
            let Some((publisher, incarnation)) = told(newer, will) else {
                continue;
            };
            if before != Some((publisher, incarnation)) {
                let (client, message) = (Arc::clone(client), will.message.clone());
                effects.push(Effect::WillDue { client, epoch, message, publisher });
            }
        }
        for (client, epoch, _) in self.wills.iter() {
            if newer.wills.get(client, epoch).is_none() {
                effects.push(Effect::WillForgotten { client: Arc::clone(client), epoch });
            }
        }
    }
}

/// To whom sessions have passed, behind from whom.
fn heirs_in(effects: &[Effect]) -> BTreeSet<(NodeId, NodeId)> {
    let passed = effects.iter().filter_map(|effect| match effect {
        Effect::PassedOn { from, to, .. } => Some((*from, *to)),
        _ => None,
    });
    passed.collect()
}

/// Whether a claim that is over again has ended the connection, and the holder does not know.
fn is_cut_off(old: &Lease, now: &Lease) -> bool {
    let was_connected = old.phase() == Phase::Connected && old.epoch == now.epoch;
    was_connected && now.has(Flag::Closing) && !now.has(Flag::Claimed)
}

/// A set of routes and the state that it is of.
type Of<'a, K> = (&'a Routes<K>, &'a ControlState);

fn routes_until<K: RouteKey>((old, before): Of<'_, K>, (new, newer): Of<'_, K>, effects: &mut Vec<Effect>) {
    for (key, routes) in new.iter() {
        let had = old.raw(key);
        for route in routes.iter().filter(|route| route.counts::<K>(&newer.nodes)) {
            let node = newer.nodes.get(route.node);
            let same = |old: &&Route<K::Value>| before.nodes.id(old.node) == node.id;
            let known = had.iter().find(same);
            if known.is_none_or(|known| known.value != route.value || known.index < K::from_index(node)) {
                effects.push(key.added(node.id, route.value));
            }
        }
    }
    for (key, routes) in old.iter() {
        let has: BTreeSet<NodeId> = new.raw(key).iter().map(|route| newer.nodes.id(route.node)).collect();
        let gone = routes.iter().map(|route| before.nodes.id(route.node)).filter(|node| !has.contains(node));
        effects.extend(gone.map(|node| key.removed(node)));
    }
}
