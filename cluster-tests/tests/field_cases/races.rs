//! Races between two connections, or two publishers, of which the broker serves each on a thread of its own.

use std::collections::BTreeSet;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::wire::{Message, Publish, Version, Will, disconnect, id};

use crate::{got_before_marker, tcp, texts};

/// The client said DISCONNECT before it connected anew: its Will is not published, whichever socket is read first, and what it had
/// published before is not lost.
#[test]
fn a_disconnect_that_came_first_is_heard_before_the_next_connection_takes_over() {
    let on = tcp();
    let mut watcher = on.v5("w");
    watcher.subscribe(on.topic("#"), 0);
    let connect = on.hello(Version::V5, "d").will(Will::new(on.topic("will"), "offline"));
    for round in 0..200 {
        let (mut client, _) = on.connect(&connect);
        let publish = Publish::new(on.topic("t"), round.to_string());
        client.send_publish(&publish);
        client.send(&disconnect());
        let (again, _) = on.connect(&connect);
        again.disconnect();
    }
    let got = texts(&got_before_marker(&mut on.v5("p"), &mut watcher, &on.topic("marker")));
    let expected: Vec<String> = (0..200).map(|round| round.to_string()).collect();
    assert_eq!(got, expected);
}

/// Publishers on different shards: the value that every subscriber saw last is the one that is stored.
#[test]
fn the_last_live_value_of_a_retained_topic_is_the_stored_one() {
    let on = tcp();
    let topic = on.topic("value");
    let mut subscribers: Vec<Client> = (0..4).map(|n| on.v5(&format!("s{n}"))).collect();
    subscribers.iter_mut().for_each(|client| _ = client.subscribe(&topic, 0));
    let mut publishers: Vec<Client> = (0..4).map(|n| on.v5(&format!("p{n}"))).collect();
    let mut reader = on.v5("reader");
    for round in 0..300 {
        let publish = |n: usize| Publish::new(&topic, format!("{round}/{n}")).retained();
        publishers.iter_mut().enumerate().for_each(|(n, client)| client.send_publish(&publish(n)));
        let last: BTreeSet<String> = subscribers
            .iter_mut()
            .map(|client| (0..4).map(|_| client.take().text()).last().expect("four values"))
            .collect();
        reader.subscribe(&topic, 0);
        assert_eq!(last, BTreeSet::from([reader.take().text()]), "round {round}");
        reader.unsubscribe(&topic);
    }
}

/// The subscription was acknowledged, so its retained messages come, over as many connections as that takes.
#[test]
fn a_replay_that_the_connection_did_not_survive_goes_on_with_the_session() {
    let on = tcp();
    let mut publisher = on.v5("p");
    (0..300).for_each(|n| _ = publisher.publish_retained(on.topic(&format!("r/{n}")), n.to_string(), 1));
    let hello = on.hello(Version::V5, "s").durable(3_600).number(id::RECEIVE_MAXIMUM, 10);
    let mut got = BTreeSet::new();
    let mut subscribed = false;
    while got.len() < 300 {
        let (mut client, ack) = on.connect(&hello);
        assert_eq!(ack.session_present, subscribed);
        if !subscribed {
            client.subscribe(on.topic("r/#"), 1);
            subscribed = true;
        }
        for _ in 0..(300 - got.len()).min(40) {
            got.insert(client.take().text());
        }
        client.reset();
    }
}

/// [MQTT-3.10.4-3]: what was sent to a member before it unsubscribed is its own to acknowledge.
#[test]
fn a_member_that_unsubscribes_keeps_what_it_was_sent() {
    let on = tcp();
    let mut leaving = on.v5("leaving");
    leaving.subscribe(on.share("t"), 1);
    let mut publisher = on.v5("p");
    (0..20).for_each(|n| _ = publisher.publish(on.topic("t"), n.to_string(), 1));
    let sent: Vec<Message> = (0..20).map(|_| leaving.recv_publish()).collect();
    let mut staying = on.v5("staying");
    staying.subscribe(on.share("t"), 1);
    staying.subscribe(on.topic("marker"), 0);
    leaving.unsubscribe(on.share("t"));
    sent.iter().for_each(|message| leaving.acknowledge(message));
    leaving.fence();
    let got = got_before_marker(&mut publisher, &mut staying, &on.topic("marker"));
    assert!(got.is_empty(), "{:?}", texts(&got));
}

/// Publishers that wait for a shard which has fallen behind are read again, however often that happens in a row.
#[test]
fn publishers_that_were_held_back_are_all_heard_in_the_end() {
    let on = tcp();
    let mut subscribers: Vec<Client> = (0..4).map(|n| on.v5(&format!("s{n}"))).collect();
    subscribers.iter_mut().for_each(|client| _ = client.subscribe(on.topic("ended"), 1));
    let flood: Vec<u8> = (0..1_000).flat_map(|_| Publish::new(on.topic("flood"), "x").bytes(Version::V5)).collect();
    // Sessions that nobody reads take the flood: it fills mailboxes, not sockets.
    for n in 0..8 {
        let (mut away, _) = on.connect(&on.hello(Version::V5, &format!("away{n}")).durable(60));
        away.subscribe(on.topic("flood"), 0);
        away.disconnect();
    }
    std::thread::scope(|scope| {
        for publisher in 0..16 {
            let (on, flood) = (&on, &flood);
            scope.spawn(move || {
                let mut client = on.v5(&format!("p{publisher}"));
                for _ in 0..3 {
                    (0..5).for_each(|_| client.send(flood));
                    client.fence();
                }
                client.publish(on.topic("ended"), publisher.to_string(), 1);
            });
        }
    });
    for client in &mut subscribers {
        let ended: BTreeSet<String> = (0..16).map(|_| client.take().text()).collect();
        assert_eq!(ended.len(), 16);
    }
}
