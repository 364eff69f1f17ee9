//! Why connections behind their CONNECT ended: a fixed set, so that each is a value of a label from the start.

/// Why a connection ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(usize)]
pub enum CloseReason {
    /// The client said DISCONNECT.
    Client,
    /// The client said DISCONNECT, with its Will to be published.
    ClientWithWill,
    /// The network connection ended without a word.
    #[default]
    Lost,
    /// Nothing came for one and a half times the Keep Alive.
    KeepAliveTimeout,
    /// Another connection has come with the client id.
    TakenOver,
    /// The CONNACK said no.
    Refused,
    /// The client broke a rule of the protocol.
    ProtocolError,
    /// The client may not do what it did.
    NotAuthorized,
    /// The client has overrun a quota: its queue, its receive maximum, a rate.
    QuotaExceeded,
    /// An operator has ended it.
    Kicked,
    /// The node ends, or sends its clients elsewhere.
    ShuttingDown,
    Other,
}

impl CloseReason {
    pub const ALL: [CloseReason; 12] = [
        CloseReason::Client,
        CloseReason::ClientWithWill,
        CloseReason::Lost,
        CloseReason::KeepAliveTimeout,
        CloseReason::TakenOver,
        CloseReason::Refused,
        CloseReason::ProtocolError,
        CloseReason::NotAuthorized,
        CloseReason::QuotaExceeded,
        CloseReason::Kicked,
        CloseReason::ShuttingDown,
        CloseReason::Other,
    ];

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            CloseReason::Client => "client",
            CloseReason::ClientWithWill => "client_with_will",
            CloseReason::Lost => "lost",
            CloseReason::KeepAliveTimeout => "keep_alive_timeout",
            CloseReason::TakenOver => "taken_over",
            CloseReason::Refused => "refused",
            CloseReason::ProtocolError => "protocol_error",
            CloseReason::NotAuthorized => "not_authorized",
            CloseReason::QuotaExceeded => "quota_exceeded",
            CloseReason::Kicked => "kicked",
            CloseReason::ShuttingDown => "shutting_down",
            CloseReason::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_place_and_a_label_of_its_own() {
        let labels: std::collections::BTreeSet<_> = CloseReason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), CloseReason::ALL.len());
        assert!(CloseReason::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
    }
}
