//! The sessions that a start has found on disk, on their way into their shard. They are entered before any listener is open, so a message that is acknowledged after
//! a restart finds everybody who is subscribed.

use std::sync::Arc;

use hashbrown::HashSet;
use holdfast_raft::Command;
use holdfast_storage::{ItemId, OwnerId};

use crate::cluster::copies::receiving::Copies;
use crate::cluster::share_groups::{Rank, SharedMessage};
use crate::limits;
use crate::mqtt::{MessageId, QoS};
use crate::session::{Position, Queued, Restored, Session};
use crate::subscriptions::SessionKey;

use super::Shard;
use super::subscribing::NewRoutes;

/// One session as it was found.
#[derive(Debug)]
pub struct StoredSession {
    pub owner: OwnerId,
    pub client_id: Arc<str>,
    /// Of its lease.
    pub epoch: u64,
    pub expiry_secs: u32,
    /// In the order of their positions.
    pub items: Vec<(Position, Restored)>,
}

/// What a shard begins with.
#[derive(Debug, Default)]
pub struct Stored {
    pub sessions: Vec<StoredSession>,
    /// Messages of share groups whose member had ended and which nobody had taken over yet.
    pub given_back: Vec<(OwnerId, Vec<Queued>)>,
    /// Up to where the streams of other nodes are in the sessions, and the items that say so.
    pub marks: Vec<(ItemId, MessageId)>,
    /// Copies of the sessions of shards of other nodes.
    pub copies: Copies,
    /// The messages for share groups that are in any session of the node.
    pub shared: Arc<HashSet<SharedMessage>>,
}

/// Routes that are proposed together.
const ROUTES_PER_COMMAND: usize = 4_096;

impl Shard {
    /// Enters what was found on disk. Called once, before anything else.
    pub fn restore(&mut self, stored: Stored) {
        let shared = self.shared.clone();
        self.keeping.keep_marks(shared.node_tag, (self.id, self.mail.len() as u16), &stored.marks);
        stored.marks.iter().for_each(|(_, id)| self.moves.note_before(*id));
        self.shared_before = (stored.shared, self.now + limits::SHARE_DOUBT_MS);
        let order = shared.index.route_order();
        let mut routes = NewRoutes::default();
        for session in stored.sessions {
            let (owner, began) = (session.owner, session.epoch);
            let session = self.restore_session(session, &mut routes);
            if self.keeping.has_copies() {
                // The process before may have been about to give it to others, or to forget the session.
                self.ask_for_doubtful(session, owner, Rank::of_session(shared.node_tag, owner, began));
            }
            if routes.len() >= ROUTES_PER_COMMAND {
                self.propose_restored(std::mem::take(&mut routes));
            }
        }
        self.propose_restored(routes);
        drop(order);
        self.restore_copies(stored.copies);
        for (owner, given) in stored.given_back {
            let once = |queued: &Queued| queued.qos == QoS::ExactlyOnce;
            let (doubtful, given) = given.into_iter().partition(|queued| self.keeping.has_copies() && once(queued));
            self.read_back_to_ask(owner, doubtful, Rank::of_left(shared.node_tag, owner));
            self.read_back_to_offer(owner, given);
        }
    }

    /// Enters a session without connection.
    pub(super) fn restore_session(&mut self, stored: StoredSession, routes: &mut NewRoutes) -> SessionKey {
        let StoredSession { owner, client_id, epoch, expiry_secs, items } = stored;
        // In a cluster the epoch is that of the connection that began it.
        self.keeping.add_owner(owner, &client_id, epoch);
        let mut session = Session::new(client_id, Some(owner));
        session.set_epoch(epoch);
        session.set_expiry_secs(expiry_secs);
        items.into_iter().for_each(|(position, item)| session.restore(position, item));
        session.restored();
        session.wills_had().for_each(|will| self.keeping.wills.note(owner, will.clone()));
        let subscriptions: Vec<_> =
            session.subscriptions().map(|(filter, subscription)| (filter.clone(), *subscription)).collect();
        let key = self.enter_session(session);
        self.metrics().subscriptions.add(subscriptions.len() as u64);
        for (filter, subscription) in subscriptions {
            self.enter_index(key, &filter, subscription, routes);
        }
        key
    }

    /// In a cluster the node says what it wants when it has registered, all at once.
    fn propose_restored(&mut self, routes: NewRoutes) {
        if self.shared.clustered {
            return;
        }
        let NewRoutes { filters, shares, .. } = routes;
        if !filters.is_empty() {
            self.propose(Command::Routes { add: filters, remove: Vec::new() });
        }
        if !shares.is_empty() {
            self.propose(Command::ShareRoutes { set: shares, remove: Vec::new() });
        }
    }
}
