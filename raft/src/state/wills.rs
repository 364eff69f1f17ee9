//! Wills that are due: handed out as an effect, kept until somebody says that they are published.
//!
//! A Will is in one of three places. While its client is connected, and while its delay runs, it is in the lease; there it may still be
//! dropped or cancelled. Once due it is here, and is published even if the client comes back. `WillDone` removes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::digest::Digest;
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
pub(super) struct DueWills(BTreeMap<(ClientId, SessionEpoch), Bytes>);

impl DueWills {
    pub(super) fn insert(&mut self, client: ClientId, epoch: SessionEpoch, message: Bytes) {
        let earlier = self.0.insert((client, epoch), message);
        assert!(earlier.is_none(), "a Will becomes due once per client and epoch");
    }

    /// Whether there was such a Will.
    pub(super) fn remove(&mut self, client: ClientId, epoch: SessionEpoch) -> bool {
        self.0.remove(&(client, epoch)).is_some()
    }

    /// Whether a Will of any connection of `client` is due.
    pub(super) fn any_of(&self, client: &ClientId) -> bool {
        let all = (Arc::clone(client), SessionEpoch::MIN)..=(Arc::clone(client), SessionEpoch::MAX);
        self.0.range(all).next().is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Effect> {
        self.0.iter().map(|((client, epoch), message)| Effect::WillDue {
            client: Arc::clone(client),
            epoch: *epoch,
            message: message.clone(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for ((client, epoch), message) in &self.0 {
            digest.add(&[&"will", client, epoch, &message.as_ref()]);
        }
    }
}
