//! Retained messages are brought into agreement with other nodes: before this node serves, and every minute.
//!
//! One task drives everything: the side that asks, one node at a time, and the side that answers each node that asks. What is published meanwhile reaches every node by
//! itself; so a round that breaks costs nothing but another one.
//!
//! Owner: the task. Test to read first: `cluster-tests/tests/cluster/retained.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use holdfast_raft::NodeId;
use holdfast_storage::Storage;

use crate::journal;
use crate::link::Lane;
use crate::retained::Write;
use crate::retained::sync::{Frame, Replica, Role, Sync};
use crate::shard::Shared;

use super::plane::{ClusterPlane, kind};

/// How often nodes compare what they have.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// A round without any progress for so long is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames that wait for the task; what comes beyond is dropped, and breaks its round.
const FRAMES_WAITING: usize = 256;

const FROM_ASKER: u8 = 0;
const FROM_ANSWERER: u8 = 1;

/// What the task is told.
enum Told {
    Frame(NodeId, Bytes),
    /// Agree with this node; the answer says whether that was done.
    Agree(NodeId, oneshot::Sender<bool>),
}

/// The way to the task.
#[derive(Clone)]
pub(super) struct RetainedSync(mpsc::Sender<Told>);

impl RetainedSync {
    pub fn start(shared: Arc<Shared>, storage: Option<Storage>, plane: Arc<ClusterPlane>) -> RetainedSync {
        let (told, from) = mpsc::channel(FRAMES_WAITING);
        let driver = Driver { shared, storage, plane, answering: HashMap::new(), asking: None };
        tokio::spawn(driver.run(from));
        RetainedSync(told)
    }

    /// A frame of another node. Does not block.
    pub fn frame(&self, from: NodeId, payload: Bytes) {
        if self.0.try_send(Told::Frame(from, payload)).is_err() {
            debug!(event = "retained_sync", %from, "more frames than can be taken: the round is repeated");
        }
    }

    /// Agrees with a node. False when that did not come to its end.
    pub async fn agree_with(&self, node: NodeId) -> bool {
        let (done, is_done) = oneshot::channel();
        self.0.send(Told::Agree(node, done)).await.is_ok() && is_done.await.unwrap_or(false)
    }
}

struct Asking {
    node: NodeId,
    sync: Sync,
    until: Instant,
    done: oneshot::Sender<bool>,
}

struct Driver {
    shared: Arc<Shared>,
    storage: Option<Storage>,
    plane: Arc<ClusterPlane>,
    answering: HashMap<NodeId, Sync>,
    asking: Option<Asking>,
}

impl Driver {
    async fn run(mut self, mut told: mpsc::Receiver<Told>) {
        let mut waiting: Vec<(NodeId, oneshot::Sender<bool>)> = Vec::new();
        let mut compare_at = Instant::now() + COMPARE_EVERY;
        let mut turn = 0_usize;
        loop {
            if self.asking.is_none()
                && let Some((node, done)) = (!waiting.is_empty()).then(|| waiting.remove(0))
            {
                self.ask(node, done);
            }
            let wake_at = self.asking.as_ref().map_or(compare_at, |asking| asking.until.min(compare_at));
            tokio::select! {
                told = told.recv() => match told {
                    Some(Told::Frame(from, payload)) => self.take(from, payload),
                    Some(Told::Agree(node, done)) => waiting.push((node, done)),
                    None => return,
                },
                () = sleep_until(wake_at) => {
                    self.give_up_late();
                    if Instant::now() >= compare_at {
                        compare_at = Instant::now() + COMPARE_EVERY;
                        turn += 1;
                        self.compare_with_next(turn, &mut waiting);
                    }
                }
            }
        }
    }

    /// Each of the other nodes in turn. Of two that compare, one suffices; but both may.
    fn compare_with_next(&self, turn: usize, waiting: &mut Vec<(NodeId, oneshot::Sender<bool>)>) {
        let linked = self.plane.links().map(crate::link::Links::linked).unwrap_or_default();
        if let Some(node) = linked.get(turn % linked.len().max(1)) {
            waiting.push((*node, oneshot::channel().0));
        }
    }

