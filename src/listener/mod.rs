//! From a listening socket to a connection whose client is known.
//!
//! Every shard accepts from every listener, each with its own duplicate of the listening socket. A connection is greeted on the thread that
//! accepted it, then handed to the shard of its client id by [`Dispatch::submit`].
//!
//! * [`tcp`]: sockets; `foreign` and `http`: clients at the wrong port.
//! * [`proxy_header`] and `forwarded`: whose connection it is that a trusted proxy brings. `tickets`: TLS sessions that are resumed on any node.
//! * [`tls`], `upgrade`, `websocket` with `frame_tracker`: the layers. Each turns a stream of bytes into another one, so that nothing behind them knows of frames.
//! * `greeting`: what a CONNECT must be; `newcomer`: the waiting, with its deadlines; `log_limit`: warnings at a bounded rate.
//!
//! The plain MQTT connection whose CONNECT is there when it is accepted, which after an outage is nearly every one, is served without a task and
//! without being registered here: accepted, read, judged and handed over in the loop.
//!
//! Invariants: nobody waits without a deadline; before its CONNECT is judged a connection costs a task and no buffer; what is refused is counted.
//!
//! The tests to read first: `tests::tcp`.

mod foreign;
mod forwarded;
mod frame_tracker;
mod greeting;
mod http;
mod log_limit;
mod newcomer;
pub mod proxy_header;
pub mod tcp;
mod tickets;
pub mod tls;
mod upgrade;
mod websocket;

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::access::{Access, Login};
use crate::byte_stream::{ByteStream, Socket};
use crate::config::{self, ForwardedHeader, Protocol, ProxyProtocol};
use crate::metrics::{RefusalGroup, Refusals};
use crate::mqtt::Connect;
use crate::shard::clock::Clock;
use crate::shard::greeted::doors::is_shut;
use crate::shard::greeted::{Dispatch, ListenerSlot, ListenerState};

use greeting::{Rules, Verdict};
use log_limit::{Cause, permit};
use newcomer::{End, Newcomer, Shown, report, submit, welcome};
use tcp::Accepted;
use tls::TlsReload;

/// Connections taken in one turn, after which the shard's other work has its turn.
const ACCEPT_BATCH: usize = 32;

/// Room for the first bytes of a plain connection.
const FIRST_BYTES: usize = 4096;

/// Pause when the process is out of descriptors or memory; connections wait in the kernel meanwhile.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// All that a shard needs to greet the connections of one listener.
pub struct Acceptor<D> {
    pub listener: Arc<ListenerState>,
    /// Set when the listener's configuration has `tls`.
    pub tls: Option<Arc<TlsReload>>,
    pub mqtt: Arc<config::Mqtt>,
    pub access: Arc<Access>,
    /// Where refused connections are counted.
    pub refusals: Arc<Refusals>,
    pub dispatch: D,
    pub clock: Clock,
}

