//! What the end of an incarnation does to the leases that it held, however many they are.
//!
//! A node holds its leases in *eras*: one ends with each of its incarnations. The end of an era is written down once, and each lease
//! is *passed on* into the next one by itself: in slices, from the one held for longest on, and before any command that names it.
//! Until then it looks to everybody as if it had been. So an incarnation with a million sessions ends at once, and everything
//! else goes on meanwhile.
//!
//! Passing on: who was connected has lost the connection when the era ended, and a connection that a claim had closed has
//! ended without a DISCONNECT. If what the node had is lost with it, the session expires then. If it is to be *inherited*,
//! claims on the lease are withdrawn, and the heir becomes its holder; where that is dead or stale the
//! lease stays where it is, missing, until the node is back, or the heir with what it had ([`Command::Found`](crate::Command::Found)). A session
//! that ends with its connection, or has expired meanwhile, has no heir. An heir that has no copy says so ([`Command::Lost`](crate::Command::Lost)): if the node from which it
//! has the lease is dead, the lease goes back there and is missing. That node may be an heir that was itself about to enter the session when it stopped, and has all that its heirs lack.
//! Until an heir has said that it has inherited, nobody resumes what it inherits, unless all sessions of the dead node had copies.
//!
//! Heirs are picked when the lease is passed on, among the base as it was at the death: a dead home changes it no more. A
//! node that lives again keeps what nobody has inherited.
//!
//! Invariant: in the list of a holder no lease is of a later era than one behind it, and an end is kept for as long as there is a
//! lease from before it.

use std::collections::VecDeque;

use super::digest::Digest;
use super::heirs::Heirs;
use super::lease::{Flag, Lease, Phase, Turn};
use super::leases::Leases;
use super::nodes::{NodeSlot, Nodes, Standing};
use super::table::{Entry, LeaseKey};
use super::wills::session_end;
use crate::command::{ClientId, Effect, Outcome, Refusal, SessionEpoch};

/// The eras of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) era: u32,
    /// How eras ended that leases may still be from, the last one last.
    pub(super) ends: VecDeque<EraEnd>,
    /// Connected leases of the present era.
    pub(super) connected: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EraEnd {
    /// The one that ended.
    pub(super) era: u32,
    /// Control time, in milliseconds.
    pub(super) at: u64,
    pub(super) fate: Fate,
}

/// What becomes of the sessions of an era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// They stay with the node.
    Kept,
    /// Their heirs have them.
    Inherited,
    Lost,
}

/// What a lease has still to go through.
#[derive(Clone, Copy)]
struct Passage {
    /// When its connection ended.
    since: u64,
    /// Whether an heir may have it.
    inherited: bool,
    /// When its session was lost, unless it was inherited.
    lost: Option<u64>,
}

impl Fate {
    fn number(self) -> u64 {
        match self {
            Fate::Kept => 0,
            Fate::Lost => 1,
            Fate::Inherited => 2,
        }
    }
}

impl Tenure {
    fn passage(&self, era: u32) -> Option<Passage> {
        if era == self.era {
            return None;
        }
        let ends = || self.ends.iter().skip_while(|end| end.era < era);
        let since = ends().next().map_or(0, |end| end.at);
        let inherited = ends().find(|end| end.fate != Fate::Kept).is_some_and(|end| end.fate == Fate::Inherited);
        Some(Passage { since, inherited, lost: ends().find(|end| end.fate == Fate::Lost).map(|end| end.at) })
    }

    /// The node lives again: what has not been inherited is its own.
    pub(super) fn keep_the_rest(&mut self) {
        let inherited = self.ends.iter_mut().filter(|end| end.fate == Fate::Inherited);
        inherited.for_each(|end| end.fate = Fate::Kept);
    }
}

impl Leases {
    pub(super) fn tenure(&mut self, node: NodeSlot) -> &mut Tenure {
        if self.tenures.len() <= node.place() {
            self.tenures.resize(node.place() + 1, Tenure::default());
        }
        &mut self.tenures[node.place()]
    }

    /// Ends the era of `node`.
    pub(super) fn end_era(&mut self, node: NodeSlot, fate: Fate, turn: &mut Turn<'_>) {
        let at = turn.now;
        let none_held = self.table.len_of(node) == 0;
        let tenure = self.tenure(node);
        tenure.connected = 0;
        if !none_held {
            tenure.ends.push_back(EraEnd { era: tenure.era, at, fate });
            tenure.era += 1;
        }
        if self.images.are_kept() {
            // What is at rest says at once how it stands.
            self.pass_on_first(node, usize::MAX, turn);
        }
    }

    /// Whether `node` has leases that are to be passed on.
    pub(super) fn has_to_pass_on(&self, node: NodeSlot) -> bool {
        let first = self.table.first_of(node).map(|key| self.table.lease(key).era);
        first.is_some_and(|era| era != self.tenures[node.place()].era)
    }

