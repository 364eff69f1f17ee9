//! `holdfast dev`: real nodes, and the commands from another terminal.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use super::*;

/// A dev cluster of a test's own. Its nodes end with it.
struct Dev {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Dev {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            signal(&self.child, libc::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

fn dev(folder: &Path, more: &[&str]) -> Dev {
    let mut command = program_command();
    command.args(["dev", "--port-base", "0", "--data"]).arg(folder).args(more);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program can be started");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    Dev { child, lines }
}

/// `holdfast dev` from another terminal.
fn elsewhere(folder: &Path, args: &[&str]) -> Output {
    let folder = folder.to_string_lossy();
    run(&[&["dev", "--data", &folder], args].concat())
}

impl Dev {
    /// What it prints, up to a line that holds `text`.
    fn until(&mut self, text: &str) -> Vec<String> {
        let mut printed = Vec::new();
        for line in self.lines.by_ref() {
            printed.push(line.expect("text"));
            if printed.last().is_some_and(|line| line.contains(text)) {
                return printed;
            }
        }
        panic!("it ended without \"{text}\" after:\n{}", printed.join("\n"));
    }

    /// Stops it as Ctrl-C does.
    fn stop(mut self) -> ExitStatus {
        signal(&self.child, libc::SIGINT);
        ended(&mut self.child)
    }
}

/// The address of the admin port in the row of a node.
fn admin(table: &[String], node: &str) -> SocketAddr {
    let row = table.iter().find(|line| line.split_whitespace().next() == Some(node)).expect("a row");
    let url = row.split_whitespace().find_map(|cell| cell.strip_prefix("http://"));
    url.and_then(|address| address.parse().ok()).expect("an address")
}

fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request = format!("GET /health/ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.starts_with("HTTP/1.1 200")
}

#[test]
fn three_nodes_are_killed_and_started_from_another_terminal() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("dev");
    let mut dev = dev(&folder, &[]);
    let table = dev.until("--kill n2");
    for node in ["n1", "n2", "n3"] {
        assert!(is_ready(admin(&table, node)), "{table:#?}");
    }
    assert_eq!(elsewhere(&folder, &["--status"]).status.code(), Some(0));

    let killed = elsewhere(&folder, &["--kill", "n2"]);
    assert_eq!(killed.status.code(), Some(0), "{}", stderr(&killed));
    dev.until("n2 has ended");
    assert!(!is_ready(admin(&table, "n2")) && is_ready(admin(&table, "n1")));
    let status = elsewhere(&folder, &["--status"]);
    assert_eq!(status.status.code(), Some(1));
    let rows = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(rows.lines().any(|line| line.contains("n2") && line.contains("down")), "{rows}");
    assert_eq!(elsewhere(&folder, &["--kill", "n2"]).status.code(), Some(1), "it does not run");

    let started = elsewhere(&folder, &["--start", "n2"]);
    assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
    assert!(is_ready(admin(&table, "n2")));
    assert_eq!(elsewhere(&folder, &["--start", "n2"]).status.code(), Some(1), "it runs already");
    assert_eq!(elsewhere(&folder, &["--stop", "n3"]).status.code(), Some(0));

    assert_eq!(dev.stop().code(), Some(0));
    assert!(!is_ready(admin(&table, "n1")) && !is_ready(admin(&table, "n2")));
    assert!(folder.join("n1/data").exists(), "the data are kept");
    assert_eq!(elsewhere(&folder, &["--start", "n2"]).status.code(), Some(2), "nobody could start it");
}

#[test]
fn one_folder_is_one_cluster_and_an_ephemeral_one_goes() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("dev");
    let mut first = dev(&folder, &["--nodes", "1", "--ephemeral"]);
    first.until("--kill n1");
    let second = elsewhere(&folder, &["--nodes", "1"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr(&second).contains("already runs"), "{}", stderr(&second));
    assert_eq!(first.stop().code(), Some(0));
    assert!(!folder.exists());

    std::fs::create_dir(&folder).expect("it can be made");
    std::fs::write(folder.join("thesis"), "years").expect("it can be written");
    assert_eq!(elsewhere(&folder, &["--nodes", "1"]).status.code(), Some(2));
    assert!(folder.join("thesis").exists());
}

#[test]
fn a_node_that_does_not_start_is_named_with_its_log() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("dev");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let output = elsewhere(&folder, &["--nodes", "1", "--port-base", &port]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("n1 did not start") && said.contains(&port) && said.contains("--port-base 0"), "{said}");
}

#[test]
fn nodes_that_outlived_a_kill_are_stopped_by_the_next_start() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("dev");
    let mut first = dev(&folder, &["--nodes", "1"]);
    let table = first.until("--kill n1");
    first.child.kill().expect("it runs");
    first.child.wait().expect("a child of ours");
    assert!(is_ready(admin(&table, "n1")));
    let mut second = dev(&folder, &["--nodes", "1"]);
    second.until("n1 of an earlier start");
    let table_now = second.until("--kill n1");
    assert!(!is_ready(admin(&table, "n1")) && is_ready(admin(&table_now, "n1")));
    assert_eq!(second.stop().code(), Some(0));
}

#[test]
fn a_node_that_has_left_is_told_so_until_it_is_a_new_one() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = place.path().join("dev");
    let mut running = dev(&folder, &[]);
    let table = running.until("--kill n2");
    let left = run(&["cluster", "leave", "--admin", &admin(&table, "n3").to_string()]);
    assert_eq!(left.status.code(), Some(0), "{}", stderr(&left));
    assert!(String::from_utf8_lossy(&left.stdout).contains("its process has ended"));
    running.until("n3 is no member of the cluster");
    let rows = elsewhere(&folder, &["--status"]);
    let rows = String::from_utf8_lossy(&rows.stdout).into_owned();
    assert!(rows.lines().any(|line| line.contains("n3") && line.ends_with("left")), "{rows}");

    let remedy = format!("rm -rf {}", folder.join("n3/data").display());
    let refused = elsewhere(&folder, &["--start", "n3"]);
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains(&remedy), "{}", stderr(&refused));
    assert_eq!(running.stop().code(), Some(0));
    let refused = elsewhere(&folder, &["--port-base", "0"]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains(&remedy), "{}", stderr(&refused));

    std::fs::remove_dir_all(folder.join("n3/data")).expect("it is there");
    let mut running = dev(&folder, &[]);
    running.until("--kill n2");
    assert_eq!(running.stop().code(), Some(0));
}
