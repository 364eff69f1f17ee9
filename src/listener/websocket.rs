//! A byte stream over WebSocket frames [MQTT-6.0.0-1], [MQTT-6.0.0-2].
//!
//! Reading goes through tungstenite: the payloads of binary messages, one behind the other, wherever packets begin and end in
//! them. Pings are answered on the way; a text message ends the connection with 1003. The library's state has a buffer of 4 KiB, and keeps the
//! memory of the largest message that it ever held; so it exists only while something is on its way in, and an idle connection has none.
//!
//! Writing leaves the library out, but for pongs and the Close frame, since a server's frame is a head of 2 to 10 bytes before bytes that
//! need no masking: small writes are gathered and become one frame at the flush, larger ones become a frame at once, written from where they
//! lie. Only what the kernel does not take is copied, and given back to the allocator as soon as it is sent.
//!
//! Both write to the same stream, so [`Wire`] stands below them: while a frame of ours is half sent, the library's wait there;
//! while one of the library's is half sent, [`WebSocket::poll_settle`] lets no data through.
//!
//! Invariants: never two half-sent frames; `gathered` is at most [`GATHER_BYTES_MAX`], `unsent` at most one frame of [`FRAME_BYTES_MAX`]; the library's
//! state is let go only between two messages, when all of its input was read and all of its output sent.
//!
//! The tests to read first: `listener::tests::websocket`.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::error::{Error as FrameError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig, WebSocketContext};

use super::frame_tracker::FrameTracker;

use crate::byte_stream::{Layered, Socket, Transport};
use crate::mqtt::ReasonCode;

/// The library's buffers, instead of its 128 KiB.
const BUFFER_BYTES: usize = 4096;
/// What is read at once from a connection that was idle, on the stack.
const FIRST_READ_BYTES: usize = 16 * 1024;
/// Small writes are gathered up to this size; what does not fit goes out at once.
const GATHER_BYTES_MAX: usize = 4096;
/// Longest payload of a frame that we write: what a slow reader makes us hold.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Most slices of one write, the head and what was gathered included.
const SLICES_MAX: usize = 64;
/// FIN and the opcode of a binary frame (RFC 6455, section 5.2).
const BINARY_FRAME: u8 = 0x82;
/// A ping without payload.
const PING: [u8; 2] = [0x89, 0];

/// The stream of an upgraded connection.
pub(super) struct WebSocket<S> {
    wire: Wire<S>,
    /// The library's state; `None` between two messages, while nothing is on its way in.
    library: Option<Box<WebSocketContext>>,
    config: WebSocketConfig,
    /// What has been received and not yet been read.
    unread: Bytes,
    /// Payload that was written and is in no frame yet.
    gathered: Vec<u8>,
    /// The end of a frame whose beginning was sent.
    unsent: Bytes,
    ping_due: bool,
    close: Option<CloseFrame>,
    close_queued: bool,
    ended: bool,
}

impl<S: Layered> WebSocket<S> {
    /// Takes over a stream behind its handshake; `early` is what was read behind the request. Messages and frames of the client may have
    /// up to `message_bytes_max` bytes.
    pub(super) fn over(stream: S, early: &[u8], message_bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .max_write_buffer_size(2 * BUFFER_BYTES)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let mut wire = Wire { stream, incoming: FrameTracker::default(), shut: false, behind: false };
        wire.incoming.feed(early);
        Self {
            wire,
            library: (!early.is_empty()).then(|| library(early, config)),
            config,
            unread: Bytes::new(),
            gathered: Vec::new(),
            unsent: Bytes::new(),
            ping_due: false,
            close: None,
            close_queued: false,
            ended: false,
        }
    }

