//! Three nodes with the machines, a control state as a log that each applies when it likes, links that keep their order, and frames of moves that get lost.
//!
//! Every node publishes; a session's content is what it got, as (publisher, number). Whatever happens, one live node has the session at the end, unless the
//! node that held it died; and it has everything, once and in order.

use super::*;

const NODES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Acquire { by: usize, clean: bool },
    Cut { by: usize, epoch: u64 },
    Settle { by: usize, epoch: u64 },
    Withdraw { by: usize, epoch: u64 },
    Detach { by: usize, epoch: u64 },
    Expire { node: usize },
}

/// The control state as one node has applied it.
#[derive(Debug, Clone)]
struct State {
    applied: usize,
    holder: usize,
    /// The holder is dead.
    missing: bool,
    epoch: u64,
    /// The last connection that was accepted.
    connection: u64,
    end: End,
    claim: Option<(u64, usize)>,
    routed: [bool; NODES],
    dead: [bool; NODES],
}

/// What the control state knows of the end of the last connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Connected,
    Closing,
    Known,
}

type Got = (usize, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    Publish(u64),
    Mark(u64),
}

struct Node {
    state: State,
    up: bool,
    /// A client is connected.
    open: bool,
    session: Option<Vec<Got>>,
    giving: Option<Giving>,
    exporting: Vec<Got>,
    exported: usize,
    taking: Option<(Taking, usize)>,
    draft: Vec<Got>,
    held: Option<Vec<Got>>,
    seen: [u64; NODES],
    draft_seen: [u64; NODES],
    elsewhere: [u64; NODES],
    marks: [u64; NODES],
    published: u64,
    /// What the node has still to hear of itself.
    told: VecDeque<Told>,
}

enum Told {
    Giving(u64, GivingEvent),
    Taking(u64, TakingEvent),
    /// The connection of that epoch is closed, if it was there.
    Closed(u64),
}

struct World {
    now: u64,
    log: Vec<Command>,
    nodes: Vec<Node>,
    frames: Vec<(usize, SessionFrame)>,
    links: Vec<Vec<VecDeque<Data>>>,
    /// The epochs of clean claims.
    clean: Vec<u64>,
    /// One of them was settled, and the session begun anew: what was published before is not owed.
    anew: bool,
}

impl World {
    fn new() -> World {
        let state = State {
            applied: 0,
            holder: 0,
            missing: false,
            epoch: 1,
            connection: 1,
            end: End::Connected,
            claim: None,
            routed: [true, false, false],
            dead: [false; NODES],
        };
        let node = |number: usize| Node {
            state: state.clone(),
            up: true,
            open: number == 0,
            session: (number == 0).then(Vec::new),
            giving: None,
            exporting: Vec::new(),
            exported: 0,
            taking: None,
            draft: Vec::new(),
            held: None,
            seen: [0; NODES],
            draft_seen: [0; NODES],
            elsewhere: [0; NODES],
            marks: [0; NODES],
            published: 0,
            told: VecDeque::new(),
        };
        World {
            now: 0,
            log: Vec::new(),
            nodes: (0..NODES).map(node).collect(),
            frames: Vec::new(),
            links: vec![vec![VecDeque::new(); NODES]; NODES],
            clean: Vec::new(),
            anew: false,
        }
    }

    fn propose(&mut self, node: usize, command: Command) {
        if self.nodes[node].up {
            self.log.push(command);
        }
    }

    fn connect(&mut self, node: usize, clean: bool) {
        self.propose(node, Command::Acquire { by: node, clean });
    }

    fn publish(&mut self, node: usize) {
        if !self.nodes[node].up {
            return;
        }
        self.nodes[node].published += 1;
        let number = self.nodes[node].published;
        for to in 0..NODES {
            let state = &self.nodes[node].state;
            if state.routed[to] && !state.dead[to] {
                self.links[node][to].push_back(Data::Publish(number));
            }
        }
    }

    fn kill(&mut self, node: usize) {
        if self.nodes[node].up && self.nodes.iter().filter(|node| node.up).count() > 1 {
            self.nodes[node].up = false;
            self.nodes[node].open = false;
            self.links[node].iter_mut().for_each(VecDeque::clear);
            self.log.push(Command::Expire { node });
        }
    }

