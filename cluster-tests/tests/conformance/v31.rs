//! MQTT 3.1 (`MQIsdp`): no conformance statements of its own; what a client of that version relies on.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Version, Will, first};

over_tcp_and_websocket! {
    mqtt31_a_client_connects_publishes_and_subscribes,
    mqtt31_a_session_is_kept_and_resumed,
    mqtt31_session_present_is_not_in_connack,
    mqtt31_the_will_is_published,
    mqtt31_takeover_closes_the_existing_client,
    mqtt31_the_name_and_level_must_fit,
}

fn mqtt31_a_client_connects_publishes_and_subscribes(on: &Stage) {
    let mut client = on.client(Version::V31, "c");
    for qos in 0..3 {
        assert_eq!(client.subscribe(on.topic("t"), qos), qos);
        client.publish(on.topic("t"), "x", 2);
        let message = client.take();
        assert_eq!((message.text().as_str(), message.qos), ("x", qos));
    }
    client.unsubscribe(on.topic("t"));
    client.publish(on.topic("t"), "x", 1);
    client.expect_quiet();
    client.disconnect();
}

fn mqtt31_a_session_is_kept_and_resumed(on: &Stage) {
    let hello = on.hello(Version::V31, "c").clean(false);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(on.topic("t"), 2);
    client.disconnect();
    let mut publisher = on.v5("p");
    publisher.publish(on.topic("t"), "queued", 1);
    let (mut client, _) = on.connect(&hello);
    let message = client.recv_publish();
    assert_eq!(message.text(), "queued");
    client.reset();
    let (mut client, _) = on.connect(&hello);
    let repeat = client.recv_publish();
    assert_eq!((repeat.packet_id, repeat.dup), (message.packet_id, true));
    client.send_ack(first::PUBACK, repeat.packet_id);
    client.disconnect();
    let (client, _) = on.connect(&hello.clean(true));
    client.disconnect();
}

fn mqtt31_session_present_is_not_in_connack(on: &Stage) {
    // The byte was reserved in 3.1.
    let hello = on.hello(Version::V31, "c").clean(false);
    for _ in 0..2 {
        let (client, ack) = on.connect(&hello);
        assert!(!ack.session_present);
        client.disconnect();
    }
    let (client, _) = on.connect(&hello.clean(true));
    client.disconnect();
}

fn mqtt31_the_will_is_published(on: &Stage) {
    let mut watcher = on.v5("w");
    watcher.subscribe(on.topic("will"), 1);
    let (client, _) = on.connect(&on.hello(Version::V31, "c").will(Will::new(on.topic("will"), "gone").qos(1)));
    client.reset();
    assert_eq!(watcher.take().text(), "gone");
    let (client, _) = on.connect(&on.hello(Version::V31, "c").will(Will::new(on.topic("will"), "gone").qos(1)));
    client.disconnect();
    watcher.publish(on.topic("will"), "marker", 1);
    assert!(watcher.take_until("marker").is_empty());
}

fn mqtt31_takeover_closes_the_existing_client(on: &Stage) {
    let mut old = on.client(Version::V31, "c");
    let mut new = on.client(Version::V31, "c");
    old.expect_close();
    new.expect_quiet();
}

fn mqtt31_the_name_and_level_must_fit(on: &Stage) {
    // MQIsdp with 4 or 5, MQTT with 3: refused, or (for MQTT 3) taken for what the level says.
    for (version, level) in [(Version::V31, 4), (Version::V31, 5)] {
        let mut connect = on.hello(version, "c");
        connect.level = level;
        let mut client = on.open(version);
        client.send(&connect.bytes());
        let packets = client.until_closed();
        assert!(!matches!(packets.as_slice(), [Packet::ConnAck(ack), ..] if ack.reason == 0), "{packets:?}");
    }
}
