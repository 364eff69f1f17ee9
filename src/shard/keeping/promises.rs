//! What waits for other shards: promises, and the messages that are kept everywhere or nowhere.
//!
//! A *promise* is made when a message that is to be kept goes to another shard. Each shard that has a part in it owes an answer, a *leg*; when
//! all legs and the shard's own submission are there, what was promised happens. What was read from another node makes two of them where sessions have copies: one
//! that all of it is kept, and one that it is stable.
//!
//! Without copies a message of QoS 2 from a session that is written down, and a Will, must not be kept in part: else its publisher's repetition would be taken
//! for known while a subscriber does not have it, or be routed to one who has. The shards that deliver such a message do not write
//! down what they did but send it back, and the shard that accepted it writes down everything in one submission (an *assembly*).
//!
//! Owner: the shard that accepted the message, in [`Promises`]. Invariants: each leg is answered exactly once; the assemblies of one publisher are sealed in the order in
//! which their messages came.
//!
//! Test to read first: `cluster-tests/tests/durability/handshakes.rs`.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use holdfast_raft::Command;
use holdfast_storage::{Entry, ItemId, OwnerId};
use slab::Slab;

use crate::mqtt::PacketId;
use crate::session::Asked;
use crate::subscriptions::ShardId;

use super::super::Shard;
use super::super::mailbox::Event;
use super::section::Section;
use super::{Due, Keeping, Waiting};

/// The number of a promise in the table of its shard.
pub type PromiseKey = u32;

/// A leg of a promise, or of two: what the shard that has it answers, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    /// The shard that waits.
    pub shard: ShardId,
    /// Whose promise waits until what is written down is kept.
    pub kept: Option<PromiseKey>,
    /// And until it is stable.
    pub stable: Option<PromiseKey>,
    /// Whether what is written down goes back to that shard, to be kept together with the rest.
    pub parts: bool,
}

/// How the message that is being routed is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::shard) enum Route {
    /// Nobody waits for it.
    #[default]
    Unkept,
    /// Its publisher waits until everybody has it, and their heirs.
    Kept,
    /// Another node waits for what was read from it: until everybody has it, and then until their heirs do.
    Read,
    /// And it is kept everywhere or nowhere.
    Whole,
}

struct Promise {
    /// Legs and submissions that are awaited, and one while it is being made.
    waits: u32,
    then: Then,
}

/// What happens when nothing is awaited any more.
enum Then {
    Due(Due),
    /// The parts of a message are kept together.
    Keep(Box<Assembly>),
    /// Parts that this shard sent back are kept: its sessions are told.
    Tell(Vec<(OwnerId, Asked)>),
}

/// What the shards have sent back of one message.
struct Assembly {
    /// The QoS 2 packet that brought the message. `None` for a Will.
    packet: Option<(OwnerId, PacketId)>,
    entries: Vec<Entry>,
    asked: Vec<(OwnerId, Asked)>,
    replies: Vec<Leg>,
    /// What says that the Will has been published, if the message is one.
    will: Option<Command>,
    /// The answer to the packet, and one for each time that it came again.
    dues: Vec<Due>,
}

impl Assembly {
    fn new(packet: Option<(OwnerId, PacketId)>) -> Assembly {
        Assembly { packet, entries: Vec::new(), asked: Vec::new(), replies: Vec::new(), will: None, dues: Vec::new() }
    }
}

/// A route that was set aside.
pub(in crate::shard) struct Aside {
    section: Section,
    route: Route,
    packet: Option<(OwnerId, PacketId)>,
    routing: Option<PromiseKey>,
    reading: Option<PromiseKey>,
    waits_anyway: bool,
    cover: u64,
}

/// What [`Keeping::end_route`] leaves to do.
pub(in crate::shard) enum Ended {
    Now,
    Waits,
    /// The promise is made but for the wait of its maker: see [`Shard::answered`].
    Promised(PromiseKey),
    /// Nobody else has to keep the message of this Will: the command belongs to the same section.
    Will(Command),
}

