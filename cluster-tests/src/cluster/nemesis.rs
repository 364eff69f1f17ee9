//! What a test does to a cluster, and how it is undone.

use std::time::Duration;

use super::Cluster;
use super::relay::Fault;

/// Something that is wrong until it is healed or dropped.
#[must_use = "it is healed when it is dropped"]
pub struct Wound<'c> {
    cluster: &'c Cluster,
    /// Ways with a fault.
    ways: Vec<(usize, usize)>,
    frozen: Option<usize>,
}

impl Wound<'_> {
    pub fn heal(self) {}
}

impl Drop for Wound<'_> {
    fn drop(&mut self) {
        for (from, to) in &self.ways {
            self.cluster.way(*from, *to).set(Fault::default());
        }
        if let Some(node) = self.frozen.filter(|node| self.cluster.node(*node).is_running()) {
            self.cluster.node(node).thaw();
        }
    }
}

impl Cluster {
    /// Puts a fault on the ways from one node to another, without those in the other direction.
    pub fn hurt(&self, ways: &[(usize, usize)], fault: Fault) -> Wound<'_> {
        ways.iter().for_each(|(from, to)| self.way(*from, *to).set(fault));
        Wound { cluster: self, ways: ways.to_vec(), frozen: None }
    }

    /// Puts a fault between two nodes, on whatever connects them.
    pub fn hurt_between(&self, one: usize, other: usize, fault: Fault) -> Wound<'_> {
        self.hurt(&[(one, other), (other, one)], fault)
    }

    /// Nothing passes between nodes of different groups.
    pub fn partition(&self, groups: &[&[usize]], fault: Fault) -> Wound<'_> {
        let group = |node: usize| groups.iter().position(|group| group.contains(&node));
        let pairs = self.pairs();
        let ways: Vec<_> = pairs.into_iter().filter(|(from, to)| group(*from) != group(*to)).collect();
        self.hurt(&ways, fault)
    }

    /// Nothing passes between this node and the others.
    pub fn isolate(&self, node: usize, fault: Fault) -> Wound<'_> {
        let others: Vec<_> = self.all().filter(|other| *other != node).collect();
        self.partition(&[&[node], &others], fault)
    }

    /// SIGSTOP until it is healed.
    pub fn freeze(&self, node: usize) -> Wound<'_> {
        self.node(node).freeze();
        Wound { cluster: self, ways: Vec::new(), frozen: Some(node) }
    }

    /// Every way takes so much longer, for good.
    pub fn slow_down(&self, delay: Duration) {
        for (from, to) in self.pairs() {
            self.way(from, to).set(Fault::delay(delay));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ClusterSetup;
    use super::super::relay::{Fault, Way};

    #[test]
    fn a_partition_is_between_the_groups_and_heals_when_it_is_dropped() {
        let cluster = ClusterSetup::new(3).prepare();
        let cut = |cluster: &super::Cluster| {
            let pairs = cluster.pairs().into_iter();
            pairs.filter(|(from, to)| cluster.way(*from, *to).fault().way == Way::Cut).collect::<Vec<_>>()
        };
        let wound = cluster.isolate(0, Fault::cut());
        assert_eq!(cut(&cluster), [(0, 1), (0, 2), (1, 0), (2, 0)]);
        wound.heal();
        assert_eq!(cut(&cluster), []);
        let wound = cluster.partition(&[&[0], &[1], &[2]], Fault::cut());
        assert_eq!(cut(&cluster).len(), 6);
        drop(wound);
        assert_eq!(cut(&cluster), []);
    }

    #[test]
    fn the_configuration_names_the_relays() {
        let cluster = ClusterSetup::new(2).prepare();
        let path = cluster.node(0).installation().folder().join("holdfast.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let relay = cluster.way(0, 1).address();
        assert!(text.contains(&format!("seeds = [\"{relay}\"]")), "{text}");
        assert!(text.contains(&format!("[cluster.peer_addresses]\nn2 = \"{relay}\"")), "{text}");
        assert!(text.contains(&format!("bind = \"{}\"", cluster.node(0).cluster_address())), "{text}");
    }
}
