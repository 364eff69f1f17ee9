//! Case 43: shared subscriptions whose members go away.

use std::collections::BTreeMap;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Message, Packet, Version};

use crate::{got_before_marker, tcp};

/// A durable member of the group.
fn member(on: &Stage, name: &str) -> Client {
    let (mut client, _) = on.connect(&on.hello(Version::V5, name).durable(3_600));
    client.subscribe(on.share("t"), 1);
    client
}

fn publish(publisher: &mut Client, on: &Stage, range: std::ops::Range<u32>) {
    for number in range {
        publisher.publish(on.topic("t"), number.to_string(), 1);
    }
}

/// How often each number came, with and without DUP.
#[derive(Default)]
struct Got(BTreeMap<u32, (u32, u32)>);

impl Got {
    fn note(&mut self, message: &Message) {
        let entry = self.0.entry(message.text().parse().expect("a number")).or_default();
        if message.dup {
            entry.1 += 1;
        } else {
            entry.0 += 1;
        }
    }

    /// Takes and acknowledges all that waits at a client.
    fn drain(&mut self, client: &mut Client) {
        for packet in client.fence() {
            let Packet::Publish(message) = packet else { panic!("{packet:?}") };
            client.acknowledge(&message);
            self.note(&message);
        }
    }

    /// Drains all of them until every number below `count` has come.
    #[track_caller]
    fn drain_until(&mut self, clients: &mut [&mut Client], count: u32) {
        let deadline = std::time::Instant::now() + holdfast_cluster_tests::transport::PATIENCE;
        while self.0.len() < count as usize {
            assert!(std::time::Instant::now() < deadline, "{} of {count} came", self.0.len());
            for client in clients.iter_mut() {
                self.drain(client);
            }
        }
    }

    #[track_caller]
    fn each_came_once(&self) {
        let twice: Vec<_> = self.0.iter().filter(|(_, (first, _))| *first > 1).collect();
        assert!(twice.is_empty(), "came twice without DUP: {twice:?}");
    }
}

#[test]
fn field_case_43_what_a_dead_member_had_not_acknowledged_goes_to_the_others() {
    let on = tcp();
    let mut publisher = on.v5("p");
    let (mut stays, mut dies) = (member(&on, "stays"), on.v5("dies"));
    dies.subscribe(on.share("t"), 1);
    publish(&mut publisher, &on, 0..50);
    let mut got = Got::default();
    got.drain(&mut stays);
    // It has received some and acknowledged none; its session ends with its connection.
    dies.reset();
    publish(&mut publisher, &on, 50..100);
    got.drain_until(&mut [&mut stays], 100);
    got.each_came_once();
}

#[test]
fn field_case_43_an_offline_member_is_passed_over_while_another_is_online() {
    let on = tcp();
    let mut publisher = on.v5("p");
    let (mut stays, leaves) = (member(&on, "stays"), member(&on, "leaves"));
    leaves.disconnect();
    publish(&mut publisher, &on, 0..100);
    for number in 0..100 {
        assert_eq!(stays.take().text(), number.to_string());
    }
    // Nothing was parked for the other one.
    let mut back = member(&on, "leaves");
    back.subscribe(on.topic("marker"), 0);
    assert!(got_before_marker(&mut publisher, &mut back, &on.topic("marker")).is_empty());
}

#[test]
fn field_case_43_with_nobody_online_an_offline_member_keeps_the_messages() {
    let on = tcp();
    let mut publisher = on.v5("p");
    for name in ["a", "b"] {
        member(&on, name).disconnect();
    }
    publish(&mut publisher, &on, 0..50);
    let mut got = Got::default();
    let (mut a, mut b) = (member(&on, "a"), member(&on, "b"));
    got.drain_until(&mut [&mut a, &mut b], 50);
    got.each_came_once();
}

#[test]
fn field_case_43_members_that_restart_in_turn_lose_nothing() {
    let on = tcp();
    let mut publisher = on.v5("p");
    let names = ["a", "b", "c"];
    let mut members: Vec<_> = names.iter().map(|name| member(&on, name)).collect();
    let mut got = Got::default();
    for round in 0..12 {
        publish(&mut publisher, &on, round * 20..(round + 1) * 20);
        // One of them breaks off in the middle of its messages, half of them unacknowledged, and comes back.
        let which = round as usize % 3;
        got.drain(&mut members[which]);
        publish(&mut publisher, &on, 1_000 + round * 20..1_000 + (round + 1) * 20);
        let old = std::mem::replace(&mut members[which], on.v5("placeholder"));
        if round % 2 == 0 {
            old.reset()
        } else {
            old.disconnect()
        }
        let (client, _) = on.connect(&on.hello(Version::V5, names[which]).durable(3_600));
        members[which] = client;
    }
    let mut all: Vec<_> = members.iter_mut().collect();
    got.drain_until(&mut all, 480);
    got.each_came_once();
}
