//! What the control state is asked, what it answers, and what follows.
//!
//! Plain data without behaviour. Applying a command cannot fail: one whose precondition does not hold changes nothing
//! and says why, in [`Outcome::Refused`]. (One exception: the `Register` of a node that lives and has lost its sessions ends that life, and is
//! refused until its heirs have inherited.)

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The client identifier of MQTT.
pub type ClientId = Arc<str>;

/// Counts the connections that took a client id's lease or claimed it. No two connections of one client id ever have the same.
pub type SessionEpoch = u64;

/// Counts the starts of one node, from 1.
pub type Incarnation = u64;

/// A share name and the topic filter that the group of that name subscribes to.
pub type ShareRoute = (Arc<str>, Arc<str>);

/// Session Expiry Interval of a session that does not expire (section 3.1.2.11.2).
pub const NEVER_EXPIRES: u32 = u32::MAX;

/// A node's identity: random, made with its data directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u128);

impl NodeId {
    /// What stands for the node where half of its id is enough.
    #[must_use]
    pub fn tag(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

/// A Will as the lease carries it, because somebody must have it when the node of its client is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseWill {
    /// Will Delay Interval in seconds (section 3.1.3.2.2).
    pub delay_secs: u32,
    /// The Will itself. Only who publishes it looks inside.
    pub message: Bytes,
}

/// Whether a connection that ended leaves its Will to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WillFate {
    /// Any end but a DISCONNECT with reason code 0x00 [MQTT-3.1.2-8].
    Keep,
    /// A DISCONNECT with reason code 0x00 [MQTT-3.1.2-10].
    Drop,
}

/// Who of a share group is on one node, as coarse as the choice of a node needs it: a connection more or less seldom changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShareMembers {
    /// 0: no member is connected; else one more than the binary logarithm of their number, rounded down.
    pub connected: u8,
    /// Whether there are members without connection.
    pub detached: bool,
}

impl ShareMembers {
    /// What stands for that many connected members.
    pub fn new(connected: u64, detached: bool) -> Self {
        Self { connected: connected.checked_ilog2().map_or(0, |log| log as u8 + 1), detached }
    }
}

