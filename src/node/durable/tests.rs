//! What a start makes of the retained messages on disk.

use holdfast_raft::NodeId;

use super::*;
use crate::cluster::copies::receiving::{self, Copies};
use crate::cluster::copies::{CopyEntry, Home};
use crate::limits;
use crate::mqtt::{Message, MessageId, QoS};
use crate::retained::{Change, Known};

const NODE: NodeId = NodeId(0xaaaa_0000_0000_0000_0000_0000_0000_0007);

/// A node without clients over a data directory.
struct Run {
    shared: Arc<Shared>,
    storage: Storage,
}

impl Run {
    fn start(dir: &Path) -> Run {
        let config = Config::default_loopback();
        let mut opened = open(dir, &config.storage, 1).expect("the journal opens");
        let shared = Arc::new(crate::node::share(&config, NODE, 1, (opened.recovered.last_time, 0)));
        let mut taken_up =
            take_up(&mut opened, (NODE, "n"), &shared, config::OnCorruption::Halt).expect("the state is good");
        let storage = super::start(opened, &mut taken_up, &shared).expect("threads start");
        Run { shared, storage }
    }

    /// Sets a retained message at a time, as a shard does.
    fn set(&self, now: u64, topic: &str, payload: &'static str, expires_at: Option<u64>) -> Arc<Message> {
        let mut retained = self.shared.retained.write();
        let stamp = self.shared.hybrid.next(now);
        let message = message(MessageId { node: NODE.0 as u64, shard: 0, sequence: stamp }, stamp, topic, payload);
        let message = Arc::new(Message { expires_at, ..message });
        let changed = retained.replace(now, message.clone());
        assert_ne!(changed.change, Change::Older);
        let mut entries = changed.writes.into_iter().map(journal::retained_entry).collect();
        self.storage.submit(0, &mut entries, true);
        message
    }

    fn known(&self) -> Vec<(String, Option<String>)> {
        let retained = self.shared.retained.read();
        let text = |known| match known {
            Known::Message(message) => Some(String::from_utf8_lossy(&message.payload).into_owned()),
            Known::Gone(_) => None,
        };
        retained.known_behind(None).map(|(topic, known)| (topic.to_string(), text(known))).collect()
    }

    fn end(self) {
        self.storage.close().expect("everything is written");
    }
}

fn message(id: MessageId, stamp: u64, topic: &str, payload: &'static str) -> Message {
    Message { stamp, payload: payload.into(), retain: true, ..Message::sample(id, topic, QoS::AtLeastOnce) }
}

fn known(topic: &str, text: Option<&str>) -> (String, Option<String>) {
    (topic.to_owned(), text.map(str::to_owned))
}

#[test]
fn what_was_deleted_is_remembered_over_restarts_until_its_time_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = Run::start(dir.path());
    let now = run.shared.clock.now();
    let old = run.set(now, "a", "1", None);
    run.set(now, "a", "", None);
    run.set(now, "b", "2", None);
    run.set(now, "c", "3", Some(now + 1));
    let expired = run.shared.retained.write().expire(now + 1, 10);
    write_expired(&run.storage, &run.shared, expired);
    run.end();
    for _ in 0..2 {
        let run = Run::start(dir.path());
        assert_eq!(run.known(), [known("a", None), known("b", Some("2")), known("c", None)]);
        let mut retained = run.shared.retained.write();
        assert_eq!(retained.set(now, old.clone()), Change::Older, "another node still has it");
        drop(retained);
        run.end();
    }
    let run = Run::start(dir.path());
    let later = now + limits::TOMBSTONE_MS + 10;
    let ended = run.shared.retained.write().expire(later, 10);
    write_expired(&run.storage, &run.shared, ended);
    run.end();
    let run = Run::start(dir.path());
    assert_eq!(run.known(), [known("b", Some("2"))]);
    run.end();
}

