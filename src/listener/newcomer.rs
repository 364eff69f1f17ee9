//! A connection from accept to its shard, when it has to be waited for: handshakes, a CONNECT in pieces, a password, a refusal.
//!
//! One task per connection on the shard that accepted it, until it is handed over or closed. Each of its steps has a deadline; while it
//! is silent it holds no buffer. What ends it is an [`End`], which is counted and logged in one place.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::Acceptor;
use super::foreign::{self, Foreign};
use super::greeting::{self, Refusal, Verdict};
use super::http::HEAD_BYTES_MAX;
use super::log_limit::{Cause, permit};
use super::proxy_header::{self, NoHeader};
use super::tls::TlsReload;
use super::upgrade::{self, Judgement};
use super::websocket::WebSocket;
use crate::access::{Certificate, Identity};
use crate::admission::RateKind;
use crate::byte_stream::{ByteStream, Layered, Socket};
use crate::config::{Protocol, ProxyProtocol};
use crate::metrics::RefusalGroup;
use crate::mqtt::{Connect, ReasonCode};
use crate::shard::greeted::{Dispatch, Greeted, ListenerSlot};

/// How long a connection that was refused may take to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// Bytes read at once before a connection has a shard.
const READ_BYTES: usize = 2048;

/// Smallest bound for a WebSocket message, which may hold many packets.
const MESSAGE_BYTES_MIN: usize = 64 * 1024;

/// A connection that has no shard yet.
pub(super) struct Newcomer {
    pub slot: ListenerSlot,
    /// Who came, as far as it is known: the proxy until that has said for whom it speaks.
    pub peer: SocketAddr,
    /// See [`Greeted::proxied_name`].
    pub proxied_name: Option<Box<str>>,
    /// It was asked whether it comes too fast.
    pub is_admitted: bool,
    /// Milliseconds of the node's clock.
    pub accepted_at: u64,
}

/// What a connection has shown of its client before its CONNECT.
#[derive(Default)]
pub(super) struct Shown {
    /// The token of an `Authorization: Bearer` of the WebSocket upgrade.
    pub bearer: Option<Zeroizing<String>>,
    /// The certificate that TLS has verified.
    pub certificate: Option<Certificate>,
}

/// Why a connection did not reach a shard.
#[derive(Debug)]
pub(super) enum End {
    /// Closed by the peer before a byte.
    Silent,
    /// Closed by the peer in the middle of something.
    Left,
    TimedOut(&'static str),
    Network(io::Error),
    Tls(io::Error),
    Foreign(Foreign),
    Upgrade(upgrade::Refusal),
    Refused(Refusal),
    TooFast(RateKind),
    /// From a banned address.
    Banned,
    Proxy(NoHeader),
}

/// For the log.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("closed by the peer before a byte"),
            Self::Left => f.write_str("closed by the peer in the middle"),
            Self::TimedOut(what) => f.write_str(what),
            Self::Network(error) | Self::Tls(error) => error.fmt(f),
            Self::Foreign(_) => f.write_str("another protocol"),
            Self::Upgrade(why) => why.fmt(f),
            Self::Refused(refusal) => f.write_str(refusal.what),
            Self::TooFast(kind) => write!(f, "{TOO_FAST} ({})", kind.label()),
            Self::Banned => f.write_str(BANNED),
            Self::Proxy(why) => why.fmt(f),
        }
    }
}

const BANNED: &str = "connection closed: the address is banned";
const TOO_FAST: &str = "connection closed: connections come faster than max_conn_rate or max_conn_rate_per_ip allows";

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Network(error)
    }
}

/// Takes a connection through its handshakes and its CONNECT to its shard. `early` is what was read from it already.
pub(super) async fn welcome<D: Dispatch>(
    acceptor: Rc<Acceptor<D>>,
    newcomer: Newcomer,
    socket: std::net::TcpStream,
    early: Vec<u8>,
) {
    let mut peer = newcomer.peer;
    if let Err(end) = try_welcome(&acceptor, (newcomer, &mut peer), socket, early).await {
        report(&acceptor, peer, &end);
    }
}

