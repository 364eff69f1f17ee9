//! Cases 3, 4 and 42: one client id is one connection, whichever nodes its devices reach.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::latency::Latencies;
use holdfast_cluster_tests::cluster::rounds::{is_full, many, rounds, secs};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, Refusal, try_connect};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Packet, Version, first, reason};

use crate::{BOTH_VERSIONS, NOTICED, TAKEOVER, shared};

fn kept(on: &ClusterStage, version: Version, name: &str) -> Connect {
    on.hello(version, name).durable(3_600)
}

#[test]
fn field_case_03_the_older_connection_on_another_node_is_closed() {
    for version in BOTH_VERSIONS {
        let on = shared();
        let hello = kept(&on, version, "x");
        let (mut old, ack) = on.connect(N1, &hello);
        assert!(!ack.session_present);
        old.subscribe(on.topic("t"), 1);
        for node in [N2, N3, N1, N1] {
            let began = Instant::now();
            let (new, ack) = on.connect(node, &hello);
            assert!(ack.session_present, "{version:?}");
            old.expect_disconnect(&[reason::SESSION_TAKEN_OVER]);
            assert!(began.elapsed() < TAKEOVER, "{:?}", began.elapsed());
            old = new;
        }
        on.v5(N3, "p").publish(on.topic("t"), "once", 1);
        assert_eq!(old.take().text(), "once");
        old.expect_quiet();
    }
}

/// One CONNECT to each node at the same moment. Those that were let in; a claim that another one beat is refused.
fn contend(on: &ClusterStage, hello: &Connect) -> Vec<Client> {
    let barrier = Barrier::new(on.cluster.len());
    let connect = |node: usize| {
        let mut client = on.open(node, hello.version);
        client.client_id = format!("x on {node}");
        barrier.wait();
        client.send(&hello.bytes());
        match client.event(Instant::now() + PATIENCE) {
            Some(Event::Packet(Packet::ConnAck(ack))) if ack.reason == 0 => Some(client),
            Some(Event::Packet(Packet::ConnAck(ack))) => {
                let busy = [reason::SERVER_UNAVAILABLE, SERVER_BUSY, UNAVAILABLE_V311];
                assert!(busy.contains(&ack.reason), "{:#04X}", ack.reason);
                None
            }
            Some(Event::Closed) => None,
            other => panic!("{other:?} to a CONNECT"),
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = on.cluster.all().map(|node| scope.spawn(move || connect(node))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("a connect is answered")).collect()
    })
}

const SERVER_BUSY: u8 = 0x89;
const UNAVAILABLE_V311: u8 = 3;

/// Which of them are still open once exactly one has got the message; every other one must be closed in time.
#[track_caller]
fn the_one_that_stays(mut clients: Vec<Client>, payload: &str) -> Client {
    let deadline = Instant::now() + TAKEOVER + PATIENCE;
    let mut winner = None;
    while winner.is_none() || !clients.is_empty() {
        assert!(Instant::now() < deadline, "{payload}: {} stay, {}", clients.len(), winner.is_some());
        let mut open = Vec::new();
        for mut client in clients {
            match client.event(Instant::now() + Duration::from_millis(5)) {
                None => open.push(client),
                Some(Event::Closed) => {}
                Some(Event::Packet(Packet::Disconnect { reason, .. })) => {
                    assert_eq!(reason, reason::SESSION_TAKEN_OVER)
                }
                Some(Event::Packet(Packet::Publish(message))) => {
                    assert_eq!(message.text(), payload);
                    assert!(winner.is_none(), "{payload} came twice");
                    client.acknowledge(&message);
                    winner = Some(client);
                }
                Some(other) => panic!("{other:?}"),
            }
        }
        clients = open;
    }
    winner.expect("one got it")
}

#[test]
fn field_case_03_of_three_that_connect_at_once_exactly_one_stays() {
    for version in BOTH_VERSIONS {
        let on = shared();
        let hello = kept(&on, version, "x");
        let (mut holder, _) = on.connect(N1, &hello);
        holder.subscribe(on.topic("t"), 1);
        let mut publisher = on.v5(N3, "p");
        for round in 0..rounds(15, 100) {
            let mut clients = contend(&on, &hello);
            assert!(!clients.is_empty(), "round {round}: nobody was let in");
            clients.push(holder);
            publisher.publish(on.topic("t"), round.to_string(), 1);
            holder = the_one_that_stays(clients, &round.to_string());
            holder.expect_quiet();
        }
    }
}

/// Connects new clients to a node, one after another, until told to stop.
fn newcomers(on: &ClusterStage, node: usize, count: usize, over: &AtomicBool) -> Latencies {
    let mut took = Latencies::default();
    for number in 0..count {
        if over.load(Ordering::Relaxed) && number >= 50 {
            break;
        }
        let began = Instant::now();
        on.v5(node, &format!("fresh{number}"));
        took.add(began.elapsed());
    }
    took
}

