//! How often and how long: little by default, as much as the proof asks for on demand.
//!
//! `HOLDFAST_ROUNDS=full` runs every race as often, every fault as long and every crowd as large as the field cases say;
//! `HOLDFAST_ROUNDS=500` sets the rounds of every race to 500 and leaves the rest as it is by default.

use std::time::Duration;

const VARIABLE: &str = "HOLDFAST_ROUNDS";

/// What the environment asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Rounds(u32),
    Full,
}

fn asked() -> Asked {
    match std::env::var(VARIABLE) {
        Err(_) => Asked::Nothing,
        Ok(text) => read(&text),
    }
}

fn read(text: &str) -> Asked {
    match text {
        "" => Asked::Nothing,
        "full" => Asked::Full,
        number => Asked::Rounds(number.parse().unwrap_or_else(|_| panic!("{VARIABLE} is a number or full"))),
    }
}

/// The rounds of a race: by default, and for the proof.
pub fn rounds(default: u32, full: u32) -> u32 {
    match asked() {
        Asked::Nothing => default,
        Asked::Rounds(number) => number,
        Asked::Full => full,
    }
}

/// A number of clients or messages: by default, and for the proof.
pub fn many(default: usize, full: usize) -> usize {
    if is_full() { full } else { default }
}

/// A time in seconds: by default, and for the proof.
pub fn secs(default: u64, full: u64) -> Duration {
    Duration::from_secs(if is_full() { full } else { default })
}

/// Whether this is the proof.
pub fn is_full() -> bool {
    asked() == Asked::Full
}

#[cfg(test)]
mod tests {
    use super::{Asked, read};

    #[test]
    fn the_variable_is_a_number_or_the_word() {
        assert_eq!(read(""), Asked::Nothing);
        assert_eq!(read("2000"), Asked::Rounds(2_000));
        assert_eq!(read("full"), Asked::Full);
    }
}
