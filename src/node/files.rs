//! Open files: as many as the system allows, and some of them for other things than clients.
//!
//! A node that runs out of descriptors cannot write its journal or talk to the others, so connections end before descriptors do: what is open when the node
//! has started, and [`RESERVE`] more, is never a client's. One that comes then is accepted and closed, which costs less than to leave it waiting.

use tracing::{info, warn};

use crate::config::{Config, Listener, Protocol};

use super::Bound;

/// Descriptors for files of the journal, links to other nodes and the admin port that come later.
const RESERVE: u64 = 64;

/// Raises the soft limit of open files to the hard one.
pub(super) fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills the struct that it is given.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 || limit.rlim_cur >= limit.rlim_max {
        return;
    }
    let before = std::mem::replace(&mut limit.rlim_cur, limit.rlim_max);
    // SAFETY: setrlimit reads the struct that it is given.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == 0 {
        info!(event = "files", before, now = limit.rlim_max, "the limit of open files was raised");
    }
}

fn limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills the struct that it is given.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit.rlim_cur)
}

/// Bounds the connections by what is left of the open files, now that everything else has its own.
pub(super) fn leave_room(config: &Config, listeners: &[Bound]) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let Some(left) = limit().map(|limit| connections_max(limit, open)) else {
        return;
    };
    if let Some(bound) = listeners.first() {
        bound.state.node.lower_max(left);
    }
    if let Some(wanted) = wanted(config).filter(|wanted| *wanted > left) {
        warn!(
            event = "files",
            wanted,
            possible = left,
            "the limit of open files allows fewer connections than max_connections: raise it (LimitNOFILE= of systemd, ulimit -n)"
        );
    }
}

fn connections_max(limit: u64, open: u64) -> usize {
    usize::try_from(limit.saturating_sub(open + RESERVE)).unwrap_or(usize::MAX).max(1)
}

/// The most connections that somebody has asked for.
fn wanted(config: &Config) -> Option<usize> {
    let default = Listener::new("", Protocol::Mqtt, ([0, 0, 0, 0], 0).into()).max_connections;
    let of_listeners = config.listeners.iter().map(|listener| listener.max_connections).filter(|max| *max != default);
    config.limits.max_connections.or_else(|| of_listeners.max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_get_the_last_descriptors() {
        assert_eq!(connections_max(1_024, 100), 1_024 - 100 - 64);
        assert_eq!(connections_max(128, 100), 1, "a node serves somebody");
        assert_eq!(connections_max(u64::MAX, 100), (u64::MAX - 164) as usize);
    }
}
