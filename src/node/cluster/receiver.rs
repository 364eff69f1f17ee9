//! What the links bring, and where it goes: frames to the Raft group, to the shards, to the sync of retained messages and to the admin port's
//! questions, data connections to the shards.

use std::sync::Arc;

use bytes::Bytes;

use holdfast_raft::{Group, Lane as GroupLane, Network, NodeId};
use tracing::warn;

use crate::byte_stream::ByteStream;
use crate::cluster::copies::standing::Standing;
use crate::cluster::session_move::SessionFrame;
use crate::link::{Lane, Peer, Receiver};
use crate::metrics;
use crate::shard::Shared;
use crate::shard::mailbox::Event;
use crate::subscriptions::ShardId;

use super::plane::{ClusterPlane, kind};
use super::questions::Questions;
use super::retained_sync::RetainedSync;

/// The node at the end of its links.
pub(super) struct Switchboard {
    pub shared: Arc<Shared>,
    pub plane: Arc<ClusterPlane>,
    pub retained: RetainedSync,
    pub questions: Arc<Questions>,
}

impl Receiver for Switchboard {
    fn up(&self, peer: &Arc<Peer>) {
        self.plane.note_shards(peer.id, peer.shards);
        if let Some(group) = self.plane.group() {
            group.link_changed(peer.id, true);
        }
    }

    fn down(&self, peer: &Arc<Peer>) {
        if let Some(group) = self.plane.group() {
            group.link_changed(peer.id, false);
        }
    }

    /// The state says so before the links of a node end that stops in good order; of one that falls silent or is killed it says so later. While this node
    /// stops, the others may do so too, and the state then learns of nobody.
    fn has_stopped(&self, peer: &Peer) -> bool {
        let is_live = |group: &Group| group.read(|state| state.node(peer.id).is_some_and(|node| node.live));
        let group = self.plane.group();
        group.is_some_and(|group| group.is_stopping() || (group.is_registered() && !is_live(group)))
    }

    fn frame(&self, from: &Arc<Peer>, lane: Lane, kind: u8, payload: Bytes) {
        match kind {
            kind::GROUP => {
                if let Some(group) = self.plane.group() {
                    group.receive(from.id, group_lane(lane), payload);
                }
            }
            kind::SESSION => match SessionFrame::decode(&payload) {
                Ok(frame) => {
                    let shard = usize::from(self.shared.shard_of(frame.client()));
                    let event = Event::Session { from: from.id, frame: Box::new(frame) };
                    self.shared.mailboxes[shard].push(event);
                }
                Err(error) => self.malformed(from, &error),
            },
            kind::RETAINED => self.retained.frame(from.id, payload),
            kind::ADMIN => {
                if let Err(error) = self.questions.frame(from.id, &payload) {
                    self.malformed(from, &error);
                }
            }
            kind::STANDING => match Standing::decode(&payload) {
                Some(standing) => self.plane.heard_standing(from, standing),
                None => self.malformed(from, &"a standing that cannot be read"),
            },
            _ => self.malformed(from, &"a kind of frame that this program does not know"),
        }
    }

    fn data_out(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream) {
        if let Some(mailbox) = self.shared.mailboxes.get(usize::from(shard)) {
            mailbox.push(Event::LinkTo { node: peer.id, stream: Box::new(stream) });
        }
    }

    /// A shard of another node always comes to the same one here, so that its stream has one owner.
    fn data_in(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream) {
        let own = usize::from(shard) % self.shared.mailboxes.len();
        let event = Event::LinkFrom { node: peer.id, shard, stream: Box::new(stream) };
        self.shared.mailboxes[own].push(event);
    }
}

impl Switchboard {
    fn malformed(&self, from: &Peer, error: &dyn std::fmt::Display) {
        if let Some(left_out) = metrics::admit_line("malformed frame of another node") {
            let left_out = (left_out > 0).then_some(left_out);
            warn!(event = "link", node = &*from.name, left_out, "a frame was thrown away: {error}");
        }
    }
}

fn group_lane(lane: Lane) -> GroupLane {
    match lane {
        Lane::Control => GroupLane::Control,
        Lane::Bulk => GroupLane::Bulk,
    }
}

/// The links as the Raft group uses them.
pub(super) struct GroupNetwork(pub Arc<ClusterPlane>);

impl Network for GroupNetwork {
    fn send(&self, to: NodeId, lane: GroupLane, message: Bytes) -> bool {
        let lane = match lane {
            GroupLane::Control => Lane::Control,
            GroupLane::Bulk => Lane::Bulk,
        };
        self.0.links().is_some_and(|links| links.send(to, lane, kind::GROUP, message))
    }

    fn linked(&self) -> Vec<NodeId> {
        self.0.links().map(crate::link::Links::linked).unwrap_or_default()
    }
}
