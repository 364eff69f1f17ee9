//! Section 3.1: CONNECT (its Will in `connect_will.rs`).

use std::time::{Duration, Instant};

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{
    Connect, PINGREQ, Packet, Properties, Publish, Subscribe, Unsubscribe, Version, Will, first, id, packet, prefixed,
    reason,
};

use crate::got_before_marker;

over_tcp_and_websocket! {
    mqtt_3_1_0_1_the_first_packet_must_be_connect,
    mqtt_3_1_0_2_a_second_connect_is_a_protocol_error,
    mqtt_3_1_2_1_another_protocol_name_is_refused,
    mqtt_3_1_2_2_another_protocol_version_is_refused,
    mqtt_3_1_2_3_the_reserved_connect_flag_is_0,
    mqtt_3_1_2_4_clean_start_discards_the_session,
    mqtt_3_1_2_5_without_clean_start_the_session_resumes,
    mqtt_3_1_2_6_without_a_session_a_new_one_is_created,
    mqtt_3_1_2_16_a_user_name_without_its_flag_is_refused,
    mqtt_3_1_2_17_a_user_name_flag_without_user_name_is_refused,
    mqtt_3_1_2_18_a_password_without_its_flag_is_refused,
    mqtt_3_1_2_19_a_password_flag_without_password_is_refused,
    mqtt_3_1_2_22_a_silent_client_is_closed_after_one_and_a_half_keep_alives,
    mqtt_3_1_2_22_keep_alive_0_turns_it_off,
    mqtt_3_1_2_23_the_session_outlives_the_connection,
    mqtt_3_1_2_24_no_packet_exceeds_the_maximum_packet_size,
    mqtt_3_1_2_25_a_message_too_large_counts_as_delivered,
    mqtt_3_1_2_26_topic_aliases_stay_within_the_clients_maximum,
    mqtt_3_1_2_27_without_a_maximum_there_are_no_topic_aliases,
    mqtt_3_1_2_28_no_response_information_unless_requested,
    mqtt_3_1_2_29_without_problem_information_no_reasons_in_acknowledgements,
    mqtt_3_1_2_30_an_unknown_authentication_method_is_answered_at_once,
    mqtt_3_1_3_1_the_payload_fields_are_read_in_their_order,
    mqtt_3_1_3_2_the_client_id_identifies_the_session,
    mqtt_3_1_3_3_a_connect_without_client_id_field_is_refused,
    mqtt_3_1_3_4_a_client_id_that_is_not_utf8_is_refused,
    mqtt_3_1_3_5_client_ids_of_1_to_23_letters_and_digits_are_taken,
    mqtt_3_1_3_6_an_empty_client_id_is_assigned_one,
    mqtt_3_1_3_7_the_assigned_client_id_is_the_sessions,
    mqtt_3_1_3_8_a_rejected_client_id_is_answered_with_0x85,
    mqtt_3_1_3_12_a_user_name_that_is_not_utf8_is_refused,
    mqtt_3_1_4_1_a_connect_of_another_format_is_refused,
    mqtt_3_1_4_1_connect_properties_out_of_range_are_refused,
    mqtt_3_1_4_2_a_failed_authentication_closes,
    mqtt_3_1_4_3_takeover_disconnects_the_existing_client,
    mqtt_3_1_4_4_clean_start_is_processed_at_takeover_too,
    mqtt_3_1_4_5_an_accepted_connect_is_acknowledged_with_0,
    mqtt_3_1_4_6_nothing_behind_a_rejected_connect_is_processed,
}

fn mqtt_3_1_0_1_the_first_packet_must_be_connect(on: &Stage) {
    for bytes in [
        PINGREQ.to_vec(),
        vec![first::DISCONNECT, 0],
        vec![first::AUTH, 0],
        vec![first::CONNACK, 3, 0, 0, 0],
        Publish::new(on.topic("x"), "x").qos(1, 1).bytes(Version::V5),
        Subscribe::new(1).filter(on.topic("x"), 0).bytes(Version::V5),
        Unsubscribe::new(1).filter(on.topic("x")).bytes(Version::V5),
        b"hello world, this is not MQTT".to_vec(),
    ] {
        let mut client = on.open(Version::V5);
        client.send(&bytes);
        client.expect_close();
    }
}

