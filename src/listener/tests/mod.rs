//! Listeners with real sockets and a dispatch that only collects.

mod admission;
mod moves;
mod tcp;
mod tls;
mod websocket;

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::{Acceptor, accept_loop, tcp as sockets};
use crate::access::Access;
use crate::config::{Listener, Mqtt, Protocol};
use crate::listener::tls::TlsReload;
use crate::mqtt::{Connect, Properties, ProtocolVersion};
use crate::shard::clock::Clock;
use crate::shard::greeted::{Dispatch, Greeted, ListenerState, WebSocketAddress};

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Collect(mpsc::UnboundedSender<Greeted>);

impl Dispatch for Collect {
    fn submit(&self, greeted: Greeted) {
        let _ = self.0.send(greeted);
    }
}

/// A listener that runs on the current `LocalSet`.
struct Rig {
    address: SocketAddr,
    state: Arc<ListenerState>,
    tls: Option<Arc<TlsReload>>,
    greeted: mpsc::UnboundedReceiver<Greeted>,
    shutdown: watch::Sender<bool>,
    accepting: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Rig {
    fn start(protocol: Protocol, change: impl FnOnce(&mut Listener)) -> Self {
        Self::start_with(protocol, None, change)
    }

    /// A listener with TLS whose tickets are made with this key.
    fn with_ticket_key(files: &tls::Files, key: &[u8; 32]) -> Self {
        let config = |config: &mut Listener| config.tls = Some(files.tls(crate::config::Verify::None));
        Self::start_all(Protocol::Mqtt, (None, Some(key)), config)
    }

    fn start_with(protocol: Protocol, password_file: Option<&Path>, change: impl FnOnce(&mut Listener)) -> Self {
        Self::start_all(protocol, (password_file, None), change)
    }

    fn start_all(
        protocol: Protocol,
        (password_file, ticket_key): (Option<&Path>, Option<&[u8; 32]>),
        change: impl FnOnce(&mut Listener),
    ) -> Self {
        let mut config = Listener::new("test", protocol, ([127, 0, 0, 1], 0).into());
        config.allow_anonymous = Some(password_file.is_none());
        change(&mut config);
        let socket = sockets::bind(config.bind).unwrap();
        let address = socket.local_addr().unwrap();
        let tls = config.tls.as_ref().map(|files| TlsReload::with_ticket_key(&config.name, files, ticket_key).unwrap());
        let websocket = WebSocketAddress { port: 8083, path: "/mqtt".to_owned(), tls: false };
        let state = Arc::new(ListenerState::new(config, address).with_websocket(Some(websocket)));
        let (sender, greeted) = mpsc::unbounded_channel();
        let (shutdown, stop) = watch::channel(false);
        let acceptor = Acceptor {
            listener: Arc::clone(&state),
            tls: tls.clone(),
            mqtt: Arc::new(Mqtt::default()),
            access: Arc::new(Access::new(password_file).unwrap()),
            refusals: Arc::default(),
            dispatch: Collect(sender),
            clock: Clock::start_at(0),
        };
        let accepting = tokio::task::spawn_local(accept_loop(acceptor, socket, stop));
        Self { address, state, tls, greeted, shutdown, accepting }
    }

    async fn connect(&self) -> TcpStream {
        let peer = TcpStream::connect(self.address).await.unwrap();
        peer.set_nodelay(true).unwrap();
        peer
    }

    /// The next connection that was handed over, attached.
    async fn greeted(&mut self) -> Greeted {
        let mut greeted = self.greeted.recv().await.unwrap();
        greeted.stream.attach().unwrap();
        greeted
    }

    /// Waits until a counter has this value.
    async fn counted(&self, counter: impl Fn(&ListenerState) -> &AtomicU64, expected: u64) {
        until(|| counter(&self.state).load(Ordering::Relaxed) == expected).await;
    }
}

/// Runs a test on a current-thread runtime with a `LocalSet`, as a shard does, within [`PATIENCE`].
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(PATIENCE, test).await.expect("the test waited for something that did not happen");
    });
}

/// Waits, turn by turn, for what another task or thread does; the test's own deadline ends it.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn connect_packet(version: ProtocolVersion, client_id: &str) -> Vec<u8> {
    let connect = Connect {
        version,
        clean_start: true,
        keep_alive_secs: 60,
        client_id,
        properties: Properties::EMPTY,
        will: None,
        user_name: None,
        password: None,
    };
    let mut packet = Vec::new();
    connect.encode(version, &mut packet);
    packet
}

/// All that comes until the other side closes.
async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is a close as well.
    let _ = stream.read_to_end(&mut bytes).await;
    bytes
}

async fn read_exactly(stream: &mut (impl AsyncRead + Unpin), len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Sends in the pieces given, each in its own segment as far as the kernel allows.
async fn write_pieces(stream: &mut TcpStream, pieces: impl Iterator<Item = &[u8]>) {
    for piece in pieces {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
}
