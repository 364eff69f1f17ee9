//! The rules of heirs, one script each. Most of them are executions that once broke a draft.
//!
//! `1 passed from a to b` is the session of connection 1, which b has a copy of; `perhaps`, when it may have none.

use super::cluster::*;
use super::*;
use WillFate::Keep;

const D: NodeId = NodeId(0xd);

/// A client id whose heir is `heir`, if all of `among` have copies.
fn client_of(heir: NodeId, among: &[NodeId]) -> String {
    let mut names = (0..).map(|number| format!("{number}"));
    names.find(|client| heir_of(client, among) == Some(heir)).expect("each is the heir of somebody")
}

/// Three nodes, of which `home` has the others as heirs.
fn with_heirs(home: NodeId, heirs: &[NodeId]) -> ControlState {
    let mut state = three_nodes();
    give_heirs(&mut state, home, heirs);
    state
}

/// These are filled with the copies of `home`, and are the base.
fn give_heirs(state: &mut ControlState, home: NodeId, heirs: &[NodeId]) {
    let Outcome::FillBegun { fill } = apply(state, 0, home, fill(heirs)).outcome else { panic!("refused") };
    assert_eq!(apply(state, 0, home, filled(fill)).outcome, Outcome::Done);
}

fn base(state: &ControlState, home: NodeId) -> Vec<(NodeId, bool)> {
    state.heirs(home).expect("it is a node").base
}

#[test]
fn the_pick_is_the_same_for_all_and_moves_with_nobody_else() {
    let names = || (0..1_000).map(|number| format!("{number}"));
    assert_eq!(heir_of("x", &[]), None);
    for client in names() {
        let pick = heir_of(&client, &[A, B, C, D]);
        assert_eq!(pick, heir_of(&client, &[D, B, C, A]));
        if pick != Some(D) {
            assert_eq!(pick, heir_of(&client, &[A, B, C]));
        }
    }
    let of_d = names().filter(|client| heir_of(client, &[A, B, C, D]) == Some(D)).count();
    assert!((150..350).contains(&of_d), "{of_d} of 1000");
}

#[test]
fn a_session_passes_to_its_heir_and_the_routes_count_until_that_has_entered_it() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, routes(&["f"], &[]), "index 7; a wants f"),
            (1_000, LEADER, expire(A, 1), "done; a1 down to b"),
            (1_000, B, inherited(A, 1), "OrphansPending"),
            (1_000, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
        ],
    );
    assert_eq!(state.route(&"f".into()).collect::<Vec<_>>(), [(A, 7)]);
    assert_eq!(state.orphans().collect::<Vec<_>>(), [(A, 1, vec![B])]);
    assert_eq!(state.inherited_from("x"), Some(A));
    let session = state.session("x").expect("it goes on");
    assert_eq!(session, Session { began: 1, epoch: 1, connected: false, holder: B, claim: None, missing: false });
    play(
        &mut state,
        [
            (2_000, C, inherited(A, 1), "NotHeir"),
            (2_000, B, routes(&["f"], &[]), "index 12; b wants f"),
            (2_000, B, inherited(A, 1), "done; a1 has no orphans; a leaves f"),
            (2_000, B, inherited(A, 1), "NotHeir"),
            // It has lost its connection when node a died.
            (100_999, LEADER, Command::Tick, "done"),
            (101_000, LEADER, Command::Tick, "done; ended 1 at b"),
        ],
    );
    assert_eq!(state.orphans().count(), 0);
}

