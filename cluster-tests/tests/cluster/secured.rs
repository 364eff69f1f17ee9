//! A cluster whose links are encrypted, with a certificate at each end.

use std::net::TcpStream;

use holdfast_cluster_tests::certificates::Authority;
use holdfast_cluster_tests::cluster::flow::{Flow, FlowPlan};
use holdfast_cluster_tests::cluster::rounds::secs;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3, Stranger};
use holdfast_cluster_tests::process::START;
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::transport::PATIENCE;

use crate::HEALED;

const TLS: &str = "tls = { cert = \"node.crt\", key = \"node.key\", ca = \"ca.crt\" }";

/// Three nodes with a certificate each.
fn secured() -> Cluster {
    let authority = Authority::new("nodes");
    let leaf = authority.server(1);
    let setup = ClusterSetup::new(3).cluster(TLS).file("ca.crt", &authority.pem);
    setup.file("node.crt", &leaf.certificate).file("node.key", &leaf.key).start()
}

#[test]
fn links_over_tls_carry_everything_and_show_nothing() {
    let cluster = secured();
    let on = ClusterStage::new(&cluster);

    let mut kept = on.connect(N2, &on.kept("kept")).0;
    kept.subscribe(on.topic("t"), 1);
    kept.disconnect();
    // First of all, as the beginning of each connection is what is looked at below.
    let mut publisher = on.v5(N1, "p");
    (0..20).for_each(|number| assert!(publisher.publish(on.topic("t"), format!("open-{number}"), 1) < 0x80));
    let flows = [(N1, N2), (N2, N3), (N3, N1)]
        .map(|(from, to)| Flow::start(&on, from, &[to], FlowPlan::new(&format!("f{from}")).qos(2).per_sec(50)));
    pass(secs(1, 10));
    for flow in flows {
        flow.finish().assert_kept();
    }
    // The session moves, over the third kind of connection.
    let (mut moved, ack) = on.connect(N3, &on.kept("kept"));
    assert!(ack.session_present);
    let texts: Vec<_> = moved.take_until("open-19");
    assert_eq!(texts.len(), 19);

    for (from, to) in cluster.pairs() {
        let recorded = cluster.way(from, to).recorded();
        for bytes in recorded {
            let shown = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(!shown("open-") && !shown("kept"), "what crosses from {from} to {to} can be read");
        }
    }
    cluster.node(N2).kill();
    cluster.start([N2]);
    cluster.whole_within(HEALED);
}

#[test]
fn a_node_without_a_certificate_of_the_cluster_gets_nowhere() {
    let cluster = secured();
    // It knows the secret, and speaks in plain.
    let secret = std::fs::read_to_string(cluster.node(N1).installation().folder().join("secret")).expect("a secret");
    let seeds = cluster.all().map(|node| cluster.node(node).cluster_address().to_string()).collect();
    let stranger = Stranger { secret: Some(&secret), name: "n9", bind: "127.0.0.1:0".to_owned(), seeds };
    let installation = stranger.install();
    let before = cluster.node(N1).log().len();
    let stranger = installation.launch();
    let said = cluster.node(N1).log().wait(before, START, |line| line.contains("TLS"));
    assert!(said.is_some(), "nobody says why: {}", cluster.node(N1).log().text());
    assert!(cluster.all().all(|node| cluster.node(node).is_running() && cluster.node(node).is_ready()));
    assert_eq!(cluster.node(N1).sees().expect("an answer").members, ["n1", "n2", "n3"]);
    stranger.kill();
    TcpStream::connect_timeout(&cluster.node(N1).cluster_address(), PATIENCE).expect("others may still come");
}
