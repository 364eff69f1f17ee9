//! Section 4.8: shared subscriptions.

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Ack, Packet, Subscribe, Version, first, id};

over_tcp_and_websocket! {
    mqtt_4_8_2_1_a_shared_subscription_has_a_share_name,
    mqtt_4_8_2_2_a_share_name_has_no_wildcard_and_a_filter_follows,
    mqtt_4_8_2_1_each_message_goes_to_one_member,
    mqtt_4_8_2_1_groups_and_ordinary_subscriptions_are_independent,
    mqtt_4_8_2_1_an_unsubscribed_member_gets_nothing,
    mqtt_4_8_2_1_no_retained_messages_at_a_shared_subscribe,
    mqtt_4_8_2_3_the_granted_qos_is_respected,
    mqtt_4_8_2_4_a_qos_2_delivery_is_completed_with_the_same_member,
    mqtt_4_8_2_5_a_qos_2_delivery_that_began_goes_to_no_other_member,
    mqtt_4_8_2_6_a_refused_message_goes_to_no_other_member,
}

/// The server must refuse this filter: in the SUBACK, or by closing.
fn refused_filter(on: &Stage, filter: &str) {
    let mut client = on.v5("c");
    client.send(&Subscribe::new(1).filter(filter, 0).bytes(Version::V5));
    match client.recv() {
        Packet::SubAck { codes, .. } => assert!(codes[0] >= 0x80, "{filter} was granted"),
        Packet::Disconnect { reason: 0x81 | 0x82 | 0x8F, .. } => client.expect_close(),
        other => panic!("{filter}: {other:?}"),
    }
}

fn mqtt_4_8_2_1_a_shared_subscription_has_a_share_name(on: &Stage) {
    for filter in ["$share//t", "$share/", "$share//"] {
        refused_filter(on, filter);
    }
    // Without the slash it is an ordinary filter, which happens to begin with a dollar.
    let mut client = on.v5("c");
    let name = format!("$shared/{}", on.topic("t"));
    client.subscribe(&name, 0);
    client.publish(&name, "x", 0);
    assert_eq!(client.take().topic, name);
}

fn mqtt_4_8_2_2_a_share_name_has_no_wildcard_and_a_filter_follows(on: &Stage) {
    for filter in ["$share/+/t", "$share/#/t", "$share/a+/t", "$share/a#/t", "$share/g", "$share/g/", "$share/g/a#"] {
        refused_filter(on, filter);
    }
}

/// Members of one group, each subscribed with this QoS.
fn members(on: &Stage, filter: &str, qos: u8, count: usize) -> Vec<Client> {
    (0..count)
        .map(|number| {
            let mut client = on.v5(&format!("m{number}"));
            assert_eq!(client.subscribe(on.share(filter), qos), qos);
            client
        })
        .collect()
}

/// Everything that waits at a client, acknowledged.
fn drain(client: &mut Client) -> Vec<String> {
    let mut got = Vec::new();
    for packet in client.fence() {
        let Packet::Publish(message) = packet else { panic!("{packet:?}") };
        client.acknowledge(&message);
        got.push(message.text());
    }
    got
}

/// Drains members until they have got `count` messages in all.
fn drain_all(members: &mut [Client], count: usize) -> Vec<Vec<String>> {
    let deadline = std::time::Instant::now() + holdfast_cluster_tests::transport::PATIENCE;
    let mut got = vec![Vec::new(); members.len()];
    while got.iter().map(Vec::len).sum::<usize>() < count {
        assert!(std::time::Instant::now() < deadline, "only {got:?}");
        for (client, got) in members.iter_mut().zip(&mut got) {
            got.extend(drain(client));
        }
    }
    got
}

fn mqtt_4_8_2_1_each_message_goes_to_one_member(on: &Stage) {
    let mut members = members(on, "t/#", 1, 3);
    let mut publisher = on.v5("p");
    for number in 0..60 {
        publisher.publish(on.topic(&format!("t/{}", number % 7)), number.to_string(), number % 3);
    }
    let got = drain_all(&mut members, 60);
    let mut all: Vec<usize> = got.iter().flatten().map(|text| text.parse().expect("a number")).collect();
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
    assert!(got.iter().all(|got| got.len() >= 5), "a member got next to nothing: {got:?}");
    for client in &mut members {
        client.expect_quiet();
    }
}

