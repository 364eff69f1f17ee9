//! Case 43: a shared subscription with members on every node, of which one dies, leaves, or restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::{Client, Event};
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::secs;
use holdfast_cluster_tests::cluster::{Cluster, ClusterStage, N1, N2, N3, READY};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Ack, Connect, Packet, Version, first, id};

use crate::{HEALED, NOTICED};

const PER_SEC: u64 = 100;

/// A message as a member got it.
struct Got {
    number: u64,
    dup: bool,
    at: Instant,
}

/// What has come to any member.
#[derive(Default)]
struct Arrived(Mutex<BTreeSet<u64>>);

impl Arrived {
    /// Waits until so many different messages have come, or for as long as they may take at most.
    fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + NOTICED;
        while self.0.lock().expect("no member panics").len() < count && Instant::now() < deadline {
            pass(Duration::from_millis(5));
        }
    }
}

/// Takes and acknowledges messages until told to leave, or until its node dies.
fn member(mut client: Client, arrived: &Arrived, over: &AtomicBool) -> (Vec<Got>, Option<Client>) {
    let mut got = Vec::new();
    loop {
        match client.event(Instant::now() + Duration::from_millis(20)) {
            Some(Event::Packet(Packet::Publish(message))) => {
                let number = message.text().parse().expect("a number");
                got.push(Got { number, dup: message.dup, at: Instant::now() });
                arrived.0.lock().expect("no member panics").insert(number);
                client.send_unless_closed(&Ack::new(first::PUBACK, message.packet_id).bytes());
            }
            Some(Event::Packet(Packet::Disconnect { .. })) => {}
            Some(Event::Packet(other)) => panic!("{other:?} to a member"),
            Some(Event::Closed) => return (got, None),
            None if over.load(Ordering::Relaxed) => return (got, Some(client)),
            None => {}
        }
    }
}

/// Publishes numbers until told to stop; those that were acknowledged, with the time of each.
fn publish(on: &ClusterStage, node: usize, over: &AtomicBool) -> Vec<Instant> {
    let mut publisher = on.v5(node, "p");
    let (began, mut acked) = (Instant::now(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let number = acked.len();
        assert!(publisher.publish(on.topic("t"), number.to_string(), 1) < 0x80);
        acked.push(Instant::now());
        let next = began + Duration::from_micros(1_000_000 / PER_SEC * acked.len() as u64);
        pass(next.saturating_duration_since(Instant::now()));
    }
    acked
}

fn join(on: &ClusterStage, node: usize, hello: &Connect) -> Client {
    let (mut client, _) = on.connect_within(node, hello, READY);
    assert_eq!(client.subscribe(on.share("g", "t"), 1), 1);
    client
}

/// All that came, by number.
fn union(parts: Vec<Vec<Got>>) -> BTreeMap<u64, Vec<Got>> {
    let mut all = BTreeMap::<u64, Vec<Got>>::new();
    parts.into_iter().flatten().for_each(|got| all.entry(got.number).or_default().push(got));
    all
}

#[track_caller]
fn all_came_once(acked: &[Instant], got: &BTreeMap<u64, Vec<Got>>) {
    let lost: Vec<_> = (0..acked.len() as u64).filter(|number| !got.contains_key(number)).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {:?}", lost.len(), acked.len(), &lost[..lost.len().min(20)]);
    let twice: Vec<_> = got.iter().filter(|(_, got)| got.iter().filter(|got| !got.dup).count() > 1).collect();
    let twice: Vec<_> = twice.iter().map(|(number, _)| **number).collect();
    assert!(twice.is_empty(), "came twice without DUP: {twice:?}");
}

#[test]
fn field_case_43_a_member_whose_node_dies_is_passed_over_and_taken_in_again() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let hello = |node: usize| on.hello(holdfast_cluster_tests::wire::Version::V5, &format!("m{node}")).keep_alive(0);
    let members = [N1, N2, N3].map(|node| join(&on, node, &hello(node)));
    let (over, left, arrived) = (AtomicBool::new(false), AtomicBool::new(false), Arrived::default());
    let (acked, parts, killed, again) = std::thread::scope(|scope| {
        let members = members.map(|client| scope.spawn(|| member(client, &arrived, &left)));
        let publisher = scope.spawn(|| publish(&on, N1, &over));
        pass(secs(1, 10));
        let killed = Instant::now();
        cluster.node(N3).kill();
        pass(secs(9, 20));
        cluster.start([N3]);
        let client = join(&on, N3, &hello(N3));
        let again = Instant::now();
        let back = scope.spawn(|| member(client, &arrived, &left));
        pass(secs(2, 10));
        over.store(true, Ordering::Relaxed);
        let acked = publisher.join().expect("a publisher");
        arrived.wait_for(acked.len());
        left.store(true, Ordering::Relaxed);
        let mut parts: Vec<_> = members.map(|member| member.join().expect("a member").0).into();
        let back = back.join().expect("a member").0;
        assert!(!back.is_empty(), "who is back gets its part");
        parts.push(back);
        (acked, parts, killed, again)
    });
    let got = union(parts);
    all_came_once(&acked, &got);
    // From when the failure is noticed, nothing waits for a dead member.
    let noticed = killed + NOTICED.min(crate::STALL);
    assert!(acked.iter().any(|at| *at > noticed && *at < again), "there is something to judge");
    let late = got.values().flatten().filter(|got| {
        let at = acked.get(usize::try_from(got.number).unwrap_or(usize::MAX));
        at.is_some_and(|at| {
            *at > noticed && *at < again && got.at.saturating_duration_since(*at) > Duration::from_secs(1)
        })
    });
    assert_eq!(late.count(), 0, "messages waited for a member that was dead");
}

