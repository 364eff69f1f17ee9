//! A home and its heir: the home sends frames and keeps them until they are accepted, the heir has a disk that is behind, the connection breaks, and either starts again.

use proptest::prelude::*;

use super::*;

/// Items of sessions, by owner at home.
type State = BTreeMap<OwnerId, BTreeMap<ItemId, Value>>;

/// A session at home.
#[derive(Debug, Clone, Default)]
struct Session {
    items: BTreeMap<ItemId, Value>,
    last: ItemId,
    copying: Copying,
}

/// What of a session was sent to the heir.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Copying {
    #[default]
    Nothing,
    /// Of the items up to `last`, which were there at the beginning, those up to `filled`; and everything since.
    Filling {
        filled: ItemId,
        last: ItemId,
    },
    All,
}

/// What the home has said by the end of one of its turns.
#[derive(Debug, Clone)]
struct Frame {
    sequence: u64,
    entries: Vec<CopyEntry>,
    /// The sessions that are copied.
    state: State,
}

#[derive(Default)]
struct World {
    sessions: BTreeMap<OwnerId, Session>,
    owners: u64,
    sequence: u64,
    /// Of the turn.
    entries: Vec<CopyEntry>,
    /// Those that are not accepted, and how many of them the connection has had.
    frames: Vec<Frame>,
    sent: usize,

    heir: Heir,
    /// Submissions that are not on disk.
    unsynced: Vec<Vec<Write>>,
    disk: Disk,
    /// What the heir has to have, by the last frame that it has.
    expected: BTreeMap<u64, State>,
}

/// A disk that knows what may not be.
#[derive(Default)]
struct Disk {
    headers: BTreeMap<OwnerId, CopyHeader>,
    items: BTreeMap<(OwnerId, ItemId), Value>,
    streams: BTreeMap<(OwnerId, ItemId), MessageId>,
}

impl Disk {
    fn write(&mut self, write: Write) {
        match write {
            Write::Header { owner, header } => _ = self.headers.insert(owner, header),
            Write::Put { owner, item, value, .. } => {
                assert!(self.headers.contains_key(&owner), "an owner begins with its header");
                self.items.insert((owner, item), value);
            }
            Write::Stream { owner, item, id } => _ = self.streams.insert((owner, item), id),
            Write::Delete { owner, item } => {
                assert!(self.items.remove(&(owner, item)).is_some(), "what is deleted was put");
            }
            Write::Drop { owner } => {
                assert!(self.headers.remove(&owner).is_some(), "what is dropped was there");
                self.items.retain(|(of, _), _| *of != owner);
            }
        }
    }

    fn restored(&self) -> Copies {
        let mut copies = Copies::default();
        for (&own, header) in &self.headers {
            match header.clone() {
                CopyHeader::Session { home, owner, client_id, began, complete } => {
                    let items = self.items.range((own, 0)..=(own, u64::MAX));
                    let items = items.map(|((_, item), value)| (*item, value.clone())).collect();
                    let copied = Copied { owner: own, client_id, began, complete, items, ahead: Vec::new() };
                    assert_eq!(copies.restore_session(home, owner, copied).next(), None, "there is one of each");
                }
                CopyHeader::Streams { home, up_to } => {
                    let streams = self.streams.range((own, 0)..=(own, u64::MAX));
                    let streams: Vec<_> = streams.map(|((_, item), id)| (*item, *id)).collect();
                    copies.restore_streams(home, own, up_to, &streams);
                }
            }
        }
        copies
    }
}

#[derive(Debug, Clone)]
enum Step {
    NewSession,
    Put(usize, u8),
    Update(usize, usize, u8),
    Delete(usize, usize),
    End(usize),
    /// Sends up to that many items of what an unfinished copy lacks.
    Fill(usize, usize),
    EndTurn,
    /// The heir reads that many frames.
    Deliver(usize),
    /// Its disk is that many submissions further.
    Sync(usize),
    /// The home hears what is on disk there.
    Accept,
    /// The connection breaks and comes again; the heir says what it has received.
    Break,
    HeirStarts,
    HomeStarts,
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 0..4_usize;
    prop_oneof![
        2 => Just(Step::NewSession),
        8 => (session(), any::<u8>()).prop_map(|(session, value)| Step::Put(session, value)),
        4 => (session(), 0..5_usize, any::<u8>()).prop_map(|(session, item, value)| Step::Update(session, item, value)),
        6 => (session(), 0..5_usize).prop_map(|(session, item)| Step::Delete(session, item)),
        1 => session().prop_map(Step::End),
        4 => (session(), 0..4_usize).prop_map(|(session, items)| Step::Fill(session, items)),
        8 => Just(Step::EndTurn),
        6 => (1..4_usize).prop_map(Step::Deliver),
        4 => (1..4_usize).prop_map(Step::Sync),
        3 => Just(Step::Accept),
        1 => Just(Step::Break),
        1 => Just(Step::HeirStarts),
        1 => Just(Step::HomeStarts),
    ]
}