fn mqtt_3_1_0_2_a_second_connect_is_a_protocol_error(on: &Stage) {
    let connect = on.hello(Version::V5, "c");
    let (mut client, _) = on.connect(&connect);
    client.send(&connect.bytes());
    assert!(client.expect_disconnect(&[reason::PROTOCOL_ERROR]).is_empty());
}

fn mqtt_3_1_2_1_another_protocol_name_is_refused(on: &Stage) {
    for name in [&b"MQTT5"[..], b"mqtt", b"MQT", b"", b"HTTP"] {
        let mut connect = on.hello(Version::V5, "c");
        connect.protocol_name = name.to_vec();
        let mut client = on.open(Version::V5);
        client.send(&connect.bytes());
        let answer = client.bytes_until_closed();
        assert!(is_unsupported_version(&answer), "{name:?}: {answer:02X?}");
    }
}

/// Nothing, CONNACK 0x84 in the form of 5.0, or return code 1 in that of 3.1.1.
fn is_unsupported_version(answer: &[u8]) -> bool {
    matches!(answer, [] | [0x20, 2, 0, 1] | [0x20, _, 0, 0x84, ..])
}

fn mqtt_3_1_2_2_another_protocol_version_is_refused(on: &Stage) {
    for level in [0, 1, 2, 6, 7, 0x84, 0xFF] {
        let mut connect = on.hello(Version::V5, "c");
        connect.level = level;
        let mut client = on.open(Version::V5);
        client.send(&connect.bytes());
        let answer = client.bytes_until_closed();
        assert!(is_unsupported_version(&answer), "level {level}: {answer:02X?}");
    }
}

fn mqtt_3_1_2_3_the_reserved_connect_flag_is_0(on: &Stage) {
    let code = on.refused_connect(Version::V5, &on.hello(Version::V5, "c").flags(0x03).bytes());
    assert!(matches!(code, None | Some(0x81 | 0x82)), "{code:02X?}");
}

fn mqtt_3_1_2_4_clean_start_discards_the_session(on: &Stage) {
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").durable(300));
    client.subscribe(&topic, 1);
    client.disconnect();
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "queued", 1);
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").session_expiry(300));
    assert!(!ack.session_present);
    // Neither the queued message nor the subscription is left.
    publisher.publish(&topic, "live", 1);
    client.subscribe(on.topic("marker"), 0);
    assert!(got_before_marker(&mut publisher, &mut client, &on.topic("marker")).is_empty());
    client.disconnect();
    // And the session that was started instead is the one that is resumed.
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
}

fn mqtt_3_1_2_5_without_clean_start_the_session_resumes(on: &Stage) {
    let topic = on.topic("t");
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").durable(300));
    client.subscribe(&topic, 2);
    client.disconnect();
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "1", 1);
    publisher.publish(&topic, "2", 2);
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
    publisher.publish(&topic, "3", 0);
    let mut got: Vec<_> = (0..3).map(|_| client.take()).map(|message| (message.text(), message.qos)).collect();
    got.sort();
    assert_eq!(got, [("1".into(), 1), ("2".into(), 2), ("3".into(), 0)]);
}

