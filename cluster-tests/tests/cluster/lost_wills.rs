//! The home of a client is destroyed while it publishes the client's Will, or killed and started again at once, so that it is published once more: it comes to every session, those of the
//! destroyed node too, and once.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{Cluster, ClusterSetup, ClusterStage};
use holdfast_cluster_tests::scene::pass;
use holdfast_cluster_tests::wire::{Publish, Version, Will};

use crate::HEALED;
use crate::copies::{LONG, goes_to, home_and_others, start_copied};

/// Until these nodes have published so many Wills.
#[track_caller]
fn published_within(cluster: &Cluster, nodes: &[usize], count: f64) {
    let deadline = Instant::now() + HEALED;
    let published = |node: &usize| cluster.node(*node).metric("holdfast_wills_published_total", &[]).unwrap_or(0.0);
    while nodes.iter().map(published).sum::<f64>() < count {
        assert!(Instant::now() < deadline, "no Will on {nodes:?}");
        pass(Duration::from_millis(20));
    }
}

/// A client on a node with a Will.
fn with_will(on: &ClusterStage, node: usize) -> Client {
    let will = Will::new(on.topic("w/d"), "gone").qos(2);
    on.connect(node, &on.hello(Version::V5, "d").keep_alive(0).will(will)).0
}

/// What comes to a client on a topic up to now.
fn texts(on: &ClusterStage, node: usize, client: &mut Client) -> Vec<String> {
    on.v5(node, "end").publish(on.topic("w/end"), "end", 1);
    client.take_until("end").iter().map(|message| message.text()).collect()
}

/// Nobody else has subscribed: the heirs of the home know of the Will from the copies of the sessions alone, and these are told that it is not done.
#[test]
fn sessions_that_had_a_will_on_the_node_that_is_lost_do_not_get_it_again() {
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, a, b] = home_and_others(&cluster);
        let on = ClusterStage::new(&cluster);
        let sessions: Vec<_> = (0..8_u8).map(|number| (format!("s{number}"), 1 + number % 2)).collect();
        for (name, qos) in &sessions {
            let (mut client, _) = on.connect(home, &on.kept(name));
            assert_eq!(client.subscribe(on.topic("w/+"), *qos), *qos);
            client.disconnect();
        }
        let client = with_will(&on, home);
        cluster.copied_within(&[0, 1, 2], HEALED);
        let wound = cluster.hurt(&[(home, a), (home, b)], Fault::delay(LONG).back());
        client.reset();
        published_within(&cluster, &[home], 1.0);
        pass(Duration::from_millis(200));
        cluster.node(home).kill();
        cluster.node(home).wipe();
        wound.heal();
        published_within(&cluster, &[a, b], 1.0);
        for (number, (name, qos)) in sessions.iter().enumerate() {
            let (mut client, ack) = on.connect_within([a, b][number % 2], &on.kept(name), HEALED);
            assert!(ack.session_present, "{name}");
            assert_eq!(texts(&on, b, &mut client), ["gone"], "{name} with QoS {qos}");
            client.disconnect();
        }
    }
}

/// A kept session on `home` whose heir is `heir`, alone there.
fn session_with_heir(on: &ClusterStage, home: usize, heir: usize) -> (String, Client) {
    for number in 0..64 {
        let name = format!("s{number}");
        let (mut client, _) = on.connect(home, &on.kept(&name).keep_alive(0));
        assert_eq!(client.subscribe(on.topic("w/+"), 2), 2);
        let is_copied = goes_to(on, (home, heir), "w/large");
        client.take();
        if is_copied {
            return (name, client);
        }
        client.disconnect();
        on.connect(home, &on.hello(Version::V5, &name).clean(true)).0.disconnect();
    }
    panic!("none of 64 sessions has that heir");
}

/// The heirs have got the Will for subscribers of their own, but not the copy of a session: its client has been sent the Will, and has not read it when the node goes.
#[test]
fn a_session_whose_copy_has_no_will_gets_it_although_its_heir_has_had_it() {
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, a, b] = home_and_others(&cluster);
        let on = ClusterStage::new(&cluster);
        let mut watchers = [a, b].map(|node| on.watcher(node, &format!("watcher{node}"), "w/d"));
        let (mut session, _) = on.connect(home, &on.kept("s").keep_alive(0));
        assert_eq!(session.subscribe(on.topic("w/+"), 1), 1);
        let client = with_will(&on, home);
        let wound = cluster.hurt(&[(home, a), (home, b)], Fault::delay(LONG).back());
        // What was sent and may be acknowledged at any moment is held back while the heir has not accepted what it was sent before.
        let mut publisher = on.v5(home, "publisher");
        publisher.send_publish(&Publish::new(on.topic("w/first"), "first").qos(1, 1));
        assert_eq!(session.recv_publish().text(), "first");
        pass(Duration::from_millis(200));
        client.reset();
        watchers.iter_mut().for_each(|watcher| assert_eq!(watcher.take().text(), "gone"));
        cluster.node(home).kill();
        cluster.node(home).wipe();
        wound.heal();
        published_within(&cluster, &[a, b], 1.0);
        let (mut session, ack) = on.connect_within(a, &on.kept("s"), HEALED);
        assert!(ack.session_present);
        assert_eq!(texts(&on, b, &mut session), ["first", "gone"]);
        watchers.iter_mut().for_each(Client::expect_quiet);
    }
}

