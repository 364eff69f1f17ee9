//! What is written is read, in the one form that other nodes know, and whatever else comes is an error.

use bytes::Bytes;
use proptest::prelude::*;

use crate::journal::{encode_header, encode_item};
use crate::mqtt::{PacketId, QoS, SubscriptionOptions};
use crate::session::{Item, Queued, QueuedBody, Subscription, SubscriptionIds};

use super::*;

const OWNER: OwnerId = OwnerId(20);
/// The clocks of the home and of its heir.
const HERE: u64 = 1_000_000;
const THERE: u64 = 5;

fn message(sequence: u64, expires_at: Option<u64>) -> Arc<Message> {
    Arc::new(Message {
        payload: Bytes::from_static(b"value"),
        expires_at,
        ..Message::sample(MessageId { node: 7, shard: 1, sequence }, "a/b", QoS::ExactlyOnce)
    })
}

fn queued(message: &Arc<Message>, ids: &[u32], share: Option<&str>) -> Queued {
    Queued {
        position: 3,
        body: QueuedBody::Here(message.clone()),
        qos: QoS::AtLeastOnce,
        retain: false,
        subscription_ids: SubscriptionIds::from_slice(ids),
        share: share.map(Arc::from),
        kept: true,
        awaited: false,
    }
}

fn value(message: &Arc<Message>, packet_id: u16) -> Value {
    encode_item(Item::Message { queued: &queued(message, &[], None), packet_id: PacketId::new(packet_id) })
}

fn put(item: ItemId, value: Value, body: Option<&Arc<Message>>) -> Entry {
    Entry::Put { owner: OWNER, item, value, body: body.map(|message| message.clone() as Arc<_>) }
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut writer = CopyWriter::new(HERE);
    entries.iter().for_each(|entry| writer.entry(entry));
    writer.finish()
}

