//! Sockets: opening a listening one, and taking connections from it.
//!
//! The path from here to the shard is walked by every device of a fleet at once after an outage, so it saves system calls: options are
//! set on the listening socket, from which Linux hands them down, and `accept4` returns a socket that is non-blocking already.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel may hold for us between two turns of the loop; it lowers this to `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// Opens a listening socket, to be duplicated with `try_clone` for every shard.
///
/// Its connections inherit `TCP_NODELAY`, since packets are written in batches of our own making, and `SO_KEEPALIVE`, so that a
/// peer that vanished is noticed even with Keep Alive 0.
///
/// # Errors
/// Those of the kernel: the address is in use, not ours, or not permitted.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = reserve(address)?;
    listen(&socket)?;
    Ok(socket)
}

/// The same, but nobody can connect before [`listen`].
///
/// # Errors
/// As [`bind`].
pub fn reserve(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Lets connections come to a socket of [`reserve`]. Once more does no harm.
///
/// # Errors
/// Those of the kernel: another socket listens on the address.
pub fn listen(socket: &std::net::TcpListener) -> io::Result<()> {
    socket2::SockRef::from(socket).listen(BACKLOG)
}

/// What one call of accept came to.
pub(super) enum Accepted {
    Connection(std::net::TcpStream, SocketAddr),
    /// The queue is empty.
    Nothing,
    /// This connection died in the queue; there may be others.
    Failed(io::Error),
    /// The process or the machine is out of descriptors or memory: to go on at once would spin.
    Exhausted(io::Error),
}

/// Takes one connection, non-blocking and closed on exec, from the queue of a listening socket.
pub(super) fn accept(listening: &Socket) -> Accepted {
    match listening.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
        Ok((socket, address)) => match address.as_socket() {
            Some(peer) => Accepted::Connection(socket.into(), peer),
            None => Accepted::Failed(io::Error::from(io::ErrorKind::AddrNotAvailable)),
        },
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Nothing,
        Err(error) if is_exhaustion(&error) => Accepted::Exhausted(error),
        Err(error) => Accepted::Failed(error),
    }
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
