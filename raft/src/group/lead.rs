//! The duties of the leader.
//!
//! It answers renewals and expires who does not renew, registers nodes, proposes what is due, and changes the membership, one step at a time. All that it remembers for it is of its
//! term: another leader begins anew, from the state and from what nodes repeat.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::raft::ClientWriteResponse;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::turn::due;
use super::{AGAIN, Inner, LeaveError, Recent};
use crate::admission;
use crate::clock::boot_ms;
use crate::command::{Command, Incarnation, NodeId};
use crate::entry::{Batch, BatchOrigin, Member, TypeConfig};
use crate::liveness::{Answer, Asking, Renewals, Timing};
use crate::membership::{MemberStep, Members, next_step};
use crate::network::Answer as RpcAnswer;
use crate::state_machine::{Held, encode_commands};
use crate::wire::{Control, Lane, Message};

/// A leader without a turn for so long has stood still, frozen or without a processor. In milliseconds.
const STOOD_STILL_MS: u64 = 1000;
/// Milliseconds for which a wish that is not repeated counts.
const WISH_MS: u64 = 3000;
/// Entries that a learner may lack to be counted as caught up.
const CAUGHT_UP_ENTRIES: u64 = 64;
/// A change of the membership that takes longer is given up and tried again.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// Milliseconds for which nothing is proposed anew that has not been applied.
const HOUSEKEEPING_MS: u64 = 1000;
/// Between two lines about nodes that are refused.
const REFUSED_LOG: Duration = Duration::from_secs(10);
/// Answers of openraft that nobody reads, kept so that it does not complain.
const ANSWERS_MAX: usize = 4096;

pub(super) type WriteAnswer =
    oneshot::Receiver<Result<ClientWriteResponse<TypeConfig>, openraft::error::ClientWriteError<u128, Member>>>;

/// A member that is to go.
#[derive(Debug, Clone)]
struct Departing {
    id: u128,
    request: u64,
    asker: u128,
}

/// What a leader remembers in its term.
pub(super) struct Lead {
    term: Option<u64>,
    renewals: Renewals,
    /// Who wants to be a member, under which name.
    joining: Recent<String>,
    /// Who was proposed to be registered, under which run.
    registering: Recent<u64>,
    departing: Option<(Departing, u64)>,
    /// When it last had a turn.
    turned_at: u64,
    /// When housekeeping was last proposed, and the answer to it.
    kept: Option<(u64, WriteAnswer)>,
    /// When it last said that a node is refused.
    refused_at: u64,
    answers: VecDeque<WriteAnswer>,
}

impl Lead {
    pub fn new(timing: Timing) -> Self {
        Self {
            term: None,
            renewals: Renewals::new(timing),
            joining: HashMap::new(),
            registering: HashMap::new(),
            departing: None,
            turned_at: 0,
            kept: None,
            refused_at: 0,
            answers: VecDeque::new(),
        }
    }

    /// Takes the answer to a write, which says nothing that applying does not say.
    pub fn await_answer(&mut self, answer: WriteAnswer) {
        self.answers.push_back(answer);
        while self.answers.len() > ANSWERS_MAX || self.answers.front_mut().is_some_and(|first| !is_open(first)) {
            self.answers.pop_front();
        }
    }

    /// A leader that has stood still has heard nobody meanwhile, and that says nothing of them: everybody has a full lease again.
    fn look_whether_it_stood_still(&mut self, now: u64) {
        if now.saturating_sub(self.turned_at) > STOOD_STILL_MS {
            self.renewals.end();
        }
        self.turned_at = now;
    }

    /// Whether housekeeping may be proposed: what was proposed last is applied, or is late.
    fn may_keep(&mut self, now: u64) -> bool {
        let under_way =
            |(at, answer): &mut (u64, WriteAnswer)| now.saturating_sub(*at) < HOUSEKEEPING_MS && is_open(answer);
        !self.kept.as_mut().is_some_and(under_way)
    }

    /// In line with openraft: in `term` this node leads, and `proven` says whether it has applied an entry of that term.
    fn follow(&mut self, term: Option<u64>, proven: bool, now: u64) {
        if self.term != term {
            self.term = term;
            self.renewals.end();
            self.joining.clear();
            self.registering.clear();
            self.departing = None;
            self.kept = None;
        }
        if proven {
            self.renewals.begin(now);
        }
    }
}