/// H5.
#[test]
fn a_node_that_joins_inherits_nothing_before_it_has_copies_of_everything() {
    let mut state = with_heirs(A, &[B, C]);
    let x = client_of(D, &[B, C, D]);
    let heir = heir_of(&x, &[B, C]).expect("two heirs");
    let passed = if heir == B { "1 passed from a to b" } else { "1 passed from a to c" };
    apply(&mut state, 0, LEADER, register(D));
    play(&mut state, [(0, A, acquire(&x, false, 100, None), "c1 new"), (0, A, fill(&[D, B, C]), "fill 8; a's heirs")]);
    let mut early = state.clone();
    play(
        &mut early,
        [
            (0, LEADER, expire(A, 1), "done; a1 down to bc; a's heirs"),
            (0, LEADER, pass_on(A, 1), leak(format!("done; {passed}; a1 passed on"))),
        ],
    );
    play(
        &mut state,
        [
            (0, A, filled(7), "NoSuchFill"),
            (0, A, filled(8), "done; a's heirs"),
            (0, A, filled(8), "NoSuchFill"),
            (0, LEADER, expire(A, 1), "done; a1 down to bcd"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to d; a1 passed on"),
        ],
    );
}

fn leak(words: String) -> &'static str {
    Box::leak(words.into_boxed_str())
}

/// H5.
#[test]
fn a_dead_heir_keeps_its_place_until_another_has_copies() {
    let mut state = with_heirs(A, &[B, C]);
    let x = client_of(B, &[B, C]);
    play(
        &mut state,
        [
            (0, A, acquire(&x, false, 100, None), "c1 new"),
            (0, LEADER, expire(B, 1), "done; b1 down; a's heirs"),
            (0, LEADER, expire(A, 1), "done; a1 down to c"),
            // Node c has no copy, and that says nothing of the session.
            (0, LEADER, pass_on(A, 1), "done; a1 passed on"),
            (0, C, acquire(&x, false, 100, None), "missing"),
            (0, C, inherited(A, 1), "done; a1 has no orphans"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up; a's heirs"),
            (0, C, acquire(&x, false, 100, None), "c2 asks a; c claims 2 of a"),
        ],
    );
}

/// H6.
#[test]
fn a_session_whose_home_and_heir_are_dead_is_missing_until_one_of_them_is_back_with_it() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, None), "c1 new"),
            (0, A, routes(&["f"], &[]), "index 8; a wants f"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, C, acquire("x", false, 100, None), "c2 asks b; 1 passed from a to b; c claims 2 of b"),
            (0, C, withdraw("x", 2), "done; c gave up 2 of b"),
            // The heir is frozen: nobody waits for it to inherit.
            (0, LEADER, expire(B, 1), "done; b1 down; a1 has no orphans; a leaves f"),
            (0, C, acquire("x", false, 100, None), "missing"),
            (0, C, acquire("y", false, 100, None), "missing"),
            (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
            (0, C, acquire("x", false, 100, None), "c3 asks b; c claims 3 of b"),
            (0, C, acquire("y", false, 100, None), "missing"),
        ],
    );
    let missing: Vec<_> = state.missing_for(B).map(|(client, home, _)| (client.to_string(), home)).collect();
    assert_eq!(missing, [("y".to_owned(), A)], "x is its own already");
    assert_eq!(state.missing_for(C).count(), 0);
    play(
        &mut state,
        [
            (0, B, found(&["x", "y"]), "done; 1 passed from a to b"),
            (0, C, acquire("y", false, 100, None), "c2 asks b; c claims 2 of b"),
        ],
    );
    assert_eq!(state.missing_for(B).count(), 0);
    assert_eq!(estate(&state, B), ["x of a, sure", "y of a, sure"]);
}

/// What a node that starts again has to enter, if it has not.
fn estate(state: &ControlState, node: NodeId) -> Vec<String> {
    let words = state.estate_of(node).map(|(client, estate)| {
        let from = estate.from.map_or("nobody", |from| if from == A { "a" } else { "another" });
        format!("{client} of {from}, {}", if estate.sure { "sure" } else { "perhaps" })
    });
    let mut words: Vec<String> = words.collect();
    words.sort_unstable();
    words
}

