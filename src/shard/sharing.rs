//! Shared subscriptions: which member gets a message, on this node or on another one (4.8.2).
//!
//! The node of the publisher picks a node, that node a member. A member on another node is owed the message until it has acknowledged it, or until it stands in a queue that
//! outlives its connection: the node of the publisher keeps it for so long, and gives it to somebody else when that node dies, or has nobody any more. A node without a
//! connected member refuses, and another one is picked; only when no node has one does a detached member get it, and when that one is on its way between nodes the message
//! waits where it came from.
//!
//! This is the shell of [`share_groups`](crate::cluster::share_groups), which says who keeps what and until when. Owner: the shard that has to find a member, of its machine.
//! Invariant: what the machine has answered with is carried out outside of the routing of any other message, so that what is written down of it is a section of its own.

use std::sync::Arc;

use holdfast_raft::{NodeId, ShareMembers, ShareRoute};
use smallvec::SmallVec;

use crate::cluster::route_commands;
use crate::cluster::share_groups::{Action, Actions, Bounds, Choice, Dropped, Keeper, Offer, Refusals, Wanted, choose};
use crate::limits;
use crate::link::frame::{AnswerFrame, DataFrame, NO_MEMBER, Name};
use crate::metrics::DropReason;
use crate::mqtt::{Message, MessageId, Names, QoS};
use crate::session::{Delivery, Outgoing, ShareText, SubscriptionIds};
use crate::subscriptions::{NodeSlot, Picked, SessionKey};
use crate::topic::TopicFilter;

use super::Shard;
use super::keeping::{Due, Leg};
use super::mailbox::Event;
use super::peers::frame_of;

/// What the origin of a shared message hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareAnswer {
    /// It need not be kept any more.
    Settled,
    /// There is no member to give it to.
    Refused,
}

/// What bounds the machine of a shard. A node that is alone knows of everybody: a group without members has ended.
pub(super) fn bounds(clustered: bool) -> Bounds {
    Bounds {
        messages: limits::SHARES_KEPT_MAX,
        bytes: limits::SHARES_KEPT_BYTES_MAX,
        retry_ms: limits::SHARE_RETRY_MS,
        patience_ms: limits::SHARE_PATIENCE_MS,
        absence_ms: if clustered { limits::SHARE_ABSENCE_MS } else { 0 },
        doubt_ms: limits::SHARE_DOUBT_MS,
    }
}

/// What a message is known by on its way to another node, beside its place: the name of the packet that brought it and, if a session has given it back, its place there.
fn name_of(message: &Message, given_back: bool) -> Option<Name<'static>> {
    let place = given_back.then_some(message.id);
    Names::from_ids(place.into_iter().chain(message.name)).map(Name::Packet)
}

/// At the node of the publisher.
impl Shard {
    pub(super) fn set_shares_connected(&mut self, session: SessionKey, connected: bool) {
        let session = &self.sessions[session as usize].session;
        if !session.subscriptions().any(|(text, _)| text.starts_with("$share/")) {
            return;
        }
        let mut changed = Vec::new();
        let shared = self.shared.clone();
        // Of two shards whose members go at once, who counts the members last proposes last.
        let order = shared.index.route_order();
        for (text, _) in session.subscriptions() {
            if text.starts_with("$share/")
                && let Ok(TopicFilter { share: Some(share), filter }) = TopicFilter::parse(text)
            {
                let before = self.shared.index.share_members(text, filter);
                self.shared.index.set_share_connected(text, filter, session.client_id(), connected);
                let after = self.shared.index.share_members(text, filter);
                if before != after
                    && let Some(members) = after
                {
                    changed.push(((share.into(), filter.into()), members));
                }
            }
        }
        self.propose_members(changed);
        drop(order);
    }

    /// Tells the other nodes how many members of share groups are here, as coarsely as they have to know.
    pub(super) fn propose_members(&mut self, changed: Vec<(ShareRoute, ShareMembers)>) {
        if self.shared.clustered && !changed.is_empty() {
            for command in route_commands::adding(Vec::new(), changed) {
                self.propose(command);
            }
        }
    }

