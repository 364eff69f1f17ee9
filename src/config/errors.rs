//! What is wrong with a configuration file: all of it, each with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::sources::Sources;

/// One error of a configuration file. Printed as `file:line:column: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as the operator named it; empty when the configuration came from no file.
    pub path: PathBuf,
    /// Line and column, both counted from 1, the column in characters. `None` when the error is of the whole file.
    pub place: Option<(usize, usize)>,
    /// What is wrong and what to do. It may have several lines when it shows lines to paste.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.as_os_str().is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}:", self.path.display())?;
        if let Some((line, column)) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// All errors of a configuration file, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors of all sources, given as offsets. They are put in the order of the sources; the same error at the same place counts once.
    pub(super) fn of_sources(sources: &Sources, mut errors: Vec<(usize, String)>) -> ConfigErrors {
        errors.sort();
        errors.dedup();
        let lift = |(offset, message)| {
            let source = sources.at(offset);
            ConfigError { path: source.path.clone(), place: source.place(offset), message }
        };
        ConfigErrors(errors.into_iter().map(lift).collect())
    }

    /// One error of the file as a whole, such as one that cannot be opened.
    pub(super) fn whole_file(path: &Path, message: String) -> ConfigErrors {
        ConfigErrors(vec![ConfigError { path: path.to_owned(), place: None, message }])
    }

    /// One error right behind the part of a file that could be read as text.
    pub(super) fn at_end_of(path: &Path, text: &str, message: String) -> ConfigErrors {
        ConfigErrors(vec![ConfigError { path: path.to_owned(), place: Some(place(text, text.len())), message }])
    }

    /// The first error, to be put behind the name of the file.
    pub(super) fn without_path(&self, path: &Path) -> String {
        let text = self.0[0].to_string();
        text.strip_prefix(&format!("{}: ", path.display())).map(str::to_owned).unwrap_or(text)
    }

    /// The errors, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// How many there are: at least one.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Where the keys stand, for whoever finds out later that a value cannot be used, such as a path of no file.
#[derive(Debug, Clone, Default)]
pub struct Places {
    path: PathBuf,
    /// By full name, such as `listener[0].bind`.
    values: BTreeMap<String, Origin>,
}

/// The file, or the variable, that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file, or the name of the variable.
    pub path: PathBuf,
    /// Line and column in the file; a variable has none.
    pub place: Option<(usize, usize)>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, _)) => write!(f, "{}:{line}", self.path.display()),
            None => write!(f, "environment {}", self.path.display()),
        }
    }
}

impl Places {
    /// The places of keys, given as offsets.
    pub(super) fn of_sources(sources: &Sources, offsets: impl Iterator<Item = (String, usize)>) -> Places {
        let origin = |offset| {
            let source = sources.at(offset);
            Origin { path: source.path.clone(), place: source.place(offset) }
        };
        let values = offsets.map(|(name, offset)| (name, origin(offset))).collect();
        Places { path: sources.first().path.clone(), values }
    }

    /// An error at the value of a key, by its full name; at its section when nobody gives the key, and of the file as a whole when
    /// nobody gives the section either.
    pub fn error_at(&self, key: &str, message: String) -> ConfigError {
        let mut name = key;
        let origin = loop {
            match (self.values.get(name), name.rfind(['.', '['])) {
                (Some(origin), _) => break Some(origin),
                (None, Some(cut)) => name = &name[..cut],
                (None, None) => break None,
            }
        };
        let (path, place) = origin.map_or((&self.path, None), |origin| (&origin.path, origin.place));
        ConfigError { path: path.clone(), place, message }
    }
}

/// Line and column, counted from 1, of a byte offset; the column in characters, as editors count.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        assert_eq!(place("", 0), (1, 1));
        assert_eq!(place("ab\ncd", 0), (1, 1));
        assert_eq!(place("ab\ncd", 3), (2, 1));
        assert_eq!(place("ab\ncd", 5), (2, 3));
        assert_eq!(place("ä = ö", 3), (1, 3));
        assert_eq!(place("ab", 99), (1, 3), "an offset behind the text is its end");
    }
}
