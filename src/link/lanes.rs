//! Control and bulk connections at work: frames out of a queue into a socket, and out of a socket to the receiver.
//!
//! A lane's connection carries frames from the dialler to the acceptor; on the other half of a control connection there are pongs and signs of life only.
//! Each side of a control connection says something once a second, and whoever hears nothing for [`SILENCE_MAX`] closes it: so a peer that froze is
//! found out, and one that is only slow to take a large frame is not.
//!
//! Invariant: what a frame says of its length is believed up to [`FRAME_BYTES_MAX`], and memory is taken as the bytes come.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::outbound::{Batch, FRAME_HEAD_BYTES};
use super::peer::{Event, PeerHandle, Slot};
use super::shared::Shared;
use super::told::{self, Told};
use super::{FRAME_BYTES_MAX, Lane, Peer};
use crate::byte_stream::ByteStream;

/// How often each side of a control connection says that it is there.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// A control connection on which nothing came for so long is closed.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Kinds from here on are the links' own.
pub(super) const OWN_KINDS: u8 = 0xF0;
const PING: u8 = 0xF0;
const PONG: u8 = 0xF1;
/// The dialler has the Welcome: it may be sent to.
const READY: u8 = 0xF2;
/// Nodes that the sender knows.
pub(super) const TOLD: u8 = 0xF3;

/// A payload up to this size is copied out of the buffer that it was read into; a larger one keeps it.
const COPIED_BYTES: usize = 4096;

/// Room that is made for the rest of a frame at a time.
const READ_BYTES: usize = 64 * 1024;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("{0}")]
    Network(#[from] io::Error),
    #[error("closed by the peer")]
    Closed,
    /// A node that ends in good order closes its connections: this is how others know one that does not.
    #[error("nothing heard for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("a frame of {0} bytes, and {FRAME_BYTES_MAX} are the most")]
    TooLong(u32),
    #[error("a frame that does not belong there")]
    Unexpected,
    #[error("the queue to the peer is full")]
    Overflow,
}

/// One connection of a lane, and whose it is.
pub(super) struct Connection {
    pub shared: Arc<Shared>,
    pub handle: Arc<PeerHandle>,
    /// The run of the peer that it was greeted with.
    pub peer: Arc<Peer>,
    pub slot: Slot,
    /// Which of the connections that the slot has had.
    pub generation: u64,
}

impl Connection {
    /// Carries frames until the connection ends, and tells the peer's task why it did.
    pub(super) async fn run(self, stream: ByteStream) {
        let (reader, writer) = tokio::io::split(stream);
        let mut frames = Frames { half: reader, buffer: BytesMut::new(), handle: Arc::clone(&self.handle) };
        let pong = LastPing::default();
        let end = match self.slot {
            Slot::ControlOut => tokio::select! {
                end = self.read_answers(&mut frames) => end,
                end = self.write_control(writer) => end,
            },
            Slot::ControlIn => tokio::select! {
                end = self.read_control(&mut frames, &pong) => end,
                end = self.write_answers(writer, &pong) => end,
            },
            Slot::BulkOut => tokio::select! {
                end = frames.nothing() => end,
                end = self.write_bulk(writer) => end,
            },
            // The other half stays open, and nothing is written into it.
            Slot::BulkIn => {
                let end = self.read_bulk(&mut frames).await;
                drop(writer);
                end
            }
        };
        self.ended(end.unwrap_or_else(|end| end).to_string()).await;
    }

    /// Tells the peer's task that there is no connection any more.
    pub(super) async fn ended(&self, why: String) {
        // Without that task nobody needs to know.
        let _ = self.handle.events.send(Event::Ended { slot: self.slot, generation: self.generation, why }).await;
    }

