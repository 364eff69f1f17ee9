//! Checks of a node whose shards are only imagined, and the order of what shards answer.

use crate::config::Config;

use super::*;

fn local(shards: usize) -> (Local, watch::Sender<bool>) {
    let (stop, stopping) = watch::channel(false);
    let (_, opened) = watch::channel(true);
    let shared = Arc::new(crate::node::share(&Config::default_loopback(), holdfast_raft::NodeId(1), shards, (0, 0)));
    let local = Local {
        access: Arc::new(crate::access::Access::new(None).unwrap()),
        draining: Draining::new(shared.clone(), Vec::new(), crate::config::Shutdown::default()),
        shared,
        refusals: Arc::default(),
        listeners: Vec::new(),
        storage: None,
        name: "n1".into(),
        opened,
        stopping,
        census: Default::default(),
        sys: Default::default(),
        others: Default::default(),
    };
    (local, stop)
}

fn failed(checks: &[view::Check]) -> Vec<&str> {
    checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect()
}

#[test]
fn a_shard_that_has_not_begun_is_no_dead_one() {
    let (local, _stop) = local(2);
    assert!(failed(&local.live()).is_empty());
    assert_eq!(failed(&local.ready()), ["started"]);
    let now = local.shared.clock.now();
    local.shared.metrics.shards[0].beat_at.set(now);
    assert_eq!(local.startup()[0].detail, "reading their sessions: shard 1");
    local.shared.metrics.shards[1].beat_at.set(now);
    assert!(failed(&local.ready()).is_empty());
    local.shared.metrics.shards[1].beat_at.set(now - BEAT_LATE_MS - 1);
    assert_eq!(failed(&local.live()), ["event_loops"]);
    assert_eq!(failed(&local.ready()), ["event_loops"]);
    assert!(failed(&local.startup()).is_empty(), "once good, always good");
}

#[test]
fn listeners_that_are_not_open_yet_are_not_said_to_be() {
    let (mut local, _stop) = local(1);
    local.shared.metrics.shards[0].beat_at.set(local.shared.clock.now());
    let (open, opened) = watch::channel(false);
    local.opened = opened;
    let listeners = |local: &Local| local.ready().into_iter().find(|check| check.name == "listeners");
    assert!(listeners(&local).is_some_and(|check| !check.ok && check.detail.starts_with("not yet open")));
    open.send(true).unwrap();
    assert!(failed(&local.ready()).is_empty());
}

#[test]
fn a_node_that_stops_or_has_no_room_is_not_ready() {
    let (local, stop) = local(1);
    local.shared.metrics.shards[0].beat_at.set(local.shared.clock.now());
    local.shared.storage_level.set(&holdfast_storage::State::Low);
    assert_eq!(failed(&local.ready()), ["storage"]);
    local.shared.storage_level.set(&holdfast_storage::State::Ok);
    stop.send(true).unwrap();
    assert_eq!(failed(&local.ready()), ["listeners", "not_stopping"]);
    assert!(failed(&local.live()).is_empty(), "a restart would not help");
}

fn session(id: &str, epoch: u64) -> (SessionView, ShardId) {
    let view = SessionView {
        client_id: id.into(),
        epoch,
        expiry_secs: 0,
        subscriptions: 0,
        queue_messages: 0,
        queue_bytes: 0,
        inflight: 0,
        dropped: 0,
        connection: None,
    };
    (view, 0)
}

#[test]
fn the_smallest_of_all_slices_are_kept_and_the_later_of_two() {
    let mut found = Vec::new();
    let ids = |found: &[(SessionView, ShardId)]| {
        found.iter().map(|(session, _)| format!("{}{}", session.client_id, session.epoch)).collect::<Vec<_>>()
    };
    merge(&mut found, [session("b", 1), session("d", 1)].into_iter(), 3);
    merge(&mut found, [session("a", 1), session("b", 2), session("e", 1)].into_iter(), 3);
    assert_eq!(ids(&found), ["a1", "b2", "d1"]);
    merge(&mut found, std::iter::empty(), 3);
    assert_eq!(found.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_does_not_answer_is_an_error_and_holds_nobody_for_long() {
    let (local, _stop) = local(1);
    let asked = PageRequest { limit: 10, after: None };
    let trouble = local.clients(&asked).await.unwrap_err();
    assert_eq!((trouble.status, trouble.code), (503, "shard_timeout"));
    assert_eq!(local.kick("a".into()).await.unwrap_err().code, "shard_timeout");
    let mut out = Exposition::default();
    local.metrics(&mut out).await;
    assert!(out.finish().contains("\nholdfast_queue_messages 0\n"), "what is known is told");
}
