//! Sessions whose clients are away, publishers that count, and whether the sessions get what they must.
//!
//! A [`Counter`] publishes its name and 0, 1, 2, …, knows what was acknowledged, and can be moved to another node, where it sends again what was not. An [`Estate`] is
//! the kept sessions that one node leaves behind; its verdict is the default one of the field cases: what was acknowledged came, in order, and
//! of QoS 2 once. Each lives in the thread of its test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::{Cluster, ClusterStage};
use crate::client::{Client, Event};
use crate::wire::{Message, Packet, Publish, Version, first, reason};

/// The level below which counters publish.
const TOPIC: &str = "estate";

/// How long the next message of a session may take that has some.
const NEXT: Duration = Duration::from_secs(20);

/// A packet identifier is a number and one.
const NUMBERS_MAX: u32 = 60_000;

/// A publisher with a kept session.
pub struct Counter<'c> {
    on: &'c ClusterStage<'c>,
    name: String,
    qos: u8,
    /// Bytes of a payload, at the least.
    size: usize,
    client: Client,
    next: u32,
    /// What was sent and is not acknowledged to the end; whether PUBREC has come, and PUBREL was sent.
    open: BTreeMap<u32, bool>,
    acked: BTreeSet<u32>,
    given_up: BTreeSet<u32>,
}

impl<'c> Counter<'c> {
    #[track_caller]
    pub fn new(on: &'c ClusterStage<'c>, node: usize, name: &str, qos: u8) -> Self {
        let (client, _) = on.connect(node, &on.kept(name).keep_alive(0));
        let (open, acked, given_up) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { on, name: name.to_owned(), qos, size: 0, client, next: 0, open, acked, given_up }
    }

    /// Payloads of so many bytes.
    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    pub fn cluster(&self) -> &'c Cluster {
        self.on.cluster
    }

    /// Sends the next messages and waits for nothing.
    ///
    /// # Panics
    /// When it has no more numbers.
    #[track_caller]
    pub fn send(&mut self, count: u32) {
        assert!(self.next + count < NUMBERS_MAX, "too many numbers for {}", self.name);
        for number in self.next..self.next + count {
            let publish = self.message(number);
            self.client.send_unless_closed(&publish.bytes(Version::V5));
            self.open.insert(number, false);
        }
        self.next += count;
    }

    fn message(&self, number: u32) -> Publish {
        let mut payload = format!("{} {number} ", self.name).into_bytes();
        payload.resize(payload.len().max(self.size), b'.');
        Publish::new(self.on.topic(&format!("{TOPIC}/{}", self.name)), payload).qos(self.qos, packet_id(number))
    }

    /// Takes what comes in this time. Returns how many messages were acknowledged to the end.
    #[track_caller]
    pub fn hear(&mut self, time: Duration) -> usize {
        let (deadline, before) = (Instant::now() + time, self.acked.len());
        while let Some(Event::Packet(packet)) = self.client.event(deadline) {
            self.answered(packet);
        }
        self.acked.len() - before
    }

    #[track_caller]
    fn answered(&mut self, packet: Packet) {
        match packet {
            Packet::PubAck { packet_id, reason, .. } => {
                assert!(reason < 0x80, "{}: refused with {reason:#04X}", self.name);
                self.done(number(packet_id));
            }
            Packet::PubRec { packet_id, reason, .. } => {
                assert!(reason < 0x80, "{}: refused with {reason:#04X}", self.name);
                self.client.send_ack(first::PUBREL, packet_id);
                self.open.insert(number(packet_id), true);
            }
            Packet::PubComp { packet_id, reason, .. } => {
                assert!([0, reason::PACKET_ID_NOT_FOUND].contains(&reason), "{}: {reason:#04X}", self.name);
                self.done(number(packet_id));
            }
            Packet::Disconnect { .. } => {}
            other => panic!("{}: {other:?} to a publisher", self.name),
        }
    }

    #[track_caller]
    fn done(&mut self, number: u32) {
        assert!(self.open.remove(&number).is_some(), "{}: {number} is acknowledged and was not open", self.name);
        self.acked.insert(number);
    }

    /// Waits until all is acknowledged.
    ///
    /// # Panics
    /// When it is not in this time, or the connection ends.
    #[track_caller]
    pub fn settle(&mut self, patience: Duration) {
        self.settle_to(0, patience);
    }

    /// The same of all but so many.
    #[track_caller]
    pub fn settle_to(&mut self, open: usize, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.open.len() > open {
            match self.client.event(deadline) {
                Some(Event::Packet(packet)) => self.answered(packet),
                other => panic!("{}: {other:?}, and {:?} are not acknowledged", self.name, self.open),
            }
        }
    }

    /// Sends so many and waits for their answers, as many at a time as a server takes of everybody.
    #[track_caller]
    pub fn send_and_settle(&mut self, count: u32, patience: Duration) {
        for begin in (0..count).step_by(100) {
            self.send((count - begin).min(100));
            self.settle(patience);
        }
    }

    /// Goes on at another node, or at the same one, where its session must be, and sends again what is open.
    #[track_caller]
    pub fn move_to(&mut self, node: usize, patience: Duration) {
        self.come_to(node, patience);
        self.send_again();
    }

    /// The first half of that.
    #[track_caller]
    pub fn come_to(&mut self, node: usize, patience: Duration) {
        let connect = self.on.kept(&self.name).keep_alive(0);
        let (client, ack) = self.on.connect_within(node, &connect, patience);
        assert!(ack.session_present, "the session of {}", self.name);
        self.client = client;
    }

    /// The second.
    #[track_caller]
    pub fn send_again(&mut self) {
        for (number, released) in self.open.clone() {
            if released {
                self.client.send_ack(first::PUBREL, packet_id(number));
            } else {
                let publish = self.message(number).dup();
                self.client.send_publish(&publish);
            }
        }
    }

    /// Never sends again what is open; nobody may get it from now on. What had its PUBREC is the server's all the same.
    pub fn give_up(&mut self) {
        for (number, received) in std::mem::take(&mut self.open) {
            if received { &mut self.acked } else { &mut self.given_up }.insert(number);
        }
    }

    /// What is wrong with what a session got of it.
    fn faults(&self, got: &[u32]) -> Vec<String> {
        let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
        for number in got {
            let latest = seen.last().copied();
            if !seen.insert(*number) {
                faults.extend((self.qos == 2).then(|| format!("{number} came again")));
            } else if latest.is_some_and(|latest| latest > *number) {
                faults.push(format!("{number} came behind {latest:?}"));
            }
        }
        faults.extend(self.acked.difference(&seen).map(|number| format!("{number} is lost")));
        faults.extend(self.given_up.intersection(&seen).map(|number| format!("{number} came, and was given up")));
        faults
    }
}

