//! A disk that is full or fails: nothing is acknowledged that is not kept, what needs no disk goes on, and it heals by itself.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::power_cut::{Loss, PowerCut, shim};
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::wire::{Connect, Packet, Publish, Version, Will, reason};

use crate::power_loss::start_on;
use holdfast_cluster_tests::scene::SMALL_SEGMENTS;
use holdfast_cluster_tests::scene::{Scene, kept};

/// How long it may take until the node has noticed that there is room again, and more.
const HEAL: Duration = Duration::from_secs(20);

/// A broker on a disk of ours, or `None` without a compiler.
fn on_disk() -> Option<(Scene, PowerCut)> {
    shim()?;
    let setup = Setup::new().section(SMALL_SEGMENTS).section("[sys]\ninterval = \"1s\"");
    let mut installation = setup.mqtt("max_queued_bytes = \"1GB\"").install();
    let (broker, disk) = start_on(&mut installation);
    Some((Scene { installation, broker }, disk))
}

/// What `$SYS` says of the storage, as it changes.
struct Watcher(Client);

impl Watcher {
    fn new(scene: &Scene) -> Self {
        let mut client = scene.client("watcher");
        client.subscribe("$SYS/broker/storage/state", 0);
        Self(client)
    }

    /// Waits until the state is, or is not, this one.
    #[track_caller]
    fn wait(&mut self, state: &str, equal: bool) {
        let deadline = Instant::now() + HEAL;
        loop {
            let now = self.0.take().text();
            if (now == state) == equal {
                return;
            }
            assert!(Instant::now() < deadline, "the state of the storage is still {now:?}");
        }
    }
}

/// Publishes messages of `bytes` for session `s` until one is refused with 0x97. Returns the numbers that were accepted.
#[track_caller]
fn fill(publisher: &mut Client, bytes: usize, at_most: usize) -> Vec<usize> {
    for number in 0..at_most {
        match publisher.publish("t", padded(number, bytes), 1) {
            code if code < 0x80 => {}
            reason::QUOTA_EXCEEDED => return (0..number).collect(),
            code => panic!("refused with {code:#04X}"),
        }
    }
    panic!("{at_most} messages of {bytes} bytes were accepted by a full disk");
}

