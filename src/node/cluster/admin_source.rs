//! What the admin port of a node of a cluster tells: how the node is, how it sees the others, and the clients of all of them.
//!
//! It answers from the moment at which the node begins to look for the others. What is asked of all nodes is asked of them at the same time, and whoever does not answer is named.
//!
//! Owns nothing but whether the start is over. Tests to read first: `tests`, then `cluster-tests/tests/cluster/admin.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use holdfast_raft::{Ban, Command, Group, LeaveError, NodeId};

use crate::access::acl::{Action, Decision, Subject};
use crate::admin::{
    ClosedRequest, Exposition, PAGE_MAX, PageRequest, PublishRequest, RebalanceRequest, RetainedRequest, Soon, Source,
    Trouble, pages, view,
};
use crate::link::Links;
use crate::node::admin_source::{Local, ban_outcome};
use crate::node::sys_topics::{Numbers, Others};

use super::departure::{Departure, no_quorum};
use super::figures;
use super::heirs;
use super::life::Stage;
use super::outlook;
use super::plane::ClusterPlane;
use super::questions::{Answer, Question, Questions};
use super::sharing_out::refused_by;
use super::waiting;

/// How long a request waits for the cluster to take this node in, or to let another one go.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a request waits until there is a node at the address that it names.
const FOUND_PATIENCE: Duration = Duration::from_secs(1);

/// How long a status waits for what other nodes say of their copies: it is for those who wonder what is wrong with one.
const FIGURES_PATIENCE: Duration = Duration::from_millis(500);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A node of the cluster that can be asked.
struct Other {
    id: NodeId,
    name: Arc<str>,
}

/// See the module.
pub(super) struct Clustered {
    pub local: Arc<Local>,
    pub plane: Arc<ClusterPlane>,
    pub questions: Arc<Questions>,
    pub departure: Departure,
    /// The name of the cluster.
    pub cluster: String,
    /// How many nodes found it.
    pub expected_size: usize,
    pub stage: watch::Receiver<Stage>,
    /// The node has served.
    pub started: AtomicBool,
}

impl Clustered {
    /// Whether the cluster has taken the node in, and why it has not.
    fn joined(&self) -> view::Check {
        let (joined, detail) = match &*self.stage.borrow() {
            // Whoever stops the next node when this one is ready would take the majority away: the one whose place it takes still counts.
            Stage::Serving if self.plane.group().is_some_and(Group::is_to_vote) => {
                (false, "serves, and is about to become a voter".to_owned())
            }
            Stage::Serving => (true, String::new()),
            Stage::CatchingUp => (false, "takes up its sessions and retained messages".to_owned()),
            Stage::Joining(why) => (false, format!("joining: {}", self.why_joining(why))),
        };
        if joined {
            self.started.store(true, Ordering::Release);
        }
        view::Check::new("joined", joined, detail)
    }

    /// What the group says now is newer than what was said when the node last gave up waiting. With nobody linked, the links know why.
    fn why_joining(&self, last: &str) -> String {
        let Some(group) = self.plane.group().filter(|_| !*self.plane.leaving().borrow()) else {
            return if last.is_empty() { "the node begins to look for the others".to_owned() } else { last.to_owned() };
        };
        waiting::why_not_joined(group.why_not_registered(), group, self.plane.links(), self.expected_size)
    }

    fn granted(&self) -> view::Check {
        let granted = self.local.shared.grant.is_valid();
        let detail = if granted { "" } else { "the node does not hear from a majority, and serves nobody" };
        view::Check::new("granted", granted, detail)
    }

    /// Nothing where sessions have no copies. It never stands against serving: who watches it is told.
    fn copies(&self) -> Option<view::Check> {
        let incomplete = heirs::is_incomplete(&self.plane)?;
        let without = self.local.shared.metrics.sum(|shard| &shard.sessions_without_copy);
        let detail = match (incomplete, without) {
            (false, 0) => "complete".to_owned(),
            (true, 0) => "copies_incomplete: no session is without its copy, but not every node that is to have copies is ready for them".to_owned(),
            (_, without) => format!("copies_incomplete: {without} sessions have no complete copy on another node"),
        };
        Some(view::Check::new("copies", true, detail))
    }

