//! What every disk does, and what the simulated one forgets.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn bytes(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().expect("has") as usize];
    assert_eq!(file.read_at(0, &mut bytes).expect("reads"), bytes.len());
    bytes
}

/// What every disk does.
fn behaves(disk: &dyn Disk) {
    let file = disk.create("a").expect("created");
    assert_eq!(disk.create("a").err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
    assert_eq!(disk.open("b").err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
    assert_eq!(disk.rename("b", "c").map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    assert_eq!(disk.remove("b").map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    assert!(file.is_empty().expect("has"));
    file.write_at(3, b"abc").expect("written");
    assert_eq!(bytes(&*file), b"\0\0\0abc");
    file.allocate(4).expect("is long enough");
    assert_eq!(file.len().expect("has"), 6);
    file.allocate(200_000).expect("room");
    assert_eq!((file.len().expect("has"), &bytes(&*file)[..8]), (200_000, &b"\0\0\0abc\0\0"[..]));
    file.write_at(100_000, &[9; 5]).expect("written");
    file.sync().expect("synced");
    let mut end = [7; 10];
    assert_eq!(file.read_at(199_997, &mut end).expect("reads"), 3);
    assert_eq!(file.read_at(300_000, &mut end).expect("reads"), 0);
    disk.create("b").expect("created").write_at(0, b"other").expect("written");
    disk.rename("a", "b").expect("renamed");
    disk.sync().expect("synced");
    assert_eq!(disk.list().expect("lists"), ["b"]);
    assert_eq!(bytes(&*disk.open("b").expect("there"))[100_000..100_006], [9, 9, 9, 9, 9, 0]);
    disk.quarantine("b").expect("copied");
    disk.quarantine("b").expect("copied again");
    disk.remove("b").expect("removed");
    assert_eq!(bytes(&*file)[3..6], *b"abc", "who has it open may go on");
    assert!(disk.list().expect("lists").is_empty());
}

#[test]
fn a_simulated_disk_behaves() {
    let disk = SimulatedDisk::new();
    behaves(&disk);
    assert_eq!(disk.quarantined().len(), 2);
}

#[test]
fn a_real_disk_behaves_and_is_its_owners_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("data/journal");
    let disk = RealDisk::open_or_create(&path).expect("made");
    behaves(&disk);
    std::fs::create_dir(path.join("folder")).expect("made");
    assert!(disk.list().expect("lists").is_empty(), "folders are no files");
    disk.create("c").expect("created");
    let mode = |path: &std::path::Path| path.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("c"))), (0o700, 0o600));
    let quarantine = dir.path().join("data/quarantine");
    assert!(quarantine.join("b").exists() && quarantine.join("b.1").exists());
    assert_eq!(mode(&quarantine), 0o700);
    RealDisk::open_or_create(&path).expect("is there already");
}

#[test]
fn what_was_not_synced_may_be_lost() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a").expect("created");
    file.write_at(0, b"kept").expect("written");
    file.sync().expect("synced");
    assert!(disk.crash_all_lost().list().expect("lists").is_empty(), "its name was not synced");
    disk.sync().expect("synced");
    file.write_at(2, b"st").expect("written");
    assert_eq!(bytes(&*file), b"kest");
    assert_eq!(bytes(&*disk.crash_all_lost().open("a").expect("there")), b"kept");
}

#[test]
fn a_crash_keeps_any_pages_by_its_seed_and_tears_some() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a").expect("created");
    file.allocate(4 * 4096).expect("room");
    file.sync().expect("synced");
    disk.sync().expect("synced");
    file.write_at(0, &[1; 4 * 4096]).expect("written");
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..50 {
        let left = bytes(&*disk.crash(seed).open("a").expect("there"));
        assert_eq!(left, bytes(&*disk.crash(seed).open("a").expect("there")), "the same seed, the same crash");
        for page in left.chunks(4096) {
            match page.iter().filter(|byte| **byte == 1).count() {
                0 => lost += 1,
                4096 => kept += 1,
                some => {
                    assert_eq!(some % 512, 0);
                    torn += 1;
                }
            }
        }
    }
    assert!(kept > 40 && lost > 40 && (5..=50).contains(&torn), "{kept} {lost} {torn}");
}

#[test]
fn names_change_in_their_order() {
    let disk = SimulatedDisk::new();
    disk.create("a").expect("created");
    disk.sync().expect("synced");
    disk.rename("a", "b").expect("renamed");
    disk.create("c").expect("created");
    disk.remove("b").expect("removed");
    let mut seen: Vec<Vec<String>> = (0..50).map(|seed| disk.crash(seed).list().expect("lists")).collect();
    seen.sort();
    seen.dedup();
    let states = [vec!["a"], vec!["b"], vec!["b", "c"], vec!["c"]];
    assert_eq!(seen, states.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>()));
}

#[test]
fn a_sync_that_fails_loses_what_it_should_have_saved() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a").expect("created");
    disk.sync().expect("synced");
    file.write_at(0, b"lost").expect("written");
    disk.fail_sync_after(0);
    file.sync().expect_err("fails");
    file.sync().expect("has nothing to do");
    assert_eq!(bytes(&*file), b"lost");
    assert!(bytes(&*disk.crash_all_lost().open("a").expect("there")).iter().all(|byte| *byte == 0));
    file.write_at(0, b"kept").expect("written");
    file.sync().expect("synced");
    assert_eq!(bytes(&*disk.crash_all_lost().open("a").expect("there")), b"kept");
}

#[test]
fn faults_come_when_they_are_asked_for() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a").expect("created");
    disk.limit(Some(10));
    file.write_at(0, &[1; 10]).expect("fits");
    assert!(is_full(&file.write_at(5, &[1; 6]).expect_err("is full")));
    assert!(is_full(&file.allocate(11).expect_err("is full")));
    disk.limit(None);
    disk.fail_writes(true);
    file.write_at(0, b"abcd").expect_err("fails");
    assert_eq!(bytes(&*file)[..4], *b"ab\x01\x01", "half done");
    disk.fail_writes(false);
    disk.stop_after_syncs(1);
    file.sync().expect("the last one");
    file.write_at(0, b"x").expect("still on");
    file.sync().expect_err("is off");
    file.write_at(0, b"y").expect_err("is off");
    disk.list().expect_err("is off");
    assert_eq!(disk.syncs(), 1);
    disk.sync().expect_err("is off");
}