#[test]
fn field_case_43_an_offline_member_is_passed_over_while_another_is_online() {
    let on = crate::shared();
    let kept = |node: usize| on.kept(&format!("m{node}"));
    let mut stay = [join(&on, N1, &kept(N1)), join(&on, N3, &kept(N3))];
    join(&on, N2, &kept(N2)).disconnect();
    // The others know soon that it is away; what they sent before they knew it goes to it no more than once it is back.
    let mut publisher = on.v5(N1, "p");
    pass(Duration::from_millis(500));
    for number in 0..90 {
        assert!(publisher.publish(on.topic("t"), number.to_string(), 1) < 0x80);
    }
    let mut got: Vec<String> = Vec::new();
    let deadline = Instant::now() + NOTICED;
    while got.len() < 90 {
        assert!(Instant::now() < deadline, "{} of 90 came", got.len());
        for client in &mut stay {
            for packet in client.fence() {
                let Packet::Publish(message) = packet else { panic!("{packet:?}") };
                client.acknowledge(&message);
                got.push(message.text());
            }
        }
    }
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 90);
    let (mut back, ack) = on.connect(N2, &kept(N2));
    assert!(ack.session_present);
    back.subscribe(on.topic("end"), 1);
    publisher.publish(on.topic("end"), "end", 1);
    assert_eq!(back.take_until("end"), []);
}

#[test]
fn field_case_43_with_nobody_online_an_offline_member_keeps_the_messages() {
    let on = crate::shared();
    for node in [N2, N3] {
        join(&on, node, &on.kept(&format!("m{node}"))).disconnect();
    }
    let mut publisher = on.v5(N1, "p");
    (0..50).for_each(|number| assert!(publisher.publish(on.topic("t"), number.to_string(), 1) < 0x80));
    // They come back on other nodes than they left.
    let mut got = Vec::new();
    let mut members = [N2, N3].map(|node| on.connect((node + 1) % 3, &on.kept(&format!("m{node}"))).0);
    let deadline = Instant::now() + NOTICED;
    while got.len() < 50 {
        assert!(Instant::now() < deadline, "{} of 50 came", got.len());
        for client in &mut members {
            for packet in client.fence() {
                let Packet::Publish(message) = packet else { panic!("{packet:?}") };
                client.acknowledge(&message);
                got.push(message.text().parse::<u32>().expect("a number"));
            }
        }
    }
    got.sort_unstable();
    assert_eq!(got, (0..50).collect::<Vec<_>>());
}

