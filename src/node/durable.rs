//! The node and its disk: opening, what was found, who is told.
//!
//! Order of a start with a data directory: the journal is opened (damage ends it here, or is put aside); the control state takes up the leases; sessions that still
//! have a lease are given to their shards, the others are dropped; retained messages are read; the shards enter their sessions in the
//! index; then the listeners open. Nothing is deleted that does not decode: such a start is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use thiserror::Error;
use tracing::{info, warn};

use holdfast_raft::{LeaseChange, LeaseImage, NodeId, Standalone};
use holdfast_storage::{Alive, Audience, Entry, ItemId, Opened, OwnerId, Recovered, RecoveredItem, State, Storage};

use crate::cluster::copies::CopyHeader;
use crate::cluster::copies::receiving::Copied;
use crate::cluster::share_groups::{Rank, SharedMessage};
use crate::config::{self, Config};
use crate::journal::{self, Header, Mark};
use crate::mqtt::MessageId;
use crate::retained::{Version, Write, Writes};
use crate::session::{Queued, Restored};
use crate::shard::Shared;
use crate::shard::clock::Clock;
use crate::shard::mailbox::Event;
use crate::shard::restoring::{Stored, StoredSession};

#[cfg(test)]
mod tests;

/// Why what is on disk cannot be taken up.
#[derive(Debug, Error)]
pub enum RecoverError {
    #[error("{0}")]
    Open(#[from] holdfast_storage::OpenError),
    #[error(
        "retained messages: {0}; `holdfast data verify` shows all damage. Restore the data directory from a copy, or set on_corruption = \"quarantine\" in [storage] to go on without them"
    )]
    Bodies(#[from] holdfast_storage::BodiesError),
    #[error(
        "this node has run here before (file \"alive\"), and its journal is gone: restore the folder journal from a copy, or remove the file \"alive\" to begin with nothing"
    )]
    Gone,
    #[error(
        "the journal belongs to node {0:032x}, and node.id is that of another: it was copied or moved here. Restore what belongs together"
    )]
    OfAnother(u128),
    #[error(
        "item {item} of owner {owner} in the journal is in a form that this program does not know: it was written by a newer Holdfast: start that one on this data directory"
    )]
    Unknown { owner: u64, item: ItemId },
}

/// How late what nobody waits for is written.
const LAZY: Duration = Duration::from_millis(200);

/// Opens the journal under the data directory.
pub(super) fn open(data_dir: &Path, config: &config::Storage, shards: usize) -> Result<Opened, RecoverError> {
    let on_corruption = match config.on_corruption {
        config::OnCorruption::Halt => holdfast_storage::journal::OnCorruption::Halt,
        config::OnCorruption::Quarantine => holdfast_storage::journal::OnCorruption::Quarantine,
    };
    let journal = holdfast_storage::journal::Options {
        segment_bytes: config.segment_bytes,
        bytes_max: config.max_bytes,
        on_corruption,
        ..Default::default()
    };
    let options = holdfast_storage::Options { journal, sources: shards + 1, lazy: LAZY };
    let opened = Storage::open(&data_dir.join("journal"), options)?;
    for damage in &opened.report.damage {
        warn!(
            event = "storage",
            file = %data_dir.join("journal").join(&damage.file).display(),
            offset = damage.offset,
            "damage in the journal: {}. What can be read is kept; what could be copied of the file is in {}",
            damage.what,
            data_dir.join("quarantine").display()
        );
    }
    if opened.report.torn_bytes > 0 {
        warn!(
            event = "storage",
            bytes = opened.report.torn_bytes,
            "the last write was cut short and does not count: nobody was told of it, unless the file was damaged since"
        );
    }
    Ok(opened)
}

/// When the node was last seen to run. What the file says is believed only as far as a clock may be wrong: a damaged number must not
/// make everything expire.
pub(super) fn last_seen(journal: u64, alive: u64) -> u64 {
    let now = Clock::start_at(0).now();
    if alive > journal.max(now) + CLOCK_ERROR_MAX_MS { journal } else { journal.max(alive) }
}

/// A day.
const CLOCK_ERROR_MAX_MS: u64 = 86_400_000;

/// What a node takes up.
pub(super) struct TakenUp {
    pub standalone: Standalone,
    /// For each shard.
    pub stored: Vec<Stored>,
    /// Where the streams of this run begin.
    pub sequence: u64,
    /// Leases of a node that was alone until now, and is one of a cluster from now on.
    pub alone: Vec<LeaseImage>,
    /// Whether all was there that had been written: nothing was damaged.
    pub whole: bool,
    /// What the disk has to hear of the start.
    entries: Vec<Entry>,
}

