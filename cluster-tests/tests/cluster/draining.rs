//! A node that is emptied before it is taken away, and clients that are shared out anew: three nodes, three hundred clients that come back as real ones do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::rounds::many;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3, Node, READY};
use holdfast_cluster_tests::wire::{Packet, Version, id, reason};
use serde_json::{Value, json};

use crate::HEALED;

const SHUTDOWN: &str = "[shutdown]\ngrace = \"500ms\"\nspread = \"4s\"";

const USE_ANOTHER_SERVER: u8 = 0x9C;

/// How long a thread waits for one client before it looks at the next.
const GLANCE: Duration = Duration::from_millis(2);

const THREADS: usize = 16;

fn load(node: &Node) -> Value {
    node.ask_json("/api/v1/nodes/local").expect("the admin port answers")["load"].clone()
}

fn connections(node: &Node) -> u64 {
    load(node)["connections"].as_u64().expect("a number")
}

fn drain(node: &Node) -> Value {
    load(node)["drain"].clone()
}

#[track_caller]
fn until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client of a crowd.
struct Member {
    client: Client,
    number: usize,
}

impl Member {
    fn connect(on: &ClusterStage, number: usize, at: usize) -> Member {
        let version = if number.is_multiple_of(3) { Version::V311 } else { Version::V5 };
        let hello = on.hello(version, &format!("d{number}")).keep_alive(0);
        let (client, _) = on.connect_within(at, &hello, HEALED);
        Member { client, number }
    }

    /// When it is closed: the DISCONNECT that it got before.
    fn closed(&mut self) -> Option<Option<Packet>> {
        match self.client.event(Instant::now() + GLANCE)? {
            Event::Closed => Some(None),
            Event::Packet(packet) => Some(self.client.until_closed().pop().or(Some(packet))),
        }
    }
}

/// Clients that come back elsewhere when they are closed, as most do, for as long as `work` takes; every third one speaks 3.1.1. What those were told that were closed comes back.
fn with_crowd(
    cluster: &Cluster,
    count: usize,
    at: usize,
    comes_back: &(dyn Fn(usize) -> Option<usize> + Sync),
    work: impl FnOnce(),
) -> Vec<(usize, Option<Packet>)> {
    let on = ClusterStage::new(cluster);
    let (told, over, there) = (Mutex::new(Vec::new()), AtomicBool::new(false), AtomicUsize::new(0));
    /// Ends the threads, whatever becomes of the work.
    struct Over<'o>(&'o AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (on, told, over, there) = (&on, &told, &over, &there);
            scope.spawn(move || {
                let numbers = (0..count).filter(|number| number % THREADS == thread);
                let mut members: Vec<_> = numbers.map(|number| Member::connect(on, number, at)).collect();
                there.fetch_add(members.len(), Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    members.retain_mut(|member| {
                        let Some(last) = member.closed() else { return true };
                        told.lock().expect("no holder panics").push((member.number, last));
                        let next = comes_back(member.number);
                        next.inspect(|at| *member = Member::connect(on, member.number, *at)).is_some()
                    });
                    std::thread::sleep(GLANCE);
                }
            });
        }
        let _over = Over(&over);
        until("all clients are there", READY, || there.load(Ordering::Relaxed) == count);
        work();
    });
    told.into_inner().expect("no holder panics")
}

/// Half of them go to each of the other two.
fn to_the_others(number: usize) -> Option<usize> {
    Some([N2, N3][number % 2])
}

