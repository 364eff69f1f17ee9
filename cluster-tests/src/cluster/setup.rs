//! The configuration of a cluster under test.

use std::fmt::Write as _;
use std::path::Path;

use tempfile::TempDir;

use super::relay::{Relay, Relays};
use super::turnstile::Ticket;
use super::{Cluster, Node, Port};
use crate::process::Installation;

/// Small segments: three nodes should not take a hundred megabytes each.
const STORAGE: &str = "[storage]\nsegment_bytes = \"4MB\"\n";

/// What every node of a cluster is told. The variable `HOLDFAST_COPIES` says how many copies sessions have where a test does not.
pub struct ClusterSetup {
    size: usize,
    shards: usize,
    on_disk: bool,
    storage: String,
    sections: Vec<String>,
    cluster: Vec<String>,
    files: Vec<(&'static str, String)>,
    secret: String,
}

impl ClusterSetup {
    /// So many nodes, with two shards and a data directory each.
    pub fn new(size: usize) -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("random bytes");
        let secret = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (sections, cluster) = (Vec::new(), Vec::new());
        let files = Vec::new();
        Self { size, shards: 2, on_disk: true, storage: STORAGE.to_owned(), sections, cluster, files, secret }
    }

    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// Without data directories.
    pub fn in_memory(mut self) -> Self {
        (self.on_disk, self.storage) = (false, String::new());
        self
    }

    /// A line of the section `[storage]`.
    pub fn storage(mut self, line: &str) -> Self {
        self.storage.push_str(line);
        self.storage.push('\n');
        self
    }

    /// A whole section for every node.
    pub fn section(mut self, text: &str) -> Self {
        self.sections.push(text.to_owned());
        self
    }

    /// A line of the section `[cluster]`.
    pub fn cluster(mut self, line: &str) -> Self {
        self.cluster.push(line.to_owned());
        self
    }

    /// A file beside the configuration of every node.
    pub fn file(mut self, name: &'static str, text: &str) -> Self {
        self.files.push((name, text.to_owned()));
        self
    }

    /// Starts all nodes and waits until the cluster is whole.
    ///
    /// # Panics
    /// When it does not come to that.
    pub fn start(self) -> Cluster {
        let cluster = self.prepare();
        cluster.start(cluster.all());
        cluster.whole_within(super::READY);
        cluster
    }

    /// Makes folders, ports and relays, and starts nothing. Waits until fewer clusters run.
    ///
    /// # Panics
    /// When a folder cannot be written.
    pub fn prepare(self) -> Cluster {
        let ticket = Ticket::take();
        let relays = Relays::new();
        let ports: Vec<_> = (0..self.size).map(|_| Ports::reserve()).collect();
        let ways: Vec<Vec<_>> = (0..self.size)
            .map(|from| {
                let targets = ports.iter().enumerate();
                targets.map(|(to, port)| (to != from).then(|| relays.relay(port.cluster.address()))).collect()
            })
            .collect();
        let nodes = ports.into_iter().enumerate().map(|(number, ports)| {
            let prefix = format!("holdfast-{}-", name(number));
            let folder = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary folder");
            self.write(folder.path(), number, &ports, &ways[number]);
            Node::new(name(number), Installation::in_folder(folder, 2), ports)
        });
        let nodes = nodes.collect();
        Cluster::new(nodes, ways, relays, ticket)
    }

    fn write(&self, folder: &Path, number: usize, ports: &Ports, ways: &[Option<Relay>]) {
        std::fs::write(folder.join("secret"), &self.secret).expect("the temporary folder can be written");
        for (name, text) in &self.files {
            std::fs::write(folder.join(name), text).expect("the temporary folder can be written");
        }
        let text = self.text(number, ports, ways);
        std::fs::write(folder.join("holdfast.toml"), text).expect("the temporary folder can be written");
    }

