//! The holder's side of a move: the old connection goes, then the session, in parts.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::{Command, WillFate};

use crate::cluster::session_move::{Claim, Giving, GivingAction, GivingActions, GivingEvent, SessionFrame, Source};
use crate::journal::wire::{StatePart, StateWriter, yield_parts};
use crate::mqtt::ReasonCode;
use crate::session::Session;
use crate::subscriptions::SessionKey;

use super::super::mailbox::Event;
use super::super::shared::SharesHad;
use super::super::subscribing::Replay;
use super::super::{Close, SessionSlot, Shard};

/// A session that another node has claimed.
pub(in crate::shard) struct Given {
    machine: Giving,
    /// The last message that this shard had accepted when the connection was closed: what its client published is not behind it.
    published: u64,
    /// The parts of the subscriptions that are still to be sent.
    yields: Option<Box<dyn Iterator<Item = Bytes>>>,
    state: Option<StateWriter>,
    waits: Option<WaitsFor>,
}

/// What the next part of the state waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shard) enum WaitsFor {
    /// Something of the session is on its way to the disk.
    Kept,
    /// Messages that are on disk alone. They are asked for once.
    ReadBack,
}

impl Shard {
    /// A claim of another node is applied.
    pub(super) fn give_session(&mut self, claim: Claim) {
        let client = claim.client.clone();
        if let Some(given) = self.moves.giving.get_mut(&client) {
            // The newer claimant gets everything from the beginning.
            if self.keeping.has_copies() {
                note_kept(&self.shared.shares_had, given);
            }
            (given.yields, given.state, given.waits) = (None, None, None);
            self.giving_event(&client, GivingEvent::Claimed(claim));
            return self.inbox.push_back(Event::LookForWills { client });
        }
        let (machine, actions) = Giving::new(claim);
        let given = Given { machine, published: 0, yields: None, state: None, waits: None };
        self.moves.giving.insert(client.clone(), given);
        self.carry_out_giving(&client, actions);
    }

    pub(in crate::shard) fn giving_event(&mut self, client: &Arc<str>, event: GivingEvent) {
        let Some(given) = self.moves.giving.get_mut(client) else {
            return;
        };
        let actions = given.machine.handle(event);
        self.carry_out_giving(client, actions);
    }

    fn carry_out_giving(&mut self, client: &Arc<str>, actions: GivingActions) {
        for action in actions {
            match action {
                GivingAction::Close => self.close_given(client),
                GivingAction::MakeYield { first } => self.make_yield(client, first),
                GivingAction::MakeState { first } => self.make_state(client, first),
                GivingAction::Send(frame) => {
                    if let Some(given) = self.moves.giving.get(client) {
                        self.control.send_session(given.machine.claim().by, &frame);
                    }
                }
                GivingAction::Forget => self.forget_given(client),
                GivingAction::Keep => {}
            }
        }
        if self.moves.giving.get(client).is_some_and(|given| given.machine.is_done()) {
            self.moves.giving.remove(client);
        }
    }

    /// The connection that a newer one on another node takes over is closed [MQTT-3.1.4-3].
    fn close_given(&mut self, client: &Arc<str>) {
        if let Some(session) = self.by_client.get(client).copied()
            && let Some(key) = self.sessions[session as usize].connection
        {
            self.hear_out(key);
            // Its own DISCONNECT may have been among that.
            if self.sessions.get(session as usize).is_some_and(|slot| slot.connection == Some(key)) {
                self.close_taken_over(key, session);
            }
        } else {
            self.refuse_taken_over(client);
        }
        let published = self.sequence;
        if let Some(given) = self.moves.giving.get_mut(client) {
            given.published = published;
        }
        self.giving_event(client, GivingEvent::Closed);
        self.giving_published(client);
        // A Will that the same claim has made due is right behind it.
        self.inbox.push_back(Event::LookForWills { client: client.clone() });
    }

