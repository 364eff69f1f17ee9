//! Who has the copies of this node's sessions: the shards hear of it, and the node sees to it that all others have them that can.
//!
//! Shell of [`Proposing`], [`Standings`] and [`Alarm`]. What the shards are told is read from the applied state while that is locked, behind the news of nodes that came or went with it.
//! Every node says of itself how it stands, whether its own sessions have copies or not. Owner: the node, in [`Watch`].
//!
//! Test to read first: `cluster-tests/tests/cluster/copies.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use holdfast_raft::{Command, ControlState, Group, HeirsView, NodeId, Outcome};

use crate::cluster::copies::alarm::{Alarm, Change};
use crate::cluster::copies::proposing::{Proposal, Proposing};
use crate::cluster::copies::standing::{Standing, Standings, Wanted};
use crate::cluster::copies::{Heirs, Lag, Members};
use crate::link::{Lane, Peer};
use crate::shard::mailbox::Event;
use crate::subscriptions::ShardId;

use super::plane::{ClusterPlane, kind};

/// How often it is looked whether another node is to be filled, if nothing happens meanwhile, and how often the others hear how this one stands.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What this node always says of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// On how many nodes its sessions are to be, as it is configured.
    pub session_copies: usize,
    /// It has a data directory.
    pub keeps: bool,
}

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
    standings: Mutex<Standings>,
    /// This node is about to leave, and is nobody's heir any more when it does.
    leaves: AtomicBool,
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
        self.standings.lock().forget(node);
    }

    pub fn set_leaves(&self, leaves: bool) {
        self.leaves.store(leaves, Ordering::Release);
        self.news.notify_one();
    }

    pub fn wanted(&self, now: u64, node: NodeId) -> Wanted {
        self.standings.lock().wanted(now, node)
    }

    fn said(&self, node: NodeId) -> Option<Standing> {
        self.standings.lock().of(node)
    }

    /// How far each node is behind.
    pub fn lags(&self) -> BTreeMap<NodeId, Lag> {
        let mut sums: BTreeMap<NodeId, Lag> = BTreeMap::new();
        for ((node, _), lag) in self.lag.lock().iter() {
            *sums.entry(*node).or_default() += *lag;
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
        // Who keeps nothing is waited for by nobody.
        let may_keep = |node: NodeId| self.watch().said(node).is_none_or(|standing| standing.keeps);
        let wanted = state.live_nodes().any(|node| node.id != own && may_keep(node.id));
        Heirs { base, next, fill, wanted }
    }

    /// What another node says of itself.
    pub(super) fn heard_standing(&self, from: &Peer, standing: Standing) {
        let before = self.watch().standings.lock().note(self.shared().clock.now(), from.id, standing);
        if before != Some(standing) {
            self.watch().something_changed();
        }
    }

    /// Tells every other node how this one stands.
    fn say_standing(&self, own: Own) {
        let Some(links) = self.links() else { return };
        let standing = Standing {
            session_copies: own.session_copies as u8,
            keeps: own.keeps,
            leaves: self.watch().leaves.load(Ordering::Acquire),
            short: self.shared().storage_level.is_short(),
        };
        let bytes = Bytes::copy_from_slice(&standing.encode());
        for node in links.linked() {
            // What is lost is said again.
            let _ = links.send(node, Lane::Control, kind::STANDING, bytes.clone());
        }
    }

    /// Which heirs are short of room: what they would have to keep is refused here.
    fn look_for_short_heirs(&self, state: &ControlState) {
        let HeirsView { base, next, .. } = state.heirs(self.shared().node).unwrap_or_default();
        let filled = next.into_iter().flat_map(|(_, next)| next);
        let heirs = base.into_iter().filter(|(_, stale)| !stale).map(|(node, _)| node).chain(filled);
        let is_live = |node: &NodeId| state.node(*node).is_some_and(|node| node.live);
        let is_short = |node: &NodeId| self.watch().said(*node).is_some_and(|standing| standing.short);
        let slots = heirs.filter(|node| is_live(node) && is_short(node)).filter_map(|node| self.slot_of(node));
        let short = slots.fold(0, |short, slot| short | 1 << slot);
        let before = self.shared().short_heirs.swap(short, Ordering::AcqRel);
        if short == before {
            return;
        }
        if before == 0 {
            warn!(
                event = "copies",
                "an heir of this node has hardly any room left on its disk: messages that would have to be copied are refused until it has, or another one is heir"
            );
        } else if short == 0 {
            info!(event = "copies", "all heirs of this node have room on their disks");
        }
        self.shared().mailboxes.iter().for_each(|mailbox| mailbox.push(Event::StorageChanged));
    }
}