/// Publishes for session `s` until it is accepted.
#[track_caller]
fn heal(publisher: &mut Client, text: &str) {
    let deadline = Instant::now() + HEAL;
    while publisher.publish("t", text, 1) >= 0x80 {
        assert!(Instant::now() < deadline, "it does not heal");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What needs no disk goes on: QoS 0, and sessions that end with their connection.
#[track_caller]
fn others_go_on(scene: &Scene) {
    let mut subscriber = scene.client("clean");
    subscriber.subscribe("clean/#", 2);
    let mut publisher = scene.client("p-clean");
    for qos in 0..3 {
        assert!(publisher.publish("clean/1", qos.to_string(), qos) < 0x80);
        assert_eq!(subscriber.take().text(), qos.to_string());
    }
    // On the topic of kept sessions too.
    subscriber.subscribe("t", 1);
    publisher.publish("t", "qos 0", 0);
    assert_eq!(subscriber.take().text(), "qos 0");
}

/// A publish of a 3.1.1 client, which cannot be refused: it is not acknowledged, and the connection lives.
#[track_caller]
fn held_back(scene: &Scene) -> Client {
    let (mut client, _) = scene.connect(&Connect::new(Version::V311, "p311"));
    client.send_publish(&Publish::new("t", "held back").qos(1, 1));
    let before = client.fence();
    assert!(before.is_empty(), "{before:?} while the disk is full");
    client
}

/// Takes as many messages for session `s` as there must be at least, on a disk that has no room for a marker behind them.
#[track_caller]
fn taken(scene: &Scene, count: usize) -> Vec<String> {
    let mut client = scene.resume(&kept(Version::V5, "s"));
    let got = (0..count).map(|_| short(&client.take().text())).collect();
    client.disconnect();
    got
}

/// The payloads that session `s` gets, without the zeros in front of numbers.
#[track_caller]
fn drained(scene: &Scene) -> Vec<String> {
    let mut client = scene.resume(&kept(Version::V5, "s"));
    let texts = scene.drain(&mut client, "t").into_iter().map(|message| message.text());
    texts.map(|text| if text.starts_with('0') { short(&text) } else { text }).collect()
}

fn short(text: &str) -> String {
    let number = text.trim_start_matches('0');
    if number.is_empty() { "0".to_owned() } else { number.to_owned() }
}

/// A number with zeros in front of it.
fn padded(number: usize, bytes: usize) -> String {
    let digits = number.to_string();
    "0".repeat(bytes - digits.len()) + &digits
}

#[track_caller]
fn has_all(got: &[String], accepted: &[usize], others: &[&str]) {
    let numbers = accepted.iter().map(ToString::to_string).chain(others.iter().map(|text| (*text).to_owned()));
    let missing: Vec<_> = numbers.filter(|text| !got.contains(text)).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
}

#[test]
fn a_full_disk_refuses_what_must_be_kept_and_heals() {
    let Some((mut scene, disk)) = on_disk() else { return };
    let mut watcher = Watcher::new(&scene);
    let healthy = watcher.0.take().text();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    let mut publisher = scene.client("p");
    publisher.publish_retained("r/old", "older", 0);
    disk.set_full(true);
    let accepted = fill(&mut publisher, 16_000, 1_000);
    assert!(!accepted.is_empty(), "there was room for some");
    watcher.wait(&healthy, false);
    // A retained value may take the place of another, but none is added, even where the publisher cannot be told.
    publisher.publish_retained("r/old", "newer", 0);
    publisher.publish_retained("r/new", "one more", 0);
    publisher.fence();
    let mut reader = scene.client("reader");
    reader.subscribe("r/#", 0);
    let retained: Vec<_> = reader.fence();
    assert!(matches!(&retained[..], [Packet::Publish(message)] if message.text() == "newer"), "{retained:?}");
    // With QoS 2 too.
    let packet_id = publisher.packet_id();
    publisher.send_publish(&Publish::new("t", vec![b'x'; 16_000]).qos(2, packet_id));
    assert_eq!(publisher.wait_pubrec(packet_id), reason::QUOTA_EXCEEDED);
    others_go_on(&scene);
    let mut p311 = held_back(&scene);
    disk.set_full(false);
    assert_eq!(p311.wait_puback(1), 0);
    heal(&mut publisher, "healed");
    watcher.wait(&healthy, true);
    // The next broker is on an ordinary disk.
    scene.installation.clear_environment();
    scene.kill_and_start();
    has_all(&drained(&scene), &accepted, &["held back", "healed"]);
}

/// A node that is killed on a full disk starts on it, has everything, and heals.
#[test]
fn a_node_starts_on_a_full_disk() {
    let Some((mut scene, disk)) = on_disk() else { return };
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    disk.set_full(true);
    let accepted = fill(&mut scene.client("p"), 16_000, 1_000);
    scene.broker.kill();
    let (broker, disk) = {
        let disk = PowerCut::over(&scene.installation.data_dir());
        for (name, value) in disk.environment(0) {
            scene.installation.set_environment(name, value);
        }
        disk.set_full(true);
        (scene.installation.start(), disk)
    };
    scene.broker = broker;
    has_all(&taken(&scene, accepted.len()), &accepted, &[]);
    disk.set_full(false);
    heal(&mut scene.client("p"), "healed");
}

/// Nothing is acknowledged while fsync fails, and nothing that was is lost, not even when the power goes.
#[test]
fn a_failing_sync_acknowledges_nothing_and_heals() {
    let Some((mut scene, disk)) = on_disk() else { return };
    let mut watcher = Watcher::new(&scene);
    let healthy = watcher.0.take().text();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    let mut publisher = scene.client("p");
    for number in 0..10 {
        assert_eq!(publisher.publish("t", number.to_string(), 1), 0);
    }
    disk.set_failing(true);
    let packet_id = publisher.packet_id();
    publisher.send_publish(&Publish::new("t", "while it fails").qos(1, packet_id));
    watcher.wait(&healthy, false);
    let mut accepted = 0;
    for packet in publisher.fence() {
        let Packet::PubAck { reason, .. } = packet else { panic!("{packet:?}") };
        accepted += usize::from(reason < 0x80);
    }
    assert!(accepted == 0 && disk.failed_syncs() > 0, "acknowledged while fsync fails");
    others_go_on(&scene);
    disk.set_failing(false);
    let mut another = scene.client("p2");
    heal(&mut another, "healed");
    watcher.wait(&healthy, true);
    scene.broker.kill();
    let image = tempfile::tempdir().expect("a temporary folder");
    disk.image(Loss::All, image.path());
    scene.installation.replace_data(image.path());
    let (broker, _disk) = start_on(&mut scene.installation);
    scene.broker = broker;
    has_all(&drained(&scene), &(0..10).collect::<Vec<_>>(), &["healed"]);
}

/// A CONNACK that would promise what the disk does not keep is not awaited for ever; nor does the Will of who was refused come.
#[test]
fn a_session_that_cannot_be_kept_is_refused_in_time() {
    let Some((scene, disk)) = on_disk() else { return };
    let mut watcher = scene.client("watcher");
    watcher.subscribe("w", 0);
    disk.set_failing(true);
    let will = Will::new("w", "never");
    for name in ["first", "second"] {
        let ack = scene.open(Version::V5).handshake(&kept(Version::V5, name).will(will.clone()));
        assert_eq!(ack.reason, reason::SERVER_UNAVAILABLE, "{name}");
    }
    disk.set_failing(false);
    let deadline = Instant::now() + HEAL;
    while scene.open(Version::V5).handshake(&kept(Version::V5, "first")).reason != 0 {
        assert!(Instant::now() < deadline, "it does not heal");
    }
    assert!(watcher.fence().is_empty(), "the Will of a connection that was refused");
}

#[test]
fn a_quota_is_as_a_full_disk_and_heals_when_messages_are_taken() {
    let setup = Setup::new()
        .section("[storage]\nmax_bytes = \"256MB\"\nsegment_bytes = \"16MB\"")
        .section("[sys]\ninterval = \"1s\"")
        .mqtt("max_queued_bytes = \"1GB\"");
    let mut scene = Scene::on(setup.install());
    let mut watcher = Watcher::new(&scene);
    let healthy = watcher.0.take().text();
    scene.leave_session(&kept(Version::V5, "s"), "t", 1);
    let mut publisher = scene.client("p");
    let accepted = fill(&mut publisher, 1_000_000, 300);
    assert!(accepted.len() > 128, "{} MB of 256 were used", accepted.len());
    watcher.wait(&healthy, false);
    others_go_on(&scene);
    scene.kill_and_start();
    let mut watcher = Watcher::new(&scene);
    has_all(&taken(&scene, accepted.len()), &accepted, &[]);
    // Taken, so there is room again.
    heal(&mut scene.client("p"), "healed");
    watcher.wait(&healthy, true);
    has_all(&drained(&scene), &[], &["healed"]);
}
