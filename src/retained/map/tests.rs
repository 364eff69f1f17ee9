//! The map against a plain list, and the rules of section 3.3.1.3 one by one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::limits;
use crate::mqtt::{MessageId, QoS};

/// Each is newer than those that were made before, and of the first millisecond.
fn message(topic: &str, payload: &str, expires_at: Option<u64>) -> Arc<Message> {
    static STAMP: AtomicU64 = AtomicU64::new(1);
    stamped(topic, payload, expires_at, Version { stamp: STAMP.fetch_add(1, Ordering::Relaxed), node: 0 })
}

fn stamped(topic: &str, payload: &str, expires_at: Option<u64>, version: Version) -> Arc<Message> {
    Arc::new(Message {
        stamp: version.stamp,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        retain: true,
        expires_at,
        ..Message::sample(MessageId { node: version.node, ..Default::default() }, topic, QoS::AtLeastOnce)
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
    assert_eq!((map.len(), map.next_expiry()), (0, Some(limits::TOMBSTONE_MS)));
}

#[test]
fn expiry_goes_in_slices_and_a_replaced_message_does_not_expire_for_its_successor() {
    let mut map = Map::new();
    for (topic, at) in [("a", 3), ("b", 1), ("c", 2), ("d", 9)] {
        map.set(0, message(topic, "x", Some(at)));
    }
    map.set(0, message("b", "stays", None));
    assert_eq!(map.next_expiry(), Some(2));
    map.expire(5, 1);
    assert_eq!((map.next_expiry(), map.len()), (Some(3), 3));
    map.expire(5, 10);
    assert_eq!(map.len(), 2);
    assert_eq!(map.expire(5, 10), []);
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
                map.expire(now, usize::MAX);
                prop_assert_eq!(map.len(), list.len());
                prop_assert_eq!(map.bytes(), list.values().map(|message| message.size()).sum::<usize>());
                let next = list.values().filter_map(|message| message.expires_at).min();
                prop_assert_eq!(map.next_expiry().filter(|at| *at < limits::TOMBSTONE_MS), next);
            }
        }
    }
}

fn version(stamp: u64, node: u64) -> Version {
    Version { stamp, node }
}

#[test]
fn of_two_versions_the_greater_one_stays_whatever_comes_first() {
    let (one, other) = (stamped("a", "1", None, version(5, 1)), stamped("a", "2", None, version(5, 2)));
    let deleted = stamped("a", "", None, version(6, 1));
    let mut map = Map::new();
    assert_eq!(map.set(0, other.clone()), Change::Stored);
    assert_eq!(map.set(0, one), Change::Older);
    assert_eq!(map.set(0, other.clone()), Change::Older, "the same once more");
    assert_eq!(payload(map.get(0, "a")), Some(b"2".as_slice()));
    assert_eq!(map.set(0, deleted.clone()), Change::Deleted);
    assert_eq!(map.set(0, deleted), Change::Older);
    assert_eq!(map.set(0, other), Change::Older, "what was deleted does not come back");
    assert_eq!((map.len(), map.tombstones(), map.known("a")), (0, 1, Some(Known::Gone(version(6, 1)))));
    assert_eq!(map.set(0, stamped("a", "3", None, version(6, 2))), Change::Stored);
    assert_eq!((map.len(), map.tombstones()), (1, 0));
}

#[test]
fn a_deletion_that_comes_before_what_it_deletes_is_remembered() {
    let mut map = Map::new();
    assert_eq!(map.set(0, stamped("a", "", None, version(2, 1))), Change::Nothing);
    assert_eq!(map.set(0, stamped("a", "late", None, version(1, 2))), Change::Older);
    assert_eq!(map.get(0, "a"), None);
}

