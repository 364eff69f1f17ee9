//! Wills that are due: handed out as an effect, kept until somebody says that they are published.
//!
//! A Will is in one of three places. While its client is connected, and while its delay runs, it is in the lease; there it may still be
//! dropped or cancelled. Once due it is here, and is published even if the client comes back. `WillDone` removes it.
//! One that was due before a restart is handed out once more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::digest::Digest;
use super::nodes::{NodeSlot, Nodes};
use crate::command::{ClientId, Effect, LeaseWill, NEVER_EXPIRES, SessionEpoch};

/// Control time at which a session with this expiry interval ends, detached at `since`; `None`: never.
pub(super) fn session_end(since: u64, expiry_secs: u32) -> Option<u64> {
    (expiry_secs != NEVER_EXPIRES).then(|| after(since, expiry_secs))
}

/// Control time at which a Will is due whose connection ended at `since`: after its delay, or when the session ends, whichever
/// comes first (section 3.1.3.2.2).
pub(super) fn will_due(since: u64, will: &LeaseWill, expiry_secs: u32) -> u64 {
    after(since, will.delay_secs.min(expiry_secs))
}

fn after(since: u64, secs: u32) -> u64 {
    since.saturating_add(u64::from(secs) * 1000)
}

/// The Wills that are due and not yet done.
#[derive(Debug, Default)]
pub(super) struct DueWills {
    due: BTreeMap<(ClientId, SessionEpoch), (Bytes, NodeSlot)>,
    /// Those of an earlier run, until a tick has handed them out once more.
    again: VecDeque<(ClientId, SessionEpoch)>,
}

impl DueWills {
    pub(super) fn insert(&mut self, client: ClientId, epoch: SessionEpoch, message: Bytes, publisher: NodeSlot) {
        let earlier = self.due.insert((client, epoch), (message, publisher));
        assert!(earlier.is_none(), "a Will becomes due once per client and epoch");
    }

    /// Whether there was such a Will.
    pub(super) fn remove(&mut self, client: ClientId, epoch: SessionEpoch) -> bool {
        self.due.remove(&(client, epoch)).is_some()
    }

    /// A Will that was due when the node ended: nobody knows whether it was published. The last one is handed out first.
    pub(super) fn restore(&mut self, client: ClientId, epoch: SessionEpoch, message: Bytes, publisher: NodeSlot) {
        let key = (client, epoch);
        if self.due.insert(key.clone(), (message, publisher)).is_none() {
            self.again.push_front(key);
        }
    }

    /// The next of those, for the first time in this run.
    pub(super) fn announce_again(&mut self, nodes: &Nodes) -> Option<Effect> {
        while let Some((client, epoch)) = self.again.pop_front() {
            let key = (client, epoch);
            if let Some((message, publisher)) = self.due.get(&key).cloned() {
                return Some(Effect::WillDue { client: key.0, epoch, message, publisher: nodes.id(publisher) });
            }
        }
        None
    }

    /// Those of one client, before anything newer of it.
    pub(super) fn announce_again_of(&mut self, client: &ClientId, nodes: &Nodes) -> Vec<Effect> {
        if self.again.is_empty() || !self.any_of(client) {
            return Vec::new();
        }
        let epochs: Vec<SessionEpoch> =
            self.again.iter().filter(|(again, _)| again == client).map(|(_, epoch)| *epoch).collect();
        self.again.retain(|(again, _)| again != client);
        let due = epochs.into_iter().filter_map(|epoch| {
            let (message, publisher) = self.due.get(&(Arc::clone(client), epoch))?.clone();
            Some(Effect::WillDue { client: Arc::clone(client), epoch, message, publisher: nodes.id(publisher) })
        });
        due.collect()
    }

    /// Whether [`announce_again`](Self::announce_again) may have something.
    pub(super) fn is_some_unannounced(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether a Will of any connection of `client` is due.
    pub(super) fn any_of(&self, client: &ClientId) -> bool {
        self.of(client).next().is_some()
    }

    /// The Wills of `client` that are due, in the order of their epochs.
    pub(super) fn of(&self, client: &ClientId) -> impl Iterator<Item = (SessionEpoch, &Bytes)> {
        let all = (Arc::clone(client), SessionEpoch::MIN)..=(Arc::clone(client), SessionEpoch::MAX);
        self.due.range(all).map(|((_, epoch), (message, _))| (*epoch, message))
    }

    pub(super) fn iter(&self, nodes: &Nodes) -> impl Iterator<Item = Effect> {
        self.due.iter().map(|((client, epoch), (message, publisher))| Effect::WillDue {
            client: Arc::clone(client),
            epoch: *epoch,
            message: message.clone(),
            publisher: nodes.id(*publisher),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for ((client, epoch), (message, _)) in &self.due {
            digest.add(&[&"will", client, epoch, &message.as_ref()]);
        }
    }
}