    fn text(&self, number: usize, ports: &Ports, ways: &[Option<Relay>]) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "[node]\nname = \"{}\"\nshards = {}", name(number), self.shards);
        if self.on_disk {
            text.push_str("data_dir = \"data\"\n");
        }
        let _ = writeln!(text, "\n[log]\nformat = \"json\"\n\n{}", self.storage);
        // Clients of tests come and go faster than any that mean well.
        let _ = writeln!(text, "[flapping]\nenabled = false\n");
        let _ = writeln!(text, "[admin]\nbind = \"{}\"\n", ports.admin.address());
        for section in &self.sections {
            let _ = writeln!(text, "{section}\n");
        }
        let peers: Vec<_> =
            ways.iter().enumerate().filter_map(|(to, way)| Some((to, way.as_ref()?.address()))).collect();
        let seeds: Vec<_> = peers.iter().map(|(_, address)| format!("\"{address}\"")).collect();
        let _ = writeln!(text, "[cluster]\nname = \"test\"\nbind = \"{}\"", ports.cluster.address());
        let _ = writeln!(text, "secret_file = \"secret\"\nseeds = [{}]", seeds.join(", "));
        let _ = writeln!(text, "expected_size = {}", self.size);
        if let Ok(copies) = std::env::var("HOLDFAST_COPIES")
            && self.cluster.iter().all(|line| !line.starts_with("session_copies"))
        {
            let _ = writeln!(text, "session_copies = {copies}");
        }
        for line in &self.cluster {
            let _ = writeln!(text, "{line}");
        }
        text.push_str("\n[cluster.peer_addresses]\n");
        for (to, address) in peers {
            let _ = writeln!(text, "{} = \"{address}\"", name(to));
        }
        for (listener, protocol, port) in [("tcp", "mqtt", &ports.tcp), ("ws", "ws", &ports.websocket)] {
            let bind = port.address();
            let _ =
                writeln!(text, "\n[[listener]]\nname = \"{listener}\"\nprotocol = \"{protocol}\"\nbind = \"{bind}\"");
        }
        text
    }
}

fn name(number: usize) -> String {
    format!("n{}", number + 1)
}

/// Of one node.
pub(super) struct Ports {
    pub(super) tcp: Port,
    pub(super) websocket: Port,
    pub(super) admin: Port,
    pub(super) cluster: Port,
}

impl Ports {
    fn reserve() -> Self {
        Self { tcp: Port::reserve(), websocket: Port::reserve(), admin: Port::reserve(), cluster: Port::reserve() }
    }
}

/// A node that belongs to no cluster of the harness: for starts that are refused, and for strangers.
pub struct Stranger<'s> {
    /// `None`: no key for it.
    pub secret: Option<&'s str>,
    pub name: &'s str,
    pub bind: String,
    pub seeds: Vec<String>,
}

impl Stranger<'_> {
    /// Writes its configuration; the test starts it and watches.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn install(&self) -> Installation {
        let folder: TempDir =
            tempfile::Builder::new().prefix("holdfast-stranger-").tempdir().expect("a temporary folder");
        let mut text = format!("[node]\nname = \"{}\"\nshards = 1\n\n[log]\nformat = \"json\"\n\n", self.name);
        text.push_str("[admin]\nbind = \"127.0.0.1:0\"\n\n");
        let seeds: Vec<_> = self.seeds.iter().map(|seed| format!("\"{seed}\"")).collect();
        let _ = writeln!(text, "[cluster]\nname = \"test\"\nbind = \"{}\"\nseeds = [{}]", self.bind, seeds.join(", "));
        text.push_str("expected_size = 3\n");
        if let Some(secret) = self.secret {
            std::fs::write(folder.path().join("secret"), secret).expect("the temporary folder can be written");
            text.push_str("secret_file = \"secret\"\n");
        }
        text.push_str("\n[[listener]]\nname = \"tcp\"\nprotocol = \"mqtt\"\nbind = \"127.0.0.1:0\"\n");
        std::fs::write(folder.path().join("holdfast.toml"), text).expect("the temporary folder can be written");
        Installation::in_folder(folder, 1)
    }
}
