//! The names of a journal's files. [pure]
//!
//! | name | what |
//! | --- | --- |
//! | `journal.id` | the salt of the journal; also says that there is one |
//! | `0000000001.segment` | a segment, numbered from 1 without holes |
//! | `0000000001.index` | its index |
//! | `spare-1` | room for a later segment |
//! | `*.new` | not complete; removed at the next start |

pub(super) const IDENTITY: &str = "journal.id";

const SEGMENT: &str = ".segment";
const INDEX: &str = ".index";
const SPARE: &str = "spare-";
const UNFINISHED: &str = ".new";

/// What a file is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Identity,
    Segment(u32),
    Index(u32),
    Spare(u64),
    Unfinished,
    /// Not of a journal; left alone.
    Other,
}

pub(super) fn segment(number: u32) -> String {
    format!("{number:010}{SEGMENT}")
}

pub(super) fn index(number: u32) -> String {
    format!("{number:010}{INDEX}")
}

pub(super) fn spare(number: u64) -> String {
    format!("{SPARE}{number}")
}

/// What a file is called until it is complete.
pub(super) fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

pub(super) fn parse(name: &str) -> Named {
    let numbered = |suffix: &str| name.strip_suffix(suffix).filter(|digits| digits.len() == 10)?.parse().ok();
    if name == IDENTITY {
        Named::Identity
    } else if let Some(number) = numbered(SEGMENT) {
        Named::Segment(number)
    } else if let Some(number) = numbered(INDEX) {
        Named::Index(number)
    } else if let Some(number) = name.strip_prefix(SPARE).and_then(|digits| digits.parse().ok()) {
        Named::Spare(number)
    } else if is_unfinished(name) {
        Named::Unfinished
    } else {
        Named::Other
    }
}

fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).is_some_and(|name| !matches!(parse(name), Named::Other | Named::Unfinished))
}