    /// Passes on up to `leases_max` leases of `node`. Returns how many they were.
    pub(super) fn pass_on_first(&mut self, node: NodeSlot, leases_max: usize, turn: &mut Turn<'_>) -> usize {
        let mut passed = 0;
        while passed < leases_max && self.has_to_pass_on(node) {
            let Some(key) = self.table.first_of(node) else {
                break;
            };
            self.pass_on(key, turn);
            passed += 1;
        }
        passed
    }

    /// The same, and what is due with it happens.
    pub(super) fn pass_on_slice(&mut self, node: NodeSlot, leases_max: usize, turn: &mut Turn<'_>) {
        for _ in 0..leases_max {
            if !self.has_to_pass_on(node) {
                break;
            }
            let Some(key) = self.table.first_of(node) else {
                break;
            };
            if self.pass_on(key, turn) {
                self.catch_up(key, turn);
            }
        }
    }

    /// Takes a lease into the present era of its holder, or of its heir, if it is from an earlier one. Returns whether it is still there.
    pub(super) fn pass_on(&mut self, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        let lease = self.table.lease(key);
        let (holder, era) = (lease.holder, lease.era);
        let Some(passage) = self.tenures[holder.place()].passage(era) else {
            return true;
        };
        self.touch(key);
        self.disarm(key);
        let ended = self.table.lease(key).is_ended();
        let inherits = passage.inherited && !ended && self.table.lease(key).expiry_secs != 0;
        if !ended && self.table.lease(key).phase() == Phase::Connected {
            self.table.lease_mut(key).enter(Phase::Detached { since: passage.since });
        }
        if inherits {
            // It goes to the heir as after any end of a connection: nobody waits for it any more.
            self.withdraw_claim(key, turn);
            self.end_closing(key, turn);
        }
        if !(inherits && self.inherit(key, turn)) {
            if let Some(at) = passage.lost.filter(|_| !ended) {
                self.lose_session(key, at, turn);
            }
            self.end_closing(key, turn);
            self.table.lease_mut(key).era = self.tenures[holder.place()].era;
            self.table.give_to(key, holder);
        }
        self.note_passed(holder, turn);
        self.arm(key);
        !self.forget_if_over(key)
    }

    /// A lease of `holder` is passed on, or gone.
    pub(super) fn note_passed(&mut self, holder: NodeSlot, turn: &mut Turn<'_>) {
        let tenure = &mut self.tenures[holder.place()];
        let first_era = self.table.first_of(holder).map_or(tenure.era, |first| self.table.lease(first).era);
        while tenure.ends.front().is_some_and(|end| end.era < first_era) {
            tenure.ends.pop_front();
        }
        if !self.has_to_pass_on(holder) {
            turn.orphans.passed_on(holder, turn.nodes, turn.effects);
        }
    }

    /// Gives a lease that is disarmed, detached and unclaimed to its heir, if there is one who has the session and it has not expired.
    fn inherit(&mut self, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        let Entry { client, lease } = self.table.entry(key);
        let (client, from) = (ClientId::clone(client), lease.holder);
        let &Lease { epoch, began, expiry_secs, .. } = lease;
        if lease.ends_by(turn.now) {
            return false;
        }
        let Some(heir) = turn.heirs.heir(from, &client, turn.nodes) else {
            return false;
        };
        let era = self.tenure(heir).era;
        let lease = self.table.lease_mut(key);
        (lease.era, lease.inherited_from) = (era, Some(from));
        self.table.give_to(key, heir);
        let sure = turn.heirs.is_whole(from);
        turn.heirs.outgrow(heir, turn.index);
        let (from, to) = (turn.nodes.id(from), turn.nodes.id(heir));
        turn.effects.push(Effect::PassedOn { client, epoch, began, expiry_secs, from, to, sure });
        true
    }

    /// Whether the holder has still to say if it has the session: it inherits it from a node whose sessions may have been without copies. Who took it, or claimed it, now
    /// might begin an empty one in the place of one that the dead node brings back.
    pub(super) fn is_undecided(&self, key: LeaseKey, turn: &Turn<'_>) -> bool {
        let lease = self.table.lease(key);
        let waits = matches!(lease.phase(), Phase::Detached { .. }) && !lease.has(Flag::Closing);
        let Some(from) = lease.inherited_from.filter(|_| waits) else {
            return false;
        };
        let is_heir = turn.orphans.of(from).is_some_and(|pending| pending.heirs.contains(&lease.holder));
        is_heir && !turn.heirs.is_whole(from)
    }

    /// `by` has a complete copy of the session of `client`, whose holder is dead. Returns whether it is the holder now.
    pub(super) fn found(&mut self, client: &ClientId, by: NodeSlot, turn: &mut Turn<'_>) -> bool {
        let Some(key) = self.find_current(client, turn) else {
            return false;
        };
        let lease = self.table.lease(key);
        let holder = lease.holder;
        if holder == by {
            return !lease.is_ended() && lease.inherited_from.is_some();
        }
        if lease.is_ended() || turn.nodes.is_live(holder) || turn.heirs.heir(holder, client, turn.nodes) != Some(by) {
            return false;
        }
        self.touch(key);
        self.disarm(key);
        self.withdraw_claim(key, turn);
        let inherited = self.inherit(key, turn);
        self.run_due(key, turn);
        inherited
    }

