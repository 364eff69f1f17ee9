//! Shared subscriptions: which member gets a message, on this node or on another one (4.8.2).
//!
//! The node of the publisher picks a node, that node a member. A member on another node is owed the message until it has acknowledged it, or until it stands in a queue that
//! outlives its connection: the node of the publisher keeps it for so long, and gives it to somebody else when that node dies, or has nobody any more. A node without a
//! connected member refuses, and another one is picked; only when no node has one does a detached member get it.
//!
//! Owner: the shard of the publisher, in [`OwedShares`] of each peer.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::limits;
use crate::link::frame::{AnswerFrame, DataFrame, NO_MEMBER};
use crate::metrics::DropReason;
use crate::mqtt::{Message, MessageId, PacketId, QoS};
use crate::session::{Delivery, Outgoing, SubscriptionIds};
use crate::subscriptions::{NodeSlot, Picked, SessionKey, ShareNode};
use crate::topic::TopicFilter;

use super::Shard;
use super::from_peers::StreamKey;
use super::keeping::{Due, Owed};
use super::mailbox::Event;
use super::peers::frame_of;

/// A message that a member on another node has not acknowledged yet.
struct OwedShare {
    sequence: u64,
    message: Arc<Message>,
    share: Arc<str>,
    attempts: u8,
    /// What waits until it is accepted; nothing once it was.
    owed: Owed,
}

/// The messages for share groups that one other node was given, in the order of their sequences.
#[derive(Default)]
pub(super) struct OwedShares(VecDeque<OwedShare>);

impl OwedShares {
    /// Everything up to a sequence is accepted: returns what waited for that.
    pub fn accepted(&mut self, up_to: u64) -> SmallVec<[Owed; 4]> {
        let accepted = self.0.iter_mut().take_while(|owed| owed.sequence <= up_to);
        accepted.map(|owed| std::mem::take(&mut owed.owed)).filter(|owed| *owed != Owed::default()).collect()
    }

    /// What the node had accepted, below a sequence.
    pub fn take_before(&mut self, sequence: u64) -> OwedShares {
        let at = self.0.partition_point(|owed| owed.sequence < sequence);
        let rest = self.0.split_off(at);
        OwedShares(std::mem::replace(&mut self.0, rest))
    }

    /// A member has it for good, or nobody there takes it.
    fn remove(&mut self, sequence: u64) -> Option<OwedShare> {
        let at = self.0.binary_search_by_key(&sequence, |owed| owed.sequence).ok()?;
        self.0.remove(at)
    }
}

/// A message for a member of a share group that is on its way between nodes.
pub(super) struct Parked {
    share: Arc<str>,
    message: Arc<Message>,
    owed: Owed,
}

/// How often another member is looked for before a message waits for one that moves.
const ATTEMPTS_PAST_MOVING: u8 = 2;

/// Messages for share groups on one other node that are kept for the case that it dies; beyond them the oldest are not.
const OWED_SHARES_MAX: usize = 65_536;

/// What the origin of a shared message hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareAnswer {
    /// It need not be kept any more.
    Settled,
    /// There is no member to give it to.
    Refused,
}

/// At the node of the publisher.
impl Shard {
    pub(super) fn send_to_shares(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let mut picked: SmallVec<[Picked; 2]> = SmallVec::new();
        self.shared.index.pick_members(outgoing.topic, |pick| picked.push(pick));
        let mut away: SmallVec<[(Arc<str>, NodeSlot); 2]> = SmallVec::new();
        if self.shared.cluster_index.has_shares() {
            let here = |share: &str| picked.iter().find(|pick| *pick.share == *share).map(|pick| pick.group);
            self.shared.cluster_index.pick_shares(outgoing.topic, here, |share, node| {
                if let ShareNode::There(slot) = node {
                    away.push((share.clone(), slot));
                }
            });
            picked.retain(|pick| !away.iter().any(|(share, _)| *share == pick.share));
        }
        let any = !picked.is_empty() || !away.is_empty();
        for pick in picked {
            // Whom it goes to in the end is not known yet, and so is whether that session is kept.
            let owed = Owed { leg: self.keeping.open_leg(self.id), from: None, own: false };
            self.send_to_member(pick, outgoing.message(), 0, owed);
        }
        for (share, slot) in away {
            let leg = self.keeping.open_remote_leg(self.id);
            let detached = !self.is_share_connected_anywhere(&share);
            self.owe_share(slot, share, outgoing.message(), (0, detached), Owed { leg, from: None, own: false });
        }
        any
    }

