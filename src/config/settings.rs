//! The value of every key and where it comes from, as text: for `holdfast config show`, and for what a reload changes.
//!
//! Keys that nobody gives have their value from `configs/reference.toml`, which a test holds equal to the defaults; so a key is declared nowhere else for this. Values of secrets
//! are never here, only whether they are the same.
//!
//! Tests to read first: `tests::each_value_has_an_origin`.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::Environment;
use super::errors::Origin;
use super::reload_class::{ReloadClass, class_of};
use super::sources::{Kind, Sources};
use super::{Config, SECTIONS};

const REFERENCE: &str = include_str!("../../configs/reference.toml");

/// Keys of `[cluster]` that have no default, though the reference shows them.
const WITHOUT_DEFAULT: &[&str] = &["name", "bind", "secret_file", "tls", "peer_addresses"];

/// What stands in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Full name, such as `listener[0].bind`.
    pub name: String,
    /// The value as TOML writes it; hidden if it is a secret.
    pub value: String,
    /// `None`: it is the default.
    pub origin: Option<Origin>,
    /// Tells one value from another where the value is hidden.
    mark: u64,
}

/// All keys, in the order of the sections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(Vec<Setting>);

/// A key whose value is another one in two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    /// `None`: it was not there.
    pub before: Option<String>,
    /// `None`: it is there no more.
    pub after: Option<String>,
    pub class: ReloadClass,
}

impl Settings {
    pub(super) fn of(table: &DeTable<'_>, sources: &Sources, config: &Config) -> Settings {
        let mut given = BTreeMap::new();
        flatten(table, "", &mut |name, value| {
            let source = sources.at(value.span().start);
            let origin = Origin { path: source.path.clone(), place: source.place(value.span().start) };
            let shown = match (source.is_variable(), value.get_ref().as_str()) {
                (true, Some(text)) => quoted(text),
                _ => one_line(source.slice(value.span())),
            };
            let hidden = source.kind == Kind::VariableInFile;
            given.insert(name.to_owned(), setting(name, shown, Some(origin), hidden));
        });
        for (name, value) in defaults(config) {
            given.entry(name).or_insert_with_key(|name| setting(name, value, None, false));
        }
        let mut all: Vec<Setting> = given.into_values().collect();
        all.sort_by_key(|setting| (section_rank(&setting.name), setting.name.clone()));
        Settings(all)
    }

    /// The keys that differ in `new`, in the order of the sections.
    pub fn changes_to(&self, new: &Settings) -> Vec<Change> {
        let (old, new) = (self.by_name(), new.by_name());
        let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
        let differ = |name: &&str| old.get(name).map(|one| one.mark) != new.get(name).map(|one| one.mark);
        let change = |name: &str| Change {
            name: name.to_owned(),
            before: old.get(name).map(|setting| setting.value.clone()),
            after: new.get(name).map(|setting| setting.value.clone()),
            class: class_of(name),
        };
        let mut changes: Vec<Change> = names.into_iter().filter(differ).map(change).collect();
        changes.sort_by_key(|change| (section_rank(&change.name), change.name.clone()));
        changes
    }

    /// Takes these keys from `new`, and nothing else.
    pub fn adopt(&mut self, new: &Settings, names: &[String]) {
        self.0.retain(|setting| !names.contains(&setting.name));
        self.0.extend(new.0.iter().filter(|setting| names.contains(&setting.name)).cloned());
        self.0.sort_by_key(|setting| (section_rank(&setting.name), setting.name.clone()));
    }

    fn by_name(&self) -> BTreeMap<&str, &Setting> {
        self.0.iter().map(|setting| (setting.name.as_str(), setting)).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }
}

fn setting(name: &str, value: String, origin: Option<Origin>, hidden: bool) -> Setting {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let value = if hidden || is_secret(name) { HIDDEN.to_owned() } else { without_password(value) };
    Setting { name: name.to_owned(), value, origin, mark: hasher.finish() }
}

/// Whether a key holds a secret itself, and not the name of a file that does.
fn is_secret(name: &str) -> bool {
    let key = name.rsplit('.').next().unwrap_or_default();
    let file = key.ends_with("_file") || key.ends_with("_url");
    !file && ["secret", "password", "token", "authorization", "api_key"].iter().any(|word| key.contains(word))
}

