//! The home's side of copies: to which heirs the entries of each session go, up to which submission they have them, and which sessions they lack.
//!
//! A session that is kept (an *owner*) has up to two heirs: the pick of its client id among the base and, during a fill, among next; those of them that are live
//! and not stale are its *picks*. What a turn writes down of it goes to each pick, in order, in *frames*, whose acceptance is cumulative.
//!
//! A message that its subscriber has been sent may be acknowledged, and its item deleted, before it is kept here. So it is *held*, with what follows for the same heir, until
//! it is kept and the heir has accepted what it was sent before, as what comes while a disk is busy waits for its next sync anyway; or until something comes that does not pass.
//!
//! An heir takes a message that it has for one of the sessions as seen by all of them. So none is held for one that is written for another; and a frame says which messages go on in a
//! later one: of these the heir knows, until that has come, for each session whether it has it.
//!
//! | what | how |
//! | --- | --- |
//! | stable | the submission is kept here and accepted by every heir that got part of it. An owner without a pick, while another node is live, has nobody yet: its entries wait |
//! | tail | the entries that are not stable, in order. Whoever becomes a pick gets those of its owners at once, before anything newer |
//! | fill | an owner that a pick does not have completely is sent whole, as it stands, one after the other and no more than [`FILL_BYTES_MAX`] of it unaccepted |
//! | cover | what an owner had before this process began is with its pick when that was sent all of it and has accepted it. Who waits for that has the owner filled before others |
//! | drop | who is no pick any more is told to drop what it has, whatever else it has not accepted: it may have no room for that. Who is no heir at all any more is waited for no longer |
//!
//! Owner: the shard. Invariants: each pick has been sent every entry of the tail, or has it held, in order, so the death of another one makes nothing to be sent again, which would
//! bring back items that are deleted; a complete copy has been sent everything since it was begun; stable never falls.
//!
//! Tests to read first: `tests::a_submission_is_stable_when_it_is_kept_here_and_at_the_heir` and
//! `tests::what_is_stable_is_on_two_nodes_and_copies_become_complete`.

mod covering;
mod filling;
mod held;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::AddAssign;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use holdfast_raft::{NodeId, heir_of};
use holdfast_storage::{BodyId, ItemId, OwnerId};

use covering::Cover;
use held::Held;

/// The place of a live node in the tables of the shard, below 64: its bit in a set.
pub type Slot = u8;

/// Bytes of entries from which on a frame is full. The last entry may go beyond.
const FRAME_BYTES: usize = 64 * 1024;

/// Bytes of a fill that one heir may have unaccepted before it gets more: the entries of its sessions are not to wait long behind them.
const FILL_BYTES_MAX: usize = 1024 * 1024;

/// Frames that one heir may have unaccepted before it is told to drop more.
const DROPS_UNDER_WAY_MAX: usize = 16 * 1024;

/// Nodes to pick from, each with its slot if it can have a copy: if it is live, and not stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    ids: Vec<NodeId>,
    slots: Vec<Option<Slot>>,
}

impl FromIterator<(NodeId, Option<Slot>)> for Members {
    fn from_iter<I: IntoIterator<Item = (NodeId, Option<Slot>)>>(members: I) -> Self {
        let (ids, slots) = members.into_iter().unzip();
        Self { ids, slots }
    }
}

impl Members {
    /// The pick as a set: empty if it can have no copy. No other takes its place.
    fn pick(&self, client: &str) -> u64 {
        let pick = heir_of(client, &self.ids).and_then(|pick| self.ids.iter().position(|id| *id == pick));
        pick.and_then(|at| self.slots[at]).map_or(0, |slot| 1 << slot)
    }

    fn lose(&mut self, slot: Slot) {
        self.slots.iter_mut().filter(|other| **other == Some(slot)).for_each(|lost| *lost = None);
    }
}

/// The heirs of this node, as the control state has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heirs {
    pub base: Members,
    pub next: Members,
    /// What the fill of `next` is known by; `None`: there is none.
    pub fill: Option<u64>,
    /// Whether another node is live. If not, nobody is waited for.
    pub wanted: bool,
}

/// An entry of a copy, on its way to whoever has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied<E> {
    pub owner: OwnerId,
    pub entry: E,
    /// How long it is, about.
    pub bytes: usize,
    pub effect: Effect,
}

