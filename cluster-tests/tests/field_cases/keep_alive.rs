//! Case 32: the edges of Keep Alive, over each transport, with a Will that tells the end.

use std::thread;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{PINGREQ, Publish, Version, Will};

use crate::over;

/// How long the ones that must stay are watched.
const WATCHED: Duration = Duration::from_millis(5_500);

#[test]
fn field_case_32_keep_alive_edges_over_tcp() {
    edges(&over(Transport::Tcp));
}

#[test]
fn field_case_32_keep_alive_edges_over_tls() {
    edges(&over(Transport::Tls));
}

#[test]
fn field_case_32_keep_alive_edges_over_websocket() {
    edges(&over(Transport::WebSocket));
}

fn edges(on: &Stage) {
    let mut watcher = on.v5("watcher");
    watcher.subscribe(on.topic("w/+"), 1);
    thread::scope(|scope| {
        scope.spawn(|| ends(on, "silent", |_, _| {}));
        scope.spawn(|| ends(on, "receiving", |client, feeder| feed(on, client, feeder)));
        scope.spawn(|| ends(on, "trickling", |client, _| client.send_unless_closed(b"x")));
        scope.spawn(|| {
            stays(on, "publishing", 2, 1_000, |client| client.send_publish(&Publish::new(on.topic("t"), "x")))
        });
        scope.spawn(|| stays(on, "pinging", 2, 2_500, |client| client.send(&PINGREQ)));
        scope.spawn(|| stays(on, "without", 0, 10_000, |_| {}));
        scope.spawn(|| stays(on, "patient", 65_535, 10_000, |_| {}));
    });
    let mut wills: Vec<_> = (0..3).map(|_| watcher.take().text()).collect();
    wills.sort();
    assert_eq!(wills, ["receiving", "silent", "trickling"]);
    watcher.publish(on.topic("w/marker"), "marker", 1);
    assert!(watcher.take_until("marker").is_empty());
}

fn connect(on: &Stage, name: &str, keep_alive: u16) -> Client {
    let will = Will::new(on.topic(&format!("w/{name}")), name).qos(1);
    on.connect(&on.hello(Version::V311, name).keep_alive(keep_alive).will(will)).0
}

/// Does `act` every half second; the server must close between 3.0 and 4.5 s after the CONNECT.
fn ends(on: &Stage, name: &str, mut act: impl FnMut(&mut Client, &mut Client)) {
    let start = Instant::now();
    let mut client = connect(on, name, 2);
    let mut feeder = on.v5(&format!("{name}feeder"));
    if name == "trickling" {
        // The head of a long PUBLISH, of which a byte comes now and then.
        client.send(&[0x30, 0xFF, 0x7F, 0, 1, b't']);
    }
    let mut next = Instant::now();
    loop {
        next += Duration::from_millis(500);
        act(&mut client, &mut feeder);
        while let Some(event) = client.event(next) {
            if event == Event::Closed {
                let after = start.elapsed();
                assert!((3_000..4_700).contains(&after.as_millis()), "{name} was closed after {after:?}");
                return;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(8), "{name} was not closed");
    }
}

/// Sends the client something that it need not answer.
fn feed(on: &Stage, client: &mut Client, feeder: &mut Client) {
    let topic = on.topic(&format!("feed/{}", client.client_id));
    // The first time it has to subscribe, which is the last packet it sends.
    if client.packet_id() == 1 {
        client.subscribe(&topic, 0);
    }
    feeder.publish(&topic, "x", 0);
}

/// Does `act` at each interval; the connection must stay.
fn stays(on: &Stage, name: &str, keep_alive: u16, interval_ms: u64, mut act: impl FnMut(&mut Client)) {
    let mut client = connect(on, name, keep_alive);
    let end = Instant::now() + WATCHED;
    let mut next = Instant::now();
    while Instant::now() < end {
        next = (next + Duration::from_millis(interval_ms)).min(end);
        while let Some(event) = client.event(next) {
            assert_ne!(event, Event::Closed, "{name} was closed");
        }
        act(&mut client);
    }
    client.fence();
    client.disconnect();
}
