//! Nodes that have no room on their disk for what their sessions would have to keep: see [`NoRoom`](crate::cluster::no_room::NoRoom), of which this is the shell.
//!
//! Owner: the shard. Test to read first: `cluster-tests/tests/cluster/full_disk.rs`.

use crate::cluster::no_room::Waiting;
use crate::link::frame::{self, DataFrame};
use crate::metrics::DropReason;
use crate::mqtt::QoS;
use crate::subscriptions::NodeSlot;

use super::super::Shard;
use super::super::keeping::PromiseKey;
use super::{Wait, publish_in, slots_of};

impl Shard {
    /// A node has nobody for a message: should it have to be sent there again, there is nothing in it. Whoever is asked next has it alone.
    pub(in crate::shard) fn void_leg(&mut self, slot: NodeSlot, sequence: u64) {
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.legs.void(sequence);
        }
    }

    /// A node has no room on its disk for a message: its publisher is told, or it is sent again until there is.
    pub(super) fn leg_refused(&mut self, slot: NodeSlot, sequence: u64) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else { return };
        let Some((frame, wait)) = peer.legs.refused(sequence) else { return };
        let wait = match wait {
            // It is no heir any more: what it refuses is missing in all that it gets after it.
            Some(Wait::Copied(_)) => return self.lose_heir(slot),
            wait => wait.and_then(Wait::promise),
        };
        // A node refuses nothing else, and nothing of QoS 0.
        let (topic, qos) = publish_in(&frame).map_or(("", QoS::AtMostOnce), |publish| (publish.topic, publish.qos));
        peer.no_room.refused(now, topic);
        self.peers.short |= 1 << slot;
        // One for which nobody waits was accepted before, by a node that is dead, and its publisher has heard so.
        let is_lost = qos == QoS::AtMostOnce || wait.is_some_and(|promise| self.refuse_promise(promise));
        if is_lost {
            self.metrics().dropped(DropReason::StorageFull, 1);
            return wait.into_iter().for_each(|promise| self.answered(promise));
        }
        let topic: Box<str> = topic.into();
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.no_room.wait(now, &topic, frame, wait);
        }
    }

    /// Whether a node that has a subscriber to this topic has just refused a message to it.
    pub(in crate::shard) fn is_short_elsewhere(&mut self, topic: &str) -> bool {
        if self.peers.short == 0 {
            return false;
        }
        let (now, nodes) = (self.now, self.shared.cluster_index.nodes(topic) & self.peers.short);
        slots_of(nodes).any(|slot| self.peers.get_mut(slot).is_some_and(|peer| peer.no_room.is_short(now, topic)))
    }

    /// Tells a node that this shard routes by the state of `index`: behind everything that it was sent before, and behind what it has no room for, which it may have to take for a
    /// session that goes away from it then.
    pub(in crate::shard) fn send_mark(&mut self, slot: NodeSlot, index: u64) {
        let Some(peer) = self.peers.get_mut(slot) else { return };
        peer.held_mark = peer.held_mark.max(Some(index));
        if !peer.no_room.is_waited_for() {
            self.send_held_mark(slot);
        }
    }

    pub(super) fn send_held_mark(&mut self, slot: NodeSlot) {
        if let Some(index) = self.peers.get_mut(slot).and_then(|peer| peer.held_mark.take()) {
            let sequence = self.next_message_id().sequence;
            self.push_leg(slot, sequence, None, &DataFrame::Mark { sequence, index });
        }
    }

    /// Sends what was refused once more, and reads on from those whose messages were held for it.
    pub(super) fn try_again_for_room(&mut self) {
        if self.peers.short == 0 {
            return;
        }
        let now = self.now;
        for slot in slots_of(self.peers.short) {
            let Some(peer) = self.peers.get_mut(slot) else { continue };
            let again = peer.no_room.to_try(now);
            for Waiting { frame, wait, since, .. } in again {
                self.send_again(slot, &frame, wait, now.saturating_sub(since));
            }
            let Some(peer) = self.peers.get_mut(slot) else { continue };
            let (is_over, is_waited_for) = (peer.no_room.look(now), peer.no_room.is_waited_for());
            if is_over {
                self.peers.short &= !(1 << slot);
            }
            // All that waited may have expired.
            if !is_waited_for {
                self.send_held_mark(slot);
            }
        }
        self.read_on();
    }

    /// A message has a new place in the stream, behind all that was sent while it waited.
    fn send_again(&mut self, slot: NodeSlot, frame: &[u8], wait: Option<PromiseKey>, waited_ms: u64) {
        let left = |secs: u32| secs.checked_sub((waited_ms / 1000) as u32).filter(|secs| *secs > 0);
        let publish = publish_in(frame).map(|publish| (publish.remaining_secs.map(left), publish));
        let Some((remaining, publish)) = publish.filter(|(remaining, _)| *remaining != Some(None)) else {
            self.metrics().dropped(DropReason::Expired, 1);
            return wait.into_iter().for_each(|promise| self.answered(promise));
        };
        let sequence = self.next_message_id().sequence;
        let publish = frame::Publish { sequence, remaining_secs: remaining.flatten(), ..publish };
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.no_room.sent_again(sequence);
        }
        self.push_leg(slot, sequence, wait.map(Wait::Promise), &DataFrame::Publish(publish));
        // Whoever publishes next does not have to wait for it.
        self.peers.full = 0;
    }
}
