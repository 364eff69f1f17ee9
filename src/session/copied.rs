//! A session as its items say it, for a copy of it on another node. It goes on meanwhile: what changes is written down, and that comes to the copy too.

use super::queue::Queued;
use super::record::{Item, Position};
use super::session::Session;
use super::window::{Inflight, Stage};
use crate::mqtt::PacketId;

impl Session {
    /// Calls `each` with all items that bring no message.
    pub fn items_without_message(&self, mut each: impl FnMut(Position, Item<'_>)) {
        for (filter, (position, subscription)) in &self.subscriptions {
            each(*position, Item::Subscription { filter, subscription: *subscription });
        }
        if let Some((position, missed)) = self.missed.as_deref() {
            each(*position, Item::Missed { missed });
        }
        if let Some((position, seen)) = self.elsewhere.written() {
            each(position, Item::Seen { seen });
        }
        for (will, position) in self.wills.iter() {
            each(position, Item::HadWill { will });
        }
        for (packet_id, accepted) in &self.accepted {
            each(accepted.position, Item::Accepted { packet_id: *packet_id, names: accepted.message.names() });
        }
        for inflight in self.window.iter().filter(|inflight| is_received(inflight)) {
            each(inflight.position, Item::Received { packet_id: inflight.packet_id });
        }
    }

    /// The positions of the messages that are written down, in the order of the window and of the queue.
    pub fn message_positions(&self) -> Vec<Position> {
        let inflight = self.window.iter().filter(|inflight| !is_received(inflight) && inflight.queued.is_some());
        let inflight = inflight.map(|inflight| inflight.position);
        inflight.chain(self.queue.kept_from(0).map(|queued| queued.position)).collect()
    }

    /// The message at `position` as it is written down, with the packet identifier that it has been given; `None` if it is not there any more.
    pub fn written_message(&self, position: Position) -> Option<(&Queued, Option<PacketId>)> {
        if let Some(queued) = self.queue.get(position) {
            return Some((queued, None));
        }
        let inflight = self.window.iter().find(|inflight| inflight.position == position && !is_received(inflight))?;
        inflight.queued.as_ref().map(|queued| (queued, Some(inflight.packet_id)))
    }
}

/// Whether PUBREC has come for it.
fn is_received(inflight: &Inflight) -> bool {
    matches!(inflight.stage, Stage::Received | Stage::Released)
}