/// A node that has nothing on disk.
pub(super) fn nothing(node: NodeId, name: &str, shards: usize) -> TakenUp {
    TakenUp {
        standalone: Standalone::new(node, name),
        stored: (0..shards).map(|_| Stored::default()).collect(),
        sequence: 0,
        alone: Vec::new(),
        whole: true,
        entries: Vec::new(),
    }
}

/// Takes up what was found: the control state, the sessions of each shard, and the retained messages, which go into `shared`.
pub(super) fn take_up(
    opened: &mut Opened,
    (node, name): (NodeId, &str),
    shared: &Shared,
    on_corruption: config::OnCorruption,
) -> Result<TakenUp, RecoverError> {
    let lenient = on_corruption == config::OnCorruption::Quarantine;
    let Recovered { last_time, owners, .. } = std::mem::take(&mut opened.recovered);
    let mut found = Found::default();
    for (owner, items) in owners {
        found.sort_in(owner, items)?;
    }
    let mut entries = found.begin_incarnation(node);
    let alone = if shared.clustered { found.leave_solitude(&mut entries) } else { Vec::new() };
    let now = shared.clock.now();
    let expiries: HashMap<Arc<str>, u32> =
        found.leases.iter().map(|image| (image.client.clone(), image.expiry_secs)).collect();
    let (standalone, changes) = Standalone::restore(node, name, now, last_time, std::mem::take(&mut found.leases));
    entries.extend(journal::lease_entries(changes));
    let mut stored: Vec<Stored> = (0..shared.mailboxes.len()).map(|_| Stored::default()).collect();
    let mut dropped = 0;
    for (owner, header, items) in std::mem::take(&mut found.sessions) {
        // It began later than its lease says if damage had taken the one before, with which the lease began.
        let lease = standalone.state().session(&header.client_id).filter(|lease| lease.began <= header.began);
        // Which sessions are its own the cluster tells a node when it has registered.
        let epoch = if shared.clustered { Some(header.began) } else { lease.map(|lease| lease.epoch) };
        let Some(epoch) = epoch else {
            entries.push(Entry::Drop { owner });
            dropped += 1;
            continue;
        };
        let unknown = if shared.clustered { holdfast_raft::command::NEVER_EXPIRES } else { 0 };
        let expiry_secs = expiries.get(&header.client_id).copied().unwrap_or(unknown);
        let shard = usize::from(shared.shard_of(&header.client_id));
        let Header { client_id, .. } = header;
        stored[shard].sessions.push(StoredSession { owner, client_id, epoch, expiry_secs, items });
    }
    stored[0].given_back = std::mem::take(&mut found.given_back);
    if shared.clustered {
        found.note_in_groups(&stored, shared);
    }
    found.give_marks(&mut stored, &mut entries);
    found.give_copies(&mut stored, &mut entries);
    let in_groups = Arc::new(std::mem::take(&mut found.shared));
    stored.iter_mut().for_each(|stored| stored.shared = in_groups.clone());
    found.check_node(node)?;
    let unreadable = take_up_retained(opened, shared, &mut found, &mut entries);
    match unreadable {
        Err(RecoverError::Bodies(error)) if lenient => {
            tracing::error!(event = "storage", %error, "retained messages that cannot be read are left out");
            entries.extend(found.unread_retained(&shared.retained.read()));
        }
        other => other?,
    }
    let sequence = journal::first_sequence(found.incarnation);
    let sessions: usize = stored.iter().map(|stored| stored.sessions.len()).sum();
    let retained = shared.retained.read().len();
    info!(event = "recovered", sessions, retained, ended = dropped, incarnation = found.incarnation, "state recovered");
    let whole = opened.report.damage.is_empty();
    Ok(TakenUp { standalone, stored, sequence, alone, whole, entries })
}

/// Retained messages are read whole. Of two of one topic, which the end of a run may leave behind, the newer one stays.
fn take_up_retained(
    opened: &Opened,
    shared: &Shared,
    found: &mut Found,
    entries: &mut Vec<Entry>,
) -> Result<(), RecoverError> {
    let mut retained = shared.retained.write();
    retained.number_items_from(journal::first_retained_item(found.incarnation));
    let mut unknown = None;
    let mut void = |writes: Writes| entries.extend(writes.into_iter().map(journal::retained_entry));
    let read = opened.bodies(journal::RETAINED, &mut |item, bytes| match journal::decode_message(bytes) {
        Some(mut message) => {
            if message.id.node == 0 {
                // Of a time when messages did not name their node: it was this one, or an import made it.
                message.id.node = shared.node_tag;
            }
            shared.hybrid.resume(message.stamp);
            void(retained.restore(item, Arc::new(message)));
        }
        None => unknown = Some(item),
    });
    for (item, topic, version) in std::mem::take(&mut found.tombstones) {
        shared.hybrid.resume(version.stamp);
        void(retained.restore_tombstone(shared.clock.now(), item, topic, version));
    }
    read?;
    unknown.map_or(Ok(()), |item| Err(RecoverError::Unknown { owner: journal::RETAINED.0, item }))
}

