//! `holdfast topic`: who would receive a message.

use std::io::Write;

use clap::{Args, Subcommand};

use super::http::escaped;
use super::table::{Table, or_dash, plain};
use super::{AdminArgs, Asker, DONE, FAILED, Failure};
use crate::admin::view::{Matches, Receiver};

/// `holdfast topic`.
#[derive(Debug, Args)]
pub struct TopicArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: TopicCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum TopicCommand {
    /// Print who would receive a message of this topic, on which node, and by which filter.
    ///
    /// Of the members of a share group one gets it. Exit code 1: some node did not answer.
    Match {
        #[arg(value_name = "TOPIC")]
        topic: String,
    },
}

pub(super) fn run(command: &TopicCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let TopicCommand::Match { topic } = command;
    let body = asker.good("GET", &format!("/api/v1/topics/match?topic={}", escaped(topic)), "")?;
    let found: Matches = asker.parsed(&body)?;
    if asker.json {
        writeln!(out, "{body}")?;
    } else if found.receivers.is_empty() {
        writeln!(out, "nobody would receive {}", plain(topic))?;
    } else {
        let mut table = Table::new(&["client id", "node", "filter", "share group", "qos", "state"]);
        table.write(out, &found.receivers.iter().map(row).collect::<Vec<_>>())?;
    }
    if found.truncated {
        eprintln!("there are more");
    }
    if found.missing.is_empty() {
        return Ok(DONE);
    }
    eprintln!("warning: no answer from {}: who is there is not in the list", found.missing.join(", "));
    Ok(FAILED)
}

fn row(receiver: &Receiver) -> Vec<String> {
    vec![
        plain(&receiver.client_id),
        plain(&receiver.node),
        plain(&receiver.filter),
        or_dash(receiver.share.as_deref()),
        receiver.qos.to_string(),
        if receiver.connected { "connected" } else { "offline" }.to_owned(),
    ]
}
