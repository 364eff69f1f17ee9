//! A directory in memory, for tests: it keeps what a power cut must keep and, by a seed, some of what it may keep.
//!
//! It is owned by whoever has a handle; all handles are of one disk. A crash does not change it but makes another disk out of what
//! survives, so that one history can be cut in many ways. To use the same disk again without a crash is to lose the process only.
//!
//! The model: a file has the bytes that readers see, and those that are durable. A page of 4 KiB that was written since the last
//! sync survives or not; one page of a crash is torn between sectors of 512 bytes. A sync that fails loses the pages it should
//! have saved as Linux does: readers go on seeing them, later syncs do not write them. Names change durably in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, DiskFile};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// A directory in memory. Clones are handles of the same one.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of the directory.
    unsynced_names: Vec<Change>,
    quarantine: Vec<(String, Vec<u8>)>,
    faults: Faults,
    syncs: u64,
    off: bool,
}

#[derive(Default)]
struct Faults {
    bytes_max: Option<u64>,
    syncs: bool,
    /// This many syncs succeed, then one fails.
    sync_once_after: Option<u64>,
    writes: bool,
    /// This many syncs succeed, then the machine is off.
    off_after_syncs: Option<u64>,
}

#[derive(Clone)]
enum Change {
    Put(String, u64),
    Rename(String, String),
    Remove(String),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Change::Put(name, file) => {
                names.insert(name.clone(), *file);
            }
            Change::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Change::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

#[derive(Clone, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Pages that the next sync makes durable.
    dirty: BTreeSet<usize>,
    /// Pages that a failed sync gave up.
    given_up: BTreeSet<usize>,
}

impl Content {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[offset..end].copy_from_slice(bytes);
        if !bytes.is_empty() {
            let pages = offset / PAGE..=(end - 1) / PAGE;
            self.given_up.retain(|page| !pages.contains(page));
            self.dirty.extend(pages);
        }
    }

    fn sync(&mut self) {
        self.durable.resize(self.seen.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            self.keep(page * PAGE, PAGE);
        }
    }

    fn give_up(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.given_up.extend(dirty);
    }

    /// Makes these bytes durable.
    fn keep(&mut self, start: usize, len: usize) {
        let end = (start + len).min(self.seen.len());
        if start >= end {
            return;
        }
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[start..end].copy_from_slice(&self.seen[start..end]);
    }

    /// What is left after a crash.
    fn survivor(&self, chance: &mut Option<Chance>) -> Content {
        let mut left = self.clone();
        if let Some(chance) = chance {
            let unsure: Vec<usize> = self.dirty.union(&self.given_up).copied().collect();
            let torn = unsure.get(chance.below(unsure.len().max(1) as u64) as usize).copied();
            for page in unsure {
                if Some(page) == torn && chance.toss() {
                    for sector in 0..PAGE / SECTOR {
                        if chance.toss() {
                            left.keep(page * PAGE + sector * SECTOR, SECTOR);
                        }
                    }
                } else if chance.toss() {
                    left.keep(page * PAGE, PAGE);
                }
            }
        }
        let durable = left.durable;
        Content { seen: durable.clone(), durable, ..Content::default() }
    }
}

/// A small generator of numbers that depend on the seed only (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn toss(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

impl SimulatedDisk {
    /// An empty directory without faults.
    #[must_use]
    pub fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    /// The disk after a power cut at this moment: all that was synced, and what the seed picks of the rest.
    #[must_use]
    pub fn crash(&self, seed: u64) -> SimulatedDisk {
        self.after_crash(Some(Chance(seed)))
    }

    /// The disk after a power cut at this moment that took everything that was not synced.
    #[must_use]
    pub fn crash_all_lost(&self) -> SimulatedDisk {
        self.after_crash(None)
    }

    fn after_crash(&self, mut chance: Option<Chance>) -> SimulatedDisk {
        let state = self.0.lock();
        let mut names = state.durable_names.clone();
        if let Some(chance) = &mut chance {
            let survive = chance.below(state.unsynced_names.len() as u64 + 1) as usize;
            state.unsynced_names[..survive].iter().for_each(|change| change.apply(&mut names));
        }
        let mut left = State { next_file: state.next_file, quarantine: state.quarantine.clone(), ..State::default() };
        for &file in names.values() {
            if let Some(content) = state.files.get(&file) {
                left.files.insert(file, content.survivor(&mut chance));
            }
        }
        left.names.clone_from(&names);
        left.durable_names = names;
        SimulatedDisk(Arc::new(Mutex::new(left)))
    }

    /// How many bytes all files may have; what would be more is refused as by a full disk.
    pub fn limit(&self, bytes_max: Option<u64>) {
        self.0.lock().faults.bytes_max = bytes_max;
    }

    /// From now on all syncs fail, or none.
    pub fn fail_syncs(&self, fail: bool) {
        self.0.lock().faults.syncs = fail;
    }

