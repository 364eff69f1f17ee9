//! Messages for the sessions of a node that is dead, while its heirs take these over.
//!
//! Its routes go on to count: they are *orphans*. What matches one goes to every heir that lives, in the frame that this heir would get in any case, which then says so, and
//! is routed there when all that has passed to the heir is in its index. What the dead node was owed and had not made stable goes to the heirs once more, in one step and in its
//! order, for the sessions alone that were inherited from it, unless they have it: they may have had it on the dead node, as the message that it was then.
//!
//! Owner: the shard. Invariants: to each heir a message goes once; in front of the first one that is for orphans is all that the dead node was owed.
//!
//! Tests to read first: `cluster-tests/tests/cluster/inheriting.rs`; then `windows.rs`.

use std::sync::Arc;

use holdfast_raft::NodeId;

use crate::cluster::copies::inheriting::Life;
use crate::link::frame::{self, DataFrame, Name, Orphan};
use crate::mqtt::{Message, MessageId, Names, QoS};
use crate::session::Outgoing;
use crate::subscriptions::{NodeSlot, ShardId};

use super::from_peers::StreamKey;
use super::keeping::{Leg, PromiseKey};
use super::mailbox::{Event, Hears};
use super::peers::{Wait, publish_in};
use super::{SessionSlot, Shard};

/// A dead node whose routes count.
struct OrphanSlot {
    slot: NodeSlot,
    life: Life,
    heirs: Arc<[NodeId]>,
}

/// All of them, in the order of their deaths.
#[derive(Default)]
pub(super) struct Orphans {
    dead: Vec<OrphanSlot>,
    /// Their slots, one bit each.
    slots: u64,
}

impl Orphans {
    /// False if it was known.
    fn add(&mut self, orphan: OrphanSlot) -> bool {
        if self.dead.iter().any(|known| known.life == orphan.life) {
            return false;
        }
        self.slots |= 1 << orphan.slot;
        self.dead.push(orphan);
        true
    }

    fn remove(&mut self, life: Life) {
        self.dead.retain(|orphan| orphan.life != life);
        self.slots = self.dead.iter().fold(0, |slots, orphan| slots | 1 << orphan.slot);
    }

    fn among(&self, slots: u64) -> impl DoubleEndedIterator<Item = &OrphanSlot> {
        self.dead.iter().filter(move |orphan| slots >> orphan.slot & 1 == 1)
    }
}

/// Nodes die.
impl Shard {
    /// A node has died, and `heirs` inherit from it; none: nobody does.
    pub(super) fn node_died(&mut self, slot: NodeSlot, life: Life, heirs: Arc<[NodeId]>, hears: Hears) {
        if heirs.is_empty() {
            self.peer_down(slot, life.0, None);
        } else {
            self.peers.orphans.add(OrphanSlot { slot, life, heirs: heirs.clone() });
            self.tell_aware(life, &heirs);
            self.peer_down(slot, life.0, Some((life, &heirs)));
        }
        if heirs.contains(&self.shared.node) {
            if hears != Hears::Early {
                self.inherit(slot, life);
            }
            if hears == Hears::InTime {
                self.wait_for_news(life);
            }
        } else if hears == Hears::InTime {
            self.forget_copies(life.0);
        }
        self.moves.lives_are_over(life.0.tag(), life.1 + 1);
        self.note_death((life.0.tag(), life.1));
        // What was waited for may be known now.
        self.resume_links();
    }

    /// Heirs hear that what comes from this shard from now on comes from one who knows of the death.
    fn tell_aware(&mut self, (node, incarnation): Life, heirs: &[NodeId]) {
        let slots: Vec<NodeSlot> = heirs.iter().filter_map(|heir| self.peers.slot_of(*heir)).collect();
        for slot in slots {
            let sequence = self.next_message_id().sequence;
            self.push_leg(slot, sequence, None, &DataFrame::Aware { sequence, of: node.tag(), incarnation });
        }
    }

    pub(super) fn forget_orphans(&mut self, life: Life) {
        self.peers.orphans.remove(life);
    }

