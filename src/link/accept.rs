//! The socket where other nodes are accepted, and the newcomers that have proven nothing yet.
//!
//! Invariant: there are at most [`NEWCOMERS_MAX`] of them. When one more comes, the oldest of the address that has most of them goes: a real node proves
//! itself within a few round trips, so those that are there for long, and many, are not nodes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::handshake::{Introduced, UP_TIMEOUT, receive};
use super::hello::Purpose;
use super::peer::Event;
use super::refusal::{Failure, Refusal, permit};
use super::shared::{Shared, stopped};

/// Connections that have proven nothing yet, at one time.
pub(super) const NEWCOMERS_MAX: usize = 64;

const BACKLOG: i32 = 256;

/// How long nothing is accepted after an error, such as no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds the address where other nodes are accepted.
pub(super) fn listen(bind: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(bind), socket2::Type::STREAM, None)?;
    // A restart must not wait until the kernel has forgotten the connections of before.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&bind.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until the links end.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let newcomers = Arc::new(Newcomers::default());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, remote)) => newcomers.admit(&shared, socket, remote),
                Err(error) => {
                    if let Some(left_out) = permit("link: accept") {
                        tracing::warn!(event = "link", left_out, %error, "no connection of another node can be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = stopped(&mut stop) => break,
        }
    }
    newcomers.end();
    // Before `stop`: whoever waits for the end may bind the address again.
    drop(listener);
}

#[derive(Default)]
struct Newcomers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    numbers: u64,
    /// The oldest first.
    all: Vec<Newcomer>,
}

struct Newcomer {
    number: u64,
    ip: IpAddr,
    /// `None` for the moment in which the task is being started.
    task: Option<AbortHandle>,
}

impl Newcomers {
    fn admit(self: &Arc<Self>, shared: &Arc<Shared>, socket: TcpStream, remote: SocketAddr) {
        let (number, evicted) = self.0.lock().enter(remote.ip());
        let place = Place { newcomers: Arc::clone(self), number };
        // Outside of the lock: a runtime that ends drops the task at once, and its place with it.
        let task = shared.runtime.spawn(greet(Arc::clone(shared), socket, remote, place)).abort_handle();
        self.0.lock().seat(number, task);
        if let Some(task) = evicted {
            task.abort();
            shared.counts.evicted.fetch_add(1, Relaxed);
            if let Some(left_out) = permit("link: evicted") {
                tracing::warn!(event = "link", remote = %remote, left_out, "too many connections that prove nothing: the oldest is closed");
            }
        }
    }

    fn end(&self) {
        let all = std::mem::take(&mut self.0.lock().all);
        all.iter().filter_map(|newcomer| newcomer.task.as_ref()).for_each(AbortHandle::abort);
    }
}

impl Waiting {
    /// Makes a place for one more. Returns its number, and the task that has to go for it.
    fn enter(&mut self, ip: IpAddr) -> (u64, Option<AbortHandle>) {
        let evicted = (self.all.len() >= NEWCOMERS_MAX).then(|| self.evict()).flatten();
        self.numbers += 1;
        self.all.push(Newcomer { number: self.numbers, ip, task: None });
        (self.numbers, evicted)
    }

    /// Notes whose place that is, if it has not been given back already.
    fn seat(&mut self, number: u64, task: AbortHandle) {
        if let Some(newcomer) = self.all.iter_mut().find(|newcomer| newcomer.number == number) {
            newcomer.task = Some(task);
        }
    }

    fn evict(&mut self) -> Option<AbortHandle> {
        let of = |ip: IpAddr| self.all.iter().filter(|other| other.ip == ip).count();
        let crowd = self.all.iter().map(|newcomer| newcomer.ip).max_by_key(|ip| of(*ip))?;
        let oldest = self.all.iter().position(|newcomer| newcomer.ip == crowd)?;
        self.all.remove(oldest).task
    }
}

/// A newcomer's place among those that wait; it is given back when it has proven who it is, or is gone.
struct Place {
    newcomers: Arc<Newcomers>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.newcomers.0.lock().all.retain(|newcomer| newcomer.number != self.number);
    }
}

async fn greet(shared: Arc<Shared>, socket: TcpStream, remote: SocketAddr, place: Place) {
    let received = receive(&shared, socket, remote).await;
    drop(place);
    match received {
        Ok(introduced) => pass_on(&shared, introduced).await,
        Err(failure) => shared.note(&failure, &remote.to_string()),
    }
}

/// Hands a node that has proven who it is to the task that looks after it.
async fn pass_on(shared: &Arc<Shared>, introduced: Introduced) {
    let handle = match shared.meet(&introduced.hello, introduced.remote, None) {
        Ok(handle) => handle,
        Err(refusal) => {
            shared.note(&Failure::Refused(refusal), &introduced.remote.to_string());
            return introduced.refuse(refusal).await;
        }
    };
    if matches!(introduced.hello.purpose, Purpose::Bulk | Purpose::Data(_)) {
        // The peer may see the link up a moment earlier.
        let mut up = handle.up.subscribe();
        let _ = timeout(UP_TIMEOUT, up.wait_for(|is_up| *is_up)).await;
    }
    if let Err(unsent) = handle.events.send(Event::Accepted(Box::new(introduced))).await
        && let Event::Accepted(introduced) = unsent.0
    {
        introduced.refuse(Refusal::NotUp).await;
    }
}