type FoundSession = (OwnerId, Header, Vec<(ItemId, Restored)>);

/// The owners, sorted by what they are.
#[derive(Default)]
struct Found {
    incarnation: u64,
    earlier_starts: Vec<ItemId>,
    /// Whose the journal is, as its last start said.
    node: Option<u128>,
    retained: Vec<ItemId>,
    tombstones: Vec<(ItemId, Arc<str>, Version)>,
    leases: Vec<LeaseImage>,
    sessions: Vec<FoundSession>,
    given_back: Vec<(OwnerId, Vec<Queued>)>,
    marks: Vec<(ItemId, Mark)>,
    copies: Vec<(OwnerId, CopyHeader, Vec<RecoveredItem>)>,
    /// The messages for share groups that sessions have.
    shared: HashSet<SharedMessage>,
    /// The items of those that are of QoS 2.
    shared_once: Vec<(OwnerId, RecoveredItem)>,
}

impl Found {
    /// Whoever asks for one of them is told that it is here.
    fn note_in_groups(&mut self, stored: &[Stored], shared: &Shared) {
        let node = shared.node_tag;
        let sessions = stored.iter().flat_map(|stored| &stored.sessions);
        let sessions = sessions.map(|session| (session.owner, Rank::of_session(node, session.owner, session.epoch)));
        let left = stored.iter().flat_map(|stored| &stored.given_back);
        let left = left.map(|(owner, _)| (*owner, Rank::of_left(node, *owner)));
        let ranks: HashMap<_, _> = sessions.chain(left).collect();
        for (owner, RecoveredItem { item, value, .. }) in std::mem::take(&mut self.shared_once) {
            if let Some(rank) = ranks.get(&owner) {
                shared.shares_had.note_taken_up([(&item, &value)].into_iter(), Some(*rank));
            }
        }
    }

    fn sort_in(&mut self, owner: OwnerId, items: Vec<RecoveredItem>) -> Result<(), RecoverError> {
        match owner {
            journal::NODE => {
                self.node =
                    items.last().and_then(|item| <[u8; 16]>::try_from(&*item.value).ok()).map(u128::from_be_bytes);
                self.earlier_starts = items.iter().map(|item| item.item).collect();
            }
            journal::LEASES => {
                for RecoveredItem { item, value, .. } in items {
                    self.leases.push(
                        journal::decode_lease(item, &value).ok_or(RecoverError::Unknown { owner: owner.0, item })?,
                    );
                }
            }
            journal::RETAINED => {
                for RecoveredItem { item, value, .. } in items {
                    if value.is_empty() {
                        self.retained.push(item);
                        continue;
                    }
                    let unknown = RecoverError::Unknown { owner: owner.0, item };
                    let (topic, version) = journal::decode_tombstone(&value).ok_or(unknown)?;
                    self.tombstones.push((item, topic, version));
                }
            }
            journal::MARKS => {
                for RecoveredItem { item, value, .. } in items {
                    let mark = journal::decode_mark(&value).ok_or(RecoverError::Unknown { owner: owner.0, item })?;
                    self.marks.push((item, mark));
                }
            }
            _ => self.sort_in_session(owner, items)?,
        }
        Ok(())
    }

    fn sort_in_session(&mut self, owner: OwnerId, mut items: Vec<RecoveredItem>) -> Result<(), RecoverError> {
        let is_header = |item: &RecoveredItem| item.item == journal::HEADER;
        let of_copy =
            items.iter().find(|item| is_header(item)).and_then(|item| journal::decode_copied_header(&item.value));
        if let Some(header) = of_copy {
            items.retain(|item| !is_header(item));
            self.copies.push((owner, header, items));
            return Ok(());
        }
        let mut header = None;
        let mut restored = Vec::with_capacity(items.len());
        for RecoveredItem { item, value, .. } in items {
            let unknown = RecoverError::Unknown { owner: owner.0, item };
            if item == journal::HEADER {
                header = Some(Header::decode(&value).ok_or(unknown)?);
            } else {
                self.shared.extend(journal::shared_message(&value));
                restored.push((item, journal::decode_item(item, &value).ok_or(unknown)?));
                if journal::is_shared_once(&value) {
                    self.shared_once.push((owner, RecoveredItem { item, value, body: None }));
                }
            }
        }
        match header {
            Some(header) => self.sessions.push((owner, header, restored)),
            None => self.given_back.push((owner, shared_messages(restored))),
        }
        Ok(())
    }

