//! Every bound of a node, with its reason. What an operator may set is in `config`; what stands here is fixed by the design.
//!
//! Read the assertions at the end first: they say how the bounds relate.

/// The one buffer of a shard into which every socket is read. Large enough that a pipelining publisher is decoded
/// in batches of a thousand, small enough to stay in the second-level cache.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Reads of one connection in one turn of its shard, after which the others have their turn.
pub const READS_PER_TURN: usize = 2;

/// Encoded bytes in a connection's outbox from which on messages wait in the session's queue instead, where the
/// queue's limits and policy hold for them.
pub const OUTBOX_SOFT_BYTES: usize = 256 * 1024;

/// Encoded bytes in a connection's outbox from which on nothing more is read from it: a client that sends and
/// never reads its acknowledgements stops itself.
pub const OUTBOX_STOP_READING_BYTES: usize = 512 * 1024;

/// A payload up to this size is copied into the outbox; a larger one is shared by reference.
pub const INLINE_PAYLOAD_BYTES: usize = 2 * 1024;

/// Buffers in one vectored write.
pub const WRITE_VECTORS: usize = 64;

/// Empty outbox buffers a shard keeps for its next turn, and the largest that is worth keeping.
pub const POOLED_BUFFERS: usize = 256;
pub const POOLED_BUFFER_BYTES: usize = 64 * 1024;

/// Messages on their way to another shard that are handed over together.
pub const MAIL_BATCH: usize = 256;

/// Messages, and their bytes, waiting in the mailbox of a shard from which on the other shards stop reading their sockets
/// until it has caught up.
pub const MAILBOX_MESSAGES_HIGH: usize = 32 * 1024;
pub const MAILBOX_BYTES_HIGH: usize = 64 * 1024 * 1024;

/// Shards of a node: they fit in one word of the subscription index.
pub const SHARDS_MAX: usize = 64;

/// Streams of messages there can be: of each shard of 64 nodes the plain one and sixteen of packets.
pub const STREAMS_MAX: usize = 64 * SHARDS_MAX * 17;

/// Messages of one queue that are read back from disk together.
pub const READ_BACK_MESSAGES: usize = 1_000;

/// Bytes that a shard has handed to the disk and that are not kept yet, from which on it reads nothing from its clients.
pub const UNWRITTEN_BYTES_HIGH: usize = 16 * 1024 * 1024;

/// Bytes that the heirs of a shard's sessions do not have yet, from which on it reads nothing from its clients: they are remembered for the next heir.
pub const UNSTABLE_BYTES_HIGH: usize = 32 * 1024 * 1024;

/// How long a CONNACK may wait until the disk has what it promises, before the client is refused.
pub const CONNACK_WAIT_MS: u64 = 5_000;

/// How long a CONNACK may wait until the cluster has granted the lease of the client id: a lease and a few elections.
pub const CLUSTER_CONNACK_WAIT_MS: u64 = 10_000;

/// Packets of one client that wait for their answer, SUBACK and UNSUBACK included, from which on nothing more is read from it.
pub const UNANSWERED_MAX: usize = 4_096;

/// The grain of all timers of a shard, in milliseconds.
pub const TIMER_TICK_MS: u64 = 100;

/// A shard that has not looked at its timers for so long has stood still.
pub const FROZEN_MS: u64 = 1_000;

/// How long a connection that is being closed may take to read its last packet.
pub const CLOSE_LINGER_MS: u64 = 2_000;

/// The same at the end of the node, once everything is written.
pub const STOP_LINGER_MS: u64 = 500;

/// Times a shared message goes to another member because the picked one has come or gone meanwhile; then that one
/// keeps it, so that members that flap cannot make it go round for ever.
pub const SHARE_ATTEMPTS_MAX: u8 = 8;

/// Times a member that is on its way to or from another node is picked before its node has nobody for a message.
pub const SHARE_ATTEMPTS_PAST_MOVING: u8 = 2;

/// Times after which no member on this node is looked for: the index and the sessions disagree.
pub const SHARE_ATTEMPTS_IN_ALL: u8 = 2 * SHARE_ATTEMPTS_MAX;

