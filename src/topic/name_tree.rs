//! The names that match a filter: the question of retained replay.
//!
//! One ordered map of names, in an order in which `/` sorts before every other character. In this order everything below a level lies
//! together and directly behind the level itself (`a`, `a/b`, `a/b/c`, `a-b`), so each filter is a sequence of ranges: where a name does not match, [`judge`] says the least
//! name behind it that could, and the scan goes on there. A filter costs O(log n) per result and per value that a `+`
//! takes on; nothing below a level that cannot match is looked at.
//!
//! A scan has no state of its own beyond the last name it examined, so it may be broken off after any name and resumed
//! from that name later, whatever was inserted or removed in between; it then sees each name that was there all the time exactly once. Work is
//! counted, because a filter such as `+/+/+/x` may examine many names and find none.
//!
//! Read first: `tests.rs`, where this is held against [`matches`](super::matches) on a plain list.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::{Iter, Range};
use std::ops::Bound;
use std::sync::Arc;

use super::name::is_dollar;

#[cfg(test)]
mod tests;

/// How many neighbours a scan steps over before it seeks: a step is a few nanoseconds, a seek a walk from the root.
const STEPS_BEFORE_SEEK: usize = 4;

/// The least character but `/` in the order of the tree. Names do not contain it [MQTT-4.7.3-2], so
/// `level` + `AFTER` is behind everything below `level` and before everything else.
const AFTER: char = '\0';

/// The character behind `$`: where a scan goes on that is not to see names with a leading `$` [MQTT-4.7.2-1].
const BEHIND_DOLLAR: char = '%';

/// A map from topic names to `T` that is asked by topic filter.
#[derive(Debug)]
pub struct NameTree<T> {
    names: BTreeMap<Key, T>,
}

/// A name as a key, in the tree's order.
#[derive(Debug)]
struct Key(Arc<str>);

/// What is compared: a key, or a text to look for, without making a key of it.
trait Ordered {
    fn text(&self) -> &str;
}

impl Ordered for Key {
    fn text(&self) -> &str {
        &self.0
    }
}

impl Ordered for &str {
    fn text(&self) -> &str {
        self
    }
}

impl<'a> Borrow<dyn Ordered + 'a> for Key {
    fn borrow(&self) -> &(dyn Ordered + 'a) {
        self
    }
}

impl Ord for dyn Ordered + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.text(), other.text())
    }
}

impl PartialOrd for dyn Ordered + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ordered + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn Ordered + '_ {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl<T> Default for NameTree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> NameTree<T> {
    pub fn new() -> Self {
        Self {
            names: BTreeMap::new(),
        }
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.names.get(&name as &dyn Ordered)
    }

    /// Puts `value` at `name` and returns what was there. The key is the `Arc` of the first insertion until it is removed.
    pub fn insert(&mut self, name: Arc<str>, value: T) -> Option<T> {
        self.names.insert(Key(name), value)
    }

    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.names.remove(&name as &dyn Ordered)
    }

    /// All names in the tree's order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &T)> {
        let names: Iter<'_, Key, T> = self.names.iter();
        names.map(|(key, value)| (&key.0, value))
    }

    /// The first name behind `after` (`None`: from the start) in the tree's order that matches `filter`. `after` need
    /// not be in the tree. Unbounded work: where the filter is a client's, use [`scan`](Self::scan).
    pub fn next_match(&self, filter: &str, after: Option<&str>) -> Option<(&Arc<str>, &T)> {
        self.scan(filter, after, usize::MAX).next()
    }

    /// The names behind `after` that match `filter` (without share prefix, parsed before), in the tree's order, as far as `budget` goes: the number of names
    /// that may be examined, matching or not. When the iterator has ended, [`Scan::resume`] says whether there may be more.
    pub fn scan<'t, 'f>(
        &'t self,
        filter: &'f str,
        after: Option<&str>,
        budget: usize,
    ) -> Scan<'t, 'f, T> {
        let range = match after {
            Some(after) => self.range(Bound::Excluded(after)),
            // The least name that could match, so that a filter with a literal front starts where it belongs.
            None => {
                let mut first = String::new();
                push_least(&mut first, filter);
                self.range(Bound::Included(&first))
            }
        };
        Scan {
            tree: self,
            filter,
            range,
            examined: None,
            budget,
            goal: String::new(),
        }
    }

    fn range(&self, from: Bound<&str>) -> Range<'_, Key, T> {
        let from = from.map(|text| text as &str);
        let bound: Bound<&dyn Ordered> = match &from {
            Bound::Included(text) => Bound::Included(text),
            Bound::Excluded(text) => Bound::Excluded(text),
            Bound::Unbounded => Bound::Unbounded,
        };
        self.names
            .range::<dyn Ordered + '_, _>((bound, Bound::Unbounded))
    }
}

/// The matching names of one filter, from one name on: see [`NameTree::scan`].
#[derive(Debug)]
pub struct Scan<'t, 'f, T> {
    tree: &'t NameTree<T>,
    filter: &'f str,
    range: Range<'t, Key, T>,
    /// The last name that was looked at: everything up to it is done.
    examined: Option<&'t Arc<str>>,
    budget: usize,
    /// Where the scan goes on after a name that does not match; kept for its buffer.
    goal: String,
}