    /// Gives the message to another node, for a member of the group there. It has a place of its own in the stream: the node may get it for another
    /// subscription too, or have been sent newer ones since.
    /// `detached`: whether a member without connection will do.
    fn owe_share(
        &mut self,
        slot: NodeSlot,
        share: Arc<str>,
        message: &Arc<Message>,
        (attempts, detached): (u8, bool),
        owed: Owed,
    ) {
        let sequence = self.next_message_id().sequence;
        let outgoing = Outgoing::from_message(message);
        let mut frame = frame_of(&outgoing, self.now, None);
        frame.sequence = sequence;
        frame.share = Some((&share, detached));
        self.push_leg(slot, sequence, None, &DataFrame::Publish(frame));
        let Some(peer) = self.peers.get_mut(slot) else {
            // This node has been given up: what a session on disk gave back is still there.
            self.metrics().dropped(DropReason::NoMember, 1);
            return self.share_is_accepted(Owed { from: None, ..owed });
        };
        let shares = &mut peer.shares.0;
        shares.push_back(OwedShare { sequence, message: message.clone(), share, attempts, owed });
        if shares.len() > OWED_SHARES_MAX
            && let Some(oldest) = shares.pop_front()
        {
            self.share_is_accepted(oldest.owed);
        }
    }

    /// Another node has the message: who waited for that goes on, and the member that gave it back is rid of it.
    pub(super) fn share_is_accepted(&mut self, owed: Owed) {
        if let Some((owner, item)) = owed.from {
            self.keeping.delete(owner, item);
            self.keeping.close_section();
        }
        if let Some(leg) = owed.leg {
            self.reply(leg);
        }
    }

    fn is_share_connected_anywhere(&self, share: &str) -> bool {
        let Ok(TopicFilter { filter, .. }) = TopicFilter::parse(share) else {
            return false;
        };
        self.shared.index.is_share_connected(share, filter)
            || self.shared.cluster_index.is_share_connected(share, filter)
    }

    pub(super) fn share_settled(&mut self, slot: NodeSlot, sequence: u64) {
        if let Some(owed) = self.peers.get_mut(slot).and_then(|peer| peer.shares.remove(sequence)) {
            self.share_is_accepted(owed.owed);
        }
    }

    /// A node has nobody for a message: it goes to another one.
    pub(super) fn share_refused(&mut self, slot: NodeSlot, sequence: u64) {
        let Some(owed) = self.peers.get_mut(slot).and_then(|peer| peer.shares.remove(sequence)) else {
            return;
        };
        self.keeping.close_section();
        self.offer(owed.share, &owed.message, owed.attempts.saturating_add(1), owed.owed, 1 << slot);
    }

    /// A node has died with messages that its members had not acknowledged. One of QoS 2 may have been sent to its member, who then has it; it goes to
    /// nobody else [MQTT-4.8.2-5].
    pub(super) fn offer_lost_shares(&mut self, without: u64, lost: OwedShares) {
        for owed in lost.0 {
            self.keeping.close_section();
            if owed.message.qos == QoS::ExactlyOnce && owed.owed.leg.is_none() {
                self.metrics().dropped(DropReason::NoMember, 1);
                self.share_is_accepted(owed.owed);
            } else {
                self.offer(owed.share, &owed.message, owed.attempts, owed.owed, without);
            }
        }
    }
}

/// At the node of the member, and wherever a message is given back.
impl Shard {
    fn send_to_member(&mut self, picked: Picked, message: &Arc<Message>, attempts: u8, owed: Owed) {
        if picked.member.shard == self.id {
            self.deliver_shared(picked, message, attempts, owed);
        } else {
            self.mail(picked.member.shard, Event::Shared { picked, message: message.clone(), attempts, owed });
        }
    }

    /// Delivers to the member that was picked. If it has come or gone meanwhile another one is picked, unless that went on for long:
    /// then this one keeps the message, as long as its session is a member at all.
    pub(super) fn deliver_shared(&mut self, picked: Picked, message: &Arc<Message>, attempts: u8, owed: Owed) {
        let Picked { member, share, .. } = picked;
        let session = self.by_client.get(&member.client_id).copied().filter(|session| {
            let slot = &self.sessions[*session as usize];
            let unchanged = slot.connection.is_some() == member.connected || attempts >= limits::SHARE_ATTEMPTS_MAX;
            unchanged && slot.session.has_subscription(&share)
        });
        let Some(session) = session else {
            self.offer_again(share, message, attempts.saturating_add(1), owed);
            return;
        };
        if self.is_moving(&member.client_id) {
            return self.offer_past_moving(&member.client_id, share, message, attempts, owed);
        }
        let outgoing = Outgoing::from_message(message);
        let retain = member.options.retain_as_published && message.retain;
        let ids = SubscriptionIds::from_slice(if member.subscription_id > 0 {
            std::slice::from_ref(&member.subscription_id)
        } else {
            &[]
        });
        let delivery =
            Delivery { qos: member.options.qos, retain, subscription_ids: ids.as_slice(), share: Some(&share) };
        self.keeping.begin_leg(owed.leg);
        self.deliver_to(session, &outgoing, delivery);
        if self.is_from_elsewhere(message) && !owed.own {
            self.settle_or_await(session, message.id, message.qos.min(member.options.qos));
        }
        self.delivered(owed);
    }

    /// The member that was picked is on its way to or from another node, and cannot be given anything: when nobody else is there, the message waits until it
    /// has arrived.
    fn offer_past_moving(
        &mut self,
        client: &Arc<str>,
        share: Arc<str>,
        message: &Arc<Message>,
        attempts: u8,
        owed: Owed,
    ) {
        if attempts < ATTEMPTS_PAST_MOVING {
            self.offer_again(share, message, attempts + 1, owed);
        } else {
            let parked = Parked { share, message: message.clone(), owed };
            if let Some(parked) = self.park(client, parked) {
                self.metrics().dropped(DropReason::NoMember, 1);
                self.delivered(parked.owed);
            }
        }
    }

