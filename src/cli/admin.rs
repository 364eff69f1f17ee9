//! `holdfast cluster`, `client`, `ban`, `acl`, `key`, `node`, `retained`, `publish` and `health`: what the admin port of a running node is asked, and told.
//!
//! | file | what it does |
//! | --- | --- |
//! | `http` | one question and its answer over HTTP/1.1, with deadlines and bounds |
//! | `acl` | `acl test` |
//! | `ban` | `ban add`, `list` and `rm` |
//! | `clients` | `client list`, `show` and `kick` |
//! | `cluster` | `cluster status`, `join`, `leave` and `force-leave` |
//! | `health` | `health`, for scripts and containers |
//! | `key` | `key add`, `list` and `rm` |
//! | `node` | `node list`, `show`, `drain` and `undrain` |
//! | `retained` | `retained list`, `get`, `put`, `rm`, `export` and `import`; `publish` |
//! | `rebalance` | `cluster rebalance plan`, `start` and `stop` |
//! | `history` | `client list --closed` and `client history` |
//! | `topics` | `topic match` |
//! | `table` | columns of text |
//!
//! Exit codes: 0 done, 1 the node said no, 2 wrong usage, 3 there is no node to ask.
//!
//! Test to read first: `tests.rs`.

mod acl;
mod ban;
mod clients;
mod cluster;
mod health;
mod history;
pub(super) mod http;
mod key;
mod node;
mod rebalance;
mod retained;
mod table;
#[cfg(test)]
mod tests;
mod topics;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::de::DeserializeOwned;

use super::{DONE, FAILED, UNREACHABLE, USAGE};
use crate::admin::Token;
use crate::admin::view::Refused;

pub use acl::AclArgs;
pub use ban::BanArgs;
pub use clients::ClientArgs;
pub use cluster::ClusterArgs;
pub use health::HealthArgs;
pub use key::KeyArgs;
pub use node::NodeArgs;
pub use retained::{PublishArgs, RetainedArgs};
pub use topics::TopicArgs;

/// Where the node is, and how it is asked.
#[derive(Debug, Clone, Args)]
struct AdminArgs {
    /// The admin port of the node
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:18083", value_parser = http::parse_url)]
    admin: http::Target,
    /// The file with the token of the admin port, if it wants one
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
enum Failure {
    Usage(String),
    /// Nobody answers, or it is no Holdfast node.
    Unreachable(String),
    /// The node says no: with the body of its answer, and in words.
    Refused {
        body: String,
        words: String,
    },
    /// Standard output is gone; whoever read it wants no more.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

/// Asks one node.
struct Asker {
    target: http::Target,
    token: Option<Token>,
    json: bool,
}

impl AdminArgs {
    fn asker(&self) -> Result<Asker, Failure> {
        let token = self.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Asker { target: self.admin.clone(), token, json: self.json })
    }
}

impl Asker {
    /// The status and the body of an answer, whatever they are.
    fn ask(&self, method: &str, path: &str, body: &str) -> Result<http::Answer, Failure> {
        let token = self.token.as_ref().map(Token::as_str);
        http::ask(&self.target, token, method, path, body).map_err(|error| {
            Failure::Unreachable(format!("{}: {error}{}", self.target, elsewhere(&self.target, &error)))
        })
    }

    /// The body of an answer that is good.
    fn good(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let answer = self.ask(method, path, body)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        match serde_json::from_str::<Refused>(&answer.body) {
            Ok(refused) => {
                let hint = if refused.hint.is_empty() { String::new() } else { format!("\n  {}", refused.hint) };
                Err(Failure::Refused { body: answer.body, words: format!("{}{hint}", refused.message) })
            }
            Err(_) => Err(self.not_understood(answer.status)),
        }
    }

    fn parsed<T: DeserializeOwned>(&self, body: &str) -> Result<T, Failure> {
        serde_json::from_str(body).map_err(|_| self.not_understood(200))
    }

    fn not_understood(&self, status: u16) -> Failure {
        let target = &self.target;
        Failure::Unreachable(format!(
            "{target}: the answer (HTTP {status}) is none of a Holdfast node: is this its admin port?"
        ))
    }
}

/// Where else a node may be, for whoever named none.
fn elsewhere(target: &http::Target, error: &http::AskError) -> &'static str {
    if matches!(error, http::AskError::Connect(_) | http::AskError::TimedOut) && *target == http::Target::usual() {
        "\n  another node is asked with --admin URL; `holdfast dev --status` has those of a dev cluster"
    } else {
        ""
    }
}

/// Runs a command, and says what there is to say about it.
fn run(args: &AdminArgs, command: impl FnOnce(&Asker, &mut dyn Write) -> Result<u8, Failure>) -> ExitCode {
    let mut out = io::stdout().lock();
    let done = args.asker().and_then(|asker| command(&asker, &mut out));
    let code = done.unwrap_or_else(|failure| tell(failure, args.json, &mut out, &mut io::stderr().lock()));
    ExitCode::from(code)
}

/// Says why, where programs or people look for it. Returns the exit code.
fn tell(failure: Failure, json: bool, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (code, words) = match failure {
        Failure::Usage(words) => (USAGE, words),
        Failure::Unreachable(words) => (UNREACHABLE, words),
        Failure::Refused { body, words } => {
            if json {
                // There is nobody left to be told.
                let _ = writeln!(out, "{body}");
            }
            (FAILED, words)
        }
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return DONE,
        Failure::Output(error) => (FAILED, format!("standard output: {error}")),
    };
    let _ = writeln!(err, "error: {words}");
    code
}

/// Runs `holdfast client`.
pub fn client(args: &ClientArgs) -> ExitCode {
    run(&args.admin, |asker, out| clients::run(&args.command, asker, out))
}

/// Runs `holdfast acl`.
pub fn acl(args: &AclArgs) -> ExitCode {
    run(&args.admin, |asker, out| acl::run(&args.command, asker, out))
}

/// Runs `holdfast ban`.
pub fn ban(args: &BanArgs) -> ExitCode {
    run(&args.admin, |asker, out| ban::run(&args.command, asker, out))
}

/// Runs `holdfast topic`.
pub fn topic(args: &TopicArgs) -> ExitCode {
    run(&args.admin, |asker, out| topics::run(&args.command, asker, out))
}

/// Runs `holdfast cluster`.
pub fn cluster(args: &ClusterArgs) -> ExitCode {
    run(&args.admin, |asker, out| cluster::run(&args.command, asker, out))
}

/// Runs `holdfast health`.
pub fn health(args: &HealthArgs) -> ExitCode {
    run(&args.admin, |asker, out| health::run(args.probe, asker, out))
}

/// Runs `holdfast key`.
pub fn key(args: &KeyArgs) -> ExitCode {
    run(&args.admin, |asker, out| key::run(&args.command, asker, out))
}

/// Runs `holdfast node`.
pub fn node(args: &NodeArgs) -> ExitCode {
    run(&args.admin, |asker, out| node::run(&args.command, asker, out))
}

/// Runs `holdfast retained`.
pub fn retained(args: &RetainedArgs) -> ExitCode {
    run(&args.admin, |asker, out| retained::run(&args.command, asker, out))
}

/// Runs `holdfast publish`.
pub fn publish(args: &PublishArgs) -> ExitCode {
    run(args.admin(), |asker, out| retained::publish(args, asker, out))
}
