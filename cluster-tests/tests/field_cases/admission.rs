//! Case 39 on one node: clients that come back all at once, of which only so many may come in a second; and a node that is full.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::{PATIENCE, Transport};
use holdfast_cluster_tests::wire::Version;

use crate::start;

/// The answer of the admin port to a GET, head and body.
fn get(broker: &Broker, path: &str) -> String {
    let mut socket = TcpStream::connect(broker.admin()).expect("the admin port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

fn metric(broker: &Broker, series: &str) -> f64 {
    let answer = get(broker, "/metrics");
    let line =
        answer.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series} in {answer}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// The first bytes that the broker answers a CONNECT with; empty where it just closes.
fn knock(on: &Stage, client_id: &str) -> (TcpStream, Vec<u8>) {
    let mut socket = TcpStream::connect(on.broker().address(Transport::Tcp)).expect("a listener");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answer = vec![0; 64];
    // Whoever is refused may be reset in the middle.
    let sent = socket.write_all(&on.hello(Version::V5, client_id).bytes());
    let read = sent.and_then(|()| socket.read(&mut answer)).unwrap_or(0);
    answer.truncate(read);
    (socket, answer)
}

#[test]
fn field_case_39_a_reconnect_storm_is_let_in_at_the_rate_and_nobody_is_starved() {
    const CLIENTS: usize = 120;
    const RATE: usize = 20;
    let listener = format!("max_conn_rate = \"{RATE}/s\"");
    let broker = start(Setup::empty().listener("tcp", "mqtt", &listener));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut bystander = on.v5("bystander");
    let before = broker.resident_bytes();
    let (began, refused) = (Instant::now(), AtomicUsize::new(0));
    let (all_in, slowest_ping) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| (number, &on, &refused))
            .map(|(number, on, refused)| {
                scope.spawn(move || {
                    loop {
                        let (socket, answer) = knock(on, &format!("c{number}"));
                        match answer.as_slice() {
                            [0x20, _, _, 0, ..] => return (socket, began.elapsed()),
                            [] | [0x20, _, 0, 0x9F, ..] => refused.fetch_add(1, Ordering::Relaxed),
                            other => panic!("{other:?}"),
                        };
                        // How fast devices come again, not how long something takes.
                        thread::sleep(Duration::from_millis(100));
                    }
                })
            })
            .collect();
        let mut slowest = Duration::ZERO;
        while clients.iter().any(|client| !client.is_finished()) {
            let start = Instant::now();
            bystander.expect_quiet();
            slowest = slowest.max(start.elapsed());
        }
        let clients: Vec<_> =
            clients.into_iter().map(|client| client.join().expect("a client that comes in")).collect();
        (clients.iter().map(|(_, at)| *at).max().expect("clients"), slowest)
    });
    // A bucket of one second's worth, of which the bystander has one, and then so many in a second.
    let least = Duration::from_secs_f64((CLIENTS + 1 - RATE) as f64 / RATE as f64 - 0.5);
    let most = Duration::from_secs((CLIENTS / RATE + 20) as u64);
    assert!(all_in >= least && all_in <= most, "all were in after {all_in:?}, not within {least:?} to {most:?}");
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused > CLIENTS, "{refused} were refused");
    assert!(slowest_ping < Duration::from_secs(1), "a bystander waited {slowest_ping:?}");
    assert!(broker.resident_bytes().saturating_sub(before) < 32 << 20);
    let counted = metric(&broker, "holdfast_rate_limited_total{node=\"holdfast\",kind=\"connections_listener\"}");
    assert!(counted >= refused as f64, "{counted} were counted, and {refused} refused");
    let lines = broker.log().since(0).iter().filter(|line| line.contains("\"refused\"")).count();
    assert!(lines <= 2 * (all_in.as_secs() as usize + 2), "{lines} lines of {refused} refusals");
}

#[test]
fn a_node_that_is_full_says_so_until_somebody_leaves() {
    let broker = start(Setup::new().section("[limits]\nmax_connections = 2"));
    let on = Stage::new(&broker, Transport::Tcp);
    let _one = on.v5("one");
    let deadline = Instant::now() + PATIENCE;
    while !get(&broker, "/health/ready").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "it is not ready");
    }
    let two = Stage::new(&broker, Transport::WebSocket).v5("two");
    let ready = get(&broker, "/health/ready");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("2 of 2"), "{ready}");
    let (_, answer) = knock(&on, "three");
    assert_eq!(answer[2..4], [0, 0x97]);
    two.disconnect();
    let deadline = Instant::now() + PATIENCE;
    while !get(&broker, "/health/ready").starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "it stays full");
    }
    on.v5("three");
}

#[test]
fn a_node_behind_a_proxy_shows_and_logs_the_address_that_the_proxy_says() {
    let listener = "proxy_protocol = \"auto\"\ntrusted_proxies = [\"127.0.0.1\"]";
    let broker = start(Setup::empty().listener("tcp", "mqtt", listener));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut socket = TcpStream::connect(broker.address(Transport::Tcp)).expect("a listener");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let header = b"PROXY TCP4 203.0.113.7 10.0.0.1 4660 1883\r\n";
    socket.write_all(&[&header[..], &on.hello(Version::V5, "c").bytes()].concat()).expect("a connection");
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).expect("a CONNACK");
    assert_eq!((answer[0], answer[3]), (0x20, 0));
    let clients = get(&broker, "/api/v1/clients");
    assert!(clients.contains("203.0.113.7:4660"), "{clients}");
    let connected = broker.log().wait(0, PATIENCE, |line| line.contains("203.0.113.7:4660"));
    assert!(connected.is_some(), "{}", broker.log().text());
}
