//! `holdfast client list --closed` and `client history`: connections that have ended, on all nodes.

use std::io::Write;

use super::http::escaped;
use super::table::{Table, bytes, or_dash, plain, utc};
use super::{Asker, DONE, FAILED, Failure};
use crate::admin::PAGE_MAX;
use crate::admin::view::{ClosedConnection, ClosedPage};

pub(super) fn list(
    client: Option<&str>,
    limit: Option<u64>,
    mut after: Option<String>,
    asker: &Asker,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let mut left = limit.unwrap_or(u64::MAX);
    let mut missing: Vec<String> = Vec::new();
    let mut table =
        Table::new(&["ended", "client id", "node", "reason", "open", "peer", "user", "in", "out", "detail"]);
    loop {
        let mut path = format!("/api/v1/connections?state=closed&limit={}", left.min(PAGE_MAX as u64));
        for (name, value) in [("client", client), ("after", after.as_deref())] {
            path += &value.map_or_else(String::new, |value| format!("&{name}={}", escaped(value)));
        }
        let ClosedPage { closed, next, missing: silent } = asker.parsed(&asker.good("GET", &path, "")?)?;
        left = left.saturating_sub(closed.len() as u64);
        write_page(&closed, asker.json, &mut table, out)?;
        missing.extend(silent);
        // A node that names no other place than the last one would never end.
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
    eprintln!("warning: no answer from {}: what has ended there is not in the list", missing.join(", "));
    Ok(FAILED)
}

fn write_page(closed: &[ClosedConnection], json: bool, table: &mut Table, out: &mut dyn Write) -> Result<(), Failure> {
    if !json {
        return Ok(table.write(out, &closed.iter().map(row).collect::<Vec<_>>())?);
    }
    for one in closed {
        writeln!(out, "{}", serde_json::to_string(one).unwrap_or_default())?;
    }
    Ok(())
}

fn row(closed: &ClosedConnection) -> Vec<String> {
    let open_secs = closed.closed_at_ms.saturating_sub(closed.accepted_at_ms) as f64 / 1000.0;
    vec![
        utc(closed.closed_at_ms),
        plain(&closed.client_id),
        plain(&closed.node),
        plain(&closed.reason),
        format!("{open_secs:.1} s"),
        plain(&closed.peer),
        or_dash(closed.user_name.as_deref()),
        bytes(closed.bytes_in),
        bytes(closed.bytes_out),
        or_dash(Some(&closed.detail)),
    ]
}
