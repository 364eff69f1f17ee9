//! Much on disk: saving does not stop service, and loading is quick and says what it does (field case 48).

use std::time::{Duration, Instant};

use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::wire::{PINGREQ, Packet, Version};

use holdfast_cluster_tests::scene::SMALL_SEGMENTS;
use holdfast_cluster_tests::scene::{Scene, kept, named, publish_many};

/// Messages for each of the sessions.
const MESSAGES: usize = 10_000;

const SESSIONS: usize = 6;

/// The longest gap of a client's service while the broker writes as much as it can; this machine runs other tests too.
const GAP_MAX: Duration = Duration::from_secs(2);

#[test]
fn field_case_48_saving_and_loading_do_not_stop_service() {
    let setup =
        Setup::new().section(SMALL_SEGMENTS).mqtt("max_queued_messages = 20000").mqtt("max_queued_bytes = \"1GB\"");
    let scene = Scene::on(setup.install());
    let name = |number: usize| named(Version::V5, &format!("s{number}"));
    for number in 0..SESSIONS {
        scene.leave_session(&kept(Version::V5, &name(number)), "t", 1);
    }
    save_beside_service(&scene);
    scene.broker.kill();
    let began = Instant::now();
    let broker = scene.installation.start_within(Duration::from_secs(30));
    let took = began.elapsed();
    eprintln!("{} queued messages are served after {took:?}", MESSAGES * SESSIONS);
    assert!(broker.log().since(0).iter().any(|line| line.field("event").as_deref() == Some("recovering")));
    let scene = Scene { broker, ..scene };
    let mut client = scene.resume(&kept(Version::V5, &name(0)));
    for number in 0..MESSAGES {
        assert!(client.take().payload == payload(number), "message {number}");
    }
    client.expect_quiet();
}

fn payload(number: usize) -> Vec<u8> {
    format!("{number:01000}").into_bytes()
}

/// Queues the messages while another client with a short Keep Alive is served.
fn save_beside_service(scene: &Scene) {
    let (mut client, _) = scene.connect(&kept(Version::V5, "served").keep_alive(3));
    client.subscribe("live", 1);
    std::thread::scope(|threads| {
        let saving = threads.spawn(|| publish_many(&mut scene.client("p"), "t", (0..MESSAGES).map(payload), &[]));
        let mut publisher = scene.client("live");
        while !saving.is_finished() {
            let began = Instant::now();
            assert_eq!(publisher.publish("live", "x", 1), 0);
            client.take();
            client.send(&PINGREQ);
            client.wait_for("PINGRESP", |packet| *packet == Packet::PingResp);
            assert!(began.elapsed() < GAP_MAX, "served after {:?}", began.elapsed());
        }
        assert_eq!(saving.join().expect("the publisher is done"), MESSAGES);
    });
}
