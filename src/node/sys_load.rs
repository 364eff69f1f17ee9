//! The averages of `$SYS/broker/load`: what happened in a minute, smoothed over one, five and fifteen, as mosquitto does it. Pure.

/// Windows, in minutes, with the last level of their topics.
const WINDOWS: [(f64, &str); 3] = [(1.0, "1min"), (5.0, "5min"), (15.0, "15min")];

/// The averages of one counter.
#[derive(Debug, Default)]
pub(super) struct Load {
    last: Option<u64>,
    averages: [f64; WINDOWS.len()],
}

impl Load {
    /// The counter is at `count` now, `secs` behind the time before. Returns the averages per minute, with their names.
    pub fn advance(&mut self, count: u64, secs: f64) -> [(&'static str, f64); WINDOWS.len()] {
        let before = self.last.replace(count).unwrap_or(count);
        let minutes = secs / 60.0;
        let rate = if minutes > 0.0 { count.saturating_sub(before) as f64 / minutes } else { 0.0 };
        for (average, (window, _)) in self.averages.iter_mut().zip(WINDOWS) {
            *average = rate + (-minutes / window).exp() * (*average - rate);
        }
        std::array::from_fn(|place| (WINDOWS[place].1, self.averages[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_comes_near_to_what_goes_on_and_the_short_one_first() {
        let mut load = Load::default();
        load.advance(1_000, 10.0);
        let after_a_minute = (1..=6).fold(Default::default(), |_, n| load.advance(1_000 + n * 10, 10.0));
        let [(name, one), (_, five), (_, fifteen)] = after_a_minute;
        assert_eq!(name, "1min");
        assert!((one - 60.0 * (1.0 - (-1.0_f64).exp())).abs() < 1e-9, "{one}");
        assert!(one > five && five > fifteen && fifteen > 0.0);
        let quiet = (0..600).fold(after_a_minute, |_, _| load.advance(1_060, 10.0));
        assert!(quiet.iter().all(|(_, average)| *average < 0.1), "{quiet:?}");
    }
}
