//! `holdfast serve`: one node, in the foreground, logging to standard error, which nothing but the thread of the log waits for.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use tracing::error;
use tracing_subscriber::EnvFilter;

use crate::config::{Config, Log, LogFormat};
use crate::node;

use super::log_writer::LogWriter;
use super::{FAILED, USAGE};

/// Runs a node until it is stopped. Exit code 0 after SIGTERM or SIGINT, 1 if it could not start, 2 if the configuration is
/// wrong, all of its errors printed.
pub fn run(config_file: Option<PathBuf>) -> ExitCode {
    let started = Instant::now();
    let config = match config_file.map_or_else(|| Ok(Config::default_loopback()), |path| Config::load(&path)) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(USAGE);
        }
    };
    let writer = match LogWriter::start(std::io::stderr()) {
        Ok(writer) => writer,
        Err(error) => {
            eprintln!("the log cannot be started: {error}");
            return ExitCode::from(FAILED);
        }
    };
    start_log(&config.log, writer.clone());
    let code = match node::run(&config, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(start_error) => {
            error!(event = "start", "the broker does not start: {start_error}");
            ExitCode::from(FAILED)
        }
    };
    writer.finish();
    code
}

fn start_log(log: &Log, writer: LogWriter) {
    let filter = EnvFilter::new(log.level.as_str());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    if json {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).init();
    }
}