/// As if it had applied everything.
#[test]
fn who_starts_again_while_it_inherits_learns_from_the_state_what_it_had_to_enter() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 0, None), "c1 new"),
            (0, B, acquire("z", false, 100, None), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
        ],
    );
    assert_eq!(state.passed_on_all().count(), 0);
    apply(&mut state, 0, LEADER, pass_on(A, 1));
    apply(&mut state, 0, LEADER, restart(B, 1, true));
    assert_eq!(state.orphans().collect::<Vec<_>>(), [(A, 1, vec![B])]);
    assert_eq!(state.passed_on_all().collect::<Vec<_>>(), [(A, 1)]);
    assert_eq!(estate(&state, B), ["x of a, sure", "z of nobody, perhaps"]);
    // In its next life the dead node has other copies.
    apply(&mut state, 0, B, inherited(A, 1));
    apply(&mut state, 0, LEADER, restart(A, 1, true));
    assert_eq!(estate(&state, B), ["x of a, perhaps", "z of nobody, perhaps"]);
}

#[test]
fn an_heir_that_comes_back_with_its_copies_says_so() {
    let mut state = with_heirs(A, &[B, C]);
    let [x, y] = [B, C].map(|heir| client_of(heir, &[B, C]));
    play(
        &mut state,
        [
            (0, A, acquire(&x, false, 100, None), "c1 new"),
            (0, A, acquire(&y, false, 100, None), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down to bc"),
            (0, LEADER, expire(B, 1), "done; b1 down"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to c; a1 passed on"),
            (0, C, inherited(A, 1), "done; a1 has no orphans"),
            (0, C, acquire(&x, false, 100, None), "missing"),
            (0, C, found(&[&x]), "NotHeir"),
            (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
            (0, B, found(&[&x, &y]), "done; 1 passed from a to b"),
            (0, B, found(&[&x]), "done"),
            (0, B, acquire(&x, false, 100, None), "c2 resumed"),
        ],
    );
}

/// Both were killed at once, and whichever of them the leader names first: the home has done nothing without its heir.
#[test]
fn an_heir_that_is_expired_in_one_entry_with_the_home_has_everything_when_it_is_back() {
    for order in [[A, B], [B, A]] {
        let mut state = with_heirs(A, &[B]);
        apply(&mut state, 0, A, acquire("x", false, 100, None));
        let commands = order.map(|node| expire(node, 1)).to_vec();
        let index = state.index() + 1;
        state.apply_proposal(index, Proposal { at: 0, origin: Origin::Leader, commands });
        assert_eq!(base(&state, A), [(B, false)]);
        play(
            &mut state,
            [
                (0, C, acquire("x", false, 100, None), "missing"),
                (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
                (0, B, found(&["x"]), "done; 1 passed from a to b"),
            ],
        );
    }
}

/// H6: it has missed what its home did after it died.
#[test]
fn an_heir_that_died_before_the_home_inherits_nothing() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, LEADER, expire(B, 1), "done; b1 down; a's heirs"),
            (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
        ],
    );
    assert_eq!(base(&state, A), [(B, true)]);
    play(
        &mut state,
        [
            (0, LEADER, expire(A, 1), "done; a1 down"),
            (0, LEADER, pass_on(A, 1), "done"),
            (0, B, found(&["x"]), "NotHeir"),
            (0, B, acquire("x", false, 100, None), "missing"),
        ],
    );
}

/// H7.
#[test]
fn a_quick_restart_that_has_lost_something_leaves_its_sessions_to_its_heirs() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, LEADER, restart(A, 1, false), "OrphansPending; a1 down to b"),
            (0, LEADER, restart(A, 1, false), "OrphansPending"),
            (0, LEADER, expire(A, 1), "NotLive"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
            (0, LEADER, restart(A, 1, false), "OrphansPending"),
            (0, B, inherited(A, 1), "done; a1 has no orphans"),
            (0, LEADER, restart(A, 1, false), "incarnation 2; a2 up; a's heirs"),
            (0, A, acquire("x", false, 100, None), "c2 asks b; a claims 2 of b"),
        ],
    );
}

