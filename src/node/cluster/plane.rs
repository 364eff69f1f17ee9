//! The control state of a node in a cluster, as its shards see it: commands go to the Raft group, and what is applied comes back by their mailboxes.
//!
//! Order: what one entry of the log brings about is put into the mailboxes in the order of its effects, and the outcomes of this node's own commands behind it. Routes are in
//! the index that all shards read before any shard hears of the entry.
//!
//! Owner: the node, one for its life. What it knows of the other nodes is what the applied state says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use holdfast_raft::{
    Applied, AppliedEntry, Audience, Command, ControlState, Effect, Group, Incarnation, NodeId, Outcome, Refusal,
    ShareMembers, ShareRoute,
};

use crate::cluster::applied_waits::AppliedWaits;
use crate::cluster::copies::{self, inheriting::Life};
use crate::cluster::route_commands;
use crate::cluster::session_move::SessionFrame;
use crate::link::{Lane, Links};
use crate::mqtt::WillName;
use crate::node::bans::take_ban;
use crate::shard::mailbox::{Event, Hears, Ticket, Turned};
use crate::shard::{ControlPlane, Owed, Shared};
use crate::subscriptions::{NodeSlot, ShardId};
use crate::topic::TopicFilter;

use super::heirs::Watch;
use super::heritage::Heritage;

/// What a frame between nodes is, beside those of the links themselves.
pub(super) mod kind {
    /// Of the Raft group.
    pub const GROUP: u8 = 1;
    /// About a session that moves.
    pub const SESSION: u8 = 2;
    /// About retained messages that one of two nodes does not have.
    pub const RETAINED: u8 = 3;
    /// A question of one node's admin port to another node, and its answer.
    pub const ADMIN: u8 = 4;
    /// What a node says of itself as an heir.
    pub const STANDING: u8 = 5;
}

/// Nodes of a cluster: they fit in one word of the index of routes.
const NODES_MAX: usize = 64;

/// Bits of a ticket that are the shard's own; those above say which shard.
const TICKET_BITS: u32 = 48;
/// Stands for the node itself in a ticket.
const OF_THE_NODE: u64 = 0xFFFF;

/// Whether the node may serve, for those who wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::node) struct Expulsions(pub u64);

/// See the module.
pub(in crate::node) struct ClusterPlane {
    pub(super) shared: Arc<Shared>,
    group: OnceLock<Group>,
    links: OnceLock<Links>,
    routed: Mutex<AppliedWaits<(ShardId, Ticket)>>,
    slots: Mutex<HashMap<NodeId, NodeSlot>>,
    shards_of: RwLock<HashMap<NodeId, u16>>,
    /// Filters without subscriber, and from when on nobody should send for them.
    lingering: Mutex<VecDeque<(u64, Arc<str>)>>,
    linger_ms: u64,
    /// What each node owes each shard.
    owed: Mutex<HashMap<(NodeId, ShardId), Owed>>,
    /// The live incarnations.
    live: Mutex<BTreeMap<NodeId, Incarnation>>,
    /// The node's own proposals that somebody waits for.
    own: Mutex<BTreeMap<u64, tokio::sync::oneshot::Sender<Outcome>>>,
    next_own: Mutex<u64>,
    /// Counts how often the others have given this node up.
    expelled: watch::Sender<Expulsions>,
    /// Whether the node may serve, as the group said it last; and how often that has ended.
    serves: AtomicBool,
    suspended: AtomicU64,
    /// The node is leaving its cluster, and does not register; and it has left.
    leaving: watch::Sender<bool>,
    left: watch::Sender<bool>,
    /// The others have taken it out.
    removed: AtomicBool,
    /// Something has changed of what the nodes route with.
    reached: watch::Sender<()>,
    /// The copies of sessions.
    watch: Watch,
    /// What this node has of the sessions of others, and what it inherits.
    pub(super) heritage: Heritage,
}

