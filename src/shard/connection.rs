//! The life of a connection on its shard: its task, reading, writing, timers, and its end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::access::Identity;
use crate::byte_stream::ByteStream;
use crate::limits;
use crate::mqtt::{Disconnect, Packet, PacketType, PropertiesBuf, Property, ProtocolVersion, ReasonCode};
use crate::session::{Answer, Wire};
use crate::subscriptions::SessionKey;

use super::closing::{Ended, Totals};
use super::connecting::Connecting;
use super::greeted::ListenerSlot;
use super::keeping::Due;
use super::outbox::Outbox;
use super::{Close, ConnectionKey, Pending, Session, Shard};

/// How far a connection has come.
pub(super) enum State {
    /// CONNECT was read; its outcome is awaited. Nothing is read meanwhile.
    Connecting(Box<Connecting>),
    Open {
        session: SessionKey,
    },
    /// What is in the outbox is written, then the stream is shut down.
    Closing,
}

/// One connection. An idle one holds no buffers.
pub(super) struct Connection {
    /// Tells this connection from an earlier one with the same key.
    pub serial: u64,
    pub stream: ByteStream,
    pub state: State,
    pub version: ProtocolVersion,
    pub outbox: Outbox,
    /// The bytes of a packet that has not come whole yet.
    pub partial: Vec<u8>,
    pub waker: Option<Waker>,
    pub dirty: bool,
    /// Bytes of it are being handled; others must not overtake them.
    pub handling: bool,
    /// Not read until the outbox has emptied.
    pub paused: bool,
    /// Not read until another shard, or the disk, has caught up.
    pub stalled: bool,
    /// Not read until another node has caught up.
    pub behind_peer: bool,
    /// Answers to its packets, in their order, and whether each may go; nothing is here when none waits.
    pub answers: VecDeque<(Answer, bool)>,
    /// Answers that have left the queue: the number of the first one in it.
    pub answered: u64,
    /// SUBACKs and UNSUBACKs that wait for the disk.
    pub acks_waiting: usize,
    /// Not read until some of all these have gone.
    pub unanswered: bool,
    /// Not read until there is room on the disk: its next packet, which is in `partial`, must not be taken before.
    pub held: bool,
    /// Writing has failed: nothing is sent any more, and what the client sent before it went is still read, its DISCONNECT perhaps.
    pub unwritable: bool,
    /// The stream is shut down only when the disk has what the client's DISCONNECT changed.
    pub close_waits: bool,
    /// The stream was shut down; what the client still sends is thrown away, so that it gets to read the last packet.
    pub shut: bool,
    /// The client's Maximum Packet Size, for the packet that ends the connection.
    pub packet_size_max: u32,
    /// The armed timer.
    pub timer: Option<u64>,
    /// When the next WebSocket ping is due, and how often.
    pub ping_at: Option<u64>,
    pub ping_every_ms: u64,
    /// When a connection that is closing is dropped at the latest.
    pub linger_until: Option<u64>,
    pub peer: SocketAddr,
    pub client_id: Arc<str>,
    /// What its client has proved, without what its rights have taken from it; and when that runs out, in milliseconds of the node's clock.
    pub identity: Identity,
    pub expires_at: Option<u64>,
    /// Whom access knows it to be.
    pub user_name: Option<Arc<str>>,
    /// Whom it says that it is, where that is another.
    pub claimed_name: Option<Arc<str>>,
    /// When its socket was accepted, in milliseconds of the node's clock.
    pub accepted_at: u64,
    /// Counts the connection at its listener.
    pub listener: ListenerSlot,
    pub totals: Totals,
    /// Why it ends, once it does.
    pub ended: Option<Ended>,
}

impl Connection {
    /// Writes a packet into the outbox. One that is larger than the client accepts is left out, as if it had been sent [MQTT-3.1.2-25].
    pub fn write(&mut self, packet: &Packet<'_>) {
        let out = self.outbox.buffer();
        let start = out.len();
        packet.encode(self.version, out);
        if out.len() - start > self.packet_size_max as usize {
            out.truncate(start);
        }
    }
}

/// The task of one connection: woken by its socket, it lets the shard do the work.
pub(super) struct ConnectionTask {
    shard: Rc<RefCell<Shard>>,
    key: ConnectionKey,
    serial: u64,
}

impl ConnectionTask {
    pub fn new(shard: Rc<RefCell<Shard>>, key: ConnectionKey, serial: u64) -> ConnectionTask {
        ConnectionTask { shard, key, serial }
    }
}