/// H7: every node has lost the end of what it had, as at level memory when the power fails. Nobody has anything better.
#[test]
fn when_all_have_lost_something_what_they_have_is_not_given_up() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, None), "c1 new"),
            (0, LEADER, expire(B, 1), "done; b1 down; a's heirs"),
            (0, LEADER, restart(A, 1, false), "incarnation 2; a1 down; a2 up; a's heirs"),
            (0, A, acquire("x", false, 100, None), "c2 resumed"),
            (0, LEADER, expire(A, 2), "done; a2 down"),
            (0, LEADER, restart(B, 1, false), "incarnation 2; b2 up"),
            (0, B, found(&["x", "y"]), "NotHeir"),
            (0, B, acquire("y", false, 100, None), "missing"),
            (0, LEADER, restart(A, 2, false), "incarnation 3; a3 up"),
            (0, A, acquire("y", false, 100, None), "c2 resumed"),
        ],
    );
    assert_eq!(state.heirs(A), Some(HeirsView { base: vec![(B, true)], next: None, whole: false }));
}

/// H7, the race with the leader that has noticed the death.
#[test]
fn a_quick_restart_with_everything_keeps_its_sessions_unless_it_was_expired_before() {
    let begin = |state: &mut ControlState| play(state, [(0, A, acquire("x", false, 100, None), "c1 new")]);
    let mut first = with_heirs(A, &[B]);
    begin(&mut first);
    play(
        &mut first,
        [
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up; a's heirs"),
            (0, LEADER, expire(A, 1), "NotLive"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
        ],
    );
    let mut second = with_heirs(A, &[B]);
    begin(&mut second);
    play(
        &mut second,
        [
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, LEADER, restart(A, 1, true), "OrphansPending"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
            (0, B, inherited(A, 1), "done; a1 has no orphans"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up; a's heirs"),
        ],
    );
    assert_eq!(second.sessions_of(A).count(), 0);
}

/// What it copied last is on its disk, and perhaps nowhere else.
#[test]
fn who_begins_a_new_life_fills_its_heirs_before_it_is_sure_of_them() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, fill(&[B, C]), "fill 7; a's heirs"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up; a's heirs"),
            (0, A, filled(7), "NoSuchFill"),
        ],
    );
    assert_eq!(state.heirs(A).expect("a node"), HeirsView { base: vec![(B, false)], next: None, whole: false });
    let mut early = state.clone();
    play(
        &mut early,
        [
            (0, LEADER, expire(A, 2), "done; a2 down to b"),
            (0, LEADER, pass_on(A, 2), "done; 1 passed from a to b, perhaps; a2 passed on"),
        ],
    );
    play(
        &mut state,
        [
            (0, A, fill(&[B]), "fill 10; a's heirs"),
            (0, A, filled(10), "done; a's heirs"),
            (0, LEADER, expire(A, 2), "done; a2 down to b"),
            (0, LEADER, pass_on(A, 2), "done; 1 passed from a to b; a2 passed on"),
        ],
    );
}

/// H7.
#[test]
fn an_heir_that_has_lost_what_it_had_is_stale_for_the_living_and_for_the_dead() {
    let mut state = with_heirs(A, &[B]);
    give_heirs(&mut state, C, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, LEADER, restart(B, 1, false), "incarnation 2; b1 down; a1 has no orphans; b2 up; a's heirs; c's heirs"),
            (0, LEADER, pass_on(A, 1), "done"),
            (0, B, found(&["x"]), "NotHeir"),
        ],
    );
    assert_eq!((base(&state, A), base(&state, C)), (vec![(B, true)], vec![(B, true)]));
}

/// H7b: what it had accepted is on its disk.
#[test]
fn an_heir_that_starts_again_at_once_with_all_that_it_had_still_inherits() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
            (0, LEADER, restart(B, 2, true), "incarnation 3; b3 up"),
            (0, B, inherited(A, 1), "done; a1 has no orphans"),
        ],
    );
    assert_eq!(state.inherited_from("x"), Some(A));
}

