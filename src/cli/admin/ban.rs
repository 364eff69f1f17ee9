//! `holdfast ban`: whom the nodes of a cluster do not let in.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::http::escaped;
use super::table::{Table, plain};
use super::{AdminArgs, Asker, DONE, Failure};
use crate::access::bans::{BanKind, WrittenBan, now_ms};
use crate::admin::view::Bans;

/// `holdfast ban`.
#[derive(Debug, Args)]
pub struct BanArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: BanCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum BanCommand {
    /// Let somebody in no more, on any node, and close the connections that it has
    Add {
        /// By what: client_id, user_name, or address, which takes networks such as 192.0.2.0/24 too
        #[arg(value_name = "BY", value_parser = kind)]
        by: BanKind,
        /// Whom
        #[arg(value_name = "VALUE")]
        value: String,
        /// End it after so long, such as 90s, 30m, 12h or 7d; without it, it has no end
        #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
        lasts: Option<Duration>,
        /// Why, for the log and the list
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Print the bans
    List,
    /// Take a ban back
    Rm {
        /// By what it is: client_id, user_name or address
        #[arg(value_name = "BY", value_parser = kind)]
        by: BanKind,
        /// Whom
        #[arg(value_name = "VALUE")]
        value: String,
    },
}

fn kind(text: &str) -> Result<BanKind, String> {
    let found = BanKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| "expected client_id, user_name or address".to_owned())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a time such as 90s, 30m, 12h or 7d";
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or(EXPECTED)?;
    let secs = match &text[unit..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(EXPECTED.to_owned()),
    };
    let count: u32 = text[..unit].parse().map_err(|_| EXPECTED)?;
    Ok(Duration::from_secs(u64::from(count.max(1)) * secs))
}

pub(super) fn run(command: &BanCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    match command {
        BanCommand::Add { by, value, lasts, reason } => {
            let until_ms = lasts.map(|lasts| now_ms() + lasts.as_millis() as u64);
            let asked = serde_json::json!({"by": by, "value": value, "until_ms": until_ms, "reason": reason});
            let body = asker.good("POST", "/api/v1/bans", &asked.to_string())?;
            let words = format!("the {} {} is banned", by.name(), plain(value));
            writeln!(out, "{}", if asker.json { body } else { words })?;
        }
        BanCommand::List => list(asker, out)?,
        BanCommand::Rm { by, value } => {
            let path = format!("/api/v1/bans/{}/{}", by.name(), escaped(value));
            let body = asker.good("DELETE", &path, "")?;
            let words = format!("the {} {} is banned no more", by.name(), plain(value));
            writeln!(out, "{}", if asker.json { body } else { words })?;
        }
    }
    Ok(DONE)
}

fn list(asker: &Asker, out: &mut dyn Write) -> Result<(), Failure> {
    let body = asker.good("GET", "/api/v1/bans", "")?;
    if asker.json {
        return Ok(writeln!(out, "{body}")?);
    }
    let Bans { bans } = asker.parsed(&body)?;
    let now = now_ms();
    let row = |ban: &WrittenBan| {
        let left = ban
            .until_ms
            .map_or_else(|| "for ever".to_owned(), |until| format!("{} s", until.saturating_sub(now) / 1_000));
        vec![ban.by.name().to_owned(), plain(&ban.value), left, plain(&ban.reason)]
    };
    let rows: Vec<_> = bans.iter().map(row).collect();
    Ok(Table::new(&["BY", "VALUE", "LASTS", "REASON"]).write(out, &rows)?)
}