/// The promises of a shard, and the message that it is routing.
#[derive(Default)]
pub(super) struct Promises {
    table: Slab<Promise>,
    /// Those of them that gather the parts of a QoS 2 message, by the session of its publisher, in the order of its messages.
    assemblies: HashMap<OwnerId, VecDeque<PromiseKey>>,
    route: Route,
    /// The packet that brought the message that is being routed, if that is kept everywhere or nowhere.
    packet: Option<(OwnerId, PacketId)>,
    /// The promise of the message that is being routed, once it has a leg; of what was read from another node, that it is stable.
    routing: Option<PromiseKey>,
    /// Of what was read from another node, that it is kept.
    reading: Option<PromiseKey>,
    /// The message that is being routed or delivered waits for the disk although nothing of it is in the open section: an earlier one has changed what it would, or
    /// what it has changed is in a section that was closed since.
    waits_anyway: bool,
    /// And for copies of sessions that have it since before the start: up to this.
    cover: u64,
    /// What waits for such copies.
    covers: BTreeMap<u64, Vec<PromiseKey>>,
    /// Parts that were sent back and are not kept yet; sessions that ended meanwhile are dropped once more behind them.
    parts_away: u32,
    ended: Vec<OwnerId>,
}

impl Promises {
    /// A session has ended, and perhaps items of it are on their way to be kept elsewhere.
    pub(super) fn session_ended(&mut self, owner: OwnerId) {
        if self.parts_away > 0 {
            self.ended.push(owner);
        }
    }
}

impl Keeping {
    /// A message is about to be routed. `packet`: the QoS 2 packet of a session that is written down, which brought it.
    pub fn begin_route(&mut self, route: Route, packet: Option<(OwnerId, PacketId)>) {
        self.close_section();
        self.promises.packet = packet;
        (self.promises.waits_anyway, self.promises.cover) = (false, 0);
        self.promises.route = match route {
            // Nothing waits for the disk: other nodes alone are waited for.
            Route::Whole if !self.defers() => Route::Kept,
            // Where sessions have copies a repetition is known by its name, and the message counts as published when all have it.
            Route::Whole if self.has_copies() => Route::Kept,
            route if self.defers() || self.clustered => route,
            _ => Route::Unkept,
        };
        self.section.parts = self.promises.route == Route::Whole;
    }

    /// A message is about to be delivered for which this leg waits.
    pub fn begin_leg(&mut self, leg: Option<Leg>) {
        if self.promises.route == Route::Unkept {
            (self.promises.waits_anyway, self.promises.cover) = (false, 0);
        }
        self.section.parts |= leg.is_some_and(|leg| leg.parts);
    }

    /// Whether what was delivered for a leg waits although nothing of it is in the open section. What is read in the middle of a route waits with the rest of that.
    fn end_leg(&mut self) -> bool {
        let waits = self.promises.waits_anyway;
        if self.promises.route == Route::Unkept {
            self.promises.waits_anyway = false;
        }
        waits
    }

    /// What has come before, and is not in a complete copy yet, is nobody's concern here. In the middle of a route it is that of the route.
    pub fn forget_cover(&mut self) {
        if self.promises.route == Route::Unkept {
            self.promises.cover = 0;
        }
    }

    /// A section was closed that had something in it.
    pub(super) fn has_written(&mut self) {
        self.promises.waits_anyway = true;
    }

    /// Sets aside a route that is under way while other messages are delivered.
    pub fn set_aside(&mut self) -> Aside {
        let settled = std::mem::take(&mut self.section.settled);
        let section = Section { defers: self.section.defers, settled, ..Section::default() };
        let section = std::mem::replace(&mut self.section, section);
        let Promises { route, packet, routing, reading, waits_anyway, cover, .. } = &mut self.promises;
        let (route, packet) = (std::mem::take(route), packet.take());
        let (routing, reading) = (routing.take(), reading.take());
        let (waits_anyway, cover) = (std::mem::take(waits_anyway), std::mem::take(cover));
        Aside { section, route, packet, routing, reading, waits_anyway, cover }
    }

    /// Goes on with a route that was set aside.
    pub fn take_up(&mut self, mut aside: Aside) {
        self.close_section();
        let (parts, coming) = (aside.section.parts, std::mem::take(&mut aside.section.coming));
        let settled = std::mem::take(&mut self.section.settled);
        // The vectors that have grown are kept.
        if !aside.section.entries.is_empty() || !aside.section.asked.is_empty() {
            self.section = aside.section;
        }
        (self.section.parts, self.section.coming) = (parts, coming);
        self.section.settled = settled;
        let Aside { route, packet, routing, reading, waits_anyway, cover, .. } = aside;
        (self.promises.route, self.promises.packet) = (route, packet);
        (self.promises.routing, self.promises.reading) = (routing, reading);
        (self.promises.waits_anyway, self.promises.cover) = (waits_anyway, cover);
    }

