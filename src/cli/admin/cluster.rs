//! `holdfast cluster`: who is in it and how it is, and changes of who is in it.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use super::http::{self, AskError};
use super::rebalance::{self, RebalanceCommand};
use super::table::{self, Table, or_dash, plain};
use super::{AdminArgs, Asker, DONE, Failure};
use crate::admin::view::{Cluster, CopiesAt, CopyFigures, Leaving};

/// From the answer to `leave` to the end of the process: what a node takes to close its journal, and more.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// `holdfast cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Print the nodes, the leader, the links and how far the node has come, as the node that is asked sees it
    Status,
    /// Let the node that is asked join the cluster of another node
    Join {
        /// HOST:PORT, the cluster address of any node of it
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// Take the node that is asked out of its cluster for good, which stopping it does not, and wait until its process has ended. Before it goes, sessions that only
    /// it and one other node have are copied to nodes that stay
    Leave {
        /// Do not wait for copies: sessions of which there is no other one are lost
        #[arg(long)]
        force: bool,
    },
    /// Share clients out anew among the nodes
    #[command(subcommand)]
    Rebalance(RebalanceCommand),
    /// Have another voter lead, if the node that is asked does
    TransferLeader,
    /// Take another node out of the cluster for good, one that will not come back
    ForceLeave {
        /// The name or the id of the node
        #[arg(value_name = "NODE")]
        node: String,
    },
}

pub(super) fn run(command: &ClusterCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let (verb, body) = match command {
        ClusterCommand::Status => return status(asker, out),
        ClusterCommand::Rebalance(command) => return rebalance::run(command, asker, out),
        ClusterCommand::TransferLeader => ("transfer-leader", String::new()),
        ClusterCommand::Leave { force } => return leave(*force, asker, out),
        ClusterCommand::Join { address } => ("join", json!({ "address": address }).to_string()),
        ClusterCommand::ForceLeave { node } => ("force-leave", json!({ "node": node }).to_string()),
    };
    let answer = asker.good("POST", &format!("/api/v1/cluster/{verb}"), &body)?;
    writeln!(out, "{}", if asker.json { &answer } else { "done" })?;
    Ok(DONE)
}

/// Asks until the node has left, and says meanwhile what it waits for.
fn leave(force: bool, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = if force { json!({ "force": true }).to_string() } else { String::new() };
    let mut told = String::new();
    loop {
        let answer = asker.good("POST", "/api/v1/cluster/leave", &body)?;
        let Leaving { done, progress } = asker.parsed(&answer)?;
        if done {
            let words = match asker.json {
                true => answer.as_str(),
                false if ends_within(asker, ENDS_WITHIN) => "done: the node has left, and its process has ended",
                false => "done: the node has left, and its process ends",
            };
            writeln!(out, "{words}")?;
            return Ok(DONE);
        }
        if asker.json || progress != told {
            writeln!(out, "{}", if asker.json { &answer } else { &progress })?;
            out.flush()?;
        }
        told = progress;
    }
}