    pub(super) fn cluster_seen(&self) -> view::Cluster {
        outlook::of(&self.local, &self.plane, &self.cluster)
    }

    /// All nodes that the control state knows, live or dead, but for this one: a dead one may be linked all the same, and its clients are missed if it is not.
    fn others(&self) -> Vec<Other> {
        let own = self.local.shared.node;
        let Some(group) = self.plane.group() else { return Vec::new() };
        group.read(|state| {
            let others = state.nodes().filter(|node| node.id != own);
            others.map(|node| Other { id: node.id, name: node.name }).collect()
        })
    }

    /// The cluster as this node sees it, with what the other homes say of their copies.
    async fn whole_status(&self) -> view::Cluster {
        let mut seen = self.cluster();
        if seen.copies.is_empty() {
            return seen;
        }
        let linked = self.plane.links().map(Links::linked).unwrap_or_default();
        let ask = |node: &NodeId| timeout(FIGURES_PATIENCE, self.questions.ask(*node, Question::Copies));
        for answer in join_all(linked.iter().map(ask)).await {
            if let Ok(Some(Answer::Copies(told))) = answer {
                outlook::take_figures(&mut seen.copies, &told);
            }
        }
        seen
    }

    /// The page of one node, which is a mere name in `missing` if it does not answer.
    async fn page_of(&self, node: NodeId, name: &str, question: Question) -> view::ClientPage {
        match self.questions.ask(node, question).await {
            Some(Answer::Clients(page)) => page,
            _ => view::ClientPage { missing: vec![name.to_owned()], ..view::ClientPage::default() },
        }
    }

    async fn all_clients(&self, asked: PageRequest) -> view::ClientPage {
        let others = self.others();
        let question =
            || Question::Clients { limit: asked.limit as u32, after: asked.after.as_deref().map(str::to_owned) };
        let own = self.page_of(self.local.shared.node, &self.local.name, question());
        let pages = others.iter().map(|other| self.page_of(other.id, &other.name, question()));
        let (own, mut parts) = tokio::join!(own, join_all(pages));
        parts.push(own);
        pages::merge(parts, asked.limit)
    }

    async fn all_closed(&self, asked: ClosedRequest) -> view::ClosedPage {
        let limit = asked.limit;
        let question = Question::Closed {
            limit: limit as u32,
            after: asked.after,
            client_id: asked.client_id.as_deref().map(str::to_owned),
        };
        let answers = self.ask_all(question).await.into_iter().map(|(name, answer)| match answer {
            Some(Answer::Closed(page)) => page,
            _ => view::ClosedPage { missing: vec![name], ..view::ClosedPage::default() },
        });
        pages::merge_closed(answers.collect(), limit)
    }

    async fn all_matches(&self, topic: Arc<str>) -> view::Matches {
        let question = Question::Match { topic: topic.to_string() };
        let answers = self.ask_all(question).await.into_iter().map(|(name, answer)| match answer {
            Some(Answer::Match(found)) => found,
            _ => view::Matches { missing: vec![name], ..view::Matches::default() },
        });
        pages::merge_matches(topic.to_string(), answers.collect(), PAGE_MAX)
    }

    /// What each node says, this one too, by its name.
    async fn ask_all(&self, question: Question) -> Vec<(String, Option<Answer>)> {
        let mut nodes = self.others();
        nodes.push(Other { id: self.local.shared.node, name: self.local.name.clone() });
        let answers = join_all(nodes.iter().map(|node| self.questions.ask(node.id, question.clone()))).await;
        nodes.iter().map(|node| node.name.to_string()).zip(answers).collect()
    }