    /// The message that is being routed found nothing to change, because an earlier one has changed it. That may not be kept yet.
    pub fn wait_for_earlier(&mut self) {
        self.promises.waits_anyway = true;
    }

    /// A session has what is being routed, or asked of it, since before the start. That is stable when its copy has all that the start has found.
    pub fn wait_for_cover(&mut self, owner: OwnerId) {
        if let Some(copying) = &mut self.copying {
            let awaited = copying.cover(owner);
            // Its copy is made at the end of this turn.
            self.urgent |= awaited > 0;
            self.promises.cover = self.promises.cover.max(awaited);
        }
    }

    /// `due` happens when everything until now is stable, and what it waits for has its copy.
    pub fn when_covered(&mut self, due: Due) {
        let cover = std::mem::take(&mut self.promises.cover);
        if cover == 0 {
            return self.when_kept(due);
        }
        self.close_section();
        let promise = self.promises.table.insert(Promise { waits: 1, then: Then::Due(due) }) as PromiseKey;
        self.when_submitted(Waiting::Promise { promise, stable: true }, true);
        self.cover_promise(promise, cover);
    }

    fn cover_promise(&mut self, promise: PromiseKey, cover: u64) {
        if cover > 0 {
            self.promises.table[promise as usize].waits += 1;
            self.promises.covers.entry(cover).or_default().push(promise);
        }
    }

    /// What waits for copies that are there now.
    pub fn take_covered(&mut self) -> Vec<PromiseKey> {
        let mut taken = Vec::new();
        let Some(copying) = self.copying.as_mut().filter(|_| !self.promises.covers.is_empty()) else { return taken };
        let covered = copying.covered();
        while let Some(of) = self.promises.covers.first_entry().filter(|of| *of.key() <= covered) {
            taken.extend(of.remove());
        }
        taken
    }

    /// A leg of the message that is being routed, to another shard, if anybody waits for it.
    pub fn open_leg(&mut self, own: ShardId) -> Option<Leg> {
        if self.defers() { self.open_remote_leg(own) } else { None }
    }

    /// The same, to another node.
    pub fn open_remote_leg(&mut self, own: ShardId) -> Option<Leg> {
        let route = self.promises.route;
        if route == Route::Unkept {
            return None;
        }
        let is_read = route == Route::Read;
        let kept = is_read.then(|| self.promises.reading.unwrap_or_else(|| self.open_reading()));
        let stable =
            (!is_read || self.has_copies()).then(|| self.promises.routing.unwrap_or_else(|| self.open_promise()));
        for promise in kept.into_iter().chain(stable) {
            self.promises.table[promise as usize].waits += 1;
        }
        Some(Leg { shard: own, kept, stable, parts: route == Route::Whole })
    }

    fn open_reading(&mut self) -> PromiseKey {
        let promise = self.promises.table.insert(Promise { waits: 1, then: Then::Due(Due::Nothing) }) as PromiseKey;
        self.promises.reading = Some(promise);
        promise
    }

    fn open_promise(&mut self) -> PromiseKey {
        let whole = self.promises.route == Route::Whole;
        let packet = self.promises.packet;
        let then = if whole { Then::Keep(Box::new(Assembly::new(packet))) } else { Then::Due(Due::Nothing) };
        let promise = self.promises.table.insert(Promise { waits: 1, then }) as PromiseKey;
        if let Some((owner, _)) = packet.filter(|_| whole) {
            self.promises.assemblies.entry(owner).or_default().push_back(promise);
        }
        self.promises.routing = Some(promise);
        promise
    }