    pub(super) fn send_to_shares(&mut self, outgoing: &Outgoing<'_>) -> bool {
        let mut picked: SmallVec<[Picked; 2]> = SmallVec::new();
        self.shared.index.pick_members(outgoing.topic, |pick| picked.push(pick));
        let mut away: SmallVec<[(Arc<str>, Choice); 2]> = SmallVec::new();
        if self.shared.cluster_index.has_shares() {
            let live = self.peers.all();
            self.shared.cluster_index.shares(outgoing.topic, live, |share, there, turn| {
                let here = picked.iter().find(|pick| pick.share == *share).map(|pick| pick.group);
                let choice = choose(Keeper::Here, Refusals::default(), here, there, turn);
                if choice != Choice::Here {
                    away.push((share.clone(), choice));
                }
            });
            picked.retain(|pick| !away.iter().any(|(share, _)| *share == pick.share));
        }
        if picked.is_empty() && away.is_empty() {
            return false;
        }
        let message = self.shared_message(outgoing);
        let earlier = Names::from_ids(outgoing.earlier.iter().copied());
        if let Some(earlier) = earlier.filter(|_| outgoing.qos == QoS::ExactlyOnce) {
            let shares = picked.into_iter().map(|pick| pick.share).chain(away.into_iter().map(|(share, _)| share));
            self.ask_for_each(shares, &message, earlier);
            return true;
        }
        for pick in picked {
            // Whom it goes to in the end is not known yet, and so is whether that session is kept.
            let leg = self.keeping.open_leg(self.id);
            let offer = Offer::new(pick.share.clone(), message.clone(), Keeper::Here).with_leg(leg);
            self.send_to_member(pick, offer);
        }
        for (share, choice) in away {
            let leg = self.keeping.open_remote_leg(self.id);
            let offer = Offer::new(share, message.clone(), Keeper::Here).with_leg(leg);
            self.carry(choice, offer);
        }
        true
    }

    /// Members may have the message as one of `earlier`, which a dead node has given them.
    fn ask_for_each(&mut self, shares: impl Iterator<Item = Arc<str>>, message: &Arc<Message>, earlier: Names) {
        for share in shares {
            let leg = self.keeping.open_remote_leg(self.id);
            self.share_groups.ask(Offer::new(share, message.clone(), Keeper::Here).with_leg(leg), earlier, None);
        }
    }

    /// What goes to share groups has a place in the stream of its shard, whatever name it has beside that.
    fn shared_message(&mut self, outgoing: &Outgoing<'_>) -> Arc<Message> {
        let message = outgoing.message();
        if outgoing.id.is_of_packet() {
            let name = Some(outgoing.id);
            return Arc::new(Message { id: self.next_message_id(), name, ..(**message).clone() });
        }
        message.clone()
    }

    /// Looks for a member that takes the message.
    pub(super) fn offer(&mut self, offer: Offer<Leg>) {
        let share = offer.share.clone();
        let Ok(TopicFilter { filter, .. }) = TopicFilter::parse(&share) else {
            return self.carry(Choice::NoMembers, offer);
        };
        let here = self.shared.index.share_members(&share, filter);
        let (there, turn) = if self.shared.clustered {
            self.shared.cluster_index.share(&share, filter, self.peers.all())
        } else {
            Default::default()
        };
        let choice = choose(offer.keeper, offer.refusals, here, &there, turn);
        if choice != Choice::Here {
            return self.carry(choice, offer);
        }
        let wanted = |picked: &Picked| picked.member.connected || offer.keeper != Keeper::Elsewhere(Wanted::Connected);
        match self.shared.index.pick_again(&share, filter).filter(wanted) {
            Some(picked) => self.send_to_member(picked, offer),
            None => self.not_here(offer),
        }
    }

    /// No member on this node takes the message now.
    fn not_here(&mut self, mut offer: Offer<Leg>) {
        offer.refusals.add_here();
        self.offer(offer);
    }

    /// Carries a message where it goes, if that is not to a member on this node.
    fn carry(&mut self, choice: Choice, mut offer: Offer<Leg>) {
        match choice {
            Choice::There(slot, wanted) => self.give_to_node(slot, wanted, offer),
            Choice::Refuse if offer.is_kept() && self.is_left_by_origin(&offer.message) => {
                // Should it live after all, it hears that it need not look for another member itself.
                self.answer_origin(offer.message.id, ShareAnswer::Settled);
                offer.keeper = Keeper::Here;
                self.offer(offer);
            }
            Choice::Refuse if offer.is_kept() => {
                self.note_refused(&offer.share, &offer.message);
                self.answer_origin(offer.message.id, ShareAnswer::Refused);
                self.delivered(offer.leg, offer.from);
            }
            Choice::Nobody if offer.is_kept() => self.wait_for_member(true, offer),
            Choice::NoMembers if offer.is_kept() => self.wait_for_member(false, offer),
            Choice::Here | Choice::Refuse | Choice::Nobody | Choice::NoMembers => {
                self.metrics().dropped(DropReason::NoMember, 1);
                self.delivered(offer.leg, offer.from);
            }
        }
    }

    fn wait_for_member(&mut self, members: bool, offer: Offer<Leg>) {
        let actions = self.share_groups.wait(self.now, members, offer);
        self.carry_out_shares(actions);
    }

