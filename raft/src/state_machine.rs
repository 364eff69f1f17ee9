//! The control state behind openraft: applies entries, makes and takes snapshots, tells the [`Audience`](crate::Audience).
//!
//! An entry is applied when it is on this node's own disk. Its commands are decoded here and nowhere before. A command that this program does not know stops the group on this node: to
//! skip it would make its state another one.
//!
//! A snapshot is made under the read lock, so nothing is applied meanwhile, and written to disk afterwards. One that comes from the leader is restored before
//! openraft hears of it, so what cannot be read is refused and harms nothing.
//!
//! Test to read first: those of `group` about snapshots.

mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::batcher::BATCH_COMMANDS_MAX;
use crate::clock::boot_ms;
use crate::command::{Command, Effect, NodeId, Origin, Outcome, Proposal};
use crate::entry::{Batch, BatchOrigin, Entry, LogId, SnapshotMeta, StorageError, StoredMembership, TypeConfig};
use crate::log_store::LogStore;
use crate::seat::{AppliedEntry, Seat};
use crate::state::ControlState;
pub(crate) use file::SnapshotFault;

/// A snapshot: pieces as the state makes them.
#[derive(Clone, Default)]
pub struct Image {
    pub(crate) chunks: Arc<Vec<Bytes>>,
    /// What was restored from them, until it is put into place.
    pub(crate) restored: Option<Arc<Mutex<Option<ControlState>>>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} pieces)", self.chunks.len())
    }
}

/// The state and where in the log it stands.
pub(crate) struct Held {
    pub state: ControlState,
    last: Option<LogId>,
    membership: StoredMembership,
    /// When the last entry was applied, by the boot clock.
    applied_at: u64,
}

impl Held {
    /// Control time: that of the last entry, and what has passed here since.
    pub fn control_now(&self) -> u64 {
        self.state.now().saturating_add(boot_ms().saturating_sub(self.applied_at))
    }

    pub fn last(&self) -> Option<LogId> {
        self.last
    }
}

/// What the state machine shares with the group.
pub(crate) struct Machine {
    held: RwLock<Held>,
    seat: Arc<Seat>,
    log: LogStore,
    /// The newest snapshot.
    snapshot: Mutex<Option<file::Snapshot>>,
    /// Where snapshots are kept; `None`: in memory.
    path: Option<PathBuf>,
    /// Index of the last entry applied, plus one.
    applied: AtomicU64,
}

impl Machine {
    /// With the snapshot in `dir`, if there is one.
    pub fn open(seat: Arc<Seat>, log: LogStore, dir: Option<&Path>) -> Result<Machine, SnapshotFault> {
        let path = dir.map(snapshot_path);
        let found = match &path {
            Some(path) => file::read(path)?,
            None => None,
        };
        let mut held = Held {
            state: ControlState::new(),
            last: None,
            membership: StoredMembership::default(),
            applied_at: boot_ms(),
        };
        if let Some((meta, chunks)) = &found {
            held.state =
                ControlState::restore(chunks.iter()).map_err(|fault| SnapshotFault::State(fault.to_string()))?;
            held.last = meta.last_log_id;
            held.membership = meta.last_membership.clone();
            seat.audience().installed(&held.state, ControlState::new().difference(&held.state));
        }
        let applied = AtomicU64::new(held.last.map_or(0, |id| id.index + 1));
        Ok(Machine { held: RwLock::new(held), seat, log, snapshot: Mutex::new(found), path, applied })
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read()
    }

    /// Entries applied.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Where the newest snapshot stands in the log.
    pub fn snapshot_at(&self) -> Option<u64> {
        self.snapshot.lock().as_ref().and_then(|(meta, _)| meta.last_log_id).map(|id| id.index)
    }

