//! Section 4.9 and the Receive Maximum of 3.3.4: flow control.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Ack, Packet, Publish, Subscribe, Unsubscribe, Version, first, id, reason};

over_tcp_and_websocket! {
    mqtt_3_3_4_7_a_client_that_exceeds_the_receive_maximum_is_disconnected,
    mqtt_3_3_4_9_the_server_stays_within_the_receive_maximum,
    mqtt_3_3_4_10_other_packets_are_not_delayed,
    mqtt_4_9_0_1_the_quota_begins_at_the_receive_maximum,
    mqtt_4_9_0_1_the_quota_is_fresh_on_each_connection,
    mqtt_4_9_0_2_at_quota_0_no_publish_is_sent,
    mqtt_4_9_0_2_a_refusing_pubrec_gives_the_quota_back,
    mqtt_4_9_0_3_at_quota_0_all_else_is_answered,
}

fn mqtt_3_3_4_7_a_client_that_exceeds_the_receive_maximum_is_disconnected(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    let maximum = ack.properties.get_number(id::RECEIVE_MAXIMUM).unwrap_or(65_535);
    if maximum > 1_000 {
        return;
    }
    // QoS 2 stays open until PUBREL, so exactly `maximum` are allowed; the PUBRECs come.
    let bytes = |range: std::ops::RangeInclusive<u16>| -> Vec<u8> {
        range.flat_map(|packet_id| Publish::new(on.topic("t"), "x").qos(2, packet_id).bytes(Version::V5)).collect()
    };
    let maximum = maximum as u16;
    client.send(&bytes(1..=maximum));
    for packet_id in 1..=maximum {
        client.wait_pubrec(packet_id);
    }
    client.expect_quiet();
    // A repeat counts for nothing new.
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, 1).dup());
    client.wait_pubrec(1);
    client.send(&bytes(maximum + 1..=maximum + 1));
    client.expect_disconnect(&[reason::RECEIVE_MAXIMUM_EXCEEDED]);
}

/// A client with a Receive Maximum, subscribed with QoS 2, and ten messages published to it at QoS 1 and 2 in turn.
fn with_ten_waiting(on: &Stage, receive_maximum: u32) -> holdfast_cluster_tests::client::Client {
    let hello = on.hello(Version::V5, "c").durable(300).number(id::RECEIVE_MAXIMUM, receive_maximum);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(on.topic("t"), 2);
    let mut publisher = on.v5("p");
    for number in 0..10 {
        publisher.publish(on.topic("t"), number.to_string(), 1 + number % 2);
    }
    client
}

fn mqtt_3_3_4_9_the_server_stays_within_the_receive_maximum(on: &Stage) {
    let mut client = with_ten_waiting(on, 3);
    let mut open: Vec<_> = (0..3).map(|_| client.recv_publish()).collect();
    client.expect_quiet();
    for next in 3..10 {
        let message = open.remove(0);
        client.acknowledge(&message);
        let message = client.recv_publish();
        assert_eq!(message.text(), next.to_string());
        open.push(message);
        client.expect_quiet();
    }
}

fn mqtt_3_3_4_10_other_packets_are_not_delayed(on: &Stage) {
    let mut client = with_ten_waiting(on, 1);
    let message = client.recv_publish();
    client.send_ack(first::PUBACK, message.packet_id);
    let message = client.recv_publish();
    assert_eq!(message.qos, 2);
    // The quota is used up; PUBREL, SUBACK and PINGRESP come.
    client.send_ack(first::PUBREC, message.packet_id);
    assert_eq!(client.wait_pubrel(message.packet_id), 0);
    assert_eq!(client.subscribe(on.topic("u"), 1), 1);
    client.expect_quiet();
}

