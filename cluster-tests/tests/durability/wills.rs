//! Wills over a kill: published once, late enough and not too late, and never when the session was resumed or left in order.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::wire::{Connect, Version, Will, id};

use holdfast_cluster_tests::scene::{BOTH_VERSIONS, Scene, kept, named, pass, texts};

const SECOND: Duration = Duration::from_secs(1);

/// A kept subscriber to all Wills, so that what is published while it is not there comes all the same.
fn watcher(scene: &Scene) -> Client {
    let (mut watcher, present) = scene.connect(&kept(Version::V5, "watcher"));
    if !present {
        watcher.subscribe("w/#", 2);
    }
    watcher
}

fn with_will(name: &str, version: Version) -> Connect {
    Connect::new(version, name).will(Will::new(format!("w/{name}"), name).qos(2))
}

fn delayed(delay_secs: u32, expiry_secs: u32) -> Connect {
    let will = Will::new("w/d", "gone").qos(2).number(id::WILL_DELAY_INTERVAL, delay_secs);
    Connect::new(Version::V5, "d").durable(expiry_secs).will(will)
}

/// Nothing of a Will came up to now.
#[track_caller]
fn no_will(scene: &Scene, watcher: &mut Client) {
    let came = scene.drain(watcher, "w/marker");
    assert!(came.is_empty(), "{:?}", texts(&came));
}

/// Kills the broker a while after the CONNACK of clients with Wills: each Will must come once.
#[track_caller]
fn published_once(after: Duration) {
    let mut scene = Scene::new();
    watcher(&scene).disconnect();
    let _clients = BOTH_VERSIONS.map(|version| scene.connect(&with_will(&named(version, "d"), version)).0);
    pass(after);
    scene.kill_and_start();
    let mut watcher_again = watcher(&scene);
    let mut came = vec![watcher_again.take().text(), watcher_again.take().text()];
    came.sort();
    assert_eq!(came, BOTH_VERSIONS.map(|version| named(version, "d")));
    no_will(&scene, &mut watcher_again);
    scene.kill_and_start();
    no_will(&scene, &mut watcher(&scene));
}

#[test]
fn the_will_of_a_client_that_was_connected_at_the_kill_is_published_once() {
    published_once(2 * SECOND);
}

/// [MQTT-3.1.2-8]: the Will is stored when the connection is accepted.
#[test]
fn a_will_is_kept_when_its_connack_is_sent() {
    published_once(Duration::ZERO);
}

#[test]
fn the_will_of_a_client_that_left_in_order_is_not_published() {
    for version in BOTH_VERSIONS {
        let mut scene = Scene::new();
        watcher(&scene).disconnect();
        scene.connect(&with_will("d", version)).0.disconnect();
        scene.kill_and_start();
        no_will(&scene, &mut watcher(&scene));
    }
}

#[test]
fn a_retained_will_is_retained() {
    let mut scene = Scene::new();
    let will = Will::new("w/d", "gone").qos(1).retained();
    let (_client, _) = scene.connect(&Connect::new(Version::V5, "d").will(will));
    watcher(&scene).disconnect();
    scene.kill_and_start();
    assert_eq!(watcher(&scene).take().text(), "gone");
    for _ in 0..2 {
        let mut reader = scene.client("reader");
        reader.subscribe("w/#", 0);
        let message = reader.recv_publish();
        assert_eq!(message.text(), "gone");
        if !message.retain {
            // Published once more, because the kill came before it was known to be done; and so it is retained.
            reader.subscribe("w/#", 0);
            assert!(reader.recv_publish().retain);
        }
        scene.kill_and_start();
    }
}

#[test]
fn a_session_resumed_within_the_delay_has_no_will() {
    let mut scene = Scene::new();
    watcher(&scene).disconnect();
    let (_client, _) = scene.connect(&delayed(4, 60));
    scene.broker.kill();
    let killed = Instant::now();
    scene.start();
    let client = scene.resume(&delayed(4, 60));
    pass((5 * SECOND).saturating_sub(killed.elapsed()));
    no_will(&scene, &mut watcher(&scene));
    client.disconnect();
    scene.kill_and_start();
    no_will(&scene, &mut watcher(&scene));
}

#[test]
fn a_will_delay_goes_on_counting_over_the_downtime() {
    // Connected at the kill, and broken off before it.
    for connected in [true, false] {
        let mut scene = Scene::new();
        watcher(&scene).disconnect();
        let (client, _) = scene.connect(&delayed(8, 60));
        let mut began = Instant::now();
        if connected {
            scene.broker.kill();
            began = Instant::now();
        } else {
            client.reset();
            // Written down lazily: time for that, in which the delay counts already.
            pass(SECOND);
            scene.broker.kill();
        }
        pass((4 * SECOND).saturating_sub(began.elapsed()));
        scene.start();
        let mut watcher = watcher(&scene);
        no_will(&scene, &mut watcher);
        assert!(began.elapsed() < 8 * SECOND, "this machine is too slow for this test");
        assert_eq!(watcher.take().text(), "gone");
        let after = began.elapsed();
        assert!((7_500..11_000).contains(&after.as_millis()), "after {after:?}, connected: {connected}");
        no_will(&scene, &mut watcher);
    }
}

#[test]
fn the_will_of_a_session_that_ends_while_the_node_is_down_is_published() {
    let mut scene = Scene::new();
    watcher(&scene).disconnect();
    let (_client, _) = scene.connect(&delayed(60, 2));
    scene.broker.kill();
    pass(3 * SECOND);
    scene.start();
    let mut watcher = watcher(&scene);
    assert_eq!(watcher.take().text(), "gone");
    no_will(&scene, &mut watcher);
}

/// The delay counts from the kill, not from the last time that something was written down.
#[test]
fn the_delay_of_a_client_that_was_connected_and_idle_counts_from_the_kill() {
    let mut scene = Scene::new();
    watcher(&scene).disconnect();
    let (_client, _) = scene.connect(&delayed(6, 60));
    pass(8 * SECOND);
    scene.kill_and_start();
    scene.resume(&delayed(6, 60)).disconnect();
    no_will(&scene, &mut watcher(&scene));
}
