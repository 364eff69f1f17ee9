//! The admin port of a real node, and the commands that ask it: probes, metrics, clients over shards, and what hostile bytes do to it.
//!
//! Read first: `clients.rs`.

mod clients;
mod exposition;
mod health;
mod messages;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::process::{Broker, program_command};
use holdfast_cluster_tests::transport::PATIENCE;

/// A broker of a test's own.
fn start(setup: holdfast_cluster_tests::process::Setup) -> Broker {
    setup.start().expect("these tests start their own broker")
}

/// The status and the whole answer.
#[track_caller]
fn ask(broker: &Broker, method: &str, path: &str) -> (u16, String) {
    let address = broker.admin();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let answer = say(broker, request.as_bytes());
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no HTTP: {answer}")), answer)
}

/// Asks until the answer is 200, for what becomes so.
#[track_caller]
fn until_good(broker: &Broker, path: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, answer) = ask(broker, "GET", path);
        if status == 200 {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path} does not become good: {answer}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the port says to these bytes until it closes.
#[track_caller]
fn say(broker: &Broker, bytes: &[u8]) -> String {
    answer(TcpStream::connect(broker.admin()).expect("the port is open"), bytes, false)
}

/// The same, when these bytes are all.
#[track_caller]
fn say_all(broker: &Broker, bytes: &[u8]) -> String {
    answer(TcpStream::connect(broker.admin()).expect("the port is open"), bytes, true)
}

#[track_caller]
fn answer(mut stream: TcpStream, bytes: &[u8], is_all: bool) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket of ours");
    // It may close before it has all of it.
    let _ = stream.write_all(bytes);
    if is_all {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let timed_out = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!timed_out, "the port does not close");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A command of the program about a broker; its exit code, and what it printed and said.
fn command(broker: &Broker, args: &[&str]) -> (Option<i32>, String, String) {
    run(&[args, &["--admin", &format!("http://{}", broker.admin())]].concat())
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        program_command().args(args).stdin(Stdio::null()).output().expect("the program can be started");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes text");
    (status.code(), text(stdout), text(stderr))
}
