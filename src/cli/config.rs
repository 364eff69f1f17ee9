//! `holdfast config`: says whether a node would start with a file, without starting one; what each key would be and where that comes from; and what keys there are.
//!
//! Exit code 0: it would. 1: what is to be told cannot be written. 2: the configuration, or a file that it names, is wrong or cannot be read; `holdfast serve` says the same.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{DONE, FAILED, USAGE, data_dir};
use crate::access::acl::Acl;
use crate::access::{AccessError, LoadError};
use crate::admin::Token;
use crate::config::{
    Authenticator, Cluster, Config, ConfigError, ConfigErrors, Environment, Listener, Loaded, Places, Setting, Tls,
    class_of, variable_names,
};
use crate::link::{self, SecretError};
use crate::listener::tls::TlsReload;
use crate::node::{acl_settings, authentication};

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
    /// Exit code 0: a node can start with it. 2: something is wrong with it, or with a file that it names.
    Check {
        /// The file. Without one, the configuration that a node has without a file
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print one JSON object: good, errors (each with file, line, column and message) and warnings
        #[arg(long)]
        json: bool,
    },
    /// Print the keys that the file, those that it includes and the environment give, secrets hidden
    Show {
        /// The file. Without one, the configuration that a node has without a file
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// All keys, also those that have their defaults
        #[arg(long)]
        effective: bool,
        /// Where each value comes from: the line of a file, a variable, or the default; and when a change of it holds: now, with a reload, or after a restart
        #[arg(long)]
        origin: bool,
    },
    /// Print every key with its default and what it is for: a file that a node could start with
    Docs,
    /// Print the names of the environment variables of all keys. They outrank the file
    ///
    /// A name with _FILE at its end names a file that holds the value.
    Env,
}

/// Runs `holdfast config`.
pub fn run(args: &ConfigArgs) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let environment = &Environment::of_process();
    let code = match &args.command {
        ConfigCommand::Check { file, json: true } => check_json(file.as_deref(), environment, &mut out),
        ConfigCommand::Check { file, json: false } => check(file.as_deref(), environment, &mut out, &mut err),
        ConfigCommand::Show { file, effective, origin } => {
            show(file.as_deref(), environment, (*effective, *origin), (&mut out, &mut err))
        }
        ConfigCommand::Docs => out.write_all(include_bytes!("../../configs/reference.toml")).map(|()| DONE),
        ConfigCommand::Env => variable_names().iter().try_for_each(|name| writeln!(out, "{name}")).map(|()| DONE),
    };
    // A reader that has gone away wants no more output.
    ExitCode::from(code.unwrap_or(FAILED))
}

/// `mqtt.max_inflight = 20  # conf.d/a.toml:3, restart`
fn show(
    file: Option<&Path>,
    environment: &Environment,
    (effective, origin): (bool, bool),
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> io::Result<u8> {
    let settings = match Config::load_all(file, environment) {
        Ok(loaded) => loaded.settings,
        Err(errors) => {
            writeln!(err, "{errors}")?;
            return Ok(USAGE);
        }
    };
    for Setting { name, value, origin: from, .. } in settings.iter().filter(|one| effective || one.origin.is_some()) {
        write!(out, "{name} = {value}")?;
        if origin {
            let from = from.as_ref().map_or("default".to_owned(), ToString::to_string);
            write!(out, "  # {from}, {}", class_of(name))?;
        }
        writeln!(out)?;
    }
    Ok(DONE)
}

fn check_json(file: Option<&Path>, environment: &Environment, out: &mut dyn Write) -> io::Result<u8> {
    let one = |error: &ConfigError| {
        let (line, column) = error.place.unzip();
        let file = (!error.path.as_os_str().is_empty()).then(|| error.path.display().to_string());
        serde_json::json!({ "file": file, "line": line, "column": column, "message": error.message })
    };
    let (errors, warnings): (Vec<_>, Vec<_>) = match load_all(file, environment, false) {
        Err(NotLoaded::Config(errors)) => (errors.iter().map(one).collect(), Vec::new()),
        Err(NotLoaded::Other(message)) => (vec![serde_json::json!({ "message": message })], Vec::new()),
        Ok(Loaded { config, places, .. }) => {
            let wrong = wrong_files(&config, &places);
            let errors = wrong.iter().map(|message| serde_json::json!({ "message": message })).collect();
            (errors, foreign_addresses(&config, &places).iter().map(one).collect())
        }
    };
    let good = errors.is_empty();
    writeln!(out, "{}", serde_json::json!({ "good": good, "errors": errors, "warnings": warnings }))?;
    Ok(if good { DONE } else { USAGE })
}

/// Why there is no configuration.
pub(super) enum NotLoaded {
    Config(ConfigErrors),
    /// Without a place.
    Other(String),
}

impl std::fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotLoaded::Config(errors) => errors.fmt(f),
            NotLoaded::Other(message) => write!(f, "error: {message}"),
        }
    }
}

