//! `/metrics`: what a scraper of Prometheus would take, and what it would take it for.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_cluster_tests::scene::{Scene, kept};
use holdfast_cluster_tests::wire::Version;

use super::*;

/// The samples of an exposition, by name and labels; fails on what is none.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut families = BTreeSet::new();
    let mut samples = BTreeMap::new();
    let mut family = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a help text");
            assert!(!words.is_empty() && families.insert(name.to_owned()), "{name} is there twice");
            let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            family = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert_eq!(name, family.0, "a sample stands below its family");
        assert!((name.starts_with("holdfast_") || name.starts_with("process_")) && labels.ends_with('}'), "{line}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(family.1 == "gauge" || value >= 0.0, "{line}");
        assert!(samples.insert(series.to_owned(), value).is_none(), "{series} is there twice");
    }
    samples
}

fn scrape(scene: &Scene) -> BTreeMap<String, f64> {
    let (status, answer) = ask(&scene.broker, "GET", "/metrics");
    assert_eq!(status, 200, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    parse(body)
}

#[test]
fn a_scrape_is_well_formed_and_counts_what_happened() {
    let scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "away"), "q/#", 1);
    let mut client = scene.client("here");
    for number in 0..10 {
        assert!(client.publish("q/a", number.to_string(), 1) < 0x80);
    }
    assert!(client.publish_retained("r", "x", 1) < 0x80);
    client.publish("nobody", "x", 1);
    let samples = scrape(&scene);
    let of = |name: &str, labels: &str| {
        let series = format!("holdfast_{name}{{node=\"holdfast\"{labels}}}");
        *samples.get(&series).unwrap_or_else(|| panic!("no {series} in {samples:#?}"))
    };
    assert_eq!(of("sessions", ",state=\"connected\""), 1.0);
    assert_eq!(of("sessions", ",state=\"offline\""), 1.0);
    assert_eq!(of("queue_messages", ""), 10.0);
    assert!(of("queue_bytes", "") > 10.0);
    assert_eq!(of("publish_received_total", ",qos=\"1\""), 12.0);
    assert_eq!(of("messages_dropped_total", ",reason=\"no_subscribers\""), 1.0);
    assert_eq!(of("messages_dropped_total", ",reason=\"queue_full\""), 0.0, "there before it happens");
    assert_eq!(of("subscriptions", ""), 1.0);
    assert!(of("retained_messages", "") >= 1.0);
    assert_eq!(of("cluster_nodes", ",state=\"live\""), 1.0);
    assert_eq!(of("cluster_leader", ""), 1.0);
    assert!(of("storage_fsyncs_total", "") > 0.0);
    assert_eq!(of("listener_connections", ",listener=\"tcp\",transport=\"mqtt\""), 1.0);
    for shard in 0..4 {
        of("mailbox_events", &format!(",shard=\"{shard}\""));
    }
    // Again, when it is the time for a new count.
    scene.drain(&mut scene.resume(&kept(Version::V5, "away")), "q/b");
    let later = scrape(&scene);
    assert_eq!(later.keys().collect::<Vec<_>>(), samples.keys().collect::<Vec<_>>(), "series neither come nor go");
}
