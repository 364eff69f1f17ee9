//! The configuration file: one struct for each section, its defaults, and every error of a file at once.
//!
//! A configuration is read once and then only read: [`Config::load`] makes a value that nothing changes afterwards. Reading
//! knows nothing of the rest of the broker, opens no file but the one it is given, and looks at no environment variable.
//!
//! How a file becomes a [`Config`]:
//! 1. `toml` parses the text, and goes on after a syntax error;
//! 2. each section reads its keys through `reading::Section`, which notes wrong values, unknown keys and where each key stands;
//! 3. `rules` compares keys with one another (open listeners, timers that contradict), but only keys that were read well, so that one
//!    mistake is one error.
//!
//! Invariants: a `Config` that was returned satisfies every rule; `allow_anonymous` of each listener is then decided (`Some`); all
//! relative paths have been made relative to the file. An error names file, line and column, never a value of a secret.
//!
//! Tests to read first: `tests::all_errors_at_once` and `tests::reference_file_is_the_defaults`.

mod acl;
mod admin;
mod auth;
mod cidr;
mod cluster;
mod errors;
mod limits;
mod listener;
mod log;
mod mqtt;
mod node;
mod reading;
mod rules;
mod shutdown;
mod storage;
mod suggest;
mod sys;
#[cfg(test)]
mod tests;
mod units;
mod values;

use std::path::Path;

use toml::de::DeTable;

pub use acl::{Acl, DenyAction, ListenerAcl, NoMatch};
pub use admin::Admin;
pub use auth::Auth;
pub use cidr::Cidr;
pub use cluster::{Cluster, ClusterTimers, ClusterTls};
pub use errors::{ConfigError, ConfigErrors, Places};
pub use limits::{Limits, Rate};
pub use listener::{ForwardedHeader, Listener, Protocol, ProxyProtocol, Tls, TlsVersion, Verify};
pub use log::{Level, Log, LogFormat};
pub use mqtt::{Mqtt, QueueFull};
pub use node::Node;
pub use shutdown::Shutdown;
pub use storage::{Durability, Fsync, OnCorruption, Storage};
pub use sys::Sys;
pub use units::NEVER;

use reading::{Reading, Section};

/// Largest configuration file that is read, in bytes. A file beyond it is not a configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Every section, and the keys that each may hold: the one list behind "unknown key" and "did you mean".
const SECTIONS: &[(&str, &[&str])] = &[
    ("node", node::KEYS),
    ("listener", listener::KEYS),
    ("listener.tls", listener::TLS_KEYS),
    ("mqtt", mqtt::KEYS),
    ("limits", limits::KEYS),
    ("auth", auth::KEYS),
    ("acl", acl::KEYS),
    ("listener.acl", acl::LISTENER_KEYS),
    ("storage", storage::KEYS),
    ("cluster", cluster::KEYS),
    ("cluster.tls", cluster::TLS_KEYS),
    ("log", log::KEYS),
    ("sys", sys::KEYS),
    ("shutdown", shutdown::KEYS),
    ("admin", admin::KEYS),
];

/// The keys of the file's top level: the sections.
const TOP_KEYS: &[&str] =
    &["node", "listener", "mqtt", "limits", "auth", "acl", "storage", "cluster", "log", "sys", "shutdown", "admin"];

/// Everything that a node is told before it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[node]`: who this node is and where it keeps its state.
    pub node: Node,
    /// `[[listener]]`: the addresses on which clients are accepted. Never empty.
    pub listeners: Vec<Listener>,
    /// `[mqtt]`: limits and capabilities of the protocol.
    pub mqtt: Mqtt,
    /// `[limits]`: what the node and each client may use.
    pub limits: Limits,
    /// `[auth]`: how clients prove who they are.
    pub auth: Auth,
    /// `[acl]`: what clients may do.
    pub acl: Acl,
    /// `[storage]`: what of the state is kept on disk, and how.
    pub storage: Storage,
    /// `[cluster]`: the other nodes. `None`: this node is alone.
    pub cluster: Option<Cluster>,
    /// `[log]`: what is written to standard error.
    pub log: Log,
    /// `[sys]`: the `$SYS` topics.
    pub sys: Sys,
    /// `[shutdown]`: how clients are let go.
    pub shutdown: Shutdown,
    /// `[admin]`: the HTTP port for health, metrics and commands.
    pub admin: Admin,
}

