//! One pass over a parsed configuration: typed reads of keys, with every error noted and the place of every key remembered.
//!
//! A read never fails: what cannot be read is noted as an error and the default stands in its place, so that the pass goes on to
//! the next error. [`Reading::finish`] then refuses the whole. The caller owns the [`Reading`]; sections borrow it in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::sources::Sources;
use super::values::{self, expected};
use super::{ConfigErrors, Places, suggest};

/// The errors found so far, and where the keys stand.
pub(super) struct Reading<'t> {
    sources: &'t Sources,
    /// Byte offset and message.
    errors: Vec<(usize, String)>,
    /// Where the parser stumbled, in whole lines: what else is wrong there follows from that.
    broken: Vec<Range<usize>>,
    /// By full name, such as `listener[0].bind`: where the value of the key stands, and whether it could be read.
    places: BTreeMap<String, Place>,
    /// Full names of the sections with keys that nobody knows.
    misspelt: BTreeSet<String>,
}

struct Place {
    offset: usize,
    good: bool,
}

impl<'t> Reading<'t> {
    /// With the errors that were found before a key was read.
    pub(super) fn new(sources: &'t Sources, errors: Vec<(usize, String)>) -> Self {
        Reading { sources, errors, broken: Vec::new(), places: BTreeMap::new(), misspelt: BTreeSet::new() }
    }

    pub(super) fn syntax_error(&mut self, offset: usize, message: String) {
        // A parser that has lost its way reports one slip several times.
        if self.is_broken(offset) {
            return;
        }
        self.errors.push((offset, message));
        let source = self.sources.at(offset);
        let line = source.line(offset);
        // The keys under a broken header belong to no section, up to the next header.
        let next_header =
            source.slice(line.end..source.end()).find("\n[").map_or(source.end(), |len| line.end + len + 1);
        let end = if source.slice(line.clone()).trim_start().starts_with('[') { next_header } else { line.end + 1 };
        self.broken.push(line.start..end);
    }

    fn is_broken(&self, offset: usize) -> bool {
        self.broken.iter().any(|range| range.contains(&offset))
    }

    fn error(&mut self, offset: usize, message: impl Into<String>) {
        if !self.is_broken(offset) {
            self.errors.push((offset, message.into()));
        }
    }

    /// The file's top level as a section without a name.
    pub(super) fn top<'r>(&'r mut self, table: &'r DeTable<'t>, keys: &'static [&'static str]) -> Section<'r, 't> {
        Section::open(self, table, String::new(), 0, keys)
    }

    /// Whether every one of these keys was either read well or is absent: only then may they be compared.
    pub(super) fn good(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| self.places.get(*key).is_none_or(|place| place.good))
    }

    /// Whether the file itself gives this key.
    pub(super) fn given(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// A path relative to the file, as somebody has to write it who is where this program is.
    pub(super) fn beside(&self, path: &str) -> PathBuf {
        self.sources.first().dir.join(path)
    }

    /// Notes an error at the value of `key`; if the file does not give it, at its section; else at the start of the file.
    pub(super) fn error_at(&mut self, key: &str, message: impl Into<String>) {
        let mut name = key;
        let place = loop {
            if let Some(place) = self.places.get(name) {
                break place.offset;
            }
            match name.rfind(['.', '[']) {
                Some(cut) => name = &name[..cut],
                None => break 0,
            }
        };
        self.error(place, message);
    }

    /// Whether no name stands in this section, perhaps only because its key is misspelt: then the name is nobody's choice.
    pub(super) fn may_have_lost_its_name(&self, section: &str) -> bool {
        !self.given(&format!("{section}.name")) && self.misspelt.contains(section)
    }

    /// The value and where its keys stand if there were no errors, all the errors if there were any.
    pub(super) fn finish<T>(self, value: T) -> Result<(T, Places), ConfigErrors> {
        if self.errors.is_empty() {
            let offsets = self.places.into_iter().map(|(name, place)| (name, place.offset));
            return Ok((value, Places::of_sources(self.sources, offsets)));
        }
        Err(ConfigErrors::of_sources(self.sources, self.errors))
    }
}

/// One table of the file, and the keys that it may hold.
pub(super) struct Section<'r, 't> {
    reading: &'r mut Reading<'t>,
    table: &'r DeTable<'t>,
    /// Full name, such as `listener[0]`; empty for the top level.
    name: String,
    keys: &'static [&'static str],
}

