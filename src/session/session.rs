//! The state of a session, its subscriptions, and its beginning and end.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::mqtt::{PacketId, ProtocolVersion, QoS, SubscriptionOptions};

use super::keep_alive::KeepAlive;
use super::queue::{Queue, Queued};
use super::record::{Journal, Position, Record};
use super::topic_aliases::{InboundAliases, OutboundAliases};
use super::window::{Inflight, Stage, Window};
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
}

/// The MQTT session of one client id.
#[derive(Debug)]
pub struct Session {
    pub(super) client_id: Arc<str>,
    pub(super) epoch: u64,
    /// The Session Expiry Interval, in seconds: 0 ends the session with its connection, `u32::MAX` never.
    pub(super) expiry_secs: u32,
    pub(super) subscriptions: HashMap<Arc<str>, Subscription>,
    /// Bytes of their filters.
    pub(super) subscription_bytes: usize,
    pub(super) queue: Queue,
    pub(super) window: Window,
    /// QoS 2 packets of the client that were accepted and not yet released.
    pub(super) accepted: HashSet<PacketId>,
    pub(super) next_position: Position,
    pub(super) connected: Option<Connected>,
    /// When a full queue is next looked through for expired messages, in milliseconds.
    pub(super) look_for_expired_at: u64,
    /// Messages this session lost, for the log.
    dropped: u64,
}

impl Session {
    /// A session without history. It has no connection until [`Session::connect`].
    pub fn new(client_id: Arc<str>) -> Session {
        Session {
            client_id,
            epoch: 0,
            expiry_secs: 0,
            subscriptions: HashMap::new(),
            subscription_bytes: 0,
            queue: Queue::default(),
            window: Window::default(),
            accepted: HashSet::new(),
            next_position: 0,
            connected: None,
            look_for_expired_at: 0,
            dropped: 0,
        }
    }

    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
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

    /// Whether the session outlives its connection, so that its state is worth a record.
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
        });
    }

    /// The connection is gone; the session waits for the next one.
    pub fn disconnect(&mut self) {
        self.connected = None;
    }

    pub fn subscriptions(&self) -> impl Iterator<Item = (&Arc<str>, &Subscription)> {
        self.subscriptions.iter()
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
        if self.persists() {
            let Subscription { options, subscription_id } = subscription;
            turn.journal
                .record(&self.client_id, Record::Subscribed { filter: filter.clone(), options, subscription_id });
        }
        self.enter(filter.clone(), subscription)
    }

    /// Removes a subscription. Messages of it that are under way stay under way [MQTT-3.10.4-3]. Returns whether it was there.
    pub fn unsubscribe<J: Journal>(&mut self, turn: &mut Turn<'_, J>, filter: &str) -> bool {
        let Some(filter) = self.remove(filter) else {
            return false;
        };
        if self.persists() {
            turn.journal.record(&self.client_id, Record::Unsubscribed { filter });
        }
        true
    }

    fn enter(&mut self, filter: Arc<str>, subscription: Subscription) -> bool {
        let bytes = filter.len();
        let is_new = self.subscriptions.insert(filter, subscription).is_none();
        self.subscription_bytes += if is_new { bytes } else { 0 };
        is_new
    }

    fn remove(&mut self, filter: &str) -> Option<Arc<str>> {
        let (filter, _) = self.subscriptions.remove_entry(filter)?;
        self.subscription_bytes -= filter.len();
        Some(filter)
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
    /// were never sent [MQTT-4.8.2-5]. With `unsent_only`, those that were sent stay: their client may still acknowledge them.
    pub fn give_back<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        share: Option<&str>,
        unsent_only: bool,
    ) -> Vec<Queued> {
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
        given.extend(self.queue.take(of_share));
        for queued in &given {
            self.record_done(turn, queued.position);
        }
        given.retain(|queued| queued.qos != QoS::AtMostOnce);
        given
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

    pub(super) fn record_done<J: Journal>(&self, turn: &mut Turn<'_, J>, position: Position) {
        if self.persists() {
            turn.journal.record(&self.client_id, Record::Done { position });
        }
    }

    /// Applies one record to a session that is being restored. Records of messages that are gone already are no-ops.
    pub fn restore(&mut self, record: Record) {
        match record {
            Record::Subscribed { filter, options, subscription_id } => {
                self.enter(filter, Subscription { options, subscription_id });
            }
            Record::Unsubscribed { filter } => {
                self.remove(&filter);
            }
            Record::Queued { position, message, qos, retain, subscription_ids, share } => {
                self.next_position = self.next_position.max(position + 1);
                self.queue.push(Queued { position, message, qos, retain, subscription_ids, share });
            }
            Record::Sent { position, packet_id } => self.restore_sent(position, packet_id),
            Record::Received { packet_id } => {
                if let Some(inflight) = self.window.get_mut(packet_id) {
                    inflight.stage = Stage::Released;
                    inflight.queued = None;
                }
            }
            Record::Done { position } => {
                if self.queue.take(|queued| queued.position == position).is_empty() {
                    self.window.remove_position(position);
                }
            }
            Record::Accepted { packet_id } => {
                self.accepted.insert(packet_id);
            }
            Record::Released { packet_id } => {
                self.accepted.remove(&packet_id);
            }
        }
    }

    fn restore_sent(&mut self, position: Position, packet_id: PacketId) {
        let Some(queued) = self.queue.take(|queued| queued.position == position).pop() else {
            return;
        };
        let stage = if queued.qos == QoS::ExactlyOnce { Stage::QoS2Sent } else { Stage::QoS1Sent };
        self.window.push(Inflight { packet_id, stage, position, queued: Some(queued) });
    }
}
