//! What peers send.
//!
//! A message is decoded and acted upon on the thread that brings it, which so never waits. Appends go into a short queue per peer and are answered by a task of their own, in order; what does
//! not fit is dropped and counted, as the leader sends it again. An append is answered when what it brought is on this node's disk; one that brought nothing, a heartbeat, at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openraft::Snapshot;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};

use super::Inner;
use crate::admission;
use crate::clock::boot_ms;
use crate::command::NodeId;
use crate::entry::{SnapshotMeta, TypeConfig, Vote};
use crate::liveness::{Answer as RenewalAnswer, Asking};
use crate::network::Answer;
use crate::state::ControlState;
use crate::state_machine::Image;
use crate::wire::{self, Control, Lane, Message, PartAnswer, SnapshotPart};

/// Appends of one peer that may wait. The leader has one under way, and repeats it when it is late.
const APPENDS_MAX: usize = 16;
/// Answers to one peer that may wait for the disk.
const UNFLUSHED_MAX: usize = 16;
/// Bytes of a snapshot at most.
const SNAPSHOT_BYTES_MAX: usize = 8 * 1024 * 1024 * 1024;
/// Times that a message is passed on.
const HOPS_MAX: u8 = 3;
/// Milliseconds between two lines about messages that were refused.
const LOG_PAUSE_MS: u64 = 1000;

type Append = (u64, AppendEntriesRequest<TypeConfig>);

/// What has come and is not done yet.
#[derive(Default)]
pub(super) struct Inbox {
    appends: Mutex<HashMap<u128, mpsc::Sender<Append>>>,
    snapshots: Mutex<HashMap<u128, Assembly>>,
    refused: AtomicU64,
    logged_at: AtomicU64,
}

/// A snapshot of which some pieces have come.
struct Assembly {
    transfer: u64,
    chunks: Vec<Bytes>,
    bytes: usize,
}

impl Inbox {
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Ends the tasks that answer appends.
    pub fn close(&self) {
        self.appends.lock().clear();
        self.snapshots.lock().clear();
    }

    pub(super) fn refuse(&self, from: NodeId, why: &dyn std::fmt::Display) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let (now, last) = (boot_ms(), self.logged_at.load(Ordering::Relaxed));
        if now.saturating_sub(last) >= LOG_PAUSE_MS {
            self.logged_at.store(now, Ordering::Relaxed);
            tracing::warn!(node = %from, %why, "a message of another node is refused");
        }
    }
}

impl Inner {
    pub(super) fn receive(self: &Arc<Self>, from: NodeId, _: Lane, message: Bytes) {
        if *self.stopped.borrow() {
            return;
        }
        let (cluster, message) = match wire::decode(message) {
            Ok(decoded) => decoded,
            Err(fault) => return self.inbox.refuse(from, &fault),
        };
        let own = self.log.cluster();
        if own != 0 && cluster != 0 && own != cluster {
            let why = format!("it is of cluster {cluster:032x}, and this node is in cluster {own:032x}");
            return self.inbox.refuse(from, &why);
        }
        let admitted = match &message {
            Message::Control(control) => admission::control(control),
            Message::Append { rpc, .. } => admission::append(rpc),
            Message::Part(part) => admission::part(part),
            // The leader looks into it, whoever passes it on.
            Message::Propose { .. } => Ok(()),
        };
        if let Err(why) = admitted {
            return self.inbox.refuse(from, &why);
        }
        match message {
            Message::Control(Control::Hello { .. }) => self.hello(from, cluster),
            Message::Control(Control::AskPromise { attempt }) => self.asked_for_promise(from, cluster, attempt),
            Message::Control(Control::Promise { attempt, name }) => {
                if own == 0 && cluster == 0 {
                    self.founding.lock().promise(from, attempt, name);
                    self.nudge.notify_one();
                }
            }
            // Of no use before both are in the same cluster; who sent it sends it again.
            _ if cluster == 0 => {}
            _ if own == 0 => self.adopt(from, cluster),
            message => self.dispatch(from, message),
        }
    }

