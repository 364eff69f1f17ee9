//! MQTT 3.1.1, sections 3.1 and 3.2, where they differ from 5.0.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Connect, Packet, Publish, Version, Will, first, packet};

use crate::got_before_marker;

over_tcp_and_websocket! {
    mqtt311_3_1_0_2_a_second_connect_closes,
    mqtt311_3_1_2_2_an_unsupported_level_is_answered_with_1,
    mqtt311_3_1_2_3_the_reserved_connect_flag_is_0,
    mqtt311_3_1_2_4_without_clean_session_the_session_is_kept,
    mqtt311_3_1_2_5_qos_1_and_2_are_stored_while_away,
    mqtt311_3_1_2_6_clean_session_lasts_as_long_as_the_connection,
    mqtt311_3_1_2_7_retained_messages_are_no_part_of_the_session,
    mqtt311_3_1_2_8_the_will_is_published_unless_disconnected,
    mqtt311_3_1_2_10_after_disconnect_there_is_no_will,
    mqtt311_3_1_2_13_will_flags_without_will_are_refused,
    mqtt311_3_1_2_14_a_will_qos_of_3_is_refused,
    mqtt311_3_1_2_17_a_will_may_be_retained,
    mqtt311_3_1_2_22_a_password_needs_a_user_name,
    mqtt311_3_1_2_24_a_silent_client_is_closed,
    mqtt311_3_1_3_6_an_empty_client_id_is_assigned_one,
    mqtt311_3_1_3_8_an_empty_client_id_needs_clean_session,
    mqtt311_3_1_4_1_a_malformed_connect_is_closed_without_connack,
    mqtt311_3_1_4_2_takeover_closes_the_existing_client,
    mqtt311_3_1_4_2_takeover_across_versions,
    mqtt311_3_1_4_5_nothing_behind_a_rejected_connect_is_processed,
    mqtt311_3_2_2_1_session_present_is_0_with_clean_session,
    mqtt311_3_2_2_2_session_present_is_1_where_there_is_a_session,
    mqtt311_3_2_2_4_an_error_has_session_present_0_and_closes,
}

fn hello(on: &Stage) -> Connect {
    on.hello(Version::V311, "c")
}

/// Ends a session that would otherwise stay.
fn clean_up(on: &Stage) {
    on.v311("c").disconnect();
}

fn mqtt311_3_1_0_2_a_second_connect_closes(on: &Stage) {
    on.closed_after_connect_v311(&hello(on).bytes());
}

fn mqtt311_3_1_2_2_an_unsupported_level_is_answered_with_1(on: &Stage) {
    for level in [0, 1, 2, 6, 99] {
        let mut connect = hello(on);
        connect.level = level;
        let mut client = on.open(Version::V311);
        client.send(&connect.bytes());
        let answer = client.bytes_until_closed();
        // In the form of 3.1.1, which is what a client that knows no other version can read, or that of 5.0.
        let of_v5 = matches!(answer.as_slice(), [0x20, _, 0, 0x84, ..]) && level > 5;
        assert!(answer == [0x20, 2, 0, 1] || of_v5, "level {level}: {answer:02X?}");
    }
}

fn mqtt311_3_1_2_3_the_reserved_connect_flag_is_0(on: &Stage) {
    assert_eq!(on.refused_connect(Version::V311, &hello(on).flags(3).bytes()), None);
}

fn mqtt311_3_1_2_4_without_clean_session_the_session_is_kept(on: &Stage) {
    let (mut client, ack) = on.connect(&hello(on).clean(false));
    assert!(!ack.session_present);
    client.subscribe(on.topic("t"), 1);
    client.reset();
    let (mut client, ack) = on.connect(&hello(on).clean(false));
    assert!(ack.session_present);
    client.publish(on.topic("t"), "still subscribed", 1);
    assert_eq!(client.take().text(), "still subscribed");
    clean_up(on);
}

fn mqtt311_3_1_2_5_qos_1_and_2_are_stored_while_away(on: &Stage) {
    let (mut client, _) = on.connect(&hello(on).clean(false));
    client.subscribe(on.topic("t"), 2);
    client.disconnect();
    let mut publisher = on.v311("p");
    for number in 0..10 {
        publisher.publish(on.topic("t"), number.to_string(), 1 + number % 2);
    }
    let (mut client, _) = on.connect(&hello(on).clean(false));
    for number in 0..10 {
        let message = client.take();
        assert_eq!((message.text(), message.qos), (number.to_string(), 1 + number % 2));
    }
    clean_up(on);
}

