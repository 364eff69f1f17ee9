//! The control state of the model: one lease, who has copies of whose sessions, and what the commands about them do.
//!
//! Read first: `Control::expire`.

use crate::control::{NODES, Node, Set, has, only};

/// A rule that the model can be told to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Who comes back with less leaves its sessions to its heirs, and has no copies that count.
    LessIsSaid,
    /// The routes of a dead node count until its heirs have entered its sessions.
    OrphansCount,
    /// What a dead node had not made stable goes to its heirs.
    OrphanLegs,
    /// The copy says what it has seen, so that it is not taken again.
    SeenIsCopied,
    /// An answer is stable when every pick has accepted, also the one that is being filled.
    BothPicks,
    /// A session that passes to a node without a copy goes back: its home may come back with it.
    LostGoesBack,
    /// A session that came to a home after its copies were complete has none that is sure.
    InheritedIsNotWhole,
    /// A node is heard in the life that the publisher's node knows of, and in no later one.
    HeardInItsLife,
    /// By its name a Will is known that a node publishes which has not heard that another one has.
    NamesOutliveWills,
}

/// What stands of the Will of the connection that the session had at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Will {
    Armed,
    /// To be published by that node.
    Due(Node),
    Done,
}

/// Who has the copies of the sessions of one home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Heirs {
    pub base: Set,
    pub stale: Set,
    /// The number of the fill, and who is filled.
    pub next: Option<(u8, Set)>,
    pub whole: bool,
    /// Since the fill began: sessions came to it, or it began a new life.
    pub outgrown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    pub live: Set,
    pub holder: Node,
    /// From whom the holder has it, and whether there must be a copy.
    pub from: Option<Node>,
    pub sure: bool,
    /// The session was lost.
    pub ended: bool,
    /// Its holder is dead, and it is to be passed on.
    pub passes: bool,
    pub heirs: [Heirs; NODES as usize],
    /// Who was to inherit from a node when it died, and who has still to.
    pub inheriting: [Set; NODES as usize],
    pub pending: [Set; NODES as usize],
    /// How often each has died, and begun a new life.
    pub deaths: [u8; NODES as usize],
    pub lives: [u8; NODES as usize],
    /// Nodes whose routes count.
    pub routes: Set,
    pub fills: u8,
    pub will: Will,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    Register {
        intact: bool,
    },
    FillHeirs {
        next: Set,
    },
    HeirsFilled {
        fill: u8,
    },
    Routes,
    Inherited {
        from: Node,
    },
    Found,
    Lost,
    WillDone,
    /// By the leader, as is what follows.
    Expire {
        node: Node,
    },
    PassOn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    pub by: Node,
    pub command: Command,
}

/// Who has the copy of the one session, of all who have copies.
pub fn pick(among: Set) -> Set {
    if among == 0 { 0 } else { only(7 - among.leading_zeros() as u8) }
}

impl Control {
    /// The session is at node 0, and node 1 has its copy; `live` are the nodes that there are.
    pub fn new(live: Set) -> Control {
        let heirs = Heirs { base: 0, stale: 0, next: None, whole: false, outgrown: true };
        let mut of_all = [heirs; NODES as usize];
        of_all[0] = Heirs { base: only(1), whole: true, outgrown: false, ..heirs };
        of_all[1] = Heirs { base: live & !only(1), whole: true, outgrown: false, ..heirs };
        Control {
            live,
            holder: 0,
            from: None,
            sure: true,
            ended: false,
            passes: false,
            heirs: of_all,
            inheriting: [0; NODES as usize],
            pending: [0; NODES as usize],
            deaths: [0; NODES as usize],
            lives: [0; NODES as usize],
            routes: only(0),
            fills: 0,
            will: Will::Armed,
        }
    }

    pub fn of(&self, home: Node) -> &Heirs {
        &self.heirs[usize::from(home)]
    }

    /// All who can take something over from `home`.
    pub fn able(&self, home: Node) -> Set {
        let heirs = self.of(home);
        heirs.base & !heirs.stale & self.live & !only(home)
    }

    /// Who takes over the session of `home`, if somebody can.
    pub fn heir(&self, home: Node) -> Option<Node> {
        let heirs = self.of(home);
        let heir = pick(heirs.base) & self.able(home);
        (heir != 0).then(|| heir.trailing_zeros() as Node)
    }

    /// A node has the session, and lives.
    pub fn is_there(&self) -> bool {
        !self.ended && has(self.live, self.holder)
    }

    /// An heir may still enter it.
    pub fn is_passing(&self) -> bool {
        let to_it = |from: Node| has(self.pending[usize::from(from)], self.holder);
        self.pending[usize::from(self.holder)] != 0 || self.from.is_some_and(to_it)
    }

    /// One more node may be lost for good, as far as the control state says.
    pub fn is_redundant(&self) -> bool {
        let Heirs { base, next, whole, .. } = *self.of(self.holder);
        let quiet = self.pending == [0; NODES as usize] && next.is_none();
        self.is_there() && whole && quiet && pick(base) & self.able(self.holder) != 0
    }

