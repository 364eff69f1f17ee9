//! What is sent to the client: messages as they come, from the queue when there is room again, and once more after a
//! reconnect.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;

use crate::limits;
use crate::metrics::DropReason;
use crate::mqtt::{
    AckKind, Message, MessageId, PacketId, PacketType, PublishHead, QoS, ReasonCode, WillName, remaining_secs,
};

use super::inbound::Answer;
use super::queue::{QueueFull, Queued, QueuedBody, SubscriptionIds};
use super::record::{Asked, Item, Journal, Position};
use super::session::Connected;
use super::window::{Inflight, Stage};
use super::{Session, Turn};

/// The way out of a session: the outbox of its connection.
pub trait Wire {
    /// Whether one more message may be written; when not, it waits in the queue.
    fn has_room(&self) -> bool;
    /// Where packets are written to.
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// Appends bytes behind what was written, without copying them.
    fn append_shared(&mut self, bytes: Bytes);
}

/// A message on its way to the sessions of one shard. It borrows the bytes of the packet that brought it, and makes a
/// [`Message`] of its own only when the first queue or window has to keep it.
pub struct Outgoing<'a> {
    pub id: MessageId,
    /// See [`Message::stamp`].
    pub stamp: u64,
    pub topic: &'a str,
    pub payload: &'a [u8],
    /// The properties that are forwarded unchanged.
    pub properties: &'a [u8],
    pub qos: QoS,
    pub retain: bool,
    pub expires_at: Option<u64>,
    pub publisher: &'a Arc<str>,
    /// As what the same message may have come before: whoever has got it then does not get it again.
    pub earlier: &'a [MessageId],
    /// An earlier process of this node may have had it: it is not for sessions that have begun since.
    pub resent: bool,
    /// See [`Message::will`].
    pub will: u64,
    /// Of a Will: it was on this node before, and is for those alone who remember what they have had, and have not had it.
    pub known: bool,
    message: OnceCell<Arc<Message>>,
}

impl<'a> Outgoing<'a> {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        id: MessageId,
        topic: &'a str,
        payload: &'a [u8],
        properties: &'a [u8],
        (qos, retain): (QoS, bool),
        expires_at: Option<u64>,
        publisher: &'a Arc<str>,
    ) -> Outgoing<'a> {
        Outgoing {
            id,
            stamp: 0,
            topic,
            payload,
            properties,
            qos,
            retain,
            expires_at,
            publisher,
            earlier: &[],
            resent: false,
            will: 0,
            known: false,
            message: OnceCell::new(),
        }
    }

    pub fn from_message(message: &'a Arc<Message>) -> Outgoing<'a> {
        Outgoing {
            id: message.id,
            stamp: message.stamp,
            topic: &message.topic,
            payload: &message.payload,
            properties: &message.properties,
            qos: message.qos,
            retain: message.retain,
            expires_at: message.expires_at,
            publisher: &message.publisher,
            earlier: &[],
            resent: false,
            will: message.will,
            known: false,
            message: OnceCell::from(message.clone()),
        }
    }

    /// The same, which may have come as one of `earlier` before.
    pub fn again(message: &'a Arc<Message>, earlier: &'a [MessageId]) -> Outgoing<'a> {
        Outgoing { earlier, ..Outgoing::from_message(message) }
    }

    /// It becomes the retained message of its topic at this time. Says so before it goes anywhere.
    pub fn set_stamp(&mut self, stamp: u64) {
        self.stamp = stamp;
        if let Some(message) = self.message.get_mut() {
            Arc::make_mut(message).stamp = stamp;
        }
    }

    /// As what a Will is known. None for what is none.
    pub fn will_name(&self) -> Option<WillName> {
        (self.will > 0).then(|| WillName { client: self.publisher.clone(), epoch: self.will })
    }

    /// The message with bytes of its own, made once.
    pub fn message(&self) -> &Arc<Message> {
        self.message.get_or_init(|| {
            Arc::new(Message {
                id: self.id,
                stamp: self.stamp,
                topic: self.topic.into(),
                payload: Bytes::copy_from_slice(self.payload),
                properties: Bytes::copy_from_slice(self.properties),
                qos: self.qos,
                retain: self.retain,
                expires_at: self.expires_at,
                publisher: self.publisher.clone(),
                name: None,
                will: self.will,
            })
        })
    }
}