/// It is acknowledged to the end and in no queue any more; but the answer of the third node, which has a subscriber, is not there.
#[test]
fn a_session_that_has_acknowledged_a_will_on_the_node_that_is_lost_does_not_get_it_again() {
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, heir, other] = home_and_others(&cluster);
        let on = ClusterStage::new(&cluster);
        let (name, mut session) = session_with_heir(&on, home, heir);
        let mut watcher = on.watcher(other, "watcher", "w/+");
        let client = with_will(&on, home);
        let wound = cluster.hurt(&[(home, other)], Fault::delay(LONG).back());
        client.reset();
        assert_eq!(session.take().text(), "gone");
        session.expect_quiet();
        assert_eq!(watcher.take().text(), "gone");
        pass(Duration::from_millis(100));
        cluster.node(home).kill();
        cluster.node(home).wipe();
        wound.heal();
        published_within(&cluster, &[heir, other], 1.0);
        let (mut session, ack) = on.connect_within(heir, &on.kept(&name), HEALED);
        assert!(ack.session_present);
        assert!(texts(&on, other, &mut session).is_empty(), "it has acknowledged it");
        assert!(texts(&on, heir, &mut watcher).iter().all(|text| text == "end"));
    }
}

/// Its client goes on to a third node, while one that perhaps is to publish the Will once more does not know yet that all others know of the death.
#[test]
fn a_session_that_moves_on_at_once_does_not_get_the_will_again() {
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(4));
        // All three that are left are needed for a majority, so the slow way is not that of the leader.
        let heir = cluster.wait_for_leader();
        let [home, late, next] = [1, 2, 3].map(|far| (heir + far) % 4);
        let on = ClusterStage::new(&cluster);
        let (name, session) = session_with_heir(&on, home, heir);
        session.disconnect();
        let client = with_will(&on, home);
        cluster.copied_within(&cluster.all().collect::<Vec<_>>(), HEALED);
        let wound = cluster.hurt(&[(home, heir), (home, late), (home, next)], Fault::delay(LONG).back());
        client.reset();
        published_within(&cluster, &[home], 1.0);
        pass(Duration::from_millis(200));
        cluster.node(home).kill();
        cluster.node(home).wipe();
        wound.heal();
        let slow = cluster.hurt(&[(next, late)], Fault::delay(LONG).there());
        let (mut session, ack) = on.connect_within(next, &on.kept(&name), HEALED);
        assert!(ack.session_present);
        slow.heal();
        published_within(&cluster, &[heir, late, next], 1.0);
        assert_eq!(texts(&on, heir, &mut session), ["gone"]);
    }
}

/// They have nothing in memory of what they had, and no other node has inherited anything: the node of the client publishes its Will once more, to sessions that have it in their queues, that
/// have acknowledged it, and that had it on the node which publishes it.
#[test]
fn sessions_get_a_will_once_although_their_nodes_are_killed_and_start_again_at_once() {
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3));
        let [home, near, far] = home_and_others(&cluster);
        let on = ClusterStage::new(&cluster);
        let kept = |name: &str, node, qos| {
            let (mut client, _) = on.connect(node, &on.kept(name).keep_alive(0));
            assert_eq!(client.subscribe(on.topic("w/+"), qos), qos);
            client
        };
        let away = [("h1", home, 1), ("h2", home, 2), ("n1", near, 1), ("n2", near, 2)];
        away.iter().for_each(|(name, node, qos)| kept(name, *node, *qos).disconnect());
        // What is QoS 2 would wait for the heirs.
        let mut here = [("hh", home), ("nn", near)].map(|(name, node)| (name, node, kept(name, node, 1)));
        let mut watcher = on.watcher(far, "watcher", "w/d");
        let client = with_will(&on, home);
        cluster.copied_within(&[0, 1, 2], HEALED);
        let wound = cluster.hurt(&[(home, far)], Fault::delay(LONG).back());
        client.reset();
        assert_eq!(watcher.take().text(), "gone");
        here.iter_mut().for_each(|(_, _, client)| assert_eq!(client.take().text(), "gone"));
        pass(Duration::from_millis(200));
        cluster.kill([home, near]);
        wound.heal();
        cluster.start([home, near]);
        published_within(&cluster, &[home, near, far], 1.0);
        cluster.whole_within(HEALED);
        for (name, node, _) in away {
            let (mut client, ack) = on.connect_within(node, &on.kept(name), HEALED);
            assert!(ack.session_present, "{name}");
            assert_eq!(texts(&on, far, &mut client), ["gone"], "{name}");
            client.disconnect();
        }
        for (name, node, _) in here {
            let (mut client, ack) = on.connect_within(node, &on.kept(name), HEALED);
            assert!(ack.session_present, "{name}");
            on.v5(far, "end").publish(on.topic("w/end"), "end", 1);
            // That it was acknowledged may not have been on the disk yet.
            let again = client.take_until("end").into_iter().filter(|message| !message.dup);
            assert_eq!(again.map(|message| message.text()).collect::<Vec<_>>(), [""; 0], "{name} has had it");
        }
        watcher.expect_quiet();
    }
}
