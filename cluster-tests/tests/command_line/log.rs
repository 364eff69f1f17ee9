//! What an operator reads in the log of a broker, and in its `$SYS` topics.

use std::time::Duration;

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::transport::PATIENCE;

use super::{ended, publish, start, subscribe};

#[test]
fn a_wrong_password_names_the_user_and_is_counted() {
    let broker = start(
        Setup::empty()
            .listener("tcp", "mqtt", "allow_anonymous = true")
            .with_alice()
            .section("[sys]\ninterval = \"1s\""),
    );
    for _ in 0..3 {
        let output = publish(&broker, &["-t", "t", "-m", "x", "-i", "thing", "-u", "alice", "-P", "WrOnG"]);
        assert_eq!(output.status.code(), Some(4), "Bad User Name or Password of 3.1.1");
    }
    let is_refusal = |line: &holdfast_cluster_tests::process::Line| line.field("event").as_deref() == Some("refused");
    let line = broker.log().wait(0, PATIENCE, is_refusal).expect("a line about the refusal");
    assert_eq!(line.field("user_name").as_deref(), Some("alice"));
    assert_eq!(line.field("client_id").as_deref(), Some("thing"));
    assert_eq!(line.field("left_out"), None, "nothing was left out before the first");

    let mut sub = subscribe(&broker, &["-t", "$SYS/broker/connections/refused/auth", "-C", "3"]);
    let status = ended(&mut sub);
    let counted = std::io::read_to_string(sub.stdout.take().expect("a pipe")).expect("text");
    assert!(status.success() && counted.lines().last() == Some("3"), "{counted}");

    assert!(broker.stop(Duration::from_secs(15)).success());
    broker.log().wait(0, PATIENCE, |line| line.field("event").as_deref() == Some("stopped")).expect("the end");
    let lines = broker.log().since(0);
    let refusals = lines.iter().filter(|line| is_refusal(line));
    let left_out = lines.iter().filter_map(|line| line.field("left_out")?.parse::<u64>().ok()).sum::<u64>();
    assert_eq!(refusals.count() as u64 + left_out, 3, "every refusal is told or counted as left out");
    assert!(!lines.iter().any(|line| line.contains("WrOnG")), "the password is in the log");
}

#[test]
fn a_reload_says_what_was_read() {
    let broker = start(Setup::new().with_tls());
    let position = broker.log().len();
    broker.signal(libc::SIGHUP);
    let last = broker.log().wait(position, PATIENCE, |line| line.contains("the configuration was read again"));
    assert_eq!(last.and_then(|line| line.field("changed")).as_deref(), Some(""), "nothing changed");
    let last_tls = |line: &holdfast_cluster_tests::process::Line| line.field("listener").as_deref() == Some("wss");
    assert!(broker.log().wait(position, PATIENCE, last_tls).is_some(), "certificates come last");
    let lines = broker.log().since(position);
    assert!(!lines.iter().any(|line| line.contains("password file")), "there is none");
    let mut listeners: Vec<_> = lines
        .iter()
        .filter(|line| line.field("event").as_deref() == Some("tls"))
        .map(|line| line.field("listener").expect("the name of the listener"))
        .collect();
    listeners.sort();
    assert_eq!(listeners, ["tls", "wss"], "one line each");
}
