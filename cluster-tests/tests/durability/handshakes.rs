//! QoS 2 handshakes, cut at every step by a kill of the broker: the message is delivered once.

use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::wire::{Packet, Publish, Version, first, id};

use holdfast_cluster_tests::scene::{BOTH_VERSIONS, Scene, kept, numbers, texts};

/// A kept subscriber `s`, which is away, and a kept publisher `p`.
fn begin(version: Version) -> (Scene, Client) {
    let scene = Scene::new();
    scene.leave_session(&kept(version, "s"), "t", 2);
    let (publisher, _) = scene.connect(&kept(version, "p"));
    (scene, publisher)
}

/// The messages that `s` gets.
#[track_caller]
fn got(scene: &Scene, version: Version) -> Vec<String> {
    let mut client = scene.resume(&kept(version, "s"));
    let got = texts(&scene.drain(&mut client, "t"));
    client.disconnect();
    got
}

fn message(packet_id: u16) -> Publish {
    Publish::new("t", "message").qos(2, packet_id)
}

/// Sends a PUBREL and waits for its PUBCOMP, which may say that the identifier is not known.
#[track_caller]
fn release(publisher: &mut Client, packet_id: u16) {
    publisher.send_ack(first::PUBREL, packet_id);
    let reason = publisher.wait_pubcomp(packet_id);
    assert!([0, 0x92].contains(&reason), "{reason:#04X} to a PUBREL");
}

#[test]
fn a_publish_sent_again_after_its_pubrec_is_known() {
    for version in BOTH_VERSIONS {
        let (mut scene, mut publisher) = begin(version);
        publisher.send_publish(&message(7));
        assert_eq!(publisher.wait_pubrec(7), 0);
        scene.kill_and_start();
        // Twice, as if neither PUBREC had come.
        for _ in 0..2 {
            let mut publisher = scene.resume(&kept(version, "p"));
            publisher.send_publish(&message(7).dup());
            assert_eq!(publisher.wait_pubrec(7), 0);
            scene.kill_and_start();
        }
        release(&mut scene.resume(&kept(version, "p")), 7);
        assert_eq!(got(&scene, version), ["message"]);
    }
}

#[test]
fn a_publish_sent_again_before_its_pubrec_is_answered_as_often_as_it_came() {
    for version in BOTH_VERSIONS {
        let scene = Scene::new();
        // Most of them are on other shards than the publisher, whose PUBREC waits for what they have to keep.
        for number in 0..16 {
            scene.leave_session(&kept(version, &format!("s{number}")), "t", 2);
        }
        let (mut publisher, _) = scene.connect(&kept(version, "p"));
        // At once, so that both are read before anything is on disk.
        let both = [message(7).bytes(version), message(7).dup().bytes(version)].concat();
        publisher.send(&both);
        for _ in 0..2 {
            assert_eq!(publisher.wait_pubrec(7), 0);
        }
        release(&mut publisher, 7);
        let mut first = scene.resume(&kept(version, "s0"));
        assert_eq!(texts(&scene.drain(&mut first, "t")), ["message"]);
    }
}

#[test]
fn a_publish_cut_off_before_its_pubrec_is_taken_once() {
    for version in BOTH_VERSIONS {
        let (mut scene, mut publisher) = begin(version);
        for packet_id in 1..=8 {
            let publish = Publish::new("t", packet_id.to_string()).qos(2, packet_id);
            publisher.send_publish(&publish);
            // It may or may not have been taken; the kills come at different distances.
            for _ in 1..packet_id {
                publisher.fence();
            }
            scene.kill_and_start();
            publisher = scene.connect(&kept(version, "p")).0;
            publisher.send_publish(&publish.dup());
            assert_eq!(publisher.wait_pubrec(packet_id), 0);
            release(&mut publisher, packet_id);
        }
        assert_eq!(got(&scene, version), numbers(1..9));
    }
}

#[test]
fn a_pubrel_sent_again_is_answered() {
    for version in BOTH_VERSIONS {
        let (mut scene, mut publisher) = begin(version);
        publisher.send_publish(&message(7));
        publisher.wait_pubrec(7);
        publisher.send_ack(first::PUBREL, 7);
        scene.kill_and_start();
        let mut publisher = scene.resume(&kept(version, "p"));
        release(&mut publisher, 7);
        scene.kill_and_start();
        assert_eq!(got(&scene, version), ["message"]);
    }
}

