//! A session that moves: whatever it has been through, what arrives is the same session, and goes on as the one that stayed would have.

use super::*;
use crate::journal::wire::{CutReplay, StatePart, StateReader, StateWriter, YieldReader, yield_parts};
use crate::mqtt::SEQUENCE_BITS;

/// How far the clock of the other node is ahead, in milliseconds.
const AHEAD: u64 = 86_400_000;

impl Bench {
    /// A node without a data directory.
    fn without_disk(limits: Limits) -> Bench {
        let mut bench = Bench::with(limits, 3600, &[]);
        bench.session = Session::new("client".into(), None);
        bench.connect(3600, &[]);
        bench
    }

    /// What the shard does when the connection is closed for a claim.
    fn close(&mut self) {
        self.session.disconnect();
        self.in_turn(|session, turn, _| session.discard_qos0(turn));
        self.pipe.read();
        self.pipe.closed = false;
    }

    /// All parts of the state; what has to be read back or kept meanwhile is.
    fn export(&mut self, here: &Seen) -> Vec<Bytes> {
        let mut writer = StateWriter::new(&self.session, here);
        let mut parts = Vec::new();
        loop {
            match writer.next(&mut self.session, self.now) {
                StatePart::Made { last, bytes } => {
                    parts.push(bytes);
                    if last {
                        return parts;
                    }
                }
                StatePart::Wanted(positions) => self.read_back_these(positions),
                StatePart::Unkept => self.keep(true),
            }
        }
    }

    fn read_back_these(&mut self, positions: Vec<Position>) {
        assert!(!positions.is_empty());
        for position in positions {
            let Some(Restored::Message { queued, .. }) = self.shelf.items.get(&position) else {
                panic!("{position} is not on disk")
            };
            let message = queued.message().cloned();
            self.in_turn(|session, turn, _| assert!(session.read_back(turn, position, message)));
        }
    }

