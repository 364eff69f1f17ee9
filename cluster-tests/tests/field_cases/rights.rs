//! Rules about topics: what is denied leaves nothing behind, what a client loses it loses at once, and each denial is told.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, got_before_marker};
use holdfast_cluster_tests::cluster::admin;
use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::scene::Scene;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Packet, Subscribe, Version, Will, reason};

use crate::{BOTH_VERSIONS, texts};

const RULES: &str = "topic readwrite #\nuser alice\ntopic read a/1\ntopic write b/#\n";

/// Anonymous clients may do everything, and `alice` what the rules say.
fn scene(more: &str) -> Scene {
    let setup = Setup::empty()
        .listener("tcp", "mqtt", "allow_anonymous = true")
        .with_alice()
        .file("acl.conf", RULES)
        .section(&format!("[acl]\nfile = \"acl.conf\"\n{more}"));
    Scene::with(setup)
}

fn alice(version: Version, name: &str) -> Connect {
    Connect::new(version, name).user_name("alice").password("secret")
}

/// Other rules take the place of those in force.
#[track_caller]
fn change(broker: &Broker, rules: &str) {
    let before = broker.log().len();
    std::fs::write(broker.folder().join("acl.conf"), rules).expect("the folder can be written");
    broker.signal(libc::SIGHUP);
    let line = broker.log().wait(before, PATIENCE, |line| line.contains("ACL files read again"));
    assert!(line.is_some(), "{}", broker.log().text());
}

fn dropped(broker: &Broker) -> f64 {
    count(broker, "holdfast_messages_dropped_total", &["reason=\"acl\""])
}

