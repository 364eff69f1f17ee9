//! Whether a topic filter matches a topic name (section 4.7), written for the checker alone.

/// The filter below `$share/NAME/`, or the filter itself.
pub fn plain(filter: &str) -> &str {
    let shared = filter.strip_prefix("$share/").and_then(|rest| rest.split_once('/'));
    shared.map_or(filter, |(_, plain)| plain)
}

/// A shared filter counts as the filter below its share name.
pub fn matches(filter: &str, topic: &str) -> bool {
    let filter = plain(filter);
    if topic.starts_with('$') && filter.starts_with(['#', '+']) {
        return false;
    }
    let mut names = topic.split('/');
    for level in filter.split('/') {
        match (level, names.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(name)) if level == name => {}
            _ => return false,
        }
    }
    names.next().is_none()
}