/// What becomes of the owner with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It has the item. `passing`: its client has been sent it, and it is gone as soon as that acknowledges. `body`: the message that comes with it.
    Put {
        item: ItemId,
        passing: bool,
        body: Option<BodyId>,
    },
    /// It has the item, which belongs to the one of the entry before: an heir gets both or neither.
    Beside {
        item: ItemId,
    },
    /// It has not.
    Delete {
        item: ItemId,
    },
    /// It is gone.
    End,
    Other,
}

/// What goes to an heir as one frame. Whoever sends it says [`Sending::accepted`] with its number.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<E> {
    pub heir: Slot,
    pub number: u64,
    pub entries: Vec<E>,
    /// The messages in it that a later one has for other owners.
    pub ahead: HashSet<BodyId>,
    bytes: usize,
}

/// Frames that are made together.
struct Batch<E> {
    frames: Vec<Frame<E>>,
    /// The messages in them, each with the place of the last frame for that heir that has it.
    messages: HashMap<(Slot, BodyId), usize>,
}

impl<E> Default for Batch<E> {
    fn default() -> Self {
        Self { frames: Vec::new(), messages: HashMap::new() }
    }
}

impl<E> Batch<E> {
    /// Whether an heir gets the message for another owner.
    fn has(&self, heir: Slot, effect: Effect) -> bool {
        let Effect::Put { body: Some(body), .. } = effect else { return false };
        self.messages.contains_key(&(heir, body))
    }

    /// The place of the frame for an heir in which there is room; of the last one for what is `beside` something.
    fn open(&self, heir: Slot, beside: bool) -> Option<usize> {
        let last = self.frames.iter().rposition(|frame| frame.heir == heir);
        last.filter(|at| beside || self.frames[*at].bytes < FRAME_BYTES)
    }

    fn push(&mut self, heir: Slot, number: u64) -> usize {
        self.frames.push(Frame { heir, number, entries: Vec::new(), ahead: HashSet::new(), bytes: 0 });
        self.frames.len() - 1
    }

    /// Notes that the frame at that place has the message of an entry.
    fn note(&mut self, at: usize, effect: Effect) {
        if let Effect::Put { body: Some(body), .. } = effect
            && let Some(before) = self.messages.insert((self.frames[at].heir, body), at)
            && before != at
        {
            self.frames[before].ahead.insert(body);
        }
    }
}

/// What is to be made for an heir and given to [`Sending::made`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    number: u64,
    pub heir: Slot,
    pub owner: OwnerId,
    pub step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The first part of all there is of the owner, behind the word that it begins if that was not said before ([`Sending::must_begin`]).
    Begin,
    /// The next part. The last one ends with the word that the copy is complete.
    GoOn,
    /// The word that it is to be dropped: one part.
    Drop,
}

struct Owner {
    client: Arc<str>,
    /// Who gets its entries, and which of them were sent everything there is of it.
    picks: u64,
    complete: u64,
    /// Which of them were told that the copy begins, since they are picks.
    begun: u64,
    /// Which of those have accepted all of it.
    accepted: u64,
    /// The last of its items that any of them was sent. Items have ever greater numbers.
    last_item: ItemId,
    cover: Cover,
}

impl Owner {
    fn is_pick(&self, heir: Slot) -> bool {
        self.picks >> heir & 1 == 1
    }

    fn lacks(&self, heir: Slot) -> bool {
        (self.picks & !self.complete) >> heir & 1 == 1
    }
}

/// A frame that is not accepted yet.
struct Sent {
    number: u64,
    /// The first submission of which it, or one behind it, has a part; `None` for a part of a fill, or if nobody waits for that heir.
    first: Option<u64>,
    fills: bool,
    bytes: usize,
    records: usize,
}

/// How far an heir is behind, and how far it is filled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// What it has not accepted: bytes and entries.
    pub bytes: usize,
    pub records: usize,
    /// Sessions that it was to be sent whole, since the heirs last changed, and those of them that it was; and the bytes of these.
    pub to_fill: usize,
    pub filled: usize,
    pub filled_bytes: u64,
}

impl AddAssign for Lag {
    fn add_assign(&mut self, other: Lag) {
        self.bytes += other.bytes;
        self.records += other.records;
        self.to_fill += other.to_fill;
        self.filled += other.filled;
        self.filled_bytes += other.filled_bytes;
    }
}

