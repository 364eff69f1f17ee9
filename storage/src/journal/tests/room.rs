//! Full disks, quotas, spares, and files that serve again.

use super::*;

fn spares(disk: &SimulatedDisk) -> usize {
    disk.list().expect("lists").iter().filter(|name| name.starts_with("spare-")).count()
}

#[test]
fn a_full_disk_is_announced_two_segments_ahead_and_heals() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    disk.limit(Some(disk.bytes() + 4096 * 2 + 2000));
    run_chores(&mut journal, 0);
    let (mut written, mut low_at) = (Vec::new(), None);
    for head in 0..100 {
        match append(&mut journal, 1, head) {
            Ok(_) => written.push(head),
            Err(AppendError::NoRoom) => break,
            Err(error) => panic!("{error}"),
        }
        run_chores(&mut journal, 1);
        if journal.room() == Room::Last && low_at.is_none() {
            low_at = Some(written.len());
        }
    }
    // Three segments in all; that there is no fourth was known from the first batch of the second on.
    assert_eq!((written.len(), low_at), (12, Some(5)));
    assert!(matches!(append(&mut journal, 1, 200), Err(AppendError::NoRoom)));
    assert_eq!(heads(&disk.crash_all_lost()), written, "nothing is lost by it");
    assert!(journal.remove_front().expect("removed"));
    assert_eq!((journal.room(), journal.room_bytes()), (Room::Last, 4096), "its file serves again");
    append(&mut journal, 2, 201).expect("room");
    assert_eq!(heads(&disk.crash_all_lost()), [&written[4..], &[201]].concat());
    while journal.remove_front().expect("removed") {}
    assert_eq!(journal.room(), Room::Plenty);
}

#[test]
fn room_that_others_free_is_found_a_second_later() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    disk.limit(Some(disk.bytes()));
    let refused = journal.chore(1000).expect("a spare is wanted").run();
    assert!(refused.error().is_some_and(crate::disk::is_full));
    journal.done(refused);
    assert_eq!(journal.room(), Room::Last);
    disk.limit(None);
    assert!(journal.chore(1999).is_none(), "not at once");
    run_chores(&mut journal, 2000);
    assert_eq!((journal.room(), spares(&disk)), (Room::Plenty, 2));
}

#[test]
fn a_quota_is_as_good_as_a_full_disk() {
    let disk = SimulatedDisk::new();
    let options = Options { bytes_max: Some(4096 * 3), ..SMALL };
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options, &mut |_, _| {}).expect("opens");
    let written = (0..100).take_while(|head| append(&mut journal, 0, *head).is_ok()).count();
    assert_eq!((written, journal.room(), journal.bytes()), (12, Room::Last, 4096 * 3));
    assert!(matches!(append(&mut journal, 0, 1), Err(AppendError::NoRoom)));
    assert!(journal.chore(5000).is_some_and(|chore| chore.run().error().is_none()), "an index still");
    assert!(journal.remove_front().expect("removed"));
    append(&mut journal, 0, 1).expect("room");
}

#[test]
fn a_disk_that_fails_does_not_fill_with_what_it_failed_to_take() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    append(&mut journal, 0, 1).expect("room");
    disk.fail_syncs(true);
    for second in 0..50 {
        append(&mut journal, second * 1000, 2).expect_err("fails");
        run_chores(&mut journal, second * 1000);
    }
    assert!(disk.bytes() < 4096 * 4, "{}", disk.bytes());
    disk.fail_syncs(false);
    append(&mut journal, 0, 3).expect("works again");
    assert_eq!(heads(&disk.crash_all_lost()), [1, 3]);
}

#[test]
fn steady_churn_makes_no_new_files() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    for round in 0..400_u32 {
        append(&mut journal, u64::from(round), round as u8).expect("room");
        run_chores(&mut journal, u64::from(round));
        while journal.segments().count() > 3 {
            assert!(journal.remove_front().expect("removed"));
        }
    }
    assert!(disk.bytes() < 4096 * 6, "{}", disk.bytes());
    // Of files that served before, only what was written last counts.
    let seen = heads(&disk.crash_all_lost());
    assert!((9..=12).contains(&seen.len()), "{seen:?}");
    assert!(seen.iter().rev().zip((0..400_u32).rev()).all(|(seen, round)| *seen == round as u8));
}

#[test]
fn a_file_that_somebody_reads_does_not_serve_again() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    (0..8).for_each(|head| _ = append(&mut journal, 0, head).expect("room"));
    let reading = journal.files.read().get(&1).cloned().expect("open");
    assert!(journal.remove_front().expect("removed"));
    assert_eq!(spares(&disk), 0);
    drop(reading);
    (0..4).for_each(|head| _ = append(&mut journal, 0, head).expect("room"));
    assert!(journal.remove_front().expect("removed"));
    assert_eq!(spares(&disk), 1);
}

#[test]
fn the_only_segment_stays() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    assert!(!journal.remove_front().expect("stays"));
    append(&mut journal, 0, 1).expect("room");
    disk.fail_sync_after(0);
    append(&mut journal, 0, 2).expect_err("fails");
    assert!(!journal.remove_front().expect("stays"), "it is sealed now, and still the only one");
    assert_eq!(heads(&disk), [1, 2]);
}

#[test]
fn an_index_that_comes_when_its_segment_has_gone_goes_too() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    (0..5).for_each(|head| _ = append(&mut journal, 0, head).expect("room"));
    let spare = journal.chore(0).expect("a spare");
    let index = journal.chore(0).expect("an index");
    assert!(journal.chore(0).is_none(), "all is being done");
    assert!(journal.remove_front().expect("removed"));
    let done = index.run();
    assert!(done.error().is_none());
    journal.done(done);
    journal.done(spare.run());
    let names = disk.list().expect("lists");
    assert!(names.iter().all(|name| !name.ends_with(".index") && !name.ends_with(".new")), "{names:?}");
}

#[test]
fn what_was_never_completed_and_what_is_of_no_use_goes_at_the_next_start() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    append(&mut journal, 0, 1).expect("room");
    run_chores(&mut journal, 0);
    for name in ["spare-9.new", "0000000001.index.new", "spare-3", "notes.txt"] {
        disk.create(name).expect("created");
    }
    drop(journal);
    let (mut journal, ..) = open(&disk);
    let mut names = disk.list().expect("lists");
    names.sort();
    assert_eq!(names, ["0000000001.segment", "journal.id", "notes.txt", "spare-1", "spare-2"]);
    assert!(journal.chore(0).is_none(), "the spares are used");
    assert_eq!(journal.bytes(), 3 * 4096);
}
