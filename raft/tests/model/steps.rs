//! Everything that can happen next, and what it leads to.

use stateright::{Model, Property};

use super::cluster::{Budget, Frame, PUBLISHER, Packet, Stage, State, Stored};
use super::control::{Command, Control, Epoch, NODES, Node, Phase, Rule, Will, has, only};
use super::properties;

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub budget: Budget,
    /// Of every connection.
    pub will: Option<Will>,
    /// Whether connections may ask for a clean start.
    pub clean: bool,
    /// Whether a crashed process may be started again.
    pub restarts: bool,
    /// Where clients connect.
    pub connect_at: &'static [Node],
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Publish,
    Connect {
        node: Node,
        clean: bool,
    },
    Apply(Node),
    /// The next packet of the publisher's data link arrives.
    Receive(Node),
    /// The home says that its connection is closed and its Wills are published; the claimant hears it.
    Yield {
        home: Node,
        to: Node,
    },
    SendState {
        home: Node,
        to: Node,
    },
    /// A claimant has the state.
    Take(usize),
    Settle(Node),
    Withdraw(Node),
    Deliver(Node),
    LoseConnection(Node),
    /// The client says DISCONNECT, and its node hears it.
    Goodbye(Node),
    /// The home says that it has closed a connection for a claim.
    SayClosed(Node),
    PublishWill {
        node: Node,
        epoch: Epoch,
    },
    WillDone {
        node: Node,
        epoch: Epoch,
    },
    DelayOver,
    SessionExpires,
    Crash {
        node: Node,
        returns: bool,
    },
    Cut(Node, Node),
    Heal,
    /// By silence, or by complaints.
    Expire(Node),
    /// A process starts, or learns that it was expired.
    Register(Node),
}

impl Model for Scenario {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.will, self.budget)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for node in 0..NODES {
            if state.acts(node) {
                self.node_steps(state, node, steps);
            } else if may_register(state, node) {
                steps.push(Step::Register(node));
            }
        }
        if state.left.messages > 0 && state.acts(PUBLISHER) {
            steps.push(Step::Publish);
        }
        steps.extend((0..state.frames.len()).filter(|&at| state.acts(state.frames[at].to)).map(Step::Take));
        if state.has_quorum() {
            self.log_steps(state, steps);
        }
        self.faults(state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.carry_out(&mut state, step);
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Scenario>> {
        properties::all()
    }
}

/// Registering needs the log, and links to all live nodes.
fn may_register(state: &State, node: Node) -> bool {
    let starts = state.node(node).up || state.node(node).returns;
    let mut others = (0..NODES).filter(|&other| other != node && state.acts(other));
    let hears_all = others.all(|other| !state.is_cut(node, other));
    let up = (0..NODES).filter(|&other| other == node || state.node(other).up).count();
    starts && hears_all && up >= 2
}

impl Scenario {
    fn node_steps(&self, state: &State, node: Node, steps: &mut Vec<Step>) {
        let this = state.node(node);
        if usize::from(this.applied) < state.log.len() {
            steps.push(Step::Apply(node));
        }
        if node != PUBLISHER && !state.links[usize::from(node)].is_empty() {
            steps.push(Step::Receive(node));
        }
        steps.extend(self.answer(state, node));
        if this.connection.is_some() && this.disk.is_some_and(|disk| disk.queue != 0) {
            steps.push(Step::Deliver(node));
        }
        let own = |epoch: &Epoch| this.control.publishers[usize::from(*epoch)] == node;
        let unsent = (1..=this.control.last_epoch).filter(|&epoch| has(this.control.due & !this.wills_sent, epoch));
        steps.extend(unsent.filter(own).map(|epoch| Step::PublishWill { node, epoch }));
    }