    /// After `good` more syncs one fails.
    pub fn fail_sync_after(&self, good: u64) {
        self.0.lock().faults.sync_once_after = Some(good);
    }

    /// From now on all writes fail, half done, or none.
    pub fn fail_writes(&self, fail: bool) {
        self.0.lock().faults.writes = fail;
    }

    /// After `good` more syncs the machine is off: the sync after them and all that follows fails and changes nothing.
    pub fn stop_after_syncs(&self, good: u64) {
        self.0.lock().faults.off_after_syncs = Some(good);
    }

    /// How many syncs of files and of the directory have succeeded.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// How many bytes all files have together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes()
    }

    /// Damages one bit of a file, in memory and on the disk. Nothing happens beyond its end.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u8) {
        let mut state = self.0.lock();
        if let Some(content) = state.named(name) {
            for bytes in [&mut content.seen, &mut content.durable] {
                if let Some(byte) = bytes.get_mut(offset) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
    }

    /// Cuts a file off, in memory and on the disk.
    pub fn truncate(&self, name: &str, len: usize) {
        let mut state = self.0.lock();
        if let Some(content) = state.named(name) {
            content.seen.truncate(len);
            content.durable.truncate(len);
        }
    }

    /// Name and bytes of every file that was quarantined, oldest first.
    #[must_use]
    pub fn quarantined(&self) -> Vec<(String, Vec<u8>)> {
        self.0.lock().quarantine.clone()
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.names.values().filter_map(|file| self.files.get(file)).map(|content| content.seen.len() as u64).sum()
    }

    fn named(&mut self, name: &str) -> Option<&mut Content> {
        let file = self.names.get(name)?;
        self.files.get_mut(file)
    }

    fn check_on(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the machine is off")) } else { Ok(()) }
    }

    fn check_room(&self, grows_by: u64) -> io::Result<()> {
        match self.faults.bytes_max {
            Some(max) if grows_by > 0 && self.bytes() + grows_by > max => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// What becomes of a sync now. `Err` with the machine still on: it fails.
    fn sync_fate(&mut self) -> io::Result<()> {
        self.check_on()?;
        if let Some(good) = &mut self.faults.off_after_syncs {
            if *good == 0 {
                self.off = true;
                return self.check_on();
            }
            *good -= 1;
        }
        let once = match &mut self.faults.sync_once_after {
            Some(0) => self.faults.sync_once_after.take().is_some(),
            Some(good) => {
                *good -= 1;
                false
            }
            None => false,
        };
        if once || self.faults.syncs {
            return Err(io::Error::other("the disk failed to sync"));
        }
        self.syncs += 1;
        Ok(())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_on()?;
        let offset = usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let len = self.files.get(&file).map_or(0, |content| content.seen.len());
        self.check_room((offset + bytes.len()).saturating_sub(len) as u64)?;
        let fails = self.faults.writes;
        if let Some(content) = self.files.get_mut(&file) {
            content.write(offset, if fails { &bytes[..bytes.len() / 2] } else { bytes });
        }
        if fails { Err(io::Error::other("the disk failed to write")) } else { Ok(()) }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        state.check_on()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.check_on()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.next_file;
        state.next_file += 1;
        state.files.insert(file, Content::default());
        state.change(Change::Put(name.to_owned(), file));
        Ok(Arc::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.0.lock();
        state.check_on()?;
        let file = *state.names.get(name).ok_or_else(not_found)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check_on()?;
        if !state.names.contains_key(from) {
            return Err(not_found());
        }
        state.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check_on()?;
        if !state.names.contains_key(name) {
            return Err(not_found());
        }
        state.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.sync_fate()?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn quarantine(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check_on()?;
        let bytes = state.named(name).ok_or_else(not_found)?.seen.clone();
        state.quarantine.push((name.to_owned(), bytes));
        Ok(())
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    file: u64,
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.disk.0.lock();
        state.check_on()?;
        Ok(state.files.get(&self.file).map_or(0, |content| content.seen.len() as u64))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.0.lock();
        state.check_on()?;
        let seen = state.files.get(&self.file).map_or(&[][..], |content| &content.seen[..]);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(seen.len());
        let read = buf.len().min(seen.len() - start);
        buf[..read].copy_from_slice(&seen[start..start + read]);
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.0.lock().write(self.file, offset, bytes)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let old = state.files.get(&self.file).map_or(0, |content| content.seen.len() as u64);
        let Ok(missing) = usize::try_from(len.saturating_sub(old)) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        state.check_room(missing as u64)?;
        state.write(self.file, old, &vec![0; missing])
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let fate = state.sync_fate();
        let off = state.off;
        if let Some(content) = state.files.get_mut(&self.file) {
            match &fate {
                Ok(()) => content.sync(),
                Err(_) if off => {}
                Err(_) => content.give_up(),
            }
        }
        fate
    }
}
