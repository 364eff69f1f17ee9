//! Who comes and who goes, as the leader sees to it, one step at a time; and how a node asks to go.
//!
//! Before the voters change, the leader makes sure that a majority of the new ones and of the old ones answers at that moment (`membership::Sounding`), as an entry that begins such a change cannot be
//! taken back: openraft takes no other change until it is decided, and until then nothing behind it is. When they do not answer for a lease, who wants to go is refused, and serves on.
//!
//! Tests to read first: `tests::members`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::metrics::RaftMetrics;
use tokio::time::{Instant, timeout_at};

use super::lead::{Departing, Lead, WISH_MS};
use super::turn::due;
use super::{AGAIN, Inner, LeaveError};
use crate::clock::boot_ms;
use crate::command::{Command, Incarnation, NodeId};
use crate::entry::Member;
use crate::membership::{MemberStep, Members, Sounded, next_step, rest_of_change};
use crate::network::{Answer as RpcAnswer, Unanswered};
use crate::wire::{Control, Lane, Message};

/// Entries that a learner may lack to be counted as caught up.
const CAUGHT_UP_ENTRIES: u64 = 64;
/// A change of the membership that takes longer is waited for no more. It may still happen.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// Milliseconds for which who wants to go waits for an answer before it asks again.
const ASK_MS: u64 = WISH_MS / 2;
/// Between two lines about nodes that are refused.
const REFUSED_LOG: Duration = Duration::from_secs(10);

/// What is to be done next about who comes and who goes.
enum Next {
    Step(MemberStep),
    /// Who goes is nobody any more first, while this leader can still say so.
    End(NodeId, Incarnation),
}

type Live = [(NodeId, Incarnation)];

impl Inner {
    /// Takes the next step of who comes and who goes.
    pub(super) fn change_members(self: &Arc<Self>, term: u64, members: &Members, live: &Live, now: u64) {
        self.finish_departure(members, now);
        // Of a change that is not decided nobody knows what comes of it.
        if !members.settled || self.changing.load(Ordering::Acquire) {
            return;
        }
        match self.next_change(term, members, live, now) {
            Some(Next::End(node, incarnation)) => self.propose_as_leader(&[Command::ExpireNode { node, incarnation }]),
            Some(Next::Step(step)) if !self.changing.swap(true, Ordering::AcqRel) => {
                self.runtime.spawn(self.clone().take_step(step));
            }
            _ => {}
        }
    }

    fn next_change(&self, term: u64, members: &Members, live: &Live, now: u64) -> Option<Next> {
        let caught_up = self.caught_up();
        let is_live = |id: u128| live.iter().any(|(node, _)| node.0 == id);
        // Before the lead is locked: others look at the state first.
        let dead: Vec<NodeId> = self.machine.read().state.orphans().map(|(dead, ..)| dead).collect();
        let mut lead = self.lead.lock();
        lead.joining.retain(|_, (_, at)| now.saturating_sub(*at) < WISH_MS);
        let joining: BTreeMap<u128, String> = lead.joining.iter().map(|(id, (name, _))| (*id, name.clone())).collect();
        let leaving = lead.departing.as_ref().map(|(departing, _)| departing.id);
        if members.configs.len() > 1 {
            let rest = rest_of_change(members, leaving, is_live, |voters| self.is_heard(term, voters, now));
            return rest.map(Next::Step);
        }
        // Who leaves stays until its heirs have what passes to them: then it can say that it is done.
        if leaving.is_some_and(|leaving| dead.contains(&NodeId(leaving))) {
            return None;
        }
        let alive = |id: u128| is_live(id) || joining.contains_key(&id) || self.is_linked(id);
        let step = next_step(members, &joining, leaving, |id| caught_up.contains(&id), alive);
        let Some(MemberStep::Voters(voters)) = &step else {
            lead.sounding.forget();
            let removed = matches!(step, Some(MemberStep::RemoveLearner(_)));
            return self.first_its_end(step, leaving.filter(|_| removed), live, lead.is_idle());
        };
        let proof = self.rpc.quorum_at(term, self.me(), &[members.voters.clone(), voters.clone()]);
        match lead.sounding.sound(voters, proof, now, self.options.lease_ms) {
            Sounded::Wait => None,
            Sounded::There => self.first_its_end(step, leaving, live, lead.is_idle()),
            // Somebody must wait for the answer.
            Sounded::Missing => {
                let (departing, _) = lead.departing.as_ref().filter(|(_, at)| now.saturating_sub(*at) < ASK_MS)?;
                let id = departing.id;
                lead.sounding.forget();
                let (all, heard) = (voters.len(), self.heard_of(term, voters, now));
                let reason = format!("of the {all} voters that stay only {heard} would be there: no majority");
                Some(Next::Step(MemberStep::Refuse { id, reason }))
            }
        }
    }