    /// The node applies the next entry of the log.
    fn apply(&mut self, node: usize) -> bool {
        let at = self.nodes[node].state.applied;
        let Some(command) = self.log.get(at).copied().filter(|_| self.nodes[node].up) else {
            return false;
        };
        self.nodes[node].state.applied += 1;
        let index = at as u64 + 1;
        let state = self.nodes[node].state.clone();
        match command {
            Command::Acquire { by, clean } if !state.dead[by] && !state.missing => self.acquire(node, by, clean),
            Command::Cut { by, epoch } if state.claim == Some((epoch, by)) => self.cut(node, by, epoch, index),
            Command::Settle { by, epoch } => self.settle(node, by, epoch),
            Command::Withdraw { by, epoch } if state.claim == Some((epoch, by)) => {
                self.nodes[node].state.claim = None;
                self.nodes[node].state.routed[by] = false;
                self.tell_giving(node, GivingEvent::Withdrawn);
            }
            Command::Detach { by, epoch } if (state.connection, state.holder) == (epoch, by) => self.detach(node),
            Command::Expire { node: dead } => self.expire(node, dead),
            _ => {}
        }
        true
    }

    fn acquire(&mut self, node: usize, by: usize, clean: bool) {
        let state = &mut self.nodes[node].state;
        state.epoch += 1;
        let epoch = state.epoch;
        let (earlier, holder) = (state.claim.take(), state.holder);
        if let Some((epoch, loser)) = earlier {
            state.routed[loser] = loser == holder;
            if loser == node {
                self.tell_taking(node, epoch, TakingEvent::ClaimLost);
            }
        }
        let state = &mut self.nodes[node].state;
        if holder == by {
            (state.connection, state.end) = (epoch, End::Connected);
            self.tell_giving(node, GivingEvent::Withdrawn);
            self.nodes[by].open |= node == by;
            return;
        }
        state.claim = Some((epoch, by));
        if state.end == End::Connected {
            state.end = End::Closing;
        }
        let closing = state.end == End::Closing;
        if clean {
            self.clean.push(epoch);
        }
        if holder == node {
            let claim = Claim { by: id(by), closing, ..claim(epoch, clean) };
            if self.nodes[node].giving.is_some() {
                self.tell_giving(node, GivingEvent::Claimed(claim));
                self.nodes[node].told.push_back(Told::Giving(epoch, GivingEvent::WillsDone));
            } else {
                let (giving, actions) = Giving::new(claim);
                self.nodes[node].giving = Some(giving);
                self.give(node, actions);
            }
        }
        if by == node {
            let (taking, actions) = Taking::new("c".into(), epoch, PATIENCE, self.now);
            self.nodes[node].taking = Some((taking, holder));
            self.take(node, actions);
        }
    }

    /// The holder has said how the connection ended.
    fn detach(&mut self, node: usize) {
        let State { end, holder, claim, .. } = &mut self.nodes[node].state;
        let closed = std::mem::replace(end, End::Known) == End::Closing;
        if let Some((epoch, _)) = claim.filter(|_| closed && *holder == node) {
            self.tell_giving(node, GivingEvent::EndKnown { epoch });
            self.nodes[node].told.push_back(Told::Giving(epoch, GivingEvent::WillsDone));
        }
    }

    fn cut(&mut self, node: usize, by: usize, epoch: u64, index: u64) {
        let holder = self.nodes[node].state.holder;
        self.nodes[node].state.routed[by] = true;
        self.links[node][holder].push_back(Data::Mark(index));
        if by == node {
            self.tell_taking(node, epoch, TakingEvent::CutMade);
        }
        let Node { state, marks, .. } = &self.nodes[node];
        let live = (0..NODES).filter(|other| !state.dead[*other]);
        let sources = live.map(|other| ((id(other), 0), marks[other])).collect();
        self.tell_giving(node, GivingEvent::CutMade { index, sources });
    }

