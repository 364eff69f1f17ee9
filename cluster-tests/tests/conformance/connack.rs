//! Section 3.2: CONNACK.

use std::time::Instant;

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Connect, Packet, Publish, Version, Will, id, reason};

over_tcp_and_websocket! {
    mqtt_3_2_0_1_connack_comes_before_any_other_packet,
    mqtt_3_2_0_2_there_is_one_connack,
    mqtt_3_2_2_1_the_acknowledge_flags_are_0_or_1,
    mqtt_3_2_2_2_after_clean_start_session_present_is_0,
    mqtt_3_2_2_3_session_present_says_whether_there_is_a_session,
    mqtt_3_2_2_6_session_present_is_0_with_an_error,
    mqtt_3_2_2_7_after_an_error_the_connection_is_closed,
    mqtt_3_2_2_8_the_reason_code_is_one_of_connack,
    mqtt_3_2_2_9_without_maximum_qos_all_qos_work,
    mqtt_3_2_2_12_a_will_of_qos_2_is_accepted,
    mqtt_3_2_2_13_a_retained_will_is_refused_where_retain_is_off,
    mqtt_3_2_2_14_a_retained_publish_is_refused_where_retain_is_off,
    mqtt_3_2_2_15_a_packet_above_the_servers_maximum_is_refused,
    mqtt_3_2_2_16_assigned_client_ids_are_new,
    mqtt_3_2_2_17_a_topic_alias_above_the_servers_maximum_is_refused,
    mqtt_3_2_2_19_a_reason_string_does_not_exceed_the_maximum_packet_size,
    mqtt_3_2_2_21_the_server_keep_alive_takes_the_place_of_the_clients,
    mqtt_3_2_2_22_without_server_keep_alive_the_clients_counts,
}

fn mqtt_3_2_0_1_connack_comes_before_any_other_packet(on: &Stage) {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 1);
    client.disconnect();
    let mut publisher = on.v5("p");
    for number in 0..5 {
        publisher.publish(&topic, number.to_string(), 1);
    }
    // `handshake` fails unless the CONNACK is the first packet.
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    for number in 0..5 {
        assert_eq!(client.take().text(), number.to_string());
    }
}

fn mqtt_3_2_0_2_there_is_one_connack(on: &Stage) {
    let connect = on.hello(Version::V5, "c");
    let (mut client, _) = on.connect(&connect);
    client.expect_quiet();
    client.send(&connect.bytes());
    let packets = client.until_closed();
    assert!(!packets.iter().any(|packet| matches!(packet, Packet::ConnAck(_))), "{packets:?}");
}

fn mqtt_3_2_2_1_the_acknowledge_flags_are_0_or_1(on: &Stage) {
    // The parser refuses any other bit; here are both values and an error.
    let (client, _) = on.connect(&on.hello(Version::V5, "c").durable(300));
    client.disconnect();
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
    on.refused_connect(Version::V5, &unknown_method(on).bytes());
}

/// A CONNECT that is well-formed and refused.
fn unknown_method(on: &Stage) -> Connect {
    on.hello(Version::V5, "c").clean(false).text(id::AUTHENTICATION_METHOD, "no-such-method")
}

fn mqtt_3_2_2_2_after_clean_start_session_present_is_0(on: &Stage) {
    for _ in 0..2 {
        let (client, ack) = on.connect(&on.hello(Version::V5, "c").session_expiry(300));
        assert!(!ack.session_present);
        client.disconnect();
    }
}

fn mqtt_3_2_2_3_session_present_says_whether_there_is_a_session(on: &Stage) {
    for (expiry, present) in [(300, false), (300, true), (0, true), (0, false)] {
        let (client, ack) = on.connect(&on.hello(Version::V5, "c").durable(expiry));
        assert_eq!(ack.session_present, present);
        client.disconnect();
    }
}

fn mqtt_3_2_2_6_session_present_is_0_with_an_error(on: &Stage) {
    let (client, _) = on.connect(&on.hello(Version::V5, "c").durable(300));
    client.disconnect();
    let mut client = on.open(Version::V5);
    let ack = client.handshake(&unknown_method(on));
    assert!(ack.reason >= 0x80 && !ack.session_present, "{ack:?}");
    // The refusal has not touched the session.
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
}

fn mqtt_3_2_2_7_after_an_error_the_connection_is_closed(on: &Stage) {
    let mut client = on.open(Version::V5);
    assert!(client.handshake(&unknown_method(on)).reason >= 0x80);
    client.expect_close();
}

fn mqtt_3_2_2_8_the_reason_code_is_one_of_connack(on: &Stage) {
    // The parser knows the list; here are refusals of several kinds.
    let mut level = on.hello(Version::V5, "c");
    level.level = 9;
    for connect in [
        unknown_method(on),
        level,
        on.hello(Version::V5, "c").flags(3),
        on.hello(Version::V5, "c").number(id::RECEIVE_MAXIMUM, 0),
        on.hello(Version::V5, "c").will(Will::new("#", "x")),
    ] {
        let mut client = on.open(Version::V5);
        client.send(&connect.bytes());
        let answer = client.bytes_until_closed();
        assert!(matches!(answer.as_slice(), [] | [0x20, 2, 0, 1] | [0x20, _, 0, 0x80..=0xFF, ..]), "{answer:02X?}");
    }
}

fn mqtt_3_2_2_9_without_maximum_qos_all_qos_work(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    assert_ne!(ack.properties.get_number(id::MAXIMUM_QOS), Some(2), "2 is no value of Maximum QoS");
    client.subscribe(on.topic("t"), 2);
    for qos in 0..=ack.properties.get_number(id::MAXIMUM_QOS).unwrap_or(2) {
        client.publish(on.topic("t"), "x", qos as u8);
        assert_eq!(u32::from(client.take().qos), qos);
    }
}

