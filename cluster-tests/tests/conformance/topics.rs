//! Section 4.7: topic names and topic filters.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Packet, Publish, Subscribe, Unsubscribe, Version};

use crate::BAD_PACKET;

over_tcp_and_websocket! {
    mqtt_4_7_0_1_wildcards_are_for_filters_only,
    mqtt_4_7_1_1_the_multi_level_wildcard_is_last_and_alone,
    mqtt_4_7_1_2_the_single_level_wildcard_is_a_whole_level,
    mqtt_4_7_1_2_wildcards_match_as_in_the_examples,
    mqtt_4_7_2_1_wildcards_do_not_match_dollar_topics,
    mqtt_4_7_3_1_names_and_filters_have_at_least_one_character,
    mqtt_4_7_3_2_names_and_filters_have_no_null_character,
    mqtt_4_7_3_3_names_and_filters_may_have_65535_bytes,
    mqtt_4_7_3_4_nothing_is_normalized,
}

fn mqtt_4_7_0_1_wildcards_are_for_filters_only(on: &Stage) {
    for name in ["#", "+", "a/+"] {
        on.refused_after_connect(&Publish::new(on.topic(name), "x").bytes(Version::V5), &[0x81, 0x82, 0x90]);
    }
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

fn mqtt_4_7_1_1_the_multi_level_wildcard_is_last_and_alone(on: &Stage) {
    for filter in ["##", "a#", "a/b#", "#/a", "a/#/b", "/#/", "a/#b", "+#", "a/##"] {
        refused_filter(on, filter);
    }
}

fn mqtt_4_7_1_2_the_single_level_wildcard_is_a_whole_level(on: &Stage) {
    for filter in ["++", "a+", "+a", "a/+b", "a/b+/c", "a/++/b"] {
        refused_filter(on, filter);
    }
}

fn mqtt_4_7_1_2_wildcards_match_as_in_the_examples(on: &Stage) {
    // Filter, names that match, names that do not (sections 4.7.1.2 and 4.7.1.3, below this test's first level).
    for (filter, matching, others) in [
        ("#", &["a", "a/b", "/", "", "a//"][..], &[][..]),
        (
            "sport/tennis/player1/#",
            &["sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/a/b"],
            &["sport/tennis/player2", "sport/tennis", "sport/tennis/player11"],
        ),
        (
            "sport/tennis/+",
            &["sport/tennis/player1", "sport/tennis/"],
            &["sport/tennis", "sport/tennis/player1/ranking"],
        ),
        ("sport/+", &["sport/", "sport/a"], &["sport", "sport/a/b"]),
        ("+/tennis/#", &["sport/tennis", "/tennis", "x/tennis/a/b"], &["tennis", "sport/golf"]),
        ("sport/+/player1", &["sport/tennis/player1", "sport//player1"], &["sport/player1", "sport/a/b/player1"]),
        ("+/+", &["/finance", "a/b", "/"], &["finance", "a/b/c"]),
        ("/+", &["/finance", "/"], &["finance", "/a/b"]),
        ("+", &["finance", ""], &["/finance", "finance/"]),
    ] {
        let mut client = on.v5("c");
        client.subscribe(on.topic(filter), 0);
        client.subscribe(on.client_id("marker"), 0);
        for name in matching.iter().chain(others) {
            client.publish(on.topic(name), "x", 0);
        }
        client.publish(on.client_id("marker"), "marker", 0);
        let got: Vec<_> = client.take_until("marker").into_iter().map(|message| message.topic).collect();
        let expected: Vec<_> = matching.iter().map(|name| on.topic(name)).collect();
        assert_eq!(got, expected, "{filter}");
    }
}

fn mqtt_4_7_2_1_wildcards_do_not_match_dollar_topics(on: &Stage) {
    let own = on.topic("");
    let name = format!("$own/{own}x");
    let mut client = on.v5("c");
    // At the first level only.
    for filter in ["#".to_owned(), format!("+/{own}#"), format!("+/{own}x"), "+/+/#".to_owned()] {
        client.subscribe(filter, 0);
    }
    client.publish(&name, "dollar", 0);
    client.publish(on.topic("marker"), "marker", 0);
    let got = client.take_until("marker");
    assert!(!got.iter().any(|message| message.topic.starts_with('$')), "{got:?}");
    let mut client = on.v5("d");
    for filter in [name.clone(), format!("$own/{own}+"), format!("$own/{own}#")] {
        client.subscribe(filter, 0);
    }
    client.publish(&name, "dollar", 0);
    assert_eq!(client.take().topic, name);
    // A `$` elsewhere is a character like any other.
    let mut client = on.v5("e");
    client.subscribe(on.topic("+"), 0);
    client.publish(on.topic("$x"), "x", 0);
    assert_eq!(client.take().topic, on.topic("$x"));
}

fn mqtt_4_7_3_1_names_and_filters_have_at_least_one_character(on: &Stage) {
    on.refused_after_connect(&Publish::new("", "x").bytes(Version::V5), &[0x81, 0x82, 0x90]);
    refused_filter(on, "");
    let mut client = on.v5("c");
    client.send(&Unsubscribe::new(1).filter("").bytes(Version::V5));
    match client.recv() {
        Packet::UnsubAck { codes, .. } => assert_ne!(codes, [0]),
        Packet::Disconnect { .. } => client.expect_close(),
        other => panic!("{other:?}"),
    }
}

fn mqtt_4_7_3_2_names_and_filters_have_no_null_character(on: &Stage) {
    on.refused_after_connect(&Publish::new("a/\0", "x").bytes(Version::V5), BAD_PACKET);
    on.refused_after_connect(&Subscribe::new(1).filter("a/\0", 0).bytes(Version::V5), BAD_PACKET);
}

fn mqtt_4_7_3_3_names_and_filters_may_have_65535_bytes(on: &Stage) {
    // One level, so that no limit on levels is in the way.
    let prefix = on.topic("");
    let long = format!("{prefix}{}", "x".repeat(65_535 - prefix.len()));
    let mut client = on.v5("c");
    assert_eq!(client.subscribe(&long, 1), 1);
    client.publish(&long, "long", 1);
    let message = client.take();
    assert!(message.topic == long && message.text() == "long");
}

fn mqtt_4_7_3_4_nothing_is_normalized(on: &Stage) {
    // Pairs that Unicode normalization, case folding, trimming or percent-decoding would make equal.
    for (filter, other) in [
        ("\u{E9}", "e\u{301}"),
        ("A", "a"),
        ("a ", "a"),
        ("a//b", "a/b"),
        ("a/", "a"),
        ("a/../b", "b"),
        ("%41", "A"),
        ("\u{FB01}", "fi"),
        ("a\u{200B}", "a"),
    ] {
        let mut client = on.v5("c");
        client.subscribe(on.topic(filter), 0);
        client.publish(on.topic(other), "other", 0);
        client.publish(on.topic(filter), "same", 0);
        let message = client.take();
        assert_eq!((message.topic, message.payload), (on.topic(filter), b"same".to_vec()));
    }
}
