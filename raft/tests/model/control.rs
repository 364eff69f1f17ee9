//! The control state of the model: the lease of one client id, and what its commands do to it.
//!
//! Every node has a copy and applies the same entries in the same order, each as late as it likes. A rule that protects the session or the
//! Will can be taken out ([`Rule`]), so that the tests can show what it is there for.
//!
//! Read first: `Control::apply`.

/// Three nodes are enough for a home, a claimant and a publisher elsewhere; ids are 0, 1, 2.
pub const NODES: u8 = 3;

/// Epochs are less: the first connection and those that a scenario makes.
pub const EPOCHS: usize = 6;

/// A set of small numbers: nodes, epochs or messages.
pub type Set = u8;

/// A node's id.
pub type Node = u8;

/// As in the crate: counts the connections that took the lease.
pub type Epoch = u8;

/// Whether a small number is in a set.
pub fn has(set: Set, member: u8) -> bool {
    set & (1 << member) != 0
}

/// The set of one small number.
pub fn only(member: u8) -> Set {
    1 << member
}

/// A rule that the model can be told to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The holder changes when the claim is settled, and not when it is made.
    HolderMovesAtSettle,
    /// The state is sent when every node routes to the new home too, and has said so behind what it routed before.
    MarksBeforeState,
    /// A claim is not settled while a Will of the client is due.
    WillBeforeSettle,
    /// A claim ends with the death of its node.
    ClaimEndsWithItsNode,
    /// The new home is served only when the old one has closed its connection.
    YieldBeforeService,
    /// The Will and the expiry of a claim are the claim's until it is settled.
    WillStaysInClaim,
    /// What the state had from a stream is not taken again: neither from what the claimant held, nor when it comes later.
    SeenMovesToo,
    /// A due Will has a new publisher when its publisher dies.
    WillOutlivesPublisher,
    /// The death of a session's home ends claims on it.
    ClaimEndsWithHolder,
    /// How the connection ended that a claim closes is open until its home says it.
    HomeSaysHowItEnded,
}

/// The Will of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Will {
    Immediate,
    Delayed,
}

/// Where the lease stands. That its home is dead is not said here: a session of a dead node is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    Connected,
    Detached,
    /// The session is over; the lease waits for a due Will.
    Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    pub epoch: Epoch,
    pub by: Node,
    /// The home when the claim was made.
    pub from: Node,
    pub clean: bool,
    /// The claimant's route is in the log: everybody who applied that routes to both.
    pub cut: bool,
    pub will: Option<Will>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub holder: Node,
    pub phase: Phase,
    /// The last connection at the holder.
    pub epoch: Epoch,
    /// The connection that began the session. Only the first session of the model is subscribed.
    pub began: Epoch,
    /// A claim has ended the connection, and the home has not said how.
    pub closing: bool,
    /// Connected, or closing: what would become due. Otherwise: waits for its delay.
    pub will: Option<Will>,
    pub claim: Option<Claim>,
}

impl Lease {
    /// The node that has the session's state.
    pub fn home(&self) -> Node {
        self.claim.map_or(self.holder, |claim| claim.from)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    Register,
    Acquire {
        clean: bool,
        will: Option<Will>,
    },
    Cut {
        epoch: Epoch,
    },
    Settle {
        epoch: Epoch,
    },
    Withdraw {
        epoch: Epoch,
    },
    Detach {
        epoch: Epoch,
        goodbye: bool,
    },
    WillDone {
        epoch: Epoch,
    },
    /// By the leader, as are those that follow.
    Expire {
        node: Node,
    },
    DelayOver,
    SessionExpires,
}

/// A command in the log. `by` is a live incarnation when it is appended: the model appends at the moment of the proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    pub by: Node,
    pub command: Command,
}

/// What a command came to, for who proposed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    Connected(Epoch),
    Claimed(Epoch),
    /// 0x88: the home is dead.
    Missing,
    Refused,
}

