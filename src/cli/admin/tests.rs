//! What the commands say and end with, over a port that a test answers at.

use std::io::Read as _;
use std::net::TcpListener;
use std::thread::JoinHandle;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Client(ClientArgs),
    Cluster(ClusterArgs),
    Health(HealthArgs),
}

/// Answers one connection after the other; returns what was asked.
fn answering(answers: Vec<(u16, &'static str)>) -> (String, JoinHandle<Vec<String>>) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", port.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = port.accept().unwrap();
            let mut request = vec![0; 64 * 1024];
            let length = stream.read(&mut request).unwrap();
            asked.push(String::from_utf8_lossy(&request[..length]).into_owned());
            let length = body.len();
            write!(stream, "HTTP/1.1 {status} Some\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
        asked
    });
    (url, thread)
}

/// Runs a command line; its exit code, and what it printed and said.
fn run_line(line: &str, url: &str) -> (u8, String, String) {
    let args = ["holdfast"].into_iter().chain(line.split(' ')).chain(["--admin", url]);
    let command = Line::try_parse_from(args).unwrap().command;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = match &command {
        Command::Client(args) => &args.admin,
        Command::Cluster(args) => &args.admin,
        Command::Health(args) => &args.admin,
    };
    let done = args.asker().and_then(|asker| match &command {
        Command::Client(args) => clients::run(&args.command, &asker, &mut out),
        Command::Cluster(args) => cluster::run(&args.command, &asker, &mut out),
        Command::Health(args) => health::run(args.probe, &asker, &mut out),
    });
    let code = done.unwrap_or_else(|failure| tell(failure, args.json, &mut out, &mut err));
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// One answer to one command.
fn one(line: &str, status: u16, body: &'static str) -> (u8, String, String, String) {
    let (url, asked) = answering(vec![(status, body)]);
    let (code, out, err) = run_line(line, &url);
    (code, out, err, asked.join().unwrap().remove(0))
}

const PAGE: &str = r#"{"clients":[{"client_id":"a\u001b","node":"n1","shard":0,"connected":true,"version":"5.0","peer":"127.0.0.1:1","listener":"tcp",
"user_name":null,"connected_at_ms":1,"outbox_bytes":0,"session_expiry_secs":0,"epoch":1,"subscriptions":2,"queue_messages":3,"queue_bytes":4,"inflight":5,
"dropped":6}],"next":"a","missing":[]}"#;
const END: &str = r#"{"clients":[],"next":null,"missing":["n3"]}"#;