impl Future for ConnectionTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shard = self.shard.borrow_mut();
        shard.now = shard.shared.clock.now();
        let ended = shard.poll_connection(self.key, self.serial, cx);
        shard.settle();
        ended
    }
}

impl Shard {
    pub(super) fn is_current(&self, key: ConnectionKey, serial: u64) -> bool {
        self.connections.get(key as usize).is_some_and(|connection| connection.serial == serial)
    }

    pub(super) fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections.get_mut(key as usize)
    }

    pub(super) fn wake(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get(key as usize)
            && let Some(waker) = &connection.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Notes that the connection has something to write in this turn.
    pub(super) fn mark_dirty(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(key);
            self.wake_flusher();
        }
    }

    fn poll_connection(&mut self, key: ConnectionKey, serial: u64, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_current(key, serial) {
            return Poll::Ready(());
        }
        let connection = &mut self.connections[key as usize];
        if !connection.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            connection.waker = Some(cx.waker().clone());
        }
        if connection.outbox.has_to_flush() {
            self.flush_connection(key);
        }
        if self.is_current(key, serial) && matches!(self.connections[key as usize].state, State::Open { .. }) {
            self.take_up_held(key, serial);
            self.poll_read(key, serial, cx);
        }
        if self.is_current(key, serial) && matches!(self.connections[key as usize].state, State::Closing) {
            self.poll_close(key, cx);
        }
        if self.is_current(key, serial) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// The session of an open connection.
    pub(super) fn open_session(&mut self, key: ConnectionKey) -> Option<&mut Session> {
        match self.connections.get(key as usize)?.state {
            State::Open { session } => self.sessions.get_mut(session as usize).map(|slot| &mut slot.session),
            _ => None,
        }
    }

    /// Writes what the outbox holds, and goes on with what waits behind it while the socket takes it.
    pub(super) fn flush_connection(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        connection.dirty = false;
        if !self.shared.grant.is_valid() {
            self.suspended = true;
            return self.mark_dirty(key);
        }
        let connection = &mut self.connections[key as usize];
        if connection.unwritable {
            connection.outbox = Outbox::default();
            return;
        }
        // Without a waker the task has not run yet; its first poll flushes.
        let Some(waker) = connection.waker.take() else {
            return;
        };
        let mut cx = Context::from_waker(&waker);
        let mut again = false;
        let mut lost = false;
        for _ in 0..FLUSHES_PER_TURN {
            let connection = &mut self.connections[key as usize];
            let sent = &self.shared.metrics.shards[usize::from(self.id)].bytes_sent;
            let before = sent.get();
            let flushed = connection.outbox.poll_flush(&mut connection.stream, &mut cx, &mut self.pool, sent);
            connection.totals.bytes_out += sent.get().wrapping_sub(before);
            lost = matches!(flushed, Poll::Ready(Err(_)));
            again = matches!(flushed, Poll::Ready(Ok(()))) && self.pump(key);
            if !again {
                break;
            }
        }
        self.connections[key as usize].waker = Some(waker);
        if lost {
            self.writing_failed(key);
        } else if again {
            self.mark_dirty(key);
        } else {
            self.resume(key);
        }
    }

    /// The client is gone, but what it sent may not have been read yet. It is read to its end, which the socket has told the task of, or will.
    fn writing_failed(&mut self, key: ConnectionKey) {
        let until = self.now + limits::CLOSE_LINGER_MS;
        match self.connection(key) {
            Some(connection) if matches!(connection.state, State::Open { .. }) => {
                connection.unwritable = true;
                connection.paused = false;
                connection.outbox = Outbox::default();
                connection.linger_until = Some(until);
                self.arm_timer(key);
                self.wake(key);
            }
            _ => self.close(key, Close::Lost),
        }
    }

    /// Polls a connection again that was not read because its outbox was full, or that has sent its last packet.
    fn resume(&mut self, key: ConnectionKey) {
        let now = self.now;
        let connection = &mut self.connections[key as usize];
        let resumes = connection.paused && !connection.outbox.is_congested();
        connection.paused &= !resumes;
        if resumes && let Some(connected) = self.open_session(key).and_then(|session| session.connected_mut()) {
            // What the client sent meanwhile is about to be read.
            connected.keep_alive.packet_received(now);
        }
        let connection = &self.connections[key as usize];
        if resumes || (matches!(connection.state, State::Closing) && !connection.outbox.has_to_flush()) {
            self.wake(key);
        }
    }

    /// Ends a connection, in whatever state it is.
    pub(super) fn close(&mut self, key: ConnectionKey, close: Close) {
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        match std::mem::replace(&mut connection.state, State::Closing) {
            State::Connecting(connecting) if close == Close::Lost => {
                // The outcome is on its way and finds the connection gone.
                connection.state = State::Connecting(connecting);
                return;
            }
            State::Connecting(_) => {}
            State::Closing => {
                if close == Close::Lost {
                    self.remove(key);
                }
                return;
            }
            State::Open { session } => {
                self.note_end(key, close);
                self.leave_and_close(key, session, close);
            }
        }
        self.begin_closing(key, close);
    }

    /// A client that sees the server close the connection behind its DISCONNECT takes that for the end of its Will: it must be.
    fn leave_and_close(&mut self, key: ConnectionKey, session: SessionKey, close: Close) {
        let serial = self.connections[key as usize].serial;
        let by_client = matches!(close, Close::ByClient { .. });
        let pending = (self.shared.clustered && by_client).then_some(Pending::Close { connection: key, serial });
        let waits_for_cluster = pending.is_some();
        let written = self.leave(session, close, pending);
        let waits_for_disk = written && by_client && self.keeping.defers();
        self.connections[key as usize].close_waits = waits_for_cluster || waits_for_disk;
        if waits_for_disk {
            self.keeping.when_kept(Due::Close { connection: key, serial });
        }
    }

    pub(super) fn close_kept(&mut self, key: ConnectionKey, serial: u64) {
        if self.is_current(key, serial) {
            self.connections[key as usize].close_waits = false;
            self.wake(key);
        }
    }

    /// Tells the client why, as far as its version can say it, and gives it [`limits::CLOSE_LINGER_MS`] to read that.
    pub(super) fn begin_closing(&mut self, key: ConnectionKey, close: Close) {
        self.note_end(key, close);
        if close == Close::Lost {
            self.remove(key);
            return;
        }
        let linger_ms = if self.stopping { self.shared.shutdown_grace_ms } else { limits::CLOSE_LINGER_MS };
        let linger_until = self.now + linger_ms;
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        connection.state = State::Closing;
        connection.partial = Vec::new();
        match close {
            Close::ByServer { reason, what } => {
                connection.stream.set_close_reason(reason);
                if connection.version.is_v5() {
                    self.shared.metrics.shards[usize::from(self.id)].packet_sent(PacketType::Disconnect as usize);
                    let words = (what, &*self.elsewhere);
                    write_disconnect(reason, words, connection.packet_size_max, connection.outbox.buffer());
                }
            }
            Close::Refused { reason } => connection.stream.set_close_reason(reason),
            Close::ByClient { .. } | Close::Lost => {}
        }
        connection.linger_until = Some(linger_until);
        connection.ping_at = None;
        self.arm_timer(key);
        self.mark_dirty(key);
        self.wake(key);
    }

    /// Shuts the stream down behind the last packet, then waits for the client's end of it: closing a socket with unread bytes
    /// would reset the connection, and the client might never see the reason.
    fn poll_close(&mut self, key: ConnectionKey, cx: &mut Context<'_>) {
        let connection = &mut self.connections[key as usize];
        if connection.outbox.has_to_flush() || connection.close_waits {
            return;
        }
        if !connection.shut {
            match Pin::new(&mut connection.stream).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => self.shut(key),
                Poll::Ready(Err(_)) => return self.remove(key),
                Poll::Pending => return,
            }
        }
        let connection = &mut self.connections[key as usize];
        let mut read = ReadBuf::new(&mut self.read_buffer);
        match Pin::new(&mut connection.stream).poll_read(cx, &mut read) {
            Poll::Ready(Ok(())) if !read.filled().is_empty() => cx.waker().wake_by_ref(),
            Poll::Ready(_) => self.remove(key),
            Poll::Pending => {}
        }
    }

    /// All is written and the stream shut down: the client has some time to end its side.
    fn shut(&mut self, key: ConnectionKey) {
        let linger_ms = if self.stopping { limits::STOP_LINGER_MS } else { limits::CLOSE_LINGER_MS };
        let until = self.now + linger_ms;
        let connection = &mut self.connections[key as usize];
        connection.shut = true;
        connection.linger_until = connection.linger_until.map(|at| at.min(until));
        self.arm_timer(key);
    }

    /// Forgets a connection; its socket closes.
    pub(super) fn remove(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.try_remove(key as usize) else {
            return;
        };
        if let Some(at) = connection.timer {
            self.timers.disarm(at, key);
        }
        if let Some(waker) = &connection.waker {
            waker.wake_by_ref();
        }
        self.metrics().connections.sub(1);
        self.count_end(&connection);
    }

    /// Arms the connection's timer for whatever comes first.
    pub(super) fn arm_timer(&mut self, key: ConnectionKey) {
        let keep_alive = self
            .open_session(key)
            .and_then(|session| session.connected())
            .and_then(|connected| connected.keep_alive.deadline());
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        let next =
            [keep_alive, connection.ping_at, connection.linger_until, connection.expiry()].into_iter().flatten().min();
        if connection.timer == next {
            return;
        }
        if let Some(at) = connection.timer.take() {
            self.timers.disarm(at, key);
        }
        if let Some(at) = next {
            self.connections[key as usize].timer = Some(at);
            self.timers.arm(at, key);
        }
    }

    pub(super) fn timer_due(&mut self, key: ConnectionKey) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        connection.timer = None;
        if connection.linger_until.is_some_and(|until| until <= now) {
            match connection.state {
                State::Connecting(_) => self.give_up_connecting(key),
                _ => self.close(key, Close::Lost),
            }
            return;
        }
        if connection.expiry().is_some_and(|at| at <= now) {
            return self.credentials_expired(key);
        }
        if connection.ping_at.is_some_and(|at| at <= now) {
            connection.ping_at = Some(now + connection.ping_every_ms);
            connection.stream.ping();
            self.mark_dirty(key);
        }
        self.judge_keep_alive(key);
        self.arm_timer(key);
    }

    /// [MQTT-3.1.2-22]. While this shard does not read because another one or the disk is behind, silence is not the client's; nor while it waits for the
    /// client to take what it was sent, as long as that goes on.
    fn judge_keep_alive(&mut self, key: ConnectionKey) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(key as usize) else {
            return;
        };
        let progressed = connection.outbox.take_progress();
        let full = connection.held && connection.partial.len() >= limits::READ_BUFFER_BYTES;
        let waits = self.stalled_on != 0
            || self.keeping.behind
            || self.shares_full
            || connection.unanswered
            || connection.behind_peer
            || full
            || self.suspended;
        let unread = waits || (connection.paused && progressed);
        let Some(connected) = self.open_session(key).and_then(|session| session.connected_mut()) else {
            return;
        };
        if unread {
            connected.keep_alive.packet_received(now);
        } else if connected.keep_alive.has_run_out(now) {
            self.close(
                key,
                Close::ByServer {
                    reason: ReasonCode::KeepAliveTimeout,
                    what: "no packet for one and a half times the Keep Alive [MQTT-3.1.2-22]",
                },
            );
        }
    }

    pub(super) fn close_all(&mut self, reason: ReasonCode) {
        self.stopping = true;
        let keys: Vec<ConnectionKey> = self.connections.iter().map(|(key, _)| key as ConnectionKey).collect();
        for key in keys {
            self.close(key, Close::ByServer { reason, what: "" });
        }
    }

    /// Those that are on their way in are not among them: they are met the next time.
    pub(super) fn close_some(&mut self, count: u32, reason: ReasonCode, elsewhere: Arc<str>) {
        let open = self.connections.iter().filter(|(_, connection)| matches!(connection.state, State::Open { .. }));
        let keys: Vec<ConnectionKey> = open.take(count as usize).map(|(key, _)| key as ConnectionKey).collect();
        self.elsewhere = elsewhere;
        for key in keys {
            self.close(key, Close::ByServer { reason, what: "" });
        }
        self.elsewhere = "".into();
    }

    pub(super) fn close_overflowed(&mut self) {
        while let Some(key) = self.overflowed.pop() {
            self.close(
                key,
                Close::ByServer { reason: ReasonCode::QuotaExceeded, what: "the queue of the session is full" },
            );
        }
    }
}

/// Flushes of one connection in one turn, each followed by what waited in the queue.
const FLUSHES_PER_TURN: usize = 4;

/// DISCONNECT with the reason and, where the client takes a packet of that size, the words for a rule that was broken, or where to go instead [MQTT-3.14.2-3].
fn write_disconnect(reason: ReasonCode, (what, elsewhere): (&str, &str), packet_size_max: u32, out: &mut Vec<u8>) {
    let mut properties = PropertiesBuf::default();
    if !elsewhere.is_empty() && elsewhere.len() + DISCONNECT_BYTES <= packet_size_max as usize {
        properties.push(Property::ServerReference(elsewhere));
    } else if !what.is_empty() && what.len() + DISCONNECT_BYTES <= packet_size_max as usize {
        properties.push(Property::ReasonString(what));
    }
    Disconnect { reason, properties: properties.as_properties() }.encode(ProtocolVersion::V5, out);
}

/// A DISCONNECT but for the words of its Reason String, at the most.
const DISCONNECT_BYTES: usize = 16;
