//! One page of a list that lies on several nodes or shards, from a page of each. Pure.

use super::view::{Client, ClientPage, ClosedPage, Matches};

/// The first `limit` clients of all parts. Each part is a page of one node: its clients in the order of their ids, all of them behind the same cursor, and
/// complete up to its last one; with `next`, there are more behind that.
///
/// A client that is on two parts, because its session moves while they are read, is told once: where it is connected, else where its epoch is greater.
///
/// The result never goes beyond what all parts are complete to, so that no client between two pages is left out.
pub fn merge(parts: Vec<ClientPage>, limit: usize) -> ClientPage {
    let mut complete_to: Option<String> = None;
    let (mut clients, mut missing, mut more) = (Vec::new(), Vec::new(), false);
    for part in parts {
        if let (Some(_), Some(last)) = (&part.next, part.clients.last()) {
            more = true;
            if complete_to.as_ref().is_none_or(|to| *to > last.client_id) {
                complete_to = Some(last.client_id.clone());
            }
        }
        clients.extend(part.clients);
        missing.extend(part.missing);
    }
    clients.sort_by(|one, other| one.client_id.cmp(&other.client_id).then_with(|| weight(other).cmp(&weight(one))));
    clients.dedup_by(|later, first| later.client_id == first.client_id);
    if let Some(to) = &complete_to {
        let known = clients.partition_point(|client| client.client_id <= *to);
        clients.truncate(known);
    }
    more |= clients.len() > limit;
    clients.truncate(limit);
    missing.sort();
    missing.dedup();
    let next = clients.last().filter(|_| more).map(|last| last.client_id.clone());
    ClientPage { clients, next, missing }
}

/// The latest `limit` of all parts, none of which begins before another one is complete to: see [`merge`].
pub fn merge_closed(parts: Vec<ClosedPage>, limit: usize) -> ClosedPage {
    let (mut closed, mut missing) = (Vec::new(), Vec::new());
    let mut complete_to = None;
    for part in parts {
        if let (Some(_), Some(last)) = (&part.next, part.closed.last()) {
            complete_to = complete_to.max(Some(last.cursor()));
        }
        closed.extend(part.closed);
        missing.extend(part.missing);
    }
    closed.sort_by_cached_key(|one| std::cmp::Reverse(one.cursor()));
    let mut more = complete_to.is_some();
    if let Some(to) = &complete_to {
        closed.retain(|one| one.cursor() >= *to);
    }
    more |= closed.len() > limit;
    closed.truncate(limit);
    missing.sort();
    let next = closed.last().filter(|_| more).map(|last| last.cursor().to_string());
    ClosedPage { closed, next, missing }
}

/// All receivers of all parts, but no more than `limit`.
pub fn merge_matches(topic: String, parts: Vec<Matches>, limit: usize) -> Matches {
    let mut all = Matches { topic, ..Matches::default() };
    for part in parts {
        all.receivers.extend(part.receivers);
        all.truncated |= part.truncated;
        all.missing.extend(part.missing);
    }
    all.receivers.sort();
    all.truncated |= all.receivers.len() > limit;
    all.receivers.truncate(limit);
    all.missing.sort();
    all
}

