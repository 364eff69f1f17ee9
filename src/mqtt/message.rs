//! An application message at rest: in a queue, in an inflight window, as a retained value, or on its way to another shard.
//!
//! It owns its bytes and is shared by reference count: one body per node, however many sessions queue it. A message is
//! never changed once made; what differs from one subscriber to the next (packet id, QoS, subscription identifiers, topic alias)
//! is written in front of it when it is sent.

use std::sync::Arc;

use bytes::Bytes;

use super::QoS;

/// The place of a message in the stream of the shard that accepted it, on the node that did. Streams keep their order to every destination,
/// so one number for each stream tells what a receiver has seen. No two messages ever have the same, whatever the node and however often it starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// The lower half of the id of the node; 0 for what was written before messages named it.
    pub node: u64,
    pub shard: u16,
    pub sequence: u64,
}

/// Bits of a sequence that count within one start of the node: more than a million messages per second for a week would use; the number of the start is above them.
pub const SEQUENCE_BITS: u32 = 40;

/// Bits that count within a generation of streams, of which there are some thousands in a start.
const GENERATION_BITS: u32 = 28;

/// Bits of a shard's number, where the other bits have a meaning of their own.
const SHARD_BITS: u32 = 6;

impl MessageId {
    /// In the number of a shard: the message is of a packet.
    const OF_PACKET: u16 = 1 << 15;
    /// And of which start and generation.
    const SLOTS: u16 = 15 << SHARD_BITS;

    /// The same place in the stream of the packets of that shard. That is another one for each generation: of what a node that starts anew, or is given up, had under way,
    /// some has been sent and some has not, and what is sent later must not be taken for a sign that all of it has. The last four starts, and four generations
    /// of each, are told apart.
    pub fn of_packet(self) -> MessageId {
        let start = (self.sequence >> SEQUENCE_BITS & 3) as u16;
        let generation = (self.sequence >> GENERATION_BITS & 3) as u16;
        let slot = (start << 2 | generation) << SHARD_BITS;
        MessageId { shard: self.accepted_by() | slot | MessageId::OF_PACKET, ..self }
    }

    pub fn is_of_packet(self) -> bool {
        self.shard & MessageId::OF_PACKET != 0
    }

    /// The shard that has accepted the message, whichever of its streams it is in.
    pub fn accepted_by(self) -> u16 {
        if self.is_of_packet() { self.shard & !(MessageId::OF_PACKET | MessageId::SLOTS) } else { self.shard }
    }

    /// Whether everything in a stream up to `last` has come before or with this one, if that is in the stream.
    pub fn is_up_to(self, last: u64) -> bool {
        let same = !self.is_of_packet() || self.sequence >> GENERATION_BITS == last >> GENERATION_BITS;
        self.sequence <= last && same
    }

    /// Which start of its node, and generation of streams, the message is of: a number that grows.
    pub fn generation(self) -> u64 {
        self.sequence >> GENERATION_BITS
    }

    /// Stands for the end of a generation of a node, and of those before: in a stream of its own, in which nothing comes.
    pub fn end_of_life(node: u64, generation: u64) -> MessageId {
        MessageId { node, shard: MessageId::OF_PACKET - 1, sequence: (generation + 1) << GENERATION_BITS }
    }

    /// Where the next generation begins behind a sequence. `None`: this start of the node has had so many that it has to make do with this one.
    pub fn next_generation(sequence: u64) -> Option<u64> {
        let next = ((sequence >> GENERATION_BITS) + 1) << GENERATION_BITS;
        let half = 1 << (SEQUENCE_BITS - 1);
        (next & ((1 << SEQUENCE_BITS) - 1) < half && next >> SEQUENCE_BITS == sequence >> SEQUENCE_BITS).then_some(next)
    }
}

const _: () = assert!(crate::limits::SHARDS_MAX <= 1 << SHARD_BITS);

/// As what the message of a QoS 2 packet may have been routed: one id for each life of its publisher's home that began with it and did not come to its end. Whoever has
/// seen one of them has the message. Never empty; beyond [`Names::MAX`] the oldest are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    ids: [MessageId; Names::MAX],
    count: u8,
}

impl Names {
    /// So many homes in a row have to die during one exchange of packets for one of them to be forgotten.
    pub const MAX: usize = 4;

    pub fn new(id: MessageId) -> Names {
        let mut names = Names { ids: Default::default(), count: 0 };
        names.add(id);
        names
    }

    /// None for no ids at all.
    pub fn from_ids(ids: impl IntoIterator<Item = MessageId>) -> Option<Names> {
        let mut ids = ids.into_iter();
        let mut names = Names::new(ids.next()?);
        ids.for_each(|id| names.add(id));
        Some(names)
    }

    /// It is routed anew, as `id`.
    pub fn add(&mut self, id: MessageId) {
        if usize::from(self.count) == Names::MAX {
            self.ids.rotate_left(1);
            self.count -= 1;
        }
        self.ids[usize::from(self.count)] = id;
        self.count += 1;
    }

    /// In their order.
    pub fn all(&self) -> &[MessageId] {
        &self.ids[..usize::from(self.count)]
    }