impl ClusterPlane {
    pub fn new(shared: Arc<Shared>, linger_ms: u64) -> ClusterPlane {
        ClusterPlane {
            shared,
            group: OnceLock::new(),
            links: OnceLock::new(),
            routed: Mutex::default(),
            slots: Mutex::default(),
            shards_of: RwLock::default(),
            lingering: Mutex::default(),
            linger_ms,
            owed: Mutex::default(),
            live: Mutex::default(),
            own: Mutex::default(),
            next_own: Mutex::new(0),
            expelled: watch::Sender::new(Expulsions::default()),
            serves: AtomicBool::new(false),
            suspended: AtomicU64::new(0),
            leaving: watch::Sender::new(false),
            left: watch::Sender::new(false),
            removed: AtomicBool::new(false),
            reached: watch::Sender::new(()),
            heritage: Heritage::default(),
            watch: Watch::default(),
        }
    }

    pub fn set_links(&self, links: Links) {
        let _ = self.links.set(links);
    }

    pub fn set_group(&self, group: Group) {
        let _ = self.group.set(group);
    }

    pub fn links(&self) -> Option<&Links> {
        self.links.get()
    }

    pub fn group(&self) -> Option<&Group> {
        self.group.get()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub fn expulsions(&self) -> watch::Receiver<Expulsions> {
        self.expelled.subscribe()
    }

    /// Whether the node is just leaving its cluster.
    pub(super) fn leaving(&self) -> &watch::Sender<bool> {
        &self.leaving
    }

    /// Whether it has left: then the process ends.
    pub fn left(&self) -> &watch::Sender<bool> {
        &self.left
    }

    /// The cluster knows this node no more: the process ends, and says what to do.
    pub fn note_removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.left.send_replace(true);
    }

    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// How often the node's grant has run out.
    pub fn suspended_total(&self) -> u64 {
        self.suspended.load(Ordering::Relaxed)
    }

    /// How many shards a linked node has.
    pub fn note_shards(&self, node: NodeId, shards: u16) {
        self.shards_of.write().insert(node, shards);
    }

    /// Proposes a command of the node itself, and tells what came of it; nothing, if it was not taken or the node was given up meanwhile.
    pub fn propose_own(&self, command: Command) -> tokio::sync::oneshot::Receiver<Outcome> {
        let (answer, outcome) = tokio::sync::oneshot::channel();
        let number = {
            let mut next = self.next_own.lock();
            *next += 1;
            *next & ((1 << TICKET_BITS) - 1)
        };
        self.own.lock().insert(number, answer);
        if !self.hand_on(OF_THE_NODE << TICKET_BITS | number, command) {
            self.own.lock().remove(&number);
        }
        outcome
    }

    /// Whether the group has taken the command.
    fn hand_on(&self, ticket: u64, command: Command) -> bool {
        self.group.get().is_some_and(|group| group.propose([(ticket, command)]).is_empty())
    }

    pub(super) fn slot_of(&self, node: NodeId) -> Option<NodeSlot> {
        self.slots.lock().get(&node).copied()
    }

