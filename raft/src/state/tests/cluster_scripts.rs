//! The rules of many nodes, one script each. Most of them are executions that once broke something.
//!
//! `c2 asks a` is connection 2 of the client, which has a claim and asks node a; `b claims 2 of a` is what everybody hears of it.

use super::cluster::*;
use super::*;
use WillFate::{Drop, Keep};

#[test]
fn a_session_moves_when_the_claim_is_settled_and_not_before() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, routes(&["f"], &[]), "index 5; a wants f"),
            (1, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (2, B, cut("x", 2, &["f"]), "cut 7; b wants f; a gives 2 to b at 7"),
        ],
    );
    let session = state.session("x").expect("it is still there");
    let claim = Claim { by: B, epoch: 2, clean: false, cut: Some(7) };
    let expected = Session { began: 1, epoch: 1, connected: false, holder: A, claim: Some(claim), missing: false };
    assert_eq!(session, expected);
    play(
        &mut state,
        [
            (3, B, settle("x", 2), "Closing"),
            (3, A, detach("x", 1, Keep, 100), "done; a has closed for 2"),
            (3, B, settle("x", 2), "settled resumed; moved 2 from a to b"),
        ],
    );
    let session = state.session("x").expect("it is still there");
    assert_eq!(session, Session { began: 1, epoch: 2, connected: true, holder: B, claim: None, missing: false });
    assert_eq!(state.sessions_of(A).count(), 0);
    assert_eq!(state.sessions_of(B).count(), 1);
}

#[test]
fn a_later_claimant_asks_the_holder_and_not_the_one_before_it() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, C, acquire("x", false, 100, None), "c3 asks a; b lost 2; c claims 3 of a"),
            (0, B, settle("x", 2), "NotClaimed"),
            (0, B, withdraw("x", 2), "NotClaimed"),
            (0, A, detach("x", 1, Keep, 100), "done; a has closed for 3"),
            (0, C, settle("x", 3), "settled resumed; moved 3 from a to c"),
        ],
    );
}

#[test]
fn who_comes_back_to_the_holder_has_the_lease_at_once_and_the_claim_is_lost() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, A, acquire("x", false, 100, None), "c3 resumed closes 1; b lost 2"),
            (0, B, settle("x", 2), "NotClaimed"),
        ],
    );
}

#[test]
fn a_silent_holder_keeps_the_session_until_it_is_expired_and_then_it_is_missing() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, B, withdraw("x", 2), "done; b gave up 2 of a"),
            (0, C, acquire("x", false, 100, None), "c3 asks a; c claims 3 of a"),
            (3_000, LEADER, expire(A, 1), "done; a1 down"),
            (3_000, C, withdraw("x", 3), "done; c gave up 3 of a"),
            (3_000, B, acquire("x", false, 100, None), "missing"),
            (3_000, C, acquire("x", false, 100, None), "missing"),
        ],
    );
    assert!(state.session("x").is_some_and(|session| session.missing && session.holder == A));
    play(
        &mut state,
        [
            (4_000, LEADER, restart(A, 1, true), "incarnation 2; a2 up"),
            (4_000, B, acquire("x", false, 100, None), "c4 asks a; b claims 4 of a"),
            (4_000, B, settle("x", 4), "settled resumed; moved 4 from a to b"),
        ],
    );
}

#[test]
fn who_has_all_of_the_session_may_settle_though_the_holder_has_died() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, Some(50)), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, B, settle("x", 2), "settled resumed; moved 2 from a to b"),
            (60_000, LEADER, Command::Tick, "done"),
        ],
    );
}

#[test]
fn a_missing_session_expires_and_then_its_client_begins_anew() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 10, None), "c1 new"),
            (1_000, LEADER, expire(A, 1), "done; a1 down"),
            (10_999, B, acquire("x", false, 10, None), "missing"),
            (11_000, B, acquire("x", false, 10, None), "c2 new; ended 1 at a"),
        ],
    );
}

#[test]
fn clean_start_takes_the_id_of_a_missing_session_at_once_when_no_will_waits() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, NEVER_EXPIRES, None), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, B, acquire("x", true, 10, None), "c2 new; ended 1 at a"),
        ],
    );
}

