//! What a node waits for that the cluster has not taken in, in words for whoever asks it and for its log.
//!
//! Owns nothing. Tests to read first: `tests`.

use holdfast_raft::Group;

use crate::link::{Links, PeerView};

/// Seeds and nodes that are named; of more, only how many.
const NAMED_MAX: usize = 5;

/// What the group says (`of_group`), how many nodes are missing to found a cluster, and whom the links do not reach.
pub(super) fn why_not_joined(of_group: String, group: &Group, links: Option<&Links>, expected_size: usize) -> String {
    let (peers, seeds) = links.map(|links| (links.peers(), links.seeds_without_nodes())).unwrap_or_default();
    let founds = (group.status().cluster_id == 0).then_some(expected_size);
    in_words(of_group, founds, &peers, seeds)
}

/// `founds`: how many nodes it takes, if the node is in no cluster.
fn in_words(mut why: String, founds: Option<usize>, peers: &[PeerView], seeds: Vec<(String, String)>) -> String {
    if let Some(expected_size) = founds {
        let here = 1 + peers.iter().filter(|peer| peer.is_up).count();
        let missing = expected_size.saturating_sub(here);
        if missing > 0 {
            why.push_str(&format!(
                "; it takes {expected_size} nodes to found one (expected_size), and {missing} are missing"
            ));
        }
    }
    let down = peers.iter().filter(|peer| !peer.is_up);
    let down = down.filter_map(|peer| Some((peer.peer.name.to_string(), peer.last_error.clone()?)));
    let seeds = seeds.into_iter().map(|(seed, trouble)| (format!("seed {seed}"), trouble));
    let mut unreached = down.chain(seeds);
    for (who, trouble) in unreached.by_ref().take(NAMED_MAX) {
        why.push_str(&format!("; {who}: {trouble}"));
    }
    match unreached.count() {
        0 => why,
        more => format!("{why}; and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_and_which_seeds_are_not_reached_is_said() {
        let seeds =
            |count: usize| (1..=count).map(|number| (format!("n{number}:7946"), "refused".to_owned())).collect();
        let why = "this node is in no cluster".to_owned();
        assert_eq!(
            in_words(why.clone(), Some(3), &[], seeds(1)),
            "this node is in no cluster; it takes 3 nodes to found one (expected_size), and 2 are missing; seed n1:7946: refused"
        );
        assert_eq!(in_words(why.clone(), None, &[], Vec::new()), why);
        assert!(in_words(why, Some(1), &[], seeds(8)).ends_with("; seed n5:7946: refused; and 3 more"));
    }
}
