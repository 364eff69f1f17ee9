//! The command line: one file for each noun, and the table that leads to them.
//!
//! Owns nothing. Exit codes are the same everywhere: 0 done, 1 failed, 2 wrong usage (what `clap` says too), 3 there is no node to ask. What a command
//! prints for programs goes to standard output, what it says to people about a failure to standard error.
//!
//! Test to read first: `tests::no_argument_is_serve`.

pub mod admin;
pub mod client;
pub mod config;
pub mod data;
mod data_dir;
pub mod dev;
mod log_writer;
pub mod passwd;
pub mod pub_;
pub mod serve;
pub mod sub;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};

/// The exit code of a command that did what it was asked.
pub const DONE: u8 = 0;
/// The exit code of a command that failed.
pub const FAILED: u8 = 1;
/// The exit code of a command that was asked for something that makes no sense, or could not begin.
pub const USAGE: u8 = 2;
/// The exit code of a command that found no node to ask.
pub const UNREACHABLE: u8 = 3;

/// `holdfast`.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node. This is also what no command at all does
    Serve(ServeArgs),
    /// Run a cluster of several nodes on this machine, to try things with
    Dev(dev::DevArgs),
    /// Look at configuration files
    Config(config::ConfigArgs),
    /// Add, change and remove users of a password file
    Passwd(passwd::PasswdArgs),
    /// Verify, export and import what a stopped node keeps on disk
    Data(data::DataArgs),
    /// Look at the cluster that a running node belongs to, and change who is in it
    Cluster(admin::ClusterArgs),
    /// Look at the clients of a running node or cluster, and disconnect them
    Client(admin::ClientArgs),
    /// Look at retained messages, and change and remove them
    Retained(admin::RetainedArgs),
    /// Publish messages by way of the admin port of a running node
    Publish(admin::PublishArgs),
    /// Look at the nodes of a cluster, and empty one before it is taken away
    Node(admin::NodeArgs),
    /// Ban clients, users and addresses, and take that back
    Ban(admin::BanArgs),
    /// Ask what a client may do, and which rule says so
    Acl(admin::AclArgs),
    /// Make, list and remove the API keys of a running node
    Key(admin::KeyArgs),
    /// Find out who would receive a message
    Topic(admin::TopicArgs),
    /// Ask a running node how it is
    Health(admin::HealthArgs),
    /// Publish messages
    Pub(pub_::PubArgs),
    /// Subscribe to topics and print their messages
    Sub(sub::SubArgs),
}

/// `holdfast serve`.
#[derive(Debug, Default, Args)]
struct ServeArgs {
    /// The configuration file. Without one, the node listens on this machine only: MQTT on port 1883, WebSocket on port
    /// 8083 and HTTP for health and metrics on port 18083, without passwords; and it keeps its data in
    /// $XDG_DATA_HOME/holdfast or ~/.local/share/holdfast
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The same
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep everything in memory, whatever the file says about a data directory
    #[arg(long)]
    ephemeral: bool,
}

impl ServeArgs {
    fn config_file(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    match parse(std::env::args_os()) {
        Ok(command) => run(command),
        Err(error) => {
            // Nothing is left to do if even this cannot be written.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
        }
    }
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let args: Vec<_> = args.into_iter().collect();
    let cli = Cli::try_parse_from(&args).map_err(|error| with_tip(error, args.get(1)))?;
    Ok(cli.command.unwrap_or_else(|| Command::Serve(ServeArgs::default())))
}

/// A configuration file in the place of a command, or `-c` with one, is what other brokers take.
fn with_tip(mut error: clap::Error, first: Option<&OsString>) -> clap::Error {
    let first = first.and_then(|arg| arg.to_str()).unwrap_or_default();
    if first.starts_with("-c") || first.starts_with("--config") || first.ends_with(".toml") {
        let tip = "to run a node with a configuration file: 'holdfast serve FILE'";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(args.config_file(), args.ephemeral),
        Command::Dev(args) => dev::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Passwd(args) => passwd::run(&args),
        Command::Data(args) => data::run(&args),
        Command::Cluster(args) => admin::cluster(&args),
        Command::Client(args) => admin::client(&args),
        Command::Retained(args) => admin::retained(&args),
        Command::Publish(args) => admin::publish(&args),
        Command::Node(args) => admin::node(&args),
        Command::Ban(args) => admin::ban(&args),
        Command::Acl(args) => admin::acl(&args),
        Command::Key(args) => admin::key(&args),
        Command::Topic(args) => admin::topic(&args),
        Command::Health(args) => admin::health(&args),
        Command::Pub(args) => pub_::run(&args),
        Command::Sub(args) => sub::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_declarations_agree_with_one_another() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn no_argument_is_serve() {
        let Ok(Command::Serve(args)) = parsed("holdfast") else { panic!("no serve") };
        assert_eq!(args.config_file(), None);
        for line in ["holdfast serve --config a.toml", "holdfast serve -c a.toml", "holdfast serve a.toml"] {
            let Ok(Command::Serve(args)) = parsed(line) else { panic!("{line}") };
            assert_eq!((args.config_file(), args.ephemeral), (Some(Path::new("a.toml")), false), "{line}");
        }
        let Ok(Command::Serve(args)) = parsed("holdfast serve --ephemeral") else { panic!("no serve") };
        assert_eq!((args.config_file(), args.ephemeral), (None, true));
    }

    #[test]
    fn a_file_without_a_command_gets_a_tip() {
        for line in ["holdfast -c a.toml", "holdfast --config a.toml", "holdfast a.toml"] {
            let error = parsed(line).expect_err(line);
            assert_eq!(error.exit_code(), i32::from(USAGE), "{line}");
            assert!(
                error.to_string().contains("tip: to run a node with a configuration file: 'holdfast serve FILE'"),
                "{error}"
            );
        }
    }

    #[test]
    fn wrong_usage_is_code_2_and_help_is_code_0() {
        for line in [
            "holdfast sevre",
            "holdfast serve --confg a",
            "holdfast config",
            "holdfast passwd",
            "holdfast data",
            "holdfast data verify a -c b",
            "holdfast data import a",
            "holdfast serve a b",
            "holdfast serve a -c b",
            "holdfast cluster",
            "holdfast cluster join",
            "holdfast cluster status --admin ftp://h",
            "holdfast client show",
            "holdfast client list --limit 0",
            "holdfast health dead",
            "holdfast retained rm",
            "holdfast retained put t p --qos 3",
            "holdfast publish",
            "holdfast publish t --batch f",
            "holdfast node drain --rate 0",
            "holdfast node drain n1 --local",
            "holdfast node drain --grace soon",
            "holdfast cluster rebalance",
            "holdfast cluster rebalance plan --weight n1",
            "holdfast key add",
            "holdfast key add ci --role king",
            "holdfast key add ci --scopes read,write",
        ] {
            assert_eq!(parsed(line).expect_err(line).exit_code(), i32::from(USAGE), "{line}");
        }
        for line in ["holdfast --help", "holdfast --version", "holdfast passwd --help", "holdfast config check --help"]
        {
            assert_eq!(parsed(line).expect_err(line).exit_code(), i32::from(DONE), "{line}");
        }
    }
}
