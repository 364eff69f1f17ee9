//! `CONFORMANCE.md` and the tests say the same: no statement of MQTT 5.0 is missing, each test it names exists, each test is named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The statements of Appendix B of MQTT 5.0: section, first and last number.
const STATEMENTS: &[(&str, u32, u32)] = &[
    ("1.5.4", 1, 3),
    ("1.5.5", 1, 1),
    ("1.5.7", 1, 1),
    ("2.1.3", 1, 1),
    ("2.2.1", 2, 6),
    ("2.2.2", 1, 1),
    ("3.1.0", 1, 2),
    ("3.1.2", 1, 30),
    ("3.1.3", 1, 12),
    ("3.1.4", 1, 6),
    ("3.2.0", 1, 2),
    ("3.2.2", 1, 22),
    ("3.3.1", 1, 13),
    ("3.3.2", 1, 20),
    ("3.3.4", 1, 10),
    ("3.4.2", 1, 3),
    ("3.5.2", 1, 3),
    ("3.6.1", 1, 1),
    ("3.6.2", 1, 3),
    ("3.7.2", 1, 3),
    ("3.8.1", 1, 1),
    ("3.8.3", 1, 5),
    ("3.8.4", 1, 8),
    ("3.9.2", 1, 2),
    ("3.9.3", 1, 2),
    ("3.10.1", 1, 1),
    ("3.10.3", 1, 2),
    ("3.10.4", 1, 6),
    ("3.11.2", 1, 2),
    ("3.11.3", 1, 2),
    ("3.12.4", 1, 1),
    ("3.14.0", 1, 1),
    ("3.14.1", 1, 1),
    ("3.14.2", 1, 4),
    ("3.14.4", 1, 3),
    ("3.15.1", 1, 1),
    ("3.15.2", 1, 3),
    ("4.1.0", 1, 2),
    ("4.2.0", 1, 1),
    ("4.3.1", 1, 1),
    ("4.3.2", 1, 5),
    ("4.3.3", 1, 13),
    ("4.4.0", 1, 2),
    ("4.5.0", 1, 2),
    ("4.6.0", 1, 6),
    ("4.7.0", 1, 1),
    ("4.7.1", 1, 2),
    ("4.7.2", 1, 1),
    ("4.7.3", 1, 4),
    ("4.8.2", 1, 6),
    ("4.9.0", 1, 3),
    ("4.12.0", 1, 7),
    ("4.12.1", 1, 2),
    ("4.13.1", 1, 1),
    ("4.13.2", 1, 1),
    ("6.0.0", 1, 4),
];

/// A row of a table in `CONFORMANCE.md`.
struct Row {
    /// The heading above it.
    chapter: String,
    cells: Vec<String>,
}

impl Row {
    /// The names between backticks in the last cell that look like tests.
    fn tests(&self) -> Vec<String> {
        let last = self.cells.last().map_or("", String::as_str);
        last.split('`').skip(1).step_by(2).filter(|name| name.contains("::mqtt")).map(str::to_owned).collect()
    }
}

fn rows() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CONFORMANCE.md");
    let text = std::fs::read_to_string(path).expect("the table is in the repository");
    let mut chapter = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            chapter = heading.to_owned();
        } else if let Some(inner) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) {
            let cells = inner.split(" | ").map(str::to_owned).collect();
            rows.push(Row { chapter: chapter.clone(), cells });
        }
    }
    rows
}

/// The names of all tests, as `module::function`.
fn tests() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut tests = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the folder of this file") {
        let path = entry.expect("a readable folder").path();
        let module = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8").to_owned();
        let text = std::fs::read_to_string(&path).expect("a source file");
        for line in text.lines() {
            let function = line.strip_prefix("fn mqtt").and_then(|rest| rest.split_once('('));
            if let Some((rest, _)) = function {
                tests.insert(format!("{module}::mqtt{rest}"));
            }
        }
    }
    tests
}

#[test]
fn every_statement_of_5_0_is_in_the_table_once() {
    let expected: Vec<String> = STATEMENTS
        .iter()
        .flat_map(|(section, first, last)| (*first..=*last).map(move |number| format!("MQTT-{section}-{number}")))
        .collect();
    let there: Vec<String> = rows()
        .into_iter()
        .filter(|row| row.chapter == "MQTT 5.0")
        .map(|row| row.cells[0].clone())
        .filter(|cell| cell.starts_with("MQTT-"))
        .collect();
    assert_eq!(there, expected);
}

#[test]
fn every_row_has_a_test_or_a_reason() {
    for row in rows().iter().filter(|row| row.cells[0].starts_with("MQTT-")) {
        let reason = row.cells[2].strip_prefix("none: ").is_some_and(|reason| reason.len() > 10);
        assert!(reason == row.tests().is_empty(), "{:?}", row.cells);
    }
}

#[test]
fn the_tests_of_the_table_are_the_tests_that_exist() {
    let named: BTreeSet<String> = rows().iter().flat_map(Row::tests).collect();
    let existing = tests();
    let missing: Vec<_> = named.difference(&existing).collect();
    let unnamed: Vec<_> = existing.difference(&named).collect();
    assert!(missing.is_empty() && unnamed.is_empty(), "not there: {missing:#?}\nnot in the table: {unnamed:#?}");
}

#[test]
fn a_test_is_in_the_row_of_its_number() {
    let mut numbers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows().iter().filter(|row| row.cells[0].starts_with("MQTT-")) {
        let prefix = if row.chapter.starts_with("MQTT 3.1.1") { "mqtt311" } else { "mqtt" };
        let number = row.cells[0]["MQTT-".len()..].replace(['.', '-'], "_");
        numbers.entry(format!("{prefix}_{number}_")).or_default().extend(row.tests());
    }
    for test in tests() {
        let name = test.split("::").nth(1).expect("a module and a function");
        if name.starts_with("mqtt_section_") || name.starts_with("mqtt31_") {
            continue;
        }
        let row = numbers.iter().find(|(number, _)| name.starts_with(number.as_str()));
        let (_, named) = row.unwrap_or_else(|| panic!("{test} carries no number of the table"));
        assert!(named.contains(&test), "{test} is not in its row");
    }
}
