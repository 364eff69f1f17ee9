//! What a node has of the sessions of others: for each shard of another node the sessions that it copies here, with the values of their items, and the streams that
//! they have seen. The bodies are on disk alone.
//!
//! Owner: the shard that reads the connection of that home. It carries out what [`Copies::handle`] says in one submission, so that what is on disk is what the home had
//! at the end of one of its turns, and never a part of a turn. A start puts everything back with [`Copies::restore_session`] and [`Copies::restore_streams`].
//!
//! # Invariants
//! - A frame counts once, however often it comes: its number is written down with it, and numbers of a home grow, also over its restarts.
//! - A copy that is complete has what the home had when it sent the last frame; so the home begins a copy anew whenever an heir may have missed something.
//! - What was complete when it is begun anew stays beside the new copy, and follows what comes, until that is complete: a home may die while it fills its heir again.
//! - The sessions of a home have seen its streams up to what the last frame has wholly brought: a message that goes on in a later frame is *ahead*, and known for each session that has it.
//! - Nothing is written of an owner that was not begun, and no item deleted that is not there: the storage would wait for it.
//!
//! Test to read first: `tests::a_copy_is_begun_filled_and_followed`; then `tests::a_complete_copy_is_what_its_home_had`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_raft::NodeId;
use holdfast_storage::{ItemId, OwnerId, Value};
use thiserror::Error;

use crate::limits::{self, STREAMS_MAX};
use crate::mqtt::{Message, MessageId};

use super::{CopyEntry, CopyHeader, Home};

/// About what an item takes in memory beside its value, and a session beside its items.
const ITEM_BYTES: usize = 64;
const SESSION_BYTES: usize = 256;

/// Beyond so many messages that are ahead, one for each session that has it, the oldest are forgotten, and may come twice. There are more only if one message is for more sessions of one home.
const AHEAD_MAX: usize = 1 << 20;

/// What the own storage has to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Header {
        owner: OwnerId,
        header: CopyHeader,
    },
    Put {
        owner: OwnerId,
        item: ItemId,
        value: Value,
        body: Option<Arc<Message>>,
    },
    /// An item of the owner of a home's streams.
    Stream {
        owner: OwnerId,
        item: ItemId,
        id: MessageId,
    },
    Delete {
        owner: OwnerId,
        item: ItemId,
    },
    Drop {
        owner: OwnerId,
    },
}

/// The home holds more sessions here than one can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the copies of one shard of another node take more memory than they may")]
pub struct TooMuch;

/// The copy of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its owner here. Of two copies of one session the one with the greater owner is the newer.
    pub owner: OwnerId,
    pub client_id: Arc<str>,
    pub began: u64,
    /// One that is not is of no use when its home dies.
    pub complete: bool,
    pub items: BTreeMap<ItemId, Value>,
    /// Messages that it has, or has had, although others of its home may not. Known when it is taken, of what has come since this node has started.
    pub ahead: Vec<MessageId>,
}

impl Copied {
    fn bytes(&self) -> usize {
        SESSION_BYTES + self.client_id.len() + self.items.values().map(item_bytes).sum::<usize>()
    }

    fn write_header(&self, home: Home, owner: OwnerId) -> Write {
        let (client_id, began, complete) = (self.client_id.clone(), self.began, self.complete);
        Write::Header { owner: self.owner, header: CopyHeader::Session { home, owner, client_id, began, complete } }
    }
}

fn item_bytes(value: &Value) -> usize {
    ITEM_BYTES + value.len()
}

