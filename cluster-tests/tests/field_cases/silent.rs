//! Case 38: connections that say nothing are closed in time, and nobody else is.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::{Socket, Transport, read_some, tcp, tls};
use holdfast_cluster_tests::websocket::{Upgrade, WebSocket};
use holdfast_cluster_tests::wire::Version;

use crate::start;

const LIMIT: Duration = Duration::from_secs(1);

/// A connection that will not become one, since when, and what it still dribbles.
struct Silent {
    what: &'static str,
    socket: Box<dyn Socket>,
    since: Instant,
    dribble: Vec<u8>,
}

impl Silent {
    fn new(what: &'static str, socket: impl Socket + 'static) -> Self {
        Self { what, socket: Box::new(socket), since: Instant::now(), dribble: Vec::new() }
    }
}

fn quiet_connections(on: &Stage) -> Vec<Silent> {
    let broker = on.broker();
    let plain = || tcp(broker.address(Transport::Tcp)).expect("the listener accepts");
    let on_tls_port = || tcp(broker.address(Transport::Tls)).expect("the listener accepts");
    let mut all = Vec::new();
    all.extend((0..100).map(|_| Silent::new("nothing", plain())));
    all.extend((0..20).map(|_| Silent::new("nothing on the TLS port", on_tls_port())));
    all.extend((0..20).map(|_| {
        let mut socket = on_tls_port();
        // The head of a TLS record that announces 512 bytes.
        let _ = socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3]);
        Silent::new("half a ClientHello", socket)
    }));
    all.extend((0..20).map(|_| {
        let config = broker.client_config().expect("this broker has TLS");
        Silent::new("TLS and nothing", tls(broker.address(Transport::Tls), config).expect("a handshake"))
    }));
    all.extend((0..20).map(|_| {
        let mut socket = tcp(broker.address(Transport::WebSocket)).expect("the listener accepts");
        let _ = socket.write_all(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n");
        Silent::new("half an upgrade", socket)
    }));
    all.extend((0..20).map(|number| {
        let mut silent = Silent::new("a slow CONNECT", plain());
        silent.dribble = on.hello(Version::V5, &format!("slow{number}")).bytes();
        silent
    }));
    all
}

/// Waits for each to be closed; those that dribble send a byte in each round.
fn all_are_closed(mut open: Vec<Silent>) {
    let mut input = Vec::new();
    while !open.is_empty() {
        open.retain_mut(|silent| {
            if !silent.dribble.is_empty() {
                let byte = silent.dribble.remove(0);
                let _ = silent.socket.write_all(&[byte]);
            }
            let look = Instant::now() + Duration::from_millis(1);
            let closed = matches!(read_some(silent.socket.as_mut(), &mut input, look), Ok(0));
            let age = silent.since.elapsed();
            assert!(closed || age < LIMIT + Duration::from_secs(2), "{} is still open after {age:?}", silent.what);
            assert!(!closed || age > LIMIT / 2, "{} was closed after {age:?}", silent.what);
            !closed
        });
    }
}

#[test]
fn field_case_38_silent_connections_are_closed_and_others_are_not() {
    let broker = start(timers().with_tls());
    let on = Stage::new(&broker, Transport::Tls);
    let silent = quiet_connections(&on);
    let mut clients = Vec::new();
    let mut logins = Vec::new();
    for number in 0..20 {
        let start = Instant::now();
        clients.push(on.v5(&format!("c{number}")));
        logins.push(start.elapsed());
    }
    // All but one: the machine may have been away for a moment.
    logins.sort();
    assert!(logins[18] < Duration::from_millis(500), "logins took {logins:?}");
    all_are_closed(silent);
    // Three times the timer is over: those that logged in and are idle stay.
    std::thread::sleep(LIMIT);
    for client in &mut clients {
        client.expect_quiet();
    }
}

#[test]
fn field_case_38_an_upgrade_without_connect_is_closed() {
    let broker = start(timers());
    let socket: TcpStream = tcp(broker.address(Transport::WebSocket)).expect("the listener accepts");
    let mut websocket = WebSocket::open(Box::new(socket), &Upgrade::new("/mqtt").protocol("mqtt")).expect("an upgrade");
    let since = Instant::now();
    let closed = websocket.read_binary(&mut Vec::new(), since + LIMIT + Duration::from_secs(2));
    assert!(matches!(closed, Ok(0)), "{closed:?}");
    assert!(since.elapsed() > LIMIT / 2);
}

/// Listeners `tcp` and `ws` with short timers.
fn timers() -> Setup {
    let lines = "handshake_timeout = \"1s\"\nconnect_timeout = \"1s\"";
    Setup::empty().listener("tcp", "mqtt", lines).listener("ws", "ws", lines).listener_lines(lines)
}
