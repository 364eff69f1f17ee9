//! Whether two nodes have the same retained values, told without listing them.
//!
//! The topics are spread over [`BUCKETS`] buckets; each has the sum of a hash of what is in it: of (topic, version), whether a value or the tombstone of
//! one. A sum does not depend on the order in which things came, and what goes is subtracted, so it is kept up to date with every change. Sums that differ prove
//! that the buckets differ; sums that are equal leave a chance of 1 in 2^64 that they do not.
//!
//! A value that expires leaves a tombstone of its own version, which counts for the same: nodes whose clocks are a little apart agree all the while.
//!
//! The hash is part of what nodes say to one another: it never changes. Test to read first: `tests::equal_sets_are_equal_whatever_their_history`.

use super::Version;

pub const BUCKETS: usize = 256;

/// The sums of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(pub [u64; BUCKETS]);

/// A set of buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buckets(pub [u64; BUCKETS / 64]);

/// The hash of a topic.
#[derive(Debug, Clone, Copy)]
pub struct TopicHash(u64);

const MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

impl Default for Digest {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Digest {
    /// `version` of the topic came.
    pub fn add(&mut self, topic: TopicHash, version: Version) {
        let sum = &mut self.0[topic.bucket()];
        *sum = sum.wrapping_add(topic.with(version));
    }

    /// `version` of the topic went.
    pub fn remove(&mut self, topic: TopicHash, version: Version) {
        let sum = &mut self.0[topic.bucket()];
        *sum = sum.wrapping_sub(topic.with(version));
    }

    /// The buckets in which the two are not the same.
    pub fn differing(&self, other: &Digest) -> Buckets {
        let mut buckets = Buckets::default();
        for bucket in (0..BUCKETS).filter(|bucket| self.0[*bucket] != other.0[*bucket]) {
            buckets.0[bucket / 64] |= 1 << (bucket % 64);
        }
        buckets
    }
}

impl Buckets {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn holds(&self, topic: &str) -> bool {
        let bucket = TopicHash::of(topic).bucket();
        self.0[bucket / 64] & (1 << (bucket % 64)) != 0
    }
}

impl TopicHash {
    pub fn of(topic: &str) -> TopicHash {
        let (words, rest) = topic.as_bytes().as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().copied().map(u64::from_le_bytes);
        let all = words.chain([u64::from_le_bytes(last), topic.len() as u64]);
        TopicHash(all.fold(MULTIPLIERS[0], |hash, word| mix(hash ^ word, MULTIPLIERS[1])))
    }

    fn bucket(self) -> usize {
        (self.0 >> 56) as usize
    }

    fn with(self, version: Version) -> u64 {
        let stamped = mix(self.0 ^ version.stamp, MULTIPLIERS[2]);
        mix(stamped ^ version.node.rotate_left(32), MULTIPLIERS[1])
    }
}

/// The product of both, folded: every bit of the result depends on all of `left`.
fn mix(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    let folded = (product as u64) ^ (product >> 64) as u64;
    // A factor of 0 would forget what came before.
    folded.wrapping_add(right.rotate_left(23)) ^ left.rotate_left(41)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn of(set: &BTreeMap<String, Version>) -> Digest {
        let mut digest = Digest::default();
        set.iter().for_each(|(topic, version)| digest.add(TopicHash::of(topic), *version));
        digest
    }

    #[test]
    fn the_hash_is_what_it_was() {
        let mut digest = Digest::default();
        digest.add(TopicHash::of("plant/1/sensor/temperature"), Version { stamp: 7, node: 9 });
        let (bucket, sum) = digest.0.iter().enumerate().find(|(_, sum)| **sum != 0).expect("one bucket");
        assert_eq!((bucket, *sum), (185, 414_372_156_181_764_269));
    }

    #[test]
    fn topics_spread_over_the_buckets() {
        let mut counts = [0; BUCKETS];
        (0..25_600).for_each(|number| counts[TopicHash::of(&format!("t/{number}")).bucket()] += 1);
        assert!(counts.iter().all(|count| (40..180).contains(count)), "{counts:?}");
    }

    #[test]
    fn near_things_have_sums_of_their_own() {
        let mut seen = std::collections::HashSet::new();
        for topic in ["", "\0", "a", "a\0", "aaaaaaaa", "aaaaaaaaa", "aaaaaaaa\0"] {
            for stamp in 0..40 {
                for node in 0..40 {
                    assert!(seen.insert(TopicHash::of(topic).with(Version { stamp, node })));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn equal_sets_are_equal_whatever_their_history(
            steps in prop::collection::vec(("[a-c/]{0,12}", prop::option::of((0_u64..3, 0_u64..2))), 0..60),
        ) {
            let (mut digest, mut set) = (Digest::default(), BTreeMap::new());
            let earlier = set.clone();
            for (topic, version) in steps {
                let hash = TopicHash::of(&topic);
                if let Some(old) = set.remove(&topic) {
                    digest.remove(hash, old);
                }
                if let Some((stamp, node)) = version {
                    digest.add(hash, Version { stamp, node });
                    set.insert(topic, Version { stamp, node });
                }
            }
            prop_assert_eq!(&digest, &of(&set));
            let differing = digest.differing(&of(&earlier));
            prop_assert!(set.keys().all(|topic| differing.holds(topic)));
            prop_assert_eq!(differing.is_empty(), set.is_empty());
        }
    }
}
