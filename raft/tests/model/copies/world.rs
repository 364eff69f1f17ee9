//! Three nodes that keep sessions, the publisher's node, the log and the links, as a state that steps lead on from.
//!
//! Left out, beside what `cluster.rs` leaves out: the publisher's node lives for ever, so what it keeps until it is stable is there; nobody acknowledges
//! messages, so nothing is deleted; a fill is two frames, as a copy counts only when all of it is there.
//!
//! Read first: `apply.rs`, what a node does when it has applied an entry.

use super::control::{Command, Control, Entry, Rule, Will, pick};
use crate::control::{NODES, Node, Set, has, only};

/// The publisher's node, which has no sessions.
pub const PUBLISHER: Node = NODES;

const ALL: usize = NODES as usize;

/// What the surroundings may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    pub messages: u8,
    /// Processes that end and start again with what they had.
    pub crashes: u8,
    /// Nodes that are expired and live.
    pub freezes: u8,
    /// Nodes that lose what they had, once the copies are complete.
    pub losses: u8,
    pub fills: u8,
    pub joins: u8,
}

/// A session, or a copy of it, as it is on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stored {
    pub queue: Set,
    /// The publisher's stream is in it up to here (1: the first message).
    pub seen: u8,
    /// A copy: everything has come.
    pub complete: bool,
}

pub const EMPTY: Stored = Stored { queue: 0, seen: 0, complete: false };

impl Stored {
    /// Returns whether it was not known.
    pub fn take(&mut self, message: u8) -> bool {
        let is_new = message >= self.seen;
        if is_new {
            self.queue |= only(message);
            self.seen = message + 1;
        }
        is_new
    }
}

/// What goes from a home to an heir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Copied {
    /// What you have is void; what follows is all of it.
    Begin,
    Put(u8),
    All(Stored),
}

/// A message on its way; `of`: the dead node that it is for, how often that had died, and whether it is for nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    pub message: u8,
    pub of: Option<(Node, u8, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeState {
    pub up: bool,
    pub control: Control,
    /// How many entries of the log it has applied.
    pub applied: u8,
    /// A process that has ended will be started again; whether with all that there was.
    pub returns: bool,
    pub intact: bool,
    pub own: Option<Stored>,
    /// By their homes.
    pub copies: [Option<Stored>; ALL],
    /// Messages of its session of which it does not know whether an heir has them.
    pub known: Set,
    /// Those that are stable.
    pub stable: Set,
    /// Who gets what it writes down, who of them was told that the copy begins, and was sent all of it.
    pub picks: Set,
    pub begun: Set,
    pub complete: Set,
    /// Dead nodes whose sessions it has entered, and of whom it has said so.
    pub entered: Set,
    pub announced: Set,
    /// The last fill that it has said to be complete.
    pub filled: u8,
    pub will_sent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// All of the log applied.
    pub head: Control,
    /// What some node has yet to apply.
    pub log: Vec<Entry>,
    /// The publisher's node is the last.
    pub nodes: [NodeState; ALL + 1],
    /// Frames of copies, by home and heir.
    pub copies: [[Vec<Copied>; ALL]; ALL],
    pub links: [Vec<Packet>; ALL],
    pub left: Budget,
    pub published: u8,
    /// For each message the nodes that owe an answer, and those for which it is kept: where it is not stable.
    pub owed: [Set; 2],
    pub kept: [Set; 2],
    pub of: [[Option<(Node, u8, bool)>; ALL]; 2],
    pub acknowledged: Set,
    /// Answered, and not kept, because the session was missing.
    pub excused: Set,
    pub twice: bool,
    /// Nodes that have lost what they had, and the control state does not know.
    pub unnoticed: Set,
    pub will_published: bool,
    pub will_repeated: bool,
}

impl State {
    pub fn new(left: Budget, with_will: bool) -> State {
        let mut control = Control::new(if left.joins > 0 { 0b011 } else { 0b111 });
        if !with_will {
            control.will = Will::Done;
        }
        let node = NodeState {
            up: true,
            control,
            applied: 0,
            returns: false,
            intact: true,
            own: None,
            copies: [None; ALL],
            known: 0,
            stable: 0,
            picks: 0,
            begun: 0,
            complete: 0,
            entered: 0,
            announced: 0,
            filled: 0,
            will_sent: false,
        };
        let mut nodes = [node; ALL + 1];
        let home = &mut nodes[0];
        home.own = Some(EMPTY);
        (home.picks, home.begun, home.complete) = (only(1), only(1), only(1));
        nodes[1].copies[0] = Some(Stored { complete: true, ..EMPTY });
        if left.joins > 0 {
            (nodes[2].up, nodes[2].returns) = (false, true);
        }
        State {
            head: control,
            log: Vec::new(),
            nodes,
            copies: Default::default(),
            links: Default::default(),
            left,
            published: 0,
            owed: [0; 2],
            kept: [0; 2],
            of: [[None; ALL]; 2],
            acknowledged: 0,
            excused: 0,
            twice: false,
            unnoticed: 0,
            will_published: false,
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
        node == PUBLISHER || (self.node(node).up && has(self.head.live, node))
    }

    /// Who has the copy runs.
    pub fn heir_is_up(&self) -> bool {
        let heir = pick(self.head.of(self.head.holder).base);
        heir != 0 && self.acts(heir.trailing_zeros() as Node)
    }

    /// An entry is in the log. Returns whether it does something.
    pub fn append(&mut self, by: Node, command: Command, without: Option<Rule>) -> bool {
        let entry = Entry { by, command };
        self.log.push(entry);
        self.head.apply(entry, without)
    }

    /// PUBACK, when no node owes an answer any more.
    pub fn acknowledge(&mut self, message: u8) {
        if self.owed[usize::from(message)] == 0 {
            self.acknowledged |= only(message);
        }
    }

    /// Whether the publisher's node and another one hear each other.
    pub fn hears(&self, node: Node, without: Option<Rule>) -> bool {
        let known = self.node(PUBLISHER).control.lives[usize::from(node)];
        self.acts(node) && (known == self.head.lives[usize::from(node)] || without == Some(Rule::HeardInItsLife))
    }

    /// The data link from the publisher's node begins anew, with all that is not stable.
    pub fn begin_link(&mut self, node: Node, without: Option<Rule>) {
        if !self.hears(node, without) {
            return;
        }
        let kept = (0..self.published).filter(|&message| has(self.kept[usize::from(message)], node));
        let packet = |message| Packet { message, of: self.of[usize::from(message)][usize::from(node)] };
        self.links[usize::from(node)] = kept.map(packet).collect();
    }

    /// A process ends, or its incarnation does: what is not on its disk is gone.
    pub fn forget_memory(&mut self, node: Node) {
        let this = self.node_mut(node);
        (this.picks, this.begun, this.complete) = (0, 0, 0);
        (this.stable, this.known) = (0, 0);
        (this.entered, this.announced, this.filled, this.will_sent) = (0, 0, 0, false);
        self.copies[usize::from(node)] = Default::default();
        self.links[usize::from(node)].clear();
    }

    /// Entries that everybody who acts has applied are not needed: who starts anew gets the state itself.
    pub fn tidy(&mut self) {
        let acting = (0..=NODES).filter(|&node| self.acts(node));
        let done = acting.map(|node| self.node(node).applied).min().unwrap_or(0);
        self.log.drain(..usize::from(done));
        for node in 0..=NODES {
            let acts = self.acts(node);
            let head = self.head;
            let this = self.node_mut(node);
            this.applied = if acts { this.applied - done } else { 0 };
            if !acts {
                // Of no use to it.
                this.control = head;
            }
        }
    }
}
