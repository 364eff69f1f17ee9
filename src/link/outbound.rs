//! What waits to be sent to a peer on one lane: a bounded queue that any thread may put frames into.
//!
//! Invariants: `bytes` is what the frames hold; a queue that is closed is empty. It is open while the link is up, so that nothing that was meant for
//! one connection, or for an earlier run of the peer, is sent on another.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Length and kind.
pub(super) const FRAME_HEAD_BYTES: usize = 5;

/// A payload up to this size is copied behind its head; a larger one is sent from where it lies.
const INLINE_BYTES: usize = 4096;

/// Bytes that are handed to the socket at a time: what is more urgent waits behind so many at the most.
const BATCH_BYTES: usize = 64 * 1024;

/// What came of an attempt to queue a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    Queued,
    /// The link is down.
    Closed,
    /// There is no room.
    Full,
}

/// One lane to one peer.
#[derive(Debug)]
pub(super) struct Outbound {
    bytes_max: usize,
    queue: Mutex<Queue>,
    /// Woken when there is something to take.
    pub wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    is_open: bool,
    bytes: usize,
    frames: VecDeque<(u8, Bytes)>,
}

impl Outbound {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, queue: Mutex::default(), wake: Notify::new() }
    }

    pub(super) fn open(&self) {
        *self.queue.lock() = Queue { is_open: true, ..Queue::default() };
    }

    /// Forgets what waits.
    pub(super) fn close(&self) {
        *self.queue.lock() = Queue::default();
    }

    pub(super) fn push(&self, kind: u8, payload: Bytes) -> Pushed {
        let mut queue = self.queue.lock();
        if !queue.is_open {
            return Pushed::Closed;
        }
        let size = FRAME_HEAD_BYTES + payload.len();
        // One frame always fits, however small the bound.
        if queue.bytes + size > self.bytes_max && queue.bytes > 0 {
            return Pushed::Full;
        }
        queue.bytes += size;
        queue.frames.push_back((kind, payload));
        drop(queue);
        self.wake.notify_one();
        Pushed::Queued
    }

    /// Moves what may be sent together into the batch.
    pub(super) fn take(&self, batch: &mut Batch) {
        let mut queue = self.queue.lock();
        while batch.remaining < BATCH_BYTES {
            let Some((kind, payload)) = queue.frames.pop_front() else { return };
            queue.bytes -= FRAME_HEAD_BYTES + payload.len();
            batch.push(kind, payload);
        }
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }
}

/// Frames on their way into a socket.
#[derive(Debug, Default)]
pub(super) struct Batch {
    sealed: VecDeque<Bytes>,
    tail: BytesMut,
    remaining: usize,
}

impl Batch {
    pub(super) fn push(&mut self, kind: u8, payload: Bytes) {
        self.remaining += FRAME_HEAD_BYTES + payload.len();
        // A payload is far smaller than 4 GiB: whoever queues it has checked.
        self.tail.put_u32(payload.len() as u32 + 1);
        self.tail.put_u8(kind);
        if payload.len() <= INLINE_BYTES {
            self.tail.put_slice(&payload);
        } else {
            self.sealed.push_back(self.tail.split().freeze());
            self.sealed.push_back(payload);
        }
    }
}

impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.sealed.front().map_or(&self.tail, |bytes| bytes)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        let chunks = self.sealed.iter().map(|bytes| &bytes[..]).chain(tail);
        slices.iter_mut().zip(chunks).map(|(slice, chunk)| *slice = IoSlice::new(chunk)).count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "a socket took more than it was given");
        self.remaining -= count;
        while let Some(front) = self.sealed.front_mut() {
            if count < front.len() {
                return front.advance(count);
            }
            count -= front.len();
            self.sealed.pop_front();
        }
        self.tail.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(bytes_max: usize) -> Outbound {
        let queue = Outbound::new(bytes_max);
        queue.open();
        queue
    }

    #[test]
    fn a_batch_is_its_frames_one_after_the_other() {
        let queue = queue(1 << 20);
        let large = Bytes::from(vec![7; INLINE_BYTES + 1]);
        for payload in [Bytes::from_static(b"ab"), large.clone(), Bytes::new(), large.clone()] {
            assert_eq!(queue.push(9, payload), Pushed::Queued);
        }
        let mut batch = Batch::default();
        queue.take(&mut batch);
        let mut bytes = Vec::new();
        // In steps that end within chunks.
        while batch.has_remaining() {
            let step = batch.chunk().len().min(1500);
            bytes.extend_from_slice(&batch.chunk()[..step]);
            batch.advance(step);
        }
        let head = [0, 0, 0x10, 0x02, 9];
        let expected = [&[0, 0, 0, 3, 9, b'a', b'b'][..], &head, &large, &[0, 0, 0, 1, 9], &head, &large].concat();
        assert_eq!(bytes, expected);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn vectors_cover_the_batch() {
        let mut batch = Batch::default();
        batch.push(1, Bytes::from(vec![1; INLINE_BYTES + 1]));
        batch.push(2, Bytes::from_static(b"x"));
        let mut slices = [IoSlice::new(&[]); 8];
        let count = batch.chunks_vectored(&mut slices);
        assert_eq!(slices[..count].iter().map(|slice| slice.len()).sum::<usize>(), batch.remaining());
    }

    #[test]
    fn a_batch_is_bounded_and_a_queue_is_too() {
        let queue = queue(200_000);
        let payload = Bytes::from(vec![0; 50_000]);
        let pushed: Vec<_> = (0..4).map(|_| queue.push(1, payload.clone())).collect();
        assert_eq!(pushed, [Pushed::Queued, Pushed::Queued, Pushed::Queued, Pushed::Full]);
        let mut batch = Batch::default();
        queue.take(&mut batch);
        assert_eq!(batch.remaining(), 2 * 50_005, "as soon as it has enough");
        queue.close();
        assert_eq!((queue.push(1, payload), queue.bytes()), (Pushed::Closed, 0));
    }

    #[test]
    fn one_frame_fits_into_any_queue() {
        let queue = queue(10);
        assert_eq!(queue.push(1, Bytes::from_static(&[0; 100])), Pushed::Queued);
        assert_eq!(queue.push(1, Bytes::from_static(&[0; 1])), Pushed::Full);
    }
}