/// What the matching subscriptions of one session say about a delivery.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The highest QoS that was granted.
    pub qos: QoS,
    /// The RETAIN flag to send.
    pub retain: bool,
    pub subscription_ids: &'a [u32],
    pub share: Option<ShareText<'a>>,
}

/// The shared subscription that brought a message.
#[derive(Debug, Clone, Copy)]
pub struct ShareText<'a> {
    /// `$share/name/filter`.
    pub text: &'a Arc<str>,
    /// See [`Queued::awaited`].
    pub awaited: bool,
}

/// What the shard has to know of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Taken,
    /// The queue is full and the policy is to disconnect: close with 0x97.
    Overflow,
}

impl Session {
    /// Delivers a message: writes it to `wire` if it may go at once, else queues it, else drops it, counted.
    pub fn deliver<W: Wire, J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
        wire: Option<&mut W>,
    ) -> Verdict {
        let qos = outgoing.qos.min(delivery.qos);
        let Some(wire) = wire else {
            return self.deliver_later(turn, outgoing, delivery, qos);
        };
        if !self.may_read(outgoing.topic) {
            return self.not_taken(turn, outgoing, delivery, DropReason::Acl);
        }
        if !wire.has_room() || !self.may_send(qos) {
            return self.enqueue(turn, outgoing, delivery, qos);
        }
        if outgoing.expires_at.is_some_and(|at| at <= turn.now) {
            return self.not_taken(turn, outgoing, delivery, DropReason::Expired);
        }
        self.send_now(turn, outgoing, delivery, qos, wire);
        Verdict::Taken
    }

    /// Whether a message of this QoS may go out before anything that waits. QoS 0 waits only behind QoS 0; the others wait behind
    /// everything, and for a place in the window [MQTT-3.3.4-9], [MQTT-4.9.0-2]; QoS 1 also behind QoS 2 that waits for the disk.
    fn may_send(&self, qos: QoS) -> bool {
        let Some(connected) = &self.connected else {
            return false;
        };
        if qos == QoS::AtMostOnce {
            !self.queue.holds_qos0()
        } else {
            self.queue.is_empty()
                && (qos == QoS::ExactlyOnce || self.recorded.is_empty())
                && connected.resends.is_empty()
                && self.window.len() < usize::from(connected.window_max)
        }
    }

    /// Whether nothing waits and a message of any QoS could go out at once, so that retained messages may follow.
    pub fn is_caught_up(&self) -> bool {
        self.queue.is_empty() && self.may_send(QoS::AtLeastOnce)
    }

    fn send_now<W: Wire, J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
        qos: QoS,
        wire: &mut W,
    ) {
        if qos == QoS::ExactlyOnce && self.defers(turn) {
            let queued = queued(self.take_position(), outgoing, delivery, qos);
            self.record_first(turn, queued);
            self.note_will(turn, outgoing, delivery);
            return;
        }
        let packet_id = (qos != QoS::AtMostOnce).then(|| self.window.next_packet_id());
        let Some(connected) = &mut self.connected else {
            return;
        };
        let packet =
            Packet { dup: false, qos, retain: delivery.retain, packet_id, subscription_ids: delivery.subscription_ids };
        if !write(connected, turn.now, packet, outgoing, wire) {
            self.not_taken(turn, outgoing, delivery, DropReason::TooLarge);
            return;
        }
        count_sent(turn, qos, outgoing.payload.len());
        let Some(packet_id) = packet_id else { return };
        let position = self.take_position();
        let keep = self.persists() || self.owner.is_some() || delivery.share.is_some();
        let queued = keep.then(|| queued(position, outgoing, delivery, qos)).map(|queued| settle_sent(turn, queued));
        if let Some(queued) = &queued {
            self.put(turn, position, Item::Message { queued, packet_id: Some(packet_id) });
        }
        self.window.push(Inflight { packet_id, stage: sent_stage(qos), position, queued });
        self.note_will(turn, outgoing, delivery);
    }

    /// Whether what is promised has to be kept first.
    fn defers<J: Journal>(&self, turn: &Turn<'_, J>) -> bool {
        self.owner.is_some() && turn.journal.defers()
    }

    /// QoS 2: the message is given its packet identifier, and sent when that is kept: see [`Session::kept`].
    fn record_first<J: Journal>(&mut self, turn: &mut Turn<'_, J>, queued: Queued) {
        let packet_id = self.window.next_packet_id();
        let position = queued.position;
        self.put(turn, position, Item::Message { queued: &queued, packet_id: Some(packet_id) });
        if let Some(owner) = self.owner {
            turn.journal.ask(owner, Asked::Packet(packet_id));
        }
        self.recorded.push_back(packet_id);
        self.window.push(Inflight { packet_id, stage: Stage::QoS2Recorded, position, queued: Some(queued) });
    }

    /// What was written down for this packet of the window is kept, and what waited for that is sent: its PUBLISH, in the order of the
    /// window, or its PUBREL. Without a connection it is left to [`Session::resend`].
    pub fn kept<W: Wire, J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        packet_id: PacketId,
        mut wire: Option<&mut W>,
    ) -> bool {
        let Some(inflight) = self.window.get_mut(packet_id) else {
            return false;
        };
        match inflight.stage {
            Stage::QoS2Recorded => inflight.stage = Stage::QoS2Kept,
            Stage::Received => {
                inflight.stage = Stage::Released;
                if let Some(wire) = wire {
                    self.write_pubrel(turn, packet_id, wire);
                }
                return true;
            }
            _ => return false,
        }
        while let Some(first) = self.recorded.front().copied() {
            let Some(inflight) = self.window.get_mut(first).filter(|first| first.stage == Stage::QoS2Kept) else {
                break;
            };
            inflight.stage = Stage::QoS2Sent;
            self.recorded.pop_front();
            if let Some(wire) = wire.as_deref_mut() {
                self.send_again(turn, first, false, wire);
            }
        }
        true
    }

    fn write_pubrel<W: Wire, J>(&self, turn: &Turn<'_, J>, packet_id: PacketId, wire: &mut W) {
        turn.metrics.packet_sent(PacketType::PubRel as usize);
        let reason = ReasonCode::Success;
        self.write_answer(Answer { kind: AckKind::PubRel, packet_id, reason }, wire.buffer());
    }

    /// No connection: QoS 1 and 2 are kept for the next one [MQTT-4.5.0-1].
    fn deliver_later<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
        qos: QoS,
    ) -> Verdict {
        if qos == QoS::AtMostOnce && !turn.limits.queue_qos0 {
            self.drop_message(turn, DropReason::Disconnected);
            return Verdict::Taken;
        }
        if self.is_held() {
            self.hold_message(turn, outgoing, delivery, qos);
            return Verdict::Taken;
        }
        self.enqueue(turn, outgoing, delivery, qos)
    }

    pub(super) fn enqueue<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
        qos: QoS,
    ) -> Verdict {
        let size = outgoing.message().size();
        let reason = if qos == QoS::AtMostOnce { DropReason::Qos0Slow } else { DropReason::QueueFull };
        if !self.queue.has_room(size, turn.limits.queued_messages_max, turn.limits.queued_bytes_max) {
            self.drop_expired(turn);
        }
        while !self.queue.has_room(size, turn.limits.queued_messages_max, turn.limits.queued_bytes_max) {
            // A message that would not fit into an empty queue pushes nothing out.
            if size > turn.limits.queued_bytes_max || !self.make_room(turn, qos) {
                self.not_taken(turn, outgoing, delivery, reason);
                let disconnects = turn.limits.queue_full == QueueFull::Disconnect && self.connected.is_some();
                return if disconnects && qos != QoS::AtMostOnce { Verdict::Overflow } else { Verdict::Taken };
            }
        }
        let mut queued = queued(self.take_position(), outgoing, delivery, qos);
        if qos != QoS::AtMostOnce {
            queued.kept = !self.defers(turn) || (qos != QoS::ExactlyOnce && !turn.journal.goes_round());
            self.put(turn, queued.position, Item::Message { queued: &queued, packet_id: None });
            self.ask_for_message(turn, &queued);
            self.note_will(turn, outgoing, delivery);
        }
        self.queue.push(queued);
        Verdict::Taken
    }

    /// What has expired makes room before anything else has to go [MQTT-3.3.2-5]. The whole queue is looked through, so this is done
    /// once in a second at the most.
    fn drop_expired<J: Journal>(&mut self, turn: &mut Turn<'_, J>) {
        if !self.queue.holds_expiring() || turn.now < self.look_for_expired_at {
            return;
        }
        self.look_for_expired_at = turn.now + 1_000;
        for expired in self.queue.take(|queued| queued.is_expired(turn.now)) {
            self.drop_queued(turn, &expired, DropReason::Expired);
        }
    }

    /// Drops one message of the queue for a newer one, as the policy says. QoS 0 goes before what was acknowledged to its publisher,
    /// and never pushes that out. False if nothing may go.
    fn make_room<J: Journal>(&mut self, turn: &mut Turn<'_, J>, qos: QoS) -> bool {
        let oldest = match turn.limits.queue_full {
            QueueFull::DropOldest => self.queue.pop_oldest(qos),
            _ if qos != QoS::AtMostOnce => self.queue.pop_qos0(),
            _ => None,
        };
        let Some(oldest) = oldest else { return false };
        let reason = if oldest.qos == QoS::AtMostOnce { DropReason::Qos0Slow } else { DropReason::QueueFull };
        self.drop_queued(turn, &oldest, reason);
        true
    }

    /// The connection is gone: QoS 0 that waited for it goes too, unless it is kept for sessions without one.
    pub fn discard_qos0<J: Journal>(&mut self, turn: &mut Turn<'_, J>) {
        if turn.limits.queue_qos0 && self.persists() {
            return;
        }
        while self.queue.pop_qos0().is_some() {
            self.drop_message(turn, DropReason::Disconnected);
        }
    }

    /// A message of the queue is dropped.
    fn drop_queued<J: Journal>(&mut self, turn: &mut Turn<'_, J>, queued: &Queued, reason: DropReason) {
        settle(turn, queued);
        self.delete_message(turn, queued.position, queued.qos);
        self.drop_message(turn, reason);
    }

    /// A message is dropped as it comes.
    fn not_taken<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
        reason: DropReason,
    ) -> Verdict {
        if delivery.share.is_some_and(|share| share.awaited) {
            turn.journal.settled(outgoing.id);
        }
        self.drop_message(turn, reason);
        Verdict::Taken
    }

    pub(super) fn drop_message<J>(&mut self, turn: &Turn<'_, J>, reason: DropReason) {
        turn.metrics.dropped(reason, 1);
        self.count_dropped();
    }

    /// Sends what waits, as far as the outbox and the window allow. Call it after acknowledgements and when the outbox has
    /// emptied. Returns whether anything was written.
    pub fn pump<W: Wire, J: Journal>(&mut self, turn: &mut Turn<'_, J>, wire: &mut W) -> bool {
        let mut wrote = self.pump_resends(turn, wire);
        while wire.has_room() {
            let Some(queued) = self.next_to_send() else {
                break;
            };
            wrote |= self.send_queued(turn, queued, wire);
        }
        wrote
    }

    fn next_to_send(&mut self) -> Option<Queued> {
        let connected = self.connected.as_ref()?;
        let in_turn = self.recorded.is_empty() || self.queue.is_qos2_in_front();
        let has_place =
            in_turn && connected.resends.is_empty() && self.window.len() < usize::from(connected.window_max);
        self.queue.pop(has_place)
    }

    fn send_queued<W: Wire, J: Journal>(&mut self, turn: &mut Turn<'_, J>, queued: Queued, wire: &mut W) -> bool {
        if queued.is_expired(turn.now) {
            self.drop_queued(turn, &queued, DropReason::Expired);
            return false;
        }
        // What was allowed when it came may not be any more.
        if queued.message().is_some_and(|message| !self.may_read(&message.topic)) {
            self.drop_queued(turn, &queued, DropReason::Acl);
            return false;
        }
        if queued.qos == QoS::ExactlyOnce && self.defers(turn) {
            // Under a new number: what was put under the old one may be on its way by another shard still, and must not come behind this.
            self.delete(turn, queued.position);
            let queued = Queued { position: self.take_position(), ..queued };
            self.record_first(turn, queued);
            return false;
        }
        let packet_id = (queued.qos != QoS::AtMostOnce).then(|| self.window.next_packet_id());
        let (Some(connected), Some(message)) = (&mut self.connected, queued.message()) else {
            return false;
        };
        let packet = Packet::of(&queued, packet_id, false);
        if !write(connected, turn.now, packet, &Outgoing::from_message(message), wire) {
            self.drop_queued(turn, &queued, DropReason::TooLarge);
            return false;
        }
        count_sent(turn, queued.qos, message.payload.len());
        self.enter_window(turn, queued, packet_id);
        true
    }

    fn enter_window<J: Journal>(&mut self, turn: &mut Turn<'_, J>, queued: Queued, packet_id: Option<PacketId>) {
        let Some(packet_id) = packet_id else {
            return;
        };
        let position = queued.position;
        self.put(turn, position, Item::Message { queued: &queued, packet_id: Some(packet_id) });
        let queued = settle_sent(turn, queued);
        let stage = sent_stage(queued.qos);
        let keep = self.persists() || self.owner.is_some() || queued.share.is_some();
        self.window.push(Inflight { packet_id, stage, position, queued: keep.then_some(queued) });
    }

    /// After a reconnect: everything in the window once more, in the old order and with the old packet identifiers, PUBLISH with
    /// DUP 1 [MQTT-3.3.1-1], [MQTT-4.4.0-1]. What the client's new Receive Maximum does not allow yet follows as it acknowledges
    /// [MQTT-3.3.4-9].
    pub fn resend<W: Wire, J: Journal>(&mut self, turn: &mut Turn<'_, J>, wire: &mut W) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        let mut released = Vec::new();
        for inflight in self.window.iter() {
            match inflight.stage {
                Stage::QoS1Sent | Stage::QoS2Sent => connected.resends.push_back(inflight.packet_id),
                Stage::Released => released.push(inflight.packet_id),
                // They are sent when they are kept.
                Stage::QoS2Recorded | Stage::QoS2Kept | Stage::Received => {}
            }
        }
        released.into_iter().for_each(|packet_id| self.write_pubrel(turn, packet_id, wire));
        self.pump_resends(turn, wire);
    }

    /// Sends again what still has to be, as far as the Receive Maximum and the outbox allow. Returns whether anything was written.
    fn pump_resends<W: Wire, J: Journal>(&mut self, turn: &mut Turn<'_, J>, wire: &mut W) -> bool {
        let mut wrote = false;
        while let Some(connected) = &mut self.connected
            && wire.has_room()
            && self.window.len().saturating_sub(connected.resends.len()) < usize::from(connected.window_max)
            && let Some(packet_id) = connected.resends.front().copied()
            && self.window.get_mut(packet_id).is_none_or(|inflight| !inflight.is_stored())
        {
            connected.resends.pop_front();
            wrote |= self.send_again(turn, packet_id, true, wire);
        }
        wrote
    }

    /// What the client's new Maximum Packet Size forbids is dropped [MQTT-3.1.2-25], and what it may not read any more. What has expired was sent before it did, so it is still
    /// delivered to the end (3.3.2.3.3).
    fn send_again<W: Wire, J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        packet_id: PacketId,
        dup: bool,
        wire: &mut W,
    ) -> bool {
        let (Some(connected), Some(inflight)) = (&mut self.connected, self.window.get_mut(packet_id)) else {
            return false;
        };
        // Received meanwhile: the PUBREL has been sent, or will be.
        let Some(queued) = &inflight.queued else {
            return false;
        };
        let Some(message) = queued.message() else {
            return false;
        };
        let packet = Packet::of(queued, Some(packet_id), dup);
        let qos = queued.qos as usize;
        let may_read = connected.rights.as_mut().is_none_or(|rights| rights.may_read(&message.topic));
        if may_read && write(connected, turn.now, packet, &Outgoing::from_message(message), wire) {
            count_packet(turn, message.payload.len());
            turn.metrics.publish_sent[qos].add(u64::from(!dup));
            return true;
        }
        let reason = if may_read { DropReason::TooLarge } else { DropReason::Acl };
        let position = inflight.position;
        if let Some(queued) = self.window.remove(packet_id).and_then(|inflight| inflight.queued) {
            settle(turn, &queued);
        }
        self.delete(turn, position);
        self.drop_message(turn, reason);
        false
    }
}

