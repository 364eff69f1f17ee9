//! What another node sends is a session or an error, whatever it is. That a session arrives as it was is in `session/tests/moving.rs`.

use proptest::prelude::*;

use crate::mqtt::SubscriptionOptions;
use crate::session::SubscriptionIds;

use super::*;

const OPTIONS: u8 = 1;

fn subscription(position: Position, filter: &str, id: Option<u32>) -> Vec<u8> {
    let subscription = Subscription { options: SubscriptionOptions::from_bits(OPTIONS).unwrap(), subscription_id: id };
    let mut out = Vec::new();
    out.u64(position);
    out.blob(&encode_item(Item::Subscription { filter: &filter.into(), subscription }));
    out
}

fn read_yield(records: &[Vec<u8>]) -> Result<Yielded, WireError> {
    let mut out = vec![VERSION];
    out.u64(9);
    out.u32(0);
    records.iter().for_each(|record| out.extend_from_slice(record));
    let mut reader = YieldReader::default();
    out.chunks(5).try_for_each(|part| reader.take(part))?;
    reader.finish()
}

#[test]
fn subscriptions_that_cannot_be_are_refused() {
    let good = [subscription(1, "a/+", None), subscription(4, "$share/g/b", Some(7))];
    assert_eq!(read_yield(&good).unwrap().subscriptions.len(), 2);
    for (record, why) in [
        (subscription(4, "c", None), "a position twice"),
        (subscription(3, "c", None), "out of order"),
        (subscription(u64::MAX, "c", None), "no session came so far"),
        (subscription(5, "a/+", None), "a filter twice"),
        (subscription(5, "a/#/b", None), "no filter"),
        (subscription(5, "$share//b", None), "no shared filter"),
        (subscription(5, "c", Some(1 << 28)), "no identifier"),
        (message(5, "t", 1, None, &[]), "no subscription"),
    ] {
        let records = [good[0].clone(), good[1].clone(), record];
        assert!(matches!(read_yield(&records), Err(WireError::Malformed(_) | WireError::Unfinished)), "{why}");
    }
    for (filter, after) in [("a/#/b", ""), ("a/#", "a/+")] {
        let mut out = vec![VERSION];
        out.u64(9);
        out.u32(1);
        out.text(filter);
        out.text(after);
        let mut reader = YieldReader::default();
        reader.take(&out).unwrap();
        assert!(matches!(reader.finish(), Err(WireError::Malformed(_))), "{filter} {after}");
    }
    let mut reader = YieldReader::default();
    let refused = (0..).map(|_| reader.take(&[1; PART_BYTES_MAX])).find_map(Result::err);
    assert_eq!(refused, Some(WireError::TooLarge));
}

fn message(position: Position, topic: &str, qos: u8, packet_id: Option<u16>, ids: &[u32]) -> Vec<u8> {
    let qos = QoS::from_u8(qos).unwrap();
    let message = Message {
        payload: Bytes::from_static(b"payload"),
        expires_at: Some(10_500),
        ..Message::sample(MessageId { node: 1, shard: 2, sequence: 3 }, topic, qos)
    };
    let queued = Queued {
        position,
        body: QueuedBody::Here(Arc::new(message)),
        qos,
        retain: false,
        subscription_ids: SubscriptionIds::from_slice(ids),
        share: None,
        kept: true,
        awaited: false,
    };
    let mut out = Vec::new();
    let packet_id = packet_id.and_then(PacketId::new);
    write_item(&mut out, position, Item::Message { queued: &queued, packet_id }, 10_000);
    out
}

fn bare(position: Position, item: Item<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write_item(&mut out, position, item, 0);
    out
}

fn end(next_position: Position) -> Vec<u8> {
    let mut out = vec![END];
    out.u64(next_position);
    out.u16(12);
    out
}

fn accepted(position: Position, id: u16) -> Vec<u8> {
    bare(position, Item::Accepted { packet_id: PacketId::new(id).unwrap(), names: None })
}

fn had_will(position: Position, epoch: u64) -> Vec<u8> {
    bare(position, Item::HadWill { will: &WillName { client: "c".into(), epoch } })
}

fn read_state(records: &[Vec<u8>]) -> Result<(Vec<(Position, Restored)>, Imported), WireError> {
    let mut bytes = vec![VERSION];
    records.iter().for_each(|record| bytes.extend_from_slice(record));
    let mut reader = StateReader::new(&[], 100_000);
    let mut items = Vec::new();
    for part in bytes.chunks(11) {
        items.extend(reader.take(part, 50_000)?);
    }
    Ok((items, reader.finish()?))
}

