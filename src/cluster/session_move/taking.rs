//! The claimant's side: from the claim until its client is answered.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::frame::SessionFrame;

/// For how long a claimant waits. In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// After so long without an answer the holder is asked again.
    pub ask_every_ms: u64,
    /// After so long without any progress the claim is withdrawn: the lease of a node and two seconds.
    pub give_up_ms: u64,
    /// A settling that is refused because a Will is due is proposed again after so long.
    pub settle_again_ms: u64,
}

/// How a CONNECT is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 0x88: the session is there, and cannot be had now.
    Unavailable,
    /// 0x89: another connection of the client came later.
    ClaimLost,
}

/// What the claimant's machine is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakingEvent {
    /// What [`Taking::due`] said is due.
    Time,
    Frame(SessionFrame),
    /// The cut is applied here, and every shard of this node routes by it.
    CutMade,
    /// What [`TakingAction::Adopt`] asked for is kept.
    Kept,
    Settled {
        session_present: bool,
    },
    /// `again`: because a Will of the client is still to be published, or nobody knows whether one is.
    SettleRefused {
        again: bool,
    },
    /// Something cannot be done here: the parts are no session, it is too large, the disk fails, the cut was refused.
    Failed,
    /// Another claim, perhaps by this node, or a connection at the holder took the place of this one.
    ClaimLost,
    /// The holder is dead, or lives anew and begins from the start.
    HolderGone,
    /// This node has been given up by the others, and knows nothing of what was applied last.
    Expelled,
}

/// What the shard of the claimant has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakingAction {
    /// To the holder.
    Send(SessionFrame),
    /// The next part of the subscriptions. They are entered at `last`, and what they bring is held from then on.
    Enter {
        bytes: Bytes,
        last: bool,
    },
    /// Behind the last `Enter`.
    ProposeCut,
    /// The next part of the state: to be written down as it comes.
    Take {
        bytes: Bytes,
    },
    /// The state is complete: append what was held and the state does not have. Answer `Kept` when all of it is.
    Adopt,
    ProposeSettle,
    ProposeWithdraw,
    /// The session is this node's: let the client in, then send what is under way and what waits.
    Connack {
        session_present: bool,
    },
    Refuse(Refusal),
    /// Forget what was taken: subscriptions, what was held, what was written down.
    Drop,
    /// All of the session is here, and perhaps it is this node's by now: the control state says so when the node has registered anew.
    Keep,
    /// The session is this node's and its client is not there any more, or was refused: it is detached. Its Will is dropped, as its connection was never accepted.
    Leave,
}

pub type TakingActions = SmallVec<[TakingAction; 2]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Yielding,
    Cutting,
    Taking,
    Adopting,
    Settling,
    /// The settling was refused for a Will; it is proposed again at this time.
    SettlingAgain(u64),
    Done,
}

/// The machine of the claimant.
#[derive(Debug)]
pub struct Taking {
    client: Arc<str>,
    epoch: u64,
    patience: Patience,
    phase: Phase,
    /// Parts that are here.
    number: u32,
    /// The holder has said that there is no session to come.
    nothing: bool,
    /// Nobody waits for the CONNACK any more.
    abandoned: bool,
    holder_gone: bool,
    ask_at: u64,
    give_up_at: u64,
}

impl Taking {
    /// The claim of `epoch` is applied here. Times are in milliseconds of one clock.
    pub fn new(client: Arc<str>, epoch: u64, patience: Patience, now: u64) -> (Taking, TakingActions) {
        let mut taking = Taking {
            client,
            epoch,
            patience,
            phase: Phase::Yielding,
            number: 0,
            nothing: false,
            abandoned: false,
            holder_gone: false,
            ask_at: 0,
            give_up_at: now + patience.give_up_ms,
        };
        let ask = taking.ask(now);
        (taking, smallvec![ask])
    }

    pub fn client(&self) -> &Arc<str> {
        &self.client
    }

    /// Of the claim.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether nothing is to come any more, and the machine can be dropped.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// When to call [`Taking::handle`] with [`TakingEvent::Time`], if nothing else happens before.
    pub fn due(&self) -> Option<u64> {
        match self.phase {
            Phase::Done => None,
            Phase::Settling if self.abandoned => None,
            Phase::Yielding | Phase::Taking => Some(self.ask_at.min(self.give_up_at)),
            Phase::SettlingAgain(at) => Some(at.min(self.give_up_at)),
            Phase::Cutting | Phase::Adopting | Phase::Settling => Some(self.give_up_at),
        }
    }

    pub fn handle(&mut self, now: u64, event: TakingEvent) -> TakingActions {
        match (event, self.phase) {
            (_, Phase::Done) => TakingActions::new(),
            (TakingEvent::Time, _) => self.time(now),
            (TakingEvent::Frame(frame), _) => self.frame(now, frame),
            (TakingEvent::CutMade, Phase::Cutting) => {
                self.enter(Phase::Taking, now);
                smallvec![self.ask(now)]
            }
            (TakingEvent::Kept, Phase::Adopting) => {
                self.enter(Phase::Settling, now);
                smallvec![TakingAction::ProposeSettle]
            }
            (TakingEvent::CutMade | TakingEvent::Kept, _) => TakingActions::new(),
            (TakingEvent::Settled { session_present }, Phase::Settling) => self.settled(session_present),
            (TakingEvent::SettleRefused { again }, Phase::Settling) => self.settle_refused(now, again),
            (TakingEvent::Settled { .. } | TakingEvent::SettleRefused { .. }, _) => TakingActions::new(),
            (TakingEvent::Failed, _) => self.give_up(),
            (TakingEvent::ClaimLost, _) => self.claim_lost(),
            (TakingEvent::Expelled, phase) => self.expelled(phase),
            (TakingEvent::HolderGone, Phase::Settling) => {
                self.holder_gone = true;
                TakingActions::new()
            }
            (TakingEvent::HolderGone, _) => self.give_up(),
        }
    }

