//! What the control state is asked, what it answers, and what follows.
//!
//! Plain data without behaviour. Applying a command cannot fail: one whose precondition does not hold changes nothing
//! and says why, in [`Outcome::Refused`].

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// The client identifier of MQTT.
pub type ClientId = Arc<str>;

/// Counts the connections that took a client id's lease. No two connections of one client id ever have the same.
pub type SessionEpoch = u64;

/// Counts the starts of one node, from 1.
pub type Incarnation = u64;

/// A share name and the topic filter that the group of that name subscribes to.
pub type ShareRoute = (Arc<str>, Arc<str>);

/// Session Expiry Interval of a session that does not expire (section 3.1.2.11.2).
pub const NEVER_EXPIRES: u32 = u32::MAX;

/// A node's identity: random, made with its data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// A Will as the lease carries it, because somebody must have it when the node of its client is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseWill {
    /// Will Delay Interval in seconds (section 3.1.3.2.2).
    pub delay_secs: u32,
    /// The Will itself. Only who publishes it looks inside.
    pub message: Bytes,
}

/// Whether a connection that ended leaves its Will to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WillFate {
    /// Any end but a DISCONNECT with reason code 0x00 [MQTT-3.1.2-8].
    Keep,
    /// A DISCONNECT with reason code 0x00 [MQTT-3.1.2-10].
    Drop,
}

/// What a node asks of the control state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A node starts. Its earlier incarnation ends, and with it, at the next tick, the sessions that it held.
    Register { node: NodeId, name: String },
    /// A client connected, and its connection takes the lease.
    Acquire {
        client: ClientId,
        /// Clean Start, or Clean Session before version 5: an earlier session ends.
        clean: bool,
        /// Session Expiry Interval in seconds; 0: the session ends with its connection; [`NEVER_EXPIRES`].
        expiry_secs: u32,
        will: Option<LeaseWill>,
    },
    /// The connection that took the lease as `epoch` has ended, not by a takeover.
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
    /// The same for shared subscriptions.
    ShareRoutes { add: Vec<ShareRoute>, remove: Vec<ShareRoute> },
    /// Time has passed: what is due happens, in slices of [`TICK_EVENTS_MAX`](crate::state::TICK_EVENTS_MAX).
    Tick,
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Registered {
        incarnation: Incarnation,
    },
    Acquired {
        epoch: SessionEpoch,
        /// Session Present of the CONNACK [MQTT-3.2.2-2], [MQTT-3.2.2-3].
        session_present: bool,
        /// The connection that this one takes over and that must be closed [MQTT-3.1.4-3].
        displaced: Option<SessionEpoch>,
    },
    /// A publish is routed by all that was added once it is routed by the state of `index`.
    Routed {
        index: u64,
    },
    Done,
    Refused(Refusal),
}

/// Why a command did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("the incarnation that asked is not the live one of its node")]
    NotLive,
    #[error("the session is held by another node")]
    HeldElsewhere,
    #[error("no connection of that epoch holds the lease")]
    NotConnected,
    #[error("no Will of that epoch is due")]
    NotDue,
}

/// What has to happen because of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The Will of that connection is to be published; `WillDone` says that it was. Once per client and epoch.
    WillDue { client: ClientId, epoch: SessionEpoch, message: Bytes },
    /// The session is over: its subscriptions and queue go. `epoch` is that of its last connection.
    SessionEnded { client: ClientId, epoch: SessionEpoch },
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
