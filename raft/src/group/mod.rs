//! One node's part in the Raft group: openraft, its log and network, the node's own incarnation, and the duties of a leader.
//!
//! | module | what it is |
//! | --- | --- |
//! | `options` | how a node is started; errors |
//! | `receive` | what peers send |
//! | `turn` | what a node does by itself, again and again: renew, register, join, found, send batches |
//! | `lead` | what the leader does: answers renewals, expires, registers, ticks |
//! | `members` | who comes and who goes |
//!
//! # The life of a node
//!
//! 1. [`Group::start`]. What was on disk comes by [`Audience::installed`] and [`Audience::applied`]; the node votes and follows, but is nobody yet.
//! 2. [`Group::register`], when it has links: the node gets an incarnation. Only from now on [`Group::propose`] takes anything. [`Audience::granted`] says until when it
//!    may serve; before the first such call it may not.
//! 3. Suspended (`granted` with a time that has passed): it waits. Renewed, it goes on under the same incarnation.
//! 4. `granted(None)`: the incarnation is over; nothing that it proposed is answered any more. The node closes its clients and calls [`Group::register`] again.
//! 5. [`Group::leave`] to go for good, and then or without that [`Group::stop`].
//!
//! Test to read first: `tests::proposals_of_all_nodes_are_applied_everywhere_and_answered_at_home`.

mod lead;
mod members;
mod options;
mod receive;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openraft::metrics::RaftMetrics;
use openraft::{Config, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::batcher::{Taken, Ticket};
use crate::clock::boot_ms;
use crate::command::{Command, Incarnation, NodeId};
use crate::entry::{Member, Raft};
use crate::liveness::Standing;
use crate::log_store::LogStore;
use crate::membership::Founding;
use crate::network::{Network, Peers, Rpc};
use crate::seat::{Audience, Seat};
use crate::state::ControlState;
use crate::state_machine::{Machine, StateMachine};
use crate::wire::{Control, Lane};
use lead::Lead;
pub use options::{LeaveError, Options, RegisterError, StartError};
use receive::Inbox;

/// The incarnations that owe this node something and made no progress for the lease time.
pub type Complaints = Arc<dyn Fn() -> Vec<(NodeId, Incarnation)> + Send + Sync>;
/// Asks for the [`Fitness`] of the node.
pub type AskFitness = Arc<dyn Fn() -> Fitness + Send + Sync>;

/// Whether a node does what it should within the lease time: each shard turns and the journal commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    Fit,
    /// All but what waits for a disk that is full or fails. It renews, and is not given up for what others wait for.
    Hampered,
    /// It does not, and so does not renew.
    Unfit,
}

/// One node's part in the group; clones are the same node.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    options: Options,
    seat: Arc<Seat>,
    rpc: Arc<Rpc>,
    log: LogStore,
    machine: Arc<Machine>,
    raft: Raft,
    metrics: watch::Receiver<RaftMetrics<u128, Member>>,
    complaints: Complaints,
    fitness: AskFitness,
    /// Only while the node is in no cluster.
    founding: Mutex<Founding>,
    /// A cluster is being founded or joined; its number is on its way to the disk.
    adopting: AtomicBool,
    lead: Mutex<Lead>,
    /// One change of the membership at a time.
    changing: AtomicBool,
    inbox: Inbox,
    turning: Mutex<turn::Turning>,
    /// Nodes that have said themselves that an incarnation of theirs is over.
    ended: Mutex<HashMap<NodeId, Incarnation>>,
    /// When the leader was last heard, by the boot clock.
    leader_heard: AtomicU64,
    /// How often another leader, or the same one in another term, was seen.
    leader_changes: AtomicU64,
    /// The last index that was told to all peers.
    told: AtomicU64,
    /// This node goes for good, and does not ask to be a member again.
    leaving: AtomicBool,
    /// Why the leader did not take this node as a member the last time.
    join_refused: Mutex<Option<String>>,
    /// Voters for which this node is no member any more; and whether they are a majority.
    strangers: Mutex<BTreeSet<u128>>,
    removed: watch::Sender<bool>,
    /// Something is to be done before the next turn.
    nudge: Notify,
    /// The process stops: the node does its part to the end, but is nobody any more; and it does nothing more.
    stopping: watch::Sender<bool>,
    /// It leads, and writes nothing more: another one is to lead.
    handing_over: AtomicBool,
    stopped: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    runtime: tokio::runtime::Handle,
}

/// A member of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    pub id: NodeId,
    pub name: String,
    pub voter: bool,
    /// It is this node, or there is a link to it.
    pub linked: bool,
}