    /// The message has been routed: `due` happens when it is kept. Returned when that is now.
    pub fn end_route(&mut self, due: Due, will: Option<Command>) -> Ended {
        let publisher = self.promises.packet.map(|(owner, _)| owner);
        let behind_others = self.promises.route == Route::Whole
            && publisher.is_some_and(|publisher| self.promises.assemblies.contains_key(&publisher));
        if behind_others && self.promises.routing.is_none() && (will.is_some() || !self.section.entries.is_empty()) {
            self.open_promise();
        }
        let route = std::mem::take(&mut self.promises.route);
        let waits_anyway = std::mem::take(&mut self.promises.waits_anyway);
        let cover = std::mem::take(&mut self.promises.cover);
        if cover > 0 && route != Route::Unkept && self.promises.routing.is_none() {
            self.open_promise();
        }
        let Some(key) = self.promises.routing.take() else {
            let waits = self.defers() && route != Route::Unkept && (waits_anyway || !self.section.entries.is_empty());
            return match will {
                Some(will) if self.has_copies() && waits => {
                    self.when_kept(Due::Propose(will));
                    Ended::Waits
                }
                Some(will) => Ended::Will(will),
                None if waits => {
                    self.when_kept(due);
                    Ended::Waits
                }
                None => {
                    self.close_section();
                    Ended::Now
                }
            };
        };
        let promise = &mut self.promises.table[key as usize];
        if let Then::Keep(assembly) = &mut promise.then {
            assembly.entries.append(&mut self.section.entries);
            assembly.asked.append(&mut self.section.asked);
            assembly.will = will;
            assembly.dues.push(due);
            return Ended::Promised(key);
        }
        promise.then = Then::Due(will.map_or(due, Due::Propose));
        self.cover_promise(key, cover);
        let promise = &mut self.promises.table[key as usize];
        if self.section.defers && (waits_anyway || !self.section.entries.is_empty()) {
            promise.waits += 1;
            self.close_section();
            self.when_submitted(Waiting::Promise { promise: key, stable: true }, true);
        }
        Ended::Promised(key)
    }

    /// What was read from another node has been routed: `kept` happens when all of it is kept, `stable` when it is stable. Returns what becomes of the two, the
    /// second first. Without copies nothing is waited for that is not kept.
    pub fn end_read(&mut self, kept: Due, stable: Due) -> [Ended; 2] {
        self.promises.route = Route::Unkept;
        let waits_anyway = std::mem::take(&mut self.promises.waits_anyway);
        let waits = self.defers() && (waits_anyway || !self.section.entries.is_empty());
        let cover = std::mem::take(&mut self.promises.cover);
        if cover > 0 {
            let promise = self.promises.routing.unwrap_or_else(|| self.open_promise());
            self.cover_promise(promise, cover);
        }
        let (reading, routing) = (self.promises.reading.take(), self.promises.routing.take());
        self.close_section();
        let stable = if self.has_copies() { self.end_half(routing, stable, (waits, true)) } else { Ended::Now };
        [stable, self.end_half(reading, kept, (waits, false))]
    }

    fn end_half(&mut self, promise: Option<PromiseKey>, due: Due, (waits, stable): (bool, bool)) -> Ended {
        let Some(promise) = promise else {
            if !waits {
                return Ended::Now;
            }
            self.when_submitted(Waiting::Due(due), true);
            return Ended::Waits;
        };
        self.promises.table[promise as usize].then = Then::Due(due);
        if waits {
            self.promises.table[promise as usize].waits += 1;
            self.when_submitted(Waiting::Promise { promise, stable }, true);
        }
        Ended::Promised(promise)
    }

    /// The answer to a packet that has come again waits for what the first one waits for.
    pub fn when_packet_kept(&mut self, packet: (OwnerId, PacketId), due: Due) {
        let Promises { table, assemblies, .. } = &mut self.promises;
        let of_publisher = assemblies.get(&packet.0).into_iter().flatten();
        let newest = of_publisher.rev().copied().find(|key| match &table[*key as usize].then {
            Then::Keep(assembly) => assembly.packet == Some(packet),
            Then::Due(_) | Then::Tell(_) => false,
        });
        let assembly = newest.and_then(|key| match &mut table[key as usize].then {
            Then::Keep(assembly) => Some(assembly),
            Then::Due(_) | Then::Tell(_) => None,
        });
        match assembly {
            Some(assembly) => {
                // An answer for a connection that is gone is nobody's.
                assembly.dues.retain(|earlier| earlier.connection() == due.connection());
                assembly.dues.push(due);
            }
            None => self.when_kept(due),
        }
    }
}

impl Keeping {
    /// Of what still waits for others: no Will counts as published; and the packets whose messages are not whole yet.
    pub fn forget_wills_and_name_packets(&mut self) -> Vec<(OwnerId, PacketId)> {
        let mut packets = Vec::new();
        for (_, promise) in &mut self.promises.table {
            match &mut promise.then {
                Then::Keep(assembly) => {
                    assembly.will = None;
                    packets.extend(assembly.packet);
                }
                Then::Due(due @ Due::Propose(_)) => *due = Due::Nothing,
                Then::Due(_) | Then::Tell(_) => {}
            }
        }
        self.forget_wills_that_wait();
        packets
    }
}

