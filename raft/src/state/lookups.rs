//! What the control state says of itself. Nothing here changes it.

use std::sync::Arc;

use super::ControlState;
use super::claims::WaitingClaim;
use super::digest::Digest;
use super::lease::{Claim, Session};
use super::nodes::{Node, NodeSlot, Standing};
use super::wills::Publisher;
use crate::command::{Ban, ClientId, Effect, Incarnation, NodeId, SessionEpoch, ShareMembers, ShareRoute};

/// How much there is of everything, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes, live or dead.
    pub nodes: usize,
    /// Client ids with a lease: connected, detached, or ended with something still to come.
    pub leases: usize,
    pub connected: usize,
    /// Leases with a claim.
    pub claims: usize,
    pub wills_due: usize,
    /// Bytes of all Wills: of leases, of claims, and due.
    pub will_bytes: u64,
    /// Topic filters that any node subscribes to, with those that are still to be swept out.
    pub routes: usize,
    /// The same for share groups, by name and filter.
    pub share_routes: usize,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub id: NodeId,
    pub name: Arc<str>,
    /// Less than [`NODES_MAX`](super::NODES_MAX), and of no other node until this one is forgotten.
    pub slot: u8,
    /// The live incarnation, or the last one.
    pub incarnation: Incarnation,
    pub live: bool,
    /// Drawn at the start of that incarnation.
    pub run: u64,
    pub versions: (u16, u16),
    /// Control time at which it was expired, in milliseconds, if it is dead.
    pub died_at: Option<u64>,
}

impl NodeView {
    fn new((slot, node): (NodeSlot, &Node)) -> Self {
        let Node { id, incarnation, run, versions, .. } = *node;
        let (live, died_at) = match node.standing {
            Standing::Live => (true, None),
            Standing::Dead(since) | Standing::Forgotten(since) => (false, Some(since)),
        };
        Self { id, name: Arc::clone(&node.name), slot: slot.number() as u8, incarnation, live, run, versions, died_at }
    }
}

impl ControlState {
    /// Control time of the newest command, in milliseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Index of the newest entry of the log that was applied.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// What the state may hold; 0 before any node has registered.
    pub fn cluster_version(&self) -> u16 {
        self.version
    }

    /// Control time at which a `Tick` has something to do; not in the future if it has something to do now.
    pub fn next_due(&self) -> Option<u64> {
        let announces = self.wills.any_unannounced() && self.nodes.live_nodes().next().is_some();
        let sweeps = self.routes.is_sweeping() || self.share_routes.is_sweeping();
        if announces || sweeps || self.nodes.all().any(|(slot, _)| self.leases.has_to_pass_on(slot)) {
            Some(self.now)
        } else {
            self.leases.next_timer()
        }
    }

    /// Incarnations that are over and have leases to be passed on, each worth a `PassOn`.
    pub fn to_pass_on(&self) -> impl Iterator<Item = (NodeId, Incarnation)> {
        let with_leases = self.nodes.all().filter(|(slot, _)| self.leases.has_to_pass_on(*slot));
        with_leases.map(|(_, node)| {
            let over = if node.standing == Standing::Live { node.incarnation - 1 } else { node.incarnation };
            (node.id, over)
        })
    }

