//! A TCP relay on the way from one node to another, which does to the bytes what a bad network does.
//!
//! One [`Relay`] carries all connections that one node makes to one other, in both directions. What it does is a [`Fault`], set by the test at
//! any time and for the connections that are there as well. The tasks of all relays of a cluster run on one thread, of which [`Relays`] is the owner.
//!
//! Nothing here is lost or reordered inside a connection that goes on: it is TCP to both sides. Read first: the tests below.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// What the kernel keeps for a relay of what its node has sent: small, so that a slow link is felt by who sends.
const RECEIVE_BUFFER: usize = 64 * 1024;

/// What a relay holds of one direction of a connection, at most.
const HELD_MAX: usize = 4 * 1024 * 1024;

/// The same where the rate is limited.
const HELD_MAX_SLOW: usize = 16 * 1024;

/// Of each connection's first bytes, so many are kept for who wants to say them again.
const RECORDED_MAX: usize = 4 * 1024;

const DIAL_DEADLINE: Duration = Duration::from_secs(5);

/// What happens on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    #[default]
    Open,
    /// As a cable that is pulled looks for a while: nothing passes, nobody is told, connects hang. What was on its way passes later.
    Cut,
    /// The same for longer than TCP bears it: what comes is thrown away, and connections of that time are reset when the way is open again.
    Swallow,
    /// As if nobody listened: connections are reset, and new ones too.
    Refuse,
}

/// Which bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the node that connected.
    There,
    /// To it. Between nodes that is what is answered, for each sends on connections of its own.
    Back,
}

/// All that a relay does to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fault {
    pub way: Way,
    /// The other direction is open; new connections suffer what the way does all the same.
    pub only: Option<Direction>,
    /// Between the arrival of a byte and its going on.
    pub delay: Duration,
    /// In each direction, of all connections together.
    pub bytes_per_sec: Option<u32>,
}

impl Fault {
    pub fn cut() -> Self {
        Self { way: Way::Cut, ..Self::default() }
    }

    pub fn swallow() -> Self {
        Self { way: Way::Swallow, ..Self::default() }
    }

    pub fn refuse() -> Self {
        Self { way: Way::Refuse, ..Self::default() }
    }

    pub fn delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    pub fn throttle(bytes_per_sec: u32) -> Self {
        Self { bytes_per_sec: Some(bytes_per_sec), ..Self::default() }
    }

    /// Nothing is done to what goes there.
    pub fn back(self) -> Self {
        Self { only: Some(Direction::Back), ..self }
    }

    /// Nothing is done to what comes back.
    pub fn there(self) -> Self {
        Self { only: Some(Direction::There), ..self }
    }

    /// What becomes of the bytes of one direction.
    fn of(self, direction: Direction) -> Self {
        if self.only.is_none_or(|only| only == direction) { self } else { Self::default() }
    }

    fn passes(&self) -> bool {
        self.way == Way::Open
    }

    /// The largest piece that passes at once: with a rate, what takes a twentieth of a second.
    fn piece(&self) -> usize {
        self.bytes_per_sec.map_or(64 * 1024, |rate| (rate as usize / 20).clamp(256, 64 * 1024))
    }

    fn held_max(&self) -> usize {
        if self.bytes_per_sec.is_some() { HELD_MAX_SLOW } else { HELD_MAX }
    }
}

/// A fault and how often connections were reset until now.
#[derive(Debug, Clone, Copy, Default)]
struct Order {
    fault: Fault,
    resets: u64,
}

/// The thread that carries the bytes.
pub struct Relays {
    runtime: Option<Runtime>,
}

impl Default for Relays {
    fn default() -> Self {
        Self::new()
    }
}