fn mqtt_3_1_2_6_without_a_session_a_new_one_is_created(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").durable(300));
    assert!(!ack.session_present);
    client.subscribe(on.topic("t"), 1);
    client.publish(on.topic("t"), "works", 1);
    assert_eq!(client.take().text(), "works");
    client.disconnect();
    let (_, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
}

/// Each CONNECT body whose flags and fields do not fit must be refused.
fn refused_with_flags(on: &Stage, connect: &Connect, flags: u8) {
    let code = on.refused_connect(Version::V5, &connect.clone().flags(flags).bytes());
    assert!(matches!(code, None | Some(0x81 | 0x82 | 0x86)), "{code:02X?}");
}

fn mqtt_3_1_2_16_a_user_name_without_its_flag_is_refused(on: &Stage) {
    refused_with_flags(on, &on.hello(Version::V5, "c").user_name("u"), 0x02);
}

fn mqtt_3_1_2_17_a_user_name_flag_without_user_name_is_refused(on: &Stage) {
    refused_with_flags(on, &on.hello(Version::V5, "c"), 0x82);
}

fn mqtt_3_1_2_18_a_password_without_its_flag_is_refused(on: &Stage) {
    refused_with_flags(on, &on.hello(Version::V5, "c").user_name("u").password("p"), 0x82);
}

fn mqtt_3_1_2_19_a_password_flag_without_password_is_refused(on: &Stage) {
    refused_with_flags(on, &on.hello(Version::V5, "c").user_name("u"), 0xC2);
    refused_with_flags(on, &on.hello(Version::V5, "c"), 0x42);
}

fn mqtt_3_1_2_22_a_silent_client_is_closed_after_one_and_a_half_keep_alives(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 0);
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").keep_alive(1).will(Will::new(&will, "gone")));
    let start = Instant::now();
    client.expect_disconnect(&[reason::KEEP_ALIVE_TIMEOUT]);
    let passed = start.elapsed();
    assert!((1_450..3_500).contains(&passed.as_millis()), "closed after {passed:?}");
    // "As if the network had failed": the Will is published.
    assert_eq!(watcher.take().text(), "gone");
}

fn mqtt_3_1_2_22_keep_alive_0_turns_it_off(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").keep_alive(0));
    if let Some(server_keep_alive) = ack.properties.get_number(id::SERVER_KEEP_ALIVE) {
        assert!(server_keep_alive >= 30, "a server may set its own, but {server_keep_alive} s is short");
    }
    crate::let_pass(Duration::from_millis(1_600));
    client.expect_quiet();
}

fn mqtt_3_1_2_23_the_session_outlives_the_connection(on: &Stage) {
    // Broken off, not only after a DISCONNECT.
    let topic = on.topic("t");
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 0);
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").durable(300).will(Will::new(&will, "gone")));
    client.subscribe(&topic, 1);
    client.reset();
    watcher.take();
    watcher.publish(&topic, "kept", 1);
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c").durable(0));
    assert!(ack.session_present);
    assert_eq!(client.take().text(), "kept");
}

fn mqtt_3_1_2_24_no_packet_exceeds_the_maximum_packet_size(on: &Stage) {
    let topic = on.topic("t");
    let limit = 200;
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, limit));
    client.subscribe(&topic, 0);
    let mut publisher = on.v5("p");
    // Fixed header 2 or 3, topic, property length 1.
    let exact = limit as usize - 3 - 2 - topic.len() - 1;
    for length in [exact, exact + 1, 1_000, exact] {
        publisher.publish(&topic, vec![b'x'; length], 0);
    }
    let got = got_before_marker(&mut publisher, &mut client, &topic);
    let sizes: Vec<_> = got.iter().map(|message| message.size).collect();
    assert_eq!(sizes, [limit as usize; 2], "two packets of exactly the limit, and none above it");
}

fn mqtt_3_1_2_25_a_message_too_large_counts_as_delivered(on: &Stage) {
    // With a window of one, what is too large must not hold up what is behind it, and never comes again.
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300).number(id::RECEIVE_MAXIMUM, 1);
    let (mut client, _) = on.connect(&hello.clone().number(id::MAXIMUM_PACKET_SIZE, 200));
    client.subscribe(&topic, 2);
    let mut publisher = on.v5("p");
    for qos in [1, 2] {
        publisher.publish(&topic, vec![b'x'; 1_000], qos);
        assert_eq!(publisher.publish(&topic, "small", qos), 0);
        assert_eq!(client.take().text(), "small");
    }
    client.expect_quiet();
    client.disconnect();
    let (mut client, _) = on.connect(&hello);
    let got = got_before_marker(&mut publisher, &mut client, &topic);
    assert!(got.is_empty(), "{got:?}");
}

