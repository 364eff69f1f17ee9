//! Questions that others ask about the sessions of a shard, and the one thing that they may do to a connection: end it.
//!
//! A shard answers between its turns and examines at most [`limits::INSPECTED_PER_EVENT`] sessions for one event: whoever wants to know more asks again,
//! from where the answer ended. Sessions are examined in the order of their keys, which a session keeps from its beginning to its end: one that is
//! there all the while is met once, one that comes or goes meanwhile perhaps.
//!
//! Owns nothing. The asker may be gone when the answer comes; nothing depends on it.

use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::limits;
use crate::mqtt::{ProtocolVersion, QoS, ReasonCode};
use crate::session::Subscription;
use crate::subscriptions::SessionKey;
use crate::topic;

use super::greeted::ListenerState;
use super::{Close, SessionSlot, Shard};

/// A question. The answer goes to `reply`.
#[derive(Debug)]
pub enum Inspect {
    /// Sessions by their client ids.
    Slice { asked: Slice, reply: oneshot::Sender<Found> },
    /// One session and at most so many of its subscriptions.
    Session {
        client_id: Arc<str>,
        subscriptions_max: usize,
        reply: oneshot::Sender<Option<(SessionView, Subscriptions)>>,
    },
    /// Who would receive a message of this topic by a subscription of its own, so many at the most.
    Matching { topic: Arc<str>, at_most: usize, reply: oneshot::Sender<Matching> },
    /// What the queues hold.
    Census { from: SessionKey, reply: oneshot::Sender<Census> },
}

/// Which sessions are asked for: those examined from a key on whose client id is between two, both excluded; of these the `at_most` smallest.
#[derive(Debug, Clone, Default)]
pub struct Slice {
    pub from: SessionKey,
    pub after: Option<Arc<str>>,
    pub before: Option<Arc<str>>,
    pub at_most: usize,
}

/// Sessions in the order of their client ids, and from where to go on.
#[derive(Debug, Default)]
pub struct Found {
    pub sessions: Vec<SessionView>,
    /// `None`: all have been examined.
    pub next: Option<SessionKey>,
}

/// A session as others see it.
#[derive(Debug, Clone)]
pub struct SessionView {
    pub client_id: Arc<str>,
    pub epoch: u64,
    /// In seconds; `u32::MAX` is for ever.
    pub expiry_secs: u32,
    pub subscriptions: usize,
    pub queue_messages: usize,
    pub queue_bytes: usize,
    pub inflight: usize,
    pub dropped: u64,
    pub connection: Option<ConnectionView>,
}

/// A connection as others see it.
#[derive(Debug, Clone)]
pub struct ConnectionView {
    pub version: ProtocolVersion,
    pub peer: SocketAddr,
    pub listener: Arc<ListenerState>,
    pub user_name: Option<Arc<str>>,
    /// When its socket was accepted, in milliseconds of the node's clock.
    pub accepted_at: u64,
    pub outbox_bytes: usize,
}

/// The first subscriptions of a session, in the order of their filters, and whether there are more.
#[derive(Debug, Default)]
pub struct Subscriptions {
    pub list: Vec<(Arc<str>, Subscription)>,
    pub truncated: bool,
}

/// Subscriptions that match a topic, and whether there are more.
#[derive(Debug, Default)]
pub struct Matching {
    pub list: Vec<MatchView>,
    pub truncated: bool,
}

/// A subscription that matches.
#[derive(Debug)]
pub struct MatchView {
    pub client_id: Arc<str>,
    pub filter: Arc<str>,
    pub qos: QoS,
    pub connected: bool,
}

/// Sums over sessions and their connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    pub queue_messages: u64,
    pub queue_bytes: u64,
    /// The part of `queue_bytes` that is in memory.
    pub queue_bytes_here: u64,
    pub inflight: u64,
    pub outbox_bytes: u64,
    /// Of the whole shard, so in the last answer alone: connections that are not read from until somebody has caught up; outcomes of commands that
    /// are awaited; what waits for the disk.
    pub stalled: u64,
    pub awaited: u64,
    pub unkept: u64,
    /// From where to go on; `None`: that was all.
    pub next: Option<SessionKey>,
}

impl Census {
    /// The sums of both; `next` is that of `more`.
    pub fn add(&mut self, more: Census) {
        self.queue_messages += more.queue_messages;
        self.queue_bytes += more.queue_bytes;
        self.queue_bytes_here += more.queue_bytes_here;
        self.inflight += more.inflight;
        self.outbox_bytes += more.outbox_bytes;
        self.stalled += more.stalled;
        self.awaited += more.awaited;
        self.unkept += more.unkept;
        self.next = more.next;
    }
}

impl Shard {
    pub(super) fn inspect(&mut self, question: Inspect) {
        // Who asked may have given up.
        match question {
            Inspect::Slice { asked, reply } => drop(reply.send(self.slice(&asked))),
            Inspect::Session { client_id, subscriptions_max, reply } => {
                let slot = self.by_client.get(&client_id).map(|key| &self.sessions[*key as usize]);
                drop(reply.send(slot.map(|slot| (self.view(slot), subscriptions(slot, subscriptions_max)))));
            }
            Inspect::Matching { topic, at_most, reply } => drop(reply.send(self.matching(&topic, at_most))),
            Inspect::Census { from, reply } => drop(reply.send(self.census(from))),
        }
    }

