//! `holdfast health`: a probe for scripts and containers that have no `curl`.

use std::io::Write;

use clap::{Args, ValueEnum};

use super::table::plain;
use super::{AdminArgs, Asker, DONE, FAILED, Failure};
use crate::admin::view::{Cluster, Health};

/// `holdfast health`.
///
/// Exit code 0: all is well. 1: the node answers that it is not. 3: no answer.
#[derive(Debug, Args)]
pub struct HealthArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// What is asked
    #[arg(value_enum, value_name = "PROBE", default_value_t = Probe::Ready)]
    pub(super) probe: Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Probe {
    /// Whether the node does its work at all
    Live,
    /// Whether clients should be sent to it
    Ready,
    /// Whether its start is over
    Startup,
    /// Whether its cluster can agree
    Cluster,
}

impl Probe {
    fn path(self) -> &'static str {
        match self {
            Probe::Live => "/health/live",
            Probe::Ready => "/health/ready",
            Probe::Startup => "/health/startup",
            Probe::Cluster => "/health/cluster",
        }
    }
}

pub(super) fn run(probe: Probe, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let answer = asker.ask("GET", probe.path(), "")?;
    let code = match answer.status {
        200 => DONE,
        503 => FAILED,
        other => return Err(asker.not_understood(other)),
    };
    if asker.json {
        writeln!(out, "{}", answer.body)?;
        return Ok(code);
    }
    // A node that is starting has checks to tell in the place of its cluster.
    match (serde_json::from_str::<Health>(&answer.body), probe) {
        (Ok(health), _) => write_checks(&health, out)?,
        (Err(_), Probe::Cluster) => {
            let cluster: Cluster = asker.parsed(&answer.body)?;
            let word = |yes, word: &str| format!("{}{word}", if yes { "" } else { "no " });
            writeln!(out, "{}{}", word(cluster.quorum, "quorum"), if cluster.suspended { ", suspended" } else { "" })?;
        }
        (Err(_), _) => return Err(asker.not_understood(answer.status)),
    }
    Ok(code)
}

fn write_checks(health: &Health, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{}", plain(&health.status))?;
    for check in &health.checks {
        let mark = if check.ok { "ok    " } else { "FAILED" };
        let detail = if check.detail.is_empty() { String::new() } else { format!(": {}", plain(&check.detail)) };
        writeln!(out, "  {mark} {}{detail}", plain(&check.name))?;
    }
    Ok(())
}