/// What goes to one heir.
struct Stream<E> {
    under_way: VecDeque<Sent>,
    held: Held<E>,
    /// Bytes of a fill among them.
    fill_bytes: usize,
    /// Sessions that were to be filled, and bytes that were sent for it, since the heirs last changed.
    fill_sessions: usize,
    filled_bytes: u64,
    to_fill: VecDeque<OwnerId>,
    /// Those of them that somebody waits for.
    awaited: VecDeque<OwnerId>,
    /// Owners that were sent whole, each with the last frame of it, while that is not accepted.
    whole: VecDeque<(u64, OwnerId)>,
    to_drop: VecDeque<OwnerId>,
    /// What is being filled or dropped, and whether its next part is being made.
    work: Option<Work>,
    making: bool,
}

impl<E> Default for Stream<E> {
    fn default() -> Self {
        Self {
            under_way: VecDeque::new(),
            held: Held::default(),
            fill_bytes: 0,
            fill_sessions: 0,
            filled_bytes: 0,
            to_fill: VecDeque::new(),
            awaited: VecDeque::new(),
            whole: VecDeque::new(),
            to_drop: VecDeque::new(),
            work: None,
            making: false,
        }
    }
}

impl<E> Stream<E> {
    /// Sessions that are still to be sent, or on their way.
    fn left_to_fill(&self) -> usize {
        let work = self.work.filter(|work| work.step != Step::Drop);
        self.to_fill.len() + usize::from(work.is_some())
    }

    fn begin_fill(&mut self) {
        self.fill_sessions = self.left_to_fill();
        self.filled_bytes = 0;
    }

    /// The first submission that it has not all accepted.
    fn first_unaccepted(&self) -> Option<u64> {
        let sent = self.under_way.iter().find_map(|sent| sent.first);
        sent.into_iter().chain(self.held.submission()).min()
    }

    /// Whether it may be sent what is held of submissions up to `kept`, and there is such.
    fn is_released(&self, kept: u64) -> bool {
        let is_kept = self.held.submission().is_some_and(|submission| submission <= kept);
        is_kept && self.under_way.iter().all(|sent| sent.first.is_none())
    }

    /// Notes a new frame. Those before it are accepted with it at the latest, so that none of them needs a later submission than it does.
    fn send(&mut self, number: u64, first: Option<u64>) {
        if let Some(first) = first {
            let earlier = self.under_way.iter_mut().rev().filter_map(|sent| sent.first.as_mut());
            earlier.take_while(|later| **later > first).for_each(|later| *later = first);
        }
        self.under_way.push_back(Sent { number, first, fills: first.is_none(), bytes: 0, records: 0 });
    }
}

/// The machine: see the module. `E` is an entry, which is copied once for each heir.
pub struct Sending<E> {
    heirs: Heirs,
    owners: HashMap<OwnerId, Owner>,
    streams: BTreeMap<Slot, Stream<E>>,
    /// What is not stable, with its submission.
    tail: VecDeque<(u64, Copied<E>)>,
    tail_bytes: usize,
    /// The first submission in it with an entry for which there is nobody.
    homeless: Option<u64>,
    /// The last frame, or piece of work.
    number: u64,
    kept: u64,
    stable: u64,
    /// Owners whose cover is awaited, in that order.
    uncovered: BTreeMap<u64, OwnerId>,
    covers: u64,
}

impl<E> Default for Sending<E> {
    fn default() -> Self {
        Self {
            heirs: Heirs::default(),
            owners: HashMap::new(),
            streams: BTreeMap::new(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            homeless: None,
            number: 0,
            kept: 0,
            stable: 0,
            uncovered: BTreeMap::new(),
            covers: 0,
        }
    }
}

fn slots_of(mut set: u64) -> impl Iterator<Item = Slot> {
    std::iter::from_fn(move || {
        let slot = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (slot < u64::BITS).then_some(slot as Slot)
    })
}

/// Owners and their entries.
impl<E: Clone> Sending<E> {
    /// An owner from now on, of which the heirs have nothing.
    pub fn add(&mut self, owner: OwnerId, client: Arc<str>) {
        let picks = self.picks(&client);
        for heir in slots_of(picks) {
            let stream = self.streams.entry(heir).or_default();
            stream.to_fill.push_back(owner);
            stream.fill_sessions += 1;
        }
        let cover = Cover::Open;
        self.owners.insert(owner, Owner { client, picks, complete: 0, begun: 0, accepted: 0, last_item: 0, cover });
    }