/// Not ready, then closed to new clients, then emptied at a rate, each client told; and all of it undone.
#[test]
fn a_node_is_drained_in_order_and_its_clients_come_back_elsewhere() {
    let cluster = ClusterSetup::new(3).section(SHUTDOWN).start();
    let (node, clients) = (cluster.node(N1), many(300, 1_000));
    let began = Instant::now();
    let told = with_crowd(&cluster, clients, N1, &to_the_others, || {
        let (status, told) = node.command("/api/v1/nodes/local/drain", r#"{"grace_ms":1500}"#);
        assert_eq!(
            (status, &told["phase"], &told["began_with"]),
            (202, &json!("not_ready"), &json!(clients)),
            "{told}"
        );
        assert!(told["eta_ms"].as_u64() > Some(1_500) && told["headroom"].as_u64() > Some(0), "{told}");
        assert!(!node.is_ready(), "load balancers are told first");
        assert_eq!(connections(node), clients as u64, "and nobody else yet");
        drop(ClusterStage::new(&cluster).v5(N1, "late"));
        until("clients are let go", HEALED, || drain(node)["phase"] == "closing");
        assert!(std::net::TcpStream::connect(node.address()).is_err(), "it accepts nobody any more");
        let (mut largest, mut last) = (0, connections(node));
        until("the node is drained", HEALED, || {
            let now = connections(node);
            largest = largest.max(last.saturating_sub(now));
            last = now;
            drain(node)["phase"] == "drained"
        });
        assert!(largest < clients as u64 / 3, "{largest} went at a time");
        assert_eq!(connections(node), 0);
        assert_eq!(node.metric("holdfast_drain_remaining_connections", &[]), Some(0.0));
        assert_ne!(cluster.leader(), Some(N1), "another node leads");
        let (status, undone) = cluster.node(N2).command("/api/v1/nodes/n1/undrain", "");
        assert_eq!((status, undone), (200, json!({"undone": true})), "by way of another node");
        until("it is ready again", HEALED, || node.is_ready());
        ClusterStage::new(&cluster).v5(N1, "early").disconnect();
    });
    let (v311, v5): (Vec<_>, Vec<_>) = told.iter().partition(|(number, _)| number % 3 == 0);
    assert_eq!(told.len(), clients);
    assert!(v311.iter().all(|(_, last)| last.is_none()), "before 5.0 nothing can be said");
    assert!(
        v5.iter()
            .all(|(_, last)| matches!(last, Some(Packet::Disconnect { reason: reason::SERVER_SHUTTING_DOWN, .. })))
    );
    eprintln!("{clients} clients let go and back within {:.1?}", began.elapsed());
}

#[test]
fn clients_are_told_where_to_go_if_that_is_said() {
    let cluster = ClusterSetup::new(3).section(SHUTDOWN).start();
    let node = cluster.node(N1);
    let told = with_crowd(&cluster, 30, N1, &to_the_others, || {
        let body = json!({"redirect": "n2.example:1883", "rate": 100, "grace_ms": 0}).to_string();
        assert_eq!(node.command("/api/v1/nodes/n1/drain", &body).0, 202);
        until("the node is drained", HEALED, || drain(node)["phase"] == "drained");
    });
    for (number, last) in told.iter().filter(|(number, _)| number % 3 != 0) {
        let Some(Packet::Disconnect { reason: USE_ANOTHER_SERVER, properties }) = last else {
            panic!("{number}: {last:?}")
        };
        assert!(properties.has(id::SERVER_REFERENCE), "{properties:?}");
    }
}

/// Clients that find no way back are not all thrown out: it pauses, and with a patience of nothing it would go on.
#[test]
fn a_drain_pauses_when_too_few_come_back() {
    let cluster = ClusterSetup::new(3).section("[shutdown]\ngrace = \"0s\"\nspread = \"1m\"").start();
    let node = cluster.node(N1);
    let told = with_crowd(&cluster, 300, N1, &|_| None, || {
        assert_eq!(node.command("/api/v1/nodes/n1/drain", "").0, 202);
        until("it pauses", HEALED, || drain(node)["phase"] == "paused");
        let paused = drain(node);
        assert!(
            paused["reason"].as_str().is_some_and(|reason| reason.contains("too few clients come back")),
            "{paused}"
        );
        let left = connections(node);
        assert!(left > 150, "most are still there: {left}");
        assert_eq!(node.command("/api/v1/nodes/n1/undrain", "").1["undone"], true);
        until("it takes clients again", HEALED, || node.is_ready());
    });
    assert!(told.len() < 150, "{}", told.len());
}

#[test]
fn a_drain_does_not_finish_while_the_quorum_needs_the_node() {
    let cluster = ClusterSetup::new(3).section(SHUTDOWN).start();
    let node = cluster.node(N1);
    cluster.kill([N3]);
    cluster.agree_within([N1, N2], HEALED);
    assert_eq!(node.command("/api/v1/nodes/n1/drain", r#"{"grace_ms":0}"#).0, 202);
    until("it waits for the quorum", HEALED, || drain(node)["phase"] == "waiting");
    assert!(drain(node)["reason"].as_str().is_some_and(|reason| reason.contains("quorum_critical")));
    cluster.start([N3]);
    until("the others can do without it", HEALED, || drain(node)["phase"] == "drained");
    assert!(node.stop(Duration::from_secs(20)).success());
}

/// A node that was away has no clients; those that have too many let some go, and nobody is let go for little.
#[test]
fn clients_are_shared_out_anew() {
    let cluster = ClusterSetup::new(3).section(SHUTDOWN).start();
    let node = cluster.node(N1);
    let told = with_crowd(&cluster, 150, N1, &to_the_others, || {
        let (status, plan) = cluster.node(N2).command("/api/v1/cluster/rebalance/plan", "");
        assert_eq!(status, 200, "{plan}");
        let lets_go: Vec<_> =
            plan["nodes"].as_array().expect("a list").iter().map(|node| node["lets_go"].as_u64()).collect();
        assert_eq!(lets_go, [Some(100), Some(0), Some(0)], "{plan}");
        assert_eq!(connections(node), 150, "a plan is only one");
        assert_eq!(cluster.node(N2).command("/api/v1/cluster/rebalance/start", "").0, 202);
        until("it has its share", HEALED, || connections(node) == 50 && drain(node).is_null());
        assert!(node.is_ready(), "it goes on taking clients");
        until("they are elsewhere", HEALED, || connections(cluster.node(N2)) + connections(cluster.node(N3)) == 100);
        let (_, plan) = node.command("/api/v1/cluster/rebalance/plan", r#"{"weights":{"n2":0}}"#);
        assert!(plan["nodes"][1]["lets_go"].as_u64() >= Some(40), "{plan}");
    });
    assert_eq!(told.len(), 100);
    let v5 = told.iter().filter(|(number, _)| number % 3 != 0);
    assert!(
        v5.map(|(_, last)| last)
            .all(|last| matches!(last, Some(Packet::Disconnect { reason: USE_ANOTHER_SERVER, .. })))
    );
}

/// Many clients of a node that is stopped go a few at a time, and it remains a member.
#[test]
fn a_node_that_is_stopped_lets_many_clients_go_a_few_at_a_time() {
    let cluster = ClusterSetup::new(3).section(SHUTDOWN).start();
    let node = cluster.node(N1);
    let told = with_crowd(&cluster, 300, N1, &to_the_others, || {
        let began = Instant::now();
        assert!(node.stop(Duration::from_secs(20)).success());
        let took = began.elapsed();
        assert!(took > Duration::from_secs(3), "all at once: {took:?}");
        cluster.start([N1]);
        cluster.whole_within(HEALED);
    });
    assert_eq!(told.len(), 300);
}

#[test]
fn another_voter_leads_when_the_leader_is_told_so() {
    let cluster = Cluster::three();
    let leader = cluster.wait_for_leader();
    let other = (leader + 1) % 3;
    assert_eq!(cluster.node(other).command("/api/v1/cluster/transfer-leader", "").1["code"], "not_leader");
    assert_eq!(cluster.node(leader).command("/api/v1/cluster/transfer-leader", "").0, 200);
    let seen = cluster.node(leader).sees().expect("it answers");
    assert_ne!(seen.leader.as_deref(), Some(cluster.node(leader).name()));
    cluster.whole_within(HEALED);
}