/// The configuration of a file, or that of a node without one, with what the environment says, and where its keys stand. `ephemeral`: without a data directory.
///
/// # Errors
/// What there is to print.
pub(super) fn load_all(file: Option<&Path>, environment: &Environment, ephemeral: bool) -> Result<Loaded, NotLoaded> {
    let mut loaded = Config::load_all(file, environment).map_err(NotLoaded::Config)?;
    data_dir::decide(&mut loaded.config, file.is_some(), ephemeral).map_err(NotLoaded::Other)?;
    Ok(loaded)
}

fn check(file: Option<&Path>, environment: &Environment, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let Loaded { config, places, .. } = match load_all(file, environment, false) {
        Ok(loaded) => loaded,
        Err(errors) => {
            writeln!(err, "{errors}")?;
            return Ok(USAGE);
        }
    };
    let wrong = wrong_files(&config, &places);
    for message in &wrong {
        writeln!(err, "{message}")?;
    }
    for message in foreign_addresses(&config, &places) {
        writeln!(err, "warning: {message}")?;
    }
    if !wrong.is_empty() {
        return Ok(USAGE);
    }
    match file {
        Some(path) => writeln!(out, "{}: good", path.display())?,
        None => writeln!(out, "without a file: good")?,
    }
    for listener in &config.listeners {
        writeln!(out, "{}", describe(listener, &config))?;
    }
    if let Some(bind) = config.admin.bind {
        let token = if config.admin.token_file.is_some() { "  token" } else { "" };
        writeln!(out, "  admin  http://{bind}{token}")?;
    }
    if let Some(cluster) = &config.cluster {
        writeln!(out, "{}", describe_cluster(cluster))?;
    }
    if let Some(dir) = &config.node.data_dir {
        writeln!(out, "  data in {}", dir.display())?;
    }
    Ok(DONE)
}

/// What is wrong with the files that the configuration names, each with the place of the key that names it.
pub(super) fn wrong_files(config: &Config, places: &Places) -> Vec<String> {
    let mut wrong = Vec::new();
    match authentication::open(config) {
        Ok(_) => {}
        Err(LoadError::Passwords(AccessError::Read { path, source })) => {
            let path = path.display();
            let hint = match source.kind() {
                io::ErrorKind::NotFound => format!("; make it with  holdfast passwd -c {path} USER"),
                _ => String::new(),
            };
            let message = format!("password_file: {path}: {source}{hint}");
            wrong.push(places.error_at("auth.password_file", message).to_string());
        }
        // They have a file and places of their own.
        Err(error) => wrong.push(error.to_string()),
    }
    wrong.extend(Acl::new(acl_settings(config)).err().map(|error| error.to_string()));
    if let Some(Err(error)) = config.admin.bind.and(config.admin.token_file.as_deref()).map(Token::read) {
        wrong.push(places.error_at("admin.token_file", error.to_string()).to_string());
    }
    for (index, listener) in config.listeners.iter().enumerate() {
        if let Some(files) = &listener.tls {
            wrong.extend(wrong_tls_files(files, &listener.name, &format!("listener[{index}].tls"), places));
        }
    }
    if let Some(cluster) = &config.cluster {
        wrong.extend(wrong_cluster_files(cluster, places));
    }
    wrong
}

