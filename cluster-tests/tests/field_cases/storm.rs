//! Case 42: two devices with one client id throw each other out, again and again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Event;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{Packet, Version, reason};

use crate::start;

const DURATION: Duration = Duration::from_secs(3);

/// What one of the two devices saw.
#[derive(Default)]
struct Seen {
    numbers: BTreeSet<String>,
    connects: usize,
    takeovers: usize,
}

/// Connects as `dup`, takes what comes, and connects again as soon as it is thrown out.
fn device(on: &Stage, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let (mut client, _) = on.connect(&on.hello(Version::V5, "dup").durable(3_600));
        seen.connects += 1;
        loop {
            match client.event(Instant::now() + Duration::from_millis(100)) {
                Some(Event::Packet(Packet::Publish(message))) => {
                    seen.numbers.insert(message.text());
                    client.send_unless_closed(&holdfast_cluster_tests::wire::Ack::new(0x40, message.packet_id).bytes());
                }
                Some(Event::Packet(Packet::Disconnect { reason, .. })) => {
                    assert_eq!(reason, reason::SESSION_TAKEN_OVER);
                    seen.takeovers += 1;
                }
                Some(Event::Packet(other)) => panic!("{other:?}"),
                Some(Event::Closed) => break,
                None if stop.load(Ordering::Relaxed) => break,
                None => {}
            }
        }
    }
    seen
}

/// Pings until told to stop; the times from PINGREQ to PINGRESP.
fn bystander(on: &Stage, name: &str, stop: &AtomicBool) -> Vec<Duration> {
    let mut client = on.v5(name);
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        client.expect_quiet();
        times.push(start.elapsed());
        thread::sleep(Duration::from_millis(50));
    }
    times
}

#[test]
fn field_case_42_two_devices_with_one_client_id_harm_nobody_else() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&on.hello(Version::V5, "dup").durable(3_600));
    client.subscribe(&topic, 1);
    client.disconnect();
    let stop = AtomicBool::new(false);
    let (seen, mut times, published) = thread::scope(|scope| {
        let devices: Vec<_> = (0..2).map(|_| scope.spawn(|| device(&on, &stop))).collect();
        let bystanders: Vec<_> = (0..20)
            .map(|number| (number, &on, &stop))
            .map(|(number, on, stop)| scope.spawn(move || bystander(on, &format!("b{number}"), stop)))
            .collect();
        let mut publisher = on.v5("p");
        let end = Instant::now() + DURATION;
        let mut published = BTreeSet::new();
        while Instant::now() < end {
            let number = published.len().to_string();
            publisher.publish(&topic, &number, 1);
            published.insert(number);
            thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let seen: Vec<Seen> = devices.into_iter().map(|device| device.join().expect("a device that works")).collect();
        let times: Vec<_> =
            bystanders.into_iter().flat_map(|bystander| bystander.join().expect("an idle client")).collect();
        (seen, times, published)
    });
    times.sort();
    let p99 = times[times.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(200), "a PINGRESP took {p99:?}");
    assert!(seen.iter().map(|seen| seen.takeovers).sum::<usize>() > 5, "there was no fight");
    nothing_lost(&on, &seen, &published);
    log_tells_it(&on, seen.iter().map(|seen| seen.connects).sum());
}

/// What neither device got is still in the session.
fn nothing_lost(on: &Stage, seen: &[Seen], published: &BTreeSet<String>) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "dup").durable(3_600));
    assert!(ack.session_present);
    let mut got: BTreeSet<String> = seen.iter().flat_map(|seen| seen.numbers.iter().cloned()).collect();
    on.v5("q").publish(on.topic("t"), "marker", 1);
    got.extend(client.take_until("marker").iter().map(holdfast_cluster_tests::wire::Message::text));
    let lost: Vec<_> = published.difference(&got).collect();
    assert!(lost.is_empty(), "{lost:?} of {} were lost", published.len());
}

/// One clear line with the client id and both addresses, and not a flood of them.
fn log_tells_it(on: &Stage, connects: usize) {
    let client_id = on.client_id("dup");
    let lines: Vec<_> = on.broker().log().since(0).into_iter().filter(|line| line.contains(&client_id)).collect();
    let names_both = |line: &&holdfast_cluster_tests::process::Line| line.text.matches("127.0.0.1:").count() >= 2;
    assert!(
        lines.iter().any(|line| names_both(&line)),
        "no line names both addresses of {connects} fighting connections"
    );
    let warnings = lines.iter().filter(|line| line.field("level").as_deref() == Some("WARN")).count();
    assert!(warnings <= 2 * DURATION.as_secs() as usize + 2, "{warnings} warnings in {DURATION:?}");
}
