//! Times of one kind, and their percentiles.

use std::fmt;
use std::time::Duration;

/// How long something took, again and again.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that so many of a hundred did not exceed; zero when there are none.
    pub fn percentile(&self, of_hundred: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * of_hundred).div_ceil(100).max(1) - 1;
        sorted.get(rank).copied().unwrap_or_default()
    }

    pub fn max(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (middle, high, max) = (self.percentile(50), self.percentile(99), self.max());
        write!(f, "p50 {middle:.1?}, p99 {high:.1?}, longest {max:.1?} of {}", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latencies;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let latencies: Latencies = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(latencies.percentile(50), Duration::from_millis(100));
        assert_eq!(latencies.percentile(99), Duration::from_millis(198));
        assert_eq!(latencies.max(), Duration::from_millis(200));
        assert_eq!(Latencies::default().percentile(99), Duration::ZERO);
    }
}
