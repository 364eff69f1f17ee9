//! Keep Alive: a client from which no whole control packet came for one and a half times the interval is closed
//! [MQTT-3.1.2-22] (3.1.1: [MQTT-3.1.2-24]). Bytes of an unfinished packet, and WebSocket pings, do not count.

/// The clock of one connection. Time is in milliseconds of the node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// The time that may pass without a packet; 0 for ever.
    timeout_ms: u64,
    last_packet_at: u64,
}

impl KeepAlive {
    /// `interval_secs` as agreed in CONNECT and CONNACK, times `backoff` (`mqtt.keepalive_backoff`, 1.5 by the specification).
    pub fn new(interval_secs: u16, backoff: f64, now: u64) -> KeepAlive {
        KeepAlive { timeout_ms: (f64::from(interval_secs) * 1000.0 * backoff) as u64, last_packet_at: now }
    }

    pub fn packet_received(&mut self, now: u64) {
        self.last_packet_at = now;
    }

    /// When the connection is to be closed if nothing comes until then.
    pub fn deadline(&self) -> Option<u64> {
        (self.timeout_ms > 0).then(|| self.last_packet_at + self.timeout_ms)
    }

    pub fn has_run_out(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_out_after_one_and_a_half_intervals_without_a_packet() {
        let mut clock = KeepAlive::new(2, 1.5, 10_000);
        assert!(!clock.has_run_out(12_999));
        assert!(clock.has_run_out(13_000));
        clock.packet_received(12_500);
        assert!(!clock.has_run_out(15_499));
        assert!(clock.has_run_out(15_500));
    }

    #[test]
    fn an_interval_of_zero_never_runs_out() {
        let clock = KeepAlive::new(0, 1.5, 0);
        assert_eq!(clock.deadline(), None);
        assert!(!clock.has_run_out(u64::MAX));
    }
}
