//! Each part of the item store against a dumb map, and the store over a disk that forgets, fills up, fails and flips bits.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::catalog::{Catalog, ItemBody, SharedPlace};
use super::group::{Change, Group, Known};
use super::inspection::{Inspection, Unreadable};
use super::model::{Model, Op, Script, TestBody, items_of};
use super::record::{Head, HeadBody};
use super::store::{Cleaned, CommitError, Place, Store};
use crate::commit::Recovered;
use crate::disk::{Disk, SimulatedDisk};
use crate::entry::{BodyId, Entry, ItemId, OwnerId, Value};
use crate::journal::{Location, OnCorruption, Options};

fn options(segment_bytes: u64) -> Options {
    Options { segment_bytes, bytes_max: None, on_corruption: OnCorruption::Halt, unindexed: 0 }
}

fn open(disk: &SimulatedDisk, segment_bytes: u64) -> (Store, Recovered) {
    let (store, recovered, _) = Store::open(Arc::new(disk.clone()), &options(segment_bytes)).expect("it opens");
    (store, recovered)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4u8, any::<u8>()).prop_map(|(owner, body)| Op::Put(owner, body)),
        3 => (0..4u8).prop_map(Op::PutOwn),
        4 => any::<(u16, u8)>().prop_map(|(at, body)| Op::Update(at, body)),
        6 => any::<u16>().prop_map(Op::Delete),
        2 => (0..4u8).prop_map(Op::DeleteEarly),
        2 => any::<u16>().prop_map(Op::PutLate),
        1 => (0..4u8).prop_map(Op::Drop),
        6 => Just(Op::Commit),
        2 => Just(Op::Clean),
        1 => Just(Op::Reopen),
    ]
}

/// What comes of an item in a group: its value and body, or its end.
type Newest = Option<(Value, Option<BodyId>)>;

/// Everything that the store says of its items.
fn check(store: &Store, model: &Model) {
    store.catalog().check();
    let mut seen = 0;
    for (&(owner, item), (_, body)) in &model.items {
        seen += 1;
        let read = body_bytes(store, &Group::default(), owner, item);
        assert_eq!(read, body.map(|id| TestBody::bytes(id.0)), "body of {}/{item}", owner.0);
    }
    assert_eq!(store.figures().items, seen);
    assert_eq!(store.figures().early_deletions, model.early.len() as u64);
}

fn body_bytes(store: &Store, group: &Group, owner: OwnerId, item: ItemId) -> Option<Vec<u8>> {
    match store.place(group, owner, item) {
        Place::Nowhere => None,
        Place::Memory(bytes) => Some(bytes),
        Place::Disk(location) => Some(store.reader().read(location).expect("it is there").tail),
    }
}