    /// Asks the node that has the session and, if it does not know it, all others: it may just be moving, or the state may not have come here yet.
    async fn seek<T>(
        &self,
        client_id: &str,
        question: Question,
        pick: fn(Answer) -> Option<Option<T>>,
    ) -> Result<Option<T>, Trouble> {
        let ask = async |node: NodeId| self.questions.ask(node, question.clone()).await.and_then(pick);
        let holder = self
            .plane
            .group()
            .and_then(|group| group.read(|state| state.session(client_id).map(|session| session.holder)));
        let mut nodes = self.others();
        nodes.push(Other { id: self.local.shared.node, name: self.local.name.clone() });
        let (mut silent, mut silent_holder) = (Vec::new(), None);
        if let Some(at) = holder.and_then(|holder| nodes.iter().position(|node| node.id == holder)) {
            let first = nodes.swap_remove(at);
            match ask(first.id).await {
                Some(Some(found)) => return Ok(Some(found)),
                Some(None) => {}
                None => {
                    silent_holder = Some(Arc::clone(&first.name));
                    silent.push(first.name);
                }
            }
        }
        let answers = join_all(nodes.iter().map(|node| ask(node.id))).await;
        let mut found = None;
        for (node, answer) in nodes.into_iter().zip(answers) {
            match answer {
                Some(here) => found = found.or(here),
                None => silent.push(node.name),
            }
        }
        if found.is_none() && !silent.is_empty() {
            return Err(
                silent_holder.map_or_else(|| nodes_missing(client_id, &silent), |holder| waits_at(client_id, &holder))
            );
        }
        Ok(found)
    }

    async fn join_at(&self, address: String) -> Result<(), Trouble> {
        let (Some(links), Some(group)) = (self.plane.links(), self.plane.group()) else {
            return Err(starting());
        };
        if group.status().cluster_id != 0 && !links.linked().is_empty() {
            return Err(Trouble::new(409, "already_joined", "this node is in a cluster already")
                .hint("`holdfast cluster leave` takes it out of that one, for good"));
        }
        if !links.add_seed(&address) {
            return Err(Trouble::new(
                409,
                "too_many_seeds",
                "this node looks for others at too many addresses already",
            ));
        }
        info!(event = "join", address, "nodes are looked for at another address by way of the admin port");
        let mut stages = self.stage.clone();
        let joined = stages.wait_for(|stage| *stage == Stage::Serving);
        let why = tokio::select! {
            joined = timeout(CHANGE_PATIENCE, joined) => match joined {
                Ok(Ok(_)) => return Ok(()),
                _ => format!("not yet one of the cluster: {}", self.why_joining("")),
            },
            trouble = nobody_at(links, &address) => format!("no node of the cluster is found at {address}: {trouble}"),
        };
        Err(Trouble::new(503, "joining", why)
            .hint("the node goes on trying until it is started anew; `seeds` under [cluster] makes it lasting"))
    }

    async fn force_out(&self, node: String) -> Result<(), Trouble> {
        let Some(group) = self.plane.group() else { return Err(starting()) };
        let known = knows(group, &node);
        if !known {
            return Err(Trouble::new(404, "no_such_node", format!("there is no node called {node:?} in the cluster"))
                .hint("`holdfast cluster status` has them all"));
        }
        if named(group, &node) == Some(self.local.shared.node) {
            return Err(Trouble::new(409, "own_node", "this is the node itself").hint("let it leave"));
        }
        if !group.status().quorum {
            return Err(no_quorum(&format!("there is no quorum now, and without one {node} cannot be taken out")));
        }
        match group.force_leave(&node, Instant::now() + CHANGE_PATIENCE).await {
            Ok(()) => {
                warn!(event = "force_leave", node, "a node was taken out of the cluster by way of the admin port");
                Ok(())
            }
            Err(LeaveError::Refused(reason)) => Err(Trouble::new(409, "refused", reason)),
            Err(error @ LeaveError::Deadline(_)) => Err(Trouble::new(503, "no_quorum", error.to_string())
                .hint("most of the voters must be there to take one out: see `holdfast cluster status`")),
        }
    }
}

