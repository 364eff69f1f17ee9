//! The words of the commands.