fn mqtt_3_1_2_26_topic_aliases_stay_within_the_clients_maximum(on: &Stage) {
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::TOPIC_ALIAS_MAXIMUM, 2));
    client.subscribe(on.topic("#"), 0);
    let mut publisher = on.v5("p");
    let mut known = std::collections::HashMap::new();
    for round in 0..3 {
        for name in ["a", "b", "c", "d"] {
            publisher.publish(on.topic(name), format!("{name}{round}"), 0);
            let message = client.take();
            let topic = match message.properties.get_number(id::TOPIC_ALIAS) {
                None => message.topic.clone(),
                Some(alias) => {
                    assert!((1..=2).contains(&alias), "alias {alias}");
                    if !message.topic.is_empty() {
                        known.insert(alias, message.topic.clone());
                    }
                    known.get(&alias).expect("an alias that was introduced").clone()
                }
            };
            assert_eq!(topic, on.topic(name));
        }
    }
}

fn mqtt_3_1_2_27_without_a_maximum_there_are_no_topic_aliases(on: &Stage) {
    for hello in [on.hello(Version::V5, "a"), on.hello(Version::V5, "b").number(id::TOPIC_ALIAS_MAXIMUM, 0)] {
        let (mut client, _) = on.connect(&hello);
        client.subscribe(on.topic("t"), 1);
        for _ in 0..5 {
            client.publish(on.topic("t"), "x", 1);
            let message = client.take();
            assert_eq!(message.topic, on.topic("t"));
            assert!(!message.properties.has(id::TOPIC_ALIAS));
        }
    }
}

fn mqtt_3_1_2_28_no_response_information_unless_requested(on: &Stage) {
    for hello in [on.hello(Version::V5, "a"), on.hello(Version::V5, "b").number(id::REQUEST_RESPONSE_INFORMATION, 0)] {
        let (_, ack) = on.connect(&hello);
        assert!(!ack.properties.has(id::RESPONSE_INFORMATION));
    }
}

fn mqtt_3_1_2_29_without_problem_information_no_reasons_in_acknowledgements(on: &Stage) {
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::REQUEST_PROBLEM_INFORMATION, 0));
    client.send_publish(&Publish::new(on.topic("nobody"), "x").qos(1, 1));
    client.send_publish(&Publish::new(on.topic("nobody"), "x").qos(2, 2));
    client.send_ack(first::PUBREL, 2);
    client.send_ack(first::PUBREL, 999);
    client.send(&Unsubscribe::new(3).filter(on.topic("never")).bytes(Version::V5));
    client.send(&Subscribe::new(4).filter(on.topic("a"), 0).bytes(Version::V5));
    let answers: Vec<_> = (0..6).map(|_| client.recv()).collect();
    client.expect_quiet();
    for answer in answers {
        let (Packet::PubAck { properties, .. }
        | Packet::PubRec { properties, .. }
        | Packet::PubComp { properties, .. }
        | Packet::SubAck { properties, .. }
        | Packet::UnsubAck { properties, .. }) = answer
        else {
            panic!("{answer:?}")
        };
        assert!(properties.is_empty(), "{properties:?}");
    }
}

fn mqtt_3_1_2_30_an_unknown_authentication_method_is_answered_at_once(on: &Stage) {
    // The rule binds the client, which waits: so the server owes it an answer.
    let connect = on.hello(Version::V5, "c").text(id::AUTHENTICATION_METHOD, "no-such-method");
    let code = on.refused_connect(Version::V5, &connect.bytes());
    assert!(matches!(code, Some(0x8C | 0x87)), "{code:02X?}");
}

