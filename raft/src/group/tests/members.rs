//! The group while nodes come and go.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::Instant;

use super::scene::{Scene, acquire, deadline, options, until};
use crate::command::{NodeId, Outcome};
use crate::group::{LeaveError, RegisterError};

fn voters(scene: &Scene, at: u128) -> Vec<u128> {
    let status = scene.nodes[&at].group.status();
    status.members.iter().filter(|member| member.voter).map(|member| member.id.0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_node_joins_by_itself_and_becomes_a_voter() {
    let mut scene = Scene::of(3).await;
    scene.nodes[&1].ask(1, acquire("c")).await;
    let late = scene.start(4, None).await;
    assert_eq!(late.register().await, 1);
    until("it is a voter", || voters(&scene, 1) == [1, 2, 3, 4]).await;
    assert!(matches!(late.ask(1, acquire("d")).await, Outcome::Acquired { .. }));
    scene.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_five_voters_at_most() {
    let mut scene = Scene::of(3).await;
    for id in 4..=6 {
        scene.start(id, None).await;
        scene.nodes[&id].register().await;
        until("it is a member", || scene.nodes[&1].group.status().members.len() == id as usize).await;
        until("voters", || voters(&scene, 1).len() == (id as usize).min(5)).await;
    }
    assert!(matches!(scene.nodes[&6].ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    scene.settle().await;
}

/// A machine that is busy may be late by more than a lease between any two steps of a node that is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incarnation_that_ends_before_it_is_seen_is_followed_by_another() {
    let mut scene = Scene::of(3).await;
    let late = scene.start(4, None).await;
    late.is_fit.store(false, Ordering::SeqCst);
    let mut registering = pin!(late.register());
    let waits = poll_fn(|cx| Poll::Ready(registering.as_mut().poll(cx).is_pending())).await;
    assert!(waits, "it takes a while");
    until("the first one is over", || late.diary.is_ended()).await;
    late.is_fit.store(true, Ordering::SeqCst);
    assert!(registering.await > 1);
    assert!(matches!(late.ask(1, acquire("c")).await, Outcome::Acquired { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_name_under_a_new_id_replaces_the_dead_one() {
    let mut scene = Scene::of(3).await;
    scene.nodes[&3].ask(1, acquire("c")).await;
    scene.kill(3).await;
    let fresh = scene.start_with(options(9, "n3", 77)).await.expect("starts");
    assert_eq!(fresh.register().await, 1);
    until("it is a voter in its place", || voters(&scene, 1) == [1, 2, 9]).await;
    until("the old one is forgotten", || scene.nodes[&1].group.read(|state| state.node(NodeId(3)).is_none())).await;
    let outcome = fresh.ask(1, acquire("c")).await;
    assert!(matches!(outcome, Outcome::Acquired { session_present: false, .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_in_use_is_not_given_twice() {
    let mut scene = Scene::of(3).await;
    let double = scene.start_with(options(9, "n3", 77)).await.expect("starts");
    let soon = tokio::time::Instant::now() + Duration::from_millis(1500);
    let told = double.group.register(soon).await.expect_err("the name is in use").to_string();
    assert!(told.contains("is alive under the name n3"), "{told}");
    assert_eq!(voters(&scene, 1), [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_leaves_and_its_sessions_end() {
    for leads in [false, true] {
        let mut scene = Scene::of(3).await;
        scene.start(4, None).await;
        scene.nodes[&4].register().await;
        until("four voters", || voters(&scene, 1).len() == 4).await;
        let leader = scene.leader(&[1, 2, 3, 4]).await;
        let gone = if leads { leader } else { leader % 4 + 1 };
        let stays = gone % 4 + 1;
        scene.nodes[&gone].ask(1, acquire("c")).await;
        scene.nodes[&gone].group.leave(deadline()).await.expect("leaves");
        assert!(scene.nodes[&gone].diary.is_ended());
        scene.kill(gone).await;
        until("three are left", || voters(&scene, stays).len() == 3 && !voters(&scene, stays).contains(&gone)).await;
        let forgotten = || scene.nodes[&stays].group.read(|state| state.node(NodeId(gone)).is_none());
        until("it is forgotten", forgotten).await;
        let outcome = scene.nodes[&stays].ask(1, acquire("c")).await;
        assert!(matches!(outcome, Outcome::Acquired { session_present: false, .. }), "{outcome:?}");
    }
}

/// Nobody sends it anything of the log any more, so it cannot know from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_left_without_hearing_of_it_asks_the_others() {
    let mut scene = Scene::of(3).await;
    scene.start(4, None).await.register().await;
    until("four voters", || voters(&scene, 1).len() == 4).await;
    let leader = scene.leader(&[1, 2, 3, 4]).await;
    let gone = leader % 4 + 1;
    let group = scene.nodes[&gone].group.clone();
    scene.net.deaf.lock().insert(NodeId(gone));
    let leaving = tokio::spawn(async move { group.leave(deadline()).await });
    until("it is out", || voters(&scene, leader).len() == 3 && !voters(&scene, leader).contains(&gone)).await;
    until("it knows no leader", || scene.nodes[&gone].group.status().leader.is_none()).await;
    scene.net.deaf.lock().remove(&NodeId(gone));
    leaving.await.expect("runs").expect("it has left");
}

/// Its wish to be a member is still fresh; it runs on, and knows that it has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_right_after_it_joined_stays_away() {
    let mut scene = Scene::of(3).await;
    let late = scene.start(4, None).await;
    late.register().await;
    until("it is a voter", || voters(&scene, 1).contains(&4)).await;
    scene.nodes[&4].group.leave(deadline()).await.expect("leaves");
    for number in 0..50 {
        scene.nodes[&1].ask(number, acquire("c")).await;
        let members = scene.nodes[&1].group.status().members;
        assert!(members.iter().all(|member| member.id != NodeId(4)), "{members:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_dead_are_taken_out_by_others() {
    let mut scene = Scene::of(3).await;
    let refused = scene.nodes[&1].group.force_leave("n3", deadline()).await;
    assert!(matches!(refused, Err(LeaveError::Refused(ref why)) if why.contains("alive")), "{refused:?}");
    let refused = scene.nodes[&1].group.force_leave("n9", deadline()).await;
    assert!(matches!(refused, Err(LeaveError::Refused(ref why)) if why.contains("no member")), "{refused:?}");
    scene.kill(3).await;
    until("it is expired", || scene.nodes[&1].group.read(|state| state.live_nodes().count() == 2)).await;
    scene.nodes[&2].group.force_leave("n3", deadline()).await.expect("it is dead");
    until("it is gone", || voters(&scene, 1) == [1, 2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_taken_out_hears_of_it_from_a_majority() {
    let scene = Scene::of(3).await;
    for other in [1, 2] {
        scene.link(other, 3, false);
    }
    until("it is expired", || scene.nodes[&1].group.read(|state| state.live_nodes().count() == 2)).await;
    scene.nodes[&1].group.force_leave("n3", deadline()).await.expect("it is dead");
    let out = scene.nodes[&3].clone();
    until("it has ended", || out.diary.is_ended()).await;
    scene.link(1, 3, true);
    until("one says it", || out.group.why_not_registered().contains("no member any more")).await;
    let soon = Instant::now() + Duration::from_millis(200);
    assert!(matches!(out.group.register(soon).await, Err(RegisterError::Deadline(_))), "one may be wrong");
    scene.link(2, 3, true);
    assert_eq!(out.group.register(deadline()).await, Err(RegisterError::Removed));
}

/// Its lease still runs, and it is no voter to count on. What is tried all the same without it can be neither decided nor undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_to_go_just_after_another_has_died_is_refused_and_all_serve_on() {
    for leads in [true, false] {
        let mut scene = Scene::of(3).await;
        let leader = scene.leader(&[1, 2, 3]).await;
        let dies = if leads { leader } else { leader % 3 + 1 };
        let (goes, stays) = (dies % 3 + 1, (dies + 1) % 3 + 1);
        scene.kill(dies).await;
        let refused = scene.nodes[&goes].group.leave(deadline()).await;
        assert!(matches!(refused, Err(LeaveError::Refused(ref why)) if why.contains("no majority")), "{refused:?}");
        assert_eq!(voters(&scene, stays), [1, 2, 3]);
        scene.register_all().await;
        for at in [goes, stays] {
            let outcome = scene.nodes[&at].ask(at as u64, acquire(&format!("c{at}"))).await;
            assert!(matches!(outcome, Outcome::Acquired { .. }), "{outcome:?}");
        }
        // With the dead one taken out there are two, and then one may go.
        until("it is expired", || scene.nodes[&stays].group.read(|state| state.live_nodes().count() == 2)).await;
        scene.nodes[&stays].group.force_leave(&format!("n{dies}"), deadline()).await.expect("it is dead");
        scene.nodes[&goes].group.leave(deadline()).await.expect("leaves");
        until("one is left", || voters(&scene, stays) == [stays]).await;
    }
}

/// Whose first entry is decided and whose second one never came: here, because nobody waits for it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_left_half_done_is_ended() {
    for is_dead in [false, true] {
        let mut scene = Scene::of(3).await;
        let mut leader = scene.leader(&[1, 2, 3]).await;
        let goes = leader % 3 + 1;
        if is_dead {
            scene.kill(goes).await;
            let stays = (leader + 1) % 3 + 1;
            until("it is expired", || scene.nodes[&stays].group.read(|state| state.live_nodes().count() == 2)).await;
            leader = scene.leader(&[leader, stays]).await;
        }
        let left: Vec<u128> = [1, 2, 3].into_iter().filter(|id| *id != goes).collect();
        scene.net.delay(Duration::from_millis(30));
        let group = scene.nodes[&leader].group.clone();
        let (raft, to) = (group.0.raft.clone(), left.iter().copied().collect());
        let change =
            tokio::spawn(async move { raft.change_membership(ChangeMembers::ReplaceAllVoters(to), false).await });
        until("it has begun", || group.0.members().configs.len() == 2).await;
        change.abort();
        scene.net.delay(Duration::ZERO);
        let wanted = if is_dead { left } else { vec![1, 2, 3] };
        let is_ended = || group.0.members().configs.len() == 1 && voters(&scene, leader) == wanted;
        until("it has ended", is_ended).await;
        assert!(matches!(scene.nodes[&leader].ask(1, acquire("c")).await, Outcome::Acquired { .. }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_the_log_does_not_grow_and_nobody_is_taken_out() {
    let scene = Scene::of(3).await;
    let leader = scene.leader(&[1, 2, 3]).await;
    let node = scene.nodes[&leader].clone();
    scene.settle().await;
    scene.isolate(leader, true);
    let before = node.group.status().last_log.expect("there is a log");
    node.group.propose([(1, acquire("c"))]);
    until("it knows of no quorum", || !node.group.status().quorum).await;
    let refused = node.group.force_leave(&format!("n{}", leader % 3 + 1), deadline()).await;
    assert!(matches!(refused, Err(LeaveError::Refused(ref why)) if why.contains("there is no quorum")), "{refused:?}");
    until("its incarnation has ended", || node.diary.is_ended()).await;
    // Which takes many renewals, and as many attempts to register.
    let soon = Instant::now() + Duration::from_millis(options(1, "", 1).lease_ms);
    assert!(matches!(node.group.register(soon).await, Err(RegisterError::Deadline(_))));
    let after = node.group.status();
    assert_eq!(after.leader, Some(node.id), "it has heard of no other one");
    let grown = after.last_log.expect("there is a log") - before;
    assert!((1..=3).contains(&grown), "what it proposes itself, a batch and a registration, and not {grown} entries");
    scene.isolate(leader, false);
    scene.register_all().await;
    assert!(matches!(node.ask(2, acquire("d")).await, Outcome::Acquired { .. }));
    scene.settle().await;
}
