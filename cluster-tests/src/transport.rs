//! One connection as a byte stream, over TCP, TLS, WebSocket or WebSocket over TLS.
//!
//! The owner is one test's thread. Every read takes a deadline, and writes have one of their own, so that no test can hang.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::websocket::{Upgrade, WebSocket};

/// How long a connect, a write, or a wait for something that must come may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What lies between MQTT and the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Tls,
    WebSocket,
    SecureWebSocket,
}

impl Transport {
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::WebSocket | Self::SecureWebSocket)
    }

    pub fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::SecureWebSocket)
    }
}

/// A stream socket, plain or inside TLS.
pub trait Socket: Read + Write + Send {
    /// The TCP socket underneath: for deadlines, addresses and resets.
    fn tcp(&self) -> &TcpStream;
}

impl Socket for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Socket for StreamOwned<ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

/// A TCP connection with `TCP_NODELAY` and a deadline for writes.
///
/// # Errors
/// When nobody accepts within [`PATIENCE`].
pub fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// TLS over TCP to `localhost`, with the handshake done.
///
/// # Errors
/// Those of the connection and of the handshake.
pub fn tls(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut stream = tcp(address)?;
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// A connection that carries MQTT bytes.
pub enum Link {
    Stream(Box<dyn Socket>),
    WebSocket(WebSocket),
}

impl Link {
    /// Connects; over WebSocket with a successful upgrade. `config` is for TLS only.
    ///
    /// # Errors
    /// Those of the connection and of the handshakes.
    pub fn open(transport: Transport, address: SocketAddr, config: Option<Arc<ClientConfig>>) -> io::Result<Self> {
        let socket: Box<dyn Socket> = if transport.is_tls() {
            let config = config.ok_or_else(|| io::Error::other("TLS without a client configuration"))?;
            Box::new(tls(address, config)?)
        } else {
            Box::new(tcp(address)?)
        };
        if transport.is_websocket() {
            return Ok(Self::WebSocket(WebSocket::open(socket, &Upgrade::new("/mqtt").protocol("mqtt"))?));
        }
        Ok(Self::Stream(socket))
    }

    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Stream(socket) => socket.tcp(),
            Self::WebSocket(websocket) => websocket.tcp(),
        }
    }

    /// Writes all bytes; over WebSocket as one binary frame.
    ///
    /// # Errors
    /// Those of the socket, also when the other side takes nothing for [`PATIENCE`].
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(socket) => {
                socket.write_all(bytes)?;
                socket.flush()
            }
            Self::WebSocket(websocket) => websocket.send_binary(bytes),
        }
    }

    /// Appends what has come to `into`; 0 when the other side has closed (a reset counts as that).
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when nothing came until the deadline; others as they are.
    pub fn read(&mut self, into: &mut Vec<u8>, deadline: Instant) -> io::Result<usize> {
        match self {
            Self::Stream(socket) => read_some(socket.as_mut(), into, deadline),
            Self::WebSocket(websocket) => websocket.read_binary(into, deadline),
        }
    }

    /// Closes with a TCP reset: what is unsent or unread is thrown away.
    pub fn reset(self) {
        // Best effort: where the option cannot be set, the close below is an ordinary one.
        let _ = socket2::SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
    }
}

/// One read with a deadline; 0 when the other side has closed or reset the connection.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] at the deadline; others as they are.
pub fn read_some(socket: &mut dyn Socket, into: &mut Vec<u8>, deadline: Instant) -> io::Result<usize> {
    let mut chunk = [0; 16 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.tcp().set_read_timeout(Some(left))?;
        match socket.read(&mut chunk) {
            Ok(count) => {
                into.extend_from_slice(&chunk[..count]);
                return Ok(count);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                    return Ok(0);
                }
                _ => return Err(error),
            },
        }
    }
}