async fn try_welcome<D: Dispatch>(
    acceptor: &Acceptor<D>,
    (mut newcomer, peer): (Newcomer, &mut SocketAddr),
    socket: std::net::TcpStream,
    early: Vec<u8>,
) -> Result<(), End> {
    let socket = TcpStream::from_std(socket)?;
    let mut shown = Shown::default();
    let socket = introduce(acceptor, &mut newcomer, socket).await?;
    *peer = newcomer.peer;
    let mut stream = establish(acceptor, &mut newcomer, socket, &mut shown).await?;
    *peer = newcomer.peer;
    let mut bytes = early;
    let rules = acceptor.rules(&newcomer.slot);
    let reading =
        read_until(&mut stream, &mut bytes, |bytes| !matches!(greeting::judge(bytes, &rules), Verdict::Incomplete));
    let connect_timeout = acceptor.listener.config.connect_timeout;
    let connect_timeout = if newcomer.slot.too_fast() { connect_timeout.min(FAREWELL) } else { connect_timeout };
    tokio::time::timeout(connect_timeout, reading).await.map_err(|_| End::TimedOut("no CONNECT in time"))??;
    let refusal = match greeting::judge(&bytes, &rules) {
        Verdict::Hello { connect, packet_len } => {
            match acceptor.access.authenticate(&acceptor.login(&newcomer, &connect, &shown)).await {
                Ok(identity) => {
                    return submit(acceptor, newcomer, stream, &connect, identity, bytes.split_at(packet_len));
                }
                Err(denial) => {
                    Refusal { method: denial.method.label(), ..Refusal::of(&connect, denial.reason, denial.why) }
                }
            }
        }
        Verdict::Refused(refusal) => refusal,
        Verdict::Foreign(found) => return Err(turn_away(acceptor, stream, bytes, found).await),
        Verdict::Incomplete => return Err(End::Left),
    };
    stream.set_close_reason(refusal.reason);
    farewell(&mut stream, &refusal.connack()).await;
    Err(End::Refused(refusal))
}

/// Hands a connection on whose CONNECT and identity are known. `bytes` are the CONNECT and what was read behind it.
pub(super) fn submit<D: Dispatch>(
    acceptor: &Acceptor<D>,
    newcomer: Newcomer,
    stream: ByteStream,
    connect: &Connect<'_>,
    identity: Identity,
    bytes: (&[u8], &[u8]),
) -> Result<(), End> {
    let (client_id, assigned_client_id) =
        greeting::client_id(connect).map_err(|error| End::Network(io::Error::other(error.to_string())))?;
    let (client_id, assigned_client_id) = match &identity.client_id {
        Some(named) => (named.clone(), assigned_client_id),
        None => (client_id, assigned_client_id),
    };
    acceptor.listener.counts.greeted.fetch_add(1, Ordering::Relaxed);
    acceptor.dispatch.submit(Greeted {
        stream,
        connect: bytes.0.into(),
        rest: bytes.1.to_vec(),
        client_id,
        assigned_client_id,
        peer: newcomer.peer,
        proxied_name: newcomer.proxied_name,
        listener: newcomer.slot,
        identity,
        accepted_at: newcomer.accepted_at,
    });
    Ok(())
}