    /// What the claimant `node` can be told by the home. A claimant repeats its question, so it hears it as soon as both can say and
    /// hear it.
    fn answer(&self, state: &State, node: Node) -> Option<Step> {
        let taking = state.node(node).taking?;
        let asks = |home: &Node| state.asked_of(*home).is_some_and(|claim| claim.epoch == taking.epoch);
        let home = (0..NODES).find(|home| state.linked(*home, node) && asks(home))?;
        match taking.stage {
            Stage::Asking if may_yield(&state.node(home).control) && state.has_quorum() => {
                Some(Step::Yield { home, to: node })
            }
            Stage::Holding(_) if self.may_send_state(state, home) => Some(Step::SendState { home, to: node }),
            _ => None,
        }
    }

    fn may_send_state(&self, state: &State, home: Node) -> bool {
        let Some(claim) = state.asked_of(home) else { return false };
        let on_its_way = state.frames.iter().any(|frame| frame.epoch == claim.epoch);
        !on_its_way && (self.without == Some(Rule::MarksBeforeState) || state.marks_are_here(home, claim))
    }

    /// What puts an entry into the log.
    fn log_steps(&self, state: &State, steps: &mut Vec<Step>) {
        for node in (0..NODES).filter(|&node| state.acts(node)) {
            let this = state.node(node);
            if state.left.connects > 0 && self.connect_at.contains(&node) {
                steps.push(Step::Connect { node, clean: false });
                steps.extend(self.clean.then_some(Step::Connect { node, clean: true }));
            }
            if let Some(taking) = this.taking {
                if taking.stage == Stage::Adopted
                    && (this.control.due == 0 || self.without == Some(Rule::WillBeforeSettle))
                {
                    steps.push(Step::Settle(node));
                }
                let gives_up = !matches!(taking.stage, Stage::Settling | Stage::Withdrawing);
                steps.extend((gives_up && state.left.withdrawals > 0).then_some(Step::Withdraw(node)));
            }
            if this.connection.is_some() && state.left.drops > 0 {
                steps.push(Step::LoseConnection(node));
            }
            if this.connection.is_some() && state.left.goodbyes > 0 && !state.connects_anew(node) {
                steps.push(Step::Goodbye(node));
            }
            steps.extend(this.closed.map(|_| Step::SayClosed(node)));
            let sent = (1..=this.control.last_epoch).filter(|&epoch| has(this.wills_sent & state.head.due, epoch));
            steps.extend(sent.map(|epoch| Step::WillDone { node, epoch }));
        }
        let Some(lease) = state.head.lease else { return };
        if lease.will.is_some() && lease.phase != Phase::Connected && !lease.closing {
            steps.push(Step::DelayOver);
        }
        let detached = lease.phase == Phase::Detached && !lease.closing && lease.claim.is_none();
        if state.left.session_expiries > 0 && detached {
            steps.push(Step::SessionExpires);
        }
    }

    fn faults(&self, state: &State, steps: &mut Vec<Step>) {
        for node in 0..NODES {
            if state.left.crashes > 0 && state.node(node).up {
                steps.push(Step::Crash { node, returns: false });
                steps.extend(self.restarts.then_some(Step::Crash { node, returns: true }));
            }
            if may_be_expired(state, node) {
                steps.push(Step::Expire(node));
            }
            if state.left.cuts > 0 && state.cut.is_none() {
                steps.extend((node + 1..NODES).map(|other| Step::Cut(node, other)));
            }
        }
        steps.extend(state.cut.map(|_| Step::Heal));
    }

