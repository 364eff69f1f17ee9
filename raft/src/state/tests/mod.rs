//! The control state, tested from outside: through `apply` and the look-ups.
