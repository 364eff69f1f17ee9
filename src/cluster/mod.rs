//! What nodes owe one another, as machines: events and a time come in, actions go out.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`publish_legs`] | what one shard has sent to one other node, until it is stable there |
//! | [`no_room`] | what another node has not taken because its disk is full |
//! | [`applied_waits`] | who waits until every node routes with a state |
//! | [`copies`] | the copies of sessions: at their home, and at its heirs |
//! | [`draining`] | clients that are let go a few at a time, and how a node is emptied |
//! | [`rebalancing`] | how many clients each node should let go |
//! | [`route_commands`] | routes as commands of bounded size |
//! | [`share_groups`] | who keeps a message for a share group until a member has it |
//! | [`session_move`] | a session on its way from the node that holds it to the one its client has connected to |
//!
//! Pure: no socket, no file, no clock, no task. The shard that has the session owns its machines and carries out what they say.

pub mod applied_waits;
pub mod copies;
pub mod draining;
pub mod no_room;
pub mod publish_legs;
pub mod rebalancing;
pub mod route_commands;
pub mod session_move;
pub mod share_groups;
