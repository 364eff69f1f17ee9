//! What is written is read, and nothing else is taken for it.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::{LeaseImage, LeaseWill};
use holdfast_storage::{Body as _, Entry};
use proptest::prelude::*;

use crate::cluster::share_groups::SharedMessage;
use crate::mqtt::{Message, MessageId, Names, PacketId, QoS, SubscriptionOptions, WillName};
use crate::retained::{Version, Write};
use crate::session::{Item, Queued, QueuedBody, Restored, StoredBody, Subscription, SubscriptionIds};

use super::{
    Header, decode_item, decode_lease, decode_message, decode_tombstone, encode_header, encode_item, encode_lease,
    is_had_will, is_passing, is_shared_once, is_unsent, retained_entry, shared_message, shared_once,
};

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)]
}

fn text() -> impl Strategy<Value = Arc<str>> {
    "[a-zé/]{0,40}".prop_map(Arc::from)
}

fn blob() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

prop_compose! {
    fn message()(
        node: u64, shard in 0u16..64, sequence: u64, stamp: u64, topic in text(), publisher in text(), payload in blob(), properties in blob(),
        qos in qos(), retain: bool, expires_at: Option<u64>, name: Option<u64>,
    ) -> Message {
        let id = MessageId { node, shard, sequence };
        let name = name.map(|sequence| MessageId { sequence, ..id }.of_packet());
        Message { id, stamp, topic, payload, properties, qos, retain, expires_at, publisher, name, will: 0 }
    }
}

prop_compose! {
    fn queued()(
        message in message(), qos in prop_oneof![Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)], retain: bool, ids in proptest::collection::vec(1u32..268_435_455, 0..4),
        share in proptest::option::of(text()), position in 1u64..,
    ) -> Queued {
        let body = QueuedBody::Here(Arc::new(message));
        Queued { position, body, qos, retain, subscription_ids: SubscriptionIds::from_slice(&ids), share, kept: true, awaited: false }
    }
}

prop_compose! {
    fn lease()(
        client in text(), epoch: u64, began: u64, expiry_secs: u32, connected: bool, detached_since: u64, ended: bool,
        will in proptest::option::of((any::<u32>(), blob())), wills_due in proptest::collection::vec((any::<u64>(), blob()), 0..3),
    ) -> LeaseImage {
        let will = will.map(|(delay_secs, message)| LeaseWill { delay_secs, message });
        LeaseImage { item: 7, client, epoch, began, expiry_secs, connected, detached_since, ended, will, wills_due }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in message(), queued in queued(), id in proptest::option::of(1u16..), bits in 0u8..48, lease in lease()) {
        let mut body = Vec::new();
        message.encode(&mut body);
        prop_assert_eq!(decode_message(&body), Some(message));

        let packet_id = id.and_then(PacketId::new);
        let value = encode_item(Item::Message { queued: &queued, packet_id });
        prop_assert_eq!(is_shared_once(&value), queued.share.is_some() && queued.qos == QoS::ExactlyOnce);
        prop_assert_eq!(is_unsent(&value), packet_id.is_none());
        let of_share = queued.share.as_ref().zip(queued.message());
        let known = of_share.into_iter().flat_map(|(share, message)| {
            std::iter::once(message.id).chain(message.name).map(move |id| SharedMessage::new(share, id))
        });
        prop_assert!(shared_message(&value).eq(known));
        prop_assert!(shared_once(&queued).eq(shared_message(&value).filter(|_| is_shared_once(&value))));
        let StoredBody { size, expires_at } = queued.stored_body();
        let stored = Queued { body: QueuedBody::Stored(StoredBody { size, expires_at }), ..queued.clone() };
        prop_assert_eq!(decode_item(queued.position, &value), Some(Restored::Message { queued: stored, packet_id }));

        let options = SubscriptionOptions::from_bits(bits);
        if let Some(options) = options {
            let (filter, subscription): (Arc<str>, _) = ("a/+".into(), Subscription { options, subscription_id: id.map(u32::from) });
            let value = encode_item(Item::Subscription { filter: &filter, subscription });
            prop_assert_eq!(decode_item(1, &value), Some(Restored::Subscription { filter, subscription }));
        }
        let (topic, version) = (Arc::<str>::from(format!("a/{bits}")), Version { stamp: queued.position, node: 9 });
        let entry = retained_entry(Write::Tombstone { item: 5, topic: topic.clone(), version });
        let Entry::Put { item: 5, value, body: None, .. } = entry else { panic!("{entry:?}") };
        prop_assert_eq!(decode_tombstone(&value), Some((topic, version)));

        let value = encode_lease(&lease);
        prop_assert_eq!(decode_lease(7, &value), Some(lease));
        prop_assert_eq!(Header::decode(&encode_header("c", 9)), Some(Header { client_id: "c".into(), began: 9 }));
    }

    #[test]
    fn bytes_that_are_nothing_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = (decode_message(&bytes), decode_item(1, &bytes), decode_lease(1, &bytes), decode_tombstone(&bytes), Header::decode(&bytes), shared_message(&bytes).count());
    }
}

#[test]
fn the_names_of_a_packet_are_read_and_no_more_of_them_than_there_can_be() {
    let id = |sequence| MessageId { node: 1 << 60, shard: 3, sequence }.of_packet();
    let packet_id = PacketId::new(7).unwrap();
    for names in [None, Some(Names::new(id(1))), Names::from_ids([id(4), id(5), id(6), id(1 << 50)])] {
        let value = encode_item(Item::Accepted { packet_id, names: names.as_ref() });
        let read = Restored::Accepted { packet_id, names: names.map(Box::new) };
        assert_eq!(decode_item(1, &value), Some(read));
        assert_eq!(decode_item(1, &[&value[..], &[0]].concat()), None);
    }
    let most = encode_item(Item::Accepted { packet_id, names: Names::from_ids((0..4).map(id)).as_ref() });
    assert_eq!(decode_item(1, &[&most[..], &most[4..22]].concat()), None);
}

#[test]
fn that_a_session_has_had_a_will_is_read() {
    let will = WillName { client: "c".into(), epoch: 7 };
    let value = encode_item(Item::HadWill { will: &will });
    assert!(is_had_will(&value) && !is_passing(&value));
    assert_eq!(decode_item(1, &value), Some(Restored::HadWill { will }));
    assert_eq!(decode_item(1, &[&value[..], &[0]].concat()), None);
}

#[test]
fn a_message_of_version_1_is_read() {
    let mut old = vec![1, 1 | 0x04 | 0x08];
    old.extend(7u16.to_le_bytes());
    old.extend(9u64.to_le_bytes());
    old.extend(50u64.to_le_bytes());
    let text = |old: &mut Vec<u8>, text: &str| {
        let mut bytes = Vec::new();
        super::bytes::Sink::text(&mut bytes, text);
        old.extend(bytes);
    };
    text(&mut old, "a/b");
    text(&mut old, "p");
    super::bytes::Sink::blob(&mut old, &[]);
    old.extend(b"value");
    let message = Message {
        payload: Bytes::from_static(b"value"),
        retain: true,
        expires_at: Some(50),
        ..Message::sample(MessageId { node: 0, shard: 7, sequence: 9 }, "a/b", QoS::AtLeastOnce)
    };
    assert_eq!(decode_message(&old), Some(message));
    old[0] = 3;
    assert_eq!(decode_message(&old), None, "of a newer program");
}