#[test]
fn an_heir_that_dies_with_what_it_has_inherited_leaves_it_to_its_own_heirs_who_may_have_nothing_and_give_it_back() {
    let mut state = with_heirs(A, &[B]);
    give_heirs(&mut state, B, &[C]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, Some(9)), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to b; 1 passed from a to b; a1 passed on; b's heirs"),
            (0, LEADER, expire(B, 1), "done; b1 down to c; a1 has no orphans"),
            (
                0,
                LEADER,
                pass_on(B, 1),
                "done; 1 passed from b to c, perhaps; 1 passed from b to c, perhaps; b1 passed on",
            ),
            (0, C, lost("x", 2), "NotHeir"),
            (0, B, lost("x", 1), "NotLive"),
            (0, C, lost("x", 1), "done; moved 1 from c to b"),
            (0, C, lost("y", 1), "done; moved 1 from c to b"),
            (0, C, lost("x", 1), "NotHeir"),
            (0, C, acquire("x", false, 100, None), "missing"),
            (0, LEADER, Command::Tick, "done"),
            (0, C, inherited(B, 1), "done; b1 has no orphans"),
        ],
    );
    let mut gone = state.clone();
    play(
        &mut state,
        [
            (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
            // It has entered them, or does now, from the copies of node a.
            (0, C, acquire("x", false, 100, None), "c2 asks b; c claims 2 of b"),
            // Who lives and has nothing either does not get it back.
            (0, B, lost("y", 1), "done; will 1 by b; ended 1 at b"),
        ],
    );
    play(
        &mut gone,
        [
            (0, LEADER, forget(B), "done; b forgotten; a's heirs"),
            (0, C, acquire("x", false, 100, None), "c2 new; ended 1 at b"),
        ],
    );
}

/// Neither at the heir nor elsewhere begins an empty session in the place of one that the dead node may bring back.
#[test]
fn nobody_resumes_a_session_before_its_heir_has_said_that_it_has_it_or_not() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, None), "c1 new"),
            (0, A, acquire("z", false, 100, None), "c1 new"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up; a's heirs"),
            (0, LEADER, expire(A, 2), "done; a2 down to b"),
            (0, B, acquire("x", false, 100, None), "OrphansPending; 1 passed from a to b, perhaps"),
            (0, C, acquire("x", false, 100, None), "OrphansPending"),
            (0, C, acquire("z", true, 100, None), "c2 new; 1 passed from a to b, perhaps; ended 1 at b"),
            (0, LEADER, pass_on(A, 2), "done; 1 passed from a to b, perhaps; a2 passed on"),
            (0, B, lost("x", 1), "done; moved 1 from b to a"),
            (0, B, acquire("x", false, 100, None), "missing"),
            (0, C, acquire("y", false, 100, None), "OrphansPending"),
            (0, B, inherited(A, 2), "done; a2 has no orphans"),
            (0, C, acquire("y", false, 100, None), "c2 asks b; c claims 2 of b"),
            (0, LEADER, restart(A, 2, true), "incarnation 3; a3 up"),
            (0, B, acquire("x", false, 100, None), "c2 asks a; b claims 2 of a"),
        ],
    );
}

/// What it owes the dead node is owed to them, and its publishers wait for it.
#[test]
fn who_jumps_over_a_death_and_what_has_come_of_it_learns_who_has_inherited() {
    let mut state = with_heirs(A, &[B, C]);
    apply(&mut state, 0, A, acquire(&client_of(B, &[B, C]), false, 100, None));
    apply(&mut state, 0, A, acquire(&client_of(C, &[B, C]), false, 100, None));
    let behind = state.clone();
    apply(&mut state, 0, LEADER, expire(A, 1));
    apply(&mut state, 0, LEADER, pass_on(A, 1));
    let learned = |state: &ControlState| {
        let is_of_node = |effect: &Effect| {
            matches!(effect, Effect::NodeDown { .. } | Effect::OrphansEnded { .. } | Effect::NodeUp { .. })
        };
        behind.difference(state).into_iter().filter(is_of_node).collect::<Vec<_>>()
    };
    let down = Effect::NodeDown { node: A, incarnation: 1, heirs: vec![B, C] };
    let ended = Effect::OrphansEnded { node: A, incarnation: 1 };
    assert_eq!(learned(&state), std::slice::from_ref(&down));
    apply(&mut state, 0, C, inherited(A, 1));
    assert_eq!(learned(&state), std::slice::from_ref(&down), "one of them is done already");
    apply(&mut state, 0, B, inherited(A, 1));
    assert_eq!(learned(&state), [down.clone(), ended.clone()]);
    apply(&mut state, 0, LEADER, restart(A, 1, true));
    assert_eq!(learned(&state)[..2], [down, ended]);
    apply(&mut state, 0, LEADER, expire(B, 1));
    let left = Effect::NodeDown { node: A, incarnation: 1, heirs: vec![C] };
    assert!(learned(&state).contains(&left), "one of them is dead too");
}

