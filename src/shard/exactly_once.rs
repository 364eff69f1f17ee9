//! QoS 2 packets of sessions that have copies on other nodes: each subscriber gets the message once, whichever node dies meanwhile.
//!
//! Such a message has a *name*, its place in a stream of the shard that is for packets alone. That the packet was accepted, and under which name, is stable before the
//! message goes anywhere. Then it is routed, and when everybody has it its client gets PUBREC. Should the home of the session die before, whoever has the
//! session then finds the packet unfinished: when the client sends it again the message is routed again, under one more name, and whoever has got it under an earlier one drops
//! it. For that no table of names is needed: the packets of a shard are routed in the order of their names, so the mark of the stream says which have come, as
//! it does for every other stream, on disk and in copies too; a home that starts anew, or is given up, has another stream from then on. Only of those that overtake their first copy, which a dead node has left in a socket, the shard remembers the names one by one
//! ([`super::moving`]).
//!
//! Owner: the shard, in [`Named`]. Invariants: packets are routed in the order in which they were accepted, and none before it is stable; a packet has one entry from when it was accepted
//! until its message is where it belongs.
//!
//! Test to read first: `cluster-tests/tests/cluster/exactly_once.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_storage::OwnerId;

use crate::limits;
use crate::link::frame::Name;
use crate::metrics::DropReason;
use crate::mqtt::{Message, MessageId, Names, PacketId, Publish, QoS, ReasonCode};
use crate::session::Outgoing;
use crate::subscriptions::SessionKey;

use super::keeping::{Due, Ended, Route};
use super::publishing::Routed;
use super::{ConnectionKey, Shard, Turn, turn};

/// A packet whose message is not where it belongs.
struct Packet {
    owner: OwnerId,
    packet_id: PacketId,
    /// `None` when it has been routed.
    message: Option<Arc<Message>>,
    names: Names,
    /// Who sent it, and is not read from while a node that wants it is behind.
    connection: (ConnectionKey, u64),
    /// Nobody had subscribed to it.
    unmatched: bool,
    /// The answer to it, and one for each time that it came again.
    dues: Vec<Due>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Named {
    packets: HashMap<MessageId, Packet>,
    /// Those that are stable, from the first on that cannot be routed yet.
    held: VecDeque<MessageId>,
    /// Of the messages that are not routed yet.
    bytes: usize,
}

impl Named {
    /// Bytes of the messages that wait until their packets are stable.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Shard {
    /// As what the message of a PUBLISH is routed, if that has to be known before.
    pub(super) fn name_of_packet(&mut self, session: SessionKey, publish: &Publish<'_>) -> Option<MessageId> {
        let packet_id = publish.packet_id.filter(|_| publish.qos == QoS::ExactlyOnce)?;
        let session = &self.sessions[session as usize].session;
        session.owner()?;
        let is_named = self.keeping.has_copies() || session.is_unfinished(packet_id);
        is_named.then(|| self.next_message_id().of_packet())
    }