#[test]
fn clean_start_waits_for_the_will_of_a_missing_session_that_somebody_else_publishes() {
    let mut state = three_nodes();
    play(
        &mut state,
        [(0, A, acquire("x", false, NEVER_EXPIRES, Some(60)), "c1 new"), (0, LEADER, expire(A, 1), "done; a1 down")],
    );
    let publisher = state.will_publisher("x").expect("two nodes live");
    let other = if publisher == B { C } else { B };
    let applied = apply(&mut state, 1, other, acquire("x", true, 10, None));
    assert_eq!(applied.outcome, Outcome::Claimed { epoch: 2, holder: publisher, clean: true });
    assert!(matches!(applied.effects[..], [
        Effect::Claimed { holder, .. }, Effect::WillDue { publisher: by, .. }
    ] if holder == publisher && by == publisher));
    assert_eq!(apply(&mut state, 2, other, settle("x", 2)).outcome, Outcome::Refused(Refusal::WillDue));
    assert_eq!(apply(&mut state, 3, publisher, will_done("x", 1)).outcome, Outcome::Done);
    assert_eq!(apply(&mut state, 4, other, settle("x", 2)).outcome, Outcome::Settled { session_present: false });
}

#[test]
fn clean_start_waits_for_nothing_but_its_own_will() {
    let mut state = three_nodes();
    play(
        &mut state,
        [(0, A, acquire("x", false, NEVER_EXPIRES, Some(60)), "c1 new"), (0, LEADER, expire(A, 1), "done; a1 down")],
    );
    let publisher = state.will_publisher("x").expect("two nodes live");
    let applied = apply(&mut state, 1, publisher, acquire("x", true, 10, None));
    assert_eq!(applied.outcome, Outcome::Acquired { epoch: 2, session_present: false, displaced: None });
    assert!(matches!(applied.effects[..], [Effect::WillDue { .. }, Effect::SessionEnded { holder: A, .. }]));
}

#[test]
fn clean_start_over_a_live_connection_waits_until_that_is_closed() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, B, acquire("x", true, 0, None), "c2 asks a to close; b claims 2 of a, clean"),
            (0, B, settle("x", 2), "Closing"),
            (0, A, detach("x", 1, Keep, 100), "done; a has closed for 2"),
            (0, B, settle("x", 2), "settled new; ended 1 at a; moved 2 from a to b"),
        ],
    );
}

#[test]
fn clean_start_over_a_detached_session_waits_for_nothing() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, detach("x", 1, Keep, 100), "done"),
            (0, B, acquire("x", true, 0, None), "c2 new; ended 1 at a"),
        ],
    );
}

#[test]
fn a_connection_that_a_claim_has_ended_counts_as_open_until_its_node_says_otherwise() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, B, withdraw("x", 2), "done; b gave up 2 of a"),
            // Node a may be cut off and still serve it.
            (0, B, acquire("x", true, 0, None), "c3 asks a to close; b claims 3 of a, clean"),
            (0, A, detach("x", 1, Keep, 100), "done; a has closed for 3"),
            (0, A, detach("x", 1, Keep, 100), "NotConnected"),
            (0, C, acquire("x", true, 0, None), "c4 new; b lost 3; ended 1 at a"),
        ],
    );
}

#[test]
fn the_end_of_the_node_closes_all_of_its_connections() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 0, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a to close; b claims 2 of a, clean"),
            (0, B, withdraw("x", 2), "done; b gave up 2 of a"),
            (0, C, acquire("x", true, 0, None), "c3 asks a to close; c claims 3 of a, clean"),
            (0, C, withdraw("x", 3), "done; c gave up 3 of a"),
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, C, acquire("x", true, 0, None), "c4 new; ended 1 at a"),
        ],
    );
}

#[test]
fn a_session_without_expiry_is_claimed_as_clean() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", true, 0, Some(30)), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a to close; b claims 2 of a, clean"),
            (0, B, settle("x", 2), "Closing"),
            (0, A, detach("x", 1, Keep, 0), "done; will 1 by a; ended 1 at a; a has closed for 2"),
            (0, B, settle("x", 2), "WillDue"),
            (0, A, will_done("x", 1), "done; will 1 forgotten"),
            (0, B, settle("x", 2), "settled new; moved 2 from a to b"),
        ],
    );
}

#[test]
fn a_will_without_delay_belongs_to_the_holder_and_finds_another_publisher_when_that_dies() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("d", false, 100, Some(0)), "c1 new"),
            // Node a has been killed a moment ago; nobody knows yet.
            (1_000, B, acquire("d", false, 100, Some(7)), "c2 asks a; b claims 2 of a"),
            (1_000, B, settle("d", 2), "Closing"),
            (3_000, LEADER, expire(A, 1), "done; a1 down"),
        ],
    );
    let publisher = state.will_publisher("d").expect("two nodes live");
    let refused = apply(&mut state, 3_000, B, settle("d", 2));
    assert_eq!(refused.outcome, Outcome::Refused(Refusal::WillDue));
    assert!(matches!(refused.effects[..], [Effect::WillDue { epoch: 1, publisher: by, .. }] if by == publisher));
    assert_eq!(apply(&mut state, 3_001, publisher, will_done("d", 1)).outcome, Outcome::Done);
    play(&mut state, [(3_002, B, settle("d", 2), "settled resumed; moved 2 from a to b")]);
}

