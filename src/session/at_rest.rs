//! The part of a session that is on disk: messages that leave the memory and come back, and what a restart finds.

use std::sync::Arc;

use crate::limits;
use crate::metrics::DropReason;
use crate::mqtt::{Message, MessageId, QoS};

use super::inbound::{Accepted, Routing};
use super::queue::{Queued, QueuedBody};
use super::record::{Asked, Journal, Position, Restored};
use super::seen::Elsewhere;
use super::window::{Inflight, Stage};
use super::{Session, Turn};

impl Session {
    /// A message has entered the queue: whether something is to be done when it is kept.
    pub(super) fn ask_for_message<J: Journal>(&self, turn: &mut Turn<'_, J>, queued: &Queued) {
        let too_much = self.queue.bytes_here() + queued.size() > turn.limits.queue_window_bytes;
        if let Some(owner) = self.owner
            && (too_much || !queued.kept)
        {
            turn.journal.ask(owner, Asked::Message(queued.position));
        }
    }

    /// The message at `position` is kept: it may be sent, and leaves the memory if the queue has too much there. Returns the message if
    /// it waits for that still.
    pub fn message_kept(&mut self, window_bytes: usize, position: Position) -> Option<&Queued> {
        let stored = self.queue.set_kept(position)?.stored_body();
        if self.queue.bytes_here() > window_bytes {
            self.queue.set_body(position, QueuedBody::Stored(stored));
        }
        self.queue.get(position)
    }

    /// The messages to be read back now, so that sending can go on: none while it can, nor while some are on their way already.
    pub fn wanted(&mut self, window_bytes: usize) -> Vec<Position> {
        let Some(connected) = self.connected.as_ref().filter(|_| !self.loading) else {
            return Vec::new();
        };
        let at_most = limits::READ_BACK_MESSAGES;
        let wanted: Vec<Position> = if connected.resends.is_empty() {
            self.queue.stored_in_front(window_bytes, at_most)
        } else {
            let mut before = 0;
            let stored = self.window.iter().filter(|inflight| inflight.is_stored()).take_while(|inflight| {
                let within = before == 0 || before <= window_bytes;
                before += inflight.queued.as_ref().map_or(0, Queued::size);
                within
            });
            stored.map(|inflight| inflight.position).take(at_most).collect()
        };
        self.loading = !wanted.is_empty();
        wanted
    }

    /// What was asked for has been read: each message comes with [`Session::read_back`] or not at all.
    pub fn reading_ends(&mut self) {
        self.loading = false;
    }

    /// A message has been read back; `None` if it could not be, and is lost. Returns false in that case.
    pub fn read_back<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        position: Position,
        message: Option<Arc<Message>>,
    ) -> bool {
        let Some(message) = message else {
            return !self.lose(turn, position);
        };
        let body = QueuedBody::Here(message);
        if let Some(queued) = self.window.get_position(position).and_then(|inflight| inflight.queued.as_mut()) {
            queued.body = body;
        } else {
            self.queue.set_body(position, body);
        }
        true
    }

    fn lose<J: Journal>(&mut self, turn: &mut Turn<'_, J>, position: Position) -> bool {
        let in_window = self.window.get_position(position).map(|inflight| inflight.packet_id);
        let known = match in_window {
            Some(packet_id) => {
                self.no_resend(packet_id);
                self.window.remove(packet_id).is_some()
            }
            None => self.queue.remove(position).is_some(),
        };
        if known {
            self.delete(turn, position);
            self.drop_message(turn, DropReason::Damaged);
        }
        known
    }

    /// Puts an item back that was found at the start. Items come in the order of their positions.
    pub fn restore(&mut self, position: Position, restored: Restored) {
        self.next_position = self.next_position.max(position + 1);
        match restored {
            Restored::Subscription { filter, subscription } => self.enter(filter, position, subscription),
            Restored::Message { queued, packet_id: None } => self.queue.push(queued),
            Restored::Message { queued, packet_id: Some(packet_id) } => {
                let stage = if queued.qos == QoS::ExactlyOnce { Stage::QoS2Sent } else { Stage::QoS1Sent };
                self.window.push(Inflight { packet_id, stage, position, queued: Some(queued) });
            }
            Restored::Received { packet_id } => {
                self.window.push(Inflight { packet_id, stage: Stage::Released, position, queued: None });
            }
            Restored::Accepted { packet_id, names } => {
                self.accepted.insert(packet_id, Accepted { position, message: Routing::restored(names) });
            }
            Restored::Missed { missed } => self.missed = Some(Box::new((position, missed))),
            Restored::Seen { mut seen } => {
                self.elsewhere.get().into_iter().for_each(|other| seen.merge(other));
                self.elsewhere = Elsewhere::new(position, seen);
            }
            Restored::HadWill { will } => self.wills.enter(will, position),
        }
    }

    /// Everything that was found has been put back. That a message of QoS 1 was sent is written down without haste; so one that waits may have been sent
    /// before one that is known to have been. Then both wait, in their order [MQTT-4.6.0-1].
    pub fn restored(&mut self) {
        let at_least_once = |queued: &&Queued| queued.qos == QoS::AtLeastOnce;
        let Some(first) = self.queue.iter().find(at_least_once).map(|queued| queued.position) else {
            return;
        };
        let sent = self.window.take(|inflight| inflight.stage == Stage::QoS1Sent && inflight.position > first);
        if !sent.is_empty() {
            let mut waiting = self.queue.take(|_| true);
            waiting.extend(sent.into_iter().filter_map(|inflight| inflight.queued));
            waiting.sort_by_key(|queued| queued.position);
            waiting.into_iter().for_each(|queued| self.queue.push(queued));
        }
    }

    /// The messages that another node keeps until this session is done with them, which it is when it ends.
    pub fn awaited(&self) -> impl Iterator<Item = MessageId> {
        let inflight = self.window.iter().filter_map(|inflight| inflight.queued.as_ref());
        let awaited = inflight.chain(self.queue.iter()).filter(|queued| queued.awaited);
        awaited.filter_map(Queued::message).map(|message| message.id)
    }

    /// Whoever keeps messages on the node of that tag is gone: they are this session's own from now on. Which these are.
    pub fn keep_awaited(&mut self, origin: u64) -> Vec<MessageId> {
        let inflight = self.window.iter_mut().filter_map(|inflight| inflight.queued.as_mut());
        let all = inflight.chain(self.queue.iter_mut()).filter(|queued| queued.awaited);
        let kept = all.filter_map(|queued| {
            let id = queued.message().map(|message| message.id).filter(|id| id.node == origin)?;
            queued.awaited = false;
            Some(id)
        });
        kept.collect()
    }

    /// The positions of everything that is written down.
    pub fn positions(&self) -> Vec<Position> {
        let subscriptions = self.subscriptions.values().map(|(position, _)| *position);
        let queued = self.queue.iter().filter(|queued| queued.qos != QoS::AtMostOnce).map(|queued| queued.position);
        let inflight = self.window.iter().map(|inflight| inflight.position);
        let accepted = self.accepted.values().map(|accepted| accepted.position);
        let missed = self.missed.iter().map(|missed| missed.0);
        let wills = self.wills.iter().map(|(_, position)| position);
        subscriptions.chain(queued).chain(inflight).chain(accepted).chain(missed).chain(wills).collect()
    }
}
