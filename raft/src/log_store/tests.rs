//! The log on a disk that forgets what was not synced.

use holdfast_storage::disk::SimulatedDisk;
use openraft::entry::RaftEntry;
use openraft::storage::RaftLogStorageExt;
use openraft::{CommittedLeaderId, EntryPayload};

use super::*;
use crate::entry::{Batch, BatchOrigin};

const ME: u128 = 1;

fn id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, ME), index)
}

fn batch(bytes: usize) -> Batch {
    Batch { at: 0, origin: BatchOrigin::Leader, count: 1, commands: vec![7; bytes].into() }
}

fn entries(term: u64, indexes: std::ops::Range<u64>) -> Vec<Entry> {
    indexes.map(|index| Entry { log_id: id(term, index), payload: EntryPayload::Normal(batch(100)) }).collect()
}

async fn log_ids(log: &mut LogStore) -> Vec<(u64, u64)> {
    let entries = log.try_get_log_entries(..).await.expect("reads");
    entries.iter().map(|entry| (entry.log_id.leader_id.term, entry.log_id.index)).collect()
}

/// The log in `dir` after the one there was has ended.
fn reopen(log: LogStore, dir: &Path) -> LogStore {
    log.close();
    drop(log);
    LogStore::open(Some(dir)).expect("opens")
}

#[tokio::test]
async fn what_was_synced_is_found_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = LogStore::open(Some(dir.path())).expect("opens");
    assert_eq!((log.cluster(), log.read_vote().await.expect("reads")), (0, None));
    log.join_cluster(77).await;
    let vote = Vote::new_committed(3, 9);
    log.save_vote(&vote).await.expect("saves");
    log.blocking_append(entries(1, 0..10)).await.expect("appends");
    log.truncate(id(1, 7)).await.expect("truncates");
    log.save_committed(Some(id(1, 6))).await.expect("saves");
    log.blocking_append(entries(2, 7..12)).await.expect("appends");
    log.purge(id(1, 2)).await.expect("purges");
    let mut log = reopen(log, dir.path());
    let state = log.get_log_state().await.expect("reads");
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(1, 2)), Some(id(2, 11))));
    let expected: Vec<(u64, u64)> = (3..7).map(|index| (1, index)).chain((7..12).map(|index| (2, index))).collect();
    assert_eq!(log_ids(&mut log).await, expected);
    assert_eq!((log.cluster(), log.read_vote().await.expect("reads")), (77, Some(vote)));
    assert_eq!(log.read_committed().await.expect("reads"), Some(id(1, 6)));
    assert_eq!(log.try_get_log_entries(5..6).await.expect("reads"), entries(1, 5..6));
}

#[tokio::test]
async fn segments_go_with_what_is_purged_and_the_vote_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = LogStore::open(Some(dir.path())).expect("opens");
    let vote = Vote::new_committed(3, 9);
    log.save_vote(&vote).await.expect("saves");
    let segments = |dir: &Path| {
        let names = std::fs::read_dir(dir).expect("reads").map(|entry| entry.expect("reads").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".segment")).count()
    };
    for index in 0..40 {
        let entry = Entry { log_id: id(1, index), payload: EntryPayload::Normal(batch(1_000_000)) };
        log.blocking_append([entry]).await.expect("appends");
    }
    log.flushed_to(39).await;
    let before = segments(dir.path());
    assert!(before >= 5, "{before}");
    log.purge(id(1, 38)).await.expect("purges");
    // What comes next pushes the old ones out.
    log.blocking_append([Entry::new_blank(id(1, 40))]).await.expect("appends");
    let mut log = reopen(log, dir.path());
    assert!(segments(dir.path()) <= 2, "{}", segments(dir.path()));
    assert_eq!(log_ids(&mut log).await, [(1, 39), (1, 40)]);
    assert_eq!(log.read_vote().await.expect("reads"), Some(vote));
}

#[tokio::test]
async fn a_log_that_was_purged_beyond_its_end_goes_on_behind_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = LogStore::open(Some(dir.path())).expect("opens");
    log.blocking_append(entries(1, 0..3)).await.expect("appends");
    log.purge(id(2, 100)).await.expect("purges");
    log.blocking_append(entries(2, 101..103)).await.expect("appends");
    let mut log = reopen(log, dir.path());
    assert_eq!(log_ids(&mut log).await, [(2, 101), (2, 102)]);
    let state = log.get_log_state().await.expect("reads");
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(2, 100)), Some(id(2, 102))));
}

