//! Nodes come, begin anew, and are given up: what this shard owes them goes with that.
//!
//! Owner: the shard, in [`Peers`](super::Peers). Test to read first: `cluster-tests/tests/cluster/restarts.rs`.

use std::io;
use std::task::Waker;

use holdfast_raft::{Incarnation, NodeId};

use crate::cluster::copies::inheriting::Life;
use crate::cluster::no_room::NoRoom;
use crate::cluster::publish_legs::PublishLegs;
use crate::metrics::DropReason;
use crate::subscriptions::NodeSlot;

use super::super::keeping::PromiseKey;
use super::super::{Owed, Shard};
use super::{Peer, Wait, slots_of};

impl Shard {
    /// A node is live, as `incarnation`.
    pub(in crate::shard) fn peer_up(&mut self, slot: NodeSlot, node: NodeId, incarnation: Incarnation) {
        let now = self.now;
        let slots = &mut self.peers.slots;
        if slots.len() <= usize::from(slot) {
            slots.resize_with(usize::from(slot) + 1, || None);
        }
        match &mut slots[usize::from(slot)] {
            // It has started anew without having been given up: what it is owed goes to it all the same.
            Some(peer) if peer.node == node => {
                let earlier = std::mem::replace(&mut peer.incarnation, incarnation);
                if earlier != incarnation {
                    peer.legs.begin_life(now);
                    self.leave_earlier_life(slot);
                    self.keep_awaited_of(node);
                    // Of sessions that it was giving, or had asked for, it knows nothing.
                    self.move_node_gone(node);
                }
            }
            place => {
                *place = Some(Box::new(Peer {
                    node,
                    incarnation,
                    legs: PublishLegs::default(),
                    connection: None,
                    run: None,
                    waiting: Vec::new(),
                    no_room: NoRoom::default(),
                    held_mark: None,
                    told_stuck: false,
                }));
                self.give_again(slot, node);
            }
        }
        self.moves.lives_are_over(node.tag(), incarnation);
        self.note_begun(node.tag(), incarnation);
        self.tell_owed(slot);
        self.take_early_links(node);
        self.resume_links();
    }

    /// A node has begun anew. Nothing more is given to the connection of the life before: what is sent from now on is for sessions of this one.
    fn leave_earlier_life(&mut self, slot: NodeSlot) {
        let Some(peer) = self.peers.get_mut(slot) else { return };
        let is_connected = peer.legs.is_connected();
        let Some(connection) = &mut peer.connection else { return };
        let serial = connection.serial;
        if is_connected {
            return self.peer_broke(slot, serial, &io::Error::other("the node has begun anew"));
        }
        connection.waits = false;
        connection.waker.take().into_iter().for_each(Waker::wake);
    }

    /// A node is dead: nobody waits for it any more, and what was for members of share groups there goes to others. What was for its sessions goes to the heirs, if
    /// it has any.
    pub(in crate::shard) fn peer_down(&mut self, slot: NodeSlot, node: NodeId, heirs: Option<(Life, &[NodeId])>) {
        let Some(mut peer) =
            self.peers.slots.get_mut(usize::from(slot)).and_then(|peer| peer.take_if(|peer| peer.node == node))
        else {
            return;
        };
        if peer.connection.take().is_some() {
            self.control.data_ended(node, self.id);
        }
        self.close_links_from(node);
        self.no_news_from(node);
        let unsent = peer.legs.first_unsent();
        self.peers.short &= !(1 << slot);
        let mut left = Vec::new();
        peer.legs.take(|frame, wait| left.push((frame.to_vec(), wait.and_then(Wait::promise))));
        // They were in front of those.
        let refused = peer.no_room.clear().into_iter().map(|waiting| (waiting.frame, waiting.wait));
        let left: Vec<_> = refused.chain(left).collect();
        let lost: Vec<PromiseKey> = match heirs {
            Some((life, heirs)) => self.leave_to_heirs(life, heirs, left),
            None => left.into_iter().filter_map(|(_, promise)| promise).collect(),
        };
        self.metrics().dropped(DropReason::NodeGone, lost.len() as u64);
        lost.into_iter().for_each(|promise| self.answered(promise));
        self.lose_heir(slot);
        self.read_waiting(std::mem::take(&mut peer.waiting));
        let asks = heirs.is_some() && self.keeping.has_copies();
        if asks {
            self.keep_awaited_of(node);
        }
        let shares = self.share_groups.node_gone(self.now, node, unsent, asks);
        self.carry_out_shares(shares);
        let owed = Owed { incarnation: peer.incarnation, bytes: 0, stuck_ms: 0 };
        self.control.owed(self.id, node, owed);
        self.settle_waits_for_legs();
    }

    /// All of this shard's own legs are void: its node was given up by the others.
    pub(in crate::shard) fn forget_peers(&mut self) {
        for slot in slots_of(self.peers.all()) {
            if let Some(node) = self.peers.get_mut(slot).map(|peer| peer.node) {
                self.peer_down(slot, node, None);
            }
        }
    }
}