#[test]
fn what_is_passed_to_a_node_during_its_fill_is_not_in_the_copies() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, B, fill(&[C]), "fill 7; b's heirs"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
            (0, B, filled(7), "done; b's heirs"),
        ],
    );
    assert!(!state.heirs(B).expect("a node").whole);
    play(&mut state, [(0, B, fill(&[C]), "fill 11; b's heirs"), (0, B, filled(11), "done; b's heirs")]);
    assert!(state.heirs(B).expect("a node").whole);
}

#[test]
fn a_claim_on_a_session_of_the_dead_is_withdrawn() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, C, acquire("x", false, 100, None), "c2 asks a; c claims 2 of a"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
            (0, C, settle("x", 2), "NotClaimed; c gave up 2 of a; 1 passed from a to b; a1 passed on"),
            (0, C, acquire("x", false, 100, None), "c3 asks b; c claims 3 of b"),
            (0, C, settle("x", 3), "settled resumed; moved 3 from b to c"),
        ],
    );
    assert_eq!(state.inherited_from("x"), None);
}

#[test]
fn what_ends_with_its_connection_or_has_expired_has_no_heir() {
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", true, 0, Some(0)), "c1 new"),
            (0, A, acquire("y", true, 5, None), "c1 new"),
            (0, A, detach("y", 1, Keep, 5), "done"),
            (0, LEADER, expire(A, 1), "done; a1 down to b"),
        ],
    );
    let publisher = name_of(state.will_publisher("x").expect("two nodes live"));
    play(
        &mut state,
        [(
            6_000,
            LEADER,
            pass_on(A, 1),
            leak(format!("done; will 1 by {publisher}; ended 1 at a; a1 passed on; ended 1 at a")),
        )],
    );
}

#[test]
fn the_heir_publishes_the_will() {
    play(
        &mut with_heirs(A, &[B]),
        [
            (0, A, acquire("x", false, 100, Some(5)), "c1 new"),
            (1_000, LEADER, expire(A, 1), "done; a1 down to b"),
            (1_000, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
            (6_000, LEADER, Command::Tick, "done; will 1 by b"),
        ],
    );
}

#[test]
fn a_connection_that_a_claim_closes_has_ended_without_a_goodbye_when_its_lease_passes_to_the_heir() {
    for (by, expiry_secs) in [(B, 100), (C, 100), (C, 0)] {
        let mut state = with_heirs(A, &[B]);
        apply(&mut state, 0, A, acquire("x", false, expiry_secs, Some(0)));
        apply(&mut state, 0, by, acquire("x", false, 100, None));
        play(&mut state, [(0, by, settle("x", 2), "Closing"), (3_000, LEADER, expire(A, 1), "done; a1 down to b")]);
        let passed = apply(&mut state, 3_000, LEADER, pass_on(A, 1)).effects;
        let count = |is: fn(&Effect) -> bool| passed.iter().filter(|effect| is(effect)).count();
        assert_eq!(count(|effect| matches!(effect, Effect::WillDue { epoch: 1, .. })), 1, "{passed:?}");
        let kinds = (
            count(|effect| matches!(effect, Effect::Withdrawn { epoch: 2, holder: A, .. })),
            count(|effect| matches!(effect, Effect::PassedOn { epoch: 1, to: B, .. })),
            count(|effect| matches!(effect, Effect::SessionEnded { epoch: 1, .. })),
        );
        assert_eq!(kinds, if expiry_secs > 0 { (1, 1, 0) } else { (0, 0, 1) });
        let publisher = state.will_publisher("x").expect("two nodes live");
        if expiry_secs > 0 {
            assert_eq!(publisher, B, "the heir has it");
        } else {
            assert_eq!(apply(&mut state, 3_000, publisher, will_done("x", 1)).outcome, Outcome::Done);
            let settled = apply(&mut state, 3_000, by, settle("x", 2)).outcome;
            assert_eq!(settled, Outcome::Settled { session_present: false });
        }
    }
}

#[test]
fn what_has_a_connection_that_a_claim_closes_is_not_lost() {
    play(
        &mut with_heirs(A, &[B]),
        [
            (0, A, acquire("x", false, 100, Some(0)), "c1 new"),
            (0, C, acquire("x", false, 100, None), "c2 asks a; c claims 2 of a"),
            (0, A, lost("x", 1), "NotHeir"),
            (0, A, detach("x", 1, WillFate::Drop, 100), "done; a has closed for 2"),
            (0, C, settle("x", 2), "settled resumed; moved 2 from a to c"),
        ],
    );
}

/// H34.
#[test]
fn without_heirs_sessions_are_missing_at_once_and_their_routes_go() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, A, acquire("y", false, 100, None), "c1 new"),
            (0, A, routes(&["f"], &[]), "index 6; a wants f"),
            (0, LEADER, expire(A, 1), "done; a1 down; a leaves f"),
            (0, B, inherited(A, 1), "NotHeir"),
            (0, B, acquire("x", false, 100, None), "missing"),
            (0, B, found(&["x"]), "NotHeir"),
            (0, LEADER, restart(A, 1, true), "incarnation 2; a2 up"),
            (0, A, acquire("x", false, 100, None), "c2 resumed"),
            (0, B, acquire("y", false, 100, None), "c2 asks a; b claims 2 of a"),
        ],
    );
    assert_eq!(state.orphans().count(), 0);
}

