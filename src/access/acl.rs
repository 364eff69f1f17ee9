//! What a client may do: the rules of an ACL file and of its token, compiled for each connection.
//!
//! One [`Acl`] for each node owns the rules that were read last, of the node and of the listeners that have their own. [`Acl::reload`] and [`Acl::replace`]
//! exchange all of them or none, and raise the version; every [`Rights`] sees that at its next question, so what was revoked is revoked on connections
//! that are open, without a word to anybody. What waits in a queue is asked about when it is sent.
//!
//! Order of the questions: the token of the client ([`claims`]), then the file ([`file`]), then `no_match`. Without a file and without rules in the
//! token everything is allowed, and a question costs one load. `$SYS` is readable on this machine only, unless a rule grants it; where there are rules, they alone
//! decide, and `no_match = "allow"` opens `$SYS` to nobody from elsewhere.
//!
//! Invariants: fails closed. A file that cannot be used is refused, and what was in force stays; a claim that cannot be read allows nothing.
//!
//! Tests to read first: `tests::precedence_is_that_of_mosquitto`, `tests::a_change_reaches_rights_that_are_in_use`.

mod claims;
mod file;
mod names;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::topic::TopicFilter;

pub use file::{AclError, AclFile};
pub use rules::Action;
use rules::{Rule, RuleSet};

/// Whose rights are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub client_id: Arc<str>,
    /// The user whose password, token or certificate it had. `None` is anonymous.
    pub user_name: Option<Arc<str>>,
    /// Common name of its certificate.
    pub cert_cn: Option<Arc<str>>,
    /// Claims of its token that are texts, and their values.
    pub claims: Vec<(Arc<str>, Arc<str>)>,
    /// The claim `acl` of its token, as JSON.
    pub acl_claim: Option<Arc<str>>,
    /// Whether it is on this machine.
    pub is_local: bool,
    /// The listener that it came through.
    pub listener: Arc<str>,
}

impl Subject {
    /// What stands for `${…}` in a rule.
    fn name(&self, name: &str) -> Option<&str> {
        match name {
            "clientid" => Some(&self.client_id),
            "username" => self.user_name.as_deref(),
            "cert.cn" => self.cert_cn.as_deref(),
            _ => {
                let claim = name.strip_prefix("claims.")?;
                self.claims.iter().find(|(name, _)| &**name == claim).map(|(_, value)| &**value)
            }
        }
    }
}

/// What the configuration says about rules, for the node or for one listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AclSettings {
    pub file: Option<PathBuf>,
    /// Whether what no rule speaks of is allowed.
    pub allows_unmatched: bool,
}

/// The rules that hold at one listener.
#[derive(Debug, Clone, Default)]
struct Policy {
    file: Option<Arc<AclFile>>,
    allows_unmatched: bool,
}

#[derive(Debug, Default)]
struct Policies {
    everywhere: Policy,
    at_listener: HashMap<String, Policy>,
}

/// The settings of the node, and those of listeners that differ.
pub type Settings = (AclSettings, Vec<(String, AclSettings)>);

/// See the module.
#[derive(Debug, Default)]
pub struct Acl {
    settings: ArcSwap<Settings>,
    policies: ArcSwap<Policies>,
    version: AtomicU64,
}

impl Acl {
    /// Reads all ACL files that the settings name.
    ///
    /// # Errors
    /// A file cannot be read, or lines of it are wrong.
    pub fn new(settings: Settings) -> Result<Acl, AclError> {
        let policies = load(&settings)?;
        Ok(Acl {
            settings: ArcSwap::from_pointee(settings),
            policies: ArcSwap::from_pointee(policies),
            version: AtomicU64::new(1),
        })
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`Acl::new`]; everything is then as it was.
    pub fn reload(&self) -> Result<(), AclError> {
        self.replace(Settings::clone(&self.settings.load()))
    }

