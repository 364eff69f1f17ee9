//! The duties of the leader.
//!
//! It answers renewals and expires who does not renew, registers nodes, and proposes what is due; who comes and who goes is in `members`. All that it remembers for it is of its
//! term: another leader begins anew, from the state and from what nodes repeat.
//!
//! Without a majority nothing that it proposes is decided, and the log does not grow for that: of its own it has one proposal under way, of each node that registers one, and a batch that is sent again
//! while it is under way is not proposed again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use openraft::raft::ClientWriteResponse;
use tokio::sync::oneshot;

use super::{AGAIN, Inner, Recent};
use crate::admission;
use crate::clock::boot_ms;
use crate::command::{Command, Incarnation, NodeId};
use crate::entry::{Batch, BatchOrigin, Member, TypeConfig};
use crate::liveness::{Answer, Asking, Renewals, Timing};
use crate::membership::{Members, Sounding};
use crate::state_machine::{Held, encode_commands};
use crate::wire::{Control, Message};

/// A leader without a turn for so long has stood still, frozen or without a processor. In milliseconds.
const STOOD_STILL_MS: u64 = 1000;
/// Milliseconds for which a wish that is not repeated counts.
pub(super) const WISH_MS: u64 = 3000;
/// Batches of nodes whose answers are kept, by which one is known that is under way.
const BATCHES_MAX: usize = 4096;

/// Open as long as what was proposed may still be applied, or this leader knows no better.
pub(super) type WriteAnswer =
    oneshot::Receiver<Result<ClientWriteResponse<TypeConfig>, openraft::error::ClientWriteError<u128, Member>>>;

/// A member that is to go.
#[derive(Debug, Clone)]
pub(super) struct Departing {
    pub id: u128,
    pub request: u64,
    pub asker: u128,
}

/// Node, incarnation and number of a batch.
type BatchId = (u128, Incarnation, u64);

/// Of a node that registers.
struct Registering {
    run: u64,
    /// When it was last proposed, and what became of that.
    at: u64,
    answer: Option<WriteAnswer>,
}

/// What a leader remembers in its term.
pub(super) struct Lead {
    term: Option<u64>,
    pub(super) renewals: Renewals,
    /// Who wants to be a member, under which name.
    pub(super) joining: Recent<String>,
    registering: HashMap<u128, Registering>,
    pub(super) departing: Option<(Departing, u64)>,
    /// Whether those are there who are to be the voters.
    pub(super) sounding: Sounding,
    /// When it last had a turn.
    turned_at: u64,
    /// When it last said that a node is refused.
    pub(super) refused_at: u64,
    /// What it has proposed itself, but for registrations.
    own: Option<WriteAnswer>,
    /// Batches of nodes under way.
    batches: VecDeque<(BatchId, WriteAnswer)>,
}

impl Lead {
    pub fn new(timing: Timing) -> Self {
        Self {
            term: None,
            renewals: Renewals::new(timing),
            joining: HashMap::new(),
            registering: HashMap::new(),
            departing: None,
            sounding: Sounding::default(),
            turned_at: 0,
            refused_at: 0,
            own: None,
            batches: VecDeque::new(),
        }
    }

    /// Whether nothing is under way of what this leader has proposed itself.
    pub fn is_idle(&mut self) -> bool {
        !self.own.as_mut().is_some_and(is_open)
    }

    /// Whether anything that it has put into the log may still be applied, as far as it knows.
    pub fn has_open(&mut self) -> bool {
        let registers = self.registering.values_mut().any(|last| last.answer.as_mut().is_some_and(is_open));
        registers || !self.is_idle() || self.batches.iter_mut().any(|(_, answer)| is_open(answer))
    }

    fn await_batch(&mut self, batch: BatchId, answer: WriteAnswer) {
        self.batches.push_back((batch, answer));
        while self.batches.len() > BATCHES_MAX || self.batches.front_mut().is_some_and(|(_, first)| !is_open(first)) {
            self.batches.pop_front();
        }
    }

