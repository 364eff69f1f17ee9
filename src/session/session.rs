//! The state of a session, its subscriptions, and its beginning and end.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use holdfast_storage::OwnerId;

use crate::limits;
use crate::mqtt::{PacketId, ProtocolVersion, QoS, SubscriptionOptions};

use super::import::Held;
use super::inbound::Accepted;
use super::keep_alive::KeepAlive;
use super::queue::{Queue, Queued};
use super::record::{Item, Journal, Position};
use super::rights::Rights;
use super::seen::{Elsewhere, Missed};
use super::topic_aliases::{InboundAliases, OutboundAliases};
use super::wills::Wills;
use super::window::{Stage, Window};
use super::{Agreed, Turn};

/// One subscription of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription {
    pub options: SubscriptionOptions,
    pub subscription_id: Option<u32>,
}

/// What lasts as long as the Network Connection.
#[derive(Debug)]
pub struct Connected {
    pub version: ProtocolVersion,
    pub keep_alive: KeepAlive,
    /// The client's Receive Maximum, and no more than `mqtt.max_inflight`.
    pub window_max: u16,
    /// The client's Maximum Packet Size, in bytes.
    pub packet_size_max: u32,
    /// Packets of the window that are still to be sent again on this connection, in order; none of them has left the window.
    pub(super) resends: VecDeque<PacketId>,
    pub(super) inbound_aliases: InboundAliases,
    pub(super) outbound_aliases: OutboundAliases,
    /// `None`: whatever it likes.
    pub(super) rights: Option<Box<dyn Rights>>,
}

/// The MQTT session of one client id.
#[derive(Debug)]
pub struct Session {
    pub(super) client_id: Arc<str>,
    /// Under which its items are written down, if they are: from its beginning to its end, whatever its expiry interval is meanwhile.
    pub(super) owner: Option<OwnerId>,
    pub(super) epoch: u64,
    /// The Session Expiry Interval, in seconds: 0 ends the session with its connection, `u32::MAX` never.
    pub(super) expiry_secs: u32,
    pub(super) subscriptions: HashMap<Arc<str>, (Position, Subscription)>,
    /// Bytes of their filters.
    pub(super) subscription_bytes: usize,
    pub(super) queue: Queue,
    pub(super) window: Window,
    /// Packets of the window that wait for what they promise to be kept, in the order in which they are to be sent.
    pub(super) recorded: VecDeque<PacketId>,
    /// QoS 2 packets of the client that were accepted and not yet released.
    pub(super) accepted: HashMap<PacketId, Accepted>,
    pub(super) next_position: Position,
    pub(super) connected: Option<Connected>,
    /// When a full queue is next looked through for expired messages, in milliseconds.
    pub(super) look_for_expired_at: u64,
    /// Messages are being read back for it.
    pub(super) loading: bool,
    /// What comes while the session is still being brought here.
    pub(super) held: Option<Box<Held>>,
    pub(super) elsewhere: Elsewhere,
    /// What its shard has seen and it has not, and under which position that is written down.
    pub(super) missed: Option<Box<(Position, Vec<Missed>)>>,
    pub(super) wills: Wills,
    /// Messages this session lost, for the log.
    dropped: u64,
}

impl Session {
    /// A session without history. It has no connection until [`Session::connect`].
    pub fn new(client_id: Arc<str>, owner: Option<OwnerId>) -> Session {
        Session {
            client_id,
            owner,
            epoch: 0,
            expiry_secs: 0,
            subscriptions: HashMap::new(),
            subscription_bytes: 0,
            queue: Queue::default(),
            window: Window::default(),
            recorded: VecDeque::new(),
            accepted: HashMap::new(),
            next_position: 1,
            connected: None,
            look_for_expired_at: 0,
            loading: false,
            held: None,
            elsewhere: Elsewhere::default(),
            missed: None,
            wills: Wills::default(),
            dropped: 0,
        }
    }

    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Under which the items of the session are written down.
    pub fn owner(&self) -> Option<OwnerId> {
        self.owner
    }