/// Everything of one shard of a node that is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Whose items say which streams these sessions have seen.
    pub streams_owner: Option<OwnerId>,
    /// The last message of each stream that they have seen, in no order.
    pub seen: Vec<MessageId>,
    pub sessions: Vec<Copied>,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copies {
    homes: BTreeMap<Home, OfHome>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfHome {
    /// That of the streams; none before the first frame.
    owner: Option<OwnerId>,
    /// The number of the last frame that counts.
    up_to: u64,
    streams: HashMap<(u64, u16), Stream>,
    /// What owners at home have beyond that.
    ahead: VecDeque<(OwnerId, MessageId)>,
    /// By their owners at home.
    sessions: HashMap<OwnerId, Copied>,
    /// The copies, all of them complete, of those that were begun anew and are not complete.
    earlier: HashMap<OwnerId, Copied>,
    /// Of the memory that the sessions take.
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stream {
    item: ItemId,
    sequence: u64,
}

impl OfHome {
    /// The last message of each stream, in no order.
    fn seen(&self) -> Vec<MessageId> {
        self.streams.iter().map(|(&(node, shard), stream)| stream.id(node, shard)).collect()
    }

    /// Whether all sessions have the message.
    fn has_seen(&self, id: MessageId) -> bool {
        self.streams.get(&(id.node, id.shard)).is_some_and(|stream| id.sequence <= stream.sequence)
    }

    fn note_ahead(&mut self, owner: OwnerId, id: MessageId) {
        if self.has_seen(id) || !self.sessions.contains_key(&owner) {
            return;
        }
        self.ahead.push_back((owner, id));
        if self.ahead.len() > AHEAD_MAX {
            self.ahead.pop_front();
        }
    }

    /// Takes out what there is of a session.
    fn remove(&mut self, owner: OwnerId) -> impl Iterator<Item = Copied> {
        let copies = [self.earlier.remove(&owner), self.sessions.remove(&owner)].into_iter().flatten();
        copies.inspect(|copied| self.bytes -= copied.bytes())
    }

    /// The copies of a session, the one that is complete first if there are two.
    fn copies_of(&mut self, owner: OwnerId) -> impl Iterator<Item = &mut Copied> {
        self.earlier.get_mut(&owner).into_iter().chain(self.sessions.get_mut(&owner))
    }
}

impl Copies {
    /// A frame has come from a home, whose number in the stream of that home is `sequence`. Returns what to write for it, all in one submission. `new_owner` gives owners
    /// that there never were, each greater than those before.
    ///
    /// # Errors
    /// When there is no room for more; nothing of the frame counts then.
    pub fn handle(
        &mut self,
        home: Home,
        sequence: u64,
        entries: Vec<CopyEntry>,
        mut new_owner: impl FnMut() -> OwnerId,
    ) -> Result<Vec<Write>, TooMuch> {
        let of_home = self.homes.entry(home).or_default();
        if sequence <= of_home.up_to {
            return Ok(Vec::new());
        }
        // A frame is small beside the bound. What makes room is taken in any case.
        let grows = |entry: &CopyEntry| matches!(entry, CopyEntry::Begin { .. } | CopyEntry::Put { .. });
        if of_home.bytes > limits::COPIED_BYTES_MAX && entries.iter().any(grows) {
            return Err(TooMuch);
        }
        let mut frame = Frame { home, of_home, moved: BTreeSet::new(), writes: Vec::with_capacity(entries.len() + 1) };
        entries.into_iter().for_each(|entry| frame.take(entry, &mut new_owner));
        Ok(frame.end(sequence, &mut new_owner))
    }

    /// Puts the copy of a session back that was found at the start. Returns the owners that are to be dropped: those too many, as damage may leave behind.
    pub fn restore_session(
        &mut self,
        home: Home,
        owner: OwnerId,
        copied: Copied,
    ) -> impl Iterator<Item = OwnerId> + use<> {
        let of_home = self.homes.entry(home).or_default();
        let mut copies: Vec<Copied> = of_home.remove(owner).chain([copied]).collect();
        copies.sort_unstable_by_key(|copied| copied.owner);
        if let Some(newest) = copies.pop() {
            let earlier = copies.iter().rposition(|copied| copied.complete && !newest.complete);
            let earlier = earlier.map(|at| copies.remove(at));
            of_home.bytes += newest.bytes() + earlier.as_ref().map_or(0, Copied::bytes);
            of_home.sessions.insert(owner, newest);
            of_home.earlier.extend(earlier.map(|earlier| (owner, earlier)));
        }
        copies.into_iter().map(|copied| copied.owner)
    }

    /// Puts back what was found of the streams of a home: `owner` has `items`. Returns the owner that is to be dropped if there are two, as damage may leave behind: the one
    /// that knows less.
    pub fn restore_streams(
        &mut self,
        home: Home,
        owner: OwnerId,
        up_to: u64,
        items: &[(ItemId, MessageId)],
    ) -> Option<OwnerId> {
        let of_home = self.homes.entry(home).or_default();
        if of_home.owner.is_some_and(|other| (of_home.up_to, other) > (up_to, owner)) {
            return Some(owner);
        }
        of_home.up_to = up_to;
        of_home.streams.clear();
        for (item, id) in items {
            of_home.streams.insert((id.node, id.shard), Stream { item: *item, sequence: id.sequence });
        }
        of_home.owner.replace(owner)
    }

    /// The value of an item, if a copy of its session has it; as the one that is complete has it, if there are two.
    pub fn value(&self, home: Home, owner: OwnerId, item: ItemId) -> Option<&Value> {
        let of_home = self.homes.get(&home)?;
        let copies = of_home.earlier.get(&owner).into_iter().chain(of_home.sessions.get(&owner));
        copies.into_iter().find_map(|copied| copied.items.get(&item))
    }

    /// The nodes that have copies here.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let mut last = None;
        self.homes.keys().map(|home| home.node).filter(move |node| last.replace(*node) != Some(*node))
    }

    /// The node is dead: its copies are no longer copies. What is not entered as a session is to be dropped.
    pub fn take(&mut self, node: NodeId) -> Vec<Taken> {
        let of_node = self.homes.extract_if(.., |home, _| home.node == node);
        let taken = of_node.map(|(_, of_home)| Taken {
            streams_owner: of_home.owner,
            seen: of_home.seen(),
            sessions: with_what_they_had(of_home.sessions.into_iter().chain(of_home.earlier), &of_home.ahead),
        });
        taken.collect()
    }

    /// The complete copies of wanted sessions, by the nodes that had them, each with what that had seen: they are no longer copies.
    pub fn take_some(&mut self, is_wanted: impl Fn(&str) -> bool) -> Vec<(NodeId, Taken)> {
        let mut taken = Vec::new();
        for (home, of_home) in &mut self.homes {
            let wanted = |copied: &Copied| copied.complete && is_wanted(&copied.client_id);
            let OfHome { sessions, earlier, ahead, .. } = of_home;
            let of_it =
                [sessions, earlier].into_iter().flat_map(|copies| copies.extract_if(|_, copied| wanted(copied)));
            let sessions = with_what_they_had(of_it, ahead);
            if !sessions.is_empty() {
                of_home.bytes -= sessions.iter().map(Copied::bytes).sum::<usize>();
                taken.push((home.node, Taken { streams_owner: None, seen: of_home.seen(), sessions }));
            }
        }
        taken
    }

    /// The complete copies of the sessions of a node.
    pub fn complete_of(&self, node: NodeId) -> impl Iterator<Item = &Copied> {
        let of_node = self.homes.iter().filter(move |(home, _)| home.node == node);
        let copies = of_node.flat_map(|(_, of_home)| of_home.sessions.values().chain(of_home.earlier.values()));
        copies.filter(|copied| copied.complete)
    }

    /// The sessions of a node have changed their heirs: those that `keep` does not name have theirs elsewhere, unless this node is behind in what it knows. Returns the
    /// owners of their copies here.
    pub fn elsewhere(&self, node: NodeId, keep: impl Fn(&str) -> bool) -> BTreeSet<OwnerId> {
        let of_node = self.homes.iter().filter(|(home, _)| home.node == node);
        let copies = of_node.flat_map(|(_, of_home)| of_home.sessions.values().chain(of_home.earlier.values()));
        copies.filter(|copied| !keep(&copied.client_id)).map(|copied| copied.owner).collect()
    }

    /// These copies are of no use. Returns what to write.
    pub fn discard(&mut self, node: NodeId, owners: &BTreeSet<OwnerId>) -> Vec<Write> {
        let mut writes = Vec::new();
        for (_, of_home) in self.homes.iter_mut().filter(|(home, _)| home.node == node) {
            let OfHome { sessions, earlier, bytes, .. } = of_home;
            for copies in [sessions, earlier] {
                for (_, copied) in copies.extract_if(|_, copied| owners.contains(&copied.owner)) {
                    *bytes -= copied.bytes();
                    writes.push(Write::Drop { owner: copied.owner });
                }
            }
        }
        writes
    }

    /// Nothing that the node has here is of any use: it began anew, or others have inherited from it. Returns what to write.
    pub fn forget(&mut self, node: NodeId) -> Vec<Write> {
        let owners = self.take(node).into_iter().flat_map(|taken| {
            let sessions = taken.sessions.into_iter().map(|copied| copied.owner);
            sessions.chain(taken.streams_owner)
        });
        owners.map(|owner| Write::Drop { owner }).collect()
    }
}

/// By their owners at home.
fn with_what_they_had(
    sessions: impl Iterator<Item = (OwnerId, Copied)>,
    ahead: &VecDeque<(OwnerId, MessageId)>,
) -> Vec<Copied> {
    let mut messages = HashMap::<OwnerId, Vec<MessageId>>::new();
    ahead.iter().for_each(|(owner, id)| messages.entry(*owner).or_default().push(*id));
    // Of two copies of a session either may be the one that is entered.
    let sessions = sessions.map(|(at_home, copied)| {
        let ahead = messages.get(&at_home).cloned().unwrap_or_default();
        Copied { ahead, ..copied }
    });
    sessions.collect()
}

/// One frame while its entries are taken.
struct Frame<'a> {
    home: Home,
    of_home: &'a mut OfHome,
    /// The streams that have moved on with it.
    moved: BTreeSet<(u64, u16)>,
    writes: Vec<Write>,
}

