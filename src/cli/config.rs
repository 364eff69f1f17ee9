//! `holdfast config check`: says whether a node would start with a file, without starting one.
//!
//! Exit code 0: it would. 1: the configuration is wrong, or a file that it names. 2: the file could not be read at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{DONE, FAILED, USAGE};
use crate::access::Access;
use crate::config::{Config, Listener};
use crate::listener::tls::TlsReload;

/// `holdfast config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Say all that is wrong with a configuration file, or what it opens.
    ///
    /// Exit code 0: a node can start with it. 1: something is wrong. 2: the file cannot be read.
    Check {
        /// The file. Without one, the configuration that a node has without a file
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Runs `holdfast config`.
pub fn run(args: &ConfigArgs) -> ExitCode {
    let ConfigCommand::Check { file } = &args.command;
    // A reader that has gone away wants no more output.
    let code = check(file.as_deref(), &mut io::stdout().lock(), &mut io::stderr().lock()).unwrap_or(FAILED);
    ExitCode::from(code)
}

fn check(file: Option<&Path>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let loaded = match file {
        Some(path) => Config::load(path),
        None => Ok(Config::default_loopback()),
    };
    let config = match loaded {
        Ok(config) => config,
        Err(errors) => {
            writeln!(err, "{errors}")?;
            let unread = errors.iter().all(|error| error.place.is_none());
            return Ok(if unread { USAGE } else { FAILED });
        }
    };
    let wrong = wrong_files(&config);
    for message in &wrong {
        writeln!(err, "{message}")?;
    }
    if !wrong.is_empty() {
        return Ok(FAILED);
    }
    match file {
        Some(path) => writeln!(out, "{}: good", path.display())?,
        None => writeln!(out, "without a file: good")?,
    }
    for listener in &config.listeners {
        writeln!(out, "{}", describe(listener, &config))?;
    }
    Ok(DONE)
}

/// What is wrong with the files that the configuration names.
fn wrong_files(config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Err(error) = Access::new(config.auth.password_file.as_deref()) {
        wrong.push(error.to_string());
    }
    for listener in &config.listeners {
        if let Some(Err(error)) = listener.tls.as_ref().map(TlsReload::new) {
            wrong.push(format!("TLS of listener \"{}\": {error}", listener.name));
        }
    }
    wrong
}

/// `  tcp  mqtt://127.0.0.1:1883  anonymous`
fn describe(listener: &Listener, config: &Config) -> String {
    let path = if listener.is_websocket() { listener.path.as_str() } else { "" };
    let who = match (listener.allow_anonymous, &config.auth.password_file) {
        (Some(true), None) => "anonymous",
        (Some(true), Some(_)) => "anonymous or password",
        _ => "password",
    };
    format!("  {}  {}://{}{path}  {who}", listener.name, listener.scheme(), listener.bind)
}

#[cfg(test)]
mod tests;
