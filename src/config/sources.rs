//! Where a configuration comes from: its file, the files that this one includes, and variables of the environment, as one document.
//!
//! Each source has a stretch of one line of offsets, so that an offset alone says which source it is of, and the rest of the reading knows of one document. Later sources add
//! keys to earlier ones: tables are joined, arrays of tables add up in the order of the files, and a key that two files set is an error that names both places. Only
//! variables replace what is there.
//!
//! [`Sources`] owns the texts. What cannot be read is noted as an error at the place that names it, and the reading goes on.
//!
//! Tests to read first: `include_tests`.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::environment::{self, Environment, Step};
use super::errors::place;
use super::values::expected;

/// Most files that one configuration includes.
const INCLUDED_MAX: usize = 256;

/// A text with a stretch of offsets of its own.
pub(super) struct Source {
    /// The file, as the operator named it; or the name of the variable.
    pub path: PathBuf,
    /// What relative paths in it are relative to.
    pub dir: PathBuf,
    pub text: String,
    /// The offset of its first byte.
    base: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Variable,
    /// A variable whose value is in a file that it names.
    VariableInFile,
}

impl Source {
    pub(super) fn is_variable(&self) -> bool {
        self.kind != Kind::File
    }

    /// Line and column of an offset; a variable has none.
    pub(super) fn place(&self, offset: usize) -> Option<(usize, usize)> {
        (!self.is_variable()).then(|| place(&self.text, offset - self.base))
    }

    /// The offset behind its last byte.
    pub(super) fn end(&self) -> usize {
        self.base + self.text.len()
    }

    /// The text of a stretch of offsets.
    pub(super) fn slice(&self, span: std::ops::Range<usize>) -> &str {
        self.text.get(span.start - self.base..span.end - self.base).unwrap_or_default()
    }

    /// The line at an offset, without its end.
    pub(super) fn line(&self, offset: usize) -> std::ops::Range<usize> {
        let before = self.text.get(..offset - self.base).unwrap_or(&self.text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[start..].find('\n').map_or(self.text.len(), |len| start + len);
        self.base + start..self.base + end
    }
}

/// All sources, in the order in which errors are told.
pub(super) struct Sources {
    all: Vec<Source>,
    /// What is wrong with the sources themselves.
    pub errors: Vec<(usize, String)>,
}

impl Sources {
    /// A file's text alone.
    pub(super) fn of_text(path: &Path, text: String) -> Sources {
        let mut sources = Sources { all: Vec::new(), errors: Vec::new() };
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        sources.push(path.to_owned(), dir, text, Kind::File);
        sources
    }

    /// Adds the files that the first one includes. `read` reads one.
    pub(super) fn include(&mut self, read: &dyn Fn(&Path) -> Result<String, String>) {
        let text = self.all[0].text.clone();
        let (document, _) = DeTable::parse_recoverable(&text);
        let Some(value) = document.get_ref().get("include") else { return };
        let Some(patterns) = value.get_ref().as_array() else {
            let message = expected("a list of files such as [\"conf.d/*.toml\"]", value.get_ref());
            return self.errors.push((value.span().start, format!("include: {message}")));
        };
        let mut paths = Vec::new();
        for pattern in patterns.iter() {
            let found = match pattern.get_ref().as_str() {
                Some(text) => matching(&self.all[0].dir, text),
                None => Err(expected("a file such as \"conf.d/*.toml\"", pattern.get_ref())),
            };
            match found {
                Ok(found) => paths.extend(found.into_iter().map(|path| (path, pattern.span().start))),
                Err(message) => self.errors.push((pattern.span().start, format!("include: {message}"))),
            }
        }
        if paths.len() > INCLUDED_MAX {
            let message = format!("include: these are {} files, and {INCLUDED_MAX} may be", paths.len());
            self.errors.push((value.span().start, message));
            paths.truncate(INCLUDED_MAX);
        }
        for (path, at) in paths {
            self.include_one(path, at, read);
        }
    }

    fn include_one(&mut self, path: PathBuf, at: usize, read: &dyn Fn(&Path) -> Result<String, String>) {
        let same = |other: &Source| match (std::fs::canonicalize(&other.path), std::fs::canonicalize(&path)) {
            (Ok(one), Ok(other)) => one == other,
            _ => other.path == path,
        };
        if self.all.iter().any(same) {
            return self.errors.push((at, format!("include: {} is part of the configuration already", path.display())));
        }
        match read(&path) {
            Ok(text) => {
                let dir = path.parent().map(Path::to_owned).unwrap_or_default();
                self.push(path, dir, text, Kind::File);
            }
            Err(message) => self.errors.push((at, format!("include: {} {message}", path.display()))),
        }
    }