    /// The slot of a node; a new one for one that is new.
    fn slot_for(&self, node: NodeId) -> Option<NodeSlot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&node) {
            return Some(*slot);
        }
        let taken = slots.values().fold(0_u64, |taken, slot| taken | 1 << slot);
        let free = (0..NODES_MAX as NodeSlot).find(|slot| taken & (1 << slot) == 0)?;
        slots.insert(node, free);
        Some(free)
    }

    /// The incarnations that owe this node something and have accepted nothing for that long.
    pub fn stuck_nodes(&self, for_ms: u64) -> Vec<(NodeId, Incarnation)> {
        let late = self.routed.lock().late(self.shared.clock.now(), for_ms);
        let mut stuck: Vec<(NodeId, Incarnation)> = {
            let owed = self.owed.lock();
            let stuck = owed.iter().filter(|(_, owed)| owed.stuck_ms >= for_ms);
            stuck.map(|((node, _), owed)| (*node, owed.incarnation)).collect()
        };
        let live = self.live.lock();
        let late = late.into_iter().filter(|node| !self.shared.is_own(*node));
        stuck.extend(late.filter_map(|node| Some((node, *live.get(&node)?))));
        let now = self.shared.clock.now();
        // It reads what may be for them when it has them.
        stuck.retain(|(node, _)| !self.heritage.is_inheriting(*node, now));
        stuck.sort_unstable();
        stuck.dedup();
        stuck
    }

    /// Bytes that each node has not accepted yet.
    pub fn owed_bytes(&self) -> BTreeMap<NodeId, usize> {
        let mut sums = BTreeMap::new();
        for ((node, _), owed) in self.owed.lock().iter() {
            *sums.entry(*node).or_insert(0) += owed.bytes;
        }
        sums
    }

    /// Until every live node routes with the state of `index`; false if that took too long.
    pub async fn routed_everywhere(&self, index: u64, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.is_routed_everywhere(index)).await.is_ok()
    }

    async fn is_routed_everywhere(&self, index: u64) {
        let mut changes = self.reached.subscribe();
        loop {
            changes.borrow_and_update();
            if self.routed.lock().reached() >= index || changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Filters that nobody has wanted for a while are taken out of the routes.
    pub fn end_lingering(&self) {
        let now = self.shared.clock.now();
        let mut due = Vec::new();
        {
            let mut lingering = self.lingering.lock();
            while let Some((_, filter)) = lingering.pop_front_if(|(at, _)| *at <= now) {
                due.push(filter);
            }
        }
        if due.is_empty() {
            return;
        }
        let _order = self.shared.index.route_order();
        due.retain(|text| !self.shared.index.has(text));
        for command in route_commands::removing(due) {
            self.propose(OF_THE_NODE as ShardId, None, command);
        }
    }
}

/// What shards ask.
impl ControlPlane for ClusterPlane {
    fn propose(&self, from: ShardId, ticket: Option<Ticket>, command: Command) -> Option<Applied> {
        let taken = self.hand_on(u64::from(from) << TICKET_BITS | ticket.unwrap_or(0), command);
        // Of what is not taken the group says nothing more, and somebody waits for it.
        if let Some(ticket) = ticket.filter(|_| !taken)
            && let Some(mailbox) = self.shared.mailboxes.get(usize::from(from))
        {
            mailbox.push(Event::Outcome { ticket, outcome: Outcome::Refused(Refusal::NotLive) });
        }
        None
    }

    fn is_routed(&self, from: ShardId, ticket: Ticket, index: u64) -> bool {
        self.routed.lock().wait(self.shared.clock.now(), index, (from, ticket)).is_some()
    }

    fn unrouted(&self, _from: ShardId, filters: Vec<Arc<str>>) {
        let at = self.shared.clock.now() + self.linger_ms;
        self.lingering.lock().extend(filters.into_iter().map(|filter| (at, filter)));
    }

    fn data_ended(&self, node: NodeId, from: ShardId) {
        if let Some(links) = self.links.get() {
            links.data_ended(node, from);
        }
    }

    fn owed(&self, from: ShardId, node: NodeId, owed: Owed) {
        self.owed.lock().insert((node, from), owed);
    }

    fn copies_filled(&self, from: ShardId, fill: u64) {
        self.watch.shard_has_filled(from, fill);
    }

    fn copy_lag(&self, from: ShardId, node: NodeId, lag: copies::Lag) {
        self.watch.note_lag(from, node, lag);
    }

    fn send_session(&self, to: NodeId, frame: &SessionFrame) {
        if let Some(links) = self.links.get() {
            let lane = if matches!(frame, SessionFrame::State { .. }) { Lane::Bulk } else { Lane::Control };
            // What is lost is asked for again.
            let _ = links.send(to, lane, kind::SESSION, frame.encode());
        }
    }

    fn inherited(&self, _from: ShardId, life: Life) {
        self.shard_has_inherited(life);
    }

    fn is_will_due(&self, will: &WillName) -> bool {
        self.group.get().is_none_or(|group| group.read(|state| state.is_will_due(&will.client, will.epoch)))
    }

    fn shards_of(&self, node: NodeId) -> Option<u16> {
        self.shards_of.read().get(&node).copied()
    }
}

/// Events of one entry on their way to the shards, gathered so that each mailbox is locked once.
struct Mail<'p> {
    plane: &'p ClusterPlane,
    to: Vec<Vec<Event>>,
}