fn weight(client: &Client) -> (bool, u64) {
    (client.connected, client.epoch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::admin::view::{ClosedConnection, ClosedCursor};

    use super::*;

    #[test]
    fn pages_of_ended_connections_leave_none_out() {
        let of_node = |node: &str, step: u64| -> Vec<ClosedConnection> {
            let closed = |number: u64| ClosedConnection {
                node: node.to_owned(),
                number,
                closed_at_ms: number * step / 2,
                ..ClosedConnection::default()
            };
            (1..40).rev().map(closed).collect()
        };
        let nodes = [of_node("a", 1), of_node("b", 3), of_node("c", 0)];
        let page = |all: &Vec<ClosedConnection>, after: &Option<ClosedCursor>, limit: usize| {
            let older = all.iter().filter(|one| after.as_ref().is_none_or(|after| one.cursor() < *after));
            let mut older = older.cloned();
            let closed: Vec<_> = older.by_ref().take(limit).collect();
            let next = older.next().and(closed.last()).map(|last| last.cursor().to_string());
            ClosedPage { closed, next, missing: Vec::new() }
        };
        let mut expected: Vec<_> = nodes.iter().flatten().map(ClosedConnection::cursor).collect();
        expected.sort_by(|one, other| other.cmp(one));
        let (mut told, mut after) = (Vec::new(), None);
        loop {
            let merged = merge_closed(nodes.iter().map(|all| page(all, &after, 7)).collect(), 7);
            assert!(!merged.closed.is_empty());
            told.extend(merged.closed.iter().map(ClosedConnection::cursor));
            match merged.next {
                Some(next) => after = Some(next.parse().unwrap()),
                None => break,
            }
        }
        assert_eq!(told, expected);
    }

    fn client(id: &str) -> Client {
        Client { client_id: id.to_owned(), ..Client::default() }
    }

    /// What a node answers that has these clients.
    fn part(all: &BTreeSet<String>, after: Option<&str>, limit: usize) -> ClientPage {
        let mut behind = all.iter().filter(|id| after.is_none_or(|after| id.as_str() > after));
        let clients: Vec<_> = behind.by_ref().take(limit).map(|id| client(id)).collect();
        let next = behind.next().and(clients.last()).map(|last| last.client_id.clone());
        ClientPage { clients, next, missing: Vec::new() }
    }

    fn ids(page: &ClientPage) -> Vec<&str> {
        page.clients.iter().map(|client| client.client_id.as_str()).collect()
    }

    #[test]
    fn a_page_ends_where_one_part_is_not_complete_any_more() {
        let short =
            ClientPage { clients: vec![client("a"), client("c")], next: Some("c".to_owned()), missing: Vec::new() };
        let whole = ClientPage { clients: vec![client("b"), client("d")], next: None, missing: vec!["n3".to_owned()] };
        let page = merge(vec![short, whole], 10);
        assert_eq!((ids(&page), page.next.as_deref()), (vec!["a", "b", "c"], Some("c")));
        assert_eq!(page.missing, ["n3"]);
    }

    #[test]
    fn a_client_on_two_nodes_is_told_once() {
        let old = Client { epoch: 9, node: "old".to_owned(), ..client("a") };
        let new = Client { epoch: 3, connected: true, node: "new".to_owned(), ..client("a") };
        let older = Client { epoch: 2, node: "older".to_owned(), ..client("b") };
        let newer = Client { epoch: 3, node: "newer".to_owned(), ..client("b") };
        let page = |clients| ClientPage { clients, ..ClientPage::default() };
        let merged = merge(vec![page(vec![old, newer]), page(vec![new, older])], 10);
        let nodes: Vec<_> = merged.clients.iter().map(|client| client.node.as_str()).collect();
        assert_eq!((nodes, merged.next), (vec!["new", "newer"], None));
    }

    #[test]
    fn of_nothing_comes_nothing() {
        assert_eq!(merge(Vec::new(), 10), ClientPage::default());
        assert_eq!(merge(vec![ClientPage::default(); 3], 10), ClientPage::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Page after page, every client comes once and in order, whatever is on which node and however short the nodes' own pages are.
        #[test]
        fn pages_have_every_client_once(
            nodes in proptest::collection::vec(proptest::collection::btree_set("[a-e]{1,3}", 0..40), 1..5),
            limit in 1_usize..12,
            caps in proptest::collection::vec(1_usize..15, 5),
        ) {
            let mut found = Vec::new();
            let mut after: Option<String> = None;
            loop {
                let parts = nodes.iter().zip(&caps);
                let parts = parts.map(|(node, cap)| part(node, after.as_deref(), limit.min(*cap))).collect();
                let page = merge(parts, limit);
                prop_assert!(page.clients.len() <= limit);
                found.extend(page.clients.iter().map(|client| client.client_id.clone()));
                match page.next {
                    Some(next) => {
                        prop_assert!(Some(&next) > after.as_ref());
                        after = Some(next);
                    }
                    None => break,
                }
            }
            let all: BTreeSet<_> = nodes.iter().flatten().cloned().collect();
            prop_assert_eq!(found, all.into_iter().collect::<Vec<_>>());
        }
    }
}