#[test]
fn field_case_04_a_node_that_hangs_stops_no_login_elsewhere() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let hangs = *cluster.followers().last().expect("two followers");
    let [well, other] = [(hangs + 1) % 3, (hangs + 2) % 3];
    let plan = |number: usize| (hangs, on.hello(Version::V5, &format!("c{number}")).keep_alive(0));
    let mut crowd = Crowd::gather(&cluster, many(100, 200), PATIENCE, plan);
    let mut old = crowd.clients.swap_remove(0);
    old.subscribe(on.topic("x"), 1);
    let (mut kept_old, _) = on.connect(hangs, &on.kept("k"));
    kept_old.subscribe(on.topic("k"), 1);
    let wound = cluster.freeze(hangs);
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let (mut new, _) = std::thread::scope(|scope| {
        let fresh = scope.spawn(|| newcomers(&on, well, many(200, 500), &over));
        let kept = scope.spawn(|| try_connect(cluster.node(well).address(), &on.kept("k"), NOTICED));
        let new = on.connect_within(well, &on.hello(Version::V5, "c0"), NOTICED);
        eprintln!("case 4: the id on the frozen node is free after {:?}", began.elapsed());
        // Its session is on the frozen node: refused, but answered.
        match kept.join().expect("an answer") {
            Err(Refusal::Refused(reason::SERVER_UNAVAILABLE | SERVER_BUSY)) => {}
            other => panic!("{:?}", other.map(|(_, ack)| ack)),
        }
        over.store(true, Ordering::Relaxed);
        let fresh = fresh.join().expect("all are let in");
        eprintln!("case 4: new clients: {fresh}");
        assert!(fresh.max() < Duration::from_secs(if is_full() { 1 } else { 2 }), "{fresh}");
        new
    });
    new.subscribe(on.topic("x"), 1);
    pass(secs(3, 20).saturating_sub(began.elapsed()));
    wound.heal();
    on.v5(other, "p").publish(on.topic("x"), "one", 1);
    assert_eq!(new.take().text(), "one");
    new.expect_quiet();
    assert!(
        old.until_closed().iter().all(|packet| !matches!(packet, Packet::Publish(_))),
        "the old connection got it too"
    );
    cluster.whole_within(crate::HEALED);
    // It is back with the session that was refused.
    let (_, ack) = on.connect_within(well, &on.kept("k"), NOTICED);
    assert!(ack.session_present);
}

/// One of two devices with the same id: connects again as soon as it is thrown out, and takes what comes meanwhile.
fn device(on: &ClusterStage, node: usize, until: Instant) -> (Vec<String>, u32) {
    let (mut got, mut thrown_out) = (Vec::new(), 0);
    while Instant::now() < until {
        let Ok((mut client, _)) = try_connect(on.cluster.node(node).address(), &on.kept("dup"), PATIENCE) else {
            continue;
        };
        loop {
            match client.event(until) {
                Some(Event::Packet(Packet::Publish(message))) => {
                    got.push(message.text());
                    client.send_unless_closed(
                        &holdfast_cluster_tests::wire::Ack::new(first::PUBACK, message.packet_id).bytes(),
                    );
                }
                Some(Event::Packet(Packet::Disconnect { reason, .. })) => {
                    assert_eq!(reason, reason::SESSION_TAKEN_OVER);
                    thrown_out += 1;
                }
                Some(Event::Packet(other)) => panic!("{other:?} to a device"),
                Some(Event::Closed) | None => break,
            }
        }
    }
    (got, thrown_out)
}

/// Publishes a number every tenth of a second; how many.
fn number_every_tenth(on: &ClusterStage, until: Instant) -> u32 {
    let mut publisher = on.v5(N3, "p");
    let mut number = 0;
    while Instant::now() < until {
        publisher.publish(on.topic("dup"), number.to_string(), 1);
        number += 1;
        pass(Duration::from_millis(100));
    }
    number
}

fn pings(on: &ClusterStage, until: Instant) -> Latencies {
    let mut bystanders: Vec<_> = (0..20).map(|number| on.v5(number % 3, &format!("b{number}"))).collect();
    let mut took = Latencies::default();
    while Instant::now() < until {
        for client in &mut bystanders {
            let began = Instant::now();
            client.fence();
            took.add(began.elapsed());
        }
        pass(Duration::from_millis(50));
    }
    took
}

#[test]
fn field_case_42_two_devices_with_one_id_harm_nobody_else() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let (mut first, _) = on.connect(N1, &on.kept("dup"));
    first.subscribe(on.topic("dup"), 1);
    drop(first);
    let until = Instant::now() + secs(5, 30);
    let (sent, devices, took) = std::thread::scope(|scope| {
        let on = &on;
        let devices = [N1, N2].map(|node| scope.spawn(move || device(on, node, until)));
        let publisher = scope.spawn(move || number_every_tenth(on, until));
        let took = pings(on, until);
        (publisher.join().expect("a publisher"), devices.map(|device| device.join().expect("a device")), took)
    });
    eprintln!("case 42: thrown out {} and {} times; pings: {took}", devices[0].1, devices[1].1);
    assert!(took.percentile(99) < Duration::from_millis(if is_full() { 200 } else { 1_000 }), "{took}");
    assert!(devices.iter().any(|(_, thrown_out)| *thrown_out > 0));
    let (mut last, ack) = on.connect_within(N3, &on.kept("dup"), NOTICED);
    assert!(ack.session_present);
    on.v5(N3, "end").publish(on.topic("dup"), "end", 1);
    let rest = last.take_until("end").into_iter().map(|message| message.text());
    let got: std::collections::BTreeSet<String> = devices.into_iter().flat_map(|(got, _)| got).chain(rest).collect();
    let lost: Vec<_> = (0..sent).filter(|number| !got.contains(&number.to_string())).collect();
    assert!(lost.is_empty(), "of {sent} were lost {lost:?}");
    said_once_a_second(&cluster, &on.client_id("dup"));
}

/// The owner of the two devices can find out: the id and the addresses are in the log, and do not flood it.
fn said_once_a_second(cluster: &Cluster, client_id: &str) {
    let lines = cluster.all().flat_map(|node| cluster.node(node).log().since(0));
    let warned =
        lines.filter(|line| line.contains(client_id) && line.field("level").as_deref() == Some("WARN")).count();
    let most = usize::try_from(secs(5, 30).as_secs()).unwrap_or(usize::MAX) * 2 + 10;
    assert!((1..=most).contains(&warned), "{warned} warnings about {client_id}");
}
