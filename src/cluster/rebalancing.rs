//! How many clients each node should let go so that all have their share. [pure]
//!
//! A node's share is its weight's part of all clients. Nodes within a tolerance of their share are left alone: clients that are moved for little are moved again and again.
//!
//! Test to read first: `tests::who_has_more_than_its_share_lets_the_rest_go`.

/// A node above its share by no more than that part of it, in percent, or by so few, is left alone.
const TOLERANCE_PERCENT: u64 = 5;
const TOLERANCE_COUNT: u64 = 10;

/// A node, as far as its clients go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weighed {
    pub connections: u64,
    /// How many it takes at the most.
    pub room: u64,
    /// Its part among all; 0 for one that is to have none, such as one that is drained.
    pub weight: u32,
}

/// Of each node, its share and how many it should let go.
pub fn plan(nodes: &[Weighed]) -> Vec<(u64, u64)> {
    let all: u64 = nodes.iter().map(|node| node.connections).sum();
    let weights: u64 = nodes.iter().map(|node| u64::from(node.weight)).sum();
    let share = |node: &Weighed| match weights {
        0 => node.connections,
        weights => (u128::from(all) * u128::from(node.weight)).div_ceil(weights.into()) as u64,
    };
    let surplus = |node: &Weighed| {
        let share = share(node);
        let slack = if node.weight == 0 { 0 } else { (share * TOLERANCE_PERCENT / 100).max(TOLERANCE_COUNT) };
        if node.connections > share + slack { node.connections - share } else { 0 }
    };
    // Nobody is let go who finds no place.
    let places = |node: &Weighed| share(node).min(node.room).saturating_sub(node.connections);
    let (wanted, there): (u64, u64) = (nodes.iter().map(surplus).sum(), nodes.iter().map(places).sum());
    let granted = |count: u64| {
        if wanted <= there { count } else { (u128::from(count) * u128::from(there) / u128::from(wanted)) as u64 }
    };
    nodes.iter().map(|node| (share(node), granted(surplus(node)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(of: &[(u64, u32)]) -> Vec<Weighed> {
        of.iter()
            .map(|(connections, weight)| Weighed { connections: *connections, room: 100_000, weight: *weight })
            .collect()
    }

    fn moves(of: &[(u64, u32)]) -> Vec<u64> {
        plan(&nodes(of)).into_iter().map(|(_, count)| count).collect()
    }

    #[test]
    fn who_has_more_than_its_share_lets_the_rest_go() {
        assert_eq!(moves(&[(300, 1), (300, 1), (0, 1)]), [100, 100, 0], "a node that was away has none");
        assert_eq!(moves(&[(400, 1), (0, 3)]), [300, 0], "a new node weighs more");
        assert_eq!(moves(&[(100, 1), (105, 1)]), [0, 0], "little is left alone");
        assert_eq!(moves(&[(300, 0), (100, 1)]), [300, 0], "who is to have none");
        assert_eq!(moves(&[(300, 1)]), [0]);
        assert_eq!(moves(&[(9, 0)]), [0], "nowhere to go");
        assert_eq!(moves(&[]), [0; 0]);
    }

    #[test]
    fn nobody_is_let_go_who_finds_no_place() {
        let mut there = nodes(&[(900, 1), (0, 1)]);
        there[1].room = 90;
        assert_eq!(plan(&there)[0], (450, 90));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Once done, it is done: who was let go is elsewhere, and nobody is let go again.
        #[test]
        fn a_plan_that_was_carried_out_leaves_nothing_to_do(of in proptest::collection::vec((0_u64..20_000, 1_u32..5), 1..7)) {
            let before = nodes(&of);
            let planned = plan(&before);
            let out: u64 = planned.iter().map(|(_, count)| count).sum();
            let mut places: Vec<u64> =
                before.iter().zip(&planned).map(|(node, (share, _))| share.saturating_sub(node.connections)).collect();
            prop_assert!(out <= places.iter().sum::<u64>());
            let mut after = before.clone();
            let mut left = out;
            for ((node, (_, count)), place) in after.iter_mut().zip(&planned).zip(&mut places) {
                let comes = left.min(*place);
                left -= comes;
                node.connections = node.connections - count + comes;
            }
            prop_assert_eq!(after.iter().map(|node| node.connections).sum::<u64>(), before.iter().map(|node| node.connections).sum::<u64>());
            prop_assert!(plan(&after).iter().all(|(_, count)| *count == 0), "{:?}", after);
        }
    }
}
