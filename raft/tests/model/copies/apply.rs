//! What a node does when it has applied an entry of the log.

use super::control::{Command, Control, Rule, Will, pick};
use super::world::{Copied, EMPTY, PUBLISHER, State};
use crate::control::{NODES, Node, Set, has, only};

impl State {
    /// `node` applies its next entry.
    pub fn apply_next(&mut self, node: Node, without: Option<Rule>) {
        let entry = self.log[usize::from(self.node(node).applied)];
        let this = self.node_mut(node);
        this.applied += 1;
        let before = this.control;
        this.control.apply(entry, without);
        let now = this.control;
        for other in (0..NODES)
            .filter(|&other| other != node && before.deaths[usize::from(other)] < now.deaths[usize::from(other)])
        {
            if node == PUBLISHER {
                self.leave_to_heirs(other, now.inheriting[usize::from(other)], without);
            } else {
                self.hear_of_death(node, other);
            }
        }
        if let Command::Register { intact: false } = entry.command {
            self.lose(node, entry.by);
        }
        if node != PUBLISHER {
            self.follow_lease(node);
            self.pick_anew(node);
        } else if now.lives != before.lives {
            self.begin_link(entry.by, without);
        }
    }

    /// When a node hears of what does not concern it makes no difference.
    pub fn idle_nodes_apply(&mut self, without: Option<Rule>) {
        for node in 0..NODES {
            while self.acts(node) && self.is_idle(node) && usize::from(self.node(node).applied) < self.log.len() {
                self.apply_next(node, without);
            }
        }
    }

    fn is_idle(&self, node: Node) -> bool {
        let this = self.node(node);
        let control = &this.control;
        let has_something = this.own.is_some() || this.copies.iter().any(Option::is_some);
        let inherits = control.pending.iter().any(|pending| has(*pending, node));
        let gets_something = !self.links[usize::from(node)].is_empty()
            || self.copies.iter().any(|of_home| !of_home[usize::from(node)].is_empty());
        !has_something && !inherits && !gets_something && control.holder != node && control.will != Will::Due(node)
    }

    /// Nothing that was copied to it counts.
    fn lose(&mut self, node: Node, heir: Node) {
        let this = self.node_mut(node);
        this.picks &= !only(heir);
        this.begun &= !only(heir);
        this.complete &= !only(heir);
        if node != PUBLISHER {
            self.copies[usize::from(node)][usize::from(heir)].clear();
        }
    }

    fn hear_of_death(&mut self, node: Node, other: Node) {
        self.lose(node, other);
        let this = self.node_mut(node);
        if !has(this.control.inheriting[usize::from(other)], node) {
            this.copies[usize::from(other)] = None;
        }
        this.entered &= !only(other);
        this.announced &= !only(other);
    }

    /// A session that is no longer this node's goes.
    pub fn follow_lease(&mut self, node: Node) {
        let this = self.node_mut(node);
        if this.control.holder != node || this.control.ended {
            this.own = None;
            (this.stable, this.known) = (0, 0);
        }
    }

    /// Who gets copies of what is written down. What is not stable goes to who is new, first of all.
    pub fn pick_anew(&mut self, node: Node) {
        let this = self.node_mut(node);
        let picks = if this.own.is_some() { picks_of(&this.control, node) } else { 0 };
        let new = picks & !this.picks;
        this.picks = picks;
        this.begun &= picks;
        this.complete &= picks;
        let unstable = this.own.map_or(0, |own| own.queue & !this.stable & !this.known);
        for message in (0..2).filter(|&message| has(unstable, message)) {
            self.copy(node, new, message);
        }
    }

    /// One message of the session goes to these heirs.
    pub fn copy(&mut self, home: Node, heirs: Set, message: u8) {
        for heir in (0..NODES).filter(|&heir| has(heirs, heir)) {
            self.begin(home, heir);
            self.copies[usize::from(home)][usize::from(heir)].push(Copied::Put(message));
        }
    }

