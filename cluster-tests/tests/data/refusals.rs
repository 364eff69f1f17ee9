//! What `holdfast data` does not do, and what it says then.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use holdfast_cluster_tests::wire::Version;

use crate::{PATIENCE, command, data, data_with_input, export, import};
use holdfast_cluster_tests::scene::{Scene, kept, publish_many};

#[test]
fn a_running_node_is_left_alone() {
    let scene = Scene::new();
    let dir = scene.installation.data_dir();
    for what in ["verify", "export"] {
        let done = data(&[OsStr::new(what), dir.as_ref()]);
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{what}");
        let owner = format!("in use by process {}", scene.broker.pid());
        assert!(done.err.contains(&owner) && done.err.contains("stop it first"), "{}", done.err);
    }
    let done = data_with_input(&["import".as_ref(), "-".as_ref(), dir.as_ref()], "");
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("name a new or empty directory"), "{}", done.err);
    assert!(scene.broker.is_running());
}

#[test]
fn no_data_directory_is_wrong_usage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("holdfast.toml");
    std::fs::write(&config, "").expect("the temporary folder can be written");
    for what in ["verify", "export"] {
        let none = folder.path().join("none");
        for args in
            [&[OsStr::new(what), none.as_ref()][..], &[what.as_ref(), "-c".as_ref(), config.as_ref()], &[what.as_ref()]]
        {
            let done = data(args);
            assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}: {}", done.err);
            assert!(done.err.contains("data"), "{}", done.err);
        }
        assert!(!none.exists());
    }
    for args in [&["verify", "a", "-c", "b"][..], &["import", "a"], &["mend"]] {
        assert_eq!(data(args).code, Some(2), "{args:?}");
    }
    for args in [&["--help"][..], &["verify", "--help"], &["export", "--help"], &["import", "--help"]] {
        let done = data(args);
        assert!(done.code == Some(0) && done.out.contains("Usage: holdfast data"), "{args:?}: {}", done.out);
    }
}

/// An export of a session with two messages.
fn small_export() -> String {
    let scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    publish_many(&mut scene.client("p"), "t", ["a", "b"].into_iter().map(Into::into), &[]);
    assert!(scene.broker.stop(PATIENCE).success());
    export(&scene.installation.data_dir())
}

#[test]
fn an_import_is_all_or_nothing() {
    let lines = small_export();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("data");
    let wrong = lines.replace("\"filter\":\"t\"", "\"filter\":\"t#\"").replace("\"qos\":1", "\"qos\":7");
    let file = folder.path().join("wrong");
    std::fs::write(&file, &wrong).expect("the temporary folder can be written");
    let cut: String = lines.lines().take(4).map(|line| format!("{line}\n")).collect();
    for dry_run in [true, false] {
        let mut args = vec![OsStr::new("import"), file.as_ref(), dir.as_ref()];
        args.extend(dry_run.then_some(OsStr::new("--dry-run")));
        let done = data(&args);
        assert_eq!((done.code, done.out.as_str()), (Some(1), ""));
        for line in [4, 5, 6] {
            assert!(done.err.contains(&format!("{}:{line}: ", file.display())), "{}", done.err);
        }
        assert!(done.err.ends_with("nothing was imported\n"), "{}", done.err);
        let done = data_with_input(&["import".as_ref(), "-".as_ref(), dir.as_ref()], &cut);
        assert!(
            done.code == Some(1) && done.err.contains("(standard input):5: the last line is missing"),
            "{}",
            done.err
        );
        assert!(!dir.exists());
    }
    let done = data_with_input(&["import".as_ref(), "-".as_ref(), "--dry-run".as_ref()], &lines);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.contains("would import 1 session, 1 subscription, 2 queued messages"), "{}", done.out);
    import(&lines, &dir);
    // Not twice.
    for more in [&[][..], &[OsStr::new("-n")]] {
        let args = [&["import".as_ref(), "-".as_ref(), dir.as_ref()], more].concat();
        let done = data_with_input(&args, &lines);
        assert!(done.code == Some(1) && done.err.contains("not empty"), "{}", done.err);
    }
}

/// What an interrupted import leaves behind starts no node, and the next import goes over it.
#[test]
fn an_interrupted_import_is_begun_anew() {
    let lines = small_export();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("data");
    let mut command = command(&["import".as_ref(), "-".as_ref(), dir.as_ref()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program can be started");
    let deadline = std::time::Instant::now() + PATIENCE;
    while !dir.join("incomplete").exists() {
        assert!(std::time::Instant::now() < deadline, "it does not begin");
        std::thread::yield_now();
    }
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    let done = data(&[OsStr::new("verify"), dir.as_ref()]);
    assert!(done.code == Some(1) && done.err.contains("node.id"), "{}", done.err);
    import(&lines, &dir);
    assert_eq!(export(&dir).lines().skip(1).collect::<Vec<_>>(), lines.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    publish_many(&mut scene.client("p"), "t", (0..1_000).map(|_| vec![b'x'; 1_000]), &[]);
    assert!(scene.broker.stop(PATIENCE).success());
    let dir = scene.installation.data_dir();
    let mut command = command(&["export".as_ref(), dir.as_ref()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program can be started");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    drop(out);
    let mut err = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
    assert_eq!(child.wait().expect("a child of ours").code(), Some(1), "{err}");
    assert!(err.contains("not complete") && !err.contains("panic"), "{err}");
}
