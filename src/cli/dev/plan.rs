//! Which nodes there are, on which ports, and what each is told.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde::{Deserialize, Serialize};

use crate::config::Admin;

/// The most nodes: their usual ports, a thousand apart, do not meet.
pub(super) const NODES_MAX: i64 = 9;

/// Nodes that found the cluster, of however many; the others join.
const FOUNDERS_MAX: usize = 5;

/// From the ports of one node to those of the next.
const STEP: u16 = 1_000;

/// The same with `--port-base`.
const STEP_FROM_BASE: u16 = 10;

/// What `holdfast dev` was started with: its nodes, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The name of the cluster, such as `dev-7f3a`. Kept with the data.
    pub cluster: String,
    /// The folder goes at the end.
    pub ephemeral: bool,
    pub nodes: Vec<Node>,
}

/// One node: its name and its ports on 127.0.0.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Node {
    pub name: String,
    pub mqtt: u16,
    pub ws: u16,
    pub admin: u16,
    pub cluster: u16,
}

impl Node {
    pub fn admin_address(&self) -> SocketAddr {
        at(self.admin)
    }

    /// A port of the node that it cannot have now, and why.
    pub fn taken_port(&self) -> Option<(SocketAddr, io::Error)> {
        let addresses = [self.mqtt, self.ws, self.admin, self.cluster].map(at);
        addresses.into_iter().find_map(|address| Some((address, TcpListener::bind(address).err()?)))
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Plan {
    /// `count` nodes `n1`, `n2` … `base`: as `--port-base`.
    ///
    /// # Errors
    /// No ports: beyond 65535, or the kernel has none.
    pub fn new(cluster: String, count: u8, base: Option<u16>, ephemeral: bool) -> io::Result<Plan> {
        let ports = match base {
            None => (0..u16::from(count)).map(usual_ports).collect(),
            Some(0) => free_ports(count)?,
            Some(base) => (0..u16::from(count)).map(|index| ports_from(base, index)).collect::<io::Result<_>>()?,
        };
        let named = ports.into_iter().zip(1..).map(|([mqtt, ws, admin, cluster], number)| {
            let number: u8 = number;
            Node { name: format!("n{number}"), mqtt, ws, admin, cluster }
        });
        Ok(Plan { cluster, ephemeral, nodes: named.collect() })
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The configuration file of a node, which lies in a folder of its own beside those of the others.
    pub fn configuration(&self, node: &Node) -> String {
        let seeds: Vec<_> = self.nodes.iter().map(|node| format!("\"{}\"", at(node.cluster))).collect();
        let mut text = String::from("# Written by holdfast dev, anew each time it starts.\n");
        let _ = write!(text, "[node]\nname = \"{}\"\ndata_dir = \"data\"\n\n", node.name);
        let _ = write!(text, "[log]\nformat = \"pretty\"\n\n[admin]\nbind = \"{}\"\n\n", at(node.admin));
        for (protocol, name, port) in [("mqtt", "tcp", node.mqtt), ("ws", "ws", node.ws)] {
            let bind = at(port);
            let _ = write!(text, "[[listener]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nbind = \"{bind}\"\n\n");
        }
        let (bind, name) = (at(node.cluster), &self.cluster);
        let _ = write!(text, "[cluster]\nname = \"{name}\"\nbind = \"{bind}\"\nadvertise = \"{bind}\"\n");
        let _ = writeln!(text, "secret_file = \"../secret\"\nseeds = [{}]", seeds.join(", "));
        let _ = writeln!(text, "expected_size = {}", self.nodes.len().min(FOUNDERS_MAX));
        text
    }
}

/// MQTT, WebSocket, admin, cluster.
type Ports = [u16; 4];

fn usual_ports(index: u16) -> Ports {
    [1883, 8083, Admin::PORT, 7946].map(|first| first + index * STEP)
}

fn ports_from(base: u16, index: u16) -> io::Result<Ports> {
    let first = base.checked_add(index * STEP_FROM_BASE).filter(|first| first.checked_add(3).is_some());
    let first = first.ok_or_else(|| io::Error::other("there are no ports beyond 65535"))?;
    Ok([first, first + 1, first + 2, first + 3])
}

/// Ports that nobody has at this moment. Somebody may take one before its node does; the node then says so.
fn free_ports(count: u8) -> io::Result<Vec<Ports>> {
    let listeners: Vec<TcpListener> =
        (0..4 * u16::from(count)).map(|_| TcpListener::bind(at(0))).collect::<io::Result<_>>()?;
    let ports: Vec<u16> =
        listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<io::Result<_>>()?;
    Ok(ports.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]).collect())
}