impl World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::NewSession => self.new_session(),
            Step::Put(at, value) => self.put(at, None, value),
            Step::Update(at, item, value) => self.put(at, Some(item), value),
            Step::Delete(at, item) => self.delete(at, item),
            Step::End(at) => self.end(at),
            Step::Fill(at, items) => self.fill(at, items),
            Step::EndTurn => self.end_turn(),
            Step::Deliver(frames) => self.deliver(frames),
            Step::Sync(submissions) => self.sync(submissions),
            Step::Accept => self.accept(),
            Step::Break => {
                let received = up_to(&self.heir.copies);
                self.sent = self.frames.iter().filter(|frame| frame.sequence <= received).count();
            }
            Step::HeirStarts => self.heir_starts(),
            Step::HomeStarts => self.home_starts(),
        }
    }

    fn new_session(&mut self) {
        self.owners += 1;
        let owner = OwnerId(20 + self.owners);
        self.sessions.insert(owner, Session { copying: Copying::All, ..Session::default() });
        self.entries.extend([begin(owner.0, "c"), complete(owner.0)]);
    }

    fn put(&mut self, at: usize, item: Option<usize>, value: u8) {
        let Some((owner, session)) = nth(&mut self.sessions, at) else { return };
        let there = item.and_then(|item| session.items.keys().nth(item).copied());
        let item = there.unwrap_or(session.last + 1);
        session.last = session.last.max(item);
        let value = Value::from_slice(&[value]);
        session.items.insert(item, value.clone());
        if session.copying != Copying::Nothing {
            let body = there.is_none().then(|| message(5, 0, self.sequence + 1));
            self.entries.push(CopyEntry::Put { owner, item, value, body, ahead: false });
        }
    }

    fn delete(&mut self, at: usize, item: usize) {
        let Some((owner, session)) = nth(&mut self.sessions, at) else { return };
        let Some(item) = session.items.keys().nth(item).copied() else { return };
        session.items.remove(&item);
        if session.copying != Copying::Nothing {
            self.entries.push(delete(owner.0, item));
        }
    }

    fn end(&mut self, at: usize) {
        let Some((owner, _)) = nth(&mut self.sessions, at) else { return };
        self.sessions.remove(&owner);
        self.entries.push(drop_of(owner.0));
    }

    fn fill(&mut self, at: usize, items: usize) {
        let Some((owner, session)) = nth(&mut self.sessions, at) else { return };
        let (mut filled, last) = match session.copying {
            Copying::All => return,
            Copying::Filling { filled, last } => (filled, last),
            Copying::Nothing => {
                self.entries.push(begin(owner.0, "c"));
                (0, session.last)
            }
        };
        let behind = filled;
        let lacking = session.items.iter().filter(|(item, _)| **item > behind && **item <= last);
        for (item, value) in lacking.take(items) {
            self.entries.push(CopyEntry::Put { owner, item: *item, value: value.clone(), body: None, ahead: false });
            filled = *item;
        }
        session.copying = Copying::Filling { filled, last };
        if !session.items.keys().any(|item| *item > filled && *item <= last) {
            session.copying = Copying::All;
            self.entries.push(complete(owner.0));
        }
    }

    fn end_turn(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if !entries.is_empty() {
            self.sequence += 1;
            let copied = self.sessions.iter().filter(|(_, session)| session.copying == Copying::All);
            let state = copied.map(|(owner, session)| (*owner, session.items.clone())).collect();
            self.frames.push(Frame { sequence: self.sequence, entries, state });
        }
    }

    fn deliver(&mut self, frames: usize) {
        let end = self.frames.len().min(self.sent.saturating_add(frames));
        let frames: Vec<Frame> = self.frames[self.sent..end].into();
        for Frame { sequence, entries, state } in frames {
            let before = up_to(&self.heir.copies);
            let writes = self.heir.hears(HOME, sequence, entries.clone());
            assert_eq!(writes.is_empty(), sequence <= before);
            if sequence > before {
                let mut expected = self.expected.get(&before).cloned().unwrap_or_default();
                entries.into_iter().for_each(|entry| follow(&mut expected, entry));
                expected.extend(state);
                self.expected.insert(sequence, expected);
                self.unsynced.push(writes);
            }
        }
        self.sent = end;
    }

    fn sync(&mut self, submissions: usize) {
        let synced = submissions.min(self.unsynced.len());
        self.unsynced.drain(..synced).flatten().for_each(|write| self.disk.write(write));
    }

    fn accept(&mut self) {
        let on_disk = up_to(&self.disk.restored());
        let before = self.frames.len();
        self.frames.retain(|frame| frame.sequence > on_disk);
        self.sent = self.sent.saturating_sub(before - self.frames.len());
    }

    /// It has what is on disk, and everything that is not accepted is sent again.
    fn heir_starts(&mut self) {
        self.unsynced.clear();
        self.heir.copies = self.disk.restored();
        self.sent = 0;
    }

    /// It does not know what its heir has, and copies everything anew.
    fn home_starts(&mut self) {
        self.entries.clear();
        self.frames.clear();
        self.sent = 0;
        self.sequence += 1_000;
        self.sessions.values_mut().for_each(|session| session.copying = Copying::Nothing);
    }

    /// The heir's copies that are complete are what the home had at the end of one of its turns.
    fn check(&self) {
        let expected = self.expected.get(&up_to(&self.heir.copies)).cloned().unwrap_or_default();
        assert_eq!(complete_copies(&self.heir.copies), expected);
    }

    /// At last everything is filled, has come, and is on disk.
    fn settle(&mut self) {
        (0..self.sessions.len()).for_each(|at| self.fill(at, usize::MAX));
        self.end_turn();
        self.deliver(usize::MAX);
        self.check();
        self.sync(usize::MAX);
        assert_eq!(self.disk.restored(), self.heir.copies, "a start finds what there was");
        let copies = complete_copies(&self.heir.copies);
        for (owner, session) in &self.sessions {
            assert_eq!(copies.get(owner), Some(&session.items));
        }
        self.heir.copies.forget(NODE).into_iter().for_each(|write| self.disk.write(write));
        assert!(self.disk.headers.is_empty() && self.disk.items.is_empty());
    }
}

