//! Messages by way of the admin port and the commands: published, retained, listed, removed, taken out and brought back; and keys that may one and not the other.

use std::io::Write as _;

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::scene::{Scene, kept};
use holdfast_cluster_tests::wire::{Connect, Version};
use serde_json::Value;

use super::*;

fn scene() -> Scene {
    let quick = "[storage]\nsegment_bytes = \"1MB\"";
    Scene::on(Setup::new().shards(2).section(quick).install())
}

#[track_caller]
fn done(scene: &Scene, args: &[&str]) -> String {
    let (code, out, err) = command(&scene.broker, args);
    assert_eq!(code, Some(0), "{args:?}: {out}{err}");
    out
}

#[test]
fn a_message_by_http_reaches_subscribers_and_is_kept_for_those_who_are_away() {
    let mut scene = scene();
    let (mut here, _) = scene.connect(&Connect::new(Version::V5, "here"));
    assert_eq!(here.subscribe("a/#", 1), 1);
    let away = || kept(Version::V5, "away");
    let (mut client, _) = scene.connect(&away());
    assert_eq!(client.subscribe("a/b", 1), 1);
    client.disconnect();
    assert!(done(&scene, &["publish", "a/b", "hello"]).starts_with("published\n"));
    let message = here.take();
    assert_eq!((message.payload.as_slice(), message.qos), (&b"hello"[..], 1));
    // The answer came when it was on disk: nothing is lost with the process.
    scene.kill_and_start();
    let (mut client, present) = scene.connect(&away());
    assert!(present);
    assert_eq!(client.take().payload, b"hello");
    assert!(done(&scene, &["publish", "nobody/there", "x"]).contains("nobody subscribes"));
}

#[test]
fn retained_messages_are_listed_removed_and_brought_back() {
    let scene = scene();
    for number in 0..25 {
        done(&scene, &["retained", "put", &format!("plant/{}/t{number:02}", number % 2), &number.to_string()]);
    }
    assert_eq!(done(&scene, &["retained", "get", "plant/1/t07"]), "7");
    let listed = |filter: &str| {
        let out = done(&scene, &["retained", "list", filter, "--json"]);
        let topic = |line: &str| {
            serde_json::from_str::<Value>(line).expect("JSON")["topic"].as_str().expect("a text").to_owned()
        };
        out.lines().map(topic).collect::<Vec<_>>()
    };
    assert_eq!(listed("plant/1/#").len(), 12);
    assert_eq!(listed("plant/+/t24"), ["plant/0/t24"]);
    let first = done(&scene, &["retained", "list", "plant/1/#", "--json", "--limit", "1"]);
    assert_eq!(first.lines().count(), 1);
    let (_, answer) = ask(&scene.broker, "GET", "/api/v1/retained?filter=plant/1/%23&limit=12");
    assert!(answer.contains("\"next\":null"), "that was all: {answer}");
    let saved = done(&scene, &["retained", "export", "plant/#"]);
    assert_eq!(saved.lines().count(), 25);
    assert!(done(&scene, &["retained", "rm", "plant/#", "--dry-run"]).starts_with("25 would be"));
    assert_eq!(listed("plant/#").len(), 25, "it was only counted");
    assert!(done(&scene, &["retained", "rm", "plant/1/#"]).starts_with("12 removed"));
    assert_eq!(listed("plant/#").len(), 13);
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(saved.as_bytes()).expect("it can be written");
    let path = file.path().to_str().expect("a text");
    assert!(done(&scene, &["retained", "import", path]).starts_with("25 published"));
    assert_eq!(done(&scene, &["retained", "get", "plant/1/t07"]), "7");
    let (code, _, err) = command(&scene.broker, &["retained", "get", "plant/none"]);
    assert!(code == Some(1) && err.contains("no message is retained"), "{err}");
    let (code, _, err) = command(&scene.broker, &["retained", "list", "a/#/b"]);
    assert!(code == Some(1) && err.contains("filter"), "{err}");
}

#[test]
fn a_key_reaches_as_far_as_its_scopes_and_survives_a_restart() {
    let mut scene = scene();
    let key = done(&scene, &["key", "add", "sensor", "--scopes", "publish"]);
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(key.as_bytes()).expect("it can be written");
    let path = file.path().to_str().expect("a text");
    scene.kill_and_start();
    done(&scene, &["publish", "a/b", "x", "--token-file", path]);
    let (code, _, err) = command(&scene.broker, &["client", "list", "--token-file", path]);
    assert!(code == Some(1) && err.contains("scope"), "{err}");
    let list = done(&scene, &["key", "list"]);
    let id = list.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a key");
    done(&scene, &["key", "rm", id]);
    let (code, _, err) = command(&scene.broker, &["publish", "a/b", "x", "--token-file", path]);
    assert!(code == Some(1) && err.contains("API key"), "{err}");
    let (_, audit) = ask(&scene.broker, "GET", "/api/v1/audit");
    for line in [r#""method":"POST","path":"/api/v1/keys","status":201"#, r#""method":"DELETE""#] {
        assert!(audit.contains(line), "it is there after a restart: {audit}");
    }
}
