//! What SIGHUP does: the configuration is read again, what can be taken up while the node runs is, and what cannot is named.
//!
//! [`Reload`] owns the values that are in force, as text. A configuration with errors changes nothing at all, and neither are the files read again that the one before names. Keys that need a
//! restart are named at each reload until there was one. Files of passwords, rules and certificates keep each its last good version when they are broken.
//!
//! Tests to read first: `tests`, and `cluster-tests/tests/command_line/reloads.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::{error, info, warn};

use crate::config::{Change, Config, Loaded, ReloadClass, Settings};

use super::{Parts, acl_settings, authentication};

/// Reads the configuration again, or says what is wrong with it.
pub type ReadAgain = Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>;

/// Where the configuration comes from, and what of it is in force.
pub struct Reload {
    read: ReadAgain,
    in_force: Mutex<Settings>,
}

impl Reload {
    /// `in_force`: what the node is started with.
    pub fn new(in_force: Settings, read: ReadAgain) -> Reload {
        Reload { read, in_force: Mutex::new(in_force) }
    }

    /// Reads everything again. What became of it is in the log and in the metrics.
    pub(super) fn run(&self, parts: &Parts) {
        let good = self.take_up(parts) && read_files(parts);
        let metrics = &parts.shared.metrics.reload;
        metrics.failed.set(u64::from(!good));
        if good {
            metrics.success_secs.set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
        }
    }

    fn take_up(&self, parts: &Parts) -> bool {
        let loaded = match (self.read)() {
            Ok(loaded) => loaded,
            Err(errors) => {
                for error in errors.lines() {
                    error!(event = "reload", error, "the configuration is not usable; the one before stays in force");
                }
                return false;
            }
        };
        let mut in_force = self.in_force.lock();
        let listeners: Vec<&str> = parts.listeners.iter().map(|bound| bound.state.config.name.as_str()).collect();
        let (now, later) = sort(in_force.changes_to(&loaded.settings), same_listeners(&listeners, &loaded.config));
        if !now.is_empty()
            && let Err(error) = parts.shared.acl.replace(acl_settings(&loaded.config))
        {
            error!(event = "reload", %error, "an ACL file is not usable; the rules and the configuration before stay in force");
            return false;
        }
        in_force.adopt(&loaded.settings, &now);
        let (changed, needs_restart) = (now.join(", "), later.join(", "));
        if !later.is_empty() {
            warn!(
                event = "reload",
                needs_restart, "the configuration was read again; this needs a restart: {needs_restart}"
            );
        }
        info!(event = "reload", changed, "the configuration was read again");
        true
    }
}

/// The names of the keys that hold at once, and of those that need a restart. Rules of listeners follow their names: when other listeners are in the file than there are, no rule changes.
fn sort(changes: Vec<Change>, same_listeners: bool) -> (Vec<String>, Vec<String>) {
    let (now, later): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| same_listeners && change.class == ReloadClass::Now);
    let names = |changes: Vec<Change>| changes.into_iter().map(|change| change.name).collect();
    (names(now), names(later))
}

fn same_listeners(running: &[&str], config: &Config) -> bool {
    running.iter().copied().eq(config.listeners.iter().map(|listener| listener.name.as_str()))
}

/// The files that the configuration names. What is broken keeps its old version; certificates say themselves what became of them.
fn read_files(parts: &Parts) -> bool {
    let mut good = true;
    match parts.access.reload() {
        Ok(true) => {
            info!(event = "reload", users = parts.access.user_count(), "passwords and keys read again");
            authentication::judge_all(&parts.access, &parts.shared.mailboxes);
        }
        Ok(false) => {}
        Err(error) => {
            good = false;
            error!(event = "reload", %error, "a file of passwords or keys is not usable; what was read before stays in force");
        }
    }
    match parts.shared.acl.reload() {
        Ok(()) => {
            if let Some(rules) = parts.shared.acl.rule_count() {
                info!(event = "reload", rules, "ACL files read again");
            }
        }
        Err(error) => {
            good = false;
            error!(event = "reload", %error, "an ACL file is not usable; the rules read before stay in force");
        }
    }
    for tls in parts.listeners.iter().filter_map(|bound| bound.tls.as_ref()) {
        good &= tls.reload().is_ok();
    }
    good
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn change(name: &str, class: ReloadClass) -> Change {
        Change { name: name.to_owned(), before: None, after: None, class }
    }

    #[test]
    fn rules_hold_at_once_unless_there_are_other_listeners() {
        let changes = || vec![change("acl.file", ReloadClass::Now), change("node.name", ReloadClass::Restart)];
        assert_eq!(sort(changes(), true), (vec!["acl.file".to_owned()], vec!["node.name".to_owned()]));
        assert_eq!(sort(changes(), false), (vec![], vec!["acl.file".to_owned(), "node.name".to_owned()]));
        let config = Config::parse("[[listener]]\nname = 'a'\nbind = '127.0.0.1:1'\n", Path::new("a")).unwrap();
        assert!(same_listeners(&["a"], &config));
        assert!(!same_listeners(&["b"], &config) && !same_listeners(&["a", "b"], &config));
    }
}
