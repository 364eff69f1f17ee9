//! Who may import whom, and what the pure modules may not name.

use crate::none;
use crate::source::{Source, all};

/// The ranks of the modules of the broker: a module uses lower ranks only.
const RANKS: &[(&str, u32)] = &[
    ("limits", 0),
    ("metrics", 0),
    ("topic", 1),
    ("mqtt", 2),
    ("session", 3),
    ("retained", 3),
    ("cluster", 3),
    ("subscriptions", 4),
    ("access", 4),
    ("config", 4),
    ("journal", 4),
    ("byte_stream", 4),
    ("link", 5),
    ("admission", 5),
    ("shard", 6),
    ("listener", 7),
    ("admin", 7),
    ("node", 8),
    ("cli", 9),
    ("main", 9),
];

/// Folders and files that compute only: no socket, file, clock, task, lock or ambient randomness.
const PURE: &[&str] = &[
    "src/topic/",
    "src/topic.rs",
    "src/mqtt/",
    "src/session/",
    "src/retained/",
    "src/journal/",
    "storage/src/entry.rs",
    "storage/src/items/group.rs",
    "storage/src/items/catalog.rs",
    "src/cluster/",
    "src/link/frame.rs",
    "src/listener/frame_tracker.rs",
    "src/listener/http.rs",
    "src/listener/forwarded.rs",
    "src/listener/proxy_header.rs",
    "src/admission/bucket.rs",
    "raft/src/command.rs",
    "raft/src/state/",
    "raft/src/state.rs",
    "raft/src/standalone.rs",
];

/// What they may not name.
const IMPURE: &[&str] = &[
    "tokio",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime::now",
    "Instant",
    "SystemTime",
    "getrandom",
    "rand::",
    "thread_rng",
    "Mutex",
    "RwLock",
    "OnceLock",
    "LazyLock",
    // The one function of rank 0 with a clock and a lock behind it.
    "admit_line",
    "async fn",
];

fn rank(module: &str) -> Option<u32> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// The top-level module of a file of the broker; `None` for `lib.rs` and for other crates.
fn module(source: &Source) -> Option<String> {
    let first = source.path.strip_prefix("src/")?.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then(|| name.to_owned())
}

/// The top-level modules that a line names as `crate::name` or `crate::{name, …}`; `open` carries a group over lines.
fn imports(line: &str, open: &mut Option<usize>) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        if open.is_some() {
            rest = group(rest, open, &mut found);
        }
        let Some((_, behind)) = rest.split_once("crate::") else {
            return found;
        };
        match behind.strip_prefix('{') {
            Some(inside) => {
                *open = Some(1);
                rest = inside;
            }
            None => {
                found.push(word(behind));
                rest = behind;
            }
        }
    }
}

/// Reads names at the first depth of braces up to their end; returns what is behind it.
fn group<'l>(text: &'l str, open: &mut Option<usize>, found: &mut Vec<String>) -> &'l str {
    let mut depth = open.unwrap_or(0);
    let mut at_name = true;
    for (position, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_name = true,
            ' ' => {}
            _ => {
                if at_name && depth == 1 {
                    found.push(word(&text[position..]));
                }
                at_name = false;
            }
        }
        if depth == 0 {
            *open = None;
            return &text[position + 1..];
        }
    }
    *open = Some(depth);
    ""
}

fn word(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

#[test]
fn modules_import_lower_ranks_only() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|source| !source.is_test()) {
        let Some(own) = module(source) else { continue };
        let Some(own_rank) = rank(&own) else {
            findings.push(format!("{}: the module {own} has no rank", source.path));
            continue;
        };
        let mut open = None;
        for (number, line) in source.code_lines() {
            for other in imports(line, &mut open) {
                // Macros and constants of the crate root have no rank, nor has `self`.
                if let Some(other_rank) = rank(&other).filter(|_| other != own)
                    && other_rank >= own_rank
                {
                    findings.push(format!("{}:{number}: {own} ({own_rank}) uses {other} ({other_rank})", source.path));
                }
            }
        }
    }
    none(findings, "a module uses lower ranks only");
}

#[test]
fn pure_modules_name_nothing_impure() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|source| !source.is_test()) {
        if !PURE.iter().any(|pure| source.path.starts_with(pure)) {
            continue;
        }
        for (number, line) in source.code_lines() {
            findings.extend(
                IMPURE
                    .iter()
                    .filter(|impure| names(line, impure))
                    .map(|impure| format!("{}:{number}: {impure}", source.path)),
            );
        }
    }
    none(findings, "a pure module names no socket, file, clock, task, lock or random source");
}

/// Whether a line has this text as whole words.
fn names(line: &str, text: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(text).any(|(position, _)| {
        let before = line[..position].chars().next_back().is_some_and(is_word);
        let after = line[position + text.len()..].chars().next().is_some_and(is_word);
        !before && (!after || text.ends_with("::"))
    })
}

#[test]
fn imports_are_read_in_all_their_forms() {
    let mut open = None;
    assert_eq!(imports("use crate::mqtt::{QoS, crate_name};", &mut open), ["mqtt"]);
    assert_eq!(imports("use crate::{limits, shard::{a, b}, node::x};", &mut open), ["limits", "shard", "node"]);
    assert_eq!(open, None);
    assert_eq!(imports("use crate::{", &mut open), [""; 0]);
    assert_eq!(imports("    limits, listener::tcp,", &mut open), ["limits", "listener"]);
    assert_eq!(imports("}; let x = crate::topic::validate(y);", &mut open), ["topic"]);
}
