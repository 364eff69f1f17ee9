//! What was acknowledged survives SIGKILL and a power cut: the real program on real files.
//!
//! Tests with choices print their seed; `HOLDFAST_SEED` replays it.
//!
//! Read first: `kill_rounds.rs`.

mod kill_rounds;
