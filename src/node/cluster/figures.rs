//! What a node of a cluster counts beside what every node does: the control state, the links, and what goes between nodes.
//!
//! Labels are those of a fixed set: reasons, directions and nodes.

use std::sync::atomic::Ordering;

use holdfast_raft::Group;

use crate::admin::{Exposition, Kind};
use crate::cluster::copies::Lag;
use crate::link::{LinkCounts, Refusal};
use crate::metrics::{Counter, Metrics, ShardMetrics};

use super::heirs;
use super::plane::ClusterPlane;

/// Writes all of it.
pub(super) fn write(out: &mut Exposition, metrics: &Metrics, plane: &ClusterPlane, unanswered: u64) {
    shards(out, metrics);
    of_shares(out, metrics);
    if let Some(group) = plane.group() {
        control_state(out, group);
    }
    of_copies(out, metrics, plane);
    if let Some(links) = plane.links() {
        of_links(out, links.counts());
    }
    let help = "Questions of this node's admin port that another node did not answer.";
    out.single("cluster_questions_unanswered_total", Kind::Counter, help, unanswered as f64);
}

fn shards(out: &mut Exposition, metrics: &Metrics) {
    type Pick = fn(&ShardMetrics) -> &Counter;
    let sum = |pick: Pick| metrics.sum(pick) as f64;
    out.family("forwarded_messages_total", Kind::Counter, "Messages to and from other nodes.")
        .sample(&[("direction", "out")], sum(|shard| &shard.forwarded))
        .sample(&[("direction", "in")], sum(|shard| &shard.forwards_received));
    out.family("forwarded_bytes_total", Kind::Counter, "Bytes of the data connections between nodes.")
        .sample(&[("direction", "out")], sum(|shard| &shard.link_bytes_sent))
        .sample(&[("direction", "in")], sum(|shard| &shard.link_bytes_received));
    out.family("sessions_moved_total", Kind::Counter, "Sessions that came from another node, or went to one.")
        .sample(&[("direction", "out")], sum(|shard| &shard.sessions_given))
        .sample(&[("direction", "in")], sum(|shard| &shard.sessions_taken));
    out.single(
        "sessions_inherited_total",
        Kind::Counter,
        "Sessions that were taken over from a node that had died.",
        sum(|shard| &shard.sessions_inherited),
    );
    out.single(
        "sessions_lost_total",
        Kind::Counter,
        "Sessions of nodes that had died of which there was no copy.",
        sum(|shard| &shard.sessions_lost),
    );
    out.single(
        "data_connections_unread_total",
        Kind::Counter,
        "Data connections closed because the other node did not read the answers.",
        sum(|shard| &shard.links_unread),
    );
    out.single(
        "subscribes_timed_out_total",
        Kind::Counter,
        "SUBSCRIBE packets that were refused because not every node routed for them in time.",
        sum(|shard| &shard.subscribes_timed_out),
    );
}

fn of_shares(out: &mut Exposition, metrics: &Metrics) {
    let sum = |pick: fn(&ShardMetrics) -> &Counter| metrics.sum(pick) as f64;
    let help = "Messages of share groups that another node refused, as it had no member for them.";
    out.single("share_refusals_total", Kind::Counter, help, sum(|shard| &shard.shares_refused));
    let help = "Messages of QoS 2 for share groups of which all nodes were asked whether a member has them, as a node had died.";
    out.single("share_questions_total", Kind::Counter, help, sum(|shard| &shard.shares_asked));
    let help = "What is not kept any more of messages of share groups for the case that a node dies.";
    out.family("share_forgotten_total", Kind::Counter, help)
        .sample(&[("what", "message")], sum(|shard| &shard.shares_forgotten))
        .sample(&[("what", "answer")], sum(|shard| &shard.share_answers_forgotten));
    let help = "Messages of share groups that are kept until a member has them for good.";
    out.single("share_kept_messages", Kind::Gauge, help, sum(|shard| &shard.shares_kept));
    let help = "The bytes of these messages.";
    out.single("share_kept_bytes", Kind::Gauge, help, sum(|shard| &shard.shares_kept_bytes));
}

