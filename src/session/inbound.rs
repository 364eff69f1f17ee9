//! What the client sends that changes its session: PUBLISH, and the acknowledgements of both directions.

use std::sync::Arc;

use crate::mqtt::{Ack, AckKind, PacketId, Properties, ProtocolVersion, Publish, QoS, ReasonCode};
use crate::topic;

use super::outbound::settle;
use super::record::{Asked, Item, Journal};
use super::window::Stage;
use super::{Session, Turn, Violation};

/// What is to be done with a PUBLISH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound<'p> {
    /// Route it, then acknowledge it.
    Route(Topic<'p>),
    /// A QoS 2 packet that was accepted before: only acknowledge it [MQTT-4.3.3-10].
    Repeated,
    /// Do not route it; the acknowledgement says why where the version can say it.
    Refused(ReasonCode),
}

/// The topic name of a PUBLISH: in the packet, or behind an alias.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topic<'p> {
    Named(&'p str),
    Aliased(Arc<str>),
}

impl Topic<'_> {
    pub fn name(&self) -> &str {
        match self {
            Topic::Named(name) => name,
            Topic::Aliased(name) => name,
        }
    }
}

/// What a packet of the client is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub kind: AckKind,
    pub packet_id: PacketId,
    pub reason: ReasonCode,
}

