//! The copies of this shard's sessions on other nodes, at their home.
//!
//! What a turn has written down of the sessions goes to their heirs at its end, as frames in the streams to these nodes: see [`Sending`], of which this is the shell.
//! A frame is a leg like any other, and when it is accepted the heir has it on its disk. What sessions an heir lacks is read out of them, a part at a time, and their messages that are on
//! disk alone are read back for it.
//!
//! Owner: the shard, in [`Copying`]. Invariants: entries of a session go in the order in which they are handed to the storage; a part of a fill is made between turns, when all
//! that its session has was handed over before, so that an heir hears of no message before those that came before it in its stream.
//!
//! Test to read first: `tests::a_turn_of_a_session_becomes_a_frame_for_its_heir`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};
use holdfast_storage::{Entry, ItemId, OwnerId};

use crate::cluster::copies::{Copied, Effect, Frame, Heirs, Sending, Slot, Step, Work};
use crate::journal::{self, CopyWriter};
use crate::limits;
use crate::mqtt::{Message, MessageId, PacketId};
use crate::session::{Item, Position, Queued, Session};
use crate::subscriptions::{NodeSlot, ShardId};

use super::Shard;
use super::mailbox::{Event, Ticket};
use super::peers::slots_of;

/// What a frame is made of.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Entry(Entry),
    Complete(OwnerId),
    Seen(MessageId),
}

/// See the module.
#[derive(Default)]
pub(super) struct Copying {
    sending: Sending<Piece>,
    /// What this turn has written down.
    turn: Vec<Copied<Piece>>,
    owners: HashMap<OwnerId, Owner>,
    /// Items whose deletion waits until the heirs have what is in their place.
    held: HashSet<(OwnerId, ItemId)>,
    /// Messages that sessions have given back, until they are deleted: a copy has them as long.
    away: HashMap<OwnerId, Away>,
    /// What each heir is being sent whole.
    fillings: BTreeMap<Slot, Filling>,
    /// Heirs that were sent all of a session since the last turn: they have to hear what it has seen.
    filled: BTreeSet<Slot>,
    /// There may be something to fill.
    fills: bool,
}

type Away = BTreeMap<ItemId, Queued>;

/// A session of this shard.
struct Owner {
    client_id: Arc<str>,
    /// The epoch of the connection that began it.
    began: u64,
    /// Its header is still to be written, and there is nothing of it before.
    begins: bool,
}

/// A session on its way to one heir.
struct Filling {
    work: Work,
    /// All but the messages has gone; so many of the messages have.
    begun: bool,
    positions: Vec<Position>,
    gone: usize,
    /// What was read back for this.
    bodies: HashMap<Position, Option<Arc<Message>>>,
    reading: Reading,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Nothing,
    Asked(Ticket),
    /// What was asked for is here, and the part that waits for it is to be made.
    Done,
}

/// Bytes that are made of a session at once.
const PART_BYTES: usize = 64 * 1024;
/// Bytes of messages that are read back together.
const READ_BACK_BYTES: usize = 1024 * 1024;
/// Parts that are made in one turn.
const PARTS_PER_TURN: usize = 256;
/// The owner of what is said of no session.
const NOBODY: OwnerId = OwnerId(0);
/// About what an entry takes beside its value and its body.
const ENTRY_BYTES: usize = 32;

fn owner_of(entry: &Entry) -> OwnerId {
    match entry {
        Entry::Put { owner, .. } | Entry::Delete { owner, .. } | Entry::Drop { owner } => *owner,
    }
}

/// Whether the session is gone with it.
fn ends(entry: &Entry) -> bool {
    matches!(entry, Entry::Drop { .. } | Entry::Delete { item: journal::HEADER, .. })
}

fn begins(entry: &Entry) -> bool {
    matches!(entry, Entry::Put { item: journal::HEADER, .. })
}

fn bytes_of(entry: &Entry) -> usize {
    match entry {
        Entry::Put { value, body, .. } => ENTRY_BYTES + value.len() + body.as_ref().map_or(0, |body| body.size()),
        Entry::Delete { .. } | Entry::Drop { .. } => ENTRY_BYTES,
    }
}