/// The lines of configuration that would let such a client in; empty for what no configuration should let in.
fn remedy<D>(acceptor: &Acceptor<D>, refusal: &Refusal) -> String {
    let name = acceptor.listener.config.name.as_str();
    match (refusal.reason, refusal.method) {
        (ReasonCode::NotAuthorized, "anonymous") => format!(
            ". To let in clients without a user name, put under the [[listener]] with name = \"{name}\":  allow_anonymous = true  ; to give them passwords, run  \
             holdfast passwd -c passwords USER  and put under [auth]:  password_file = \"passwords\""
        ),
        (ReasonCode::BadUserNameOrPassword, "password") => {
            ". To let in a user, run  holdfast passwd FILE USER  with the password_file of [auth] and send SIGHUP"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Lets a proxy say for whom it speaks, within the deadline for handshakes, and asks whether that one comes too fast.
async fn introduce<D: Dispatch>(
    acceptor: &Acceptor<D>,
    newcomer: &mut Newcomer,
    mut socket: TcpStream,
) -> Result<TcpStream, End> {
    let config = &acceptor.listener.config;
    if newcomer.is_admitted {
        return Ok(socket);
    }
    if config.proxy_protocol != ProxyProtocol::Off {
        let reading = Box::pin(read_proxy_header(&mut socket, config.proxy_protocol));
        let header = tokio::time::timeout(config.handshake_timeout, reading).await;
        let header = header.map_err(|_| End::TimedOut("no PROXY header in time"))??;
        newcomer.peer = header.source.unwrap_or(newcomer.peer);
        newcomer.proxied_name = header.common_name.map(String::into_boxed_str);
    }
    if !(acceptor.reads_forwarded() && acceptor.listener.trusts(newcomer.peer.ip())) {
        acceptor.admit(newcomer)?;
    }
    Ok(socket)
}

/// Reads the header and not a byte more: what is behind it is for TLS, or for the shard.
async fn read_proxy_header(socket: &mut TcpStream, wanted: ProxyProtocol) -> Result<proxy_header::Header, End> {
    let mut bytes = Vec::new();
    loop {
        let mut seen = [0; proxy_header::HEADER_BYTES_MAX];
        let kept = bytes.len();
        let arrived = socket.peek(&mut seen[kept..]).await?;
        if arrived == 0 {
            return Err(if kept == 0 { End::Silent } else { End::Left });
        }
        seen[..kept].copy_from_slice(&bytes);
        let parsed = proxy_header::parse(&seen[..kept + arrived], wanted).map_err(End::Proxy)?;
        // All of an unfinished header is the header's.
        let len = parsed.as_ref().map_or(kept + arrived, |(_, len)| *len);
        bytes.resize(len, 0);
        socket.read_exact(&mut bytes[kept..]).await?;
        if let Some((header, _)) = parsed {
            return Ok(header);
        }
    }
}

/// TLS and WebSocket, as the listener has them, within the deadline for handshakes.
async fn establish<D: Dispatch>(
    acceptor: &Acceptor<D>,
    newcomer: &mut Newcomer,
    socket: TcpStream,
    shown: &mut Shown,
) -> Result<ByteStream, End> {
    let config = &acceptor.listener.config;
    if config.protocol == Protocol::Mqtt && acceptor.tls.is_none() {
        return Ok(ByteStream::Tcp(Socket::attached(socket)));
    }
    match tokio::time::timeout(config.handshake_timeout, shake_hands(acceptor, newcomer, socket, shown)).await {
        Ok(established) => established,
        Err(_) => Err(End::TimedOut("no handshake in time")),
    }
}

/// Each handshake in a box of its own: a connection carries the memory only of the one that it is in.
async fn shake_hands<D: Dispatch>(
    acceptor: &Acceptor<D>,
    newcomer: &mut Newcomer,
    socket: TcpStream,
    shown: &mut Shown,
) -> Result<ByteStream, End> {
    let is_websocket = acceptor.listener.config.protocol == Protocol::Ws;
    match &acceptor.tls {
        Some(tls) => {
            let stream = Box::pin(accept_tls(acceptor, tls, socket)).await?;
            shown.certificate = stream.client_certificate();
            if is_websocket {
                Box::pin(upgrade(acceptor, newcomer, stream, shown)).await
            } else {
                Ok(ByteStream::Layered(Box::new(stream)))
            }
        }
        None => Box::pin(upgrade(acceptor, newcomer, Socket::attached(socket), shown)).await,
    }
}

/// Looks at the first byte before rustls does, so that a client of another protocol is told apart from a broken one.
async fn accept_tls<D>(
    acceptor: &Acceptor<D>,
    tls: &TlsReload,
    mut socket: TcpStream,
) -> Result<super::tls::TlsLayer, End> {
    let mut first = [0; 1];
    match socket.peek(&mut first).await? {
        0 => Err(End::Silent),
        _ if first[0] == foreign::TLS_HANDSHAKE => tls.accept(Socket::attached(socket)).await.map_err(End::Tls),
        _ => {
            let mut bytes = Vec::new();
            read_until(&mut socket, &mut bytes, |bytes| foreign::protocol(bytes).is_some()).await?;
            let found = foreign::protocol(&bytes).unwrap_or(Foreign::Unknown);
            if found == Foreign::Http {
                read_head(&mut socket, &mut bytes).await?;
                farewell(&mut socket, &foreign::http_on_tls_port(acceptor.listener.config.scheme())).await;
            }
            Err(End::Foreign(found))
        }
    }
}

async fn upgrade<D: Dispatch, S: Layered + 'static>(
    acceptor: &Acceptor<D>,
    newcomer: &mut Newcomer,
    mut stream: S,
    shown: &mut Shown,
) -> Result<ByteStream, End> {
    let config = &acceptor.listener.config;
    let rules = upgrade::Rules { path: &config.path, allowed_origins: &config.allowed_origins };
    let mut bytes = Vec::new();
    let wanted = |bytes: &[u8]| match foreign::protocol(bytes) {
        None => false,
        Some(Foreign::Http) => upgrade::judge(bytes, &rules) != Judgement::Incomplete,
        Some(_) => true,
    };
    read_until(&mut stream, &mut bytes, wanted).await?;
    match foreign::protocol(&bytes) {
        Some(Foreign::Http) => {}
        found => return Err(End::Foreign(found.unwrap_or(Foreign::Unknown))),
    }
    if !newcomer.is_admitted {
        if let Some(address) = upgrade::forwarded_for(&bytes, config.xff, &config.trusted_proxies) {
            newcomer.peer = SocketAddr::new(address, 0);
        }
        acceptor.admit(newcomer)?;
    }
    match upgrade::judge(&bytes, &rules) {
        Judgement::Accept { .. } if newcomer.slot.too_fast() => {
            farewell(&mut stream, &upgrade::too_fast()).await;
            Err(End::Upgrade(upgrade::Refusal::TooFast))
        }
        Judgement::Accept { response, head_len, subprotocol } => {
            if subprotocol.is_none() {
                acceptor.listener.counts.no_subprotocol.fetch_add(1, Ordering::Relaxed);
            }
            shown.bearer = upgrade::bearer(&bytes[..head_len]).map(Zeroizing::new);
            stream.write_all(&response).await?;
            stream.flush().await?;
            let message_bytes_max = (acceptor.mqtt.max_packet_size as usize).max(MESSAGE_BYTES_MIN);
            let upgraded = WebSocket::over(stream, &bytes[head_len..], message_bytes_max);
            Ok(ByteStream::Layered(Box::new(upgraded)))
        }
        Judgement::Refuse { response, why } => {
            farewell(&mut stream, &response).await;
            Err(End::Upgrade(why))
        }
        Judgement::Incomplete => Err(End::Left),
    }
}

/// Tells a client of another protocol what it found, if there is a way.
async fn turn_away<D: Dispatch>(
    acceptor: &Acceptor<D>,
    mut stream: ByteStream,
    mut bytes: Vec<u8>,
    found: Foreign,
) -> End {
    if found == Foreign::Http {
        let head = tokio::time::timeout(FAREWELL, read_head(&mut stream, &mut bytes)).await;
        if let Ok(Err(end)) = head {
            return end;
        }
        farewell(&mut stream, &foreign::http_on_mqtt_port(&bytes, &acceptor.listener)).await;
    }
    End::Foreign(found)
}

/// Reads to the end of an HTTP head, which is answered as a whole or not at all.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S, bytes: &mut Vec<u8>) -> Result<(), End> {
    let ended = |bytes: &[u8]| bytes.len() >= HEAD_BYTES_MAX || memchr::memmem::find(bytes, b"\r\n\r\n").is_some();
    read_until(stream, bytes, ended).await
}

/// Reads until `enough` says so of all bytes read. Waits without a buffer.
async fn read_until<S: AsyncRead + Unpin>(
    stream: &mut S,
    bytes: &mut Vec<u8>,
    enough: impl Fn(&[u8]) -> bool,
) -> Result<(), End> {
    while !enough(bytes) {
        let keep = |read: &[u8]| bytes.extend_from_slice(read);
        if read_some(stream, keep).await? == 0 {
            return Err(if bytes.is_empty() { End::Silent } else { End::Left });
        }
    }
    Ok(())
}

/// Reads once, by way of the stack, which lends its room only for the moment in which there is something to read.
async fn read_some<S: AsyncRead + Unpin>(stream: &mut S, mut keep: impl FnMut(&[u8])) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        let mut scratch = [MaybeUninit::uninit(); READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut scratch);
        Pin::new(&mut *stream).poll_read(cx, &mut buf).map_ok(|()| {
            keep(buf.filled());
            buf.filled().len()
        })
    })
    .await
}

