//! `/metrics`: what a scraper of Prometheus would take, and what it would take it for.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_cluster_tests::process::Setup;
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
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            family = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let suffixes: &[&str] = if family.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        let is_of_family = suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(&family.0));
        assert!(is_of_family, "a sample stands below its family: {line}");
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
    assert_eq!(of("packets_total", ",direction=\"in\",packet=\"publish\""), 12.0);
    assert_eq!(of("connections_closed_total", ",reason=\"client\""), 1.0, "the one that has left its session");
    assert_eq!(of("connections_closed_total", ",reason=\"lost\""), 0.0);
    assert_eq!(of("connect_duration_seconds_count", ""), 2.0);
    assert_eq!(of("sessions_expired_total", ""), 0.0);
    let spread: f64 = (0..4).map(|shard| of("shard_connections", &format!(",shard=\"{shard}\""))).sum();
    assert_eq!(spread, 1.0);
    for shard in 0..4 {
        of("mailbox_events", &format!(",shard=\"{shard}\""));
    }
    // Again, when it is the time for a new count.
    scene.drain(&mut scene.resume(&kept(Version::V5, "away")), "q/b");
    let later = scrape(&scene);
    assert_eq!(later.keys().collect::<Vec<_>>(), samples.keys().collect::<Vec<_>>(), "series neither come nor go");
}

/// The names of metrics in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character: char| !is_word(character));
    words.filter(|word| word.starts_with("holdfast_") || word.starts_with("process_")).map(str::to_owned).collect()
}

fn in_configs(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/grafana").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Metrics that only a node of a cluster has.
const OF_A_CLUSTER: [&str; 6] = [
    "holdfast_cluster_link_up",
    "holdfast_cluster_peer_rtt_seconds",
    "holdfast_forward_queue_bytes",
    "holdfast_cluster_link_bytes_total",
    "holdfast_cluster_link_changes_total",
    "holdfast_sessions_without_copy",
];

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_there_are() {
    let scene = Scene::new();
    let samples = scrape(&scene);
    let known: BTreeSet<_> = samples.keys().map(|series| series.split('{').next().expect("a name")).collect();
    let dashboard: serde_json::Value = serde_json::from_str(&in_configs("holdfast.json")).expect("JSON");
    let rows = dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] == "row");
    let rows: Vec<_> = rows.filter_map(|row| row["title"].as_str()).collect();
    assert_eq!(
        rows,
        ["overview", "connections", "messages", "drops", "latency", "auth", "cluster", "storage", "process"]
    );
    for file in ["holdfast.json", "alerts.yml"] {
        let named = names_in(&in_configs(file));
        assert!(named.len() > 5, "{file}: {named:?}");
        let unknown = |name: &&String| !known.contains(name.as_str()) && !OF_A_CLUSTER.contains(&name.as_str());
        let unknown: Vec<_> = named.iter().filter(unknown).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}

/// What mosquitto 2.0 publishes, but for bridges.
const OF_MOSQUITTO: &str = "version uptime clients/total clients/maximum clients/connected clients/active clients/disconnected \
     clients/inactive clients/expired messages/received messages/sent messages/stored bytes/received bytes/sent publish/messages/received \
     publish/messages/sent publish/messages/dropped publish/bytes/received publish/bytes/sent store/messages/count store/messages/bytes \
     subscriptions/count shared_subscriptions/count retained_messages/count heap/current heap/maximum packet/out/count packet/out/bytes \
     connections/socket/count";

const LOADS: [&str; 9] = [
    "connections",
    "sockets",
    "messages/received",
    "messages/sent",
    "publish/received",
    "publish/sent",
    "publish/dropped",
    "bytes/received",
    "bytes/sent",
];

/// The names that an exporter of mosquitto makes of the topics: `/` and spaces become `_`.
#[test]
fn the_sys_topics_are_those_that_exporters_of_mosquitto_read() {
    let scene = Scene::with(Setup::new().section("[sys]\ninterval = \"1s\""));
    scene.leave_session(&kept(Version::V5, "away"), "$share/g/x", 1);
    let mut client = scene.client("watcher");
    client.subscribe("$SYS/broker/#", 0);
    client.subscribe("$SYS/brokers/+/clients/total", 0);
    let windows = ["1min", "5min", "15min"];
    let loads = LOADS.iter().flat_map(|load| windows.map(|window| format!("load/{load}/{window}")));
    let expected: BTreeSet<String> =
        OF_MOSQUITTO.split_whitespace().map(str::to_owned).chain(loads).map(|name| name.replace('/', "_")).collect();
    let mut seen = BTreeMap::new();
    let is_whole = |seen: &BTreeMap<String, String>| {
        let of = |name: &str| seen.get(name).map(String::as_str);
        expected.iter().all(|name| seen.contains_key(name))
            && of("clients_total") == Some("2")
            && of("shared_subscriptions_count") == Some("1")
            && of("own total") == Some("2")
    };
    let deadline = Instant::now() + PATIENCE;
    while !is_whole(&seen) {
        assert!(Instant::now() < deadline, "{seen:#?}");
        let message = client.take();
        let topic = message.topic.as_str();
        let name = match topic.strip_prefix("$SYS/broker/") {
            Some(name) => name.replace(['/', ' '], "_"),
            None => "own total".to_owned(),
        };
        seen.insert(name, message.text());
    }
    let number = |name: &str| seen[name].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {}", seen[name]));
    assert!(
        expected.iter().filter(|name| !["version", "uptime"].contains(&name.as_str())).all(|name| number(name) >= 0.0)
    );
    assert!(number("messages_sent") > 0.0 && number("bytes_received") > 0.0 && number("heap_current") > 1e6);
    assert!(seen["uptime"].ends_with(" seconds"), "{}", seen["uptime"]);
}
