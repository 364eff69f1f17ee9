//! What the admin port tells of this node: its sessions, by asking its shards; its counters; how it is.
//!
//! [`Local`] speaks for this node alone, whoever else there is; [`Alone`] is the whole answer of a node without a cluster, and `cluster::admin_source` that of a node with one. A shard is asked for one slice
//! after the other, never for two at a time by one request, and every answer has a deadline: a shard that hangs holds up nobody but the asker.

mod looking_back;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, oneshot, watch};
use tracing::info;

use holdfast_raft::{BANS_MAX, Ban, Command, NodeId, Outcome, Refusal};
use holdfast_storage::{Figures, Storage};

use crate::access::Access;
use crate::access::acl::{Action, Decision, Subject};
use crate::admin::{
    self, ClosedRequest, Exposition, Kind, PAGE_MAX, PageRequest, PublishRequest, RebalanceRequest, RetainedRequest,
    Soon, Source, Trouble, pages, view,
};
use crate::metrics::Refusals;
use crate::mqtt::ProtocolVersion;
use crate::shard::Shared;
use crate::shard::greeted::ListenerState;
use crate::shard::inspecting::{Census, ConnectionView, Found, Inspect, SessionView, Slice};
use crate::shard::mailbox::Event;
use crate::subscriptions::ShardId;

use super::control::StandalonePlane;
use super::draining::Draining;
use super::process_figures;
use super::sys_topics::{Numbers, Others};

/// How long a shard may take for one slice of an answer.
const SLICE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that a scrape counts through all queues; what was not reached by then is left out of it.
const CENSUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Whoever asks again within so many milliseconds gets the same census: scrapes of several cost no more than one.
const CENSUS_FRESH_MS: u64 = 1_000;

/// An event loop that has not come round for so long is stuck.
const BEAT_LATE_MS: u64 = 5_000;

/// Subscriptions of one client that are shown.
const SUBSCRIPTIONS_SHOWN: usize = 1_000;

/// This node, as far as it can speak for itself.
pub(super) struct Local {
    pub shared: Arc<Shared>,
    pub refusals: Arc<Refusals>,
    pub access: Arc<Access>,
    pub listeners: Vec<Arc<ListenerState>>,
    pub storage: Option<Storage>,
    pub name: Arc<str>,
    /// The listeners let clients in, or have done so.
    pub opened: watch::Receiver<bool>,
    /// The node is about to end.
    pub stopping: watch::Receiver<bool>,
    /// When the queues were last counted, and what was found.
    pub census: Mutex<Option<(u64, Vec<Census>)>>,
    pub draining: Arc<Draining>,
    /// What `$SYS` last said of this node, and how the others are asked for theirs; nothing on a node that is alone.
    pub sys: parking_lot::Mutex<Numbers>,
    pub others: OnceLock<Box<dyn Others>>,
}

impl Local {
    /// Whether the event loops come round, as far as they have begun to.
    pub fn live(&self) -> Vec<view::Check> {
        let now = self.shared.clock.now();
        let late = self.shards(|beat_at| beat_at > 0 && now.saturating_sub(beat_at) > BEAT_LATE_MS);
        let detail = if late.is_empty() { String::new() } else { format!("late: shard {late}") };
        vec![view::Check::new("event_loops", late.is_empty(), detail)]
    }