/// Says the last words, then reads and forgets until the peer closes: with unread bytes the kernel would reset the connection
/// and the peer could lose what was said.
async fn farewell<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, last_words: &[u8]) {
    let saying = async {
        stream.write_all(last_words).await?;
        stream.shutdown().await?;
        while read_some(stream, |_| {}).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it was heard changes nothing.
    let _ = tokio::time::timeout(FAREWELL, saying).await;
}

/// Counts what became of a connection, and logs it once per cause and second.
pub(super) fn report<D>(acceptor: &Acceptor<D>, peer: SocketAddr, end: &End) {
    let listener = acceptor.listener.config.name.as_str();
    if let Some(counter) = counter(acceptor, end) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(group) = group(acceptor, end) {
        acceptor.refusals.count(group);
    }
    let Some((cause, what)) = cause(acceptor, end) else {
        tracing::debug!(event = "close", listener, %peer, %end, "connection ended before its CONNECT");
        return;
    };
    let Some(left_out) = permit(cause) else {
        return;
    };
    match end {
        End::Refused(refusal) => tracing::warn!(
            event = "refused", listener, %peer, client_id = refusal.client_id.as_deref(),
            user_name = refusal.user_name.as_deref(), method = Some(refusal.method).filter(|method| !method.is_empty()),
            reason = refusal.reason.name(), left_out,
            "connection refused: {}{}", refusal.what, remedy(acceptor, refusal)
        ),
        End::Network(error) | End::Tls(error) => {
            tracing::warn!(event = "refused", listener, %peer, %error, left_out, "{what}");
        }
        End::Upgrade(why) => {
            tracing::warn!(event = "refused", listener, %peer, %why, left_out, "{what}")
        }
        _ => tracing::warn!(event = "refused", listener, %peer, left_out, "{what}"),
    }
}

/// In which group a refusal is counted for the whole node; `None` where the peer simply went away.
fn group<D>(acceptor: &Acceptor<D>, end: &End) -> Option<RefusalGroup> {
    Some(match end {
        End::Silent | End::Left | End::Network(_) => return None,
        End::TimedOut(_) => RefusalGroup::TimedOut,
        End::Tls(_) => RefusalGroup::Tls,
        End::Foreign(_) if acceptor.tls.is_some() => RefusalGroup::Tls,
        End::Foreign(_) => RefusalGroup::Malformed,
        End::Upgrade(upgrade::Refusal::TooFast) | End::TooFast(_) => RefusalGroup::Rate,
        End::Banned => RefusalGroup::Banned,
        End::Upgrade(_) => RefusalGroup::Upgrade,
        End::Proxy(_) => RefusalGroup::Proxy,
        End::Refused(refusal) if is_malformed(refusal.reason) => RefusalGroup::Malformed,
        End::Refused(refusal) => match refusal.reason {
            ReasonCode::NotAuthorized | ReasonCode::BadUserNameOrPassword | ReasonCode::BadAuthenticationMethod => {
                RefusalGroup::Auth
            }
            ReasonCode::QuotaExceeded | ReasonCode::ServerBusy => RefusalGroup::Limit,
            ReasonCode::ConnectionRateExceeded => RefusalGroup::Rate,
            _ => RefusalGroup::Other,
        },
    })
}

fn counter<'a, D>(acceptor: &'a Acceptor<D>, end: &End) -> Option<&'a AtomicU64> {
    let counts = &acceptor.listener.counts;
    Some(match end {
        End::Silent => &counts.silent,
        End::TimedOut(_) => &counts.timed_out,
        End::Tls(_) => &counts.tls_failed,
        End::Foreign(_) if acceptor.tls.is_some() => &counts.tls_failed,
        End::Foreign(_) => &counts.malformed,
        End::Upgrade(_) => &counts.upgrade_refused,
        End::Refused(refusal) if is_malformed(refusal.reason) => &counts.malformed,
        End::Refused(_) | End::TooFast(_) | End::Banned => &counts.refused,
        End::Proxy(_) => &counts.malformed,
        End::Left | End::Network(_) => return None,
    })
}