#[tokio::test]
async fn what_one_message_carries_is_bounded() {
    let mut log = LogStore::open(None).expect("opens");
    let big = |index| Entry { log_id: id(1, index), payload: EntryPayload::Normal(batch(900_000)) };
    log.blocking_append((0..4).map(big)).await.expect("appends");
    assert_eq!(log.limited_get_log_entries(0, 4).await.expect("reads").len(), 2);
    let huge = Entry { log_id: id(1, 4), payload: EntryPayload::Normal(batch(3_000_000)) };
    log.blocking_append([huge]).await.expect("appends");
    assert_eq!(log.limited_get_log_entries(4, 5).await.expect("reads").len(), 1);
    log.blocking_append(entries(1, 5..2000)).await.expect("appends");
    assert_eq!(log.limited_get_log_entries(5, 2000).await.expect("reads").len(), APPEND_ENTRIES_MAX);
}

#[tokio::test]
async fn what_is_purged_leaves_some_for_who_is_behind() {
    let mut log = LogStore::open(None).expect("opens");
    log.blocking_append(entries(1, 0..100)).await.expect("appends");
    assert_eq!(log.extent(0), Extent { entries: 100, bytes: 100 * 164 });
    assert_eq!(log.extent(60).entries, 40);
    assert_eq!(log.purgeable(50, 0), Some(50));
    assert_eq!(log.purgeable(50, 10 * 164), Some(40));
    assert_eq!(log.purgeable(50, 1_000_000), None);
}

#[test]
fn followers_hear_of_a_commit_when_it_is_on_the_leaders_disk() {
    let (mut memory, vote) = (Memory::default(), Vote::new_committed(2, ME));
    let append = |memory: &mut Memory, entries: Vec<Entry>| {
        memory.append(&entries);
        memory.next_write(Some(entries[0].log_id.index))
    };
    let first = append(&mut memory, entries(1, 0..3));
    memory.written(first);
    assert_eq!(memory.cap_commit(&vote, Some(id(1, 1))), Some(id(1, 1)));
    let second = append(&mut memory, entries(2, 3..5));
    assert_eq!(memory.cap_commit(&vote, Some(id(2, 4))), Some(id(1, 1)), "what is on disk is of an earlier term");
    assert_eq!((memory.unwritten_at(2), memory.unwritten_at(3)), (None, Some(second)));
    memory.written(second);
    let third = append(&mut memory, entries(2, 5..6));
    assert_eq!(memory.cap_commit(&vote, Some(id(2, 5))), Some(id(2, 4)), "as far as it is on disk");
    assert_eq!(memory.cap_commit(&vote, Some(id(2, 3))), Some(id(2, 4)), "it never falls");
    memory.written(third);
    assert_eq!(memory.cap_commit(&vote, Some(id(2, 5))), Some(id(2, 5)));
    assert!(memory.oldest_unwritten().is_none());
}

#[test]
fn what_replaces_entries_has_to_be_written_too() {
    let mut memory = Memory::default();
    memory.append(&entries(1, 0..5));
    let first = memory.next_write(Some(0));
    memory.written(first);
    memory.append(&entries(2, 2..4));
    let second = memory.next_write(Some(2));
    assert_eq!(memory.last_log_id(), Some(id(2, 3)));
    assert_eq!((memory.unwritten_at(1), memory.unwritten_at(3)), (None, Some(second)));
}

#[tokio::test]
async fn a_disk_that_fails_is_tried_again_and_nothing_counts_meanwhile() {
    let disk = SimulatedDisk::new();
    let mut log = LogStore::open_on(Arc::new(disk.clone())).expect("opens");
    let vote = Vote::new_committed(1, ME);
    log.save_vote(&vote).await.expect("saves");
    log.blocking_append(entries(1, 0..3)).await.expect("appends");
    log.flushed_to(2).await;
    disk.fail_syncs(true);
    log.blocking_append(entries(1, 3..5)).await.expect("openraft does not wait");
    assert_eq!(log_ids(&mut log).await.len(), 5);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while log.trouble().is_none() || !log.is_stalled(50) {
        assert!(tokio::time::Instant::now() < deadline, "the trouble shows");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(log.is_flushed_to(2) && !log.is_flushed_to(3));
    assert_eq!(log.cap_commit(&vote, Some(id(1, 4))), Some(id(1, 2)));
    // Power goes: what was not on disk is lost, and nobody has relied on it.
    let mut lost = LogStore::open_on(Arc::new(disk.crash_all_lost())).expect("opens");
    assert_eq!(log_ids(&mut lost).await.len(), 3);
    disk.fail_syncs(false);
    log.flushed_to(4).await;
    assert_eq!(log.cap_commit(&vote, Some(id(1, 4))), Some(id(1, 4)));
    assert_eq!(log.trouble(), None);
    let mut kept = LogStore::open_on(Arc::new(disk.crash_all_lost())).expect("opens");
    assert_eq!(log_ids(&mut kept).await.len(), 5);
    assert_eq!(kept.read_vote().await.expect("reads"), Some(vote));
}
