//! What the shards of a node share: limits, indexes, counters, and what one of them notes for all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use hashbrown::HashSet;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use holdfast_raft::NodeId;
use holdfast_storage::{ItemId, OwnerId, Value};

use crate::access::acl::Acl;
use crate::access::bans::Bans;
use crate::cluster::share_groups::{Had, Rank, SharedMessage};
use crate::journal;
use crate::metrics::Metrics;
use crate::retained::{self, HybridClock};
use crate::session;
use crate::subscriptions::{ClusterIndex, NodeIndex, ShardId};

use super::clock::Clock;
use super::closing::ClosedConnections;
use super::grant::Grant;
use super::mailbox::Mailbox;
use super::{Deadlines, FlappingRules, Unsettled};

/// What the shards of a node share.
pub struct Shared {
    pub node: NodeId,
    /// What stands for the node in the ids of its messages: the lower half of its id.
    pub node_tag: u64,
    pub clock: Clock,
    pub limits: session::Limits,
    /// Retained messages the node keeps at the most.
    pub retained_max: usize,
    /// And their bytes, topics and properties included.
    pub retained_bytes_max: usize,
    /// How long connections have at the end of the node to take what was written to them (`shutdown.grace`), in milliseconds.
    pub shutdown_grace_ms: u64,
    /// Whether each connect and close is a line in the log.
    pub connection_messages: bool,
    /// What becomes of clients that come and go too often.
    pub flapping: FlappingRules,
    /// Who is not let in.
    pub bans: Bans,
    /// What clients may do.
    pub acl: Arc<Acl>,
    /// Whether who does what it may not loses its connection.
    pub denial_expels: bool,
    pub metrics: Metrics,
    /// The connections that have ended.
    pub closed: ClosedConnections,
    pub mailboxes: Vec<Mailbox>,
    pub index: NodeIndex,
    pub retained: RwLock<retained::Map>,
    /// Stamps what is retained, under the lock of the map.
    pub hybrid: HybridClock,
    pub storage_level: StorageLevel,
    /// The number of the last session that was to be written down.
    pub owners: AtomicU64,
    /// Whether there may be other nodes.
    pub clustered: bool,
    /// Whether sessions have copies on other nodes.
    pub copies: bool,
    /// Which heirs of this node have too little room on their disks to write down more messages, one bit for each slot.
    pub short_heirs: AtomicU64,
    /// This life of the process: random.
    pub run: u64,
    /// The incarnation that this process has; 0 while it has none. It is there before the news of it.
    pub incarnation: AtomicU64,
    /// Whether this node may serve.
    pub grant: Grant,
    /// Which other nodes want a topic.
    pub cluster_index: ClusterIndex,
    /// Wills of which somebody may publish a second copy.
    pub wills_seen: WillsSeen,
    /// What members of share groups here have.
    pub shares_had: SharesHad,
    /// Filters that not every node routes yet.
    pub unsettled: Unsettled,
    /// How long each wait of a cluster may take.
    pub patience: Deadlines,
}

/// The Wills that came here: a second copy of one is dropped, but for sessions that remember what they have had. When the node dies that publishes a Will, another one publishes it
/// once more; and one that is behind may do so when all is done for the others. So the newest [`OVER_MAX`] that are done are known too.
#[derive(Debug, Default)]
pub struct WillsSeen(Mutex<Wills>);

#[derive(Debug, Default)]
struct Wills {
    seen: HashSet<(Arc<str>, u64)>,
    /// Those that are done, in that order.
    over: VecDeque<(Arc<str>, u64)>,
}

/// More than a node has that is behind by a lease.
const OVER_MAX: usize = 65_536;

impl WillsSeen {
    /// False if the Will of that client and epoch was here before.
    pub fn note(&self, client: &str, epoch: u64) -> bool {
        self.0.lock().seen.insert((client.into(), epoch))
    }

    /// It is done, as far as the control state goes.
    pub fn forget(&self, client: &Arc<str>, epoch: u64) {
        let mut wills = self.0.lock();
        let will = (client.clone(), epoch);
        if wills.seen.contains(&will) {
            wills.over.push_back(will);
        }
        if wills.over.len() > OVER_MAX
            && let Some(oldest) = wills.over.pop_front()
        {
            wills.seen.remove(&oldest);
        }
    }
}

/// The messages of QoS 2 that members of share groups on this node have, or have had.
#[derive(Debug, Default)]
pub struct SharesHad(Mutex<Had>);

impl SharesHad {
    /// See [`Had::note`].
    pub fn note(&self, known_by: impl Iterator<Item = SharedMessage>) {
        self.0.lock().note(known_by);
    }

    /// Nobody else gets what a session has been sent on the node of that tag.
    pub fn note_sent(&self, home: u64, item: &[u8]) {
        let given = journal::shared_message(item).map(|message| message.given_by(home));
        self.note(journal::shared_message(item).chain(given));
    }