    /// The copy begins, if that was not said.
    pub fn begin(&mut self, home: Node, heir: Node) {
        let this = self.node_mut(home);
        if !has(this.begun, heir) {
            this.begun |= only(heir);
            self.copies[usize::from(home)][usize::from(heir)].push(Copied::Begin);
        }
    }

    /// What is stable by now of the session at `home`.
    pub fn settle(&mut self, home: Node, without: Option<Rule>) {
        let this = self.node(home);
        let Some(own) = this.own else { return };
        let others = this.control.live & !only(home);
        let waits_for = match without {
            Some(Rule::BothPicks) => pick(this.control.of(home).base) & this.picks,
            _ => this.picks,
        };
        let on_its_way = |message: u8| {
            let mut heirs = (0..NODES).filter(|&heir| has(waits_for, heir));
            heirs.any(|heir| {
                let all = |frame: &Copied| matches!(frame, Copied::All(_));
                let frames = &self.copies[usize::from(home)][usize::from(heir)];
                let is_known = has(this.known, message);
                let incomplete = !has(this.complete, heir) || frames.iter().any(all);
                frames.contains(&Copied::Put(message)) || (is_known && incomplete)
            })
        };
        let nobody = waits_for == 0 && others != 0;
        let stable = (0..2).filter(|&message| has(own.queue, message) && !nobody && !on_its_way(message));
        let stable: Set = stable.map(only).sum();
        self.node_mut(home).stable |= stable;
    }

    /// What the publisher's node owed to a dead node goes to its heirs, who may have it.
    fn leave_to_heirs(&mut self, dead: Node, heirs: Set, without: Option<Rule>) {
        let control = self.node(PUBLISHER).control;
        let deaths = control.deaths[usize::from(dead)];
        let heirs = if without == Some(Rule::OrphanLegs) { 0 } else { heirs };
        for message in 0..self.published {
            let at = usize::from(message);
            let (owed, kept) = (has(self.owed[at], dead), has(self.kept[at], dead));
            self.owed[at] &= !only(dead);
            self.kept[at] &= !only(dead);
            if owed && !control.is_there() && !control.is_passing() {
                self.excused |= only(message);
            }
            for heir in (0..NODES).filter(|&heir| kept && has(heirs & control.live, heir)) {
                // Who is owed it in any case gets it in the same frame.
                if !has(self.kept[at], heir) {
                    self.kept[at] |= only(heir);
                    self.owed[at] |= if owed { only(heir) } else { 0 };
                    self.of[at][usize::from(heir)] = Some((dead, deaths, true));
                    if self.hears(heir, without) {
                        let of = self.of[at][usize::from(heir)];
                        self.links[usize::from(heir)].push(super::world::Packet { message, of });
                    }
                }
            }
            self.acknowledge(message);
        }
        self.links[usize::from(dead)].clear();
    }
}

/// The pick of the base and that of who is being filled, if they live and have missed nothing.
fn picks_of(control: &Control, home: Node) -> Set {
    let heirs = control.of(home);
    let next = heirs.next.map_or(0, |(_, next)| pick(next) & control.live);
    (pick(heirs.base) & control.able(home)) | next
}

/// What an heir makes of a frame.
pub fn take_copy(copy: &mut Option<super::world::Stored>, frame: Copied, without: Option<Rule>) {
    let seen = |stored: &mut super::world::Stored, up_to: u8| {
        if without != Some(Rule::SeenIsCopied) {
            stored.seen = stored.seen.max(up_to);
        }
    };
    match (frame, copy) {
        (Copied::Begin, copy) => *copy = Some(EMPTY),
        (Copied::Put(message), Some(copy)) => {
            copy.queue |= only(message);
            seen(copy, message + 1);
        }
        (Copied::All(all), Some(copy)) => {
            copy.queue |= all.queue;
            copy.complete = true;
            seen(copy, all.seen);
        }
        _ => {}
    }
}
