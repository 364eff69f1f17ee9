//! Case 7: partitions heal without a hand, again and again, and three ways.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::{rounds, secs};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Message, Packet, Publish};

use crate::{HEALED, matrix};

/// A retained value that every node has.
#[track_caller]
fn retained_everywhere(on: &ClusterStage, value: &str) {
    for node in on.cluster.all() {
        let mut reader = on.v5(node, "reader");
        reader.subscribe(on.topic("retained"), 0);
        let got = reader.fence();
        assert!(matches!(&got[..], [Packet::Publish(message)] if message.text() == value), "node {node}: {got:?}");
    }
}

#[test]
fn field_case_07_a_partition_heals_again_and_again_and_three_ways() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let names = ["c0", "c1", "c2"];
    let mut clients: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(node, name)| {
            let (mut client, _) = on.connect(node, &on.kept(name).keep_alive(0));
            client.subscribe(on.topic(name), 1);
            client
        })
        .collect();
    let two = [&[N1][..], &[N2, N3]];
    let three = [&[N1][..], &[N2], &[N3]];
    let mut splits: Vec<_> = (0..rounds(1, 3).min(3)).map(|_| (&two[..], Fault::swallow())).collect();
    splits.extend([(&two[..], Fault::cut()), (&three[..], Fault::swallow())]);
    for (number, (groups, fault)) in splits.into_iter().enumerate() {
        let value = number.to_string();
        let wound = cluster.partition(groups, fault);
        if groups.len() == 2 {
            cluster.agree_within([N2, N3], HEALED);
            let (mut publisher, _) =
                on.connect_within(N2, &on.hello(holdfast_cluster_tests::wire::Version::V5, "p"), HEALED);
            assert!(publisher.publish_retained(on.topic("retained"), &value, 1) < 0x80);
            // Who is on the side of the majority has noticed nothing.
            clients[N2].fence();
            clients[N3].fence();
            pass(secs(1, 60));
        } else {
            pass(secs(9, 60));
        }
        wound.heal();
        let began = Instant::now();
        cluster.whole_within(HEALED);
        eprintln!("case 7: whole {:.1?} after split {number}", began.elapsed());
        matrix::passes(&on, &[N1, N2, N3], &format!("split{number}"));
        let wanted = if groups.len() == 2 { value } else { (number - 1).to_string() };
        retained_everywhere(&on, &wanted);
        for (node, name) in names.iter().enumerate() {
            // Thrown out or not, its session is there, and it need not subscribe again.
            let (mut client, ack) = on.connect_within(node, &on.kept(name).keep_alive(0), HEALED);
            assert!(ack.session_present, "{name}");
            on.v5((node + 1) % 3, "p").publish(on.topic(name), "still", 1);
            assert_eq!(client.take().text(), "still");
            clients[node] = client;
        }
    }
}

/// Nothing passes between two nodes for a moment, as when a switch restarts: nobody is expelled, and everything comes.
#[test]
fn a_short_cut_is_no_failure() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let followers = cluster.followers();
    let flow = holdfast_cluster_tests::cluster::flow::Flow::start(
        &on,
        followers[0],
        &[followers[1]],
        holdfast_cluster_tests::cluster::flow::FlowPlan::new("f").per_sec(200).kept(),
    );
    let began = Instant::now();
    for _ in 0..rounds(3, 20) {
        let wound = cluster.hurt_between(followers[0], followers[1], Fault::cut());
        pass(Duration::from_millis(700));
        wound.heal();
        pass(Duration::from_millis(500));
    }
    let report = flow.finish();
    report.assert_kept();
    eprintln!("cuts of 0.7 s: {}", report.deliveries(began));
    cluster.whole_within(Duration::from_secs(5));
}

/// A node that is cut off is given up with messages under way: what it had no answer for has not happened, and its client sends it again.
#[test]
fn what_a_node_that_was_cut_off_had_not_answered_is_routed_when_it_comes_again() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let cut_off = cluster.followers()[0];
    let away = (cut_off + 1) % 3;
    let (mut subscriber, _) = on.connect(away, &on.kept("s").keep_alive(0));
    subscriber.subscribe(on.topic("t"), 2);
    let (mut publisher, _) = on.connect(cut_off, &on.kept("p").keep_alive(0));
    for round in 0..rounds(1, 10) {
        let numbers = (1..=10).map(|number| (number, format!("{round}/{number}")));
        let publishes: Vec<_> = numbers.map(|(id, text)| (id, Publish::new(on.topic("t"), text).qos(2, id))).collect();
        let wound = cluster.isolate(cut_off, Fault::swallow());
        publishes.iter().for_each(|(_, publish)| publisher.send_publish(publish));
        publisher.expect_close();
        wound.heal();
        cluster.whole_within(HEALED);
        let (again, ack) = on.connect_within(cut_off, &on.kept("p").keep_alive(0), HEALED);
        assert!(ack.session_present);
        publisher = again;
        for (id, publish) in publishes {
            publisher.send_publish(&publish.dup());
            assert!(publisher.wait_pubrec(id) < 0x80);
            publisher.send_ack(0x62, id);
            publisher.wait_pubcomp(id);
        }
        let end = format!("{round}/end");
        publisher.publish(on.topic("t"), &end, 2);
        let mut got: Vec<String> = subscriber.take_until(&end).iter().map(Message::text).collect();
        // Those that had got through before the cut are there already, and come again.
        got.sort_unstable();
        got.dedup();
        assert_eq!(got.len(), 10, "{got:?}");
    }
}
