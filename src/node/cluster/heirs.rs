//! Who has the copies of this node's sessions: the shards hear of it, and the node sees to it that all others have them.
//!
//! Shell of [`Proposing`]. What the shards are told is read from the applied state while that is locked, behind the news of nodes that came or went with it. Owner: the
//! node, in [`Watch`]; nothing of it runs where sessions have no copies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::info;

use holdfast_raft::{Command, ControlState, HeirsView, NodeId, Outcome};

use crate::cluster::copies::proposing::{Proposal, Proposing};
use crate::cluster::copies::{Heirs, Members};
use crate::shard::mailbox::Event;
use crate::subscriptions::ShardId;

use super::plane::ClusterPlane;

/// How often it is looked whether another node is to be filled, if nothing happens meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a node has not accepted of copies: bytes and entries.
pub(super) type Lag = (usize, usize);

/// What the plane knows of copies.
#[derive(Default)]
pub(super) struct Watch {
    /// Nodes have come or gone, heirs are others, or a shard has filled one.
    news: Notify,
    /// The last that the shards were told.
    told: Mutex<Option<Arc<Heirs>>>,
    /// What shards have said to be filled since it was last looked at.
    filled: Mutex<Vec<(ShardId, u64)>>,
    lag: Mutex<HashMap<(NodeId, ShardId), Lag>>,
    filled_total: Mutex<u64>,
}

impl Watch {
    pub fn something_changed(&self) {
        self.news.notify_one();
    }

    pub fn shard_has_filled(&self, shard: ShardId, fill: u64) {
        self.filled.lock().push((shard, fill));
        self.news.notify_one();
    }

    pub fn note_lag(&self, shard: ShardId, node: NodeId, lag: Lag) {
        self.lag.lock().insert((node, shard), lag);
    }

    pub fn forget(&self, node: NodeId) {
        self.lag.lock().retain(|(other, _), _| *other != node);
    }

    /// What each node has not accepted.
    pub fn lags(&self) -> BTreeMap<NodeId, Lag> {
        let mut sums: BTreeMap<NodeId, Lag> = BTreeMap::new();
        for ((node, _), (bytes, entries)) in self.lag.lock().iter() {
            let sum = sums.entry(*node).or_default();
            *sum = (sum.0 + bytes, sum.1 + entries);
        }
        sums
    }

    /// Fills that have ended since the start.
    pub fn filled_total(&self) -> u64 {
        *self.filled_total.lock()
    }
}

impl ClusterPlane {
    /// Tells the shards who has their copies, if that is not what they were told last or they have forgotten it. While the state is locked.
    pub(super) fn tell_heirs(&self, state: &ControlState, anew: bool) {
        if !self.shared().copies {
            return;
        }
        let heirs = Arc::new(self.heirs_in(state));
        let mut told = self.watch().told.lock();
        if anew || told.as_deref() != Some(&*heirs) {
            *told = Some(heirs.clone());
            for mailbox in &self.shared().mailboxes {
                mailbox.push(Event::Heirs(heirs.clone()));
            }
        }
    }

    fn heirs_in(&self, state: &ControlState) -> Heirs {
        let own = self.shared().node;
        let HeirsView { base, next, .. } = state.heirs(own).unwrap_or_default();
        let is_live = |node: NodeId| state.node(node).is_some_and(|node| node.live);
        let slot = |node: NodeId, stale: bool| (!stale && is_live(node)).then(|| self.slot_of(node)).flatten();
        let base: Members = base.into_iter().map(|(node, stale)| (node, slot(node, stale))).collect();
        let (fill, next) = next.map_or((None, Vec::new()), |(fill, next)| (Some(fill), next));
        let next: Members = next.into_iter().map(|node| (node, slot(node, false))).collect();
        let wanted = state.live_nodes().any(|node| node.id != own);
        Heirs { base, next, fill, wanted }
    }
}

/// Sees to the heirs, as long as the node runs.
pub(super) async fn run(plane: Arc<ClusterPlane>) {
    let mut proposing = Proposing::new(plane.shared().mailboxes.len());
    loop {
        // In the end it is looked all the same.
        let _ = timeout(LOOK_EVERY, plane.watch().news.notified()).await;
        for (shard, fill) in std::mem::take(&mut *plane.watch().filled.lock()) {
            proposing.filled(usize::from(shard), fill);
        }
        let Some(group) = plane.group().filter(|group| group.is_registered()) else {
            continue;
        };
        let (now, own) = (plane.shared().clock.now(), plane.shared().node);
        let proposal = group.read(|state| {
            plane.tell_heirs(state, false);
            let others = state.nodes().filter(|node| node.id != own);
            let others = others.map(|node| (node.id, node.live.then_some(node.incarnation)));
            proposing.decide(now, &state.heirs(own).unwrap_or_default(), others)
        });
        if let Some(proposal) = proposal
            && !propose(&plane, proposal).await
        {
            proposing.refused(plane.shared().clock.now());
        }
    }
}

/// Whether sessions of this node may be without their copy; nothing where they have none.
pub(super) fn is_incomplete(plane: &ClusterPlane) -> Option<bool> {
    if !plane.shared().copies {
        return None;
    }
    let heirs = plane.group().and_then(|group| group.read(|state| state.heirs(plane.shared().node)));
    let HeirsView { base, whole, .. } = heirs.unwrap_or_default();
    Some(!whole || base.is_empty() || base.iter().any(|(_, stale)| *stale))
}

/// Whether it was taken.
async fn propose(plane: &ClusterPlane, proposal: Proposal) -> bool {
    let outcome = match proposal {
        Proposal::Fill(next) => {
            info!(event = "copies", nodes = next.len(), "other nodes are sent the copies of this node's sessions");
            plane.propose_own(Command::FillHeirs { next }).await
        }
        Proposal::Filled(fill) => plane.propose_own(Command::HeirsFilled { fill }).await,
    };
    match outcome {
        Ok(Outcome::FillBegun { .. }) => true,
        Ok(Outcome::Done) => {
            *plane.watch().filled_total.lock() += 1;
            info!(event = "copies", "the copies of this node's sessions are complete");
            true
        }
        _ => false,
    }
}