#[test]
fn a_will_is_not_cancelled_by_a_connection_that_is_never_accepted() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("d", false, 100, Some(5)), "c1 new"),
            (1_000, B, acquire("d", false, 100, None), "c2 asks a; b claims 2 of a"),
            (2_000, B, withdraw("d", 2), "done; b gave up 2 of a"),
            (2_000, A, detach("d", 1, Keep, 100), "done"),
            (5_999, LEADER, Command::Tick, "done"),
            (6_000, LEADER, Command::Tick, "done; will 1 by a"),
        ],
    );
}

#[test]
fn a_will_that_waits_is_cancelled_when_the_claim_is_settled() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("d", false, 100, Some(5)), "c1 new"),
            (1_000, B, acquire("d", false, 100, None), "c2 asks a; b claims 2 of a"),
            (2_000, A, detach("d", 1, Keep, 100), "done; a has closed for 2"),
            (2_000, B, settle("d", 2), "settled resumed; moved 2 from a to b"),
            (60_000, LEADER, Command::Tick, "done"),
        ],
    );
}

#[test]
fn a_will_whose_delay_ends_during_the_move_holds_the_move_up() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("d", false, 100, Some(5)), "c1 new"),
            (1_000, B, acquire("d", false, 100, None), "c2 asks a; b claims 2 of a"),
            (1_000, A, detach("d", 1, Keep, 100), "done; a has closed for 2"),
            (6_000, B, settle("d", 2), "WillDue; will 1 by a"),
            (6_000, A, will_done("d", 1), "done; will 1 forgotten"),
            (6_000, B, settle("d", 2), "settled resumed; moved 2 from a to b"),
        ],
    );
}

#[test]
fn what_a_claimant_brings_dies_with_it() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, detach("x", 1, Keep, 100), "done"),
            (0, B, acquire("x", false, 1, Some(0)), "c2 asks a; b claims 2 of a"),
            (0, LEADER, expire(B, 1), "done; b1 down; b gave up 2 of a"),
            // Neither its Will nor its expiry ever counted.
            (99_999, LEADER, Command::Tick, "done"),
            (100_000, LEADER, Command::Tick, "done; ended 1 at a"),
        ],
    );
    assert_eq!(state.counts().will_bytes, 0);
}

#[test]
fn a_session_does_not_expire_while_it_is_claimed() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 10, None), "c1 new"),
            (0, A, detach("x", 1, Keep, 10), "done"),
            (9_000, B, acquire("x", false, 10, None), "c2 asks a; b claims 2 of a"),
            (20_000, LEADER, Command::Tick, "done"),
            (20_000, B, withdraw("x", 2), "done; b gave up 2 of a; ended 1 at a"),
        ],
    );
}

#[test]
fn the_goodbye_of_a_connection_that_was_claimed_meanwhile_still_drops_its_will() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("d", false, 100, Some(5)), "c1 new"),
            (0, B, acquire("d", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, A, detach("d", 1, Drop, 100), "done; a has closed for 2"),
            (0, B, withdraw("d", 2), "done; b gave up 2 of a"),
            (5_000, LEADER, Command::Tick, "done"),
        ],
    );
}

#[test]
fn a_goodbye_that_the_holder_hears_behind_the_claim_leaves_no_will_however_the_claim_is_made() {
    for (clean, expiry_secs) in [(false, 100), (true, 100), (false, 0), (true, 0)] {
        let mut state = three_nodes();
        apply(&mut state, 0, A, acquire("d", false, expiry_secs, Some(0)));
        let claimed = apply(&mut state, 0, B, acquire("d", clean, 100, None));
        assert_eq!(claimed.outcome, Outcome::Claimed { epoch: 2, holder: A, clean: clean || expiry_secs == 0 });
        assert!(matches!(claimed.effects[..], [Effect::Claimed { closing: true, .. }]));
        let (closed, settled) = match (clean, expiry_secs) {
            (_, 0) => ("done; ended 1 at a; a has closed for 2", "settled new; moved 2 from a to b"),
            (true, _) => ("done; a has closed for 2", "settled new; ended 1 at a; moved 2 from a to b"),
            (false, _) => ("done; a has closed for 2", "settled resumed; moved 2 from a to b"),
        };
        play(
            &mut state,
            [
                (0, B, settle("d", 2), "Closing"),
                (5_000, LEADER, Command::Tick, "done"),
                (5_000, A, detach("d", 1, Drop, expiry_secs), closed),
                (5_000, B, settle("d", 2), settled),
            ],
        );
    }
}

