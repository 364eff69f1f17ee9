//! The answers of a connection: PUBACK, PUBREC and PUBCOMP leave in the order of the packets that they answer [MQTT-4.6.0-2 to -4], although one may wait for the
//! disk and the next one not. How many of a connection may wait, SUBACK and UNSUBACK included, is bounded: see [`limits::UNANSWERED_MAX`].
//!
//! Owner: the connection, in `answers` and `answered`. Invariant: the front of the queue waits for something; an answer has the number `answered` plus its place in the queue.

use crate::limits;
use crate::mqtt::{AckKind, PacketType, ReasonCode};
use crate::session::{Answer, Wire as _};

use super::connection::State;
use super::keeping::Due;
use super::{ConnectionKey, Shard};

impl Shard {
    /// Answers a packet of a client: now, or when its [`Shard::answer_due`] falls due; never before the answer to an earlier packet.
    pub(super) fn answer(&mut self, key: ConnectionKey, answer: Answer, ready: bool) {
        let connection = &mut self.connections[key as usize];
        if ready && connection.answers.is_empty() {
            self.write_answer(key, answer);
        } else {
            connection.answers.push_back((answer, ready));
        }
    }

    /// What the next answer on a connection waits for.
    pub(super) fn answer_due(&self, key: ConnectionKey) -> Due {
        let connection = &self.connections[key as usize];
        let number = connection.answered + connection.answers.len() as u64;
        Due::Answer { connection: key, serial: connection.serial, number }
    }

    /// A packet whose answer waits was not taken everywhere, as there is no room on a disk. False if its client cannot be told: it knows no such answer, or has been
    /// promised that its packet is known.
    pub(super) fn refuse_answer(&mut self, key: ConnectionKey, serial: u64, number: u64) -> bool {
        let Some(connection) = self.connection(key).filter(|connection| connection.serial == serial) else {
            // Nobody was told anything.
            return true;
        };
        let at = number - connection.answered;
        match connection.answers.get_mut(at as usize) {
            Some((answer, _)) if connection.version.is_v5() && answer.kind == AckKind::PubAck => {
                answer.reason = ReasonCode::QuotaExceeded;
                true
            }
            _ => false,
        }
    }

    /// The answer to a packet that waits says this in the end.
    pub(super) fn say_in_answer(&mut self, due: &Due, reason: ReasonCode) {
        let Due::Answer { connection, serial, number } = *due else { return };
        if let Some(connection) = self.connection(connection).filter(|connection| connection.serial == serial)
            && let Some((answer, _)) = connection.answers.get_mut((number - connection.answered) as usize)
        {
            answer.reason = reason;
        }
    }

    fn write_answer(&mut self, key: ConnectionKey, answer: Answer) {
        let connection = &mut self.connections[key as usize];
        let State::Open { session } = connection.state else {
            return;
        };
        connection.outbox.prepare(&mut self.pool);
        let sent = match answer.kind {
            AckKind::PubAck => PacketType::PubAck,
            AckKind::PubRec => PacketType::PubRec,
            AckKind::PubRel => PacketType::PubRel,
            AckKind::PubComp => PacketType::PubComp,
        };
        self.shared.metrics.shards[usize::from(self.id)].packet_sent(sent as usize);
        self.sessions[session as usize].session.write_answer(answer, connection.outbox.buffer());
        self.mark_dirty(key);
    }

    pub(super) fn release_answer(&mut self, key: ConnectionKey, serial: u64, number: u64) {
        let Some(connection) = self.connection(key).filter(|connection| connection.serial == serial) else {
            return;
        };
        let at = number - connection.answered;
        if let Some((_, ready)) = connection.answers.get_mut(at as usize) {
            *ready = true;
        }
        while let Some(connection) = self.connections.get_mut(key as usize)
            && let Some((answer, _)) = connection.answers.pop_front_if(|(_, ready)| *ready)
        {
            connection.answered += 1;
            self.write_answer(key, answer);
        }
        self.read_on_when_answered(key);
    }

    /// A SUBACK or UNSUBACK that waited for the disk goes now.
    pub(super) fn ack_is_due(&mut self, key: ConnectionKey, serial: u64) {
        if let Some(connection) = self.connection(key).filter(|connection| connection.serial == serial) {
            connection.acks_waiting -= 1;
            self.read_on_when_answered(key);
        }
    }

    /// A connection that was not read because too much of it was unanswered is read again.
    fn read_on_when_answered(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connection(key)
            && connection.unanswered
            && connection.answers.len() + connection.acks_waiting < limits::UNANSWERED_MAX / 2
        {
            connection.unanswered = false;
            self.wake(key);
        }
    }
}