    fn carry_out(&self, state: &mut State, step: Step) {
        let without = self.without;
        match step {
            Step::Publish => self.publish(state),
            Step::Connect { node, clean } => {
                state.left.connects -= 1;
                state.append(node, Command::Acquire { clean, will: self.will }, without);
            }
            Step::Apply(node) => state.apply_next(node, without),
            Step::Receive(node) => self.receive(state, node),
            Step::Yield { to, .. } => self.take_yield(state, to),
            Step::SendState { home, to } => {
                let Some(epoch) = state.asked_of(home).map(|claim| claim.epoch) else { return };
                let stored = state.node(home).disk.unwrap_or(Stored { queue: 0, seen: 0 });
                state.frames.push(Frame { from: home, to, epoch, stored });
            }
            Step::Take(at) => self.take_state(state, at),
            Step::Settle(node) => self.propose_for_claim(state, node, Stage::Settling),
            Step::Withdraw(node) => {
                state.left.withdrawals -= 1;
                self.propose_for_claim(state, node, Stage::Withdrawing);
            }
            Step::Deliver(node) => deliver(state, node),
            Step::LoseConnection(node) => {
                state.left.drops -= 1;
                if let Some(epoch) = state.node_mut(node).connection.take() {
                    state.append(node, Command::Detach { epoch, goodbye: false }, without);
                }
            }
            Step::Goodbye(node) => {
                state.left.goodbyes -= 1;
                if let Some(epoch) = state.node_mut(node).connection.take() {
                    state.goodbyes |= only(epoch);
                    state.append(node, Command::Detach { epoch, goodbye: true }, without);
                }
            }
            Step::SayClosed(node) => {
                if let Some((epoch, goodbye)) = state.node_mut(node).closed.take() {
                    state.append(node, Command::Detach { epoch, goodbye }, without);
                }
            }
            Step::PublishWill { node, epoch } => publish_will(state, node, epoch),
            Step::WillDone { node, epoch } => state.append(node, Command::WillDone { epoch }, without),
            Step::DelayOver => state.append(0, Command::DelayOver, without),
            Step::SessionExpires => {
                state.left.session_expiries -= 1;
                state.append(0, Command::SessionExpires, without);
            }
            fault => self.carry_out_fault(state, fault),
        }
    }

    fn carry_out_fault(&self, state: &mut State, step: Step) {
        match step {
            Step::Crash { node, returns } => {
                state.left.crashes -= 1;
                forget_memory(state, node);
                let this = state.node_mut(node);
                (this.up, this.returns) = (false, returns);
            }
            Step::Cut(a, b) => {
                state.left.cuts -= 1;
                state.cut = Some((a, b));
                state.frames.retain(|frame| ![(a, b), (b, a)].contains(&(frame.from, frame.to)));
                if b == PUBLISHER {
                    state.links[usize::from(a)].clear();
                }
            }
            Step::Heal => {
                let between = state.cut.take();
                if let Some((node, PUBLISHER)) = between {
                    state.begin_link(node);
                }
            }
            Step::Expire(node) => {
                forget_memory(state, node);
                state.append(0, Command::Expire { node }, self.without);
            }
            Step::Register(node) => self.register(state, node),
            _ => {}
        }
    }

    fn register(&self, state: &mut State, node: Node) {
        state.node_mut(node).up = true;
        state.node_mut(node).returns = false;
        state.append(node, Command::Register, self.without);
        let (head, applied) = (state.head, u8::try_from(state.log.len()).unwrap_or(u8::MAX));
        let this = state.node_mut(node);
        this.control = head;
        this.applied = applied;
        if !head.subscribed() || head.lease.is_none_or(|lease| lease.home() != node) {
            this.disk = None;
        }
        match node {
            PUBLISHER => {
                (0..NODES).for_each(|other| state.begin_link(other));
                let cut = head.claim().filter(|claim| claim.cut && claim.from == PUBLISHER);
                state.node_mut(PUBLISHER).mark = cut.map_or(0, |claim| claim.epoch);
            }
            other => state.begin_link(other),
        }
    }

    fn publish(&self, state: &mut State) {
        let message = state.published;
        state.published += 1;
        state.left.messages -= 1;
        let control = state.node(PUBLISHER).control;
        state.legs[usize::from(message)] = control.routes;
        if control.missing() {
            state.excused |= only(message);
        }
        for node in (0..NODES).filter(|&node| has(control.routes, node)) {
            if node == PUBLISHER {
                self.arrive(state, PUBLISHER, message);
            } else if state.linked(PUBLISHER, node) {
                state.links[usize::from(node)].push(Packet::Publish(message));
            }
        }
        state.acknowledge(message);
    }

