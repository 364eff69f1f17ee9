//! openraft's view of the other nodes: requests over messages, each with a number by which its answer is known.
//!
//! A request that is not answered in time fails, and openraft asks again; a late answer finds nobody who waits and is dropped.
//!
//! Test to read first: those of `group`, which run over a network of queues.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openraft::error::{Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{OptionalSend, Snapshot};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::admission;
use crate::clock::boot_ms;
use crate::command::NodeId;
use crate::entry::{Member, TypeConfig, Vote};
use crate::liveness::QuorumAcks;
use crate::log_store::LogStore;
use crate::wire::{self, Control, Lane, MESSAGE_BYTES_MAX, Message, PartAnswer, SnapshotPart};

/// What carries messages to the other nodes.
pub trait Network: Send + Sync + 'static {
    /// Hands `message` over for `to`; must not block. `false`: there is no link now, or its queue is full. What was taken may still be lost.
    /// On one lane messages arrive in order or not at all.
    fn send(&self, to: NodeId, lane: Lane, message: Bytes) -> bool;

    /// The nodes with a control link that is up both ways.
    fn linked(&self) -> Vec<NodeId>;
}

/// Until a node without link is tried again.
const BACKOFF: Duration = Duration::from_millis(50);
/// Until a piece of a snapshot that is not answered counts as lost. Putting the whole into place may take long.
const PART_PATIENCE: Duration = Duration::from_secs(5);
const LAST_PART_PATIENCE: Duration = Duration::from_secs(120);

/// What answers a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Append(AppendEntriesResponse<u128>),
    Vote(VoteResponse<u128>),
    Part(PartAnswer),
    Depart(Option<String>),
}

/// The requests under way.
pub(crate) struct Rpc {
    network: Arc<dyn Network>,
    log: LogStore,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, (u128, oneshot::Sender<Answer>)>>,
    acks: Mutex<QuorumAcks>,
    /// Milliseconds for which the log may be behind before this node stops to lead.
    patience: u64,
}

/// Forgets a request whose answer nobody waits for any more.
struct Waiting<'a> {
    rpc: &'a Rpc,
    request: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.rpc.waiting.lock().remove(&self.request);
    }
}

impl Rpc {
    pub fn new(network: Arc<dyn Network>, log: LogStore, patience: u64) -> Rpc {
        let (next, waiting, acks) = (AtomicU64::new(1), Mutex::default(), Mutex::default());
        Rpc { network, log, next, waiting, acks, patience }
    }

    /// Sends one message; `false` if there is no link, or nobody can carry it.
    pub fn send(&self, to: u128, lane: Lane, message: &Message) -> bool {
        let encoded = wire::encode(self.log.cluster(), message);
        if encoded.len() > MESSAGE_BYTES_MAX {
            // Nothing so large is let into the log; but one from before that was so may be in it.
            tracing::error!(to = %NodeId(to), bytes = encoded.len(), "a message is too large to be sent");
            return false;
        }
        self.network.send(NodeId(to), lane, encoded)
    }

    pub fn control(&self, to: NodeId, control: Control) -> bool {
        self.send(to.0, Lane::Control, &Message::Control(control))
    }

    pub fn linked(&self) -> Vec<NodeId> {
        self.network.linked()
    }

    /// Sends a request and waits for its answer, for `patience` at most.
    pub async fn ask(
        &self,
        to: u128,
        lane: Lane,
        patience: Duration,
        message: impl FnOnce(u64) -> Message,
    ) -> Result<Answer, Unanswered> {
        self.ask_by(to, patience, |request| self.send(to, lane, &message(request))).await
    }

    /// The same by other means: `send` says whether it has sent the request of that number.
    pub async fn ask_by(
        &self,
        to: u128,
        patience: Duration,
        send: impl FnOnce(u64) -> bool,
    ) -> Result<Answer, Unanswered> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(request, (to, answer));
        let _waiting = Waiting { rpc: self, request };
        if !send(request) {
            return Err(Unanswered::NoLink);
        }
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Unanswered::Late),
        }
    }

    /// The answer of `from` to a request came.
    pub fn answered(&self, from: u128, request: u64, answer: Answer) {
        let mut waiting = self.waiting.lock();
        if waiting.get(&request).is_some_and(|(to, _)| *to == from)
            && let Some((_, waiter)) = waiting.remove(&request)
        {
            // Who waited may have given up just now.
            let _ = waiter.send(answer);
        }
    }

    pub fn quorum_at(&self, term: u64, me: u128, configs: &[std::collections::BTreeSet<u128>]) -> Option<u64> {
        self.acks.lock().quorum_at(term, me, configs, boot_ms())
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("there is no link to the node")]
    NoLink,
    #[error("the node did not answer in time")]
    Late,
    #[error("the node answered something else")]
    Foreign,
    #[error("the disk of this node is behind")]
    Stalled,
}

