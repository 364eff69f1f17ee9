//! What the nodes of a cluster owe one another, as machines: events and a time come in, actions go out.
//!
//! Pure: no socket, no file, no clock, no task. The shard that has the session owns its machines and carries out what they say.

pub mod session_move;