    /// The frames that a dead node was owed, with those who wait for them, go to its heirs. Returns who waits for nothing any more.
    pub(super) fn leave_to_heirs(
        &mut self,
        life: Life,
        heirs: &[NodeId],
        left: Vec<(Vec<u8>, Option<PromiseKey>)>,
    ) -> Vec<PromiseKey> {
        let slots: Vec<NodeSlot> = heirs.iter().filter_map(|heir| self.peers.slot_of(*heir)).collect();
        let here = heirs.contains(&self.shared.node);
        let mut lost = Vec::new();
        for (frame, wait) in left {
            let publish = publish_in(&frame).filter(|publish| {
                // Another member is found for what was for one there. One that was the dead node's by inheritance is nobody's now.
                let again = publish.orphan.is_some_and(|orphan| orphan.only.is_some());
                publish.share.is_none() && !again && publish.qos != QoS::AtMostOnce
            });
            match publish {
                Some(publish) if here || !slots.is_empty() => self.leave_message(life, (&slots, here), publish, wait),
                _ => lost.extend(wait),
            }
        }
        // No client has to wait because of them.
        self.peers.begin_route();
        lost
    }

    fn leave_message(
        &mut self,
        life: Life,
        (slots, here): (&[NodeSlot], bool),
        publish: frame::Publish<'_>,
        wait: Option<PromiseKey>,
    ) {
        let id = self.next_message_id();
        let earlier = [MessageId { sequence: publish.sequence, ..id }];
        let names = match &publish.name {
            Some(Name::Packet(names)) => Some(names),
            Some(Name::Will { .. }) | None => None,
        };
        let shards = if here { self.mail.len() } else { 0 };
        if let Some(promise) = wait {
            self.split_leg(promise, (slots.len() + shards) as u32);
        }
        let orphan = Orphan { of: life.0.tag(), incarnation: life.1, only: Some(publish.sequence) };
        let again = frame::Publish { sequence: id.sequence, orphan: Some(orphan), ..publish };
        for slot in slots {
            self.push_leg(*slot, id.sequence, wait.map(Wait::Promise), &DataFrame::Publish(again));
        }
        if shards > 0 {
            let expires_at = publish.remaining_secs.map(|secs| self.now + u64::from(secs) * 1000);
            let publisher: Arc<str> = publish.publisher.into();
            let (topic, payload, properties) = (publish.topic, publish.payload, publish.properties);
            let of_qos = (publish.qos, publish.retain);
            let id = names.map_or(id, Names::current);
            let mut outgoing = Outgoing::new(id, topic, payload, properties, of_qos, expires_at, &publisher);
            if let Some(Name::Will { epoch, .. }) = publish.name {
                outgoing.will = epoch;
            }
            self.mail_orphan(outgoing.message(), life, names.map_or(&earlier, Names::all), |own| {
                wait.map(|promise| Leg { shard: own, kept: None, stable: Some(promise), parts: false })
            });
        }
    }

    /// To all shards, this one too.
    fn mail_orphan(
        &mut self,
        message: &Arc<Message>,
        life: Life,
        earlier: &[MessageId],
        leg: impl Fn(ShardId) -> Option<Leg>,
    ) {
        for shard in 0..self.mail.len() as ShardId {
            let (message, earlier) = (message.clone(), earlier.into());
            let event = Event::Orphan { message, leg: leg(self.id), life, earlier };
            if shard == self.id {
                self.inbox.push_back(event);
            } else {
                self.mail(shard, event);
            }
        }
    }
}

/// At the node of the publisher.
impl Shard {
    /// The dead nodes that would get a message, one bit each.
    pub(super) fn orphans_for(&self, outgoing: &Outgoing<'_>) -> u64 {
        match self.peers.orphans.slots {
            0 => 0,
            slots => self.shared.cluster_index.nodes(outgoing.topic) & slots,
        }
    }

    /// The live nodes that inherit from some of them.
    pub(super) fn heirs_of_orphans(&self, orphans: u64) -> u64 {
        let heirs = self.peers.orphans.among(orphans).flat_map(|orphan| orphan.heirs.iter());
        heirs.filter_map(|heir| self.peers.slot_of(*heir)).fold(0, |slots, slot| slots | 1 << slot)
    }

