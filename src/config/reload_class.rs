//! When a key that was changed in the file holds: with a reload, or after a restart.
//!
//! Every key needs a restart, but for those that are named here. A key may be named only when `node::reloading` takes it up.

use std::fmt;

use super::settings::section_and_key;

/// When a changed key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReloadClass {
    /// With the reload, also for clients that are connected.
    Now,
    /// Only when the node is started again.
    Restart,
}

impl fmt::Display for ReloadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReloadClass::Now => "now",
            ReloadClass::Restart => "restart",
        })
    }
}

/// Sections and keys that hold with the reload.
const NOW: &[(&str, &[&str])] = &[("acl", &["file", "no_match"]), ("listener.acl", &["file", "no_match"])];

/// The class of a key, by its full name. The list of files to include has none of its own: what counts is what they say.
pub fn class_of(name: &str) -> ReloadClass {
    let (section, key) = section_and_key(name);
    let now = section.is_empty() || NOW.iter().any(|(of, keys)| *of == section && keys.contains(&key.as_str()));
    if now { ReloadClass::Now } else { ReloadClass::Restart }
}

#[cfg(test)]
mod tests {
    use super::super::SECTIONS;
    use super::*;

    #[test]
    fn keys_that_hold_with_the_reload_exist() {
        for (section, keys) in NOW {
            let (_, known) = SECTIONS.iter().find(|(name, _)| name == section).unwrap();
            assert!(keys.iter().all(|key| known.contains(key)), "{section}: {keys:?}");
        }
    }

    #[test]
    fn classes_by_full_name() {
        assert_eq!(class_of("listener[3].acl.file"), ReloadClass::Now);
        assert_eq!(class_of("acl.no_match"), ReloadClass::Now);
        assert_eq!(class_of("include"), ReloadClass::Now);
        for restart in ["acl.deny_action", "listener[0].bind", "cluster.peer_addresses.n2", "mqtt.max_inflight"] {
            assert_eq!(class_of(restart), ReloadClass::Restart, "{restart}");
        }
    }
}
