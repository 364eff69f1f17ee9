//! `holdfast serve`: one node, in the foreground, logging to standard error, which nothing but the thread of the log waits for.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use tracing::{Subscriber, error, info};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, Environment, Level, Loaded, Log, LogFormat, Places};
use crate::node::{self, ReadAgain, Reload, StartError};

use super::log_writer::LogWriter;
use super::{FAILED, USAGE, config, data_dir};

/// Runs a node until it is stopped. Exit code 0 after SIGTERM or SIGINT, 2 if the configuration or a file that it names cannot be used, all of
/// the errors printed as `holdfast config check` does, 1 for anything else, such as a port that is taken. `ephemeral`: without a data directory.
pub fn run(config_file: Option<&Path>, ephemeral: bool) -> ExitCode {
    let started = Instant::now();
    let environment = Environment::of_process();
    let Loaded { config, places, settings } = match config::load_all(config_file, &environment, ephemeral) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(USAGE);
        }
    };
    // Before anything is made on the disk.
    let wrong = config::wrong_files(&config, &places);
    if !wrong.is_empty() {
        eprintln!("{}", wrong.join("\n"));
        return ExitCode::from(USAGE);
    }
    let writer = match LogWriter::start(std::io::stderr()) {
        Ok(writer) => writer,
        Err(error) => {
            eprintln!("error: the log cannot be started: {error}");
            return ExitCode::from(FAILED);
        }
    };
    start_log(&config.log, writer.clone());
    end_with_a_panic();
    let dir_of_user = config.node.data_dir.as_deref().filter(|_| config_file.is_none());
    if let Some(dir) = dir_of_user {
        info!(event = "data_dir", data_dir = %dir.display(), "{}", data_dir::in_words(dir));
    }
    let ended = node::run(&config, Reload::new(settings, read_again(config_file, environment, ephemeral)), started);
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(start_error) => refused(&start_error, &config, &places, dir_of_user.is_some()),
    };
    writer.finish();
    code
}

/// Reads the configuration as it was read at the start; with the environment of then, as no process gets another one.
fn read_again(file: Option<&Path>, environment: Environment, ephemeral: bool) -> ReadAgain {
    let file = file.map(Path::to_owned);
    Box::new(move || config::load_all(file.as_deref(), &environment, ephemeral).map_err(|error| error.to_string()))
}

/// A thread that panics has broken an invariant: the process ends, in every build, and what is on disk is taken up by the next one. A
/// node without one of its shards would answer some clients and not others.
fn end_with_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Why the node did not start: in the words of `holdfast config check` where the configuration is to blame. `in_dir_of_user`: nobody has
/// named the data directory.
fn refused(start_error: &StartError, config: &Config, places: &Places, in_dir_of_user: bool) -> ExitCode {
    if start_error.is_of_configuration() {
        let wrong = config::wrong_files(config, places);
        if !wrong.is_empty() {
            eprintln!("{}", wrong.join("\n"));
            return ExitCode::from(USAGE);
        }
    }
    match start_error {
        StartError::Identity(_) if in_dir_of_user => {
            error!(event = "start", "the broker does not start: {start_error}; {}", data_dir::WAYS_OUT);
        }
        StartError::End(_) => error!(event = "storage", "{start_error}"),
        _ => error!(event = "start", "the broker does not start: {start_error}"),
    }
    ExitCode::from(if start_error.is_of_configuration() { USAGE } else { FAILED })
}

/// What is logged of this program, and of the libraries that it is made of: they warn about single connections, in words of their source.
fn filter(level: Level) -> EnvFilter {
    match level {
        Level::Error | Level::Warn | Level::Info => {
            EnvFilter::new(format!("holdfast={},openraft=off,error", level.as_str()))
        }
        // What the Raft library says at these levels is for its authors.
        Level::Debug | Level::Trace => EnvFilter::new(format!("{},openraft=warn", level.as_str())),
    }
}

fn start_log(log: &Log, writer: LogWriter) {
    let lines = tracing_subscriber::fmt().with_env_filter(filter(log.level)).with_writer(writer).with_target(false);
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    if json {
        install(lines.json().flatten_event(true).with_current_span(false).with_span_list(false).finish(), log.level);
    } else {
        install(lines.with_ansi(std::io::stderr().is_terminal()).finish(), log.level);
    }
}

/// Libraries that log by the crate `log` name files of their source in their lines, so they are heard by those only who look that deep.
fn install(subscriber: impl Subscriber + Send + Sync + 'static, level: Level) {
    let installed = match level {
        Level::Debug | Level::Trace => subscriber.try_init().is_ok(),
        _ => tracing::subscriber::set_global_default(subscriber).is_ok(),
    };
    debug_assert!(installed, "a process has one log");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_heard_only_when_they_are_asked_for() {
        for (level, expected) in [
            (Level::Info, "holdfast=info,openraft=off,error"),
            (Level::Error, "holdfast=error,openraft=off,error"),
            (Level::Debug, "debug,openraft=warn"),
        ] {
            let text = filter(level).to_string();
            let same = |text: &str| text.split(',').map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
            assert_eq!(same(&text), same(expected));
        }
    }
}
