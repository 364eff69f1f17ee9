//! Reading a connection: bytes in, whole packets handled, the rest kept; and when a connection is not read.
//!
//! Invariant: packets of one connection are handled in the order in which they came, but for the PINGREQ of one that is held.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

use crate::limits;
use crate::mqtt::{self, Packet, PacketType, Peer};
use crate::session::Wire as _;

use super::connection::State;
use super::outbox::Outbox;
use super::{Close, ConnectionKey, Shard};

/// PINGREQ as a client sends it (3.12.1).
const PINGREQ: &[u8] = &[0xC0, 0];

impl Shard {
    /// Reads and handles what has come, for at most [`limits::READS_PER_TURN`] buffers.
    pub(super) fn poll_read(&mut self, key: ConnectionKey, serial: u64, cx: &mut Context<'_>) {
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut reads = 0;
        let end = loop {
            if !self.may_read(key, serial) {
                break None;
            }
            if reads == limits::READS_PER_TURN {
                cx.waker().wake_by_ref();
                break None;
            }
            reads += 1;
            match self.read_once(key, &mut buffer, cx) {
                Poll::Ready(Ok(0)) => break Some(Close::Lost),
                Poll::Ready(Ok(filled)) => self.received(key, serial, &buffer[..filled]),
                Poll::Ready(Err(_)) => break Some(Close::Lost),
                Poll::Pending => break None,
            }
        };
        self.read_buffer = buffer;
        if let Some(end) = end {
            self.close(key, end);
        }
    }

    /// Whether the connection may be read from now. One that may not is woken when it may.
    fn may_read(&mut self, key: ConnectionKey, serial: u64) -> bool {
        if !self.is_current(key, serial) {
            return false;
        }
        let connection = &mut self.connections[key as usize];
        if !matches!(connection.state, State::Open { .. }) {
            return false;
        }
        if connection.unwritable {
            connection.outbox = Outbox::default();
        }
        if connection.outbox.is_congested() {
            connection.paused = true;
            return false;
        }
        if connection.answers.len() + connection.acks_waiting >= limits::UNANSWERED_MAX {
            connection.unanswered = true;
            return false;
        }
        if connection.behind_peer {
            return false;
        }
        if !self.shared.grant.is_valid() {
            self.suspended = true;
        }
        if connection.held && connection.partial.len() < limits::READ_BUFFER_BYTES && !self.suspended {
            return true;
        }
        if self.stalled_on != 0 || self.keeping.behind || self.shares_full || connection.held || self.suspended {
            if !connection.stalled {
                connection.stalled = true;
                self.stalled.push(key);
            }
            return false;
        }
        connection.stalled = false;
        true
    }

    /// There is room on the disk again: what was held is handled before anything newer.
    pub(super) fn take_up_held(&mut self, key: ConnectionKey, serial: u64) {
        if self.connections[key as usize].held && !self.storage_is_short() {
            self.connections[key as usize].held = false;
            let held = std::mem::take(&mut self.connections[key as usize].partial);
            self.received(key, serial, &held);
        }
    }

    /// One read into `buffer`, behind the bytes of an unfinished packet. Ready(n): `buffer[..n]` is to be handled;
    /// `Ok(0)` is the end of the stream. An unfinished packet that is too large for the buffer grows where it is.
    fn read_once(&mut self, key: ConnectionKey, buffer: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let connection = &mut self.connections[key as usize];
        let kept = connection.partial.len();
        let before = if kept <= buffer.len() / 2 { kept } else { 0 };
        let mut read = ReadBuf::new(&mut buffer[before..]);
        std::task::ready!(Pin::new(&mut connection.stream).poll_read(cx, &mut read))?;
        let n = read.filled().len();
        self.shared.metrics.shards[usize::from(self.id)].bytes_received.add(n as u64);
        connection.totals.bytes_in += n as u64;
        if n > 0 && before > 0 {
            buffer[..kept].copy_from_slice(&connection.partial);
            connection.partial = Vec::new();
        }
        Poll::Ready(Ok(if n == 0 { 0 } else { before + n }))
    }

    /// Handles bytes of the client: those of an unfinished packet that grows where it is, or whole packets and the start of the next.
    pub(super) fn received(&mut self, key: ConnectionKey, serial: u64, bytes: &[u8]) {
        let connection = &mut self.connections[key as usize];
        if connection.held {
            connection.partial.extend_from_slice(bytes);
            return self.answer_pings(key);
        }
        if connection.partial.is_empty() {
            let used = self.handle_packets(key, serial, bytes);
            if self.is_current(key, serial) && used < bytes.len() {
                self.connections[key as usize].partial = bytes[used..].to_vec();
                self.answer_pings(key);
            }
            return;
        }
        let mut partial = std::mem::take(&mut connection.partial);
        partial.extend_from_slice(bytes);
        let used = self.handle_packets(key, serial, &partial);
        if self.is_current(key, serial) && used < partial.len() {
            partial.drain(..used);
            if used > 0 {
                partial.shrink_to_fit();
            }
            self.connections[key as usize].partial = partial;
            self.answer_pings(key);
        }
    }