fn of_copies(out: &mut Exposition, metrics: &Metrics, plane: &ClusterPlane) {
    let Some(incomplete) = heirs::is_incomplete(plane) else {
        return;
    };
    let sum = |pick: fn(&ShardMetrics) -> &Counter| metrics.sum(pick) as f64;
    let help = "Whether sessions of this node may be without their copy on another node.";
    out.single("session_copies_incomplete", Kind::Gauge, help, f64::from(u8::from(incomplete)));
    let help =
        "Whether an heir has so little room on its disk that messages which it would have to keep are refused here.";
    let short = plane.shared().short_heirs.load(Ordering::Acquire) != 0;
    out.single("session_copies_short", Kind::Gauge, help, f64::from(u8::from(short)));
    let help = "Sessions that no other node has completely.";
    out.single("sessions_without_copy", Kind::Gauge, help, sum(|shard| &shard.sessions_without_copy));
    let help = "Bytes of what was written down and is not on both nodes yet.";
    out.single("copies_unstable_bytes", Kind::Gauge, help, sum(|shard| &shard.copies_unstable_bytes));
    let help = "Times that the copies of this node's sessions on all other nodes were complete.";
    out.single("copies_filled_total", Kind::Counter, help, plane.watch().filled_total() as f64);
    let lags = plane.watch().lags();
    let name = |node| {
        let found = plane.group().and_then(|group| group.read(|state| state.node(node).map(|node| node.name)));
        found.map_or_else(|| node.to_string(), |name| name.to_string())
    };
    let lags: Vec<_> = lags.into_iter().map(|(node, lag)| (name(node), lag)).collect();
    let mut gauge = |name, help, pick: fn(&Lag) -> u64| {
        out.family(name, Kind::Gauge, help);
        for (peer, lag) in &lags {
            out.sample(&[("peer", peer)], pick(lag) as f64);
        }
    };
    gauge("copy_lag_bytes", "Bytes of copies that another node has not accepted.", |lag| lag.bytes as u64);
    gauge("copy_lag_records", "Entries of copies that another node has not accepted.", |lag| lag.records as u64);
    let help = "Sessions that another node was to be sent whole, since the heirs of this one last changed.";
    gauge("copy_fill_sessions", help, |lag| lag.to_fill as u64);
    gauge("copy_fill_sessions_done", "Those of them that it was sent.", |lag| lag.filled as u64);
    gauge("copy_fill_bytes", "Bytes that it was sent of them.", |lag| lag.filled_bytes);
}

fn control_state(out: &mut Exposition, group: &Group) {
    let counts = group.read(holdfast_raft::ControlState::counts);
    let status = group.status();
    out.family(
        "cluster_sessions",
        Kind::Gauge,
        "Client ids with a lease in the control state, by whether their client is there.",
    )
    .sample(&[("state", "connected")], counts.connected as f64)
    .sample(&[("state", "offline")], counts.leases.saturating_sub(counts.connected) as f64);
    let mut gauge = |name, help, value: usize| out.single(name, Kind::Gauge, help, value as f64);
    gauge("cluster_claims", "Sessions that are about to move to another node.", counts.claims);
    gauge("cluster_wills_due", "Wills that are due and not yet published.", counts.wills_due);
    gauge("cluster_routes", "Topic filters that any node subscribes to.", counts.routes);
    gauge("cluster_share_routes", "Share groups that any node has members of.", counts.share_routes);
    gauge(
        "cluster_log_failing",
        "Whether the disk of the control log does not take what it should.",
        usize::from(status.log_trouble.is_some() || status.failed.is_some()),
    );
    let mut counter = |name, help, value: u64| out.single(name, Kind::Counter, help, value as f64);
    counter("cluster_commands_dropped_total", "Commands that the control plane did not take.", status.discarded);
    counter(
        "cluster_messages_refused_total",
        "Messages of other nodes that were not understood, or too many.",
        status.refused_messages,
    );
}

fn of_links(out: &mut Exposition, counts: &LinkCounts) {
    out.family(
        "cluster_link_refusals_total",
        Kind::Counter,
        "Connections between nodes that were refused, by whom and why.",
    );
    for refusal in Refusal::ALL {
        let label = ("reason", refusal.label());
        out.sample(&[("by", "this_node"), label], counts.refused(refusal) as f64);
        out.sample(&[("by", "peer"), label], counts.refused_by_peers(refusal) as f64);
    }
    let (ups, downs) = counts.ups_and_downs();
    out.family("cluster_link_changes_total", Kind::Counter, "Times that a link came up, or went down.")
        .sample(&[("to", "up")], ups as f64)
        .sample(&[("to", "down")], downs as f64);
    let mut counter = |name, help, value: u64| out.single(name, Kind::Counter, help, value as f64);
    counter("cluster_link_timeouts_total", "Greetings between nodes that did not end in time.", counts.timed_out());
    counter(
        "cluster_link_evictions_total",
        "Connections closed unproven because there were too many.",
        counts.evicted(),
    );
    counter(
        "cluster_control_overflows_total",
        "Control connections closed because their queue was full.",
        counts.control_overflows(),
    );
    counter("cluster_bulk_full_total", "Bulk frames that found their queue full.", counts.bulk_full());
}
