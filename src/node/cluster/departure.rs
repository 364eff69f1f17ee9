//! Leaving the cluster for good.
//!
//! Order: the node goes on serving until the copies have moved ([`Tie`]): its own sessions have theirs on nodes that stay, and the homes whose heir it was have others. Then the clients are
//! told to go (0x8B) and have a moment to take what was written to them; the leader ends the node's incarnation, waits until the heirs have inherited, and takes it out of the members; a
//! file in the data directory says so; the process ends. If it does not come to that, the node registers anew and serves on. Who forces it does not wait for copies.
//!
//! That may take longer than a request: whoever asks is told how far it is, and asks again.
//!
//! A node that was taken out has the same file once it has been told.
//!
//! What the file is for: the log of a node that has left knows of a cluster that does not know the node. A start with such a directory is refused, whoever starts it.
//!
//! Test to read first: `cluster-tests/tests/cluster/admin.rs`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use holdfast_raft::{Group, HeirsView, LeaveError, MemberView, NodeId};

use crate::admin::{Trouble, view};
use crate::cluster::copies::parting::{Leaver, Tie, ties};
use crate::cluster::copies::standing::Wanted;
use crate::mqtt::ReasonCode;
use crate::shard::Shared;
use crate::shard::mailbox::{Event, Turned};

use super::admin_source::starting;
use super::plane::ClusterPlane;
use super::questions::{Answer, Question, Questions};

/// The file of a data directory whose node has left its cluster; it holds the name of that.
const LEFT_FILE: &str = "left-cluster";

/// The longest that clients have to go, that heirs have to take the last of what was written down, and that the cluster has to let the node go, which waits until the
/// heirs have entered what passes to them.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(4);
const STABLE_PATIENCE: Duration = Duration::from_secs(5);
const LEAVE_PATIENCE: Duration = Duration::from_secs(30);

/// The longest that a request waits for the end of it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Copies that have not come any further for so long do not come any more. A node that has just come back becomes an heir after half of it.
const STUCK_PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked how far the copies are.
const LOOK_AT_COPIES: Duration = Duration::from_millis(250);

