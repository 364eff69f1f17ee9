//! The order of the name tree, and how a filter walks it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::topic::name::{is_dollar, split_level};

/// The least character but `/` in the order of the tree. Names do not contain it [MQTT-4.7.3-2], so
/// `level` + `AFTER` is behind everything below `level` and before everything else.
const AFTER: char = '\0';

/// The character behind `$`: where a scan goes on that is not to see names with a leading `$` [MQTT-4.7.2-1].
const BEHIND_DOLLAR: char = '%';

/// A name as a key, in the tree's order.
#[derive(Debug)]
pub(super) struct Key(pub(super) Arc<str>);

/// What is compared: a key, or a text to look for, without making a key of it.
pub(super) trait Ordered {
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

/// What a scan does after looking at one name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Match,
    /// No match; the next one is not before the goal.
    Seek,
    /// No match, and none behind this name.
    End,
}

/// Compares `name` with `filter`; for [`Verdict::Seek`] writes into `goal` the least text behind `name` that may match.
pub(super) fn judge(filter: &str, name: &str, goal: &mut String) -> Verdict {
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
            (Some(filter_below), Some(name_below)) => (filter_rest, name_rest) = (filter_below, name_below),
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
pub(super) fn push_least(goal: &mut String, filter: &str) {
    for (index, level) in filter.split('/').take_while(|level| *level != "#").enumerate() {
        if index != 0 {
            goal.push('/');
        }
        if level != "+" {
            goal.push_str(level);
        }
    }
}

/// The order of the tree: by bytes, but `/` before everything.
pub fn compare(left: &str, right: &str) -> Ordering {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let same = common_prefix(left, right);
    match (left.get(same), right.get(same)) {
        (Some(&left), Some(&right)) => rank(left).cmp(&rank(right)),
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}

/// How many bytes at the front are the same; names of one fleet share long fronts, hence by words.
fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let (left_words, right_words) = (left.as_chunks::<8>().0, right.as_chunks::<8>().0);
    let words = left_words.iter().zip(right_words).take_while(|(left, right)| left == right).count();
    let (left, right) = (&left[words * 8..], &right[words * 8..]);
    words * 8 + left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

fn rank(byte: u8) -> u16 {
    if byte == b'/' { 0 } else { u16::from(byte) + 1 }
}
