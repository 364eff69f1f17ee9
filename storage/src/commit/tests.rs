//! The group commit with its threads, over a simulated disk: what was told is there, and what goes wrong heals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Audience, Opened, Options, State, Storage};
use crate::disk::{Disk, SimulatedDisk};
use crate::entry::{Entry, ItemId, OwnerId, Value};
use crate::items::model::{Items, Model, Op, Script, TestBody, items_of};
use crate::journal::{self, OnCorruption};

const DEADLINE: Duration = Duration::from_secs(20);

fn options(segment_bytes: u64, lazy: Duration) -> Options {
    let journal = journal::Options { segment_bytes, bytes_max: None, on_corruption: OnCorruption::Halt, unindexed: 0 };
    Options { journal, sources: 4, lazy }
}

type Loaded = Vec<(OwnerId, ItemId, Option<Vec<u8>>)>;

/// Hears everything.
#[derive(Default)]
struct Ears {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    kept: BTreeMap<usize, u64>,
    loaded: Vec<(usize, u64, Loaded)>,
    states: Vec<State>,
}

impl Audience for Ears {
    fn kept(&self, source: usize, submission: u64) {
        let before = self.heard.lock().kept.insert(source, submission);
        assert!(before.is_none_or(|before| before < submission), "told once");
        self.changed.notify_all();
    }

    fn loaded(&self, source: usize, ticket: u64, bodies: Loaded) {
        self.heard.lock().loaded.push((source, ticket, bodies));
        self.changed.notify_all();
    }

    fn state(&self, state: State) {
        self.heard.lock().states.push(state);
        self.changed.notify_all();
    }
}

impl Ears {
    fn wait<T>(&self, what: &str, mut until: impl FnMut(&Heard) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        let mut heard = self.heard.lock();
        loop {
            if let Some(found) = until(&heard) {
                return found;
            }
            let late = self.changed.wait_until(&mut heard, deadline).timed_out();
            assert!(!late, "{what}: {:?} {:?}", heard.kept, heard.states);
        }
    }

    fn wait_kept(&self, source: usize, submission: u64) {
        self.wait("kept", |heard| (heard.kept.get(&source) >= Some(&submission)).then_some(()));
    }

    fn wait_state(&self, wanted: impl Fn(&State) -> bool) {
        self.wait("state", |heard| heard.states.last().is_some_and(&wanted).then_some(()));
    }
}

fn open(disk: &SimulatedDisk, segment_bytes: u64, lazy: Duration) -> Opened {
    Storage::open_on(Arc::new(disk.clone()), options(segment_bytes, lazy)).expect("it opens")
}

fn start(opened: Opened) -> (Storage, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let time = AtomicU64::new(1);
    let begun = Instant::now();
    let clock = move || time.fetch_add(1, Ordering::Relaxed) + begun.elapsed().as_millis() as u64;
    let storage = Storage::start(opened, ears.clone(), Arc::new(clock)).expect("threads start");
    (storage, ears)
}

fn put(owner: u64, item: ItemId, body: u128) -> Entry {
    let body = (body > 0).then(|| TestBody::shared(body));
    Entry::Put { owner: OwnerId(owner), item, value: Value::from_slice(&[1]), body }
}

fn delete(owner: u64, item: ItemId) -> Entry {
    Entry::Delete { owner: OwnerId(owner), item }
}

/// Small numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn op(&mut self, owner: u8) -> Op {
        let (at, body) = (self.throw(1 << 16) as u16, self.throw(256) as u8);
        match self.throw(20) {
            0..4 => Op::Put(owner, body),
            4..8 => Op::PutOwn(owner),
            8..11 => Op::Update(at, body),
            11..18 => Op::Delete(at),
            18 => Op::DeleteEarly(owner),
            _ => Op::PutLate(at),
        }
    }
}

/// Hands in submissions as one source until the storage fails, or there were enough. What the items of its owner are after each of them.
fn one_source(storage: &Storage, source: usize, seed: u64, submissions: u64) -> Vec<Items> {
    let mut dice = Dice(seed * 4 + source as u64);
    let (mut script, mut model) = (Script::default(), Model::default());
    let mut states = vec![Items::new()];
    let mut entries = Vec::new();
    for number in 1..=submissions {
        for _ in 0..dice.throw(12) {
            if let Some(entry) = script.entry(dice.op(source as u8)) {
                model.apply(&entry);
                entries.push(entry);
            }
        }
        assert_eq!(storage.submit(source, &mut entries, dice.throw(3) == 0), number);
        assert!(entries.is_empty());
        states.push(model.items.clone());
        if dice.throw(4) == 0 {
            thread::yield_now();
        }
    }
    states
}

