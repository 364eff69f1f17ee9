//! The threads that hash passwords: few, at a lower priority than the shards, with a bounded queue before them.
//!
//! Owned by [`super::Access`]; the threads end with it. Invariants: a password is hashed on these threads and nowhere else; no more than [`WAITING_MAX`] wait;
//! one whose client has gone before its turn is not hashed.
//!
//! The test to read first: `super::tests::beyond_the_bound_clients_are_told_that_the_server_is_busy`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Passwords that may wait to be hashed. More clients are told Server Busy, so that a storm of reconnects is shed and not queued for longer than
/// clients wait.
pub(super) const WAITING_MAX: usize = 1024;

/// Longest wait for an answer. Beyond it the client has most likely given up. A build without optimisation hashes some fifty times slower.
const WAIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });

/// How much the threads stand back behind the shards (`nice`): somebody who sends wrong passwords gets what the others leave.
const NICENESS: libc::c_int = if cfg!(debug_assertions) { 0 } else { 5 };

type Work = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug)]
pub(super) struct Hashing {
    queue: SyncSender<Work>,
}

/// There was no room, or it took too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl Hashing {
    pub fn new(waiting_max: usize) -> Hashing {
        let (queue, work) = sync_channel(waiting_max);
        let work = Arc::new(Mutex::new(work));
        // Half of the cores at most.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 0..(cores / 2).max(1) {
            let work = Arc::clone(&work);
            let thread = std::thread::Builder::new().name(format!("hashing-{number}"));
            if let Err(error) = thread.spawn(move || run(&work)) {
                tracing::error!(%error, "a thread that hashes passwords cannot be started");
            }
        }
        Hashing { queue }
    }

    /// Does the work there, if its turn comes in time. Dropping the future gives it up.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Busy> {
        let (reply, answer) = oneshot::channel();
        let work = move || {
            if !reply.is_closed() {
                // The client may go while it is hashed.
                let _ = reply.send(work());
            }
        };
        match self.queue.try_send(Box::new(work)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(Busy),
        }
        match tokio::time::timeout(WAIT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(Busy),
        }
    }
}

fn run(work: &Mutex<Receiver<Work>>) {
    stand_back();
    loop {
        let next = work.lock().recv();
        match next {
            // Hashing a password that panics must not take the thread along.
            Ok(work) => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))),
            Err(_) => return,
        }
    }
}

#[cfg(target_os = "linux")]
fn stand_back() {
    // SAFETY: gettid takes no arguments and cannot fail; setpriority takes numbers only. On Linux the priority is that of the thread. That it may fail changes nothing but
    // the priority.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid) as libc::id_t;
        libc::setpriority(libc::PRIO_PROCESS, thread, NICENESS);
    }
}

#[cfg(not(target_os = "linux"))]
fn stand_back() {}