    /// Returns whether it was done.
    pub fn apply(&mut self, Entry { by, command }: Entry, without: Option<Rule>) -> bool {
        match command {
            Command::Register { intact } => self.register(by, intact, without),
            Command::Expire { node } => {
                self.expire(node, without);
                true
            }
            Command::PassOn => {
                if std::mem::take(&mut self.passes) {
                    self.end_connection();
                    self.pass_on(without);
                }
                true
            }
            Command::FillHeirs { next } => self.fill(by, next),
            Command::HeirsFilled { fill } => self.filled(by, fill),
            Command::Routes => {
                if self.holder == by && !self.ended {
                    self.routes |= only(by);
                }
                true
            }
            Command::Inherited { from } => self.inherited(by, from),
            Command::Found => {
                let may = !self.ended && !has(self.live, self.holder) && self.heir(self.holder) == Some(by);
                may && self.pass_on(without)
            }
            Command::Lost => self.lost(by, without),
            Command::WillDone => {
                self.will = Will::Done;
                true
            }
        }
    }

    fn expire(&mut self, node: Node, without: Option<Rule>) {
        let able = self.able(node);
        self.live &= !only(node);
        self.deaths[usize::from(node)] += 1;
        let holds = self.holder == node && !self.ended;
        self.inheriting[usize::from(node)] = able;
        self.pending[usize::from(node)] = able;
        if able == 0 || without == Some(Rule::OrphansCount) {
            self.routes &= !only(node);
        }
        self.leave_pending(node);
        if holds {
            self.passes = able != 0;
            if able == 0 {
                self.end_connection();
            }
        }
        self.miss(node, false);
        if self.will == Will::Due(node) {
            self.make_due();
        }
    }

    /// The life of `node` is over, or what it had is `lost`.
    fn miss(&mut self, node: Node, lost: bool) {
        for home in 0..NODES {
            let live = has(self.live, home);
            let heirs = &mut self.heirs[usize::from(home)];
            if (lost || live) && has(heirs.base, node) {
                heirs.stale |= only(node);
            }
            let voids = home == node || heirs.next.is_some_and(|(_, next)| has(next, node));
            if voids {
                heirs.next = None;
            }
        }
    }

    fn leave_pending(&mut self, heir: Node) {
        for home in 0..NODES {
            let pending = &mut self.pending[usize::from(home)];
            if has(*pending, heir) {
                *pending &= !only(heir);
                self.end_orphans(home);
            }
        }
    }

    fn end_orphans(&mut self, home: Node) {
        if self.pending[usize::from(home)] == 0 {
            self.routes &= !only(home);
        }
    }

    fn end_connection(&mut self) {
        if self.will == Will::Armed {
            self.make_due();
        }
    }

    fn make_due(&mut self) {
        let pick = self.live.trailing_zeros() as Node;
        self.will = Will::Due(if has(self.live, self.holder) { self.holder } else { pick });
    }

    /// To its heir, if it has one that lives and has missed nothing. Returns whether it has.
    fn pass_on(&mut self, without: Option<Rule>) -> bool {
        let from = self.holder;
        let Some(heir) = self.heir(from) else { return false };
        (self.holder, self.from, self.sure) = (heir, Some(from), self.of(from).whole);
        let heirs = &mut self.heirs[usize::from(heir)];
        if without != Some(Rule::InheritedIsNotWhole) {
            (heirs.whole, heirs.outgrown) = (false, true);
        }
        if let Will::Due(_) = self.will {
            self.make_due();
        }
        true
    }

    fn fill(&mut self, by: Node, next: Set) -> bool {
        if next & !self.live != 0 || !has(self.live, by) {
            return false;
        }
        self.fills += 1;
        let fill = self.fills;
        let heirs = &mut self.heirs[usize::from(by)];
        (heirs.next, heirs.outgrown) = (Some((fill, next)), false);
        true
    }

    fn filled(&mut self, by: Node, fill: u8) -> bool {
        let heirs = &mut self.heirs[usize::from(by)];
        let Some((_, next)) = heirs.next.filter(|(number, _)| *number == fill) else { return false };
        (heirs.base, heirs.stale, heirs.next, heirs.whole) = (next, 0, None, !heirs.outgrown);
        true
    }

    fn inherited(&mut self, by: Node, from: Node) -> bool {
        let pending = &mut self.pending[usize::from(from)];
        if !has(*pending, by) || (self.passes && self.holder == from) {
            return false;
        }
        *pending &= !only(by);
        self.end_orphans(from);
        true
    }

    fn lost(&mut self, by: Node, without: Option<Rule>) -> bool {
        if self.holder != by || self.ended {
            return false;
        }
        match self.from.take().filter(|_| without != Some(Rule::LostGoesBack)) {
            Some(from) if !has(self.live, from) => {
                self.holder = from;
                if let Will::Due(_) = self.will {
                    self.make_due();
                }
            }
            _ => self.ended = true,
        }
        true
    }

    /// A process has started, or was expired and begins again.
    fn register(&mut self, node: Node, intact: bool, without: Option<Rule>) -> bool {
        let intact = intact || without == Some(Rule::LessIsSaid);
        if has(self.live, node) && !intact && self.able(node) != 0 {
            self.expire(node, without);
            return false;
        }
        if self.pending[usize::from(node)] != 0 {
            return false;
        }
        if self.holder == node {
            self.passes = false;
            if has(self.live, node) {
                self.end_connection();
            }
        }
        if !intact {
            self.leave_pending(node);
        }
        self.live |= only(node);
        self.lives[usize::from(node)] += 1;
        if !intact {
            self.miss(node, true);
        }
        self.begin_life(node);
        true
    }

    fn begin_life(&mut self, node: Node) {
        let dead = !self.live;
        let heirs = &mut self.heirs[usize::from(node)];
        (heirs.whole, heirs.outgrown) = (false, true);
        heirs.stale |= heirs.base & dead;
        heirs.next = None;
    }
}