    /// The number of the lease under which the session's connection was accepted.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn connected(&self) -> Option<&Connected> {
        self.connected.as_ref()
    }

    pub fn connected_mut(&mut self) -> Option<&mut Connected> {
        self.connected.as_mut()
    }

    pub fn expiry_secs(&self) -> u32 {
        self.expiry_secs
    }

    /// Sets the Session Expiry Interval that a DISCONNECT carries (3.14.2.2.2).
    pub fn set_expiry_secs(&mut self, expiry_secs: u32) {
        self.expiry_secs = expiry_secs;
    }

    /// The lease has been granted to a new connection, which [`Session::connect`] will bring.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Whether the session outlives its connection.
    pub fn persists(&self) -> bool {
        self.expiry_secs > 0
    }

    /// Gives the session the connection on which `agreed` was agreed. What it had of an older connection is gone.
    pub fn connect(&mut self, epoch: u64, agreed: &Agreed, now: u64) {
        self.epoch = epoch;
        self.expiry_secs = agreed.session_expiry_secs;
        self.connected = Some(Connected {
            version: agreed.version,
            keep_alive: KeepAlive::new(agreed.keep_alive_secs, agreed.keep_alive_backoff, now),
            window_max: agreed.window_max,
            packet_size_max: agreed.packet_size_max,
            resends: VecDeque::new(),
            inbound_aliases: InboundAliases::default(),
            outbound_aliases: OutboundAliases::new(agreed.topic_alias_max),
            rights: None,
        });
    }

    /// Bounds what the client of this connection may do.
    pub fn set_rights(&mut self, rights: Box<dyn Rights>) {
        if let Some(connected) = &mut self.connected {
            connected.rights = Some(rights);
        }
    }

    /// The rights of the client, while there is a connection that has some.
    pub fn rights_mut(&mut self) -> Option<&mut dyn Rights> {
        match &mut self.connected.as_mut()?.rights {
            Some(rights) => Some(&mut **rights),
            None => None,
        }
    }

    /// Whether a message of this topic may be sent on the connection.
    pub fn may_read(&mut self, topic: &str) -> bool {
        self.rights_mut().is_none_or(|rights| rights.may_read(topic))
    }

    /// The connection is gone; the session waits for the next one.
    pub fn disconnect(&mut self) {
        self.connected = None;
    }

    pub fn subscriptions(&self) -> impl Iterator<Item = (&Arc<str>, &Subscription)> {
        self.subscriptions.iter().map(|(filter, (_, subscription))| (filter, subscription))
    }

    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    pub fn has_subscription(&self, filter: &str) -> bool {
        self.subscriptions.contains_key(filter)
    }

    /// Enters a subscription or replaces the one with the same filter [MQTT-3.8.4-3]. Returns whether the filter is new.
    pub fn subscribe<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        filter: &Arc<str>,
        subscription: Subscription,
    ) -> bool {
        let known = self.subscriptions.get(filter).map(|(position, _)| *position);
        let position = known.unwrap_or_else(|| self.take_position());
        self.put(turn, position, Item::Subscription { filter, subscription });
        self.enter(filter.clone(), position, subscription);
        known.is_none()
    }

    /// Removes a subscription. Messages of it that are under way stay under way [MQTT-3.10.4-3]. Returns whether it was there.
    pub fn unsubscribe<J: Journal>(&mut self, turn: &mut Turn<'_, J>, filter: &str) -> bool {
        let Some((filter, (position, _))) = self.subscriptions.remove_entry(filter) else {
            return false;
        };
        self.subscription_bytes -= filter.len();
        self.delete(turn, position);
        true
    }

    pub(super) fn enter(&mut self, filter: Arc<str>, position: Position, subscription: Subscription) {
        let bytes = filter.len();
        let is_new = self.subscriptions.insert(filter, (position, subscription)).is_none();
        self.subscription_bytes += if is_new { bytes } else { 0 };
    }

    pub(super) fn take_position(&mut self) -> Position {
        let position = self.next_position;
        self.next_position += 1;
        position
    }

    pub(super) fn put<J: Journal>(&self, turn: &mut Turn<'_, J>, position: Position, item: Item<'_>) {
        if let Some(owner) = self.owner {
            turn.journal.put(owner, position, item);
        }
    }

    pub(super) fn delete<J: Journal>(&self, turn: &mut Turn<'_, J>, position: Position) {
        if let Some(owner) = self.owner {
            turn.journal.delete(owner, position);
        }
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Packets of QoS 1 and 2 on their way to the client.
    pub fn inflight_count(&self) -> usize {
        self.window.len()
    }

    /// Messages that this session lost by its limits since it began.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn count_dropped(&mut self) {
        self.dropped += 1;
    }

    /// Takes out the messages that a member owes to its share group when it leaves: those of QoS 1, and those of QoS 2 that
    /// were never sent [MQTT-4.8.2-5]. With `unsent_only`, those that were sent stay: their client may still acknowledge them. What was written down
    /// of them is deleted by whoever takes them over.
    pub fn give_back(&mut self, share: Option<&str>, unsent_only: bool) -> Vec<Queued> {
        let of_share = |queued: &Queued| match (&queued.share, share) {
            (Some(own), Some(wanted)) => &**own == wanted,
            (Some(_), None) => true,
            (None, _) => false,
        };
        let mut given: Vec<Queued> = Vec::new();
        if !unsent_only {
            let sent = self
                .window
                .take(|inflight| inflight.stage == Stage::QoS1Sent && inflight.queued.as_ref().is_some_and(of_share));
            sent.iter().for_each(|inflight| self.no_resend(inflight.packet_id));
            given.extend(sent.into_iter().filter_map(|inflight| inflight.queued));
        }
        // What is not kept yet goes back when it is, unless there is no later.
        if self.queue.holds_shared() {
            given.extend(self.queue.take(|queued| of_share(queued) && (queued.kept || !unsent_only)));
        }
        given.retain(|queued| queued.qos != QoS::AtMostOnce);
        given
    }

    /// Takes out what of a session that was inherited, or found at a start, is perhaps another member's: messages of share groups of QoS 2 that were never sent. Its home may have been
    /// about to give them to others, from the oldest on, and so much at the most.
    pub fn take_doubtful(&mut self) -> Vec<Queued> {
        let mut left = (limits::DOUBTFUL_MAX, limits::DOUBTFUL_BYTES_MAX);
        if !self.queue.holds_shared() {
            return Vec::new();
        }
        self.queue.take(|queued| {
            let is_shared = queued.share.is_some() && queued.qos == QoS::ExactlyOnce;
            let taken = is_shared && left.0 > 0 && left.1 >= queued.size();
            left = if taken { (left.0 - 1, left.1 - queued.size()) } else { left };
            taken
        })
    }

    /// The packet leaves the window: it is not sent again either.
    pub(super) fn no_resend(&mut self, packet_id: PacketId) {
        if let Some(connected) = &mut self.connected
            && !connected.resends.is_empty()
        {
            connected.resends.retain(|waiting| *waiting != packet_id);
        }
    }

    /// Whether anything waits to be sent.
    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.connected.as_ref().is_some_and(|connected| !connected.resends.is_empty())
    }

    /// A message is done with: acknowledged to the end, or dropped.
    pub(super) fn delete_message<J: Journal>(&self, turn: &mut Turn<'_, J>, position: Position, qos: QoS) {
        if qos != QoS::AtMostOnce {
            self.delete(turn, position);
        }
    }
}
