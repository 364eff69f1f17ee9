//! The two machines of a move, joined by frames that are lost, doubled and late, with a dumb control state between them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_raft::NodeId;
use proptest::prelude::*;

use super::*;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const PATIENCE: Patience = Patience { ask_every_ms: 500, give_up_ms: 5_000, settle_again_ms: 100 };

fn claim(epoch: u64, clean: bool) -> Claim {
    Claim { client: "c".into(), epoch, by: B, clean, closing: true }
}

fn ask(epoch: u64, number: u32) -> SessionFrame {
    SessionFrame::Ask { client: "c".into(), epoch, number }
}

fn yields(epoch: u64, number: u32, last: bool) -> SessionFrame {
    let bytes = Bytes::from(vec![b'y', number as u8]);
    SessionFrame::Yield { client: "c".into(), epoch, number, last, nothing: false, bytes }
}

fn state(epoch: u64, number: u32, last: bool) -> SessionFrame {
    SessionFrame::State { client: "c".into(), epoch, number, last, bytes: Bytes::from(vec![b's', number as u8]) }
}

fn nothing(epoch: u64, number: u32) -> SessionFrame {
    SessionFrame::Yield { client: "c".into(), epoch, number, last: true, nothing: true, bytes: Bytes::new() }
}

fn made(kind: u8, number: u8, last: bool) -> GivingEvent {
    GivingEvent::Made { last, bytes: Bytes::from(vec![kind, number]) }
}

fn quiet(giving: &mut Giving) -> GivingActions {
    let epoch = giving.claim().epoch;
    assert!(giving.handle(GivingEvent::Closed).is_empty());
    assert!(giving.handle(GivingEvent::EndKnown { epoch }).is_empty());
    assert!(giving.handle(GivingEvent::WillsDone).is_empty());
    giving.handle(GivingEvent::PublishedSettled)
}

/// The holder's machine behind its last yield.
fn yielded() -> Giving {
    let (mut giving, _) = Giving::new(claim(7, false));
    quiet(&mut giving);
    giving.handle(made(b'y', 0, true));
    giving
}

fn cut(index: u64, marked: &[(NodeId, u16, u64)]) -> GivingEvent {
    let sources = marked.iter().map(|(node, shard, index)| ((*node, *shard), *index)).collect();
    GivingEvent::CutMade { index, sources }
}

use GivingAction as Give;
use TakingAction as Take;

#[test]
fn a_move_walks_through_its_steps() {
    let (mut giving, actions) = Giving::new(claim(7, false));
    assert_eq!(&actions[..], [Give::Close]);
    let (mut taking, actions) = Taking::new("c".into(), 7, PATIENCE, 0);
    assert_eq!(&actions[..], [Take::Send(ask(7, 0))]);

    assert_eq!(&quiet(&mut giving)[..], [Give::MakeYield { first: true }]);
    assert_eq!(&giving.handle(made(b'y', 0, false))[..], [Give::Send(yields(7, 0, false))]);
    let enter = |number: u8, last| Take::Enter { bytes: Bytes::from(vec![b'y', number]), last };
    let actions = taking.handle(1, TakingEvent::Frame(yields(7, 0, false)));
    assert_eq!(&actions[..], [enter(0, false), Take::Send(ask(7, 1))]);
    assert_eq!(&giving.handle(GivingEvent::Frame(ask(7, 1)))[..], [Give::MakeYield { first: false }]);
    assert_eq!(&giving.handle(made(b'y', 1, true))[..], [Give::Send(yields(7, 1, true))]);
    let actions = taking.handle(2, TakingEvent::Frame(yields(7, 1, true)));
    assert_eq!(&actions[..], [enter(1, true), Take::ProposeCut]);

    assert!(giving.handle(cut(40, &[(A, 0, 39), (A, 1, 40), (B, 0, 0), (C, 0, 12)])).is_empty());
    assert_eq!(&taking.handle(3, TakingEvent::CutMade)[..], [Take::Send(ask(7, 2))]);
    assert!(giving.handle(GivingEvent::Frame(ask(7, 2))).is_empty(), "the marks are awaited");
    assert!(giving.handle(GivingEvent::Mark { from: (B, 0), index: 40 }).is_empty());
    assert!(giving.handle(GivingEvent::Mark { from: (A, 0), index: 38 }).is_empty(), "of an earlier state");
    assert!(giving.handle(GivingEvent::Mark { from: (A, 0), index: 45 }).is_empty());
    assert!(!giving.has_begun_state());
    assert_eq!(&giving.handle(GivingEvent::NodeGone(C))[..], [Give::MakeState { first: true }]);
    assert!(giving.has_begun_state());

    assert_eq!(&giving.handle(made(b's', 2, false))[..], [Give::Send(state(7, 2, false))]);
    let take = |number: u8| Take::Take { bytes: Bytes::from(vec![b's', number]) };
    let actions = taking.handle(4, TakingEvent::Frame(state(7, 2, false)));
    assert_eq!(&actions[..], [take(2), Take::Send(ask(7, 3))]);
    assert_eq!(&giving.handle(GivingEvent::Frame(ask(7, 3)))[..], [Give::MakeState { first: false }]);
    assert_eq!(&giving.handle(made(b's', 3, true))[..], [Give::Send(state(7, 3, true))]);
    let actions = taking.handle(5, TakingEvent::Frame(state(7, 3, true)));
    assert_eq!(&actions[..], [take(3), Take::Adopt]);
    assert_eq!(&taking.handle(6, TakingEvent::Kept)[..], [Take::ProposeSettle]);
    let actions = taking.handle(7, TakingEvent::Settled { session_present: true });
    assert_eq!(&actions[..], [Take::Connack { session_present: true }]);
    assert_eq!(&giving.handle(GivingEvent::Moved)[..], [Give::Forget]);
    assert!(taking.is_done() && giving.is_done());
    assert_eq!(taking.due(), None);
}