impl Relays {
    /// # Panics
    /// When no thread can be started.
    pub fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("relays").enable_all().build();
        Self { runtime: Some(runtime.expect("a thread")) }
    }

    /// A relay to an address where somebody listens sooner or later.
    ///
    /// # Panics
    /// When there is no free port.
    pub fn relay(&self, target: SocketAddr) -> Relay {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(RECEIVE_BUFFER).expect("an option of every socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        socket.listen(1_024).expect("a socket that is bound");
        socket.set_nonblocking(true).expect("an option of every socket");
        let runtime = self.runtime.as_ref().expect("only a drop takes it");
        let _inside = runtime.enter();
        let listener = TcpListener::from_std(socket.into()).expect("a runtime with I/O");
        let address = listener.local_addr().expect("the address of a socket");
        let (orders, watched) = watch::channel(Order::default());
        let line = Arc::new(Line::to(target));
        runtime.spawn(serve(listener, Arc::clone(&line), watched));
        Relay { address, orders, line }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What all connections of a relay share.
struct Line {
    target: SocketAddr,
    passed: AtomicU64,
    made: AtomicU64,
    /// From when on each direction is free, where the rate is limited.
    free: [Mutex<Option<Instant>>; 2],
    /// The first bytes that each connection carried there.
    recorded: Mutex<Vec<Vec<u8>>>,
}

impl Line {
    fn to(target: SocketAddr) -> Self {
        let (passed, made) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { target, passed, made, free: Default::default(), recorded: Mutex::default() }
    }

    /// Keeps the first bytes of a connection. Returns whether more are wanted.
    fn record(&self, connection: usize, bytes: &[u8]) -> bool {
        let mut recorded = self.recorded.lock().expect("no holder panics");
        if recorded.len() <= connection {
            recorded.resize(connection + 1, Vec::new());
        }
        let kept = &mut recorded[connection];
        kept.extend_from_slice(&bytes[..bytes.len().min(RECORDED_MAX - kept.len())]);
        kept.len() < RECORDED_MAX
    }

    /// When a piece of this size may pass; the line is taken until its end.
    fn slot(&self, direction: Direction, size: usize, rate: u32) -> Instant {
        let mut free = self.free[direction as usize].lock().expect("no holder panics");
        let now = Instant::now();
        let start = free.map_or(now, |free| free.max(now));
        *free = Some(start + Duration::from_secs_f64(size as f64 / f64::from(rate.max(1))));
        start
    }
}

/// The way from one node to another.
pub struct Relay {
    address: SocketAddr,
    orders: watch::Sender<Order>,
    line: Arc<Line>,
}

impl Relay {
    /// Where the node connects to instead of the other node.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on. Connections that lost something are reset, and all of them when the way is refused.
    pub fn set(&self, fault: Fault) {
        self.orders.send_modify(|order| {
            let ends = fault.way == Way::Refuse || (order.fault.way == Way::Swallow && fault.way != Way::Swallow);
            order.resets += u64::from(ends);
            order.fault = fault;
        });
    }

    pub fn fault(&self) -> Fault {
        self.orders.borrow().fault
    }

    /// Resets the connections of this moment.
    pub fn reset(&self) {
        self.orders.send_modify(|order| order.resets += 1);
    }

    /// Bytes that passed, both directions together.
    pub fn passed(&self) -> u64 {
        self.line.passed.load(Ordering::Relaxed)
    }

    /// What each connection said there first: 4 KiB at the most.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.line.recorded.lock().expect("no holder panics").clone()
    }

    /// Connections that were made through to the other node.
    pub fn connections(&self) -> u64 {
        self.line.made.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, line: Arc<Line>, orders: watch::Receiver<Order>) {
    loop {
        match listener.accept().await {
            Ok((near, _)) => drop(tokio::spawn(carry(near, Arc::clone(&line), orders.clone()))),
            // Out of descriptors, for example.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// One connection.
async fn carry(near: TcpStream, line: Arc<Line>, mut orders: watch::Receiver<Order>) {
    let began = orders.borrow().resets;
    let decided = |order: &Order| matches!(order.fault.way, Way::Open | Way::Refuse) || order.resets != began;
    let passes = match orders.wait_for(decided).await {
        Ok(order) => order.fault.passes() && order.resets == began,
        Err(_) => false,
    };
    if !passes {
        return reset(near);
    }
    let Ok(Ok(far)) = timeout(DIAL_DEADLINE, TcpStream::connect(line.target)).await else {
        return reset(near);
    };
    let number = usize::try_from(line.made.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
    let (mut near, mut far) = (near, far);
    if near.set_nodelay(true).and(far.set_nodelay(true)).is_err()
        || !both_ways(&mut near, &mut far, &line, number, orders, began).await
    {
        reset(near);
        reset(far);
    }
}

/// Carries until both sides have closed; false when the connection is to be reset.
async fn both_ways(
    near: &mut TcpStream,
    far: &mut TcpStream,
    line: &Line,
    number: usize,
    orders: watch::Receiver<Order>,
    began: u64,
) -> bool {
    let (from_near, to_near) = near.split();
    let (from_far, to_far) = far.split();
    let there = Pump::new(from_near, to_far, line, Direction::There).recording(number).run(orders.clone());
    let back = Pump::new(from_far, to_near, line, Direction::Back).run(orders.clone());
    let mut orders = orders;
    tokio::select! {
        done = async { tokio::try_join!(there, back) } => done.is_ok(),
        _ = orders.wait_for(|order| order.resets != began) => false,
    }
}

fn reset(stream: TcpStream) {
    // Best effort: where the option cannot be set, the close is an ordinary one.
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// One direction of one connection.
struct Pump<'l, R, W> {
    from: R,
    to: W,
    line: &'l Line,
    direction: Direction,
    /// Pieces with the time from which on they may pass.
    held: VecDeque<(Instant, Vec<u8>)>,
    held_bytes: usize,
    ended: bool,
    /// The number of the connection, while its bytes are recorded.
    records: Option<usize>,
}

impl<'l, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Pump<'l, R, W> {
    fn new(from: R, to: W, line: &'l Line, direction: Direction) -> Self {
        Self { from, to, line, direction, held: VecDeque::new(), held_bytes: 0, ended: false, records: None }
    }

    /// Its first bytes are recorded, if it is not one of very many.
    fn recording(mut self, number: usize) -> Self {
        self.records = Some(number).filter(|number| *number < 1_000);
        self
    }

    /// Until the sender has closed and everything has passed, the close too.
    async fn run(mut self, mut orders: watch::Receiver<Order>) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let fault = orders.borrow_and_update().fault.of(self.direction);
            if self.ended && self.held.is_empty() && fault.passes() {
                return self.to.shutdown().await;
            }
            let reads = !self.ended && fault.way != Way::Cut && self.held_bytes < fault.held_max();
            let due = self.held.front().map(|(due, _)| *due).filter(|_| fault.passes());
            tokio::select! {
                changed = orders.changed() => changed.map_err(io::Error::other)?,
                read = self.from.read(&mut buffer[..fault.piece()]), if reads => self.arrived(&buffer[..read?], fault),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.pass(fault).await?,
            }
        }
    }

    fn arrived(&mut self, bytes: &[u8], fault: Fault) {
        if bytes.is_empty() {
            // Whoever closes into a cut way is not heard; the connection is reset later.
            self.ended = true;
        } else if fault.way != Way::Swallow {
            self.held_bytes += bytes.len();
            self.held.push_back((Instant::now() + fault.delay, bytes.to_vec()));
        }
    }

    async fn pass(&mut self, fault: Fault) -> io::Result<()> {
        let Some((_, piece)) = self.held.pop_front() else { return Ok(()) };
        self.held_bytes -= piece.len();
        if let Some(rate) = fault.bytes_per_sec {
            sleep_until(self.line.slot(self.direction, piece.len(), rate)).await;
        }
        self.records = self.records.filter(|number| self.line.record(*number, &piece));
        self.to.write_all(&piece).await?;
        self.line.passed.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::{Fault, Relay, Relays};

    const SOON: Duration = Duration::from_secs(5);
    const NEVER: Duration = Duration::from_millis(150);

    struct Scene {
        relay: Relay,
        server: TcpListener,
        _relays: Relays,
    }

    impl Scene {
        fn new() -> Self {
            let relays = Relays::new();
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let relay = relays.relay(server.local_addr().unwrap());
            Self { relay, server, _relays: relays }
        }

        fn connect(&self) -> TcpStream {
            TcpStream::connect_timeout(&self.relay.address(), SOON).unwrap()
        }

        fn pair(&self) -> (TcpStream, TcpStream) {
            let client = self.connect();
            (client, self.server.accept().unwrap().0)
        }
    }

    /// What comes within a time; `None`: nothing. An end or a reset is an empty text.
    fn read(stream: &mut TcpStream, patience: Duration) -> Option<String> {
        let mut buffer = [0; 1_000];
        stream.set_read_timeout(Some(patience)).unwrap();
        match stream.read(&mut buffer) {
            Ok(count) => Some(String::from_utf8_lossy(&buffer[..count]).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(String::new()),
            Err(_) => None,
        }
    }

    #[test]
    fn bytes_and_ends_pass_in_both_directions() {
        let scene = Scene::new();
        let (mut client, mut server) = scene.pair();
        client.write_all(b"there").unwrap();
        assert_eq!(read(&mut server, SOON).as_deref(), Some("there"));
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read(&mut server, SOON).as_deref(), Some(""));
        server.write_all(b"back").unwrap();
        assert_eq!(read(&mut client, SOON).as_deref(), Some("back"));
        drop(server);
        assert_eq!(read(&mut client, SOON).as_deref(), Some(""));
        assert_eq!((scene.relay.passed(), scene.relay.connections()), (9, 1));
        assert_eq!(scene.relay.recorded(), [b"there"]);
    }

    #[test]
    fn a_cut_holds_back_bytes_ends_and_connects_until_it_is_healed() {
        let scene = Scene::new();
        let (mut client, mut server) = scene.pair();
        scene.relay.set(Fault::cut());
        client.write_all(b"late").unwrap();
        assert_eq!(read(&mut server, NEVER), None);
        drop(client);
        let mut second = scene.connect();
        second.write_all(b"later").unwrap();
        assert_eq!(read(&mut server, NEVER), None);
        scene.relay.set(Fault::default());
        assert_eq!(read(&mut server, SOON).as_deref(), Some("late"));
        assert_eq!(read(&mut server, SOON).as_deref(), Some(""));
        let (mut server, _) = scene.server.accept().unwrap();
        assert_eq!(read(&mut server, SOON).as_deref(), Some("later"));
    }

    #[test]
    fn what_is_swallowed_is_gone_and_the_connection_is_reset_at_the_end() {
        let scene = Scene::new();
        let (mut client, mut server) = scene.pair();
        scene.relay.set(Fault::swallow());
        client.write_all(&vec![b'x'; 10_000_000]).unwrap();
        assert_eq!(read(&mut server, NEVER), None);
        scene.relay.set(Fault::default());
        assert_eq!(read(&mut server, SOON).as_deref(), Some(""));
        assert_eq!(read(&mut client, SOON).as_deref(), Some(""));
        let (mut client, mut server) = scene.pair();
        client.write_all(b"new").unwrap();
        assert_eq!(read(&mut server, SOON).as_deref(), Some("new"));
    }

    #[test]
    fn a_refusing_relay_resets_what_is_there_and_what_comes() {
        let scene = Scene::new();
        let (mut client, mut server) = scene.pair();
        scene.relay.set(Fault::refuse());
        assert_eq!(read(&mut client, SOON).as_deref(), Some(""));
        assert_eq!(read(&mut server, SOON).as_deref(), Some(""));
        assert_eq!(read(&mut scene.connect(), SOON).as_deref(), Some(""));
    }

    #[test]
    fn nobody_behind_the_relay_is_like_nobody_there() {
        let relays = Relays::new();
        let nobody = super::super::Port::reserve();
        let relay = relays.relay(nobody.address());
        let mut client = TcpStream::connect(relay.address()).unwrap();
        assert_eq!(read(&mut client, SOON).as_deref(), Some(""));
        assert_eq!(relay.connections(), 0);
    }

    #[test]
    fn a_delay_moves_bytes_and_does_not_make_them_fewer() {
        let scene = Scene::new();
        let (mut client, mut server) = scene.pair();
        scene.relay.set(Fault::delay(Duration::from_millis(200)));
        let began = Instant::now();
        let sender = std::thread::spawn(move || {
            client.write_all(&vec![b'x'; 1_000_000]).unwrap();
            client
        });
        let mut all = vec![0; 1_000_000];
        server.set_read_timeout(Some(SOON)).unwrap();
        server.read_exact(&mut all[..1]).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(200));
        server.read_exact(&mut all[1..]).unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "a delay is not a rate");
        drop(sender.join().unwrap());
    }

    #[test]
    fn a_fault_of_one_direction_leaves_the_other_open() {
        let scene = Scene::new();
        let (mut client, mut server) = scene.pair();
        scene.relay.set(Fault::cut().back());
        client.write_all(b"there").unwrap();
        assert_eq!(read(&mut server, SOON).as_deref(), Some("there"));
        server.write_all(b"back").unwrap();
        assert_eq!(read(&mut client, NEVER), None);
        scene.relay.set(Fault::cut().there());
        assert_eq!(read(&mut client, SOON).as_deref(), Some("back"));
        client.write_all(b"late").unwrap();
        assert_eq!(read(&mut server, NEVER), None);
        scene.relay.set(Fault::default());
        assert_eq!(read(&mut server, SOON).as_deref(), Some("late"));
    }

    #[test]
    fn a_rate_is_shared_by_the_connections_and_felt_by_who_sends() {
        let scene = Scene::new();
        let pairs = [scene.pair(), scene.pair()];
        scene.relay.set(Fault::throttle(500_000));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for (mut client, mut server) in pairs {
                scope.spawn(move || client.write_all(&[b'x'; 250_000]).unwrap());
                scope.spawn(move || {
                    server.set_read_timeout(Some(SOON)).unwrap();
                    server.read_exact(&mut [0; 250_000]).unwrap();
                });
            }
        });
        let took = began.elapsed();
        assert!((700..3_000).contains(&took.as_millis()), "half a megabyte took {took:?}");
    }
}
