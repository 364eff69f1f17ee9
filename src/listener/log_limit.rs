//! The causes for which a connection does not come to be. Each has a line of its own in the log, at a bounded rate
//! ([`crate::metrics::admit_line`]); what is left out there is told by a later line, and counted in [`ListenerCounts`](crate::shard::greeted::ListenerCounts).
//!
//! Invariant: a cause is one of a fixed set, never made from bytes of the network.

use crate::metrics;
use crate::mqtt::ReasonCode;

/// Why a connection did not come to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    TlsOnPlainPort,
    PlainOnTlsPort,
    HttpOnMqttPort,
    NotMqtt,
    TlsHandshake,
    TimedOut,
    Upgrade,
    Origin,
    Accept,
    HardLimit,
    Banned,
    Rate,
    Proxy,
    Network,
    /// Refused, or found malformed, with this reason.
    Refused(ReasonCode),
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::TlsOnPlainPort => "TLS on a plain port",
            Self::PlainOnTlsPort => "plain on a TLS port",
            Self::HttpOnMqttPort => "HTTP on an MQTT port",
            Self::NotMqtt => "not MQTT",
            Self::TlsHandshake => "TLS handshake",
            Self::TimedOut => "timed out",
            Self::Upgrade => "upgrade",
            Self::Origin => "origin",
            Self::Accept => "accept",
            Self::HardLimit => "hard limit",
            Self::Banned => "banned",
            Self::Rate => "connection rate",
            Self::Proxy => "PROXY header",
            Self::Network => "network",
            Self::Refused(reason) => reason.name(),
        }
    }
}

/// Whether a line about this cause may be written now; the field of it that says how many were left out since the last one, if any were.
pub(super) fn permit(cause: Cause) -> Option<Option<u64>> {
    metrics::admit_line(cause.name()).map(|left_out| (left_out > 0).then_some(left_out))
}

/// What of a text from the network goes into the log.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(128).collect()
}