    fn is_under_way(&mut self, batch: BatchId) -> bool {
        self.batches.iter_mut().any(|(other, answer)| *other == batch && is_open(answer))
    }

    /// A leader that has stood still has heard nobody meanwhile, and that says nothing of them: everybody has a full lease again.
    fn look_whether_it_stood_still(&mut self, now: u64) {
        if now.saturating_sub(self.turned_at) > STOOD_STILL_MS {
            self.renewals.end();
        }
        self.turned_at = now;
    }

    /// In line with openraft: in `term` this node leads, and `proven` says whether it has applied an entry of that term.
    fn follow(&mut self, term: Option<u64>, proven: bool, now: u64) {
        if self.term != term {
            self.term = term;
            self.renewals.end();
            self.joining.clear();
            self.registering.clear();
            self.departing = None;
            self.sounding.forget();
            self.own = None;
            self.batches.clear();
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
        let BatchOrigin::Node { node, incarnation, number } = batch.origin else { return };
        if node != self.me()
            && let Err(why) = admission::batch(&batch)
        {
            return self.inbox.refuse(NodeId(node), &why);
        }
        let id = (node, incarnation, number);
        if self.lead.lock().is_under_way(id) {
            return;
        }
        if let Some(answer) = self.write(batch) {
            self.lead.lock().await_batch(id, answer);
        }
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
        let recent = |at: u64| u128::from(now.saturating_sub(at)) < AGAIN.as_millis();
        let last = lead.registering.get_mut(&node.0).filter(|last| last.run == run);
        if last.is_some_and(|last| recent(last.at) || last.answer.as_mut().is_some_and(is_open)) {
            return;
        }
        lead.registering.insert(node.0, Registering { run, at: now, answer: None });
        drop(lead);
        let answer = self.write_as_leader(&[command]);
        if let Some(last) = self.lead.lock().registering.get_mut(&node.0).filter(|last| last.run == run) {
            last.answer = answer;
        }
    }

    fn write_as_leader(&self, commands: &[Command]) -> Option<WriteAnswer> {
        let count = u32::try_from(commands.len()).unwrap_or(u32::MAX);
        self.write(Batch { at: 0, origin: BatchOrigin::Leader, count, commands: encode_commands(commands) })
    }

    /// To be called when nothing is under way.
    pub(super) fn propose_as_leader(&self, commands: &[Command]) {
        let answer = self.write_as_leader(commands);
        self.lead.lock().own = answer;
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
        // Asked before the state is looked at, which then has what was proposed.
        let idle = self.lead.lock().is_idle();
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
            if idle {
                commands = self.due_commands(&mut lead, &voters, &live, now);
                commands.extend(chores);
            }
        }
        if !commands.is_empty() {
            self.propose_as_leader(&commands);
        }
        self.change_members(leading, &members, &live, now);
    }

    /// Who is to be expired.
    fn due_commands(
        &self,
        lead: &mut Lead,
        voters: &BTreeSet<NodeId>,
        live: &[(NodeId, Incarnation)],
        now: u64,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        for verdict in lead.renewals.verdicts(voters, self.options.node, now) {
            let (node, incarnation, complained_of) = (verdict.node, verdict.incarnation, verdict.complained_of);
            tracing::warn!(%node, incarnation, complained_of, "a node is expired");
            commands.push(Command::ExpireNode { node, incarnation });
        }
        let ended = std::mem::take(&mut *self.ended.lock());
        for (node, incarnation) in live.iter().filter(|(node, incarnation)| ended.get(node) == Some(incarnation)) {
            tracing::info!(%node, incarnation, "a node has stopped");
            commands.push(Command::ExpireNode { node: *node, incarnation: *incarnation });
        }
        commands
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
}

/// Whether an entry of this leader's own term is applied here.
fn is_own_term(held: &Held, term: u64, me: u128) -> bool {
    held.last().is_some_and(|id| id.leader_id.term == term && id.leader_id.node_id == me)
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
