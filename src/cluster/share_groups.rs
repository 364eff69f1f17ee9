//! Which node keeps a message for a share group, and until when.
//!
//! The machine of one shard, for the messages that it has to find a member for: those that its clients have published, those that its sessions have given back, and those
//! that other nodes have left to it. The shell (`shard/sharing.rs`) asks [`choose`] where an [`Offer`] goes, carries it there, and tells the machine what came of it; what is
//! to be done then comes back as [`Action`]s.
//!
//! # The way of a message
//! 1. It is *given* to another node, which says that it has *accepted* it, that it is *settled* (its member has acknowledged it, or has it in a session that outlives its
//!    connection), or that it is *refused*, and was given to nobody. Until it is settled it is kept here.
//! 2. Who refuses is not asked again: the next node is, and when no connected member takes it, everybody is asked for any member. When that fails too the message *waits*, with its
//!    publisher, and is offered again; one of a group goes ahead, and the others follow when that one was taken.
//! 3. A node that is *gone* has perhaps given what it had been sent to members. QoS 1 goes to others at once. A message of QoS 2 that may have been sent to a member is *in
//!    doubt*: it goes to nobody else. When the node is back it gets once more what it had not accepted: the same process says what became of it, another one knows from its disk
//!    what its members have. What a member without a disk had accepted is dropped, as it must not go to another [MQTT-4.8.2-5].
//!    Where sessions have copies the heirs of such a node may have the member: everybody is *asked* then ([`asking`]), and the same before a message is offered that comes again
//!    because the home of its publisher has died.
//! 4. When this node itself was given up by the others, it stands *apart*: it gives nothing to anybody, and what it has given is in doubt, until it has registered anew.
//!
//! # Invariants
//! - A message of QoS 1 or 2 is answered for its publisher once: when another node has accepted it, or as it is kept here.
//! - It leaves the machine settled, into a session, to the node that has sent it, or dropped by a limit, which is an action of its own.
//! - A message of QoS 2 that a member may have been sent is offered to nobody else.
//! - Messages and bytes have a bound. What makes room is what another node has accepted, then what waits and was answered; publishers wait when there is neither.
//!
//! Test to read first: `tests::a_refusal_goes_round_once_and_waits`; then `once_tests::each_message_comes_to_one_member_whoever_dies`.

mod asking;
mod choosing;
mod had;
#[cfg(test)]
mod once_tests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_raft::NodeId;
use holdfast_storage::{ItemId, OwnerId};

use crate::mqtt::{Message, MessageId, Names, QoS};

use asking::Questions;

pub use choosing::{Choice, Keeper, Offer, Refusals, Slot, Wanted, choose};
pub use had::{Had, Rank, SharedMessage};

/// What bounds the machine, in messages, bytes and milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub messages: usize,
    pub bytes: usize,
    /// Until a message that nobody took is offered again.
    pub retry_ms: u64,
    /// How long a publisher waits for a message that nobody takes.
    pub patience_ms: u64,
    /// How long a message is kept whose group has no member at all; 0: it is not.
    pub absence_ms: u64,
    /// How long a message is kept of which a node has not said what became of it before it was given up.
    pub doubt_ms: u64,
}

/// Why a message is dropped that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Its group has had no member for too long, or too many wait.
    NoMember,
    /// The process that had it is gone, and may have given it to a member before.
    NodeGone,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<L> {
    /// Choose where it goes, and carry it there.
    Offer(Offer<L>),
    /// Ask everybody for the message of that question.
    Ask(u64),
    /// Nobody needs to wait for it any more.
    Answer(L),
    /// The item of the session that gave it back is not needed any more.
    Delete((OwnerId, ItemId)),
    Dropped(Dropped),
    /// It is not kept any more for the case that the node dies that has accepted it.
    Forgotten,
}

pub type Actions<L> = Vec<Action<L>>;

/// A message that was given to another node and is not settled.
#[derive(Debug)]
struct Given<L> {
    sequence: u64,
    asked: Wanted,
    /// What became of it is not known until its node says so.
    in_doubt: bool,
    offer: Offer<L>,
}

