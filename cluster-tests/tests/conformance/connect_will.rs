//! Section 3.1: the Will.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Connect, Properties, Version, Will, first, id, packet, prefixed};

use crate::got_before_marker;

over_tcp_and_websocket! {
    mqtt_3_1_2_7_the_will_belongs_to_the_session,
    mqtt_3_1_2_8_the_will_is_published_when_the_connection_breaks,
    mqtt_3_1_2_8_the_will_waits_for_its_delay,
    mqtt_3_1_2_8_the_will_does_not_wait_longer_than_the_session,
    mqtt_3_1_2_9_a_will_flag_without_its_fields_is_refused,
    mqtt_3_1_2_10_a_will_is_published_once,
    mqtt_3_1_2_11_a_will_qos_without_will_flag_is_refused,
    mqtt_3_1_2_12_a_will_has_qos_0_1_or_2,
    mqtt_3_1_2_13_a_will_retain_without_will_flag_is_refused,
    mqtt_3_1_2_14_a_will_without_retain_is_not_retained,
    mqtt_3_1_2_15_a_will_with_retain_is_retained,
    mqtt_3_1_3_9_a_reconnect_within_the_delay_cancels_the_will,
    mqtt_3_1_3_9_a_clean_start_within_the_delay_publishes_the_will,
    mqtt_3_1_3_10_the_will_travels_with_its_properties_in_order,
    mqtt_3_1_3_11_a_will_topic_that_is_no_topic_is_refused,
    mqtt_3_1_4_3_takeover_publishes_a_will_without_delay,
}

/// A client subscribed to the Will's topic, for a marker too.
fn watcher(on: &Stage) -> Client {
    let mut watcher = on.v5("watcher");
    watcher.subscribe(on.topic("will"), 2);
    watcher
}

fn will(on: &Stage) -> Will {
    Will::new(on.topic("will"), "gone")
}

fn mqtt_3_1_2_7_the_will_belongs_to_the_session(on: &Stage) {
    // Each connection's own Will, or none.
    let mut watcher = watcher(on);
    for (number, payload) in [Some("first"), None, Some("third")].into_iter().enumerate() {
        let mut hello = on.hello(Version::V5, "c").durable(300);
        if let Some(payload) = payload {
            hello = hello.will(Will::new(on.topic("will"), payload));
        }
        let (client, ack) = on.connect(&hello);
        assert_eq!(ack.session_present, number > 0);
        client.reset();
        if let Some(payload) = payload {
            assert_eq!(watcher.take().text(), payload);
        }
    }
    let mut publisher = on.v5("p");
    assert!(got_before_marker(&mut publisher, &mut watcher, &on.topic("will")).is_empty());
}

fn mqtt_3_1_2_8_the_will_is_published_when_the_connection_breaks(on: &Stage) {
    let mut watcher = watcher(on);
    // By a reset, by an end of the stream, by a protocol error.
    for way in 0..3 {
        let (mut client, _) = on.connect(&on.hello(Version::V5, "c").will(will(on)));
        match way {
            0 => client.reset(),
            1 => drop(client),
            _ => {
                client.send(&[0xC1, 0]);
                client.expect_disconnect(crate::BAD_PACKET);
            }
        }
        assert_eq!(watcher.take().text(), "gone");
    }
}

fn mqtt_3_1_2_8_the_will_waits_for_its_delay(on: &Stage) {
    let mut watcher = watcher(on);
    let will = will(on).number(id::WILL_DELAY_INTERVAL, 1);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").durable(300).will(will));
    let start = Instant::now();
    client.reset();
    assert_eq!(watcher.take().text(), "gone");
    let passed = start.elapsed();
    assert!((950..3_000).contains(&passed.as_millis()), "published after {passed:?}");
}

fn mqtt_3_1_2_8_the_will_does_not_wait_longer_than_the_session(on: &Stage) {
    let mut watcher = watcher(on);
    for (expiry, earliest, latest) in [(0, 0, 900), (1, 950, 3_000)] {
        let will = will(on).number(id::WILL_DELAY_INTERVAL, 60);
        let (client, _) = on.connect(&on.hello(Version::V5, "c").session_expiry(expiry).will(will));
        let start = Instant::now();
        client.reset();
        assert_eq!(watcher.take().text(), "gone");
        let passed = start.elapsed();
        assert!((earliest..latest).contains(&passed.as_millis()), "expiry {expiry}: published after {passed:?}");
    }
}

fn mqtt_3_1_2_9_a_will_flag_without_its_fields_is_refused(on: &Stage) {
    let head = [&prefixed("MQTT")[..], &[5, 0b110, 0, 60, 0], &prefixed(on.client_id("c"))].concat();
    let parts = [&[0][..], &prefixed(on.topic("will"))].concat();
    for cut in [&[][..], &[0], &parts, &[&parts[..], &[0]].concat()] {
        let code = on.refused_connect(Version::V5, &packet(first::CONNECT, &[&head[..], cut].concat()));
        assert!(matches!(code, None | Some(0x81 | 0x82)), "{code:02X?}");
    }
}

fn mqtt_3_1_2_10_a_will_is_published_once(on: &Stage) {
    let mut watcher = watcher(on);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").durable(300).will(will(on)));
    client.reset();
    assert_eq!(watcher.take().text(), "gone");
    // The session lives on without it, through another break and its end.
    let (client, ack) = on.connect(&on.hello(Version::V5, "c").durable(300));
    assert!(ack.session_present);
    client.reset();
    let (client, _) = on.connect(&on.hello(Version::V5, "c"));
    client.disconnect();
    let mut publisher = on.v5("p");
    assert!(got_before_marker(&mut publisher, &mut watcher, &on.topic("will")).is_empty());
}

