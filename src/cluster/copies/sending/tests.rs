//! Scripts of one home and its heirs, and a world of them in which nodes are destroyed, come back empty, and inherit nothing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const O: OwnerId = OwnerId(1);

/// Heirs of which each is live, at the slot of its number.
fn heirs(base: &[NodeId], next: &[NodeId], fill: Option<u64>) -> Heirs {
    let members = |nodes: &[NodeId]| nodes.iter().map(|node| (*node, Some(node.0 as Slot))).collect();
    Heirs { base: members(base), next: members(next), fill, wanted: true }
}

fn copied(owner: OwnerId, entry: &'static str) -> Copied<&'static str> {
    let effect = match entry.split_once(' ') {
        Some((what @ ("pass" | "put"), item)) => {
            let (item, message) = item.split_once(" of ").unwrap_or((item, ""));
            let body = message.parse().ok().map(BodyId);
            Effect::Put { item: item.parse().expect("a number"), passing: what == "pass", body }
        }
        Some(("delete", item)) => Effect::Delete { item: item.parse().expect("a number") },
        _ if entry == "drop" => Effect::End,
        _ => Effect::Other,
    };
    Copied { owner, entry, bytes: entry.len(), effect }
}

fn submit(
    sending: &mut Sending<&'static str>,
    submission: u64,
    entries: &[&'static str],
) -> Vec<(Slot, u64, Vec<&'static str>)> {
    plain(sending.submit(submission, entries.iter().map(|entry| copied(O, entry))))
}

fn plain(frames: Vec<Frame<&'static str>>) -> Vec<(Slot, u64, Vec<&'static str>)> {
    frames.into_iter().map(|frame| (frame.heir, frame.number, frame.entries)).collect()
}

fn make(sending: &mut Sending<&'static str>, work: Work, entries: &[&'static str], last: bool) -> Vec<&'static str> {
    let made = sending.made(work, entries.iter().map(|entry| copied(work.owner, entry)), last);
    made.into_iter().flat_map(|frame| frame.entries).collect()
}

/// A client whose pick among all of `nodes` is the last of them.
fn client_of(nodes: &[NodeId]) -> Arc<str> {
    let mut names = (0..).map(|n| format!("client-{n}"));
    names.find(|client| heir_of(client, nodes) == nodes.last().copied()).expect("each is somebody's heir").into()
}

/// H20: what waits for that waits for the heir.
#[test]
fn who_is_no_heir_any_more_is_waited_for_no_longer_and_drops_what_it_has() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "one".into());
    sending.submit(1, [copied(O, "header"), copied(O, "message")]);
    sending.kept(1);
    assert_eq!(sending.stable(), 0, "its disk is full");
    let tail = sending.change(heirs(&[B], &[C], Some(5)));
    assert_eq!(tail.iter().map(|frame| frame.heir).collect::<Vec<_>>(), [3]);
    sending.accepted(3, tail[0].number);
    assert_eq!(sending.stable(), 0, "both are heirs");
    sending.change(heirs(&[C], &[], None));
    assert_eq!(sending.stable(), 1, "it is with the heir that there is");
    let drop = sending.next_work(|heir, _| heir != 2).expect("it is to drop the session");
    assert_eq!((drop.heir, drop.owner, drop.step), (2, O, Step::Drop));
    // When it has room again it accepts all of it.
    let dropped = sending.made(drop, [copied(O, "drop")], true);
    sending.accepted(2, dropped[0].number);
    assert_eq!(sending.lag(2).bytes, 0);
}

#[test]
fn a_fill_says_how_far_it_is() {
    let mut sending = Sending::default();
    sending.change(heirs(&[], &[B], Some(7)));
    sending.add(O, "one".into());
    sending.add(OwnerId(2), "two".into());
    let far = |sending: &Sending<_>| (sending.lag(2).filled, sending.lag(2).to_fill, sending.lag(2).filled_bytes);
    assert_eq!(far(&sending), (0, 2, 0));
    let work = sending.next_work(|_, _| true).unwrap();
    sending.made(work, [copied(work.owner, "part")], false);
    assert_eq!(far(&sending), (0, 2, 4), "it is on its way");
    let work = sending.next_work(|_, _| true).unwrap();
    sending.made(work, [copied(work.owner, "end")], true);
    assert_eq!(far(&sending), (1, 2, 7));
    sending.begin(OwnerId(3), "three".into());
    assert_eq!(far(&sending), (1, 2, 7), "there is nothing to fill of one that begins");
    sending.change(heirs(&[], &[B, C], Some(8)));
    assert_eq!(sending.lag(2).filled_bytes + sending.lag(3).filled_bytes, 0, "from here on");
    assert!(sending.lag(2).to_fill + sending.lag(3).to_fill >= 1);
}

#[test]
fn a_submission_is_stable_when_it_is_kept_here_and_at_the_heir() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    assert_eq!(submit(&mut sending, 1, &["begin", "complete", "put 1"]), [(2, 1, vec!["begin", "complete", "put 1"])]);
    assert!(plain(sending.submit(2, [copied(OwnerId(9), "a lease")])).is_empty(), "it is no session's");
    assert_eq!(submit(&mut sending, 3, &["put 2"]), [(2, 2, vec!["put 2"])]);
    assert_eq!((sending.lag(2).bytes, sending.lag(2).records), (23, 4));
    sending.accepted(2, 1);
    assert_eq!(sending.stable(), 0, "it is not kept here");
    sending.kept(3);
    assert_eq!((sending.stable(), sending.unstable_bytes()), (2, 5));
    sending.accepted(2, 2);
    assert_eq!((sending.stable(), sending.unstable_bytes(), sending.lag(2)), (3, 0, Lag::default()));
    assert_eq!(
        (sending.next_work(|_, _| true), sending.without_copy()),
        (None, 0),
        "a session that is new has its copy from the start"
    );
}