/// What the control state is asked to do. The group of the leader's commands: `Register`, `ExpireNode`, `PassOn`, `Tick`, `Version`, `Forget`;
/// all others come from nodes, each for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A node starts. Its earlier incarnation ends, unless it has the same `run`: then nothing changes and the outcome is the same again.
    Register {
        node: NodeId,
        name: String,
        /// Random, drawn at each start of the process.
        run: u64,
        /// The least and the greatest version of the control state that it can apply.
        versions: (u16, u16),
        /// Whether it still has everything that it ever had on its disk. If not, its heirs inherit as if it had died, and it is nobody's heir until it is filled
        /// again; of sessions that nobody inherits it keeps what it has.
        intact: bool,
    },
    /// The node has been silent for too long and can do nothing more under that incarnation.
    ExpireNode { node: NodeId, incarnation: Incarnation },
    /// Carries out for a slice of its leases that the incarnation is over: at most [`PASS_ON_MAX`](crate::state::PASS_ON_MAX) of them. A
    /// command that names a lease does it for this one first.
    PassOn { node: NodeId, incarnation: Incarnation },
    /// A client connected, and its connection takes the lease, or claims it where the session is elsewhere.
    Acquire {
        client: ClientId,
        /// Clean Start, or Clean Session before version 5: an earlier session ends.
        clean: bool,
        /// Session Expiry Interval in seconds; 0: the session ends with its connection; [`NEVER_EXPIRES`].
        expiry_secs: u32,
        will: Option<LeaseWill>,
    },
    /// The claimant has entered these subscriptions of the session that it fetches, and holds what they bring. All but its own shards
    /// must route by them before the holder hands the session over.
    Cut { client: ClientId, epoch: SessionEpoch, filters: Vec<Arc<str>>, shares: Vec<(ShareRoute, ShareMembers)> },
    /// The claimant has all of the session, or waits for nothing of it any more: it becomes the holder.
    Settle { client: ClientId, epoch: SessionEpoch },
    /// The claimant gives up: the session stays where it is.
    Withdraw { client: ClientId, epoch: SessionEpoch },
    /// The connection that took the lease as `epoch` has ended, not by a takeover at the same node. From a holder whose
    /// connection a claim has closed it says that it is closed, and how it ended: until then nothing follows from its end.
    Detach {
        client: ClientId,
        epoch: SessionEpoch,
        will: WillFate,
        /// As in `Acquire`; a DISCONNECT may change it (section 3.14.2.2.2).
        expiry_secs: u32,
    },
    /// The Will of that connection has been published.
    WillDone { client: ClientId, epoch: SessionEpoch },
    /// The first session of the node subscribed to each of `add`, the last one left each of `remove`. Filters are without
    /// share prefix. What is in both counts as added anew.
    Routes { add: Vec<Arc<str>>, remove: Vec<Arc<str>> },
    /// Who of share groups is on the node now; the last member left each of `remove`. What is in both counts as added anew.
    ShareRoutes { set: Vec<(ShareRoute, ShareMembers)>, remove: Vec<ShareRoute> },
    /// The node has added all routes of its sessions since it registered: those of earlier incarnations that it has not added go.
    RoutesComplete,
    /// Time has passed: what is due happens, in slices of [`TICK_EVENTS_MAX`](crate::state::TICK_EVENTS_MAX).
    Tick,
    /// From now on the state may hold what version `n` brought.
    Version { n: u16 },
    /// The node will not come back: the sessions that it held are lost, and its place is free. Refused while they are on their way to its heirs.
    Forget { node: NodeId },
    /// The node begins to fill these nodes with copies of its sessions: until the fill has ended it has two sets of heirs. They must be live, and
    /// it is none of them; their order does not matter. A fill that was under way is given up.
    FillHeirs { next: Vec<NodeId> },
    /// Each session of the node has a complete copy at its pick ([`heir_of`](crate::heir_of)) among the nodes that were given at index `fill`: these
    /// are its heirs from now on, and no others.
    HeirsFilled { fill: u64 },
    /// The node has entered all sessions of that dead incarnation that have passed to it, and its routes with them.
    Inherited { node: NodeId, incarnation: Incarnation },
    /// The node has complete copies of these sessions, whose holder is dead: each passes to it of which it is the pick among the holder's heirs.
    Found { clients: Vec<ClientId> },
    /// The node holds the lease, without connection since that of `epoch`, and has nothing of the session: it goes back to
    /// the dead node from which it was inherited, or ends as if it had expired.
    Lost { client: ClientId, epoch: SessionEpoch },
    /// Nobody lets in whom the ban is about.
    Ban { ban: Ban },
    /// That ban is taken back.
    Unban { target: BanTarget },
}

/// Whom a ban is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BanTarget {
    ClientId(Arc<str>),
    UserName(Arc<str>),
    /// All addresses that begin with the first `len` bits of `prefix`, whose other bits are 0. Those of IPv4 are mapped into IPv6 (`::ffff:0:0/96`).
    Addresses {
        prefix: u128,
        len: u8,
    },
}

/// Whom no node lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    pub target: BanTarget,
    /// When it was made, in milliseconds since the Unix epoch, by the clock of the node that was asked for it.
    pub since_ms: u64,
    /// When it ends, by the clock of each node. `None`: never.
    pub until_ms: Option<u64>,
    pub reason: Arc<str>,
}

/// Who proposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Leader,
    Node {
        node: NodeId,
        incarnation: Incarnation,
        /// Counts the batches of the incarnation from 1. Only the one after the last is applied, so a batch that was sent twice
        /// counts once, and none is overtaken.
        number: u64,
    },
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Control time at which it was proposed, in milliseconds.
    pub at: u64,
    pub origin: Origin,
    pub commands: Vec<Command>,
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Registered {
        incarnation: Incarnation,
    },
    /// The connection has the lease.
    Acquired {
        epoch: SessionEpoch,
        /// Session Present of the CONNACK [MQTT-3.2.2-2], [MQTT-3.2.2-3].
        session_present: bool,
        /// The connection of the same node that this one takes over and that must be closed [MQTT-3.1.4-3].
        displaced: Option<SessionEpoch>,
    },
    /// Another node has something to do first: the connection has a claim, to be settled or withdrawn.
    Claimed {
        epoch: SessionEpoch,
        /// Whom to ask: the holder, or if it is dead the node that publishes the Will.
        holder: NodeId,
        /// Nothing has to be fetched: only the end of the connection there, and the Will, are awaited.
        clean: bool,
    },
    /// The node that has the session is gone, and perhaps comes back: CONNACK 0x88.
    Missing,
    /// A publish is routed by all that was added once it is routed by the state of `index`; 0 if nothing was.
    Routed {
        index: u64,
    },
    /// The session may be handed over once every node routes by the state of `index`.
    Cut {
        index: u64,
    },
    /// The claimant is the holder.
    Settled {
        session_present: bool,
    },
    Done,
    Refused(Refusal),
    /// The heirs are to be filled.
    FillBegun {
        /// Names the fill.
        fill: u64,
    },
}

