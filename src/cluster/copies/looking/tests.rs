//! What follows from how the control state stands.

use holdfast_storage::OwnerId;

use super::*;
use crate::cluster::copies::inheriting::Without;
use crate::cluster::copies::{CopyEntry, Home};

const DEAD: NodeId = NodeId(7);
const OTHER: NodeId = NodeId(8);

fn passed(began: u64) -> Passed {
    Passed { epoch: 9, began, expiry_secs: 60, without: Without::Lost }
}

/// Complete copies of sessions, each of a client and the connection that began it; one of `unfinished` that is not complete.
fn copies(node: NodeId, sessions: &[(&str, u64)], unfinished: Option<&str>) -> Copies {
    let mut copies = Copies::default();
    let mut entries = Vec::new();
    for (owner, (client, began)) in (1..).map(OwnerId).zip(sessions) {
        entries.push(CopyEntry::Begin { owner, client_id: (*client).into(), began: *began });
        entries.push(CopyEntry::Complete { owner });
    }
    if let Some(client) = unfinished {
        entries.push(CopyEntry::Begin { owner: OwnerId(99), client_id: client.into(), began: 1 });
    }
    let mut last = 100;
    let new_owner = || {
        last += 1;
        OwnerId(last)
    };
    copies.handle(Home { node, shard: 0 }, 1, entries, new_owner).expect("there is room");
    copies
}

fn outlook(own: &[(&str, Option<NodeId>)], missing: &[(&str, u64)]) -> Outlook {
    let own = own.iter().map(|(client, from)| ((*client).into(), Own { passed: passed(1), from: *from })).collect();
    let missing = missing.iter().map(|(client, began)| ((*client).into(), (DEAD, *began))).collect();
    Outlook { own, missing, open: Vec::new(), live: vec![OTHER] }
}

fn names<'a>(clients: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<&'a str> {
    clients.into_iter().map(|client| &**client).collect()
}

/// It had entered "a" before it was killed, and is still to enter "b".
#[test]
fn a_node_that_starts_again_goes_on_where_it_was() {
    let mut copies = copies(DEAD, &[("b", 1), ("x", 1)], None);
    let before = copies.clone();
    let state = Outlook {
        open: vec![((DEAD, 3), true), ((OTHER, 1), false)],
        live: Vec::new(),
        ..outlook(&[("a", Some(DEAD)), ("b", Some(DEAD)), ("c", None), ("d", Some(OTHER)), ("e", None)], &[])
    };
    let tasks = state.tasks(|client| client != "e", |client| client == "a", &mut copies);
    let passes: Vec<_> = tasks.passes.iter().map(|(from, client, _)| (*from, &**client)).collect();
    assert_eq!(passes, [(DEAD, "a"), (DEAD, "b"), (OTHER, "d")]);
    assert_eq!(tasks.passed_on_all, [(DEAD, 3)]);
    assert_eq!(names(tasks.searches.iter().map(|(client, _)| client)), ["c"]);
    // All of the dead node is taken over when all of it is known.
    assert!(tasks.found.is_empty() && tasks.writes.is_empty() && copies == before);
}

/// The others gave it up while it inherited, and nobody waits for it any more; it may be back before or after the node from which it inherited.
#[test]
fn what_has_passed_to_a_node_that_was_given_up_is_searched_in_all_that_it_has() {
    for live in [vec![], vec![DEAD]] {
        let mut copies = copies(DEAD, &[("a", 1), ("b", 1)], None);
        let state = Outlook { live, ..outlook(&[("a", Some(DEAD)), ("b", Some(DEAD))], &[]) };
        let tasks = state.tasks(|client| client == "a", |_| false, &mut copies);
        assert_eq!(names(tasks.searches.iter().map(|(client, _)| client)), ["a"]);
        assert!(tasks.passes.is_empty() && tasks.writes.is_empty());
        // The shard of the other asks for it.
        assert_eq!(copies.complete_of(DEAD).count(), 2);
        let taken = copies.take_some(|client| client == "a");
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].0, &*taken[0].1.sessions[0].client_id, taken[0].1.streams_owner), (DEAD, "a", None));
        assert_eq!(copies.complete_of(DEAD).count(), 1);
    }
}

#[test]
fn a_missing_session_is_found_if_its_copy_is_complete_and_not_older() {
    let mut copies = copies(DEAD, &[("a", 5), ("b", 4), ("c", 6), ("d", 5), ("x", 5)], Some("e"));
    let state = outlook(&[("d", None)], &[("a", 5), ("b", 5), ("c", 5), ("e", 1), ("f", 1)]);
    let tasks = state.tasks(|_| true, |client| client == "d", &mut copies);
    assert_eq!(names(&tasks.found), ["a", "c"]);
    // That of x is nobody's; what is not dropped may still be of use.
    assert_eq!(tasks.writes, [Write::Drop { owner: OwnerId(105) }]);
    assert_eq!(copies.complete_of(DEAD).count(), 4);
    assert!(tasks.searches.is_empty());
}

#[test]
fn copies_of_the_dead_that_are_nobodys_are_dropped_and_those_of_the_living_stay() {
    let mut of_dead = copies(DEAD, &[("a", 1), ("b", 1)], Some("c"));
    let state = outlook(&[], &[]);
    let tasks = state.tasks(|_| true, |_| false, &mut of_dead);
    assert_eq!(tasks.writes.len(), 4, "three copies, and the streams");
    assert_eq!(of_dead, Copies::default());
    let mut of_living = copies(OTHER, &[("a", 1)], None);
    assert_eq!(state.tasks(|_| true, |_| false, &mut of_living), Tasks::default());
    assert_eq!(of_living.nodes().collect::<Vec<_>>(), [OTHER]);
}
