//! What the client of a connection may do, as the session asks it. Who answers is the shard's to say.

use std::fmt;

/// What is to be done with something that a client may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    Allowed,
    /// Refused, and the client is told where its version can be.
    Denied,
    /// Its connection ends.
    Expelled,
}

/// Answers for one connection. What it says is logged and counted by whoever says it.
pub trait Rights: fmt::Debug + Send {
    fn may_publish(&mut self, topic: &str) -> Ruling;
    /// `filter` may have a share prefix.
    fn may_subscribe(&mut self, filter: &str) -> Ruling;
    fn may_read(&mut self, topic: &str) -> bool;
}
