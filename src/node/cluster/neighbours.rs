//! The other nodes, as far as clients that are let go come to them: how many they have, how many more they take, and what is handed over to them.
//!
//! Owns nothing but when it last asked. Test to read first: `cluster-tests/tests/cluster/draining.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use holdfast_raft::{Group, NodeId};

use crate::admin::Soon;
use crate::node::draining::{Crowd, Others};
use crate::shard::mailbox::{Event, Turned};

use super::heirs;
use super::outlook;
use super::plane::ClusterPlane;
use super::questions::{Answer, Question, Questions};

/// What was said is good for so long.
const FRESH: Duration = Duration::from_millis(400);

/// The longest that what was written down takes to be on other disks, before it is looked again.
const STABLE_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Neighbours {
    pub plane: Arc<ClusterPlane>,
    pub questions: Arc<Questions>,
    pub last: Mutex<Option<(Instant, Crowd)>>,
}

impl Neighbours {
    /// The other nodes that live.
    fn live(&self) -> Vec<NodeId> {
        let own = self.plane.shared().node;
        let live = |group: &Group| group.read(|state| state.live_nodes().map(|node| node.id).collect::<Vec<_>>());
        self.plane.group().map(live).unwrap_or_default().into_iter().filter(|node| *node != own).collect()
    }

    async fn ask(&self) -> Crowd {
        let nodes = self.live();
        let loads = join_all(nodes.iter().map(|node| self.questions.ask(*node, Question::Load))).await;
        let mut crowd = Crowd { nodes: nodes.len(), connections: Some(0), ..Crowd::default() };
        for load in loads {
            let Some(Answer::Load(load)) = load else {
                crowd.connections = None;
                continue;
            };
            crowd.connections = crowd.connections.map(|sum| sum + load.connections);
            // Who lets its own clients go takes none.
            if load.drain.is_none_or(|drain| drain.phase == "aborted") {
                crowd.headroom += load.connections_max.saturating_sub(load.connections);
                crowd.capacity = crowd.capacity.saturating_add(load.handshakes_per_sec);
            }
        }
        crowd
    }

    /// All that is written down is on other disks too.
    async fn until_stable(&self) -> bool {
        let (done, stable) = oneshot::channel();
        let done = Mutex::new(Some(done));
        let mailboxes = &self.plane.shared().mailboxes;
        let barrier = Turned::new(mailboxes.len(), move || {
            // Whoever waited may have given up.
            let _ = done.lock().take().map(|done| done.send(()));
        });
        mailboxes.iter().for_each(|mailbox| mailbox.push(Event::Stable(barrier.clone())));
        timeout(STABLE_PATIENCE, stable).await.is_ok_and(|done| done.is_ok())
    }

    async fn give(&self) -> bool {
        let Some(group) = self.plane.group() else { return false };
        let is_copied = heirs::is_incomplete(&self.plane).is_none_or(|incomplete| !incomplete);
        is_copied && self.until_stable().await && group.transfer_leader().await
    }
}

impl Others for Neighbours {
    fn look(&self) -> Soon<'_, Crowd> {
        Box::pin(async {
            if let Some((at, crowd)) = *self.last.lock()
                && at.elapsed() < FRESH
            {
                return crowd;
            }
            let crowd = self.ask().await;
            *self.last.lock() = Some((Instant::now(), crowd));
            crowd
        })
    }

    fn is_critical(&self) -> bool {
        outlook::is_critical_without(&self.plane)
    }

    fn hand_over(&self) -> Soon<'_, bool> {
        Box::pin(self.give())
    }
}
