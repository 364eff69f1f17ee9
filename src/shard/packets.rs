//! What each packet of a client causes: the one place from which a packet type leads to the code that serves it.

use holdfast_storage::OwnerId;

use crate::mqtt::{Disconnect, Packet, PacketId, PacketType, Publish, QoS, ReasonCode};
use crate::session::{Answer, Inbound, Journal as _, Violation, Wire};
use crate::subscriptions::SessionKey;

use super::keeping::{Due, Ended, Route};
use super::publishing::Routed;
use super::{Close, ConnectionKey, Shard, Turn, turn};

impl From<Violation> for Close {
    fn from(violation: Violation) -> Close {
        Close::ByServer { reason: violation.reason, what: violation.what }
    }
}

impl Shard {
    /// Serves one packet of an open connection. An error ends the connection.
    pub(super) fn handle_packet(
        &mut self,
        key: ConnectionKey,
        session: SessionKey,
        packet: &Packet<'_>,
    ) -> Result<(), Close> {
        self.metrics().packets_received[packet.packet_type() as usize - 1].add(1);
        match packet {
            Packet::Publish(publish) => self.handle_publish(key, session, publish),
            Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubRel(_) | Packet::PubComp(_) => {
                self.handle_ack(key, session, packet)
            }
            Packet::Subscribe(subscribe) => self.handle_subscribe(key, session, subscribe),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(key, session, unsubscribe),
            Packet::PingReq => {
                self.metrics().packet_sent(PacketType::PingResp as usize);
                Packet::PingResp
                    .encode(self.connections[key as usize].version, self.connections[key as usize].outbox.buffer());
                self.mark_dirty(key);
                Ok(())
            }
            Packet::Disconnect(disconnect) => Err(self.handle_disconnect(session, disconnect)),
            Packet::Connect(_) => Err(protocol_error("a second CONNECT on one connection [MQTT-3.1.0-2]")),
            Packet::Auth(_) => Err(protocol_error("AUTH without an Authentication Method in CONNECT [MQTT-4.12.0-6]")),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                Err(protocol_error("a packet that only a server sends (2.1.2)"))
            }
        }
    }

    fn handle_publish(&mut self, key: ConnectionKey, session: SessionKey, publish: &Publish<'_>) -> Result<(), Close> {
        self.metrics().publish_received[publish.qos as usize].add(1);
        self.metrics().publish_bytes_received.add(publish.payload.len() as u64);
        self.sample_publish();
        let name = self.name_of_packet(session, publish);
        let (route, packet) = self.route_of(session, publish);
        self.keeping.begin_route(route, packet);
        self.peers.begin_route();
        let mut turn = turn!(self);
        let state = &mut self.sessions[session as usize].session;
        let inbound = match state.publish(&mut turn, publish, name) {
            Ok(inbound) => inbound,
            Err(violation) => {
                self.keeping.end_route(Due::Nothing, None);
                return Err(violation.into());
            }
        };
        let reason = match inbound {
            Inbound::Route(topic) => match self.route_publish(session, topic.name(), publish) {
                Routed::Matched => ReasonCode::Success,
                Routed::Unmatched => ReasonCode::NoMatchingSubscribers,
                Routed::Full => ReasonCode::QuotaExceeded,
            },
            Inbound::RouteNamed(topic, names) => match self.take_named(key, session, (topic.name(), publish), names) {
                Some(reason) => reason,
                None => return Ok(()),
            },
            Inbound::Repeated => return self.answer_again(key, session, publish),
            Inbound::Refused(reason) => reason,
        };
        self.sample_routed();
        let mut turn = turn!(self);
        let state = &mut self.sessions[session as usize].session;
        let answer = state.acknowledge(&mut turn, publish, reason);
        let due = if answer.is_some() { self.answer_due(key) } else { Due::Nothing };
        let ended = self.keeping.end_route(due, None);
        if let Some(answer) = answer {
            self.answer(key, answer, matches!(ended, Ended::Now));
        }
        if let Ended::Promised(promise) = ended {
            self.answered(promise);
        }
        self.wait_for_full_peers(key);
        Ok(())
    }

    /// A QoS 2 packet has come again [MQTT-4.3.3-10]: its answer waits until the message of the first one is kept.
    fn answer_again(&mut self, key: ConnectionKey, session: SessionKey, publish: &Publish<'_>) -> Result<(), Close> {
        self.keeping.end_route(Due::Nothing, None);
        if self.named_again(key, session, publish) {
            return Ok(());
        }
        let mut turn = turn!(self);
        let state = &mut self.sessions[session as usize].session;
        let packet = state.owner().zip(publish.packet_id).filter(|_| turn.journal.defers());
        let Some(answer) = state.acknowledge(&mut turn, publish, ReasonCode::Success) else {
            return Ok(());
        };
        if let Some(packet) = packet {
            let due = self.answer_due(key);
            self.keeping.when_packet_kept(packet, due);
        }
        self.answer(key, answer, packet.is_none());
        Ok(())
    }

    /// How the message of a PUBLISH is kept. What QoS 2 promises holds as long as the session of its client.
    fn route_of(&self, session: SessionKey, publish: &Publish<'_>) -> (Route, Option<(OwnerId, PacketId)>) {
        let packet = self.sessions[session as usize].session.owner().zip(publish.packet_id);
        match publish.qos {
            QoS::AtMostOnce => (Route::Unkept, None),
            QoS::ExactlyOnce if packet.is_some() => (Route::Whole, packet),
            QoS::AtLeastOnce | QoS::ExactlyOnce => (Route::Kept, None),
        }
    }

    fn handle_ack(&mut self, key: ConnectionKey, session: SessionKey, packet: &Packet<'_>) -> Result<(), Close> {
        let mut turn = turn!(self);
        let state = &mut self.sessions[session as usize].session;
        let connection = &mut self.connections[key as usize];
        connection.outbox.prepare(&mut self.pool);
        match packet {
            Packet::PubAck(ack) => state.puback(&mut turn, ack.packet_id)?,
            Packet::PubRec(ack) => state.pubrec(&mut turn, ack, connection.outbox.buffer())?,
            Packet::PubRel(ack) => {
                let answer = state.pubrel(&mut turn, ack.packet_id);
                self.answer_when_kept(key, session, answer);
            }
            Packet::PubComp(ack) => state.pubcomp(&mut turn, ack.packet_id)?,
            _ => {}
        }
        if self.pump(key) || !self.connections[key as usize].outbox.is_empty() {
            self.mark_dirty(key);
        }
        Ok(())
    }

    fn answer_when_kept(&mut self, key: ConnectionKey, session: SessionKey, answer: Answer) {
        let owner = self.sessions[session as usize].session.owner().filter(|_| self.keeping.defers());
        if let Some(owner) = owner {
            let due = self.answer_due(key);
            self.keeping.forget_cover();
            if answer.reason == ReasonCode::PacketIdentifierNotFound {
                // It was released before the start perhaps, and the copy has it still.
                self.keeping.wait_for_cover(owner);
            }
            self.keeping.when_covered(due);
        }
        self.answer(key, answer, owner.is_none());
    }

    /// DISCONNECT ends the connection; only with 0x04 is the Will published [MQTT-3.14.4-3]. A Session Expiry Interval may
    /// lengthen the session only if it was not to end with the connection [MQTT-3.14.2-2].
    fn handle_disconnect(&mut self, session: SessionKey, disconnect: &Disconnect<'_>) -> Close {
        let expiry_max = self.shared.limits.session_expiry_max_secs;
        let state = &mut self.sessions[session as usize].session;
        if let Some(expiry_secs) = disconnect.properties.session_expiry_interval() {
            if expiry_secs > 0 && state.expiry_secs() == 0 {
                return protocol_error(
                    "Session Expiry Interval in DISCONNECT although it was 0 in CONNECT (3.14.2.2.2)",
                );
            }
            state.set_expiry_secs(expiry_secs.min(expiry_max));
        }
        Close::ByClient { reason: disconnect.reason, publish_will: disconnect.reason != ReasonCode::Success }
    }
}

fn protocol_error(what: &'static str) -> Close {
    Close::ByServer { reason: ReasonCode::ProtocolError, what }
}
