//! Out of one node and into another: sessions, queues in their order, QoS 2 flows, retained messages and Wills come along.

use std::ffi::OsStr;
use std::path::Path;

use holdfast_cluster_tests::process::{Installation, Setup};
use holdfast_cluster_tests::wire::{Connect, Packet, Properties, Publish, Subscribe, Version, Will, first, id};
use serde_json::Value;

use crate::{PATIENCE, body, data, export, import, of_type, verify};
use holdfast_cluster_tests::scene::SMALL_SEGMENTS;
use holdfast_cluster_tests::scene::{Scene, kept, numbers, publish_numbers, texts};

/// A data directory that was imported from the one of an installation, under a configuration of its own.
#[track_caller]
fn imported(from: &Installation) -> Installation {
    let lines = export(&from.data_dir());
    let other = Setup::new().section(SMALL_SEGMENTS).install();
    import(&lines, &other.data_dir());
    verify(&other.data_dir());
    assert_eq!(body(&export(&other.data_dir())), body(&lines));
    other
}

fn with_will(delay_secs: u32) -> Connect {
    let will = Will::new("will", "gone").qos(1).number(id::WILL_DELAY_INTERVAL, delay_secs);
    Connect::new(Version::V5, "w").durable(3_600).will(will)
}

/// Everything that a node keeps, on the disk of one that was killed.
fn filled() -> Scene {
    let scene = Scene::new();
    let (mut subscriber, _) = scene.connect(&kept(Version::V5, "s"));
    let options = 0x2 | 0x4 | 0x8 | 0x10;
    subscriber.send_subscribe(&Subscribe::new(90).identifier(7).filter("t", options));
    subscriber.send_subscribe(&Subscribe::new(91).filter("will", 1));
    subscriber.disconnect();
    scene.leave_session(&kept(Version::V311, "other"), "t", 1);
    let mut publisher = scene.client("p");
    for number in 0..20 {
        assert!(publisher.publish("t", number.to_string(), 1 + number % 2) < 0x80);
    }
    let user_property = Properties::new().user("name", "välue");
    let publish =
        Publish::new("t", "20").qos(1, 900).properties(user_property).number(id::MESSAGE_EXPIRY_INTERVAL, 3_000);
    assert_eq!(publisher.deliver(&publish), 0);
    for (topic, payload, qos) in [("r/1", &b"one"[..], 1), ("r/2", &[0, 255, 10, 34], 0), ("r/1", b"two", 2)] {
        assert!(publisher.publish_retained(topic, payload, qos) < 0x80);
    }
    let (mut half, _) = scene.connect(&kept(Version::V5, "half"));
    half.send_publish(&Publish::new("elsewhere", "x").qos(2, 77));
    assert!(half.wait_pubrec(77) < 0x80);
    let _willing = scene.connect(&with_will(0));
    scene.broker.kill();
    scene
}

#[test]
fn another_node_goes_on_where_the_first_one_ended() {
    let first = filled();
    let summary = verify(&first.installation.data_dir());
    assert!(
        summary.contains("4 sessions, 3 subscriptions, 42 queued messages, 1 open QoS 2 flow, 2 retained"),
        "{summary}"
    );
    let scene = Scene::on(imported(&first.installation));
    // Its own subscription has no local messages, so the Will of another client comes.
    let mut subscriber = scene.resume(&kept(Version::V5, "s"));
    let got: Vec<_> = (0..22).map(|_| subscriber.take()).collect();
    assert_eq!(texts(&got[..21]), numbers(0..21));
    assert!(got[..20].iter().zip(0..).all(|(message, number)| message.qos == 1 + number % 2));
    assert!(got[..21].iter().all(|message| message.properties.get_number(id::SUBSCRIPTION_IDENTIFIER) == Some(7)));
    assert_eq!(got[20].properties.users(), [("name", "välue")]);
    assert!(got[20].properties.get_number(id::MESSAGE_EXPIRY_INTERVAL).is_some_and(|secs| secs <= 3_000));
    assert_eq!(got[21].text(), "gone");
    let mut other = scene.resume(&kept(Version::V311, "other"));
    assert_eq!(texts(&scene.drain(&mut other, "t")), numbers(0..21));
    let mut half = scene.resume(&kept(Version::V5, "half"));
    half.send_publish(&Publish::new("t", "x").qos(2, 77).dup());
    assert_eq!(half.wait_pubrec(77), 0);
    half.send_ack(first::PUBREL, 77);
    assert_eq!(half.wait_pubcomp(77), 0);
    let mut reader = scene.client("reader");
    reader.subscribe("r/#", 1);
    let mut retained = [reader.take(), reader.take()].map(|message| (message.topic, message.payload));
    retained.sort();
    assert_eq!(retained, [("r/1".to_owned(), b"two".to_vec()), ("r/2".to_owned(), vec![0, 255, 10, 34])]);
    // The message with its packet identifier taken already was not routed again.
    assert!(scene.drain(&mut other, "t").is_empty());
}