/// Says how the node stands and sees to its heirs, as long as it runs.
pub(super) async fn run(plane: Arc<ClusterPlane>, own: Own) {
    let (mut proposing, mut alarm) = (Proposing::new(plane.shared().mailboxes.len()), Alarm::default());
    let mut mismatches = BTreeMap::new();
    loop {
        tokio::select! {
            () = plane.watch().news.notified() => {}
            // The homes whose heir this node is are to hear of it before they have sent much more.
            () = plane.shared().storage_level.changed.notified() => {}
            () = sleep(LOOK_EVERY) => {}
        }
        plane.say_standing(own);
        look_for_mismatches(&plane, own, &mut mismatches);
        let Some(group) = plane.group().filter(|group| plane.shared().copies && group.is_registered()) else {
            continue;
        };
        for (shard, fill) in std::mem::take(&mut *plane.watch().filled.lock()) {
            proposing.filled(usize::from(shard), fill);
        }
        if let Some(proposal) = decide(&plane, group, &mut proposing)
            && !propose(&plane, proposal).await
        {
            proposing.refused(plane.shared().clock.now());
        }
        say_whether_complete(&plane, &mut alarm);
    }
}

fn decide(plane: &ClusterPlane, group: &Group, proposing: &mut Proposing) -> Option<Proposal> {
    let (now, own) = (plane.shared().clock.now(), plane.shared().node);
    group.read(|state| {
        plane.tell_heirs(state, false);
        plane.look_for_short_heirs(state);
        let others = state.nodes().filter(|node| node.id != own);
        let others =
            others.map(|node| (node.id, node.live.then_some(node.incarnation), plane.watch().wanted(now, node.id)));
        proposing.decide(now, &state.heirs(own).unwrap_or_default(), others)
    })
}

/// Says of each node once that it is configured otherwise: with a change of the configuration the nodes are started one after the other.
fn look_for_mismatches(plane: &ClusterPlane, own: Own, known: &mut BTreeMap<NodeId, u8>) {
    let Some(links) = plane.links() else { return };
    for node in links.linked() {
        let Some(Standing { session_copies, .. }) = plane.watch().said(node) else { continue };
        if known.insert(node, session_copies) == Some(session_copies)
            || usize::from(session_copies) == own.session_copies
        {
            continue;
        }
        let name = links.linked_peer(node).map_or_else(|| node.to_string(), |peer| peer.name.to_string());
        warn!(
            event = "copies",
            node = name,
            "session_copies is {} here and {session_copies} on {name}: it is to be the same on every node, and each does for its own sessions as it is told",
            own.session_copies
        );
    }
}

fn say_whether_complete(plane: &ClusterPlane, alarm: &mut Alarm) {
    let incomplete = is_incomplete(plane).unwrap_or(false);
    let without_copy = plane.shared().metrics.sum(|shard| &shard.sessions_without_copy);
    match alarm.look(plane.shared().clock.now(), incomplete) {
        Some(Change::Incomplete) => warn!(
            event = "copies_incomplete",
            without_copy,
            "sessions of this node have been without their copy on another node for half a minute: the loss of this node would lose what they have. `holdfast cluster status` says which nodes are missing"
        ),
        Some(Change::Complete) => {
            info!(event = "copies_complete", "all sessions of this node have their copy on another node again")
        }
        None => {}
    }
}

/// Gives up the heirs of a time when the sessions of this node had copies: what these have grows old from now on.
pub(super) async fn give_up(plane: &ClusterPlane) {
    let heirs = |group: &Group| group.read(|state| state.heirs(plane.shared().node)).unwrap_or_default();
    let has_none = |HeirsView { base, next, .. }: HeirsView| base.is_empty() && next.is_none();
    if plane.shared().copies || plane.group().is_none_or(|group| has_none(heirs(group))) {
        return;
    }
    info!(event = "copies", "sessions of this node have no copies any more");
    if let Ok(Outcome::FillBegun { fill }) = plane.propose_own(Command::FillHeirs { next: Vec::new() }).await {
        let _ = plane.propose_own(Command::HeirsFilled { fill }).await;
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
