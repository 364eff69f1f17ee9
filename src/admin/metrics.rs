//! The families that every node has, whatever answers for it: what the cluster does, and what the shards and listeners count.

use std::sync::atomic::Ordering;

use super::view;
use super::{Exposition, Kind};
use crate::access::Method;
use crate::access::acl::Action;
use crate::admission::RateKind;
use crate::metrics::{
    AuthCounts, AuthResult, CloseReason, DropReason, Metrics, PACKETS, RefusalGroup, Refusals, STAGES, ShardMetrics,
};
use crate::shard::greeted::ListenerState;

use Kind::{Counter, Gauge};

const QOS: [&str; 3] = ["0", "1", "2"];

/// What follows from [`view::Cluster`]; the label `node` is set for what comes behind, too.
pub(super) fn cluster(out: &mut Exposition, cluster: &view::Cluster) {
    out.set_node(&cluster.node);
    let live = cluster.nodes.iter().filter(|node| node.live).count();
    out.family("cluster_nodes", Gauge, "Nodes of the cluster, by what the control state takes them for.")
        .sample(&[("state", "live")], live as f64)
        .sample(&[("state", "dead")], (cluster.nodes.len() - live) as f64);
    let leads = cluster.nodes.iter().any(|node| node.own && node.leader);
    let yes = |yes: bool| f64::from(u8::from(yes));
    let mut gauge = |name, help, value| out.single(name, Gauge, help, value);
    gauge("cluster_leader", "Whether this node leads the control plane.", yes(leads));
    gauge("cluster_quorum", "Whether most of the voters can agree, as far as this node knows.", yes(cluster.quorum));
    gauge(
        "cluster_quorum_critical",
        "Whether the loss of one more voter would end the quorum.",
        yes(cluster.quorum_critical),
    );
    gauge("cluster_term", "The term of the control plane.", cluster.term as f64);
    gauge("cluster_applied_index", "The last entry of the log that was applied here.", cluster.applied as f64);
    gauge("cluster_apply_lag_entries", "Entries that are not applied here yet.", cluster.apply_lag as f64);
    gauge("suspended", "Whether the node serves nobody because its grant has run out.", yes(cluster.suspended));
    gauge("will_bytes", "Bytes of Wills in the control state.", cluster.will_bytes as f64);
    if let Some(remaining) = cluster.grant_remaining_ms {
        let help = "For how long the node may serve its clients without hearing from the leader.";
        gauge("grant_remaining_seconds", help, remaining as f64 / 1000.0);
    }
    let mut counter = |name, help, value: u64| out.single(name, Counter, help, value as f64);
    counter("suspended_total", "Times that the node's grant has run out.", cluster.suspended_total);
    counter("cluster_leader_changes_total", "Times that another leader was seen.", cluster.leader_changes_total);
    if !cluster.links.is_empty() {
        links(out, &cluster.links);
    }
}

fn links(out: &mut Exposition, links: &[view::Link]) {
    let mut family = |name, kind, help, value: fn(&view::Link) -> Option<f64>| {
        out.family(name, kind, help);
        for link in links {
            if let Some(value) = value(link) {
                out.sample(&[("peer", &link.peer)], value);
            }
        }
    };
    family("cluster_link_up", Gauge, "Whether the link to the peer is up.", |link| Some(f64::from(u8::from(link.up))));
    family("cluster_peer_rtt_seconds", Gauge, "Round trip on the control connection.", |link| {
        link.rtt_ms.map(|rtt| rtt / 1000.0)
    });
    family(
        "cluster_link_queue_bytes",
        Gauge,
        "Bytes that wait to be written to control and bulk connections.",
        |link| Some(link.queue_bytes as f64),
    );
    family("forward_queue_bytes", Gauge, "Bytes of publishes that wait for the peer.", |link| {
        Some(link.forward_queue_bytes as f64)
    });
    out.family("cluster_link_bytes_total", Counter, "Bytes on the control and bulk connections with the peer.");
    for link in links {
        out.sample(&[("peer", &link.peer), ("direction", "in")], link.bytes_in as f64);
        out.sample(&[("peer", &link.peer), ("direction", "out")], link.bytes_out as f64);
    }
}

