//! What a node does when it has applied an entry of the log.

use super::cluster::{PUBLISHER, Packet, Stage, State, Taking};
use super::control::{Command, Control, Entry, Epoch, NODES, Node, Outcome, Phase, Rule, has, only};

impl State {
    /// An entry is in the log.
    pub fn append(&mut self, by: Node, command: Command, without: Option<Rule>) {
        let entry = Entry { by, command };
        self.head.apply(entry, without);
        self.log.push(entry);
    }

    /// `node` applies its next entry.
    pub fn apply_next(&mut self, node: Node, without: Option<Rule>) {
        let entry = self.log[usize::from(self.node(node).applied)];
        let state = self.node_mut(node);
        state.applied += 1;
        let (before, served, greeted) = (state.control, state.connection, state.greeting);
        let outcome = state.control.apply(entry, without);
        self.follow_claim(node, (entry.by == node).then_some((entry.command, outcome)), without);
        self.follow_lease(node);
        self.note_closed(node, served.or(greeted), served.is_none());
        if node == PUBLISHER {
            self.route_anew(&before, entry.command);
        }
    }

    /// A claim of this node goes on, is settled or is lost.
    fn follow_claim(&mut self, node: Node, own: Option<(Command, Outcome)>, without: Option<Rule>) {
        let state = self.node_mut(node);
        let now = state.control;
        state.connection = state.connection.filter(|&epoch| is_connected(&now, node, epoch));
        if let Some(taking) = &mut state.taking {
            let refused = matches!(own, Some((Command::Settle { .. }, Outcome::Refused)));
            if is_connected(&now, node, taking.epoch) {
                state.connection = Some(taking.epoch);
                state.taking = None;
            } else if now.claim().is_none_or(|claim| claim.epoch != taking.epoch) {
                state.taking = None;
            } else if refused && taking.stage == Stage::Settling {
                taking.stage = Stage::Adopted;
            }
        }
        match own {
            Some((Command::Acquire { .. }, Outcome::Connected(epoch))) => state.greeting = Some(epoch),
            Some((Command::Acquire { .. }, Outcome::Claimed(epoch))) => {
                let clean = now.claim().is_some_and(|claim| claim.clean);
                let at_once = clean && without == Some(Rule::YieldBeforeService);
                let stage = if at_once { Stage::Adopted } else { Stage::Asking };
                state.taking = Some(Taking { epoch, clean, stage });
            }
            _ => {}
        }
    }

    /// A CONNACK that waited for older Wills; a session that is no longer here.
    fn follow_lease(&mut self, node: Node) {
        let state = self.node_mut(node);
        let now = state.control;
        state.greeting = state.greeting.filter(|&epoch| is_connected(&now, node, epoch));
        if let Some(epoch) = state.greeting.filter(|&epoch| now.due & (only(epoch) - 1) == 0) {
            state.connection = Some(epoch);
            state.greeting = None;
        }
        let home = now.subscribed() && now.lease.is_some_and(|lease| lease.home() == node);
        if !home && !state.taking.is_some_and(|taking| taking.has_copy()) {
            state.disk = None;
        }
        state.wills_sent &= now.due;
    }

    /// A claim has closed the connection here.
    fn note_closed(&mut self, node: Node, was: Option<Epoch>, never_served: bool) {
        let state = self.node_mut(node);
        let closing = state.control.lease.filter(|lease| lease.closing && lease.home() == node);
        if let Some(epoch) = was.filter(|&epoch| closing.is_some_and(|lease| lease.epoch == epoch))
            && state.connection.is_none()
        {
            state.closed = Some((epoch, never_served));
        }
    }

    /// The publisher's node marks a cut, and voids the legs to a dead node.
    fn route_anew(&mut self, before: &Control, command: Command) {
        let now = self.node(PUBLISHER).control;
        if let Some(claim) = now.claim().filter(|claim| claim.cut && before.claim() != Some(*claim)) {
            if claim.from == PUBLISHER {
                self.node_mut(PUBLISHER).mark = claim.epoch;
            } else if self.linked(PUBLISHER, claim.from) {
                self.links[usize::from(claim.from)].push(Packet::Mark(claim.epoch));
            }
        }
        if let Command::Expire { node } = command {
            self.links[usize::from(node)].clear();
            for message in 0..self.published {
                let legs = &mut self.legs[usize::from(message)];
                if has(*legs, node) {
                    *legs &= !only(node);
                    if now.lease.is_some_and(|lease| lease.home() == node) {
                        self.excused |= only(message);
                    }
                    self.acknowledge(message);
                }
            }
        }
    }

    /// PUBACK, when no node owes an answer any more.
    pub fn acknowledge(&mut self, message: u8) {
        if self.legs[usize::from(message)] == 0 && !has(self.forgotten, message) {
            self.acknowledged |= only(message);
        }
    }

    /// The data link from the publisher's node begins anew: legs without an answer in their order, the latest mark behind them.
    pub fn begin_link(&mut self, node: Node) {
        if node == PUBLISHER {
            return;
        }
        let mut packets = Vec::new();
        if self.linked(PUBLISHER, node) {
            let owed = (0..self.published).filter(|&message| has(self.legs[usize::from(message)], node));
            packets.extend(owed.map(Packet::Publish));
            let claim = self.node(PUBLISHER).control.claim();
            packets
                .extend(claim.filter(|claim| claim.cut && claim.from == node).map(|claim| Packet::Mark(claim.epoch)));
        }
        self.links[usize::from(node)] = packets;
    }

    /// Entries that everybody who acts has applied are not needed: who starts anew gets the state itself. Frames that nobody
    /// waits for do nothing.
    pub fn tidy(&mut self) {
        let acting = (0..NODES).filter(|&node| self.acts(node));
        let done = acting.map(|node| self.node(node).applied).min().unwrap_or(0);
        self.log.drain(..usize::from(done));
        for node in 0..NODES {
            let acts = self.acts(node);
            let state = self.node_mut(node);
            state.applied = if acts { state.applied - done } else { 0 };
        }
        let nodes = self.nodes;
        self.frames.retain(|frame| {
            let taking = nodes[usize::from(frame.to)].taking;
            taking.is_some_and(|taking| taking.epoch == frame.epoch)
        });
    }
}

fn is_connected(control: &Control, node: Node, epoch: Epoch) -> bool {
    control.lease.is_some_and(|lease| {
        lease.holder == node && lease.epoch == epoch && lease.phase == Phase::Connected && lease.claim.is_none()
    })
}
