//! A model of lease, move and expiry, explored in full: three nodes, one client id, two messages, one crash, one cut.
//!
//! It is written from the rules and not from the code, and finds what is wrong with the rules. That each rule is needed is shown by taking it
//! out: then the exploration finds an execution that breaks a promise. `--ignored` runs larger explorations.
//!
//! | file | what it is |
//! | --- | --- |
//! | `control.rs` | the lease and its commands; the rules that can be taken out |
//! | `cluster.rs` | nodes, log, links, client |
//! | `apply.rs`, `steps.rs` | what can happen |
//! | `properties.rs` | what must hold |
//! | `copies/` | a second model: heirs, fills, and what a session survives |
//!
//! Read first: [`a_move_keeps_its_promises`].

mod apply;
mod cluster;
mod control;
mod copies;
mod properties;
mod steps;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

use stateright::{Checker as _, Expectation, HasDiscoveries, Model};

use cluster::{Budget, State};
use control::{Rule, Will};
use steps::Scenario;

const NOTHING: Budget = Budget {
    messages: 0,
    connects: 0,
    crashes: 0,
    cuts: 0,
    drops: 0,
    goodbyes: 0,
    withdrawals: 0,
    session_expiries: 0,
};

/// Nothing happens.
const STILL: Scenario =
    Scenario { budget: NOTHING, will: None, clean: false, restarts: true, connect_at: &[0, 1], without: None };

/// What stateright wants of a model.
trait Explored:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
    + Send
    + Sync
    + 'static
{
}

impl Explored for Scenario {}
impl Explored for copies::Scenario {}

/// Explores everything; a property that does not hold everywhere is shown with the steps that lead there.
fn holds(scenario: Scenario) {
    explore(scenario, &[properties::MOVED], &[]);
}

/// Without the rule, there is an execution that breaks the property.
fn is_needed(rule: Rule, property: &'static str, scenario: Scenario) {
    find_broken(property, Scenario { without: Some(rule), ..scenario });
}

/// Explores everything: some execution shows each of `seen`, and exactly these properties are `broken`.
fn explore<M: Explored>(model: M, seen: &[&'static str], broken: &[&'static str]) {
    let begun = std::time::Instant::now();
    let is_shown = |property: &stateright::Property<M>| property.expectation == Expectation::Sometimes;
    let shown: Vec<_> =
        model.properties().iter().filter(|property| is_shown(property)).map(|shown| shown.name).collect();
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} states in {:?}", checker.unique_state_count(), begun.elapsed());
    let mut discoveries = checker.discoveries();
    for shown in shown {
        assert!(discoveries.remove(shown).is_some() || !seen.contains(&shown), "in no execution: {shown}");
    }
    for property in broken {
        let path = discoveries.remove(property).unwrap_or_else(|| panic!("nothing breaks any more: {property}"));
        println!("broken: {property}\nafter {:?}", path.into_actions());
    }
    if let Some((property, path)) = discoveries.into_iter().next() {
        panic!("broken: {property}\nafter {:#?}\nat {:#?}", path.clone().into_actions(), path.last_state());
    }
}

/// There is an execution that breaks the property.
fn find_broken<M: Explored>(property: &'static str, model: M) {
    let finish = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = model.checker().threads(2).finish_when(finish).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("nothing breaks: {property}"));
    println!("broken: {property}\nafter {:?}", path.into_actions());
}

/// Looks for a state that comes again, depth first.
fn ends(scenario: Scenario) {
    // By hash, as stateright does; whether the steps from it have all been followed.
    let mut done: HashMap<u64, bool> = HashMap::new();
    let mut path: Vec<(u64, Vec<State>)> = Vec::new();
    let mut next = scenario.init_states().pop();
    loop {
        if let Some(state) = next.take() {
            let print = BuildHasherDefault::<DefaultHasher>::default().hash_one(&state);
            match done.get(&print) {
                Some(true) => {}
                Some(false) => panic!("this state comes again: {state:#?}"),
                None => {
                    done.insert(print, false);
                    path.push((print, scenario.next_steps(&state).into_iter().map(|(_, state)| state).collect()));
                }
            }
        }
        let Some((print, states)) = path.last_mut() else { break };
        next = states.pop();
        if next.is_none() {
            done.insert(*print, true);
            path.pop();
        }
    }
    println!("{} states, none comes again", done.len());
}

#[test]
fn a_move_keeps_its_promises() {
    let budget = Budget { messages: 2, connects: 1, ..NOTHING };
    holds(Scenario { budget, connect_at: &[0, 1, 2], clean: true, ..STILL });
}

#[test]
fn a_move_with_a_crash_and_a_cut_keeps_its_promises() {
    let budget = Budget { messages: 2, connects: 1, crashes: 1, cuts: 1, ..NOTHING };
    holds(Scenario { budget, connect_at: &[1], ..STILL });
}

#[test]
fn a_move_to_the_node_of_the_publisher_keeps_its_promises() {
    let budget = Budget { messages: 2, connects: 1, crashes: 1, withdrawals: 1, ..NOTHING };
    holds(Scenario { budget, connect_at: &[2], ..STILL });
}