    /// An owner that begins with the next submission, whose first entries say that its copy begins and is complete: there is nothing to fill.
    pub fn begin(&mut self, owner: OwnerId, client: Arc<str>) {
        let picks = self.picks(&client);
        let (complete, cover) = (picks, Cover::Done);
        self.owners.insert(owner, Owner { client, picks, complete, begun: 0, accepted: 0, last_item: 0, cover });
    }

    fn picks(&self, client: &str) -> u64 {
        self.heirs.base.pick(client) | self.heirs.next.pick(client)
    }

    /// What a turn has written down, in order. Entries of other owners are left out.
    pub fn submit(&mut self, submission: u64, entries: impl IntoIterator<Item = Copied<E>>) -> Vec<Frame<E>> {
        let mut batch = Batch::default();
        for copied in entries {
            let Some(&Owner { picks, complete, last_item, .. }) = self.owners.get(&copied.owner) else {
                continue;
            };
            if copied.effect == Effect::End {
                self.end(copied.owner);
            }
            if picks == 0 {
                if !self.heirs.wanted {
                    continue;
                }
                self.homeless.get_or_insert(submission);
            }
            for heir in slots_of(picks) {
                // Who is being filled may have an older copy too, and has to hear of every deletion.
                let known = if complete >> heir & 1 == 1 { last_item } else { ItemId::MAX };
                self.send(&mut batch, heir, submission, &copied, known);
            }
            self.tail_bytes += copied.bytes;
            self.tail.push_back((submission, copied));
        }
        batch.frames
    }

    /// Whether a pick must be told that the copy of an owner begins, in front of what it is sent next. It may have an older one, or none, and takes nothing for that.
    /// Told once, until it is another's pick.
    pub fn must_begin(&mut self, owner: OwnerId, heir: Slot) -> bool {
        let Some(owner) = self.owners.get_mut(&owner).filter(|owner| owner.is_pick(heir)) else {
            return false;
        };
        let begun = owner.begun >> heir & 1 == 1;
        owner.begun |= 1 << heir;
        !begun
    }

    fn end(&mut self, owner: OwnerId) {
        if let Some(Owner { cover: Cover::Awaited(number), .. }) = self.owners.remove(&owner) {
            self.uncovered.remove(&number);
        }
        for stream in self.streams.values_mut() {
            stream.work.take_if(|work| work.owner == owner && work.step != Step::Drop);
        }
    }

    /// Holds an entry, or writes it, behind what is held. `known`: the last item of the owner that the heir may have.
    fn send(&mut self, batch: &mut Batch<E>, heir: Slot, submission: u64, copied: &Copied<E>, known: ItemId) {
        let held = &mut self.streams.entry(heir).or_default().held;
        let is_new = |item: ItemId| item > known;
        let holds = match copied.effect {
            // The heir has nothing of an item that was held from its first entry on.
            Effect::Delete { item } if is_new(item) && held.cancel(copied.owner, item) => return,
            Effect::Delete { .. } => !held.is_empty(),
            Effect::Put { .. } if batch.has(heir, copied.effect) => false,
            Effect::Put { item, passing, .. } => passing && (is_new(item) || !held.is_empty()),
            Effect::Beside { .. } | Effect::End | Effect::Other => false,
        };
        if holds && !held.is_full() {
            return held.push(submission, copied.clone());
        }
        self.release(batch, heir, u64::MAX);
        self.write(batch, heir, Some(submission), copied);
    }

    /// Writes what is held and not of a later submission than `up_to`.
    fn release(&mut self, batch: &mut Batch<E>, heir: Slot, up_to: u64) {
        while let Some((submission, copied)) = self.streams.get_mut(&heir).and_then(|stream| stream.held.pop(up_to)) {
            self.write(batch, heir, Some(submission), &copied);
        }
    }

