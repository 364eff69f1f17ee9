//! The beginning of a connection on its socket: connect, TLS, and the exchange of [`hello`](super::hello), each with its deadline.
//!
//! Nothing is read beyond a message, so that what follows it belongs to whoever gets the stream. Before the other side has proven that it
//! knows the secret, at most [`MESSAGE_BYTES_MAX`] bytes of it are held.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use holdfast_raft::NodeId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::hello::{
    self, Binding, Hello, MESSAGE_BYTES_MAX, MESSAGE_HEAD_BYTES, Message, PREFACE_BYTES, Purpose, Said, Side,
};
use super::refusal::{Failure, Refusal};
use super::shared::Shared;
use crate::byte_stream::{ByteStream, Socket};

/// How long a name may take to be resolved, and one address to be connected to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a newcomer may take for everything up to his proof.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an acceptor waits for the link to be up before it refuses a connection that needs it.
pub(super) const UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

/// Keep-alive of sockets that are silent for long: the kernel finds out within about ten seconds that nobody is there.
const KEEPALIVE: socket2::TcpKeepalive = socket2::TcpKeepalive::new()
    .with_time(Duration::from_secs(5))
    .with_interval(Duration::from_secs(1))
    .with_retries(5);

/// Bytes of a control connection that the kernel takes beyond what it can send: the rest waits here, where what is urgent goes first.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// A connection that we dialled, with both proofs given.
pub(super) struct Dialled {
    pub hello: Hello,
    pub stream: ByteStream,
    pub remote: SocketAddr,
}

/// A connection that somebody dialled who has proven that he knows the secret. He waits for the Welcome.
pub(super) struct Introduced {
    pub hello: Hello,
    pub stream: ByteStream,
    pub remote: SocketAddr,
    welcome: Vec<u8>,
}

impl Introduced {
    pub(super) async fn welcome(&mut self) -> io::Result<()> {
        let welcome = std::mem::take(&mut self.welcome);
        within(GREETING_TIMEOUT, send(&mut self.stream, &welcome)).await
    }

    /// Says no, and why. Returns when it is said, or cannot be.
    pub(super) async fn refuse(mut self, refusal: Refusal) {
        refuse(&mut self.stream, refusal).await;
    }
}

/// The addresses of a host and port, as they are now.
pub(super) async fn resolve(address: &str) -> Result<Vec<SocketAddr>, Failure> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let unresolved = || Failure::Name(address.to_owned());
    let found = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host(address)).await.map_err(|_| Failure::TimedOut)?;
    let found: Vec<_> = found.map_err(|_| unresolved())?.take(ADDRESSES_MAX).collect();
    if found.is_empty() { Err(unresolved()) } else { Ok(found) }
}