/// Why no node is found at a seed, once it has been looked for there again and again.
async fn nobody_at(links: &Links, address: &str) -> String {
    let began = Instant::now();
    loop {
        sleep(LOOK_AGAIN).await;
        let seeds = links.seeds_without_nodes();
        if let Some((_, trouble)) =
            seeds.into_iter().find(|(seed, _)| seed == address && began.elapsed() > FOUND_PATIENCE)
        {
            return trouble;
        }
    }
}

fn nodes_missing(client_id: &str, silent: &[Arc<str>]) -> Trouble {
    let names = silent.join(", ");
    Trouble::new(
        503,
        "node_missing",
        format!("{names} does not answer, and no other node has a session of {client_id:?}"),
    )
    .hint("`holdfast cluster status` says which nodes are there")
}

/// The session is kept by a node that does not answer.
fn waits_at(client_id: &str, holder: &str) -> Trouble {
    Trouble::new(
        503,
        "node_missing",
        format!(
            "the session of {client_id:?} is on {holder}, which does not answer: it waits there until {holder} is back"
        ),
    )
    .hint(
        "a client that starts clean gets a new session elsewhere; `holdfast cluster status` says which nodes are there",
    )
}

pub(super) fn starting() -> Trouble {
    Trouble::new(503, "starting", "the node is starting").hint("/health/startup says when it has")
}

pub(super) fn named(group: &Group, node: &str) -> Option<NodeId> {
    let members = group.status().members;
    let by_id = u128::from_str_radix(node, 16).ok().map(NodeId);
    let by_name =
        members.iter().find(|member| member.name == node).or(members.iter().find(|member| Some(member.id) == by_id));
    by_name.map(|member| member.id)
}

/// Whether the node is a member, or one in the state that has not been forgotten.
fn knows(group: &Group, node: &str) -> bool {
    named(group, node).is_some()
        || group.read(|state| state.nodes().any(|known| &*known.name == node || known.id.to_string() == node))
}

/// How long a change of the bans waits for the cluster to agree.
const BAN_WAIT: Duration = Duration::from_secs(5);

/// The other nodes, asked for their `$SYS` numbers.
pub(super) struct SysOthers {
    pub plane: Arc<ClusterPlane>,
    pub questions: Arc<Questions>,
}

impl Others for SysOthers {
    fn numbers(&self) -> Soon<'_, Vec<Numbers>> {
        Box::pin(async {
            let linked = self.plane.links().map(Links::linked).unwrap_or_default();
            let answers = join_all(linked.iter().map(|node| self.questions.ask(*node, Question::Sys))).await;
            let numbers = answers.into_iter().filter_map(|answer| match answer {
                Some(Answer::Sys(numbers)) => Some(numbers),
                _ => None,
            });
            numbers.collect()
        })
    }
}

impl Source for Clustered {
    fn live(&self) -> Vec<view::Check> {
        self.local.live()
    }

    fn ready(&self) -> Vec<view::Check> {
        let mut checks = self.local.ready();
        checks.extend([self.joined(), self.granted()]);
        checks.extend(self.copies());
        checks
    }

    fn startup(&self) -> Vec<view::Check> {
        let mut checks = self.local.startup();
        let joined = self.joined();
        let started = self.started.load(Ordering::Acquire);
        checks.push(view::Check { ok: started, ..joined });
        checks
    }

    fn cluster(&self) -> view::Cluster {
        self.cluster_seen()
    }

