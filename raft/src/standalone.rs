//! One node without a log: the control state of a cluster of one, in memory.
//!
//! Commands are applied as they come, so an outcome is known when [`Standalone::propose`] returns. The owner serialises
//! calls and carries out the effects in the order in which it received them, before it acts upon the outcome.

use crate::command::{Applied, Command, Effect, Incarnation, NodeId, Outcome};
use crate::state::ControlState;

/// A control state and the one node that speaks to it.
#[derive(Debug)]
pub struct Standalone {
    state: ControlState,
    from: (NodeId, Incarnation),
}

impl Standalone {
    /// A new state in which `node` is registered.
    pub fn new(node: NodeId, name: &str) -> Self {
        let (state, name) = (ControlState::new(), name.to_owned());
        let mut standalone = Self { state, from: (node, 0) };
        standalone.propose(0, Command::Register { node, name });
        standalone
    }

    /// Applies `command` at `now`, in milliseconds of a monotone clock.
    pub fn propose(&mut self, now: u64, command: Command) -> Applied {
        let applied = self.state.apply(now, self.from, command);
        if let Outcome::Registered { .. } = applied.outcome {
            self.from.1 = self.state.incarnation(self.from.0).unwrap_or(0);
        }
        applied
    }

    /// What is due at `now`, at most one slice of it: if there is more, [`next_due`](Self::next_due) is not in the future.
    pub fn tick(&mut self, now: u64) -> Vec<Effect> {
        self.propose(now, Command::Tick).effects
    }

    /// When to tick next.
    pub fn next_due(&self) -> Option<u64> {
        self.state.next_due()
    }

    /// The state, for look-ups.
    pub fn state(&self) -> &ControlState {
        &self.state
    }
}
