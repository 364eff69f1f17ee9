//! Every bound that one client could run into, and that what it does there harms nobody else: what a README that promises bounded memory has to show.

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{Subscribe, Version, Will, id, reason};

use crate::{got_before_marker, start, texts};

#[test]
fn a_full_retained_store_refuses_where_it_can_and_delivers_live_where_it_cannot() {
    let broker = start(Setup::new().mqtt("retained_max_messages = 2").section("[sys]\ninterval = \"1s\""));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut subscriber = on.v5("s");
    subscriber.subscribe(on.topic("#"), 1);
    let (mut v5, mut v311) = (on.v5("p"), on.v311("q"));
    for topic in ["1", "2"] {
        assert!(v5.publish_retained(on.topic(topic), topic, 1) < 0x80);
    }
    assert_eq!(v5.publish_retained(on.topic("3"), "refused", 1), reason::QUOTA_EXCEEDED);
    v311.publish_retained(on.topic("4"), "live", 1);
    assert!(v5.publish_retained(on.topic("1"), "new value", 1) < 0x80, "a topic that is there is replaced");
    let got = got_before_marker(&mut v5, &mut subscriber, &on.topic("marker"));
    assert_eq!(texts(&got), ["1", "2", "live", "new value"]);
    let mut late = on.v5("l");
    late.subscribe(on.topic("#"), 1);
    let mut retained = texts(&got_before_marker(&mut v5, &mut late, &on.topic("marker")));
    retained.sort();
    assert_eq!(retained, ["2", "new value"]);
    // What was dropped is counted, and the server's own topics are there although the store is full.
    let mut watcher = on.v5("w");
    watcher.subscribe("$SYS/broker/publish/messages/dropped/retained_full", 0);
    while watcher.take().text() != "2" {}
}

#[test]
fn retained_messages_are_bounded_in_bytes() {
    let broker = start(Setup::new().mqtt("retained_max_bytes = 2000"));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut publisher = on.v5("p");
    assert!(publisher.publish_retained(on.topic("1"), "x".repeat(1_000), 1) < 0x80);
    assert_eq!(publisher.publish_retained(on.topic("2"), "x".repeat(1_000), 1), reason::QUOTA_EXCEEDED);
    publisher.publish_retained(on.topic("1"), "", 1);
    assert!(publisher.publish_retained(on.topic("2"), "x".repeat(1_000), 1) < 0x80, "there is room again");
}

#[test]
fn subscriptions_are_bounded_in_number_and_in_bytes() {
    let broker = start(Setup::new().mqtt("max_subscriptions = 3"));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut client = on.v5("c");
    let subscribe = ["1", "2", "3", "4"].iter().fold(Subscribe::new(1), |all, name| all.filter(on.topic(name), 1));
    assert_eq!(client.send_subscribe(&subscribe), [1, 1, 1, reason::QUOTA_EXCEEDED]);
    assert_eq!(client.subscribe(on.topic("2"), 0), 0, "one that is there is replaced");
    client.unsubscribe(on.topic("1"));
    assert_eq!(client.subscribe(on.topic("4"), 1), 1, "there is room again");
    let long = |n: usize| format!("{n}/{}", "x".repeat(60_000));
    let broker = start(Setup::new());
    let mut client = Stage::new(&broker, Transport::Tcp).v5("c");
    let refused = (0..100).map(|n| client.subscribe(long(n), 0)).filter(|code| *code == reason::QUOTA_EXCEEDED).count();
    assert!((20..60).contains(&refused), "{refused} of 100 filters of 60 KB were refused");
}

#[test]
fn a_packet_with_very_many_filters_ends_its_connection() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let subscribe = (0..20_000).fold(Subscribe::new(1), |all, _| all.filter("a", 0));
    let mut client = on.v5("c");
    client.send(&subscribe.bytes(Version::V5));
    client.expect_disconnect(&[reason::QUOTA_EXCEEDED]);
}

#[test]
fn a_will_that_is_too_large_is_refused_with_its_connect() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let connect = on.hello(Version::V5, "c").will(Will::new(on.topic("w"), "x".repeat(20_000)));
    let mut client = on.open(Version::V5);
    assert_eq!(client.handshake(&connect).reason, reason::PACKET_TOO_LARGE);
    client.expect_close();
    let connect = on.hello(Version::V5, "c").will(Will::new(on.topic("w"), "x".repeat(10_000)));
    assert_eq!(on.open(Version::V5).handshake(&connect).reason, 0);
}

#[test]
fn an_acknowledgement_that_the_client_cannot_take_is_left_out() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let mut client = on.open(Version::V5);
    client.handshake(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, 30));
    let subscribe = (0..60).fold(Subscribe::new(1), |all, n| all.filter(n.to_string(), 0));
    client.send(&subscribe.bytes(Version::V5));
    assert!(client.fence().is_empty(), "a SUBACK of 65 bytes was sent to a client that takes 30");
    on.v5("p").publish("7", "x", 0);
    assert_eq!(client.take().text(), "x", "the subscriptions hold all the same");
}

/// Field case 20 on one node: the subscriber and the publishers are on different shards.
#[test]
fn field_case_20_no_older_value_follows_a_newer_one_and_the_last_is_never_missed() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let topic = on.topic("value");
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            let mut publisher = on.v5("publisher");
            for value in 0..3_000 {
                publisher.publish_retained(&topic, value.to_string(), 1);
            }
            publisher.publish_retained(&topic, "last", 1);
        });
        for subscriber in 0..4 {
            let (topic, on) = (&topic, &on);
            scope.spawn(move || {
                for round in 0.. {
                    let mut client = on.v5(&format!("s{subscriber}-{}", round % 7));
                    client.subscribe(topic, 0);
                    let values: Vec<String> =
                        (0..5).map(|_| client.take().text()).take_while(|value| value != "last").collect();
                    let numbers: Vec<u32> = values.iter().map(|value| value.parse().expect("a number")).collect();
                    assert!(numbers.is_sorted(), "an older value after a newer one: {numbers:?}");
                    if numbers.len() < 5 {
                        return;
                    }
                }
            });
        }
        publisher.join().expect("the publisher ends");
    });
}
