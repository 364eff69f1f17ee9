//! Heirs: who has the copies of whose sessions.
//!
//! A home has a *base*, the nodes that have complete copies of its sessions, and while these are to change, *next*, the nodes that it fills. The heir of
//! a session is the pick of its client id ([`heir_of`]) among the base, whoever of it is dead: another would take "I have no copy" for "there is
//! no session". So a node that joins inherits nothing before it has everything, and the base is stored and not derived.
//!
//! | event | what becomes of the heirs |
//! | --- | --- |
//! | `FillHeirs` | next is what it says, under the index of the command |
//! | `HeirsFilled` of that index | base is next, and nobody of it is stale |
//! | an heir is expired | in the base of a live home it is *stale*, for it misses what comes from now on; a fill that it was part of is void |
//! | an heir is expired with the home, in one entry | nothing: the home has done nothing since, and when the heir is back, it has everything |
//! | an heir has lost what it had, or is forgotten | stale in every base, and such a fill is void |
//! | the home begins a new life | its fill is void; who of its base is dead is stale from now on; the base is not whole: a new run knows nothing of what its heirs have |
//! | a session passes to the home | the base is not whole, until a fill that began later has ended |
//!
//! Whole means that a session without a copy at its heir is an empty one. What is not whole is filled again, which costs nothing where
//! nothing is missing.
//!
//! Invariants: nobody is its own heir; who is filled is live; base and next are in the order of ids.
//!
//! Tests to read first: `tests/heirs_scripts.rs`.

use super::ControlState;
use super::digest::Digest;
use super::nodes::{NodeSlot, Nodes, Standing, weight};
use crate::command::{Effect, NodeId, Outcome, Refusal};

/// The heirs of one node: see [`ControlState::heirs`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeirsView {
    /// Who has the copies, in the order of ids, each with whether it is *stale*: it has missed something since, or has lost what it had. Dead and
    /// forgotten nodes stay in it until the next fill has ended, so that no other takes their place without a copy.
    pub base: Vec<(NodeId, bool)>,
    /// The fill that is under way: its index, and who is filled, in the order of ids. All of them are live.
    pub next: Option<(u64, Vec<NodeId>)>,
    /// Every session of the node has a copy at its pick in `base`, unless that is stale.
    pub whole: bool,
}

/// The node of `among` that has the copy of the session of `client`: always the same, and one node more or less moves no
/// others. The order of `among` does not matter.
#[must_use]
pub fn heir_of(client: &str, among: &[NodeId]) -> Option<NodeId> {
    among.iter().copied().max_by_key(|node| weight(client, *node))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heir {
    pub(super) slot: NodeSlot,
    pub(super) stale: bool,
}

/// The heirs of one home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HomeHeirs {
    pub(super) base: Vec<Heir>,
    /// With the index at which the fill began.
    pub(super) next: Option<(u64, Vec<NodeSlot>)>,
    /// Index at which the home last got sessions of which its heirs have nothing, or may have too little.
    pub(super) inherited_at: u64,
    pub(super) whole: bool,
}

impl HomeHeirs {
    fn looks_like(&self, other: &Self) -> bool {
        (&self.base, &self.next, self.whole) == (&other.base, &other.next, other.whole)
    }
}

/// Those of all homes.
#[derive(Debug, Clone, Default)]
pub(super) struct Heirs {
    /// By the slots of the homes.
    of: Vec<HomeHeirs>,
    /// What the command at hand has changed, each as it was before.
    changed: Vec<(NodeSlot, HomeHeirs)>,
}

impl Heirs {
    pub(super) fn of(&self, home: NodeSlot) -> Option<&HomeHeirs> {
        self.of.get(home.place())
    }

