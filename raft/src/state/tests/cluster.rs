//! Three nodes and a leader, for the tests of many nodes: commands in short, and what comes of them in words.

use super::*;
use crate::command::{Origin, Proposal};

pub(super) const A: NodeId = NodeId(0xa);
pub(super) const B: NodeId = NodeId(0xb);
pub(super) const C: NodeId = NodeId(0xc);
/// No node: commands of the leader come from here.
pub(super) const LEADER: NodeId = NodeId(0);

/// A state in which three nodes are registered.
pub(super) fn three_nodes() -> ControlState {
    let mut state = ControlState::new();
    for node in [A, B, C] {
        state.apply(0, (LEADER, 0), register(node));
    }
    state
}

pub(super) fn expire(node: NodeId, incarnation: Incarnation) -> Command {
    Command::ExpireNode { node, incarnation }
}

pub(super) fn pass_on(node: NodeId, incarnation: Incarnation) -> Command {
    Command::PassOn { node, incarnation }
}

pub(super) fn settle(client: &str, epoch: SessionEpoch) -> Command {
    Command::Settle { client: client.into(), epoch }
}

pub(super) fn withdraw(client: &str, epoch: SessionEpoch) -> Command {
    Command::Withdraw { client: client.into(), epoch }
}

pub(super) fn cut(client: &str, epoch: SessionEpoch, filters: &[&str]) -> Command {
    let filters = filters.iter().map(|&filter| filter.into()).collect();
    Command::Cut { client: client.into(), epoch, filters, shares: Vec::new() }
}

pub(super) fn routes(add: &[&str], remove: &[&str]) -> Command {
    let owned = |filters: &[&str]| filters.iter().map(|&filter| filter.into()).collect();
    Command::Routes { add: owned(add), remove: owned(remove) }
}

pub(super) fn fill(next: &[NodeId]) -> Command {
    Command::FillHeirs { next: next.to_vec() }
}

pub(super) fn filled(fill: u64) -> Command {
    Command::HeirsFilled { fill }
}

pub(super) fn inherited(node: NodeId, incarnation: Incarnation) -> Command {
    Command::Inherited { node, incarnation }
}

pub(super) fn found(clients: &[&str]) -> Command {
    Command::Found { clients: clients.iter().map(|&client| client.into()).collect() }
}

pub(super) fn lost(client: &str, epoch: SessionEpoch) -> Command {
    Command::Lost { client: client.into(), epoch }
}

pub(super) fn forget(node: NodeId) -> Command {
    Command::Forget { node }
}

pub(super) fn name_of(node: NodeId) -> String {
    match node {
        A => "a".to_owned(),
        B => "b".to_owned(),
        C => "c".to_owned(),
        other => format!("{:x}", other.0),
    }
}

/// Applies `command` as the last incarnation of `by`, or as the leader.
pub(super) fn apply(state: &mut ControlState, now: u64, by: NodeId, command: Command) -> Applied {
    let incarnation = state.incarnation(by).unwrap_or(0);
    state.apply(now, (by, incarnation), command)
}