impl Session {
    /// Takes a PUBLISH of the client. After `Route` the caller routes it and calls [`Session::acknowledge`].
    pub fn publish<'p, J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        publish: &Publish<'p>,
    ) -> Result<Inbound<'p>, Violation> {
        let topic = self.resolve_topic(turn, publish)?;
        if publish.qos == QoS::ExactlyOnce
            && let Some(packet_id) = publish.packet_id
            && self.accepted.contains_key(&packet_id)
        {
            return Ok(Inbound::Repeated);
        }
        if let Some(refusal) = refusal(turn, publish, topic.name())? {
            return Ok(Inbound::Refused(refusal));
        }
        if publish.qos == QoS::ExactlyOnce
            && let Some(packet_id) = publish.packet_id
        {
            self.accept(turn, packet_id)?;
        }
        Ok(Inbound::Route(topic))
    }

    fn resolve_topic<'p, J>(&mut self, turn: &Turn<'_, J>, publish: &Publish<'p>) -> Result<Topic<'p>, Violation> {
        if publish.properties.is_empty() {
            return Ok(Topic::Named(publish.topic));
        }
        match (publish.properties.topic_alias(), &mut self.connected) {
            (Some(alias), Some(connected)) => {
                let name = connected.inbound_aliases.resolve(alias, publish.topic, turn.limits.topic_alias_max)?;
                Ok(Topic::Aliased(name))
            }
            _ => Ok(Topic::Named(publish.topic)),
        }
    }

    /// Remembers a QoS 2 packet until its PUBREL. In MQTT 5.0 the client must keep to the Receive Maximum of the CONNACK
    /// [MQTT-3.3.4-9]; QoS 1 packets, whose answers may wait for the disk, are bounded by
    /// [`limits::UNANSWERED_MAX`](crate::limits::UNANSWERED_MAX).
    fn accept<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) -> Result<(), Violation> {
        let v5 = self.connected.as_ref().is_some_and(|connected| connected.version.is_v5());
        if v5 && self.accepted.len() >= usize::from(turn.limits.receive_maximum) {
            return Err(Violation::new(
                ReasonCode::ReceiveMaximumExceeded,
                "more unacknowledged PUBLISH packets than the Receive Maximum [MQTT-3.3.4-9]",
            ));
        }
        let position = self.take_position();
        self.accepted.insert(packet_id, position);
        self.put(turn, position, Item::Accepted { packet_id });
        Ok(())
    }

    /// The PUBACK or PUBREC that a PUBLISH is answered with [MQTT-4.3.2-4], [MQTT-4.3.3-8], none for QoS 0. Before MQTT 5.0 there is no refusal:
    /// the packet is acknowledged as if it had been taken [MQTT-3.3.5-2]. In MQTT 5.0 a PUBREC that refuses ends the exchange: no PUBREL
    /// follows, and the packet identifier may come with another message next [MQTT-4.3.3-9].
    pub fn acknowledge<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        publish: &Publish<'_>,
        reason: ReasonCode,
    ) -> Option<Answer> {
        let packet_id = publish.packet_id?;
        let version = self.connected.as_ref()?.version;
        let kind = if publish.qos == QoS::ExactlyOnce { AckKind::PubRec } else { AckKind::PubAck };
        if kind == AckKind::PubRec && reason.is_error() && version.is_v5() {
            self.release(turn, packet_id);
        }
        Some(Answer { kind, packet_id, reason })
    }

    /// Forgets a QoS 2 packet of the client. Returns whether it was known.
    fn release<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) -> bool {
        let Some(position) = self.accepted.remove(&packet_id) else {
            return false;
        };
        self.delete(turn, position);
        true
    }

    /// A QoS 2 packet of the client has not been answered, and is as if it had not come.
    pub fn forget_packet<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) {
        self.release(turn, packet_id);
    }

    /// PUBREL: releases the identifier; the answer is a PUBCOMP [MQTT-4.3.3-11], to be sent when the release is kept: the client may use the
    /// identifier for another message from then on.
    pub fn pubrel<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) -> Answer {
        let reason =
            if self.release(turn, packet_id) { ReasonCode::Success } else { ReasonCode::PacketIdentifierNotFound };
        Answer { kind: AckKind::PubComp, packet_id, reason }
    }

    /// Writes an answer for the connection that the session has now.
    pub fn write_answer(&self, answer: Answer, out: &mut Vec<u8>) {
        self.answer(answer.kind, answer.packet_id, answer.reason, out);
    }

    /// PUBACK: the message is done with, whatever the reason code says [MQTT-4.3.2-3], [MQTT-4.8.2-6].
    pub fn puback<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) -> Result<(), Violation> {
        match self.window.get_mut(packet_id).map(|inflight| inflight.stage) {
            Some(Stage::QoS1Sent) => self.complete(turn, packet_id),
            Some(_) => {
                return Err(Violation::new(ReasonCode::ProtocolError, "PUBACK for a PUBLISH of QoS 2 (4.3.3)"));
            }
            None => {}
        }
        Ok(())
    }

    /// PUBREC: PUBREL is the answer [MQTT-4.3.3-4]; a negative one ends the delivery. For a packet identifier that is not in use
    /// MQTT 5.0 says so in the PUBREL.
    pub fn pubrec<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        ack: &Ack<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let packet_id = ack.packet_id;
        let Some(inflight) = self.window.get_mut(packet_id) else {
            if !ack.reason.is_error() {
                self.answer(AckKind::PubRel, packet_id, ReasonCode::PacketIdentifierNotFound, out);
            }
            return Ok(());
        };
        match inflight.stage {
            Stage::QoS1Sent => {
                return Err(Violation::new(ReasonCode::ProtocolError, "PUBREC for a PUBLISH of QoS 1 (4.3.2)"));
            }
            // It cannot be for a PUBLISH that has not been sent.
            Stage::QoS2Recorded | Stage::QoS2Kept => {}
            _ if ack.reason.is_error() => self.complete(turn, packet_id),
            Stage::QoS2Sent => self.received(turn, packet_id, out),
            // The PUBREL follows as soon as the PUBREC is kept.
            Stage::Received => {}
            Stage::Released => self.answer(AckKind::PubRel, packet_id, ReasonCode::Success, out),
        }
        Ok(())
    }

    fn received<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId, out: &mut Vec<u8>) {
        let owner = self.owner.filter(|_| turn.journal.defers());
        let Some(inflight) = self.window.get_mut(packet_id) else {
            return;
        };
        if let Some(queued) = inflight.queued.take() {
            settle(turn, &queued);
        }
        inflight.stage = if owner.is_some() { Stage::Received } else { Stage::Released };
        let position = inflight.position;
        self.put(turn, position, Item::Received { packet_id });
        match owner {
            Some(owner) => turn.journal.ask(owner, Asked::Packet(packet_id)),
            None => self.answer(AckKind::PubRel, packet_id, ReasonCode::Success, out),
        }
    }

    /// PUBCOMP: the delivery of a QoS 2 message has ended [MQTT-4.3.3-5].
    pub fn pubcomp<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) -> Result<(), Violation> {
        match self.window.get_mut(packet_id).map(|inflight| inflight.stage) {
            Some(Stage::Released) => self.complete(turn, packet_id),
            Some(_) => {
                return Err(Violation::new(ReasonCode::ProtocolError, "PUBCOMP before PUBREL (4.3.3)"));
            }
            None => {}
        }
        Ok(())
    }

    fn complete<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) {
        if let Some(inflight) = self.window.remove(packet_id) {
            self.no_resend(packet_id);
            inflight.queued.iter().for_each(|queued| settle(turn, queued));
            self.delete(turn, inflight.position);
        }
    }

    fn answer(&self, kind: AckKind, packet_id: PacketId, reason: ReasonCode, out: &mut Vec<u8>) {
        let version = self.connected.as_ref().map_or(ProtocolVersion::V5, |connected| connected.version);
        Ack { packet_id, reason, properties: Properties::EMPTY }.encode(kind, version, out);
    }
}

/// Why a PUBLISH is not routed although the packet is well formed.
fn refusal<J>(turn: &Turn<'_, J>, publish: &Publish<'_>, topic: &str) -> Result<Option<ReasonCode>, Violation> {
    if publish.retain && !turn.limits.retain_available {
        return Err(Violation::new(
            ReasonCode::RetainNotSupported,
            "RETAIN although the CONNACK says Retain Available 0 [MQTT-3.2.2-14]",
        ));
    }
    if topic::name::is_dollar(topic) && is_of_the_server(topic) {
        return Ok(Some(ReasonCode::NotAuthorized));
    }
    if topic.len() >= turn.limits.topic_levels_max && topic::name::levels(topic) > turn.limits.topic_levels_max {
        return Ok(Some(ReasonCode::TopicNameInvalid));
    }
    Ok(None)
}

/// Topics under `$SYS` are the server's own (4.7.2); `$share/…` is no topic name of anybody.
fn is_of_the_server(topic: &str) -> bool {
    let first = topic.split('/').next().unwrap_or(topic);
    first == "$SYS" || first == "$share"
}
