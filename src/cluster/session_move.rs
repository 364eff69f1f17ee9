//! A session moves from the node that holds it to the one its client has connected to.
//!
//! Two machines for one claim, which is named by client id and epoch: [`Giving`] at the holder, [`Taking`] at the claimant. They exchange [`SessionFrame`]s
//! and hear what the control state has applied; the shard of the client id on either side owns its machine, carries out the actions in their order and reports back.
//! What the session is made of is bytes to them (`journal::wire`).
//!
//! # The walk of a move
//! 1. The claim is applied on both nodes. The holder closes the old connection, waits until the control state knows how it ended, until the links have acknowledged
//!    all that it published and until no Will of the client is due, and *yields*: the subscriptions.
//! 2. The claimant enters them, holds what they bring, and proposes the cut: from its index on every node routes to the claimant as well.
//! 3. The holder goes on queueing. When a mark of at least that index has come from everywhere, behind all that was routed before, it has everything that the claimant
//!    has not, and sends the state.
//! 4. The claimant writes the state down, and behind it what it held, and proposes to settle. When that is applied it answers its client, and the holder forgets.
//!
//! A clean claim needs only the first step, and the holder yields nothing.
//!
//! # Invariants
//! - The holder has everything until the settling is applied; so the claimant may die or give up at any step.
//! - Parts are numbered from 0 through both phases, and one is under way at a time: the next is made when the one before is asked behind. So any frame may be lost, doubled or
//!   late, memory is bounded by one part on either side, and a slow claimant slows the holder down.
//! - A claimant that has proposed to settle waits for the answer whatever happens: the session may be its own already.
//!
//! Test to read first: `tests::a_move_walks_through_its_steps`; then `tests::one_side_has_the_session_whatever_is_lost`.

mod frame;
mod giving;
mod taking;
#[cfg(test)]
mod tests;

pub use frame::{MalformedFrame, PART_BYTES_MAX, SessionFrame};
pub use giving::{Claim, Giving, GivingAction, GivingActions, GivingEvent, Source};
pub use taking::{Patience, Refusal, Taking, TakingAction, TakingActions, TakingEvent};