    fn write(&mut self, batch: &mut Batch<E>, heir: Slot, submission: Option<u64>, copied: &Copied<E>) {
        let stream = self.streams.entry(heir).or_default();
        // A fill is of no turn, and its copy is of no use before it is complete.
        let beside = submission.is_some() && matches!(copied.effect, Effect::Beside { .. });
        let at = batch.open(heir, beside).unwrap_or_else(|| {
            self.number += 1;
            stream.send(self.number, submission);
            batch.push(heir, self.number)
        });
        batch.note(at, copied.effect);
        let frame = &mut batch.frames[at];
        frame.entries.push(copied.entry.clone());
        // That the copy begins may be said in front of it.
        let mut owner = self.owners.get_mut(&copied.owner);
        if let (Some(owner), Effect::Put { item, .. } | Effect::Beside { item }) = (&mut owner, copied.effect) {
            owner.last_item = owner.last_item.max(item);
        }
        let begin = owner.filter(|owner| owner.begun >> heir & 1 == 0);
        frame.bytes += copied.bytes + begin.map_or(0, |owner| owner.client.len());
        if submission.is_none() {
            stream.fill_bytes += copied.bytes;
            stream.filled_bytes += copied.bytes as u64;
        }
        if let Some(sent) = stream.under_way.back_mut() {
            sent.bytes += copied.bytes;
            sent.records += 1;
        }
    }
}

/// Heirs come and go.
impl<E: Clone> Sending<E> {
    /// The heirs are others, or another node is live, or none any more. Returns the tail for those who were no picks before.
    pub fn change(&mut self, heirs: Heirs) -> Vec<Frame<E>> {
        let picks =
            |owner: &OwnerId, owners: &HashMap<OwnerId, Owner>| owners.get(owner).map_or(0, |owner| owner.picks);
        let before: HashMap<OwnerId, u64> =
            self.tail.iter().map(|(_, copied)| (copied.owner, picks(&copied.owner, &self.owners))).collect();
        let mut released = Batch::default();
        for heir in self.streams.keys().copied().collect::<Vec<_>>() {
            self.release(&mut released, heir, u64::MAX);
        }
        self.heirs = heirs;
        self.pick_anew();
        self.wait_for_heirs_alone();
        let mut batch = Batch::default();
        let tail = std::mem::take(&mut self.tail);
        for (submission, copied) in &tail {
            let new = picks(&copied.owner, &self.owners) & !before[&copied.owner];
            slots_of(new).for_each(|heir| self.write(&mut batch, heir, Some(*submission), copied));
        }
        self.tail = tail;
        self.look_for_homeless();
        // The tail begins with earlier submissions, which no frame has behind later ones.
        released.frames.append(&mut batch.frames);
        released.frames
    }

    /// What others have not accepted is with those who are heirs now, or has nobody.
    fn wait_for_heirs_alone(&mut self) {
        let slots = self.heirs.base.slots.iter().chain(&self.heirs.next.slots);
        let heirs = slots.flatten().fold(0_u64, |heirs, slot| heirs | 1 << slot);
        for (_, stream) in self.streams.iter_mut().filter(|(heir, _)| heirs >> **heir & 1 == 0) {
            stream.under_way.iter_mut().for_each(|sent| sent.first = None);
        }
    }

    fn pick_anew(&mut self) {
        for stream in self.streams.values_mut() {
            stream.to_fill.clear();
            stream.awaited.clear();
        }
        for (id, owner) in &mut self.owners {
            let picks = self.heirs.base.pick(&owner.client) | self.heirs.next.pick(&owner.client);
            for heir in slots_of(owner.picks & !picks) {
                self.streams.entry(heir).or_default().to_drop.push_back(*id);
            }
            owner.picks = picks;
            owner.complete &= picks;
            owner.accepted &= picks;
            owner.begun &= picks;
            for heir in slots_of(picks & !owner.complete) {
                self.streams.entry(heir).or_default().to_fill.push_back(*id);
            }
        }
        for id in self.uncovered.values() {
            let lacking = self.owners.get(id).map_or(0, |owner| owner.picks & !owner.complete);
            slots_of(lacking).for_each(|heir| self.streams.entry(heir).or_default().awaited.push_back(*id));
        }
        for (heir, stream) in &mut self.streams {
            // Of one that is a pick anew nothing counts that it accepts of before.
            stream.whole.retain(|(_, id)| self.owners.get(id).is_some_and(|owner| owner.complete >> *heir & 1 == 1));
            stream.to_fill.make_contiguous().sort_unstable();
            // When one of those is no pick any more it comes in again.
            stream.to_drop.retain(|id| !self.owners.get(id).is_some_and(|owner| owner.is_pick(*heir)));
            let Some(work) = stream.work else {
                stream.begin_fill();
                continue;
            };
            let owner = self.owners.get(&work.owner);
            match work.step {
                Step::Drop if owner.is_some_and(|owner| owner.is_pick(*heir)) => stream.work = None,
                Step::Drop => {}
                _ if owner.is_some_and(|owner| owner.lacks(*heir)) => stream.to_fill.retain(|id| *id != work.owner),
                _ => stream.work = None,
            }
            stream.begin_fill();
        }
    }

