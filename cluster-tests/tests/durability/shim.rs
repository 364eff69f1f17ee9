//! The disk that loses its power, tested with a process that does a few things to files and is killed.
//!
//! The process is this test binary again, run for one test that does nothing unless it is told to.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_cluster_tests::dice::Dice;
use holdfast_cluster_tests::power_cut::{Loss, PowerCut, shim};

const ROLE: &str = "POWER_TEST_ROLE";

/// Runs one role of [`child`] on a disk until it says that it is done, kills it, and returns the disk.
fn run(root: &Path, role: &str) -> PowerCut {
    let disk = PowerCut::over(root);
    run_on(&disk, root, role);
    disk
}

fn run_on(disk: &PowerCut, root: &Path, role: &str) {
    let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
    command.args(["--exact", "shim::child", "--ignored", "--nocapture"]);
    command.env(ROLE, role).envs(disk.environment(0)).current_dir(root);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this test can be started");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let done = lines.map_while(Result::ok).any(|line| line.ends_with("done"));
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    assert!(done, "{role} failed");
}

/// Not a test: what the killed process does. It waits for its end when it is done.
#[test]
#[ignore = "a part of the other tests here"]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("writes") => writes(),
        Ok("names") => names(),
        Ok("full") => full(),
        Ok("failing") => failing(),
        Ok("threads") => threads(),
        _ => return,
    }
    println!("done");
    // Until the kill: nobody writes to this pipe.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn sync_folder(path: &str) {
    File::open(path).and_then(|folder| folder.sync_all()).expect("a folder can be synced");
}

fn image(disk: &PowerCut, loss: Loss) -> tempfile::TempDir {
    let into = tempfile::tempdir().expect("a temporary folder");
    disk.image(loss, into.path());
    into
}

fn content(folder: &Path, name: &str) -> Option<Vec<u8>> {
    std::fs::read(folder.join(name)).ok()
}

fn writes() {
    let mut file = File::create("a").expect("a file");
    sync_folder(".");
    file.write_all(&[1; 10_000]).expect("room");
    file.sync_data().expect("a disk");
    file.write_at(&[2; 4_096], 4_096).expect("room");
    file.sync_all().expect("a disk");
    file.write_at(&[3; 5_000], 0).expect("room");
    file.set_len(20_000).expect("room");
    let old = OpenOptions::new().write(true).truncate(true).open("old").expect("it was there");
    old.write_at(b"new", 0).expect("room");
}

#[test]
fn what_was_synced_is_kept_and_the_rest_is_not() {
    if shim().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(root.path().join("old"), "old").expect("room");
    let disk = run(root.path(), "writes");
    assert!(disk.is_at_work() && disk.syncs() == 2);
    let left = image(&disk, Loss::All);
    let mut expected = vec![1; 10_000];
    expected[4_096..8_192].fill(2);
    assert_eq!(content(left.path(), "a"), Some(expected.clone()));
    assert_eq!(content(left.path(), "old"), Some(b"old".to_vec()));
    // A random part: other pages in other images, never anything that was not written.
    let mut images = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let left = image(&disk, Loss::Part(Dice::new(seed)));
        let bytes = content(left.path(), "a").expect("its name was synced");
        assert!(bytes[8_192..10_000].iter().all(|byte| *byte == 1));
        assert!(bytes[..8_192].chunks(8).all(|part| part.iter().all(|byte| (1..=3).contains(byte))));
        images.insert(bytes);
    }
    assert!(images.len() > 4, "{} images", images.len());
}

fn names() {
    std::fs::create_dir("d").expect("room");
    sync_folder(".");
    for name in ["d/kept", "d/renamed", "d/removed"] {
        File::create(name).and_then(|mut file| file.write_all(b"x").and_then(|()| file.sync_all())).expect("room");
    }
    sync_folder("d");
    std::fs::rename("d/renamed", "d/new").expect("a disk");
    std::fs::remove_file("d/removed").expect("a disk");
    File::create("d/unsynced").and_then(|mut file| file.write_all(b"x").and_then(|()| file.sync_all())).expect("room");
}

#[test]
fn names_are_kept_when_their_folder_was_synced() {
    if shim().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    let disk = run(root.path(), "names");
    let left = image(&disk, Loss::All);
    for (name, is_there) in [("kept", true), ("renamed", true), ("new", false), ("removed", true), ("unsynced", false)]
    {
        let expected = is_there.then(|| b"x".to_vec());
        assert_eq!(content(&left.path().join("d"), name), expected, "{name}");
    }
}

fn full() {
    let file = File::options().read(true).write(true).open("old").expect("it was there");
    file.write_at(b"OLD", 0).expect("a write into what is there needs no room");
    for result in [file.write_at(b"x", 3).map(drop), file.set_len(4), std::fs::write("other", "x")] {
        assert_eq!(result.expect_err("the disk is full").raw_os_error(), Some(libc::ENOSPC));
    }
    file.sync_all().expect("a full disk still syncs");
}

#[test]
fn a_full_disk_refuses_what_needs_room() {
    if shim().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(root.path().join("old"), "old").expect("room");
    let disk = PowerCut::over(root.path());
    disk.set_full(true);
    run_on(&disk, root.path(), "full");
    assert_eq!(disk.refused(), 3);
    assert_eq!(content(image(&disk, Loss::All).path(), "old"), Some(b"OLD".to_vec()));
}

fn failing() {
    let file = File::options().write(true).open("old").expect("it was there");
    file.write_at(b"NEW", 0).expect("room");
    assert_eq!(file.sync_all().expect_err("it fails").raw_os_error(), Some(libc::EIO));
}

#[test]
fn a_failed_sync_keeps_nothing() {
    if shim().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(root.path().join("old"), "old").expect("room");
    let disk = PowerCut::over(root.path());
    disk.set_failing(true);
    run_on(&disk, root.path(), "failing");
    assert_eq!((disk.failed_syncs(), disk.syncs()), (1, 0));
    assert_eq!(content(image(&disk, Loss::All).path(), "old"), Some(b"old".to_vec()));
}

fn threads() {
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            scope.spawn(move || {
                let file = File::create(number.to_string()).expect("room");
                for round in 0..200u64 {
                    file.write_at(&[number; 1_000], round * 1_000).expect("room");
                    file.try_clone().and_then(|file| file.sync_data()).expect("a disk");
                }
            });
        }
    });
    sync_folder(".");
}

#[test]
fn many_threads_keep_their_files_apart() {
    if shim().is_none() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    let disk = run(root.path(), "threads");
    let left = image(&disk, Loss::All);
    for number in 0..8u8 {
        assert!(content(left.path(), &number.to_string()) == Some(vec![number; 200_000]), "file {number}");
    }
}
