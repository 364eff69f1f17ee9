//! How long functions and files may be.

use std::collections::BTreeMap;

use crate::none;
use crate::source::all;

/// No function is longer, in lines from `fn` to its brace, and no file, without its tests.
const FUNCTION_MAX: usize = 70;
const FILE_MAX: usize = 700;

/// Nine functions in ten stay below this.
const FUNCTION_AIM: usize = 35;

/// Functions that are longer, as `path::function`, with a reason. May only shrink.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Files that are longer, with a reason. May only shrink.
const LONG_FILES: &[(&str, &str)] = &[];

/// Findings: what is too long and not in the list, and what is in the list and not too long.
fn judge(too_long: &BTreeMap<String, usize>, exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut findings: Vec<_> = too_long
        .iter()
        .filter(|(name, _)| !exceptions.iter().any(|(there, _)| there == name))
        .map(|(name, length)| format!("{name}: {length} lines"))
        .collect();
    findings.extend(
        exceptions
            .iter()
            .filter(|(name, _)| !too_long.contains_key(*name))
            .map(|(name, _)| format!("{name} is no exception any more: take it off the list")),
    );
    findings
}

#[test]
fn functions_are_short() {
    let mut too_long = BTreeMap::new();
    let mut lengths = Vec::new();
    for source in all().iter().filter(|source| !source.is_test()) {
        for function in source.functions() {
            lengths.push(function.length);
            if function.length > FUNCTION_MAX {
                too_long.insert(format!("{}::{}", source.path, function.name), function.length);
            }
        }
    }
    none(judge(&too_long, LONG_FUNCTIONS), "a function has 70 lines at the most");
    let short = lengths.iter().filter(|length| **length <= FUNCTION_AIM).count();
    assert!(
        short * 10 >= lengths.len() * 9,
        "only {short} of {} functions have {FUNCTION_AIM} lines or fewer",
        lengths.len()
    );
}

#[test]
fn functions_of_tests_are_short_too() {
    let mut findings = Vec::new();
    for source in all().iter().filter(|source| source.path.starts_with("cluster-tests/")) {
        for function in source.functions().iter().filter(|function| function.length > FUNCTION_MAX) {
            findings
                .push(format!("{}:{}: {} has {} lines", source.path, function.line, function.name, function.length));
        }
    }
    none(findings, "a function has 70 lines at the most");
}

#[test]
fn files_are_short() {
    let mut too_long = BTreeMap::new();
    for source in all().iter().filter(|source| !source.is_test()) {
        let length = source.product_lines().len();
        if length > FILE_MAX {
            too_long.insert(source.path.clone(), length);
        }
    }
    none(judge(&too_long, LONG_FILES), "a file has 700 lines at the most, without tests");
}
