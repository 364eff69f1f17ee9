//! The copies that this node has of the sessions of others, and what becomes of them when one of these dies.
//!
//! The shard that reads the data connection of a home has its copies: it writes down what comes, each frame in one submission, and the home hears of it when that
//! is kept. When a home has died whose heir this node is, the shards hand the copies to those of the clients, and these enter what has passed to this node
//! by the control state, all at one moment for each shard ([`Inheriting`]). Until all shards have done so the node publishes and takes nothing that the sessions might want: its clients are held at
//! such a message, connections from other nodes are not read on. So there is no message that a session on its way could miss, and no queue for it.
//!
//! Owner: the shard, in [`Heir`]. Invariants: a copy becomes a session only when all that was written of it is kept; a client that has the lease of a session that is on
//! its way waits for it, and so does everything else about that session.
//!
//! Tests to read first: `cluster/copies/inheriting/tests.rs`; then `cluster-tests/tests/cluster/inheriting.rs` and `windows.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use holdfast_raft::{Command, Effect, Incarnation, NodeId, Outcome, Refusal, heir_of};
use holdfast_storage::OwnerId;
use tracing::{info, warn};

use crate::cluster::copies::Home;
use crate::cluster::copies::inheriting::{Found, Heritage, Inheriting, Life, Passed, Way, Without};
use crate::cluster::copies::plain::PlainMessages;
use crate::cluster::copies::receiving::{Copied, Copies, Taken, Write};
use crate::cluster::route_commands;
use crate::cluster::session_move::Source;
use crate::cluster::share_groups::Rank;
use crate::journal;
use crate::mqtt::MessageId;
use crate::session::{Seen, Session};
use crate::subscriptions::{NodeSlot, ShardId};

use super::keeping::Due;
use super::mailbox::{Event, Ticket, Turned};
use super::restoring::StoredSession;
use super::subscribing::NewRoutes;
use super::{Pending, Shard, Turn, turn};

/// Sessions that are entered in one turn.
const ENTERED_PER_TURN: usize = 256;

/// For so long after the end of orphans may come what a node owed to the dead one, in milliseconds. One that is longer behind the others is given up.
const LATE_MS: u64 = 60_000;

/// From whom a session was inherited, and what it had seen there.
#[derive(Debug)]
pub(super) struct Origin {
    pub life: Life,
    pub seen: Arc<Seen>,
}

/// See the module.
pub(super) struct Heir {
    pub(super) copies: Copies,
    /// Copies that seem to be of no use, by their homes.
    doubtful: BTreeMap<NodeId, BTreeSet<OwnerId>>,
    pub(super) inheriting: Inheriting<Arc<Seen>>,
    /// Since when it is waited for the others to know of a death.
    waits_since: Vec<(Life, u64)>,
    /// From whom this node inherits, or has; and since when nobody does any more.
    begun: Vec<(Life, Option<u64>)>,
    /// The nodes from which this one inherits, while not all shards have; and their slots, one bit each.
    open: Vec<(Life, NodeSlot)>,
    open_slots: u64,
    /// The owners of what the homes had seen, of the orphans there are.
    streams: Vec<(Life, OwnerId)>,
    /// What is about sessions that are not entered yet.
    about_sessions: VecDeque<Event>,
    /// Messages of nobody who could be held.
    unheld: VecDeque<Event>,
    /// Messages for the sessions of a dead node that are not entered yet.
    aside: VecDeque<(Life, Event)>,
    /// The node has registered and this shard has heard how the control state stood then: it knows from whom the node inherits, and what.
    pub(super) looked: bool,
    /// Who waits until nothing is searched.
    pub(super) looks: Vec<Arc<Turned>>,
    /// What all shards have seen of each of those from which this node inherits, or has.
    common: BTreeMap<Life, Arc<Seen>>,
    /// Messages that came as to everybody when the inherited sessions were there, from nodes that may not have known of the death.
    plain: PlainMessages,
}

impl Heir {
    pub fn new(shards: usize) -> Heir {
        Heir {
            copies: Copies::default(),
            doubtful: BTreeMap::new(),
            inheriting: Inheriting::new(shards),
            waits_since: Vec::new(),
            begun: Vec::new(),
            open: Vec::new(),
            open_slots: 0,
            streams: Vec::new(),
            about_sessions: VecDeque::new(),
            unheld: VecDeque::new(),
            aside: VecDeque::new(),
            looked: false,
            common: BTreeMap::new(),
            looks: Vec::new(),
            plain: PlainMessages::default(),
        }
    }