#[track_caller]
fn count(broker: &Broker, name: &str, labels: &[&str]) -> f64 {
    let (_, text) = admin::get(broker.admin(), "/metrics", PATIENCE).expect("the admin port answers");
    admin::metric(&text, name, labels).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not become so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn subscribe_all(client: &mut Client, filters: &[&str]) -> Vec<u8> {
    let packet_id = client.packet_id();
    let subscribe = filters.iter().fold(Subscribe::new(packet_id), |packet, filter| packet.filter(filter, 2));
    client.send_subscribe(&subscribe)
}

const FILTERS: [&str; 7] = ["#", "+/1", "a/+", "a/#", "$share/g/#", "$SYS/#", "a/1"];

#[test]
fn field_case_44_rules_are_about_messages_whatever_the_filter() {
    let scene = scene("");
    let mut publisher = scene.client("p");
    for topic in ["a/1", "a/2", "b/1"] {
        assert!(publisher.publish_retained(topic, format!("retained {topic}"), 1) < 0x80);
    }
    for version in BOTH_VERSIONS {
        let refused = if version == Version::V5 { reason::NOT_AUTHORIZED } else { 0x80 };
        let (mut reader, _) = scene.connect(&alice(version, &format!("r-{version:?}")));
        assert_eq!(subscribe_all(&mut reader, &FILTERS), [[refused; 6].as_slice(), &[2]].concat());
        for filter in &FILTERS[..6] {
            assert_eq!(reader.subscribe(filter, 2), refused, "{filter}");
        }
        for qos in 0..=2 {
            for topic in ["a/2", "b/1", "a/1"] {
                publisher.publish(topic, format!("{topic} {qos}"), qos);
            }
        }
        let got = texts(&reader.take_until("a/1 2"));
        let expected = ["retained a/1", "a/1 0", "a/1 1"];
        let mut sorted = got.clone();
        sorted.sort();
        let mut wanted = expected.map(str::to_owned).to_vec();
        wanted.sort();
        assert_eq!(sorted, wanted, "nothing but a/1: {got:?}");
        reader.disconnect();
    }
    // The listing of what one client has subscribed to holds what was granted.
    let line = scene.broker.log().wait(0, PATIENCE, |line| line.field("event").as_deref() == Some("denied"));
    let line = line.expect("a denial is told");
    let field = |name: &str| line.field(name).unwrap_or_default();
    assert_eq!((field("user_name"), field("action"), field("topic")), ("alice".into(), "subscribe".into(), "#".into()));
    assert!(
        field("peer").starts_with("127.0.0.1:") && field("by").contains("no_match"),
        "{}",
        scene.broker.log().text()
    );
}

#[test]
fn field_case_44_what_may_not_be_published_is_refused_and_counted() {
    let scene = scene("");
    let (mut watcher, _) = scene.connect(&Connect::new(Version::V5, "w"));
    watcher.subscribe("#", 2);
    let (mut v5, _) = scene.connect(&alice(Version::V5, "v5"));
    let (mut v4, _) = scene.connect(&alice(Version::V311, "v4"));
    assert_eq!(v5.publish("b/x", "allowed", 2), 0);
    assert_eq!(v5.publish("a/1", "no", 1), reason::NOT_AUTHORIZED);
    assert_eq!(v5.publish("a/1", "no", 2), reason::NOT_AUTHORIZED);
    v5.publish("a/1", "no", 0);
    assert_eq!(v5.publish_retained("a/1", "no", 1), reason::NOT_AUTHORIZED);
    // Before 5.0 nobody can be told.
    for qos in 0..=2 {
        v4.publish("a/1", "no", qos);
    }
    let mut publisher = scene.client("p");
    let got = texts(&got_before_marker(&mut publisher, &mut watcher, "c"));
    assert_eq!(got, ["allowed"]);
    assert_eq!(dropped(&scene.broker), 7.0);
    let checks = |result: &str| {
        count(&scene.broker, "holdfast_acl_checks_total", &["action=\"publish\"", &format!("result=\"{result}\"")])
    };
    assert_eq!(checks("deny"), 7.0);
    assert!(checks("allow") >= 2.0);
    let denials = scene.broker.log().since(0);
    let told = denials.iter().filter(|line| line.field("event").as_deref() == Some("denied")).count();
    assert!((1..=4).contains(&told), "one line for each client and second, not {told}");
}

#[test]
fn field_case_44_a_denial_may_end_the_connection() {
    let scene = scene("deny_action = \"disconnect\"");
    let (mut client, _) = scene.connect(&alice(Version::V5, "v5"));
    client.send_publish(&holdfast_cluster_tests::wire::Publish::new("a/1", "no"));
    client.expect_disconnect(&[reason::NOT_AUTHORIZED]);
    let (mut client, _) = scene.connect(&alice(Version::V311, "v4"));
    client.send_publish(&holdfast_cluster_tests::wire::Publish::new("a/1", "no"));
    client.expect_close();
}

#[test]
fn field_case_44_a_session_loses_what_it_may_not_read_any_more() {
    let scene = scene("");
    let mut publisher = scene.client("p");
    let (mut away, _) = scene.connect(&alice(Version::V5, "away").durable(3_600));
    assert_eq!(away.subscribe("a/1", 2), 2);
    away.disconnect();
    let (mut there, _) = scene.connect(&alice(Version::V5, "there"));
    assert_eq!(there.subscribe("a/1", 1), 1);
    for qos in 1..=2 {
        assert!(publisher.publish("a/1", format!("queued {qos}"), qos) < 0x80);
    }
    assert_eq!(texts(&there.take_until("queued 2")), ["queued 1"]);
    change(&scene.broker, "topic readwrite #\nuser alice\ntopic read c\n");
    assert!(publisher.publish("a/1", "after", 1) < 0x80);
    assert_eq!(there.fence(), [], "a subscription that is there grants nothing");
    let (mut away, present) = scene.connect(&alice(Version::V5, "away").durable(3_600));
    assert!(present);
    assert_eq!(away.fence(), [], "what waited is judged when it is sent");
    until("the drops", || dropped(&scene.broker) == 4.0);
    change(&scene.broker, RULES);
    assert!(publisher.publish("a/1", "again", 1) < 0x80);
    for client in [&mut away, &mut there] {
        assert_eq!(client.recv_publish().text(), "again", "nothing of what was dropped comes after all");
    }
}

#[test]
fn field_case_44_a_broken_file_changes_nothing() {
    let scene = scene("");
    let (mut reader, _) = scene.connect(&alice(Version::V5, "r"));
    reader.subscribe("a/1", 1);
    let before = scene.broker.log().len();
    std::fs::write(scene.broker.folder().join("acl.conf"), "topic readwrite #\nuser alice\ntopik read c\n").unwrap();
    scene.broker.signal(libc::SIGHUP);
    let line = scene.broker.log().wait(before, PATIENCE, |line| line.contains("acl.conf:3:"));
    assert!(line.is_some(), "{}", scene.broker.log().text());
    let mut publisher = scene.client("p");
    assert!(publisher.publish("a/1", "still", 1) < 0x80);
    assert_eq!(reader.recv_publish().text(), "still");
}

#[test]
fn field_case_44_a_will_needs_the_right_when_it_is_left_and_when_it_is_published() {
    let scene = scene("");
    for (version, code) in [(Version::V5, reason::NOT_AUTHORIZED), (Version::V311, 5)] {
        let mut client = scene.open(version);
        let ack = client.handshake(&alice(version, "forbidden").will(Will::new("a/1", "will")));
        assert_eq!(ack.reason, code);
    }
    let mut watcher = scene.client("w");
    watcher.subscribe("b/#", 1);
    let mut publisher = scene.client("p");
    let leave = |name: &str| scene.connect(&alice(Version::V5, name).will(Will::new("b/will", name))).0;
    let (kept, lost) = (leave("kept"), leave("lost"));
    kept.reset();
    assert!(matches!(watcher.recv(), Packet::Publish(will) if will.text() == "kept"));
    let before = scene.broker.log().len();
    change(&scene.broker, "topic readwrite #\nuser alice\ntopic read a/1\n");
    lost.reset();
    let denied = |line: &holdfast_cluster_tests::process::Line| line.field("topic").as_deref() == Some("b/will");
    assert!(scene.broker.log().wait(before, PATIENCE, denied).is_some(), "{}", scene.broker.log().text());
    assert_eq!(texts(&got_before_marker(&mut publisher, &mut watcher, "b/marker")), [""; 0]);
    assert_eq!(dropped(&scene.broker), 1.0);
}