    fn apply_entry(&self, entry: Entry) -> Result<(), Unknown> {
        match entry.payload {
            EntryPayload::Normal(batch) => self.apply_batch(entry.log_id, &batch)?,
            EntryPayload::Blank => self.held.write().last = Some(entry.log_id),
            EntryPayload::Membership(membership) => {
                let mut held = self.held.write();
                held.last = Some(entry.log_id);
                held.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
        self.applied.store(entry.log_id.index + 1, Ordering::Release);
        Ok(())
    }

    fn apply_batch(&self, id: LogId, batch: &Batch) -> Result<(), Unknown> {
        let commands = decode_commands(batch).map_err(|why| Unknown { id, why })?;
        let asked = commands.iter().any(asks);
        let registration = self.own_registration(batch.origin, &commands);
        let origin = match batch.origin {
            BatchOrigin::Leader => Origin::Leader,
            BatchOrigin::Node { node, incarnation, number } => Origin::Node { node: NodeId(node), incarnation, number },
        };
        let mut held = self.held.write();
        let applied = held.state.apply_proposal(id.index, Proposal { at: batch.at, origin, commands });
        held.last = Some(id);
        held.applied_at = boot_ms();
        let own = match batch.origin {
            BatchOrigin::Node { node, incarnation, number } if node == self.seat.me.0 && !applied.ignored => {
                self.seat.batcher.applied(incarnation, number).into_iter().zip(applied.outcomes).collect()
            }
            _ => {
                if let Some((place, run)) = registration
                    && let Some(Outcome::Registered { incarnation }) = applied.outcomes.get(place)
                {
                    let number = held.state.batch_number(self.seat.me).unwrap_or(0);
                    self.seat.registered(run, *incarnation, number);
                }
                Vec::new()
            }
        };
        self.see_own_end(&applied.effects);
        let asked = asked && !applied.ignored;
        let (index, effects, incarnation) = (id.index, applied.effects, self.seat.incarnation());
        self.seat.audience().applied(AppliedEntry { index, own, effects, asked, incarnation });
        Ok(())
    }

    /// Which of the commands registers this process, and its run.
    fn own_registration(&self, origin: BatchOrigin, commands: &[Command]) -> Option<(usize, u64)> {
        if origin != BatchOrigin::Leader {
            return None;
        }
        let wanted = self.seat.wanted()?;
        let is_own = |command: &Command| matches!(command, Command::Register { node, run, .. } if *node == self.seat.me && *run == wanted);
        commands.iter().position(is_own).map(|place| (place, wanted))
    }

    fn see_own_end(&self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::NodeDown { node, incarnation, .. } = effect
                && *node == self.seat.me
            {
                self.seat.expired(*incarnation);
            }
        }
    }

    /// Puts `state` into the place of what there is.
    fn install(&self, meta: &SnapshotMeta, state: ControlState) {
        let mut held = self.held.write();
        let effects = held.state.difference(&state);
        held.state = state;
        held.last = meta.last_log_id;
        held.membership = meta.last_membership.clone();
        held.applied_at = boot_ms();
        self.applied.store(held.last.map_or(0, |id| id.index + 1), Ordering::Release);
        self.see_own_end(&effects);
        self.see_jump(&held.state);
        self.seat.audience().installed(&held.state, effects);
    }

    /// Batches of this node that were applied on the way have outcomes that nobody will ever tell: then the incarnation is over.
    fn see_jump(&self, state: &ControlState) {
        let Some(incarnation) = self.seat.incarnation() else { return };
        let live = state.live_nodes().any(|node| node.id == self.seat.me && node.incarnation == incarnation);
        let number = state.batch_number(self.seat.me).unwrap_or(0);
        if !live || !self.seat.batcher.has_seen(incarnation, number) {
            tracing::warn!("this node was so far behind that it took a snapshot; its incarnation ends");
            self.seat.end();
        }
    }

    /// Makes a snapshot of the state as it is. Takes as long as it takes to go through all of it, and then to write it.
    fn make_snapshot(&self) -> Result<file::Snapshot, SnapshotFault> {
        let (meta, chunks) = {
            let held = self.held.read();
            let snapshot_id =
                held.last.map_or_else(|| "0".to_owned(), |id| format!("{}-{}", id.leader_id.term, id.index));
            let meta = SnapshotMeta { last_log_id: held.last, last_membership: held.membership.clone(), snapshot_id };
            let chunks: Vec<Bytes> = held.state.snapshot().map(Bytes::from).collect();
            (meta, Arc::new(chunks))
        };
        self.keep_snapshot(&meta, &chunks)?;
        Ok((meta, chunks))
    }

    /// On disk, if there is one, and as the newest.
    fn keep_snapshot(&self, meta: &SnapshotMeta, chunks: &Arc<Vec<Bytes>>) -> Result<(), SnapshotFault> {
        let mut newest = self.snapshot.lock();
        // One that was made while another came in may be older.
        if newest.as_ref().is_some_and(|(kept, _)| kept.last_log_id > meta.last_log_id) {
            return Ok(());
        }
        if let Some(path) = &self.path {
            file::write(path, meta, chunks)?;
        }
        *newest = Some((meta.clone(), chunks.clone()));
        Ok(())
    }
}

/// The file of the newest snapshot.
pub(crate) fn snapshot_path(dir: &Path) -> PathBuf {
    dir.join(file::NAME)
}

/// Whether somebody waits until all shards route with what the command brings.
fn asks(command: &Command) -> bool {
    match command {
        Command::Routes { add, .. } => !add.is_empty(),
        Command::ShareRoutes { set, .. } => !set.is_empty(),
        Command::Cut { .. } => true,
        _ => false,
    }
}

/// The commands of a batch.
pub(crate) fn decode_commands(batch: &Batch) -> Result<Vec<Command>, String> {
    // No command has less than a byte.
    let count = batch.count as usize;
    if count > batch.commands.len() {
        return Err(format!("{count} commands in {} bytes", batch.commands.len()));
    }
    // A command has far more bytes in memory than it may have here.
    let mut commands = Vec::with_capacity(count.min(BATCH_COMMANDS_MAX));
    let mut rest = &batch.commands[..];
    for _ in 0..count {
        let (command, behind) = postcard::take_from_bytes(rest).map_err(|error| error.to_string())?;
        commands.push(command);
        rest = behind;
    }
    if rest.is_empty() { Ok(commands) } else { Err(format!("{} bytes behind the last command", rest.len())) }
}

/// The commands as they go into a batch.
pub(crate) fn encode_commands(commands: &[Command]) -> Bytes {
    let mut bytes = Vec::new();
    for command in commands {
        // Plain data into memory: this cannot fail.
        bytes = postcard::to_extend(command, bytes).unwrap_or_default();
    }
    bytes.into()
}

/// An entry that this program cannot read.
struct Unknown {
    id: LogId,
    why: String,
}

/// openraft's handle of the machine.
#[derive(Clone)]
pub(crate) struct StateMachine(pub Arc<Machine>);

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = StateMachine;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let held = self.0.held.read();
        Ok((held.last, held.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        if let Some(last) = entries.last() {
            self.0.log.flushed_to(last.log_id.index).await;
        }
        let count = entries.len();
        for entry in entries {
            self.0.apply_entry(entry).map_err(|Unknown { id, why }| {
                tracing::error!(index = id.index, why, "an entry of the control log cannot be applied by this program");
                StorageIOError::apply(id, AnyError::error(why))
            })?;
        }
        Ok(vec![(); count])
    }

    async fn get_snapshot_builder(&mut self) -> StateMachine {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Image>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Box<Image>) -> Result<(), StorageError> {
        let (machine, meta) = (self.0.clone(), meta.clone());
        let work = move || {
            let restored = snapshot.restored.as_ref().and_then(|restored| restored.lock().take());
            let state = match restored {
                Some(state) => state,
                None => ControlState::restore(snapshot.chunks.iter())
                    .map_err(|fault| SnapshotFault::State(fault.to_string()))?,
            };
            machine.keep_snapshot(&meta, &snapshot.chunks)?;
            machine.install(&meta, state);
            Ok::<(), SnapshotFault>(())
        };
        blocking(work).await.map_err(|error| StorageIOError::write_snapshot(None, AnyError::error(error)).into())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        let newest = self.0.snapshot.lock();
        Ok(newest.as_ref().map(|(meta, chunks)| snapshot(meta, chunks)))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let machine = self.0.clone();
        match blocking(move || machine.make_snapshot()).await {
            Ok((meta, chunks)) => Ok(snapshot(&meta, &chunks)),
            Err(error) => Err(StorageIOError::write_snapshot(None, AnyError::error(error)).into()),
        }
    }
}

fn snapshot(meta: &SnapshotMeta, chunks: &Arc<Vec<Bytes>>) -> Snapshot<TypeConfig> {
    Snapshot { meta: meta.clone(), snapshot: Box::new(Image { chunks: chunks.clone(), restored: None }) }
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, SnapshotFault> + Send + 'static,
) -> Result<R, SnapshotFault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(SnapshotFault::Stopped),
    }
}