#[test]
fn a_will_of_a_connection_that_a_claim_closes_is_out_before_the_claim_is_settled() {
    for (clean, delay, published) in [(false, 0, true), (false, 3, false), (true, 3, true), (true, 0, true)] {
        let mut state = three_nodes();
        apply(&mut state, 0, A, acquire("d", false, 100, Some(delay)));
        apply(&mut state, 0, B, acquire("d", clean, 100, None));
        let closed = if published { "done; will 1 by a; a has closed for 2" } else { "done; a has closed for 2" };
        play(&mut state, [(0, A, detach("d", 1, Keep, 100), closed)]);
        if published {
            play(&mut state, [(0, B, settle("d", 2), "WillDue"), (0, A, will_done("d", 1), "done; will 1 forgotten")]);
        }
        let settled = apply(&mut state, 0, B, settle("d", 2)).outcome;
        assert_eq!(settled, Outcome::Settled { session_present: !clean });
    }
}

#[test]
fn what_a_goodbye_says_of_the_expiry_counts_for_the_claim_that_waits_for_it() {
    let claimed = |state: &mut ControlState| {
        play(
            state,
            [
                (0, A, acquire("d", false, 100, Some(9)), "c1 new"),
                (0, B, acquire("d", false, 100, None), "c2 asks a; b claims 2 of a"),
            ],
        );
    };
    let mut state = three_nodes();
    claimed(&mut state);
    play(
        &mut state,
        [
            (0, A, detach("d", 1, Drop, 0), "done; ended 1 at a; a has closed for 2"),
            (0, B, settle("d", 2), "settled new; moved 2 from a to b"),
        ],
    );
    let mut state = three_nodes();
    claimed(&mut state);
    play(
        &mut state,
        [
            (0, B, withdraw("d", 2), "done; b gave up 2 of a"),
            (3_000, LEADER, Command::Tick, "done"),
            // With reason code 0x04: the Will stays, and is due with the end of the session.
            (3_000, A, detach("d", 1, Keep, 2), "done; will 1 by a; ended 1 at a"),
        ],
    );
}

#[test]
fn a_later_claim_waits_for_the_end_of_the_same_connection() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("d", true, 0, Some(5)), "c1 new"),
            (0, B, acquire("d", false, 100, None), "c2 asks a to close; b claims 2 of a, clean"),
            (0, C, acquire("d", false, 100, None), "c3 asks a to close; b lost 2; c claims 3 of a, clean"),
            (0, C, settle("d", 3), "Closing"),
            (0, A, detach("d", 1, Keep, 0), "done; will 1 by a; ended 1 at a; a has closed for 3"),
            (0, C, settle("d", 3), "WillDue"),
            (0, A, will_done("d", 1), "done; will 1 forgotten"),
            (0, C, settle("d", 3), "settled new; moved 3 from a to c"),
        ],
    );
}

#[test]
fn who_comes_back_to_the_holder_while_the_old_connection_counts_as_open_takes_it_over() {
    for (expiry_secs, delay, words) in [
        (100, 0, "c3 resumed closes 1; b lost 2; will 1 by a"),
        (100, 5, "c3 resumed closes 1; b lost 2"),
        (0, 5, "c3 new closes 1; b lost 2; will 1 by a; ended 1 at a"),
    ] {
        let mut state = three_nodes();
        apply(&mut state, 0, A, acquire("d", false, expiry_secs, Some(delay)));
        apply(&mut state, 0, B, acquire("d", false, 100, None));
        play(
            &mut state,
            [
                (0, A, acquire("d", false, 100, None), words),
                (0, A, detach("d", 1, Drop, expiry_secs), "NotConnected"),
                (0, B, settle("d", 2), "NotClaimed"),
            ],
        );
    }
}

#[test]
fn the_will_of_a_holder_that_dies_before_it_has_said_how_the_connection_ended_is_published_for_a_clean_claim_too() {
    for clean in [false, true] {
        let mut state = three_nodes();
        apply(&mut state, 0, A, acquire("d", false, 100, Some(if clean { 50 } else { 0 })));
        apply(&mut state, 0, B, acquire("d", clean, 100, None));
        play(&mut state, [(3_000, LEADER, expire(A, 1), "done; a1 down")]);
        let publisher = state.will_publisher("d").expect("two nodes live");
        let passed = apply(&mut state, 3_000, LEADER, pass_on(A, 1));
        assert!(matches!(passed.effects[..], [Effect::WillDue { epoch: 1, publisher: by, .. }] if by == publisher));
        assert_eq!(apply(&mut state, 3_000, B, settle("d", 2)).outcome, Outcome::Refused(Refusal::WillDue));
        assert_eq!(apply(&mut state, 3_001, publisher, will_done("d", 1)).outcome, Outcome::Done);
        let settled = apply(&mut state, 3_002, B, settle("d", 2)).outcome;
        assert_eq!(settled, Outcome::Settled { session_present: !clean });
    }
}

