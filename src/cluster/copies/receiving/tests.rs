//! What an heir does with what it is told, and that its copies are what the home had, whatever breaks and whoever starts again.

use crate::mqtt::QoS;

use super::*;

const NODE: NodeId = NodeId(7);
const HOME: Home = Home { node: NODE, shard: 1 };
const OTHER: Home = Home { node: NodeId(8), shard: 1 };

fn message(node: u64, shard: u16, sequence: u64) -> Arc<Message> {
    Arc::new(Message::sample(MessageId { node, shard, sequence }, "t", QoS::AtLeastOnce))
}

fn begin(owner: u64, client: &str) -> CopyEntry {
    CopyEntry::Begin { owner: OwnerId(owner), client_id: client.into(), began: owner + 1 }
}

fn put(owner: u64, item: ItemId, value: &str) -> CopyEntry {
    CopyEntry::Put { owner: OwnerId(owner), item, value: Value::from_slice(value.as_bytes()), body: None, ahead: false }
}

fn put_message(owner: u64, item: ItemId, message: Arc<Message>) -> CopyEntry {
    CopyEntry::Put { owner: OwnerId(owner), item, value: Value::from_slice(b"m"), body: Some(message), ahead: false }
}

/// The same of a message that goes on in a later frame.
fn put_ahead(owner: u64, item: ItemId, message: Arc<Message>) -> CopyEntry {
    let value = Value::from_slice(b"m");
    CopyEntry::Put { owner: OwnerId(owner), item, value, body: Some(message), ahead: true }
}

fn delete(owner: u64, item: ItemId) -> CopyEntry {
    CopyEntry::Delete { owner: OwnerId(owner), item }
}

fn drop_of(owner: u64) -> CopyEntry {
    CopyEntry::Drop { owner: OwnerId(owner) }
}

fn complete(owner: u64) -> CopyEntry {
    CopyEntry::Complete { owner: OwnerId(owner) }
}

/// An heir, whose own owners begin at 100.
#[derive(Default)]
struct Heir {
    copies: Copies,
    owners: u64,
}

impl Heir {
    fn hears(&mut self, home: Home, sequence: u64, entries: Vec<CopyEntry>) -> Vec<Write> {
        let new_owner = || {
            self.owners += 1;
            OwnerId(99 + self.owners)
        };
        self.copies.handle(home, sequence, entries, new_owner).expect("there is room")
    }

    /// What is written, in words.
    fn writes(&mut self, sequence: u64, entries: Vec<CopyEntry>) -> Vec<String> {
        self.hears(HOME, sequence, entries).iter().map(said).collect()
    }
}

fn said(write: &Write) -> String {
    match write {
        Write::Header { owner, header: CopyHeader::Session { home, owner: of, client_id, began, complete } } => {
            assert_eq!(*home, HOME);
            let state = if *complete { "complete" } else { "begun" };
            format!("{}: {client_id} since {began}, {} at home, {state}", owner.0, of.0)
        }
        Write::Header { owner, header: CopyHeader::Streams { up_to, .. } } => format!("{}: up to {up_to}", owner.0),
        Write::Put { owner, item, value, body } => {
            let body = if body.is_some() { " with body" } else { "" };
            format!("{}/{item}: {}{body}", owner.0, String::from_utf8_lossy(value))
        }
        Write::Stream { owner, item, id } => format!("{}/{item}: {}.{} to {}", owner.0, id.node, id.shard, id.sequence),
        Write::Delete { owner, item } => format!("{}/{item}: gone", owner.0),
        Write::Drop { owner } => format!("{}: gone", owner.0),
    }
}

#[test]
fn a_copy_is_begun_filled_and_followed() {
    let mut heir = Heir::default();
    let said = heir.writes(1, vec![begin(20, "c"), put(20, 1, "sub")]);
    assert_eq!(said, ["100: c since 21, 20 at home, begun", "100/1: sub", "101: up to 1"]);
    let said = heir.writes(2, vec![put_message(20, 2, message(5, 0, 9)), complete(20)]);
    let expected = ["100/2: m with body", "100: c since 21, 20 at home, complete", "101/1: 5.0 to 9", "101: up to 2"];
    assert_eq!(said, expected);
    assert_eq!(heir.writes(3, vec![put(20, 2, "sent"), delete(20, 1)]), ["100/2: sent", "100/1: gone", "101: up to 3"]);
    assert_eq!(heir.writes(4, vec![drop_of(20)]), ["100: gone", "101: up to 4"]);
    assert_eq!(heir.copies.homes[&HOME].bytes, 0);
}