    /// What the frame for a node says of them: the last that died of those that it inherits from. It waits for all that it knew to be dead by then.
    pub(super) fn orphan_for(&mut self, slot: NodeSlot, orphans: u64) -> Option<Orphan> {
        let node = self.peers.get_mut(slot)?.node;
        let (dead, incarnation) =
            self.peers.orphans.among(orphans).rev().find(|orphan| orphan.heirs.contains(&node))?.life;
        Some(Orphan { of: dead.tag(), incarnation, only: None })
    }

    /// Whether sessions that are on their way here from a dead node perhaps want a message to this topic, which may stand in an alias.
    pub(super) fn is_for_orphans_here(&self, topic: &str) -> bool {
        let open = self.heir.open_slots();
        open != 0 && (topic.is_empty() || self.shared.cluster_index.nodes(topic) & open != 0)
    }
}

/// At an heir.
impl Shard {
    /// Whether a frame of another node is to wait until all that this node inherits is in its index, of those of whose death the other node knew.
    pub(super) fn must_wait(&self, of: StreamKey, frame: &DataFrame<'_>) -> bool {
        let orphan = match frame {
            DataFrame::Publish(frame::Publish { orphan: Some(orphan), .. }) => orphan,
            DataFrame::Ask(ask) => return self.must_wait_to_answer(of, ask),
            _ => return false,
        };
        // The other node knows of the death before this one.
        let lives =
            || self.peers.incarnation_of(orphan.of).is_some_and(|incarnation| incarnation <= orphan.incarnation);
        !self.heir.looked || self.heir.is_inheriting_for(self.source_of(of)) || lives()
    }

    /// A message of another node goes to all that want it. One whose node may not have known that another one is dead comes perhaps a second time, for the sessions that
    /// were inherited from that: they have it.
    pub(super) fn note_plain(&mut self, outgoing: &Outgoing<'_>, is_orphan: bool) {
        if !is_orphan && outgoing.qos == QoS::ExactlyOnce && self.heir.is_heir() {
            self.heir.note_plain(outgoing.id);
        }
    }

    /// A message that a dead node had not made stable is for what was inherited from it.
    pub(super) fn route_to_inherited(&mut self, outgoing: &Outgoing<'_>, orphan: Orphan, earlier: &[MessageId]) {
        // Else nothing was inherited, or that was long ago.
        let Some(life) = self.heir.life_of(orphan.of, orphan.incarnation) else {
            return;
        };
        if earlier.iter().any(|id| self.heir.was_plain(life, *id)) {
            return;
        }
        let found = self.shared.index.shards(outgoing.topic);
        for shard in (0..self.mail.len() as ShardId)
            .filter(|shard| *shard != self.id && found.all >> shard & 1 == 1)
            .collect::<Vec<_>>()
        {
            let leg = if found.kept >> shard & 1 == 0 { None } else { self.keeping.open_leg(self.id) };
            let (message, earlier) = (outgoing.message().clone(), earlier.into());
            self.mail(shard, Event::Orphan { message, leg, life, earlier });
        }
        self.deliver_to_some(outgoing, |slot| wants_again(slot, life, earlier));
    }

    /// The same, of another shard or of this one. Who wants it may not all be here yet.
    pub(super) fn orphan_from_shard(
        &mut self,
        message: Arc<Message>,
        leg: Option<Leg>,
        life: Life,
        earlier: Box<[MessageId]>,
    ) {
        if !self.heir.has_entered(life) {
            return self.heir.set_aside(life, Event::Orphan { message, leg, life, earlier });
        }
        self.keeping.close_section();
        self.keeping.begin_leg(leg);
        self.note_seen(message.id);
        self.deliver_to_some(&Outgoing::from_message(&message), |slot| wants_again(slot, life, &earlier));
        self.delivered(leg, None);
    }
}

/// Whether a session was inherited from that life, and had not got there what it was owed as one of `earlier`.
fn wants_again(slot: &SessionSlot, life: Life, earlier: &[MessageId]) -> bool {
    let origin = slot.inherited.as_ref().filter(|origin| origin.life == life);
    origin.is_some_and(|origin| !earlier.iter().any(|id| origin.seen.contains(*id)))
}