    fn hello(self: &Arc<Self>, from: NodeId, cluster: u128) {
        let own = self.log.cluster();
        match (own, cluster) {
            (0, 0) => self.founding.lock().hello(from, boot_ms()),
            (0, _) => self.adopt(from, cluster),
            (_, 0) => _ = self.rpc.control(from, Control::Hello { name: self.options.name.clone() }),
            _ => {}
        }
    }

    fn asked_for_promise(&self, from: NodeId, cluster: u128, attempt: u64) {
        if self.log.cluster() != 0 || cluster != 0 || self.adopting.load(Ordering::Acquire) {
            return;
        }
        if self.founding.lock().asked(from, boot_ms()) {
            self.rpc.control(from, Control::Promise { attempt, name: self.options.name.clone() });
        }
    }

    /// This node is in `cluster` from now on, unless it has promised itself to another founder.
    fn adopt(self: &Arc<Self>, from: NodeId, cluster: u128) {
        let mut founding = self.founding.lock();
        founding.forget(from);
        if founding.promised_to(boot_ms()).is_some_and(|founder| founder != from) {
            return;
        }
        drop(founding);
        if self.adopting.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.clone();
        self.runtime.spawn(async move {
            if inner.log.cluster() == 0 {
                inner.log.join_cluster(cluster).await;
                tracing::info!(cluster = format!("{cluster:032x}"), "this node is in a cluster");
            }
            inner.adopting.store(false, Ordering::Release);
            inner.nudge.notify_one();
        });
    }

    fn dispatch(self: &Arc<Self>, from: NodeId, message: Message) {
        match message {
            Message::Append { request, rpc } => self.append(from, request, rpc),
            Message::Part(part) => self.take_part(from, part),
            Message::Propose { hops, batch } => self.pass_on(hops, |hops| Message::Propose { hops, batch }),
            Message::Control(control) => self.control(from, control),
        }
    }

    fn control(self: &Arc<Self>, from: NodeId, control: Control) {
        match control {
            Control::AppendAnswer { request, answer } => self.rpc.answered(from.0, request, Answer::Append(answer)),
            Control::VoteAnswer { request, answer } => self.rpc.answered(from.0, request, Answer::Vote(answer)),
            Control::PartAnswer { request, answer } => self.rpc.answered(from.0, request, Answer::Part(answer)),
            Control::DepartAnswer { request, refused } => {
                self.rpc.answered(from.0, request, Answer::Depart(refused));
            }
            Control::Vote { request, rpc } => {
                // It is judged all the same: this node may be the one that is behind.
                let members = self.members().nodes;
                if members.contains_key(&self.me()) && !members.contains_key(&from.0) {
                    self.rpc.control(from, Control::NoMember);
                }
                let inner = self.clone();
                self.runtime.spawn(async move {
                    if let Ok(answer) = inner.raft.vote(rpc).await {
                        inner.rpc.control(from, Control::VoteAnswer { request, answer });
                    }
                });
            }
            Control::Renew { incarnation, sent, complaints, hampered } => {
                let complaints = complaints.into_iter().map(|(node, of)| (NodeId(node), of)).collect();
                match self.answer_renewal(from, Asking { incarnation, complaints, hampered }, boot_ms()) {
                    RenewalAnswer::Granted(granted) => {
                        self.rpc.control(from, Control::Renewed { incarnation, sent, granted });
                    }
                    RenewalAnswer::Expired => _ = self.rpc.control(from, Control::Expired { incarnation }),
                    RenewalAnswer::Silence => {}
                }
            }
            Control::Renewed { incarnation, sent, granted } => {
                self.strangers.lock().clear();
                self.seat.renewed(incarnation, sent, granted);
            }
            Control::Expired { incarnation } => self.seat.expired(incarnation),
            Control::Ended { incarnation } => {
                self.ended.lock().insert(from, incarnation);
                self.nudge.notify_one();
            }
            Control::TakeOver => self.take_over(from),
            Control::NoMember => self.is_no_member_for(from),
            Control::Applied { index } => self.seat.audience().applied_by(from, index),
            Control::JoinRefused { reason } => self.note_refused(from, reason),
            passed => self.pass_on_control(passed),
        }
    }

