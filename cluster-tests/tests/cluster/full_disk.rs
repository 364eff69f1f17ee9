//! A node whose disk is full, among others that have room: publishers anywhere are told, nothing acknowledged is lost, nobody is given up, and it heals by itself.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage, N1, N2, N3, READY, Refusal, try_connect};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Publish, Version, reason};

use crate::HEALED;

/// More than fits.
const MESSAGES_MAX: usize = 400;
const MESSAGE_BYTES: usize = 1_000_000;

/// Publishes for the session on the full node until that is refused. Returns how many were accepted.
#[track_caller]
fn fill(on: &ClusterStage, node: usize) -> usize {
    let mut publisher = on.v5(node, "p");
    for number in 0..MESSAGES_MAX {
        match publisher.publish(on.topic("t"), format!("{number} {}", "x".repeat(MESSAGE_BYTES)), 1) {
            code if code < 0x80 => {}
            reason::QUOTA_EXCEEDED => return number,
            code => panic!("refused with {code:#04X}"),
        }
    }
    panic!("{MESSAGES_MAX} messages were accepted by a full disk");
}

/// What needs no room on the full node goes on, on all three.
#[track_caller]
fn others_go_on(on: &ClusterStage) {
    for node in [N2, N3] {
        let mut subscriber = on.v5(node, &format!("clean{node}"));
        subscriber.subscribe(on.topic(&format!("clean/{node}")), 1);
        assert!(on.v5(N1, "clean").publish(on.topic(&format!("clean/{node}")), "x", 1) < 0x80);
        assert_eq!(subscriber.take().text(), "x");
    }
}

#[test]
fn a_full_disk_of_another_node_refuses_what_would_be_kept_there_and_heals() {
    // With copies, those that have no room on one node would go to another.
    let setup = ClusterSetup::new(3).cluster("session_copies = 1").storage("max_bytes = \"256MB\"");
    let cluster = setup.section("[mqtt]\nmax_queued_bytes = \"1GB\"").start();
    let on = ClusterStage::new(&cluster);
    let (mut subscriber, _) = on.connect(N2, &on.kept("s"));
    subscriber.subscribe(on.topic("t"), 1);
    subscriber.disconnect();
    let (mut small, _) = on.connect(N2, &on.kept("small"));
    small.subscribe(on.topic("u"), 1);
    small.disconnect();
    let accepted = fill(&on, N1);
    assert!(accepted > 64, "{accepted} MB of 256 were used");
    // Who cannot be told waits.
    let (mut old, _) = on.connect(N1, &on.hello(Version::V311, "p311"));
    old.send_publish(&Publish::new(on.topic("t"), "held back").qos(1, 1));
    // And so does what was on its way before it was known that there is no room; while it does, its session stays where that will be kept.
    let (mut older, _) = on.connect(N1, &on.hello(Version::V311, "p311u"));
    older.send_publish(&Publish::new(on.topic("u"), "came too late").qos(1, 1));
    others_go_on(&on);
    assert!(old.fence().is_empty() && older.fence().is_empty(), "they are acknowledged");
    match try_connect(cluster.node(N3).address(), &on.kept("small"), HEALED) {
        Err(Refusal::Refused(reason::SERVER_UNAVAILABLE)) => {}
        other => panic!("the session leaves what it is owed behind: {:?}", other.map(|(_, ack)| ack)),
    }
    // Taken, and there is room again.
    let (mut subscriber, ack) = on.connect(N2, &on.kept("s"));
    assert!(ack.session_present);
    for number in 0..accepted {
        let text = subscriber.take().text();
        assert_eq!(text.split(' ').next(), Some(number.to_string().as_str()));
    }
    assert_eq!((old.wait_puback(1), older.wait_puback(1)), (0, 0));
    assert_eq!(subscriber.take().text(), "held back");
    let (mut small, ack) = on.connect_within(N3, &on.kept("small"), HEALED);
    assert!(ack.session_present);
    assert_eq!(small.take().text(), "came too late");
    let deadline = Instant::now() + HEALED;
    let mut publisher = on.v5(N3, "p3");
    while publisher.publish(on.topic("t"), "healed", 1) >= 0x80 {
        assert!(Instant::now() < deadline, "it does not heal");
    }
    assert_eq!(subscriber.take().text(), "healed");
    nobody_was_given_up(&cluster);
}

/// Until no node is short of room, and none that has its copies.
#[track_caller]
fn wait_for_room(cluster: &Cluster) {
    let deadline = Instant::now() + HEALED;
    let has_room = |node: usize| {
        let is_no_more = |name: &str| cluster.node(node).metric(name, &[]) == Some(0.0);
        is_no_more("holdfast_storage_short") && is_no_more("holdfast_session_copies_short")
    };
    while !cluster.all().all(has_room) {
        assert!(Instant::now() < deadline, "there is no room again");
        pass(Duration::from_millis(100));
    }
}

#[track_caller]
fn nobody_was_given_up(cluster: &Cluster) {
    for node in cluster.all() {
        let said = cluster.node(node).log().text();
        assert!(!said.contains("given this node up") && !said.contains("is expired"), "{said}");
    }
}

/// Sessions at home on the first node, each with a topic of its own.
/// So many that each node is the heir of a good part of them.
const SESSIONS: usize = 24;

/// Messages that were accepted, by session, and how many were refused.
#[derive(Default)]
struct Filled {
    accepted: Vec<Vec<usize>>,
    refused: usize,
}