/// The control state, and beside it what the properties ask about the past (`became_due`, `cancelled`, `accepted`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    pub live: Set,
    pub incarnation: [u8; NODES as usize],
    pub last_epoch: Epoch,
    pub lease: Option<Lease>,
    /// Nodes that publishes of the first session's topic go to.
    pub routes: Set,
    /// Epochs whose Will is due.
    pub due: Set,
    /// Who publishes the Will of each epoch that is due; 0 of others.
    pub publishers: [Node; EPOCHS],
    pub became_due: Set,
    pub cancelled: Set,
    /// Epochs whose Will went with a goodbye.
    pub dropped: Set,
    /// Epochs that were connections of the lease.
    pub accepted: Set,
}

impl Control {
    /// The session and its connection are at node 0; everybody routes there.
    pub fn new(will: Option<Will>) -> Control {
        let lease = Lease { holder: 0, phase: Phase::Connected, epoch: 1, began: 1, closing: false, will, claim: None };
        Control {
            live: 0b111,
            incarnation: [1; NODES as usize],
            last_epoch: 1,
            lease: Some(lease),
            routes: only(0),
            due: 0,
            publishers: [0; EPOCHS],
            became_due: 0,
            cancelled: 0,
            dropped: 0,
            accepted: only(1),
        }
    }

    /// The first session is still there. Only it is owed messages.
    pub fn subscribed(&self) -> bool {
        self.lease.is_some_and(|lease| lease.began == 1 && lease.phase != Phase::Ending)
    }

    /// The lease is there and its home is dead.
    pub fn missing(&self) -> bool {
        self.lease.is_some_and(|lease| !has(self.live, lease.home()))
    }

    pub fn claim(&self) -> Option<Claim> {
        self.lease.and_then(|lease| lease.claim)
    }

    /// Applying cannot fail: what does not hold is refused and changes nothing.
    pub fn apply(&mut self, entry: Entry, without: Option<Rule>) -> Outcome {
        match entry.command {
            Command::Register => self.register(entry.by, without),
            Command::Acquire { clean, will } => return self.acquire(entry.by, clean, will, without),
            Command::Cut { epoch } => return self.cut(epoch),
            Command::Settle { epoch } => return self.settle(epoch, without),
            Command::Withdraw { epoch } => return self.withdraw(epoch),
            Command::Detach { epoch, goodbye } => return self.detach(entry.by, epoch, goodbye),
            Command::WillDone { epoch } => {
                self.due &= !only(epoch);
                self.publishers[usize::from(epoch)] = 0;
                self.end_if_done();
            }
            Command::Expire { node } => self.expire(node, without),
            Command::DelayOver => self.delay_over(),
            Command::SessionExpires => self.session_expires(),
        }
        Outcome::Done
    }

    fn acquire(&mut self, by: Node, clean: bool, will: Option<Will>, without: Option<Rule>) -> Outcome {
        let Some(lease) = self.lease else { return self.connect(by, will, None) };
        let home_dead = !has(self.live, lease.home());
        let will_waits = self.due != 0 || (lease.will.is_some() && lease.phase != Phase::Connected);
        if lease.home() == by {
            self.close(clean);
            let resumed = (!clean && lease.phase != Phase::Ending).then_some(lease.began);
            return self.connect(by, will, resumed);
        }
        if lease.phase != Phase::Connected && !lease.closing && clean && !will_waits {
            return self.connect(by, will, None);
        }
        if home_dead {
            return Outcome::Missing;
        }
        self.claim_lease(by, clean, will, without)
    }

