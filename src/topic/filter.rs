//! Topic filters: what a SUBSCRIBE may ask for, shared subscriptions included, and the definition of "matches".

use thiserror::Error;

use super::TOPIC_BYTES_MAX;
use super::name::is_dollar;

/// What every shared subscription's text starts with (section 4.8.2).
const SHARE_PREFIX: &str = "$share/";

/// Why a text is not a topic filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TopicFilterError {
    #[error("topic filter is empty [MQTT-4.7.3-1]")]
    Empty,
    #[error("topic filter is longer than 65,535 bytes [MQTT-4.7.3-3]")]
    TooLong,
    #[error("topic filter contains U+0000 [MQTT-4.7.3-2]")]
    Null,
    #[error("'#' is not the last level, or not a whole one [MQTT-4.7.1-1]")]
    MultiLevelWildcard,
    #[error("'+' is not a whole level [MQTT-4.7.1-2]")]
    SingleLevelWildcard,
    #[error("share name is empty or contains '+' or '#' [MQTT-4.8.2-1], [MQTT-4.8.2-2]")]
    ShareName,
    #[error("share name is not followed by '/' and a topic filter [MQTT-4.8.2-2]")]
    ShareWithoutFilter,
}

/// The parsed view of the text of a SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicFilter<'a> {
    /// The share name of `$share/{name}/{filter}`; `None` for a subscription of one's own.
    pub share: Option<&'a str>,
    /// The filter proper, without the share prefix.
    pub filter: &'a str,
}

impl<'a> TopicFilter<'a> {
    /// Checks and splits `text`. `$share` without a slash behind it is an ordinary filter; everything that starts with
    /// `$share/` must be a whole shared subscription.
    pub fn parse(text: &'a str) -> Result<Self, TopicFilterError> {
        if text.len() > TOPIC_BYTES_MAX {
            return Err(TopicFilterError::TooLong);
        }
        let Some(shared) = text.strip_prefix(SHARE_PREFIX) else {
            check(text)?;
            return Ok(Self { share: None, filter: text });
        };
        let (share, filter) = shared.split_once('/').ok_or(TopicFilterError::ShareWithoutFilter)?;
        match memchr::memchr3(b'+', b'#', 0, share.as_bytes()) {
            Some(at) if share.as_bytes()[at] == 0 => return Err(TopicFilterError::Null),
            Some(_) => return Err(TopicFilterError::ShareName),
            None if share.is_empty() => return Err(TopicFilterError::ShareName),
            None if filter.is_empty() => return Err(TopicFilterError::ShareWithoutFilter),
            None => check(filter)?,
        }
        Ok(Self { share: Some(share), filter })
    }

    /// Whether the filter proper has `+` or `#`.
    pub fn has_wildcard(&self) -> bool {
        has_wildcard(self.filter)
    }
}

/// Whether a filter without share prefix has `+` or `#`.
pub(super) fn has_wildcard(filter: &str) -> bool {
    memchr::memchr2(b'+', b'#', filter.as_bytes()).is_some()
}