/// How the group stands, as this node sees it.
#[derive(Debug, Clone)]
pub struct Status {
    /// 0: in none yet.
    pub cluster_id: u128,
    pub leader: Option<NodeId>,
    pub term: u64,
    /// How often another leader, or the same one in another term, was seen since the start.
    pub leader_changes: u64,
    /// Index of the last entry in the log, and of the last one applied.
    pub last_log: Option<u64>,
    pub applied: Option<u64>,
    pub snapshot: Option<u64>,
    pub members: Vec<MemberView>,
    /// The leader has a majority, or this node hears from it.
    pub quorum: bool,
    pub standing: Standing,
    pub incarnation: Option<Incarnation>,
    /// Commands that were not taken: without an incarnation, too large, or too many.
    pub discarded: u64,
    /// Messages that were not understood, or of another cluster, or more than could be taken.
    pub refused_messages: u64,
    /// What the disk of the log last said, while it does not take what it should.
    pub log_trouble: Option<String>,
    /// Why openraft has stopped, if it has.
    pub failed: Option<String>,
}

impl Group {
    /// Starts the node's part in the group, on the runtime that this is called on. Nothing is waited for: whether there is a cluster, [`Group::register`] says.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(
        options: Options,
        network: Arc<dyn Network>,
        audience: Arc<dyn Audience>,
        complaints: Complaints,
        fitness: AskFitness,
    ) -> Result<Group, StartError> {
        options.check()?;
        let me = options.node;
        if let Some(dir) = &options.dir {
            std::fs::create_dir_all(dir).map_err(|error| StartError::Log { path: dir.clone(), error: error.into() })?;
        }
        let log_dir = options.dir.as_ref().map(|dir| dir.join("log"));
        let log = LogStore::open(log_dir.as_deref())
            .map_err(|error| StartError::Log { path: log_dir.unwrap_or_default(), error })?;
        log.lead_no_more(me.0);
        let seat = Arc::new(Seat::new(me, options.run, options.timing(), audience));
        let machine = Arc::new(
            Machine::open(seat.clone(), log.clone(), options.dir.as_deref())
                .map_err(|fault| StartError::Snapshot { path: options.snapshot_path().unwrap_or_default(), fault })?,
        );
        let rpc = Arc::new(Rpc::new(network, log.clone(), options.lease_ms / 2));
        let config = Arc::new(raft_config(&options)?);
        let (peers, state_machine) = (Peers(rpc.clone()), StateMachine(machine.clone()));
        let raft = Raft::new(me.0, config, peers, log.clone(), state_machine).await;
        let fatal = |error: openraft::error::Fatal<u128>| StartError::raft(options.dir.as_deref(), error);
        let raft = raft.map_err(fatal)?;
        adopt_own_founding(&raft, &log).await.map_err(fatal)?;
        let inner = Arc::new(Inner {
            seat,
            rpc,
            log,
            machine,
            metrics: raft.metrics(),
            raft,
            complaints,
            fitness,
            founding: Mutex::new(Founding::new(me, &options.name, options.expected_size)),
            adopting: AtomicBool::new(false),
            lead: Mutex::new(Lead::new(options.timing())),
            changing: AtomicBool::new(false),
            inbox: Inbox::default(),
            turning: Mutex::default(),
            ended: Mutex::default(),
            leader_heard: AtomicU64::new(0),
            leader_changes: AtomicU64::new(0),
            told: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            join_refused: Mutex::default(),
            strangers: Mutex::default(),
            removed: watch::Sender::new(false),
            nudge: Notify::new(),
            stopping: watch::Sender::new(false),
            handing_over: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
            tasks: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            options,
        });
        let tasks = [tokio::spawn(turn::send_batches(inner.clone())), tokio::spawn(turn::turns(inner.clone()))];
        inner.tasks.lock().extend(tasks);
        Ok(Group(inner))
    }

    /// What a peer's [`Network::send`] carried. Of one peer and lane in the order in which it was sent. Does not block.
    pub fn receive(&self, from: NodeId, lane: Lane, message: Bytes) {
        self.0.receive(from, lane, message);
    }

    /// The control link to `peer` is up both ways, or no longer.
    pub fn link_changed(&self, peer: NodeId, up: bool) {
        if up {
            self.0.rpc.control(peer, Control::Hello { name: self.0.options.name.clone() });
            // What was said of it before may have been lost with the link, and nobody says it again in a cluster where nothing happens.
            let index = self.0.told.load(Ordering::Acquire);
            if index > 0 {
                self.0.rpc.control(peer, Control::Applied { index });
            }
            if self.0.leader() == Some(peer.0) {
                self.0.seat.batcher.send_again();
            }
        }
        self.0.nudge.notify_one();
    }

    /// Proposes commands, in order; never blocks. What becomes of them comes as [`AppliedEntry::own`](crate::AppliedEntry::own), by their tickets and in the same order,
    /// unless the incarnation ends before. Returns the tickets of those that are not taken, and counts them: without an incarnation all, and what is larger than
    /// [`COMMAND_BYTES_MAX`](crate::batcher::COMMAND_BYTES_MAX).
    pub fn propose(&self, commands: impl IntoIterator<Item = (Ticket, Command)>) -> Vec<Ticket> {
        let Taken { room, refused } = self.0.seat.batcher.propose(commands);
        if !room {
            tracing::error!("too many commands wait for the cluster: this node's incarnation ends");
            self.0.seat.end();
        }
        refused
    }

    /// Looks at the state. Not from within [`Audience`].
    pub fn read<R>(&self, look: impl FnOnce(&ControlState) -> R) -> R {
        look(&self.0.machine.read().state)
    }

    /// Tells all peers that all shards of this node route with the state of `index`; those that are not linked now hear it when they are. To be called once per turn at
    /// most.
    pub fn tell_applied(&self, index: u64) {
        // Before it is looked who is linked: a link that comes up meanwhile finds it.
        self.0.told.fetch_max(index, Ordering::AcqRel);
        for peer in self.0.rpc.linked() {
            self.0.rpc.control(peer, Control::Applied { index });
        }
    }

    /// Gets this node an incarnation, asking again until the leader has registered it. One that the node already has is returned at once.
    ///
    /// # Errors
    /// [`RegisterError::Deadline`] if that took too long; it may be called again. [`RegisterError::Stopped`] once the node stops;
    /// [`RegisterError::Removed`] when it was taken out of the cluster.
    pub async fn register(&self, deadline: Instant) -> Result<Incarnation, RegisterError> {
        let (mut incarnations, mut stopping) = (self.0.seat.watch(), self.0.stopping.subscribe());
        let mut removed = self.0.removed.subscribe();
        loop {
            // One that has ended before anybody saw it here is followed by another.
            self.0.seat.want(true, random_run);
            if let Some(incarnation) = *incarnations.borrow_and_update() {
                return Ok(incarnation);
            }
            self.0.nudge.notify_one();
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return Err(RegisterError::Stopped),
                _ = removed.wait_for(|removed| *removed) => return Err(RegisterError::Removed),
                _ = incarnations.changed() => {}
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        self.0.seat.want(false, random_run);
        Err(RegisterError::Deadline(self.0.why_not_registered()))
    }

    /// Takes this node out of the group for good: its incarnation ends, the sessions that it holds are lost. The caller has closed its clients.
    ///
    /// # Errors
    /// See [`LeaveError`].
    pub async fn leave(&self, deadline: Instant) -> Result<(), LeaveError> {
        self.0.leaving.store(true, Ordering::Release);
        self.0.seat.end();
        let left = self.0.depart(format!("{}", self.0.seat.me), false, deadline).await;
        self.0.leaving.store(left.is_ok(), Ordering::Release);
        left
    }

    /// Takes a member that is dead, by name or id, out of the group; the sessions that it held are lost.
    ///
    /// # Errors
    /// See [`LeaveError`]: a node that is alive is refused.
    pub async fn force_leave(&self, who: &str, deadline: Instant) -> Result<(), LeaveError> {
        self.0.depart(who.to_owned(), true, deadline).await
    }

    /// Ends this node's part, log closed and all. The node stays a member; the others need not wait for a lease until they know that it has stopped.
    pub async fn stop(&self) {
        self.0.stopping.send_replace(true);
        self.0.seat.close();
        self.end_at_once().await;
        self.0.stopped.send_replace(true);
        for task in std::mem::take(&mut *self.0.tasks.lock()) {
            task.abort();
        }
        self.0.inbox.close();
        let _ = self.0.raft.shutdown().await;
        let log = self.0.log.clone();
        let _ = tokio::task::spawn_blocking(move || log.close()).await;
    }

    /// Whether this process has an incarnation. May be called from within [`Audience`].
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.0.seat.incarnation().is_some()
    }

    /// Whether [`Group::stop`] was called: an incarnation that ends then was not given up by others.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.0.stopping.borrow()
    }

    /// Tells the others that this incarnation is over, and waits until the state says so, for a little. One that was on its way when the node began to stop is over too.
    async fn end_at_once(&self) {
        let inner = &self.0;
        let own = inner.options.node;
        let mut told = None;
        let is_over = || {
            let live = inner.machine.read().state.live_nodes().find(|live| live.id == own).map(|live| live.incarnation);
            let Some(incarnation) = live else { return true };
            if told.replace(incarnation) != Some(incarnation) {
                inner.ended.lock().insert(own, incarnation);
                for peer in inner.rpc.linked() {
                    inner.rpc.control(peer, Control::Ended { incarnation });
                }
                inner.nudge.notify_one();
            }
            false
        };
        inner.wait_until(Instant::now() + END_PATIENCE, is_over).await;
        self.hand_over().await;
    }

    /// Has another voter lead, if this node does. A follower that misses its leader waits for a lease of openraft's and an election; one that is asked to does not. It must have all of the log,
    /// which therefore grows no more: what is proposed meanwhile is proposed again to the next leader.
    async fn hand_over(&self) {
        let inner = &self.0;
        if inner.leading_term().is_none() {
            return;
        }
        inner.handing_over.store(true, Ordering::Release);
        let (shortest, longest) = inner.options.election_ms;
        let deadline = Instant::now() + Duration::from_millis(longest);
        // openraft may not have taken up yet what was proposed until now.
        inner.wait_until(deadline, || !inner.lead.lock().has_open()).await;
        let mut asked_at = None;
        let is_followed = || {
            if inner.leader().is_some_and(|leader| leader != inner.me()) {
                return true;
            }
            let due = asked_at.is_none_or(|at: Instant| at.elapsed() >= Duration::from_millis(shortest));
            if due
                && inner.leading_term().is_some()
                && let Some(successor) = inner.successor()
            {
                inner.rpc.control(successor, Control::TakeOver);
                asked_at = Some(Instant::now());
            }
            inner.rpc.linked().is_empty()
        };
        inner.wait_until(deadline, is_followed).await;
    }

    /// Has another voter lead, if this node does; it goes on as a voter. Whether another one leads then.
    pub async fn transfer_leader(&self) -> bool {
        self.hand_over().await;
        self.0.handing_over.store(false, Ordering::Release);
        self.0.nudge.notify_one();
        self.0.leading_term().is_none()
    }

    /// Why this node has no incarnation yet, as far as it knows.
    #[must_use]
    pub fn why_not_registered(&self) -> String {
        self.0.why_not_registered()
    }

    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Whether this node is about to become a voter, and does not count as one yet.
    #[must_use]
    pub fn is_to_vote(&self) -> bool {
        self.0.members().is_to_vote(self.0.me())
    }
}

