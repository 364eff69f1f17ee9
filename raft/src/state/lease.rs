//! One lease as it is kept. What happens to it is in [`leases`](super::leases) and its neighbours.

use super::heirs::Heirs;
use super::nodes::{NodeSlot, Nodes};
use super::orphans::Orphans;
use super::table::Links;
use super::wills::{DueWills, session_end, will_due};
use crate::command::{Effect, LeaseWill, NodeId, SessionEpoch, WillFate};

/// What one application of a command reads and fills.
pub(super) struct Turn<'a> {
    pub(super) now: u64,
    pub(super) index: u64,
    pub(super) nodes: &'a Nodes,
    pub(super) wills: &'a mut DueWills,
    pub(super) heirs: &'a mut Heirs,
    pub(super) orphans: &'a mut Orphans,
    pub(super) effects: &'a mut Vec<Effect>,
}

/// How a connection takes a lease.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) by: NodeSlot,
    pub(super) clean: bool,
    pub(super) expiry_secs: u32,
    pub(super) will: Option<LeaseWill>,
}

/// How a connection leaves one.
pub(super) struct Departure {
    pub(super) by: NodeSlot,
    pub(super) will: WillFate,
    pub(super) expiry_secs: u32,
}

/// The session of a client id: see [`ControlState::session`](super::ControlState::session).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Epoch of the connection that began it.
    pub began: SessionEpoch,
    /// Epoch of its last connection.
    pub epoch: SessionEpoch,
    /// Whether that connection still is.
    pub connected: bool,
    /// The node that has it.
    pub holder: NodeId,
    /// The connection elsewhere that waits for it.
    pub claim: Option<Claim>,
    /// Whether the holder is dead.
    pub missing: bool,
}

/// A connection that does not have the lease yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub by: NodeId,
    pub epoch: SessionEpoch,
    /// Whether it does without what the session has.
    pub clean: bool,
    /// Index of its cut.
    pub cut: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Lease {
    /// Of the connection that has, or had, the lease.
    pub(super) epoch: SessionEpoch,
    /// The connection that began the session: what a resumed session keeps and a new one does not.
    pub(super) began: SessionEpoch,
    phase: PackedPhase,
    /// The image of the lease at rest; 0: there is none. See [`images`](super::images).
    pub(super) item: u64,
    /// The Will of connection `epoch`, while it is connected or its delay runs. Most clients have none.
    pub(super) will: Option<Box<LeaseWill>>,
    pub(super) expiry_secs: u32,
    /// Epochs that claims have taken since `epoch`.
    ahead: u32,
    /// When it was last in order that its holder has it: see [`tenures`](super::tenures).
    pub(super) era: u32,
    pub(super) links: Links,
    pub(super) holder: NodeSlot,
    /// The dead node that the holder has the session from, if it has inherited it and the session goes on.
    pub(super) inherited_from: Option<NodeSlot>,
    flags: u8,
}

/// There are millions of them: 64 bytes, and the client id, a pointer of 16, beside them in the table.
const _: () = assert!(size_of::<Lease>() <= 64);

/// What a lease may be marked with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Flag {
    /// There is a claim on it.
    Claimed = 1,
    /// A claim has ended the connection, and the holder, which may be slow to learn it, has not said that it is closed, and how it ended.
    Closing = 2,
    /// A Will of the client is due, of this connection or an earlier one.
    WillDue = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connected,
    /// Without connection since that control time.
    Detached {
        since: u64,
    },
    /// The session is over; the lease stays for what is still to come of it: a Will, a claim, the end of the connection.
    Ended,
}

/// The end of control time, in milliseconds: what is later counts as this.
pub(super) const TIME_MAX: u64 = u64::MAX - 2;

/// A [`Phase`] in half its size: the time since when a lease is detached, or one of the two numbers that are no time.
#[derive(Debug, Clone, Copy)]
struct PackedPhase(u64);

impl PackedPhase {
    const CONNECTED: u64 = u64::MAX;
    const ENDED: u64 = u64::MAX - 1;
}

impl From<Phase> for PackedPhase {
    fn from(phase: Phase) -> Self {
        Self(match phase {
            Phase::Connected => Self::CONNECTED,
            Phase::Ended => Self::ENDED,
            Phase::Detached { since } => since.min(TIME_MAX),
        })
    }
}

impl Phase {
    /// As one number, and back.
    pub(super) fn number(self) -> u64 {
        PackedPhase::from(self).0
    }

    pub(super) fn of_number(number: u64) -> Self {
        match number {
            PackedPhase::CONNECTED => Phase::Connected,
            PackedPhase::ENDED => Phase::Ended,
            since => Phase::Detached { since },
        }
    }
}

impl Lease {
    /// The lease of a connection that is the first of a session.
    pub(super) fn begin(epoch: SessionEpoch, era: u32, taken: Acquisition) -> Self {
        let Acquisition { by: holder, expiry_secs, will, .. } = taken;
        let mut lease = Self::new(epoch, holder, era, Phase::Connected);
        (lease.expiry_secs, lease.will) = (expiry_secs, will.map(Box::new));
        lease
    }

    pub(super) fn new(epoch: SessionEpoch, holder: NodeSlot, era: u32, phase: Phase) -> Self {
        Self {
            epoch,
            began: epoch,
            phase: phase.into(),
            item: 0,
            will: None,
            expiry_secs: 0,
            ahead: 0,
            era,
            links: Links::default(),
            holder,
            inherited_from: None,
            flags: 0,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::of_number(self.phase.0)
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase.into();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.phase() == Phase::Ended
    }

    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }

    pub(super) fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.flags |= flag as u8;
        } else {
            self.flags &= !(flag as u8);
        }
    }

    /// The greatest epoch that any connection of the client has had.
    pub(super) fn last_epoch(&self) -> SessionEpoch {
        self.epoch + u64::from(self.ahead)
    }

    /// `None` once there have been four billion claims on one connection.
    #[must_use]
    pub(super) fn count_claim(&mut self) -> Option<SessionEpoch> {
        self.ahead = self.ahead.checked_add(1)?;
        Some(self.last_epoch())
    }

    /// The lease is that of connection `epoch` now. What the caller does not change of it stays.
    pub(super) fn count_connection(&mut self, epoch: SessionEpoch) {
        (self.epoch, self.ahead) = (epoch, 0);
    }

    /// For who restores a lease.
    pub(super) fn set_ahead(&mut self, ahead: u32) {
        self.ahead = ahead;
    }

    pub(super) fn ahead(&self) -> u32 {
        self.ahead
    }

    /// Control time of the next thing that happens by itself. While a claim is under way the session does not end, and so its Will
    /// waits for its whole delay. While nobody knows how the connection ended, nothing follows from that.
    pub(super) fn next_event(&self) -> Option<u64> {
        let Phase::Detached { since } = self.phase() else {
            return None;
        };
        if self.has(Flag::Closing) {
            return None;
        }
        let expiry_secs = if self.has(Flag::Claimed) { u32::MAX } else { self.expiry_secs };
        match &self.will {
            Some(will) => Some(will_due(since, will, expiry_secs)),
            None => session_end(since, expiry_secs),
        }
    }

    /// Whether a detached session has expired at `time`.
    pub(super) fn ends_by(&self, time: u64) -> bool {
        let Phase::Detached { since } = self.phase() else {
            return false;
        };
        !self.has(Flag::Claimed) && session_end(since, self.expiry_secs).is_some_and(|end| end <= time)
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.is_ended() && self.flags == 0
    }
}
