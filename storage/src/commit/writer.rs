//! The thread that writes. It alone has the store.
//!
//! One step: take what was handed in, answer who asks for bodies, commit if it is time, make a little room. Then it sleeps until a flag is raised or something falls due.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use super::reader::{self, Job};
use super::{Audience, End, Load, Shared, State, spawn};
use crate::entry::Entry;
use crate::items::{Cleaned, CommitError, Group, Store};
use crate::journal::Chore;

/// After a failure it is tried again this much later.
const RETRY: Duration = Duration::from_secs(1);
/// Making room pauses for twice as long after each failure, up to this.
const CLEANING_PAUSE_MAX: Duration = Duration::from_secs(64);
/// Written at a time, when room is made.
const SLICE_BYTES: usize = 256 * 1024;
/// Written between two commits, when room is made.
const CLEANING_DEBT_MAX: u64 = 1024 * 1024;
/// Entries for which a source's vector keeps its room.
const ENTRIES_KEPT: usize = 8192;

struct Writer {
    shared: Arc<Shared>,
    store: Store,
    audience: Arc<dyn Audience>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    lazy: Duration,
    /// What was taken and is not on disk.
    group: Group,
    sources: Vec<Taken>,
    loads: Vec<(usize, Load)>,
    jobs: Sender<Job>,
    jobs_sent: u64,
    chores: Option<Sender<Chore>>,
    chores_thread: JoinHandle<()>,
    due: Due,
    state: State,
    cleaning_pause: Duration,
    /// Bytes to write again before the next commit, if there is room to make: about as many as the commits have written.
    cleaning_debt: u64,
    /// So many jobs must be done before the oldest segment goes: they may read from it.
    removal_behind: Option<u64>,
}

/// What was taken from one source.
#[derive(Default)]
struct Taken {
    /// Empty between two takes; changes places with the vector of the source.
    entries: Vec<Entry>,
    submitted: u64,
    told: u64,
    bytes: usize,
}

/// When there is something to do.
#[derive(Default)]
struct Due {
    /// A commit is wanted now.
    now: bool,
    /// What nobody waits for is written then.
    lazy: Option<Instant>,
    /// Not before: it has failed.
    retry: Option<Instant>,
    /// No room is made before.
    cleaning: Option<Instant>,
}

/// Starts the three threads. They end with [`Shared::end`].
pub(super) fn start(
    shared: &Arc<Shared>,
    store: Store,
    lazy: Duration,
    audience: &Arc<dyn Audience>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (jobs, jobs_in) = channel();
    let (chores, chores_in) = channel();
    let (bodies, shared_too, audience_too) = (store.reader(), shared.clone(), audience.clone());
    let reader = spawn("journal-reader", move || reader::run(&jobs_in, &bodies, &audience_too, &shared_too))?;
    let shared_too = shared.clone();
    let chores_thread = spawn("journal-chores", move || run_chores(&chores_in, &shared_too))?;
    let writer = Writer {
        shared: shared.clone(),
        store,
        audience: audience.clone(),
        clock,
        lazy,
        group: Group::default(),
        sources: shared.sources.iter().map(|_| Taken::default()).collect(),
        loads: Vec::new(),
        jobs,
        jobs_sent: 0,
        chores: Some(chores),
        chores_thread,
        due: Due::default(),
        state: State::Ok,
        cleaning_pause: RETRY,
        cleaning_debt: 0,
        removal_behind: None,
    };
    let writer = spawn("journal-writer", move || writer.run())?;
    let _ = shared.writer.set(writer.thread().clone());
    shared.wake();
    Ok(vec![writer, reader])
}

fn run_chores(chores: &Receiver<Chore>, shared: &Shared) {
    for chore in chores {
        let done = chore.run();
        shared.chores_done.lock().push(done);
        shared.wake();
    }
}

impl Writer {
    fn run(mut self) {
        loop {
            match self.shared.end.load(Ordering::SeqCst) {
                end if end == End::Closed as u8 => return self.close(),
                end if end == End::Abandoned as u8 => {
                    // When this thread has ended, nobody touches the directory any more.
                    self.chores = None;
                    let _ = self.chores_thread.join();
                    return;
                }
                _ => {}
            }
            match self.step() {
                Some(Duration::ZERO) => {}
                Some(wait) => thread::park_timeout(wait),
                None => thread::park(),
            }
        }
    }

    /// Does what is to be done, and says for how long it may sleep.
    fn step(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.shared.lazy.swap(false, Ordering::SeqCst) {
            self.due.lazy.get_or_insert(now + self.lazy);
        }
        self.due.now |= self.shared.urgent.swap(false, Ordering::SeqCst);
        self.due.now |= self.due.lazy.is_some_and(|at| at <= now);
        let asked = self.shared.loads.swap(false, Ordering::SeqCst);
        let commit = self.due.now && self.due.retry.is_none_or(|at| at <= now);
        if commit || asked {
            self.take();
            self.answer_loads();
        }
        if commit {
            self.commit();
        }
        let mut cleaned = self.clean();
        while cleaned && self.cleaning_debt > 0 {
            cleaned = self.clean();
        }
        self.do_chores();
        if commit || cleaned {
            self.report();
        }
        if cleaned { Some(Duration::ZERO) } else { self.wait() }
    }

