//! Bans that hold on every node, and rules for what outlives the node that it was on.

use holdfast_cluster_tests::cluster::admin::post;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::scene::texts;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Version, Will};

use crate::{HEALED, NOTICED};

const BANNED: u8 = 0x8A;
const ADMINISTRATIVE_ACTION: u8 = 0x98;

/// Asks until it is so.
#[track_caller]
fn until(what: &str, patience: std::time::Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + patience;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not in {patience:?}: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn code_at(on: &ClusterStage<'_>, node: usize, connect: &Connect) -> u8 {
    on.open(node, connect.version).handshake(connect).reason
}

fn is_banned_at(cluster: &Cluster, node: usize, value: &str) -> bool {
    let bans = cluster.node(node).ask_json("/api/v1/bans").and_then(|bans| bans["bans"].as_array().cloned());
    bans.unwrap_or_default().iter().any(|ban| ban["value"] == value)
}

#[test]
fn a_ban_holds_on_all_nodes_and_over_a_restart() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let id = on.client_id("bad");
    let connect = Connect::new(Version::V5, &id);
    let (mut there, _) = on.connect(N2, &connect);
    let mut bystander = on.v5(N2, "good");
    let body = format!(r#"{{"by": "client_id", "value": "{id}", "reason": "it floods"}}"#);
    let (status, answer) = post(cluster.node(N1).admin_address(), "/api/v1/bans", &body, PATIENCE).expect("an answer");
    assert_eq!(status, 201, "{answer}");
    there.expect_disconnect(&[ADMINISTRATIVE_ACTION]);
    for node in cluster.all() {
        until("the ban is known", NOTICED, || is_banned_at(&cluster, node, &id));
        assert_eq!(code_at(&on, node, &connect), BANNED);
        assert_eq!(code_at(&on, node, &Connect::new(Version::V311, &id)), 5);
    }
    assert_eq!(bystander.fence(), []);
    cluster.node(N3).kill();
    cluster.start([N3]);
    cluster.whole_within(HEALED);
    assert_eq!(code_at(&on, N3, &connect), BANNED, "who starts again has it from the log or the snapshot");
    let (status, answer) = cluster.node(N3).command("/api/v1/bans", r#"{"by": "address", "value": "10.0.0.0/40"}"#);
    assert_eq!(status, 400, "{answer}");
    let (code, out, err) = cli(&cluster, N3, &["ban", "rm", "client_id", &id]);
    assert_eq!(code, Some(0), "{out}{err}");
    let (code, _, err) = cli(&cluster, N2, &["ban", "rm", "client_id", &id]);
    assert_eq!((code, err.contains("no such ban")), (Some(1), true), "{err}");
    for node in cluster.all() {
        until("the ban is gone", NOTICED, || !is_banned_at(&cluster, node, &id));
        assert_eq!(code_at(&on, node, &connect), 0);
    }
}

fn cli(cluster: &Cluster, node: usize, args: &[&str]) -> (Option<i32>, String, String) {
    let admin = format!("http://{}", cluster.node(node).admin_address());
    let program = holdfast_cluster_tests::process::program_path();
    let output = std::process::Command::new(program).args(args).args(["--admin", &admin]).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Other rules on every node, which all of them have read.
#[track_caller]
fn change(cluster: &Cluster, rules: &str) {
    for number in cluster.all() {
        let node = cluster.node(number);
        let before = node.log().len();
        std::fs::write(node.installation().folder().join("acl.conf"), rules).expect("the folder can be written");
        node.process().signal(libc::SIGHUP);
        let read = node.log().wait(before, PATIENCE, |line| line.contains("ACL files read again"));
        assert!(read.is_some(), "{}", node.log().text());
    }
}

#[test]
fn rights_that_were_lost_are_lost_to_heirs_and_for_wills_of_dead_nodes() {
    let everything = "topic readwrite #\n";
    let setup = ClusterSetup::new(3).section("[acl]\nfile = \"acl.conf\"").file("acl.conf", everything);
    let cluster = setup.start();
    let on = ClusterStage::new(&cluster);
    let mut watcher = on.watcher(N2, "watcher", &on.topic("#"));
    let (mut kept, _) = on.connect(N1, &on.kept("kept"));
    kept.subscribe(on.topic("secret"), 1);
    kept.subscribe(on.topic("open"), 1);
    kept.disconnect();
    let with_will = |name: &str, topic: &str| {
        let will = Will::new(on.topic(topic), name);
        on.connect(N1, &on.hello(Version::V5, name).will(will)).0
    };
    let (_lost, _stays) = (with_will("lost", "secret"), with_will("stays", "open"));
    let mut publisher = on.v5(N2, "p");
    assert!(publisher.publish(on.topic("secret"), "queued", 1) < 0x80);
    assert!(publisher.publish(on.topic("open"), "queued too", 1) < 0x80);
    assert_eq!(texts(&watcher.take_until("queued too")), ["queued"]);
    change(&cluster, &format!("topic readwrite #\ntopic deny {}\n", on.topic("secret")));
    let dropped = || -> f64 {
        let of = |node| cluster.node(node).metric("holdfast_messages_dropped_total", &["reason=\"acl\""]);
        [N2, N3].into_iter().filter_map(of).sum()
    };
    assert_eq!(dropped(), 0.0);
    cluster.node(N1).kill();
    until("the Will without the right is dropped", HEALED, || dropped() == 1.0);
    assert!(watcher.take_until("stays").is_empty(), "the other one is published, and nothing before it");
    let (mut kept, ack) = on.connect_within(N3, &on.kept("kept"), HEALED);
    assert!(ack.session_present);
    assert_eq!(kept.recv_publish().text(), "queued too", "what waited on the dead node is judged here");
    until("what was queued is dropped", NOTICED, || dropped() == 2.0);
}