    /// The next packet of this connection waits until there is room on the disk, and all behind it but PINGREQ.
    fn hold(&mut self, key: ConnectionKey) {
        let connection = &mut self.connections[key as usize];
        connection.held = true;
        if !connection.stalled {
            connection.stalled = true;
            self.stalled.push(key);
        }
    }

    /// A connection that is held lives: PINGREQ has no order with other packets, and is answered.
    fn answer_pings(&mut self, key: ConnectionKey) {
        let connection = &mut self.connections[key as usize];
        if !connection.held {
            return;
        }
        let arrived = std::mem::take(&mut connection.partial);
        let (mut kept, mut at, mut pings) = (Vec::with_capacity(arrived.len()), 0, 0);
        while let Ok(Some(frame)) = mqtt::next_frame(&arrived[at..], self.shared.limits.packet_size_max) {
            let packet = &arrived[at..at + frame.total_len];
            at += frame.total_len;
            if packet == PINGREQ {
                pings += 1;
            } else {
                kept.extend_from_slice(packet);
            }
        }
        kept.extend_from_slice(&arrived[at..]);
        connection.partial = kept;
        for _ in 0..pings {
            Packet::PingResp.encode(connection.version, connection.outbox.buffer());
        }
        self.metrics().packets_received[PacketType::PingReq as usize - 1].add(pings);
        self.metrics().packets_sent[PacketType::PingResp as usize - 1].add(pings);
        self.packets_received(key, pings);
        self.mark_dirty(key);
    }

    /// Handles every whole packet of `bytes`; returns how many bytes they had.
    fn handle_packets(&mut self, key: ConnectionKey, serial: u64, bytes: &[u8]) -> usize {
        let mut used = 0;
        let mut packets = 0;
        self.set_handling(key, serial, true);
        while self.is_current(key, serial) {
            let connection = &self.connections[key as usize];
            let State::Open { session } = connection.state else {
                break;
            };
            let version = connection.version;
            let before = used;
            let packet = match mqtt::next_frame(&bytes[used..], self.shared.limits.packet_size_max) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    used += frame.total_len;
                    mqtt::decode(&frame, version, Peer::Client)
                }
                Err(malformed) => Err(malformed),
            };
            if let Ok(Packet::Publish(publish)) = &packet
                && self.must_hold(session, version, publish)
            {
                used = before;
                self.hold(key);
                break;
            }
            packets += 1;
            let outcome = match &packet {
                Ok(packet) => self.handle_packet(key, session, packet),
                Err(malformed) => Err(Close::ByServer { reason: malformed.reason, what: malformed.what }),
            };
            if let Err(close) = outcome {
                self.close(key, close);
                break;
            }
            self.settle();
        }
        self.set_handling(key, serial, false);
        self.packets_received(key, packets);
        used
    }

    fn set_handling(&mut self, key: ConnectionKey, serial: u64, handling: bool) {
        if let Some(connection) = self.connection(key).filter(|connection| connection.serial == serial) {
            connection.handling = handling;
        }
    }

    /// Handles what a connection has sent until now, before another one takes its session over: the two sockets are not read in the order
    /// in which the client wrote to them, and its DISCONNECT came first. What follows from it is settled by the caller.
    pub(super) fn hear_out(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connection(key).filter(|connection| !connection.handling) else {
            return;
        };
        // Without a waker its task has not run yet, and will look for itself.
        let waker = connection.waker.clone().unwrap_or_else(|| Waker::noop().clone());
        let serial = connection.serial;
        let mut cx = Context::from_waker(&waker);
        let mut buffer = vec![0; limits::READ_BUFFER_BYTES];
        self.hearing_out = true;
        for _ in 0..limits::READS_PER_TURN {
            // Whether another shard is behind does not matter: this is bounded, and there will be no later.
            if !self.is_current(key, serial) || !matches!(self.connections[key as usize].state, State::Open { .. }) {
                break;
            }
            match self.connections[key as usize].stream.poll_read_arrived(&mut cx, &mut buffer) {
                Poll::Ready(Ok(filled)) if filled > 0 => {
                    self.metrics().bytes_received.add(filled as u64);
                    self.connections[key as usize].totals.bytes_in += filled as u64;
                    self.received(key, serial, &buffer[..filled]);
                }
                Poll::Ready(_) => self.close(key, Close::Lost),
                Poll::Pending => break,
            }
        }
        self.close_overflowed();
        self.hearing_out = false;
    }

    fn packets_received(&mut self, key: ConnectionKey, packets: u64) {
        if let Some(connection) = self.connection(key) {
            connection.totals.packets_in += packets;
        }
        let now = self.now;
        if packets > 0
            && let Some(session) = self.open_session(key)
            && let Some(connected) = session.connected_mut()
        {
            connected.keep_alive.packet_received(now);
        }
    }
}
