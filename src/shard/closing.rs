//! What is said, counted and kept of a connection that ends: one line in the log, with the reason and what went over it; one count by reason; and its place among the last
//! [`CLOSED_MAX`] of the node, for whoever asks later why a client was gone.
//!
//! Owner: the node, of what is kept; shards add to it when a connection is over, which is not for each message. Invariants: it has at most [`CLOSED_MAX`] entries and
//! [`CLOSED_BYTES_MAX`] bytes of text, and the oldest go first; why a connection ends is decided once.
//!
//! Test to read first: `tests::the_oldest_go_first_and_texts_have_a_bound`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::metrics::{self, CloseReason};
use crate::mqtt::{ProtocolVersion, ReasonCode};

use super::connection::Connection;
use super::greeted::ListenerState;
use super::{Close, ConnectionKey, Shard};

/// Connections that are remembered, and bytes of their client ids and user names.
pub const CLOSED_MAX: usize = 10_000;
pub const CLOSED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What went over a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// Why a connection ends, and in which words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub reason: CloseReason,
    pub what: &'static str,
}

/// A connection that has ended.
#[derive(Debug, Clone)]
pub struct Closed {
    /// Grows by one with each of the node.
    pub number: u64,
    pub client_id: Arc<str>,
    pub user_name: Option<Arc<str>>,
    pub peer: SocketAddr,
    pub listener: Arc<ListenerState>,
    pub version: ProtocolVersion,
    /// In milliseconds of the node's clock.
    pub accepted_at: u64,
    pub closed_at: u64,
    pub ended: Ended,
    pub totals: Totals,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ClosedConnections(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    bytes: usize,
    list: VecDeque<Closed>,
}

impl Closed {
    fn bytes(&self) -> usize {
        self.client_id.len() + self.user_name.as_ref().map_or(0, |name| name.len())
    }
}

impl ClosedConnections {
    /// Keeps one more; its number is given here.
    fn add(&self, mut closed: Closed) {
        let mut kept = self.0.lock();
        kept.next += 1;
        closed.number = kept.next;
        kept.bytes += closed.bytes();
        kept.list.push_back(closed);
        while kept.list.len() > CLOSED_MAX || kept.bytes > CLOSED_BYTES_MAX {
            let Some(oldest) = kept.list.pop_front() else { break };
            kept.bytes -= oldest.bytes();
        }
    }

    /// The newest, from the one before `before` on, of one client if it is named; and whether there are older ones.
    pub fn newest(&self, limit: usize, before: Option<u64>, client_id: Option<&str>) -> (Vec<Closed>, bool) {
        let kept = self.0.lock();
        let is_asked = |closed: &&Closed| {
            before.is_none_or(|before| closed.number < before) && client_id.is_none_or(|id| *closed.client_id == *id)
        };
        let mut found = kept.list.iter().rev().filter(is_asked);
        let list = found.by_ref().take(limit).cloned().collect();
        (list, found.next().is_some())
    }
}

fn ended(close: Close) -> Ended {
    let (reason, what) = match close {
        Close::ByClient { publish_will: false, .. } => (CloseReason::Client, ""),
        Close::ByClient { .. } => (CloseReason::ClientWithWill, ""),
        Close::Lost => (CloseReason::Lost, ""),
        Close::Refused { reason } => (CloseReason::Refused, reason.name()),
        Close::ByServer { reason, what } => {
            (of_server(reason, !what.is_empty()), if what.is_empty() { reason.name() } else { what })
        }
    };
    Ended { reason, what }
}

fn of_server(reason: ReasonCode, for_a_rule: bool) -> CloseReason {
    match reason {
        ReasonCode::KeepAliveTimeout => CloseReason::KeepAliveTimeout,
        ReasonCode::SessionTakenOver => CloseReason::TakenOver,
        ReasonCode::NotAuthorized | ReasonCode::BadUserNameOrPassword | ReasonCode::Banned => {
            CloseReason::NotAuthorized
        }
        ReasonCode::QuotaExceeded | ReasonCode::ReceiveMaximumExceeded | ReasonCode::MessageRateTooHigh => {
            CloseReason::QuotaExceeded
        }
        ReasonCode::AdministrativeAction => CloseReason::Kicked,
        ReasonCode::ServerShuttingDown => CloseReason::ShuttingDown,
        _ if for_a_rule => CloseReason::ProtocolError,
        _ => CloseReason::Other,
    }
}

impl Shard {
    /// A connection begins to end. What it ended for first counts.
    pub(super) fn note_end(&mut self, key: ConnectionKey, close: Close) {
        let Some(connection) = self.connection(key).filter(|connection| connection.ended.is_none()) else {
            return;
        };
        connection.ended = Some(ended(close));
        self.log_close(key, close);
    }

