//! Everything that can happen next, and what it leads to.

use stateright::{Model, Property};

use super::apply::take_copy;
use super::control::{Command, Heirs, Rule, Will, pick};
use super::properties;
use super::world::{Budget, Copied, EMPTY, PUBLISHER, Packet, State, Stored};
use crate::control::{NODES, Node, Set, has, only};

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub budget: Budget,
    pub will: bool,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Publish,
    Apply(Node),
    /// The next packet from the publisher's node arrives.
    Receive(Node),
    /// The next frame of copies arrives.
    Copy {
        home: Node,
        heir: Node,
    },
    /// The publisher's node hears what is stable.
    Stable(Node),
    /// An heir is sent everything there is of the session.
    Fill {
        home: Node,
        heir: Node,
    },
    FillHeirs(Node),
    HeirsFilled(Node),
    PassOn,
    /// An heir enters what has passed to it, and says so.
    Enter {
        heir: Node,
        home: Node,
    },
    Announce {
        heir: Node,
        home: Node,
    },
    Found(Node),
    /// A node that lives again takes up the session that has passed to it.
    TakeUp(Node),
    PublishWill(Node),
    WillDone(Node),
    /// The process ends; it will be started again.
    Crash(Node),
    /// What the node had is gone: it will start again with nothing, or never.
    Lose {
        node: Node,
        returns: bool,
    },
    Expire(Node),
    Register(Node),
}

impl Model for Scenario {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.budget, self.will)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if usize::from(state.node(PUBLISHER).applied) < state.log.len() {
            steps.push(Step::Apply(PUBLISHER));
        }
        if state.left.messages > 0 {
            steps.push(Step::Publish);
        }
        steps.extend(state.head.passes.then_some(Step::PassOn));
        for node in 0..NODES {
            if state.acts(node) {
                self.node_steps(state, node, steps);
            } else if may_register(state, node) {
                steps.push(Step::Register(node));
            }
            self.faults(state, node, steps);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.carry_out(&mut state, step);
        state.idle_nodes_apply(self.without);
        for home in (0..NODES).filter(|&home| last.acts(home)) {
            state.settle(home, self.without);
        }
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Scenario>> {
        properties::all()
    }
}

fn may_register(state: &State, node: Node) -> bool {
    let starts = state.node(node).up || state.node(node).returns;
    starts && state.head.pending[usize::from(node)] == 0
}

/// The next message of the publisher's node can be taken: the node is not behind in what it knows of deaths, and has entered what it is for.
fn may_receive(state: &State, node: Node) -> bool {
    let control = &state.node(node).control;
    state.links[usize::from(node)].first().is_some_and(|packet| {
        packet.of.is_none_or(|(dead, deaths, _)| {
            let waits = has(control.pending[usize::from(dead)], node) && !has(state.node(node).entered, dead);
            control.deaths[usize::from(dead)] >= deaths && !waits
        })
    })
}

/// What is stable at `node` of what the publisher's node keeps for it, as far as nothing before it is not.
fn news_of_stable(state: &State, node: Node) -> Set {
    let kept = |message: u8| has(state.kept[usize::from(message)], node);
    let owed = |message: u8| has(state.owed[usize::from(message)], node);
    let this = state.node(node);
    let on_its_way = |message: u8| state.links[usize::from(node)].iter().any(|packet| packet.message == message);
    let is_stable = |message: u8| {
        let not_its = this.own.is_none_or(|own| !has(own.queue, message));
        !owed(message) && !on_its_way(message) && (not_its || has(this.stable, message))
    };
    let kept = (0..state.published).filter(|&message| kept(message));
    kept.take_while(|&message| is_stable(message)).map(only).sum()
}