    fn end_look(&mut self) {
        if !self.inheriting.searches() {
            self.looks.drain(..).for_each(|look| look.arrive());
        }
    }

    /// Whether sessions of a dead node are on their way into this one.
    pub fn is_inheriting(&self) -> bool {
        self.open_slots != 0
    }

    /// Whether sessions of a dead node are on their way into this one, of whose death that shard of another node knows.
    pub fn is_inheriting_for(&self, from: Source) -> bool {
        self.open.iter().any(|(life, _)| !self.inheriting.is_unaware(*life, from))
    }

    /// The dead nodes from which sessions are on their way, one bit each.
    pub fn open_slots(&self) -> u64 {
        self.open_slots
    }

    /// Whether this shard has all that it inherits from that life.
    pub fn has_entered(&self, life: Life) -> bool {
        self.begun.iter().any(|(begun, _)| *begun == life) && self.inheriting.has_entered(life)
    }

    /// Whether this node has inherited from anybody a short time ago.
    pub fn is_heir(&self) -> bool {
        !self.begun.is_empty()
    }

    /// The life of the node of that tag from which this one has inherited.
    pub fn life_of(&self, tag: u64, incarnation: Incarnation) -> Option<Life> {
        self.begun.iter().map(|(life, _)| *life).find(|life| (life.0.tag(), life.1) == (tag, incarnation))
    }

    /// The event comes again when all shards have their sessions.
    pub fn wait_for_all(&mut self, event: Event) {
        self.unheld.push_back(event);
    }

    /// Whether Wills wait for sessions that are on their way here.
    pub fn holds_wills(&self) -> bool {
        self.unheld.iter().any(|event| matches!(event, Event::Effect(Effect::WillDue { .. })))
    }

    /// The event comes again when this shard has its sessions.
    pub fn wait_for_session(&mut self, event: Event) {
        self.about_sessions.push_back(event);
    }

    /// The event comes again when this shard has the sessions of that life.
    pub fn set_aside(&mut self, life: Life, event: Event) {
        self.aside.push_back((life, event));
    }

    /// The message goes to all sessions that want it, inherited ones too.
    pub fn note_plain(&mut self, id: MessageId) {
        self.plain.note(id);
    }

    /// Whether the sessions that were inherited from that life have had it so.
    pub fn was_plain(&self, life: Life, id: MessageId) -> bool {
        self.plain.had(life, id)
    }

    fn look_open(&mut self) {
        self.open_slots = self.open.iter().fold(0, |open, (_, slot)| open | 1 << slot);
    }
}

/// What a session had seen where it was, of which all sessions there had seen so much.
pub(super) fn seen_by(copied: &Copied, all: &Arc<Seen>) -> Arc<Seen> {
    let mut seen = all.clone();
    copied.ahead.iter().for_each(|id| Arc::make_mut(&mut seen).note(*id));
    seen
}

/// While the home lives.
impl Shard {
    pub(super) fn restore_copies(&mut self, copies: Copies) {
        self.heir.copies = copies;
    }

    /// A frame of copies has come. What was read with it is answered when that is kept.
    pub(super) fn copy_came(&mut self, home: Home, sequence: u64, entries: &[u8]) -> io::Result<()> {
        let malformed = |error: &dyn std::error::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        let entries = journal::read_copy(entries, self.now).map_err(|error| malformed(&error))?;
        self.note_done_with(home, &self.heir.copies, &entries);
        let shared = &self.shared;
        let writes = self.heir.copies.handle(home, sequence, entries, || shared.next_owner());
        let writes = writes.map_err(|error| {
            if let Some(left_out) = crate::metrics::admit_line("copies") {
                warn!(event = "copies", node = %home.node, %error, left_out, "no more copies are taken from a node: its connection is closed");
            }
            malformed(&error)
        })?;
        self.keeping.write_copies(writes);
        // Of a frame that has come before it may not be kept what was written then.
        self.keeping.wait_for_earlier();
        Ok(())
    }