#[test]
fn field_case_43_members_that_restart_in_turn_lose_nothing() {
    let on = crate::shared();
    let kept = |number: usize| on.kept(&format!("m{number}")).keep_alive(0);
    let (over, left, arrived) = (AtomicBool::new(false), AtomicBool::new(false), Arrived::default());
    let (acked, parts) = std::thread::scope(|scope| {
        let mut members: Vec<_> = (0..3).map(|number| Some(join(&on, number, &kept(number)))).collect();
        let publisher = scope.spawn(|| publish(&on, N1, &over));
        let mut parts = Vec::new();
        for turn in 0..holdfast_cluster_tests::cluster::rounds::rounds(6, 60) as usize {
            // One takes what it has and leaves in order or not; it comes back on the next node.
            let now = AtomicBool::new(true);
            let which = turn % 3;
            for (number, slot) in members.iter_mut().enumerate() {
                let (got, client) = member(slot.take().expect("it is there"), &arrived, &now);
                parts.push(got);
                let client = client.expect("nobody throws it out");
                *slot = Some(client);
                if number == which {
                    let client = slot.take().expect("it is there");
                    if turn % 2 == 0 {
                        drop(client)
                    } else {
                        client.reset()
                    }
                    *slot = Some(on.connect_within((number + turn) % 3, &kept(number), NOTICED).0);
                }
            }
            pass(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        let acked = publisher.join().expect("a publisher");
        // They take what is still under way.
        let ends: Vec<_> =
            members.into_iter().flatten().map(|client| scope.spawn(|| member(client, &arrived, &left).0)).collect();
        arrived.wait_for(acked.len());
        left.store(true, Ordering::Relaxed);
        parts.extend(ends.into_iter().map(|end| end.join().expect("a member")));
        (acked, parts)
    });
    all_came_once(&acked, &union(parts));
}

/// While the only member moves, neither of its nodes takes a message. Whoever publishes waits for that, and nothing is dropped.
#[test]
fn field_case_43_while_the_only_member_moves_slowly_nothing_is_lost() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let (leader, followers) = (cluster.wait_for_leader(), cluster.followers());
    let kept = on.kept("m").keep_alive(0);
    let mut client = join(&on, followers[0], &kept);
    let (over, left, arrived) = (AtomicBool::new(false), AtomicBool::new(false), Arrived::default());
    let (acked, parts) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&on, leader, &over));
        let mut parts = Vec::new();
        for round in 1..=2 {
            let part = scope.spawn(|| member(client, &arrived, &left));
            pass(Duration::from_millis(300));
            let wound = cluster.hurt_between(followers[0], followers[1], Fault::delay(Duration::from_millis(400)));
            client = on.connect_within(followers[round % 2], &kept, NOTICED).0;
            wound.heal();
            parts.push(part.join().expect("a member").0);
        }
        let part = scope.spawn(|| member(client, &arrived, &left));
        over.store(true, Ordering::Relaxed);
        let acked = publisher.join().expect("a publisher");
        arrived.wait_for(acked.len());
        left.store(true, Ordering::Relaxed);
        parts.push(part.join().expect("a member").0);
        (acked, parts)
    });
    let got = union(parts);
    let lost: Vec<_> = (0..acked.len() as u64).filter(|number| !got.contains_key(number)).collect();
    assert!(lost.is_empty() && !acked.is_empty(), "of {} are lost: {lost:?}", acked.len());
}

/// A member that is away has five messages, and another one on another node has none.
fn laden(on: &ClusterStage, publisher: usize, home: usize, other: usize) -> Client {
    join(on, home, &on.kept("m")).disconnect();
    let mut publisher = on.v5(publisher, "p");
    (0..5).for_each(|number| assert!(publisher.publish(on.topic("t"), number.to_string(), 1) < 0x80));
    join(on, other, &on.hello(Version::V5, "c").keep_alive(0))
}

/// The first of them is sent to their member; when it leaves, the others go to the other one.
fn give_back(on: &ClusterStage, home: usize) {
    let mut member = on.connect(home, &on.kept("m").number(id::RECEIVE_MAXIMUM, 1)).0;
    assert_eq!(member.recv_publish().text(), "0");
    member.disconnect();
}

