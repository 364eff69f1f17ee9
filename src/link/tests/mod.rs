//! Several nodes' links in one process, on loopback. [`Node`] is one of them; [`Seen`] is what its receiver was told.

mod carries;
mod relay;
mod secured;
mod strangers;
mod ups;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver as Events, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::*;
use crate::config::Cluster;

/// How long anything may take before a test fails.
const LIMIT: Duration = Duration::from_secs(20);

/// A runtime such as a node has one.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// What a receiver was told.
#[derive(Debug)]
enum Seen {
    Up(Arc<Peer>),
    Down(Arc<Peer>),
    Frame(Arc<Peer>, Lane, u8, Bytes),
    DataOut(NodeId, ShardId, ByteStream),
    DataIn(NodeId, ShardId, ByteStream),
}

struct Told {
    events: Mutex<Sender<Seen>>,
    /// Bytes of bulk frames, which are only counted.
    bulk: AtomicUsize,
    count_bulk: bool,
}

impl Told {
    fn tell(&self, seen: Seen) {
        let _ = self.events.lock().send(seen);
    }
}

impl Receiver for Told {
    fn up(&self, peer: &Arc<Peer>) {
        self.tell(Seen::Up(Arc::clone(peer)));
    }

    fn down(&self, peer: &Arc<Peer>) {
        self.tell(Seen::Down(Arc::clone(peer)));
    }

    fn frame(&self, from: &Arc<Peer>, lane: Lane, kind: u8, payload: Bytes) {
        if self.count_bulk && lane == Lane::Bulk {
            self.bulk.fetch_add(payload.len(), Relaxed);
        } else {
            self.tell(Seen::Frame(Arc::clone(from), lane, kind, payload));
        }
    }

    fn data_out(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream) {
        self.tell(Seen::DataOut(peer.id, shard, stream));
    }

    fn data_in(&self, peer: &Arc<Peer>, shard: ShardId, stream: ByteStream) {
        self.tell(Seen::DataIn(peer.id, shard, stream));
    }
}

/// One node, as far as its links go.
struct Node {
    links: Links,
    told: Arc<Told>,
    events: Events<Seen>,
    _folder: tempfile::TempDir,
}

/// How a node is made; begin with [`node`].
struct Plan {
    id: u128,
    run: u64,
    versions: (u16, u16),
    secret: &'static str,
    count_bulk: bool,
    config: Cluster,
}

/// The cluster of this test: a port that one test has given back may be that of another one's node a moment later.
fn cluster() -> String {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    test[test.len().saturating_sub(60)..].to_owned()
}

/// A node called `n` and its number, with that number as its id and its run.
fn node(id: u128) -> Plan {
    let bind = "127.0.0.1:0".parse().unwrap();
    Plan {
        id,
        run: id as u64,
        versions: (1, 1),
        secret: "the secret of all tests here",
        count_bulk: false,
        config: Cluster::new(cluster(), bind, ""),
    }
}

impl Plan {
    fn seeds(mut self, seeds: &[&str]) -> Self {
        self.config.seeds = seeds.iter().map(|seed| (*seed).to_owned()).collect();
        self
    }

    /// Binds an address of this test alone: a port of it that was bound once can be bound again, whatever other tests do meanwhile.
    fn alone(mut self, host: u8) -> Self {
        self.config.bind.set_ip(std::net::Ipv4Addr::new(127, 0, 7, host).into());
        self
    }

    fn start(mut self, runtime: &Runtime) -> Node {
        let folder = tempfile::tempdir().unwrap();
        self.config.secret_file = folder.path().join("secret");
        std::fs::write(&self.config.secret_file, self.secret).unwrap();
        let (sender, events) = channel();
        let told =
            Arc::new(Told { events: Mutex::new(sender), bulk: AtomicUsize::new(0), count_bulk: self.count_bulk });
        let own = Peer {
            id: NodeId(self.id),
            name: Arc::from(format!("n{}", self.id)),
            run: self.run,
            address: String::new(),
            shards: 2,
            versions: self.versions,
        };
        let receiver = Arc::clone(&told) as Arc<dyn Receiver>;
        let links = Links::start(&self.config, own, receiver, runtime.handle()).unwrap();
        Node { links, told, events, _folder: folder }
    }
}

impl Node {
    fn id(&self) -> NodeId {
        self.links.own().id
    }

    fn address(&self) -> String {
        self.links.local_addr().to_string()
    }

    /// The next thing that the receiver is told.
    fn next(&self) -> Seen {
        self.events.recv_timeout(LIMIT).expect("something happens")
    }

    /// Waits for what the test names; what comes before it is passed over.
    fn until<T>(&self, what: &str, mut pick: impl FnMut(Seen) -> Option<T>) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(seen) => {
                    if let Some(found) = pick(seen) {
                        return found;
                    }
                }
                Err(_) => panic!("n{} waits for {what} in vain: {:#?}", self.id().0, self.links.peers()),
            }
        }
    }

    fn up(&self) -> Arc<Peer> {
        self.until("up", |seen| if let Seen::Up(peer) = seen { Some(peer) } else { None })
    }

    fn down(&self) -> Arc<Peer> {
        self.until("down", |seen| if let Seen::Down(peer) = seen { Some(peer) } else { None })
    }

    fn data_out(&self, shard: ShardId) -> ByteStream {
        self.until("data out", |seen| match seen {
            Seen::DataOut(to, of, stream) if of == shard && to != self.id() => Some(stream),
            _ => None,
        })
    }

    fn data_in(&self, shard: ShardId) -> ByteStream {
        self.until("data in", |seen| match seen {
            Seen::DataIn(_, of, stream) if of == shard => Some(stream),
            _ => None,
        })
    }

    /// That the receiver is told nothing more until all that runs has had time for it.
    fn is_quiet(&self, span: Duration) {
        match self.events.recv_timeout(span) {
            Err(RecvTimeoutError::Timeout) => {}
            other => panic!("n{} was told {other:?}", self.id().0),
        }
    }

    fn stop(&self, runtime: &Runtime) {
        runtime.block_on(self.links.stop());
    }
}

/// Waits until it is so.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two nodes that are linked.
fn pair(runtime: &Runtime) -> (Node, Node) {
    pair_of(runtime, node(2))
}

/// Two nodes that are linked, the second of which is made so.
fn pair_of(runtime: &Runtime, second: Plan) -> (Node, Node) {
    let one = node(1).start(runtime);
    let two = second.seeds(&[&one.address()]).start(runtime);
    both_up(&one, &two);
    (one, two)
}

fn both_up(one: &Node, two: &Node) {
    assert_eq!((one.up().id, two.up().id), (two.id(), one.id()));
}

fn both_down(one: &Node, two: &Node) {
    assert_eq!((one.down().id, two.down().id), (two.id(), one.id()));
}