    /// A connection is over.
    pub(super) fn count_end(&self, connection: &Connection) {
        let ended = connection.ended.unwrap_or(Ended { reason: CloseReason::Other, what: "" });
        self.metrics().connections_closed[ended.reason as usize].add(1);
        self.shared.closed.add(Closed {
            number: 0,
            client_id: connection.client_id.clone(),
            user_name: connection.user_name.clone(),
            peer: connection.peer,
            listener: connection.listener.state().clone(),
            version: connection.version,
            accepted_at: connection.accepted_at,
            closed_at: self.now,
            ended,
            totals: connection.totals,
        });
    }

    /// One line for each cause and second when a rule was broken; otherwise only if connections are logged.
    fn log_close(&self, key: ConnectionKey, close: Close) {
        let Some(connection) = self.connections.get(key as usize) else {
            return;
        };
        let Totals { packets_in, bytes_in, bytes_out } = connection.totals;
        let (client_id, peer, user_name) = (&*connection.client_id, connection.peer, connection.user_name.as_deref());
        let listener = connection.listener.config.name.as_str();
        let open_ms = self.now.saturating_sub(connection.accepted_at);
        match close {
            Close::ByServer { reason, what } if !what.is_empty() => {
                let is_error = reason != ReasonCode::SessionTakenOver && reason != ReasonCode::KeepAliveTimeout;
                self.metrics().protocol_errors.add(u64::from(is_error));
                if let Some(left_out) = metrics::admit_line(what) {
                    let left_out = (left_out > 0).then_some(left_out);
                    warn!(event = "close", client_id, user_name, %peer, listener, reason = reason.name(), open_ms, packets_in, bytes_in, bytes_out, left_out, "connection closed by the server: {what}");
                }
            }
            // It was logged when it was refused.
            Close::Refused { .. } => {}
            _ if !self.shared.connection_messages => {}
            Close::ByServer { reason, .. } => {
                info!(event = "close", client_id, user_name, %peer, listener, reason = reason.name(), open_ms, packets_in, bytes_in, bytes_out, "connection closed by the server");
            }
            Close::ByClient { reason, .. } => {
                info!(event = "close", client_id, user_name, %peer, listener, reason = reason.name(), open_ms, packets_in, bytes_in, bytes_out, "disconnected");
            }
            Close::Lost => {
                info!(event = "close", client_id, user_name, %peer, listener, reason = "connection lost", open_ms, packets_in, bytes_in, bytes_out, "disconnected");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn closed(client_id: &str) -> Closed {
        let bound = SocketAddr::from(([127, 0, 0, 1], 1883));
        let listener = config::Listener::new("tcp", config::Protocol::Mqtt, bound);
        Closed {
            number: 0,
            client_id: client_id.into(),
            user_name: None,
            peer: bound,
            listener: Arc::new(ListenerState::new(listener, bound)),
            version: ProtocolVersion::V5,
            accepted_at: 1,
            closed_at: 2,
            ended: ended(Close::Lost),
            totals: Totals::default(),
        }
    }

    fn numbers(kept: &ClosedConnections, limit: usize, before: Option<u64>, id: Option<&str>) -> (Vec<u64>, bool) {
        let (list, more) = kept.newest(limit, before, id);
        (list.into_iter().map(|closed| closed.number).collect(), more)
    }

    #[test]
    fn the_oldest_go_first_and_texts_have_a_bound() {
        let kept = ClosedConnections::default();
        (0..CLOSED_MAX + 5).for_each(|number| kept.add(closed(if number % 2 == 0 { "even" } else { "odd" })));
        let last = (CLOSED_MAX + 5) as u64;
        assert_eq!(numbers(&kept, 2, None, None), (vec![last, last - 1], true));
        assert_eq!(numbers(&kept, 2, Some(last), Some("even")), (vec![last - 2, last - 4], true));
        assert_eq!(numbers(&kept, 3, Some(8), None), (vec![7, 6], false));
        let long = "x".repeat(65_535);
        (0..100).for_each(|_| kept.add(closed(&long)));
        let left = CLOSED_BYTES_MAX / 65_535;
        assert_eq!(numbers(&kept, CLOSED_MAX, None, None).0.len(), left);
    }

    #[test]
    fn why_a_connection_ended_is_one_of_a_fixed_set() {
        let by_server = |reason, what| ended(Close::ByServer { reason, what }).reason;
        assert_eq!(by_server(ReasonCode::KeepAliveTimeout, "silence"), CloseReason::KeepAliveTimeout);
        assert_eq!(by_server(ReasonCode::TopicAliasInvalid, "a rule"), CloseReason::ProtocolError);
        assert_eq!(by_server(ReasonCode::ServerBusy, ""), CloseReason::Other);
        assert_eq!(by_server(ReasonCode::AdministrativeAction, ""), CloseReason::Kicked);
        let left = |publish_will| ended(Close::ByClient { reason: ReasonCode::Success, publish_will }).reason;
        assert_eq!((left(false), left(true)), (CloseReason::Client, CloseReason::ClientWithWill));
        assert_eq!(ended(Close::Lost).reason, CloseReason::Lost);
    }
}