    /// All homes that have, or had, heirs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeSlot, &HomeHeirs)> {
        let numbered = self.of.iter().enumerate();
        let numbered = numbered.filter_map(|(place, heirs)| Some((NodeSlot::new(place)?, heirs)));
        numbered.filter(|(_, heirs)| **heirs != HomeHeirs::default())
    }

    pub(super) fn put(&mut self, home: NodeSlot, heirs: HomeHeirs) {
        if self.of.len() <= home.place() {
            self.of.resize(home.place() + 1, HomeHeirs::default());
        }
        self.of[home.place()] = heirs;
    }

    /// Those of `home`, to be changed.
    fn change(&mut self, home: NodeSlot) -> &mut HomeHeirs {
        if self.of.len() <= home.place() {
            self.of.resize(home.place() + 1, HomeHeirs::default());
        }
        let heirs = &mut self.of[home.place()];
        if !self.changed.iter().any(|(changed, _)| *changed == home) {
            self.changed.push((home, heirs.clone()));
        }
        heirs
    }

    /// Says of whom the heirs are not as they were before the command at hand.
    pub(super) fn tell_changes(&mut self, nodes: &Nodes, effects: &mut Vec<Effect>) {
        for (home, before) in std::mem::take(&mut self.changed) {
            let node = nodes.get(home);
            let is_node = !matches!(node.standing, Standing::Forgotten(_));
            if is_node && !self.of[home.place()].looks_like(&before) {
                effects.push(Effect::HeirsChanged { home: node.id });
            }
        }
    }

    /// Who has the copy of the session of `client` whose home that is, unless it cannot take it over.
    pub(super) fn heir(&self, home: NodeSlot, client: &str, nodes: &Nodes) -> Option<NodeSlot> {
        let base = &self.of(home)?.base;
        let pick = base.iter().max_by_key(|heir| weight(client, nodes.id(heir.slot)))?;
        (!pick.stale && nodes.is_live(pick.slot)).then_some(pick.slot)
    }

    /// All who can take something over from `home`.
    pub(super) fn inheriting(&self, home: NodeSlot, nodes: &Nodes) -> Vec<NodeSlot> {
        let base = self.of(home).map_or(&[][..], |heirs| &heirs.base);
        base.iter().filter(|heir| !heir.stale && nodes.is_live(heir.slot)).map(|heir| heir.slot).collect()
    }

    pub(super) fn is_whole(&self, home: NodeSlot) -> bool {
        self.of(home).is_some_and(|heirs| heirs.whole)
    }

    /// A session has passed to `home` at `index`, or the home begins a new life.
    pub(super) fn outgrow(&mut self, home: NodeSlot, index: u64) {
        let known = self.of(home).is_some_and(|heirs| heirs.inherited_at == index && !heirs.whole);
        if !known {
            let heirs = self.change(home);
            (heirs.inherited_at, heirs.whole) = (index, false);
        }
    }

    /// The life of `node` is over: it misses what is copied from now on, if a home lives that is not `dying` with it. If what it had is `lost`, no copy that it had counts any more.
    pub(super) fn miss(&mut self, node: NodeSlot, lost: bool, (nodes, dying): (&Nodes, &[NodeSlot])) {
        for place in 0..self.of.len() {
            let Some(home) = NodeSlot::new(place) else { continue };
            let heirs = &self.of[place];
            let goes_on = nodes.has(home) && nodes.is_live(home) && !dying.contains(&home);
            let misses = (lost || goes_on) && heirs.base.iter().any(|heir| heir.slot == node && !heir.stale);
            let voids = heirs.next.as_ref().is_some_and(|(_, next)| home == node || next.contains(&node));
            if misses || voids {
                let heirs = self.change(home);
                heirs.next.take_if(|_| voids);
                let of_it = heirs.base.iter_mut().filter(|heir| misses && heir.slot == node);
                of_it.for_each(|heir| heir.stale = true);
            }
        }
    }

    /// `home` begins a new life at `index`.
    pub(super) fn begin_life(&mut self, home: NodeSlot, index: u64, nodes: &Nodes) {
        if self.of(home).is_none_or(|heirs| *heirs == HomeHeirs::default()) {
            return;
        }
        self.outgrow(home, index);
        let heirs = self.change(home);
        heirs.next = None;
        heirs.base.iter_mut().for_each(|heir| heir.stale |= !nodes.is_live(heir.slot));
    }

    /// Whether some home has that node in a set.
    pub(super) fn name(&self, node: NodeSlot) -> bool {
        self.of.iter().any(|heirs| {
            let in_next = heirs.next.as_ref().is_some_and(|(_, next)| next.contains(&node));
            in_next || heirs.base.iter().any(|heir| heir.slot == node)
        })
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for (home, HomeHeirs { base, next, inherited_at, whole }) in self.iter() {
            digest.add(&[&"heirs", &home.number(), inherited_at, &u64::from(*whole)]);
            for Heir { slot, stale } in base {
                digest.add(&[&"heir", &home.number(), &slot.number(), &u64::from(*stale)]);
            }
            if let Some((fill, next)) = next {
                digest.add(&[&"fill", &home.number(), fill]);
                next.iter().for_each(|slot| digest.add(&[&"filled", &home.number(), fill, &slot.number()]));
            }
        }
    }
}

impl ControlState {
    pub(super) fn fill_heirs(&mut self, by: NodeSlot, next: Vec<NodeId>) -> Outcome {
        let mut slots = Vec::with_capacity(next.len());
        for id in next {
            match self.nodes.find(id) {
                None => return Outcome::Refused(Refusal::UnknownNode),
                Some(slot) if slot == by => return Outcome::Refused(Refusal::NotHeir),
                Some(slot) if !self.nodes.is_live(slot) => return Outcome::Refused(Refusal::NotLive),
                Some(slot) => slots.push(slot),
            }
        }
        slots.sort_unstable_by_key(|slot| self.nodes.id(*slot));
        slots.dedup();
        let fill = self.index;
        let under_way = self.heirs.of(by).and_then(|heirs| heirs.next.as_ref());
        if under_way.is_some_and(|(other, of)| *other == fill && *of != slots) {
            // Two fills of one name.
            return Outcome::Refused(Refusal::NotAllowed);
        }
        self.heirs.change(by).next = Some((fill, slots));
        Outcome::FillBegun { fill }
    }

    pub(super) fn heirs_filled(&mut self, by: NodeSlot, fill: u64) -> Outcome {
        let under_way = self.heirs.of(by).and_then(|heirs| heirs.next.as_ref());
        if under_way.is_none_or(|(under_way, _)| *under_way != fill) {
            return Outcome::Refused(Refusal::NoSuchFill);
        }
        let heirs = self.heirs.change(by);
        let filled = heirs.next.take().map_or(Vec::new(), |(_, filled)| filled);
        heirs.base = filled.into_iter().map(|slot| Heir { slot, stale: false }).collect();
        heirs.whole = heirs.inherited_at < fill;
        Outcome::Done
    }

    /// Who has copies of the sessions of `home`; `None` if there is no such node.
    pub fn heirs(&self, home: NodeId) -> Option<HeirsView> {
        let slot = self.nodes.find(home)?;
        let Some(HomeHeirs { base, next, whole, .. }) = self.heirs.of(slot) else {
            return Some(HeirsView::default());
        };
        Some(HeirsView {
            base: base.iter().map(|heir| (self.nodes.id(heir.slot), heir.stale)).collect(),
            next: next.as_ref().map(|(fill, next)| (*fill, self.ids(next))),
            whole: *whole,
        })
    }
}
