//! The `$SYS` topics: what the node counts, published retained under the names that mosquitto gave them, so that existing
//! exporters read them. Drops are there by reason too, under `$SYS/broker/publish/messages/dropped/`, refused connections
//! under `$SYS/broker/connections/refused/`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_storage::{Figures, Storage};

use crate::metrics::{DropReason, Metrics, RefusalGroup, Refusals};
use crate::mqtt::{Message, QoS};
use crate::shard::Shared;
use crate::shard::mailbox::Event;

/// Publishes the topics every `interval`, for ever. What has not changed is published all the same: a subscriber that came
/// late has the retained value, one that is there sees that the broker lives.
pub(super) async fn run(shared: Arc<Shared>, refusals: Arc<Refusals>, storage: Option<Storage>, interval: Duration) {
    let mut tick = tokio::time::interval(interval);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let mut topics = topics(&shared, &refusals);
        if let Some(storage) = &storage {
            topics.extend(storage_topics(&shared, storage));
        }
        for (name, value) in topics {
            let message = message(&name, value, shared.limits.retain_available);
            shared.mailboxes[0].push(Event::Accept(Box::new(message)));
        }
    }
}

fn message(name: &str, value: String, retained: bool) -> Message {
    Message {
        id: Default::default(),
        stamp: 0,
        topic: format!("$SYS/broker/{name}").into(),
        payload: Bytes::from(value),
        properties: Bytes::new(),
        qos: QoS::AtMostOnce,
        retain: retained,
        expires_at: None,
        publisher: "".into(),
        name: None,
        will: 0,
    }
}

fn topics(shared: &Shared, refusals: &Refusals) -> Vec<(String, String)> {
    let metrics = &shared.metrics;
    let uptime = shared.clock.uptime_ms() / 1000;
    let mut topics = vec![
        ("version".to_owned(), format!("holdfast {}", env!("CARGO_PKG_VERSION"))),
        ("uptime".to_owned(), format!("{uptime} seconds")),
    ];
    let mut number = |name: &str, value: u64| topics.push((name.to_owned(), value.to_string()));
    let connected = metrics.sum(|shard| &shard.connections);
    let sessions = metrics.sum(|shard| &shard.sessions);
    number("clients/connected", connected);
    number("clients/active", connected);
    number("clients/disconnected", sessions.saturating_sub(connected));
    number("clients/inactive", sessions.saturating_sub(connected));
    number("clients/total", sessions.max(connected));
    number("messages/received", metrics.sum(|shard| &shard.packets_received));
    number("bytes/received", metrics.sum(|shard| &shard.bytes_received));
    number("bytes/sent", metrics.sum(|shard| &shard.bytes_sent));
    number("connections/accepted", metrics.sum(|shard| &shard.connections_accepted));
    number("connections/closed", metrics.sum(|shard| &shard.connections_closed));
    number("connections/protocol_errors", metrics.sum(|shard| &shard.protocol_errors));
    number("sessions/ended", metrics.sum(|shard| &shard.sessions_ended));
    number("sessions/taken_over", metrics.sum(|shard| &shard.sessions_taken_over));
    number("sessions/resumed", metrics.sum(|shard| &shard.sessions_resumed));
    number("wills/published", metrics.sum(|shard| &shard.wills_published));
    number("shards/stalls", metrics.sum(|shard| &shard.mailbox_stalls));
    number("publish/messages/received", by_qos(metrics, |shard, qos| shard.publish_received[qos].get()));
    number("publish/messages/sent", by_qos(metrics, |shard, qos| shard.publish_sent[qos].get()));
    number("publish/messages/dropped", DropReason::ALL.iter().map(|reason| metrics.dropped(*reason)).sum());
    for reason in DropReason::ALL {
        number(&format!("publish/messages/dropped/{}", reason.label()), metrics.dropped(reason));
    }
    number("connections/refused", RefusalGroup::ALL.iter().map(|group| refusals.get(*group)).sum());
    for group in RefusalGroup::ALL {
        number(&format!("connections/refused/{}", group.label()), refusals.get(group));
    }
    number("subscriptions/count", metrics.sum(|shard| &shard.subscriptions));
    let retained = shared.retained.read();
    number("retained messages/count", retained.len() as u64);
    number("retained messages/tombstones", retained.tombstones() as u64);
    number("retained messages/tombstones/evicted", retained.tombstones_evicted());
    drop(retained);
    number("retained messages/stamps/refused", shared.hybrid.refused());
    topics
}

/// How the disk is doing. `ready` is what a load balancer would ask: whether the node takes everything that it should.
fn storage_topics(shared: &Shared, storage: &Storage) -> Vec<(String, String)> {
    let Figures {
        disk_bytes,
        live_bytes,
        items,
        early_deletions,
        commits,
        batches,
        sync_secs,
        sync_secs_max,
        cleaned_bytes,
        errors,
        ..
    } = storage.figures();
    let level = &shared.storage_level;
    let topics = [
        ("ready", (!level.is_short()).to_string()),
        ("storage/state", level.label().to_owned()),
        ("storage/bytes", disk_bytes.to_string()),
        ("storage/bytes/live", live_bytes.to_string()),
        ("storage/bytes/cleaned", cleaned_bytes.to_string()),
        ("storage/items", items.to_string()),
        ("storage/deletions/early", early_deletions.to_string()),
        ("storage/commits", commits.to_string()),
        ("storage/batches", batches.to_string()),
        ("storage/fsync/seconds", format!("{sync_secs:.3}")),
        ("storage/fsync/seconds/max", format!("{sync_secs_max:.3}")),
        ("storage/errors", errors.to_string()),
    ];
    topics.map(|(name, value)| (name.to_owned(), value)).into()
}

fn by_qos(metrics: &Metrics, count: impl Fn(&crate::metrics::ShardMetrics, usize) -> u64) -> u64 {
    metrics.shards.iter().map(|shard| (0..3).map(|qos| count(shard, qos)).sum::<u64>()).sum()
}