    /// Adds the variables that are meant for the configuration. `read` reads the file that one names.
    pub(super) fn add_variables(&mut self, environment: &Environment, read: &dyn Fn(&Path) -> Result<String, String>) {
        for (name, value) in environment.of_configuration() {
            let (text, kind, wrong) = match environment::target(name) {
                Ok(target) if target.in_file => match read(Path::new(value)) {
                    Ok(text) => (text.trim_end_matches(['\r', '\n']).to_owned(), Kind::VariableInFile, None),
                    Err(message) => (String::new(), Kind::VariableInFile, Some(format!("{value} {message}"))),
                },
                Ok(_) => (value.to_owned(), Kind::Variable, None),
                Err(message) => (value.to_owned(), Kind::Variable, Some(message)),
            };
            self.push(PathBuf::from(name), PathBuf::new(), text, kind);
            let base = self.all.last().map_or(0, |source| source.base);
            self.errors.extend(wrong.map(|message| (base, message)));
        }
    }

    fn push(&mut self, path: PathBuf, dir: PathBuf, text: String, kind: Kind) {
        let base = self.all.last().map_or(0, |last| last.end() + 1);
        self.all.push(Source { path, dir, text, base, kind });
    }

    /// The source that an offset is of.
    pub(super) fn at(&self, offset: usize) -> &Source {
        let behind = self.all.partition_point(|source| source.base <= offset);
        &self.all[behind.max(1) - 1]
    }

    pub(super) fn first(&self) -> &Source {
        &self.all[0]
    }

    /// All sources as one document, and what is wrong: first with the syntax, then with the rest.
    pub(super) fn document(&self, environment: &Environment) -> Document<'_> {
        let mut document = Document { table: DeTable::new(), syntax: Vec::new(), errors: self.errors.clone() };
        for (index, source) in self.all.iter().enumerate() {
            if source.is_variable() {
                document.set(source);
                continue;
            }
            let (table, errors) = DeTable::parse_recoverable(&source.text);
            for error in errors {
                let at = error.span().map_or(source.end(), |span| source.base + span.start);
                document.syntax.push((at, error.message().to_owned()));
            }
            let DeValue::Table(table) = document.placed(DeValue::Table(table.into_inner()), source.base, environment)
            else {
                continue;
            };
            let mut path = String::new();
            document.join(table, index > 0, self, &mut path);
        }
        document
    }
}

/// All sources as one.
pub(super) struct Document<'t> {
    pub table: DeTable<'t>,
    pub syntax: Vec<(usize, String)>,
    pub errors: Vec<(usize, String)>,
}

impl<'t> Document<'t> {
    /// A value with its offsets moved to those of its source, and the variables in its strings replaced.
    fn placed(&mut self, value: DeValue<'t>, base: usize, environment: &Environment) -> DeValue<'t> {
        match value {
            DeValue::Array(array) => {
                let elements = array.into_iter().map(|element| self.placed_at(element, base, environment));
                DeValue::Array(elements.collect::<DeArray<'t>>())
            }
            DeValue::Table(table) => {
                let mut placed = DeTable::new();
                for (key, value) in table {
                    let at = key.span().start + base..key.span().end + base;
                    placed.insert(Spanned::new(at, key.into_inner()), self.placed_at(value, base, environment));
                }
                DeValue::Table(placed)
            }
            other => other,
        }
    }

    fn placed_at(
        &mut self,
        value: Spanned<DeValue<'t>>,
        base: usize,
        environment: &Environment,
    ) -> Spanned<DeValue<'t>> {
        let span = value.span().start + base..value.span().end + base;
        let value = match value.into_inner() {
            DeValue::String(text) => match environment.expand(&text) {
                Ok(expanded) => DeValue::String(expanded.map_or(text, Into::into)),
                Err(message) => {
                    self.errors.push((span.start, message));
                    DeValue::String(text)
                }
            },
            other => self.placed(other, base, environment),
        };
        Spanned::new(span, value)
    }

    fn join(&mut self, table: DeTable<'t>, included: bool, sources: &Sources, path: &mut String) {
        let mut table = table;
        if let Some((key, _)) = table.remove_entry("include").filter(|_| included) {
            let message = "include: a file that is included cannot include others: name them all in the first one";
            self.errors.push((key.span().start, message.to_owned()));
        }
        let mut into = std::mem::take(&mut self.table);
        join_tables(&mut into, table, sources, path, &mut self.errors);
        self.table = into;
    }

    /// Puts in what a variable says, whatever was there.
    fn set(&mut self, source: &'t Source) {
        let Some((name, target)) = source.path.to_str().and_then(|name| Some((name, environment::target(name).ok()?)))
        else {
            return;
        };
        let value = match source.kind {
            Kind::Variable => environment::value(&source.text),
            _ => DeValue::String(source.text.as_str().into()),
        };
        let span = source.base..source.end();
        if put(&mut self.table, &target.path, Spanned::new(span, value)).is_none() {
            let message = format!("{name} cannot be put in: listeners are counted from 0, without a gap");
            self.errors.push((source.base, message));
        }
    }
}

fn join_tables<'t>(
    into: &mut DeTable<'t>,
    from: DeTable<'t>,
    sources: &Sources,
    path: &mut String,
    errors: &mut Vec<(usize, String)>,
) {
    for (key, value) in from {
        let Some(there) = into.get_mut(key.get_ref().as_ref()) else {
            into.insert(key, value);
            continue;
        };
        let before = there.span().start;
        let len = path.len();
        path.push_str(if path.is_empty() { "" } else { "." });
        path.push_str(key.get_ref());
        match (there.get_mut(), value.into_inner()) {
            (DeValue::Table(there), DeValue::Table(more)) => join_tables(there, more, sources, path, errors),
            (DeValue::Array(there), DeValue::Array(more)) if of_tables(there) && of_tables(&more) => {
                more.into_iter().for_each(|element| there.push(element));
            }
            _ => {
                let other = sources.at(before);
                let (line, column) = other.place(before).unwrap_or_default();
                let message = format!("{path} is set already at {}:{line}:{column}", other.path.display());
                errors.push((key.span().start, message));
            }
        }
        path.truncate(len);
    }
}