    /// The shards whose last beat is of a kind, by their numbers.
    fn shards(&self, is_meant: impl Fn(u64) -> bool) -> String {
        let shards = self.shared.metrics.shards.iter().enumerate();
        let meant = shards.filter(|(_, shard)| is_meant(shard.beat_at.get()));
        meant.map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Whether every shard has taken its sessions up and runs.
    pub fn startup(&self) -> Vec<view::Check> {
        let waiting = self.shards(|beat_at| beat_at == 0);
        let detail =
            if waiting.is_empty() { String::new() } else { format!("reading their sessions: shard {waiting}") };
        vec![view::Check::new("started", waiting.is_empty(), detail)]
    }

    /// Whether clients are let in, and what they send is taken.
    pub fn ready(&self) -> Vec<view::Check> {
        let mut checks = self.startup();
        checks.extend(self.live());
        let names: Vec<_> = self.listeners.iter().map(|listener| listener.config.name.as_str()).collect();
        let (opened, stopping) = (*self.opened.borrow(), *self.stopping.borrow());
        let detail = match (opened, stopping) {
            (_, true) => "closed".to_owned(),
            (false, false) => format!("not yet open: {}", names.join(", ")),
            (true, false) => names.join(", "),
        };
        checks.push(view::Check::new("listeners", opened && !stopping, detail));
        checks.push(view::Check::new(
            "not_stopping",
            !stopping,
            if stopping { "the node is about to end" } else { "" },
        ));
        let draining = self.draining.is_draining();
        let detail = if draining { "clients are to go to other nodes: `holdfast node undrain` ends that" } else { "" };
        checks.push(view::Check::new("not_draining", !draining, detail));
        let level = &self.shared.storage_level;
        if let Some(listener) = self.listeners.first() {
            let (now, max) = listener.node.connections();
            let detail = if max == usize::MAX { String::new() } else { format!("{now} of {max}") };
            checks.push(view::Check::new("connections", now < max, detail));
        }
        checks.push(view::Check::new("storage", !level.is_short(), level.label()));
        checks
    }

    pub fn load(&self) -> view::Load {
        self.draining.load(&self.name)
    }

    /// The clients of this node behind a cursor.
    pub async fn clients(&self, asked: &PageRequest) -> Result<view::ClientPage, Trouble> {
        // One more than wanted tells whether there are more.
        let wanted = asked.limit + 1;
        let mut found: Vec<(SessionView, ShardId)> = Vec::new();
        for shard in 0..self.shared.mailboxes.len() as ShardId {
            let mut from = Some(0);
            while let Some(key) = from {
                let greatest = found.last().filter(|_| found.len() == wanted);
                let before = greatest.map(|(session, _)| session.client_id.clone());
                let slice = Slice { from: key, after: asked.after.clone(), before, at_most: wanted };
                let Found { sessions, next } = self.ask(shard, |reply| Inspect::Slice { asked: slice, reply }).await?;
                merge(&mut found, sessions.into_iter().map(|session| (session, shard)), wanted);
                from = next;
            }
        }
        let more = found.len() == wanted;
        found.truncate(asked.limit);
        let clients: Vec<_> = found.into_iter().map(|(session, shard)| self.client_view(session, shard)).collect();
        let next = if more { clients.last().map(|last| last.client_id.clone()) } else { None };
        Ok(view::ClientPage { clients, next, missing: Vec::new() })
    }

    /// One client of this node.
    pub async fn client(&self, client_id: Arc<str>) -> Result<Option<view::ClientDetail>, Trouble> {
        let shard = self.shared.shard_of(&client_id);
        let question = |reply| Inspect::Session { client_id, subscriptions_max: SUBSCRIPTIONS_SHOWN, reply };
        let found = self.ask(shard, question).await?;
        Ok(found.map(|(session, subscriptions)| {
            let list = subscriptions.list.into_iter();
            let subscriptions_shown = list.map(|(filter, subscription)| view::Subscription {
                filter: filter.to_string(),
                qos: subscription.options.qos as u8,
                no_local: subscription.options.no_local,
                retain_as_published: subscription.options.retain_as_published,
                subscription_id: subscription.subscription_id,
            });
            view::ClientDetail {
                subscriptions: subscriptions_shown.collect(),
                truncated: subscriptions.truncated,
                client: self.client_view(session, shard),
            }
        }))
    }

    /// Ends the connection of a client of this node.
    pub async fn kick(&self, client_id: Arc<str>) -> Result<Option<view::Kicked>, Trouble> {
        let shard = self.shared.shard_of(&client_id);
        let (reply, answer) = oneshot::channel();
        self.shared.mailboxes[usize::from(shard)].push(Event::Kick { client_id: client_id.clone(), reply });
        let kicked = in_time(answer).await?;
        if kicked == Some(true) {
            info!(event = "kick", client_id = &*client_id, "the client is disconnected by way of the admin port");
        }
        let node = self.name.to_string();
        Ok(kicked.map(|was_connected| view::Kicked { client_id: client_id.to_string(), node, was_connected }))
    }

    async fn ask<T>(&self, shard: ShardId, question: impl FnOnce(oneshot::Sender<T>) -> Inspect) -> Result<T, Trouble> {
        let (reply, answer) = oneshot::channel();
        self.shared.mailboxes[usize::from(shard)].push(Event::Inspect(Box::new(question(reply))));
        in_time(answer).await
    }

    fn client_view(&self, session: SessionView, shard: ShardId) -> view::Client {
        let connection = session.connection;
        let of_connection = |pick: fn(&ConnectionView) -> String| connection.as_ref().map(pick);
        view::Client {
            client_id: session.client_id.to_string(),
            node: self.name.to_string(),
            shard,
            connected: connection.is_some(),
            version: of_connection(|connection| version(connection.version).to_owned()),
            peer: of_connection(|connection| connection.peer.to_string()),
            listener: of_connection(|connection| connection.listener.config.name.clone()),
            user_name: connection.as_ref().and_then(|connection| connection.user_name.as_deref().map(str::to_owned)),
            connected_at_ms: connection.as_ref().map(|connection| connection.accepted_at),
            outbox_bytes: connection.as_ref().map_or(0, |connection| connection.outbox_bytes as u64),
            session_expiry_secs: Some(session.expiry_secs).filter(|secs| *secs != u32::MAX),
            epoch: session.epoch,
            subscriptions: session.subscriptions as u64,
            queue_messages: session.queue_messages as u64,
            queue_bytes: session.queue_bytes as u64,
            inflight: session.inflight as u64,
            dropped: session.dropped,
        }
    }

    /// Writes everything that this node counts.
    pub async fn metrics(&self, out: &mut Exposition) {
        out.family("build_info", Kind::Gauge, "The version of the program.")
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let uptime = self.shared.clock.uptime_ms() as f64 / 1000.0;
        out.single("uptime_seconds", Kind::Gauge, "How long the node has run.", uptime);
        admin::metrics::shards(out, &self.shared.metrics);
        let listeners: Vec<_> = self.listeners.iter().map(Arc::as_ref).collect();
        admin::metrics::listeners(out, &listeners, &self.refusals);
        admin::metrics::authentication(out, &self.access.counts);
        let (messages, bytes) = {
            let retained = self.shared.retained.read();
            (retained.len(), retained.bytes())
        };
        out.single("retained_messages", Kind::Gauge, "Retained messages.", messages as f64);
        out.single("retained_bytes", Kind::Gauge, "Their bytes, topics and properties included.", bytes as f64);
        out.single(
            "topic_filters",
            Kind::Gauge,
            "Filters that somebody on this node subscribes to.",
            self.shared.index.len() as f64,
        );
        let help = "Connections that a drain has still to close.";
        out.single("drain_remaining_connections", Kind::Gauge, help, self.draining.remaining() as f64);
        let help = "Connections closed so that their clients go to other nodes.";
        out.single("drain_closed_total", Kind::Counter, help, self.draining.closed_total() as f64);
        self.mailboxes(out);
        if let Some(storage) = &self.storage {
            self.disk(out, storage);
        }
        process_figures::write(out);
        queues(out, &self.census().await);
    }

    fn mailboxes(&self, out: &mut Exposition) {
        type Pick = fn((usize, usize, usize)) -> usize;
        let mut each = |name, help, pick: Pick| {
            out.family(name, Kind::Gauge, help);
            for (shard, mailbox) in self.shared.mailboxes.iter().enumerate() {
                out.sample(&[("shard", &shard.to_string())], pick(mailbox.waiting()) as f64);
            }
        };
        each("mailbox_events", "Events in the mailbox of a shard.", |(events, ..)| events);
        each("mailbox_messages", "Messages among them.", |(_, messages, _)| messages);
        each("mailbox_bytes", "Bytes of these messages.", |(.., bytes)| bytes);
    }

    fn disk(&self, out: &mut Exposition, storage: &Storage) {
        let Figures {
            disk_bytes,
            live_bytes,
            items,
            early_deletions,
            commits,
            batches,
            sync_secs,
            cleaned_bytes,
            errors,
            ..
        } = storage.figures();
        out.family("storage_bytes", Kind::Gauge, "Bytes on the disk.")
            .sample(&[("kind", "used")], disk_bytes as f64)
            .sample(&[("kind", "live")], live_bytes as f64);
        let mut gauge = |name, help, value| out.single(name, Kind::Gauge, help, value);
        gauge("storage_items", "Things that must survive.", items as f64);
        gauge("storage_early_deletions", "Deletions that wait for what they delete.", early_deletions as f64);
        gauge(
            "storage_short",
            "Whether new messages are refused because the disk has no room, or fails.",
            f64::from(u8::from(self.shared.storage_level.is_short())),
        );
        let pending = (0..=self.shared.mailboxes.len()).map(|source| storage.pending_bytes(source) as f64).sum();
        gauge("storage_queue_bytes", "Bytes that were handed over and are not on the disk yet.", pending);
        let mut counter = |name, help, value| out.single(name, Kind::Counter, help, value);
        counter("storage_commits_total", "Submissions that were kept together.", commits as f64);
        counter("storage_fsyncs_total", "Batches written and synced.", batches as f64);
        counter("storage_fsync_seconds_total", "Seconds spent in that.", sync_secs);
        counter("storage_cleaned_bytes_total", "Bytes that were written again to make room.", cleaned_bytes as f64);
        counter("storage_errors_total", "Writes and syncs that failed, or found no room.", errors as f64);
    }

    /// What the queues of each shard hold. A shard that does not answer in time is not in it.
    pub(super) async fn census(&self) -> Vec<Census> {
        let mut last = self.census.lock().await;
        let now = self.shared.clock.now();
        if let Some((at, found)) = &*last
            && now.saturating_sub(*at) < CENSUS_FRESH_MS
        {
            return found.clone();
        }
        let found = self.count_queues().await;
        *last = Some((self.shared.clock.now(), found.clone()));
        found
    }

    /// The same, counted now. Whoever scrapes next has it counted once more.
    pub(super) async fn count_queues(&self) -> Vec<Census> {
        let mut found = Vec::new();
        let counted = async {
            for shard in 0..self.shared.mailboxes.len() as ShardId {
                found.extend(self.census_of(shard).await.ok());
            }
        };
        // What is there by then is what there is.
        let _ = tokio::time::timeout(CENSUS_TIMEOUT, counted).await;
        found
    }

    async fn census_of(&self, shard: ShardId) -> Result<Census, Trouble> {
        let mut sums = Census { next: Some(0), ..Census::default() };
        while let Some(from) = sums.next {
            sums.add(self.ask(shard, |reply| Inspect::Census { from, reply }).await?);
        }
        Ok(sums)
    }
}

/// Keeps the smallest so many of both, in the order of their ids. Of a session that ended and began again meanwhile, and so was met twice, the later.
fn merge(found: &mut Vec<(SessionView, ShardId)>, more: impl Iterator<Item = (SessionView, ShardId)>, at_most: usize) {
    found.extend(more);
    // What was found first stays first.
    found.sort_by(|(one, _), (other, _)| one.client_id.cmp(&other.client_id));
    found.dedup_by(|later, first| {
        let same = later.0.client_id == first.0.client_id;
        if same {
            std::mem::swap(later, first);
        }
        same
    });
    found.truncate(at_most);
}

fn queues(out: &mut Exposition, shards: &[Census]) {
    let sum = |pick: fn(&Census) -> u64| shards.iter().map(pick).sum::<u64>() as f64;
    let mut gauge = |name, help, value| out.single(name, Kind::Gauge, help, value);
    gauge("queue_messages", "Messages in the queues of all sessions.", sum(|shard| shard.queue_messages));
    gauge("queue_bytes", "Their bytes.", sum(|shard| shard.queue_bytes));
    gauge("queue_memory_bytes", "The part of these that is in memory.", sum(|shard| shard.queue_bytes_here));
    gauge("inflight_messages", "Messages of QoS 1 and 2 on their way to clients.", sum(|shard| shard.inflight));
    gauge("outbox_bytes", "Bytes that wait for the sockets of clients.", sum(|shard| shard.outbox_bytes));
    gauge(
        "stalled_connections",
        "Connections that are not read from until somebody has caught up.",
        sum(|shard| shard.stalled),
    );
    gauge("awaited_outcomes", "Commands to the control state whose outcome is awaited.", sum(|shard| shard.awaited));
    gauge("unkept_promises", "Answers and tasks that wait for the disk.", sum(|shard| shard.unkept));
}

fn version(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V3_1 => "3.1",
        ProtocolVersion::V3_1_1 => "3.1.1",
        ProtocolVersion::V5 => "5.0",
    }
}