#[derive(Debug)]
struct Node<L> {
    /// The process that has answered last.
    run: Option<u64>,
    /// In the order of the sequences.
    given: VecDeque<Given<L>>,
    accepted_up_to: u64,
    /// Until when what is in doubt is kept, while the node is gone.
    doubt_until: Option<u64>,
}

impl<L> Default for Node<L> {
    fn default() -> Self {
        Self { run: None, given: VecDeque::new(), accepted_up_to: 0, doubt_until: None }
    }
}

impl<L> Node<L> {
    fn remove(&mut self, sequence: u64) -> Option<Given<L>> {
        let at = self.given.binary_search_by_key(&sequence, |given| given.sequence).ok()?;
        self.given.remove(at)
    }

    /// Takes out those for which `wanted` holds.
    fn take(&mut self, mut wanted: impl FnMut(&Given<L>) -> bool) -> Vec<Offer<L>> {
        let (taken, rest): (Vec<_>, Vec<_>) = self.given.drain(..).partition(|given| wanted(given));
        self.given = rest.into();
        taken.into_iter().map(|given| given.offer).collect()
    }
}

/// The messages of one group that nobody takes.
#[derive(Debug)]
struct Waiting<L> {
    offers: VecDeque<Offer<L>>,
    /// When the first is offered again.
    try_at: u64,
    /// Since when the group is known to have nobody.
    absent_since: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct ShareGroups<L> {
    bounds: Bounds,
    nodes: HashMap<NodeId, Node<L>>,
    waiting: HashMap<Arc<str>, Waiting<L>>,
    questions: Questions<L>,
    /// The stream in which messages are given to other nodes.
    stream: MessageId,
    apart: bool,
    messages: usize,
    bytes: usize,
}

impl<L: Copy> ShareGroups<L> {
    /// `apart`: whether the node has to register first. `stream`: any message of the shard's stream.
    pub fn new(bounds: Bounds, apart: bool, stream: MessageId) -> Self {
        let (nodes, waiting, questions) = Default::default();
        Self { bounds, nodes, waiting, questions, stream, apart, messages: 0, bytes: 0 }
    }

    /// Whether this node may give nothing to anybody.
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// What is kept: messages and bytes.
    pub fn kept(&self) -> (usize, usize) {
        (self.messages, self.bytes)
    }

    pub fn is_full(&self) -> bool {
        self.messages >= self.bounds.messages || self.bytes >= self.bounds.bytes
    }

    /// Whether who was not read from may be read again.
    pub fn has_room(&self) -> bool {
        self.messages < self.bounds.messages / 2 + 1 && self.bytes < self.bounds.bytes / 2 + 1
    }

    fn enters(&mut self, offer: &Offer<L>) {
        self.messages += 1;
        self.bytes += offer.message.size();
    }

    fn leaves(&mut self, offer: &Offer<L>) {
        self.messages -= 1;
        self.bytes -= offer.message.size();
    }

    fn drop_offer(&mut self, mut offer: Offer<L>, why: Dropped, actions: &mut Actions<L>) {
        self.leaves(&offer);
        actions.extend(offer.leg.take().map(Action::Answer));
        actions.extend(offer.from.map(Action::Delete));
        actions.push(Action::Dropped(why));
    }

    fn offer_anew(&mut self, offers: Vec<Offer<L>>, actions: &mut Actions<L>) {
        for offer in offers {
            self.leaves(&offer);
            actions.push(Action::Offer(offer));
        }
    }
}

/// What other nodes are given, and what they answer.
impl<L: Copy> ShareGroups<L> {
    /// The message was sent to another node with that sequence. One of QoS 0 is done with.
    pub fn give(&mut self, node: NodeId, (sequence, asked): (u64, Wanted), offer: Offer<L>) {
        if !offer.is_kept() {
            return;
        }
        self.enters(&offer);
        let given = &mut self.nodes.entry(node).or_default().given;
        debug_assert!(given.back().is_none_or(|last| last.sequence < sequence), "sequences ascend");
        given.push_back(Given { sequence, asked, in_doubt: false, offer });
    }

