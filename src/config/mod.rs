//! The configuration file: one struct for each section, its defaults, and every error of a file at once.
//!
//! A configuration is read once and then only read: [`Config::load`] makes a value that nothing changes afterwards; a reload makes another one. Reading
//! knows nothing of the rest of the broker, opens no file but the one it is given and those that this one includes, and sees the [`Environment`] that it is given.
//!
//! How a file becomes a [`Config`]:
//! 1. `sources` finds the files and variables, `toml` parses each, and goes on after a syntax error; they are joined into one document;
//! 2. each section reads its keys through `reading::Section`, which notes wrong values, unknown keys and where each key stands;
//! 3. `rules` compares keys with one another (open listeners, timers that contradict), but only keys that were read well, so that one
//!    mistake is one error.
//!
//! Invariants: a `Config` that was returned satisfies every rule; `allow_anonymous` of each listener is then decided (`Some`); all
//! relative paths have been made relative to the file that says them. An error names file, line and column, or the variable, never a value of a secret.
//!
//! Tests to read first: `tests::all_errors_at_once` and `tests::reference_file_is_the_defaults`.

mod acl;
mod admin;
mod auth;
mod cidr;
mod cluster;
mod environment;
mod errors;
mod flapping;
mod limits;
mod listener;
mod log;
mod mqtt;
mod node;
mod reading;
mod reload_class;
mod rules;
mod settings;
mod shutdown;
mod sources;
mod storage;
mod suggest;
mod sys;
#[cfg(test)]
mod tests;
mod units;
mod values;

use std::path::Path;

pub use acl::{Acl, DenyAction, ListenerAcl, NoMatch};
pub use admin::Admin;
pub use auth::{Auth, Authenticator, Cert, CertName, Jwt, ListenerAuth, TokenFrom};
pub use cidr::Cidr;
pub use cluster::{Cluster, ClusterTimers, ClusterTls};
pub use environment::{Environment, names as variable_names};
pub use errors::{ConfigError, ConfigErrors, Origin, Places};
pub use flapping::{Flapping, FlappingAction};
pub use limits::{Limits, Rate};
pub use listener::{ForwardedHeader, Listener, Protocol, ProxyProtocol, Tls, TlsVersion, Verify};
pub use log::{Level, Log, LogFormat};
pub use mqtt::{Mqtt, QueueFull};
pub use node::Node;
pub use reload_class::{ReloadClass, class_of};
pub use settings::{Change, Setting, Settings};
pub use shutdown::Shutdown;
pub use storage::{Durability, Fsync, OnCorruption, Storage};
pub use sys::Sys;
pub use units::{NEVER, parse_duration};

use reading::{Reading, Section};
use sources::Sources;

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
    ("listener.auth", auth::LISTENER_KEYS),
    ("auth.jwt", auth::JWT_KEYS),
    ("auth.cert", auth::CERT_KEYS),
    ("acl", acl::KEYS),
    ("flapping", flapping::KEYS),
    ("listener.acl", acl::LISTENER_KEYS),
    ("storage", storage::KEYS),
    ("cluster", cluster::KEYS),
    ("cluster.tls", cluster::TLS_KEYS),
    ("log", log::KEYS),
    ("sys", sys::KEYS),
    ("shutdown", shutdown::KEYS),
    ("admin", admin::KEYS),
];