    async fn write_control(&self, mut half: WriteHalf<ByteStream>) -> Result<End, End> {
        let queue = &self.handle.control;
        let mut next_ping = Instant::now();
        let mut batch = Batch::default();
        batch.push(READY, Bytes::new());
        loop {
            if self.handle.has_overflown() {
                return Ok(End::Overflow);
            }
            if Instant::now() >= next_ping {
                next_ping = Instant::now() + ALIVE_INTERVAL;
                let micros = self.shared.started.elapsed().as_micros() as u64;
                batch.push(PING, Bytes::copy_from_slice(&micros.to_be_bytes()));
            }
            queue.take(&mut batch);
            if batch.has_remaining() {
                self.write(&mut half, &mut batch).await?;
            } else {
                let _ = timeout_at(next_ping, queue.wake.notified()).await;
            }
        }
    }

    async fn write_bulk(&self, mut half: WriteHalf<ByteStream>) -> Result<End, End> {
        let queue = &self.handle.bulk;
        let mut batch = Batch::default();
        loop {
            queue.take(&mut batch);
            if batch.has_remaining() {
                self.write(&mut half, &mut batch).await?;
            } else {
                queue.wake.notified().await;
            }
        }
    }

    async fn write_answers(&self, mut half: WriteHalf<ByteStream>, pong: &LastPing) -> Result<End, End> {
        let mut next_alive = Instant::now() + ALIVE_INTERVAL;
        let mut batch = Batch::default();
        loop {
            if let Some(ping) = pong.ping.lock().take() {
                batch.push(PONG, ping);
            } else if Instant::now() >= next_alive {
                batch.push(PING, Bytes::new());
            }
            if batch.has_remaining() {
                next_alive = Instant::now() + ALIVE_INTERVAL;
                self.write(&mut half, &mut batch).await?;
            } else {
                let _ = timeout_at(next_alive, pong.wake.notified()).await;
            }
        }
    }

    async fn write(&self, half: &mut WriteHalf<ByteStream>, batch: &mut Batch) -> Result<(), End> {
        let bytes = batch.remaining() as u64;
        half.write_all_buf(batch).await?;
        half.flush().await?;
        self.handle.bytes_out.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// The peer's half of the control connection that we dialled.
    async fn read_answers(&self, frames: &mut Frames) -> Result<End, End> {
        loop {
            match frames.next(Some(SILENCE_MAX)).await? {
                (PONG, payload) => {
                    let sent = payload[..].try_into().map(u64::from_be_bytes).map_err(|_| End::Unexpected)?;
                    let now = self.shared.started.elapsed().as_micros() as u64;
                    self.handle.rtt_micros.store(now.saturating_sub(sent).max(1), Relaxed);
                }
                (PING, _) => {}
                _ => return Ok(End::Unexpected),
            }
        }
    }

    async fn read_control(&self, frames: &mut Frames, pong: &LastPing) -> Result<End, End> {
        loop {
            match frames.next(Some(SILENCE_MAX)).await? {
                (PING, payload) if payload.len() == 8 => {
                    *pong.ping.lock() = Some(payload);
                    pong.wake.notify_one();
                }
                (READY, _) => self.ready().await,
                (TOLD, payload) => self.shared.told(&told::decode(&payload).ok_or(End::Unexpected)?),
                (kind, payload) if kind < OWN_KINDS => {
                    self.shared.receiver.frame(&self.peer, Lane::Control, kind, payload);
                }
                _ => return Ok(End::Unexpected),
            }
        }
    }

    async fn read_bulk(&self, frames: &mut Frames) -> Result<End, End> {
        loop {
            let (kind, payload) = frames.next(None).await?;
            if kind >= OWN_KINDS {
                return Ok(End::Unexpected);
            }
            self.shared.receiver.frame(&self.peer, Lane::Bulk, kind, payload);
        }
    }

    /// Tells the peer's task, and waits until the receiver knows: frames behind this one come to a link that is up.
    async fn ready(&self) {
        let (seen, waits) = tokio::sync::oneshot::channel();
        let event = Event::Ready { generation: self.generation, seen };
        if self.handle.events.send(event).await.is_ok() {
            let _ = waits.await;
        }
    }
}

/// The ping that was not answered yet. A later one takes its place.
#[derive(Default)]
struct LastPing {
    ping: Mutex<Option<Bytes>>,
    wake: Notify,
}

/// Frames out of one half of a connection.
struct Frames {
    half: ReadHalf<ByteStream>,
    buffer: BytesMut,
    handle: Arc<PeerHandle>,
}

impl Frames {
    /// The next one. Without `silence_max` it may take for ever.
    async fn next(&mut self, silence_max: Option<Duration>) -> Result<(u8, Bytes), End> {
        loop {
            if let Some(frame) = take_frame(&mut self.buffer)? {
                return Ok(frame);
            }
            self.buffer.reserve(READ_BYTES);
            let read = self.half.read_buf(&mut self.buffer);
            let count = match silence_max {
                Some(limit) => timeout(limit, read).await.map_err(|_| End::Silent)??,
                None => read.await?,
            };
            if count == 0 {
                return Err(End::Closed);
            }
            self.handle.bytes_in.fetch_add(count as u64, Relaxed);
        }
    }

