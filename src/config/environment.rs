//! What the environment says: `HOLDFAST_MQTT__MAX_INFLIGHT=20` is `max_inflight = 20` of `[mqtt]`, and `${NAME}` in a string of a file is what `NAME` holds.
//!
//! Pure: an [`Environment`] is a list of names and values, which whoever starts the program takes from the process. A variable outranks every file. A variable
//! that no key has is an error, as a key that does not exist is; but for those that Kubernetes sets for a service called "holdfast".
//!
//! Tests to read first: `tests::names_are_keys` and `tests::strings_take_what_variables_hold`.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::{SECTIONS, suggest};

/// What every variable of the configuration begins with.
const PREFIX: &str = "HOLDFAST_";

/// What a variable ends with whose value is in a file.
const FILE_SUFFIX: &str = "_file";

/// Sections that are arrays of tables: the next part of a variable's name is a place in it, counted from 0.
pub(super) const ARRAYS: &[&str] = &["listener"];

/// Names and values, as a process has them.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// A step from the top of the configuration to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Key(&'static str),
    Place(usize),
}

/// What a variable sets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub path: Vec<Step>,
    /// Whether the variable names a file that holds the value.
    pub in_file: bool,
}

impl Environment {
    /// The environment of this process. What is not UTF-8 is passed over.
    pub fn of_process() -> Environment {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    /// Of these names and values.
    pub fn of<N: Into<String>, V: Into<String>>(variables: impl IntoIterator<Item = (N, V)>) -> Environment {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// The variables that are meant for the configuration, by name.
    pub(super) fn of_configuration(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(|(name, value)| name.starts_with(PREFIX) && !is_of_kubernetes(name, value))
    }

    /// A string of a file with every `${NAME}` and `${NAME:-default}` replaced; `$${` is `${`. Only names in capitals are variables: `${username}` is for whoever
    /// reads the string later. `None`: there is nothing to replace.
    pub(super) fn expand(&self, text: &str) -> Result<Option<String>, String> {
        if !text.contains("${") {
            return Ok(None);
        }
        let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find("${") {
            let (before, reference) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                expanded.push_str(before);
                expanded.push_str("${");
                rest = &reference[2..];
                continue;
            }
            expanded.push_str(before);
            let Some((name, default, len)) = variable(reference) else {
                expanded.push_str("${");
                rest = &reference[2..];
                continue;
            };
            let value = self.0.get(name).map(String::as_str).or(default);
            expanded.push_str(value.ok_or_else(|| format!("the environment variable {name} is not set"))?);
            rest = &reference[len..];
        }
        expanded.push_str(rest);
        Ok(Some(expanded))
    }
}

/// Name, default and length of the `${NAME}` or `${NAME:-default}` at the beginning of a text.
fn variable(text: &str) -> Option<(&str, Option<&str>, usize)> {
    let inside = &text[2..text.find('}')?];
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && name.chars().all(capital);
    is_name.then_some((name, default, inside.len() + 3))
}

/// Kubernetes tells every container of the services of its namespace, in variables that begin with their names.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let address = value.starts_with("tcp://") || value.starts_with("udp://");
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.contains("_PORT_") && (name.contains("_TCP") || name.contains("_UDP"))
        || name.ends_with("_PORT") && address
}

/// What the variable of that name sets.
///
/// # Errors
/// There is no such key: what it may have been meant to be.
pub(super) fn target(name: &str) -> Result<Target, String> {
    let steps: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    if let Some(path) = resolve(&steps) {
        return Ok(Target { path, in_file: false });
    }
    let (last, sections) = steps.split_last().unwrap_or((&"", &[]));
    if let Some(key) = last.strip_suffix(FILE_SUFFIX) {
        let named: Vec<&str> = sections.iter().copied().chain([key]).collect();
        if let Some(path) = resolve(&named) {
            return Ok(Target { path, in_file: true });
        }
    }
    let names = names();
    let digits_are_0: String = name.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    Err(match suggest::nearest(&digits_are_0, names.iter().map(String::as_str)) {
        Some(known) => format!("no key of the configuration has this name: did you mean {known}?"),
        None => {
            "no key of the configuration has this name; `holdfast config env` lists those that there are".to_owned()
        }
    })
}

fn resolve(steps: &[&str]) -> Option<Vec<Step>> {
    let (mut section, mut path) = (String::new(), Vec::new());
    let mut steps = steps.iter().peekable();
    while let Some(step) = steps.next() {
        if steps.peek().is_none() {
            // A key; a section as a whole is none.
            let (_, keys) = SECTIONS.iter().find(|(name, _)| *name == section)?;
            path.push(Step::Key(keys.iter().find(|key| *key == step)?));
            return Some(path);
        }
        section = if section.is_empty() { (*step).to_owned() } else { format!("{section}.{step}") };
        let (name, _) = SECTIONS.iter().find(|(name, _)| *name == section)?;
        path.push(Step::Key(name.rsplit('.').next().unwrap_or(name)));
        if ARRAYS.contains(name) {
            path.push(Step::Place(steps.next()?.parse().ok().filter(|place| *place < 64)?));
        }
    }
    None
}