    /// Sends the rest of whatever frame is half sent.
    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.wire.stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.unsent.advance(sent),
            }
        }
        if self.wire.shut {
            self.unsent = Bytes::new();
            self.wire.shut = false;
        }
        if self.wire.behind { self.poll_library_out(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Sends what the library has queued: pongs, the Close frame.
    fn poll_library_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(library) = &mut self.library else {
            return Poll::Ready(Ok(()));
        };
        match library.flush(&mut self.wire.polled(cx)) {
            Ok(()) | Err(FrameError::ConnectionClosed) => Poll::Ready(Ok(())),
            Err(error) => into_poll(error),
        }
    }

    /// Writes one frame of all that was gathered and, behind it, `slices` of together `len` bytes. Pending has written nothing.
    fn poll_frame(&mut self, cx: &mut Context<'_>, slices: &[&[u8]], len: usize) -> Poll<io::Result<()>> {
        let mut head = [0; 10];
        let head = frame_head(&mut head, self.gathered.len() + len);
        let mut parts: SmallVec<[&[u8]; SLICES_MAX]> = SmallVec::new();
        parts.extend([head, &self.gathered]);
        parts.extend_from_slice(slices);
        let vectors: SmallVec<[IoSlice<'_>; SLICES_MAX]> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let sent = ready!(Pin::new(&mut self.wire.stream).poll_write_vectored(cx, &vectors))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let rest = copy_from(&parts, sent);
        drop(vectors);
        drop(parts);
        self.wire.shut = !rest.is_empty();
        self.unsent = rest.into();
        self.gathered = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Queues the Close frame, once.
    fn queue_close(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.close_queued {
            return Ok(());
        }
        self.close_queued = true;
        let frame = self.close.take().unwrap_or_else(|| close_frame(CloseCode::Normal, ""));
        let library = self.library.get_or_insert_with(|| library(&[], self.config));
        match library.close(&mut self.wire.polled(cx), Some(frame)) {
            Ok(()) | Err(FrameError::ConnectionClosed | FrameError::AlreadyClosed) => Ok(()),
            Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(into_io(error)),
        }
    }

    /// Ends a connection that broke the rules: the Close frame goes out now if the socket takes it, whatever its owner does next.
    fn fail(&mut self, cx: &mut Context<'_>, code: CloseCode, what: &'static str) -> io::Error {
        self.ended = true;
        self.close = Some(close_frame(code, what));
        let _ = self.queue_close(cx);
        io::Error::new(io::ErrorKind::InvalidData, what)
    }

    /// Receives until there are bytes to read or none will come.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() && !self.ended {
            let Some(library) = &mut self.library else {
                ready!(self.poll_first_read(cx))?;
                continue;
            };
            match library.read(&mut self.wire.polled(cx)) {
                Ok(Message::Binary(payload)) => self.unread = payload,
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Text(_)) => {
                    let what = "a text frame: MQTT packets travel in binary ones [MQTT-6.0.0-1]";
                    return Poll::Ready(Err(self.fail(cx, CloseCode::Unsupported, what)));
                }
                Ok(Message::Close(_)) => {
                    // The library has the answer ready; this sends it.
                    self.ended = true;
                    self.close_queued = true;
                    let _ = self.poll_library_out(cx);
                }
                Err(FrameError::ConnectionClosed | FrameError::AlreadyClosed) => self.ended = true,
                Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.wire.incoming.is_between_messages() && !self.wire.behind && !self.close_queued {
                        self.library = None;
                    }
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(self.receive_failed(cx, error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits without a buffer for the first bytes of a message, and gives them to the library.
    fn poll_first_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [MaybeUninit::uninit(); FIRST_READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut scratch);
        ready!(Pin::new(&mut self.wire.stream).poll_read(cx, &mut buf))?;
        let first = buf.filled();
        if first.is_empty() {
            self.ended = true;
            self.close_queued = true;
        } else {
            self.wire.incoming.feed(first);
            self.library = Some(library(first, self.config));
        }
        Poll::Ready(Ok(()))
    }

    fn receive_failed(&mut self, cx: &mut Context<'_>, error: FrameError) -> io::Result<()> {
        match error {
            FrameError::Io(error) => {
                self.ended = true;
                Err(error)
            }
            FrameError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                self.ended = true;
                self.close_queued = true;
                Ok(())
            }
            FrameError::Protocol(ProtocolError::UnmaskedFrameFromClient) => {
                Err(self.fail(cx, CloseCode::Protocol, "a frame that is not masked (RFC 6455, section 5.1)"))
            }
            FrameError::Capacity(_) => {
                Err(self.fail(cx, CloseCode::Size, "a WebSocket message larger than the largest packet"))
            }
            FrameError::Utf8(_) => Err(self.fail(cx, CloseCode::Unsupported, "a text frame that is not UTF-8")),
            _ => Err(self.fail(cx, CloseCode::Protocol, "a frame that breaks the rules of WebSocket")),
        }
    }
}

impl<S: Layered> AsyncRead for WebSocket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_receive(cx))?;
        let len = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread[..len]);
        this.unread.advance(len);
        if this.unread.is_empty() {
            // Gives the library its buffer back.
            this.unread = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Layered> AsyncWrite for WebSocket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.close_queued {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(this.poll_settle(cx))?;
        let (parts, len) = cut(slices);
        if this.gathered.len() + len <= GATHER_BYTES_MAX {
            for part in &parts {
                this.gathered.extend_from_slice(part);
            }
        } else {
            ready!(this.poll_frame(cx, &parts, len))?;
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_settle(cx))?;
        if !this.gathered.is_empty() {
            ready!(this.poll_frame(cx, &[], 0))?;
            ready!(this.poll_settle(cx))?;
        }
        if std::mem::take(&mut this.ping_due) && !this.close_queued {
            this.unsent = Bytes::from_static(&PING);
            this.wire.shut = true;
            ready!(this.poll_settle(cx))?;
        }
        Pin::new(&mut this.wire.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.close_queued {
            ready!(self.as_mut().poll_flush(cx))?;
            self.queue_close(cx)?;
        }
        let this = self.get_mut();
        ready!(this.poll_settle(cx))?;
        Pin::new(&mut this.wire.stream).poll_shutdown(cx)
    }
}

impl<S: Layered> Layered for WebSocket<S> {
    fn socket(&mut self) -> &mut Socket {
        self.wire.stream.socket()
    }

    fn transport(&self) -> Transport {
        match self.wire.stream.transport() {
            Transport::Tls | Transport::Wss => Transport::Wss,
            Transport::Tcp | Transport::Ws => Transport::Ws,
        }
    }

    fn ping(&mut self) {
        self.ping_due = true;
    }

    fn set_close_reason(&mut self, reason: ReasonCode) {
        // What was found here first is nearer to the cause.
        self.close.get_or_insert_with(|| close_frame(close_code(reason), reason.name()));
    }
}

/// The stream below, which keeps the frames of the library and ours apart.
struct Wire<S> {
    stream: S,
    /// Where in which frame the bytes that were received end.
    incoming: FrameTracker,
    /// A frame of ours is half sent.
    shut: bool,
    /// The library has something to send and could not, or not all of it.
    behind: bool,
}

impl<S> Wire<S> {
    /// The stream as the library wants it: calls that say WouldBlock, and have left the waker of this poll behind.
    fn polled<'a, 'c>(&'a mut self, cx: &'a mut Context<'c>) -> Polled<'a, 'c, S> {
        Polled { wire: self, cx }
    }
}

struct Polled<'a, 'c, S> {
    wire: &'a mut Wire<S>,
    cx: &'a mut Context<'c>,
}

impl<S: AsyncRead + Unpin> Read for Polled<'_, '_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(bytes);
        or_would_block(Pin::new(&mut self.wire.stream).poll_read(self.cx, &mut buf))?;
        self.wire.incoming.feed(buf.filled());
        Ok(buf.filled().len())
    }
}

