//! The control state of a node that is alone: commands are applied where they are proposed, one after the other.
//!
//! Order: what time brings about is put into the mailboxes under the lock under which it was applied. A shard that proposes a command takes its
//! mailbox before it acts upon the outcome, so it sees consequences in the order of the commands.
//!
//! What a command changes of the leases is written down by the shard that proposed it, with what it writes itself; what time changes, from here. Each change
//! has an item of its own, so their order on disk does not matter.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use holdfast_raft::{Applied, Command, Effect, Outcome, Standalone};
use holdfast_storage::Storage;

use crate::access::bans;
use crate::cluster::route_commands;
use crate::shard::mailbox::{Event, Ticket};
use crate::shard::{ControlPlane, Shared};
use crate::subscriptions::ShardId;

use super::bans::{BansFile, take_ban};
use super::durable;

pub(super) struct StandalonePlane {
    standalone: Mutex<Standalone>,
    shared: Arc<Shared>,
    storage: Option<Storage>,
    bans: BansFile,
}

impl StandalonePlane {
    pub fn new(standalone: Standalone, shared: Arc<Shared>, storage: Option<Storage>) -> StandalonePlane {
        StandalonePlane { standalone: Mutex::new(standalone), shared, storage, bans: BansFile::default() }
    }

    /// Takes up the bans that the data directory has, and keeps them there from now on.
    pub fn keep_bans(&self, path: &Path) -> io::Result<()> {
        for ban in self.bans.open(path)? {
            self.propose(0, None, Command::Ban { ban });
        }
        self.bans.is_changed.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes a ban, or takes one back, and returns when that is on the disk. May wait for it.
    pub fn change_bans(&self, command: Command) -> io::Result<Outcome> {
        let applied = self.propose(0, None, command);
        self.write_bans()?;
        Ok(applied.map_or(Outcome::Done, |applied| applied.outcome))
    }

    fn write_bans(&self) -> io::Result<()> {
        self.bans.write_if_changed(|| bans::write_all(self.standalone.lock().state().bans()))
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
        let is_of_bans = matches!(command, Command::Ban { .. } | Command::Unban { .. });
        let mut standalone = self.standalone.lock();
        let applied = standalone.propose(self.shared.clock.now(), command);
        if is_of_bans {
            applied.effects.iter().for_each(|effect| take_ban(&self.shared, effect));
            self.bans.is_changed.store(true, Ordering::Release);
        }
        Some(applied)
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
        if plane.bans.is_changed.load(Ordering::Acquire) {
            // A shard has made one. It says itself what is wrong, and the next change tries again.
            let plane = plane.clone();
            let written = tokio::task::spawn_blocking(move || plane.write_bans()).await;
            if let Ok(Err(error)) = written {
                warn!(event = "bans", %error, "the bans cannot be written down: a restart would forget the newest");
            }
        }
    }
}

/// Between two slices of what is due at once, so that the shards serve their clients meanwhile: a fleet that went away at the same moment
/// has sessions that end at the same moment.
const SLICE_PAUSE: Duration = Duration::from_millis(10);

/// The grain of Will Delay and Session Expiry, which are in seconds.
const CLOCK_TICK: Duration = Duration::from_millis(100);