    /// The sessions of a home have these heirs. A copy that has seemed to be elsewhere twice is dropped: one that was begun meanwhile has another owner.
    pub(super) fn drop_copies_elsewhere(&mut self, home: NodeId, base: &[NodeId]) {
        let own = self.shared.node;
        let elsewhere = self.heir.copies.elsewhere(home, |client| heir_of(client, base) == Some(own));
        let Some(before) = self.heir.doubtful.remove(&home) else {
            if !elsewhere.is_empty() {
                self.heir.doubtful.insert(home, elsewhere);
            }
            return;
        };
        let both = before.intersection(&elsewhere).copied().collect();
        let writes = self.heir.copies.discard(home, &both);
        self.write_of_copies(writes);
    }

    pub(super) fn forget_copies(&mut self, node: NodeId) {
        self.heir.doubtful.remove(&node);
        let writes = self.heir.copies.forget(node);
        self.write_of_copies(writes);
    }

    pub(super) fn write_of_copies(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.keeping.close_section();
            self.keeping.write_copies(writes);
            self.keeping.close_section();
        }
    }
}

/// When it has died.
impl Shard {
    /// This node is one of the heirs of a node that has died.
    pub(super) fn inherit(&mut self, slot: NodeSlot, life: Life) {
        if self.heir.begun.iter().any(|(begun, _)| *begun == life) {
            return;
        }
        self.heir.begun.push((life, None));
        self.heir.inheriting.begin(life);
        self.heir.open.push((life, slot));
        self.heir.look_open();
        if self.keeping.storage().is_some() {
            self.keeping.when_kept(Due::TakeCopies(life));
        } else {
            self.take_copies(life);
        }
    }

    /// Before the sessions are entered all others are to know of the death.
    pub(super) fn wait_for_news(&mut self, life: Life) {
        let nodes = self.peers.nodes().into_iter();
        // Who is live has been linked to, and said how many shards it has.
        let sources =
            nodes.flat_map(|node| (0..self.control.shards_of(node).unwrap_or(1)).map(move |shard| (node, shard)));
        let sources: Vec<Source> = sources.collect();
        self.heir.inheriting.wait_for_news(life, sources);
        self.heir.waits_since.push((life, self.now));
    }

    /// A shard of another node knows of a death: all shards are to know.
    pub(super) fn heard_of_death(&mut self, dead: (u64, Incarnation), from: Source) {
        for shard in (0..self.mail.len() as ShardId).filter(|shard| *shard != self.id).collect::<Vec<_>>() {
            self.mail(shard, Event::Aware { from, dead });
        }
        self.note_aware(dead, from);
    }

    pub(super) fn note_aware(&mut self, dead: (u64, Incarnation), from: Source) {
        if self.heir.life_of(dead.0, dead.1).is_some_and(|life| self.heir.inheriting.has_entered(life)) {
            // It hears late of what is over here.
            return;
        }
        self.heir.inheriting.heard(dead, from);
        self.go_on_inheriting();
    }

    /// A node is dead: it says nothing any more.
    pub(super) fn no_news_from(&mut self, node: NodeId) {
        self.heir.inheriting.source_gone(node);
        self.go_on_inheriting();
    }

    /// A node that does not say that it knows, and is not given up either, is not waited for without end. Called once in a second.
    fn stop_waiting_for_news(&mut self) {
        // By then one that hears nothing has no grant any more.
        let (now, patience_ms) = (self.now, self.shared.patience.moves.give_up_ms);
        let late = self.heir.waits_since.extract_if(.., |(_, since)| now >= *since + patience_ms);
        let late: Vec<Life> = late.map(|(life, _)| life).collect();
        for life in late {
            let unaware = self.heir.inheriting.stop_waiting_for_news(life);
            if let Some((node, _)) = unaware.first() {
                warn!(event = "inherited", dead = %life.0, %node, "a node has not said for long that it knows of a death: what it sends late may come out of its order");
            }
            self.go_on_inheriting();
        }
    }

    /// All that came of the copies is kept: they go to the shards of their clients.
    pub(super) fn take_copies(&mut self, life: Life) {
        let mut of_shards: Vec<Vec<Found<Arc<Seen>>>> = self.mail.iter().map(|_| Vec::new()).collect();
        let mut of_all = Vec::new();
        for Taken { streams_owner, seen, sessions } in self.heir.copies.take(life.0) {
            self.heir.streams.extend(streams_owner.map(|owner| (life, owner)));
            let mut all = Seen::default();
            seen.into_iter().for_each(|id| all.note(id));
            let seen = Arc::new(all);
            of_all.push(seen.clone());
            for copied in sessions {
                let shard = usize::from(self.shared.shard_of(&copied.client_id));
                let seen = seen_by(&copied, &seen);
                of_shards[shard].push(Found { copied, seen });
            }
        }
        for (shard, found) in (0..).zip(of_shards) {
            self.mail_or_keep(shard, Event::Copies { of: life.into(), found, seen: of_all.clone() });
        }
    }

