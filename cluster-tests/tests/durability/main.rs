//! What was acknowledged survives SIGKILL and a power cut: the real program on real files.
//!
//! Tests with choices print their seed; `HOLDFAST_SEED` replays it.
//!
//! Read first: `kill_rounds.rs`.

mod damage;
mod full_disk;
mod handshakes;
mod kill_rounds;
mod large;
mod power_loss;
mod queues;
mod retained;
mod sessions;
mod shared;
mod shim;
mod timers;
mod wills;
