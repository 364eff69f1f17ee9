//! How long things take: counts in fixed buckets. One writer, plain loads and stores, as with [`Counter`].

use super::Counter;

/// Upper bounds of the buckets, in microseconds; one more bucket is for what is longer.
pub const BOUNDS_US: [u64; 14] =
    [25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000, 10_000_000];

/// See the module.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub fn observe_us(&self, us: u64) {
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us);
    }

    /// Counts by bucket, each for itself, and the sum of all in microseconds.
    pub fn read(&self) -> ([u64; BOUNDS_US.len() + 1], u64) {
        (std::array::from_fn(|bucket| self.counts[bucket].get()), self.sum_us.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_nothing_is_too_long() {
        let histogram = Histogram::default();
        [0, 25, 26, 10_000_000, 10_000_001].into_iter().for_each(|us| histogram.observe_us(us));
        let (counts, sum) = histogram.read();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (2, 1, 1, 1));
        assert_eq!(sum, 20_000_052);
    }
}
