//! Source files as the rules see them: which crate they belong to, their lines, and which of those are tests.

use std::path::{Path, PathBuf};

/// One Rust source file of the workspace.
pub struct Source {
    /// From the workspace's folder, with `/`.
    pub path: String,
    pub text: String,
}

/// A function as it is printed: its name and the lines from `fn` to its closing brace.
pub struct Function {
    pub name: String,
    pub line: usize,
    pub length: usize,
}

pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// All Rust files of the workspace but those of `target`.
pub fn all() -> Vec<Source> {
    let root = workspace();
    let mut sources = Vec::new();
    for folder in ["src", "raft", "storage", "cluster-tests", "benches", "fuzz", "tests"] {
        walk(&root, &root.join(folder), &mut sources);
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(sources.len() > 20, "the sources were not found");
    sources
}

fn walk(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && name != "corpus" {
            walk(root, &path, sources);
        } else if name.ends_with(".rs") {
            let relative = path.strip_prefix(root).expect("a file below the root");
            let text = std::fs::read_to_string(&path).expect("a source file in UTF-8");
            sources.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}

impl Source {
    /// Whether the whole file is there for tests or measurements only.
    pub fn is_test(&self) -> bool {
        let parts: Vec<_> = self.path.split('/').collect();
        let name = parts.last().copied().unwrap_or_default();
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || parts[..parts.len() - 1].iter().any(|part| ["tests", "benches", "fuzz", "cluster-tests"].contains(part))
    }

    /// The lines, numbered from 1, without the modules that are compiled for tests only.
    pub fn product_lines(&self) -> Vec<(usize, &str)> {
        let mut lines = Vec::new();
        let mut test_until: Option<String> = None;
        let mut attribute = false;
        for (index, line) in self.text.lines().enumerate() {
            let trimmed = line.trim_start();
            if let Some(end) = &test_until {
                if line == end {
                    test_until = None;
                }
            } else if attribute && !trimmed.starts_with('#') {
                attribute = false;
                if line.ends_with('{') {
                    let indent = &line[..line.len() - trimmed.len()];
                    test_until = Some(format!("{indent}}}"));
                }
            } else if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
                attribute = true;
            } else if !attribute {
                lines.push((index + 1, line));
            }
        }
        lines
    }

    /// The lines of code: without tests and without comments.
    pub fn code_lines(&self) -> Vec<(usize, &str)> {
        let lines = self.product_lines().into_iter();
        lines
            .map(|(number, line)| (number, line.split_once("//").map_or(line, |(code, _)| code)))
            .filter(|(_, line)| !line.trim().is_empty())
            .collect()
    }

    /// The functions outside of tests that have more than one line.
    pub fn functions(&self) -> Vec<Function> {
        let lines = self.product_lines();
        let mut functions = Vec::new();
        for (start, (number, line)) in lines.iter().enumerate() {
            let Some(name) = function_name(line).filter(|_| !line.ends_with('}')) else {
                continue;
            };
            let indent: String = line.chars().take_while(|character| *character == ' ').collect();
            let end = lines[start..]
                .iter()
                .take_while(|(_, line)| !line.ends_with(';') || line.starts_with(&format!("{indent} ")));
            let close = format!("{indent}}}");
            if let Some(length) = end.map(|(_, line)| *line).position(|line| line == close) {
                functions.push(Function { name, line: *number, length: length + 1 });
            }
        }
        functions
    }
}

/// The name of the function whose signature begins on this line.
fn function_name(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    for word in ["pub", "(crate) ", "(super) ", " ", "default ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
        if let Some(inside) = rest.strip_prefix("(in ") {
            rest = inside.split_once(") ").map_or(rest, |(_, rest)| rest);
        }
    }
    let rest = rest.strip_prefix("fn ")?;
    Some(rest.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect())
}