async fn in_time<T>(answer: oneshot::Receiver<T>) -> Result<T, Trouble> {
    match tokio::time::timeout(SLICE_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Trouble::new(503, "stopping", "the node is about to end")),
        Err(_) => Err(Trouble::new(503, "shard_timeout", "an event loop did not answer in time")
            .hint("/health/live says which one is stuck, if one is")),
    }
}

/// A node that is no part of a cluster.
pub(super) struct Alone {
    pub local: Arc<Local>,
    pub node: NodeId,
    pub plane: Arc<StandalonePlane>,
}

impl Alone {
    fn is_own(&self, node: &str) -> Result<(), Trouble> {
        if node != &*self.local.name && node != format!("{:032x}", self.node.0) {
            let message = format!("this node is called {:?}, and is no part of a cluster", self.local.name);
            return Err(Trouble::new(404, "no_such_node", message));
        }
        Ok(())
    }
}

fn not_clustered<T>() -> Result<T, Trouble> {
    Err(Trouble::new(409, "not_clustered", "this node is no part of a cluster")
        .hint("a node becomes one by a [cluster] section in its configuration"))
}

impl Source for Alone {
    fn closed(&self, asked: ClosedRequest) -> Soon<'_, Result<view::ClosedPage, Trouble>> {
        Box::pin(async move { Ok(self.local.closed(&asked)) })
    }

    fn topic_match(&self, topic: Arc<str>) -> Soon<'_, Result<view::Matches, Trouble>> {
        Box::pin(async move {
            let found = self.local.topic_match(topic).await?;
            Ok(pages::merge_matches(found.topic.clone(), vec![found], PAGE_MAX))
        })
    }

    fn live(&self) -> Vec<view::Check> {
        self.local.live()
    }

    fn ready(&self) -> Vec<view::Check> {
        self.local.ready()
    }

    fn startup(&self) -> Vec<view::Check> {
        self.local.startup()
    }

    fn cluster(&self) -> view::Cluster {
        let name = self.local.name.to_string();
        let own = view::Member {
            id: format!("{:032x}", self.node.0),
            name: name.clone(),
            live: true,
            voter: true,
            leader: true,
            own: true,
            ..view::Member::default()
        };
        view::Cluster {
            name: name.clone(),
            node: name.clone(),
            nodes: vec![own],
            leader: Some(name),
            quorum: true,
            ..view::Cluster::default()
        }
    }

    fn metrics<'a>(&'a self, out: &'a mut Exposition) -> Soon<'a, ()> {
        Box::pin(self.local.metrics(out))
    }

    fn clients(&self, asked: PageRequest) -> Soon<'_, Result<view::ClientPage, Trouble>> {
        Box::pin(async move { self.local.clients(&asked).await })
    }

    fn client(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<view::ClientDetail>, Trouble>> {
        Box::pin(self.local.client(client_id))
    }

    fn kick(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<view::Kicked>, Trouble>> {
        Box::pin(self.local.kick(client_id))
    }

    fn join(&self, _address: String) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn leave(&self, _force: bool) -> Soon<'_, Result<view::Leaving, Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn force_leave(&self, _node: String) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn retained(&self, asked: RetainedRequest) -> Soon<'_, Result<view::RetainedPage, Trouble>> {
        Box::pin(async move { self.local.retained(&asked).await })
    }

    fn retained_of(&self, topic: &str) -> Option<view::Retained> {
        self.local.retained_of(topic)
    }

    fn remove_retained(&self, filter: Arc<str>, dry_run: bool) -> Soon<'_, Result<view::RetainedRemoved, Trouble>> {
        Box::pin(async move { self.local.remove_retained(&filter, dry_run).await })
    }

    fn publish(&self, messages: Vec<PublishRequest>) -> Soon<'_, Result<Vec<view::Published>, Trouble>> {
        Box::pin(self.local.publish(messages))
    }

    fn nodes(&self) -> Soon<'_, view::Nodes> {
        let own = self.cluster().nodes.into_iter();
        let nodes = own.map(|member| view::NodeLoad { member, load: Some(self.local.load()) }).collect();
        Box::pin(async { view::Nodes { nodes } })
    }

    fn drain(&self, node: Arc<str>, terms: view::DrainTerms) -> Soon<'_, Result<view::Drain, Trouble>> {
        Box::pin(async move {
            self.is_own(&node)?;
            self.local.draining.drain(terms).await
        })
    }

    fn undrain(&self, node: Arc<str>) -> Soon<'_, Result<bool, Trouble>> {
        Box::pin(async move { self.is_own(&node).map(|()| self.local.draining.undrain()) })
    }

    fn rebalance_plan(&self, _asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn rebalance_start(&self, _asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn rebalance_stop(&self) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn transfer_leader(&self) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async { not_clustered() })
    }

    fn bans(&self) -> Vec<Ban> {
        self.local.shared.bans.list()
    }

    fn change_bans(&self, command: Command) -> Soon<'_, Result<(), Trouble>> {
        let plane = self.plane.clone();
        Box::pin(async move {
            let changed = tokio::task::spawn_blocking(move || plane.change_bans(command)).await;
            let changed = changed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            ban_outcome(changed.map_err(|error| {
                Trouble::new(500, "bans", format!("it holds, but a restart would forget it: {error}"))
            })?)
        })
    }

    fn explain(&self, subject: Subject, action: Action, topic: &str) -> Decision {
        self.local.shared.acl.rights(subject).explain(action, topic)
    }
}

/// What came of a change of the bans, as the asker is told.
pub(super) fn ban_outcome(outcome: Outcome) -> Result<(), Trouble> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Refused(Refusal::UnknownBan) => {
            Err(Trouble::new(404, "no_such_ban", "there is no such ban").hint("`holdfast ban list` has them all"))
        }
        Outcome::Refused(Refusal::TooManyBans) => {
            Err(Trouble::new(409, "too_many_bans", format!("there are {BANS_MAX} bans, and no more can be"))
                .hint("take one back, or ban a network"))
        }
        Outcome::Refused(Refusal::Versions) => {
            Err(Trouble::new(409, "versions", "some node of the cluster is of an older version, which knows no bans"))
        }
        _ => Err(Trouble::new(503, "not_done", "the control plane has not taken it")),
    }
}

#[cfg(test)]
mod tests;