#[test]
fn half_a_delivery_is_continued() {
    let scene = Scene::new();
    let connect = kept(Version::V5, "s");
    scene.leave_session(&connect, "t", 2);
    publish_numbers(&mut scene.client("p"), "t", 0..3, 2);
    let mut client = scene.resume(&connect);
    let sent: Vec<_> = (0..3).map(|_| client.recv_publish()).collect();
    // The first comes to its PUBREL, the others stay where they are.
    client.send_ack(first::PUBREC, sent[0].packet_id);
    client.wait_pubrel(sent[0].packet_id);
    assert!(scene.broker.stop(PATIENCE).success());
    let lines = export(&scene.installation.data_dir());
    assert_eq!(of_type(&lines, "received").len(), 1, "{lines}");
    assert_eq!(of_type(&lines, "message").iter().filter(|line| line["packet_id"].is_u64()).count(), 2, "{lines}");
    let second = Scene::on(imported(&scene.installation));
    let mut client = second.resume(&connect);
    assert!(matches!(client.recv(), Packet::PubRel { packet_id, .. } if packet_id == sent[0].packet_id));
    client.send_ack(first::PUBCOMP, sent[0].packet_id);
    for before in &sent[1..] {
        let again = client.take();
        assert_eq!((again.text(), again.packet_id, again.dup), (before.text(), before.packet_id, true));
    }
    client.expect_quiet();
}

#[test]
fn a_will_waits_on() {
    let scene = Scene::new();
    let _willing = scene.connect(&with_will(1_000));
    scene.broker.kill();
    let lines = export(&scene.installation.data_dir());
    let leases = of_type(&lines, "lease");
    assert_eq!((&leases[0]["connected"], &leases[0]["will"]["delay_secs"]), (&true.into(), &1_000.into()), "{lines}");
    let other = imported(&scene.installation);
    let started = other.start();
    assert!(started.stop(PATIENCE).success());
    let leases = of_type(&export(&other.data_dir()), "lease");
    assert!(leases[0]["detached_since"].is_u64() && leases[0]["will"].is_object(), "{leases:?}");
}

/// Written by hand: a message of a shared subscription whose member has gone, and a member that is there.
#[test]
fn what_was_given_back_finds_another_member() {
    let lines = r#"{"type":"holdfast","format":1,"exported_at":1,"node_id":"","last_run":1}
{"type":"lease","client_id":"s","expiry_secs":4294967295,"detached_since":1}
{"type":"session","client_id":"s"}
{"type":"subscription","client_id":"s","filter":"$share/g/t","qos":1}
{"type":"given_back","qos":1,"share":"$share/g/t","message":{"topic":"t","payload":"aGk=","qos":1}}
{"type":"end","lines":5}"#;
    let installation = Setup::new().section(SMALL_SEGMENTS).install();
    import(lines, &installation.data_dir());
    assert_eq!(body(&export(&installation.data_dir())), body(lines));
    let scene = Scene::on(installation);
    let mut client = scene.resume(&kept(Version::V5, "s"));
    assert_eq!(client.take().text(), "hi");
    client.expect_quiet();
}

/// One message in many queues is one message in the file, and in the directory that is made of it, however far apart its lines are.
#[test]
fn a_shared_message_stays_one() {
    const SESSIONS: usize = 30;
    let scene = Scene::new();
    (0..SESSIONS).for_each(|number| scene.leave_session(&kept(Version::V5, &format!("s{number:02}")), "t", 1));
    let big = "x".repeat(200_000);
    let mut publisher = scene.client("p");
    (0..20).for_each(|number| assert_eq!(publisher.publish("t", format!("{number} {big}"), 1), 0));
    assert!(scene.broker.stop(PATIENCE).success());
    let lines = export(&scene.installation.data_dir());
    assert_eq!(of_type(&lines, "message").len(), SESSIONS * 20);
    assert!(lines.len() < 8_000_000, "{} bytes", lines.len());
    let other = imported(&scene.installation);
    let bytes: u64 = files(&other.journal_dir())
        .iter()
        .filter(|file| file.0.ends_with(".segment"))
        .map(|file| file.1.len() as u64)
        .sum();
    assert!(bytes < 64 * 1024 * 1024, "{bytes} bytes");
    let second = Scene::on(other);
    for number in [0, SESSIONS - 1] {
        let mut client = second.resume(&kept(Version::V5, &format!("s{number:02}")));
        let got = texts(&second.drain(&mut client, "t"));
        assert!(got.iter().enumerate().all(|(at, text)| *text == format!("{at} {big}")) && got.len() == 20);
    }
}

/// Names and contents, but for the lock, which says who looks.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("lock") {
            let content = std::fs::read(&path).expect("a file of ours");
            found.push((path.to_string_lossy().into_owned(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn to_look_changes_nothing() {
    let scene = filled();
    let dir = scene.installation.data_dir();
    let before = files(&dir);
    verify(&dir);
    let lines = export(&dir);
    assert!(files(&dir) == before, "the directory has changed");
    // By the configuration, and into a file: the same.
    let output = scene.installation.folder().join("export");
    let config = scene.installation.folder().join("holdfast.toml");
    let done = data(&[OsStr::new("export"), "-c".as_ref(), config.as_ref(), "-o".as_ref(), output.as_ref()]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), ""), "{}", done.err);
    assert!(done.err.contains("4 sessions"), "{}", done.err);
    let written = std::fs::read_to_string(&output).expect("the export");
    assert_eq!(body(&written), body(&lines));
    assert!(files(&dir) == before, "the directory has changed");
    let header: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&header["type"], &header["format"]), (&"holdfast".into(), &1.into()));
    assert_eq!(header["node_id"], std::fs::read_to_string(dir.join("node.id")).expect("an identity").trim_end());
}
