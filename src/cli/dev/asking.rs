//! What the admin ports of the nodes say: readiness, and who leads.

use std::time::{Duration, Instant};

use super::plan::Node;
use crate::admin::view::{Cluster, Health};
use crate::cli::admin::http::{self, Answer};

/// For one question to a node of this machine.
const PATIENCE: Duration = Duration::from_secs(1);

fn ask(node: &Node, path: &str) -> Option<Answer> {
    let deadline = Instant::now() + PATIENCE;
    http::ask_until(deadline, &http::Target::of(node.admin_address()), None, "GET", path, "").ok()
}

/// Whether the node is ready for clients.
///
/// # Errors
/// Why not, in a few words.
pub(super) fn ready(node: &Node) -> Result<(), String> {
    let Some(answer) = ask(node, "/health/ready") else { return Err("its admin port does not answer".to_owned()) };
    if answer.status == 200 {
        return Ok(());
    }
    let health = serde_json::from_str::<Health>(&answer.body);
    let failed = health.map(|health| health.checks).unwrap_or_default().into_iter().filter(|check| !check.ok);
    let reasons: Vec<_> = failed.map(|check| format!("{}: {}", check.name, check.detail)).collect();
    Err(if reasons.is_empty() { format!("it says HTTP {}", answer.status) } else { reasons.join("; ") })
}

fn cluster(node: &Node) -> Option<Cluster> {
    serde_json::from_str(&ask(node, "/api/v1/cluster/status")?.body).ok()
}

/// The names of the nodes of the cluster, if it can be asked for them.
pub(super) fn members(node: &Node) -> Option<Vec<String>> {
    let seen = cluster(node).filter(|seen| seen.quorum)?;
    Some(seen.nodes.into_iter().map(|member| member.name).collect())
}

/// Its part in the control plane, in one word.
pub(super) fn role(node: &Node) -> String {
    let word = match cluster(node) {
        Some(cluster) if !cluster.clustered => "alone",
        Some(cluster) if cluster.suspended => "suspended",
        Some(cluster) => match cluster.leader {
            Some(leader) if leader == node.name => "leader",
            Some(_) => "follower",
            None => "no leader",
        },
        None => "?",
    };
    word.to_owned()
}
