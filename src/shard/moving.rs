//! Sessions that move between nodes: the shard of the client id, on either side, carries out what the machines of [`session_move`](crate::cluster::session_move) say.
//! `giving.rs` is the side of the holder, `taking.rs` that of the claimant.
//!
//! Owner: the shard, in [`Moves`]. Invariants: for one client id a node gives or takes, never both; a machine is dropped when it is done; what is held for a session
//! that comes is nobody's only copy.
//!
//! Test to read first: `cluster-tests/tests/cluster/takeover.rs`.

mod giving;
mod taking;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};
use holdfast_raft::{Effect, Incarnation, NodeId, Outcome, Refusal};
use tracing::info;

use crate::cluster::session_move::{Claim, GivingEvent, Patience, SessionFrame, Source, TakingEvent};
use crate::mqtt::{AckKind, MessageId, PacketId};
use crate::session::{Answer, Missed, Seen};
use crate::subscriptions::SessionKey;

use super::connection::State;
use super::mailbox::Event;
use super::{ConnectionKey, Shard, Turn, turn};

use giving::Given;
pub(super) use giving::WaitsFor;
use taking::Taken;

/// How long each wait of a cluster may take, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// From SUBSCRIBE until every node routes for it.
    pub subscribe_ms: u64,
    /// Of a session that moves.
    pub moves: Patience,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        let moves = Patience { ask_every_ms: 500, give_up_ms: 5_000, settle_again_ms: 100 };
        Deadlines { subscribe_ms: 10_000, moves }
    }
}

/// What of a move was proposed to the control state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Cut,
    Settle,
}

/// See the module.
#[derive(Default)]
pub(super) struct Moves {
    giving: HashMap<Arc<str>, Given>,
    taking: HashMap<Arc<str>, Taken>,
    /// The greatest index that each shard of each node has marked.
    marks: HashMap<Source, u64>,
    /// Wills that this shard has been given to publish and that are not done.
    wills: HashSet<(Arc<str>, u64)>,
    /// Connections whose CONNECT waits until another node has published a Will of the client.
    behind_wills: HashMap<Arc<str>, Vec<(ConnectionKey, u64)>>,
    /// The same, until the heir of the session knows whether it has it: the last of each client.
    behind_heirs: HashMap<Arc<str>, (ConnectionKey, u64)>,
    /// Where connections came from that other nodes have closed for claims of which this one does not know yet.
    /// And until when.
    closed: HashMap<Arc<str>, (String, u64)>,
    /// The last message of each stream that came to the sessions here.
    pub seen: Seen,
    /// The last life of each other node that has sent something, by its tag.
    lives: HashMap<u64, Sender>,
    /// The same, of what the start has found of earlier runs.
    before: Seen,
    /// The names of packets that came here under another name before they came under these.
    overtaken: HashSet<MessageId>,
    /// The same and some that have come since, the oldest first.
    overtaken_in_order: VecDeque<MessageId>,
}

/// One life of another node: the generation of its streams, and the incarnation that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sender {
    generation: u64,
    incarnation: Incarnation,
}

/// What a dead node had left in sockets when its clients were elsewhere: beyond that the oldest are not looked out for.
const OVERTAKEN_MAX: usize = 65_536;

/// More of them than there can be unless nodes disagree; and for how long the claim of such a connection may be on its way, in milliseconds.
const CLOSED_MAX: usize = 4_096;
const CLOSED_MS: u64 = 10_000;

impl Moves {
    /// The last message of each stream that has come in here, in no order.
    pub(super) fn seen_streams(&self) -> Vec<MessageId> {
        self.seen.iter().collect()
    }

    /// Whether the session of a client is on its way here.
    pub fn is_taking(&self, client: &str) -> bool {
        self.taking.contains_key(client)
    }

    /// An earlier run of this node has written down the stream up to this message.
    pub fn note_before(&mut self, id: MessageId) {
        self.seen.note(id);
        self.before.note(id);
    }

    /// A message has come of a node that is known to be live as `known`; it may be ahead of that news.
    fn note_life(&mut self, id: MessageId, known: Incarnation) {
        let generation = id.generation();
        match self.lives.get_mut(&id.node) {
            Some(life) if generation <= life.generation => {}
            Some(life) => {
                let incarnation = if life.incarnation < known { known } else { known + 1 };
                *life = Sender { generation, incarnation };
            }
            None => drop(self.lives.insert(id.node, Sender { generation, incarnation: known })),
        }
    }