impl Scenario {
    fn node_steps(&self, state: &State, node: Node, steps: &mut Vec<Step>) {
        let this = state.node(node);
        if usize::from(this.applied) < state.log.len() {
            steps.push(Step::Apply(node));
        }
        steps.extend(may_receive(state, node).then_some(Step::Receive(node)));
        let is_news = state.hears(node, self.without) && news_of_stable(state, node) != 0;
        steps.extend(is_news.then_some(Step::Stable(node)));
        for heir in (0..NODES).filter(|&heir| heir != node) {
            if !state.copies[usize::from(node)][usize::from(heir)].is_empty() && state.acts(heir) {
                steps.push(Step::Copy { home: node, heir });
            }
            if has(this.picks & !this.complete, heir) {
                steps.push(Step::Fill { home: node, heir });
            }
        }
        self.heirs_steps(state, node, steps);
        self.heir_steps(state, node, steps);
        if this.control.will == Will::Due(node) {
            steps.push(if this.will_sent { Step::WillDone(node) } else { Step::PublishWill(node) });
            if this.will_sent && !matches!(state.head.will, Will::Due(_)) {
                steps.pop();
            }
        }
    }

    /// As the home.
    fn heirs_steps(&self, state: &State, node: Node, steps: &mut Vec<Step>) {
        let this = state.node(node);
        let Heirs { base, stale, next, whole, .. } = *this.control.of(node);
        let wanted = this.control.live & !only(node);
        let is_current = this.control.of(node) == state.head.of(node);
        let has_session = this.own.is_some() && state.head.holder == node;
        let is_good = whole && stale == 0 && base == wanted;
        match next {
            Some((fill, next)) if this.filled != fill => {
                let heir = pick(next);
                let at = heir.trailing_zeros() as usize;
                if this.complete & heir != 0 && state.copies[usize::from(node)][at].is_empty() {
                    steps.push(Step::HeirsFilled(node));
                }
            }
            None if state.left.fills > 0 && has_session && is_current && !is_good && wanted != 0 => {
                steps.push(Step::FillHeirs(node));
            }
            _ => {}
        }
    }

    /// As an heir.
    fn heir_steps(&self, state: &State, node: Node, steps: &mut Vec<Step>) {
        let this = state.node(node);
        let control = &this.control;
        for home in (0..NODES).filter(|&home| has(control.pending[usize::from(home)], node)) {
            let all_passed = !(control.passes && control.holder == home);
            if all_passed && !has(this.entered, home) {
                steps.push(Step::Enter { heir: node, home });
            }
            if has(this.entered & !this.announced, home) {
                steps.push(Step::Announce { heir: node, home });
            }
        }
        if control.ended || state.head.ended {
            return;
        }
        let holder = control.holder;
        if holder == node && this.own.is_none() && state.head.holder == node {
            let waits = control.from.is_some_and(|from| has(control.pending[usize::from(from)], node));
            steps.extend((!waits).then_some(Step::TakeUp(node)));
        }
        let is_dead = !has(control.live, holder) && !control.passes && state.head.holder == holder;
        let can = is_dead && control.heir(holder) == Some(node) && !has(control.pending[usize::from(holder)], node);
        let has_copy = holder != node && this.copies[usize::from(holder)].is_some_and(|copy| copy.complete);
        let is_current = usize::from(this.applied) == state.log.len();
        steps.extend((can && has_copy && is_current).then_some(Step::Found(node)));
    }

    fn faults(&self, state: &State, node: Node, steps: &mut Vec<Step>) {
        let (this, left) = (state.node(node), state.left);
        let live = has(state.head.live, node);
        // One thing at a time: while nobody knows that a node has lost what it had, its heir stays.
        let quiet = state.unnoticed == 0;
        if this.up && live && quiet {
            steps.extend((left.crashes > 0).then_some(Step::Crash(node)));
            if left.losses > 0 && state.head.is_redundant() && state.heir_is_up() {
                steps.push(Step::Lose { node, returns: true });
                steps.push(Step::Lose { node, returns: false });
            }
        }
        let others = (state.head.live & !only(node)).count_ones();
        if live && others > 0 && (!this.up || (left.freezes > 0 && quiet)) {
            steps.push(Step::Expire(node));
        }
    }

