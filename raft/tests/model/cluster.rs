//! Three nodes, the log, the links, one client id and a publisher elsewhere, as a state that steps lead on from.
//!
//! What is left out, and why that loses nothing: a proposal is in the log when it is made (what a node does between the two, it could have
//! done before); what a dead or expired process had under way is gone with it (what arrives before, arrives before the death); a node hears
//! nothing on a cut link and repeats when it heals; an expired incarnation cannot act, because its grant has ended; a client acknowledges
//! what it receives in the same step. Delays are choices: every node applies and receives as late as it likes.
//!
//! Read first: `apply.rs`, what a node does when it has applied an entry, and `steps.rs`, everything else that can happen.

use super::control::{Claim, Command, Control, Entry, Epoch, NODES, Node, Rule, Set, Will, has, only};

/// The node of the publisher.
pub const PUBLISHER: Node = 2;

/// What the surroundings may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    pub messages: u8,
    pub connects: u8,
    pub crashes: u8,
    pub cuts: u8,
    /// Connections that the client loses.
    pub drops: u8,
    /// DISCONNECTs that a node hears.
    pub goodbyes: u8,
    /// Claims that are given up: the deadline, or the client has gone away.
    pub withdrawals: u8,
    pub session_expiries: u8,
}

/// The session as it is on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    pub queue: Set,
    /// The publisher's stream is in the session up to here (1: the first message).
    pub seen: u8,
}

impl Stored {
    /// Takes the messages that the session has not had yet.
    pub fn take(&mut self, messages: Set, without: Option<Rule>) {
        for message in 0..2 {
            if has(messages, message) && (message >= self.seen || without == Some(Rule::SeenMovesToo)) {
                self.queue |= only(message);
            }
        }
        let last = u8::try_from(8 - messages.leading_zeros()).unwrap_or(0);
        self.seen = self.seen.max(last);
    }
}

/// How far a claimant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    Asking,
    /// The subscriptions are entered, what they bring is held, the cut is proposed.
    Holding(Set),
    /// The state is on disk; or nothing is to be moved.
    Adopted,
    Settling,
    Withdrawing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taking {
    pub epoch: Epoch,
    pub clean: bool,
    pub stage: Stage,
}

impl Taking {
    /// Its disk has a copy of the session that is not yet its own.
    pub fn has_copy(&self) -> bool {
        !self.clean && matches!(self.stage, Stage::Adopted | Stage::Settling)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeState {
    pub up: bool,
    /// A crashed process will be started again.
    pub returns: bool,
    pub control: Control,
    /// How many entries of the log it has applied.
    pub applied: u8,
    pub disk: Option<Stored>,
    pub taking: Option<Taking>,
    /// A connection whose CONNACK waits for an older Will.
    pub greeting: Option<Epoch>,
    /// A connection that is served.
    pub connection: Option<Epoch>,
    /// A connection that it closed for a claim, and, if it was never served, for which its Will does not count; still to be said.
    pub closed: Option<(Epoch, bool)>,
    /// The last mark that came from the publisher's node, by the epoch of its claim.
    pub mark: Epoch,
    /// Wills that it published and that are not yet known to be done.
    pub wills_sent: Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Packet {
    Publish(u8),
    Mark(Epoch),
}

/// The state of the session, on its way from its home to a claimant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    pub from: Node,
    pub to: Node,
    pub epoch: Epoch,
    pub stored: Stored,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// All of the log applied.
    pub head: Control,
    /// What some node has yet to apply.
    pub log: Vec<Entry>,
    pub nodes: [NodeState; NODES as usize],
    pub frames: Vec<Frame>,
    /// The data link of the publisher's node to each other.
    pub links: [Vec<Packet>; NODES as usize],
    pub cut: Option<(Node, Node)>,
    pub left: Budget,
    /// Messages published so far, the nodes that owe an answer for each, and those that are answered to the publisher.
    pub published: u8,
    pub legs: [Set; 2],
    pub acknowledged: Set,
    /// Never to be answered: the publisher's node has died with them.
    pub forgotten: Set,
    /// Answered, and not kept, because the session was missing.
    pub excused: Set,
    pub delivered: Set,
    pub delivered_twice: bool,
    pub out_of_order: bool,
    pub wills_published: Set,
    /// Epochs of connections that ended with a DISCONNECT.
    pub goodbyes: Set,
    pub will_repeated: bool,
}

impl State {
    pub fn new(will: Option<Will>, left: Budget) -> State {
        let control = Control::new(will);
        let node = NodeState {
            up: true,
            returns: false,
            control,
            applied: 0,
            disk: None,
            taking: None,
            greeting: None,
            connection: None,
            closed: None,
            mark: 0,
            wills_sent: 0,
        };
        let mut nodes = [node; NODES as usize];
        nodes[0].connection = Some(1);
        nodes[0].disk = Some(Stored { queue: 0, seen: 0 });
        State {
            head: control,
            log: Vec::new(),
            nodes,
            frames: Vec::new(),
            links: Default::default(),
            cut: None,
            left,
            published: 0,
            legs: [0; 2],
            acknowledged: 0,
            forgotten: 0,
            excused: 0,
            delivered: 0,
            delivered_twice: false,
            out_of_order: false,
            wills_published: 0,
            goodbyes: 0,
            will_repeated: false,
        }
    }

    pub fn node(&self, node: Node) -> &NodeState {
        &self.nodes[usize::from(node)]
    }

    pub fn node_mut(&mut self, node: Node) -> &mut NodeState {
        &mut self.nodes[usize::from(node)]
    }

    /// Its process runs and its incarnation is live.
    pub fn acts(&self, node: Node) -> bool {
        self.node(node).up && has(self.head.live, node)
    }

    pub fn is_cut(&self, a: Node, b: Node) -> bool {
        self.cut.is_some_and(|(x, y)| (x, y) == (a, b) || (x, y) == (b, a))
    }

    /// What one says, the other hears.
    pub fn linked(&self, a: Node, b: Node) -> bool {
        self.acts(a) && self.acts(b) && !self.is_cut(a, b)
    }

    /// The log goes on: two processes hear each other.
    pub fn has_quorum(&self) -> bool {
        let up: Vec<Node> = (0..NODES).filter(|&node| self.node(node).up).collect();
        up.len() > 2 || (up.len() == 2 && !self.is_cut(up[0], up[1]))
    }

    /// A later connection to this node is on its way to its lease: then what the one before it said has been heard.
    pub fn connects_anew(&self, node: Node) -> bool {
        let unapplied = &self.log[usize::from(self.node(node).applied)..];
        unapplied.iter().any(|entry| entry.by == node && matches!(entry.command, Command::Acquire { .. }))
    }

    /// The claim that `node`, as the home, has to answer.
    pub fn asked_of(&self, node: Node) -> Option<Claim> {
        self.node(node).control.claim().filter(|claim| claim.from == node)
    }

    /// Whether every live node has said that it routes with the cut of this claim, behind all that it routed before.
    pub fn marks_are_here(&self, home: Node, claim: Claim) -> bool {
        let live = self.node(home).control.live;
        claim.cut
            && (0..NODES).filter(|&node| has(live, node) && node != home).all(|node| {
                if node == PUBLISHER {
                    return self.node(home).mark == claim.epoch;
                }
                let said = self.node(node).control.claim();
                self.linked(node, home) && said.is_some_and(|said| said.epoch == claim.epoch && said.cut)
            })
    }
}