    /// A move has ended: what waited for it goes wherever its member is now.
    pub(super) fn offer_parked(&mut self, parked: Vec<Parked>) {
        for Parked { share, message, owed } in parked {
            self.keeping.close_section();
            self.offer_again(share, &message, 0, owed);
        }
    }

    /// Picks another member for a message that was given back or could not be delivered.
    pub(super) fn offer_again(&mut self, share: Arc<str>, message: &Arc<Message>, attempts: u8, owed: Owed) {
        self.offer(share, message, attempts, owed, 0);
    }

    /// The same, but not on the nodes in `without`.
    fn offer(&mut self, share: Arc<str>, message: &Arc<Message>, attempts: u8, owed: Owed, without: u64) {
        let filter = TopicFilter::parse(&share).ok().map(|parsed| parsed.filter);
        // u8::MAX attempts find no member only where the index and the sessions disagree.
        let filter = filter.filter(|_| attempts < u8::MAX);
        let here = filter.and_then(|filter| self.shared.index.pick_again(&share, filter));
        if self.is_from_elsewhere(message) && !owed.own && !here.as_ref().is_some_and(|picked| picked.member.connected)
        {
            return self.refuse_share(message, owed);
        }
        let members = here.as_ref().map(|picked| picked.group);
        let pick = |without| self.shared.cluster_index.pick_share_again(&share, filter?, members, without);
        let picked = pick(without);
        // A node that has refused for want of a connected member may have one that is not.
        let last_resort = picked.is_none() && without != 0 && attempts < limits::SHARE_ATTEMPTS_MAX;
        let node = if last_resort { pick(0) } else { picked };
        match (node, here) {
            (Some(ShareNode::There(slot)), _) => {
                let detached = last_resort || !self.is_share_connected_anywhere(&share);
                self.owe_share(slot, share, message, (attempts, detached), owed);
            }
            (Some(ShareNode::Here), Some(picked)) => self.send_to_member(picked, message, attempts, owed),
            _ => {
                self.metrics().dropped(DropReason::NoMember, 1);
                self.delivered(owed);
            }
        }
    }

    fn is_from_elsewhere(&self, message: &Message) -> bool {
        self.shared.clustered && message.id.node != self.shared.node_tag
    }

    /// Its node picks another one: what is owed here is done with.
    fn refuse_share(&mut self, message: &Arc<Message>, owed: Owed) {
        self.answer_origin(message.id, ShareAnswer::Refused);
        self.delivered(owed);
    }

    /// A message for a member here that another node has picked this one for.
    pub(super) fn share_from_peer(&mut self, of: StreamKey, share: &str, detached: bool, outgoing: &Outgoing<'_>) {
        let filter = TopicFilter::parse(share).ok().map(|parsed| parsed.filter);
        let picked = filter.and_then(|filter| self.shared.index.pick_again(share, filter));
        match picked.filter(|picked| picked.member.connected || detached) {
            Some(picked) => {
                let owed = Owed { leg: self.keeping.open_leg(self.id), from: None, own: false };
                self.send_to_member(picked, outgoing.message(), 0, owed);
            }
            None => self.answer_peer(of, AnswerFrame::Refused { sequence: outgoing.id.sequence, reason: NO_MEMBER }),
        }
    }

    /// The node of the publisher need not keep a message any more when its member has a session that outlives its connection, or when it could not be given to
    /// anybody else in any case; else it keeps it until the member acknowledges.
    fn settle_or_await(&mut self, session: SessionKey, id: MessageId, qos: QoS) {
        let persists = self.sessions[session as usize].session.expiry_secs() > 0;
        if persists && self.keeping.defers() {
            self.keeping.when_kept(Due::Settled(id));
        } else if persists || qos != QoS::AtLeastOnce {
            self.answer_origin(id, ShareAnswer::Settled);
        } else {
            self.shares_awaited += 1;
        }
    }

    /// The message that a client acknowledges, if another node waits for that.
    pub(super) fn awaited_share(&self, session: SessionKey, packet_id: PacketId) -> Option<MessageId> {
        if self.shares_awaited == 0 {
            return None;
        }
        let id = self.sessions[session as usize].session.shared_in_window(packet_id)?;
        (id.node != self.shared.node_tag).then_some(id)
    }

    pub(super) fn answer_origin(&mut self, id: MessageId, answer: ShareAnswer) {
        let owner = (usize::from(id.shard) % self.mail.len()) as u16;
        if owner != self.id {
            return self.mail(owner, Event::AnswerOrigin { id, answer });
        }
        if let Some(of) = self.stream_of_message(id) {
            let sequence = id.sequence;
            self.answer_peer(
                of,
                match answer {
                    ShareAnswer::Settled => AnswerFrame::Settled { sequence },
                    ShareAnswer::Refused => AnswerFrame::Refused { sequence, reason: NO_MEMBER },
                },
            );
        }
    }
}