/// The keys of the file's top level: the sections, and the files that it includes.
const TOP_KEYS: &[&str] = &[
    "include", "node", "listener", "mqtt", "limits", "auth", "acl", "flapping", "storage", "cluster", "log", "sys",
    "shutdown", "admin",
];

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
    /// `[flapping]`: clients that come and go too often.
    pub flapping: Flapping,
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
            flapping: Flapping::default(),
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

    /// Reads and checks the file at `path` and those that it includes, whatever the environment says.
    ///
    /// # Errors
    /// All errors at once, in the order of the files; or the one reason for which the file could not be read.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        Config::load_all(Some(path), &Environment::default()).map(|loaded| loaded.config)
    }

    /// Reads and checks the file at `path`, if there is one, those that it includes, and what the environment says.
    ///
    /// # Errors
    /// Those of [`Config::load`].
    pub fn load_all(path: Option<&Path>, environment: &Environment) -> Result<Loaded, ConfigErrors> {
        let mut sources = match path {
            Some(path) => Sources::of_text(path, read_text(path)?),
            None => Sources::of_text(Path::new(""), String::new()),
        };
        let read = |path: &Path| read_text(path).map_err(|errors| errors.without_path(path));
        sources.include(&read);
        sources.add_variables(environment, &read);
        Config::read_sources(&sources, environment)
    }

    /// Checks the text of a file. `path_for_messages` is what errors name, and its folder is what relative paths are relative to. What it includes is not read.
    ///
    /// # Errors
    /// All errors at once, in the order of the text.
    pub fn parse(text: &str, path_for_messages: &Path) -> Result<Config, ConfigErrors> {
        let sources = Sources::of_text(path_for_messages, text.to_owned());
        Config::read_sources(&sources, &Environment::default()).map(|loaded| loaded.config)
    }

    fn read_sources(sources: &Sources, environment: &Environment) -> Result<Loaded, ConfigErrors> {
        let document = sources.document(environment);
        let mut reading = Reading::new(sources, document.errors);
        let whole = document.syntax.is_empty();
        for (offset, message) in document.syntax {
            reading.syntax_error(offset, message);
        }
        let mut config = Config::read(&mut reading.top(&document.table, TOP_KEYS));
        config.decide_anonymous();
        // A key that a syntax error hides would look like a key that is absent.
        if whole {
            rules::check(&config, &mut reading);
        }
        let (config, places) = reading.finish(config)?;
        let settings = Settings::of(&document.table, sources, &config);
        Ok(Loaded { config, places, settings })
    }

    fn read(top: &mut Section<'_, '_>) -> Config {
        let node = top.section("node", node::KEYS, Node::read).unwrap_or_default();
        let listeners = top.sections("listener", listener::KEYS, Listener::read).unwrap_or_else(Listener::on_loopback);
        let mqtt = top.section("mqtt", mqtt::KEYS, Mqtt::read).unwrap_or_default();
        let limits = top.section("limits", limits::KEYS, Limits::read).unwrap_or_default();
        let auth = top.section("auth", auth::KEYS, Auth::read).unwrap_or_default();
        let acl = top.section("acl", acl::KEYS, Acl::read).unwrap_or_default();
        let flapping = top.section("flapping", flapping::KEYS, Flapping::read).unwrap_or_default();
        let storage = top.section("storage", storage::KEYS, Storage::read).unwrap_or_default();
        let cluster = top.section("cluster", cluster::KEYS, Cluster::read).flatten();
        let log = top.section("log", log::KEYS, Log::read).unwrap_or_default();
        let sys = top.section("sys", sys::KEYS, Sys::read).unwrap_or_default();
        let shutdown = top.section("shutdown", shutdown::KEYS, Shutdown::read).unwrap_or_default();
        let admin = top.section("admin", admin::KEYS, Admin::read).unwrap_or_default();
        Config { node, listeners, mqtt, limits, auth, acl, flapping, storage, cluster, log, sys, shutdown, admin }
    }
}

/// A configuration, and where it comes from.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Where each key stands, for errors that show only when the configuration is used.
    pub places: Places,
    /// The value of each key, and where it comes from.
    pub settings: Settings,
}

/// The text of a file.
fn read_text(path: &Path) -> Result<String, ConfigErrors> {
    let bytes = read_bounded(path).map_err(|message| ConfigErrors::whole_file(path, message))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        ConfigErrors::at_end_of(path, &good, "this byte is not UTF-8, and a configuration file is".to_owned())
    })
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
