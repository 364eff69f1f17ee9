//! One peer: what others may see of it and ask for it ([`PeerHandle`]), and the task that owns its connections ([`Life`]).
//!
//! The task is the only one to call `up` and `down`, to start and to end the peer's connections, and to hand out data connections. All else tells it by events.
//!
//! Invariants:
//! * no frame and no data connection reaches the receiver before `up` or after `down`: at `down` both control connections and the bulk
//!   connections have ended, and their tasks with them;
//! * a connection that replaces another one is read only when that has ended;
//! * of two runs of a peer the one that was seen first never comes back.
//!
//! Tests to read first: `link::tests::ups`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_raft::NodeId;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::dials::{Dials, Outcome};
use super::handshake::Introduced;
use super::hello::{Hello, Purpose};
use super::lanes::{Connection, End, TOLD};
use super::outbound::{Outbound, Pushed};
use super::refusal::{Failure, Refusal, Warning};
use super::shared::{PEERS_MAX, Shared, seen, stopped};
use super::{BULK_QUEUE_BYTES_MAX, CONTROL_QUEUE_BYTES_MAX, Lane, Peer, told};
use crate::byte_stream::ByteStream;
use crate::limits::SHARDS_MAX;
use crate::subscriptions::ShardId;

/// Events of one peer that wait for its task.
const EVENTS_MAX: usize = 256;

/// Runs of a peer that are remembered so that they do not come back.
const EARLIER_RUNS_MAX: usize = 16;

/// How often the task looks after what no event tells.
const TICK: Duration = Duration::from_secs(1);

/// A peer that was not linked for so long, and for which nobody wants data connections, is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The lasting connections of a link, but for those of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Slot {
    ControlOut,
    ControlIn,
    BulkOut,
    BulkIn,
}

const SLOTS: [Slot; 4] = [Slot::ControlOut, Slot::ControlIn, Slot::BulkOut, Slot::BulkIn];

/// What the task of a peer is told.
pub(super) enum Event {
    /// The peer dialled, and has proven who it is.
    Accepted(Box<Introduced>),
    /// It was met where somebody looked for it.
    Met { peer: Box<Peer>, at: String },
    /// An attempt to dial it has ended.
    Dialled { purpose: Purpose, tag: u64, outcome: Outcome },
    /// The peer knows that its control connection is there.
    Ready { generation: u64, seen: oneshot::Sender<()> },
    /// A lasting connection has ended.
    Ended { slot: Slot, generation: u64, why: String },
    /// A data connection of the peer has its Welcome.
    DataIn { run: u64, shard: ShardId, attempt: u64, stream: ByteStream },
}

/// What others see of a peer, and ask for it.
pub(super) struct PeerHandle {
    pub id: NodeId,
    pub events: mpsc::Sender<Event>,
    pub control: Outbound,
    pub bulk: Outbound,
    /// Whether the link is up.
    pub up: watch::Sender<bool>,
    pub asked: Mutex<Asked>,
    pub asked_wake: Notify,
    pub shown: Mutex<Shown>,
    /// The last round trip on the control connection; 0 before the first.
    pub rtt_micros: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    overflown: AtomicBool,
}

/// Shards of ours, one bit each.
#[derive(Debug)]
pub(super) struct Asked {
    /// Those that want a data connection to the peer.
    pub wanted: u64,
    /// Those whose data connection has ended.
    pub ended: u64,
}

/// What people see of a peer.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub peer: Arc<Peer>,
    pub last_error: Option<String>,
}

