//! Torn and damaged files: a torn end is cut off, damage in the middle is never taken for the end.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_cluster_tests::process::{Installation, Setup, copy_folder, flip};
use holdfast_cluster_tests::wire::{Message, Version};

use holdfast_cluster_tests::scene::SMALL_SEGMENTS;
use holdfast_cluster_tests::scene::{Scene, kept, publish_many};

const MESSAGES: usize = 4_000;

fn payload(number: usize) -> Vec<u8> {
    format!("{number:01000}").into_bytes()
}

/// An installation with messages for session `s` in several segments, whose broker was killed.
fn with_messages(storage: &str) -> Installation {
    let setup = Setup::new().section(&format!("{SMALL_SEGMENTS}\n{storage}")).mqtt("max_queued_bytes = \"100MB\"");
    let scene = Scene::on(setup.install());
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    publish_many(&mut scene.client("p"), "t", (0..MESSAGES).map(payload), &[]);
    scene.broker.kill();
    scene.installation
}

/// The oldest, one in the middle, and the last of those that are complete.
fn sealed_segment(installation: &Installation) -> PathBuf {
    let segments = installation.journal_files("segment");
    assert!(segments.len() >= 4, "{segments:?}");
    segments[segments.len() / 2].clone()
}

fn remove_indexes(installation: &Installation) {
    for path in installation.journal_files("index") {
        std::fs::remove_file(path).expect("a file of ours");
    }
}

/// Turns over one bit in the middle of a file.
fn flip_middle(path: &Path) {
    flip(path, path.metadata().expect("a file of ours").len() / 2);
}

fn name(path: &Path) -> String {
    path.file_name().expect("a file").to_string_lossy().into_owned()
}

/// The start must be refused with exit code 1 and a message that names the file.
#[track_caller]
fn refused(installation: &Installation, file: &str) {
    let broker = installation.launch();
    let status = broker.exit_status(Duration::from_secs(20));
    // The log is complete when the process has ended and its last line was read.
    assert!(
        broker.log().wait(0, Duration::from_secs(5), |line| line.contains(file)).is_some(),
        "{}",
        broker.log().text()
    );
    assert_eq!(status.code(), Some(1), "{}", broker.log().text());
}

/// What session `s` gets; every message must be one of those that were published, and in order.
#[track_caller]
fn drained(scene: &Scene) -> Vec<usize> {
    let mut client = scene.resume(&kept(Version::V5, "s"));
    let number = |message: &Message| {
        let number = message.text().trim_start_matches('0').parse().unwrap_or(0);
        assert!(message.payload == payload(number), "a message that nobody published: {:?}", message.text());
        number
    };
    let got: Vec<_> = scene.drain(&mut client, "t").iter().map(number).collect();
    assert!(got.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
    got
}

/// Where the last byte that was written ends.
fn written(path: &Path) -> u64 {
    let bytes = std::fs::read(path).expect("a file of ours");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |place| place as u64 + 1)
}

#[test]
fn a_last_segment_cut_off_anywhere_starts_with_what_is_before() {
    let installation = with_messages("");
    let last = installation.journal_files("segment").into_iter().rfind(|path| written(path) > 16_384);
    let last = name(&last.expect("a segment with much in it"));
    let end = written(&installation.journal_dir().join(&last));
    let later =
        installation.journal_files("segment").into_iter().filter(|path| name(path) > last).map(|path| name(&path));
    let later: Vec<_> = later.collect();
    let lengths = [end - 1, end - 4, end - 17, end - 512, end - 1_003, end - 5_000, end / 2, end / 3 + 1, 4_097];
    let mut counts = Vec::new();
    for length in lengths {
        let copy = installation.copy();
        // Segments behind it have nothing in them yet.
        for file in &later {
            std::fs::remove_file(copy.journal_dir().join(file)).expect("a file of ours");
        }
        let file = std::fs::File::options().write(true).open(copy.journal_dir().join(&last)).expect("a file of ours");
        file.set_len(length).expect("a file of ours");
        let got = drained(&Scene::on(copy));
        assert!(got.iter().copied().eq(0..got.len()), "cut at {length} of {end}: a hole");
        counts.push(got.len());
    }
    assert!(counts.windows(2).all(|pair| pair[0] >= pair[1]), "{counts:?}");
    assert!(counts[0] + 500 > MESSAGES && *counts.last().expect("some") > 0, "{counts:?}");
}