/// Why a command did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("the incarnation is not the live one of its node")]
    NotLive,
    #[error("only the leader, or only a node, may propose this")]
    NotAllowed,
    #[error("no connection of that epoch holds the lease")]
    NotConnected,
    #[error("no claim of that epoch and node is under way")]
    NotClaimed,
    /// For an `Acquire` or a `Settle`: worth another try when [`Effect::WillForgotten`] of the client comes.
    #[error("a Will of the client is still to be published by another node")]
    WillDue,
    #[error("no Will of that epoch is due")]
    NotDue,
    #[error("the versions of the nodes do not go together")]
    Versions,
    #[error("there are as many nodes as there can be")]
    TooManyNodes,
    #[error("there is no such node")]
    UnknownNode,
    #[error("the node is live")]
    StillLive,
    /// For a `Register`, a `Forget`, and an `Acquire` of a session of which nobody knows yet whether its heir has it: worth another try when [`Effect::OrphansEnded`] of the node comes. For an `Inherited`: when
    /// [`Effect::PassedOnAll`] does.
    #[error("sessions of the node are on their way to its heirs")]
    OrphansPending,
    #[error("the node does not have that by inheritance")]
    NotHeir,
    #[error("no fill of that index is under way")]
    NoSuchFill,
    /// For a `Settle`: worth another try when [`Effect::Closed`] of the claim comes.
    #[error("the holder has not said how the connection ended that the claim closes")]
    Closing,
    #[error("there are as many bans as there can be")]
    TooManyBans,
    #[error("there is no such ban")]
    UnknownBan,
}