fn mqtt311_3_1_2_6_clean_session_lasts_as_long_as_the_connection(on: &Stage) {
    let (mut client, _) = on.connect(&hello(on).clean(false));
    client.subscribe(on.topic("t"), 1);
    client.disconnect();
    let mut publisher = on.v311("p");
    publisher.publish(on.topic("t"), "queued", 1);
    // The old session is gone, and so is the new one after its connection.
    let (mut client, ack) = on.connect(&hello(on));
    assert!(!ack.session_present);
    client.expect_quiet();
    client.subscribe(on.topic("u"), 1);
    client.disconnect();
    publisher.publish(on.topic("u"), "for nobody", 1);
    let (mut client, ack) = on.connect(&hello(on).clean(false));
    assert!(!ack.session_present);
    client.subscribe(on.topic("marker"), 0);
    assert!(got_before_marker(&mut publisher, &mut client, &on.topic("marker")).is_empty());
    clean_up(on);
}

fn mqtt311_3_1_2_7_retained_messages_are_no_part_of_the_session(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v311("c");
    client.publish_retained(&topic, "stays", 1);
    client.disconnect();
    let mut later = on.v311("l");
    later.subscribe(&topic, 1);
    assert_eq!(later.take().text(), "stays");
    later.publish_retained(&topic, "", 1);
}

fn mqtt311_3_1_2_8_the_will_is_published_unless_disconnected(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v311("w");
    watcher.subscribe(&will, 2);
    for qos in 0..3 {
        let (client, _) = on.connect(&hello(on).will(Will::new(&will, "gone").qos(qos)));
        client.reset();
        let message = watcher.take();
        assert_eq!((message.text().as_str(), message.qos, message.retain), ("gone", qos, false));
    }
    // A takeover closes the connection without a DISCONNECT.
    let (mut old, _) = on.connect(&hello(on).will(Will::new(&will, "taken over")));
    let (_new, _) = on.connect(&hello(on));
    old.expect_close();
    assert_eq!(watcher.take().text(), "taken over");
}

fn mqtt311_3_1_2_10_after_disconnect_there_is_no_will(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v311("w");
    watcher.subscribe(&will, 2);
    for clean in [true, false] {
        let (client, _) = on.connect(&hello(on).clean(clean).will(Will::new(&will, "gone")));
        client.disconnect();
    }
    let (client, _) = on.connect(&hello(on));
    client.reset();
    let mut publisher = on.v311("p");
    assert!(got_before_marker(&mut publisher, &mut watcher, &will).is_empty());
}

fn mqtt311_3_1_2_13_will_flags_without_will_are_refused(on: &Stage) {
    for flags in [0x0A, 0x12, 0x22, 0x3A] {
        assert_eq!(on.refused_connect(Version::V311, &hello(on).flags(flags).bytes()), None);
    }
}

fn mqtt311_3_1_2_14_a_will_qos_of_3_is_refused(on: &Stage) {
    let connect = hello(on).will(Will::new(on.topic("w"), "x").qos(3));
    assert_eq!(on.refused_connect(Version::V311, &connect.bytes()), None);
}

fn mqtt311_3_1_2_17_a_will_may_be_retained(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v311("w");
    watcher.subscribe(&will, 1);
    let (client, _) = on.connect(&hello(on).will(Will::new(&will, "gone").qos(1).retained()));
    client.reset();
    assert!(!watcher.take().retain);
    let mut later = on.v311("l");
    later.subscribe(&will, 1);
    assert!(later.take().retain);
    later.publish_retained(&will, "", 1);
}

fn mqtt311_3_1_2_22_a_password_needs_a_user_name(on: &Stage) {
    let connect = hello(on).password("secret");
    let code = on.refused_connect(Version::V311, &connect.bytes());
    assert!(matches!(code, None | Some(4 | 5)), "{code:?}");
    // Each flag without its field, and each field without its flag.
    for (connect, flags) in [
        (hello(on), 0x82),
        (hello(on).user_name("u"), 0xC2),
        (hello(on).user_name("u"), 0x02),
        (hello(on).user_name("u").password("p"), 0x82),
    ] {
        assert_eq!(on.refused_connect(Version::V311, &connect.flags(flags).bytes()), None);
    }
}

fn mqtt311_3_1_2_24_a_silent_client_is_closed(on: &Stage) {
    let will = on.topic("will");
    let mut watcher = on.v311("w");
    watcher.subscribe(&will, 0);
    let (mut client, _) = on.connect(&hello(on).keep_alive(1).will(Will::new(&will, "gone")));
    let start = std::time::Instant::now();
    client.expect_close();
    let passed = start.elapsed();
    assert!((1_450..3_500).contains(&passed.as_millis()), "closed after {passed:?}");
    assert_eq!(watcher.take().text(), "gone");
}