fn mqtt_4_9_0_1_the_quota_begins_at_the_receive_maximum(on: &Stage) {
    for maximum in [1, 5] {
        let mut client = with_ten_waiting(on, maximum);
        for _ in 0..maximum {
            client.recv_publish();
        }
        client.expect_quiet();
        let (client, _) = on.connect(&on.hello(Version::V5, "c"));
        client.disconnect();
    }
    // Without the property it is 65,535, so the server's own limit counts; ten are no problem.
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c"));
    client.subscribe(on.topic("t"), 1);
    let mut publisher = on.v5("p");
    for _ in 0..10 {
        publisher.publish(on.topic("t"), "x", 1);
    }
    for _ in 0..10 {
        client.recv_publish();
    }
}

fn mqtt_4_9_0_1_the_quota_is_fresh_on_each_connection(on: &Stage) {
    let mut client = with_ten_waiting(on, 2);
    client.recv_publish();
    client.recv_publish();
    client.reset();
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").durable(300).number(id::RECEIVE_MAXIMUM, 10));
    assert!(ack.session_present);
    let got: Vec<_> = (0..10).map(|_| client.recv_publish()).map(|message| (message.text(), message.dup)).collect();
    let expected: Vec<_> = (0..10).map(|number| (number.to_string(), number < 2)).collect();
    assert_eq!(got, expected);
}

fn mqtt_4_9_0_2_at_quota_0_no_publish_is_sent(on: &Stage) {
    let mut client = with_ten_waiting(on, 1);
    let first_one = client.recv_publish();
    // QoS 0 has no part in the quota.
    on.v5("q").publish(on.topic("t"), "qos 0", 0);
    for packet in client.fence() {
        assert!(matches!(&packet, Packet::Publish(message) if message.qos == 0), "{packet:?}");
    }
    // Half of a QoS 2 delivery gives nothing back.
    client.acknowledge(&first_one);
    let message = client.wait_for("PUBLISH", |packet| matches!(packet, Packet::Publish(message) if message.qos == 2));
    let Packet::Publish(message) = message else { unreachable!("waited for it") };
    client.send_ack(first::PUBREC, message.packet_id);
    client.wait_pubrel(message.packet_id);
    for packet in client.fence() {
        assert!(matches!(&packet, Packet::Publish(message) if message.qos == 0), "{packet:?}");
    }
    client.send_ack(first::PUBCOMP, message.packet_id);
    client.wait_for("PUBLISH", |packet| matches!(packet, Packet::Publish(message) if message.text() == "2"));
}

fn mqtt_4_9_0_2_a_refusing_pubrec_gives_the_quota_back(on: &Stage) {
    let mut client = with_ten_waiting(on, 1);
    for number in 0..10 {
        let message = client.recv_publish();
        assert_eq!(message.text(), number.to_string());
        let first_byte = if message.qos == 1 { first::PUBACK } else { first::PUBREC };
        client.send(&Ack::new(first_byte, message.packet_id).reason(0x80).bytes());
    }
    client.expect_quiet();
}

fn mqtt_4_9_0_3_at_quota_0_all_else_is_answered(on: &Stage) {
    let mut client = with_ten_waiting(on, 1);
    client.recv_publish();
    client.send(&Subscribe::new(100).filter(on.topic("u"), 0).bytes(Version::V5));
    client.send(&Unsubscribe::new(101).filter(on.topic("u")).bytes(Version::V5));
    client.send_publish(&Publish::new(on.topic("v"), "x").qos(1, 102));
    client.send_publish(&Publish::new(on.topic("v"), "x").qos(2, 103));
    client.send_ack(first::PUBREL, 103);
    // A SUBACK may wait for more than the others, so their order is open.
    let mut ids: Vec<_> = (0..5)
        .map(|_| match client.recv() {
            Packet::SubAck { packet_id, .. }
            | Packet::UnsubAck { packet_id, .. }
            | Packet::PubAck { packet_id, .. }
            | Packet::PubRec { packet_id, .. } => packet_id,
            Packet::PubComp { packet_id, .. } => packet_id + 1,
            other => panic!("{other:?}"),
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [100, 101, 102, 103, 104]);
    client.expect_quiet();
}