impl Mail<'_> {
    fn to(&mut self, shard: ShardId, event: Event) {
        if let Some(events) = self.to.get_mut(usize::from(shard)) {
            events.push(event);
        }
    }

    fn post_to(&mut self, client: &str, effect: Effect) {
        let shard = self.plane.shared.shard_of(client);
        self.to(shard, Event::Effect(effect));
    }

    fn post_to_all(&mut self, event: impl Fn() -> Event) {
        self.to.iter_mut().for_each(|events| events.push(event()));
    }

    fn send(self) {
        for (mailbox, events) in self.plane.shared.mailboxes.iter().zip(self.to) {
            mailbox.push_all(events);
        }
    }
}

/// What was applied.
impl ClusterPlane {
    fn mail(&self) -> Mail<'_> {
        Mail { plane: self, to: self.shared.mailboxes.iter().map(|_| Vec::new()).collect() }
    }

    /// What follows for sessions and Wills is for a node that is `registered`; the rest is for everybody.
    fn take_effect(&self, (index, registered): (u64, bool), effect: Effect, mail: &mut Mail<'_>) {
        let own = |node: NodeId| registered && self.shared.is_own(node);
        let client = match &effect {
            Effect::WillForgotten { client, epoch } => {
                self.shared.wills_seen.forget(client, *epoch);
                Some(client)
            }
            Effect::WillDue { client, publisher, .. } if own(*publisher) => Some(client),
            Effect::SessionEnded { client, holder, .. }
            | Effect::Claimed { client, holder, .. }
            | Effect::Closed { client, holder, .. }
            | Effect::Withdrawn { client, holder, .. }
            | Effect::CutMade { client, holder, .. }
                if own(*holder) =>
            {
                Some(client)
            }
            Effect::ClaimLost { client, by, .. } if own(*by) => Some(client),
            Effect::Moved { client, from, .. } if own(*from) => Some(client),
            // Who has not registered learns from the state what has passed to it, when it has.
            Effect::PassedOn { client, from, to, .. } if self.shared.is_own(*from) || own(*to) => Some(client),
            _ => None,
        };
        let cut = match effect {
            Effect::CutMade { holder, index, .. } if registered => Some((holder, index)),
            _ => None,
        };
        match client.cloned() {
            Some(client) => mail.post_to(&client, effect),
            None => self.take_route_effect((index, registered), effect, mail),
        }
        if let Some((holder, index)) = cut {
            mail.post_to_all(|| Event::CutMade { holder, index });
        }
    }

    fn take_route_effect(&self, (index, registered): (u64, bool), effect: Effect, mail: &mut Mail<'_>) {
        let cluster = &self.shared.cluster_index;
        let other = |node: NodeId| (!self.shared.is_own(node)).then(|| self.slot_for(node)).flatten();
        // Who is forgotten gets no place again for what is taken from it.
        let known = |node: NodeId| (!self.shared.is_own(node)).then(|| self.slot_of(node)).flatten();
        match effect {
            Effect::Banned { .. } | Effect::Unbanned { .. } => take_ban(&self.shared, &effect),
            Effect::RouteAdded { filter, node } => {
                other(node).into_iter().for_each(|slot| cluster.add_route(&filter, slot));
            }
            Effect::RouteRemoved { filter, node } => {
                known(node).into_iter().for_each(|slot| cluster.remove_route(&filter, slot));
            }
            Effect::ShareRouteSet { share, node, members } => {
                other(node)
                    .into_iter()
                    .for_each(|slot| cluster.set_share(&share_text(&share), &share.1, slot, members));
            }
            Effect::ShareRouteRemoved { share, node } if self.heritage.keeps_share(node, &share) => {}
            Effect::ShareRouteRemoved { share, node } => {
                known(node).into_iter().for_each(|slot| cluster.remove_share(&share_text(&share), &share.1, slot));
            }
            Effect::NodeUp { node, incarnation, .. } => self.node_up(index, node, incarnation, mail),
            Effect::NodeDown { node, incarnation, heirs } => {
                let hears = if registered { Hears::InTime } else { Hears::Early };
                self.node_down((node, incarnation), heirs.into(), hears, mail);
            }
            Effect::PassedOnAll { .. } => mail.post_to_all(|| Event::Effect(effect.clone())),
            Effect::OrphansEnded { node, incarnation } => {
                let shares = self.heritage.orphans_ended((node, incarnation));
                if let Some(slot) = known(node) {
                    shares.iter().for_each(|share| cluster.remove_share(&share_text(share), &share.1, slot));
                }
                mail.post_to_all(|| Event::Effect(effect.clone()));
            }
            Effect::HeirsChanged { home } if self.shared.is_own(home) => self.watch.something_changed(),
            Effect::HeirsChanged { home } => {
                self.heritage.heirs_changed(home, self.shared.clock.now());
            }
            Effect::NodeForgotten { node } => {
                // Some of its routes may go only later, and the next node in its place must not have them.
                if let Some(slot) = self.slots.lock().remove(&node) {
                    cluster.remove_node(slot);
                }
            }
            _ => {}
        }
    }

    fn node_up(&self, index: u64, node: NodeId, incarnation: Incarnation, mail: &mut Mail<'_>) {
        self.routed.lock().node_up(node, index);
        self.live.lock().insert(node, incarnation);
        self.watch.something_changed();
        if self.shared.is_own(node) {
            return;
        }
        let Some(slot) = self.slot_for(node) else {
            tracing::error!(event = "cluster", %node, "more nodes than there can be: nothing is sent to this one");
            return;
        };
        mail.post_to_all(|| Event::PeerUp { slot, node, incarnation });
        if let Some(links) = self.links.get() {
            links.want_data(node, 0..self.shared.mailboxes.len() as ShardId);
        }
    }

    /// The shards hear of all nodes that are live: they have forgotten them if this node was given up since.
    pub fn tell_peers(&self) {
        let Some(group) = self.group.get() else {
            return;
        };
        // While the state is locked, so that no later news is overtaken.
        group.read(|state| {
            let own = state.node(self.shared.node).filter(|_| group.is_registered()).map_or(0, |node| node.incarnation);
            self.shared.incarnation.store(own, Ordering::Release);
            let mut mail = self.mail();
            for node in state.live_nodes() {
                self.node_up(state.index(), node.id, node.incarnation, &mut mail);
            }
            for (node, incarnation, heirs) in state.orphans() {
                self.node_down((node, incarnation), heirs.into(), Hears::Late, &mut mail);
            }
            mail.send();
            self.tell_heirs(state, true);
        });
    }

    fn node_down(&self, (node, incarnation): Life, heirs: Arc<[NodeId]>, hears: Hears, mail: &mut Mail<'_>) {
        let waited = self.routed.lock().node_down(node);
        self.reached.send_replace(());
        self.tell_routed(waited, mail);
        self.owed.lock().retain(|(other, _), _| *other != node);
        self.live.lock().remove(&node);
        self.watch.forget(node);
        self.watch.something_changed();
        self.heritage.node_died((node, incarnation), &heirs, self.shared.clock.now());
        // A node that starts may hear of one that was dead before.
        let slot = if heirs.is_empty() { self.slot_of(node) } else { self.slot_for(node) };
        if let Some(slot) = slot.filter(|_| !self.shared.is_own(node)) {
            mail.post_to_all(|| Event::PeerDown { slot, node, incarnation, heirs: heirs.clone(), hears });
            if let Some(links) = self.links.get() {
                links.drop_data(node);
            }
        }
    }

    fn tell_routed(&self, waited: Vec<(ShardId, Ticket)>, mail: &mut Mail<'_>) {
        for (shard, ticket) in waited {
            mail.to(shard, Event::RoutedEverywhere { ticket });
        }
    }

    fn node_routes(&self, node: NodeId, index: u64) {
        let waited = self.routed.lock().routed(node, index);
        self.reached.send_replace(());
        let mut mail = self.mail();
        self.tell_routed(waited, &mut mail);
        mail.send();
    }

    /// When every shard has handled what it was sent until now, all of them route by the state of `index`.
    fn tell_when_turned(self: &Arc<Self>, index: u64, mail: &mut Mail<'_>) {
        let plane = Arc::downgrade(self);
        let turned = Turned::new(self.shared.mailboxes.len(), move || {
            let Some(plane) = plane.upgrade() else {
                return;
            };
            if let Some(group) = plane.group.get() {
                group.tell_applied(index);
            }
            plane.node_routes(plane.shared.node, index);
        });
        mail.post_to_all(|| Event::Turned(turned.clone()));
    }

    fn take_outcome(&self, ticket: u64, outcome: Outcome, mail: &mut Mail<'_>) {
        let (of, ticket) = (ticket >> TICKET_BITS, ticket & ((1 << TICKET_BITS) - 1));
        if of == OF_THE_NODE {
            if let Some(answer) = self.own.lock().remove(&ticket) {
                // Whoever asked may have given up.
                let _ = answer.send(outcome);
            }
        } else if ticket != 0 {
            mail.to(of as ShardId, Event::Outcome { ticket, outcome });
        }
    }
}

