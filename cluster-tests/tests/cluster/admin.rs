//! The admin ports of several nodes: what each says of all, and what is done through any of them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::admin::{get, post};
use holdfast_cluster_tests::cluster::crowd::Crowd;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3, Node, READY, Stranger};
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Version, reason};
use serde_json::Value;

use crate::{HEALED, NOTICED, STALL_OF_LEADER, shared};

const STATUS: &str = "/api/v1/cluster/status";

/// What a client is told that is thrown out.
const ADMINISTRATIVE_ACTION: u8 = 0x98;

/// A process that is to end does so in this time.
const ENDED: Duration = Duration::from_secs(20);

/// Waits until something is so.
#[track_caller]
fn until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn status(node: &Node) -> Value {
    node.ask_json(STATUS).unwrap_or_else(|| panic!("{} does not answer", node.name()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The id of the node of that name, as `node` sees it.
fn id_of(node: &Node, name: &str) -> String {
    let seen = status(node);
    let nodes = seen["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().find(|node| node["name"] == name).map(|node| text(&node["id"])).unwrap_or_default()
}

/// What all nodes must say alike.
fn common(status: &Value) -> Value {
    let mut common = status.clone();
    for key in [
        "node",
        "links",
        "grant_remaining_ms",
        "last_log",
        "applied",
        "apply_lag",
        "leader_changes_total",
        "suspended_total",
    ] {
        common.as_object_mut().expect("an object").remove(key);
    }
    for node in common["nodes"].as_array_mut().expect("a list") {
        node.as_object_mut().expect("an object").remove("own");
    }
    common
}

#[test]
fn all_nodes_say_the_same_of_the_cluster() {
    let on = shared();
    let nodes: Vec<_> = on.cluster.all().map(|node| on.cluster.node(node)).collect();
    until("all say the same", NOTICED, || {
        let all: Vec<_> = nodes.iter().map(|node| common(&status(node))).collect();
        all.iter().all(|one| *one == all[0])
    });
    for node in &nodes {
        let seen = status(node);
        assert_eq!((seen["name"].as_str(), seen["node"].as_str()), (Some("test"), Some(node.name())));
        assert!(seen["clustered"] == true && seen["quorum"] == true && seen["quorum_critical"] == false, "{seen}");
        assert!(seen["suspended"] == false && seen["grant_remaining_ms"].as_u64().is_some_and(|ms| ms > 0), "{seen}");
        assert_eq!(text(&seen["id"]).len(), 32);
        let members = seen["nodes"].as_array().expect("a list");
        let names: Vec<_> = members.iter().map(|member| text(&member["name"])).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        for member in members {
            let own = text(&member["name"]) == node.name();
            assert!(member["live"] == true && member["voter"] == true && member["own"] == own, "{member}");
            assert_eq!(member["leader"] == true, member["name"] == seen["leader"], "{seen}");
            assert!(member["address"].is_string() && member["incarnation"].as_u64().is_some_and(|number| number > 0));
        }
        let links = seen["links"].as_array().expect("a list");
        assert_eq!(links.len(), 2);
        for link in links {
            assert!(link["up"] == true && link["last_error"] == "" && link["bytes_in"].as_u64() > Some(0), "{link}");
        }
    }
}

/// Page after page: every client with its node, and whoever was missing.
fn pages(node: &Node, limit: usize) -> (Vec<(String, String)>, BTreeSet<String>) {
    let (mut clients, mut missing, mut after) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let page = page(node, limit, &after);
        for client in page["clients"].as_array().expect("a list") {
            clients.push((text(&client["client_id"]), text(&client["node"])));
        }
        missing.extend(page["missing"].as_array().expect("a list").iter().map(text));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return (clients, missing),
        }
    }
}

/// A page, with the time that a node which does not answer may take.
#[track_caller]
fn page(node: &Node, limit: usize, after: &str) -> Value {
    let path = format!("/api/v1/clients?limit={limit}{after}");
    let (status, body) = get(node.admin_address(), &path, PATIENCE)
        .unwrap_or_else(|error| panic!("{} has no list: {error}", node.name()));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

#[test]
fn a_list_of_clients_is_the_same_from_each_node_and_names_who_is_missing() {
    // With copies the sessions of the dead node would be on the others.
    let cluster = ClusterSetup::new(3).cluster("session_copies = 1").start();
    let on = ClusterStage::new(&cluster);
    let name = |number: usize| format!("c{number:02}");
    let crowd = Crowd::gather(&cluster, 90, PATIENCE, |number| {
        let hello = on.hello(Version::V5, &name(number)).keep_alive(0);
        (number % 3, if number % 2 == 0 { hello.durable(3_600) } else { hello })
    });
    let at = |number: usize| (on.client_id(&name(number)), cluster.node(number % 3).name().to_owned());
    let all: Vec<_> = (0..90).map(at).collect();
    for node in cluster.all() {
        for limit in [1_000, 7] {
            assert_eq!(pages(cluster.node(node), limit), (all.clone(), BTreeSet::new()), "from {node}, by {limit}");
        }
    }
    cluster.node(N3).kill();
    let rest: Vec<_> = (0..90).filter(|number| number % 3 != N3).map(at).collect();
    for node in [N1, N2] {
        for limit in [1_000, 7] {
            let expected = (rest.clone(), BTreeSet::from(["n3".to_owned()]));
            until("the list without n3", NOTICED, || pages(cluster.node(node), limit) == expected);
        }
        until("n3 is dead, and no other voter may be lost", NOTICED, || {
            let seen = status(cluster.node(node));
            seen["quorum"] == true && seen["quorum_critical"] == true
        });
        let on_the_dead = format!("/api/v1/clients/{}", on.client_id(&name(N3)));
        let said = cluster.node(node).ask(&on_the_dead);
        assert!(
            said.as_ref().is_some_and(|(status, body)| *status == 503 && body.contains("waits there until n3 is back")),
            "{said:?}"
        );
    }
    drop(crowd);
}

#[test]
fn a_client_is_shown_and_kicked_through_any_node() {
    let on = shared();
    for (number, (there, asked)) in [(N1, N2), (N2, N1), (N3, N3)].into_iter().enumerate() {
        let id = on.client_id(&format!("k{number}"));
        let (mut client, _) = on.connect(there, &on.hello(Version::V5, &format!("k{number}")).durable(3_600));
        client.subscribe(on.topic("a/+"), 1);
        let asked = on.cluster.node(asked);
        let shown = asked.ask_json(&format!("/api/v1/clients/{id}")).expect("an answer");
        assert_eq!(text(&shown["client"]["node"]), on.cluster.node(there).name());
        assert_eq!(text(&shown["subscriptions"][0]["filter"]), on.topic("a/+"));
        let (status, kicked) = asked.command(&format!("/api/v1/clients/{id}/kick"), "");
        assert!(status == 200 && kicked["was_connected"] == true, "{status}: {kicked}");
        assert_eq!(text(&kicked["node"]), on.cluster.node(there).name());
        client.expect_disconnect(&[ADMINISTRATIVE_ACTION]);
        let (status, kicked) = asked.command(&format!("/api/v1/clients/{id}/kick"), "");
        assert!(status == 200 && kicked["was_connected"] == false, "{status}: {kicked}");
    }
    let (status, refused) = on.cluster.node(N1).command("/api/v1/clients/nobody/kick", "");
    assert!(status == 404 && refused["code"] == "no_such_client", "{status}: {refused}");
}

#[test]
fn metrics_have_the_families_of_a_cluster_and_each_series_once() {
    let on = shared();
    let node = on.cluster.node(N1);
    let value = |name: &str, labels: &[&str]| node.metric(&format!("holdfast_{name}"), labels);
    assert_eq!(value("cluster_nodes", &["state=\"live\""]), Some(3.0));
    assert_eq!((value("cluster_quorum", &[]), value("cluster_quorum_critical", &[])), (Some(1.0), Some(0.0)));
    assert_eq!((value("suspended", &[]), value("suspended_total", &[])), (Some(0.0), Some(0.0)));
    for peer in ["peer=\"n2\"", "peer=\"n3\""] {
        assert_eq!(value("cluster_link_up", &[peer]), Some(1.0));
        assert!(value("cluster_link_bytes_total", &[peer, "direction=\"out\""]) > Some(0.0));
        assert!(value("forward_queue_bytes", &[peer]).is_some());
    }
    for name in [
        "cluster_term",
        "cluster_leader",
        "cluster_applied_index",
        "cluster_apply_lag_entries",
        "cluster_leader_changes_total",
        "grant_remaining_seconds",
        "will_bytes",
        "forwarded_messages_total",
        "sessions_moved_total",
        "cluster_sessions",
        "cluster_routes",
        "cluster_link_refusals_total",
        "cluster_questions_unanswered_total",
    ] {
        assert!(value(name, &[]).is_some(), "{name}");
    }
    each_series_once(node);
}

#[track_caller]
fn each_series_once(node: &Node) {
    let (_, metrics) = node.ask("/metrics").expect("an answer");
    let series: Vec<_> =
        metrics.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' ')).collect();
    let distinct: BTreeSet<_> = series.iter().map(|(series, _)| series).collect();
    assert_eq!(series.len(), distinct.len(), "{metrics}");
}

/// One of three, and nobody else: it is alive, and says what it waits for.
#[test]
fn a_node_that_waits_for_the_others_says_so() {
    let cluster = ClusterSetup::new(3).prepare();
    let node = cluster.node(N1);
    node.launch();
    until("it says why it is not ready", READY, || {
        node.ask("/health/ready")
            .is_some_and(|(status, body)| status == 503 && body.contains("joining: this node is in no cluster"))
    });
    until("it names the seeds that it does not reach, and opens no listener", NOTICED, || {
        let said = node.ask("/health/ready").map(|(_, body)| body).unwrap_or_default();
        said.contains("; seed ") && said.contains("2 are missing") && said.contains("not yet open")
    });
    assert_eq!(node.ask("/health/live").map(|(status, _)| status), Some(200));
    assert_eq!(node.ask("/health/startup").map(|(status, _)| status), Some(503));
    assert_eq!(node.ask("/health/cluster").map(|(status, _)| status), Some(503));
    let seen = status(node);
    assert!(seen["clustered"] == true && seen["id"].is_null() && seen["quorum"] == false, "{seen}");
    let (status, refused) = node.command("/api/v1/cluster/leave", "");
    assert!(status == 409 && refused["code"] == "not_joined", "{status}: {refused}");
    cluster.start([N2, N3]);
    cluster.whole_within(READY);
    assert_eq!(node.ask("/health/startup").map(|(status, _)| status), Some(200));
}

/// A fourth node that was told of nobody joins when it is told of one, is one of them, and leaves again.
#[test]
fn a_node_joins_where_it_is_told_to() {
    let cluster = Cluster::three();
    let secret = std::fs::read_to_string(cluster.node(N1).installation().folder().join("secret")).expect("a secret");
    let fourth = Stranger { secret: Some(&secret), name: "n4", bind: "127.0.0.1:0".to_owned(), seeds: Vec::new() };
    let installation = fourth.install();
    let broker = installation.launch();
    let command = |path: &str, body: &str| post(broker.admin(), path, body, READY).expect("an answer");
    let join = format!("{{\"address\":\"{}\"}}", cluster.node(N2).cluster_address());
    until("it looks for the others", PATIENCE, || {
        get(broker.admin(), "/health/ready", PATIENCE)
            .is_ok_and(|(_, body)| body.contains("joining: this node is in no cluster"))
    });
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let (status, said) = command("/api/v1/cluster/join", &format!("{{\"address\":\"{gone}\"}}"));
    assert!(status == 503 && said.contains(&format!("found at {gone}: Connection refused")), "{status}: {said}");
    let (status, said) = command("/api/v1/cluster/join", &join);
    assert_eq!(status, 200, "{said}\n{}", broker.log().text());
    until("all see it", HEALED, || {
        cluster.all().all(|node| cluster.node(node).sees().is_some_and(|seen| seen.live == ["n1", "n2", "n3", "n4"]))
    });
    let (status, said) = command("/api/v1/cluster/join", &join);
    assert!(status == 409 && said.contains("already_joined"), "{status}: {said}");
    let (status, said) = command("/api/v1/cluster/leave", "");
    assert_eq!(status, 200, "{said}\n{}", broker.log().text());
    assert!(broker.exit_status(ENDED).success());
    only(&cluster, &[N1, N2, N3]);
}

/// Waits until these nodes are all that there is.
#[track_caller]
fn only(cluster: &Cluster, nodes: &[usize]) {
    let names: Vec<_> = nodes.iter().map(|node| cluster.node(*node).name().to_owned()).collect();
    let deadline = Instant::now() + HEALED;
    loop {
        let seen: Vec<_> = nodes.iter().map(|node| cluster.node(*node).sees()).collect();
        if seen
            .iter()
            .all(|seen| seen.as_ref().is_some_and(|seen| seen.ready && seen.live == names && seen.members == names))
        {
            return;
        }
        if Instant::now() > deadline {
            let told: Vec<_> =
                nodes.iter().map(|node| (status(cluster.node(*node)), cluster.node(*node).log().text())).collect();
            let told: Vec<_> = told.iter().map(|(status, log)| format!("{status:#}\n{log}")).collect();
            panic!("{names:?} are not all that there is: {}", told.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One by one, the leader first; what has left does not come back by itself, and the last one stays.
#[test]
fn nodes_leave_for_good() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let leader = cluster.wait_for_leader();
    let mut client = on.v5(leader, "c");
    let node = cluster.node(leader);
    let (status, done) = node.command("/api/v1/cluster/leave", "");
    assert_eq!(status, 200, "{done}\n{}", node.log().text());
    client.expect_disconnect(&[reason::SERVER_SHUTTING_DOWN]);
    assert!(node.process().exit_status(ENDED).success());
    assert!(node.log().text().contains("\"left\""), "{}", node.log().text());
    let mut rest: Vec<_> = cluster.all().filter(|node| *node != leader).collect();
    only(&cluster, &rest);
    // Its data directory knows.
    node.launch();
    assert!(!node.process().exit_status(ENDED).success());
    assert!(node.log().text().contains("has left the cluster"), "{}", node.log().text());
    // With another one it is another node.
    node.wipe();
    cluster.start([leader]);
    only(&cluster, &[N1, N2, N3]);
    // Those that do not lead, too.
    rest = cluster.all().collect();
    while rest.len() > 1 {
        let leader = cluster.wait_for_leader();
        let goes = *rest.iter().find(|node| **node != leader).expect("another one");
        let (status, done) = cluster.node(goes).command("/api/v1/cluster/leave", "");
        assert_eq!(status, 200, "{done}\n{}", cluster.node(goes).log().text());
        assert!(cluster.node(goes).process().exit_status(ENDED).success());
        rest.retain(|node| *node != goes);
        only(&cluster, &rest);
    }
    let (status, refused) = cluster.node(rest[0]).command("/api/v1/cluster/leave", "");
    assert!(status == 409 && refused["code"] == "last_node", "{status}: {refused}");
    on.v5(rest[0], "still").publish(on.topic("t"), "still", 1);
}

/// A node that is dead is taken out; one that lives is not, and none leaves whom the majority depends on.
#[test]
fn a_dead_node_is_taken_out() {
    let cluster = Cluster::three();
    let force = |node: usize, who: &str| {
        cluster.node(node).command("/api/v1/cluster/force-leave", &format!("{{\"node\":\"{who}\"}}"))
    };
    let (status, refused) = force(N1, "n3");
    assert!(status == 409 && refused["code"] == "refused", "{status}: {refused}");
    assert_eq!(force(N1, "n9").0, 404);
    assert_eq!(force(N1, "n1").0, 409);
    cluster.node(N3).kill();
    cluster.agree_within([N1, N2], NOTICED);
    let (status, refused) = cluster.node(N1).command("/api/v1/cluster/leave", "");
    assert!(status == 409 && refused["code"] == "quorum", "{status}: {refused}");
    let (status, done) = force(N1, "n3");
    assert_eq!(status, 200, "{done}");
    only(&cluster, &[N1, N2]);
    assert!(pages(cluster.node(N2), 100).1.is_empty(), "nobody is missing");
    // It comes back all the same, is told, ends as one that has left, and harms nobody.
    cluster.node(N3).launch();
    assert!(!cluster.node(N3).process().exit_status(HEALED).success());
    assert!(cluster.node(N3).log().text().contains("no member any more"), "{}", cluster.node(N3).log().text());
    only(&cluster, &[N1, N2]);
    cluster.node(N3).wipe();
    cluster.start([N3]);
    only(&cluster, &[N1, N2, N3]);
}

/// It lives in the state until its lease is over, and cannot agree to anything: its link is gone, or, if it hangs, the leader does not hear it.
#[test]
fn none_leaves_when_another_has_just_died() {
    for hangs in [false, true] {
        let cluster = Cluster::three();
        let on = ClusterStage::new(&cluster);
        let dies = cluster.wait_for_leader();
        let rest = cluster.followers();
        let (goes, stays) = (rest[0], rest[1]);
        let wound = hangs.then(|| cluster.freeze(dies));
        if !hangs {
            cluster.kill([dies]);
        }
        let (status, refused) = cluster.node(goes).command("/api/v1/cluster/leave", "");
        let why = format!("{status}: {refused}\n{}", cluster.node(stays).log().text());
        assert!(status == 409 && refused["message"].as_str().is_some_and(|said| said.contains("no majority")), "{why}");
        cluster.agree_within([goes, stays], STALL_OF_LEADER);
        let mut subscriber = on.v5(stays, "s");
        subscriber.subscribe(on.topic("t"), 1);
        on.v5(goes, "p").publish(on.topic("t"), "served", 1);
        assert_eq!(subscriber.take().payload, b"served");
        drop(wound);
        if !hangs {
            cluster.start([dies]);
        }
        only(&cluster, &[N1, N2, N3]);
    }
}

/// Without a quorum nobody can tell who is dead.
#[test]
fn without_a_quorum_nobody_is_taken_out() {
    let cluster = Cluster::three();
    cluster.kill([N2, N3]);
    until("it knows", NOTICED, || status(cluster.node(N1))["quorum"] == false);
    let (status, refused) = cluster.node(N1).command("/api/v1/cluster/force-leave", r#"{"node":"n2"}"#);
    assert!(status == 503 && refused["code"] == "no_quorum", "{status}: {refused}");
    let (status, refused) = cluster.node(N1).command("/api/v1/cluster/leave", "");
    assert!(status == 503 && refused["code"] == "no_quorum", "{status}: {refused}");
    cluster.start([N2]);
    cluster.agree_within([N1, N2], HEALED);
}

/// The leader says who it is, but not all the time; the other one knows why it waits. (The nodes of the harness look for their own three at fixed addresses, so it is a fourth.)
#[test]
fn a_node_with_the_name_of_a_live_one_is_told_so() {
    let cluster = Cluster::three();
    let secret = std::fs::read_to_string(cluster.node(N1).installation().folder().join("secret")).expect("a secret");
    let seeds: Vec<_> = cluster.all().map(|node| cluster.node(node).cluster_address().to_string()).collect();
    let fourth =
        || Stranger { secret: Some(&secret), name: "n4", bind: "127.0.0.1:0".to_owned(), seeds: seeds.clone() };
    let (first, second) = (fourth().install(), fourth().install());
    let first = first.launch();
    until("it joins", HEALED, || get(first.admin(), "/health/ready", PATIENCE).is_ok_and(|(status, _)| status == 200));
    let second = second.launch();
    until("it says why it is not ready", HEALED, || {
        get(second.admin(), "/health/ready", PATIENCE)
            .is_ok_and(|(status, body)| status == 503 && body.contains("is alive under the name n4"))
    });
    until("it is in its log", NOTICED, || second.log().text().contains("the cluster does not take this node"));
    let leader = cluster.node(cluster.wait_for_leader());
    until("the leader says it", NOTICED, || leader.log().text().contains("a node is not taken as a member"));
    let said = leader.log().text();
    assert!(said.matches("a node is not taken as a member").count() <= 2, "{said}");
    assert!(cluster.all().all(|node| cluster.node(node).is_ready()));
}

/// Its disk is gone: under the same name it is another node, and takes the place of the old one.
#[test]
fn a_wiped_node_has_another_id_and_the_same_name() {
    let cluster = Cluster::three();
    let before = id_of(cluster.node(N1), "n3");
    cluster.node(N3).kill();
    cluster.node(N3).wipe();
    cluster.start([N3]);
    only(&cluster, &[N1, N2, N3]);
    for node in cluster.all() {
        let now = id_of(cluster.node(node), "n3");
        assert!(now.len() == 32 && now != before, "{before} and {now}");
        until("one link for each name", HEALED, || {
            let seen = status(cluster.node(node));
            let links = seen["links"].as_array().cloned().unwrap_or_default();
            links.len() == 2 && links.iter().all(|link| link["up"] == true)
        });
        each_series_once(cluster.node(node));
        assert_eq!(cluster.node(node).metric("holdfast_cluster_nodes", &[]), Some(3.0), "live and dead");
    }
}