    fn carry_out(&self, state: &mut State, step: Step) {
        let without = self.without;
        match step {
            Step::Publish => publish(state, without),
            Step::Apply(node) => state.apply_next(node, without),
            Step::Receive(node) => self.receive(state, node),
            Step::Copy { home, heir } => {
                let frame = state.copies[usize::from(home)][usize::from(heir)].remove(0);
                take_copy(&mut state.node_mut(heir).copies[usize::from(home)], frame, without);
            }
            Step::Stable(node) => {
                let stable = news_of_stable(state, node);
                for message in (0..2).filter(|&message| has(stable, message)) {
                    state.kept[usize::from(message)] &= !only(node);
                }
            }
            Step::Fill { home, heir } => {
                state.begin(home, heir);
                let Some(own) = state.node(home).own else { return };
                state.node_mut(home).complete |= only(heir);
                state.copies[usize::from(home)][usize::from(heir)].push(Copied::All(own));
            }
            Step::FillHeirs(node) => {
                state.left.fills -= 1;
                let next = state.node(node).control.live & !only(node);
                state.append(node, Command::FillHeirs { next }, without);
            }
            Step::HeirsFilled(node) => {
                let Some((fill, _)) = state.node(node).control.of(node).next else { return };
                state.node_mut(node).filled = fill;
                state.append(node, Command::HeirsFilled { fill }, without);
            }
            Step::PassOn => _ = state.append(0, Command::PassOn, without),
            Step::Found(node) => _ = state.append(node, Command::Found, without),
            Step::PublishWill(node) => {
                let forgotten = without == Some(Rule::NamesOutliveWills) && state.head.will == Will::Done;
                state.will_repeated |= state.will_published && forgotten;
                state.will_published = true;
                state.node_mut(node).will_sent = true;
            }
            Step::WillDone(node) => _ = state.append(node, Command::WillDone, without),
            Step::Enter { heir, home } => {
                if state.node(heir).control.from == Some(home) {
                    self.enter(state, heir, home);
                }
                state.node_mut(heir).copies[usize::from(home)] = None;
                state.node_mut(heir).entered |= only(home);
            }
            Step::TakeUp(node) => {
                // Of any home: it may have passed on, and come back, since it passed here.
                let this = state.node(node);
                let has_copy = |home: &Node| this.copies[usize::from(*home)].is_some_and(|copy| copy.complete);
                let homes = this.control.from.into_iter().chain(0..NODES);
                let home = homes.into_iter().find(has_copy).or(this.control.from).unwrap_or(node);
                self.enter(state, node, home);
                if state.node(node).own.is_some() {
                    state.append(node, Command::Routes, without);
                }
            }
            Step::Announce { heir, home } => {
                state.node_mut(heir).announced |= only(home);
                if state.node(heir).own.is_some() {
                    state.append(heir, Command::Routes, without);
                }
                state.append(heir, Command::Inherited { from: home }, without);
            }
            fault => self.carry_out_fault(state, fault),
        }
    }

    /// The session that has passed to `node`, as it has it.
    fn enter(&self, state: &mut State, node: Node, home: Node) {
        let control = state.node(node).control;
        let this = state.node_mut(node);
        let copy = if home == node { None } else { this.copies[usize::from(home)].take() };
        if control.holder != node || control.ended || this.own.is_some() {
            return;
        }
        let found = copy.filter(|copy| copy.complete);
        let Some(own) = found.or((control.sure && control.from == Some(home)).then_some(EMPTY)) else {
            state.append(node, Command::Lost, self.without);
            return;
        };
        let this = state.node_mut(node);
        this.own = Some(Stored { complete: false, ..own });
        this.known = own.queue;
        state.pick_anew(node);
    }