fn good_state() -> Vec<Vec<u8>> {
    let received = Item::Received { packet_id: PacketId::new(5).unwrap() };
    vec![
        accepted(2, 5),
        bare(9, received),
        had_will(8, 7),
        message(3, "t", 2, Some(6), &[]),
        message(4, "t", 0, None, &[1, 2]),
        end(10),
    ]
}

#[test]
fn lifetimes_travel_as_what_is_left_of_them() {
    let (items, imported) = read_state(&good_state()).unwrap();
    assert_eq!(items.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [2, 9, 8, 3, 4]);
    let Restored::Message { queued, packet_id: None } = &items[4].1 else { panic!("{items:?}") };
    assert_eq!((queued.qos, queued.expires_at()), (QoS::AtMostOnce, Some(50_500)));
    assert_eq!(imported.bounds, Bounds { next_position: 10, last_packet_id: 12 });
}

#[test]
fn items_that_cannot_be_are_refused() {
    let subscribed = subscription(5, "a", None);
    let subscribed = [&[ITEM], &subscribed[..], &[0; 4]].concat();
    let mut with_body = accepted(5, 9);
    with_body.splice(with_body.len() - 4.., [1, 0, 0, 0, 7]);
    for (record, why) in [
        (accepted(2, 6), "a position twice"),
        (accepted(0, 6), "no position"),
        (accepted(1 << 62, 6), "no session came so far"),
        (accepted(11, 6), "behind the end"),
        (accepted(5, 5), "accepted twice"),
        (bare(5, Item::Received { packet_id: PacketId::new(6).unwrap() }), "a packet identifier twice"),
        (had_will(5, 7), "a Will twice"),
        (message(5, "t", 1, Some(5), &[]), "a packet identifier twice"),
        (message(5, "t", 0, Some(7), &[]), "QoS 0 has no packet identifier"),
        (message(1, "t", 1, None, &[]), "out of order"),
        (message(5, "a/#", 1, None, &[]), "no topic"),
        (message(5, "t", 1, None, &[0]), "no identifier"),
        (message(5, "t", 1, None, &[1 << 28]), "no identifier"),
        (subscribed, "subscriptions came before"),
        (with_body, "a body that belongs to nothing"),
        (end(10), "the end twice"),
        (vec![77], "no record"),
        (vec![ITEM, 5, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255], "a length that nothing has"),
    ] {
        let mut records = good_state();
        records.insert(5, record);
        let read = read_state(&records);
        assert!(matches!(read, Err(WireError::Malformed(_))), "{why}: {read:?}");
    }
}

#[test]
fn a_state_that_is_cut_off_or_too_large_is_refused() {
    let records = good_state();
    let whole: Vec<u8> = records.concat();
    for length in 0..whole.len() {
        let read = read_state(&[whole[..length].to_vec()]);
        assert_eq!(read.unwrap_err(), WireError::Unfinished);
    }
    let mut reader = StateReader::new(&[], 5);
    assert_eq!(reader.take(&[1; 6], 0), Err(WireError::TooLarge));
    assert!(matches!(StateReader::new(&[], 5).take(&[2], 0), Err(WireError::Malformed(_))), "another version");
    let mut reader = StateReader::new(&[], u64::MAX);
    reader.take(&[VERSION], 0).unwrap();
    let streams = (0..).map(|node| {
        let mut out = vec![SEEN];
        out.u64(node);
        out.u16(0);
        out.u64(1);
        out
    });
    let refused = streams.map(|record| reader.take(&record, 0)).find_map(Result::err);
    assert!(matches!(refused, Some(WireError::Malformed(_))), "there are not so many streams");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes_that_were_changed_are_a_session_or_an_error(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in 1usize..60,
    ) {
        let mut bytes = vec![VERSION];
        good_state().iter().for_each(|record| bytes.extend_from_slice(record));
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let mut session = Session::new("c".into(), None);
        let mut reader = StateReader::new(&[], 100_000);
        for part in bytes.chunks(cut) {
            let Ok(items) = reader.take(part, 1_000) else { return Ok(()) };
            items.into_iter().for_each(|(position, restored)| session.restore(position, restored));
        }
        let _ = reader.finish();
    }

    #[test]
    fn bytes_that_are_nothing_are_an_error_at_worst(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = StateReader::new(&[], 100_000);
        let _ = reader.take(&bytes, 1_000);
        let mut reader = YieldReader::default();
        let _ = reader.take(&bytes).and_then(|()| reader.finish());
    }
}
