//! What a persistent session writes down. Everything of it that must outlive the connection and the process is a set of *items*: its subscriptions, the
//! messages of its queue and window, the QoS 2 packets of its client that are not yet released. Each has a number of its own, is put when it comes or
//! changes and deleted when it is done with; so the items that are there give back the session.
//!
//! The property test in `session/tests.rs` holds what they give back equal to the session after every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_storage::OwnerId;

use crate::mqtt::{MessageId, Names, PacketId, WillName};

use super::queue::Queued;
use super::seen::{Missed, Seen};
use super::session::Subscription;

/// The number of an item within its session: grows by one with each, from 1. It is also the place of a message in the queue.
pub type Position = u64;

/// What is put under a position.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    Subscription {
        filter: &'a Arc<str>,
        subscription: Subscription,
    },
    /// A message of QoS 1 or 2 that waits, or has been given a packet identifier.
    Message {
        queued: &'a Queued,
        packet_id: Option<PacketId>,
    },
    /// PUBREC came for it: only the PUBREL is ever sent again [MQTT-4.3.3-10].
    Received {
        packet_id: PacketId,
    },
    /// A QoS 2 PUBLISH of the client with this identifier was accepted. Without names its message is where it belongs, and a repetition is not routed again. With them
    /// it may be in part: a repetition is routed once more, and whoever has seen one of the names drops it.
    Accepted {
        packet_id: PacketId,
        names: Option<&'a Names>,
    },
    /// What the session has not seen although its shard has.
    Missed {
        missed: &'a [Missed],
    },
    /// What the session has seen where it was before, and its shard has not.
    Seen {
        seen: &'a Seen,
    },
    /// The session has had this Will, whatever has become of its message. Put with that.
    HadWill {
        will: &'a WillName,
    },
}

/// An item as it is found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    Subscription { filter: Arc<str>, subscription: Subscription },
    Message { queued: Queued, packet_id: Option<PacketId> },
    Received { packet_id: PacketId },
    Accepted { packet_id: PacketId, names: Option<Box<Names>> },
    Missed { missed: Vec<Missed> },
    Seen { seen: Seen },
    HadWill { will: WillName },
}

/// What the session wants to be told when all that it has written down until now is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// [`Session::kept`](super::Session::kept) with this packet identifier.
    Packet(PacketId),
    /// [`Session::message_kept`](super::Session::message_kept) with this position.
    Message(Position),
}

/// Where the items of sessions go.
pub trait Journal {
    fn put(&mut self, owner: OwnerId, position: Position, item: Item<'_>);

    fn delete(&mut self, owner: OwnerId, position: Position);

    /// Whether the packets that promise something have to wait until it is kept. If not, nothing is ever asked for.
    fn defers(&self) -> bool;

    /// Whether what is put now goes to disk by way of another shard, and perhaps later than what is put next.
    fn goes_round(&self) -> bool {
        false
    }

    fn ask(&mut self, owner: OwnerId, asked: Asked);

    /// A session is done with a message that another node keeps for so long: its client has acknowledged it, or it was dropped. Not said of what the session gives back.
    fn settled(&mut self, _id: MessageId) {}
}

/// The journal of a node without a data directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn put(&mut self, _owner: OwnerId, _position: Position, _item: Item<'_>) {}

    fn delete(&mut self, _owner: OwnerId, _position: Position) {}

    fn defers(&self) -> bool {
        false
    }

    fn ask(&mut self, _owner: OwnerId, _asked: Asked) {}
}

impl<J: Journal> Journal for &mut J {
    fn put(&mut self, owner: OwnerId, position: Position, item: Item<'_>) {
        (**self).put(owner, position, item);
    }

    fn delete(&mut self, owner: OwnerId, position: Position) {
        (**self).delete(owner, position);
    }

    fn defers(&self) -> bool {
        (**self).defers()
    }

    fn goes_round(&self) -> bool {
        (**self).goes_round()
    }

    fn ask(&mut self, owner: OwnerId, asked: Asked) {
        (**self).ask(owner, asked);
    }

    fn settled(&mut self, id: MessageId) {
        (**self).settled(id);
    }
}

/// A journal in memory: what is on it gives back the session. For tests.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    pub items: BTreeMap<Position, Restored>,
    /// What [`Journal::defers`] says.
    pub defers: bool,
    pub asked: Vec<Asked>,
    pub settled: Vec<MessageId>,
}

impl Journal for Shelf {
    fn put(&mut self, _owner: OwnerId, position: Position, item: Item<'_>) {
        let restored = match item {
            Item::Subscription { filter, subscription } => {
                Restored::Subscription { filter: filter.clone(), subscription }
            }
            Item::Message { queued, packet_id } => Restored::Message { queued: queued.clone(), packet_id },
            Item::Received { packet_id } => Restored::Received { packet_id },
            Item::Accepted { packet_id, names } => {
                Restored::Accepted { packet_id, names: names.map(|names| Box::new(*names)) }
            }
            Item::Missed { missed } => Restored::Missed { missed: missed.to_vec() },
            Item::Seen { seen } => Restored::Seen { seen: seen.clone() },
            Item::HadWill { will } => Restored::HadWill { will: will.clone() },
        };
        self.items.insert(position, restored);
    }

    fn delete(&mut self, _owner: OwnerId, position: Position) {
        assert!(self.items.remove(&position).is_some(), "what is deleted was put");
    }

    fn defers(&self) -> bool {
        self.defers
    }

    fn ask(&mut self, _owner: OwnerId, asked: Asked) {
        self.asked.push(asked);
    }

    fn settled(&mut self, id: MessageId) {
        self.settled.push(id);
    }
}