#[test]
fn what_expired_is_remembered_and_the_value_before_it_does_not_come_back() {
    let mut map = Map::new();
    let first = stamped("a", "1", None, version(1, 1));
    map.set(0, first.clone());
    map.set(0, stamped("a", "2", Some(10), version(2, 1)));
    let digest = map.digest().clone();
    let writes = map.expire(10, 5);
    assert!(matches!(writes[..], [Write::Void { item: 2 }, Write::Tombstone { item: 3, .. }]), "{writes:?}");
    assert_eq!(map.digest(), &digest, "nodes that expire it a little later agree");
    assert_eq!(map.set(10, first), Change::Older);
    assert_eq!(map.next_expiry(), Some(limits::TOMBSTONE_MS));
    assert_eq!(map.expire(limits::TOMBSTONE_MS, 5), [Write::Void { item: 3 }]);
    assert_eq!((map.tombstones(), map.digest(), map.next_expiry()), (0, &Digest::default(), None));
}

#[test]
fn a_message_without_room_goes_and_so_does_the_older_one() {
    let mut map = Map::new();
    map.set(0, stamped("a", "1", None, version(1, 1)));
    assert_eq!(map.refuse(0, &stamped("a", "22", None, version(2, 1))).change, Change::Deleted);
    assert_eq!(map.known("a"), Some(Known::Gone(version(2, 1))));
    assert_eq!(map.refuse(0, &stamped("a", "22", None, version(1, 9))).change, Change::Older);
}

#[test]
fn what_the_server_publishes_has_no_version_and_no_item() {
    let mut map = Map::new();
    for text in ["1", "2", ""] {
        let changed = map.replace(0, stamped("$SYS/a", text, None, Version::default()));
        assert_ne!(changed.change, Change::Older);
        assert!(changed.writes.is_empty());
    }
    map.set(0, stamped("$SYS/b", "1", None, Version::default()));
    map.set(0, stamped("$other/b", "1", None, version(1, 1)));
    assert_eq!((map.len(), map.tombstones(), map.known_behind(None).count()), (2, 0, 1));
    assert_eq!(map.clear(), [Write::Void { item: 1 }]);
    assert_eq!((map.len(), map.bytes()), (1, message("$SYS/b", "1", None).size()));
    assert_eq!(map.digest(), &Digest::default());
}

#[test]
fn tombstones_are_bounded_by_their_number_and_the_oldest_goes() {
    let mut map = Map::new();
    assert_eq!(map.tombstones.most, limits::TOMBSTONES_MAX);
    map.tombstones.most = 100;
    for number in 1..=100 {
        map.set(0, stamped(&format!("t/{number}"), "", None, version(number, 1)));
    }
    assert_eq!((map.tombstones(), map.tombstones_evicted()), (100, 0));
    let changed = map.replace(0, stamped("t/next", "", None, version(101, 1)));
    assert_eq!(changed.writes[1], Write::Void { item: 1 });
    assert_eq!((map.known("t/1"), map.tombstones(), map.tombstones_evicted()), (None, 100, 1));
    // One that is older than all of them has no use, and nothing goes for it.
    assert!(map.would_forget(0, version(1, 1)));
    assert!(map.replace(0, stamped("t/old", "", None, version(1, 1))).writes.is_empty());
    assert_eq!(map.tombstones_evicted(), 1);
}

#[test]
fn tombstones_are_bounded_by_their_topics() {
    let mut map = Map::new();
    let long = |number: u64| format!("{number}/{}", "x".repeat(60_000));
    for number in 1..=1_200 {
        map.set(0, stamped(&long(number), "", None, version(number, 1)));
    }
    assert!(map.tombstones() * 60_000 <= limits::TOMBSTONE_BYTES_MAX);
    assert_eq!(map.tombstones() as u64 + map.tombstones_evicted(), 1_200);
    assert_eq!((map.known(&long(1)), map.known(&long(1_200)).is_some()), (None, true));
}

/// What the writes have left on disk.
#[derive(Default)]
struct Disk(BTreeMap<Item, Write>);

impl Disk {
    fn write(&mut self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            match write {
                Write::Message { item, .. } | Write::Tombstone { item, .. } => {
                    assert!(self.0.insert(item, write).is_none(), "no number comes twice");
                }
                Write::Void { item } => assert!(self.0.remove(&item).is_some(), "what goes was there"),
            }
        }
    }

    /// Messages first, as they are read.
    fn restore(&mut self, now: u64) -> Map {
        let mut map = Map::new();
        let (mut writes, mut tombstones) = (Vec::new(), Vec::new());
        for write in self.0.values().cloned() {
            match write {
                Write::Message { item, message } => writes.extend(map.restore(item, message)),
                Write::Tombstone { item, topic, version } => tombstones.push((item, topic, version)),
                Write::Void { .. } => unreachable!("nothing that is void is on disk"),
            }
        }
        for (item, topic, version) in tombstones {
            writes.extend(map.restore_tombstone(now, item, topic, version));
        }
        self.write(writes);
        map
    }
}