fn mqtt_4_8_2_1_groups_and_ordinary_subscriptions_are_independent(on: &Stage) {
    let topic = on.topic("t");
    let mut publisher = on.v5("p");
    let (mut one, mut two, mut plain) = (on.v5("one"), on.v5("two"), on.v5("plain"));
    one.subscribe(format!("$share/{}/{topic}", on.client_id("g1")), 1);
    two.subscribe(format!("$share/{}/{topic}", on.client_id("g2")), 1);
    plain.subscribe(&topic, 1);
    // A client that is both a member and an ordinary subscriber gets both copies.
    two.subscribe(&topic, 1);
    publisher.publish(&topic, "x", 1);
    assert_eq!(one.take().text(), "x");
    assert_eq!(plain.take().text(), "x");
    assert_eq!([two.take().text(), two.take().text()], ["x", "x"]);
    for client in [&mut one, &mut two, &mut plain] {
        client.expect_quiet();
    }
}

fn mqtt_4_8_2_1_an_unsubscribed_member_gets_nothing(on: &Stage) {
    let mut members = members(on, "t", 1, 2);
    assert_eq!(members[0].unsubscribe(on.share("t")), [0]);
    let mut publisher = on.v5("p");
    for number in 0..10 {
        publisher.publish(on.topic("t"), number.to_string(), 1);
    }
    for number in 0..10 {
        assert_eq!(members[1].take().text(), number.to_string());
    }
    members[0].expect_quiet();
}

fn mqtt_4_8_2_1_no_retained_messages_at_a_shared_subscribe(on: &Stage) {
    // Section 4.8.2: a new shared subscription is sent none.
    let mut publisher = on.v5("p");
    publisher.publish_retained(on.topic("t"), "retained", 1);
    assert!(crate::retained_by(on, &mut on.v5("c"), &on.share("t"), 1).is_empty());
    publisher.publish_retained(on.topic("t"), "", 1);
}

fn mqtt_4_8_2_3_the_granted_qos_is_respected(on: &Stage) {
    let mut publisher = on.v5("p");
    for granted in 0..3 {
        let filter = granted.to_string();
        let mut member = members(on, &filter, granted, 1).remove(0);
        let packet_id = member.packet_id();
        member.send_subscribe(&Subscribe::new(packet_id).identifier(9).filter(on.share(&filter), granted));
        for qos in 0..3 {
            publisher.publish(on.topic(&filter), "x", qos);
            let message = member.take();
            assert_eq!(message.qos, qos.min(granted));
            assert_eq!(message.properties.get_numbers(id::SUBSCRIPTION_IDENTIFIER), [9]);
        }
    }
}

/// A durable member that has received one QoS 2 message and breaks off, and another member that stays.
fn broken_off(on: &Stage) -> (Client, holdfast_cluster_tests::wire::Message) {
    let (mut member, _) = on.connect(&on.hello(Version::V5, "gone").durable(300));
    member.subscribe(on.share("t"), 2);
    on.v5("p").publish(on.topic("t"), "x", 2);
    let message = member.recv_publish();
    let mut other = on.v5("stays");
    other.subscribe(on.share("t"), 2);
    member.reset();
    (other, message)
}

fn mqtt_4_8_2_4_a_qos_2_delivery_is_completed_with_the_same_member(on: &Stage) {
    let (mut other, message) = broken_off(on);
    let (mut member, ack) = on.connect(&on.hello(Version::V5, "gone").durable(0));
    assert!(ack.session_present);
    let repeat = member.take();
    assert_eq!((repeat.packet_id, repeat.dup, repeat.text()), (message.packet_id, true, "x".to_owned()));
    other.expect_quiet();
}

fn mqtt_4_8_2_5_a_qos_2_delivery_that_began_goes_to_no_other_member(on: &Stage) {
    let (mut other, _) = broken_off(on);
    // The session ends before the client is back.
    let (member, _) = on.connect(&on.hello(Version::V5, "gone"));
    member.disconnect();
    let mut publisher = on.v5("q");
    publisher.publish(on.topic("t"), "marker", 2);
    let got = other.take_until("marker");
    assert!(got.is_empty(), "{got:?}");
}

fn mqtt_4_8_2_6_a_refused_message_goes_to_no_other_member(on: &Stage) {
    let mut members = members(on, "t", 2, 2);
    let mut publisher = on.v5("p");
    for (qos, first_byte) in [(1, first::PUBACK), (2, first::PUBREC)] {
        publisher.publish(on.topic("t"), "refused", qos);
        let deadline = std::time::Instant::now() + holdfast_cluster_tests::transport::PATIENCE;
        let refuser = 'found: loop {
            assert!(std::time::Instant::now() < deadline, "nobody got it");
            for (which, client) in members.iter_mut().enumerate() {
                if let Some(Packet::Publish(message)) = client.fence().into_iter().next() {
                    client.send(&Ack::new(first_byte, message.packet_id).reason(0x80).bytes());
                    break 'found which;
                }
            }
        };
        for client in &mut members {
            client.expect_quiet();
        }
        assert!(refuser < 2);
    }
}