/// H32.
#[test]
fn share_routes_of_the_dead_are_void_at_once() {
    let share: ShareRoute = ("g".into(), "f".into());
    let set = Command::ShareRoutes { set: vec![(share.clone(), ShareMembers::new(1, true))], remove: Vec::new() };
    let mut state = with_heirs(A, &[B]);
    play(
        &mut state,
        [
            (0, A, set, "index 6; a has 1+ in g"),
            (0, A, routes(&["f"], &[]), "index 7; a wants f"),
            (0, LEADER, expire(A, 1), "done; a1 down to b; a1 passed on; a leaves g"),
        ],
    );
    assert_eq!((state.share_route(&share).count(), state.route(&"f".into()).count()), (0, 1));
}

/// H33: what a node says that was expired counts no more, though its routes do.
#[test]
fn the_dead_change_nothing_of_their_orphans() {
    let mut state = with_heirs(A, &[B]);
    play(&mut state, [(0, A, routes(&["f"], &[]), "index 6; a wants f")]);
    assert_eq!(state.apply_proposal(7, leader(0, expire(A, 1))).outcomes, [Outcome::Done]);
    let late = state.apply_proposal(8, batch(0, A, 1, 1, vec![routes(&["g"], &["f"]), fill(&[C])]));
    assert!(late.ignored);
    assert_eq!(state.routes().map(|(filter, ..)| &**filter).collect::<Vec<_>>(), ["f"]);
    assert_eq!(base(&state, A), [(B, false)]);
}

