//! `holdfast retained` and `holdfast publish`: retained messages, and messages by way of the admin port.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::escaped;
use super::table::{Table, bytes, plain};
use super::{AdminArgs, Asker, DONE, FAILED, Failure};
use crate::admin::view::{Published, Retained, RetainedPage, RetainedRemoved};
use crate::admin::{BODY_BYTES_MAX, PAGE_MAX};

/// `holdfast retained`.
#[derive(Debug, Args)]
pub struct RetainedArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    #[command(subcommand)]
    pub(super) command: RetainedCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum RetainedCommand {
    /// Print the retained messages that match a filter, in the order of their topics; with --json, a line for each
    List {
        #[arg(value_name = "FILTER", default_value = "#")]
        filter: String,
        /// Print so many and no more
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// Begin behind this topic
        #[arg(long, value_name = "TOPIC")]
        after: Option<String>,
    },
    /// Print the payload of the retained message of a topic; with --json, all that is known of it
    Get {
        #[arg(value_name = "TOPIC")]
        topic: String,
    },
    /// Retain a message
    Put {
        #[arg(value_name = "TOPIC")]
        topic: String,
        /// Its payload; read from standard input if none is given
        #[arg(value_name = "PAYLOAD")]
        payload: Option<String>,
        #[arg(long, value_name = "0|1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
        qos: u8,
    },
    /// Remove the retained messages that match a filter
    Rm {
        #[arg(value_name = "FILTER")]
        filter: String,
        /// Count them, and remove none
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the retained messages that match a filter with their payloads, a line of JSON for each
    Export {
        #[arg(value_name = "FILTER", default_value = "#")]
        filter: String,
    },
    /// Retain the messages of a file that `export` wrote
    Import {
        /// Standard input if none is given
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// `holdfast publish`.
#[derive(Debug, Args)]
pub struct PublishArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[arg(value_name = "TOPIC", required_unless_present = "batch")]
    topic: Option<String>,
    /// The payload; read from standard input if none is given
    #[arg(value_name = "PAYLOAD")]
    payload: Option<String>,
    #[arg(long, value_name = "0|1|2", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Make it the retained message of its topic
    #[arg(long)]
    retain: bool,
    /// Publish the messages of a file instead, a line of JSON for each: {"topic": "a/b", "payload": "text"}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["topic", "payload", "retain"])]
    batch: Option<PathBuf>,
}

impl PublishArgs {
    pub(super) fn admin(&self) -> &AdminArgs {
        &self.admin
    }
}

pub(super) fn publish(args: &PublishArgs, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    if let Some(file) = &args.batch {
        return send_lines(&mut lines_of(Some(file))?, asker, out, Ok);
    }
    let topic = args.topic.as_deref().unwrap_or_default();
    put(topic, args.payload.as_deref(), (args.qos, args.retain), asker, out)
}

pub(super) fn run(command: &RetainedCommand, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    match command {
        RetainedCommand::List { filter, limit, after } => list(filter, *limit, after.clone(), asker, out),
        RetainedCommand::Get { topic } => get(topic, asker, out),
        RetainedCommand::Put { topic, payload, qos } => put(topic, payload.as_deref(), (*qos, true), asker, out),
        RetainedCommand::Rm { filter, dry_run } => remove(filter, *dry_run, asker, out),
        RetainedCommand::Export { filter } => {
            let each = |message: Retained| writeln!(out, "{}", serde_json::to_string(&message).unwrap_or_default());
            pages(filter, None, None, true, asker, each)
        }
        RetainedCommand::Import { file } => send_lines(&mut lines_of(file.as_ref())?, asker, out, imported),
    }
}

/// Gives all matching messages to `each`, page after page.
fn pages(
    filter: &str,
    limit: Option<u64>,
    mut after: Option<String>,
    values: bool,
    asker: &Asker,
    mut each: impl FnMut(Retained) -> std::io::Result<()>,
) -> Result<u8, Failure> {
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let count = left.min(PAGE_MAX as u64);
        let behind = after.as_deref().map_or_else(String::new, |after| format!("&after={}", escaped(after)));
        let path = format!("/api/v1/retained?filter={}&limit={count}&values={values}{behind}", escaped(filter));
        let RetainedPage { messages, next } = asker.parsed(&asker.good("GET", &path, "")?)?;
        left -= messages.len() as u64;
        for message in messages {
            each(message)?;
        }
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    Ok(DONE)
}

fn list(
    filter: &str,
    limit: Option<u64>,
    after: Option<String>,
    asker: &Asker,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let mut table = Table::new(&["TOPIC", "QOS", "BYTES", "PUBLISHER"]);
    pages(filter, limit, after, false, asker, |message| {
        if asker.json {
            return writeln!(out, "{}", serde_json::to_string(&message).unwrap_or_default());
        }
        let row = vec![plain(&message.topic), message.qos.to_string(), bytes(message.bytes), plain(&message.publisher)];
        table.write(out, &[row])
    })
}

fn get(topic: &str, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = asker.good("GET", &format!("/api/v1/retained/{}", escaped(topic)), "")?;
    if asker.json {
        writeln!(out, "{body}")?;
        return Ok(DONE);
    }
    let Retained { payload_base64, .. } = asker.parsed(&body)?;
    let payload = STANDARD.decode(payload_base64.unwrap_or_default()).map_err(|_| asker.not_understood(200))?;
    out.write_all(&payload)?;
    out.flush()?;
    Ok(DONE)
}

fn put(
    topic: &str,
    payload: Option<&str>,
    (qos, retain): (u8, bool),
    asker: &Asker,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let payload = match payload {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let mut read = Vec::new();
            let input = std::io::stdin().lock().take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut read);
            input.map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
            read
        }
    };
    let payload = STANDARD.encode(payload);
    let body = json!({"topic": topic, "payload": payload, "payload_encoding": "base64", "qos": qos, "retain": retain});
    let body = asker.good("POST", "/api/v1/publish", &body.to_string())?;
    let Published { matched } = asker.parsed(&body)?;
    let words = if matched { "published" } else { "published: nobody subscribes to it" };
    writeln!(out, "{}", if asker.json { &body } else { words })?;
    Ok(DONE)
}