    /// A bench on another node, with another clock, that has taken everything over.
    fn move_away(&mut self, here: &Seen, there: &Seen, held: &[Outgoing<'_>]) -> Bench {
        let mut taker = Bench::with(self.limits.clone(), 3600, &[]);
        taker.now = self.now + AHEAD;
        taker.epoch = self.epoch;
        taker.shelf.defers = self.shelf.defers;
        taker.session = Session::new("client".into(), self.session.owner().map(|_| OwnerId(77)));
        taker.session.set_expiry_secs(3600);
        taker.session.hold();
        let replays =
            [None, Some("f/1/x")].map(|after| CutReplay { filter: "f/#".into(), after: after.map(Into::into) });
        let mut reader = YieldReader::default();
        yield_parts(&self.session, 5, &replays).for_each(|part| reader.take(&part).unwrap());
        let yielded = reader.finish().unwrap();
        assert_eq!((yielded.clock, &yielded.replays[..]), (5, &replays[..]));
        let mut reader = StateReader::new(&yielded.subscriptions, 10_000_000);
        for (position, filter, subscription) in yielded.subscriptions {
            taker.in_turn(|session, turn, _| {
                session.import(turn, position, Restored::Subscription { filter, subscription });
            });
        }
        for message in held {
            let delivery = Delivery { qos: message.qos, retain: false, subscription_ids: &[], share: None };
            taker.in_turn(|session, turn, _| session.deliver::<Pipe, _>(turn, message, delivery, None));
        }
        assert!(taker.session.queue().is_empty());
        for part in self.export(here) {
            // However the bytes are cut.
            for bytes in part.chunks(7) {
                for (position, restored) in reader.take(bytes, taker.now).unwrap() {
                    taker.in_turn(|session, turn, _| session.import(turn, position, restored));
                }
            }
        }
        let imported = reader.finish().unwrap();
        taker.in_turn(|session, turn, _| session.adopt(turn, imported.bounds, imported.seen, (there, &[])));
        taker
    }

    /// Everything that counts of the session, in words; times as what is left.
    fn in_words(&self) -> Vec<String> {
        let left = |at: Option<u64>| at.map(|at| at.saturating_sub(self.now));
        let of = |queued: &Queued| {
            let Queued { position, qos, retain, subscription_ids, share, .. } = queued;
            let (size, left) = (queued.size(), left(queued.expires_at()));
            format!("{position} {qos:?} {retain} {subscription_ids:?} {share:?} {size} {left:?}")
        };
        let session = &self.session;
        let queue = session.queue.iter().map(|queued| format!("queued {}", of(queued)));
        let window = session.window.iter().map(|inflight| {
            let window::Inflight { packet_id, stage, position, queued } = inflight;
            format!("inflight {packet_id:?} {stage:?} {position} {:?}", queued.as_ref().map(of))
        });
        let mut accepted: Vec<String> =
            session.accepted.iter().map(|(id, accepted)| format!("accepted {accepted:?} {id:?}")).collect();
        accepted.sort();
        let subscriptions = session.export_subscriptions();
        let subscriptions = subscriptions.iter().map(|subscription| format!("subscription {subscription:?}"));
        let mut wills: Vec<String> = session.wills.iter().map(|will| format!("had {will:?}")).collect();
        wills.sort();
        let next = format!("next {} {}", session.next_position, session.window.last_packet_id());
        queue.chain(window).chain(accepted).chain(subscriptions).chain(wills).chain([next]).collect()
    }

    /// One step, and everything that follows from it without a client.
    fn go_on(&mut self, act: impl FnOnce(&mut Bench) -> Vec<String>) -> Vec<String> {
        let mut words = act(self);
        self.keep(true);
        for _ in 0..8 {
            self.read_back();
            self.keep(true);
        }
        words.extend(self.pipe.read());
        // QoS 0 may pass what has to be read back first, which differs.
        words.sort_by_key(|words| words.starts_with("publish") && words.ends_with("qos 0"));
        words
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_arrives_is_the_session_and_goes_on_as_it_would_have(
        before in steps(), after in steps(), defers: bool, on_disk: bool, queue_qos0: bool, kept_before: bool, window_bytes in 0usize..1_000,
    ) {
        let limits = Limits { queued_messages_max: 5, queue_window_bytes: window_bytes, queue_qos0, ..limits() };
        let mut bench = if on_disk { Bench::with(limits, 3600, &[Property::ReceiveMaximum(3)]) } else { Bench::without_disk(limits) };
        bench.shelf.defers = defers && on_disk;
        before.into_iter().enumerate().for_each(|(number, step)| take_step(&mut bench, number, step));
        bench.close();
        if kept_before {
            bench.keep(true);
        }
        let on_shelf = bench.shelf.items.clone();
        let before = bench.in_words();
        let mut moved = bench.move_away(&Seen::default(), &Seen::default(), &[]);
        // What was not kept is by now; until then the export waited.
        let stays = if kept_before { before } else { bench.in_words() };
        prop_assert_eq!(&moved.in_words(), &stays);
        prop_assert_eq!(&bench.in_words(), &stays, "giving changes nothing");
        prop_assert_eq!(&bench.shelf.items, &on_shelf);
        if on_disk {
            let keys = |bench: &Bench| bench.shelf.items.keys().copied().collect::<Vec<_>>();
            prop_assert_eq!(keys(&moved), keys(&bench), "everything is written down there");
        }
        bench.keep(true);

        bench.session.look_for_expired_at = 0;
        prop_assert_eq!(moved.go_on(Bench::reconnect), bench.go_on(Bench::reconnect));
        for (number, step) in after.into_iter().enumerate() {
            let words = format!("{step:?}");
            let act = |bench: &mut Bench| {
                take_step(bench, number, step.clone());
                bench.pipe.read()
            };
            let (there, here) = (moved.go_on(act), bench.go_on(act));
            prop_assert_eq!(there, here, "{}", words);
        }
        prop_assert_eq!(moved.in_words(), bench.in_words());
    }
}

fn numbered(node: u64, sequence: u64) -> Arc<Message> {
    let id = mqtt::MessageId { node, shard: 0, sequence };
    Arc::new(Message { id, ..(*message(&format!("{node}.{sequence}"), AtLeastOnce)).clone() })
}

fn seen_until(marks: &[(u64, u64)]) -> Seen {
    let mut seen = Seen::default();
    marks.iter().for_each(|(node, sequence)| seen.note(numbered(*node, *sequence).id));
    seen
}

#[test]
fn what_was_held_comes_behind_the_state_and_only_once() {
    let mut bench = Bench::persistent();
    bench.close();
    for message in [numbered(1, 7), numbered(2, 3), numbered(1, 8)] {
        bench.send_message(&message, AtLeastOnce);
    }
    let held = [numbered(1, 8), numbered(2, 4), numbered(1, 9), numbered(3, 1)];
    let held = held.each_ref().map(Outgoing::from_message);
    let there = seen_until(&[(1, 9), (2, 4), (3, 1)]);
    let mut moved = bench.move_away(&seen_until(&[(1, 8), (2, 3), (4, 6)]), &there, &held);
    let sent = ["1.7", "2.3", "1.8", "2.4", "1.9", "3.1"];
    let sent = sent.iter().zip(1..).map(|(payload, id)| format!("publish {payload} qos 1 id {id}"));
    assert_eq!(moved.reconnect(), sent.collect::<Vec<_>>());

    assert!(!moved.session.repeats(numbered(1, 8).id), "the other node is not ahead in this stream");
    assert!(moved.session.repeats(numbered(4, 5).id), "it is in this one");
    assert!(moved.session.seen(&there).contains(numbered(4, 6).id), "and so is who takes the session next");
    assert!(moved.session.repeats(numbered(4, 6).id));
    assert!(!moved.session.repeats(numbered(4, 7).id));
    assert!(!moved.session.repeats(numbered(4, 6).id), "nothing older comes behind a newer one");
}

/// It was published once more, and that came to the node which takes the session alone.
#[test]
fn a_will_that_the_session_has_had_is_not_taken_from_what_was_held() {
    let mut bench = Bench::persistent();
    bench.close();
    bench.offer_will(("first", 1), false, AtLeastOnce);
    let again = |epoch| Arc::new(Message { will: epoch, ..(*numbered(3, epoch)).clone() });
    let held = [again(1), again(2), again(2)];
    let held = held.each_ref().map(Outgoing::from_message);
    let mut moved = bench.move_away(&Seen::default(), &seen_until(&[(3, 2)]), &held);
    assert_eq!(moved.reconnect(), ["publish first qos 1 id 1", "publish 3.2 qos 1 id 2"]);
}

#[test]
fn a_hold_keeps_to_the_limits_of_the_queue() {
    for (queue_full, kept) in [(QueueFull::DropOldest, ["3", "4"]), (QueueFull::DropNewest, ["0", "1"])] {
        let limits = Limits { queued_messages_max: 2, queue_full, ..limits() };
        let mut bench = Bench::with(limits, 3600, &[]);
        bench.close();
        bench.session.hold();
        (0..5).for_each(|n| _ = bench.send(&n.to_string(), AtLeastOnce));
        bench.send("x", AtMostOnce);
        let held = bench.session.take_held();
        let payloads = held.iter().map(|queued| queued.message().unwrap().payload.clone());
        assert_eq!(payloads.collect::<Vec<_>>(), kept);
        assert_eq!((bench.dropped(DropReason::QueueFull), bench.dropped(DropReason::Disconnected)), (3, 1));
        assert!(!bench.session.is_held());
        assert!(bench.shelf.items.is_empty(), "nothing is written down of it");
    }
}

#[test]
fn a_long_queue_goes_in_parts_and_leaves_the_memory_as_it_was() {
    let limits = Limits { queued_messages_max: 2_000, queued_bytes_max: 10_000_000, ..limits() };
    let mut bench = deferring(Limits { queue_window_bytes: 10_000, ..limits });
    bench.close();
    (0..1_500).for_each(|n| _ = bench.send(&format!("{n:01000}"), AtLeastOnce));
    bench.keep(true);
    let in_memory = bench.session.queue().bytes_here();
    let parts = bench.export(&Seen::default());
    assert!(parts.len() > 5, "{}", parts.len());
    assert_eq!(bench.session.queue().bytes_here(), in_memory);
    let mut moved = bench.move_away(&Seen::default(), &Seen::default(), &[]);
    moved.keep(true);
    assert!(moved.session.queue().bytes_here() <= 10_000, "nor does it fill the memory there");
    assert_eq!(moved.in_words(), bench.in_words());
}

#[test]
fn what_comes_during_the_export_stays_behind() {
    let mut bench = Bench::persistent();
    bench.close();
    bench.send("a", AtLeastOnce);
    let mut writer = StateWriter::new(&bench.session, &Seen::default());
    bench.send("b", AtLeastOnce);
    let share: Arc<str> = "$share/g/t".into();
    let delivery = Delivery {
        qos: AtLeastOnce,
        retain: false,
        subscription_ids: &[],
        share: Some(ShareText { text: &share, awaited: false }),
    };
    bench.in_turn(|session, turn, _| {
        let message = message("c", AtLeastOnce);
        session.deliver::<Pipe, _>(turn, &Outgoing::from_message(&message), delivery, None)
    });
    let StatePart::Made { last: true, bytes } = writer.next(&mut bench.session, bench.now) else { panic!() };
    let mut reader = StateReader::new(&[], 10_000);
    assert_eq!(reader.take(&bytes, 0).unwrap().len(), 1);
    let behind = bench.session.left_behind(writer.bounds());
    assert_eq!(behind.iter().map(|queued| queued.message().unwrap().payload.clone()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(bench.session.queue().len(), 2);
}

#[test]
fn a_message_that_is_lost_on_disk_does_not_go_and_the_others_do() {
    let mut bench = deferring(Limits { queue_window_bytes: 0, ..limits() });
    bench.close();
    ["a", "b"].iter().for_each(|payload| _ = bench.send(payload, AtLeastOnce));
    bench.keep(true);
    let mut writer = StateWriter::new(&bench.session, &Seen::default());
    let StatePart::Wanted(wanted) = writer.next(&mut bench.session, bench.now) else { panic!() };
    assert_eq!(wanted.len(), 2);
    bench.in_turn(|session, turn, _| assert!(!session.read_back(turn, wanted[0], None)));
    let moved = bench.move_away(&Seen::default(), &Seen::default(), &[]);
    assert_eq!(moved.session.queue().len(), 1);
}

/// Its client is let in later; what is promised of its messages meanwhile depends on how long they stay.
#[test]
fn a_session_on_its_way_stays_as_long_as_its_connection_has_asked() {
    let session = Session::arriving("client".into(), None, 7, 60);
    assert!(session.is_held() && session.connected().is_none());
    assert_eq!((session.epoch(), session.expiry_secs()), (7, 60));
}

/// What the new shard of an inherited session had from the dead node before, the session had not.
#[test]
fn what_an_inherited_session_has_missed_goes_with_it() {
    let packet = |sequence| MessageId { node: 7, shard: 1, sequence }.of_packet();
    let seen = |ids: &[MessageId]| {
        let mut seen = Seen::default();
        ids.iter().for_each(|id| seen.note(*id));
        seen
    };
    let (copy, here) = (seen(&[packet(5)]), seen(&[packet(9), MessageId { node: 7, shard: 1, sequence: 9 }]));
    let missed = copy.missed_of(&here, |node| node != 7);
    assert_eq!(missed, [Missed { after: 5, up_to: packet(9) }]);
    assert!(copy.missed_of(&here, |_| true).is_empty(), "what lives sends to the heir what it owes the dead one");
    assert!(here.missed_of(&copy, |_| false).is_empty());
    let begun_anew = MessageId { node: 7, shard: 0, sequence: 1 << SEQUENCE_BITS };
    assert_eq!(seen(&[packet(5), begun_anew]).missed_of(&here, |_| true), missed, "its streams before are over");
    let mut bench = Bench::persistent();
    bench.in_turn(|session, turn, _| {
        session.has_seen(turn, copy, &here);
        session.add_missed(turn, &missed, &here);
    });
    let got = |bench: &Bench, here: &Seen| {
        [5, 6, 9, 10, 11, 12].map(|sequence| bench.session.has_got(packet(sequence), here))
    };
    assert_eq!(got(&bench, &here), [true, false, false, false, false, false]);
    let later = seen(&[packet(11)]);
    assert_eq!(got(&bench, &later), [true, false, false, true, true, false], "what comes now comes to it too");
    bench.close();
    let moved = bench.move_away(&here, &seen(&[packet(10)]), &[]);
    assert_eq!(got(&moved, &later), [true, false, false, false, true, false], "nor had it what its next shard had");
    let mut found = Session::new("client".into(), None);
    moved.shelf.items.iter().for_each(|(position, item)| found.restore(*position, item.clone()));
    assert!(!found.has_got(packet(10), &later) && found.has_got(packet(5), &later), "nor has it after a start");
}

/// Its new node starts anew before a packet comes there that has come where it was before.
#[test]
fn what_a_session_has_seen_elsewhere_is_known_after_a_start() {
    let packet = |sequence| MessageId { node: 7, shard: 1, sequence }.of_packet();
    let (mut there, here) = (Seen::default(), Seen::default());
    there.note(packet(5));
    let mut bench = Bench::persistent();
    bench.close();
    let moved = bench.move_away(&there, &here, &[]);
    let mut found = Session::new("client".into(), None);
    moved.shelf.items.iter().for_each(|(position, item)| found.restore(*position, item.clone()));
    assert_eq!([5, 6].map(|sequence| found.has_got(packet(sequence), &here)), [true, false]);
    let mut copied = Vec::new();
    found.items_without_message(|position, item| copied.push((position, matches!(item, Item::Seen { .. }))));
    assert!(copied.iter().any(|(_, is_seen)| *is_seen), "and its copies know it");
}

/// A packet whose home has died is routed anew, while a session that had got it is on its way to another node.
#[test]
fn what_was_held_and_had_come_under_an_earlier_name_comes_once() {
    let packet = |node, sequence| MessageId { node, shard: 1, sequence }.of_packet();
    let again =
        |payload, sequence| Arc::new(Message { id: packet(8, sequence), ..(*message(payload, ExactlyOnce)).clone() });
    let mut bench = Bench::persistent();
    bench.close();
    let mut here = Seen::default();
    here.note(packet(7, 5));
    let (got, new) = (again("got", 1), again("new", 2));
    let (of_got, of_new) = ([packet(7, 5)], [packet(7, 6)]);
    let held = [Outgoing::again(&got, &of_got), Outgoing::again(&new, &of_new)];
    let mut moved = bench.move_away(&here, &Seen::default(), &held);
    assert_eq!(moved.reconnect(), ["publish new qos 2 id 1"]);
}

/// What the next shard of a session has seen says nothing of it while it is on its way: what it has missed comes with it.
#[test]
fn what_was_held_and_its_session_has_missed_is_not_lost() {
    let packet = |node, sequence| MessageId { node, shard: 1, sequence }.of_packet();
    let mut here = Seen::default();
    here.note(packet(7, 9));
    let mut bench = Bench::persistent();
    let missed = [Missed { after: 5, up_to: packet(7, 9) }];
    bench.in_turn(|session, turn, _| session.add_missed(turn, &missed, &here));
    bench.close();
    let message = Arc::new(Message { id: packet(8, 1), ..(*message("missed", ExactlyOnce)).clone() });
    let earlier = [packet(7, 7)];
    let mut moved = bench.move_away(&here, &here, &[Outgoing::again(&message, &earlier)]);
    assert_eq!(moved.reconnect(), ["publish missed qos 2 id 1"]);
}
