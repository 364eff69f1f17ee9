//! Cases 40, 41: a subscriber that does not read, and a full offline queue.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{Publish, Version, id};

use crate::{start, texts};

#[test]
fn field_case_40_a_subscriber_that_does_not_read_costs_bounded_memory() {
    stalled_subscribers(1, 20_000);
}

#[test]
fn field_case_40_many_subscribers_that_do_not_read_cost_bounded_memory() {
    stalled_subscribers(50, 2_000);
}

/// Publishes `count` messages of 1 KB while `stalled` pairs of subscribers (QoS 0, and QoS 1 without acknowledgements) read nothing.
fn stalled_subscribers(stalled: usize, count: u32) {
    let limits = "max_packet_size = \"64KB\"\nmax_queued_bytes = \"256KB\"\nmax_queued_messages = 10000";
    let broker = start(Setup::new().mqtt(limits));
    let on = Stage::new(&broker, Transport::Tcp);
    let topic = on.topic("t");
    let mut quiet = Vec::new();
    for number in 0..stalled {
        for qos in [0, 1] {
            let hello = on.hello(Version::V5, &format!("s{number}q{qos}")).number(id::RECEIVE_MAXIMUM, 65_535);
            let (mut client, _) = on.connect(&hello);
            client.subscribe(&topic, qos);
            quiet.push(client);
        }
    }
    let mut reader = on.v5("reader");
    reader.subscribe(&topic, 1);
    let mut publisher = on.v5("p");
    run(&mut publisher, &mut reader, &topic, 200);
    let before = broker.resident_bytes();
    let p99 = run(&mut publisher, &mut reader, &topic, count);
    let grown = broker.resident_bytes().saturating_sub(before);
    // The queue, the window and the buffer of each, with room for what the allocator keeps.
    let allowed = (16 << 20) + quiet.len() as u64 * (1 << 20);
    assert!(grown < allowed, "{} KB for {} subscribers", grown >> 10, quiet.len());
    assert!(p99 < Duration::from_millis(500), "the reader waited {p99:?} for a message");
    assert!(broker.is_running());
}

/// Sends numbered messages of 1 KB in batches; the reader gets each of them. The time from sending to having
/// a batch that 99 of 100 stay below.
fn run(publisher: &mut Client, reader: &mut Client, topic: &str, count: u32) -> Duration {
    const BATCH: u32 = 50;
    let mut times = Vec::new();
    for start in (0..count).step_by(BATCH as usize) {
        let mut bytes = Vec::new();
        for number in start..start + BATCH {
            let mut payload = vec![b'x'; 1_024];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            let packet_id = (number % BATCH) as u16 + 1;
            bytes.extend(Publish::new(topic, payload).qos(1, packet_id).bytes(Version::V5));
        }
        let sent = Instant::now();
        publisher.send(&bytes);
        for number in start..start + BATCH {
            let message = reader.take();
            assert_eq!(message.payload[..4], number.to_be_bytes(), "the reader missed something");
        }
        times.push(sent.elapsed());
        for packet_id in 1..=BATCH as u16 {
            publisher.wait_puback(packet_id);
        }
    }
    times.sort();
    times[(times.len() - 1) * 99 / 100]
}

/// A broker whose queues hold 100 messages, with this policy.
fn with_policy(policy: &str) -> Broker {
    let lines = format!("max_queued_messages = 100\nqueue_full = \"{policy}\"");
    start(Setup::new().mqtt(&lines).section("[sys]\ninterval = \"1s\""))
}

/// What a durable subscriber finds that was away while 300 QoS 1 and 50 QoS 0 messages were published.
fn found_on_return(on: &Stage) -> Vec<String> {
    let topic = on.topic("t");
    let hello = on.hello(Version::V5, "s").durable(3_600);
    let (mut client, _) = on.connect(&hello);
    client.subscribe(&topic, 1);
    client.disconnect();
    let mut publisher = on.v5("p");
    for number in 1..=300 {
        // The PUBACK of the next one says that this one, too, has arrived or was dropped.
        if number % 6 == 0 {
            publisher.publish(&topic, format!("qos 0 {number}"), 0);
        }
        publisher.publish(&topic, number.to_string(), 1);
    }
    let (mut client, ack) = on.connect(&hello);
    assert!(ack.session_present);
    publisher.publish(&topic, "marker", 1);
    let got = texts(&client.take_until("marker"));
    // The subscription is unharmed.
    publisher.publish(&topic, "after", 1);
    assert_eq!(client.take().text(), "after");
    got
}

/// The counter of drops for this reason reaches the number.
#[track_caller]
fn dropped(on: &Stage, reason: &str, count: u32) {
    let mut watcher = on.v5("watcher");
    watcher.subscribe("$SYS/broker/publish/messages/dropped/#", 0);
    let deadline = Instant::now() + holdfast_cluster_tests::transport::PATIENCE;
    let mut last = String::from("nothing");
    while Instant::now() < deadline {
        let message = watcher.take();
        if message.topic.ends_with(reason) {
            last = message.text();
            if last == count.to_string() {
                return;
            }
        }
    }
    panic!("{reason} is {last}, not {count}");
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[test]
fn field_case_41_a_full_offline_queue_drops_the_oldest() {
    let broker = with_policy("drop-oldest");
    let on = Stage::new(&broker, Transport::Tcp);
    assert_eq!(found_on_return(&on), numbers(201..=300));
    dropped(&on, "queue_full", 200);
}

#[test]
fn field_case_41_a_full_offline_queue_drops_the_newest() {
    let broker = with_policy("drop-newest");
    let on = Stage::new(&broker, Transport::Tcp);
    assert_eq!(found_on_return(&on), numbers(1..=100));
    dropped(&on, "queue_full", 200);
}

#[test]
fn field_case_41_qos_0_is_queued_where_that_is_asked_for() {
    let broker = start(Setup::new().mqtt("queue_qos0 = true"));
    let on = Stage::new(&broker, Transport::Tcp);
    assert_eq!(found_on_return(&on).len(), 350);
}
