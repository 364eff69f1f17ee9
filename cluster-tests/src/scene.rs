//! One installation with one broker at a time, which can be killed and started again, and clients of it.

use std::ops::Range;
use std::time::Duration;

use crate::client::Client;
use crate::process::{Broker, Installation, Setup};
use crate::transport::{Link, Transport};
use crate::wire::{Connect, Message, Packet, Publish, Version, first};

/// Segments so small that a test fills several, and the oldest are freed.
pub const SMALL_SEGMENTS: &str = "[storage]\nsegment_bytes = \"1MB\"";

/// 3.1.1 and 5.0.
pub const BOTH_VERSIONS: [Version; 2] = [Version::V311, Version::V5];

pub struct Scene {
    pub installation: Installation,
    pub broker: Broker,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

impl Scene {
    /// With small segments.
    pub fn new() -> Self {
        Self::with(Setup::new())
    }

    /// With small segments and what else is in the setup.
    pub fn with(setup: Setup) -> Self {
        Self::on(setup.section(SMALL_SEGMENTS).install())
    }

    pub fn on(installation: Installation) -> Self {
        let broker = installation.start();
        Self { installation, broker }
    }

    /// SIGKILL, and a start on what is there.
    pub fn kill_and_start(&mut self) {
        self.broker.kill();
        self.start();
    }

    /// The next broker; the one before has ended.
    pub fn start(&mut self) {
        self.broker = self.installation.start();
    }

    pub fn open(&self, version: Version) -> Client {
        let link = Link::open(Transport::Tcp, self.broker.listener("tcp"), None).expect("the broker listens");
        Client::new(link, version)
    }

    /// Connects, which must succeed. Returns Session Present too.
    #[track_caller]
    pub fn connect(&self, connect: &Connect) -> (Client, bool) {
        let mut client = self.open(connect.version);
        let ack = client.connect(connect);
        (client, ack.session_present)
    }

    /// A connected 5.0 client with a session that ends with the connection.
    #[track_caller]
    pub fn client(&self, name: &str) -> Client {
        self.connect(&Connect::new(Version::V5, name)).0
    }

    /// A client whose session must be present.
    #[track_caller]
    pub fn resume(&self, connect: &Connect) -> Client {
        let (client, present) = self.connect(connect);
        assert!(present, "{}: its session is not present", client.client_id);
        client
    }

    /// A new kept session with one subscription, whose client has disconnected.
    #[track_caller]
    pub fn leave_session(&self, connect: &Connect, filter: &str, qos: u8) {
        let (mut client, present) = self.connect(connect);
        assert!(!present);
        assert_eq!(client.subscribe(filter, qos), qos);
        client.disconnect();
    }

    /// Takes all that waits for a session: what comes before the last of the messages that are published behind it, one with each QoS, for
    /// messages of one QoS may overtake those of another. A PUBREL without its message is answered.
    #[track_caller]
    pub fn drain(&self, client: &mut Client, topic: &str) -> Vec<Message> {
        let mut publisher = self.client("marker");
        for qos in [1, 2] {
            assert!(publisher.publish(topic, MARKER, qos) < 0x80);
        }
        let (mut got, mut markers) = (Vec::new(), 0);
        while markers < 2 {
            match client.recv() {
                Packet::PubRel { packet_id, .. } => client.send_ack(first::PUBCOMP, packet_id),
                Packet::Publish(message) => {
                    client.acknowledge(&message);
                    markers += usize::from(message.text() == MARKER);
                    got.push(message);
                }
                other => panic!("{other:?} to a subscriber"),
            }
        }
        got.retain(|message| message.text() != MARKER);
        got
    }
}

const MARKER: &str = "marker";

/// A CONNECT with a session that is kept for an hour.
pub fn kept(version: Version, name: &str) -> Connect {
    Connect::new(version, name).durable(3_600)
}

/// The name of one of several clients, by version.
pub fn named(version: Version, name: &str) -> String {
    format!("{name}-{version:?}")
}

pub fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}

/// The payloads of [`publish_numbers`].
pub fn numbers(range: Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Publishes numbers in order, one after another, all of which must be accepted.
#[track_caller]
pub fn publish_numbers(client: &mut Client, topic: &str, range: Range<usize>, qos: u8) {
    for number in range {
        let reason = client.publish(topic, number.to_string(), qos);
        assert!(reason < 0x80, "{number} is refused: {reason:#04X}");
    }
}

/// Publishes payloads with QoS 1, many at a time. Returns how many were accepted; what was refused was with one of the reasons given.
#[track_caller]
pub fn publish_many(
    client: &mut Client,
    topic: &str,
    payloads: impl Iterator<Item = Vec<u8>>,
    refusals: &[u8],
) -> usize {
    const OPEN_MAX: usize = 50;
    let (mut open, mut accepted) = (0, 0);
    let mut wait = |client: &mut Client, open: &mut usize| match client.recv() {
        Packet::PubAck { reason, .. } => {
            *open -= 1;
            accepted += usize::from(reason < 0x80);
            assert!(reason < 0x80 || refusals.contains(&reason), "refused: {reason:#04X}");
        }
        other => panic!("{other:?} to a publisher"),
    };
    for payload in payloads {
        let packet_id = client.packet_id();
        client.send_publish(&Publish::new(topic, payload).qos(1, packet_id));
        open += 1;
        if open == OPEN_MAX {
            wait(client, &mut open);
        }
    }
    while open > 0 {
        wait(client, &mut open);
    }
    accepted
}

/// Lets time pass where time is what the test is about.
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}
