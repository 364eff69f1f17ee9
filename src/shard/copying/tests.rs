//! What heirs hear, as they read it.

use holdfast_raft::NodeId;
use holdfast_storage::Value;

use super::*;
use crate::cluster::copies::CopyEntry;
use crate::journal::read_copy;
use crate::mqtt::{PacketId, QoS, WillName};
use crate::session::{Queued, QueuedBody, Restored, StoredBody, SubscriptionIds};

const O: OwnerId = OwnerId(16);
const B: Slot = 2;

fn heirs() -> Heirs {
    let base = [(NodeId(9), Some(B))].into_iter().collect();
    Heirs { base, wanted: true, ..Heirs::default() }
}

fn message(sequence: u64) -> Arc<Message> {
    Arc::new(Message {
        payload: vec![sequence as u8; 8].into(),
        ..Message::sample(MessageId { node: 7, shard: 0, sequence }, "t", QoS::AtLeastOnce)
    })
}

fn queued(position: Position, here: bool) -> Queued {
    let message = message(position);
    let size = message.size() as u32;
    Queued {
        position,
        body: if here { QueuedBody::Here(message) } else { QueuedBody::Stored(StoredBody { size, expires_at: None }) },
        qos: QoS::AtLeastOnce,
        retain: false,
        subscription_ids: SubscriptionIds::None,
        share: None,
        kept: true,
        awaited: false,
    }
}

fn put_of(position: Position) -> Entry {
    put(O, position, Item::Message { queued: &queued(position, true), packet_id: None }, Some(message(position)))
}

/// The entries of frames as words.
fn heard(copying: &mut Copying, frames: &[Frame<Piece>]) -> Vec<String> {
    let mut words = Vec::new();
    for frame in frames {
        let bytes = copying.encode(frame, 1_000);
        for entry in read_copy(&bytes, 1_000).expect("an heir can read it") {
            words.push(match entry {
                CopyEntry::Begin { client_id, began, .. } => format!("begin {client_id} {began}"),
                CopyEntry::Put { item, body, .. } => {
                    format!("put {item}{}", if body.is_some() { " with body" } else { "" })
                }
                CopyEntry::Delete { item, .. } => format!("delete {item}"),
                CopyEntry::Drop { .. } => "drop".to_owned(),
                CopyEntry::Complete { .. } => "complete".to_owned(),
                CopyEntry::Seen { id } => format!("seen {}", id.sequence),
            });
        }
    }
    words
}

fn submit(copying: &mut Copying, submission: u64, entries: &[Entry]) -> Vec<String> {
    copying.write(entries);
    let frames = copying.submit(submission);
    heard(copying, &frames)
}

#[test]
fn a_turn_of_a_session_becomes_a_frame_for_its_heir() {
    let mut copying = Copying::default();
    copying.sending.change(heirs());
    copying.add(O, &"c".into(), 5, true);
    let other = Entry::Put { owner: OwnerId(3), item: 1, value: Value::new(), body: None };
    let entries = [header(O, "c", 5), other, put_of(1)];
    assert_eq!(submit(&mut copying, 1, &entries), ["begin c 5", "complete", "put 1 with body"]);
    assert_eq!(submit(&mut copying, 2, &[Entry::Delete { owner: O, item: 1 }]), ["delete 1"]);
    copying.sending.kept(2);
    assert_eq!(copying.stable(), 0);
    copying.sending.accepted(B, u64::MAX);
    assert_eq!((copying.stable(), copying.unstable_bytes()), (2, 0));
    assert_eq!(submit(&mut copying, 3, &[Entry::Drop { owner: O }]), ["drop"]);
    assert!(submit(&mut copying, 4, &[put_of(2)]).is_empty(), "it has ended");
}

#[test]
fn a_message_that_its_subscriber_has_been_sent_waits_for_its_acknowledgement_or_the_disk() {
    let sent = |position| {
        let item = Item::Message { queued: &queued(position, true), packet_id: PacketId::new(1) };
        put(O, position, item, Some(message(position)))
    };
    let mut copying = Copying::default();
    copying.sending.change(heirs());
    copying.add(O, &"c".into(), 5, true);
    submit(&mut copying, 1, &[header(O, "c", 5)]);
    copying.sending.accepted(B, u64::MAX);
    assert!(submit(&mut copying, 2, &[sent(1), sent(2)]).is_empty());
    assert!(submit(&mut copying, 3, &[Entry::Delete { owner: O, item: 1 }]).is_empty());
    copying.sending.kept(2);
    let frames = copying.sending.released();
    assert_eq!(heard(&mut copying, &frames), ["put 2 with body"]);
    assert!(submit(&mut copying, 4, &[sent(3)]).is_empty());
    let will = journal::encode_item(Item::HadWill { will: &WillName { client: "w".into(), epoch: 1 } });
    let will = Entry::Put { owner: O, item: 5, value: will, body: None };
    assert_eq!(submit(&mut copying, 5, &[will]), ["put 3 with body", "put 5"], "it is the Will");
    copying.sending.accepted(B, u64::MAX);
    copying.sending.kept(5);
    assert!(submit(&mut copying, 6, &[sent(6)]).is_empty());
    let received = journal::encode_item(Item::Received { packet_id: PacketId::new(1).expect("not 0") });
    let received = Entry::Put { owner: O, item: 7, value: received, body: None };
    assert_eq!(submit(&mut copying, 7, &[received]), ["put 6 with body", "put 7"], "PUBREL waits for it");
}

