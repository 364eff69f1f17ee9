//! What a node does by itself, again and again.
//!
//! A turn comes many times per renewal interval, and at once when something happens: look at the clocks and the links, found or join a cluster, register, renew, keep
//! the log short; and the duties of a leader, in `lead`. Batches have a task of their own, because they cannot wait for a turn.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::lead::WriteAnswer;
use super::{AGAIN, Fitness, Inner, random_id};
use crate::clock::boot_ms;
use crate::command::NodeId;
use crate::entry::{Batch, Member};
use crate::liveness::{Answer, Asking};
use crate::membership::FoundingStep;
use crate::wire::{Control, Lane, Message};

/// Pause between two looks at how long the log has become.
const UPKEEP_MS: u64 = 1000;
/// While an older snapshot is under way no other is begun, and it may take so long.
const SNAPSHOT_MS: u64 = 60_000;

/// What the turns remember.
#[derive(Debug, Default)]
pub(super) struct Turning {
    registered_at: u64,
    joined_at: u64,
    hello_at: u64,
    looked_at: u64,
    /// When a snapshot was last asked for, and where the one before stood.
    snapshot_asked: Option<(u64, Option<u64>)>,
    /// Since when entries known to be committed have waited to be applied.
    behind_since: Option<u64>,
    /// Whose turn it is to be asked for the leader.
    asked: usize,
}

/// Takes turns until the node stops.
pub(super) async fn turns(inner: Arc<Inner>) {
    let mut stopped = inner.stopped.subscribe();
    let pause = Duration::from_millis((inner.options.renew_ms / 10).clamp(5, 50));
    let mut interval = tokio::time::interval(pause);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = inner.nudge.notified() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        inner.turn();
    }
}