/// Dials the addresses of a host and port one after the other, until one connects, and greets who is there.
pub(super) async fn dial(
    shared: &Shared,
    address: &str,
    expected: Option<NodeId>,
    purpose: Purpose,
) -> Result<Dialled, Failure> {
    let mut failure = Failure::Name(address.to_owned());
    for address in resolve(address).await? {
        match dial_one(shared, address, expected, purpose).await {
            Ok(dialled) => return Ok(dialled),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Dials one address and greets who is there.
pub(super) async fn dial_one(
    shared: &Shared,
    address: SocketAddr,
    expected: Option<NodeId>,
    purpose: Purpose,
) -> Result<Dialled, Failure> {
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await.map_err(|_| Failure::TimedOut)?;
    let socket = connected.map_err(|error| Failure::network(&error))?;
    if is_itself(&socket) {
        return Err(Failure::NotHoldfast);
    }
    tune(&socket);
    if purpose == Purpose::Control {
        keep_urgent(&socket);
    }
    let socket = Socket::attached(socket);
    let secured = match &shared.tls {
        None => Ok((ByteStream::Tcp(socket), Binding::default())),
        Some(tls) => timeout(GREETING_TIMEOUT, tls.dial(socket)).await.map_err(|_| Failure::TimedOut)?,
    };
    let (mut stream, binding) = secured.map_err(|error| Failure::Tls(error.to_string()))?;
    let hello = greet(shared, &mut stream, binding, expected, purpose).await?;
    Ok(Dialled { hello, stream, remote: address })
}

/// Whether the kernel has connected a socket with itself: it does so when it picks, for an address of this machine where nobody
/// listens, that port for the other end as well. Kept open, it would keep the port from whoever wants to listen there.
fn is_itself(socket: &TcpStream) -> bool {
    let itself = matches!((socket.local_addr(), socket.peer_addr()), (Ok(own), Ok(other)) if own == other);
    if itself {
        let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
    }
    itself
}

fn tune(socket: &TcpStream) {
    // None of these decides anything: without them things are slower.
    let _ = socket.set_nodelay(true);
    let socket = socket2::SockRef::from(socket);
    let _ = socket.set_tcp_keepalive(&KEEPALIVE);
}

/// Has the kernel take little more than it can send, so that what is urgent waits behind little.
fn keep_urgent(socket: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    #[cfg(not(target_os = "linux"))]
    let _ = (socket, UNSENT_BYTES_MAX);
}

/// The dialler's half of the exchange.
async fn greet(
    shared: &Shared,
    stream: &mut ByteStream,
    binding: Binding,
    expected: Option<NodeId>,
    purpose: Purpose,
) -> Result<Hello, Failure> {
    let deadline = Instant::now() + GREETING_TIMEOUT;
    let mine = shared.hello(purpose)?;
    let mut said = Said { dialler: opening(shared, &mine), acceptor: Vec::new(), binding };
    at(deadline, send(stream, &said.dialler)).await?;
    let theirs = match read_opening(shared, stream, &mut said.acceptor, deadline).await? {
        Message::Hello(hello) => *hello,
        Message::Refused(refusal) => return Err(Failure::RefusedByPeer(refusal)),
        _ => return Err(Failure::NotHoldfast),
    };
    let refusal = shared.judge(&theirs).err();
    let refusal = refusal.or(expected.filter(|expected| *expected != theirs.peer.id).map(|_| Refusal::Another));
    if let Some(refusal) = refusal {
        refuse(stream, refusal).await;
        return Err(Failure::Refused(refusal));
    }
    let proof = said.prove(&shared.secret, Side::Dialler);
    at(deadline, send(stream, &hello::message(&Message::Proof(proof)))).await?;
    // What needs the link is welcomed when that is up, on the other side too.
    match read_message(stream, theirs.peer.versions, &mut Vec::new(), Instant::now() + GREETING_TIMEOUT + UP_TIMEOUT)
        .await?
    {
        Message::Welcome(proof) if said.is_proven(&shared.secret, Side::Acceptor, &proof) => Ok(theirs),
        Message::Welcome(_) => Err(Failure::Refused(Refusal::Secret)),
        Message::Refused(refusal) => Err(Failure::RefusedByPeer(refusal)),
        _ => Err(Failure::Refused(Refusal::Malformed)),
    }
}

/// The acceptor's half, up to the dialler's proof.
pub(super) async fn receive(shared: &Shared, socket: TcpStream, remote: SocketAddr) -> Result<Introduced, Failure> {
    let deadline = Instant::now() + GREETING_TIMEOUT;
    tune(&socket);
    let socket = Socket::attached(socket);
    let secured = match &shared.tls {
        None => Ok((ByteStream::Tcp(socket), Binding::default())),
        Some(tls) => timeout_at(deadline, tls.accept(socket)).await.map_err(|_| Failure::TimedOut)?,
    };
    let (mut stream, binding) = secured.map_err(|error| Failure::Tls(error.to_string()))?;
    let mut said = Said { binding, ..Said::default() };
    match exchange(shared, &mut stream, &mut said, deadline).await {
        Ok(hello) => {
            let welcome = Message::Welcome(said.prove(&shared.secret, Side::Acceptor));
            Ok(Introduced { hello, stream, remote, welcome: hello::message(&welcome) })
        }
        Err(failure) => {
            if let Failure::Refused(refusal) = &failure {
                if said.acceptor.is_empty() {
                    let _ = at(deadline, send(&mut stream, &hello::preface(shared.own.versions))).await;
                }
                refuse(&mut stream, *refusal).await;
            }
            Err(failure)
        }
    }
}

async fn exchange(
    shared: &Shared,
    stream: &mut ByteStream,
    said: &mut Said,
    deadline: Instant,
) -> Result<Hello, Failure> {
    let theirs = match read_opening(shared, stream, &mut said.dialler, deadline).await? {
        Message::Hello(hello) => *hello,
        _ => return Err(Failure::Refused(Refusal::Malformed)),
    };
    shared.judge(&theirs).map_err(Failure::Refused)?;
    said.acceptor = opening(shared, &shared.hello(theirs.purpose)?);
    at(deadline, send(stream, &said.acceptor)).await?;
    match read_message(stream, theirs.peer.versions, &mut Vec::new(), deadline).await? {
        Message::Proof(proof) if said.is_proven(&shared.secret, Side::Dialler, &proof) => Ok(theirs),
        Message::Proof(_) => Err(Failure::Refused(Refusal::Secret)),
        Message::Refused(refusal) => Err(Failure::RefusedByPeer(refusal)),
        _ => Err(Failure::Refused(Refusal::Malformed)),
    }
}

/// Preface and Hello.
fn opening(shared: &Shared, hello: &Hello) -> Vec<u8> {
    let mut bytes = hello::preface(shared.own.versions).to_vec();
    bytes.extend_from_slice(&hello::message(&Message::Hello(Box::new(hello.clone()))));
    bytes
}

/// Reads preface and first message of the other side, and appends them to `said` as they came.
async fn read_opening(
    shared: &Shared,
    stream: &mut ByteStream,
    said: &mut Vec<u8>,
    deadline: Instant,
) -> Result<Message, Failure> {
    let mut preface = [0; PREFACE_BYTES];
    at(deadline, stream.read_exact(&mut preface)).await?;
    let versions = hello::read_preface(&preface).ok_or(Failure::NotHoldfast)?;
    if hello::common_version(shared.own.versions, versions).is_none() {
        return Err(Failure::Refused(Refusal::Version));
    }
    said.extend_from_slice(&preface);
    read_message(stream, versions, said, deadline).await
}

/// Reads one message, and appends it to `said` as it came.
async fn read_message(
    stream: &mut ByteStream,
    versions: (u16, u16),
    said: &mut Vec<u8>,
    deadline: Instant,
) -> Result<Message, Failure> {
    let mut head = [0; MESSAGE_HEAD_BYTES];
    at(deadline, stream.read_exact(&mut head)).await?;
    let length = hello::body_length(head).ok_or(Failure::Refused(Refusal::Malformed))?;
    let mut body = [0; MESSAGE_BYTES_MAX];
    let body = &mut body[..length];
    at(deadline, stream.read_exact(body)).await?;
    said.extend_from_slice(&head);
    said.extend_from_slice(body);
    hello::read_message(head[0], body, versions).ok_or(Failure::Refused(Refusal::Malformed))
}

async fn send(stream: &mut ByteStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn refuse(stream: &mut ByteStream, refusal: Refusal) {
    let bytes = hello::message(&Message::Refused(refusal));
    let said = async {
        send(stream, &bytes).await?;
        stream.shutdown().await?;
        // What the other side still sends is read: closing over it would throw away the reason before it is read there.
        let mut scratch = [0; MESSAGE_BYTES_MAX];
        for _ in 0..4 {
            if stream.read(&mut scratch).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), said).await;
}

async fn at<T>(deadline: Instant, step: impl Future<Output = io::Result<T>>) -> Result<T, Failure> {
    match timeout_at(deadline, step).await {
        Ok(done) => done.map_err(|error| Failure::network(&error)),
        Err(_) => Err(Failure::TimedOut),
    }
}

async fn within<T>(limit: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, step).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