    /// How long there is nothing to do, unless a flag is raised.
    fn wait(&self) -> Option<Duration> {
        let commit = match (self.due.now, self.due.retry) {
            (true, retry) => retry,
            (false, _) => self.due.lazy,
        };
        let now = Instant::now();
        // For a spare segment, when there was no room for one.
        let room = (self.state != State::Ok).then_some(now + RETRY);
        let next = [commit, self.due.cleaning, room].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Takes what all sources have handed in.
    fn take(&mut self) {
        for (at, (source, taken)) in self.shared.sources.iter().zip(&mut self.sources).enumerate() {
            let bytes = {
                let mut waiting = source.waiting.lock();
                std::mem::swap(&mut waiting.entries, &mut taken.entries);
                taken.submitted = waiting.submitted;
                self.loads.extend(waiting.loads.drain(..).map(|load| (at, load)));
                std::mem::take(&mut waiting.bytes)
            };
            taken.bytes += bytes;
            self.shared.gathered.fetch_sub(bytes, Ordering::SeqCst);
            let entries = taken.entries.len();
            self.group.reserve(entries);
            for entry in taken.entries.drain(..) {
                self.group.push(entry);
            }
            if taken.entries.capacity() > 8 * entries.max(ENTRIES_KEPT) {
                taken.entries.shrink_to(2 * entries.max(ENTRIES_KEPT));
            }
        }
    }

    fn answer_loads(&mut self) {
        for (source, Load { ticket, wanted }) in self.loads.drain(..) {
            let place = |(owner, item)| (owner, item, self.store.place(&self.group, owner, item));
            let places = wanted.into_iter().map(place).collect();
            // The reader ends only when this sender has.
            if self.jobs.send(Job { source, ticket, places }).is_ok() {
                self.jobs_sent += 1;
            }
        }
    }

    fn commit(&mut self) {
        match self.write_group() {
            Ok(()) => {
                self.due = Due { cleaning: self.due.cleaning, ..Due::default() };
                self.set_state(if self.store.is_low() { State::Low } else { State::Ok });
            }
            Err(error) => {
                self.due.retry = Some(Instant::now() + RETRY);
                self.set_state(State::Failing(error.text()));
            }
        }
    }

    /// Writes what was taken, and tells the sources.
    fn write_group(&mut self) -> Result<(), CommitError> {
        let written = self.store.commit((self.clock)(), &mut self.group)?;
        self.cleaning_debt = (self.cleaning_debt + written).min(CLEANING_DEBT_MAX);
        self.report();
        for (at, (source, taken)) in self.shared.sources.iter().zip(&mut self.sources).enumerate() {
            if taken.submitted > taken.told {
                source.pending.fetch_sub(std::mem::take(&mut taken.bytes), Ordering::Relaxed);
                taken.told = taken.submitted;
                self.audience.kept(at, taken.told);
            }
        }
        Ok(())
    }

    fn set_state(&mut self, state: State) {
        if self.state != state {
            self.state = state.clone();
            *self.shared.state.lock() = state.clone();
            self.audience.state(state);
        }
    }

    /// One step of making room. True: there is more to do.
    fn clean(&mut self) -> bool {
        if self.due.cleaning.is_some_and(|at| at > Instant::now()) {
            return false;
        }
        self.due.cleaning = None;
        let cleaned = self.store.clean((self.clock)(), SLICE_BYTES).and_then(|cleaned| match cleaned {
            Cleaned::Nothing => {
                self.cleaning_debt = 0;
                Ok(false)
            }
            Cleaned::Some(bytes) => {
                self.cleaning_debt = self.cleaning_debt.saturating_sub(bytes);
                Ok(true)
            }
            Cleaned::Removable => self.remove_front(),
        });
        match cleaned {
            Ok(more) => {
                if more {
                    self.cleaning_pause = RETRY;
                }
                more
            }
            Err(_) => {
                self.due.cleaning = Some(Instant::now() + self.cleaning_pause);
                self.cleaning_pause = (self.cleaning_pause * 2).min(CLEANING_PAUSE_MAX);
                false
            }
        }
    }

    /// Frees the oldest segment, unless the reader may still be reading from it. True: done.
    fn remove_front(&mut self) -> Result<bool, CommitError> {
        let behind = *self.removal_behind.get_or_insert(self.jobs_sent);
        self.shared.jobs_awaited.store(true, Ordering::SeqCst);
        if self.shared.jobs_done.load(Ordering::SeqCst) < behind {
            return Ok(false);
        }
        self.shared.jobs_awaited.store(false, Ordering::SeqCst);
        self.removal_behind = None;
        self.store.remove_front()?;
        // There may be room now.
        self.due.retry = None;
        Ok(true)
    }

    fn do_chores(&mut self) {
        let done = std::mem::take(&mut *self.shared.chores_done.lock());
        for done in done {
            self.store.chore_done(done);
        }
        let Some(chores) = &self.chores else { return };
        let now = (self.clock)();
        while let Some(chore) = self.store.chore(now) {
            // The thread ends only when this sender has.
            let _ = chores.send(chore);
        }
        if matches!(self.state, State::Ok | State::Low) {
            self.set_state(if self.store.is_low() { State::Low } else { State::Ok });
        }
    }

    fn report(&self) {
        *self.shared.figures.lock() = self.store.figures();
    }

    /// Writes what is pending; the other threads end behind it.
    fn close(mut self) {
        self.take();
        self.answer_loads();
        let mut written = self.write_group();
        // What has failed may go to the next segment, or to room that is made now.
        let mut left = 2u32;
        while written.is_err() && (self.clean() || left > 0) {
            left = left.saturating_sub(1);
            written = self.write_group();
        }
        if let Err(error) = written {
            *self.shared.failed_end.lock() = Some(error.text());
        }
        self.chores = None;
        let Writer { shared, mut store, chores_thread, .. } = self;
        let _ = chores_thread.join();
        for done in std::mem::take(&mut *shared.chores_done.lock()) {
            store.chore_done(done);
        }
        store.seal();
        *shared.figures.lock() = store.figures();
    }
}