#[test]
fn an_expiry_that_an_earlier_leader_left_in_the_log_ends_all_that_the_node_says() {
    let mut state = three_nodes();
    let acquired = batch(0, A, 1, 1, vec![acquire("x", false, 100, None)]);
    assert!(!state.apply_proposal(4, acquired).ignored);
    assert_eq!(state.apply_proposal(5, leader(0, expire(A, 1))).outcomes, [Outcome::Done]);
    // Node a has been renewed by the new leader meanwhile, and is slow to learn it.
    let late = state.apply_proposal(6, batch(0, A, 1, 2, vec![detach("x", 1, Keep, 0), routes(&["f"], &[])]));
    assert!(late.ignored && late.outcomes.is_empty() && late.effects.is_empty());
    assert_eq!(state.apply_proposal(7, leader(0, expire(A, 1))).outcomes, [Outcome::Refused(Refusal::NotLive)]);
    assert_eq!(state.batch_number(A), Some(1));
}

#[test]
fn only_the_next_batch_of_an_incarnation_is_applied() {
    let mut state = three_nodes();
    let numbers = |state: &mut ControlState, number, filter: &str, add: bool| {
        let command = if add { routes(&[filter], &[]) } else { routes(&[], &[filter]) };
        let index = state.index() + 1;
        !state.apply_proposal(index, batch(0, A, 1, number, vec![command])).ignored
    };
    assert!(numbers(&mut state, 1, "f", true));
    assert!(numbers(&mut state, 2, "f", false));
    assert!(numbers(&mut state, 3, "f", true));
    // The removal was sent to a leader that fell, and arrives once more.
    assert!(!numbers(&mut state, 2, "f", false));
    assert!(!numbers(&mut state, 5, "f", false), "one is missing before it");
    assert_eq!(state.route(&"f".into()).count(), 1);
    let restarted = state.apply_proposal(state.index() + 1, leader(0, restart(A, 1, true)));
    assert_eq!(restarted.outcomes, [Outcome::Registered { incarnation: 2 }]);
    assert!(!numbers(&mut state, 4, "f", false), "it is the earlier incarnation's");
    assert_eq!(state.batch_number(A), Some(0));
}

#[test]
fn nodes_and_the_leader_propose_their_own_commands_only() {
    let mut state = three_nodes();
    let outcomes =
        state.apply_proposal(4, batch(0, A, 1, 1, vec![Command::Tick, expire(B, 1), register(NodeId(9))])).outcomes;
    assert_eq!(outcomes, [Outcome::Refused(Refusal::NotAllowed); 3]);
    let refused = state.apply_proposal(5, leader(0, acquire("x", true, 0, None)));
    assert_eq!(refused.outcomes, [Outcome::Refused(Refusal::NotAllowed)]);
    assert_eq!((state.counts().leases, state.counts().nodes), (0, 3));
}

#[test]
fn time_is_a_counter_that_goes_on_where_the_last_leader_left_it() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (5_000, A, acquire("x", false, 10, Some(3)), "c1 new"),
            (5_000, A, detach("x", 1, Keep, 10), "done"),
            // The clock of the next leader is behind.
            (1_000, LEADER, Command::Tick, "done"),
            (7_999, LEADER, Command::Tick, "done"),
            (8_000, LEADER, Command::Tick, "done; will 1 by a"),
        ],
    );
    assert_eq!(state.now(), 8_000);
}