impl PeerHandle {
    /// A peer that was just heard of, with the task that looks after it.
    pub(super) fn start(shared: &Arc<Shared>, peer: Peer, met_at: Option<String>) -> Arc<Self> {
        let (events, received) = mpsc::channel(EVENTS_MAX);
        let peer = Arc::new(peer);
        let wanted = shared.wanted.lock().get(&peer.id).copied().unwrap_or_default();
        let handle = Arc::new(Self {
            id: peer.id,
            events,
            control: Outbound::new(CONTROL_QUEUE_BYTES_MAX),
            bulk: Outbound::new(BULK_QUEUE_BYTES_MAX),
            up: watch::Sender::new(false),
            asked: Mutex::new(Asked { wanted, ended: 0 }),
            asked_wake: Notify::new(),
            shown: Mutex::new(Shown { peer: Arc::clone(&peer), last_error: None }),
            rtt_micros: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            overflown: AtomicBool::new(false),
        });
        let life = Life {
            dials: Dials::new(Arc::clone(shared), Arc::clone(&handle), met_at),
            shared: Arc::clone(shared),
            handle: Arc::clone(&handle),
            peer,
            earlier_runs: VecDeque::new(),
            running: [const { None }; SLOTS.len()],
            generations: 0,
            attempts: HashMap::new(),
            is_ready: false,
            told: 0,
            linked_at: Instant::now(),
            warning: Warning::default(),
        };
        shared.runtime.spawn(life.run(received, shared.stop.subscribe()));
        handle
    }

    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// Queues a frame; false if the link is down or there is no room.
    pub(super) fn send(&self, shared: &Shared, lane: Lane, kind: u8, payload: Bytes) -> bool {
        match lane {
            Lane::Control => match self.control.push(kind, payload) {
                Pushed::Queued => true,
                Pushed::Closed => false,
                Pushed::Full => {
                    if !self.overflown.swap(true, Relaxed) {
                        shared.counts.control_overflows.fetch_add(1, Relaxed);
                    }
                    self.control.wake.notify_one();
                    false
                }
            },
            Lane::Bulk => match self.bulk.push(kind, payload) {
                Pushed::Queued => true,
                Pushed::Closed => false,
                Pushed::Full => {
                    shared.counts.bulk_full.fetch_add(1, Relaxed);
                    false
                }
            },
        }
    }

    /// Whether a control frame found no room: the connection is closed then, so that nothing is missing in between.
    pub(super) fn has_overflown(&self) -> bool {
        self.overflown.load(Relaxed)
    }

    fn show_error(&self, error: String) {
        self.shown.lock().last_error = Some(error);
    }
}

/// The task's state.
struct Life {
    shared: Arc<Shared>,
    handle: Arc<PeerHandle>,
    dials: Dials,
    /// As it is in its latest run.
    peer: Arc<Peer>,
    earlier_runs: VecDeque<u64>,
    running: [Option<Running>; SLOTS.len()],
    /// Numbers the connections of all slots.
    generations: u64,
    /// The latest attempt of the peer's run for each purpose.
    attempts: HashMap<Purpose, u64>,
    /// The peer has said that its control connection is there.
    is_ready: bool,
    /// What the peer was told last: see [`Life::tell`].
    told: u64,
    /// When the link was up last, or since when the peer is known.
    linked_at: Instant,
    warning: Warning,
}

struct Running {
    generation: u64,
    task: JoinHandle<()>,
}