    /// What a session that is inherited, or found at a start, has of share groups is answered for from now on. What has not been sent from there is perhaps another member's. `rank`:
    /// `None` if that is not to be known any more.
    pub fn note_taken_up<'a>(&self, items: impl Iterator<Item = (&'a ItemId, &'a Value)>, rank: Option<Rank>) {
        for (item, value) in items.filter(|(_, value)| journal::is_shared_once(value)) {
            match rank {
                Some(rank) if !journal::is_unsent(value) => self.note_sent(rank.home, value),
                rank => {
                    self.note(journal::shared_message(value));
                    let mut had = self.0.lock();
                    for (message, rank) in journal::shared_message(value).zip(rank.into_iter().cycle()) {
                        had.note_asked(message.given_by(rank.home), Rank { item: *item, ..rank });
                    }
                }
            }
        }
    }

    /// A session has these that has come from the node of that tag, under the connection of that epoch; or has stayed here, and a connection there of an earlier one has not got it.
    pub fn note_brought(&self, from: u64, epoch: u64, messages: &[SharedMessage]) {
        let mut had = self.0.lock();
        for message in messages {
            had.note(std::iter::once(*message));
            had.note_brought(message.given_by(from), epoch);
        }
    }

    /// See [`Had::forget`].
    pub fn forget(&self, message: SharedMessage) {
        self.0.lock().forget(message);
    }

    /// See [`Had::has`].
    pub fn has(&self, message: SharedMessage, asks: Option<Rank>) -> bool {
        self.0.lock().has(message, asks)
    }

    /// A shard knows that the incarnation of the node of that tag is dead.
    pub fn note_death(&self, shard: ShardId, death: (u64, u64)) {
        self.0.lock().note_death(shard, death);
    }

    /// Whether all `shards` of this node know of a death, if it has heard of it at all.
    pub fn is_known_to_all(&self, death: (u64, u64), shards: usize) -> bool {
        self.0.lock().is_known_to_all(death, shards)
    }
}

/// Whether there is room on the disk: written by whoever hears of it, read at every publish.
#[derive(Debug, Default)]
pub struct StorageLevel {
    level: AtomicU8,
    /// It is another one than before.
    pub changed: Notify,
}

impl StorageLevel {
    pub fn set(&self, state: &holdfast_storage::State) {
        let level = match state {
            holdfast_storage::State::Ok => 0,
            holdfast_storage::State::Low => 1,
            holdfast_storage::State::Failing(_) => 2,
        };
        if self.level.swap(level, Ordering::AcqRel) != level {
            self.changed.notify_one();
        }
    }

    /// No new messages are to be written down.
    pub fn is_short(&self) -> bool {
        self.level.load(Ordering::Acquire) > 0
    }

    /// Nothing can be written down.
    pub fn is_failing(&self) -> bool {
        self.level.load(Ordering::Acquire) > 1
    }

    /// What `$SYS` says.
    pub fn label(&self) -> &'static str {
        ["ok", "low", "failing"][usize::from(self.level.load(Ordering::Acquire).min(2))]
    }
}

impl Shared {
    pub fn is_own(&self, node: NodeId) -> bool {
        node == self.node
    }

    /// A number that no session ever had.
    pub fn next_owner(&self) -> OwnerId {
        OwnerId(self.owners.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The shard of a client id.
    pub fn shard_of(&self, client_id: &str) -> ShardId {
        use std::hash::BuildHasher;
        // Fixed seeds: client ids are spread, not protected; a table keyed by them has a random hash of its own.
        let hash = foldhash::quality::FixedState::with_seed(0x686f_6c64).hash_one(client_id);
        (hash % self.mailboxes.len() as u64) as ShardId
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::{Message, MessageId, PacketId, QoS};
    use crate::session::{Item, Queued, QueuedBody, SubscriptionIds};

    fn queued(id: MessageId, share: &str) -> Queued {
        let message = Message::sample(id, "t", QoS::ExactlyOnce);
        Queued {
            position: 1,
            body: QueuedBody::Here(Arc::new(message)),
            qos: QoS::ExactlyOnce,
            retain: false,
            subscription_ids: SubscriptionIds::from_slice(&[]),
            share: Some(share.into()),
            kept: true,
            awaited: false,
        }
    }

    #[test]
    fn a_will_that_is_done_is_known_for_a_while() {
        let wills = WillsSeen::default();
        let client: Arc<str> = "c".into();
        assert!(wills.note("c", 0) && !wills.note("c", 0));
        wills.forget(&client, 0);
        assert!(!wills.note("c", 0), "a node that was behind publishes it late");
        (1..=OVER_MAX as u64).for_each(|epoch| {
            assert!(wills.note("c", epoch));
            wills.forget(&client, epoch);
        });
        wills.forget(&"of another node".into(), 1);
        assert!(wills.note("c", 0) && !wills.note("c", 1));
    }

    #[test]
    fn of_two_items_of_one_message_that_a_start_finds_one_is_kept() {
        let id = MessageId { node: 4, shard: 0, sequence: 9 };
        let value = |sequence, packet_id| {
            let queued = queued(MessageId { sequence, ..id }, "$share/g/t");
            journal::encode_item(Item::Message { queued: &queued, packet_id: PacketId::new(packet_id) })
        };
        let of = |owner| Rank::of_session(7, OwnerId(owner), 1);
        let had = SharesHad::default();
        had.note_taken_up([(&1, &value(9, 0)), (&2, &value(9, 0)), (&3, &value(10, 0))].into_iter(), Some(of(20)));
        had.note_taken_up([(&1, &value(10, 5))].into_iter(), Some(of(21)));
        let given = |sequence| SharedMessage::new("$share/g/t", MessageId { sequence, ..id }).given_by(7);
        let told = [1, 2].map(|item| had.has(given(9), Some(Rank { item, ..of(20) })));
        assert_eq!(told, [true, false], "the process before may have been passing it on within the session");
        assert!(had.has(given(10), Some(Rank { item: 3, ..of(20) })), "it was sent to another member");
        assert!(had.has(SharedMessage::new("$share/g/t", id), None), "others hear that it is here");
    }
}