    fn give_up_late(&mut self) {
        if let Some(asking) = self.asking.take_if(|asking| asking.until <= Instant::now()) {
            let _ = asking.done.send(false);
        }
    }

    fn value_bytes_max(&self) -> usize {
        self.shared.limits.packet_size_max as usize + 256 * 1024
    }

    fn ask(&mut self, node: NodeId, done: oneshot::Sender<bool>) {
        let mut sync = Sync::new(Role::Asks, self.value_bytes_max());
        let first = self.with_replica(|replica| sync.start(replica));
        if self.send(node, FROM_ASKER, vec![first]) {
            self.asking = Some(Asking { node, sync, until: Instant::now() + PATIENCE, done });
        } else {
            let _ = done.send(false);
        }
    }

    fn take(&mut self, from: NodeId, mut payload: Bytes) {
        let Some((role, rest)) = payload.split_first().map(|(role, rest)| (*role, payload.slice_ref(rest))) else {
            return;
        };
        payload = rest;
        let Some(frame) = Frame::decode(&payload) else {
            warn!(event = "retained_sync", %from, "a frame that is none");
            return;
        };
        if role == FROM_ASKER {
            let max = self.value_bytes_max();
            let mut sync = self.answering.remove(&from).unwrap_or_else(|| Sync::new(Role::Answers, max));
            let out = self.with_replica(|replica| sync.handle(frame, replica));
            if self.send(from, FROM_ANSWERER, out) {
                self.answering.insert(from, sync);
            }
        } else if let Some(mut asking) = self.asking.take_if(|asking| asking.node == from) {
            let out = self.with_replica(|replica| asking.sync.handle(frame, replica));
            asking.until = Instant::now() + PATIENCE;
            let sent = self.send(from, FROM_ASKER, out);
            if asking.sync.is_done() || asking.sync.is_broken() || !sent {
                let _ = asking.done.send(asking.sync.is_done());
            } else {
                self.asking = Some(asking);
            }
        }
    }

    /// Lends the node's retained messages, and writes down what has changed of them.
    fn with_replica<R>(&self, work: impl FnOnce(&mut Replica<'_>) -> R) -> R {
        let shared = &self.shared;
        let mut retained = shared.retained.write();
        let limits = (shared.retained_max, shared.retained_bytes_max);
        let mut replica = Replica::new(&mut retained, &shared.hybrid, shared.clock.now(), limits);
        let result = work(&mut replica);
        let (writes, refused) = replica.finish();
        drop(retained);
        if refused > 0 {
            warn!(
                event = "retained_sync",
                refused, "retained messages of another node were not taken: the store is full, or a clock is far ahead"
            );
        }
        write(self.storage.as_ref(), shared, writes);
        result
    }

    /// Whether the bulk lane has taken all of them: where it is full the other node does not keep up, and the round is given up.
    fn send(&self, to: NodeId, role: u8, frames: Vec<Frame>) -> bool {
        let Some(links) = self.plane.links() else {
            return false;
        };
        frames.into_iter().all(|frame| {
            let encoded = frame.encode();
            let mut payload = BytesMut::with_capacity(encoded.len() + 1);
            payload.put_u8(role);
            payload.extend_from_slice(&encoded);
            links.send(to, Lane::Bulk, kind::RETAINED, payload.freeze())
        })
    }
}

/// Writes down changes of retained messages that no shard has made.
pub(super) fn write(storage: Option<&Storage>, shared: &Shared, writes: Vec<Write>) {
    if let Some(storage) = storage.filter(|_| !writes.is_empty()) {
        let mut entries = writes.into_iter().map(journal::retained_entry).collect();
        storage.submit(shared.mailboxes.len(), &mut entries, false);
    }
}
