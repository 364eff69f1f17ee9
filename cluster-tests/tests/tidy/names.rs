//! Module docs, names that say nothing, unfinished work, `unsafe` without a reason, and lock files that name no host.

use crate::none;
use crate::source::{Source, all, workspace};

/// Words that say nothing in the name of a type.
const EMPTY_WORDS: &[&str] = &["Manager", "Handler", "Helper", "Util", "Utils", "Context", "Info"];

/// Names that say nothing for a file or folder.
const EMPTY_FILES: &[&str] = &["common", "misc", "util", "utils", "helper", "helpers"];

/// What stands for work that is not done, or for a look at what happens.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!", "TODO", "FIXME", "XXX"];

/// This folder has those words as its business.
fn is_ours(source: &Source) -> bool {
    source.path.starts_with("cluster-tests/tests/tidy/")
}

#[test]
fn every_module_opens_with_its_doc() {
    let findings = all()
        .iter()
        // The program's own three lines.
        .filter(|source| source.path != "src/main.rs" && !source.path.starts_with("fuzz/"))
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path.clone())
        .collect();
    none(findings, "a module opens with what it is, who owns its state, and what to read first");
}

/// The words of a name in camel case.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::<String>::new();
    for character in name.chars() {
        match words.last_mut() {
            Some(word) if !character.is_uppercase() => word.push(character),
            _ => words.push(character.to_string()),
        }
    }
    words
}

#[test]
fn types_have_names_that_say_something() {
    let mut findings = Vec::new();
    for source in all() {
        for (number, line) in source.text.lines().enumerate() {
            let declared = line
                .trim_start()
                .trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub(super) ");
            let name =
                ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|kind| declared.strip_prefix(kind));
            let Some(name) = name else { continue };
            let name: String = name.chars().take_while(|character| character.is_alphanumeric()).collect();
            if words(&name).iter().any(|word| EMPTY_WORDS.contains(&word.as_str())) {
                findings.push(format!("{}:{}: {name}", source.path, number + 1));
            }
        }
    }
    none(findings, "a type says what it is");
}

#[test]
fn files_have_names_that_say_something() {
    let findings = all()
        .iter()
        .filter(|source| source.path.split('/').any(|part| EMPTY_FILES.contains(&part.trim_end_matches(".rs"))))
        .map(|source| source.path.clone())
        .collect();
    none(findings, "a file says what is in it");
}

#[test]
fn nothing_is_unfinished() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|source| !is_ours(source)) {
        for (number, line) in source.text.lines().enumerate() {
            if UNFINISHED.iter().any(|word| line.contains(word)) {
                findings.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    none(findings, "what is in the tree is done");
}

#[test]
fn unsafe_says_why_it_is_sound() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|source| !is_ours(source)) {
        let lines: Vec<_> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split_once("//").map_or(*line, |(code, _)| code);
            let is_unsafe = code.contains("unsafe {") || code.trim_start().starts_with("unsafe impl");
            let said = lines[index.saturating_sub(6)..=index].iter().any(|line| line.contains("SAFETY:"));
            if is_unsafe && !said {
                findings.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    none(findings, "unsafe has a SAFETY comment");
}

#[test]
fn lock_files_name_no_host_of_a_registry() {
    let root = workspace();
    let mut findings = Vec::new();
    let cargo = std::fs::read_to_string(root.join("Cargo.lock")).expect("the workspace has a lock file");
    let index = "registry+https://github.com/rust-lang/crates.io-index";
    let sources = cargo.lines().filter_map(|line| line.strip_prefix("source = \"")?.strip_suffix('"'));
    findings.extend(sources.filter(|source| *source != index).map(|source| format!("Cargo.lock: {source}")));
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
                folders.push(path);
            } else if [
                "package-lock.json",
                "npm-shrinkwrap.json",
                "yarn.lock",
                "pnpm-lock.yaml",
                "uv.lock",
                "poetry.lock",
            ]
            .contains(&name)
            {
                let text = std::fs::read_to_string(&path).expect("a lock file in UTF-8");
                let hosts = text
                    .lines()
                    .filter(|line| line.contains("resolved") || line.contains("registry"))
                    .filter(|line| line.contains("://"));
                findings.extend(hosts.map(|line| format!("{}: {}", path.display(), line.trim())));
            }
        }
    }
    none(findings, "a lock file names packages and checksums, no host");
}
