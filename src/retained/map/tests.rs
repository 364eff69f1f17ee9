//! The map against a plain list, and the rules of section 3.3.1.3 one by one.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::mqtt::{MessageId, QoS};

fn message(topic: &str, payload: &str, expires_at: Option<u64>) -> Arc<Message> {
    Arc::new(Message {
        id: MessageId::default(),
        stamp: 0,
        topic: topic.into(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        properties: Bytes::new(),
        qos: QoS::AtLeastOnce,
        retain: true,
        expires_at,
        publisher: "publisher".into(),
    })
}

fn payload(found: Option<&Arc<Message>>) -> Option<&[u8]> {
    found.map(|message| message.payload.as_ref())
}

#[test]
fn the_newest_message_replaces_and_an_empty_one_deletes() {
    let mut map = Map::new();
    assert_eq!(map.set(0, message("a", "", None)), Change::Nothing);
    assert_eq!(map.set(0, message("a", "1", None)), Change::Stored);
    assert_eq!(map.set(0, message("a", "22", None)), Change::Replaced);
    assert_eq!(payload(map.get(0, "a")), Some(b"22".as_slice()));
    assert_eq!(map.bytes(), message("a", "22", None).size());
    assert_eq!(map.set(0, message("a", "", None)), Change::Deleted);
    assert_eq!((map.get(0, "a"), map.len(), map.bytes()), (None, 0, 0));
    assert!(map.is_empty());
}

#[test]
fn an_expired_message_is_absent_before_it_is_removed() {
    let mut map = Map::new();
    map.set(0, message("a", "1", Some(10)));
    assert!(map.get(9, "a").is_some());
    assert!(map.get(10, "a").is_none());
    assert!(map.scan(10, "#", None, usize::MAX).next().is_none());
    assert_eq!(map.set(10, message("a", "", None)), Change::Nothing);
    map.set(10, message("a", "2", Some(20)));
    assert_eq!(map.set(20, message("a", "3", None)), Change::Stored);
    assert_eq!(map.next_expiry(), None);
}

#[test]
fn a_message_that_has_expired_already_removes_what_was_there() {
    let mut map = Map::new();
    map.set(0, message("a", "1", None));
    assert_eq!(map.set(5, message("a", "2", Some(5))), Change::Deleted);
    assert_eq!((map.len(), map.next_expiry()), (0, None));
}

#[test]
fn expiry_goes_in_slices_and_a_replaced_message_does_not_expire_for_its_successor() {
    let mut map = Map::new();
    for (topic, at) in [("a", 3), ("b", 1), ("c", 2), ("d", 9)] {
        map.set(0, message(topic, "x", Some(at)));
    }
    map.set(0, message("b", "stays", None));
    assert_eq!(map.next_expiry(), Some(2));
    assert_eq!(map.expire(5, 1).len(), 1);
    assert_eq!(map.next_expiry(), Some(3));
    assert_eq!(map.expire(5, 10).len(), 1);
    assert_eq!(map.expire(5, 10).len(), 0);
    assert_eq!((map.next_expiry(), map.len()), (Some(9), 2));
    assert!(map.get(5, "b").is_some());
}

#[test]
fn a_replay_in_slices_sees_every_message_and_skips_those_that_expired() {
    let mut map = Map::new();
    for number in 0..100 {
        map.set(0, message(&format!("t/{number}"), "x", (number % 2 == 0).then_some(5)));
    }
    let (mut seen, mut after) = (0, None::<Arc<str>>);
    loop {
        let mut scan = map.scan(5, "t/+", after.as_deref(), 7);
        seen += scan.by_ref().count();
        match scan.resume() {
            Some(topic) => after = Some(Arc::clone(topic)),
            None => break,
        }
    }
    assert_eq!(seen, 50);
}

proptest! {
    #[test]
    fn agrees_with_a_plain_list(
        steps in prop::collection::vec((0_u8..8, 0_usize..3, prop::option::of(0_u64..20), 0_u64..3, any::<bool>()), 1..60)
    ) {
        let (mut map, mut list, mut now) = (Map::new(), BTreeMap::new(), 0);
        for (topic, length, expires_at, passed, expire) in steps {
            now += passed;
            let stored = message(&format!("t/{topic}"), &"x".repeat(length), expires_at);
            list.retain(|_, message: &mut Arc<Message>| !message.is_expired(now));
            let was_there = list.remove(&stored.topic).is_some();
            let is_there = length != 0 && !stored.is_expired(now);
            if is_there {
                list.insert(Arc::clone(&stored.topic), Arc::clone(&stored));
            }
            let expected = match (was_there, is_there) {
                (false, true) => Change::Stored,
                (true, true) => Change::Replaced,
                (true, false) => Change::Deleted,
                (false, false) => Change::Nothing,
            };
            prop_assert_eq!(map.set(now, stored), expected);
            let found: Vec<_> = map.scan(now, "t/#", None, usize::MAX).cloned().collect();
            prop_assert_eq!(found, list.values().cloned().collect::<Vec<_>>());
            if expire {
                map.expire(now, usize::MAX).len();
                prop_assert_eq!(map.len(), list.len());
                prop_assert_eq!(map.bytes(), list.values().map(|message| message.size()).sum::<usize>());
                prop_assert_eq!(map.next_expiry(), list.values().filter_map(|message| message.expires_at).min());
            }
        }
    }
}