#[test]
fn who_jumps_over_entries_learns_what_they_caused() {
    let mut ahead = three_nodes();
    let script = [
        (0, A, acquire("x", false, 100, Some(0)), "c1 new"),
        (0, A, acquire("y", false, 100, None), "c1 new"),
        (0, A, routes(&["f", "g"], &[]), "index 6; a wants f; a wants g"),
    ];
    play(&mut ahead, script);
    let behind = ahead.clone();
    let meanwhile: [Line; 8] = [
        (1, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
        (1, A, detach("x", 1, Keep, 100), "done; will 1 by a; a has closed for 2"),
        (1, B, acquire("y", false, 100, None), "c2 asks a; b claims 2 of a"),
        (1, B, cut("y", 2, &["f"]), "cut 10; b wants f; a gives 2 to b at 10"),
        (1, A, detach("y", 1, Keep, 100), "done; a has closed for 2"),
        (2, B, settle("y", 2), "settled resumed; moved 2 from a to b"),
        (2, A, routes(&["h"], &["g"]), "index 13; a leaves g; a wants h"),
        (3, C, acquire("z", false, 100, None), "c1 new"),
    ];
    play(&mut ahead, meanwhile);
    let restored = ControlState::restore(ahead.snapshot()).expect("a snapshot can be read");
    let learned = behind.difference(&restored);
    let names = |effect: &Effect| format!("{effect:?}").split([' ', '{']).next().unwrap_or_default().to_owned();
    let mut names: Vec<_> = learned.iter().map(names).collect();
    names.sort();
    assert_eq!(names, ["Claimed", "Moved", "RouteAdded", "RouteAdded", "RouteRemoved", "WillDue"]);
    assert!(learned.contains(&Effect::Moved { client: "y".into(), epoch: 2, from: A, to: B }));
}

#[test]
fn a_connection_that_was_claimed_and_left_while_its_node_was_behind_is_closed_after_the_jump() {
    let mut state = three_nodes();
    play(&mut state, [(0, A, acquire("x", false, 100, None), "c1 new")]);
    let behind = state.clone();
    play(
        &mut state,
        [
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, B, withdraw("x", 2), "done; b gave up 2 of a"),
        ],
    );
    let learned = behind.difference(&state);
    assert!(matches!(
        learned[..],
        [Effect::Claimed { holder: A, epoch: 2, closing: true, .. }, Effect::Withdrawn { holder: A, epoch: 2, .. }]
    ));
}

#[test]
fn a_holder_that_jumps_learns_that_its_word_was_heard_behind_the_will_that_it_has_to_publish() {
    let mut state = three_nodes();
    play(&mut state, [(0, A, acquire("x", false, 100, Some(0)), "c1 new")]);
    let connected = state.clone();
    play(&mut state, [(0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a")]);
    let claimed = state.clone();
    play(&mut state, [(0, A, detach("x", 1, Keep, 100), "done; will 1 by a; a has closed for 2")]);
    let learned = claimed.difference(&state);
    assert!(matches!(learned[..], [Effect::WillDue { epoch: 1, .. }, Effect::Closed { epoch: 2, holder: A, .. }]));
    let learned = connected.difference(&state);
    assert!(matches!(
        learned[..],
        [Effect::Claimed { epoch: 2, closing: false, .. }, Effect::WillDue { epoch: 1, .. }]
    ));
}

#[test]
fn the_routes_of_a_dead_node_go_at_once() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, routes(&["f"], &[]), "index 4; a wants f"),
            (0, B, routes(&["f"], &[]), "index 5; b wants f"),
            (0, LEADER, expire(A, 1), "done; a1 down; a leaves f"),
        ],
    );
    assert_eq!(state.route(&"f".into()).collect::<Vec<_>>(), [(B, 5)]);
}

#[test]
fn the_routes_of_a_quick_restart_stay_until_it_has_added_its_own() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, routes(&["f", "g"], &[]), "index 4; a wants f; a wants g"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up"),
            (0, A, routes(&["f"], &[]), "index 6"),
            (0, B, routes(&["h"], &[]), "index 7; b wants h"),
        ],
    );
    assert_eq!(state.route(&"g".into()).count(), 1);
    play(&mut state, [(0, A, Command::RoutesComplete, "done; a leaves g"), (0, A, Command::RoutesComplete, "done")]);
    assert_eq!(state.routes().map(|(filter, ..)| &**filter).collect::<Vec<_>>(), ["f", "h"]);
}

#[test]
fn a_node_that_comes_back_at_once_holds_its_sessions_without_connections() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 10, Some(3)), "c1 new"),
            (5_000, LEADER, restart(A, 1, true), "incarnation 2; a2 up"),
            (5_000, A, detach("x", 1, Keep, 10), "NotConnected"),
            (7_999, LEADER, Command::Tick, "done"),
            (8_000, LEADER, Command::Tick, "done; will 1 by a"),
            (15_000, LEADER, Command::Tick, "done; ended 1 at a"),
        ],
    );
}

#[test]
fn a_node_without_heirs_that_comes_back_with_less_keeps_what_it_has() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, LEADER, restart(A, 1, false), "incarnation 2; a1 down; a2 up"),
            (0, B, settle("x", 2), "settled resumed; moved 2 from a to b"),
            (0, A, acquire("y", false, 100, None), "c2 resumed"),
        ],
    );
}

/// It gives away what it finds in the session; and who settled the claim would have it too.
#[test]
fn a_node_that_comes_back_with_all_keeps_its_sessions_from_claims_of_before() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, None), "c1 new"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
            (0, B, cut("x", 2, &[]), "cut 7; a gives 2 to b at 7"),
            (0, B, acquire("y", true, 100, None), "c2 asks a to close; b claims 2 of a, clean"),
            (0, LEADER, restart(A, 2, true), "incarnation 2; b gave up 2 of a; a2 up"),
            (0, B, settle("x", 2), "NotClaimed"),
            (0, B, settle("y", 2), "settled new; ended 1 at a; moved 2 from a to b"),
            (0, B, acquire("x", false, 100, None), "c3 asks a; b claims 3 of a"),
        ],
    );
    assert_eq!(state.session("x").map(|session| (session.holder, session.connected)), Some((A, false)));
}

