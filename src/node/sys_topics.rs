//! The `$SYS` topics, retained, under the names that mosquitto gave them, so that existing exporters read them: the sums over all nodes that answer under `$SYS/broker/…`, and what this node
//! counts under `$SYS/brokers/NODE/…`. Texts, such as the version, are this node's in both places.
//!
//! Drops are there by reason too, under `publish/messages/dropped/`, refused connections under `connections/refused/`. The mean number of packets and bytes that wait
//! for sockets is what the queues and outboxes of all sessions hold.
//!
//! Owner: the task of [`run`]. What it last found is in [`Local`], for other nodes that ask.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_storage::Figures;

use crate::admin::Soon;
use crate::metrics::{DropReason, Metrics, RefusalGroup, ShardMetrics};
use crate::mqtt::{Message, QoS};
use crate::shard::inspecting::Census;
use crate::shard::mailbox::Event;

use super::admin_source::Local;
use super::process_figures;
use super::sys_load::Load;

/// Numbers by the end of their topics; those below `load/` in hundredths.
pub(super) type Numbers = Vec<(String, u64)>;

/// The other nodes of a cluster, as far as `$SYS` asks them.
pub(super) trait Others: Send + Sync {
    /// What those say that answer in time.
    fn numbers(&self) -> Soon<'_, Vec<Numbers>>;
}

/// Publishes the topics every `interval`, aligned to the clock, for ever. What has not changed is published all the same: a subscriber that came
/// late has the retained value, one that is there sees that the broker lives.
pub(super) async fn run(local: Arc<Local>, interval: Duration) {
    let mut node = Node { local, loads: HashMap::new(), clients_max: 0, heap_max: 0 };
    let interval_ms = (interval.as_millis() as u64).max(1);
    let mut secs = 0.0;
    loop {
        let own = node.numbers(secs).await;
        node.local.sys.lock().clone_from(&own);
        let others = match node.local.others.get() {
            Some(others) => others.numbers().await,
            None => Vec::new(),
        };
        node.publish(&own, &others);
        let wait = interval_ms - node.local.shared.clock.now() % interval_ms;
        let before = node.local.shared.clock.now();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        secs = node.local.shared.clock.now().saturating_sub(before) as f64 / 1000.0;
    }
}

struct Node {
    local: Arc<Local>,
    loads: HashMap<&'static str, Load>,
    clients_max: u64,
    heap_max: u64,
}

impl Node {
    fn publish(&self, own: &Numbers, others: &[Numbers]) {
        let brokers = format!("$SYS/brokers/{}", self.local.name);
        let texts = self.texts();
        for (name, text) in &texts {
            self.send(format!("$SYS/broker/{name}"), text.clone());
            self.send(format!("{brokers}/{name}"), text.clone());
        }
        for (name, value) in own {
            self.send(format!("{brokers}/{name}"), in_words(name, *value));
        }
        for (name, value) in sums(own, others) {
            self.send(format!("$SYS/broker/{name}"), in_words(name, value));
        }
    }

    fn send(&self, topic: String, value: String) {
        let message = message(topic, value, self.local.shared.limits.retain_available);
        self.local.shared.mailboxes[0].push(Event::Accept(Box::new(message)));
    }

    /// What cannot be added up. `ready` is what a load balancer would ask: whether the node takes everything that it should.
    fn texts(&self) -> Vec<(&'static str, String)> {
        let shared = &self.local.shared;
        let mut texts = vec![
            ("version", format!("holdfast {}", env!("CARGO_PKG_VERSION"))),
            ("uptime", format!("{} seconds", shared.clock.uptime_ms() / 1000)),
        ];
        if let Some(storage) = &self.local.storage {
            let Figures { sync_secs, sync_secs_max, .. } = storage.figures();
            let level = &shared.storage_level;
            texts.push(("ready", (!level.is_short()).to_string()));
            texts.push(("storage/state", level.label().to_owned()));
            texts.push(("storage/fsync/seconds", format!("{sync_secs:.3}")));
            texts.push(("storage/fsync/seconds/max", format!("{sync_secs_max:.3}")));
        }
        texts
    }