    fn status(&self) -> Soon<'_, view::Cluster> {
        Box::pin(self.whole_status())
    }

    fn metrics<'a>(&'a self, out: &'a mut Exposition) -> Soon<'a, ()> {
        Box::pin(async {
            self.local.metrics(out).await;
            figures::write(out, &self.local.shared.metrics, &self.plane, self.questions.unanswered());
        })
    }

    fn clients(&self, asked: PageRequest) -> Soon<'_, Result<view::ClientPage, Trouble>> {
        Box::pin(async move { Ok(self.all_clients(asked).await) })
    }

    fn client(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<view::ClientDetail>, Trouble>> {
        Box::pin(async move {
            let question = Question::Client { client_id: client_id.to_string() };
            let found = self.seek(&client_id, question, |answer| match answer {
                Answer::Client(found) => Some(found),
                _ => None,
            });
            Ok(found.await?.map(|found| *found))
        })
    }

    fn kick(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<view::Kicked>, Trouble>> {
        Box::pin(async move {
            let question = Question::Kick { client_id: client_id.to_string() };
            self.seek(&client_id, question, |answer| match answer {
                Answer::Kick(kicked) => Some(kicked),
                _ => None,
            })
            .await
        })
    }

    fn closed(&self, asked: ClosedRequest) -> Soon<'_, Result<view::ClosedPage, Trouble>> {
        Box::pin(async move { Ok(self.all_closed(asked).await) })
    }

    fn topic_match(&self, topic: Arc<str>) -> Soon<'_, Result<view::Matches, Trouble>> {
        Box::pin(async move { Ok(self.all_matches(topic).await) })
    }

    fn join(&self, address: String) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(self.join_at(address))
    }

    fn leave(&self, force: bool) -> Soon<'_, Result<view::Leaving, Trouble>> {
        Box::pin(self.departure.leave(force))
    }

    fn force_leave(&self, node: String) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(self.force_out(node))
    }

    fn retained(&self, asked: RetainedRequest) -> Soon<'_, Result<view::RetainedPage, Trouble>> {
        Box::pin(async move { self.local.retained(&asked).await })
    }

    fn retained_of(&self, topic: &str) -> Option<view::Retained> {
        self.local.retained_of(topic)
    }

    fn remove_retained(&self, filter: Arc<str>, dry_run: bool) -> Soon<'_, Result<view::RetainedRemoved, Trouble>> {
        Box::pin(async move { self.local.remove_retained(&filter, dry_run).await })
    }

    fn publish(&self, messages: Vec<PublishRequest>) -> Soon<'_, Result<Vec<view::Published>, Trouble>> {
        Box::pin(self.local.publish(messages))
    }

    fn nodes(&self) -> Soon<'_, view::Nodes> {
        Box::pin(self.loads())
    }

    fn drain(&self, node: Arc<str>, terms: view::DrainTerms) -> Soon<'_, Result<view::Drain, Trouble>> {
        Box::pin(async move {
            match self.tell(&node, Question::Drain { terms }).await? {
                Answer::Drain(drain) => Ok(*drain),
                answer => Err(refused_by(&node, answer)),
            }
        })
    }

    fn bans(&self) -> Vec<Ban> {
        self.local.shared.bans.list()
    }

    fn change_bans(&self, command: Command) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async move {
            match tokio::time::timeout(BAN_WAIT, self.plane.propose_own(command)).await {
                Ok(Ok(outcome)) => ban_outcome(outcome),
                _ => {
                    Err(Trouble::new(503, "no_quorum", "the cluster has not agreed on it in time; it may still do so"))
                }
            }
        })
    }

    fn undrain(&self, node: Arc<str>) -> Soon<'_, Result<bool, Trouble>> {
        Box::pin(async move {
            match self.tell(&node, Question::Undrain).await? {
                Answer::Done(undone) => Ok(undone),
                answer => Err(refused_by(&node, answer)),
            }
        })
    }

    fn rebalance_plan(&self, asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>> {
        Box::pin(async move { Ok(self.plan(&asked).await?.0) })
    }

    fn rebalance_start(&self, asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>> {
        Box::pin(self.rebalance(asked))
    }

    fn rebalance_stop(&self) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(self.keep())
    }

    fn transfer_leader(&self) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(self.transfer())
    }

    fn explain(&self, subject: Subject, action: Action, topic: &str) -> Decision {
        self.local.shared.acl.rights(subject).explain(action, topic)
    }
}
