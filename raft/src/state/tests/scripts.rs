//! The rules, one script each: at a time, a command, and what comes of it in words.
//!
//! `c1 new` is the first connection of a new session, `c2 resumed closes 1` the second, which takes the session over;
//! behind a semicolon the effects: `will 1` and `ended 1` for the Will and the session of connection 1.

use super::*;
use WillFate::{Drop, Keep};

type Line = (u64, Command, &'static str);

/// Applies the lines in order by one node, and compares each with its words.
fn play(lines: impl IntoIterator<Item = Line>) -> ControlState {
    let mut state = ControlState::new();
    state.apply(0, (NODE, 0), register(NODE));
    for (number, (now, command, words)) in lines.into_iter().enumerate() {
        let from = (NODE, state.incarnation(NODE).unwrap_or(0));
        let said = format!("{command:?}");
        assert_eq!(in_words(&state.apply(now, from, command)), words, "line {number}, {said}");
    }
    state
}

fn in_words(applied: &Applied) -> String {
    let mut words = match applied.outcome {
        Outcome::Registered { incarnation } => format!("incarnation {incarnation}"),
        Outcome::Acquired { epoch, session_present, displaced } => {
            let closes = displaced.map(|epoch| format!(" closes {epoch}")).unwrap_or_default();
            format!("c{epoch} {}{closes}", if session_present { "resumed" } else { "new" })
        }
        Outcome::Routed { index } => format!("index {index}"),
        Outcome::Done => "done".to_owned(),
        Outcome::Refused(refusal) => format!("{refusal:?}"),
        other => format!("{other:?}"),
    };
    for effect in &applied.effects {
        words += &match effect {
            Effect::WillDue { epoch, .. } => format!("; will {epoch}"),
            Effect::SessionEnded { epoch, .. } => format!("; ended {epoch}"),
            // About nodes, and what one node needs no telling of.
            _ => String::new(),
        };
    }
    words
}

#[test]
fn a_session_is_resumed_within_its_expiry_and_not_after() {
    play([
        (0, acquire("c", false, 10, None), "c1 new"),
        (0, detach("c", 1, Keep, 10), "done"),
        (9_999, acquire("c", false, 10, None), "c2 resumed"),
        (10_000, detach("c", 2, Keep, 10), "done"),
        (20_000, acquire("c", false, 10, None), "c3 new; ended 2"),
    ]);
}

#[test]
fn an_expired_session_ends_at_the_tick() {
    let state = play([
        (0, acquire("c", false, 10, None), "c1 new"),
        (5_000, detach("c", 1, Keep, 10), "done"),
        (14_999, Command::Tick, "done"),
        (15_000, Command::Tick, "done; ended 1"),
        (15_000, Command::Tick, "done"),
    ]);
    assert_eq!(state.counts().leases, 0);
    assert_eq!(state.next_due(), None);
}

#[test]
fn a_session_that_never_expires_waits_for_ever() {
    let state = play([
        (0, acquire("c", false, NEVER_EXPIRES, None), "c1 new"),
        (0, detach("c", 1, Keep, NEVER_EXPIRES), "done"),
        (u64::MAX, Command::Tick, "done"),
        (u64::MAX, acquire("c", false, 0, None), "c2 resumed"),
    ]);
    assert_eq!(state.next_due(), None);
}

#[test]
fn a_session_without_expiry_ends_with_its_connection() {
    let state = play([(0, acquire("c", true, 0, None), "c1 new"), (0, detach("c", 1, Drop, 0), "done; ended 1")]);
    assert_eq!(state.counts(), Counts { nodes: 1, ..Counts::default() });
}

#[test]
fn the_expiry_of_the_disconnect_counts() {
    play([
        (0, acquire("c", false, 100, None), "c1 new"),
        (0, detach("c", 1, Drop, 1), "done"),
        (1_000, Command::Tick, "done; ended 1"),
    ]);
}

#[test]
fn a_takeover_resumes_the_session_and_closes_the_older_connection() {
    play([
        (0, acquire("c", false, 10, None), "c1 new"),
        (0, acquire("c", false, 10, None), "c2 resumed closes 1"),
        (0, detach("c", 1, Keep, 10), "NotConnected"),
        (0, acquire("c", false, 10, None), "c3 resumed closes 2"),
    ]);
}

#[test]
fn a_clean_takeover_ends_the_session() {
    play([
        (0, acquire("c", false, 10, None), "c1 new"),
        (0, acquire("c", true, 10, None), "c2 new closes 1; ended 1"),
        (0, detach("c", 2, Keep, 10), "done"),
        (0, acquire("c", true, 10, None), "c3 new; ended 2"),
    ]);
}

#[test]
fn a_takeover_does_not_resume_a_session_that_ends_with_its_connection() {
    play([
        (0, acquire("c", true, 0, Some(30)), "c1 new"),
        (0, acquire("c", false, 10, None), "c2 new closes 1; will 1; ended 1"),
    ]);
}

#[test]
fn a_will_without_delay_is_due_with_the_connection() {
    let state = play([
        (0, acquire("c", false, 10, Some(0)), "c1 new"),
        (7, detach("c", 1, Keep, 10), "done; will 1"),
        (10_007, Command::Tick, "done; ended 1"),
    ]);
    assert_eq!(state.counts().leases, 1, "the lease stays until the Will is done");
}

#[test]
fn a_dropped_will_is_never_due() {
    play([
        (0, acquire("c", false, 10, Some(0)), "c1 new"),
        (0, detach("c", 1, Drop, 10), "done"),
        (10_000, Command::Tick, "done; ended 1"),
    ]);
}

#[test]
fn a_delayed_will_is_due_after_its_delay() {
    play([
        (0, acquire("c", false, 10, Some(5)), "c1 new"),
        (1_000, detach("c", 1, Keep, 10), "done"),
        (5_999, Command::Tick, "done"),
        (6_000, Command::Tick, "done; will 1"),
        (6_000, acquire("c", false, 10, None), "c2 resumed"),
    ]);
}

#[test]
fn a_delayed_will_does_not_outwait_its_session() {
    play([
        (0, acquire("c", false, 10, Some(50)), "c1 new"),
        (0, detach("c", 1, Keep, 10), "done"),
        (10_000, Command::Tick, "done; will 1; ended 1"),
        (10_000, acquire("c", false, 0, Some(50)), "c2 new"),
        (10_000, detach("c", 2, Keep, 0), "done; will 2; ended 2"),
    ]);
}

#[test]
fn a_resumed_session_cancels_the_waiting_will() {
    play([
        (0, acquire("c", false, 10, Some(5)), "c1 new"),
        (0, detach("c", 1, Keep, 10), "done"),
        (4_999, acquire("c", false, 10, None), "c2 resumed"),
        (60_000, Command::Tick, "done"),
    ]);
}

#[test]
fn a_will_whose_delay_is_over_is_due_even_if_nobody_ticked() {
    play([
        (0, acquire("c", false, 10, Some(5)), "c1 new"),
        (0, detach("c", 1, Keep, 10), "done"),
        (5_000, acquire("c", false, 10, None), "c2 resumed; will 1"),
    ]);
}

#[test]
fn a_clean_start_makes_the_waiting_will_due() {
    play([
        (0, acquire("c", false, 10, Some(5)), "c1 new"),
        (0, detach("c", 1, Keep, 10), "done"),
        (1_000, acquire("c", true, 10, None), "c2 new; will 1; ended 1"),
    ]);
}

#[test]
fn a_takeover_publishes_a_will_without_delay_and_cancels_one_with() {
    play([
        (0, acquire("c", false, 10, Some(0)), "c1 new"),
        (0, acquire("c", false, 10, Some(1)), "c2 resumed closes 1; will 1"),
        (0, acquire("c", false, 10, Some(1)), "c3 resumed closes 2"),
        (0, acquire("c", true, 10, None), "c4 new closes 3; will 3; ended 3"),
    ]);
}

#[test]
fn several_wills_of_one_client_may_be_due() {
    let state = play([
        (0, acquire("c", false, 0, Some(0)), "c1 new"),
        (0, detach("c", 1, Keep, 0), "done; will 1; ended 1"),
        (0, acquire("c", false, 0, Some(0)), "c2 new"),
        (0, detach("c", 2, Keep, 0), "done; will 2; ended 2"),
        (0, will_done("c", 1), "done"),
        (0, will_done("c", 1), "NotDue"),
    ]);
    assert_eq!((state.counts().leases, state.counts().wills_due), (1, 1));
}

#[test]
fn a_lease_goes_when_its_session_is_over_and_its_wills_are_done() {
    let state = play([
        (0, acquire("c", false, 0, Some(0)), "c1 new"),
        (0, will_done("c", 1), "NotDue"),
        (0, detach("c", 1, Keep, 0), "done; will 1; ended 1"),
        (0, will_done("c", 1), "done"),
    ]);
    assert_eq!(state.counts().leases, 0);
}

#[test]
fn an_epoch_never_comes_again_so_a_straggler_ends_nothing() {
    play([
        (0, acquire("c", true, 0, None), "c1 new"),
        (0, acquire("c", true, 0, None), "c2 new closes 1; ended 1"),
        (0, detach("c", 2, Keep, 0), "done; ended 2"),
        (0, acquire("c", true, 0, None), "c3 new"),
        (0, detach("c", 1, Keep, 0), "NotConnected"),
        (0, detach("c", 2, Keep, 0), "NotConnected"),
        (0, detach("c", 3, Keep, 0), "done; ended 3"),
    ]);
}

#[test]
fn a_node_that_starts_anew_with_less_keeps_its_sessions_and_not_its_routes() {
    let state = play([
        (0, acquire("c", false, 10, Some(5)), "c1 new"),
        (0, acquire("d", true, 0, None), "c1 new"),
        (0, Command::Routes { add: vec!["a".into()], remove: vec![] }, "index 4"),
        (7, restart(NODE, 1, false), "incarnation 2"),
        (7, Command::Tick, "done; ended 1"),
        (7, acquire("c", false, 10, None), "c2 resumed"),
    ]);
    assert_eq!((state.counts().routes, state.counts().connected), (0, 1));
}

#[test]
fn only_the_live_incarnation_of_a_node_is_heard() {
    let mut state = play([(0, acquire("c", false, 10, None), "c1 new")]);
    for from in [(NODE, 0), (NODE, 2), (OTHER, 1)] {
        let applied = state.apply(0, from, detach("c", 1, Keep, 0));
        assert_eq!(in_words(&applied), "NotLive");
    }
    state.apply(0, (OTHER, 0), register(OTHER));
    assert_eq!(in_words(&state.apply(0, (OTHER, 1), detach("c", 1, Keep, 0))), "NotConnected");
}

#[test]
fn time_does_not_run_backwards() {
    play([
        (10_000, acquire("c", false, 1, None), "c1 new"),
        (5_000, detach("c", 1, Keep, 1), "done"),
        (10_999, Command::Tick, "done"),
        (11_000, Command::Tick, "done; ended 1"),
    ]);
}

#[test]
fn due_events_of_many_clients_come_in_slices_and_in_the_order_of_their_time() {
    let mut state = play([]);
    let clients = TICK_EVENTS_MAX as u32 + 10;
    for number in 1..=clients {
        let client = format!("{number}");
        state.apply(0, (NODE, 1), acquire(&client, false, 1, None));
        // The later the client came, the earlier its session ends.
        state.apply(0, (NODE, 1), detach(&client, 1, Keep, 1 + clients - number));
    }
    let mut ended = Vec::new();
    for expected in [TICK_EVENTS_MAX, 10, 0] {
        let applied = state.apply(u64::MAX, (NODE, 1), Command::Tick);
        assert_eq!(applied.effects.len(), expected);
        ended.extend(applied.effects.into_iter().map(|effect| match effect {
            Effect::SessionEnded { client, .. } => client.parse::<u32>().unwrap(),
            other => panic!("{other:?}"),
        }));
    }
    assert!(ended.is_sorted_by(|earlier, later| earlier > later));
}

#[test]
fn a_route_keeps_the_index_that_added_it() {
    let routes = |add: &[&str], remove: &[&str]| Command::Routes {
        add: add.iter().map(|&filter| filter.into()).collect(),
        remove: remove.iter().map(|&filter| filter.into()).collect(),
    };
    let state = play([
        (0, routes(&["a", "b/#"], &[]), "index 2"),
        (0, routes(&["a"], &[]), "index 2"),
        (0, routes(&["a", "c"], &[]), "index 4"),
        (0, routes(&[], &["b/#", "unknown"]), "index 0"),
        (0, routes(&["a"], &["a"]), "index 6"),
    ]);
    assert_eq!(state.route(&"a".into()).collect::<Vec<_>>(), [(NODE, 6)]);
    assert_eq!(state.route(&"b/#".into()).count(), 0);
    let filters: Vec<_> = state.routes().map(|(filter, ..)| &**filter).collect();
    assert_eq!(filters, ["a", "c"]);
}

#[test]
fn routes_of_two_nodes_do_not_touch_one_another() {
    let mut state = play([]);
    state.apply(0, (OTHER, 0), register(OTHER));
    let group: ShareRoute = ("g".into(), "a".into());
    let one = ShareMembers::new(1, false);
    for (node, remove) in [(NODE, vec![]), (OTHER, vec![]), (NODE, vec![group.clone()])] {
        let set = if remove.is_empty() { vec![(group.clone(), one)] } else { vec![] };
        state.apply(0, (node, 1), Command::ShareRoutes { set, remove });
    }
    assert_eq!(state.share_route(&group).collect::<Vec<_>>(), [(OTHER, 4, one)]);
    assert_eq!(state.share_routes().collect::<Vec<_>>(), [(&group, OTHER, 4, one)]);
    assert_eq!(state.counts().share_routes, 1);
}
