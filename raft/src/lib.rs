//! The control plane of Holdfast: who holds which session, who wants which topics, and which Wills are owed.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`command`] | what is asked ([`Command`]), what came of it ([`Outcome`]), what the node has to do now ([`Effect`]) |
//! | [`state`] | [`ControlState`]: the deterministic machine that commands are applied to |
//! | [`standalone`] | [`Standalone`]: one node without a log, the same machine applied directly |
//! | `group` | [`Group`]: one node of many, openraft in between; read its page for the life of a node |
//! | [`liveness`] | who may go on, who has expired, when a node must stop by itself |
//! | `membership` | how a cluster is founded, who comes and who goes |
//! | [`batcher`] | many commands, one entry of the log |
//! | `seat` | this node's incarnation and grant; what it is told ([`Audience`]) |
//! | `log_store`, `state_machine`, `network` | what openraft asks for: the log, the applied state and its snapshots, the other nodes ([`Network`]) |
//! | `entry`, `wire` | the bytes of entries and messages |
//!
//! No socket is opened here and no thread of a shard is touched: [`Network`] carries messages, [`Audience`] hears what was applied.
//!
//! The state is the same for one node and for many. It reads no clock (time comes with each command), draws no random numbers and does no
//! I/O, so the same commands in the same order make the same state everywhere; [`ControlState::digest`] says whether they did.
//!
//! The words: a *lease* is the record of one client id; it has a *holder*, the node that has the session, and at most one *claim*, that of a
//! connection elsewhere which waits for it; its *epoch* grows each time a connection takes or claims it, and what a connection of an older epoch
//! asks is refused. An *incarnation* is one life of a node as the state counts it. A lease whose holder is dead is *missing*. A *route* is a
//! topic filter that some session of a node subscribes to.
//!
//! Many nodes share one log of [`Proposal`]s. Each of them applies it and carries out what of the effects is its own; one that jumps over entries by a
//! snapshot carries out the [difference](ControlState::difference).
//!
//! A node that keeps its sessions over a restart keeps their leases too: each command says which leases it changed
//! ([`Applied::changes`]), as plain data that somebody else writes down, and [`Standalone::restore`] makes the state from what was written.
//!
//! Read first: the scripts in `state/tests/scripts.rs`, whose names are the rules of one node, then those in `state/tests/cluster_scripts.rs`.

mod admission;
pub mod batcher;
pub mod clock;
pub mod command;
mod entry;
mod group;
pub mod liveness;
mod log_store;
mod membership;
mod network;
mod seat;
pub mod standalone;
pub mod state;
mod state_machine;
mod wire;

pub use admission::{NAME_BYTES_MAX, TEXT_BYTES_MAX, WILL_BYTES_MAX};
pub use batcher::Ticket;
pub use command::{
    Applied, AppliedProposal, Ban, BanTarget, ClientId, Command, Effect, Incarnation, LeaseChange, LeaseImage,
    LeaseWill, NodeId, Origin, Outcome, Proposal, Refusal, SessionEpoch, ShareMembers, ShareRoute, WillFate,
};
pub use group::{
    AskFitness, Complaints, Fitness, Group, LeaveError, MemberView, Options, RegisterError, StartError, Status,
};
pub use network::Network;
pub use seat::{AppliedEntry, Audience};
pub use standalone::Standalone;
pub use state::{BANS_MAX, Claim, ControlState, Counts, Estate, HeirsView, NodeView, Session, SnapshotError, heir_of};
pub use wire::{Lane, MESSAGE_BYTES_MAX};