    /// `secs`: since the last time.
    async fn numbers(&mut self, secs: f64) -> Numbers {
        let census = self.local.count_queues().await;
        let local = self.local.clone();
        let mut all = Numbers::new();
        let mut number = |name: &str, value: u64| all.push((name.to_owned(), value));
        self.clients(&mut number);
        messages(&local.shared.metrics, &mut number);
        stored(&local, &census, &mut number);
        let heap = process_figures::resident_bytes();
        self.heap_max = self.heap_max.max(heap);
        number("heap/current", heap);
        number("heap/maximum", self.heap_max);
        let sockets: usize = local.listeners.iter().map(|listener| listener.connections()).sum();
        number("connections/socket/count", sockets as u64);
        number("connections/refused", RefusalGroup::ALL.iter().map(|group| local.refusals.get(*group)).sum());
        for group in RefusalGroup::ALL {
            number(&format!("connections/refused/{}", group.label()), local.refusals.get(group));
        }
        storage(&local, &mut number);
        self.loads(secs, &mut number);
        all
    }

    fn clients(&mut self, number: &mut impl FnMut(&str, u64)) {
        let metrics = &self.local.shared.metrics;
        let connected = metrics.sum(|shard| &shard.connections);
        let sessions = metrics.sum(|shard| &shard.sessions);
        let (away, total) = (sessions.saturating_sub(connected), sessions.max(connected));
        self.clients_max = self.clients_max.max(total);
        number("clients/connected", connected);
        number("clients/active", connected);
        number("clients/disconnected", away);
        number("clients/inactive", away);
        number("clients/total", total);
        number("clients/maximum", self.clients_max);
        number("clients/expired", metrics.sum(|shard| &shard.sessions_expired));
        number("connections/accepted", metrics.sum(|shard| &shard.connections_accepted));
        number("connections/closed", metrics.closed());
        number("connections/protocol_errors", metrics.sum(|shard| &shard.protocol_errors));
        number("sessions/ended", metrics.sum(|shard| &shard.sessions_ended));
        number("sessions/taken_over", metrics.sum(|shard| &shard.sessions_taken_over));
        number("sessions/resumed", metrics.sum(|shard| &shard.sessions_resumed));
        number("wills/published", metrics.sum(|shard| &shard.wills_published));
        number("shards/stalls", metrics.sum(|shard| &shard.mailbox_stalls));
        number("subscriptions/count", metrics.sum(|shard| &shard.subscriptions));
        number("shared_subscriptions/count", self.local.shared.index.share_members_len() as u64);
    }

    fn loads(&mut self, secs: f64, number: &mut impl FnMut(&str, u64)) {
        let metrics = &self.local.shared.metrics;
        let sockets = self
            .local
            .listeners
            .iter()
            .map(|listener| listener.counts.accepted.load(std::sync::atomic::Ordering::Relaxed));
        let counts = [
            ("connections", metrics.sum(|shard| &shard.connections_accepted)),
            ("sockets", sockets.sum()),
            ("messages/received", metrics.packets_received()),
            ("messages/sent", metrics.packets_sent()),
            ("publish/received", by_qos(metrics, |shard| &shard.publish_received)),
            ("publish/sent", by_qos(metrics, |shard| &shard.publish_sent)),
            ("publish/dropped", DropReason::ALL.iter().map(|reason| metrics.dropped(*reason)).sum()),
            ("bytes/received", metrics.sum(|shard| &shard.bytes_received)),
            ("bytes/sent", metrics.sum(|shard| &shard.bytes_sent)),
        ];
        for (name, count) in counts {
            for (window, average) in self.loads.entry(name).or_default().advance(count, secs) {
                number(&format!("load/{name}/{window}"), (average * 100.0) as u64);
            }
        }
    }
}