/// A copy that was complete once stays so, although it is begun anew.
fn follow(complete: &mut State, entry: CopyEntry) {
    match entry {
        CopyEntry::Put { owner, item, value, .. } => {
            complete.get_mut(&owner).into_iter().for_each(|items| _ = items.insert(item, value.clone()));
        }
        CopyEntry::Delete { owner, item } => {
            complete.get_mut(&owner).into_iter().for_each(|items| _ = items.remove(&item));
        }
        CopyEntry::Drop { owner } => _ = complete.remove(&owner),
        CopyEntry::Begin { .. } | CopyEntry::Complete { .. } | CopyEntry::Seen { .. } => {}
    }
}

fn nth(sessions: &mut BTreeMap<OwnerId, Session>, at: usize) -> Option<(OwnerId, &mut Session)> {
    let count = sessions.len();
    sessions.iter_mut().nth(at % count.max(1)).map(|(owner, session)| (*owner, session))
}

fn up_to(copies: &Copies) -> u64 {
    copies.homes.get(&HOME).map_or(0, |of_home| of_home.up_to)
}

fn complete_copies(copies: &Copies) -> State {
    let sessions =
        copies.homes.get(&HOME).into_iter().flat_map(|of_home| of_home.sessions.iter().chain(&of_home.earlier));
    sessions.filter(|(_, copied)| copied.complete).map(|(owner, copied)| (*owner, copied.items.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_complete_copy_is_what_its_home_had(steps in proptest::collection::vec(step(), 1..100)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.settle();
    }
}