#[test]
fn what_was_found_at_a_start_begins_at_the_heir_before_anything_is_said_of_it() {
    let mut copying = Copying::default();
    copying.add(O, &"c".into(), 5, false);
    copying.sending.change(heirs());
    assert_eq!(submit(&mut copying, 1, &[put_of(1)]), ["begin c 5", "put 1 with body"]);
    assert_eq!(submit(&mut copying, 2, &[header(O, "c", 5), put_of(2)]), ["put 2 with body"], "it is not complete");
    copying.sending.lose(B);
    let frames = copying.sending.change(heirs());
    assert_eq!(heard(&mut copying, &frames), ["begin c 5", "put 1 with body", "put 2 with body"]);
}

#[test]
fn a_session_goes_whole_and_is_then_said_to_be_complete() {
    let mut copying = Copying::default();
    copying.add(O, &"c".into(), 5, false);
    copying.sending.change(heirs());
    let mut session = Session::new("c".into(), Some(O));
    let packet_id = PacketId::new(4).expect("not 0");
    session.restore(1, Restored::Accepted { packet_id, names: None });
    session.restore(2, Restored::Message { queued: queued(2, true), packet_id: Some(packet_id) });
    session.restore(3, Restored::Message { queued: queued(3, false), packet_id: None });
    session.restore(4, Restored::Message { queued: queued(4, false), packet_id: None });
    let work = copying.sending.next_work(|_, _| true).expect("nobody has it");
    let mut filling = Filling::new(work, &session, None);
    let (part, last) = filling.part(O, &session, None).expect("what is in memory");
    let frames = copying.sending.made(work, part, last);
    assert_eq!(
        (heard(&mut copying, &frames), last),
        (vec!["begin c 5".into(), "put 1".into(), "put 2 with body".into()], false)
    );
    assert!(filling.part(O, &session, None).is_none(), "a message has to be read back");
    assert_eq!(filling.wanted(&session, None), [3, 4]);
    filling.bodies = [(3, Some(message(3))), (4, None)].into_iter().collect();
    let work = copying.sending.next_work(|_, _| true).expect("the rest");
    let (part, last) = filling.part(O, &session, None).expect("they have been read");
    let frames = copying.sending.made(work, part, last);
    assert_eq!((heard(&mut copying, &frames), last), (vec!["put 3 with body".into(), "complete".into()], true));
    copying.filled.insert(B);
    assert!(copying.has_work(), "nothing else has to be written");
    assert_eq!(submit(&mut copying, 1, &[Entry::Drop { owner: O }]), ["drop"]);
    let seen = || vec![MessageId { node: 7, shard: 0, sequence: 99 }];
    let frames = copying.tell_seen(seen);
    assert_eq!(heard(&mut copying, &frames), ["seen 99"], "the others are of the same home");
    assert!(copying.tell_seen(seen).is_empty(), "told once");
}

#[test]
fn a_fill_is_complete_when_the_heir_has_accepted_what_was_seen() {
    let mut copying = Copying::default();
    copying.add(O, &"c".into(), 5, false);
    let next = [(NodeId(9), Some(B))].into_iter().collect();
    copying.sending.change(Heirs { next, fill: Some(7), wanted: true, ..Heirs::default() });
    let session = Session::new("c".into(), Some(O));
    let work = copying.sending.next_work(|_, _| true).expect("nobody has it");
    let (part, last) = Filling::new(work, &session, None).part(O, &session, None).expect("there is no message");
    let made = copying.sending.made(work, part, last);
    copying.filled.insert(B);
    let told = copying.tell_seen(|| vec![MessageId { node: 7, shard: 0, sequence: 99 }]);
    copying.sending.accepted(B, made.last().expect("all of it").number);
    assert_eq!(copying.sending.fill_complete(), None);
    copying.sending.accepted(B, told.last().expect("what was seen").number);
    assert_eq!(copying.sending.fill_complete(), Some(7));
}

#[test]
fn what_was_given_back_leaves_the_copy_when_its_next_owner_is_safe() {
    let mut copying = Copying::default();
    copying.sending.change(heirs());
    copying.add(O, &"c".into(), 5, true);
    submit(&mut copying, 1, &[header(O, "c", 5), put_of(1), put_of(2)]);
    copying.hold(O, 1);
    let delete = |item| Entry::Delete { owner: O, item };
    assert_eq!(submit(&mut copying, 2, &[delete(1), delete(2)]), ["delete 2"]);
    assert_eq!(submit(&mut copying, 3, &[delete(1)]), ["delete 1"]);
}

#[test]
fn what_was_given_back_is_in_a_copy_until_its_next_owner_is_safe() {
    let mut copying = Copying::default();
    copying.add(O, &"c".into(), 5, false);
    copying.sending.change(heirs());
    copying.give_away(O, &[queued(1, true), queued(2, false), queued(3, true)]);
    copying.write_entry(&Entry::Delete { owner: O, item: 3 });
    let session = Session::new("c".into(), Some(O));
    let work = copying.sending.next_work(|_, _| true).expect("nobody has it");
    let away = copying.away.get(&O);
    let mut filling = Filling::new(work, &session, away);
    let (part, last) = filling.part(O, &session, away).expect("what is in memory");
    assert_eq!((part.len(), last, filling.wanted(&session, away)), (1, false, vec![2]));
    filling.bodies = [(2, Some(message(2)))].into_iter().collect();
    let (rest, last) = filling.part(O, &session, away).expect("it has been read");
    assert!(last);
    let frames = copying.sending.made(work, part.into_iter().chain(rest), true);
    assert_eq!(heard(&mut copying, &frames), ["begin c 5", "put 1 with body", "put 2 with body", "complete"]);
    copying.write(&[1, 2].map(|item| Entry::Delete { owner: O, item }));
    assert!(copying.away.is_empty());
}
