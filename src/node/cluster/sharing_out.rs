//! What the admin port does with the clients of other nodes: who has how many, and who lets some go.
//!
//! Owns nothing: each node carries out its own part (`node::draining`). Test to read first: `cluster-tests/tests/cluster/draining.rs`.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tracing::info;

use holdfast_raft::NodeId;

use crate::admin::{RebalanceRequest, Trouble, view};
use crate::cluster::rebalancing::{self, Weighed};

use super::admin_source::{Clustered, named, starting};
use super::departure::no_quorum;
use super::questions::{Answer, Question};

/// The longest that another voter is asked to take over.
const TRANSFER_PATIENCE: Duration = Duration::from_secs(8);

/// A node that was asked to do something has not done it.
pub(super) fn refused_by(node: &str, answer: Answer) -> Trouble {
    match answer {
        Answer::Failed(why) => Trouble::new(409, "refused", why).hint(format!("{node} was asked")),
        _ => Trouble::new(503, "node_missing", format!("{node} does not understand the question")),
    }
}

impl Clustered {
    /// Every node that the control state or the group knows, and what it says of itself.
    pub(super) async fn loads(&self) -> view::Nodes {
        let members = self.cluster_seen().nodes;
        let load = async |member: &view::Member| {
            let id = u128::from_str_radix(&member.id, 16).ok().filter(|_| member.live || member.own)?;
            match self.questions.ask(NodeId(id), Question::Load).await? {
                Answer::Load(load) => Some(*load),
                _ => None,
            }
        };
        let loads = join_all(members.iter().map(load)).await;
        view::Nodes {
            nodes: members.into_iter().zip(loads).map(|(member, load)| view::NodeLoad { member, load }).collect(),
        }
    }

    /// Asks a node by its name or id.
    pub(super) async fn tell(&self, node: &str, question: Question) -> Result<Answer, Trouble> {
        let group = self.plane.group().ok_or_else(starting)?;
        let id = named(group, node).ok_or_else(|| {
            Trouble::new(404, "no_such_node", format!("there is no node called {node:?} in the cluster"))
                .hint("`holdfast node list` has them all")
        })?;
        if self.local.shared.is_own(id) {
            // Its own words say more than an answer between nodes does.
            return self.own_answer(question).await;
        }
        self.questions.ask(id, question).await.ok_or_else(|| {
            Trouble::new(503, "node_missing", format!("{node} does not answer"))
                .hint("`holdfast cluster status` says which nodes are there")
        })
    }

    async fn own_answer(&self, question: Question) -> Result<Answer, Trouble> {
        match question {
            Question::Drain { terms } => self.local.draining.drain(terms).await.map(Box::new).map(Answer::Drain),
            question => self.questions.ask(self.local.shared.node, question).await.ok_or_else(starting),
        }
    }

    /// Who lets how many go, and which nodes that are.
    pub(super) async fn plan(&self, asked: &RebalanceRequest) -> Result<(view::Rebalance, Vec<String>), Trouble> {
        let nodes = self.loads().await.nodes;
        if let Some(name) = asked.weights.keys().find(|name| nodes.iter().all(|node| node.member.name != **name)) {
            return Err(Trouble::new(404, "no_such_node", format!("there is no node called {name:?} in the cluster")));
        }
        let live: Vec<_> = nodes.into_iter().filter(|node| node.member.live).collect();
        if let Some(silent) = live.iter().find(|node| node.load.is_none()) {
            let message = format!("{} does not say how many clients it has", silent.member.name);
            return Err(Trouble::new(503, "node_missing", message));
        }
        let weight = |node: &view::NodeLoad| {
            let drains = node
                .load
                .as_ref()
                .and_then(|load| load.drain.as_ref())
                .is_some_and(|drain| drain.phase != "shedding" && drain.phase != "aborted");
            if drains { 0 } else { asked.weights.get(&node.member.name).copied().unwrap_or(1) }
        };
        let loads: Vec<_> = live.iter().filter_map(|node| Some((node, node.load.as_ref()?))).collect();
        let weighed: Vec<_> = loads
            .iter()
            .map(|(node, load)| Weighed {
                connections: load.connections,
                room: load.connections_max,
                weight: weight(node),
            })
            .collect();
        let told =
            loads.iter().zip(&weighed).zip(rebalancing::plan(&weighed)).map(|(((node, _), one), (share, lets_go))| {
                let node = node.member.name.clone();
                view::RebalanceNode { node, weight: one.weight, connections: one.connections, share, lets_go }
            });
        Ok((view::Rebalance { nodes: told.collect() }, live.iter().map(|node| node.member.id.clone()).collect()))
    }

    pub(super) async fn rebalance(&self, asked: RebalanceRequest) -> Result<view::Rebalance, Trouble> {
        let (plan, ids) = self.plan(&asked).await?;
        info!(event = "rebalance", "clients are shared out anew by way of the admin port");
        for (node, id) in plan.nodes.iter().zip(ids).filter(|(node, _)| node.lets_go > 0 && node.weight > 0) {
            let question = Question::Shed { count: node.lets_go, terms: asked.terms.clone() };
            match self.tell(&id, question).await? {
                Answer::Done(_) => {}
                answer => return Err(refused_by(&node.node, answer)),
            }
        }
        Ok(plan)
    }

    pub(super) async fn keep(&self) -> Result<(), Trouble> {
        let live: Vec<_> = self.cluster_seen().nodes.into_iter().filter(|node| node.live || node.own).collect();
        let told = join_all(live.iter().map(|node| self.tell(&node.id, Question::Keep))).await;
        told.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    pub(super) async fn transfer(&self) -> Result<(), Trouble> {
        let group = self.plane.group().ok_or_else(starting)?;
        let status = group.status();
        if status.leader != Some(self.local.shared.node) {
            return Err(Trouble::new(409, "not_leader", "this node does not lead")
                .hint("`holdfast cluster status` says which one does; ask that one with --admin"));
        }
        if !status.quorum {
            return Err(no_quorum("there is no quorum now, and without one nobody else can lead"));
        }
        let deadline = Instant::now() + TRANSFER_PATIENCE;
        // One attempt waits no longer than an election; the voter that is asked may be busy.
        while !group.transfer_leader().await {
            if Instant::now() < deadline {
                continue;
            }
            return Err(Trouble::new(503, "still_leader", "no other voter has taken over in time").hint("try again"));
        }
        info!(event = "leader", "another node leads, as this one was told by way of the admin port");
        Ok(())
    }
}
