//! The holder's side: from the claim until it is settled, withdrawn or lost.
//!
//! It keeps no time: whoever waits for it asks again, and gives up by himself.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::NodeId;
use smallvec::{SmallVec, smallvec};

use super::frame::SessionFrame;

/// Another node's wish for a session of this one, as the control state has applied it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub client: Arc<str>,
    pub epoch: u64,
    /// The claimant.
    pub by: NodeId,
    /// Clean Start: only the end of the old connection is awaited.
    pub clean: bool,
    /// The control state does not know yet how the old connection ended.
    pub closing: bool,
}

/// One shard of one node, this one included: what routes, and says so by marks.
pub type Source = (NodeId, u16);

/// What the holder's machine is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivingEvent {
    /// A newer claim took the place of this one.
    Claimed(Claim),
    /// The old connection is closed, or there was none.
    Closed,
    /// The links, and the shards of this node, have acknowledged everything that the old connection published, QoS 0 too.
    PublishedSettled,
    /// For the claim of `epoch` the control state knows how the old connection ended. What Wills are due with that has been heard.
    EndKnown {
        epoch: u64,
    },
    /// No Will of this client is due.
    WillsDone,
    /// What [`GivingAction::MakeYield`] or [`GivingAction::MakeState`] asked for.
    Made {
        last: bool,
        bytes: Bytes,
    },
    /// The same, but there is no such session here.
    Absent,
    /// The claimant's cut is applied. Each source that has to mark it, and the greatest index that it has marked until now (0: none).
    CutMade {
        index: u64,
        sources: Vec<(Source, u64)>,
    },
    /// Everything that the source routed by a state before `index` has come in.
    Mark {
        from: Source,
        index: u64,
    },
    /// The node is dead, or a new incarnation of it is live, which routes by a later state: its marks are not waited for.
    NodeGone(NodeId),
    Frame(SessionFrame),
    /// The claim is settled: the session is the claimant's.
    Moved,
    /// The claim is gone and the session stays: withdrawn, or its client has connected here.
    Withdrawn,
}

/// What the shard of the holder has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivingAction {
    /// Close the connection, with 0x8E, if there is one, and say to the control state how it ended. To be answered with `Closed`, `PublishedSettled`,
    /// `WillsDone`, in any order.
    Close,
    /// Make the next part of the subscriptions, `first`: from the beginning. To be answered with `Made` or `Absent`.
    MakeYield { first: bool },
    /// Make the next part of the state, `first`: from the beginning. To be answered with `Made`, when bodies have been read back.
    MakeState { first: bool },
    /// To the claimant.
    Send(SessionFrame),
    /// Forget the session: another node has it.
    Forget,
    /// The session stays, detached; what was made for the claimant is of no use any more.
    Keep,
}

pub type GivingActions = SmallVec<[GivingAction; 2]>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Until the old connection has left no trace on its way.
    Quieting,
    Yielding,
    /// Everything is yielded.
    AwaitingCut,
    AwaitingMarks {
        index: u64,
        missing: Vec<Source>,
    },
    Sending,
    /// Everything is sent, and the state is asked for again at the most.
    Sent,
    Done,
}

/// The machine of the holder.
#[derive(Debug)]
pub struct Giving {
    claim: Claim,
    closed: bool,
    settled: bool,
    /// Until then nobody knows whether there is a Will, or a session, and what is said of Wills is said too early.
    end_known: bool,
    wills_done: bool,
    phase: Phase,
    /// The number of the part that is made next.
    next: u32,
    /// A part is being made.
    making: bool,
    /// The last part that was sent, which may have been lost.
    latest: Option<SessionFrame>,
}

impl Giving {
    /// The claim is applied here.
    pub fn new(claim: Claim) -> (Giving, GivingActions) {
        let giving = Giving {
            closed: false,
            settled: false,
            end_known: !claim.closing,
            claim,
            wills_done: false,
            phase: Phase::Quieting,
            next: 0,
            making: false,
            latest: None,
        };
        (giving, smallvec![GivingAction::Close])
    }

    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Whether the state is on its way or has gone: what comes into the session now goes to nobody when the claim is settled. A message that no other node gets
    /// too, such as one of a share group, must not be given to it any more.
    pub fn has_begun_state(&self) -> bool {
        matches!(self.phase, Phase::Sending | Phase::Sent)
    }