    fn receive(&self, state: &mut State, node: Node) {
        let Packet { message, of } = state.links[usize::from(node)].remove(0);
        let this = state.node_mut(node);
        let from = this.control.from;
        let only_of_it = of.is_some_and(|(dead, _, only)| only && from != Some(dead));
        if let Some(own) = this.own.as_mut().filter(|_| !only_of_it) {
            let had = has(own.queue, message);
            if own.take(message) {
                let picks = this.picks;
                state.copy(node, picks, message);
                state.twice |= had;
            }
        }
        // A session that is missing, or will be when it is known that its copy is not complete, is not kept anything.
        let is_missing = of.is_some_and(|(dead, ..)| {
            let head = &state.head;
            !head.is_there() || (head.from == Some(dead) && !head.sure)
        });
        if is_missing && state.node(node).own.is_none() {
            state.excused |= only(message);
        }
        state.owed[usize::from(message)] &= !only(node);
        state.acknowledge(message);
    }

    fn carry_out_fault(&self, state: &mut State, step: Step) {
        match step {
            Step::Crash(node) => {
                state.left.crashes -= 1;
                state.forget_memory(node);
                let this = state.node_mut(node);
                (this.up, this.returns, this.intact) = (false, true, true);
            }
            Step::Lose { node, returns } => {
                state.left.losses -= 1;
                state.forget_memory(node);
                let this = state.node_mut(node);
                (this.up, this.returns, this.intact) = (false, returns, false);
                (this.own, this.copies) = (None, Default::default());
                state.unnoticed |= only(node);
            }
            Step::Expire(node) => {
                if state.node(node).up {
                    state.left.freezes -= 1;
                }
                state.unnoticed &= !only(node);
                state.forget_memory(node);
                state.append(0, Command::Expire { node }, self.without);
            }
            Step::Register(node) => self.register(state, node),
            _ => {}
        }
    }

    fn register(&self, state: &mut State, node: Node) {
        let intact = state.node(node).intact;
        state.unnoticed &= !only(node);
        if !state.append(node, Command::Register { intact }, self.without) {
            // Its heirs go before it.
            return;
        }
        let (head, applied) = (state.head, u8::try_from(state.log.len()).unwrap_or(u8::MAX));
        let this = state.node_mut(node);
        (this.up, this.returns, this.intact) = (true, false, true);
        (this.control, this.applied) = (head, applied);
        for home in 0..NODES {
            let heirs = head.of(home);
            let is_copy = has(heirs.base & !heirs.stale, node) || head.holder == node;
            if !is_copy {
                this.copies[usize::from(home)] = None;
            }
        }
        this.known = this.own.map_or(0, |own| own.queue);
        state.follow_lease(node);
        state.pick_anew(node);
        state.begin_link(node, self.without);
        if state.node(node).own.is_some() {
            state.append(node, Command::Routes, self.without);
        }
    }
}

fn publish(state: &mut State, without: Option<Rule>) {
    let message = state.published;
    state.published += 1;
    state.left.messages -= 1;
    let control = state.node(PUBLISHER).control;
    let at = usize::from(message);
    let direct = control.routes & control.live;
    let mut targets = direct;
    for dead in (0..NODES).filter(|&dead| has(control.routes & !control.live, dead)) {
        let heirs = control.inheriting[usize::from(dead)] & control.live;
        for heir in (0..NODES).filter(|&heir| has(heirs, heir)) {
            state.of[at][usize::from(heir)] = Some((dead, control.deaths[usize::from(dead)], false));
        }
        targets |= heirs;
    }
    if targets == 0 && !control.is_passing() {
        // The session is missing.
        state.excused |= only(message);
    }
    (state.owed[at], state.kept[at]) = (targets, targets);
    for node in (0..NODES).filter(|&node| has(targets, node)) {
        if !state.hears(node, without) {
            continue;
        }
        let of = state.of[at][usize::from(node)];
        state.links[usize::from(node)].push(Packet { message, of });
    }
    state.acknowledge(message);
}