#[test]
fn a_copy_as_bytes() {
    let message = message(9, Some(HERE + 500));
    let mut writer = CopyWriter::new(HERE);
    assert!(writer.is_empty());
    writer.entry(&put(HEADER, encode_header("c", 4), None));
    writer.entry(&put(3, value(&message, 2), Some(&message)));
    writer.entry(&Entry::Delete { owner: OWNER, item: 5 });
    writer.complete(OWNER);
    writer.seen(MessageId { node: 7, shard: 1, sequence: 8 });
    writer.entry(&Entry::Drop { owner: OWNER });
    #[rustfmt::skip]
    let bytes: &[u8] = &[
        1,
        // Begin, with a header of version 1.
        1, 20, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'c',
        // Put of a message of QoS 1 with packet identifier 2, which has 500 ms left.
        2, 20, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        17, 0, 0, 0, 1, 2, 9, 2, 0, SIZE, 0, 0, 0, 244, 1, 0, 0, 0, 0, 0, 0,
        // Its body of version 2.
        2, 45, 0, 0, 0, 2, 10, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 244, 1, 0, 0, 0, 0, 0, 0,
        3, 0, b'a', b'/', b'b', 1, 0, b'p', 0, 0, 0, 0, b'v', b'a', b'l', b'u', b'e',
        3, 20, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
        5, 20, 0, 0, 0, 0, 0, 0, 0,
        6, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0,
        4, 20, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!((writer.is_empty(), writer.len()), (false, bytes.len()));
    assert_eq!(writer.finish(), bytes);
    assert_eq!(read_copy(bytes, THERE).unwrap().len(), 6);
    assert_eq!(read_copy(&[&[2], &bytes[1..]].concat(), THERE), Err(MalformedCopy(OTHER_VERSION)));
}

/// Of the message in memory, which is no matter of the form.
const SIZE: u8 = (std::mem::size_of::<Message>() + 8) as u8;

const OTHER_VERSION: &str = "a version that this node does not know";

#[test]
fn a_session_without_its_header_is_gone() {
    let bytes = written(&[Entry::Delete { owner: OWNER, item: HEADER }]);
    assert_eq!(read_copy(&bytes, THERE), Ok(vec![CopyEntry::Drop { owner: OWNER }]));
}

#[test]
fn a_message_that_goes_on_in_a_later_frame_says_so_for_each_session() {
    let (first, second) = (message(1, None), message(2, None));
    let mut writer = CopyWriter::new(HERE);
    writer.entry(&put(1, value(&second, 0), Some(&second)));
    writer.entry_ahead(&put(2, value(&first, 0), Some(&first)));
    writer.entry_ahead(&put(3, value(&first, 0), Some(&first)));
    writer.entry(&put(4, value(&first, 0), Some(&first)));
    let read = read_copy(&writer.finish(), THERE).unwrap();
    let ahead = read.iter().map(|entry| match entry {
        CopyEntry::Put { ahead, body: Some(_), .. } => *ahead,
        other => panic!("{other:?}"),
    });
    assert_eq!(ahead.collect::<Vec<_>>(), [false, true, true, false]);
}

#[test]
fn a_message_for_many_sessions_travels_once() {
    let (first, second) = (message(1, None), message(2, None));
    let accepted = encode_item(Item::Accepted { packet_id: PacketId::new(5).unwrap(), names: None });
    let puts = [
        put(1, value(&first, 0), Some(&first)),
        put(2, accepted, None),
        put(3, value(&first, 0), Some(&first)),
        put(4, value(&second, 0), Some(&second)),
        put(5, value(&first, 0), Some(&first)),
    ];
    let bytes = written(&puts);
    let texts = bytes.windows(5).filter(|window| *window == b"value").count();
    assert_eq!(texts, 3);
    let read = read_copy(&bytes, THERE).unwrap();
    let body = |at: usize| match &read[at] {
        CopyEntry::Put { body, .. } => body.as_ref(),
        other => panic!("{other:?}"),
    };
    assert!(body(1).is_none() && Arc::ptr_eq(body(0).unwrap(), body(2).unwrap()));
    assert_eq!((body(3), body(4)), (Some(&second), Some(&first)));
}

fn refused(why: &'static str, bytes: &[u8]) {
    assert_eq!(read_copy(bytes, THERE), Err(MalformedCopy(why)));
}

#[test]
fn entries_that_cannot_be_are_refused() {
    let message = message(1, None);
    let with = |ids: &[u32], share| {
        let queued = queued(&message, ids, share);
        put(1, encode_item(Item::Message { queued: &queued, packet_id: None }), None)
    };
    let subscribed = |filter: &str, bits| {
        let options = SubscriptionOptions::from_bits(bits).unwrap();
        let subscription = Subscription { options, subscription_id: None };
        put(1, encode_item(Item::Subscription { filter: &filter.into(), subscription }), None)
    };
    let qos0 = Queued { qos: QoS::AtMostOnce, ..queued(&message, &[], None) };
    let qos0 = encode_item(Item::Message { queued: &qos0, packet_id: None });
    let too_large = with(&vec![1; ITEM_BYTES_MAX / 4], None);
    for (entry, why) in [
        (put(1, Value::from_slice(b"x"), None), "not an item"),
        (put(1, qos0, None), "not an item"),
        (with(&[0], None), "not an item"),
        (with(&[], Some("a/b")), "not an item"),
        (too_large, "not an item"),
        (subscribed("a/#/b", 1), "not an item"),
        (subscribed("$share/g/a", 1 | 4), "not an item"),
        (put(POSITION_MAX, value(&message, 1), None), "no position"),
        (put(HEADER, Value::from_slice(b"x"), None), "not a header"),
        (Entry::Drop { owner: OwnerId(1) }, "an owner that is no session"),
    ] {
        refused(why, &written(&[entry]));
    }
    let subscription = subscribed("a", 1);
    let Entry::Put { value: subscription, .. } = subscription else { panic!("it is put") };
    refused("a body that belongs to nothing", &written(&[put(1, subscription, Some(&message))]));
    let wild = Arc::new(Message { topic: "a/#".into(), ..(*message).clone() });
    refused("not a message", &written(&[put(1, value(&message, 1), Some(&wild))]));
    let mut same = written(&[put(1, value(&message, 1), None)]);
    *same.last_mut().unwrap() = SAME_BODY;
    refused("the body before, and there is none", &same);
    *same.last_mut().unwrap() = 9;
    refused("a body of a kind that this node does not know", &same);
    refused("an entry of a kind that this node does not know", &[VERSION, 9, 20, 0, 0, 0, 0, 0, 0, 0]);
    refused(OTHER_VERSION, &[]);
}

#[test]
fn entries_that_are_cut_off_are_refused() {
    let message = message(1, Some(HERE + 1));
    let first = written(&[put(1, value(&message, 1), Some(&message))]);
    let both = written(&[put(1, value(&message, 1), Some(&message)), Entry::Delete { owner: OWNER, item: 2 }]);
    for length in 0..both.len() {
        let whole = length == 1 || length == first.len();
        assert_eq!(read_copy(&both[..length], THERE).is_ok(), whole, "{length}");
    }
}

#[derive(Debug, Clone)]
enum Op {
    Begin(String, u64),
    Message { sequence: u64, expires_in: Option<u32>, packet_id: u16, ids: Vec<u32>, share: bool, body: bool },
    Subscription(u8, Option<u32>),
    Packet { packet_id: u16, received: bool },
    Delete,
    Drop,
    Complete,
    Seen(u64, u16, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let ids = proptest::collection::vec(1..=268_435_455_u32, 0..3);
    prop_oneof![
        (".{0,9}", any::<u64>()).prop_map(|(client, began)| Op::Begin(client, began)),
        (0..4_u64, any::<Option<u32>>(), any::<u16>(), ids, any::<bool>(), any::<bool>()).prop_map(
            |(sequence, expires_in, packet_id, ids, share, body)| {
                Op::Message { sequence, expires_in, packet_id, ids, share, body }
            }
        ),
        (0..3_u8, proptest::option::of(1..=268_435_455_u32)).prop_map(|(qos, id)| Op::Subscription(qos, id)),
        (1_u16.., any::<bool>()).prop_map(|(packet_id, received)| Op::Packet { packet_id, received }),
        Just(Op::Delete),
        Just(Op::Drop),
        Just(Op::Complete),
        any::<(u64, u16, u64)>().prop_map(|(node, shard, sequence)| Op::Seen(node, shard, sequence)),
    ]
}

/// The value and the body as a node with that clock has them.
fn message_put(op: &Op, clock: u64) -> Option<(Value, Option<Arc<Message>>)> {
    let Op::Message { sequence, expires_in, packet_id, ids, share, body } = op else { return None };
    // A message has one time at which it expires.
    let message = message(*sequence, (sequence % 2 == 0).then_some(clock + 1_000 * sequence));
    let put = body.then(|| message.clone());
    // An item without its body may be of any.
    let expires_at = if *body { message.expires_at } else { expires_in.map(|left| clock + u64::from(left)) };
    let message = Arc::new(Message { expires_at, ..(*message).clone() });
    let queued = queued(&message, ids, share.then_some("$share/g/a/+"));
    Some((encode_item(Item::Message { queued: &queued, packet_id: PacketId::new(*packet_id) }), put))
}

fn apply(writer: &mut CopyWriter, owner: OwnerId, item: ItemId, op: &Op) -> CopyEntry {
    let put = |writer: &mut CopyWriter, value: Value| {
        writer.entry(&Entry::Put { owner, item, value: value.clone(), body: None });
        CopyEntry::Put { owner, item, value, body: None, ahead: false }
    };
    match op {
        Op::Begin(client, began) => {
            let value = encode_header(client, *began);
            writer.entry(&Entry::Put { owner, item: HEADER, value, body: None });
            CopyEntry::Begin { owner, client_id: client.as_str().into(), began: *began }
        }
        Op::Message { .. } => {
            let (value, body) = message_put(op, HERE).unwrap();
            writer.entry(&Entry::Put { owner, item, value, body: body.map(|message| message as _) });
            let (value, body) = message_put(op, THERE).unwrap();
            CopyEntry::Put { owner, item, value, body, ahead: false }
        }
        Op::Subscription(qos, id) => {
            let options = SubscriptionOptions::from_bits(*qos).unwrap();
            let subscription = Subscription { options, subscription_id: *id };
            put(writer, encode_item(Item::Subscription { filter: &"a/+".into(), subscription }))
        }
        Op::Packet { packet_id, received } => {
            let packet_id = PacketId::new(*packet_id).unwrap();
            let item = if *received { Item::Received { packet_id } } else { Item::Accepted { packet_id, names: None } };
            put(writer, encode_item(item))
        }
        Op::Delete => {
            writer.entry(&Entry::Delete { owner, item });
            CopyEntry::Delete { owner, item }
        }
        Op::Drop => {
            writer.entry(&Entry::Drop { owner });
            CopyEntry::Drop { owner }
        }
        Op::Complete => {
            writer.complete(owner);
            CopyEntry::Complete { owner }
        }
        Op::Seen(node, shard, sequence) => {
            let id = MessageId { node: *node, shard: *shard, sequence: *sequence };
            writer.seen(id);
            CopyEntry::Seen { id }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_written_is_read(ops in proptest::collection::vec((16u64.., 1..POSITION_MAX, op()), 0..20)) {
        let mut writer = CopyWriter::new(HERE);
        let expected: Vec<_> =
            ops.iter().map(|(owner, item, op)| apply(&mut writer, OwnerId(*owner), *item, op)).collect();
        prop_assert_eq!(read_copy(&writer.finish(), THERE), Ok(expected));
    }

    #[test]
    fn bytes_that_were_changed_are_entries_or_an_error(
        ops in proptest::collection::vec(op(), 1..5), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut writer = CopyWriter::new(HERE);
        ops.iter().for_each(|op| drop(apply(&mut writer, OWNER, 1, op)));
        let mut bytes = writer.finish();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for entry in read_copy(&bytes, THERE).unwrap_or_default() {
            if let CopyEntry::Put { item, value, .. } = entry {
                prop_assert!(decode_item(item, &value).is_some(), "what an heir keeps is what a start can read");
            }
        }
    }

    #[test]
    fn bytes_that_are_nothing_are_an_error_at_worst(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_copy(&bytes, THERE);
        let _ = read_copy(&[&[VERSION], &bytes[..]].concat(), u64::MAX);
    }
}