fn effect_of(entry: &Entry) -> Effect {
    match entry {
        entry if ends(entry) => Effect::End,
        Entry::Put { item, value, .. } if journal::is_had_will(value) => Effect::Beside { item: *item },
        Entry::Put { item, value, body, .. } => {
            let passing = body.is_some() && journal::is_passing(value);
            Effect::Put { item: *item, passing, body: body.as_ref().map(|body| body.id()) }
        }
        Entry::Delete { item, .. } => Effect::Delete { item: *item },
        Entry::Drop { .. } => Effect::End,
    }
}

fn copied(entry: Entry) -> Copied<Piece> {
    let (owner, bytes, effect) = (owner_of(&entry), bytes_of(&entry), effect_of(&entry));
    Copied { owner, entry: Piece::Entry(entry), bytes, effect }
}

fn piece(owner: OwnerId, entry: Piece) -> Copied<Piece> {
    Copied { owner, entry, bytes: ENTRY_BYTES, effect: Effect::Other }
}

fn header(owner: OwnerId, client_id: &str, began: u64) -> Entry {
    Entry::Put { owner, item: journal::HEADER, value: journal::encode_header(client_id, began), body: None }
}

/// What sessions write.
impl Copying {
    /// A session from now on, of which nobody has a copy. If it `begins`, the header is the next that is written of it, and there is nothing to fill.
    pub fn add(&mut self, owner: OwnerId, client_id: &Arc<str>, began: u64, begins: bool) {
        self.owners.insert(owner, Owner { client_id: client_id.clone(), began, begins });
        if begins {
            self.sending.begin(owner, client_id.clone());
        } else {
            self.sending.add(owner, client_id.clone());
            self.fills = true;
        }
    }

    /// Notes what is written down of the sessions of this shard.
    pub fn write(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.write_entry(entry);
        }
    }

    pub fn write_entry(&mut self, entry: &Entry) {
        let id = owner_of(entry);
        let Some(owner) = self.owners.get_mut(&id) else {
            return;
        };
        if begins(entry) {
            if std::mem::take(&mut owner.begins) {
                self.turn.push(copied(entry.clone()));
                self.turn.push(piece(id, Piece::Complete(id)));
            }
            return;
        }
        if let Entry::Delete { item, .. } = entry
            && self.held.remove(&(id, *item))
        {
            return;
        }
        if let Entry::Delete { item, .. } = entry
            && let Some(away) = self.away.get_mut(&id)
            && away.remove(item).is_some()
            && away.is_empty()
        {
            self.away.remove(&id);
        }
        if ends(entry) {
            self.owners.remove(&id);
            self.away.remove(&id);
            self.held.retain(|(owner, _)| *owner != id);
        }
        self.turn.push(copied(entry.clone()));
    }

    /// The deletion of an item, which comes next, is not for the copy yet.
    pub fn hold(&mut self, owner: OwnerId, item: ItemId) {
        if self.owns(owner) {
            self.held.insert((owner, item));
        }
    }

    /// Messages are out of a session, and written down until their next owner has them. What is not kept yet comes to the heirs in any case.
    pub fn give_away(&mut self, owner: OwnerId, given: &[Queued]) {
        if self.owns(owner) && given.iter().any(|queued| queued.kept) {
            let kept = given.iter().filter(|queued| queued.kept);
            self.away.entry(owner).or_default().extend(kept.map(|queued| (queued.position, queued.clone())));
        }
    }

    /// Whether there may be something to fill, or to send that was held.
    pub fn has_work(&self) -> bool {
        self.fills || !self.filled.is_empty() || self.sending.has_released()
    }

    /// Whether it is a session of this shard.
    pub fn owns(&self, owner: OwnerId) -> bool {
        self.owners.contains_key(&owner)
    }

    /// What the turn has written down, as frames.
    fn submit(&mut self, submission: u64) -> Vec<Frame<Piece>> {
        self.sending.submit(submission, self.turn.drain(..))
    }

    /// What those have to hear that were sent all of a session, whether that lives or not. All that was seen is handed over.
    fn tell_seen(&mut self, seen: impl FnOnce() -> Vec<MessageId>) -> Vec<Frame<Piece>> {
        if self.filled.is_empty() {
            return Vec::new();
        }
        let seen = seen();
        let mut frames = Vec::new();
        for heir in std::mem::take(&mut self.filled) {
            frames.extend(self.sending.tell(heir, seen.iter().map(|id| piece(NOBODY, Piece::Seen(*id)))));
        }
        frames
    }

    pub fn stable(&self) -> u64 {
        self.sending.stable()
    }

    /// Somebody relies on what a session had when it was found, and takes it for stable. Returns what to wait for: see [`covered`](Self::covered); 0: nothing.
    pub fn cover(&mut self, owner: OwnerId) -> u64 {
        let awaited = self.sending.cover(owner);
        self.fills |= awaited > 0;
        awaited
    }

    /// Up to this all that was waited for has a copy.
    pub fn covered(&mut self) -> u64 {
        self.sending.covered()
    }

    pub fn unstable_bytes(&self) -> usize {
        self.sending.unstable_bytes()
    }

    /// The bytes of a frame. What its heir has to hear first of a session is put in front.
    fn encode(&mut self, frame: &Frame<Piece>, now: u64) -> Vec<u8> {
        let mut writer = CopyWriter::new(now);
        let is_ahead = |entry: &Entry| match entry {
            Entry::Put { body: Some(body), .. } => frame.ahead.contains(&body.id()),
            _ => false,
        };
        for piece in &frame.entries {
            let owner = match piece {
                Piece::Entry(entry) if ends(entry) => None,
                Piece::Entry(entry) => Some(owner_of(entry)),
                Piece::Complete(owner) => Some(*owner),
                Piece::Seen(_) => None,
            };
            if let Some(owner) = owner.filter(|owner| self.sending.must_begin(*owner, frame.heir))
                && let Some(Owner { client_id, began, .. }) = self.owners.get(&owner)
                && !matches!(piece, Piece::Entry(entry) if begins(entry))
            {
                writer.entry(&header(owner, client_id, *began));
            }
            match piece {
                Piece::Entry(entry) if is_ahead(entry) => writer.entry_ahead(entry),
                Piece::Entry(entry) => writer.entry(entry),
                Piece::Complete(owner) => writer.complete(*owner),
                Piece::Seen(id) => writer.seen(*id),
            }
        }
        writer.finish()
    }
}