    /// The node has everything up to a sequence.
    pub fn accepted(&mut self, node: NodeId, up_to: u64) -> Actions<L> {
        let (mut actions, mut taken) = (Actions::new(), Vec::new());
        let Some(of) = self.nodes.get_mut(&node) else {
            return actions;
        };
        let first = of.given.partition_point(|given| given.sequence <= of.accepted_up_to);
        of.accepted_up_to = of.accepted_up_to.max(up_to);
        for given in of.given.range_mut(first..).take_while(|given| given.sequence <= up_to) {
            actions.extend(given.offer.leg.take().map(Action::Answer));
            if std::mem::take(&mut given.offer.probe) {
                taken.push(given.offer.share.clone());
            }
        }
        taken.iter().for_each(|share| self.follow(share, &mut actions));
        actions
    }

    /// A member has it for good.
    pub fn settled(&mut self, node: NodeId, sequence: u64) -> Actions<L> {
        let mut actions = Actions::new();
        let Some(given) = self.nodes.get_mut(&node).and_then(|of| of.remove(sequence)) else {
            return self.answered(node, sequence, true).unwrap_or_default();
        };
        self.leaves(&given.offer);
        actions.extend(given.offer.leg.map(Action::Answer));
        actions.extend(given.offer.from.map(Action::Delete));
        if given.offer.probe {
            self.follow(&given.offer.share, &mut actions);
        }
        actions
    }

    /// The node has no such member, and has given the message to nobody.
    pub fn refused(&mut self, (node, slot): (NodeId, Slot), sequence: u64) -> Actions<L> {
        let Some(Given { mut offer, asked, .. }) = self.nodes.get_mut(&node).and_then(|of| of.remove(sequence)) else {
            return self.answered(node, sequence, false).unwrap_or_default();
        };
        self.leaves(&offer);
        offer.refusals.add(slot, asked);
        vec![Action::Offer(offer)]
    }

    /// The others have given the node up. It has seen nothing from the sequence `unsent` on. `asks`: others inherit from it, and have what became of the rest. What
    /// this node has given while it stands apart itself stays as it is.
    pub fn node_gone(&mut self, now: u64, node: NodeId, unsent: Option<u64>, asks: bool) -> Actions<L> {
        let mut actions = Actions::new();
        if self.apart {
            return actions;
        }
        self.questions.ask_again(node);
        let Some(of) = self.nodes.get_mut(&node) else {
            return actions;
        };
        let accepted = of.accepted_up_to;
        let anew = of.take(|given| {
            let unseen = given.sequence > accepted && unsent.is_some_and(|unsent| given.sequence >= unsent);
            given.offer.message.qos != QoS::ExactlyOnce || (unseen && !given.in_doubt)
        });
        let asked = if asks { std::mem::take(&mut of.given) } else { VecDeque::new() };
        for given in &mut of.given {
            given.in_doubt = true;
            actions.extend(given.offer.leg.take().map(Action::Answer));
        }
        of.doubt_until = Some(now + self.bounds.doubt_ms);
        if of.given.is_empty() {
            self.nodes.remove(&node);
        }
        self.offer_anew(anew, &mut actions);
        for Given { sequence, offer, .. } in asked {
            self.leaves(&offer);
            self.ask(offer, Names::new(MessageId { sequence, ..self.stream }), None);
        }
        actions
    }

    /// The node is live again. What it may have received before it was given up, and has not accepted, goes to it once more, with the same sequences: a process that has it knows it by them.
    pub fn resend(&mut self, node: NodeId) -> Vec<(u64, Wanted, Arc<str>, Arc<Message>)> {
        let Some(of) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        let accepted = of.accepted_up_to;
        let again = of.given.iter_mut().filter(|given| given.in_doubt && given.sequence > accepted);
        let again = again.map(|given| {
            given.in_doubt = false;
            (given.sequence, given.asked, given.offer.share.clone(), given.offer.message.clone())
        });
        again.collect()
    }