impl Shard {
    /// What happened while a message of another shard, or one that was given back, was delivered goes where its leg says. `from`: the item of the session that
    /// gave it back, which is deleted together with what its next owner writes down.
    pub(in crate::shard) fn delivered(&mut self, leg: Option<Leg>, from: Option<(OwnerId, ItemId)>) {
        if let Some((owner, item)) = from {
            self.keeping.delete_given(owner, item);
        }
        let waits_anyway = self.keeping.end_leg();
        let Some(mut leg) = leg else {
            self.keeping.forget_cover();
            self.keeping.close_section();
            return;
        };
        // Before the section is closed by anything below.
        let waits = waits_anyway || !self.keeping.section.entries.is_empty();
        if self.keeping.promises.cover > 0
            && let Some(promise) = leg.stable.take()
        {
            self.keeping.when_covered(Due::Reply { shard: leg.shard, promise, stable: true });
        }
        if leg.parts {
            self.send_parts(leg);
        } else if !waits {
            self.keeping.close_section();
            self.reply(leg);
        } else {
            self.keeping.reply_when_kept(leg);
        }
    }

    fn send_parts(&mut self, leg: Leg) {
        let entries = std::mem::take(&mut self.keeping.section.entries);
        let asked = std::mem::take(&mut self.keeping.section.asked);
        let Some(promise) = leg.stable else {
            debug_assert!(false, "the parts of a message are awaited");
            return;
        };
        if leg.shard == self.id {
            self.add_parts(promise, entries, asked, None);
            return;
        }
        let reply = (!entries.is_empty()).then(|| self.promise_to_tell(asked));
        self.mail(leg.shard, Event::Parts { promise, entries, reply });
    }

    /// Sessions that asked are told when the shard that keeps their parts says so.
    fn promise_to_tell(&mut self, asked: Vec<(OwnerId, Asked)>) -> Leg {
        self.keeping.promises.parts_away += 1;
        let promise = self.keeping.promises.table.insert(Promise { waits: 1, then: Then::Tell(asked) }) as PromiseKey;
        Leg { shard: self.id, kept: Some(promise), stable: None, parts: true }
    }

    /// Parts of a message of this shard have come back.
    pub(in crate::shard) fn add_parts(
        &mut self,
        promise: PromiseKey,
        entries: Vec<Entry>,
        asked: Vec<(OwnerId, Asked)>,
        reply: Option<Leg>,
    ) {
        if let Some(Promise { then: Then::Keep(assembly), .. }) = self.promise_mut(promise) {
            assembly.entries.extend(entries);
            assembly.asked.extend(asked);
            assembly.replies.extend(reply);
        }
        self.answered(promise);
    }

    fn promise_mut(&mut self, key: PromiseKey) -> Option<&mut Promise> {
        self.keeping.promises.table.get_mut(key as usize)
    }

    /// Tells the shard that waits for a leg: nothing is left to wait for.
    pub(in crate::shard) fn reply(&mut self, leg: Leg) {
        leg.kept.into_iter().chain(leg.stable).for_each(|promise| self.reply_to(leg.shard, promise));
    }

    pub(in crate::shard) fn reply_to(&mut self, shard: ShardId, promise: PromiseKey) {
        if shard == self.id {
            self.answered(promise);
        } else {
            self.mail(shard, Event::Answered { promise });
        }
    }

    /// One of the things that a promise waits for has come.
    pub(in crate::shard) fn answered(&mut self, key: PromiseKey) {
        let Some(promise) = self.promise_mut(key) else {
            debug_assert!(false, "a leg is answered once");
            return;
        };
        promise.waits -= 1;
        if promise.waits > 0 {
            return;
        }
        if let Then::Keep(assembly) = &promise.then
            && let Some((publisher, _)) = assembly.packet
        {
            return self.seal_in_order(publisher);
        }
        match self.keeping.promises.table.remove(key as usize).then {
            Then::Due(due) => self.fall_due(due),
            Then::Tell(asked) => self.parts_are_kept(asked),
            Then::Keep(assembly) => self.seal(*assembly),
        }
    }