fn mqtt_3_1_3_1_the_payload_fields_are_read_in_their_order(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 2);
    let connect = on
        .hello(Version::V5, "c")
        .will(Will::new(&will, "payload").qos(2).properties(Properties::new().user("k", "v")))
        .user_name("user")
        .password("password");
    let (client, _) = on.connect(&connect);
    client.reset();
    let message = watcher.take();
    assert_eq!((message.text().as_str(), message.qos, message.properties.users()), ("payload", 2, vec![("k", "v")]));
}

fn mqtt_3_1_3_2_the_client_id_identifies_the_session(on: &Stage) {
    for name in ["a", "A", "aa"] {
        let (mut client, ack) = on.connect(&on.hello(Version::V5, name).durable(300));
        assert!(!ack.session_present, "{name} is a client id of its own");
        client.subscribe(on.topic(name), 1);
        client.disconnect();
    }
    let mut publisher = on.v5("p");
    for name in ["a", "A", "aa"] {
        publisher.publish(on.topic(name), name, 1);
    }
    for name in ["a", "A", "aa"] {
        let (mut client, ack) = on.connect(&on.hello(Version::V5, name).durable(0));
        assert!(ack.session_present);
        assert_eq!(client.take().text(), name);
        client.expect_quiet();
    }
}

fn mqtt_3_1_3_3_a_connect_without_client_id_field_is_refused(on: &Stage) {
    let body = [&prefixed("MQTT")[..], &[5, 2, 0, 60, 0]].concat();
    for cut in [body.clone(), [&body[..], &[0]].concat(), [&body[..], &[0, 5, b'a']].concat()] {
        let code = on.refused_connect(Version::V5, &packet(first::CONNECT, &cut));
        assert!(matches!(code, None | Some(0x81 | 0x82 | 0x85)), "{code:02X?}");
    }
}

fn mqtt_3_1_3_4_a_client_id_that_is_not_utf8_is_refused(on: &Stage) {
    for bad in crate::ILL_FORMED {
        let code = on.refused_connect(Version::V5, &Connect::new(Version::V5, bad).bytes());
        assert!(matches!(code, None | Some(0x81 | 0x82 | 0x85)), "{code:02X?}");
    }
}

fn mqtt_3_1_3_5_client_ids_of_1_to_23_letters_and_digits_are_taken(on: &Stage) {
    // The short one cannot carry the test's prefix.
    let short = if on.transport == Transport::Tcp { "Z" } else { "Y" };
    for client_id in [short, "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ0123456"] {
        let mut client = on.open(Version::V5);
        client.connect(&Connect::new(Version::V5, format!("{}{client_id}", &short[..1])));
        let exact = client_id.replacen(&client_id[..1], short, 1);
        assert!(exact.len() == 1 || exact.len() == 23);
        on.open(Version::V5).connect(&Connect::new(Version::V5, exact));
    }
}

fn mqtt_3_1_3_6_an_empty_client_id_is_assigned_one(on: &Stage) {
    let mut assigned = std::collections::HashSet::new();
    let mut clients = Vec::new();
    for _ in 0..5 {
        let (client, ack) = on.connect(&Connect::new(Version::V5, ""));
        let client_id = ack.properties.get_text(id::ASSIGNED_CLIENT_IDENTIFIER).expect("an assigned client id");
        assert!(!client_id.is_empty());
        assert!(assigned.insert(client_id.to_owned()), "{client_id} twice");
        clients.push(client);
    }
    // All of them at once: none has displaced another.
    for client in &mut clients {
        client.expect_quiet();
    }
}