#[test]
fn a_clean_claim_waits_for_the_end_of_the_old_connection_alone() {
    let (mut giving, _) = Giving::new(claim(7, true));
    assert!(giving.handle(GivingEvent::Frame(ask(7, 0))).is_empty());
    assert_eq!(&quiet(&mut giving)[..], [Give::Send(nothing(7, 0))]);
    assert_eq!(&giving.handle(GivingEvent::Frame(ask(7, 0)))[..], [Give::Send(nothing(7, 0))], "it was lost");
    let (mut taking, _) = Taking::new("c".into(), 7, PATIENCE, 0);
    assert_eq!(&taking.handle(1, TakingEvent::Frame(nothing(7, 0)))[..], [Take::Drop, Take::ProposeSettle]);
    let actions = taking.handle(2, TakingEvent::Settled { session_present: true });
    assert_eq!(&actions[..], [Take::Connack { session_present: false }], "a holder without the session says so");
}

#[test]
fn nothing_is_yielded_before_it_is_known_how_the_old_connection_ended_and_its_will_is_out() {
    for clean in [false, true] {
        let yields = |actions: GivingActions| {
            let nothing = Give::Send(nothing(7, 0));
            assert_eq!(&actions[..], [if clean { nothing } else { Give::MakeYield { first: true } }]);
        };
        let (mut giving, _) = Giving::new(claim(7, clean));
        let too_early = [GivingEvent::Closed, GivingEvent::PublishedSettled, GivingEvent::WillsDone];
        for event in too_early.into_iter().chain([GivingEvent::EndKnown { epoch: 6 }, GivingEvent::WillsDone]) {
            assert!(giving.handle(event.clone()).is_empty(), "{event:?}");
        }
        assert!(giving.handle(GivingEvent::EndKnown { epoch: 7 }).is_empty(), "its Will may be due");
        yields(giving.handle(GivingEvent::WillsDone));

        let (mut giving, _) = Giving::new(Claim { closing: false, ..claim(7, clean) });
        giving.handle(GivingEvent::Closed);
        giving.handle(GivingEvent::PublishedSettled);
        yields(giving.handle(GivingEvent::WillsDone));
    }
}

#[test]
fn a_newer_claim_waits_for_the_end_of_the_old_connection_too() {
    let (mut giving, _) = Giving::new(claim(7, false));
    giving.handle(GivingEvent::Closed);
    giving.handle(GivingEvent::PublishedSettled);
    assert!(giving.handle(GivingEvent::Claimed(claim(9, false))).is_empty());
    assert!(giving.handle(GivingEvent::WillsDone).is_empty());
    assert!(giving.handle(GivingEvent::EndKnown { epoch: 9 }).is_empty());
    assert_eq!(&giving.handle(GivingEvent::WillsDone)[..], [Give::MakeYield { first: true }]);
}

#[test]
fn a_holder_without_the_session_yields_nothing() {
    let (mut giving, _) = Giving::new(claim(7, false));
    assert_eq!(&quiet(&mut giving)[..], [Give::MakeYield { first: true }]);
    assert_eq!(&giving.handle(GivingEvent::Absent)[..], [Give::Send(nothing(7, 0))]);
    assert!(giving.handle(GivingEvent::Absent).is_empty());
}

