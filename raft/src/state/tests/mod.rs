//! The control state, tested from outside: through `apply` and the look-ups.
//!
//! `scripts.rs` has the rules one by one, `model.rs` a second implementation that is too simple to be wrong in the same way, `properties.rs` what
//! holds for every sequence of commands, `heirs_scripts.rs` and `heirs_model.rs` the same for heirs, `restore.rs` what becomes of leases over a restart.

mod cluster;
mod cluster_properties;
mod cluster_scripts;
mod heirs_model;
mod heirs_scripts;
mod model;
mod properties;
mod restore;
mod scripts;

use std::sync::Arc;

use proptest::prelude::*;

use super::digest::Digest;
use super::*;
use crate::command::{ClientId, LeaseWill, NEVER_EXPIRES, SessionEpoch, ShareMembers, WillFate};

const NODE: NodeId = NodeId(0xa);
const OTHER: NodeId = NodeId(0xb);

fn acquire(client: &str, clean: bool, expiry_secs: u32, will_delay: Option<u32>) -> Command {
    let will = will_delay.map(|delay_secs| LeaseWill { delay_secs, message: b"will".as_slice().into() });
    Command::Acquire { client: client.into(), clean, expiry_secs, will }
}

fn detach(client: &str, epoch: SessionEpoch, will: WillFate, expiry_secs: u32) -> Command {
    Command::Detach { client: client.into(), epoch, will, expiry_secs }
}

fn will_done(client: &str, epoch: SessionEpoch) -> Command {
    Command::WillDone { client: client.into(), epoch }
}

fn register(node: NodeId) -> Command {
    restart(node, 0, true)
}

/// The node starts again, with all that it had or with nothing.
fn restart(node: NodeId, run: u64, intact: bool) -> Command {
    Command::Register { node, name: "name".to_owned(), run, versions: VERSIONS, intact }
}

/// A command of any kind by one of two nodes, and how long after the one before, in milliseconds.
#[derive(Debug, Clone)]
struct Step {
    after: u64,
    by: NodeId,
    command: Command,
}

impl Step {
    /// Applies the step as the live incarnation of its node.
    fn apply(&self, state: &mut ControlState, now: u64) -> Applied {
        let incarnation = state.incarnation(self.by).unwrap_or(0);
        state.apply(now, (self.by, incarnation), self.command.clone())
    }
}

/// Few clients, epochs and times, so that they meet.
fn any_lease_command() -> impl Strategy<Value = Command> {
    let client = || prop_oneof!["c", "d", "e"];
    let expiry = || prop_oneof![Just(0_u32), 1_u32..4, Just(NEVER_EXPIRES)];
    let will = prop::option::of(prop_oneof![0_u32..4, Just(u32::MAX)]);
    let fate = prop_oneof![3 => Just(WillFate::Keep), 1 => Just(WillFate::Drop)];
    prop_oneof![
        4 => (client(), any::<bool>(), expiry(), will).prop_map(|(client, clean, expiry, will)| acquire(&client, clean, expiry, will)),
        4 => (client(), 1_u64..8, fate, expiry()).prop_map(|(client, epoch, fate, expiry)| detach(&client, epoch, fate, expiry)),
        2 => (client(), 1_u64..8).prop_map(|(client, epoch)| will_done(&client, epoch)),
        3 => Just(Command::Tick),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    let filters = || prop::collection::vec(prop_oneof!["a/#", "b", "c"].prop_map(Arc::from), 0..3);
    let groups =
        || prop::collection::vec(prop_oneof!["a/#", "b"].prop_map(|filter| (Arc::from("g"), Arc::from(filter))), 0..3);
    prop_oneof![
        12 => any_lease_command(),
        1 => (filters(), filters()).prop_map(|(add, remove)| Command::Routes { add, remove }),
        1 => (groups(), groups(), 0_u8..2).prop_map(|(groups, remove, connected)| {
            let members = ShareMembers { connected, detached: false };
            Command::ShareRoutes { set: groups.into_iter().map(|group| (group, members)).collect(), remove }
        }),
        1 => Just(Command::RoutesComplete),
        1 => (prop_oneof![Just(NODE), Just(OTHER)], any::<u64>()).prop_map(|(node, run)| restart(node, run, false)),
    ]
}

/// Commands of one node only.
fn steps_of_one(command: impl Strategy<Value = Command>) -> impl Strategy<Value = Vec<Step>> {
    steps(command).prop_map(|steps| {
        let of_one = |step: &Step| match step.command {
            Command::Register { node, run, .. } => node == NODE && run != 0,
            _ => true,
        };
        steps.into_iter().filter(of_one).map(|step| Step { by: NODE, ..step }).collect()
    })
}

/// In an order that does not depend on when they came.
fn sorted(effects: &[Effect]) -> Vec<String> {
    let mut words: Vec<_> = effects.iter().map(|effect| format!("{effect:?}")).collect();
    words.sort();
    words
}

/// Most commands by one node; a Detach or WillDone guesses an epoch, which is often enough the right one.
fn steps(command: impl Strategy<Value = Command>) -> impl Strategy<Value = Vec<Step>> {
    let by = prop_oneof![9 => Just(NODE), 1 => Just(OTHER)];
    let after = prop_oneof![3 => Just(0_u64), 2 => Just(500), 2 => Just(1_000), 1 => Just(5_000)];
    prop::collection::vec((after, by, command), 1..50).prop_map(|steps| {
        let start = [NODE, OTHER].map(|node| Step { after: 0, by: node, command: register(node) });
        start.into_iter().chain(steps.into_iter().map(|(after, by, command)| Step { after, by, command })).collect()
    })
}