#[test]
fn without_heirs_what_is_kept_is_stable() {
    let mut sending = Sending::default();
    sending.add(O, "c".into());
    assert!(submit(&mut sending, 1, &["put 1"]).is_empty());
    sending.kept(1);
    assert_eq!((sending.stable(), sending.unstable_bytes()), (1, 0));
}

/// H6.
#[test]
fn nothing_is_stable_while_a_session_has_nobody_and_the_next_heir_gets_the_tail_first() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.add(O, "c".into());
    assert_eq!(submit(&mut sending, 1, &["put 1"]).len(), 1);
    submit(&mut sending, 2, &["put 2"]);
    sending.accepted(2, 1);
    sending.kept(1);
    assert_eq!(sending.stable(), 1);
    sending.accepted(2, 2);
    sending.lose(2);
    assert_eq!(submit(&mut sending, 3, &["delete 1"]), []);
    sending.kept(3);
    assert_eq!(sending.stable(), 1, "what the lost heir had is here alone");
    // The lost one stays in the base, and no other takes its place there.
    let mut next = heirs(&[B], &[C], Some(7));
    next.base.lose(2);
    assert_eq!(plain(sending.change(next)), [(3, 3, vec!["put 2", "delete 1"])]);
    let work = sending.next_work(|_, _| true).expect("it lacks the session");
    assert_eq!((work.heir, work.owner, work.step), (3, O, Step::Begin));
    assert_eq!(make(&mut sending, work, &["begin", "put 2", "complete"], true), ["begin", "put 2", "complete"]);
    assert_eq!(sending.stable(), 1);
    sending.accepted(3, 3);
    assert_eq!((sending.stable(), sending.fill_complete()), (3, None), "the fill is not accepted");
    sending.accepted(3, 5);
    assert_eq!((sending.fill_complete(), sending.fill_complete()), (Some(7), None), "told once");
}

/// H5.
#[test]
fn both_picks_must_have_it_and_the_old_one_drops_its_copy_in_the_end() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, client_of(&[B, C]));
    submit(&mut sending, 1, &["begin", "complete"]);
    assert_eq!(plain(sending.change(heirs(&[B], &[B, C], Some(4)))), [(3, 2, vec!["begin", "complete"])]);
    let put = submit(&mut sending, 2, &["put 1"]);
    assert_eq!(put, [(2, 3, vec!["put 1"]), (3, 4, vec!["put 1"])]);
    sending.kept(2);
    sending.accepted(2, 3);
    assert_eq!(sending.stable(), 0);
    sending.accepted(3, 4);
    assert_eq!(sending.stable(), 2);
    let work = sending.next_work(|_, _| true).expect("it lacks the session");
    assert_eq!(sending.next_work(|_, _| true), None, "one at a time");
    make(&mut sending, work, &["begin"], false);
    let more = sending.next_work(|_, _| true).expect("the rest");
    assert_eq!((more.owner, more.step), (O, Step::GoOn));
    assert!(make(&mut sending, work, &["late"], true).is_empty(), "that was asked for earlier");
    make(&mut sending, more, &["put 1", "complete"], true);
    sending.accepted(3, u64::MAX);
    assert_eq!(sending.fill_complete(), Some(4));
    assert!(sending.change(heirs(&[B, C], &[], None)).is_empty());
    let work = sending.next_work(|_, _| true).expect("a copy too many");
    assert_eq!((work.heir, work.owner, work.step), (2, O, Step::Drop));
    make(&mut sending, work, &["drop"], true);
    assert_eq!(sending.next_work(|_, _| true), None);
    // The next fill finds everything in its place.
    sending.change(heirs(&[B, C], &[B, C], Some(9)));
    sending.accepted(2, u64::MAX);
    assert_eq!((sending.next_work(|_, _| true), sending.fill_complete()), (None, Some(9)));
}

#[test]
fn a_tail_may_come_behind_newer_entries_of_other_sessions() {
    let mut sending = Sending::default();
    let other = OwnerId(2);
    sending.change(heirs(&[B, C], &[], None));
    sending.begin(O, client_of(&[B, C]));
    sending.begin(other, client_of(&[C, B]));
    submit(&mut sending, 1, &["put 1"]);
    sending.submit(2, [copied(other, "put 2")]);
    sending.lose(3);
    sending.kept(2);
    // B has the second submission on its way, and then gets the first.
    assert_eq!(plain(sending.change(heirs(&[B], &[], None))), [(2, 3, vec!["put 1"])]);
    sending.accepted(2, 2);
    assert_eq!(sending.stable(), 0);
    sending.accepted(2, 3);
    assert_eq!(sending.stable(), 2);
}