    /// Said again and again, and logged when it is news.
    fn note_refused(&self, by: NodeId, reason: String) {
        let mut refused = self.join_refused.lock();
        if refused.as_ref() != Some(&reason) {
            tracing::warn!(node = %by, %reason, "the cluster does not take this node");
            *refused = Some(reason);
        }
    }

    /// A voter knows this node as a member no more. One may be behind, or ahead of what the others agree upon; a majority of those that this node knows is not.
    fn is_no_member_for(&self, voter: NodeId) {
        let voters = self.members().voters;
        let mut strangers = self.strangers.lock();
        if voters.contains(&voter.0) && strangers.insert(voter.0) {
            let reason = "it is no member any more, and must begin anew with an empty data directory";
            self.note_refused(voter, reason.to_owned());
        }
        if strangers.len() > voters.len() / 2 {
            self.removed.send_replace(true);
        }
    }

    /// The leader stops: this node asks for votes at once, and does not wait until the others have missed the old one.
    fn take_over(self: &Arc<Self>, from: NodeId) {
        if self.leader() == Some(from.0) && !*self.stopping.borrow() {
            let inner = self.clone();
            self.runtime.spawn(async move {
                let _ = inner.raft.trigger().elect().await;
            });
        }
    }

    /// What is for the leader, from wherever it comes.
    fn pass_on_control(self: &Arc<Self>, control: Control) {
        match control {
            Control::Register { hops, node, name, run, versions, intact, linked } => self.pass_on(hops, |hops| {
                Message::Control(Control::Register { hops, node, name, run, versions, intact, linked })
            }),
            Control::Join { hops, node, name } => {
                self.pass_on(hops, |hops| Message::Control(Control::Join { hops, node, name }));
            }
            Control::Depart { hops, request, asker, who, force, again } => {
                self.pass_on(hops, |hops| Message::Control(Control::Depart { hops, request, asker, who, force, again }))
            }
            _ => {}
        }
    }

    fn pass_on(self: &Arc<Self>, hops: u8, message: impl FnOnce(u8) -> Message) {
        if hops < HOPS_MAX {
            self.pass_to_leader(message(hops + 1));
        }
    }

    fn append(self: &Arc<Self>, from: NodeId, request: u64, rpc: AppendEntriesRequest<TypeConfig>) {
        if rpc.vote.leader_id.node_id != from.0 {
            return self.inbox.refuse(from, &"it sends entries of another leader");
        }
        let mut appends = self.inbox.appends.lock();
        let queue = appends.entry(from.0).or_insert_with(|| {
            let (queue, waiting) = mpsc::channel(APPENDS_MAX);
            self.runtime.spawn(answer_appends(self.clone(), from, waiting));
            queue
        });
        if queue.try_send((request, rpc)).is_err() {
            drop(appends);
            self.inbox.refuse(from, &"too many appends wait");
        }
    }

    fn take_part(self: &Arc<Self>, from: NodeId, part: SnapshotPart) {
        let (request, last) = (part.request, part.last);
        let (vote, meta) = (part.vote, part.meta.clone());
        match self.inbox.assemble(from, part) {
            Err(why) => {
                self.rpc.control(from, Control::PartAnswer { request, answer: PartAnswer::Refused(why) });
            }
            Ok(chunks) if last => {
                self.runtime.spawn(self.clone().install(from, request, vote, meta, chunks));
            }
            Ok(_) => _ = self.rpc.control(from, Control::PartAnswer { request, answer: PartAnswer::More }),
        }
    }

