//! Whether a member of a share group has a message of QoS 2 already: this shard asks all nodes, and answers for its own.
//!
//! The shell of the questions of [`share_groups`](crate::cluster::share_groups): they go as frames of the shard's stream, and are answered like messages for a member. What members
//! of this node have stands in [`SharesHad`](super::shared::SharesHad), for all shards.
//!
//! Owner: the shard that keeps the message, of its questions. Invariants: nobody answers, and this node does not begin to ask, before all that it inherits is entered, and before each of
//! its shards has stopped to take what a dead node has sent: what is not known then never will be.
//!
//! Test to read first: `cluster-tests/tests/cluster/shares.rs`.

use std::sync::Arc;

use holdfast_raft::Incarnation;
use holdfast_storage::{OwnerId, Value};

use crate::cluster::copies::receiving::Copies;
use crate::cluster::copies::{CopyEntry, Home};
use crate::cluster::share_groups::{Rank, SharedMessage};
use crate::journal;
use crate::link::frame::{AnswerFrame, Ask, DataFrame, NO_MEMBER};
use crate::mqtt::{Message, MessageId, QoS};

use crate::subscriptions::SessionKey;

use super::Shard;
use super::from_peers::StreamKey;
use super::peers::slots_of;

impl Shard {
    /// A member here is given the message, or is about to be. `given`: by that node, where it had such an id.
    pub(super) fn note_had(&self, share: &str, message: &Message, given: Option<(u64, MessageId)>) {
        if self.keeping.has_copies() && message.qos == QoS::ExactlyOnce {
            let known_by = [message.id].into_iter().chain(message.name).map(|id| SharedMessage::new(share, id));
            let given = given.map(|(node, id)| SharedMessage::new(share, id).given_by(node));
            self.shared.shares_had.note(known_by.chain(given));
        }
    }

    /// No member here takes it.
    pub(super) fn note_refused(&self, share: &str, message: &Message) {
        if self.keeping.has_copies() && message.qos == QoS::ExactlyOnce {
            self.shared.shares_had.forget(SharedMessage::new(share, message.id));
        }
    }

    /// A node is dead, and this shard takes nothing from it any more.
    pub(super) fn note_death(&mut self, death: (u64, u64)) {
        self.peers.last_death = Some(death);
        self.shared.shares_had.note_death(self.id, death);
    }

    /// A node has begun anew, or this one has: nothing that its earlier life had sent is taken any more. It may never have been given up.
    pub(super) fn note_begun(&mut self, node: u64, incarnation: Incarnation) {
        let before = (node, incarnation.saturating_sub(1));
        if node == self.shared.node_tag {
            // A death that is not over yet counts for more.
            let of_itself = self.peers.last_death.is_none_or(|(other, _)| other == node);
            self.peers.last_death = if of_itself { Some(before) } else { self.peers.last_death };
        } else {
            self.shared.shares_had.note_death(self.id, before);
        }
    }

    /// Whether not all is known yet that a node had until that death.
    fn is_behind(&self, death: Option<(u64, u64)>) -> bool {
        let lives = |(node, incarnation): (u64, u64)| {
            let is_live = self.peers.incarnation_of(node).is_some_and(|live| live <= incarnation);
            is_live || !self.shared.shares_had.is_known_to_all((node, incarnation), self.mail.len())
        };
        death.is_some_and(lives)
    }

    /// Whether a question of another node is to wait. Not for what is inherited from a node of whose death the asker does not know: its word that it does stands behind the question, and is
    /// waited for before anything is entered. It has asked the dead one too, and asks everybody again when it knows.
    pub(super) fn must_wait_to_answer(&self, of: StreamKey, ask: &Ask<'_>) -> bool {
        self.heir.is_inheriting_for(self.source_of(of)) || self.is_behind(ask.behind)
    }