#[test]
fn two_moves_keep_their_promises() {
    let budget = Budget { messages: 2, connects: 2, withdrawals: 1, ..NOTHING };
    holds(Scenario { budget, connect_at: &[0, 1, 2], ..STILL });
}

#[test]
fn two_moves_with_a_crash_keep_their_promises() {
    let budget = Budget { messages: 1, connects: 2, crashes: 1, ..NOTHING };
    holds(Scenario { budget, ..STILL });
}

#[test]
fn a_will_without_delay_is_published_once() {
    let budget = Budget { connects: 1, crashes: 1, cuts: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Immediate), connect_at: &[1], ..STILL });
}

#[test]
fn a_will_with_delay_is_published_once_or_cancelled() {
    let budget = Budget { connects: 1, crashes: 1, drops: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Delayed), connect_at: &[1], ..STILL });
}

#[test]
fn wills_of_clients_that_come_back_are_published_once() {
    let budget = Budget { connects: 2, drops: 1, withdrawals: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Immediate), clean: true, ..STILL });
    let budget = Budget { connects: 2, crashes: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Immediate), ..STILL });
}

#[test]
fn a_goodbye_at_the_moment_of_a_claim_leaves_no_will() {
    for will in [Will::Immediate, Will::Delayed] {
        let budget = Budget { connects: 2, goodbyes: 1, withdrawals: 1, ..NOTHING };
        holds(Scenario { budget, will: Some(will), clean: true, ..STILL });
    }
    let budget = Budget { connects: 1, goodbyes: 1, crashes: 1, cuts: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Immediate), connect_at: &[1], clean: true, ..STILL });
}

#[test]
fn clean_starts_and_the_end_of_the_session_keep_their_promises() {
    let budget = Budget { messages: 1, connects: 1, drops: 1, session_expiries: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Delayed), clean: true, ..STILL });
}

#[test]
fn a_will_with_delay_and_a_cut_keep_their_promises() {
    let budget = Budget { connects: 1, cuts: 1, drops: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Delayed), connect_at: &[1], clean: true, ..STILL });
}

/// With this, that an execution has come to a good end wherever it stops means that each does.
#[test]
fn no_execution_goes_on_for_ever() {
    let budget = Budget { messages: 1, connects: 1, crashes: 1, cuts: 1, ..NOTHING };
    ends(Scenario { budget, connect_at: &[1], ..STILL });
    let budget = Budget { connects: 1, crashes: 1, drops: 1, withdrawals: 1, session_expiries: 1, ..NOTHING };
    ends(Scenario { budget, will: Some(Will::Immediate), connect_at: &[1], clean: true, ..STILL });
}

/// Minutes and gigabytes: `cargo test --release -p holdfast-raft --test model -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn everything_at_once_keeps_its_promises() {
    let will = Some(Will::Immediate);
    let budget = Budget { messages: 2, connects: 1, crashes: 1, cuts: 1, ..NOTHING };
    holds(Scenario { budget, will, connect_at: &[1], ..STILL });
    let budget = Budget { messages: 1, connects: 2, crashes: 1, drops: 1, ..NOTHING };
    holds(Scenario { budget, will, clean: true, ..STILL });
    let budget = Budget { messages: 1, connects: 1, crashes: 1, cuts: 1, ..NOTHING };
    holds(Scenario { budget, will: Some(Will::Delayed), connect_at: &[1], ..STILL });
}

#[test]
fn each_rule_is_needed() {
    let moved = Scenario { budget: Budget { messages: 2, connects: 2, ..NOTHING }, ..STILL };
    is_needed(Rule::HolderMovesAtSettle, properties::NOTHING_LOST, moved);
    is_needed(Rule::MarksBeforeState, properties::NOTHING_LOST, moved);
    is_needed(Rule::SeenMovesToo, properties::NOTHING_TWICE, moved);

    let clean = Scenario { clean: true, ..moved };
    is_needed(Rule::YieldBeforeService, properties::ONE_CONNECTION, clean);

    let died = Scenario { budget: Budget { connects: 1, crashes: 1, ..NOTHING }, connect_at: &[1], ..STILL };
    is_needed(Rule::ClaimEndsWithItsNode, properties::EVERYTHING_ENDS, died);
    is_needed(Rule::ClaimEndsWithHolder, properties::EVERYTHING_ENDS, died);

    let delayed = Scenario { will: Some(Will::Delayed), ..died };
    is_needed(Rule::WillBeforeSettle, properties::WILL_BEFORE_SUCCESSOR, delayed);
    is_needed(Rule::WillStaysInClaim, properties::WILL_AT_MOST_ONCE, delayed);
    let immediate = Scenario { will: Some(Will::Immediate), ..died };
    is_needed(Rule::WillOutlivesPublisher, properties::EVERYTHING_ENDS, immediate);
    let bye = Scenario { budget: Budget { connects: 1, goodbyes: 1, ..NOTHING }, connect_at: &[1], ..immediate };
    is_needed(Rule::HomeSaysHowItEnded, properties::NO_WILL_AFTER_GOODBYE, bye);
}