/// A CONNECT with these flags and no Will fields must be refused.
fn refused_with_flags(on: &Stage, connect: &Connect, flags: u8) {
    let code = on.refused_connect(Version::V5, &connect.clone().flags(flags).bytes());
    assert!(matches!(code, None | Some(0x81 | 0x82)), "{code:02X?}");
}

fn mqtt_3_1_2_11_a_will_qos_without_will_flag_is_refused(on: &Stage) {
    for qos in [1, 2, 3] {
        refused_with_flags(on, &on.hello(Version::V5, "c"), 0x02 | qos << 3);
    }
}

fn mqtt_3_1_2_12_a_will_has_qos_0_1_or_2(on: &Stage) {
    let mut watcher = watcher(on);
    for qos in 0..3 {
        let (client, _) = on.connect(&on.hello(Version::V5, "c").will(will(on).qos(qos)));
        client.reset();
        assert_eq!(watcher.take().qos, qos);
    }
    refused_with_flags(on, &on.hello(Version::V5, "c").will(will(on)), 0x02 | 0x04 | 3 << 3);
}

fn mqtt_3_1_2_13_a_will_retain_without_will_flag_is_refused(on: &Stage) {
    refused_with_flags(on, &on.hello(Version::V5, "c"), 0x22);
}

fn mqtt_3_1_2_14_a_will_without_retain_is_not_retained(on: &Stage) {
    let mut watcher = watcher(on);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").will(will(on)));
    client.reset();
    assert!(!watcher.take().retain);
    assert!(crate::retained_by(on, &mut on.v5("later"), &on.topic("will"), 0).is_empty());
}

fn mqtt_3_1_2_15_a_will_with_retain_is_retained(on: &Stage) {
    let mut watcher = watcher(on);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").will(will(on).qos(1).retained()));
    client.reset();
    watcher.take();
    let mut later = on.v5("later");
    later.subscribe(on.topic("will"), 2);
    let message = later.take();
    assert_eq!((message.text().as_str(), message.retain, message.qos), ("gone", true, 1));
    watcher.publish_retained(on.topic("will"), "", 1);
}

fn mqtt_3_1_3_9_a_reconnect_within_the_delay_cancels_the_will(on: &Stage) {
    let mut watcher = watcher(on);
    let hello = on.hello(Version::V5, "c").durable(300);
    let delayed = will(on).number(id::WILL_DELAY_INTERVAL, 1);
    let (client, _) = on.connect(&hello.clone().will(delayed));
    client.reset();
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    crate::let_pass(Duration::from_millis(1_300));
    client.expect_quiet();
    assert!(got_before_marker(&mut client, &mut watcher, &on.topic("will")).is_empty());
}

fn mqtt_3_1_3_9_a_clean_start_within_the_delay_publishes_the_will(on: &Stage) {
    // Clean Start ends the session, and with it the wait (section 3.1.2.5).
    let mut watcher = watcher(on);
    let delayed = will(on).number(id::WILL_DELAY_INTERVAL, 60);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").durable(300).will(delayed));
    client.reset();
    let start = Instant::now();
    let (_client, ack) = on.connect(&on.hello(Version::V5, "c"));
    assert!(!ack.session_present);
    assert_eq!(watcher.take().text(), "gone");
    assert!(start.elapsed() < Duration::from_secs(5));
}

fn mqtt_3_1_3_10_the_will_travels_with_its_properties_in_order(on: &Stage) {
    let mut watcher = watcher(on);
    let properties = Properties::new()
        .number(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .text(id::CONTENT_TYPE, "text/plain")
        .text(id::RESPONSE_TOPIC, "answers")
        .binary(id::CORRELATION_DATA, [0, 1, 255])
        .user("b", "1")
        .user("a", "2")
        .user("b", "1");
    let (client, _) = on.connect(&on.hello(Version::V5, "c").will(will(on).properties(properties)));
    client.reset();
    let got = watcher.take().properties;
    assert_eq!(got.users(), [("b", "1"), ("a", "2"), ("b", "1")]);
    assert_eq!(got.get_number(id::PAYLOAD_FORMAT_INDICATOR), Some(1));
    assert_eq!(got.get_text(id::CONTENT_TYPE), Some("text/plain"));
    assert_eq!(got.get_text(id::RESPONSE_TOPIC), Some("answers"));
    assert_eq!(got.get_binary(id::CORRELATION_DATA), Some(&[0, 1, 255][..]));
    assert!(!got.has(id::WILL_DELAY_INTERVAL));
}

fn mqtt_3_1_3_11_a_will_topic_that_is_no_topic_is_refused(on: &Stage) {
    for topic in [&b"will/\xC3("[..], b"will\0", b"will/#", b"will/+/x", b""] {
        let code = on.refused_connect(Version::V5, &on.hello(Version::V5, "c").will(Will::new(topic, "x")).bytes());
        assert!(matches!(code, None | Some(0x81 | 0x82 | 0x90)), "{topic:?}: {code:02X?}");
    }
}

fn mqtt_3_1_4_3_takeover_publishes_a_will_without_delay(on: &Stage) {
    let mut watcher = watcher(on);
    let hello = on.hello(Version::V5, "c").durable(300);
    let (mut old, _) = on.connect(&hello.clone().will(will(on)));
    let (_new, _) = on.connect(&hello);
    old.until_closed();
    assert_eq!(watcher.take().text(), "gone");
}