/// Between the answer and the end of the process.
const LAST_WORD: Duration = Duration::from_millis(300);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The cluster that the node of this data directory has left, or was taken out of, if there is one.
///
/// # Errors
/// The file cannot be read.
pub fn left_cluster(data_dir: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(data_dir.join(LEFT_FILE)) {
        Ok(text) => Ok(Some(text.lines().next().unwrap_or_default().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes down that it has.
pub(in crate::node) fn note_left(data_dir: &Path, cluster: &str) -> io::Result<()> {
    let mut file = File::create(data_dir.join(LEFT_FILE))?;
    writeln!(file, "{cluster}")?;
    file.sync_all()?;
    File::open(data_dir)?.sync_all()
}

/// How far a departure is.
#[derive(Debug, Clone, Default)]
enum Stand {
    #[default]
    Staying,
    /// It is under way, and what it waits for.
    Leaving(String),
    Over(Result<(), Trouble>),
}

/// What those who ask and the one departure that is under way have in common.
#[derive(Debug, Default)]
pub(super) struct Departing {
    stand: watch::Sender<Stand>,
    /// It waits for no copies.
    forced: AtomicBool,
}

/// See the module. Clones are of the same node.
#[derive(Clone)]
pub(super) struct Departure {
    pub shared: Arc<Shared>,
    pub plane: Arc<ClusterPlane>,
    pub questions: Arc<Questions>,
    pub data_dir: Option<PathBuf>,
    /// The name of the cluster.
    pub cluster: String,
    /// How long clients have to go when the node ends.
    pub grace: Duration,
    pub departing: Arc<Departing>,
}

impl Departure {
    /// Leaves, or says why not; if that takes long, how far it is: who asks again waits for the same. It goes on if whoever asked goes away.
    pub async fn leave(&self, force: bool) -> Result<view::Leaving, Trouble> {
        let Some(group) = self.plane.group().cloned() else { return Err(starting()) };
        let departing = &self.departing;
        if !matches!(*departing.stand.borrow(), Stand::Leaving(_)) {
            may_leave(&group, self.shared.node)?;
            if !force {
                self.may_move_copies(&group)?;
            }
        }
        departing.forced.fetch_or(force, Ordering::AcqRel);
        let begins = departing.stand.send_if_modified(|stand| {
            let begins = !matches!(stand, Stand::Leaving(_));
            if begins {
                *stand = Stand::Leaving(String::new());
            }
            begins
        });
        if begins {
            let departure = self.clone();
            tokio::spawn(async move {
                let left = departure.go(&group).await;
                departure.departing.forced.store(false, Ordering::Release);
                departure.departing.stand.send_replace(Stand::Over(left));
            });
        }
        let mut stand = departing.stand.subscribe();
        let over = timeout(ANSWER_PATIENCE, stand.wait_for(|stand| !matches!(stand, Stand::Leaving(_)))).await;
        if let Ok(Ok(stand)) = &over
            && let Stand::Over(left) = &**stand
        {
            return left.clone().map(|()| view::Leaving { done: true, progress: String::new() });
        }
        drop(over);
        let progress = match &*departing.stand.borrow() {
            Stand::Leaving(progress) => progress.clone(),
            _ => String::new(),
        };
        Ok(view::Leaving { done: false, progress })
    }

    async fn go(&self, group: &Group) -> Result<(), Trouble> {
        warn!(
            event = "leaving",
            cluster = self.cluster,
            "this node leaves its cluster, as it was told by way of the admin port"
        );
        self.plane.watch().set_leaves(true);
        let left = match self.move_copies(group).await {
            Ok(()) => self.depart(group).await,
            Err(trouble) => Err(trouble),
        };
        if let Err(Trouble { message, .. }) = &left {
            warn!(event = "leaving", "this node has not left: {message}");
            self.plane.watch().set_leaves(false);
        }
        left
    }

    async fn depart(&self, group: &Group) -> Result<(), Trouble> {
        self.tell("tells its clients to go");
        self.plane.leaving().send_replace(true);
        self.close_clients().await;
        self.until_stable().await;
        self.tell("waits until the others have taken over its sessions and let it go");
        match group.leave(Instant::now() + LEAVE_PATIENCE).await {
            Ok(()) => {
                self.leave_word();
                let plane = self.plane.clone();
                tokio::spawn(async move {
                    sleep(LAST_WORD).await;
                    plane.left().send_replace(true);
                });
                Ok(())
            }
            Err(error) => {
                self.plane.leaving().send_replace(false);
                Err(match error {
                    LeaveError::Refused(reason) => Trouble::new(409, "refused", reason),
                    LeaveError::Deadline(_) => Trouble::new(503, "no_quorum", error.to_string())
                        .hint("the node has closed its clients and joins again; most of the voters must be there to let one go"),
                })
            }
        }
    }

    fn tell(&self, progress: &str) {
        info!(event = "leaving", "this node leaves: it {progress}");
        self.departing.stand.send_replace(Stand::Leaving(format!("the node {progress}")));
    }

    async fn close_clients(&self) {
        let reason = ReasonCode::ServerShuttingDown;
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::CloseAll { reason }));
        let deadline = Instant::now() + self.grace.min(CLIENTS_PATIENCE);
        while self.shared.metrics.sum(|shard| &shard.connections) > 0 && Instant::now() < deadline {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// All that is written down is on other disks too; without them it would be seen as it was a moment before.
    async fn until_stable(&self) {
        let (done, stable) = oneshot::channel();
        let done = Mutex::new(Some(done));
        let barrier = Turned::new(self.shared.mailboxes.len(), move || {
            // Whoever waited may have given up.
            let _ = done.lock().take().map(|done| done.send(()));
        });
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::Stable(barrier.clone())));
        let _ = timeout(STABLE_PATIENCE, stable).await;
    }

    fn leave_word(&self) {
        info!(event = "left", cluster = self.cluster, "this node has left its cluster for good, and ends");
        if let Some(data_dir) = &self.data_dir
            && let Err(error) = note_left(data_dir, &self.cluster)
        {
            error!(event = "left", %error, data_dir = %data_dir.display(), "it cannot be written down: do not start a node with this data directory again");
        }
    }
}

/// Copies.
impl Departure {
    fn leaver(&self) -> Leaver {
        Leaver { node: self.shared.node, has_copies: self.shared.copies }
    }

    /// The other nodes that can be heirs.
    fn takers(&self, group: &Group) -> Vec<NodeId> {
        let now = self.shared.clock.now();
        let is_taker =
            |node: &NodeId| !self.shared.is_own(*node) && self.plane.watch().wanted(now, *node) >= Wanted::IfNoOther;
        group.read(|state| state.live_nodes().map(|node| node.id).filter(is_taker).collect())
    }

    fn may_move_copies(&self, group: &Group) -> Result<(), Trouble> {
        if self.shared.copies && self.takers(group).is_empty() {
            return Err(Trouble::new(
                409,
                "copies",
                "no other node can take the sessions of this one: none that lives has a data directory and stays",
            )
            .hint("`--force` (`{\"force\": true}`) leaves all the same, and they are lost"));
        }
        Ok(())
    }

    fn ties(&self, group: &Group) -> Vec<Tie> {
        let takers = self.takers(group);
        group.read(|state| {
            let live: Vec<NodeId> = state.live_nodes().map(|node| node.id).collect();
            let homes: Vec<(NodeId, HeirsView)> =
                live.into_iter().map(|node| (node, state.heirs(node).unwrap_or_default())).collect();
            ties(self.leaver(), homes.iter().map(|(node, heirs)| (*node, heirs)), &takers)
        })
    }

    /// Until no session would lose its last copy, as long as that comes any further.
    async fn move_copies(&self, group: &Group) -> Result<(), Trouble> {
        let (mut last, mut since) = (None, Instant::now());
        loop {
            // The others have to hear first that it goes.
            sleep(LOOK_AT_COPIES).await;
            let ties = self.ties(group);
            if ties.is_empty() || self.departing.forced.load(Ordering::Acquire) {
                return Ok(());
            }
            let told = self.told_by(&ties).await;
            let progress = in_words(self.shared.node, &ties, &told, |node| self.name(group, node));
            let now = Some((ties, filled_of(&told)));
            if now != last {
                (last, since) = (now, Instant::now());
                self.departing.stand.send_replace(Stand::Leaving(progress));
            } else if since.elapsed() > STUCK_PATIENCE {
                return Err(Trouble::new(
                    409,
                    "copies",
                    format!("copies of sessions that would be lost with this node do not come any further: {progress}"),
                )
                .hint(
                    "`holdfast cluster status` has the copies; `--force` (`{\"force\": true}`) leaves without them",
                ));
            }
        }
    }

    /// What the homes that hold it say of their copies.
    async fn told_by(&self, ties: &[Tie]) -> Told {
        let homes = ties.iter().map(|tie| match tie {
            Tie::OwnSessions => self.shared.node,
            Tie::HeirOf(home) => *home,
        });
        let ask = async |home: NodeId| match self.questions.ask(home, Question::Copies).await {
            Some(Answer::Copies(copies)) => Some((home, copies)),
            _ => None,
        };
        join_all(homes.map(ask)).await.into_iter().flatten().collect()
    }

    fn name(&self, group: &Group, node: NodeId) -> String {
        group.read(|state| state.node(node).map_or_else(|| node.to_string(), |node| node.name.to_string()))
    }
}

/// By home.
type Told = BTreeMap<NodeId, Vec<view::CopiesAt>>;

/// By home and heir, the sessions that were sent whole and their bytes. What else is told changes with the traffic, however stuck the copies are.
fn filled_of(told: &Told) -> Vec<(NodeId, String, u64, u64)> {
    let of_home = |(home, copies): (&NodeId, &Vec<view::CopiesAt>)| {
        let home = *home;
        let figures =
            |one: &view::CopiesAt| Some((home, one.heir_id.clone(), one.figures?.filled, one.figures?.filled_bytes));
        copies.iter().filter_map(figures).collect::<Vec<_>>()
    };
    told.iter().flat_map(of_home).collect()
}

/// What a departure waits for.
fn in_words(own: NodeId, ties: &[Tie], told: &Told, name: impl Fn(NodeId) -> String) -> String {
    let filled = |home: NodeId| {
        let figures = || told.get(&home).into_iter().flatten().filter_map(|copies| copies.figures);
        let (filled, all) = figures().fold((0, 0), |(filled, all), one| (filled + one.filled, all + one.to_fill));
        if filled < all { format!(" ({filled} of {all} sessions)") } else { String::new() }
    };
    let words = ties.iter().map(|tie| match tie {
        Tie::OwnSessions => format!("copies its own sessions to nodes that stay{}", filled(own)),
        Tie::HeirOf(home) => format!("waits until {} has another heir{}", name(*home), filled(*home)),
    });
    format!("the node {}", words.collect::<Vec<_>>().join(", "))
}

/// Whether the others can do without this node: else nobody could agree upon its leaving.
fn may_leave(group: &Group, own: NodeId) -> Result<(), Trouble> {
    let status = group.status();
    if status.incarnation.is_none() {
        return Err(Trouble::new(409, "not_joined", "this node is not one of the cluster now").hint(
            "a node that cannot join is stopped, and taken out by `holdfast cluster force-leave` on another one",
        ));
    }
    if !status.quorum {
        return Err(no_quorum("there is no quorum now, and without one no node can leave"));
    }
    let live: Vec<NodeId> = group.read(|state| state.live_nodes().map(|node| node.id).collect());
    // Who has died just now lives in the state until its lease is over, and its link is gone.
    let is_there = |member: &&MemberView| live.contains(&member.id) && member.linked;
    let voters = || status.members.iter().filter(|member| member.voter);
    if !voters().any(|member| member.id == own) {
        return Ok(());
    }
    let rest = || voters().filter(|member| member.id != own);
    can_do_without(rest().count(), rest().filter(is_there).count())
}

/// Whether the other voters can, `there` of `rest`.
fn can_do_without(rest: usize, there: usize) -> Result<(), Trouble> {
    match rest {
        0 => Err(Trouble::new(409, "last_node", "it is the last voter: without it there is no cluster").hint("stop it instead")),
        rest if there <= rest / 2 => Err(Trouble::new(
            409,
            "quorum",
            format!("of the {rest} voters that stay only {there} would be there: no majority"),
        )
        .hint("bring the others back first, or take out for good by `holdfast cluster force-leave` those that will not come back")),
        _ => Ok(()),
    }
}

/// Nobody comes or goes now.
pub(super) fn no_quorum(why: &str) -> Trouble {
    Trouble::new(503, "no_quorum", why)
        .hint("start the voters that are down until most of them are there: `holdfast cluster status` says who is in the cluster, and its state as it was last known")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_tells_that_its_node_has_left() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(left_cluster(dir.path()).unwrap(), None);
        note_left(dir.path(), "plant 7").unwrap();
        assert_eq!(left_cluster(dir.path()).unwrap().as_deref(), Some("plant 7"));
    }

    #[test]
    fn traffic_is_no_progress_of_a_departure() {
        let filled = |figures| {
            let copies = view::CopiesAt { figures: Some(figures), ..view::CopiesAt::default() };
            filled_of(&BTreeMap::from([(NodeId(2), vec![copies])]))
        };
        let figures = view::CopyFigures { to_fill: 10, filled: 4, filled_bytes: 70, lag_bytes: 5, lag_records: 1 };
        assert_eq!(filled(figures), filled(view::CopyFigures { lag_bytes: 9, lag_records: 2, ..figures }));
        assert_ne!(filled(figures), filled(view::CopyFigures { filled_bytes: 71, ..figures }));
    }

    #[test]
    fn what_a_departure_waits_for_has_words() {
        let figures = view::CopyFigures { to_fill: 10, filled: 4, ..view::CopyFigures::default() };
        let told = vec![view::CopiesAt { figures: Some(figures), ..view::CopiesAt::default() }];
        let told = BTreeMap::from([(NodeId(2), told)]);
        let ties = [Tie::OwnSessions, Tie::HeirOf(NodeId(2))];
        let words = in_words(NodeId(1), &ties, &told, |node| format!("n{}", node.0));
        assert_eq!(
            words,
            "the node copies its own sessions to nodes that stay, waits until n2 has another heir (4 of 10 sessions)"
        );
    }

    #[test]
    fn a_node_leaves_only_a_majority_behind() {
        for (rest, there, code) in [
            (0, 0, Some("last_node")),
            (1, 1, None),
            (1, 0, Some("quorum")),
            (2, 2, None),
            (2, 1, Some("quorum")),
            (3, 2, None),
            (4, 2, Some("quorum")),
        ] {
            let refused = can_do_without(rest, there).err().map(|trouble| trouble.code);
            assert_eq!(refused, code, "{there} of {rest}");
        }
    }
}