    /// A node of a cluster has its leases in the control state of all: those that it kept for itself when it was alone are taken there. Of two sessions of one
    /// client, of which one has gone elsewhere and come back, the older one goes.
    fn leave_solitude(&mut self, entries: &mut Vec<Entry>) -> Vec<LeaseImage> {
        self.sessions.sort_by_key(|(_, header, _)| std::cmp::Reverse(header.began));
        let mut clients = HashSet::new();
        self.sessions.retain(|(owner, header, _)| {
            let newest = clients.insert(header.client_id.clone());
            if !newest {
                entries.push(Entry::Drop { owner: *owner });
            }
            newest
        });
        let leases = std::mem::take(&mut self.leases);
        entries.extend(leases.iter().map(|image| Entry::Delete { owner: journal::LEASES, item: image.item }));
        leases.into_iter().filter(|image| !image.ended && image.expiry_secs > 0).collect()
    }

    /// Each shard has its own marks. When there were more shards, or fewer, sessions are elsewhere now, and only what all of them had is known of any.
    fn give_marks(&mut self, stored: &mut [Stored], entries: &mut Vec<Entry>) {
        let shards = stored.len() as u16;
        let marks = std::mem::take(&mut self.marks);
        if marks.iter().all(|(_, mark)| mark.shards == shards) {
            for (item, mark) in marks {
                if let Some(stored) = stored.get_mut(usize::from(journal::shard_of_mark(item))) {
                    stored.marks.push((item, mark.id));
                }
            }
            return;
        }
        let mut of_streams: HashMap<(u64, u16), (u16, u64)> = HashMap::new();
        for (item, mark) in &marks {
            entries.push(Entry::Delete { owner: journal::MARKS, item: *item });
            let stream = of_streams.entry((mark.id.node, mark.id.shard)).or_insert((0, u64::MAX));
            *stream = (stream.0 + 1, stream.1.min(mark.id.sequence));
        }
        let were = marks.iter().map(|(_, mark)| mark.shards).max().unwrap_or(0);
        let known = of_streams.into_iter().filter(|(_, (by, _))| *by == were);
        let known: Vec<MessageId> =
            known.map(|((node, shard), (_, sequence))| MessageId { node, shard, sequence }).collect();
        for (shard, stored) in (0_u16..).zip(stored) {
            let of_it = marks.iter().map(|(item, _)| *item).filter(|item| journal::shard_of_mark(*item) == shard);
            let next = of_it.max().map_or(journal::first_mark(shard), |last| last + 1);
            stored.marks.extend((next..).zip(known.iter().copied()));
        }
    }

    /// The copies of a shard of another node are with the shard that reads its connection. Which of them are of any use is known later.
    fn give_copies(&mut self, stored: &mut [Stored], entries: &mut Vec<Entry>) {
        let shards = stored.len();
        for (owner, header, items) in std::mem::take(&mut self.copies) {
            let (CopyHeader::Session { home, .. } | CopyHeader::Streams { home, .. }) = header;
            let copies = &mut stored[usize::from(home.shard) % shards].copies;
            match header {
                CopyHeader::Session { owner: at_home, client_id, began, complete, .. } => {
                    let items = items.into_iter().map(|item| (item.item, item.value)).collect();
                    let copied = Copied { owner, client_id, began, complete, items, ahead: Vec::new() };
                    let older = copies.restore_session(home, at_home, copied);
                    entries.extend(older.map(|owner| Entry::Drop { owner }));
                }
                CopyHeader::Streams { up_to, .. } => {
                    let streams =
                        items.iter().filter_map(|item| Some((item.item, journal::decode_stream(&item.value)?)));
                    let streams: Vec<_> = streams.collect();
                    let other = copies.restore_streams(home, owner, up_to, &streams);
                    entries.extend(other.map(|owner| Entry::Drop { owner }));
                }
            }
        }
    }

    /// A journal that says nothing of its node is taken for this one's: an import makes such.
    fn check_node(&self, node: NodeId) -> Result<(), RecoverError> {
        match self.node {
            Some(other) if other != node.0 => Err(RecoverError::OfAnother(other)),
            _ => Ok(()),
        }
    }