#[test]
fn a_list_goes_on_page_after_page_and_tells_what_is_missing() {
    let (url, asked) = answering(vec![(200, PAGE), (200, END)]);
    let (code, out, _) = run_line("client list", &url);
    assert_eq!(code, FAILED, "a node is missing");
    assert_eq!(
        out,
        "client id  node  state      version  peer         user  subs  queued  in flight\n\
         a\\u{1b}    n1    connected  5.0      127.0.0.1:1  -     2     3       5\n"
    );
    let asked = asked.join().unwrap();
    assert!(asked[0].starts_with("GET /api/v1/clients?limit=1000 HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[1].starts_with("GET /api/v1/clients?limit=1000&after=a HTTP/1.1\r\n"), "{}", asked[1]);
    let (code, out, _, asked) = one("client list --limit 1 --after x/y --json", 200, PAGE);
    assert_eq!((code, out.lines().count()), (DONE, 1));
    assert!(out.starts_with(r#"{"client_id":"a\u001b","#), "{out}");
    assert!(asked.starts_with("GET /api/v1/clients?limit=1&after=x%2Fy HTTP/1.1\r\n"), "{asked}");
}

#[test]
fn a_node_that_says_no_is_code_1_with_its_words() {
    let refused = r#"{"code":"no_such_client","message":"nobody","hint":"look"}"#;
    let (code, out, err, asked) = one("client kick a/b", 404, refused);
    assert_eq!((code, out.as_str(), err.as_str()), (FAILED, "", "error: nobody\n  look\n"));
    assert!(asked.starts_with("POST /api/v1/clients/a%2Fb/kick HTTP/1.1\r\n"), "{asked}");
    let (code, out, ..) = one("client kick a --json", 404, refused);
    assert_eq!((code, out), (FAILED, format!("{refused}\n")));
}

#[test]
fn nobody_to_ask_is_code_3() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for line in ["health", "cluster status", "client list"] {
        let (code, _, err) = run_line(line, &format!("http://{gone}"));
        assert_eq!(code, UNREACHABLE, "{err}");
        assert!(err.starts_with(&format!("error: http://{gone}: nobody listens there")), "{err}");
    }
    let refused = http::AskError::Connect(std::io::ErrorKind::ConnectionRefused.into());
    assert!(elsewhere(&http::parse_url("127.0.0.1").unwrap(), &refused).contains("--admin URL"));
    assert_eq!(elsewhere(&http::parse_url("127.0.0.1:1").unwrap(), &refused), "", "whoever names one knows how");
    for (status, body) in [(200, "<html>"), (404, "nothing"), (200, "{}")] {
        for line in ["health", "cluster status", "client show a"] {
            let (code, _, err, _) = one(line, status, body);
            assert_eq!(code, UNREACHABLE, "{line}: {err}");
            assert!(err.contains("is this its admin port?"), "{err}");
        }
    }
}

#[test]
fn health_is_code_0_or_1_with_every_check() {
    let body = r#"{"status":"failed","checks":[{"name":"storage","ok":false,"detail":"low"},{"name":"listeners","ok":true,"detail":""}]}"#;
    let (code, out, _, asked) = one("health", 503, body);
    assert_eq!((code, out.as_str()), (FAILED, "failed\n  FAILED storage: low\n  ok     listeners\n"));
    assert!(asked.starts_with("GET /health/ready HTTP/1.1\r\n"), "{asked}");
    let (code, out, ..) = one("health live --json", 200, r#"{"status":"ok","checks":[]}"#);
    assert_eq!((code, out.as_str()), (DONE, "{\"status\":\"ok\",\"checks\":[]}\n"));
}

#[test]
fn without_a_quorum_the_state_of_nodes_is_what_was_last_known() {
    use crate::admin::view::{Cluster, Member};
    let node = Member { name: "n1".to_owned(), live: true, ..Member::default() };
    for (quorum, head) in [(true, "node  state"), (false, "node  last known")] {
        let cluster = Cluster { clustered: true, quorum, nodes: vec![node.clone()], ..Cluster::default() };
        let body: &'static str = serde_json::to_string(&cluster).unwrap().leak();
        let (code, out, ..) = one("cluster status", 200, body);
        assert!(code == DONE && out.contains(head) && out.contains("NO QUORUM") != quorum, "{out}");
    }
}

#[test]
fn commands_to_the_cluster_say_what_they_want() {
    let (code, out, _, asked) = one("cluster join n2:7946", 200, r#"{"done":true}"#);
    assert_eq!((code, out.as_str()), (DONE, "done\n"));
    assert!(asked.contains("\r\nContent-Length: 21\r\n") && asked.ends_with(r#"{"address":"n2:7946"}"#), "{asked}");
    let (_, _, _, asked) = one("cluster force-leave n3", 200, r#"{"done":true}"#);
    assert!(asked.starts_with("POST /api/v1/cluster/force-leave ") && asked.ends_with(r#"{"node":"n3"}"#), "{asked}");
    let (_, out, _, asked) = one("cluster leave", 200, r#"{"done":true}"#);
    assert_eq!(out, "done: the node has left, and its process has ended\n");
    assert!(asked.contains("\r\nContent-Length: 0\r\n"), "{asked}");
    let (_, _, _, asked) = one("cluster leave --force", 200, r#"{"done":true}"#);
    assert!(asked.ends_with(r#"{"force":true}"#), "{asked}");
}

#[test]
fn who_waits_for_a_node_to_leave_is_told_what_it_does() {
    let waits = r#"{"done":false,"progress":"the node waits"}"#;
    let (url, answered) = answering(vec![(202, waits), (202, waits), (200, r#"{"done":true}"#)]);
    let (code, out, _) = run_line("cluster leave", &url);
    assert_eq!((code, out.as_str()), (DONE, "the node waits\ndone: the node has left, and its process has ended\n"));
    assert_eq!(answered.join().unwrap().len(), 3);
}

#[test]
fn a_fill_shows_how_far_it_is() {
    use crate::admin::view::{Cluster, CopiesAt, CopyFigures};
    let figures = CopyFigures { to_fill: 8, filled: 2, filled_bytes: 5_000, lag_bytes: 10, lag_records: 3 };
    let row = |state: &str, figures| CopiesAt {
        home: "n1".to_owned(),
        heir: "n2".to_owned(),
        state: state.to_owned(),
        figures,
        ..CopiesAt::default()
    };
    let copies = vec![row("filling", Some(figures)), row("complete", Some(figures)), row("filling", None)];
    let cluster = Cluster { clustered: true, copies, ..Cluster::default() };
    let body: &'static str = serde_json::to_string(&cluster).unwrap().leak();
    let (_, out, ..) = one("cluster status", 200, body);
    assert!(out.contains("filling 25 % (2 of 8 sessions, "), "{out}");
    let words: Vec<&str> = out.lines().last().into_iter().flat_map(str::split_whitespace).collect();
    assert_eq!(words, ["n1", "n2", "filling", "-", "-"], "its home has not answered");
}

#[test]
fn a_token_is_sent_from_its_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
    let line = format!("cluster leave --token-file {}", file.path().display());
    let (code, _, _, asked) = one(&line, 200, r#"{"done":true}"#);
    assert!(code == DONE && asked.contains("\r\nAuthorization: Bearer 0123456789abcdef\r\n"), "{asked}");
    let (code, _, err) = run_line("cluster leave --token-file /nonexistent", "http://127.0.0.1:1");
    assert!(code == USAGE && err.starts_with("error: token_file: /nonexistent: "), "{err}");
}
