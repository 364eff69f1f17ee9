//! The program as people and scripts meet it: exit codes, what it says, and how it ends.
//!
//! Read first: `an_unusable_configuration_is_one_exit_code`.

mod data_dir;
mod dev;
mod log;
mod reloads;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::process::{Broker, Setup, program_command};
use holdfast_cluster_tests::transport::PATIENCE;

/// A broker of a test's own.
fn start(setup: Setup) -> Broker {
    setup.start().expect("these tests start their own broker")
}

fn run(args: &[&str]) -> Output {
    program_command().args(args).stdin(Stdio::null()).output().expect("the program can be started")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `holdfast sub` on a listener of a broker; what it prints can be read.
fn subscribe(broker: &Broker, more: &[&str]) -> Child {
    let port = broker.listener("tcp").port().to_string();
    let mut command = program_command();
    command.args(["sub", "-h", "127.0.0.1", "-p", &port]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program can be started")
}

fn publish(broker: &Broker, more: &[&str]) -> Output {
    let port = broker.listener("tcp").port().to_string();
    run(&[&["pub", "-h", "127.0.0.1", "-p", &port], more].concat())
}

/// Waits for the end of a process.
fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: i32) {
    let pid = libc::pid_t::try_from(child.id()).expect("a process id");
    // SAFETY: kill takes no pointers, and the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "the program is gone");
}

fn write(folder: &Path, text: &str) -> String {
    let path = folder.join("holdfast.toml");
    std::fs::write(&path, text).expect("the temporary folder can be written");
    path.to_string_lossy().into_owned()
}

#[test]
fn an_unusable_configuration_is_one_exit_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (text, places) in [
        ("[mqtt]\nmax_inflght = 1\n", &[":2:1: "][..]),
        ("[auth]\npassword_file = 'gone'\n", &[":2:17: password_file: "]),
        (
            "[[listener]]\nbind = '127.0.0.1:0'\nallow_anonymous = true\ntls = { cert = 'c', key = 'k' }\n",
            &[":4:16: cert: ", ":4:27: key: "],
        ),
    ] {
        let file = write(folder.path(), text);
        for command in [&["config", "check", &file][..], &["serve", &file], &["serve", "--config", &file]] {
            let output = run(command);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {}", stderr(&output));
            for place in places {
                assert!(stderr(&output).contains(&format!("{file}{place}")), "{place}: {}", stderr(&output));
            }
        }
    }
}

#[test]
fn a_port_that_is_taken_is_another_exit_code() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = write(folder.path(), &format!("[admin]\nbind = 'off'\n[[listener]]\nbind = '{address}'\n"));
    assert_eq!(run(&["config", "check", &file]).status.code(), Some(0));
    let output = run(&["serve", &file]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("has this port"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_has_enough_ends_sub_without_an_error() {
    let broker = start(Setup::new());
    assert!(publish(&broker, &["-t", "t", "-m", "one", "-r"]).status.success());
    let mut sub = subscribe(&broker, &["-t", "t"]);
    let mut lines = BufReader::new(sub.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert_eq!(line, "one\n");
    drop(lines);
    assert!(publish(&broker, &["-t", "t", "-m", "two"]).status.success());
    assert_eq!(ended(&mut sub).code(), Some(0));
    let mut said = String::new();
    sub.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(said, "");
}

#[test]
fn an_interrupted_sub_disconnects() {
    for how in [libc::SIGINT, libc::SIGTERM] {
        let broker = start(Setup::new());
        assert!(publish(&broker, &["-t", "t", "-m", "one", "-r"]).status.success());
        let mut sub = subscribe(&broker, &["-t", "t", "-i", "watcher"]);
        let mut line = String::new();
        BufReader::new(sub.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        signal(&sub, how);
        assert_eq!(ended(&mut sub).code(), Some(0));
        let closed = broker.log().wait(0, PATIENCE, |line| {
            line.field("event").as_deref() == Some("close") && line.field("client_id").as_deref() == Some("watcher")
        });
        assert_eq!(closed.and_then(|line| line.field("reason")).as_deref(), Some("Success"), "a DISCONNECT");
    }
}

#[test]
fn a_broker_that_stops_need_not_wait_for_sub() {
    let broker = start(Setup::new());
    assert!(publish(&broker, &["-t", "t", "-m", "one", "-r"]).status.success());
    let mut sub = subscribe(&broker, &["-t", "t"]);
    let mut line = String::new();
    BufReader::new(sub.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    // Below the 2 s for which a connection may linger.
    assert!(broker.stop(Duration::from_millis(1500)).success());
    signal(&sub, libc::SIGINT);
    assert_eq!(ended(&mut sub).code(), Some(0));
}

#[test]
fn a_file_that_is_too_large_is_an_error_before_or_after() {
    let broker = start(Setup::new().mqtt("max_packet_size = 1000"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("large");
    std::fs::write(&file, [b'x'; 2000]).expect("the temporary folder can be written");
    let file = file.to_string_lossy();
    let known = publish(&broker, &["-t", "t", "-f", &file, "-V", "5"]);
    assert_eq!(known.status.code(), Some(1));
    assert!(stderr(&known).contains("the largest that the broker takes is 1000"), "{}", stderr(&known));
    // 3.1.1 has no word for it: the broker can only close.
    let unknown = publish(&broker, &["-t", "t", "-f", &file]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).starts_with("error: 127.0.0.1:"), "{}", stderr(&unknown));
}
