//! One node of a cluster: a folder and ports that stay, and at most one process at a time.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::admin::{self, View};
use super::setup::Ports;
use crate::process::{Broker, Installation, Log};

/// How long an answer of the admin port may take: a frozen node gives none.
const ANSWER: Duration = Duration::from_secs(1);

/// The same of a command, which other nodes may have to agree to.
const COMMAND: Duration = Duration::from_secs(20);

/// A place where a node runs.
pub struct Node {
    name: String,
    installation: Installation,
    ports: Ports,
    process: Mutex<Option<Arc<Broker>>>,
}

impl Node {
    pub(super) fn new(name: String, installation: Installation, ports: Ports) -> Self {
        Self { name, installation, ports, process: Mutex::new(None) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Where it takes MQTT over TCP.
    pub fn address(&self) -> SocketAddr {
        self.ports.tcp.address()
    }

    pub fn websocket_address(&self) -> SocketAddr {
        self.ports.websocket.address()
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.ports.admin.address()
    }

    /// Where its peers connect to, without a relay.
    pub fn cluster_address(&self) -> SocketAddr {
        self.ports.cluster.address()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Broker>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process at hand, or the last one.
    ///
    /// # Panics
    /// When it was never started.
    pub fn process(&self) -> Arc<Broker> {
        self.slot().clone().unwrap_or_else(|| panic!("{} was never started", self.name))
    }

    pub fn log(&self) -> Log {
        self.process().log().clone()
    }

    /// Starts a process and waits for nothing.
    ///
    /// # Panics
    /// When one runs.
    pub fn launch(&self) {
        let mut slot = self.slot();
        assert!(!slot.as_ref().is_some_and(|process| process.is_running()), "{} runs", self.name);
        *slot = Some(Arc::new(self.installation.launch()));
    }

    pub fn is_running(&self) -> bool {
        self.slot().as_ref().is_some_and(|process| process.is_running())
    }

    /// SIGKILL, and the end of the process.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// SIGTERM, and its exit, which must come in this time.
    pub fn stop(&self, patience: Duration) -> ExitStatus {
        self.process().stop(patience)
    }

    /// SIGSTOP: it is there and does nothing.
    pub fn freeze(&self) {
        self.process().signal(libc::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process().signal(libc::SIGCONT);
    }

    /// Removes all that it has written. It must not run.
    ///
    /// # Panics
    /// When it runs, or the folder cannot be removed.
    pub fn wipe(&self) {
        assert!(!self.is_running(), "{} runs", self.name);
        let data = self.installation.data_dir();
        if data.exists() {
            std::fs::remove_dir_all(data).expect("the temporary folder can be written");
        }
    }

    /// What the admin port says at a path: status and body. `None` when it does not answer.
    pub fn ask(&self, path: &str) -> Option<(u16, String)> {
        admin::get(self.admin_address(), path, ANSWER).ok()
    }

    /// What the admin port says to a command: status and body as JSON.
    ///
    /// # Panics
    /// When it does not answer.
    #[track_caller]
    pub fn command(&self, path: &str, body: &str) -> (u16, Value) {
        let (status, body) = admin::post(self.admin_address(), path, body, COMMAND)
            .unwrap_or_else(|error| panic!("{} does not answer to {path}: {error}", self.name));
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{body:?} is no JSON: {error}")))
    }

    /// What [`Node::ask`] has, as JSON, with status 200 or 503.
    pub fn ask_json(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.ask(path)?.1).ok()
    }

    /// The value of a metric, summed over its label sets that contain all of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        admin::metric(&self.ask("/metrics")?.1, name, labels)
    }

    /// All clients of the cluster with their nodes, by what this node says.
    pub fn clients(&self) -> Option<Vec<(String, String)>> {
        let (mut clients, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.ask_json(&format!("/api/v1/clients?limit=1000{after}"))?;
            for client in page.get("clients")?.as_array()? {
                let text = |key: &str| Some(client.get(key)?.as_str()?.to_owned());
                clients.push((text("client_id")?, text("node")?));
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("&after={next}"),
                None => return Some(clients),
            }
        }
    }

    /// Whether it says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.ask("/health/ready").is_some_and(|(status, _)| status == 200)
    }

    /// How it sees the cluster.
    pub fn sees(&self) -> Option<View> {
        let ready = self.is_ready();
        View::read(&self.ask_json("/health/cluster")?, ready)
    }

    /// # Panics
    /// When it has not said by then that it is ready, or has ended; with its log.
    #[track_caller]
    pub fn wait_until_ready(&self, deadline: Instant) {
        while !self.is_ready() {
            let (runs, late) = (self.is_running(), Instant::now() > deadline);
            if !runs || late {
                let what = if runs { "is not ready in time" } else { "has ended" };
                let said = self.ask("/health/ready");
                panic!("{} {what}; it says {said:?}; its log:\n{}", self.name, self.process().log().text());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
