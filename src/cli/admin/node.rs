//! `holdfast node`: how much each node has to do, and one that is emptied before it is taken away.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use super::http::escaped;
use super::table::{Table, plain};
use super::{AdminArgs, Asker, DONE, FAILED, Failure};
use crate::admin::view::{Drain, DrainTerms, NodeLoad, Nodes};

/// `holdfast node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum NodeCommand {
    /// Print all nodes and how much each has to do. Exit code 1: one does not answer
    List,
    /// Print what a node has to do, and how far it is with letting clients go
    #[command(visible_alias = "status")]
    Show {
        /// Its name; the node that is asked when none is said
        #[arg(value_name = "NODE", default_value = "local")]
        node: String,
    },
    /// Empty a node: it is not ready, stops accepting, lets its clients go a few at a time, and hands over
    Drain(DrainArgs),
    /// Have a node take clients again
    Undrain {
        /// Its name; the node that is asked when none is said
        #[arg(value_name = "NODE", default_value = "local")]
        node: String,
        /// The node that is asked
        #[arg(long, conflicts_with = "node")]
        local: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    /// Its name; the node that is asked when none is said
    #[arg(value_name = "NODE", default_value = "local")]
    node: String,
    /// The node that is asked
    #[arg(long, conflicts_with = "node")]
    local: bool,
    /// Connections a second; without it, as many as empty the node within the spread
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// In which time, such as 60s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    spread: Option<Duration>,
    /// How long the node is not ready and takes clients all the same
    #[arg(long, value_name = "TIME", value_parser = duration)]
    grace: Option<Duration>,
    /// Where clients of MQTT 5.0 are told to go (Server Reference)
    #[arg(long, value_name = "HOST:PORT")]
    redirect: Option<String>,
    /// Whether or not they come back elsewhere
    #[arg(long)]
    force: bool,
    /// Wait until the node is drained, and the others can do without it
    #[arg(long, visible_alias = "wait-quorum")]
    wait: bool,
    /// The longest that is waited
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::config::parse_duration(text).ok_or_else(|| "expected a duration such as 60s (units: ms, s, m, h)".to_owned())
}

pub(super) fn run(command: &NodeCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    match command {
        NodeCommand::List => list(asker, out),
        NodeCommand::Show { node } => show(node, asker, out),
        NodeCommand::Drain(args) => drain(args, asker, out),
        NodeCommand::Undrain { node, .. } => {
            let body = asker.good("POST", &format!("/api/v1/nodes/{}/undrain", escaped(node)), "")?;
            writeln!(out, "{}", if asker.json { body } else { "the node takes clients".to_owned() })?;
            Ok(DONE)
        }
    }
}

fn list(asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = asker.good("GET", "/api/v1/nodes", "")?;
    let Nodes { nodes } = asker.parsed(&body)?;
    let silent = nodes.iter().any(|node| node.load.is_none());
    let code = if silent { FAILED } else { DONE };
    if asker.json {
        writeln!(out, "{body}")?;
        return Ok(code);
    }
    let row = |node: &NodeLoad| {
        let NodeLoad { member, load } = node;
        let of_load = |pick: &dyn Fn(&crate::admin::view::Load) -> String| load.as_ref().map_or("-".to_owned(), pick);
        vec![
            plain(&member.name),
            if member.live { "live" } else { "dead" }.to_owned(),
            if member.leader {
                "leader"
            } else if member.voter {
                "voter"
            } else {
                ""
            }
            .to_owned(),
            of_load(&|load| load.connections.to_string()),
            of_load(&|load| load.sessions.to_string()),
            of_load(&|load| load.drain.as_ref().map_or("serving".to_owned(), |drain| plain(&drain.phase))),
        ]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    Table::new(&["NODE", "STATE", "ROLE", "CONNECTIONS", "SESSIONS", "DOES"]).write(out, &rows)?;
    Ok(code)
}

fn ask(node: &str, asker: &Asker) -> Result<(String, NodeLoad), Failure> {
    let body = asker.good("GET", &format!("/api/v1/nodes/{}", escaped(node)), "")?;
    let node = asker.parsed(&body)?;
    Ok((body, node))
}

fn show(node: &str, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let (body, NodeLoad { member, load }) = ask(node, asker)?;
    if asker.json {
        writeln!(out, "{body}")?;
        return Ok(DONE);
    }
    writeln!(out, "{} {}", plain(&member.name), if member.live { "live" } else { "dead" })?;
    let Some(load) = load else {
        writeln!(out, "  it does not answer")?;
        return Ok(FAILED);
    };
    writeln!(out, "  connections  {} of {}", load.connections, load.connections_max)?;
    writeln!(out, "  sessions     {}", load.sessions)?;
    writeln!(out, "  {}", load.drain.as_ref().map_or("serving".to_owned(), in_words))?;
    Ok(DONE)
}

fn in_words(drain: &Drain) -> String {
    let Drain { phase, reason, remaining, closed, rate, eta_ms, headroom, .. } = drain;
    let back = drain.returned.map_or_else(String::new, |returned| format!(", {returned} came back elsewhere"));
    let reason = if reason.is_empty() { String::new() } else { format!(" ({})", plain(reason)) };
    let seconds = eta_ms.div_ceil(1_000);
    format!(
        "{}{reason}: {remaining} to go, {closed} closed{back}, {rate}/s, {seconds} s left; the other nodes have room for {headroom}",
        plain(phase)
    )
}

/// How often it is asked how far the node is.
const ASK_AGAIN: Duration = Duration::from_millis(500);

fn drain(args: &DrainArgs, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
    let terms = DrainTerms {
        rate: args.rate,
        spread_ms: ms(args.spread),
        grace_ms: ms(args.grace),
        redirect: args.redirect.clone(),
        force: args.force,
    };
    let asked = serde_json::to_string(&terms).map_err(|error| Failure::Usage(error.to_string()))?;
    let deadline = Instant::now() + args.timeout;
    let body = asker.good("POST", &format!("/api/v1/nodes/{}/drain", escaped(&args.node)), &asked)?;
    let mut drain: Drain = asker.parsed(&body)?;
    let mut told = String::new();
    loop {
        let words = if asker.json { serde_json::to_string(&drain).unwrap_or_default() } else { in_words(&drain) };
        if words != told {
            writeln!(out, "{words}")?;
            out.flush()?;
            told = words;
        }
        match drain.phase.as_str() {
            "drained" => return Ok(DONE),
            "aborted" => return Ok(FAILED),
            _ if !args.wait => return Ok(DONE),
            _ if Instant::now() > deadline => {
                let words = format!("the node is not drained within {} s; it goes on", args.timeout.as_secs());
                return Err(Failure::Refused { body: words.clone(), words });
            }
            _ => sleep(ASK_AGAIN),
        }
        let (_, node) = ask(&args.node, asker)?;
        let Some(now) = node.load.and_then(|load| load.drain) else {
            writeln!(out, "the drain was undone")?;
            return Ok(FAILED);
        };
        drain = now;
    }
}
