//! One rule, and rules in the order in which they are asked. [pure]
//!
//! Invariants: of the rules that match, the first that says anything about the action decides; the order is that of whoever wrote them
//! ([`file`](super::file) puts denials first, as mosquitto does). Few rules are looked through, many stand in a tree.
//!
//! Test to read first: `tests::many_rules_decide_as_few_do`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::topic::{FilterTree, filter};

/// What a client does with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Action {
    /// It publishes, or leaves a Will.
    Publish,
    /// It subscribes to a filter.
    Subscribe,
    /// It is sent a message.
    Read,
}

impl Action {
    pub const ALL: [Action; 3] = [Action::Publish, Action::Subscribe, Action::Read];

    /// The value of the label `action`, and the word in the log.
    pub fn label(self) -> &'static str {
        match self {
            Action::Publish => "publish",
            Action::Subscribe => "subscribe",
            Action::Read => "read",
        }
    }

    pub(super) fn bit(self) -> Actions {
        1 << self as usize
    }
}

/// A set of [`Action`]s.
pub(super) type Actions = u8;

pub(super) const EVERY_ACTION: Actions = 0b111;

/// A rule about the topics of one filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub(super) allows: bool,
    pub(super) actions: Actions,
    /// A topic filter without share prefix; in a pattern names are still to be put in.
    pub(super) filter: Arc<str>,
    /// As it stands in its file or token.
    pub(super) text: Arc<str>,
    /// Its line in the file, from 1; in a token its place, from 1.
    pub(super) line: u32,
}

impl Rule {
    fn says(&self, action: Action) -> bool {
        self.actions & action.bit() != 0
    }
}

/// More rules than these stand in a tree.
const LOOKED_THROUGH_MAX: usize = 16;

/// Rules in the order in which they are asked.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    rules: Vec<Rule>,
    /// The places in `rules` of each filter, if they are many.
    by_filter: Option<FilterTree<SmallVec<[u32; 4]>>>,
}

impl RuleSet {
    pub fn new(rules: Vec<Rule>) -> RuleSet {
        let mut by_filter: Option<FilterTree<SmallVec<[u32; 4]>>> =
            (rules.len() > LOOKED_THROUGH_MAX).then(FilterTree::new);
        if let Some(tree) = &mut by_filter {
            for (place, rule) in rules.iter().enumerate() {
                let place = place as u32;
                tree.get_or_insert_with(&rule.filter, SmallVec::new).push(place);
            }
        }
        RuleSet { rules, by_filter }
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule that decides about a topic name.
    pub fn decide(&self, action: Action, topic: &str) -> Option<&Rule> {
        let Some(tree) = &self.by_filter else {
            return self.rules.iter().find(|rule| rule.says(action) && filter::matches(&rule.filter, topic));
        };
        let mut first = u32::MAX;
        tree.for_each_match(topic, |places| {
            let said = places.iter().copied().filter(|place| self.rules[*place as usize].says(action));
            first = first.min(said.min().unwrap_or(u32::MAX));
        });
        self.rules.get(first as usize)
    }

    /// The rule that decides about a filter: the first whose filter matches every name that this one matches.
    pub fn decide_filter(&self, wanted: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.says(Action::Subscribe) && covers(&rule.filter, wanted))
    }
}

/// Whether `filter` matches every name that `wanted`, a name or filter, matches. Both without share prefix.
pub(super) fn covers(filter: &str, wanted: &str) -> bool {
    if wanted.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let mut levels = wanted.split('/');
    for allowed in filter.split('/') {
        match (allowed, levels.next()) {
            ("#", _) => return true,
            (_, Some("#")) => return false,
            ("+", Some(_)) => {}
            (allowed, Some(level)) if allowed == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(filter: &str, allows: bool, actions: Actions) -> Rule {
        Rule { allows, actions, filter: filter.into(), text: filter.into(), line: 1 }
    }

    #[test]
    fn a_filter_covers_what_matches_no_other_names() {
        for (filter, wanted) in [
            ("#", "#"),
            ("#", "+/a"),
            ("a/#", "a"),
            ("a/#", "a/+/#"),
            ("a/+", "a/b"),
            ("a/+", "a/+"),
            ("+/b", "a/b"),
            ("$SYS/#", "$SYS/+/x"),
        ] {
            assert!(covers(filter, wanted), "{filter} {wanted}");
        }
        for (filter, wanted) in [
            ("a/1", "#"),
            ("a/1", "+/1"),
            ("a/1", "a/+"),
            ("a/+", "a/#"),
            ("a/+", "a/b/c"),
            ("a/b/#", "a/#"),
            ("#", "$SYS/#"),
            ("+/x", "$SYS/x"),
            ("a/b", "a"),
        ] {
            assert!(!covers(filter, wanted), "{filter} {wanted}");
        }
    }

    #[test]
    fn many_rules_decide_as_few_do() {
        let filters = ["a/#", "a/+/c", "a/b/c", "+/b/#", "#", "x", "+", "$SYS/#", "a/b"];
        let mut rules = Vec::new();
        for round in 0..4u8 {
            let of = |(place, filter): (usize, &&str)| {
                rule(filter, (place + usize::from(round)) % 3 > 0, 1 << ((place as u8 + round) % 3))
            };
            rules.extend(filters.iter().enumerate().map(of));
        }
        let many = RuleSet::new(rules.clone());
        assert!(many.by_filter.is_some());
        let few = RuleSet { rules, by_filter: None };
        for topic in ["a", "a/b", "a/b/c", "x", "x/b/y", "$SYS/x", "q/w/e", ""] {
            for action in Action::ALL {
                let places = [&many, &few].map(|set| {
                    set.decide(action, topic).map(|found| set.rules.iter().position(|rule| std::ptr::eq(rule, found)))
                });
                assert_eq!(places[0], places[1], "{action:?} {topic}");
            }
        }
    }
}