/// The session is done with a message: who keeps it for that may be told.
pub(super) fn settle<J: Journal>(turn: &mut Turn<'_, J>, queued: &Queued) {
    if queued.awaited
        && let Some(message) = queued.message()
    {
        turn.journal.settled(message.id);
    }
}

/// A message of QoS 2 that has been sent goes to no other member, whatever becomes of this one [MQTT-4.8.2-5]: nobody has to keep it.
fn settle_sent<J: Journal>(turn: &mut Turn<'_, J>, queued: Queued) -> Queued {
    if queued.qos != QoS::ExactlyOnce {
        return queued;
    }
    settle(turn, &queued);
    Queued { awaited: false, ..queued }
}

/// A message is handed to the connection for the first time.
fn count_sent<J>(turn: &Turn<'_, J>, qos: QoS, payload_len: usize) {
    turn.metrics.publish_sent[qos as usize].add(1);
    count_packet(turn, payload_len);
}

/// The same, or once more.
fn count_packet<J>(turn: &Turn<'_, J>, payload_len: usize) {
    turn.metrics.packet_sent(PacketType::Publish as usize);
    turn.metrics.publish_bytes_sent.add(payload_len as u64);
}

fn sent_stage(qos: QoS) -> Stage {
    if qos == QoS::ExactlyOnce { Stage::QoS2Sent } else { Stage::QoS1Sent }
}

