//! The control state of a node that is alone: commands are applied where they are proposed, one after the other.
//!
//! Order: what time brings about is put into the mailboxes under the lock under which it was applied. A shard that proposes a command takes its
//! mailbox before it acts upon the outcome, so it sees consequences in the order of the commands.
//!
//! What a command changes of the leases is written down by the shard that proposed it, with what it writes itself; what time changes, from here. Each change
//! has an item of its own, so their order on disk does not matter.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use holdfast_raft::{Applied, Command, Effect, Standalone};
use holdfast_storage::Storage;

use crate::cluster::route_commands;
use crate::shard::mailbox::{Event, Ticket};
use crate::shard::{ControlPlane, Shared};
use crate::subscriptions::ShardId;

use super::durable;

pub(super) struct StandalonePlane {
    standalone: Mutex<Standalone>,
    shared: Arc<Shared>,
    storage: Option<Storage>,
}

impl StandalonePlane {
    pub fn new(standalone: Standalone, shared: Arc<Shared>, storage: Option<Storage>) -> StandalonePlane {
        StandalonePlane { standalone: Mutex::new(standalone), shared, storage }
    }

    fn send(&self, effects: Vec<Effect>) {
        for effect in effects {
            let (Effect::WillDue { client, .. } | Effect::SessionEnded { client, .. }) = &effect else {
                // The rest is about other nodes.
                continue;
            };
            let shard = self.shared.shard_of(client);
            self.shared.mailboxes[usize::from(shard)].push(Event::Effect(effect));
        }
    }

    /// Carries out one slice of what is due. Returns whether there is more.
    fn tick(&self) -> bool {
        let now = self.shared.clock.now();
        let mut standalone = self.standalone.lock();
        let is_due = |standalone: &Standalone| standalone.next_due().is_some_and(|due| due <= now);
        if is_due(&standalone) {
            let applied = standalone.tick(now);
            if let Some(storage) = &self.storage {
                durable::write_changes(storage, &self.shared, applied.changes);
            }
            self.send(applied.effects);
        }
        is_due(&standalone)
    }
}

impl ControlPlane for StandalonePlane {
    fn propose(&self, _from: ShardId, _ticket: Option<Ticket>, command: Command) -> Option<Applied> {
        Some(self.standalone.lock().propose(self.shared.clock.now(), command))
    }

    fn unrouted(&self, from: ShardId, removed: Vec<Arc<str>>) {
        for command in route_commands::removing(removed) {
            self.propose(from, None, command);
        }
    }
}

/// Lets the time of the control state pass: Will delays and session expiries come due.
pub(super) async fn run_clock(plane: Arc<StandalonePlane>) {
    let mut tick = tokio::time::interval(CLOCK_TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        while plane.tick() {
            tokio::time::sleep(SLICE_PAUSE).await;
        }
    }
}

/// Between two slices of what is due at once, so that the shards serve their clients meanwhile: a fleet that went away at the same moment
/// has sessions that end at the same moment.
const SLICE_PAUSE: Duration = Duration::from_millis(10);

/// The grain of Will Delay and Session Expiry, which are in seconds.
const CLOCK_TICK: Duration = Duration::from_millis(100);
