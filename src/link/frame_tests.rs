//! Frames of a data connection against their bytes, and against bytes that are none.

use proptest::prelude::*;

use super::*;

const MAX: usize = 1 << 20;

fn publish() -> Publish<'static> {
    Publish {
        qos: QoS::AtLeastOnce,
        retain: false,
        resend: false,
        sequence: 7,
        remaining_secs: None,
        stamp: None,
        publisher: "c",
        topic: "a/b",
        properties: &[],
        payload: b"hello",
        share: None,
        name: None,
        orphan: None,
    }
}

fn bytes(frame: &DataFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn answer_bytes(frame: &AnswerFrame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

#[test]
fn a_publish_as_bytes() {
    let plain = bytes(&DataFrame::Publish(publish()));
    assert_eq!(plain, b"\0\0\0\x16\x01\x01\0\0\0\0\0\0\0\x07\x01c\x03a/b\x00hello");
    let full = Publish {
        qos: QoS::ExactlyOnce,
        retain: true,
        resend: true,
        remaining_secs: Some(1),
        stamp: Some(2),
        properties: &[9, 9],
        share: Some(("$share/g/f", true)),
        name: Some(Name::Will { client: "w", epoch: 3 }),
        ..publish()
    };
    let full = bytes(&DataFrame::Publish(full));
    let expected = b"\0\0\0\x3b\x01\xfe\0\0\0\0\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\0\x02\x01c\x03a/b\x0a$share/g/f\x01\
        \0\x01w\0\0\0\0\0\0\0\x03\x02\x09\x09hello";
    assert_eq!(full, expected);
}

fn names(count: usize) -> Names {
    let id = |sequence| MessageId { node: 1, shard: 2, sequence }.of_packet();
    Names::from_ids((1..=count as u64).map(id)).expect("there is one")
}

#[test]
fn names_of_packets_as_bytes() {
    let named = |count| bytes(&DataFrame::Publish(Publish { name: Some(Name::Packet(names(count))), ..publish() }));
    let expected = b"\0\0\0\x2a\x01\x41\0\0\0\0\0\0\0\x07\x01c\x03a/b\
        \x01\x01\0\0\0\0\0\0\0\x01\x80\x02\0\0\0\0\0\0\0\x01\x00hello";
    assert_eq!(named(1), expected);
    let refused = |change: fn(&mut [u8])| {
        let mut bytes = named(2);
        change(&mut bytes);
        DataFrame::decode(&bytes, MAX).map(|_| ())
    };
    assert_eq!(refused(|_| {}), Ok(()));
    assert_eq!(refused(|bytes| bytes[21] = 0), Err(Malformed::Name), "no id at all");
    assert_eq!(refused(|bytes| bytes[21] = 5), Err(Malformed::Name), "more than there can be");
    assert_eq!(refused(|bytes| bytes[30] = 0), Err(Malformed::Name), "not of a packet");
    let place = Names::new(MessageId { node: 1, shard: 2, sequence: 3 });
    let given = Publish { share: Some(("$share/g/f", false)), name: Some(Name::Packet(place)), ..publish() };
    assert!(DataFrame::decode(&bytes(&DataFrame::Publish(given)), MAX).is_ok(), "it may have had another place");
}

#[test]
fn an_orphan_and_a_copy_as_bytes() {
    let orphan = |only| {
        bytes(&DataFrame::Publish(Publish { orphan: Some(Orphan { of: 9, incarnation: 4, only }), ..publish() }))
    };
    let fresh = orphan(None);
    assert_eq!(
        fresh,
        b"\0\0\0\x27\x04\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x04\0\x01c\x03a/b\x00hello"
    );
    let mut again = orphan(Some(6));
    let expected =
        b"\0\0\0\x2f\x04\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x04\x01\0\0\0\0\0\0\0\x06\x01c\x03a/b\x00hello";
    assert_eq!(again, expected);
    mark_resent(&mut again, false);
    let Ok(Some((DataFrame::Publish(resent), _))) = DataFrame::decode(&again, MAX) else {
        panic!("it is still a publish");
    };
    assert!(resent.resend && resent.orphan == Some(Orphan { of: 9, incarnation: 4, only: Some(6) }));

    mark_resent(&mut again, true);
    assert_eq!(DataFrame::decode(&again, MAX), Ok(Some((DataFrame::Void { sequence: 7 }, again.len()))));

    let copy = DataFrame::Copy { sequence: 8, entries: b"entries" };
    assert_eq!(bytes(&copy), b"\0\0\0\x10\x03\0\0\0\0\0\0\0\x08entries");
}

#[test]
fn a_question_as_bytes() {
    let ids = Names::new(MessageId { node: 1, shard: 2, sequence: 3 });
    let ask = Ask { sequence: 8, behind: None, rank: None, share: "$share/g/f", ids };
    let expected = b"\0\0\0\x29\x06\0\0\0\0\0\0\0\x08\0\0\x0a$share/g/f\x01\0\0\0\0\0\0\0\x01\0\x02\0\0\0\0\0\0\0\x03";
    let plain = bytes(&DataFrame::Ask(ask));
    assert_eq!(plain, expected);
    let refused = |at: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[at] = value;
        DataFrame::decode(&bytes, MAX).map(|_| ())
    };
    assert_eq!((refused(13, 2), refused(14, 2)), (Err(Malformed::Choice(2)), Err(Malformed::Choice(2))));
    assert_eq!(refused(26, 0), Err(Malformed::Name));
    assert_eq!(refused(26, 2), Err(Malformed::Short));
    assert_eq!(refused(3, 0x28), Err(Malformed::Short));
    let longer = [&plain[..], &[0]].concat();
    assert!(DataFrame::decode(&longer, MAX).is_ok());
    assert_eq!(DataFrame::decode(&[&[0, 0, 0, 0x2a], &longer[4..]].concat(), MAX), Err(Malformed::Surplus));
}

#[test]
fn small_frames_come_back() {
    let ask = Ask {
        sequence: 9,
        behind: Some((7, u64::MAX)),
        rank: Some([8, 1, 2, 3, u64::MAX]),
        share: "$share/g/t",
        ids: names(Names::MAX),
    };
    for frame in [
        DataFrame::Ask(ask),
        DataFrame::Ask(Ask { behind: None, ..ask }),
        DataFrame::Mark { sequence: 3, index: u64::MAX },
        DataFrame::Copy { sequence: 6, entries: &[1, 2] },
        DataFrame::Copy { sequence: 7, entries: &[] },
        DataFrame::Void { sequence: 8 },
        DataFrame::Aware { sequence: 9, of: 7, incarnation: u64::MAX },
    ] {
        let bytes = bytes(&frame);
        assert_eq!(DataFrame::decode(&bytes, MAX), Ok(Some((frame, bytes.len()))));
    }
    for frame in [
        AnswerFrame::Welcome { run: 1, incarnation: 2, received: u64::MAX },
        AnswerFrame::Accepted { up_to: 3, stable: 2, clock: 4 },
        AnswerFrame::Settled { sequence: 5 },
        AnswerFrame::Refused { sequence: 6, reason: 7 },
    ] {
        let bytes = answer_bytes(&frame);
        assert_eq!(AnswerFrame::decode(&bytes, AnswerFrame::BYTES_MAX), Ok(Some((frame, bytes.len()))));
    }
}

#[test]
fn each_direction_knows_its_own_frames_only() {
    let mark = bytes(&DataFrame::Mark { sequence: 2, index: 1 });
    assert_eq!(AnswerFrame::decode(&mark, MAX), Err(Malformed::Kind(MARK)));
    let settled = answer_bytes(&AnswerFrame::Settled { sequence: 1 });
    assert_eq!(DataFrame::decode(&settled, MAX), Err(Malformed::Kind(SETTLED)));
}

#[test]
fn a_length_beyond_the_bound_is_refused_at_once() {
    assert_eq!(
        DataFrame::decode(&[0x80, 0, 0, 0, PUBLISH], MAX),
        Err(Malformed::TooLong { length: 0x8000_0000, max: MAX }),
        "without waiting for more"
    );
    assert_eq!(DataFrame::decode(&[0, 0, 0, 10, 77], MAX), Err(Malformed::Kind(77)), "so is a kind that is none");
    assert_eq!(DataFrame::decode(&[0, 0, 0, 0], MAX), Err(Malformed::Empty));
    assert_eq!(DataFrame::decode(&[0x80, 0, 0, 0], MAX), Ok(None), "its kind has to be known");
    assert!(matches!(DataFrame::decode(&[0x80, 0, 0, 0, COPY], MAX), Err(Malformed::TooLong { .. })));
    let copy = bytes(&DataFrame::Copy { sequence: 1, entries: &[0; 100] });
    assert!(DataFrame::decode(&copy, 50).is_ok(), "a message of a time when larger ones were taken has its copy");
    let frame = bytes(&DataFrame::Publish(publish()));
    assert!(DataFrame::decode(&frame, frame.len() - LENGTH_BYTES).is_ok(), "a frame of just the bound");
    assert!(DataFrame::decode(&frame, frame.len() - LENGTH_BYTES - 1).is_err());
}

#[test]
fn fields_that_do_not_fit_are_refused() {
    let decode = |fields: &[u8]| {
        let mut bytes = (fields.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(fields);
        DataFrame::decode(&bytes, MAX).map(|_| ()).unwrap_err()
    };
    assert_eq!(decode(&[MARK, 0, 0]), Malformed::Short);
    assert_eq!(decode(&[&[MARK][..], &[0; 17]].concat()), Malformed::Surplus);
    assert_eq!(decode(&[PUBLISH, 3, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::QoS);
    let publish = |tail: &[u8]| [&[PUBLISH, 0, 0, 0, 0, 0, 0, 0, 0, 0], tail].concat();
    assert_eq!(decode(&publish(&[1, 0xFF, 1, b'a', 0])), Malformed::Text);
    assert_eq!(decode(&publish(&[0, 1, b'#', 0])), Malformed::Topic);
    assert_eq!(decode(&publish(&[0, 0, 0])), Malformed::Topic, "an empty one");
    assert_eq!(decode(&[&[PUBLISH, NAMED], &[0; 8][..], &[0, 1, b'a', 2, 0]].concat()), Malformed::Choice(2));
    assert_eq!(decode(&[&[ORPHAN, 0], &[0; 24][..], &[2]].concat()), Malformed::Choice(2));
    assert_eq!(decode(&[&[ORPHAN, 0], &[0; 24][..], &[1, 0]].concat()), Malformed::Short);
    assert_eq!(decode(&[COPY, 0, 0]), Malformed::Short);
    assert_eq!(decode(&publish(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F])), Malformed::Short, "a text of 4 GiB");
    assert_eq!(decode(&publish(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF])), Malformed::Length);
}

#[test]
fn the_overhead_is_what_it_is_said_to_be() {
    let long = "x".repeat(40_000);
    let name = "y".repeat(40_000);
    let frame = Publish {
        remaining_secs: Some(1),
        stamp: Some(2),
        publisher: &long,
        topic: &name,
        properties: long.as_bytes(),
        payload: &[],
        share: Some((&long, false)),
        name: Some(Name::Packet(names(Names::MAX))),
        orphan: Some(Orphan { of: 1, incarnation: 5, only: Some(2) }),
        ..publish()
    };
    let most = OVERHEAD_BYTES_MAX + 160_000;
    let length = bytes(&DataFrame::Publish(frame)).len();
    assert!((most - 20..=most).contains(&length), "{length}");
    let of_will = Publish { name: Some(Name::Will { client: &long, epoch: 3 }), ..frame };
    assert!(bytes(&DataFrame::Publish(of_will)).len() <= most + 40_000);
}

/// What MQTT could not carry to a subscriber, or a journal not write down, ends the connection.
#[test]
fn texts_and_properties_that_are_none_of_mqtt_are_refused() {
    let decoded = |publish: Publish<'_>| DataFrame::decode(&bytes(&DataFrame::Publish(publish)), MAX).map(|_| ());
    let (longest, longer) = ("x".repeat(65_535), "x".repeat(65_536));
    assert_eq!(decoded(Publish { publisher: &longest, share: Some((&longest, true)), ..publish() }), Ok(()));
    let too_long = Err(Malformed::TextTooLong(65_536));
    assert_eq!(decoded(Publish { publisher: &longer, ..publish() }), too_long);
    assert_eq!(decoded(Publish { share: Some((&longer, true)), ..publish() }), too_long);
    let name = Some(Name::Will { client: &longer, epoch: 1 });
    assert_eq!(decoded(Publish { name, ..publish() }), too_long);
    for properties in [&[9, 9][..], &[0xFF], &[35, 0, 1], &[11, 1], &[3, 0, 1, b'a', 3, 0, 1, b'a']] {
        assert_eq!(decoded(Publish { properties, ..publish() }), Err(Malformed::Properties), "{properties:?}");
    }
    assert_eq!(decoded(Publish { properties: &[3, 0, 1, b'a', 38, 0, 0, 0, 0], ..publish() }), Ok(()));
}

/// The owned parts of a publish.
type Parts = (u8, u8, u64, [String; 4], Vec<u8>, Vec<u8>);

fn parts() -> impl Strategy<Value = Parts> {
    let text = || "\\PC{0,150}";
    let texts = [text().boxed(), "[a-zä/]{1,150}".boxed(), text().boxed(), text().boxed()];
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    // Correlation Data, or nothing.
    let properties = bytes().prop_map(|data| match data.len() {
        0 => data,
        len => [&[9, (len >> 8) as u8, len as u8][..], &data].concat(),
    });
    (0u8..3, any::<u8>(), any::<u64>(), texts, properties, bytes())
}

fn of((qos, bits, sequence, [publisher, topic, share, client], properties, payload): &Parts) -> Publish<'_> {
    let has = |bit: u8| bits & (1 << bit) != 0;
    Publish {
        qos: QoS::from_u8(*qos).unwrap(),
        retain: has(0),
        resend: has(1),
        sequence: *sequence,
        remaining_secs: has(2).then_some(*sequence as u32),
        stamp: has(3).then_some(!*sequence),
        publisher,
        topic,
        properties,
        payload,
        share: has(4).then_some((share.as_str(), qos & 1 == 0)),
        name: has(5).then_some(match qos & 1 {
            0 => Name::Will { client, epoch: sequence.rotate_left(9) },
            _ => Name::Packet(names(1 + payload.len() % Names::MAX)),
        }),
        orphan: has(6).then_some(Orphan {
            of: !*sequence,
            incarnation: *sequence,
            only: has(7).then_some(sequence.rotate_left(5)),
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_is_encoded_comes_back(parts in parts(), behind in proptest::collection::vec(any::<u8>(), 0..9)) {
        let frame = DataFrame::Publish(of(&parts));
        let mut bytes = bytes(&frame);
        let length = bytes.len();
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(DataFrame::decode(&bytes, MAX), Ok(Some((frame, length))));
    }

    #[test]
    fn a_part_of_a_frame_is_awaited(parts in parts(), cut in any::<proptest::sample::Index>()) {
        let bytes = bytes(&DataFrame::Publish(of(&parts)));
        let part = &bytes[..cut.index(bytes.len())];
        prop_assert_eq!(DataFrame::decode(part, MAX), Ok(None));
    }

    #[test]
    fn mutations_never_panic(parts in parts(), changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = bytes(&DataFrame::Publish(of(&parts)));
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(Some((DataFrame::Publish(publish), length))) = DataFrame::decode(&bytes, MAX) {
            prop_assert!(length <= bytes.len());
            prop_assert!(name::validate(publish.topic).is_ok());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0u8..22) {
        let _ = DataFrame::decode(&bytes, MAX);
        let _ = AnswerFrame::decode(&bytes, MAX);
        let framed = [&(bytes.len() as u32 + 1).to_be_bytes()[..], &[kind], &bytes].concat();
        let _ = DataFrame::decode(&framed, MAX);
        let _ = AnswerFrame::decode(&framed, MAX);
    }
}
