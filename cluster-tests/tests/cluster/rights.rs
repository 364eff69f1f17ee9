//! Bans that hold on every node, and over a restart.

use holdfast_cluster_tests::cluster::admin::post;
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3};
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Version};

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