fn packet_id(number: u32) -> u16 {
    u16::try_from(number + 1).expect("it was checked when it was sent")
}

fn number(packet_id: u16) -> u32 {
    u32::from(packet_id) - 1
}

/// Kept sessions with a subscription to all counters, whose clients have gone.
pub struct Estate<'c> {
    on: &'c ClusterStage<'c>,
    sessions: Vec<String>,
}

impl<'c> Estate<'c> {
    /// On one node, which lets them in by this time.
    #[track_caller]
    pub fn leave(on: &'c ClusterStage<'c>, node: usize, count: usize, patience: Duration) -> Self {
        let sessions: Vec<_> = (0..count).map(|number| format!("away{number}")).collect();
        for name in &sessions {
            let (mut client, _) = on.connect_within(node, &on.kept(name), patience);
            assert_eq!(client.subscribe(on.topic(&format!("{TOPIC}/#")), 2), 2);
            client.disconnect();
        }
        Self { on, sessions }
    }

    /// On which nodes they are, by what one says.
    ///
    /// # Panics
    /// When it does not say where each of them is.
    #[track_caller]
    pub fn homes(&self, by: usize) -> BTreeSet<String> {
        let clients: BTreeMap<_, _> = self.on.cluster.node(by).clients().expect("an answer").into_iter().collect();
        let home = |name: &String| clients.get(&self.on.client_id(name)).unwrap_or_else(|| panic!("no {name}")).clone();
        self.sessions.iter().map(home).collect()
    }

    /// Connects each to one of these nodes, in turn, and judges what it gets of these counters, each of which sends one more message, so that it is known when all has come.
    ///
    /// # Panics
    /// When a session is not there in this time, or has not got what it must.
    #[track_caller]
    pub fn judge(&self, nodes: &[usize], counters: &mut [&mut Counter], patience: Duration) {
        counters.iter_mut().for_each(|counter| counter.send_and_settle(1, patience));
        for (index, name) in self.sessions.iter().enumerate() {
            let (mut client, ack) =
                self.on.connect_within(nodes[index % nodes.len()], &self.on.kept(name).keep_alive(0), patience);
            assert!(ack.session_present, "{name}");
            let got = drain(&mut client, counters);
            for counter in counters.iter() {
                let numbers = got.get(&counter.name).map_or(&[][..], |numbers| numbers);
                let faults = counter.faults(numbers);
                let some = &faults[..faults.len().min(20)];
                assert!(
                    faults.is_empty(),
                    "{name} of {}: {} faults: {some:?}; {numbers:?}",
                    counter.name,
                    faults.len()
                );
            }
            client.disconnect();
        }
    }
}

/// Takes messages until the last of each counter has come, and what comes directly behind these.
#[track_caller]
fn drain(client: &mut Client, counters: &[&mut Counter]) -> BTreeMap<String, Vec<u32>> {
    let mut got: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let is_over = |got: &BTreeMap<String, Vec<u32>>| {
        let last = |counter: &Counter| got.get(&counter.name)?.last().copied();
        counters.iter().all(|counter| last(counter) == Some(counter.next - 1))
    };
    while !is_over(&got) {
        let packet = client.event(Instant::now() + NEXT);
        let Some(Event::Packet(packet)) = packet else {
            let counts: Vec<_> = got.iter().map(|(name, numbers)| (name, numbers.len(), numbers.last())).collect();
            panic!("{}: {packet:?} after {counts:?}", client.client_id);
        };
        take(client, packet, &mut got);
    }
    for packet in client.fence() {
        take(client, packet, &mut got);
    }
    got
}

fn take(client: &mut Client, packet: Packet, got: &mut BTreeMap<String, Vec<u32>>) {
    match packet {
        Packet::Publish(message) => {
            match message.qos {
                1 => client.send_ack(first::PUBACK, message.packet_id),
                2 => client.send_ack(first::PUBREC, message.packet_id),
                other => panic!("{}: QoS {other}", client.client_id),
            }
            let (name, number) = counted(&message);
            got.entry(name).or_default().push(number);
        }
        Packet::PubRel { packet_id, .. } => client.send_ack(first::PUBCOMP, packet_id),
        other => panic!("{}: {other:?} to a subscriber", client.client_id),
    }
}

fn counted(message: &Message) -> (String, u32) {
    let text = message.text();
    let mut words = text.split(' ');
    let name = words.next().expect("a text has a first word").to_owned();
    (name, words.next().and_then(|word| word.parse().ok()).expect("a payload of a counter"))
}