    /// Ends the connection of a client. Answers whether there was one, `None` if there is not even a session.
    pub(super) fn kick(&mut self, client_id: &str, reply: oneshot::Sender<Option<bool>>) {
        let connection = self.by_client.get(client_id).map(|key| self.sessions[*key as usize].connection);
        if let Some(Some(key)) = connection {
            self.close(key, Close::ByServer { reason: ReasonCode::AdministrativeAction, what: "" });
        }
        let _ = reply.send(connection.map(|key| key.is_some()));
    }

    /// The keys that one event examines, and the key behind them if there may be more.
    fn keys(&self, from: SessionKey) -> (std::ops::Range<usize>, Option<SessionKey>) {
        let from = from as usize;
        let all = self.sessions.capacity();
        let end = from.saturating_add(limits::INSPECTED_PER_EVENT).min(all);
        (from.min(end)..end, (end < all).then_some(end as SessionKey))
    }

    fn slice(&self, asked: &Slice) -> Found {
        let (keys, next) = self.keys(asked.from);
        let wanted = |id: &Arc<str>| {
            asked.after.as_ref().is_none_or(|after| id > after)
                && asked.before.as_ref().is_none_or(|before| id < before)
        };
        let mut smallest: BinaryHeap<(&Arc<str>, usize)> = BinaryHeap::new();
        for key in keys {
            let Some(slot) = self.sessions.get(key) else { continue };
            let id = slot.session.client_id();
            if !wanted(id) || asked.at_most == 0 {
                continue;
            }
            if smallest.len() < asked.at_most {
                smallest.push((id, key));
            } else if let Some(mut greatest) = smallest.peek_mut()
                && id < greatest.0
            {
                *greatest = (id, key);
            }
        }
        let sessions = smallest.into_sorted_vec().into_iter().map(|(_, key)| self.view(&self.sessions[key])).collect();
        Found { sessions, next }
    }

    fn view(&self, slot: &SessionSlot) -> SessionView {
        let session = &slot.session;
        let connection = slot.connection.and_then(|key| self.connections.get(key as usize));
        SessionView {
            client_id: session.client_id().clone(),
            epoch: session.epoch(),
            expiry_secs: session.expiry_secs(),
            subscriptions: session.subscription_count(),
            queue_messages: session.queue().len(),
            queue_bytes: session.queue().bytes(),
            inflight: session.inflight_count(),
            dropped: session.dropped(),
            connection: connection.map(|connection| ConnectionView {
                version: connection.version,
                peer: connection.peer,
                listener: connection.listener.state().clone(),
                user_name: connection.user_name.clone(),
                accepted_at: connection.accepted_at,
                outbox_bytes: connection.outbox.len(),
            }),
        }
    }

    /// The subscriptions of each session that has one which matches are looked through: [`limits::MATCHED_PER_EVENT`] of them at the most.
    fn matching(&self, topic: &str, at_most: usize) -> Matching {
        let mut keys: Vec<SessionKey> = Vec::new();
        self.index.for_each_match(topic, |found| {
            let left = (at_most + 1).saturating_sub(keys.len());
            keys.extend(found.as_slice().iter().take(left).map(|subscriber| subscriber.session));
        });
        keys.sort_unstable();
        keys.dedup();
        let mut found = Matching::default();
        let mut left = limits::MATCHED_PER_EVENT;
        for slot in keys.into_iter().map(|key| &self.sessions[key as usize]) {
            for (filter, subscription) in slot.session.subscriptions() {
                if left == 0 {
                    found.truncated = true;
                    return found;
                }
                left -= 1;
                if !filter.starts_with("$share/") && topic::matches(filter, topic) {
                    if found.list.len() == at_most {
                        found.truncated = true;
                        return found;
                    }
                    let (client_id, qos) = (slot.session.client_id().clone(), subscription.options.qos);
                    let connected = slot.connection.is_some();
                    found.list.push(MatchView { client_id, filter: filter.clone(), qos, connected });
                }
            }
        }
        found
    }

    fn census(&self, from: SessionKey) -> Census {
        let (keys, next) = self.keys(from);
        let mut sums = Census { next, ..Census::default() };
        for slot in keys.filter_map(|key| self.sessions.get(key)) {
            let queue = slot.session.queue();
            sums.queue_messages += queue.len() as u64;
            sums.queue_bytes += queue.bytes() as u64;
            sums.queue_bytes_here += queue.bytes_here() as u64;
            sums.inflight += slot.session.inflight_count() as u64;
            let connection = slot.connection.and_then(|key| self.connections.get(key as usize));
            sums.outbox_bytes += connection.map_or(0, |connection| connection.outbox.len() as u64);
        }
        if next.is_none() {
            sums.stalled = self.stalled.len() as u64;
            sums.awaited = self.pending.len() as u64;
            sums.unkept = self.keeping.waiting_count() as u64;
        }
        sums
    }
}

/// The whole list is looked through, which a session's own bound keeps short.
fn subscriptions(slot: &SessionSlot, at_most: usize) -> Subscriptions {
    let mut list: Vec<_> =
        slot.session.subscriptions().map(|(filter, subscription)| (filter.clone(), *subscription)).collect();
    let truncated = list.len() > at_most;
    if truncated && at_most > 0 {
        list.select_nth_unstable_by(at_most - 1, |one, other| one.0.cmp(&other.0));
    }
    list.truncate(at_most);
    list.sort_by(|one, other| one.0.cmp(&other.0));
    Subscriptions { list, truncated }
}
