//! One byte stream per connection, whatever lies between it and the network.
//!
//! A connection owns its `ByteStream` and is the only one to touch it. Plain TCP is a variant of its own, because most
//! connections are that and it needs no indirection; TLS and WebSocket stand behind [`Layered`], which the listeners implement, so
//! that nothing here knows of them.
//!
//! A stream is registered with the tokio runtime of one shard. To hand it to another one: [`ByteStream::detach`] on the
//! old thread, [`ByteStream::attach`] on the new one, then read first and wait after: bytes may already lie in the buffers of a
//! layer, where no readiness of the socket would tell of them. Both calls do nothing when there is nothing to do, so whoever receives a
//! stream just attaches it. Between the two calls all reading and writing is an error.
//!
//! Invariants: the socket is non-blocking from accept to close; a detached socket is known to no reactor.
//!
//! The test to read first: `listener::tests::moves::tcp`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::mqtt::ReasonCode;

/// What carries the bytes of a connection. The name is what metrics and logs print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Tcp,
    Tls,
    Ws,
    Wss,
}

impl Transport {
    /// All of them, in the order of their discriminants: for counters made in advance.
    pub const ALL: [Transport; 4] = [Self::Tcp, Self::Tls, Self::Ws, Self::Wss];

    /// The label for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Whether WebSocket frames carry the bytes, so that [`ByteStream::ping`] means something.
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }
}

/// A TCP socket that can leave the reactor of one shard and join that of another.
#[derive(Debug)]
pub struct Socket(Registration);

#[derive(Debug)]
enum Registration {
    Attached {
        stream: TcpStream,
        /// The runtime has not said yet that the socket takes bytes, which a socket that was registered just now does.
        is_new: bool,
    },
    Detached(std::net::TcpStream),
    /// The registration failed half way: the descriptor is closed and stays so.
    Lost,
}

impl Socket {
    /// A socket that belongs to the current runtime.
    pub fn attached(stream: TcpStream) -> Self {
        Self(Registration::Attached { stream, is_new: true })
    }

    /// A socket that belongs to no runtime yet. It must be non-blocking.
    pub fn detached(stream: std::net::TcpStream) -> Self {
        Self(Registration::Detached(stream))
    }

