//! Holdfast: an MQTT broker that stays one broker when it is many machines. This page is the map.
//!
//! # Layers
//! A module uses lower ranks only; siblings do not import each other (`cluster-tests/tests/tidy` holds it). Ranks 1 to 3 are pure: bytes, events
//! and a time come in, packets and effects go out; no socket, file, clock, task, lock or randomness. [`journal`] is pure too.
//!
//! | rank | modules | what they are |
//! | --- | --- | --- |
//! | 0 | [`limits`] [`metrics`] | every bound with its reason; every counter |
//! | 1 | [`topic`] | names, filters, filters that match a name, names that match a filter |
//! | 2 | [`mqtt`] | the codec of MQTT 3.1, 3.1.1 and 5.0; the message at rest |
//! | 3 | [`session`] [`retained`] [`cluster`] | the session machine; the retained messages; what nodes owe one another |
//! | 4 | [`subscriptions`] [`access`] [`config`] [`journal`] [`byte_stream`] | who wants a topic; who may connect and do what; what the operator said; what is written to disk, as bytes and as lines of text; a connection, whatever carries it |
//! | 5 | [`link`] [`admission`] | the connections between nodes; who may connect now |
//! | 6 | [`shard`] | the event loop of one core |
//! | 7 | [`listener`] [`admin`] | sockets, TLS, WebSocket, CONNECT; health, metrics and commands over HTTP |
//! | 8 | [`node`] | start and recovery, supervision, end |
//! | 9 | [`cli`] | `holdfast serve`, `dev`, `pub`, `sub`, `cluster`, `client`, `topic`, `ban`, `acl`, `key`, `node`, `retained`, `publish`, `health`, `config`, `passwd`, `data` |
//!
//! The control state (session leases, routes, Wills) is the crate `holdfast-raft`; the data directory is `holdfast-storage`: one journal, to which all shards hand in what they write
//! down, and one thread that writes and syncs it for all of them.
//!
//! # Owners
//! | state | owner |
//! | --- | --- |
//! | a session, its queue and windows; its connection | the [`shard`] of its client id, and no other thread |
//! | the move of a session to another node, or from one ([`cluster::session_move`]) | the shard of its client id, on either node |
//! | a message for a share group that another node has, or nobody takes ([`cluster::share_groups`]) | the shard that has to find a member for it |
//! | the copies of the sessions of a shard of another node, and what is inherited of them ([`cluster::copies`]) | the shard that reads the connection of that one; then those of the clients |
//! | what a shard has written down, and what waits until it is kept | the shard (`shard::keeping`) |
//! | which sessions of a shard want a topic | [`subscriptions::ShardIndex`], in the shard |
//! | which shards want a topic; share groups | [`subscriptions::NodeIndex`], of the node, under a read-mostly lock |
//! | the rules of ACL files, and their version | [`access::acl::Acl`], of the node; each connection compiles them for its client, and again when the version has changed |
//! | retained messages, and what is remembered of those that are gone | [`retained::Map`], of the node, under a read-mostly lock; its stamps come from [`retained::HybridClock`], without a lock |
//! | leases, routes, Wills | the control state; a lone node applies commands to it under a mutex (`node::control`) |
//! | a connection before its CONNECT is judged | [`listener`] |
//! | the connections of the admin port | [`admin`]; what it tells comes from the owners above, each asked for its own (`node::admin_source`) |
//! | the journal, and what of it is live | the writing thread of `holdfast-storage`; all others hold a handle |
//! | whether the disk has room | `shard::StorageLevel`, set by the storage, read at every publish |
//!
//! # The walk of one PUBLISH
//! 1. The socket of the publisher is readable: its task lets the shard read up to 64 KiB into the one buffer of the shard and decode every whole packet
//!    ([`shard`], `reading.rs`; [`mqtt::next_frame`], [`mqtt::decode`]). When the disk is full, who can be refused is refused, and who cannot is held.
//! 2. [`session::Session::publish`] resolves the topic alias, refuses what must be refused, remembers a QoS 2 packet identifier. What this packet
//!    changes in sessions that outlive their connection is written down as items: it is one *section*.
//! 3. The shard routes (`publishing.rs`): the retained store first, then the other shards that have a subscriber (one message each), its own
//!    sessions, one member of each share group. A shard that has to keep the message owes an answer (a *leg*).
//! 4. [`session::Session::deliver`] writes the packet into the outbox of the subscriber's connection, or puts the message into the session's queue. What must not be
//!    sent before it is kept waits there: a QoS 2 packet identifier.
//! 5. PUBACK or PUBREC goes into the publisher's own outbox: at once when nothing had to be written down, else when all of it is kept, here and in the other
//!    shards, and never before the answer to an earlier packet (`keeping.rs`, `promises.rs`, `answers.rs`).
//! 6. Behind all connections that were ready in this turn the flusher runs: the turn's mail goes to the other shards, what was written down goes to the storage as one
//!    *submission*, and there is one write for each connection that has something to send.
//! 7. The storage writes what all shards have handed in as one batch, syncs it, and tells each shard by its mailbox up to which submission it is kept: the
//!    answers that waited for it leave with the next turn.
pub mod access;
pub mod admin;
pub mod admission;
pub mod byte_stream;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod journal;
pub mod limits;
pub mod link;
pub mod listener;
pub mod metrics;
pub mod mqtt;
pub mod node;
pub mod retained;
pub mod session;
pub mod shard;
pub mod subscriptions;
pub mod topic;