/// Runs four sources until the machine goes off behind so many syncs, or all is kept. Returns false in that case.
fn crash_round(seed: u64, syncs: u64) -> bool {
    let disk = SimulatedDisk::new();
    let opened = open(&disk, 4096, Duration::from_millis(1));
    disk.stop_after_syncs(syncs);
    let (storage, ears) = start(opened);
    let mut states = Vec::new();
    thread::scope(|scope| {
        let storage = &storage;
        let sources = (0..4).map(|source| scope.spawn(move || one_source(storage, source, seed, 60)));
        let sources: Vec<_> = sources.collect();
        states = sources.into_iter().map(|source| source.join().expect("a source")).collect::<Vec<_>>();
    });
    let off = ears.wait("the end", |heard| {
        let all = (0..4).all(|source| heard.kept.get(&source) == Some(&60));
        let failing = heard.states.iter().any(|state| matches!(state, State::Failing(_)));
        (all || failing).then_some(failing)
    });
    let kept = ears.heard.lock().kept.clone();
    drop(storage);
    let disk = if seed.is_multiple_of(2) { disk.crash_all_lost() } else { disk.crash(seed) };
    let found = items_of(&open(&disk, 4096, Duration::ZERO).recovered);
    for (source, states) in states.iter().enumerate() {
        let of_source: Items = found
            .iter()
            .filter(|((owner, _), _)| owner.0 == source as u64)
            .map(|(key, at)| (*key, at.clone()))
            .collect();
        let told = kept.get(&source).copied().unwrap_or(0) as usize;
        let is_one = states[told..].contains(&of_source);
        assert!(is_one, "seed {seed}, {syncs} syncs: source {source} was told {told} and finds {of_source:?}");
    }
    off
}

#[test]
fn what_is_told_survives_a_crash_at_every_sync() {
    let mut syncs = 0;
    let mut ended = 0;
    // How many syncs there are depends on the threads.
    while ended < 3 && syncs < 400 {
        if !crash_round(syncs * 31 + 7, syncs) {
            ended += 1;
        }
        syncs += 1 + syncs / 16;
    }
    assert!(ended > 0, "the end was not reached");
}

#[test]
fn bodies_are_loaded_from_memory_and_from_disk() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 16, Duration::from_secs(3600)));
    let mut entries = vec![put(1, 1, 11), put(1, 2, 12), put(1, 3, 0), put(2, 1, 11)];
    let number = storage.submit(0, &mut entries, true);
    ears.wait_kept(0, number);
    // Nobody waits for these: they are in memory.
    entries.extend([put(1, 4, 14), put(1, 1, 0), delete(1, 2), delete(1, 99)]);
    storage.submit(0, &mut entries, false);
    entries.push(put(1, 99, 19));
    storage.submit(1, &mut entries, false);
    let wanted = [(1, 4), (1, 2), (1, 1), (2, 1), (1, 3), (1, 7), (1, 99), (3, 1)];
    storage.load(3, 77, wanted.iter().map(|&(owner, item)| (OwnerId(owner), item)).collect());
    let (source, ticket, bodies) = ears.wait("loaded", |heard| heard.loaded.first().cloned());
    assert_eq!((source, ticket), (3, 77));
    let bytes = |id| Some(TestBody::bytes(id));
    let bodies: Vec<_> = bodies.into_iter().map(|(owner, item, body)| (owner.0, item, body)).collect();
    let none = |owner, item| (owner, item, None);
    let right = [
        (1, 4, bytes(14)),
        none(1, 2),
        (1, 1, bytes(11)),
        (2, 1, bytes(11)),
        none(1, 3),
        none(1, 7),
        none(1, 99),
        none(3, 1),
    ];
    assert_eq!(bodies, right);
    assert_eq!(ears.heard.lock().kept.get(&1), None, "a load writes nothing");
    storage.close().expect("it is written");
    assert_eq!(ears.heard.lock().kept[&1], 1);
}

