//! A byte stream over WebSocket frames [MQTT-6.0.0-1], [MQTT-6.0.0-2].
//!
//! Reading goes through tungstenite, with a buffer of 4 KiB: the payloads of binary messages, one behind the other, wherever packets
//! begin and end in them. Pings are answered on the way; a text message ends the connection with 1003.
//!
//! Writing leaves the library out for data, since a server's frame is a head of 2 to 10 bytes before bytes that need no masking: small
//! writes are gathered and become one frame at the flush, larger ones become a frame at once, written from where they lie. Only what
//! the kernel does not take is copied, and given back to the allocator as soon as it is sent. Through the library's own buffer every
//! byte would be copied twice, and the buffer would stay as large as the largest message ever sent.
//!
//! Both sides write to the same stream, so [`Gate`] stands between the library and the stream: while a data frame is half sent, the library's
//! control frames wait at the gate; while one of its frames is half sent, [`WebSocket::poll_settle`] lets no data through.
//!
//! Invariants: never two half-sent frames; `gathered` is at most [`GATHER_BYTES_MAX`], `unsent` at most one frame of [`FRAME_BYTES_MAX`].
//!
//! The tests to read first: `listener::tests::websocket`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error as FrameError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::mqtt::ReasonCode;
use crate::shard::byte_stream::{Layered, Socket, Transport};

/// The library's buffers, instead of its 128 KiB.
const BUFFER_BYTES: usize = 4096;
/// Small writes are gathered up to this size; what does not fit goes out at once.
const GATHER_BYTES_MAX: usize = 4096;
/// Longest payload of a frame that we write: what a slow reader makes us hold.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Most slices of one write, the head and what was gathered included.
const SLICES_MAX: usize = 64;
/// FIN and the opcode of a binary frame (RFC 6455, section 5.2).
const BINARY_FRAME: u8 = 0x82;

/// The stream of an upgraded connection.
pub(super) struct WebSocket<S> {
    frames: WebSocketStream<Gate<S>>,
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
    pub(super) async fn over(stream: S, early: Vec<u8>, message_bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES)
            .max_write_buffer_size(2 * BUFFER_BYTES)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let gate = Gate {
            stream,
            shut: false,
            behind: false,
        };
        Self {
            frames: WebSocketStream::from_partially_read(gate, early, Role::Server, Some(config))
                .await,
            unread: Bytes::new(),
            gathered: Vec::new(),
            unsent: Bytes::new(),
            ping_due: false,
            close: None,
            close_queued: false,
            ended: false,
        }
    }

    fn gate(&mut self) -> &mut Gate<S> {
        self.frames.get_mut()
    }

    /// Sends the rest of whatever frame is half sent.
    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let gate = self.frames.get_mut();
            match ready!(Pin::new(&mut gate.stream).poll_write(cx, &self.unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.unsent.advance(sent),
            }
        }
        if self.gate().shut {
            self.unsent = Bytes::new();
            self.gate().shut = false;
        }
        if self.gate().behind {
            self.poll_control(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// Sends what the library has queued: pings, pongs, the Close frame.
    fn poll_control(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.frames).poll_flush(cx).map_err(into_io)
    }

    /// Writes one frame of all that was gathered and, behind it, `slices` of together `len` bytes. Pending has written nothing.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[&[u8]],
        len: usize,
    ) -> Poll<io::Result<()>> {
        let mut head = [0; 10];
        let head = frame_head(&mut head, self.gathered.len() + len);
        let mut parts: SmallVec<[&[u8]; SLICES_MAX]> = SmallVec::new();
        parts.extend([head, &self.gathered]);
        parts.extend_from_slice(slices);
        let vectors: SmallVec<[IoSlice<'_>; SLICES_MAX]> =
            parts.iter().map(|part| IoSlice::new(part)).collect();
        let gate = self.frames.get_mut();
        let sent = ready!(Pin::new(&mut gate.stream).poll_write_vectored(cx, &vectors))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let rest = copy_from(&parts, sent);
        drop(vectors);
        drop(parts);
        gate.shut = !rest.is_empty();
        self.unsent = rest.into();
        self.gathered = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Queues the Close frame, once.
    fn queue_close(&mut self) -> io::Result<()> {
        if self.close_queued {
            return Ok(());
        }
        self.close_queued = true;
        let frame = self
            .close
            .take()
            .unwrap_or_else(|| close_frame(CloseCode::Normal, ""));
        match Pin::new(&mut self.frames).start_send(Message::Close(Some(frame))) {
            Ok(()) | Err(FrameError::ConnectionClosed | FrameError::AlreadyClosed) => Ok(()),
            Err(error) => Err(into_io(error)),
        }
    }

    /// Ends a connection that broke the rules: the Close frame goes out now if the socket takes it, whatever its owner does next.
    fn fail(&mut self, cx: &mut Context<'_>, code: CloseCode, what: &'static str) -> io::Error {
        self.ended = true;
        self.close = Some(close_frame(code, what));
        let _ = self.queue_close();
        let _ = self.poll_control(cx);
        io::Error::new(io::ErrorKind::InvalidData, what)
    }

    /// Receives until there are bytes to read or none will come.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() && !self.ended {
            match ready!(Pin::new(&mut self.frames).poll_next(cx)) {
                Some(Ok(Message::Binary(payload))) => self.unread = payload,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Text(_))) => {
                    let what = "a text frame: MQTT packets travel in binary ones [MQTT-6.0.0-1]";
                    return Poll::Ready(Err(self.fail(cx, CloseCode::Unsupported, what)));
                }
                Some(Ok(Message::Close(_))) => {
                    // The library has the answer ready; this sends it.
                    self.ended = true;
                    self.close_queued = true;
                    let _ = self.poll_control(cx);
                }
                Some(Err(error)) => return Poll::Ready(self.receive_failed(cx, error)),
                None => self.ended = true,
            }
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
            FrameError::Protocol(ProtocolError::UnmaskedFrameFromClient) => Err(self.fail(
                cx,
                CloseCode::Protocol,
                "a frame that is not masked (RFC 6455, section 5.1)",
            )),
            FrameError::Capacity(_) => Err(self.fail(
                cx,
                CloseCode::Size,
                "a WebSocket message larger than the largest packet",
            )),
            FrameError::Utf8(_) => {
                Err(self.fail(cx, CloseCode::Unsupported, "a text frame that is not UTF-8"))
            }
            _ => Err(self.fail(
                cx,
                CloseCode::Protocol,
                "a frame that breaks the rules of WebSocket",
            )),
        }
    }
}

