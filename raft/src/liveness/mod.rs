//! Node leases: who may go on, who has expired, and when a node must stop by itself. [pure]
//!
//! | part | whose | what it decides |
//! | --- | --- | --- |
//! | [`Tenure`] | every node | until when it may acknowledge, deliver and publish; when it must close its clients |
//! | [`Renewals`] | the leader | what a renewal is answered, whom to expire |
//! | [`QuorumAcks`] | the leader | how old the proof is that a majority still follows it |
//!
//! Time comes in as milliseconds of the caller's boot clock. The one promise: **no incarnation has a valid grant when somebody expires it.** It rests on
//! four rules.
//! - A grant ends a lease less a margin after the leader last had proof of its majority, and is counted from when the node *sent* its renewal. Who was elected
//!   without the old leader's knowledge was elected after that proof, and waits a full lease from its own first entry before it expires anybody.
//! - A leader answers only when it has applied an entry of its own term: what an earlier leader has proposed is then known to it. It answers
//!   nobody whose expiry it has proposed or decided.
//! - An expiry comes a full lease after the last answer to that incarnation, also when other nodes complain about it: until then it is only not renewed.
//! - A jump of the wall clock against the boot clock voids a grant, for the machine may have been paused.
//!
//! Test to read first: `tests::a_deposed_leader_grants_nothing_that_outlives_its_successors_patience`.

mod acks;
mod renewals;
mod tenure;
#[cfg(test)]
mod tests;

pub use acks::QuorumAcks;
pub use renewals::{Answer, Asking, Renewals, Verdict};
pub use tenure::{Standing, Tenure};

/// The times that grants go by, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A node is expired after so much silence.
    pub lease_ms: u64,
    /// A node renews this often.
    pub renew_ms: u64,
    /// A grant ends so much before the lease would, for clocks that do not go at the same speed.
    pub margin_ms: u64,
    /// A node that is suspended for so long closes its clients and registers anew.
    pub fence_grace_ms: u64,
}

impl Timing {
    /// The longest grant.
    #[must_use]
    pub fn grant_ms(&self) -> u64 {
        self.lease_ms.saturating_sub(self.margin_ms)
    }
}