fn messages(metrics: &Metrics, number: &mut impl FnMut(&str, u64)) {
    number("messages/received", metrics.packets_received());
    number("messages/sent", metrics.packets_sent());
    number("bytes/received", metrics.sum(|shard| &shard.bytes_received));
    number("bytes/sent", metrics.sum(|shard| &shard.bytes_sent));
    number("publish/messages/received", by_qos(metrics, |shard| &shard.publish_received));
    number("publish/messages/sent", by_qos(metrics, |shard| &shard.publish_sent));
    number("publish/bytes/received", metrics.sum(|shard| &shard.publish_bytes_received));
    number("publish/bytes/sent", metrics.sum(|shard| &shard.publish_bytes_sent));
    number("publish/messages/dropped", DropReason::ALL.iter().map(|reason| metrics.dropped(*reason)).sum());
    for reason in DropReason::ALL {
        number(&format!("publish/messages/dropped/{}", reason.label()), metrics.dropped(reason));
    }
}

fn stored(local: &Local, shards: &[Census], number: &mut impl FnMut(&str, u64)) {
    let sum = |pick: fn(&Census) -> u64| shards.iter().map(pick).sum::<u64>();
    let (queued, queued_bytes) = (sum(|shard| shard.queue_messages), sum(|shard| shard.queue_bytes));
    let retained = local.shared.retained.read();
    let (count, bytes) = (retained.len() as u64, retained.bytes() as u64);
    number("retained messages/count", count);
    number("retained messages/tombstones", retained.tombstones() as u64);
    number("retained messages/tombstones/evicted", retained.tombstones_evicted());
    drop(retained);
    number("retained messages/stamps/refused", local.shared.hybrid.refused());
    number("messages/stored", count + queued);
    number("store/messages/count", count + queued);
    number("store/messages/bytes", bytes + queued_bytes);
    number("packet/out/count", queued);
    number("packet/out/bytes", sum(|shard| shard.outbox_bytes));
}

/// How the disk is doing.
fn storage(local: &Local, number: &mut impl FnMut(&str, u64)) {
    let Some(storage) = &local.storage else { return };
    let Figures { disk_bytes, live_bytes, items, early_deletions, commits, batches, cleaned_bytes, errors, .. } =
        storage.figures();
    number("storage/bytes", disk_bytes);
    number("storage/bytes/live", live_bytes);
    number("storage/bytes/cleaned", cleaned_bytes);
    number("storage/items", items);
    number("storage/deletions/early", early_deletions);
    number("storage/commits", commits);
    number("storage/batches", batches);
    number("storage/errors", errors);
}

fn by_qos(metrics: &Metrics, pick: fn(&ShardMetrics) -> &[crate::metrics::Counter; 3]) -> u64 {
    metrics.shards.iter().flat_map(|shard| pick(shard).iter().map(crate::metrics::Counter::get)).sum()
}

/// What all nodes have together, as far as they answer.
fn sums<'n>(own: &'n Numbers, others: &'n [Numbers]) -> BTreeMap<&'n str, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in std::iter::once(own).chain(others).flatten() {
        let sum: &mut u64 = sums.entry(name.as_str()).or_default();
        *sum = sum.saturating_add(*value);
    }
    sums
}

fn in_words(name: &str, value: u64) -> String {
    if name.starts_with("load/") { format!("{:.2}", value as f64 / 100.0) } else { value.to_string() }
}

fn message(topic: String, value: String, retained: bool) -> Message {
    Message {
        id: Default::default(),
        stamp: 0,
        topic: topic.into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_add_up_and_averages_have_a_fraction() {
        let own = vec![("a".to_owned(), 1), ("load/x/1min".to_owned(), 150)];
        let other = vec![("a".to_owned(), 2), ("load/x/1min".to_owned(), 25), ("b".to_owned(), u64::MAX)];
        let others = [other.clone(), other];
        let sums = sums(&own, &others);
        assert_eq!(sums.into_iter().collect::<Vec<_>>(), [("a", 5), ("b", u64::MAX), ("load/x/1min", 200)]);
        assert_eq!((in_words("load/x/1min", 205), in_words("a", 205)), ("2.05".to_owned(), "205".to_owned()));
    }
}
