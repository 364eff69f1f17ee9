//! The tree against the definition: every filter in a list, asked one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::topic::{TopicFilter, matches};

fn matching(tree: &FilterTree<u32>, name: &str) -> Vec<u32> {
    let mut found = Vec::new();
    tree.for_each_match(name, |&value| found.push(value));
    found.sort_unstable();
    found
}

fn tree_of(filters: &[&str]) -> FilterTree<u32> {
    let mut tree = FilterTree::new();
    for (value, filter) in (0..).zip(filters) {
        tree.get_or_insert_with(filter, || value);
    }
    tree
}

#[test]
fn multi_level_wildcard_matches_its_parent() {
    let tree = tree_of(&["a/#", "a/b/#", "a/+/#", "#", "+/#", "/#"]);
    assert_eq!(matching(&tree, "a"), [0, 3, 4]);
    assert_eq!(matching(&tree, "a/b"), [0, 1, 2, 3, 4]);
    assert_eq!(matching(&tree, "a/b/c/d"), [0, 1, 2, 3, 4]);
    assert_eq!(matching(&tree, "/"), [3, 4, 5]);
}

#[test]
fn empty_levels_are_levels() {
    let tree = tree_of(&["/", "+/+", "/+", "+/", "//", "+", "a//b", "a/+/b"]);
    assert_eq!(matching(&tree, "/"), [0, 1, 2, 3]);
    assert_eq!(matching(&tree, "//"), [4]);
    assert_eq!(matching(&tree, "a//b"), [6, 7]);
    assert_eq!(matching(&tree, "/a"), [1, 2]);
}

#[test]
fn leading_dollar_hides_from_leading_wildcards_only() {
    let tree = tree_of(&["#", "+/a", "$SYS/#", "$SYS/+", "$SYS/a", "+/#"]);
    assert_eq!(matching(&tree, "$SYS/a"), [2, 3, 4]);
    assert_eq!(matching(&tree, "$SYS"), [2]);
    assert_eq!(matching(&tree, "a/$SYS"), [0, 5]);
}

#[test]
fn removing_every_filter_leaves_no_node_behind() {
    let filters = ["a/b/+", "a/+/c/#", "#", "a/b", "+/b/c/d/e/+", "a/b/+/#"];
    let mut tree = tree_of(&filters);
    for (value, filter) in (0..).zip(filters) {
        assert_eq!(tree.remove(filter), Some(value));
        assert_eq!(tree.remove(filter), None);
    }
    assert!(tree.is_empty());
    assert_eq!((tree.nodes.len(), tree.edges.len()), (1, 0));
}

#[test]
fn the_longest_filter_and_name_do_not_recurse() {
    let deep = "/".repeat(32_000);
    let filters = [format!("{deep}+"), format!("{deep}#"), format!("+{deep}")];
    let mut tree = tree_of(&filters.each_ref().map(String::as_str));
    assert_eq!(matching(&tree, &deep), [0, 1, 2]);
    tree.for_each(|filter, &value| assert_eq!(filter, filters[value as usize]));
    for filter in &filters {
        tree.remove(filter);
    }
    assert_eq!(tree.nodes.len(), 1);
}

#[test]
fn texts_that_are_no_filters_do_no_harm() {
    let mut tree = tree_of(&["a/#/b", "#a", "a+", "", "+a/#"]);
    assert!(matching(&tree, "a/b").is_empty());
    for text in ["a/#/b", "#a", "a+", "", "+a/#"] {
        assert!(tree.remove(text).is_some(), "{text:?}");
    }
    assert_eq!(tree.nodes.len(), 1);
}

/// Few and colliding levels, so that random filters meet random names.
fn level() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("a"), 3 => Just("b"), 1 => Just("ab"), 2 => Just(""), 1 => Just("$SYS"), 1 => Just("$"), 1 => Just("ü"),
        1 => Just("a-level-that-is-longer-than-any-text-stored-in-place")
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..6)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |name| !name.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let levels = prop::collection::vec(prop_oneof![3 => level(), 2 => Just("+")], 0..6);
    (levels, any::<bool>())
        .prop_map(|(mut levels, multi)| {
            levels.extend(multi.then_some("#"));
            levels.join("/")
        })
        .prop_filter("a filter", |filter| TopicFilter::parse(filter).is_ok())
}

#[derive(Debug, Clone)]
enum Step {
    Insert(String),
    Remove(String),
    Ask(String),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![3 => filter().prop_map(Step::Insert), 1 => filter().prop_map(Step::Remove), 2 => name().prop_map(Step::Ask)]
}

proptest! {
    // Enough to meet every mistake that was tried, and short in a debug build.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn agrees_with_the_definition_whatever_comes_and_goes(steps in prop::collection::vec(step(), 1..80)) {
        let mut tree = FilterTree::new();
        let mut list = BTreeMap::new();
        for (value, step) in (0..).zip(steps) {
            match step {
                Step::Insert(filter) => {
                    let in_tree = *tree.get_or_insert_with(&filter, || value);
                    prop_assert_eq!(in_tree, *list.entry(filter).or_insert(value));
                }
                Step::Remove(filter) => prop_assert_eq!(tree.remove(&filter), list.remove(&filter)),
                Step::Ask(name) => {
                    let mut expected: Vec<u32> = list.iter().filter(|(filter, _)| matches(filter, &name)).map(|(_, &value)| value).collect();
                    expected.sort_unstable();
                    prop_assert_eq!(matching(&tree, &name), expected);
                }
            }
            prop_assert_eq!(tree.len(), list.len());
        }
        let mut all = BTreeMap::new();
        tree.for_each(|filter, &value| assert!(all.insert(filter.to_owned(), value).is_none()));
        prop_assert_eq!(&all, &list);
        for (filter, value) in list {
            prop_assert_eq!(tree.get(&filter), Some(&value));
            prop_assert_eq!(tree.get_mut(&filter).copied(), Some(value));
            prop_assert_eq!(tree.remove(&filter), Some(value));
        }
        prop_assert_eq!((tree.nodes.len(), tree.edges.len(), tree.len()), (1, 0, 0));
    }
}
