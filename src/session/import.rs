//! A session on its way in: what another node has of it, and what comes for it here meanwhile.
//!
//! The order is [`Session::hold`], [`Session::import`] for its subscriptions, its entry into the index, `import` for everything else, and [`Session::adopt`].

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_storage::OwnerId;

use crate::metrics::DropReason;
use crate::mqtt::{Message, MessageId, PacketId, QoS};

use super::export::Bounds;
use super::outbound::{Delivery, Outgoing, ShareText, queued};
use super::queue::{QueueFull, Queued};
use super::record::{Item, Journal, Position, Restored};
use super::seen::{Elsewhere, Missed, Seen};
use super::{Session, Turn};

/// What comes for a session that is not here yet. Its messages have no position and are written down nowhere: the node that has the session gets them too.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Each with the names as which it may have come before.
    messages: VecDeque<(Queued, Box<[MessageId]>)>,
    bytes: usize,
}

impl Session {
    /// A session on its way here, for a connection that has asked for this Session Expiry Interval: what it gets before that connection is let in is kept as it is after.
    pub fn arriving(client_id: Arc<str>, owner: Option<OwnerId>, epoch: u64, expiry_secs: u32) -> Session {
        let mut session = Session::new(client_id, owner);
        session.set_epoch(epoch);
        session.set_expiry_secs(expiry_secs);
        session.hold();
        session
    }

    /// From now on what is delivered is held, within the limits of the queue, until [`Session::adopt`].
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Whether what is delivered is held.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Ends the holding and returns what was held, for a session that is not adopted after all.
    pub fn take_held(&mut self) -> Vec<Queued> {
        let held = self.held.take().unwrap_or_default();
        held.messages.into_iter().map(|(queued, _)| queued).collect()
    }

    /// Holds a message; a full hold follows the policy of the queue.
    pub(super) fn hold_message<J>(
        &mut self,
        turn: &Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
        qos: QoS,
    ) {
        let Some(held) = &mut self.held else { return };
        let limits = turn.limits;
        let size = outgoing.message().size();
        let mut dropped = 0;
        let full = |held: &Held| {
            held.messages.len() >= limits.queued_messages_max || held.bytes + size > limits.queued_bytes_max
        };
        while full(held)
            && limits.queue_full == QueueFull::DropOldest
            && let Some((oldest, _)) = held.messages.pop_front()
        {
            held.bytes -= oldest.size();
            dropped += 1;
        }
        if full(held) {
            dropped += 1;
        } else {
            held.bytes += size;
            held.messages.push_back((queued(0, outgoing, delivery, qos), outgoing.earlier.into()));
        }
        (0..dropped).for_each(|_| self.drop_message(turn, DropReason::QueueFull));
    }

    /// Takes an item of another node and writes it down. Messages of the queue come in the order of their positions, those of the window in its order.
    pub fn import<J: Journal>(&mut self, turn: &mut Turn<'_, J>, position: Position, restored: Restored) {
        match &restored {
            Restored::Subscription { filter, subscription } => {
                self.put(turn, position, Item::Subscription { filter, subscription: *subscription });
            }
            Restored::Message { queued, packet_id } if queued.qos != QoS::AtMostOnce => {
                self.put(turn, position, Item::Message { queued, packet_id: *packet_id });
                if packet_id.is_none() {
                    self.ask_for_message(turn, queued);
                }
            }
            Restored::Message { .. } => {}
            Restored::Received { packet_id } => self.put(turn, position, Item::Received { packet_id: *packet_id }),
            Restored::Accepted { packet_id, names } => {
                self.put(turn, position, Item::Accepted { packet_id: *packet_id, names: names.as_deref() });
            }
            Restored::Missed { missed } => self.put(turn, position, Item::Missed { missed }),
            Restored::Seen { seen } => self.put(turn, position, Item::Seen { seen }),
            Restored::HadWill { will } => self.put(turn, position, Item::HadWill { will }),
        }
        self.restore(position, restored);
    }

    /// Everything has been imported: what was held comes behind it, but for what the other node had `seen`. `here`: what this shard has seen; what the other
    /// node has seen beyond that comes again, for which see [`Session::repeats`]. `missed`: what this shard had seen before the session was in its index, and the other node never
    /// will.
    pub fn adopt<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        bounds: Bounds,
        seen: Seen,
        (here, missed): (&Seen, &[Missed]),
    ) {
        self.next_position = self.next_position.max(bounds.next_position);
        if let Some(last) = PacketId::new(bounds.last_packet_id) {
            self.window.resume_after(last);
        }
        let mut held = self.held.take().unwrap_or_default().messages;
        held.retain(|(held, _)| held.message().is_some_and(|message| !seen.contains(message.id)));
        self.add_missed(turn, missed, here);
        self.has_seen(turn, seen, here);
        for (held, earlier) in held {
            if let Some(message) = held.message().filter(|_| !self.has_got_any(&earlier, here)) {
                self.append(turn, message, &held);
            }
        }
    }

    /// A session that was found again had `seen` that where it was; what comes of it here, comes again. `here`: as in [`Session::adopt`]. It is written down: this node may start anew
    /// before it comes.
    pub fn has_seen<J: Journal>(&mut self, turn: &mut Turn<'_, J>, mut seen: Seen, here: &Seen) {
        let known = self.elsewhere.written().map(|(position, known)| {
            seen.merge(known);
            position
        });
        seen.without(here);
        if seen.is_empty() && known.is_none() {
            return;
        }
        let position = known.unwrap_or_else(|| self.take_position());
        self.put(turn, position, Item::Seen { seen: &seen });
        self.elsewhere = Elsewhere::new(position, seen);
    }

    fn append<J: Journal>(&mut self, turn: &mut Turn<'_, J>, message: &Arc<Message>, held: &Queued) {
        let delivery = Delivery {
            qos: held.qos,
            retain: held.retain,
            subscription_ids: held.subscription_ids.as_slice(),
            share: held.share.as_ref().map(|text| ShareText { text, awaited: held.awaited }),
        };
        let outgoing = Outgoing::from_message(message);
        if self.wants_will(&outgoing, delivery) {
            self.enqueue(turn, &outgoing, delivery, held.qos);
        }
    }

    /// Whether the session got this message where it was before. To be asked once for each message that comes live, not by a share group and
    /// not as a retained value.
    pub fn repeats(&mut self, id: MessageId) -> bool {
        self.elsewhere.repeats(id)
    }
}
