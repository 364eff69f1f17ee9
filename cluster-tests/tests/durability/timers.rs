//! What counts down goes on counting while the node is down (field case 24).

use std::time::{Duration, Instant};

use holdfast_cluster_tests::wire::{Connect, Publish, Version, id};

use holdfast_cluster_tests::scene::{Scene, kept, numbers, pass, texts};

const SECOND: Duration = Duration::from_secs(1);

fn expiring(secs: u32) -> Connect {
    Connect::new(Version::V5, "s").durable(secs)
}

#[test]
fn field_case_24_a_retained_message_says_what_is_left_of_its_expiry() {
    let mut scene = Scene::new();
    let mut publisher = scene.client("p");
    let retain =
        |topic: &str, secs| Publish::new(topic, "value").qos(1, 1).retained().number(id::MESSAGE_EXPIRY_INTERVAL, secs);
    let published = Instant::now();
    publisher.deliver(&retain("r/long", 60));
    publisher.deliver(&retain("r/short", 2));
    scene.broker.kill();
    pass(3 * SECOND);
    scene.start();
    let mut client = scene.client("s");
    client.subscribe("r/#", 0);
    let message = client.recv_publish();
    let age = u32::try_from(published.elapsed().as_secs()).expect("a few seconds");
    assert_eq!(message.topic, "r/long");
    let left = message.properties.get_number(id::MESSAGE_EXPIRY_INTERVAL).expect("a Message Expiry Interval");
    assert!((60 - age - 1..=60 - age + 1).contains(&left), "{left} s left after {age} s");
    client.expect_quiet();
}

#[test]
fn field_case_24_queued_messages_expire_while_the_node_is_down() {
    let mut scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    let mut publisher = scene.client("p");
    for number in 1..21usize {
        let packet_id = publisher.packet_id();
        let mut publish = Publish::new("t", number.to_string()).qos(1, packet_id);
        if number > 10 {
            publish = publish.number(id::MESSAGE_EXPIRY_INTERVAL, 2);
        }
        assert_eq!(publisher.deliver(&publish), 0);
    }
    scene.broker.kill();
    pass(3 * SECOND);
    scene.start();
    let mut client = scene.resume(&kept(Version::V5, "s"));
    assert_eq!(texts(&scene.drain(&mut client, "t")), numbers(1..11));
}

#[test]
fn field_case_24_a_session_ends_while_the_node_is_down() {
    let mut scene = Scene::new();
    let (mut client, _) = scene.connect(&expiring(2));
    client.subscribe("t", 1);
    client.reset();
    // The end of the connection is known to the node when another client has been answered behind it.
    scene.client("p").publish("t", "1", 1);
    scene.broker.kill();
    pass(4 * SECOND);
    scene.start();
    let (mut client, present) = scene.connect(&expiring(2));
    assert!(!present);
    scene.client("p").publish("t", "2", 1);
    client.expect_quiet();
}

#[test]
fn a_restart_does_not_begin_the_session_expiry_anew() {
    let mut scene = Scene::new();
    scene.leave_session(&expiring(6), "t", 1);
    let left = Instant::now();
    scene.broker.kill();
    pass(4 * SECOND);
    scene.start();
    // Within the interval it would be present; it ends 6 s after the DISCONNECT, not 6 s after the start.
    pass(Duration::from_millis(7_500).saturating_sub(left.elapsed()));
    let (_, present) = scene.connect(&expiring(6));
    assert!(!present, "present {:?} after its end", left.elapsed());
}

#[test]
fn a_session_is_present_within_its_expiry() {
    let mut scene = Scene::new();
    scene.leave_session(&expiring(60), "t", 1);
    scene.broker.kill();
    pass(2 * SECOND);
    scene.start();
    scene.resume(&expiring(60));
}

/// The interval counts from the end of the connection, which is the kill, not from the last time that something was written down.
#[test]
fn the_session_of_a_client_that_was_connected_and_idle_counts_from_the_kill() {
    let mut scene = Scene::new();
    let (mut client, _) = scene.connect(&expiring(6));
    client.subscribe("t", 1);
    // Longer than the interval, without anything to write down.
    pass(8 * SECOND);
    scene.kill_and_start();
    scene.resume(&expiring(6));
}
