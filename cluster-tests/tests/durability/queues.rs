//! The queue of a client that is away (field case 41).

use std::time::Duration;

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::wire::{Packet, Properties, Publish, Version, first, id};

use holdfast_cluster_tests::scene::{Scene, kept, numbers, publish_many, publish_numbers, texts};

/// Reads a `$SYS` topic until it has this value.
#[track_caller]
fn wait_for_figure(scene: &Scene, name: &str, value: &str) {
    let mut watcher = scene.client("watcher");
    watcher.subscribe(format!("$SYS/broker/{name}"), 0);
    while watcher.take().text() != value {}
}

#[test]
fn field_case_41_a_full_queue_holds_what_the_policy_says_also_over_a_kill() {
    for (policy, expected) in [("drop-oldest", 201..301), ("drop-newest", 1..101)] {
        let setup = Setup::new()
            .mqtt("max_queued_messages = 100")
            .mqtt(&format!("queue_full = \"{policy}\""))
            .section("[sys]\ninterval = \"1s\"");
        let mut scene = Scene::with(setup);
        scene.leave_session(&kept(Version::V5, "s"), "t", 1);
        scene.leave_session(&kept(Version::V5, "other"), "u", 1);
        let mut publisher = scene.client("p");
        publish_numbers(&mut publisher, "u", 1..51, 1);
        publish_numbers(&mut publisher, "t", 1..301, 1);
        publish_numbers(&mut publisher, "t", 301..351, 0);
        wait_for_figure(&scene, "publish/messages/dropped/queue_full", "200");
        scene.kill_and_start();
        let mut client = scene.resume(&kept(Version::V5, "s"));
        // No marker before there is room for it.
        let got: Vec<_> = (0..100).map(|_| client.take().text()).collect();
        assert_eq!(got, numbers(expected), "{policy}");
        assert!(scene.drain(&mut client, "t").is_empty());
        let mut other = scene.resume(&kept(Version::V5, "other"));
        assert_eq!(texts(&scene.drain(&mut other, "u")), numbers(1..51));
    }
}

#[test]
fn a_message_keeps_its_properties_and_quality() {
    let mut scene = Scene::new();
    scene.leave_session(&kept(Version::V5, "s"), "t/#", 2);
    let properties = Properties::new()
        .number(id::PAYLOAD_FORMAT_INDICATOR, 1)
        .text(id::CONTENT_TYPE, "text/plain")
        .text(id::RESPONSE_TOPIC, "answer/here")
        .binary(id::CORRELATION_DATA, vec![0, 1, 255])
        .user("a", "1")
        .user("b", "");
    let mut publisher = scene.client("p");
    for qos in [1, 2] {
        publisher.deliver(&Publish::new("t/x", "x").qos(qos, 9).properties(properties.clone()));
    }
    publisher.deliver(&Publish::new("t/empty", "").qos(1, 9));
    publisher.deliver(&Publish::new("t/large", vec![7; 1_500_000]).qos(2, 9));
    scene.kill_and_start();
    let mut client = scene.resume(&kept(Version::V5, "s"));
    for qos in [1, 2] {
        let message = client.take();
        assert_eq!((message.text().as_str(), message.qos, message.retain), ("x", qos, false));
        assert_eq!(message.properties, properties);
    }
    assert!(client.take().payload.is_empty());
    let large = client.take();
    assert_eq!((large.payload, large.qos), (vec![7; 1_500_000], 2));
}

/// What is beyond the window in memory is read back from disk, in order, while more arrives.
#[test]
fn a_queue_larger_than_its_window_comes_whole_and_in_order() {
    let setup = Setup::new().section("[storage]\nsegment_bytes = \"1MB\"\nqueue_window_bytes = \"16KB\"");
    let mut scene = Scene::on(setup.install());
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    let payloads = |range: std::ops::Range<usize>| range.map(|number| format!("{number:01000}").into_bytes());
    let publish = |scene: &Scene, range: std::ops::Range<usize>| {
        let count = range.len();
        assert_eq!(publish_many(&mut scene.client("p"), "t", payloads(range), &[]), count);
    };
    publish(&scene, 0..3_000);
    scene.kill_and_start();
    publish(&scene, 3_000..3_500);
    let mut client = scene.resume(&kept(Version::V5, "s"));
    let live = std::thread::scope(|threads| {
        let live = threads.spawn(|| publish(&scene, 3_500..4_000));
        for expected in payloads(0..3_500) {
            assert!(client.take().payload == expected, "not in order");
        }
        live.join()
    });
    live.expect("the publisher is done");
    for expected in payloads(3_500..4_000) {
        assert!(client.take().payload == expected, "not in order");
    }
    client.expect_quiet();
}

/// A session that takes what comes leaves no growth of the files behind.
#[test]
fn steady_churn_leaves_no_growth_on_disk() {
    let scene = Scene::new();
    let (mut client, _) = scene.connect(&kept(Version::V5, "s"));
    client.subscribe("t", 1);
    let mut publisher = scene.client("p");
    let mut largest = [0; 2];
    for half in &mut largest {
        // 20 segments' worth each.
        for _ in 0..20 {
            publish_many(&mut publisher, "t", (0..100).map(|_| vec![b'x'; 10_000]), &[]);
            for _ in 0..100 {
                client.take();
            }
            *half = (*half).max(journal_bytes(&scene));
        }
    }
    // Twice what is live, a few segments that are being filled or made ready, and no more however long it goes on.
    let [first, second] = largest;
    assert!(second <= first.max(12_000_000), "{first} bytes at first, {second} later");
    assert!(scene.broker.is_running());
    scene.broker.stop(Duration::from_secs(20));
}

fn journal_bytes(scene: &Scene) -> u64 {
    let files = std::fs::read_dir(scene.installation.journal_dir()).expect("the journal is there");
    // A file may go while the folder is read.
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
}

/// A backlog of several windows, with QoS 1 and 2 by turns, is taken to its end over several kills.
#[test]
fn a_backlog_of_both_qualities_comes_whole() {
    for filter in ["t", "$share/g/t"] {
        let mut scene = Scene::new();
        scene.leave_session(&kept(Version::V5, "s"), filter, 2);
        let mut publisher = scene.client("p");
        for number in 0..400 {
            assert!(publisher.publish("t", number.to_string(), 1 + (number % 2) as u8) < 0x80);
        }
        let mut got = std::collections::BTreeSet::new();
        for part in [50, 150, 120] {
            scene.kill_and_start();
            let mut client = scene.resume(&kept(Version::V5, "s"));
            let mut taken = 0;
            while taken < part {
                match client.recv() {
                    Packet::Publish(message) => {
                        // QoS 2 is left between PUBREC and PUBCOMP.
                        match message.qos {
                            1 => client.send_ack(first::PUBACK, message.packet_id),
                            _ => client.send_ack(first::PUBREC, message.packet_id),
                        }
                        got.insert(message.text());
                        taken += 1;
                    }
                    Packet::PubRel { packet_id, .. } => client.send_ack(first::PUBCOMP, packet_id),
                    other => panic!("{other:?} to a subscriber"),
                }
            }
        }
        let mut client = scene.resume(&kept(Version::V5, "s"));
        got.extend(texts(&scene.drain(&mut client, "t")));
        assert_eq!(got, numbers(0..400).into_iter().collect(), "{filter}");
    }
}
