//! Section 3.3.2.3: the properties of a PUBLISH, topic aliases and message expiry.

use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Properties, Publish, Version, id, reason};

use crate::{BAD_PACKET, got_before_marker, let_pass, retained_by};

over_tcp_and_websocket! {
    mqtt_3_3_2_4_the_payload_format_indicator_is_kept,
    mqtt_3_3_2_5_an_expired_message_is_not_delivered,
    mqtt_3_3_2_5_an_expired_retained_message_is_not_delivered,
    mqtt_3_3_2_6_the_message_expiry_interval_counts_down,
    mqtt_3_3_2_7_topic_aliases_end_with_the_connection,
    mqtt_3_3_2_8_topic_alias_0_is_refused,
    mqtt_3_3_2_8_an_unknown_topic_alias_is_refused,
    mqtt_3_3_2_11_the_server_introduces_its_aliases_anew,
    mqtt_3_3_2_12_all_topic_aliases_up_to_the_maximum_are_accepted,
    mqtt_3_3_2_13_a_response_topic_is_utf8,
    mqtt_3_3_2_14_a_response_topic_has_no_wildcards,
    mqtt_3_3_2_15_the_response_topic_is_kept,
    mqtt_3_3_2_16_the_correlation_data_are_kept,
    mqtt_3_3_2_17_all_user_properties_are_kept,
    mqtt_3_3_2_18_user_properties_stay_in_order,
    mqtt_3_3_2_19_a_content_type_is_utf8,
    mqtt_3_3_2_20_the_content_type_is_kept,
}