/// The group tells a plane through this, as it has to hand on shares of it.
pub(super) struct Ear(pub Arc<ClusterPlane>);

impl Audience for Ear {
    fn applied(&self, entry: AppliedEntry) {
        let plane = &self.0;
        let AppliedEntry { index, own, effects, asked, incarnation, .. } = entry;
        plane.shared.incarnation.store(incarnation.unwrap_or(0), Ordering::Release);
        let mut mail = plane.mail();
        for effect in effects {
            plane.take_effect((index, incarnation.is_some()), effect, &mut mail);
        }
        for (ticket, outcome) in own {
            plane.take_outcome(ticket, outcome, &mut mail);
        }
        if asked {
            plane.tell_when_turned(index, &mut mail);
        }
        mail.send();
    }

    fn installed(&self, state: &ControlState, effects: Vec<Effect>) {
        let plane = &self.0;
        let mut mail = plane.mail();
        let index = state.index();
        let registered = plane.group.get().is_some_and(Group::is_registered);
        let own = state.node(plane.shared.node).filter(|_| registered).map_or(0, |node| node.incarnation);
        plane.shared.incarnation.store(own, Ordering::Release);
        for effect in effects {
            plane.take_effect((index, registered), effect, &mut mail);
        }
        if registered {
            // What was inherited and is over may not be among the effects.
            let outlook = plane.outlook_on_copies(state);
            mail.post_to_all(|| Event::Look { outlook: outlook.clone(), done: None });
        }
        plane.tell_when_turned(index, &mut mail);
        mail.send();
    }