#[test]
fn a_pick_that_was_to_drop_its_copy_begins_it_anew() {
    let mut sending = Sending::default();
    sending.begin(O, client_of(&[B, C]));
    sending.change(heirs(&[B], &[], None));
    sending.change(heirs(&[B, C], &[], None));
    let work = sending.next_work(|_, _| true).expect("a copy too many at B");
    assert_eq!(work.step, Step::Drop);
    submit(&mut sending, 1, &["put 1"]);
    assert_eq!(plain(sending.change(heirs(&[B], &[], None))).len(), 1);
    assert!(make(&mut sending, work, &["drop"], true).is_empty(), "the tail would go with it");
    let steps: Vec<_> =
        std::iter::from_fn(|| sending.next_work(|_, _| true)).map(|work| (work.heir, work.step)).collect();
    assert_eq!(steps, [(2, Step::Begin), (3, Step::Drop)]);
}

#[test]
fn however_often_heirs_change_a_copy_is_to_be_dropped_once() {
    let mut sending = Sending::<&str>::default();
    sending.change(heirs(&[B, C], &[], None));
    sending.begin(O, client_of(&[B, C]));
    for _ in 0..3 {
        sending.change(heirs(&[B], &[], None));
        sending.change(heirs(&[B, C], &[], None));
    }
    assert_eq!(sending.streams.values().map(|stream| stream.to_drop.len()).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_fill_waits_while_its_heir_has_much_to_accept() {
    let mut sending = Sending::default();
    sending.change(heirs(&[], &[B], Some(1)));
    sending.add(O, "c".into());
    sending.add(OwnerId(2), "d".into());
    let work = sending.next_work(|_, _| true).expect("the first one");
    let large = |owner| Copied { bytes: FRAME_BYTES, ..copied(owner, "complete") };
    let frames = sending.made(work, (0..16).map(|_| large(O)), true);
    assert_eq!(frames.len(), 16, "none of them is much longer than a frame should be");
    assert_eq!(sending.next_work(|_, _| true), None);
    sending.accepted(2, frames[0].number);
    let work = sending.next_work(|_, _| true).expect("there is room");
    assert_eq!(work.owner, OwnerId(2));
    sending.submit(1, [copied(OwnerId(2), "drop")]);
    assert!(sending.made(work, [large(OwnerId(2))], true).is_empty(), "it has ended");
    sending.accepted(2, u64::MAX);
    assert_eq!(sending.fill_complete(), Some(1));
}

/// A kill may have cut off what was on its way to the heir.
#[test]
fn what_was_found_at_a_start_counts_when_the_heir_has_all_of_its_session() {
    let mut sending = Sending::default();
    let (other, new) = (OwnerId(2), OwnerId(3));
    sending.add(O, "c".into());
    sending.add(other, "d".into());
    assert_eq!((sending.cover(O), sending.covered()), (0, 0), "there is no other node");
    sending.add(new, "e".into());
    sending.change(heirs(&[B], &[B, C], Some(7)));
    assert_eq!(sending.cover(OwnerId(9)), 0, "there is no such one");
    assert_eq!((sending.cover(new), sending.cover(other), sending.cover(new), sending.covered()), (1, 2, 1, 0));
    let mut last = 0;
    let owners: Vec<_> = std::iter::from_fn(|| {
        // Whatever else there is no room for.
        let work = sending.next_work(|heir, awaited| heir == 2 && awaited)?;
        assert!(sending.made(work, [copied(work.owner, "part")], false).len() == 1);
        let work = sending.next_work(|heir, awaited| heir == 2 && awaited).expect("the rest");
        last = sending.made(work, [copied(work.owner, "complete")], true)[0].number;
        Some(work.owner)
    })
    .collect();
    assert_eq!((owners, sending.covered()), (vec![new, other], 0), "it is on its way");
    sending.accepted(2, last - 1);
    assert_eq!((sending.covered(), sending.cover(new)), (1, 0));
    sending.submit(1, [copied(other, "drop")]);
    assert_eq!(sending.covered(), 2, "it has ended");
}

#[test]
fn nobody_but_who_inherits_next_covers_what_was_found_and_what_is_lost_does_not_count() {
    let mut sending = Sending::default();
    sending.add(O, client_of(&[B, C]));
    sending.change(heirs(&[B], &[B, C], Some(7)));
    let fill = |sending: &mut Sending<&'static str>, of: Slot| {
        let work = sending.next_work(|heir, _| heir == of).expect("it lacks the session");
        sending.made(work, [copied(O, "complete")], true)[0].number
    };
    assert_eq!(sending.cover(O), 1);
    let (at_next, at_base) = (fill(&mut sending, 3), fill(&mut sending, 2));
    sending.accepted(3, at_next);
    assert_eq!(sending.covered(), 0);
    sending.lose(2);
    sending.accepted(2, at_base);
    assert_eq!(sending.covered(), 1, "it is the only one left");
    sending.add(OwnerId(2), client_of(&[B, C]));
    assert_eq!(sending.cover(OwnerId(2)), 2);
    let work = sending.next_work(|_, _| true).expect("it lacks the session");
    let lost = sending.made(work, [copied(OwnerId(2), "complete")], true)[0].number;
    sending.change(heirs(&[B], &[], None));
    sending.change(heirs(&[], &[C], Some(8)));
    sending.accepted(3, lost);
    assert_eq!(sending.covered(), 1, "it is to be sent anew");
}

#[test]
fn a_message_that_is_acknowledged_before_it_is_kept_goes_nowhere() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    assert!(submit(&mut sending, 1, &["pass 1", "pass 2"]).is_empty());
    assert_eq!((sending.lag(2).bytes, sending.lag(2).records, sending.unstable_bytes()), (12, 2, 12));
    assert!(submit(&mut sending, 2, &["delete 1", "pass 3"]).is_empty());
    assert!(!sending.has_released());
    sending.kept(1);
    assert!(sending.has_released());
    assert_eq!(plain(sending.released()), [(2, 1, vec!["pass 2"])], "the third is not kept");
    assert!(submit(&mut sending, 3, &["delete 3"]).is_empty());
    sending.accepted(2, 1);
    assert_eq!(sending.stable(), 1, "no more is kept");
    sending.kept(3);
    assert!(plain(sending.released()).is_empty());
    assert_eq!((sending.stable(), sending.lag(2)), (3, Lag::default()), "there is nothing of it that the heir lacks");
    assert_eq!(submit(&mut sending, 4, &["delete 2"]).len(), 1, "there is nothing that it could follow");
    assert!(submit(&mut sending, 5, &["pass 4"]).is_empty());
    assert!(submit(&mut sending, 6, &["delete 9"]).is_empty(), "it follows");
    sending.kept(6);
    assert!(!sending.has_released(), "the heir is still busy with the fourth");
    assert!(plain(sending.released()).is_empty());
    sending.accepted(2, 2);
    assert_eq!(plain(sending.released()), [(2, 3, vec!["pass 4", "delete 9"])]);
    assert_eq!(sending.stable(), 4);
    sending.accepted(2, 3);
    assert_eq!((sending.stable(), sending.unstable_bytes()), (6, 0));
}