/// H38.
#[test]
fn leases_are_inherited_in_slices_and_before_anybody_names_them() {
    let mut state = with_heirs(A, &[B, C]);
    let clients = PASS_ON_MAX * 2 + 10;
    for number in 0..clients {
        apply(&mut state, 0, A, acquire(&format!("{number}"), true, 100, None));
    }
    let heirs = vec![B, C];
    let applied = apply(&mut state, 0, LEADER, expire(A, 1));
    assert_eq!(applied.effects, [Effect::NodeDown { node: A, incarnation: 1, heirs }]);
    let last = format!("{}", clients - 1);
    let heir = heir_of(&last, &[B, C]).expect("two heirs");
    let named = apply(&mut state, 0, heir, acquire(&last, false, 100, None));
    assert_eq!(outcome_in_words(named.outcome), "c2 resumed");
    let half = ControlState::restore(state.snapshot()).expect("a snapshot can be read");
    assert_eq!(half.digest(), state.digest());
    let slices = [(); 3].map(|()| {
        let applied = apply(&mut state, 0, LEADER, pass_on(A, 1));
        let passed = applied.effects.iter().filter(|effect| matches!(effect, Effect::PassedOn { sure: true, .. }));
        (passed.count(), applied.effects.contains(&Effect::PassedOnAll { node: A, incarnation: 1 }))
    });
    assert_eq!(slices, [(PASS_ON_MAX, false), (PASS_ON_MAX, false), (9, true)]);
    assert_eq!(state.to_pass_on().count(), 0);
    assert_eq!(state.sessions_of(B).count() + state.sessions_of(C).count(), clients);
}

/// H39.
#[test]
fn an_heir_that_flaps_is_filled_again_and_the_others_go_on() {
    let mut state = with_heirs(A, &[B, C]);
    let [x, y] = [B, C].map(|heir| client_of(heir, &[B, C]));
    play(
        &mut state,
        [
            (0, A, acquire(&x, false, 100, None), "c1 new"),
            (0, A, acquire(&y, false, 100, None), "c1 new"),
            (0, A, fill(&[B, C]), "fill 8; a's heirs"),
            (0, LEADER, expire(B, 1), "done; b1 down; a's heirs"),
            (0, A, filled(8), "NoSuchFill"),
            (0, A, fill(&[B, C]), "NotLive"),
            (0, A, fill(&[C]), "fill 12; a's heirs"),
            (0, LEADER, restart(B, 1, true), "incarnation 2; b2 up"),
            (0, A, filled(12), "done; a's heirs"),
            (0, A, fill(&[B, C]), "fill 15; a's heirs"),
            (0, LEADER, expire(A, 1), "done; a1 down to c; a's heirs"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to c; 1 passed from a to c; a1 passed on"),
        ],
    );
}

#[test]
fn nobody_is_filled_who_cannot_be_an_heir() {
    let mut state = three_nodes();
    play(
        &mut state,
        [
            (0, A, fill(&[B, A]), "NotHeir"),
            (0, A, fill(&[D]), "UnknownNode"),
            (0, A, fill(&[C, B, C]), "fill 6; a's heirs"),
        ],
    );
    let view = HeirsView { base: Vec::new(), next: Some((6, vec![B, C])), whole: false };
    assert_eq!(state.heirs(A), Some(view));
    assert_eq!(state.heirs(D), None);
}

#[test]
fn a_destroyed_node_is_forgotten_when_its_heirs_have_inherited_and_keeps_its_place_in_bases() {
    let mut state = with_heirs(A, &[B]);
    give_heirs(&mut state, C, &[A, B]);
    play(
        &mut state,
        [
            (0, A, acquire("x", false, 100, None), "c1 new"),
            (0, LEADER, expire(A, 1), "done; a1 down to b; c's heirs"),
            (0, LEADER, forget(A), "OrphansPending"),
            (0, LEADER, pass_on(A, 1), "done; 1 passed from a to b; a1 passed on"),
            (0, LEADER, forget(A), "OrphansPending"),
            (0, B, inherited(A, 1), "done; a1 has no orphans"),
            (0, LEADER, forget(A), "done; a forgotten"),
            (0, LEADER, register(D), "incarnation 2; d2 up"),
        ],
    );
    assert_eq!(state.node(D).map(|node| node.slot), Some(3), "the place of a is taken");
    assert_eq!(base(&state, C), [(A, true), (B, false)]);
    assert_eq!(state.session("x").map(|session| session.holder), Some(B));
    give_heirs(&mut state, C, &[B, D]);
    assert_eq!(state.inherited_from("x"), None, "nobody knows node a any more");
    play(&mut state, [(0, LEADER, register(NodeId(0xe)), "incarnation 2; e2 up")]);
    assert_eq!(state.node(NodeId(0xe)).map(|node| node.slot), Some(0));
}