    /// The lives of a node before that incarnation are over. The next one may have sent nothing yet: what is said of it is all that is told, and tells those to whom sessions go that what
    /// these had under way comes no more.
    pub fn lives_are_over(&mut self, node: u64, before: Incarnation) {
        if let Some(life) = self.lives.get(&node).filter(|life| life.incarnation < before) {
            self.seen.note(MessageId::end_of_life(node, life.generation));
        }
    }

    /// Whether an earlier run has written that message down: its node has had no answer, and sends it again. To be asked once for each that comes live.
    pub fn repeats(&mut self, id: MessageId) -> bool {
        !self.before.is_empty() && self.before.repeats(id)
    }

    /// A packet has come that may have come before as one of `earlier`, or may be about to.
    pub fn overtake(&mut self, earlier: &[MessageId]) {
        for id in earlier.iter().filter(|id| !self.seen.contains(**id)) {
            if self.overtaken.insert(*id) {
                self.overtaken_in_order.push_back(*id);
            }
        }
        while self.overtaken_in_order.len() > OVERTAKEN_MAX
            && let Some(oldest) = self.overtaken_in_order.pop_front()
        {
            self.overtaken.remove(&oldest);
        }
    }

    /// Whether the message has come under another name.
    pub fn was_overtaken(&mut self, id: MessageId) -> bool {
        !self.overtaken.is_empty() && self.overtaken.remove(&id)
    }

    /// A connection waits until a Will of its client is published.
    pub fn wait_for_will(&mut self, client: &Arc<str>, connection: (ConnectionKey, u64)) {
        self.behind_wills.entry(client.clone()).or_default().push(connection);
    }

    pub fn take_waits_for_will(&mut self, client: &Arc<str>) -> Vec<(ConnectionKey, u64)> {
        self.behind_wills.remove(client).unwrap_or_default()
    }

    /// A connection waits until some orphans are no more. Returns the one that has waited, which its client has given up for this one.
    pub fn wait_for_heirs(
        &mut self,
        client: &Arc<str>,
        connection: (ConnectionKey, u64),
    ) -> Option<(ConnectionKey, u64)> {
        self.behind_heirs.insert(client.clone(), connection)
    }

    pub fn take_waits_for_heirs(&mut self) -> impl Iterator<Item = (Arc<str>, (ConnectionKey, u64))> + use<> {
        std::mem::take(&mut self.behind_heirs).into_iter()
    }

    pub fn will_is_due(&mut self, client: &Arc<str>, epoch: u64) {
        self.wills.insert((client.clone(), epoch));
    }
}

/// Members of share groups that move.
impl Shard {
    /// Whether the session of a client is between two nodes, so that what is put into it now may be lost with it.
    pub(super) fn is_moving(&self, client: &str) -> bool {
        self.gives_away(client) || self.moves.taking.contains_key(client)
    }
}

/// What comes from the control state.
impl Shard {
    pub(super) fn move_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Claimed { client, epoch, holder, by, clean, closing } if self.shared.is_own(holder) => {
                self.give_session(Claim { client, epoch, by, clean, closing });
            }
            Effect::Closed { client, epoch, holder } if self.shared.is_own(holder) => {
                self.giving_event(&client, GivingEvent::EndKnown { epoch });
                self.giving_wills(&client);
            }
            Effect::CutMade { client, holder, index, .. } if self.shared.is_own(holder) => {
                self.giving_cut(&client, index);
            }
            Effect::Moved { client, epoch, from, to } if self.shared.is_own(from) && !self.shared.is_own(to) => {
                self.session_moved(&client, epoch);
            }
            Effect::Withdrawn { client, holder, .. } if self.shared.is_own(holder) => {
                self.giving_withdrawn(&client);
            }
            Effect::ClaimLost { client, epoch, by } if self.shared.is_own(by) => {
                self.taking_event_of(&client, epoch, TakingEvent::ClaimLost);
            }
            Effect::WillForgotten { client, epoch } => {
                self.moves.wills.remove(&(client.clone(), epoch));
                self.giving_wills(&client);
                self.connect_behind_will(&client);
            }
            _ => {}
        }
    }

    /// A step of a session that comes here was applied.
    pub(super) fn move_step(&mut self, client: &Arc<str>, epoch: u64, step: Step, outcome: &Outcome) {
        let event = match (step, outcome) {
            // What the session wants is in the index of this node already.
            (Step::Cut, Outcome::Cut { .. }) => TakingEvent::CutMade,
            (Step::Cut, _) => TakingEvent::Failed,
            (Step::Settle, Outcome::Settled { session_present }) => {
                TakingEvent::Settled { session_present: *session_present }
            }
            (Step::Settle, outcome) => {
                let again = matches!(outcome, Outcome::Refused(Refusal::WillDue | Refusal::Closing));
                TakingEvent::SettleRefused { again }
            }
        };
        self.taking_event_of(client, epoch, event);
    }

    /// Another node is dead.
    pub(super) fn move_node_gone(&mut self, node: NodeId) {
        self.moves.marks.retain(|(from, _), _| *from != node);
        let giving: Vec<Arc<str>> = self.moves.giving.keys().cloned().collect();
        for client in giving {
            self.giving_event(&client, GivingEvent::NodeGone(node));
        }
        let taking: Vec<Arc<str>> = self
            .moves
            .taking
            .iter()
            .filter(|(_, taken)| taken.holder == node)
            .map(|(client, _)| client.clone())
            .collect();
        for client in taking {
            self.taking_event(&client, TakingEvent::HolderGone);
        }
    }
}