#[test]
fn what_somebody_waits_for_takes_what_is_held_with_it() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    assert!(submit(&mut sending, 1, &["pass 1"]).is_empty());
    assert_eq!(submit(&mut sending, 2, &["pass 2", "put 3"]), [(2, 1, vec!["pass 1", "pass 2", "put 3"])]);
    // What was put and is sent to the client later is known to the heir.
    assert_eq!(submit(&mut sending, 3, &["pass 3"]), [(2, 2, vec!["pass 3"])]);
    assert_eq!(submit(&mut sending, 4, &["delete 3"]), [(2, 3, vec!["delete 3"])]);
    assert!(submit(&mut sending, 5, &["pass 4", "pass 4"]).is_empty());
    assert!(submit(&mut sending, 6, &["delete 4", "pass 5"]).is_empty());
    assert_eq!(submit(&mut sending, 7, &["drop"]), [(2, 4, vec!["pass 5", "drop"])]);
    sending.kept(7);
    sending.accepted(2, 3);
    assert_eq!(sending.stable(), 5, "the fourth is gone, the fifth is not accepted");
    sending.accepted(2, 4);
    assert_eq!(sending.stable(), 7);
}

/// An heir that has a message for one session takes it for seen by all of them.
#[test]
fn nothing_is_held_of_a_message_that_is_written_for_another_session() {
    let (first, second) = (OwnerId(2), OwnerId(3));
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    for (owner, client) in [(first, "c"), (second, "d"), (O, "e")] {
        sending.begin(owner, client.into());
    }
    let written = |sending: &mut Sending<_>, submission, entries: &[(OwnerId, &'static str)]| {
        let frames = sending.submit(submission, entries.iter().map(|(owner, entry)| copied(*owner, entry)));
        frames.into_iter().flat_map(|frame| frame.entries).collect::<Vec<_>>()
    };
    let one = [(O, "put 1 of 7"), (first, "put 1 of 5"), (first, "pass 2 of 7"), (second, "pass 3 of 7")];
    assert_eq!(written(&mut sending, 1, &one), ["put 1 of 7", "put 1 of 5", "pass 2 of 7", "pass 3 of 7"]);
    assert_eq!(written(&mut sending, 2, &[(first, "delete 2")]), ["delete 2"], "the heir has it");
    assert!(written(&mut sending, 3, &[(first, "pass 5 of 8"), (second, "pass 6 of 8")]).is_empty());
    let one = [(second, "pass 7 of 9"), (O, "put 8 of 9"), (first, "pass 9 of 9"), (first, "pass 10 of 10")];
    let expected = ["pass 5 of 8", "pass 6 of 8", "pass 7 of 9", "put 8 of 9", "pass 9 of 9"];
    assert_eq!(written(&mut sending, 4, &one), expected, "the tenth is for nobody else");
}

#[test]
fn nothing_is_held_of_a_message_of_which_too_much_is_held() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    let pass = |item| Copied {
        owner: O,
        entry: "pass",
        bytes: 600 * 1024,
        effect: Effect::Put { item, passing: true, body: Some(BodyId(7)) },
    };
    let frames = sending.submit(1, (1..=5).map(pass));
    assert_eq!(frames.iter().map(|frame| frame.entries.len()).sum::<usize>(), 5);
}

