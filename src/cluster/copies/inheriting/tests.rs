//! What becomes of copies and sessions, in whatever order is heard of them.

use std::collections::BTreeMap;

use super::*;

const DEAD: NodeId = NodeId(7);
const LIFE: Life = (DEAD, 3);

fn found(owner: u64, client: &str, began: u64) -> Found<u8> {
    let copied = Copied {
        owner: OwnerId(owner),
        client_id: client.into(),
        began,
        complete: true,
        items: BTreeMap::new(),
        ahead: Vec::new(),
    };
    Found { copied, seen: 0 }
}

fn unfinished(owner: u64, client: &str) -> Found<u8> {
    let mut found = found(owner, client, 1);
    found.copied.complete = false;
    found
}

fn passed(began: u64) -> Passed {
    Passed { epoch: 9, began, expiry_secs: 60, without: Without::Lost }
}

fn pass(inheriting: &mut Inheriting<u8>, client: &str, passed: Passed) -> bool {
    inheriting.passed_on(DEAD, &client.into(), passed)
}

/// What is carried out, in words.
fn said(inheriting: &mut Inheriting<u8>) -> Vec<String> {
    said_of(inheriting, LIFE.into())
}

fn said_of(inheriting: &mut Inheriting<u8>, expected: Way) -> Vec<String> {
    let next = inheriting.next(usize::MAX).into_iter().map(|(of, heritage)| {
        assert_eq!(of, expected);
        match heritage {
            Heritage::Session { client, found, .. } => format!("{client} from {}", found.copied.owner.0),
            Heritage::Empty { client, .. } => format!("{client} is empty"),
            Heritage::Lost { client, .. } => format!("{client} is lost"),
            Heritage::Drop { owner } => format!("drop {}", owner.0),
        }
    });
    next.collect()
}

#[test]
fn what_has_passed_is_entered_and_the_rest_is_dropped() {
    let mut inheriting = Inheriting::new(2);
    assert!(inheriting.begin(LIFE));
    assert!(pass(&mut inheriting, "a", passed(1)));
    inheriting.told(LIFE, vec![found(20, "a", 1), found(21, "b", 1), unfinished(22, "c")]);
    assert!(pass(&mut inheriting, "c", passed(1)));
    assert!(pass(&mut inheriting, "d", Passed { without: Without::Empty, ..passed(1) }));
    inheriting.passed_on_all(LIFE);
    assert!(said(&mut inheriting).is_empty(), "a shard has not told");
    assert!(inheriting.awaits("a") && !inheriting.awaits("b") && !inheriting.has_entered(LIFE));
    inheriting.told(LIFE, vec![]);
    assert_eq!(said(&mut inheriting), ["a from 20", "c is lost", "d is empty", "drop 21", "drop 22"]);
    assert_eq!(inheriting.entered(), [Way::Inherited(LIFE)]);
    assert!(inheriting.entered().is_empty(), "told once");
    assert!(!inheriting.awaits("a") && inheriting.has_entered(LIFE));
    assert!(!pass(&mut inheriting, "e", passed(1)), "nothing more is inherited");
    inheriting.ended(LIFE);
    assert!(inheriting.of.is_empty());
}

#[test]
fn a_shard_may_tell_before_this_one_knows_of_the_death() {
    let mut inheriting = Inheriting::new(1);
    inheriting.told(LIFE, vec![found(20, "a", 1)]);
    assert!(!inheriting.begin(LIFE));
    assert!(pass(&mut inheriting, "a", passed(1)));
    assert!(inheriting.next(9).is_empty(), "more may pass");
    inheriting.passed_on_all(LIFE);
    assert_eq!(said(&mut inheriting), ["a from 20"]);
}

#[test]
fn of_two_copies_of_the_session_the_newer_is_taken() {
    let mut inheriting = Inheriting::new(2);
    inheriting.told(LIFE, vec![found(30, "a", 4), found(20, "b", 5), found(40, "c", 1)]);
    inheriting.told(LIFE, vec![found(20, "a", 5), found(25, "b", 5), found(41, "c", 7)]);
    for client in ["a", "b", "c"] {
        pass(&mut inheriting, client, passed(5));
    }
    inheriting.passed_on_all(LIFE);
    // That of c has moved since it began; the first of a is of an earlier session.
    assert_eq!(said(&mut inheriting), ["a from 20", "b from 25", "c from 41", "drop 20", "drop 30", "drop 40"]);
}

#[test]
fn it_is_carried_out_in_slices() {
    let mut inheriting = Inheriting::new(1);
    inheriting.told(LIFE, vec![found(20, "a", 1), found(21, "b", 1), found(22, "c", 1)]);
    inheriting.begin(LIFE);
    pass(&mut inheriting, "b", passed(1));
    inheriting.passed_on_all(LIFE);
    assert_eq!(inheriting.next(2).len(), 2);
    assert!(inheriting.entered().is_empty());
    assert_eq!(inheriting.next(2).len(), 1);
    assert_eq!(inheriting.entered(), [Way::Inherited(LIFE)]);
}

