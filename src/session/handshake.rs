//! CONNECT and CONNACK: what client and server agree on for one connection.

use crate::mqtt::{ConnAck, Connect, PropertiesBuf, Property, ProtocolVersion, REMAINING_LENGTH_MAX, ReasonCode};

use super::Limits;

/// The largest packet that MQTT can frame (2.1.4): what a client takes that names no Maximum Packet Size. A message that has come in may be
/// larger than that with what is put in front of it on its way out.
const PACKET_SIZE_MAX: u32 = REMAINING_LENGTH_MAX as u32 + 5;

/// What holds on a connection once it is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreed {
    pub version: ProtocolVersion,
    /// Clean Start, or Clean Session before MQTT 5.0 [MQTT-3.1.2-4].
    pub clean_start: bool,
    /// Seconds; 0: the session ends with the connection; `u32::MAX`: never.
    pub session_expiry_secs: u32,
    pub keep_alive_secs: u16,
    pub keep_alive_backoff: f64,
    /// PUBLISH packets of QoS 1 and 2 that may be on their way to the client [MQTT-3.3.4-9].
    pub window_max: u16,
    /// The client's Maximum Packet Size, in bytes.
    pub packet_size_max: u32,
    pub topic_alias_max: u16,
    /// Set where the server's value differs from what the client asked for, and the client must be told.
    told_session_expiry: bool,
    told_keep_alive: bool,
}

/// Settles a CONNECT. `keep_alive_cap_secs` is what holds where the client came in (0: no cap); only MQTT 5.0 clients can be told of a cap,
/// the others keep their interval [MQTT-3.2.2-21].
pub fn accept(connect: &Connect<'_>, limits: &Limits, keep_alive_cap_secs: u16) -> Agreed {
    let v5 = connect.version.is_v5();
    let asked_expiry = match (v5, connect.clean_start) {
        (true, _) => connect.properties.session_expiry_interval().unwrap_or(0),
        (false, true) => 0,
        (false, false) => u32::MAX,
    };
    let session_expiry_secs = asked_expiry.min(limits.session_expiry_max_secs);
    let above = connect.keep_alive_secs == 0 || connect.keep_alive_secs > keep_alive_cap_secs;
    let capped = v5 && keep_alive_cap_secs > 0 && above;
    let keep_alive_secs = if capped { keep_alive_cap_secs } else { connect.keep_alive_secs };
    let receive_maximum = connect.properties.receive_maximum().unwrap_or(u16::MAX);
    Agreed {
        version: connect.version,
        clean_start: connect.clean_start,
        session_expiry_secs,
        keep_alive_secs,
        keep_alive_backoff: limits.keep_alive_backoff,
        window_max: receive_maximum.min(limits.inflight_max),
        packet_size_max: connect.properties.maximum_packet_size().unwrap_or(PACKET_SIZE_MAX).min(PACKET_SIZE_MAX),
        topic_alias_max: connect.properties.topic_alias_maximum().unwrap_or(0).min(limits.topic_alias_max),
        told_session_expiry: v5 && session_expiry_secs != asked_expiry,
        told_keep_alive: keep_alive_secs != connect.keep_alive_secs,
    }
}

impl Agreed {
    /// Writes the CONNACK that accepts the connection, with the server's capabilities where they differ from the defaults (3.2.2.3). What the client
    /// can do without is left out when its Maximum Packet Size is too small for it [MQTT-3.1.2-24].
    pub fn write_connack(
        &self,
        limits: &Limits,
        session_present: bool,
        assigned_client_id: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        for with_limits in [true, false] {
            let mut properties = PropertiesBuf::default();
            if self.version.is_v5() {
                self.push_properties(limits, assigned_client_id, with_limits, &mut properties);
            }
            let properties = properties.as_properties();
            ConnAck { session_present, reason: ReasonCode::Success, properties }.encode(self.version, out);
            if out.len() - start <= self.packet_size_max as usize || !with_limits {
                return;
            }
            out.truncate(start);
        }
    }

    /// Whether the client takes a CONNACK at all. The largest one that has only what must be told is tried.
    pub fn connack_fits(&self, limits: &Limits, assigned_client_id: Option<&str>) -> bool {
        let mut connack = Vec::new();
        self.write_connack(limits, true, assigned_client_id, &mut connack);
        connack.len() <= self.packet_size_max as usize
    }

    fn push_properties(
        &self,
        limits: &Limits,
        assigned_client_id: Option<&str>,
        with_limits: bool,
        properties: &mut PropertiesBuf,
    ) {
        if self.told_session_expiry {
            properties.push(Property::SessionExpiryInterval(self.session_expiry_secs));
        }
        if limits.receive_maximum != u16::MAX {
            properties.push(Property::ReceiveMaximum(limits.receive_maximum));
        }
        if !limits.retain_available {
            properties.push(Property::RetainAvailable(false));
        }
        if with_limits {
            properties.push(Property::MaximumPacketSize(limits.packet_size_max));
        }
        if let Some(client_id) = assigned_client_id {
            properties.push(Property::AssignedClientIdentifier(client_id));
        }
        if with_limits && limits.topic_alias_max > 0 {
            properties.push(Property::TopicAliasMaximum(limits.topic_alias_max));
        }
        if self.told_keep_alive {
            properties.push(Property::ServerKeepAlive(self.keep_alive_secs));
        }
    }
}