    /// A process of the node answers, which has seen everything of this shard up to `received`. What was in doubt and has not come there is not; of the rest it says what became
    /// of it. Another process than before knows nothing of what the earlier one had; it is sent everything from the sequence `kept` on.
    pub fn welcomed(&mut self, node: NodeId, run: u64, received: u64, kept: Option<u64>) -> Actions<L> {
        let mut actions = Actions::new();
        let Some(of) = self.nodes.get_mut(&node) else {
            self.nodes.entry(node).or_default().run = Some(run);
            return actions;
        };
        let same = of.run.replace(run).is_none_or(|earlier| earlier == run);
        if !same {
            self.questions.ask_again(node);
        }
        of.doubt_until = None;
        let (anew, lost) = if same {
            let anew = of.take(|given| given.in_doubt && given.sequence > received);
            of.given.iter_mut().for_each(|given| given.in_doubt = false);
            (anew, Vec::new())
        } else {
            let had = of.take(|given| given.in_doubt || kept.is_none_or(|kept| given.sequence < kept));
            had.into_iter().partition(|offer| offer.message.qos != QoS::ExactlyOnce)
        };
        self.offer_anew(anew, &mut actions);
        lost.into_iter().for_each(|offer| self.drop_offer(offer, Dropped::NodeGone, &mut actions));
        actions
    }
}

/// This node itself.
impl<L: Copy> ShareGroups<L> {
    /// The others have given this node up: nobody here waits any more, as its clients are gone.
    pub fn expelled(&mut self) -> Actions<L> {
        self.apart = true;
        let mut actions = Actions::new();
        for given in self.nodes.values_mut().flat_map(|of| &mut of.given) {
            given.in_doubt = true;
            actions.extend(given.offer.leg.take().map(Action::Answer));
        }
        for offer in self.waiting.values_mut().flat_map(|waiting| &mut waiting.offers) {
            actions.extend(offer.leg.take().map(Action::Answer));
        }
        actions.extend(self.questions.ask_all_again().into_iter().map(Action::Answer));
        actions
    }

    /// The node has registered, and these others are live. `asks`: sessions have copies, so others may have inherited from those that are not.
    pub fn registered(&mut self, now: u64, live: &[NodeId], asks: bool) -> Actions<L> {
        if !std::mem::take(&mut self.apart) {
            return Actions::new();
        }
        let gone: Vec<NodeId> = self.nodes.keys().filter(|node| !live.contains(node)).copied().collect();
        let mut actions = Actions::new();
        gone.into_iter().for_each(|node| actions.extend(self.node_gone(now, node, None, asks)));
        for waiting in self.waiting.values_mut() {
            (waiting.absent_since, waiting.try_at) = (None, now);
        }
        actions.extend(self.tick(now));
        actions
    }
}

/// What nobody takes.
impl<L: Copy> ShareGroups<L> {
    /// Nobody takes the message now. `members`: whether its group has any.
    pub fn wait(&mut self, now: u64, members: bool, mut offer: Offer<L>) -> Actions<L> {
        let mut actions = Actions::new();
        let since = *offer.waits_since.get_or_insert(now);
        self.enters(&offer);
        let absent_since = self.waiting.get(&offer.share).and_then(|waiting| waiting.absent_since).unwrap_or(now);
        let left = !members && !self.apart;
        if left && self.bounds.absence_ms == 0 {
            self.drop_offer(offer, Dropped::NoMember, &mut actions);
            return actions;
        }
        // The others go with the one that was offered again; a new one may come in the middle of something else.
        if left && offer.probe && now >= absent_since + self.bounds.absence_ms {
            let others = self.waiting.remove(&offer.share).map(|waiting| waiting.offers).unwrap_or_default();
            let all = std::iter::once(offer).chain(others);
            all.for_each(|offer| self.drop_offer(offer, Dropped::NoMember, &mut actions));
            return actions;
        }
        if left || self.apart || now >= since + self.bounds.patience_ms {
            actions.extend(offer.leg.take().map(Action::Answer));
        }
        offer.refusals = Refusals::default();
        offer.attempts = 0;
        let try_at = now + self.bounds.retry_ms;
        let waiting = self.waiting.entry(offer.share.clone()).or_insert_with(|| Waiting {
            offers: VecDeque::new(),
            try_at,
            absent_since: None,
        });
        waiting.absent_since = left.then_some(absent_since);
        if std::mem::take(&mut offer.probe) {
            waiting.try_at = try_at;
            waiting.offers.push_front(offer);
        } else {
            waiting.offers.push_back(offer);
        }
        actions
    }

