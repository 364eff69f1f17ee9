//! Cases 5 and 12: one node of three is down, and the rest just works; it leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::crowd::{Crowd, in_parallel};
use holdfast_cluster_tests::cluster::flow::{Flow, FlowPlan};
use holdfast_cluster_tests::cluster::latency::Latencies;
use holdfast_cluster_tests::cluster::rounds::{is_full, many, secs};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, READY};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::Version;

use crate::{HEALED, NOTICED, STALL};

const STOPPED: Duration = Duration::from_secs(20);

/// New clients connect to N1 and N2, subscribe and publish; some have ids that were on N3. What the slowest took.
fn newcomers(on: &ClusterStage, round: &str) -> Duration {
    let times = in_parallel(many(40, 100), |number| {
        let name = if number % 4 == 0 { format!("on3-{number}") } else { format!("{round}{number}") };
        let began = Instant::now();
        let (mut client, _) = on.connect_within(number % 2, &on.hello(Version::V5, &name), NOTICED);
        let topic = on.topic(&format!("{round}/{number}"));
        assert_eq!(client.subscribe(&topic, 1), 1);
        assert_eq!(client.publish(&topic, "mine", 1), 0);
        assert_eq!(client.take().text(), "mine");
        began.elapsed()
    });
    times.into_iter().max().unwrap_or_default()
}

fn on_the_third(on: &ClusterStage) -> Vec<Client> {
    (0..many(40, 100)).step_by(4).map(|number| on.v5(N3, &format!("on3-{number}"))).collect()
}

#[test]
fn field_case_05_with_one_node_of_three_down_the_rest_just_works() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let flow = Flow::start(&on, N1, &[N2], FlowPlan::new("f").per_sec(20));
    let held = on_the_third(&on);
    let began = Instant::now();
    assert!(cluster.node(N3).stop(STOPPED).success());
    eprintln!("case 5: new clients at a stop took {:.2?}", newcomers(&on, "stopped"));
    cluster.start([N3]);
    eprintln!("case 5: new clients at a start took {:.2?}", newcomers(&on, "started"));
    drop(held);
    let held = on_the_third(&on);
    let killed = Instant::now();
    cluster.node(N3).kill();
    eprintln!("case 5: new clients at a kill took {:.2?}", newcomers(&on, "killed"));
    drop(held);
    let report = flow.finish();
    report.assert_kept();
    let (before, after) = (report.longest_silence(began), report.longest_silence(killed));
    eprintln!("case 5: the longest silence was {before:.2?}, after the kill {after:.2?}");
    assert!(before < Duration::from_secs(if is_full() { 1 } else { 2 }), "{before:?}");
}

#[test]
fn a_node_that_restarts_is_not_noticed_by_the_clients_of_the_others() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    for (restarted, kills) in
        [(cluster.followers()[0], false), (cluster.followers()[0], true), (cluster.wait_for_leader(), false)]
    {
        let well = [(restarted + 1) % 3, (restarted + 2) % 3];
        let flows: Vec<_> = [(well[0], well[1], 1), (well[1], well[0], 2), (well[0], well[1], 0)]
            .into_iter()
            .map(|(from, to, qos)| {
                Flow::start(&on, from, &[to], FlowPlan::new(&format!("f{restarted}{kills}{qos}")).qos(qos).per_sec(100))
            })
            .collect();
        let mut idle: Vec<_> = (0..50).map(|number| on.v5(well[number % 2], &format!("idle{number}"))).collect();
        let began = Instant::now();
        if kills {
            cluster.node(restarted).kill();
        } else {
            assert!(cluster.node(restarted).stop(STOPPED).success());
        }
        pass(Duration::from_millis(500));
        cluster.start([restarted]);
        cluster.whole_within(HEALED);
        idle.iter_mut().for_each(Client::expect_quiet);
        for flow in flows {
            let report = flow.finish();
            report.assert_kept();
            let silence = report.longest_silence(began);
            eprintln!("restart of {restarted}, killed {kills}: QoS {} was silent for {silence:.2?}", report.plan.qos);
            assert!(silence < Duration::from_secs(1), "{silence:?}");
        }
    }
}

/// What a publisher sent to each filter, and when.
type Sent = BTreeMap<usize, Vec<(u32, Instant)>>;

