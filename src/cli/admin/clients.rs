//! `holdfast client`: the clients of all nodes, one of them, and the end of a connection.

use std::io::Write;

use clap::{Args, Subcommand};

use super::http::escaped;
use super::table::{self, Table, or_dash, plain};
use super::{AdminArgs, Asker, DONE, FAILED, Failure, history};
use crate::admin::PAGE_MAX;
use crate::admin::view::{Client, ClientDetail, ClientPage, Kicked};

/// `holdfast client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: ClientCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Print the clients of all nodes in the order of their ids; with --json, a line for each.
    ///
    /// Exit code 0: that is all of them, or as many as were asked for. 1: some node did not answer.
    List {
        /// Print so many and no more
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// Begin behind this client id
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Print connections that have ended instead, the latest first: as many of the last 10,000 of each node as there are
        #[arg(long)]
        closed: bool,
    },
    /// Print when and why the connections of a client have ended, the latest first; with --json, a line for each
    History {
        #[arg(value_name = "ID")]
        id: String,
        /// Print so many and no more
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Print what is known of a client and its subscriptions
    Show {
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Close the connection of a client. Its session stays, and it may come back at once
    Kick {
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(super) fn run(command: &ClientCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    match command {
        ClientCommand::List { limit, after, closed: true } => history::list(None, *limit, after.clone(), asker, out),
        ClientCommand::History { id, limit } => history::list(Some(id), *limit, None, asker, out),
        ClientCommand::List { limit, after, closed: false } => list(*limit, after.clone(), asker, out),
        ClientCommand::Show { id } => show(id, asker, out),
        ClientCommand::Kick { id } => kick(id, asker, out),
    }
}

fn list(limit: Option<u64>, mut after: Option<String>, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let mut left = limit.unwrap_or(u64::MAX);
    let mut missing: Vec<String> = Vec::new();
    let head = ["client id", "node", "state", "version", "peer", "user", "subs", "queued", "in flight"];
    let mut table = Table::new(&head);
    loop {
        let mut path = format!("/api/v1/clients?limit={}", left.min(PAGE_MAX as u64));
        if let Some(after) = &after {
            path += &format!("&after={}", escaped(after));
        }
        let ClientPage { clients, next, missing: silent } = asker.parsed(&asker.good("GET", &path, "")?)?;
        left = left.saturating_sub(clients.len() as u64);
        write_page(&clients, asker.json, &mut table, out)?;
        missing.extend(silent);
        // A node that names no other client than the last one would never end.
        let goes_on = next.is_some() && next != after && left > 0;
        after = next;
        if !goes_on {
            break;
        }
    }
    if let Some(after) = after {
        eprintln!("there are more: --after {}", plain(&after));
    }
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Ok(DONE);
    }
    eprintln!("warning: no answer from {}: the clients there are not in the list", missing.join(", "));
    Ok(FAILED)
}

fn write_page(clients: &[Client], json: bool, table: &mut Table, out: &mut dyn Write) -> Result<(), Failure> {
    if !json {
        return Ok(table.write(out, &clients.iter().map(row).collect::<Vec<_>>())?);
    }
    for client in clients {
        let line = serde_json::to_string(client).unwrap_or_default();
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn row(client: &Client) -> Vec<String> {
    vec![
        plain(&client.client_id),
        plain(&client.node),
        state(client).to_owned(),
        or_dash(client.version.as_deref()),
        or_dash(client.peer.as_deref()),
        or_dash(client.user_name.as_deref()),
        client.subscriptions.to_string(),
        client.queue_messages.to_string(),
        client.inflight.to_string(),
    ]
}

fn state(client: &Client) -> &'static str {
    if client.connected { "connected" } else { "offline" }
}

fn show(id: &str, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = asker.good("GET", &format!("/api/v1/clients/{}", escaped(id)), "")?;
    if asker.json {
        writeln!(out, "{body}")?;
        return Ok(DONE);
    }
    let ClientDetail { client, subscriptions, truncated } = asker.parsed(&body)?;
    let expiry =
        client.session_expiry_secs.map_or_else(|| "never".to_owned(), |secs| format!("{secs} s after it has gone"));
    let queue = format!("{} ({})", client.queue_messages, table::bytes(client.queue_bytes));
    for (name, value) in [
        ("client id", plain(&client.client_id)),
        ("node", format!("{}, shard {}", plain(&client.node), client.shard)),
        ("state", state(&client).to_owned()),
        ("version", or_dash(client.version.as_deref())),
        ("peer", or_dash(client.peer.as_deref())),
        ("listener", or_dash(client.listener.as_deref())),
        ("user", or_dash(client.user_name.as_deref())),
        ("session ends", expiry),
        ("epoch", client.epoch.to_string()),
        ("queued", queue),
        ("in flight", client.inflight.to_string()),
        ("unsent", table::bytes(client.outbox_bytes)),
        ("dropped", client.dropped.to_string()),
        ("subscriptions", client.subscriptions.to_string()),
    ] {
        writeln!(out, "{name:<14} {value}")?;
    }
    for subscription in subscriptions {
        writeln!(out, "  {}  QoS {}", plain(&subscription.filter), subscription.qos)?;
    }
    if truncated {
        writeln!(out, "  …")?;
    }
    Ok(DONE)
}

fn kick(id: &str, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = asker.good("POST", &format!("/api/v1/clients/{}/kick", escaped(id)), "")?;
    let kicked: Kicked = asker.parsed(&body)?;
    if asker.json {
        writeln!(out, "{body}")?;
    } else if kicked.was_connected {
        writeln!(out, "{} is disconnected from {}", plain(id), plain(&kicked.node))?;
    } else {
        writeln!(out, "{} was not connected; its session is on {}", plain(id), plain(&kicked.node))?;
    }
    Ok(DONE)
}