#[test]
fn damage_in_the_middle_is_not_taken_for_the_end() {
    let installation = with_messages("");
    remove_indexes(&installation);
    let segment = sealed_segment(&installation);
    let before = std::fs::read(&segment).expect("a file of ours");
    flip_middle(&segment);
    for _ in 0..2 {
        refused(&installation, &name(&segment));
    }
    // Nothing was changed by that: with the right byte back, everything is there.
    std::fs::write(&segment, before).expect("a file of ours");
    assert_eq!(drained(&Scene::on(installation)).len(), MESSAGES);
}

#[test]
fn a_missing_segment_is_not_taken_for_the_end() {
    let installation = with_messages("");
    let segment = sealed_segment(&installation);
    std::fs::remove_file(&segment).expect("a file of ours");
    refused(&installation, &name(&segment));
}

#[test]
fn quarantine_puts_the_damage_aside_and_keeps_the_rest() {
    let installation = with_messages("on_corruption = \"quarantine\"");
    remove_indexes(&installation);
    let segment = sealed_segment(&installation);
    flip_middle(&segment);
    let damaged = std::fs::read(&segment).expect("a file of ours");
    let mut scene = Scene::on(installation);
    let log = scene.broker.log();
    assert!(
        log.since(0).iter().any(|line| line.contains("\"WARN\"") && line.contains(&name(&segment))),
        "{}",
        log.text()
    );
    let found = found_below(&scene.installation.data_dir(), &damaged);
    assert!(found.iter().any(|path| path.components().any(|part| part.as_os_str() == "quarantine")), "{found:?}");
    // A start after that has nothing to complain of, and the same messages.
    scene.kill_and_start();
    assert!(!scene.broker.log().since(0).iter().any(|line| line.contains(&name(&segment))));
    let got = drained(&scene);
    assert!(got.len() < MESSAGES && got.len() + 200 > MESSAGES, "{} of {MESSAGES} messages", got.len());
    assert_eq!((got[0], got[got.len() - 1]), (0, MESSAGES - 1));
}

/// Files below a folder with this content.
fn found_below(folder: &Path, content: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(found_below(&path, content));
        } else if std::fs::read(&path).is_ok_and(|there| there == content) {
            found.push(path);
        }
    }
    found
}

/// With the indexes a start does not read every byte: it may find the damage then, or when the message is read.
#[test]
fn damage_behind_an_index_is_never_delivered() {
    let installation = with_messages("");
    let segment = sealed_segment(&installation);
    flip_middle(&segment);
    let broker = installation.launch();
    let is_up = |line: &holdfast_cluster_tests::process::Line| line.field("event").as_deref() == Some("ready");
    if broker.log().wait(0, Duration::from_secs(10), is_up).is_none() {
        return refused(&installation, &name(&segment));
    }
    broker.kill();
    let scene = Scene::on(installation);
    let got = drained(&scene);
    let log = scene.broker.log();
    assert!(got.len() + 1 >= MESSAGES, "{} of {MESSAGES} messages", got.len());
    assert!(got.len() == MESSAGES || log.since(0).iter().any(|line| line.contains("\"ERROR\"")), "{}", log.text());
}

/// Another installation, with this in `[storage]` and a copy of the data.
fn installed_with(storage: &str, data: &Path) -> Installation {
    let other = Setup::new().section(&format!("{SMALL_SEGMENTS}\n{storage}")).install();
    other.replace_data(data);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(other.data_dir(), permissions).expect("a folder of ours");
    other
}

/// Turns over one bit of the only place where these bytes stand in a segment.
fn flip_in(installation: &Installation, wanted: &[u8]) {
    let place_in = |path: &PathBuf| {
        let bytes = std::fs::read(path).expect("a file of ours");
        bytes.windows(wanted.len()).position(|bytes| bytes == wanted).map(|place| (path.clone(), place as u64))
    };
    let (path, place) = installation.journal_files("segment").iter().find_map(place_in).expect("it is on disk");
    flip(&path, place);
}