    fn granted(&self, until: Option<u64>) {
        let plane = &self.0;
        let shared = &plane.shared;
        let valid_before = shared.grant.is_valid();
        shared.grant.set(until.unwrap_or(0));
        let serves = shared.grant.is_valid();
        if plane.serves.swap(serves, Ordering::AcqRel) && !serves && !*plane.leaving.borrow() {
            plane.suspended.fetch_add(1, Ordering::Relaxed);
        }
        match until {
            None => {
                plane.own.lock().clear();
                shared.incarnation.store(0, Ordering::Release);
                shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::Expelled));
                plane.expelled.send_modify(|Expulsions(times)| *times += 1);
            }
            Some(_) if serves && !valid_before => {
                shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::Resumed));
            }
            Some(_) => {}
        }
    }

    fn applied_by(&self, node: NodeId, index: u64) {
        self.0.node_routes(node, index);
    }
}

/// A share group by its text, `$share/name/filter`.
fn share_text((name, filter): &ShareRoute) -> Arc<str> {
    format!("$share/{name}/{filter}").into()
}

/// Everything that this node's sessions want, as commands of bounded size.
pub(super) fn all_routes(shared: &Shared) -> Vec<Command> {
    let mut filters = Vec::new();
    shared.index.for_each_filter(|filter| filters.push(Arc::from(filter)));
    let mut shares: Vec<(ShareRoute, ShareMembers)> = Vec::new();
    shared.index.for_each_share(|text, members| {
        if let Ok(TopicFilter { share: Some(share), filter }) = TopicFilter::parse(text) {
            shares.push(((share.into(), filter.into()), members));
        }
    });
    route_commands::adding(filters, shares)
}