/// Publishes a number to each topic, again and again.
fn publish_until(on: &ClusterStage, count: usize, pause: Duration, over: &AtomicBool) -> (Sent, Latencies) {
    let mut publisher = on.v5(N1, "p");
    let (mut sent, mut took, mut number) = (Sent::new(), Latencies::default(), 0);
    while !over.load(Ordering::Relaxed) {
        number += 1;
        for filter in 0..count {
            let began = Instant::now();
            assert!(publisher.publish(on.topic(&format!("f/{filter}")), number.to_string(), 1) < 0x80);
            took.add(began.elapsed());
            sent.entry(filter).or_default().push((number, began));
        }
        pass(pause);
    }
    (sent, took)
}

/// Whether the node says that so many clients whose ids begin with this are on the third node.
fn counted(on: &ClusterStage, node: usize, prefix: &str) -> usize {
    let clients = on.cluster.node(node).clients().unwrap_or_default();
    clients.iter().filter(|(id, at)| id.starts_with(prefix) && at == on.cluster.node(N3).name()).count()
}

#[track_caller]
fn counts_become(on: &ClusterStage, nodes: &[usize], prefix: &str, wanted: usize) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while nodes.iter().any(|node| counted(on, *node, prefix) != wanted) {
        let counts: Vec<_> = nodes.iter().map(|node| counted(on, *node, prefix)).collect();
        assert!(Instant::now() < deadline, "{counts:?} clients instead of {wanted}");
        pass(Duration::from_millis(200));
    }
}

#[test]
fn field_case_12_a_dead_node_leaves_nothing_behind() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let count = many(100, 500);
    let plan = |number: usize| (N3, on.hello(Version::V5, &format!("dead{number}")).keep_alive(0));
    let prefix = on.client_id("dead");
    let topic = |number: usize| on.topic(&format!("f/{number}"));
    let mut crowd = Crowd::gather(&cluster, count, PATIENCE, plan);
    crowd.each(|number, client| assert_eq!(client.subscribe(topic(number), 1), 1));
    counts_become(&on, &[N1, N2, N3], &prefix, count);
    cluster.node(N3).kill();
    drop(crowd);
    let over = AtomicBool::new(false);
    let (away, first) = std::thread::scope(|scope| {
        let away = scope.spawn(|| publish_until(&on, count, Duration::from_millis(50), &over));
        let began = Instant::now();
        counts_become(&on, &[N1, N2], &prefix, 0);
        let first = began.elapsed();
        pass(secs(2, 30));
        over.store(true, Ordering::Relaxed);
        (away.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).1, first)
    });
    eprintln!("case 12: no clients of it after {first:.1?}; PUBACK while it was away: {away}");
    assert!(away.max() < STALL, "{away}");
    assert!(away.percentile(99) < Duration::from_millis(200), "{away}");
    cluster.node(N3).launch();
    subscribed_again_misses_nothing(&on, count);
}

/// The same clients, the instant they are let in: each gets all that was published after its SUBACK.
fn subscribed_again_misses_nothing(on: &ClusterStage, count: usize) {
    let (cluster, over) = (on.cluster, AtomicBool::new(false));
    let subscribed = Mutex::new(BTreeMap::<usize, Instant>::new());
    let topic = |number: usize| on.topic(&format!("f/{number}"));
    let plan = |number: usize| (N3, on.hello(Version::V5, &format!("dead{number}")).keep_alive(0));
    let (sent, mut crowd) = std::thread::scope(|scope| {
        let publisher =
            scope.spawn(|| publish_until(on, count, Duration::from_millis(if is_full() { 500 } else { 100 }), &over));
        let mut crowd = Crowd::gather(cluster, count, READY, plan);
        crowd.each(|number, client| {
            assert_eq!(client.subscribe(topic(number), 1), 1);
            subscribed.lock().expect("no holder panics").insert(number, Instant::now());
        });
        counts_become(on, &[N1, N2, N3], &on.client_id("dead"), count);
        pass(secs(3, 60));
        over.store(true, Ordering::Relaxed);
        (publisher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).0, crowd)
    });
    let subscribed = subscribed.into_inner().expect("no holder panics");
    let mut last = on.v5(N1, "last");
    (0..count).for_each(|number| _ = last.publish(topic(number), "end", 1));
    let missed: Vec<_> = crowd.each(|number, client| {
        let got: BTreeSet<u32> =
            client.take_until("end").iter().filter_map(|message| message.text().parse().ok()).collect();
        let after = sent[&number].iter().filter(|(_, at)| *at > subscribed[&number]);
        after.filter(|(value, _)| !got.contains(value)).map(|(value, _)| (number, *value)).collect::<Vec<_>>()
    });
    let missed: Vec<_> = missed.into_iter().flatten().collect();
    assert!(missed.is_empty(), "{} were missed: {:?}", missed.len(), &missed[..missed.len().min(20)]);
}
