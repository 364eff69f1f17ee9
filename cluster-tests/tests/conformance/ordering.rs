//! Sections 4.5 and 4.6: message receipt and ordering.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Publish, Version, first};

over_tcp_and_websocket! {
    mqtt_4_5_0_1_an_accepted_message_is_in_each_matching_session,
    mqtt_4_6_0_1_what_is_sent_again_is_in_the_original_order,
    mqtt_4_6_0_2_pubacks_are_in_order,
    mqtt_4_6_0_3_pubrecs_are_in_order,
    mqtt_4_6_0_4_pubrels_are_in_order,
    mqtt_4_6_0_5_messages_of_a_client_stay_in_order,
    mqtt_4_6_0_6_every_topic_is_ordered,
}

fn mqtt_4_5_0_1_an_accepted_message_is_in_each_matching_session(on: &Stage) {
    // Live and away, exact and by wildcard, of each QoS.
    let topic = on.topic("a/b");
    let filters = ["a/b", "a/+", "+/b", "#", "a/#", "a/b/#"];
    for (number, filter) in filters.iter().enumerate() {
        let (mut away, _) = on.connect(&on.hello(Version::V5, &format!("away{number}")).durable(300));
        away.subscribe(on.topic(filter), 1);
        away.disconnect();
    }
    let mut live: Vec<_> = filters
        .iter()
        .enumerate()
        .map(|(number, filter)| {
            let mut client = on.v5(&format!("live{number}"));
            client.subscribe(on.topic(filter), number as u8 % 3);
            client
        })
        .collect();
    on.v5("p").publish(&topic, "x", 1);
    for client in &mut live {
        assert_eq!(client.take().text(), "x");
    }
    for number in 0..filters.len() {
        let (mut back, _) = on.connect(&on.hello(Version::V5, &format!("away{number}")).durable(0));
        assert_eq!(back.take().text(), "x");
    }
}

fn mqtt_4_6_0_1_what_is_sent_again_is_in_the_original_order(on: &Stage) {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    for number in 0..30 {
        publisher.publish(&topic, number.to_string(), 1 + number % 2);
    }
    let first_time: Vec<_> =
        (0..30).map(|_| client.recv_publish()).map(|message| (message.packet_id, message.text())).collect();
    for _ in 0..2 {
        client.reset();
        client = on.connect(&hello).0;
        let again: Vec<_> =
            (0..30).map(|_| client.recv_publish()).map(|message| (message.packet_id, message.text())).collect();
        assert_eq!(again, first_time);
    }
}

/// Sends `count` publishes of a QoS in one write.
fn burst(on: &Stage, qos: u8, count: u16) -> holdfast_cluster_tests::client::Client {
    let mut client = on.v5("c");
    let publishes: Vec<_> = (1..=count)
        .flat_map(|packet_id| Publish::new(on.topic("t"), "x").qos(qos, packet_id).bytes(Version::V5))
        .collect();
    client.send(&publishes);
    client
}

fn mqtt_4_6_0_2_pubacks_are_in_order(on: &Stage) {
    let mut client = burst(on, 1, 20);
    for expected in 1..=20 {
        assert!(matches!(client.recv(), Packet::PubAck { packet_id, .. } if packet_id == expected));
    }
}

fn mqtt_4_6_0_3_pubrecs_are_in_order(on: &Stage) {
    let mut client = burst(on, 2, 20);
    for expected in 1..=20 {
        assert!(matches!(client.recv(), Packet::PubRec { packet_id, .. } if packet_id == expected));
    }
}

fn mqtt_4_6_0_4_pubrels_are_in_order(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("s");
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    for _ in 0..10 {
        publisher.publish(&topic, "x", 2);
    }
    let mut ids: Vec<_> = (0..10).map(|_| client.recv_publish().packet_id).collect();
    // In the order of the PUBRECs, whatever that is.
    ids.reverse();
    for packet_id in &ids {
        client.send_ack(first::PUBREC, *packet_id);
    }
    for expected in ids {
        assert!(matches!(client.recv(), Packet::PubRel { packet_id, .. } if packet_id == expected));
    }
}

fn mqtt_4_6_0_5_messages_of_a_client_stay_in_order(on: &Stage) {
    for qos in 0..3 {
        let topic = on.topic(&qos.to_string());
        let mut client = on.v5("s");
        client.subscribe(&topic, 2);
        let mut publisher = on.v5("p");
        let mut bytes = Vec::new();
        for number in 0..50u16 {
            bytes.extend(Publish::new(&topic, number.to_string()).qos(qos, number + 1).bytes(Version::V5));
        }
        publisher.send(&bytes);
        if qos == 2 {
            // A server may pass a message on when it has it or when it is released.
            for packet_id in 1..=50 {
                publisher.wait_pubrec(packet_id);
                publisher.send_ack(first::PUBREL, packet_id);
            }
        }
        for number in 0..50 {
            assert_eq!(client.take().text(), number.to_string());
        }
    }
}

fn mqtt_4_6_0_6_every_topic_is_ordered(on: &Stage) {
    // Two publishers, three topics, one subscriber that is away for the second half.
    let hello = on.hello(Version::V5, "s").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(on.topic("#"), 1);
    let mut publishers = [on.v5("p0"), on.v5("p1")];
    let mut send = |from: usize, to: usize| {
        for number in from..to {
            for (which, publisher) in publishers.iter_mut().enumerate() {
                publisher.publish(on.topic(&(number % 3).to_string()), format!("{which} {number}"), 1);
            }
        }
    };
    send(0, 15);
    let mut got: Vec<_> = (0..30).map(|_| client.take()).collect();
    client.disconnect();
    send(15, 30);
    let (mut client, _) = on.connect(&hello);
    got.extend((0..30).map(|_| client.take()));
    for which in ["0", "1"] {
        for topic in ["0", "1", "2"] {
            let numbers: Vec<usize> = got
                .iter()
                .filter(|message| message.topic == on.topic(topic))
                .filter_map(|message| message.text().strip_prefix(&format!("{which} "))?.parse().ok())
                .collect();
            assert!(numbers.is_sorted() && numbers.len() == 10, "{numbers:?}");
        }
    }
}
