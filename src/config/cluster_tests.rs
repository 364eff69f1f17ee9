//! `[cluster]`: its keys, its defaults against the reference file, and timers that contradict one another.

use super::*;

/// A good node of a cluster, with more keys of `[cluster]` from line 7 on.
fn cluster(more: &str) -> String {
    format!("[node]\nname = 'n1'\n[cluster]\nname = 'c'\nbind = '127.0.0.1:7946'\nsecret_file = 's'\n{more}")
}

fn read(more: &str) -> Cluster {
    good(&cluster(more)).cluster.unwrap()
}

#[test]
fn a_node_is_alone_without_the_section() {
    assert_eq!(good("[node]\nname = 'n1'\n").cluster, None);
    let bind = "127.0.0.1:7946".parse().unwrap();
    assert_eq!(read(""), Cluster::new("c", bind, "dir/s"));
    assert_eq!(read("advertise = 'auto'\nseeds = []\n"), Cluster::new("c", bind, "dir/s"));
}

/// The lines of `[cluster]` in the reference file that are keys, as a section that counts.
fn reference() -> String {
    let text = include_str!("../../configs/reference.toml");
    let start = text.find("\n# [cluster]\n").unwrap();
    let part = &text[start..start + text[start..].find("\n[log]").unwrap()];
    let is_key = |line: &str| {
        line.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
    };
    let mut section = "[node]\nname = 'n1'\n[cluster]\n".to_owned();
    for line in part.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| is_key(line)) {
        section.push_str(line);
        section.push('\n');
    }
    section
}

#[test]
fn the_reference_file_shows_the_defaults() {
    let shown = good(&reference()).cluster.unwrap();
    let expected = Cluster {
        // These have no value by default, so they are shown with an example.
        tls: Some(ClusterTls {
            cert: "dir/node.crt".into(),
            key: "dir/node.key".into(),
            ca: "dir/nodes-ca.crt".into(),
        }),
        peer_addresses: [("n2".to_owned(), "10.0.0.2:7946".to_owned())].into(),
        ..Cluster::new("prod", "0.0.0.0:7946".parse().unwrap(), "dir/cluster.secret")
    };
    assert_eq!(shown, expected);
}

#[test]
fn every_key_of_a_cluster_is_read() {
    let read = read(
        "advertise = 'n1.example:7'\nseeds = ['localhost:1', '[::1]:2', 'a_b-c.d:3', 'n2:4']\nexpected_size = 5\nsession_copies = 1\nlease = '6s'\n\
         renew = '1s'\nmargin = '700ms'\nelection = '600ms'\nfence_grace = '0s'\nsubscribe_deadline = '8s'\nroute_linger = 0\n\
         tls = { cert = 'c', key = '/k', ca = 'a' }\n[cluster.peer_addresses]\nn2 = '127.0.0.1:9'\n\"n 3\" = 'h:10'\n",
    );
    let millis = Duration::from_millis;
    let expected = Cluster {
        advertise: Some("n1.example:7".into()),
        seeds: ["localhost:1", "[::1]:2", "a_b-c.d:3", "n2:4"].map(String::from).into(),
        expected_size: 5,
        session_copies: 1,
        tls: Some(ClusterTls { cert: "dir/c".into(), key: "/k".into(), ca: "dir/a".into() }),
        peer_addresses: [("n2", "127.0.0.1:9"), ("n 3", "h:10")].map(|(a, b)| (a.into(), b.into())).into(),
        timers: ClusterTimers {
            lease: millis(6000),
            renew: millis(1000),
            margin: millis(700),
            election: millis(600),
            fence_grace: millis(0),
            subscribe_deadline: millis(8000),
            route_linger: millis(0),
        },
        ..Cluster::new("c", "127.0.0.1:7946".parse().unwrap(), "dir/s")
    };
    assert_eq!(read, expected);
}

#[test]
fn a_cluster_needs_a_name_an_address_and_a_secret() {
    let found = errors("[node]\nname = 'n'\n[cluster]\n");
    assert_eq!(found.len(), 3, "{found:?}");
    for (error, start) in found.iter().zip(["bind is missing", "name is missing", "secret_file is missing"]) {
        assert!(error.starts_with(&format!("3:1: {start}: ")), "{error}");
    }
    let unnamed = error("[cluster]\nname = 'c'\nbind = '127.0.0.1:1'\nsecret_file = 's'\n");
    assert!(unnamed.starts_with("1:1: a node of a cluster needs a name of its own"), "{unnamed}");
    assert!(error("[[cluster]]\nname = 'c'").contains("there is one [cluster] only"));
}

#[test]
fn hosts_and_ports_are_checked() {
    for seed in
        ["n1", "n1:0", "n1:70000", ":1", "0.0.0.0:1", "a b:1", "http://n1:1", "10.0.0:1", "[::1]", "::1", "n1:+1"]
    {
        let error = error(&cluster(&format!("seeds = ['{seed}']")));
        assert!(error.starts_with("7:10: seeds: expected a host and port such as"), "{seed}: {error}");
    }
    assert!(error(&cluster("seeds = 'n1:1'")).starts_with("7:9: seeds: expected a list"));
    assert!(error(&cluster("advertise = 'n1'")).ends_with(", or \"auto\""));
    assert!(error(&cluster("[cluster.peer_addresses]\nn2 = 'n2'")).starts_with("8:6: peer_addresses: expected a host"));
    assert!(error(&cluster("peer_addresses = 1")).starts_with("7:18: peer_addresses: expected a table"));
    let short = error(&cluster("").replace("'127.0.0.1:7946'", "7946"));
    assert!(short.ends_with("did you mean \"127.0.0.1:7946\"?"), "{short}");
}

#[test]
fn cluster_tls_needs_all_three_files() {
    let found = errors(&cluster("tls = { cert = 'c' }"));
    assert_eq!(
        found,
        ["7:7: tls: ca is missing: the path of a PEM file", "7:7: tls: key is missing: the path of a PEM file"]
    );
    assert!(error(&cluster("tls = { cert = 'c', key = 'k', ca = 'a', verify = 'none' }")).contains("unknown key"));
}

#[test]
fn the_address_of_the_cluster_is_no_listener() {
    let both = format!("{}[[listener]]\nbind = '127.0.0.1:7946'\n", cluster(""));
    assert_eq!(error(&both), "5:8: bind: 127.0.0.1:7946 is already taken by listener \"mqtt\"");
}

#[test]
fn timers_of_a_cluster_that_contradict_are_refused() {
    let short = error(&cluster("lease = '2s'"));
    assert!(short.starts_with("7:9: lease (2s) without margin (500ms) and renew (500ms) leaves 1s, "), "{short}");
    assert!(error(&cluster("election = '400ms'")).starts_with("7:12: lease (3s) without"));
    assert!(error(&cluster("margin = '3s'")).contains("leaves 0s"), "none is left, and no time is negative");
    let deadline = error(&cluster("subscribe_deadline = '3s'"));
    assert!(deadline.starts_with("7:22: subscribe_deadline (3s) must be longer than"), "{deadline}");
    // One mistake is one error.
    assert_eq!(errors(&cluster("lease = 'x'\nelection = '10s'")).len(), 1);
}