impl<S: AsyncWrite + Unpin> Write for Polled<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire.behind = true;
        if self.wire.shut {
            // No waker: whoever sends the rest of our frame goes on with this (poll_settle).
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = or_would_block(Pin::new(&mut self.wire.stream).poll_write(self.cx, bytes))?;
        self.wire.behind = sent < bytes.len();
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        or_would_block(Pin::new(&mut self.wire.stream).poll_flush(self.cx))
    }
}

fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// New state of the library, with bytes of the client to begin with.
fn library(first: &[u8], config: WebSocketConfig) -> Box<WebSocketContext> {
    let mut buffer = Vec::with_capacity(first.len().max(BUFFER_BYTES));
    buffer.extend_from_slice(first);
    Box::new(WebSocketContext::from_partially_read(buffer, Role::Server, Some(config)))
}

/// The head of an unmasked binary frame (RFC 6455, section 5.2).
fn frame_head(head: &mut [u8; 10], payload_len: usize) -> &[u8] {
    head[0] = BINARY_FRAME;
    match (u8::try_from(payload_len), u16::try_from(payload_len)) {
        (Ok(short @ ..=125), _) => {
            head[1] = short;
            &head[..2]
        }
        (_, Ok(medium)) => {
            head[1] = 126;
            head[2..4].copy_from_slice(&medium.to_be_bytes());
            &head[..4]
        }
        _ => {
            head[1] = 127;
            head[2..].copy_from_slice(&(payload_len as u64).to_be_bytes());
            &head[..]
        }
    }
}