pub(super) type Line = (u64, NodeId, Command, &'static str);

/// Applies the lines in order and compares each with its words; of each step the effects must be the difference, and of all steps together
/// must be possible to jump over.
pub(super) fn play(state: &mut ControlState, lines: impl IntoIterator<Item = Line>) {
    for (number, (now, by, command, words)) in lines.into_iter().enumerate() {
        let said = format!("{command:?}");
        let before = state.clone();
        let applied = apply(state, now, by, command);
        assert_eq!(in_words(&applied), words, "line {number}, {said}");
        assert_eq!(sorted(&before.difference(state)), sorted(&applied.effects), "line {number}, {said}");
        let again = ControlState::restore(state.snapshot()).expect("a snapshot can be read");
        assert_eq!(again.digest(), state.digest(), "line {number}, {said}");
    }
}

pub(super) fn outcome_in_words(outcome: Outcome) -> String {
    match outcome {
        Outcome::Registered { incarnation } => format!("incarnation {incarnation}"),
        Outcome::Acquired { epoch, session_present, displaced } => {
            let closes = displaced.map(|epoch| format!(" closes {epoch}")).unwrap_or_default();
            format!("c{epoch} {}{closes}", if session_present { "resumed" } else { "new" })
        }
        Outcome::Claimed { epoch, holder, clean } => {
            format!("c{epoch} asks {}{}", name_of(holder), if clean { " to close" } else { "" })
        }
        Outcome::Missing => "missing".to_owned(),
        Outcome::Routed { index } => format!("index {index}"),
        Outcome::Cut { index } => format!("cut {index}"),
        Outcome::Settled { session_present } => {
            format!("settled {}", if session_present { "resumed" } else { "new" })
        }
        Outcome::Done => "done".to_owned(),
        Outcome::FillBegun { fill } => format!("fill {fill}"),
        Outcome::Refused(refusal) => format!("{refusal:?}"),
    }
}

fn in_words(applied: &Applied) -> String {
    let words = applied.effects.iter().map(effect_in_words);
    [outcome_in_words(applied.outcome)].into_iter().chain(words).collect::<Vec<_>>().join("; ")
}

fn effect_in_words(effect: &Effect) -> String {
    let name = |node: &NodeId| name_of(*node);
    match effect {
        Effect::WillDue { epoch, publisher, .. } => format!("will {epoch} by {}", name(publisher)),
        Effect::WillForgotten { epoch, .. } => format!("will {epoch} forgotten"),
        Effect::SessionEnded { epoch, holder, .. } => format!("ended {epoch} at {}", name(holder)),
        Effect::Claimed { epoch, holder, by, clean, .. } => {
            format!("{} claims {epoch} of {}{}", name(by), name(holder), if *clean { ", clean" } else { "" })
        }
        Effect::Closed { epoch, holder, .. } => format!("{} has closed for {epoch}", name(holder)),
        Effect::ClaimLost { epoch, by, .. } => format!("{} lost {epoch}", name(by)),
        Effect::CutMade { epoch, holder, by, index, .. } => {
            format!("{} gives {epoch} to {} at {index}", name(holder), name(by))
        }
        Effect::Moved { epoch, from, to, .. } => format!("moved {epoch} from {} to {}", name(from), name(to)),
        Effect::Withdrawn { epoch, holder, by, .. } => format!("{} gave up {epoch} of {}", name(by), name(holder)),
        Effect::Banned { ban } => format!("{:?} banned", ban.target),
        Effect::Unbanned { target } => format!("{target:?} not banned"),
        Effect::RouteAdded { filter, node } => format!("{} wants {filter}", name(node)),
        Effect::RouteRemoved { filter, node } => format!("{} leaves {filter}", name(node)),
        Effect::ShareRouteSet { share, node, members } => {
            format!(
                "{} has {}{} in {}",
                name(node),
                members.connected,
                if members.detached { "+" } else { "" },
                share.0
            )
        }
        Effect::ShareRouteRemoved { share, node } => format!("{} leaves {}", name(node), share.0),
        Effect::NodeUp { node, incarnation, .. } => format!("{}{incarnation} up", name(node)),
        Effect::NodeDown { node, incarnation, heirs } => {
            let heirs = heirs.iter().map(name).collect::<String>();
            let to = if heirs.is_empty() { heirs } else { format!(" to {heirs}") };
            format!("{}{incarnation} down{to}", name(node))
        }
        Effect::NodeForgotten { node } => format!("{} forgotten", name(node)),
        Effect::OrphansEnded { node, incarnation } => format!("{}{incarnation} has no orphans", name(node)),
        Effect::PassedOn { epoch, from, to, sure, .. } => {
            format!("{epoch} passed from {} to {}{}", name(from), name(to), if *sure { "" } else { ", perhaps" })
        }
        Effect::PassedOnAll { node, incarnation } => format!("{}{incarnation} passed on", name(node)),
        Effect::HeirsChanged { home } => format!("{}'s heirs", name(home)),
    }
}

pub(super) fn batch(at: u64, node: NodeId, incarnation: Incarnation, number: u64, commands: Vec<Command>) -> Proposal {
    Proposal { at, origin: Origin::Node { node, incarnation, number }, commands }
}

pub(super) fn leader(at: u64, command: Command) -> Proposal {
    Proposal { at, origin: Origin::Leader, commands: vec![command] }
}