    /// Items of retained messages that could not be read: nothing refers to them any more.
    fn unread_retained(&self, read: &crate::retained::Map) -> Vec<Entry> {
        let read: hashbrown::HashSet<ItemId> = read.items().collect();
        let unread = self.retained.iter().filter(|item| !read.contains(*item));
        unread.map(|item| Entry::Delete { owner: journal::RETAINED, item: *item }).collect()
    }

    /// Numbers this start, for good, and says whose the journal is.
    fn begin_incarnation(&mut self, node: NodeId) -> Vec<Entry> {
        self.incarnation = self.earlier_starts.iter().max().copied().unwrap_or(0) + 1;
        let owner = journal::NODE;
        let value = node.0.to_be_bytes().as_slice().into();
        let put = Entry::Put { owner, item: self.incarnation, value, body: None };
        let earlier = self.earlier_starts.drain(..).map(|item| Entry::Delete { owner, item });
        std::iter::once(put).chain(earlier).collect()
    }
}

/// What is left of a session that ended while others were to take its shared messages over.
fn shared_messages(items: Vec<(ItemId, Restored)>) -> Vec<Queued> {
    let shared = |restored| match restored {
        Restored::Message { queued, .. } if queued.share.is_some() => Some(queued),
        _ => None,
    };
    items.into_iter().filter_map(|(_, restored)| shared(restored)).collect()
}

/// Starts the storage, with the node's own entries of the start first.
pub(super) fn start(opened: Opened, taken_up: &mut TakenUp, shared: &Arc<Shared>) -> std::io::Result<Storage> {
    let clock: Clock = shared.clock;
    let audience = Arc::new(Mailboxes(shared.clone()));
    let storage = Storage::start(opened, audience, Arc::new(move || clock.now()))?;
    storage.submit(shared.mailboxes.len(), &mut taken_up.entries, true);
    Ok(storage)
}

/// Notes every second, for as long as the process lives, that the node runs. A thread of its own: a disk that hangs holds up nobody else.
pub(super) fn beat(alive: Alive, clock: Clock) -> std::io::Result<()> {
    let beat = move || {
        loop {
            // What cannot be written is tried again; the time of the last batch is known in any case.
            let _ = alive.beat(clock.now());
            std::thread::sleep(BEAT);
        }
    };
    std::thread::Builder::new().name("alive".to_owned()).spawn(beat).map(drop)
}

const BEAT: Duration = Duration::from_secs(1);

/// Tells the shards what the storage says.
struct Mailboxes(Arc<Shared>);

impl Audience for Mailboxes {
    fn kept(&self, source: usize, submission: u64) {
        // The last source is the node itself, which waits for nothing.
        if let Some(mailbox) = self.0.mailboxes.get(source) {
            mailbox.push(Event::Kept { submission });
        }
    }

    fn loaded(&self, source: usize, ticket: u64, bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)>) {
        if let Some(mailbox) = self.0.mailboxes.get(source) {
            mailbox.push(Event::ReadBack { ticket, bodies });
        }
    }

    fn state(&self, state: State) {
        self.0.storage_level.set(&state);
        match &state {
            State::Ok => info!(event = "storage", "the disk takes everything again"),
            State::Low => warn!(
                event = "storage",
                "hardly any room is left on the disk: QoS 1 and 2 messages that would have to be kept are refused until there is"
            ),
            State::Failing(why) => tracing::error!(
                event = "storage",
                "the disk does not keep what is written: {why}. Nothing that would have to be kept is acknowledged; tried again every second"
            ),
        }
        self.0.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::StorageChanged));
    }
}

/// The changes that time brought about, from the source of the node itself.
pub(super) fn write_changes(storage: &Storage, shared: &Shared, changes: Vec<LeaseChange>) {
    if !changes.is_empty() {
        storage.submit(shared.mailboxes.len(), &mut journal::lease_entries(changes).collect(), false);
    }
}

/// What has become of retained messages that have expired.
pub(super) fn write_expired(storage: &Storage, shared: &Shared, expired: Vec<Write>) {
    storage.submit(shared.mailboxes.len(), &mut expired.into_iter().map(journal::retained_entry).collect(), false);
}

/// The name of the configured level and what it means, for the line that says the node is ready.
pub(super) fn in_words(config: &Config) -> &'static str {
    match (&config.node.data_dir, config.storage.durability) {
        (None, _) => "none: there is no data directory, and nothing survives the process",
        (Some(_), config::Durability::Disk) => "disk: what is acknowledged survives the process and a power cut",
        (Some(_), config::Durability::Memory) => {
            "memory: acknowledged at once, and written to disk within a fraction of a second"
        }
    }
}