impl<'t, T> Scan<'t, '_, T> {
    /// After the iterator has ended: `Some(name)` if it did so because the budget was used up. Scanning on from `after
    /// = name` misses nothing and repeats nothing. `None`: there are no more matches. A budget of 0 examines nothing and
    /// also says `None`.
    pub fn resume(&self) -> Option<&'t Arc<str>> {
        self.examined.filter(|_| self.budget == 0)
    }

    /// Moves to the first name that is not before `goal`: a few steps if it is near, else a seek.
    fn advance_to_goal(&mut self) {
        for _ in 0..STEPS_BEFORE_SEEK {
            let mut ahead = self.range.clone();
            match ahead.next() {
                Some((key, _)) if compare(&key.0, &self.goal).is_lt() => self.range = ahead,
                _ => return,
            }
        }
        self.range = self.tree.range(Bound::Included(&self.goal));
    }

    fn end(&mut self) {
        self.examined = None;
    }
}

impl<'t, T> Iterator for Scan<'t, '_, T> {
    type Item = (&'t Arc<str>, &'t T);

    fn next(&mut self) -> Option<Self::Item> {
        while self.budget != 0 {
            let Some((Key(name), value)) = self.range.next() else {
                self.end();
                return None;
            };
            self.budget -= 1;
            self.examined = Some(name);
            match judge(self.filter, name, &mut self.goal) {
                Verdict::Match => return Some((name, value)),
                Verdict::Seek => self.advance_to_goal(),
                Verdict::End => {
                    self.range = Range::default();
                    self.end();
                    return None;
                }
            }
        }
        None
    }
}

/// What a scan does after looking at one name.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Match,
    /// No match; the next one is not before the goal.
    Seek,
    /// No match, and none behind this name.
    End,
}

/// Compares `name` with `filter`; for [`Verdict::Seek`] writes into `goal` the least text behind `name` that may match.
fn judge(filter: &str, name: &str, goal: &mut String) -> Verdict {
    goal.clear();
    if is_dollar(name) && filter.starts_with(['+', '#']) {
        goal.push(BEHIND_DOLLAR);
        return Verdict::Seek;
    }
    let (mut filter_rest, mut name_rest) = (filter, name);
    // End of the last level that a `+` took: what comes behind it gets another chance with its next value.
    let mut plus_end = None;
    loop {
        let start = name.len() - name_rest.len();
        let (wanted, filter_below) = split_level(filter_rest);
        let (level, name_below) = split_level(name_rest);
        match wanted {
            "#" => return Verdict::Match,
            "+" => plus_end = Some(start + level.len()),
            wanted => match compare(level, wanted) {
                Ordering::Equal => {}
                Ordering::Less => return seek(goal, &[&name[..start]], filter_rest),
                Ordering::Greater => return seek_behind(goal, name, plus_end),
            },
        }
        match (filter_below, name_below) {
            (None | Some("#"), None) => return Verdict::Match,
            (None, Some(_)) => return seek_behind(goal, name, plus_end),
            (Some(filter_below), None) => return seek(goal, &[name, "/"], filter_below),
            (Some(filter_below), Some(name_below)) => {
                (filter_rest, name_rest) = (filter_below, name_below)
            }
        }
    }
}

/// On to the least text below `front` that matches what is left of the filter.
fn seek(goal: &mut String, front: &[&str], filter_rest: &str) -> Verdict {
    front.iter().for_each(|part| goal.push_str(part));
    push_least(goal, filter_rest);
    Verdict::Seek
}

/// On to the next value of the last `+`; without one the scan is over.
fn seek_behind(goal: &mut String, name: &str, plus_end: Option<usize>) -> Verdict {
    let Some(end) = plus_end else {
        return Verdict::End;
    };
    goal.push_str(&name[..end]);
    goal.push(AFTER);
    Verdict::Seek
}

/// Appends the least text that matches `filter`: an empty level for `+`, nothing for `/#`.
fn push_least(goal: &mut String, filter: &str) {
    for (index, level) in filter
        .split('/')
        .take_while(|level| *level != "#")
        .enumerate()
    {
        if index != 0 {
            goal.push('/');
        }
        if level != "+" {
            goal.push_str(level);
        }
    }
}

/// The order of the tree: by bytes, but `/` before everything.
fn compare(left: &str, right: &str) -> Ordering {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    match left.iter().zip(right).find(|(left, right)| left != right) {
        Some((&left, &right)) => rank(left).cmp(&rank(right)),
        None => left.len().cmp(&right.len()),
    }
}

fn rank(byte: u8) -> u16 {
    if byte == b'/' { 0 } else { u16::from(byte) + 1 }
}

/// The first level, and what follows its `/`.
fn split_level(text: &str) -> (&str, Option<&str>) {
    match text.as_bytes().iter().position(|&byte| byte == b'/') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}
