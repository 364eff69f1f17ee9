//! One node without a log: the control state of a cluster of one.
//!
//! Commands are applied as they come, so an outcome is known when [`Standalone::propose`] returns. The owner serialises
//! calls and carries out the effects in the order in which it received them, before it acts upon the outcome. A node that keeps leases at
//! rest begins with [`Standalone::restore`], with no images at its first start, and writes down all changes that it is given.

use crate::command::{Applied, Command, Incarnation, LeaseChange, LeaseImage, NodeId, Outcome};
use crate::state::{ControlState, VERSIONS};

/// A control state and the one node that speaks to it.
#[derive(Debug)]
pub struct Standalone {
    state: ControlState,
    from: (NodeId, Incarnation),
}

impl Standalone {
    /// A new state in which `node` is registered, of which nothing is kept at rest.
    pub fn new(node: NodeId, name: &str) -> Self {
        let (state, name) = (ControlState::new(), name.to_owned());
        let mut standalone = Self { state, from: (node, 0) };
        standalone.propose(0, Command::Register { node, name, run: 0, versions: VERSIONS, intact: true });
        standalone
    }

    /// The state of which `images` were kept by the same node, and the changes that have to be written now: all commands say from here on
    /// what they change. `now` and `down_since`, when the node is last known to have run, are of one clock, in milliseconds
    /// since the Unix epoch, that never runs backwards, not even over a restart.
    ///
    /// Of several images of one client the one with the greatest item counts. Who was connected has lost the connection at `down_since`,
    /// and its Will, its delay and the expiry of the session count from then; who was not goes on counting. What has become due meanwhile,
    /// and Wills that were due before and perhaps not published, come with the next ticks, in slices like everything else.
    pub fn restore(
        node: NodeId,
        name: &str,
        now: u64,
        down_since: u64,
        images: Vec<LeaseImage>,
    ) -> (Self, Vec<LeaseChange>) {
        let mut standalone = Self { state: ControlState::new(), from: (node, 0) };
        standalone.state.keep_changes(true);
        standalone
            .propose(now, Command::Register { node, name: name.to_owned(), run: 0, versions: VERSIONS, intact: true });
        let changes = standalone.state.restore_images(node, down_since, images);
        (standalone, changes)
    }

    /// Applies `command` at `now`, in milliseconds of a clock that does not run backwards.
    pub fn propose(&mut self, now: u64, command: Command) -> Applied {
        let applied = self.state.apply(now, self.from, command);
        if let Outcome::Registered { .. } = applied.outcome {
            self.from.1 = self.state.incarnation(self.from.0).unwrap_or(0);
        }
        applied
    }

    /// What is due at `now`, at most one slice of it: if there is more, [`next_due`](Self::next_due) is not in the future.
    pub fn tick(&mut self, now: u64) -> Applied {
        self.propose(now, Command::Tick)
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