/// What the shards of a node count.
pub fn shards(out: &mut Exposition, metrics: &Metrics) {
    type Pick = fn(&ShardMetrics) -> &crate::metrics::Counter;
    let mut sum = |name, kind, help, pick: Pick| out.single(name, kind, help, metrics.sum(pick) as f64);
    sum("connections", Gauge, "Connections behind their CONNECT.", |shard| &shard.connections);
    sum("connections_accepted_total", Counter, "Connections that came to a shard.", |shard| {
        &shard.connections_accepted
    });
    sum("connections_flapping_total", Counter, "Connections of clients that came and went too often.", |shard| {
        &shard.connections_flapping
    });
    sum("protocol_errors_total", Counter, "Connections that were closed for what they sent.", |shard| {
        &shard.protocol_errors
    });
    sum("sessions_ended_total", Counter, "Sessions that ended.", |shard| &shard.sessions_ended);
    sum("sessions_expired_total", Counter, "Sessions whose Session Expiry Interval was over.", |shard| {
        &shard.sessions_expired
    });
    sum(
        "sessions_taken_over_total",
        Counter,
        "Connections that a newer one with the same client id replaced.",
        |shard| &shard.sessions_taken_over,
    );
    sum("sessions_resumed_total", Counter, "Sessions that a client came back to.", |shard| &shard.sessions_resumed);
    sum("subscriptions", Gauge, "Subscriptions of all sessions.", |shard| &shard.subscriptions);
    sum("wills_published_total", Counter, "Wills that were published.", |shard| &shard.wills_published);
    sum(
        "mailbox_stalls_total",
        Counter,
        "Times that a shard stopped reading because another one was behind.",
        |shard| &shard.mailbox_stalls,
    );
    closes(out, metrics);
    traffic(out, metrics);
    durations(out, metrics);
    sessions(out, metrics);
    acl_checks(out, metrics);
    reload(out, metrics);
}

/// What became of those that had to prove who they are.
pub fn authentication(out: &mut Exposition, counts: &AuthCounts) {
    out.family("auth_total", Counter, "Attempts to prove who one is, by method and what became of them.");
    for method in Method::ALL {
        for result in AuthResult::ALL {
            let count = counts.get(method as usize, result);
            out.sample(&[("method", method.label()), ("result", result.label())], count as f64);
        }
    }
}

fn reload(out: &mut Exposition, metrics: &Metrics) {
    let (failed, secs) = (metrics.reload.failed.get(), metrics.reload.success_secs.get());
    let help =
        "Whether the last reload of the configuration and of the files that it names was good; 1 before the first.";
    out.single("config_last_reload_successful", Gauge, help, f64::from(u8::from(failed == 0)));
    let help = "When a reload was good for the last time, in seconds since 1970; 0 before the first.";
    out.single("config_last_reload_success_timestamp_seconds", Gauge, help, secs as f64);
}

fn acl_checks(out: &mut Exposition, metrics: &Metrics) {
    out.family("acl_checks_total", Counter, "Questions that the rules of an ACL decided.");
    for action in Action::ALL {
        for (place, result) in ["allow", "deny"].into_iter().enumerate() {
            let count = metrics.sum(|shard| &shard.acl_checks[action as usize][place]);
            out.sample(&[("action", action.label()), ("result", result)], count as f64);
        }
    }
}

/// Ends by reason, and how the connections are spread over the shards.
fn closes(out: &mut Exposition, metrics: &Metrics) {
    out.family(
        "connections_closed_total",
        Counter,
        "Connections that ended, by reason; `lost` are those that vanished without a DISCONNECT.",
    );
    for reason in CloseReason::ALL {
        let count = metrics.sum(|shard| &shard.connections_closed[reason as usize]);
        out.sample(&[("reason", reason.label())], count as f64);
    }
    out.family("shard_connections", Gauge, "Connections behind their CONNECT, by the shard that has them.");
    for (number, shard) in metrics.shards.iter().enumerate() {
        out.sample(&[("shard", &number.to_string())], shard.connections.get() as f64);
    }
}

/// How long things take.
fn durations(out: &mut Exposition, metrics: &Metrics) {
    let shards = || metrics.shards.iter();
    let help = "From the accepted socket to the CONNACK.";
    out.family("connect_duration_seconds", Kind::Histogram, help)
        .histogram(&[], shards().map(|shard| &shard.connect_duration));
    let help = "Of some PUBLISH packets, from reading them until they are routed, and until the sockets of their shard are written; and how long messages waited for another shard.";
    out.family("publish_duration_seconds", Kind::Histogram, help);
    for (place, stage) in STAGES.iter().enumerate() {
        out.histogram(&[("stage", stage)], shards().map(|shard| &shard.publish_duration[place]));
    }
}

