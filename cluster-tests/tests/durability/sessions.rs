//! Sessions over a kill: what was promised is there, what was ended is not (field case 9 and more).

use holdfast_cluster_tests::wire::{Connect, Version, id};

use holdfast_cluster_tests::scene::{BOTH_VERSIONS, Scene, kept, named, numbers, publish_numbers, texts};

#[test]
fn field_case_09_what_is_acknowledged_before_its_client_returns_arrives() {
    let mut scene = Scene::new();
    for version in BOTH_VERSIONS {
        scene.leave_session(&kept(version, &named(version, "s")), "q/#", 1);
    }
    scene.broker.kill();
    // From the first connection that is accepted.
    scene.broker = scene.installation.start_until_listening();
    publish_numbers(&mut scene.client("p"), "q/1", 1..101, 1);
    for version in BOTH_VERSIONS {
        let mut client = scene.resume(&kept(version, &named(version, "s")));
        assert_eq!(texts(&scene.drain(&mut client, "q/1")), numbers(1..101));
    }
}

#[test]
fn subscriptions_survive_with_their_options() {
    let mut scene = Scene::new();
    let (mut client, _) = scene.connect(&kept(Version::V5, "s"));
    let no_local_and_retain_as_published = 0x04 | 0x08 | 1;
    client.send_subscribe(
        &holdfast_cluster_tests::wire::Subscribe::new(1).filter("a/+", no_local_and_retain_as_published).identifier(77),
    );
    client.subscribe("b", 2);
    assert_eq!(client.unsubscribe("b"), [0]);
    scene.kill_and_start();
    let mut client = scene.resume(&kept(Version::V5, "s"));
    client.publish("a/own", "own", 1);
    let mut publisher = scene.client("p");
    publisher.publish("b", "unsubscribed", 1);
    publisher.publish_retained("a/1", "kept", 2);
    let message = client.take();
    assert_eq!((message.text().as_str(), message.qos, message.retain), ("kept", 1, true));
    assert_eq!(message.properties.ids(), [id::SUBSCRIPTION_IDENTIFIER]);
    client.expect_quiet();
}

#[test]
fn a_clean_start_ends_the_stored_session_for_good() {
    for version in BOTH_VERSIONS {
        let mut scene = Scene::new();
        scene.leave_session(&kept(version, "s"), "t", 1);
        publish_numbers(&mut scene.client("p"), "t", 1..4, 1);
        // The CONNACK is the promise.
        let (client, present) = scene.connect(&Connect::new(version, "s").clean(true));
        assert!(!present);
        scene.kill_and_start();
        drop(client);
        let (mut client, present) = scene.connect(&kept(version, "s"));
        assert!(!present, "{version:?}: it came back");
        publish_numbers(&mut scene.client("p"), "t", 4..5, 1);
        client.expect_quiet();
    }
}

#[test]
fn a_clean_start_of_a_kept_session_leaves_nothing_of_the_one_before() {
    let mut scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "old", 1);
    publish_numbers(&mut scene.client("p"), "old", 1..4, 1);
    let (mut client, present) = scene.connect(&kept(Version::V5, "s").clean(true));
    assert!(!present);
    client.subscribe("new", 1);
    scene.kill_and_start();
    let mut client = scene.resume(&kept(Version::V5, "s"));
    publish_numbers(&mut scene.client("p"), "old", 4..5, 1);
    publish_numbers(&mut scene.client("p"), "new", 5..6, 1);
    assert_eq!(texts(&scene.drain(&mut client, "new")), ["5"]);
}

#[test]
fn a_session_that_ends_with_its_connection_is_gone() {
    let mut scene = Scene::new();
    let connect = Connect::new(Version::V5, "s").clean(false);
    let (mut client, _) = scene.connect(&connect);
    client.subscribe("t", 1);
    publish_numbers(&mut scene.client("p"), "t", 1..4, 1);
    scene.kill_and_start();
    let (mut client, present) = scene.connect(&connect);
    assert!(!present);
    publish_numbers(&mut scene.client("p"), "t", 4..5, 1);
    client.expect_quiet();
}

#[test]
fn a_takeover_and_then_a_kill_lose_nothing() {
    for version in BOTH_VERSIONS {
        let mut scene = Scene::new();
        let (mut first, _) = scene.connect(&kept(version, "s"));
        first.subscribe("t", 1);
        publish_numbers(&mut scene.client("p"), "t", 1..6, 1);
        // On their way to the first connection, and not acknowledged.
        for number in numbers(1..6) {
            assert_eq!(first.recv_publish().text(), number);
        }
        let mut second = scene.resume(&kept(version, "s"));
        second.subscribe("u", 1);
        scene.kill_and_start();
        let mut third = scene.resume(&kept(version, "s"));
        publish_numbers(&mut scene.client("p"), "u", 6..8, 1);
        assert_eq!(texts(&scene.drain(&mut third, "t")), numbers(1..8));
    }
}

#[test]
fn a_stop_keeps_as_much_as_a_kill() {
    let mut scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t", 2);
    publish_numbers(&mut scene.client("p"), "t", 1..101, 1);
    publish_numbers(&mut scene.client("p"), "t", 101..201, 2);
    let status = scene.broker.stop(std::time::Duration::from_secs(20));
    assert!(status.success(), "{status}");
    scene.start();
    let mut client = scene.resume(&kept(Version::V5, "s"));
    assert_eq!(texts(&scene.drain(&mut client, "t")), numbers(1..201));
}

#[test]
fn what_was_taken_does_not_come_for_ever() {
    let mut scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    publish_numbers(&mut scene.client("p"), "t", 1..51, 1);
    let mut client = scene.resume(&kept(Version::V5, "s"));
    assert_eq!(texts(&scene.drain(&mut client, "t")), numbers(1..51));
    client.disconnect();
    // What was acknowledged with QoS 1 may be sent again after one kill, not after an orderly stop.
    scene.broker.stop(std::time::Duration::from_secs(20));
    scene.start();
    let mut client = scene.resume(&kept(Version::V5, "s"));
    assert_eq!(scene.drain(&mut client, "t"), []);
}
