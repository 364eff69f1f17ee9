//! Holdfast: an MQTT broker that stays one broker when it is many machines. This page is the map.
//!
//! # Layers
//! A module uses lower ranks only; siblings do not import each other (`cluster-tests/tests/tidy` holds it). Ranks 1 to 3 are pure: bytes, events
//! and a time come in, packets and effects go out; no socket, file, clock, task, lock or randomness.
//!
//! | rank | modules | what they are |
//! | --- | --- | --- |
//! | 0 | [`limits`] [`metrics`] | every bound with its reason; every counter |
//! | 1 | [`topic`] | names, filters, filters that match a name, names that match a filter |
//! | 2 | [`mqtt`] | the codec of MQTT 3.1, 3.1.1 and 5.0; the message at rest |
//! | 3 | [`session`] [`retained`] | the session machine; the retained messages |
//! | 4 | [`subscriptions`] [`access`] [`config`] | who wants a topic; who may connect; what the operator said |
//! | 6 | [`shard`] | the event loop of one core |
//! | 7 | [`listener`] | sockets, TLS, WebSocket, CONNECT |
//! | 8 | [`node`] | start, supervision, end |
//! | 9 | [`cli`] | `holdfast serve`, `pub`, `sub`, `config`, `passwd`, `data` |
//!
//! The control state (session leases, routes, Wills) is the crate `holdfast-raft`; the data directory is `holdfast-storage`.
//!
//! # Owners
//! | state | owner |
//! | --- | --- |
//! | a session, its queue and windows; its connection | the [`shard`] of its client id, and no other thread |
//! | which sessions of a shard want a topic | [`subscriptions::ShardIndex`], in the shard |
//! | which shards want a topic; share groups | [`subscriptions::NodeIndex`], of the node, under a read-mostly lock |
//! | retained messages | [`retained::Map`], of the node, under a read-mostly lock |
//! | leases, routes, Wills | the control state; a lone node applies commands to it under a mutex (`node::control`) |
//! | a connection before its CONNECT is judged | [`listener`] |
//!
//! # The walk of one PUBLISH
//! 1. The socket of the publisher is readable: its task lets the shard read up to 64 KiB into the one buffer of the shard and decode every whole packet
//!    ([`shard`], `connection.rs`; [`mqtt::next_frame`], [`mqtt::decode`]).
//! 2. [`session::Session::publish`] resolves the topic alias, refuses what must be refused, remembers a QoS 2 packet identifier.
//! 3. The shard routes (`publishing.rs`): the retained store first, then the other shards that have a subscriber (one message each), its own
//!    sessions, one member of each share group.
//! 4. [`session::Session::deliver`] writes the packet into the outbox of the subscriber's connection, or puts the message into the session's queue.
//! 5. PUBACK or PUBREC goes into the publisher's own outbox.
//! 6. Behind all connections that were ready in this turn the flusher runs: one write for each connection that has something to send.
pub mod access;
pub mod cli;
pub mod config;
pub mod journal;
pub mod limits;
pub mod listener;
pub mod metrics;
pub mod mqtt;
pub mod node;
pub mod retained;
pub mod session;
pub mod shard;
pub mod subscriptions;
pub mod topic;