#[test]
fn an_identifier_is_free_after_its_pubcomp() {
    for version in BOTH_VERSIONS {
        let (mut scene, mut publisher) = begin(version);
        for text in ["first", "second", "third"] {
            publisher.send_publish(&Publish::new("t", text).qos(2, 7));
            assert_eq!(publisher.wait_pubrec(7), 0);
            publisher.send_ack(first::PUBREL, 7);
            assert_eq!(publisher.wait_pubcomp(7), 0, "{text}");
            scene.kill_and_start();
            publisher = scene.resume(&kept(version, "p"));
        }
        assert_eq!(got(&scene, version), ["first", "second", "third"]);
    }
}

/// Connects `s` with one message of QoS 2 queued and receives it, without an answer: its packet identifier.
fn receive(version: Version) -> (Scene, Client, u16) {
    let (scene, mut publisher) = begin(version);
    assert!(publisher.deliver(&message(1)) < 0x80);
    let mut subscriber = scene.resume(&kept(version, "s"));
    let packet_id = subscriber.recv_publish().packet_id;
    (scene, subscriber, packet_id)
}

/// What comes next for `s` after a kill, and Session Present.
fn next(scene: &Scene, version: Version) -> (Client, Packet) {
    let mut subscriber = scene.resume(&kept(version, "s"));
    let packet = subscriber.recv();
    (subscriber, packet)
}

#[test]
fn a_message_without_its_pubrec_comes_again() {
    for version in BOTH_VERSIONS {
        let (mut scene, _subscriber, packet_id) = receive(version);
        scene.kill_and_start();
        let (mut subscriber, packet) = next(&scene, version);
        let Packet::Publish(message) = packet else { panic!("{packet:?}") };
        // A client that had seen it tells it from a new one by its identifier.
        assert_eq!((message.packet_id, message.text().as_str()), (packet_id, "message"));
        subscriber.acknowledge(&message);
        scene.kill_and_start();
        assert_eq!(got(&scene, version), [""; 0]);
    }
}

#[test]
fn a_message_whose_pubrec_may_not_have_come_keeps_its_identifier() {
    for version in BOTH_VERSIONS {
        for fences in 0..3 {
            let (mut scene, mut subscriber, packet_id) = receive(version);
            subscriber.send_ack(first::PUBREC, packet_id);
            for _ in 0..fences {
                subscriber.fence();
            }
            scene.kill_and_start();
            let (mut subscriber, packet) = next(&scene, version);
            match packet {
                // The client has the identifier, so it knows this for a repetition.
                Packet::Publish(message) => {
                    assert_eq!(message.packet_id, packet_id);
                    subscriber.acknowledge(&message);
                }
                Packet::PubRel { packet_id: there, .. } => {
                    assert_eq!(there, packet_id);
                    subscriber.send_ack(first::PUBCOMP, packet_id);
                }
                other => panic!("{other:?}"),
            }
            scene.kill_and_start();
            // A PUBREL may come again when its PUBCOMP was not written down; the message may not.
            subscriber = scene.resume(&kept(version, "s"));
            for packet in subscriber.fence() {
                assert!(matches!(packet, Packet::PubRel { .. }), "{packet:?}");
            }
        }
    }
}

#[test]
fn after_its_pubrel_a_message_never_comes_again() {
    for version in BOTH_VERSIONS {
        let (mut scene, mut subscriber, packet_id) = receive(version);
        subscriber.send_ack(first::PUBREC, packet_id);
        subscriber.wait_pubrel(packet_id);
        for _ in 0..2 {
            scene.kill_and_start();
            let (_, packet) = next(&scene, version);
            let is_release = matches!(packet, Packet::PubRel { packet_id: there, .. } if there == packet_id);
            assert!(is_release, "{packet:?} instead of PUBREL");
        }
        let (mut subscriber, _) = next(&scene, version);
        subscriber.send_ack(first::PUBCOMP, packet_id);
        subscriber.disconnect();
        assert_eq!(got(&scene, version), [""; 0]);
    }
}