    /// The `step` by which `leaving` goes, or what comes before. When that cannot be proposed now, nothing.
    fn first_its_end(&self, step: Option<MemberStep>, leaving: Option<u128>, live: &Live, idle: bool) -> Option<Next> {
        match live.iter().find(|(node, _)| Some(node.0) == leaving) {
            Some((node, incarnation)) => idle.then_some(Next::End(*node, *incarnation)),
            None => step.map(Next::Step),
        }
    }

    /// Whether a majority of `voters` has been heard within two elections.
    fn is_heard(&self, term: u64, voters: &BTreeSet<u128>, now: u64) -> bool {
        let at = self.rpc.quorum_at(term, self.me(), std::slice::from_ref(voters));
        at.is_some_and(|at| now.saturating_sub(at) < self.quorum_patience())
    }

    fn heard_of(&self, term: u64, voters: &BTreeSet<u128>, now: u64) -> usize {
        voters.iter().filter(|voter| self.is_heard(term, &BTreeSet::from([**voter]), now)).count()
    }

    /// Said to who wants to change something while there is no quorum.
    fn who_is_missing(&self, term: u64, now: u64) -> String {
        let members = self.members();
        let short = members.configs.iter().find(|voters| !self.is_heard(term, voters, now));
        let silent = short.into_iter().flatten().filter(|voter| !self.is_heard(term, &BTreeSet::from([**voter]), now));
        let names: Vec<&str> = silent.filter_map(|id| Some(members.nodes.get(id)?.name.as_str())).collect();
        let names = names.join(", ");
        format!(
            "there is no quorum, and nobody comes or goes before there is one; not heard: {names}: start them again"
        )
    }

    fn is_linked(&self, id: u128) -> bool {
        id == self.me() || self.rpc.linked().contains(&NodeId(id))
    }

    /// The members that have all but the newest of the log.
    fn caught_up(&self) -> BTreeSet<u128> {
        let metrics = self.metrics.borrow();
        let last = metrics.last_log_index.unwrap_or(0);
        let matched = metrics.replication.iter().flatten();
        let near = matched.filter(|(_, id)| id.is_some_and(|id| id.index + CAUGHT_UP_ENTRIES >= last));
        near.map(|(id, _)| *id).collect()
    }

    async fn take_step(self: Arc<Self>, step: MemberStep) {
        if !matches!(step, MemberStep::Refuse { .. }) {
            tracing::info!(%step, "the membership changes");
        }
        let change = match step {
            MemberStep::AddLearner { id, name } => ChangeMembers::AddNodes(BTreeMap::from([(id, Member { name })])),
            MemberStep::Voters(voters) => ChangeMembers::ReplaceAllVoters(voters),
            MemberStep::RemoveLearner(id) => ChangeMembers::RemoveNodes(BTreeSet::from([id])),
            MemberStep::Refuse { id, reason } => {
                if !self.refuse_departure(id, &reason) {
                    self.tell_refused(id, &reason);
                    self.rpc.control(NodeId(id), Control::JoinRefused { reason });
                }
                self.changing.store(false, Ordering::Release);
                return;
            }
        };
        let changed = async {
            let response = self.raft.change_membership(change, false).await?;
            // The next step starts from what is known then; a step that was taken must not be taken again.
            let mut metrics = self.metrics.clone();
            let known = Some(response.log_id);
            let _ = metrics.wait_for(|metrics| *metrics.membership_config.log_id() >= known).await;
            Ok::<_, openraft::error::RaftError<u128, openraft::error::ClientWriteError<u128, Member>>>(())
        };
        match tokio::time::timeout(CHANGE_PATIENCE, changed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the membership cannot be changed now"),
            Err(_) => tracing::warn!(
                "a change of the membership takes too long: most of the old voters and of the new ones must be there to decide it"
            ),
        }
        self.changing.store(false, Ordering::Release);
        self.nudge.notify_one();
    }

    /// Asks the leader to let a member go, and again until it answers.
    pub(super) async fn depart(
        self: &Arc<Self>,
        who: String,
        force: bool,
        deadline: Instant,
    ) -> Result<(), LeaveError> {
        let mut why = "the cluster has no leader".to_owned();
        let (mut again, mut turn) = (false, 0);
        let mut metrics = self.metrics.clone();
        let who_decides = |metrics: &RaftMetrics<u128, Member>| {
            (
                metrics.current_leader,
                *metrics.membership_config.log_id(),
                metrics.last_applied >= *metrics.membership_config.log_id(),
            )
        };
        while Instant::now() < deadline {
            let asker = self.me();
            let decided_by = who_decides(&metrics.borrow_and_update());
            // A leader that has let itself go leads no more, and answers nobody.
            if !force && self.has_departed() {
                return Ok(());
            }
            let message =
                |request| Message::Control(Control::Depart { hops: 0, request, asker, who: who.clone(), force, again });
            let patience = (deadline - Instant::now()).min(Duration::from_millis(ASK_MS));
            let answer = match self.whom_to_ask(&mut turn) {
                Some(leader) if leader == asker => {
                    let lead = |request| {
                        self.lead_with(message(request));
                        true
                    };
                    self.rpc.ask_by(asker, patience, lead).await
                }
                Some(leader) => self.rpc.ask(leader, Lane::Control, patience, message).await,
                None => Err(Unanswered::NoLink),
            };
            match answer {
                Ok(RpcAnswer::Depart(None)) => return Ok(()),
                Ok(RpcAnswer::Depart(Some(reason))) => return Err(LeaveError::Refused(reason)),
                Ok(_) => {}
                Err(unanswered) => {
                    again |= unanswered == Unanswered::Late;
                    why = unanswered.to_string();
                }
            }
            // Who has not answered is not asked again at once, but another one is as soon as it decides.
            let another_decides = async {
                if metrics.wait_for(|metrics| who_decides(metrics) != decided_by).await.is_err() {
                    // openraft has ended, and says nothing more.
                    pending::<()>().await;
                }
            };
            let _ = timeout_at(deadline.min(Instant::now() + AGAIN), another_decides).await;
        }
        Err(LeaveError::Deadline(why))
    }

