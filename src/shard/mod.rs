//! The event loop of one core (being written): so far what listeners hand to it.

pub mod byte_stream;
pub mod greeted;