#[test]
fn a_damaged_retained_message_is_told_and_with_quarantine_left_out_alone() {
    let scene = Scene::on(Setup::new().section(SMALL_SEGMENTS).install());
    let mut publisher = scene.client("p");
    for number in 0..5 {
        assert!(publisher.publish_retained(format!("r/{number}"), format!("value-of-{number}"), 1) < 0x80);
    }
    // With an index for every segment, a start does not read the messages before it needs them.
    assert!(scene.broker.stop(Duration::from_secs(20)).success());
    flip_in(&scene.installation, b"value-of-3");
    refused(&scene.installation, "on_corruption = \\\"quarantine\\\"");
    let mut scene = Scene::on(installed_with("on_corruption = \"quarantine\"", &scene.installation.data_dir()));
    for _ in 0..2 {
        let mut reader = scene.client("reader");
        reader.subscribe("r/#", 0);
        let values: Vec<_> = (0..4).map(|_| reader.recv_publish().text()).collect();
        assert_eq!(values, ["value-of-0", "value-of-1", "value-of-2", "value-of-4"]);
        assert!(reader.fence().is_empty());
        assert!(scene.client("p").publish_retained("r/3", "", 1) < 0x80, "a deletion of what is lost");
        scene.kill_and_start();
    }
}

#[test]
fn a_journal_that_is_gone_or_of_another_node_is_not_taken_for_an_empty_one() {
    let mut scene = Scene::on(Setup::new().section(SMALL_SEGMENTS).install());
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    // The start that sees that the node has run before.
    scene.kill_and_start();
    scene.broker.kill();
    let Scene { installation, .. } = scene;
    let other = Scene::on(Setup::new().section(SMALL_SEGMENTS).install());
    other.broker.kill();
    let (own, away) = (installation.journal_dir(), installation.data_dir().with_file_name("away"));
    std::fs::rename(&own, &away).expect("a folder of ours");
    refused(&installation, "its journal is gone");
    copy_folder(&other.installation.journal_dir(), &own);
    refused(&installation, "the journal belongs to node");
    std::fs::remove_dir_all(&own).expect("a folder of ours");
    std::fs::rename(&away, &own).expect("a folder of ours");
    Scene::on(installation).resume(&kept(Version::V5, "s"));
}

#[test]
fn the_newest_segment_that_has_gone_is_missed_by_its_index() {
    let scene = Scene::on(with_messages(""));
    assert!(scene.broker.stop(Duration::from_secs(20)).success());
    let newest = scene.installation.journal_files("index").last().expect("an index").with_extension("segment");
    std::fs::remove_file(&newest).expect("a file of ours");
    refused(&scene.installation, &name(&newest));
}

#[test]
fn a_last_write_that_was_cut_short_is_told_in_the_log() {
    let installation = with_messages("");
    let last = installation.journal_files("segment").into_iter().rfind(|path| written(path) > 16_384);
    let last = last.expect("a segment with much in it");
    let file = std::fs::File::options().write(true).open(&last).expect("a file of ours");
    file.write_all_at(&[0; 64], written(&last) - 64).expect("a file of ours");
    let scene = Scene::on(installation);
    let told = scene.broker.log().since(0).iter().any(|line| line.contains("the last write was cut short"));
    assert!(told, "{}", scene.broker.log().text());
}

/// A number in `alive` that no clock says must not make everything expire.
#[test]
fn a_damaged_time_of_the_last_run_is_not_believed() {
    let mut scene = Scene::on(Setup::new().section(SMALL_SEGMENTS).install());
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    scene.broker.kill();
    std::fs::write(scene.installation.data_dir().join("alive"), "9999999999999999999\n").expect("a file of ours");
    scene.start();
    scene.resume(&kept(Version::V5, "s"));
}

/// A copy of the data directory is as good as the original.
#[test]
fn a_copy_of_the_data_directory_starts() {
    let installation = with_messages("");
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    copy_folder(&installation.data_dir(), elsewhere.path());
    assert_eq!(drained(&Scene::on(installed_with("", elsewhere.path()))).len(), MESSAGES);
}
