//! What nodes owe one another, as machines: no sockets, no clock, no tasks.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`publish_legs`] | what one shard has sent to one other node and not yet seen accepted |
//! | [`applied_waits`] | who waits until every node routes with a state |

pub mod applied_waits;
pub mod publish_legs;