#[test]
fn a_newer_claim_begins_anew_and_frames_of_the_older_one_count_no_more() {
    let mut giving = yielded();
    assert!(giving.handle(GivingEvent::Claimed(claim(6, false))).is_empty(), "older ones are late");
    let newer = Claim { by: C, closing: false, ..claim(9, false) };
    assert!(giving.handle(GivingEvent::Claimed(newer)).is_empty(), "a Will may be due for it");
    assert_eq!(&giving.handle(GivingEvent::WillsDone)[..], [Give::MakeYield { first: true }]);
    assert!(giving.handle(GivingEvent::Frame(ask(7, 1))).is_empty());
    assert!(giving.handle(cut(40, &[])).is_empty(), "a cut before the yield is another claim's");
    assert_eq!(&giving.handle(made(b'y', 0, true))[..], [Give::Send(yields(9, 0, true))]);
    assert_eq!(&giving.handle(cut(50, &[(A, 0, 50)]))[..], [Give::MakeState { first: true }]);
    assert_eq!(&giving.handle(GivingEvent::Withdrawn)[..], [Give::Keep]);
    assert!(giving.handle(GivingEvent::Moved).is_empty());
}

#[test]
fn what_is_asked_again_is_sent_again_and_made_once() {
    let mut giving = yielded();
    for _ in 0..3 {
        assert_eq!(&giving.handle(GivingEvent::Frame(ask(7, 0)))[..], [Give::Send(yields(7, 0, true))]);
    }
    giving.handle(cut(40, &[]));
    assert!(giving.handle(GivingEvent::Frame(ask(7, 1))).is_empty(), "it is being made");
    assert_eq!(&giving.handle(made(b's', 1, false))[..], [Give::Send(state(7, 1, false))]);
    assert!(giving.handle(made(b's', 1, false)).is_empty(), "nobody asked for it");
    assert_eq!(&giving.handle(GivingEvent::Frame(ask(7, 1)))[..], [Give::Send(state(7, 1, false))]);
    assert_eq!(&giving.handle(GivingEvent::Frame(ask(7, 2)))[..], [Give::MakeState { first: false }]);
    for number in [0, 2, 3, u32::MAX] {
        assert!(giving.handle(GivingEvent::Frame(ask(7, number))).is_empty(), "{number}");
    }
    assert!(giving.handle(GivingEvent::Frame(state(7, 2, false))).is_empty(), "a frame of the holder");
}

/// The claimant's machine in each of its phases.
fn taking_in(phase: usize) -> Taking {
    let (mut taking, _) = Taking::new("c".into(), 7, PATIENCE, 0);
    let steps = [
        TakingEvent::Frame(yields(7, 0, true)),
        TakingEvent::CutMade,
        TakingEvent::Frame(state(7, 1, true)),
        TakingEvent::Kept,
        TakingEvent::SettleRefused { again: true },
    ];
    for event in steps.into_iter().take(phase) {
        taking.handle(0, event);
    }
    taking
}

const SETTLING: usize = 4;
const PHASES: usize = 6;

#[test]
fn a_claimant_that_gives_up_withdraws_unless_it_may_have_the_session_already() {
    let ends = [TakingEvent::Failed, TakingEvent::HolderGone, TakingEvent::Time];
    for (phase, event) in (0..PHASES).flat_map(|phase| ends.iter().map(move |event| (phase, event.clone()))) {
        let mut taking = taking_in(phase);
        let now = if event == TakingEvent::Time { 5_000 } else { 0 };
        let actions = taking.handle(now, event.clone());
        let refused = actions.contains(&Take::Refuse(Refusal::Unavailable));
        if phase != SETTLING {
            assert!(actions.ends_with(&[Take::ProposeWithdraw, Take::Drop]), "{phase} {event:?}: {actions:?}");
            assert!(refused);
            assert!(taking.is_done());
            continue;
        }
        assert!(!taking.is_done(), "{event:?}");
        if event == TakingEvent::HolderGone {
            assert!(actions.is_empty());
            let settled = taking.handle(now, TakingEvent::Settled { session_present: true });
            assert_eq!(&settled[..], [Take::Connack { session_present: true }], "it was before");
            continue;
        }
        assert!(refused);
        assert_eq!(taking.due(), None);
        assert!(taking.handle(now, TakingEvent::Failed).is_empty());
        assert_eq!(&taking.handle(now, TakingEvent::Settled { session_present: true })[..], [Take::Leave]);
    }
}

#[test]
fn a_settling_that_is_refused_ends_the_claim_unless_it_is_worth_another_try() {
    for (gone, again) in [(false, false), (true, true), (true, false)] {
        let mut taking = taking_in(SETTLING);
        if gone {
            taking.handle(0, TakingEvent::HolderGone);
        }
        let actions = taking.handle(1, TakingEvent::SettleRefused { again });
        assert_eq!(&actions[..], [Take::Refuse(Refusal::Unavailable), Take::ProposeWithdraw, Take::Drop]);
    }
    let mut taking = taking_in(SETTLING);
    assert!(taking.handle(10, TakingEvent::SettleRefused { again: true }).is_empty());
    assert_eq!(taking.due(), Some(110));
    assert!(taking.handle(109, TakingEvent::Time).is_empty());
    assert_eq!(&taking.handle(110, TakingEvent::Time)[..], [Take::ProposeSettle]);
    taking.handle(110, TakingEvent::Failed);
    let actions = taking.handle(111, TakingEvent::SettleRefused { again: true });
    assert_eq!(&actions[..], [Take::ProposeWithdraw, Take::Drop], "nobody waits for it");
}

