//! Two maps and a way between them that loses frames, against a list of everything that was ever set.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::mqtt::{Message, MessageId, QoS};
use crate::retained::{Change, HybridClock, Known, Map};

const VALUE_MAX: usize = 2_000_000;

/// A node, as far as its retained messages go.
struct Node {
    number: u64,
    map: Map,
    clock: HybridClock,
    room: (usize, usize),
}

impl Node {
    fn new(number: u64) -> Node {
        Node { number, map: Map::new(), clock: HybridClock::default(), room: (usize::MAX >> 1, usize::MAX >> 1) }
    }

    fn with<R>(&mut self, now: u64, act: impl FnOnce(&mut Replica<'_>) -> R) -> R {
        let mut replica = Replica::new(&mut self.map, &self.clock, now, self.room);
        act(&mut replica)
    }

    /// What a client of the node publishes.
    fn publish(&mut self, now: u64, topic: &str, payload: &[u8], expires_at: Option<u64>) -> Arc<Message> {
        let id = MessageId { node: self.number, shard: 1, sequence: now };
        let message = Arc::new(Message {
            stamp: self.clock.next(now),
            payload: Bytes::copy_from_slice(payload),
            retain: true,
            expires_at,
            ..Message::sample(id, topic, QoS::AtLeastOnce)
        });
        assert_ne!(self.map.set(now, message.clone()), Change::Older, "what a client of the node publishes wins there");
        message
    }

    /// The same message at another node.
    fn hear(&mut self, now: u64, message: &Arc<Message>) -> Change {
        self.clock.merge(message.stamp, now).expect("the clocks agree");
        self.map.set(now, message.clone())
    }

    fn all(&self) -> BTreeMap<Arc<str>, (Version, Option<Bytes>)> {
        let payload = |known: &Known<'_>| match known {
            Known::Message(message) => Some(message.payload.clone()),
            Known::Gone(_) => None,
        };
        self.map.known_behind(None).map(|(topic, known)| (topic.clone(), (known.version(), payload(&known)))).collect()
    }
}

/// The frames between the two sides: 0 asks, 1 answers.
struct Way {
    sides: [Sync; 2],
    /// On their way to each side.
    queues: [VecDeque<Bytes>; 2],
    frames: usize,
    bytes_max: usize,
}

impl Way {
    fn new() -> Way {
        let sides = [Sync::new(Role::Asks, VALUE_MAX), Sync::new(Role::Answers, VALUE_MAX)];
        Way { sides, queues: Default::default(), frames: 0, bytes_max: 0 }
    }

    fn send(&mut self, to: usize, frames: impl IntoIterator<Item = Frame>, lose: &mut dyn FnMut() -> bool) {
        for frame in frames {
            let bytes = frame.encode();
            self.frames += 1;
            self.bytes_max = self.bytes_max.max(bytes.len());
            if !lose() {
                self.queues[to].push_back(bytes);
            }
        }
    }

    fn start(&mut self, now: u64, asker: &mut Node, lose: &mut dyn FnMut() -> bool) {
        let side = &mut self.sides[0];
        let frame = asker.with(now, |store| side.start(store));
        self.send(1, [frame], lose);
    }

    /// One side takes its next frame. False: there is none.
    fn step(&mut self, now: u64, to: usize, node: &mut Node, lose: &mut dyn FnMut() -> bool) -> bool {
        let Some(bytes) = self.queues[to].pop_front() else { return false };
        let frame = Frame::decode(&bytes).expect("a frame that was sent");
        let side = &mut self.sides[to];
        let frames = node.with(now, |store| side.handle(frame, store));
        self.send(1 - to, frames, lose);
        true
    }

