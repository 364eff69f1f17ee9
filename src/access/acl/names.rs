//! Names of a client inside the filters of rules: `%c`, `%u`, `${clientid}`, `${username}`, `${cert.cn}`, `${claims.NAME}`. [pure]
//!
//! Invariant: a name that is put in never changes the form of a filter: one with `+`, `#`, `/` or U+0000, and an empty one, is put in nowhere. A rule that allows
//! then allows nothing, and one that denies denies everything, as nobody can say what it was to protect.

use super::Subject;
use super::rules::{EVERY_ACTION, Rule};

/// What stands for a name, and where it ends.
struct Place<'f> {
    at: usize,
    end: usize,
    name: &'f str,
}

/// The next name in a filter. `%c` and `%u` are names in patterns only, as in mosquitto.
fn next(filter: &str, is_pattern: bool) -> Option<Place<'_>> {
    let bytes = filter.as_bytes();
    for at in 0..bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'%', Some(b'c')) if is_pattern => return Some(Place { at, end: at + 2, name: "clientid" }),
            (b'%', Some(b'u')) if is_pattern => return Some(Place { at, end: at + 2, name: "username" }),
            (b'$', Some(b'{')) => {
                let len = filter[at..].find('}')?;
                return Some(Place { at, end: at + len + 1, name: &filter[at + 2..at + len] });
            }
            _ => {}
        }
    }
    None
}

/// Whether names are to be put into a filter.
pub(super) fn stand_in(filter: &str, is_pattern: bool) -> bool {
    next(filter, is_pattern).is_some()
}

/// Whether all names in a filter are such as there are.
pub(super) fn check(filter: &str, is_pattern: bool) -> Result<(), String> {
    let mut rest = filter;
    while let Some(place) = next(rest, is_pattern) {
        let known = matches!(place.name, "clientid" | "username" | "cert.cn");
        if !known && place.name.strip_prefix("claims.").is_none_or(str::is_empty) {
            return Err(format!(
                "there is no ${{{}}}: expected ${{clientid}}, ${{username}}, ${{cert.cn}} or ${{claims.NAME}}",
                place.name
            ));
        }
        rest = &rest[place.end..];
    }
    if rest.contains("${") {
        return Err("\"${\" without \"}\"".to_owned());
    }
    Ok(())
}

/// What a filter is for one client.
enum Filled {
    Filter(String),
    /// The client has no such name: the rule is not about it.
    NotMeant,
    Unfit,
}

fn fill(filter: &str, is_pattern: bool, subject: &Subject) -> Filled {
    let (mut filled, mut rest) = (String::with_capacity(filter.len() + 16), filter);
    while let Some(place) = next(rest, is_pattern) {
        let Some(name) = subject.name(place.name) else { return Filled::NotMeant };
        if name.is_empty() || name.contains(['+', '#', '/', '\0']) {
            return Filled::Unfit;
        }
        filled += &rest[..place.at];
        filled += name;
        rest = &rest[place.end..];
    }
    filled += rest;
    Filled::Filter(filled)
}

/// The rules as they are for one client.
pub(super) fn put_in(rules: &[Rule], is_pattern: bool, subject: &Subject) -> Vec<Rule> {
    let mut own = Vec::with_capacity(rules.len());
    for rule in rules {
        if !stand_in(&rule.filter, is_pattern) {
            own.push(rule.clone());
            continue;
        }
        match fill(&rule.filter, is_pattern, subject) {
            Filled::Filter(filter) => own.push(Rule { filter: filter.into(), ..rule.clone() }),
            Filled::Unfit if !rule.allows => {
                let everything =
                    ["#", "$SYS/#"].map(|filter| Rule { filter: filter.into(), actions: EVERY_ACTION, ..rule.clone() });
                own.extend(everything);
            }
            Filled::Unfit | Filled::NotMeant => {}
        }
    }
    own
}