    /// Takes up other settings. Holds for connections that are open, too.
    ///
    /// # Errors
    /// As [`Acl::new`]; everything is then as it was.
    pub fn replace(&self, settings: Settings) -> Result<(), AclError> {
        let policies = load(&settings)?;
        self.settings.store(Arc::new(settings));
        self.policies.store(Arc::new(policies));
        // Behind the rules: who sees the version sees them.
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How many rules the files hold; `None` without a file.
    pub fn rule_count(&self) -> Option<usize> {
        let policies = self.policies.load();
        let files = std::iter::once(&policies.everywhere).chain(policies.at_listener.values());
        files.filter_map(|policy| policy.file.as_ref().map(|file| file.len())).reduce(|one, other| one + other)
    }

    /// The rights of a client, which follow what becomes of the rules.
    pub fn rights(self: &Arc<Self>, subject: Subject) -> Rights {
        Rights { acl: self.clone(), subject, version: 0, matcher: None, remembered: Remembered::default() }
    }
}

fn load(settings: &Settings) -> Result<Policies, AclError> {
    let read = |settings: &AclSettings| {
        let file = settings.file.as_deref().map(AclFile::load).transpose()?.map(Arc::new);
        Ok(Policy { file, allows_unmatched: settings.allows_unmatched })
    };
    let at_listener = settings.1.iter().map(|(name, settings)| Ok((name.clone(), read(settings)?)));
    Ok(Policies { everywhere: read(&settings.0)?, at_listener: at_listener.collect::<Result<_, AclError>>()? })
}

/// Where a rule stands.
#[derive(Debug, Clone)]
enum Source {
    Token,
    File(Arc<str>),
}

/// The rules as they are for one client.
#[derive(Debug)]
struct Matcher {
    /// In the order in which they are asked.
    stages: SmallVec<[(Source, Arc<RuleSet>); 3]>,
    allows_unmatched: bool,
    /// The claim of the token that could not be read: nothing is allowed.
    broken_claim: Option<String>,
    /// Whether remembering a decision costs less than deciding.
    is_long: bool,
}

impl Matcher {
    /// `None`: there is nothing to ask.
    fn new(policy: &Policy, subject: &Subject) -> Option<Matcher> {
        let mut stages: SmallVec<[(Source, Arc<RuleSet>); 3]> = SmallVec::new();
        let mut broken_claim = None;
        if let Some(claim) = &subject.acl_claim {
            match claims::read(claim) {
                Ok(rules) => stages.push((Source::Token, Arc::new(RuleSet::new(names::put_in(&rules, true, subject))))),
                Err(error) => broken_claim = Some(error),
            }
        }
        if let Some(file) = &policy.file {
            let source = Source::File(file.path.clone());
            let own = match &subject.user_name {
                Some(user) => file.users.get(user),
                None => Some(&file.anonymous),
            };
            if let Some(own) = own {
                let filled = own.templates.as_ref().map(|rules| names::put_in(rules, false, subject));
                stages.push((
                    source.clone(),
                    filled.map_or_else(|| own.plain.clone(), |rules| Arc::new(RuleSet::new(rules))),
                ));
            }
            if !file.patterns.is_empty() {
                stages.push((source, Arc::new(RuleSet::new(names::put_in(&file.patterns, true, subject)))));
            }
        } else if subject.acl_claim.is_none() {
            return None;
        }
        let rules: usize = stages.iter().map(|(_, set)| set.rules().len()).sum();
        let allows_unmatched = policy.allows_unmatched && broken_claim.is_none();
        Some(Matcher { stages, allows_unmatched, broken_claim, is_long: rules > REMEMBERED_MAX })
    }

    fn find(&self, action: Action, topic: &str) -> Option<(&Source, &Rule)> {
        if self.broken_claim.is_some() {
            return None;
        }
        self.stages.iter().find_map(|(source, set)| {
            let rule = if action == Action::Subscribe { set.decide_filter(topic) } else { set.decide(action, topic) };
            rule.map(|rule| (source, rule))
        })
    }
}

/// Decisions of one connection that are remembered, and the longest topic among them, in bytes.
const REMEMBERED_MAX: usize = 8;
const REMEMBERED_TOPIC_MAX: usize = 128;

/// The last decisions of one connection about topic names.
#[derive(Debug, Default)]
struct Remembered {
    decisions: Vec<(Action, bool, String)>,
    oldest: usize,
}

impl Remembered {
    fn find(&self, action: Action, topic: &str) -> Option<bool> {
        let known = self.decisions.iter().find(|(of, _, name)| *of == action && name == topic);
        known.map(|(_, allowed, _)| *allowed)
    }

    fn note(&mut self, action: Action, topic: &str, allowed: bool) {
        if topic.len() > REMEMBERED_TOPIC_MAX {
            return;
        }
        if self.decisions.len() < REMEMBERED_MAX {
            self.decisions.push((action, allowed, topic.to_owned()));
            return;
        }
        let (of, was, name) = &mut self.decisions[self.oldest];
        (*of, *was) = (action, allowed);
        name.clear();
        name.push_str(topic);
        self.oldest = (self.oldest + 1) % REMEMBERED_MAX;
    }
}

/// A short answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub allowed: bool,
    /// Whether there were rules to ask.
    pub asked: bool,
}