    /// A connection that has the lease, and waits until that is on disk, was taken over before it was let in.
    fn refuse_taken_over(&mut self, client: &Arc<str>) {
        let Some(session) = self.by_client.get(client).copied() else {
            return;
        };
        let slot = &mut self.sessions[session as usize];
        let Some((key, serial)) = slot.admitting.take() else {
            return;
        };
        let epoch = slot.session.epoch();
        let Some(connecting) = self.stop_connecting(key, serial) else {
            return;
        };
        self.refuse(key, ReasonCode::ServerBusy, "another connection of the client came later");
        let expiry_secs = connecting.expiry_secs();
        self.propose(Command::Detach { client: client.clone(), epoch, will: WillFate::Drop, expiry_secs });
    }

    fn close_taken_over(&mut self, key: u32, session: SessionKey) {
        self.metrics().sessions_taken_over.add(1);
        let (peer, client_id) = (self.connections[key as usize].peer, self.connections[key as usize].client_id.clone());
        if let Some(given) = self.moves.giving.get(&client_id) {
            let Claim { epoch, by, .. } = *given.machine.claim();
            let closed = SessionFrame::Closed { client: client_id.clone(), epoch, address: peer.to_string() };
            self.control.send_session(by, &closed);
        }
        self.detach_locally(session);
        let state = &self.sessions[session as usize].session;
        let command = Command::Detach {
            client: client_id,
            epoch: state.epoch(),
            will: WillFate::Keep,
            expiry_secs: state.expiry_secs(),
        };
        if state.expiry_secs() == 0 {
            self.end_session(session);
        }
        self.propose(command);
        let what = "another connection has come with this client id [MQTT-3.1.4-3]";
        self.begin_closing(key, Close::ByServer { reason: ReasonCode::SessionTakenOver, what });
    }

    /// Whether all that the old connection published is with the nodes it was for.
    fn giving_published(&mut self, client: &Arc<str>) {
        let Some(published) = self.moves.giving.get(client).map(|given| given.published) else {
            return;
        };
        let session = self.by_client.get(client).map(|session| &self.sessions[*session as usize].session);
        if self.peers.accepted_up_to(published) && !session.is_some_and(Session::has_packets_under_way) {
            self.giving_event(client, GivingEvent::PublishedSettled);
        }
    }

    pub(in crate::shard) fn giving_wills(&mut self, client: &Arc<str>) {
        if self.moves.giving.contains_key(client) && !self.moves.wills.iter().any(|(of, _)| of == client) {
            self.giving_event(client, GivingEvent::WillsDone);
        }
    }

    /// Other nodes have accepted more, or are gone.
    pub(in crate::shard) fn settle_waits_for_legs(&mut self) {
        if self.moves.giving.is_empty() {
            return;
        }
        for client in self.moves.giving.keys().cloned().collect::<Vec<_>>() {
            self.giving_published(&client);
        }
    }

    pub(super) fn giving_cut(&mut self, client: &Arc<str>, index: u64) {
        if !self.moves.giving.contains_key(client) {
            return;
        }
        let own = self.shared.node;
        let own_shards = (0..self.mail.len() as u16).map(|shard| (own, shard));
        let mut sources: Vec<Source> = own_shards.collect();
        for node in self.peers.nodes() {
            // Who is live has been linked to, and said so.
            let shards = self.control.shards_of(node).unwrap_or(1);
            sources.extend((0..shards).map(|shard| (node, shard)));
        }
        let marked = |source: Source| (source, self.moves.marks.get(&source).copied().unwrap_or(0));
        let sources = sources.into_iter().map(marked).collect();
        self.giving_event(client, GivingEvent::CutMade { index, sources });
    }