impl Filling {
    fn new(work: Work, session: &Session, away: Option<&Away>) -> Filling {
        let away = away.into_iter().flatten().map(|(position, _)| *position);
        let positions = away.chain(session.message_positions()).collect();
        Filling { work, begun: false, positions, gone: 0, bodies: HashMap::new(), reading: Reading::Nothing }
    }

    /// The next part, and whether it is the last; nothing while messages have to be read back for it.
    fn part(&mut self, owner: OwnerId, session: &Session, away: Option<&Away>) -> Option<(Vec<Copied<Piece>>, bool)> {
        let mut part = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            session.items_without_message(|position, item| part.push(copied(put(owner, position, item, None))));
        }
        let mut bytes = 0;
        while let Some(position) = self.positions.get(self.gone).copied() {
            if bytes >= PART_BYTES {
                return Some((part, false));
            }
            let read = self.bodies.remove(&position);
            if let Some((queued, packet_id)) = written(session, away, position) {
                let body = match (queued.message().cloned(), read) {
                    (Some(message), _) | (None, Some(Some(message))) => Some(message),
                    // It is lost, and the session will find out when its turn comes.
                    (None, Some(None)) => None,
                    (None, None) if part.is_empty() => return None,
                    (None, None) => return Some((part, false)),
                };
                if let Some(body) = body {
                    let put = put(owner, position, Item::Message { queued, packet_id }, Some(body));
                    bytes += bytes_of(&put);
                    part.push(copied(put));
                }
            }
            self.gone += 1;
        }
        part.push(piece(owner, Piece::Complete(owner)));
        Some((part, true))
    }

    /// The messages to be read back next.
    fn wanted(&self, session: &Session, away: Option<&Away>) -> Vec<Position> {
        let mut bytes = 0;
        let left = self.positions.get(self.gone..).unwrap_or_default().iter().copied();
        let stored = left.filter_map(|position| {
            let (queued, _) = written(session, away, position)?;
            queued.message().is_none().then_some((position, queued.size()))
        });
        let within = stored.take_while(|(_, size)| {
            let within = bytes == 0 || bytes + size <= READ_BACK_BYTES;
            bytes += size;
            within
        });
        within.take(limits::READ_BACK_MESSAGES).map(|(position, _)| position).collect()
    }
}

/// The message at a position of a session, or of what it has given back.
fn written<'a>(
    session: &'a Session,
    away: Option<&'a Away>,
    position: Position,
) -> Option<(&'a Queued, Option<PacketId>)> {
    session.written_message(position).or_else(|| Some((away?.get(&position)?, None)))
}