    /// Gives the message to another node, for a member of the group there. It has a place of its own in the stream: the node may get it for another
    /// subscription too, or have been sent newer ones since.
    fn give_to_node(&mut self, slot: NodeSlot, wanted: Wanted, offer: Offer<Leg>) {
        let Some(node) = self.peers.get_mut(slot).map(|peer| peer.node) else {
            return self.wait_for_member(true, offer);
        };
        let sequence = self.next_message_id().sequence;
        let outgoing = Outgoing::from_message(&offer.message);
        let mut frame = frame_of(&outgoing, self.now, name_of(&offer.message, offer.from.is_some()));
        frame.sequence = sequence;
        frame.share = Some((&offer.share, wanted == Wanted::Any));
        self.push_leg(slot, sequence, None, &DataFrame::Publish(frame));
        if offer.is_kept() {
            self.share_groups.give(node, (sequence, wanted), offer);
        } else {
            // Nobody hears of it again.
            self.delivered(offer.leg, offer.from);
        }
    }

    /// A node that was given up is live: what it may have had before goes to it again, before anything else.
    pub(super) fn give_again(&mut self, slot: NodeSlot, node: NodeId) {
        for (sequence, wanted, share, message) in self.share_groups.resend(node) {
            let outgoing = Outgoing::from_message(&message);
            let mut frame = frame_of(&outgoing, self.now, name_of(&message, false));
            (frame.sequence, frame.resend) = (sequence, true);
            frame.share = Some((&share, wanted == Wanted::Any));
            self.push_leg(slot, sequence, None, &DataFrame::Publish(frame));
        }
    }

    /// Carries out what the machine says.
    pub(super) fn carry_out_shares(&mut self, actions: Actions<Leg>) {
        for action in actions {
            match action {
                Action::Offer(offer) => {
                    self.keeping.close_section();
                    self.offer(offer);
                }
                Action::Ask(number) => {
                    self.keeping.close_section();
                    self.ask_everybody(number);
                }
                Action::Answer(leg) => self.reply(leg),
                Action::Delete((owner, item)) => {
                    self.keeping.close_section();
                    self.keeping.delete_given(owner, item);
                    self.keeping.close_section();
                }
                Action::Dropped(Dropped::NoMember) => self.metrics().dropped(DropReason::NoMember, 1),
                Action::Dropped(Dropped::NodeGone) => self.metrics().dropped(DropReason::NodeGone, 1),
                Action::Forgotten => self.metrics().shares_forgotten.add(1),
            }
        }
    }

    pub(super) fn share_settled(&mut self, slot: NodeSlot, sequence: u64) {
        if let Some(node) = self.peers.get_mut(slot).map(|peer| peer.node) {
            let actions = self.share_groups.settled(node, sequence);
            self.carry_out_shares(actions);
        }
    }

    /// A node has nobody for a message: it goes to another one.
    pub(super) fn share_refused(&mut self, slot: NodeSlot, sequence: u64) {
        if let Some(node) = self.peers.get_mut(slot).map(|peer| peer.node) {
            self.metrics().shares_refused.add(1);
            let actions = self.share_groups.refused((node, slot), sequence);
            if !actions.is_empty() {
                self.void_leg(slot, sequence);
            }
            self.carry_out_shares(actions);
        }
    }

    /// What time moves on. Called ten times in a second.
    pub(super) fn look_after_shares(&mut self) {
        if !self.shared_before.0.is_empty() && self.now > self.shared_before.1 {
            self.shared_before = Default::default();
        }
        // What has been held back may be known to all shards now.
        if self.from_peers.has_waiting() {
            self.resume_links();
        }
        let actions = self.share_groups.tick(self.now);
        if !actions.is_empty() {
            self.carry_out_shares(actions);
            self.settle();
        }
        let (messages, bytes) = self.share_groups.kept();
        self.metrics().shares_kept.set(messages as u64);
        self.metrics().shares_kept_bytes.set(bytes as u64);
    }

    /// Says which messages of other nodes the sessions here are done with, and keeps this shard's own within their bounds. Called between messages.
    pub(super) fn settle_shares(&mut self) {
        for id in self.keeping.take_settled() {
            self.answer_origin(id, ShareAnswer::Settled);
        }
        if self.share_groups.is_full() {
            let actions = self.share_groups.shrink();
            self.carry_out_shares(actions);
            self.shares_full = self.share_groups.is_full();
        } else if self.shares_full && self.share_groups.has_room() {
            self.shares_full = false;
            self.read_on();
        }
    }
}

/// At the node of the member, and wherever a message is given back.
impl Shard {
    fn send_to_member(&mut self, picked: Picked, offer: Offer<Leg>) {
        if picked.member.shard == self.id {
            self.deliver_shared(picked, offer);
        } else {
            self.mail(picked.member.shard, Event::Shared { picked, offer: Box::new(offer) });
        }
    }

