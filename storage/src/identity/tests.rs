//! The identity over restarts, crashes in the middle of the first start, and damage.

use super::*;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn opened(dir: &Path) -> Identity {
    Identity::open_or_create(dir).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_identity_is_made_once_and_kept() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/b/data");
    let first = opened(&dir).node_id();
    assert_eq!(text(&dir.join(ID_FILE)), format!("{first:032x}\n"));
    assert_eq!(text(&dir.join(FORMAT_FILE)), "2\n");
    let again = opened(&dir);
    assert_eq!(again.node_id(), first);
    assert_eq!(again.dir(), dir);
    assert_ne!(opened(&root.path().join("other")).node_id(), first);
}

#[test]
fn a_new_directory_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let _identity = opened(&dir);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join(ID_FILE)), 0o600);
}

#[test]
fn one_directory_has_one_user_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let first = opened(root.path());
    let error = Identity::open_or_create(root.path()).unwrap_err();
    assert!(matches!(error, IdentityError::InUse { pid: Some(pid), .. } if pid == std::process::id()));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(first);
    opened(root.path());
}

#[test]
fn a_lock_without_a_process_id_is_still_a_lock() {
    let root = tempfile::tempdir().unwrap();
    let _first = opened(root.path());
    std::fs::write(root.path().join(LOCK_FILE), "").unwrap();
    let error = Identity::open_or_create(root.path()).unwrap_err();
    assert!(matches!(error, IdentityError::InUse { pid: None, .. }));
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn the_process_id_of_a_lock_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join(LOCK_FILE), "99999999999\n and more\n").unwrap();
    let _identity = opened(root.path());
    assert_eq!(text(&root.path().join(LOCK_FILE)), format!("{}\n", std::process::id()));
}

#[test]
fn a_crash_at_any_point_of_the_first_start_is_repaired_by_the_next() {
    let left_behind: [&[(&str, &str)]; 7] = [
        &[("lock", "")],
        &[("lock", "7\n"), ("format.new", "")],
        &[("lock", "7\n"), ("format.new", "1\n")],
        &[("lock", "7\n"), ("format", "1\n")],
        &[("lock", "7\n"), ("format", "2\n"), ("format.new", "2")],
        &[("lock", "7\n"), ("format", "1\n"), ("node.id.new", "0123")],
        &[("lost+found", "")],
    ];
    for files in left_behind {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join(name), text).unwrap();
        }
        let first = opened(root.path()).node_id();
        assert_eq!(opened(root.path()).node_id(), first, "{files:?}");
        assert_eq!(text(&root.path().join(FORMAT_FILE)), "2\n", "{files:?}");
    }
}

#[test]
fn folders_made_ahead_are_no_foreign_files() {
    let root = tempfile::tempdir().unwrap();
    for folder in ["journal/lost+found", "quarantine"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let identity = opened(root.path());
    assert_eq!(identity.journal_dir(), root.path().join("journal"));
    assert_eq!(identity.quarantine_dir(), root.path().join("quarantine"));
}

#[test]
fn a_directory_with_files_and_no_identity_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let _ = opened(root.path()).node_id();
    std::fs::write(root.path().join("sessions.1"), "").unwrap();
    std::fs::remove_file(root.path().join(ID_FILE)).unwrap();
    let error = Identity::open_or_create(root.path()).unwrap_err();
    assert!(matches!(&error, IdentityError::NoIdentity { found, .. } if found == "sessions.1"), "{error}");
    assert!(!root.path().join(ID_FILE).exists(), "no new identity is made");
}

#[test]
fn a_journal_without_an_identity_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let journal = opened(root.path()).journal_dir();
    std::fs::create_dir(&journal).unwrap();
    std::fs::write(journal.join("1.seg"), "").unwrap();
    opened(root.path());
    std::fs::remove_file(root.path().join(ID_FILE)).unwrap();
    let error = Identity::open_or_create(root.path()).unwrap_err();
    assert!(matches!(&error, IdentityError::NoIdentity { found, .. } if found == "journal"), "{error}");
}

#[test]
fn a_directory_of_the_first_format_becomes_one_of_this_and_keeps_its_identity() {
    let root = tempfile::tempdir().unwrap();
    let id = opened(root.path()).node_id();
    let format = root.path().join(FORMAT_FILE);
    for before in [vec![], vec![("format.new", "")], vec![("format.new", "2\n")]] {
        std::fs::write(&format, "1\n").unwrap();
        for (name, text) in before {
            std::fs::write(root.path().join(name), text).unwrap();
        }
        assert_eq!(opened(root.path()).node_id(), id);
        assert_eq!(text(&format), "2\n");
        assert!(!root.path().join("format.new").exists());
    }
}