/// An answer with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub allowed: bool,
    /// The rule that decided, as it is written; empty if none did.
    pub rule: String,
    /// Where it stands, `FILE:LINE`, or what decided instead.
    pub by: String,
    /// The line, or the place in the token, from 1; 0 if no rule decided.
    pub line: u32,
}

impl fmt::Display for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.allowed { "allowed" } else { "denied" };
        match self.rule.as_str() {
            "" => write!(out, "{verdict} by {}", self.by),
            rule => write!(out, "{verdict} by {}: {rule}", self.by),
        }
    }
}

/// What one client may do, now.
#[derive(Debug)]
pub struct Rights {
    acl: Arc<Acl>,
    subject: Subject,
    /// Of the rules that `matcher` was made of.
    version: u64,
    matcher: Option<Matcher>,
    remembered: Remembered,
}

impl Rights {
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Decides about a topic name, or, for [`Action::Subscribe`], about a topic filter, which may have a share prefix.
    pub fn ask(&mut self, action: Action, topic: &str) -> Answer {
        self.refresh();
        let topic = inner(action, topic);
        let Some(matcher) = &self.matcher else {
            return Answer { allowed: self.is_open(action, topic), asked: false };
        };
        let remembers = matcher.is_long && action != Action::Subscribe;
        if remembers && let Some(allowed) = self.remembered.find(action, topic) {
            return Answer { allowed, asked: true };
        }
        let found = matcher.find(action, topic).map(|(_, rule)| rule.allows);
        let allowed = found.unwrap_or_else(|| matcher.allows_unmatched && self.is_open(action, topic));
        if remembers {
            self.remembered.note(action, topic, allowed);
        }
        Answer { allowed, asked: true }
    }

    /// The same, with the reason.
    pub fn explain(&mut self, action: Action, topic: &str) -> Decision {
        self.refresh();
        let topic = inner(action, topic);
        let is_open = self.is_open(action, topic);
        let by_nothing = |allowed, by: &str| Decision { allowed, rule: String::new(), by: by.to_owned(), line: 0 };
        let Some(matcher) = &self.matcher else {
            let by = if is_open { "default: there is no ACL file" } else { SYSTEM };
            return by_nothing(is_open, by);
        };
        if let Some(error) = &matcher.broken_claim {
            return by_nothing(false, &format!("the claim acl of the token, which cannot be read: {error}"));
        }
        match matcher.find(action, topic) {
            Some((source, rule)) => {
                let by = match source {
                    Source::Token => format!("rule {} of the token", rule.line),
                    Source::File(path) => format!("{path}:{}", rule.line),
                };
                Decision { allowed: rule.allows, rule: rule.text.to_string(), by, line: rule.line }
            }
            None if matcher.allows_unmatched && !is_open => by_nothing(false, SYSTEM),
            None if matcher.allows_unmatched => by_nothing(true, "no_match = \"allow\": no rule speaks of it"),
            None => by_nothing(false, "no_match = \"deny\": no rule speaks of it"),
        }
    }

    /// Makes the rules anew if they are other ones.
    fn refresh(&mut self) {
        let version = self.acl.version.load(Ordering::Acquire);
        if version != self.version {
            let policies = self.acl.policies.load();
            let policy = policies.at_listener.get(&*self.subject.listener).unwrap_or(&policies.everywhere);
            self.matcher = Matcher::new(policy, &self.subject);
            self.remembered = Remembered::default();
            self.version = version;
        }
    }

    /// What holds where no rule speaks of a topic and nothing is denied for that.
    fn is_open(&self, action: Action, topic: &str) -> bool {
        action == Action::Publish || self.subject.is_local || !is_system(topic)
    }
}

const SYSTEM: &str = "default: $SYS is readable on this machine only, unless a rule grants it";

fn is_system(topic: &str) -> bool {
    topic.strip_prefix("$SYS").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The filter behind a share prefix.
fn inner(action: Action, topic: &str) -> &str {
    if action != Action::Subscribe {
        return topic;
    }
    TopicFilter::parse(topic).map_or(topic, |parsed| parsed.filter)
}