fn put(owner: OwnerId, position: Position, item: Item<'_>, body: Option<Arc<Message>>) -> Entry {
    let body = body.map(|message| message as Arc<_>);
    Entry::Put { owner, item: position, value: journal::encode_item(item), body }
}

/// The end of a turn.
impl Shard {
    /// What a session, of whatever shard, has given back is with its next owner, and with the heir of that.
    pub(super) fn delete_from_copy(&mut self, owner: OwnerId, item: ItemId) {
        if self.keeping.delete_from_copy(owner, item) {
            return self.wake_flusher();
        }
        let own = self.id;
        for shard in (0..self.mail.len() as ShardId).filter(move |shard| *shard != own) {
            self.mail(shard, Event::GoneFromCopy { owner, item });
        }
    }

    /// Hands over what the turn has written down: to the disk, and to the heirs.
    pub(super) fn submit_turn(&mut self) {
        self.bound_wills();
        let submitted = self.keeping.submit(self.id);
        if !self.keeping.has_copies() {
            return;
        }
        if let Some(submission) = submitted {
            let frames = self.keeping.copying.as_mut().map(|copying| copying.submit(submission));
            self.send_copies(frames.unwrap_or_default());
        }
        let Shard { keeping, moves, .. } = self;
        let frames = keeping.copying.as_mut().map(|copying| copying.tell_seen(|| moves.seen_streams()));
        self.send_copies(frames.unwrap_or_default());
        if let Some(submission) = submitted {
            self.keeping.behind |= self.unstable_bytes() > limits::UNSTABLE_BYTES_HIGH;
            if self.keeping.is_kept_at_once() {
                self.kept(submission);
            }
        }
        let released = self.keeping.copying.as_mut().map(|copying| copying.sending.released());
        self.send_copies(released.unwrap_or_default());
        self.fill_copies();
    }

    fn unstable_bytes(&self) -> usize {
        self.keeping.copying.as_ref().map_or(0, |copying| copying.unstable_bytes())
    }

    fn send_copies(&mut self, frames: Vec<Frame<Piece>>) {
        for frame in frames {
            let Some(copying) = &mut self.keeping.copying else { return };
            let entries = copying.encode(&frame, self.now);
            if !self.push_copies(frame.heir, frame.number, &entries) {
                self.lose_heir(frame.heir);
            }
        }
    }

    /// Everything up to a submission is kept here.
    pub(super) fn copies_kept(&mut self, submission: u64) {
        let Some(copying) = &mut self.keeping.copying else { return };
        copying.sending.kept(submission);
        self.wake_to_release();
        self.settle_stable();
    }

    /// What was held goes at the end of this turn.
    fn wake_to_release(&mut self) {
        if self.keeping.copying.as_ref().is_some_and(|copying| copying.sending.has_released()) {
            self.wake_flusher();
        }
    }

    /// An heir has accepted every frame up to a number.
    pub(super) fn copies_accepted(&mut self, heir: NodeSlot, number: u64) {
        let Some(copying) = &mut self.keeping.copying else { return };
        copying.sending.accepted(heir, number);
        self.wake_to_release();
        self.settle_stable();
        self.look_whether_filled();
    }

    /// There is room in the window of a node.
    pub(super) fn fill_on(&mut self) {
        if let Some(copying) = &mut self.keeping.copying
            && !std::mem::replace(&mut copying.fills, true)
        {
            self.wake_flusher();
        }
    }

    /// A node is dead, or what it was sent does not count.
    pub(super) fn lose_heir(&mut self, heir: NodeSlot) {
        let Some(copying) = &mut self.keeping.copying else { return };
        copying.sending.lose(heir);
        copying.fillings.remove(&heir);
        copying.filled.remove(&heir);
        self.settle_stable();
    }

    /// Other nodes have the copies from now on, or another node is live.
    pub(super) fn heirs_changed(&mut self, heirs: &Heirs) {
        let Some(copying) = &mut self.keeping.copying else { return };
        let frames = copying.sending.change(heirs.clone());
        copying.fills = true;
        self.send_copies(frames);
        self.settle_stable();
        self.look_whether_filled();
        self.wake_flusher();
    }

    fn look_whether_filled(&mut self) {
        if let Some(copying) = &mut self.keeping.copying
            && copying.filled.is_empty()
            && let Some(fill) = copying.sending.fill_complete()
        {
            self.control.copies_filled(self.id, fill);
        }
    }

