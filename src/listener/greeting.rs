//! The first packet of a connection: is it a CONNECT, and may its sender go on?
//!
//! [`judge`] is pure: the bytes so far in, a verdict out. It decides everything that needs no waiting; user name and password come after
//! it. A verdict says in which form, if any, the refusal is to be put: CONNACK with a reason code for 5.0, with a return code for 3.x,
//! and silence where the specification of 3.1.1 has no code for what is wrong [MQTT-3.1.4-1].
//!
//! Invariants: nothing is admitted that did not decode; no more than [`CONNECT_BYTES_MAX`] bytes are waited for before anybody is known.
//!
//! The test to read first: `what_the_first_bytes_lead_to`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::foreign::{self, Foreign};
use super::log_limit::shorten;
use crate::config;
use crate::mqtt::{ConnAck, Connect, Malformed, Packet, Peer, PropertiesBuf, Property, ProtocolVersion, ReasonCode};
use crate::mqtt::{connect_version, decode, next_frame};

/// Longest CONNECT that is read, whatever the largest packet may be later: six fields of 64 KiB, and user properties. What is sent
/// by somebody unknown has a tighter bound than what a client sends.
pub(super) const CONNECT_BYTES_MAX: u32 = 512 * 1024;

/// What a listener lets in.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub listener: &'a config::Listener,
    pub mqtt: &'a config::Mqtt,
    /// The listener is full.
    pub over_limit: bool,
    /// It came faster than connections may.
    pub too_fast: bool,
}

/// What the bytes received so far are.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    Incomplete,
    /// Another protocol than MQTT.
    Foreign(Foreign),
    Refused(Refusal),
    /// A CONNECT of `packet_len` bytes whose sender may be asked for its password.
    Hello {
        connect: Connect<'a>,
        packet_len: usize,
    },
}

/// Why a connection is not taken, and how to say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The form of the CONNACK; `None` closes without one.
    pub answer: Option<ProtocolVersion>,
    pub reason: ReasonCode,
    /// For the log and the Reason String.
    pub what: &'static str,
    /// How the client was to prove who it is, where that is why; otherwise empty.
    pub method: &'static str,
    pub client_id: Option<Box<str>>,
    /// For the log; the password is never there.
    pub user_name: Option<Box<str>>,
    /// The largest packet that the client takes, if it said so.
    pub packet_bytes_max: Option<u32>,
}

/// Judges the bytes of a new connection, from its first on.
pub(super) fn judge<'a>(bytes: &'a [u8], rules: &Rules<'_>) -> Verdict<'a> {
    match bytes.first() {
        None => return Verdict::Incomplete,
        // The flags of a CONNECT are the decoder's to judge.
        Some(first) if first >> 4 == foreign::CONNECT >> 4 && *first != foreign::TLS_HANDSHAKE => {}
        Some(_) => return foreign::protocol(bytes).map_or(Verdict::Incomplete, Verdict::Foreign),
    }
    let limit = rules.mqtt.max_packet_size.min(CONNECT_BYTES_MAX);
    let frame = match next_frame(bytes, limit) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Verdict::Incomplete,
        Err(malformed) => return Verdict::Refused(refuse_malformed(bytes, &malformed)),
    };
    match decode(&frame, ProtocolVersion::V5, Peer::Client) {
        Ok(Packet::Connect(connect)) => match check(&connect, rules) {
            Ok(()) => Verdict::Hello { connect, packet_len: frame.total_len },
            Err((reason, what)) => Verdict::Refused(Refusal::of(&connect, reason, what)),
        },
        Ok(_) => Verdict::Foreign(Foreign::Unknown),
        Err(malformed) => Verdict::Refused(refuse_malformed(bytes, &malformed)),
    }
}

impl Refusal {
    /// A refusal of a CONNECT that decodes; it always has an answer.
    pub(super) fn of(connect: &Connect<'_>, reason: ReasonCode, what: &'static str) -> Self {
        Self {
            answer: Some(connect.version),
            reason,
            what,
            method: "",
            client_id: Some(shorten(connect.client_id).into()),
            user_name: connect.user_name.map(|name| shorten(name).into()),
            packet_bytes_max: connect.properties.maximum_packet_size(),
        }
    }

