//! A second model: one session, its home, one heir, and a fill; who dies, starts again, or loses what it had, and when, is open.
//!
//! Like the first it is written from the rules, and each rule can be taken out. What is promised: as long as nodes come back with what they had, nothing is lost, however
//! often they die; and once the copies are complete, one of them may lose everything. Of two faults, the second before the copies are complete again, there are two executions that do not
//! keep that; they have a test each, which explores the rest.
//!
//! | file | what it is |
//! | --- | --- |
//! | `control.rs` | the lease, who has copies, and the commands; the rules that can be taken out |
//! | `world.rs` | nodes, log, links, the publisher's node |
//! | `apply.rs`, `steps.rs` | what can happen |
//! | `properties.rs` | what must hold |
//!
//! Read first: [`a_home_that_is_lost_is_inherited_from`].

mod apply;
mod control;
mod properties;
mod steps;
mod world;

use control::Rule;
pub use steps::Scenario;
use world::Budget;

const NOTHING: Budget = Budget { messages: 0, crashes: 0, freezes: 0, losses: 0, fills: 0, joins: 0 };

/// Explores everything; some execution has to show each of `seen`.
fn holds(budget: Budget, will: bool, seen: &[&'static str]) {
    crate::explore(Scenario { budget, will, without: None }, seen, &[]);
}

/// Explores everything; exactly these properties do not hold. A rule that mends one has to be told here.
fn breaks(budget: Budget, broken: &[&'static str]) {
    crate::explore(Scenario { budget, will: false, without: None }, &[properties::INHERITED], broken);
}

/// Whether `HOLDFAST_ROUNDS` asks for the largest explorations, which take minutes.
fn is_full() -> bool {
    std::env::var("HOLDFAST_ROUNDS").is_ok_and(|asked| asked == "full")
}

/// Without the rule, there is an execution that breaks the property.
fn is_needed(rule: Rule, property: &'static str, budget: Budget) {
    println!("without {rule:?}");
    crate::find_broken(property, Scenario { budget, will: true, without: Some(rule) });
}

#[test]
fn a_home_that_is_lost_is_inherited_from() {
    let budget = Budget { messages: 1, losses: 1, ..NOTHING };
    holds(budget, true, &[properties::INHERITED]);
}

#[test]
fn a_new_heir_inherits_what_it_has_been_filled_with() {
    let budget = Budget { messages: 1, losses: 1, joins: 1, fills: 1, ..NOTHING };
    holds(budget, false, &[properties::INHERITED, properties::FILLED]);
}

#[test]
fn a_node_that_starts_again_has_lost_nothing() {
    let budget = Budget { messages: 1, crashes: 1, ..NOTHING };
    holds(budget, true, &[properties::INHERITED]);
    let budget = Budget { messages: 1, freezes: 1, ..NOTHING };
    holds(budget, true, &[properties::INHERITED]);
}

#[test]
fn whatever_ends_twice_has_lost_nothing() {
    for (crashes, freezes) in [(2, 0), (1, 1), (0, 2)] {
        holds(Budget { crashes, freezes, ..NOTHING }, false, &[properties::INHERITED]);
    }
    is_needed(Rule::NamesOutliveWills, properties::WILL_ONCE, Budget { crashes: 2, ..NOTHING });
}

/// A promise that is not kept. Node 1 has inherited the session, and ends before its copies are complete. What is owed to it goes to its heir, node 2, which has no copy, gives the session
/// back, and has inherited. Node 1 is back with the session, and only then node 2 takes what is owed: it accepts what nobody there wants, and the publisher is answered.
#[test]
fn an_heir_that_has_given_a_session_back_accepts_what_is_owed_to_it() {
    let broken = [properties::EVERYTHING_ENDS, properties::NOTHING_LOST];
    let all = [(0, 2), (1, 1), (2, 0)];
    for &(crashes, freezes) in if is_full() { &all[..] } else { &all[..1] } {
        breaks(Budget { messages: 1, crashes, freezes, ..NOTHING }, &broken);
    }
}

/// A promise that is not kept. Node 0 has lost what it had and says so, and its heir is to inherit; but that ends too before the session has passed to it. So nobody is to inherit, and node 0
/// may register before the heir, which has all of the session, is back and has said so. It takes up the session, has nothing, and the session is over.
#[test]
fn a_home_that_has_lost_what_it_had_may_be_back_before_its_heir_has_found_the_session() {
    let broken = [properties::EVERYTHING_ENDS, properties::SESSION_STAYS];
    for (crashes, freezes) in [(1, 0), (0, 1)] {
        breaks(Budget { crashes, freezes, losses: 1, ..NOTHING }, &broken);
    }
    let broken = [broken[0], broken[1], properties::NOTHING_LOST];
    let all = [(0, 1), (1, 0)];
    for &(crashes, freezes) in if is_full() { &all[..] } else { &all[..1] } {
        breaks(Budget { messages: 1, crashes, freezes, losses: 1, ..NOTHING }, &broken);
    }
}

#[test]
fn each_rule_of_copies_is_needed() {
    let lost = Budget { messages: 1, losses: 1, ..NOTHING };
    is_needed(Rule::OrphansCount, properties::NOTHING_LOST, lost);
    is_needed(Rule::OrphanLegs, properties::NOTHING_LOST, lost);
    is_needed(Rule::SeenIsCopied, properties::NOTHING_TWICE, lost);
    is_needed(Rule::HeardInItsLife, properties::NOTHING_LOST, lost);
    is_needed(Rule::LessIsSaid, properties::SESSION_STAYS, lost);
    let joins = Budget { joins: 1, fills: 1, ..lost };
    is_needed(Rule::BothPicks, properties::NOTHING_LOST, joins);
    let crashes = Budget { messages: 1, crashes: 2, ..NOTHING };
    is_needed(Rule::LostGoesBack, properties::SESSION_STAYS, crashes);
    is_needed(Rule::InheritedIsNotWhole, properties::NOTHING_LOST, crashes);
}
