//! `[acl]`: what clients may do.

use std::path::PathBuf;

use super::reading::Section;

pub(super) const KEYS: &[&str] = &["file", "no_match", "deny_action", "max_broad_subscriptions"];

/// Those that a listener may have of its own.
pub(super) const LISTENER_KEYS: &[&str] = &["file", "no_match"];

/// `[acl]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// Rules in mosquitto's format. `None`: everybody may do everything, but for what a token says.
    pub file: Option<PathBuf>,
    /// What becomes of that of which no rule speaks.
    pub no_match: NoMatch,
    /// What becomes of a client that publishes or subscribes to what it may not.
    pub deny_action: DenyAction,
    /// Subscriptions of one session whose filters name no level, such as `#` and `+/#`. 0 to 10,000,000; 0: as many as it likes.
    pub max_broad_subscriptions: usize,
}

/// What becomes of that of which no rule speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoMatch {
    Deny,
    Allow,
}

/// What becomes of a client that may not do what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyAction {
    /// It is told so where its version can be.
    Reject,
    /// Its connection ends.
    Disconnect,
}

/// The keys of `[acl]` that a listener has of its own; what it does not say is as in `[acl]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerAcl {
    pub file: Option<PathBuf>,
    pub no_match: Option<NoMatch>,
}

const NO_MATCH: [(&str, NoMatch); 2] = [("deny", NoMatch::Deny), ("allow", NoMatch::Allow)];

impl Default for Acl {
    fn default() -> Self {
        Acl { file: None, no_match: NoMatch::Deny, deny_action: DenyAction::Reject, max_broad_subscriptions: 5 }
    }
}

impl Acl {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Acl {
        let default = Acl::default();
        let deny_actions = [("reject", DenyAction::Reject), ("disconnect", DenyAction::Disconnect)];
        Acl {
            file: section.path("file"),
            no_match: section.choice("no_match", default.no_match, &NO_MATCH),
            deny_action: section.choice("deny_action", default.deny_action, &deny_actions),
            max_broad_subscriptions: section.integer(
                "max_broad_subscriptions",
                default.max_broad_subscriptions,
                0..=10_000_000,
            ),
        }
    }
}

impl ListenerAcl {
    pub(super) fn read(section: &mut Section<'_, '_>) -> ListenerAcl {
        let given = section.given("no_match");
        let no_match = section.choice("no_match", NoMatch::Deny, &NO_MATCH);
        ListenerAcl { file: section.path("file"), no_match: given.then_some(no_match) }
    }
}
