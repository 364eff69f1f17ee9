//! What a node that is destroyed leaves to its heirs, while messages flow.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::Publish;

use crate::HEALED;

/// Until every one of these nodes has said that the copies of its sessions are complete.
#[track_caller]
fn wait_for_copies(cluster: &Cluster, nodes: &[usize]) {
    for node in nodes {
        let found = cluster.node(*node).log().wait(0, HEALED, |line| line.contains("are complete"));
        assert!(found.is_some(), "node {node} has not filled its heirs");
    }
}

const SESSIONS: usize = 8;

#[test]
fn messages_flow_while_a_node_is_destroyed_and_its_sessions_have_all_of_them() {
    let cluster = ClusterSetup::new(3).cluster("session_copies = 2").start();
    let on = ClusterStage::new(&cluster);
    wait_for_copies(&cluster, &[N1, N2, N3]);
    let mut connected = Vec::new();
    for session in 0..SESSIONS {
        let (mut client, _) = on.connect(N3, &on.kept(&format!("s{session}")));
        client.subscribe(on.topic("a/#"), 2);
        if session % 4 == 3 { connected.push(client) } else { client.disconnect() }
    }
    let done = AtomicBool::new(false);
    let sent: Vec<(String, usize)> = std::thread::scope(|scope| {
        let (on, done) = (&on, &done);
        let publishers: Vec<_> = [(N1, "x", 1), (N2, "y", 1), (N1, "z", 2)]
            .into_iter()
            .map(|(node, name, qos)| {
                scope.spawn(move || {
                    let mut publisher = on.v5(node, name);
                    let mut number = 0;
                    let mut under_way = VecDeque::new();
                    while !done.load(Ordering::Relaxed) || !under_way.is_empty() {
                        if qos == 2 {
                            if done.load(Ordering::Relaxed) {
                                break;
                            }
                            publisher.publish(on.topic(&format!("a/{name}")), format!("{name}{number}"), qos);
                            number += 1;
                            continue;
                        }
                        while under_way.len() < 50 && !done.load(Ordering::Relaxed) {
                            let packet_id = publisher.packet_id();
                            let publish = Publish::new(on.topic(&format!("a/{name}")), format!("{name}{number}")).qos(qos, packet_id);
                            publisher.send_publish(&publish);
                            under_way.push_back(packet_id);
                            number += 1;
                        }
                        publisher.wait_puback(under_way.pop_front().unwrap());
                    }
                    (name.to_owned(), number)
                })
            })
            .collect();
        pass(Duration::from_millis(500));
        cluster.node(N3).kill();
        cluster.node(N3).wipe();
        let began = Instant::now();
        let (client, ack) = on.connect_within(N1, &on.kept("s0"), HEALED);
        eprintln!("back after {:.1?}", began.elapsed());
        assert!(ack.session_present);
        drop(client);
        pass(Duration::from_millis(500));
        done.store(true, Ordering::Relaxed);
        publishers.into_iter().map(|publisher| publisher.join().expect("it publishes")).collect()
    });
    eprintln!("{sent:?}");
    for session in 0..SESSIONS {
        let (mut client, ack) = on.connect_within([N1, N2][session % 2], &on.kept(&format!("s{session}")), HEALED);
        assert!(ack.session_present, "s{session}");
        on.v5(N1, "end").publish(on.topic("a/end"), "end", 1);
        let messages: Vec<String> = client.take_until("end").iter().map(|message| message.text()).collect();
        for (name, count) in &sent {
            let got: Vec<usize> = messages
                .iter()
                .filter_map(|text| text.strip_prefix(name.as_str()))
                .map(|number| number.parse().expect("a number"))
                .collect();
            let mut once = got.clone();
            once.sort_unstable();
            once.dedup();
            let twice = got.len() - once.len();
            let missing: Vec<usize> = (0..*count).filter(|number| !once.contains(number)).collect();
            eprintln!("s{session} {name}: {} of {count}, {twice} twice", got.len());
            assert!(missing.is_empty(), "s{session} of {name} lacks {missing:?}");
            assert!(name != "z" || twice == 0, "s{session}: QoS 2 came twice");
            assert!(got.is_sorted() || twice > 0, "s{session}: {got:?}");
        }
        client.disconnect();
    }
}