/// What comes from other nodes and shards.
impl Shard {
    /// A frame about the session of a client of this shard.
    pub(super) fn session_frame(&mut self, from: NodeId, frame: SessionFrame) {
        let client = frame.client().clone();
        if let SessionFrame::Closed { address, .. } = frame {
            return self.hear_of_takeover(client, address);
        }
        if frame.is_for_holder() {
            self.giving_event(&client, GivingEvent::Frame(frame));
        } else if self.moves.taking.get(&client).is_some_and(|taken| taken.holder == from) {
            self.taking_event(&client, TakingEvent::Frame(frame));
        }
    }

    /// Every node routes to the new home of a session as well: the holder is told behind everything that this shard routed before.
    pub(super) fn mark(&mut self, holder: NodeId, index: u64) {
        if self.shared.is_own(holder) {
            let place = MessageId { node: self.shared.node_tag, shard: self.id, sequence: self.sequence };
            self.marked((holder, self.id), index, place);
        } else if let Some(slot) = self.peers.slot_of(holder) {
            self.send_mark(slot, index);
        }
    }

    /// A mark has come to this shard, in a stream at `place`: all of them are to know.
    pub(super) fn marked(&mut self, from: Source, index: u64, place: MessageId) {
        for shard in (0..self.mail.len() as u16).filter(|shard| *shard != self.id).collect::<Vec<_>>() {
            self.mail(shard, Event::Marked { from, index, place });
        }
        self.move_marked(from, index, place);
    }

    /// All that was in front of the mark in its stream has come, even if it was nothing: which streams of the node are over shows by that.
    pub(super) fn move_marked(&mut self, from: Source, index: u64, place: MessageId) {
        self.moves.seen.note(place);
        let marked = self.moves.marks.entry(from).or_insert(0);
        *marked = index.max(*marked);
        let giving: Vec<Arc<str>> = self.moves.giving.keys().cloned().collect();
        for client in giving {
            self.giving_event(&client, GivingEvent::Mark { from, index });
        }
    }

    /// A message of another shard or node came to the sessions of this one.
    pub(super) fn note_seen(&mut self, id: MessageId) {
        if self.shared.clustered {
            self.moves.seen.note(id);
            if let Some(known) = self.peers.incarnation_of(id.node) {
                self.moves.note_life(id, known);
            }
            self.keeping.comes(id);
        }
    }

    /// What this shard has `here` of streams of packets that are over, and a session that comes from where it was seen until `theirs` has not.
    pub(super) fn missed(&self, theirs: &Seen, here: &Seen) -> Vec<Missed> {
        theirs.missed_of(here, |node| node == self.shared.node_tag || self.peers.incarnation_of(node).is_some())
    }

    /// What this shard has seen of all streams.
    pub(super) fn seen(&mut self) -> Seen {
        let own = MessageId { node: self.shared.node_tag, shard: self.id, sequence: self.sequence };
        self.moves.seen.note(own);
        self.moves.seen.clone()
    }