fn is_open(answer: &mut WriteAnswer) -> bool {
    matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

impl Inner {
    /// What a renewal is answered by this node, if it leads.
    pub(super) fn answer_renewal(&self, node: NodeId, asking: Asking, now: u64) -> Answer {
        let Some(term) = self.leading_term() else { return Answer::Silence };
        let quorum_at = self.quorum_at(term);
        let member = self.members().nodes.contains_key(&node.0);
        let held = self.machine.read();
        let latest = held.state.node(node).map(|node| (node.incarnation, node.live));
        let proven = is_own_term(&held, term, self.me());
        let mut lead = self.lead.lock();
        drop(held);
        lead.follow(Some(term), proven, now);
        if member { lead.renewals.renew(node, asking, latest, quorum_at, now) } else { Answer::Silence }
    }

    /// A message for the leader, which this node is or was just now.
    pub(super) fn lead_with(self: &Arc<Self>, message: Message) {
        match message {
            Message::Propose { batch, .. } => self.take_batch(batch),
            Message::Control(Control::Register { node, name, run, versions, intact, linked, .. }) => {
                let linked = linked.into_iter().map(NodeId).collect();
                let node = NodeId(node);
                self.register_node(Command::Register { node, name, run, versions, intact }, node, run, &linked);
            }
            Message::Control(Control::Join { node, name, .. }) => {
                self.lead.lock().joining.insert(node, (name, boot_ms()));
                self.nudge.notify_one();
            }
            Message::Control(Control::Depart { request, asker, who, force, again, .. }) => {
                if self.members().find(&who).is_some() {
                    self.begin_departure(request, asker, &who, force);
                } else {
                    // It has gone on the first request, or has never been there.
                    let unknown = force && !again;
                    self.answer_departure(asker, request, unknown.then(|| format!("there is no member {who}")));
                }
            }
            _ => {}
        }
    }

    fn take_batch(&self, batch: Batch) {
        let BatchOrigin::Node { node, .. } = batch.origin else { return };
        if node != self.me()
            && let Err(why) = admission::batch(&batch)
        {
            return self.inbox.refuse(NodeId(node), &why);
        }
        self.write(batch);
    }

    /// Registers a node that has links to every live node that this leader hears, unless others have still to inherit from it.
    fn register_node(&self, command: Command, node: NodeId, run: u64, linked: &BTreeSet<NodeId>) {
        let now = boot_ms();
        let held = self.machine.read();
        let live: Vec<NodeId> = held.state.live_nodes().map(|live| live.id).collect();
        // It would be refused until its heirs have inherited; it asks again.
        let has_orphans = held.state.orphans().any(|(dead, ..)| dead == node);
        drop(held);
        if has_orphans || !self.members().nodes.contains_key(&node.0) {
            return;
        }
        let mut lead = self.lead.lock();
        let unlinked =
            |other: &&NodeId| **other != node && !linked.contains(other) && lead.renewals.is_heard(**other, now);
        if !lead.renewals.is_leading() || live.iter().any(|other| unlinked(&other)) {
            return;
        }
        let proposed = lead.registering.get(&node.0);
        let recent = |at: u64| u128::from(now.saturating_sub(at)) < AGAIN.as_millis();
        if proposed.is_some_and(|(last, at)| *last == run && recent(*at)) {
            return;
        }
        lead.registering.insert(node.0, (run, now));
        drop(lead);
        self.propose_as_leader(&[command]);
    }

    fn propose_as_leader(&self, commands: &[Command]) {
        self.write(leaders(commands));
    }

    /// The leader's part of a turn.
    pub(super) fn lead_turn(self: &Arc<Self>, now: u64) {
        let term = self.leading_term();
        let Some(leading) = term else {
            self.lead.lock().follow(None, false, now);
            return;
        };
        let members = self.members();
        let voters: BTreeSet<NodeId> = members.voters.iter().copied().map(NodeId).collect();
        let held = self.machine.read();
        let live: Vec<(NodeId, Incarnation)> =
            held.state.live_nodes().map(|live| (live.id, live.incarnation)).collect();
        let chores = chores(&held, &members);
        let proven = is_own_term(&held, leading, self.me());
        drop(held);
        let mut commands = Vec::new();
        {
            let mut lead = self.lead.lock();
            lead.look_whether_it_stood_still(now);
            lead.follow(term, proven, now);
            if !lead.renewals.is_leading() {
                return;
            }
            lead.renewals.observe(&live, now);
            for verdict in lead.renewals.verdicts(&voters, self.options.node, now) {
                let (node, incarnation, complained_of) = (verdict.node, verdict.incarnation, verdict.complained_of);
                tracing::warn!(%node, incarnation, complained_of, "a node is expired");
                commands.push(Command::ExpireNode { node, incarnation });
            }
            let ended = std::mem::take(&mut *self.ended.lock());
            for (node, incarnation) in live.iter().filter(|(node, incarnation)| ended.get(node) == Some(incarnation)) {
                tracing::info!(%node, incarnation, "a node has stopped");
                commands.push(Command::ExpireNode { node: *node, incarnation: *incarnation });
            }
        }
        if !commands.is_empty() {
            self.propose_as_leader(&commands);
        }
        self.keep_house(&chores, now);
        self.change_members(&members, &live, now);
    }

    /// Proposes what the state is waiting for, a slice at a time: the next one when the last is applied, whatever else is under way.
    fn keep_house(&self, chores: &[Command], now: u64) {
        if chores.is_empty() || !self.lead.lock().may_keep(now) {
            return;
        }
        if let Some(answer) = self.put_into_log(leaders(chores)) {
            self.lead.lock().kept = Some((now, answer));
        }
    }

    /// Takes the next step of who comes and who goes.
    fn change_members(self: &Arc<Self>, members: &Members, live: &[(NodeId, Incarnation)], now: u64) {
        let caught_up = self.caught_up();
        let step = {
            let mut lead = self.lead.lock();
            lead.joining.retain(|_, (_, at)| now.saturating_sub(*at) < WISH_MS);
            let joining: BTreeMap<u128, String> =
                lead.joining.iter().map(|(id, (name, _))| (*id, name.clone())).collect();
            let alive =
                |id: u128| live.iter().any(|(node, _)| node.0 == id) || joining.contains_key(&id) || self.is_linked(id);
            let leaving = lead.departing.as_ref().map(|(departing, _)| departing.id);
            // Its incarnation ends first, while this leader can still say so.
            let leaving = leaving.filter(|id| !live.iter().any(|(node, _)| node.0 == *id));
            next_step(members, &joining, leaving, |id| caught_up.contains(&id), alive)
        };
        self.finish_departure(members, now);
        if let Some(step) = step
            && !self.changing.swap(true, Ordering::AcqRel)
        {
            self.runtime.spawn(self.clone().take_step(step));
        }
    }

    fn is_linked(&self, id: u128) -> bool {
        id == self.me() || self.rpc.linked().contains(&NodeId(id))
    }

    /// A voter with a link that has all of the log, if this node leads.
    pub(super) fn successor(&self) -> Option<NodeId> {
        let (linked, voters) = (self.rpc.linked(), self.members().voters);
        let metrics = self.metrics.borrow();
        let matched = metrics.replication.iter().flatten();
        let has_all = |at: &Option<_>| at.map(|at: openraft::LogId<u128>| at.index) >= metrics.last_log_index;
        let mut able = matched.filter(|(id, at)| **id != self.me() && voters.contains(id) && has_all(at));
        able.find(|(id, _)| linked.contains(&NodeId(**id))).map(|(id, _)| NodeId(*id))
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
                self.tell_refused(id, &reason);
                self.refuse_departure(id, &reason);
                self.rpc.control(NodeId(id), Control::JoinRefused { reason });
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
            Err(_) => tracing::warn!("a change of the membership takes too long"),
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
        while Instant::now() < deadline {
            let asker = self.me();
            // A leader that has let itself go leads no more, and answers nobody.
            if !force && self.has_departed() {
                return Ok(());
            }
            let message =
                |request| Message::Control(Control::Depart { hops: 0, request, asker, who: who.clone(), force, again });
            let patience = (deadline - Instant::now()).min(Duration::from_millis(WISH_MS / 2));
            let answer = match self.whom_to_ask(&mut turn) {
                Some(leader) if leader == asker => {
                    let lead = |request| {
                        self.lead_with(message(request));
                        true
                    };
                    self.rpc.ask_by(asker, patience, lead).await
                }
                Some(leader) => self.rpc.ask(leader, Lane::Control, patience, message).await,
                None => Err(crate::network::Unanswered::NoLink),
            };
            match answer {
                Ok(RpcAnswer::Depart(None)) => return Ok(()),
                Ok(RpcAnswer::Depart(Some(reason))) => return Err(LeaveError::Refused(reason)),
                Ok(_) => {}
                Err(unanswered) => {
                    again |= unanswered == crate::network::Unanswered::Late;
                    why = unanswered.to_string();
                }
            }
            tokio::time::sleep(AGAIN.min(deadline.saturating_duration_since(Instant::now()))).await;
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

    fn begin_departure(self: &Arc<Self>, request: u64, asker: u128, who: &str, force: bool) {
        let now = boot_ms();
        let Some(id) = self.members().find(who) else { return };
        let incarnation = {
            let held = self.machine.read();
            held.state.live_nodes().find(|live| live.id.0 == id).map(|live| live.incarnation)
        };
        let mut lead = self.lead.lock();
        if force && (incarnation.is_some() || lead.renewals.is_heard(NodeId(id), now)) {
            drop(lead);
            return self.answer_departure(asker, request, Some(format!("node {who} is alive: let it leave by itself")));
        }
        let busy =
            lead.departing.as_ref().is_some_and(|(other, at)| other.id != id && now.saturating_sub(*at) < WISH_MS);
        if busy {
            drop(lead);
            return self.answer_departure(asker, request, Some("another member is just leaving".to_owned()));
        }
        // Else who has just come would be taken in again as soon as it is gone.
        lead.joining.remove(&id);
        lead.departing = Some((Departing { id, request, asker }, now));
        drop(lead);
        if let Some(incarnation) = incarnation {
            self.propose_as_leader(&[Command::ExpireNode { node: NodeId(id), incarnation }]);
        }
        self.nudge.notify_one();
    }

    /// Answers when the member is none any more.
    fn finish_departure(&self, members: &Members, now: u64) {
        let mut lead = self.lead.lock();
        let Some((departing, at)) = lead.departing.clone() else { return };
        let gone = !members.nodes.contains_key(&departing.id);
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

    fn refuse_departure(&self, id: u128, reason: &str) {
        let departing = {
            let mut lead = self.lead.lock();
            lead.departing.take_if(|(departing, _)| departing.id == id)
        };
        if let Some((departing, _)) = departing {
            self.answer_departure(departing.asker, departing.request, Some(reason.to_owned()));
        }
    }

    fn answer_departure(&self, asker: u128, request: u64, refused: Option<String>) {
        if asker == self.me() {
            self.rpc.answered(asker, request, RpcAnswer::Depart(refused));
        } else {
            self.rpc.control(NodeId(asker), Control::DepartAnswer { request, refused });
        }
    }
}

/// Whether an entry of this leader's own term is applied here.
fn is_own_term(held: &Held, term: u64, me: u128) -> bool {
    held.last().is_some_and(|id| id.leader_id.term == term && id.leader_id.node_id == me)
}

/// A batch of the leader.
fn leaders(commands: &[Command]) -> Batch {
    let count = u32::try_from(commands.len()).unwrap_or(u32::MAX);
    Batch { at: 0, origin: BatchOrigin::Leader, count, commands: encode_commands(commands) }
}

/// What the state is waiting for the leader to say.
fn chores(held: &Held, members: &Members) -> Vec<Command> {
    let (state, now) = (&held.state, held.control_now());
    let mut commands = Vec::new();
    if state.next_due().is_some_and(|due| due <= now) {
        commands.push(Command::Tick);
    }
    commands.extend(state.to_pass_on().map(|(node, incarnation)| Command::PassOn { node, incarnation }));
    let least = state.nodes().filter(|node| node.live).map(|node| node.versions.1).min();
    if let Some(n) = least.filter(|n| *n > state.cluster_version()) {
        commands.push(Command::Version { n });
    }
    // Who is no member comes back under another id, if at all. While its heirs inherit, it is still a node.
    let has_orphans = |id: NodeId| state.orphans().any(|(dead, ..)| dead == id);
    let gone = state.nodes().filter(|node| !node.live && !members.nodes.contains_key(&node.id.0));
    let gone = gone.filter(|node| !has_orphans(node.id));
    commands.extend(gone.map(|node| Command::Forget { node: node.id }));
    commands
}