fn mqtt311_3_1_3_6_an_empty_client_id_is_assigned_one(on: &Stage) {
    let mut clients: Vec<_> = (0..3).map(|_| on.connect(&Connect::new(Version::V311, "")).0).collect();
    for client in &mut clients {
        client.expect_quiet();
    }
}

fn mqtt311_3_1_3_8_an_empty_client_id_needs_clean_session(on: &Stage) {
    let connect = Connect::new(Version::V311, "").clean(false);
    assert_eq!(on.refused_connect(Version::V311, &connect.bytes()), Some(2));
}

fn mqtt311_3_1_4_1_a_malformed_connect_is_closed_without_connack(on: &Stage) {
    let whole = hello(on).will(Will::new(on.topic("w"), "x")).user_name("u").password("p").body();
    let mut bodies: Vec<_> = (0..whole.len()).map(|cut| whole[..cut].to_vec()).collect();
    bodies.push([&whole[..], &[0]].concat());
    for body in bodies {
        let mut client = on.open(Version::V311);
        client.send(&packet(first::CONNECT, &body));
        let answer = client.bytes_until_closed();
        assert!(answer.is_empty(), "{body:02X?} was answered with {answer:02X?}");
    }
}

fn mqtt311_3_1_4_2_takeover_closes_the_existing_client(on: &Stage) {
    let (mut old, _) = on.connect(&hello(on).clean(false));
    old.subscribe(on.topic("t"), 1);
    let (mut new, ack) = on.connect(&hello(on).clean(false));
    assert!(ack.session_present);
    old.expect_close();
    new.publish(on.topic("t"), "x", 1);
    assert_eq!(new.take().text(), "x");
    clean_up(on);
}

fn mqtt311_3_1_4_2_takeover_across_versions(on: &Stage) {
    let (mut v311, _) = on.connect(&hello(on).clean(false));
    v311.subscribe(on.topic("t"), 1);
    let (mut v5, ack) = on.connect(&on.hello(Version::V5, "c").durable(300));
    v311.expect_close();
    assert!(ack.session_present);
    v5.publish(on.topic("t"), "x", 1);
    assert_eq!(v5.take().text(), "x");
    let (_v311, ack) = on.connect(&hello(on).clean(false));
    assert!(ack.session_present);
    v5.expect_disconnect(&[holdfast_cluster_tests::wire::reason::SESSION_TAKEN_OVER]);
    clean_up(on);
}

fn mqtt311_3_1_4_5_nothing_behind_a_rejected_connect_is_processed(on: &Stage) {
    let topic = on.topic("t");
    let mut watcher = on.v311("w");
    watcher.subscribe(&topic, 0);
    let rejected = Connect::new(Version::V311, "").clean(false);
    let mut client = on.open(Version::V311);
    client.send(&[rejected.bytes(), Publish::new(&topic, "x").bytes(Version::V311)].concat());
    client.until_closed();
    watcher.publish(&topic, "marker", 0);
    assert!(watcher.take_until("marker").is_empty());
}

fn mqtt311_3_2_2_1_session_present_is_0_with_clean_session(on: &Stage) {
    let (client, _) = on.connect(&hello(on).clean(false));
    client.disconnect();
    let (_, ack) = on.connect(&hello(on));
    assert!(!ack.session_present);
}

fn mqtt311_3_2_2_2_session_present_is_1_where_there_is_a_session(on: &Stage) {
    for present in [false, true, true] {
        let (client, ack) = on.connect(&hello(on).clean(false));
        assert_eq!(ack.session_present, present);
        client.disconnect();
    }
    clean_up(on);
}

fn mqtt311_3_2_2_4_an_error_has_session_present_0_and_closes(on: &Stage) {
    // The parser refuses Session Present with an error; `refused_connect` waits for the close.
    let Some(broker) = Setup::new().with_alice().start() else {
        return;
    };
    let on = &Stage::new(&broker, on.transport);
    let good = hello(on).clean(false).user_name("alice").password("secret");
    let (client, _) = on.connect(&good);
    client.disconnect();
    let bad = hello(on).clean(false).user_name("alice").password("wrong");
    assert!(matches!(on.refused_connect(Version::V311, &bad.bytes()), Some(4 | 5)));
    assert!(matches!(on.refused_connect(Version::V311, &hello(on).bytes()), Some(4 | 5)));
    let (mut client, ack) = on.connect(&good);
    assert!(ack.session_present);
    assert!(client.fence().iter().all(|packet| !matches!(packet, Packet::ConnAck(_))));
}