#[test]
fn a_frame_says_which_messages_go_on_in_a_later_one() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B, C], &[], None));
    sending.begin(O, client_of(&[C, B]));
    sending.begin(OwnerId(2), client_of(&[B, C]));
    let put = |owner, item, message| Copied {
        owner,
        entry: "put",
        bytes: FRAME_BYTES / 2,
        effect: Effect::Put { item, passing: false, body: Some(BodyId(message)) },
    };
    let of_b = [(1, 6), (2, 7), (3, 6), (4, 7), (5, 7), (6, 8)];
    let entries = of_b.into_iter().flat_map(|(item, message)| [put(O, item, message), put(OwnerId(2), item, 9)]);
    let frames = sending.submit(1, entries.take(11));
    let ahead: Vec<_> = frames.iter().map(|frame| (frame.heir, frame.ahead.iter().map(|id| id.0).collect())).collect();
    let both = BTreeSet::from([6, 7]);
    let (one, none) = (BTreeSet::from([7]), BTreeSet::new());
    let nine = BTreeSet::from([9]);
    assert_eq!(ahead, [(2, both), (3, nine.clone()), (2, one), (3, nine), (2, none.clone()), (3, none)]);
}

#[test]
fn what_belongs_to_a_message_goes_in_the_frame_of_it() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    let of = |entry, item, bytes, effect| Copied { owner: O, entry: (entry, item), bytes, effect };
    let put =
        |item, passing| of("put", item, FRAME_BYTES, Effect::Put { item, passing, body: Some(BodyId(item.into())) });
    let beside = |item| of("beside", item, 1, Effect::Beside { item });
    let held = sending.submit(1, [put(1, true)]);
    assert!(held.is_empty());
    let frames = sending.submit(2, [put(2, true), beside(3), put(4, false), beside(5)]);
    let entries: Vec<_> = frames.into_iter().map(|frame| frame.entries).collect();
    let pairs = [vec![("put", 1)], vec![("put", 2), ("beside", 3)], vec![("put", 4), ("beside", 5)]];
    assert_eq!(entries, pairs, "what is held goes with it");
    sending.lose(2);
    let tail = sending.change(heirs(&[B], &[], None));
    assert_eq!(tail.into_iter().map(|frame| frame.entries).collect::<Vec<_>>(), pairs);
}

#[test]
fn what_is_held_goes_before_a_fill_and_before_the_heirs_change() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    sending.add(OwnerId(2), "d".into());
    assert!(submit(&mut sending, 1, &["pass 1"]).is_empty());
    let work = sending.next_work(|_, _| true).expect("it lacks the other session");
    assert_eq!(make(&mut sending, work, &["begin", "complete"], true), ["pass 1", "begin", "complete"]);
    assert!(submit(&mut sending, 2, &["pass 2"]).is_empty());
    assert_eq!(submit(&mut sending, 3, &["delete 1"]), [], "it follows what is held");
    assert_eq!(plain(sending.change(heirs(&[B], &[], None)))[0].2, ["pass 2", "delete 1"]);
    assert!(submit(&mut sending, 4, &["pass 3"]).is_empty());
    sending.lose(2);
    sending.kept(4);
    assert_eq!(sending.stable(), 0);
    assert_eq!(plain(sending.change(heirs(&[], &[C], Some(1))))[0].2, ["pass 1", "pass 2", "delete 1", "pass 3"]);
}

#[test]
fn who_is_filled_hears_of_every_deletion() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.add(O, "c".into());
    // It may have been there before, and in the copy that the heir has of an earlier life of its home.
    assert_eq!(submit(&mut sending, 1, &["pass 1"]).len(), 1);
    sending.begin(OwnerId(2), "d".into());
    assert!(sending.submit(2, [copied(OwnerId(2), "pass 1")]).is_empty());
    assert!(submit(&mut sending, 3, &["pass 2", "delete 2"]).is_empty());
    sending.accepted(2, u64::MAX);
    sending.kept(3);
    assert_eq!(plain(sending.released())[0].2, ["pass 1", "pass 2", "delete 2"]);
    let work = sending.next_work(|_, _| true).expect("it lacks the session");
    make(&mut sending, work, &["begin", "complete"], true);
    assert!(submit(&mut sending, 4, &["pass 3"]).is_empty());
    assert!(submit(&mut sending, 5, &["delete 3"]).is_empty());
    sending.kept(5);
    assert!(!sending.has_released(), "nothing is left");
}

#[test]
fn no_more_is_held_than_a_bound() {
    let mut sending = Sending::default();
    sending.change(heirs(&[B], &[], None));
    sending.begin(O, "c".into());
    let large = |item| Copied {
        owner: O,
        entry: "pass",
        bytes: 512 * 1024,
        effect: Effect::Put { item, passing: true, body: None },
    };
    assert!(sending.submit(1, [large(1), large(2)]).is_empty());
    assert_eq!(sending.submit(2, [large(3)]).iter().map(|frame| frame.entries.len()).sum::<usize>(), 3);
}

/// An entry as a heir understands it. `at`: the last submission whose effects it has, or brings.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Begin,
    Put { item: u64, version: u64, at: u64, message: Option<u64> },
    Delete { item: u64, version: u64, at: u64 },
    Complete,
    Drop,
}

type Items = BTreeMap<u64, u64>;

#[derive(Debug, Default)]
struct Copy {
    items: Items,
    complete: bool,
    /// The last submission of which it was told.
    at: u64,
}

#[derive(Default)]
struct HeirNode {
    queue: VecDeque<Frame<(OwnerId, Entry)>>,
    /// The last message that it takes for seen by all sessions.
    seen: u64,
    copies: BTreeMap<OwnerId, Copy>,
    stale: bool,
}

impl HeirNode {
    fn take_frame(&mut self, frame: Frame<(OwnerId, Entry)>) {
        for (owner, entry) in frame.entries {
            if let Entry::Put { message: Some(message), .. } = entry
                && !frame.ahead.contains(&BodyId(message.into()))
            {
                self.seen = self.seen.max(message);
            }
            self.take(owner, entry);
        }
    }

