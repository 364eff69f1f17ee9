//! `holdfast dev`: a cluster of real nodes on this machine, to try things with.
//!
//! One process starts the nodes as processes of this same program, watches over them and stops them when it is stopped. It keeps what it has told
//! them, their logs and their data in one folder; the same command with `--kill`, `--stop`, `--start` or `--status` finds the nodes there from
//! another terminal.
//!
//! | file | what it does |
//! | --- | --- |
//! | `plan` | which nodes there are, on which ports, and what they are told |
//! | `folder` | the files of the folder |
//! | `process` | one node as a process: starting it, finding it again, signals |
//! | `asking` | readiness and role, from the nodes' admin ports |
//! | `running` | the command that starts all of them and stays |
//! | `remote` | the commands for another terminal |
//! | `table` | what is printed |
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage.
//!
//! Test to read first: `tests.rs`.

mod asking;
mod folder;
mod plan;
mod process;
mod remote;
mod running;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};

use super::{DONE, FAILED, USAGE};
use plan::NODES_MAX;

/// `holdfast dev`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("elsewhere").args(["kill", "stop", "start", "status"]))]
pub struct DevArgs {
    /// How many nodes there are
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=NODES_MAX))]
    nodes: u8,
    /// The folder for the data, the logs and the configuration of the nodes
    #[arg(long, value_name = "DIR", default_value = folder::DEFAULT)]
    data: PathBuf,
    /// Remove the folder at the end
    #[arg(long, conflicts_with = "elsewhere")]
    ephemeral: bool,
    /// Take ten ports for each node from this one on, in the place of 1883, 2883 …; 0: any that are free
    #[arg(long, value_name = "PORT", conflicts_with = "elsewhere")]
    port_base: Option<u16>,
    /// From another terminal: end a node's process without warning, as a crash would
    #[arg(long, value_name = "NODE", conflicts_with = "nodes")]
    kill: Option<String>,
    /// From another terminal: stop a node in good order
    #[arg(long, value_name = "NODE", conflicts_with = "nodes")]
    stop: Option<String>,
    /// From another terminal: start a node that was killed or stopped
    #[arg(long, value_name = "NODE", conflicts_with = "nodes")]
    start: Option<String>,
    /// From another terminal: say which nodes run
    #[arg(long, conflicts_with = "nodes")]
    status: bool,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
enum Failure {
    /// It makes no sense here and now: exit code 2.
    Usage(String),
    /// It did not work: exit code 1.
    Failed(String),
}

impl Failure {
    /// An operation on a file or process, and why it did not work.
    fn of(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Failure {
        move |error| Failure::Failed(format!("{what}: {error}"))
    }
}

/// Runs `holdfast dev`.
pub fn run(args: &DevArgs) -> ExitCode {
    let folder = folder::Folder::new(&args.data);
    let done = match (&args.kill, &args.stop, &args.start) {
        (Some(node), _, _) => remote::kill(&folder, node),
        (_, Some(node), _) => remote::stop(&folder, node),
        (_, _, Some(node)) => remote::start(&folder, node),
        _ if args.status => remote::status(&folder),
        _ => running::run(&folder, args.nodes, args.port_base, args.ephemeral),
    };
    let (code, words) = match done {
        Ok(()) => return ExitCode::from(DONE),
        Err(Failure::Usage(words)) => (USAGE, words),
        Err(Failure::Failed(words)) => (FAILED, words),
    };
    eprintln!("error: {words}");
    ExitCode::from(code)
}

/// A line for whoever watches; one who has gone away misses it.
fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
