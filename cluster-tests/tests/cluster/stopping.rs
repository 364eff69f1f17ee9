//! Case 49, a plain stop: clients are told, nothing durable is lost or doubled, and the others go on.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::flow::{Flow, FlowPlan};
use holdfast_cluster_tests::cluster::rounds::many;
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::texts;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Packet, Version, reason};

use crate::HEALED;
use crate::copies::wait_for_copies;

const MESSAGES: usize = 5;

/// Half of the clients have kept sessions, half of those with messages that wait.
fn name(number: usize) -> String {
    format!("s{number}")
}

fn publish(on: &ClusterStage, node: usize, count: usize) {
    let mut publisher = on.v5(node, "p");
    for number in 0..count {
        for message in 0..MESSAGES {
            assert!(publisher.publish(on.topic(&name(number)), message.to_string(), 1) < 0x80);
        }
    }
}

#[test]
fn field_case_49_a_stop_tells_its_clients_and_loses_nothing() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let (kept, clean) = (many(50, 150), many(50, 150));
    // Kept sessions that are away, with messages.
    let hello = |number: usize| (N1, on.kept(&name(number)).keep_alive(0));
    let mut away = Crowd::gather(&cluster, kept, PATIENCE, hello);
    away.each(|number, client| assert_eq!(client.subscribe(on.topic(&name(number)), 1), 1));
    away.clients.into_iter().for_each(holdfast_cluster_tests::client::Client::disconnect);
    publish(&on, N2, kept);
    wait_for_copies(&cluster, cluster.all());
    let versions = [Version::V5, Version::V311];
    let mut there =
        Crowd::gather(&cluster, clean, PATIENCE, |number| (N1, on.hello(versions[number % 2], &format!("c{number}"))));
    let flow = Flow::start(&on, N2, &[N3], FlowPlan::new("beside").per_sec(50));
    let began = Instant::now();
    let status = std::thread::scope(|scope| {
        let stop = scope.spawn(|| cluster.node(N1).stop(Duration::from_secs(20)));
        there.each(|number, client| {
            let last = client.until_closed().pop();
            let told = matches!(last, Some(Packet::Disconnect { reason: reason::SERVER_SHUTTING_DOWN, .. }));
            assert!(told == (number % 2 == 0), "{last:?}");
        });
        stop.join().expect("it ends")
    });
    assert!(status.success(), "{status}");
    eprintln!("case 49: stopped after {:.1?}", began.elapsed());
    // Its sessions are with their heirs.
    let (client, ack) = on.connect_within(N2, &hello(0).1, HEALED);
    assert!(ack.session_present);
    client.disconnect();
    on.connect(N2, &on.hello(Version::V5, "c0")).0.disconnect();
    cluster.start([N1]);
    let report = flow.finish();
    report.assert_kept();
    assert!(report.longest_silence(began) < Duration::from_secs(1), "{:?}", report.longest_silence(began));
    let mut back = Crowd::gather(&cluster, kept, HEALED, |number| (number % 3, hello(number).1));
    assert_eq!(back.present, kept);
    back.each(|number, client| {
        client.publish(on.topic(&name(number)), "end", 1);
        let got = texts(&client.take_until("end"));
        assert_eq!(got, (0..MESSAGES).map(|message| message.to_string()).collect::<Vec<_>>(), "{}", name(number));
    });
}

/// The port for health says that the node is on its way out before clients feel it.
#[test]
fn field_case_49_a_stopping_node_is_not_ready() {
    let cluster = Cluster::three();
    let node = cluster.node(N1);
    assert!(node.is_ready());
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| node.stop(Duration::from_secs(20)));
        let deadline = Instant::now() + Duration::from_secs(20);
        while node.is_ready() {
            assert!(Instant::now() < deadline, "it is ready while it stops");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(stop.join().expect("it ends").success());
    });
    cluster.agree_within([N2, N3], HEALED);
}
