//! Lists over shards with more clients than one answer of a shard has, single clients, and clients that are thrown out.

use std::collections::BTreeSet;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::scene::{Scene, kept};
use holdfast_cluster_tests::wire::{Connect, Version};
use serde_json::Value;

use super::*;

/// Two shards, and a disk that nobody waits for.
fn scene() -> Scene {
    let quick = "[storage]\nsegment_bytes = \"1MB\"\ndurability = \"memory\"";
    Scene::on(Setup::new().shards(2).section(quick).install())
}

#[track_caller]
fn get(scene: &Scene, path: &str) -> Value {
    let (status, answer) = ask(&scene.broker, "GET", path);
    assert_eq!(status, 200, "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

/// The ids of all clients, page after page.
fn pages(scene: &Scene, limit: usize) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(scene, &format!("/api/v1/clients?limit={limit}{after}"));
        let clients = page["clients"].as_array().expect("a list");
        assert!(clients.len() <= limit);
        ids.extend(clients.iter().map(|client| client["client_id"].as_str().expect("a text").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return ids,
        }
    }
}

#[test]
fn a_list_has_every_client_once_and_in_order() {
    let scene = scene();
    let mut expected = BTreeSet::new();
    let mut connected: Vec<Client> = Vec::new();
    for number in 0..2_500_u32 {
        // In no order.
        let id = format!("c{:08x}", number.wrapping_mul(0x9E37_79B9));
        let (client, _) = scene.connect(&kept(Version::V5, &id));
        match number % 25 {
            0 => connected.push(client),
            _ => client.disconnect(),
        }
        expected.insert(id);
    }
    let expected: Vec<_> = expected.into_iter().collect();
    for limit in [1000, 333] {
        assert_eq!(pages(&scene, limit), expected, "pages of {limit}");
    }
    let (code, out, err) = command(&scene.broker, &["client", "list", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ids: Vec<_> = lines.iter().map(|line| line["client_id"].as_str().expect("a text")).collect();
    assert_eq!(ids, expected);
    let with_connection = lines.iter().filter(|line| line["connected"] == true).count();
    assert_eq!(with_connection, connected.len());
    let shards: BTreeSet<_> = lines.iter().map(|line| line["shard"].as_u64()).collect();
    assert_eq!(shards.len(), 2);
    let (code, out, err) = command(&scene.broker, &["client", "list", "--limit", "3", "--after", &expected[9]]);
    assert_eq!(code, Some(0));
    assert_eq!(out.lines().count(), 4, "a head and three: {out}");
    assert!(out.lines().nth(1).expect("a line").starts_with(&expected[10]), "{out}");
    assert_eq!(err, format!("there are more: --after {}\n", expected[12]));
}

#[test]
fn a_client_is_shown_with_its_subscriptions() {
    let scene = scene();
    let (mut client, _) = scene.connect(&kept(Version::V5, "a/b c"));
    client.subscribe("z/#", 1);
    client.subscribe("a/+", 2);
    let shown = get(&scene, "/api/v1/clients/a%2Fb%20c");
    assert_eq!((&shown["client"]["client_id"], &shown["client"]["connected"]), (&"a/b c".into(), &true.into()));
    assert_eq!((&shown["client"]["version"], &shown["client"]["listener"]), (&"5.0".into(), &"tcp".into()));
    let filters: Vec<_> =
        shown["subscriptions"].as_array().expect("a list").iter().map(|one| (&one["filter"], &one["qos"])).collect();
    assert_eq!(filters, [(&"a/+".into(), &2.into()), (&"z/#".into(), &1.into())]);
    let (code, out, _) = command(&scene.broker, &["client", "show", "a/b c"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("state          connected\n") && out.ends_with("  a/+  QoS 2\n  z/#  QoS 1\n"), "{out}");
    let (code, _, err) = command(&scene.broker, &["client", "show", "nobody"]);
    assert!(code == Some(1) && err.contains("no session of a client called \"nobody\""), "{err}");
}

#[test]
fn a_client_that_is_kicked_is_told_why_and_keeps_its_session() {
    let scene = scene();
    for (version, name) in [(Version::V5, "new"), (Version::V311, "old")] {
        let (mut client, _) = scene.connect(&kept(version, name));
        client.subscribe("t", 1);
        let (code, out, err) = command(&scene.broker, &["client", "kick", name]);
        assert_eq!((code, out), (Some(0), format!("{name} is disconnected from holdfast\n")), "{err}");
        match version {
            Version::V5 => drop(client.expect_disconnect(&[0x98])),
            _ => client.expect_close(),
        }
        let (code, out, _) = command(&scene.broker, &["client", "kick", name]);
        assert_eq!((code, out), (Some(0), format!("{name} was not connected; its session is on holdfast\n")));
        scene.resume(&kept(version, name));
    }
    let (code, ..) = command(&scene.broker, &["client", "kick", "nobody"]);
    assert_eq!(code, Some(1));
    // One whose session ends with its connection is gone.
    let mut brief = scene.connect(&Connect::new(Version::V5, "brief")).0;
    assert_eq!(ask(&scene.broker, "POST", "/api/v1/clients/brief/kick").0, 200);
    brief.expect_disconnect(&[0x98]);
    assert_eq!(ask(&scene.broker, "GET", "/api/v1/clients/brief").0, 404);
}

/// Asks until a list has so many lines, for what becomes so.
fn history(scene: &Scene, id: &str, lines: usize) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, out, err) = command(&scene.broker, &["client", "history", id, "--json"]);
        assert_eq!(code, Some(0), "{err}");
        let found: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        if found.len() >= lines {
            return found;
        }
        assert!(Instant::now() < deadline, "{id} has {} connections that have ended", found.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn why_a_client_was_gone_is_remembered() {
    let scene = scene();
    let hello = kept(Version::V5, "c");
    let (mut client, _) = scene.connect(&hello);
    client.publish("t", "x", 1);
    client.disconnect();
    history(&scene, "c", 1);
    scene.connect(&hello).0.reset();
    history(&scene, "c", 2);
    let (mut older, _) = scene.connect(&hello);
    let (newer, _) = scene.connect(&hello);
    older.expect_disconnect(&[0x8E]);
    drop(older);
    history(&scene, "c", 3);
    assert_eq!(ask(&scene.broker, "POST", "/api/v1/clients/c/kick").0, 200);
    drop(newer);
    let ended = history(&scene, "c", 4);
    let reasons: Vec<_> = ended.iter().map(|one| one["reason"].as_str().expect("a text")).collect();
    assert_eq!(reasons, ["kicked", "taken_over", "lost", "client"], "the latest first");
    let first = ended.last().expect("four");
    assert_eq!(
        (&first["packets_in"], &first["version"], &first["listener"]),
        (&2.into(), &"5.0".into(), &"tcp".into())
    );
    assert!(first["bytes_in"].as_u64() > Some(0) && first["bytes_out"].as_u64() > Some(0), "{first}");
    assert!(first["closed_at_ms"].as_u64() >= first["accepted_at_ms"].as_u64(), "{first}");
    assert!(history(&scene, "nobody", 0).is_empty());
    // Page by page it is the same.
    let (mut told, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&scene, &format!("/api/v1/connections?state=closed&limit=1{after}"));
        told.extend(page["closed"].as_array().expect("a list").clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(told, ended);
    let (code, out, _) = command(&scene.broker, &["client", "list", "--closed", "--limit", "1"]);
    assert!(code == Some(0) && out.lines().count() == 2 && out.contains("kicked"), "{out}");
    let line = scene.broker.log().wait(0, PATIENCE, |line| line.field("reason").as_deref() == Some("connection lost"));
    let line = line.expect("a line about the end of a connection");
    assert_eq!((line.field("client_id"), line.field("listener")), (Some("c".to_owned()), Some("tcp".to_owned())));
    assert!(line.field("packets_in").is_some() && line.field("bytes_out").is_some() && line.field("open_ms").is_some());
}

#[test]
fn who_would_receive_a_message_is_told_with_the_filter() {
    let scene = scene();
    let (mut here, _) = scene.connect(&kept(Version::V5, "here"));
    for (filter, qos) in [("a/+", 1), ("a/b", 2), ("b/#", 0)] {
        here.subscribe(filter, qos);
    }
    scene.leave_session(&kept(Version::V5, "away"), "#", 0);
    let (mut member, _) = scene.connect(&kept(Version::V5, "member"));
    member.subscribe("$share/g/a/#", 1);
    let found = get(&scene, "/api/v1/topics/match?topic=a%2Fb");
    let receivers = found["receivers"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let told: Vec<_> = receivers
        .map(|one| {
            (
                text(&one["client_id"]),
                text(&one["filter"]),
                text(&one["share"]),
                one["qos"].as_u64(),
                one["connected"].as_bool(),
            )
        })
        .collect();
    let expected = [
        ("away", "#", "-", 0, false),
        ("here", "a/+", "-", 1, true),
        ("here", "a/b", "-", 2, true),
        ("member", "a/#", "g", 1, true),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(id, filter, share, qos, on)| {
            (id.to_string(), filter.to_string(), share.to_string(), Some(*qos), Some(*on))
        })
        .collect();
    assert_eq!((told, &found["truncated"]), (expected, &false.into()));
    let (code, out, _) = command(&scene.broker, &["topic", "match", "$SYS/x"]);
    assert_eq!((code, out.as_str()), (Some(0), "nobody would receive $SYS/x\n"), "a wildcard in front does not match");
    let (code, out, _) = command(&scene.broker, &["topic", "match", "b"]);
    assert!(code == Some(0) && out.lines().count() == 3 && out.contains("b/#"), "{out}");
    let (code, _, err) = command(&scene.broker, &["topic", "match", "a/#"]);
    assert!(code == Some(1) && err.contains("topic name"), "{err}");
}