    /// What one leg of a promise was to answer, so many others answer now; with none of them it is answered.
    pub(in crate::shard) fn split_leg(&mut self, key: PromiseKey, legs: u32) {
        if legs == 0 {
            return self.answered(key);
        }
        if let Some(promise) = self.promise_mut(key) {
            promise.waits += legs - 1;
        }
    }

    /// Another node has no room for a message: its publisher is told so, if that can still be. False: it cannot, and the message has to be kept in the end.
    pub(in crate::shard) fn refuse_promise(&mut self, key: PromiseKey) -> bool {
        match self.promise_mut(key).map(|promise| &promise.then) {
            Some(&Then::Due(Due::Answer { connection, serial, number })) => {
                self.refuse_answer(connection, serial, number)
            }
            _ => false,
        }
    }

    /// Keeps the messages whose parts are all here, but none before an earlier one of the same publisher, who would send that again after a crash, behind it.
    fn seal_in_order(&mut self, publisher: OwnerId) {
        while let Promises { table, assemblies, .. } = &mut self.keeping.promises
            && let Some(of_publisher) = assemblies.get_mut(&publisher)
            && let Some(key) = of_publisher.pop_front_if(|key| table[*key as usize].waits == 0)
        {
            if of_publisher.is_empty() {
                assemblies.remove(&publisher);
            }
            if let Then::Keep(assembly) = table.remove(key as usize).then {
                self.seal(*assembly);
            }
        }
    }

    /// All parts of a message are here: they are kept together.
    fn seal(&mut self, assembly: Assembly) {
        let Assembly { entries, asked, replies, will, dues, .. } = assembly;
        self.keeping.close_section();
        self.keeping.entries.extend(entries);
        self.keeping.section.asked.extend(asked);
        if let Some(will) = will {
            self.propose(will);
        }
        self.keeping.close_section();
        dues.into_iter().for_each(|due| self.keeping.when_kept(due));
        replies.into_iter().for_each(|leg| self.keeping.reply_when_kept(leg));
    }

    /// What this shard sent back to another one is kept there.
    fn parts_are_kept(&mut self, asked: Vec<(OwnerId, Asked)>) {
        asked.into_iter().for_each(|(owner, asked)| self.tell(owner, asked));
        self.keeping.promises.parts_away -= 1;
        if self.keeping.promises.parts_away == 0 {
            // Items that came behind the end of their session.
            for owner in std::mem::take(&mut self.keeping.promises.ended) {
                self.keeping.section.entries.push(Entry::Drop { owner });
            }
            self.keeping.close_section();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down as a disk would have it, and waits.
    fn keeping() -> Keeping {
        let mut keeping = Keeping::new(None, true, true, false);
        keeping.section.defers = true;
        keeping
    }

    fn write(keeping: &mut Keeping) {
        keeping.section.entries.push(Entry::Delete { owner: OwnerId(9), item: 1 });
    }

    #[test]
    fn what_is_read_waits_for_a_section_that_was_closed_in_the_middle() {
        let mut keeping = keeping();
        keeping.begin_route(Route::Read, None);
        write(&mut keeping);
        keeping.close_section();
        let [_, kept] = keeping.end_read(Due::Nothing, Due::Nothing);
        assert!(matches!(kept, Ended::Waits));
        keeping.begin_route(Route::Read, None);
        let [_, kept] = keeping.end_read(Due::Nothing, Due::Nothing);
        assert!(matches!(kept, Ended::Now), "nothing was written down of this one");
    }

    #[test]
    fn a_leg_waits_for_what_was_written_down_in_front_of_something_else_that_waits() {
        let mut keeping = keeping();
        keeping.begin_leg(None);
        write(&mut keeping);
        keeping.when_kept(Due::Nothing);
        assert!(keeping.end_leg());
        keeping.begin_leg(None);
        assert!(!keeping.end_leg(), "of the next leg nothing was");
    }

    #[test]
    fn a_leg_in_the_middle_of_what_is_read_leaves_that_waiting() {
        let mut keeping = keeping();
        keeping.begin_route(Route::Read, None);
        write(&mut keeping);
        keeping.begin_leg(None);
        keeping.close_section();
        assert!(keeping.end_leg());
        let [_, kept] = keeping.end_read(Due::Nothing, Due::Nothing);
        assert!(matches!(kept, Ended::Waits));
    }
}
