//! Wills that are due: handed out as an effect, kept until somebody says that they are published.
//!
//! A Will is in one of three places. While its client is connected, and while its delay runs, it is in the lease; there it may still be
//! dropped or cancelled. Once due it is here, and is published even if the client comes back. `WillDone` removes it.
//!
//! It is announced to one incarnation of one node. One whose publisher is no more, or which was due before a restart, is announced once more;
//! until then it waits in `unannounced`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::digest::Digest;
use super::nodes::{Node, NodeSlot};
use crate::command::{ClientId, Effect, Incarnation, LeaseWill, NEVER_EXPIRES, SessionEpoch};

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

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DueWill {
    pub(super) message: Bytes,
    pub(super) publisher: Publisher,
}

/// Who has been told to publish a Will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Publisher {
    Node(NodeSlot, Incarnation),
    /// Nobody yet: its place in `unannounced`.
    Nobody {
        place: u64,
    },
}

/// The place of the first that waits, so far from both ends that these are never reached.
const MIDDLE: u64 = 1 << 63;

/// The Wills that are due and not yet done.
#[derive(Debug, Clone, Default)]
pub(super) struct DueWills {
    due: BTreeMap<(ClientId, SessionEpoch), DueWill>,
    /// All without publisher, in the order in which they are announced.
    unannounced: BTreeMap<u64, (ClientId, SessionEpoch)>,
    bytes: u64,
}

impl DueWills {
    /// The Will becomes due. If nobody can publish it, it is announced later.
    pub(super) fn become_due(
        &mut self,
        client: &ClientId,
        epoch: SessionEpoch,
        message: Bytes,
        publisher: Option<&Node>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(node) = publisher else {
            self.wait(Arc::clone(client), epoch, message);
            return;
        };
        let (publisher, told) = (Publisher::Node(node.slot, node.incarnation), message.clone());
        self.put(Arc::clone(client), epoch, DueWill { message, publisher });
        let client = Arc::clone(client);
        effects.push(Effect::WillDue { client, epoch, message: told, publisher: node.id });
    }

    /// The Will is the last of those without publisher.
    pub(super) fn wait(&mut self, client: ClientId, epoch: SessionEpoch, message: Bytes) {
        let place = self.last_place();
        self.unannounced.insert(place, (Arc::clone(&client), epoch));
        self.put(client, epoch, DueWill { message, publisher: Publisher::Nobody { place } });
    }

    /// The Will has that publisher.
    pub(super) fn put(&mut self, client: ClientId, epoch: SessionEpoch, will: DueWill) {
        self.bytes += will.message.len() as u64;
        let earlier = self.due.insert((client, epoch), will);
        assert!(earlier.is_none(), "a Will becomes due once per client and epoch");
    }

    fn last_place(&self) -> u64 {
        self.unannounced.last_key_value().map_or(MIDDLE, |(last, _)| last + 1)
    }

    /// Whether there was such a Will.
    pub(super) fn remove(&mut self, client: &ClientId, epoch: SessionEpoch) -> bool {
        let Some(gone) = self.due.remove(&(Arc::clone(client), epoch)) else {
            return false;
        };
        self.bytes -= gone.message.len() as u64;
        if let Publisher::Nobody { place } = gone.publisher {
            self.unannounced.remove(&place);
        }
        true
    }

    /// A Will that was due when the node ended: nobody knows whether it was published. The last one is handed out first.
    pub(super) fn restore(&mut self, client: &ClientId, epoch: SessionEpoch, message: Bytes) {
        if self.get(client, epoch).is_none() {
            let place = self.unannounced.first_key_value().map_or(MIDDLE, |(first, _)| first - 1);
            self.unannounced.insert(place, (Arc::clone(client), epoch));
            self.put(Arc::clone(client), epoch, DueWill { message, publisher: Publisher::Nobody { place } });
        }
    }

