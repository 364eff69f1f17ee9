//! `holdfast cluster rebalance`: clients are let go by nodes that have too many.

use std::collections::BTreeMap;
use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::json;

use super::table::{Table, plain};
use super::{Asker, DONE, Failure};
use crate::admin::view::{Rebalance, RebalanceNode};

/// How clients are to be shared out.
#[derive(Debug, Args)]
pub(super) struct ShareArgs {
    /// The weight of a node, from 0 to 1000, for as many nodes as are named; 1 for all others
    #[arg(long = "weight", value_name = "NODE=WEIGHT", value_parser = weight)]
    weights: Vec<(String, u32)>,
    /// Connections a second that each node lets go
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Where clients of MQTT 5.0 are told to go (Server Reference)
    #[arg(long, value_name = "HOST:PORT")]
    redirect: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum RebalanceCommand {
    /// Print how many clients each node would let go, and do nothing
    Plan(ShareArgs),
    /// Let clients of nodes that have too many go, a few at a time
    Start(ShareArgs),
    /// Let no more go
    Stop,
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let parsed = text.rsplit_once('=').and_then(|(node, weight)| Some((node.to_owned(), weight.parse().ok()?)));
    parsed
        .filter(|(node, weight)| !node.is_empty() && *weight <= 1_000)
        .ok_or_else(|| "expected NODE=WEIGHT with a weight from 0 to 1000".to_owned())
}

pub(super) fn run(command: &RebalanceCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let (verb, share) = match command {
        RebalanceCommand::Stop => {
            let body = asker.good("POST", "/api/v1/cluster/rebalance/stop", "")?;
            writeln!(out, "{}", if asker.json { &body } else { "no more clients are let go" })?;
            return Ok(DONE);
        }
        RebalanceCommand::Plan(share) => ("plan", share),
        RebalanceCommand::Start(share) => ("start", share),
    };
    let weights: BTreeMap<_, _> = share.weights.iter().cloned().collect();
    let asked = json!({"weights": weights, "terms": {"rate": share.rate, "redirect": share.redirect}});
    let body = asker.good("POST", &format!("/api/v1/cluster/rebalance/{verb}"), &asked.to_string())?;
    if asker.json {
        writeln!(out, "{body}")?;
        return Ok(DONE);
    }
    let Rebalance { nodes } = asker.parsed(&body)?;
    let row = |node: &RebalanceNode| {
        let counts = [u64::from(node.weight), node.connections, node.share, node.lets_go];
        std::iter::once(plain(&node.node)).chain(counts.map(|count| count.to_string())).collect()
    };
    let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
    Table::new(&["NODE", "WEIGHT", "CONNECTIONS", "SHARE", "LETS GO"]).write(out, &rows)?;
    Ok(DONE)
}