    /// Restores a snapshot, and hands it to openraft if it can be restored.
    async fn install(self: Arc<Self>, from: NodeId, request: u64, vote: Vote, meta: SnapshotMeta, chunks: Vec<Bytes>) {
        let restored = tokio::task::spawn_blocking(move || {
            let state = ControlState::restore(chunks.iter()).map_err(|fault| fault.to_string())?;
            let restored = Some(Arc::new(Mutex::new(Some(state))));
            Ok::<_, String>(Image { chunks: Arc::new(chunks), restored })
        });
        let answer = match restored.await {
            Err(_) => PartAnswer::Refused("the node stops".to_owned()),
            Ok(Err(why)) => {
                self.inbox.refuse(from, &format!("its snapshot cannot be restored: {why}"));
                PartAnswer::Refused(why)
            }
            Ok(Ok(image)) => {
                let snapshot = Snapshot { meta, snapshot: Box::new(image) };
                match self.raft.install_full_snapshot(vote, snapshot).await {
                    Ok(response) => PartAnswer::Installed(response.vote),
                    Err(fatal) => PartAnswer::Refused(fatal.to_string()),
                }
            }
        };
        self.rpc.control(from, Control::PartAnswer { request, answer });
    }
}

impl Inbox {
    /// Adds a piece; returns all of them when it is the last.
    fn assemble(&self, from: NodeId, part: SnapshotPart) -> Result<Vec<Bytes>, String> {
        let mut snapshots = self.snapshots.lock();
        if part.position == 0 {
            let fresh = Assembly { transfer: part.transfer, chunks: Vec::new(), bytes: 0 };
            snapshots.insert(from.0, fresh);
        }
        let Some(assembly) = snapshots.get_mut(&from.0).filter(|assembly| assembly.transfer == part.transfer) else {
            return Err("the first piece has not come".to_owned());
        };
        if assembly.chunks.len() != part.position as usize {
            return Err(format!("piece {} comes instead of piece {}", part.position, assembly.chunks.len()));
        }
        assembly.bytes += part.bytes.len();
        if assembly.bytes > SNAPSHOT_BYTES_MAX {
            snapshots.remove(&from.0);
            return Err(format!("a snapshot has {SNAPSHOT_BYTES_MAX} bytes at most"));
        }
        assembly.chunks.push(part.bytes);
        if !part.last {
            return Ok(Vec::new());
        }
        Ok(snapshots.remove(&from.0).map(|assembly| assembly.chunks).unwrap_or_default())
    }
}

/// Hands the appends of one peer to openraft, in order, and answers them, until the node stops.
async fn answer_appends(inner: Arc<Inner>, from: NodeId, mut waiting: mpsc::Receiver<Append>) {
    let room = Arc::new(Semaphore::new(UNFLUSHED_MAX));
    while let Some((request, rpc)) = waiting.recv().await {
        let before = rpc.prev_log_id.map_or(0, |id| id.index + 1);
        let behind = before + rpc.entries.len() as u64;
        let Ok(answer) = inner.raft.append_entries(rpc).await else { continue };
        if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
            inner.leader_heard.store(boot_ms(), Ordering::Relaxed);
        }
        let acknowledged = match &answer {
            AppendEntriesResponse::Success => behind.checked_sub(1),
            AppendEntriesResponse::PartialSuccess(matching) => matching.map(|id| id.index),
            AppendEntriesResponse::Conflict | AppendEntriesResponse::HigherVote(_) => None,
        };
        let answer = Control::AppendAnswer { request, answer };
        match acknowledged.filter(|index| !inner.log.is_flushed_to(*index)) {
            None => _ = inner.rpc.control(from, answer),
            Some(index) => {
                // Without room there is no answer, and the leader asks again.
                let Ok(place) = room.clone().try_acquire_owned() else { continue };
                let inner = inner.clone();
                tokio::spawn(async move {
                    inner.log.flushed_to(index).await;
                    inner.rpc.control(from, answer);
                    drop(place);
                });
            }
        }
    }
}