fn all_known(map: &Map) -> Vec<(Arc<str>, Version, bool)> {
    let known =
        |(topic, known): (&Arc<str>, Known<'_>)| (topic.clone(), known.version(), matches!(known, Known::Message(_)));
    map.known_behind(None).map(known).collect()
}

fn digest_of(map: &Map) -> Digest {
    let mut digest = Digest::default();
    map.known_behind(None).for_each(|(topic, known)| digest.add(TopicHash::of(topic), known.version()));
    digest
}

proptest! {
    #[test]
    fn a_version_never_falls_and_the_disk_has_what_the_map_has(
        steps in prop::collection::vec(
            (0_u8..5, 0_usize..3, prop::option::of(0_u64..30), (1_u64..60, 0_u64..3), 0_u64..4, 0_u8..8), 1..80,
        )
    ) {
        let (mut map, mut disk, mut now) = (Map::new(), Disk::default(), 0);
        let mut newest = BTreeMap::<String, Version>::new();
        for (topic, length, expires_at, (at, node), passed, also) in steps {
            now += passed;
            let topic = format!("t/{topic}");
            let version = version(at << 16, node);
            let message = stamped(&topic, &"x".repeat(length), expires_at, version);
            let changed = if also == 7 { map.refuse(now, &message) } else { map.replace(now, message) };
            let last = newest.entry(topic.clone()).or_insert(version);
            prop_assert_eq!(changed.change == Change::Older, map.version(&topic) != Some(version) || changed.writes.is_empty());
            *last = version.max(*last);
            prop_assert_eq!(map.version(&topic), Some(*last), "a version never falls");
            disk.write(changed.writes);
            if also == 0 {
                disk.write(map.expire(now, 2));
            }
            if also == 1 {
                let restored = disk.restore(now);
                prop_assert_eq!(all_known(&restored), all_known(&map));
                prop_assert_eq!((restored.len(), restored.bytes(), restored.tombstones()), (map.len(), map.bytes(), map.tombstones()));
                prop_assert_eq!((restored.digest(), restored.next_expiry()), (map.digest(), map.next_expiry()));
                map = restored;
            }
            prop_assert_eq!(map.digest(), &digest_of(&map));
            prop_assert_eq!(map.items().collect::<std::collections::BTreeSet<_>>(), disk.0.keys().copied().collect());
        }
    }

    /// What several threads have written may reach the disk in any order, and a crash keeps some of it: the newest of what was kept stays.
    #[test]
    fn of_what_a_crash_leaves_the_newest_stays(steps in prop::collection::vec((0_u8..3, 0_usize..2, 1_u64..50, any::<bool>()), 1..30)) {
        let (mut map, mut disk) = (Map::new(), Disk::default());
        let mut newest = BTreeMap::<String, Version>::new();
        for (topic, length, stamp, is_kept) in steps {
            let topic = format!("t/{topic}");
            let message = stamped(&topic, &"x".repeat(length), None, version(stamp, 1));
            for write in map.replace(0, message).writes {
                match write {
                    Write::Void { .. } if !is_kept => {}
                    Write::Void { item } => drop(disk.0.remove(&item)),
                    Write::Message { item, .. } | Write::Tombstone { item, .. } if is_kept => {
                        newest.insert(topic.clone(), version(stamp, 1));
                        disk.0.insert(item, write);
                    }
                    _ => {}
                }
            }
        }
        let restored = disk.restore(0);
        let found: BTreeMap<_, _> = restored.known_behind(None).map(|(topic, known)| (topic.to_string(), known.version())).collect();
        prop_assert_eq!(found, newest);
        prop_assert_eq!(restored.items().count(), disk.0.len());
    }
}
