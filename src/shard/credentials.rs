//! What a client has proved does not hold for ever: tokens run out, passwords and keys are taken away. Its connection ends then; its session stays as
//! long as it would, and is for whoever proves to be its client.
//!
//! Owner: the shard of the client id; when a proof runs out is the connection's, and armed with its other timers.
//!
//! The tests to read first: `cluster-tests/tests/field_cases/credentials.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::access::{Access, Identity};
use crate::mqtt::ReasonCode;

use super::connection::{Connection, State};
use super::{Close, ConnectionKey, Shard};

/// When a proof runs out, in milliseconds of the node's clock, whose time is `now`.
pub(super) fn expires_at(identity: &Identity, now: u64) -> Option<u64> {
    let at_ms = identity.expires_at?.saturating_mul(1000);
    let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |wall| wall.as_millis() as u64);
    Some(now.saturating_add(at_ms.saturating_sub(wall_ms)))
}

impl Connection {
    /// When what its client has proved runs out, of a connection that is open.
    pub fn expiry(&self) -> Option<u64> {
        self.expires_at.filter(|_| matches!(self.state, State::Open { .. }))
    }
}

impl Shard {
    pub(super) fn credentials_expired(&mut self, key: ConnectionKey) {
        let what = "the token of the client has expired";
        self.close(key, Close::ByServer { reason: ReasonCode::NotAuthorized, what });
    }

    /// Ends the connections of those who would not be let in any more with what they have shown. They are looked at once, all of them: each costs one look
    /// at a table.
    pub(super) fn judge_credentials(&mut self, access: &Access) {
        let holds = |connection: &Connection| {
            let listener = &connection.listener.config.name;
            matches!(connection.state, State::Closing) || access.still_holds(listener, &connection.identity)
        };
        let mut lost = Vec::new();
        for (key, connection) in &self.connections {
            if !holds(connection) {
                lost.push((key as ConnectionKey, matches!(connection.state, State::Open { .. })));
            }
        }
        for (key, is_open) in lost {
            let what = "the password or key that let the client in has changed or is gone";
            if is_open {
                self.close(key, Close::ByServer { reason: ReasonCode::NotAuthorized, what });
            } else if let Some(connection) = self.connection(key) {
                let serial = connection.serial;
                if self.stop_connecting(key, serial).is_some() {
                    self.refuse(key, ReasonCode::NotAuthorized, what);
                }
            }
        }
    }
}