    /// Tells the node what each heir has not accepted, and counts. Called once in a second.
    pub(super) fn look_after_copies(&mut self) {
        self.fill_on();
        let Some(copying) = &self.keeping.copying else { return };
        let metrics = self.metrics();
        metrics.sessions_without_copy.set(copying.sending.without_copy() as u64);
        metrics.copies_unstable_bytes.set(copying.unstable_bytes() as u64);
        for slot in slots_of(self.peers.all()) {
            let lag = copying.sending.lag(slot);
            if let Some(node) = self.peers.node(slot) {
                self.control.copy_lag(self.id, node, lag);
            }
        }
    }
}

type ReadBack = Vec<(OwnerId, ItemId, Option<Arc<Message>>)>;

/// The fill.
impl Shard {
    /// Makes what heirs lack and can take.
    fn fill_copies(&mut self) {
        if !self.keeping.copying.as_ref().is_some_and(|copying| copying.fills) {
            return;
        }
        self.make_parts();
        if self.keeping.copying.as_ref().is_some_and(|copying| copying.has_work()) {
            self.wake_flusher();
        }
        self.look_whether_filled();
    }

    /// As many as one turn makes.
    fn make_parts(&mut self) {
        for _ in 0..PARTS_PER_TURN {
            let Some(copying) = self.keeping.copying.as_mut().filter(|copying| copying.fills) else { return };
            let ready = copying.fillings.values().find(|filling| filling.reading == Reading::Done);
            let ready = ready.map(|filling| filling.work);
            // Publishers are not to wait behind a fill, and it is not to take the last room on a disk.
            let (peers, short) = (&self.peers, self.shared.short_heirs.load(Ordering::Acquire));
            // But for what is waited for: the other end may owe us answers behind ours, and wait for the same.
            let may = |heir: NodeSlot, awaited: bool| (awaited || peers.has_room(heir)) && short >> heir & 1 == 0;
            match ready.or_else(|| copying.sending.next_work(may)) {
                Some(work) => self.make_copies(work),
                None => copying.fills = false,
            }
        }
    }

    fn make_copies(&mut self, work: Work) {
        let Some(copying) = &mut self.keeping.copying else { return };
        if work.step == Step::Drop {
            let frames = copying.sending.made(work, [copied(Entry::Drop { owner: work.owner })], true);
            return self.send_copies(frames);
        }
        let Some(session) = self.by_owner.get(&work.owner).map(|key| &self.sessions[*key as usize].session) else {
            copying.fillings.remove(&work.heir);
            let frames = copying.sending.made(work, [], true);
            return self.send_copies(frames);
        };
        let away = copying.away.get(&work.owner);
        let filling = copying.fillings.entry(work.heir).or_insert_with(|| Filling::new(work, session, away));
        if filling.work.owner != work.owner || work.step == Step::Begin && filling.work != work {
            *filling = Filling::new(work, session, away);
        }
        (filling.work, filling.reading) = (work, Reading::Nothing);
        match filling.part(work.owner, session, away) {
            Some((part, last)) => {
                if last {
                    copying.fillings.remove(&work.heir);
                    copying.filled.insert(work.heir);
                }
                let frames = copying.sending.made(work, part, last);
                self.send_copies(frames);
            }
            None => {
                let wanted = filling.wanted(session, away).into_iter().map(|position| (work.owner, position)).collect();
                self.next_ticket += 1;
                filling.reading = Reading::Asked(self.next_ticket);
                if let Some(storage) = self.keeping.storage() {
                    storage.load(self.id.into(), self.next_ticket, wanted);
                }
            }
        }
    }

    /// Messages have been read back. Gives them back if they were not for a copy.
    pub(super) fn read_back_to_copy(&mut self, ticket: Ticket, bodies: ReadBack) -> Option<ReadBack> {
        let Some(copying) = &mut self.keeping.copying else { return Some(bodies) };
        let reads = |filling: &&mut Filling| filling.reading == Reading::Asked(ticket);
        let Some(filling) = copying.fillings.values_mut().find(reads) else { return Some(bodies) };
        filling.bodies.extend(bodies.into_iter().map(|(_, position, message)| (position, message)));
        filling.reading = Reading::Done;
        copying.fills = true;
        self.wake_flusher();
        None
    }
}

#[cfg(test)]
mod tests;
