//! Why two nodes do not come together, in words for both of them, counted and logged at a bounded rate.
//!
//! Invariant: a cause is one of a fixed set, never made from bytes of the network.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::metrics;

/// Why a node refuses another one. It travels as one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// The other one does not know the secret.
    Secret = 1,
    /// A cluster of another name.
    ClusterName = 2,
    /// A cluster of the same name that is another one.
    ClusterId = 3,
    /// No version of the protocol that both speak.
    Version = 4,
    /// It is this node itself.
    Own = 5,
    /// An earlier life of a process that has been seen in a later one.
    OlderRun = 6,
    /// A later attempt to connect was here first.
    OlderAttempt = 7,
    /// Bytes that are no greeting.
    Malformed = 8,
    /// There are too many nodes already.
    TooMany = 9,
    /// The control connections are not up both ways.
    NotUp = 10,
    /// It is not the node that was expected at this address.
    Another = 11,
    /// Anything that a later version may say.
    Other = 0,
}

impl Refusal {
    pub const ALL: [Refusal; 12] = [
        Self::Other,
        Self::Secret,
        Self::ClusterName,
        Self::ClusterId,
        Self::Version,
        Self::Own,
        Self::OlderRun,
        Self::OlderAttempt,
        Self::Malformed,
        Self::TooMany,
        Self::NotUp,
        Self::Another,
    ];

    pub(super) fn from_u8(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or(Self::Other)
    }

    /// In words, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Secret => "another cluster secret",
            Self::ClusterName => "another cluster name",
            Self::ClusterId => "another cluster of the same name",
            Self::Version => "no version of the cluster protocol in common",
            Self::Own => "the node itself",
            Self::OlderRun => "an earlier run of a node that is here with a later one",
            Self::OlderAttempt => "a later connection of the same node was here first",
            Self::Malformed => "bytes that no node of a cluster sends",
            Self::TooMany => "too many nodes",
            Self::NotUp => "no control connection both ways",
            Self::Another => "another node than the one expected at this address",
            Self::Other => "a reason that this version does not know",
        }
    }

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::ClusterName => "cluster_name",
            Self::ClusterId => "cluster_id",
            Self::Version => "version",
            Self::Own => "own",
            Self::OlderRun => "older_run",
            Self::OlderAttempt => "older_attempt",
            Self::Malformed => "malformed",
            Self::TooMany => "too_many",
            Self::NotUp => "not_up",
            Self::Another => "another",
            Self::Other => "other",
        }
    }

    /// Whether an operator has to do something about it; the others come and go by themselves.
    pub(super) fn is_lasting(self) -> bool {
        matches!(self, Self::Secret | Self::ClusterName | Self::ClusterId | Self::Version | Self::TooMany)
    }
}

/// What happened on all links, since the start. Every number may be read by anyone at any time.
#[derive(Debug, Default)]
pub struct LinkCounts {
    refused: [AtomicU64; Refusal::ALL.len()],
    refused_by_peers: [AtomicU64; Refusal::ALL.len()],
    /// Connections that were closed while they had not proven anything, because there were too many.
    pub(super) evicted: AtomicU64,
    /// Greetings that did not end in time.
    pub(super) timed_out: AtomicU64,
    /// Control connections closed because their queue was full.
    pub(super) control_overflows: AtomicU64,
    /// Bulk frames that found their queue full.
    pub(super) bulk_full: AtomicU64,
    /// Links that came up.
    pub(super) ups: AtomicU64,
    /// Links that went down.
    pub(super) downs: AtomicU64,
}

