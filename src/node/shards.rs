//! The threads of the shards: each runs one shard, and accepts for every listener.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use tokio::sync::{oneshot, watch};
use tokio::task::LocalSet;
use tracing::error;

use holdfast_storage::Storage;

use crate::listener::tcp;
use crate::listener::{Acceptor, accept_loop};
use crate::shard::greeted::{Dispatch, Greeted};
use crate::shard::mailbox::Event;
use crate::shard::restoring::Stored;
use crate::shard::{self, ControlPlane, Shard, Shared};
use crate::subscriptions::ShardId;

use super::{Bound, Parts, StartError};

/// The running shards.
pub(super) struct Shards {
    threads: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Shards {
    /// Ends every shard's loop and waits for its thread.
    pub fn stop(self) {
        for (stop, thread) in self.threads {
            // A shard that is gone already needs no telling.
            let _ = stop.send(());
            if thread.join().is_err() {
                error!(event = "shard", "a shard ended by a panic");
            }
        }
    }
}

/// Takes greeted connections to the shard of their client id.
#[derive(Clone)]
struct ToShard {
    shared: Arc<Shared>,
    own: ShardId,
}

impl Dispatch for ToShard {
    fn submit(&self, mut greeted: Greeted) {
        let shard = self.shared.shard_of(&greeted.client_id);
        if shard != self.own
            && let Err(error) = greeted.stream.detach()
        {
            error!(event = "close", peer = %greeted.peer, %error, "the socket cannot be moved to its shard");
            return;
        }
        self.shared.mailboxes[usize::from(shard)].push(Event::Connection(Box::new(greeted)));
    }

    fn is_banned(&self, address: IpAddr) -> bool {
        self.shared.bans.of_address(address).is_some()
    }
}

/// Starts one thread for each shard. Returns when all of them run.
pub(super) fn start(
    parts: &Parts,
    plane: Arc<dyn ControlPlane>,
    stored: Vec<Stored>,
    sequence: u64,
    (opened, stopping): (&watch::Receiver<bool>, &watch::Receiver<bool>),
) -> Result<Shards, StartError> {
    let mut threads = Vec::new();
    let restored = Arc::new(Barrier::new(stored.len()));
    for (id, stored) in stored.into_iter().enumerate() {
        let acceptors = acceptors(parts, id as ShardId).map_err(StartError::Thread)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(HASHING_THREADS)
            .build()
            .map_err(StartError::Thread)?;
        let shard = ShardParts {
            id: id as ShardId,
            shared: parts.shared.clone(),
            plane: plane.clone(),
            storage: parts.storage.clone(),
            defers: parts.defers,
            stored,
            sequence,
            restored: restored.clone(),
        };
        let (stop, stopped) = oneshot::channel();
        let (opened, stopping) = (opened.clone(), stopping.clone());
        let thread = std::thread::Builder::new()
            .name(format!("shard-{id}"))
            .spawn(move || run(runtime, shard, acceptors, (opened, stopping), stopped));
        threads.push((stop, thread.map_err(StartError::Thread)?));
    }
    Ok(Shards { threads })
}

/// Threads of one shard that compute password hashes.
const HASHING_THREADS: usize = 4;

/// What a shard's thread makes its shard of: the shard itself never leaves that thread.
struct ShardParts {
    id: ShardId,
    shared: Arc<Shared>,
    plane: Arc<dyn ControlPlane>,
    storage: Option<Storage>,
    defers: bool,
    stored: Stored,
    sequence: u64,
    /// Passed when every shard has its sessions.
    restored: Arc<Barrier>,
}

impl ShardParts {
    fn make(self) -> Shard {
        let mut shard = Shard::new(self.id, self.shared, self.plane, self.sequence, self.storage, self.defers);
        shard.restore(self.stored);
        self.restored.wait();
        shard
    }
}

fn acceptors(parts: &Parts, own: ShardId) -> io::Result<Vec<(Acceptor<ToShard>, std::net::TcpListener)>> {
    parts
        .listeners
        .iter()
        .map(|Bound { state, socket, tls }| {
            let acceptor = Acceptor {
                listener: state.clone(),
                tls: tls.clone(),
                mqtt: parts.mqtt.clone(),
                access: parts.access.clone(),
                refusals: parts.refusals.clone(),
                dispatch: ToShard { shared: parts.shared.clone(), own },
                clock: parts.shared.clock,
            };
            Ok((acceptor, socket.try_clone()?))
        })
        .collect()
}

fn run(
    runtime: tokio::runtime::Runtime,
    parts: ShardParts,
    acceptors: Vec<(Acceptor<ToShard>, std::net::TcpListener)>,
    (opened, stopping): (watch::Receiver<bool>, watch::Receiver<bool>),
    stopped: oneshot::Receiver<()>,
) {
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let last_turn = shard::spawn(parts.make());
        for (acceptor, socket) in acceptors {
            let (mut opened, stopping) = (opened.clone(), stopping.clone());
            tokio::task::spawn_local(async move {
                if opened.wait_for(|open| *open).await.is_err() {
                    return;
                }
                if let Err(error) = tcp::listen(&socket) {
                    error!(event = "listener", %error, "a shard cannot listen");
                    return;
                }
                if let Err(error) = accept_loop(acceptor, socket, stopping).await {
                    error!(event = "listener", %error, "a shard cannot accept from a listener");
                }
            });
        }
        // The sender is dropped only after it has said stop.
        let _ = stopped.await;
        last_turn();
    });
}