    /// Delivers to the member that was picked. If it has come or gone meanwhile another one is picked, unless that went on for long:
    /// then this one keeps the message, as long as its session is a member at all.
    pub(super) fn deliver_shared(&mut self, picked: Picked, mut offer: Offer<Leg>) {
        let Picked { member, share, .. } = picked;
        let session = self.by_client.get(&member.client_id).copied().filter(|session| {
            let slot = &self.sessions[*session as usize];
            let unchanged =
                slot.connection.is_some() == member.connected || offer.attempts >= limits::SHARE_ATTEMPTS_MAX;
            unchanged && slot.session.has_subscription(&share)
        });
        let session = session.filter(|_| !self.is_moving(&member.client_id));
        let Some(session) = session else {
            offer.attempts = offer.attempts.saturating_add(1);
            // What is put into a session on its way may be lost with it: whoever keeps the message waits, or finds somebody else.
            let patience = if self.is_moving(&member.client_id) {
                limits::SHARE_ATTEMPTS_PAST_MOVING
            } else {
                limits::SHARE_ATTEMPTS_IN_ALL
            };
            return if offer.attempts < patience { self.offer(offer) } else { self.not_here(offer) };
        };
        let (message, elsewhere) = (offer.message.clone(), !offer.is_own());
        let qos = message.qos.min(member.options.qos);
        // The node of the publisher need not keep it for a session that outlives its connection, nor when it could not be given to anybody else in any case.
        let awaited = elsewhere && qos != QoS::AtMostOnce && self.sessions[session as usize].session.expiry_secs() == 0;
        let id = [member.subscription_id];
        let ids = SubscriptionIds::from_slice(if member.subscription_id > 0 { &id } else { &[] });
        let delivery = Delivery {
            qos: member.options.qos,
            retain: member.options.retain_as_published && message.retain,
            subscription_ids: ids.as_slice(),
            share: Some(ShareText { text: &share, awaited }),
        };
        if !elsewhere {
            self.note_had(&share, &message, None);
        }
        self.keeping.begin_leg(offer.leg);
        self.deliver_to(session, &Outgoing::from_message(&message), delivery);
        if elsewhere && !awaited && message.qos != QoS::AtMostOnce {
            self.settle_when_kept(message.id);
        }
        let followers = self.share_groups.taken_here(&mut offer);
        self.delivered(offer.leg, offer.from);
        self.carry_out_shares(followers);
    }

    fn settle_when_kept(&mut self, id: MessageId) {
        if self.keeping.defers() {
            self.keeping.when_kept(Due::Settled(id));
        } else {
            self.answer_origin(id, ShareAnswer::Settled);
        }
    }

    /// A message for a member here that another node has picked this one for.
    pub(super) fn share_from_peer(
        &mut self,
        (share, detached): (&str, bool),
        outgoing: &Outgoing<'_>,
        (from, known_by): (NodeId, Option<Names>),
    ) {
        let wanted = if detached { Wanted::Any } else { Wanted::Connected };
        let leg = self.keeping.open_leg(self.id);
        let mut message = outgoing.message().clone();
        let known_by = known_by.as_ref().map_or(&[][..], Names::all);
        if let Some(name) = known_by.iter().find(|id| id.is_of_packet()) {
            Arc::make_mut(&mut message).name = Some(*name);
        }
        let place = known_by.iter().find(|id| !id.is_of_packet());
        self.note_had(share, &message, place.map(|place| (from.tag(), *place)));
        self.offer(Offer::new(share.into(), message, Keeper::Elsewhere(wanted)).with_leg(leg));
    }

    /// A message of a member that is not connected is safe now: it goes to another one if there is one, and stays if not.
    pub(super) fn give_back_detached(&mut self, session: SessionKey, share: &str) {
        let client = self.sessions[session as usize].session.client_id().clone();
        // Of a session on its way parts may be at the other node already.
        if !self.is_moving(&client) && self.is_share_connected_anywhere(share) {
            self.give_back(session, None, true);
        }
    }

    fn is_share_connected_anywhere(&self, share: &str) -> bool {
        let Ok(TopicFilter { filter, .. }) = TopicFilter::parse(share) else {
            return false;
        };
        self.shared.index.is_share_connected(share, filter)
            || self.shared.cluster_index.is_share_connected(share, filter, self.peers.all())
    }

    /// What the process of another node kept for members here is kept by nobody but them: it goes to others from here when they do not want it any more. Should that process
    /// live after all, it hears that it need not look for another member itself.
    pub(super) fn keep_awaited_of(&mut self, node: NodeId) {
        let sessions = self.sessions.iter_mut();
        let kept: Vec<_> = sessions.flat_map(|(_, slot)| slot.session.keep_awaited(node.tag())).collect();
        kept.into_iter().for_each(|id| self.answer_origin(id, ShareAnswer::Settled));
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