    /// Rounds without loss until one comes to its end.
    fn run(&mut self, now: u64, nodes: &mut [Node; 2]) {
        let mut keep = || false;
        self.start(now, &mut nodes[0], &mut keep);
        while self.step(now, 1, &mut nodes[1], &mut keep) || self.step(now, 0, &mut nodes[0], &mut keep) {}
        assert!(self.sides[0].is_done() && self.sides[1].is_done(), "{:?}", self.sides);
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A client of a node sets or deletes a value; the other node hears of it, or does not.
    Publish {
        node: usize,
        topic: u8,
        len: usize,
        expires_in: Option<u64>,
        heard: bool,
    },
    /// The nodes look for what has expired.
    Expire {
        node: usize,
    },
    Pass(u64),
    /// A round begins, whether one is under way or not.
    Start,
    /// A side takes some of its frames, of which the ways there lose some.
    Exchange {
        to: usize,
        frames: u8,
        lost: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![3 => 1_usize..9, 2 => Just(0), 1 => Just(300_000)];
    prop_oneof![
        8 => (0_usize..2, 0_u8..6, length, prop::option::weighted(0.3, 1_u64..9), any::<bool>())
            .prop_map(|(node, topic, len, expires_in, heard)| Step::Publish { node, topic, len, expires_in, heard }),
        1 => (0_usize..2).prop_map(|node| Step::Expire { node }),
        1 => (1_u64..4).prop_map(Step::Pass),
        1 => Just(Step::Start),
        5 => (0_usize..2, 1_u8..6, any::<u8>()).prop_map(|(to, frames, lost)| Step::Exchange { to, frames, lost: lost & lost >> 4 }),
    ]
}

type Newest = BTreeMap<String, (Version, Option<Bytes>, Option<u64>)>;

/// Runs the steps, then a round without loss. Returns what was set last, by topic.
fn run(steps: Vec<Step>, nodes: &mut [Node; 2], now: &mut u64) -> Newest {
    let (mut way, mut newest) = (Way::new(), Newest::new());
    for step in steps {
        match step {
            Step::Publish { node, topic, len, expires_in, heard } => {
                let topic = format!("t/{topic}");
                let payload = vec![topic.len() as u8; len];
                let message = nodes[node].publish(*now, &topic, &payload, expires_in.map(|millis| *now + millis));
                if heard {
                    nodes[1 - node].hear(*now, &message);
                }
                let value = (Version::of(&message), (len > 0).then(|| message.payload.clone()), message.expires_at);
                let last = newest.entry(topic).or_insert_with(|| value.clone());
                if last.0 < value.0 {
                    *last = value;
                }
            }
            Step::Expire { node } => drop(nodes[node].map.expire(*now, 100)),
            Step::Pass(millis) => *now += millis,
            Step::Start => way.start(*now, &mut nodes[0], &mut || false),
            Step::Exchange { to, frames, lost } => {
                let mut lost = lost;
                let mut lose = || {
                    let is_lost = lost & 1 != 0;
                    lost >>= 1;
                    is_lost
                };
                for _ in 0..frames {
                    way.step(*now, to, &mut nodes[to], &mut lose);
                }
            }
        }
    }
    way.queues.iter_mut().for_each(VecDeque::clear);
    way.run(*now, nodes);
    newest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn two_maps_end_equal_whatever_happened(steps in prop::collection::vec(step(), 1..50)) {
        let (mut nodes, mut now) = ([Node::new(1), Node::new(2)], 1_000);
        let newest = run(steps, &mut nodes, &mut now);
        // What travels takes its remaining lifetime along, so one node may have a value for as much longer as that was on its way. In the end both have let it go.
        now += 1_000;
        for node in &mut nodes {
            node.map.expire(now, usize::MAX);
        }
        let [one, other] = &nodes;
        prop_assert_eq!(one.all(), other.all());
        prop_assert_eq!(one.map.digest(), other.map.digest());
        // Of each topic what was set last, unless it was deleted or has expired: then nothing.
        let left = |(topic, (version, payload, expires_at)): (String, (Version, Option<Bytes>, Option<u64>))| {
            (Arc::from(topic), (version, payload.filter(|_| expires_at.is_none_or(|at| at > now))))
        };
        prop_assert_eq!(one.all(), newest.into_iter().map(left).collect::<BTreeMap<_, _>>());
    }

    #[test]
    fn frames_there_and_back(
        round: u32, number: u32, kind in 0_u8..9, word: u64, bytes in prop::collection::vec(any::<u8>(), 0..50),
        topics in prop::collection::vec(("[a-z/]{1,9}", any::<u64>(), any::<u32>(), any::<bool>()), 0..5),
        ends in (prop::option::of("[a-z]{1,5}"), prop::option::of("[a-z]{1,5}")),
    ) {
        let (after, until) = (ends.0.map(Arc::from), ends.1.map(Arc::from));
        let listing = |(topic, stamp, size, gone): &(String, u64, u32, bool)| {
            Listing { topic: topic.as_str().into(), version: Version { stamp: *stamp, node: word }, size: *size, gone: *gone }
        };
        let wanted = topics.iter().map(|(topic, ..)| topic.as_str().into()).collect();
        let body = match kind {
            0 => {
                let mut digest = Digest::default();
                digest.0[word as usize % 256] = word;
                Body::Digest(Box::new(digest))
            }
            1 => Body::Differing(Buckets([word, 1, 2, 3])),
            2 => Body::List(List { buckets: Buckets([word, 0, 0, 1]), after, until, listings: topics.iter().map(listing).collect() }),
            3 => Body::Listed(Listed { until, wanted }),
            4 | 5 => Body::Values { more: kind == 4, bytes: bytes.into() },
            6 => Body::Finish,
            7 => Body::Finished,
            _ => Body::Broken,
        };
        let frame = Frame { round, number, body };
        prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
    }

    #[test]
    fn bytes_that_are_nothing_do_no_harm(kind in 0_u8..12, round in 0_u32..3, number in 0_u32..2, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut all = vec![kind];
        all.extend(round.to_le_bytes());
        all.extend(number.to_le_bytes());
        all.extend(&bytes);
        if let Some(frame) = Frame::decode(&all.into()) {
            for role in [Role::Asks, Role::Answers] {
                let (mut node, mut side) = (Node::new(1), Sync::new(role, VALUE_MAX));
                if role == Role::Asks {
                    node.with(0, |store| side.start(store));
                }
                node.with(0, |store| side.handle(frame.clone(), store));
            }
        }
        let _ = Copy::decode(&mut bytes.as_slice());
    }

    /// A round of which one byte is another ends or is broken, and neither side keeps what it cannot use.
    #[test]
    fn a_changed_byte_does_no_harm(at in any::<prop::sample::Index>(), which in 0_usize..12, bit in 0_u8..8) {
        let mut nodes = [Node::new(1), Node::new(2)];
        for number in 0..20 {
            nodes[number % 2].publish(1_000, &format!("t/{number}"), b"value", (number % 3 == 0).then_some(9_000));
        }
        let mut way = Way::new();
        way.start(1_000, &mut nodes[0], &mut || false);
        for turn in 0..40 {
            let to = (turn + 1) % 2;
            let Some(bytes) = way.queues[to].pop_front() else { continue };
            let mut bytes = bytes.to_vec();
            if turn == which {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            let Some(frame) = Frame::decode(&bytes.into()) else { break };
            let side = &mut way.sides[to];
            let frames = nodes[to].with(1_000, |store| side.handle(frame, store));
            way.send(1 - to, frames, &mut || false);
        }
        way.queues.iter_mut().for_each(VecDeque::clear);
        way.run(1_000, &mut nodes);
    }
}

#[test]
fn what_takes_many_pages_comes_in_pages() {
    let mut nodes = [Node::new(1), Node::new(2)];
    for number in 0..9_000 {
        let node = &mut nodes[usize::from(number % 3 == 0)];
        node.publish(1_000, &format!("plant/{}/sensor/{number}", number % 7), &[b'x'; 200], None);
    }
    let mut way = Way::new();
    way.run(1_000, &mut nodes);
    assert_eq!(nodes[0].all(), nodes[1].all());
    assert_eq!(nodes[0].map.len(), 9_000);
    assert!(way.bytes_max < limits::SYNC_PAGE_BYTES + 100_000, "{}", way.bytes_max);
    let frames = way.frames;
    way.run(1_000, &mut nodes);
    assert_eq!(way.frames - frames, 4, "equal maps tell each other nothing but that");
}

#[test]
fn an_empty_node_gets_everything_whichever_side_it_is() {
    for empty in [0, 1] {
        let mut nodes = [Node::new(1), Node::new(2)];
        for number in 0..3_000 {
            nodes[1 - empty].publish(1_000, &format!("{number}"), if number % 5 == 0 { b"" } else { b"value" }, None);
        }
        Way::new().run(1_000, &mut nodes);
        assert_eq!(nodes[0].all(), nodes[1].all());
        assert_eq!((nodes[empty].map.len(), nodes[empty].map.tombstones()), (2_400, 600));
    }
}

#[test]
fn a_message_that_is_too_large_is_left_out_alone() {
    let mut nodes = [Node::new(1), Node::new(2)];
    nodes[0].publish(1_000, "a", b"small", None);
    nodes[0].publish(1_000, "b", &vec![b'x'; VALUE_MAX], None);
    nodes[0].publish(1_000, "c", &vec![b'x'; VALUE_MAX - 500], None);
    let mut way = Way::new();
    way.run(1_000, &mut nodes);
    let topics: Vec<_> = nodes[1].all().into_keys().collect();
    assert_eq!((topics, way.sides[1].skipped()), (vec![Arc::from("a"), Arc::from("c")], 1));
}

#[test]
fn a_node_without_room_takes_what_fits_and_drops_what_is_old() {
    let mut nodes = [Node::new(1), Node::new(2)];
    let old = nodes[0].publish(1_000, "a", b"old", None);
    nodes[1].hear(1_000, &old);
    nodes[1].room = (1, old.size());
    nodes[0].publish(1_000, "a", b"newer and larger", None);
    nodes[0].publish(1_000, "b", b"another", None);
    Way::new().run(1_000, &mut nodes);
    assert_eq!((nodes[1].map.len(), nodes[1].map.knows("a"), nodes[1].map.knows("b")), (0, true, false));
    // What is sent without being asked for is not kept either; once there is room it comes.
    nodes.reverse();
    Way::new().run(1_000, &mut nodes);
    assert_eq!(nodes[0].map.len(), 0);
    nodes[0].room = (10, 10_000);
    Way::new().run(1_000, &mut nodes);
    assert_eq!(nodes[0].map.get(1_000, "b").map(|message| message.payload.as_ref()), Some(b"another".as_slice()));
}

#[test]
fn a_lifetime_goes_on_where_the_clock_is_another() {
    let (mut one, mut other) = (Node::new(1), Node::new(2));
    one.publish(50_000, "a", b"v", Some(57_000));
    let copy = one.with(50_000, |store| store.copy("a")).expect("it is there");
    other.with(10_000, |store| store.put(copy));
    assert_eq!(other.map.get(16_999, "a").and_then(|message| message.expires_at), Some(17_000));
    // From a clock that is too far ahead nothing is taken.
    one.publish(200_000, "a", b"w", None);
    let copy = one.with(200_000, |store| store.copy("a")).expect("it is there");
    let refused = {
        let mut replica = Replica::new(&mut other.map, &other.clock, 10_000, other.room);
        replica.put(copy);
        replica.finish()
    };
    assert_eq!(
        (refused, other.map.get(10_000, "a").map(|message| message.payload.as_ref())),
        ((vec![], 1), Some(b"v".as_slice()))
    );
}

#[test]
fn what_comes_with_properties_and_a_publisher_keeps_them() {
    let mut buffer = crate::mqtt::PropertiesBuf::new();
    buffer.push(crate::mqtt::Property::UserProperty("a", "1"));
    let properties = Bytes::copy_from_slice(buffer.as_properties().as_bytes());
    let mut node = Node::new(3);
    let message = Message { properties, expires_at: None, ..(*node.publish(1_000, "a", b"v", None)).clone() };
    let mut bytes = Vec::new();
    Copy::Message { message: Arc::new(message.clone()), expires_in: Some(5) }.encode(&mut bytes);
    let copy = Copy::decode(&mut bytes.as_slice());
    assert_eq!(copy, Some(Copy::Message { message: Arc::new(message), expires_in: Some(5) }));
}

#[test]
fn what_one_node_has_forgotten_is_not_brought_back_by_another() {
    let mut nodes = [Node::new(1), Node::new(2)];
    let deleted = nodes[0].publish(1_000, "a", b"", None);
    nodes[1].hear(1_000, &deleted);
    let later = 1_000 + limits::TOMBSTONE_MS;
    nodes[0].map.expire(later, 10);
    // The clock of the other one is a little behind, whoever asks.
    for _ in 0..2 {
        Way::new().run(later, &mut nodes);
        assert_eq!(nodes.each_ref().map(|node| node.map.len()), [0, 0]);
        assert_eq!(nodes.each_ref().map(|node| node.map.tombstones()).iter().sum::<usize>(), 1);
        nodes.reverse();
    }
}

#[test]
fn topics_of_the_server_are_neither_sent_nor_taken() {
    let mut nodes = [Node::new(1), Node::new(2)];
    let message = nodes[0].publish(1_000, "a", b"v", None);
    let system = Message { id: MessageId::default(), stamp: 0, topic: "$SYS/x".into(), ..(*message).clone() };
    nodes[0].map.set(1_000, Arc::new(system));
    nodes[0].publish(1_000, "$other/x", b"v", None);
    Way::new().run(1_000, &mut nodes);
    assert_eq!(nodes[1].map.iter().map(|message| &*message.topic).collect::<Vec<_>>(), ["$other/x", "a"]);
    for body in [
        Body::Listed(Listed { until: None, wanted: vec!["$SYS/x".into()] }),
        Body::List(List { buckets: Buckets::default(), after: None, until: Some("$SYS/x".into()), listings: vec![] }),
    ] {
        assert_eq!(Frame::decode(&Frame { round: 1, number: 0, body }.encode()), None);
    }
}
