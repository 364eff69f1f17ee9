//! `CONFORMANCE.md` and the tests say the same.
