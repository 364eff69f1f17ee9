//! Cases 6 and 8: any order of restarts is fine, and what was subscribed is routed again everywhere.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::{is_full, many, secs};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, READY};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Message, Publish, Version};

use crate::{HEALED, matrix};

/// A node that stops ends in this time.
const STOPPED: Duration = Duration::from_secs(20);

/// A kept session with a subscription on each node, which must survive all that follows.
struct Settlers(Vec<String>);

impl Settlers {
    fn settle(on: &ClusterStage) -> Self {
        let names = on.cluster.all().map(|node| {
            let name = format!("settler{node}");
            let (mut client, _) = on.connect(node, &on.kept(&name));
            client.subscribe(on.topic(&name), 1);
            client.disconnect();
            name
        });
        Self(names.collect())
    }

    /// Each connects to another node than last time, finds its session, and gets what a third one publishes.
    #[track_caller]
    fn are_there(&self, on: &ClusterStage, step: usize) {
        for (index, name) in self.0.iter().enumerate() {
            let (mut client, ack) = on.connect_within((index + step) % 3, &on.kept(name), HEALED);
            assert!(ack.session_present, "{name} after step {step}");
            on.v5((index + step + 1) % 3, &format!("{name}p{step}")).publish(on.topic(name), step.to_string(), 1);
            // After a kill, what was acknowledged before may come once more.
            client.take_until(&step.to_string());
            client.disconnect();
        }
    }
}

/// The cluster is whole without a hand, and everything goes through.
#[track_caller]
fn heals(on: &ClusterStage, settlers: &Settlers, step: usize) {
    let began = Instant::now();
    on.cluster.whole_within(HEALED);
    matrix::passes(on, &[N1, N2, N3], &step.to_string());
    settlers.are_there(on, step);
    eprintln!("case 6, step {step}: whole and proved after {:.1?}", began.elapsed());
}

#[test]
fn field_case_06_any_order_of_restarts_is_fine() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let settlers = Settlers::settle(&on);
    let launch = |node: usize| cluster.node(node).launch();
    // Two at once.
    cluster.kill([N1, N2]);
    pass(secs(1, 5));
    [N1, N2].into_iter().for_each(launch);
    heals(&on, &settlers, 1);
    // All, and one after another in the other order.
    cluster.kill(cluster.all());
    for node in [N3, N2, N1] {
        launch(node);
        pass(secs(1, 10));
    }
    heals(&on, &settlers, 2);
    // One waits for a majority for long.
    cluster.kill(cluster.all());
    launch(N2);
    pass(secs(4, 30));
    assert!(cluster.node(N2).is_running() && !cluster.node(N2).is_ready(), "one of three is no cluster");
    [N1, N3].into_iter().for_each(launch);
    heals(&on, &settlers, 3);
    // In turn, stopped in order.
    for node in [N1, N2, N3].repeat(if is_full() { 2 } else { 1 }) {
        assert!(cluster.node(node).stop(STOPPED).success());
        cluster.start([node]);
    }
    heals(&on, &settlers, 4);
    // All stopped and started at once.
    cluster.all().for_each(|node| assert!(cluster.node(node).stop(STOPPED).success()));
    cluster.start(cluster.all());
    heals(&on, &settlers, 5);
}

/// Its disk is gone: it joins under the same name as another node, and has all retained messages before it lets anybody in.
#[test]
fn a_wiped_node_joins_again_and_has_everything_that_is_everywhere() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let mut publisher = on.v5(N1, "p");
    (0..200).for_each(|number| _ = publisher.publish_retained(on.topic(&format!("r/{number}")), number.to_string(), 1));
    for wiped in [N3, cluster.wait_for_leader()] {
        cluster.node(wiped).kill();
        cluster.node(wiped).wipe();
        cluster.node(wiped).launch();
        let (mut reader, _) =
            on.connect_within(wiped, &on.hello(holdfast_cluster_tests::wire::Version::V5, "r"), READY);
        reader.subscribe(on.topic("r/#"), 0);
        assert_eq!(reader.fence().len(), 200, "at the first subscribe");
        cluster.whole_within(HEALED);
        matrix::passes(&on, &[N1, N2, N3], &format!("wiped{wiped}"));
    }
    let names = cluster.node(N1).sees().expect("an answer").members;
    assert_eq!(names, ["n1", "n2", "n3"], "nothing is left of the nodes that were wiped");
}

#[test]
fn field_case_08_after_a_restart_messages_flow_in_every_direction() {
    let mut dice = Dice::new(seed("field_case_08"));
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let count = many(150, 1_000);
    let name = |number: usize| format!("s{number}");
    let mut crowd =
        Crowd::gather(&cluster, count, PATIENCE, |number| (number % 3, on.kept(&name(number)).keep_alive(0)));
    crowd.each(|number, client| assert_eq!(client.subscribe(on.topic(&name(number)), 1), 1));
    for restarted in if is_full() { vec![N2, N1, N3] } else { vec![N2] } {
        cluster.node(restarted).kill();
        cluster.node(restarted).launch();
        drop(crowd);
        let salt = dice.throw() as usize;
        crowd = Crowd::gather(&cluster, count, READY, |number| {
            ((number ^ salt) % 7 % 3, on.kept(&name(number)).keep_alive(0))
        });
        assert_eq!(crowd.present, count, "sessions that are there");
        eprintln!("case 8: all are back after {:.1?}", crowd.took);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for node in cluster.all() {
                let on = &on;
                scope.spawn(move || {
                    let mut publisher = on.v5(node, &format!("p{node}"));
                    (0..count).for_each(|number| _ = publisher.publish(on.topic(&name(number)), node.to_string(), 1));
                });
            }
        });
        crowd.each(|number, client| {
            let mut got: Vec<_> = (0..3).map(|_| client.take().text()).collect();
            got.sort();
            assert_eq!(got, ["0", "1", "2"], "s{number}");
        });
        eprintln!("case 8: {} messages took {:.1?}", 3 * count, began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}

/// What a node has on disk and has not answered for when it is killed is sent to it again, and it knows.
#[test]
fn what_a_killed_node_had_written_down_comes_once() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let home = cluster.followers()[0];
    let from = (home + 1) % 3;
    let (mut subscriber, _) = on.connect(home, &on.kept("s"));
    subscriber.subscribe(on.topic("t"), 2);
    subscriber.disconnect();
    let (mut publisher, _) = on.connect(from, &on.hello(Version::V5, "p").keep_alive(0));
    let wound = cluster.hurt_between(from, home, Fault::delay(Duration::from_millis(100)));
    let count = 50;
    for number in 1..=count {
        publisher.send_publish(&Publish::new(on.topic("t"), number.to_string()).qos(2, number));
    }
    // By now they are there, and their answer is on its way.
    pass(Duration::from_millis(170));
    cluster.way(from, home).reset();
    cluster.node(home).kill();
    wound.heal();
    cluster.start([home]);
    for number in 1..=count {
        publisher.wait_pubrec(number);
        publisher.send_ack(0x62, number);
    }
    (1..=count).for_each(|number| _ = publisher.wait_pubcomp(number));
    publisher.publish(on.topic("t"), "end", 2);
    let (mut subscriber, ack) = on.connect_within(home, &on.kept("s"), HEALED);
    assert!(ack.session_present);
    let got: Vec<String> = subscriber.take_until("end").iter().map(Message::text).collect();
    let all: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    assert_eq!(got, all);
}