#[test]
fn a_damaged_identity_is_refused_and_left_alone() {
    let good = "0123456789abcdef0123456789abcdef";
    for bad in [
        "",
        "\n",
        &good[1..],
        &format!("{good}0"),
        &good.replace('0', "g"),
        &format!("+{}", &good[1..]),
        &format!("{good}\n\n"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let _ = opened(root.path()).node_id();
        std::fs::write(root.path().join(ID_FILE), bad).unwrap();
        let error = Identity::open_or_create(root.path()).unwrap_err();
        assert!(matches!(error, IdentityError::Damaged { .. }), "{bad:?} {error}");
        assert_eq!(text(&root.path().join(ID_FILE)), bad);
    }
    let root = tempfile::tempdir().unwrap();
    let _ = opened(root.path()).node_id();
    std::fs::write(root.path().join(ID_FILE), [0xFF; 32]).unwrap();
    assert!(matches!(Identity::open_or_create(root.path()), Err(IdentityError::Damaged { .. })));
    std::fs::write(root.path().join(ID_FILE), good).unwrap();
    assert_eq!(opened(root.path()).node_id(), 0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF);
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let root = tempfile::tempdir().unwrap();
    let _ = opened(root.path()).node_id();
    let format = root.path().join(FORMAT_FILE);
    std::fs::write(&format, "3\n").unwrap();
    let error = Identity::open_or_create(root.path()).unwrap_err();
    assert!(matches!(error, IdentityError::NewerFormat { found: 3, .. }));
    assert!(error.to_string().contains("written by a newer Holdfast"), "{error}");
    assert_eq!(text(&format), "3\n");
    std::fs::remove_file(root.path().join(ID_FILE)).unwrap();
    assert!(
        matches!(Identity::open_or_create(root.path()), Err(IdentityError::NewerFormat { .. })),
        "also without an identity"
    );
    let root = tempfile::tempdir().unwrap();
    let _ = opened(root.path()).node_id();
    let format = root.path().join(FORMAT_FILE);
    for bad in ["one", "", "0\n", "-1\n"] {
        std::fs::write(&format, bad).unwrap();
        assert!(matches!(Identity::open_or_create(root.path()), Err(IdentityError::Damaged { .. })), "{bad:?}");
    }
    std::fs::remove_file(&format).unwrap();
    assert!(matches!(Identity::open_or_create(root.path()), Err(IdentityError::Damaged { .. })));
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    std::fs::write(&path, "").unwrap();
    let error = Identity::open_or_create(&path).unwrap_err();
    assert!(matches!(error, IdentityError::Io { .. }));
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

#[test]
fn to_look_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    assert!(Identity::open(&dir).unwrap().is_none());
    assert!(!dir.exists());
    std::fs::create_dir(&dir).unwrap();
    assert!(Identity::open(&dir).unwrap().is_none());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let node_id = opened(&dir).node_id();
    std::fs::write(dir.join(FORMAT_FILE), "1\n").unwrap();
    let looking = Identity::open(&dir).unwrap().unwrap();
    assert_eq!((looking.node_id(), text(&dir.join(FORMAT_FILE)).as_str()), (node_id, "1\n"));
    assert!(matches!(Identity::open_or_create(&dir), Err(IdentityError::InUse { .. })));
    assert!(matches!(Identity::open(&dir), Err(IdentityError::InUse { .. })));
    drop(looking);
    std::fs::write(dir.join(FORMAT_FILE), "3\n").unwrap();
    assert!(matches!(Identity::open(&dir), Err(IdentityError::NewerFormat { found: 3, .. })));
    std::fs::write(root.path().join("letter"), "").unwrap();
    assert!(matches!(Identity::open(root.path()), Err(IdentityError::NoIdentity { .. })));
    assert!(!root.path().join(LOCK_FILE).exists());
}

#[test]
fn a_directory_is_born_whole_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/data");
    let begin = || {
        let unborn = Unborn::begin(&dir).unwrap_or_else(|error| panic!("{error}"));
        assert!(!unborn.journal_dir().exists());
        std::fs::create_dir(unborn.journal_dir()).unwrap();
        std::fs::write(unborn.journal_dir().join("part"), "").unwrap();
        unborn
    };
    begin().abandon().unwrap();
    assert!(!dir.exists());
    // Cut off in the middle: no node starts on what is left, and the next one clears it away.
    drop(begin());
    assert!(matches!(Identity::open_or_create(&dir), Err(IdentityError::NoIdentity { .. })));
    assert!(matches!(Identity::open(&dir), Err(IdentityError::NoIdentity { .. })));
    let unborn = begin();
    assert!(matches!(Unborn::begin(&dir), Err(IdentityError::InUse { .. })));
    let node_id = unborn.finish().unwrap().node_id();
    let born = opened(&dir);
    assert_eq!(born.node_id(), node_id);
    assert!(born.journal_dir().join("part").exists());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 4, "lock, format, node.id, journal");
    assert!(matches!(Unborn::look(&dir), Err(IdentityError::NotEmpty { .. })));
}

#[test]
fn what_is_there_already_is_not_filled() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("lost+found")).unwrap();
    std::fs::create_dir(root.path().join(JOURNAL_DIR)).unwrap();
    Unborn::begin(root.path()).unwrap().abandon().unwrap();
    assert!(root.path().is_dir());
    std::fs::write(root.path().join("letter"), "").unwrap();
    for error in [Unborn::look(root.path()).unwrap_err(), Unborn::begin(root.path()).unwrap_err()] {
        assert!(error.to_string().contains("\"letter\""), "{error}");
    }
    assert!(Unborn::look(&root.path().join("letter")).is_err());
}