#[test]
fn what_nobody_waits_for_is_written_soon() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 16, Duration::from_millis(20)));
    let mut entries = vec![put(1, 1, 11)];
    let number = storage.submit(2, &mut entries, false);
    assert!(storage.pending_bytes(2) > 0);
    ears.wait_kept(2, number);
    assert_eq!(storage.pending_bytes(2), 0);
    // Without entries it is kept when everything before is.
    let number = storage.submit(2, &mut entries, false);
    ears.wait_kept(2, number);
    let syncs = disk.syncs();
    let number = storage.submit(2, &mut entries, true);
    ears.wait_kept(2, number);
    assert_eq!(disk.syncs(), syncs);
}

#[test]
fn much_is_written_at_once() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 22, Duration::from_secs(3600)));
    let mut entries: Vec<_> = (1..20_000).map(|item| put(1, item, 1000 + u128::from(item))).collect();
    let number = storage.submit(0, &mut entries, false);
    ears.wait_kept(0, number);
}

#[test]
fn a_close_writes_everything_and_the_next_start_reads_no_segment() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 14, Duration::from_secs(3600)));
    let mut entries = Vec::new();
    for item in 1..500 {
        entries.push(put(item % 3, item, u128::from(item % 50)));
        storage.submit(0, &mut entries, item % 10 == 0);
    }
    storage.clone().close().expect("it is written");
    assert_eq!(ears.heard.lock().kept[&0], 499);
    storage.close().expect("again is nothing");
    let opened = open(&disk, 1 << 14, Duration::ZERO);
    assert_eq!(opened.report.segments_read, 0);
    assert_eq!(items_of(&opened.recovered).len(), 499);
    let mut bodies = 0;
    opened.bodies(OwnerId(1), &mut |_, _| bodies += 1).expect("they can be read");
    assert!(bodies > 100);
}

#[test]
fn a_handle_that_goes_without_a_close_is_a_crash() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 14, Duration::from_secs(3600)));
    storage.submit(0, &mut vec![put(1, 1, 1)], false);
    drop(storage);
    let deadline = Instant::now() + DEADLINE;
    while Arc::strong_count(&ears) > 1 {
        assert!(Instant::now() < deadline, "the threads do not end");
        thread::yield_now();
    }
    assert!(open(&disk, 1 << 14, Duration::ZERO).recovered.owners.is_empty());
}

#[test]
fn a_failing_disk_is_told_and_heals_by_itself() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 14, Duration::from_millis(5)));
    disk.fail_syncs(true);
    storage.submit(0, &mut vec![put(1, 1, 1), put(1, 2, 2)], true);
    ears.wait_state(|state| matches!(state, State::Failing(_)));
    // It goes on waiting with the rest, and is found meanwhile.
    storage.submit(1, &mut vec![delete(1, 2), put(1, 3, 3)], true);
    storage.load(0, 1, vec![(OwnerId(1), 1), (OwnerId(1), 2)]);
    let (_, _, bodies) = ears.wait("loaded", |heard| heard.loaded.first().cloned());
    assert_eq!(bodies, [(OwnerId(1), 1, Some(TestBody::bytes(1))), (OwnerId(1), 2, None)]);
    assert!(ears.heard.lock().kept.is_empty());
    assert!(matches!(storage.state(), State::Failing(_)));
    assert!(storage.pending_bytes(0) > 0);
    disk.fail_syncs(false);
    ears.wait_kept(0, 1);
    ears.wait_kept(1, 1);
    ears.wait_state(|state| *state == State::Ok);
    assert!(storage.figures().errors > 0);
    assert_eq!((storage.figures().items, storage.pending_bytes(0)), (2, 0));
    drop(storage);
    let found = items_of(&open(&disk.crash_all_lost(), 1 << 14, Duration::ZERO).recovered);
    assert_eq!(found.len(), 2);
}

#[test]
fn a_full_disk_is_told_and_heals_when_there_is_room() {
    const SEGMENT: u64 = 1 << 15;
    let disk = SimulatedDisk::new();
    disk.limit(Some(12 * SEGMENT));
    let (storage, ears) = start(open(&disk, SEGMENT, Duration::from_millis(1)));
    let mut item = 0;
    // A well-behaved source stops when it is told.
    while storage.state() == State::Ok {
        let mut entries = Vec::new();
        for _ in 0..10 {
            item += 1;
            entries.push(put(1, item, 1000 + u128::from(item)));
        }
        let number = storage.submit(0, &mut entries, true);
        ears.wait("kept or full", |heard| {
            let kept = heard.kept.get(&0) >= Some(&number);
            (kept || heard.states.last().is_some_and(|state| *state != State::Ok)).then_some(())
        });
    }
    assert!(item > 500, "{item}");
    // Deletions are kept all the time.
    let mut number = 0;
    for gone in (1..item).filter(|item| item % 3 != 0) {
        number = storage.submit(1, &mut vec![delete(1, gone)], gone % 5 == 0);
    }
    ears.wait_kept(1, number);
    ears.wait_state(|state| *state == State::Ok);
    item += 1;
    let number = storage.submit(0, &mut vec![put(1, item, 1)], true);
    ears.wait_kept(0, number);
    storage.close().expect("it is written");
}