fn mqtt_3_1_3_7_the_assigned_client_id_is_the_sessions(on: &Stage) {
    let topic = on.topic("t");
    let (mut client, ack) = on.connect(&Connect::new(Version::V5, "").durable(300));
    let client_id = ack.properties.get_text(id::ASSIGNED_CLIENT_IDENTIFIER).expect("an assigned client id").to_owned();
    client.subscribe(&topic, 1);
    client.disconnect();
    on.v5("p").publish(&topic, "for the assigned one", 1);
    let (mut client, ack) = on.connect(&Connect::new(Version::V5, &client_id).durable(0));
    assert!(ack.session_present);
    assert!(!ack.properties.has(id::ASSIGNED_CLIENT_IDENTIFIER), "this time the client chose it");
    assert_eq!(client.take().text(), "for the assigned one");
}

fn mqtt_3_1_3_8_a_rejected_client_id_is_answered_with_0x85(on: &Stage) {
    // A server may take such an id or not; what it must not do is anything else.
    let connect = Connect::new(Version::V5, on.client_id(&"x".repeat(60_000)));
    let mut client = on.open(Version::V5);
    match client.handshake(&connect).reason {
        0 => client.expect_quiet(),
        reason::CLIENT_ID_NOT_VALID => client.expect_close(),
        other => panic!("0x{other:02X}"),
    }
}

fn mqtt_3_1_3_12_a_user_name_that_is_not_utf8_is_refused(on: &Stage) {
    for bad in crate::ILL_FORMED {
        let code = on.refused_connect(Version::V5, &on.hello(Version::V5, "c").user_name(bad).bytes());
        assert!(matches!(code, None | Some(0x81 | 0x82 | 0x86)), "{code:02X?}");
    }
}

fn mqtt_3_1_4_1_a_connect_of_another_format_is_refused(on: &Stage) {
    let whole = on.hello(Version::V5, "c").user_name("u").password("p").body();
    let mut bodies: Vec<Vec<u8>> = (0..whole.len()).map(|cut| whole[..cut].to_vec()).collect();
    bodies.push([&whole[..], &[0]].concat());
    for body in bodies {
        let mut client = on.open(Version::V5);
        client.send(&packet(first::CONNECT, &body));
        // A body cut within the version is answered by nobody knows which form, if at all.
        let answer = client.bytes_until_closed();
        assert!(!matches!(answer.as_slice(), [0x20, _, _, 0, ..]), "{body:02X?} was accepted: {answer:02X?}");
    }
}

fn mqtt_3_1_4_1_connect_properties_out_of_range_are_refused(on: &Stage) {
    let with = |properties: Properties| on.hello(Version::V5, "c").properties(properties);
    let number = |id, value| with(Properties::new().number(id, value));
    let twice = |id, value| with(Properties::new().number(id, value).number(id, value));
    let will = |properties| on.hello(Version::V5, "c").will(Will::new(on.topic("w"), "x").properties(properties));
    for connect in [
        number(id::RECEIVE_MAXIMUM, 0),
        number(id::MAXIMUM_PACKET_SIZE, 0),
        number(id::REQUEST_PROBLEM_INFORMATION, 2),
        number(id::REQUEST_RESPONSE_INFORMATION, 2),
        number(id::TOPIC_ALIAS, 1),
        number(id::SERVER_KEEP_ALIVE, 1),
        number(id::WILL_DELAY_INTERVAL, 1),
        number(0x7F, 1),
        twice(id::SESSION_EXPIRY_INTERVAL, 1),
        twice(id::RECEIVE_MAXIMUM, 1),
        twice(id::MAXIMUM_PACKET_SIZE, 1_000),
        twice(id::TOPIC_ALIAS_MAXIMUM, 1),
        with(Properties::new().binary(id::AUTHENTICATION_DATA, b"data")),
        will(Properties::new().number(id::SESSION_EXPIRY_INTERVAL, 1)),
        will(Properties::new().number(id::PAYLOAD_FORMAT_INDICATOR, 2)),
        will(Properties::new().number(id::TOPIC_ALIAS, 1)),
        will(Properties::new().number(id::SUBSCRIPTION_IDENTIFIER, 1)),
    ] {
        let code = on.refused_connect(Version::V5, &connect.bytes());
        assert!(matches!(code, None | Some(0x81 | 0x82)), "{connect:?}: {code:02X?}");
    }
}