    /// The same on every node that applied the same commands, and hardly on any other. Reads all of the state.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        digest.add(&[&self.now, &self.index, &u64::from(self.version)]);
        self.nodes.digest(&mut digest);
        self.leases.digest(&mut digest);
        self.wills.digest(&mut digest);
        self.routes.digest(&mut digest);
        self.share_routes.digest(&mut digest);
        self.heirs.digest(&mut digest);
        self.orphans.digest(&mut digest);
        self.bans.digest(&mut digest);
        digest.value()
    }

    /// Whom no node lets in, those included whose bans have ended and are not forgotten yet.
    pub fn bans(&self) -> impl Iterator<Item = &Ban> {
        self.bans.iter()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            nodes: self.nodes.len(),
            leases: self.leases.len(),
            connected: self.leases.connected(),
            claims: self.leases.claims.len(),
            wills_due: self.wills.len(),
            will_bytes: self.leases.will_bytes + self.wills.bytes(),
            routes: self.routes.len(),
            share_routes: self.share_routes.len(),
        }
    }

    /// The session of `client`, connected, detached or missing. One that has ended is none, even while a Will of it is due.
    pub fn session(&self, client: &str) -> Option<Session> {
        self.leases.session(client, &self.nodes)
    }

    /// The claim on the lease of `client`, also when its session is over.
    pub fn claim(&self, client: &str) -> Option<Claim> {
        let claim = self.leases.claims.get(client)?;
        let &WaitingClaim { epoch, clean, cut, .. } = claim;
        Some(Claim { by: self.nodes.id(claim.by), epoch, clean, cut })
    }

    /// The sessions that `node` holds, live or dead, in the order in which they came to it.
    pub fn sessions_of(&self, node: NodeId) -> impl Iterator<Item = (&ClientId, Session)> {
        let entries = self.nodes.find(node).into_iter().flat_map(|slot| self.leases.table.of(slot));
        entries.filter_map(|entry| Some((&entry.client, self.leases.view(entry, &self.nodes)?)))
    }

    /// Client ids that have a lease, in no particular order.
    pub fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.leases.clients()
    }

    /// Wills that are due and not yet done, in the order of client id and epoch, as far as there is anybody to publish them.
    pub fn wills_due(&self) -> impl Iterator<Item = Effect> {
        self.wills.iter().filter_map(|(client, epoch, will)| {
            let publisher = match will.publisher {
                Publisher::Node(publisher, _) => publisher,
                Publisher::Nobody { .. } => self.leases.publisher(client, &self.nodes)?,
            };
            let (message, publisher) = (will.message.clone(), self.nodes.id(publisher));
            Some(Effect::WillDue { client: Arc::clone(client), epoch, message, publisher })
        })
    }

    /// Whether that Will is due: it is published, or about to be.
    pub fn is_will_due(&self, client: &ClientId, epoch: SessionEpoch) -> bool {
        self.wills.get(client, epoch).is_some()
    }

    /// Who publishes a Will of `client` that becomes due now: the holder, or if it is dead one of the live nodes, always the same while these stay.
    /// `None` if no node lives.
    pub fn will_publisher(&self, client: &str) -> Option<NodeId> {
        self.leases.publisher(client, &self.nodes).map(|slot| self.nodes.id(slot))
    }

    /// All nodes, in the order of their slots.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView> {
        self.nodes.iter().map(NodeView::new)
    }

    pub fn live_nodes(&self) -> impl Iterator<Item = NodeView> {
        self.nodes.live_nodes().map(NodeView::new)
    }

    pub fn node(&self, id: NodeId) -> Option<NodeView> {
        self.nodes.find(id).map(|slot| NodeView::new((slot, self.nodes.get(slot))))
    }

    /// The live incarnation of a node, or the last one.
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.nodes.incarnation(node)
    }

    /// Number of the last batch that was applied of the node's live, or last, incarnation.
    pub fn batch_number(&self, node: NodeId) -> Option<u64> {
        self.nodes.find(node).map(|slot| self.nodes.get(slot).batch)
    }

    /// Nodes that subscribe to `filter`, each with the index that added it.
    pub fn route(&self, filter: &Arc<str>) -> impl Iterator<Item = (NodeId, u64)> {
        self.routes.of(filter, &self.nodes).map(|route| (self.nodes.id(route.node), route.index))
    }

    /// Nodes that have members of the share group, each with the index that added it.
    pub fn share_route(&self, group: &ShareRoute) -> impl Iterator<Item = (NodeId, u64, ShareMembers)> {
        let routes = self.share_routes.of(group, &self.nodes);
        routes.map(|route| (self.nodes.id(route.node), route.index, route.value))
    }

    /// Every filter with every node that subscribes to it and the index that added it, in the order of the filters.
    pub fn routes(&self) -> impl Iterator<Item = (&Arc<str>, NodeId, u64)> {
        let all = self.routes.iter().flat_map(|(filter, routes)| routes.iter().map(move |route| (filter, route)));
        let valid = all.filter(|(_, route)| route.counts::<Arc<str>>(&self.nodes));
        valid.map(|(filter, route)| (filter, self.nodes.id(route.node), route.index))
    }

    /// Every share group with every node that has members of it and the index that added it, in the order of the groups.
    pub fn share_routes(&self) -> impl Iterator<Item = (&ShareRoute, NodeId, u64, ShareMembers)> {
        let all = self.share_routes.iter().flat_map(|(share, routes)| routes.iter().map(move |route| (share, route)));
        let valid = all.filter(|(_, route)| route.counts::<ShareRoute>(&self.nodes));
        valid.map(|(share, route)| (share, self.nodes.id(route.node), route.index, route.value))
    }
}
