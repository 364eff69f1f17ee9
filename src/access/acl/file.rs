//! An ACL file, in mosquitto's format. [pure], but for [`AclFile::load`]
//!
//! | line | meaning |
//! | --- | --- |
//! | `# …` | a comment |
//! | `user NAME` | the `topic` lines from here on are about that user |
//! | `topic [ACCESS] FILTER` | a rule; before the first `user` line it is about anonymous clients |
//! | `pattern [ACCESS] FILTER` | a rule about all clients, in which `%c` stands for the client id and `%u` for the user name |
//!
//! ACCESS is `read`, `write`, `readwrite` (when nothing is said), `subscribe`, `unsubscribe` or `deny`. Beyond mosquitto, both kinds of filters may
//! hold `${clientid}`, `${username}`, `${cert.cn}` and `${claims.NAME}`.
//!
//! Precedence, as in mosquitto: the `topic` lines of the user (or of anonymous clients), denials first; then the patterns, denials first; then nothing
//! is allowed. A user of whom the file says nothing has the patterns alone.
//!
//! Invariant: a file of which one line is wrong is refused as a whole.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;

use super::names;
use super::rules::{Action, Actions, EVERY_ACTION, Rule, RuleSet};
use crate::topic::TopicFilter;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Wrong lines that one error names; the rest is counted.
const WRONG_LINES_SHOWN: usize = 20;

/// The rules of an ACL file.
#[derive(Debug, Default)]
pub struct AclFile {
    /// As it is named in answers.
    pub(super) path: Arc<str>,
    pub(super) anonymous: Subjects,
    pub(super) users: HashMap<Arc<str>, Subjects>,
    pub(super) patterns: Vec<Rule>,
    rules: usize,
}

/// The `topic` lines of one user, or of anonymous clients.
#[derive(Debug, Clone, Default)]
pub(super) struct Subjects {
    /// For those to whom they are what they are; shared by all connections.
    pub plain: Arc<RuleSet>,
    /// All of them, if names are to be put into some.
    pub templates: Option<Arc<[Rule]>>,
}

/// Why an ACL file is refused.
#[derive(Debug, thiserror::Error)]
pub enum AclError {
    #[error("ACL file {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// One error for all lines that are wrong: their numbers, counted from 1, and what is wrong there.
    #[error("{}", Shown(path, lines))]
    Lines { path: PathBuf, lines: Vec<(usize, String)> },
}

struct Shown<'a>(&'a Path, &'a [(usize, String)]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(path, lines) = self;
        for (place, (line, message)) in lines.iter().take(WRONG_LINES_SHOWN).enumerate() {
            let end = if place > 0 { "\n" } else { "" };
            write!(out, "{end}{}:{line}: {message}", path.display())?;
        }
        if lines.len() > WRONG_LINES_SHOWN {
            write!(out, "\n{}: and {} more lines", path.display(), lines.len() - WRONG_LINES_SHOWN)?;
        }
        Ok(())
    }
}

impl AclFile {
    /// Reads a file, through symbolic links.
    ///
    /// # Errors
    /// It cannot be read, or is larger than 64 MiB, or some of its lines are wrong: all of these.
    pub fn load(path: &Path) -> Result<AclFile, AclError> {
        let text = read_text(path).map_err(|source| AclError::Read { path: path.to_owned(), source })?;
        AclFile::parse(path, &text).map_err(|lines| AclError::Lines { path: path.to_owned(), lines })
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<AclFile, Vec<(usize, String)>> {
        let mut reading = Reading::default();
        let mut wrong = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if let Err(message) = reading.take(index as u32 + 1, line) {
                wrong.push((index + 1, message));
            }
        }
        if wrong.is_empty() { Ok(reading.finish(path)) } else { Err(wrong) }
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(std::io::Error::other("larger than 64 MiB"));
    }
    Ok(text)
}

#[derive(Default)]
struct Reading {
    /// About whom `topic` lines are.
    user: Option<Arc<str>>,
    /// `None` are anonymous clients.
    topics: HashMap<Option<Arc<str>>, Vec<Rule>>,
    patterns: Vec<Rule>,
}

impl Reading {
    fn take(&mut self, line: u32, text: &str) -> Result<(), String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "user" if rest.is_empty() => Err("the user name is missing".to_owned()),
            "user" => {
                self.user = Some(rest.into());
                Ok(())
            }
            "topic" => {
                let rule = read_rule(line, text, rest, false)?;
                self.topics.entry(self.user.clone()).or_default().push(rule);
                Ok(())
            }
            "pattern" => {
                self.patterns.push(read_rule(line, text, rest, true)?);
                Ok(())
            }
            _ => Err(format!("expected \"user\", \"topic\", \"pattern\" or a comment, found \"{word}\"")),
        }
    }

    fn finish(self, path: &Path) -> AclFile {
        let mut file = AclFile {
            path: path.display().to_string().into(),
            patterns: denials_first(self.patterns),
            ..AclFile::default()
        };
        file.rules = file.patterns.len();
        for (user, rules) in self.topics {
            file.rules += rules.len();
            let subjects = Subjects::new(denials_first(rules));
            match user {
                Some(user) => drop(file.users.insert(user, subjects)),
                None => file.anonymous = subjects,
            }
        }
        file
    }
}

impl Subjects {
    fn new(rules: Vec<Rule>) -> Subjects {
        if rules.iter().any(|rule| names::stand_in(&rule.filter, false)) {
            return Subjects { plain: Arc::default(), templates: Some(rules.into()) };
        }
        Subjects { plain: Arc::new(RuleSet::new(rules)), templates: None }
    }
}

fn denials_first(mut rules: Vec<Rule>) -> Vec<Rule> {
    rules.sort_by_key(|rule| rule.allows);
    rules
}

/// `[ACCESS] FILTER`. A filter may hold spaces if its access is said.
fn read_rule(line: u32, text: &str, rest: &str, is_pattern: bool) -> Result<Rule, String> {
    let (allows, actions, filter) = match rest.split_once([' ', '\t']) {
        None if rest.is_empty() => return Err("the topic is missing".to_owned()),
        None => (true, EVERY_ACTION, rest),
        Some((access, filter)) => {
            let (allows, actions) = read_access(access)?;
            (allows, actions, filter.trim())
        }
    };
    let parsed = TopicFilter::parse(filter).map_err(|error| error.to_string())?;
    if parsed.share.is_some() {
        return Err("a rule is about topics: write the filter without $share/NAME/".to_owned());
    }
    names::check(filter, is_pattern)?;
    Ok(Rule { allows, actions, filter: filter.into(), text: text.into(), line })
}

/// Who may read a topic may subscribe to it. To give up a subscription is everybody's right, so `unsubscribe` grants nothing more.
fn read_access(access: &str) -> Result<(bool, Actions), String> {
    const READ: Actions = 1 << Action::Subscribe as u8 | 1 << Action::Read as u8;
    Ok(match access {
        "read" => (true, READ),
        "write" => (true, Action::Publish.bit()),
        "readwrite" => (true, EVERY_ACTION),
        "subscribe" => (true, Action::Subscribe.bit()),
        "unsubscribe" => (true, 0),
        "deny" => (false, EVERY_ACTION),
        _ => {
            return Err(format!(
                "expected read, write, readwrite, subscribe, unsubscribe or deny before the topic, found \"{access}\""
            ));
        }
    })
}
