//! Drops that are known beforehand, and what the counters make of them: by reason, and together with what was received and delivered.

use std::time::Duration;

use holdfast_cluster_tests::cluster::admin;
use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::scene::{Scene, kept, pass};
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Publish, Version, id};

/// The samples of one moment.
struct Counts(String);

impl Counts {
    fn of(broker: &Broker) -> Counts {
        Counts(admin::get(broker.admin(), "/metrics", PATIENCE).expect("the admin port answers").1)
    }

    #[track_caller]
    fn sum(&self, name: &str, labels: &[&str]) -> u64 {
        let found = admin::metric(&self.0, &format!("holdfast_{name}"), labels);
        found.unwrap_or_else(|| panic!("no {name} in {}", self.0)) as u64
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.sum("messages_dropped_total", &[&format!("reason=\"{reason}\"")])
    }
}

/// Of each reason so many; `$SYS` is off, as its messages are counted too.
fn drop_known_numbers(scene: &Scene) {
    scene.leave_session(&kept(Version::V5, "full"), "q/#", 1);
    scene.leave_session(&kept(Version::V5, "late"), "e/#", 1);
    let (mut small, _) = scene.connect(&Connect::new(Version::V5, "small").number(id::MAXIMUM_PACKET_SIZE, 60));
    small.subscribe("big/#", 0);
    let mut publisher = scene.client("publisher");
    for number in 0..300 {
        publisher.publish("q/a", number.to_string(), 1);
    }
    for _ in 0..50 {
        let packet_id = publisher.packet_id();
        let expiring = Publish::new("e/a", "x").qos(1, packet_id).number(id::MESSAGE_EXPIRY_INTERVAL, 1);
        publisher.deliver(&expiring);
    }
    for _ in 0..10 {
        publisher.publish("big/a", "x".repeat(200), 1);
    }
    for _ in 0..20 {
        publisher.publish("forbidden/a", "x", 1);
    }
    for _ in 0..30 {
        publisher.publish("nobody/a", "x", 1);
    }
    for _ in 0..5 {
        publisher.publish("q/a", "x", 0);
    }
    publisher.fence();
}

/// Field case 50.
#[test]
fn field_case_50_drops_are_counted_by_reason_and_add_up_with_what_came_and_went() {
    let setup = Setup::new()
        .mqtt("max_queued_messages = 100")
        .section("[sys]\ninterval = \"off\"")
        .file("acl.conf", "topic readwrite #\ntopic deny forbidden/#\n")
        .section("[acl]\nfile = \"acl.conf\"");
    let scene = Scene::with(setup);
    drop_known_numbers(&scene);
    let full = scene.drain(&mut scene.resume(&kept(Version::V5, "full")), "q/end");
    assert_eq!(full.len(), 100);
    // Their second has to pass; what has expired is found when it would be sent.
    pass(Duration::from_millis(1_500));
    scene.drain(&mut scene.resume(&kept(Version::V5, "late")), "e/end");
    let counts = Counts::of(&scene.broker);
    let expected = [
        ("queue_full", 200),
        ("expired", 50),
        ("too_large", 10),
        ("acl", 20),
        ("no_subscribers", 30),
        ("disconnected", 5),
        ("qos0_slow", 0),
    ];
    for (reason, number) in expected {
        assert_eq!(counts.dropped(reason), number, "{reason}: {}", counts.0);
    }
    // Every message had one subscriber at the most.
    let received = counts.sum("publish_received_total", &[]);
    let (delivered, dropped) = (counts.sum("publish_delivered_total", &[]), counts.sum("messages_dropped_total", &[]));
    let queued = counts.sum("queue_messages", &[]);
    assert_eq!(received, delivered + dropped + queued, "{}", counts.0);
}