impl Config {
    /// What a node without a file does: MQTT on 127.0.0.1:1883, WebSocket on 127.0.0.1:8083 and the admin port on 127.0.0.1:18083, anonymous,
    /// reachable from this machine only, and all state in memory until it is given a data directory.
    pub fn default_loopback() -> Config {
        let mut config = Config {
            node: Node::default(),
            listeners: Listener::on_loopback(),
            mqtt: Mqtt::default(),
            limits: Limits::default(),
            auth: Auth::default(),
            acl: Acl::default(),
            storage: Storage::default(),
            cluster: None,
            log: Log::default(),
            sys: Sys::default(),
            shutdown: Shutdown::default(),
            admin: Admin::default(),
        };
        config.decide_anonymous();
        config
    }

    fn decide_anonymous(&mut self) {
        for listener in &mut self.listeners {
            listener.decide_anonymous(&self.auth);
        }
    }

    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// All of the file's errors at once, in the order of the file; or the one reason for which it could not be read.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        Config::load_with_places(path).map(|(config, _)| config)
    }

    /// As [`Config::load`], with where each key stands, for errors that show only when the configuration is used.
    ///
    /// # Errors
    /// Those of [`Config::load`].
    pub fn load_with_places(path: &Path) -> Result<(Config, Places), ConfigErrors> {
        let whole_file = |message: String| ConfigErrors::whole_file(path, message);
        let bytes = read_bounded(path).map_err(whole_file)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Config::parse_with_places(text, path),
            Err(error) => {
                let (good, _) = bytes.split_at(error.valid_up_to());
                let good = String::from_utf8_lossy(good);
                Err(ConfigErrors::at_end_of(
                    path,
                    &good,
                    "this byte is not UTF-8, and a configuration file is".to_owned(),
                ))
            }
        }
    }

    /// Checks the text of a file. `path_for_messages` is what errors name, and its folder is what relative paths are relative to.
    ///
    /// # Errors
    /// All errors at once, in the order of the text.
    pub fn parse(text: &str, path_for_messages: &Path) -> Result<Config, ConfigErrors> {
        Config::parse_with_places(text, path_for_messages).map(|(config, _)| config)
    }

    fn parse_with_places(text: &str, path_for_messages: &Path) -> Result<(Config, Places), ConfigErrors> {
        let (document, syntax_errors) = DeTable::parse_recoverable(text);
        let mut reading = Reading::new(text, path_for_messages);
        for error in &syntax_errors {
            reading.syntax_error(error);
        }
        let mut config = Config::read(&mut reading.top(document.get_ref(), TOP_KEYS));
        config.decide_anonymous();
        // A key that a syntax error hides would look like a key that is absent.
        if syntax_errors.is_empty() {
            rules::check(&config, &mut reading);
        }
        reading.finish(config)
    }

    fn read(top: &mut Section<'_, '_>) -> Config {
        let node = top.section("node", node::KEYS, Node::read).unwrap_or_default();
        let listeners = top.sections("listener", listener::KEYS, Listener::read).unwrap_or_else(Listener::on_loopback);
        let mqtt = top.section("mqtt", mqtt::KEYS, Mqtt::read).unwrap_or_default();
        let limits = top.section("limits", limits::KEYS, Limits::read).unwrap_or_default();
        let auth = top.section("auth", auth::KEYS, Auth::read).unwrap_or_default();
        let acl = top.section("acl", acl::KEYS, Acl::read).unwrap_or_default();
        let storage = top.section("storage", storage::KEYS, Storage::read).unwrap_or_default();
        let cluster = top.section("cluster", cluster::KEYS, Cluster::read).flatten();
        let log = top.section("log", log::KEYS, Log::read).unwrap_or_default();
        let sys = top.section("sys", sys::KEYS, Sys::read).unwrap_or_default();
        let shutdown = top.section("shutdown", shutdown::KEYS, Shutdown::read).unwrap_or_default();
        let admin = top.section("admin", admin::KEYS, Admin::read).unwrap_or_default();
        Config { node, listeners, mqtt, limits, auth, acl, storage, cluster, log, sys, shutdown, admin }
    }
}

/// The bytes of a file of at most [`FILE_BYTES_MAX`], or why there are none.
fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes, which no configuration is"));
    }
    Ok(bytes)
}