/// A URL without the user and password in it.
fn without_password(value: String) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value };
    let authority = rest.find(['/', '"', '\'', '?']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}@{}", &rest[at + 1..]),
        None => value,
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

/// A value that was written on several lines, on one.
fn one_line(text: &str) -> String {
    if text.contains('\n') && !text.contains('#') {
        return text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    text.to_owned()
}

/// Calls `each` with the full name of every value that is neither a table nor a list of tables.
fn flatten<'t>(table: &DeTable<'t>, prefix: &str, each: &mut dyn FnMut(&str, &Spanned<DeValue<'t>>)) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(table) => flatten(table, &name, each),
            DeValue::Array(array) if !array.is_empty() && array.iter().all(|one| one.get_ref().is_table()) => {
                for (index, element) in array.iter().enumerate() {
                    if let Some(table) = element.get_ref().as_table() {
                        flatten(table, &format!("{name}[{index}]"), each);
                    }
                }
            }
            _ => each(&name, value),
        }
    }
}

/// Names and values of the keys that a configuration has by default.
fn defaults(config: &Config) -> BTreeMap<String, String> {
    let mut of_reference = flat(REFERENCE);
    if config.cluster.is_some() {
        of_reference.extend(flat(&cluster_section()));
    }
    let mut defaults: BTreeMap<String, String> =
        of_reference.iter().filter(|(name, _)| !name.starts_with("listener[")).map(clone_pair).collect();
    for (index, listener) in config.listeners.iter().enumerate() {
        let shown = usize::from(listener.is_websocket());
        let prefix = format!("listener[{shown}].");
        for (name, value) in &of_reference {
            if let Some(key) = name.strip_prefix(&prefix) {
                defaults.insert(format!("listener[{index}].{key}"), value.clone());
            }
        }
        let name = |key: &str| format!("listener[{index}].{key}");
        defaults.insert(name("name"), quoted(&listener.name));
        defaults.insert(name("bind"), quoted(&listener.bind.to_string()));
        defaults.insert(name("allow_anonymous"), listener.allow_anonymous.unwrap_or(false).to_string());
    }
    defaults
}