/// Makes all the room that there is to make.
fn clean(store: &mut Store) -> Result<(), CommitError> {
    loop {
        match store.clean(7, 1000)? {
            Cleaned::Nothing => return Ok(()),
            Cleaned::Some(_) => {}
            Cleaned::Removable => store.remove_front()?,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn heads_are_read_as_they_were_written(
        kind in 0..6u8, owner: u64, item: u64, id: u128, value in vec(any::<u8>(), 0..50), cut in 0..20usize,
    ) {
        let (owner, id) = (OwnerId(owner), BodyId(id));
        let head = match kind {
            0 => Head::Put { owner, item, body: HeadBody::None, value: &value },
            1 => Head::Put { owner, item, body: HeadBody::Elsewhere(id), value: &value },
            2 => Head::Put { owner, item, body: HeadBody::Here(id), value: &value },
            3 => Head::Delete { owner, item },
            4 => Head::Drop { owner },
            _ => Head::Body { id },
        };
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        prop_assert_eq!(Head::decode(&bytes), Some(head));
        if kind > 2 {
            prop_assert_eq!(Head::decode(&bytes[..bytes.len().saturating_sub(cut + 1)]), None);
            bytes.push(0);
            prop_assert_eq!(Head::decode(&bytes), None);
        }
    }

    #[test]
    fn any_bytes_are_a_head_or_none(bytes in vec(any::<u8>(), 0..60)) {
        if let Some(head) = Head::decode(&bytes) {
            let mut again = Vec::new();
            head.encode(&mut again);
            prop_assert_eq!(Head::decode(&again), Some(head));
        }
    }

    #[test]
    fn a_group_is_the_fold_of_its_entries(ops in vec(op(), 0..60), keep: u64) {
        let mut script = Script::default();
        let mut group = Group::default();
        // For each owner and item: what comes of it. For each owner: was it dropped?
        let mut items: BTreeMap<(OwnerId, ItemId), Newest> = BTreeMap::new();
        let mut dropped = BTreeMap::new();
        for entry in ops.into_iter().filter_map(|op| script.entry(op)) {
            match &entry {
                Entry::Put { owner, item, value, body } => {
                    let body = body.as_ref().map(|body| body.id());
                    let slot = items.entry((*owner, *item)).or_insert(Some((Value::new(), None)));
                    if let Some((old, old_body)) = slot {
                        *old = value.clone();
                        *old_body = body.or(*old_body);
                    }
                }
                Entry::Delete { owner, item } => drop(items.insert((*owner, *item), None)),
                Entry::Drop { owner } => {
                    items.retain(|(of, _), _| of != owner);
                    dropped.insert(*owner, ());
                }
            }
            group.push(entry);
        }
        // Forgetting deletions that nobody needs changes nothing else.
        let needed = |owner: OwnerId, item: ItemId| !(keep.rotate_left((owner.0 + item) as u32)).is_multiple_of(3);
        if keep.is_multiple_of(2) {
            group.retain(|slot| !matches!(slot.change, Change::Delete { .. }) || needed(slot.owner, slot.item));
            items.retain(|(owner, item), state| state.is_some() || needed(*owner, *item));
        }
        let mut found = BTreeMap::new();
        let mut found_drops = BTreeMap::new();
        for (_, slot) in group.slots() {
            match &slot.change {
                Change::Put { value, body } => {
                    let state = Some((value.clone(), body.as_ref().map(|body| body.id())));
                    prop_assert!(found.insert((slot.owner, slot.item), state).is_none());
                }
                Change::Delete { .. } => prop_assert!(found.insert((slot.owner, slot.item), None).is_none()),
                Change::Drop => {
                    prop_assert!(found.keys().all(|(owner, _)| *owner != slot.owner), "a Drop comes first");
                    found_drops.insert(slot.owner, ());
                }
            }
        }
        prop_assert_eq!(&found, &items);
        prop_assert_eq!(&found_drops, &dropped);
        for ((owner, item), state) in items {
            let known = group.known(owner, item);
            let right = match state {
                None => matches!(known, Known::Gone),
                Some((_, Some(id))) => matches!(known, Known::Body(body) if body.id() == id),
                Some((_, None)) if dropped.contains_key(&owner) => matches!(known, Known::Gone),
                Some((_, None)) => matches!(known, Known::Put),
            };
            prop_assert!(right, "{}/{}", owner.0, item);
        }
        group.clear();
        prop_assert_eq!(group.slots().count(), 0);
    }

    #[test]
    fn the_catalog_is_a_map(ops in vec((0..6u8, 0..3u64, 0..40u64, 0..4u128), 0..300)) {
        let mut catalog = Catalog::default();
        let mut model: BTreeMap<(u64, u64), Option<u128>> = BTreeMap::new();
        for (at, (op, owner, item, id)) in (0u32..).zip(ops) {
            let to = Location { segment: 3 + at / 40, offset: at * 100, len: 30 + at % 80 };
            let (key, of) = ((owner, item), OwnerId(owner));
            match op {
                0 => {
                    catalog.put(of, item, to, ItemBody::None);
                    model.insert(key, None);
                }
                1 if id > 0 => {
                    catalog.share(BodyId(id), to);
                    catalog.put(of, item, to, ItemBody::Carried(BodyId(id)));
                    model.insert(key, Some(id));
                }
                2 => {
                    let id = 1000 + u128::from(at);
                    catalog.put(of, item, to, ItemBody::Own(BodyId(id)));
                    model.insert(key, Some(id));
                }
                // A newer value; the body stays.
                3 => {
                    let Some(old) = catalog.item(of, item) else { continue };
                    let body = old.body.id().map_or(ItemBody::None, ItemBody::Shared);
                    catalog.put(of, item, to, body);
                }
                4 => prop_assert_eq!(catalog.delete(of, item), model.remove(&key).is_some()),
                _ => {
                    let Some(old) = catalog.item(of, item) else { continue };
                    catalog.item_moved(of, item, old.location, to, true);
                    if let Some(id) = old.body.id() {
                        catalog.body_moved(id, old.location, to);
                    }
                }
            }
            catalog.check();
        }
        for owner in 0..3 {
            let found: Vec<_> = catalog.items_of(OwnerId(owner)).map(|(item, at)| (item, at.body.id())).collect();
            let wanted: Vec<_> = model.range((owner, 0)..(owner + 1, 0)).map(|(key, id)| (key.1, id.map(BodyId))).collect();
            prop_assert_eq!(&found, &wanted);
            prop_assert_eq!(catalog.has_owner(OwnerId(owner)), !wanted.is_empty());
            for (item, _) in found {
                let at = catalog.item(OwnerId(owner), item).expect("it is there");
                prop_assert_eq!(catalog.body_of(&at).is_some(), at.body.id().is_some(), "no body is lost");
            }
            catalog.drop_owner(OwnerId(owner));
            catalog.check();
        }
        prop_assert_eq!((catalog.items(), catalog.shared_bodies(), catalog.live_bytes()), (0, 0, 0));
        prop_assert_eq!(catalog.shared_body(BodyId(1)), SharedPlace::Unknown);
    }
}

/// A store with what should be in it.
struct Run {
    disk: SimulatedDisk,
    segment_bytes: u64,
    /// Looks at everything after each step.
    looks: bool,
    store: Store,
    /// A second later with each commit.
    time: u64,
    group: Group,
    script: Script,
    /// On disk.
    kept: Model,
    /// With what is in the group.
    wanted: Model,
}

impl Run {
    fn new(disk: SimulatedDisk, segment_bytes: u64) -> Option<Run> {
        let (store, _, _) = Store::open(Arc::new(disk.clone()), &options(segment_bytes)).ok()?;
        let (script, group) = (Script::default(), Group::default());
        Some(Run {
            disk,
            segment_bytes,
            looks: true,
            store,
            time: 0,
            group,
            script,
            kept: Model::default(),
            wanted: Model::default(),
        })
    }

    fn step(&mut self, op: Op) -> Result<(), CommitError> {
        match op {
            Op::Commit => {
                self.time += 1000;
                while let Some(chore) = self.store.chore(self.time) {
                    self.store.chore_done(chore.run());
                }
                self.store.commit(self.time, &mut self.group)?;
                self.kept = self.wanted.clone();
                if self.disk.list().is_err() {
                    return Err(CommitError::Failed("the machine is off".into()));
                }
                self.look();
            }
            Op::Clean => {
                clean(&mut self.store)?;
                if self.disk.list().is_err() {
                    return Err(CommitError::Failed("the machine is off".into()));
                }
                self.look();
            }
            Op::Reopen => self.reopen(self.disk.clone(), &[]),
            op => {
                let Some(entry) = self.script.entry(op) else { return Ok(()) };
                self.wanted.apply(&entry);
                self.group.push(entry);
                if self.looks {
                    check_group(&self.store, &self.group, &self.wanted);
                }
            }
        }
        Ok(())
    }

    fn look(&self) {
        if self.looks {
            check(&self.store, &self.kept);
        }
    }

    /// Opens what is on a disk: it is what was kept, or one of the others.
    fn reopen(&mut self, disk: SimulatedDisk, others: &[Model]) {
        let (store, recovered) = open(&disk, self.segment_bytes);
        let found = items_of(&recovered);
        let mut kept = std::mem::take(&mut self.kept);
        kept.early.clear();
        if found != kept.items {
            let other = others.iter().find(|other| found == other.items);
            assert!(other.is_some(), "found {found:?}\nwanted {kept:?}\nor one of {others:?}");
            kept = Model { items: found, ..Model::default() };
        }
        check(&store, &kept);
        check_inspection(&disk, &kept);
        self.script.restarted(&kept);
        (self.disk, self.store, self.group) = (disk, store, Group::default());
        (self.wanted, self.kept) = (kept.clone(), kept);
    }
}

/// An inspection finds what a start does.
fn check_inspection(disk: &SimulatedDisk, kept: &Model) {
    let inspection = Inspection::open_on(Arc::new(disk.clone())).expect("it opens");
    assert!(inspection.journal.is_whole() && inspection.journal.harmless.is_empty(), "{:?}", inspection.journal);
    assert_eq!(items_of(&inspection.recovered), kept.items);
    for (&(owner, item), (_, body)) in &kept.items {
        let read = inspection.body(owner, item).expect("it can be read");
        assert_eq!(read, body.map(|id| TestBody::bytes(id.0)));
        assert!(inspection.place(owner, item).is_some());
    }
}

/// Damage that takes bodies from items that are there is told, by the place of the body or of who refers to it.
#[test]
fn an_inspection_says_which_bodies_are_lost() {
    let disk = SimulatedDisk::new();
    let (mut store, _) = open(&disk, 1 << 20);
    let put =
        |item, body| Entry::Put { owner: OwnerId(5), item, value: Value::new(), body: Some(TestBody::shared(body)) };
    for (time, entries) in (1..).zip([vec![put(1, 1), put(2, 1)], vec![put(3, 2)]]) {
        let mut group = Group::default();
        entries.into_iter().for_each(|entry| group.push(entry));
        store.commit(time, &mut group).expect("room");
    }
    // A third one refers to the first record from another batch.
    let mut group = Group::default();
    group.push(put(4, 1));
    store.commit(9, &mut group).expect("room");
    let inspection = Inspection::open_on(Arc::new(disk.clone())).expect("it opens");
    let (file, first) = inspection.place(OwnerId(5), 1).expect("it is there");
    let (_, last) = inspection.place(OwnerId(5), 4).expect("it is there");
    disk.flip_bit(&file, first as usize + 30, 3);
    let Err(Unreadable::Damaged(damage)) = inspection.body(OwnerId(5), 2) else { panic!("it is damaged") };
    assert_eq!((&damage.file, damage.offset), (&file, first));
    let inspection = Inspection::open_on(Arc::new(disk.clone())).expect("it opens");
    assert!(!inspection.journal.is_whole());
    assert!(inspection.place(OwnerId(5), 1).is_none());
    let Err(Unreadable::Damaged(damage)) = inspection.body(OwnerId(5), 4) else { panic!("it is lost") };
    assert_eq!((&damage.file, damage.offset), (&file, last));
    assert!(inspection.body(OwnerId(5), 3).expect("it is there").is_some());
    assert!(inspection.body(OwnerId(5), 5).expect("nothing").is_none());
}

/// What is not on disk yet is found too.
fn check_group(store: &Store, group: &Group, wanted: &Model) {
    for (&(owner, item), (_, body)) in &wanted.items {
        assert_eq!(body_bytes(store, group, owner, item), body.map(|id| TestBody::bytes(id.0)));
    }
    for &(owner, item) in &wanted.early {
        assert_eq!(body_bytes(store, group, owner, item), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_store_is_a_map_that_survives(ops in vec(op(), 0..120), segment_bytes in 1000..6000u64) {
        let mut run = Run::new(SimulatedDisk::new(), segment_bytes).expect("it opens");
        for op in ops {
            run.step(op).expect("the disk is good");
        }
        run.step(Op::Reopen).expect("the disk is good");
    }

    #[test]
    fn a_crash_at_any_sync_loses_nothing_that_was_kept(
        ops in vec(op(), 20..100), segment_bytes in 1000..4000u64, at in 0..1000u64, seed: u64,
    ) {
        // As far as the machine stays on.
        let disk = SimulatedDisk::new();
        let Some(mut run) = Run::new(disk.clone(), segment_bytes) else { return Ok(()) };
        let mut stop = disk.syncs() + at % 60;
        for round in 0..4 {
            run.disk.stop_after_syncs(stop - run.disk.syncs().min(stop));
            let mut off = false;
            for &op in ops.iter().filter(|op| !matches!(op, Op::Reopen)) {
                if run.step(op).is_err() {
                    off = true;
                    break;
                }
            }
            let crashed = if seed.is_multiple_of(3) { run.disk.crash_all_lost() } else { run.disk.crash(seed + round) };
            let unkept = run.wanted.clone();
            run.reopen(crashed, &[unkept]);
            if !off {
                break;
            }
            stop = run.disk.syncs() + (at * 7 + seed % 5) % 40;
        }
    }
}

#[test]
fn a_crash_at_every_sync_of_one_script_loses_nothing() {
    let ops: Vec<Op> = (0..160u16)
        .map(|at| match at % 9 {
            0 | 5 => Op::PutOwn((at % 2) as u8),
            1 => Op::Put((at % 3) as u8, (at % 4) as u8),
            3 => Op::Update(at * 7, at as u8),
            4 | 7 => Op::Commit,
            2 | 6 if at > 40 => Op::Delete(at * 5),
            2 | 6 => Op::PutOwn(2),
            _ if at == 80 => Op::Drop(1),
            _ => Op::Clean,
        })
        .collect();
    for stop in 0.. {
        let disk = SimulatedDisk::new();
        let mut run = Run::new(disk.clone(), 1200).expect("it opens");
        disk.stop_after_syncs(stop);
        let all = ops.iter().all(|op| run.step(*op).is_ok());
        for seed in 0..4 {
            let crashed = if seed == 0 { run.disk.crash_all_lost() } else { run.disk.crash(stop * 4 + seed) };
            let (store, recovered) = open(&crashed, 1200);
            let found = items_of(&recovered);
            let model = if found == run.kept.items { &run.kept } else { &run.wanted };
            assert_eq!(found, model.items, "behind {stop} syncs, seed {seed}");
            check(&store, &Model { items: found, ..Model::default() });
        }
        if all {
            assert!(stop > 50 && run.store.figures().cleaned_bytes > 0, "{stop}");
            return;
        }
    }
}

#[test]
fn a_body_that_damage_took_is_missed_and_may_come_again() {
    let disk = SimulatedDisk::new();
    let (mut store, _) = open(&disk, 1 << 16);
    let mut group = Group::default();
    let value = Value::from_slice(b"value");
    let put = |owner, id| Entry::Put {
        owner: OwnerId(owner),
        item: 1,
        value: value.clone(),
        body: Some(TestBody::shared(id)),
    };
    for owners in [1..3, 3..4] {
        owners.for_each(|owner| group.push(put(owner, 6)));
        store.commit(1, &mut group).expect("the disk is good");
    }
    group.push(put(4, 5));
    store.commit(1, &mut group).expect("the disk is good");
    // In the body of the first batch.
    let name = disk.list().expect("it lists").into_iter().find(|name| name.contains("seg")).expect("a segment");
    disk.flip_bit(&name, 64 + 40 + 100, 3);
    assert!(Store::open(Arc::new(disk.clone()), &options(1 << 16)).is_err(), "it halts");
    let quarantine = Options { on_corruption: OnCorruption::Quarantine, ..options(1 << 16) };
    let (mut store, recovered, report) = Store::open(Arc::new(disk.clone()), &quarantine).expect("it opens");
    assert_eq!(report.damage.len(), 1);
    let owners: Vec<_> = recovered.owners.iter().map(|(owner, items)| (owner.0, items[0].body)).collect();
    assert_eq!(owners, [(3, Some(BodyId(6))), (4, Some(BodyId(5)))]);
    assert_eq!(body_bytes(&store, &group, OwnerId(3), 1), None);
    let mut read = 0;
    let error = store.bodies(OwnerId(3), &mut |_, _| read += 1).expect_err("it is missed");
    assert_eq!((error.unreadable, read), (1, 0));
    // Another message with this body brings it back for all.
    group.push(put(7, 6));
    store.commit(1, &mut group).expect("the disk is good");
    store.catalog().check();
    for (store, _) in [(store, Recovered::default()), open(&disk, 1 << 16)] {
        assert_eq!(body_bytes(&store, &Group::default(), OwnerId(3), 1), Some(TestBody::bytes(6)));
        assert_eq!(body_bytes(&store, &Group::default(), OwnerId(7), 1), Some(TestBody::bytes(6)));
    }
}

#[test]
fn cleaning_stops_at_damage_and_loses_nothing_else() {
    let disk = SimulatedDisk::new();
    let (mut store, _) = open(&disk, 4096);
    let mut group = Group::default();
    for item in 1..200u64 {
        let body = Some(TestBody::shared(1000 + u128::from(item)));
        group.push(Entry::Put { owner: OwnerId(item % 2), item, value: Value::new(), body });
        if item > 20 {
            group.push(Entry::Delete { owner: OwnerId(item % 2), item: item - 10 });
        }
        if item == 11 {
            let name = disk.list().expect("it lists").into_iter().find(|name| name.contains("seg")).expect("a segment");
            disk.flip_bit(&name, 64 + 40 + 60, 3);
        }
        store.commit(1, &mut group).expect("the disk is good");
    }
    assert!(clean(&mut store).is_err());
    assert!(clean(&mut store).is_err(), "nor the next time");
    assert_eq!(store.figures().cleaned_bytes, 0);
    for item in 2..11 {
        assert_eq!(body_bytes(&store, &group, OwnerId(item % 2), item), Some(TestBody::bytes(1000 + u128::from(item))));
    }
}

#[test]
fn cleaning_loses_nothing() {
    let disk = SimulatedDisk::new();
    let mut run = Run::new(disk.clone(), 4096).expect("it opens");
    // A few that stay, and many that come and go.
    for round in 0..600u16 {
        for op in [Op::Put((round % 3) as u8, (round % 5) as u8), Op::PutOwn(3), Op::Update(round, 0), Op::Commit] {
            run.step(op).expect("the disk is good");
        }
        while run.wanted.items.len() > 40 {
            run.step(Op::Delete(round.wrapping_mul(7))).expect("the disk is good");
        }
        run.step(Op::Clean).expect("the disk is good");
        let figures = run.store.figures();
        assert!(figures.live_bytes < 20_000, "{figures:?}");
        assert!(figures.disk_bytes < 12 * 4096 + 2 * figures.live_bytes, "{figures:?}");
    }
    assert!(run.store.figures().cleaned_bytes > 0);
    run.step(Op::Reopen).expect("the disk is good");
}

#[test]
fn what_comes_and_goes_within_a_group_is_not_written() {
    let disk = SimulatedDisk::new();
    let (mut store, _) = open(&disk, 1 << 16);
    let mut group = Group::default();
    for item in 1..=100 {
        let owner = OwnerId(item % 3);
        group.push(Entry::Put { owner, item, value: Value::new(), body: Some(TestBody::shared(u128::from(item))) });
        group.push(Entry::Delete { owner, item });
    }
    let syncs = disk.syncs();
    store.commit(1, &mut group).expect("nothing is to be done");
    assert_eq!((disk.syncs(), store.figures().batches, store.figures().early_deletions), (syncs, 0, 0));
}

#[test]
fn a_body_is_on_disk_once_however_many_refer_to_it() {
    let disk = SimulatedDisk::new();
    let (mut store, _) = open(&disk, 1 << 16);
    let mut group = Group::default();
    let body = TestBody::shared(6);
    for owner in 0..100 {
        group.push(Entry::Put { owner: OwnerId(owner), item: 1, value: Value::new(), body: Some(body.clone()) });
    }
    store.commit(1, &mut group).expect("the disk is good");
    for owner in 100..200 {
        group.push(Entry::Put { owner: OwnerId(owner), item: 1, value: Value::new(), body: Some(body.clone()) });
    }
    store.commit(1, &mut group).expect("the disk is good");
    let figures = store.figures();
    assert_eq!((figures.items, figures.shared_bodies), (200, 1));
    assert!(figures.live_bytes < 200 * 64 + 500, "{figures:?}");
    // The record that carries it goes with its item, the body stays.
    for owner in 0..199 {
        group.push(Entry::Drop { owner: OwnerId(owner) });
    }
    store.commit(1, &mut group).expect("the disk is good");
    assert_eq!(body_bytes(&store, &group, OwnerId(199), 1), Some(TestBody::bytes(6)));
    let (store, recovered) = open(&disk, 1 << 16);
    assert_eq!(recovered.owners.len(), 1);
    assert_eq!(recovered.owner_max, Some(OwnerId(199)));
    let mut bodies = Vec::new();
    store.bodies(OwnerId(199), &mut |item, bytes| bodies.push((item, bytes.to_vec()))).expect("it can be read");
    assert_eq!(bodies, [(1, TestBody::bytes(6))]);
}

#[test]
fn the_last_reference_goes_in_the_batch_in_which_another_comes() {
    let disk = SimulatedDisk::new();
    let (mut store, _) = open(&disk, 1 << 16);
    let mut group = Group::default();
    let put =
        |owner, item| Entry::Put { owner: OwnerId(owner), item, value: Value::new(), body: Some(TestBody::shared(5)) };
    for owner in 1..3 {
        group.push(put(owner, 1));
    }
    store.commit(1, &mut group).expect("the disk is good");
    for entry in [Entry::Drop { owner: OwnerId(1) }, Entry::Delete { owner: OwnerId(2), item: 1 }, put(1, 2)] {
        group.push(entry);
    }
    store.commit(1, &mut group).expect("the disk is good");
    assert_eq!(body_bytes(&store, &group, OwnerId(1), 2), Some(TestBody::bytes(5)));
    store.catalog().check();
    let (store, _) = open(&disk, 1 << 16);
    assert_eq!(body_bytes(&store, &group, OwnerId(1), 2), Some(TestBody::bytes(5)));
}

#[test]
fn a_full_disk_takes_what_frees_and_heals() {
    const SEGMENT: u64 = 32 * 1024;
    let disk = SimulatedDisk::new();
    disk.limit(Some(16 * SEGMENT));
    let mut run = Run::new(disk.clone(), SEGMENT).expect("it opens");
    run.looks = false;
    let fill = |run: &mut Run| {
        for round in 0..5000u16 {
            run.step(Op::PutOwn((round % 4) as u8)).expect("it is in memory");
            run.step(Op::PutOwn((round % 3) as u8)).expect("it is in memory");
            if let Err(error) = run.step(Op::Commit) {
                assert!(matches!(error, CommitError::NoRoom(_)), "{error:?}");
                return;
            }
            run.step(Op::Clean).expect("there is room enough to clean");
        }
        panic!("it is never full");
    };
    fill(&mut run);
    let full = run.store.figures().items;
    assert!(run.store.is_low());
    // Still full.
    assert!(run.step(Op::Commit).is_err());
    // Deleting here and there makes room, in the end as much as there was.
    let mut refused = 0;
    for round in 0..full * 3 / 4 {
        run.step(Op::Delete((round as u16).wrapping_mul(13))).expect("it is in memory");
        refused += u64::from(run.step(Op::Commit).is_err());
        run.step(Op::Clean).expect("there is room enough to clean");
    }
    assert!(refused < 10, "{refused}");
    assert!(!run.store.is_low());
    run.looks = true;
    run.step(Op::Reopen).expect("it opens");
    run.looks = false;
    fill(&mut run);
    assert!(run.store.figures().items > full / 10 * 9, "{:?}", (full, run.store.figures()));
}

#[test]
fn a_failing_sync_keeps_the_group() {
    let disk = SimulatedDisk::new();
    let mut run = Run::new(disk.clone(), 4096).expect("it opens");
    for round in 0..30u8 {
        disk.fail_syncs(true);
        run.step(Op::Put(round % 4, round)).expect("it is in memory");
        run.step(Op::PutOwn(round % 4)).expect("it is in memory");
        for _ in 0..3 {
            assert!(matches!(run.step(Op::Commit), Err(CommitError::Failed(_))));
        }
        // What cancels out while it waits is forgotten.
        for _ in 0..50 {
            run.step(Op::PutOwn(2)).expect("it is in memory");
            let last = run.wanted.items.len() as u16;
            run.step(Op::Delete(last - 1)).expect("it is in memory");
        }
        assert!(run.step(Op::Commit).is_err());
        assert!(run.group.len() <= 4, "{}", run.group.len());
        disk.fail_syncs(false);
        run.step(Op::Commit).expect("the disk is good again");
        run.step(Op::Clean).expect("the disk is good again");
    }
    run.step(Op::Reopen).expect("it opens");
}

#[test]
fn a_queue_costs_forty_bytes_an_item_and_shrinks() {
    let mut catalog = Catalog::default();
    let at = |offset| Location { segment: 1, offset, len: 100 };
    for item in 0..100_000 {
        catalog.put(OwnerId(1), item, at(item as u32), ItemBody::Own(BodyId(u128::from(item))));
    }
    assert!(catalog.room_of(OwnerId(1)) <= 40 * 131_072 * 5 / 4);
    // From the front, and some from the middle.
    for item in 0..99_900 {
        assert!(catalog.delete(OwnerId(1), item * 7919 % 100_000));
    }
    assert_eq!(catalog.items(), 100);
    assert!(catalog.room_of(OwnerId(1)) <= 40 * 1024);
    catalog.check();
}