    /// `by` has nothing of the session, which nobody has resumed since its connection ended. It goes back, or is over.
    pub(super) fn lost(&mut self, client: ClientId, epoch: SessionEpoch, by: NodeSlot, turn: &mut Turn<'_>) -> Outcome {
        let waits = |lease: &Lease| {
            // How a connection ended that a claim closes is open, and so it has been resumed.
            let is_it = lease.holder == by && lease.epoch == epoch && !lease.has(Flag::Closing);
            is_it && matches!(lease.phase(), Phase::Detached { .. })
        };
        let key = self.find_current(&client, turn).filter(|key| waits(self.table.lease(*key)));
        let Some(key) = key else {
            return Outcome::Refused(Refusal::NotHeir);
        };
        self.touch(key);
        self.disarm(key);
        if !self.give_back(key, turn) {
            self.lose_session(key, turn.now, turn);
        }
        self.run_due(key, turn);
        Outcome::Done
    }

    /// Its heir has nothing of a session, so the dead node from which that has inherited it is the only one that may have it: it is missing until that is back, as if
    /// nobody had been its heir. False if that lives without it, or is forgotten.
    fn give_back(&mut self, key: LeaseKey, turn: &mut Turn<'_>) -> bool {
        let is_dead = |slot: &NodeSlot| matches!(turn.nodes.get(*slot).standing, Standing::Dead(_));
        let Some(from) = self.table.lease(key).inherited_from.filter(is_dead) else {
            return false;
        };
        self.withdraw_claim(key, turn);
        let era = self.tenure(from).era;
        let lease = self.table.lease_mut(key);
        let (epoch, holder) = (lease.epoch, lease.holder);
        (lease.era, lease.inherited_from) = (era, None);
        self.table.give_to(key, from);
        let client = ClientId::clone(self.table.client(key));
        turn.effects.push(Effect::Moved { client, epoch, from: turn.nodes.id(holder), to: turn.nodes.id(from) });
        self.note_passed(holder, turn);
        true
    }

    /// The node is forgotten, and its slot is given away.
    pub(super) fn forget_origin(&mut self, node: NodeSlot) {
        self.table.each_mut(|lease| _ = lease.inherited_from.take_if(|from| *from == node));
    }

    /// Who has the session of a lease of an earlier era, and would become its holder if it was passed on at `now`.
    pub(super) fn coming_heir(
        &self,
        Entry { client, lease }: &Entry,
        now: u64,
        (heirs, nodes): (&Heirs, &Nodes),
    ) -> Option<NodeSlot> {
        let passage = self.tenures[lease.holder.place()].passage(lease.era)?;
        if !passage.inherited || lease.is_ended() || lease.expiry_secs == 0 {
            return None;
        }
        let since = match lease.phase() {
            Phase::Detached { since } => since,
            _ => passage.since,
        };
        let expired = session_end(since, lease.expiry_secs).is_some_and(|end| end <= now);
        if expired { None } else { heirs.heir(lease.holder, client, nodes) }
    }

    /// The session went with its holder: it expires. Who waits for it waits for nothing.
    fn lose_session(&mut self, key: LeaseKey, at: u64, turn: &mut Turn<'_>) {
        let claim = self.claims.get(self.table.client(key)).filter(|_| self.table.lease(key).has(Flag::Claimed));
        match claim.map(|claim| claim.clean) {
            Some(true) => return self.end(key, turn),
            Some(false) => self.withdraw_claim(key, turn),
            None => {}
        }
        let lease = self.table.lease_mut(key);
        lease.expiry_secs = 0;
        lease.enter(Phase::Detached { since: at });
    }

    /// The phase of a lease as everybody sees it.
    pub(super) fn phase_of(&self, lease: &Lease) -> Phase {
        let passage = self.tenures[lease.holder.place()].passage(lease.era);
        match (lease.phase(), passage) {
            (Phase::Ended, _) | (_, Some(Passage { lost: Some(_), inherited: false, .. })) => Phase::Ended,
            (Phase::Connected, Some(Passage { since, .. })) => Phase::Detached { since },
            (phase, _) => phase,
        }
    }

    pub(super) fn digest_tenures(&self, digest: &mut Digest) {
        for (place, tenure) in self.tenures.iter().enumerate() {
            // One that nobody has looked for is like one in its first era.
            if tenure.era > 0 {
                digest.add(&[&"tenure", &(place as u64), &u64::from(tenure.era)]);
            }
            for end in &tenure.ends {
                digest.add(&[&"era end", &(place as u64), &u64::from(end.era), &end.at, &end.fate.number()]);
            }
        }
    }
}
