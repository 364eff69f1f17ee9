//! Messages that are on disk alone, and are read when their turn comes: to be sent, or to be offered to another member of a share group. The shard asks and goes on;
//! the answer comes by the mailbox.

use std::sync::Arc;

use holdfast_storage::{ItemId, OwnerId};
use tracing::error;

use crate::cluster::share_groups::{Keeper, Offer, Rank};
use crate::journal;
use crate::metrics;
use crate::mqtt::{Message, Names};
use crate::session::{Position, Queued};
use crate::subscriptions::SessionKey;

use super::mailbox::Ticket;
use super::moving::WaitsFor;
use super::{Shard, Turn, turn};

/// The ticket of what a session reads back for its own connection.
const FOR_ITSELF: Ticket = 0;

impl Shard {
    /// Asks for the messages without which a session cannot go on sending.
    pub(super) fn read_back_wanted(&mut self, session: SessionKey) {
        let state = &mut self.sessions[session as usize].session;
        let (Some(owner), Some(storage)) = (state.owner(), self.keeping.storage()) else {
            return;
        };
        let wanted = state.wanted(self.shared.limits.queue_window_bytes);
        if !wanted.is_empty() {
            let wanted = wanted.into_iter().map(|position| (owner, position)).collect();
            storage.load(self.id.into(), FOR_ITSELF, wanted);
        }
    }

    /// Asks for messages of a session that goes to another node.
    pub(super) fn read_back_positions(&mut self, session: SessionKey, positions: Vec<Position>) {
        let owner = self.sessions[session as usize].session.owner();
        if let (Some(owner), Some(storage)) = (owner, self.keeping.storage()) {
            let wanted = positions.into_iter().map(|position| (owner, position)).collect();
            storage.load(self.id.into(), FOR_ITSELF, wanted);
        }
    }

    /// Asks for messages that a session gave back.
    pub(super) fn read_back_to_offer(&mut self, owner: OwnerId, given: Vec<Queued>) {
        self.read_back_given(owner, given, None);
    }

    /// Asks for messages of a session that was inherited, or found at a start, and which may be another member's.
    pub(super) fn read_back_to_ask(&mut self, owner: OwnerId, given: Vec<Queued>, rank: Rank) {
        self.read_back_given(owner, given, Some(rank));
    }

    fn read_back_given(&mut self, owner: OwnerId, given: Vec<Queued>, rank: Option<Rank>) {
        let Some(storage) = self.keeping.storage().filter(|_| !given.is_empty()) else {
            return;
        };
        self.next_ticket += 1;
        let wanted = given.iter().map(|queued| (owner, queued.position)).collect();
        storage.load(self.id.into(), self.next_ticket, wanted);
        self.offered.insert(self.next_ticket, (given, rank));
    }

    /// The storage has read what was asked for.
    pub(super) fn read_back(&mut self, ticket: Ticket, bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)>) {
        let bodies = bodies.into_iter().map(|(owner, item, bytes)| {
            let message = bytes.and_then(|bytes| journal::decode_message(&bytes)).map(Arc::new);
            (owner, item, message)
        });
        match self.offered.remove(&ticket) {
            Some((given, rank)) => self.offer_read_back(given, rank, bodies.collect()),
            None => {
                if let Some(bodies) = self.read_back_to_copy(ticket, bodies.collect()) {
                    self.send_read_back(bodies);
                }
            }
        }
    }

    fn send_read_back(&mut self, bodies: Vec<(OwnerId, ItemId, Option<Arc<Message>>)>) {
        let Some(session) = bodies.first().and_then(|(owner, ..)| self.by_owner.get(owner)).copied() else {
            return;
        };
        let slot = &mut self.sessions[session as usize];
        slot.session.reading_ends();
        let mut turn = turn!(self);
        let mut lost = 0;
        for (_, position, message) in bodies {
            lost += u64::from(!slot.session.read_back(&mut turn, position, message));
        }
        if lost > 0 {
            log_lost(slot.session.client_id(), lost);
        }
        if let Some(key) = slot.connection {
            self.pump(key);
            self.mark_dirty(key);
        }
        self.go_on_giving(session, WaitsFor::ReadBack);
    }

    fn offer_read_back(
        &mut self,
        given: Vec<Queued>,
        rank: Option<Rank>,
        bodies: Vec<(OwnerId, ItemId, Option<Arc<Message>>)>,
    ) {
        for (queued, (owner, item, message)) in given.into_iter().zip(bodies) {
            let from = Some((owner, item));
            match (queued.share, message) {
                (Some(share), Some(message)) => {
                    self.keeping.close_section();
                    let known_by = Names::new(message.id);
                    let offer = Offer::new(share, message, Keeper::Here).with_item(from);
                    match rank {
                        Some(rank) => self.share_groups.ask(offer, known_by, Some(Rank { item, ..rank })),
                        None => self.offer(offer),
                    }
                }
                _ => {
                    self.metrics().dropped(metrics::DropReason::Damaged, 1);
                    log_lost("", 1);
                    self.delivered(None, from);
                }
            }
        }
    }

    /// There is room on the disk again, or there is none: who was held looks for himself.
    pub(super) fn storage_changed(&mut self) {
        if !self.storage_is_short() {
            self.read_on();
        }
    }
}

fn log_lost(client_id: &str, messages: u64) {
    if let Some(left_out) = metrics::admit_line("messages that cannot be read back") {
        let left_out = (left_out > 0).then_some(left_out);
        error!(
            event = "storage",
            client_id,
            messages,
            left_out,
            "queued messages could not be read back from disk and are lost: run `holdfast data verify`"
        );
    }
}
