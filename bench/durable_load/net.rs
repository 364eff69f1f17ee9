//! Connections on one thread: non-blocking sockets under epoll, the broker's own codec, one read buffer for all.
//!
//! Owner of the state: [`Net`]. A [`Load`] is told every packet and may write to any connection meanwhile; what it writes goes out at the
//! end of the turn, one `write` for each connection. Any error of a socket, and any packet that does not decode, ends the program: a
//! figure of a run in which something broke would be worth nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use holdfast::mqtt::{
    Connect, Disconnect, PACKET_BYTES_MAX, Packet, Peer, Properties, ProtocolVersion, QoS, ReasonCode, RetainHandling,
    Subscribe, SubscribeFiltersBuf, SubscriptionOptions, decode, next_frame,
};

/// All connections speak it: the version that every broker here knows best.
pub const VERSION: ProtocolVersion = ProtocolVersion::V3_1_1;

const EVENTS: usize = 256;
const READ_BYTES: usize = 256 * 1024;

/// What a scenario does with what comes.
pub trait Load {
    fn packet(&mut self, net: &mut Net, token: usize, packet: &Packet<'_>) -> Result<()>;

    /// The server closed the connection after a [`Net::disconnect`].
    fn closed(&mut self, _net: &mut Net, _token: usize) -> Result<()> {
        Ok(())
    }
}

struct Conn {
    stream: TcpStream,
    /// The beginning of a packet that is not whole yet.
    unread: Vec<u8>,
    unsent: Vec<u8>,
    /// The socket was full; epoll tells when it is not.
    full: bool,
    dirty: bool,
    /// DISCONNECT was sent: the end of the stream is expected.
    leaving: bool,
}

/// All connections, each under a number (token) that its scenario chose.
pub struct Net {
    addr: SocketAddr,
    epoll: OwnedFd,
    conns: Vec<Option<Conn>>,
    dirty: Vec<usize>,
    buffer: Vec<u8>,
    start: Instant,
    now_ns: u64,
}

impl Net {
    pub fn new(addr: SocketAddr) -> Result<Net> {
        // SAFETY: the call takes no pointers; a descriptor that it returns is nobody else's.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error()).context("epoll_create1");
            }
            OwnedFd::from_raw_fd(fd)
        };
        let (start, buffer) = (Instant::now(), vec![0; READ_BYTES]);
        Ok(Net { addr, epoll, conns: Vec::new(), dirty: Vec::new(), buffer, start, now_ns: 0 })
    }

    /// Nanoseconds since the start, as of the last read from the kernel.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Opens a connection under `token` and writes its CONNECT.
    pub fn open(&mut self, token: usize, client_id: &str, clean: bool) -> Result<()> {
        self.open_at(self.addr, token, &connect(client_id, clean))
    }

    /// The same to an address and with a CONNECT of the caller's.
    pub fn open_at(&mut self, addr: SocketAddr, token: usize, connect: &Connect<'_>) -> Result<()> {
        let stream = TcpStream::connect(addr).with_context(|| format!("{}: connecting", connect.client_id))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        if self.conns.len() <= token {
            self.conns.resize_with(token + 1, || None);
        }
        let conn = Conn { stream, unread: Vec::new(), unsent: Vec::new(), full: false, dirty: false, leaving: false };
        self.watch(libc::EPOLL_CTL_ADD, &conn.stream, token, libc::EPOLLIN)?;
        self.conns[token] = Some(conn);
        self.send(token, &Packet::Connect(*connect))
    }

    /// Writes a packet at the end of this turn.
    pub fn send(&mut self, token: usize, packet: &Packet<'_>) -> Result<()> {
        packet.encode(VERSION, self.out(token)?);
        Ok(())
    }

    /// A SUBSCRIBE for one filter at QoS 1.
    pub fn subscribe(&mut self, token: usize, filter: &str) -> Result<()> {
        let mut filters = SubscribeFiltersBuf::default();
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::SendAtSubscribe,
        };
        filters.push(filter, options);
        let packet_id = holdfast::mqtt::PacketId::new(1).ok_or_else(|| anyhow!("packet identifier 0"))?;
        let subscribe = Subscribe { packet_id, properties: Properties::EMPTY, filters: filters.as_filters() };
        self.send(token, &Packet::Subscribe(subscribe))
    }

    /// What is to be written to a connection at the end of this turn.
    pub fn out(&mut self, token: usize) -> Result<&mut Vec<u8>> {
        let conn = self.conns.get_mut(token).and_then(Option::as_mut).ok_or_else(|| anyhow!("{token} is not open"))?;
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.push(token);
        }
        Ok(&mut conn.unsent)
    }

    /// Says DISCONNECT and waits, in later turns, for the server to close.
    pub fn disconnect(&mut self, token: usize) -> Result<()> {
        let packet = Disconnect { reason: ReasonCode::NormalDisconnection, properties: Properties::EMPTY };
        self.send(token, &Packet::Disconnect(packet))?;
        if let Some(conn) = self.conns[token].as_mut() {
            conn.leaving = true;
        }
        Ok(())
    }

    /// One turn: flushes, waits `timeout` at the most, and tells `load` all that came. False: nothing came.
    pub fn turn(&mut self, load: &mut impl Load, timeout: Duration) -> Result<bool> {
        self.flush()?;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `events` is valid for writes of EVENTS events and outlives the call.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as libc::c_int, millis) };
        self.now_ns = self.start.elapsed().as_nanos() as u64;
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if error.kind() == ErrorKind::Interrupted { Ok(false) } else { Err(error).context("epoll_wait") };
        };
        for event in &events[..count] {
            let token = event.u64 as usize;
            if event.events & libc::EPOLLOUT as u32 != 0 {
                self.flush_one(token)?;
            }
            if event.events & !(libc::EPOLLOUT as u32) != 0 {
                self.read(token, load)?;
            }
        }
        self.flush()?;
        Ok(count > 0)
    }

    fn read(&mut self, token: usize, load: &mut impl Load) -> Result<()> {
        let Some(conn) = self.conns[token].as_mut() else { return Ok(()) };
        let mut buffer = std::mem::take(&mut self.buffer);
        let held = conn.unread.len();
        if buffer.len() < held + READ_BYTES / 2 {
            buffer.resize(held + READ_BYTES, 0);
        }
        buffer[..held].copy_from_slice(&conn.unread);
        conn.unread.clear();
        let read = conn.stream.read(&mut buffer[held..]);
        self.now_ns = self.start.elapsed().as_nanos() as u64;
        let result = match read {
            Ok(0) => self.end(token, load),
            Ok(count) => self.packets(token, &buffer[..held + count], load),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                conn.unread.extend_from_slice(&buffer[..held]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.end(token, load),
            Err(error) => Err(error).with_context(|| format!("reading from connection {token}")),
        };
        self.buffer = buffer;
        result
    }

    fn packets(&mut self, token: usize, mut bytes: &[u8], load: &mut impl Load) -> Result<()> {
        while let Some(frame) = next_frame(bytes, PACKET_BYTES_MAX)? {
            let packet = decode(&frame, VERSION, Peer::Server)?;
            load.packet(self, token, &packet)?;
            bytes = &bytes[frame.total_len..];
        }
        if let Some(conn) = self.conns[token].as_mut() {
            conn.unread.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn end(&mut self, token: usize, load: &mut impl Load) -> Result<()> {
        match self.conns[token].take() {
            Some(conn) if !conn.leaving => bail!("the server closed connection {token}"),
            Some(_) => load.closed(self, token),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let mut dirty = std::mem::take(&mut self.dirty);
        for token in dirty.drain(..) {
            self.flush_one(token)?;
        }
        self.dirty = dirty;
        Ok(())
    }

    fn flush_one(&mut self, token: usize) -> Result<()> {
        let Some(conn) = self.conns[token].as_mut() else { return Ok(()) };
        conn.dirty = false;
        let mut sent = 0;
        let mut full = false;
        while sent < conn.unsent.len() && !full {
            match conn.stream.write(&conn.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => full = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if conn.leaving => sent = conn.unsent.len(),
                Err(error) => return Err(error).with_context(|| format!("writing to connection {token}")),
            }
        }
        conn.unsent.drain(..sent);
        if full != conn.full {
            conn.full = full;
            let interest = if full { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
            let conn = self.conns[token].as_ref().ok_or_else(|| anyhow!("{token} is not open"))?;
            self.watch(libc::EPOLL_CTL_MOD, &conn.stream, token, interest)?;
        }
        Ok(())
    }

    fn watch(&self, operation: libc::c_int, stream: &TcpStream, token: usize, interest: libc::c_int) -> Result<()> {
        let mut event = libc::epoll_event { events: interest as u32, u64: token as u64 };
        // SAFETY: `event` is valid for the call; both descriptors are open, their owners are borrowed.
        let done = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, stream.as_raw_fd(), &mut event) };
        if done < 0 { Err(io::Error::last_os_error()).context("epoll_ctl") } else { Ok(()) }
    }
}

/// A CONNECT without Will, user or keep-alive.
pub fn connect(client_id: &str, clean: bool) -> Connect<'_> {
    Connect {
        version: VERSION,
        clean_start: clean,
        keep_alive_secs: 0,
        client_id,
        properties: Properties::EMPTY,
        will: None,
        user_name: None,
        password: None,
    }
}