/// The names of the variables of all keys; of the first of each array.
pub fn names() -> Vec<String> {
    let of_section = |(section, keys): &(&str, &[&str])| {
        let mut name = PREFIX.to_owned();
        for part in section.split('.') {
            name.push_str(&part.to_ascii_uppercase());
            name.push_str(if ARRAYS.contains(&part) { "__0__" } else { "__" });
        }
        keys.iter().map(|key| format!("{name}{}", key.to_ascii_uppercase())).collect::<Vec<_>>()
    };
    SECTIONS.iter().flat_map(of_section).collect()
}

/// The value of a variable: as TOML reads it, or else the text itself, so that strings need no quotes.
pub(super) fn value(text: &str) -> DeValue<'_> {
    let parsed = DeValue::parse(text).map(toml::Spanned::into_inner);
    match parsed {
        Ok(DeValue::Float(_)) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => DeValue::String(text.into()),
        Ok(DeValue::Datetime(_)) | Err(_) => DeValue::String(text.into()),
        Ok(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_keys() {
        let path = |name: &str| target(name).map(|target| (target.path, target.in_file));
        let key = Step::Key;
        assert_eq!(path("HOLDFAST_MQTT__MAX_INFLIGHT"), Ok((vec![key("mqtt"), key("max_inflight")], false)));
        let listener = vec![key("listener"), Step::Place(3), key("tls"), key("cert")];
        assert_eq!(path("HOLDFAST_LISTENER__3__TLS__CERT"), Ok((listener, false)));
        assert_eq!(path("HOLDFAST_CLUSTER__SECRET_FILE"), Ok((vec![key("cluster"), key("secret_file")], false)));
        assert_eq!(path("HOLDFAST_CLUSTER__NAME_FILE"), Ok((vec![key("cluster"), key("name")], true)));
        for (wrong, meant) in [
            ("HOLDFAST_MQTT_MAX_INFLIGHT", "HOLDFAST_MQTT__MAX_INFLIGHT"),
            ("HOLDFAST_LISTENER__2__BNID", "HOLDFAST_LISTENER__0__BIND"),
            ("HOLDFAST_MQTT__MAX_INFLGHT", "HOLDFAST_MQTT__MAX_INFLIGHT"),
        ] {
            let said = path(wrong).unwrap_err();
            assert!(said.ends_with(&format!("did you mean {meant}?")), "{wrong}: {said}");
        }
        for wrong in ["HOLDFAST_", "HOLDFAST_MQTT", "HOLDFAST_LISTENER__X__BIND", "HOLDFAST_LISTENER__9999__BIND"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_key_has_a_variable() {
        let names = names();
        assert_eq!(names.len(), SECTIONS.iter().map(|(_, keys)| keys.len()).sum::<usize>());
        for name in names {
            assert!(target(&name).is_ok_and(|target| !target.in_file), "{name}");
        }
    }

    #[test]
    fn what_kubernetes_says_is_not_meant() {
        let environment = Environment::of([
            ("HOLDFAST_SERVICE_HOST", "10.0.0.1"),
            ("HOLDFAST_SERVICE_PORT", "1883"),
            ("HOLDFAST_SERVICE_PORT_MQTT", "1883"),
            ("HOLDFAST_PORT", "tcp://10.0.0.1:1883"),
            ("HOLDFAST_PORT_1883_TCP_ADDR", "10.0.0.1"),
            ("HOLDFAST_NODE__NAME", "n1"),
            ("HOLDFAST_NODE__NAM", "n1"),
            ("PATH", "/bin"),
        ]);
        let names: Vec<_> = environment.of_configuration().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOLDFAST_NODE__NAM", "HOLDFAST_NODE__NAME"]);
    }

    #[test]
    fn strings_take_what_variables_hold() {
        let environment = Environment::of([("HOST", "h1"), ("EMPTY", "")]);
        let expanded = |text: &str| environment.expand(text);
        assert_eq!(expanded("no variable $HOST"), Ok(None));
        assert_eq!(expanded("a-${HOST}-b${HOST}").unwrap().as_deref(), Some("a-h1-bh1"));
        assert_eq!(expanded("${EMPTY}${NONE:-x:-y}").unwrap().as_deref(), Some("x:-y"));
        assert_eq!(expanded("$${HOST} ${HOST}").unwrap().as_deref(), Some("${HOST} h1"));
        assert_eq!(expanded("t/${username}/${HOST").unwrap().as_deref(), Some("t/${username}/${HOST"));
        assert_eq!(expanded("${NONE}"), Err("the environment variable NONE is not set".to_owned()));
    }

    #[test]
    fn values_need_no_quotes() {
        assert_eq!(value("2MB").as_str(), Some("2MB"));
        assert_eq!(value("'quoted'").as_str(), Some("quoted"));
        assert_eq!(value("").as_str(), Some(""));
        assert_eq!(value("nan").as_str(), Some("nan"));
        assert_eq!(value("true").as_bool(), Some(true));
        assert!(value("10").is_integer() && value("[1, 2]").is_array() && value("2026-12-01").is_str());
    }
}