    fn settle(&mut self, node: usize, by: usize, epoch: u64) {
        let state = &mut self.nodes[node].state;
        if state.claim != Some((epoch, by)) {
            if by == node {
                self.tell_taking(node, epoch, TakingEvent::SettleRefused { again: false });
            }
            return;
        }
        assert!(state.end == End::Known, "{by} takes what {} may still serve", state.holder);
        state.claim = None;
        (state.connection, state.end) = (epoch, End::Connected);
        state.routed = [false; NODES];
        state.routed[by] = true;
        let old = std::mem::replace(&mut state.holder, by);
        self.anew |= self.clean.contains(&epoch);
        if by == node {
            self.tell_taking(node, epoch, TakingEvent::Settled { session_present: true });
        } else if old == node {
            self.tell_giving(node, GivingEvent::Moved);
        }
    }

    fn expire(&mut self, node: usize, dead: usize) {
        let state = &mut self.nodes[node].state;
        state.dead[dead] = true;
        let (claim, holder) = (state.claim, state.holder);
        if holder == dead {
            state.missing = true;
            state.claim = None;
            if let Some((epoch, by)) = claim
                && by == node
            {
                self.tell_taking(node, epoch, TakingEvent::HolderGone);
            }
            return;
        }
        self.tell_giving(node, GivingEvent::NodeGone(id(dead)));
        if claim.is_some_and(|(_, by)| by == dead) {
            self.nodes[node].state.claim = None;
            self.nodes[node].state.routed[dead] = false;
            self.tell_giving(node, GivingEvent::Withdrawn);
        }
    }

    fn tell_giving(&mut self, node: usize, event: GivingEvent) {
        if let Some(giving) = &mut self.nodes[node].giving {
            let actions = giving.handle(event);
            if giving.is_done() {
                self.nodes[node].giving = None;
            }
            self.give(node, actions);
        }
    }

    fn tell_taking(&mut self, node: usize, epoch: u64, event: TakingEvent) {
        if let Some((taking, _)) = &mut self.nodes[node].taking
            && taking.epoch() == epoch
        {
            let actions = taking.handle(self.now, event);
            self.take(node, actions);
            if self.nodes[node].taking.as_ref().is_some_and(|(taking, _)| taking.is_done()) {
                self.nodes[node].taking = None;
            }
        }
    }

    fn give(&mut self, number: usize, actions: GivingActions) {
        for action in actions {
            let node = &mut self.nodes[number];
            let (epoch, by) = node.giving.as_ref().map_or((0, 0), |giving| {
                let Claim { epoch, by, .. } = giving.claim();
                (*epoch, by.0 as usize - 1)
            });
            match action {
                Give::Close => {
                    node.told.push_back(Told::Closed(node.state.connection));
                    node.told.push_back(Told::Giving(epoch, GivingEvent::WillsDone));
                    node.told.push_back(Told::Giving(epoch, GivingEvent::PublishedSettled));
                }
                Give::MakeYield { first } => {
                    let made = made(b'y', u8::from(!first), !first);
                    node.told.push_back(Told::Giving(epoch, made));
                }
                Give::MakeState { first } => {
                    let made = node.export(first);
                    node.told.push_back(Told::Giving(epoch, made));
                }
                Give::Send(frame) => self.frames.push((by, frame)),
                Give::Forget => node.session = None,
                Give::Keep => {}
            }
        }
    }

    fn take(&mut self, number: usize, actions: TakingActions) {
        for action in actions {
            let node = &mut self.nodes[number];
            let Some((taking, holder)) = &node.taking else { panic!("{action:?} without its machine") };
            let (epoch, holder) = (taking.epoch(), *holder);
            match action {
                Take::Send(frame) => self.frames.push((holder, frame)),
                Take::Enter { last, .. } => {
                    if last {
                        node.held = Some(Vec::new());
                    }
                }
                Take::ProposeCut => self.propose(number, Command::Cut { by: number, epoch }),
                Take::Take { bytes } => node.take_part(&bytes),
                Take::Adopt => {
                    node.adopt();
                    node.told.push_back(Told::Taking(epoch, TakingEvent::Kept));
                }
                Take::ProposeSettle => self.propose(number, Command::Settle { by: number, epoch }),
                Take::ProposeWithdraw => self.propose(number, Command::Withdraw { by: number, epoch }),
                Take::Connack { session_present } => self.admit(number, session_present),
                Take::Keep => self.own(number),
                Take::Leave => {
                    self.own(number);
                    self.propose(number, Command::Detach { by: number, epoch });
                }
                Take::Refuse(_) => {}
                Take::Drop => {
                    node.draft.clear();
                    node.held = None;
                }
            }
        }
    }

