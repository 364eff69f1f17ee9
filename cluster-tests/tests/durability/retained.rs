//! Retained messages over restarts (field case 21).

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::wire::{Packet, Properties, Publish, Version, id};

use holdfast_cluster_tests::scene::{Scene, kept, publish_many};

/// The retained messages that a fresh subscriber gets at its first subscribe.
#[track_caller]
fn read(scene: &Scene) -> BTreeMap<String, String> {
    let mut client = scene.client("reader");
    client.subscribe("#", 0);
    let mut found = BTreeMap::new();
    for packet in client.fence() {
        let Packet::Publish(message) = packet else { panic!("{packet:?} to a subscriber") };
        assert!(message.retain);
        assert!(found.insert(message.topic.clone(), message.text()).is_none(), "{} twice", message.topic);
    }
    found
}

fn set(publisher: &mut Client, number: usize, value: &str, qos: u8) {
    assert!(publisher.publish_retained(format!("r/{number}"), value, qos) < 0x80);
}

#[test]
fn field_case_21_retained_messages_are_complete_at_the_first_subscribe() {
    let mut scene = Scene::new();
    let mut publisher = scene.client("p");
    let mut expected = BTreeMap::new();
    for number in 0..500 {
        set(&mut publisher, number, &number.to_string(), 1 + (number % 2) as u8);
        expected.insert(format!("r/{number}"), number.to_string());
    }
    for stop in [true, false, true, false] {
        if stop {
            assert!(scene.broker.stop(Duration::from_secs(20)).success());
        } else {
            scene.broker.kill();
        }
        scene.broker = scene.installation.start_until_listening();
        let found = read(&scene);
        assert_eq!(found.len(), 500);
        assert_eq!(found, expected);
    }
}

#[test]
fn retained_messages_that_were_changed_or_deleted_stay_so() {
    let mut scene = Scene::new();
    let mut publisher = scene.client("p");
    for number in 0..60 {
        set(&mut publisher, number, "old", 1);
    }
    scene.kill_and_start();
    let mut publisher = scene.client("p");
    for number in 0..20 {
        set(&mut publisher, number, "new", 1 + (number % 2) as u8);
    }
    for number in 20..40 {
        set(&mut publisher, number, "", 1 + (number % 2) as u8);
    }
    let expected: BTreeMap<_, _> = (0..20)
        .map(|number| (number, "new"))
        .chain((40..60).map(|number| (number, "old")))
        .map(|(number, value)| (format!("r/{number}"), value.to_owned()))
        .collect();
    for _ in 0..3 {
        scene.kill_and_start();
        assert_eq!(read(&scene), expected);
    }
    // Also when what they stood in was cleaned away: 10 segments of other traffic.
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    publish_many(&mut scene.client("p"), "t", (0..10_000).map(|_| vec![b'x'; 1_000]), &[]);
    scene.connect(&kept(Version::V5, "s").clean(true)).0.disconnect();
    publish_many(&mut scene.client("p"), "t", (0..10).map(|_| vec![b'x'; 1_000]), &[]);
    scene.kill_and_start();
    assert_eq!(read(&scene), expected);
}

#[test]
fn a_retained_message_keeps_its_properties() {
    let mut scene = Scene::new();
    let properties = Properties::new().text(id::CONTENT_TYPE, "text/plain").user("a", "1").user("a", "2");
    scene.client("p").deliver(&Publish::new("r", "value").qos(1, 1).retained().properties(properties.clone()));
    scene.kill_and_start();
    let mut client = scene.client("s");
    client.subscribe("r", 1);
    let message = client.take();
    assert_eq!((message.text().as_str(), message.qos, message.retain), ("value", 1, true));
    assert_eq!(message.properties, properties);
}

#[test]
fn a_deletion_behind_another_one_is_kept_before_it_is_acknowledged() {
    // The publishers are on different shards.
    for name in ["p", "other-1", "other-2", "other-3"] {
        let mut scene = Scene::new();
        let mut publisher = scene.client("p");
        set(&mut publisher, 1, "value", 1);
        publisher.send_publish(&Publish::new("r/1", "").retained());
        publisher.fence();
        let mut again = if name == "p" { publisher } else { scene.client(name) };
        set(&mut again, 1, "", 1);
        scene.kill_and_start();
        assert_eq!(read(&scene), BTreeMap::new(), "{name}");
    }
}

/// Publishers of several shards take turns at one topic, each change acknowledged before the next; what the last one said holds after a kill.
#[test]
fn the_last_acknowledged_change_of_a_topic_holds_whoever_made_it() {
    let mut scene = Scene::new();
    for round in 0..20 {
        let mut publishers: Vec<Client> = (0..4).map(|number| scene.client(&format!("p{round}-{number}"))).collect();
        let mut last = String::new();
        for turn in 0..(7 + round * 3) {
            let number = (turn * 7 + round) % 4;
            // Now and then a change that nobody waits for, and a deletion.
            let qos = u8::from(turn % 5 != 0);
            last = if turn % 3 == 1 { String::new() } else { format!("{round}/{turn}") };
            if qos == 0 {
                publishers[number].publish_retained("r/t", &last, 0);
                publishers[number].fence();
            } else {
                assert!(publishers[number].publish_retained("r/t", &last, 1) < 0x80);
            }
        }
        assert!(publishers[round % 4].publish_retained("r/t", &last, 1) < 0x80);
        scene.kill_and_start();
        let found = read(&scene).remove("r/t").unwrap_or_default();
        assert_eq!(found, last, "round {round}");
    }
}