#[track_caller]
fn takes(client: &mut Client, wanted: std::ops::Range<u32>) {
    let mut got = taken(client, wanted.len());
    got.sort_unstable();
    got.dedup();
    assert_eq!(got, wanted.collect::<Vec<_>>());
}

/// What comes until there are so many.
fn taken(client: &mut Client, wanted: usize) -> Vec<u32> {
    let (mut got, deadline) = (Vec::new(), Instant::now() + HEALED);
    while got.len() < wanted && Instant::now() < deadline {
        for packet in client.fence() {
            let Packet::Publish(message) = packet else { panic!("{packet:?}") };
            client.acknowledge(&message);
            got.push(message.text().parse::<u32>().expect("a number"));
        }
    }
    got
}

#[test]
fn field_case_43_what_is_given_back_twice_is_not_lost() {
    let on = crate::shared();
    let mut clean = laden(&on, N1, N2, N3);
    give_back(&on, N2);
    (1..5).for_each(|_| drop(clean.recv_publish()));
    clean.disconnect();
    takes(&mut on.connect(N2, &on.kept("m")).0, 0..5);
}

#[test]
fn field_case_43_what_was_given_back_and_not_acknowledged_survives_both_nodes() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let mut clean = laden(&on, N1, N2, N3);
    give_back(&on, N2);
    (1..5).for_each(|_| drop(clean.recv_publish()));
    // Its node has accepted them long since.
    pass(Duration::from_millis(300));
    cluster.kill([N2, N3]);
    cluster.start([N2, N3]);
    takes(&mut on.connect_within(N2, &on.kept("m"), HEALED).0, 0..5);
}

/// The process that keeps what a member without a disk has not acknowledged starts anew, and knows nothing of it.
#[test]
fn field_case_43_what_a_member_leaves_behind_goes_to_others_when_its_origin_has_started_anew() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    join(&on, N3, &on.kept("m")).disconnect();
    let mut clean = join(&on, N2, &on.hello(Version::V5, "c").keep_alive(0));
    let mut publisher = on.v5(N1, "p");
    (0..5).for_each(|number| assert!(publisher.publish(on.topic("t"), number.to_string(), 1) < 0x80));
    (0..5).for_each(|_| drop(clean.recv_publish()));
    cluster.kill([N1]);
    cluster.start([N1]);
    cluster.whole_within(HEALED);
    clean.disconnect();
    takes(&mut on.connect(N3, &on.kept("m")).0, 0..5);
}

#[test]
fn field_case_43_what_was_given_back_outlives_its_session() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let (leader, followers) = (cluster.wait_for_leader(), cluster.followers());
    let (home, other) = (followers[0], followers[1]);
    let mut clean = laden(&on, leader, home, other);
    let wound = cluster.hurt_between(home, other, Fault::refuse());
    give_back(&on, home);
    let mut member = on.connect(home, &on.kept("m")).0;
    assert_eq!(member.take().text(), "0");
    member.disconnect();
    on.v5(home, "m").disconnect();
    // What is still on its way is on the disk of its node alone.
    pass(Duration::from_millis(300));
    clean.expect_quiet();
    cluster.kill([home]);
    wound.heal();
    cluster.start([home]);
    takes(&mut clean, 1..5);
}

/// The others have a member too, and this node knows of it, but it may give nothing to anybody.
#[test]
fn field_case_43_a_node_that_is_given_up_keeps_what_its_members_have() {
    let cluster = Cluster::three();
    let on = ClusterStage::new(&cluster);
    let (leader, followers) = (cluster.wait_for_leader(), cluster.followers());
    let (home, other) = (followers[0], followers[1]);
    let mut clean = laden(&on, leader, home, other);
    let mut member = on.connect(home, &on.kept("m").number(id::RECEIVE_MAXIMUM, 1).keep_alive(0)).0;
    assert_eq!(member.recv_publish().text(), "0");
    let wound = cluster.isolate(home, Fault::swallow());
    cluster.agree_within([leader, other], HEALED);
    wound.heal();
    cluster.whole_within(HEALED);
    drop(member);
    takes(&mut on.connect_within(home, &on.kept("m"), HEALED).0, 0..5);
    clean.expect_quiet();
}