#[test]
fn who_is_no_heir_any_more_keeps_what_has_passed_to_it_and_not_away() {
    let mut inheriting = Inheriting::new(1);
    inheriting.begin(LIFE);
    pass(&mut inheriting, "a", passed(1));
    pass(&mut inheriting, "b", passed(1));
    inheriting.passed_away("b");
    inheriting.ended(LIFE);
    assert!(!inheriting.has_entered(LIFE));
    inheriting.told(LIFE, vec![found(20, "a", 1), found(21, "b", 1)]);
    assert_eq!(said(&mut inheriting), ["a from 20", "drop 21"]);
    assert_eq!(inheriting.entered(), [Way::Inherited(LIFE)]);
    assert!(inheriting.of.is_empty(), "it had ended before");
}

#[test]
fn lives_are_inherited_one_by_one() {
    let mut inheriting = Inheriting::new(1);
    let later = (DEAD, 4);
    inheriting.begin(LIFE);
    inheriting.passed_on_all(LIFE);
    inheriting.told(LIFE, vec![]);
    assert!(inheriting.next(9).is_empty());
    assert_eq!(inheriting.entered(), [Way::Inherited(LIFE)]);
    assert!(inheriting.begin(later) && !inheriting.begin(LIFE));
    assert!(pass(&mut inheriting, "a", passed(1)));
    assert!(inheriting.has_entered(LIFE) && !inheriting.has_entered(later));
}

#[test]
fn what_passes_when_nothing_is_inherited_is_searched_in_every_shard() {
    let mut inheriting = Inheriting::new(2);
    assert!(!pass(&mut inheriting, "a", passed(5)), "nothing is inherited from that node");
    inheriting.want(&"b".into(), Passed { without: Without::Nothing, ..passed(1) });
    inheriting.want(&"c".into(), Passed { without: Without::Empty, ..passed(1) });
    inheriting.want(&"d".into(), passed(1));
    inheriting.want(&"e".into(), passed(1));
    inheriting.passed_away("e");
    assert!(inheriting.awaits("a") && !inheriting.awaits("e") && inheriting.searches());
    let (search, clients) = inheriting.begin_search().expect("there is something to be searched");
    assert_eq!(clients.iter().map(|client| &**client).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert!(inheriting.begin_search().is_none() && inheriting.awaits("a"));
    let search = Way::Searched(search);
    inheriting.told(search, vec![found(20, "a", 5), found(30, "a", 4)]);
    assert!(inheriting.next(9).is_empty(), "a shard has not told");
    inheriting.told(search, vec![found(21, "a", 6)]);
    assert_eq!(said_of(&mut inheriting, search), ["a from 21", "c is empty", "d is lost", "drop 20", "drop 30"]);
    assert_eq!(inheriting.entered(), [search]);
    assert!(!inheriting.awaits("a") && !inheriting.searches());
}

#[test]
fn nothing_is_entered_before_all_others_know_of_the_death() {
    let (b, c) = ((NodeId(8), 0), (NodeId(9), 1));
    let dead = (DEAD.tag(), 3);
    let mut inheriting = Inheriting::new(1);
    inheriting.heard(dead, b);
    inheriting.begin(LIFE);
    inheriting.wait_for_news(LIFE, [b, c, (NodeId(9), 0), (NodeId(10), 0)]);
    assert!(!inheriting.is_unaware(LIFE, b) && inheriting.is_unaware(LIFE, c));
    pass(&mut inheriting, "a", passed(1));
    inheriting.told(LIFE, vec![found(20, "a", 1)]);
    inheriting.passed_on_all(LIFE);
    inheriting.heard((DEAD.tag(), 2), c);
    assert!(said(&mut inheriting).is_empty(), "that was about an earlier life");
    inheriting.heard(dead, c);
    inheriting.source_gone(NodeId(10));
    assert!(said(&mut inheriting).is_empty(), "one of them");
    let mut late = inheriting.stop_waiting_for_news(LIFE);
    assert_eq!((late.pop_first(), late.len()), (Some((NodeId(9), 0)), 0));
    assert_eq!(said(&mut inheriting), ["a from 20"]);
}

#[test]
fn what_is_known_early_is_bounded_and_goes_with_its_node() {
    let mut inheriting = Inheriting::<u8>::new(1);
    (0..=EARLY_MAX as u64).for_each(|incarnation| inheriting.heard((1, incarnation), (NodeId(8), 0)));
    assert_eq!(inheriting.early.len(), EARLY_MAX);
    inheriting.source_gone(NodeId(8));
    assert!(inheriting.early.is_empty());
}