    /// Looks after what only time moves on. Called ten times in a second.
    pub(super) fn look_after_moves(&mut self) {
        let now = self.now;
        let due = |taken: &Taken| taken.machine.due().is_some_and(|due| due <= now);
        let late: Vec<Arc<str>> =
            self.moves.taking.iter().filter(|(_, taken)| due(taken)).map(|(client, _)| client.clone()).collect();
        for client in late {
            self.taking_event(&client, TakingEvent::Time);
        }
        let Shard { moves, connections, .. } = self;
        // Those that were given up meanwhile.
        let waits = |(key, serial): &(ConnectionKey, u64)| {
            connections.get(*key as usize).is_some_and(|connection| connection.serial == *serial)
        };
        moves.behind_wills.retain(|_, waiting| {
            waiting.retain(waits);
            !waiting.is_empty()
        });
        moves.behind_heirs.retain(|_, waiting| waits(waiting));
        if !self.moves.closed.is_empty() {
            self.moves.closed.retain(|_, (_, until)| *until > now);
        }
    }

    /// The node was given up by the others: nothing is given or taken any more.
    pub(super) fn abandon_moves(&mut self) {
        self.moves.giving.clear();
        let taking: Vec<Arc<str>> = self.moves.taking.keys().cloned().collect();
        for client in taking {
            self.taking_event(&client, TakingEvent::Expelled);
        }
        self.moves.marks.clear();
        self.moves.wills.clear();
        self.moves.closed.clear();
        self.moves.behind_wills.clear();
        self.moves.behind_heirs.clear();
    }
}

/// The end of serving, and its beginning again.
impl Shard {
    /// Looks after what no event moves on. Called ten times in a second.
    pub(super) fn look_after_cluster(&mut self) {
        if !self.shared.clustered {
            return;
        }
        if self.suspended && self.shared.grant.is_valid() {
            // The grant ended and was renewed between two looks at it, and whoever renewed it has not seen that it had ended.
            self.resume_serving();
        }
        self.look_after_moves();
        if self.now >= self.looked_after_at + LOOK_AFTER_MS {
            self.looked_after_at = self.now;
            self.look_after_peers();
            self.look_after_heritage();
            self.look_after_copies();
            self.look_after_wills();
            self.give_up_late_subscribes();
        }
        self.settle();
    }

    /// The node may serve again: what was read and written meanwhile goes on, and no client has been silent.
    pub(super) fn resume_serving(&mut self) {
        if !self.shared.grant.is_valid() {
            return;
        }
        self.suspended = false;
        let now = self.now;
        for (_, slot) in &mut self.sessions {
            if let Some(connected) = slot.session.connected_mut() {
                connected.keep_alive.packet_received(now);
            }
        }
        self.read_on();
        self.resume_links();
        self.resume_peers();
        self.wake_flusher();
    }

    /// The node has registered: sessions that are not its own any more go, whoever has them now.
    pub(super) fn reconcile(&mut self, leases: &HashMap<Arc<str>, (u64, u64)>) {
        let mut foreign = Vec::new();
        for (key, slot) in &mut self.sessions {
            match leases.get(slot.session.client_id()) {
                // It began here, or came here, under a connection that the lease knows.
                Some((began, epoch)) if slot.session.epoch() >= *began => {
                    let known = slot.session.epoch();
                    slot.session.set_epoch(known.max(*epoch));
                }
                _ if slot.connection.is_none() => foreign.push(key as SessionKey),
                _ => {}
            }
        }
        let dropped = foreign.len();
        foreign.into_iter().for_each(|session| self.forget_session(session, Vec::new()));
        if dropped > 0 {
            info!(event = "reconciled", dropped, "sessions that are no longer this node's are forgotten");
        }
        self.note_begun(self.shared.node_tag, self.shared.incarnation.load(Ordering::Acquire));
        let shares = self.share_groups.registered(self.now, &self.peers.nodes(), self.keeping.has_copies());
        self.carry_out_shares(shares);
    }