fn mqtt_3_2_2_12_a_will_of_qos_2_is_accepted(on: &Stage) {
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").will(Will::new(on.topic("w"), "x").qos(2)));
    assert!(!ack.properties.has(id::MAXIMUM_QOS));
}

fn mqtt_3_2_2_13_a_retained_will_is_refused_where_retain_is_off(on: &Stage) {
    let Some(broker) = Setup::new().mqtt("retain_available = false").start() else {
        return;
    };
    let on = Stage::new(&broker, on.transport);
    let connect = on.hello(Version::V5, "c").will(Will::new(on.topic("w"), "x").retained());
    assert_eq!(on.refused_connect(Version::V5, &connect.bytes()), Some(reason::RETAIN_NOT_SUPPORTED));
}

fn mqtt_3_2_2_14_a_retained_publish_is_refused_where_retain_is_off(on: &Stage) {
    let Some(broker) = Setup::new().mqtt("retain_available = false").start() else {
        return;
    };
    let on = Stage::new(&broker, on.transport);
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    assert_eq!(ack.properties.get_number(id::RETAIN_AVAILABLE), Some(0));
    client.send_publish(&Publish::new(on.topic("t"), "x").retained());
    client.expect_disconnect(&[reason::RETAIN_NOT_SUPPORTED]);
    let mut later = on.v5("l");
    later.subscribe(on.topic("#"), 0);
    later.publish(on.topic("marker"), "marker", 0);
    assert!(later.take_until("marker").is_empty());
}

fn mqtt_3_2_2_15_a_packet_above_the_servers_maximum_is_refused(on: &Stage) {
    let Some(broker) = Setup::new().mqtt("max_packet_size = 1000").start() else {
        return;
    };
    let on = Stage::new(&broker, on.transport);
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    assert_eq!(ack.properties.get_number(id::MAXIMUM_PACKET_SIZE), Some(1_000));
    let topic = on.topic("t");
    let room = 1_000 - 3 - 2 - topic.len() - 2 - 1;
    let exact = Publish::new(&topic, vec![b'x'; room]).qos(1, 1);
    assert_eq!(exact.bytes(Version::V5).len(), 1_000);
    client.deliver(&exact);
    client.send_publish(&Publish::new(&topic, vec![b'x'; room + 1]).qos(1, 2));
    client.expect_disconnect(&[reason::PACKET_TOO_LARGE]);
    // From the header alone: the rest never comes.
    let mut client = on.v5("h");
    client.send(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F]);
    client.expect_disconnect(&[reason::PACKET_TOO_LARGE]);
}

fn mqtt_3_2_2_16_assigned_client_ids_are_new(on: &Stage) {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let (client, ack) = on.connect(&Connect::new(Version::V5, "").session_expiry(2));
        assert!(!ack.session_present);
        let client_id = ack.properties.get_text(id::ASSIGNED_CLIENT_IDENTIFIER).expect("an assigned client id");
        assert!(seen.insert(client_id.to_owned()), "{client_id} was given before");
        client.disconnect();
    }
}

fn mqtt_3_2_2_17_a_topic_alias_above_the_servers_maximum_is_refused(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    // Absent is 0 [MQTT-3.2.2-18]; either way the next number is too high.
    let maximum = ack.properties.get_number(id::TOPIC_ALIAS_MAXIMUM).unwrap_or(0);
    client.send_publish(&Publish::new(on.topic("t"), "x").number(id::TOPIC_ALIAS, maximum + 1));
    client.expect_disconnect(&[reason::TOPIC_ALIAS_INVALID]);
}

fn mqtt_3_2_2_19_a_reason_string_does_not_exceed_the_maximum_packet_size(on: &Stage) {
    // Reason String and User Property: whatever the CONNACK would like to say, it stays within the client's limit.
    for limit in [8, 16, 24, 40, 64] {
        let mut client = on.open(Version::V5);
        client.send(&unknown_method(on).number(id::MAXIMUM_PACKET_SIZE, limit).bytes());
        let answer = client.bytes_until_closed();
        assert!(answer.len() <= limit as usize, "{} bytes with a limit of {limit}", answer.len());
    }
}

fn mqtt_3_2_2_21_the_server_keep_alive_takes_the_place_of_the_clients(on: &Stage) {
    let Some(broker) = Setup::new().mqtt("max_keepalive = 1").start() else {
        return;
    };
    let on = Stage::new(&broker, on.transport);
    let start = Instant::now();
    let clients = [0, 60].map(|asked| {
        let hello = on.hello(Version::V5, &format!("c{asked}"));
        let (client, ack) = on.connect(&hello.keep_alive(asked));
        assert_eq!(ack.properties.get_number(id::SERVER_KEEP_ALIVE), Some(1));
        client
    });
    for mut client in clients {
        client.expect_disconnect(&[reason::KEEP_ALIVE_TIMEOUT]);
        let passed = start.elapsed();
        assert!((1_400..3_500).contains(&passed.as_millis()), "closed after {passed:?}");
    }
}

fn mqtt_3_2_2_22_without_server_keep_alive_the_clients_counts(on: &Stage) {
    let start = Instant::now();
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").keep_alive(1));
    assert!(!ack.properties.has(id::SERVER_KEEP_ALIVE), "one second is below any cap");
    client.expect_disconnect(&[reason::KEEP_ALIVE_TIMEOUT]);
    let passed = start.elapsed();
    assert!((1_450..3_500).contains(&passed.as_millis()), "closed after {passed:?}");
}