    fn time(&mut self, now: u64) -> TakingActions {
        if now >= self.give_up_at {
            return self.give_up();
        }
        match self.phase {
            Phase::Yielding | Phase::Taking if now >= self.ask_at => smallvec![self.ask(now)],
            Phase::SettlingAgain(at) if now >= at => {
                self.phase = Phase::Settling;
                smallvec![TakingAction::ProposeSettle]
            }
            _ => TakingActions::new(),
        }
    }

    /// Every step forward gives the holder its full time again.
    fn enter(&mut self, phase: Phase, now: u64) {
        self.phase = phase;
        self.give_up_at = now + self.patience.give_up_ms;
    }

    fn ask(&mut self, now: u64) -> TakingAction {
        self.ask_at = now + self.patience.ask_every_ms;
        TakingAction::Send(SessionFrame::Ask { client: self.client.clone(), epoch: self.epoch, number: self.number })
    }

    /// Parts count in their order only; what came before, or belongs to the other phase, was lost on its way or comes again.
    fn frame(&mut self, now: u64, frame: SessionFrame) -> TakingActions {
        if *frame.client() != self.client || frame.epoch() != self.epoch {
            return TakingActions::new();
        }
        match (frame, self.phase) {
            (SessionFrame::NotHolder { .. }, Phase::Yielding | Phase::Taking) => self.give_up(),
            (SessionFrame::Yield { number, last, nothing, bytes, .. }, Phase::Yielding) if number == self.number => {
                self.number += 1;
                self.yielded(now, last, nothing, bytes)
            }
            (SessionFrame::State { number, last, bytes, .. }, Phase::Taking) if number == self.number => {
                self.number += 1;
                self.took(now, last, bytes)
            }
            _ => TakingActions::new(),
        }
    }

    fn yielded(&mut self, now: u64, last: bool, nothing: bool, bytes: Bytes) -> TakingActions {
        if nothing {
            self.nothing = true;
            self.enter(Phase::Settling, now);
            return smallvec![TakingAction::Drop, TakingAction::ProposeSettle];
        }
        let enter = TakingAction::Enter { bytes, last };
        if last {
            self.enter(Phase::Cutting, now);
            return smallvec![enter, TakingAction::ProposeCut];
        }
        self.enter(Phase::Yielding, now);
        smallvec![enter, self.ask(now)]
    }

    fn took(&mut self, now: u64, last: bool, bytes: Bytes) -> TakingActions {
        let take = TakingAction::Take { bytes };
        if last {
            self.enter(Phase::Adopting, now);
            return smallvec![take, TakingAction::Adopt];
        }
        self.enter(Phase::Taking, now);
        smallvec![take, self.ask(now)]
    }

    fn settled(&mut self, session_present: bool) -> TakingActions {
        self.phase = Phase::Done;
        if self.abandoned {
            return smallvec![TakingAction::Leave];
        }
        smallvec![TakingAction::Connack { session_present: session_present && !self.nothing }]
    }

    /// A Will that fell due meanwhile is published by the holder first.
    fn settle_refused(&mut self, now: u64, again: bool) -> TakingActions {
        if again && !self.holder_gone && !self.abandoned {
            self.phase = Phase::SettlingAgain(now + self.patience.settle_again_ms);
            return TakingActions::new();
        }
        self.phase = Phase::SettlingAgain(now);
        self.give_up()
    }

    fn claim_lost(&mut self) -> TakingActions {
        self.phase = Phase::Done;
        let mut actions = TakingActions::new();
        if !self.abandoned {
            actions.push(TakingAction::Refuse(Refusal::ClaimLost));
        }
        actions.push(TakingAction::Drop);
        actions
    }

    /// Once the settling is proposed it may have been applied, and the holder have forgotten the session.
    fn expelled(&mut self, phase: Phase) -> TakingActions {
        let proposed = phase == Phase::Settling && !self.nothing;
        self.phase = Phase::Done;
        let refuse = (!self.abandoned).then_some(TakingAction::Refuse(Refusal::Unavailable));
        let rest = if proposed { TakingAction::Keep } else { TakingAction::Drop };
        refuse.into_iter().chain([rest]).collect()
    }

    /// The client is refused and the claim withdrawn; once the settling is proposed, its answer is awaited first.
    fn give_up(&mut self) -> TakingActions {
        let mut actions = TakingActions::new();
        let refused = std::mem::replace(&mut self.abandoned, true);
        if !refused {
            actions.push(TakingAction::Refuse(Refusal::Unavailable));
        }
        if self.phase != Phase::Settling {
            self.phase = Phase::Done;
            actions.extend([TakingAction::ProposeWithdraw, TakingAction::Drop]);
        }
        actions
    }
}