/// H24.
#[test]
fn what_comes_again_is_known() {
    let mut heir = Heir::default();
    let tail = || vec![begin(20, "c"), put(20, 1, "a"), delete(20, 1), put(20, 2, "b"), complete(20)];
    heir.writes(5, tail());
    let before = heir.copies.clone();
    assert!(heir.writes(5, tail()).is_empty());
    assert!(heir.writes(4, vec![drop_of(20)]).is_empty());
    assert_eq!(heir.copies, before);
}

#[test]
fn what_is_said_of_a_session_that_was_not_begun_is_nothing() {
    let mut heir = Heir::default();
    let said = heir.writes(1, vec![put(20, 1, "a"), delete(20, 1), complete(20), drop_of(20)]);
    assert_eq!(said, ["100: up to 1"]);
    let said = heir.writes(2, vec![begin(20, "c"), delete(20, 1)]);
    assert_eq!(said, ["101: c since 21, 20 at home, begun", "100: up to 2"]);
}

#[test]
fn a_copy_that_is_begun_again_has_nothing_of_the_one_before() {
    let mut heir = Heir::default();
    heir.writes(1, vec![begin(20, "c"), put(20, 1, "a")]);
    let said = heir.writes(2, vec![begin(20, "c"), put(20, 2, "b")]);
    assert_eq!(said, ["100: gone", "102: c since 21, 20 at home, begun", "102/2: b", "101: up to 2"]);
    let [taken] = &heir.copies.take(NODE)[..] else { panic!("one home") };
    assert_eq!((taken.sessions.len(), taken.sessions[0].complete, taken.sessions[0].items.len()), (1, false, 1));
}

/// H24: one number for a stream is enough.
#[test]
fn a_complete_copy_stays_until_the_one_that_was_begun_after_it_is_complete() {
    let mut heir = Heir::default();
    heir.writes(1, vec![begin(20, "c"), put(20, 1, "a"), put(20, 2, "b"), complete(20)]);
    let said = heir.writes(2, vec![begin(20, "c"), put(20, 2, "c"), delete(20, 1)]);
    let expected = ["102: c since 21, 20 at home, begun", "100/2: c", "102/2: c", "100/1: gone", "101: up to 2"];
    assert_eq!(said, expected);
    // The home starts once more.
    let said = heir.writes(3, vec![begin(20, "c"), put(20, 3, "d")]);
    assert_eq!(said, ["102: gone", "103: c since 21, 20 at home, begun", "100/3: d", "103/3: d", "101: up to 3"]);
    let mut dies = heir.copies.clone();
    let [taken] = &dies.take(NODE)[..] else { panic!("one home") };
    let of_it: Vec<_> =
        taken.sessions.iter().map(|copied| (copied.owner.0, copied.complete, copied.items.len())).collect();
    assert_eq!(of_it, [(103, false, 1), (100, true, 2)]);
    let said = heir.writes(4, vec![complete(20)]);
    assert_eq!(said, ["103: c since 21, 20 at home, complete", "100: gone", "101: up to 4"]);
    assert_eq!(heir.writes(5, vec![begin(20, "c"), drop_of(20)]).len(), 4, "both are gone");
    assert_eq!(heir.copies.homes[&HOME].bytes, 0);
}

#[test]
fn streams_go_forward_and_names_are_none() {
    let mut heir = Heir::default();
    let bodies = |bodies: &[(u64, u16, u64)]| {
        let put = |&(node, shard, sequence)| put_message(20, 1, message(node, shard, sequence));
        bodies.iter().map(put).collect::<Vec<_>>()
    };
    heir.writes(1, vec![begin(20, "c")]);
    let mut said = heir.writes(2, bodies(&[(5, 0, 9), (5, 0, 8), (5, u16::MAX, 1), (6, 2, 3), (5, 0, 10)]));
    assert_eq!(said.split_off(5), ["101/1: 5.0 to 10", "101/2: 6.2 to 3", "101: up to 2"]);
    assert_eq!(heir.writes(3, bodies(&[(6, 2, 3), (5, 0, 10)])).pop().unwrap(), "101: up to 3");
    let seen = CopyEntry::Seen { id: MessageId { node: 6, shard: 2, sequence: 4 } };
    assert_eq!(heir.writes(4, vec![seen]), ["101/2: 6.2 to 4", "101: up to 4"]);
    let packet = |sequence| CopyEntry::Seen { id: MessageId { node: 6, shard: 2, sequence }.of_packet() };
    let said = heir.writes(5, vec![packet(3), packet(1 << 40)]);
    assert_eq!(said.len(), 3, "two streams of packets, as the node has started anew: {said:?}");
    let many = (0..=STREAMS_MAX as u64).map(|node| CopyEntry::Seen { id: MessageId { node, shard: 0, sequence: 1 } });
    heir.writes(6, many.collect());
    assert_eq!(heir.copies.homes[&HOME].streams.len(), STREAMS_MAX);
}