    /// Asks all other nodes, if this one has not got the message.
    pub(super) fn ask_everybody(&mut self, number: u64) {
        // It comes again with the next tick.
        if self.heir.is_inheriting() || self.is_behind(self.peers.last_death) {
            return;
        }
        let Some((share, ids, rank)) = self.share_groups.question(number) else { return };
        let share = share.clone();
        self.metrics().shares_asked.add(1);
        let actions = if self.has_had(&share, ids.all(), rank) {
            self.share_groups.is_had(number)
        } else {
            let frames = slots_of(self.peers.all()).filter_map(|slot| {
                let node = self.peers.node(slot)?;
                let sequence = self.next_message_id().sequence;
                let (behind, rank) =
                    (self.peers.last_death, rank.map(|rank| [rank.home, rank.node, rank.owner, rank.item, rank.began]));
                let ask = Ask { sequence, behind, rank, share: &share, ids };
                self.push_leg(slot, sequence, None, &DataFrame::Ask(ask));
                Some((node, sequence))
            });
            let frames = frames.collect();
            self.share_groups.asked(number, frames)
        };
        self.carry_out_shares(actions);
    }

    /// What a session has not sent that was inherited may be with another member: it is out of the session until that is known.
    pub(super) fn ask_for_doubtful(&mut self, session: SessionKey, owner: OwnerId, rank: Rank) {
        let slot = &mut self.sessions[session as usize];
        let doubtful = slot.session.take_doubtful();
        if !doubtful.is_empty() {
            slot.items_away = true;
            self.keeping.give_away(owner, &doubtful);
            self.read_back_to_ask(owner, doubtful, rank);
        }
    }

    /// Another node asks.
    pub(super) fn answer_question(&mut self, of: StreamKey, ask: &Ask<'_>) {
        let sequence = ask.sequence;
        let is_had = self.has_had(
            ask.share,
            ask.ids.all(),
            ask.rank.map(|[home, node, owner, item, began]| Rank { home, node, owner, item, began }),
        );
        self.answer_peer(
            of,
            if is_had {
                AnswerFrame::Settled { sequence }
            } else {
                AnswerFrame::Refused { sequence, reason: NO_MEMBER }
            },
        );
    }

    fn has_had(&self, share: &str, ids: &[MessageId], asks: Option<Rank>) -> bool {
        let known = |id: &MessageId| {
            let message = SharedMessage::new(share, *id);
            let message = asks.map_or(message, |asks| message.given_by(asks.home));
            self.shared.shares_had.has(message, asks) || self.shared_before.0.contains(&message)
        };
        ids.iter().any(known)
    }

    /// No member here takes the message, and the node is dead that has sent it: this one finds another member. False: that node lives.
    pub(super) fn is_left_by_origin(&self, message: &Arc<Message>) -> bool {
        let is_here = message.id.node == self.shared.node_tag;
        let lives = is_here || self.peers.incarnation_of(message.id.node).is_some();
        self.keeping.has_copies() && !self.share_groups.is_apart() && !lives
    }
}

/// What copies say.
impl Shard {
    /// What a member had of a share group and is done with was his. What the session has when its home dies is noted then.
    pub(super) fn note_done_with(&self, home: Home, copies: &Copies, entries: &[CopyEntry]) {
        let changed = entries.iter().filter_map(|entry| match entry {
            CopyEntry::Delete { owner, item } => Some((*owner, *item)),
            CopyEntry::Put { owner, item, value, .. } => (!journal::is_shared_once(value)).then_some((*owner, *item)),
            _ => None,
        });
        let before = changed.filter_map(|(owner, item)| copies.value(home, owner, item));
        // What was not sent may have been given to another member.
        let sent = before.filter(|value| journal::is_shared_once(value) && !journal::is_unsent(value));
        sent.for_each(|value| self.note_sent(home.node.tag(), value));
    }

    /// Nobody else gets what a session has been sent on the node of that tag.
    fn note_sent(&self, home: u64, value: &Value) {
        self.shared.shares_had.note_sent(home, value);
    }
}