    fn take(&mut self, owner: OwnerId, entry: Entry) {
        let copy = self.copies.entry(owner).or_default();
        match entry {
            Entry::Begin => (copy.items, copy.complete) = (Items::new(), false),
            Entry::Put { item, version, at, .. } => {
                copy.items.insert(item, version);
                copy.at = copy.at.max(at);
            }
            Entry::Delete { item, at, .. } => {
                copy.items.remove(&item);
                copy.at = copy.at.max(at);
            }
            Entry::Complete => copy.complete = true,
            Entry::Drop => drop(self.copies.remove(&owner)),
        }
    }
}

struct Told {
    at: u64,
    owner: OwnerId,
    item: u64,
    version: u64,
    is_put: bool,
}

struct Session {
    client: Arc<str>,
    /// Those that are messages, of one stream, are numbered in its order.
    items: Items,
}

/// One home, and the nodes that may be its heirs.
struct World {
    sending: Sending<(OwnerId, Entry)>,
    sessions: BTreeMap<OwnerId, Session>,
    turn: Vec<Copied<(OwnerId, Entry)>>,
    /// What was submitted while another node was live: which version of which item, and whether it was put.
    log: Vec<Told>,
    submission: u64,
    stable: u64,
    messages: BTreeSet<u64>,
    live: BTreeMap<NodeId, HeirNode>,
    base: BTreeSet<NodeId>,
    next: Option<(u64, BTreeSet<NodeId>)>,
    /// What is being made, and the items that are left of what was begun.
    asked: VecDeque<Work>,
    left: BTreeMap<(Slot, OwnerId), Vec<u64>>,
    number: u64,
}

const NODES: [NodeId; 4] = [NodeId(2), NodeId(3), NodeId(4), NodeId(5)];
const ENTRY_BYTES: usize = 40_000;

#[derive(Debug, Clone)]
enum Op {
    Begin,
    Inherit(u8),
    Change(usize, u64),
    /// A message comes; for each session, whether it is for that, and passes.
    Message(u16),
    End(usize),
    Submit,
    Keep(u64),
    Release,
    Accept(usize, usize),
    Destroy(usize),
    Return(usize),
    Fill,
    Ask,
    Work(bool),
    Filled,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::Begin),
        1 => (0..9_u8).prop_map(Op::Inherit),
        9 => (any::<usize>(), 0..6_u64).prop_map(|(session, item)| Op::Change(session, item)),
        4 => any::<u16>().prop_map(Op::Message),
        1 => any::<usize>().prop_map(Op::End),
        6 => Just(Op::Submit),
        3 => (0..3_u64).prop_map(Op::Keep),
        3 => Just(Op::Release),
        6 => (0..4_usize, 1..4_usize).prop_map(|(node, frames)| Op::Accept(node, frames)),
        1 => (0..4_usize).prop_map(Op::Destroy),
        1 => (0..4_usize).prop_map(Op::Return),
        1 => Just(Op::Fill),
        2 => Just(Op::Ask),
        6 => any::<bool>().prop_map(Op::Work),
        2 => Just(Op::Filled),
    ]
}

/// Most of what is put is passing.
fn copied_entry(owner: OwnerId, entry: Entry) -> Copied<(OwnerId, Entry)> {
    let effect = match entry {
        Entry::Put { item, version, message, .. } => {
            Effect::Put { item, passing: version % 4 != 0, body: message.map(|message| BodyId(message.into())) }
        }
        Entry::Delete { item, .. } => Effect::Delete { item },
        Entry::Drop => Effect::End,
        Entry::Begin | Entry::Complete => Effect::Other,
    };
    Copied { owner, entry: (owner, entry), bytes: ENTRY_BYTES, effect }
}

