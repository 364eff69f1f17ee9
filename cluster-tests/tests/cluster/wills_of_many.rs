//! A node with thousands of clients is killed: each Will comes once, and all of them find a place elsewhere.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::rounds::many;
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, READY};
use holdfast_cluster_tests::wire::{Packet, Version, Will, first};

/// Wills may be paced.
const ALL_WILLS: Duration = Duration::from_secs(60);

/// How often each Will came, when the first and when the last; ends when all have come.
#[track_caller]
fn collect(watcher: &mut Client, count: usize) -> (HashMap<String, u32>, Instant, Instant) {
    let deadline = Instant::now() + ALL_WILLS;
    let (mut came, mut began, mut last) = (HashMap::<String, u32>::new(), None, Instant::now());
    while came.len() < count {
        match watcher.event(deadline) {
            Some(Event::Packet(Packet::Publish(message))) => {
                watcher.send_ack(first::PUBACK, message.packet_id);
                last = Instant::now();
                began.get_or_insert(last);
                *came.entry(message.text()).or_default() += 1;
            }
            None => panic!("{} of {count} Wills came", came.len()),
            other => panic!("{other:?} to a watcher"),
        }
    }
    (came, began.unwrap_or(last), last)
}

#[test]
fn the_wills_of_thousands_come_once_and_all_find_a_place_elsewhere() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let count = many(1_000, 5_000);
    let mut watcher = on.watcher(N2, "watcher", "w/#");
    let hello = |number: usize| {
        let will = Will::new(on.topic(&format!("w/{number}")), number.to_string()).qos(1);
        on.hello(Version::V5, &format!("d{number}")).keep_alive(0).will(will)
    };
    let crowd = Crowd::gather(&cluster, count, READY, |number| (N1, hello(number)));
    eprintln!("{count} clients with Wills: all in after {:.1?}; CONNACK {}", crowd.took, crowd.connects);
    let killed = Instant::now();
    cluster.node(N1).kill();
    drop(crowd);
    let (crowd, (came, began, last)) = std::thread::scope(|scope| {
        let back =
            scope.spawn(|| Crowd::gather(&cluster, count, READY, |number| ([N2, N3][number % 2], hello(number))));
        let wills = collect(&mut watcher, count);
        (back.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), wills)
    });
    eprintln!("Wills: the first {:.2?} and the last {:.2?} after the kill", began - killed, last - killed);
    eprintln!("reconnects: the last CONNACK {:.2?} after they began; {}", crowd.took, crowd.connects);
    let twice: Vec<_> = came.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    // What would come a second time would come before this.
    let got = holdfast_cluster_tests::client::got_before_marker(
        &mut on.v5(N3, "marker"),
        &mut watcher,
        &on.topic("w/marker"),
    );
    assert!(got.is_empty(), "{} came again", got.len());
    drop(crowd);
}