#[test]
fn a_lost_claim_is_not_withdrawn() {
    for phase in 0..PHASES {
        let mut taking = taking_in(phase);
        let actions = taking.handle(1, TakingEvent::ClaimLost);
        assert_eq!(&actions[..], [Take::Refuse(Refusal::ClaimLost), Take::Drop], "{phase}");
        assert!(taking.is_done() && taking.handle(2, TakingEvent::Kept).is_empty());
    }
}

#[test]
fn a_claimant_that_is_given_up_while_it_settles_may_be_the_only_one_with_the_session() {
    for phase in 0..PHASES {
        let mut taking = taking_in(phase);
        let actions = taking.handle(1, TakingEvent::Expelled);
        let rest = if phase == SETTLING { Take::Keep } else { Take::Drop };
        assert_eq!(&actions[..], [Take::Refuse(Refusal::Unavailable), rest], "{phase}");
        assert!(taking.is_done() && taking.handle(2, TakingEvent::Settled { session_present: true }).is_empty());
    }
}

#[test]
fn a_holder_that_is_none_is_told_by_every_claimant_that_waits_for_it() {
    let frame = SessionFrame::NotHolder { client: "c".into(), epoch: 7 };
    for phase in 0..PHASES {
        let actions = taking_in(phase).handle(1, TakingEvent::Frame(frame.clone()));
        assert_eq!(actions.contains(&Take::ProposeWithdraw), phase == 0 || phase == 2, "{phase}");
    }
}

#[test]
fn progress_gives_the_holder_its_time_again_and_silence_does_not() {
    let (mut taking, _) = Taking::new("c".into(), 7, PATIENCE, 0);
    let mut now = 0;
    for number in 0..10 {
        now += 4_900;
        assert_eq!(&taking.handle(now, TakingEvent::Time)[..], [Take::Send(ask(7, number))]);
        assert_eq!(taking.handle(now, TakingEvent::Frame(yields(7, number, false))).len(), 2);
        assert!(taking.handle(now, TakingEvent::Frame(yields(7, number, false))).is_empty(), "twice");
    }
    let begun = now;
    while !taking.is_done() {
        now = taking.due().unwrap();
        assert!(taking.handle(now - 1, TakingEvent::Time).is_empty());
        taking.handle(now, TakingEvent::Time);
    }
    assert_eq!(now, begun + PATIENCE.give_up_ms);
}

#[test]
fn frames_of_the_wrong_claim_kind_or_number_change_nothing() {
    for phase in 0..PHASES {
        let mut taking = taking_in(phase);
        let other = SessionFrame::Yield {
            client: "d".into(),
            epoch: 7,
            number: 0,
            last: true,
            nothing: true,
            bytes: Bytes::new(),
        };
        for frame in [yields(6, 0, true), yields(7, 5, true), state(7, 0, true), state(7, 2, true), ask(7, 0), other] {
            assert!(taking.handle(1, TakingEvent::Frame(frame.clone())).is_empty(), "{phase} {frame:?}");
        }
    }
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(
        client in ".{0,20}", epoch: u64, number: u32, last: bool, nothing: bool, bytes in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let (client, bytes): (Arc<str>, _) = (client.into(), Bytes::from(bytes));
        for frame in [
            SessionFrame::Ask { client: client.clone(), epoch, number },
            SessionFrame::Yield { client: client.clone(), epoch, number, last, nothing, bytes: bytes.clone() },
            SessionFrame::State { client: client.clone(), epoch, number, last, bytes },
            SessionFrame::NotHolder { client, epoch },
        ] {
            prop_assert_eq!(SessionFrame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error(bytes in proptest::collection::vec(0u8..8, 0..40)) {
        if let Ok(frame) = SessionFrame::decode(&Bytes::from(bytes.clone())) {
            prop_assert_eq!(frame.encode(), bytes);
        }
    }
}

#[test]
fn a_part_that_is_too_large_is_no_frame() {
    let with = |size: usize| SessionFrame::State {
        client: "c".into(),
        epoch: 1,
        number: 0,
        last: false,
        bytes: vec![0; size].into(),
    };
    assert!(SessionFrame::decode(&with(PART_BYTES_MAX).encode()).is_ok());
    assert_eq!(SessionFrame::decode(&with(PART_BYTES_MAX + 1).encode()), Err(MalformedFrame));
}

mod world;