impl<'r, 't> Section<'r, 't> {
    fn open(
        reading: &'r mut Reading<'t>,
        table: &'r DeTable<'t>,
        name: String,
        offset: usize,
        keys: &'static [&'static str],
    ) -> Self {
        reading.places.insert(name.clone(), Place { offset, good: true });
        let mut section = Section { reading, table, name, keys };
        section.refuse_unknown_keys();
        section
    }

    fn refuse_unknown_keys(&mut self) {
        for key in self.table.keys() {
            if !self.keys.contains(&key.get_ref().as_ref()) {
                let message = suggest::unknown_key(&self.name, key.get_ref(), self.keys);
                self.reading.error(key.span().start, message);
                self.reading.misspelt.insert(self.name.clone());
            }
        }
    }

    /// Full name of a key of this section, as `rules` ask for it.
    pub(super) fn full_name(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// Notes an error at a key of this section.
    pub(super) fn error_at(&mut self, key: &str, message: impl Into<String>) {
        let name = self.full_name(key);
        self.reading.error_at(&name, message);
    }

    pub(super) fn given(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes that `key` should not stand in this table at all.
    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        if let Some((key, _)) = self.table.get_key_value(key) {
            self.reading.error(key.span().start, message);
        }
    }

    fn value(&self, key: &'static str) -> Option<&'r Spanned<DeValue<'t>>> {
        debug_assert!(self.keys.contains(&key), "{key} is read but not listed");
        self.table.get(key)
    }

    /// The value of `key` as `parse` reads it, or `None` if it is absent or wrong. `parse` says what it expected.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&DeValue<'t>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let offset = value.span().start;
        let name = self.full_name(key);
        let source = self.reading.sources.at(offset);
        let parsed = parse(value.get_ref()).or_else(|message| {
            // Nobody puts quotes around the value of a variable, so 10 may be a string too.
            let text = (source.is_variable() && !value.get_ref().is_str()).then_some(source.text.as_str());
            text.and_then(|text| parse(&DeValue::String(text.into())).ok()).ok_or(message)
        });
        match parsed {
            Ok(parsed) => {
                self.reading.places.insert(name, Place { offset, good: true });
                Some(parsed)
            }
            Err(message) => {
                self.reading.places.insert(name, Place { offset, good: false });
                self.reading.error(offset, format!("{key}: {message}"));
                None
            }
        }
    }

    pub(super) fn bool(&mut self, key: &'static str, default: bool) -> bool {
        self.optional(key, values::parse_bool).unwrap_or(default)
    }

    pub(super) fn optional_bool(&mut self, key: &'static str) -> Option<bool> {
        self.optional(key, values::parse_bool)
    }

    /// A whole number within bounds.
    pub(super) fn integer<T>(&mut self, key: &'static str, default: T, bounds: RangeInclusive<T>) -> T
    where
        T: Copy + PartialOrd + std::fmt::Display + TryFrom<u64>,
    {
        self.optional(key, |value| values::integer_within(value, &bounds)).unwrap_or(default)
    }

    /// A size in bytes: a whole number, or a string with a unit.
    pub(super) fn size<T>(&mut self, key: &'static str, default: T, bounds: RangeInclusive<T>) -> T
    where
        T: Copy + PartialOrd + std::fmt::Display + TryFrom<u64>,
    {
        self.optional(key, |value| values::size_within(value, &bounds)).unwrap_or(default)
    }

    pub(super) fn float(&mut self, key: &'static str, default: f64, bounds: RangeInclusive<f64>) -> f64 {
        self.optional(key, |value| values::float_within(value, &bounds)).unwrap_or(default)
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        bounds: RangeInclusive<Duration>,
    ) -> Duration {
        self.optional(key, |value| values::duration_within(value, &bounds)).unwrap_or(default)
    }

    /// A duration, or the word that stands for `meaning`.
    pub(super) fn duration_or(
        &mut self,
        key: &'static str,
        default: Duration,
        bounds: RangeInclusive<Duration>,
        (word, meaning): (&str, Duration),
    ) -> Duration {
        let parse = |value: &DeValue<'t>| match value.as_str() {
            Some(text) if text == word => Ok(meaning),
            _ => values::duration_within(value, &bounds).map_err(|message| format!("{message}, or \"{word}\"")),
        };
        self.optional(key, parse).unwrap_or(default)
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, default: T, choices: &[(&'static str, T)]) -> T {
        self.optional(key, |value| values::parse_choice(value, choices)).unwrap_or(default)
    }

    /// A string that is not empty.
    pub(super) fn text(&mut self, key: &'static str, bytes_max: usize) -> Option<String> {
        self.optional(key, |value| values::parse_text(value, bytes_max))
    }

    /// A path, relative to the folder of the file that says it; in a variable, to the folder that the program is in.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let sources = self.reading.sources;
        let dir = self.value(key).map(|value| sources.at(value.span().start).dir.as_path()).unwrap_or(Path::new(""));
        self.optional(key, |value| values::parse_path(value, dir))
    }

    /// A list that is neither empty nor longer than `len_max`, each of whose elements `parse` reads. Every wrong element is an error of its own.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        len_max: usize,
        parse: impl Fn(&DeValue<'t>) -> Result<T, String>,
    ) -> Vec<T> {
        let Some(elements) = self.value(key).and_then(|value| value.get_ref().as_array()) else {
            self.optional(key, |value| Err::<(), _>(expected("a list", value)));
            return default;
        };
        if elements.is_empty() || elements.len() > len_max {
            self.optional(key, |_| Err::<(), _>(format!("must have from 1 to {len_max} elements")));
            return default;
        }
        let mut parsed = Vec::with_capacity(elements.len());
        let mut errors = Vec::new();
        for element in elements.iter() {
            match parse(element.get_ref()) {
                Ok(element) => parsed.push(element),
                Err(message) => errors.push((element.span().start, format!("{key}: {message}"))),
            }
        }
        let offset = self.value(key).map_or(0, |value| value.span().start);
        let name = self.full_name(key);
        self.reading.places.insert(name, Place { offset, good: errors.is_empty() });
        for (offset, message) in errors {
            self.reading.error(offset, message);
        }
        parsed
    }

    /// A table within this one, as `read` reads it.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        keys: &'static [&'static str],
        read: impl FnOnce(&mut Section<'_, 't>) -> T,
    ) -> Option<T> {
        let value = self.value(key)?;
        let offset = value.span().start;
        let name = self.full_name(key);
        match value.get_ref() {
            DeValue::Table(table) => Some(read(&mut Section::open(self.reading, table, name, offset, keys))),
            DeValue::Array(_) if self.name.is_empty() => {
                self.reading.error(offset, format!("there is one [{key}] only: write it with single brackets"));
                None
            }
            other => {
                self.reading.error(offset, format!("{key}: {}", expected("a table", other)));
                None
            }
        }
    }

    /// A table whose keys are names of something, at most `len_max`, each of whose values `parse` reads. Empty if it is absent.
    pub(super) fn map<T>(
        &mut self,
        key: &'static str,
        len_max: usize,
        parse: impl Fn(&DeValue<'t>) -> Result<T, String>,
    ) -> BTreeMap<String, T> {
        let mut parsed = BTreeMap::new();
        let Some(table) = self.value(key).and_then(|value| value.get_ref().as_table()) else {
            self.optional(key, |value| Err::<(), _>(expected("a table", value)));
            return parsed;
        };
        if table.len() > len_max {
            self.optional(key, |_| Err::<(), _>(format!("must have {len_max} keys at the most")));
            return parsed;
        }
        for (name, value) in table.iter() {
            match parse(value.get_ref()) {
                Ok(value) => {
                    parsed.insert(name.get_ref().to_string(), value);
                }
                Err(message) => self.reading.error(value.span().start, format!("{key}: {message}")),
            }
        }
        parsed
    }

    /// The tables of an array of tables, or `None` if there are none: absent, or not that.
    pub(super) fn sections<T>(
        &mut self,
        key: &'static str,
        keys: &'static [&'static str],
        read: impl Fn(&mut Section<'_, 't>) -> T,
    ) -> Option<Vec<T>> {
        let value = self.value(key)?;
        let Some(tables) = value.get_ref().as_array().filter(|tables| !tables.is_empty()) else {
            let message = format!("{key}: write each one as a table of its own, under [[{key}]]");
            self.reading.error(value.span().start, message);
            return None;
        };
        let mut all = Vec::with_capacity(tables.len());
        for (index, table) in tables.iter().enumerate() {
            let offset = table.span().start;
            match table.get_ref().as_table() {
                Some(fields) => {
                    let name = format!("{key}[{index}]");
                    all.push(read(&mut Section::open(self.reading, fields, name, offset, keys)));
                }
                None => self.reading.error(offset, format!("{key}: {}", expected("a table", table.get_ref()))),
            }
        }
        Some(all)
    }
}