    /// Takes the message of a packet that has just been accepted under `names`. Returns why not.
    pub(super) fn take_named(
        &mut self,
        key: ConnectionKey,
        session: SessionKey,
        (topic, publish): (&str, &Publish<'_>),
        names: Names,
    ) -> Option<ReasonCode> {
        // One that comes again may be with some already.
        let may_refuse = names.earlier().is_empty();
        let message = self.with_outgoing(session, names.current(), (topic, publish), |shard, outgoing| {
            let refuses = may_refuse && shard.refuses(session, publish, outgoing);
            (!refuses).then(|| outgoing.message().clone())
        });
        let Some(message) = message else { return Some(ReasonCode::QuotaExceeded) };
        let id = names.current();
        let serial = self.connections[key as usize].serial;
        let dues = self.due_of_named(key, session, publish);
        if let Some((owner, packet_id)) = self.sessions[session as usize].session.owner().zip(publish.packet_id) {
            self.named.bytes += message.size();
            self.keeping.behind |= self.named.bytes > limits::UNWRITTEN_BYTES_HIGH;
            let (message, connection) = (Some(message), (key, serial));
            let packet = Packet { owner, packet_id, message, names, connection, unmatched: false, dues };
            self.named.packets.insert(id, packet);
        }
        if self.keeping.defers() {
            self.keeping.when_kept(Due::RouteNamed(id));
            self.keeping.end_route(Due::Nothing, None);
        } else {
            self.keeping.end_route(Due::Nothing, None);
            self.route_named(id);
        }
        None
    }

    /// The answer to a PUBLISH takes its place among those of the connection.
    fn due_of_named(&mut self, key: ConnectionKey, session: SessionKey, publish: &Publish<'_>) -> Vec<Due> {
        let mut turn = turn!(self);
        let state = &mut self.sessions[session as usize].session;
        let Some(answer) = state.acknowledge(&mut turn, publish, ReasonCode::Success) else { return Vec::new() };
        let due = self.answer_due(key);
        self.answer(key, answer, false);
        vec![due]
    }

    /// A packet whose message is on its way has come again: its answer waits with the first one. False: it is not on its way.
    pub(super) fn named_again(&mut self, key: ConnectionKey, session: SessionKey, publish: &Publish<'_>) -> bool {
        let state = &self.sessions[session as usize].session;
        let id = publish.packet_id.and_then(|packet_id| state.under_way(packet_id));
        let Some(id) = id.filter(|id| self.named.packets.contains_key(id)) else { return false };
        let dues = self.due_of_named(key, session, publish);
        if let Some(packet) = self.named.packets.get_mut(&id) {
            // An answer for a connection that is gone is nobody's.
            packet.dues.retain(|earlier| dues.iter().any(|due| due.connection() == earlier.connection()));
            packet.dues.extend(dues);
        }
        true
    }

    /// That a packet was accepted is stable: its message is routed, when those before it have been.
    pub(super) fn route_named(&mut self, id: MessageId) {
        self.named.held.push_back(id);
        self.route_held();
    }

    /// Routes what is stable, up to the first that sessions which are on their way here perhaps want.
    pub(super) fn route_held(&mut self) {
        while let Some(id) = self.named.held.front().copied() {
            let message = self.named.packets.get(&id).and_then(|packet| packet.message.as_ref());
            if message.is_some_and(|message| self.is_for_orphans_here(&message.topic)) {
                return;
            }
            self.named.held.pop_front();
            self.route_stable(id);
        }
    }

    fn route_stable(&mut self, id: MessageId) {
        // The node may have been given up meanwhile.
        let Some(packet) = self.named.packets.get_mut(&id) else { return };
        let Some(message) = packet.message.take() else { return };
        let (names, connection) = (packet.names, packet.connection);
        self.named.bytes -= message.size();
        self.keeping.begin_route(Route::Kept, None);
        self.peers.begin_route();
        self.note_seen(id);
        let routed = self.route(&mut Outgoing::again(&message, names.earlier()), Some(Name::Packet(names)));
        if let Some(packet) = self.named.packets.get_mut(&id) {
            packet.unmatched = routed == Routed::Unmatched;
        }
        match self.keeping.end_route(Due::NamedRouted(id), None) {
            Ended::Now => self.named_routed(id),
            Ended::Promised(promise) => self.answered(promise),
            Ended::Waits | Ended::Will(_) => {}
        }
        let (key, serial) = connection;
        if self.is_current(key, serial) {
            self.wait_for_full_peers(key);
        }
        if self.keeping.behind {
            self.look_whether_behind();
        }
    }

    /// The message of a packet is where it belongs.
    pub(super) fn named_routed(&mut self, id: MessageId) {
        let Some(Packet { owner, packet_id, unmatched, dues, .. }) = self.named.packets.remove(&id) else { return };
        if let Some(session) = self.by_owner.get(&owner) {
            self.sessions[*session as usize].session.packet_routed(packet_id, id);
        }
        for due in dues {
            if unmatched {
                self.say_in_answer(&due, ReasonCode::NoMatchingSubscribers);
            }
            self.fall_due(due);
        }
        // Its session may be about to go elsewhere.
        self.settle_waits_for_legs();
    }

    /// Nothing that is on its way counts as where it belongs. Returns the packets.
    pub(super) fn forget_named(&mut self) -> Vec<(OwnerId, PacketId)> {
        let Named { packets, .. } = std::mem::take(&mut self.named);
        if !packets.is_empty() {
            // Nobody knows how far these have come.
            self.sequence = MessageId::next_generation(self.sequence).unwrap_or(self.sequence);
        }
        let unrouted = packets.values().filter(|packet| packet.message.is_some()).count();
        self.metrics().dropped(DropReason::NodeGone, unrouted as u64);
        packets.into_values().map(|packet| (packet.owner, packet.packet_id)).collect()
    }
}
