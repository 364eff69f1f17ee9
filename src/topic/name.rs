//! Topic names: what a PUBLISH may name.
//!
//! A name that passed [`validate`] has no wildcard and no U+0000; the indexes of this module rely on the first for
//! meaning and on the second for the order of [`NameTree`](super::NameTree).

use thiserror::Error;

use super::TOPIC_BYTES_MAX;

/// Why a text is not a topic name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TopicNameError {
    #[error("topic name is empty [MQTT-4.7.3-1]")]
    Empty,
    #[error("topic name is longer than 65,535 bytes [MQTT-4.7.3-3]")]
    TooLong,
    #[error("topic name contains a wildcard character [MQTT-3.3.2-2]")]
    Wildcard,
    #[error("topic name contains U+0000 [MQTT-4.7.3-2]")]
    Null,
}

/// Checks a topic name: not empty [MQTT-4.7.3-1], at most 65,535 bytes [MQTT-4.7.3-3], without `+` and `#`
/// [MQTT-3.3.2-2] and without U+0000 [MQTT-4.7.3-2].
pub fn validate(name: &str) -> Result<(), TopicNameError> {
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name.len() > TOPIC_BYTES_MAX {
        return Err(TopicNameError::TooLong);
    }
    match memchr::memchr3(b'+', b'#', 0, name.as_bytes()) {
        None => Ok(()),
        Some(at) if name.as_bytes()[at] == 0 => Err(TopicNameError::Null),
        Some(_) => Err(TopicNameError::Wildcard),
    }
}

/// Levels of a name or filter: one more than it has `/`, so an empty level counts.
pub fn levels(name: &str) -> usize {
    memchr::memchr_iter(b'/', name.as_bytes()).count() + 1
}

/// Whether the first character is `$`: then no filter that starts with a wildcard matches it [MQTT-4.7.2-1].
pub fn is_dollar(name: &str) -> bool {
    name.as_bytes().first() == Some(&b'$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_legal() {
        for name in ["a", "/", "//", "a/b", "/a", "a/", " ", "$SYS/x", "$share/g/t", "ü/日本", "a\u{1}b"] {
            assert_eq!(validate(name), Ok(()), "{name:?}");
        }
        assert_eq!(validate(&"a".repeat(TOPIC_BYTES_MAX)), Ok(()));
    }

    #[test]
    fn names_that_are_refused() {
        assert_eq!(validate(""), Err(TopicNameError::Empty));
        assert_eq!(validate(&"a".repeat(TOPIC_BYTES_MAX + 1)), Err(TopicNameError::TooLong));
        for name in ["+", "#", "a/+", "a/#", "a+b", "a#"] {
            assert_eq!(validate(name), Err(TopicNameError::Wildcard), "{name:?}");
        }
        assert_eq!(validate("a\0b"), Err(TopicNameError::Null));
    }

    #[test]
    fn an_empty_level_is_a_level() {
        for (name, count) in [("a", 1), ("a/b", 2), ("/", 2), ("//", 3), ("a/", 2), ("/a/b/", 4)] {
            assert_eq!(levels(name), count, "{name:?}");
        }
    }

    #[test]
    fn only_a_leading_dollar_counts() {
        assert!(is_dollar("$SYS/a"));
        assert!(!is_dollar("a/$SYS"));
        assert!(!is_dollar(""));
    }
}