impl<S: Layered> AsyncRead for WebSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
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
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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
            Pin::new(&mut this.frames)
                .start_send(Message::Ping(Bytes::new()))
                .map_err(into_io)?;
            ready!(this.poll_control(cx))?;
        }
        Pin::new(&mut this.gate().stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.close_queued {
            ready!(self.as_mut().poll_flush(cx))?;
            self.queue_close()?;
        }
        let this = self.get_mut();
        ready!(this.poll_settle(cx))?;
        Pin::new(&mut this.gate().stream).poll_shutdown(cx)
    }
}

impl<S: Layered> Layered for WebSocket<S> {
    fn socket(&mut self) -> &mut Socket {
        self.gate().stream.socket()
    }

    fn transport(&self) -> Transport {
        match self.frames.get_ref().stream.transport() {
            Transport::Tls | Transport::Wss => Transport::Wss,
            Transport::Tcp | Transport::Ws => Transport::Ws,
        }
    }

    fn ping(&mut self) {
        self.ping_due = true;
    }

    fn set_close_reason(&mut self, reason: ReasonCode) {
        // What was found here first is nearer to the cause.
        self.close
            .get_or_insert_with(|| close_frame(close_code(reason), reason.name()));
    }
}

/// Keeps the frames of the library and ours apart on the stream that they share.
struct Gate<S> {
    stream: S,
    /// A frame of ours is half sent.
    shut: bool,
    /// The library has something to send and could not, or not all of it.
    behind: bool,
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.behind = true;
        if this.shut {
            // No waker: whoever sends the rest of our frame goes on with this (poll_settle).
            return Poll::Pending;
        }
        let sent = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.behind = sent < bytes.len();
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
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
    for slice in slices
        .iter()
        .filter(|slice| !slice.is_empty())
        .take(SLICES_MAX - 2)
    {
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
    CloseFrame {
        code,
        reason: reason.into(),
    }
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

fn into_io(error: FrameError) -> io::Error {
    match error {
        FrameError::Io(error) => error,
        FrameError::ConnectionClosed | FrameError::AlreadyClosed => {
            io::ErrorKind::BrokenPipe.into()
        }
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}
