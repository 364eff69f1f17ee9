//! "Did you mean": the nearest of a few known words, or the section where a key is at home.

use super::SECTIONS;

/// The known word that is near enough to `word` to be what was meant, if any. Case and the choice of `-` or `_` do not count.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = fold(word);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= allowed(candidate.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many slips a word of this length may hold and still be recognised.
fn allowed(len: usize) -> usize {
    match len {
        0..=3 => 1,
        4..=8 => 2,
        _ => 3,
    }
}

fn fold(word: &str) -> Vec<char> {
    // Long words cannot be near anything that is known; cutting them bounds the work of a hostile file.
    word.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut two_back: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = previous[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(previous[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(two_back[j - 2] + 1);
            }
        }
        two_back = std::mem::replace(&mut previous, row);
    }
    previous[b.len()]
}

/// The message for a key that does not exist: the nearest key of the same section, else the section that has it.
pub(super) fn unknown_key(section: &str, key: &str, keys: &'static [&'static str]) -> String {
    let kind = section.split('[').next().unwrap_or_default();
    let shown: String = key.chars().take(64).collect::<String>().escape_debug().to_string();
    let what = if section.is_empty() {
        format!("unknown section or key \"{shown}\"")
    } else {
        format!("unknown key \"{shown}\"")
    };
    let elsewhere = || SECTIONS.iter().find(|(name, keys)| *name != kind && keys.contains(&key)).map(|(name, _)| *name);
    if let Some(name) = elsewhere() {
        return format!("{what}: it belongs in {}", bracketed(name));
    }
    match nearest(key, keys.iter().copied()) {
        Some(known) => format!("{what}: did you mean \"{known}\"?"),
        None => format!("{what}: known here are {}", keys.join(", ")),
    }
}

fn bracketed(section: &str) -> String {
    match section {
        "listener" => "[[listener]]".to_owned(),
        "listener.tls" => "tls of [[listener]]".to_owned(),
        "listener.acl" => "acl of [[listener]]".to_owned(),
        "listener.auth" => "auth of [[listener]]".to_owned(),
        "cluster.tls" => "tls of [cluster]".to_owned(),
        other => format!("[{other}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(a: &str, b: &str) -> usize {
        distance(&fold(a), &fold(b))
    }

    #[test]
    fn counts_edits() {
        assert_eq!(edits("", ""), 0);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("bind", "bnid"), 1, "a swap is one slip");
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("Max-Inflight", "max_inflight"), 0);
    }

    #[test]
    fn names_the_nearest_or_none() {
        let known = ["max_inflight", "max_packet_size", "queue_full"];
        assert_eq!(nearest("max_inflght", known), Some("max_inflight"));
        assert_eq!(nearest("queue-full", known), Some("queue_full"));
        assert_eq!(nearest("persistence", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
