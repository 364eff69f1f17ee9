//! What the client sends that changes its session: PUBLISH, and the acknowledgements of both directions.

use std::sync::Arc;

use crate::metrics::DropReason;
use crate::mqtt::{
    Ack, AckKind, MessageId, Names, PacketId, PacketType, Properties, ProtocolVersion, Publish, QoS, ReasonCode,
};
use crate::topic;

use super::outbound::settle;
use super::record::{Asked, Item, Journal, Position};
use super::rights::Ruling;
use super::window::Stage;
use super::{Session, Turn, Violation};

/// Why a connection ends where denials end connections.
pub(super) const DENIED: &str = "the client may not do that, and deny_action is \"disconnect\" (4.13.2)";

/// What is to be done with a PUBLISH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound<'p> {
    /// Route it, then acknowledge it.
    Route(Topic<'p>),
    /// When what was written down is stable route it under these names, then call [`Session::packet_routed`] and acknowledge it.
    RouteNamed(Topic<'p>, Names),
    /// A QoS 2 packet that was accepted before: only acknowledge it [MQTT-4.3.3-10].
    Repeated,
    /// Do not route it; the acknowledgement says why where the version can say it.
    Refused(ReasonCode),
}

/// A QoS 2 packet of the client that was accepted and is not released.
#[derive(Debug)]
pub(super) struct Accepted {
    pub position: Position,
    pub message: Routing,
}

/// Where the message of such a packet is.
#[derive(Debug)]
pub(super) enum Routing {
    /// Where it belongs; or it has no name, and what becomes of it is kept with the packet.
    Done,
    /// On its way to where it belongs.
    UnderWay(Box<Names>),
    /// Perhaps in part where it belongs: a home of the session has died before it knew.
    Unfinished(Box<Names>),
}

impl Routing {
    pub fn restored(names: Option<Box<Names>>) -> Routing {
        names.map_or(Routing::Done, Routing::Unfinished)
    }

    /// For whoever takes the session up if this home dies.
    pub fn names(&self) -> Option<&Names> {
        match self {
            Routing::Done => None,
            Routing::UnderWay(names) | Routing::Unfinished(names) => Some(names),
        }
    }
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
    /// Takes a PUBLISH of the client. After `Route` the caller routes it and calls [`Session::acknowledge`]. `name`: as what its message is routed, if that is to be
    /// known before it is; of one that is [unfinished](Session::is_unfinished) it has to be.
    pub fn publish<'p, J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        publish: &Publish<'p>,
        name: Option<MessageId>,
    ) -> Result<Inbound<'p>, Violation> {
        let topic = self.resolve_topic(turn, publish)?;
        let packet_id = publish.packet_id.filter(|_| publish.qos == QoS::ExactlyOnce);
        if let Some(packet_id) = packet_id
            && self.accepted.contains_key(&packet_id)
        {
            return Ok(match name.and_then(|name| self.begin_again(turn, packet_id, name)) {
                Some(names) => Inbound::RouteNamed(topic, names),
                None => Inbound::Repeated,
            });
        }
        if let Some(refusal) = refusal(turn, publish, topic.name())? {
            return Ok(Inbound::Refused(refusal));
        }
        let ruling = self.rights_mut().map_or(Ruling::Allowed, |rights| rights.may_publish(topic.name()));
        if ruling != Ruling::Allowed {
            turn.metrics.dropped(DropReason::Acl, 1);
            return match ruling {
                Ruling::Expelled => Err(Violation::new(ReasonCode::NotAuthorized, DENIED)),
                _ => Ok(Inbound::Refused(ReasonCode::NotAuthorized)),
            };
        }
        let Some(packet_id) = packet_id else { return Ok(Inbound::Route(topic)) };
        let names = name.map(Names::new);
        self.accept(turn, packet_id, names)?;
        Ok(match names {
            Some(names) => Inbound::RouteNamed(topic, names),
            None => Inbound::Route(topic),
        })
    }

    /// An unfinished message is routed once more, as `name` too.
    fn begin_again<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        packet_id: PacketId,
        name: MessageId,
    ) -> Option<Names> {
        let accepted = self.accepted.get_mut(&packet_id)?;
        let Routing::Unfinished(names) = &mut accepted.message else { return None };
        names.add(name);
        let (position, names) = (accepted.position, **names);
        accepted.message = Routing::UnderWay(Box::new(names));
        self.put(turn, position, Item::Accepted { packet_id, names: Some(&names) });
        Some(names)
    }

    /// Whether the message of a QoS 2 packet is perhaps in part where it belongs, and nobody is about to change that.
    pub fn is_unfinished(&self, packet_id: PacketId) -> bool {
        self.accepted.get(&packet_id).is_some_and(|accepted| matches!(accepted.message, Routing::Unfinished(_)))
    }

    /// As what the message of a QoS 2 packet is on its way.
    pub fn under_way(&self, packet_id: PacketId) -> Option<MessageId> {
        match &self.accepted.get(&packet_id)?.message {
            Routing::UnderWay(names) => Some(names.current()),
            Routing::Done | Routing::Unfinished(_) => None,
        }
    }

    /// Whether any message of the client's QoS 2 packets is on its way.
    pub fn has_packets_under_way(&self) -> bool {
        self.accepted.values().any(|accepted| matches!(accepted.message, Routing::UnderWay(_)))
    }

    /// The message that was routed as `id` is where it belongs.
    pub fn packet_routed(&mut self, packet_id: PacketId, id: MessageId) {
        if self.under_way(packet_id) == Some(id)
            && let Some(accepted) = self.accepted.get_mut(&packet_id)
        {
            accepted.message = Routing::Done;
        }
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
    fn accept<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        packet_id: PacketId,
        names: Option<Names>,
    ) -> Result<(), Violation> {
        let v5 = self.connected.as_ref().is_some_and(|connected| connected.version.is_v5());
        if v5 && self.accepted.len() >= usize::from(turn.limits.receive_maximum) {
            return Err(Violation::new(
                ReasonCode::ReceiveMaximumExceeded,
                "more unacknowledged PUBLISH packets than the Receive Maximum [MQTT-3.3.4-9]",
            ));
        }
        let position = self.take_position();
        let message = names.map_or(Routing::Done, |names| Routing::UnderWay(Box::new(names)));
        self.accepted.insert(packet_id, Accepted { position, message });
        self.put(turn, position, Item::Accepted { packet_id, names: names.as_ref() });
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
        let Some(accepted) = self.accepted.remove(&packet_id) else {
            return false;
        };
        self.delete(turn, accepted.position);
        true
    }

    /// A QoS 2 packet of the client has not been answered, and is as if it had not come; but if its message has names nobody gets it twice.
    pub fn forget_packet<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) {
        let Some(accepted) = self.accepted.get_mut(&packet_id) else { return };
        match accepted.message.names() {
            Some(names) => accepted.message = Routing::Unfinished(Box::new(*names)),
            None => _ = self.release(turn, packet_id),
        }
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
            Some(Stage::QoS1Sent) => {
                turn.metrics.publish_acked[0].add(1);
                self.complete(turn, packet_id);
            }
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
                turn.metrics.packet_sent(PacketType::PubRel as usize);
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
            Stage::Released => {
                turn.metrics.packet_sent(PacketType::PubRel as usize);
                self.answer(AckKind::PubRel, packet_id, ReasonCode::Success, out);
            }
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
            None => {
                turn.metrics.packet_sent(PacketType::PubRel as usize);
                self.answer(AckKind::PubRel, packet_id, ReasonCode::Success, out);
            }
        }
    }

    /// PUBCOMP: the delivery of a QoS 2 message has ended [MQTT-4.3.3-5].
    pub fn pubcomp<J: Journal>(&mut self, turn: &mut Turn<'_, J>, packet_id: PacketId) -> Result<(), Violation> {
        match self.window.get_mut(packet_id).map(|inflight| inflight.stage) {
            Some(Stage::Released) => {
                turn.metrics.publish_acked[1].add(1);
                self.complete(turn, packet_id);
            }
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