/// Publishes with these properties to two live subscribers (one with a QoS lower than the publish), an offline one and the retained store,
/// and checks what each of them got.
#[track_caller]
fn everybody_gets(on: &Stage, properties: &Properties, check: impl Fn(&Properties)) {
    let topic = on.topic("t");
    let (mut offline, _) = on.connect(&on.hello(Version::V5, "offline").session_expiry(300));
    offline.subscribe(&topic, 1);
    offline.disconnect();
    let (mut low, mut high) = (on.v5("low"), on.v5("high"));
    low.subscribe(&topic, 0);
    high.subscribe(&topic, 1);
    let mut publisher = on.v5("p");
    publisher.deliver(&Publish::new(&topic, "payload").qos(1, 1).retained().properties(properties.clone()));
    // The session ends with this connection.
    let (mut offline, _) = on.connect(&on.hello(Version::V5, "offline").durable(0));
    let mut later = on.v5("later");
    later.subscribe(&topic, 1);
    for client in [&mut low, &mut high, &mut offline, &mut later] {
        let message = client.take();
        assert_eq!(message.text(), "payload");
        check(&message.properties);
    }
    publisher.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_2_4_the_payload_format_indicator_is_kept(on: &Stage) {
    for value in [0, 1] {
        let properties = Properties::new().number(id::PAYLOAD_FORMAT_INDICATOR, value);
        everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
    }
    let bad = Publish::new(on.topic("t"), "x").number(id::PAYLOAD_FORMAT_INDICATOR, 2);
    on.refused_after_connect(&bad.bytes(Version::V5), BAD_PACKET);
}

/// A durable session that is subscribed and away.
fn away(on: &Stage, topic: &str) {
    let (mut client, _) = on.connect(&on.hello(Version::V5, "away").durable(300));
    client.subscribe(topic, 2);
    client.disconnect();
}

fn back(on: &Stage) -> Client {
    let (client, ack) = on.connect(&on.hello(Version::V5, "away").durable(0));
    assert!(ack.session_present);
    client
}

fn mqtt_3_3_2_5_an_expired_message_is_not_delivered(on: &Stage) {
    let topic = on.topic("t");
    away(on, &topic);
    let mut publisher = on.v5("p");
    for qos in [1, 2] {
        publisher.deliver(&Publish::new(&topic, "expires").qos(qos, 9).number(id::MESSAGE_EXPIRY_INTERVAL, 1));
    }
    publisher.publish(&topic, "stays", 1);
    let_pass(Duration::from_millis(1_200));
    let mut client = back(on);
    assert_eq!(client.take().text(), "stays");
    client.expect_quiet();
}

fn mqtt_3_3_2_5_an_expired_retained_message_is_not_delivered(on: &Stage) {
    let topic = on.topic("t");
    let mut publisher = on.v5("p");
    publisher.deliver(&Publish::new(&topic, "x").qos(1, 9).retained().number(id::MESSAGE_EXPIRY_INTERVAL, 1));
    let mut early = on.v5("early");
    early.subscribe(&topic, 0);
    assert_eq!(early.take().text(), "x");
    let_pass(Duration::from_millis(1_200));
    let mut late = on.v5("late");
    assert!(retained_by(on, &mut late, &topic, 0).is_empty());
    assert!(retained_by(on, &mut late, &on.topic("+"), 0).is_empty());
}

fn mqtt_3_3_2_6_the_message_expiry_interval_counts_down(on: &Stage) {
    let topic = on.topic("t");
    away(on, &topic);
    let mut publisher = on.v5("p");
    publisher.subscribe(&topic, 0);
    publisher.deliver(&Publish::new(&topic, "x").qos(1, 9).retained().number(id::MESSAGE_EXPIRY_INTERVAL, 100));
    assert_eq!(publisher.take().properties.get_number(id::MESSAGE_EXPIRY_INTERVAL), Some(100));
    let_pass(Duration::from_millis(1_200));
    let mut client = back(on);
    let mut later = on.v5("later");
    later.subscribe(&topic, 0);
    for client in [&mut client, &mut later] {
        let left = client.take().properties.get_number(id::MESSAGE_EXPIRY_INTERVAL).expect("an expiry interval");
        assert!((95..100).contains(&left), "{left} of 100 s left after 1.2 s");
    }
    publisher.publish_retained(&topic, "", 1);
}

fn mqtt_3_3_2_7_topic_aliases_end_with_the_connection(on: &Stage) {
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, ack) = on.connect(&hello);
    if ack.properties.get_number(id::TOPIC_ALIAS_MAXIMUM).unwrap_or(0) == 0 {
        return;
    }
    client.deliver(&Publish::new(on.topic("t"), "x").qos(1, 1).number(id::TOPIC_ALIAS, 1));
    client.deliver(&Publish::new("", "x").qos(1, 2).number(id::TOPIC_ALIAS, 1));
    client.disconnect();
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    client.send_publish(&Publish::new("", "x").qos(1, 3).number(id::TOPIC_ALIAS, 1));
    client.expect_disconnect(&[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
}

fn mqtt_3_3_2_8_topic_alias_0_is_refused(on: &Stage) {
    let bytes = Publish::new(on.topic("t"), "x").number(id::TOPIC_ALIAS, 0).bytes(Version::V5);
    on.refused_after_connect(&bytes, &[reason::TOPIC_ALIAS_INVALID]);
}

fn mqtt_3_3_2_8_an_unknown_topic_alias_is_refused(on: &Stage) {
    let bytes = Publish::new("", "x").number(id::TOPIC_ALIAS, 1).bytes(Version::V5);
    on.refused_after_connect(&bytes, &[reason::PROTOCOL_ERROR, reason::TOPIC_ALIAS_INVALID]);
    // No topic and no alias at all.
    on.refused_after_connect(&Publish::new("", "x").bytes(Version::V5), &[0x81, 0x82, 0x90]);
}

fn mqtt_3_3_2_11_the_server_introduces_its_aliases_anew(on: &Stage) {
    // The server's side of [MQTT-3.3.2-7]; that it stays below the maximum is [MQTT-3.1.2-26].
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300).number(id::TOPIC_ALIAS_MAXIMUM, 10);
    let mut publisher = on.v5("p");
    for round in 0..2 {
        let (mut client, ack) = on.connect(&hello);
        assert_eq!(ack.session_present, round > 0);
        client.subscribe(&topic, 1);
        for number in 0..4 {
            publisher.publish(&topic, "x", 1);
            let message = client.take();
            assert!(number > 0 || message.topic == topic, "an alias that this connection has not seen");
        }
        client.disconnect();
    }
}

fn mqtt_3_3_2_12_all_topic_aliases_up_to_the_maximum_are_accepted(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    let maximum = ack.properties.get_number(id::TOPIC_ALIAS_MAXIMUM).unwrap_or(0);
    client.subscribe(on.topic("#"), 0);
    let topic = |alias: u32| on.topic(&alias.to_string());
    for alias in 1..=maximum {
        client.send_publish(&Publish::new(topic(alias), "introduced").number(id::TOPIC_ALIAS, alias));
        assert_eq!(client.take().topic, topic(alias));
    }
    for alias in (1..=maximum).rev() {
        client.send_publish(&Publish::new("", "used").number(id::TOPIC_ALIAS, alias));
        let message = client.take();
        assert_eq!((message.topic, message.payload), (topic(alias), b"used".to_vec()));
    }
    // A mapping can be changed.
    if maximum > 0 {
        client.send_publish(&Publish::new(on.topic("other"), "x").number(id::TOPIC_ALIAS, 1));
        client.send_publish(&Publish::new("", "x").number(id::TOPIC_ALIAS, 1));
        assert_eq!([client.take().topic, client.take().topic], [on.topic("other"), on.topic("other")]);
    }
}

fn mqtt_3_3_2_13_a_response_topic_is_utf8(on: &Stage) {
    // Ill-formed ones are in data.rs [MQTT-1.5.4-1]; here is what must pass.
    for text in ["plain", "ünïcödé/\u{1F980}", "with space"] {
        let properties = Properties::new().text(id::RESPONSE_TOPIC, text);
        everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
    }
}

fn mqtt_3_3_2_14_a_response_topic_has_no_wildcards(on: &Stage) {
    for text in ["#", "a/+", "a/+/b", "a/#"] {
        let publish = Publish::new(on.topic("t"), "x").properties(Properties::new().text(id::RESPONSE_TOPIC, text));
        on.refused_after_connect(&publish.bytes(Version::V5), &[0x81, 0x82, 0x90]);
    }
}

fn mqtt_3_3_2_15_the_response_topic_is_kept(on: &Stage) {
    let properties = Properties::new().text(id::RESPONSE_TOPIC, "answers/to/me");
    everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
}

fn mqtt_3_3_2_16_the_correlation_data_are_kept(on: &Stage) {
    for data in [vec![], vec![0, 255, 0xC3, 0x28], vec![7; 5_000]] {
        let properties = Properties::new().binary(id::CORRELATION_DATA, data);
        everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
    }
}

fn mqtt_3_3_2_17_all_user_properties_are_kept(on: &Stage) {
    let mut properties = Properties::new().user("", "").user("name", "").user("", "value");
    for number in 0..50 {
        properties = properties.user(&format!("n{number}"), &"v".repeat(number));
    }
    everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
}

fn mqtt_3_3_2_18_user_properties_stay_in_order(on: &Stage) {
    let properties = Properties::new().user("z", "1").user("a", "2").user("z", "1").user("z", "0").user("a", "2");
    everybody_gets(on, &properties, |got| assert_eq!(got.users(), properties.users()));
}

fn mqtt_3_3_2_19_a_content_type_is_utf8(on: &Stage) {
    for text in ["", "text/plain; charset=utf-8", "ünïcödé"] {
        let properties = Properties::new().text(id::CONTENT_TYPE, text);
        everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
    }
}

fn mqtt_3_3_2_20_the_content_type_is_kept(on: &Stage) {
    let properties = Properties::new().text(id::CONTENT_TYPE, "application/json").user("a", "b");
    everybody_gets(on, &properties, |got| assert_eq!(got, &properties));
    // To a subscriber without properties (3.1.1) the message comes as well.
    let topic = on.topic("old");
    let mut old = on.v311("old");
    old.subscribe(&topic, 1);
    let mut publisher = on.v5("q");
    publisher.deliver(&Publish::new(&topic, "x").qos(1, 1).properties(properties));
    assert!(matches!(old.recv(), Packet::Publish(message) if message.text() == "x"));
    assert!(got_before_marker(&mut publisher, &mut old, &topic).is_empty());
}
