//! What must hold in every state, and when nothing more can happen.

use stateright::{Model as _, Property};

use super::control::Will;
use super::steps::Scenario;
use super::world::State;
use crate::control::{NODES, Set, has, only};

/// I2.
pub const NOTHING_LOST: &str = "an acknowledged message is in the session, or kept until it is";
/// I3.
pub const SESSION_STAYS: &str = "a session does not end because of deaths";
pub const ONE_HOME: &str = "a session is at one node";
/// I5.
pub const NOTHING_TWICE: &str = "no message is taken twice";
/// I7.
pub const WILL_ONCE: &str = "a Will is published once";
pub const EVERYTHING_ENDS: &str =
    "in the end the session is at a live node, with all messages, and its Will is published";
/// Not promises: without them an exploration would have shown nothing.
pub const INHERITED: &str = "a session has been inherited";
pub const FILLED: &str = "copies have become complete at another node";

pub fn all() -> Vec<Property<Scenario>> {
    vec![
        Property::always(NOTHING_LOST, |_, state| nothing_lost(state)),
        Property::always(SESSION_STAYS, |_, state: &State| !state.head.ended),
        Property::always(ONE_HOME, |_, state: &State| {
            (0..NODES).filter(|&node| state.acts(node) && state.node(node).own.is_some()).count() <= 1
        }),
        Property::always(NOTHING_TWICE, |_, state: &State| !state.twice),
        Property::always(WILL_ONCE, |_, state: &State| !state.will_repeated),
        Property::always(EVERYTHING_ENDS, |scenario: &Scenario, state| {
            let mut steps = Vec::new();
            scenario.actions(state, &mut steps);
            !steps.is_empty() || is_quiet(scenario, state)
        }),
        Property::sometimes(INHERITED, |_, state: &State| {
            state.head.holder != 0 && state.node(state.head.holder).own.is_some()
        }),
        Property::sometimes(FILLED, |_, state: &State| {
            state.head.holder == 0 && state.head.heirs[0].base & 0b100 != 0 && state.head.heirs[0].whole
        }),
    ]
}

/// Looked at where the session is; while it is nowhere, it comes back with all that it had, or what is missing is seen then.
fn nothing_lost(state: &State) -> bool {
    let head = &state.head;
    let Some(own) = state.node(head.holder).own.filter(|_| state.acts(head.holder)) else { return true };
    let kept = (0..2).filter(|&message: &u8| state.kept[usize::from(message)] != 0);
    let kept: Set = kept.map(only).sum();
    state.acknowledged & !(own.queue | kept | state.excused) == 0
}

/// Nothing can happen any more.
fn is_quiet(scenario: &Scenario, state: &State) -> bool {
    let head = &state.head;
    let own = state.node(head.holder).own.filter(|_| state.acts(head.holder));
    let has_all = own.is_some_and(|own| state.acknowledged & !(own.queue | state.excused) == 0);
    let answered = (0..state.published).all(|message| has(state.acknowledged, message));
    let will = !scenario.will || head.will == Will::Armed || (head.will == Will::Done && state.will_published);
    has_all && answered && will && head.pending == [0; NODES as usize]
}