    /// The leader; or, for who hears of none any more because it is no member, each of the others in turn.
    fn whom_to_ask(&self, turn: &mut usize) -> Option<u128> {
        let linked = self.rpc.linked();
        let reached = |leader: &u128| *leader == self.me() || linked.contains(&NodeId(*leader));
        self.leader().filter(reached).or_else(|| {
            *turn += 1;
            linked.get(*turn % linked.len().max(1)).map(|node| node.0)
        })
    }

    pub(super) fn begin_departure(self: &Arc<Self>, request: u64, asker: u128, who: &str, force: bool) {
        let now = boot_ms();
        let (Some(term), Some(id)) = (self.leading_term(), self.members().find(who)) else { return };
        let is_live = self.machine.read().state.live_nodes().any(|live| live.id.0 == id);
        let mut lead = self.lead.lock();
        if let Some(why) = self.why_not_now(&lead, term, (id, who), force, is_live, now) {
            drop(lead);
            return self.answer_departure(asker, request, Some(why));
        }
        // Else who has just come would be taken in again as soon as it is gone.
        lead.joining.remove(&id);
        lead.departing = Some((Departing { id, request, asker }, now));
        drop(lead);
        self.nudge.notify_one();
    }

    /// Why a member does not go now, if that is known already.
    fn why_not_now(
        &self,
        lead: &Lead,
        term: u64,
        (id, who): (u128, &str),
        force: bool,
        is_live: bool,
        now: u64,
    ) -> Option<String> {
        // Who has only just been elected has not heard of anybody yet.
        if lead.renewals.is_leading() && !self.has_quorum() {
            return Some(self.who_is_missing(term, now));
        }
        let is_there = self.is_linked(id) || lead.renewals.is_heard(NodeId(id), now);
        if force && is_live && !is_there {
            let soon = self.options.lease_ms.div_ceil(1000);
            return Some(format!("node {who} may still be alive: if it is not, that is known in {soon} s; try again"));
        }
        if force && (is_live || lead.renewals.is_heard(NodeId(id), now)) {
            return Some(format!("node {who} is alive: let it leave by itself"));
        }
        let (other, at) = lead.departing.as_ref()?;
        let busy = other.id != id && now.saturating_sub(*at) < WISH_MS;
        busy.then(|| "another member is just leaving".to_owned())
    }

    /// Answers when the member is none any more.
    fn finish_departure(&self, members: &Members, now: u64) {
        let mut lead = self.lead.lock();
        let Some((departing, at)) = lead.departing.clone() else { return };
        let gone = members.settled && !members.nodes.contains_key(&departing.id);
        if gone || now.saturating_sub(at) >= WISH_MS {
            lead.departing = None;
        }
        if gone {
            lead.joining.remove(&departing.id);
        }
        drop(lead);
        if gone {
            self.answer_departure(departing.asker, departing.request, None);
        }
    }

    /// It will ask again, and again be refused: that is said now and then.
    fn tell_refused(&self, id: u128, reason: &str) {
        let mut lead = self.lead.lock();
        let name = lead.joining.remove(&id).map(|(name, _)| name).unwrap_or_default();
        if due(&mut lead.refused_at, boot_ms(), REFUSED_LOG) {
            tracing::warn!(node = %NodeId(id), name, %reason, "a node is not taken as a member");
        }
    }

    /// Whether it wanted to go.
    fn refuse_departure(&self, id: u128, reason: &str) -> bool {
        let departing = {
            let mut lead = self.lead.lock();
            lead.departing.take_if(|(departing, _)| departing.id == id)
        };
        let Some((departing, _)) = departing else { return false };
        tracing::warn!(node = %NodeId(id), %reason, "a node is not let go");
        self.answer_departure(departing.asker, departing.request, Some(reason.to_owned()));
        true
    }

    pub(super) fn answer_departure(&self, asker: u128, request: u64, refused: Option<String>) {
        if asker == self.me() {
            self.rpc.answered(asker, request, RpcAnswer::Depart(refused));
        } else {
            self.rpc.control(NodeId(asker), Control::DepartAnswer { request, refused });
        }
    }
}
