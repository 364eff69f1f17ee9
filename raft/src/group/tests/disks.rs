//! The group with a disk: restarts, in whatever order, and what is on disk by then.

use std::path::{Path, PathBuf};

use super::scene::{Scene, TestNode, acquire, deadline, options, until};
use crate::command::{Command, NodeId, Outcome};
use crate::group::Options;

/// Folders for three nodes.
struct Disks(tempfile::TempDir);

impl Disks {
    fn new() -> Disks {
        Disks(tempfile::tempdir().expect("a directory"))
    }

    fn of(&self, id: u128) -> Option<PathBuf> {
        Some(self.0.path().join(id.to_string()))
    }

    async fn start_all(&self, scene: &mut Scene) {
        for id in [1, 2, 3] {
            scene.start(id, self.of(id)).await;
        }
        scene.register_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_at_the_start_says_where_and_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut scene = Scene::default();
    std::fs::write(dir.path().join("snapshot"), b"none").expect("written");
    let refused = scene.start_with(Options { dir: Some(dir.path().into()), ..options(1, "n1", 1) }).await;
    let said = refused.err().expect("it does not start").to_string();
    assert!(said.contains(&*dir.path().join("snapshot").to_string_lossy()), "{said}");
    assert!(said.contains("give it an empty data directory"), "{said}");
    let occupied = dir.path().join("file");
    std::fs::write(&occupied, b"").expect("written");
    let refused = scene.start_with(Options { dir: Some(occupied.clone()), ..options(1, "n1", 1) }).await;
    let said = refused.err().expect("it does not start").to_string();
    assert!(said.contains(&*occupied.to_string_lossy()) && said.contains("may the node read and write"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_after_all_have_been_down() {
    let disks = Disks::new();
    let mut scene = Scene::default();
    disks.start_all(&mut scene).await;
    let cluster = scene.nodes[&1].group.status().cluster_id;
    for ticket in 0..50 {
        scene.nodes[&2].ask(ticket, acquire(&format!("c{ticket}"))).await;
    }
    for id in [2, 1, 3] {
        scene.kill(id).await;
    }
    // In another order, and the last one later.
    for id in [3, 1] {
        scene.start(id, disks.of(id)).await;
    }
    assert_eq!(scene.nodes[&1].register().await, 2);
    let leases = scene.nodes[&1].group.read(|state| state.counts().leases);
    assert_eq!(leases, 50);
    scene.start(2, disks.of(2)).await;
    assert_eq!(scene.nodes[&2].register().await, 2);
    assert_eq!(scene.nodes[&3].register().await, 2);
    assert_eq!(scene.nodes[&2].group.status().cluster_id, cluster);
    let outcome = scene.nodes[&2].ask(99, acquire("c7")).await;
    assert!(matches!(outcome, Outcome::Acquired { session_present: true, .. }), "{outcome:?}");
    scene.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_restart_is_another_incarnation_that_has_its_sessions() {
    let disks = Disks::new();
    let mut scene = Scene::default();
    disks.start_all(&mut scene).await;
    scene.nodes[&1].ask(1, acquire("c")).await;
    scene.kill(1).await;
    let node = scene.start(1, disks.of(1)).await;
    assert_eq!(node.register().await, 2);
    let outcome = node.ask(1, acquire("c")).await;
    assert!(matches!(outcome, Outcome::Acquired { session_present: true, .. }), "{outcome:?}");
}

/// A segment that is being prepared may get its name meanwhile.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("is read").map(|entry| entry.expect("is read").path()) {
        let copied = to.join(entry.file_name().expect("has a name"));
        if entry.is_dir() {
            copy(&entry, &copied);
        } else if let Err(error) = std::fs::copy(&entry, copied) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

/// It sends entries to its followers before it has written them down, and they are committed without it. In the same term it would give their indexes to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_has_lost_the_end_of_its_log_does_not_lead_on() {
    let disks = Disks::new();
    let mut scene = Scene::default();
    // It is back before the others have missed it.
    let patient = |id: u128, run, dir| Options {
        dir,
        lease_ms: 8000,
        election_ms: (1500, 2000),
        ..options(id, &format!("n{id}"), run)
    };
    for id in [1, 2, 3] {
        scene.start_with(patient(id, 1, disks.of(id))).await.expect("starts");
    }
    scene.register_all().await;
    scene.settle().await;
    let leader = scene.leader(&[1, 2, 3]).await;
    let follower = scene.nodes[&(leader % 3 + 1)].clone();
    let (dir, earlier) = (disks.of(leader).expect("has one"), disks.of(99).expect("has one"));
    copy(&dir, &earlier);
    for ticket in 0..5 {
        follower.ask(ticket, acquire(&format!("before {ticket}"))).await;
    }
    scene.settle().await;
    scene.kill(leader).await;
    let again = scene.start_with(patient(leader, 2, Some(earlier))).await.expect("starts");
    again.register().await;
    for ticket in 5..10 {
        follower.ask(ticket, acquire(&format!("after {ticket}"))).await;
    }
    scene.settle().await;
}

/// Has `node` fill the log until it has made a snapshot and given up what is behind it.
async fn fill(node: &TestNode, from: u64) -> u64 {
    let mut ticket = from;
    let before = node.group.status().snapshot;
    let deadline = deadline();
    while node.group.status().snapshot == before {
        assert!(tokio::time::Instant::now() < deadline, "a snapshot is made");
        let big = Command::Routes { add: vec!["x".repeat(1000).into()], remove: vec![] };
        node.group.propose((0..20).map(|i| (ticket + i, big.clone())));
        ticket += 20;
        until("an answer", || node.diary.outcome(ticket - 1).is_some()).await;
    }
    ticket
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_far_behind_gets_a_snapshot_and_restarts_from_it() {
    let disks = Disks::new();
    let mut scene = Scene::default();
    let small = |id: u128, run| Options {
        dir: disks.of(id),
        snapshot_bytes: 200_000,
        keep_log_bytes: 20_000,
        ..options(id, &format!("n{id}"), run)
    };
    for id in [1, 2, 3] {
        scene.start_with(small(id, 1)).await.expect("starts");
    }
    scene.register_all().await;
    scene.nodes[&3].ask(1, acquire("early")).await;
    scene.kill(3).await;
    let node = scene.nodes[&1].clone();
    let ticket = fill(&node, 10).await;
    let ticket = fill(&node, ticket).await;
    fill(&node, ticket).await;
    // The one who is away is sent a snapshot, unless the log still goes back so far.
    let late = scene.start_with(small(3, 2)).await.expect("starts");
    assert_eq!(late.register().await, 2);
    scene.settle().await;
    assert!(late.diary.installed.load(std::sync::atomic::Ordering::SeqCst) >= 1, "{:?}", late.group.status());
    let holder = late.group.read(|state| state.session("early").map(|session| session.holder));
    assert_eq!(holder, Some(NodeId(3)));
    // All restart from what they have.
    for id in [1, 2, 3] {
        scene.kill(id).await;
    }
    for id in [1, 2, 3] {
        scene.start_with(small(id, 3)).await.expect("starts");
    }
    scene.register_all().await;
    scene.settle().await;
    assert!(scene.nodes[&1].diary.installed.load(std::sync::atomic::Ordering::SeqCst) >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_over_batches_under_way_ends_the_incarnation() {
    let mut scene = Scene::default();
    let small = |id: u128| Options { snapshot_bytes: 100_000, keep_log_bytes: 0, ..options(id, &format!("n{id}"), 1) };
    for id in [1, 2, 3] {
        scene.start_with(small(id)).await.expect("starts");
    }
    scene.register_all().await;
    let leader = scene.leader(&[1, 2, 3]).await;
    let behind = [1, 2, 3].into_iter().find(|id| *id != leader).expect("a follower");
    let late = scene.nodes[&behind].clone();
    // Its proposal goes out and is applied by the others; it does not hear of it.
    scene.net.deaf.lock().insert(NodeId(behind));
    late.group.propose([(1, acquire("unheard"))]);
    let leading = scene.nodes[&leader].clone();
    until("the leader has it", || leading.group.read(|state| state.session("unheard").is_some())).await;
    let ticket = fill(&leading, 10).await;
    fill(&leading, ticket).await;
    scene.net.deaf.lock().clear();
    until("it has ended", || late.diary.is_ended()).await;
    assert_eq!(late.diary.outcome(1), None);
    scene.settle().await;
}
