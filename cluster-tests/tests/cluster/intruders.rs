//! Case 46: the cluster port is an entrance too.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::flow::{Flow, FlowPlan};
use holdfast_cluster_tests::cluster::rounds::secs;
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, Stranger};
use holdfast_cluster_tests::dice::{Dice, seed};
use holdfast_cluster_tests::process::START;
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::transport::PATIENCE;

/// How long a connection that says nothing useful may stay.
const THROWN_OUT: Duration = Duration::from_secs(15);

/// What all of it together may cost a node.
const GROWTH_MAX: u64 = 32 * 1024 * 1024;

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("somebody listens");
    stream.set_read_timeout(Some(THROWN_OUT)).expect("an option of every socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("an option of every socket");
    stream
}

/// The other side must close, whatever it says before.
#[track_caller]
fn thrown_out(mut stream: TcpStream, what: &str) {
    let mut buffer = [0; 4_096];
    let deadline = Instant::now() + THROWN_OUT;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => assert!(Instant::now() < deadline, "{what}: it is talked to"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{what}: not closed: {error}"),
        }
    }
}

fn say(address: SocketAddr, bytes: &[u8], what: &str) {
    let mut stream = open(address);
    // It may be thrown out before it has said everything.
    let _ = stream.write_all(bytes);
    thrown_out(stream, what);
}

fn intrude(cluster: &Cluster, address: SocketAddr, hellos: &[Vec<u8>], dice: &mut Dice) {
    let noise: Vec<u8> = (0..128 * 1024).flat_map(|_| dice.throw().to_le_bytes()).collect();
    say(address, &noise, "noise");
    say(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP");
    say(address, &[0x7F, 0xFF, 0xFF, 0xFF], "a length of 2 GB");
    for hello in hellos {
        // The length of a good beginning, and then nothing or a length out of bounds.
        say(address, &hello[..hello.len().min(8)], "half a hello");
        let mut torn = hello.clone();
        torn.truncate(64);
        torn.extend([0xFF; 64]);
        say(address, &torn, "a hello with a bad end");
        say(address, hello, "a hello said again");
    }
    assert!(cluster.all().all(|node| cluster.node(node).is_running()));
}

#[test]
fn field_case_46_who_has_no_secret_gets_nowhere_and_harms_nobody() {
    let mut dice = Dice::new(seed("field_case_46"));
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let before: Vec<_> = cluster.all().map(|node| cluster.node(node).process().resident_bytes()).collect();
    let flows = [(N1, N2), (N2, N3), (N3, N1)]
        .map(|(from, to)| Flow::start(&on, from, &[to], FlowPlan::new(&format!("f{from}")).per_sec(50)));
    let began = Instant::now();
    let mut hellos = cluster.way(N1, N2).recorded();
    hellos.truncate(3);
    assert!(!hellos.is_empty(), "a node has said hello to another");
    let idle: Vec<_> = cluster
        .all()
        .flat_map(|node| std::iter::repeat_n(node, 170))
        .map(|node| open(cluster.node(node).cluster_address()))
        .collect();
    std::thread::scope(|scope| {
        for node in cluster.all() {
            let (cluster, hellos, mut dice) = (&cluster, &hellos, dice.fork(&node.to_string()));
            scope.spawn(move || intrude(cluster, cluster.node(node).cluster_address(), hellos, &mut dice));
        }
    });
    for stream in idle {
        thrown_out(stream, "silence");
    }
    for (flow, node) in flows.into_iter().zip(cluster.all()) {
        let report = flow.finish();
        report.assert_kept();
        eprintln!("case 46: silence from {node}: {:.2?}", report.longest_silence(began));
        assert!(report.longest_silence(began) < Duration::from_secs(2));
    }
    cluster.whole_within(Duration::from_secs(5));
    for (node, before) in cluster.all().zip(before) {
        let after = cluster.node(node).process().resident_bytes();
        assert!(after < before + GROWTH_MAX, "node {node} grew from {before} to {after}");
    }
}

/// A whole node that knows addresses and the name of the cluster, and has another secret.
#[test]
fn field_case_46_a_node_with_another_secret_does_not_join() {
    let cluster = Cluster::three();
    let seeds: Vec<_> = cluster.all().map(|node| cluster.node(node).cluster_address().to_string()).collect();
    for name in ["n9", "n1"] {
        let stranger = Stranger {
            secret: Some("0123456789abcdef0123456789abcdef"),
            name,
            bind: "127.0.0.1:0".into(),
            seeds: seeds.clone(),
        };
        let stranger = stranger.install();
        let process = stranger.launch();
        pass(secs(3, 15));
        cluster.whole_within(Duration::from_secs(5));
        for node in cluster.all() {
            assert_eq!(cluster.node(node).sees().expect("an answer").members, ["n1", "n2", "n3"]);
        }
        process.kill();
    }
}

#[test]
fn field_case_46_a_node_does_not_start_without_a_secret() {
    for secret in [None, Some(""), Some("   \n"), Some("short"), Some("changeme"), Some("secret")] {
        for bind in ["127.0.0.1:0", "0.0.0.0:0"] {
            let stranger = Stranger { secret, name: "n1", bind: bind.into(), seeds: Vec::new() };
            let installation = stranger.install();
            let process = installation.launch();
            let status = process.exit_status(START);
            assert!(!status.success(), "it runs with the secret {secret:?} on {bind}");
            let said = process.log().wait(0, PATIENCE, |line| line.contains("secret"));
            assert!(said.is_some(), "{secret:?} on {bind}: {}", process.log().text());
        }
    }
}