#[test]
fn the_same_run_registers_once() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, LEADER, register(A), "incarnation 1"),
            (0, A, detach("x", 1, Keep, 100), "done"),
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, LEADER, register(A), "incarnation 2; a2 up"),
            (0, LEADER, register(A), "incarnation 2"),
        ],
    );
}

#[test]
fn a_known_name_with_a_new_id_is_a_new_node_and_the_old_one_is_forgotten_once_dead() {
    let mut state = three_nodes();
    let wiped = NodeId(0xd);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, NEVER_EXPIRES, Some(9)), "c1 new"),
            (0, LEADER, Command::Forget { node: A }, "StillLive"),
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, LEADER, register(wiped), "incarnation 1; d1 up"),
            (0, LEADER, Command::Forget { node: A }, "done; a forgotten"),
            (0, LEADER, Command::Forget { node: A }, "UnknownNode"),
        ],
    );
    assert_eq!(state.nodes().map(|node| node.slot).collect::<Vec<_>>(), [1, 2, 3]);
    let publisher = state.will_publisher("x").expect("nodes live");
    let effects = apply(&mut state, 0, LEADER, Command::Tick).effects;
    assert_eq!(effects.len(), 2, "its Will and its end: {effects:?}");
    assert_eq!(apply(&mut state, 0, publisher, will_done("x", 1)).outcome, Outcome::Done);
    assert_eq!(state.counts().leases, 0);
    play(&mut state, [(0, LEADER, register(A), "incarnation 2; a2 up")]);
    assert_eq!(state.node(A).map(|node| node.slot), Some(0), "the place is free again, the incarnations go on");
}

#[test]
fn the_bytes_of_all_wills_are_counted() {
    let mut state = three_nodes();
    let bytes = |state: &ControlState| state.counts().will_bytes;
    play(&mut state, [(0, A, acquire("x", false, 100, Some(5)), "c1 new")]);
    assert_eq!(bytes(&state), 4);
    play(&mut state, [(0, B, acquire("x", false, 100, Some(5)), "c2 asks a; b claims 2 of a")]);
    assert_eq!(bytes(&state), 8, "that of the claim too");
    play(
        &mut state,
        [
            (0, A, detach("x", 1, Keep, 100), "done; a has closed for 2"),
            (0, B, settle("x", 2), "settled resumed; moved 2 from a to b"),
        ],
    );
    assert_eq!(bytes(&state), 4);
    play(&mut state, [(0, B, detach("x", 2, Keep, 0), "done; will 2 by b; ended 2 at b")]);
    assert_eq!(bytes(&state), 4, "until it is published");
    play(&mut state, [(0, B, will_done("x", 2), "done; will 2 forgotten")]);
    assert_eq!(bytes(&state), 0);
}

#[test]
fn the_leases_of_a_dead_node_are_passed_on_in_slices_and_before_anybody_names_them() {
    let mut state = three_nodes();
    let clients = PASS_ON_MAX + 10;
    for number in 0..clients {
        apply(&mut state, 0, A, acquire(&format!("{number}"), true, 0, (number % 1_000 == 0).then_some(0)));
    }
    let applied = apply(&mut state, 0, LEADER, expire(A, 1));
    assert_eq!(applied.effects, [Effect::NodeDown { node: A, incarnation: 1, heirs: Vec::new() }]);
    assert_eq!(state.counts().connected, 0);
    assert_eq!(state.to_pass_on().collect::<Vec<_>>(), [(A, 1)]);
    let last = format!("{}", clients - 1);
    assert!(state.session(&last).is_some_and(|session| !session.connected && session.missing));
    let named = apply(&mut state, 0, B, acquire(&last, false, 100, None));
    assert_eq!(outcome_in_words(named.outcome), "c2 new");
    let ended = |applied: &Applied| {
        applied.effects.iter().filter(|effect| matches!(effect, Effect::SessionEnded { holder: A, .. })).count()
    };
    assert_eq!(ended(&named), 1);
    let half = ControlState::restore(state.snapshot()).expect("a snapshot can be read");
    assert_eq!(half.digest(), state.digest());
    assert_eq!(ended(&apply(&mut state, 0, LEADER, pass_on(A, 1))), PASS_ON_MAX);
    assert_eq!(ended(&apply(&mut state, 0, LEADER, pass_on(A, 1))), 9);
    assert_eq!(state.to_pass_on().count(), 0);
    assert_eq!(state.counts().wills_due, clients.div_ceil(1_000));
    assert_eq!(outcome_in_words(apply(&mut state, 0, LEADER, pass_on(B, 1)).outcome), "StillLive");
}