    /// The node of that slot is dead, or has lost what it had: nothing that was sent to it counts.
    pub fn lose(&mut self, heir: Slot) {
        self.streams.remove(&heir);
        self.heirs.base.lose(heir);
        self.heirs.next.lose(heir);
        for owner in self.owners.values_mut() {
            owner.picks &= !(1 << heir);
            owner.complete &= owner.picks;
            owner.accepted &= owner.picks;
            owner.begun &= owner.picks;
        }
        self.look_for_homeless();
    }

    fn look_for_homeless(&mut self) {
        let is_homeless = |copied: &Copied<E>| self.owners.get(&copied.owner).is_some_and(|owner| owner.picks == 0);
        let first = self.tail.iter().find(|(_, copied)| is_homeless(copied));
        self.homeless = first.filter(|_| self.heirs.wanted).map(|(submission, _)| *submission);
        self.settle();
    }
}

/// What is stable.
impl<E: Clone> Sending<E> {
    /// Everything up to a submission is kept here.
    pub fn kept(&mut self, submission: u64) {
        self.kept = self.kept.max(submission);
        self.settle();
    }

    /// An heir has accepted every frame up to a number.
    pub fn accepted(&mut self, heir: Slot, number: u64) {
        let Some(stream) = self.streams.get_mut(&heir) else {
            return;
        };
        while let Some(sent) = stream.under_way.pop_front_if(|sent| sent.number <= number) {
            if sent.fills {
                stream.fill_bytes -= sent.bytes;
            }
        }
        while let Some((_, owner)) = stream.whole.pop_front_if(|(last, _)| *last <= number) {
            if let Some(owner) = self.owners.get_mut(&owner) {
                owner.accepted |= 1 << heir;
            }
        }
        self.settle();
    }

    /// Whether something need not be held any more: it is kept here, and its heir has accepted all that it was sent.
    pub fn has_released(&self) -> bool {
        self.streams.values().any(|stream| stream.is_released(self.kept))
    }

    /// Writes what need not be held any more. To be asked for at the end of a turn, when the acknowledgements are in that have come meanwhile.
    pub fn released(&mut self) -> Vec<Frame<E>> {
        let mut batch = Batch::default();
        let released = self.streams.iter().filter(|(_, stream)| stream.is_released(self.kept));
        let heirs: Vec<Slot> = released.map(|(heir, _)| *heir).collect();
        heirs.into_iter().for_each(|heir| self.release(&mut batch, heir, self.kept));
        batch.frames
    }

    fn settle(&mut self) {
        let missing = self.streams.values().filter_map(Stream::first_unaccepted).chain(self.homeless).min();
        let stable = missing.map_or(self.kept, |first| self.kept.min(first.saturating_sub(1)));
        self.stable = self.stable.max(stable);
        while let Some((_, copied)) = self.tail.pop_front_if(|(submission, _)| *submission <= self.stable) {
            self.tail_bytes -= copied.bytes;
        }
    }

    /// Everything up to this submission is kept here and with the heirs.
    pub fn stable(&self) -> u64 {
        self.stable
    }

    /// Bytes of entries that are remembered until they are stable.
    pub fn unstable_bytes(&self) -> usize {
        self.tail_bytes
    }

    /// How far an heir is behind.
    pub fn lag(&self, heir: Slot) -> Lag {
        let Some(stream) = self.streams.get(&heir) else { return Lag::default() };
        let filled = stream.fill_sessions.saturating_sub(stream.left_to_fill());
        let (bytes, records) = stream.held.size();
        let (to_fill, filled_bytes) = (stream.fill_sessions, stream.filled_bytes);
        let lag = Lag { bytes, records, to_fill, filled, filled_bytes };
        stream.under_way.iter().fold(lag, |lag, sent| Lag {
            bytes: lag.bytes + sent.bytes,
            records: lag.records + sent.records,
            ..lag
        })
    }

    /// Owners that no heir was sent completely.
    pub fn without_copy(&self) -> usize {
        self.owners.values().filter(|owner| owner.complete == 0).count()
    }
}