    /// The lease is `by`'s, at once. `resumed`: the connection that began the session, if it goes on.
    fn connect(&mut self, by: Node, will: Option<Will>, resumed: Option<Epoch>) -> Outcome {
        self.last_epoch += 1;
        let epoch = self.last_epoch;
        let began = resumed.unwrap_or(epoch);
        self.lease =
            Some(Lease { holder: by, phase: Phase::Connected, epoch, began, closing: false, will, claim: None });
        self.routes = if began == 1 { only(by) } else { 0 };
        self.accepted |= only(epoch);
        Outcome::Connected(epoch)
    }

    fn claim_lease(&mut self, by: Node, clean: bool, will: Option<Will>, without: Option<Rule>) -> Outcome {
        let Some(mut lease) = self.lease else { return Outcome::Refused };
        if lease.phase == Phase::Connected {
            lease.phase = Phase::Detached;
            lease.closing = without != Some(Rule::HomeSaysHowItEnded);
            self.lease = Some(lease);
            if !lease.closing {
                self.end_will(clean);
            }
        } else if clean && !lease.closing {
            self.make_due();
        }
        let Some(mut lease) = self.lease else { return Outcome::Refused };
        let clean = clean || lease.phase == Phase::Ending;
        self.last_epoch += 1;
        self.routes &= only(lease.holder);
        let mut claim = Claim { epoch: self.last_epoch, by, from: lease.holder, clean, cut: false, will };
        if without == Some(Rule::WillStaysInClaim) {
            lease.will = claim.will.take();
            lease.epoch = claim.epoch;
        }
        if without == Some(Rule::HolderMovesAtSettle) {
            lease.holder = by;
        }
        lease.claim = Some(claim);
        self.lease = Some(lease);
        Outcome::Claimed(self.last_epoch)
    }

    /// The Will of the connection that a new one at the same node, or none, follows.
    fn close(&mut self, clean: bool) {
        let Some(lease) = self.lease else { return };
        if lease.phase == Phase::Connected || lease.closing {
            self.end_will(clean);
        }
        if clean {
            self.make_due();
        } else {
            self.cancel();
        }
    }

    /// The connection has ended otherwise than by DISCONNECT: its Will is due, or waits for its delay.
    fn end_will(&mut self, now: bool) {
        let Some(lease) = &self.lease else { return };
        if now || lease.will == Some(Will::Immediate) {
            self.make_due();
        }
    }

    fn make_due(&mut self) {
        let live = self.live;
        let Some(lease) = &mut self.lease else { return };
        if lease.will.take().is_some() {
            let (home, epoch) = (lease.home(), lease.epoch);
            self.due |= only(epoch);
            self.became_due |= only(epoch);
            self.publishers[usize::from(epoch)] = if has(live, home) { home } else { self.pick() };
        }
    }

    fn cancel(&mut self) {
        let Some(lease) = &mut self.lease else { return };
        if lease.will.take().is_some() {
            self.cancelled |= only(lease.epoch);
        }
    }

    fn pick(&self) -> Node {
        (0..NODES).find(|&node| has(self.live, node)).unwrap_or(0)
    }

    fn cut(&mut self, epoch: Epoch) -> Outcome {
        match self.lease.as_mut().and_then(|lease| lease.claim.as_mut()) {
            Some(claim) if claim.epoch == epoch => {
                claim.cut = true;
                self.routes |= only(claim.by);
                Outcome::Done
            }
            _ => Outcome::Refused,
        }
    }

    fn settle(&mut self, epoch: Epoch, without: Option<Rule>) -> Outcome {
        let Some(claim) = self.claim().filter(|claim| claim.epoch == epoch) else { return Outcome::Refused };
        let closing = self.lease.is_some_and(|lease| lease.closing) && without != Some(Rule::YieldBeforeService);
        if closing || (self.due != 0 && without != Some(Rule::WillBeforeSettle)) {
            return Outcome::Refused;
        }
        self.cancel();
        let began = match self.lease {
            Some(lease) if !claim.clean => lease.began,
            _ => epoch,
        };
        let (holder, will) = (claim.by, claim.will);
        self.lease = Some(Lease { holder, phase: Phase::Connected, epoch, began, closing: false, will, claim: None });
        self.routes = if began == 1 { only(holder) } else { 0 };
        self.accepted |= only(epoch);
        Outcome::Done
    }