fn clone_pair((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

fn flat(text: &str) -> BTreeMap<String, String> {
    let sources = Sources::of_text(Path::new(""), text.to_owned());
    let mut flat = BTreeMap::new();
    flatten(&sources.document(&Environment::default()).table, "", &mut |name, value| {
        flat.insert(name.to_owned(), one_line(sources.first().slice(value.span())));
    });
    flat
}

/// `[cluster]` of the reference, which is a comment there, with the keys that have a default.
fn cluster_section() -> String {
    let from = REFERENCE.find("\n# [cluster]\n").map_or("", |at| &REFERENCE[at + 1..]);
    let lines = from.lines().take_while(|line| line.starts_with('#')).filter_map(|line| line.strip_prefix("# "));
    let is_default = |line: &&str| match line.split_once(" = ") {
        Some((key, _)) => !WITHOUT_DEFAULT.contains(&key) && key.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
        None => *line == "[cluster]",
    };
    lines.filter(is_default).flat_map(|line| [line, "\n"]).collect()
}

/// Name of the section of a key, such as `listener.tls` for `listener[0].tls.cert`, and of the key in it.
pub(super) fn section_and_key(name: &str) -> (String, String) {
    let plain: String = name.split('[').enumerate().fold(String::new(), |mut plain, (index, part)| {
        plain.push_str(if index == 0 { part } else { part.split_once(']').map_or("", |(_, rest)| rest) });
        plain
    });
    let parts: Vec<&str> = plain.split('.').collect();
    for len in (1..parts.len()).rev() {
        let section = parts[..len].join(".");
        if SECTIONS.iter().any(|(known, _)| *known == section) {
            return (section, parts[len].to_owned());
        }
    }
    (String::new(), plain)
}

fn section_rank(name: &str) -> (usize, String) {
    let (section, _) = section_and_key(name);
    let top = section.split('.').next().unwrap_or_default();
    let place = name.split_once(']').map_or(String::new(), |(place, _)| place.to_owned());
    (SECTIONS.iter().position(|(known, _)| *known == top).map_or(0, |rank| rank + 1), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str, environment: &[(&str, &str)]) -> Settings {
        let environment = Environment::of(environment.iter().copied());
        let mut sources = Sources::of_text(Path::new("a.toml"), text.to_owned());
        sources.add_variables(&environment, &|_| Ok("from a file\n".to_owned()));
        Config::read_sources(&sources, &environment).unwrap_or_else(|errors| panic!("{errors}")).settings
    }

    fn shown(settings: &Settings, name: &str) -> String {
        let setting = settings.iter().find(|setting| setting.name == name).unwrap_or_else(|| panic!("no {name}"));
        let origin = setting.origin.as_ref().map_or("default".to_owned(), ToString::to_string);
        format!("{} {origin}", setting.value)
    }

    #[test]
    fn each_value_has_an_origin() {
        let text = "[mqtt]\nmax_inflight = 7\n[[listener]]\nprotocol = 'ws'\nbind = '127.0.0.1:1'\n";
        let settings = settings(text, &[("HOLDFAST_MQTT__MAX_PACKET_SIZE", "1MB"), ("HOLDFAST_NODE__NAME_FILE", "f")]);
        assert_eq!(shown(&settings, "mqtt.max_inflight"), "7 a.toml:2");
        assert_eq!(shown(&settings, "mqtt.max_packet_size"), "\"1MB\" environment HOLDFAST_MQTT__MAX_PACKET_SIZE");
        assert_eq!(shown(&settings, "node.name"), "(hidden) environment HOLDFAST_NODE__NAME_FILE");
        assert_eq!(shown(&settings, "mqtt.receive_maximum"), "100 default");
        assert_eq!(shown(&settings, "listener[0].max_server_keepalive"), "\"45s\" default");
        assert_eq!(shown(&settings, "listener[0].allow_anonymous"), "true default");
    }

    #[test]
    fn a_cluster_has_the_defaults_of_the_reference() {
        let cluster =
            "[node]\nname = 'n'\n[cluster]\nname = 'c'\nbind = '127.0.0.1:0'\nsecret_file = 's'\nlease = '4s'\n";
        let settings = settings(cluster, &[]);
        assert_eq!(shown(&settings, "cluster.lease"), "'4s' a.toml:7");
        assert_eq!(shown(&settings, "cluster.renew"), "\"500ms\" default");
        assert!(!settings.iter().any(|setting| setting.name.starts_with("cluster.tls")));
    }

    #[test]
    fn secrets_are_hidden_and_their_change_is_seen() {
        let one = setting("auth.http.token", "'a'".to_owned(), None, false);
        let other = setting("auth.http.token", "'b'".to_owned(), None, false);
        assert_eq!((one.value.as_str(), other.value.as_str()), (HIDDEN, HIDDEN));
        assert_eq!(Settings(vec![one]).changes_to(&Settings(vec![other])).len(), 1);
        let url = setting("auth.http.url", "\"http://u:p@h/x\"".to_owned(), None, false);
        assert_eq!(url.value, "\"http://(hidden)@h/x\"");
        assert_eq!(setting("admin.token_file", "'t'".to_owned(), None, false).value, "'t'");
    }

    #[test]
    fn changes_have_the_class_of_their_key_and_are_taken_one_by_one() {
        let mut old = settings("[node]\nname = 'a'\n", &[]);
        let new = settings("[acl]\nno_match = 'allow'\n", &[]);
        let names =
            |changes: &[Change]| changes.iter().map(|change| (change.name.clone(), change.class)).collect::<Vec<_>>();
        let changes = old.changes_to(&new);
        let (name, rule) =
            (("node.name".to_owned(), ReloadClass::Restart), ("acl.no_match".to_owned(), ReloadClass::Now));
        assert_eq!(names(&changes), [name.clone(), rule]);
        assert_eq!((changes[1].before.as_deref(), changes[1].after.as_deref()), (Some("\"deny\""), Some("'allow'")));
        old.adopt(&new, &["acl.no_match".to_owned()]);
        assert_eq!(names(&old.changes_to(&new)), [name], "what was not taken is a change still");
    }

    #[test]
    fn names_are_of_a_section() {
        let of = |name| section_and_key(name);
        assert_eq!(of("listener[0].tls.cert"), ("listener.tls".to_owned(), "cert".to_owned()));
        assert_eq!(of("listener[12].bind"), ("listener".to_owned(), "bind".to_owned()));
        assert_eq!(of("cluster.peer_addresses.n2"), ("cluster".to_owned(), "peer_addresses".to_owned()));
        assert_eq!(of("include"), (String::new(), "include".to_owned()));
    }
}
