//! Cases 11 and 13: order across nodes, and what a slow or blocked link may do.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::flow::{Flow, FlowPlan};
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::{is_full, many, rounds};
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::{pass, texts};
use holdfast_cluster_tests::wire::Publish;

/// The pair beside a slow link: its acknowledgements, in the 99th of 100 cases.
const BESIDE_P99: Duration = Duration::from_millis(500);

#[test]
fn field_case_11_order_holds_across_nodes_for_every_qos() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let background: Vec<_> = (0..many(6, 20))
        .map(|number| {
            let plan = FlowPlan::new(&format!("b{number}")).qos(1).per_sec(20).size(256);
            Flow::start(&on, number % 3, &[(number + 1) % 3], plan)
        })
        .collect();
    for qos in 0..3 {
        let plan = FlowPlan::new(&format!("q{qos}")).qos(qos).per_sec(0).window(100).size(1_024);
        let report = Flow::start(&on, N1, &[N2, N3], plan.count(many(3_000, 20_000) as u64)).join();
        report.assert_kept();
        let came: Vec<_> = report.got.iter().map(Vec::len).collect();
        eprintln!("case 11, QoS {qos}: {came:?} came of {}", report.sent.len());
    }
    background.into_iter().for_each(|flow| flow.finish().assert_kept());
}

#[test]
fn field_case_13_a_slow_link_loses_nothing_and_slows_nobody_else() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let wound = cluster.hurt(&[(N1, N2)], Fault::throttle(100_000));
    let began = Instant::now();
    let beside = Flow::start(&on, N1, &[N3], FlowPlan::new("beside").per_sec(50));
    let plan = FlowPlan::new("slow").per_sec(0).window(100).size(1_024).kept().count(many(700, 20_000) as u64);
    let slow = Flow::start(&on, N1, &[N2], plan).join();
    let took = began.elapsed();
    let beside = beside.finish();
    slow.assert_kept();
    beside.assert_kept();
    eprintln!("case 13: {} took {took:.1?}; beside: {}", slow.sent.len(), beside.deliveries(began));
    assert!(beside.deliveries(began).percentile(99) < BESIDE_P99, "{}", beside.deliveries(began));
    // The link was slow, not stuck: nobody was expelled.
    cluster.whole_within(Duration::from_secs(5));
    wound.heal();
}

/// For less than a lease: nothing is decided, everything waits.
#[test]
fn field_case_13_a_node_that_hangs_for_a_moment_loses_nothing_and_slows_nobody_else() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let hangs = cluster.followers()[0];
    let [from, other] = [(hangs + 1) % 3, (hangs + 2) % 3];
    let beside = Flow::start(&on, from, &[other], FlowPlan::new("beside").per_sec(50));
    let flow = Flow::start(&on, from, &[hangs], FlowPlan::new("hangs").per_sec(500).size(1_024).kept());
    pass(Duration::from_millis(500));
    let began = Instant::now();
    let wound = cluster.freeze(hangs);
    pass(Duration::from_millis(1_500));
    wound.heal();
    pass(Duration::from_millis(500));
    let (flow, beside) = (flow.finish(), beside.finish());
    flow.assert_kept();
    beside.assert_kept();
    eprintln!("case 13: hung {:.1?}; beside: {}", flow.longest_silence(began), beside.deliveries(began));
    assert!(beside.deliveries(began).percentile(99) < BESIDE_P99, "{}", beside.deliveries(began));
}

/// For longer than a lease: it is expelled. Its kept sessions wait for it, with all that was acknowledged while it was there.
#[test]
fn field_case_13_a_node_that_hangs_for_long_comes_back_with_what_was_acknowledged() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let hangs = cluster.followers()[0];
    let [from, other] = [(hangs + 1) % 3, (hangs + 2) % 3];
    let beside = Flow::start(&on, from, &[other], FlowPlan::new("beside").per_sec(50));
    let (mut subscriber, _) = on.connect(hangs, &on.kept("s").keep_alive(0));
    subscriber.subscribe(on.topic("t"), 1);
    subscriber.disconnect();
    let mut publisher = on.v5(from, "p");
    let before: Vec<String> = (0..100).map(|number: u32| number.to_string()).collect();
    before.iter().for_each(|number| assert_eq!(publisher.publish(on.topic("t"), number, 1), 0));
    let began = Instant::now();
    let wound = cluster.freeze(hangs);
    // It owes an answer to this one, until it is expelled.
    let reason = publisher.publish(on.topic("t"), "while it hangs", 1);
    let stalled = began.elapsed();
    assert!(reason < 0x80 && stalled < crate::STALL, "{reason:#04X} after {stalled:?}");
    pass(crate::LEASE.saturating_mul(if is_full() { 3 } else { 2 }).saturating_sub(began.elapsed()));
    wound.heal();
    cluster.whole_within(crate::HEALED);
    let (mut subscriber, ack) = on.connect_within(hangs, &on.kept("s"), crate::NOTICED);
    assert!(ack.session_present);
    publisher.publish(on.topic("t"), "end", 1);
    let mut got = texts(&subscriber.take_until("end"));
    got.retain(|text| text != "while it hangs");
    assert_eq!(got, before);
    let beside = beside.finish();
    beside.assert_kept();
    eprintln!("case 13: a publisher stalled for {stalled:.1?}; beside: {}", beside.deliveries(began));
}

/// What waits for a node that was killed is there before what is published there when it serves again. Who has subscribed there since gets none of it.
#[test]
fn what_waits_for_a_node_that_was_killed_comes_before_what_is_published_there() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    for round in 0..rounds(3, 30) {
        let topic = on.topic(&format!("{round}"));
        let kept = on.kept(&format!("s{round}"));
        let (mut client, _) = on.connect(N2, &kept);
        client.subscribe(&topic, 1);
        client.disconnect();
        let name = format!("p{round}");
        let mut publisher = on.v5(N1, &name);
        cluster.node(N2).kill();
        publisher.send_publish(&Publish::new(&topic, "old").qos(1, 1));
        assert!(publisher.fence().is_empty(), "round {round}: it waits for the node");
        publisher.disconnect();
        cluster.start([N2]);
        on.v5(N2, &name).publish(&topic, "new", 1);
        let mut since = on.v5(N2, &format!("c{round}"));
        since.subscribe(&topic, 1);
        on.v5(N1, &format!("q{round}")).publish(&topic, "last", 1);
        assert_eq!(since.take().text(), "last", "round {round}");
        let (mut client, ack) = on.connect(N2, &kept);
        assert!(ack.session_present, "round {round}");
        assert_eq!(texts(&client.take_until("last")), ["old", "new"], "round {round}");
        client.disconnect();
    }
}