    /// The other nodes have given this one up. Every client goes; sessions that outlive their connection stay, to be taken up again when the node has registered
    /// anew, if they are still its own then. Nobody hears of that from here: the others know.
    pub(super) fn expelled(&mut self) {
        // If clients were closed because the node is leaving, and it does not come to that, they may come back.
        self.stopping = false;
        self.abandon_moves();
        self.heir_expelled();
        self.forget_unanswered();
        let shares = self.share_groups.expelled();
        self.carry_out_shares(shares);
        self.forget_peers();
        self.pending.clear();
        let connected: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|(_, slot)| slot.connection.is_some())
            .map(|(key, _)| key as SessionKey)
            .collect();
        for session in connected {
            self.detach_locally(session);
        }
        let keys: Vec<ConnectionKey> = self.connections.iter().map(|(key, _)| key as ConnectionKey).collect();
        keys.into_iter().for_each(|key| self.remove(key));
        let ended: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|(_, slot)| slot.session.expiry_secs() == 0)
            .map(|(key, _)| key as SessionKey)
            .collect();
        ended.into_iter().for_each(|session| self.end_session(session));
    }
}

/// What must not count as done because the node was given up.
impl Shard {
    /// What others owe this node is void from now on, and nobody knows which of them have it. QoS 2 packets that have had no PUBREC are new ones when they come again: who has got
    /// their message then gets it twice, unless it has a name. And the control state has the Wills that this node was publishing done by another one.
    fn forget_unanswered(&mut self) {
        let of_packets = self.keeping.forget_wills_and_name_packets().into_iter().chain(self.forget_named());
        let mut unanswered: Vec<(SessionKey, PacketId)> =
            of_packets.filter_map(|(owner, packet_id)| Some((*self.by_owner.get(&owner)?, packet_id))).collect();
        for (_, connection) in &self.connections {
            let State::Open { session } = connection.state else { continue };
            let is_accepted = |answer: &Answer| answer.kind == AckKind::PubRec && !answer.reason.is_error();
            let answers = connection.answers.iter().map(|(answer, _)| answer).filter(|answer| is_accepted(answer));
            unanswered.extend(answers.map(|answer| (session, answer.packet_id)));
        }
        for (session, packet_id) in unanswered {
            let mut turn = turn!(self);
            self.sessions[session as usize].session.forget_packet(&mut turn, packet_id);
        }
        self.keeping.close_section();
    }
}

/// How often windows, debts and deadlines are looked at.
const LOOK_AFTER_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::SEQUENCE_BITS;

    fn packet(start: u64, sequence: u64) -> MessageId {
        MessageId { node: 7, shard: 0, sequence: start << SEQUENCE_BITS | sequence }.of_packet()
    }

    /// What the last home of a session has missed of what others had from it.
    fn missed(moves: &Moves) -> Vec<Missed> {
        let mut theirs = Seen::default();
        theirs.note(packet(1, 3));
        theirs.missed_of(&moves.seen, |_| true)
    }

    fn comes(moves: &mut Moves, id: MessageId, known: Incarnation) {
        moves.seen.note(id);
        moves.note_life(id, known);
    }

    #[test]
    fn what_a_life_had_under_way_is_over_before_the_next_one_has_sent_anything() {
        let mut moves = Moves::default();
        comes(&mut moves, packet(1, 5), 1);
        moves.lives_are_over(7, 1);
        assert_eq!(missed(&moves), [], "it lives");
        moves.lives_are_over(7, 2);
        assert_eq!(missed(&moves), [Missed { after: packet(1, 3).sequence, up_to: packet(1, 5) }]);
    }

    #[test]
    fn a_life_that_sends_before_it_is_known_is_not_over_when_it_is() {
        let mut moves = Moves::default();
        comes(&mut moves, MessageId { node: 7, shard: 0, sequence: 9 }, 1);
        comes(&mut moves, packet(1, 5), 1);
        moves.lives_are_over(7, 2);
        assert_eq!(missed(&moves), []);
        moves.lives_are_over(7, 3);
        assert_eq!(missed(&moves).len(), 1);
    }

    #[test]
    fn of_too_many_overtaken_names_the_oldest_are_forgotten() {
        let name = |sequence: usize| MessageId { node: 7, shard: 0, sequence: sequence as u64 };
        let mut moves = Moves::default();
        (0..=OVERTAKEN_MAX).for_each(|sequence| moves.overtake(&[name(sequence)]));
        assert!(!moves.was_overtaken(name(0)) && moves.was_overtaken(name(1)));
        assert!(moves.was_overtaken(name(OVERTAKEN_MAX)) && !moves.was_overtaken(name(1)), "each comes once");
        assert!(moves.overtaken_in_order.len() <= OVERTAKEN_MAX);
    }
}