impl World {
    fn new() -> World {
        let mut world = World {
            sending: Sending::default(),
            sessions: BTreeMap::new(),
            turn: Vec::new(),
            log: Vec::new(),
            submission: 0,
            stable: 0,
            messages: BTreeSet::new(),
            live: NODES[..2].iter().map(|node| (*node, HeirNode::default())).collect(),
            base: BTreeSet::new(),
            next: None,
            asked: VecDeque::new(),
            left: BTreeMap::new(),
            // Greater than the items of what is inherited.
            number: 1_000,
        };
        world.tell();
        world
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Begin => {
                let owner = self.session();
                self.sending.begin(owner, self.sessions[&owner].client.clone());
                self.write(owner, Entry::Begin);
                self.write(owner, Entry::Complete);
            }
            Op::Inherit(items) => {
                let owner = self.session();
                let items = (100..100 + u64::from(items)).map(|item| (item, 0)).collect();
                self.sessions.get_mut(&owner).expect("it is new").items = items;
                self.sending.add(owner, self.sessions[&owner].client.clone());
            }
            Op::Change(session, item) => self.on_session(session, |world, owner| world.change(owner, item)),
            Op::Message(of_sessions) => self.message(of_sessions),
            Op::End(session) => self.on_session(session, |world, owner| {
                world.sessions.remove(&owner);
                world.write(owner, Entry::Drop);
            }),
            Op::Submit => self.submit(),
            Op::Keep(behind) => self.sending.kept(self.submission.saturating_sub(behind)),
            Op::Release => {
                let frames = self.sending.released();
                self.send(frames);
            }
            Op::Accept(node, frames) => self.accept(NODES[node], frames),
            Op::Destroy(node) => self.destroy(NODES[node]),
            Op::Return(node) => {
                let stale = self.base.contains(&NODES[node]);
                self.live.entry(NODES[node]).or_insert_with(|| HeirNode { stale, ..HeirNode::default() });
                self.tell();
            }
            Op::Fill => {
                self.number += 1;
                self.next = Some((self.number, self.live.keys().copied().collect()));
                self.tell();
            }
            Op::Ask => self.asked.extend(self.sending.next_work(|_, _| true)),
            Op::Work(all) => self.work(all),
            Op::Filled => self.filled(),
        }
        self.judge();
    }

    fn session(&mut self) -> OwnerId {
        self.number += 1;
        let client = format!("client-{}", self.number).into();
        self.sessions.insert(OwnerId(self.number), Session { client, items: Items::new() });
        OwnerId(self.number)
    }

    fn on_session(&mut self, session: usize, then: impl FnOnce(&mut World, OwnerId)) {
        if let Some(owner) = self.sessions.keys().nth(session % self.sessions.len().max(1)).copied() {
            then(self, owner);
        }
    }

    /// An item goes, or has another version, or a new one comes.
    fn change(&mut self, owner: OwnerId, which: u64) {
        self.number += 1;
        let (number, at) = (self.number, self.submission + 1);
        let items = &mut self.sessions.get_mut(&owner).expect("it is there").items;
        let item = items.keys().nth(which as usize / 2).copied();
        if which.is_multiple_of(2)
            && let Some(item) = item
        {
            let version = items.remove(&item).expect("it is there");
            return self.write(owner, Entry::Delete { item, version, at });
        }
        let item = item.unwrap_or(number);
        items.insert(item, number);
        self.put(owner, item, number);
    }

    fn put(&mut self, owner: OwnerId, item: u64, version: u64) {
        let (at, message) = (self.submission + 1, self.messages.contains(&item).then_some(item));
        self.write(owner, Entry::Put { item, version, at, message });
    }

    fn message(&mut self, of_sessions: u16) {
        // Passing is what is not a multiple of four.
        self.number = (self.number / 4 + 1) * 4;
        let message = self.number;
        self.messages.insert(message);
        for (at, owner) in self.sessions.keys().copied().enumerate().take(8).collect::<Vec<_>>() {
            let version = match of_sessions >> (2 * at) & 3 {
                0 => continue,
                1 => message,
                _ => message + 1,
            };
            self.sessions.get_mut(&owner).expect("it is there").items.insert(message, version);
            self.put(owner, message, version);
        }
        self.number += 1;
    }

    fn write(&mut self, owner: OwnerId, entry: Entry) {
        self.turn.push(copied_entry(owner, entry));
    }

    fn submit(&mut self) {
        self.submission += 1;
        if !self.live.is_empty() {
            let at = self.submission;
            self.log.extend(self.turn.iter().filter_map(|Copied { owner, entry, .. }| match entry.1 {
                Entry::Put { item, version, .. } => Some(Told { at, owner: *owner, item, version, is_put: true }),
                Entry::Delete { item, version, .. } => Some(Told { at, owner: *owner, item, version, is_put: false }),
                _ => None,
            }));
        }
        let frames = self.sending.submit(self.submission, std::mem::take(&mut self.turn));
        self.send(frames);
    }

    fn send(&mut self, frames: Vec<Frame<(OwnerId, Entry)>>) {
        for frame in frames {
            let heir = self.live.get_mut(&NodeId(frame.heir.into())).expect("nothing is sent to the dead");
            assert!(heir.queue.back().is_none_or(|earlier| earlier.number < frame.number));
            heir.queue.push_back(frame);
        }
    }

    fn accept(&mut self, node: NodeId, frames: usize) {
        for _ in 0..frames {
            let Some(heir) = self.live.get_mut(&node) else { return };
            let Some(frame) = heir.queue.pop_front() else { return };
            let number = frame.number;
            heir.take_frame(frame);
            self.judge_seen(node);
            self.sending.accepted(node.0 as Slot, number);
        }
    }

    /// Who inherits next has all messages that it takes for seen, but for those that their sessions have acknowledged.
    fn judge_seen(&self, node: NodeId) {
        let heir = &self.live[&node];
        let base: Vec<NodeId> = self.base.iter().copied().collect();
        let inherits = |session: &Session| heir_of(&session.client, &base) == Some(node);
        for (id, session) in self.sessions.iter().filter(|(_, session)| !heir.stale && inherits(session)) {
            let Some(copy) = heir.copies.get(id).filter(|copy| copy.complete) else { continue };
            let seen = session.items.keys().filter(|item| self.messages.contains(item) && **item <= heir.seen);
            seen.for_each(|item| assert!(copy.items.contains_key(item), "{id:?} lacks {item} at {node:?}"));
        }
    }

    fn destroy(&mut self, node: NodeId) {
        if self.live.remove(&node).is_some() {
            self.next.take_if(|(_, next)| next.contains(&node));
            self.sending.lose(node.0 as Slot);
            self.tell();
        }
    }

    /// The state of the heirs has changed.
    fn tell(&mut self) {
        let slot = |node: &NodeId| self.live.contains_key(node).then_some(node.0 as Slot);
        let is_stale = |node: &NodeId| self.live.get(node).is_some_and(|heir| heir.stale);
        let heirs = Heirs {
            base: self.base.iter().map(|node| (*node, slot(node).filter(|_| !is_stale(node)))).collect(),
            next: self.next.iter().flat_map(|(_, next)| next).map(|node| (*node, slot(node))).collect(),
            fill: self.next.as_ref().map(|(fill, _)| *fill),
            wanted: !self.live.is_empty(),
        };
        let frames = self.sending.change(heirs);
        self.send(frames);
    }

    /// Makes the next part of what some heir lacks: one item, or `all`. It is made between turns.
    fn work(&mut self, all: bool) {
        if !self.turn.is_empty() {
            self.submit();
        }
        self.asked.extend(self.sending.next_work(|_, _| true));
        let Some(work) = self.asked.pop_front() else {
            return;
        };
        let (owner, place) = (work.owner, (work.heir, work.owner));
        let items = |world: &World| world.sessions.get(&owner).map(|session| session.items.clone()).unwrap_or_default();
        let mut left = match work.step {
            Step::Begin => items(self).into_keys().collect(),
            Step::GoOn => self.left.remove(&place).expect("it was begun"),
            Step::Drop => Vec::new(),
        };
        let rest = left.split_off(left.len().min(if all { usize::MAX } else { 1 }));
        let there = |item: u64| {
            let message = self.messages.contains(&item).then_some(item);
            Some(Entry::Put { item, version: *items(self).get(&item)?, at: 0, message })
        };
        let mut made: Vec<Entry> = left.into_iter().filter_map(there).collect();
        match work.step {
            Step::Begin => made.insert(0, Entry::Begin),
            Step::GoOn => {}
            Step::Drop => made.push(Entry::Drop),
        }
        let last = rest.is_empty();
        if last && work.step != Step::Drop {
            made.push(Entry::Complete);
        }
        let made = made.into_iter().map(|entry| copied_entry(owner, entry));
        let frames = self.sending.made(work, made, last);
        self.send(frames);
        self.left.insert(place, rest);
    }

    fn filled(&mut self) {
        let Some(fill) = self.sending.fill_complete() else {
            return;
        };
        let (began, next) = self.next.take().expect("there is a fill");
        assert_eq!(fill, began);
        for (id, session) in &self.sessions {
            let is_new = self.turn.iter().any(|copied| copied.owner == *id);
            let pick = heir_of(&session.client, &next.iter().copied().collect::<Vec<_>>());
            let Some(heir) = pick.map(|pick| &self.live[&pick]) else {
                continue;
            };
            let complete = heir.copies.get(id).is_some_and(|copy| copy.complete);
            let comes =
                heir.queue.iter().flat_map(|frame| &frame.entries).any(|entry| *entry == (*id, Entry::Complete));
            assert!(complete || comes || is_new, "{id:?} is not at its pick");
        }
        self.base = next;
        self.live.values_mut().for_each(|heir| heir.stale = false);
        self.tell();
    }

    fn judge(&mut self) {
        let stable = self.sending.stable();
        assert!(stable >= self.stable && stable <= self.submission);
        let passed = self.log.iter().filter(|told| (self.stable + 1..=stable).contains(&told.at));
        for Told { at, owner, item, version, is_put } in passed {
            let Some(session) = self.sessions.get(owner) else {
                continue;
            };
            let copies: Vec<&Copy> = self.live.values().filter_map(|heir| heir.copies.get(owner)).collect();
            let is_there = copies.iter().any(|copy| copy.at >= *at);
            // What is gone at home may never have come to the heir.
            let is_gone = match is_put {
                true => !session.items.contains_key(item),
                false => copies.is_empty() || copies.iter().any(|copy| copy.items.get(item) != Some(version)),
            };
            assert!(self.live.is_empty() || is_there || is_gone, "{at} of {owner:?} is here alone");
        }
        self.stable = stable;
    }

    /// Everything is accepted and filled.
    fn rest(&mut self) {
        self.submit();
        self.run(Op::Fill);
        loop {
            NODES.iter().for_each(|node| self.accept(*node, usize::MAX));
            self.run(Op::Keep(0));
            self.run(Op::Release);
            let before = (self.sending.number, self.next.clone());
            self.run(Op::Work(true));
            self.run(Op::Filled);
            let idle = self.live.values().all(|heir| heir.queue.is_empty());
            if idle && before == (self.sending.number, None) {
                break;
            }
        }
        self.run(Op::Keep(0));
        assert_eq!((self.stable, self.sending.unstable_bytes()), (self.submission, 0));
        let nodes: Vec<NodeId> = self.live.keys().copied().collect();
        for (node, heir) in &self.live {
            let picked = self.sessions.iter().filter(|(_, session)| heir_of(&session.client, &nodes) == Some(*node));
            let expected: BTreeMap<_, _> = picked.map(|(id, session)| (*id, &session.items)).collect();
            let copies: BTreeMap<_, _> = heir.copies.iter().map(|(id, copy)| (*id, &copy.items)).collect();
            assert_eq!(copies, expected, "of {node:?}");
            assert!(heir.copies.values().all(|copy| copy.complete));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_stable_is_on_two_nodes_and_copies_become_complete(ops in proptest::collection::vec(op(), 1..160)) {
        let mut world = World::new();
        for op in ops {
            world.run(op);
        }
        world.rest();
    }
}