    /// To a shard that may be this one.
    pub(super) fn mail_or_keep(&mut self, to: ShardId, event: Event) {
        if to == self.id {
            self.inbox.push_back(event);
        } else {
            self.mail(to, event);
        }
    }

    pub(super) fn told_of_copies(&mut self, way: Way, found: Vec<Found<Arc<Seen>>>, seen: &[Arc<Seen>]) {
        for (life, seen) in seen.iter().filter_map(|seen| way.life().zip(Some(seen))) {
            let known = self.heir.common.entry(life).and_modify(|common| Arc::make_mut(common).keep_common(seen));
            known.or_insert_with(|| seen.clone());
        }
        self.heir.inheriting.told(way, found);
        self.go_on_inheriting();
    }

    /// What the control state says is kept for later, if it is about a session that is on its way here. Returns what is for now.
    pub(super) fn heir_effect(&mut self, effect: Effect) -> Option<Effect> {
        match &effect {
            Effect::PassedOn { client, epoch, began, expiry_secs, from, to, sure } => {
                let without = if *sure { Without::Empty } else { Without::Lost };
                let passed = Passed { epoch: *epoch, began: *began, expiry_secs: *expiry_secs, without };
                if self.shared.is_own(*to) {
                    // Else the look will say it.
                    if self.heir.looked && !self.heir.inheriting.passed_on(*from, client, passed) {
                        // It was found; with all others of the entry it is searched.
                        self.shared.mailboxes[usize::from(self.id)].push(Event::GoOnInheriting);
                    }
                } else {
                    self.heir.inheriting.passed_away(client);
                }
            }
            Effect::PassedOnAll { node, incarnation } => {
                self.heir.inheriting.passed_on_all((*node, *incarnation));
                self.go_on_inheriting();
            }
            Effect::OrphansEnded { node, incarnation } => self.orphans_ended((*node, *incarnation)),
            Effect::WillDue { client, epoch, .. } if self.heir.is_inheriting() => {
                // A claim waits for it all the same.
                self.moves.will_is_due(client, *epoch);
                self.heir.wait_for_all(Event::Effect(effect));
            }
            Effect::SessionEnded { client, .. }
            | Effect::Claimed { client, .. }
            | Effect::Closed { client, .. }
            | Effect::Withdrawn { client, .. }
            | Effect::CutMade { client, .. }
                if self.heir.inheriting.awaits(client) =>
            {
                self.heir.wait_for_session(Event::Effect(effect));
            }
            _ => return Some(effect),
        }
        None
    }

    /// Whether the outcome is of a connection whose session is on its way here. One that is to ask again when that is over does so when all heirs have theirs.
    pub(super) fn awaits_inherited(&self, ticket: Ticket, outcome: &Outcome) -> bool {
        match self.pending.get(&ticket) {
            _ if *outcome == Outcome::Refused(Refusal::OrphansPending) => false,
            Some(Pending::Connect { client, .. }) => self.heir.inheriting.awaits(client),
            _ => false,
        }
    }

    /// Carries out a slice of what has been inherited, if all of it is known.
    pub(super) fn go_on_inheriting(&mut self) {
        self.begin_search();
        let next = self.heir.inheriting.next(ENTERED_PER_TURN);
        let more = next.len() == ENTERED_PER_TURN;
        if !next.is_empty() {
            self.enter_heritage(next);
        }
        if more {
            // Everybody else has a turn meanwhile.
            return self.shared.mailboxes[usize::from(self.id)].push(Event::GoOnInheriting);
        }
        for way in self.heir.inheriting.entered() {
            match way {
                Way::Inherited(life) => self.heritage_entered(life),
                Way::Searched(_) => self.let_go_about_sessions(VecDeque::new()),
            }
        }
        self.heir.end_look();
    }