    /// Whether nothing is to come any more, and the machine can be dropped.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    pub fn handle(&mut self, event: GivingEvent) -> GivingActions {
        if self.is_done() {
            return GivingActions::new();
        }
        match event {
            GivingEvent::Claimed(claim) => return self.claimed(claim),
            GivingEvent::Closed => self.closed = true,
            GivingEvent::PublishedSettled => self.settled = true,
            GivingEvent::EndKnown { epoch } => self.end_known |= epoch == self.claim.epoch,
            GivingEvent::WillsDone => self.wills_done = self.end_known,
            GivingEvent::Made { last, bytes } => return self.made(last, bytes),
            GivingEvent::Absent => return self.absent(),
            GivingEvent::CutMade { index, sources } => return self.cut_made(index, &sources),
            GivingEvent::Mark { from, index } => {
                return self.no_longer_missing(|source, cut| *source == from && index >= cut);
            }
            GivingEvent::NodeGone(node) => return self.no_longer_missing(|source, _| source.0 == node),
            GivingEvent::Frame(frame) => return self.asked(&frame),
            GivingEvent::Moved => return self.end(GivingAction::Forget),
            GivingEvent::Withdrawn => return self.end(GivingAction::Keep),
        }
        self.look_whether_quiet()
    }

    fn end(&mut self, action: GivingAction) -> GivingActions {
        self.phase = Phase::Done;
        self.latest = None;
        smallvec![action]
    }

    /// The new claimant gets everything from the beginning. The connection that was there is closed for the first one already; its Will may
    /// be due for the new one.
    fn claimed(&mut self, claim: Claim) -> GivingActions {
        if claim.epoch <= self.claim.epoch {
            return GivingActions::new();
        }
        (self.end_known, self.wills_done) = (!claim.closing, false);
        self.claim = claim;
        self.phase = Phase::Quieting;
        self.next = 0;
        self.making = false;
        self.latest = None;
        self.look_whether_quiet()
    }

    fn look_whether_quiet(&mut self) -> GivingActions {
        if self.phase != Phase::Quieting || !(self.closed && self.settled && self.end_known && self.wills_done) {
            return GivingActions::new();
        }
        self.phase = Phase::Yielding;
        if self.claim.clean {
            return self.absent();
        }
        self.making = true;
        smallvec![GivingAction::MakeYield { first: true }]
    }

    /// There is nothing to give but the word that the old connection is closed.
    fn absent(&mut self) -> GivingActions {
        if self.phase != Phase::Yielding {
            return GivingActions::new();
        }
        self.making = false;
        self.phase = Phase::Sent;
        let Claim { client, epoch, .. } = self.claim.clone();
        let number = self.next;
        self.send(SessionFrame::Yield { client, epoch, number, last: true, nothing: true, bytes: Bytes::new() })
    }

    fn made(&mut self, last: bool, bytes: Bytes) -> GivingActions {
        if !std::mem::take(&mut self.making) {
            return GivingActions::new();
        }
        let Claim { client, epoch, .. } = self.claim.clone();
        let number = self.next;
        if self.phase == Phase::Yielding {
            if last {
                self.phase = Phase::AwaitingCut;
            }
            self.send(SessionFrame::Yield { client, epoch, number, last, nothing: false, bytes })
        } else {
            if last {
                self.phase = Phase::Sent;
            }
            self.send(SessionFrame::State { client, epoch, number, last, bytes })
        }
    }

    fn send(&mut self, frame: SessionFrame) -> GivingActions {
        self.next += 1;
        self.latest = Some(frame.clone());
        smallvec![GivingAction::Send(frame)]
    }

    fn cut_made(&mut self, index: u64, sources: &[(Source, u64)]) -> GivingActions {
        if self.phase != Phase::AwaitingCut {
            return GivingActions::new();
        }
        let missing = sources.iter().filter(|(_, marked)| *marked < index).map(|(source, _)| *source).collect();
        self.phase = Phase::AwaitingMarks { index, missing };
        self.no_longer_missing(|_, _| false)
    }

    fn no_longer_missing(&mut self, marked: impl Fn(&Source, u64) -> bool) -> GivingActions {
        let Phase::AwaitingMarks { index, missing } = &mut self.phase else {
            return GivingActions::new();
        };
        missing.retain(|source| !marked(source, *index));
        if !missing.is_empty() {
            return GivingActions::new();
        }
        self.phase = Phase::Sending;
        self.making = true;
        smallvec![GivingAction::MakeState { first: true }]
    }

    /// The claimant has all parts before a number. It says so once for each part, and again whenever it has waited for a while.
    fn asked(&mut self, frame: &SessionFrame) -> GivingActions {
        let SessionFrame::Ask { client, epoch, number } = frame else {
            return GivingActions::new();
        };
        if *client != self.claim.client || *epoch != self.claim.epoch {
            return GivingActions::new();
        }
        if number.checked_add(1) == Some(self.next) {
            return self.latest.clone().map(GivingAction::Send).into_iter().collect();
        }
        if *number != self.next || self.making {
            return GivingActions::new();
        }
        let action = match self.phase {
            Phase::Yielding => GivingAction::MakeYield { first: false },
            Phase::Sending => GivingAction::MakeState { first: false },
            _ => return GivingActions::new(),
        };
        self.making = true;
        smallvec![action]
    }
}
