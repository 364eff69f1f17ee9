//! The group when the sessions of a node pass to its heirs.

use super::scene::{Scene, acquire, options, until};
use crate::command::{Command, Effect, NodeId, Outcome};
use crate::group::Options;
use crate::state::PASS_ON_MAX;

const ALL: [u128; 3] = [1, 2, 3];

async fn on_disk(dirs: &[tempfile::TempDir; 3]) -> Scene {
    let mut scene = Scene::default();
    for (id, dir) in ALL.into_iter().zip(dirs) {
        scene.start(id, Some(dir.path().to_owned())).await;
    }
    scene.register_all().await;
    scene
}

/// Gives node `home` all others as heirs.
async fn fill(scene: &Scene, home: u128) {
    let next = ALL.into_iter().filter(|id| *id != home).map(NodeId).collect();
    let node = &scene.nodes[&home];
    let outcome = node.ask(1_000_001, Command::FillHeirs { next }).await;
    let Outcome::FillBegun { fill } = outcome else { panic!("{outcome:?}") };
    assert_eq!(node.ask(1_000_002, Command::HeirsFilled { fill }).await, Outcome::Done);
}

/// What `at` was told of the sessions of node 3: how many have passed to it, and whether all have passed.
fn passed(scene: &Scene, at: u128) -> (usize, bool) {
    let effects = scene.nodes[&at].diary.effects.lock();
    let to_it = |effect: &&Effect| matches!(effect, Effect::PassedOn { to, .. } if to.0 == at);
    let all = Effect::PassedOnAll { node: NodeId(3), incarnation: 1 };
    (effects.iter().filter(to_it).count(), effects.contains(&all))
}

async fn inherit(scene: &Scene, at: u128) {
    until("all is passed on", || passed(scene, at).1).await;
    let command = Command::Inherited { node: NodeId(3), incarnation: 1 };
    assert_eq!(scene.nodes[&at].ask(1_000_003, command).await, Outcome::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_passes_on_all_sessions_and_registers_the_node_when_its_heirs_have_them() {
    let dirs = ALL.map(|_| tempfile::tempdir().expect("a directory"));
    let mut scene = on_disk(&dirs).await;
    fill(&scene, 3).await;
    let clients = PASS_ON_MAX * 2 + 100;
    let node = scene.nodes[&3].clone();
    node.group.propose((0..clients as u64).map(|ticket| (ticket, acquire(&format!("{ticket}")))));
    until("all are connected", || node.diary.outcomes.lock().len() == clients + 2).await;
    scene.kill(3).await;
    until("all is passed on", || [1, 2].iter().all(|at| passed(&scene, *at).1)).await;
    assert_eq!(passed(&scene, 1).0 + passed(&scene, 2).0, clients);

    let back = scene.start(3, Some(dirs[2].path().to_owned())).await;
    inherit(&scene, 1).await;
    let pending = scene.nodes[&1].group.read(|state| state.orphans().collect::<Vec<_>>());
    assert_eq!(pending, [(NodeId(3), 1, vec![NodeId(2)])]);
    assert_eq!(back.group.status().incarnation, None);
    inherit(&scene, 2).await;
    assert_eq!(back.register().await, 2);
    scene.settle().await;
    assert_eq!(back.group.read(|state| state.sessions_of(NodeId(3)).count()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quick_restart_with_less_than_there_was_waits_for_the_heirs_too() {
    let dirs = ALL.map(|_| tempfile::tempdir().expect("a directory"));
    let mut scene = on_disk(&dirs).await;
    fill(&scene, 3).await;
    assert!(matches!(scene.nodes[&3].ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    scene.kill(3).await;
    let lost = Options { dir: Some(dirs[2].path().to_owned()), intact: false, ..options(3, "n3", 77) };
    let back = scene.start_with(lost).await.expect("starts");
    let registering = tokio::spawn({
        let back = back.clone();
        async move { back.register().await }
    });
    inherit(&scene, 1).await;
    inherit(&scene, 2).await;
    assert_eq!(registering.await.expect("it goes on"), 2);
    let session = back.group.read(|state| state.session("c")).expect("it is somewhere else");
    assert!(session.holder != NodeId(3) && !session.missing);
}