/// Accepts and greets connections until `shutdown` says true; handshakes that are under way then go on. One call per
/// listener and shard, by `spawn_local`; `socket` is a duplicate of the listening socket that [`tcp::bind`] opened.
///
/// # Errors
/// When the socket cannot be registered with the runtime.
pub async fn accept_loop<D: Dispatch>(
    acceptor: Acceptor<D>,
    socket: std::net::TcpListener,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let acceptor = Rc::new(acceptor);
    let mut doors = acceptor.listener.doors.watch();
    let mut shutdown_while_shut = shutdown.clone();
    if is_shut(*doors.borrow()) {
        doors.mark_changed();
    }
    let mut socket = watch_readable(socket.into())?;
    loop {
        let mut ready = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
            // The listener has both ends of it.
            _ = doors.changed() => {
                let shut_socket = socket.into_inner();
                tokio::select! {
                    _ = shutdown_while_shut.wait_for(|stop| *stop) => return Ok(()),
                    _ = doors.wait_for(|turns| !is_shut(*turns)) => {}
                }
                // What the watch said of a socket that was shut is never unsaid.
                socket = watch_readable(shut_socket)?;
                continue;
            }
            ready = socket.readable() => ready?,
        };
        match acceptor.take_batch(socket.get_ref()) {
            Batch::Drained => ready.clear_ready(),
            Batch::Full => tokio::task::yield_now().await,
            Batch::Exhausted => tokio::time::sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

/// Watches a listening socket. Not by tokio's own listener, which registers every connection with the runtime as it accepts it: most
/// connections belong to another shard and would be taken out again.
fn watch_readable(socket: socket2::Socket) -> io::Result<AsyncFd<socket2::Socket>> {
    // SAFETY: a socket2::Socket owns one descriptor, opened before and closed by nothing but its drop, and says the same one every
    // time it is asked; the AsyncFd owns it and gives out shared references only, by which it cannot be closed or replaced.
    let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

enum Batch {
    /// The queue was empty at the end.
    Drained,
    Full,
    Exhausted,
}

impl<D: Dispatch> Acceptor<D> {
    fn take_batch(self: &Rc<Self>, listening: &socket2::Socket) -> Batch {
        let mut first_bytes = [0; FIRST_BYTES];
        for _ in 0..ACCEPT_BATCH {
            match tcp::accept(listening) {
                Accepted::Connection(socket, peer) => self.take(socket, peer, &mut first_bytes),
                Accepted::Nothing => return Batch::Drained,
                Accepted::Failed(error) => {
                    tracing::debug!(event = "accept", %error, "a connection died before it was accepted")
                }
                Accepted::Exhausted(error) => {
                    self.listener.counts.accept_failed.fetch_add(1, Ordering::Relaxed);
                    if let Some(left_out) = permit(Cause::Accept) {
                        let listener = self.listener.config.name.as_str();
                        tracing::error!(event = "accept", listener, %error, left_out, "cannot accept connections: raise the limit of open files");
                    }
                    return Batch::Exhausted;
                }
            }
        }
        Batch::Full
    }

    fn take(self: &Rc<Self>, socket: std::net::TcpStream, peer: SocketAddr, first_bytes: &mut [u8]) {
        self.listener.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.listener.occupy() else {
            self.listener.counts.refused.fetch_add(1, Ordering::Relaxed);
            self.refusals.count(RefusalGroup::Limit);
            if let Some(left_out) = permit(Cause::HardLimit) {
                let listener = self.listener.config.name.as_str();
                tracing::warn!(event = "refused", listener, %peer, left_out, "connection closed: far above max_connections");
            }
            return;
        };
        let mut newcomer =
            Newcomer { slot, peer, proxied_name: None, is_admitted: false, accepted_at: self.clock.now() };
        if self.says_more(&newcomer) {
            return self.wait_for(newcomer, socket, Vec::new());
        }
        if let Err(end) = self.admit(&mut newcomer) {
            return report(self, peer, &end);
        }
        if self.tls.is_some() || self.listener.config.protocol == Protocol::Ws {
            return self.wait_for(newcomer, socket, Vec::new());
        }
        match (&socket).read(first_bytes) {
            Ok(0) => report(self, peer, &End::Silent),
            Ok(len) => self.greet_at_once(newcomer, socket, &first_bytes[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for(newcomer, socket, Vec::new()),
            Err(error) => report(self, peer, &End::Network(error)),
        }
    }

    /// The short way: the whole CONNECT is there and nothing has to be waited for.
    fn greet_at_once(self: &Rc<Self>, newcomer: Newcomer, socket: std::net::TcpStream, bytes: &[u8]) {
        let Verdict::Hello { connect, packet_len } = greeting::judge(bytes, &self.rules(&newcomer.slot)) else {
            return self.wait_for(newcomer, socket, bytes.to_vec());
        };
        let shown = Shown::default();
        let login = self.login(&newcomer, &connect, &shown);
        // Who is refused is answered, and counted, by the long way.
        if self.access.takes_time(&login) || !login.allow_anonymous {
            return self.wait_for(newcomer, socket, bytes.to_vec());
        }
        match self.access.authenticate(&login).now_or_never() {
            Some(Ok(identity)) => {
                let peer = newcomer.peer;
                let stream = ByteStream::Tcp(Socket::detached(socket));
                if let Err(end) = submit(self, newcomer, stream, &connect, identity, bytes.split_at(packet_len)) {
                    report(self, peer, &end);
                }
            }
            _ => self.wait_for(newcomer, socket, bytes.to_vec()),
        }
    }

    fn wait_for(self: &Rc<Self>, newcomer: Newcomer, socket: std::net::TcpStream, early: Vec<u8>) {
        tokio::task::spawn_local(welcome(Rc::clone(self), newcomer, socket, early));
    }

    /// Whether the peer is a proxy that is yet to say whose connection it brings.
    fn says_more(&self, newcomer: &Newcomer) -> bool {
        let config = &self.listener.config;
        (config.proxy_protocol != ProxyProtocol::Off || self.reads_forwarded())
            && self.listener.trusts(newcomer.peer.ip())
    }

    /// Whether the head of an upgrade may say from where it came.
    fn reads_forwarded(&self) -> bool {
        self.listener.config.protocol == Protocol::Ws && self.listener.config.xff != ForwardedHeader::Off
    }

    /// Whether connections may come so fast from where this one came, once it is known. One that may not is closed, before anything is spent on it; where that is cheap it
    /// is told so first.
    fn admit(&self, newcomer: &mut Newcomer) -> Result<(), End> {
        newcomer.is_admitted = true;
        if self.dispatch.is_banned(newcomer.peer.ip()) {
            return Err(End::Banned);
        }
        match self.listener.gate.admit(&self.listener.node, newcomer.peer.ip(), newcomer.accepted_at) {
            Ok(()) => Ok(()),
            Err(kind) if self.tls.is_some() || !newcomer.slot.refuse() => Err(End::TooFast(kind)),
            Err(_) => Ok(()),
        }
    }

    fn rules(&self, slot: &ListenerSlot) -> Rules<'_> {
        let (over_limit, too_fast) = (slot.over_limit(), slot.too_fast());
        Rules { listener: &self.listener.config, mqtt: &self.mqtt, over_limit, too_fast }
    }

    fn login<'a>(&'a self, newcomer: &Newcomer, connect: &Connect<'a>, shown: &'a Shown) -> Login<'a> {
        Login {
            listener: &self.listener.config.name,
            allow_anonymous: self.listener.config.allow_anonymous.unwrap_or(false),
            address: newcomer.peer.ip(),
            client_id: connect.client_id,
            user_name: connect.user_name,
            password: connect.password,
            bearer: shown.bearer.as_deref().map(String::as_str),
            certificate: shown.certificate.as_ref(),
        }
    }
}