fn of_tables(array: &DeArray<'_>) -> bool {
    !array.is_empty() && array.iter().all(|element| element.get_ref().is_table())
}

/// Puts a value where the steps lead; tables that are not there are made. `None`: something else is in the way.
fn put<'t>(table: &mut DeTable<'t>, steps: &[Step], value: Spanned<DeValue<'t>>) -> Option<()> {
    let (Step::Key(key), rest) = steps.split_first()? else { return None };
    let span = value.span();
    if rest.is_empty() {
        table.remove(*key);
        table.insert(Spanned::new(span, (*key).into()), value);
        return Some(());
    }
    let is_array = matches!(rest.first(), Some(Step::Place(_)));
    if !table.contains_key(*key) {
        let empty = if is_array { DeValue::Array(DeArray::new()) } else { DeValue::Table(DeTable::new()) };
        table.insert(Spanned::new(span.clone(), (*key).into()), Spanned::new(span.clone(), empty));
    }
    match (table.get_mut(*key)?.get_mut(), rest.first()?) {
        (DeValue::Array(array), Step::Place(place)) => {
            if array.len() == *place {
                array.push(Spanned::new(span, DeValue::Table(DeTable::new())));
            }
            let DeValue::Table(table) = array.get_mut(*place)?.get_mut() else { return None };
            put(table, &rest[1..], value)
        }
        (DeValue::Table(table), Step::Key(_)) => put(table, rest, value),
        _ => None,
    }
}

/// The files that a pattern names, sorted: `*` stands for any characters of a file's name, `?` for one. A pattern with neither names a file that must be there.
fn matching(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let path = dir.join(pattern);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    if pattern.is_empty() || folder.to_string_lossy().contains(['*', '?']) {
        return Err("expected a file such as \"conf.d/*.toml\": only the last part may hold * and ?".to_owned());
    }
    if !name.contains(['*', '?']) {
        return Ok(vec![path]);
    }
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    let entries = match std::fs::read_dir(here) {
        Ok(entries) => entries,
        // An empty folder and none are the same to who has nothing to add.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{} cannot be read: {error}", here.display())),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // What an editor leaves behind, and the ..data of Kubernetes, is hidden from patterns as from a shell.
    let mut names: Vec<String> =
        names.filter(|found| !found.starts_with('.') && matches(name.as_bytes(), found.as_bytes())).collect();
    names.sort();
    Ok(names.into_iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect())
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if matches(rest, name) => true,
        (Some((b'*', _)), Some((_, name))) => matches(pattern, name),
        (Some((b'?', rest)), Some((_, name))) => matches(rest, name),
        (Some((one, rest)), Some((other, name))) if one == other => matches(rest, name),
        _ => false,
    }
}

#[cfg(test)]
#[path = "include_tests.rs"]
mod tests;
