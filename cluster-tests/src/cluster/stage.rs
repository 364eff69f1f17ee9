//! What a test works on: a cluster, and names that no other test on it uses.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Cluster, attempt};
use crate::client::Client;
use crate::transport::{Link, Transport};
use crate::wire::{ConnAck, Connect, Version};

/// One test's view of a cluster.
pub struct ClusterStage<'c> {
    pub cluster: &'c Cluster,
    prefix: String,
}

impl<'c> ClusterStage<'c> {
    pub fn new(cluster: &'c Cluster) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self { cluster, prefix: format!("t{}x", COUNT.fetch_add(1, Ordering::Relaxed)) }
    }

    /// A client id of this test.
    pub fn client_id(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A topic name or filter below this test's own first level.
    pub fn topic(&self, rest: &str) -> String {
        format!("{}/{rest}", self.prefix)
    }

    /// A shared subscription of this test.
    pub fn share(&self, name: &str, filter: &str) -> String {
        format!("$share/{}{name}/{}", self.prefix, self.topic(filter))
    }

    /// A CONNECT with a client id of this test, and a clean session.
    pub fn hello(&self, version: Version, name: &str) -> Connect {
        Connect::new(version, self.client_id(name))
    }

    /// A CONNECT of a 5.0 client with a session that is kept for an hour.
    pub fn kept(&self, name: &str) -> Connect {
        self.hello(Version::V5, name).durable(3_600)
    }

    /// A connection to a node, on which no MQTT has been spoken yet.
    #[track_caller]
    pub fn open(&self, node: usize, version: Version) -> Client {
        match Link::open(Transport::Tcp, self.cluster.node(node).address(), None) {
            Ok(link) => Client::new(link, version),
            Err(error) => panic!("cannot connect to {}: {error}", self.cluster.node(node).name()),
        }
    }

    /// Connects, which must succeed at once.
    #[track_caller]
    pub fn connect(&self, node: usize, connect: &Connect) -> (Client, ConnAck) {
        let mut client = self.open(node, connect.version);
        let ack = client.connect(connect);
        (client, ack)
    }

    /// Connects, again and again until it succeeds, which must be in this time.
    #[track_caller]
    pub fn connect_within(&self, node: usize, connect: &Connect, patience: Duration) -> (Client, ConnAck) {
        attempt::connect_within(self.cluster.node(node).address(), connect, patience)
    }

    /// A connected 5.0 client with a clean session.
    #[track_caller]
    pub fn v5(&self, node: usize, name: &str) -> Client {
        self.connect(node, &self.hello(Version::V5, name)).0
    }

    /// A subscriber with a clean session, proved to get what is published on another node.
    #[track_caller]
    pub fn watcher(&self, node: usize, name: &str, filter: &str) -> Client {
        let mut watcher = self.v5(node, name);
        assert_eq!(watcher.subscribe(self.topic(filter), 1), 1);
        let proof = self.topic(&format!("proof/{name}"));
        assert_eq!(watcher.subscribe(&proof, 1), 1);
        let elsewhere = (node + 1) % self.cluster.len();
        self.v5(elsewhere, &format!("{name}proof")).publish(&proof, "proof", 1);
        assert_eq!(watcher.take().text(), "proof");
        watcher
    }
}
