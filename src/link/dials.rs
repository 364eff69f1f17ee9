//! When which connection to one peer is dialled: each at once when it is wanted, and after a failure later and later.
//!
//! Owned by the task of the peer. Each attempt is a task of its own that reports by an event; its tag tells whether anybody still waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::handshake::{Dialled, dial};
use super::hello::Purpose;
use super::peer::{Event, PeerHandle};
use super::refusal::Failure;
use super::shared::{Shared, backoff};
use crate::limits::SHARDS_MAX;

/// What came of an attempt.
pub(super) type Outcome = Result<Box<Dialled>, Failure>;

/// Far enough away for a timer that waits for nothing.
const NEVER: Duration = Duration::from_secs(3600);

pub(super) struct Dials {
    shared: Arc<Shared>,
    handle: Arc<PeerHandle>,
    /// The address where the peer was met, if it was dialled then: it may be reachable there and not where it says.
    met_at: Option<String>,
    dials: HashMap<Purpose, Dial>,
    tags: u64,
}

struct Dial {
    state: State,
    failures: u32,
}

enum State {
    /// To be dialled from this time on, if it is wanted then.
    Due(Instant),
    UnderWay {
        tag: u64,
        task: JoinHandle<()>,
    },
    Established,
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.abort();
    }
}

impl Dial {
    fn now() -> Self {
        Self { state: State::Due(Instant::now()), failures: 0 }
    }

    fn abort(&self) {
        if let State::UnderWay { task, .. } = &self.state {
            task.abort();
        }
    }
}

impl Dials {
    pub(super) fn new(shared: Arc<Shared>, handle: Arc<PeerHandle>, met_at: Option<String>) -> Self {
        Self { shared, handle, met_at, dials: HashMap::new(), tags: 0 }
    }

    /// Begins every attempt that is wanted and due. Returns when the next one is.
    pub(super) fn start_due(&mut self, is_up: bool, data: u64) -> Instant {
        let mut next = Instant::now() + NEVER;
        let data = (0..SHARDS_MAX as u16).filter(|shard| data & (1 << shard) != 0).map(Purpose::Data);
        let with_the_link = std::iter::once(Purpose::Bulk).chain(data).filter(|_| is_up);
        for purpose in std::iter::once(Purpose::Control).chain(with_the_link) {
            match self.dials.entry(purpose).or_insert_with(Dial::now).state {
                State::Due(due) if due <= Instant::now() => self.begin(purpose),
                State::Due(due) => next = next.min(due),
                _ => {}
            }
        }
        next
    }

    fn begin(&mut self, purpose: Purpose) {
        self.tags += 1;
        let tag = self.tags;
        let dial_entry = self.dials.entry(purpose).or_insert_with(Dial::now);
        let address = address(&self.shared, &self.handle, self.met_at.as_deref(), dial_entry.failures);
        let (shared, handle) = (Arc::clone(&self.shared), Arc::clone(&self.handle));
        let task = self.shared.runtime.spawn(async move {
            let outcome = dial(&shared, &address, Some(handle.id), purpose).await.map(Box::new);
            let _ = handle.events.send(Event::Dialled { purpose, tag, outcome }).await;
        });
        dial_entry.state = State::UnderWay { tag, task };
    }

    /// Whether this attempt is the one that is waited for.
    pub(super) fn is_under_way(&self, purpose: Purpose, tag: u64) -> bool {
        matches!(self.dials.get(&purpose), Some(Dial { state: State::UnderWay { tag: waited, .. }, .. }) if *waited == tag)
    }

    pub(super) fn established(&mut self, purpose: Purpose) {
        self.dials.insert(purpose, Dial { state: State::Established, failures: 0 });
    }

    pub(super) fn failed(&mut self, purpose: Purpose) {
        let failures = self.dials.get(&purpose).map_or(0, |dial| dial.failures);
        let state = State::Due(Instant::now() + backoff(failures));
        self.dials.insert(purpose, Dial { state, failures: failures.saturating_add(1) });
    }

    /// The peer was met at this address.
    pub(super) fn met_at(&mut self, address: String) {
        self.met_at = Some(address);
    }

    /// What was established has ended.
    pub(super) fn ended(&mut self, purpose: Purpose) {
        if let Some(dial) = self.dials.get_mut(&purpose).filter(|dial| matches!(dial.state, State::Established)) {
            dial.state = State::Due(Instant::now() + backoff(0));
        }
    }

    /// All is dialled anew, at once.
    pub(super) fn reset(&mut self) {
        self.dials.clear();
    }

    /// All data connections are dialled anew, at once.
    pub(super) fn reset_data(&mut self) {
        self.dials.retain(|purpose, _| !matches!(purpose, Purpose::Data(_)));
    }

    pub(super) fn abort(&mut self) {
        self.dials.clear();
    }
}

/// Where to dial. An address that the operator gave is the only one; else the one that the peer says, and in turn the one where it was met.
fn address(shared: &Shared, handle: &PeerHandle, met_at: Option<&str>, failures: u32) -> String {
    let peer = Arc::clone(&handle.shown.lock().peer);
    if let Some(address) = shared.overrides.get(&*peer.name) {
        return address.clone();
    }
    match met_at {
        Some(met_at) if failures % 2 == 1 => met_at.to_owned(),
        _ => peer.address.clone(),
    }
}
