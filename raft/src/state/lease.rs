//! One lease, and what ends a connection or a session does to it. The table of [`leases`](super::leases) has the rules.

use std::sync::Arc;

use super::nodes::{NodeSlot, Nodes};
use super::wills::{DueWills, session_end, will_due};
use crate::command::{ClientId, Effect, LeaseImage, LeaseWill, SessionEpoch, WillFate};

/// What one application of a command reads and fills.
pub(super) struct Turn<'a> {
    pub(super) now: u64,
    pub(super) nodes: &'a Nodes,
    pub(super) wills: &'a mut DueWills,
    pub(super) effects: &'a mut Vec<Effect>,
}

/// How a connection takes a lease.
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
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) epoch: SessionEpoch,
    /// The connection that began the session: what a resumed session keeps and a new one does not.
    pub(super) began: SessionEpoch,
    /// The node whose live incarnation has the session: when a node starts anew, what it held before expires.
    pub(super) holder: NodeSlot,
    pub(super) expiry_secs: u32,
    phase: PackedPhase,
    /// The image of the lease at rest; 0: there is none. See [`images`](super::images).
    pub(super) item: u64,
    /// The Will of connection `epoch`, while it is connected or its delay runs. Most clients have none.
    pub(super) will: Option<Box<LeaseWill>>,
}

/// There are millions of them: 48 bytes, and the client id, a pointer of 16, beside them in the table.
const _: () = assert!(size_of::<Lease>() <= 48);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connected,
    /// Without connection since that control time.
    Detached {
        since: u64,
    },
    /// The session is over; the lease stays until its last due Will is done.
    Ended,
}

/// The end of control time, in milliseconds: what is later counts as this.
pub(super) const TIME_MAX: u64 = u64::MAX - 2;

/// A [`Phase`] in half its size: the time since when a lease is detached, or one of the two numbers that are no time.
#[derive(Debug)]
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

impl Lease {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.0 {
            PackedPhase::CONNECTED => Phase::Connected,
            PackedPhase::ENDED => Phase::Ended,
            since => Phase::Detached { since },
        }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase.into();
    }

    /// Control time of the next thing that happens by itself.
    pub(super) fn next_event(&self) -> Option<u64> {
        let Phase::Detached { since } = self.phase() else {
            return None;
        };
        match &self.will {
            Some(will) => Some(will_due(since, will, self.expiry_secs)),
            None => session_end(since, self.expiry_secs),
        }
    }

    /// Whether a detached session has expired at `time`.
    pub(super) fn ends_by(&self, time: u64) -> bool {
        let Phase::Detached { since } = self.phase() else {
            return false;
        };
        session_end(since, self.expiry_secs).is_some_and(|end| end <= time)
    }

    /// The first lease of a client id, or the first since the last one is gone.
    pub(super) fn begin(epoch: SessionEpoch, taken: Acquisition) -> Self {
        let Acquisition { by: holder, expiry_secs, will, .. } = taken;
        let phase = Phase::Connected.into();
        Self { epoch, began: epoch, holder, expiry_secs, phase, item: 0, will: will.map(Box::new) }
    }

    /// The lease that `image` is of, in the hands of `holder`.
    pub(super) fn restored(image: LeaseImage, holder: NodeSlot, phase: Phase) -> Self {
        let LeaseImage { item, epoch, began, expiry_secs, will, .. } = image;
        Self { epoch, began, holder, expiry_secs, phase: phase.into(), item, will: will.map(Box::new) }
    }

    /// Ends a connection by a takeover, or the time without one, and says whether the next one resumes the session. If
    /// so, only a Will without delay is still owed, and a waiting one is cancelled [MQTT-3.1.3-9].
    pub(super) fn pass_to_next_connection(
        &mut self,
        client: &ClientId,
        taken: Acquisition,
        turn: &mut Turn<'_>,
    ) -> bool {
        let resumes = !taken.clean && self.expiry_secs != 0 && self.phase() != Phase::Ended;
        let at_once = self.will.as_ref().is_some_and(|will| will.delay_secs == 0);
        match self.phase() {
            Phase::Ended => {}
            _ if !resumes => self.end(client, turn),
            Phase::Connected if at_once => self.release_will(client, turn),
            _ => {}
        }
        let began = self.began;
        *self = Self::begin(self.epoch + 1, taken);
        if resumes {
            self.began = began;
        }
        resumes
    }

    /// Ends a connection that nobody takes over. What is due with it is the next event.
    pub(super) fn detach(&mut self, left: Departure, now: u64) {
        if left.will == WillFate::Drop {
            self.will = None;
        }
        self.expiry_secs = left.expiry_secs;
        self.enter(Phase::Detached { since: now });
    }

    /// The waiting Will, or that of the connection, becomes due.
    pub(super) fn release_will(&mut self, client: &ClientId, turn: &mut Turn<'_>) {
        let Some(will) = self.will.take() else {
            return;
        };
        let publisher = turn.nodes.id(self.holder);
        turn.wills.insert(Arc::clone(client), self.epoch, will.message.clone(), self.holder);
        turn.effects.push(Effect::WillDue {
            client: Arc::clone(client),
            epoch: self.epoch,
            message: will.message,
            publisher,
        });
    }

    /// The session is over, and with it the wait of its Will.
    pub(super) fn end(&mut self, client: &ClientId, turn: &mut Turn<'_>) {
        self.release_will(client, turn);
        self.enter(Phase::Ended);
        let holder = turn.nodes.id(self.holder);
        turn.effects.push(Effect::SessionEnded { client: Arc::clone(client), epoch: self.epoch, holder });
    }
}