    fn enter_heritage(&mut self, heritage: Vec<(Way, Heritage<Arc<Seen>>)>) {
        self.keeping.close_section();
        heritage.iter().for_each(|(_, heritage)| self.forget_older(heritage));
        let here = self.seen();
        let shared = self.shared.clone();
        let order = shared.index.route_order();
        let mut routes = NewRoutes::default();
        for (way, heritage) in heritage {
            let life = way.life();
            match heritage {
                Heritage::Session { client, passed, found } => {
                    self.enter_inherited(life, &client, passed, found, &here, &mut routes);
                }
                Heritage::Empty { client, passed } => self.enter_empty(life, &client, passed),
                Heritage::Lost { client, .. } if self.by_client.contains_key(&client) => {
                    self.found_entered(life, &client);
                }
                Heritage::Lost { client, passed } => {
                    self.metrics().sessions_lost.add(1);
                    if let Some(left_out) = crate::metrics::admit_line("lost session") {
                        warn!(
                            event = "inherited",
                            client_id = &*client,
                            left_out,
                            "there is no copy of a session of a dead node: it is missing until that node is back"
                        );
                    }
                    self.propose(Command::Lost { client, epoch: passed.epoch });
                }
                Heritage::Drop { owner } => self.keeping.write_copies([Write::Drop { owner }]),
            }
        }
        let NewRoutes { filters, shares, .. } = routes;
        for command in route_commands::adding(filters, shares) {
            self.propose(command);
        }
        drop(order);
        self.keeping.close_section();
    }

    fn enter_inherited(
        &mut self,
        life: Option<Life>,
        client: &Arc<str>,
        passed: Passed,
        Found { copied, seen }: Found<Arc<Seen>>,
        here: &Seen,
        routes: &mut NewRoutes,
    ) {
        let Copied { owner, client_id, began, items, .. } = copied;
        if self.by_client.contains_key(client) {
            self.keeping.write_copies([Write::Drop { owner }]);
            return self.found_entered(life, client);
        }
        self.keeping.put(owner, journal::HEADER, journal::encode_header(client, began), None);
        let node = self.shared.node_tag;
        let rank_of = |life: Life| Rank { home: life.0.tag(), node, owner: owner.0, item: 0, began };
        let rank = life.map(rank_of);
        self.shared.shares_had.note_taken_up(items.iter(), rank);
        let items = items.into_iter().filter_map(|(item, value)| Some((item, journal::decode_item(item, &value)?)));
        let items = items.collect();
        let Passed { epoch, expiry_secs, .. } = passed;
        let stored = StoredSession { owner, client_id, epoch: began, expiry_secs, items };
        let session = self.restore_session(stored, routes);
        let missed = self.missed(&seen, here);
        let mut turn = turn!(self);
        let slot = &mut self.sessions[session as usize];
        slot.session.set_epoch(epoch);
        slot.session.has_seen(&mut turn, (*seen).clone(), here);
        slot.session.add_missed(&mut turn, &missed, here);
        slot.inherited = life.map(|life| Box::new(Origin { life, seen }));
        if let Some(rank) = rank {
            self.ask_for_doubtful(session, owner, rank);
        }
        self.metrics().sessions_inherited.add(1);
    }

    /// A session that the client had here before it was elsewhere goes.
    fn forget_older(&mut self, heritage: &Heritage<Arc<Seen>>) {
        let (client, began) = match heritage {
            Heritage::Session { client, found, .. } => (client, found.copied.began),
            Heritage::Empty { client, passed } => (client, passed.began),
            Heritage::Lost { .. } | Heritage::Drop { .. } => return,
        };
        if let Some(session) = self.by_client.get(client).copied() {
            let slot = &self.sessions[session as usize];
            if slot.connection.is_none() && slot.session.epoch() < began {
                self.forget_session(session, Vec::new());
            }
        }
    }

    /// All sessions of its home had copies, so this one had nothing.
    fn enter_empty(&mut self, life: Option<Life>, client: &Arc<str>, Passed { epoch, began, expiry_secs, .. }: Passed) {
        if self.by_client.contains_key(client) {
            return self.found_entered(life, client);
        }
        let owner = self.keeping.storage().is_some().then(|| self.shared.next_owner());
        if let Some(owner) = owner {
            self.keeping.begin_owner(owner, client, began);
        }
        let mut session = Session::new(client.clone(), owner);
        session.set_epoch(epoch);
        session.set_expiry_secs(expiry_secs);
        self.enter_session(session);
        self.metrics().sessions_inherited.add(1);
    }