    /// The CONNACK, or nothing where there is no way to say it. The Reason String is left out where it would make the packet larger than
    /// the client takes [MQTT-3.2.2-19].
    pub(super) fn connack(&self) -> Vec<u8> {
        let Some(version) = self.answer else {
            return Vec::new();
        };
        let mut properties = PropertiesBuf::default();
        if version.is_v5() && !self.what.is_empty() {
            properties.push(Property::ReasonString(self.what));
        }
        let mut packet = Vec::new();
        let connack = ConnAck { session_present: false, reason: self.reason, properties: properties.as_properties() };
        connack.encode(version, &mut packet);
        if self.packet_bytes_max.is_some_and(|max| packet.len() > max as usize) {
            packet.clear();
            let connack = ConnAck { properties: Default::default(), ..connack };
            connack.encode(version, &mut packet);
        }
        packet
    }
}

/// What a listener asks of a CONNECT that is well formed.
fn check(connect: &Connect<'_>, rules: &Rules<'_>) -> Result<(), (ReasonCode, &'static str)> {
    if !rules.listener.protocol_versions.contains(&connect.version.level()) {
        return Err((ReasonCode::UnsupportedProtocolVersion, "this protocol version is not let in on this listener"));
    }
    if rules.over_limit {
        return Err((ReasonCode::QuotaExceeded, "max_connections is reached"));
    }
    if rules.too_fast {
        return Err((ReasonCode::ConnectionRateExceeded, "connections come faster than max_conn_rate allows"));
    }
    if connect.properties.authentication_method().is_some() {
        return Err((ReasonCode::BadAuthenticationMethod, "no authentication method is supported [MQTT-4.12.0-1]"));
    }
    if connect.client_id.len() > rules.mqtt.max_client_id_bytes {
        return Err((ReasonCode::ClientIdentifierNotValid, "the client id is longer than max_client_id_bytes"));
    }
    Ok(())
}

/// In 3.x a malformed CONNECT is closed without an answer, but for what has a return code [MQTT-3.1.4-1].
fn refuse_malformed(bytes: &[u8], malformed: &Malformed) -> Refusal {
    let body = connect_body(bytes);
    let answer = match (connect_version(body), malformed.reason) {
        (Some(ProtocolVersion::V5), _) => Some(ProtocolVersion::V5),
        (Some(version), ReasonCode::ClientIdentifierNotValid) => Some(version),
        (None, ReasonCode::UnsupportedProtocolVersion) => nearest_version(body),
        _ => None,
    };
    let (client_id, user_name, packet_bytes_max) = (None, None, None);
    Refusal {
        answer,
        reason: malformed.reason,
        what: malformed.what,
        method: "",
        client_id,
        user_name,
        packet_bytes_max,
    }
}

/// What follows the fixed header, as far as it is there: the Remaining Length ends with the first byte without its highest bit.
fn connect_body(bytes: &[u8]) -> &[u8] {
    let length = bytes.get(1..).unwrap_or_default();
    let last = length.iter().take(4).position(|byte| byte & 0x80 == 0);
    last.and_then(|last| length.get(last + 1..)).unwrap_or_default()
}

/// The form of a refusal that a client of a version that does not exist is most likely to understand; `None` when it does not even say MQTT.
fn nearest_version(body: &[u8]) -> Option<ProtocolVersion> {
    match body {
        [0, 4, b'M', b'Q', b'T', b'T', 6..=255, ..] => Some(ProtocolVersion::V5),
        [0, 4, b'M', b'Q', b'T', b'T', ..] => Some(ProtocolVersion::V3_1_1),
        [0, 6, b'M', b'Q', b'I', b's', b'd', b'p', ..] => Some(ProtocolVersion::V3_1),
        _ => None,
    }
}

/// The client's own id, or one of 128 random bits for a client without [MQTT-3.1.3-6]; whether it was made here.
///
/// # Errors
/// When the system has no randomness to give, which ends the connection.
pub(super) fn client_id(connect: &Connect<'_>) -> Result<(Arc<str>, bool), getrandom::Error> {
    if !connect.client_id.is_empty() {
        return Ok((connect.client_id.into(), false));
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    let mut id = String::with_capacity(37);
    let _ = write!(id, "auto-{:032x}", u128::from_be_bytes(random));
    Ok((id.into(), true))
}

#[cfg(test)]
#[path = "greeting_tests.rs"]
mod tests;