impl LinkCounts {
    /// How often this node refused another one for this reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Relaxed)
    }

    /// How often others refused this node for this reason.
    pub fn refused_by_peers(&self, refusal: Refusal) -> u64 {
        self.refused_by_peers[refusal as usize].load(Relaxed)
    }

    /// Connections that were closed while they had not proven anything, because there were too many of them.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Greetings that did not end in time.
    pub fn timed_out(&self) -> u64 {
        self.timed_out.load(Relaxed)
    }

    /// Control connections that were closed because their queue was full.
    pub fn control_overflows(&self) -> u64 {
        self.control_overflows.load(Relaxed)
    }

    /// Bulk frames that found their queue full.
    pub fn bulk_full(&self) -> u64 {
        self.bulk_full.load(Relaxed)
    }

    /// Links that came up, and links that went down.
    pub fn ups_and_downs(&self) -> (u64, u64) {
        (self.ups.load(Relaxed), self.downs.load(Relaxed))
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn be_refused(&self, refusal: Refusal) {
        self.refused_by_peers[refusal as usize].fetch_add(1, Relaxed);
    }
}

/// Why a connection between two nodes did not come to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Network(String),
    #[error("{0} cannot be resolved")]
    Name(String),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("no node of a cluster answers there")]
    NotHoldfast,
    #[error("refused here: {}", .0.reason())]
    Refused(Refusal),
    #[error("refused there: {}", .0.reason())]
    RefusedByPeer(Refusal),
}

impl Failure {
    pub(super) fn network(error: &std::io::Error) -> Self {
        Self::Network(error.to_string())
    }

    fn cause(&self) -> &'static str {
        match self {
            Self::Network(_) => "link: network",
            Self::Name(_) => "link: name",
            Self::Tls(_) => "link: TLS handshake",
            Self::TimedOut => "link: timed out",
            Self::NotHoldfast => "link: no node there",
            Self::Refused(refusal) | Self::RefusedByPeer(refusal) => refusal.reason(),
        }
    }

    /// Counts it, and says it in the log unless that has just been said about the same cause.
    pub(super) fn note(&self, counts: &LinkCounts, remote: &str) {
        match self {
            Self::Refused(refusal) => counts.refuse(*refusal),
            Self::RefusedByPeer(refusal) => counts.be_refused(*refusal),
            Self::TimedOut => {
                counts.timed_out.fetch_add(1, Relaxed);
            }
            _ => {}
        }
        let Some(left_out) = permit(self.cause()) else { return };
        match self {
            Self::Refused(refusal) | Self::RefusedByPeer(refusal) if refusal.is_lasting() => {
                tracing::warn!(event = "link", remote, left_out, "a node is not linked: {self}");
            }
            Self::Tls(_) => tracing::warn!(event = "link", remote, left_out, "a node is not linked: {self}"),
            _ => tracing::debug!(event = "link", remote, left_out, "a node is not linked: {self}"),
        }
    }
}

/// When the log says that something has not been as it should be for a while: after ten seconds, and then once a minute.
#[derive(Debug, Default)]
pub(super) struct Warning(Option<Instant>);

impl Warning {
    const AFTER: Duration = Duration::from_secs(10);
    const AGAIN_AFTER: Duration = Duration::from_secs(60);

    /// Whether to say it now, if all was well last at that time.
    pub(super) fn is_due(&mut self, well_at: Instant, now: Instant) -> bool {
        let is_again = |said: Instant| said < well_at || now.duration_since(said) >= Self::AGAIN_AFTER;
        let is_due = now.duration_since(well_at) >= Self::AFTER && self.0.is_none_or(is_again);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Whether a line about this cause may be written now; the field of it that says how many were left out since the last one, if any were.
pub(super) fn permit(cause: &'static str) -> Option<Option<u64>> {
    metrics::admit_line(cause).map(|left_out| (left_out > 0).then_some(left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_said_after_a_while_and_then_now_and_then() {
        let (well_at, second) = (Instant::now(), Duration::from_secs(1));
        let mut warning = Warning::default();
        let said: Vec<_> = (0..140).filter(|seconds| warning.is_due(well_at, well_at + *seconds * second)).collect();
        assert_eq!(said, [10, 70, 130]);
        let well_again = well_at + 141 * second;
        assert!(!warning.is_due(well_again, well_again));
        assert!(warning.is_due(well_again, well_again + 10 * second), "another time");
    }

    #[test]
    fn refusals_are_their_bytes() {
        for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
            assert_eq!(Refusal::from_u8(place as u8), refusal);
        }
        assert_eq!(Refusal::from_u8(200), Refusal::Other);
    }
}