#[test]
fn only_a_version_that_all_understand_is_used_and_no_other_node_may_come() {
    let register = |node, versions| Command::Register { node, name: "name".to_owned(), run: 1, versions, intact: true };
    let mut state = ControlState::new();
    play(
        &mut state,
        [
            (0, LEADER, register(A, (1, 2)), "incarnation 1; a1 up"),
            (0, LEADER, register(B, (3, 4)), "Versions"),
            (0, LEADER, register(B, (2, 3)), "incarnation 1; b1 up"),
            (0, LEADER, Command::Version { n: 3 }, "Versions"),
            (0, LEADER, register(C, (1, 1)), "Versions"),
        ],
    );
    assert_eq!(state.cluster_version(), 2);
    let newer = Command::Register { node: A, name: "name".to_owned(), run: 2, versions: (2, 3), intact: true };
    play(&mut state, [(0, LEADER, newer, "incarnation 2; a2 up"), (0, LEADER, Command::Version { n: 3 }, "done")]);
    assert_eq!(state.cluster_version(), 3);
}

#[test]
fn there_are_no_more_nodes_than_fit_in_a_word() {
    let mut state = ControlState::new();
    for node in 1..=NODES_MAX as u128 {
        let outcome = apply(&mut state, 0, LEADER, register(NodeId(node))).outcome;
        assert_eq!(outcome, Outcome::Registered { incarnation: 1 });
    }
    let outcome = apply(&mut state, 0, LEADER, register(NodeId(1_000))).outcome;
    assert_eq!(outcome, Outcome::Refused(Refusal::TooManyNodes));
}

#[test]
fn a_will_that_nobody_can_publish_waits_for_the_first_who_lives() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", true, 0, Some(0)), "c1 new"),
            (0, LEADER, expire(B, 1), "done; b1 down"),
            (0, LEADER, expire(C, 1), "done; c1 down"),
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, LEADER, Command::Tick, "done; ended 1 at a"),
        ],
    );
    assert_eq!(state.next_due(), None, "nothing can be done about it");
    play(
        &mut state,
        [
            (0, LEADER, restart(C, 1, true), "incarnation 2; c2 up"),
            (0, LEADER, Command::Tick, "done; will 1 by c"),
            (0, LEADER, Command::Tick, "done"),
        ],
    );
}

#[test]
fn the_next_incarnation_of_the_publisher_is_told_again() {
    play(
        &mut three_nodes(),
        [
            (0, A, acquire("x", true, 0, Some(0)), "c1 new"),
            (0, A, detach("x", 1, Keep, 0), "done; will 1 by a; ended 1 at a"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up"),
            (0, LEADER, Command::Tick, "done; will 1 by a"),
            (0, A, will_done("x", 1), "done; will 1 forgotten"),
        ],
    );
}

#[test]
fn a_holder_that_is_back_waits_for_the_will_that_another_node_publishes_for_it() {
    let mut state = three_nodes();
    play(&mut state, [(0, A, acquire("x", false, 100, Some(0)), "c1 new"), (0, LEADER, expire(A, 1), "done; a1 down")]);
    let publisher = state.will_publisher("x").expect("two nodes live");
    apply(&mut state, 0, LEADER, pass_on(A, 1));
    play(
        &mut state,
        [
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up"),
            (0, A, acquire("x", false, 100, None), "WillDue"),
            (0, publisher, will_done("x", 1), "done; will 1 forgotten"),
            (0, A, acquire("x", false, 100, None), "c2 resumed"),
        ],
    );
}

#[test]
fn members_of_share_groups_are_as_coarse_as_their_use() {
    let logs: Vec<_> = [0, 1, 2, 3, 4, 1_000, u64::MAX].map(|count| ShareMembers::new(count, false).connected).into();
    assert_eq!(logs, [0, 1, 2, 2, 3, 10, 64]);
    let share: ShareRoute = ("g".into(), "f".into());
    let set =
        |count| Command::ShareRoutes { set: vec![(share.clone(), ShareMembers::new(count, true))], remove: Vec::new() };
    play(
        &mut three_nodes(),
        [
            (0, A, set(1), "index 4; a has 1+ in g"),
            (0, A, set(1), "index 4"),
            (0, A, set(2), "index 4; a has 2+ in g"),
            (0, A, Command::ShareRoutes { set: Vec::new(), remove: vec![share.clone()] }, "index 0; a leaves g"),
        ],
    );
}