fn mqtt_3_1_4_2_a_failed_authentication_closes(on: &Stage) {
    let Some(broker) = Setup::new().with_alice().start() else {
        return;
    };
    let on = Stage::new(&broker, on.transport);
    let hello = on.hello(Version::V5, "c");
    for connect in [
        hello.clone(),
        hello.clone().user_name("alice"),
        hello.clone().user_name("alice").password("wrong"),
        hello.clone().user_name("bob").password("secret"),
        hello.clone().password("secret"),
    ] {
        let code = on.refused_connect(Version::V5, &connect.bytes());
        assert!(matches!(code, None | Some(0x86 | 0x87)), "{code:02X?}");
    }
    on.connect(&hello.user_name("alice").password("secret"));
}

fn mqtt_3_1_4_3_takeover_disconnects_the_existing_client(on: &Stage) {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut old, _) = on.connect(&hello);
    old.subscribe(&topic, 1);
    let (mut new, ack) = on.connect(&hello);
    assert!(ack.session_present);
    assert!(old.expect_disconnect(&[reason::SESSION_TAKEN_OVER]).is_empty());
    on.v5("p").publish(&topic, "for the new one", 1);
    assert_eq!(new.take().text(), "for the new one");
    new.expect_quiet();
}

fn mqtt_3_1_4_4_clean_start_is_processed_at_takeover_too(on: &Stage) {
    let topic = on.topic("t");
    let (mut old, _) = on.connect(&on.hello(Version::V5, "c").durable(300));
    old.subscribe(&topic, 1);
    let (mut new, ack) = on.connect(&on.hello(Version::V5, "c"));
    assert!(!ack.session_present);
    old.expect_disconnect(&[reason::SESSION_TAKEN_OVER]);
    let mut publisher = on.v5("p");
    publisher.publish(&topic, "for nobody", 1);
    new.subscribe(on.topic("marker"), 0);
    assert!(got_before_marker(&mut publisher, &mut new, &on.topic("marker")).is_empty());
}

fn mqtt_3_1_4_5_an_accepted_connect_is_acknowledged_with_0(on: &Stage) {
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "c"));
    assert_eq!((ack.reason, ack.session_present), (0, false));
    client.expect_quiet();
    // A client need not wait for the CONNACK.
    let mut hasty = on.open(Version::V5);
    let topic = on.topic("t");
    let all = [
        on.hello(Version::V5, "h").bytes(),
        Subscribe::new(1).filter(&topic, 0).bytes(Version::V5),
        Publish::new(&topic, "x").bytes(Version::V5),
    ];
    hasty.send(&all.concat());
    assert!(matches!(hasty.recv(), Packet::ConnAck(ack) if ack.reason == 0));
    hasty.wait_for("SUBACK", |packet| matches!(packet, Packet::SubAck { packet_id: 1, .. }));
    assert_eq!(hasty.take().text(), "x");
}

fn mqtt_3_1_4_6_nothing_behind_a_rejected_connect_is_processed(on: &Stage) {
    let topic = on.topic("t");
    let mut watcher = on.v5("w");
    watcher.subscribe(&topic, 0);
    let rejected = on.hello(Version::V5, "c").text(id::AUTHENTICATION_METHOD, "no-such-method");
    let mut client = on.open(Version::V5);
    client.send(&[rejected.bytes(), Publish::new(&topic, "x").retained().bytes(Version::V5)].concat());
    client.until_closed();
    watcher.publish(&topic, "marker", 0);
    assert!(watcher.take_until("marker").is_empty());
    assert!(crate::retained_by(on, &mut on.v5("l"), &topic, 0).is_empty());
}
