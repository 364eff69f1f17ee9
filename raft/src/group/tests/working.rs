//! The group when nothing fails: elections, proposals, grants.

use super::scene::{Scene, acquire, deadline, options, until};
use crate::command::{Command, Effect, NodeId, Outcome};
use crate::group::{Options, StartError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_of_all_nodes_are_applied_everywhere_and_answered_at_home() {
    let scene = Scene::of(3).await;
    for node in scene.nodes.values() {
        let client = format!("c{}", node.id.0);
        let outcome = node.ask(7, acquire(&client)).await;
        assert!(matches!(outcome, Outcome::Acquired { epoch: 1, session_present: false, .. }), "{outcome:?}");
    }
    scene.settle().await;
    for node in scene.nodes.values() {
        let holders = node
            .group
            .read(|state| ["c1", "c2", "c3"].map(|client| state.session(client).map(|session| session.holder)));
        assert_eq!(holders, [1, 2, 3].map(|id| Some(NodeId(id))));
        assert_eq!(node.diary.outcomes.lock().len(), 1);
        let ups = node.diary.effects.lock().iter().filter(|effect| matches!(effect, Effect::NodeUp { .. })).count();
        assert_eq!(ups, 3);
        until("a grant", || node.diary.is_granted()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_come_in_the_order_of_their_proposals() {
    let scene = Scene::of(3).await;
    const COUNT: u64 = 5000;
    for ticket in 0..COUNT {
        for node in scene.nodes.values() {
            node.group.propose([(ticket, acquire(&format!("{}-{ticket}", node.id.0)))]);
        }
        if ticket % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for node in scene.nodes.values() {
        until("all outcomes", || node.diary.outcomes.lock().len() as u64 == COUNT).await;
        let outcomes = node.diary.outcomes.lock().clone();
        assert!(outcomes.iter().map(|(ticket, _)| *ticket).eq(0..COUNT));
        assert!(outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Acquired { .. })));
    }
    scene.settle().await;
    assert_eq!(scene.nodes[&1].group.read(|state| state.counts().leases), 3 * COUNT as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_a_cluster_at_once_when_it_is_told_so() {
    let mut scene = Scene::default();
    let node = scene.start_with(Options { expected_size: 1, ..options(1, "n1", 1) }).await.expect("starts");
    assert_eq!(node.register().await, 1);
    assert!(matches!(node.ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    until("a grant", || node.diary.is_granted()).await;
    let status = node.group.status();
    assert!(status.quorum && status.cluster_id != 0 && status.failed.is_none(), "{status:?}");
    assert_eq!(node.register().await, 1, "it is registered already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_nodes_found_nothing() {
    let mut scene = Scene::default();
    let one = scene.start(1, None).await;
    scene.start(2, None).await;
    let soon = tokio::time::Instant::now() + std::time::Duration::from_millis(600);
    let refused = one.group.register(soon).await.expect_err("there is no cluster");
    assert!(refused.to_string().contains("in no cluster, and sees 1 others"), "{refused}");
    scene.start(3, None).await;
    assert_eq!(one.register().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_routes_with_an_index_tells_all_others() {
    let scene = Scene::of(3).await;
    let node = &scene.nodes[&1];
    let outcome = node.ask(1, Command::Routes { add: vec!["a/b".into()], remove: vec![] }).await;
    let Outcome::Routed { index } = outcome else { panic!("{outcome:?}") };
    scene.settle().await;
    scene.nodes[&2].group.tell_applied(index);
    for other in [1, 3] {
        until("it is heard", || scene.nodes[&other].diary.heard.lock().contains(&(NodeId(2), index))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_not_linked_hears_later_what_the_others_route_with() {
    let scene = Scene::of(3).await;
    scene.settle().await;
    let index = scene.nodes[&2].applied().expect("there is a log");
    let has_heard = |at: u128| scene.nodes[&at].diary.heard.lock().contains(&(NodeId(2), index));
    scene.link(2, 3, false);
    scene.nodes[&2].group.tell_applied(index);
    until("it is heard", || has_heard(1)).await;
    assert!(!has_heard(3));
    scene.link(2, 3, true);
    until("it is heard over the new link", || has_heard(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_taken_is_said() {
    let mut scene = Scene::default();
    let node = scene.start_with(Options { expected_size: 1, ..options(1, "n1", 1) }).await.expect("starts");
    assert_eq!(node.group.propose([(7, acquire("c"))]), [7], "it has no incarnation");
    node.register().await;
    let filters = (0..60).map(|_| "f".repeat(60_000).into()).collect();
    let large = Command::Routes { add: filters, remove: vec![] };
    assert_eq!(node.group.propose([(8, acquire("c")), (9, large), (10, acquire("d"))]), [9]);
    until("the others are answered", || node.diary.outcome(10).is_some()).await;
    assert!(node.diary.outcome(8).is_some() && node.diary.outcome(9).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_that_contradict_one_another_are_refused() {
    let mut scene = Scene::default();
    let impatient = Options { lease_ms: 800, ..options(1, "n1", 1) };
    assert!(matches!(scene.start_with(impatient).await.err(), Some(StartError::Times(_))));
    assert!(deadline() > tokio::time::Instant::now());
}