/// Checks a filter without share prefix.
fn check(filter: &str) -> Result<(), TopicFilterError> {
    if filter.is_empty() {
        return Err(TopicFilterError::Empty);
    }
    let bytes = filter.as_bytes();
    for at in memchr::memchr3_iter(b'+', b'#', 0, bytes) {
        let starts_level = at == 0 || bytes[at - 1] == b'/';
        let next = bytes.get(at + 1);
        match bytes[at] {
            0 => return Err(TopicFilterError::Null),
            b'#' if !starts_level || next.is_some() => {
                return Err(TopicFilterError::MultiLevelWildcard);
            }
            b'+' if !starts_level || next.is_some_and(|&next| next != b'/') => {
                return Err(TopicFilterError::SingleLevelWildcard);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether `filter` (without share prefix) matches `name`, level by level: `+` is one level, `#` the level it stands
/// behind and all below [MQTT-4.7.1-1], and a wildcard in front does not match a name with a leading `$` [MQTT-4.7.2-1].
///
/// This is the definition. It looks at one filter at a time; many filters belong into a [`FilterTree`](super::FilterTree).
pub fn matches(filter: &str, name: &str) -> bool {
    if is_dollar(name) && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let mut levels = name.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_are_legal() {
        let legal = [
            "a",
            "/",
            "#",
            "+",
            "+/+",
            "/+",
            "+/",
            "a/#",
            "a/+/b",
            "+/#",
            "/#",
            "$SYS/#",
            "$share",
            "a b/ü",
            "$shared/a",
        ];
        for text in legal {
            assert_eq!(TopicFilter::parse(text), Ok(TopicFilter { share: None, filter: text }), "{text:?}");
        }
        assert!(TopicFilter::parse(&"a".repeat(TOPIC_BYTES_MAX)).is_ok());
    }

    #[test]
    fn shared_subscriptions_are_split_at_the_second_slash() {
        let cases = [
            ("$share/g/a", "g", "a"),
            ("$share/g//", "g", "/"),
            ("$share/g/#", "g", "#"),
            ("$share/g/$SYS/a", "g", "$SYS/a"),
        ];
        for (text, share, filter) in cases {
            assert_eq!(TopicFilter::parse(text), Ok(TopicFilter { share: Some(share), filter }), "{text:?}");
        }
    }

    #[test]
    fn filters_that_are_refused() {
        use TopicFilterError::*;
        let cases = [
            ("", Empty),
            ("a#", MultiLevelWildcard),
            ("#/a", MultiLevelWildcard),
            ("a/#/b", MultiLevelWildcard),
            ("##", MultiLevelWildcard),
            ("a/b#", MultiLevelWildcard),
            ("#/", MultiLevelWildcard),
            ("a+", SingleLevelWildcard),
            ("+a", SingleLevelWildcard),
            ("a/b+/c", SingleLevelWildcard),
            ("++", SingleLevelWildcard),
            ("+#", SingleLevelWildcard),
            ("a\0", Null),
            ("$share/", ShareWithoutFilter),
            ("$share/g", ShareWithoutFilter),
            ("$share/g/", ShareWithoutFilter),
            ("$share//a", ShareName),
            ("$share/g+/a", ShareName),
            ("$share/#/a", ShareName),
            ("$share/g\0/a", Null),
            ("$share/g/a#", MultiLevelWildcard),
        ];
        for (text, error) in cases {
            assert_eq!(TopicFilter::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(TopicFilter::parse(&"a".repeat(TOPIC_BYTES_MAX + 1)), Err(TooLong));
    }

    #[test]
    fn the_examples_of_the_specification_match_as_it_says() {
        let yes = [
            ("sport/tennis/player1/#", "sport/tennis/player1"),
            ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
            ("sport/#", "sport"),
            ("#", "a/b"),
            ("sport/tennis/+", "sport/tennis/player1"),
            ("sport/+", "sport/"),
            ("+/+", "/finance"),
            ("/+", "/finance"),
            ("$SYS/#", "$SYS/a"),
            ("$SYS/monitor/+", "$SYS/monitor/Clients"),
            ("+/#", "a"),
            ("a/$b/+", "a/$b/c"),
        ];
        for (filter, name) in yes {
            assert!(matches(filter, name), "{filter:?} matches {name:?}");
        }
        let no = [
            ("sport/tennis/+", "sport/tennis/player1/ranking"),
            ("sport/+", "sport"),
            ("+", "/finance"),
            ("#", "$SYS/a"),
            ("+/monitor/Clients", "$SYS/monitor/Clients"),
            ("a", "A"),
            ("a", "/a"),
            ("a", "a/"),
        ];
        for (filter, name) in no {
            assert!(!matches(filter, name), "{filter:?} does not match {name:?}");
        }
    }
}