    /// Takes the socket out of its runtime. Only on the thread of that runtime. Does nothing when it is detached.
    ///
    /// # Errors
    /// What the kernel says to the deregistration; the socket is closed then.
    pub fn detach(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, Registration::Lost) {
            Registration::Attached { stream, .. } => self.0 = Registration::Detached(stream.into_std()?),
            other => self.0 = other,
        }
        self.not_lost()
    }

    /// Registers the socket with the runtime of this thread. Does nothing when it is attached.
    ///
    /// # Errors
    /// What the kernel says to the registration; the socket is closed then.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn attach(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.0, Registration::Lost) {
            Registration::Detached(stream) => {
                let stream = TcpStream::from_std(stream)?;
                self.0 = Registration::Attached { stream, is_new: true };
            }
            other => self.0 = other,
        }
        self.not_lost()
    }

    /// Whether a runtime watches this socket.
    pub fn is_attached(&self) -> bool {
        matches!(self.0, Registration::Attached { .. })
    }

    /// Writes past the runtime, once per registration: it says Pending until it has been told by the kernel that the socket is
    /// writable, a turn later. A CONNACK need not wait for that. The waker of the failed attempt stays registered.
    fn first_write(&mut self, write: impl FnOnce(&socket2::Socket) -> io::Result<usize>) -> Poll<io::Result<usize>> {
        let Registration::Attached { stream, is_new } = &mut self.0 else {
            return Poll::Pending;
        };
        if !std::mem::take(is_new) {
            return Poll::Pending;
        }
        match write(&socket2::SockRef::from(&*stream)) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Poll::Pending,
            written => Poll::Ready(written),
        }
    }

    /// Reads what the kernel holds already, whether or not the runtime has heard of it.
    fn read_arrived(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Registration::Attached { stream, .. } => (&*socket2::SockRef::from(stream)).read(bytes),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    fn not_lost(&self) -> io::Result<()> {
        match self.0 {
            Registration::Lost => Err(io::Error::from(io::ErrorKind::NotConnected)),
            _ => Ok(()),
        }
    }

    fn stream(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        match &mut self.get_mut().0 {
            Registration::Attached { stream, .. } => Ok(Pin::new(stream)),
            _ => Err(io::Error::new(io::ErrorKind::NotConnected, "the socket is registered with no runtime")),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.as_mut().stream()?.poll_write(cx, bytes) {
            Poll::Pending => self.get_mut().first_write(|mut socket| socket.write(bytes)),
            ready => ready,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.as_mut().stream()?.poll_write_vectored(cx, slices) {
            Poll::Pending => self.get_mut().first_write(|mut socket| socket.write_vectored(slices)),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has no buffer of ours: what was written is with the kernel.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}

/// A stream with something between it and its socket: TLS, WebSocket, or both.
///
/// A layer may hold back what is written until `poll_flush`; whoever writes a batch flushes behind it.
pub trait Layered: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket at the bottom.
    fn socket(&mut self) -> &mut Socket;

    /// What is between.
    fn transport(&self) -> Transport;

    /// Puts a WebSocket ping in front of what is written next; the next `poll_flush` sends it. Nothing where there is no WebSocket.
    fn ping(&mut self) {}

    /// Says why the connection is going to be closed, for those whose closing can carry it: `poll_shutdown` sends a
    /// WebSocket Close frame with 4000 + the reason, or the standard code that says the same.
    fn set_close_reason(&mut self, _reason: ReasonCode) {}
}

/// The bottom itself, so that layers are written once for both kinds of ground.
impl Layered for Socket {
    fn socket(&mut self) -> &mut Socket {
        self
    }

    fn transport(&self) -> Transport {
        Transport::Tcp
    }
}

/// The bytes of one connection, both ways.
pub enum ByteStream {
    Tcp(Socket),
    Layered(Box<dyn Layered>),
}

impl ByteStream {
    /// Takes the stream out of its runtime: the first half of a move to another shard. See [`Socket::detach`].
    ///
    /// # Errors
    /// Those of [`Socket::detach`]; the stream is of no use then.
    pub fn detach(&mut self) -> io::Result<()> {
        self.socket().detach()
    }

    /// Registers the stream with the runtime of this thread: the second half. See [`Socket::attach`].
    ///
    /// # Errors
    /// Those of [`Socket::attach`]; the stream is of no use then.
    pub fn attach(&mut self) -> io::Result<()> {
        self.socket().attach()
    }

    /// Whether a runtime watches the socket.
    pub fn is_attached(&mut self) -> bool {
        self.socket().is_attached()
    }

    /// Reads what has arrived up to now, past the runtime where nothing lies between. As `poll_read` otherwise.
    pub fn poll_read_arrived(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Self::Tcp(socket) = self {
            return match socket.read_arrived(buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
                read => Poll::Ready(read),
            };
        }
        let mut buf = ReadBuf::new(buf);
        Pin::new(self).poll_read(cx, &mut buf).map_ok(|()| buf.filled().len())
    }

    /// See [`Layered::ping`].
    pub fn ping(&mut self) {
        if let Self::Layered(layered) = self {
            layered.ping();
        }
    }

    /// See [`Layered::set_close_reason`].
    pub fn set_close_reason(&mut self, reason: ReasonCode) {
        if let Self::Layered(layered) = self {
            layered.set_close_reason(reason);
        }
    }

    /// What carries the bytes.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Layered(layered) => layered.transport(),
        }
    }

    fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Tcp(socket) => socket,
            Self::Layered(layered) => layered.socket(),
        }
    }
}

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("ByteStream").field(&self.transport().name()).finish()
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Layered(layered) => Pin::new(layered).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Layered(layered) => Pin::new(layered).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Self::Layered(layered) => Pin::new(layered).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Layered(layered) => layered.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Self::Layered(layered) => Pin::new(layered).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Layered(layered) => Pin::new(layered).poll_shutdown(cx),
        }
    }
}