/// Waits until nobody listens at the admin port any more, which is the last thing that a process closes.
fn ends_within(asker: &Asker, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        match http::ask_until(deadline, &asker.target, None, "GET", "/health/live", "") {
            Err(AskError::Connect(_)) => return true,
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
    false
}

fn status(asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = asker.good("GET", "/api/v1/cluster/status", "")?;
    if asker.json {
        writeln!(out, "{body}")?;
    } else {
        write_status(&asker.parsed(&body)?, out)?;
    }
    Ok(DONE)
}

fn write_status(cluster: &Cluster, out: &mut dyn Write) -> io::Result<()> {
    let name = plain(&cluster.name);
    if !cluster.clustered {
        writeln!(out, "{name} is a node without a cluster")?;
        return Ok(());
    }
    let id = or_dash(cluster.id.as_deref());
    let leader =
        cluster.leader.as_deref().map_or_else(|| "no leader".to_owned(), |leader| format!("leader {}", plain(leader)));
    let quorum = match (cluster.quorum, cluster.quorum_critical) {
        (false, _) => "NO QUORUM",
        (true, true) => "quorum, and the loss of one more voter would end it",
        (true, false) => "quorum",
    };
    writeln!(out, "cluster {name}  id {id}  {leader}  term {}  {quorum}", cluster.term)?;
    let grant = match (cluster.suspended, cluster.grant_remaining_ms) {
        (true, _) => "  SUSPENDED: serves no clients".to_owned(),
        (false, Some(ms)) => format!("  grant {:.1} s", ms as f64 / 1000.0),
        (false, None) => String::new(),
    };
    let Cluster { applied, last_log, apply_lag, .. } = cluster;
    writeln!(
        out,
        "as {} sees it: applied {applied} of {last_log}, behind by {apply_lag}{grant}\n",
        plain(&cluster.node)
    )?;
    write_nodes(cluster, out)?;
    if !cluster.links.is_empty() {
        writeln!(out)?;
        write_links(cluster, out)?;
    }
    if !cluster.copies.is_empty() {
        writeln!(out)?;
        write_copies(cluster, out)?;
    }
    Ok(())
}

fn write_copies(cluster: &Cluster, out: &mut dyn Write) -> io::Result<()> {
    let rows = cluster.copies.iter().map(|copies| {
        let figures = copies.figures;
        vec![
            plain(&copies.home),
            plain(&copies.heir),
            state_of(copies),
            figures.map_or_else(|| "-".to_owned(), |figures| table::bytes(figures.lag_bytes)),
            figures.map_or_else(|| "-".to_owned(), |figures| figures.lag_records.to_string()),
        ]
    });
    Table::new(&["sessions of", "copies on", "state", "lag", "records"]).write(out, &rows.collect::<Vec<_>>())
}

/// In words, with how far a fill is.
fn state_of(copies: &CopiesAt) -> String {
    let state = plain(&copies.state);
    let Some(CopyFigures { to_fill, filled, filled_bytes, .. }) = copies.figures.filter(|_| state == "filling") else {
        return state;
    };
    let percent = (100 * filled).checked_div(to_fill).unwrap_or(100);
    format!("{state} {percent} % ({filled} of {to_fill} sessions, {})", table::bytes(filled_bytes))
}

fn write_nodes(cluster: &Cluster, out: &mut dyn Write) -> io::Result<()> {
    let rows = cluster.nodes.iter().map(|node| {
        let role = match (node.leader, node.voter) {
            (true, _) => "leader",
            (false, true) => "voter",
            (false, false) => "learner",
        };
        let own = if node.own { "*" } else { "" };
        vec![
            format!("{}{own}", plain(&node.name)),
            (if node.live { "live" } else { "dead" }).to_owned(),
            role.to_owned(),
            or_dash(node.address.as_deref()),
            node.incarnation.to_string(),
            plain(&node.id),
        ]
    });
    // Nobody decides who is dead without a quorum.
    let state = if cluster.quorum { "state" } else { "last known" };
    Table::new(&["node", state, "role", "address", "incarnation", "id"]).write(out, &rows.collect::<Vec<_>>())
}

fn write_links(cluster: &Cluster, out: &mut dyn Write) -> io::Result<()> {
    let rows = cluster.links.iter().map(|link| {
        vec![
            plain(&link.peer),
            (if link.up { "up" } else { "down" }).to_owned(),
            link.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.2} ms")),
            table::bytes(link.bytes_in),
            table::bytes(link.bytes_out),
            table::bytes(link.queue_bytes),
            table::bytes(link.forward_queue_bytes),
            plain(&link.last_error),
        ]
    });
    let head = ["link to", "state", "round trip", "in", "out", "queue", "publishes waiting", "last error"];
    Table::new(&head).write(out, &rows.collect::<Vec<_>>())
}