    fn admit(&mut self, number: usize, session_present: bool) {
        assert!(session_present || self.anew, "no node was silent: only a clean start ends a session");
        self.own(number);
        for (other, node) in self.nodes.iter().enumerate() {
            assert!(other == number || !node.open, "{other} is still connected");
        }
        self.nodes[number].open = true;
    }

    fn own(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.elsewhere = std::mem::take(&mut node.draft_seen);
        // What has come since it was adopted comes behind it.
        let mut session = std::mem::take(&mut node.draft);
        session.extend(node.held.take().into_iter().flatten().filter(|(from, n)| *n > node.elsewhere[*from]));
        node.session = Some(session);
    }

    /// The next thing that a link has brought.
    fn arrive(&mut self, from: usize, to: usize) -> bool {
        let Some(data) = self.links[from][to].pop_front() else { return false };
        let node = &mut self.nodes[to];
        if !node.up {
            return true;
        }
        match data {
            Data::Publish(number) => {
                node.seen[from] = node.seen[from].max(number);
                if let Some(session) = &mut node.session {
                    if number > node.elsewhere[from] {
                        session.push((from, number));
                    }
                } else if let Some(held) = &mut node.held {
                    held.push((from, number));
                }
            }
            Data::Mark(index) => {
                node.marks[from] = node.marks[from].max(index);
                self.tell_giving(to, GivingEvent::Mark { from: (id(from), 0), index });
            }
        }
        true
    }

    fn deliver(&mut self, (to, frame): (usize, SessionFrame)) {
        if !self.nodes[to].up {
            return;
        }
        let frame = SessionFrame::decode(&frame.encode()).unwrap();
        if frame.is_for_holder() {
            self.tell_giving(to, GivingEvent::Frame(frame));
        } else {
            self.tell_taking(to, frame.epoch(), TakingEvent::Frame(frame));
        }
    }

    fn tell(&mut self, node: usize) -> bool {
        if !self.nodes[node].up {
            return false;
        }
        let Some(told) = self.nodes[node].told.pop_front() else { return false };
        let of_claim = |world: &World, epoch| {
            let giving = world.nodes[node].giving.as_ref();
            giving.is_some_and(|giving| giving.claim().epoch == epoch)
        };
        match told {
            Told::Closed(epoch) => {
                self.nodes[node].open = false;
                self.propose(node, Command::Detach { by: node, epoch });
                self.tell_giving(node, GivingEvent::Closed);
            }
            // A part of an older claim is thrown away by who made it; the end of the old connection counts for every claim.
            Told::Giving(epoch, event @ GivingEvent::Made { .. }) => {
                if of_claim(self, epoch) {
                    self.tell_giving(node, event);
                }
            }
            Told::Giving(_, event) => self.tell_giving(node, event),
            Told::Taking(epoch, event) => self.tell_taking(node, epoch, event),
        }
        true
    }

    /// One round in which everything that can happen does, in a fixed order. Returns whether anything did.
    fn round(&mut self) -> bool {
        let mut any = false;
        for node in 0..NODES {
            any |= self.apply(node);
            any |= self.tell(node);
            for to in 0..NODES {
                any |= self.arrive(node, to);
            }
        }
        if !self.frames.is_empty() {
            let frame = self.frames.remove(0);
            self.deliver(frame);
            any = true;
        }
        any
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        for node in 0..NODES {
            if let Some((taking, _)) = self.nodes[node].taking.as_ref().filter(|_| self.nodes[node].up)
                && taking.due().is_some_and(|due| due <= self.now)
            {
                let epoch = taking.epoch();
                self.tell_taking(node, epoch, TakingEvent::Time);
            }
        }
    }

    /// Nothing is lost any more, and nothing new happens.
    fn calm_down(&mut self) {
        for _ in 0..200 {
            while self.round() {}
            self.pass(250);
        }
        assert!(!self.round(), "it never ends");
    }