/// The part of a write that goes into one frame, and its length.
fn cut<'s>(slices: &'s [IoSlice<'_>]) -> (SmallVec<[&'s [u8]; SLICES_MAX]>, usize) {
    let mut parts = SmallVec::new();
    let mut len = 0;
    for slice in slices.iter().filter(|slice| !slice.is_empty()).take(SLICES_MAX - 2) {
        let part = &slice[..slice.len().min(FRAME_BYTES_MAX - len)];
        len += part.len();
        parts.push(part);
        if len == FRAME_BYTES_MAX {
            break;
        }
    }
    (parts, len)
}

/// What of `parts`, joined, lies behind the first `sent` bytes.
fn copy_from(parts: &[&[u8]], mut sent: usize) -> Vec<u8> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut rest = Vec::with_capacity(total.saturating_sub(sent));
    for part in parts {
        let skipped = sent.min(part.len());
        sent -= skipped;
        rest.extend_from_slice(&part[skipped..]);
    }
    rest
}

fn close_frame(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

/// How a reason is said in a Close frame: by the code of RFC 6455 that says the same, else 4000 + the reason code, since a browser shows
/// a page nothing but this code.
fn close_code(reason: ReasonCode) -> CloseCode {
    match reason {
        ReasonCode::Success => CloseCode::Normal,
        ReasonCode::MalformedPacket | ReasonCode::ProtocolError => CloseCode::Protocol,
        ReasonCode::PacketTooLarge => CloseCode::Size,
        ReasonCode::UnspecifiedError | ReasonCode::ImplementationSpecificError => CloseCode::Error,
        ReasonCode::ServerBusy | ReasonCode::ConnectionRateExceeded => CloseCode::Again,
        ReasonCode::UseAnotherServer | ReasonCode::ServerMoved => CloseCode::Restart,
        other => CloseCode::Library(4000 + other as u16),
    }
}

fn into_poll(error: FrameError) -> Poll<io::Result<()>> {
    match into_io(error) {
        error if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        error => Poll::Ready(Err(error)),
    }
}

fn into_io(error: FrameError) -> io::Error {
    match error {
        FrameError::Io(error) => error,
        FrameError::ConnectionClosed | FrameError::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn pair() -> (TcpStream, WebSocket<Socket>) {
        let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listening.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listening.accept().await.unwrap();
        (peer, WebSocket::over(Socket::attached(socket), &[], 1 << 20))
    }

    /// Polls a read that must find nothing.
    async fn finds_nothing(stream: &mut WebSocket<Socket>) {
        let mut buf = [0; 8];
        let nothing = std::future::poll_fn(|cx| {
            Poll::Ready(Pin::new(&mut *stream).poll_read(cx, &mut ReadBuf::new(&mut buf)).is_pending())
        });
        assert!(nothing.await);
    }

    #[tokio::test]
    async fn an_idle_connection_holds_no_buffer_whatever_came_before() {
        let (mut peer, mut stream) = pair().await;
        finds_nothing(&mut stream).await;
        assert!(stream.library.is_none());
        for len in [1u64, 100, 1 << 20] {
            let head = [&[0x82, 0x80 | 127][..], &len.to_be_bytes(), &[0; 4]].concat();
            let payload = vec![0; usize::try_from(len).unwrap()];
            let sending = async {
                peer.write_all(&head).await.unwrap();
                peer.write_all(&payload).await.unwrap();
            };
            let mut received = vec![1; payload.len()];
            let (_, read) = tokio::join!(sending, stream.read_exact(&mut received));
            read.unwrap();
            assert_eq!(received, payload);
            finds_nothing(&mut stream).await;
            assert!(stream.library.is_none(), "{len}");
        }
    }

    #[tokio::test]
    async fn half_a_frame_and_half_a_message_are_kept() {
        let (mut peer, mut stream) = pair().await;
        // A first fragment, a ping, half of the head of the last fragment.
        peer.write_all(&[0x02, 0x81, 0, 0, 0, 0, b'a', 0x89, 0x80, 0, 0, 0, 0, 0x80]).await.unwrap();
        let mut pong = [0; 2];
        tokio::select! {
            _ = stream.read_u8() => panic!("a message that is not complete"),
            read = peer.read_exact(&mut pong) => read.unwrap(),
        };
        assert_eq!(pong, [0x8A, 0]);
        assert!(stream.library.is_some());
        peer.write_all(&[0x81, 0, 0, 0, 0, b'b']).await.unwrap();
        let mut message = [0; 2];
        stream.read_exact(&mut message).await.unwrap();
        assert_eq!(&message, b"ab");
        finds_nothing(&mut stream).await;
        assert!(stream.library.is_none());
    }
}
