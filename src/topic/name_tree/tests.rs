//! The scan against the definition: every name of a sorted list, asked one by one.

use proptest::prelude::*;

use super::*;
use crate::topic::{TopicFilter, matches};

fn tree_of(names: &[&str]) -> NameTree<()> {
    let mut tree = NameTree::new();
    for &name in names {
        tree.insert(name.into(), ());
    }
    tree
}

fn matching(tree: &NameTree<()>, filter: &str) -> Vec<String> {
    tree.scan(filter, None, usize::MAX).map(|(name, ())| name.to_string()).collect()
}

#[test]
fn what_lies_below_a_level_is_together_and_behind_it() {
    let tree = tree_of(&["a-b", "a/b/c", "a", "a/b", "a!", "a/", "a\u{1}", "b"]);
    let order: Vec<_> = tree.iter().map(|(name, ())| name.as_ref()).collect();
    assert_eq!(order, ["a", "a/", "a/b", "a/b/c", "a\u{1}", "a!", "a-b", "b"]);
    assert_eq!(matching(&tree, "a/#"), ["a", "a/", "a/b", "a/b/c"]);
    assert_eq!(matching(&tree, "+"), ["a", "a\u{1}", "a!", "a-b", "b"]);
}

#[test]
fn names_with_a_leading_dollar_are_skipped_by_leading_wildcards() {
    let tree = tree_of(&["!", "$SYS/a", "$SYS/b", "$", "%", "a/$SYS"]);
    assert_eq!(matching(&tree, "#"), ["!", "%", "a/$SYS"]);
    assert_eq!(matching(&tree, "+/#"), ["!", "%", "a/$SYS"]);
    assert_eq!(matching(&tree, "$SYS/+"), ["$SYS/a", "$SYS/b"]);
    assert_eq!(matching(&tree, "$SYS/#"), ["$SYS/a", "$SYS/b"]);
}

#[test]
fn nothing_below_a_level_that_cannot_match_is_examined() {
    let mut tree = NameTree::new();
    for device in 0..100 {
        for value in 0..100 {
            tree.insert(format!("d{device}/sensor/{value}").into(), ());
        }
        tree.insert(format!("d{device}/status").into(), ());
    }
    // Per device: perhaps the first sensor, those stepped over, and the status itself.
    let mut scan = tree.scan("+/status", None, 1_000);
    assert_eq!(scan.by_ref().count(), 100);
    assert_eq!(scan.resume(), None);
    let mut scan = tree.scan("d50/sensor/7", None, 1);
    assert_eq!(scan.by_ref().count(), 1);
}

#[test]
fn a_used_up_budget_is_told_from_the_end() {
    let tree = tree_of(&["a/1", "a/2", "a/3", "b"]);
    let mut scan = tree.scan("a/+", None, 2);
    assert_eq!(scan.by_ref().count(), 2);
    assert_eq!(scan.resume().map(AsRef::as_ref), Some("a/2"));
    let mut scan = tree.scan("a/+", Some("a/2"), 2);
    assert_eq!(scan.by_ref().map(|(name, ())| name.as_ref()).collect::<Vec<_>>(), ["a/3"]);
    let after = scan.resume().map(AsRef::as_ref);
    assert_eq!(after, None);
    assert_eq!(scan.next(), None, "an ended scan stays so");
}

#[test]
fn a_replaced_value_keeps_its_place() {
    let mut tree = NameTree::new();
    assert_eq!(tree.insert("a".into(), 1), None);
    assert_eq!(tree.insert("a".into(), 2), Some(1));
    assert_eq!((tree.get("a"), tree.len()), (Some(&2), 1));
    assert_eq!(tree.remove("a"), Some(2));
    assert_eq!(tree.remove("a"), None);
    assert!(tree.is_empty());
}

fn level() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("a"), 4 => Just("b"), 1 => Just("ab"), 1 => Just("a-"), 1 => Just("a0"), 2 => Just(""), 1 => Just("$SYS"),
        1 => Just("$"), 1 => Just("\u{1}"), 1 => Just("!"), 1 => Just("%"), 1 => Just("ü"), 1 => Just("\u{10FFFF}")
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |name| !name.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let levels = prop::collection::vec(prop_oneof![1 => level(), 1 => Just("+")], 0..5);
    (levels, any::<bool>())
        .prop_map(|(mut levels, multi)| {
            levels.extend(multi.then_some("#"));
            levels.join("/")
        })
        .prop_filter("a filter", |filter| TopicFilter::parse(filter).is_ok())
}

/// The order in other words: level by level, a shorter name first.
fn by_levels(name: &str) -> Vec<&str> {
    name.split('/').collect()
}

proptest! {
    // Enough to meet every mistake that was tried, and short in a debug build.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn finds_what_the_definition_finds_in_order(names in prop::collection::vec(name(), 0..60), filters in prop::collection::vec(filter(), 1..8)) {
        let tree = tree_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut sorted = names;
        sorted.sort_by(|left, right| by_levels(left).cmp(&by_levels(right)));
        sorted.dedup();
        let order: Vec<&str> = tree.iter().map(|(name, ())| name.as_ref()).collect();
        prop_assert_eq!(&order, &sorted);
        for filter in &filters {
            sorted.iter().for_each(|name| assert_eq!(tree.get(name), Some(&())));
            let expected: Vec<String> = sorted.iter().filter(|name| matches(filter, name)).cloned().collect();
            prop_assert_eq!(matching(&tree, filter), expected, "{}", filter);
        }
    }

    #[test]
    fn holds_what_was_put_in_and_not_taken_out(steps in prop::collection::vec((name(), any::<bool>()), 1..60)) {
        let (mut tree, mut map) = (NameTree::new(), BTreeMap::new());
        for (value, (name, insert)) in (0..).zip(steps) {
            if insert {
                prop_assert_eq!(tree.insert(name.as_str().into(), value), map.insert(name, value));
            } else {
                prop_assert_eq!(tree.remove(&name), map.remove(&name));
            }
            prop_assert_eq!((tree.len(), tree.by_name.len(), tree.order.len()), (map.len(), map.len(), map.len()));
        }
        let held: BTreeMap<String, i32> = tree.iter().map(|(name, &value)| (name.to_string(), value)).collect();
        prop_assert_eq!(held, map);
        for (name, value) in tree.iter() {
            prop_assert_eq!(tree.get(name), Some(value));
        }
    }

    #[test]
    fn resumes_from_any_name_there_or_not(names in prop::collection::vec(name(), 0..40), filter in filter(), after in name()) {
        let tree = tree_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut sorted = names;
        sorted.sort_by(|left, right| by_levels(left).cmp(&by_levels(right)));
        let expected = sorted.iter().find(|name| by_levels(name) > by_levels(&after) && matches(&filter, name));
        let found = tree.next_match(&filter, Some(&after)).map(|(name, ())| name.as_ref());
        prop_assert_eq!(found, expected.map(String::as_str));
    }

    #[test]
    fn slices_of_any_size_make_the_whole(names in prop::collection::vec(name(), 0..40), filter in filter(), budget in 1_usize..6) {
        let tree = tree_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut sliced = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut scan = tree.scan(&filter, after.as_deref(), budget);
            sliced.extend(scan.by_ref().map(|(name, ())| name.to_string()));
            match scan.resume() {
                Some(name) => after = Some(name.to_string()),
                None => break,
            }
        }
        prop_assert_eq!(sliced, matching(&tree, &filter));
    }
}
