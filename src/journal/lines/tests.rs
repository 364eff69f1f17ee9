//! Lines and what they are of.
