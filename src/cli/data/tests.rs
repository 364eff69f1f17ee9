//! The words of the commands, and the file that an export is written to.

use std::io::{Seek as _, Write as _};
use std::path::Path;

use super::export::Output;
use super::*;

#[test]
fn one_is_one_and_others_are_many() {
    let counts = Counts { sessions: 1, subscriptions: 0, queued: 2, handshakes: 1, retained: 3, wills: 1 };
    let expected =
        "1 session, 0 subscriptions, 2 queued messages, 1 open QoS 2 flow, 3 retained messages, 1 pending Will";
    assert_eq!(in_words(&counts), expected);
}

#[test]
fn a_file_is_there_when_it_is_complete() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("export");
    std::fs::write(&path, "older").expect("the folder can be written");
    let names = || std::fs::read_dir(folder.path()).expect("a folder").count();
    let mut output = Output::create(&path).expect("it can be made");
    output.file.write_all(b"newer").expect("it can be written");
    assert_eq!((names(), std::fs::read(&path).expect("a file")), (2, b"older".to_vec()));
    drop(output);
    assert_eq!((names(), std::fs::read(&path).expect("a file")), (1, b"older".to_vec()));
    let mut output = Output::create(&path).expect("it can be made");
    output.file.write_all(b"newer").expect("it can be written");
    output.finish().expect("it can be finished");
    assert_eq!((names(), std::fs::read(&path).expect("a file")), (1, b"newer".to_vec()));
    assert!(Output::create(&folder.path().join("none/export")).is_err());
}

/// What is no file is written to as it is.
#[test]
fn a_device_stays_what_it_is() {
    let mut output = Output::create(Path::new("/dev/null")).expect("it can be opened");
    output.file.write_all(b"x").expect("it can be written");
    assert_eq!(output.file.stream_position().expect("a position"), 0);
    output.finish().expect("nothing to do");
    assert!(!Path::new("/dev/null").metadata().expect("it is there").is_file());
    assert!(!Path::new("/dev/null.new").exists());
}