/// Makes a [`Peer`] for each member.
#[derive(Clone)]
pub(crate) struct Peers(pub Arc<Rpc>);

/// One other member.
pub(crate) struct Peer {
    rpc: Arc<Rpc>,
    target: u128,
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u128, _: &Member) -> Peer {
        Peer { rpc: self.0.clone(), target }
    }
}

type RpcResult<T> = Result<T, RPCError<u128, Member, RaftError<u128>>>;

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        mut rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<u128>> {
        if self.rpc.log.is_stalled(self.rpc.patience) {
            return Err(unreachable(Unanswered::Stalled));
        }
        rpc.leader_commit = self.rpc.log.cap_commit(&rpc.vote, rpc.leader_commit);
        let (vote, before) = (rpc.vote, rpc.prev_log_id);
        let last = rpc.entries.last().map(|entry| entry.log_id).or(before);
        let sent_at = boot_ms();
        let message = |request| Message::Append { request, rpc };
        let answer = self.rpc.ask(self.target, Lane::Control, option.hard_ttl(), message).await;
        match answer.map_err(unreachable)? {
            Answer::Append(answer) => {
                admission::append_answer(&answer, &vote, before, last).map_err(|_| unreachable(Unanswered::Foreign))?;
                if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
                    self.rpc.acks.lock().acknowledged(vote.leader_id.term, self.target, sent_at);
                }
                Ok(answer)
            }
            _ => Err(unreachable(Unanswered::Foreign)),
        }
    }

    async fn vote(&mut self, rpc: VoteRequest<u128>, option: RPCOption) -> RpcResult<VoteResponse<u128>> {
        let message = |request| Message::Control(Control::Vote { request, rpc });
        match self.rpc.ask(self.target, Lane::Control, option.hard_ttl(), message).await.map_err(unreachable)? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(unreachable(Unanswered::Foreign)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u128>, StreamingError<TypeConfig, Fatal<u128>>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_parts(vote, snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(Unsent::NotNow(why)) => Err(StreamingError::Unreachable(Unreachable::new(&why))),
                Err(Unsent::Refused(why)) => Err(StreamingError::Network(NetworkError::new(&io::Error::other(why)))),
            },
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}

enum Unsent {
    NotNow(Unanswered),
    Refused(String),
}

impl Peer {
    /// Sends the pieces one after the other, each when the one before has arrived.
    async fn send_parts(&self, vote: Vote, snapshot: Snapshot<TypeConfig>) -> Result<Vote, Unsent> {
        let transfer = self.rpc.next.fetch_add(1, Ordering::Relaxed);
        let pieces = snapshot.snapshot.chunks;
        let count = pieces.len().max(1);
        for position in 0..count {
            let last = position + 1 == count;
            let bytes = pieces.get(position).cloned().unwrap_or_default();
            let part = |request| {
                let (meta, position) = (snapshot.meta.clone(), u32::try_from(position).unwrap_or(u32::MAX));
                Message::Part(SnapshotPart { request, transfer, vote, meta, position, last, bytes })
            };
            let patience = if last { LAST_PART_PATIENCE } else { PART_PATIENCE };
            match self.rpc.ask(self.target, Lane::Bulk, patience, part).await.map_err(Unsent::NotNow)? {
                Answer::Part(PartAnswer::More) if !last => {}
                Answer::Part(PartAnswer::Installed(vote)) => return Ok(vote),
                Answer::Part(PartAnswer::Refused(why)) => return Err(Unsent::Refused(why)),
                _ => return Err(Unsent::NotNow(Unanswered::Foreign)),
            }
        }
        Err(Unsent::NotNow(Unanswered::Foreign))
    }
}

fn unreachable(why: Unanswered) -> RPCError<u128, Member, RaftError<u128>> {
    RPCError::Unreachable(Unreachable::new(&why))
}