fn sessions(out: &mut Exposition, metrics: &Metrics) {
    let (all, connected) = (metrics.sum(|shard| &shard.sessions), metrics.sum(|shard| &shard.connections));
    out.family("sessions", Gauge, "Sessions, by whether their client is there.")
        .sample(&[("state", "connected")], connected.min(all) as f64)
        .sample(&[("state", "offline")], all.saturating_sub(connected) as f64);
}

fn traffic(out: &mut Exposition, metrics: &Metrics) {
    let by_qos = |pick: fn(&ShardMetrics) -> &[crate::metrics::Counter; 3], qos: usize| {
        metrics.shards.iter().map(|shard| pick(shard)[qos].get()).fold(0, u64::wrapping_add) as f64
    };
    out.family("packet_bytes_total", Counter, "Bytes of packets from and to clients.")
        .sample(&[("direction", "in")], metrics.sum(|shard| &shard.bytes_received) as f64)
        .sample(&[("direction", "out")], metrics.sum(|shard| &shard.bytes_sent) as f64);
    out.family("packets_total", Counter, "Packets from and to clients, by type.");
    for (place, packet) in PACKETS.iter().enumerate() {
        let count = metrics.sum(|shard| &shard.packets_received[place]);
        out.sample(&[("direction", "in"), ("packet", packet)], count as f64);
        let count = metrics.sum(|shard| &shard.packets_sent[place]);
        out.sample(&[("direction", "out"), ("packet", packet)], count as f64);
    }
    out.family("publish_received_total", Counter, "PUBLISH packets from clients.");
    for (qos, label) in QOS.iter().enumerate() {
        out.sample(&[("qos", label)], by_qos(|shard| &shard.publish_received, qos));
    }
    out.family("publish_delivered_total", Counter, "PUBLISH packets handed to connections.");
    for (qos, label) in QOS.iter().enumerate() {
        out.sample(&[("qos", label)], by_qos(|shard| &shard.publish_sent, qos));
    }
    out.family("publish_acked_total", Counter, "PUBLISH packets that clients have acknowledged to the end.");
    for (place, qos) in ["1", "2"].into_iter().enumerate() {
        out.sample(&[("qos", qos)], metrics.sum(|shard| &shard.publish_acked[place]) as f64);
    }
    out.family("messages_dropped_total", Counter, "Messages that somebody did not get, by reason.");
    for reason in DropReason::ALL {
        out.sample(&[("reason", reason.label())], metrics.dropped(reason) as f64);
    }
}

/// What the listeners of a node count.
pub fn listeners(out: &mut Exposition, listeners: &[&ListenerState], refusals: &Refusals) {
    out.family("connections_rejected_total", Counter, "Connections that were refused before they had a session.");
    for group in RefusalGroup::ALL {
        out.sample(&[("reason", group.label())], refusals.get(group) as f64);
    }
    if let Some(listener) = listeners.first() {
        out.family("rate_limited_total", Counter, "What was refused because it came too fast, by whose rate.");
        for kind in RateKind::ALL {
            out.sample(&[("kind", kind.label())], listener.node.limited(kind) as f64);
        }
    }
    let mut each = |name, kind, help, value: fn(&ListenerState) -> u64| {
        out.family(name, kind, help);
        for listener in listeners {
            let labels = [("listener", listener.config.name.as_str()), ("transport", listener.config.scheme())];
            out.sample(&labels, value(listener) as f64);
        }
    };
    each("listener_connections", Gauge, "Sockets of the listener that are open.", |listener| {
        listener.connections() as u64
    });
    each("listener_accepted_total", Counter, "Sockets that the listener accepted.", |listener| {
        listener.counts.accepted.load(Ordering::Relaxed)
    });
    each("listener_accept_failures_total", Counter, "Failures to accept, such as too many open files.", |listener| {
        listener.counts.accept_failed.load(Ordering::Relaxed)
    });
    each("tls_handshake_failures_total", Counter, "TLS handshakes that failed.", |listener| {
        listener.counts.tls_failed.load(Ordering::Relaxed)
    });
}
