//! `holdfast data`: what a stopped node keeps on disk, looked at and carried elsewhere.
//!
//! | file | what it does |
//! | --- | --- |
//! | `verify` | reads everything and says what is damaged |
//! | `export` | writes the state as lines of JSON ([`crate::journal::lines`]) |
//! | `import` | makes a data directory of such lines |
//!
//! A directory is taken as a node takes it, so no node runs on it meanwhile; looking at it changes nothing in it but the process id in its lock file.
//!
//! Test to read first: `cluster-tests/tests/data`.

mod export;
mod import;
#[cfg(test)]
mod tests;
mod verify;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_storage::{Identity, IdentityError};

use super::{DONE, FAILED, USAGE, config};
use crate::config::Environment;
use crate::journal::lines::Counts;

/// `holdfast data`.
#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Read all of a data directory and say what is damaged; nothing is changed.
    ///
    /// The node must be stopped. Prints a line for each damaged place (file, byte, what) and a summary. An unfinished write at the end, which a crash leaves,
    /// is told and is no damage: nobody was ever told that it is kept.
    ///
    /// Exit code 0: all is well. 1: something is damaged, or cannot be read. 2: there is no such data directory.
    Verify {
        #[command(flatten)]
        place: Place,
    },
    /// Write what is in a data directory as lines of JSON; nothing is changed.
    ///
    /// The node must be stopped. The first line is of type "holdfast", the last one of type "end"; between them are leases, retained messages, and sessions
    /// with their subscriptions, messages and QoS 2 flows. A damaged directory is not exported.
    Export {
        #[command(flatten)]
        place: Place,
        /// Write to this file, which is there when it is complete and not before. Without it, to standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make a data directory of what was exported: all of it, or none if anything is wrong.
    ///
    /// A node that is started on it has the same sessions, queues and retained messages, and an identity of its own. Intervals have gone on
    /// meanwhile: sessions and messages whose time is over end at the start.
    Import {
        /// What  holdfast data export  has written; - is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The data directory, which is new or empty
        #[arg(value_name = "DIR", required_unless_present = "dry_run")]
        dir: Option<PathBuf>,
        /// Say what is wrong with the file, or what would be imported, and make nothing
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
}

/// Which data directory.
#[derive(Debug, Args)]
struct Place {
    /// The data directory. Without it or a configuration file, that of a node without a file: $XDG_DATA_HOME/holdfast or ~/.local/share/holdfast
    #[arg(value_name = "DIR", conflicts_with = "config")]
    dir: Option<PathBuf>,
    /// The configuration file of the node, which names the directory
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
struct Refused {
    code: u8,
    /// For people; may have several lines.
    text: String,
}

impl Refused {
    fn usage(text: impl Into<String>) -> Refused {
        Refused { code: USAGE, text: text.into() }
    }

    fn failed(text: impl ToString) -> Refused {
        Refused { code: FAILED, text: format!("error: {}", text.to_string()) }
    }
}

/// Runs `holdfast data`.
pub fn run(args: &DataArgs) -> ExitCode {
    let code = match &args.command {
        DataCommand::Verify { place } => verify::run(place),
        DataCommand::Export { place, output } => export::run(place, output.as_deref()),
        DataCommand::Import { file, dir, dry_run } => import::run(file, dir.as_deref(), *dry_run),
    };
    let code = code.unwrap_or_else(|refused| {
        // Nothing is left to do if even this cannot be written.
        let _ = writeln!(io::stderr(), "{}", refused.text);
        refused.code
    });
    ExitCode::from(code)
}

impl Place {
    fn directory(&self) -> Result<PathBuf, Refused> {
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        let environment = Environment::of_process();
        let loaded = config::load_all(self.config.as_deref(), &environment, false);
        let config = loaded.map_err(|error| Refused::usage(error.to_string()))?.config;
        config.node.data_dir.ok_or_else(|| {
            Refused::usage("error: the configuration names no data_dir, so its node keeps everything in memory")
        })
    }

    /// Takes the directory, so that no node runs on it.
    fn take(&self) -> Result<Identity, Refused> {
        let dir = self.directory()?;
        match Identity::open(&dir) {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err(Refused::usage(format!("error: there is no data directory in {}", dir.display()))),
            Err(error @ IdentityError::InUse { .. }) => Err(Refused::failed(format!("{error}: stop it first"))),
            Err(error) => Err(Refused::failed(error)),
        }
    }
}

/// What there is, as a part of a sentence.
fn in_words(counts: &Counts) -> String {
    let Counts { sessions, subscriptions, queued, handshakes, retained, wills } = *counts;
    let all = [
        (sessions, "session", "sessions"),
        (subscriptions, "subscription", "subscriptions"),
        (queued, "queued message", "queued messages"),
        (handshakes, "open QoS 2 flow", "open QoS 2 flows"),
        (retained, "retained message", "retained messages"),
        (wills, "pending Will", "pending Wills"),
    ];
    let words: Vec<_> = all.iter().map(|(count, one, many)| counted(*count, one, many)).collect();
    words.join(", ")
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
