//! What must hold in every state, and when nothing more can happen.

use stateright::{Model as _, Property};

use super::cluster::State;
use super::control::{NODES, Phase, has, only};
use super::steps::Scenario;

pub const ONE_CONNECTION: &str = "at most one connection is served";
pub const HOLDER_IS_NODE_WITH_STATE: &str =
    "who serves a session is its holder, and holders that are dead serve nobody";
pub const NOTHING_LOST: &str = "an acknowledged message is in the session of its holder, or delivered";
pub const NOTHING_TWICE: &str = "no message is delivered twice";
pub const IN_ORDER: &str = "messages are delivered in their order";
pub const WILL_AT_MOST_ONCE: &str = "a Will is published once, and only if it is due";
pub const NO_WILL_AFTER_GOODBYE: &str = "a Will is not due after a DISCONNECT that its node has heard";
pub const WILL_BEFORE_SUCCESSOR: &str = "a due Will is published before a later connection is served";
/// Not a promise: without it an exploration would have shown nothing.
pub const MOVED: &str = "a session has moved";
pub const EVERYTHING_ENDS: &str = "claims, Wills and deliveries come to their end";

pub fn all() -> Vec<Property<Scenario>> {
    vec![
        Property::always(ONE_CONNECTION, |_, state| served(state).count() <= 1),
        Property::always(HOLDER_IS_NODE_WITH_STATE, |_, state| holder_serves(state)),
        Property::always(NOTHING_LOST, |_, state| nothing_lost(state)),
        Property::always(NOTHING_TWICE, |_, state: &State| !state.delivered_twice),
        Property::always(IN_ORDER, |_, state: &State| !state.out_of_order),
        Property::always(WILL_AT_MOST_ONCE, |_, state| will_at_most_once(state)),
        Property::always(NO_WILL_AFTER_GOODBYE, |_, state: &State| state.goodbyes & state.head.became_due == 0),
        Property::always(WILL_BEFORE_SUCCESSOR, |_, state| will_before_successor(state)),
        Property::always(EVERYTHING_ENDS, |scenario: &Scenario, state| {
            let mut steps = Vec::new();
            scenario.actions(state, &mut steps);
            !steps.is_empty() || is_quiet(scenario, state)
        }),
        Property::sometimes(MOVED, |_, state: &State| {
            state.head.lease.is_some_and(|lease| lease.holder != 0 && lease.began == 1)
        }),
    ]
}

/// Connections that were told of success and are not closed, at nodes whose grant has not ended.
fn served(state: &State) -> impl Iterator<Item = (u8, u8)> + '_ {
    (0..NODES).filter(|&node| state.acts(node)).filter_map(|node| Some((node, state.node(node).connection?)))
}

fn holder_serves(state: &State) -> bool {
    let Some(lease) = state.head.lease else { return served(state).count() == 0 };
    let dead = !has(state.head.live, lease.holder);
    (!dead || lease.phase != Phase::Connected)
        && served(state).all(|(node, epoch)| epoch <= lease.epoch && !(dead && node == lease.holder))
}

/// Only the first session is subscribed, and what comes while it is missing is not kept for it.
fn nothing_lost(state: &State) -> bool {
    let Some(lease) = state.head.lease.filter(|_| state.head.subscribed()) else { return true };
    let kept = state.node(lease.holder).disk.map_or(0, |disk| disk.queue);
    state.acknowledged & !(kept | state.delivered | state.excused) == 0
}

fn will_at_most_once(state: &State) -> bool {
    let head = &state.head;
    !state.will_repeated
        && state.wills_published & !head.became_due == 0
        && head.became_due & head.cancelled == 0
        && head.dropped & (head.became_due | head.cancelled) == 0
        && (head.became_due | head.cancelled | head.dropped) & !head.accepted == 0
}

fn will_before_successor(state: &State) -> bool {
    served(state).all(|(_, epoch)| state.head.became_due & !state.wills_published & (only(epoch) - 1) == 0)
}

/// Nothing can happen any more: nobody waits, and everything that was owed has been given.
fn is_quiet(scenario: &Scenario, state: &State) -> bool {
    let head = &state.head;
    let current = head.lease.filter(|lease| lease.phase == Phase::Connected).map(|lease| (lease.holder, lease.epoch));
    let serves = |(node, epoch)| state.node(node).connection == Some(epoch) || !state.node(node).up;
    let over = head.accepted & !current.map_or(0, |(_, epoch)| only(epoch));
    let wills_done = scenario.will.is_none() || (head.became_due | head.cancelled | head.dropped) == over;
    head.claim().is_none()
        && head.due == 0
        && head.became_due == state.wills_published
        && wills_done
        && current.is_none_or(serves)
        && current.is_none_or(|(node, _)| state.node(node).disk.is_none_or(|disk| disk.queue == 0))
        && (0..NODES).all(|node| state.node(node).taking.is_none())
        && state.legs == [0; 2]
}