    fn check(&self) {
        let newest = self.nodes.iter().filter(|node| node.up).map(|node| &node.state).next().unwrap();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.up) {
            assert!(node.taking.is_none() && node.giving.is_none(), "a move that never ends on {number}");
            assert_eq!(node.session.is_some(), !newest.missing && newest.holder == number, "node {number}");
            assert!(node.held.is_none());
        }
        let Some(session) = self.nodes.iter().filter(|node| node.up).find_map(|node| node.session.as_ref()) else {
            assert!(newest.missing);
            return;
        };
        for publisher in 0..NODES {
            let got: Vec<u64> = session.iter().filter(|(from, _)| *from == publisher).map(|(_, n)| *n).collect();
            assert!(got.is_sorted_by(|a, b| a < b), "{publisher}: {got:?}");
            if self.nodes[publisher].up && !self.anew {
                assert_eq!(got, (1..=self.nodes[publisher].published).collect::<Vec<_>>(), "of {publisher}");
            }
        }
    }
}

impl Node {
    /// A part: what has been seen, then two messages.
    fn export(&mut self, first: bool) -> GivingEvent {
        let mut bytes = Vec::new();
        if first {
            self.exporting = self.session.clone().unwrap_or_default();
            self.exported = 0;
            for (seen, elsewhere) in self.seen.iter().zip(self.elsewhere) {
                bytes.push((*seen).max(elsewhere) as u8);
            }
        }
        let part = self.exporting.iter().skip(self.exported).take(2);
        part.for_each(|(from, number)| bytes.extend([*from as u8, *number as u8]));
        self.exported += 2;
        GivingEvent::Made { last: self.exported >= self.exporting.len(), bytes: bytes.into() }
    }

    fn take_part(&mut self, bytes: &[u8]) {
        let mut messages = bytes;
        if bytes.len() % 2 == 1 {
            let (seen, rest) = bytes.split_at(NODES);
            self.draft_seen = std::array::from_fn(|node| u64::from(seen[node]));
            messages = rest;
        }
        self.draft.extend(messages.chunks(2).map(|message| (message[0].into(), message[1].into())));
    }

    fn adopt(&mut self) {
        let held = self.held.replace(Vec::new()).unwrap_or_default();
        self.draft.extend(held.into_iter().filter(|(from, number)| *number > self.draft_seen[*from]));
    }
}

fn id(node: usize) -> NodeId {
    NodeId(node as u128 + 1)
}

#[derive(Debug, Clone)]
enum Fault {
    Kill(usize),
    Connect(usize, bool),
    Leave(usize),
    LoseFrame,
    DoubleFrame,
    LoseAll,
    Late(usize),
}

impl World {
    fn fault(&mut self, fault: &Fault) {
        match *fault {
            Fault::Kill(node) => self.kill(node),
            Fault::Connect(node, clean) => self.connect(node, clean),
            Fault::Leave(node) => {
                if let Some(epoch) = self.nodes[node].taking.as_ref().map(|(taking, _)| taking.epoch()) {
                    self.tell_taking(node, epoch, TakingEvent::Failed);
                }
            }
            Fault::LoseFrame => drop(self.frames.pop()),
            Fault::DoubleFrame => self.frames.extend(self.frames.last().cloned()),
            Fault::LoseAll => self.frames.clear(),
            Fault::Late(to) => {
                // One node hears and applies nothing for a while.
                for _ in 0..6 {
                    for node in (0..NODES).filter(|node| *node != to) {
                        self.apply(node);
                        self.tell(node);
                        (0..NODES).filter(|other| *other != to).for_each(|other| _ = self.arrive(node, other));
                    }
                    self.publish((to + 1) % NODES);
                }
            }
        }
    }
}

/// A move from A to B under load, with a fault behind a number of small steps.
fn move_with(faults: &[(usize, Fault)]) -> World {
    let mut world = World::new();
    for node in [0, 1, 2, 1] {
        world.publish(node);
    }
    world.connect(1, false);
    for step in 0..40 {
        world.publish(step % NODES);
        faults.iter().filter(|(at, _)| *at == step).for_each(|(_, fault)| world.fault(fault));
        world.round();
        world.pass(100);
    }
    world.calm_down();
    world.check();
    world
}