    /// An earlier run of this node has entered the session. Which of the shards of its home it came from is not known any more, so it has seen what all of them have: rather comes a message twice
    /// than never.
    fn found_entered(&mut self, life: Option<Life>, client: &Arc<str>) {
        if let Some((session, life)) = self.by_client.get(client).zip(life) {
            let seen = self.heir.common.get(&life).cloned().unwrap_or_default();
            let origin = Origin { life, seen };
            self.sessions[*session as usize].inherited.get_or_insert_with(|| Box::new(origin));
        }
    }

    /// All sessions of this shard are there: what has waited for them goes on.
    fn heritage_entered(&mut self, life: Life) {
        let (due, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.heir.aside).into_iter().partition(|(awaited, _)| *awaited == life);
        self.heir.aside = others;
        self.let_go_about_sessions(due.into_iter().map(|(_, event)| event).collect());
        if self.keeping.storage().is_some() {
            self.keeping.when_kept(Due::Inherited(life));
        } else {
            self.has_inherited(life);
        }
    }

    /// What waited for sessions goes on behind what was set `aside`. What waits for others waits anew.
    fn let_go_about_sessions(&mut self, aside: VecDeque<Event>) {
        let about = std::mem::take(&mut self.heir.about_sessions);
        // In front of all that came later.
        let waited = aside.into_iter().chain(about).collect::<Vec<_>>();
        waited.into_iter().rev().for_each(|event| self.inbox.push_front(event));
    }

    /// And all that was written of them is kept.
    pub(super) fn has_inherited(&mut self, life: Life) {
        self.control.inherited(self.id, life);
    }

    /// All shards have their sessions.
    pub(super) fn all_have_inherited(&mut self, life: Life) {
        self.heir.open.retain(|(open, _)| *open != life);
        self.heir.look_open();
        self.heir.plain.entered(life);
        self.route_held();
        if self.id == 0 {
            info!(event = "inherited", node = %life.0, incarnation = life.1, "what has passed to this node of the sessions of a dead one is entered");
        }
        if self.heir.open.is_empty() {
            // In front of all that came later.
            let unheld = std::mem::take(&mut self.heir.unheld);
            unheld.into_iter().rev().for_each(|event| self.inbox.push_front(event));
            self.read_on();
        }
        self.resume_links();
    }

    /// Nobody inherits from that life any more.
    fn orphans_ended(&mut self, life: Life) {
        self.heir.inheriting.ended(life);
        let now = self.now;
        self.heir.begun.iter_mut().filter(|(begun, _)| *begun == life).for_each(|(_, ended)| *ended = Some(now));
        self.go_on_inheriting();
        self.forget_orphans(life);
        let (ended, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.heir.streams).into_iter().partition(|(home, _)| *home == life);
        self.heir.streams = others;
        self.keeping.close_section();
        self.keeping.write_copies(ended.into_iter().map(|(_, owner)| Write::Drop { owner }));
        self.keeping.close_section();
        self.connect_behind_heirs();
        self.resume_links();
    }

    /// Who was slow to hear of a death has sent what it owed the dead node, or is given up. Called once in a second.
    pub(super) fn look_after_heritage(&mut self) {
        self.stop_waiting_for_news();
        let now = self.now;
        let is_over = |(life, ended): &mut (Life, Option<u64>)| {
            ended.is_some_and(|ended| now >= ended + LATE_MS).then_some(*life)
        };
        let over: Vec<Life> = self.heir.begun.iter_mut().filter_map(is_over).collect();
        if over.is_empty() {
            return;
        }
        self.heir.begun.retain(|(life, _)| !over.contains(life));
        self.heir.common.retain(|life, _| !over.contains(life));
        over.iter().for_each(|life| self.heir.plain.over(*life));
        for (_, slot) in &mut self.sessions {
            slot.inherited.take_if(|origin| over.contains(&origin.life));
        }
    }

    /// The others have given this node up: what it waited to say and to do is theirs. What has passed to it is entered all the same when all of it is known.
    pub(super) fn heir_expelled(&mut self) {
        self.heir.looked = false;
        self.heir.about_sessions.clear();
        self.heir.unheld.retain(|event| matches!(event, Event::Accept(_)));
    }
}
