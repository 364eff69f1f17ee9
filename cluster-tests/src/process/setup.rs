//! The configuration of one broker under test, and the folder it lives in.

use std::fmt::Write as _;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Broker, Installation};
use crate::certificates::Authority;

/// A line as `mosquitto_passwd` writes it, with few iterations: an unoptimized program should not hash for seconds.
const ALICE: &str = "alice:$7$101$aG9sZGZhc3Qgc2FsdA==$IP4Nctt0DWa+F40NKmzNwDNOzdxtnFH7I3iEf0TccMRb+j4iH4fYoSTlC+PYinz0u9PboUU24B9e/5ZExebNEQ==\n";

/// Sections of a configuration file, all ports 0. The file is written when the broker starts.
pub struct Setup {
    folder: TempDir,
    sections: Vec<String>,
    mqtt: Vec<String>,
    listeners: Vec<String>,
    authority: Option<Authority>,
    listener_lines: String,
    admin: String,
    shards: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// No listener yet.
    ///
    /// # Panics
    /// When no temporary folder can be made.
    pub fn empty() -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-test").tempdir().expect("a temporary folder");
        Self {
            folder,
            sections: Vec::new(),
            mqtt: Vec::new(),
            listeners: Vec::new(),
            authority: None,
            listener_lines: String::new(),
            admin: String::new(),
            shards: 4,
        }
    }

    /// Listeners `tcp` and `ws`. Every broker has four shards, however many cores there are, so that most clients of a test are on different ones.
    pub fn new() -> Self {
        Self::empty().listener("tcp", "mqtt", "").listener("ws", "ws", "")
    }

    /// Listeners `tls` and `wss` too, with a certificate that the clients of this broker trust.
    pub fn with_tls(self) -> Self {
        let authority = Authority::new("Holdfast tests");
        let leaf = authority.server(1);
        let tls = "tls = { cert = \"server.crt\", key = \"server.key\" }";
        let mut setup = self
            .file("server.crt", &leaf.certificate)
            .file("server.key", &leaf.key)
            .listener("tls", "mqtt", tls)
            .listener("wss", "ws", tls);
        setup.authority = Some(authority);
        setup
    }

    /// Lines of configuration for the listeners that are added from now on.
    pub fn listener_lines(mut self, lines: &str) -> Self {
        self.listener_lines = format!("{lines}\n");
        self
    }

    /// A listener on a port of the kernel's choice, with more lines of configuration.
    pub fn listener(mut self, name: &str, protocol: &str, more: &str) -> Self {
        let lines = &self.listener_lines;
        self.listeners.push(format!(
            "[[listener]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nbind = \"127.0.0.1:0\"\n{lines}{more}\n"
        ));
        self
    }

    /// A line of the section `[mqtt]`.
    pub fn mqtt(mut self, line: &str) -> Self {
        self.mqtt.push(line.to_owned());
        self
    }

    /// Another number of shards than four.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// A line of the section `[admin]`, whose port is one of the kernel's choice.
    pub fn admin(mut self, line: &str) -> Self {
        self.admin += &format!("{line}\n");
        self
    }

    /// A whole section, which is none of those for which there is a word here.
    pub fn section(mut self, text: &str) -> Self {
        self.sections.push(text.to_owned());
        self
    }

    /// A file beside the configuration.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(self, name: &str, content: &str) -> Self {
        std::fs::write(self.path(name), content).expect("the temporary folder can be written");
        self
    }

    /// A password file with the user `alice`, whose password is `secret`. Anonymous clients are then refused.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn with_alice(self) -> Self {
        self.file("passwords", ALICE).section("[auth]\npassword_file = \"passwords\"")
    }

    /// The path of a file beside the configuration.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a broker of the test's own; `None` when the tests run against a foreign one, which cannot be configured.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(self) -> Option<Broker> {
        if Broker::is_foreign() {
            return None;
        }
        Some(Broker::start(self))
    }

    /// Writes the configuration for brokers that are started one after another on the same data.
    pub fn install(self) -> Installation {
        Installation::new(self)
    }

    pub(super) fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Writes the file; its path, the folder to keep, and the authority of the clients.
    pub(super) fn write(self) -> (PathBuf, TempDir, Option<Authority>) {
        let mut text = format!("[node]\nshards = {}\ndata_dir = \"data\"\n\n", self.shards);
        text += "[log]\nformat = \"json\"\n\n";
        // Clients of tests come and go faster than any that mean well.
        text += "[flapping]\nenabled = false\n\n";
        text += &format!("[admin]\nbind = \"127.0.0.1:0\"\n{}\n\n", self.admin);
        for section in &self.sections {
            let _ = writeln!(text, "{section}\n");
        }
        if !self.mqtt.is_empty() {
            let _ = writeln!(text, "[mqtt]\n{}\n", self.mqtt.join("\n"));
        }
        text.extend(self.listeners);
        let path = self.folder.path().join("holdfast.toml");
        std::fs::write(&path, text).expect("the temporary folder can be written");
        (path, self.folder, self.authority)
    }
}
