//! A section: what one packet or event writes down.
//!
//! Entries of a section go the same way: with the next submission of the shard, or with the parts of a message to the shard that accepted it. Invariant: the
//! entries of an open section are those of one packet or event alone.

use std::sync::Arc;

use holdfast_storage::{Entry, OwnerId};

use crate::journal;
use crate::mqtt::{MessageId, WillName};
use crate::session::{Asked, Item, Journal, Position};

use super::marks::Coming;

/// Takes down what sessions write.
#[derive(Default)]
pub(in crate::shard) struct Section {
    /// Whether answers wait for the disk.
    pub(super) defers: bool,
    /// What is written down is one of the parts of a message.
    pub(super) parts: bool,
    /// What came live to the sessions that write.
    pub(super) coming: Coming,
    pub(super) entries: Vec<Entry>,
    /// Who is to be told when the entries are kept.
    pub(super) asked: Vec<(OwnerId, Asked)>,
    /// Messages that other nodes kept for sessions which are done with them.
    pub(super) settled: Vec<MessageId>,
    /// The Wills that sessions have had from now on.
    pub(super) wills: Vec<(OwnerId, WillName)>,
}

impl Journal for Section {
    fn put(&mut self, owner: OwnerId, position: Position, item: Item<'_>) {
        let body = match item {
            Item::Message { queued, .. } => queued.message().map(|message| message.clone() as Arc<_>),
            Item::HadWill { will } => {
                self.wills.push((owner, will.clone()));
                None
            }
            _ => None,
        };
        self.entries.push(Entry::Put { owner, item: position, value: journal::encode_item(item), body });
    }

    fn delete(&mut self, owner: OwnerId, position: Position) {
        self.entries.push(Entry::Delete { owner, item: position });
    }

    fn defers(&self) -> bool {
        self.defers
    }

    fn goes_round(&self) -> bool {
        self.parts
    }

    fn ask(&mut self, owner: OwnerId, asked: Asked) {
        self.asked.push((owner, asked));
    }

    fn settled(&mut self, id: MessageId) {
        self.settled.push(id);
    }
}
