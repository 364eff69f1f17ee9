//! `holdfast data`: what a node has on disk is verified, exported and imported, by the real program on real files.
//!
//! Read first: `round_trip.rs`.

mod damage;
mod refusals;
mod round_trip;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use holdfast_cluster_tests::process::program_command;
use holdfast_cluster_tests::transport::PATIENCE;
use serde_json::Value;

/// What the program did.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program writes text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

fn command(args: &[&OsStr]) -> Command {
    let mut command = program_command();
    // Whoever forgets the directory must not meet that of the user.
    command.env("XDG_DATA_HOME", "/nonexistent").arg("data").args(args);
    command
}

/// `holdfast data` with these arguments.
fn data(args: &[impl AsRef<OsStr>]) -> Done {
    let args: Vec<_> = args.iter().map(AsRef::as_ref).collect();
    command(&args).stdin(Stdio::null()).output().expect("the program can be started").into()
}

/// The same, with something to read.
fn data_with_input(args: &[&OsStr], input: &str) -> Done {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program can be started");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    // It may end before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let done = child.wait_with_output().expect("a child of ours").into();
    let _ = writer.join();
    done
}

/// Exports a directory that is good.
#[track_caller]
fn export(dir: &Path) -> String {
    let done = data(&[OsStr::new("export"), dir.as_os_str()]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    done.out
}

/// Imports what is good.
#[track_caller]
fn import(lines: &str, dir: &Path) {
    let done = data_with_input(&[OsStr::new("import"), OsStr::new("-"), dir.as_os_str()], lines);
    assert_eq!(done.code, Some(0), "{}", done.err);
}

/// Verifies a directory, which is good; the summary.
#[track_caller]
fn verify(dir: &Path) -> String {
    let done = data(&[OsStr::new("verify"), dir.as_os_str()]);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.out.contains(": good: "), "{}", done.out);
    done.out
}

/// The lines of an export but for the first, which says when and by whom it was made.
fn body(lines: &str) -> Vec<&str> {
    lines.lines().skip(1).collect()
}

/// The lines of one type.
fn of_type(lines: &str, wanted: &str) -> Vec<Value> {
    let parsed = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("lines of JSON"));
    parsed.filter(|line| line["type"] == wanted).collect()
}