#[test]
fn a_damaged_body_is_none_and_the_others_come() {
    let disk = SimulatedDisk::new();
    let (storage, ears) = start(open(&disk, 1 << 16, Duration::from_secs(1)));
    let number = storage.submit(0, &mut vec![put(1, 1, 12), put(1, 2, 13)], true);
    ears.wait_kept(0, number);
    let names = disk.list().expect("it lists");
    disk.flip_bit(names.iter().find(|name| name.contains("seg")).expect("a segment"), 64 + 40 + 60, 1);
    storage.load(0, 5, vec![(OwnerId(1), 1), (OwnerId(1), 2)]);
    let (_, _, bodies) = ears.wait("loaded", |heard| heard.loaded.first().cloned());
    assert_eq!(bodies, [(OwnerId(1), 1, None), (OwnerId(1), 2, Some(TestBody::bytes(13)))]);
}

#[test]
fn a_directory_serves_one_run_after_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().join("journal");
    for round in 1..5 {
        let opened = Storage::open(&dir, options(1 << 20, Duration::from_millis(1))).expect("it opens");
        assert_eq!(items_of(&opened.recovered).len() as u64, (round - 1) * 30);
        let mut bodies = 0;
        for owner in 0..3 {
            opened
                .bodies(OwnerId(owner), &mut |item, body| {
                    assert_eq!(body, TestBody::bytes(u128::from(item)));
                    bodies += 1;
                })
                .expect("they can be read");
        }
        assert_eq!(bodies, (round - 1) * 30);
        let (storage, ears) = start(opened);
        let mut number = 0;
        for item in round * 100..round * 100 + 30 {
            number = storage.submit(3, &mut vec![put(item % 3, item, u128::from(item))], item % 4 == 0);
        }
        ears.wait_kept(3, number);
        if round % 2 == 0 {
            storage.close().expect("it is written");
        } else {
            drop(storage);
            let deadline = Instant::now() + DEADLINE;
            while Arc::strong_count(&ears) > 1 {
                assert!(Instant::now() < deadline, "the threads do not end");
                thread::yield_now();
            }
        }
    }
}

#[test]
fn churn_leaves_nothing_behind() {
    let disk = SimulatedDisk::new();
    const SEGMENT: u64 = 1 << 16;
    let (storage, ears) = start(open(&disk, SEGMENT, Duration::from_millis(1)));
    let mut entries = Vec::new();
    let mut number = 0;
    // Some stay for good.
    entries.extend((1..100).map(|item| put(9, item, 5000 + u128::from(item))));
    for item in 100..20_000u64 {
        entries.push(put(item % 7, item, u128::from(item)));
        if item > 300 {
            entries.push(delete((item - 200) % 7, item - 200));
        }
        if item % 50 == 0 {
            number = storage.submit(0, &mut entries, true);
            if item % 500 == 0 {
                ears.wait_kept(0, number);
                storage.load(0, item, vec![(OwnerId(9), item / 500), (OwnerId(item % 7), item)]);
            }
        }
    }
    ears.wait_kept(0, number);
    ears.wait("loaded", |heard| (heard.loaded.len() == 39).then_some(()));
    for (_, ticket, bodies) in &ears.heard.lock().loaded {
        let right = [u128::from(ticket / 500) + 5000, u128::from(*ticket)].map(|id| Some(TestBody::bytes(id)));
        assert_eq!(bodies[0].2, right[0], "{ticket}");
        // This one may have gone before it was looked for.
        assert!(bodies[1].2.is_none() || bodies[1].2 == right[1], "{ticket}");
    }
    let deadline = Instant::now() + DEADLINE;
    loop {
        let figures = storage.figures();
        assert!(figures.items < 500, "{figures:?}");
        if figures.disk_bytes < 2 * figures.live_bytes + 8 * SEGMENT {
            break;
        }
        assert!(Instant::now() < deadline, "{figures:?}");
        thread::yield_now();
    }
    storage.close().expect("it is written");
}