    /// The message has gone to a member on this node: those that waited behind it may follow.
    pub fn taken_here(&mut self, offer: &mut Offer<L>) -> Actions<L> {
        let mut actions = Actions::new();
        if std::mem::take(&mut offer.probe) {
            self.follow(&offer.share, &mut actions);
        }
        actions
    }

    fn follow(&mut self, share: &Arc<str>, actions: &mut Actions<L>) {
        if let Some(waiting) = self.waiting.remove(share) {
            self.offer_anew(waiting.offers.into(), actions);
        }
    }

    /// What time moves on: the first message of each group that waits is offered again, and what has not been asked is.
    pub fn tick(&mut self, now: u64) -> Actions<L> {
        let mut actions = Actions::new();
        let in_doubt = |nodes: &HashMap<_, Node<L>>| nodes.values().any(|of| of.doubt_until.is_some());
        if self.apart || (self.waiting.is_empty() && self.questions.is_empty() && !in_doubt(&self.nodes)) {
            return actions;
        }
        actions.extend(self.questions.due().map(Action::Ask));
        let due: Vec<Arc<str>> =
            self.waiting.iter().filter(|(_, waiting)| waiting.try_at <= now).map(|(share, _)| share.clone()).collect();
        due.iter().for_each(|share| self.try_again(now, share, &mut actions));
        let nodes = self.nodes.values_mut().filter(|of| of.doubt_until.is_some_and(|until| until <= now));
        let lost: Vec<Offer<L>> = nodes.flat_map(|of| of.take(|given| given.in_doubt)).collect();
        lost.into_iter().for_each(|offer| self.drop_offer(offer, Dropped::NodeGone, &mut actions));
        self.nodes.retain(|_, of| !of.given.is_empty() || of.doubt_until.is_none());
        actions
    }

    fn try_again(&mut self, now: u64, share: &Arc<str>, actions: &mut Actions<L>) {
        let Bounds { retry_ms, patience_ms, .. } = self.bounds;
        let Some(waiting) = self.waiting.get_mut(share) else {
            return;
        };
        waiting.try_at = now + retry_ms;
        for offer in &mut waiting.offers {
            if offer.waits_since.is_some_and(|since| now >= since + patience_ms) {
                actions.extend(offer.leg.take().map(Action::Answer));
            }
        }
        match waiting.offers.pop_front() {
            Some(mut first) => {
                first.probe = true;
                self.leaves(&first);
                actions.push(Action::Offer(first));
            }
            None => _ = self.waiting.remove(share),
        }
    }

    /// Brings the machine back into its bounds, as far as it can without losing what nobody else has and its publisher waits for.
    pub fn shrink(&mut self) -> Actions<L> {
        let mut actions = Actions::new();
        while self.is_full() {
            if let Some(offer) = self.oldest_accepted() {
                self.leaves(&offer);
                actions.extend(offer.from.map(Action::Delete));
                actions.push(Action::Forgotten);
            } else if let Some(offer) = self.oldest_answered() {
                self.drop_offer(offer, Dropped::NoMember, &mut actions);
            } else {
                break;
            }
        }
        actions
    }

    /// Of the node that has most of them.
    fn oldest_accepted(&mut self) -> Option<Offer<L>> {
        let nodes = self.nodes.values_mut().filter(|of| {
            let done = |given: &Given<L>| given.in_doubt || given.sequence <= of.accepted_up_to;
            of.given.front().is_some_and(done)
        });
        nodes.max_by_key(|of| of.given.len())?.given.pop_front().map(|given| given.offer)
    }

    fn oldest_answered(&mut self) -> Option<Offer<L>> {
        let answered = |waiting: &&mut Waiting<L>| waiting.offers.front().is_some_and(|offer| offer.leg.is_none());
        let longest = self.waiting.values_mut().filter(answered).max_by_key(|waiting| waiting.offers.len());
        longest?.offers.pop_front()
    }
}
