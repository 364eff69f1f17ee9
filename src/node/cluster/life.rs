//! The life of a node among others: it registers, takes up what is its own, serves, and when the others have given it up, begins again.
//!
//! Test to read first: `cluster-tests/tests/cluster/partitions.rs`.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use holdfast_raft::{Command, Fitness, Group, LeaseImage, NodeId, Outcome, RegisterError, WillFate};
use holdfast_storage::Storage;

use crate::limits;
use crate::link::Links;
use crate::shard::Shared;
use crate::shard::mailbox::{Event, Turned};

use super::heirs;
use super::plane::{ClusterPlane, all_routes};
use super::retained_sync::{self, RetainedSync};
use super::waiting;

/// How far a node has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) enum Stage {
    /// It waits for the cluster to take it in; why that takes so long.
    Joining(String),
    /// It is one of the cluster, and takes up what is its own.
    CatchingUp,
    Serving,
}

/// What a node's life needs.
pub(super) struct Life {
    pub shared: Arc<Shared>,
    pub storage: Option<Storage>,
    pub plane: Arc<ClusterPlane>,
    pub links: Links,
    pub group: Group,
    pub retained: RetainedSync,
    /// Leases of the time when the node was alone.
    pub alone: Vec<LeaseImage>,
    /// How many nodes found the cluster.
    pub expected_size: usize,
    pub open: watch::Sender<bool>,
    pub stage: watch::Sender<Stage>,
}

/// An attempt to register is reported after so long, and repeated.
const REGISTER_PATIENCE: Duration = Duration::from_secs(10);
/// Until something that has failed is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// Until a node that cannot agree with any other about retained messages serves all the same, when no other one is linked.
const NOBODY_PATIENCE: Duration = Duration::from_secs(5);
/// The same when others are linked, and no round with any of them comes to its end. A round that is under way and goes on is not cut off.
const AGREE_PATIENCE: Duration = Duration::from_secs(60);
/// Until routes that not every node has confirmed are announced once more.
const ROUTED_PATIENCE: Duration = Duration::from_secs(10);

impl Life {
    pub async fn run(mut self) {
        let (mut expulsions, mut leaving) = (self.plane.expulsions(), self.plane.leaving().subscribe());
        loop {
            // Who has left for good never comes beyond this.
            let _ = leaving.wait_for(|leaving| !*leaving).await;
            expulsions.borrow_and_update();
            let forgets = self.was_away_for_long();
            if !self.register().await {
                return;
            }
            self.links.set_cluster_id(self.group.status().cluster_id);
            self.stage.send_replace(Stage::CatchingUp);
            self.plane.tell_peers();
            if forgets {
                self.drop_retained();
            }
            tokio::select! {
                () = self.take_up() => {
                    info!(event = "serving", "this node is one of the cluster, and serves");
                    self.open.send_replace(true);
                    self.stage.send_replace(Stage::Serving);
                    let _ = expulsions.changed().await;
                }
                _ = expulsions.changed() => {}
            }
            if self.group.is_stopping() {
                return;
            }
            if *leaving.borrow() {
                self.stage.send_replace(Stage::Joining("the node leaves its cluster".to_owned()));
                continue;
            }
            warn!(
                event = "expelled",
                "the cluster has given this node up: its clients are closed, and it registers anew"
            );
            self.stage.send_replace(Stage::Joining("given up by the others".to_owned()));
        }
    }

    /// Until the cluster has taken the node in. False: the group has ended.
    async fn register(&self) -> bool {
        loop {
            match self.group.register(Instant::now() + REGISTER_PATIENCE).await {
                Ok(incarnation) => {
                    info!(event = "registered", incarnation, "registered in the cluster");
                    return true;
                }
                Err(RegisterError::Deadline(why)) => {
                    let why = waiting::why_not_joined(why, &self.group, Some(&self.links), self.expected_size);
                    info!(event = "joining", "not yet one of the cluster: {why}");
                    self.stage.send_replace(Stage::Joining(why));
                }
                Err(RegisterError::Removed) => {
                    self.plane.note_removed();
                    return false;
                }
                Err(RegisterError::Stopped) => return false,
            }
        }
    }

    /// Whether this node was dead for so long that what it knows of deletions may be too little.
    fn was_away_for_long(&self) -> bool {
        let own = self.shared.node;
        let (now, died_at) = self.group.read(|state| (state.now(), state.node(own).and_then(|node| node.died_at)));
        died_at.is_some_and(|died_at| now.saturating_sub(died_at) > limits::TOMBSTONE_MS / 2)
    }

    /// A deletion that everybody has forgotten must not be undone: the others have everything that still is.
    fn drop_retained(&self) {
        let writes = self.shared.retained.write().clear();
        warn!(
            event = "retained",
            dropped = writes.len(),
            "this node was away for long: its retained messages come from the others"
        );
        retained_sync::write(self.storage.as_ref(), &self.shared, writes);
    }

    async fn take_up(&mut self) {
        heirs::give_up(&self.plane).await;
        self.adopt_leases().await;
        self.take_up_sessions().await;
        self.announce_routes().await;
        self.agree_about_retained().await;
    }

    /// What the node held when it was alone is its own in the cluster too, unless somebody else has the client id.
    async fn adopt_leases(&mut self) {
        let images = std::mem::take(&mut self.alone);
        if images.is_empty() {
            return;
        }
        let (mut adopted, all) = (0, images.len());
        for LeaseImage { client, expiry_secs, will, .. } in images {
            let acquire = Command::Acquire { client: client.clone(), clean: false, expiry_secs, will };
            match self.plane.propose_own(acquire).await {
                Ok(Outcome::Acquired { epoch, .. }) => {
                    adopted += 1;
                    let will = WillFate::Keep;
                    let _ = self.plane.propose_own(Command::Detach { client, epoch, will, expiry_secs }).await;
                }
                Ok(Outcome::Claimed { epoch, .. }) => {
                    let _ = self.plane.propose_own(Command::Withdraw { client, epoch }).await;
                }
                _ => {}
            }
        }
        info!(event = "adopted", adopted, all, "sessions of the time when this node was alone are the cluster's now");
    }

