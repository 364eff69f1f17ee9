//! A second model: one session, its home, one heir, and a fill; who dies, starts again, or loses what it had, and when, is open.
//!
//! Like the first it is written from the rules, and each rule can be taken out. What is promised: as long as nodes come back with what they had, nothing is lost, however
//! often they die; and once the copies are complete, one of them may lose everything.
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

use std::collections::BTreeSet;

use stateright::{Checker as _, HasDiscoveries, Model as _};

use control::Rule;
use steps::Scenario;
use world::Budget;

const NOTHING: Budget = Budget { messages: 0, crashes: 0, freezes: 0, losses: 0, fills: 0, joins: 0 };

/// Explores everything; some execution has to show each of `seen`.
fn holds(budget: Budget, will: bool, seen: &[&'static str]) {
    let begun = std::time::Instant::now();
    let scenario = Scenario { budget, will, without: None };
    let checker = scenario.checker().threads(2).spawn_bfs().join();
    println!("{} states in {:?}", checker.unique_state_count(), begun.elapsed());
    let mut discoveries = checker.discoveries();
    for shown in [properties::INHERITED, properties::FILLED] {
        assert!(discoveries.remove(shown).is_some() || !seen.contains(&shown), "in no execution: {shown}");
    }
    if let Some((property, path)) = discoveries.into_iter().next() {
        panic!("broken: {property}\nafter {:?}\nat {:?}", path.clone().into_actions(), path.last_state());
    }
}

/// Without the rule, there is an execution that breaks the property.
fn is_needed(rule: Rule, property: &'static str, budget: Budget) {
    let scenario = Scenario { budget, will: true, without: Some(rule) };
    let finish = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = scenario.checker().threads(2).finish_when(finish).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("nothing breaks without {rule:?}"));
    println!("without {rule:?}: {:?}", path.into_actions());
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

/// Minutes and gigabytes: `cargo test --release -p holdfast-raft --test model -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn whatever_ends_twice_has_lost_nothing() {
    for (crashes, freezes, losses) in [(2, 0, 0), (1, 1, 0), (0, 2, 0), (1, 0, 1), (0, 1, 1)] {
        let budget = Budget { messages: 1, crashes, freezes, losses, ..NOTHING };
        holds(budget, false, &[properties::INHERITED]);
    }
    let crashes = Budget { crashes: 2, ..NOTHING };
    is_needed(Rule::NamesOutliveWills, properties::WILL_ONCE, crashes);
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
