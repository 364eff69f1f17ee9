//! Damage is named, by file and byte, and a damaged directory is not exported in part.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use holdfast_cluster_tests::process::{Installation, flip};
use holdfast_cluster_tests::wire::Version;

use crate::{Done, PATIENCE, data, export, verify};
use holdfast_cluster_tests::scene::{Scene, kept, publish_many};

const MESSAGES: usize = 3_000;

/// Messages in several segments, after a clean end or a kill.
fn with_messages(clean: bool) -> Installation {
    let scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    let payloads = (0..MESSAGES).map(|number| format!("{number:01000}").into_bytes());
    publish_many(&mut scene.client("p"), "t", payloads, &[]);
    if clean {
        assert!(scene.broker.stop(PATIENCE).success());
    } else {
        scene.broker.kill();
    }
    scene.installation
}

fn name(path: &Path) -> String {
    path.file_name().expect("a file").to_string_lossy().into_owned()
}

fn verified(installation: &Installation) -> Done {
    data(&[OsStr::new("verify"), installation.data_dir().as_os_str()])
}

/// The byte of the damage that `holdfast data verify` names in this file, which is the only one.
#[track_caller]
fn named_byte(done: &Done, path: &Path) -> u64 {
    assert_eq!(done.code, Some(1), "{}{}", done.out, done.err);
    let prefix = format!("journal/{}, byte ", name(path));
    let lines: Vec<_> = done.out.lines().collect();
    assert!(lines.last().expect("a summary").contains(": DAMAGED: "), "{}", done.out);
    assert!(lines[..lines.len() - 1].iter().all(|line| line.starts_with(&prefix)), "{}", done.out);
    let byte = lines[0][prefix.len()..].split(':').next().expect("a number");
    byte.parse().expect("a number")
}

#[track_caller]
fn not_exported(installation: &Installation, file: &str) {
    let output = installation.folder().join("export");
    let done = data(&[OsStr::new("export"), installation.data_dir().as_ref(), "-o".as_ref(), output.as_ref()]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.err);
    assert!(done.err.contains(file) && done.err.contains("quarantine"), "{}", done.err);
    assert!(!output.exists() && !output.with_extension("new").exists());
}

#[test]
fn every_flipped_byte_of_what_was_written_is_found() {
    let installation = with_messages(true);
    let segments = installation.journal_files("segment");
    assert!(segments.len() >= 3, "{segments:?}");
    for (path, place) in [(&segments[0], 20), (&segments[0], 70), (&segments[1], 500_000), (&segments[2], 300_001)] {
        let copy = installation.copy();
        let path = copy.journal_dir().join(name(path));
        flip(&path, place);
        let byte = named_byte(&verified(&copy), &path);
        assert!(byte <= place && place < byte + 100_000, "{byte} for {place}");
        not_exported(&copy, &name(&path));
    }
}

#[test]
fn a_missing_segment_is_named() {
    let installation = with_messages(false);
    let segment = installation.journal_files("segment").swap_remove(1);
    std::fs::remove_file(&segment).expect("a file of ours");
    let done = verified(&installation);
    let expected = format!("journal/{}, byte 0: the segment is missing\n", name(&segment));
    assert!(done.code == Some(1) && done.out.contains(&expected), "{}", done.out);
    not_exported(&installation, &name(&segment));
}

/// It costs nothing, so the export is whole; but who looks after the disk should know.
#[test]
fn a_damaged_index_is_named_and_does_no_harm() {
    let installation = with_messages(true);
    let whole = export(&installation.data_dir());
    let index = installation.journal_files("index").swap_remove(0);
    flip(&index, 200);
    assert_eq!(named_byte(&verified(&installation), &index), 0);
    assert_eq!(export(&installation.data_dir()).lines().count(), whole.lines().count());
}

#[test]
fn what_a_kill_leaves_is_no_damage() {
    let installation = with_messages(false);
    let summary = verify(&installation.data_dir());
    assert!(summary.contains(&format!("{MESSAGES} queued messages")), "{summary}");
    // A batch that was cut off in the middle, as by a power cut.
    let written = |path: &&PathBuf| std::fs::read(path).expect("a file of ours").iter().skip(64).any(|byte| *byte != 0);
    let segments = installation.journal_files("segment");
    let last = segments.iter().rfind(written).expect("a segment with something in it");
    let bytes = std::fs::read(last).expect("a file of ours");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("something in it");
    flip(last, end as u64);
    let summary = verify(&installation.data_dir());
    assert!(summary.contains(&format!("journal/{}, byte ", name(last))) && summary.contains("no damage"), "{summary}");
    let done = data(&[OsStr::new("export"), installation.data_dir().as_ref()]);
    assert!(done.code == Some(0) && done.err.contains("left out"), "{}", done.err);
}

#[test]
fn a_lost_identity_is_no_empty_directory() {
    let installation = with_messages(true);
    std::fs::remove_file(installation.data_dir().join("node.id")).expect("a file of ours");
    for what in ["verify", "export"] {
        let done = data(&[OsStr::new(what), installation.data_dir().as_ref()]);
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert!(done.err.contains("node.id"), "{}", done.err);
    }
}
