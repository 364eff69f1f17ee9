//! Many nodes, one broker: real processes with fault relays between them.