impl Inner {
    /// Looks again whenever openraft has gone round: when something was applied or answered, when another node leads or has got further, and many times per election. Ends when
    /// it `is_so`, at the deadline, or with openraft.
    async fn wait_until(&self, deadline: Instant, mut is_so: impl FnMut() -> bool) {
        let mut metrics = self.metrics.clone();
        loop {
            // Before the look: what happens meanwhile is news.
            metrics.mark_unchanged();
            if is_so() || !matches!(timeout_at(deadline, metrics.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// The leader as openraft knows it; it may be dead.
    fn leader(&self) -> Option<u128> {
        self.metrics.borrow().current_leader
    }

    /// The term, if this node leads.
    fn leading_term(&self) -> Option<u64> {
        let metrics = self.metrics.borrow();
        (metrics.state == ServerState::Leader).then_some(metrics.current_term)
    }

    fn me(&self) -> u128 {
        self.options.node.0
    }

    fn members(&self) -> crate::membership::Members {
        let metrics = self.metrics.borrow();
        let membership = metrics.membership_config.membership();
        crate::membership::Members {
            voters: membership.voter_ids().collect(),
            configs: membership.get_joint_config().clone(),
            nodes: membership.nodes().map(|(id, member)| (*id, member.clone())).collect::<BTreeMap<_, _>>(),
            settled: metrics.last_applied >= *metrics.membership_config.log_id(),
        }
    }

    fn is_member(&self) -> bool {
        self.metrics.borrow().membership_config.membership().get_node(&self.me()).is_some()
    }

    /// Whether the leader has been heard within two elections, and there are links to a majority; or the leader is this node and has a majority.
    fn has_quorum(&self) -> bool {
        let (now, patience) = (boot_ms(), self.quorum_patience());
        match self.leading_term() {
            Some(term) => self.quorum_at(term).is_some_and(|at| now.saturating_sub(at) < patience),
            None => self.hears_leader(now) && self.is_majority(&self.rpc.linked()),
        }
    }

    fn hears_leader(&self, now: u64) -> bool {
        now.saturating_sub(self.leader_heard.load(Ordering::Relaxed)) < self.quorum_patience()
    }

    /// Milliseconds: two elections.
    fn quorum_patience(&self) -> u64 {
        2 * self.options.election_ms.1
    }

    /// The newest time at which this node, leading in `term`, is known to have had a majority.
    fn quorum_at(&self, term: u64) -> Option<u64> {
        let configs = self.metrics.borrow().membership_config.membership().get_joint_config().clone();
        self.rpc.quorum_at(term, self.me(), &configs)
    }

    /// Whether this node knows for certain that it is a member no more.
    fn has_departed(&self) -> bool {
        let metrics = self.metrics.borrow();
        let membership = &metrics.membership_config;
        let is_member = membership.membership().get_node(&self.me()).is_some();
        !is_member && metrics.last_applied >= *membership.log_id()
    }

    fn why_not_registered(&self) -> String {
        if self.log.cluster() == 0 {
            return format!("this node is in no cluster, and sees {} others", self.rpc.linked().len());
        }
        let refused = self.join_refused.lock().clone();
        match (self.is_member(), self.leader()) {
            (false, _) | (true, None) if let Some(reason) = refused => {
                format!("another node does not take this one: {reason}")
            }
            (false, _) => "the cluster has not taken this node as a member".to_owned(),
            (true, None) => "the cluster has no leader".to_owned(),
            (true, Some(leader)) if leader != self.me() && !self.hears_leader(boot_ms()) => {
                "the leader is not heard".to_owned()
            }
            (true, Some(_)) if !self.has_quorum() => "most of the voters are not there".to_owned(),
            (true, Some(_)) if self.machine.read().state.orphans().any(|(dead, ..)| dead.0 == self.me()) => {
                "the heirs of this node's last life have still to inherit its sessions".to_owned()
            }
            (true, Some(leader)) => {
                format!("leader {leader:032x} has not registered this node: has it links to all live nodes?")
            }
        }
    }

    fn status(&self) -> Status {
        let members = self.members();
        let linked = self.rpc.linked();
        let view = |(id, member): (&u128, &Member)| MemberView {
            id: NodeId(*id),
            name: member.name.clone(),
            voter: members.voters.contains(id),
            linked: *id == self.me() || linked.contains(&NodeId(*id)),
        };
        let quorum = self.has_quorum();
        let metrics = self.metrics.borrow();
        Status {
            cluster_id: self.log.cluster(),
            leader: metrics.current_leader.map(NodeId),
            term: metrics.current_term,
            leader_changes: self.leader_changes.load(Ordering::Relaxed),
            last_log: metrics.last_log_index,
            applied: self.machine.applied().checked_sub(1),
            snapshot: self.machine.snapshot_at(),
            members: members.nodes.iter().map(view).collect(),
            quorum,
            standing: self.seat.standing(),
            incarnation: self.seat.incarnation(),
            discarded: self.seat.batcher.discarded(),
            refused_messages: self.inbox.refused(),
            log_trouble: self.log.trouble(),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }
}

/// A founder that stopped between the first entry of its log and the number of its cluster has told nobody: it takes any number.
async fn adopt_own_founding(raft: &Raft, log: &LogStore) -> Result<(), openraft::error::Fatal<u128>> {
    if raft.is_initialized().await? && log.cluster() == 0 {
        // Without a random source the run is as good as unique.
        let cluster = random_id().unwrap_or_else(|_| u128::from(random_run()).max(1));
        log.join_cluster(cluster).await;
    }
    Ok(())
}

fn raft_config(options: &Options) -> Result<Config, StartError> {
    let config = Config {
        cluster_name: String::new(),
        election_timeout_min: options.election_ms.0,
        election_timeout_max: options.election_ms.1,
        heartbeat_interval: options.election_ms.0 / 3,
        max_payload_entries: 512,
        // Snapshots and purges are this crate's decision: see `turn`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    };
    config.validate().map_err(|error| StartError::raft(None, error))
}

fn random_id() -> Result<u128, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    // 0 stands for none.
    Ok(u128::from_le_bytes(bytes).max(1))
}

/// For another registration of the same process. Without a random source the clock is as good as unique.
fn random_run() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => boot_ms(),
    }
}

/// What is kept of each node that speaks, for a short time.
type Recent<T> = HashMap<u128, (T, u64)>;

/// For how long a node that stops waits until the others know.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Pause between two attempts of anything that is repeated until it has happened.
const AGAIN: Duration = Duration::from_millis(200);