    fn withdraw(&mut self, epoch: Epoch) -> Outcome {
        if self.claim().is_none_or(|claim| claim.epoch != epoch) {
            return Outcome::Refused;
        }
        self.end_claim();
        Outcome::Done
    }

    fn end_claim(&mut self) {
        let Some(lease) = &mut self.lease else { return };
        if let Some(claim) = lease.claim.take() {
            self.routes &= only(claim.from);
        }
        self.end_if_done();
    }

    fn detach(&mut self, by: Node, epoch: Epoch, goodbye: bool) -> Outcome {
        let Some(lease) = self.lease else { return Outcome::Refused };
        let open = lease.phase == Phase::Connected || lease.closing;
        if !open || lease.home() != by || lease.epoch != epoch {
            return Outcome::Refused;
        }
        self.end_connection(goodbye);
        Outcome::Done
    }

    /// It is known how the connection has ended, for a claim too if there is one.
    fn end_connection(&mut self, goodbye: bool) {
        let Some(lease) = &mut self.lease else { return };
        lease.phase = Phase::Detached;
        lease.closing = false;
        let at_once = lease.claim.is_some_and(|claim| claim.clean);
        if !goodbye {
            self.end_will(at_once);
        } else if lease.will.take().is_some() {
            self.dropped |= only(lease.epoch);
        }
    }

    fn end_if_done(&mut self) {
        if self.due == 0 && self.lease.is_some_and(|lease| lease.phase == Phase::Ending && lease.claim.is_none()) {
            self.lease = None;
        }
    }

    /// The node is dead: its connection has ended, claims by it and on it are withdrawn, its routes go.
    fn expire(&mut self, node: Node, without: Option<Rule>) {
        self.live &= !only(node);
        self.end_connection_of(node);
        if let Some(claim) = self.claim() {
            let by_it = claim.by == node && without != Some(Rule::ClaimEndsWithItsNode);
            let on_it = claim.from == node && without != Some(Rule::ClaimEndsWithHolder);
            if by_it || on_it {
                self.end_claim();
            }
        }
        self.routes &= !only(node);
        let pick = self.pick();
        for epoch in (1..=self.last_epoch).filter(|&epoch| has(self.due, epoch)) {
            let publisher = &mut self.publishers[usize::from(epoch)];
            if *publisher == node && without != Some(Rule::WillOutlivesPublisher) {
                *publisher = pick;
            }
        }
    }

    fn end_connection_of(&mut self, node: Node) {
        let Some(lease) = self.lease.filter(|lease| lease.home() == node) else { return };
        if lease.phase == Phase::Connected || lease.closing {
            self.end_connection(false);
        }
    }

    /// A process has started with the disk of the last one. Sessions that are the node's are its own again.
    fn register(&mut self, node: Node, without: Option<Rule>) {
        self.end_connection_of(node);
        if self.claim().is_some_and(|claim| claim.by == node) && without != Some(Rule::ClaimEndsWithItsNode) {
            self.end_claim();
        }
        self.live |= only(node);
        self.incarnation[usize::from(node)] += 1;
        if self.subscribed() && self.lease.is_some_and(|lease| lease.home() == node) {
            self.routes |= only(node);
        }
    }

    fn delay_over(&mut self) {
        if self.lease.is_some_and(|lease| lease.phase != Phase::Connected && !lease.closing) {
            self.make_due();
        }
    }

    fn session_expires(&mut self) {
        let Some(lease) = &mut self.lease else { return };
        if lease.phase == Phase::Detached && !lease.closing && lease.claim.is_none() {
            lease.phase = Phase::Ending;
            self.routes = 0;
            self.make_due();
            self.end_if_done();
        }
    }
}
