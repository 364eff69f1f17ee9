//! The group while nodes die, freeze and are cut off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::raft::AppendEntriesRequest;
use openraft::{CommittedLeaderId, EntryPayload};
use tokio::time::Instant;

use super::scene::{Scene, acquire, deadline, detach, options, until};
use crate::command::{Command, Effect, NodeId, Outcome};
use crate::entry::{Batch, BatchOrigin, Entry, LogId};
use crate::group::RegisterError;
use crate::state_machine::encode_commands;
use crate::wire::{self, Control, Lane, Message};

const ALL: [u128; 3] = [1, 2, 3];

fn others(than: u128) -> Vec<u128> {
    ALL.into_iter().filter(|id| *id != than).collect()
}

/// Whether `node` was told that `dead` is down, and when its state says that it died.
fn saw_down(scene: &Scene, at: u128, dead: u128) -> bool {
    let effects = scene.nodes[&at].diary.effects.lock();
    effects.iter().any(|effect| matches!(effect, Effect::NodeDown { node, .. } if node.0 == dead))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_is_replaced_and_expired() {
    let mut scene = Scene::of(3).await;
    let leader = scene.leader(&ALL).await;
    scene.nodes[&leader].ask(1, acquire("of-the-dead")).await;
    scene.kill(leader).await;
    let left = others(leader);
    scene.leader(&left).await;
    let outcome = scene.nodes[&left[0]].ask(1, acquire("c")).await;
    assert!(matches!(outcome, Outcome::Acquired { .. }), "{outcome:?}");
    until("it is expired", || left.iter().all(|at| saw_down(&scene, *at, leader))).await;
    assert_eq!(scene.nodes[&left[1]].ask(1, acquire("of-the-dead")).await, Outcome::Missing);
    scene.settle().await;
    for id in left {
        assert!(!scene.nodes[&id].diary.is_ended(), "node {id} has gone on");
    }
}

/// Who hears that the incarnation is over registers anew, as after an expulsion; not here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_is_over_at_once_and_registers_no_more() {
    for stops_leader in [false, true] {
        let scene = Scene::of(3).await;
        let leader = scene.leader(&ALL).await;
        let stops = if stops_leader { leader } else { others(leader)[0] };
        let node = scene.nodes[&stops].clone();
        until("a grant", || node.diary.is_granted()).await;
        let began = Instant::now();
        let again = tokio::spawn({
            let node = node.clone();
            async move {
                until("it has ended", || node.diary.is_ended()).await;
                node.group.register(deadline()).await
            }
        });
        node.group.stop().await;
        let left = others(stops);
        let leads = |at: &u128| scene.nodes[at].group.status().leader.is_some_and(|leader| left.contains(&leader.0));
        until("another one leads", || left.iter().any(leads)).await;
        assert_eq!(again.await.expect("no panic"), Err(RegisterError::Stopped));
        until("the others know", || left.iter().all(|at| saw_down(&scene, *at, stops))).await;
        assert!(began.elapsed() < Duration::from_millis(options(1, "", 1).lease_ms), "nobody waits for a lease");
        for at in left {
            let last = scene.nodes[&at]
                .group
                .read(|state| state.node(NodeId(stops)).map(|node| (node.incarnation, node.live)));
            assert_eq!(last, Some((1, false)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_stops_before_it_is_expired_and_comes_back_under_a_new_incarnation() {
    for leads in [false, true] {
        let scene = Scene::of(3).await;
        let leader = scene.leader(&ALL).await;
        let cut = if leads { leader } else { others(leader)[0] };
        let node = scene.nodes[&cut].clone();
        node.ask(1, acquire("mine")).await;
        until("a grant", || node.diary.is_granted()).await;
        scene.isolate(cut, true);
        until("it is suspended", || !node.diary.is_granted()).await;
        let left = others(cut);
        until("it is expired", || left.iter().all(|at| saw_down(&scene, *at, cut))).await;
        assert!(!node.diary.is_granted());
        assert!(node.diary.last_granted() < crate::clock::boot_ms(), "every grant has ended by itself");
        // What it proposes now is lost with the incarnation.
        node.group.propose([(2, detach("mine", 1))]);
        scene.isolate(cut, false);
        until("it hears that it is over", || node.diary.is_ended()).await;
        assert_eq!(node.register().await, 2);
        until("a grant", || node.diary.is_granted()).await;
        let outcome = node.ask(3, acquire("mine")).await;
        assert!(matches!(outcome, Outcome::Acquired { session_present: true, .. }), "{outcome:?}");
        assert_eq!(node.diary.outcome(2), None);
        scene.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut_suspends_and_nothing_more() {
    let scene = Scene::of(3).await;
    let leader = scene.leader(&ALL).await;
    let cut = others(leader)[0];
    let node = scene.nodes[&cut].clone();
    until("a grant", || node.diary.is_granted()).await;
    scene.isolate(cut, true);
    until("it is suspended at once", || !node.diary.is_granted()).await;
    node.group.propose([(1, acquire("patient"))]);
    scene.isolate(cut, false);
    until("it goes on", || node.diary.is_granted()).await;
    until("its proposal is answered", || node.diary.outcome(1).is_some()).await;
    assert!(!node.diary.is_ended());
    assert_eq!(node.group.status().incarnation, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_all_stop_and_all_come_back() {
    let scene = Scene::of(3).await;
    for id in ALL {
        scene.nodes[&id].ask(1, acquire(&format!("c{id}"))).await;
    }
    for id in ALL {
        scene.isolate(id, true);
    }
    for node in scene.nodes.values() {
        until("it is suspended", || !node.diary.is_granted()).await;
        until("its grace is over", || node.diary.is_ended()).await;
    }
    for id in ALL {
        scene.isolate(id, false);
    }
    for node in scene.nodes.values() {
        assert_eq!(node.register().await, 2, "another run of the same node");
        until("a grant", || node.diary.is_granted()).await;
    }
    let outcome = scene.nodes[&1].ask(2, acquire("c1")).await;
    assert!(matches!(outcome, Outcome::Acquired { session_present: true, .. }), "{outcome:?}");
    scene.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_without_link_one_goes_and_is_registered_when_it_sees_all_again() {
    let scene = Scene::of(3).await;
    let leader = scene.leader(&ALL).await;
    let (small, large) = (others(leader)[0], others(leader)[1]);
    scene.link(small, large, false);
    // What the shards of both would notice.
    scene.nodes[&small].complaints.lock().push((NodeId(large), 1));
    scene.nodes[&large].complaints.lock().push((NodeId(small), 1));
    // Which of them, the scripts of node leases say: it depends on who leads by then.
    until("one of them is expired", || [small, large].iter().any(|id| saw_down(&scene, leader, *id))).await;
    let (gone, stays) = if saw_down(&scene, leader, large) { (large, small) } else { (small, large) };
    assert!(!scene.nodes[&gone].diary.is_granted());
    until("it hears of it", || scene.nodes[&gone].diary.is_ended()).await;
    assert!(!scene.nodes[&stays].diary.is_ended());
    let soon = tokio::time::Instant::now() + Duration::from_millis(700);
    scene.nodes[&gone].complaints.lock().clear();
    scene.nodes[&stays].complaints.lock().clear();
    scene.nodes[&gone].group.register(soon).await.expect_err("it does not see all live nodes");
    scene.link(small, large, true);
    assert_eq!(scene.nodes[&gone].register().await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_work_does_not_renew() {
    let scene = Scene::of(3).await;
    let leader = scene.leader(&ALL).await;
    let stuck = others(leader)[0];
    scene.nodes[&stuck].is_fit.store(false, Ordering::SeqCst);
    until("it is expired", || saw_down(&scene, leader, stuck)).await;
    assert!(scene.nodes[&stuck].diary.last_granted() < crate::clock::boot_ms());
    until("it hears of it", || scene.nodes[&stuck].diary.is_ended()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_survive_changes_of_the_leader_once_and_in_order() {
    const COUNT: u64 = 400;
    let mut scene = Scene::of(3).await;
    scene.net.delay(Duration::from_millis(2));
    let leader = scene.leader(&ALL).await;
    let proposer = scene.nodes[&others(leader)[0]].clone();
    let speaker = {
        let proposer = proposer.clone();
        tokio::spawn(async move {
            for ticket in 0..COUNT {
                proposer.group.propose([(ticket, acquire(&format!("c{}", ticket % 7)))]);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    };
    until("some are answered", || proposer.diary.outcomes.lock().len() > 50).await;
    scene.isolate(leader, true);
    until("more are answered", || proposer.diary.outcomes.lock().len() > 150).await;
    scene.isolate(leader, false);
    speaker.await.expect("speaks");
    until("all are answered", || proposer.diary.outcomes.lock().len() as u64 == COUNT).await;
    let outcomes = proposer.diary.outcomes.lock().clone();
    assert!(outcomes.iter().map(|(ticket, _)| *ticket).eq(0..COUNT), "each once and in order");
    // Every one of them has counted: an epoch for each.
    let epochs: u64 = proposer.group.read(|state| {
        (0..7).map(|client| state.session(&format!("c{client}")).map_or(0, |session| session.epoch)).sum()
    });
    assert_eq!(epochs, COUNT);
    scene.kill(leader).await;
    scene.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_are_refused_and_counted() {
    let scene = Scene::of(3).await;
    let node = &scene.nodes[&1];
    let before = node.group.status().refused_messages;
    for bytes in [vec![], vec![9; 40], vec![1; 40], vec![0xff; 3]] {
        node.group.receive(NodeId(2), crate::wire::Lane::Control, bytes.into());
    }
    assert!(node.group.status().refused_messages >= before + 3);
    assert!(matches!(node.ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    let _ = Arc::strong_count(&node.diary);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_node_could_send_on_does_not_enter_the_log() {
    let scene = Scene::of(3).await;
    let leader = scene.leader(&ALL).await;
    let (node, from) = (&scene.nodes[&leader], NodeId(others(leader)[0]));
    let cluster = node.group.status().cluster_id;
    let (before, last) = (node.group.status().refused_messages, node.group.status().last_log);
    let filters = (0..60).map(|_| "f".repeat(60_000).into()).collect();
    let commands = encode_commands(&[Command::Routes { add: filters, remove: Vec::new() }]);
    let origin = BatchOrigin::Node { node: from.0, incarnation: 1, number: 1 };
    let batch = Batch { at: 0, origin, count: 1, commands };
    let name = "n".repeat(60_000);
    let join = Control::Join { hops: 0, node: 77, name: name.clone() };
    let register =
        Control::Register { hops: 0, node: from.0, name, run: 9, versions: (1, 1), intact: true, linked: ALL.to_vec() };
    for message in [Message::Propose { hops: 0, batch }, Message::Control(join), Message::Control(register)] {
        node.group.receive(from, Lane::Control, wire::encode(cluster, &message));
    }
    assert_eq!(node.group.status().refused_messages, before + 3);
    assert!(matches!(node.ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    assert_eq!(node.group.status().last_log, last.map(|last| last + 1), "only that has come into the log");
    scene.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_with_a_gap_come_neither_into_memory_nor_to_disk() {
    let scene = Scene::of(3).await;
    let leader = scene.leader(&ALL).await;
    let node = &scene.nodes[&others(leader)[0]];
    scene.settle().await;
    let (term, last) = (node.group.status().term, node.group.status().last_log.expect("there is a log"));
    let id = |index| LogId::new(CommittedLeaderId::new(term, leader), index);
    let blank = |index| Entry { log_id: id(index), payload: EntryPayload::Blank };
    let refused = node.group.status().refused_messages;
    for (prev, index) in [(Some(id(last)), last + 3), (Some(id(u64::MAX)), 0), (Some(id(u64::MAX - 1)), u64::MAX)] {
        let vote = openraft::Vote::new_committed(term, leader);
        let rpc = AppendEntriesRequest { vote, prev_log_id: prev, entries: vec![blank(index)], leader_commit: None };
        let message = wire::encode(node.group.status().cluster_id, &Message::Append { request: 1, rpc });
        node.group.receive(NodeId(leader), Lane::Control, message);
    }
    assert_eq!(node.group.status().refused_messages, refused + 3);
    assert!(matches!(node.ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    scene.settle().await;
}