#[test]
fn stamps_and_items_go_on_behind_those_on_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = Run::start(dir.path());
    // The clock of the machine was an hour ahead.
    let ahead = run.shared.clock.now() + 3_600_000;
    let first = run.set(ahead, "a", "1", None);
    let items: Vec<_> = run.shared.retained.read().items().collect();
    run.end();
    let run = Run::start(dir.path());
    let second = run.set(run.shared.clock.now(), "a", "2", None);
    assert!(second.stamp > first.stamp);
    assert!(run.shared.retained.read().items().all(|item| items.iter().all(|earlier| item > *earlier)));
    run.end();
    let run = Run::start(dir.path());
    assert_eq!(run.known(), [known("a", Some("2"))]);
    run.end();
}

#[test]
fn of_two_messages_of_a_topic_the_newer_one_stays_and_the_other_one_goes_from_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = Run::start(dir.path());
    let put = |item, message| {
        let body = Some(Arc::new(message) as Arc<_>);
        Entry::Put { owner: journal::RETAINED, item, value: Default::default(), body }
    };
    let id = |sequence| MessageId { node: 0, shard: 0, sequence };
    let of = |sequence, stamp, topic, payload| message(id(sequence), stamp, topic, payload);
    // Two with stamps, and two of a time before there were any.
    let mut entries = vec![
        put(1, of(1, 20, "a", "new")),
        put(2, of(2, 10, "a", "old")),
        put(3, of(3, 0, "b", "old")),
        put(4, of(4, 0, "b", "new")),
    ];
    run.storage.submit(0, &mut entries, true);
    run.end();
    for _ in 0..2 {
        let run = Run::start(dir.path());
        assert_eq!(run.known(), [known("a", Some("new")), known("b", Some("new"))]);
        let retained = run.shared.retained.read();
        assert_eq!(retained.version("b"), Some(Version { stamp: 0, node: NODE.0 as u64 }), "it is this node's now");
        assert_eq!(retained.items().collect::<Vec<_>>(), [1, 4]);
        drop(retained);
        run.end();
    }
}

#[test]
fn copies_are_with_the_shard_that_reads_their_home_again_and_are_no_sessions() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = Run::start(dir.path());
    let home = Home { node: NodeId(9), shard: 3 };
    let mut copies = Copies::default();
    let begin = CopyEntry::Begin { owner: OwnerId(20), client_id: "c".into(), began: 4 };
    let packet_id = crate::mqtt::PacketId::new(7).expect("it is not 0");
    let accepted = crate::session::Item::Accepted { packet_id, names: None };
    let put =
        CopyEntry::Put { owner: OwnerId(20), item: 1, value: journal::encode_item(accepted), body: None, ahead: false };
    let seen = CopyEntry::Seen { id: MessageId { node: 5, shard: 0, sequence: 8 } };
    let complete = CopyEntry::Complete { owner: OwnerId(20) };
    let mut owners = 100..;
    let new_owner = || OwnerId(owners.next().expect("there is no end"));
    let writes = copies.handle(home, 11, vec![begin, put, seen, complete], new_owner).expect("there is room");
    let mut entries: Vec<Entry> = writes.into_iter().map(journal::copied_entry).collect();
    // A second copy of the same, as damage may leave one behind.
    let older = CopyHeader::Session { home, owner: OwnerId(20), client_id: "c".into(), began: 4, complete: true };
    let older = receiving::Write::Header { owner: journal::SESSIONS, header: older };
    entries.push(journal::copied_entry(older));
    run.storage.submit(0, &mut entries, true);
    run.end();
    for _ in 0..2 {
        let config = Config::default_loopback();
        let mut opened = open(dir.path(), &config.storage, 2).expect("the journal opens");
        let shared = Arc::new(crate::node::share(&config, NODE, 2, (0, 0)));
        let mut taken_up =
            take_up(&mut opened, (NODE, "n"), &shared, config::OnCorruption::Halt).expect("the state is good");
        assert_eq!(taken_up.stored[1].copies, copies, "of two shards it is the second");
        assert_eq!(taken_up.stored[0].copies, Copies::default());
        assert!(taken_up.stored.iter().all(|stored| stored.sessions.is_empty() && stored.given_back.is_empty()));
        let storage = super::start(opened, &mut taken_up, &shared).expect("threads start");
        storage.close().expect("everything is written");
    }
}