impl Life {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, mut stop: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let handle = Arc::clone(&self.handle);
        let mut ups = self.shared.ups.subscribe();
        loop {
            let (is_up, asked) = (handle.is_up(), handle.asked.lock().wanted);
            let next_dial = self.dials.start_due(is_up, asked);
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.on_event(event).await,
                    None => break,
                },
                () = handle.asked_wake.notified() => self.on_asked(),
                () = tokio::time::sleep_until(next_dial) => {}
                _ = ups.changed() => self.tell(),
                _ = tick.tick() => {
                    self.warn();
                    if self.is_forgotten() {
                        break;
                    }
                }
                () = stopped(&mut stop) => break,
            }
        }
        self.end_all("the links end").await;
        self.dials.abort();
        self.leave();
    }

    async fn on_event(&mut self, event: Event) {
        match event {
            Event::Accepted(introduced) => self.on_accepted(*introduced).await,
            Event::Met { peer, at } => {
                self.dials.met_at(at);
                // An earlier run was met by a look that took long: it has gone since.
                let _ = self.adopt(*peer).await;
            }
            Event::Dialled { purpose, tag, outcome } => self.on_dialled(purpose, tag, outcome).await,
            Event::Ready { generation, seen } => {
                if self.is_running(Slot::ControlIn, generation) {
                    self.is_ready = true;
                    self.try_up();
                }
                // The other side may have gone, and nobody waits for this then.
                let _ = seen.send(());
            }
            Event::Ended { slot, generation, why } => {
                if self.is_running(slot, generation) {
                    self.on_ended(slot, why).await;
                }
            }
            Event::DataIn { run, shard, attempt, stream } => {
                let is_latest = self.attempts.get(&Purpose::Data(shard)) == Some(&attempt);
                if run == self.peer.run && is_latest && self.handle.is_up() {
                    self.shared.receiver.data_in(&self.peer, shard, stream);
                }
            }
        }
    }

    /// The peer has dialled us.
    async fn on_accepted(&mut self, introduced: Introduced) {
        let peer = seen(&introduced.hello.peer, introduced.remote.ip());
        let admitted = match self.adopt(peer).await {
            Ok(()) => self.admit(&introduced.hello),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = admitted {
            self.shared.note(&Failure::Refused(refusal), &introduced.remote.to_string());
            self.shared.runtime.spawn(introduced.refuse(refusal));
            return;
        }
        match introduced.hello.purpose {
            Purpose::Control => {
                self.end(Slot::ControlIn).await;
                self.is_ready = false;
                self.go_down("the peer has dialled anew").await;
                self.start(Slot::ControlIn, introduced);
            }
            Purpose::Bulk => {
                self.end(Slot::BulkIn).await;
                self.start(Slot::BulkIn, introduced);
            }
            Purpose::Data(shard) => self.welcome_data(shard, introduced),
            Purpose::Meet => self.welcome_only(introduced),
        }
    }

    /// Whether a connection of the current run may be there.
    fn admit(&mut self, hello: &Hello) -> Result<(), Refusal> {
        if matches!(hello.purpose, Purpose::Bulk | Purpose::Data(_)) && !self.handle.is_up() {
            return Err(Refusal::NotUp);
        }
        let latest = self.attempts.entry(hello.purpose).or_default();
        if hello.attempt <= *latest {
            return Err(Refusal::OlderAttempt);
        }
        *latest = hello.attempt;
        Ok(())
    }

    /// Takes over who the peer is now. A later run ends all that the earlier one had.
    async fn adopt(&mut self, peer: Peer) -> Result<(), Refusal> {
        if peer.run == self.peer.run {
            return Ok(());
        }
        if self.earlier_runs.contains(&peer.run) {
            return Err(Refusal::OlderRun);
        }
        self.end_all("the peer runs anew").await;
        self.earlier_runs.push_back(self.peer.run);
        if self.earlier_runs.len() > EARLIER_RUNS_MAX {
            self.earlier_runs.pop_front();
        }
        self.attempts.clear();
        self.is_ready = false;
        self.dials.reset();
        self.peer = Arc::new(peer);
        self.handle.shown.lock().peer = Arc::clone(&self.peer);
        Ok(())
    }

    /// An attempt of ours to dial the peer has ended.
    async fn on_dialled(&mut self, purpose: Purpose, tag: u64, outcome: Outcome) {
        if !self.dials.is_under_way(purpose, tag) {
            return;
        }
        let adopted = match outcome {
            Ok(dialled) => {
                let peer = seen(&dialled.hello.peer, dialled.remote.ip());
                let adopted = self.adopt(peer).await.map_err(Failure::Refused);
                adopted.map(|()| dialled.stream)
            }
            Err(failure) => Err(failure),
        };
        match adopted {
            Ok(stream) => self.on_stream(purpose, stream).await,
            Err(failure) => {
                self.handle.show_error(failure.to_string());
                self.shared.note(&failure, &self.peer.name);
                self.dials.failed(purpose);
            }
        }
    }

    async fn on_stream(&mut self, purpose: Purpose, mut stream: ByteStream) {
        let is_up = self.handle.is_up();
        match purpose {
            Purpose::Control => {
                self.dials.established(purpose);
                self.end(Slot::ControlOut).await;
                // Its first words let the peer send: the receiver has to know of the link before.
                let (go, gone) = oneshot::channel();
                self.start_dialled(Slot::ControlOut, stream, gone);
                self.try_up();
                let _ = go.send(());
            }
            Purpose::Bulk if is_up => {
                self.dials.established(purpose);
                self.end(Slot::BulkOut).await;
                let (go, gone) = oneshot::channel();
                self.start_dialled(Slot::BulkOut, stream, gone);
                let _ = go.send(());
            }
            Purpose::Data(shard) if is_up && stream.detach().is_ok() => {
                self.dials.established(purpose);
                self.shared.receiver.data_out(&self.peer, shard, stream);
            }
            // The link went down meanwhile.
            _ => self.dials.failed(purpose),
        }
    }

    async fn on_ended(&mut self, slot: Slot, why: String) {
        self.end(slot).await;
        self.handle.show_error(why.clone());
        match slot {
            Slot::ControlOut => {
                self.dials.ended(Purpose::Control);
                self.go_down(&why).await;
            }
            Slot::ControlIn => {
                self.is_ready = false;
                self.go_down(&why).await;
            }
            Slot::BulkOut => self.dials.ended(Purpose::Bulk),
            Slot::BulkIn => {}
        }
    }

    fn on_asked(&mut self) {
        let ended = std::mem::take(&mut self.handle.asked.lock().ended);
        for shard in (0..SHARDS_MAX as ShardId).filter(|shard| ended & (1 << shard) != 0) {
            self.dials.ended(Purpose::Data(shard));
        }
    }

    fn try_up(&mut self) {
        let has = |slot: Slot| self.running[slot as usize].is_some();
        if self.handle.is_up() || !self.is_ready || !has(Slot::ControlOut) || !has(Slot::ControlIn) {
            return;
        }
        self.handle.overflown.store(false, Relaxed);
        self.handle.control.open();
        self.handle.bulk.open();
        self.handle.shown.lock().last_error = None;
        self.shared.counts.ups.fetch_add(1, Relaxed);
        let Peer { name, id, address, .. } = &*self.peer;
        tracing::info!(event = "link_up", node = &**name, %id, address, "linked to another node");
        self.handle.up.send_replace(true);
        self.shared.receiver.up(&self.peer);
        // Whatever was there before broke with the link, or will: nobody waits for the kernel to find out.
        self.dials.reset_data();
        self.told = 0;
        self.tell();
        self.shared.ups.send_modify(|ups| *ups += 1);
    }

    /// Ends the link if it is up: all of its connections but those of data, then the receiver is told.
    async fn go_down(&mut self, why: &str) {
        if !self.handle.is_up() {
            return;
        }
        self.handle.up.send_replace(false);
        self.handle.control.close();
        self.handle.bulk.close();
        for slot in SLOTS {
            self.end(slot).await;
        }
        self.is_ready = false;
        self.dials.ended(Purpose::Control);
        self.dials.ended(Purpose::Bulk);
        self.handle.rtt_micros.store(0, Relaxed);
        self.linked_at = Instant::now();
        self.shared.counts.downs.fetch_add(1, Relaxed);
        let Peer { name, id, .. } = &*self.peer;
        if is_planned(why, *self.shared.stop.borrow(), self.shared.receiver.has_stopped(&self.peer)) {
            tracing::info!(event = "link_down", node = &**name, %id, why, "the link to another node has ended, as one of the two stops");
        } else {
            tracing::warn!(event = "link_down", node = &**name, %id, why, "the link to another node is down");
        }
        self.shared.receiver.down(&self.peer);
    }

    async fn end_all(&mut self, why: &str) {
        self.go_down(why).await;
        for slot in SLOTS {
            self.end(slot).await;
        }
    }

    fn is_running(&self, slot: Slot, generation: u64) -> bool {
        self.running[slot as usize].as_ref().is_some_and(|running| running.generation == generation)
    }

    /// Ends a connection; when this returns, its task has ended too.
    async fn end(&mut self, slot: Slot) {
        if let Some(running) = self.running[slot as usize].take() {
            running.task.abort();
            let _ = running.task.await;
        }
    }

    fn connection(&mut self, slot: Slot) -> Connection {
        self.generations += 1;
        Connection {
            shared: Arc::clone(&self.shared),
            handle: Arc::clone(&self.handle),
            peer: Arc::clone(&self.peer),
            slot,
            generation: self.generations,
        }
    }

    /// Starts a connection that was dialled; it carries nothing before `gone`.
    fn start_dialled(&mut self, slot: Slot, stream: ByteStream, gone: oneshot::Receiver<()>) {
        let connection = self.connection(slot);
        self.spawn(slot, async move {
            let _ = gone.await;
            connection.run(stream).await;
        });
    }

    fn start(&mut self, slot: Slot, mut introduced: Introduced) {
        let connection = self.connection(slot);
        self.spawn(slot, async move {
            match introduced.welcome().await {
                Ok(()) => connection.run(introduced.stream).await,
                Err(error) => connection.ended(error.to_string()).await,
            }
        });
    }

    fn spawn(&mut self, slot: Slot, task: impl Future<Output = ()> + Send + 'static) {
        let generation = self.generations;
        let task = self.shared.runtime.spawn(task);
        self.running[slot as usize] = Some(Running { generation, task });
    }

    fn welcome_data(&self, shard: ShardId, mut introduced: Introduced) {
        let (events, run) = (self.handle.events.clone(), self.peer.run);
        self.shared.runtime.spawn(async move {
            if introduced.welcome().await.is_ok() && introduced.stream.detach().is_ok() {
                let Introduced { hello, stream, .. } = introduced;
                let _ = events.send(Event::DataIn { run, shard, attempt: hello.attempt, stream }).await;
            }
        });
    }

    /// The peer wanted to know who is here, and no more.
    fn welcome_only(&self, mut introduced: Introduced) {
        self.shared.runtime.spawn(async move {
            // He has what he wanted, or has gone.
            let _ = introduced.welcome().await;
        });
    }

    /// Tells the peer which other nodes are linked here, if that has changed.
    fn tell(&mut self) {
        if !self.handle.is_up() {
            return;
        }
        let peers = self.shared.peers.read();
        let linked = peers.values().filter(|peer| peer.id != self.peer.id && peer.is_up());
        let nodes: Vec<_> = linked.map(|peer| Arc::clone(&peer.shown.lock().peer)).collect();
        drop(peers);
        // Runs are random, so different sets of them have different sums.
        let told = nodes.iter().fold(0, |sum: u64, peer| sum.wrapping_add(peer.run));
        if told != self.told {
            let payload = told::encode(nodes.iter().map(|peer| (peer.id, &*peer.name, peer.address.as_str())));
            if self.handle.send(&self.shared, Lane::Control, TOLD, payload.into()) {
                self.told = told;
            }
        }
    }

    /// Says that a node which is known has not been linked for a while, and why.
    fn warn(&mut self) {
        if !self.handle.is_up() && self.warning.is_due(self.linked_at, Instant::now()) {
            let Shown { peer, last_error } = self.handle.shown.lock().clone();
            let why = last_error.unwrap_or_else(|| "it does not dial this node".to_owned());
            tracing::warn!(event = "link", peer = &*peer.name, address = peer.address, "a node is not linked: {why}");
        }
    }

    fn is_forgotten(&self) -> bool {
        let is_quiet = self.running.iter().all(Option::is_none) && self.handle.asked.lock().wanted == 0;
        // Where room is short, a minute is enough.
        let is_crowded = self.shared.peers.read().len() >= PEERS_MAX;
        let after = if is_crowded { FORGET_AFTER / 10 } else { FORGET_AFTER };
        is_quiet && self.linked_at.elapsed() >= after
    }

    fn leave(&self) {
        let mut peers = self.shared.peers.write();
        if peers.get(&self.peer.id).is_some_and(|handle| Arc::ptr_eq(handle, &self.handle)) {
            peers.remove(&self.peer.id);
        }
    }
}

/// Whether a link ends because one of the two nodes does: this one (`stops`), or the other one, which then closes its connections and does not fall silent.
fn is_planned(why: &str, stops: bool, peer_has_stopped: bool) -> bool {
    stops || (peer_has_stopped && why != End::Silent.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_ends_with_its_node_is_no_trouble() {
        assert!(is_planned("the links end", true, false));
        assert!(is_planned(&End::Closed.to_string(), false, true));
        assert!(!is_planned(&End::Closed.to_string(), false, false), "killed, or cut off");
        assert!(!is_planned(&End::Silent.to_string(), false, true), "the others gave up one that is frozen");
    }
}