/// The secret, and the first file of TLS between the nodes, that a node could not use.
fn wrong_cluster_files(cluster: &Cluster, places: &Places) -> Vec<String> {
    let said = |error: link::StartError| {
        let key = error.key();
        let name = key.rsplit('.').next().unwrap_or_default();
        let remedy = match &error {
            link::StartError::Secret(SecretError::File { path, cause }) if cause.kind() == io::ErrorKind::NotFound => {
                let path = path.display();
                format!(
                    "; make it with  (umask 077; head -c 32 /dev/urandom | base64 > {path})  and copy it to every node"
                )
            }
            _ => String::new(),
        };
        places.error_at(&key, format!("{name}: {error}{remedy}")).to_string()
    };
    link::wrong_files(cluster).into_iter().map(said).collect()
}

/// Every file that cannot be opened; if all can, what is wrong with them together.
fn wrong_tls_files(files: &Tls, listener: &str, section: &str, places: &Places) -> Vec<String> {
    let at = |key: &str, error: &dyn Display| {
        places.error_at(&format!("{section}.{key}"), format!("{key}: {error}")).to_string()
    };
    let named = [
        ("cert", Some(&files.cert)),
        ("key", Some(&files.key)),
        ("ca", files.ca.as_ref()),
        ("crl", files.crl.as_ref()),
    ];
    let wrong: Vec<_> = named
        .into_iter()
        .filter_map(|(key, path)| {
            let error = std::fs::File::open(path?).err()?;
            Some(at(key, &format!("{}: {error}", path?.display())))
        })
        .collect();
    if !wrong.is_empty() {
        return wrong;
    }
    match TlsReload::new(listener, files) {
        Ok(_) => Vec::new(),
        Err(error) => vec![at(error.key(files).unwrap_or("tls"), &error)],
    }
}

/// Addresses of listeners that are not addresses of this machine. No error: the file may be meant for another one.
fn foreign_addresses(config: &Config, places: &Places) -> Vec<ConfigError> {
    let listeners = config.listeners.iter().enumerate();
    listeners
        .filter_map(|(index, listener)| {
            let mut any_port = listener.bind;
            any_port.set_port(0);
            let error = std::net::TcpListener::bind(any_port).err()?;
            let message = format!("bind: no node on this machine can listen on {}: {error}", listener.bind.ip());
            Some(places.error_at(&format!("listener[{index}].bind"), message))
        })
        .collect()
}

/// `  tcp  mqtt://127.0.0.1:1883  anonymous`
fn describe(listener: &Listener, config: &Config) -> String {
    let path = if listener.is_websocket() { listener.path.as_str() } else { "" };
    let auth = config.auth.at(listener.auth.as_ref());
    let mut who = Vec::new();
    let ways = [
        (listener.allow_anonymous == Some(true), Authenticator::File, "anonymous"),
        (auth.password_file.is_some(), Authenticator::File, "password"),
        (auth.jwt.is_some(), Authenticator::Jwt, "token"),
        (listener.tls.is_some() && auth.cert.username_from.is_some(), Authenticator::Cert, "certificate"),
    ];
    for (is_way, authenticator, name) in ways {
        if is_way && (name == "anonymous" || auth.order.contains(&authenticator)) {
            who.push(name);
        }
    }
    let who = who.join(" or ");
    format!("  {}  {}://{}{path}  {who}", listener.name, listener.scheme(), listener.bind)
}

/// `  cluster  plant  on 127.0.0.1:7946  expected_size 3  seeds n1:7946, n2:7946`
fn describe_cluster(cluster: &Cluster) -> String {
    let Cluster { name, bind, expected_size, .. } = cluster;
    let tls = if cluster.tls.is_some() { "  TLS" } else { "" };
    let seeds = if cluster.seeds.is_empty() { "none".to_owned() } else { cluster.seeds.join(", ") };
    format!("  cluster  {name}  on {bind}{tls}  expected_size {expected_size}  seeds {seeds}")
}

#[cfg(test)]
mod tests;
