//! Cases 14, 17, 18: when a Will is published, and when it never is.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Properties, Version, Will, disconnect, disconnect_with, id};

use crate::{BOTH_VERSIONS, got_before_marker, tcp, texts};

fn watcher(on: &Stage) -> Client {
    let mut watcher = on.v5("watcher");
    watcher.subscribe(on.topic("w/+"), 1);
    watcher
}

/// Nothing of a Will came to the watcher up to now.
#[track_caller]
fn no_will(on: &Stage, watcher: &mut Client) {
    let mut publisher = on.v5("marker");
    let got = got_before_marker(&mut publisher, watcher, &on.topic("w/marker"));
    assert!(got.is_empty(), "{:?}", texts(&got));
}

#[test]
fn field_case_14_each_displaced_connection_publishes_its_will_once() {
    for version in BOTH_VERSIONS {
        let on = tcp();
        let mut watcher = watcher(&on);
        let hello =
            |number: u32| on.hello(version, "d").will(Will::new(on.topic("w/d"), format!("will {number}")).qos(1));
        let (mut old, _) = on.connect(&hello(0));
        for number in 1..=20 {
            let (new, _) = on.connect(&hello(number));
            let displaced = Instant::now();
            old.until_closed();
            assert_eq!(watcher.take().text(), format!("will {}", number - 1));
            assert!(displaced.elapsed() < Duration::from_secs(2));
            old = new;
        }
        old.reset();
        assert_eq!(watcher.take().text(), "will 20");
        no_will(&on, &mut watcher);
    }
}

#[test]
fn field_case_14_a_reset_without_takeover_publishes_the_will() {
    for version in BOTH_VERSIONS {
        let on = tcp();
        let mut watcher = watcher(&on);
        let (client, _) = on.connect(&on.hello(version, "d").will(Will::new(on.topic("w/d"), "gone").qos(1)));
        client.reset();
        assert_eq!(watcher.take().text(), "gone");
        no_will(&on, &mut watcher);
    }
}

/// Connects with a Will Delay and a Session Expiry Interval in seconds, and breaks off.
fn break_off(on: &Stage, delay: u32, expiry: u32) -> Instant {
    let will = Will::new(on.topic("w/d"), "gone").qos(1).number(id::WILL_DELAY_INTERVAL, delay);
    let (client, _) = on.connect(&on.hello(Version::V5, "d").session_expiry(expiry).will(will));
    client.reset();
    Instant::now()
}

#[test]
fn field_case_17_the_will_comes_when_the_session_ends_before_its_delay() {
    let on = tcp();
    let mut watcher = watcher(&on);
    let broken = break_off(&on, 30, 2);
    assert_eq!(watcher.take().text(), "gone");
    let after = broken.elapsed();
    assert!((1_950..3_500).contains(&after.as_millis()), "after {after:?}");
    no_will(&on, &mut watcher);
}

#[test]
fn field_case_17_the_will_comes_at_once_where_the_session_ends_at_once() {
    let on = tcp();
    let mut watcher = watcher(&on);
    let broken = break_off(&on, 5, 0);
    assert_eq!(watcher.take().text(), "gone");
    assert!(broken.elapsed() < Duration::from_secs(2));
    no_will(&on, &mut watcher);
}

#[test]
fn field_case_17_a_reconnect_within_the_delay_means_no_will() {
    let on = tcp();
    let mut watcher = watcher(&on);
    break_off(&on, 1, 60);
    let (mut client, ack) = on.connect(&on.hello(Version::V5, "d").durable(60));
    assert!(ack.session_present);
    // Well past the delay.
    std::thread::sleep(Duration::from_millis(2_500));
    client.expect_quiet();
    no_will(&on, &mut watcher);
}

#[test]
fn field_case_17_a_clean_start_within_the_delay_means_the_will_at_once() {
    let on = tcp();
    let mut watcher = watcher(&on);
    break_off(&on, 30, 60);
    let (_client, ack) = on.connect(&on.hello(Version::V5, "d"));
    assert!(!ack.session_present);
    let back = Instant::now();
    assert_eq!(watcher.take().text(), "gone");
    assert!(back.elapsed() < Duration::from_secs(2));
    no_will(&on, &mut watcher);
}

#[test]
fn field_case_18_only_disconnect_with_will_publishes_the_will() {
    let on = tcp();
    let mut watcher = watcher(&on);
    for (number, (version, bytes, published)) in [
        (Version::V5, disconnect_with(0x04, &Properties::new()), true),
        (Version::V5, disconnect_with(0x00, &Properties::new()), false),
        (Version::V5, disconnect(), false),
        (Version::V311, disconnect(), false),
        (Version::V31, disconnect(), false),
    ]
    .into_iter()
    .enumerate()
    {
        let will = Will::new(on.topic("w/d"), number.to_string()).qos(1);
        let (mut client, _) = on.connect(&on.hello(version, "d").will(will));
        client.send(&bytes);
        client.expect_close();
        if published {
            assert_eq!(watcher.take().text(), number.to_string());
        }
        no_will(&on, &mut watcher);
    }
}

#[test]
fn field_case_18_a_reset_right_behind_the_disconnect_changes_nothing() {
    // What came before a reset can still be read, so the DISCONNECT counts. Many rounds, for the races.
    let on = tcp();
    let mut watcher = watcher(&on);
    for round in 0..100 {
        let will = Will::new(on.topic("w/d"), "wrong");
        let (mut client, _) = on.connect(&on.hello(Version::V5, &format!("d{round}")).will(will));
        client.send(&disconnect_with(0x00, &Properties::new()));
        client.reset();
    }
    no_will(&on, &mut watcher);
}