fn all_faults() -> Vec<Fault> {
    let mut faults = vec![Fault::LoseFrame, Fault::DoubleFrame, Fault::LoseAll, Fault::Leave(1)];
    for node in 0..NODES {
        faults.extend([Fault::Kill(node), Fault::Connect(node, false), Fault::Connect(node, true), Fault::Late(node)]);
    }
    faults
}

#[test]
fn an_undisturbed_move_arrives_with_everything() {
    let world = move_with(&[]);
    assert!(world.nodes[1].open && world.nodes[1].session.is_some());
}

#[test]
fn one_fault_at_any_step_loses_nothing() {
    for step in 0..30 {
        for fault in all_faults() {
            let nobody_gives_up =
                matches!(fault, Fault::LoseFrame | Fault::DoubleFrame | Fault::LoseAll | Fault::Late(_));
            let world = move_with(&[(step, fault.clone())]);
            assert!(world.nodes[1].open || !nobody_gives_up, "{step} {fault:?}");
        }
    }
}

#[test]
fn two_faults_at_any_two_steps_lose_nothing() {
    let faults = all_faults();
    for (first, second) in (0..24).flat_map(|first| (first..24).map(move |second| (first, second))) {
        for (number, fault) in faults.iter().enumerate() {
            // Not all pairs at each pair of steps, but all of them at some.
            let other = &faults[(number + first * 5 + second) % faults.len()];
            move_with(&[(first, fault.clone()), (second, other.clone())]);
        }
    }
}

/// One small thing that happens.
#[derive(Debug, Clone)]
enum Chance {
    Apply(usize),
    Tell(usize),
    Arrive(usize, usize),
    Deliver(prop::sample::Index),
    Lose(prop::sample::Index),
    Double(prop::sample::Index),
    Publish(usize),
    Pass(u64),
    Connect(usize, bool),
    Leave(usize),
    Kill(usize),
}

fn chances() -> impl Strategy<Value = Vec<Chance>> {
    let node = || 0..NODES;
    let index = any::<prop::sample::Index>;
    let chance = prop_oneof![
        20 => node().prop_map(Chance::Apply),
        20 => node().prop_map(Chance::Tell),
        40 => (node(), node()).prop_map(|(from, to)| Chance::Arrive(from, to)),
        16 => index().prop_map(Chance::Deliver),
        2 => index().prop_map(Chance::Lose),
        3 => index().prop_map(Chance::Double),
        10 => node().prop_map(Chance::Publish),
        4 => (0u64..1_500).prop_map(Chance::Pass),
        3 => (node(), prop::bool::weighted(0.05)).prop_map(|(node, clean)| Chance::Connect(node, clean)),
        1 => node().prop_map(Chance::Leave),
        1 => node().prop_map(Chance::Kill),
    ];
    prop::collection::vec(chance, 50..350)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_side_has_the_session_whatever_is_lost(chances in chances()) {
        let mut world = World::new();
        for chance in chances {
            match chance {
                Chance::Apply(node) => _ = world.apply(node),
                Chance::Tell(node) => _ = world.tell(node),
                Chance::Arrive(from, to) => _ = world.arrive(from, to),
                Chance::Publish(node) if world.nodes[node].published < 100 => world.publish(node),
                Chance::Publish(_) => {}
                Chance::Pass(ms) => world.pass(ms),
                Chance::Connect(node, clean) => world.connect(node, clean),
                Chance::Leave(node) => world.fault(&Fault::Leave(node)),
                Chance::Kill(node) => world.kill(node),
                Chance::Deliver(_) | Chance::Lose(_) | Chance::Double(_) if world.frames.is_empty() => {}
                Chance::Deliver(at) => {
                    let frame = world.frames.remove(at.index(world.frames.len()));
                    world.deliver(frame);
                }
                Chance::Lose(at) => _ = world.frames.remove(at.index(world.frames.len())),
                Chance::Double(at) => world.frames.push(world.frames[at.index(world.frames.len())].clone()),
            }
        }
        world.calm_down();
        world.check();
    }
}