fn is_malformed(reason: ReasonCode) -> bool {
    matches!(reason, ReasonCode::MalformedPacket | ReasonCode::ProtocolError | ReasonCode::PacketTooLarge)
}

/// Under which cause an end is logged, and how it is said; `None` for what is no more than a probe or a lost connection.
fn cause<D>(acceptor: &Acceptor<D>, end: &End) -> Option<(Cause, &'static str)> {
    let config = &acceptor.listener.config;
    let is_tls = acceptor.tls.is_some();
    Some(match end {
        End::Silent | End::Left => return None,
        End::Network(error) if is_lost(error) => return None,
        End::Network(_) => (Cause::Network, "connection failed"),
        End::TimedOut(what) => (Cause::TimedOut, what),
        End::Tls(error) if is_lost(error) => return None,
        End::Tls(_) => (Cause::TlsHandshake, "TLS handshake failed"),
        End::Foreign(Foreign::Tls) if !is_tls => (
            Cause::TlsOnPlainPort,
            "a TLS client on a port without TLS: it wants a listener with tls, or must connect without",
        ),
        End::Foreign(Foreign::Mqtt | Foreign::Http) if is_tls => {
            (Cause::PlainOnTlsPort, "a client without TLS on a port with TLS")
        }
        End::Foreign(Foreign::Http) => {
            (Cause::HttpOnMqttPort, "an HTTP or WebSocket client on an MQTT port: it was told the WebSocket address")
        }
        End::Foreign(Foreign::Mqtt) if config.protocol == Protocol::Ws => {
            (Cause::NotMqtt, "a plain MQTT client on a WebSocket port")
        }
        End::Foreign(_) => (Cause::NotMqtt, "the first bytes are of no protocol spoken here"),
        End::Upgrade(upgrade::Refusal::Origin(_)) => (
            Cause::Origin,
            "WebSocket refused for its Origin: if the page is yours, add the origin to allowed_origins of the [[listener]]",
        ),
        End::Upgrade(upgrade::Refusal::TooFast) | End::TooFast(_) => (Cause::Rate, TOO_FAST),
        End::Banned => (Cause::Banned, BANNED),
        End::Proxy(why) => (Cause::Proxy, why.0),
        End::Upgrade(_) => (Cause::Upgrade, "WebSocket upgrade refused"),
        End::Refused(refusal) => (Cause::Refused(refusal.reason), refusal.what),
    })
}

/// Whether the peer simply went away.
fn is_lost(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::TimedOut
            | io::ErrorKind::UnexpectedEof
    )
}