/// What has to happen because of a command. Every node is given all effects, and picks what concerns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// `publisher` is to publish the Will of that connection; `WillDone` says that it did. Once per client and epoch, and once more to somebody
    /// else, or to the same node's next incarnation, if the one it was given to ends before.
    WillDue {
        client: ClientId,
        epoch: SessionEpoch,
        message: Bytes,
        publisher: NodeId,
    },
    /// That Will has been published: nobody will publish it again.
    WillForgotten {
        client: ClientId,
        epoch: SessionEpoch,
    },
    /// The session is over: its subscriptions and queue go. `epoch` is that of its last connection, `holder` had it.
    SessionEnded {
        client: ClientId,
        epoch: SessionEpoch,
        holder: NodeId,
    },
    /// `by` has a claim. `holder` closes the connection that the client has there, if any, says so by a `Detach` of its epoch, and answers `by` when
    /// that is applied and the connection's publishes and its Will are out; unless `clean`, it hands the session over after the cut.
    Claimed {
        client: ClientId,
        epoch: SessionEpoch,
        holder: NodeId,
        by: NodeId,
        clean: bool,
        /// Whether the connection counts as open until [`Effect::Closed`].
        closing: bool,
    },
    /// `holder` has said how the connection ended that claim `epoch` closes, and what is due with that is given out, behind which this comes.
    Closed {
        client: ClientId,
        epoch: SessionEpoch,
        holder: NodeId,
    },
    /// The claim `epoch` of `by` does not count any more: a later connection of the client has the lease or a claim.
    ClaimLost {
        client: ClientId,
        epoch: SessionEpoch,
        by: NodeId,
    },
    /// `holder` hands the session over when every node routes by the state of `index`.
    CutMade {
        client: ClientId,
        epoch: SessionEpoch,
        holder: NodeId,
        by: NodeId,
        index: u64,
    },
    /// Claim `epoch` is settled: `to` holds the lease, and `from` forgets what it had.
    Moved {
        client: ClientId,
        epoch: SessionEpoch,
        from: NodeId,
        to: NodeId,
    },
    /// The claim is gone: `by` gave it up or is dead, or the session was lost with its holder. Else it stays where it was, without connection.
    Withdrawn {
        client: ClientId,
        epoch: SessionEpoch,
        holder: NodeId,
        by: NodeId,
    },
    /// From now on, or in another form.
    Banned {
        ban: Ban,
    },
    Unbanned {
        target: BanTarget,
    },
    RouteAdded {
        filter: Arc<str>,
        node: NodeId,
    },
    RouteRemoved {
        filter: Arc<str>,
        node: NodeId,
    },
    ShareRouteSet {
        share: ShareRoute,
        node: NodeId,
        members: ShareMembers,
    },
    ShareRouteRemoved {
        share: ShareRoute,
        node: NodeId,
    },
    /// The node lives under that incarnation, and under no other any more.
    NodeUp {
        node: NodeId,
        incarnation: Incarnation,
        name: Arc<str>,
    },
    /// The incarnation is over, and from now on none of the node's share routes counts. Without `heirs`, neither does any of its routes; else
    /// these are *orphans*, which count until [`Effect::OrphansEnded`]. What does not count any more is removed in slices. After a jump it may be of an
    /// incarnation, or of a node, that was never seen live.
    NodeDown {
        node: NodeId,
        incarnation: Incarnation,
        /// Who inherits its sessions, in the order of ids.
        heirs: Vec<NodeId>,
    },
    NodeForgotten {
        node: NodeId,
    },
    /// Nobody inherits any more from that dead incarnation: none of the node's routes counts from now on.
    OrphansEnded {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// The holder of a session is dead, and `to` is it from now on: it has a copy, or says [`Command::Lost`].
    PassedOn {
        client: ClientId,
        /// Epoch of the last connection.
        epoch: SessionEpoch,
        /// Epoch of the connection that began the session.
        began: SessionEpoch,
        expiry_secs: u32,
        from: NodeId,
        to: NodeId,
        /// All sessions of `from` had complete copies, so that without one the session is empty.
        sure: bool,
    },
    /// No session of that dead incarnation, from which somebody inherits, is still to be passed on.
    PassedOnAll {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// The heirs of `home` are not as they were: see [`ControlState::heirs`](crate::ControlState::heirs).
    HeirsChanged {
        home: NodeId,
    },
}

/// Outcome and effects of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub outcome: Outcome,
    /// In the order in which they must happen, all before the outcome is acted upon.
    pub effects: Vec<Effect>,
    /// What who keeps leases at rest has to write, in this order. Empty unless it was asked for
    /// ([`ControlState::keep_changes`](crate::state::ControlState::keep_changes)).
    pub changes: Vec<LeaseChange>,
}

/// Outcomes and effects of one entry of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedProposal {
    /// The batch was not the next one of a live incarnation: nothing happened.
    pub ignored: bool,
    /// One per command; none if it was ignored.
    pub outcomes: Vec<Outcome>,
    /// As in [`Applied`].
    pub effects: Vec<Effect>,
    /// As in [`Applied`].
    pub changes: Vec<LeaseChange>,
}

/// A lease as it is kept at rest: all of it but its holder, who is the node that keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseImage {
    /// Tells this image from all others that the node ever made, of any client; of two images of one client the greater is the newer.
    pub item: u64,
    pub client: ClientId,
    /// Epoch of the last connection.
    pub epoch: SessionEpoch,
    /// Epoch of the connection that began the session.
    pub began: SessionEpoch,
    /// As in [`Command::Acquire`].
    pub expiry_secs: u32,
    /// Whether the last connection still was.
    pub connected: bool,
    /// Control time of the end of the last connection, in milliseconds; 0 while there is one.
    pub detached_since: u64,
    /// Whether the session is over, and only Wills that are due are left of it.
    pub ended: bool,
    /// The Will of the last connection, unless it was dropped, cancelled or became due.
    pub will: Option<LeaseWill>,
    /// Wills of any connection of the client that are due and not yet done.
    pub wills_due: Vec<(SessionEpoch, Bytes)>,
}

/// One change of what is kept of leases at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseChange {
    /// The item of the image that is void from now on.
    pub gone: Option<u64>,
    /// The image that is in its place, if the lease is still worth keeping.
    pub image: Option<LeaseImage>,
}