    fn receive(&self, state: &mut State, node: Node) {
        match state.links[usize::from(node)].remove(0) {
            Packet::Publish(message) => self.arrive(state, node, message),
            Packet::Mark(epoch) => state.node_mut(node).mark = epoch,
        }
    }

    /// In the session, in what a claimant holds, or nobody's any more; accepted in any case.
    fn arrive(&self, state: &mut State, node: Node, message: u8) {
        let this = state.node_mut(node);
        if let Some(disk) = &mut this.disk {
            disk.take(only(message), self.without);
        } else if let Some(taking) = &mut this.taking
            && let Stage::Holding(held) = &mut taking.stage
        {
            *held |= only(message);
        }
        state.legs[usize::from(message)] &= !only(node);
        state.acknowledge(message);
    }

    fn take_yield(&self, state: &mut State, node: Node) {
        let Some(taking) = &mut state.node_mut(node).taking else { return };
        if taking.clean {
            taking.stage = Stage::Adopted;
            return;
        }
        taking.stage = Stage::Holding(0);
        let epoch = taking.epoch;
        state.append(node, Command::Cut { epoch }, self.without);
    }

    fn take_state(&self, state: &mut State, at: usize) {
        let mut frame = state.frames.remove(at);
        let this = state.node_mut(frame.to);
        let Some(taking) = &mut this.taking else { return };
        if let Stage::Holding(held) = taking.stage {
            frame.stored.take(held, self.without);
            taking.stage = Stage::Adopted;
            this.disk = Some(frame.stored);
        }
    }

    fn propose_for_claim(&self, state: &mut State, node: Node, stage: Stage) {
        let Some(taking) = &mut state.node_mut(node).taking else { return };
        taking.stage = stage;
        let epoch = taking.epoch;
        let settles = stage == Stage::Settling;
        let command = if settles { Command::Settle { epoch } } else { Command::Withdraw { epoch } };
        state.append(node, command, self.without);
    }
}

/// There is nothing to come of the old connection.
fn may_yield(control: &Control) -> bool {
    control.due == 0 && control.lease.is_some_and(|lease| !lease.closing)
}

/// A dead process, or, when all others have complained, one of two that do not hear each other. Never below two of three.
fn may_be_expired(state: &State, node: Node) -> bool {
    let unheard = (0..NODES).any(|other| state.is_cut(node, other) && state.acts(other));
    let deserves = !state.node(node).up || unheard;
    has(state.head.live, node) && state.head.live.count_ones() == 3 && state.has_quorum() && deserves
}

/// A process ends, or its incarnation does.
fn forget_memory(state: &mut State, node: Node) {
    let this = state.node_mut(node);
    this.taking = None;
    this.greeting = None;
    this.connection = None;
    this.closed = None;
    this.mark = 0;
    this.wills_sent = 0;
    this.control = Control::new(None);
    state.frames.retain(|frame| frame.from != node && frame.to != node);
    state.links[usize::from(node)].clear();
    if node == PUBLISHER {
        state.links.iter_mut().for_each(Vec::clear);
        let open = (0..state.published).filter(|&message| state.legs[usize::from(message)] != 0);
        state.forgotten |= open.map(only).sum::<u8>();
        state.legs = [0; 2];
    }
}

fn deliver(state: &mut State, node: Node) {
    let Some(disk) = &mut state.node_mut(node).disk else { return };
    let message = u8::try_from(disk.queue.trailing_zeros()).unwrap_or(0);
    disk.queue &= !only(message);
    state.delivered_twice |= has(state.delivered, message);
    state.out_of_order |= state.delivered >> message > 1;
    state.delivered |= only(message);
}

/// Receivers drop a Will that they know, and know it until it is done.
fn publish_will(state: &mut State, node: Node, epoch: Epoch) {
    state.node_mut(node).wills_sent |= only(epoch);
    state.will_repeated |= has(state.wills_published, epoch) && !has(state.head.due, epoch);
    state.wills_published |= only(epoch);
}