#[test]
fn many_handshakes_in_different_states_go_on_where_they_were() {
    let version = Version::V5;
    let (mut scene, mut publisher) = begin(version);
    for number in 1..10 {
        publisher.deliver(&Publish::new("t", number.to_string()).qos(2, number));
    }
    let mut subscriber = scene.resume(&kept(version, "s"));
    let messages: Vec<_> = (1..10).map(|_| subscriber.recv_publish()).collect();
    // Three are done, three are received, three are only sent.
    for message in &messages[..6] {
        subscriber.send_ack(first::PUBREC, message.packet_id);
        subscriber.wait_pubrel(message.packet_id);
    }
    for message in &messages[..3] {
        subscriber.send_ack(first::PUBCOMP, message.packet_id);
    }
    subscriber.fence();
    scene.kill_and_start();
    let mut subscriber = scene.resume(&kept(version, "s"));
    let mut again = Vec::new();
    while again.len() < 3 {
        match subscriber.recv() {
            Packet::Publish(message) => again.push((message.packet_id, message.text())),
            Packet::PubRel { packet_id, .. } => assert!(messages[..6].iter().any(|there| there.packet_id == packet_id)),
            other => panic!("{other:?}"),
        }
    }
    let expected: Vec<_> = messages[6..].iter().map(|message| (message.packet_id, message.text())).collect();
    assert_eq!(again, expected);
    subscriber.expect_quiet();
}

/// Several kept subscribers of `t` that are away, on different shards.
fn leave_subscribers(scene: &Scene, qos: u8) {
    for number in 0..8 {
        scene.leave_session(&kept(Version::V5, &format!("away-{number}")), "t", qos);
    }
}

#[test]
fn a_publish_sent_twice_before_its_pubrec_gets_two() {
    for version in BOTH_VERSIONS {
        let (scene, mut publisher) = begin(version);
        leave_subscribers(&scene, 2);
        let mut bytes = message(7).bytes(version);
        bytes.extend(message(7).dup().bytes(version));
        bytes.extend(message(8).bytes(version));
        publisher.send(&bytes);
        for packet_id in [7, 7, 8] {
            assert_eq!(publisher.wait_pubrec(packet_id), 0);
        }
        release(&mut publisher, 7);
        release(&mut publisher, 8);
        assert_eq!(got(&scene, version), ["message", "message"]);
    }
}

#[test]
fn a_message_of_qos_1_out_of_qos_2_does_not_come_back_once_acknowledged() {
    const PUBLISHERS: usize = 4;
    const MESSAGES: u16 = 1_000;
    let version = Version::V5;
    let mut scene = Scene::new();
    // So many that the shards do not keep pace with each other.
    for number in 0..60 {
        scene.leave_session(&kept(version, &format!("away-{number}")), "t", 1);
    }
    let one_at_a_time = |name: &str| kept(version, name).number(id::RECEIVE_MAXIMUM, 1);
    let mut names = Vec::new();
    let mut threads = Vec::new();
    for number in 0..6 {
        let name = format!("slow-{number}");
        let (mut client, _) = scene.connect(&one_at_a_time(&name));
        client.subscribe("t", 1);
        names.push(name);
        threads.push(std::thread::spawn(move || {
            for _ in 0..PUBLISHERS * usize::from(MESSAGES) {
                client.take();
            }
            client.fence();
            client.disconnect();
        }));
    }
    for number in 0..PUBLISHERS {
        let (mut publisher, _) = scene.connect(&kept(version, &format!("p-{number}")));
        threads.push(std::thread::spawn(move || {
            for packet_id in 1..=MESSAGES {
                publisher.send_publish(&Publish::new("t", packet_id.to_string()).qos(2, packet_id));
                if packet_id % 50 == 0 {
                    for packet_id in packet_id - 49..=packet_id {
                        assert_eq!(publisher.wait_pubrec(packet_id), 0);
                        publisher.send_ack(first::PUBREL, packet_id);
                    }
                }
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("all is sent, and taken"));
    assert!(scene.broker.stop(Duration::from_secs(20)).success());
    scene.start();
    for name in names {
        let mut client = scene.resume(&one_at_a_time(&name));
        assert_eq!(texts(&scene.drain(&mut client, "t")), [""; 0], "{name}");
        client.disconnect();
    }
}