    /// As what it is routed now.
    pub fn current(&self) -> MessageId {
        self.ids[usize::from(self.count) - 1]
    }

    pub fn earlier(&self) -> &[MessageId] {
        &self.ids[..usize::from(self.count) - 1]
    }
}

/// As what a Will is known on every node: it may be published twice, by two nodes, if the first of them dies in the middle.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WillName {
    pub client: Arc<str>,
    /// Of the connection that left it.
    pub epoch: u64,
}

/// An application message with everything that travels to its subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    /// The time of the hybrid clock at which it became the retained message of its topic: of two, the one with the greater (stamp, node) stays, on every
    /// node. 0 for one that is not retained.
    pub stamp: u64,
    /// The topic name, valid as such; never an alias.
    pub topic: Arc<str>,
    pub payload: Bytes,
    /// The properties that are forwarded unchanged and in order, as raw valid bytes: payload format, content type,
    /// response topic, correlation data, user properties [MQTT-3.3.2-17], [MQTT-3.3.2-18].
    pub properties: Bytes,
    /// The QoS at which the publisher sent it.
    pub qos: QoS,
    /// The RETAIN flag as the publisher set it, for Retain As Published [MQTT-3.3.1-13].
    pub retain: bool,
    /// When the Message Expiry Interval runs out, in milliseconds of the node's clock.
    pub expires_at: Option<u64>,
    /// The client id of the publisher, for No Local [MQTT-3.8.3-3]. A Will has its client's.
    pub publisher: Arc<str>,
    /// Of one for a share group: what the QoS 2 packet is known by that brought it, beside its place in a stream.
    pub name: Option<MessageId>,
    /// Of a Will: the epoch of the connection that left it, by which it is known with its publisher, whoever publishes it; while it is offered to
    /// sessions. 0 for what is no Will: no connection has that.
    pub will: u64,
}

#[cfg(test)]
impl Message {
    /// An empty one, for tests, which say beside this what matters to them.
    pub fn sample(id: MessageId, topic: &str, qos: QoS) -> Message {
        Message {
            id,
            stamp: 0,
            topic: topic.into(),
            payload: Bytes::new(),
            properties: Bytes::new(),
            qos,
            retain: false,
            expires_at: None,
            publisher: "p".into(),
            name: None,
            will: 0,
        }
    }
}

impl Message {
    /// Bytes that this message keeps in memory, near enough for limits and counters.
    pub fn size(&self) -> usize {
        self.topic.len() + self.payload.len() + self.properties.len() + std::mem::size_of::<Self>()
    }

    /// Whether the Message Expiry Interval has run out [MQTT-3.3.2-5].
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// What is left of a Message Expiry Interval, in whole seconds [MQTT-3.3.2-6]. What has not expired never says 0: part of a second
/// counts as one.
pub fn remaining_secs(expires_at: Option<u64>, now: u64) -> Option<u32> {
    expires_at.map(|at| u32::try_from(at.saturating_sub(now).div_ceil(1000)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_forgotten() {
        let id = |sequence| MessageId { node: 1, shard: 2, sequence }.of_packet();
        let mut names = Names::new(id(1));
        assert_eq!((names.current(), names.earlier()), (id(1), &[][..]));
        (2..=5).for_each(|sequence| names.add(id(sequence)));
        assert_eq!((names.current(), names.earlier()), (id(5), &[id(2), id(3), id(4)][..]));
        assert_eq!(Names::from_ids(names.all().iter().copied()), Some(names));
        assert_eq!((id(1).accepted_by(), id(1).is_of_packet()), (2, true));
    }

    #[test]
    fn packets_of_another_start_or_generation_are_another_stream() {
        let id = |start: u64, generation: u64, sequence: u64| {
            let sequence = start << SEQUENCE_BITS | generation << GENERATION_BITS | sequence;
            MessageId { node: 1, shard: 63, sequence }.of_packet()
        };
        let shards = [(1, 0), (1, 1), (2, 0), (3, 0), (5, 0)].map(|(start, generation)| id(start, generation, 7).shard);
        assert_eq!(shards[0], shards[4], "they come round");
        let different: std::collections::BTreeSet<u16> = shards.into_iter().collect();
        assert_eq!(different.len(), 4);
        assert!(different.iter().all(|shard| MessageId { shard: *shard, ..id(1, 0, 7) }.accepted_by() == 63));
        assert!(id(1, 0, 7).is_up_to(id(1, 0, 8).sequence) && !id(1, 0, 9).is_up_to(id(1, 0, 8).sequence));
        assert!(!id(1, 0, 7).is_up_to(id(5, 0, 8).sequence), "that says nothing of four starts ago");
        let plain = MessageId { shard: 0x7FFF, ..id(1, 0, 7) };
        assert!(plain.is_up_to(id(5, 0, 8).sequence) && plain.accepted_by() == 0x7FFF);
        assert_eq!(MessageId::next_generation(id(2, 3, 9).sequence), Some(id(2, 4, 0).sequence));
        assert_eq!(MessageId::next_generation((3 << SEQUENCE_BITS) - 1), None);
    }
}