pub(super) fn queued(position: Position, outgoing: &Outgoing<'_>, delivery: Delivery<'_>, qos: QoS) -> Queued {
    Queued {
        position,
        body: QueuedBody::Here(outgoing.message().clone()),
        qos,
        retain: delivery.retain,
        subscription_ids: SubscriptionIds::from_slice(delivery.subscription_ids),
        share: delivery.share.map(|share| share.text.clone()),
        kept: true,
        awaited: delivery.share.is_some_and(|share| share.awaited),
    }
}

/// Bytes of the property Topic Alias.
const ALIAS_BYTES: i64 = 3;

/// What differs from one delivery of a message to the next.
struct Packet<'a> {
    dup: bool,
    qos: QoS,
    retain: bool,
    packet_id: Option<PacketId>,
    subscription_ids: &'a [u32],
}

impl Packet<'_> {
    fn of(queued: &Queued, packet_id: Option<PacketId>, dup: bool) -> Packet<'_> {
        let Queued { qos, retain, .. } = *queued;
        Packet { dup, qos, retain, packet_id, subscription_ids: queued.subscription_ids.as_slice() }
    }
}

/// Writes a PUBLISH. False, and nothing written, when it is larger than the client accepts [MQTT-3.1.2-24].
fn write<W: Wire>(
    connected: &mut Connected,
    now: u64,
    packet: Packet<'_>,
    outgoing: &Outgoing<'_>,
    wire: &mut W,
) -> bool {
    let mut head = PublishHead {
        dup: packet.dup,
        qos: packet.qos,
        retain: packet.retain,
        topic: outgoing.topic,
        packet_id: packet.packet_id,
        message_expiry_secs: remaining_secs(outgoing.expires_at, now),
        topic_alias: None,
        subscription_ids: packet.subscription_ids,
        properties: outgoing.properties,
        payload_len: outgoing.payload.len(),
    };
    let spare = i64::from(connected.packet_size_max) - head.packet_len(connected.version) as i64;
    if spare < 0 {
        return false;
    }
    // The first use of an alias makes the packet longer, perhaps by one more byte of its length fields.
    let may_alias = spare > ALIAS_BYTES;
    if may_alias && let Some((alias, known)) = connected.outbound_aliases.alias_for(outgoing.topic) {
        head.topic_alias = Some(alias);
        if known {
            head.topic = "";
        }
    }
    head.encode(connected.version, wire.buffer());
    if outgoing.payload.len() <= limits::INLINE_PAYLOAD_BYTES {
        wire.buffer().extend_from_slice(outgoing.payload);
    } else {
        wire.append_shared(outgoing.message().payload.clone());
    }
    true
}