#[test]
fn the_copies_of_a_dead_node_are_taken_out_and_others_stay() {
    let mut heir = Heir::default();
    heir.hears(HOME, 1, vec![begin(20, "c"), put_message(20, 1, message(5, 0, 9)), complete(20)]);
    heir.hears(Home { shard: 0, ..HOME }, 1, vec![begin(21, "d")]);
    heir.hears(OTHER, 1, vec![begin(20, "e"), complete(20)]);
    assert_eq!(heir.copies.nodes().collect::<Vec<_>>(), [NODE, OTHER.node]);
    let [first, second] = &heir.copies.take(NODE)[..] else { panic!("two shards had sessions") };
    assert_eq!(
        (first.streams_owner, &first.seen[..], &*first.sessions[0].client_id),
        (Some(OwnerId(103)), &[][..], "d")
    );
    assert_eq!(
        (second.streams_owner, &second.seen[..]),
        (Some(OwnerId(101)), &[MessageId { node: 5, shard: 0, sequence: 9 }][..])
    );
    let [session] = &second.sessions[..] else { panic!("one session") };
    let expected = Copied {
        owner: OwnerId(100),
        client_id: "c".into(),
        began: 21,
        complete: true,
        items: BTreeMap::from([(1, Value::from_slice(b"m"))]),
        ahead: Vec::new(),
    };
    assert_eq!(*session, expected);
    assert_eq!(heir.copies.nodes().collect::<Vec<_>>(), [OTHER.node]);
    let said = heir.writes(1, vec![begin(20, "c")]);
    assert_eq!(said.last().unwrap(), "107: up to 1", "it begins anew");
}

#[test]
fn copies_go_that_are_of_no_use() {
    let mut heir = Heir::default();
    heir.hears(HOME, 1, vec![begin(20, "c"), put(20, 1, "a"), begin(21, "d")]);
    heir.hears(OTHER, 1, vec![begin(20, "c")]);
    let elsewhere = heir.copies.elsewhere(NODE, |client| client == "d");
    assert_eq!(elsewhere, BTreeSet::from([OwnerId(100)]));
    assert_eq!(heir.copies.discard(NODE, &elsewhere), [Write::Drop { owner: OwnerId(100) }]);
    assert!(heir.copies.discard(NODE, &elsewhere).is_empty());
    assert_eq!(heir.copies.homes[&HOME].bytes, SESSION_BYTES + 1);
    let gone: Vec<String> = heir.copies.forget(NODE).iter().map(said).collect();
    assert_eq!(gone, ["101: gone", "102: gone"]);
    assert!(heir.copies.forget(NODE).is_empty());
    assert_eq!(heir.copies.nodes().collect::<Vec<_>>(), [OTHER.node]);
}

#[test]
fn a_home_that_holds_too_much_is_refused() {
    let mut heir = Heir::default();
    heir.hears(HOME, 1, vec![begin(20, "c")]);
    heir.copies.homes.get_mut(&HOME).unwrap().bytes = limits::COPIED_BYTES_MAX + 1;
    let before = heir.copies.clone();
    for more in [begin(21, "d"), put(20, 1, "a")] {
        let refused = heir.copies.handle(HOME, 2, vec![drop_of(20), more], || OwnerId(500));
        assert_eq!(refused, Err(TooMuch));
        assert_eq!(heir.copies, before);
    }
    heir.hears(OTHER, 2, vec![begin(20, "c")]);
    assert_eq!(heir.writes(2, vec![delete(20, 1), drop_of(20)])[0], "100: gone", "it makes room");
}