/// Sends batches, when there are any, until the node stops.
pub(super) async fn send_batches(inner: Arc<Inner>) {
    let (mut stopped, mut leaders) = (inner.stopped.subscribe(), inner.raft.server_metrics());
    let mut leader = None;
    let mut last_led = None;
    loop {
        for batch in inner.seat.batcher.to_send(inner.me(), boot_ms()) {
            inner.pass_to_leader(Message::Propose { hops: 0, batch });
        }
        let pause = match inner.seat.batcher.next_at() {
            Some(at) => Duration::from_millis(at.saturating_sub(boot_ms()).max(1)),
            None => Duration::from_secs(3600),
        };
        tokio::select! {
            () = inner.seat.batcher.wake.notified() => {}
            changed = leaders.changed() => {
                if changed.is_err() {
                    return;
                }
                let metrics = leaders.borrow_and_update();
                let now = (metrics.current_leader, metrics.vote.leader_id.term);
                if now.0.is_some() && last_led != Some(now) && last_led.replace(now).is_some() {
                    inner.leader_changes.fetch_add(1, Ordering::Relaxed);
                }
                if leader.replace(now) != Some(now) {
                    inner.seat.batcher.send_again();
                    inner.nudge.notify_one();
                }
            }
            () = tokio::time::sleep(pause) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

impl Inner {
    fn turn(self: &Arc<Self>) {
        let now = boot_ms();
        let linked = self.rpc.linked();
        self.seat.look(self.is_majority(&linked));
        if self.log.cluster() == 0 {
            self.found(&linked, now);
        } else if !self.is_member() && !self.leaving.load(Ordering::Acquire) {
            self.ask_to_join(&linked, now);
        }
        self.ask_to_register(&linked, now);
        self.renew(now);
        self.lead_turn(now);
        self.keep_log_short(now);
    }

    /// Whether this node and those that it has links to are a majority. Before it is a voter's matter, nothing is missing.
    pub(super) fn is_majority(&self, linked: &[NodeId]) -> bool {
        let metrics = self.metrics.borrow();
        let configs = metrics.membership_config.membership().get_joint_config();
        configs.iter().all(|voters| {
            let here = |voter: &&u128| **voter == self.me() || linked.contains(&NodeId(**voter));
            voters.is_empty() || voters.iter().filter(here).count() > voters.len() / 2
        })
    }

    fn found(self: &Arc<Self>, linked: &[NodeId], now: u64) {
        if self.adopting.load(Ordering::Acquire) {
            return;
        }
        let hello = {
            let mut turning = self.turning.lock();
            due(&mut turning.hello_at, now, AGAIN)
        };
        if hello {
            self.say_hello(linked);
        }
        let step = self.founding.lock().step(linked, now);
        match step {
            FoundingStep::Wait => {}
            FoundingStep::Ask { attempt, of } => {
                for node in of {
                    self.rpc.control(node, Control::AskPromise { attempt });
                }
            }
            FoundingStep::Found(members) => {
                if !self.adopting.swap(true, Ordering::AcqRel) {
                    self.runtime.spawn(self.clone().found_with(members));
                }
            }
        }
    }

    fn say_hello(&self, to: &[NodeId]) {
        for node in to {
            self.rpc.control(*node, Control::Hello { name: self.options.name.clone() });
        }
    }

    /// First the log begins, then the cluster has a number, which nobody has heard before.
    async fn found_with(self: Arc<Self>, members: BTreeMap<NodeId, String>) {
        let nodes: BTreeMap<u128, Member> = members.into_iter().map(|(node, name)| (node.0, Member { name })).collect();
        let count = nodes.len();
        if let Err(error) = self.raft.initialize(nodes).await {
            tracing::error!(%error, "the cluster cannot be founded");
        } else if let Ok(cluster) = random_id() {
            self.log.join_cluster(cluster).await;
            tracing::info!(cluster = format!("{cluster:032x}"), nodes = count, "this node has founded a cluster");
            self.say_hello(&self.rpc.linked());
        }
        self.adopting.store(false, Ordering::Release);
        self.nudge.notify_one();
    }

    /// Asks one node after the other, since anybody passes it on to the leader.
    fn ask_to_join(self: &Arc<Self>, linked: &[NodeId], now: u64) {
        let target = {
            let mut turning = self.turning.lock();
            if !due(&mut turning.joined_at, now, AGAIN) || linked.is_empty() {
                return;
            }
            turning.asked = (turning.asked + 1) % linked.len();
            linked[turning.asked]
        };
        let (node, name) = (self.me(), self.options.name.clone());
        self.rpc.control(target, Control::Join { hops: 0, node, name });
    }

    fn ask_to_register(self: &Arc<Self>, linked: &[NodeId], now: u64) {
        let Some(run) = self.seat.wanted() else { return };
        if !self.is_member() || !due(&mut self.turning.lock().registered_at, now, AGAIN) {
            return;
        }
        // A run that is not the first of this process has lost nothing since the one before.
        let intact = self.options.intact || run != self.options.run;
        self.pass_to_leader(Message::Control(Control::Register {
            hops: 0,
            node: self.me(),
            name: self.options.name.clone(),
            run,
            versions: self.options.versions,
            intact,
            linked: linked.iter().map(|node| node.0).collect(),
        }));
    }

    fn renew(&self, now: u64) {
        let fitness = (self.fitness)();
        if !self.works(now) || fitness == Fitness::Unfit {
            return;
        }
        let hampered = fitness == Fitness::Hampered;
        let Some(incarnation) = self.seat.renewal(now) else { return };
        let complaints = (self.complaints)();
        match self.leader() {
            Some(leader) if leader == self.me() => {
                match self.answer_renewal(self.options.node, Asking { incarnation, complaints, hampered }, now) {
                    Answer::Granted(granted) => self.seat.renewed(incarnation, now, granted),
                    Answer::Expired => self.seat.expired(incarnation),
                    Answer::Silence => {}
                }
            }
            Some(leader) => {
                let complaints = complaints.into_iter().map(|(node, of)| (node.0, of)).collect();
                let renew = Control::Renew { incarnation, sent: now, complaints, hampered };
                self.rpc.control(NodeId(leader), renew);
            }
            None => {}
        }
    }

    /// Whether the log reaches the disk and the state follows the log, both within the lease time.
    fn works(&self, now: u64) -> bool {
        let lease = self.options.lease_ms;
        let behind = self.log.committed_index().is_some_and(|index| index >= self.machine.applied());
        let mut turning = self.turning.lock();
        turning.behind_since = if behind { turning.behind_since.or(Some(now)) } else { None };
        let late = turning.behind_since.is_some_and(|since| now.saturating_sub(since) > lease);
        !late && !self.log.is_stalled(lease)
    }

    /// Makes a snapshot when the log has grown, and gives up the log behind one.
    fn keep_log_short(self: &Arc<Self>, now: u64) {
        let mut turning = self.turning.lock();
        if now.saturating_sub(turning.looked_at) < UPKEEP_MS {
            return;
        }
        turning.looked_at = now;
        let snapshot = self.machine.snapshot_at();
        let extent = self.log.extent(snapshot.map_or(0, |index| index + 1));
        let long = extent.entries >= self.options.snapshot_entries || extent.bytes >= self.options.snapshot_bytes;
        let under_way = |(at, before)| before == snapshot && now.saturating_sub(at) < SNAPSHOT_MS;
        let make = long && !turning.snapshot_asked.is_some_and(under_way);
        if make {
            turning.snapshot_asked = Some((now, snapshot));
        }
        let purge = snapshot.and_then(|index| self.log.purgeable(index, self.options.keep_log_bytes));
        if make || purge.is_some() {
            let inner = self.clone();
            self.runtime.spawn(async move {
                if let Some(upto) = purge {
                    let _ = inner.raft.trigger().purge_log(upto).await;
                }
                if make {
                    let _ = inner.raft.trigger().snapshot().await;
                }
            });
        }
    }

    /// Hands a message to the leader: to this node itself, or over the link. Without a leader it is lost, as it may be anywhere.
    pub(super) fn pass_to_leader(self: &Arc<Self>, message: Message) {
        match self.leader() {
            Some(leader) if leader == self.me() => self.lead_with(message),
            Some(leader) => _ = self.rpc.send(leader, Lane::Control, &message),
            None => {}
        }
    }

    /// Puts a batch into the log, if this node leads. What becomes of it shows when it is applied; that something has, the answer says.
    pub(super) fn write(&self, mut batch: Batch) -> Option<WriteAnswer> {
        if self.handing_over.load(Ordering::Acquire) {
            return None;
        }
        batch.at = self.machine.read().control_now();
        let write = std::pin::pin!(self.raft.client_write_ff(batch));
        // It waits for nothing, unless openraft has stopped.
        match write.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(written) => written.ok(),
            Poll::Pending => None,
        }
    }
}

/// Whether `pause` has passed since `last`; then it counts from now.
pub(super) fn due(last: &mut u64, now: u64, pause: Duration) -> bool {
    let due = u128::from(now.saturating_sub(*last)) >= pause.as_millis();
    if due {
        *last = now;
    }
    due
}