    /// Sessions that are another node's by now, or have ended, go; and those come that are this node's and that it has copies of.
    async fn take_up_sessions(&self) {
        let own = self.shared.node;
        let (done, entered) = oneshot::channel();
        let done = Mutex::new(Some(done));
        let look = Turned::new(self.shared.mailboxes.len(), move || {
            if let Some(done) = done.lock().take() {
                let _ = done.send(());
            }
        });
        let mut of_shards: Vec<HashMap<Arc<str>, (u64, u64)>> =
            self.shared.mailboxes.iter().map(|_| HashMap::new()).collect();
        self.group.read(|state| {
            for (client, session) in state.sessions_of(own) {
                let shard = usize::from(self.shared.shard_of(client));
                of_shards[shard].insert(client.clone(), (session.began, session.epoch));
            }
            // While the state is locked, so that what is applied next comes behind it.
            let outlook = self.plane.outlook_on_copies(state);
            for (mailbox, leases) in self.shared.mailboxes.iter().zip(of_shards) {
                mailbox.push(Event::Reconcile { leases: Box::new(leases) });
                mailbox.push(Event::Look { outlook: outlook.clone(), done: Some(look.clone()) });
            }
        });
        let _ = entered.await;
    }

    /// Every node routes for this one's sessions, before a client hears from it.
    async fn announce_routes(&self) {
        loop {
            let commands = {
                let _order = self.shared.index.route_order();
                all_routes(&self.shared)
            };
            let mut last = 0;
            for command in commands {
                if let Ok(Outcome::Routed { index }) = self.plane.propose_own(command).await {
                    last = last.max(index);
                }
            }
            let _ = self.plane.propose_own(Command::RoutesComplete).await;
            if self.plane.routed_everywhere(last, ROUTED_PATIENCE).await {
                return;
            }
            // Every node says anew how far it is when it has applied them once more.
            warn!(event = "routes", "not every node has said that it routes to this one: it is asked again");
        }
    }

    /// With one other node that is live, whichever answers first; a node that is alone has nobody to ask.
    async fn agree_about_retained(&self) {
        let began = Instant::now();
        loop {
            let others = self.others();
            if others.is_empty() {
                return;
            }
            let linked = self.links.linked();
            for node in others.iter().filter(|node| linked.contains(node)) {
                if self.retained.agree_with(*node).await {
                    info!(event = "retained_sync", %node, retained = self.shared.retained.read().len(), "retained messages agree with those of another node");
                    return;
                }
            }
            if linked.is_empty() && began.elapsed() > NOBODY_PATIENCE {
                warn!(event = "retained_sync", "no other node is linked: retained messages are as they were here");
                return;
            }
            if began.elapsed() > AGREE_PATIENCE {
                warn!(
                    event = "retained_sync",
                    "no other node answers to the end: retained messages are as they are here, and are compared again later"
                );
                return;
            }
            sleep(AGAIN).await;
        }
    }

    fn others(&self) -> Vec<NodeId> {
        let own = self.shared.node;
        self.group.read(|state| state.live_nodes().map(|node| node.id).filter(|id| *id != own).collect())
    }
}

/// Takes filters out of the routes some time after nobody wanted them any more, and looks after what the node has inherited.
pub(super) async fn end_lingering(plane: Arc<ClusterPlane>) {
    let mut tick = tokio::time::interval(LINGER_TICK);
    loop {
        tick.tick().await;
        plane.end_lingering();
        plane.look_after_heritage();
    }
}

const LINGER_TICK: Duration = Duration::from_millis(250);

/// Whether the node does its own work: its shards turn, and its journal commits. One that does not must not go on serving, whatever its heartbeats say.
pub(super) struct Work {
    shared: Arc<Shared>,
    storage: Option<Storage>,
    lease_ms: u64,
    /// The batches of the journal when they last were seen to grow, or nothing waited; and when that was.
    committed: Mutex<(u64, u64)>,
}

impl Work {
    pub fn new(shared: Arc<Shared>, storage: Option<Storage>, lease_ms: u64) -> Work {
        let now = shared.clock.now();
        Work { shared, storage, lease_ms, committed: Mutex::new((0, now)) }
    }

    pub fn fitness(&self) -> Fitness {
        let now = self.shared.clock.now();
        let turns =
            self.shared.metrics.shards.iter().all(|shard| now.saturating_sub(shard.beat_at.get()) < self.lease_ms);
        let commits = self.commits(now);
        match (turns, self.shared.storage_level.is_failing()) {
            (false, _) => Fitness::Unfit,
            // A disk that is full or fails is told to clients; it does not hang.
            (true, true) => Fitness::Hampered,
            (true, false) if commits => Fitness::Fit,
            (true, false) => Fitness::Unfit,
        }
    }

    fn commits(&self, now: u64) -> bool {
        let Some(storage) = &self.storage else {
            return true;
        };
        let batches = storage.figures().batches;
        let pending = (0..=self.shared.mailboxes.len()).any(|source| storage.pending_bytes(source) > 0);
        let mut committed = self.committed.lock();
        if batches != committed.0 || !pending {
            *committed = (batches, now);
        }
        now.saturating_sub(committed.1) < self.lease_ms
    }
}