    /// Hands out a Will that has no publisher.
    pub(super) fn announce(
        &mut self,
        client: &ClientId,
        epoch: SessionEpoch,
        publisher: &Node,
        effects: &mut Vec<Effect>,
    ) {
        let Some(will) = self.due.get_mut(&(Arc::clone(client), epoch)) else {
            return;
        };
        if let Publisher::Nobody { place } = will.publisher {
            self.unannounced.remove(&place);
        }
        will.publisher = Publisher::Node(publisher.slot, publisher.incarnation);
        let (client, message) = (Arc::clone(client), will.message.clone());
        effects.push(Effect::WillDue { client, epoch, message, publisher: publisher.id });
    }

    /// Those of one client that have no publisher, before anything newer of it.
    pub(super) fn announce_all_of(&mut self, client: &ClientId, publisher: &Node, effects: &mut Vec<Effect>) {
        if self.unannounced.is_empty() {
            return;
        }
        let without = self.all_of(client).filter(|(_, will)| matches!(will.publisher, Publisher::Nobody { .. }));
        let epochs: Vec<SessionEpoch> = without.map(|(epoch, _)| epoch).collect();
        epochs.into_iter().for_each(|epoch| self.announce(client, epoch, publisher, effects));
    }

    /// The incarnation of `node` is over: what was announced to it is to be announced again.
    pub(super) fn take_from(&mut self, node: NodeSlot) {
        let first = self.last_place();
        let of_it = |will: &DueWill| matches!(will.publisher, Publisher::Node(slot, _) if slot == node);
        for (place, (key, will)) in (first..).zip(self.due.iter_mut().filter(|(_, will)| of_it(will))) {
            will.publisher = Publisher::Nobody { place };
            self.unannounced.insert(place, key.clone());
        }
    }

    /// The next to be announced.
    pub(super) fn first_unannounced(&self) -> Option<(ClientId, SessionEpoch)> {
        self.unannounced.first_key_value().map(|(_, key)| key.clone())
    }

    pub(super) fn any_unannounced(&self) -> bool {
        !self.unannounced.is_empty()
    }

    /// Those without publisher, in the order in which they are announced.
    pub(super) fn unannounced(&self) -> impl Iterator<Item = (&ClientId, SessionEpoch, &Bytes)> {
        let waiting = self.unannounced.values();
        waiting.filter_map(|key| Some((&key.0, key.1, &self.due.get(key)?.message)))
    }

    /// Somebody other than `node` who publishes a Will of `client`.
    pub(super) fn publisher_but(&self, node: NodeSlot, client: &str) -> Option<NodeSlot> {
        let client: ClientId = client.into();
        self.all_of(&client).find_map(|(_, will)| match will.publisher {
            Publisher::Node(publisher, _) if publisher != node => Some(publisher),
            _ => None,
        })
    }

    /// Whether a Will of any connection of `client` is due.
    pub(super) fn any_of(&self, client: &ClientId) -> bool {
        self.all_of(client).next().is_some()
    }

    pub(super) fn get(&self, client: &ClientId, epoch: SessionEpoch) -> Option<&DueWill> {
        self.due.get(&(Arc::clone(client), epoch))
    }

    /// The Wills of `client` that are due, in the order of their epochs.
    pub(super) fn of(&self, client: &ClientId) -> impl Iterator<Item = (SessionEpoch, &Bytes)> {
        self.all_of(client).map(|(epoch, will)| (epoch, &will.message))
    }

    fn all_of(&self, client: &ClientId) -> impl Iterator<Item = (SessionEpoch, &DueWill)> {
        let all = (Arc::clone(client), SessionEpoch::MIN)..=(Arc::clone(client), SessionEpoch::MAX);
        self.due.range(all).map(|((_, epoch), will)| (*epoch, will))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ClientId, SessionEpoch, &DueWill)> {
        self.due.iter().map(|((client, epoch), will)| (client, *epoch, will))
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// Bytes of their messages.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn digest(&self, digest: &mut Digest) {
        for ((client, epoch), will) in &self.due {
            let (node, incarnation) = match will.publisher {
                Publisher::Node(node, incarnation) => (node.number(), incarnation),
                Publisher::Nobody { .. } => (u64::MAX, 0),
            };
            digest.add(&[&"will", client, epoch, &will.message.as_ref(), &node, &incarnation]);
        }
        for (place, (client, epoch)) in self.unannounced.values().enumerate() {
            digest.add(&[&"unannounced", client, epoch, &(place as u64)]);
        }
    }
}
