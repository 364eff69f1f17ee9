//! Links through a relay in between, which can be cut, frozen and healed; and addresses that are given by name.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;

use super::*;

/// Carries connections from its own port to another one.
struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    target: SocketAddr,
    /// Nothing passes, and nothing is closed.
    is_frozen: AtomicBool,
    /// New connections are closed at once.
    is_cut: AtomicBool,
    passed: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            target,
            is_frozen: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            passed: AtomicUsize::new(0),
            open: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                shared.carry(socket.unwrap());
            }
        });
        Self { address, state }
    }

    fn cut(&self) {
        self.state.is_cut.store(true, Relaxed);
        for socket in self.state.open.lock().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn heal(&self) {
        self.state.is_cut.store(false, Relaxed);
        self.state.is_frozen.store(false, Relaxed);
    }
}

impl State {
    fn carry(self: &Arc<Self>, near: TcpStream) {
        if self.is_cut.load(Relaxed) {
            return;
        }
        let Ok(far) = TcpStream::connect(self.target) else { return };
        for (from, to) in [(&near, &far), (&far, &near)] {
            self.open.lock().push(from.try_clone().unwrap());
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let state = Arc::clone(self);
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65536];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    while state.is_frozen.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    state.passed.fetch_add(count, Relaxed);
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    }
}

/// Two nodes, each of which reaches the other by a relay, whatever the other says of itself.
fn relayed(runtime: &Runtime) -> (Node, Node, Relay, Relay) {
    // Ports that are free now: the addresses have to be known before either node starts.
    // They are of a network that only this function uses, so nobody takes them meanwhile.
    static PAIRS: AtomicUsize = AtomicUsize::new(0);
    let host = 100 + PAIRS.fetch_add(2, Relaxed);
    let free = |host| TcpListener::bind(format!("127.0.7.{host}:0")).unwrap().local_addr().unwrap();
    let binds = [free(host), free(host + 1)];
    let relays = binds.map(Relay::to);
    let start = |own: usize, other: usize| {
        let mut plan = node(own as u128 + 1);
        plan.config.bind = binds[own];
        plan.config.seeds = vec![relays[other].address.to_string()];
        let name = format!("n{}", other + 1);
        plan.config.peer_addresses.insert(name, format!("localhost:{}", relays[other].address.port()));
        // Nobody is there, and nobody needs to ask.
        plan.config.advertise = Some("192.0.2.1:1".to_owned());
        plan.start(runtime)
    };
    let (one, two) = (start(0, 1), start(1, 0));
    both_up(&one, &two);
    let [to_one, to_two] = relays;
    (one, two, to_one, to_two)
}

#[test]
fn an_address_by_name_is_the_one_that_is_dialled() {
    let runtime = runtime();
    let (one, two, to_one, to_two) = relayed(&runtime);
    let before = [&to_one, &to_two].map(|relay| relay.state.passed.load(Relaxed));
    assert!(one.links.send(two.id(), Lane::Bulk, 1, Bytes::from(vec![0; 300_000])));
    two.until("the frame", |seen| matches!(seen, Seen::Frame(..)).then_some(()));
    assert!(to_two.state.passed.load(Relaxed) >= before[1] + 300_000, "it went by the relay");
    assert!(to_one.state.passed.load(Relaxed) < before[0] + 300_000);
}

#[test]
fn a_cut_one_way_takes_the_link_down_both_ways_and_it_heals() {
    let runtime = runtime();
    let (one, two, _to_one, to_two) = relayed(&runtime);
    for _ in 0..3 {
        to_two.cut();
        both_down(&one, &two);
        one.is_quiet(Duration::from_millis(200));
        to_two.heal();
        both_up(&one, &two);
        assert!(two.links.send(one.id(), Lane::Control, 3, Bytes::new()));
        one.until("a frame", |seen| matches!(seen, Seen::Frame(..)).then_some(()));
    }
}

#[test]
fn silence_is_found_out() {
    let runtime = runtime();
    let (one, two, _to_one, to_two) = relayed(&runtime);
    to_two.state.is_frozen.store(true, Relaxed);
    let began = Instant::now();
    both_down(&one, &two);
    assert!(began.elapsed() >= Duration::from_secs(2), "not before it has been silent for a while");
    let error = one.links.peers()[0].last_error.clone();
    assert!(error.is_some(), "{error:?}");
    to_two.heal();
    both_up(&one, &two);
}

#[test]
fn data_connections_are_dialled_again_after_a_cut() {
    let runtime = runtime();
    let (one, two, _to_one, to_two) = relayed(&runtime);
    one.links.want_data(two.id(), 0..2);
    let _before = (one.data_out(0), two.data_in(0));
    to_two.cut();
    both_down(&one, &two);
    to_two.heal();
    both_up(&one, &two);
    for shard in 0..2 {
        // In any order.
        let _ = shard;
        one.until("data out", |seen| matches!(seen, Seen::DataOut(..)).then_some(()));
        two.until("data in", |seen| matches!(seen, Seen::DataIn(..)).then_some(()));
    }
}