fn remove(filter: &str, dry_run: bool, asker: &Asker, out: &mut dyn Write) -> Result<u8, Failure> {
    let body = json!({"filter": filter, "dry_run": dry_run}).to_string();
    loop {
        let answer = asker.good("POST", "/api/v1/retained/remove", &body)?;
        let RetainedRemoved { matched, removed, more } = asker.parsed(&answer)?;
        let also = if more && dry_run { ", and more" } else { "" };
        let words = if dry_run { format!("{matched} would be removed{also}") } else { format!("{removed} removed") };
        writeln!(out, "{}", if asker.json { answer } else { words })?;
        if dry_run || !more {
            return Ok(DONE);
        }
    }
}

fn lines_of(file: Option<&PathBuf>) -> Result<Box<dyn std::io::BufRead>, Failure> {
    let Some(path) = file else { return Ok(Box::new(BufReader::new(std::io::stdin()))) };
    let opened = std::fs::File::open(path);
    let opened = opened.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// A line of an export as a message to be published.
fn imported(line: Value) -> Result<Value, String> {
    let message: Retained = serde_json::from_value(line).map_err(|error| error.to_string())?;
    let payload = message.payload_base64.ok_or("it has no payload")?;
    let expiry = message.expires_in_secs;
    Ok(
        json!({"topic": message.topic, "payload": payload, "payload_encoding": "base64", "qos": message.qos, "retain": true, "expiry_secs": expiry}),
    )
}

/// Bytes of lines that go in one request, beside what is around them.
const BATCH_BYTES_MAX: usize = BODY_BYTES_MAX - 1024;

/// Publishes a message for each line of JSON, as many at a time as fit.
fn send_lines(
    lines: &mut dyn std::io::BufRead,
    asker: &Asker,
    out: &mut dyn Write,
    message: impl Fn(Value) -> Result<Value, String>,
) -> Result<u8, Failure> {
    let (mut batch, mut sent) = (Vec::new(), 0);
    let mut length = 0;
    for (number, line) in lines.lines().enumerate() {
        let wrong =
            |why: String| Failure::Usage(format!("line {}: {why}; {sent} messages were published before", number + 1));
        let line = line.map_err(|error| wrong(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let value = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        let text = message(value).map_err(wrong)?.to_string();
        if length + text.len() > BATCH_BYTES_MAX || batch.len() == PAGE_MAX {
            sent += send(&mut batch, asker)?;
            length = 0;
        }
        length += text.len() + 1;
        batch.push(text);
    }
    sent += send(&mut batch, asker)?;
    writeln!(out, "{}", if asker.json { json!({"published": sent}).to_string() } else { format!("{sent} published") })?;
    Ok(if sent > 0 { DONE } else { FAILED })
}

fn send(batch: &mut Vec<String>, asker: &Asker) -> Result<usize, Failure> {
    if batch.is_empty() {
        return Ok(0);
    }
    let body = format!("{{\"messages\":[{}]}}", batch.join(","));
    asker.good("POST", "/api/v1/publish/batch", &body)?;
    Ok(std::mem::take(batch).len())
}