#[test]
fn of_several_copies_the_newest_is_taken_up_and_a_complete_one_beside_it() {
    let copied = |owner, complete| Copied {
        owner: OwnerId(owner),
        client_id: "c".into(),
        began: 1,
        complete,
        items: BTreeMap::from([(owner, Value::from_slice(b"v"))]),
        ahead: Vec::new(),
    };
    let restored = |found: &[(u64, bool)]| {
        let mut copies = Copies::default();
        let dropped = found.iter().flat_map(|(owner, complete)| {
            copies.restore_session(HOME, OwnerId(20), copied(*owner, *complete)).map(|owner| owner.0)
        });
        let dropped: Vec<u64> = dropped.collect();
        let bytes = copies.homes[&HOME].bytes;
        let taken = copies.take(NODE).remove(0).sessions;
        assert_eq!(bytes, taken.iter().map(Copied::bytes).sum::<usize>());
        (taken.iter().map(|copied| copied.owner.0).collect::<Vec<_>>(), dropped)
    };
    for found in [[(100, true), (104, true)], [(104, true), (100, true)], [(100, false), (104, true)]] {
        assert_eq!(restored(&found), (vec![104], vec![100]), "{found:?}");
    }
    for found in [[(100, true), (104, false)], [(104, false), (100, true)]] {
        assert_eq!(restored(&found), (vec![104, 100], vec![]), "{found:?}");
    }
    assert_eq!(restored(&[(100, true), (104, false), (102, true)]), (vec![104, 102], vec![100]));
    assert_eq!(restored(&[(100, true), (104, false), (106, true)]), (vec![106], vec![100, 104]), "both go");
}

#[test]
fn of_two_owners_of_what_a_home_has_seen_the_one_that_knows_more_is_taken_up() {
    let seen = |sequence| MessageId { node: 9, shard: 0, sequence };
    let found = [(OwnerId(100), 4, seen(40)), (OwnerId(101), 6, seen(60)), (OwnerId(102), 5, seen(50))];
    let mut copies = Copies::default();
    let dropped = found.map(|(owner, up_to, id)| copies.restore_streams(HOME, owner, up_to, &[(1, id)]));
    assert_eq!(dropped, [None, Some(OwnerId(100)), Some(OwnerId(102))]);
    let taken = copies.take(NODE).remove(0);
    assert_eq!((taken.streams_owner, taken.seen), (Some(OwnerId(101)), vec![seen(60)]));
}

#[test]
fn an_item_is_known_by_the_complete_copy_while_another_is_begun() {
    let mut heir = Heir::default();
    heir.hears(HOME, 1, vec![begin(20, "c"), put(20, 1, "a"), complete(20)]);
    heir.hears(HOME, 2, vec![begin(20, "c")]);
    assert_eq!(heir.copies.value(HOME, OwnerId(20), 1).map(|value| &value[..]), Some(&b"a"[..]));
    heir.hears(HOME, 3, vec![put(20, 2, "b"), complete(20)]);
    assert_eq!(heir.copies.value(HOME, OwnerId(20), 1), None, "it is not in the copy any more");
    assert!(heir.copies.value(HOME, OwnerId(20), 2).is_some());
}

#[test]
fn a_message_that_goes_on_in_a_later_frame_is_seen_by_those_alone_that_have_it() {
    let id = |sequence| MessageId { node: 5, shard: 0, sequence };
    let mut heir = Heir::default();
    heir.writes(
        1,
        ["c", "d", "e"].iter().zip(20..).flat_map(|(client, owner)| [begin(owner, client), complete(owner)]).collect(),
    );
    let said = heir.writes(2, vec![put_message(20, 1, message(5, 0, 8)), put_ahead(20, 2, message(5, 0, 9))]);
    assert_eq!(said, ["100/1: m with body", "100/2: m with body", "103/1: 5.0 to 8", "103: up to 2"]);
    // It may be gone again before all have it.
    heir.writes(3, vec![put_ahead(21, 1, message(5, 0, 9)), delete(21, 1), put_ahead(21, 2, message(5, 0, 8))]);
    let had = |copies: &Copies| {
        let Taken { seen, sessions, .. } = copies.clone().take(NODE).remove(0);
        let had = sessions.into_iter().map(|copied| (copied.client_id.to_string(), copied.ahead));
        (seen, had.collect::<BTreeMap<_, _>>())
    };
    let of = |name: &str, ahead: &[MessageId]| (name.to_owned(), ahead.to_vec());
    let expected = BTreeMap::from([of("c", &[id(9)]), of("d", &[id(9)]), of("e", &[])]);
    assert_eq!(had(&heir.copies), (vec![id(8)], expected));
    let (_, taken) = heir.copies.clone().take_some(|client| client == "c").remove(0);
    assert_eq!((taken.seen, &taken.sessions[0].ahead[..]), (vec![id(8)], &[id(9)][..]));
    assert_eq!(heir.writes(4, vec![put_message(22, 1, message(5, 0, 9))])[1], "103/1: 5.0 to 9");
    let expected = BTreeMap::from([of("c", &[]), of("d", &[]), of("e", &[])]);
    assert_eq!(had(&heir.copies), (vec![id(9)], expected));
    assert!(heir.copies.homes[&HOME].ahead.is_empty());
}

mod model;
