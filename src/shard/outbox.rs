//! The outbox of one connection: encoded packets on their way to its socket. Small ones are gathered in one buffer, large payloads are
//! shared by reference between all their receivers. An idle connection's outbox holds no memory.
//!
//! Invariant: `len` is the number of bytes in `sealed` and `tail` that were not written yet.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use crate::byte_stream::ByteStream;
use crate::limits;
use crate::metrics::Counter;
use crate::session::Wire;

/// Buffers that outboxes gave back, for the next turn.
#[derive(Debug, Default)]
pub struct BufferPool {
    free: Vec<Vec<u8>>,
}

impl BufferPool {
    fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if (1..=limits::POOLED_BUFFER_BYTES).contains(&buffer.capacity()) && self.free.len() < limits::POOLED_BUFFERS {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}

/// Written bytes in the gathering buffer from which on they are worth moving the rest for.
const RECLAIM_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct Outbox {
    sealed: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// Bytes of `tail` that were written already.
    tail_written: usize,
    len: usize,
    /// Length of `tail` when it was last counted into `len`.
    counted: usize,
    /// The stream took bytes since somebody asked.
    progressed: bool,
    /// All is written, but a layer of the stream still holds some of it.
    unflushed: bool,
}

impl Outbox {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.len + self.tail.len() - self.counted
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the socket has not been given everything yet.
    pub fn has_to_flush(&self) -> bool {
        self.unflushed || !self.is_empty()
    }

    /// Whether the client takes its packets too slowly to be read from.
    pub fn is_congested(&self) -> bool {
        self.len() >= limits::OUTBOX_STOP_READING_BYTES
    }

    /// Whether the stream took bytes since the last call.
    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Gives the outbox a buffer of the pool to write into, if it has none.
    pub fn prepare(&mut self, pool: &mut BufferPool) {
        if self.tail.capacity() == 0 {
            self.tail = pool.take();
        }
    }

    /// Writes as much as the stream takes, and adds its bytes to `sent`. Ready when all is written and flushed.
    pub fn poll_flush(
        &mut self,
        stream: &mut ByteStream,
        cx: &mut Context<'_>,
        pool: &mut BufferPool,
        sent: &Counter,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let written = ready!(self.poll_write(stream, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
            sent.add(written as u64);
        }
        self.release(pool);
        if let ByteStream::Layered(_) = stream {
            self.unflushed = true;
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&self, stream: &mut ByteStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let tail = &self.tail[self.tail_written..];
        if self.sealed.is_empty() {
            return Pin::new(stream).poll_write(cx, tail);
        }
        let mut slices = [IoSlice::new(&[]); limits::WRITE_VECTORS];
        let mut count = 0;
        for bytes in self
            .sealed
            .iter()
            .map(|bytes| &bytes[..])
            .chain(std::iter::once(tail))
            .filter(|bytes| !bytes.is_empty())
            .take(limits::WRITE_VECTORS)
        {
            slices[count] = IoSlice::new(bytes);
            count += 1;
        }
        Pin::new(stream).poll_write_vectored(cx, &slices[..count])
    }

    fn advance(&mut self, mut n: usize) {
        self.len = self.len() - n;
        self.counted = self.tail.len();
        self.progressed = true;
        while let Some(first) = self.sealed.front_mut() {
            if n < first.len() {
                first.advance(n);
                return;
            }
            n -= first.len();
            self.sealed.pop_front();
        }
        self.tail_written += n;
        self.reclaim();
    }

    /// Gives room back that written bytes hold in `tail`: a client that is never quite behind and never quite up to date would make it grow by
    /// everything it is sent. Done when more was written than waits, so that each byte is moved at most once for each that was written.
    fn reclaim(&mut self) {
        if self.tail_written >= RECLAIM_BYTES && self.tail_written >= self.tail.len() / 2 {
            self.tail.drain(..self.tail_written);
            self.tail_written = 0;
            self.counted = self.tail.len();
        }
    }

    fn release(&mut self, pool: &mut BufferPool) {
        pool.give(std::mem::take(&mut self.tail));
        self.tail_written = 0;
        self.counted = 0;
        if self.sealed.capacity() > 0 {
            self.sealed = VecDeque::new();
        }
    }
}

impl Wire for Outbox {
    fn has_room(&self) -> bool {
        self.len() < limits::OUTBOX_SOFT_BYTES
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    fn append_shared(&mut self, bytes: Bytes) {
        self.len = self.len() + bytes.len();
        let mut tail = Bytes::from(std::mem::take(&mut self.tail));
        tail.advance(self.tail_written);
        self.tail_written = 0;
        self.counted = 0;
        if !tail.is_empty() {
            self.sealed.push_back(tail);
        }
        self.sealed.push_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is still to be written, in one piece.
    fn waiting(outbox: &Outbox) -> Vec<u8> {
        let mut all: Vec<u8> = outbox.sealed.iter().flat_map(|bytes| bytes.to_vec()).collect();
        all.extend(&outbox.tail[outbox.tail_written..]);
        all
    }

    #[test]
    fn an_outbox_that_is_never_empty_does_not_grow() {
        let mut outbox = Outbox::default();
        outbox.buffer().extend_from_slice(&[1; 100_000]);
        for _ in 0..1_000 {
            outbox.buffer().extend_from_slice(&[2; 40_000]);
            outbox.advance(40_000);
        }
        assert_eq!(outbox.len(), 100_000);
        assert_eq!(waiting(&outbox), [2; 100_000]);
        assert!(outbox.tail.capacity() < 1_000_000, "{}", outbox.tail.capacity());
    }

    proptest! {
        #[test]
        fn bytes_leave_in_order_and_are_counted(steps in prop::collection::vec((0u8..3, 1usize..50), 1..60)) {
            let mut outbox = Outbox::default();
            let mut expected: Vec<u8> = Vec::new();
            for (number, (kind, n)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; n];
                match kind {
                    0 => { outbox.buffer().extend_from_slice(&bytes); expected.extend(&bytes); }
                    1 => { outbox.append_shared(Bytes::from(bytes.clone())); expected.extend(&bytes); }
                    _ => {
                        let n = n.min(expected.len());
                        if n > 0 { outbox.advance(n); expected.drain(..n); }
                    }
                }
                prop_assert_eq!(outbox.len(), expected.len());
                prop_assert_eq!(&waiting(&outbox), &expected);
            }
        }
    }
}
