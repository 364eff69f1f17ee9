//! Routes as commands of bounded size: what a session or a node wants may be more than the Raft group takes in one command, and every node applies a command in
//! one go.
//!
//! Test to read first: `tests::many_routes_are_many_commands`.

use std::sync::Arc;

use holdfast_raft::batcher::COMMAND_BYTES_MAX;
use holdfast_raft::{Command, ShareMembers, ShareRoute};

use crate::topic::TopicFilter;

/// Filters in one command at the most, and their bytes; a single one may be longer.
const FILTERS_MAX: usize = 4_096;
const FILTER_BYTES_MAX: usize = 256 * 1024;

/// What each filter has beside its texts, with the lengths of those.
const SURPLUS_BYTES: usize = 16;

/// The commands that add routes, in order: of none, none.
pub fn adding(filters: Vec<Arc<str>>, shares: Vec<(ShareRoute, ShareMembers)>) -> Vec<Command> {
    let filters = pieces(filters, |filter| filter.len());
    let shares = pieces(shares, |((share, filter), _)| share.len() + filter.len());
    let filters = filters.into_iter().map(|add| Command::Routes { add, remove: Vec::new() });
    let shares = shares.into_iter().map(|set| Command::ShareRoutes { set, remove: Vec::new() });
    filters.chain(shares).collect()
}

/// The commands that take routes away, some of them perhaps with a share prefix.
pub fn removing(texts: Vec<Arc<str>>) -> Vec<Command> {
    let mut filters = Vec::new();
    let mut shares: Vec<ShareRoute> = Vec::new();
    for text in texts {
        match TopicFilter::parse(&text) {
            Ok(TopicFilter { share: Some(share), filter }) => shares.push((share.into(), filter.into())),
            _ => filters.push(text),
        }
    }
    let filters = pieces(filters, |filter| filter.len());
    let shares = pieces(shares, |(share, filter)| share.len() + filter.len());
    let filters = filters.into_iter().map(|remove| Command::Routes { add: Vec::new(), remove });
    let shares = shares.into_iter().map(|remove| Command::ShareRoutes { set: Vec::new(), remove });
    filters.chain(shares).collect()
}

fn pieces<T>(items: Vec<T>, text_bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut pieces = Vec::new();
    let (mut piece, mut bytes) = (Vec::new(), 0);
    for item in items {
        let more = text_bytes(&item) + SURPLUS_BYTES;
        if !piece.is_empty() && (piece.len() == FILTERS_MAX || bytes + more > FILTER_BYTES_MAX) {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += more;
        piece.push(item);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

// Beside its filters a command has little, and a single filter is a text of MQTT.
const _: () = assert!(FILTER_BYTES_MAX + (1 << 17) < COMMAND_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_routes_are_many_commands() {
        let filters: Vec<Arc<str>> = (0..5_000).map(|number| format!("{number}").into()).collect();
        let long = "f".repeat(60_000);
        let shares: Vec<(ShareRoute, ShareMembers)> = (0..9)
            .map(|number| ((format!("{number}").into(), long.as_str().into()), ShareMembers::default()))
            .collect();
        let commands = adding(filters.clone(), shares.clone());
        let (mut added, mut set) = (Vec::new(), Vec::new());
        for command in &commands {
            match command {
                Command::Routes { add, remove } if remove.is_empty() => added.extend(add.iter().cloned()),
                Command::ShareRoutes { set: some, remove } if remove.is_empty() => set.extend(some.iter().cloned()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((commands.len(), added, set), (2 + 3, filters, shares));
        assert!(adding(Vec::new(), Vec::new()).is_empty());
    }

    #[test]
    fn what_goes_is_told_apart_by_its_prefix() {
        let commands = removing(vec!["a/+".into(), "$share/s/b".into(), "c".into()]);
        let filters = Command::Routes { add: Vec::new(), remove: vec!["a/+".into(), "c".into()] };
        let shares = Command::ShareRoutes { set: Vec::new(), remove: vec![("s".into(), "b".into())] };
        assert_eq!(commands, [filters, shares]);
    }
}