impl Frame<'_> {
    fn take(&mut self, entry: CopyEntry, new_owner: &mut impl FnMut() -> OwnerId) {
        match entry {
            CopyEntry::Begin { owner, client_id, began } => self.begin(owner, new_owner(), client_id, began),
            CopyEntry::Put { owner, item, value, body, ahead } => {
                match &body {
                    Some(message) if ahead => self.of_home.note_ahead(owner, message.id),
                    Some(message) => self.note(message.id),
                    None => {}
                }
                self.put(owner, item, value, body);
            }
            CopyEntry::Delete { owner, item } => self.delete(owner, item),
            CopyEntry::Drop { owner } => self.drop(owner),
            CopyEntry::Complete { owner } => self.complete(owner),
            CopyEntry::Seen { id } => self.note(id),
        }
    }

    fn begin(&mut self, owner: OwnerId, own: OwnerId, client_id: Arc<str>, began: u64) {
        let before = self.of_home.sessions.remove(&owner);
        match before {
            // Another session may have the owner only after the end of this one.
            Some(complete) if complete.complete => _ = self.of_home.earlier.insert(owner, complete),
            Some(copied) => {
                self.of_home.bytes -= copied.bytes();
                self.writes.push(Write::Drop { owner: copied.owner });
            }
            None => {}
        }
        let copied =
            Copied { owner: own, client_id, began, complete: false, items: BTreeMap::new(), ahead: Vec::new() };
        self.writes.push(copied.write_header(self.home, owner));
        self.of_home.bytes += copied.bytes();
        self.of_home.sessions.insert(owner, copied);
    }

    fn complete(&mut self, owner: OwnerId) {
        if let Some(copied) = self.of_home.sessions.get_mut(&owner) {
            copied.complete = true;
            self.writes.push(copied.write_header(self.home, owner));
        }
        if let Some(earlier) = self.of_home.earlier.remove(&owner) {
            self.of_home.bytes -= earlier.bytes();
            self.writes.push(Write::Drop { owner: earlier.owner });
        }
    }

    fn put(&mut self, owner: OwnerId, item: ItemId, value: Value, body: Option<Arc<Message>>) {
        let (mut added, mut removed) = (0, 0);
        for copied in self.of_home.copies_of(owner) {
            added += item_bytes(&value);
            removed += copied.items.insert(item, value.clone()).as_ref().map_or(0, item_bytes);
            self.writes.push(Write::Put { owner: copied.owner, item, value: value.clone(), body: body.clone() });
        }
        self.of_home.bytes = self.of_home.bytes + added - removed;
    }

    fn delete(&mut self, owner: OwnerId, item: ItemId) {
        let mut removed = 0;
        for copied in self.of_home.copies_of(owner) {
            if let Some(value) = copied.items.remove(&item) {
                removed += item_bytes(&value);
                self.writes.push(Write::Delete { owner: copied.owner, item });
            }
        }
        self.of_home.bytes -= removed;
    }

    fn drop(&mut self, owner: OwnerId) {
        let writes = &mut self.writes;
        self.of_home.remove(owner).for_each(|copied| writes.push(Write::Drop { owner: copied.owner }));
    }

    /// The sessions of the home have this message.
    fn note(&mut self, id: MessageId) {
        let MessageId { node, shard, sequence } = id;
        let (streams, key) = (&mut self.of_home.streams, (node, shard));
        if usize::from(id.accepted_by()) >= limits::SHARDS_MAX {
            return;
        }
        let item = match streams.get(&key) {
            Some(stream) if sequence <= stream.sequence => return,
            Some(stream) => stream.item,
            None if streams.len() >= STREAMS_MAX => return,
            // The header is before the first.
            None => streams.values().map(|stream| stream.item).max().unwrap_or(0) + 1,
        };
        streams.insert(key, Stream { item, sequence });
        self.moved.insert(key);
    }

    fn end(mut self, sequence: u64, new_owner: &mut impl FnMut() -> OwnerId) -> Vec<Write> {
        self.of_home.up_to = sequence;
        let owner = *self.of_home.owner.get_or_insert_with(new_owner);
        if !self.moved.is_empty() && !self.of_home.ahead.is_empty() {
            let mut ahead = std::mem::take(&mut self.of_home.ahead);
            ahead.retain(|(_, id)| !self.of_home.has_seen(*id));
            self.of_home.ahead = ahead;
        }
        for (node, shard) in self.moved {
            if let Some(stream) = self.of_home.streams.get(&(node, shard)) {
                self.writes.push(Write::Stream { owner, item: stream.item, id: stream.id(node, shard) });
            }
        }
        let header = CopyHeader::Streams { home: self.home, up_to: sequence };
        self.writes.push(Write::Header { owner, header });
        self.writes
    }
}

impl Stream {
    fn id(self, node: u64, shard: u16) -> MessageId {
        MessageId { node, shard, sequence: self.sequence }
    }
}

#[cfg(test)]
mod tests;