/// A cluster of which the last node has little room.
fn with_little_room_on_the_last(size: usize) -> Cluster {
    let setup = ClusterSetup::new(size).cluster("session_copies = 2").storage("max_bytes = \"4GB\"");
    let cluster = setup.section("[mqtt]\nmax_queued_bytes = \"1GB\"").prepare();
    let file = cluster.node(size - 1).installation().folder().join("holdfast.toml");
    let text = std::fs::read_to_string(&file).expect("its configuration");
    std::fs::write(&file, text.replace("4GB", "256MB")).expect("the temporary folder can be written");
    cluster.start(cluster.all());
    cluster.whole_within(READY);
    crate::copies::wait_for_copies(&cluster, cluster.all());
    cluster
}

/// Publishes to the sessions in turn, until so many have been refused or so many accepted, or it is enough.
#[track_caller]
fn fill_in_turn(
    on: &ClusterStage,
    refused_max: usize,
    accepted_max: usize,
    mut is_enough: impl FnMut() -> bool,
) -> Filled {
    let mut filled = Filled { accepted: vec![Vec::new(); SESSIONS], refused: 0 };
    let mut publisher = on.v5(N1, "filler");
    for number in 0.. {
        let text = format!("{number} {}", "x".repeat(MESSAGE_BYTES));
        match publisher.publish(on.topic(&format!("s/{}", number % SESSIONS)), text, 1) {
            code if code < 0x80 => filled.accepted[number % SESSIONS].push(number),
            reason::QUOTA_EXCEEDED => {
                filled.refused += 1;
                pass(Duration::from_millis(50));
            }
            code => panic!("refused with {code:#04X}"),
        }
        let accepted: usize = filled.accepted.iter().map(Vec::len).sum();
        if filled.refused >= refused_max || accepted >= accepted_max || is_enough() {
            break;
        }
    }
    filled
}

fn subscribe_all(on: &ClusterStage) {
    for session in 0..SESSIONS {
        let (mut client, _) = on.connect(N1, &on.kept(&format!("s{session}")));
        client.subscribe(on.topic(&format!("s/{session}")), 1);
        client.disconnect();
    }
}

#[track_caller]
fn take_all(on: &ClusterStage, node: usize, filled: &Filled) {
    for (session, accepted) in filled.accepted.iter().enumerate() {
        let (mut client, ack) = on.connect_within(node, &on.kept(&format!("s{session}")), HEALED);
        assert!(ack.session_present, "s{session}");
        for number in accepted {
            let text = client.take().text();
            assert_eq!(text.split(' ').next(), Some(number.to_string().as_str()), "s{session}");
        }
        client.disconnect();
    }
}

/// Copies go to a node that has room; until they are there nothing is acknowledged of which there would be one only.
#[test]
fn copies_leave_an_heir_without_room_for_one_that_has_it() {
    let cluster = with_little_room_on_the_last(3);
    let on = ClusterStage::new(&cluster);
    subscribe_all(&on);
    // And some more when its disk is full.
    let mut more = 60;
    let filled = fill_in_turn(&on, usize::MAX, 1_000, || {
        more -= usize::from(cluster.node(N3).log().text().contains("hardly any room is left"));
        more == 0
    });
    eprintln!("{} were refused meanwhile", filled.refused);
    assert!(more < 60, "its disk was not full: {}", cluster.node(N3).log().text());
    // Not before they have left it: with a home that dies meanwhile the full node inherits a part of its sessions, and these cannot leave it for a node whose only heir it is.
    cluster.copied_within(&[N1, N2], HEALED);
    nobody_was_given_up(&cluster);
    cluster.node(N1).kill();
    cluster.node(N1).wipe();
    take_all(&on, N2, &filled);
}

/// Without another one: what would have to be copied is refused, everything else goes on, and it heals when the sessions have taken what waits for them.
#[test]
fn an_heir_without_room_and_nobody_in_its_place_refuses_what_would_be_copied() {
    let cluster = with_little_room_on_the_last(2);
    let on = ClusterStage::new(&cluster);
    subscribe_all(&on);
    let filled = fill_in_turn(&on, 20, MESSAGES_MAX, || false);
    assert!(filled.refused == 20, "more fits than there is room for");
    assert_eq!(cluster.node(N1).metric("holdfast_session_copies_short", &[]), Some(1.0));
    // Who cannot be told waits.
    let (mut old, _) = on.connect(N1, &on.hello(Version::V311, "p311"));
    old.send_publish(&Publish::new(on.topic("s/0"), "held back").qos(1, 1));
    assert!(old.fence().is_empty());
    let mut subscriber = on.v5(N2, "clean");
    subscriber.subscribe(on.topic("clean"), 1);
    assert!(on.v5(N1, "p").publish(on.topic("clean"), "x", 1) < 0x80);
    assert_eq!(subscriber.take().text(), "x");
    take_all(&on, N1, &filled);
    wait_for_room(&cluster);
    assert_eq!(old.wait_puback(1), 0);
    assert!(on.v5(N1, "p1").publish(on.topic("s/0"), "healed", 1) < 0x80);
    let (mut client, _) = on.connect(N1, &on.kept("s0"));
    assert_eq!((client.take().text().as_str(), client.take().text().as_str()), ("held back", "healed"));
    nobody_was_given_up(&cluster);
}