/// Messages of share groups that a shard keeps until a member has them for good, and their bytes. Of more than that the oldest that another node has accepted are
/// forgotten; publishers wait while there are none.
pub const SHARES_KEPT_MAX: usize = 65_536;
pub const SHARES_KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long it takes until a message is offered again that nobody took, in milliseconds: the grain of the timers.
pub const SHARE_RETRY_MS: u64 = TIMER_TICK_MS;

/// How long a publisher waits for a message that no member takes although there are some: longer than a lease and an election.
pub const SHARE_PATIENCE_MS: u64 = 10_000;

/// How long a message waits whose share group has nobody left: a node that the others have given up, and that lives, is back by then.
pub const SHARE_ABSENCE_MS: u64 = 30_000;

/// What of an inherited session is perhaps another member's of its share group: as much as its home can have had on its way to others, in messages and bytes.
pub const DOUBTFUL_MAX: usize = 4_096;
pub const DOUBTFUL_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What is remembered of the messages for share groups in one session that moves: as many as its node would ask for, by an id and a name each.
pub const SHARES_MOVED_MAX: usize = 2 * DOUBTFUL_MAX;

/// How long a message of QoS 2 is kept that a node may have given to a member before the others gave it up.
pub const SHARE_DOUBT_MS: u64 = 600_000;

/// Retained messages removed in one step when they expire, so that a shard's turn stays short.
pub const RETAINED_EXPIRE_BATCH: usize = 1_000;

/// How long a node remembers that a retained message is gone, so that another one which was away meanwhile does not bring it back. A node that was away for more
/// than half of it has to drop its retained messages before it comes back.
pub const TOMBSTONE_MS: u64 = 86_400_000;

/// Retained messages that a node remembers to be gone, and the bytes of their topics. What is more takes the place of the oldest.
pub const TOMBSTONES_MAX: usize = 256 * 1024;
pub const TOMBSTONE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How far the clock of another node may be ahead for its word on which retained message is the newest to count.
pub const CLOCK_AHEAD_MAX_MS: u64 = 60_000;

/// Bytes of one page when two nodes bring their retained messages into agreement, and retained topics that are examined for one page: the store is
/// locked meanwhile.
pub const SYNC_PAGE_BYTES: usize = 256 * 1024;
pub const SYNC_TOPICS_PER_PAGE: usize = 4_096;

/// Filters in one SUBSCRIBE or UNSUBSCRIBE: more would hold up the shard, and no session may have so many at the default limits.
pub const FILTERS_PER_PACKET_MAX: usize = 16_384;

/// Bytes of the topic filters of one session.
pub const SUBSCRIPTION_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Retained topics that all replays of a shard together examine in one turn of it, however many filters a client subscribes to and however
/// often it acknowledges; and those that each connection may examine even when many want to.
pub const REPLAY_TOPICS_PER_TURN: usize = 4_096;
pub const REPLAY_TOPICS_MIN: usize = 64;

/// Sessions that a shard examines for one question of others.
pub const INSPECTED_PER_EVENT: usize = 1_000;

/// Subscriptions that a shard looks through for one question of who would receive a message.
pub const MATCHED_PER_EVENT: usize = 100_000;

/// Bytes of memory that the copies of the sessions of one shard of another node take, from which on nothing more is taken from it: more than the shard itself could hold.
pub const COPIED_BYTES_MAX: usize = 8 << 30;

/// The largest Will, encoded: it travels in the control state.
pub const WILL_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(OUTBOX_SOFT_BYTES < OUTBOX_STOP_READING_BYTES);
const _: () = assert!(INLINE_PAYLOAD_BYTES < OUTBOX_SOFT_BYTES);
// The longest topic fits into what is remembered.
const _: () = assert!(TOMBSTONE_BYTES_MAX > u16::MAX as usize);
const _: () = assert!(MAIL_BATCH < MAILBOX_MESSAGES_HIGH);
const _: () = assert!(SHARDS_MAX <= u64::BITS as usize);
// What all shards have handed over fits into one batch of the journal, of 2 GiB at the most.
const _: () = assert!(SHARDS_MAX * UNWRITTEN_BYTES_HIGH <= 1 << 30);
const _: () = assert!(TIMER_TICK_MS * 10 <= CLOSE_LINGER_MS);