    /// Where nothing may come: waits for the end.
    async fn nothing(&mut self) -> Result<End, End> {
        self.next(None).await.map(|_| End::Unexpected)
    }
}

/// Kind and payload of the first frame of the buffer, if it is all there.
fn take_frame(buffer: &mut BytesMut) -> Result<Option<(u8, Bytes)>, End> {
    let Some(length) = buffer.first_chunk().map(|length| u32::from_be_bytes(*length)) else {
        return Ok(None);
    };
    let size = length as usize;
    if !(1..=FRAME_BYTES_MAX).contains(&size) {
        return Err(End::TooLong(length));
    }
    if buffer.len() < FRAME_HEAD_BYTES - 1 + size {
        return Ok(None);
    }
    let kind = buffer[FRAME_HEAD_BYTES - 1];
    buffer.advance(FRAME_HEAD_BYTES);
    let payload = if size - 1 <= COPIED_BYTES {
        let payload = Bytes::copy_from_slice(&buffer[..size - 1]);
        buffer.advance(size - 1);
        payload
    } else {
        buffer.split_to(size - 1).freeze()
    };
    Ok(Some((kind, payload)))
}

impl Shared {
    /// Looks for the nodes that a peer knows and this one does not.
    fn told(self: &Arc<Self>, told: &[Told]) {
        for Told { id, name, address } in told {
            if *id != self.own.id && self.peer(*id).is_none() {
                self.look_at_told(self.overrides.get(name.as_str()).unwrap_or(address));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_of_a_buffer_one_by_one() {
        let large = vec![5; COPIED_BYTES + 1];
        let mut batch = Batch::default();
        for payload in [Bytes::from_static(b"ab"), Bytes::from(large.clone()), Bytes::new()] {
            batch.push(7, payload);
        }
        let bytes = batch.copy_to_bytes(batch.remaining());
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        for chunk in bytes.chunks(1000) {
            buffer.extend_from_slice(chunk);
            while let Some((kind, payload)) = take_frame(&mut buffer).unwrap() {
                assert_eq!(kind, 7);
                found.push(payload);
            }
        }
        assert_eq!(found, [Bytes::from_static(b"ab"), Bytes::from(large), Bytes::new()]);
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_at_once() {
        for length in [0u32, FRAME_BYTES_MAX as u32 + 1, 0x8000_0000, u32::MAX] {
            let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
            assert!(matches!(take_frame(&mut buffer), Err(End::TooLong(found)) if found == length));
        }
        let mut buffer = BytesMut::from(&(FRAME_BYTES_MAX as u32).to_be_bytes()[..]);
        assert!(take_frame(&mut buffer).unwrap().is_none());
    }
}