    fn make_yield(&mut self, client: &Arc<str>, first: bool) {
        let session = self.by_client.get(client).copied();
        let Some(given) = self.moves.giving.get_mut(client) else {
            return;
        };
        if first {
            let clock = self.shared.hybrid.reading(self.now);
            given.yields = session.map(|session| {
                let SessionSlot { session, replays, .. } = &self.sessions[session as usize];
                let cut: Vec<_> = replays.iter().map(Replay::cut).collect();
                let parts = yield_parts(session, clock, &cut);
                Box::new(parts.collect::<Vec<_>>().into_iter()) as Box<dyn Iterator<Item = Bytes>>
            });
        }
        let Some(yields) = &mut given.yields else {
            return self.giving_event(client, GivingEvent::Absent);
        };
        let Some(bytes) = yields.next() else {
            return;
        };
        let last = yields.size_hint().1 == Some(0);
        self.giving_event(client, GivingEvent::Made { last, bytes });
    }

    fn make_state(&mut self, client: &Arc<str>, first: bool) {
        let Some(session) = self.by_client.get(client).copied() else {
            return self.giving_event(client, GivingEvent::Withdrawn);
        };
        let seen = self.seen();
        let now = self.now;
        let Some(given) = self.moves.giving.get_mut(client) else {
            return;
        };
        let state = &mut self.sessions[session as usize].session;
        if first {
            given.state = Some(StateWriter::new(state, &seen));
        }
        let Some(writer) = &mut given.state else {
            return;
        };
        match writer.next(state, now) {
            StatePart::Made { last, bytes } => {
                given.waits = None;
                self.giving_event(client, GivingEvent::Made { last, bytes });
            }
            StatePart::Wanted(positions) => {
                given.waits = Some(WaitsFor::ReadBack);
                self.read_back_positions(session, positions);
            }
            StatePart::Unkept => given.waits = Some(WaitsFor::Kept),
        }
    }

    /// Something of a session has been kept or read back: the part that waited for it is made.
    pub(in crate::shard) fn go_on_giving(&mut self, session: SessionKey, come: WaitsFor) {
        if self.moves.giving.is_empty() {
            return;
        }
        let Some(client) = self.sessions.get(session as usize).map(|slot| slot.session.client_id().clone()) else {
            return;
        };
        if self.moves.giving.get(&client).is_some_and(|given| given.waits == Some(come)) {
            self.make_state(&client, false);
        }
    }

    /// The claim is over, and the session stays.
    pub(super) fn giving_withdrawn(&mut self, client: &Arc<str>) {
        if let Some(given) = self.moves.giving.get(client).filter(|_| self.keeping.has_copies()) {
            note_kept(&self.shared.shares_had, given);
        }
        self.giving_event(client, GivingEvent::Withdrawn);
    }

    /// The session is another node's, whether or not this one has given it.
    pub(super) fn session_moved(&mut self, client: &Arc<str>, epoch: u64) {
        let of_this = |given: &Given| given.machine.claim().epoch == epoch;
        if self.moves.giving.get(client).is_some_and(of_this) {
            self.giving_event(client, GivingEvent::Moved);
        } else {
            self.forget_given(client);
        }
    }

    fn forget_given(&mut self, client: &Arc<str>) {
        let Some(session) = self.by_client.get(client).copied() else {
            return;
        };
        if self.sessions[session as usize].connection.is_some() {
            return;
        }
        self.metrics().sessions_given.add(1);
        let bounds = self.moves.giving.get(client).and_then(|given| given.state.as_ref()).map(StateWriter::bounds);
        let left = bounds.map(|bounds| self.sessions[session as usize].session.left_behind(bounds));
        self.forget_session(session, left.unwrap_or_default());
    }

    /// Whether a message of a share group must not be given to the session of this client any more: the other node would not get it.
    pub(in crate::shard) fn gives_away(&self, client: &str) -> bool {
        self.moves.giving.get(client).is_some_and(|given| given.machine.has_begun_state())
    }
}

/// The claimant does not get the session. If it has been killed it may find as much of it as had come, and ask for what that has of share groups.
fn note_kept(had: &SharesHad, given: &Given) {
    let Claim { by, epoch, .. } = *given.machine.claim();
    if let Some(state) = &given.state {
        had.note_brought(by.tag(), epoch + 1, state.shares());
    }
}
